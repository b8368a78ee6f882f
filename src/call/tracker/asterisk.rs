//! Asterisk's legs.
//!
//! Asterisk reports steps, and two of its threads race for the same leg, so the steps are taken as a set: a state or a
//! sign counts whenever it comes, the first one of a kind wins, and Hangup decides over all that was seen.
//!
//! After a damaged message no end is believed at once. Such a message may be the remains of one that a caller broke
//! open with line ends in a name or a number, and what follows it may be the caller's invention. The end of a leg is
//! held back until a list of channels shows whether the leg is gone; any other sign of life of the leg refutes it too.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::call::attempt::CallEvent;
use crate::call::outcome::EndedBy;
use crate::call::tracker::legs::{End, Leg, LegSet};
use crate::call::tracker::{LiveLeg, Step};
use crate::ids::LegId;
use crate::pbx::asterisk::{
    AstChange, AstEvent, AstLeg, DialStatus, STATE_DIALING, STATE_DOWN, STATE_RESERVED, STATE_RING, STATE_RINGING,
    STATE_UP,
};
use crate::pbx::event::{PbxEvent, Snapshot};
use crate::time::Timestamp;

/// How long ends are held back where no list comes that settles them. Longer than the time to the second list that
/// follows a damaged message.
const DOUBT: Duration = Duration::from_secs(15);

/// An end so few messages behind a damaged one, with the remains of a message behind it, is what a caller wrote into a
/// name or a number: it sits between the two halves of the message that it broke.
const WITHIN_DAMAGE: u8 = 8;

/// Most ends that are held back; with more of them all are believed.
const MAX_HELD: usize = 50_000;

/// What only Asterisk says of a leg.
#[derive(Debug, Default)]
pub(super) struct Own {
    channel: Option<Arc<str>>,
    /// Whether a DialBegin was seen.
    dial_begun: bool,
    /// Whether anything shows that it left: a DialBegin, a sign of the far end, the end of dialling.
    sent: bool,
    /// What the far end gave as its final answer, before dialling ended and before it was answered.
    refusal: Option<Refusal>,
    dial_end: Option<DialStatus>,
    forwarded: bool,
    /// Our side asked for the end.
    soft_hangup: bool,
    /// Another leg got the call.
    race_lost: bool,
    /// An end that is not believed yet.
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    cause: Option<u16>,
    sip_status: Option<u16>,
}

#[derive(Clone, Debug)]
struct Held {
    at: Timestamp,
    cause: u16,
    up: bool,
    /// Whether a list still had the leg afterwards. One such list may have been on its way already, two are proof.
    listed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Legs {
    set: LegSet<Own>,
    /// Until when ends are held back.
    doubt: Option<Timestamp>,
    /// Whether time alone ends no doubt.
    doubt_to_the_end: bool,
    /// Legs with an end that is held back, in the order in which the ends came.
    held: VecDeque<LegId>,
    /// Those of them that may sit within a message that was broken open (see [`WITHIN_DAMAGE`]).
    within_damage: Vec<LegId>,
}

impl Legs {
    pub(super) fn restore(&mut self, leg: LiveLeg) {
        let own = Own { dial_begun: true, sent: true, ..Own::default() };
        self.set.restore(leg.leg.clone(), Leg::restored(leg, own));
    }

    pub(super) fn doubt_to_the_end(&mut self) {
        self.doubt_to_the_end = true;
    }

    pub(super) fn active(&self) -> impl Iterator<Item = (&LegId, &Leg<Own>)> {
        self.set.iter().filter(|(_, leg)| leg.told || leg.adopted)
    }

    /// Asterisk was restarted: all of its legs are gone.
    pub(super) fn restarted(&mut self, step: &mut Step<'_>) {
        self.believe_all(step);
        for id in self.set.all() {
            self.vanished(&id, step);
        }
    }

    pub(super) fn apply(&mut self, event: &PbxEvent, step: &mut Step<'_>) {
        let settled_by_time = self.doubt.is_some_and(|until| step.now >= until) && !self.doubt_to_the_end;
        if settled_by_time || self.held.len() > MAX_HELD {
            self.believe_all(step);
        }
        match event {
            PbxEvent::Linked => self.set.linked(),
            PbxEvent::Asterisk(event) => self.channel(event, step),
            PbxEvent::Snapshot(snapshot) => self.snapshot(snapshot, step),
            PbxEvent::Lost(_) => self.damaged(step),
            PbxEvent::Unlinked
            | PbxEvent::Incarnation(_)
            | PbxEvent::FreeSwitch(_)
            | PbxEvent::Heartbeat(_)
            | PbxEvent::Vitals(_)
            | PbxEvent::Silent
            | PbxEvent::LegGone(_) => {}
        }
    }

    /// A message was damaged.
    fn damaged(&mut self, step: &mut Step<'_>) {
        self.doubt = Some(step.now.after(DOUBT));
        self.within_damage.clear();
    }

    /// The remains of a damaged message came: ends that came right after its beginning were within it.
    fn remains(&mut self, step: &mut Step<'_>) {
        for id in std::mem::take(&mut self.within_damage) {
            self.refute(&id, step);
        }
    }

    /// Drops an end that is held back, if there is one.
    fn refute(&mut self, id: &LegId, step: &mut Step<'_>) {
        if self.set.get_mut(id).is_some_and(|leg| leg.own.held.take().is_some()) {
            step.counters.false_ends += 1;
            self.held.retain(|held| held != id);
        }
    }

    /// Ends the doubt: what was held back and not refuted is true.
    pub(super) fn believe_all(&mut self, step: &mut Step<'_>) {
        self.doubt = None;
        while let Some(id) = self.held.pop_front() {
            if !self.refuted(&id, step) {
                self.believe(&id, step);
            }
        }
    }

    /// Drops an end that is held back if a list had the leg after it.
    fn refuted(&mut self, id: &LegId, step: &mut Step<'_>) -> bool {
        let Some(leg) = self.set.get_mut(id) else { return false };
        let refuted = leg.own.held.take_if(|held| held.listed).is_some();
        step.counters.false_ends += u64::from(refuted);
        refuted
    }

    fn channel(&mut self, event: &AstEvent, step: &mut Step<'_>) {
        let at = event.at.unwrap_or(step.now);
        let within_damage = event.since_damage <= WITHIN_DAMAGE;
        if !within_damage {
            self.within_damage.clear();
        }
        match &event.change {
            AstChange::Remains => self.remains(step),
            AstChange::Created(new) => self.created(new, at, step),
            AstChange::DialBegin { caller, dest, number } => {
                self.dial_begin(dest, caller.as_ref(), number.as_ref(), at, step);
            }
            AstChange::State(seen) => {
                let Some(leg) = self.alive(seen, step) else { return };
                note_state(leg, seen, at, step);
                if seen.state == STATE_RING && !leg.own.sent {
                    // It came in: some lines are reserved (DAHDI) before they ring.
                    self.set.close(&seen.leg, step.now);
                }
            }
            AstChange::DialState { dest, rings } => {
                if let Some(leg) = self.alive(dest, step) {
                    if *rings {
                        note_ringing(leg, &dest.leg, at, step);
                    } else {
                        note_sent(leg, &dest.leg, step);
                    }
                }
            }
            AstChange::DialEnd { dest, status, forwarded } => self.dial_end(dest, *status, *forwarded, at, step),
            AstChange::HangupRequest { leg: seen, cause, tech_cause } => {
                if let Some(leg) = self.alive(seen, step)
                    && leg.own.dial_end.is_none()
                    && !leg.answered()
                {
                    let sip_status = tech_cause.filter(|status| (300..=699).contains(status));
                    leg.own.refusal.get_or_insert(Refusal { cause: *cause, sip_status });
                    // A vendor that refuses at once overtakes DialBegin, which names the number that the map is found by:
                    // that, or the end, tells of the leg.
                    leg.own.sent = true;
                }
            }
            AstChange::SoftHangupRequest(seen) => {
                if let Some(leg) = self.alive(seen, step) {
                    leg.own.soft_hangup = true;
                }
            }
            AstChange::PickedUp(seen) => {
                if let Some(leg) = self.alive(seen, step) {
                    leg.own.race_lost = true;
                }
            }
            AstChange::Renamed { leg, channel } => {
                if let Some(leg) = self.set.hear(leg) {
                    leg.own.channel = Some(channel.clone());
                }
            }
            AstChange::Hangup { leg, cause, usual } => {
                if !usual {
                    self.doubt = Some(step.now.after(DOUBT));
                }
                let end = Held { at, cause: *cause, up: leg.state == STATE_UP, listed: false };
                if self.hangup(leg, end, step) && within_damage {
                    self.within_damage.push(leg.leg.clone());
                }
            }
        }
    }

    fn created(&mut self, new: &AstLeg, at: Timestamp, step: &mut Step<'_>) {
        // An incoming leg begins in another state (4).
        if !matches!(new.state, STATE_DOWN | STATE_RESERVED | STATE_DIALING) || self.set.has_ended(&new.leg) {
            return;
        }
        match self.set.hear(&new.leg) {
            // A list ran ahead of this event: the leg is new all the same.
            Some(leg) if leg.adopted && !leg.told => {
                leg.adopted = false;
                leg.placed_at = at;
            }
            Some(_) => {}
            None => {
                self.open(new, at, step);
            }
        }
    }

    fn open(&mut self, new: &AstLeg, at: Timestamp, step: &mut Step<'_>) -> Option<&mut Leg<Own>> {
        let own = Own { channel: Some(new.channel.clone()), ..Own::default() };
        let mut leg = Leg::new(new.trunk.clone(), at, own);
        leg.map.clone_from(&new.map);
        self.set.open(&new.leg, leg, step)
    }

    fn dial_begin(
        &mut self,
        dest: &AstLeg,
        caller: Option<&LegId>,
        number: Option<&Arc<str>>,
        at: Timestamp,
        step: &mut Step<'_>,
    ) {
        if self.set.has_ended(&dest.leg) {
            return;
        }
        if !self.set.contains(&dest.leg) {
            self.open(dest, at, step);
        }
        let Some(leg) = self.alive(dest, step) else { return };
        if !leg.own.dial_begun {
            leg.own.dial_begun = true;
            leg.adopted = leg.adopted && leg.told;
            leg.caller = caller.cloned();
            leg.number = leg.number.take().or_else(|| number.cloned());
            if !leg.told {
                // A sign that overtook this event came at once.
                leg.placed_at = leg.ringing_at.into_iter().chain(leg.answered_at).fold(at, Timestamp::min);
            }
        }
        note_sent(leg, &dest.leg, step);
        note_state(leg, dest, at, step);
    }

    fn dial_end(&mut self, dest: &AstLeg, status: DialStatus, forwarded: bool, at: Timestamp, step: &mut Step<'_>) {
        let Some(leg) = self.alive(dest, step) else { return };
        note_sent(leg, &dest.leg, step);
        note_state(leg, dest, at, step);
        leg.own.dial_end.get_or_insert(status);
        leg.own.forwarded |= forwarded;
        if status == DialStatus::Cancel
            && self.another_won(&dest.leg)
            && let Some(leg) = self.set.get_mut(&dest.leg)
        {
            leg.own.race_lost = true;
        }
    }

    /// Whether another leg of the same caller was answered after this one had been dialled.
    fn another_won(&self, id: &LegId) -> bool {
        let Some(lost) = self.set.get(id) else { return false };
        let Some(caller) = &lost.caller else { return false };
        self.set.iter().any(|(other, leg)| {
            other != id
                && leg.caller.as_ref() == Some(caller)
                && leg.answered_at.is_some_and(|answered| answered >= lost.placed_at)
        })
    }

    /// Takes the end of a leg; whether it is held back.
    fn hangup(&mut self, seen: &AstLeg, end: Held, step: &mut Step<'_>) -> bool {
        let in_doubt = self.doubt.is_some();
        if self.set.get(&seen.leg).is_some_and(|leg| leg.own.held.is_some()) {
            // A leg ends once, and before its true end it shows that a false one was false.
            step.counters.false_ends += 1;
            return false;
        }
        let Some(leg) = self.alive(seen, step) else {
            if !in_doubt && !self.set.contains(&seen.leg) {
                self.set.forget_later(seen.leg.clone(), step.now);
            }
            return false;
        };
        if leg.answered_at.is_some() && !end.up {
            // No leg goes back from up to another state.
            step.counters.false_ends += 1;
            return false;
        }
        if leg.map.is_none() {
            leg.map.clone_from(&seen.map);
        }
        leg.own.held = Some(end);
        if in_doubt {
            self.held.push_back(seen.leg.clone());
        } else {
            self.believe(&seen.leg, step);
        }
        in_doubt
    }

    /// A leg that is followed and that an event shows to be there. An end that is held back was not true then; neither
    /// is an event that gives the leg another channel.
    fn alive(&mut self, seen: &AstLeg, step: &mut Step<'_>) -> Option<&mut Leg<Own>> {
        let leg = self.set.hear(&seen.leg)?;
        if leg.own.channel.get_or_insert_with(|| seen.channel.clone()) != &seen.channel {
            step.counters.false_ends += 1;
            return None;
        }
        self.refute(&seen.leg, step);
        let leg = self.set.hear(&seen.leg)?;
        // A new channel has not inherited the caller's variables yet; at DialBegin it has.
        if leg.map.is_none() {
            leg.map.clone_from(&seen.map);
        }
        Some(leg)
    }

    /// Closes a leg whose end is believed.
    fn believe(&mut self, id: &LegId, step: &mut Step<'_>) {
        let left_alone = |own: &Own| own.refusal.is_none() && own.dial_end.is_none();
        let lost_race = self.set.get(id).is_some_and(|leg| left_alone(&leg.own)) && self.another_won(id);
        let Some(mut leg) = self.set.close(id, step.now) else { return };
        let Some(held) = leg.own.held.take() else { return };
        if leg.adopted {
            step.tell(CallEvent::Forgotten(leg.told_id(id)));
            return;
        }
        leg.tell_placed(id, step);
        leg.answered_unseen |= held.up;
        let (ended_by, deciding_cause) = ended_by(&leg.own, held.cause, lost_race);
        let refused_with = leg.own.refusal.and_then(|refusal| refusal.sip_status);
        let from_vendor = matches!(ended_by, EndedBy::FarEnd | EndedBy::Redirect) && !leg.answered();
        let end = End {
            at: held.at,
            ended_by,
            cause: Some(held.cause),
            deciding_cause: Some(deciding_cause),
            sip_status: refused_with.filter(|_| from_vendor),
            delay: Duration::ZERO,
        };
        step.tell(CallEvent::Finished(Box::new(leg.finished(id, &end))));
    }

    /// A leg ended and its Hangup was not seen.
    fn vanished(&mut self, id: &LegId, step: &mut Step<'_>) {
        let Some(leg) = self.set.close(id, step.now) else { return };
        if !leg.told || leg.adopted {
            if leg.adopted {
                step.tell(CallEvent::Forgotten(leg.told_id(id)));
            }
            return;
        }
        let unseen = match leg.answered() {
            true => &mut step.counters.unseen_ends_answered,
            false => &mut step.counters.unseen_ends_lost,
        };
        *unseen += 1;
        step.tell(CallEvent::Finished(Box::new(leg.finished(id, &End::unseen(step.now)))));
    }

    fn snapshot(&mut self, snapshot: &Snapshot, step: &mut Step<'_>) {
        self.resolve_doubt(snapshot, step);
        for id in self.set.compare(snapshot, step.now) {
            self.vanished(&id, step);
        }
        for row in &snapshot.legs {
            if let Some(leg) = self.set.hear(&row.leg) {
                leg.answered_unseen = row.answered;
            } else if row.outbound == Some(true)
                && !self.set.has_ended(&row.leg)
                && let Some(trunk) = &row.trunk
            {
                let age = Duration::from_secs(row.age_sec.unwrap_or(0));
                let own = Own { channel: Some(row.channel.clone()), sent: true, ..Own::default() };
                let mut leg = Leg::new(trunk.clone(), step.now.before(age), own);
                (leg.adopted, leg.answered_unseen) = (true, row.answered);
                self.set.open(&row.leg, leg, step);
            }
        }
    }

    /// A list settles which of the ends that were held back are true.
    fn resolve_doubt(&mut self, snapshot: &Snapshot, step: &mut Step<'_>) {
        let listed: HashSet<&LegId> = snapshot.legs.iter().map(|row| &row.leg).collect();
        for id in std::mem::take(&mut self.held) {
            if !listed.contains(&id) {
                self.believe(&id, step);
            } else if !self.refuted(&id, step) {
                if let Some(held) = self.set.get_mut(&id).and_then(|leg| leg.own.held.as_mut()) {
                    held.listed = true;
                }
                self.held.push_back(id);
            }
        }
        if self.held.is_empty() {
            self.doubt = None;
        }
    }
}

/// The leg left for the trunk: tell of it.
fn note_sent(leg: &mut Leg<Own>, id: &LegId, step: &mut Step<'_>) {
    leg.own.sent = true;
    if !leg.adopted {
        leg.tell_placed(id, step);
    }
}

/// The far end rings, perhaps for the first time.
fn note_ringing(leg: &mut Leg<Own>, id: &LegId, at: Timestamp, step: &mut Step<'_>) {
    let news = leg.ringing_at.is_none() && leg.told;
    leg.ringing_at = leg.ringing_at.or(Some(at));
    note_sent(leg, id, step);
    if news {
        leg.tell_ringing(id, step);
    }
}

/// What a snapshot of the channel shows, whichever event it came with.
fn note_state(leg: &mut Leg<Own>, seen: &AstLeg, at: Timestamp, step: &mut Step<'_>) {
    if leg.map.is_none() {
        leg.map.clone_from(&seen.map);
    }
    match seen.state {
        STATE_RINGING => note_ringing(leg, &seen.leg, at, step),
        STATE_UP if leg.answered_at.is_none() => {
            leg.answered_at = Some(at);
            note_sent(leg, &seen.leg, step);
            if !leg.adopted {
                step.tell(CallEvent::Answered { leg: seen.leg.clone(), at });
            }
        }
        _ => {}
    }
}

/// What ended an unanswered leg, and the cause that it is judged by where no SIP status says more.
///
/// Asterisk makes up causes where it ends a leg itself: 0, 16 or 19 after a timeout, 127 after a cancel, 26 for the
/// loser of a fork. They are the far end's only where it asked for the end (HangupRequest).
fn ended_by(leg: &Own, cause: u16, another_won: bool) -> (EndedBy, u16) {
    const ANSWERED_ELSEWHERE: u16 = 26;
    const REDIRECTED: u16 = 23;
    let refused = leg.refusal;
    let redirected = refused.is_some_and(|refusal| {
        refusal.sip_status.is_some_and(|status| status < 400) || refusal.cause == Some(REDIRECTED)
    });
    if leg.forwarded || redirected {
        return (EndedBy::Redirect, cause);
    }
    if leg.race_lost || cause == ANSWERED_ELSEWHERE || another_won {
        return (EndedBy::Race, cause);
    }
    if let Some(refusal) = refused {
        return (EndedBy::FarEnd, refusal.cause.unwrap_or(cause));
    }
    match leg.dial_end {
        // chan_sip asks for no end in most refusals; there these two words show that the far end refused.
        Some(DialStatus::Busy) if !leg.soft_hangup => (EndedBy::FarEnd, if cause == 0 { 17 } else { cause }),
        Some(DialStatus::Congestion) if !leg.soft_hangup => (EndedBy::FarEnd, if cause == 0 { 34 } else { cause }),
        Some(DialStatus::Cancel) => (EndedBy::Caller, cause),
        None if !leg.sent => (EndedBy::NeverSent, cause),
        None if leg.soft_hangup => (EndedBy::Caller, cause),
        None if cause == 127 => (EndedBy::Caller, cause),
        _ if matches!(cause, 0 | 16 | 19 | 127) || leg.soft_hangup => (EndedBy::OurTimeout, cause),
        _ => (EndedBy::FarEnd, cause),
    }
}
