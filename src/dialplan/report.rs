//! What a call would try, and whether the PBXs know: the answer of `test-dialplan`.

use serde::{Deserialize, Serialize};

use crate::dialplan::readback::{Busy, NodeVariables, Probes};
use crate::engine::view::View;
use crate::ids::{ConnectionId, MapId};
use crate::routing::question::{Question, Unanswerable};

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = TestDialplan)]
pub struct Report {
    /// The number, without what people write between digits.
    pub number: String,
    /// The route map.
    pub map: MapId,
    /// Why it is this map, in a sentence.
    pub why: String,
    /// Whether every connection of the map is blocked.
    pub panic: bool,
    /// Whether the order is one that was assumed. The variables are as they are in any case.
    pub assumed: bool,
    /// Every connection of the map in hunt order, those that are left out behind the others.
    pub routes: Vec<RouteState>,
    /// The nodes that the map concerns, in the order configured.
    pub nodes: Vec<NodeVariables>,
    /// Whether every variable of every node holds what it should.
    pub agrees: bool,
}

/// A connection in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RouteState {
    /// Its place in the hunt order, from 1; `None` where it is left out.
    pub place: Option<usize>,
    /// The connection.
    pub connection: ConnectionId,
    /// Its state as dialplans read it.
    pub state: String,
    /// Its state in a sentence.
    pub quality: String,
    /// Why it stands where it stands, in a sentence.
    pub reason: String,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReport {
    /// The question has none.
    #[error(transparent)]
    Unanswerable(#[from] Unanswerable),
    /// Somebody else is reading the variables.
    #[error(transparent)]
    Busy(#[from] Busy),
}

/// Answers from the picture, and reads the variables from the PBXs.
///
/// # Errors
/// See [`NoReport`]. A node that cannot be read is no error: its entry says why.
pub async fn report(question: &Question, view: &View, probes: &Probes) -> Result<Report, NoReport> {
    let answer = question.answer(&view.maps)?;
    let nodes = probes.read(&answer.map).await?;
    let routes = answer.map.routes.into_iter().map(|route| RouteState {
        place: route.place,
        connection: route.connection,
        state: route.state,
        quality: route.quality,
        reason: route.reason,
    });
    Ok(Report {
        why: answer.matched.words(&answer.number),
        number: answer.number,
        map: answer.map.id,
        panic: answer.map.panic,
        assumed: !question.what_if.is_empty(),
        routes: routes.collect(),
        agrees: nodes.iter().all(|node| node.agrees),
        nodes,
    })
}
