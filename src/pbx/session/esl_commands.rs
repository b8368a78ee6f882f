//! The session that asks FreeSWITCH: variables, lists, descriptions of legs.
//!
//! Commands go out as they come; FreeSWITCH answers in their order, so a reply belongs to the oldest command without
//! one. A denied `api` is answered with a `command/reply`, so both kinds of reply count. Nothing is written before
//! the login is accepted.

use std::collections::VecDeque;
use std::time::Duration;

use super::esl_encode as encode;
use super::esl_login::{EslLogin, end_of_session};
use super::keepalive::{Due, Keepalive};
use super::lister::Lister;
use super::pending::{Answered, Fifo};
use super::{Credentials, Effects, End, Note, Session, Step, quote, unsupported};
use crate::ids::LegId;
use crate::pbx::command::{Command, CommandError, CommandResult, Reply};
use crate::pbx::event::{PbxEvent, Vitals};
use crate::pbx::freeswitch;
use crate::wire::esl::{EslCodec, EslFrame};

/// Descriptions of legs asked for and not answered yet. An answer takes some 10 KB; variables go between them.
const DESCRIBING_AT_ONCE: usize = 4;

/// Descriptions that wait for their turn; after a reconnect there may be one for each call that is up.
const MAX_DESCRIPTIONS: usize = 20_000;

/// Commands that wait for a list at the same time.
const MAX_LIST_WAITERS: usize = 64;

/// `status`: cheap, without effect, known to every FreeSWITCH, and it tells the version.
const KEEPALIVE: &str = "api status\n\n";

/// The id of this run of FreeSWITCH, also where no event has come yet.
const CORE_UUID: &str = "api global_getvar core_uuid\n\n";

const LIST: &str = "api show channels as json\n\n";

/// See the [module](self).
#[derive(Debug)]
pub struct EslCommands<T> {
    login: EslLogin,
    asked: Fifo<Asked<T>>,
    keepalive: Keepalive,
    lister: Lister,
    list_waiters: Vec<T>,
    descriptions: VecDeque<(LegId, T)>,
    describing: usize,
    /// The last keepalive request has no answer yet.
    unanswered: bool,
}

#[derive(Debug)]
enum Asked<T> {
    Nothing,
    Keepalive,
    CoreUuid,
    List,
    Describe(LegId, T),
    Write(T),
    Read(T),
}

impl<T> EslCommands<T> {
    /// A session on a connection that has just been made.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        Self {
            login: EslLogin::new(credentials),
            asked: Fifo::default(),
            keepalive: Keepalive::starting(Duration::ZERO),
            lister: Lister::default(),
            list_waiters: Vec::new(),
            descriptions: VecDeque::new(),
            describing: 0,
            unanswered: false,
        }
    }

    fn step(&mut self, step: Step, now: Duration, out: &mut Effects<T>) {
        match step {
            Step::Wait => {}
            Step::Send(text) => out.send.extend_from_slice(text.as_bytes()),
            Step::End(end) => out.end(end),
            Step::Accepted => {
                if self.login.owes_reply() {
                    self.asked.push(Asked::Nothing, now);
                }
                self.keepalive = Keepalive::starting(now);
                self.ask(CORE_UUID, Asked::CoreUuid, now, out);
                out.note(Note::Ready);
                self.proceed(now, out);
            }
        }
    }

    fn ask(&mut self, packet: &str, what: Asked<T>, now: Duration, out: &mut Effects<T>) {
        out.send.extend_from_slice(packet.as_bytes());
        self.asked.push(what, now);
    }

    /// Sends what is due: keepalive, list, descriptions.
    fn proceed(&mut self, now: Duration, out: &mut Effects<T>) {
        match self.keepalive.tick(now) {
            Due::Nothing => {}
            Due::Ask => {
                if std::mem::replace(&mut self.unanswered, true) {
                    out.events.push(PbxEvent::Silent);
                }
                self.ask(KEEPALIVE, Asked::Keepalive, now, out);
            }
            Due::Dead => return out.end(End::lost(Keepalive::obituary())),
        }
        if self.lister.start(now) {
            self.ask(LIST, Asked::List, now, out);
        }
        while self.describing < DESCRIBING_AT_ONCE {
            let Some((leg, answer)) = self.descriptions.pop_front() else { break };
            match encode::describe(&leg) {
                Ok(packet) => {
                    self.describing += 1;
                    self.ask(&packet, Asked::Describe(leg, answer), now, out);
                }
                Err(error) => out.answer(answer, Err(error)),
            }
        }
    }

    fn reply(&mut self, frame: &EslFrame, now: Duration, out: &mut Effects<T>) {
        let text = match frame.content_type() {
            b"api/response" => &frame.body[..],
            _ => frame.header("Reply-Text").unwrap_or_default(),
        };
        match self.asked.answered() {
            Answered::Stray => out.note(Note::StrayAnswer),
            Answered::Late => {}
            Answered::Awaited(what, since) => self.answered(what, text, now.saturating_sub(since), now, out),
        }
        self.proceed(now, out);
    }

    fn answered(&mut self, what: Asked<T>, text: &[u8], took: Duration, now: Duration, out: &mut Effects<T>) {
        match what {
            Asked::Nothing => {}
            Asked::Keepalive => {
                self.unanswered = false;
                out.note(Note::RoundTrip(took));
                out.notes.extend(software(text).map(Note::Software));
                out.events.push(PbxEvent::Vitals(Vitals { took: Some(took), ..vitals(text) }));
            }
            Asked::CoreUuid => out.events.extend(core_uuid(text).map(|id| PbxEvent::Incarnation(id.into()))),
            Asked::List => self.listed(text, now, out),
            Asked::Describe(leg, answer) => {
                self.describing -= 1;
                describe(leg, answer, text, out);
            }
            Asked::Write(answer) => out.answer(answer, written(text)),
            Asked::Read(answer) => out.answer(answer, value(text)),
        }
    }

    fn listed(&mut self, text: &[u8], now: Duration, out: &mut Effects<T>) {
        let result = match freeswitch::snapshot(text) {
            Ok(snapshot) => {
                self.lister.finished();
                out.events.push(PbxEvent::Snapshot(snapshot));
                out.note(Note::Listed);
                Ok(Reply::Done)
            }
            Err(error) => {
                let problem = if is_error(text) { quote(text) } else { error.to_string() };
                if is_error(text) {
                    self.lister.refused(now);
                    out.note(Note::ListRefused(problem.clone()));
                } else {
                    self.lister.failed(now);
                    out.note(Note::ListFailed(problem.clone()));
                }
                Err(CommandError::Refused(problem))
            }
        };
        self.list_over(&result, out);
    }

    fn list_over(&mut self, result: &CommandResult, out: &mut Effects<T>) {
        for answer in std::mem::take(&mut self.list_waiters) {
            out.answer(answer, result.clone());
        }
    }

    fn expire(&mut self, now: Duration, out: &mut Effects<T>) {
        while let Some(what) = self.asked.expired(now) {
            match what {
                Asked::Nothing | Asked::Keepalive | Asked::CoreUuid => {}
                Asked::List => {
                    self.lister.failed(now);
                    out.note(Note::ListFailed("no answer in time".to_owned()));
                    self.list_over(&Err(CommandError::TimedOut), out);
                }
                Asked::Describe(_, answer) => {
                    self.describing -= 1;
                    out.answer(answer, Err(CommandError::TimedOut));
                    // The description would have been an event; the next list shows again what is not known.
                    out.events.push(PbxEvent::Lost(1));
                    self.lister.want(now);
                }
                Asked::Write(answer) | Asked::Read(answer) => out.answer(answer, Err(CommandError::TimedOut)),
            }
        }
    }

    fn packet(
        &mut self,
        packet: Result<String, CommandError>,
        answer: T,
        what: fn(T) -> Asked<T>,
        now: Duration,
        out: &mut Effects<T>,
    ) {
        match packet {
            Ok(packet) => self.ask(&packet, what(answer), now, out),
            Err(error) => out.answer(answer, Err(error)),
        }
    }
}

impl<T> Session<T> for EslCommands<T> {
    type Codec = EslCodec;

    fn frame(&mut self, frame: EslFrame, now: Duration, out: &mut Effects<T>) {
        if !self.login.accepted() {
            let step = self.login.frame(&frame, now);
            return self.step(step, now, out);
        }
        match frame.content_type() {
            b"command/reply" | b"api/response" => self.reply(&frame, now, out),
            // Events were not asked for here; an unknown kind of frame was skipped by its length.
            _ => out.end = out.end.take().or_else(|| end_of_session(&frame)),
        }
    }

    fn heard(&mut self) {
        self.keepalive.heard();
    }

    fn tick(&mut self, now: Duration, out: &mut Effects<T>) {
        if !self.login.accepted() {
            let step = self.login.tick(now);
            return self.step(step, now, out);
        }
        self.expire(now, out);
        self.proceed(now, out);
    }

    fn deadline(&self) -> Option<Duration> {
        if !self.login.accepted() {
            return Some(self.login.deadline());
        }
        // A list in flight is watched as a command.
        let list = if self.lister.running() { None } else { self.lister.deadline() };
        [Some(self.keepalive.deadline()), self.asked.deadline(), list].into_iter().flatten().min()
    }

    fn submit(&mut self, command: Command, answer: T, now: Duration, out: &mut Effects<T>) {
        match command {
            _ if !self.login.accepted() => out.answer(answer, Err(CommandError::NotConnected)),
            Command::SetVariable { name, value } => {
                self.packet(encode::set_variable(&name, &value), answer, Asked::Write, now, out);
            }
            Command::ClearVariable { name } => {
                self.packet(encode::clear_variable(&name), answer, Asked::Write, now, out);
            }
            Command::GetVariable { name } => self.packet(encode::get_variable(&name), answer, Asked::Read, now, out),
            Command::Describe(_) if self.descriptions.len() >= MAX_DESCRIPTIONS => {
                out.answer(answer, Err(CommandError::Busy));
            }
            Command::Describe(leg) => {
                self.descriptions.push_back((leg, answer));
                self.proceed(now, out);
            }
            Command::List if self.list_waiters.len() >= MAX_LIST_WAITERS => out.answer(answer, Err(CommandError::Busy)),
            Command::List => {
                self.list_waiters.push(answer);
                self.list(now, out);
            }
            Command::PutAstDb { .. } | Command::DeleteAstDb { .. } => unsupported(answer, out),
        }
    }

    fn has_room(&self) -> bool {
        self.asked.has_room()
    }

    fn list(&mut self, now: Duration, out: &mut Effects<T>) {
        self.lister.want(now);
        if self.login.accepted() {
            self.proceed(now, out);
        }
    }

    fn eof(&self) -> End {
        self.login.eof()
    }

    fn close(&mut self, out: &mut Effects<T>) {
        let mut undescribed = self.descriptions.len() as u64;
        for what in self.asked.drain() {
            match what {
                Asked::Describe(_, answer) => {
                    undescribed += 1;
                    out.answer(answer, Err(CommandError::LinkLost));
                }
                Asked::Write(answer) | Asked::Read(answer) => out.answer(answer, Err(CommandError::LinkLost)),
                Asked::Nothing | Asked::Keepalive | Asked::CoreUuid | Asked::List => {}
            }
        }
        let waiting = self.descriptions.drain(..).map(|(_, answer)| answer).chain(self.list_waiters.drain(..));
        out.answers.extend(waiting.map(|answer| (answer, Err(CommandError::LinkLost))));
        if undescribed > 0 {
            out.events.push(PbxEvent::Lost(undescribed));
        }
    }
}

fn is_error(text: &[u8]) -> bool {
    text.starts_with(b"-ERR") || text.starts_with(b"-USAGE")
}

fn written(text: &[u8]) -> CommandResult {
    if text.starts_with(b"+OK") { Ok(Reply::Done) } else { Err(CommandError::Refused(quote(text))) }
}

/// An empty answer is sent as `-ERR no reply`: the variable is not set.
fn value(text: &[u8]) -> CommandResult {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    match text {
        b"" | b"-ERR no reply" => Ok(Reply::Value(None)),
        _ if is_error(text) => Err(CommandError::Refused(quote(text))),
        _ => Ok(Reply::Value(Some(String::from_utf8_lossy(text).into_owned()))),
    }
}

fn describe<T>(leg: LegId, answer: T, text: &[u8], out: &mut Effects<T>) {
    if text.starts_with(b"-ERR No such channel") {
        out.events.push(PbxEvent::LegGone(leg));
        return out.answer(answer, Ok(Reply::Done));
    }
    match freeswitch::described(text) {
        Ok(Some(event)) => {
            out.events.push(event);
            out.answer(answer, Ok(Reply::Done));
        }
        Ok(None) | Err(_) => out.answer(answer, Err(CommandError::Refused(quote(text)))),
    }
}

/// The id, where the answer is one.
fn core_uuid(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let id = !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    (id && !text.starts_with('-')).then_some(text)
}

/// What `status` says of the machine: `... is ready` (or `not ready`), and `min idle cpu LIMIT/IDLE`.
fn vitals(status: &[u8]) -> Vitals {
    let status = String::from_utf8_lossy(status);
    let version = status.lines().find(|line| line.starts_with("FreeSWITCH (Version "));
    let idle = status.lines().find_map(|line| line.strip_prefix("min idle cpu ")?.split_once('/'));
    let idle_cpu = idle.and_then(|(_, idle)| idle.trim().parse().ok());
    Vitals {
        ready: version.map(|line| line.trim_end().ends_with(") is ready")),
        idle_cpu: idle_cpu.filter(|idle| (0.0..=100.0).contains(idle)),
        ..Vitals::default()
    }
}

/// `FreeSWITCH (Version 1.10.12 -release 64bit) is ready`.
fn software(status: &[u8]) -> Option<String> {
    let status = String::from_utf8_lossy(status);
    let version = status.lines().find_map(|line| line.split_once("(Version ")?.1.split_once(')'))?.0;
    Some(format!("FreeSWITCH {}", quote(version.as_bytes())))
}
