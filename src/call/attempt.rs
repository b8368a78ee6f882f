//! What a tracker tells about the legs of its node.

use std::sync::Arc;

use crate::call::outcome::Evidence;
use crate::ids::LegId;
use crate::time::Timestamp;

/// What the PBX calls a connection: FreeSWITCH's gateway name, Asterisk's endpoint or peer.
pub type TrunkName = Arc<str>;

/// A change in the life of an outbound leg.
#[derive(Clone, Debug, PartialEq)]
pub enum CallEvent {
    /// A leg was sent to a trunk. Comes exactly once for each leg that is later [`CallEvent::Finished`], and before it.
    Placed(Placed),
    /// The far end rang (180 or 183), for the first time. Not every PBX is asked to say so before the end.
    Ringing {
        /// The leg.
        leg: LegId,
        /// When, by the PBX's clock.
        at: Timestamp,
    },
    /// The far end answered.
    Answered {
        /// The leg.
        leg: LegId,
        /// When, by the PBX's clock.
        at: Timestamp,
    },
    /// The leg is over, or is taken to be.
    Finished(Box<Finished>),
    /// The leg left the count of active calls without being an attempt (it was up before the link, and its end does
    /// not say enough).
    Forgotten(LegId),
}

/// A leg that was sent to a trunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The leg.
    pub leg: LegId,
    /// What the PBX calls the connection.
    pub trunk: TrunkName,
    /// The leg that the call comes from, where the PBX tells: all legs of one hunt have the same.
    pub caller: Option<LegId>,
    /// The number dialled on that leg, as the PBX gives it; text from callers, may hold anything.
    pub number: Option<Arc<str>>,
    /// The dialplan's word on the route map (`pm_map`).
    pub map: Option<Arc<str>>,
    /// When, by the PBX's clock.
    pub at: Timestamp,
    /// Whether the leg was up before we could see it (found in a snapshot, or known only by its end).
    pub adopted: bool,
}

/// A leg that is over, with what is needed to judge it.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The leg.
    pub leg: LegId,
    /// What the PBX calls the connection.
    pub trunk: TrunkName,
    /// The number dialled on that leg.
    pub number: Option<Arc<str>>,
    /// The dialplan's word on the route map.
    pub map: Option<Arc<str>>,
    /// Sent to the trunk, by the PBX's clock like all that follow.
    pub placed_at: Timestamp,
    /// First 180 or 183.
    pub ringing_at: Option<Timestamp>,
    /// Answered.
    pub answered_at: Option<Timestamp>,
    /// Over.
    pub ended_at: Timestamp,
    /// From answer to end in milliseconds: 0 where it was not answered, `None` where the end was not seen.
    pub duration_ms: Option<u64>,
    /// From placing to the first sign of the far end in milliseconds `None` where there was none.
    pub pdd_ms: Option<u64>,
    /// The Q.850 cause as the switch gives it; `None` where the end was not seen or the switch gave none.
    pub cause: Option<u16>,
    /// The SIP status, where the vendor sent it.
    pub sip_status: Option<u16>,
    /// What the end looked like; [`outcome`](crate::call::outcome) makes the outcome of it.
    pub evidence: Evidence,
}
