//! The session that asks Asterisk: variables and AstDB. It reads no events (`Events: off`).

use std::time::Duration;

use super::ami_encode::{Action, encode};
use super::ami_events::{answered, reason};
use super::ami_login::{AmiLogin, FIRST_ID, Secrecy};
use super::keepalive::{Due, Keepalive};
use super::pending::Table;
use super::{Credentials, Effects, End, Note, Session, Step, quote};
use crate::pbx::command::{Command, CommandError, CommandResult, Reply};
use crate::pbx::event::{PbxEvent, Vitals};
use crate::wire::ami::{AmiCodec, AmiFrame, AmiKind, AmiMessage};

/// See the [module](self).
#[derive(Debug)]
pub struct AmiCommands<T> {
    login: AmiLogin,
    asked: Table<Asked<T>>,
    keepalive: Keepalive,
    /// Whether AstDB is used, for the check of permissions.
    astdb: bool,
    /// The last keepalive request has no answer yet.
    unanswered: bool,
    /// Whether the load average is asked for: not with the first request, which is to be answered at once.
    settled: bool,
}

#[derive(Debug)]
enum Asked<T> {
    Keepalive,
    LoadAverage,
    CoreSettings,
    ListCommands,
    Write(T),
    Read(T),
    Delete(T),
}

impl<T> AmiCommands<T> {
    /// A session on a connection that has just been made.
    #[must_use]
    pub fn new(credentials: Credentials, secrecy: Secrecy, astdb: bool) -> Self {
        Self {
            login: AmiLogin::new(credentials, "off", secrecy),
            asked: Table::beginning_at(FIRST_ID),
            keepalive: Keepalive::starting(Duration::ZERO),
            astdb,
            unanswered: false,
            settled: false,
        }
    }

    fn step(&mut self, step: Step, now: Duration, out: &mut Effects<T>) {
        match step {
            Step::Wait => {}
            Step::Send(text) => out.send.extend_from_slice(text.as_bytes()),
            Step::End(end) => out.end(end),
            Step::Accepted => {
                self.keepalive = Keepalive::starting(now);
                self.ask("ListCommands", Asked::ListCommands, now, out);
                self.ask("CoreSettings", Asked::CoreSettings, now, out);
                out.note(Note::Ready);
                self.proceed(now, out);
            }
        }
    }

    fn ask(&mut self, action: &str, what: Asked<T>, now: Duration, out: &mut Effects<T>) {
        let action = Action::new(action, self.asked.next_id());
        self.send(action, what, now, out);
    }

    fn send(&mut self, action: Action, what: Asked<T>, now: Duration, out: &mut Effects<T>) {
        if let Ok(text) = action.finish() {
            out.send.extend_from_slice(text.as_bytes());
            self.asked.push(what, now);
        }
    }

    fn proceed(&mut self, now: Duration, out: &mut Effects<T>) {
        match self.keepalive.tick(now) {
            Due::Nothing => {}
            Due::Ask => {
                if std::mem::replace(&mut self.unanswered, true) {
                    out.events.push(PbxEvent::Silent);
                }
                self.ask("Ping", Asked::Keepalive, now, out);
                if std::mem::replace(&mut self.settled, true) {
                    let load = Action::new("Getvar", self.asked.next_id()).with("Variable", "SYSINFO(loadavg)");
                    self.send(load, Asked::LoadAverage, now, out);
                }
            }
            Due::Dead => out.end(End::lost(Keepalive::obituary())),
        }
    }

    fn response(&mut self, message: &AmiMessage, success: bool, now: Duration, out: &mut Effects<T>) {
        let Some((what, since)) = answered(&mut self.asked, message) else { return out.note(Note::StrayAnswer) };
        match what {
            Asked::Keepalive => {
                let took = now.saturating_sub(since);
                self.unanswered = false;
                out.note(Note::RoundTrip(took));
                out.events.push(PbxEvent::Vitals(Vitals { took: Some(took), ..Vitals::default() }));
            }
            // An Asterisk without func_sysinfo says nothing, or something else: then nobody knows.
            Asked::LoadAverage => out.events.extend(load_average(message).map(PbxEvent::Vitals)),
            Asked::CoreSettings => out.notes.extend(software(message).map(Note::Software)),
            Asked::ListCommands if success => {
                out.notes.extend(permissions(message, self.astdb).into_iter().map(Note::Warning));
            }
            Asked::ListCommands => {}
            Asked::Write(answer) if success => out.answer(answer, Ok(Reply::Done)),
            Asked::Read(answer) if success => out.answer(answer, value(message)),
            // Deleting what is not there is done.
            Asked::Delete(answer) if success || nothing_there(message) => out.answer(answer, Ok(Reply::Done)),
            Asked::Write(answer) | Asked::Read(answer) | Asked::Delete(answer) => {
                out.answer(answer, Err(CommandError::Refused(reason(message))));
            }
        }
    }

    fn expire(&mut self, now: Duration, out: &mut Effects<T>) {
        while let Some(what) = self.asked.expired(now) {
            if let Asked::Write(answer) | Asked::Read(answer) | Asked::Delete(answer) = what {
                out.answer(answer, Err(CommandError::TimedOut));
            }
        }
    }
}

impl<T> Session<T> for AmiCommands<T> {
    type Codec = AmiCodec;

    fn frame(&mut self, frame: AmiFrame, now: Duration, out: &mut Effects<T>) {
        if !self.login.accepted() {
            let step = self.login.frame(&frame);
            return self.step(step, now, out);
        }
        let AmiFrame::Message(message) = frame else { return };
        match message.kind() {
            AmiKind::Response(word) => self.response(&message, word.eq_ignore_ascii_case(b"Success"), now, out),
            AmiKind::Event(_) => {}
            // No event is missed here; if it was an answer, its command times out.
            AmiKind::Damaged => out.note(Note::Damaged),
        }
        self.proceed(now, out);
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
            return Some(super::LOGIN_LIMIT);
        }
        [Some(self.keepalive.deadline()), self.asked.deadline()].into_iter().flatten().min()
    }

    fn submit(&mut self, command: Command, answer: T, now: Duration, out: &mut Effects<T>) {
        if !self.login.accepted() {
            return out.answer(answer, Err(CommandError::NotConnected));
        }
        if command == Command::List {
            out.note(Note::WantList);
            return out.answer(answer, Ok(Reply::Done));
        }
        match encode(&command, self.asked.next_id()) {
            Err(error) => out.answer(answer, Err(error)),
            Ok(text) => {
                out.send.extend_from_slice(text.as_bytes());
                let what = match command {
                    Command::GetVariable { .. } => Asked::Read(answer),
                    Command::DeleteAstDb { .. } => Asked::Delete(answer),
                    _ => Asked::Write(answer),
                };
                self.asked.push(what, now);
            }
        }
    }

    fn has_room(&self) -> bool {
        self.asked.has_room()
    }

    fn list(&mut self, _now: Duration, _out: &mut Effects<T>) {}

    fn eof(&self) -> End {
        self.login.eof()
    }

    fn close(&mut self, out: &mut Effects<T>) {
        out.answers.extend(self.asked.drain().filter_map(|what| match what {
            Asked::Write(answer) | Asked::Read(answer) | Asked::Delete(answer) => {
                Some((answer, Err(CommandError::LinkLost)))
            }
            Asked::Keepalive | Asked::LoadAverage | Asked::CoreSettings | Asked::ListCommands => None,
        }));
    }
}

/// Asterisk cannot tell a variable that is not set from an empty one.
fn value(message: &AmiMessage) -> CommandResult {
    let value = message.header("Value").filter(|value| !value.is_empty());
    Ok(Reply::Value(value.map(|value| String::from_utf8_lossy(value).into_owned())))
}

fn load_average(message: &AmiMessage) -> Option<Vitals> {
    let value = std::str::from_utf8(message.header("Value")?).ok()?;
    let load_avg = value.trim().parse().ok().filter(|load: &f64| load.is_finite() && *load >= 0.0)?;
    Some(Vitals { load_avg: Some(load_avg), ..Vitals::default() })
}

fn nothing_there(message: &AmiMessage) -> bool {
    let text = reason(message).to_ascii_lowercase();
    text.contains("could not be deleted") || text.contains("not found")
}

fn software(message: &AmiMessage) -> Option<String> {
    message.header("AsteriskVersion").map(|version| format!("Asterisk {}", quote(version)))
}

/// What is wrong with the account: `ListCommands` shows what it may do.
fn permissions(commands: &AmiMessage, astdb: bool) -> Vec<String> {
    let may = |action: &str| commands.header(action).is_some();
    let mut wrong = Vec::new();
    if !may("Ping") {
        // Everybody may do that: this is no list of commands.
        return wrong;
    }
    for dangerous in ["Originate", "Command"] {
        if may(dangerous) {
            wrong.push(format!(
                "the manager account may use {dangerous}, with which whoever gets hold of its password can run programs: \
                 take {} from its write = line, it is not needed",
                dangerous.to_ascii_lowercase()
            ));
        }
    }
    let needed = [
        ("Setvar", "call", "variables cannot be set"),
        ("Getvar", "call or reporting", "variables cannot be compared"),
        ("CoreShowChannels", "reporting", "calls that are up when the link comes up stay unknown, lost ends unnoticed"),
        ("CoreStatus", "reporting", "a restart goes unnoticed until variables are compared"),
    ];
    let needed = needed.into_iter().chain(astdb.then_some(("DBPut", "system", "AstDB cannot be written")));
    for (action, class, otherwise) in needed {
        if !may(action) {
            wrong.push(format!(
                "the manager account may not use {action}: {otherwise}. Add {class} to its write = line"
            ));
        }
    }
    wrong
}
