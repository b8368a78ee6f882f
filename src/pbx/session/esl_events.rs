//! The session that listens to FreeSWITCH.
//!
//! # What is subscribed
//!
//! What FreeSWITCH must send per call is a cost that it bears on the threads that carry calls. Measured on FreeSWITCH
//! 1.11, in bytes per call (answered / refused with 503): everything 205,000 / 115,000; what is subscribed here 15,700 /
//! 11,100, which is
//!
//! - `CHANNEL_HANGUP_COMPLETE` (8 KB), which holds every time and cause of an attempt,
//! - `CHANNEL_CREATE` (4.5 KB), which makes an attempt known while it runs: active calls, the epoch it was placed in,
//! - `CHANNEL_CALLSTATE` to `ACTIVE` (3 KB): a call whose end falls into a gap counts as answered only if its answer was
//!   seen. It carries no variables and is half as large as `CHANNEL_ANSWER`,
//! - `HEARTBEAT` (1 KB in 20 s), which proves that the subscription works and carries FreeSWITCH's own figures.
//!
//! A filter passes what matches any of the positive ones, and drops what matches any negative one (`-value`). Legs to a
//! gateway have `variable_sip_gateway_name`, so legs of phones are never sent; a call state has no variables and needs a
//! filter of its own. The filters are set before the subscription: no unwanted event is ever sent, and the reply to the
//! subscription is the last step.
//!
//! With `strict_loss_detection` the end of every session is subscribed too, of both directions and also of those that
//! never became a leg, in its cheapest form: `CHANNEL_STATE` to `CS_DESTROY` (3 KB; 24,700 / 15,900 in all, against
//! 35,100 / 24,100 with `CHANNEL_DESTROY`). Between two heartbeats their number must equal the change of
//! `Session-Since-Startup` minus `Session-Count`. That rules the negative filter out, and with it the small call states.
//! Without it a lost end shows in the list that is read every minute. Gaps in `Event-Sequence` prove nothing: the
//! numbers count all events of the box.

use std::time::Duration;

use super::esl_login::{EslLogin, end_of_session};
use super::keepalive::{Due, Keepalive};
use super::pending::{Answered, Fifo};
use super::{Credentials, Effects, End, Note, Session, Step, quote, unsupported};
use crate::pbx::command::Command;
use crate::pbx::event::PbxEvent;
use crate::pbx::freeswitch::FsMapper;
use crate::wire::esl::{EslCodec, EslEvent, EslFrame};

/// The keepalive. A cheap command that every FreeSWITCH knows; it holds the events of this connection back for the
/// microseconds that it takes.
const KEEPALIVE: &str = "api status\n\n";

/// This many intervals without a HEARTBEAT mean that the events have stopped, whatever else is answered.
const HEARTBEATS_MISSED: u32 = 3;

/// HEARTBEATs are waited for at least this long, however fast they came at first.
const LEAST_HEARTBEAT_WAIT: Duration = Duration::from_secs(60);

/// See the [module](self).
#[derive(Debug)]
pub struct EslEvents {
    login: EslLogin,
    /// Commands of the set-up that are still to be sent, last first: each waits for the reply to the one before.
    set_up: Vec<SetUp>,
    subscribed: bool,
    asked: Fifo<Asked>,
    keepalive: Keepalive,
    heartbeats: Cadence,
    mapper: FsMapper,
}

#[derive(Debug)]
enum Asked {
    Nothing,
    Keepalive,
    SetUp(SetUp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetUp {
    Filter(&'static str),
    Subscribe(&'static str),
}

impl SetUp {
    fn packet(self) -> &'static str {
        match self {
            Self::Filter(packet) | Self::Subscribe(packet) => packet,
        }
    }
}

/// The set-up, last step first.
const LEAN: &[SetUp] = &[
    SetUp::Subscribe("event plain HEARTBEAT CHANNEL_CREATE CHANNEL_CALLSTATE CHANNEL_HANGUP_COMPLETE\n\n"),
    SetUp::Filter("filter Call-Direction -inbound\n\n"),
    SetUp::Filter("filter Channel-Call-State ACTIVE\n\n"),
    SetUp::Filter("filter variable_sip_gateway_name /./\n\n"),
    SetUp::Filter("filter Event-Name HEARTBEAT\n\n"),
];

/// The set-up that shows losses, last step first.
const STRICT: &[SetUp] = &[
    SetUp::Subscribe("event plain HEARTBEAT CHANNEL_CREATE CHANNEL_ANSWER CHANNEL_HANGUP_COMPLETE CHANNEL_STATE\n\n"),
    SetUp::Filter("filter Channel-State CS_DESTROY\n\n"),
    SetUp::Filter("filter variable_sip_gateway_name /./\n\n"),
    SetUp::Filter("filter Event-Name HEARTBEAT\n\n"),
];

impl EslEvents {
    /// A session on a connection that has just been made. `strict` subscribes what shows a loss at once.
    #[must_use]
    pub fn new(credentials: Credentials, strict: bool) -> Self {
        Self {
            login: EslLogin::new(credentials),
            set_up: if strict { STRICT.to_vec() } else { LEAN.to_vec() },
            subscribed: false,
            asked: Fifo::default(),
            keepalive: Keepalive::starting(Duration::ZERO),
            heartbeats: Cadence::default(),
            mapper: FsMapper::new(strict),
        }
    }

    fn step<T>(&mut self, step: Step, now: Duration, out: &mut Effects<T>) {
        match step {
            Step::Wait => {}
            Step::Send(text) => out.send.extend_from_slice(text.as_bytes()),
            Step::End(end) => out.end(end),
            Step::Accepted => {
                if self.login.owes_reply() {
                    self.asked.push(Asked::Nothing, now);
                }
                self.next_set_up(now, out);
            }
        }
    }

    fn next_set_up<T>(&mut self, now: Duration, out: &mut Effects<T>) {
        let Some(next) = self.set_up.pop() else { return };
        out.send.extend_from_slice(next.packet().as_bytes());
        self.asked.push(Asked::SetUp(next), now);
    }

    fn reply<T>(&mut self, frame: &EslFrame, now: Duration, out: &mut Effects<T>) {
        match self.asked.answered() {
            Answered::Stray => out.note(Note::StrayAnswer),
            Answered::Late | Answered::Awaited(Asked::Nothing, _) => {}
            Answered::Awaited(Asked::Keepalive, since) => out.note(Note::RoundTrip(now.saturating_sub(since))),
            Answered::Awaited(Asked::SetUp(what), _) => self.set_up_done(what, frame, now, out),
        }
    }

    fn set_up_done<T>(&mut self, what: SetUp, frame: &EslFrame, now: Duration, out: &mut Effects<T>) {
        let reply = frame.header("Reply-Text").unwrap_or_default();
        let accepted = reply.starts_with(b"+OK");
        match what {
            SetUp::Filter(packet) if !accepted => out.note(Note::Warning(format!(
                "FreeSWITCH did not take {:?} ({}): it will send events that are not needed",
                packet.trim(),
                quote(reply)
            ))),
            SetUp::Subscribe(_) if !accepted => {
                // One name that the user's esl-allowed-events lacks makes it refuse them all.
                return out.end(End::refused(format!(
                    "FreeSWITCH refuses the subscription ({}) {:?}",
                    quote(reply),
                    what.packet().trim()
                )));
            }
            SetUp::Filter(_) => {}
            SetUp::Subscribe(_) => {
                self.subscribed = true;
                self.keepalive = Keepalive::starting(now + super::keepalive::EVERY);
                out.events.push(PbxEvent::Linked);
                out.note(Note::Ready);
            }
        }
        self.next_set_up(now, out);
    }

    fn event<T>(&mut self, event: &EslEvent, now: Duration, out: &mut Effects<T>) {
        for said in self.mapper.event(event) {
            match &said {
                PbxEvent::Heartbeat(_) => self.heartbeats.beat(now),
                PbxEvent::Lost(count) => {
                    out.note(Note::LossFound(*count));
                    out.note(Note::WantList);
                }
                _ => {}
            }
            out.events.push(said);
        }
    }

    fn login_deadline(&self) -> Duration {
        // The set-up belongs to the login: both together have its limit.
        if self.login.accepted() { super::LOGIN_LIMIT } else { self.login.deadline() }
    }
}

impl<T> Session<T> for EslEvents {
    type Codec = EslCodec;

    fn frame(&mut self, frame: EslFrame, now: Duration, out: &mut Effects<T>) {
        if !self.login.accepted() {
            let step = self.login.frame(&frame, now);
            return self.step(step, now, out);
        }
        match frame.content_type() {
            b"command/reply" | b"api/response" => self.reply(&frame, now, out),
            _ => match frame.event() {
                Some(Ok(event)) => self.event(&event, now, out),
                Some(Err(_)) => out.damaged(),
                None => out.end = out.end.take().or_else(|| end_of_session(&frame)),
            },
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
        if !self.subscribed {
            if now >= super::LOGIN_LIMIT {
                out.end(End::lost("logged in, but no answer to the subscription"));
            }
            return;
        }
        while self.asked.expired(now).is_some() {}
        match self.keepalive.tick(now) {
            Due::Nothing => {}
            Due::Ask => {
                out.send.extend_from_slice(KEEPALIVE.as_bytes());
                self.asked.push(Asked::Keepalive, now);
            }
            Due::Dead => out.end(End::lost(Keepalive::obituary())),
        }
        if let Some(reason) = self.heartbeats.overdue(now) {
            out.end(End::lost(reason));
        }
    }

    fn deadline(&self) -> Option<Duration> {
        if !self.subscribed {
            return Some(self.login_deadline());
        }
        [Some(self.keepalive.deadline()), self.heartbeats.deadline()].into_iter().flatten().min()
    }

    fn submit(&mut self, _command: Command, answer: T, _now: Duration, out: &mut Effects<T>) {
        unsupported(answer, out);
    }

    fn has_room(&self) -> bool {
        false
    }

    fn list(&mut self, _now: Duration, _out: &mut Effects<T>) {}

    fn eof(&self) -> End {
        self.login.eof()
    }

    fn close(&mut self, _out: &mut Effects<T>) {}
}

/// How often HEARTBEAT comes; its interval is the operator's to set, so it is learned.
#[derive(Debug, Default)]
struct Cadence {
    last: Option<Duration>,
    interval: Option<Duration>,
}

impl Cadence {
    fn beat(&mut self, now: Duration) {
        if let Some(last) = self.last {
            let gap = now.saturating_sub(last);
            self.interval = Some(self.interval.map_or(gap, |longest| longest.max(gap)));
        }
        self.last = Some(now);
    }

    /// Two beats are needed to know when the next one is late, and none comes more often than once a second.
    fn deadline(&self) -> Option<Duration> {
        let interval = self.interval.filter(|&interval| interval >= Duration::from_secs(1))?;
        let wait = (interval * HEARTBEATS_MISSED).max(LEAST_HEARTBEAT_WAIT);
        Some(self.last? + wait)
    }

    fn overdue(&self, now: Duration) -> Option<String> {
        let late = self.deadline().is_some_and(|at| now >= at);
        late.then(|| {
            let interval = self.interval.unwrap_or_default().as_secs_f64();
            format!("events have stopped: no HEARTBEAT for {HEARTBEATS_MISSED} times its interval of {interval:.0} s")
        })
    }
}
