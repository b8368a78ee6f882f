//! The `api` commands of the simulated FreeSWITCH.

use crate::sim::freeswitch::event::{Event, Value, date, json_string, uptime};
use crate::sim::freeswitch::{FreeSwitch, HOSTNAME, VERSION};
use crate::sim::pbx::Pbx;
use crate::time::Timestamp;

/// Runs a command; its output is what the socket answers.
pub(super) fn run(pbx: &mut Pbx<FreeSwitch>, at: Timestamp, command: &str, arguments: &str) -> Vec<u8> {
    let arguments = arguments.trim();
    match command {
        "status" => status(pbx, at).into_bytes(),
        "show" => show(pbx, arguments),
        "uuid_dump" => uuid_dump(pbx, at, arguments),
        "uuid_getvar" => uuid_getvar(pbx, arguments),
        "uuid_exists" => pbx.dialect.channels.contains_key(arguments).to_string().into_bytes(),
        "global_setvar" => global_setvar(pbx, arguments),
        "global_getvar" => global_getvar(pbx, arguments),
        "sofia" => sofia(pbx, arguments).into_bytes(),
        "echo" => arguments.as_bytes().to_vec(),
        "uptime" => uptime_in(pbx, at, arguments),
        "hostname" | "switchname" => HOSTNAME.as_bytes().to_vec(),
        "version" => format!("FreeSWITCH Version {VERSION}\n").into_bytes(),
        "strepoch" => (at.as_micros() / 1_000_000).to_string().into_bytes(),
        _ => format!("-ERR {command} Command not found!\n").into_bytes(),
    }
}

fn status(pbx: &Pbx<FreeSwitch>, at: Timestamp) -> String {
    let switch = &pbx.dialect;
    let sessions = switch.sessions;
    format!(
        "UP {}\nFreeSWITCH (Version {VERSION}) is ready\n{} session(s) since startup\n{} session(s) - peak {}, last 5min {} \n\
         {} session(s) per Sec out of max 200, peak {}, last 5min {} \n{} session(s) max\nmin idle cpu 0.00/{:.2}\n\
         Current Stack Size/Max 240K/8192K\n",
        uptime(at.since(switch.started).as_micros()),
        sessions.since_startup,
        switch.channels.len(),
        sessions.peak,
        sessions.peak,
        sessions.last_second,
        sessions.most_in_a_second,
        sessions.most_in_a_second,
        switch.max_sessions,
        pbx.load.idle_cpu,
    )
}

fn uptime_in(pbx: &Pbx<FreeSwitch>, at: Timestamp, unit: &str) -> Vec<u8> {
    let up = at.since(pbx.dialect.started);
    match unit {
        "ms" => up.as_millis().to_string(),
        "us" => up.as_micros().to_string(),
        _ => up.as_secs().to_string(),
    }
    .into_bytes()
}

fn show(pbx: &Pbx<FreeSwitch>, arguments: &str) -> Vec<u8> {
    let count = pbx.dialect.channels.len();
    match arguments {
        "channels as json" if count == 0 => b"{\"row_count\": 0}\n".to_vec(),
        "channels as json" => show_channels(pbx),
        "channels count" | "calls count" => format!("\n{count} total.\n").into_bytes(),
        "channels count as json" => format!("{{\"row_count\":{count},\"rows\":[]}}\n").into_bytes(),
        _ => b"-USAGE: codec|endpoint|application|api|dialplan|file|timer|calls [count]|channels [count|like <match string>]|\
               calls|detailed_calls|bridged_calls|detailed_bridged_calls|aliases|complete|chat|management|modules|nat_map|say|\
               interfaces|interface_types|tasks|limits|status [as xml|as csv|as json]\n"
            .to_vec(),
    }
}

fn show_channels(pbx: &Pbx<FreeSwitch>) -> Vec<u8> {
    let channels = &pbx.dialect.channels;
    let mut out = format!("{{\"row_count\":{},\"rows\":[", channels.len()).into_bytes();
    for (index, channel) in channels.values().enumerate() {
        let profile = &channel.profile;
        let created = profile.times.created;
        let application = |name: &str| match channel.variables.get(name) {
            Some(Value::Text(text)) => text.clone(),
            _ => Vec::new(),
        };
        let callee = profile.callee.clone().unwrap_or_default();
        let fields: [(&str, Vec<u8>); 27] = [
            ("uuid", profile.uuid.clone().into()),
            ("direction", if profile.outbound { "outbound" } else { "inbound" }.into()),
            ("created", date(created).into()),
            ("created_epoch", (created.as_micros() / 1_000_000).to_string().into()),
            ("name", profile.channel.clone().into()),
            ("state", channel.state.into()),
            ("cid_name", profile.name.clone()),
            ("cid_num", profile.number.clone().into()),
            ("ip_addr", super::HOST.into()),
            ("dest", profile.destination.clone().into()),
            ("application", application("current_application")),
            ("application_data", application("current_application_data")),
            ("dialplan", "XML".into()),
            ("context", "callers".into()),
            ("read_codec", "PCMA".into()),
            ("read_rate", "8000".into()),
            ("read_bit_rate", "64000".into()),
            ("write_codec", "PCMA".into()),
            ("write_rate", "8000".into()),
            ("write_bit_rate", "64000".into()),
            ("secure", Vec::new()),
            ("hostname", HOSTNAME.into()),
            ("accountcode", Vec::new()),
            ("callstate", channel.call_state.into()),
            ("callee_name", if callee.is_empty() { Vec::new() } else { b"Outbound Call".to_vec() }),
            ("callee_num", callee.into()),
            ("call_uuid", channel.call_uuid.clone().into()),
        ];
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        for (index, (name, value)) in fields.iter().enumerate() {
            out.extend_from_slice(format!("{}\"{name}\":", if index == 0 { "" } else { "," }).as_bytes());
            json_string(value, &mut out);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}\n");
    out
}

fn uuid_dump(pbx: &mut Pbx<FreeSwitch>, at: Timestamp, arguments: &str) -> Vec<u8> {
    let (uuid, format) = arguments.split_once(' ').unwrap_or((arguments, ""));
    if !pbx.dialect.channels.contains_key(uuid) {
        return b"-ERR No such channel!\n".to_vec();
    }
    let mut event: Event = pbx.dialect.head("CHANNEL_DATA", ("mod_commands.c", "uuid_dump_function", 6418), at);
    if let Some(channel) = pbx.dialect.channels.get(uuid) {
        channel.write_basics(&mut event);
        channel.write_variables(&mut event);
    }
    if format.trim() == "json" { event.json_object() } else { event.plain() }
}

fn uuid_getvar(pbx: &Pbx<FreeSwitch>, arguments: &str) -> Vec<u8> {
    let (uuid, name) = arguments.split_once(' ').unwrap_or((arguments, ""));
    let Some(channel) = pbx.dialect.channels.get(uuid) else { return b"-ERR No such channel!\n".to_vec() };
    match channel.variables.get(name.trim()) {
        Some(Value::Text(text)) => text.clone(),
        Some(Value::List(items)) => format!("ARRAY::{}", items.join("|:")).into_bytes(),
        None => b"_undef_".to_vec(),
    }
}

/// `name` deletes, `name=value` sets, `name=value=old` sets where the value was `old`. Always +OK, done or not.
fn global_setvar(pbx: &mut Pbx<FreeSwitch>, arguments: &str) -> Vec<u8> {
    let mut parts = split_arguments(arguments).into_iter();
    let name = parts.next().unwrap_or_default();
    if name.is_empty() {
        return b"-USAGE: <var>=<value> [=<value2>]\n".to_vec();
    }
    let (value, expected) = (parts.next().unwrap_or_default(), parts.next());
    if let Some(expected) = expected
        && pbx.variables.get(&name).is_none_or(|have| *have != expected)
    {
        return b"+OK".to_vec();
    }
    if value.is_empty() {
        pbx.variables.remove(&name);
    } else {
        // What looks like a variable would be expanded for ever: FreeSWITCH defuses it.
        pbx.variables.insert(name, value.replace("${", "%{"));
    }
    b"+OK".to_vec()
}

/// Splits at `=` (or at the delimiter that `^^X` names) into three parts at most. Quotes, backslashes and blanks
/// around a part are eaten.
fn split_arguments(text: &str) -> Vec<String> {
    let mut chars = text.chars();
    let delimiter = match text.strip_prefix("^^").and_then(|rest| rest.chars().next()) {
        Some(delimiter) => {
            chars = text[2 + delimiter.len_utf8()..].chars();
            delimiter
        }
        None => '=',
    };
    let mut parts = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for c in chars {
        let last = parts.len() - 1;
        match c {
            _ if escaped => {
                parts[last].push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '\'' => quoted = !quoted,
            _ if c == delimiter && !quoted && parts.len() < 3 => parts.push(String::new()),
            _ => parts[last].push(c),
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

fn global_getvar(pbx: &Pbx<FreeSwitch>, name: &str) -> Vec<u8> {
    if name == "core_uuid" {
        return pbx.dialect.core.clone().into_bytes();
    }
    if name.is_empty() {
        return pbx.variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect::<String>().into_bytes();
    }
    pbx.variables.get(name).cloned().unwrap_or_default().into_bytes()
}

fn sofia(pbx: &Pbx<FreeSwitch>, arguments: &str) -> String {
    let Some(name) = arguments.strip_prefix("status gateway ").map(str::trim) else {
        return "-ERR Unknown command!\n".to_owned();
    };
    let line = "=".repeat(98);
    match pbx.vendor_state(name) {
        None => "Invalid Gateway!\n".to_owned(),
        Some(up) => format!(
            "{line}\nName\t\t{name}\nProfile \texternal\nState   \tNOREG\nStatus  \t{}\nCallsIN\t\t0\n{line}\n",
            if up { "UP" } else { "DOWN" }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::split_arguments;

    #[test]
    fn a_value_with_an_equals_sign_is_taken_apart() {
        assert_eq!(split_arguments("a=b"), ["a", "b"]);
        assert_eq!(split_arguments("a"), ["a"]);
        assert_eq!(split_arguments("gvar=[leg_timeout=5]sofia/x"), ["gvar", "[leg_timeout", "5]sofia/x"]);
        assert_eq!(split_arguments("name=p\\=q"), ["name", "p=q"]);
        assert_eq!(split_arguments("name='x=y z'"), ["name", "x=y z"]);
        assert_eq!(split_arguments("^^;name;value=with=equals"), ["name", "value=with=equals"]);
    }
}
