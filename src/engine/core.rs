//! The engine without its driver: what happened goes in, what is to be done comes out.
//!
//! This file follows the calls. The rest of what it does is in [`orders`] (hunt orders and variables), [`operators`] (what it is
//! asked), [`configure`] (another configuration) and [`picture`] (what others see).

mod configure;
mod operators;
mod orders;
mod picture;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::balance::Candidate;
use crate::call::attempt::{CallEvent, Finished, Placed, TrunkName};
use crate::call::tracker::{LiveLeg, Tracker};
use crate::config::model::{Config, Node};
use crate::dialplan::desired::{Desired, StateVariable};
use crate::engine::effect::Effect;
use crate::engine::explain;
use crate::engine::health::Health;
use crate::engine::request::By;
use crate::engine::routes::Routes;
use crate::engine::view::{Calls, ChangeView};
use crate::ids::{ConnectionId, LegId, NodeId, QualityKey};
use crate::notify::kept::Kept;
use crate::notify::notice::{FAILED_CALLS, FailedCall, Notice};
use crate::pbx::event::PbxEvent;
use crate::quality::book::{Book, Seat};
use crate::quality::machine::{Change, Machine, Saved, State};
use crate::quality::pin::Pinned;
use crate::quality::sentence::ChangeSentence;
use crate::quality::settings::{BadQualityAction, Settings};
use crate::quality::window::{Epoch, Sample};
use crate::score::{Load, Source};
use crate::store::{ChangeRow, LegRow, POINTSMAN, Restored, StoreOp, Tally, Whose};
use crate::time::Timestamp;

/// How many changes the picture shows.
const CHANGES_SHOWN: usize = 100;

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

    /// The load of this machine, which some nodes run on.
    pub fn local_load(&mut self, load: &Load, now: Timestamp) {
        for (node, state) in self.config.nodes.iter().zip(&mut self.nodes) {
            if node.local {
                state.health.load(load, Source::Local, now);
            }
        }
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
        let words = ChangeSentence::new(change, &settings, machine.judged().iter(), &by.why).to_string();
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
}

fn places(config: &Config) -> HashMap<ConnectionId, usize> {
    config.connections.iter().enumerate().map(|(place, connection)| (connection.id.clone(), place)).collect()
}

fn trunks_on(config: &Config, node: &Node) -> HashMap<String, usize> {
    let connections = config.connections.iter().enumerate();
    connections.map(|(index, connection)| (connection.name_on(&node.id).to_owned(), index)).collect()
}
