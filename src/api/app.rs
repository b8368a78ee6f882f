//! The router, and what stands around every path of it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::guard::Guard;
use super::metrics::Metrics;
use super::pages::login::{self, Failures};
use super::problem::{self, Problem};
use super::{Limits, MAX_BODY, Sources, openapi, pages};
use crate::engine::view::View;
use crate::tasks::Tasks;

/// What a page may load, and from where it may be shown: ours and nothing else, no script or style within the page, in no
/// frame. So text that slipped into a page unescaped could still do nothing.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What the handlers share.
pub(super) struct Shared {
    pub(super) sources: Sources,
    pub(super) limits: Limits,
    pub(super) guard: Guard,
    pub(super) metrics: Metrics,
    /// Places for event streams.
    pub(super) streams: Arc<Semaphore>,
    pub(super) failures: Failures,
    pub(super) tasks: Tasks,
    /// The document, as it is answered.
    pub(super) document: String,
    /// Where the pages of the dashboard are painted.
    pub(super) studio: pages::Studio,
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
    let (tasks, failures, studio) = (tasks.clone(), Failures::default(), pages::Studio::new());
    let app: App = Arc::new(Shared { sources, limits, guard, metrics, streams, failures, tasks, document, studio });
    router
        .merge(pages::routes(&app))
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
    protect(response.headers_mut());
    response
}

/// What browsers are told of every answer; its own word on what it may load and how long it keeps goes before.
fn protect(headers: &mut HeaderMap) {
    let always = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in always {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if problem::is_page(headers) {
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(PAGE_POLICY));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Lets nobody in who may not.
async fn admit(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match app.guard.admit(&parts, app.sources.clock.now()) {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(problem) => {
            let mut response = problem.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                if login::is_for_page(&parts) {
                    return login::lead_to(&parts.uri);
                }
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // Whoever sent a form reads a page.
            pages::explain(&app, &parts, response).await
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
