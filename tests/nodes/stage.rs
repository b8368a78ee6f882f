//! Switches, and the program over them in this process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::config::{Format, Purpose, load_text};
use pointsman::control::{self, Request, Response};
use pointsman::engine::run::{self, Running};
use pointsman::engine::view::{LinkState, NodeView, View};
use pointsman::pbx::PbxKind;
use pointsman::score::Lethal;
use pointsman::sim::{Behaviour, Call, Handle, Misbehaviour, Route, asterisk, freeswitch};
use pointsman::tasks::Tasks;
use serde_json::Value;

use crate::client::{self, Answer};

/// Longest wait for anything that happens at once on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Most calls of each node.
pub(crate) const MAX_CALLS: u32 = 1000;

/// Two connections in a map.
const PLAN: &str = r#"
[quality]
monitor_asr = true
asr_threshold_percent = 60
statistics_window = 3
retry_batch = 2
retry_interval_sec = 86400
[[connections]]
id = "vendor-a"
[[connections]]
id = "vendor-b"
[[route_maps]]
id = "intl"
prefixes = ["00"]
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
"#;

pub(crate) use PbxKind::{Asterisk, FreeSwitch};

/// The switches `pbx-01`, `pbx-02` and so on.
pub(crate) struct Stage {
    kinds: Vec<PbxKind>,
    pub(crate) pbxs: Vec<Handle>,
    pub(crate) clock: Clock,
    plan: &'static str,
    directory: tempfile::TempDir,
    _tasks: Tasks,
}

impl Stage {
    pub(crate) async fn set(clock: Clock, kinds: &[PbxKind]) -> Self {
        Self::planned(clock, kinds, PLAN).await
    }

    /// With connections and maps of its own.
    pub(crate) async fn planned(clock: Clock, kinds: &[PbxKind], plan: &'static str) -> Self {
        let tasks = Tasks::new();
        let mut pbxs = Vec::new();
        for kind in kinds {
            pbxs.push(match kind {
                FreeSwitch => freeswitch::Server::start(freeswitch::Options::default(), clock, &tasks).await.unwrap(),
                Asterisk => asterisk::Server::start(asterisk::Options::default(), clock, &tasks).await.unwrap(),
            });
        }
        Self { kinds: kinds.to_vec(), pbxs, clock, plan, directory: tempfile::tempdir().unwrap(), _tasks: tasks }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A configuration of these switches with the planned connections and maps, and `more`.
    fn write_config(&self, more: &str) -> PathBuf {
        let mut text = format!(
            r#"
{more}
[http]
listen = "127.0.0.1:0"
{}"#,
            self.plan
        );
        for (number, (kind, pbx)) in self.kinds.iter().zip(&self.pbxs).enumerate() {
            let (id, address) = (id(number), pbx.address());
            let kind = if *kind == FreeSwitch {
                "kind = \"freeswitch\""
            } else {
                "kind = \"asterisk\"\nusername = \"pointsman\""
            };
            text += &format!(
                "[[nodes]]\nid = \"{id}\"\n{kind}\naddress = \"{address}\"\npassword = \"ClueCon\"\n\
                 max_calls = {MAX_CALLS}\nsip_address = \"{id}.example:5060\"\n"
            );
        }
        let path = self.path("pointsman.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Starts the program, and waits until it sees every switch and is seen by clients.
    pub(crate) async fn start(&self, more: &str) -> Program {
        let path = self.write_config(more);
        let text = std::fs::read_to_string(&path).unwrap();
        let config = match load_text(&path, &text, Format::Toml, [], Purpose::Connect) {
            Ok(loaded) => Arc::new(loaded.config),
            Err(problems) => panic!("{}", problems.render(false)),
        };
        let running = run::start(config, self.clock).await.unwrap();
        let mut listening = running.http().unwrap();
        let listens = tokio::time::timeout(PATIENCE, listening.wait_for(|now| now.address.is_some()));
        let http = listens.await.expect("it does not listen").unwrap().address.unwrap();
        let program = Program { running, http, socket: self.path("pointsman.sock") };
        program.sees(|view| (0..self.pbxs.len()).all(|number| is_up(view, number))).await;
        program
    }

    /// Runs the command line beside the program.
    pub(crate) async fn command(&self, args: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pointsman"));
        let command = command.env_clear().env("USER", "alice").args(args);
        command.arg("--config").arg(self.path("pointsman.toml")).output().await.unwrap()
    }

    /// The switch dies: its connections break, and its port is closed.
    pub(crate) fn kill(&self, number: usize) {
        self.pbxs[number].misbehave(&Misbehaviour::RefuseConnections);
        self.pbxs[number].misbehave(&Misbehaviour::Reset);
    }

    pub(crate) fn revive(&self, number: usize) {
        self.pbxs[number].misbehave(&Misbehaviour::AcceptConnections);
    }

    /// Waits until this variable is that on every switch.
    pub(crate) async fn variable_becomes(&self, name: &str, value: &str) {
        for pbx in &self.pbxs {
            let became = pbx.until(PATIENCE, |pbx| pbx.variable(name).as_deref() == Some(value)).await;
            assert!(became, "{name} is {:?} and not {value}", pbx.variable(name));
        }
    }

    /// Sends calls over a vendor that answers or refuses them, one after the other.
    pub(crate) async fn calls(&self, number: usize, vendor: &str, count: usize, good: bool) {
        for _ in 0..count {
            self.call(number, vendor, "4930123456", None, good).await;
        }
    }

    /// One call to a number; `map` is what the dialplan says.
    pub(crate) async fn call(&self, number: usize, vendor: &str, dialled: &str, map: Option<&str>, good: bool) {
        let pbx = &self.pbxs[number];
        pbx.set_vendor(vendor, if good { Behaviour::instant() } else { Behaviour::refusing(503) });
        let call = Call {
            talk: Some(Duration::from_millis(20)),
            map: map.map(str::to_owned),
            ..Call::to(dialled, Route::Trunks(vec![vendor.to_owned()]))
        };
        pbx.place_call(call).report().await;
    }
}

/// The program, running.
pub(crate) struct Program {
    pub(crate) running: Running,
    pub(crate) http: SocketAddr,
    socket: PathBuf,
}

impl Program {
    pub(crate) async fn sees(&self, what: impl Fn(&View) -> bool) -> Arc<View> {
        let mut views = self.running.view();
        match tokio::time::timeout(PATIENCE, views.wait_for(|view| what(view))).await {
            Ok(view) => view.unwrap().clone(),
            Err(_) => panic!("{:#?}", *self.running.view().borrow()),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        client::get(self.http, path).await
    }

    /// Which node the next call should go to, and whether that is the fallback.
    pub(crate) async fn route(&self) -> (String, bool) {
        let answer = self.get("/api/route").await;
        let route = answer.json();
        assert_eq!(answer.status, 200, "{answer:?}");
        let node = route["node_id"].as_str().unwrap().to_owned();
        assert_eq!(route["address"], format!("{node}.example:5060"));
        (node, route["fallback_active"].as_bool().unwrap())
    }

    /// Waits until that is the answer.
    pub(crate) async fn routes_to(&self, number: usize) {
        let best = id(number);
        self.sees(|view| view.routing.best_node.as_ref().is_some_and(|node| node.as_str() == best)).await;
        assert_eq!(self.route().await, (best, false));
    }

    /// Has something changed over HTTP.
    pub(crate) async fn change(&self, method: &str, path: &str, body: &str) {
        let answer = client::send_json(self.http, method, path, body).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }

    /// An agent tells a node's load.
    pub(crate) async fn load(&self, number: usize, load_avg: f64, idle_cpu: f64) {
        let body = format!(r#"{{"load_avg": {load_avg}, "idle_cpu": {idle_cpu}}}"#);
        self.change("PUT", &format!("/api/nodes/{}/load", id(number)), &body).await;
        let told = |view: &View| node(view, number).figures.idle_cpu.is_some_and(|seen| seen.value == idle_cpu);
        self.sees(told).await;
    }

    /// Has something changed over the control socket.
    pub(crate) async fn control(&self, request: &Request) {
        assert_eq!(control::request(Path::new(&self.socket), request).await.unwrap(), Response::Done);
    }

    /// A node as HTTP shows it.
    pub(crate) async fn node(&self, number: usize) -> Value {
        self.get(&format!("/api/nodes/{}", id(number))).await.json()
    }

    pub(crate) async fn stop(self) {
        assert!(self.running.stop().await);
    }
}

pub(crate) fn id(number: usize) -> String {
    format!("pbx-{:02}", number + 1)
}

pub(crate) fn node(view: &View, number: usize) -> &NodeView {
    view.nodes.iter().find(|node| node.id.as_str() == id(number)).unwrap()
}

/// Whether there is a link to it, for the engine too, and its variables are in step.
pub(crate) fn is_up(view: &View, number: usize) -> bool {
    let node = node(view, number);
    let linked = node.link.state == LinkState::Up && !node.assessment.lethal.contains(&Lethal::LinkDown);
    linked && node.variables.in_step_at.is_some() && node.figures.rtt_ms.is_some()
}
