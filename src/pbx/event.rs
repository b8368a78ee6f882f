//! What a PBX told us, freed of its protocol: the only vocabulary that the call tracking, the engine and everything
//! after them know of a PBX.
//!
//! Channel events keep the shape of the PBX that sent them ([`FsEvent`], [`AstEvent`]), because the two say different
//! things about a leg: FreeSWITCH repeats everything it knows in every event, Asterisk reports one fact at a time. The
//! trackers in [`crate::call`] make the same attempts of both.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::LegId;
pub use crate::pbx::asterisk::AstEvent;
pub use crate::pbx::freeswitch::FsEvent;

/// One thing that a PBX, or the link to it, told us.
#[derive(Clone, Debug, PartialEq)]
pub enum PbxEvent {
    /// Logged in and subscribed: events flow from here on. A [`PbxEvent::Snapshot`] follows.
    Linked,
    /// The link is gone; what happens on the PBX until the next [`PbxEvent::Linked`] is not seen.
    Unlinked,
    /// Which run of the PBX is speaking (FreeSWITCH: Core-UUID; Asterisk: its start time). When it differs from the
    /// one before, the PBX was restarted: its calls and variables are gone.
    Incarnation(Arc<str>),
    /// A FreeSWITCH channel event, or the answer to a question about one leg.
    FreeSwitch(Box<FsEvent>),
    /// An Asterisk channel event.
    Asterisk(Box<AstEvent>),
    /// FreeSWITCH's own figures.
    Heartbeat(Heartbeat),
    /// What the PBX says of itself every few seconds.
    Vitals(Vitals),
    /// The PBX has not answered a keepalive request by the time of the next.
    Silent,
    /// The legs that are up now.
    Snapshot(Snapshot),
    /// Answer to a question about one leg: the PBX does not know it (any more).
    LegGone(LegId),
    /// Events were lost or damaged on this link, this many at least; a [`PbxEvent::Snapshot`] will follow. Until then
    /// no end of a leg is believed on Asterisk, where a damaged message may be a forged one.
    Lost(u64),
}

/// FreeSWITCH's HEARTBEAT.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Heartbeat {
    /// Channels that are up (both legs of a call count).
    pub session_count: Option<u64>,
    /// Channels since the start.
    pub sessions_since_startup: Option<u64>,
    /// Most channels allowed.
    pub max_sessions: Option<u64>,
    /// Channels begun in the last full second.
    pub sessions_per_sec: Option<u64>,
    /// Idle CPU of the whole machine, in percent, mean of half a minute.
    pub idle_cpu_percent: Option<f64>,
    /// Time since the start, in milliseconds.
    pub uptime_ms: Option<u64>,
}

/// How a PBX is, asked every few seconds. What it does not say is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Vitals {
    /// How long its answer to a keepalive request took, in real time, where this is one.
    pub took: Option<Duration>,
    /// Whether it takes calls (FreeSWITCH): not while it is paused or shutting down.
    pub ready: Option<bool>,
    /// Idle CPU of its machine, in percent (FreeSWITCH).
    pub idle_cpu: Option<f64>,
    /// Load average of its machine over a minute (Asterisk).
    pub load_avg: Option<f64>,
}

/// The legs that a PBX listed as being up.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Snapshot {
    /// All legs listed, of both directions.
    pub legs: Vec<ListedLeg>,
}

/// One row of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq)]
pub struct ListedLeg {
    /// The leg.
    pub leg: LegId,
    /// Whether the PBX dialled this leg; `None` where the list does not tell.
    pub outbound: Option<bool>,
    /// The channel's name.
    pub channel: Arc<str>,
    /// What the PBX calls the connection, where the channel's name tells (Asterisk).
    pub trunk: Option<Arc<str>>,
    /// Whether it is answered.
    pub answered: bool,
    /// How long it has been up, in seconds, where the list tells.
    pub age_sec: Option<u64>,
}
