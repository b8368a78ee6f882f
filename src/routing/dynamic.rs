//! The route maps with what their rules learnt: one [`MapState`] each, owned by the engine. Pure.
//!
//! A rule's values belong to the map that has it, over its own routes and those of the maps nested in it; the rule of a
//! nested map says nothing here. They begin anew with every configuration that is applied, and survive everything else:
//! [`Learnt`] carries a fingerprint of all maps and rules, and values that were learnt under others are not taken up again.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::model::{Config, RouteMap, RouteTarget};
use crate::ids::ConnectionId;
use crate::quality::machine::Standing;
use crate::quality::window::Sample;
use crate::routing::rule::{self, Penalties, Rule, Values};
use crate::routing::{HuntOrder, Route, RouteNow, RouteTable, StaticOrder, WhenAllBlocked, arrange};

/// A route map: its static order, and what its rule knows of each route.
#[derive(Clone, Debug, PartialEq)]
pub struct MapState {
    order: StaticOrder,
    when_all_blocked: WhenAllBlocked,
    rule: Option<Rule>,
    /// In the order of the routes; empty without a rule.
    values: Vec<Values>,
}

/// What survives a restart of the values of a map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learnt {
    /// Of the maps and rules under which it was learnt; see [`fingerprint`].
    pub fingerprint: u64,
    /// The values of each route.
    pub routes: Vec<(ConnectionId, Values)>,
}

/// The maps of a configuration, in the order written, with nothing learnt.
#[must_use]
pub fn maps(config: &Config) -> Vec<MapState> {
    let table = RouteTable::new(config);
    config.route_maps.iter().zip(table.maps()).map(|(map, order)| MapState::new(map, order.clone())).collect()
}

/// A number that changes with everything in the route maps and rules that a value's meaning depends on.
#[must_use]
pub fn fingerprint(maps: &[RouteMap]) -> u64 {
    let entry = |target: &RouteTarget| match target {
        RouteTarget::Connection(connection) => ("connection", connection.to_string()),
        RouteTarget::Map(map) => ("map", map.to_string()),
    };
    let map = |map: &RouteMap| {
        let entries: Vec<_> = map.entries.iter().map(|e| (entry(&e.target), e.priority)).collect();
        (map.id.clone(), map.prefixes.clone(), map.rule.clone(), entries)
    };
    let all: Vec<_> = maps.iter().map(map).collect();
    // Names, numbers and lists: nothing in it can fail to be written.
    xxh3_64(&serde_json::to_vec(&all).unwrap_or_default())
}

impl MapState {
    fn new(map: &RouteMap, order: StaticOrder) -> Self {
        let values = map.rule.iter().flat_map(|rule| order.routes.iter().map(|_| rule.unknown())).collect();
        Self { order, when_all_blocked: map.when_all_blocked, rule: map.rule.clone(), values }
    }

    /// Its static order.
    #[must_use]
    pub fn static_order(&self) -> &StaticOrder {
        &self.order
    }

    /// Its rule.
    #[must_use]
    pub fn rule(&self) -> Option<&Rule> {
        self.rule.as_ref()
    }

    /// See [`WhenAllBlocked`].
    #[must_use]
    pub fn when_all_blocked(&self) -> WhenAllBlocked {
        self.when_all_blocked
    }

    /// What is known of its routes, in their order; empty without a rule.
    #[must_use]
    pub fn values(&self) -> &[Values] {
        &self.values
    }

    /// A call was placed on the route of that index: every better one that it went past is bypassed. A route that the same
    /// call has tried already (`tried`), or that is not in its usual place, was not gone past.
    pub fn placed(&mut self, route: usize, tried: &[ConnectionId], now: impl Fn(&Route) -> RouteNow) {
        let Some(rule) = &self.rule else { return };
        let (priorities, routes) = (self.priorities(), &self.order.routes);
        let now: Vec<RouteNow> = routes.iter().map(now).collect();
        let arranged: Vec<_> =
            routes.iter().zip(&priorities).zip(&now).map(|((route, &sum), &now)| (sum, route.written, now)).collect();
        let order = arrange(&arranged, self.when_all_blocked).order;
        let behind = order.iter().skip_while(|other| **other != route).skip(1);
        for &other in behind {
            let better = routes[other].priority < routes[route].priority;
            let usual = now[other].standing == Standing::Usual;
            if better && usual && !tried.contains(&routes[other].connection) {
                rule.bypass(&mut self.values[other]);
            }
        }
    }

    /// An attempt of the route of that index ended.
    pub fn ended(&mut self, route: usize, attempt: &Sample) {
        if let Some((rule, values)) = self.rule.as_ref().zip(self.values.get_mut(route)) {
            rule.learn(values, attempt);
        }
    }

    /// What the rule adds to each route by each criterion, in the order of the routes; nothing without a rule.
    #[must_use]
    pub fn penalties(&self) -> Vec<Penalties> {
        match &self.rule {
            Some(rule) => rule.penalties(&self.values.iter().collect::<Vec<_>>()),
            None => vec![Penalties::new(); self.order.routes.len()],
        }
    }

    /// The priorities as they are now: static plus dynamic, in the order of the routes.
    #[must_use]
    pub fn priorities(&self) -> Vec<f64> {
        let penalties = self.penalties();
        let dynamic = penalties.iter().map(rule::total);
        self.order.routes.iter().zip(dynamic).map(|(route, dynamic)| route.priority() + dynamic).collect()
    }

    /// What a call tries now.
    #[must_use]
    pub fn hunt_order(&self, now: impl Fn(&Route) -> RouteNow) -> HuntOrder {
        self.order.hunt_order(&self.priorities(), self.when_all_blocked, now)
    }

    /// What is to survive a restart; `None` where there is no rule.
    #[must_use]
    pub fn keep(&self, fingerprint: u64) -> Option<Learnt> {
        self.rule.as_ref()?;
        let routes = self.order.routes.iter().zip(&self.values);
        let routes = routes.map(|(route, values)| (route.connection.clone(), values.clone())).collect();
        Some(Learnt { fingerprint, routes })
    }

    /// Takes up what was kept, if it was learnt under the same maps and rules. Says whether it was.
    pub fn restore(&mut self, kept: Learnt, fingerprint: u64) -> bool {
        if self.rule.is_none() || kept.fingerprint != fingerprint {
            return false;
        }
        for (connection, values) in kept.routes {
            if let Some(place) = self.order.place_of(&connection) {
                self.values[place] = values;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::outcome::Outcome;
    use crate::config::model::RouteMap;
    use crate::quality::window::Epoch;
    use crate::routing::rule::{Criterion, Measure};
    use crate::routing::tests::map;
    use crate::time::Timestamp;

    fn ruled(entries: &[(&str, i64)], weight: f64, latency: u32, compensation: f64) -> (RouteMap, MapState) {
        let criteria = [(Measure::SuccessPercent, Criterion { weight, latency, compensation })].into();
        let map = RouteMap { rule: Some(Rule { id: "r".into(), criteria }), ..map("m", entries) };
        let state = MapState::new(&map, RouteTable::of(std::slice::from_ref(&map)).maps()[0].clone());
        (map, state)
    }

    fn end(good: bool) -> Sample {
        let at = Timestamp::from_secs(1);
        let (outcome, duration_ms) =
            if good { (Outcome::Answered, Some(60_000)) } else { (Outcome::VendorFailed, Some(0)) };
        Sample {
            epoch: Epoch(0),
            placed_at: at,
            ended_at: at,
            outcome,
            duration_ms,
            pdd_ms: None,
            cause: None,
            sip_status: None,
        }
    }

    fn usual(_: &Route) -> RouteNow {
        RouteNow::default()
    }

    fn first(state: &MapState) -> String {
        state.hunt_order(usual).order[0].to_string()
    }

    /// `a` is worse by 60 points of success, which is 12 of priority and puts `b` before it. Its compensation of 5 a call
    /// closes the gap to 50 points, which is what the 10 between the static priorities are worth, after 2 calls.
    #[test]
    fn a_bypassed_better_route_is_tried_again_within_the_bound_of_its_compensation() {
        let (_, mut state) = ruled(&[("a", 10), ("b", 20)], 20.0, 1, 5.0);
        state.ended(0, &end(false));
        state.values[0].get_mut(&Measure::SuccessPercent).unwrap().estimate = Some(40.0);
        state.ended(1, &end(true));
        let mut bypasses = 0;
        while first(&state) == "b" {
            state.placed(1, &[], usual);
            state.ended(1, &end(true));
            bypasses += 1;
            assert!(bypasses <= 10);
        }
        assert_eq!((bypasses, first(&state)), (2, "a".to_owned()));
        state.placed(0, &[], usual);
        assert_eq!(state.values[0][&Measure::SuccessPercent].compensation, 10.0);
        state.ended(0, &end(false));
        assert_eq!(state.values[0][&Measure::SuccessPercent].compensation, 0.0);
    }

    #[test]
    fn what_was_tried_before_or_is_lowered_is_not_bypassed() {
        let (_, mut state) = ruled(&[("a", 10), ("b", 20)], 20.0, 1, 5.0);
        state.ended(0, &end(false));
        state.ended(1, &end(true));
        assert_eq!(first(&state), "b");
        let k = |state: &MapState| state.values[0][&Measure::SuccessPercent].compensation;
        state.placed(1, &[ConnectionId::new("a").unwrap()], usual);
        for standing in [Standing::Last, Standing::Blocked] {
            let now = |route: &Route| RouteNow {
                standing: if route.connection.as_str() == "a" { standing } else { Standing::Usual },
                merit: None,
            };
            state.placed(1, &[], now);
        }
        assert_eq!(k(&state), 0.0);
        state.placed(1, &[], usual);
        assert_eq!(k(&state), 5.0);
        // A call on the better route bypasses nothing.
        state.placed(0, &[], usual);
        assert_eq!(k(&state), 5.0);
    }

    #[test]
    fn routes_of_one_static_priority_bypass_nobody() {
        let (_, mut state) = ruled(&[("a", 10), ("b", 10)], 20.0, 1, 5.0);
        state.ended(0, &end(false));
        state.ended(1, &end(true));
        state.placed(1, &[], usual);
        assert_eq!(state.values[0][&Measure::SuccessPercent].compensation, 0.0);
    }

    #[test]
    fn values_of_other_maps_are_not_taken_up() {
        let (map, mut state) = ruled(&[("a", 10), ("b", 20)], 20.0, 1, 5.0);
        state.ended(0, &end(true));
        let before = fingerprint(std::slice::from_ref(&map));
        let kept = state.keep(before).unwrap();
        let fresh = || MapState::new(&map, state.static_order().clone());
        let mut same = fresh();
        assert!(same.restore(kept.clone(), before));
        assert_eq!(same, state);
        let mut changed = map.clone();
        changed.entries[1].priority = 21;
        let after = fingerprint(&[changed]);
        let mut other = fresh();
        assert!(!other.restore(kept, after));
        assert_eq!(other, fresh());
    }
}
