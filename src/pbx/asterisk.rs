//! Asterisk's channel events, made of AMI messages.
//!
//! Values that come from callers may hold anything, line ends included, and Asterisk does not escape all of them. So
//! no header is believed by its name alone: what is told about a channel stands in a block of fourteen headers with a
//! fixed order (the *snapshot* of the channel), and a message whose blocks are not complete and in order is damaged.
//! Nothing is concluded from a damaged message but that it was there ([`PbxEvent::Lost`]).

use std::sync::Arc;

use bytes::Bytes;

use crate::ids::LegId;
use crate::pbx::event::{ListedLeg, PbxEvent, Snapshot};
use crate::time::Timestamp;
use crate::wire::ami::{AmiKind, AmiMessage};

/// The channel variable by which a dialplan tells the route map. It is seen where manager.conf says
/// `channelvars = pm_map`.
const MAP_VARIABLE: &[u8] = b"pm_map=";

/// An Asterisk event about a leg that may be a trunk's.
#[derive(Clone, Debug, PartialEq)]
pub struct AstEvent {
    /// When it was sent, by Asterisk's clock (`timestampevents = yes`).
    pub at: Option<Timestamp>,
    /// How many messages after a damaged one this one came; 1 is the next, 255 is none lately.
    pub since_damage: u8,
    /// What happened.
    pub change: AstChange,
}

/// What a [`AstEvent`] reports.
#[derive(Clone, Debug, PartialEq)]
pub enum AstChange {
    /// Newchannel: the leg exists.
    Created(AstLeg),
    /// Newstate, BridgeEnter, BridgeLeave: the leg is there, in this state.
    State(AstLeg),
    /// DialBegin: the leg was dialled.
    DialBegin {
        /// The leg that the call comes from; none for an originated call.
        caller: Option<LegId>,
        /// The leg dialled.
        dest: AstLeg,
        /// The number, as far as the dial string tells.
        number: Option<Arc<str>>,
    },
    /// DialState: a sign of the far end.
    DialState {
        /// The leg dialled.
        dest: AstLeg,
        /// RINGING or PROGRESS; `false` for PROCEEDING, which is no sign of ringing.
        rings: bool,
    },
    /// DialEnd: the dialling of this leg is over.
    DialEnd {
        /// The leg dialled.
        dest: AstLeg,
        /// How it ended.
        status: DialStatus,
        /// Whether it was forwarded to somebody else.
        forwarded: bool,
    },
    /// HangupRequest: the far end asks for the end of the leg.
    HangupRequest {
        /// The leg.
        leg: AstLeg,
        /// The cause, where it is given.
        cause: Option<u16>,
        /// The SIP status, where it is given.
        tech_cause: Option<u16>,
    },
    /// SoftHangupRequest: our side asks for the end of the leg.
    SoftHangupRequest(AstLeg),
    /// Pickup: somebody else took this ringing leg's call.
    PickedUp(AstLeg),
    /// Hangup: the leg is gone.
    Hangup {
        /// The leg.
        leg: AstLeg,
        /// The cause; 0 is a cause too.
        cause: u16,
        /// Whether the message begins as Asterisk's do; otherwise see [`is_doubtful`].
        usual: bool,
    },
    /// The remains of a damaged message: neither an event nor a response. What came right before may have been in the
    /// middle of it.
    Remains,
    /// Rename: the leg's channel has another name now.
    Renamed {
        /// The leg.
        leg: LegId,
        /// The new name.
        channel: Arc<str>,
    },
}

/// What a snapshot tells about a leg.
#[derive(Clone, Debug, PartialEq)]
pub struct AstLeg {
    /// The leg (Uniqueid).
    pub leg: LegId,
    /// The channel's name, without the marks of a masquerade.
    pub channel: Arc<str>,
    /// The endpoint or peer by the channel's name.
    pub trunk: Arc<str>,
    /// Its state: 0 down, 4 an incoming call that rings, 5 ringing at the far end, 6 up.
    pub state: u8,
    /// The dialplan's word on the route map.
    pub map: Option<Arc<str>>,
}

/// ChannelState of a leg that exists and does nothing yet.
pub const STATE_DOWN: u8 = 0;
/// ChannelState of a leg whose line is reserved (DAHDI).
pub const STATE_RESERVED: u8 = 1;
/// ChannelState of a leg that is being dialled.
pub const STATE_DIALING: u8 = 3;
/// ChannelState of a leg that came in and rings here.
pub const STATE_RING: u8 = 4;
/// ChannelState of a leg at whose far end it rings.
pub const STATE_RINGING: u8 = 5;
/// ChannelState of an answered leg.
pub const STATE_UP: u8 = 6;

/// How dialling a leg ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialStatus {
    /// It was answered.
    Answer,
    /// The far end is busy.
    Busy,
    /// The far end refused for want of resources.
    Congestion,
    /// Our side gave up: the caller, or another leg won.
    Cancel,
    /// Time ran out, or any refusal that is none of the above.
    NoAnswer,
    /// CHANUNAVAIL, or the word of a dialplan subroutine.
    Other,
}

/// Turns the messages of one link into events.
#[derive(Debug)]
pub struct AstMapper {
    /// How many whole messages came since the last damaged one; saturates.
    since_damage: u8,
}

impl Default for AstMapper {
    fn default() -> Self {
        Self { since_damage: u8::MAX }
    }
}

impl AstMapper {
    /// What a message says; nothing where it is a response or an event of no interest. For damaged ones see
    /// [`is_damage`].
    pub fn event(&mut self, message: &AmiMessage) -> Option<PbxEvent> {
        self.since_damage = self.since_damage.saturating_add(1);
        let change = match message.kind() {
            AmiKind::Response(_) => None,
            AmiKind::Damaged => {
                self.since_damage = 0;
                Some(AstChange::Remains)
            }
            AmiKind::Event(name) => match change(name, message) {
                Ok(change) => change,
                Err(Damaged) => {
                    self.since_damage = 0;
                    return Some(PbxEvent::Lost(1));
                }
            },
        }?;
        let at = message.header("Timestamp").and_then(time);
        Some(PbxEvent::Asterisk(Box::new(AstEvent { at, since_damage: self.since_damage, change })))
    }
}

/// Whether this stands for a damaged message: it is to be counted, and a list to be asked for.
#[must_use]
pub fn is_damage(event: &PbxEvent) -> bool {
    match event {
        PbxEvent::Lost(_) => true,
        PbxEvent::Asterisk(event) => event.change == AstChange::Remains,
        _ => false,
    }
}

/// Whether an event must not be believed before a list of channels has confirmed it: the end of a leg in a message that
/// does not begin as all that Asterisk sends of itself do, with `Event` and `Privilege`.
#[must_use]
pub fn is_doubtful(event: &PbxEvent) -> bool {
    let PbxEvent::Asterisk(event) = event else { return false };
    matches!(event.change, AstChange::Hangup { usual: false, .. })
}

fn is_usual(message: &AmiMessage) -> bool {
    message.headers.get(1).is_some_and(|(name, _)| name.eq_ignore_ascii_case(b"Privilege"))
}

/// The start of this run of Asterisk, from the answer to `CoreStatus`: Asterisk's local time, as text, the same as long
/// as it runs.
#[must_use]
pub fn incarnation(core_status: &AmiMessage) -> Option<PbxEvent> {
    let date = String::from_utf8_lossy(core_status.header("CoreStartupDate")?);
    let time = String::from_utf8_lossy(core_status.header("CoreStartupTime")?);
    Some(PbxEvent::Incarnation(format!("{date} {time}").into()))
}

/// The message is not what Asterisk sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a damaged message")]
pub struct Damaged;

fn change(name: &[u8], message: &AmiMessage) -> Result<Option<AstChange>, Damaged> {
    let blocks = blocks(message)?;
    let leg = |prefix: &str| find(&blocks, prefix).map(|block| block.leg()).ok_or(Damaged);
    let known = |change: AstChange| Ok(Some(change));
    match name {
        b"Newchannel" => {
            let new = leg("")?.map(AstChange::Created);
            // A stand-in for a channel that is being taken over belongs to a leg that was there before.
            Ok(new.filter(|_| !message.header("Channel").is_some_and(is_stand_in)))
        }
        b"Newstate" | b"BridgeEnter" | b"BridgeLeave" => leg("")?.map_or(Ok(None), |leg| known(AstChange::State(leg))),
        b"DialBegin" => Ok(leg("Dest")?.map(|dest| dial_begin(message, &blocks, dest))),
        b"DialState" => {
            let status = message.header("DialStatus").ok_or(Damaged)?;
            let rings = matches!(status, b"RINGING" | b"PROGRESS");
            Ok(leg("Dest")?.map(|dest| AstChange::DialState { dest, rings }))
        }
        b"DialEnd" => {
            let status = DialStatus::parse(message.header("DialStatus").ok_or(Damaged)?);
            let forwarded = message.header("Forward").is_some();
            Ok(leg("Dest")?.map(|dest| AstChange::DialEnd { dest, status, forwarded }))
        }
        b"HangupRequest" => {
            let (cause, tech_cause) = (number(message, "Cause"), number(message, "TechCause"));
            Ok(leg("")?.map(|leg| AstChange::HangupRequest { leg, cause, tech_cause }))
        }
        b"SoftHangupRequest" => Ok(leg("")?.map(AstChange::SoftHangupRequest)),
        b"Hangup" => {
            let cause = number(message, "Cause").ok_or(Damaged)?;
            Ok(leg("")?.map(|leg| AstChange::Hangup { leg, cause, usual: is_usual(message) }))
        }
        b"Pickup" => Ok(leg("Target")?.map(AstChange::PickedUp)),
        b"Rename" => {
            let leg = LegId::new(&text(message.header("Uniqueid").ok_or(Damaged)?));
            let channel = message.header("Newname").ok_or(Damaged)?;
            known(AstChange::Renamed { leg, channel: text(bare_channel(channel)) })
        }
        _ => Ok(None),
    }
}

fn dial_begin(message: &AmiMessage, blocks: &[Block<'_>], mut dest: AstLeg) -> AstChange {
    let caller = find(blocks, "");
    if dest.map.is_none() {
        dest.map = caller.and_then(Block::map);
    }
    let number = message.header("DialString").and_then(|dialled| dialled_number(dialled, dest.trunk.as_bytes()));
    AstChange::DialBegin { caller: caller.map(|block| LegId::new(&text(block.uniqueid()))), dest, number }
}

impl DialStatus {
    fn parse(word: &[u8]) -> Self {
        match word {
            b"ANSWER" => Self::Answer,
            b"BUSY" => Self::Busy,
            b"CONGESTION" => Self::Congestion,
            b"CANCEL" => Self::Cancel,
            b"NOANSWER" => Self::NoAnswer,
            _ => Self::Other,
        }
    }
}

/// The headers of a channel's snapshot, in the order in which every Asterisk since version 12 sends them. In some events
/// each name has a prefix (`DestChannel`, …).
const SNAPSHOT: [&str; 14] = [
    "Channel",
    "ChannelState",
    "ChannelStateDesc",
    "CallerIDNum",
    "CallerIDName",
    "ConnectedLineNum",
    "ConnectedLineName",
    "Language",
    "AccountCode",
    "Context",
    "Exten",
    "Priority",
    "Uniqueid",
    "Linkedid",
];
const STATE: usize = 1;
const UNIQUEID: usize = 12;

/// A complete snapshot within a message.
#[derive(Clone, Copy, Debug)]
struct Block<'a> {
    prefix: &'a [u8],
    headers: &'a [(Bytes, Bytes)],
    /// What follows it: its channel variables, then what the event adds.
    rest: &'a [(Bytes, Bytes)],
}

/// All snapshots of a message.
fn blocks(message: &AmiMessage) -> Result<Vec<Block<'_>>, Damaged> {
    let mut blocks = Vec::with_capacity(2);
    let mut at = 0;
    while let Some((name, _)) = message.headers.get(at) {
        let Some(prefix) = prefix_of(name, SNAPSHOT[STATE]) else {
            at += 1;
            continue;
        };
        let start = at.checked_sub(STATE).ok_or(Damaged)?;
        let headers = message.headers.get(start..start + SNAPSHOT.len()).ok_or(Damaged)?;
        let in_order =
            headers.iter().zip(SNAPSHOT).all(|((name, _), expected)| prefix_of(name, expected) == Some(prefix));
        let rest = &message.headers[start + SNAPSHOT.len()..];
        let block = Block { prefix, headers, rest };
        if !in_order || block.state().is_none() || block.uniqueid().is_empty() {
            return Err(Damaged);
        }
        blocks.push(block);
        at = start + SNAPSHOT.len();
    }
    Ok(blocks)
}

/// What stands before `name` in a header's name; `None` where it is another name.
fn prefix_of<'a>(header: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (prefix, rest) = header.split_at_checked(header.len().checked_sub(name.len())?)?;
    rest.eq_ignore_ascii_case(name.as_bytes()).then_some(prefix)
}

fn find<'a, 'b>(blocks: &'b [Block<'a>], prefix: &str) -> Option<&'b Block<'a>> {
    blocks.iter().find(|block| block.prefix == prefix.as_bytes())
}

impl Block<'_> {
    fn channel(&self) -> &[u8] {
        &self.headers[0].1
    }

    fn uniqueid(&self) -> &[u8] {
        &self.headers[UNIQUEID].1
    }

    fn state(&self) -> Option<u8> {
        decimal(&self.headers[STATE].1)
    }

    fn map(&self) -> Option<Arc<str>> {
        let mut own = self.rest.iter().filter(|(name, _)| prefix_of(name, "ChanVariable") == Some(self.prefix));
        let value = own.find_map(|(_, value)| value.strip_prefix(MAP_VARIABLE))?;
        (!value.is_empty()).then(|| text(value))
    }

    /// The leg, unless its channel cannot be a trunk's.
    fn leg(&self) -> Option<AstLeg> {
        let channel = bare_channel(self.channel());
        Some(AstLeg {
            leg: LegId::new(&text(self.uniqueid())),
            channel: text(channel),
            trunk: text(trunk(channel)?),
            state: self.state()?,
            map: self.map(),
        })
    }
}

/// What stands before the name of a channel whose place another one takes.
const WRAPPERS: [&[u8]; 5] = [b"Surrogate/", b"AsyncGoto/", b"Parked/", b"Transfered/", b"Bridge/"];

fn is_stand_in(channel: &[u8]) -> bool {
    WRAPPERS.iter().any(|wrapper| channel.starts_with(wrapper))
}

/// A channel's name without the marks and wrappers of a masquerade.
fn bare_channel(name: &[u8]) -> &[u8] {
    let mut name = name;
    for mark in [&b"<ZOMBIE>"[..], b"<MASQ>"] {
        name = name.strip_suffix(mark).unwrap_or(name);
    }
    for wrapper in WRAPPERS {
        name = name.strip_prefix(wrapper).unwrap_or(name);
    }
    name
}

/// The endpoint or peer that a channel belongs to: what its name says without the technology and the counter at the
/// end. Names may hold the separator themselves, so only the counter's own form is taken off. `None` for channels that
/// are no trunk's (`Local` and the like).
#[must_use]
pub fn trunk(channel: &[u8]) -> Option<&[u8]> {
    let channel = bare_channel(channel);
    let slash = channel.iter().position(|&b| b == b'/')?;
    let (technology, name) = (&channel[..slash], &channel[slash + 1..]);
    let dash = name.iter().rposition(|&b| b == b'-');
    let before = |dash: usize| Some(&name[..dash]).filter(|name| !name.is_empty());
    let counter = |dash: usize| &name[dash + 1..];
    match technology {
        b"PJSIP" | b"SIP" => {
            before(dash.filter(|&at| counter(at).len() == 8 && counter(at).iter().all(u8::is_ascii_hexdigit))?)
        }
        b"IAX2" => before(dash.filter(|&at| !counter(at).is_empty() && counter(at).iter().all(u8::is_ascii_digit))?),
        // DAHDI/<span>/<number>-<sub> or DAHDI/<channel>-<sub>.
        b"DAHDI" => before(name.iter().position(|&b| b == b'/').or(dash)?),
        _ => None,
    }
}

/// The number in a dial string: `number@trunk`, `trunk/number`, with or without the technology, or a SIP address.
fn dialled_number(dialled: &[u8], trunk: &[u8]) -> Option<Arc<str>> {
    let mut rest = dialled;
    for technology in ["PJSIP/", "SIP/", "IAX2/", "DAHDI/"] {
        rest = rest.strip_prefix(technology.as_bytes()).unwrap_or(rest);
    }
    let number = match rest.strip_prefix(trunk).and_then(|rest| rest.strip_prefix(b"/")) {
        Some(number) => number,
        None => rest.strip_suffix(trunk)?.strip_suffix(b"@")?,
    };
    let number = number.strip_prefix(b"sip:").unwrap_or(number);
    let number = number.split(|&b| b == b'@').next().unwrap_or(number);
    (!number.is_empty()).then(|| text(number))
}

fn text(value: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(value).into()
}

fn decimal<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

fn number(message: &AmiMessage, name: &str) -> Option<u16> {
    decimal(message.header(name)?)
}

/// `<seconds>.<microseconds>`, as in `Timestamp:` and in the index of a recording.
#[must_use]
pub fn time(value: &[u8]) -> Option<Timestamp> {
    let value = std::str::from_utf8(value).ok()?.trim();
    let (seconds, fraction) = value.split_once('.').unwrap_or((value, ""));
    let seconds: i64 = seconds.parse().ok().filter(|&seconds| seconds >= 0)?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let micros: i64 = format!("{fraction:0<6.6}").parse().ok()?;
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(micros)?))
}

/// Gathers the answer to `CoreShowChannels`, row by row.
#[derive(Debug, Default)]
pub struct ChannelList {
    legs: Vec<ListedLeg>,
    rows: usize,
}

impl ChannelList {
    /// Takes a message that has the ActionID of the list, or in a recorded stream any message. The list, once its end
    /// has come and all of it is there; a list with a damaged or missing row says nothing and is given up.
    ///
    /// # Errors
    /// [`Damaged`] where the list cannot be believed.
    pub fn message(&mut self, message: &AmiMessage) -> Result<Option<Snapshot>, Damaged> {
        match message.kind() {
            AmiKind::Event(b"CoreShowChannel") => {
                self.rows += 1;
                self.legs.push(listed(message)?);
                Ok(None)
            }
            AmiKind::Event(b"CoreShowChannelsComplete") => {
                let Self { legs, rows } = std::mem::take(self);
                let told: Option<usize> = message.header("ListItems").and_then(decimal);
                if legs.len() != rows || told.is_some_and(|told| told != rows) {
                    return Err(Damaged);
                }
                Ok(Some(Snapshot { legs }))
            }
            _ => Ok(None),
        }
    }
}

fn listed(row: &AmiMessage) -> Result<ListedLeg, Damaged> {
    let blocks = blocks(row)?;
    let block = find(&blocks, "").ok_or(Damaged)?;
    let channel = bare_channel(block.channel());
    // An outgoing leg runs no dialplan of its own; Dial, Queue and their kind leave this note on it.
    let dialled = row.header("ApplicationData") == Some(b"(Outgoing Line)");
    Ok(ListedLeg {
        leg: LegId::new(&text(block.uniqueid())),
        outbound: dialled.then_some(true),
        channel: text(channel),
        trunk: trunk(channel).map(text),
        answered: block.state() == Some(STATE_UP),
        age_sec: row.header("Duration").and_then(clock),
    })
}

/// `hh:mm:ss` in seconds.
fn clock(value: &[u8]) -> Option<u64> {
    let mut parts = value.split(|&b| b == b':').map(decimal::<u64>);
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)
}
