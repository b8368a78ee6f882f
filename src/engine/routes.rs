//! The engine's route maps: which map a call belongs to, what its attempts teach, and the hunt orders that come of it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::config::model::Config;
use crate::engine::view::MapView;
use crate::ids::{ConnectionId, LegId, MapId};
use crate::quality::window::Sample;
use crate::routing::dynamic::{self, Learnt, MapState};
use crate::routing::matching::Prefixes;
use crate::routing::{HuntOrder, Route, RouteNow, WhenAllBlocked};
use crate::store::StoreOp;
use crate::time::Timestamp;

/// How long after its last attempt a hunt is remembered: longer than any vendor is waited for.
const HUNT_KEPT: Duration = Duration::from_secs(600);

/// Most hunts that are remembered; of further ones the oldest is forgotten, and may then bypass what it has tried.
const HUNTS_KEPT: usize = 50_000;

/// The route maps of a configuration, with everything that is known of them.
#[derive(Debug)]
pub(super) struct Routes {
    maps: Vec<MapState>,
    prefixes: Prefixes,
    fingerprint: u64,
    /// The maps that hold a connection.
    holders: HashMap<ConnectionId, Vec<usize>>,
    orders: Vec<HuntOrder>,
    hunts: Hunts,
    /// Maps whose values changed since [`Routes::take_changed`].
    learnt: BTreeSet<usize>,
    /// Maps that keep the least bad of their connections, all of which are blocked, where figures changed since
    /// [`Routes::take_changed`]: by now it may be another one.
    keeping: BTreeSet<usize>,
    /// What the picture shows of a map, where nothing of that has changed since.
    pictures: Vec<Option<Arc<MapView>>>,
}

impl Routes {
    /// With nothing learnt.
    pub(super) fn new(config: &Config) -> Self {
        let maps = dynamic::maps(config);
        let mut holders: HashMap<ConnectionId, Vec<usize>> = HashMap::new();
        for (index, map) in maps.iter().enumerate() {
            for route in &map.static_order().routes {
                holders.entry(route.connection.clone()).or_default().push(index);
            }
        }
        Self {
            prefixes: Prefixes::new(config.route_maps.iter().map(|map| (&map.id, &*map.prefixes))),
            fingerprint: dynamic::fingerprint(&config.route_maps),
            holders,
            orders: Vec::new(),
            hunts: Hunts::default(),
            learnt: BTreeSet::new(),
            keeping: BTreeSet::new(),
            pictures: vec![None; maps.len()],
            maps,
        }
    }

    /// Those of another configuration, with nothing learnt. The calls that are hunting go on: what they tried, they tried.
    pub(super) fn replaced_by(&mut self, config: &Config) -> Self {
        let mut routes = Self::new(config);
        let mut hunts = std::mem::take(&mut self.hunts);
        hunts.renumber(|map| routes.named(self.name(map)));
        routes.hunts = hunts;
        routes
    }

    /// Takes up what was learnt before the program ended; gives what of it is to be stored anew or no more.
    pub(super) fn restore(&mut self, kept: Vec<(MapId, Learnt)>) -> Vec<StoreOp> {
        let mut ops = Vec::new();
        for (name, kept) in kept {
            let map = self.prefixes.named(name.as_str());
            if !map.is_some_and(|map| self.maps[map].restore(kept, self.fingerprint)) {
                ops.push(StoreOp::Learnt(name, None));
            }
        }
        ops
    }

    /// What must be stored no more because other maps take the place of these.
    pub(super) fn forget(&self) -> impl Iterator<Item = StoreOp> {
        let ruled = self.maps.iter().filter(|map| map.rule().is_some());
        ruled.map(|map| StoreOp::Learnt(map.static_order().map.clone(), None))
    }

    /// The maps, in the order written.
    pub(super) fn maps(&self) -> &[MapState] {
        &self.maps
    }

    /// The name of a map.
    pub(super) fn name(&self, map: usize) -> &MapId {
        &self.maps[map].static_order().map
    }

    /// The map of a call: its dialplan's word goes before the number dialled.
    pub(super) fn of_call(&self, word: Option<&str>, number: Option<&str>) -> Option<usize> {
        self.prefixes.of_call(word, number)
    }

    /// Whether a map has that name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.prefixes.named(name).is_some()
    }

    /// The index of a map.
    pub(super) fn named(&self, map: &MapId) -> Option<usize> {
        self.prefixes.named(map.as_str())
    }

    /// The maps that hold a connection.
    pub(super) fn holding(&self, connection: &ConnectionId) -> impl Iterator<Item = &MapId> {
        self.holders.get(connection).into_iter().flatten().map(|&map| self.name(map))
    }

    /// The hunt orders, in the order of the maps.
    pub(super) fn orders(&self) -> &[HuntOrder] {
        &self.orders
    }

    /// A call of `map` was placed on a connection. `caller` is where the call comes from.
    pub(super) fn placed(
        &mut self,
        map: usize,
        connection: &ConnectionId,
        caller: Option<(usize, LegId)>,
        at: Timestamp,
        now: impl Fn(&Route) -> RouteNow,
    ) {
        let state = &mut self.maps[map];
        if state.rule().is_none() {
            return;
        }
        let Some(route) = state.static_order().place_of(connection) else { return };
        let tried = caller.map(|caller| self.hunts.tries(caller, map, connection, at)).unwrap_or_default();
        state.placed(route, &tried, now);
        self.learnt.insert(map);
    }

    /// An attempt of `map` on a connection ended.
    pub(super) fn ended(
        &mut self,
        map: usize,
        connection: &ConnectionId,
        caller: Option<&(usize, LegId)>,
        attempt: &Sample,
    ) {
        let state = &mut self.maps[map];
        if state.rule().is_none() {
            return;
        }
        if let Some(caller) = caller.filter(|_| attempt.is_success()) {
            self.hunts.over(caller);
        }
        if let Some(route) = state.static_order().place_of(connection) {
            state.ended(route, attempt);
            self.learnt.insert(map);
        }
    }

    /// The maps whose order may have changed since the last call although no connection's state or standing has, with what
    /// is to be stored of them.
    pub(super) fn take_changed(&mut self) -> (BTreeSet<usize>, Vec<StoreOp>) {
        let mut learnt = std::mem::take(&mut self.learnt);
        let ops = learnt.iter().map(|&map| {
            self.pictures[map] = None;
            StoreOp::Learnt(self.name(map).clone(), self.maps[map].keep(self.fingerprint).map(Box::new))
        });
        let ops = ops.collect();
        learnt.append(&mut self.keeping);
        (learnt, ops)
    }

    /// What is to be stored of every map that has a rule.
    pub(super) fn learn_all(&mut self) {
        self.learnt.extend((0..self.maps.len()).filter(|&map| self.maps[map].rule().is_some()));
    }

    /// Makes the hunt orders of some maps anew: those of them that changed.
    pub(super) fn reorder(
        &mut self,
        maps: impl IntoIterator<Item = usize>,
        now: impl Fn(&MapId, &Route) -> RouteNow,
    ) -> Vec<usize> {
        let mut changed = Vec::new();
        for map in maps {
            let order = self.maps[map].hunt_order(|route| now(self.name(map), route));
            self.pictures[map] = None;
            // Of those that are left out no dialplan knows the order.
            if self.orders[map].order != order.order {
                changed.push(map);
            }
            self.orders[map] = order;
        }
        changed
    }

    /// Makes all hunt orders anew.
    pub(super) fn reorder_all(&mut self, now: impl Fn(&MapId, &Route) -> RouteNow) {
        let orders = (0..self.maps.len()).map(|map| self.maps[map].hunt_order(|route| now(self.name(map), route)));
        self.orders = orders.collect();
        self.pictures.fill(None);
    }

    /// Something that the pictures show of a connection has changed; its figures, too, may have.
    pub(super) fn touch(&mut self, connection: &ConnectionId) {
        for &map in self.holders.get(connection).into_iter().flatten() {
            self.pictures[map] = None;
            let is_panic = self.orders.get(map).is_some_and(|order| order.panic);
            if is_panic && self.maps[map].when_all_blocked() == WhenAllBlocked::LeastBad {
                self.keeping.insert(map);
            }
        }
    }

    /// The picture of a map, where it need not be made anew.
    pub(super) fn picture(&self, map: usize) -> Option<Arc<MapView>> {
        self.pictures[map].clone()
    }

    /// Keeps a picture for as long as nothing changes.
    pub(super) fn keep_picture(&mut self, map: usize, picture: &Arc<MapView>) {
        self.pictures[map] = Some(picture.clone());
    }
}

/// The calls that are hunting, by the node and the leg that they come from.
#[derive(Debug, Default)]
struct Hunts {
    hunts: HashMap<(usize, LegId), Hunt>,
    /// When each was last heard of, oldest first; an entry whose time is not that of its hunt is out of date.
    ages: VecDeque<(Timestamp, (usize, LegId))>,
}

#[derive(Debug)]
struct Hunt {
    map: usize,
    tried: Vec<ConnectionId>,
    at: Timestamp,
}

impl Hunts {
    /// A call tries a connection: those that it tried before.
    fn tries(
        &mut self,
        caller: (usize, LegId),
        map: usize,
        connection: &ConnectionId,
        at: Timestamp,
    ) -> Vec<ConnectionId> {
        self.forget_old(at);
        let hunt = self.hunts.entry(caller.clone()).or_insert_with(|| Hunt { map, tried: Vec::new(), at });
        if hunt.map != map {
            (hunt.map, hunt.tried) = (map, Vec::new());
        }
        hunt.at = at;
        self.ages.push_back((at, caller));
        let before = hunt.tried.clone();
        if !before.contains(connection) {
            hunt.tried.push(connection.clone());
        }
        before
    }

    /// Maps have other numbers now; hunts of those that have none are forgotten.
    fn renumber(&mut self, number: impl Fn(usize) -> Option<usize>) {
        self.hunts.retain(|_, hunt| match number(hunt.map) {
            Some(map) => {
                hunt.map = map;
                true
            }
            None => false,
        });
    }

    /// The call got through: what the same leg dials next is another call.
    fn over(&mut self, caller: &(usize, LegId)) {
        self.hunts.remove(caller);
    }

    fn forget_old(&mut self, now: Timestamp) {
        while let Some((at, caller)) = self.ages.front()
            && (now.since(*at) > HUNT_KEPT || self.ages.len() > HUNTS_KEPT)
        {
            if self.hunts.get(caller).is_some_and(|hunt| hunt.at == *at) {
                self.hunts.remove(caller);
            }
            self.ages.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ConnectionId {
        ConnectionId::new(name).unwrap()
    }

    fn caller(name: &str) -> (usize, LegId) {
        (0, LegId::new(name))
    }

    #[test]
    fn a_hunt_remembers_what_it_tried_until_it_got_through_or_is_old() {
        let (mut hunts, at) = (Hunts::default(), Timestamp::from_secs);
        assert_eq!(hunts.tries(caller("x"), 0, &id("a"), at(0)), []);
        assert_eq!(hunts.tries(caller("x"), 0, &id("b"), at(1)), [id("a")]);
        assert_eq!(hunts.tries(caller("y"), 0, &id("b"), at(1)), []);
        assert_eq!(hunts.tries(caller("x"), 0, &id("c"), at(2)), [id("a"), id("b")]);
        assert_eq!(hunts.tries(caller("x"), 1, &id("c"), at(2)), []);
        hunts.over(&caller("x"));
        assert_eq!(hunts.tries(caller("x"), 0, &id("a"), at(3)), []);
        assert_eq!(hunts.tries(caller("y"), 0, &id("a"), at(601)), [id("b")]);
        assert_eq!(hunts.tries(caller("x"), 0, &id("a"), at(1400)), []);
        assert_eq!((hunts.hunts.len(), hunts.ages.len()), (1, 1));
    }

    #[test]
    fn a_hunt_goes_on_in_its_map_when_maps_get_other_numbers_and_ends_with_its_map() {
        let (mut hunts, at) = (Hunts::default(), Timestamp::from_secs);
        hunts.tries(caller("x"), 0, &id("a"), at(0));
        hunts.tries(caller("y"), 1, &id("a"), at(0));
        hunts.renumber(|map| (map == 0).then_some(1));
        assert_eq!(hunts.tries(caller("x"), 1, &id("b"), at(1)), [id("a")]);
        assert_eq!(hunts.tries(caller("y"), 1, &id("b"), at(1)), []);
    }
}
