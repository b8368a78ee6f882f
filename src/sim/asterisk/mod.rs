//! A simulated Asterisk: the manager interface of a 22 (or a 16) with chan_pjsip.
//!
//! Told apart from the real one by this: of the classes of events it sends `call`, `system` and, for global
//! variables, `dialplan`; no Cdr, no RTCP; filters know the regular expressions of
//! `session`, no more; the actions of
//! `action`, no others.

mod action;
mod channel;
mod class;
mod message;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use self::channel::{Channel, Identity, State};
use self::class::Classes;
use self::message::{Event, Message};
use self::session::{AmiSession, Subscription};
use crate::clock::Clock;
use crate::sim::call::{Call, End, Side};
use crate::sim::handle::{self, Handle};
use crate::sim::pbx::{CallNo, Dialect, LegNo, Load, Step};
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// Which Asterisk is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 16.28: no TechCause, no cause in the caller's HangupRequest.
    V16,
    /// 22.10.
    V22,
}

impl Version {
    fn banner(self) -> &'static str {
        match self {
            Self::V16 => "5.0.4",
            Self::V22 => "11.0.0",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::V16 => "16.28.0",
            Self::V22 => "22.10.1",
        }
    }
}

/// What a simulated Asterisk needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// What both kinds have in common.
    pub pbx: handle::Options,
    /// Which version is played.
    pub version: Version,
    /// The manager's user.
    pub username: String,
    /// Classes of events that the user may read.
    pub read: String,
    /// Classes of actions that the user may perform.
    pub write: String,
    /// Channel variables that every snapshot shows (`channelvars`).
    pub channel_variables: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pbx: handle::Options::default(),
            version: Version::V22,
            username: "pointsman".into(),
            read: "system,call,user".into(),
            write: "call,reporting,system".into(),
            channel_variables: vec!["pm_map".into()],
        }
    }
}

/// A simulated Asterisk server.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts one.
    ///
    /// # Errors
    /// Where the port cannot be had.
    pub async fn start(options: Options, clock: Clock, tasks: &Tasks) -> io::Result<Handle> {
        let dialect = Asterisk::new(&options, clock.now());
        Handle::start(dialect, options.pbx, clock, tasks).await
    }
}

/// The cause with which a leg or a caller ends, and the SIP status behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cause {
    q850: u16,
    sip: Option<u16>,
}

const NORMAL: Cause = Cause { q850: 16, sip: None };

/// The Q.850 number that chan_pjsip makes of a SIP status.
fn q850_of(status: u16) -> u16 {
    match status {
        401 | 403 | 407 | 603 | 607 | 608 => 21,
        404 | 485 | 604 => 1,
        408 => 18,
        409 => 41,
        410 => 22,
        420 => 3,
        480 | 483 => 19,
        484 => 28,
        486 | 600 => 17,
        488 | 606 => 58,
        500 => 38,
        502 => 27,
        503 => 34,
        504 => 102,
        _ => 127,
    }
}

fn cause_text(q850: u16) -> &'static str {
    match q850 {
        1 => "Unallocated (unassigned) number",
        3 => "No route to destination",
        16 => "Normal Clearing",
        17 => "User busy",
        18 => "No user responding",
        19 => "User alerting, no answer",
        20 => "Subscriber absent",
        21 => "Call Rejected",
        22 => "Number changed",
        26 => "Answered elsewhere",
        27 => "Destination out of order",
        28 => "Invalid number format",
        34 => "Circuit/channel congestion",
        38 => "Network out of order",
        41 => "Temporary failure",
        58 => "Bearer capability not available",
        102 => "Recover on timer expiry",
        127 => "Interworking, unspecified",
        _ => "Unknown",
    }
}

/// The DialStatus that DialEnd reports after the far end hung up.
fn dial_status(q850: u16) -> &'static str {
    match q850 {
        17 => "BUSY",
        34 => "CONGESTION",
        3 => "CHANUNAVAIL",
        _ => "NOANSWER",
    }
}

/// The switch behind the manager interface.
pub(crate) struct Asterisk {
    version: Version,
    username: String,
    password: String,
    read: Classes,
    write: Classes,
    channel_variables: Vec<String>,
    started: Timestamp,
    processed: u64,
    /// Counts channels: the end of their names and of their ids.
    counter: u64,
    callers: HashMap<CallNo, Channel>,
    legs: HashMap<LegNo, (CallNo, Channel)>,
    /// AstDB: family, key, value. Survives a restart.
    database: BTreeMap<(String, String), String>,
    ids: fastrand::Rng,
}

/// Where the events of a step are collected.
struct Stage {
    at: Timestamp,
    events: Vec<Event>,
}

impl Stage {
    /// An event of class `call`.
    fn tell(&mut self, name: &'static str, write: impl FnOnce(&mut Message)) {
        let mut message = Message::event(name, Classes::CALL, self.at);
        write(&mut message);
        self.events.push(Event { name, classes: Classes::CALL, bytes: message.finish().into() });
    }

    fn of(&mut self, name: &'static str, channel: &Channel) {
        self.tell(name, |message| channel.write("", message));
    }

    fn device(&mut self, channel: &mut Channel, state: &str) {
        channel.device_in_use = state != "NOT_INUSE";
        self.tell("DeviceStateChange", |message| {
            message.push("Device", &channel.device);
            message.push("State", state);
        });
    }

    fn dial(&mut self, name: &'static str, caller: &Channel, leg: &Channel, last: (&str, &str)) {
        self.tell(name, |message| {
            caller.write("", message);
            leg.write("Dest", message);
            message.push(last.0, last.1);
        });
    }

    fn bridge(&mut self, name: &'static str, bridge: &str, channels: usize, channel: Option<&Channel>) {
        // While both are in, the media go from party to party.
        let entering = matches!(name, "BridgeCreate" | "BridgeEnter");
        self.tell(name, |message| {
            message.push("BridgeUniqueid", bridge);
            message.push("BridgeType", "basic");
            message.push("BridgeTechnology", if entering { "simple_bridge" } else { "native_rtp" });
            message.push("BridgeCreator", "<unknown>");
            message.push("BridgeName", "<unknown>");
            message.push("BridgeNumChannels", channels.to_string());
            message.push("BridgeVideoSourceMode", "none");
            if let Some(channel) = channel {
                channel.write("", message);
            }
        });
    }
}

impl Asterisk {
    fn new(options: &Options, now: Timestamp) -> Self {
        Self {
            version: options.version,
            username: options.username.clone(),
            password: options.pbx.password.clone(),
            read: Classes::parse(&options.read),
            write: Classes::parse(&options.write),
            channel_variables: options.channel_variables.clone(),
            started: now,
            processed: 0,
            counter: 0,
            callers: HashMap::new(),
            legs: HashMap::new(),
            database: BTreeMap::new(),
            ids: fastrand::Rng::with_seed(options.pbx.seed.rotate_left(32) ^ 0xa57),
        }
    }

    /// Everything that is up, in the order of its creation.
    fn channels(&self) -> Vec<&Channel> {
        let mut all: Vec<&Channel> = self.callers.values().chain(self.legs.values().map(|(_, leg)| leg)).collect();
        all.sort_by_key(|channel| (channel.created, channel.name.clone()));
        all
    }

    fn channel(&mut self, endpoint: &str, at: Timestamp) -> Channel {
        let number = self.counter;
        self.counter += 1;
        let unique_id = format!("{}.{number}", at.as_micros() / 1_000_000);
        Channel {
            name: format!("PJSIP/{endpoint}-{number:08x}"),
            device: format!("PJSIP/{endpoint}"),
            state: State::Down,
            caller: Identity::default(),
            connected: Identity::default(),
            context: "from-vendor",
            exten: "s".into(),
            linked_id: unique_id.clone(),
            unique_id,
            created: at,
            bridge: None,
            application: ("AppDial", "(Outgoing Line)".into()),
            shown_variables: Vec::new(),
            device_in_use: false,
        }
    }

    fn caller_in(&mut self, stage: &mut Stage, call: CallNo, details: &Call) {
        self.processed += 1;
        let mut channel = self.channel("caller", stage.at);
        channel.state = State::Ring;
        channel.caller = Identity { number: details.caller_number.clone(), name: details.caller_name.clone() };
        channel.context = "from-caller";
        channel.exten.clone_from(&details.number);
        channel.application = ("Dial", String::new());
        let map = details.map.as_ref().filter(|_| self.channel_variables.iter().any(|shown| shown == "pm_map"));
        channel.shown_variables.extend(map.map(|_| ("pm_map".to_owned(), String::new())));
        stage.of("Newchannel", &channel);
        // The dialplan sets it, and runs from now on.
        for ((_, value), map) in channel.shown_variables.iter_mut().zip(map) {
            value.clone_from(map);
        }
        self.callers.insert(call, channel);
    }

    fn leg_out(&mut self, stage: &mut Stage, call: CallNo, leg: LegNo, trunk: &str) {
        let mut channel = self.channel(trunk, stage.at);
        let Some(caller) = self.callers.get_mut(&call) else { return };
        channel.linked_id.clone_from(&caller.linked_id);
        let empty = caller.shown_variables.iter().map(|(name, _)| (name.clone(), String::new()));
        channel.shown_variables = empty.collect();
        stage.of("Newchannel", &channel);
        // Inherited once the channel is there.
        channel.shown_variables.clone_from(&caller.shown_variables);
        channel.caller.number.clone_from(&caller.exten);
        channel.connected = caller.caller.clone();
        channel.exten.clone_from(&caller.exten);
        stage.tell("NewCallerid", |message| {
            channel.write("", message);
            message.push("CID-CallingPres", "0 (Presentation Allowed, Not Screened)");
        });
        stage.of("NewConnectedLine", &channel);
        let dial_string = format!("{}@{trunk}", caller.exten);
        caller.application.1 = format!("PJSIP/{dial_string}");
        stage.dial("DialBegin", caller, &channel, ("DialString", &dial_string));
        if caller.connected.number.is_empty() {
            caller.connected.number.clone_from(&caller.exten);
            stage.of("NewConnectedLine", caller);
        }
        self.legs.insert(leg, (call, channel));
    }

    fn ringing(&mut self, stage: &mut Stage, leg: LegNo) {
        let Some((call, channel)) = self.legs.get_mut(&leg) else { return };
        let Some(caller) = self.callers.get_mut(call) else { return };
        channel.state = State::Ringing;
        stage.of("Newstate", channel);
        stage.device(channel, "RINGING");
        if !caller.device_in_use {
            stage.device(caller, "INUSE");
        }
        stage.dial("DialState", caller, channel, ("DialStatus", "RINGING"));
    }

    fn early_media(&mut self, stage: &mut Stage, leg: LegNo) {
        let Some((call, channel)) = self.legs.get(&leg) else { return };
        let Some(caller) = self.callers.get(call) else { return };
        stage.dial("DialState", caller, channel, ("DialStatus", "PROGRESS"));
    }

    fn answered(&mut self, stage: &mut Stage, call: CallNo, leg: LegNo, losers: &[LegNo]) {
        let bridge = super::pbx::new_uuid(&mut self.ids);
        let Some(caller) = self.callers.get_mut(&call) else { return };
        let Some((_, channel)) = self.legs.get_mut(&leg) else { return };
        channel.state = State::Up;
        stage.of("Newstate", channel);
        stage.device(channel, "INUSE");
        channel.exten.clear();
        let (mut winner, mut caller) = (channel.clone(), caller.clone());
        for loser in losers {
            if let Some((_, lost)) = self.legs.get(loser) {
                stage.dial("DialEnd", &caller, lost, ("DialStatus", "CANCEL"));
            }
        }
        stage.dial("DialEnd", &caller, &winner, ("DialStatus", "ANSWER"));
        caller.state = State::Up;
        stage.of("Newstate", &caller);
        for loser in losers {
            self.hang_up_leg(stage, *loser, Cause { q850: 26, sip: None });
        }
        stage.bridge("BridgeCreate", &bridge, 0, None);
        stage.bridge("BridgeEnter", &bridge, 1, Some(&winner));
        stage.bridge("BridgeEnter", &bridge, 2, Some(&caller));
        if !caller.device_in_use {
            stage.device(&mut caller, "INUSE");
        }
        winner.bridge = Some(bridge.clone());
        caller.bridge = Some(bridge);
        self.legs.insert(leg, (call, winner));
        self.callers.insert(call, caller);
    }

    /// `Cause`, `Cause-txt` where wanted, and `TechCause` where this version has one.
    fn write_cause(&self, message: &mut Message, cause: Cause, with_text: bool) {
        message.push("Cause", cause.q850.to_string());
        if with_text {
            message.push("Cause-txt", cause_text(cause.q850));
        }
        if let Some(sip) = cause.sip.filter(|_| self.version == Version::V22) {
            message.push("TechCause", sip.to_string());
        }
    }

    fn requested(&self, stage: &mut Stage, name: &'static str, channel: &Channel, cause: Cause) {
        // Older versions know no cause when a party hangs up an answered call.
        let silent = self.version == Version::V16 && name == "HangupRequest" && matches!(cause.q850, 16 | 127);
        stage.tell(name, |message| {
            channel.write("", message);
            if !silent {
                self.write_cause(message, cause, false);
            }
        });
    }

    fn hang_up(&self, stage: &mut Stage, mut channel: Channel, cause: Cause) {
        stage.tell("Hangup", |message| {
            channel.write("", message);
            self.write_cause(message, cause, true);
        });
        if channel.device_in_use {
            stage.device(&mut channel, "NOT_INUSE");
        }
    }

    fn hang_up_leg(&mut self, stage: &mut Stage, leg: LegNo, cause: Cause) {
        if let Some((_, channel)) = self.legs.remove(&leg) {
            self.hang_up(stage, channel, cause);
        }
    }

    fn leg_failed(&mut self, stage: &mut Stage, leg: LegNo, end: End) {
        let Some((call, channel)) = self.legs.get(&leg) else { return };
        let Some(caller) = self.callers.get(call) else { return };
        let (asked, cause) = match end {
            End::Refused(status) => (true, Cause { q850: q850_of(status), sip: Some(status) }),
            End::Unreachable => (true, Cause { q850: 34, sip: Some(503) }),
            End::NoReply => (true, Cause { q850: 18, sip: Some(408) }),
            _ => (false, Cause { q850: 0, sip: None }),
        };
        if asked {
            self.requested(stage, "HangupRequest", channel, cause);
        }
        stage.dial("DialEnd", caller, channel, ("DialStatus", dial_status(cause.q850)));
        self.hang_up_leg(stage, leg, cause);
    }

    fn caller_cancels(&mut self, stage: &mut Stage, call: CallNo, legs: &[LegNo]) {
        let Some(caller) = self.callers.remove(&call) else { return };
        let cancelled = Cause { q850: 127, sip: Some(487) };
        self.requested(stage, "HangupRequest", &caller, cancelled);
        for leg in legs {
            if let Some((_, channel)) = self.legs.get(leg) {
                stage.dial("DialEnd", &caller, channel, ("DialStatus", "CANCEL"));
            }
        }
        self.requested(stage, "SoftHangupRequest", &caller, Cause { q850: 16, sip: Some(487) });
        for leg in legs {
            // Made up by Asterisk: the vendor did nothing.
            self.hang_up_leg(stage, *leg, Cause { q850: 127, sip: Some(500) });
        }
        self.hang_up(stage, caller, cancelled);
    }

    fn caller_out(&mut self, stage: &mut Stage, call: CallNo, last: Option<End>) {
        let Some(caller) = self.callers.remove(&call) else { return };
        let cause = match last {
            None => Cause { q850: 3, sip: Some(404) },
            Some(End::Refused(status)) => Cause { q850: q850_of(status), sip: Some(status) },
            Some(End::Unreachable) => Cause { q850: 34, sip: Some(503) },
            Some(End::NoReply) => Cause { q850: 18, sip: Some(408) },
            Some(_) => Cause { q850: 0, sip: None },
        };
        self.requested(stage, "SoftHangupRequest", &caller, NORMAL);
        self.hang_up(stage, caller, cause);
    }

    fn over(&mut self, stage: &mut Stage, call: CallNo, leg: LegNo, by: Side) {
        let Some(caller) = self.callers.remove(&call) else { return };
        let Some((_, channel)) = self.legs.remove(&leg) else { return };
        let bridge = caller.bridge.clone().unwrap_or_default();
        let (first, second) = match by {
            Side::Caller => (&caller, &channel),
            Side::FarEnd => (&channel, &caller),
        };
        self.requested(stage, "HangupRequest", first, NORMAL);
        stage.bridge("BridgeLeave", &bridge, 1, Some(first));
        stage.bridge("BridgeLeave", &bridge, 0, Some(second));
        stage.bridge("BridgeDestroy", &bridge, 0, None);
        match by {
            Side::Caller => {
                self.requested(stage, "SoftHangupRequest", &caller, NORMAL);
                self.hang_up(stage, channel, NORMAL);
            }
            Side::FarEnd => {
                self.hang_up(stage, channel, NORMAL);
                self.requested(stage, "SoftHangupRequest", &caller, NORMAL);
            }
        }
        self.hang_up(stage, caller, NORMAL);
    }

    /// A global variable was set, by whomever: heard in class `dialplan`.
    fn global_set(at: Timestamp, name: &str, value: &str) -> Event {
        let mut message = Message::event("VarSet", Classes::DIALPLAN, at);
        message.push("Channel", "none");
        message.push("Uniqueid", "none");
        message.push("Variable", name);
        message.push("Value", message::c_escape(value.as_bytes()));
        Event { name: "VarSet", classes: Classes::DIALPLAN, bytes: message.finish().into() }
    }
}

impl Dialect for Asterisk {
    type Event = Event;
    type Subscription = Subscription;
    type Session = AmiSession;

    const UNREACHABLE_FAILS_AT_ONCE: bool = false;

    fn session(&self, connection: u64, _peer: SocketAddr) -> AmiSession {
        AmiSession::new(connection)
    }

    fn perform(&mut self, at: Timestamp, step: Step<'_>, _wanted: &dyn Fn(&str) -> bool) -> Vec<Event> {
        let mut stage = Stage { at, events: Vec::new() };
        let to = &mut stage;
        match step {
            Step::CallerIn { call, details } => self.caller_in(to, call, details),
            Step::LegOut { call, leg, trunk } => self.leg_out(to, call, leg, trunk),
            // No channel, no event: only the dialplan hears of it.
            Step::NoLeg { .. } => (),
            Step::Ringing { leg } => self.ringing(to, leg),
            Step::EarlyMedia { leg } => self.early_media(to, leg),
            Step::Answered { call, leg, losers } => self.answered(to, call, leg, losers),
            Step::LegFailed { leg, end } => self.leg_failed(to, leg, end),
            Step::CallerCancels { call, legs } => self.caller_cancels(to, call, legs),
            Step::CallerOut { call, last } => self.caller_out(to, call, last),
            Step::Over { call, leg, by } => self.over(to, call, leg, by),
        }
        stage.events
    }

    fn tick(&mut self, _at: Timestamp, _load: Load, _events: &mut Vec<Event>) -> Option<Duration> {
        // Asterisk says nothing unasked.
        None
    }

    fn kind(event: &Event) -> &str {
        event.name
    }

    fn may_hear(_subscription: &Subscription, _kind: &str) -> bool {
        true
    }

    fn encode(event: &Event, subscription: &Subscription) -> Option<Bytes> {
        subscription.wants(event).then(|| event.bytes.clone())
    }

    fn listens(subscription: &Subscription) -> bool {
        subscription.classes != Classes::NONE
    }

    fn order(variables: &BTreeMap<String, String>, prefix: &str, map: &str) -> Vec<String> {
        let list = variables.get(&format!("{prefix}route_{map}")).map(String::as_str).unwrap_or_default();
        list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    fn leg_id(&self, leg: LegNo) -> String {
        self.legs.get(&leg).map(|(_, channel)| channel.unique_id.clone()).unwrap_or_default()
    }

    fn active_legs(&self) -> usize {
        self.legs.len()
    }

    fn huge_frame(_bytes: u64) -> Vec<u8> {
        b"Event: UserEvent\r\nPrivilege: user,all\r\nFiller: ".to_vec()
    }

    fn farewell(&mut self, at: Timestamp) -> Vec<Event> {
        let mut message = Message::event("Shutdown", Classes::SYSTEM, at);
        message.push("Shutdown", "Cleanly");
        message.push("Restart", "False");
        vec![Event { name: "Shutdown", classes: Classes::SYSTEM, bytes: message.finish().into() }]
    }

    fn restart(&mut self, at: Timestamp) {
        (self.started, self.processed, self.counter) = (at, 0, 0);
        self.callers.clear();
        self.legs.clear();
    }
}
