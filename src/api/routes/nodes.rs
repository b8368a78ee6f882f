//! Nodes: their scores, what they are made of, and what operators and agents say of them.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Asked, Who, by};
use crate::api::problem::Problem;
use crate::engine::request::Request;
use crate::engine::view::NodeView;
use crate::ids::NodeId;
use crate::score::{Admin, Load};
use crate::time::Timestamp;

/// Highest load average that is believed. The busiest machines that still answer have some thousands.
const MAX_LOAD_AVG: f64 = 100_000.0;

/// A node.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct NodeAnswer<'a> {
    #[serde(flatten)]
    node: &'a NodeView,
    /// The terms of the score that nobody supplies figures for; the weights of the others are scaled up.
    unknown: Vec<&'a str>,
}

impl<'a> NodeAnswer<'a> {
    fn new(node: &'a NodeView) -> Self {
        let terms = node.assessment.terms.iter().filter(|term| term.value.is_none());
        Self { node, unknown: terms.map(|term| term.name.as_str()).collect() }
    }
}

/// The nodes.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Nodes<'a> {
    /// When the picture was made.
    at: Timestamp,
    /// In the order configured.
    nodes: Vec<NodeAnswer<'a>>,
}

/// All nodes
#[utoipa::path(get, path = "/api/nodes", tag = "nodes", responses(
    (status = 200, description = "The nodes", body = Nodes<'_>),
))]
pub(in crate::api) async fn nodes(State(app): Asked) -> Response {
    let view = app.view();
    Json(Nodes { at: view.at, nodes: view.nodes.iter().map(NodeAnswer::new).collect() }).into_response()
}

/// A node
///
/// Every term of its score, the figures with their sources, what is unknown, what keeps calls away and since when, its
/// link, its variables, its circuit breaker, and what the operator wants of it.
#[utoipa::path(get, path = "/api/nodes/{id}", tag = "nodes", params(("id" = String, Path, description = "Its id")), responses(
    (status = 200, description = "The node", body = NodeAnswer<'_>),
    (status = 404, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn node(State(app): Asked, Path(id): Path<String>) -> Result<Response, Problem> {
    let view = app.view();
    let node = view.nodes.iter().find(|node| node.id.as_str() == id).ok_or_else(|| no_such(&id))?;
    Ok(Json(NodeAnswer::new(node)).into_response())
}

/// Reports the load of a node
///
/// For agents on machines whose PBX does not tell. What is absent stays as it was. A report goes before what the PBX says,
/// for as long as it is fresh. Needs the role operate.
#[utoipa::path(put, path = "/api/nodes/{id}/load", tag = "nodes", params(("id" = String, Path, description = "The node's id")),
    request_body = Load, responses(
    (status = 204, description = "Taken"),
    (status = 404, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "A figure that cannot be", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn put_load(
    State(app): Asked,
    Path(id): Path<String>,
    Json(load): Json<Load>,
) -> Result<StatusCode, Problem> {
    let node = node_id(&id)?;
    check(&load)?;
    app.sources.desk.ask(Request::PushLoad { node, load }).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn check(load: &Load) -> Result<(), Problem> {
    let figures = [
        ("load_avg", load.load_avg, MAX_LOAD_AVG),
        ("idle_cpu", load.idle_cpu, 100.0),
        ("memory_free", load.memory_free, 100.0),
    ];
    if figures.iter().all(|(_, figure, _)| figure.is_none()) {
        return Err(Problem::illegal("none of load_avg, idle_cpu and memory_free is there"));
    }
    for (name, figure, most) in figures {
        if figure.is_some_and(|figure| !(0.0..=most).contains(&figure)) {
            return Err(Problem::illegal(format!("{name}: from 0 to {most}")));
        }
    }
    Ok(())
}

/// What the operator wants of a node.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Order {
    /// What.
    admin: Admin,
    /// Why, for the audit; at most 500 characters on one line.
    #[serde(default)]
    #[schema(max_length = 500, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    why: String,
}

/// Takes a node out of service, lets it run dry, or puts it back
///
/// Survives a restart. Needs the role operate.
#[utoipa::path(put, path = "/api/nodes/{id}/admin", tag = "nodes", params(("id" = String, Path, description = "The node's id")),
    request_body = Order, responses(
    (status = 204, description = "Done"),
    (status = 404, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn put_admin(
    State(app): Asked,
    Extension(caller): Who,
    Path(id): Path<String>,
    Json(order): Json<Order>,
) -> Result<StatusCode, Problem> {
    let request = Request::SetAdmin { node: node_id(&id)?, admin: order.admin, by: by(&caller, &order.why)? };
    app.sources.desk.ask(request).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn node_id(id: &str) -> Result<NodeId, Problem> {
    NodeId::new(id).map_err(|_| no_such(id))
}

pub(in crate::api) fn no_such(id: &str) -> Problem {
    Problem::not_found(format!("there is no node {id:?}; /api/nodes lists them"))
}
