//! What is judged: connections, and pairs of a connection and a route map.

use std::collections::{HashMap, HashSet};

use super::quality::listed;
use super::routes::reached;
use super::{Check, tables};
use crate::config::model::{Connection, JudgePer, RouteMap};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;
use crate::dialplan::names;
use crate::ids::{ConnectionId, MapId};

/// What has a variable of its state: a connection, or a connection within a map.
type Judged<'c> = (&'c Connection, Option<&'c RouteMap>);

impl Check<'_> {
    /// Every state must have a variable of its own, and what is judged per map must be in one.
    pub(super) fn judged_apart(&mut self, connections: &[(Connection, PlaceId)], maps: &[RouteMap]) {
        if connections.iter().all(|(connection, _)| connection.judge_per == JudgePer::Connection) {
            return;
        }
        let by_id: HashMap<&MapId, &RouteMap> = maps.iter().map(|map| (&map.id, map)).collect();
        let holders: Vec<(&RouteMap, HashSet<&ConnectionId>)> =
            maps.iter().map(|map| (map, reached(map, &by_id))).collect();
        let mut variables: HashMap<String, Judged<'_>> = HashMap::new();
        let mut in_no_map = Vec::new();
        for (connection, _) in connections {
            let holds = holders.iter().filter(|(_, held)| held.contains(&connection.id)).map(|(map, _)| Some(*map));
            let mut judged: Vec<Option<&RouteMap>> = holds.collect();
            if connection.judge_per == JudgePer::Connection {
                judged = vec![None];
            } else if judged.is_empty() {
                in_no_map.push(connection);
                judged = vec![None];
            }
            for map in judged {
                let own = (connection, map);
                // Of ids that differ in case alone something was said already.
                let other = variables.insert(variable(own).to_ascii_lowercase(), own);
                let other = other.filter(|(other, _)| !other.id.as_str().eq_ignore_ascii_case(connection.id.as_str()));
                if let Some(other) = other {
                    self.note_same_variable(other, own);
                }
            }
        }
        self.note_in_no_map(&in_no_map);
    }

    fn note_same_variable(&mut self, first: Judged<'_>, second: Judged<'_>) {
        let Some(place) = self.connection_place(&second.0.id) else { return };
        let name = format!("{}{}", self.prefix(), variable(second));
        let message =
            format!("the states of {} and of {} would be in one variable, {name}", words(first), words(second));
        let mut draft = Draft::error(Mark::Value(place), message);
        if let Some(place) = self.connection_place(&first.0.id) {
            draft = draft.also(Mark::Value(place), "the first");
        }
        for map in [first.1, second.1].into_iter().flatten() {
            if let Some(place) = self.map_place(map.id.as_str()) {
                draft = draft.also(Mark::Value(place), "in this route map");
            }
        }
        self.note(draft.help("give one of them another id; FreeSWITCH takes small and capital letters for the same"));
    }

    /// One warning for each place that says so, whatever the number of connections.
    fn note_in_no_map(&mut self, connections: &[&Connection]) {
        let raw = self.raw;
        let shared = raw.quality.get().and_then(|quality| quality.judge_per.place);
        let mut by_place: Vec<(PlaceId, Vec<&str>)> = Vec::new();
        for connection in connections {
            let own = tables(&raw.connections).find(|(raw, _)| raw.id.get() == Some(&connection.id));
            let own = own.and_then(|(raw, _): (&raw::Connection, _)| raw.quality.get()?.judge_per.place);
            let Some(place) = own.or(shared) else { continue };
            match by_place.iter_mut().find(|(known, _)| *known == place) {
                Some((_, names)) => names.push(connection.id.as_str()),
                None => by_place.push((place, vec![connection.id.as_str()])),
            }
        }
        for (place, names) in by_place {
            let whom = listed(names.into_iter());
            let message = format!("`judge_per` is \"map\", and no route map has {whom}: judged as a whole");
            let help = "put it into a route map, or leave it with judge_per = \"connection\"";
            self.note(Draft::warning(Mark::Value(place), message).help(help));
        }
    }

    fn connection_place(&self, id: &ConnectionId) -> Option<PlaceId> {
        let mut ids = tables(&self.raw.connections).filter_map(|(connection, _)| connection.id.placed());
        ids.find(|(known, _)| *known == id).map(|(_, place)| place)
    }
}

/// The name of the variable, without the prefix of all.
fn variable((connection, map): Judged<'_>) -> String {
    match map {
        Some(map) => names::connection_in("", &connection.id, &map.id),
        None => names::connection("", &connection.id),
    }
}

fn words((connection, map): Judged<'_>) -> String {
    match map {
        Some(map) => format!("`{}` in the route map `{}`", connection.id, map.id),
        None => format!("`{}`", connection.id),
    }
}
