//! Which node the next call should go to.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Asked;
use crate::api::problem::Problem;
use crate::balance::Answer;
use crate::balance::NoAnswer;
use crate::config::model::Mode;

/// Longest key. Keys are call ids, numbers, account names.
const MAX_KEY: usize = 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Question {
    /// How to choose; without it, as configured.
    #[param(inline)]
    mode: Option<Mode>,
    /// With `consistent_hash`: equal keys meet on one node. At most 1024 bytes, at least one.
    #[param(max_length = 1024)]
    key: Option<String>,
}

/// Which node the next call should go to
///
/// An answer counts as a call on its node until the call shows up or its lease is over, so that a burst spreads. When no
/// node takes calls, `fallback_active` is true and the answer is the one that is least bad.
#[utoipa::path(get, path = "/api/route", tag = "routing", params(Question), responses(
    (status = 200, description = "The node", body = Answer),
    (status = 503, description = "No node can take the call", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn route(
    State(app): Asked,
    Query(question): Query<Question>,
) -> Result<Json<Answer>, Problem> {
    if question.key.as_ref().is_some_and(|key| key.len() > MAX_KEY) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("a key may have at most {MAX_KEY} bytes")));
    }
    let mode = question.mode.unwrap_or(app.sources.mode);
    let answer = app.sources.router.answer(mode, question.key.as_deref(), &mut fastrand::Rng::new());
    answer.map(Json).map_err(|none| match none {
        NoAnswer::NoKey => Problem::new(StatusCode::BAD_REQUEST, format!("{none}: ?key=...")),
        NoAnswer::NoNode(_) => Problem::unavailable(none.to_string()),
    })
}
