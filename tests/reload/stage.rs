//! Two switches, and a configuration between them that the tests write anew.

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::config::{self, Purpose};
use pointsman::engine::reload::{Failed, Loader, Order, Reloaded};
use pointsman::engine::request::By;
use pointsman::engine::run::{self, Running};
use pointsman::engine::view::{ConnectionView, LinkState, View};
use pointsman::sim::{Behaviour, Call, Handle, Route, asterisk, freeswitch};
use pointsman::tasks::Tasks;

/// Longest wait for anything that happens at once on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The file that every test begins with, but for the nodes.
pub(crate) const FIRST: &str = r#"
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
[[route_maps]]
id = "old"
prefixes = ["9"]
entries = [{ connection = "vendor-b", priority = 10 }]
"#;

pub(crate) struct Stage {
    /// An Asterisk and a FreeSWITCH.
    pub(crate) pbxs: [Handle; 2],
    directory: tempfile::TempDir,
    _tasks: Tasks,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let (tasks, clock) = (Tasks::new(), Clock::system());
        let asterisk = asterisk::Server::start(asterisk::Options::default(), clock, &tasks).await.unwrap();
        let freeswitch = freeswitch::Server::start(freeswitch::Options::default(), clock, &tasks).await.unwrap();
        let stage = Self { pbxs: [asterisk, freeswitch], directory: tempfile::tempdir().unwrap(), _tasks: tasks };
        stage.write(FIRST);
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the file: what every one begins with, and `text`.
    pub(crate) fn write(&self, text: &str) {
        let [asterisk, freeswitch] = self.pbxs.each_ref().map(Handle::address);
        let nodes = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\n\
             [[nodes]]\nid = \"ast\"\nkind = \"asterisk\"\naddress = \"{asterisk}\"\nusername = \"pointsman\"\npassword = \"ClueCon\"\n\
             [[nodes]]\nid = \"fs\"\nkind = \"freeswitch\"\naddress = \"{freeswitch}\"\npassword = \"ClueCon\"\n"
        );
        std::fs::write(self.path("pointsman.toml"), nodes + text).unwrap();
    }

    /// Writes [`FIRST`] with these replacements.
    pub(crate) fn edit(&self, replacements: &[(&str, &str)]) {
        let mut text = FIRST.to_owned();
        for (from, to) in replacements {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        self.write(&text);
    }

    /// Starts the program in this process, and waits until it sees the switches.
    pub(crate) async fn start(&self) -> Program {
        let path = self.path("pointsman.toml");
        let load = move || config::load_with(&path, [], Purpose::Connect);
        let config = Arc::new(load().unwrap().config);
        let running = run::start_with(config, Clock::system(), Some(Loader::new(load))).await.unwrap();
        let program = Program { running };
        program.sees(is_up).await;
        program
    }

    /// Runs the command line beside the program.
    pub(crate) async fn command(&self, args: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pointsman"));
        command.env_clear().env("USER", "alice").args(args).output().await.unwrap()
    }

    /// Sends calls over a vendor that answers or refuses them, one after the other.
    pub(crate) async fn calls(&self, pbx: usize, vendor: &str, count: usize, good: bool) {
        let pbx = &self.pbxs[pbx];
        pbx.set_vendor(vendor, if good { Behaviour::instant() } else { Behaviour::refusing(503) });
        for _ in 0..count {
            let talk = Some(Duration::from_millis(20));
            let call = Call { talk, ..Call::to("004930123456", Route::Trunks(vec![vendor.to_owned()])) };
            pbx.place_call(call).report().await;
        }
    }

    /// Waits until this variable is that on every switch; `None`: not set, which on Asterisk is to be empty.
    pub(crate) async fn variable_becomes(&self, name: &str, value: Option<&str>) {
        for pbx in &self.pbxs {
            let held = |pbx: &Handle| pbx.variable(name).filter(|held| !held.is_empty());
            let became = pbx.until(PATIENCE, |pbx| held(pbx).as_deref() == value).await;
            assert!(became, "{name} is {:?} and not {value:?}", pbx.variable(name));
        }
    }
}

pub(crate) fn is_up(view: &View) -> bool {
    view.nodes.len() == 2
        && view.nodes.iter().all(|node| node.link.state == LinkState::Up && node.variables.in_step_at.is_some())
}

pub(crate) struct Program {
    pub(crate) running: Running,
}

impl Program {
    pub(crate) async fn sees(&self, what: impl Fn(&View) -> bool) -> Arc<View> {
        let mut views = self.running.view();
        match tokio::time::timeout(PATIENCE, views.wait_for(|view| what(view))).await {
            Ok(view) => view.unwrap().clone(),
            Err(_) => panic!("{:#?}", *self.running.view().borrow()),
        }
    }

    pub(crate) async fn reload(&self, dry_run: bool) -> Result<Reloaded, Failed> {
        let by = By::new("a test", "").unwrap();
        self.running.reloader().reload(Order { dry_run, by }).await
    }

    pub(crate) async fn stop(self) {
        assert!(self.running.stop().await);
    }
}

pub(crate) fn connection<'a>(view: &'a View, id: &str) -> Option<&'a ConnectionView> {
    view.connections.iter().find(|one| one.key.connection.as_str() == id)
}
