//! Follows the legs of one node, and makes an attempt of each that was sent to a trunk.
//!
//! The legs are a set by their identifier; nothing is counted up and down. Whatever comes first opens a leg, its end
//! closes it once, and a leg that has ended stays known for a while, so that nothing that comes late (an event that
//! was overtaken, a channel list that lags) opens it again.
//!
//! What the two kinds of PBX say differs, so each has a tracker of its own: FreeSWITCH's events are statements about
//! the whole leg, Asterisk's are steps. Both share the bookkeeping in `legs`.

mod asterisk;
mod freeswitch;
mod legs;

use std::sync::Arc;

use crate::call::attempt::{CallEvent, TrunkName};
use crate::ids::LegId;
use crate::pbx::PbxKind;
use crate::pbx::event::PbxEvent;
use crate::time::Timestamp;

/// Follows the legs of one node.
#[derive(Debug)]
pub struct Tracker {
    kind: Kind,
    incarnation: Option<Arc<str>>,
    counters: Counters,
}

#[derive(Debug)]
enum Kind {
    FreeSwitch(freeswitch::Legs),
    Asterisk(asterisk::Legs),
}

/// What an event led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// What became of legs, in order.
    pub events: Vec<CallEvent>,
    /// Legs that the PBX lists and that nothing is known of: ask it to describe them (FreeSWITCH, whose list does not
    /// name the gateway).
    pub describe: Vec<LegId>,
}

/// What could not be followed, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Answered legs whose end was not seen: in the ASR, without a duration.
    pub unseen_ends_answered: u64,
    /// Other legs whose end was not seen: outcome `lost`.
    pub unseen_ends_lost: u64,
    /// Events that were lost or damaged, at least.
    pub events_lost: u64,
    /// Ends that turned out not to be true (a damaged or forged message).
    pub false_ends: u64,
    /// Legs that were not followed because too many are up.
    pub legs_refused: u64,
}

/// A leg to a trunk that is up, in the form in which it is kept across a restart of pointsman.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveLeg {
    /// The leg.
    pub leg: LegId,
    /// What the PBX calls the connection.
    pub trunk: TrunkName,
    /// The number dialled.
    pub number: Option<Arc<str>>,
    /// The dialplan's word on the route map.
    pub map: Option<Arc<str>>,
    /// Sent to the trunk.
    pub placed_at: Timestamp,
    /// First 180 or 183.
    pub ringing_at: Option<Timestamp>,
    /// Answered.
    pub answered_at: Option<Timestamp>,
    /// Whether it was up before it could be seen.
    pub adopted: bool,
}

impl Tracker {
    /// A tracker that knows of no leg.
    #[must_use]
    pub fn new(kind: PbxKind) -> Self {
        let kind = match kind {
            PbxKind::FreeSwitch => Kind::FreeSwitch(freeswitch::Legs::default()),
            PbxKind::Asterisk => Kind::Asterisk(asterisk::Legs::default()),
        };
        Self { kind, incarnation: None, counters: Counters::default() }
    }

    /// A tracker for a recorded stream: no list can be asked for there, so an end that must not be believed at once is
    /// held back until the rest of the stream has spoken.
    #[must_use]
    pub fn for_recording(kind: PbxKind) -> Self {
        let mut tracker = Self::new(kind);
        if let Kind::Asterisk(legs) = &mut tracker.kind {
            legs.doubt_to_the_end();
        }
        tracker
    }

    /// Takes an event that arrived at `now`.
    pub fn apply(&mut self, event: &PbxEvent, now: Timestamp) -> Output {
        let mut output = Output::default();
        if let PbxEvent::Lost(events) = event {
            self.counters.events_lost += events;
        }
        let restarted = match event {
            PbxEvent::Incarnation(id) => self.incarnation.replace(id.clone()).is_some_and(|before| before != *id),
            _ => false,
        };
        let mut step = Step { now, output: &mut output, counters: &mut self.counters };
        match &mut self.kind {
            Kind::FreeSwitch(legs) if restarted => legs.restarted(&mut step),
            Kind::FreeSwitch(legs) => legs.apply(event, &mut step),
            Kind::Asterisk(legs) if restarted => legs.restarted(&mut step),
            Kind::Asterisk(legs) => legs.apply(event, &mut step),
        }
        output
    }

    /// No more events will come: gives what was held back. Legs that are still up stay so.
    pub fn finish(&mut self, now: Timestamp) -> Output {
        let mut output = Output::default();
        let mut step = Step { now, output: &mut output, counters: &mut self.counters };
        if let Kind::Asterisk(legs) = &mut self.kind {
            legs.believe_all(&mut step);
        }
        output
    }

    /// Takes over a leg that was up when this program last ran. It is known like a leg from before a gap in the link:
    /// if the next list does not have it, it ended unseen.
    pub fn restore(&mut self, leg: LiveLeg) {
        match &mut self.kind {
            Kind::FreeSwitch(legs) => legs.restore(leg),
            Kind::Asterisk(legs) => legs.restore(leg),
        }
    }

    /// How many legs to trunks are up.
    #[must_use]
    pub fn active(&self) -> usize {
        match &self.kind {
            Kind::FreeSwitch(legs) => legs.active().count(),
            Kind::Asterisk(legs) => legs.active().count(),
        }
    }

    /// The legs to trunks that are up, in no order.
    pub fn live_legs(&self) -> Box<dyn Iterator<Item = LiveLeg> + '_> {
        match &self.kind {
            Kind::FreeSwitch(legs) => Box::new(legs.active().map(|(id, leg)| leg.live(id))),
            Kind::Asterisk(legs) => Box::new(legs.active().map(|(id, leg)| leg.live(id))),
        }
    }

    /// What could not be followed.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// What taking one event needs: when it came, and where to put what it led to.
struct Step<'a> {
    now: Timestamp,
    output: &'a mut Output,
    counters: &'a mut Counters,
}

impl Step<'_> {
    fn tell(&mut self, event: CallEvent) {
        self.output.events.push(event);
    }
}
