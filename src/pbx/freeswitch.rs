//! FreeSWITCH's channel events, made of ESL events.
//!
//! FreeSWITCH repeats all it knows of a leg in every event, so an [`FsEvent`] is a statement about the whole leg and
//! not about a step: whoever follows legs may see them in any order and may miss any but the last. Its times are the
//! PBX's own, in microseconds since the epoch; zero stands for "never" and becomes `None` here.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;

use crate::ids::LegId;
use crate::pbx::event::{Heartbeat, ListedLeg, PbxEvent, Snapshot};
use crate::time::Timestamp;
use crate::wire::esl::{BadEvent, EslEvent, EslFrame};

/// A FreeSWITCH channel event, or the description of a leg. Only what the tracking of attempts needs.
#[derive(Clone, Debug, PartialEq)]
pub struct FsEvent {
    /// What happened.
    pub kind: FsKind,
    /// The leg (Unique-ID).
    pub leg: LegId,
    /// Whether FreeSWITCH dialled this leg (Call-Direction); `None` where the event does not say.
    pub outbound: Option<bool>,
    /// The gateway that it was sent to (`variable_sip_gateway_name`): only legs to a gateway have one.
    pub gateway: Option<Arc<str>>,
    /// The leg that the call comes from (Other-Leg-Unique-ID of a leg whose Other-Type is originator).
    pub caller: Option<LegId>,
    /// The number dialled.
    pub number: Option<Arc<str>>,
    /// The dialplan's word on the route map (`variable_pm_map`).
    pub map: Option<Arc<str>>,
    /// When the event was made.
    pub at: Option<Timestamp>,
    /// When the leg was created.
    pub created: Option<Timestamp>,
    /// First 180 (or another sign of ringing).
    pub progress: Option<Timestamp>,
    /// First 183 with media.
    pub early_media: Option<Timestamp>,
    /// Answered.
    pub answered: Option<Timestamp>,
    /// Hung up.
    pub hung_up: Option<Timestamp>,
    /// Seconds between the creation and the INVITE (`leg_delay_start`).
    pub delay_sec: u32,
    /// The Q.850 cause as given (`variable_hangup_cause_q850`).
    pub cause: Option<u16>,
    /// The cause by name.
    pub cause_name: Option<FsCause>,
    /// Who ended it, in terms of SIP (`variable_sip_hangup_disposition`).
    pub disposition: Option<Disposition>,
    /// The final SIP status of the INVITE. The vendor's only with [`Disposition::RecvRefuse`]; FreeSWITCH sets it
    /// itself when it cancels.
    pub sip_status: Option<u16>,
    /// Whether the leg was brought back from before a crash (`variable_recovered`).
    pub recovered: bool,
}

/// What a [`FsEvent`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsKind {
    /// CHANNEL_CREATE or CHANNEL_ORIGINATE.
    Created,
    /// CHANNEL_PROGRESS, CHANNEL_PROGRESS_MEDIA, CHANNEL_ANSWER or CHANNEL_CALLSTATE: their times say which.
    Progressed,
    /// CHANNEL_HANGUP: it is over, but the times and the disposition are not complete yet.
    HungUp,
    /// CHANNEL_HANGUP_COMPLETE: it is over, and this is all about it.
    Completed,
    /// CHANNEL_DESTROY: its session is gone; repeats all that HANGUP_COMPLETE said.
    Destroyed,
    /// CHANNEL_UUID: the leg was called this before.
    Renamed(LegId),
    /// Not an event: the answer to a question about this leg.
    Described,
}

/// The causes by name that say more than their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsCause {
    /// LOSE_RACE, PICKED_OFF: another leg got the call.
    Race,
    /// NO_ANSWER, ALLOTTED_TIMEOUT, PROGRESS_TIMEOUT and the like: FreeSWITCH stopped waiting, if it was FreeSWITCH
    /// that ended the leg. With the Q.850 number of the name.
    Timeout(u16),
    /// Any other name that has a Q.850 number.
    Number(u16),
    /// A name of FreeSWITCH's own (ORIGINATOR_CANCEL, MANAGER_REQUEST, …).
    Own,
}

impl FsCause {
    fn parse(name: &[u8]) -> Self {
        match name {
            b"LOSE_RACE" | b"PICKED_OFF" => Self::Race,
            b"ALLOTTED_TIMEOUT" | b"PROGRESS_TIMEOUT" | b"MEDIA_TIMEOUT" => Self::Timeout(16),
            b"NO_ANSWER" => Self::Timeout(19),
            b"NO_USER_RESPONSE" => Self::Timeout(18),
            b"RECOVERY_ON_TIMER_EXPIRE" => Self::Timeout(102),
            _ => CAUSES.iter().find(|(known, _)| known.as_bytes() == name).map_or(Self::Own, |(_, n)| Self::Number(*n)),
        }
    }

    /// Its Q.850 number, where it has one.
    #[must_use]
    pub fn number(self) -> Option<u16> {
        match self {
            Self::Timeout(number) | Self::Number(number) => Some(number),
            Self::Race | Self::Own => None,
        }
    }
}

/// Q.850's causes under FreeSWITCH's names.
const CAUSES: &[(&str, u16)] = &[
    ("UNALLOCATED_NUMBER", 1),
    ("NO_ROUTE_TRANSIT_NET", 2),
    ("NO_ROUTE_DESTINATION", 3),
    ("CHANNEL_UNACCEPTABLE", 6),
    ("CALL_AWARDED_DELIVERED", 7),
    ("NORMAL_CLEARING", 16),
    ("USER_BUSY", 17),
    ("SUBSCRIBER_ABSENT", 20),
    ("CALL_REJECTED", 21),
    ("NUMBER_CHANGED", 22),
    ("REDIRECTION_TO_NEW_DESTINATION", 23),
    ("EXCHANGE_ROUTING_ERROR", 25),
    ("DESTINATION_OUT_OF_ORDER", 27),
    ("INVALID_NUMBER_FORMAT", 28),
    ("FACILITY_REJECTED", 29),
    ("RESPONSE_TO_STATUS_ENQUIRY", 30),
    ("NORMAL_UNSPECIFIED", 31),
    ("NORMAL_CIRCUIT_CONGESTION", 34),
    ("NETWORK_OUT_OF_ORDER", 38),
    ("NORMAL_TEMPORARY_FAILURE", 41),
    ("SWITCH_CONGESTION", 42),
    ("ACCESS_INFO_DISCARDED", 43),
    ("REQUESTED_CHAN_UNAVAIL", 44),
    ("PRE_EMPTED", 45),
    ("FACILITY_NOT_SUBSCRIBED", 50),
    ("OUTGOING_CALL_BARRED", 52),
    ("INCOMING_CALL_BARRED", 54),
    ("BEARERCAPABILITY_NOTAUTH", 57),
    ("BEARERCAPABILITY_NOTAVAIL", 58),
    ("SERVICE_UNAVAILABLE", 63),
    ("BEARERCAPABILITY_NOTIMPL", 65),
    ("CHAN_NOT_IMPLEMENTED", 66),
    ("FACILITY_NOT_IMPLEMENTED", 69),
    ("SERVICE_NOT_IMPLEMENTED", 79),
    ("INVALID_CALL_REFERENCE", 81),
    ("INCOMPATIBLE_DESTINATION", 88),
    ("INVALID_MSG_UNSPECIFIED", 95),
    ("MANDATORY_IE_MISSING", 96),
    ("MESSAGE_TYPE_NONEXIST", 97),
    ("WRONG_MESSAGE", 98),
    ("IE_NONEXIST", 99),
    ("INVALID_IE_CONTENTS", 100),
    ("WRONG_CALL_STATE", 101),
    ("MANDATORY_IE_LENGTH_ERROR", 103),
    ("PROTOCOL_ERROR", 111),
    ("INTERWORKING", 127),
];

/// Who ended a leg, in terms of SIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The vendor refused the INVITE (or FreeSWITCH made up the refusal: nobody listens, no answer for 32 s).
    RecvRefuse,
    /// FreeSWITCH cancelled the INVITE.
    SendCancel,
    /// One of the two hung up after a 200.
    Bye,
    /// Anything else.
    Other,
}

impl Disposition {
    fn parse(text: &[u8]) -> Self {
        match text {
            b"recv_refuse" => Self::RecvRefuse,
            b"send_cancel" => Self::SendCancel,
            b"send_bye" | b"recv_bye" => Self::Bye,
            _ => Self::Other,
        }
    }
}

/// Turns the frames of one link into events: notices a restarted FreeSWITCH and, if wanted, lost events.
#[derive(Debug, Default)]
pub struct FsMapper {
    core: Option<Arc<str>>,
    losses: Option<LossDetector>,
}

impl FsMapper {
    /// For a new link. Lost events can be noticed only where the end of every session is subscribed, in one form.
    #[must_use]
    pub fn new(detect_losses: bool) -> Self {
        Self { core: None, losses: detect_losses.then(LossDetector::default) }
    }

    /// What a frame says; nothing where it is a reply or an event of no interest.
    pub fn frame(&mut self, frame: &EslFrame) -> Vec<PbxEvent> {
        match frame.event() {
            None => Vec::new(),
            Some(Ok(event)) => self.event(&event),
            Some(Err(_)) => vec![PbxEvent::Lost(1)],
        }
    }

    /// What an event says.
    pub fn event(&mut self, event: &EslEvent) -> Vec<PbxEvent> {
        let mut events = Vec::new();
        events.extend(self.incarnation(event));
        match &*event.name() {
            b"HEARTBEAT" => {
                let heartbeat = heartbeat(event);
                let lost = self.losses.as_mut().map_or(0, |losses| losses.heartbeat(&heartbeat));
                events.extend((lost > 0).then_some(PbxEvent::Lost(lost)));
                events.push(PbxEvent::Heartbeat(heartbeat));
            }
            name => {
                if is_end_of_session(name, event)
                    && let Some(losses) = &mut self.losses
                {
                    losses.destroyed();
                }
                match kind(name, event).map(|kind| channel_event(kind, event)) {
                    None => {}
                    // A channel event that names no channel.
                    Some(None) => events.push(PbxEvent::Lost(1)),
                    // Legs that came in are no attempts, and most legs came in.
                    Some(Some(channel)) if channel.outbound == Some(false) => {}
                    Some(Some(channel)) => events.push(PbxEvent::FreeSwitch(Box::new(channel))),
                }
            }
        }
        events
    }

    fn incarnation(&mut self, event: &EslEvent) -> Option<PbxEvent> {
        let core = event.text("Core-UUID")?;
        if self.core.as_deref() == Some(&*core) {
            return None;
        }
        let core: Arc<str> = core.into();
        if self.core.replace(core.clone()).is_some()
            && let Some(losses) = &mut self.losses
        {
            *losses = LossDetector::default();
        }
        Some(PbxEvent::Incarnation(core))
    }
}

/// The end of a session in one of its two forms; a link subscribes one of them.
fn is_end_of_session(name: &[u8], event: &EslEvent) -> bool {
    let destroyed = || event.get("Channel-State").is_some_and(|state| &*state == b"CS_DESTROY");
    name == b"CHANNEL_DESTROY" || (name == b"CHANNEL_STATE" && destroyed())
}

fn kind(name: &[u8], event: &EslEvent) -> Option<FsKind> {
    Some(match name {
        b"CHANNEL_CREATE" | b"CHANNEL_ORIGINATE" => FsKind::Created,
        b"CHANNEL_PROGRESS" | b"CHANNEL_PROGRESS_MEDIA" | b"CHANNEL_ANSWER" | b"CHANNEL_CALLSTATE" => {
            FsKind::Progressed
        }
        b"CHANNEL_HANGUP" => FsKind::HungUp,
        b"CHANNEL_HANGUP_COMPLETE" => FsKind::Completed,
        b"CHANNEL_DESTROY" => FsKind::Destroyed,
        b"CHANNEL_UUID" => FsKind::Renamed(LegId::new(&event.text("Old-Unique-ID")?)),
        _ => return None,
    })
}

/// The answer to `uuid_dump <uuid> json` as an event. `None` where it describes no leg.
///
/// # Errors
/// [`BadEvent`] where it is not JSON.
pub fn described(answer: &[u8]) -> Result<Option<PbxEvent>, BadEvent> {
    let event = EslEvent::description(answer)?;
    Ok(channel_event(FsKind::Described, &event).map(|event| PbxEvent::FreeSwitch(Box::new(event))))
}

fn channel_event(kind: FsKind, event: &EslEvent) -> Option<FsEvent> {
    let mut leg = None;
    let mut built = FsEvent {
        kind,
        leg: LegId::new(""),
        outbound: None,
        gateway: None,
        caller: None,
        number: None,
        map: None,
        at: None,
        created: None,
        progress: None,
        early_media: None,
        answered: None,
        hung_up: None,
        delay_sec: 0,
        cause: None,
        cause_name: None,
        disposition: None,
        sip_status: None,
        recovered: false,
    };
    let mut refused_with = None;
    let (mut from_caller, mut other) = (false, None);
    for (name, value) in event.fields() {
        let value = || event.first(value);
        match name {
            b"Unique-ID" => leg = leg.or_else(|| Some(LegId::new(&text(value())?))),
            b"Call-Direction" => built.outbound = built.outbound.or(Some(&*value() == b"outbound")),
            b"Event-Date-Timestamp" => built.at = built.at.or(time(&value())),
            b"Caller-Destination-Number" => built.number = built.number.or_else(|| text(value())),
            b"Caller-Channel-Created-Time" => built.created = built.created.or(time(&value())),
            b"Caller-Channel-Progress-Time" => built.progress = built.progress.or(time(&value())),
            b"Caller-Channel-Progress-Media-Time" => built.early_media = built.early_media.or(time(&value())),
            b"Caller-Channel-Answered-Time" => built.answered = built.answered.or(time(&value())),
            b"Caller-Channel-Hangup-Time" => built.hung_up = built.hung_up.or(time(&value())),
            b"Hangup-Cause" => built.cause_name = built.cause_name.or_else(|| Some(FsCause::parse(&value()))),
            b"Other-Type" => from_caller = &*value() == b"originator",
            b"Other-Leg-Unique-ID" => other = other.or_else(|| text(value())),
            b"variable_sip_gateway_name" => built.gateway = built.gateway.or_else(|| text(value())),
            b"variable_pm_map" => built.map = built.map.or_else(|| text(value())),
            b"variable_leg_delay_start" => built.delay_sec = number(&value()).unwrap_or(0),
            b"variable_hangup_cause_q850" => built.cause = built.cause.or(number(&value())),
            b"variable_sip_hangup_disposition" => {
                built.disposition = built.disposition.or_else(|| Some(Disposition::parse(&value())));
            }
            b"variable_sip_term_status" => built.sip_status = built.sip_status.or(number(&value())),
            b"variable_sip_invite_failure_status" => refused_with = refused_with.or(number(&value())),
            b"variable_recovered" => built.recovered = &*value() == b"true",
            _ => {}
        }
    }
    built.sip_status = built.sip_status.or(refused_with);
    built.caller = other.filter(|_| from_caller).map(|other| LegId::new(&other));
    built.leg = leg?;
    Some(built)
}

/// A value as text; nothing where it is empty or FreeSWITCH's word for that.
fn text(value: Cow<'_, [u8]>) -> Option<Arc<str>> {
    let text = crate::wire::esl::lossy(value);
    (!text.is_empty() && text != "_undef_").then(|| text.into())
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Microseconds since the epoch; zero, and nonsense, is never.
fn time(value: &[u8]) -> Option<Timestamp> {
    number::<i64>(value).filter(|&micros| micros > 0).map(Timestamp::from_micros)
}

fn heartbeat(event: &EslEvent) -> Heartbeat {
    let whole = |name| event.get(name).and_then(|value| number::<u64>(&value));
    Heartbeat {
        session_count: whole("Session-Count"),
        sessions_since_startup: whole("Session-Since-Startup"),
        max_sessions: whole("Max-Sessions"),
        sessions_per_sec: whole("Session-Per-Sec-Last"),
        idle_cpu_percent: event.get("Idle-CPU").and_then(|value| number(&value)).filter(|p| (0.0..=100.0).contains(p)),
        uptime_ms: whole("Uptime-msec"),
    }
}

/// Notices lost events between two heartbeats.
///
/// Every session that was created ends exactly once (CHANNEL_DESTROY, or CHANNEL_STATE to CS_DESTROY), so the sessions that ended according to two
/// heartbeats (`Session-Since-Startup` minus `Session-Count`, the difference) must have been seen ending. Some may be
/// on their way when a heartbeat is made, so only what is still missing at the next one is lost. Gaps in
/// `Event-Sequence` prove nothing: it counts events that nobody subscribed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossDetector {
    /// Sessions ended, by the last heartbeat.
    ended: Option<u64>,
    /// Sessions that ended by the heartbeats, less those seen ending.
    missing: i64,
    /// What was missing at the heartbeat before.
    missing_before: i64,
}

impl LossDetector {
    /// The end of a session came, of whatever leg.
    pub fn destroyed(&mut self) {
        // Before the first heartbeat there is nothing to compare with.
        if self.ended.is_some() {
            self.missing -= 1;
        }
    }

    /// A heartbeat came: how many ends are lost for certain. Each is reported once.
    pub fn heartbeat(&mut self, heartbeat: &Heartbeat) -> u64 {
        let (Some(started), Some(up)) = (heartbeat.sessions_since_startup, heartbeat.session_count) else { return 0 };
        let ended = started.saturating_sub(up);
        let since = match self.ended.replace(ended) {
            Some(before) if ended >= before => i64::try_from(ended - before).unwrap_or(0),
            // The first one, or a FreeSWITCH that began anew.
            _ => {
                (self.missing, self.missing_before) = (0, 0);
                return 0;
            }
        };
        self.missing += since;
        let lost = self.missing.min(self.missing_before).max(0);
        // Ends of before the first heartbeat that came after it must not hide as many losses for ever.
        let early = self.missing.max(self.missing_before).min(0);
        self.missing -= lost + early;
        self.missing_before = self.missing;
        lost.unsigned_abs()
    }
}

#[derive(Deserialize)]
struct Channels {
    row_count: usize,
    #[serde(default)]
    rows: Vec<Row>,
}

/// A row of the list of channels. All of these columns are always there, which tells it from lists of other things.
#[derive(Deserialize)]
struct Row {
    uuid: String,
    direction: String,
    name: String,
    callstate: String,
}

/// The answer to `show channels as json`.
///
/// # Errors
/// [`BadEvent::Json`] where it is not such an answer (a list of something else, a part of a list, an error text). It must
/// not be taken for an empty list then.
pub fn snapshot(answer: &[u8]) -> Result<Snapshot, BadEvent> {
    let text = String::from_utf8_lossy(answer);
    let list: Channels = serde_json::from_str(text.trim()).map_err(|error| BadEvent::Json(error.to_string()))?;
    if list.row_count != list.rows.len() {
        return Err(BadEvent::Json(format!("{} channels announced, {} listed", list.row_count, list.rows.len())));
    }
    let legs = list.rows.into_iter().map(|row| ListedLeg {
        leg: LegId::new(&row.uuid),
        outbound: match row.direction.as_str() {
            "outbound" => Some(true),
            "inbound" => Some(false),
            _ => None,
        },
        channel: row.name.into(),
        trunk: None,
        answered: matches!(row.callstate.as_str(), "ACTIVE" | "HELD" | "UNHELD"),
        age_sec: None,
    });
    Ok(Snapshot { legs: legs.collect() })
}
