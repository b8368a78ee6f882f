//! Connections: their states, what led to them, and the operator's word over them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Asked, Who, by};
use crate::api::app::Shared;
use crate::api::problem::Problem;
use crate::engine::request::Request;
use crate::engine::view::{ConnectionView, View};
use crate::ids::{ConnectionId, MapId, QualityKey};
use crate::notify::notice::FailedCall;
use crate::notify::render::shown_number;
use crate::quality::pin::{self, Pin};
use crate::quality::window::Sample;
use crate::time::Timestamp;

/// Longest `for_sec`.
const MAX_PIN_SEC: u64 = pin::LONGEST.as_secs();

/// A connection.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ConnectionAnswer<'a> {
    #[serde(flatten)]
    connection: &'a ConnectionView,
    /// Seconds until it is tried again, while bad.
    retry_in_sec: Option<f64>,
}

impl<'a> ConnectionAnswer<'a> {
    fn new(connection: &'a ConnectionView, now: Timestamp) -> Self {
        Self { connection, retry_in_sec: connection.retry_at.map(|at| at.since(now).as_secs_f64()) }
    }
}

/// The connections.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Connections<'a> {
    /// When the picture was made.
    at: Timestamp,
    /// The connections, or pairs of connection and map, in the order configured.
    connections: Vec<ConnectionAnswer<'a>>,
}

/// A connection with its calls.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ConnectionDetail<'a> {
    #[serde(flatten)]
    answer: ConnectionAnswer<'a>,
    /// The calls that the figures are over, oldest end first.
    window: &'a [Sample],
    /// The last failed calls, newest first; the digits of their numbers are masked as in mails.
    failed: Vec<FailedCall>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Which {
    /// The route map, where connections are judged per map.
    map: Option<String>,
}

/// All connections
#[utoipa::path(get, path = "/api/connections", tag = "connections", responses(
    (status = 200, description = "The connections", body = Connections<'_>),
))]
pub(in crate::api) async fn connections(State(app): Asked) -> Response {
    let (view, now) = (app.view(), app.sources.clock.now());
    let connections = view.connections.iter().map(|connection| ConnectionAnswer::new(connection, now)).collect();
    Json(Connections { at: view.at, connections }).into_response()
}

/// A connection
///
/// Its state and why, the figures against their thresholds, the time left until it is tried again, its pin, and its calls
/// one by one.
#[utoipa::path(get, path = "/api/connections/{id}", tag = "connections",
    params(("id" = String, Path, description = "Its id"), Which), responses(
    (status = 200, description = "The connection", body = ConnectionDetail<'_>),
    (status = 404, description = "There is no such connection", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn connection(
    State(app): Asked,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Result<Response, Problem> {
    let view = app.view();
    let connection = find(&view, &id, which.map.as_deref())?;
    let detail = ConnectionDetail {
        answer: ConnectionAnswer::new(connection, app.sources.clock.now()),
        window: &connection.calls.window,
        failed: connection.calls.failed.iter().map(|call| shown(call, app.sources.mask_numbers)).collect(),
    };
    Ok(Json(detail).into_response())
}

pub(in crate::api) fn shown(call: &FailedCall, masked: bool) -> FailedCall {
    let number = call.number.as_deref().and_then(|number| shown_number(number, masked));
    FailedCall { number: number.map(Arc::from), ..call.clone() }
}

/// A pin.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct PinOrder {
    /// How the connection is routed, whatever its figures are.
    pin: Pin,
    /// Until when, as RFC 3339 says it: `2026-12-24T18:00:00Z`. Without this and `for_sec`: until told otherwise.
    #[schema(format = DateTime)]
    until: Option<String>,
    /// For how long, in seconds, instead of `until`.
    #[schema(minimum = 1, maximum = 316_224_000)]
    for_sec: Option<u64>,
    /// Why, for the audit; at most 500 characters on one line.
    #[serde(default)]
    #[schema(max_length = 500, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    why: String,
}

impl PinOrder {
    /// A pin for so many seconds; 0: until told otherwise.
    pub(in crate::api) fn for_sec(pin: Pin, secs: u64) -> Self {
        Self { pin, until: None, for_sec: Some(secs).filter(|secs| *secs > 0), why: String::new() }
    }

    pub(in crate::api) fn ends(&self, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
        let illegal = |detail: String| Err(Problem::illegal(detail));
        match (&self.until, self.for_sec) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => illegal("until and for_sec: give one of them".to_owned()),
            (None, Some(secs)) if (1..=MAX_PIN_SEC).contains(&secs) => Ok(Some(now.after(Duration::from_secs(secs)))),
            (None, Some(_)) => illegal(format!("for_sec: from 1 to {MAX_PIN_SEC}")),
            (Some(text), None) => match text.parse::<jiff::Timestamp>() {
                Err(error) => illegal(format!("until: {error}; write it as 2026-12-24T18:00:00Z")),
                Ok(at) if at.as_microsecond() <= now.as_micros() => illegal(format!("until: {at} is over")),
                Ok(at) => Ok(Some(Timestamp::from_micros(at.as_microsecond()))),
            },
        }
    }
}

/// Pins a connection: it is routed as said, whatever its figures are
///
/// It goes on being measured and judged meanwhile. Survives a restart; ends by itself where it has an end. Needs the role
/// operate.
#[utoipa::path(put, path = "/api/connections/{id}/pin", tag = "connections",
    params(("id" = String, Path, description = "The connection's id"), Which), request_body = PinOrder, responses(
    (status = 204, description = "Done"),
    (status = 404, description = "There is no such connection", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn put_pin(
    State(app): Asked,
    Extension(caller): Who,
    Path(id): Path<String>,
    Query(which): Query<Which>,
    Json(order): Json<PinOrder>,
) -> Result<StatusCode, Problem> {
    let until = order.ends(app.sources.clock.now())?;
    let key = key(&app, &id, which.map.as_deref())?;
    ask(&app, Request::Pin { key, pin: Some(order.pin), until, by: by(&caller, &order.why)? }).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct WhichAndWhy {
    /// The route map, where connections are judged per map.
    map: Option<String>,
    /// Why, for the audit; at most 500 characters on one line.
    #[serde(default)]
    #[param(max_length = 500, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    why: String,
}

/// Ends a pin
///
/// Needs the role operate.
#[utoipa::path(delete, path = "/api/connections/{id}/pin", tag = "connections",
    params(("id" = String, Path, description = "The connection's id"), WhichAndWhy), responses(
    (status = 204, description = "Done, or there was none"),
    (status = 404, description = "There is no such connection", body = Problem,
     content_type = "application/problem+json"),
    (status = 422, description = "A reason that is too long", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn delete_pin(
    State(app): Asked,
    Extension(caller): Who,
    Path(id): Path<String>,
    Query(which): Query<WhichAndWhy>,
) -> Result<StatusCode, Problem> {
    let key = key(&app, &id, which.map.as_deref())?;
    ask(&app, Request::Pin { key, pin: None, until: None, by: by(&caller, &which.why)? }).await
}

/// Why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Why {
    /// Why, for the audit; at most 500 characters on one line.
    #[serde(default)]
    #[schema(max_length = 500, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    why: String,
}

/// Has a connection begin anew: good, with an empty window, without a pin
///
/// Needs the role operate.
#[utoipa::path(post, path = "/api/connections/{id}/reset", tag = "connections",
    params(("id" = String, Path, description = "The connection's id"), Which), request_body = Why, responses(
    (status = 204, description = "Done"),
    (status = 404, description = "There is no such connection", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn reset(
    State(app): Asked,
    Extension(caller): Who,
    Path(id): Path<String>,
    Query(which): Query<Which>,
    Json(why): Json<Why>,
) -> Result<StatusCode, Problem> {
    let key = key(&app, &id, which.map.as_deref())?;
    ask(&app, Request::Reset { key, by: by(&caller, &why.why)? }).await
}

async fn ask(app: &Shared, request: Request) -> Result<StatusCode, Problem> {
    app.sources.desk.ask(request).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn key(app: &Shared, id: &str, map: Option<&str>) -> Result<QualityKey, Problem> {
    find(&app.view(), id, map).map(|connection| connection.key.clone())
}

pub(in crate::api) fn find<'a>(view: &'a View, id: &str, map: Option<&str>) -> Result<&'a ConnectionView, Problem> {
    let named = || view.connections.iter().filter(|connection| connection.key.connection.as_str() == id);
    let found = named().find(|connection| connection.key.map.as_ref().map(MapId::as_str) == map);
    found.ok_or_else(|| {
        let maps: Vec<&str> = named().filter_map(|connection| connection.key.map.as_ref()).map(MapId::as_str).collect();
        Problem::not_found(match (named().next(), maps.as_slice()) {
            (None, _) => format!("there is no connection {id:?}; /api/connections lists them"),
            (Some(_), []) => format!("{id} is judged over all maps: ask without ?map="),
            (Some(_), maps) => format!("{id} is judged per map: add ?map= with one of {}", maps.join(", ")),
        })
    })
}

/// Whether `text` names this connection.
pub(super) fn is_named(id: &ConnectionId, text: Option<&str>) -> bool {
    text.is_none_or(|text| text == id.as_str())
}
