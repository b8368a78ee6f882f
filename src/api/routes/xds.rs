//! The xDS server and its clients.

use axum::Json;
use axum::extract::State;

use super::Asked;
use crate::api::problem::Problem;
use crate::xds::view::XdsView;

/// The xDS server and its clients
///
/// Of every stream that is open: who it is, what it asked for, which version it accepted last, and why it rejected another,
/// in its words; the latest that ended, with the reason. What `pointsman xds clients --json` prints.
#[utoipa::path(get, path = "/api/xds", tag = "edges", responses(
    (status = 200, description = "The server", body = XdsView),
    (status = 404, description = "No xDS server is configured", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn xds(State(app): Asked) -> Result<Json<XdsView>, Problem> {
    let none = || Problem::not_found("there is no xDS server: the configuration has no section [xds]");
    app.sources.xds.as_ref().map(|clients| Json(clients.view())).ok_or_else(none)
}
