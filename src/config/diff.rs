//! What changes from one checked configuration to another, in words, and what of it only a restart can change. Pure.
//!
//! Of what takes a restart only the names of the keys are told, never a value: passwords and tokens are among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::{
    Balancing, BreakerSettings, Config, Connection, Customer, EdgeGroup, Email, Http, Log, Member, Node, Operator,
    Role, RouteEntry, RouteMap, RouteTarget, Scoring, Smtp, Storage, Tls, Token, Variables, Via, Xds, XdsTls, XdsToken,
};
use crate::call::outcome::{CauseTable, Outcome};
use crate::ids::NodeId;
use crate::quality::settings::Settings;
use crate::routing::rule::{Criterion, Measure, Rule};

/// What the difference between two configurations is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ConfigurationDiff)]
pub struct Diff {
    /// What a running program can take over.
    pub changes: Vec<Change>,
    /// The parts that only a restart changes, with their keys, e.g. `[[nodes]] pbx-01: address`.
    pub takes_restart: Vec<String>,
}

/// A change that a running program can take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ConfigurationChange)]
pub struct Change {
    /// What kind of thing changes.
    pub of: Changed,
    /// Its id.
    pub id: String,
    /// The change in words, e.g. `route map intl: vendor-b priority 20 -> 15`.
    pub words: String,
}

/// What a running program can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// A customer.
    Customer,
    /// A connection.
    Connection,
    /// A routing rule that a map is under before and after.
    RoutingRule,
    /// A route map.
    RouteMap,
}

impl Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Customer => "customer",
            Self::Connection => "connection",
            Self::RoutingRule => "routing rule",
            Self::RouteMap => "route map",
        })
    }
}

impl Diff {
    /// From `before` to `after`.
    #[must_use]
    pub fn between(before: &Config, after: &Config) -> Self {
        let mut changes = Vec::new();
        let customer = |customer: &Customer| customer.id.to_string();
        each(Changed::Customer, &before.customers, &after.customers, customer, &mut changes, customers);
        let connection = |connection: &Connection| connection.id.to_string();
        each(Changed::Connection, &before.connections, &after.connections, connection, &mut changes, connections);
        let (rules_before, rules_after) = (rules(before), rules(after));
        for (id, rule) in rules_before {
            if let Some(now) = rules_after.get(id) {
                criteria(rule, now, &mut Told { of: Changed::RoutingRule, id, into: &mut changes });
            }
        }
        let map = |map: &RouteMap| map.id.to_string();
        each(Changed::RouteMap, &before.route_maps, &after.route_maps, map, &mut changes, maps);
        Self { changes, takes_restart: takes_restart(before, after) }
    }

    /// Whether both are the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.takes_restart.is_empty()
    }
}

// ===== what a running program can take over =====

/// Where the changes of one thing go.
struct Told<'a> {
    of: Changed,
    id: &'a str,
    into: &'a mut Vec<Change>,
}

impl Told<'_> {
    /// A change of it.
    fn tell(&mut self, what: impl Display) {
        let words = format!("{} {}: {what}", self.of, self.id);
        self.into.push(Change { of: self.of, id: self.id.to_owned(), words });
    }

    /// What became of it as a whole.
    fn whole(&mut self, what: &str) {
        let words = format!("{} {} {what}", self.of, self.id);
        self.into.push(Change { of: self.of, id: self.id.to_owned(), words });
    }

    /// A value of it, where that has changed; `None`: there is none.
    fn value(&mut self, name: &str, before: Option<String>, after: Option<String>) {
        if before != after {
            let shown = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
            self.tell(format_args!("{name} {} -> {}", shown(before), shown(after)));
        }
    }

    /// The same of a list.
    fn list(&mut self, name: &str, before: &[impl Display], after: &[impl Display]) {
        self.value(name, joined(before), joined(after));
    }
}

fn joined(values: &[impl Display]) -> Option<String> {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Compares two lists of things by their ids: what was changed or added, in the order of the new list, then what was removed.
fn each<T>(
    of: Changed,
    before: &[T],
    after: &[T],
    id: impl Fn(&T) -> String,
    into: &mut Vec<Change>,
    compare: impl Fn(&T, &T, &mut Told<'_>),
) {
    let known: BTreeMap<String, &T> = before.iter().map(|one| (id(one), one)).collect();
    let mut there = BTreeSet::new();
    for now in after {
        let name = id(now);
        let mut told = Told { of, id: &name, into };
        match known.get(&name) {
            Some(then) => compare(then, now, &mut told),
            None => told.whole("added"),
        }
        there.insert(name);
    }
    for gone in before.iter().map(id).filter(|name| !there.contains(name)) {
        Told { of, id: &gone, into }.whole("removed");
    }
}

fn customers(before: &Customer, after: &Customer, told: &mut Told<'_>) {
    let Customer { id: _, name, email, language, time_zone } = before;
    told.value("name", name.clone(), after.name.clone());
    told.list("email", email, &after.email);
    told.value("language", word(language), word(&after.language));
    let zone = |zone: &Option<jiff::tz::TimeZone>| zone.as_ref().map(zone_name);
    told.value("time_zone", zone(time_zone), zone(&after.time_zone));
}

fn zone_name(zone: &jiff::tz::TimeZone) -> String {
    zone.iana_name().unwrap_or("unnamed").to_owned()
}

fn connections(before: &Connection, after: &Connection, told: &mut Told<'_>) {
    let Connection { id, customer, names, quality, causes, judge_per } = before;
    told.value(
        "customer",
        customer.as_ref().map(ToString::to_string),
        after.customer.as_ref().map(ToString::to_string),
    );
    for node in names.keys().chain(after.names.keys()).collect::<BTreeSet<_>>() {
        let name_on = |connection: &Connection| Some(connection.name_on(node).to_owned());
        told.value(
            &format!("name on {node}"),
            Some(names.get(node).map_or(id.as_str(), String::as_str).to_owned()),
            name_on(after),
        );
    }
    settings(quality, &after.quality, told);
    told.value("judge_per", word(judge_per), word(&after.judge_per));
    cause_tables(causes, &after.causes, told);
}

/// Every setting under its key, whichever there are.
fn settings(before: &Settings, after: &Settings, told: &mut Told<'_>) {
    let (before, after) = (serde_json::to_value(before), serde_json::to_value(after));
    if let (Ok(Value::Object(before)), Ok(Value::Object(after))) = (before, after) {
        for (key, now) in &after {
            told.value(key, shown(before.get(key)), shown(Some(now)));
        }
    }
}

/// A value that is serialised as a word.
fn word(value: &impl Serialize) -> Option<String> {
    shown(serde_json::to_value(value).ok().as_ref())
}

/// A value as it would be written; whole numbers without a fraction.
fn shown(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string())),
        Value::Object(fields) => {
            let field = |(key, value)| format!("{key} = {}", shown(Some(value)).unwrap_or_default());
            Some(format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", ")))
        }
        other => Some(other.to_string()),
    }
}

fn cause_tables(before: &CauseTable, after: &CauseTable, told: &mut Told<'_>) {
    let tables = [("sip", before.sip(), after.sip()), ("q850", before.q850(), after.q850())];
    for (table, before, after) in tables {
        for number in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let outcome = |table: &BTreeMap<u16, Outcome>| {
                Some(table.get(number).map_or_else(|| "as by default".to_owned(), ToString::to_string))
            };
            told.value(&format!("causes.{table} {number}"), outcome(before), outcome(after));
        }
    }
}

/// The rules that maps are under, by their ids.
fn rules(config: &Config) -> BTreeMap<&str, &Rule> {
    config.route_maps.iter().filter_map(|map| map.rule.as_ref()).map(|rule| (&*rule.id, rule)).collect()
}

fn criteria(before: &Rule, after: &Rule, told: &mut Told<'_>) {
    for measure in before.criteria.keys().chain(after.criteria.keys()).collect::<BTreeSet<_>>() {
        criterion(*measure, before.criteria.get(measure), after.criteria.get(measure), told);
    }
}

fn criterion(measure: Measure, before: Option<&Criterion>, after: Option<&Criterion>, told: &mut Told<'_>) {
    let name = measure.as_str();
    match (before, after) {
        (Some(before), Some(after)) => {
            let Criterion { weight, latency, compensation } = before;
            told.value(&format!("{name} weight"), Some(weight.to_string()), Some(after.weight.to_string()));
            told.value(&format!("{name} latency"), Some(latency.to_string()), Some(after.latency.to_string()));
            let key = format!("{name} compensation");
            told.value(&key, Some(compensation.to_string()), Some(after.compensation.to_string()));
        }
        (None, Some(Criterion { weight, latency, compensation })) => told
            .tell(format_args!("{name} enabled with weight {weight}, latency {latency}, compensation {compensation}")),
        (Some(_), None) => told.tell(format_args!("{name} disabled")),
        (None, None) => {}
    }
}

fn maps(before: &RouteMap, after: &RouteMap, told: &mut Told<'_>) {
    let RouteMap { id: _, prefixes, entries: routes, nodes, rule, when_all_blocked } = before;
    let quoted = |prefixes: &[String]| prefixes.iter().map(|prefix| format!("{prefix:?}")).collect::<Vec<_>>();
    told.list("prefixes", &quoted(prefixes), &quoted(&after.prefixes));
    let rule_of = |rule: &Option<Rule>| rule.as_ref().map(|rule| rule.id.to_string());
    told.value("rule", rule_of(rule), rule_of(&after.rule));
    let concerned = |nodes: &[_]| joined(nodes).or_else(|| Some("all".to_owned()));
    told.value("nodes", concerned(nodes), concerned(&after.nodes));
    told.value("when_all_blocked", word(when_all_blocked), word(&after.when_all_blocked));
    entries(routes, &after.entries, told);
}

/// A target may be there twice (a nested map): its entries are compared in the order written.
fn entries(before: &[RouteEntry], after: &[RouteEntry], told: &mut Told<'_>) {
    let told_before = told.into.len();
    let mut left: Vec<&RouteEntry> = before.iter().collect();
    for RouteEntry { target, priority } in after {
        match left.iter().position(|entry| entry.target == *target) {
            Some(place) => {
                let then = left.remove(place).priority;
                told.value(
                    &format!("{} priority", target_words(target)),
                    Some(then.to_string()),
                    Some(priority.to_string()),
                );
            }
            None => told.tell(format_args!("{} added at {priority}", target_words(target))),
        }
    }
    for gone in left {
        told.tell(format_args!("{} removed", target_words(&gone.target)));
    }
    if before != after && told.into.len() == told_before {
        told.tell("entries written in another order");
    }
}

fn target_words(target: &RouteTarget) -> String {
    match target {
        RouteTarget::Connection(connection) => connection.to_string(),
        RouteTarget::Map(map) => format!("map {map}"),
    }
}

// ===== what takes a restart =====

/// The keys in which two values of a type differ. Every field is named, so that none that is added can be forgotten;
/// `as` gives the key of one that is called otherwise, `by` what of it is compared.
macro_rules! differing {
    ($type:ident { $($field:ident $(as $key:literal)? $(by $part:expr)?),+ $(,)? }, $before:expr, $after:expr) => {{
        let $type { $($field),+ } = $before;
        let mut keys: Vec<&'static str> = Vec::new();
        $(
            let now = &$after.$field;
            if differing!(@part $field $(, $part)?) != differing!(@part now $(, $part)?) {
                keys.push(differing!(@key $field $(, $key)?));
            }
        )+
        keys
    }};
    (@part $value:ident) => { $value };
    (@part $value:ident, $part:expr) => { $part($value) };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident, $key:literal) => { $key };
}

/// What is compared elsewhere is the same for here.
fn elsewhere<T>(_: &T) -> bool {
    true
}

fn takes_restart(before: &Config, after: &Config) -> Vec<String> {
    let mut parts = Vec::new();
    list("nodes", &before.nodes, &after.nodes, |node| node.id.as_str(), node, &mut parts);
    // What a running program takes over is compared above.
    let tops = differing!(
        Config {
            nodes by elsewhere,
            customers by elsewhere,
            connections by elsewhere,
            route_maps by elsewhere,
            email by elsewhere,
            operator by elsewhere,
            scoring by elsewhere,
            balancing by elsewhere,
            breaker by elsewhere,
            http by elsewhere,
            edge by elsewhere,
            variables by elsewhere,
            storage by elsewhere,
            control_socket,
            log by elsewhere,
        },
        before,
        after
    );
    let mut section = |name: &str, keys: Vec<&str>| {
        if !keys.is_empty() {
            parts.push(format!("[{name}]: {}", keys.join(", ")));
        }
    };
    section("email", optional(&before.email, &after.email, email));
    section("operator", operator(&before.operator, &after.operator));
    section("scoring", scoring(&before.scoring, &after.scoring));
    section("balancing", differing!(Balancing { mode, lease as "lease_sec" }, &before.balancing, after.balancing));
    section("breaker", breaker(before.breaker, after.breaker));
    section("http", optional(&before.http, &after.http, http));
    section("xds", optional(&before.edge.xds, &after.edge.xds, xds));
    section("variables", variables(&before.variables, &after.variables));
    section("storage", differing!(Storage { path, keep as "keep_days" }, &before.storage, after.storage));
    section("log", differing!(Log { filter, format }, &before.log, after.log));
    parts.extend(tops.into_iter().map(str::to_owned));
    groups(before, after, &mut parts);
    parts
}

/// Compares the tables of a list by their ids.
fn list<'a, T>(
    name: &str,
    before: &'a [T],
    after: &'a [T],
    id: impl Fn(&'a T) -> &'a str,
    differing: impl Fn(&T, &T) -> Vec<&'static str>,
    parts: &mut Vec<String>,
) {
    let ids = |tables: &'a [T]| tables.iter().map(&id).collect::<Vec<_>>();
    let (was, is) = (ids(before), ids(after));
    for (now, id) in after.iter().zip(&is) {
        match was.iter().position(|known| known == id) {
            Some(at) => {
                let keys = differing(&before[at], now);
                if !keys.is_empty() {
                    parts.push(format!("[[{name}]] {id}: {}", keys.join(", ")));
                }
            }
            None => parts.push(format!("[[{name}]] {id} added")),
        }
    }
    let gone = was.iter().filter(|id| !is.contains(id));
    parts.extend(gone.map(|id| format!("[[{name}]] {id} removed")));
    let sorted = |ids: &[&'a str]| ids.iter().copied().collect::<BTreeSet<_>>();
    if was != is && sorted(&was) == sorted(&is) {
        parts.push(format!("[[{name}]]: their order"));
    }
}

fn node(before: &Node, after: &Node) -> Vec<&'static str> {
    let mut keys = differing!(
        Node {
            id,
            kind,
            address,
            username,
            password by secret,
            max_calls,
            max_calls_per_sec,
            local,
            cores,
            sip_address,
            tls by elsewhere,
            slots,
            astdb,
            strict_loss_detection as "loss_detection",
        },
        before,
        after
    );
    keys.extend(match (&before.tls, &after.tls) {
        (Some(before), Some(after)) => {
            differing!(Tls { ca_file as "tls_ca_file", server_name as "tls_server_name" }, before, after)
        }
        (None, None) => Vec::new(),
        (Some(_), None) | (None, Some(_)) => vec!["tls"],
    });
    keys
}

/// The groups of nodes. What a group has from a node that differs itself is told of that node alone.
fn groups(before: &Config, after: &Config, parts: &mut Vec<String>) {
    let stays = |member: &&Member| match (before.node(&member.node), after.node(&member.node)) {
        (Some(before), Some(after)) => before.sip_address == after.sip_address,
        _ => false,
    };
    let members = |group: &EdgeGroup| -> BTreeMap<NodeId, (String, u16)> {
        let member = |Member { node, host, port }: &Member| (node.clone(), (host.clone(), *port));
        group.members.iter().filter(stays).map(member).collect()
    };
    let group = |before: &EdgeGroup, after: &EdgeGroup| {
        let mut keys = differing!(EdgeGroup { id, cluster, members by elsewhere, listener, fail_open }, before, after);
        let (before, after) = (members(before), members(after));
        if !before.keys().eq(after.keys()) {
            keys.push("nodes");
        }
        let both = || before.iter().filter_map(|(node, before)| Some((before, after.get(node)?)));
        if both().any(|((before, _), (after, _))| before != after) {
            keys.push("addresses");
        }
        if both().any(|((_, before), (_, after))| before != after) {
            keys.push("ports");
        }
        keys
    };
    list("xds.groups", &before.edge.groups, &after.edge.groups, |group| group.id.as_str(), group, parts);
}

fn secret(secret: &SecretString) -> &str {
    secret.expose_secret()
}

/// The keys of a part that may be absent.
fn optional<T>(
    before: &Option<T>,
    after: &Option<T>,
    differing: impl Fn(&T, &T) -> Vec<&'static str>,
) -> Vec<&'static str> {
    match (before, after) {
        (Some(before), Some(after)) => differing(before, after),
        (None, None) => Vec::new(),
        (None, Some(_)) => vec!["added"],
        (Some(_), None) => vec!["removed"],
    }
}

fn email(before: &Email, after: &Email) -> Vec<&'static str> {
    let mut keys = differing!(
        Email {
            from,
            reply_to,
            via by elsewhere,
            timeout as "timeout_sec",
            give_up_after,
            digest_after,
            digest_window as "digest_window_sec",
            mask_numbers,
            time_zone,
            templates,
        },
        before,
        after
    );
    keys.extend(match (&before.via, &after.via) {
        (Via::Smtp(before), Via::Smtp(after)) => smtp(before, after),
        (Via::Sendmail(before), Via::Sendmail(after)) if before == after => Vec::new(),
        (Via::Sendmail(_), Via::Sendmail(_)) => vec!["sendmail"],
        (Via::Smtp(_), Via::Sendmail(_)) | (Via::Sendmail(_), Via::Smtp(_)) => vec!["server", "sendmail"],
    });
    keys
}

fn smtp(before: &Smtp, after: &Smtp) -> Vec<&'static str> {
    let user = |login: &Option<(String, SecretString)>| login.as_ref().map(|(user, _)| user.clone());
    let password =
        |login: &Option<(String, SecretString)>| login.as_ref().map(|(_, password)| secret(password).to_owned());
    let mut keys = differing!(
        Smtp {
            host as "server",
            port as "server",
            security,
            login as "username" by user,
            ca_file as "tls_ca_file",
            hello_name,
        },
        before,
        after
    );
    keys.dedup();
    if password(&before.login) != password(&after.login) {
        keys.push("password");
    }
    keys
}

fn operator(before: &Operator, after: &Operator) -> Vec<&'static str> {
    differing!(Operator { email, language, node_down_after as "node_down_after_sec" }, before, after)
}

fn scoring(before: &Scoring, after: &Scoring) -> Vec<&'static str> {
    differing!(
        Scoring {
            profile,
            stale_threshold as "stale_threshold_sec",
            idle_cpu_min,
            call_failure_rate_lethal,
            weights,
            load_per_core,
            failure_window,
            failure_min_calls,
            min_score,
            fallback_node,
            latency_limit_ms,
        },
        before,
        after
    )
}

fn breaker(before: BreakerSettings, after: BreakerSettings) -> Vec<&'static str> {
    differing!(
        BreakerSettings { failures, timeout as "timeout_sec", open as "open_sec", open_max as "open_max_sec" },
        &before,
        after
    )
}

fn http(before: &Http, after: &Http) -> Vec<&'static str> {
    differing!(Http { listen, tokens by all_of }, before, after)
}

fn all_of(tokens: &[Token]) -> Vec<(&str, Role, &str)> {
    tokens.iter().map(|Token { name, role, secret: token }| (name.as_str(), *role, secret(token))).collect()
}

fn xds(before: &Xds, after: &Xds) -> Vec<&'static str> {
    let mut keys = differing!(Xds { listen, tls by elsewhere, tokens by of_edges }, before, after);
    let none = XdsTls { cert_file: PathBuf::new(), key_file: PathBuf::new(), client_ca_file: None };
    let (before, after) = (before.tls.as_ref().unwrap_or(&none), after.tls.as_ref().unwrap_or(&none));
    keys.extend(differing!(
        XdsTls { cert_file as "tls_cert_file", key_file as "tls_key_file", client_ca_file as "tls_client_ca_file" },
        before,
        after
    ));
    keys
}

fn of_edges(tokens: &[XdsToken]) -> Vec<(&str, &str)> {
    tokens.iter().map(|XdsToken { name, secret: token }| (name.as_str(), secret(token))).collect()
}

fn variables(before: &Variables, after: &Variables) -> Vec<&'static str> {
    differing!(
        Variables { prefix, reconcile_every as "reconcile_every_sec", astdb_expiry as "astdb_expiry_sec" },
        before,
        after
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Format, Purpose, load_text};

    const TEXT: &str = r#"
[[nodes]]
id = "pbx-01"
kind = "asterisk"
address = "127.0.0.1:5038"
username = "pointsman"
password = "the-old-secret"
max_calls = 100
[[nodes]]
id = "pbx-02"
kind = "freeswitch"
address = "127.0.0.1:8021"
password = "x"
sip_address = "127.0.0.1:5080"
[http]
listen = "127.0.0.1:8321"
[[http.tokens]]
name = "noc"
role = "operate"
token = "0123456789abcdef-old"
[xds]
[[xds.tokens]]
name = "edge-01"
token = "0123456789-xds-old"
[email]
from = "noc@operator.example"
server = "127.0.0.1:25"
security = "none"
[quality]
monitor_asr = true
asr_threshold_percent = 40
[[customers]]
id = "acme"
email = "noc@acme.example"
[[connections]]
id = "vendor-a"
customer = "acme"
names = { pbx-01 = "gw-a" }
[[connections]]
id = "vendor-b"
[[connections]]
id = "vendor-c"
[[routing_rules]]
id = "standard"
success_percent = { enabled = true, weight = 20, latency = 10, compensation = 2 }
[[route_maps]]
id = "intl"
prefixes = ["00"]
rule = "standard"
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
[[route_maps]]
id = "old"
prefixes = ["9"]
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 10 }]
"#;

    fn config(text: &str) -> Config {
        match load_text(Path::new("x.toml"), text, Format::Toml, [], Purpose::Connect) {
            Ok(loaded) => loaded.config,
            Err(problems) => panic!("{}", problems.render(false)),
        }
    }

    /// The difference that these replacements make.
    fn diff(replacements: &[(&str, &str)]) -> Diff {
        let mut text = TEXT.to_owned();
        for (from, to) in replacements {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        Diff::between(&config(TEXT), &config(&text))
    }

    fn words(replacements: &[(&str, &str)]) -> Vec<String> {
        let Diff { changes, takes_restart } = diff(replacements);
        assert_eq!(takes_restart, [""; 0]);
        changes.into_iter().map(|change| change.words).collect()
    }

    fn restart(replacements: &[(&str, &str)]) -> Vec<String> {
        let diff = diff(replacements);
        assert_eq!(diff.changes, []);
        diff.takes_restart
    }

    #[test]
    fn the_same_configuration_differs_in_nothing() {
        assert!(diff(&[]).is_empty());
        for file in ["pointsman.toml", "with-routes.toml"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file);
            let load = || crate::config::load_with(&path, [], Purpose::Look).unwrap().config;
            assert!(Diff::between(&load(), &load()).is_empty(), "{file}");
        }
    }

    #[test]
    fn entries_of_a_map_are_told_one_by_one() {
        let entries = r#"rule = "standard"
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]"#;
        let told = words(&[(
            entries,
            r#"entries = [{ connection = "vendor-b", priority = 15 }, { connection = "vendor-c", priority = 30 }, { map = "old", priority = 99 }]
when_all_blocked = "least_bad"
nodes = ["pbx-01"]"#,
        )]);
        assert_eq!(
            told,
            [
                "route map intl: rule standard -> none",
                "route map intl: nodes all -> pbx-01",
                "route map intl: when_all_blocked fail -> least_bad",
                "route map intl: vendor-b priority 20 -> 15",
                "route map intl: vendor-c added at 30",
                "route map intl: map old added at 99",
                "route map intl: vendor-a removed",
            ]
        );
    }

    #[test]
    fn entries_in_another_order_are_a_change_because_ties_go_by_it() {
        let (a, b) = (r#"{ connection = "vendor-a", priority = 10 }"#, r#"{ connection = "vendor-b", priority = 10 }"#);
        let told = words(&[(&format!("[{a}, {b}]"), &format!("[{b}, {a}]"))]);
        assert_eq!(told, ["route map old: entries written in another order"]);
    }

    #[test]
    fn maps_come_and_go() {
        let told = words(&[("id = \"old\"\nprefixes = [\"9\"]", "id = \"new\"\nprefixes = [\"9\", \"8\"]")]);
        assert_eq!(told, ["route map new added", "route map old removed"]);
        let told = words(&[("prefixes = [\"9\"]", "prefixes = [\"\"]")]);
        assert_eq!(told, ["route map old: prefixes \"9\" -> \"\""]);
    }

    #[test]
    fn what_a_connection_is_judged_by_is_told_under_the_keys_of_the_file() {
        let told = words(&[(
            "names = { pbx-01 = \"gw-a\" }",
            r#"names = { pbx-02 = "gw-2" }
quality = { asr_threshold_percent = 45, retry_backoff = { factor = 2.0, max_sec = 3600 }, judge_per = "map" }
causes = { sip = { "403" = "rejected" } }"#,
        )]);
        assert_eq!(
            told,
            [
                "connection vendor-a: name on pbx-01 gw-a -> vendor-a",
                "connection vendor-a: name on pbx-02 vendor-a -> gw-2",
                "connection vendor-a: asr_threshold_percent 40 -> 45",
                "connection vendor-a: retry_backoff none -> { factor = 2, max_sec = 3600 }",
                "connection vendor-a: judge_per connection -> map",
                "connection vendor-a: causes.sip 403 as by default -> rejected",
            ]
        );
    }

    #[test]
    fn customers_and_rules_are_told() {
        let told = words(&[
            ("email = \"noc@acme.example\"", "email = [\"noc@acme.example\", \"b@acme.example\"]\nlanguage = \"ru\""),
            (
                "weight = 20, latency = 10, compensation = 2 }",
                "weight = 25, latency = 10, compensation = 2.5 }\navg_duration_sec = { enabled = true, weight = 5, latency = 4, compensation = 1 }",
            ),
        ]);
        assert_eq!(
            told,
            [
                "customer acme: email noc@acme.example -> noc@acme.example, b@acme.example",
                "customer acme: language en -> ru",
                "routing rule standard: success_percent weight 20 -> 25",
                "routing rule standard: success_percent compensation 2 -> 2.5",
                "routing rule standard: avg_duration_sec enabled with weight 5, latency 4, compensation 1",
            ]
        );
        assert_eq!(
            words(&[("id = \"standard\"", "id = \"other\""), ("rule = \"standard\"", "rule = \"other\"")]),
            ["route map intl: rule standard -> other"]
        );
    }

    #[test]
    fn what_takes_a_restart_is_named_by_its_keys_and_never_by_its_values() {
        let told = restart(&[
            ("the-old-secret", "the-new-secret"),
            ("max_calls = 100", "max_calls = 200"),
            ("0123456789abcdef-old", "0123456789abcdef-new"),
            ("0123456789-xds-old", "0123456789-xds-new"),
            ("server = \"127.0.0.1:25\"", "server = \"127.0.0.2:26\"\nusername = \"u\"\npassword = \"mail-secret\""),
        ]);
        assert_eq!(
            told,
            [
                "[[nodes]] pbx-01: password, max_calls",
                "[email]: server, username, password",
                "[http]: tokens",
                "[xds]: tokens"
            ]
        );
    }

    #[test]
    fn every_part_that_takes_a_restart_is_told() {
        let first = "[[nodes]]\nid = \"pbx-01\"";
        for (more, expected) in [
            ("control_socket = \"/run/x.sock\"", "control_socket"),
            ("stale_threshold_sec = 30", "[scoring]: stale_threshold_sec"),
            ("scoring = { min_score = 5.0 }", "[scoring]: min_score"),
            ("balancing = { lease_sec = 9 }", "[balancing]: lease_sec"),
            ("breaker = { failures = 9 }", "[breaker]: failures"),
            ("variables = { prefix = \"px_\" }", "[variables]: prefix"),
            ("storage = { keep_days = 9 }", "[storage]: keep_days"),
            ("log = { filter = \"debug\" }", "[log]: filter"),
            ("operator = { email = \"ops@operator.example\" }", "[operator]: email"),
        ] {
            assert_eq!(restart(&[(first, &format!("{more}\n{first}"))]), [expected]);
        }
        let second = "[[nodes]]\nid = \"pbx-02\"\nkind = \"freeswitch\"\naddress = \"127.0.0.1:8021\"\npassword = \"x\"\n\
                      sip_address = \"127.0.0.1:5080\"\n";
        assert_eq!(restart(&[(second, "")]), ["[[nodes]] pbx-02 removed"]);
        assert_eq!(restart(&[(second, ""), (first, &format!("{second}{first}"))]), ["[[nodes]]: their order"]);
        assert_eq!(
            restart(&[("id = \"pbx-02\"", "id = \"pbx-03\"")]),
            ["[[nodes]] pbx-03 added", "[[nodes]] pbx-02 removed"]
        );
        let email = "[email]\nfrom = \"noc@operator.example\"\nserver = \"127.0.0.1:25\"\nsecurity = \"none\"\n";
        assert_eq!(restart(&[(email, "")]), ["[email]: removed"]);
    }

    #[test]
    fn what_edges_are_told_takes_a_restart_and_is_told_by_its_keys() {
        const GROUPS: &str = r#"[[xds.groups]]
id = "sip"
[[xds.groups]]
id = "wss"
nodes = ["pbx-01", "pbx-02"]
port = 7443
addresses = { pbx-01 = "192.0.2.1" }
"#;
        let text = TEXT.replace("[email]\n", &format!("{GROUPS}[email]\n"));
        let restart = |replacements: &[(&str, &str)]| {
            let changed = replacements.iter().fold(text.clone(), |text, (from, to)| {
                assert!(text.contains(from), "{from}");
                text.replace(from, to)
            });
            Diff::between(&config(&text), &config(&changed)).takes_restart
        };
        let wss = "nodes = [\"pbx-01\", \"pbx-02\"]\nport = 7443";
        for (from, to, expected) in [
            ("[xds]\n", "[xds]\nlisten = \"127.0.0.1:0\"\n", "[xds]: listen"),
            ("[xds]\n", "[xds]\nenabled = false\n", "[xds]: removed"),
            ("name = \"edge-01\"", "name = \"edge-02\"", "[xds]: tokens"),
            ("id = \"sip\"\n", "id = \"sip\"\nports = { pbx-02 = 5082 }\n", "[[xds.groups]] sip: ports"),
            (wss, "nodes = [\"pbx-01\", \"pbx-02\"]\nport = 7444", "[[xds.groups]] wss: ports"),
            (wss, "nodes = [\"pbx-01\"]\nport = 7443", "[[xds.groups]] wss: nodes"),
            ("\"192.0.2.1\"", "\"192.0.2.2\"", "[[xds.groups]] wss: addresses"),
            (wss, &format!("{wss}\nfail_open = false\ncluster = \"c\""), "[[xds.groups]] wss: cluster, fail_open"),
            (wss, &format!("{wss}\nlistener = {{ listen = \"0.0.0.0:1\" }}"), "[[xds.groups]] wss: listener"),
            // What comes from a node is told of the node.
            ("max_calls = 100", "max_calls = 100\nsip_address = \"192.0.2.9:1\"", "[[nodes]] pbx-01: sip_address"),
        ] {
            assert_eq!(restart(&[(from, to)]), [expected], "{from} -> {to}");
        }
        let (sip, wss) = ("[[xds.groups]]\nid = \"sip\"\n", "id = \"wss\"");
        assert_eq!(
            restart(&[(wss, "id = \"ws\"")]),
            ["[[xds.groups]] ws added", "[[xds.groups]] wss removed"],
            "another id is another group"
        );
        let moved = format!("{sip}[email]\nfrom");
        assert_eq!(restart(&[(sip, ""), ("[email]\nfrom", &moved)]), ["[[xds.groups]]: their order"]);
    }

    #[test]
    fn the_files_of_the_xds_server_are_told_by_their_keys() {
        let config = |files: &str| {
            let text = TEXT.replace("[xds]\n", &format!("[xds]\n{files}"));
            load_text(Path::new("x.toml"), &text, Format::Toml, [], Purpose::Look).unwrap().config
        };
        let files = "tls_cert_file = \"a.pem\"\ntls_key_file = \"a.key\"\n";
        let told = |before: &str, after: &str| Diff::between(&config(before), &config(after)).takes_restart;
        assert_eq!(told("", files), ["[xds]: tls_cert_file, tls_key_file"]);
        assert_eq!(told(files, &files.replace("a.key", "b.key")), ["[xds]: tls_key_file"]);
        let with_ca = format!("{files}tls_client_ca_file = \"ca.pem\"\n");
        assert_eq!(told(files, &with_ca), ["[xds]: tls_client_ca_file"]);
        assert_eq!(told(&with_ca, &with_ca), [""; 0]);
    }
}
