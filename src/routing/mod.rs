//! From route maps and the standing of each connection to hunt orders: what a call tries, in which order. Pure.
//!
//! ```text
//! RouteMaps ──flatten──> StaticOrder ──arrange──> HuntOrder
//!                             ^           ^
//!        rule: priorities ────┘           └──── standings (quality, pins)
//! ```
//!
//! [`RouteTable`] holds each map flattened once, in its static order. [`dynamic`] adds what a [`rule`] learnt of each route,
//! and [`arrange`] is the one place that makes a hunt order of priorities and standings: the engine, `test-call` and the
//! pages all ask it. [`matching`] says which map a call belongs to, [`picture`] explains an order, and [`question`] is what
//! people ask about one.

pub mod dynamic;
pub mod matching;
pub mod picture;
pub mod question;
pub mod rule;

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

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
    /// Its place as written, which decides between equal priorities.
    pub written: usize,
}

/// What happens when every connection of a map is blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenAllBlocked {
    /// The hunt order is empty and calls fail.
    #[default]
    Fail,
    /// The least bad connection stays in it.
    LeastBad,
}

/// How a route is at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RouteNow {
    /// Where it stands.
    pub standing: Standing,
    /// How near its figures are to what is asked of them: 1 is on the threshold, less is worse. `None` where it must not be
    /// kept though all are blocked, because an operator said that it gets no calls.
    pub merit: Option<f64>,
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
    /// Whether every connection is blocked; the least bad one may be in the order all the same.
    pub panic: bool,
}

/// Routes put in order, by their index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arranged {
    /// First to last.
    pub order: Vec<usize>,
    /// Those that are left out, by priority.
    pub blocked: Vec<usize>,
    /// Whether every route is blocked; the least bad one may be in the order all the same.
    pub panic: bool,
}

/// Puts the routes of a map in order: by priority, then as written; lowered ones behind all others, blocked ones left out.
/// Each is its priority, its place as written, and how it is.
#[must_use]
pub fn arrange(routes: &[(f64, usize, RouteNow)], when_all_blocked: WhenAllBlocked) -> Arranged {
    let mut by_priority: Vec<usize> = (0..routes.len()).collect();
    by_priority.sort_by(|&a, &b| routes[a].0.total_cmp(&routes[b].0).then(routes[a].1.cmp(&routes[b].1)));
    let that_are = |wanted: Standing| by_priority.iter().copied().filter(move |&i| routes[i].2.standing == wanted);
    let mut order: Vec<usize> = that_are(Standing::Usual).chain(that_are(Standing::Last)).collect();
    let mut blocked: Vec<usize> = that_are(Standing::Blocked).collect();
    let panic = order.is_empty() && !blocked.is_empty();
    if panic && when_all_blocked == WhenAllBlocked::LeastBad {
        // Among equals the first one; `max_by` would take the last.
        let candidates = blocked.iter().rev().filter_map(|&i| Some((i, routes[i].2.merit?)));
        if let Some((kept, _)) = candidates.max_by(|a, b| a.1.total_cmp(&b.1)) {
            blocked.retain(|&i| i != kept);
            order.push(kept);
        }
    }
    Arranged { order, blocked, panic }
}

impl RouteTable {
    /// Flattens the maps of a checked configuration (no cycles, no unknown names).
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::of(&config.route_maps)
    }

    fn of(maps: &[RouteMap]) -> Self {
        let by_id: HashMap<&MapId, &RouteMap> = maps.iter().map(|map| (&map.id, map)).collect();
        let mut done = HashMap::new();
        let flatten = |map| flatten(map, &by_id, &mut HashSet::new(), &mut done);
        let order = |(map, routes): (&RouteMap, _)| StaticOrder { map: map.id.clone(), routes };
        Self { maps: maps.iter().zip(maps.iter().map(flatten)).map(order).collect() }
    }

    /// The static orders, as configured.
    #[must_use]
    pub fn maps(&self) -> &[StaticOrder] {
        &self.maps
    }

    /// The hunt order of every map where nothing was learnt of its routes: lowered connections at the end, blocked ones left
    /// out, otherwise in the static order.
    #[must_use]
    pub fn hunt_orders(&self, standing: impl Fn(&ConnectionId) -> Standing) -> Vec<HuntOrder> {
        let now = |route: &Route| RouteNow { standing: standing(&route.connection), merit: None };
        self.maps.iter().map(|map| map.hunt_order(&map.priorities(), WhenAllBlocked::Fail, now)).collect()
    }
}

impl StaticOrder {
    /// Whether calls of this map try that connection.
    #[must_use]
    pub fn holds(&self, connection: &ConnectionId) -> bool {
        self.place_of(connection).is_some()
    }

    /// The index of a connection among the routes.
    #[must_use]
    pub fn place_of(&self, connection: &ConnectionId) -> Option<usize> {
        self.routes.iter().position(|route| route.connection == *connection)
    }

    /// The static priorities, in the order of the routes.
    #[must_use]
    pub fn priorities(&self) -> Vec<f64> {
        self.routes.iter().map(Route::priority).collect()
    }

    /// The hunt order under those priorities (in the order of the routes).
    #[must_use]
    pub fn hunt_order(
        &self,
        priorities: &[f64],
        when_all_blocked: WhenAllBlocked,
        now: impl Fn(&Route) -> RouteNow,
    ) -> HuntOrder {
        let routes = self.routes.iter().zip(priorities);
        let routes: Vec<_> = routes.map(|(route, &priority)| (priority, route.written, now(route))).collect();
        let Arranged { order, blocked, panic } = arrange(&routes, when_all_blocked);
        let names = |places: Vec<usize>| places.into_iter().map(|i| self.routes[i].connection.clone()).collect();
        HuntOrder { map: self.map.clone(), order: names(order), blocked: names(blocked), panic }
    }
}

impl Route {
    /// Its static priority, to add to.
    #[must_use]
    pub fn priority(&self) -> f64 {
        whole(self.priority)
    }
}

/// A static priority, to add to.
#[expect(clippy::cast_precision_loss, reason = "the configuration allows a million at most")]
fn whole(priority: i64) -> f64 {
    priority as f64
}

/// `open` holds the maps that are being flattened: a checked configuration has no cycle, and an unchecked one must not
/// end us. `done` holds the connections of those that were: a map may come in by many ways.
fn flatten<'a>(
    map: &'a RouteMap,
    maps: &HashMap<&MapId, &'a RouteMap>,
    open: &mut HashSet<&'a MapId>,
    done: &mut HashMap<&'a MapId, Vec<ConnectionId>>,
) -> Vec<Route> {
    if !open.insert(&map.id) {
        return Vec::new();
    }
    let mut routes: Vec<Route> = Vec::new();
    for entry in &map.entries {
        let brought_in = match &entry.target {
            RouteTarget::Connection(connection) => vec![connection.clone()],
            RouteTarget::Map(nested) => nested_in(nested, maps, open, done),
        };
        for connection in brought_in {
            routes.push(Route { connection, priority: entry.priority, written: routes.len() });
        }
    }
    open.remove(&map.id);
    routes.sort_by_key(|route| (route.priority, route.written));
    let mut seen = HashSet::new();
    routes.retain(|route| seen.insert(route.connection.clone()));
    routes
}

/// The connections of a nested map, in its own order.
fn nested_in<'a>(
    nested: &MapId,
    maps: &HashMap<&MapId, &'a RouteMap>,
    open: &mut HashSet<&'a MapId>,
    done: &mut HashMap<&'a MapId, Vec<ConnectionId>>,
) -> Vec<ConnectionId> {
    let Some(nested) = maps.get(nested) else { return Vec::new() };
    if let Some(known) = done.get(&nested.id) {
        return known.clone();
    }
    let connections: Vec<_> = flatten(nested, maps, open, done).into_iter().map(|route| route.connection).collect();
    done.insert(&nested.id, connections.clone());
    connections
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::model::RouteEntry;
    use proptest::prelude::*;

    fn id(name: &str) -> ConnectionId {
        ConnectionId::new(name).unwrap()
    }

    pub(crate) fn map(name: &str, entries: &[(&str, i64)]) -> RouteMap {
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
            rule: None,
            when_all_blocked: WhenAllBlocked::Fail,
        }
    }

    fn table(maps: &[RouteMap]) -> RouteTable {
        RouteTable::of(maps)
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

    #[test]
    fn a_tie_between_sums_is_decided_by_what_was_written_first() {
        let table = table(&[map("m", &[("b", 20), ("a", 10)])]);
        let now = |_: &Route| RouteNow::default();
        let order = |priorities: &[f64]| table.maps()[0].hunt_order(priorities, WhenAllBlocked::Fail, now).order;
        assert_eq!(order(&[10.0, 20.0]), [id("a"), id("b")]);
        assert_eq!(order(&[20.0, 20.0]), [id("b"), id("a")]);
    }

    #[test]
    fn where_all_are_blocked_the_least_bad_stays_if_so_wanted_and_never_one_that_an_operator_blocked() {
        let blocked = |merit| (0.0, 0, RouteNow { standing: Standing::Blocked, merit });
        let all = [blocked(Some(0.3)), blocked(None), blocked(Some(0.8)), blocked(Some(0.8))];
        let kept = arrange(&all, WhenAllBlocked::LeastBad);
        assert_eq!((kept.order, kept.blocked, kept.panic), (vec![2], vec![0, 1, 3], true));
        let failed = arrange(&all, WhenAllBlocked::Fail);
        assert_eq!((failed.order, failed.panic), (vec![], true));
        assert_eq!(arrange(&[blocked(None)], WhenAllBlocked::LeastBad).order, [0; 0]);
        let with_one = [all[0], (9.0, 1, RouteNow { standing: Standing::Last, merit: None })];
        assert_eq!(
            arrange(&with_one, WhenAllBlocked::LeastBad),
            Arranged { order: vec![1], blocked: vec![0], panic: false }
        );
        assert!(!arrange(&[], WhenAllBlocked::LeastBad).panic);
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
