//! The tokio driver of a link: connects, performs what the sessions ask for, reconnects.
//!
//! A node has two sockets, one for events and one for commands, each with a task, a session and a timer of its own:
//! there is never more than one of each. The one for commands waits until the one for events is logged in, so that a
//! PBX that refuses us is asked once per step and not twice. A third task brings what the engine had no room for
//! ([`Outlet`]). No task of a node waits for a task of another one, and the reader waits for nobody.
//!
//! ```text
//! socket -> codec -> session -> Outlet -> the engine's queue
//!                      ^  |
//!          Commander --+  +-> LinkView
//! ```

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::codec::Decoder;
use tracing::{debug, error, info, warn};

use crate::clock::Clock;
use crate::config::model::Node;
use crate::engine::view::{LinkState, LinkView};
use crate::pbx::PbxKind;
use crate::pbx::backoff::{Backoff, CEILING};
use crate::pbx::command::{Command, CommandError, CommandResult, Commander};
use crate::pbx::event::PbxEvent;
use crate::pbx::outlet::Outlet;
use crate::pbx::session::{
    AmiCommands, AmiEvents, Credentials, Effects, End, EslCommands, EslEvents, Note, Secrecy, Session,
};
use crate::pbx::transport::{Connect, Io, Transport};
use crate::tasks::Tasks;
use crate::time::Timestamp;
use crate::wire::limits::FrameError;

/// Most commands that wait between the engine and a link; what comes on top is answered with
/// [`CommandError::Busy`]. A full rewrite of the variables of a large configuration fits in.
pub const COMMAND_QUEUE: usize = 8192;

/// Bytes read at once. Large enough that a burst is read in few calls, small enough that keepalive and commands get
/// their turn in between.
const READ_SIZE: usize = 64 * 1024;

/// Commands taken from the queue in one turn.
const COMMANDS_PER_TURN: usize = 64;

/// How long a refused Asterisk login waits: its security log (and whoever watches it) takes a second failed login
/// for an attack.
const AMI_REFUSED_WAIT: Duration = Duration::from_secs(60);

/// Distinct warnings of a PBX that are remembered, so that each is said once.
const MAX_WARNINGS: usize = 64;

/// One thing that a node told us, with the time at which it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct FromNode {
    /// Place of the node in the configuration.
    pub node: usize,
    /// When it arrived, by the program's [`Clock`].
    pub at: Timestamp,
    /// What.
    pub event: PbxEvent,
}

/// Where a link puts what it hears: a bounded queue that all nodes share.
///
/// A link never waits for room in it. While it is full events are dropped and counted; once there is room again the
/// link says so ([`PbxEvent::Lost`]) and reads the list of legs anew.
#[derive(Clone, Debug)]
pub struct LinkInbox {
    sender: mpsc::Sender<FromNode>,
    node: usize,
}

impl LinkInbox {
    /// The inbox as the node at `node` sees it.
    #[must_use]
    pub fn new(sender: mpsc::Sender<FromNode>, node: usize) -> Self {
        Self { sender, node }
    }

    pub(super) fn sender(&self) -> &mpsc::Sender<FromNode> {
        &self.sender
    }

    pub(super) fn message(&self, at: Timestamp, event: PbxEvent) -> FromNode {
        FromNode { node: self.node, at, event }
    }
}

/// A running link to a node.
#[derive(Clone, Debug)]
pub struct Link {
    /// Sends commands to the node.
    pub commander: Commander,
    /// How the link is. `changed()` resolves when the state or the reason changes; the counters are always current in
    /// `borrow()`.
    pub view: watch::Receiver<LinkView>,
}

/// Starts the link to `node`. It keeps itself up until `tasks` is told to stop.
///
/// What follows on a connection, in order: [`PbxEvent::Linked`] when the events flow; [`PbxEvent::Incarnation`] as soon
/// as the PBX says which run of it speaks, and whenever that changes; [`PbxEvent::Snapshot`] when the legs that are up
/// have been read, and about once a minute and after every loss; [`PbxEvent::Unlinked`] when the events are lost. The
/// socket for commands may come and go alone: then the view is not [`LinkState::Up`] and commands are answered with
/// an error, while events go on.
///
/// Keepalive, time-outs and waiting between tries run in real time, however fast `clock` runs; only the arrival
/// stamps come from it.
#[must_use]
pub fn spawn(node: Arc<Node>, clock: Clock, inbox: LinkInbox, tasks: &Tasks) -> Link {
    let transport = Transport::new(node.address.clone(), node.tls.clone());
    spawn_over(transport, node, clock, inbox, tasks)
}

fn spawn_over<C: Connect>(transport: C, node: Arc<Node>, clock: Clock, inbox: LinkInbox, tasks: &Tasks) -> Link {
    let (commander, queue) = Commander::new(COMMAND_QUEUE);
    let (hub, view) = Hub::new(node, clock, inbox.clone());
    let (hub, transport) = (Arc::new(hub), Arc::new(transport));
    let role = |role, queue| RoleTask { role, hub: Arc::clone(&hub), transport: Arc::clone(&transport), queue };
    let (events, commands) = (role(Role::Events, None), role(Role::Commands, Some(queue)));
    let node = &hub.node;
    let credentials = Credentials::new(node.username.clone(), node.password.clone());
    match node.kind {
        PbxKind::FreeSwitch => {
            let (strict, ours) = (node.strict_loss_detection, credentials.clone());
            run(tasks, events.keep_up(move |_| EslEvents::new(ours.clone(), strict)));
            run(tasks, commands.keep_up(move |_| EslCommands::new(credentials.clone())));
        }
        PbxKind::Asterisk => {
            let (astdb, ours) = (node.astdb, credentials.clone());
            // AstDB takes the permission that filters take.
            run(tasks, events.keep_up(move |secrecy| AmiEvents::new(ours.clone(), secrecy, astdb)));
            run(tasks, commands.keep_up(move |secrecy| AmiCommands::new(credentials.clone(), secrecy, astdb)));
        }
    }
    run(tasks, bring_what_is_owed(hub, inbox));
    Link { commander, view }
}

fn run(tasks: &Tasks, task: impl Future<Output = Infallible> + Send + 'static) {
    let group = tasks.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = group.stopping() => {}
            never = task => match never {},
        }
    });
}

/// Waits for room in the engine's queue, in place of the readers.
async fn bring_what_is_owed(hub: Arc<Hub>, inbox: LinkInbox) -> Infallible {
    loop {
        hub.owing.notified().await;
        while hub.state().outlet.owes() {
            let Ok(room) = inbox.sender().reserve().await else {
                // The engine is gone: the program is about to end.
                return std::future::pending().await;
            };
            let Some(message) = hub.state().outlet.owed() else { continue };
            let lost = matches!(message.event, PbxEvent::Lost(_));
            room.send(message);
            if lost {
                hub.list_wanted.notify_one();
            }
        }
    }
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Events,
    Commands,
}

impl Role {
    fn words(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Commands => "commands",
        }
    }
}

/// Where a socket is.
#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Connecting,
    Ready,
    Waiting { why: End, next_try_at: Timestamp },
}

/// What the tasks of a node share.
struct Hub {
    node: Arc<Node>,
    clock: Clock,
    /// The role whose session can read the list of legs.
    lister: Role,
    refused_wait: Duration,
    state: Mutex<State>,
    view: watch::Sender<LinkView>,
    /// A list of the legs is wanted.
    list_wanted: Notify,
    /// The outlet owes something.
    owing: Notify,
    /// Whether the events flow.
    events_flow: watch::Sender<bool>,
}

struct State {
    outlet: Outlet,
    events: Phase,
    commands: Phase,
    /// Whether the legs that are up have been read since the events flow.
    synchronised: bool,
    incarnation: Option<Arc<str>>,
    warned: BTreeSet<String>,
    /// What was said last about each role's trouble, so that it is said once.
    troubles: [String; 2],
}

impl Hub {
    fn new(node: Arc<Node>, clock: Clock, inbox: LinkInbox) -> (Self, watch::Receiver<LinkView>) {
        let since = clock.now();
        let (view, seen) =
            watch::channel(LinkView { since, reason: "not connected yet".to_owned(), ..LinkView::default() });
        let state = State {
            outlet: Outlet::new(inbox, clock),
            events: Phase::Connecting,
            commands: Phase::Connecting,
            synchronised: false,
            incarnation: None,
            warned: BTreeSet::new(),
            troubles: Default::default(),
        };
        let (lister, refused_wait) = match node.kind {
            PbxKind::FreeSwitch => (Role::Commands, CEILING),
            PbxKind::Asterisk => (Role::Events, AMI_REFUSED_WAIT),
        };
        let hub = Self {
            node,
            clock,
            lister,
            refused_wait,
            state: Mutex::new(state),
            view,
            list_wanted: Notify::new(),
            owing: Notify::new(),
            events_flow: watch::Sender::new(false),
        };
        (hub, seen)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands events on, and notices what they mean for the link itself.
    fn hand_on(&self, state: &mut State, events: &mut Vec<PbxEvent>) {
        if events.is_empty() {
            return;
        }
        for event in events.iter() {
            if let PbxEvent::Incarnation(run) = event {
                self.identified(state, run);
            }
        }
        let count = events.len() as u64;
        let dropped = state.outlet.put(events.drain(..));
        if state.outlet.owes() {
            self.owing.notify_one();
        }
        self.count(|view| {
            view.events += count;
            view.dropped += dropped;
        });
    }

    fn identified(&self, state: &mut State, run: &Arc<str>) {
        if state.incarnation.as_ref() == Some(run) {
            return;
        }
        if state.incarnation.replace(Arc::clone(run)).is_some() {
            warn!(node = %self.node.id, run = %run, "the PBX was restarted: its calls and variables are gone");
            self.count(|view| view.restarts += 1);
        }
    }

    /// Changes counters of the view without waking those who wait for a change of state.
    fn count(&self, change: impl FnOnce(&mut LinkView)) {
        self.view.send_if_modified(|view| {
            change(view);
            false
        });
    }

    /// Shows what the phases of both sockets come to.
    fn show(&self, state: &State) {
        let (link, reason, next_try_at) = state.summary();
        self.view.send_if_modified(|view| {
            if view.state == link && view.reason == reason && view.next_try_at == next_try_at {
                return false;
            }
            if view.state != link {
                view.since = self.clock.now();
            }
            (view.state, view.reason, view.next_try_at) = (link, reason, next_try_at);
            true
        });
    }

    fn connecting(&self, role: Role) {
        let mut state = self.state();
        *state.phase(role) = Phase::Connecting;
        self.show(&state);
    }

    fn ready(&self, role: Role) {
        let mut state = self.state();
        *state.phase(role) = Phase::Ready;
        state.troubles[role as usize].clear();
        if role == Role::Events {
            state.synchronised = false;
            self.count(|view| view.connects += 1);
            self.events_flow.send_replace(true);
        }
        info!(node = %self.node.id, socket = role.words(), "logged in");
        self.show(&state);
    }

    fn synchronised(&self, state: &mut State) {
        if !std::mem::replace(&mut state.synchronised, true) {
            info!(node = %self.node.id, "the link is up: events flow, and the legs that are up have been read");
            self.show(state);
        }
    }

    /// A connection has ended; the next try comes after `wait`.
    fn waiting(&self, role: Role, why: End, wait: Duration) {
        let mut state = self.state();
        let was_ready = *state.phase(role) == Phase::Ready;
        let trouble = why.to_string();
        let known = std::mem::replace(&mut state.troubles[role as usize], trouble.clone()) == trouble;
        let (socket, wait_ms) = (role.words(), u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        match &why {
            _ if known => debug!(node = %self.node.id, socket, wait_ms, "still no link: {trouble}"),
            End::Refused(_) => error!(node = %self.node.id, socket, wait_ms, "refused: {trouble}"),
            End::Lost(_) if was_ready => warn!(node = %self.node.id, socket, wait_ms, "link lost: {trouble}"),
            End::Lost(_) => warn!(node = %self.node.id, socket, wait_ms, "no link: {trouble}"),
        }
        let next_try_at = self.clock.now().after(wait.saturating_mul(self.clock.rate()));
        *state.phase(role) = Phase::Waiting { why, next_try_at };
        if was_ready && role == Role::Events {
            state.synchronised = false;
            self.events_flow.send_replace(false);
            self.hand_on(&mut state, &mut vec![PbxEvent::Unlinked]);
        }
        self.show(&state);
    }

    fn note(&self, state: &mut State, role: Role, note: Note) {
        match note {
            // The rest of it was done before the events that came with it.
            Note::Ready => self.list_after_events(state, role),
            Note::Software(software) => self.count(|view| view.software = software),
            Note::RoundTrip(time) if role == Role::Commands => {
                self.count(|view| view.rtt_us = u64::try_from(time.as_micros()).ok());
            }
            Note::RoundTrip(_) => {}
            Note::Damaged => self.count(|view| view.damaged += 1),
            Note::LossFound(count) => {
                warn!(node = %self.node.id, count, "the PBX dropped events for us: reading its calls anew");
                self.count(|view| view.losses += 1);
            }
            Note::Listed => {
                self.count(|view| view.resyncs += 1);
                self.synchronised(state);
            }
            Note::ListFailed(why) => self.warn_once(state, format!("the legs that are up could not be read: {why}")),
            Note::ListRefused(why) => {
                self.warn_once(state, format!("the PBX does not let us read the legs that are up: {why}"));
                self.synchronised(state);
            }
            Note::WantList => self.list_wanted.notify_one(),
            Note::StrayAnswer => debug!(node = %self.node.id, socket = role.words(), "an answer that nobody waits for"),
            Note::Warning(what) => self.warn_once(state, what),
        }
    }

    /// The events have come back while the socket that lists was up all the time.
    fn list_after_events(&self, state: &State, role: Role) {
        if role == Role::Events && self.lister == Role::Commands && state.commands == Phase::Ready {
            self.list_wanted.notify_one();
        }
    }

    fn warn_once(&self, state: &mut State, what: String) {
        if state.warned.len() < MAX_WARNINGS && !state.warned.contains(&what) {
            warn!(node = %self.node.id, "{what}");
            state.warned.insert(what);
        }
    }
}

impl State {
    fn phase(&mut self, role: Role) -> &mut Phase {
        match role {
            Role::Events => &mut self.events,
            Role::Commands => &mut self.commands,
        }
    }

    /// The link is what its worse socket is; without events the other one does not matter.
    fn summary(&self) -> (LinkState, String, Option<Timestamp>) {
        let (role, phase) = match (&self.events, &self.commands) {
            (Phase::Ready, Phase::Ready) if self.synchronised => return (LinkState::Up, String::new(), None),
            (Phase::Ready, Phase::Ready) => {
                return (LinkState::Synchronising, "reading the legs that are up".to_owned(), None);
            }
            (Phase::Ready, commands) => ("commands: ", commands),
            (events, _) => ("", events),
        };
        match phase {
            Phase::Connecting | Phase::Ready => (LinkState::Connecting, format!("{role}connecting"), None),
            Phase::Waiting { why, next_try_at } => {
                let state = if matches!(why, End::Refused(_)) { LinkState::Refused } else { LinkState::Waiting };
                (state, format!("{role}{why}"), Some(*next_try_at))
            }
        }
    }
}

type Answer = oneshot::Sender<CommandResult>;
type CommandQueue = mpsc::Receiver<(Command, Answer)>;

/// Keeps one socket of a node up.
struct RoleTask<C> {
    role: Role,
    hub: Arc<Hub>,
    transport: Arc<C>,
    /// The commands, where this is the socket for them.
    queue: Option<CommandQueue>,
}

impl<C: Connect> RoleTask<C> {
    async fn keep_up<S: Session<Answer>>(mut self, session: impl Fn(Secrecy) -> S) -> Infallible {
        let mut backoff = Backoff::default();
        loop {
            if self.role == Role::Commands {
                let mut flow = self.hub.events_flow.subscribe();
                // The hub holds the sender, so this cannot fail.
                let _ = self.meanwhile(async { flow.wait_for(|flows| *flows).await.map(|_| ()) }).await;
            }
            self.hub.connecting(self.role);
            let transport = Arc::clone(&self.transport);
            let why = match self.meanwhile(transport.connect()).await {
                Err(why) => why,
                Ok(connection) => {
                    let served = Serving::new(connection.io, session(connection.secrecy)).run(&mut self).await;
                    if let Some(lifetime) = served.lifetime {
                        backoff.session_ended(lifetime);
                    }
                    served.why
                }
            };
            let wait = match why {
                // Jitter here too, so that the nodes of a site do not come back in step.
                End::Refused(_) => self.hub.refused_wait.mul_f64(1.0 + fastrand::f64() / 10.0),
                End::Lost(_) => backoff.next(fastrand::f64()),
            };
            self.hub.waiting(self.role, why, wait);
            self.meanwhile(tokio::time::sleep(wait)).await;
        }
    }

    /// Waits for something while there is no connection: commands hear so at once.
    async fn meanwhile<T>(&mut self, something: impl Future<Output = T>) -> T {
        tokio::pin!(something);
        loop {
            tokio::select! {
                done = &mut something => return done,
                (_, answer) = next_command(&mut self.queue) => {
                    // Whoever asked may have gone.
                    let _ = answer.send(Err(CommandError::NotConnected));
                }
            }
        }
    }
}

/// The next command; never where there is no queue, or nobody is left who could put something into it.
async fn next_command(queue: &mut Option<CommandQueue>) -> (Command, Answer) {
    if let Some(commands) = queue {
        if let Some(command) = commands.recv().await {
            return command;
        }
        *queue = None;
    }
    std::future::pending().await
}

/// How a connection went.
struct Served {
    why: End,
    /// How long it lasted from its first frame after the login; `None` where it did not come so far.
    lifetime: Option<Duration>,
}

/// One connection and its session.
struct Serving<S: Session<Answer>> {
    reader: ReadHalf<Box<dyn Io>>,
    writer: Writer,
    codec: S::Codec,
    input: BytesMut,
    session: S,
    effects: Effects<Answer>,
    opened: Instant,
    ready: bool,
    healthy_since: Option<Duration>,
}

/// What woke a connection up.
enum Woken {
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<()>),
    Timer,
    Command(Command, Answer),
    ListWanted,
}

impl<S: Session<Answer>> Serving<S> {
    fn new(io: Box<dyn Io>, session: S) -> Self {
        let (reader, writer) = tokio::io::split(io);
        Self {
            reader,
            writer: Writer { half: writer, pending: BytesMut::new(), flushed: true },
            codec: S::Codec::default(),
            input: BytesMut::with_capacity(READ_SIZE),
            session,
            effects: Effects::default(),
            opened: real_now(),
            ready: false,
            healthy_since: None,
        }
    }

    async fn run<C: Connect>(mut self, task: &mut RoleTask<C>) -> Served {
        let why = loop {
            self.perform(task);
            if let Some(why) = self.effects.end.take() {
                break why;
            }
            match self.wake(task).await {
                Woken::Read(Ok(0)) => self.eof(),
                Woken::Read(Ok(count)) => self.received(count, task),
                Woken::Read(Err(error)) => self.failed("reading", &error),
                Woken::Wrote(Err(error)) => self.failed("writing", &error),
                Woken::Wrote(Ok(())) => {}
                Woken::Timer => self.session.tick(self.opened.elapsed(), &mut self.effects),
                Woken::ListWanted => self.session.list(self.opened.elapsed(), &mut self.effects),
                Woken::Command(command, answer) => self.submit(command, answer, task),
            }
        };
        let lifetime = self.healthy_since.map(|since| self.opened.elapsed().saturating_sub(since));
        self.session.close(&mut self.effects);
        self.perform(task);
        Served { why, lifetime }
    }

    /// Waits for whatever comes first. Every branch may be dropped half way without loss: what was written of a command
    /// stays written, and the rest of it goes before everything else.
    async fn wake<C: Connect>(&mut self, task: &mut RoleTask<C>) -> Woken {
        if self.input.capacity() - self.input.len() < READ_SIZE / 4 {
            self.input.reserve(READ_SIZE);
        }
        let deadline = self.session.deadline().map(|at| self.opened + at);
        let lists = task.role == task.hub.lister;
        tokio::select! {
            read = self.reader.read_buf(&mut self.input) => Woken::Read(read),
            wrote = self.writer.step(), if self.writer.wants() => Woken::Wrote(wrote),
            () = sleep_until(deadline) => Woken::Timer,
            (command, answer) = next_command(&mut task.queue), if self.session.has_room() => Woken::Command(command, answer),
            () = task.hub.list_wanted.notified(), if lists => Woken::ListWanted,
        }
    }

    fn received<C: Connect>(&mut self, count: usize, task: &RoleTask<C>) {
        task.hub.count(|view| view.bytes += count as u64);
        self.session.heard();
        let now = self.opened.elapsed();
        while self.effects.end.is_none() {
            match self.codec.decode(&mut self.input) {
                Ok(Some(frame)) => {
                    if self.ready {
                        self.healthy_since.get_or_insert(now);
                    }
                    self.session.frame(frame, now, &mut self.effects);
                    self.ready |= self.effects.notes.contains(&Note::Ready);
                }
                Ok(None) => break,
                Err(error) => self.effects.end = Some(unreadable(&error)),
            }
        }
    }

    fn eof(&mut self) {
        let cut = matches!(self.codec.decode_eof(&mut self.input), Err(FrameError::Truncated(_)));
        let why = self.session.eof();
        self.effects.end = Some(match why {
            End::Lost(why) if cut => End::Lost(format!("{why}, in the middle of a message")),
            why => why,
        });
    }

    fn failed(&mut self, what: &str, error: &std::io::Error) {
        self.effects.end = Some(End::Lost(format!("{what} failed: {error}")));
    }

    fn submit<C: Connect>(&mut self, command: Command, answer: Answer, task: &mut RoleTask<C>) {
        let now = self.opened.elapsed();
        self.session.submit(command, answer, now, &mut self.effects);
        let Some(queue) = &mut task.queue else { return };
        for _ in 1..COMMANDS_PER_TURN {
            if !self.session.has_room() {
                break;
            }
            let Ok((command, answer)) = queue.try_recv() else { break };
            self.session.submit(command, answer, now, &mut self.effects);
        }
    }

    /// Does what the session asks for, up to the end of the connection.
    fn perform<C: Connect>(&mut self, task: &RoleTask<C>) {
        let (hub, role) = (&task.hub, task.role);
        let effects = &mut self.effects;
        self.writer.pending.unsplit(effects.send.split());
        for (answer, result) in effects.answers.drain(..) {
            // Whoever asked may have gone.
            let _ = answer.send(result);
        }
        if effects.notes.contains(&Note::Ready) {
            hub.ready(role);
            if role == hub.lister {
                self.session.list(self.opened.elapsed(), effects);
                self.writer.pending.unsplit(effects.send.split());
            }
        }
        if effects.events.is_empty() && effects.notes.is_empty() {
            return;
        }
        let mut state = hub.state();
        hub.hand_on(&mut state, &mut effects.events);
        for note in effects.notes.drain(..) {
            hub.note(&mut state, role, note);
        }
    }
}

/// Why a stream cannot be followed any further, as the reason of a loss.
fn unreadable(error: &FrameError) -> End {
    End::Lost(format!("the stream cannot be followed: {error}"))
}

/// What is to be sent. Commands are put in whole and leave in order, however often the wait for the socket is given up
/// half way: FreeSWITCH holds back its events while it has half a command.
struct Writer {
    half: WriteHalf<Box<dyn Io>>,
    pending: BytesMut,
    flushed: bool,
}

impl Writer {
    fn wants(&self) -> bool {
        self.pending.has_remaining() || !self.flushed
    }

    async fn step(&mut self) -> std::io::Result<()> {
        step(&mut self.half, &mut self.pending, &mut self.flushed).await
    }
}

async fn step(half: &mut (impl AsyncWrite + Unpin), pending: &mut BytesMut, flushed: &mut bool) -> std::io::Result<()> {
    if pending.has_remaining() {
        *flushed = false;
        if half.write_buf(pending).await? == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
    } else {
        half.flush().await?;
        *flushed = true;
    }
    Ok(())
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[expect(clippy::disallowed_methods, reason = "time-outs of links run in real time, whatever the program's clock does")]
fn real_now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests;
