//! The server with its sources played.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pointsman::api::{self, Handle, Limits, Sources};
use pointsman::balance::Router;
use pointsman::clock::Clock;
use pointsman::config::model::{Http, Mode, Role, Token};
use pointsman::config::{Format, Purpose, load_text};
use pointsman::dialplan::readback::Probes;
use pointsman::edge::Snapshot;
use pointsman::engine::reload::Reloader;
use pointsman::engine::request::{Asked, Desk, Refused, Request};
use pointsman::engine::view::{ChangeView, View};
use pointsman::listen::Listening;
use pointsman::notify::kept::Kept;
use pointsman::notify::letter::{Delivery, DeliveryState, Kind, Letter};
use pointsman::notify::run::{KeptMail, Mail};
use pointsman::store::Writer;
use pointsman::store::history::History;
use pointsman::tasks::Tasks;
use pointsman::xds::clients::Registry;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::timeout;

use crate::picture;

/// Longest wait for anything that happens at once on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Where the xDS server is said to listen.
pub(crate) const XDS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 18000);

/// A reason at which the played engine says nothing.
pub(crate) const SILENCE: &str = "silence";

pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    pub(crate) view: watch::Sender<Arc<View>>,
    pub(crate) changes: broadcast::Sender<Arc<ChangeView>>,
    pub(crate) endpoints: watch::Sender<Arc<Snapshot>>,
    /// The clients of the xDS server.
    pub(crate) edges: Registry,
    /// Whether that one listens.
    pub(crate) xds: watch::Sender<Listening>,
    pub(crate) router: Router,
    /// What the engine was asked.
    pub(crate) asked: Arc<Mutex<Vec<Request>>>,
    pub(crate) clock: Clock,
    /// The server's.
    pub(crate) tasks: Tasks,
    _others: Tasks,
}

/// Whom the tests play.
pub(crate) struct Played {
    pub(crate) sources: Sources,
    pub(crate) view: watch::Sender<Arc<View>>,
    pub(crate) endpoints: watch::Sender<Arc<Snapshot>>,
    pub(crate) edges: Registry,
    pub(crate) xds: watch::Sender<Listening>,
    pub(crate) router: Router,
    pub(crate) asked: Arc<Mutex<Vec<Request>>>,
    pub(crate) others: Tasks,
}

pub(crate) fn play(clock: Clock) -> Played {
    let others = Tasks::new();
    let (view, seen) = watch::channel(Arc::new(picture::view(clock.now())));
    let (changes, _) = broadcast::channel(8);
    let endpoints = watch::Sender::new(Arc::default());
    let xds = watch::Sender::new(Listening { address: Some(XDS_ADDRESS), problem: String::new() });
    let edges = Registry::new(xds.subscribe(), clock);
    let (desk, queue) = Desk::new();
    let asked = play_engine(queue, &others);
    let router = Router::new(0);
    router.publish(picture::candidates());
    let sources = Sources {
        view: seen.clone(),
        changes,
        endpoints: endpoints.subscribe(),
        xds: Some(edges.clone()),
        router: router.clone(),
        mode: Mode::BestScore,
        desk,
        outbox: mail(clock, seen, &others).desk(),
        clock,
        mask_numbers: true,
        probes: Probes::default(),
        history: History::of(Path::new("/nonexistent/pointsman.db"), &others),
        reloader: Reloader::default(),
    };
    Played { sources, view, endpoints, edges, xds, router, asked, others }
}

/// Notes what is asked; knows the nodes and connections of the picture.
fn play_engine(mut queue: mpsc::Receiver<Asked>, tasks: &Tasks) -> Arc<Mutex<Vec<Request>>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = asked.clone();
    let mut unanswered = Vec::new();
    tasks.spawn(async move {
        while let Some((request, answer)) = queue.recv().await {
            notes.lock().unwrap().push(request.clone());
            let _ = match request {
                Request::SetAdmin { by, .. } if &*by.why == SILENCE => {
                    unanswered.push(answer);
                    continue;
                }
                Request::SetAdmin { node, .. } | Request::PushLoad { node, .. }
                    if !["pbx-01", "pbx-02"].contains(&node.as_str()) =>
                {
                    answer.send(Err(Refused::NoSuchNode(node)))
                }
                Request::Pin { until: Some(until), .. } if until.as_secs_f64() > 4e9 => {
                    answer.send(Err(Refused::Illegal("too late".to_owned())))
                }
                _ => answer.send(Ok(())),
            };
        }
    });
    asked
}

/// An outbox with one dead letter, number 7.
fn mail(clock: Clock, view: watch::Receiver<Arc<View>>, tasks: &Tasks) -> Mail {
    let text = r#"
        [[nodes]]
        id = "pbx-01"
        kind = "freeswitch"
        address = "127.0.0.1:1"
        password = "x"
        [email]
        from = "noc@operator.example"
        sendmail = "/bin/false"
    "#;
    let config = load_text(Path::new("x.toml"), text, Format::Toml, [], Purpose::Connect).unwrap().config;
    let mut delivery = Delivery::new("noc@acme.example", clock.now());
    delivery.settle(DeliveryState::Dead, "550 no such user", clock.now());
    let letter = Letter {
        number: 7,
        message_id: "a@b".to_owned(),
        replies_to: vec![],
        made_at: clock.now(),
        customer: None,
        kind: Kind::Test,
        about: vec![],
        subject: "Test".to_owned(),
        text: "secret".to_owned(),
        html: String::new(),
        deliveries: vec![delivery],
    };
    let kept = KeptMail { at_start: vec![Kept::Letter(Box::new(letter))], late: None };
    Mail::start(watch::channel(Arc::new(config)).1, clock, kept, view, &Writer::detached("a test"), tasks)
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::with(&[], Limits::default()).await
    }

    pub(crate) async fn with_limits(limits: Limits) -> Self {
        Self::with(&[], limits).await
    }

    pub(crate) async fn with(tokens: &[(&str, Role, &str)], limits: Limits) -> Self {
        Self::playing(play(Clock::system()), tokens, limits).await
    }

    /// With the past that a file holds.
    pub(crate) async fn over(path: &Path) -> Self {
        let mut played = play(Clock::system());
        played.sources.history = History::of(path, &played.others);
        Self::playing(played, &[], Limits::default()).await
    }

    pub(crate) async fn playing(played: Played, tokens: &[(&str, Role, &str)], limits: Limits) -> Self {
        let clock = played.sources.clock;
        let tasks = Tasks::new();
        let changes = played.sources.changes.clone();
        let handle = api::serve_with(&http(([127, 0, 0, 1], 0).into(), tokens), played.sources, limits, &tasks);
        let address = listening(&handle).await.address.unwrap();
        let Played { view, endpoints, edges, xds, router, asked, others, .. } = played;
        Self { address, view, changes, endpoints, edges, xds, router, asked, clock, tasks, _others: others }
    }

    /// What the engine was asked since this was called last.
    pub(crate) fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// Tells edges something.
    pub(crate) fn tell_edges(&self, snapshot: Snapshot) {
        self.endpoints.send_replace(Arc::new(snapshot));
    }

    /// Publishes the picture, changed.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.view.borrow());
        change(&mut view);
        self.view.send_replace(Arc::new(view));
    }
}

pub(crate) fn http(listen: SocketAddr, tokens: &[(&str, Role, &str)]) -> Http {
    let token = |(name, role, secret): &(&str, Role, &str)| Token {
        name: (*name).to_owned(),
        role: *role,
        secret: (*secret).into(),
    };
    Http { listen, tokens: tokens.iter().map(token).collect() }
}

/// The first word on whether the server can be reached.
pub(crate) async fn listening(handle: &Handle) -> Listening {
    let mut listening = handle.listening();
    let word = listening.wait_for(|listening| *listening != Listening::default());
    timeout(PATIENCE, word).await.expect("the server says nothing").unwrap().clone()
}
