//! The engine without its driver: what happened goes in, what is to be done comes out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::balance::Candidate;
use crate::call::attempt::{CallEvent, Finished, Placed, TrunkName};
use crate::call::tracker::{LiveLeg, Tracker};
use crate::config::model::{Config, Connection, Node, RouteMap, Scoring};
use crate::dialplan::desired::{self, Desired, StateVariable};
use crate::engine::effect::Effect;
use crate::engine::health::Health;
use crate::engine::request::{By, Refused, Request};
use crate::engine::view::{
    Calls, ChangeView, ConnectionView, LinkView, MapView, NodeView, UnknownTrunk, VariablesView, View,
};
use crate::engine::words;
use crate::ids::{ConnectionId, LegId, NodeId, QualityKey};
use crate::notify::kept::Kept;
use crate::notify::notice::{FAILED_CALLS, FailedCall, Notice};
use crate::pbx::event::PbxEvent;
use crate::quality::book::{Book, Seat};
use crate::quality::machine::{Change, Machine, Reason, Standing, State};
use crate::quality::pin::{self, Pin, Pinned};
use crate::quality::settings::{BadQualityAction, Settings};
use crate::quality::window::{Epoch, Sample};
use crate::routing::{HuntOrder, RouteTable};
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
    routes: RouteTable,
    nodes: Vec<NodeState>,
    book: Book,
    orders: Vec<HuntOrder>,
    generation: u64,
    changes: VecDeque<Arc<ChangeView>>,
    /// The last failed calls, newest first, at most [`FAILED_CALLS`] of each.
    failed: HashMap<QualityKey, VecDeque<FailedCall>>,
    /// What operators said of connections.
    pins: HashMap<QualityKey, Pinned>,
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
    /// What the node calls its connections.
    trunks: HashMap<String, Place>,
    /// The legs to configured connections that are up.
    legs: HashMap<LegId, Leg>,
    /// Attempts on trunks that are not configured.
    unknown: BTreeMap<TrunkName, u64>,
    desired: Arc<Desired>,
    most_active: usize,
    health: Health,
}

/// Where a connection stands in the book and in the configuration.
#[derive(Clone, Copy, Debug)]
struct Place {
    seat: Seat,
    connection: usize,
}

/// A leg to a configured connection.
#[derive(Debug)]
struct Leg {
    place: Place,
    epoch: Epoch,
    row: LegRow,
    /// Whether it was up before it could be seen.
    adopted: bool,
}

impl Engine {
    /// The engine as it was when it stopped, under the configuration of today.
    #[must_use]
    pub fn new(config: Arc<Config>, restored: Restored, now: Timestamp) -> Self {
        let keys = config.connections.iter().map(|c| (QualityKey::connection(c.id.clone()), c.quality.clone()));
        let changes = restored.changes.into_iter().take(CHANGES_SHOWN);
        let mut engine = Self {
            routes: RouteTable::new(&config),
            book: Book::new(keys, now),
            nodes: Vec::new(),
            orders: Vec::new(),
            generation: restored.generation,
            changes: changes
                .map(|row| Arc::new(ChangeView { key: row.key, change: row.change, words: row.words, who: row.who }))
                .collect(),
            failed: HashMap::new(),
            pins: restored.pins.into_iter().collect(),
            best_shown: BestShown::default(),
            calls: HashMap::new(),
            effects: Vec::new(),
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
            if let Some(change) = engine.book.restore(&key, saved, now)
                && let Some(seat) = engine.book.seat(&key)
            {
                engine.record(seat, &change);
            }
        }
        for row in restored.legs {
            engine.restore_leg(row);
        }
        // The time of a pin may have ended while nobody was there to end it.
        engine.end_pins(now);
        engine.order_anew(now);
        engine
    }

    fn node_state(&self, node: usize, now: Timestamp) -> NodeState {
        let node = &self.config.nodes[node];
        let places = self.config.connections.iter().enumerate().filter_map(|(index, connection)| {
            let seat = self.book.seat(&QualityKey::connection(connection.id.clone()))?;
            Some((connection.name_on(&node.id).to_owned(), Place { seat, connection: index }))
        });
        NodeState {
            tracker: Tracker::new(node.kind),
            incarnation: None,
            trunks: places.collect(),
            legs: HashMap::new(),
            unknown: BTreeMap::new(),
            desired: Arc::new(Desired::default()),
            most_active: 0,
            health: Health::new(&self.config.scoring, self.config.breaker, now),
        }
    }

    /// A leg that was up when the program ended. Whether it still is shows in the first list that its node gives.
    fn restore_leg(&mut self, row: LegRow) {
        let known = self.config.nodes.iter().position(|node| node.id == row.node);
        let place = known.and_then(|node| self.nodes[node].trunks.get(&*row.trunk).copied());
        let (Some(node), Some(place)) = (known, place) else {
            self.effects.push(Effect::Store(StoreOp::LegGone(row.node, row.leg)));
            return;
        };
        let epoch = row.epoch.unwrap_or_else(|| self.book.machine(place.seat).epoch_at(row.placed_at));
        self.book.resumed(place.seat, epoch);
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
        state.legs.insert(row.leg.clone(), Leg { place, epoch, row, adopted: false });
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
        }
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
        let seat = self.book.seat(key).ok_or_else(|| Refused::NoSuchConnection(key.clone()))?;
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
        let seat = self.book.seat(key).ok_or_else(|| Refused::NoSuchConnection(key.clone()))?;
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
        self.effects.push(Effect::Store(StoreOp::Pin(key.clone(), pinned)));
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
                self.placed(node, placed);
            }
            CallEvent::Ringing { leg, at } => self.more_known(node, &leg, |row| row.ringing_at = Some(at)),
            CallEvent::Answered { leg, at } => self.more_known(node, &leg, |row| row.answered_at = Some(at)),
            CallEvent::Finished(finished) => self.finished(node, &finished, now),
            CallEvent::Forgotten(leg) => {
                if let Some(leg) = self.leg_gone(node, &leg) {
                    self.book.forgotten(leg.place.seat, leg.epoch);
                }
            }
        }
    }

    fn placed(&mut self, node: usize, placed: Placed) {
        let Some(place) = self.nodes[node].trunks.get(&*placed.trunk).copied() else {
            self.unknown_trunk(node, placed.trunk);
            return;
        };
        let epoch =
            if placed.adopted { self.book.adopted(place.seat, placed.at) } else { self.book.placed(place.seat) };
        let row = LegRow {
            node: self.config.nodes[node].id.clone(),
            leg: placed.leg.clone(),
            trunk: placed.trunk,
            map: placed.map,
            number: placed.number,
            placed_at: placed.at,
            ringing_at: None,
            answered_at: None,
            epoch: Some(epoch),
        };
        // A leg that was found on the way would be found again after a restart, by the same means.
        if !placed.adopted {
            self.effects.push(Effect::Store(StoreOp::LegUp(Box::new(row.clone()))));
        }
        self.nodes[node].legs.insert(placed.leg, Leg { place, epoch, row, adopted: placed.adopted });
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
        let Some(Leg { place, epoch, .. }) = self.leg_gone(node, &finished.leg) else { return };
        let connection = &self.config.connections[place.connection];
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
        for whose in [Whose::Connection(self.book.key(place.seat).clone()), on_node] {
            self.effects.push(Effect::Store(StoreOp::Count { at: now, whose, tally }));
        }
        if sample.outcome.in_window() && !sample.is_success() {
            self.failed(node, place.seat, finished, &sample);
        }
        match self.book.finished(place.seat, &sample, now) {
            Some(change) => self.record(place.seat, &change),
            None => self.keep(place.seat),
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
        let maps = self.routes.maps().iter();
        let notice = Notice {
            key: key.clone(),
            customer: customer.id.clone(),
            change: *change,
            settings: self.settings_in_force(key, machine),
            retry_at: machine.deadline(),
            bad_since: machine.turned_bad_at().filter(|_| change.to == State::Good),
            maps: maps.filter(|map| map.holds(&key.connection)).map(|map| map.map.clone()).collect(),
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
        let saved = Box::new(self.book.machine(seat).save());
        self.effects.push(Effect::Store(StoreOp::Quality(self.book.key(seat).clone(), saved)));
    }

    /// Brings hunt orders and variables into step, where a connection's state or standing has changed.
    fn reorder(&mut self, now: Timestamp) {
        if !self.book.take_moved().is_empty() {
            self.order_anew(now);
        }
    }

    fn order_anew(&mut self, now: Timestamp) {
        self.orders = self.routes.hunt_orders(|connection| self.standing(connection));
        let next = self.generation + 1;
        let wanted: Vec<Desired> = self.config.nodes.iter().map(|node| self.desired(node, next)).collect();
        if wanted.iter().zip(&self.nodes).all(|(wanted, node)| wanted.says_the_same(&node.desired)) {
            return;
        }
        self.generation = next;
        self.effects.push(Effect::Store(StoreOp::Generation(next)));
        for (node, wanted) in wanted.into_iter().enumerate() {
            let desired = Arc::new(wanted);
            self.nodes[node].desired = desired.clone();
            self.effects.push(Effect::Variables { node, desired, cause_at: now });
        }
    }

    fn desired(&self, node: &Node, generation: u64) -> Desired {
        let word = |connection: &ConnectionId| self.word(connection);
        let desired = desired::of(&self.config, node, &self.orders, word, generation);
        Desired { routing: self.best_shown.variables.clone(), ..desired }
    }

    /// A connection's state as dialplans read it.
    fn word(&self, connection: &ConnectionId) -> &'static str {
        let pin = self.pins.get(&QualityKey::connection(connection.clone())).map(|pinned| pinned.pin);
        self.machine(connection).map_or("good", |machine| desired::word(machine, pin))
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
        self.orders.iter().any(|order| order.order.is_empty() && !order.blocked.is_empty())
    }

    fn machine(&self, connection: &ConnectionId) -> Option<&Machine> {
        self.book.get(&QualityKey::connection(connection.clone()))
    }

    fn standing(&self, connection: &ConnectionId) -> Standing {
        if let Some(pinned) = self.pins.get(&QualityKey::connection(connection.clone())) {
            return pinned.pin.standing();
        }
        self.machine(connection).map(Machine::standing).unwrap_or_default()
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
        let mut active = vec![0; self.config.connections.len()];
        for leg in self.nodes.iter().flat_map(|node| node.legs.values()) {
            active[leg.place.connection] += 1;
        }
        let config = self.config.clone();
        let connections = config.connections.iter().zip(active);
        let connections: Vec<ConnectionView> =
            connections.filter_map(|(connection, active)| self.connection_view(connection, active)).collect();
        let maps = self.config.route_maps.iter().zip(&self.orders);
        View {
            generation: self.generation,
            nodes,
            connections,
            maps: maps.map(|(map, order)| map_view(map, order)).collect(),
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

    fn connection_view(&mut self, connection: &Connection, active_calls: usize) -> Option<ConnectionView> {
        let key = QualityKey::connection(connection.id.clone());
        let seat = self.book.seat(&key)?;
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
            active_calls,
            pinned: self.pins.get(&key).cloned(),
            calls,
        })
    }
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

fn map_view(map: &RouteMap, order: &HuntOrder) -> MapView {
    MapView {
        id: map.id.clone(),
        prefixes: map.prefixes.clone(),
        hunt_order: order.order.clone(),
        blocked: order.blocked.clone(),
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
