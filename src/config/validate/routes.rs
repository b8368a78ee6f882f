//! Route maps and routing rules.

use std::collections::HashMap;

use super::{Check, tables, texts};
use crate::config::de::Located;
use crate::config::model::{Connection, Node, RouteEntry, RouteMap, RouteTarget};
use crate::config::raw::{self, Criterion};
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;
use crate::dialplan::names;
use crate::ids::{ConnectionId, MapId, NodeId};
use crate::pbx::PbxKind;
use crate::routing::rule::{self, Measure, Rule};

/// Most bytes of a variable's name and value together: Asterisk refuses longer lines.
const MAX_AMI_LINE: usize = 1000;

/// What stands around name and value in the lines of a command.
const AMI_OVERHEAD: usize = "Variable: =".len();

/// Longest prefix: no number has more digits (E.164 has 15, with an access code in front).
const MAX_PREFIX: usize = 32;

type RawMap<'a> = (&'a raw::RouteMap, PlaceId);

impl<'a> Check<'a> {
    pub(super) fn route_maps(
        &mut self,
        nodes: &[(Node, PlaceId)],
        connections: &[(Connection, PlaceId)],
    ) -> Vec<RouteMap> {
        let raw = self.raw;
        self.unique("route maps", tables(&raw.route_maps).filter_map(|(map, _)| map.id.placed()));
        let ids = || tables(&raw.route_maps).filter_map(|(map, _)| map.id.placed());
        self.ids_apart_by_case("route maps", ids().map(|(id, place)| (id.as_str(), place)));
        self.one_map_per_prefix();
        let maps: Vec<_> = tables(&raw.route_maps).filter_map(|map| self.route_map(map)).collect();
        self.cycles();
        self.variables_apart(&maps);
        if self.drafts.iter().all(|draft| !draft.is_error()) {
            self.lists_fit(&maps, nodes, connections);
        }
        maps
    }

    fn one_map_per_prefix(&mut self) {
        let raw = self.raw;
        let mut seen: HashMap<&str, PlaceId> = HashMap::new();
        for (prefix, place) in tables(&raw.route_maps).flat_map(|(map, _)| texts(&map.prefixes)) {
            let digits = prefix.strip_prefix('+').unwrap_or(prefix);
            if prefix.len() > MAX_PREFIX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                let shown: String = prefix.chars().take(80).collect();
                let draft = Draft::error(Mark::Value(place), format!("{shown:?} is not a prefix of numbers"));
                self.note(
                    draft.help("use digits, with or without a \"+\" in front; \"\" is the map for all other numbers"),
                );
            }
            if let Some(first) = seen.insert(prefix, place) {
                let draft = Draft::error(Mark::Value(place), format!("the prefix {prefix:?} is there twice"));
                self.note(draft.label("used again here").also(Mark::Value(first), "first used here"));
            }
        }
    }

    fn route_map(&mut self, (raw, place): RawMap<'a>) -> Option<RouteMap> {
        let id = self.required(&raw.id, place, "id", "this route map", "\"intl\"");
        let whose = id.map_or_else(|| "this route map".to_owned(), |id| format!("the route map `{id}`"));
        if raw.entries.is_absent() || raw.entries.get().is_some_and(Vec::is_empty) {
            let message = format!("{whose} has no entries: calls that use it have nowhere to go");
            self.note(Draft::warning(Mark::Value(raw.entries.place.unwrap_or(place)), message));
        }
        let rule = self.rule_of(raw);
        let entries = tables(&raw.entries).filter_map(|(entry, place)| self.entry(entry, place)).collect();
        self.one_entry_per_target(&raw.entries, &whose);
        Some(RouteMap {
            id: id?.clone(),
            prefixes: texts(&raw.prefixes).map(|(prefix, _)| prefix.to_owned()).collect(),
            entries,
            nodes: self.nodes_of(raw),
            rule,
            when_all_blocked: raw.when_all_blocked.get().copied().unwrap_or_default(),
        })
    }

    /// The rule of a map, with its enabled criteria.
    fn rule_of(&mut self, raw: &'a raw::RouteMap) -> Option<Rule> {
        let (id, place) = raw.rule.placed()?;
        let rules = &self.raw.routing_rules;
        let known = tables(rules).filter_map(|(rule, _)| Some((rule.id.get()?, rule)));
        let Some((_, rule)) = known.clone().find(|(known, _)| *known == id) else {
            self.unknown("routing rule", id, Mark::Value(place), known.map(|(id, _)| id.as_str()));
            return None;
        };
        let criteria = criteria(rule).into_iter();
        let criteria = criteria.filter_map(|(measure, raw)| Some((measure, enabled(raw.get()?)?)));
        Some(Rule { id: id.as_str().into(), criteria: criteria.collect() })
    }

    fn entry(&mut self, raw: &'a raw::Entry, place: PlaceId) -> Option<RouteEntry> {
        let priority = self.required(&raw.priority, place, "priority", "this entry", "10");
        if let Some((priority, place)) =
            raw.priority.placed().filter(|(priority, _)| priority.unsigned_abs() > 1_000_000)
        {
            self.note(Draft::error(
                Mark::Value(place),
                format!("`priority` must be from -1000000 to 1000000, not {priority}"),
            ));
        }
        let target = match (raw.connection.is_absent(), raw.map.is_absent()) {
            (false, true) => self.connection_target(raw.connection.placed()?)?,
            (true, false) => self.map_target(raw.map.placed()?)?,
            (true, true) => {
                let help = format!("write {} or {}", self.write("connection", "\"...\""), self.write("map", "\"...\""));
                self.note(Draft::error(Mark::Value(place), "this entry leads nowhere").help(help));
                return None;
            }
            (false, false) => {
                let draft = Draft::error(Mark::Value(place), "this entry leads to a connection and to a map");
                self.note(draft.help("make two entries of it"));
                return None;
            }
        };
        Some(RouteEntry { target, priority: *priority? })
    }

    fn connection_target(&mut self, (name, place): (&'a String, PlaceId)) -> Option<RouteTarget> {
        let connections = &self.raw.connections;
        let known = tables(connections).filter_map(|(connection, _)| Some(connection.id.get()?.as_str()));
        if known.clone().any(|known| known == name) {
            return ConnectionId::new(name).ok().map(RouteTarget::Connection);
        }
        self.unknown("connection", name, Mark::Value(place), known);
        None
    }

    fn map_target(&mut self, (name, place): (&'a String, PlaceId)) -> Option<RouteTarget> {
        let maps = &self.raw.route_maps;
        let known = tables(maps).filter_map(|(map, _)| Some(map.id.get()?.as_str()));
        if known.clone().any(|known| known == name) {
            return MapId::new(name).ok().map(RouteTarget::Map);
        }
        self.unknown("route map", name, Mark::Value(place), known);
        None
    }

    fn one_entry_per_target(&mut self, entries: &'a raw::Tables<raw::Entry>, whose: &str) {
        for (what, field) in [
            ("connection", (|entry| &entry.connection) as fn(&raw::Entry) -> &Located<String>),
            ("map", |entry| &entry.map),
        ] {
            let mut seen: HashMap<&str, PlaceId> = HashMap::new();
            for (name, place) in tables(entries).filter_map(|(entry, _)| field(entry).placed()) {
                if let Some(first) = seen.insert(name, place) {
                    let draft = Draft::error(Mark::Value(place), format!("{whose} has the {what} `{name}` twice"));
                    self.note(draft.label("again").also(Mark::Value(first), "first here"));
                }
            }
        }
    }

    fn nodes_of(&mut self, raw: &'a raw::RouteMap) -> Vec<NodeId> {
        let mut ids = Vec::new();
        for (node, place) in texts(&raw.nodes) {
            let nodes = &self.raw.nodes;
            let known = tables(nodes).filter_map(|(node, _)| Some(node.id.get()?.as_str()));
            if known.clone().any(|known| known == node) {
                ids.extend(NodeId::new(node).ok().filter(|id| !ids.contains(id)));
            } else {
                self.unknown("node", node, Mark::Value(place), known);
            }
        }
        ids
    }

    /// Notes every entry that closes a circle, with the entry that opened it.
    fn cycles(&mut self) {
        let raw = self.raw;
        let maps: HashMap<&str, &raw::RouteMap> =
            tables(&raw.route_maps).filter_map(|(map, _)| Some((map.id.get()?.as_str(), map))).collect();
        let mut done: HashMap<&str, bool> = HashMap::new();
        for (map, _) in tables(&raw.route_maps) {
            if let Some(id) = map.id.get() {
                self.walk(id.as_str(), &maps, &mut done, &mut Vec::new());
            }
        }
    }

    /// Walks the nested maps of `id`; `path` holds the entries that led here, with the map that each is in.
    fn walk(
        &mut self,
        id: &'a str,
        maps: &HashMap<&'a str, &'a raw::RouteMap>,
        done: &mut HashMap<&'a str, bool>,
        path: &mut Vec<(&'a str, PlaceId)>,
    ) {
        if done.insert(id, false).is_some() {
            return;
        }
        let entries = maps.get(id).into_iter().flat_map(|map| tables(&map.entries));
        for (target, place) in entries.filter_map(|(entry, _)| entry.map.placed()) {
            path.push((id, place));
            if done.get(target.as_str()) == Some(&false) {
                self.note_cycle(target, path);
            } else {
                self.walk(target, maps, done, path);
            }
            path.pop();
        }
        done.insert(id, true);
    }

    fn note_cycle(&mut self, target: &str, path: &[(&'a str, PlaceId)]) {
        let circle: Vec<_> = path.iter().skip_while(|(map, _)| *map != target).collect();
        let Some(((_, closing), rest)) = circle.split_last() else { return };
        let names: Vec<_> = circle.iter().map(|(map, _)| *map).chain([target]).collect();
        let message = format!("route maps contain each other: {}", names.join(" -> "));
        let draft = Draft::error(Mark::Value(*closing), message).label("this closes the circle");
        self.note(rest.iter().fold(draft, |draft, (_, place)| draft.also(Mark::Value(*place), "from here")));
    }

    /// A map `a` has the variables `a`, `a_count` and `a_1`, `a_2`, ...: no other map may be called so.
    fn variables_apart(&mut self, maps: &[RouteMap]) {
        let place = |id: &MapId| {
            let mut ids = tables(&self.raw.route_maps).filter_map(|(map, _)| map.id.placed());
            ids.find(|(known, _)| *known == id).map(|(_, place)| place)
        };
        let mut drafts = Vec::new();
        for map in maps {
            let Some((base, last)) = map.id.as_str().rsplit_once('_') else { continue };
            let base = maps.iter().find(|map| map.id.as_str() == base);
            let Some(base) = base.filter(|base| names::collision(&[&base.id, &map.id]).is_some()) else { continue };
            if let (Some(at), Some(other)) = (place(&map.id), place(&base.id)) {
                let message =
                    format!("the variable of the route map `{}` is one of the variables of `{}`", map.id, base.id);
                let draft = Draft::error(Mark::Value(at), message).also(Mark::Value(other), "this map has it too");
                drafts.push(draft.help(format!("call it something like `{}-{last}`", base.id)));
            }
        }
        drafts.into_iter().for_each(|draft| self.note(draft));
    }

    /// The whole order of a map must fit into one line to Asterisk.
    fn lists_fit(&mut self, maps: &[RouteMap], nodes: &[(Node, PlaceId)], connections: &[(Connection, PlaceId)]) {
        let prefix = self.raw.variables.get().and_then(|variables| variables.prefix.get());
        let prefix = prefix.map_or(super::extras::DEFAULT_PREFIX, String::as_str);
        for map in maps {
            let order = flatten(map, maps);
            for (node, _) in nodes.iter().filter(|(node, _)| node.kind == PbxKind::Asterisk) {
                if !map.nodes.is_empty() && !map.nodes.contains(&node.id) {
                    continue;
                }
                let named =
                    order.iter().filter_map(|id| connections.iter().find(|(connection, _)| connection.id == **id));
                let list: usize = named.map(|(connection, _)| connection.name_on(&node.id).len() + 1).sum();
                let line = AMI_OVERHEAD + prefix.len() + "route_".len() + map.id.as_str().len() + list;
                if line > MAX_AMI_LINE {
                    self.note_long_list(map, &node.id, line);
                }
            }
        }
    }

    fn note_long_list(&mut self, map: &RouteMap, node: &NodeId, line: usize) {
        let raw = self.raw;
        let place = tables(&raw.route_maps).filter_map(|(map, _)| map.id.placed()).find(|(id, _)| **id == map.id);
        if let Some((_, place)) = place {
            let message = format!(
                "the order of `{}` takes {line} bytes on {node}, and Asterisk takes {MAX_AMI_LINE} at most",
                map.id
            );
            let help =
                "use shorter names on that node, fewer connections, or limit the map to other nodes with `nodes`";
            self.note(Draft::error(Mark::Value(place), message).help(help));
        }
    }

    pub(super) fn routing_rules(&mut self) {
        let raw = self.raw;
        self.unique("routing rules", tables(&raw.routing_rules).filter_map(|(rule, _)| rule.id.placed()));
        for (rule, place) in tables(&raw.routing_rules) {
            self.required(&rule.id, place, "id", "this routing rule", "\"standard\"");
            for (measure, criterion) in criteria(rule) {
                if let Some((criterion, place)) = criterion.placed() {
                    self.criterion(criterion, measure.as_str(), place);
                }
            }
        }
    }

    fn criterion(&mut self, raw: &'a Criterion, key: &str, place: PlaceId) {
        let whose = format!("the enabled criterion `{key}`");
        if raw.enabled.get() == Some(&true) {
            self.required(&raw.weight, place, "weight", &whose, "20");
            self.required(&raw.latency, place, "latency", &whose, "10");
            self.required(&raw.compensation, place, "compensation", &whose, "2");
        }
        self.bounded(&raw.latency, "latency", 1..=1_000_000);
        for (key, value) in [("weight", &raw.weight), ("compensation", &raw.compensation)] {
            if let Some((_, place)) = value.placed().filter(|(value, _)| !(0.0..=1e6).contains(*value)) {
                self.note(Draft::error(Mark::Value(place), format!("`{key}` must be from 0 to 1000000")));
            }
        }
    }
}

fn criteria(rule: &raw::RoutingRule) -> [(Measure, &Located<Criterion>); 3] {
    [
        (Measure::SuccessPercent, &rule.success_percent),
        (Measure::AvgDurationSec, &rule.avg_duration_sec),
        (Measure::SignallingFailurePercent, &rule.signalling_failure_percent),
    ]
}

/// A criterion that is on and complete.
fn enabled(raw: &Criterion) -> Option<rule::Criterion> {
    raw.enabled.get().filter(|enabled| **enabled)?;
    Some(rule::Criterion {
        weight: *raw.weight.get()?,
        latency: u32::try_from(*raw.latency.get()?).ok()?,
        compensation: *raw.compensation.get()?,
    })
}

/// The connections of a map and of the maps in it, each once.
fn flatten<'m>(map: &'m RouteMap, maps: &'m [RouteMap]) -> Vec<&'m ConnectionId> {
    let mut order = Vec::new();
    let mut visited = Vec::new();
    let mut waiting = vec![map];
    while let Some(map) = waiting.pop() {
        if visited.contains(&&map.id) {
            continue;
        }
        visited.push(&map.id);
        for entry in &map.entries {
            match &entry.target {
                RouteTarget::Connection(id) if !order.contains(&id) => order.push(id),
                RouteTarget::Connection(_) => {}
                RouteTarget::Map(id) => waiting.extend(maps.iter().find(|map| map.id == *id)),
            }
        }
    }
    order
}
