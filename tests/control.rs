//! The control socket, and `pointsman status` over it: real sockets, good and bad clients.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::control::{self, ControlError, MAX_CLIENTS, MAX_PATH, MAX_REQUEST, Request, Response};
use pointsman::dialplan::readback::Probes;
use pointsman::engine::reload::Reloader;
use pointsman::engine::request::Desk;
use pointsman::engine::view::{MailView, RoutingView, StorageView, UnknownTrunk, View};
use pointsman::ids::NodeId;
use pointsman::listen::Listening;
use pointsman::notify::run::OutboxDesk;
use pointsman::tasks::Tasks;
use pointsman::time::Timestamp;
use pointsman::xds::clients::Registry;
use pointsman::xds::view::{ClientView, Protocol, XdsView};
use tokio::sync::watch;

fn view(generation: u64) -> Arc<View> {
    Arc::new(View {
        version: "0.1.0".into(),
        at: Timestamp::from_secs(1_700_000_000),
        started_at: Timestamp::from_secs(1_700_000_000),
        generation,
        nodes: vec![],
        connections: vec![],
        routing: RoutingView::default(),
        maps: vec![],
        changes: vec![],
        mail: MailView::default(),
        http: None,
        edge: Arc::default(),
        xds: None,
        storage: StorageView { healthy: true, ..StorageView::default() },
        unknown_trunks: vec![UnknownTrunk {
            node: NodeId::new("pbx-01").unwrap(),
            trunk: "a \"b\"\n\u{1b}c".into(),
            attempts: 3,
        }],
    })
}

/// An engine that is gone.
fn engine() -> control::Engine {
    control::Engine {
        desk: Desk::new().0,
        clock: Clock::system(),
        probes: Probes::default(),
        reloader: Reloader::default(),
        xds: None,
    }
}

/// A served socket in a directory of its own.
struct Served {
    path: PathBuf,
    view: watch::Sender<Arc<View>>,
    tasks: Tasks,
    _dir: tempfile::TempDir,
}

async fn served() -> Served {
    served_with(None).await
}

async fn served_with(xds: Option<Registry>) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/pointsman.sock");
    let (view, receiver) = watch::channel(view(1));
    let tasks = Tasks::new();
    let engine = control::Engine { xds, ..engine() };
    control::serve(&path, receiver, OutboxDesk::default(), engine, &tasks).await.unwrap();
    Served { path, view, tasks, _dir: dir }
}

async fn serve_again(path: &Path) -> Result<Tasks, ControlError> {
    let tasks = Tasks::new();
    let (_, receiver) = watch::channel(view(2));
    control::serve(path, receiver, OutboxDesk::default(), engine(), &tasks).await.map(|()| tasks)
}

/// What the server says to these bytes, until it closes or has answered a line.
fn say(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may have answered and closed before it has read everything.
    let _ = stream.write_all(bytes);
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test]
async fn the_picture_of_now_is_answered() {
    let served = served().await;
    assert_eq!(control::request(&served.path, &Request::Ping).await.unwrap(), Response::Pong);
    assert_eq!(control::request(&served.path, &Request::Status).await.unwrap(), Response::Status(view(1)));
    served.view.send(view(2)).unwrap();
    let path = served.path.clone();
    let answer = blocking(move || control::request_blocking(&path, &Request::Status)).await;
    assert_eq!(answer.unwrap(), Response::Status(view(2)));
}

#[tokio::test]
async fn only_its_user_may_use_it_and_it_goes_at_the_end() {
    let served = served().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&served.path), mode(served.path.parent().unwrap())), (0o600, 0o700));
    assert!(served.tasks.stop(Duration::from_secs(10)).await);
    assert!(!served.path.exists());
    let error = control::request(&served.path, &Request::Ping).await.unwrap_err();
    assert!(matches!(error, ControlError::NotRunning(_)), "{error}");
}

#[tokio::test]
async fn a_second_instance_is_refused_and_the_first_goes_on() {
    let served = served().await;
    let error = serve_again(&served.path).await.unwrap_err();
    assert!(matches!(error, ControlError::AlreadyRunning(_)), "{error}");
    assert_eq!(control::request(&served.path, &Request::Ping).await.unwrap(), Response::Pong);
}

#[tokio::test]
async fn what_a_dead_process_left_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pointsman.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _tasks = serve_again(&path).await.unwrap();
    assert_eq!(control::request(&path, &Request::Ping).await.unwrap(), Response::Pong);
}

#[tokio::test]
async fn somebody_elses_socket_or_file_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let error = serve_again(&path).await.unwrap_err();
    assert!(matches!(error, ControlError::AlreadyRunning(_)), "{error}");

    let path = dir.path().join("file");
    fs::write(&path, "precious").unwrap();
    let error = serve_again(&path).await.unwrap_err();
    assert!(matches!(error, ControlError::NotASocket(_)), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[tokio::test]
async fn a_path_that_is_too_long_is_named() {
    let path = Path::new("/tmp").join("x".repeat(MAX_PATH));
    let error = serve_again(&path).await.unwrap_err();
    assert!(matches!(error, ControlError::PathTooLong(_)), "{error}");
    let error = control::request(&path, &Request::Ping).await.unwrap_err();
    assert!(matches!(error, ControlError::PathTooLong(_)), "{error}");
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_in_words() {
    let served = served().await;
    let path = served.path.clone();
    blocking(move || {
        for (bytes, expected) in [
            (b"hello\n".to_vec(), "not understood"),
            (br#"{"request":"fly"}"#.iter().chain(b"\n").copied().collect(), "expected one of `ping`, `status`"),
            (b"\xff\xfe\n".to_vec(), "not understood"),
            (vec![b'['; MAX_REQUEST + 2], "at most"),
        ] {
            let answer = say(&path, &bytes);
            assert!(answer.contains(expected) && answer.contains("refused"), "{answer}");
        }
        // A client that says half a word and goes, or nothing, gets no answer and harms nobody.
        assert_eq!(UnixStream::connect(&path).map(drop).map_err(|e| e.to_string()), Ok(()));
        UnixStream::connect(&path).unwrap().write_all(b"{\"requ").unwrap();
    })
    .await;
    assert_eq!(control::request(&served.path, &Request::Ping).await.unwrap(), Response::Pong);
}

#[tokio::test]
async fn several_requests_fit_into_one_connection() {
    let served = served().await;
    let path = served.path.clone();
    let answers = blocking(move || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"request\":\"ping\"}\n{\"request\":\"status\"}\nnonsense\n").unwrap();
        let lines = BufReader::new(stream).lines().take(3).map(|line| line.unwrap());
        lines
            .map(|line| serde_json::from_str::<serde_json::Value>(&line).unwrap()["response"].clone())
            .collect::<Vec<_>>()
    })
    .await;
    assert_eq!(answers, ["pong", "status", "refused"]);
}

#[tokio::test]
async fn idle_clients_cost_others_nothing_but_their_places() {
    let served = served().await;
    let idle: Vec<_> = (0..MAX_CLIENTS).map(|_| UnixStream::connect(&served.path).unwrap()).collect();
    let error = control::request(&served.path, &Request::Ping).await.unwrap_err();
    assert!(matches!(&error, ControlError::Refused(why) if why.contains("16 clients")), "{error}");
    drop(idle);
    // The server notices that they are gone at its next turn.
    let answered = async {
        while control::request(&served.path, &Request::Ping).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), answered).await.unwrap();
}

/// A server of another make, that answers each client with these bytes.
fn fake_server(path: &Path, answer: &'static [u8]) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new());
            let _ = stream.write_all(answer);
        }
    });
}

#[tokio::test]
async fn an_answer_of_another_version_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let ask = async |name: &str, answer| {
        let path = dir.path().join(name);
        fake_server(&path, answer);
        control::request(&path, &Request::Status).await.unwrap_err().to_string()
    };
    let newer =
        ask("newer", b"{\"version\":\"9.1.0\",\"pid\":1,\"response\":\"status\",\"content\":{\"new\":1}}\n").await;
    assert!(newer.contains("from version 9.1.0") && newer.contains(env!("CARGO_PKG_VERSION")), "{newer}");
    let cut = ask("cut", b"{\"version\":").await;
    assert!(cut.contains("ends after 11 bytes"), "{cut}");
}

// ===== the command =====

fn command(name: &[&str], socket: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.args(name).arg("--socket").arg(socket).args(more).output().unwrap()
}

fn status(socket: &Path, more: &[&str]) -> Output {
    command(&["status"], socket, more)
}

fn clients(socket: &Path, more: &[&str]) -> Output {
    command(&["xds", "clients"], socket, more)
}

#[tokio::test]
async fn status_prints_what_runs() {
    let served = served().await;
    let path = served.path.clone();
    let (text, json) = blocking(move || (status(&path, &[]), status(&path, &["--json"]))).await;
    assert_eq!((text.status.code(), json.status.code()), (Some(0), Some(0)));
    let said = String::from_utf8(text.stdout).unwrap();
    assert!(said.starts_with("pointsman 0.1.0, running for ") && said.contains("[[connections]]"), "{said}");
    assert_eq!(serde_json::from_slice::<View>(&json.stdout).unwrap(), *view(1));
}

#[test]
fn status_of_nothing_fails_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let output = status(&dir.path().join("none.sock"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no pointsman answers on") && said.contains("none.sock"), "{said}");
}

#[tokio::test]
async fn status_watches_until_it_is_stopped() {
    let served = served().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(["status", "--json", "--watch", "1", "--socket"])
        .arg(&served.path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let lines = blocking(move || {
        let mut output = BufReader::new(output);
        let mut lines = [String::new(), String::new()];
        lines.iter_mut().for_each(|line| assert!(output.read_line(line).unwrap() > 0));
        (lines, output)
    });
    let (lines, mut rest) = lines.await;
    assert_eq!(lines[0], lines[1]);
    child.kill().unwrap();
    child.wait().unwrap();
    rest.read_to_end(&mut Vec::new()).unwrap();
}

fn client(node: &str) -> ClientView {
    ClientView {
        stream: 0,
        node: node.into(),
        cluster: "edges".into(),
        software: "envoy 1.40.0".into(),
        peer: "127.0.0.1:41234".into(),
        who: None,
        protocol: Protocol::Delta,
        since: Clock::system().now(),
        subscriptions: vec![],
        unserved: vec![],
    }
}

#[tokio::test]
async fn the_clients_of_the_xds_server_are_shown() {
    let listening = Listening { address: Some("127.0.0.1:18000".parse().unwrap()), ..Listening::default() };
    let (state, listening) = watch::channel(listening);
    let registry = Registry::new(listening, Clock::system());
    let served = served_with(Some(registry.clone())).await;
    let _here = registry.enter(client("envoy-01"));
    registry.refuse("127.0.0.1:41235".into(), "it showed no token".into());
    let path = served.path.clone();
    let (text, json) = blocking(move || (clients(&path, &[]), clients(&path, &["--json"]))).await;
    assert_eq!((text.status.code(), json.status.code()), (Some(0), Some(0)));
    let said = String::from_utf8(text.stdout).unwrap();
    for part in ["xDS on 127.0.0.1:18000: 1 client\n", " envoy-01  envoy ", "it showed no token"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(serde_json::from_slice::<XdsView>(&json.stdout).unwrap(), registry.view());

    let problem = "the xDS server cannot listen on 127.0.0.1:18000: Address already in use";
    state.send_replace(Listening { address: None, problem: problem.into() });
    let path = served.path.clone();
    let (text, json) = blocking(move || (clients(&path, &[]), clients(&path, &["--json"]))).await;
    assert_eq!((text.status.code(), json.status.code()), (Some(1), Some(1)));
    let said = String::from_utf8(text.stdout).unwrap();
    assert!(said.starts_with(&format!("xDS: NOT listening\n{problem}\n")), "{said}");
}

#[tokio::test]
async fn without_an_xds_server_nobody_can_be_there() {
    let served = served().await;
    let path = served.path.clone();
    let output = blocking(move || clients(&path, &["--json"])).await;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "pointsman: no xDS server is configured: it takes a section `xds` in the configuration\n";
    assert_eq!(said, expected);
}
