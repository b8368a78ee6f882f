//! The session that listens to Asterisk, and lists its channels: list and events come from one connection, so that
//! their order means something.
//!
//! The classes of events are part of the login. `call` holds everything about legs; `system` tells of a boot that has
//! finished and of a shutdown. No other class is read: VarSet and Newexten (`dialplan`) alone would be two thirds of
//! the bytes of a call.
//!
//! Of class `call` a third is about bridges and connected lines. Where the account may set filters (`write = system`,
//! which an account for AstDB has), only what is needed is let through; otherwise lines in manager.conf can do that.

use std::time::Duration;

use super::ami_encode::{Action, parse_id};
use super::ami_login::{AmiLogin, FIRST_ID, Secrecy};
use super::keepalive::{Due, EVERY, Keepalive};
use super::lister::Lister;
use super::pending::Table;
use super::{Credentials, Effects, End, Note, Session, Step, quote, unsupported};
use crate::pbx::asterisk::{self, AstMapper, ChannelList};
use crate::pbx::command::Command;
use crate::pbx::event::PbxEvent;
use crate::wire::ami::{AmiCodec, AmiFrame, AmiKind, AmiMessage};

const MASK: &str = "system,call";

/// The events that are needed, as Asterisk compares it: at the beginning of a message, which costs it next to nothing.
const NEEDED: &str = "^Event: (Newchannel|Newstate|Dial|Hangup|SoftHangup|Pickup|Rename|FullyBooted|Shutdown)";

/// Most rows of a list. A row is some 500 bytes, and no Asterisk carries that many channels.
const MAX_ROWS: usize = 200_000;

/// FullyBooted comes with the login where Asterisk is up; later than this after the login it means that Asterisk has
/// just become so, and knows its channels and variables only from then on.
const BOOTED_WITH_LOGIN: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub struct AmiEvents {
    login: AmiLogin,
    ready_at: Duration,
    asked: Table<Asked>,
    keepalive: Keepalive,
    lister: Lister,
    listing: Option<Listing>,
    mapper: AstMapper,
    /// Whether the account may set filters.
    may_filter: bool,
    shutdown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Keepalive,
    CoreStatus,
    Filter,
    List,
}

/// A list under way.
#[derive(Debug)]
struct Listing {
    id: u64,
    rows: usize,
    list: ChannelList,
}

impl AmiEvents {
    /// A session on a connection that has just been made.
    #[must_use]
    pub fn new(credentials: Credentials, secrecy: Secrecy, may_filter: bool) -> Self {
        Self {
            login: AmiLogin::new(credentials, MASK, secrecy),
            ready_at: Duration::ZERO,
            asked: Table::beginning_at(FIRST_ID),
            keepalive: Keepalive::starting(Duration::ZERO),
            lister: Lister::default(),
            listing: None,
            mapper: AstMapper::default(),
            may_filter,
            shutdown: false,
        }
    }

    fn step<T>(&mut self, step: Step, now: Duration, out: &mut Effects<T>) {
        match step {
            Step::Wait => {}
            Step::Send(text) => out.send.extend_from_slice(text.as_bytes()),
            Step::End(end) => out.end(end),
            Step::Accepted => {
                self.ready_at = now;
                self.keepalive = Keepalive::starting(now + EVERY);
                out.events.push(PbxEvent::Linked);
                out.note(Note::Ready);
                if self.may_filter {
                    let filter = Action::new("Filter", self.asked.next_id());
                    self.send(filter.with("Operation", "Add").with("Filter", NEEDED), Asked::Filter, now, out);
                }
                // Actions are performed in order: which run of Asterisk this is, is known before its list comes.
                self.ask("CoreStatus", Asked::CoreStatus, now, out);
                self.proceed(now, out);
            }
        }
    }

    fn ask<T>(&mut self, action: &str, what: Asked, now: Duration, out: &mut Effects<T>) -> u64 {
        let id = self.asked.next_id();
        self.send(Action::new(action, id), what, now, out);
        id
    }

    fn send<T>(&mut self, action: Action, what: Asked, now: Duration, out: &mut Effects<T>) {
        if let Ok(text) = action.finish() {
            out.send.extend_from_slice(text.as_bytes());
            self.asked.push(what, now);
        }
    }

    /// Sends what is due: keepalive, list.
    fn proceed<T>(&mut self, now: Duration, out: &mut Effects<T>) {
        match self.keepalive.tick(now) {
            Due::Nothing => {}
            Due::Ask => {
                self.ask("Ping", Asked::Keepalive, now, out);
            }
            Due::Dead => return out.end(End::lost(Keepalive::obituary())),
        }
        if self.lister.start(now) {
            let id = self.ask("CoreShowChannels", Asked::List, now, out);
            self.listing = Some(Listing { id, rows: 0, list: ChannelList::default() });
        }
    }

    fn message<T>(&mut self, message: &AmiMessage, now: Duration, out: &mut Effects<T>) {
        match message.kind() {
            AmiKind::Response(word) => self.response(message, word.eq_ignore_ascii_case(b"Success"), now, out),
            AmiKind::Event(b"CoreShowChannel" | b"CoreShowChannelsComplete") => self.listed(message, now, out),
            AmiKind::Event(b"FullyBooted") => self.booted(now, out),
            AmiKind::Event(b"Shutdown") => self.shutdown = true,
            AmiKind::Event(_) | AmiKind::Damaged => match self.mapper.event(message) {
                Some(PbxEvent::Lost(_)) => self.damaged(now, out),
                Some(event) => {
                    let (damage, doubtful) = (asterisk::is_damage(&event), asterisk::is_doubtful(&event));
                    out.events.push(event);
                    if damage {
                        self.damaged(now, out);
                    } else if doubtful {
                        self.lister.want(now);
                    }
                }
                None => {}
            },
        }
    }

    fn damaged<T>(&mut self, now: Duration, out: &mut Effects<T>) {
        out.damaged();
        self.lister.want(now);
    }

    fn booted<T>(&mut self, now: Duration, out: &mut Effects<T>) {
        if now > self.ready_at + BOOTED_WITH_LOGIN {
            self.ask("CoreStatus", Asked::CoreStatus, now, out);
            self.lister.want(now);
        }
    }

    fn response<T>(&mut self, message: &AmiMessage, success: bool, now: Duration, out: &mut Effects<T>) {
        let Some((what, since)) = answered(&mut self.asked, message) else { return out.note(Note::StrayAnswer) };
        match what {
            Asked::Keepalive => out.note(Note::RoundTrip(now.saturating_sub(since))),
            // Without it more comes than is needed.
            Asked::Filter => {}
            Asked::CoreStatus if success => out.events.extend(asterisk::incarnation(message)),
            Asked::CoreStatus => out.note(Note::Warning(format!(
                "Asterisk does not tell when it started ({}): grant the account write = reporting, or a restart between \
                 two connections goes unnoticed until variables are compared",
                reason(message)
            ))),
            Asked::List if success => self.lister.progress(now),
            Asked::List => {
                self.listing = None;
                self.lister.refused(now);
                out.note(Note::ListRefused(reason(message)));
            }
        }
    }

    /// Takes a part of the list, if it is of ours.
    fn listed<T>(&mut self, message: &AmiMessage, now: Duration, out: &mut Effects<T>) {
        let Some(listing) = self.listing.as_mut().filter(|listing| is_for(message, listing.id)) else {
            return out.note(Note::StrayAnswer);
        };
        listing.rows += 1;
        if listing.rows > MAX_ROWS {
            return self.list_failed("too many channels", now, out);
        }
        match listing.list.message(message) {
            Ok(None) => self.lister.progress(now),
            Ok(Some(snapshot)) => {
                self.listing = None;
                self.lister.finished();
                out.events.push(PbxEvent::Snapshot(snapshot));
                out.note(Note::Listed);
            }
            // Nothing is concluded from a list of which a part is missing.
            Err(damaged) => {
                out.note(Note::Damaged);
                self.list_failed(&damaged.to_string(), now, out);
            }
        }
    }

    fn list_failed<T>(&mut self, reason: &str, now: Duration, out: &mut Effects<T>) {
        self.listing = None;
        self.lister.failed(now);
        out.note(Note::ListFailed(reason.to_owned()));
    }
}

impl<T> Session<T> for AmiEvents {
    type Codec = AmiCodec;

    fn frame(&mut self, frame: AmiFrame, now: Duration, out: &mut Effects<T>) {
        if !self.login.accepted() {
            let step = self.login.frame(&frame);
            return self.step(step, now, out);
        }
        if let AmiFrame::Message(message) = frame {
            self.message(&message, now, out);
            self.proceed(now, out);
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
        while let Some(what) = self.asked.expired(now) {
            if what == Asked::List {
                self.list_failed("no answer in time", now, out);
            }
        }
        if self.lister.stalled(now) {
            self.list_failed("the list stopped half way", now, out);
        }
        self.proceed(now, out);
    }

    fn deadline(&self) -> Option<Duration> {
        if !self.login.accepted() {
            return Some(super::LOGIN_LIMIT);
        }
        let deadlines = [Some(self.keepalive.deadline()), self.asked.deadline(), self.lister.deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn submit(&mut self, _command: Command, answer: T, _now: Duration, out: &mut Effects<T>) {
        unsupported(answer, out);
    }

    fn has_room(&self) -> bool {
        false
    }

    fn list(&mut self, now: Duration, out: &mut Effects<T>) {
        self.lister.want(now);
        if self.login.accepted() {
            self.proceed(now, out);
        }
    }

    fn eof(&self) -> End {
        if self.shutdown { End::lost("Asterisk was shut down") } else { self.login.eof() }
    }

    fn close(&mut self, _out: &mut Effects<T>) {}
}

/// What a response belongs to: by its ActionID, and without one (some releases answer some actions so) the oldest
/// action that waits, for they are performed in order. The exception is the answer to an empty message, which we never
/// send but some releases see behind a line of the longest length.
pub(super) fn answered<K>(asked: &mut Table<K>, message: &AmiMessage) -> Option<(K, Duration)> {
    let id = match message.header("ActionID") {
        Some(id) => parse_id(id)?,
        None if message.header("Message") == Some(b"Missing action in request") => return None,
        None => asked.oldest()?,
    };
    asked.take(id)
}

fn is_for(message: &AmiMessage, id: u64) -> bool {
    message.header("ActionID").and_then(parse_id) == Some(id)
}

/// What an error response says.
pub(super) fn reason(message: &AmiMessage) -> String {
    quote(message.header("Message").unwrap_or(b"no reason given"))
}
