//! The program under test: the real binary with a configuration, a database and a control socket of its own.

use std::process::{Command, Output};
use std::time::Duration;

use pointsman::engine::view::{ConnectionView, LinkState, NodeView, View};

use super::asterisk::{Asterisk, SECRET};
use super::folder::Folder;
use super::process::Process;
use super::{SOON, eventually};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_pointsman");

/// A node in the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) host: &'static str,
    pub(crate) port: u16,
    pub(crate) password: String,
    pub(crate) more: String,
}

impl Node {
    /// The node that this Asterisk is, with the right password.
    pub(crate) fn of(id: &str, asterisk: &Asterisk) -> Self {
        Self::at(id, asterisk.ami_port)
    }

    pub(crate) fn at(id: &str, port: u16) -> Self {
        Self { id: id.to_owned(), host: "127.0.0.1", port, password: SECRET.to_owned(), more: String::new() }
    }
}

impl Node {
    /// Its lines in a configuration.
    pub(crate) fn text(&self) -> String {
        let Self { id, host, port, password, more } = self;
        format!(
            "[[nodes]]\nid = \"{id}\"\nkind = \"asterisk\"\naddress = \"{host}:{port}\"\nusername = \"pointsman\"\n\
             password = \"{password}\"\n{more}\n"
        )
    }
}

/// A configuration: these nodes, the connections as one route map "intl" in that order, all judged alike.
pub(crate) fn configuration(nodes: &[String], connections: &[&str], quality: &str) -> String {
    let mut text = format!("[quality]\n{quality}\n{}", nodes.concat());
    for connection in connections {
        text += &format!("[[connections]]\nid = \"{connection}\"\n");
    }
    text += "[[route_maps]]\nid = \"intl\"\nprefixes = [\"00\"]\nentries = [\n";
    for (i, connection) in connections.iter().enumerate() {
        text += &format!("  {{ connection = \"{connection}\", priority = {} }},\n", 10 * (i + 1));
    }
    text + "]\n"
}

/// The program, running.
#[derive(Debug)]
pub(crate) struct Pointsman {
    folder: Folder,
    process: Option<Process>,
}

impl Pointsman {
    pub(crate) fn start(configuration: &str) -> Self {
        let folder = Folder::new("program");
        let text = format!(
            "control_socket = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[storage]\npath = \"{}\"\n{configuration}",
            folder.join("control").display(),
            folder.join("state.db").display()
        );
        folder.write("pointsman.toml", &text);
        let mut pointsman = Self { folder, process: None };
        pointsman.go();
        pointsman
    }

    /// Starts it (again), with the state that is on the disk.
    pub(crate) fn go(&mut self) {
        let args = ["run", "--config", "pointsman.toml", "--log", "info,pointsman=debug"].map(str::to_owned);
        let mut process = Process::start(BINARY, &args, &self.folder.join("log"));
        eventually("pointsman to answer `status`", SOON, || {
            assert!(process.runs(), "pointsman ended:\n{}", self.log());
            self.view()
        });
        self.process = Some(process);
    }

    /// SIGKILL: no chance to tidy up.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Stops it in its tracks: its connections stay open and nobody reads them.
    pub(crate) fn freeze(&self) {
        self.process.as_ref().expect("it runs").signal("STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.process.as_ref().expect("it runs").signal("CONT");
    }

    /// SIGTERM, and a proper end.
    pub(crate) fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.signal("TERM");
        let status = process.wait(SOON);
        assert!(status.success(), "pointsman ended with {status}:\n{}", self.log());
    }

    /// Runs another command with the same configuration.
    pub(crate) fn command(&self, args: &[&str]) -> Output {
        command(&self.folder, args)
    }

    /// Changes its configuration file; gives what was in it before.
    pub(crate) fn change(&self, change: impl FnOnce(String) -> String) -> String {
        let before = self.folder.read("pointsman.toml");
        let after = change(before.clone());
        assert_ne!(before, after, "nothing changed");
        self.folder.write("pointsman.toml", &after);
        before
    }

    /// What `pointsman status --json` prints; `None` where the program does not answer.
    pub(crate) fn view(&self) -> Option<View> {
        let output = self.command(&["status", "--config", "pointsman.toml", "--json"]);
        if !output.status.success() {
            return None;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("status --json: {error}\n{text}")))
    }

    /// Waits until the view shows what is looked for.
    pub(crate) fn shows<T>(&self, what: &str, within: Duration, mut look: impl FnMut(&View) -> Option<T>) -> T {
        let mut last = None;
        let began = std::time::Instant::now();
        loop {
            if let Some(view) = self.view() {
                if let Some(found) = look(&view) {
                    return found;
                }
                last = Some(view);
            }
            assert!(began.elapsed() < within, "waited {within:?} in vain for: {what}; last seen: {last:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until that node's link is up and its variables are as they should be.
    pub(crate) fn is_in_step_with(&self, id: &str) {
        self.shows(&format!("{id} in step"), SOON, |view| {
            let node = node(view, id);
            (node.link.state == LinkState::Up && node.variables.pending == 0 && node.variables.in_step_at.is_some())
                .then_some(())
        });
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        self.folder.read("log")
    }
}

impl Drop for Pointsman {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let last: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("the end of pointsman's log:");
            last.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
        self.process = None;
    }
}

/// Runs a command of the program in a folder.
pub(crate) fn command(folder: &Folder, args: &[&str]) -> Output {
    let output = Command::new(BINARY).args(args).current_dir(folder.path()).output();
    output.unwrap_or_else(|error| panic!("{BINARY}: {error}"))
}

/// The node of that name.
pub(crate) fn node<'v>(view: &'v View, id: &str) -> &'v NodeView {
    view.nodes.iter().find(|node| node.id.as_str() == id).unwrap_or_else(|| panic!("no node {id} in {view:#?}"))
}

/// The connection of that name.
pub(crate) fn connection<'v>(view: &'v View, id: &str) -> &'v ConnectionView {
    let found = view.connections.iter().find(|connection| connection.key.to_string() == id);
    found.unwrap_or_else(|| panic!("no connection {id} in {view:#?}"))
}
