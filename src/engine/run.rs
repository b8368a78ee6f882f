//! The driver of the engine: links, appliers, store and control socket around it.
//!
//! ```text
//! links ──FromNode, bounded──> engine ──Effect──> appliers (variables), store, mail, log
//!                                 ├──View, watch──> control socket, HTTP, command line, mail (for the operator)
//!                                 └──Picture──────> router (which node is best), lock-free; edge (the same, pushed)
//! ```
//!
//! Shutdown goes in phases, each with a deadline of its own: nobody new is served, the links close, the engine takes
//! what they still delivered, a mail that is under way is waited for, the store writes the rest. The PBXs keep their variables: calls go on in the last order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::api::{self, Sources};
use crate::balance::lease::{Leases, TICK};
use crate::balance::{Picture, Router};
use crate::clock::Clock;
use crate::config::model::Config;
use crate::control::{self, ControlError};
use crate::dialplan::apply::{self, Applier};
use crate::dialplan::readback::Probes;
use crate::edge::{Snapshot, feed};
use crate::engine::core::Engine;
use crate::engine::effect::Effect;
use crate::engine::local::Machine;
use crate::engine::reload::{Loader, Reloader};
use crate::engine::request::{Asked, Desk};
use crate::engine::view::{ChangeView, HttpView, RoutingView, View};
use crate::ids::LegId;
use crate::listen::Listening;
use crate::notify::kept::Kept;
use crate::notify::run::{KeptMail, Mail, OutboxDesk};
use crate::pbx::command::Command;
use crate::pbx::link::{self, FromNode, Link, LinkInbox};
use crate::store::history::History;
use crate::store::{AdminRow, Restored, Store, StoreError, Writer};
use crate::tasks::Tasks;
use crate::time::Timestamp;
use crate::xds;
use crate::xds::clients::Registry;

/// Events that wait for the engine. It takes well under a hundredth of a millisecond for one, so this is more than a
/// second of the worst flood; what comes on top is dropped, counted and made good by a new list of the calls.
const INBOX: usize = 65_536;

/// Events taken in one go before effects are performed and timers looked at.
const BATCH: usize = 256;

/// How often the picture is made anew while things happen.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// How often the picture is made anew while nothing happens, for the counters and clocks in it.
const PUBLISH_AT_LEAST: Duration = Duration::from_secs(1);

/// How often this machine's load is read, where a node runs on it.
const LOCAL_EVERY: Duration = Duration::from_secs(5);

/// Places in the queue of commands that questions about legs leave free: a variable must never find it full.
const KEPT_FOR_VARIABLES: usize = 1024;

/// Changes kept for a listener that is slow to take them.
const CHANGES_KEPT: usize = 256;

/// Longest that one phase of the shutdown may take.
const PHASE: Duration = Duration::from_secs(3);

/// Longest that the rest may take to be written at shutdown.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Why the program cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another instance uses the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The control socket cannot be served.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// The running program.
#[derive(Debug)]
pub struct Running {
    view: watch::Receiver<Arc<View>>,
    changes: broadcast::Sender<Arc<ChangeView>>,
    outbox: OutboxDesk,
    desk: Desk,
    reloader: Reloader,
    router: Router,
    http: Option<watch::Receiver<Listening>>,
    xds: Option<Registry>,
    serving: Tasks,
    links: Tasks,
    engine: Tasks,
    mailing: Tasks,
    storing: Tasks,
    writer: Writer,
}

/// Starts everything. The links connect on their own; nothing waits for a PBX.
///
/// # Errors
/// Where another instance runs with the same database or control socket, or the socket cannot be made. A database that
/// cannot be used for any other reason does not keep the program from starting: it goes on from memory and says so.
pub async fn start(config: Arc<Config>, clock: Clock) -> Result<Running, StartError> {
    start_with(config, clock, None).await
}

/// [`start`], with what reads the configuration again; without it, a reload is refused.
///
/// # Errors
/// As [`start`].
pub async fn start_with(config: Arc<Config>, clock: Clock, loader: Option<Loader>) -> Result<Running, StartError> {
    let [serving, links, engine_tasks, mailing, storing] = std::array::from_fn(|_| Tasks::new());
    let (writer, mut restored, late) = open_store(&config, clock, &storing).await?;
    let kept_mail = KeptMail { at_start: std::mem::take(&mut restored.mail), late };
    let (view, _) = watch::channel(Arc::new(View::empty(clock.now())));
    let (in_force, configured) = watch::channel(config.clone());
    let mail = Mail::start(configured.clone(), clock, kept_mail, view.subscribe(), &writer, &mailing);
    let outbox = mail.desk();
    let engine = Engine::new(config.clone(), restored, clock.now());
    let (events, inbox) = mpsc::channel(INBOX);
    let nodes: Vec<NodeTasks> =
        (0..config.nodes.len()).map(|node| NodeTasks::start(&config, node, clock, &events, &links)).collect();
    let probes = nodes.iter().map(|node| node.applier.probe()).collect();
    let probes = Probes::new(&config.variables.prefix, probes);
    let (desk, asked) = Desk::new();
    let reload = |loader| Reloader::start(loader, configured, desk.clone(), &serving);
    let reloader = loader.map(reload).unwrap_or_default();
    let router = Router::new(fastrand::u64(..));
    let (changes, _) = broadcast::channel(CHANGES_KEPT);
    let (pictures, pictured) = watch::channel(Arc::default());
    let edge = feed::start(&config.edge.groups, &config.scoring, pictured, clock, &serving);
    let served = config.edge.xds.as_ref();
    let xds = served.map(|xds| xds::serve(xds, &config.edge.groups, edge.clone(), clock, &serving));
    let http = config.http.as_ref().map(|http| {
        let sources = Sources {
            view: view.subscribe(),
            changes: changes.clone(),
            endpoints: edge.clone(),
            xds: xds.clone(),
            router: router.clone(),
            mode: config.balancing.mode,
            desk: desk.clone(),
            outbox: outbox.clone(),
            clock,
            mask_numbers: config.email.as_ref().is_none_or(|email| email.mask_numbers),
            probes: probes.clone(),
            history: History::of(&config.storage.path, &serving),
            reloader: reloader.clone(),
        };
        api::serve(http, sources, &serving).listening()
    });
    let outputs = Outputs {
        config: in_force,
        writer: writer.clone(),
        mail,
        router: router.clone(),
        pictures,
        edge,
        view,
        changes: changes.clone(),
        http: http.clone(),
        xds: xds.clone(),
    };
    let driver = Driver::new(engine, nodes, outputs, clock);
    let view = driver.view.subscribe();
    let ours = control::Engine { desk: desk.clone(), clock, probes, reloader: reloader.clone(), xds: xds.clone() };
    control::serve(&config.control_socket, view.clone(), outbox.clone(), ours, &serving).await?;
    let stopping = engine_tasks.clone();
    engine_tasks.spawn(async move { driver.run(inbox, asked, &stopping).await });
    Ok(Running {
        view,
        changes,
        outbox,
        desk,
        reloader,
        router,
        http,
        xds,
        serving,
        links,
        engine: engine_tasks,
        mailing,
        storing,
        writer,
    })
}

type LateMail = Option<oneshot::Receiver<Vec<Kept>>>;

async fn open_store(config: &Config, clock: Clock, tasks: &Tasks) -> Result<(Writer, Restored, LateMail), StoreError> {
    match Store::open(&config.storage).await {
        Ok((store, restored)) => Ok((store.start(clock, tasks), restored, None)),
        Err(error @ StoreError::InUse(_)) => Err(error),
        Err(error) => {
            tracing::error!(%error, "the database cannot be used: states and windows start empty, and nothing is kept until it can");
            let (writer, late) = Writer::retrying(&config.storage, &error, clock, tasks);
            Ok((writer, Restored::default(), Some(late)))
        }
    }
}

impl Running {
    /// The picture, now and whenever it changes.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// Every change of a connection's state from now on.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Arc<ChangeView>> {
        self.changes.subscribe()
    }

    /// The way to the engine, for operators and agents.
    #[must_use]
    pub fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// The way to another configuration.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Whether the HTTP server can be reached; `None` where it is not wanted.
    #[must_use]
    pub fn http(&self) -> Option<watch::Receiver<Listening>> {
        self.http.clone()
    }

    /// The xDS server and its clients; `None` where it is not wanted.
    #[must_use]
    pub fn xds(&self) -> Option<Registry> {
        self.xds.clone()
    }

    /// Answers which node the next call should go to.
    #[must_use]
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// The way to the outbox.
    #[must_use]
    pub fn outbox(&self) -> OutboxDesk {
        self.outbox.clone()
    }

    /// Stops everything in order. Says whether everything ended in time and is stored.
    pub async fn stop(self) -> bool {
        let mut in_time = self.serving.stop(PHASE).await;
        in_time &= self.links.stop(PHASE).await;
        in_time &= self.engine.stop(PHASE).await;
        in_time &= self.mailing.stop(PHASE).await;
        let stored = self.writer.flush(LAST_WRITE).await;
        in_time &= self.storing.stop(PHASE).await;
        if !stored {
            tracing::warn!("not everything could be stored before the end");
        }
        in_time && stored
    }
}

/// What runs for one node.
#[derive(Debug)]
struct NodeTasks {
    link: Link,
    applier: Applier,
}

impl NodeTasks {
    fn start(config: &Config, node: usize, clock: Clock, events: &mpsc::Sender<FromNode>, tasks: &Tasks) -> Self {
        let settings = Arc::new(config.nodes[node].clone());
        let link = link::spawn(settings.clone(), clock, LinkInbox::new(events.clone(), node), tasks);
        let applier = apply::spawn(&settings, &config.variables, &link, clock, tasks);
        Self { link, applier }
    }

    /// Asks for all about a leg. The answer comes as an event; without one the leg stays unknown until the next list.
    fn describe(&self, leg: LegId) {
        if self.link.commander.room() > KEPT_FOR_VARIABLES {
            drop(self.link.commander.submit(Command::Describe(leg)));
        }
    }
}

/// Where the engine's effects go, beside the nodes.
struct Outputs {
    config: watch::Sender<Arc<Config>>,
    writer: Writer,
    mail: Mail,
    router: Router,
    pictures: watch::Sender<Arc<Picture>>,
    edge: watch::Receiver<Arc<Snapshot>>,
    view: watch::Sender<Arc<View>>,
    changes: broadcast::Sender<Arc<ChangeView>>,
    http: Option<watch::Receiver<Listening>>,
    xds: Option<Registry>,
}

/// The engine's task.
struct Driver {
    engine: Engine,
    nodes: Vec<NodeTasks>,
    /// The configuration in force, for everybody who must follow it.
    config: watch::Sender<Arc<Config>>,
    writer: Writer,
    mail: Mail,
    router: Router,
    /// What the router answers from, for whoever passes it on.
    pictures: watch::Sender<Arc<Picture>>,
    edge: watch::Receiver<Arc<Snapshot>>,
    leases: Leases,
    machine: Machine,
    clock: Clock,
    started_at: Timestamp,
    view: watch::Sender<Arc<View>>,
    changes: broadcast::Sender<Arc<ChangeView>>,
    http: Option<watch::Receiver<Listening>>,
    xds: Option<Registry>,
}

impl Driver {
    fn new(engine: Engine, nodes: Vec<NodeTasks>, outputs: Outputs, clock: Clock) -> Self {
        let Outputs { config, writer, mail, router, pictures, edge, view, changes, http, xds } = outputs;
        let started_at = clock.now();
        let names = engine.config().nodes.iter().map(|node| &node.id);
        let leases = Leases::new(engine.config().balancing.lease, &router.counters(), names);
        let machine = Machine::default();
        let mut driver = Self {
            engine,
            nodes,
            config,
            writer,
            mail,
            router,
            pictures,
            edge,
            leases,
            machine,
            clock,
            started_at,
            view,
            changes,
            http,
            xds,
        };
        driver.perform_effects();
        driver.route();
        driver.publish();
        driver
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<FromNode>, mut asked: mpsc::Receiver<Asked>, tasks: &Tasks) {
        let mut local = interval(LOCAL_EVERY);
        local.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        let mut unpublished = false;
        let mut last_published = self.clock.now();
        loop {
            let until_timer = self.engine.deadline().map_or(PUBLISH_AT_LEAST, |at| self.clock.real_time_until(at));
            let until_publishing = if unpublished { PUBLISH_EVERY } else { PUBLISH_AT_LEAST };
            tokio::select! {
                _ = inbox.recv_many(&mut batch, BATCH) => {}
                Some((request, answer)) = asked.recv() => {
                    let done = self.engine.request(request, self.clock.now());
                    self.tell_config();
                    // Whoever asked may have gone away.
                    let _ = answer.send(done);
                    unpublished = true;
                }
                _ = local.tick(), if self.engine.config().nodes.iter().any(|node| node.local) => {
                    self.engine.local_load(&self.machine.read(), self.clock.now());
                    unpublished = true;
                }
                () = sleep(until_timer.min(until_publishing).min(TICK)) => {}
                () = tasks.stopping() => break,
            }
            unpublished |= !batch.is_empty() || self.leases.any_outstanding();
            self.work(&mut batch);
            let age = self.clock.now().since(last_published) / self.clock.rate();
            if age >= until_publishing {
                self.publish();
                (unpublished, last_published) = (false, self.clock.now());
            }
        }
        // The links have ended by now: what they delivered last is all there is.
        while let Ok(event) = inbox.try_recv() {
            batch.push(event);
        }
        self.work(&mut batch);
        self.publish();
    }

    /// Everybody who follows the configuration has the new one before they hear of anything that came of it.
    fn tell_config(&self) {
        let config = self.engine.config();
        self.config.send_if_modified(|shown| {
            let is_new = !Arc::ptr_eq(shown, config);
            shown.clone_from(config);
            is_new
        });
    }

    /// Feeds the engine and performs what it wants.
    fn work(&mut self, batch: &mut Vec<FromNode>) {
        // A timer that fell due before an event arrived comes before it.
        for FromNode { node, at, event } in batch.drain(..) {
            self.engine.fire(at);
            self.engine.apply(node, &event, at);
        }
        self.engine.fire(self.clock.now());
        self.perform_effects();
        self.route();
    }

    /// Publishes which node is best, where that or anything it depends on has changed, and tells the dialplans.
    fn route(&mut self) {
        let now = self.clock.now();
        self.leases.tick(now);
        let mut candidates = self.engine.candidates(now);
        for candidate in &mut candidates {
            candidate.settled = self.leases.settled(&candidate.node);
        }
        let (before, panic) = (self.router.picture(), self.engine.panic());
        if before.generation == 0 || before.candidates != candidates || before.panic != panic {
            self.router.publish(Picture::of(
                before.generation + 1,
                now,
                candidates,
                &self.engine.config().scoring,
                panic,
            ));
            self.pictures.send_replace(self.router.picture());
        }
        // Also of a picture that has not changed: what is told now and then may be due by now.
        let picture = self.router.picture();
        let best = picture.best.as_ref().or(picture.fallback.as_ref());
        self.engine.show_best(best, picture.best_score, picture.fallback_active, now);
        self.perform_effects();
    }

    fn perform_effects(&mut self) {
        let (mut rows, mut notices) = (Vec::new(), Vec::new());
        for effect in self.engine.take_effects() {
            match effect {
                Effect::Store(row) => rows.push(row),
                Effect::Variables { node, desired, cause_at } => {
                    self.nodes[node].applier.want(desired, cause_at);
                }
                Effect::Restarted { node } => self.nodes[node].applier.restarted(),
                Effect::Describe { node, leg } => self.nodes[node].describe(leg),
                Effect::Publish(change) => self.tell(&change),
                Effect::Placed { node } => self.leases.placed(&self.engine.config().nodes[node].id),
                Effect::NodeSet { node, row } => self.tell_node_set(node, &row),
                Effect::Notify(notice) => notices.push(*notice),
                Effect::UnknownMap { node, name } => self.tell_unknown_map(node, &name),
                Effect::UnknownTrunk { node, trunk } => self.tell_unknown_trunk(node, &trunk),
            }
        }
        if !rows.is_empty() {
            self.writer.write_all(rows);
        }
        // After the rows: what the mail makes of a notice replaces it in the database.
        notices.into_iter().for_each(|notice| self.mail.tell(notice));
    }

    fn tell(&self, change: &Arc<ChangeView>) {
        tracing::info!(connection.id = %change.key, "{}: {}", change.key, change.words);
        // Nobody may be listening.
        let _ = self.changes.send(change.clone());
    }

    fn tell_node_set(&self, node: usize, row: &AdminRow) {
        let (node, AdminRow { admin, who, why, .. }) = (&self.engine.config().nodes[node].id, row);
        tracing::warn!(node.id = %node, %who, %why, "{node} is {} from now on, says {who}", admin.as_str());
    }

    fn tell_unknown_map(&self, node: usize, name: &str) {
        let node = &self.engine.config().nodes[node].id;
        tracing::warn!(
            node.id = %node,
            map = %name.escape_debug(),
            "a dialplan of {node} sets pm_map to {name:?}, and there is no such route map; the dialled number decides which one it is"
        );
    }

    fn tell_unknown_trunk(&self, node: usize, trunk: &str) {
        let node = &self.engine.config().nodes[node].id;
        tracing::warn!(
            node.id = %node,
            trunk = %trunk.escape_debug(),
            "{node} sends calls to {trunk:?}, which is not configured and not judged; to judge it add: [[connections]] id = {trunk:?}"
        );
    }

    fn publish(&mut self) {
        let links: Vec<_> = self.nodes.iter().map(|node| node.link.view.borrow().clone()).collect();
        let variables: Vec<_> = self.nodes.iter().map(|node| node.applier.view()).collect();
        let mut view = self.engine.view(&links, &variables, self.clock.now());
        view.started_at = self.started_at;
        view.storage = self.writer.health().borrow().clone();
        view.mail = self.mail.view().borrow().clone();
        view.http = self.http.as_ref().map(|http| {
            let Listening { address, problem } = http.borrow().clone();
            HttpView { address: address.map(|address| address.to_string()), problem }
        });
        view.xds = self.xds.as_ref().map(Registry::summary);
        view.edge = self.edge.borrow().clone();
        view.routing = routing_view(&self.router.picture());
        self.view.send_replace(Arc::new(view));
    }
}

fn routing_view(picture: &Picture) -> RoutingView {
    RoutingView {
        generation: picture.generation,
        best_node: picture.best.clone(),
        best_score: picture.best_score,
        fallback_active: picture.fallback_active,
        fallback_node: picture.fallback.clone(),
        panic: picture.panic,
    }
}
