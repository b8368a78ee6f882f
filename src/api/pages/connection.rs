//! A connection: how it stands and why, its calls one by one, its past, and the operator's word over it.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Form, FromRequestParts, Path, Query, State};
use axum::response::Response;
use minijinja::value::{Serde, Value};
use serde::{Deserialize, Serialize};

use super::order::order;
use super::part::{Row, When, connection_path};
use super::past::Past;
use super::{Asked, Page, said};
use crate::api::app::App;
use crate::api::guard::Caller;
use crate::api::problem::Problem;
use crate::api::routes::by;
use crate::api::routes::connections::{PinOrder, find, shown};
use crate::call::outcome::Outcome;
use crate::engine::request::{By, Request};
use crate::engine::view::ConnectionView;
use crate::ids::QualityKey;
use crate::quality::pin::Pin;
use crate::quality::window::Sample;
use crate::store::OUTCOMES;
use crate::store::history::Span;

/// Most calls of the window that are shown one by one: as many as a screen can tell apart.
const CALLS: usize = 200;

/// Most of them that are written out in the table, the latest.
const WRITTEN: usize = 50;

/// The page.
#[derive(Clone, FromRequestParts)]
pub(super) struct Connection {
    #[from_request(via(Path))]
    id: String,
    #[from_request(via(Query))]
    of: Of,
}

#[derive(Clone, Deserialize)]
struct Of {
    /// The route map, where connections are judged per map.
    map: Option<String>,
    #[serde(default)]
    span: Span,
    /// What was just done here.
    #[serde(default)]
    done: String,
}

#[derive(Serialize)]
struct Facts {
    row: Row,
    path: String,
    customer: Option<String>,
    done: String,
    ner: Option<f64>,
    monitored: bool,
    batch: Option<(usize, usize)>,
    pin: Option<String>,
    strip: Strip,
    failed: Vec<Failed>,
    unmapped: u64,
    maps: Vec<String>,
}

/// The window as a picture: a column for each call.
#[derive(Serialize)]
struct Strip {
    calls: Vec<Column>,
    /// Longest delay on the scale, in milliseconds.
    most_pdd_ms: u64,
    /// Calls by outcome, most frequent first.
    outcomes: Vec<Share>,
    written: Vec<Call>,
}

#[derive(Serialize)]
struct Column {
    /// The number of the outcome's colour.
    colour: usize,
    /// Height of the part above the line, from 0 to 1: the duration on a logarithmic scale.
    talk: f64,
    answered: bool,
    /// Length of the part below the line, from 0 to 1.
    delay: Option<f64>,
    words: String,
}

#[derive(Serialize)]
struct Share {
    colour: usize,
    name: &'static str,
    count: usize,
}

/// A call, written out.
#[derive(Serialize)]
struct Call {
    at: When,
    colour: usize,
    outcome: &'static str,
    code: Option<String>,
    pdd_ms: Option<u64>,
    duration_ms: Option<u64>,
}

/// A failed call.
#[derive(Serialize)]
struct Failed {
    at: When,
    node: String,
    number: Option<String>,
    cause: String,
}

impl Page for Connection {
    const TEMPLATE: &'static str = "connection.html";
    const LIVE: &'static [&'static str] = &["standing", "figures", "calls", "failed"];
    const PAST: &'static [&'static str] = &["plots"];

    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let connection = find(asked.view, &self.id, self.of.map.as_deref())?;
        let language = asked.look.language;
        let failed = connection.calls.failed.iter().map(|call| {
            let call = shown(call, asked.app.sources.mask_numbers);
            Failed {
                at: asked.when(call.at),
                node: call.node.to_string(),
                cause: said::cause(&call, language),
                number: call.number.map(|number| number.to_string()),
            }
        });
        Ok(Value::from(Serde(&Facts {
            row: Row::new(connection, asked),
            path: connection_path(&connection.key),
            customer: connection.customer.as_ref().map(ToString::to_string),
            done: self.of.done.clone(),
            ner: connection.figures.ner,
            monitored: connection.monitored,
            batch: connection.batch_done.map(|done| (done, connection.settings.retry_batch)),
            pin: connection.pinned.as_ref().map(|pinned| said::pinned(pinned, language, &asked.look.zone)),
            strip: Strip::of(connection, asked),
            failed: failed.collect(),
            unmapped: connection.unmapped,
            maps: maps(connection, asked),
        })))
    }

    async fn past(&self, asked: &Asked<'_>) -> Value {
        let Ok(connection) = find(asked.view, &self.id, self.of.map.as_deref()) else {
            return Value::from(Serde(&Past::default()));
        };
        minijinja::context! { past => Serde(&Past::of_connection(asked, connection, self.of.span).await) }
    }
}

/// The route maps that it is in.
fn maps(connection: &ConnectionView, asked: &Asked<'_>) -> Vec<String> {
    let maps = asked.view.maps.iter().filter(|map| connection.key.map.as_ref().is_none_or(|own| *own == map.id));
    let with = maps.filter(|map| map.routes.iter().any(|route| route.connection == connection.key.connection));
    with.map(|map| map.id.to_string()).collect()
}

fn colour(outcome: Outcome) -> usize {
    OUTCOMES.iter().position(|known| *known == outcome).unwrap_or_default()
}

/// The parts of one, each from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "for the eye")]
fn share(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

/// A duration on the scale of the strip: a second is little, ten minutes fill it.
#[expect(clippy::cast_precision_loss, reason = "for the eye")]
fn talk(ms: u64) -> f64 {
    ((ms as f64 / 1000.0).ln_1p() / 600_f64.ln_1p()).min(1.0)
}

impl Strip {
    fn of(connection: &ConnectionView, asked: &Asked<'_>) -> Self {
        let window = &connection.calls.window;
        let calls = &window[window.len().saturating_sub(CALLS)..];
        let threshold = connection.settings.pdd_threshold_sec.map(|secs| Duration::from_secs_f64(secs.max(0.0)));
        let threshold_ms = threshold.map_or(0, |threshold| u64::try_from(threshold.as_millis()).unwrap_or(u64::MAX));
        let most_pdd_ms = calls.iter().filter_map(|call| call.pdd_ms).max().unwrap_or(0).max(threshold_ms);
        let language = asked.look.language;
        let mut counts = [0; OUTCOMES.len()];
        window.iter().for_each(|call| counts[colour(call.outcome)] += 1);
        let mut outcomes: Vec<Share> = (0..OUTCOMES.len())
            .filter(|place| counts[*place] > 0)
            .map(|place| Share { colour: place, name: said::outcome(OUTCOMES[place], language), count: counts[place] })
            .collect();
        outcomes.sort_by_key(|share| std::cmp::Reverse(share.count));
        let column = |call: &Sample| Column {
            colour: colour(call.outcome),
            talk: talk(call.duration_ms.unwrap_or(0)),
            answered: call.outcome == Outcome::Answered,
            delay: call.pdd_ms.map(|ms| share(ms, most_pdd_ms)),
            words: said::attempt(call, language),
        };
        let written = |call: &Sample| Call {
            at: asked.when(call.ended_at),
            colour: colour(call.outcome),
            outcome: said::outcome(call.outcome, language),
            code: call.sip_status.map(|status| status.to_string()).or(call.cause.map(|cause| format!("Q.850 {cause}"))),
            pdd_ms: call.pdd_ms,
            duration_ms: call.duration_ms,
        };
        Self {
            calls: calls.iter().map(column).collect(),
            most_pdd_ms,
            outcomes,
            written: calls.iter().rev().take(WRITTEN).map(written).collect(),
        }
    }
}

/// A pin, as the form has it.
#[derive(Deserialize)]
pub(super) struct PinForm {
    pin: Pin,
    /// For how many seconds; 0: until told otherwise.
    for_sec: u64,
    why: String,
}

#[derive(Deserialize)]
pub(super) struct WhyForm {
    #[serde(default)]
    why: String,
}

/// Which connection a form is about.
#[derive(FromRequestParts)]
pub(super) struct Target {
    #[from_request(via(Path))]
    id: String,
    #[from_request(via(Query))]
    which: Which,
}

#[derive(Deserialize)]
struct Which {
    map: Option<String>,
}

impl Target {
    /// Has the engine do what the form orders, and leads back to the page.
    async fn order(
        self,
        app: &App,
        by: By,
        done: &str,
        request: impl FnOnce(QualityKey, By) -> Request,
    ) -> Result<Response, Problem> {
        let key = find(&app.view(), &self.id, self.which.map.as_deref())?.key.clone();
        let page = connection_path(&key);
        order(app, request(key, by), &page, done).await
    }
}

/// `POST /connections/{id}/pin`
pub(super) async fn pin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    target: Target,
    Form(form): Form<PinForm>,
) -> Result<Response, Problem> {
    if form.why.trim().is_empty() {
        return Err(Problem::illegal("say why: others will want to know"));
    }
    let until = PinOrder::for_sec(form.pin, form.for_sec).ends(app.sources.clock.now())?;
    let request = |key, by| Request::Pin { key, pin: Some(form.pin), until, by };
    target.order(&app, by(&caller, &form.why)?, "pinned", request).await
}

/// `POST /connections/{id}/unpin`
pub(super) async fn unpin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    target: Target,
    Form(form): Form<WhyForm>,
) -> Result<Response, Problem> {
    let request = |key, by| Request::Pin { key, pin: None, until: None, by };
    target.order(&app, by(&caller, &form.why)?, "unpinned", request).await
}

/// `POST /connections/{id}/reset`
pub(super) async fn reset(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    target: Target,
    Form(form): Form<WhyForm>,
) -> Result<Response, Problem> {
    target.order(&app, by(&caller, &form.why)?, "reset", |key, by| Request::Reset { key, by }).await
}
