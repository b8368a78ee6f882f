//! Mails that wait or could not be delivered.

use axum::Json;
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Asked;
use crate::api::problem::Problem;
use crate::ids::CustomerId;
use crate::notify::letter::{Delivery, Kind, Letter};
use crate::notify::notice::Subject;
use crate::notify::run::Which;
use crate::time::Timestamp;

/// A mail, without what it says.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct LetterAnswer {
    /// Its number in the outbox.
    number: u64,
    /// Its Message-ID, without angle brackets.
    message_id: String,
    /// When it was composed.
    made_at: Timestamp,
    /// Whose mail it is; `null` for the operator's.
    customer: Option<CustomerId>,
    /// What kind of mail it is.
    kind: Kind,
    /// What it is about.
    about: Vec<Subject>,
    /// Subject line.
    subject: String,
    /// To whom, and how far each delivery is.
    deliveries: Vec<Delivery>,
}

impl From<Letter> for LetterAnswer {
    fn from(letter: Letter) -> Self {
        let Letter { number, message_id, made_at, customer, kind, about, subject, deliveries, .. } = letter;
        Self { number, message_id, made_at, customer, kind, about, subject, deliveries }
    }
}

/// The outbox.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Letters {
    /// Oldest first.
    letters: Vec<LetterAnswer>,
}

/// How many deliveries a request concerned.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Deliveries {
    /// So many.
    deliveries: usize,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Filter {
    /// Also those that were sent or dropped, as far as they are kept.
    #[serde(default)]
    all: bool,
}

/// The mails that wait or are dead
#[utoipa::path(get, path = "/api/outbox", tag = "outbox", params(Filter), responses(
    (status = 200, description = "The mails", body = Letters),
    (status = 404, description = "No mail is sent at all", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn outbox(State(app): Asked, Query(filter): Query<Filter>) -> Result<Json<Letters>, Problem> {
    let letters = app.sources.outbox.list(filter.all).await?;
    Ok(Json(Letters { letters: letters.into_iter().map(LetterAnswer::from).collect() }))
}

/// Has a mail tried now, also a dead one
///
/// Needs the role operate.
#[utoipa::path(post, path = "/api/outbox/{number}/retry", tag = "outbox",
    params(("number" = u64, Path, description = "Its number in the outbox")), responses(
    (status = 200, description = "How many deliveries that are", body = Deliveries),
    (status = 404, description = "There is no such mail", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn retry(State(app): Asked, Path(number): Path<u64>) -> Result<Json<Deliveries>, Problem> {
    let deliveries = app.sources.outbox.retry(Which::Letter(number)).await?;
    Ok(Json(Deliveries { deliveries }))
}

/// Has a mail not tried any more
///
/// Needs the role operate.
#[utoipa::path(delete, path = "/api/outbox/{number}", tag = "outbox",
    params(("number" = u64, Path, description = "Its number in the outbox")), responses(
    (status = 200, description = "How many deliveries that are", body = Deliveries),
    (status = 404, description = "There is no such mail", body = Problem, content_type = "application/problem+json"),
))]
pub(in crate::api) async fn discard(State(app): Asked, Path(number): Path<u64>) -> Result<Json<Deliveries>, Problem> {
    let deliveries = app.sources.outbox.discard(Which::Letter(number)).await?;
    Ok(Json(Deliveries { deliveries }))
}
