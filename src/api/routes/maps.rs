//! Route maps: their orders, and what a call would try.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Asked;
use crate::api::problem::Problem;
use crate::dialplan::report::{NoReport, Report, report};
use crate::engine::view::{MapView, View};
use crate::ids::ConnectionId;
use crate::routing::picture::{WhatIf, assumption};
use crate::routing::question::{CallTable, Question, Unanswerable};
use crate::time::Timestamp;

/// Most connections that a question may name; the paths of a browser end at about as much text.
const MAX_NAMED: usize = 100;

/// The hunt orders.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Maps<'a> {
    /// When the picture was made.
    at: Timestamp,
    /// Grows with every change of a variable.
    generation: u64,
    /// The route maps, in the order configured.
    maps: &'a [Arc<MapView>],
}

/// Route maps with their hunt orders now
///
/// Of every route: its static priority, what the rule of the map knows of it and adds, its state, its place and the reason.
#[utoipa::path(get, path = "/api/maps", tag = "maps", responses(
    (status = 200, description = "The maps", body = Maps<'_>),
))]
pub(in crate::api) async fn maps(State(app): Asked) -> Response {
    let view = app.view();
    Json(Maps { at: view.at, generation: view.generation, maps: &view.maps }).into_response()
}

/// A route map with its hunt order now
#[utoipa::path(get, path = "/api/maps/{id}", tag = "maps", params(("id" = String, Path, description = "Its id")), responses(
    (status = 200, description = "The map", body = MapView),
    (status = 404, description = "There is no such map", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn map(State(app): Asked, Path(id): Path<String>) -> Result<Json<Arc<MapView>>, Problem> {
    find(&app.view(), &id).cloned().map(Json)
}

/// The map of that name.
///
/// # Errors
/// Where there is none.
pub(in crate::api) fn find<'a>(view: &'a View, id: &str) -> Result<&'a Arc<MapView>, Problem> {
    let found = view.maps.iter().find(|map| map.id.as_str() == id);
    found.ok_or_else(|| Problem::not_found(format!("there is no route map {id:?}; /api/maps lists them")))
}

/// What is asked about a call.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct AboutCall {
    /// The number dialled.
    #[param(max_length = 200)]
    number: String,
    /// The route map, where the dialplan names it; without it the number decides.
    map: Option<String>,
    /// States to assume, as in `vendor-a=bad,vendor-b=good`: good, bad, retry, last or blocked.
    assume: Option<String>,
    /// Connections to leave out, as in `vendor-a,vendor-b`.
    without: Option<String>,
}

impl AboutCall {
    fn question(self) -> Result<Question, Problem> {
        let what_if = WhatIf {
            assume: listed(self.assume.as_deref(), "assume", |text| {
                assumption(text).map_err(|error| error.to_string())
            })?,
            without: listed(self.without.as_deref(), "without", |text| {
                ConnectionId::new(text).map_err(|error| error.to_string())
            })?,
        };
        Ok(Question { number: self.number, map: self.map, what_if })
    }
}

/// The parts of a list.
fn listed<T>(list: Option<&str>, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, Problem> {
    let Some(list) = list.filter(|list| !list.is_empty()) else { return Ok(Vec::new()) };
    let parts: Vec<&str> = list.split(',').take(MAX_NAMED + 1).collect();
    if parts.len() > MAX_NAMED {
        return Err(Problem::illegal(format!("{name}: at most {MAX_NAMED} connections")));
    }
    let read: Result<Vec<T>, String> = parts.into_iter().map(|part| read(part.trim())).collect();
    read.map_err(|error| Problem::illegal(format!("{name}: {error}")))
}

impl From<Unanswerable> for Problem {
    fn from(why: Unanswerable) -> Self {
        match why {
            Unanswerable::NotANumber(_) => Self::illegal(why.to_string()),
            Unanswerable::NoSuchMap { .. } | Unanswerable::NotServed(_) | Unanswerable::NotInMap(_) => {
                Self::not_found(why.to_string())
            }
        }
    }
}

impl From<NoReport> for Problem {
    fn from(why: NoReport) -> Self {
        match why {
            NoReport::Unanswerable(why) => why.into(),
            NoReport::Busy(busy) => Self::unavailable(busy.to_string()),
        }
    }
}

/// What a call would try, and how each route comes to its place
///
/// Of every route: its static priority, by each criterion of the map's rule the estimate, the compensation and the penalty,
/// their sum, and the reason for its place.
#[utoipa::path(get, path = "/api/test-call", tag = "maps", params(AboutCall), responses(
    (status = 200, description = "The routes in hunt order", body = CallTable),
    (status = 404, description = "No map serves the number, or there is no such map or connection", body = Problem,
     content_type = "application/problem+json"),
    (status = 422, description = "Not a number, or not an assumption", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn test_call(
    State(app): Asked,
    Query(about): Query<AboutCall>,
) -> Result<Json<CallTable>, Problem> {
    Ok(Json(about.question()?.answer(&app.view().maps)?.table()))
}

/// What a call would try, and whether the PBXs know
///
/// The variables of the map are read back from every PBX that it concerns. Assumptions change the order that is shown, and
/// not the variables.
#[utoipa::path(get, path = "/api/test-dialplan", tag = "maps", params(AboutCall), responses(
    (status = 200, description = "The order and the variables", body = Report),
    (status = 404, description = "No map serves the number, or there is no such map or connection", body = Problem,
     content_type = "application/problem+json"),
    (status = 422, description = "Not a number, or not an assumption", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn test_dialplan(
    State(app): Asked,
    Query(about): Query<AboutCall>,
) -> Result<Json<Report>, Problem> {
    Ok(Json(report(&about.question()?, &app.view(), &app.sources.probes).await?))
}
