//! Processes that end with their owner, and with the test should that be killed.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::eventually;

/// A process that the test started.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts a program with its output in a file.
    ///
    /// `setpriv` asks the kernel to kill it when the thread that started it ends, so that a test which is killed
    /// leaves nothing behind.
    pub(crate) fn start(program: &str, args: &[String], output: &Path) -> Self {
        let out = File::options().create(true).append(true).open(output).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", program])
            .args(args)
            .current_dir(output.parent().unwrap())
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
        Self { name: program.to_owned(), child }
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        eventually(&what, within, || self.child.try_wait().unwrap())
    }

    /// Sends a signal, by name.
    pub(crate) fn signal(&self, signal: &str) {
        let command = format!("kill -s {signal} {}", self.child.id());
        assert!(Command::new("bash").args(["-c", &command]).status().unwrap().success(), "{command}");
    }

    /// Ends the processes that it started, at once.
    pub(crate) fn kill_children(&self) {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let _ = Command::new("bash").args(["-c", &format!("kill -s KILL {children}")]).stderr(Stdio::null()).status();
    }

    /// Ends it at once, without a chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
