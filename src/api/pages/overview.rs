//! The first page: how everything is, the worst first.

use axum::extract::FromRequestParts;
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::part::{Changed, NodeRow, Row, by_trouble};
use super::{Asked, Page};
use crate::api::problem::Problem;
use crate::engine::view::{ConnectionView, UnknownTrunk};
use crate::ids::NodeId;
use crate::quality::machine::State;

/// Most connections that are shown: the others are in no trouble, or there is a page for them all.
const ROWS: usize = 25;

/// Most changes that are shown.
const CHANGES: usize = 8;

/// Most unknown trunks that are named.
const UNKNOWN: usize = 5;

/// The page.
#[derive(Clone, FromRequestParts)]
pub(super) struct Overview {}

#[derive(Serialize)]
struct Facts<'a> {
    now: Now,
    troubles: Troubles<'a>,
    nodes: Vec<NodeRow>,
    rows: Vec<Row>,
    connections: usize,
    changes: Vec<Changed>,
}

/// The whole in a few numbers.
#[derive(Serialize)]
struct Now {
    active_calls: u64,
    calls_per_sec: Option<f64>,
    good: usize,
    bad: usize,
    retry: usize,
    unmonitored: usize,
    pinned: usize,
    best_node: Option<String>,
    best_score: f64,
    nodes_up: usize,
    nodes: usize,
}

/// What somebody has to see to.
#[derive(Serialize)]
struct Troubles<'a> {
    storage: Option<&'a str>,
    dropped: u64,
    mail: Option<&'a str>,
    /// Why edges cannot subscribe.
    xds: Option<&'a str>,
    /// Edges that reject what they are told.
    rejecting: usize,
    dead_letters: usize,
    /// Maps whose connections are all blocked.
    panic: Vec<String>,
    no_node_takes_calls: bool,
    /// Who is answered then.
    fallback: Option<&'a str>,
    unknown: &'a [UnknownTrunk],
    unknown_more: usize,
}

impl Page for Overview {
    const TEMPLATE: &'static str = "overview.html";
    const LIVE: &'static [&'static str] = &["troubles", "now", "nodes", "connections", "changes"];

    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let view = asked.view;
        let mut connections: Vec<&ConnectionView> = view.connections.iter().collect();
        connections.sort_by(|one, other| by_trouble(one, other));
        Ok(Value::from(Serde(&Facts {
            now: now(asked),
            troubles: troubles(asked),
            nodes: view.nodes.iter().map(|node| NodeRow::new(node, asked)).collect(),
            rows: connections.iter().take(ROWS).map(|connection| Row::new(connection, asked)).collect(),
            connections: connections.len(),
            changes: view.changes.iter().take(CHANGES).map(|change| Changed::new(change, asked)).collect(),
        })))
    }
}

fn now(asked: &Asked<'_>) -> Now {
    let view = asked.view;
    let count = |wanted: fn(&ConnectionView) -> bool| view.connections.iter().filter(|one| wanted(one)).count();
    Now {
        active_calls: view.nodes.iter().map(|node| node.figures.active_calls).sum(),
        calls_per_sec: view.nodes.iter().filter_map(|node| node.figures.calls_per_sec).reduce(|sum, rate| sum + rate),
        good: count(|one| one.monitored && one.state == State::Good),
        bad: count(|one| one.monitored && one.state == State::Bad),
        retry: count(|one| one.monitored && one.state == State::Retry),
        unmonitored: count(|one| !one.monitored),
        pinned: count(|one| one.pinned.is_some()),
        best_node: view.routing.best_node.as_ref().map(ToString::to_string),
        best_score: view.routing.best_score,
        nodes_up: view.nodes.iter().filter(|node| node.excluded_since.is_none()).count(),
        nodes: view.nodes.len(),
    }
}

fn troubles<'a>(asked: &Asked<'a>) -> Troubles<'a> {
    let view = asked.view;
    let problem = |text: &'a str| Some(text).filter(|text| !text.is_empty());
    Troubles {
        storage: problem(&view.storage.problem),
        dropped: view.storage.dropped,
        mail: problem(&view.mail.problem),
        xds: view.xds.as_ref().and_then(|xds| problem(&xds.problem)),
        rejecting: view.xds.as_ref().map_or(0, |xds| xds.rejecting),
        dead_letters: view.mail.dead,
        panic: view.maps.iter().filter(|map| map.panic).map(|map| map.id.to_string()).collect(),
        no_node_takes_calls: view.routing.fallback_active,
        fallback: view.routing.fallback_node.as_ref().map(NodeId::as_str),
        unknown: &view.unknown_trunks[..view.unknown_trunks.len().min(UNKNOWN)],
        unknown_more: view.unknown_trunks.len().saturating_sub(UNKNOWN),
    }
}
