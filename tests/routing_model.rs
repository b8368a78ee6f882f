//! Dynamic routing rules against an independent model.
//!
//! The model below is written from the method's text, slow and plain: lists and loops, no code of the program. It flattens
//! maps, keeps estimates and compensations, and sorts, all by itself. The program must agree with it over random
//! configurations and random sequences of attempts: as `test-call` with a file of attempts (where neither the call nor the
//! state of a connection is known), and as the engine with the events of a switch (where both are).

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::{Criterion, End, Learning, Map, NAMES, Rule, Standing, Target, flatten};
use pointsman::call::outcome::Outcome;
use pointsman::config::{Config, Format, Purpose, load_text};
use pointsman::engine::core::Engine;
use pointsman::engine::effect::Effect;
use pointsman::engine::past::Past;
use pointsman::engine::request::{NewConfig, Request};
use pointsman::engine::view::{LinkView, MapView, VariablesView};
use pointsman::ids::{ConnectionId, LegId, MapId, QualityKey};
use pointsman::pbx::event::{ListedLeg, PbxEvent, Snapshot};
use pointsman::pbx::freeswitch::{Disposition, FsCause, FsEvent, FsKind};
use pointsman::quality::history::Attempt;
use pointsman::quality::machine::{Saved, Standing as Stands};
use pointsman::routing::dynamic::Learnt;
use pointsman::store::{LegRow, Restored, StoreOp};
use pointsman::time::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

mod model {
    //! The method, to the letter.

    /// The criteria, in the order in which they are listed everywhere.
    pub(crate) const NAMES: [&str; 3] = ["success_percent", "avg_duration_sec", "signalling_failure_percent"];
    const SUCCESS: usize = 0;
    const DURATION: usize = 1;
    const SIGNALLING: usize = 2;

    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) struct Criterion {
        pub(crate) weight: f64,
        pub(crate) latency: u32,
        pub(crate) compensation: f64,
    }

    /// `None`: not enabled.
    pub(crate) type Rule = [Option<Criterion>; 3];

    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) enum Target {
        Connection(usize),
        Map(usize),
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Map {
        pub(crate) entries: Vec<(Target, i64)>,
        pub(crate) rule: Option<Rule>,
        pub(crate) least_bad: bool,
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Route {
        pub(crate) connection: usize,
        pub(crate) static_priority: i64,
        /// Place in the list as written.
        pub(crate) written: usize,
        pub(crate) estimates: [Option<f64>; 3],
        pub(crate) compensations: [f64; 3],
    }

    /// What the switch of a connection's state does to it.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) enum Standing {
        Usual,
        Last,
        Blocked,
    }

    /// What is known of an attempt's end.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) struct End {
        /// Whether the outcome is one of those in the window.
        pub(crate) in_window: bool,
        pub(crate) answered: bool,
        pub(crate) vendor_failed: bool,
        /// `None`: not known.
        pub(crate) duration_ms: Option<i64>,
    }

    impl End {
        /// Successful: a duration that is not zero. One that nobody knows is that of a call that was answered.
        pub(crate) fn success(self) -> bool {
            self.answered && self.duration_ms != Some(0)
        }
    }

    /// One map, with what was learnt of its routes.
    #[derive(Clone, Debug)]
    pub(crate) struct Learning {
        pub(crate) rule: Option<Rule>,
        /// In the order written.
        pub(crate) routes: Vec<Route>,
    }

    /// The connections of a map with their static priorities and places as written. Nested maps come in at their place, in
    /// their own order, with the priority of the entry that brings them in. A connection that comes in more than once keeps
    /// its first place: in the order of priorities.
    pub(crate) fn flatten(maps: &[Map], map: usize) -> Vec<Route> {
        let mut all = Vec::new();
        for (target, priority) in &maps[map].entries {
            let connections = match target {
                Target::Connection(connection) => vec![*connection],
                Target::Map(nested) => {
                    let mut nested = flatten(maps, *nested);
                    sort(&mut nested, |route| route.static_priority as f64);
                    nested.iter().map(|route| route.connection).collect()
                }
            };
            for connection in connections {
                let (estimates, compensations) = ([None; 3], [0.0; 3]);
                let written = all.len();
                all.push(Route { connection, static_priority: *priority, written, estimates, compensations });
            }
        }
        let mut by_priority = all.clone();
        sort(&mut by_priority, |route| route.static_priority as f64);
        let mut kept: Vec<Route> = Vec::new();
        for route in by_priority {
            if !kept.iter().any(|known| known.connection == route.connection) {
                kept.push(route);
            }
        }
        all.retain(|route| {
            kept.iter().any(|known| known.connection == route.connection && known.written == route.written)
        });
        all
    }

    /// By that value, smaller first; ties in the order written.
    fn sort(routes: &mut Vec<Route>, value: impl Fn(&Route) -> f64) {
        let mut sorted: Vec<Route> = Vec::new();
        while !routes.is_empty() {
            let mut first = 0;
            for (index, route) in routes.iter().enumerate() {
                let smaller = value(route) < value(&routes[first]);
                let tie = value(route) == value(&routes[first]) && route.written < routes[first].written;
                if smaller || tie {
                    first = index;
                }
            }
            sorted.push(routes.remove(first));
        }
        *routes = sorted;
    }

    impl Learning {
        pub(crate) fn new(maps: &[Map], map: usize) -> Self {
            Self { rule: maps[map].rule, routes: flatten(maps, map) }
        }

        fn effective(&self, route: &Route, criterion: usize) -> Option<f64> {
            let estimate = route.estimates[criterion]?;
            let compensation = route.compensations[criterion];
            Some(match criterion {
                SUCCESS => (estimate + compensation).min(100.0),
                DURATION => estimate + compensation,
                _ => (estimate - compensation).max(0.0),
            })
        }

        /// 0 where the criterion is off.
        pub(crate) fn penalty(&self, route: &Route, criterion: usize) -> f64 {
            let Some(settings) = self.rule.and_then(|rule| rule[criterion]) else { return 0.0 };
            let Some(own) = self.effective(route, criterion) else { return 0.0 };
            let mut best = own;
            for other in &self.routes {
                let Some(other) = self.effective(other, criterion) else { continue };
                let better = if criterion == SIGNALLING { other < best } else { other > best };
                if better {
                    best = other;
                }
            }
            if criterion != DURATION {
                settings.weight * (best - own).abs() / 100.0
            } else if best == 0.0 {
                0.0
            } else {
                settings.weight * (best - own) / best
            }
        }

        pub(crate) fn dynamic_priority(&self, route: &Route) -> f64 {
            self.penalty(route, SUCCESS) + self.penalty(route, DURATION) + self.penalty(route, SIGNALLING)
        }

        pub(crate) fn priority(&self, route: &Route) -> f64 {
            route.static_priority as f64 + self.dynamic_priority(route)
        }

        /// The hunt order, as connections; blocked ones are left out. Second: the blocked ones, by priority.
        pub(crate) fn order(&self, standing: impl Fn(usize) -> Standing) -> (Vec<usize>, Vec<usize>) {
            let mut routes = self.routes.clone();
            sort(&mut routes, |route| self.priority(route));
            let with = |wanted| {
                let connections = routes.iter().map(|route| route.connection);
                connections.filter(|connection| standing(*connection) == wanted).collect::<Vec<_>>()
            };
            let mut order = with(Standing::Usual);
            order.extend(with(Standing::Last));
            (order, with(Standing::Blocked))
        }

        /// An attempt of this map is placed. `tried`: what its call has tried before.
        pub(crate) fn placed(&mut self, connection: usize, tried: &[usize], standing: impl Fn(usize) -> Standing) {
            let Some(rule) = self.rule else { return };
            let (order, _) = self.order(&standing);
            let Some(at) = order.iter().position(|other| *other == connection) else { return };
            let Some(own) = self.routes.iter().find(|route| route.connection == connection) else { return };
            let own_priority = own.static_priority;
            for better in &mut self.routes {
                let behind = order[at + 1..].contains(&better.connection);
                let usual = standing(better.connection) == Standing::Usual;
                let untried = !tried.contains(&better.connection);
                if better.static_priority < own_priority && behind && usual && untried {
                    for (compensation, settings) in better.compensations.iter_mut().zip(rule) {
                        *compensation += settings.map_or(0.0, |settings| settings.compensation);
                    }
                }
            }
        }

        /// An attempt of this map ends.
        pub(crate) fn ended(&mut self, connection: usize, end: End) {
            let Some(rule) = self.rule else { return };
            let Some(route) = self.routes.iter_mut().find(|route| route.connection == connection) else { return };
            if !end.in_window {
                return;
            }
            let success = end.success();
            let mut sample = |criterion: usize, x: f64| {
                let Some(settings) = rule[criterion] else { return };
                route.estimates[criterion] = Some(match route.estimates[criterion] {
                    None => x,
                    Some(estimate) => estimate + (x - estimate) / f64::from(settings.latency),
                });
            };
            sample(SUCCESS, if success { 100.0 } else { 0.0 });
            if let Some(duration) = end.duration_ms.filter(|_| success) {
                sample(DURATION, duration as f64 / 1000.0);
            }
            sample(SIGNALLING, if end.vendor_failed { 100.0 } else { 0.0 });
            if !success {
                route.compensations = [0.0; 3];
            }
        }
    }
}

// ===== random configurations =====

/// Everything that a test needs to know of a configuration.
#[derive(Clone, Debug)]
struct World {
    connections: usize,
    maps: Vec<Map>,
    /// How each connection is judged, as lines of TOML.
    quality: Vec<String>,
}

fn criterion() -> impl Strategy<Value = Option<Criterion>> {
    let weight = prop::sample::select(vec![0.0, 0.5, 12.5, 20.0, 33.3, 100.0]);
    let latency = prop::sample::select(vec![1, 2, 3, 10, 100]);
    let compensation = prop::sample::select(vec![0.0, 0.1, 1.0, 2.5, 25.0, 150.0]);
    prop::option::weighted(0.7, (weight, latency, compensation)).prop_map(|criterion| {
        criterion.map(|(weight, latency, compensation)| Criterion { weight, latency, compensation })
    })
}

fn rule() -> impl Strategy<Value = Option<Rule>> {
    prop::option::weighted(0.85, [criterion(), criterion(), criterion()])
}

/// Few priorities, so that many are equal.
fn priority() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![-5, 0, 5, 5, 10, 20])
}

fn quality() -> impl Strategy<Value = String> {
    let action = prop::sample::select(vec!["make_last", "make_last", "block", "notify_only"]);
    let overflow = prop::sample::select(vec!["stay", "withhold"]);
    let per = prop::sample::select(vec!["connection", "map"]);
    let judged = (action, overflow, per, 1..4_u32, 1..40_u32, 1..3_u32).prop_map(
        |(action, overflow, per, window, interval, batch)| {
            format!(
                "monitor_asr = true\nasr_threshold_percent = 50\nstatistics_window = {window}\nbad_quality_action = '{action}'\n\
                 retry_interval_sec = {interval}\nretry_batch = {batch}\nretry_overflow = '{overflow}'\njudge_per = '{per}'"
            )
        },
    );
    prop_oneof![2 => Just(String::new()), 1 => judged]
}

/// The entries of the map `map` of `maps`: some connections and some of the maps behind it, in any order.
fn entries(map: usize, maps: usize, connections: usize) -> impl Strategy<Value = Vec<(Target, i64)>> {
    let all: Vec<Target> = (0..connections).map(Target::Connection).chain((map + 1..maps).map(Target::Map)).collect();
    let count = all.len();
    prop::sample::subsequence(all, count.div_ceil(2)..=count).prop_shuffle().prop_flat_map(|targets| {
        let priorities = prop::collection::vec(priority(), targets.len());
        (Just(targets), priorities).prop_map(|(targets, priorities)| targets.into_iter().zip(priorities).collect())
    })
}

fn world() -> impl Strategy<Value = World> {
    (2..=6_usize, 1..=4_usize).prop_flat_map(|(connections, maps)| {
        let each: Vec<_> =
            (0..maps)
                .map(|map| {
                    (entries(map, maps, connections), rule(), any::<bool>())
                        .prop_map(|(entries, rule, least_bad)| Map { entries, rule, least_bad })
                })
                .collect();
        let quality = prop::collection::vec(quality(), connections);
        (each, quality).prop_map(move |(maps, quality)| World { connections, maps, quality })
    })
}

impl World {
    fn toml(&self) -> String {
        let mut text =
            "[[nodes]]\nid = 'fs'\nkind = 'freeswitch'\naddress = '127.0.0.1:8021'\npassword = 'x'\n".to_owned();
        for (connection, quality) in self.quality.iter().enumerate() {
            text += &format!("[[connections]]\nid = 'v{connection}'\n[connections.quality]\n{quality}\n");
        }
        for (index, map) in self.maps.iter().enumerate() {
            let entries = map.entries.iter().map(|(target, priority)| {
                let target = match target {
                    Target::Connection(connection) => format!("connection = 'v{connection}'"),
                    Target::Map(map) => format!("map = 'm{map}'"),
                };
                format!("{{ {target}, priority = {priority} }}")
            });
            let entries = entries.collect::<Vec<_>>().join(", ");
            let when = if map.least_bad { "least_bad" } else { "fail" };
            text += &format!("[[route_maps]]\nid = 'm{index}'\nprefixes = ['{index}']\nwhen_all_blocked = '{when}'\n");
            text += &format!("entries = [{entries}]\n");
            let Some(rule) = map.rule else { continue };
            text += &format!("rule = 'r{index}'\n[[routing_rules]]\nid = 'r{index}'\n");
            for (name, criterion) in NAMES.iter().zip(rule) {
                if let Some(Criterion { weight, latency, compensation }) = criterion {
                    let values = format!("weight = {weight:?}, latency = {latency}, compensation = {compensation:?}");
                    text += &format!("{name} = {{ enabled = true, {values} }}\n");
                }
            }
        }
        text
    }

    fn config(&self) -> Arc<Config> {
        let text = self.toml();
        let loaded = load_text(Path::new("p.toml"), &text, Format::Toml, [], Purpose::Connect);
        Arc::new(loaded.unwrap_or_else(|problems| panic!("{problems}")).config)
    }

    /// The model of every map, with nothing learnt.
    fn learning(&self) -> Vec<Learning> {
        (0..self.maps.len()).map(|map| Learning::new(&self.maps, map)).collect()
    }
}

/// The number of a connection.
fn number(connection: &ConnectionId) -> usize {
    connection.as_str()[1..].parse().unwrap()
}

fn map_id(map: usize) -> MapId {
    MapId::new(&format!("m{map}")).unwrap()
}

// ===== comparing =====

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-9
}

fn standing_in(view: &MapView, connection: usize) -> Standing {
    let name = format!("v{connection}");
    match view.routes.iter().find(|route| route.connection.as_str() == name).map(|route| route.standing) {
        None | Some(Stands::Usual) => Standing::Usual,
        Some(Stands::Last) => Standing::Last,
        Some(Stands::Blocked) => Standing::Blocked,
    }
}

/// What of a picture is not as the model has it. The states are taken from the picture itself.
fn difference(view: &MapView, model: &Learning, least_bad: bool) -> Result<(), String> {
    let standing = |connection| standing_in(view, connection);
    let (order, blocked) = model.order(standing);
    let names =
        |connections: &[usize]| connections.iter().map(|connection| format!("v{connection}")).collect::<Vec<_>>();
    let found: Vec<_> = view.hunt_order.iter().map(|connection| connection.as_str().to_owned()).collect();
    let panic = order.is_empty() && !blocked.is_empty();
    if view.panic != panic {
        return Err(format!("panic {} and not {panic}", view.panic));
    }
    if panic && least_bad {
        // Which one is the least bad is decided by quality; here it is one of them.
        if found.len() != 1 || !names(&blocked).contains(&found[0]) {
            return Err(format!("{found:?} is kept of {blocked:?}"));
        }
    } else if found != names(&order) {
        return Err(format!("hunt order {found:?} and not {:?}", names(&order)));
    }
    if view.routes.len() != model.routes.len() {
        return Err(format!("{} routes and not {}", view.routes.len(), model.routes.len()));
    }
    for (index, shown) in view.routes.iter().enumerate() {
        let route = model.routes.iter().find(|route| format!("v{}", route.connection) == shown.connection.as_str());
        let route = route.ok_or_else(|| format!("{} is no route", shown.connection))?;
        let place = found.iter().position(|name| *name == shown.connection.as_str()).map(|place| place + 1);
        if shown.place != place || place.is_some_and(|place| place != index + 1) {
            return Err(format!("{} at {index} has the place {:?} and not {place:?}", shown.connection, shown.place));
        }
        let enabled = |criterion: usize| model.rule.is_some_and(|rule| rule[criterion].is_some());
        let keys: Vec<_> = shown.criteria.keys().map(|measure| measure.as_str()).collect();
        let expected: Vec<_> =
            (0..3).filter(|criterion| enabled(*criterion)).map(|criterion| NAMES[criterion]).collect();
        if keys != expected {
            return Err(format!("criteria {keys:?} and not {expected:?}"));
        }
        for (measure, found) in &shown.criteria {
            let criterion = NAMES.iter().position(|name| *name == measure.as_str()).unwrap();
            let expected =
                (route.estimates[criterion], route.compensations[criterion], model.penalty(route, criterion));
            let same_estimate = match (found.estimate, expected.0) {
                (Some(found), Some(expected)) => near(found, expected),
                (found, expected) => found == expected,
            };
            if !same_estimate || !near(found.compensation, expected.1) || !near(found.penalty, expected.2) {
                return Err(format!("{} {}: {found:?} and not {expected:?}", shown.connection, measure.as_str()));
            }
        }
        let dynamic = model.dynamic_priority(route);
        let same = near(shown.dynamic_priority, dynamic) && near(shown.priority, model.priority(route));
        if !same || shown.static_priority != route.static_priority {
            let found = (shown.static_priority, shown.dynamic_priority, shown.priority);
            return Err(format!("{}: {found:?} and not {} + {dynamic}", shown.connection, route.static_priority));
        }
    }
    let left_out: Vec<_> =
        view.routes.iter().skip(found.len()).map(|route| route.connection.as_str().to_owned()).collect();
    let expected: Vec<_> = names(&blocked).into_iter().filter(|name| !found.contains(name)).collect();
    if left_out != expected {
        return Err(format!("left out {left_out:?} and not {expected:?}"));
    }
    Ok(())
}

// ===== a file of attempts =====

/// A row; times in units of half a second.
#[derive(Clone, Debug)]
struct Row {
    connection: usize,
    placed: i64,
    ended: i64,
    answered: bool,
    duration_ms: Option<u64>,
    outcome: Outcome,
}

impl Row {
    fn end(&self) -> End {
        End {
            in_window: !matches!(self.outcome, Outcome::LostRace | Outcome::NotSent | Outcome::Lost),
            answered: self.answered,
            vendor_failed: self.outcome == Outcome::VendorFailed,
            duration_ms: self.duration_ms.map(|ms| i64::try_from(ms).unwrap()),
        }
    }
}

/// How a row ends: whether it was answered, its duration, its outcome.
fn row_end() -> impl Strategy<Value = (bool, Option<u64>, Outcome)> {
    let duration = prop::sample::select(vec![1, 500, 1000, 30_000, 61_234, 3_600_000]);
    let unanswered = prop::sample::select(vec![
        Outcome::Busy,
        Outcome::NoAnswer,
        Outcome::Rejected,
        Outcome::NumberInvalid,
        Outcome::VendorFailed,
        Outcome::VendorFailed,
        Outcome::VendorFailed,
        Outcome::CallerGone,
        Outcome::LostRace,
        Outcome::NotSent,
        Outcome::Lost,
    ]);
    prop_oneof![
        8 => duration.prop_map(|ms| (true, Some(ms), Outcome::Answered)),
        1 => Just((true, None, Outcome::Answered)),
        1 => Just((true, Some(0), Outcome::Answered)),
        8 => unanswered.prop_map(|outcome| (false, Some(0), outcome)),
    ]
}

fn rows(connections: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (0..connections, 0..60_i64, prop_oneof![3 => 0..3_i64, 2 => 3..20_i64], row_end()).prop_map(
        |(connection, placed, length, (answered, duration_ms, outcome))| Row {
            connection,
            placed,
            ended: placed + length,
            answered,
            duration_ms,
            outcome,
        },
    );
    prop::collection::vec(row, 0..60)
}

/// Where the rows come to, by the model: ends before placements at one instant, and what ends in the instant in which it
/// was placed after all placements of that instant; else in the order of the file.
fn played(world: &World, map: usize, rows: &[Row]) -> Learning {
    let mut learning = Learning::new(&world.maps, map);
    let usual = |_| Standing::Usual;
    for instant in 0..200 {
        for row in rows.iter().filter(|row| row.ended == instant && row.placed < instant) {
            learning.ended(row.connection, row.end());
        }
        for row in rows.iter().filter(|row| row.placed == instant) {
            learning.placed(row.connection, &[], usual);
        }
        for row in rows.iter().filter(|row| row.ended == instant && row.placed == instant) {
            learning.ended(row.connection, row.end());
        }
    }
    learning
}

fn half_seconds(units: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + units * 500_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attempts_of_the_past_come_to_what_the_model_says(
        (world, rows) in world().prop_flat_map(|world| { let rows = rows(world.connections); (Just(world), rows) }),
    ) {
        let config = world.config();
        for map in 0..world.maps.len() {
            let mut past = Past::of(&config, &map_id(map)).unwrap();
            let attempts: Vec<Attempt> = rows
                .iter()
                .filter_map(|row| {
                    let seat = past.seat(&format!("v{}", row.connection))?;
                    let (placed_at, ended_at) = (half_seconds(row.placed), half_seconds(row.ended));
                    let Row { outcome, duration_ms, .. } = *row;
                    Some(Attempt { seat, placed_at, ended_at, outcome, duration_ms, pdd_ms: None })
                })
                .collect();
            past.play(&attempts);
            let learning = played(&world, map, &rows);
            let difference = difference(&past.picture(), &learning, world.maps[map].least_bad);
            prop_assert!(difference.is_ok(), "m{map}: {}\n{}\n{rows:#?}", difference.unwrap_err(), world.toml());
        }
    }
}

/// The rows as a file.
fn csv(rows: &[Row]) -> String {
    let mut text = "connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome\n".to_owned();
    for Row { connection, placed, ended, answered, duration_ms, outcome } in rows {
        let at = |units: &i64| format!("{}.{}", 1_700_000_000 + units / 2, 5 * (units % 2));
        let duration = duration_ms.map(|ms| ms.to_string()).unwrap_or_default();
        let outcome = serde_json::to_value(outcome).unwrap();
        let outcome = outcome.as_str().unwrap();
        text += &format!("v{connection},{},{},{answered},{duration},,{outcome}\n", at(placed), at(ended));
    }
    text
}

/// What of the table that the command prints is not as the model has it.
fn table_difference(table: &serde_json::Value, map: usize, model: &Learning) -> Result<(), String> {
    let routes = table["routes"].as_array().ok_or("no routes")?;
    let named = |connection: usize| routes.iter().find(|route| route["connection"] == format!("v{connection}"));
    let standing = |connection| match named(connection).map(|route| &route["state"]) {
        Some(state) if state == "last" => Standing::Last,
        Some(state) if state == "blocked" => Standing::Blocked,
        _ => Standing::Usual,
    };
    let (order, blocked) = model.order(standing);
    let found: Vec<_> = routes.iter().map(|route| route["connection"].as_str().unwrap_or_default()).collect();
    let expected: Vec<_> = order.iter().chain(&blocked).map(|connection| format!("v{connection}")).collect();
    if table["map"] != format!("m{map}") || found != expected {
        return Err(format!("{} with {found:?} and not {expected:?}", table["map"]));
    }
    let same = |found: &serde_json::Value, expected: f64| found.as_f64().is_some_and(|found| near(found, expected));
    for route in &model.routes {
        let found = named(route.connection).ok_or_else(|| format!("v{} is not there", route.connection))?;
        let criteria = found["criteria"].as_object().ok_or("no criteria")?;
        let enabled: Vec<_> = (0..3).filter(|index| model.rule.is_some_and(|rule| rule[*index].is_some())).collect();
        let as_model = enabled.iter().all(|index| {
            let criterion = &criteria[NAMES[*index]];
            let estimate = match route.estimates[*index] {
                None => criterion["estimate"].is_null(),
                Some(estimate) => same(&criterion["estimate"], estimate),
            };
            let compensation = same(&criterion["compensation"], route.compensations[*index]);
            estimate && compensation && same(&criterion["penalty"], model.penalty(route, *index))
        });
        let sums = same(&found["dynamic_priority"], model.dynamic_priority(route))
            && same(&found["priority"], model.priority(route))
            && found["static_priority"] == route.static_priority;
        let place = found["place"].is_null() == blocked.contains(&route.connection);
        if criteria.len() != enabled.len() || !as_model || !sums || !place {
            return Err(format!("{found:#} and not {route:#?}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// The command itself, as an operator runs it, rows of connections outside the map included.
    #[test]
    fn test_call_prints_the_models_table(
        (mut world, rows) in world().prop_flat_map(|world| { let rows = rows(world.connections); (Just(world), rows) }),
        map in any::<prop::sample::Index>(),
    ) {
        // A table tells no batch that is withheld from one that is not, and of several blocked routes which is the least bad.
        for quality in &mut world.quality {
            *quality = quality.replace("withhold", "stay");
        }
        world.maps.iter_mut().for_each(|map| map.least_bad = false);
        let map = map.index(world.maps.len());
        let directory = tempfile::tempdir().unwrap();
        let [config, attempts] = ["p.toml", "attempts.csv"].map(|name| directory.path().join(name));
        std::fs::write(&config, world.toml()).unwrap();
        std::fs::write(&attempts, csv(&rows)).unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .arg("test-call")
            .arg(format!("{map}49301234"))
            .arg("--config")
            .arg(&config)
            .arg("--attempts")
            .arg(&attempts)
            .arg("--json")
            .output()
            .unwrap();
        prop_assert_eq!(output.status.code(), Some(0), "{:?}", output);
        let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let difference = table_difference(&table, map, &played(&world, map, &rows));
        prop_assert!(difference.is_ok(), "{}\n{}\n{}", difference.unwrap_err(), world.toml(), csv(&rows));
        let outside = rows.iter().any(|row| flatten(&world.maps, map).iter().all(|route| route.connection != row.connection));
        prop_assert_eq!(outside, !output.stderr.is_empty(), "{:?}", output);
    }
}

// ===== the engine =====

/// How a leg ends on the switch, and what that is by the method.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    /// Answered for so many milliseconds.
    Answered(i64),
    /// Refused with this SIP status and cause.
    Refused(u16, u16),
    CallerGone,
    LostRace,
    NotSent,
}

impl Ending {
    fn end(self) -> End {
        let unanswered = End { in_window: true, answered: false, vendor_failed: false, duration_ms: Some(0) };
        match self {
            Self::Answered(ms) => End { answered: true, duration_ms: Some(ms), ..unanswered },
            Self::Refused(503, _) => End { vendor_failed: true, ..unanswered },
            Self::Refused(..) | Self::CallerGone => unanswered,
            Self::LostRace | Self::NotSent => End { in_window: false, ..unanswered },
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A leg for a map. The caller is one of the map's, or not known.
    Place { map: usize, to: To, caller: Option<usize>, by_number: bool },
    /// One of the legs that are up ends.
    End { which: prop::sample::Index, ending: Ending },
    /// One of the legs that are up is answered.
    Answer { which: prop::sample::Index },
    /// The link is lost; when it is back, of the legs that were up only the first so many are.
    Gap { kept: prop::sample::Index },
    /// pointsman is killed and starts again.
    Restart,
    /// Another configuration is in force; it is the same.
    Reload,
}

/// Where a leg goes.
#[derive(Clone, Copy, Debug)]
enum To {
    /// The first of the hunt order now.
    First,
    /// The first that the call has not tried.
    Next,
    /// Any connection, also one that the map has not.
    Connection(usize),
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        8 => prop::sample::select(vec![1, 700, 1500, 3000]).prop_map(Ending::Answered),
        1 => Just(Ending::Answered(0)),
        4 => Just(Ending::Refused(503, 41)),
        4 => prop::sample::select(vec![(486, 17), (404, 1), (603, 21), (480, 18)]).prop_map(|(sip, cause)| Ending::Refused(sip, cause)),
        1 => Just(Ending::CallerGone),
        1 => Just(Ending::LostRace),
        1 => Just(Ending::NotSent),
    ]
}

fn steps(world: &World) -> impl Strategy<Value = Vec<(u32, Step)>> + use<> {
    let to = prop_oneof![
        4 => Just(To::First),
        4 => Just(To::Next),
        3 => (0..world.connections).prop_map(To::Connection),
    ];
    let map = prop_oneof![2 => Just(0), 1 => 0..world.maps.len()];
    let place = (map, to, prop::option::weighted(0.6, 0..3_usize), any::<bool>())
        .prop_map(|(map, to, caller, by_number)| Step::Place { map, to, caller, by_number });
    let end = (any::<prop::sample::Index>(), ending()).prop_map(|(which, ending)| Step::End { which, ending });
    let step = prop_oneof![
        30 => place,
        24 => end,
        5 => any::<prop::sample::Index>().prop_map(|which| Step::Answer { which }),
        1 => any::<prop::sample::Index>().prop_map(|kept| Step::Gap { kept }),
        1 => Just(Step::Restart),
        1 => Just(Step::Reload),
    ];
    // A hunt is forgotten after ten minutes: all steps together take less.
    let wait = prop::sample::select(vec![0, 0, 0, 250, 1000, 4000]);
    prop::collection::vec((wait, step), 1..120)
}

/// A leg that is up.
#[derive(Clone, Debug)]
struct Up {
    leg: LegId,
    map: usize,
    connection: usize,
    caller: Option<LegId>,
    placed: Timestamp,
    answered: Option<Timestamp>,
}

/// What the store holds.
#[derive(Default)]
struct Stored {
    learnt: Vec<(MapId, Learnt)>,
    machines: Vec<(QualityKey, Saved)>,
    legs: Vec<LegRow>,
}

impl Stored {
    fn take(&mut self, engine: &mut Engine) {
        for effect in engine.take_effects() {
            let Effect::Store(op) = effect else { continue };
            match op {
                StoreOp::Learnt(map, learnt) => {
                    self.learnt.retain(|(known, _)| *known != map);
                    self.learnt.extend(learnt.map(|learnt| (map, *learnt)));
                }
                StoreOp::Quality(key, saved) => {
                    self.machines.retain(|(known, _)| *known != key);
                    self.machines.push((key, *saved));
                }
                StoreOp::LegUp(row) => {
                    self.legs.retain(|leg| leg.leg != row.leg);
                    self.legs.push(*row);
                }
                StoreOp::LegGone(_, gone) => self.legs.retain(|leg| leg.leg != gone),
                _ => {}
            }
        }
    }

    fn restored(&self) -> Restored {
        let Self { learnt, machines, legs } = self;
        let (learnt, machines, legs) = (learnt.clone(), machines.clone(), legs.clone());
        Restored { learnt, machines, legs, ..Restored::default() }
    }
}

/// The engine and the model side by side.
struct Pair {
    world: World,
    config: Arc<Config>,
    engine: Engine,
    stored: Stored,
    model: Vec<Learning>,
    now: Timestamp,
    up: Vec<Up>,
    /// What each call has tried.
    tried: Vec<(LegId, Vec<usize>)>,
    legs: usize,
    /// How often pointsman was started: a call does not go on hunting over a start.
    starts: usize,
    reached: Reached,
}

/// How often something happened that the rules have a word for.
#[derive(Debug, Default)]
struct Reached {
    bypasses: usize,
    spared_because_tried: usize,
    spared_because_of_the_state: usize,
    resets: usize,
    changes_of_order: usize,
    lowered: usize,
    blocked: usize,
}

impl Pair {
    fn new(world: World) -> Self {
        let now = Timestamp::from_secs(1_796_014_300);
        let config = world.config();
        let mut engine = Engine::new(Arc::clone(&config), Restored::default(), now);
        engine.apply(0, &PbxEvent::Linked, now);
        engine.apply(0, &PbxEvent::Snapshot(Snapshot { legs: vec![] }), now);
        let model = world.learning();
        let (stored, up, tried) = (Stored::default(), Vec::new(), Vec::new());
        Self { world, config, engine, stored, model, now, up, tried, legs: 0, starts: 0, reached: Reached::default() }
    }

    fn views(&mut self) -> Vec<Arc<MapView>> {
        self.engine.view(&[LinkView::default()], &[VariablesView::default()], self.now).maps
    }

    fn wait(&mut self, ms: u32) {
        self.now = self.now.after(Duration::from_millis(ms.into()));
        self.engine.fire(self.now);
        self.stored.take(&mut self.engine);
    }

    fn event(&self, kind: FsKind, up: &Up) -> FsEvent {
        FsEvent {
            kind,
            leg: up.leg.clone(),
            outbound: Some(true),
            gateway: Some(format!("v{}", up.connection).into()),
            caller: None,
            number: None,
            map: None,
            at: Some(self.now),
            created: Some(up.placed),
            progress: None,
            early_media: None,
            answered: up.answered,
            hung_up: None,
            delay_sec: 0,
            cause: None,
            cause_name: None,
            disposition: None,
            sip_status: None,
            recovered: false,
        }
    }

    fn tell(&mut self, event: FsEvent) {
        self.engine.apply(0, &PbxEvent::FreeSwitch(Box::new(event)), self.now);
        self.stored.take(&mut self.engine);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Place { map, to, caller, by_number } => self.place(*map, *to, *caller, *by_number),
            Step::End { which, ending } if !self.up.is_empty() => self.end(which.index(self.up.len()), *ending),
            Step::Answer { which } if !self.up.is_empty() => self.answer(which.index(self.up.len())),
            Step::End { .. } | Step::Answer { .. } => {}
            Step::Gap { kept } => self.gap(kept.index(self.up.len() + 1)),
            Step::Restart => self.restart(),
            Step::Reload => {
                self.engine.request(Request::Configure(NewConfig(Arc::clone(&self.config))), self.now).unwrap();
                self.stored.take(&mut self.engine);
                self.model = self.world.learning();
            }
        }
    }

    fn place(&mut self, map: usize, to: To, caller: Option<usize>, by_number: bool) {
        self.legs += 1;
        let leg = LegId::new(&format!("leg-{}", self.legs));
        let caller = caller.map(|caller| LegId::new(&format!("caller-{map}-{caller}-{}", self.starts)));
        let known = caller.as_ref().and_then(|caller| self.tried.iter().find(|(known, _)| known == caller));
        let tried = known.map(|(_, tried)| tried.clone()).unwrap_or_default();
        let view = &self.views()[map];
        let order: Vec<usize> = view.hunt_order.iter().map(number).collect();
        let connection = match to {
            To::First => order.first().copied(),
            To::Next => order.iter().find(|connection| !tried.contains(connection)).copied(),
            To::Connection(connection) => Some(connection),
        };
        let Some(connection) = connection else { return };
        let up = Up { leg, map, connection, caller: caller.clone(), placed: self.now, answered: None };
        let standing = |connection| standing_in(view, connection);
        let before = self.model[map].clone();
        let bypassed = |tried: &[usize], standing: &dyn Fn(usize) -> Standing| {
            let mut after = before.clone();
            after.placed(connection, tried, standing);
            let routes = before.routes.iter().zip(&after.routes);
            routes.filter(|(before, after)| before.compensations != after.compensations).count()
        };
        let bypasses = bypassed(&tried, &standing);
        self.reached.bypasses += bypasses;
        self.reached.spared_because_tried += bypassed(&[], &standing) - bypasses;
        self.reached.spared_because_of_the_state += bypassed(&tried, &|_| Standing::Usual).saturating_sub(bypasses);
        self.model[map].placed(connection, &tried, standing);
        if let Some(caller) = &caller {
            match self.tried.iter_mut().find(|(known, _)| known == caller) {
                Some((_, tried)) => tried.push(connection),
                None => self.tried.push((caller.clone(), vec![connection])),
            }
        }
        let number = Some(format!("{map}49301234").into());
        // The dialplan's word goes before the number.
        let (number, map) = if by_number { (number, None) } else { (None, Some(format!("m{map}").into())) };
        let event = FsEvent { caller, number, map, ..self.event(FsKind::Created, &up) };
        self.tell(event);
        self.up.push(up);
    }

    fn answer(&mut self, which: usize) {
        self.up[which].answered = self.up[which].answered.or(Some(self.now));
        let event = self.event(FsKind::Progressed, &self.up[which]);
        self.tell(event);
    }

    fn end(&mut self, which: usize, ending: Ending) {
        let up = self.up.remove(which);
        let mut event = FsEvent { hung_up: Some(self.now), ..self.event(FsKind::Completed, &up) };
        let mut end = ending.end();
        if let Some(answered) = up.answered {
            // What was answered was answered, whatever comes then.
            let ms = i64::try_from(self.now.since(answered).as_millis()).unwrap();
            end = Ending::Answered(ms).end();
            (event.cause, event.disposition) = (Some(16), Some(Disposition::Bye));
        } else {
            match ending {
                Ending::Answered(ms) => {
                    self.now = self.now.after(Duration::from_millis(ms.unsigned_abs()));
                    self.engine.fire(self.now);
                    (event.answered, event.hung_up) = (event.hung_up, Some(self.now));
                    (event.cause, event.disposition) = (Some(16), Some(Disposition::Bye));
                }
                Ending::Refused(sip, cause) => {
                    (event.cause, event.sip_status) = (Some(cause), Some(sip));
                    event.disposition = Some(Disposition::RecvRefuse);
                }
                Ending::CallerGone => (event.cause, event.disposition) = (Some(487), Some(Disposition::SendCancel)),
                Ending::LostRace => {
                    (event.cause_name, event.disposition) = (Some(FsCause::Race), Some(Disposition::SendCancel));
                }
                Ending::NotSent => event.cause = Some(27),
            }
        }
        self.tell(event);
        self.ended(&up, end);
    }

    /// The end of a leg, for the model. A call that got through hunts no more: what it dials next is another hunt.
    fn ended(&mut self, up: &Up, end: End) {
        let compensated =
            |model: &Learning| model.routes.iter().filter(|route| route.compensations != [0.0; 3]).count();
        let before = compensated(&self.model[up.map]);
        self.model[up.map].ended(up.connection, end);
        self.reached.resets += before - compensated(&self.model[up.map]);
        if end.success() {
            self.tried.retain(|(caller, _)| up.caller.as_ref() != Some(caller));
        }
    }

    /// Of the legs that were up the first `kept` still are. An answered one that is not has a duration that nobody knows;
    /// of another one the end was not seen.
    fn gap(&mut self, kept: usize) {
        for up in self.up.split_off(kept) {
            let answered = up.answered.is_some();
            let end = End { in_window: answered, answered, vendor_failed: false, duration_ms: None };
            self.ended(&up, end);
        }
        self.linked();
    }

    fn linked(&mut self) {
        let listed = self.up.iter().map(|up| ListedLeg {
            leg: up.leg.clone(),
            outbound: Some(true),
            channel: format!("sofia/external/{}", up.leg.as_str()).into(),
            trunk: None,
            answered: up.answered.is_some(),
            age_sec: None,
        });
        let snapshot = Snapshot { legs: listed.collect() };
        self.engine.apply(0, &PbxEvent::Linked, self.now);
        self.engine.apply(0, &PbxEvent::Snapshot(snapshot), self.now);
        self.stored.take(&mut self.engine);
    }

    fn restart(&mut self) {
        self.starts += 1;
        let before = self.views();
        self.engine = Engine::new(Arc::clone(&self.config), self.stored.restored(), self.now);
        self.linked();
        assert_eq!(self.views(), before, "a restart changes nothing");
    }

    fn difference(&mut self) -> Result<(), String> {
        let views = self.views();
        if views.len() != self.model.len() {
            return Err(format!("{} maps", views.len()));
        }
        for (map, (view, model)) in views.iter().zip(&self.model).enumerate() {
            let statically = model.order(|_| Standing::Usual).0;
            let as_configured = Learning::new(&self.world.maps, map).order(|_| Standing::Usual).0;
            self.reached.changes_of_order += usize::from(statically != as_configured);
            self.reached.lowered += view.routes.iter().filter(|route| route.standing == Stands::Last).count();
            self.reached.blocked += view.blocked.len();
            difference(view, model, self.world.maps[map].least_bad)
                .map_err(|difference| format!("m{map}: {difference}"))?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_learns_what_the_model_learns(
        (world, steps) in world().prop_flat_map(|world| { let steps = steps(&world); (Just(world), steps) }),
    ) {
        let mut pair = Pair::new(world);
        for (number, (wait, step)) in steps.iter().enumerate() {
            pair.wait(*wait);
            pair.step(step);
            let difference = pair.difference();
            let so_far = &steps[..=number];
            prop_assert!(difference.is_ok(), "{}\n{}\n{so_far:#?}", difference.unwrap_err(), pair.world.toml());
        }
    }
}

/// A comparison that never gets anywhere compares nothing.
#[test]
fn the_random_steps_reach_every_rule() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = world().prop_flat_map(|world| {
        let steps = steps(&world);
        (Just(world), steps)
    });
    let mut all = [0; 7];
    for _ in 0..150 {
        let (world, steps) = strategy.new_tree(&mut runner).unwrap().current();
        let mut pair = Pair::new(world);
        for (wait, step) in &steps {
            pair.wait(*wait);
            pair.step(step);
            assert_eq!(pair.difference(), Ok(()));
        }
        let Reached { bypasses, spared_because_tried, spared_because_of_the_state, .. } = pair.reached;
        let Reached { resets, changes_of_order, lowered, blocked, .. } = pair.reached;
        let reached =
            [bypasses, spared_because_tried, spared_because_of_the_state, resets, changes_of_order, lowered, blocked];
        all.iter_mut().zip(reached).for_each(|(all, reached)| *all += reached);
    }
    assert!(all.iter().all(|reached| *reached >= 20), "{all:?}");
}

// ===== laws =====

/// A map of one criterion, whose best route by the configuration is the first connection.
fn lone_criterion() -> impl Strategy<Value = World> {
    let weight = prop::sample::select(vec![0.5, 5.0, 20.0, 33.3, 100.0]);
    let latency = prop::sample::select(vec![1, 2, 5, 10]);
    let compensation = prop::sample::select(vec![0.7, 2.0, 2.5, 25.0]);
    let others = prop::collection::vec(prop::sample::select(vec![1, 5, 10, 10, 20]), 1..4);
    (weight, latency, compensation, 0..3_usize, others, any::<prop::sample::Index>()).prop_map(
        |(weight, latency, compensation, which, others, written)| {
            let connections = others.len() + 1;
            let mut entries: Vec<_> =
                others.iter().enumerate().map(|(other, priority)| (Target::Connection(other + 1), *priority)).collect();
            entries.insert(written.index(connections), (Target::Connection(0), 0));
            let mut rule = [None; 3];
            rule[which] = Some(Criterion { weight, latency, compensation });
            let map = Map { entries, rule: Some(rule), least_bad: false };
            World { connections, maps: vec![map], quality: vec![String::new(); connections] }
        },
    )
}

/// In how many calls at most the first connection is tried again, whatever stands before it now.
///
/// Say H stands before it, statically worse. Each call on H passes it by, which adds `compensation` to its effective
/// estimate and nothing to H's. Of a percentage the difference of their penalties, `weight * (eff_H - eff) / 100` whatever
/// the best is, shrinks by `weight * compensation / 100`: after `floor(gap / that) + 1` calls on H it is before H, where
/// `gap` is the difference of their priorities now. Of a duration, `weight * (eff_H - eff) / best` is nothing at the
/// latest when `eff` has grown past `eff_H`: after `floor((eff_H - eff) / compensation) + 1` calls on H. A call on another
/// route that passes H by as well leaves their difference as it is. And at the end of the scale the first connection has no
/// penalty at all, and with the smallest static priority is first. So the sum over all routes that are before it is the
/// bound: finite for every `compensation` greater than 0.
fn bound(model: &Learning) -> f64 {
    let rule = model.rule.unwrap();
    let criterion = (0..3).find(|criterion| rule[*criterion].is_some()).unwrap();
    let Criterion { weight, compensation, .. } = rule[criterion].unwrap();
    let order = model.order(|_| Standing::Usual).0;
    let route = |connection: usize| model.routes.iter().find(|route| route.connection == connection).unwrap();
    let first = route(0);
    let before = order.iter().take_while(|connection| **connection != 0);
    let calls = before.map(|other| {
        let other = route(*other);
        let left = if criterion == 1 {
            let effective = |route: &model::Route| route.estimates[1].unwrap() + route.compensations[1];
            (effective(other) - effective(first)) / compensation
        } else {
            (model.priority(first) - model.priority(other)) / (weight * compensation / 100.0)
        };
        (left + 1e-9).floor() + 1.0
    });
    calls.sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_better_route_that_was_passed_by_is_tried_again_within_the_bound_of_its_compensation(
        world in lone_criterion(),
        lesson in prop::collection::vec((0..4_usize, any::<bool>()), 0..12),
    ) {
        let mut pair = Pair::new(world);
        // Every route has an estimate, and that of the first one is bad.
        let connections = pair.world.connections;
        let each = (0..connections).map(|connection| (connection, true)).chain([(0, false), (0, false)]);
        for (connection, good) in each.chain(lesson) {
            pair.place(0, To::Connection(connection % connections), None, false);
            let length = if connection == 0 { 1000 } else { 60_000 };
            pair.end(0, if good { Ending::Answered(length) } else { Ending::Refused(503, 41) });
        }
        prop_assert_eq!(pair.difference(), Ok(()));
        let most = bound(&pair.model[0]);
        let mut calls = 0.0;
        loop {
            if number(&pair.views()[0].hunt_order[0]) == 0 {
                break;
            }
            calls += 1.0;
            prop_assert!(calls <= most, "{calls} calls and more, and {most} at most\n{}", pair.world.toml());
            pair.place(0, To::First, None, false);
            prop_assert_eq!(pair.difference(), Ok(()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rule_of_a_nested_map_has_no_say_in_the_outer_one(
        (world, steps) in world().prop_flat_map(|world| { let steps = steps(&world); (Just(world), steps) }),
    ) {
        // The orders of the nested maps differ, so their calls must not depend on them.
        let steps = steps.into_iter().map(|(wait, step)| match step {
            Step::Place { map: map @ 1.., to: To::First | To::Next, caller, by_number } => {
                (wait, Step::Place { map, to: To::Connection(0), caller, by_number })
            }
            step => (wait, step),
        });
        let steps: Vec<_> = steps.collect();
        let mut without = world.clone();
        without.maps.iter_mut().skip(1).for_each(|map| map.rule = None);
        let mut pairs = [Pair::new(world), Pair::new(without)];
        for (wait, step) in &steps {
            let [with, without] = pairs.each_mut().map(|pair| {
                pair.wait(*wait);
                pair.step(step);
                pair.views()[0].clone()
            });
            prop_assert_eq!(with, without);
        }
    }
}
