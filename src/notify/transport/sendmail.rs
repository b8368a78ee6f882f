//! A delivery through a local program with sendmail's interface: `PATH -i -f FROM -- TO`, the message on its input.
//!
//! It is run here and not by lettre, whose sendmail transport keeps the exit status to itself: it alone (sysexits.h)
//! says whether to try again. The program is killed where it does not end in time; what it started itself is not.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use lettre::Address;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::{span, words};
use crate::notify::letter::Failure;

/// Most bytes of the program's complaints that are kept; the rest is read and forgotten.
const MAX_STDERR: usize = 4096;

/// How long the end of its complaints is waited for after the program has ended: something that it left running may
/// hold them open.
const STDERR_LIMIT: Duration = Duration::from_millis(200);

/// A program with sendmail's interface.
#[derive(Debug)]
pub(super) struct Program(PathBuf);

impl Program {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(super) async fn deliver(
        &self,
        from: &Address,
        to: &Address,
        message: &[u8],
        limit: Duration,
    ) -> Result<String, Failure> {
        match tokio::time::timeout(limit, self.run(from, to, message)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                Err(Failure::Server(format!("{} did not end within {} and was killed", self.0.display(), span(limit))))
            }
        }
    }

    async fn run(&self, from: &Address, to: &Address, message: &[u8]) -> Result<String, Failure> {
        let path = self.0.display();
        let child = self.start(from, to);
        let mut child = child.map_err(|error| Failure::Server(format!("cannot start {path}: {error}")))?;
        let mut complaints = Vec::new();
        let (ended, whole) = converse(&mut child, message, &mut complaints).await;
        let status = ended.map_err(|error| Failure::Server(format!("cannot wait for {path}: {error}")))?;
        let said = words(&String::from_utf8_lossy(&complaints));
        if status.success() {
            return if whole { Ok(said) } else { Err(Failure::Temporary(format!("{path} did not read the message"))) };
        }
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        Err(sort(status)(format!("{path} failed for {to} ({status}){said}")))
    }

    /// No address can be taken for an option: the one is an option's value, the other comes after the last of them.
    fn start(&self, from: &Address, to: &Address) -> std::io::Result<Child> {
        let (from, to): (&str, &str) = (from.as_ref(), to.as_ref());
        Command::new(&self.0)
            .args(["-i", "-f", from, "--", to])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }
}

/// Gives the program the message and hears it out. Says how it ended and whether it took the whole message.
async fn converse(child: &mut Child, message: &[u8], complaints: &mut Vec<u8>) -> (std::io::Result<ExitStatus>, bool) {
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        let Some(mut stdin) = stdin else { return false };
        stdin.write_all(message).await.is_ok() && stdin.shutdown().await.is_ok()
    };
    let mut listen = std::pin::pin!(listen(stderr, complaints));
    let run = async { tokio::join!(child.wait(), write) };
    let mut run = std::pin::pin!(run);
    tokio::select! {
        ended = &mut run => {
            // What is still to come is not needed.
            let _ = tokio::time::timeout(STDERR_LIMIT, listen).await;
            ended
        }
        () = &mut listen => run.await,
    }
}

async fn listen(stderr: Option<impl AsyncRead + Unpin>, complaints: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let mut part = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut part).await {
        let room = MAX_STDERR.saturating_sub(complaints.len());
        complaints.extend_from_slice(&part[..read.min(room)]);
    }
}

/// What an exit status means, after sysexits.h: a usage error (64), data error (65), unknown user (67) or host (68) will
/// be the same the next time; no permission (77) and a wrong configuration (78) are the same for every letter. All the
/// rest may pass: unavailable (69) is what programs say for want of a better word.
fn sort(status: ExitStatus) -> fn(String) -> Failure {
    match status.code() {
        Some(64 | 65 | 67 | 68) => Failure::Permanent,
        Some(77 | 78) => Failure::Server,
        _ => Failure::Temporary,
    }
}
