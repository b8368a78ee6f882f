//! The parts of pages that change, to everybody who looks.
//!
//! Whoever looks at the same page in the same way sees the same show: its parts are painted once, whenever the picture has
//! changed, a second apart at least. A viewer that is slow misses what came between, and nobody waits for it; a show that
//! nobody looks at ends.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{OriginalUri, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::unfold;
use minijinja::context;
use minijinja::value::{Serde, Value};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::look::Look;
use super::paint::{Part, rest};
use super::{Asked, Page, assets};
use crate::api::UNBUFFERED;
use crate::api::app::App;
use crate::api::problem::Problem;
use crate::tasks::Tasks;

/// How often the parts are painted that show the past, whose shortest bucket is a minute.
const PAST_EVERY: Duration = Duration::from_secs(30);

/// A moment of a show.
#[derive(Clone, Debug)]
enum Moment {
    /// Nothing painted yet.
    Dark,
    /// The parts as they are now.
    Parts(Arc<[Part]>),
    /// What the page is about is not there any more.
    Gone,
}

/// The shows that somebody looks at.
#[derive(Default)]
pub(in crate::api) struct Shows {
    open: Mutex<HashMap<String, watch::Sender<Moment>>>,
}

impl Shows {
    /// A seat in the show of that name, which is begun where there is none.
    fn enter(&self, name: &str, begin: impl FnOnce(watch::Sender<Moment>)) -> watch::Receiver<Moment> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(show) = open.get(name) {
            return show.subscribe();
        }
        let (show, seat) = watch::channel(Moment::Dark);
        open.insert(name.to_owned(), show.clone());
        begin(show);
        seat
    }

    /// Ends a show, unless somebody has come in.
    fn close(&self, name: &str, show: &watch::Sender<Moment>, even_so: bool) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let over = even_so || show.receiver_count() == 0;
        if over {
            open.remove(name);
        }
        over
    }
}

/// A page, as its viewers look at it.
struct Show<P> {
    name: String,
    page: P,
    look: Look,
    app: App,
    stage: watch::Sender<Moment>,
}

impl<P: Page> Show<P> {
    async fn run(self) {
        let tasks = self.app.tasks.clone();
        tokio::select! {
            () = self.play() => {}
            () = tasks.stopping() => {}
        }
    }

    async fn play(&self) {
        let mut view = self.app.sources.view.clone();
        let mut parts: Vec<Part> = Vec::new();
        // The past is painted with the first moment, and then now and then.
        let (mut past_due, mut mark) = (self.app.sources.clock.now(), None);
        loop {
            view.mark_unchanged();
            let (now, mark_now) = (self.app.sources.clock.now(), self.page.past_mark(&self.app.view()));
            let mut past = None;
            if !P::PAST.is_empty() && (now >= past_due || mark_now != mark) {
                past_due = now.after(PAST_EVERY * self.app.sources.clock.rate());
                mark = mark_now;
                // Before its turn to paint: a disk that is slow must not keep the others waiting.
                past = Some(self.page.past(&Asked::new(&self.app, &self.app.view(), &self.look)).await);
            }
            let Some(turn) = self.app.studio.turn().await else { return };
            // Nobody stayed until its turn came: shows that are entered and left at once cost no painting.
            if self.app.studio.shows.close(&self.name, &self.stage, false) {
                return;
            }
            let begun = self.app.sources.clock.now();
            match self.paint(past).await {
                Ok(painted) => {
                    let news = merge(&mut parts, painted);
                    if news || matches!(*self.stage.borrow(), Moment::Dark) {
                        self.stage.send_replace(Moment::Parts(parts.as_slice().into()));
                    }
                }
                Err(problem) if problem.is_not_found() => {
                    self.app.studio.shows.close(&self.name, &self.stage, true);
                    self.stage.send_replace(Moment::Gone);
                    return;
                }
                // Already in the log; the next picture may be painted better.
                Err(_) => {}
            }
            let took = self.app.sources.clock.now().since(begun) / self.app.sources.clock.rate();
            tokio::time::sleep(rest(took)).await;
            drop(turn);
            if self.nobody_looks(self.app.limits.pace).await {
                return;
            }
            tokio::select! {
                changed = view.changed() => if changed.is_err() { return },
                () = self.stage.closed() => {}
            }
        }
    }

    /// Whether the show is over because nobody looked at it any more at the end of a pause.
    async fn nobody_looks(&self, pause: Duration) -> bool {
        tokio::time::sleep(pause).await;
        self.stage.receiver_count() == 0 && self.app.studio.shows.close(&self.name, &self.stage, false)
    }

    async fn paint(&self, past: Option<Value>) -> Result<Vec<Part>, Problem> {
        let mut facts = self.page.facts(&Asked::new(&self.app, &self.app.view(), &self.look))?;
        let mut names = P::LIVE.to_vec();
        if let Some(past) = past {
            facts = context! { ..facts, ..past };
            names.extend(P::PAST);
        }
        let facts = context! { look => Serde(&self.look), ..facts };
        self.app.studio.parts(&self.app.tasks, self.look.language, P::TEMPLATE, names, facts).await
    }
}

/// Puts what was painted in its place. A part that is as it was stays the one that it was. Says whether any is another.
fn merge(parts: &mut Vec<Part>, painted: Vec<Part>) -> bool {
    let mut news = false;
    for part in painted {
        match parts.iter_mut().find(|known| known.name == part.name) {
            Some(known) if known.html == part.html => {}
            Some(known) => {
                *known = part;
                news = true;
            }
            None => {
                parts.push(part);
                news = true;
            }
        }
    }
    news
}

/// The parts of a page, as they change, as server-sent events: `hello` names the style and the script of the page as they
/// would be now, `parts` holds the parts that are others than those sent before, `gone` says that there is nothing to
/// show any more.
pub(super) async fn stream<P: Page>(
    State(app): State<App>,
    OriginalUri(uri): OriginalUri,
    look: Look,
    page: P,
) -> Result<impl IntoResponse, Problem> {
    let full = || Problem::unavailable(format!("{} event streams are open already", app.limits.streams));
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| full())?;
    let name = format!("{} {}", uri.path_and_query().map_or("", |here| here.as_str()), look.key());
    let begin = |stage| {
        let show = Show { name: name.clone(), page, look, app: app.clone(), stage };
        app.tasks.spawn(show.run());
    };
    let seat = app.studio.shows.enter(&name, begin);
    let viewer =
        Viewer { seat, sent: HashMap::new(), greeted: false, over: false, tasks: app.tasks.clone(), _place: place };
    let stream = unfold(viewer, |mut viewer| async move { Some((Ok::<_, Infallible>(viewer.next().await?), viewer)) });
    let alive = Event::default().event("alive").data("{}");
    let stream = Sse::new(stream).keep_alive(KeepAlive::new().interval(app.limits.keep_alive).event(alive));
    Ok((UNBUFFERED, stream))
}

/// Somebody who looks.
struct Viewer {
    seat: watch::Receiver<Moment>,
    sent: HashMap<&'static str, Arc<str>>,
    greeted: bool,
    over: bool,
    tasks: Tasks,
    _place: OwnedSemaphorePermit,
}

impl Viewer {
    async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        if !self.greeted {
            self.greeted = true;
            let hello = serde_json::json!({ "style": assets::style_path(), "script": assets::script_path() });
            return Some(Event::default().event("hello").data(hello.to_string()));
        }
        loop {
            let moment = self.seat.borrow_and_update().clone();
            match moment {
                Moment::Gone => {
                    self.over = true;
                    return Some(Event::default().event("gone").data("{}"));
                }
                Moment::Parts(parts) => {
                    let news = self.news(&parts);
                    if !news.is_empty() {
                        let news = serde_json::Value::Object(news).to_string();
                        return Some(Event::default().event("parts").data(news));
                    }
                }
                Moment::Dark => {}
            }
            tokio::select! {
                changed = self.seat.changed() => changed.ok()?,
                () = self.tasks.stopping() => return None,
            }
        }
    }

    /// The parts that this viewer has not been sent.
    fn news(&mut self, parts: &[Part]) -> serde_json::Map<String, serde_json::Value> {
        let mut news = serde_json::Map::new();
        for part in parts {
            let sent = self.sent.insert(part.name, Arc::clone(&part.html));
            if sent.is_none_or(|sent| !Arc::ptr_eq(&sent, &part.html)) {
                news.insert(part.name.to_owned(), (&*part.html).into());
            }
        }
        news
    }
}
