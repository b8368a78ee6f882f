//! Processes that end with their owner, and with the test should that be killed.

use std::fs::File;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
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
    pub(crate) fn start(program: &str, args: &[String], output: &Path) -> Self {
        let out = File::options().create(true).append(true).open(output).unwrap();
        let mut command = command(program, args, output);
        let child = command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).spawn();
        Self { name: program.to_owned(), child: started(program, child) }
    }

    /// Starts a program that is talked to, with what it complains of in a file.
    pub(crate) fn talking(program: &str, args: &[String], complaints: &Path) -> (Self, ChildStdin, ChildStdout) {
        let out = File::options().create(true).append(true).open(complaints).unwrap();
        let mut command = command(program, args, complaints);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(out).spawn();
        let mut child = started(program, child);
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        (Self { name: program.to_owned(), child }, input, output)
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

/// A program in the folder of that file.
///
/// `setpriv` asks the kernel to kill it when the thread that started it ends, so that a test which is killed leaves
/// nothing behind.
fn command(program: &str, args: &[String], file: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]).args(args).current_dir(file.parent().unwrap());
    command
}

fn started(program: &str, child: std::io::Result<Child>) -> Child {
    child.unwrap_or_else(|error| panic!("cannot start {program}: {error}"))
}
