//! What both trackers keep of a leg, and the bookkeeping over gaps, lists and late events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::call::attempt::{CallEvent, Finished, Placed, TrunkName};
use crate::call::outcome::{EndedBy, Evidence};
use crate::call::tracker::{LiveLeg, Step};
use crate::ids::LegId;
use crate::pbx::event::Snapshot;
use crate::time::Timestamp;

/// Most legs that are followed on one node. A PBX carries some thousands; a stream of forged openings must not fill the
/// memory.
const MAX_LEGS: usize = 200_000;

/// How long the end of a leg is remembered, for events that were overtaken and for lists that lag.
const REMEMBER_END: Duration = Duration::from_secs(600);

/// Most ends remembered.
const MAX_ENDS: usize = 100_000;

/// How long a leg must have been missing from lists to be taken for gone. One list alone is no proof: on both PBXs
/// lists run ahead of the events or lag behind them.
const MISSING_FOR: Duration = Duration::from_secs(10);

/// Longer spans between two times of a leg are a clock that stepped, not a call.
const MAX_CALL: Duration = Duration::from_secs(30 * 24 * 3600);
const MAX_PDD: Duration = Duration::from_secs(3600);

/// A leg that is up, as far as is known; `own` is what only one kind of PBX says.
#[derive(Debug)]
pub(super) struct Leg<X> {
    /// What the PBX calls the connection.
    pub(super) trunk: TrunkName,
    /// The leg that the call comes from.
    pub(super) caller: Option<LegId>,
    pub(super) number: Option<Arc<str>>,
    pub(super) map: Option<Arc<str>>,
    pub(super) placed_at: Timestamp,
    pub(super) ringing_at: Option<Timestamp>,
    pub(super) answered_at: Option<Timestamp>,
    /// Known to be answered, but not when.
    pub(super) answered_unseen: bool,
    /// Up before it could be seen.
    pub(super) adopted: bool,
    /// Whether [`CallEvent::Placed`] was told.
    pub(super) told: bool,
    /// The identifier that it was told under, where it has another one now.
    told_as: Option<LegId>,
    pub(super) own: X,
    /// The link session in which it was last heard of.
    heard_in: u64,
    /// When a list first did not have it.
    missing_since: Option<Timestamp>,
}

impl<X> Leg<X> {
    pub(super) fn new(trunk: TrunkName, placed_at: Timestamp, own: X) -> Self {
        Self {
            trunk,
            caller: None,
            number: None,
            map: None,
            placed_at,
            ringing_at: None,
            answered_at: None,
            answered_unseen: false,
            adopted: false,
            told: false,
            told_as: None,
            own,
            heard_in: 0,
            missing_since: None,
        }
    }

    pub(super) fn restored(leg: LiveLeg, own: X) -> Self {
        let LiveLeg { leg: _, trunk, number, map, placed_at, ringing_at, answered_at, adopted } = leg;
        Self { number, map, ringing_at, answered_at, adopted, told: true, ..Self::new(trunk, placed_at, own) }
    }

    pub(super) fn live(&self, id: &LegId) -> LiveLeg {
        LiveLeg {
            leg: id.clone(),
            trunk: self.trunk.clone(),
            number: self.number.clone(),
            map: self.map.clone(),
            placed_at: self.placed_at,
            ringing_at: self.ringing_at,
            answered_at: self.answered_at,
            adopted: self.adopted,
        }
    }

    /// The identifier to tell of it by: the same from beginning to end.
    pub(super) fn told_id(&self, id: &LegId) -> LegId {
        self.told_as.as_ref().unwrap_or(id).clone()
    }

    pub(super) fn answered(&self) -> bool {
        self.answered_at.is_some() || self.answered_unseen
    }

    /// Tells of the leg, once, and that it rang if it did.
    pub(super) fn tell_placed(&mut self, id: &LegId, step: &mut Step<'_>) {
        if !std::mem::replace(&mut self.told, true) {
            step.tell(CallEvent::Placed(Placed {
                leg: id.clone(),
                trunk: self.trunk.clone(),
                caller: self.caller.clone(),
                number: self.number.clone(),
                map: self.map.clone(),
                at: self.placed_at,
                adopted: self.adopted,
            }));
            self.tell_ringing(id, step);
        }
    }

    /// Tells that the leg rang, if it did.
    pub(super) fn tell_ringing(&self, id: &LegId, step: &mut Step<'_>) {
        if let Some(at) = self.ringing_at {
            step.tell(CallEvent::Ringing { leg: self.told_id(id), at });
        }
    }

    /// The attempt that this leg was.
    pub(super) fn finished(self, id: &LegId, end: &End) -> Finished {
        let answered = self.answered();
        let rang = self.ringing_at.is_some();
        let duration = match (self.answered_at, end.ended_by) {
            (_, EndedBy::Unseen) => None,
            (Some(answered_at), _) => span(answered_at, end.at, MAX_CALL),
            (None, _) if answered => None,
            (None, _) => Some(Duration::ZERO),
        };
        let sign = self.ringing_at.into_iter().chain(self.answered_at).min();
        let pdd = sign.and_then(|sign| span(self.placed_at, sign, MAX_PDD)).map(|pdd| pdd.saturating_sub(end.delay));
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Finished {
            leg: self.told_id(id),
            trunk: self.trunk,
            number: self.number,
            map: self.map,
            placed_at: self.placed_at,
            ringing_at: self.ringing_at,
            answered_at: self.answered_at,
            ended_at: end.at,
            duration_ms: duration.map(millis),
            pdd_ms: pdd.map(millis),
            cause: end.cause,
            sip_status: end.sip_status,
            evidence: Evidence {
                ended_by: end.ended_by,
                answered,
                rang,
                sip_status: end.sip_status,
                cause: end.deciding_cause,
            },
        }
    }
}

/// The end of a leg.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) at: Timestamp,
    pub(super) ended_by: EndedBy,
    /// The cause as given.
    pub(super) cause: Option<u16>,
    /// The cause that the outcome is decided by, where no status does.
    pub(super) deciding_cause: Option<u16>,
    /// The SIP status, only where it came from the vendor.
    pub(super) sip_status: Option<u16>,
    /// What is taken off the post-dial delay.
    pub(super) delay: Duration,
}

impl End {
    pub(super) fn unseen(at: Timestamp) -> Self {
        let delay = Duration::ZERO;
        Self { at, ended_by: EndedBy::Unseen, cause: None, deciding_cause: None, sip_status: None, delay }
    }
}

/// The time between two moments; nothing where the clock stepped in between.
fn span(from: Timestamp, to: Timestamp, longest: Duration) -> Option<Duration> {
    (to >= from).then(|| to.since(from)).filter(|&span| span <= longest)
}

/// The legs that are up, and those that have ended lately.
#[derive(Debug)]
pub(super) struct LegSet<X> {
    legs: HashMap<LegId, Leg<X>>,
    ended: Ends,
    /// Number of the link session; legs from before have a smaller one.
    session: u64,
    /// Whether the next list is the first of its session.
    first_list: bool,
}

impl<X> Default for LegSet<X> {
    fn default() -> Self {
        Self { legs: HashMap::new(), ended: Ends::default(), session: 0, first_list: false }
    }
}

impl<X> LegSet<X> {
    /// A new link session begins.
    pub(super) fn linked(&mut self) {
        self.session += 1;
        self.first_list = true;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&LegId, &Leg<X>)> {
        self.legs.iter()
    }

    pub(super) fn get(&self, id: &LegId) -> Option<&Leg<X>> {
        self.legs.get(id)
    }

    /// A leg, without taking this for a sign of its life.
    pub(super) fn get_mut(&mut self, id: &LegId) -> Option<&mut Leg<X>> {
        self.legs.get_mut(id)
    }

    pub(super) fn contains(&self, id: &LegId) -> bool {
        self.legs.contains_key(id)
    }

    /// Whether the leg has ended lately.
    pub(super) fn has_ended(&self, id: &LegId) -> bool {
        self.ended.contains(id)
    }

    /// A leg that an event tells about.
    pub(super) fn hear(&mut self, id: &LegId) -> Option<&mut Leg<X>> {
        let leg = self.legs.get_mut(id)?;
        leg.heard_in = self.session;
        leg.missing_since = None;
        Some(leg)
    }

    /// Adds a leg that an event or a list tells about. `None` where there are too many.
    pub(super) fn open(&mut self, id: &LegId, leg: Leg<X>, step: &mut Step<'_>) -> Option<&mut Leg<X>> {
        if self.legs.len() >= MAX_LEGS && !self.legs.contains_key(id) {
            step.counters.legs_refused += 1;
            return None;
        }
        self.legs.insert(id.clone(), leg);
        self.hear(id)
    }

    /// Adds a leg from before this session.
    pub(super) fn restore(&mut self, id: LegId, leg: Leg<X>) {
        if self.legs.len() < MAX_LEGS {
            self.legs.insert(id, leg);
        }
    }

    /// A leg is known by another identifier from now on.
    pub(super) fn rename(&mut self, from: &LegId, to: &LegId) {
        if let Some(mut leg) = self.legs.remove(from) {
            if leg.told {
                leg.told_as.get_or_insert_with(|| from.clone());
            }
            self.legs.insert(to.clone(), leg);
        }
    }

    /// Takes out a leg that has ended.
    pub(super) fn close(&mut self, id: &LegId, now: Timestamp) -> Option<Leg<X>> {
        self.ended.insert(id.clone(), now);
        self.legs.remove(id)
    }

    /// Remembers the end of a leg that was not followed.
    pub(super) fn forget_later(&mut self, id: LegId, now: Timestamp) {
        self.ended.insert(id, now);
    }

    /// Whether the leg was last heard of before this link session.
    pub(super) fn is_from_before(&self, id: &LegId) -> bool {
        self.legs.get(id).is_some_and(|leg| leg.heard_in < self.session)
    }

    /// Compares with a list. Gives the legs that it proves to be gone: those from before this link session if the list
    /// is the first one of it, others once they have been missing for long enough. In a fixed order, so that the same
    /// stream gives the same result.
    pub(super) fn compare(&mut self, snapshot: &Snapshot, now: Timestamp) -> Vec<LegId> {
        let listed: HashSet<&LegId> = snapshot.legs.iter().map(|row| &row.leg).collect();
        let first_list = std::mem::take(&mut self.first_list);
        let mut gone = Vec::new();
        for (id, leg) in &mut self.legs {
            if listed.contains(id) {
                leg.heard_in = self.session;
                leg.missing_since = None;
                continue;
            }
            let unseen_in_this_session = first_list && leg.heard_in < self.session;
            if unseen_in_this_session || now.since(*leg.missing_since.get_or_insert(now)) >= MISSING_FOR {
                gone.push((leg.placed_at, id.clone()));
            }
        }
        for row in &snapshot.legs {
            self.ended.touch(&row.leg, now);
        }
        gone.sort_unstable();
        gone.into_iter().map(|(_, id)| id).collect()
    }

    /// All legs, in a fixed order.
    pub(super) fn all(&self) -> Vec<LegId> {
        let mut all: Vec<_> = self.legs.iter().map(|(id, leg)| (leg.placed_at, id.clone())).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }
}

/// Legs that have ended lately, oldest first.
#[derive(Debug, Default)]
struct Ends {
    at: HashMap<LegId, Timestamp>,
    order: VecDeque<(LegId, Timestamp)>,
}

impl Ends {
    fn contains(&self, id: &LegId) -> bool {
        self.at.contains_key(id)
    }

    fn insert(&mut self, id: LegId, now: Timestamp) {
        if self.at.insert(id.clone(), now).is_none() {
            self.order.push_back((id, now));
        }
        while let Some((id, queued)) = self.order.front() {
            let last = self.at.get(id).copied().unwrap_or(*queued);
            let crowded = self.order.len() > MAX_ENDS;
            if !crowded && now.since(*queued) < REMEMBER_END {
                break;
            }
            let Some((id, _)) = self.order.pop_front() else { break };
            if !crowded && now.since(last) < REMEMBER_END {
                // A list had it in the meantime: it stays.
                self.order.push_back((id, last));
            } else {
                self.at.remove(&id);
            }
        }
    }

    /// A list still has this leg: remember its end for longer.
    fn touch(&mut self, id: &LegId, now: Timestamp) {
        if let Some(at) = self.at.get_mut(id) {
            *at = now;
        }
    }
}
