//! The picture that everybody else sees.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Engine, NodeState};
use crate::call::attempt::TrunkName;
use crate::config::model::{Connection, Node, Scoring};
use crate::engine::explain;
use crate::engine::view::{Calls, ConnectionView, LinkView, MapView, NodeView, UnknownTrunk, VariablesView, View};
use crate::ids::QualityKey;
use crate::quality::book::Seat;
use crate::time::Timestamp;

impl Engine {
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
