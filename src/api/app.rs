//! The router, and what stands around every path of it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::guard::Guard;
use super::metrics::Metrics;
use super::problem::{self, Problem};
use super::{Limits, MAX_BODY, Sources, openapi};
use crate::engine::view::View;
use crate::tasks::Tasks;

/// What the handlers share.
pub(super) struct Shared {
    pub(super) sources: Sources,
    pub(super) limits: Limits,
    pub(super) guard: Guard,
    pub(super) metrics: Metrics,
    /// Places for event streams.
    pub(super) streams: Arc<Semaphore>,
    pub(super) tasks: Tasks,
    /// The document, as it is answered.
    pub(super) document: String,
}

/// [`Shared`], cheap to clone.
pub(super) type App = Arc<Shared>;

impl Shared {
    /// The picture now.
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.sources.view.borrow())
    }
}

/// The router with everything around it.
pub(super) fn router(sources: Sources, guard: Guard, limits: Limits, places: &Arc<Semaphore>, tasks: &Tasks) -> Router {
    let (router, document) = openapi::routes().split_for_parts();
    let streams = Arc::new(Semaphore::new(limits.streams));
    let metrics = Metrics::new(&sources, &limits, places, &streams, tasks);
    let document = openapi::finish(document).to_string();
    let app: App = Arc::new(Shared { sources, limits, guard, metrics, streams, tasks: tasks.clone(), document });
    router
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(app.clone(), limit_time))
        .layer(from_fn_with_state(app.clone(), admit))
        .layer(from_fn_with_state(app.clone(), observe))
        .with_state(app)
}

/// Counts, measures, and gives errors their form.
async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let begun = app.sources.clock.now();
    let response = next.run(request).await;
    let took = app.sources.clock.now().since(begun) / app.sources.clock.rate();
    let route = route.as_ref().map(MatchedPath::as_str);
    app.metrics.count(route, &method, response.status(), took);
    tracing::debug!(%method, path, status = response.status().as_u16(), ?took, "HTTP");
    let mut response = problem::finish(response, &path).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Lets nobody in who may not.
async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match app.guard.admit(&parts) {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(problem) => {
            let mut response = problem.into_response();
            if response.status() == axum::http::StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}

/// Waits for no request longer than the limit. What streams has answered by then.
async fn limit_time(State(app): State<App>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(app.limits.request, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("not done within {} s; a change may still come to be", app.limits.request.as_secs());
            Problem::unavailable(detail).into_response()
        }
    }
}
