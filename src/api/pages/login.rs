//! Logging in with a browser: a form takes a token once, and a cookie stands for it from then on.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Form, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use minijinja::context;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::look::Look;
use super::paint;
use crate::api::app::App;
use crate::api::guard::{Caller, Peer};
use crate::api::problem::Problem;
use crate::api::session;
use crate::time::Timestamp;

/// Longest form: a token and a path, each of whose characters may become three.
pub(super) const MAX_FORM: usize = 4096;

/// Longest path to go to after logging in, so that the form with it stays short enough; longer ones are not ours.
const MAX_NEXT: usize = 1000;

/// What is answered in other forms than pages.
const NO_PAGES: [&str; 4] = ["/api", "/metrics", "/healthz", "/readyz"];

/// How long a wrong token waits for its answer.
const WRONG_WAIT: Duration = Duration::from_millis(500);

/// Most wrong tokens that wait at a time; each is a connection that others cannot use meanwhile.
const WRONG_WAITING: usize = 8;

/// How often wrong tokens are told of in the log.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Wrong tokens.
///
/// A right one goes in at once, whatever else is tried meanwhile: nobody can lock the operators out. So this is no bar to
/// guessing, which the length of tokens is; it keeps who tries from filling the log, and from hurrying.
pub(in crate::api) struct Failures {
    places: Semaphore,
    tally: Mutex<Tally>,
}

impl Default for Failures {
    fn default() -> Self {
        Self { places: Semaphore::new(WRONG_WAITING), tally: Mutex::default() }
    }
}

impl Failures {
    /// Has a wrong token wait; false, at once, where enough of them do.
    async fn wait(&self) -> bool {
        let Ok(_place) = self.places.try_acquire() else { return false };
        tokio::time::sleep(WRONG_WAIT).await;
        true
    }

    /// How many are to be told of now, this one included.
    fn count(&self, now: Timestamp) -> Option<u64> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).count(now)
    }
}

#[derive(Default)]
struct Tally {
    told_at: Option<Timestamp>,
    untold: u64,
}

impl Tally {
    fn count(&mut self, now: Timestamp) -> Option<u64> {
        self.untold += 1;
        if self.told_at.is_some_and(|told| now.since(told) < TELL_EVERY) {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(super) struct Asked {
    next: String,
    /// Anything, where the browser was sent here by a page of ours.
    again: String,
}

#[derive(Deserialize)]
pub(super) struct Shown {
    #[serde(default)]
    token: SecretString,
    #[serde(default)]
    next: String,
}

/// `GET /login`
///
/// Who comes by a link in a mail or on a page of others comes without the session, which goes with what our own pages
/// begin only. So the browser is sent here once more, by a page of ours.
pub(super) async fn form(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    look: Look,
    headers: HeaderMap,
    Query(asked): Query<Asked>,
) -> Response {
    let next = own_path(&asked.next);
    if caller.is_known() || !app.guard.has_tokens() {
        return Redirect::to(next).into_response();
    }
    if asked.again.is_empty() && comes_from_elsewhere(&headers) {
        let again = format!("{}&again=1", path_with(next));
        return shown(paint(&app, &look, &path_with(next), "onward.html", context! { again }).await);
    }
    page(&app, &look, next, "").await
}

/// Whether the browser may have kept the session to itself. Without TLS, some do not say where they come from.
fn comes_from_elsewhere(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_none_or(|site| site != "same-origin" && site != "none")
}

/// `POST /login`
pub(super) async fn log_in(
    State(app): State<App>,
    Extension(Peer(peer)): Extension<Peer>,
    look: Look,
    headers: HeaderMap,
    Form(shown): Form<Shown>,
) -> Response {
    let next = own_path(&shown.next);
    if !app.guard.has_tokens() {
        return Redirect::to(next).into_response();
    }
    let (peer, now) = (peer.ip().to_canonical(), app.sources.clock.now());
    let Some((name, session)) = app.guard.open_session(shown.token.expose_secret().trim(), now) else {
        return refuse(&app, &look, peer, next, now).await;
    };
    tracing::info!(token = &*name, %peer, "{name} logged in from {peer}");
    ([(header::SET_COOKIE, session::keep(&session, is_secure(&headers)))], Redirect::to(next)).into_response()
}

async fn refuse(app: &App, look: &Look, peer: IpAddr, next: &str, now: Timestamp) -> Response {
    if let Some(tries) = app.failures.count(now) {
        tracing::warn!(tries, %peer, "wrong tokens at the login: {tries} since this was told last, the last from {peer}");
    }
    let (status, header, trouble) = if app.failures.wait().await {
        (StatusCode::UNAUTHORIZED, (header::WWW_AUTHENTICATE, "Bearer"), "wrong")
    } else {
        (StatusCode::TOO_MANY_REQUESTS, (header::RETRY_AFTER, "1"), "busy")
    };
    (status, [header], page(app, look, next, trouble).await).into_response()
}

/// `POST /logout`
pub(super) async fn log_out(headers: HeaderMap) -> impl IntoResponse {
    ([(header::SET_COOKIE, session::forget(is_secure(&headers)))], Redirect::to("/login"))
}

/// Whether the browser came over TLS, which a proxy before us ends.
fn is_secure(headers: &HeaderMap) -> bool {
    headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// The form; `trouble` says why it is shown again, as the words of the page name it.
async fn page(app: &App, look: &Look, next: &str, trouble: &str) -> Response {
    shown(paint(app, look, &path_with(next), "login.html", context! { next, trouble }).await)
}

fn shown(painted: Result<String, Problem>) -> Response {
    painted.map(Html).into_response()
}

/// Where the login is for who wants to go there.
fn path_with(next: &str) -> String {
    format!("/login?next={}", utf8_percent_encode(next, NON_ALPHANUMERIC))
}

/// Whether this asks for a page, with a browser that could show the login instead.
pub(in crate::api) fn is_for_page(request: &Parts) -> bool {
    [Method::GET, Method::HEAD].contains(&request.method) && wants_page(request)
}

/// Whether a person's browser asks, for something that is a page. One that shows a token of its own could not get rid of
/// it by a login.
pub(in crate::api) fn wants_page(request: &Parts) -> bool {
    let path = request.uri.path();
    let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let html = |accept: &HeaderValue| accept.to_str().is_ok_and(|accept| accept.contains("text/html"));
    !request.headers.contains_key(header::AUTHORIZATION)
        && request.headers.get_all(header::ACCEPT).iter().any(html)
        && !NO_PAGES.into_iter().any(below)
}

/// To the login, and from there to where this was.
pub(in crate::api) fn lead_to(uri: &Uri) -> Response {
    let next = own_path(uri.path_and_query().map_or("/", |path| path.as_str()));
    Redirect::to(&path_with(next)).into_response()
}

/// Where to go after logging in: a path of ours as a browser reads it, else the first page. Browsers leave tabs and line
/// breaks out, take `\` for `/`, and what begins with two of them for another host.
pub(super) fn own_path(next: &str) -> &str {
    let plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let ours = next.starts_with('/') && !next.starts_with("//") && plain && next.len() <= MAX_NEXT;
    if ours { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[test]
    fn only_a_path_of_ours_is_followed() {
        for own in
            ["/", "/connections/vendor-a?map=intl&span=7d", "/a//b", "/%0d%0a", "/%5Cevil", "/?next=//evil", "/a:b@c"]
        {
            assert_eq!(own_path(own), own);
        }
        let longest = format!("/{}", "x".repeat(MAX_NEXT - 1));
        assert_eq!(own_path(&longest), longest);
        let long = format!("{longest}x");
        for foreign in [
            "",
            "connections",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\/evil.example",
            "/a\\b",
            "https:",
            "https://evil.example/",
            "javascript:alert(1)",
            " /",
            "\t/",
            "/\t/evil.example",
            "/\n/evil.example",
            "/\r\nset-cookie: a=b",
            "/\0",
            "/\u{7f}",
            "/a b",
            "/\u{2028}/evil",
            "/соединения",
            long.as_str(),
        ] {
            assert_eq!(own_path(foreign), "/", "{foreign:?}");
        }
    }

    fn location(uri: &str) -> String {
        let answer = lead_to(&uri.parse().unwrap());
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        answer.headers()[header::LOCATION].to_str().unwrap().to_owned()
    }

    #[test]
    fn the_login_knows_where_one_wanted_to_go() {
        assert_eq!(location("/"), "/login?next=%2F");
        assert_eq!(
            location("/connections/a%20b?map=x&span=7d"),
            "/login?next=%2Fconnections%2Fa%2520b%3Fmap%3Dx%26span%3D7d"
        );
        for uri in ["//evil.example", "/\\evil.example", &format!("/{}", "x".repeat(MAX_NEXT))] {
            assert_eq!(location(uri), "/login?next=%2F", "{uri}");
        }
    }

    #[test]
    fn a_browser_that_wants_a_page_is_led_to_the_login() {
        const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
        let led = |method: &str, uri: &str, headers: &[(&str, &str)]| {
            let request = Request::builder().method(method).uri(uri);
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            is_for_page(&request.body(()).unwrap().into_parts().0)
        };
        for uri in ["/", "/connections/a?span=7d", "/nothing", "/apis", "/metrics2"] {
            assert!(led("GET", uri, &[BROWSER]) && led("HEAD", uri, &[BROWSER]), "{uri}");
            assert!(!led("POST", uri, &[BROWSER]), "{uri}");
            assert!(!led("GET", uri, &[]) && !led("GET", uri, &[("accept", "text/event-stream")]), "{uri}");
            assert!(!led("GET", uri, &[BROWSER, ("authorization", "Basic x")]), "it would come back for ever: {uri}");
        }
        for uri in ["/api", "/api/nodes", "/api?x", "/metrics", "/healthz", "/readyz", "/api/"] {
            assert!(!led("GET", uri, &[BROWSER]), "{uri}");
        }
    }

    #[test]
    fn the_log_tells_of_wrong_tokens_now_and_then() {
        let mut tally = Tally::default();
        let counted: Vec<_> = [0, 1, 4, 5, 6, 20].map(|at| tally.count(Timestamp::from_secs(at))).into();
        assert_eq!(counted, [Some(1), None, None, Some(3), None, Some(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wrong_tokens_wait_and_the_others_do_not() {
        let failures = Failures::default();
        let all = futures_util::future::join_all((0..WRONG_WAITING + 2).map(|_| failures.wait()));
        let waited = all.await;
        assert_eq!(waited, [vec![true; WRONG_WAITING], vec![false; 2]].concat());
        assert!(failures.wait().await, "those before are done");
    }
}
