//! `pointsman demo`: the real binary over simulated switches, with its plot.

use std::time::Duration;

use serde_json::Value;

use super::folder::Folder;
use super::pointsman::{BINARY, command};
use super::process::Process;
use super::{SOON, eventually};

/// The demo, running.
#[derive(Debug)]
pub(crate) struct Demo {
    folder: Folder,
    process: Process,
    /// Where its dashboard is, without a slash at the end.
    pub(crate) url: String,
}

impl Demo {
    /// Starts it with these arguments and waits until it listens.
    pub(crate) fn start(args: &[&str]) -> Self {
        let folder = Folder::new("demo");
        // What it keeps for itself goes with our folder, however it ends.
        let mut all = vec![format!("TMPDIR={}", folder.path().display()), BINARY.to_owned(), "demo".to_owned()];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let mut process = Process::start("env", &all, &folder.join("out"));
        let line = eventually("the demo to say where it listens", SOON, || {
            let told = folder.read("out");
            assert!(process.runs(), "the demo ended:\n{told}");
            told.lines().find_map(|line| Some(line.split_once("in a browser: ")?.1.to_owned()))
        });
        Self { folder, process, url: line.trim_end_matches('/').to_owned() }
    }

    /// What `pointsman test-dialplan --json` says of this number.
    pub(crate) fn dialplan(&self, number: &str) -> Value {
        let told = self.folder.read("out");
        let (_, socket) = told.split_once("--socket ").expect("it says where its socket is");
        let socket = socket.split([',', '\n']).next().unwrap();
        let output = command(&self.folder, &["test-dialplan", number, "--socket", socket, "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("test-dialplan: {error}: {output:?}"))
    }

    /// Waits until it has told this so many times.
    pub(crate) fn tells(&mut self, what: &str, times: usize, within: Duration) {
        eventually(what, within, || {
            assert!(self.process.runs(), "the demo ended:\n{}", self.folder.read("out"));
            (self.folder.read("out").matches(what).count() >= times).then_some(())
        });
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what the demo told:\n{}", self.folder.read("out"));
        }
        // Before the folder goes, into which it writes.
        self.process.kill();
    }
}
