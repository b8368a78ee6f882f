//! From standings and what rules learnt to hunt orders and variables, and what dialplans are told of the best node.

use std::sync::Arc;
use std::time::Duration;

use super::{BestShown, Engine};
use crate::config::model::Node;
use crate::dialplan::desired::{self, Desired};
use crate::dialplan::names;
use crate::engine::effect::Effect;
use crate::engine::explain;
use crate::ids::{ConnectionId, NodeId, QualityKey};
use crate::quality::machine::Machine;
use crate::store::StoreOp;
use crate::time::Timestamp;

/// How often dialplans are told of the best node's score, while it is the same node: each is a write to every PBX.
const BEST_SCORE_EVERY: Duration = Duration::from_secs(5);

/// How often they are told of another best node, while the one told before takes calls: two nodes of nearly equal scores
/// change places with every call.
const BEST_NODE_EVERY: Duration = Duration::from_secs(1);

impl Engine {
    /// Brings hunt orders and variables into step, where a connection's state or standing has changed, a rule has learnt
    /// something, or another connection may be the least bad one.
    pub(super) fn reorder(&mut self, now: Timestamp) {
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
    pub(super) fn order_anew(&mut self, now: Timestamp) {
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
}
