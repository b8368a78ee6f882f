//! A simulated FreeSWITCH: the inbound event socket of a 1.11 with mod_sofia.
//!
//! Told apart from the real one by this: of the channel events about states only the last (CHANNEL_STATE to CS_DESTROY)
//! and the answer (CHANNEL_CALLSTATE to ACTIVE), and none about applications (CHANNEL_EXECUTE), which no client needs;
//! filters with no regular expression but `/./`; the `api` commands of `api`, no others.

mod api;
mod cause;
mod channel;
mod event;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use self::channel::{Channel, Dialogue, HOST, Profile, Times};
use self::event::{Event, Origin, Value, date, date_gmt, uptime};
use self::session::{FsSession, Subscription};
use crate::clock::Clock;
use crate::sim::call::{Call, End, Side};
use crate::sim::handle::{self, Handle};
use crate::sim::pbx::{CallNo, Dialect, LegNo, Load, Step, new_uuid};
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// FreeSWITCH's clock ticks that often; every time it reports is a multiple, give or take.
const TICK_MICROS: i64 = 20_000;

/// Ports of the simulated vendors, handed out in the order of their first call.
const FIRST_VENDOR_PORT: u16 = 6001;

const VERSION: &str = "1.11.3-dev+git~20260821T141014Z~cc93a683ca~64bit";
const HOSTNAME: &str = "sim";

/// What a simulated FreeSWITCH needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// What both kinds have in common.
    pub pbx: handle::Options,
    /// Time between two HEARTBEATs, on the PBX's clock.
    pub heartbeat: Duration,
    /// Its Core-UUID in this run; a random one, where `None`.
    pub core_uuid: Option<String>,
    /// Users for `userauth` (`name@domain`) and their passwords.
    pub users: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pbx: handle::Options::default(),
            heartbeat: Duration::from_secs(20),
            core_uuid: None,
            users: BTreeMap::new(),
        }
    }
}

/// A simulated FreeSWITCH server.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts one.
    ///
    /// # Errors
    /// Where the port cannot be had.
    pub async fn start(options: Options, clock: Clock, tasks: &Tasks) -> io::Result<Handle> {
        let dialect = FreeSwitch::new(&options, clock.now());
        Handle::start(dialect, options.pbx, clock, tasks).await
    }
}

/// Counters behind the `Session-*` figures.
#[derive(Clone, Copy, Debug, Default)]
struct Sessions {
    since_startup: u64,
    peak: usize,
    /// Begun in the current second, and which second that is.
    this_second: (i64, u64),
    last_second: u64,
    most_in_a_second: u64,
}

/// A leg to a vendor.
#[derive(Clone, Debug)]
struct Leg {
    uuid: String,
    port: u16,
    dialogue: Dialogue,
}

/// The switch behind the event socket.
pub(crate) struct FreeSwitch {
    password: String,
    users: BTreeMap<String, String>,
    heartbeat: Duration,
    max_sessions: usize,
    core: String,
    started: Timestamp,
    sequence: u64,
    sessions: Sessions,
    channels: BTreeMap<String, Channel>,
    callers: HashMap<CallNo, String>,
    legs: HashMap<LegNo, Leg>,
    ports: BTreeMap<String, u16>,
    /// Identifiers come from their own generator, so that they do not shift what vendors do.
    ids: fastrand::Rng,
}

/// Where the events of a step are collected.
struct Stage<'a> {
    at: Timestamp,
    wanted: &'a dyn Fn(&str) -> bool,
    events: Vec<Event>,
}

impl FreeSwitch {
    fn new(options: &Options, now: Timestamp) -> Self {
        let mut ids = fastrand::Rng::with_seed(options.pbx.seed.rotate_left(32) ^ 0x1d5);
        Self {
            password: options.pbx.password.clone(),
            users: options.users.clone(),
            heartbeat: options.heartbeat,
            max_sessions: options.pbx.max_calls * 2,
            core: options.core_uuid.clone().unwrap_or_else(|| new_uuid(&mut ids)),
            started: now,
            sequence: 0,
            sessions: Sessions::default(),
            channels: BTreeMap::new(),
            callers: HashMap::new(),
            legs: HashMap::new(),
            ports: BTreeMap::new(),
            ids,
        }
    }

    /// An event with the head that every event has.
    fn head(&mut self, name: &'static str, origin: Origin, at: Timestamp) -> Event {
        self.sequence += 1;
        let mut event = Event::bare(name);
        event.push("Event-Name", name);
        event.push("Core-UUID", self.core.as_str());
        event.push("FreeSWITCH-Hostname", HOSTNAME);
        event.push("FreeSWITCH-Switchname", HOSTNAME);
        event.push("FreeSWITCH-IPv4", HOST);
        event.push("FreeSWITCH-IPv6", "::1");
        event.push("Event-Date-Local", date(at));
        event.push("Event-Date-GMT", date_gmt(at));
        event.push("Event-Date-Timestamp", at.as_micros());
        let (file, function, line) = origin;
        event.push("Event-Calling-File", file);
        event.push("Event-Calling-Function", function);
        event.push("Event-Calling-Line-Number", line.to_string());
        event.push("Event-Sequence", self.sequence.to_string());
        event
    }

    /// Makes an event of a channel, where anybody wants to hear it.
    fn tell(&mut self, stage: &mut Stage<'_>, name: &'static str, origin: Origin, uuid: &str) {
        self.tell_with(stage, name, origin, uuid, |_| ());
    }

    fn tell_with(
        &mut self,
        stage: &mut Stage<'_>,
        name: &'static str,
        origin: Origin,
        uuid: &str,
        extra: impl FnOnce(&mut Event),
    ) {
        if !(stage.wanted)(name) {
            self.sequence += 1;
            return;
        }
        let mut event = self.head(name, origin, stage.at);
        let Some(channel) = self.channels.get(uuid) else { return };
        extra(&mut event);
        channel.write_basics(&mut event);
        if !BARE.contains(&name) {
            channel.write_variables(&mut event);
        }
        stage.events.push(event);
    }

    fn count_session(&mut self, at: Timestamp) {
        let second = at.as_micros() / 1_000_000;
        let sessions = &mut self.sessions;
        if sessions.this_second.0 != second {
            let followed = sessions.this_second.0 + 1 == second;
            sessions.last_second = if followed { sessions.this_second.1 } else { 0 };
            sessions.this_second = (second, 0);
        }
        sessions.this_second.1 += 1;
        sessions.since_startup += 1;
        sessions.most_in_a_second = sessions.most_in_a_second.max(sessions.this_second.1);
        sessions.peak = sessions.peak.max(self.channels.len() + 1);
    }

    fn dialogue(&mut self) -> Dialogue {
        let token = std::iter::repeat_with(|| self.ids.alphanumeric()).take(13).collect();
        Dialogue { session: self.sessions.since_startup, token }
    }

    fn caller_in(&mut self, stage: &mut Stage<'_>, call: CallNo, details: &Call) {
        self.count_session(stage.at);
        let uuid = new_uuid(&mut self.ids);
        let profile = Profile {
            outbound: false,
            number: details.caller_number.clone(),
            name: details.caller_name.clone(),
            destination: details.number.clone(),
            callee: None,
            channel: format!("sofia/internal/{}@{HOST}:6270", details.caller_number),
            times: Times { created: stage.at, ..Times::default() },
            uuid: uuid.clone(),
        };
        let dialogue = self.dialogue();
        let channel = Channel::inbound(profile, &dialogue);
        self.channels.insert(uuid.clone(), channel);
        self.callers.insert(call, uuid.clone());
        self.tell(stage, "CHANNEL_CREATE", CREATE, &uuid);
        // From here on the dialplan works on the channel.
        let Some(a) = self.channels.get_mut(&uuid) else { return };
        (a.state, a.state_number, a.call_state) = ("CS_EXECUTE", 4, "RINGING");
        let v = &mut a.variables;
        v.set("DP_MATCH", Value::List(vec![details.number.clone(), details.number.clone()]));
        v.set("call_uuid", uuid.as_str());
        v.set("call_timeout", details.ring_timeout.as_secs().to_string());
        v.set("hangup_after_bridge", "true");
        if let Some(map) = &details.map {
            v.set("pm_map", map.as_str());
        }
    }

    fn leg_out(&mut self, stage: &mut Stage<'_>, call: CallNo, leg: LegNo, gateway: &str) {
        self.count_session(stage.at);
        let dialogue = self.dialogue();
        let uuid = new_uuid(&mut self.ids);
        let next_port = FIRST_VENDOR_PORT + u16::try_from(self.ports.len()).unwrap_or_default();
        let port = *self.ports.entry(gateway.to_owned()).or_insert(next_port);
        let Some(a_uuid) = self.callers.get(&call) else { return };
        let Some(a) = self.channels.get_mut(a_uuid) else { return };
        let number = a.profile.destination.clone();
        let v = &mut a.variables;
        v.set("current_application_data", format!("sofia/gateway/{gateway}/{number}"));
        v.set("current_application", "bridge");
        v.set("originate_disposition", "failure");
        v.set("DIALSTATUS", "INVALIDARGS");
        v.set("originate_signal_bond", uuid.as_str());
        v.append("originated_legs", format!("{uuid};Outbound Call;{number}"));
        let profile = Profile {
            outbound: true,
            destination: number.clone(),
            callee: Some(number.clone()),
            channel: format!("sofia/external/{number}"),
            times: Times { created: stage.at, ..Times::default() },
            uuid: uuid.clone(),
            ..a.profile.clone()
        };
        let channel = Channel::outbound(profile, a, gateway, port, &dialogue);
        self.channels.insert(uuid.clone(), channel);
        self.legs.insert(leg, Leg { uuid: uuid.clone(), port, dialogue });

        self.reshape(&uuid, |b| (b.state, b.state_number, b.call_uuid) = ("CS_NONE", 1, b.profile.uuid.clone()));
        self.tell(stage, "CHANNEL_OUTGOING", OUTGOING, &uuid);
        let a_uuid = self.callers.get(&call).cloned().unwrap_or_default();
        self.reshape(&uuid, |b| (b.state, b.state_number, b.call_uuid) = ("CS_INIT", 2, a_uuid));
        self.tell(stage, "CHANNEL_CREATE", CREATE, &uuid);
        self.tell(stage, "CHANNEL_ORIGINATE", ORIGINATE, &uuid);
        self.reshape(&uuid, |b| (b.state, b.state_number) = ("CS_CONSUME_MEDIA", 7));
    }

    /// A gateway that is unknown or down: a session is begun and given up before it is a channel.
    fn no_leg(&mut self, stage: &mut Stage<'_>, call: CallNo, gateway: &str) {
        self.count_session(stage.at);
        if let Some(a_uuid) = self.callers.get(&call).cloned() {
            self.reshape(&a_uuid, |a| {
                a.variables
                    .set("current_application_data", format!("sofia/gateway/{gateway}/{}", a.profile.destination));
                a.variables.set("originate_disposition", "INVALID_GATEWAY");
                a.variables.set("DIALSTATUS", "INVALID_GATEWAY");
                a.variables.set("originate_failed_cause", "INVALID_GATEWAY");
            });
        }
        let uuid = new_uuid(&mut self.ids);
        for (name, origin, state) in [("CHANNEL_DESTROY", DESTROY, "CS_NEW"), ("CHANNEL_STATE", STATE, "CS_DESTROY")] {
            if !(stage.wanted)(name) {
                self.sequence += 1;
                continue;
            }
            let mut event = self.head(name, origin, stage.at);
            event.push("Channel-State", state);
            event.push("Channel-Call-State", "DOWN");
            event.push("Channel-State-Number", "0");
            event.push("Channel-Name", "N/A");
            event.push("Unique-ID", uuid.as_str());
            event.push("Call-Direction", "outbound");
            event.push("Presence-Call-Direction", "outbound");
            event.push("Channel-HIT-Dialplan", "false");
            event.push("Channel-Call-UUID", uuid.as_str());
            event.push("Answer-State", "ringing");
            event.push("variable_direction", "outbound");
            event.push("variable_is_outbound", "true");
            event.push("variable_uuid", uuid.as_str());
            event.push("variable_session_id", self.sessions.since_startup.to_string());
            event.push("variable_text_media_flow", "disabled");
            stage.events.push(event);
        }
    }

    fn reshape(&mut self, uuid: &str, change: impl FnOnce(&mut Channel)) {
        if let Some(channel) = self.channels.get_mut(uuid) {
            change(channel);
        }
    }

    /// The channel of the caller on whose behalf a leg was dialled.
    fn caller_of(&self, uuid: &str) -> Option<String> {
        self.channels.get(uuid)?.other.as_ref().map(|(_, caller)| caller.uuid.clone())
    }

    fn sign(&mut self, stage: &mut Stage<'_>, leg: LegNo, media: bool) {
        let Some(Leg { uuid, port, dialogue }) = self.legs.get(&leg).cloned() else { return };
        let at = stage.at;
        let media_port = media.then_some(30_000 + port % 1000);
        self.reshape(&uuid, |b| {
            b.heard_of(port, &dialogue, media_port);
            let times = if media { &mut b.profile.times.progress_media } else { &mut b.profile.times.progress };
            *times = at;
            if let Some((_, caller)) = &mut b.other {
                let times = if media { &mut caller.times.progress_media } else { &mut caller.times.progress };
                *times = at;
            }
            if media {
                b.answer_state = "early";
                b.variables.set("endpoint_disposition", "EARLY MEDIA");
            }
        });
        let (name, origin) = if media { ("CHANNEL_PROGRESS_MEDIA", MEDIA) } else { ("CHANNEL_PROGRESS", RING_READY) };
        self.tell(stage, name, origin, &uuid);
        self.reshape(&uuid, |b| b.call_state = if media { "EARLY" } else { "RINGING" });

        let Some(a_uuid) = self.caller_of(&uuid) else { return };
        let token = dialogue.token;
        self.reshape(&a_uuid, |a| {
            let times = if media { &mut a.profile.times.progress_media } else { &mut a.profile.times.progress };
            *times = at;
            match media_port {
                Some(media_port) => {
                    a.answer_state = "early";
                    a.media_passed_on(media_port);
                    a.variables.set("endpoint_disposition", "EARLY MEDIA");
                }
                None => {
                    a.profile.callee = Some(a.profile.destination.clone());
                    a.variables.set("sip_to_tag", token);
                }
            }
        });
        self.tell(stage, name, origin, &a_uuid);
        if media {
            self.reshape(&a_uuid, |a| a.call_state = "EARLY");
            self.bridge(stage, &a_uuid, &uuid, media_port);
        }
    }

    /// `early`: the port from which the far end's media come, where it has not answered yet.
    fn bridge(&mut self, stage: &mut Stage<'_>, a_uuid: &str, b_uuid: &str, early: Option<u16>) {
        let (Some(a), Some(b)) = (self.channels.get(a_uuid), self.channels.get(b_uuid)) else { return };
        let (a_profile, b_profile) = (a.profile.clone(), b.profile.clone());
        let at = stage.at;
        self.reshape(a_uuid, |a| {
            let number = a_profile.destination.clone();
            a.profile.callee = Some(number.clone());
            (a.state, a.state_number) = ("CS_HIBERNATE", 8);
            if early.is_none() {
                a.variables.set("endpoint_disposition", "ANSWER");
            }
            a.variables.remove("originate_signal_bond");
            a.variables.append("originate_causes", format!("{b_uuid};NONE"));
            a.variables.set("signal_bond", b_uuid);
            a.bridged(at, &b_profile, (b"Outbound Call", &number), None);
            a.other = Some(("originatee", b_profile.clone()));
        });
        let (a_text, b_text) = (a_uuid.to_owned(), b_uuid.to_owned());
        self.tell_with(stage, "CHANNEL_BRIDGE", BRIDGED, a_uuid, |event| {
            event.push("Bridge-A-Unique-ID", a_text);
            event.push("Bridge-B-Unique-ID", b_text);
        });
        self.reshape(b_uuid, |b| {
            (b.state, b.state_number) = ("CS_HIBERNATE", 8);
            if early.is_none() {
                b.variables.set("endpoint_disposition", "ANSWER");
            }
            b.bridged(at, &a_profile, (&a_profile.name, &a_profile.number), early);
        });
    }

    fn answered(&mut self, stage: &mut Stage<'_>, call: CallNo, leg: LegNo, losers: &[LegNo]) {
        let Some(Leg { uuid, port, dialogue }) = self.legs.get(&leg).cloned() else { return };
        let Some(a_uuid) = self.callers.get(&call).cloned() else { return };
        let (at, media_port) = (stage.at, 30_000 + port % 1000);
        let bridged_before = self.channels.get(&a_uuid).is_some_and(|a| a.state == "CS_HIBERNATE");
        self.reshape(&uuid, |b| {
            if bridged_before {
                b.heard_of(port, &dialogue, Some(media_port));
            } else {
                if b.profile.times.progress == Timestamp::default() {
                    b.heard_of(port, &dialogue, None);
                }
                b.media_agreed(media_port);
            }
            b.profile.times.answered = at;
            b.answer_state = "answered";
        });
        self.tell(stage, "CHANNEL_ANSWER", ANSWERED, &uuid);
        self.active(stage, &uuid);
        for loser in losers {
            self.reshape_leg(*loser, |b| {
                b.variables.set("group_dial_status", "loser");
                b.disposition = Some("send_cancel");
            });
            self.hangup_leg(stage, *loser, cause::of_end(End::LostRace));
        }
        self.reshape(&a_uuid, |a| {
            a.profile.times.answered = at;
            a.answer_state = "answered";
            if bridged_before {
                let sdp = a.variables.get("rtp_local_sdp_str").cloned();
                a.variables.set("rtp_local_sdp_str", sdp.unwrap_or(Value::Text(Vec::new())));
            } else {
                a.profile.callee = Some(a.profile.destination.clone());
                a.media_passed_on(media_port);
            }
        });
        self.tell(stage, "CHANNEL_ANSWER", ANSWERED, &a_uuid);
        self.active(stage, &a_uuid);
        if bridged_before {
            for uuid in [&a_uuid, &uuid] {
                self.reshape(uuid, |channel| channel.variables.set("endpoint_disposition", "ANSWER"));
            }
        } else {
            self.bridge(stage, &a_uuid, &uuid, None);
        }
        for loser in losers {
            self.reshape_leg(*loser, |b| b.variables.set("call_completed_elsewhere", "true"));
            self.complete_leg(stage, *loser);
        }
    }

    fn reshape_leg(&mut self, leg: LegNo, change: impl FnOnce(&mut Channel)) {
        if let Some(uuid) = self.legs.get(&leg).map(|leg| leg.uuid.clone()) {
            self.reshape(&uuid, change);
        }
    }

    fn hangup(&mut self, stage: &mut Stage<'_>, uuid: &str, cause: cause::Cause) {
        self.reshape(uuid, |channel| channel.hung_up(cause));
        self.tell(stage, "CHANNEL_HANGUP", HANGUP, uuid);
    }

    fn hangup_leg(&mut self, stage: &mut Stage<'_>, leg: LegNo, cause: cause::Cause) {
        if let Some(uuid) = self.legs.get(&leg).map(|leg| leg.uuid.clone()) {
            self.hangup(stage, &uuid, cause);
        }
    }

    fn complete(&mut self, stage: &mut Stage<'_>, uuid: &str) {
        let at = stage.at;
        self.reshape(uuid, |channel| {
            channel.completed(at);
            if channel.disposition == Some("send_cancel") {
                channel.variables.set("sip_invite_failure_status", "487");
                channel.variables.set("sip_invite_failure_phrase", "CANCEL");
            }
        });
        let cause = self.channels.get(uuid).and_then(|channel| channel.cause).unwrap_or(cause::NORMAL_CLEARING);
        self.tell_with(stage, "CHANNEL_HANGUP_COMPLETE", COMPLETE, uuid, |event| {
            event.push("Hangup-Cause", cause.name);
        });
        self.reshape(uuid, |channel| channel.state_number = 12);
        self.tell(stage, "CHANNEL_DESTROY", DESTROY, uuid);
        self.reshape(uuid, |channel| channel.state = "CS_DESTROY");
        self.tell(stage, "CHANNEL_STATE", STATE, uuid);
        self.channels.remove(uuid);
    }

    /// The call state follows the answer.
    fn active(&mut self, stage: &mut Stage<'_>, uuid: &str) {
        let Some(before) = self.channels.get(uuid).map(|channel| channel.call_state) else { return };
        self.reshape(uuid, |channel| channel.call_state = "ACTIVE");
        self.tell_with(stage, "CHANNEL_CALLSTATE", CALL_STATE, uuid, |event| {
            event.push("Original-Channel-Call-State", before);
            event.push("Channel-Call-State-Number", "4");
        });
    }

    fn complete_leg(&mut self, stage: &mut Stage<'_>, leg: LegNo) {
        if let Some(leg) = self.legs.remove(&leg) {
            self.complete(stage, &leg.uuid);
        }
    }

    /// A leg ends while the caller waits.
    fn leg_failed(&mut self, stage: &mut Stage<'_>, leg: LegNo, end: End) {
        let Some(Leg { uuid, port, dialogue }) = self.legs.get(&leg).cloned() else { return };
        let (cause, status) = (cause::of_end(end), cause::status(end));
        self.reshape(&uuid, |b| match status {
            Some(status) => b.refused(status, cause, port, end != End::Refused(status), &dialogue),
            None => b.disposition = Some("send_cancel"),
        });
        self.hangup(stage, &uuid, cause);
        let a_uuid = self.caller_of(&uuid);
        self.complete_leg(stage, leg);
        if let Some(a_uuid) = a_uuid {
            self.reshape(&a_uuid, |a| a.leg_failed(&uuid, cause, status));
        }
    }

    fn caller_cancels(&mut self, stage: &mut Stage<'_>, call: CallNo, legs: &[LegNo]) {
        let Some(a_uuid) = self.callers.remove(&call) else { return };
        let cause = cause::ORIGINATOR_CANCEL;
        self.reshape(&a_uuid, |a| a.disposition = Some("recv_cancel"));
        self.hangup(stage, &a_uuid, cause);
        for leg in legs {
            self.reshape_leg(*leg, |b| b.disposition = Some("send_cancel"));
            self.hangup_leg(stage, *leg, cause);
        }
        self.complete(stage, &a_uuid);
        for leg in legs {
            self.complete_leg(stage, *leg);
        }
    }

    fn caller_out(&mut self, stage: &mut Stage<'_>, call: CallNo, last: Option<End>) {
        let Some(a_uuid) = self.callers.remove(&call) else { return };
        // After a ring timeout the dialplan simply comes to its end.
        let cause = match last {
            None | Some(End::RingTimeout { .. }) => cause::NORMAL_CLEARING,
            Some(end) => cause::of_end(end),
        };
        self.reshape(&a_uuid, |a| a.disposition = Some("send_refuse"));
        self.hangup(stage, &a_uuid, cause);
        self.complete(stage, &a_uuid);
    }

    fn over(&mut self, stage: &mut Stage<'_>, call: CallNo, leg: LegNo, by: Side) {
        let Some(a_uuid) = self.callers.remove(&call) else { return };
        let Some(Leg { uuid: b_uuid, .. }) = self.legs.remove(&leg) else { return };
        let (first, second, role) = match by {
            Side::Caller => (&a_uuid, &b_uuid, "originator"),
            Side::FarEnd => (&b_uuid, &a_uuid, "originatee"),
        };
        let cause = cause::NORMAL_CLEARING;
        self.reshape(first, |channel| {
            channel.heard_bye(role);
            channel.disposition = Some("recv_bye");
        });
        self.hangup(stage, first, cause);
        self.tell(stage, "CHANNEL_UNBRIDGE", UNBRIDGED, &a_uuid);
        self.reshape(&a_uuid, Channel::unbridged);
        self.reshape(&b_uuid, |b| {
            b.unbridged();
            b.call_uuid = b.profile.uuid.clone();
        });
        self.reshape(second, |channel| {
            channel.disposition = Some("send_bye");
            channel.peer_hung_up();
        });
        self.hangup(stage, second, cause);
        self.complete(stage, first);
        self.complete(stage, second);
    }

    fn heartbeat(&mut self, at: Timestamp, load: Load) -> Event {
        let mut event = self.head("HEARTBEAT", ("switch_core.c", "send_heartbeat", 95), at);
        let micros = at.since(self.started).as_micros();
        let sessions = self.sessions;
        event.push("Event-Info", "System Ready");
        event.push("Up-Time", uptime(micros));
        event.push("FreeSWITCH-Version", VERSION);
        event.push("Uptime-msec", (micros / 1000).to_string());
        event.push("Session-Count", self.channels.len().to_string());
        event.push("Max-Sessions", self.max_sessions.to_string());
        event.push("Session-Per-Sec", "200");
        event.push("Session-Per-Sec-Last", sessions.last_second.to_string());
        event.push("Session-Per-Sec-Max", sessions.most_in_a_second.to_string());
        event.push("Session-Per-Sec-FiveMin", sessions.most_in_a_second.to_string());
        event.push("Session-Since-Startup", sessions.since_startup.to_string());
        event.push("Session-Peak-Max", sessions.peak.to_string());
        event.push("Session-Peak-FiveMin", sessions.peak.to_string());
        event.push("Idle-CPU", format!("{:.6}", load.idle_cpu));
        event
    }

    fn background_job(&mut self, at: Timestamp, job: &str, command: &str, arguments: &str, output: &str) -> Event {
        let mut event = self.head("BACKGROUND_JOB", ("mod_event_socket.c", "api_exec", 1558), at);
        event.push("Job-UUID", job);
        event.push("Job-Command", command);
        event.push("Job-Command-Arg", arguments);
        event.set_body(output);
        event
    }
}

const CREATE: Origin = ("switch_core_state_machine.c", "switch_core_session_run", 626);
const ORIGINATE: Origin = ("switch_core_state_machine.c", "switch_core_session_run", 632);
const OUTGOING: Origin = ("switch_core_session.c", "switch_core_session_outgoing_channel", 768);
const RING_READY: Origin = ("switch_channel.c", "switch_channel_perform_mark_ring_ready_value", 3507);
const MEDIA: Origin = ("switch_channel.c", "switch_channel_perform_mark_pre_answered", 3562);
/// Events that carry no variables.
const BARE: [&str; 3] = ["CHANNEL_OUTGOING", "CHANNEL_CALLSTATE", "CHANNEL_STATE"];

const CALL_STATE: Origin = ("switch_channel.c", "switch_channel_perform_set_callstate", 302);
const STATE: Origin = ("switch_channel.c", "switch_channel_perform_set_running_state", 2409);
const ANSWERED: Origin = ("switch_channel.c", "switch_channel_perform_mark_answered", 3848);
const BRIDGED: Origin = ("switch_ivr_bridge.c", "signal_bridge_on_hibernate", 1377);
const UNBRIDGED: Origin = ("switch_ivr_bridge.c", "hanguphook", 1326);
const HANGUP: Origin = ("switch_channel.c", "switch_channel_perform_hangup", 3447);
const COMPLETE: Origin = ("switch_core_state_machine.c", "switch_core_session_reporting_state", 943);
const DESTROY: Origin = ("switch_core_session.c", "switch_core_session_perform_destroy", 1588);

impl Dialect for FreeSwitch {
    type Event = Event;
    type Subscription = Subscription;
    type Session = FsSession;

    const UNREACHABLE_FAILS_AT_ONCE: bool = true;

    fn session(&self, connection: u64, _peer: SocketAddr) -> FsSession {
        FsSession::new(connection)
    }

    fn perform(&mut self, at: Timestamp, step: Step<'_>, wanted: &dyn Fn(&str) -> bool) -> Vec<Event> {
        let at = Timestamp::from_micros(at.as_micros() - at.as_micros().rem_euclid(TICK_MICROS));
        let mut stage = Stage { at, wanted, events: Vec::new() };
        let to = &mut stage;
        match step {
            Step::CallerIn { call, details } => self.caller_in(to, call, details),
            Step::LegOut { call, leg, trunk } => self.leg_out(to, call, leg, trunk),
            Step::NoLeg { call, trunk } => self.no_leg(to, call, trunk),
            Step::Ringing { leg } => self.sign(to, leg, false),
            Step::EarlyMedia { leg } => self.sign(to, leg, true),
            Step::Answered { call, leg, losers } => self.answered(to, call, leg, losers),
            Step::LegFailed { leg, end } => self.leg_failed(to, leg, end),
            Step::CallerCancels { call, legs } => self.caller_cancels(to, call, legs),
            Step::CallerOut { call, last } => self.caller_out(to, call, last),
            Step::Over { call, leg, by } => self.over(to, call, leg, by),
        }
        stage.events
    }

    fn tick(&mut self, at: Timestamp, load: Load, events: &mut Vec<Event>) -> Option<Duration> {
        events.push(self.heartbeat(at, load));
        Some(self.heartbeat)
    }

    fn kind(event: &Event) -> &str {
        event.name
    }

    fn may_hear(subscription: &Subscription, kind: &str) -> bool {
        subscription.names_event(kind)
    }

    fn encode(event: &Event, subscription: &Subscription) -> Option<Bytes> {
        subscription.wants(event).then(|| if subscription.json { event.json() } else { event.plain() }.into())
    }

    fn listens(subscription: &Subscription) -> bool {
        subscription.listening
    }

    fn order(variables: &BTreeMap<String, String>, prefix: &str, map: &str) -> Vec<String> {
        // A dialplan that is built from the slots: an empty one fails at once and the next is tried.
        (1..=32)
            .filter_map(|slot| variables.get(&format!("{prefix}route_{map}_{slot}")))
            .filter(|name| !name.is_empty())
            .cloned()
            .collect()
    }

    fn leg_id(&self, leg: LegNo) -> String {
        self.legs.get(&leg).map(|leg| leg.uuid.clone()).unwrap_or_default()
    }

    fn active_legs(&self) -> usize {
        self.legs.len()
    }

    fn huge_frame(bytes: u64) -> Vec<u8> {
        format!("Content-Length: {bytes}\nContent-Type: text/event-plain\n\n").into_bytes()
    }

    fn farewell(&mut self, _at: Timestamp) -> Vec<Event> {
        // `fsctl shutdown now` says nothing at all.
        Vec::new()
    }

    fn restart(&mut self, at: Timestamp) {
        self.core = new_uuid(&mut self.ids);
        (self.started, self.sequence, self.sessions) = (at, 0, Sessions::default());
        self.channels.clear();
        self.callers.clear();
        self.legs.clear();
    }
}
