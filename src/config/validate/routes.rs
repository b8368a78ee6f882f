//! Route maps.

use std::collections::{HashMap, HashSet};

use super::{Check, not_there, tables, texts};
use crate::config::de::Located;
use crate::config::model::{Connection, Node, RouteEntry, RouteMap, RouteTarget};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::suggest;
use crate::config::tree::PlaceId;
use crate::dialplan::names;
use crate::ids::{ConnectionId, MapId, NodeId};
use crate::pbx::PbxKind;

/// Most bytes of a variable's name and value together: Asterisk refuses longer lines.
const MAX_AMI_LINE: usize = 1000;

/// What stands around name and value in the lines of a command.
const AMI_OVERHEAD: usize = "Variable: =".len();

/// Longest prefix: no number has more digits (E.164 has 15, with an access code in front).
const MAX_PREFIX: usize = 32;

/// Most levels of maps in a map. Nobody understands the order of more, and every level is a step of recursion.
const MAX_NESTED: usize = 16;

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
        self.lists_fit(&maps, nodes, connections);
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
        let home = raw.id.place.unwrap_or(place);
        let rule = self.rule_of(raw, home);
        let entries = tables(&raw.entries).filter_map(|(entry, place)| self.entry(entry, place, home)).collect();
        self.one_entry_per_target(&raw.entries, &whose);
        Some(RouteMap {
            id: id?.clone(),
            prefixes: texts(&raw.prefixes).map(|(prefix, _)| prefix.to_owned()).collect(),
            entries,
            nodes: self.nodes_of(raw, home),
            rule,
            when_all_blocked: raw.when_all_blocked.get().copied().unwrap_or_default(),
        })
    }

    fn entry(&mut self, raw: &'a raw::Entry, place: PlaceId, home: PlaceId) -> Option<RouteEntry> {
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
            (false, true) => self.connection_target(raw.connection.placed()?, home)?,
            (true, false) => self.map_target(raw.map.placed()?, home)?,
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

    fn connection_target(&mut self, (name, place): (&'a String, PlaceId), home: PlaceId) -> Option<RouteTarget> {
        let known = tables(&self.raw.connections).filter_map(|(raw, _)| raw.id.placed());
        let known = known.map(|(id, place)| (id.as_str(), place));
        if known.clone().any(|(known, _)| known == name) {
            return ConnectionId::new(name).ok().map(RouteTarget::Connection);
        }
        self.unknown_in("connection", (name, place), home, known);
        None
    }

    fn map_target(&mut self, (name, place): (&'a String, PlaceId), home: PlaceId) -> Option<RouteTarget> {
        let known = tables(&self.raw.route_maps).filter_map(|(raw, _)| raw.id.placed());
        let known = known.map(|(id, place)| (id.as_str(), place));
        if known.clone().any(|(known, _)| known == name) {
            return MapId::new(name).ok().map(RouteTarget::Map);
        }
        self.unknown_in("route map", (name, place), home, known);
        None
    }

    /// Notes a reference of the route map whose id stands at `home` to something that is not there, with that place, and
    /// with the place of what was probably meant.
    pub(super) fn unknown_in<'k>(
        &mut self,
        what: &str,
        (name, place): (&str, PlaceId),
        home: PlaceId,
        mut known: impl Iterator<Item = (&'k str, PlaceId)> + Clone,
    ) {
        let draft = not_there(what, name, Mark::Value(place), known.clone().map(|(known, _)| known));
        let draft = draft.also(Mark::Value(home), "in this route map");
        let close = suggest::closest(name, known.clone().map(|(known, _)| known));
        let close = close.and_then(|close| known.find(|(known, _)| *known == close));
        self.note(match close {
            Some((_, at)) => draft.also(Mark::Value(at), "this one is there"),
            None => draft,
        });
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

    fn nodes_of(&mut self, raw: &'a raw::RouteMap, home: PlaceId) -> Vec<NodeId> {
        let mut ids = Vec::new();
        for (node, place) in texts(&raw.nodes) {
            let known = tables(&self.raw.nodes).filter_map(|(raw, _)| raw.id.placed());
            let known = known.map(|(id, place)| (id.as_str(), place));
            if known.clone().any(|(known, _)| known == node) {
                ids.extend(NodeId::new(node).ok().filter(|id| !ids.contains(id)));
            } else {
                self.unknown_in("node", (node, place), home, known);
            }
        }
        ids
    }

    /// Notes every entry that closes a circle, with the entry that opened it.
    fn cycles(&mut self) {
        let raw = self.raw;
        let maps: HashMap<&str, &raw::RouteMap> =
            tables(&raw.route_maps).filter_map(|(map, _)| Some((map.id.get()?.as_str(), map))).collect();
        let mut done = HashMap::new();
        for (map, _) in tables(&raw.route_maps) {
            if let Some(id) = map.id.get().filter(|id| !done.contains_key(id.as_str())) {
                self.walk(id.as_str(), &maps, &mut done, &mut Vec::new());
            }
        }
    }

    /// Walks the nested maps of `id`, and gives how many levels of maps that are. `path` holds the entries that led here,
    /// with the map that each is in; `done` the levels of each map, `None` while it is being walked.
    fn walk(
        &mut self,
        id: &'a str,
        maps: &HashMap<&'a str, &'a raw::RouteMap>,
        done: &mut HashMap<&'a str, Option<usize>>,
        path: &mut Vec<(&'a str, PlaceId)>,
    ) -> usize {
        done.insert(id, None);
        let mut levels = 0;
        let entries = maps.get(id).into_iter().flat_map(|map| tables(&map.entries));
        for (target, place) in entries.filter_map(|(entry, _)| entry.map.placed()) {
            path.push((id, place));
            let below = match done.get(target.as_str()) {
                Some(None) => {
                    self.note_cycle(target, path);
                    0
                }
                Some(Some(known)) => *known,
                None if path.len() <= MAX_NESTED => self.walk(target, maps, done, path),
                None => 0,
            };
            if path.len() + below > MAX_NESTED {
                self.note_too_deep(path);
            } else {
                levels = levels.max(below + 1);
            }
            path.pop();
        }
        done.insert(id, Some(levels));
        levels
    }

    fn note_too_deep(&mut self, path: &[(&'a str, PlaceId)]) {
        let (Some((outermost, _)), Some((_, entry))) = (path.first(), path.last()) else { return };
        let message = format!("route maps are nested more than {MAX_NESTED} levels deep in `{outermost}`");
        let draft = Draft::error(Mark::Value(*entry), message).label("too deep from here");
        self.note(match self.map_place(outermost) {
            Some(map) => draft.also(Mark::Value(map), "nested in this one"),
            None => draft,
        });
    }

    fn note_cycle(&mut self, target: &str, path: &[(&'a str, PlaceId)]) {
        let circle: Vec<_> = path.iter().skip_while(|(map, _)| *map != target).collect();
        let Some(((_, closing), rest)) = circle.split_last() else { return };
        let names: Vec<_> = circle.iter().map(|(map, _)| *map).chain([target]).collect();
        let message = format!("route maps contain each other: {}", names.join(" -> "));
        let draft = Draft::error(Mark::Value(*closing), message).label("this closes the circle");
        let draft = rest.iter().fold(draft, |draft, (_, place)| draft.also(Mark::Value(*place), "from here"));
        // A circle of one entry has its second place in the map.
        let alone = self.map_place(target).filter(|_| rest.is_empty());
        self.note(match alone {
            Some(map) => draft.also(Mark::Value(map), "this is the map itself"),
            None => draft,
        });
    }

    /// Where the id of that map stands.
    pub(super) fn map_place(&self, id: &str) -> Option<PlaceId> {
        let mut ids = tables(&self.raw.route_maps).filter_map(|(map, _)| map.id.placed());
        ids.find(|(known, _)| known.as_str() == id).map(|(_, place)| place)
    }

    /// A map `a` has the variables `a`, `a_count` and `a_1`, `a_2`, ...: no other map may be called so.
    fn variables_apart(&mut self, maps: &[RouteMap]) {
        let mut drafts = Vec::new();
        for map in maps {
            let Some((base, last)) = map.id.as_str().rsplit_once('_') else { continue };
            let base = maps.iter().find(|map| map.id.as_str().eq_ignore_ascii_case(base));
            let Some(base) = base.filter(|base| names::collision(&[&base.id, &map.id]).is_some()) else { continue };
            if let (Some(at), Some(other)) = (self.map_place(map.id.as_str()), self.map_place(base.id.as_str())) {
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
        let prefix = self.prefix().len();
        let by_id: HashMap<&MapId, &RouteMap> = maps.iter().map(|map| (&map.id, map)).collect();
        for map in maps {
            let concerns = |node: &Node| node.kind == PbxKind::Asterisk && map.concerns(&node.id);
            if !nodes.iter().any(|(node, _)| concerns(node)) {
                continue;
            }
            let order = reached(map, &by_id);
            for (node, at) in nodes.iter().filter(|(node, _)| concerns(node)) {
                let named = connections.iter().filter(|(connection, _)| order.contains(&connection.id));
                let list: usize = named.map(|(connection, _)| connection.name_on(&node.id).len() + 1).sum();
                let line = AMI_OVERHEAD + prefix + "route_".len() + map.id.as_str().len() + list;
                if line > MAX_AMI_LINE {
                    self.note_long_list(map, &node.id, *at, line);
                }
            }
        }
    }

    fn note_long_list(&mut self, map: &RouteMap, node: &NodeId, at: PlaceId, line: usize) {
        let Some(place) = self.map_place(map.id.as_str()) else { return };
        let raw = tables(&self.raw.nodes).find(|(_, place)| *place == at);
        let node_place = raw.and_then(|(raw, _)| raw.id.place).unwrap_or(at);
        let message = format!(
            "the order of `{}` takes {line} bytes on {node}, and Asterisk takes {MAX_AMI_LINE} at most",
            map.id
        );
        let help = "use shorter names on that node, fewer connections, or limit the map to other nodes with `nodes`";
        let draft = Draft::error(Mark::Value(place), message).label("this order is too long");
        self.note(draft.also(Mark::Value(node_place), "for this node").help(help));
    }
}

/// The connections of a map and of the maps in it, each once.
pub(super) fn reached<'m>(map: &'m RouteMap, maps: &HashMap<&MapId, &'m RouteMap>) -> HashSet<&'m ConnectionId> {
    let mut connections = HashSet::new();
    let mut visited = HashSet::new();
    let mut waiting = vec![map];
    while let Some(map) = waiting.pop() {
        if !visited.insert(&map.id) {
            continue;
        }
        for entry in &map.entries {
            match &entry.target {
                RouteTarget::Connection(id) => {
                    connections.insert(id);
                }
                RouteTarget::Map(id) => waiting.extend(maps.get(id)),
            }
        }
    }
    connections
}
