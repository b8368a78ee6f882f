//! The dashboard: what pointsman sees and why it did what it did, for people.
//!
//! A page is painted on the server, of the picture and the past, and works without a script. Parts of it are painted anew
//! as the picture changes; a script of ours puts them into the page. Nothing here asks the engine anything but what an
//! operator orders by a form.
//!
//! ```text
//! login     a token for a cookie
//! look      who looks: language, light or dark, time zone
//! overview, connections, ...   a page: its address, and the facts on it
//!   said      what the facts are called, in each language
//!   part      facts that several pages show
//!   hunt      a hunt order against the order as written
//!   question  what a call would try, asked by a form
//! paint     templates, with the words of each language; one painting at a time
//! live      the parts that change, to everybody who looks
//! assets    style sheet, script, icon
//! ```

mod assets;
mod changes;
mod connection;
mod connections;
mod edges;
mod hunt;
mod live;
pub(super) mod login;
mod look;
mod map;
mod maps;
mod node;
mod order;
mod overview;
mod paint;
mod part;
mod past;
mod question;
mod said;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, OriginalUri, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::app::App;
use super::problem::{self, Problem};
use crate::engine::view::View;
use crate::time::Timestamp;
use look::Look;

pub(super) use paint::Studio;

/// A page, with what it is about, as its address says.
trait Page: FromRequestParts<App, Rejection: Send> + Clone + Send + Sync + 'static {
    /// Its template.
    const TEMPLATE: &'static str;
    /// Its parts that follow the picture: blocks of the template, each within an element of the same id.
    const LIVE: &'static [&'static str];
    /// Its parts that follow the past; they are made of [`Page::past`].
    const PAST: &'static [&'static str] = &[];

    /// What is on it, of the picture.
    ///
    /// # Errors
    /// Where the picture has no such thing.
    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem>;

    /// What is on it, of the past. What cannot be read is a fact to show, and no error.
    fn past(&self, _asked: &Asked<'_>) -> impl Future<Output = Value> + Send {
        std::future::ready(no_facts())
    }

    /// Has the past read at once, and not only now and then: whenever this is another.
    fn past_mark(&self, _view: &View) -> Option<String> {
        None
    }

    /// What is on it when it is opened, and does not change by itself: it is made once, and never for the stream of its
    /// parts. So it may take time and ask others, and no part that follows anything may be made of it.
    fn once(&self, _asked: &Asked<'_>) -> impl Future<Output = Result<Value, Problem>> + Send {
        std::future::ready(Ok(no_facts()))
    }
}

fn no_facts() -> Value {
    Value::from_iter::<[(String, Value); 0]>([])
}

/// What the facts of a page are made of.
#[derive(Clone, Copy)]
struct Asked<'a> {
    app: &'a App,
    view: &'a View,
    now: Timestamp,
    look: &'a Look,
}

/// Every path of the dashboard.
pub(super) fn routes(app: &App) -> Router<App> {
    Router::new()
        .merge(page::<overview::Overview>("/"))
        .merge(page::<connections::Connections>("/connections"))
        .merge(page::<changes::Changes>("/changes"))
        .route("/login", get(login::form).merge(post(login::log_in).layer(DefaultBodyLimit::max(login::MAX_FORM))))
        .route("/logout", post(login::log_out))
        .merge(page::<connection::Connection>("/connections/{id}"))
        .route("/connections/{id}/pin", post(connection::pin))
        .route("/connections/{id}/unpin", post(connection::unpin))
        .route("/connections/{id}/reset", post(connection::reset))
        .merge(page::<maps::Maps>("/maps"))
        .merge(page::<map::Map>("/maps/{id}"))
        .merge(page::<edges::Edges>("/edges"))
        .route("/call", get(question::by_number))
        .merge(page::<node::Node>("/nodes/{id}"))
        .route("/nodes/{id}/admin", post(node::admin))
        .route("/look", get(look::choose))
        .fallback(nothing)
        .layer(from_fn_with_state(app.clone(), show_problems))
        .merge(assets::routes())
}

/// A page, and the stream of its parts that change.
fn page<P: Page>(path: &str) -> Router<App> {
    let stream = format!("/live{path}");
    Router::new().route(path, get(show::<P>)).route(&stream, get(live::stream::<P>))
}

async fn show<P: Page>(
    State(app): State<App>,
    OriginalUri(uri): OriginalUri,
    look: Look,
    page: P,
) -> Result<Response, Problem> {
    let view = app.view();
    let asked = Asked::new(&app, &view, &look);
    let facts = page.facts(&asked)?;
    let (past, once) = (page.past(&asked).await, page.once(&asked).await?);
    let here = uri.path_and_query().map_or("/", |here| here.as_str()).to_owned();
    let frame = Frame { here: &here, live: Some(format!("/live{here}")), ..Frame::new(&asked) };
    let facts = minijinja::context! { ..facts, ..past, ..once, ..Value::from(Serde(&frame)) };
    let html = app.studio.page(&app.tasks, look.language, P::TEMPLATE, facts).await?;
    Ok(Html(html).into_response())
}

/// What stands around every page.
#[derive(Serialize)]
struct Frame<'a> {
    /// Its path and query.
    here: &'a str,
    /// Where its changes come from, where it has any.
    live: Option<String>,
    version: &'a str,
    style: &'a str,
    script: &'a str,
    icon: &'a str,
    /// When the picture was made.
    at: part::When,
    look: &'a Look,
}

impl<'a> Frame<'a> {
    fn new(asked: &Asked<'a>) -> Self {
        Self {
            here: "/",
            live: None,
            version: env!("CARGO_PKG_VERSION"),
            style: assets::style_path(),
            script: assets::script_path(),
            icon: assets::icon_path(),
            at: asked.when(asked.view.at),
            look: asked.look,
        }
    }
}

impl<'a> Asked<'a> {
    fn new(app: &'a App, view: &'a View, look: &'a Look) -> Self {
        Self { app, view, look, now: app.sources.clock.now() }
    }

    fn when(&self, at: Timestamp) -> part::When {
        part::When::new(at, self.now, self.look)
    }
}

/// An answer for a path at which there is nothing.
async fn nothing() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path; /api/openapi.json lists what there is")
}

/// A page that is none of [`Page`], with what stands around it.
async fn paint(app: &App, look: &Look, here: &str, template: &'static str, facts: Value) -> Result<String, Problem> {
    let view = app.view();
    let frame = Frame { here, ..Frame::new(&Asked::new(app, &view, look)) };
    let facts = minijinja::context! { ..facts, ..Value::from(Serde(&frame)) };
    app.studio.page(&app.tasks, look.language, template, facts).await
}

/// Makes a page of what went wrong, where a page was asked for.
async fn show_problems(State(app): State<App>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let asked = parts.clone();
    let response = next.run(Request::from_parts(parts, body)).await;
    explain(&app, &asked, response).await
}

/// Makes a page of what went wrong, where somebody's browser asked who can read it.
pub(super) async fn explain(app: &App, asked: &Parts, response: Response) -> Response {
    let failed = response.status().is_client_error() || response.status().is_server_error();
    if !failed || problem::is_page(response.headers()) || !login::wants_page(asked) {
        return response;
    }
    let (mut parts, problem) = problem::of(response).await;
    let facts = minijinja::context! { status => parts.status.as_u16(), detail => problem.detail() };
    match paint(app, &Look::of(asked), "/", "problem.html", facts).await {
        Ok(html) => {
            parts.headers.remove(header::CONTENT_TYPE);
            (parts.status, parts.headers, Html(html)).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}
