//! The latest changes of connections' states.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Asked;
use super::connections::is_named;
use crate::api::problem::Problem;
use crate::engine::view::ChangeView;

/// Most changes that an answer has: as many as the picture holds.
const MOST: usize = 100;

/// A change, with its name among all.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ChangeAnswer<'a> {
    /// Its name, as in the event stream.
    id: String,
    #[serde(flatten)]
    change: &'a ChangeView,
}

impl<'a> ChangeAnswer<'a> {
    pub(super) fn new(change: &'a ChangeView) -> Self {
        Self { id: id(change), change }
    }
}

/// The name of a change: no two changes of a connection begin the same epoch, and the time is in it for the day when a
/// lost database makes epochs begin anew.
pub(super) fn id(change: &ChangeView) -> String {
    let ChangeView { key, change, .. } = change;
    let map = key.map.as_ref().map(|map| format!("/{map}")).unwrap_or_default();
    format!("{}-{}-{}{map}", change.at.as_micros(), change.epoch.0, key.connection)
}

/// The changes.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Changes<'a> {
    /// Newest first.
    changes: Vec<ChangeAnswer<'a>>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Filter {
    /// At most so many; 100 unless said otherwise.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// Only those of this connection.
    connection: Option<String>,
}

/// The latest changes of connections' states
///
/// Of the last 100 of all connections, those asked for. The database has all of them.
#[utoipa::path(get, path = "/api/changes", tag = "connections", params(Filter), responses(
    (status = 200, description = "The changes", body = Changes<'_>),
))]
pub(in crate::api) async fn changes(
    State(app): Asked,
    Query(Filter { limit, connection }): Query<Filter>,
) -> Result<Response, Problem> {
    let limit = limit.unwrap_or(MOST);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("limit: from 1 to {MOST}")));
    }
    let view = app.view();
    let wanted = view.changes.iter().filter(|change| is_named(&change.key.connection, connection.as_deref()));
    Ok(Json(Changes { changes: wanted.take(limit).map(ChangeAnswer::new).collect() }).into_response())
}
