//! For whoever watches the process: alive, ready, in figures.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use serde::Serialize;
use utoipa::ToSchema;

use super::Asked;
use crate::api::problem::Problem;
use crate::clock::Clock;
use crate::engine::view::View;

/// A picture that is older than this says that the engine hangs. It makes one every second.
const OLDEST_PICTURE: Duration = Duration::from_secs(10);

/// Ready.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Ready {
    /// True.
    ready: bool,
}

/// Whether the process is alive
///
/// Whatever else is wrong. Open to everybody.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses(
    (status = 200, description = "It is", body = String, content_type = "text/plain"),
))]
pub(in crate::api) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether it does all that it should
///
/// Open to everybody.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses(
    (status = 200, description = "It does", body = Ready),
    (status = 503, description = "It does not; `reasons` says why", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn readyz(State(app): Asked) -> Result<Json<Ready>, Problem> {
    let reasons = unready(&app.view(), app.sources.clock);
    if reasons.is_empty() {
        return Ok(Json(Ready { ready: true }));
    }
    Err(Problem::unavailable(reasons.join("; ")).because(reasons))
}

/// Why it is not ready. A node without a link is no reason: another instance would have none either.
fn unready(view: &View, clock: Clock) -> Vec<String> {
    let mut reasons = Vec::new();
    let age = clock.now().since(view.at) / clock.rate();
    if age > OLDEST_PICTURE {
        reasons.push(format!("the engine has published nothing for {} s", age.as_secs()));
    }
    if !view.storage.healthy {
        reasons.push(match view.storage.problem.as_str() {
            "" => "nothing has been stored yet".to_owned(),
            problem => format!("nothing is stored: {problem}"),
        });
    }
    reasons
}

/// Figures for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "In the text format, version 0.0.4", body = String, content_type = "text/plain"),
))]
pub(in crate::api) async fn metrics(State(app): Asked) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], app.metrics.page()).into_response()
}
