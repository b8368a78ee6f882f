//! Another configuration in place of the one in force, while calls are up.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Engine, Leg, places, trunks_on};
use crate::config::model::Config;
use crate::engine::effect::Effect;
use crate::engine::request::Refused;
use crate::ids::{MapId, QualityKey};
use crate::quality::book::Seat;
use crate::store::StoreOp;
use crate::time::Timestamp;

impl Engine {
    /// Takes another configuration with the same nodes. What it does not change goes on: states, windows, calls that are up,
    /// operators' words. What the rules learnt of routes begins anew.
    pub(super) fn reconfigure(&mut self, config: Arc<Config>, now: Timestamp) -> Result<(), Refused> {
        if !config.nodes.iter().map(|node| &node.id).eq(self.config.nodes.iter().map(|node| &node.id)) {
            return Err(Refused::Illegal("other nodes take a restart".to_owned()));
        }
        let before = std::mem::replace(&mut self.config, config);
        self.places = places(&self.config);
        let seated = self.book.iter().filter_map(|(key, _)| Some((self.book.seat(key)?, key.clone())));
        let keys: HashMap<Seat, QualityKey> = seated.collect();
        let configured = self.book.configure(self.config.judged(), now);
        self.calls.clear();
        self.shelf.extend(configured.gone);
        let mut changes = configured.changes;
        for key in self.config.judged().into_iter().map(|(key, _)| key) {
            if let Some(saved) = self.shelf.remove(&key) {
                changes.extend(self.book.restore(&key, saved, now).map(|change| (key, change)));
            }
        }
        let maps: Vec<MapId> = before.route_maps.iter().map(|map| map.id.clone()).collect();
        self.effects.extend(self.routes.forget().map(Effect::Store));
        self.routes = self.routes.replaced_by(&self.config);
        self.routes.learn_all();
        let unmapped: HashMap<_, _> = before.connections.iter().map(|one| &one.id).zip(&self.unmapped).collect();
        let unmapped = self.config.connections.iter().map(|one| unmapped.get(&one.id).map_or(0, |attempts| **attempts));
        self.unmapped = unmapped.collect();
        self.reseat_legs(&before, &keys, &maps);
        self.spread_pins();
        for (key, change) in changes {
            if let Some(seat) = self.book.seat(&key) {
                self.record(seat, &change);
            }
        }
        self.book.take_moved();
        self.order_anew(now);
        self.reorder(now);
        Ok(())
    }

    /// Gives the legs that are up their places in a new configuration: `keys` is where they were judged, `maps` the names of
    /// the maps that they belonged to.
    fn reseat_legs(&mut self, before: &Config, keys: &HashMap<Seat, QualityKey>, maps: &[MapId]) {
        for node in 0..self.nodes.len() {
            self.nodes[node].trunks = trunks_on(&self.config, &self.config.nodes[node]);
            let (trunks, unknown) = (&self.nodes[node].trunks, &self.nodes[node].unknown);
            let still = unknown.iter().filter(|(trunk, _)| !trunks.contains_key(&***trunk));
            self.nodes[node].unknown = still.map(|(trunk, attempts)| (trunk.clone(), *attempts)).collect();
            self.nodes[node].unknown_maps.clear();
            for (id, leg) in std::mem::take(&mut self.nodes[node].legs) {
                if let Some(leg) = self.reseated(leg, before, keys, maps) {
                    self.nodes[node].legs.insert(id, leg);
                }
            }
        }
    }

    /// A leg in the new configuration; `None` where its connection is not there any more. It stays with the map that it was
    /// placed for, whatever that serves by now.
    fn reseated(&mut self, leg: Leg, before: &Config, keys: &HashMap<Seat, QualityKey>, maps: &[MapId]) -> Option<Leg> {
        let name = &before.connections[leg.connection].id;
        let Some(&connection) = self.places.get(name) else {
            self.effects.push(Effect::Store(StoreOp::LegGone(leg.row.node, leg.row.leg)));
            return None;
        };
        let map = leg.map.and_then(|map| self.routes.named(&maps[map]));
        let seat = self.seat(connection, map);
        let key_before = leg.seat.and_then(|seat| keys.get(&seat));
        let epoch = match seat {
            Some(seat) if key_before != Some(self.book.key(seat)) => self.book.adopted(seat, leg.row.placed_at),
            _ => leg.epoch,
        };
        let leg = Leg { connection, map, seat, epoch, ..leg };
        Some(self.stored_anew(leg))
    }

    /// After a crash a leg must be found where it is now: its row tells what its node calls the connection by now, its epoch
    /// there, and its map by name where its number would lead to another one.
    fn stored_anew(&mut self, mut leg: Leg) -> Leg {
        let before = (leg.row.trunk.clone(), leg.row.epoch, leg.row.map.clone());
        leg.row.trunk = self.config.connections[leg.connection].name_on(&leg.row.node).into();
        leg.row.epoch = leg.seat.map(|_| leg.epoch);
        let found = self.routes.of_call(leg.row.map.as_deref(), leg.row.number.as_deref());
        if let Some(map) = leg.map.filter(|map| found != Some(*map)) {
            leg.row.map = Some(self.routes.name(map).as_str().into());
        }
        if before != (leg.row.trunk.clone(), leg.row.epoch, leg.row.map.clone()) && !leg.adopted {
            self.effects.push(Effect::Store(StoreOp::LegUp(Box::new(leg.row.clone()))));
        }
        leg
    }

    /// What was said of a connection as a whole holds in each of its maps, where it is judged per map from now on.
    pub(super) fn spread_pins(&mut self) {
        let of_whole = self.pins.keys().filter(|key| key.map.is_none() && self.book.seat(key).is_none());
        for whole in of_whole.cloned().collect::<Vec<_>>() {
            let judged = self.book.iter().map(|(key, _)| key).filter(|key| key.connection == whole.connection);
            let judged: Vec<QualityKey> = judged.cloned().collect();
            // Of a connection that is not configured it is kept for the day when it is again.
            let Some(pinned) = self.pins.get(&whole).cloned().filter(|_| !judged.is_empty()) else { continue };
            for key in judged.iter().filter(|key| !self.pins.contains_key(*key)).cloned().collect::<Vec<_>>() {
                self.set_pin(&key, Some(pinned.clone()));
            }
            self.set_pin(&whole, None);
        }
    }
}
