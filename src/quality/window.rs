//! The last finished attempts of a connection, and the figures over them.
//!
//! The sums are kept along, in integers: a finish costs the same whatever the length of the window, nothing drifts over
//! millions of attempts, and each figure is one correctly rounded division. An attempt exactly on a threshold therefore
//! compares as equal to it, and a threshold is only ever crossed strictly.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::outcome::{Outcome, ner};
use crate::time::Timestamp;

/// A counter that a connection's state change increments; every attempt carries the one in force when it was placed.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What the window keeps of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Sample {
    /// The epoch in force when it was placed.
    pub epoch: Epoch,
    /// When it was placed.
    pub placed_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// Answer to end in milliseconds; 0 where unanswered, `None` where the end was not seen.
    pub duration_ms: Option<u64>,
    /// Placing to the first sign of the far end in milliseconds.
    pub pdd_ms: Option<u64>,
    /// The Q.850 cause.
    pub cause: Option<u16>,
    /// The SIP status, where the vendor sent it.
    pub sip_status: Option<u16>,
}

impl Sample {
    /// Whether it counts as a success in the ASR: it has a duration that is not zero. One that was answered and whose
    /// end was not seen has a duration that nobody knows, and counts; one that was answered for 0 ms does not.
    #[must_use]
    pub fn is_success(&self) -> bool {
        match self.duration_ms {
            Some(ms) => ms > 0,
            None => self.outcome == Outcome::Answered,
        }
    }

    /// What it says about the network (ITU-T E.425): reached the called person or failed to; `None` where it says
    /// nothing, because the caller gave up before `patience` was over and before anything rang.
    #[must_use]
    pub fn is_effective(&self, patience: Duration) -> Option<bool> {
        ner(self.outcome, self.pdd_ms.is_some(), self.ended_at.since(self.placed_at), patience)
    }
}

/// The figures over some attempts.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = QualityFigures)]
pub struct Figures {
    /// Attempts measured.
    pub calls: usize,
    /// Answer-seizure ratio in percent; `None` over no attempt.
    pub asr: Option<f64>,
    /// Average call duration in seconds; `None` where none has one.
    pub acd: Option<f64>,
    /// Mean post-dial delay in seconds; `None` where none has one.
    pub pdd: Option<f64>,
    /// Network effectiveness ratio (ITU-T E.425) in percent; `None` where no attempt counts for it.
    pub ner: Option<f64>,
}

/// The sums that the figures are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sums {
    successes: u64,
    talks: u64,
    talk_ms: u128,
    delays: u64,
    delay_ms: u128,
    effective: u64,
    ineffective: u64,
}

impl Sums {
    /// The share of one attempt in them.
    fn of(sample: &Sample, patience: Duration) -> Self {
        let talk_ms = sample.duration_ms.unwrap_or(0);
        let effective = sample.is_effective(patience);
        Self {
            successes: u64::from(sample.is_success()),
            talks: u64::from(talk_ms > 0),
            talk_ms: u128::from(talk_ms),
            delays: u64::from(sample.pdd_ms.is_some()),
            delay_ms: u128::from(sample.pdd_ms.unwrap_or(0)),
            effective: u64::from(effective == Some(true)),
            ineffective: u64::from(effective == Some(false)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.successes += other.successes;
        self.talks += other.talks;
        self.talk_ms += other.talk_ms;
        self.delays += other.delays;
        self.delay_ms += other.delay_ms;
        self.effective += other.effective;
        self.ineffective += other.ineffective;
    }

    fn take(&mut self, other: &Self) {
        self.successes -= other.successes;
        self.talks -= other.talks;
        self.talk_ms -= other.talk_ms;
        self.delays -= other.delays;
        self.delay_ms -= other.delay_ms;
        self.effective -= other.effective;
        self.ineffective -= other.ineffective;
    }
}

/// `dividend / divisor` with a single rounding; `None` for a divisor of zero.
///
/// Both are exact as `f64` up to 2^53: 285,000 years in milliseconds. So `100 * 29 / 100` is 29 and not
/// 28.999999999999996, which `29 / 100 * 100` would be.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, see above")]
pub(crate) fn ratio(dividend: u128, divisor: u64) -> Option<f64> {
    (divisor > 0).then(|| dividend as f64 / divisor as f64)
}

/// Some finished attempts in the order in which they ended, at most `capacity` of them, with their figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    samples: VecDeque<Sample>,
    capacity: usize,
    patience: Duration,
    sums: Sums,
}

impl Window {
    /// An empty one. A capacity of 0 is taken as 1. `patience` is the waiting time from which a caller who gave up
    /// without any ringing counts against the vendor (NER).
    #[must_use]
    pub fn new(capacity: usize, patience: Duration) -> Self {
        Self { samples: VecDeque::new(), capacity: capacity.max(1), patience, sums: Sums::default() }
    }

    /// One that holds the last `capacity` of `samples`.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = Sample>, capacity: usize, patience: Duration) -> Self {
        let mut window = Self::new(capacity, patience);
        samples.into_iter().for_each(|sample| window.push(sample));
        window
    }

    /// Takes an attempt in; the oldest goes out where there is no room.
    pub fn push(&mut self, sample: Sample) {
        if self.is_full()
            && let Some(oldest) = self.samples.pop_front()
        {
            self.sums.take(&Sums::of(&oldest, self.patience));
        }
        self.sums.add(&Sums::of(&sample, self.patience));
        self.samples.push_back(sample);
    }

    /// Forgets all attempts.
    pub fn clear(&mut self) {
        self.samples.clear();
        self.sums = Sums::default();
    }

    /// Attempts held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Whether the next attempt pushes one out.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.samples.len() >= self.capacity
    }

    /// The attempts, oldest end first.
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = &Sample> + ExactSizeIterator {
        self.samples.iter()
    }

    /// The figures over all attempts held.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let sums = &self.sums;
        Figures {
            calls: self.len(),
            asr: ratio(u128::from(sums.successes) * 100, self.len() as u64),
            acd: ratio(sums.talk_ms, sums.talks * 1000),
            pdd: ratio(sums.delay_ms, sums.delays * 1000),
            ner: ratio(u128::from(sums.effective) * 100, sums.effective + sums.ineffective),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn sample(outcome: Outcome, duration_ms: Option<u64>, pdd_ms: Option<u64>) -> Sample {
        let at = Timestamp::from_secs(1_000);
        Sample {
            epoch: Epoch(0),
            placed_at: at,
            ended_at: at.after(Duration::from_secs(9)),
            outcome,
            duration_ms,
            pdd_ms,
            cause: None,
            sip_status: None,
        }
    }

    fn figures(samples: &[Sample]) -> Figures {
        Window::of(samples.iter().copied(), 100, PATIENCE).figures()
    }

    #[test]
    fn nothing_has_no_figures() {
        assert_eq!(figures(&[]), Figures::default());
    }

    #[test]
    fn an_unknown_duration_is_a_success_without_a_duration() {
        let f = figures(&[sample(Outcome::Answered, None, None), sample(Outcome::Answered, Some(30_500), None)]);
        assert_eq!((f.asr, f.acd, f.pdd), (Some(100.0), Some(30.5), None));
    }

    #[test]
    fn an_answer_of_no_length_is_a_call_sent_and_no_success() {
        let f = figures(&[sample(Outcome::Answered, Some(0), Some(1_250))]);
        assert_eq!((f.calls, f.asr, f.acd, f.pdd, f.ner), (1, Some(0.0), None, Some(1.25), Some(100.0)));
    }

    #[test]
    fn the_network_is_effective_when_the_called_person_was_reached() {
        let gone = |secs, pdd| {
            let mut gone = sample(Outcome::CallerGone, Some(0), pdd);
            gone.ended_at = gone.placed_at.after(Duration::from_secs(secs));
            gone
        };
        for (sample, effective) in [
            (sample(Outcome::Busy, Some(0), None), Some(true)),
            (sample(Outcome::NumberInvalid, Some(0), None), Some(false)),
            (gone(2, Some(900)), Some(true)),
            (gone(9, None), None),
            (gone(10, None), Some(false)),
        ] {
            assert_eq!(sample.is_effective(PATIENCE), effective, "{sample:?}");
        }
    }

    #[test]
    fn percentages_of_whole_numbers_are_whole() {
        for calls in 1..=200_u64 {
            for successes in 0..=calls {
                if (successes * 100) % calls == 0 {
                    let whole = f64::from(u32::try_from(successes * 100 / calls).unwrap());
                    assert_eq!(ratio(u128::from(successes) * 100, calls), Some(whole), "{successes} of {calls}");
                }
            }
        }
    }

    proptest! {
        /// Pushing and dropping one by one leaves the same sums as adding up what is left.
        #[test]
        fn the_sums_are_those_of_the_attempts_held(
            capacity in 1_usize..6,
            calls in proptest::collection::vec((0_usize..6, proptest::option::of(0_u64..5), proptest::option::of(0_u64..5)), 0..40),
        ) {
            let outcomes = [Outcome::Answered, Outcome::Busy, Outcome::NumberInvalid, Outcome::CallerGone, Outcome::VendorFailed, Outcome::NoAnswer];
            let mut window = Window::new(capacity, PATIENCE);
            for (outcome, duration, pdd) in calls {
                window.push(sample(outcomes[outcome], duration, pdd));
                prop_assert!(window.len() <= capacity);
                prop_assert_eq!(&Window::of(window.samples().copied(), capacity, PATIENCE), &window);
            }
        }
    }
}
