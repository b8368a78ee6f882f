//! From route maps and the standing of each connection to hunt orders: what a call tries, in which order. Pure.
//!
//! [`RouteTable`] holds each map flattened once, in its static order; [`RouteTable::hunt_orders`] is cheap enough to be
//! asked again at every change of state.

use std::collections::{HashMap, HashSet};

use crate::config::model::{Config, RouteMap, RouteTarget};
use crate::ids::{ConnectionId, MapId};
use crate::quality::machine::Standing;

/// The static order of every map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteTable {
    maps: Vec<StaticOrder>,
}

/// One map, flattened: its own connections and those of the maps nested in it.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticOrder {
    /// The map.
    pub map: MapId,
    /// Its connections, by priority; none of them twice.
    pub routes: Vec<Route>,
}

/// A connection within a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The connection.
    pub connection: ConnectionId,
    /// Its static priority; smaller is tried first. That of a nested map's connection is the priority of the entry that
    /// brings the map in.
    pub priority: i64,
}

/// What a call of a map tries now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HuntOrder {
    /// The map.
    pub map: MapId,
    /// The connections, first to last.
    pub order: Vec<ConnectionId>,
    /// The connections that are left out.
    pub blocked: Vec<ConnectionId>,
}

impl RouteTable {
    /// Flattens the maps of a checked configuration (no cycles, no unknown names).
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let maps: HashMap<&MapId, &RouteMap> = config.route_maps.iter().map(|map| (&map.id, map)).collect();
        let flatten =
            |map: &RouteMap| StaticOrder { map: map.id.clone(), routes: flatten(map, &maps, &mut HashSet::new()) };
        Self { maps: config.route_maps.iter().map(flatten).collect() }
    }

    /// The static orders, as configured.
    #[must_use]
    pub fn maps(&self) -> &[StaticOrder] {
        &self.maps
    }

    /// The hunt order of every map, as configured: lowered connections at the end, blocked ones left out, otherwise in
    /// the static order.
    #[must_use]
    pub fn hunt_orders(&self, standing: impl Fn(&ConnectionId) -> Standing) -> Vec<HuntOrder> {
        self.maps.iter().map(|map| map.hunt_order(&standing)).collect()
    }
}

impl StaticOrder {
    /// Whether calls of this map try that connection.
    #[must_use]
    pub fn holds(&self, connection: &ConnectionId) -> bool {
        self.routes.iter().any(|route| route.connection == *connection)
    }

    fn hunt_order(&self, standing: impl Fn(&ConnectionId) -> Standing) -> HuntOrder {
        let that_are = |wanted: Standing| {
            let standing = &standing;
            let routes = self.routes.iter().map(|route| &route.connection);
            routes.filter(move |connection| standing(connection) == wanted).cloned()
        };
        HuntOrder {
            map: self.map.clone(),
            order: that_are(Standing::Usual).chain(that_are(Standing::Last)).collect(),
            blocked: that_are(Standing::Blocked).collect(),
        }
    }
}

/// `open` holds the maps that are being flattened: a checked configuration has no cycle, and an unchecked one must not
/// end us.
fn flatten<'a>(map: &'a RouteMap, maps: &HashMap<&MapId, &'a RouteMap>, open: &mut HashSet<&'a MapId>) -> Vec<Route> {
    if !open.insert(&map.id) {
        return Vec::new();
    }
    let mut entries: Vec<_> = map.entries.iter().collect();
    entries.sort_by_key(|entry| entry.priority);
    let mut routes: Vec<Route> = Vec::new();
    let mut seen = HashSet::new();
    for entry in entries {
        let brought_in = match &entry.target {
            RouteTarget::Connection(connection) => vec![connection.clone()],
            RouteTarget::Map(nested) => {
                let nested = maps.get(nested).map(|nested| flatten(nested, maps, open)).unwrap_or_default();
                nested.into_iter().map(|route| route.connection).collect()
            }
        };
        let first_time = brought_in.into_iter().filter(|connection| seen.insert(connection.clone()));
        routes.extend(first_time.map(|connection| Route { connection, priority: entry.priority }));
    }
    open.remove(&map.id);
    routes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::RouteEntry;
    use proptest::prelude::*;

    fn id(name: &str) -> ConnectionId {
        ConnectionId::new(name).unwrap()
    }

    fn map(name: &str, entries: &[(&str, i64)]) -> RouteMap {
        let entry = |(target, priority): &(&str, i64)| RouteEntry {
            target: match target.strip_prefix('@') {
                Some(nested) => RouteTarget::Map(MapId::new(nested).unwrap()),
                None => RouteTarget::Connection(id(target)),
            },
            priority: *priority,
        };
        RouteMap {
            id: MapId::new(name).unwrap(),
            prefixes: Vec::new(),
            entries: entries.iter().map(entry).collect(),
            nodes: Vec::new(),
        }
    }

    fn table(maps: &[RouteMap]) -> RouteTable {
        let by_id: HashMap<_, _> = maps.iter().map(|map| (&map.id, map)).collect();
        let flat =
            |map: &RouteMap| StaticOrder { map: map.id.clone(), routes: flatten(map, &by_id, &mut HashSet::new()) };
        RouteTable { maps: maps.iter().map(flat).collect() }
    }

    fn order(table: &RouteTable, standing: impl Fn(&str) -> Standing) -> (Vec<String>, Vec<String>) {
        let orders = table.hunt_orders(|connection| standing(connection.as_str()));
        let names = |ids: &[ConnectionId]| ids.iter().map(ToString::to_string).collect();
        (names(&orders[0].order), names(&orders[0].blocked))
    }

    #[test]
    fn smaller_priorities_first_and_ties_as_written() {
        let table = table(&[map("m", &[("c", 20), ("a", 10), ("b", 10), ("d", -5)])]);
        assert_eq!(order(&table, |_| Standing::Usual).0, ["d", "a", "b", "c"]);
    }

    #[test]
    fn a_nested_map_stands_in_the_place_of_its_entry_and_keeps_its_own_order() {
        let maps = [
            map("m", &[("a", 10), ("@n", 20), ("z", 20), ("b", 30)]),
            map("n", &[("y", 2), ("x", 1), ("@deep", 3)]),
            map("deep", &[("w", 0)]),
        ];
        let table = table(&maps);
        assert_eq!(order(&table, |_| Standing::Usual).0, ["a", "x", "y", "w", "z", "b"]);
        assert!(table.maps()[0].routes[1..5].iter().all(|route| route.priority == 20));
    }

    #[test]
    fn a_connection_that_comes_in_again_keeps_its_first_place() {
        let maps = [map("m", &[("@n", 10), ("a", 20)]), map("n", &[("b", 1), ("a", 2)])];
        assert_eq!(order(&table(&maps), |_| Standing::Usual).0, ["b", "a"]);
    }

    #[test]
    fn lowered_connections_go_last_in_their_own_order_and_blocked_ones_are_left_out() {
        let table = table(&[map("m", &[("a", 1), ("b", 2), ("c", 3), ("d", 4)])]);
        let standing = |name: &str| match name {
            "a" | "b" => Standing::Last,
            "c" => Standing::Blocked,
            _ => Standing::Usual,
        };
        assert_eq!(order(&table, standing), (vec!["d".into(), "a".into(), "b".into()], vec!["c".into()]));
    }

    #[test]
    fn a_cycle_ends() {
        let maps = [map("m", &[("@n", 1), ("a", 2)]), map("n", &[("b", 1), ("@m", 2)])];
        assert_eq!(order(&table(&maps), |_| Standing::Usual).0, ["b", "a"]);
    }

    proptest! {
        #[test]
        fn every_connection_is_either_in_the_order_or_blocked_and_the_rest_is_static_order(
            priorities in proptest::collection::vec(-3_i64..4, 1..12),
            standings in proptest::collection::vec(0_u8..3, 12),
        ) {
            let names: Vec<String> = (0..priorities.len()).map(|n| format!("c{n}")).collect();
            let entries: Vec<_> = names.iter().map(String::as_str).zip(priorities).collect();
            let table = table(&[map("m", &entries)]);
            let standing = |name: &str| match standings[name[1..].parse::<usize>().unwrap()] {
                0 => Standing::Usual,
                1 => Standing::Last,
                _ => Standing::Blocked,
            };
            let (all, _) = order(&table, |_| Standing::Usual);
            let (hunt, blocked) = order(&table, standing);
            let expected: Vec<_> = [Standing::Usual, Standing::Last]
                .into_iter()
                .flat_map(|wanted| all.iter().filter(move |name| standing(name) == wanted).cloned())
                .collect();
            prop_assert_eq!(hunt, expected);
            prop_assert_eq!(blocked.len(), all.iter().filter(|name| standing(name) == Standing::Blocked).count());
        }
    }
}
