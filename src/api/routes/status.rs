//! The picture as a whole, and the hunt orders.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Asked;
use crate::engine::view::{MapView, View};
use crate::time::Timestamp;

/// Everything at once
///
/// What `pointsman status --json` prints.
#[utoipa::path(get, path = "/api/status", tag = "status", responses(
    (status = 200, description = "The picture", body = View),
))]
pub(in crate::api) async fn status(State(app): Asked) -> Json<Arc<View>> {
    Json(app.view())
}

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
#[utoipa::path(get, path = "/api/maps", tag = "status", responses(
    (status = 200, description = "The maps", body = Maps<'_>),
))]
pub(in crate::api) async fn maps(State(app): Asked) -> Response {
    let view = app.view();
    Json(Maps { at: view.at, generation: view.generation, maps: &view.maps }).into_response()
}

/// This document
#[utoipa::path(get, path = "/api/openapi.json", tag = "status", responses(
    (status = 200, description = "The OpenAPI document", body = Object, content_type = "application/json"),
))]
pub(in crate::api) async fn document(State(app): Asked) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.document.clone()).into_response()
}
