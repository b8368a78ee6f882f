//! The driver against peers that misbehave. Where only the order of things matters the "network" is a pipe in memory
//! and time is tokio's paused one; sockets, floods and TLS are real, on the loopback interface.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use secrecy::SecretString;
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::*;
use crate::config::model::Tls;
use crate::ids::{LegId, NodeId};
use crate::pbx::backoff::FLOOR;
use crate::pbx::command::Reply;
use crate::pbx::transport::Connection;

/// Longest that a test waits for anything in real time.
const PATIENCE: Duration = Duration::from_secs(60);

const GREETING: &str = "Content-Type: auth/request\n\n";
const ACCEPTED: &str = "Content-Type: command/reply\nReply-Text: +OK accepted\n\n";
const OK: &str = "Content-Type: command/reply\nReply-Text: +OK\n\n";
const NO_CHANNELS: &str = "{\"row_count\": 0}\n";

fn node(kind: PbxKind, address: &str, tls: Option<Tls>) -> Node {
    Node {
        id: NodeId::new("pbx-01").unwrap(),
        kind,
        address: address.to_owned(),
        username: (kind == PbxKind::Asterisk).then(|| "pointsman".to_owned()),
        password: SecretString::from("ClueCon".to_owned()),
        max_calls: None,
        max_calls_per_sec: None,
        local: false,
        cores: None,
        sip_address: String::new(),
        tls,
        slots: false,
        astdb: false,
        strict_loss_detection: false,
    }
}

fn response(body: &str) -> String {
    format!("Content-Type: api/response\nContent-Length: {}\n\n{body}", body.len())
}

fn event(fields: &[(&str, &str)]) -> String {
    let lines = fields.iter().map(|(name, value)| format!("{name}: {value}\n")).chain(["\n".to_owned()]);
    let body: String = lines.collect();
    format!("Content-Length: {}\nContent-Type: text/event-plain\n\n{body}", body.len())
}

/// What the next try to connect meets.
enum Meets {
    Nobody,
    Somebody,
}

/// Connections in memory: the far ends come out of a queue.
struct Network {
    plan: Mutex<VecDeque<Meets>>,
    far_ends: mpsc::Sender<DuplexStream>,
    buffer: usize,
    tries: AtomicUsize,
    tried_at: Mutex<Vec<Instant>>,
}

impl Connect for Arc<Network> {
    async fn connect(&self) -> Result<Connection, End> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        self.tried_at.lock().unwrap().push(real_now());
        let meets = self.plan.lock().unwrap().pop_front().unwrap_or(Meets::Somebody);
        match meets {
            Meets::Nobody => Err(End::Lost("nobody there".to_owned())),
            Meets::Somebody => {
                let (near, far) = tokio::io::duplex(self.buffer);
                self.far_ends.send(far).await.unwrap();
                Ok(Connection { io: Box::new(near), secrecy: Secrecy::Plain })
            }
        }
    }
}

/// The PBX's end of a connection.
struct Peer<I> {
    io: I,
    seen: String,
}

impl<I: Io> Peer<I> {
    fn new(io: I) -> Self {
        Self { io, seen: String::new() }
    }

    async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.io.write_all(text.as_ref()).await.unwrap();
        self.io.flush().await.unwrap();
    }

    /// Waits until this has come; what came with it before is returned and gone.
    async fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            assert!(self.more().await > 0, "closed while {text:?} was awaited; seen {:?}", self.seen);
        }
    }

    async fn more(&mut self) -> usize {
        let mut buffer = [0; 4096];
        let count = tokio::time::timeout(PATIENCE * 10, self.io.read(&mut buffer)).await.expect("something to read");
        let count = count.unwrap_or(0);
        self.seen.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        count
    }

    /// FreeSWITCH takes the login and the subscription.
    async fn subscribe(&mut self) {
        self.send(GREETING).await;
        self.expect("auth ClueCon\n\n").await;
        self.send(ACCEPTED).await;
        for command in ["filter ", "filter ", "filter ", "filter ", "event plain "] {
            self.expect(command).await;
            self.send(OK).await;
        }
    }

    /// FreeSWITCH takes the login on the socket for commands and answers the first questions.
    async fn serve_first_questions(&mut self, core: &str) {
        self.send(GREETING).await;
        self.expect("auth ClueCon\n\n").await;
        self.send(ACCEPTED).await;
        for (question, answer) in [
            ("api global_getvar core_uuid\n\n", core),
            ("api status\n\n", "UP\nFreeSWITCH (Version 1.10.12 -release 64bit) is ready\n"),
            ("api show channels as json\n\n", NO_CHANNELS),
        ] {
            self.expect(question).await;
            self.send(response(answer)).await;
        }
    }
}

/// A link under test and everything around it.
struct Bench {
    link: Link,
    inbox: mpsc::Receiver<FromNode>,
    network: Arc<Network>,
    far_ends: mpsc::Receiver<DuplexStream>,
    tasks: Tasks,
}

impl Bench {
    fn over_pipes(kind: PbxKind, plan: impl IntoIterator<Item = Meets>, buffer: usize) -> Self {
        let (far_ends, receiver) = mpsc::channel(16);
        let network = Arc::new(Network {
            plan: Mutex::new(plan.into_iter().collect()),
            far_ends,
            buffer,
            tries: AtomicUsize::new(0),
            tried_at: Mutex::default(),
        });
        let (sender, inbox) = mpsc::channel(1024);
        let tasks = Tasks::new();
        let inbox_of_node = LinkInbox::new(sender, 7);
        let node = Arc::new(node(kind, "pipe", None));
        let link = spawn_over(Arc::clone(&network), node, Clock::system(), inbox_of_node, &tasks);
        Self { link, inbox, network, far_ends: receiver, tasks }
    }

    fn freeswitch(plan: impl IntoIterator<Item = Meets>) -> Self {
        Self::over_pipes(PbxKind::FreeSwitch, plan, 1 << 16)
    }

    /// Over sockets; `depth` is the room in the engine's queue.
    fn over_sockets(node: Node, depth: usize) -> Self {
        let mut bench = Self::over_pipes(node.kind, [], 1);
        let (sender, inbox) = mpsc::channel(depth);
        bench.tasks = Tasks::new();
        bench.link = spawn(Arc::new(node), Clock::system(), LinkInbox::new(sender, 7), &bench.tasks);
        bench.inbox = inbox;
        bench
    }

    async fn peer(&mut self) -> Peer<DuplexStream> {
        Peer::new(self.far_ends.recv().await.unwrap())
    }

    /// The next event that is not about the keepalive, which comes at any time.
    async fn heard(&mut self) -> PbxEvent {
        loop {
            let message = tokio::time::timeout(PATIENCE * 10, self.inbox.recv()).await.expect("an event").unwrap();
            assert_eq!(message.node, 7);
            if !matches!(message.event, PbxEvent::Vitals(_) | PbxEvent::Silent) {
                return message.event;
            }
        }
    }

    async fn until(&mut self, wanted: impl Fn(&LinkView) -> bool) -> LinkView {
        let seen = tokio::time::timeout(PATIENCE * 10, self.link.view.wait_for(|view| wanted(view))).await;
        seen.expect("the state that was waited for").unwrap().clone()
    }

    async fn until_state(&mut self, state: LinkState) -> LinkView {
        self.until(|view| view.state == state).await
    }

    /// Both sockets up, and the first events taken.
    async fn up(&mut self) -> (Peer<DuplexStream>, Peer<DuplexStream>) {
        let mut events = self.peer().await;
        events.subscribe().await;
        let mut commands = self.peer().await;
        commands.serve_first_questions("core-1").await;
        self.until_state(LinkState::Up).await;
        assert_eq!(self.heard().await, PbxEvent::Linked);
        assert_eq!(self.heard().await, PbxEvent::Incarnation("core-1".into()));
        assert!(matches!(self.heard().await, PbxEvent::Snapshot(_)));
        (events, commands)
    }

    fn tries(&self) -> usize {
        self.network.tries.load(Ordering::SeqCst)
    }
}

fn set(value: &str) -> Command {
    Command::SetVariable { name: "pm_x".to_owned(), value: value.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_link_comes_up_step_by_step_and_serves_commands() {
    let mut bench = Bench::freeswitch([]);
    assert_eq!(bench.link.commander.run(set("a")).await, Err(CommandError::NotConnected), "at once");
    let (mut events, mut commands) = bench.up().await;
    let view = bench.link.view.borrow().clone();
    assert_eq!((view.reason.as_str(), view.next_try_at, view.connects, view.resyncs), ("", None, 1, 1));
    assert_eq!(view.software, "FreeSWITCH 1.10.12 -release 64bit");
    assert!(view.rtt_us.is_some() && view.bytes > 0);

    let done = bench.link.commander.submit(set("vendor-a"));
    commands.expect("api global_setvar pm_x=vendor-a\n\n").await;
    commands.send(response("+OK")).await;
    assert_eq!(done.await.unwrap(), Ok(Reply::Done));

    events.send(event(&[("Event-Name", "HEARTBEAT"), ("Core-UUID", "core-1"), ("Session-Count", "3")])).await;
    assert_eq!(bench.heard().await, PbxEvent::Incarnation("core-1".into()), "from this socket for the first time");
    let PbxEvent::Heartbeat(figures) = bench.heard().await else { panic!() };
    assert_eq!(figures.session_count, Some(3));
    assert_eq!(bench.link.view.borrow().restarts, 0);
    assert!(bench.tasks.stop(PATIENCE).await, "every task ends when it is told to");
}

#[tokio::test(start_paused = true)]
async fn asterisk_lists_on_the_socket_that_hears() {
    let mut bench = Bench::over_pipes(PbxKind::Asterisk, [], 1 << 16);
    let mut events = bench.peer().await;
    events.send("Asterisk Call Manager/11.0.0\r\n").await;
    let login = events.expect("\r\n\r\n").await;
    assert!(login.contains("Secret: ClueCon\r\nEvents: system,call\r\n"), "{login}");
    events.send("Response: Success\r\nActionID: pm-1\r\nMessage: Authentication accepted\r\n\r\n").await;
    events.expect("Action: CoreStatus\r\nActionID: pm-16\r\n\r\n").await;
    let status = "CoreStartupDate: 2026-11-30\r\nCoreStartupTime: 07:00:01\r\n";
    events.send(format!("Response: Success\r\nActionID: pm-16\r\n{status}\r\n")).await;
    events.expect("Action: CoreShowChannels\r\nActionID: pm-17\r\n\r\n").await;
    events.send("Response: Success\r\nActionID: pm-17\r\nEventList: start\r\n\r\n").await;
    events.send("Event: CoreShowChannelsComplete\r\nActionID: pm-17\r\nListItems: 0\r\n\r\n").await;
    assert_eq!(bench.heard().await, PbxEvent::Linked);
    assert_eq!(bench.heard().await, PbxEvent::Incarnation("2026-11-30 07:00:01".into()));
    assert!(matches!(bench.heard().await, PbxEvent::Snapshot(_)));

    let mut commands = bench.peer().await;
    commands.send("Asterisk Call Manager/11.0.0\r\n").await;
    commands.expect("Events: off\r\n\r\n").await;
    commands.send("Response: Success\r\nActionID: pm-1\r\n\r\n").await;
    bench.until_state(LinkState::Up).await;
    let done = bench.link.commander.submit(set("a"));
    commands.expect("Action: Setvar\r\nActionID: pm-19\r\n").await;
    commands.send("Response: Success\r\nActionID: pm-19\r\nMessage: Variable Set\r\n\r\n").await;
    assert_eq!(done.await.unwrap(), Ok(Reply::Done));
    assert_eq!(bench.link.commander.run(Command::List).await, Ok(Reply::Done));
    events.expect("Action: CoreShowChannels\r\nActionID: pm-18\r\n\r\n").await;
}

/// A wrong password is asked for at the longest step only, on one socket only, and says what it is.
#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_not_hammered() {
    for (kind, longest) in [(PbxKind::FreeSwitch, 30), (PbxKind::Asterisk, 60)] {
        let mut bench = Bench::over_pipes(kind, [], 1 << 16);
        for round in 1..=4 {
            let mut peer = bench.peer().await;
            if kind == PbxKind::FreeSwitch {
                peer.send(GREETING).await;
                peer.expect("auth ClueCon\n\n").await;
                peer.send("Content-Type: command/reply\nReply-Text: -ERR invalid\n\n").await;
            } else {
                peer.send("Asterisk Call Manager/11.0.0\r\n").await;
                peer.expect("\r\n\r\n").await;
                peer.send("Response: Error\r\nActionID: pm-1\r\nMessage: Authentication failed\r\n\r\n").await;
            }
            let view = bench.until_state(LinkState::Refused).await;
            assert!(view.reason.contains("refuses"), "{}", view.reason);
            assert!(view.next_try_at.is_some());
            assert_eq!(bench.tries(), round);
            bench.until_state(LinkState::Connecting).await;
        }
        let times = bench.network.tried_at.lock().unwrap().clone();
        for pair in times.windows(2) {
            let gap = (pair[1] - pair[0]).as_secs_f64();
            let longest = f64::from(longest);
            assert!(gap >= longest && gap <= longest * 1.2, "{gap}");
        }
    }
}

/// E24, A20: an error and an end of the same connection each scheduled a reconnect, so that their number doubled.
#[tokio::test(start_paused = true)]
async fn e24_one_try_at_a_time_with_growing_waits_that_start_over() {
    let plan = (0..5).map(|_| Meets::Nobody);
    let mut bench = Bench::freeswitch(plan);
    let mut reset = bench.peer().await;
    reset.send(GREETING).await;
    reset.expect("auth").await;
    drop(reset);
    let mut events = bench.peer().await;
    events.subscribe().await;
    bench.until(|view| view.connects == 1).await;
    let mut commands = bench.peer().await;
    let times = bench.network.tried_at.lock().unwrap().clone();
    assert_eq!(times.len(), 8, "seven tries for the events, then one for the commands");
    for (pair, upper) in times.windows(2).zip([1.0, 2.0, 4.0, 8.0, 16.0, 30.0]) {
        let gap = (pair[1] - pair[0]).as_secs_f64();
        assert!(gap >= FLOOR.as_secs_f64() && gap <= upper + 0.01, "{gap} of {upper}");
    }
    commands.serve_first_questions("core-1").await;
    bench.until_state(LinkState::Up).await;

    events.send(event(&[("Event-Name", "HEARTBEAT"), ("Core-UUID", "core-1")])).await;
    bench.until(|view| view.events >= 4).await;
    let lost_at = real_now();
    drop(events);
    let _again = bench.peer().await;
    assert!(lost_at.elapsed() <= Duration::from_millis(1010), "a session that worked starts the waits over");
}

/// E29, A19: the path is gone without a word, on both sockets.
#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up_after_three_keepalives() {
    let mut bench = Bench::freeswitch([]);
    let (_events, _commands) = bench.up().await;
    let up_at = real_now();
    let view = bench.until_state(LinkState::Waiting).await;
    assert!(view.reason.contains("no sign of life"), "{}", view.reason);
    let after = up_at.elapsed().as_secs_f64();
    assert!((14.9..=20.1).contains(&after), "{after}");
    loop {
        match bench.heard().await {
            PbxEvent::Unlinked => break,
            other => assert!(!matches!(other, PbxEvent::Linked), "{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn silence_at_every_step_of_the_login_is_given_up() {
    for steps in 0..3 {
        let mut bench = Bench::freeswitch([]);
        let mut peer = bench.peer().await;
        if steps > 0 {
            peer.send(GREETING).await;
        }
        if steps > 1 {
            peer.expect("auth").await;
            peer.send(ACCEPTED).await;
        }
        let view = bench.until_state(LinkState::Waiting).await;
        let expected = ["no greeting", "no answer to the login", "no answer to the subscription"][steps];
        assert!(view.reason.contains(expected), "{}", view.reason);
    }
}

/// E19: whoever waits for an answer hears of the loss at once, and whoever asks in between as well.
#[tokio::test(start_paused = true)]
async fn e19_commands_never_hang() {
    let mut bench = Bench::freeswitch([]);
    let (_events, mut commands) = bench.up().await;
    let pending: Vec<_> = (0..10).map(|_| bench.link.commander.submit(set("a"))).collect();
    commands.expect("api global_setvar").await;
    let lost_at = real_now();
    drop(commands);
    for answer in pending {
        assert_eq!(answer.await.unwrap(), Err(CommandError::LinkLost));
    }
    assert_eq!(bench.link.commander.run(set("a")).await, Err(CommandError::NotConnected));
    assert!(lost_at.elapsed() < Duration::from_millis(10));

    let mut commands = bench.peer().await;
    commands.serve_first_questions("core-1").await;
    bench.until_state(LinkState::Up).await;
    let asked_at = real_now();
    let unanswered = bench.link.commander.submit(set("b"));
    commands.expect("api global_setvar pm_x=b\n\n").await;
    assert_eq!(unanswered.await.unwrap(), Err(CommandError::TimedOut));
    assert!(asked_at.elapsed() < Duration::from_millis(5500));
    let next = bench.link.commander.submit(set("c"));
    commands.expect("api global_setvar pm_x=c\n\n").await;
    commands.send(response("-ERR late")).await;
    commands.send(response("UP")).await;
    commands.send(response("+OK")).await;
    assert_eq!(next.await.unwrap(), Ok(Reply::Done), "the late answer was nobody's");
}

/// Each socket may go alone. Without the one for commands events go on; without events the other one still serves.
#[tokio::test(start_paused = true)]
async fn each_socket_comes_back_alone() {
    let mut bench = Bench::freeswitch([]);
    let (mut events, commands) = bench.up().await;
    drop(commands);
    let view = bench.until_state(LinkState::Waiting).await;
    assert!(view.reason.starts_with("commands: "), "{}", view.reason);
    events.send(event(&[("Event-Name", "HEARTBEAT"), ("Core-UUID", "core-1")])).await;
    assert!(matches!(bench.heard().await, PbxEvent::Incarnation(_)));
    assert!(matches!(bench.heard().await, PbxEvent::Heartbeat(_)));
    let mut commands = bench.peer().await;
    commands.serve_first_questions("core-1").await;
    bench.until_state(LinkState::Up).await;
    assert!(matches!(bench.heard().await, PbxEvent::Incarnation(_)));
    assert!(matches!(bench.heard().await, PbxEvent::Snapshot(_)), "what is up is read again");

    drop(events);
    bench.until_state(LinkState::Waiting).await;
    assert_eq!(bench.heard().await, PbxEvent::Unlinked);
    let done = bench.link.commander.submit(set("a"));
    commands.expect("api global_setvar pm_x=a\n\n").await;
    commands.send(response("+OK")).await;
    assert_eq!(done.await.unwrap(), Ok(Reply::Done));

    let mut events = bench.peer().await;
    events.subscribe().await;
    assert_eq!(bench.heard().await, PbxEvent::Linked);
    commands.expect("api show channels as json\n\n").await;
    commands.send(response(NO_CHANNELS)).await;
    assert!(matches!(bench.heard().await, PbxEvent::Snapshot(_)));
    let view = bench.until_state(LinkState::Up).await;
    assert_eq!((view.connects, view.restarts), (2, 0));
}

/// E27: another run of FreeSWITCH answers after the gap.
#[tokio::test(start_paused = true)]
async fn e27_a_restart_is_noticed_before_the_first_list() {
    let mut bench = Bench::freeswitch([]);
    let (events, commands) = bench.up().await;
    drop((events, commands));
    assert_eq!(bench.heard().await, PbxEvent::Unlinked);
    let mut events = bench.peer().await;
    events.subscribe().await;
    let mut commands = bench.peer().await;
    commands.serve_first_questions("core-2").await;
    assert_eq!(bench.heard().await, PbxEvent::Linked);
    assert_eq!(bench.heard().await, PbxEvent::Incarnation("core-2".into()));
    assert!(matches!(bench.heard().await, PbxEvent::Snapshot(_)));
    assert_eq!(bench.link.view.borrow().restarts, 1);
}

/// L02: FreeSWITCH holds its events back while it has half a command. The pipe takes a few bytes at a time, so every
/// command is written in many pieces, with events in between.
#[tokio::test(start_paused = true)]
async fn l02_commands_leave_whole_and_in_order_through_the_narrowest_pipe() {
    let mut bench = Bench::over_pipes(PbxKind::FreeSwitch, [], 7);
    let (_events, mut commands) = bench.up().await;
    let pending: Vec<_> = (0..200).map(|n| bench.link.commander.submit(set(&format!("value-{n}")))).collect();
    for n in 0..200 {
        let before = commands.expect(&format!("api global_setvar pm_x=value-{n}\n\n")).await;
        assert!(before.starts_with("api ") && before.ends_with("\n\n"), "{before:?}");
        let keepalives = before.matches("api status\n\n").count();
        for _ in 0..keepalives {
            commands.send(response("UP")).await;
        }
        commands.send(event(&[("Event-Name", "CUSTOM")])).await;
        commands.send(response("+OK")).await;
    }
    for answer in pending {
        assert_eq!(answer.await.unwrap(), Ok(Reply::Done));
    }
}

/// Commands are pipelined up to a bound; what does not fit waits in the queue and is answered all the same.
#[tokio::test(start_paused = true)]
async fn commands_are_pipelined_up_to_a_bound() {
    let mut bench = Bench::over_pipes(PbxKind::FreeSwitch, [], 1 << 20);
    let (_events, mut commands) = bench.up().await;
    let pending: Vec<_> = (0..2000).map(|n| bench.link.commander.submit(set(&format!("value-{n}-")))).collect();
    let in_flight = crate::pbx::session::MAX_IN_FLIGHT;
    commands.expect(&format!("pm_x=value-{}-\n\n", in_flight - 1)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(commands.seen, "", "nothing beyond the bound");
    for n in 0..2000 {
        commands.send(response("+OK")).await;
        if n % 500 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for answer in pending {
        assert_eq!(answer.await.unwrap(), Ok(Reply::Done));
    }
}

/// A peer that sends one byte at a time is slow, not dead.
#[tokio::test(start_paused = true)]
async fn a_peer_of_single_bytes_is_understood() {
    let mut bench = Bench::over_pipes(PbxKind::FreeSwitch, [], 1);
    let (mut events, _commands) = bench.up().await;
    let text = event(&[("Event-Name", "HEARTBEAT"), ("Core-UUID", "core-1"), ("Session-Count", "3")]);
    for byte in text.bytes() {
        events.send([byte]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(matches!(bench.heard().await, PbxEvent::Incarnation(_)));
    assert!(matches!(bench.heard().await, PbxEvent::Heartbeat(_)));
}

/// E16 and others: what cannot be followed ends the connection with a reason, once, and nothing of it is left over.
#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_followed_ends_the_connection_with_a_reason() {
    let cut = "Content-Length: 100\nContent-Type: text/event-plain\n\nEvent-Na";
    let endless = "x".repeat((1 << 20) + 100);
    for (last_words, close, reason) in [
        (cut, true, "in the middle of a message"),
        ("", true, "FreeSWITCH closed the connection"),
        ("Content-Length: 99999999999\nContent-Type: text/event-plain\n\n", false, "99999999999 bytes was announced"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", false, "cannot be followed"),
        (&format!("Content-Type: {endless}"), false, "header block longer than"),
    ] {
        let mut bench = Bench::freeswitch([]);
        let (mut events, _commands) = bench.up().await;
        // Where the limit is reached half way, the other end may be gone before all is sent.
        let _ = events.io.write_all(last_words.as_bytes()).await;
        if close {
            drop(events);
        }
        let view = bench.until_state(LinkState::Waiting).await;
        assert!(view.reason.contains(reason), "{} instead of {reason}", view.reason);
        assert_eq!(bench.heard().await, PbxEvent::Unlinked);
        let mut again = bench.peer().await;
        again.subscribe().await;
        assert_eq!(bench.heard().await, PbxEvent::Linked);
        assert_eq!(bench.tries(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn something_else_that_listens_there_is_named() {
    let mut bench = Bench::freeswitch([]);
    let mut peer = bench.peer().await;
    peer.send("SSH-2.0-OpenSSH_9.6\r\n").await;
    let view = bench.until_state(LinkState::Waiting).await;
    assert!(view.reason.contains("SSH-2.0"), "{}", view.reason);
}

#[tokio::test]
async fn nobody_listens() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut bench = Bench::over_sockets(node(PbxKind::FreeSwitch, &address.to_string(), None), 16);
    let view = bench.until_state(LinkState::Waiting).await;
    assert!(
        view.reason.contains("connection refused") && view.reason.contains(&address.to_string()),
        "{}",
        view.reason
    );
    assert_eq!(bench.link.commander.run(Command::List).await, Err(CommandError::NotConnected));
}

/// E31: a client whose consumer was blocked stopped reading, and FreeSWITCH's events froze for everybody.
#[tokio::test]
async fn e31_a_blocked_engine_never_stops_the_reading() {
    const ROOM: usize = 16;
    const FLOOD: u64 = 5_000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut bench = Bench::over_sockets(node(PbxKind::FreeSwitch, &address, None), ROOM);
    let mut events = Peer::new(listener.accept().await.unwrap().0);
    events.subscribe().await;
    let mut commands = Peer::new(listener.accept().await.unwrap().0);
    commands.serve_first_questions("core-1").await;
    bench.until_state(LinkState::Up).await;
    // However long the flood takes on a busy machine, this socket stays alive beside it.
    bench.tasks.spawn(async move {
        loop {
            if commands.more().await == 0 {
                return;
            }
            for (question, answer) in [("api status\n\n", "UP"), ("api show channels as json\n\n", NO_CHANNELS)] {
                for _ in 0..commands.seen.matches(question).count() {
                    commands.send(response(answer)).await;
                }
            }
            let answered = commands.seen.rfind("\n\n").map_or(0, |at| at + 2);
            commands.seen.drain(..answered);
        }
    });

    // Nobody takes anything out of the engine's queue, and yet all of it is read.
    let filler = "f".repeat(4000);
    let fields = [("Event-Name", "HEARTBEAT"), ("Core-UUID", "core-1"), ("variable_sdp", filler.as_str())];
    let flood = event(&fields);
    for _ in 0..FLOOD {
        tokio::time::timeout(PATIENCE, events.send(&flood)).await.expect("the socket is drained at all times");
    }
    // Two of the link and three of the first questions came before, and the run's name with the first of the flood.
    bench.until_counted(|view| view.events >= FLOOD + 4).await;
    let view = bench.link.view.borrow().clone();
    assert!(view.dropped >= FLOOD - ROOM as u64, "{view:?}");
    assert_eq!(view.state, LinkState::Up);

    // Once there is room, the engine hears how many are missing, and the legs are read anew.
    let mut taken = 0;
    let missing = loop {
        match bench.heard().await {
            PbxEvent::Lost(count) => break count,
            _ => taken += 1,
        }
    };
    // A list may have been read and dropped meanwhile.
    assert!(missing >= view.dropped, "{missing} {view:?}");
    assert!(taken + missing >= FLOOD);
    let lists = bench.link.view.borrow().resyncs;
    while !matches!(bench.heard().await, PbxEvent::Snapshot(_)) {}
    bench.until_counted(|view| view.resyncs > lists).await;
}

impl Bench {
    /// Counters change without waking anybody.
    async fn until_counted(&self, wanted: impl Fn(&LinkView) -> bool) -> LinkView {
        let deadline = real_now() + PATIENCE;
        loop {
            let view = self.link.view.borrow().clone();
            if wanted(&view) {
                return view;
            }
            assert!(real_now() < deadline, "{view:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A certificate for `localhost`, and the file of the authority that signed it.
fn certificate() -> (TlsAcceptor, tempfile::TempDir, Tls) {
    let authority = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer_certificate = params.self_signed(&authority).unwrap();
    let issuer = rcgen::Issuer::new(params, authority);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, issuer_certificate.pem()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let tls = Tls { ca_file: Some(ca_file), server_name: Some("localhost".to_owned()) };
    (TlsAcceptor::from(Arc::new(config)), folder, tls)
}

#[tokio::test]
async fn tls_with_an_authority_of_ones_own() {
    let (acceptor, _folder, tls) = certificate();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut bench = Bench::over_sockets(node(PbxKind::Asterisk, &address, Some(tls)), 64);
    let mut events = Peer::new(acceptor.accept(listener.accept().await.unwrap().0).await.unwrap());
    events.send("Asterisk Call Manager/11.0.0\r\n").await;
    let login = events.expect("\r\n\r\n").await;
    assert!(login.contains("Secret: ClueCon"), "inside TLS the password may go as it is: {login}");
    events.send("Response: Success\r\nActionID: pm-1\r\n\r\n").await;
    assert_eq!(bench.heard().await, PbxEvent::Linked);
    // Large enough to span records.
    let events_sent = 3000;
    for _ in 0..events_sent {
        events.send("nel: PJSIP/t-00000001\r\nUniqueid: 1.1\r\n\r\n").await;
    }
    bench.until_counted(|view| view.damaged == events_sent).await;
}

#[tokio::test]
async fn a_certificate_that_proves_nothing_is_refused() {
    let (acceptor, _folder, tls) = certificate();
    let (_, _other_folder, other) = certificate();
    let wrong_name = Tls { server_name: None, ..tls.clone() };
    let no_file = Tls { ca_file: Some("/nowhere/ca.pem".into()), ..tls };
    for (tls, reason) in [(other, "certificate"), (wrong_name, "certificate"), (no_file, "/nowhere/ca.pem")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut bench = Bench::over_sockets(node(PbxKind::Asterisk, &address, Some(tls)), 64);
        let acceptor = acceptor.clone();
        bench.tasks.spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            assert!(acceptor.accept(stream).await.is_err());
        });
        let view = bench.until_state(LinkState::Waiting).await;
        assert!(view.reason.contains("TLS") && view.reason.contains(reason), "{}", view.reason);
    }
}

/// A question about a leg is asked on the socket for commands and answered by an event.
#[tokio::test(start_paused = true)]
async fn a_description_comes_as_an_event() {
    let mut bench = Bench::freeswitch([]);
    let (_events, mut commands) = bench.up().await;
    let answer = bench.link.commander.submit(Command::Describe(LegId::new("u-2")));
    commands.expect("api uuid_dump u-2 json\n\n").await;
    commands
        .send(response(r#"{"Unique-ID":"u-2","Call-Direction":"outbound","variable_sip_gateway_name":"v1"}"#))
        .await;
    assert_eq!(answer.await.unwrap(), Ok(Reply::Done));
    let PbxEvent::FreeSwitch(described) = bench.heard().await else { panic!() };
    assert_eq!((described.leg.as_str(), described.gateway.as_deref()), ("u-2", Some("v1")));
}
