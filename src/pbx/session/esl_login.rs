//! The first words on FreeSWITCH's event socket: its greeting, our password, its verdict.

use std::time::Duration;

use super::{Credentials, End, LOGIN_LIMIT, Step, esl_encode, quote};
use crate::wire::esl::EslFrame;

/// A `userauth` without a reply after this long may have been answered with one that FreeSWITCH cut together with its
/// end (it builds the reply in 512 bytes, and a list of allowed commands stands in it). Only the next reply shows it,
/// so one is provoked.
const NUDGE_AFTER: Duration = Duration::from_millis(500);

/// A command for its reply alone.
pub(super) const NUDGE: &str = "api status\n\n";

/// Login of one session.
#[derive(Debug)]
pub(super) struct EslLogin {
    credentials: Credentials,
    stage: Stage,
    /// Replies to [`NUDGE`] that are still to come.
    nudged: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Greeting,
    Verdict { asked_at: Duration },
    Accepted,
}

impl EslLogin {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self { credentials, stage: Stage::Greeting, nudged: false }
    }

    pub(super) fn accepted(&self) -> bool {
        self.stage == Stage::Accepted
    }

    /// Whether the reply to a command sent during the login is still to come after it.
    pub(super) fn owes_reply(&self) -> bool {
        self.nudged
    }

    pub(super) fn frame(&mut self, frame: &EslFrame, now: Duration) -> Step {
        match (frame.content_type(), &self.stage) {
            (b"auth/request", Stage::Greeting) => self.authenticate(now),
            (b"command/reply", Stage::Verdict { .. }) => self.verdict(frame),
            (kind, _) => end_of_session(frame).map_or_else(|| unexpected(kind, &self.stage), Step::End),
        }
    }

    fn authenticate(&mut self, now: Duration) -> Step {
        self.stage = Stage::Verdict { asked_at: now };
        match esl_encode::login(self.credentials.user(), self.credentials.password()) {
            Ok(command) => Step::Send(command),
            Err(error) => Step::End(End::refused(format!("the login {error}"))),
        }
    }

    fn verdict(&mut self, frame: &EslFrame) -> Step {
        let reply = frame.header("Reply-Text").unwrap_or_default();
        if reply.starts_with(b"+OK") {
            self.stage = Stage::Accepted;
            return Step::Accepted;
        }
        let what = if self.credentials.user().is_some() { "user or password" } else { "password" };
        Step::End(End::refused(format!("FreeSWITCH refuses the {what} ({})", quote(reply))))
    }

    /// What it means that the connection was closed at this stage.
    pub(super) fn eof(&self) -> End {
        End::lost(match self.stage {
            Stage::Greeting => "FreeSWITCH closed the connection before its greeting",
            Stage::Verdict { .. } => "FreeSWITCH closed the connection during the login",
            Stage::Accepted => "FreeSWITCH closed the connection",
        })
    }

    pub(super) fn tick(&mut self, now: Duration) -> Step {
        if now >= LOGIN_LIMIT {
            return Step::End(End::lost(match self.stage {
                Stage::Greeting => format!("connected, but no greeting in {} s", LOGIN_LIMIT.as_secs()),
                _ => format!("no answer to the login in {} s", LOGIN_LIMIT.as_secs()),
            }));
        }
        match self.nudge_at() {
            Some(at) if now >= at => {
                self.nudged = true;
                Step::Send(NUDGE.to_owned())
            }
            _ => Step::Wait,
        }
    }

    fn nudge_at(&self) -> Option<Duration> {
        match self.stage {
            Stage::Verdict { asked_at } if self.credentials.user().is_some() && !self.nudged => {
                Some(asked_at + NUDGE_AFTER)
            }
            _ => None,
        }
    }

    pub(super) fn deadline(&self) -> Duration {
        self.nudge_at().unwrap_or(LOGIN_LIMIT)
    }
}

/// What a frame that ends a session says; `None` where it is another kind of frame.
pub(super) fn end_of_session(frame: &EslFrame) -> Option<End> {
    match frame.content_type() {
        b"text/rude-rejection" => {
            Some(End::refused("FreeSWITCH's access list (apply-inbound-acl of event_socket.conf) refuses our address"))
        }
        b"text/disconnect-notice" if frame.header("Content-Disposition") != Some(b"linger") => {
            let first_line = frame.body.split(|&b| b == b'\n').next().unwrap_or_default();
            Some(End::lost(format!("FreeSWITCH closed the session: {}", quote(first_line))))
        }
        _ => None,
    }
}

fn unexpected(kind: &[u8], stage: &Stage) -> Step {
    match stage {
        // Anything else before the greeting is not an event socket, or a state that no login can follow.
        Stage::Greeting => Step::End(End::lost(format!("expected FreeSWITCH's greeting and got {:?}", quote(kind)))),
        _ => Step::Wait,
    }
}
