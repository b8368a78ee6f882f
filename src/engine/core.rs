//! The engine without its driver: what happened goes in, what is to be done comes out.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::call::attempt::{CallEvent, Finished, Placed, TrunkName};
use crate::call::tracker::Tracker;
use crate::config::model::Config;
use crate::dialplan::desired::{self, Desired};
use crate::engine::effect::Effect;
use crate::engine::view::{ChangeView, ConnectionView, MapView, UnknownTrunk};
use crate::engine::words;
use crate::ids::{LegId, QualityKey};
use crate::pbx::event::PbxEvent;
use crate::quality::book::{Book, Seat};
use crate::quality::machine::{Change, Machine};
use crate::quality::window::{Epoch, Sample};
use crate::routing::{self, HuntOrder};
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
    nodes: Vec<NodeState>,
    book: Book,
    orders: Vec<HuntOrder>,
    generation: u64,
    changes: VecDeque<Arc<ChangeView>>,
    effects: Vec<Effect>,
}

/// What is known of a node.
#[derive(Debug)]
struct NodeState {
    tracker: Tracker,
    /// What the node calls its connections.
    trunks: HashMap<String, Seat>,
    /// The legs to configured connections that are up.
    legs: HashMap<LegId, Leg>,
    /// Attempts on trunks that are not configured.
    unknown: BTreeMap<TrunkName, u64>,
    desired: Arc<Desired>,
    counted_active: usize,
}

/// A leg to a configured connection.
#[derive(Debug)]
struct Leg {
    seat: Seat,
    epoch: Epoch,
    row: LegRow,
}

impl Engine {
    /// The engine as it was when it stopped, under the configuration of today.
    #[must_use]
    pub fn new(config: Arc<Config>, restored: Restored, now: Timestamp) -> Self {
        let keys = config.connections.iter().map(|c| (QualityKey::connection(c.id.clone()), c.quality.clone()));
        let mut engine = Self {
            book: Book::new(keys, now),
            nodes: Vec::new(),
            orders: Vec::new(),
            generation: restored.generation,
            changes: restored.changes.into_iter().take(CHANGES_SHOWN).map(|row| Arc::new(view_of(row))).collect(),
            effects: Vec::new(),
            config,
        };
        engine.nodes = (0..engine.config.nodes.len()).map(|node| engine.node_state(node)).collect();
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
        engine.reorder(now);
        engine
    }

    fn node_state(&self, node: usize) -> NodeState {
        let node = &self.config.nodes[node];
        let trunks = self.config.connections.iter().filter_map(|connection| {
            let seat = self.book.seat(&QualityKey::connection(connection.id.clone()))?;
            Some((connection.name_on(&node.id).to_owned(), seat))
        });
        NodeState {
            tracker: Tracker::new(node.kind),
            trunks: trunks.collect(),
            legs: HashMap::new(),
            unknown: BTreeMap::new(),
            desired: Arc::new(Desired::default()),
            counted_active: 0,
        }
    }

    /// A leg that was up when the program ended. Whether it still is shows in the first list that its node gives.
    fn restore_leg(&mut self, row: LegRow) {
        let known = self.config.nodes.iter().position(|node| node.id == row.node);
        let seat = known.and_then(|node| self.nodes[node].trunks.get(&*row.trunk).copied());
        let (Some(node), Some(seat)) = (known, seat) else {
            self.effects.push(Effect::Store(StoreOp::LegGone(row.node, row.leg)));
            return;
        };
        let epoch = self.book.adopted(seat, row.placed_at);
        let state = &mut self.nodes[node];
        state.tracker.restore(&row);
        state.legs.insert(row.leg.clone(), Leg { seat, epoch: row.epoch.unwrap_or(epoch), row });
    }

    /// What is to be done since this was last asked.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// A node told us something.
    pub fn apply(&mut self, node: usize, event: &PbxEvent, now: Timestamp) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        let output = state.tracker.apply(event, now);
        if output.restarted {
            self.effects.push(Effect::Restarted { node });
        }
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
        self.reorder(now);
    }

    /// When [`Engine::fire`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.book.next_deadline()
    }

    fn call_event(&mut self, node: usize, event: CallEvent, now: Timestamp) {
        match event {
            CallEvent::Placed(placed) => self.placed(node, placed),
            CallEvent::Answered { leg, at } => self.answered(node, &leg, at),
            CallEvent::Finished(finished) => self.finished(node, &finished, now),
            CallEvent::Forgotten(leg) => {
                if let Some(leg) = self.leg_gone(node, &leg) {
                    self.book.forgotten(leg.seat, leg.epoch);
                }
            }
        }
    }

    fn placed(&mut self, node: usize, placed: Placed) {
        let Some(seat) = self.nodes[node].trunks.get(&*placed.trunk).copied() else {
            self.unknown_trunk(node, placed.trunk);
            return;
        };
        let epoch = if placed.adopted { self.book.adopted(seat, placed.at) } else { self.book.placed(seat) };
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
        self.effects.push(Effect::Store(StoreOp::LegUp(Box::new(row.clone()))));
        self.nodes[node].legs.insert(placed.leg, Leg { seat, epoch, row });
    }

    fn answered(&mut self, node: usize, leg: &LegId, at: Timestamp) {
        if let Some(leg) = self.nodes[node].legs.get_mut(leg) {
            leg.row.answered_at = Some(at);
            self.effects.push(Effect::Store(StoreOp::LegUp(Box::new(leg.row.clone()))));
        }
    }

    fn finished(&mut self, node: usize, finished: &Finished, now: Timestamp) {
        let Some(leg) = self.leg_gone(node, &finished.leg) else { return };
        let connection = &self.config.connections[leg.seat.index()];
        let sample = Sample {
            epoch: leg.epoch,
            placed_at: finished.placed_at,
            ended_at: finished.ended_at,
            outcome: connection.causes.outcome(&finished.evidence),
            duration_ms: finished.duration_ms,
            pdd_ms: finished.pdd_ms,
            cause: finished.cause,
            sip_status: finished.sip_status,
        };
        let tally = Tally::attempt(&sample, connection.quality.caller_patience());
        let node = Whose::Node(self.config.nodes[node].id.clone());
        for whose in [Whose::Connection(self.book.key(leg.seat).clone()), node] {
            self.effects.push(Effect::Store(StoreOp::Count { at: now, whose, tally }));
        }
        let change = self.book.finished(leg.seat, &sample, now);
        match change {
            Some(change) => self.record(leg.seat, &change),
            None => self.keep(leg.seat),
        }
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
        let (key, machine) = (self.book.key(seat).clone(), self.book.machine(seat));
        let unmeasured = machine.window().len().saturating_sub(change.figures.calls);
        let measured = machine.window().samples().skip(unmeasured);
        let words: Arc<str> = words::change(change, machine.settings(), measured).into();
        let row = ChangeRow { key: key.clone(), change: *change, words: words.clone(), who: POINTSMAN.into() };
        let shown = Arc::new(ChangeView { key, change: *change, words });
        self.changes.push_front(shown.clone());
        self.changes.truncate(CHANGES_SHOWN);
        self.effects.push(Effect::Store(StoreOp::Changed(Box::new(row))));
        self.effects.push(Effect::Publish(shown));
        self.keep(seat);
    }

    fn keep(&mut self, seat: Seat) {
        let saved = Box::new(self.book.machine(seat).save());
        self.effects.push(Effect::Store(StoreOp::Quality(self.book.key(seat).clone(), saved)));
    }

    /// Brings hunt orders and variables into step with the connections' states.
    fn reorder(&mut self, now: Timestamp) {
        if self.book.take_moved().is_empty() && !self.orders.is_empty() {
            return;
        }
        self.orders = routing::hunt_orders(&self.config, |connection| self.standing(connection));
        let desired: Vec<_> = (0..self.nodes.len()).map(|node| self.desired(node)).collect();
        if desired.iter().zip(&self.nodes).all(|(new, node)| new.same_routes(&node.desired)) {
            return;
        }
        self.generation += 1;
        self.effects.push(Effect::Store(StoreOp::Generation(self.generation)));
    }
}
