//! FreeSWITCH's legs.
//!
//! Every event repeats all that is known of its leg, so any of them opens it, and the last one (HANGUP_COMPLETE, or
//! DESTROY where that is missing) is enough for an attempt by itself.

use std::collections::HashSet;
use std::time::Duration;

use crate::call::attempt::CallEvent;
use crate::call::outcome::EndedBy;
use crate::call::tracker::legs::{End, Leg, LegSet};
use crate::call::tracker::{LiveLeg, Step};
use crate::ids::LegId;
use crate::pbx::event::{FsEvent, PbxEvent, Snapshot};
use crate::pbx::freeswitch::{Disposition, FsCause, FsKind};
use crate::time::Timestamp;

/// Most legs that FreeSWITCH is asked to describe after one list.
const MAX_DESCRIBED: usize = 20_000;

/// What only FreeSWITCH says of a leg.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Whether `placed_at` is the leg's own creation time and not that of some event.
    created: bool,
    /// When it hung up, if only that is known of its end.
    hung_up: Option<Timestamp>,
    delay_sec: u32,
    /// Its attempt was closed when FreeSWITCH crashed; the leg was brought back, and is no second attempt.
    settled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Legs {
    set: LegSet<Own>,
    /// Legs that were asked about in this session: to be described, or no trunk's.
    asked: HashSet<LegId>,
}

impl Legs {
    pub(super) fn restore(&mut self, leg: LiveLeg) {
        let own = Own { created: true, ..Own::default() };
        self.set.restore(leg.leg.clone(), Leg::restored(leg, own));
    }

    pub(super) fn active(&self) -> impl Iterator<Item = (&LegId, &Leg<Own>)> {
        self.set.iter().filter(|(_, leg)| leg.own.hung_up.is_none())
    }

    /// FreeSWITCH was restarted: all of its legs are gone.
    pub(super) fn restarted(&mut self, step: &mut Step<'_>) {
        for id in self.set.all() {
            self.vanished(&id, step);
        }
        self.asked.clear();
    }

    pub(super) fn apply(&mut self, event: &PbxEvent, step: &mut Step<'_>) {
        match event {
            PbxEvent::Linked => {
                self.set.linked();
                self.asked.clear();
            }
            // What was lost may have been the description of a leg: the list that follows tells whom to ask about.
            PbxEvent::Lost(_) => self.asked.clear(),
            PbxEvent::FreeSwitch(event) => self.channel(event, step),
            PbxEvent::Snapshot(snapshot) => self.snapshot(snapshot, step),
            PbxEvent::LegGone(id) => {
                self.asked.remove(id);
                if self.set.is_from_before(id) {
                    self.vanished(id, step);
                }
            }
            PbxEvent::Unlinked
            | PbxEvent::Incarnation(_)
            | PbxEvent::Asterisk(_)
            | PbxEvent::Heartbeat(_)
            | PbxEvent::Vitals(_)
            | PbxEvent::Silent => {}
        }
    }

    fn channel(&mut self, event: &FsEvent, step: &mut Step<'_>) {
        if let FsKind::Renamed(from) = &event.kind {
            self.set.rename(from, &event.leg);
        }
        let Some(leg) = self.opened(event, step) else { return };
        let answered_before = leg.answered();
        let may_have_news = leg.told && leg.ringing_at.is_none();
        merge(leg, event);
        match event.kind {
            FsKind::Completed | FsKind::Destroyed => {
                leg.tell_placed(&event.leg, step);
                self.ended(event, step);
            }
            FsKind::HungUp => {
                leg.own.hung_up = leg.own.hung_up.or(event.hung_up).or(event.at).or(Some(step.now));
                leg.tell_placed(&event.leg, step);
            }
            FsKind::Created | FsKind::Progressed | FsKind::Renamed(_) | FsKind::Described => {
                leg.tell_placed(&event.leg, step);
                if may_have_news {
                    leg.tell_ringing(&event.leg, step);
                }
                if let Some(at) = leg.answered_at.filter(|_| !answered_before) {
                    step.tell(CallEvent::Answered { leg: leg.told_id(&event.leg), at });
                }
            }
        }
    }

    /// The leg of an event, opened if this is the first that is heard of it. Only legs to a gateway are followed.
    fn opened(&mut self, event: &FsEvent, step: &mut Step<'_>) -> Option<&mut Leg<Own>> {
        if self.set.contains(&event.leg) {
            return self.set.hear(&event.leg);
        }
        let recovered = event.recovered && event.kind == FsKind::Created;
        let settled = self.set.has_ended(&event.leg);
        if settled && !recovered {
            return None;
        }
        let trunk = event.gateway.clone().filter(|_| event.outbound != Some(false))?;
        let placed_at = event.created.or(event.at).unwrap_or(step.now);
        let own = Own { created: event.created.is_some(), settled, ..Own::default() };
        let mut leg = Leg::new(trunk, placed_at, own);
        leg.adopted = event.kind != FsKind::Created;
        leg.told = settled;
        leg.caller.clone_from(&event.caller);
        self.asked.remove(&event.leg);
        self.set.open(&event.leg, leg, step)
    }

    fn ended(&mut self, event: &FsEvent, step: &mut Step<'_>) {
        let Some(mut leg) = self.set.close(&event.leg, step.now) else { return };
        // What this event does not call answered was not, whatever a list said.
        leg.answered_unseen = false;
        if leg.own.settled {
            step.tell(CallEvent::Forgotten(leg.told_id(&event.leg)));
            return;
        }
        let sip_status = event
            .sip_status
            .filter(|status| (300..=699).contains(status))
            .filter(|_| !leg.answered() && event.disposition == Some(Disposition::RecvRefuse));
        let end = End {
            at: event.hung_up.or(leg.own.hung_up).or(event.at).unwrap_or(step.now),
            ended_by: ended_by(event, sip_status),
            cause: event.cause,
            deciding_cause: event.cause.or_else(|| event.cause_name.and_then(FsCause::number)),
            sip_status,
            delay: Duration::from_secs(leg.own.delay_sec.into()),
        };
        step.tell(CallEvent::Finished(Box::new(leg.finished(&event.leg, &end))));
    }

    /// A leg ended and its last event was not seen.
    fn vanished(&mut self, id: &LegId, step: &mut Step<'_>) {
        let Some(leg) = self.set.close(id, step.now) else { return };
        if leg.adopted || leg.own.settled {
            // It was up before the link, and its end says nothing.
            step.tell(CallEvent::Forgotten(leg.told_id(id)));
            return;
        }
        let end = match leg.own.hung_up {
            // Of an answered leg the CHANNEL_HANGUP says enough.
            Some(at) if leg.answered() => End { ended_by: EndedBy::FarEnd, ..End::unseen(at) },
            _ if leg.answered() => {
                step.counters.unseen_ends_answered += 1;
                End::unseen(step.now)
            }
            _ => {
                step.counters.unseen_ends_lost += 1;
                End::unseen(step.now)
            }
        };
        let end = End { delay: Duration::from_secs(leg.own.delay_sec.into()), ..end };
        step.tell(CallEvent::Finished(Box::new(leg.finished(id, &end))));
    }

    fn snapshot(&mut self, snapshot: &Snapshot, step: &mut Step<'_>) {
        for id in self.set.compare(snapshot, step.now) {
            self.vanished(&id, step);
        }
        let listed: HashSet<&LegId> = snapshot.legs.iter().map(|row| &row.leg).collect();
        self.asked.retain(|id| listed.contains(id));
        for row in snapshot.legs.iter().filter(|row| row.outbound == Some(true)) {
            if let Some(leg) = self.set.hear(&row.leg) {
                leg.answered_unseen = row.answered;
            } else if !self.set.has_ended(&row.leg)
                && step.output.describe.len() < MAX_DESCRIBED
                && self.asked.insert(row.leg.clone())
            {
                step.output.describe.push(row.leg.clone());
            }
        }
    }
}

/// Adds what an event says and was not known.
fn merge(leg: &mut Leg<Own>, event: &FsEvent) {
    if !leg.own.created
        && let Some(created) = event.created
    {
        leg.placed_at = created;
        leg.own.created = true;
    }
    for sign in event.progress.into_iter().chain(event.early_media) {
        leg.ringing_at = Some(leg.ringing_at.map_or(sign, |known| known.min(sign)));
    }
    leg.answered_at = leg.answered_at.or(event.answered);
    leg.own.delay_sec = leg.own.delay_sec.max(event.delay_sec);
    for (known, new) in [(&mut leg.number, &event.number), (&mut leg.map, &event.map)] {
        if known.is_none() {
            known.clone_from(new);
        }
    }
}

/// What ended an unanswered leg.
fn ended_by(event: &FsEvent, sip_status: Option<u16>) -> EndedBy {
    // Without a word on how the INVITE ended there was none: a gateway that is down or unknown, a number that cannot be
    // dialled, a local limit, a delayed leg that was not needed any more.
    let Some(disposition) = event.disposition else { return EndedBy::NeverSent };
    if sip_status.is_some_and(|status| status < 400) {
        return EndedBy::Redirect;
    }
    match (disposition, event.cause_name, event.cause) {
        (_, Some(FsCause::Race), _) => EndedBy::Race,
        (Disposition::SendCancel, Some(FsCause::Timeout(_)), _)
        | (Disposition::SendCancel, None, Some(18 | 19 | 102)) => EndedBy::OurTimeout,
        (Disposition::SendCancel, ..) => EndedBy::Caller,
        _ => EndedBy::FarEnd,
    }
}
