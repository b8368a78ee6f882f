//! The dialogue with one socket as a pure state machine.
//!
//! A node has two sockets, each with a session of its own: one only listens ([`EslEvents`], [`AmiEvents`]), one only
//! asks ([`EslCommands`], [`AmiCommands`]), because a command holds back the events of its own connection on both
//! kinds of PBX. A session takes frames, commands and the time, and says what is to be done in [`Effects`]; it knows
//! no socket, no clock and no task, so every dialogue of every case can be played in a test.
//!
//! A session lives exactly as long as its connection: login state, replies awaited and half a list die with it and
//! cannot leak into the next one. `now` is the real time since the connection was made.

mod ami_commands;
mod ami_encode;
mod ami_events;
mod ami_login;
mod esl_commands;
mod esl_encode;
mod esl_events;
mod esl_login;
mod keepalive;
mod lister;
mod pending;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::BytesMut;
use secrecy::{ExposeSecret, SecretString};
use tokio_util::codec::Decoder;

pub use self::ami_commands::AmiCommands;
pub use self::ami_events::AmiEvents;
pub use self::ami_login::Secrecy;
pub use self::esl_commands::EslCommands;
pub use self::esl_events::EslEvents;
use crate::pbx::command::{Command, CommandError, CommandResult};
use crate::pbx::event::PbxEvent;
use crate::wire::limits::FrameError;

/// A connection that is not logged in and ready after this long is given up. Asterisk takes a second to refuse a
/// password, a FreeSWITCH under load some to greet; FreeSWITCH itself waits 25 s for us.
pub const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// A command without an answer after this long is answered with [`CommandError::TimedOut`]. Commands that we send
/// take microseconds; what takes seconds has failed for all practical purposes of a caller.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// Most commands sent and not answered yet. More wait in the queue of the commander, which answers `Busy` when it is
/// full: an unbounded pipeline would only move the wait into the buffers of the PBX.
pub const MAX_IN_FLIGHT: usize = 512;

/// What a session wants done. Buffers that the driver empties and hands in again.
#[derive(Debug)]
pub struct Effects<T> {
    /// Bytes to send: whole commands, in order.
    pub send: BytesMut,
    /// What the PBX said, in order.
    pub events: Vec<PbxEvent>,
    /// Answers to commands.
    pub answers: Vec<(T, CommandResult)>,
    /// What the driver should know.
    pub notes: Vec<Note>,
    /// The connection is of no use any more. Nothing that follows is performed.
    pub end: Option<End>,
}

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self { send: BytesMut::new(), events: Vec::new(), answers: Vec::new(), notes: Vec::new(), end: None }
    }
}

impl<T> Effects<T> {
    /// Ends the connection; the first reason given stays.
    fn end(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    fn answer(&mut self, to: T, with: CommandResult) {
        self.answers.push((to, with));
    }

    /// A message was damaged: nothing is concluded from it, and what it said is read from a list.
    fn damaged(&mut self) {
        self.events.push(PbxEvent::Lost(1));
        self.notes.push(Note::Damaged);
        self.notes.push(Note::WantList);
    }
}

/// Something that the driver counts, shows or logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The login was accepted and the session can do its work.
    Ready,
    /// What the PBX says it is.
    Software(String),
    /// Time from a keepalive request to its answer.
    RoundTrip(Duration),
    /// A message was damaged and dropped.
    Damaged,
    /// Events are missing, by the PBX's own figures: this many.
    LossFound(u64),
    /// A list of the legs that are up has been read.
    Listed,
    /// A list could not be read, in words; it is tried again.
    ListFailed(String),
    /// The PBX does not let us list the legs, in words; it is tried again with the next comparison.
    ListRefused(String),
    /// Somebody should read the list of legs (the session that lists is another one).
    WantList,
    /// An answer that belongs to nothing that was asked: dropped.
    StrayAnswer,
    /// Something that the operator should know; said once per text.
    Warning(String),
}

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The PBX refuses us: wrong password, unknown user, access list, permission. Trying again soon would only fill
    /// its log and ours.
    #[error("{0}")]
    Refused(String),
    /// Anything that may be better next time.
    #[error("{0}")]
    Lost(String),
}

impl End {
    fn lost(reason: impl Into<String>) -> Self {
        Self::Lost(reason.into())
    }

    fn refused(reason: impl Into<String>) -> Self {
        Self::Refused(reason.into())
    }
}

/// What a step of a login asks for.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Wait,
    Send(String),
    Accepted,
    End(End),
}

/// Who we are to the PBX. The password does not show in a debug print.
#[derive(Clone, Debug)]
pub struct Credentials {
    user: Option<String>,
    password: SecretString,
}

impl Credentials {
    /// A user (none for FreeSWITCH's plain `auth`) and the password.
    #[must_use]
    pub fn new(user: Option<String>, password: SecretString) -> Self {
        Self { user, password }
    }

    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    fn password(&self) -> &str {
        self.password.expose_secret()
    }
}

/// One dialogue. `T` stands for whoever waits for the answer to a command.
pub trait Session<T> {
    /// How the bytes are cut into frames.
    type Codec: Decoder<Error = FrameError> + Default + Send;

    /// A frame has come.
    fn frame(&mut self, frame: <Self::Codec as Decoder>::Item, now: Duration, out: &mut Effects<T>);

    /// Bytes have come, whether they make a frame or not: the peer is alive.
    fn heard(&mut self);

    /// Does what is due at `now`.
    fn tick(&mut self, now: Duration, out: &mut Effects<T>);

    /// When [`Session::tick`] is wanted next.
    fn deadline(&self) -> Option<Duration>;

    /// Sends a command, or answers it at once.
    fn submit(&mut self, command: Command, answer: T, now: Duration, out: &mut Effects<T>);

    /// Whether another command may be submitted.
    fn has_room(&self) -> bool;

    /// A list of the legs that are up is wanted, as soon as one can be read.
    fn list(&mut self, now: Duration, out: &mut Effects<T>);

    /// What it means that the peer closed the connection now.
    fn eof(&self) -> End;

    /// The connection is gone: whatever waits for an answer hears so.
    fn close(&mut self, out: &mut Effects<T>);
}

/// Peer's text as it may stand in a log line or a reason: printable, and not long.
fn quote(text: &[u8]) -> String {
    const LONGEST: usize = 200;
    let text = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]);
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What an unsupported command is answered with.
fn unsupported<T>(answer: T, out: &mut Effects<T>) {
    out.answer(answer, Err(CommandError::Unsupported));
}
