//! Changes as they happen, and what edges are told, as server-sent events.
//!
//! A client that comes back says which change it saw last (`Last-Event-ID`) and gets those that came after it, as far as
//! the picture holds them. One that is too slow is not waited for: it hears that it missed something, and is closed.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::unfold;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use utoipa::ToSchema;

use super::Asked;
use super::changes::{ChangeAnswer, id};
use super::endpoints::EndpointsEvent;
use crate::api::UNBUFFERED;
use crate::api::app::App;
use crate::api::problem::Problem;
use crate::edge::Snapshot;
use crate::engine::view::{ChangeView, RoutingView, View};
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// How long a client that comes back waits for a picture that holds every change told so far: one is published every
/// second.
const NEXT_PICTURE: Duration = Duration::from_millis(1500);

/// The first event.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Hello<'a> {
    /// Version of the program.
    version: &'a str,
    /// When the program started.
    started_at: Timestamp,
    /// Grows with every change of a variable.
    generation: u64,
    /// Whether nothing was missed since the `Last-Event-ID`; `null` where the client named none.
    resumed: Option<bool>,
}

/// The last event for a client that is too slow.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Lost {
    /// So many changes were not told.
    missed: u64,
}

/// Changes as they happen
///
/// Server-sent events. `hello` comes first; `change` is a change of a connection's state, as in `/api/changes`; `routing`
/// is which node is best, whenever that is another or has another score; `endpoints` is what edges are told, all of it
/// first and then what changes, for who holds the generation `after` (who does not asks `/api/endpoints`); `lost` says that
/// this client was too slow and is closed. Who connects again with the header `Last-Event-ID` gets the changes since, as
/// far as they are among the last 100; `hello` says whether they are.
#[utoipa::path(get, path = "/api/events", tag = "connections",
    params(("Last-Event-ID" = Option<String>, Header, description = "The id of the last change seen")), responses(
    (status = 200, description = "The stream", body = String, content_type = "text/event-stream"),
    (status = 503, description = "Too many streams are open", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn events(State(app): Asked, headers: HeaderMap) -> Result<impl IntoResponse, Problem> {
    let full = || Problem::unavailable(format!("{} event streams are open already", app.limits.streams));
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| full())?;
    let last_seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let feed = Feed::open(&app, last_seen, place).await;
    let stream = unfold(feed, |mut feed| async move { Some((Ok::<_, Infallible>(feed.next().await?), feed)) });
    let alive = KeepAlive::new().interval(app.limits.keep_alive).text("alive");
    Ok((UNBUFFERED, Sse::new(stream).keep_alive(alive)))
}

/// What a client is told.
struct Feed {
    ready: VecDeque<Event>,
    changes: broadcast::Receiver<Arc<ChangeView>>,
    view: watch::Receiver<Arc<View>>,
    routing: RoutingView,
    endpoints: watch::Receiver<Arc<Snapshot>>,
    /// The snapshot that was told last.
    held: Arc<Snapshot>,
    /// Changes that were told from the picture and may come once more.
    told: HashSet<String>,
    ended: bool,
    tasks: Tasks,
    _place: OwnedSemaphorePermit,
}

impl Feed {
    async fn open(app: &App, last_seen: Option<&str>, place: OwnedSemaphorePermit) -> Self {
        // Before the picture is looked at: what changes in between comes twice rather than not at all.
        let changes = app.sources.changes.subscribe();
        let mut view = app.sources.view.clone();
        if last_seen.is_some() {
            view.mark_unchanged();
            let _ = tokio::time::timeout(NEXT_PICTURE, view.changed()).await;
        }
        let now = Arc::clone(&view.borrow_and_update());
        let mut feed = Self {
            ready: VecDeque::new(),
            changes,
            view,
            routing: now.routing.clone(),
            endpoints: app.sources.endpoints.clone(),
            held: Arc::default(),
            told: HashSet::new(),
            ended: false,
            tasks: app.tasks.clone(),
            _place: place,
        };
        feed.greet(&now, last_seen);
        feed
    }

    fn greet(&mut self, view: &View, last_seen: Option<&str>) {
        let missed = last_seen.map(|last| view.changes.iter().position(|change| id(change) == last));
        let hello = Hello {
            version: &view.version,
            started_at: view.started_at,
            generation: view.generation,
            resumed: missed.map(|missed| missed.is_some()),
        };
        self.ready.push_back(event("hello", &hello));
        self.ready.push_back(event("routing", &view.routing));
        self.look_at_endpoints();
        // One that is not among them any more is too old: then all of them came after it.
        let newer = missed.map_or(0, |missed| missed.unwrap_or(view.changes.len()));
        for change in view.changes[..newer].iter().rev() {
            self.told.insert(id(change));
            self.ready.push_back(change_event(change));
        }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            tokio::select! {
                () = self.tasks.stopping() => return None,
                change = self.changes.recv() => self.take(change),
                seen = self.view.changed() => match seen {
                    Ok(()) => self.look(),
                    Err(_) => return None,
                },
                seen = self.endpoints.changed() => match seen {
                    Ok(()) => self.look_at_endpoints(),
                    Err(_) => return None,
                },
            }
        }
    }

    fn take(&mut self, change: Result<Arc<ChangeView>, RecvError>) {
        match change {
            Ok(change) if self.told.remove(&id(&change)) => {}
            Ok(change) => self.ready.push_back(change_event(&change)),
            Err(RecvError::Lagged(missed)) => {
                self.ready.push_back(event("lost", &Lost { missed }));
                self.ended = true;
            }
            Err(RecvError::Closed) => self.ended = true,
        }
    }

    /// The generation alone is no news: it grows with every figure.
    fn look(&mut self) {
        let routing = self.view.borrow_and_update().routing.clone();
        let news = RoutingView { generation: self.routing.generation, ..routing.clone() } != self.routing;
        if news {
            self.ready.push_back(event("routing", &routing));
        }
        self.routing = routing;
    }

    /// The latest snapshot, whatever came between; before the first there is nothing to tell.
    fn look_at_endpoints(&mut self) {
        let now = Arc::clone(&self.endpoints.borrow_and_update());
        if now.generation != self.held.generation {
            self.ready.push_back(event("endpoints", &EndpointsEvent::after(&self.held, &now)));
            self.held = now;
        }
    }
}

fn change_event(change: &ChangeView) -> Event {
    event("change", &ChangeAnswer::new(change)).id(id(change))
}

fn event(kind: &str, data: &impl Serialize) -> Event {
    // Nothing that cannot be written as JSON is ever told.
    Event::default().event(kind).json_data(data).unwrap_or_default()
}
