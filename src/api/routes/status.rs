//! The picture as a whole, and the description of the API.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::Asked;
use crate::engine::view::View;

/// Everything at once
///
/// What `pointsman status --json` prints.
#[utoipa::path(get, path = "/api/status", tag = "status", responses(
    (status = 200, description = "The picture", body = View),
))]
pub(in crate::api) async fn status(State(app): Asked) -> Json<Arc<View>> {
    Json(app.view())
}

/// This document
#[utoipa::path(get, path = "/api/openapi.json", tag = "status", responses(
    (status = 200, description = "The OpenAPI document", body = Object, content_type = "application/json"),
))]
pub(in crate::api) async fn document(State(app): Asked) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.document.clone()).into_response()
}
