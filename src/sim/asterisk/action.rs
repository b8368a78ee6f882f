//! The actions of the simulated Asterisk.

use crate::sim::asterisk::class::Classes;
use crate::sim::asterisk::message::Message;
use crate::sim::asterisk::session::Action;
use crate::sim::asterisk::{Asterisk, Version};
use crate::sim::pbx::{Output, Pbx};
use crate::time::Timestamp;

const SYSTEM_OR_REPORTING: Classes = Classes::SYSTEM.or(Classes::REPORTING);
const CALL_OR_REPORTING: Classes = Classes::CALL.or(Classes::REPORTING);

/// Name, synopsis, and the classes of which one is needed (none: anybody may).
const ACTIONS: [(&str, &str, Classes); 14] = [
    ("Ping", "Keepalive command.", Classes::NONE),
    ("ListCommands", "List available manager commands.", Classes::NONE),
    ("Filter", "Dynamically add filters for the current manager session.", Classes::SYSTEM),
    ("CoreShowChannels", "List currently active channels.", SYSTEM_OR_REPORTING),
    ("CoreStatus", "Show PBX core status variables.", SYSTEM_OR_REPORTING),
    ("CoreSettings", "Show PBX core settings (version etc).", SYSTEM_OR_REPORTING),
    ("Setvar", "Sets a channel variable or function value.", Classes::CALL),
    ("Getvar", "Gets a channel variable or function value.", CALL_OR_REPORTING),
    ("DBPut", "Put DB entry.", Classes::SYSTEM),
    ("DBGet", "Get DB Entry.", SYSTEM_OR_REPORTING),
    ("DBGetTree", "Get DB entries, optionally at a particular family/key", SYSTEM_OR_REPORTING),
    ("DBDel", "Delete DB entry.", Classes::SYSTEM),
    ("DBDelTree", "Delete DB Tree.", Classes::SYSTEM),
    ("Command", "Execute Asterisk CLI Command.", Classes::COMMAND),
];

/// Performs an action of a client that is logged in. `name` is in lower case.
pub(super) fn run(
    pbx: &mut Pbx<Asterisk>,
    at: Timestamp,
    connection: u64,
    name: &str,
    action: &Action<'_>,
) -> Vec<Output> {
    let Some((_, _, needed)) = ACTIONS.iter().find(|(have, _, _)| have.eq_ignore_ascii_case(name)) else {
        let named = action.text("Action");
        let text = format!("Invalid/unknown command: {named}. Use Action: ListCommands to show available commands.");
        return vec![action.error(&text)];
    };
    if *needed != Classes::NONE && !pbx.dialect.write.meets(*needed) {
        return vec![action.error("Permission denied")];
    }
    match name {
        "ping" => vec![ping(at, action)],
        "listcommands" => vec![list_commands(pbx, action)],
        "filter" => vec![filter(pbx, connection, action)],
        "coreshowchannels" => core_show_channels(pbx, at, action),
        "corestatus" => vec![core_status(pbx, action)],
        "coresettings" => vec![core_settings(pbx, action)],
        "setvar" => vec![setvar(pbx, at, action)],
        "getvar" => vec![getvar(pbx, action)],
        "dbput" => vec![db_put(pbx, action)],
        "dbget" => db_get(pbx, action),
        "dbgettree" => db_get_tree(pbx, action),
        "dbdel" => vec![db_del(pbx, action)],
        "dbdeltree" => vec![db_del_tree(pbx, action)],
        _ => vec![command(action)],
    }
}

fn ping(at: Timestamp, action: &Action<'_>) -> Output {
    let mut response = Message::response("Success", action.id());
    response.push("Ping", "Pong");
    let micros = at.as_micros();
    response.push("Timestamp", format!("{}.{:06}", micros / 1_000_000, micros.rem_euclid(1_000_000)));
    Output::Say(response.finish())
}

fn list_commands(pbx: &Pbx<Asterisk>, action: &Action<'_>) -> Output {
    let mut response = Message::response("Success", action.id());
    for (name, synopsis, needed) in ACTIONS {
        if needed == Classes::NONE || pbx.dialect.write.meets(needed) {
            let classes = if needed == Classes::NONE { "<none>".to_owned() } else { needed.list() };
            response.push(name, format!("{synopsis}  (Priv: {classes})"));
        }
    }
    Output::Say(response.finish())
}

fn filter(pbx: &mut Pbx<Asterisk>, connection: u64, action: &Action<'_>) -> Output {
    if !action.text("Operation").eq_ignore_ascii_case("add") {
        return action.error("Unknown operation");
    }
    if let Some(subscription) = pbx.subscription(connection) {
        subscription.add_filter(action.get("MatchCriteria"), action.text("Filter"));
    }
    action.success("Success")
}

/// The head of a list.
fn list_start(action: &Action<'_>, message: &str) -> Output {
    let mut response = Message::response("Success", action.id());
    response.push("EventList", "start");
    response.push("Message", message);
    Output::Say(response.finish())
}

/// The tail of a list.
fn list_end(action: &Action<'_>, name: &str, items: usize) -> Output {
    let mut end = Message::item(name, action.id());
    end.push("EventList", "Complete");
    end.push("ListItems", items.to_string());
    Output::Say(end.finish())
}

fn core_show_channels(pbx: &Pbx<Asterisk>, at: Timestamp, action: &Action<'_>) -> Vec<Output> {
    let mut outputs = vec![list_start(action, "Channels will follow")];
    let channels = pbx.dialect.channels();
    let count = channels.len();
    for channel in channels {
        let mut item = Message::item("CoreShowChannel", action.id());
        channel.write("", &mut item);
        item.push("Application", channel.application.0);
        item.push("ApplicationData", &channel.application.1);
        item.push("Duration", channel.age(at));
        item.push("BridgeId", channel.bridge.as_deref().unwrap_or_default());
        outputs.push(Output::Say(item.finish()));
    }
    outputs.push(list_end(action, "CoreShowChannelsComplete", count));
    outputs
}

fn core_status(pbx: &Pbx<Asterisk>, action: &Action<'_>) -> Output {
    let asterisk = &pbx.dialect;
    let started = asterisk.started.to_string();
    // RFC 3339: the date, a T, the time, its fraction.
    let (date, time) = started.split_once('T').unwrap_or((&started, ""));
    let time = time.split('.').next().unwrap_or_default();
    let mut response = Message::response("Success", action.id());
    for (date_key, time_key) in [("CoreStartupDate", "CoreStartupTime"), ("CoreReloadDate", "CoreReloadTime")] {
        response.push(date_key, date);
        response.push(time_key, time);
    }
    response.push("CoreCurrentCalls", asterisk.channels().len().to_string());
    if asterisk.version == Version::V22 {
        response.push("CoreProcessedCalls", asterisk.processed.to_string());
    }
    Output::Say(response.finish())
}

fn core_settings(pbx: &Pbx<Asterisk>, action: &Action<'_>) -> Output {
    let version = pbx.dialect.version;
    let mut response = Message::response("Success", action.id());
    for (key, value) in [
        ("AMIversion", version.banner()),
        ("AsteriskVersion", version.text()),
        ("SystemName", ""),
        ("CoreMaxCalls", "0"),
        ("CoreMaxLoadAvg", "0.000000"),
        ("CoreRunUser", ""),
        ("CoreRunGroup", ""),
        ("CoreMaxFilehandles", "0"),
        ("CoreRealTimeEnabled", "No"),
        ("CoreCDRenabled", "Yes"),
        ("CoreHTTPenabled", "No"),
        ("SoundsSearchCustomDir", "No"),
    ] {
        response.push(key, value);
    }
    Output::Say(response.finish())
}

/// A function's name and argument, where it is one.
fn function(name: &str) -> Option<(&str, &str)> {
    name.strip_suffix(')')?.split_once('(')
}

fn setvar(pbx: &mut Pbx<Asterisk>, at: Timestamp, action: &Action<'_>) -> Output {
    let (name, value) = (action.text("Variable"), action.text("Value"));
    if name.is_empty() {
        return action.error("No variable specified");
    }
    if !action.text("Channel").is_empty() {
        return action.error("No such channel");
    }
    let name = match function(name) {
        Some((wrapper, inner)) if wrapper.eq_ignore_ascii_case("GLOBAL") => inner,
        Some(_) => return action.error("Variable not set"),
        None => name.trim_start_matches('_'),
    };
    pbx.variables.insert(name.to_owned(), value.to_owned());
    pbx.publish(&Asterisk::global_set(at, name, value));
    action.success("Variable Set")
}

fn getvar(pbx: &Pbx<Asterisk>, action: &Action<'_>) -> Output {
    let name = action.text("Variable");
    if name.is_empty() {
        return action.error("No variable specified");
    }
    if !action.text("Channel").is_empty() {
        return action.error("No such channel");
    }
    let value = match function(name) {
        Some((wrapper, inner)) if wrapper.eq_ignore_ascii_case("GLOBAL") => pbx.variables.get(inner).cloned(),
        Some((wrapper, "loadavg")) if wrapper.eq_ignore_ascii_case("SYSINFO") => {
            Some(format!("{:.6}", pbx.load.load_average))
        }
        Some((wrapper, "numcalls")) if wrapper.eq_ignore_ascii_case("SYSINFO") => Some(pbx.active_calls.to_string()),
        Some((wrapper, _)) if wrapper.eq_ignore_ascii_case("SHELL") && !pbx.dialect.write.meets(Classes::SYSTEM) => {
            return action.error("GetVar Access Forbidden: Variable");
        }
        // Functions that are refused answer with success and nothing.
        Some(_) => None,
        None => pbx.variables.get(name).cloned(),
    };
    let mut response = Message::response("Success", action.id());
    response.push("Variable", name);
    response.push("Value", value.unwrap_or_default());
    Output::Say(response.finish())
}

fn family_and_key(action: &Action<'_>) -> Result<(String, String), Output> {
    match (action.text("Family"), action.text("Key")) {
        ("", _) => Err(action.error("No family specified")),
        (_, "") => Err(action.error("No key specified")),
        (family, key) => Ok((family.to_owned(), key.to_owned())),
    }
}

fn db_put(pbx: &mut Pbx<Asterisk>, action: &Action<'_>) -> Output {
    match family_and_key(action) {
        Ok(entry) => {
            pbx.dialect.database.insert(entry, action.text("Val").to_owned());
            action.success("Updated database successfully")
        }
        Err(error) => error,
    }
}

fn db_get(pbx: &Pbx<Asterisk>, action: &Action<'_>) -> Vec<Output> {
    let entry = match family_and_key(action) {
        Ok(entry) => entry,
        Err(error) => return vec![error],
    };
    let Some(value) = pbx.dialect.database.get(&entry) else {
        return vec![action.error("Database entry not found")];
    };
    let mut item = Message::item("DBGetResponse", action.id());
    item.push("Family", &entry.0);
    item.push("Key", &entry.1);
    item.push("Val", value);
    vec![list_start(action, "Result will follow"), Output::Say(item.finish()), list_end(action, "DBGetComplete", 1)]
}

fn db_get_tree(pbx: &Pbx<Asterisk>, action: &Action<'_>) -> Vec<Output> {
    if pbx.dialect.version == Version::V16 && action.text("Family").is_empty() {
        return vec![action.error("No family specified")];
    }
    let (family, prefix) = (action.text("Family"), action.text("Key"));
    let mut outputs = vec![list_start(action, "Result will follow")];
    for ((have, key), value) in &pbx.dialect.database {
        if have == family && key.starts_with(prefix) {
            let mut item = Message::item("DBGetTreeResponse", action.id());
            item.push("Key", format!("/{have}/{key}"));
            item.push("Val", value);
            outputs.push(Output::Say(item.finish()));
        }
    }
    let count = outputs.len() - 1;
    outputs.push(list_end(action, "DBGetTreeComplete", count));
    outputs
}

fn db_del(pbx: &mut Pbx<Asterisk>, action: &Action<'_>) -> Output {
    match family_and_key(action) {
        Ok(entry) => match pbx.dialect.database.remove(&entry) {
            Some(_) => action.success("Key deleted successfully"),
            None => action.error("Database entry could not be deleted"),
        },
        Err(error) => error,
    }
}

fn db_del_tree(pbx: &mut Pbx<Asterisk>, action: &Action<'_>) -> Output {
    let (family, prefix) = (action.text("Family"), action.text("Key"));
    let before = pbx.dialect.database.len();
    pbx.dialect.database.retain(|(have, key), _| !(have == family && key.starts_with(prefix)));
    if pbx.dialect.database.len() == before {
        action.error("Database entry not found")
    } else {
        action.success("Key tree deleted successfully")
    }
}

fn command(action: &Action<'_>) -> Output {
    let mut response = Message::response("Success", action.id());
    response.push("Message", "Command output follows");
    response.push("Output", "");
    Output::Say(response.finish())
}
