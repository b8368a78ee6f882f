//! What connections and nodes did over time, out of the database.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Asked;
use super::connections::find;
use super::nodes::no_such;
use crate::api::app::App;
use crate::api::problem::Problem;
use crate::config::model::Language;
use crate::engine::view::ConnectionView;
use crate::plot::{Metric, Plot, Size, Stretch, stretches};
use crate::store::history::{HistoryError, MOST_CHANGES, Series, Span, Wanted};
use crate::store::{Tally, Whose};
use crate::time::Timestamp;

/// A picture by itself loads nothing and runs nothing; only its own style is used.
const PLOT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

impl From<HistoryError> for Problem {
    fn from(why: HistoryError) -> Self {
        Self::unavailable(why.to_string())
    }
}

/// Attempts by outcome.
#[derive(Debug, Serialize, ToSchema)]
struct Outcomes {
    answered: u64,
    busy: u64,
    no_answer: u64,
    rejected: u64,
    number_invalid: u64,
    vendor_failed: u64,
    caller_gone: u64,
    lost_race: u64,
    not_sent: u64,
    lost: u64,
}

/// The figures over some time; each is null where there was nothing to measure.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Sums {
    /// Attempts that count as calls sent.
    calls: Option<u64>,
    /// Answer-seizure ratio in percent.
    asr: Option<f64>,
    /// Average call duration in seconds.
    acd: Option<f64>,
    /// Mean post-dial delay in seconds.
    pdd: Option<f64>,
    /// Network effectiveness ratio (ITU-T E.425) in percent.
    ner: Option<f64>,
    /// All attempts by outcome; some outcomes are no calls sent.
    outcomes: Option<Outcomes>,
    /// Most calls that were up at a time; of nodes only.
    max_active: Option<u64>,
}

impl From<&Tally> for Sums {
    fn from(tally: &Tally) -> Self {
        let figures = tally.figures();
        let [
            answered,
            busy,
            no_answer,
            rejected,
            number_invalid,
            vendor_failed,
            caller_gone,
            lost_race,
            not_sent,
            lost,
        ] = tally.outcomes;
        let outcomes = Outcomes {
            answered,
            busy,
            no_answer,
            rejected,
            number_invalid,
            vendor_failed,
            caller_gone,
            lost_race,
            not_sent,
            lost,
        };
        Self {
            calls: Some(tally.calls),
            asr: figures.asr,
            acd: figures.acd,
            pdd: figures.pdd,
            ner: figures.ner,
            outcomes: Some(outcomes),
            max_active: Some(tally.max_active).filter(|active| *active > 0),
        }
    }
}

/// The figures over a bucket of time.
#[derive(Debug, Serialize, ToSchema)]
struct Bucket {
    /// Where it begins.
    at: Timestamp,
    #[serde(flatten)]
    sums: Sums,
}

/// The figures over a span of time.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct HistoryAnswer {
    /// How long it is.
    span: Span,
    /// Where it begins.
    from: Timestamp,
    /// Where its last bucket ends, which is not over yet.
    to: Timestamp,
    /// Length of a bucket, in seconds.
    bucket_sec: u64,
    /// The figures over all of it.
    total: Sums,
    /// Its buckets, oldest first. One in which nothing was counted is all null.
    buckets: Vec<Bucket>,
}

impl HistoryAnswer {
    fn new(span: Span, series: &Series) -> Self {
        let sums = |tally: Option<&Tally>| tally.map_or_else(Sums::default, Sums::from);
        Self {
            span,
            from: series.from,
            to: series.to,
            bucket_sec: series.bucket.as_secs(),
            total: sums(series.total().as_ref()),
            buckets: series.buckets().map(|(at, tally)| Bucket { at, sums: sums(tally) }).collect(),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct OfConnection {
    /// How far back; 24h unless said otherwise.
    #[serde(default)]
    #[param(required = false)]
    span: Span,
    /// The route map, where connections are judged per map.
    map: Option<String>,
}

/// What a connection did over time
///
/// Out of the database, in at most 400 buckets of equal length.
#[utoipa::path(get, path = "/api/connections/{id}/history", tag = "connections",
    params(("id" = String, Path, description = "Its id"), OfConnection), responses(
    (status = 200, description = "The figures", body = HistoryAnswer),
    (status = 404, description = "There is no such connection", body = Problem,
     content_type = "application/problem+json"),
    (status = 503, description = "The database cannot be read now", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn connection(
    State(app): Asked,
    Path(id): Path<String>,
    Query(OfConnection { span, map }): Query<OfConnection>,
) -> Result<Json<HistoryAnswer>, Problem> {
    let whose = Whose::Connection(find(&app.view(), &id, map.as_deref())?.key.clone());
    let series = app.sources.history.series(&whose, span, app.sources.clock.now()).await?;
    Ok(Json(HistoryAnswer::new(span, &series)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct OfNode {
    /// How far back; 24h unless said otherwise.
    #[serde(default)]
    #[param(required = false)]
    span: Span,
}

/// What a node did over time
///
/// Out of the database, in at most 400 buckets of equal length.
#[utoipa::path(get, path = "/api/nodes/{id}/history", tag = "nodes",
    params(("id" = String, Path, description = "Its id"), OfNode), responses(
    (status = 200, description = "The figures", body = HistoryAnswer),
    (status = 404, description = "There is no such node", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "The database cannot be read now", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn node(
    State(app): Asked,
    Path(id): Path<String>,
    Query(OfNode { span }): Query<OfNode>,
) -> Result<Json<HistoryAnswer>, Problem> {
    let view = app.view();
    let node = view.nodes.iter().find(|node| node.id.as_str() == id).ok_or_else(|| no_such(&id))?;
    let series = app.sources.history.series(&Whose::Node(node.id.clone()), span, app.sources.clock.now()).await?;
    Ok(Json(HistoryAnswer::new(span, &series)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct OfPlot {
    /// Of what.
    #[param(inline)]
    metric: Metric,
    /// How far back; 24h unless said otherwise.
    #[serde(default)]
    #[param(required = false)]
    span: Span,
    /// The route map, where connections are judged per map.
    map: Option<String>,
    /// Language: en (unless said otherwise) or ru.
    #[serde(default)]
    #[param(required = false, value_type = String, pattern = "^(en|ru)$")]
    lang: Language,
    /// Time zone, as in `Europe/Berlin`; UTC unless said otherwise.
    zone: Option<String>,
    /// For which width.
    #[serde(default)]
    #[param(required = false, inline)]
    size: Size,
}

/// What a connection did over time, as a picture
///
/// With its threshold, the times in which it was bad (red) or on retry (yellow), and its changes of state, as far as the
/// database has them. It has a description in words, and follows the light or dark of its reader.
#[utoipa::path(get, path = "/api/connections/{id}/plot.svg", tag = "connections",
    params(("id" = String, Path, description = "Its id"), OfPlot), responses(
    (status = 200, description = "The plot", body = String, content_type = "image/svg+xml"),
    (status = 404, description = "There is no such connection", body = Problem,
     content_type = "application/problem+json"),
    (status = 422, description = "There is no such time zone", body = Problem,
     content_type = "application/problem+json"),
    (status = 503, description = "The database cannot be read now", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn plot(
    State(app): Asked,
    Path(id): Path<String>,
    Query(OfPlot { metric, span, map, lang, zone, size }): Query<OfPlot>,
) -> Result<Response, Problem> {
    let zone = zone.as_deref().map_or(Ok(TimeZone::UTC), TimeZone::get);
    let zone = zone.map_err(|error| Problem::illegal(format!("zone: {error}")))?;
    let view = app.view();
    let connection = find(&view, &id, map.as_deref())?;
    let gathered = Gathered::of(&app, connection, span).await?;
    let subject = connection.key.to_string();
    let plot = Plot { language: lang, size, ..gathered.plot(&subject, metric, connection, &zone) };
    Ok(([(header::CONTENT_TYPE, "image/svg+xml"), (header::CONTENT_SECURITY_POLICY, PLOT_POLICY)], plot.document())
        .into_response())
}

/// What the plots of a connection are made of.
pub(in crate::api) struct Gathered {
    series: Series,
    states: Vec<Stretch>,
    changes: Vec<Timestamp>,
}

impl Gathered {
    /// Reads it out of the database.
    ///
    /// # Errors
    /// Where that cannot be read now.
    pub(in crate::api) async fn of(app: &App, connection: &ConnectionView, span: Span) -> Result<Self, HistoryError> {
        let (key, history, now) = (&connection.key, &app.sources.history, app.sources.clock.now());
        let series = history.series(&Whose::Connection(key.clone()), span, now).await?;
        let wanted = Wanted {
            connection: Some(key.connection.clone()),
            map: Some(key.map.clone()),
            from: Some(series.from),
            limit: MOST_CHANGES,
            ..Wanted::default()
        };
        let page = history.changes(&wanted).await?;
        let changes = page.changes.iter().map(|row| &row.change);
        let end = series.to.min(now);
        let states = stretches(changes.clone(), !page.more, connection.state, series.from, end);
        let changes = changes.map(|change| change.at).collect();
        Ok(Self { series, states, changes })
    }

    /// A plot of it, in English.
    pub(in crate::api) fn plot<'a>(
        &'a self,
        subject: &'a str,
        metric: Metric,
        connection: &ConnectionView,
        zone: &'a TimeZone,
    ) -> Plot<'a> {
        let settings = &connection.settings;
        let limit = match metric {
            Metric::Asr => settings.asr_threshold_percent,
            Metric::Acd => settings.acd_threshold_sec,
            Metric::Pdd => settings.pdd_threshold_sec,
            Metric::Attempts | Metric::Outcomes => None,
        };
        Plot { metric, limit, states: &self.states, changes: &self.changes, ..Plot::plain(subject, &self.series, zone) }
    }
}
