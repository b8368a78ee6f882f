//! The engine without its driver: what happened goes in, what is to be done comes out.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::balance::Candidate;
use crate::call::attempt::{CallEvent, Finished, Placed, TrunkName};
use crate::call::tracker::{LiveLeg, Tracker};
use crate::config::model::{Config, Connection, Node, Scoring};
use crate::dialplan::desired::{self, Desired, StateVariable};
use crate::dialplan::names;
use crate::engine::effect::Effect;
use crate::engine::explain;
use crate::engine::health::Health;
use crate::engine::request::{By, NewConfig, Refused, Request};
use crate::engine::routes::Routes;
use crate::engine::view::{
    Calls, ChangeView, ConnectionView, LinkView, MapView, NodeView, UnknownTrunk, VariablesView, View,
};
use crate::engine::words;
use crate::ids::{ConnectionId, LegId, MapId, NodeId, QualityKey};
use crate::notify::kept::Kept;
use crate::notify::notice::{FAILED_CALLS, FailedCall, Notice};
use crate::pbx::event::PbxEvent;
use crate::quality::book::{Book, Seat};
use crate::quality::machine::{Change, Machine, Reason, Saved, State};
use crate::quality::pin::{self, Pin, Pinned};
use crate::quality::settings::{BadQualityAction, Settings};
use crate::quality::window::{Epoch, Sample};
use crate::score::{Admin, Load, Source};
use crate::store::{AdminRow, ChangeRow, LegRow, POINTSMAN, Restored, StoreOp, Tally, Whose};
use crate::time::Timestamp;

/// How many changes the picture shows.
const CHANGES_SHOWN: usize = 100;

/// How often dialplans are told of the best node's score, while it is the same node: each is a write to every PBX.
const BEST_SCORE_EVERY: Duration = Duration::from_secs(5);

/// How often they are told of another best node, while the one told before takes calls: two nodes of nearly equal scores
/// change places with every call.
const BEST_NODE_EVERY: Duration = Duration::from_secs(1);

/// Most trunks without configuration that are remembered per node: a dialplan that makes up names must not grow us.
const UNKNOWN_TRUNKS_KEPT: usize = 100;

/// All state of the program.
#[derive(Debug)]
pub struct Engine {
    config: Arc<Config>,
    /// Where each connection is in the configuration.
    places: HashMap<ConnectionId, usize>,
    routes: Routes,
    nodes: Vec<NodeState>,
    book: Book,
    /// How what is not configured any more stood, for the day when it is again.
    shelf: HashMap<QualityKey, Saved>,
    generation: u64,
    changes: VecDeque<Arc<ChangeView>>,
    /// The last failed calls, newest first, at most [`FAILED_CALLS`] of each.
    failed: HashMap<QualityKey, VecDeque<FailedCall>>,
    /// What operators said of connections.
    pins: HashMap<QualityKey, Pinned>,
    /// Attempts that belonged to no map of their connection, where that is judged per map; by its index.
    unmapped: Vec<u64>,
    best_shown: BestShown,
    /// What the picture shows of the calls of connections, where that has not changed since.
    calls: HashMap<Seat, Arc<Calls>>,
    effects: Vec<Effect>,
}

/// What the variables say of the best node.
#[derive(Debug, Default)]
struct BestShown {
    node: Option<NodeId>,
    fallback_active: bool,
    variables: Vec<StateVariable>,
    /// When that was told.
    at: Timestamp,
}

/// What is known of a node.
#[derive(Debug)]
struct NodeState {
    tracker: Tracker,
    incarnation: Option<Arc<str>>,
    /// What the node calls its connections: their index in the configuration.
    trunks: HashMap<String, usize>,
    /// The legs to configured connections that are up.
    legs: HashMap<LegId, Leg>,
    /// Attempts on trunks that are not configured.
    unknown: BTreeMap<TrunkName, u64>,
    /// Names of maps that its dialplans give and that are not configured.
    unknown_maps: HashSet<Arc<str>>,
    desired: Arc<Desired>,
    most_active: usize,
    health: Health,
}

/// A leg to a configured connection.
#[derive(Debug)]
struct Leg {
    /// Index of the connection.
    connection: usize,
    /// Index of the map that it belongs to.
    map: Option<usize>,
    /// Where it is judged; `None` where that is per map and it belongs to none of them.
    seat: Option<Seat>,
    epoch: Epoch,
    /// Where the call comes from; all legs of a hunt have the same.
    caller: Option<LegId>,
    row: LegRow,
    /// Whether it was up before it could be seen.
    adopted: bool,
}

impl Engine {
    /// The engine as it was when it stopped, under the configuration of today.
    #[must_use]
    pub fn new(config: Arc<Config>, restored: Restored, now: Timestamp) -> Self {
        let changes = restored.changes.into_iter().take(CHANGES_SHOWN);
        let mut engine = Self {
            routes: Routes::new(&config),
            book: Book::new(config.judged(), now),
            shelf: HashMap::new(),
            nodes: Vec::new(),
            unmapped: vec![0; config.connections.len()],
            generation: restored.generation,
            changes: changes.map(|row| Arc::new(ChangeView::from(row))).collect(),
            failed: HashMap::new(),
            pins: restored.pins.into_iter().collect(),
            best_shown: BestShown::default(),
            calls: HashMap::new(),
            effects: Vec::new(),
            places: places(&config),
            config,
        };
        engine.nodes = (0..engine.config.nodes.len()).map(|node| engine.node_state(node, now)).collect();
        for (node, row) in restored.admins {
            if let Some(index) = engine.config.nodes.iter().position(|known| known.id == node) {
                engine.nodes[index].health.set_admin(row.admin);
            }
        }
        for (key, call) in restored.failed {
            engine.failed.entry(key).or_default().push_back(call);
        }
        for (key, saved) in restored.machines {
            engine.restore_machine(key, saved, now);
        }
        let learnt = engine.routes.restore(restored.learnt);
        engine.effects.extend(learnt.into_iter().map(Effect::Store));
        for row in restored.legs {
            engine.restore_leg(row);
        }
        engine.spread_pins();
        // The time of a pin may have ended while nobody was there to end it.
        engine.end_pins(now);
        engine.order_anew(now);
        engine
    }

    /// How something stood when the program ended, or when it was last configured.
    fn restore_machine(&mut self, key: QualityKey, saved: Saved, now: Timestamp) {
        let Some(seat) = self.book.seat(&key) else {
            self.shelf.insert(key, saved);
            return;
        };
        if let Some(change) = self.book.restore(&key, saved, now) {
            self.record(seat, &change);
        }
    }

    fn node_state(&self, node: usize, now: Timestamp) -> NodeState {
        let node = &self.config.nodes[node];
        NodeState {
            tracker: Tracker::new(node.kind),
            incarnation: None,
            trunks: trunks_on(&self.config, node),
            legs: HashMap::new(),
            unknown: BTreeMap::new(),
            unknown_maps: HashSet::new(),
            desired: Arc::new(Desired::default()),
            most_active: 0,
            health: Health::new(&self.config.scoring, self.config.breaker, now),
        }
    }

    /// A leg that was up when the program ended. Whether it still is shows in the first list that its node gives.
    fn restore_leg(&mut self, row: LegRow) {
        let known = self.config.nodes.iter().position(|node| node.id == row.node);
        let connection = known.and_then(|node| self.nodes[node].trunks.get(&*row.trunk).copied());
        let (Some(node), Some(connection)) = (known, connection) else {
            self.effects.push(Effect::Store(StoreOp::LegGone(row.node, row.leg)));
            return;
        };
        let map = self.routes.of_call(row.map.as_deref(), row.number.as_deref());
        let seat = self.seat(connection, map);
        let epoch = match (row.epoch, seat) {
            (Some(epoch), _) => epoch,
            (None, Some(seat)) => self.book.machine(seat).epoch_at(row.placed_at),
            (None, None) => Epoch::default(),
        };
        if let Some(seat) = seat {
            self.book.resumed(seat, epoch);
        }
        let state = &mut self.nodes[node];
        state.tracker.restore(LiveLeg {
            leg: row.leg.clone(),
            trunk: row.trunk.clone(),
            number: row.number.clone(),
            map: row.map.clone(),
            placed_at: row.placed_at,
            ringing_at: row.ringing_at,
            answered_at: row.answered_at,
            adopted: false,
        });
        let leg = Leg { connection, map, seat, epoch, caller: None, row, adopted: false };
        state.legs.insert(leg.row.leg.clone(), leg);
    }

    /// Where the calls of a connection that belong to `map` are judged; `None` where that is per map and no map that holds
    /// it is theirs.
    fn seat(&self, connection: usize, map: Option<usize>) -> Option<Seat> {
        let connection = &self.config.connections[connection].id;
        let pair = map.and_then(|map| self.book.seat(&explain::pair(connection, self.routes.name(map))));
        pair.or_else(|| self.book.seat(&QualityKey::connection(connection.clone())))
    }

    /// What is to be done since this was last asked.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// A node told us something, at `now`.
    pub fn apply(&mut self, node: usize, event: &PbxEvent, now: Timestamp) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        if let PbxEvent::Incarnation(id) = event
            && state.incarnation.replace(id.clone()).is_some_and(|before| before != *id)
        {
            self.effects.push(Effect::Restarted { node });
        }
        state.health.hear(event, now);
        let output = state.tracker.apply(event, now);
        self.effects.extend(output.describe.into_iter().map(|leg| Effect::Describe { node, leg }));
        for event in output.events {
            self.call_event(node, event, now);
        }
        self.reorder(now);
        self.count_active(node, now);
    }

    /// Fires every timer that is due.
    pub fn fire(&mut self, now: Timestamp) {
        for (seat, change) in self.book.fire_due(now) {
            self.record(seat, &change);
        }
        self.end_pins(now);
        self.reorder(now);
    }

    /// When [`Engine::fire`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let pins = self.pins.values().filter_map(|pinned| pinned.until);
        self.book.next_deadline().into_iter().chain(pins).min()
    }

    /// Does what an operator or an agent asks.
    ///
    /// # Errors
    /// See [`Refused`]; nothing is changed then.
    pub fn request(&mut self, request: Request, now: Timestamp) -> Result<(), Refused> {
        match request {
            Request::SetAdmin { node, admin, by } => self.set_admin(node, admin, by, now),
            Request::PushLoad { node, load } => {
                let index = self.node_index(&node)?;
                self.nodes[index].health.load(&load, Source::Pushed, now);
                Ok(())
            }
            Request::Pin { key, pin, until, by } => self.pin(&key, pin, until, by, now),
            Request::Reset { key, by } => self.reset(&key, &by, now),
            Request::Configure(NewConfig(config)) => self.reconfigure(config, now),
        }
    }

    /// Takes another configuration with the same nodes. What it does not change goes on: states, windows, calls that are up,
    /// operators' words. What the rules learnt of routes begins anew.
    fn reconfigure(&mut self, config: Arc<Config>, now: Timestamp) -> Result<(), Refused> {
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

    /// The load of this machine, which some nodes run on.
    pub fn local_load(&mut self, load: &Load, now: Timestamp) {
        for (node, state) in self.config.nodes.iter().zip(&mut self.nodes) {
            if node.local {
                state.health.load(load, Source::Local, now);
            }
        }
    }

    fn node_index(&self, node: &NodeId) -> Result<usize, Refused> {
        let index = self.config.nodes.iter().position(|known| known.id == *node);
        index.ok_or_else(|| Refused::NoSuchNode(node.clone()))
    }

    /// The place of what an operator names.
    fn named(&self, key: &QualityKey) -> Result<Seat, Refused> {
        self.book.seat(key).ok_or_else(|| {
            let judged = self.book.iter().filter(|(known, _)| known.connection == key.connection);
            let maps: Vec<Option<&str>> = judged.map(|(known, _)| known.map.as_ref().map(MapId::as_str)).collect();
            match maps.as_slice() {
                [] => Refused::NoSuchConnection(key.clone()),
                [None, ..] => Refused::Illegal(format!("{} is judged over all maps: name none", key.connection)),
                maps => Refused::Illegal(format!(
                    "{} is judged per map: name one of {}",
                    key.connection,
                    maps.iter().flatten().copied().collect::<Vec<_>>().join(", ")
                )),
            }
        })
    }

    fn set_admin(&mut self, node: NodeId, admin: Admin, by: By, now: Timestamp) -> Result<(), Refused> {
        let index = self.node_index(&node)?;
        self.nodes[index].health.set_admin(admin);
        let row = AdminRow { admin, who: by.who, why: by.why, since: now };
        self.effects.push(Effect::NodeSet { node: index, row: row.clone() });
        self.effects.push(Effect::Store(StoreOp::Admin(node, row)));
        Ok(())
    }

    fn pin(
        &mut self,
        key: &QualityKey,
        pin: Option<Pin>,
        until: Option<Timestamp>,
        by: By,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let seat = self.named(key)?;
        if until.is_some_and(|until| until <= now) {
            return Err(Refused::Illegal("a pin cannot end before it begins".to_owned()));
        }
        if until.is_some_and(|until| until.since(now) > pin::LONGEST) {
            return Err(Refused::Illegal(
                "a pin lasts ten years at most; without an end, until told otherwise".to_owned(),
            ));
        }
        let words = match pin {
            Some(pin) => words::pinned(pin, until, &by.why),
            None if self.pins.contains_key(key) => words::unpinned(&by.why),
            None => return Ok(()),
        };
        let pinned = pin.map(|pin| Pinned { pin, who: by.who.clone(), why: by.why, since: now, until });
        self.set_pin(key, pinned);
        self.tell_operators_word(seat, words, by.who, now);
        self.order_anew(now);
        Ok(())
    }

    fn reset(&mut self, key: &QualityKey, by: &By, now: Timestamp) -> Result<(), Refused> {
        let seat = self.named(key)?;
        if self.pins.contains_key(key) {
            self.set_pin(key, None);
        }
        let change = self.book.reset(seat, now);
        self.record_by(seat, &change, by);
        self.order_anew(now);
        Ok(())
    }

    fn set_pin(&mut self, key: &QualityKey, pinned: Option<Pinned>) {
        match pinned.clone() {
            Some(pinned) => drop(self.pins.insert(key.clone(), pinned)),
            None => drop(self.pins.remove(key)),
        }
        self.routes.touch(&key.connection);
        self.effects.push(Effect::Store(StoreOp::Pin(key.clone(), pinned)));
    }

    /// What was said of a connection as a whole holds in each of its maps, where it is judged per map from now on.
    fn spread_pins(&mut self) {
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

    /// Ends the pins whose time is over.
    fn end_pins(&mut self, now: Timestamp) {
        let over = |pinned: &Pinned| pinned.until.is_some_and(|until| until <= now);
        let ended: Vec<QualityKey> =
            self.pins.iter().filter(|(_, pinned)| over(pinned)).map(|(key, _)| key.clone()).collect();
        for key in &ended {
            self.set_pin(key, None);
            if let Some(seat) = self.book.seat(key) {
                self.tell_operators_word(seat, words::pin_over(), POINTSMAN.into(), now);
            }
        }
        if !ended.is_empty() {
            self.order_anew(now);
        }
    }

    /// Keeps and tells what an operator said of a connection; its state is what it was.
    fn tell_operators_word(&mut self, seat: Seat, words: String, who: Arc<str>, now: Timestamp) {
        let machine = self.book.machine(seat);
        let (state, epoch) = (machine.state(), machine.epoch());
        let change =
            Change { at: now, from: state, to: state, reason: Reason::Operator, epoch, figures: machine.figures() };
        self.publish(self.book.key(seat).clone(), &change, words.into(), who);
    }

    fn call_event(&mut self, node: usize, event: CallEvent, now: Timestamp) {
        match event {
            CallEvent::Placed(placed) => {
                // A call that was found on the way was placed some other time, and answers no question of now.
                if !placed.adopted {
                    self.nodes[node].health.placed(now);
                    self.effects.push(Effect::Placed { node });
                }
                self.placed(node, placed, now);
            }
            CallEvent::Ringing { leg, at } => self.more_known(node, &leg, |row| row.ringing_at = Some(at)),
            CallEvent::Answered { leg, at } => self.more_known(node, &leg, |row| row.answered_at = Some(at)),
            CallEvent::Finished(finished) => self.finished(node, &finished, now),
            CallEvent::Forgotten(leg) => {
                if let Some(Leg { seat: Some(seat), epoch, .. }) = self.leg_gone(node, &leg) {
                    self.book.forgotten(seat, epoch);
                }
            }
        }
    }

    fn placed(&mut self, node: usize, placed: Placed, now: Timestamp) {
        let Some(connection) = self.nodes[node].trunks.get(&*placed.trunk).copied() else {
            self.unknown_trunk(node, placed.trunk);
            return;
        };
        let map = self.routes.of_call(placed.map.as_deref(), placed.number.as_deref());
        self.unknown_map(node, placed.map.as_ref());
        // What the rule learns of this call comes before the call takes its place in a batch: it was placed by the order
        // that stood until now.
        if let Some(map) = map.filter(|_| !placed.adopted) {
            self.teach_placed(node, connection, map, placed.caller.as_ref(), now);
        }
        let seat = self.seat(connection, map);
        let epoch = match seat {
            Some(seat) if placed.adopted => self.book.adopted(seat, placed.at),
            Some(seat) => self.book.placed(seat),
            None => Epoch::default(),
        };
        let row = LegRow {
            node: self.config.nodes[node].id.clone(),
            leg: placed.leg.clone(),
            trunk: placed.trunk,
            map: placed.map,
            number: placed.number,
            placed_at: placed.at,
            ringing_at: None,
            answered_at: None,
            epoch: seat.map(|_| epoch),
        };
        // A leg that was found on the way would be found again after a restart, by the same means.
        if !placed.adopted {
            self.effects.push(Effect::Store(StoreOp::LegUp(Box::new(row.clone()))));
        }
        let leg = Leg { connection, map, seat, epoch, caller: placed.caller, row, adopted: placed.adopted };
        self.nodes[node].legs.insert(placed.leg, leg);
    }

    /// A call was placed: the routes that it went past gain by it.
    fn teach_placed(&mut self, node: usize, connection: usize, map: usize, caller: Option<&LegId>, now: Timestamp) {
        let Self { routes, config, book, pins, .. } = self;
        let (name, caller) = (routes.name(map).clone(), caller.map(|caller| (node, caller.clone())));
        let connection = &config.connections[connection].id;
        routes.placed(map, connection, caller, now, |route| explain::route_now(book, pins, &name, &route.connection));
    }

    /// More is known of a leg that is up; a restart must not forget it.
    fn more_known(&mut self, node: usize, leg: &LegId, learn: impl FnOnce(&mut LegRow)) {
        let Some(leg) = self.nodes[node].legs.get_mut(leg) else { return };
        learn(&mut leg.row);
        if !leg.adopted {
            self.effects.push(Effect::Store(StoreOp::LegUp(Box::new(leg.row.clone()))));
        }
    }

    fn finished(&mut self, node: usize, finished: &Finished, now: Timestamp) {
        let Some(leg) = self.leg_gone(node, &finished.leg) else { return };
        let Leg { seat, epoch, .. } = leg;
        let connection = &self.config.connections[leg.connection];
        let sample = Sample {
            epoch,
            placed_at: finished.placed_at,
            ended_at: finished.ended_at,
            outcome: connection.causes.outcome(&finished.evidence),
            duration_ms: finished.duration_ms,
            pdd_ms: finished.pdd_ms,
            cause: finished.cause,
            sip_status: finished.sip_status,
        };
        let patience = connection.quality.caller_patience();
        self.nodes[node].health.finished(sample.is_effective(patience));
        let tally = Tally::attempt(&sample, patience);
        let on_node = Whose::Node(self.config.nodes[node].id.clone());
        let key = match seat {
            Some(seat) => self.book.key(seat).clone(),
            None => QualityKey::connection(connection.id.clone()),
        };
        for whose in [Whose::Connection(key), on_node] {
            self.effects.push(Effect::Store(StoreOp::Count { at: now, whose, tally }));
        }
        if let Some(map) = leg.map {
            let caller = leg.caller.map(|caller| (node, caller));
            self.routes.ended(map, &connection.id, caller.as_ref(), &sample);
        }
        let Some(seat) = seat else {
            self.unmapped[leg.connection] += 1;
            return;
        };
        if sample.outcome.in_window() && !sample.is_success() {
            self.failed(node, seat, finished, &sample);
        }
        match self.book.finished(seat, &sample, now) {
            Some(change) => self.record(seat, &change),
            None => self.keep(seat),
        }
    }

    /// Remembers a call that failed, for whoever asks why.
    fn failed(&mut self, node: usize, seat: Seat, finished: &Finished, sample: &Sample) {
        let call = FailedCall {
            at: sample.ended_at,
            node: self.config.nodes[node].id.clone(),
            number: finished.number.clone(),
            outcome: sample.outcome,
            cause: sample.cause,
            sip_status: sample.sip_status,
        };
        let key = self.book.key(seat).clone();
        let failed = self.failed.entry(key.clone()).or_default();
        failed.push_front(call.clone());
        failed.truncate(FAILED_CALLS);
        self.effects.push(Effect::Store(StoreOp::Failed(key, Box::new(call))));
    }

    fn leg_gone(&mut self, node: usize, leg: &LegId) -> Option<Leg> {
        let leg = self.nodes[node].legs.remove(leg)?;
        self.effects.push(Effect::Store(StoreOp::LegGone(leg.row.node.clone(), leg.row.leg.clone())));
        Some(leg)
    }

    fn unknown_trunk(&mut self, node: usize, trunk: TrunkName) {
        let unknown = &mut self.nodes[node].unknown;
        if let Some(attempts) = unknown.get_mut(&trunk) {
            *attempts += 1;
        } else if unknown.len() < UNKNOWN_TRUNKS_KEPT {
            unknown.insert(trunk.clone(), 1);
            self.effects.push(Effect::UnknownTrunk { node, trunk });
        }
    }

    /// Says once that a dialplan gives the name of a map that is not configured; the number decides then.
    fn unknown_map(&mut self, node: usize, name: Option<&Arc<str>>) {
        let Some(name) = name.filter(|name| !name.is_empty() && !self.routes.is_named(name)) else { return };
        let unknown = &mut self.nodes[node].unknown_maps;
        if unknown.len() < UNKNOWN_TRUNKS_KEPT && unknown.insert(name.clone()) {
            self.effects.push(Effect::UnknownMap { node, name: name.clone() });
        }
    }

    /// Keeps and tells a change of state.
    fn record(&mut self, seat: Seat, change: &Change) {
        self.record_by(seat, change, &By { who: POINTSMAN.into(), why: "".into() });
    }

    fn record_by(&mut self, seat: Seat, change: &Change, by: &By) {
        let (key, machine) = (self.book.key(seat).clone(), self.book.machine(seat));
        let settings = self.settings_in_force(&key, machine);
        let words = words::change(change, &settings, machine.judged().iter()) + &words::because(&by.why);
        self.notify(&key, change);
        self.publish(key, change, words.into(), by.who.clone());
        self.keep(seat);
    }

    fn publish(&mut self, key: QualityKey, change: &Change, words: Arc<str>, who: Arc<str>) {
        let row = ChangeRow { key: key.clone(), change: *change, words: words.clone(), who: who.clone() };
        let shown = Arc::new(ChangeView { key, change: *change, words, who });
        self.changes.push_front(shown.clone());
        self.changes.truncate(CHANGES_SHOWN);
        self.effects.push(Effect::Store(StoreOp::Changed(Box::new(row))));
        self.effects.push(Effect::Publish(shown));
    }

    /// Has the owner told of a change between good and bad. What lies in between (a retry batch, a further bad verdict)
    /// changes nothing for them.
    fn notify(&mut self, key: &QualityKey, change: &Change) {
        let real =
            matches!((change.from, change.to), (State::Good, State::Bad) | (State::Bad | State::Retry, State::Good));
        let Some((connection, machine)) = self.config.connection(&key.connection).zip(self.book.get(key)) else {
            return;
        };
        let Some(customer) = self.config.reader_of(connection).filter(|_| real) else { return };
        let maps = match &key.map {
            Some(map) => vec![map.clone()],
            None => self.routes.holding(&key.connection).cloned().collect(),
        };
        let notice = Notice {
            key: key.clone(),
            customer: customer.id.clone(),
            change: *change,
            settings: self.settings_in_force(key, machine),
            retry_at: machine.deadline(),
            bad_since: machine.turned_bad_at().filter(|_| change.to == State::Good),
            maps,
            failed: self.failed.get(key).into_iter().flatten().cloned().collect(),
        };
        self.effects.push(Effect::Store(StoreOp::Mail(Kept::Notice(Box::new(notice.clone())))));
        self.effects.push(Effect::Notify(Box::new(notice)));
    }

    /// The settings as they act: under a pin a verdict changes nothing in routing.
    fn settings_in_force(&self, key: &QualityKey, machine: &Machine) -> Settings {
        let mut settings = machine.settings().clone();
        if self.pins.contains_key(key) {
            settings.bad_quality_action = BadQualityAction::NotifyOnly;
        }
        settings
    }

    /// Stores how a connection stands; the picture of its calls is to be made anew.
    fn keep(&mut self, seat: Seat) {
        self.calls.remove(&seat);
        self.routes.touch(&self.book.key(seat).connection);
        let saved = Box::new(self.book.machine(seat).save());
        self.effects.push(Effect::Store(StoreOp::Quality(self.book.key(seat).clone(), saved)));
    }

    /// Brings hunt orders and variables into step, where a connection's state or standing has changed, a rule has learnt
    /// something, or another connection may be the least bad one.
    fn reorder(&mut self, now: Timestamp) {
        let (maps, ops) = self.routes.take_changed();
        self.effects.extend(ops.into_iter().map(Effect::Store));
        if !self.book.take_moved().is_empty() {
            self.order_anew(now);
        } else if !maps.is_empty() {
            let Self { routes, book, pins, .. } = self;
            let changed = routes.reorder(maps, |map, route| explain::route_now(book, pins, map, &route.connection));
            self.replace_orders(&changed, now);
        }
    }

    /// Makes every order and every variable anew.
    fn order_anew(&mut self, now: Timestamp) {
        let Self { routes, book, pins, .. } = self;
        routes.reorder_all(|map, route| explain::route_now(book, pins, map, &route.connection));
        let next = self.generation + 1;
        let wanted: Vec<Desired> = self.config.nodes.iter().map(|node| self.desired(node, next)).collect();
        if wanted.iter().zip(&self.nodes).all(|(wanted, node)| wanted.says_the_same(&node.desired)) {
            return;
        }
        self.want(wanted, now);
    }

    /// The orders of some maps have changed, and nothing else.
    fn replace_orders(&mut self, changed: &[usize], now: Timestamp) {
        if changed.is_empty() {
            return;
        }
        let next = self.generation + 1;
        let prefix = &self.config.variables.prefix;
        let connection = |id: &ConnectionId| self.places.get(id).map(|&place| &self.config.connections[place]);
        let nodes = self.config.nodes.iter().zip(&self.nodes);
        let wanted = nodes.map(|(node, state)| {
            let mut desired = (*state.desired).clone();
            for hunt in changed.iter().map(|&map| &self.routes.orders()[map]) {
                let list = names::route(prefix, &hunt.map);
                if let Some(order) = desired.orders.iter_mut().find(|order| order.list == list) {
                    *order = Arc::new(desired::order(prefix, node, hunt, connection));
                }
            }
            desired.generation = Some((names::generation(prefix), next));
            desired
        });
        let wanted = wanted.collect();
        self.want(wanted, now);
    }

    /// The next generation of variables.
    fn want(&mut self, wanted: Vec<Desired>, now: Timestamp) {
        self.generation += 1;
        self.effects.push(Effect::Store(StoreOp::Generation(self.generation)));
        for (node, wanted) in wanted.into_iter().enumerate() {
            let desired = Arc::new(wanted);
            self.nodes[node].desired = desired.clone();
            self.effects.push(Effect::Variables { node, desired, cause_at: now });
        }
    }

    fn desired(&self, node: &Node, generation: u64) -> Desired {
        let states = self.book.iter().map(|(key, machine)| (key, self.word(key, machine)));
        let desired = desired::of(&self.config, node, self.routes.orders(), states, generation);
        Desired { routing: self.best_shown.variables.clone(), ..desired }
    }

    /// A state as dialplans read it.
    fn word(&self, key: &QualityKey, machine: &Machine) -> &'static str {
        desired::word(machine, self.pins.get(key).map(|pinned| pinned.pin))
    }

    /// What is known of the nodes now, to choose from.
    pub fn candidates(&mut self, now: Timestamp) -> Vec<Candidate> {
        let scoring = &self.config.scoring;
        let nodes = self.config.nodes.iter().zip(&mut self.nodes);
        nodes
            .map(|(node, state)| {
                let figures = state.health.figures(node, state.tracker.active(), now);
                let assessment = state.health.assess(&figures, scoring, now);
                state.health.candidate(node, &figures, &assessment, scoring)
            })
            .collect()
    }

    /// Which node is best, for the dialplans. Each word is a write to every PBX, so they hear at once of what they must not
    /// miss (the node told before takes no calls any more, every node is excluded), and of the rest now and then. While
    /// no node has a link there is nobody to tell, and what they know is better than that we know nothing.
    pub fn show_best(&mut self, best: Option<&NodeId>, score: f64, fallback_active: bool, now: Timestamp) {
        if !self.nodes.iter().any(|node| node.health.is_linked()) {
            return;
        }
        let shown = &self.best_shown;
        let pace = if fallback_active != shown.fallback_active || !self.still_stands() {
            Duration::ZERO
        } else if best == shown.node.as_ref() {
            BEST_SCORE_EVERY
        } else {
            BEST_NODE_EVERY
        };
        if now.since(shown.at) < pace {
            return;
        }
        let variables = desired::best_node(&self.config.variables.prefix, best, score, fallback_active);
        if shown.variables == variables {
            return;
        }
        for (node, state) in self.nodes.iter_mut().enumerate() {
            let desired = Arc::new(Desired { routing: variables.clone(), ..(*state.desired).clone() });
            state.desired = desired.clone();
            self.effects.push(Effect::Variables { node, desired, cause_at: now });
        }
        self.best_shown = BestShown { node: best.cloned(), fallback_active, variables, at: now };
    }

    /// Whether the node that dialplans were told of takes calls, or could at least take one where none does.
    fn still_stands(&self) -> bool {
        let BestShown { node, fallback_active, .. } = &self.best_shown;
        let index = node.as_ref().and_then(|node| self.node_index(node).ok());
        index.is_some_and(|index| {
            let health = &self.nodes[index].health;
            if *fallback_active { health.is_linked() } else { health.excluded_since().is_none() }
        })
    }

    /// Whether a map has all of its connections blocked.
    #[must_use]
    pub fn panic(&self) -> bool {
        self.routes.orders().iter().any(|order| order.panic)
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    fn count_active(&mut self, node: usize, now: Timestamp) {
        let active = self.nodes[node].tracker.active();
        if active > self.nodes[node].most_active {
            let whose = Whose::Node(self.config.nodes[node].id.clone());
            self.effects.push(Effect::Store(StoreOp::Count { at: now, whose, tally: Tally::active(active) }));
        }
        self.nodes[node].most_active = active;
    }

    /// The picture. `links` and `variables` are those of the nodes, in the order configured.
    #[must_use]
    pub fn view(&mut self, links: &[LinkView], variables: &[VariablesView], now: Timestamp) -> View {
        let scoring = &self.config.scoring;
        let nodes = self.config.nodes.iter().zip(&mut self.nodes).zip(links.iter().zip(variables));
        let nodes =
            nodes.map(|((node, state), (link, variables))| node_view(node, state, link, variables, scoring, now));
        let nodes: Vec<NodeView> = nodes.collect();
        let mut active: HashMap<Seat, usize> = HashMap::new();
        for leg in self.nodes.iter().flat_map(|node| node.legs.values()) {
            if let Some(seat) = leg.seat {
                *active.entry(seat).or_default() += 1;
            }
        }
        let keys: Vec<QualityKey> = self.book.iter().map(|(key, _)| key.clone()).collect();
        let config = self.config.clone();
        let connections = keys.iter().filter_map(|key| {
            let index = *self.places.get(&key.connection)?;
            self.connection_view(key, index, &config.connections[index], &active)
        });
        let connections = connections.collect();
        View {
            generation: self.generation,
            nodes,
            connections,
            maps: (0..self.routes.maps().len()).map(|map| self.map_view(map)).collect(),
            changes: self.changes.iter().map(|change| (**change).clone()).collect(),
            unknown_trunks: self
                .config
                .nodes
                .iter()
                .zip(&self.nodes)
                .flat_map(|(node, state)| unknown(node, state))
                .collect(),
            ..View::empty(now)
        }
    }

    /// The calls of a connection one by one. Made anew only where they have changed: windows may be long, connections many,
    /// and a picture is made ten times a second.
    fn calls_of(&mut self, seat: Seat) -> Arc<Calls> {
        let calls = self.calls.entry(seat).or_insert_with(|| {
            let failed = self.failed.get(self.book.key(seat)).into_iter().flatten().cloned().collect();
            Arc::new(Calls { window: self.book.machine(seat).window().samples().copied().collect(), failed })
        });
        calls.clone()
    }

    fn connection_view(
        &mut self,
        key: &QualityKey,
        index: usize,
        connection: &Connection,
        active: &HashMap<Seat, usize>,
    ) -> Option<ConnectionView> {
        let seat = self.book.seat(key)?;
        let calls = self.calls_of(seat);
        let machine = self.book.machine(seat);
        Some(ConnectionView {
            key: key.clone(),
            customer: connection.customer.clone(),
            monitored: connection.quality.is_monitored(),
            state: machine.state(),
            since: machine.since(),
            action: connection.quality.bad_quality_action,
            words: machine.words(),
            figures: machine.figures(),
            settings: connection.quality.clone(),
            batch_done: machine.progress().map(|progress| progress.done),
            retry_at: machine.deadline(),
            active_calls: active.get(&seat).copied().unwrap_or_default(),
            unmapped: self.unmapped[index],
            pinned: self.pins.get(key).cloned(),
            calls,
        })
    }

    /// A route map explained. Made anew only where something in it has changed.
    fn map_view(&mut self, map: usize) -> Arc<MapView> {
        if let Some(picture) = self.routes.picture(map) {
            return picture;
        }
        let (state, configured) = (&self.routes.maps()[map], &self.config.route_maps[map]);
        let picture = Arc::new(explain::map(configured, state, &self.book, &self.pins));
        self.routes.keep_picture(map, &picture);
        picture
    }
}

fn places(config: &Config) -> HashMap<ConnectionId, usize> {
    config.connections.iter().enumerate().map(|(place, connection)| (connection.id.clone(), place)).collect()
}

fn trunks_on(config: &Config, node: &Node) -> HashMap<String, usize> {
    let connections = config.connections.iter().enumerate();
    connections.map(|(index, connection)| (connection.name_on(&node.id).to_owned(), index)).collect()
}

fn node_view(
    node: &Node,
    state: &mut NodeState,
    link: &LinkView,
    variables: &VariablesView,
    scoring: &Scoring,
    now: Timestamp,
) -> NodeView {
    let figures = state.health.figures(node, state.tracker.active(), now);
    let assessment = state.health.assess(&figures, scoring, now);
    let counters = state.tracker.counters();
    NodeView {
        link: LinkView {
            ends_unseen_answered: counters.unseen_ends_answered,
            ends_unseen_lost: counters.unseen_ends_lost,
            false_ends: counters.false_ends,
            legs_refused: counters.legs_refused,
            ..link.clone()
        },
        active_calls: state.tracker.active(),
        variables: *variables,
        sip_address: node.sip_address.clone(),
        admin: state.health.admin(),
        figures,
        assessment,
        excluded_since: state.health.excluded_since(),
        breaker: state.health.breaker(now),
        ..NodeView::new(node.id.clone(), node.kind, &node.address)
    }
}

fn unknown<'a>(node: &'a Node, state: &'a NodeState) -> impl Iterator<Item = UnknownTrunk> + 'a {
    let trunk = |(trunk, attempts): (&TrunkName, &u64)| UnknownTrunk {
        node: node.id.clone(),
        trunk: trunk.to_string(),
        attempts: *attempts,
    };
    state.unknown.iter().map(trunk)
}
