//! What is handed over to be stored.

use std::sync::Arc;

use crate::call::outcome::Outcome;
use crate::ids::{LegId, MapId, NodeId, QualityKey};
use crate::notify::kept::{Kept, KeptKey};
use crate::notify::notice::FailedCall;
use crate::quality::machine::{Change, Saved};
use crate::quality::pin::Pinned;
use crate::quality::window::{Epoch, Figures, Sample, ratio};
use crate::routing::dynamic::Learnt;
use crate::score::Admin;
use crate::time::Timestamp;
use std::time::Duration;

/// Who made a change that pointsman made itself.
pub const POINTSMAN: &str = "pointsman";

/// One thing to store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreOp {
    /// How a connection stands now; replaces what was stored of it. Hand it over whole after every change: what is
    /// written is the difference to what is stored, for a finished attempt one small row.
    Quality(QualityKey, Box<Saved>),
    /// A change of state, for the history.
    Changed(Box<ChangeRow>),
    /// A leg came up, or more is known of it.
    LegUp(Box<LegRow>),
    /// A leg is not up any more.
    LegGone(NodeId, LegId),
    /// Something to add to the sums of a minute.
    Count {
        /// A time in that minute.
        at: Timestamp,
        /// Whose sums.
        whose: Whose,
        /// What to add.
        tally: Tally,
    },
    /// The generation of the variables; never goes back.
    Generation(u64),
    /// A failed call; of each connection the latest [`FAILED_CALLS`](crate::notify::notice::FAILED_CALLS) are kept.
    Failed(QualityKey, Box<FailedCall>),
    /// An operator's word over a connection's verdict; `None` ends it.
    Pin(QualityKey, Option<Pinned>),
    /// An operator's word on a node.
    Admin(NodeId, AdminRow),
    /// What the rule of a map learnt of its routes; `None`: it is of no use any more.
    Learnt(MapId, Option<Box<Learnt>>),
    /// Something of the outbox; replaces what is kept under its name.
    Mail(Kept),
    /// It is needed no more.
    MailGone(KeptKey),
}

/// A row of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeRow {
    /// Whose state changed.
    pub key: QualityKey,
    /// From what to what, when, why and by which figures.
    pub change: Change,
    /// The change in a sentence.
    pub words: Arc<str>,
    /// Who did it: [`POINTSMAN`], or an operator.
    pub who: Arc<str>,
}

/// What an operator wants of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminRow {
    /// What.
    pub admin: Admin,
    /// Who said so.
    pub who: Arc<str>,
    /// Why.
    pub why: Arc<str>,
    /// Since when.
    pub since: Timestamp,
}

/// A leg that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegRow {
    /// Where.
    pub node: NodeId,
    /// Its name there.
    pub leg: LegId,
    /// What the node calls the connection.
    pub trunk: Arc<str>,
    /// The dialplan's word on the route map.
    pub map: Option<Arc<str>>,
    /// The number dialled.
    pub number: Option<Arc<str>>,
    /// Sent to the trunk.
    pub placed_at: Timestamp,
    /// First 180 or 183.
    pub ringing_at: Option<Timestamp>,
    /// Answered.
    pub answered_at: Option<Timestamp>,
    /// The epoch in force when it was placed, where the trunk is judged.
    pub epoch: Option<Epoch>,
}

/// Whose sums.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// A connection's, or a connection's within a map.
    Connection(QualityKey),
    /// A node's.
    Node(NodeId),
}

/// Sums over attempts, and the most legs that were up at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Attempts that count as calls sent.
    pub calls: u64,
    /// Those with a duration that is not zero (ASR = successes / calls).
    pub successes: u64,
    /// Those with a known duration that is not zero.
    pub talks: u64,
    /// Their durations in milliseconds (ACD = talk / talks).
    pub talk_ms: u64,
    /// Those with a post-dial delay.
    pub delays: u64,
    /// Their delays in milliseconds (PDD = delay / delays).
    pub delay_ms: u64,
    /// Those that the network carried to the called person (NER = effective / (effective + ineffective)).
    pub effective: u64,
    /// Those that it did not.
    pub ineffective: u64,
    /// Attempts by outcome, in the order of [`OUTCOMES`].
    pub outcomes: [u64; OUTCOMES.len()],
    /// Most legs up at a time.
    pub max_active: u64,
}

/// Every outcome, in the order of the columns.
pub const OUTCOMES: [Outcome; 10] = [
    Outcome::Answered,
    Outcome::Busy,
    Outcome::NoAnswer,
    Outcome::Rejected,
    Outcome::NumberInvalid,
    Outcome::VendorFailed,
    Outcome::CallerGone,
    Outcome::LostRace,
    Outcome::NotSent,
    Outcome::Lost,
];

impl Tally {
    /// One finished attempt. `patience` is the connection's `caller_patience_sec`.
    #[must_use]
    pub fn attempt(sample: &Sample, patience: Duration) -> Self {
        let outcomes = OUTCOMES.map(|outcome| u64::from(outcome == sample.outcome));
        if !sample.outcome.in_window() {
            return Self { outcomes, ..Self::default() };
        }
        let talk_ms = sample.duration_ms.unwrap_or(0);
        let effective = sample.is_effective(patience);
        Self {
            calls: 1,
            successes: u64::from(sample.is_success()),
            talks: u64::from(talk_ms > 0),
            talk_ms,
            delays: u64::from(sample.pdd_ms.is_some()),
            delay_ms: sample.pdd_ms.unwrap_or(0),
            effective: u64::from(effective == Some(true)),
            ineffective: u64::from(effective == Some(false)),
            outcomes,
            max_active: 0,
        }
    }

    /// That many legs are up.
    #[must_use]
    pub fn active(legs: usize) -> Self {
        Self { max_active: legs as u64, ..Self::default() }
    }

    /// The figures over the attempts.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            calls: usize::try_from(self.calls).unwrap_or(usize::MAX),
            asr: ratio(u128::from(self.successes) * 100, self.calls),
            acd: ratio(u128::from(self.talk_ms), self.talks.saturating_mul(1000)),
            pdd: ratio(u128::from(self.delay_ms), self.delays.saturating_mul(1000)),
            ner: ratio(u128::from(self.effective) * 100, self.effective.saturating_add(self.ineffective)),
        }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.calls, other.calls),
            (&mut self.successes, other.successes),
            (&mut self.talks, other.talks),
            (&mut self.talk_ms, other.talk_ms),
            (&mut self.delays, other.delays),
            (&mut self.delay_ms, other.delay_ms),
            (&mut self.effective, other.effective),
            (&mut self.ineffective, other.ineffective),
        ];
        let outcomes = self.outcomes.iter_mut().zip(other.outcomes);
        for (sum, more) in sums.into_iter().chain(outcomes) {
            *sum = sum.saturating_add(more);
        }
        self.max_active = self.max_active.max(other.max_active);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(outcome: Outcome, duration_ms: Option<u64>, pdd_ms: Option<u64>) -> Sample {
        let at = Timestamp::from_secs(1_000);
        let ended_at = at.after(Duration::from_secs(20));
        Sample { epoch: Epoch(1), placed_at: at, ended_at, outcome, duration_ms, pdd_ms, cause: None, sip_status: None }
    }

    #[test]
    fn a_lost_race_is_counted_and_is_no_call_sent() {
        let tally = Tally::attempt(&sample(Outcome::LostRace, Some(0), Some(900)), Duration::from_secs(10));
        assert_eq!((tally.calls, tally.delays, tally.outcomes[7]), (0, 0, 1));
    }

    #[test]
    fn an_answered_call_whose_end_was_not_seen_is_a_success_without_a_duration() {
        let tally = Tally::attempt(&sample(Outcome::Answered, None, Some(900)), Duration::from_secs(10));
        assert_eq!((tally.calls, tally.successes, tally.talks, tally.effective), (1, 1, 0, 1));
    }

    #[test]
    fn sums_add_up_and_the_most_active_legs_do_not() {
        let patience = Duration::from_secs(10);
        let mut sum = Tally::active(3);
        sum.add(&Tally::attempt(&sample(Outcome::Answered, Some(5_000), Some(500)), patience));
        sum.add(&Tally::attempt(&sample(Outcome::VendorFailed, Some(0), None), patience));
        sum.add(&Tally::active(2));
        assert_eq!((sum.calls, sum.successes, sum.talk_ms, sum.delay_ms), (2, 1, 5_000, 500));
        assert_eq!((sum.effective, sum.ineffective, sum.max_active), (1, 1, 3));
        assert_eq!(sum.outcomes.iter().sum::<u64>(), 2);
    }
}
