//! When a node that fails is left alone.
//!
//! ```text
//!             N failures in a row                 time over
//!   CLOSED ────────────────────────> OPEN ─────────────────────> HALF OPEN: one trial at a time
//!     ^                                ^                            |   |
//!     |                                └── trial failed: twice as long  |
//!     └────────────────────────────── trial succeeded ──────────────────┘
//! ```
//!
//! Whoever is about to try something asks for a [`Permit`] and reports with it how that went. A permit carries the
//! generation in which it was given, and each change of state begins a new one: what was started before the change has
//! no say after it.

use std::time::Duration;

use crate::config::model::BreakerSettings;
use crate::engine::view::{BreakerState, BreakerView};
use crate::time::Timestamp;

/// Leave to try something once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Permit {
    generation: u64,
    given_at: Timestamp,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A good reply.
    Success,
    /// An error, or no reply within the timeout.
    Failure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// Until then.
    Open(Timestamp),
    /// The trial that was given lapses then.
    HalfOpen(Timestamp),
}

/// A circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    settings: BreakerSettings,
    state: State,
    generation: u64,
    /// Failures in a row, trials included.
    failures: u32,
    /// How long it stays open next time.
    open_for: Duration,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub fn new(settings: BreakerSettings) -> Self {
        Self { settings, state: State::Closed, generation: 0, failures: 0, open_for: settings.open }
    }

    /// Leave to try something now; `None` while it is open, or half open with a trial under way. A trial that is not
    /// reported within the timeout lapses: then the next one may go, and the first has no say any more.
    pub fn permit(&mut self, now: Timestamp) -> Option<Permit> {
        match self.state {
            State::Closed => {}
            State::Open(until) | State::HalfOpen(until) if now < until => return None,
            State::Open(_) | State::HalfOpen(_) => self.enter(State::HalfOpen(now.after(self.settings.timeout))),
        }
        Some(Permit { generation: self.generation, given_at: now })
    }

    /// What was permitted went like this. A success that took longer than the timeout is a failure.
    pub fn report(&mut self, permit: Permit, outcome: Outcome, now: Timestamp) {
        if permit.generation != self.generation {
            return;
        }
        let in_time = now.since(permit.given_at) <= self.settings.timeout;
        if outcome == Outcome::Success && in_time {
            self.succeeded();
        } else {
            self.failed(now);
        }
    }

    /// Whether calls may go: only while it is closed. A trial is a probe, or one call that asks for a permit.
    #[must_use]
    pub fn lets_through(&self) -> bool {
        self.state == State::Closed
    }

    /// When something changes by itself: it is time for a trial, or the one under way lapses.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.state {
            State::Closed => None,
            State::Open(until) | State::HalfOpen(until) => Some(until),
        }
    }

    /// What it shows.
    #[must_use]
    pub fn view(&self, now: Timestamp) -> BreakerView {
        let (state, trial_at) = match self.state {
            State::Closed => (BreakerState::Closed, None),
            State::Open(until) if now < until => (BreakerState::Open, Some(until)),
            State::Open(_) | State::HalfOpen(_) => (BreakerState::HalfOpen, None),
        };
        BreakerView { state, failures: self.failures, trial_at }
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        if self.state != State::Closed {
            self.open_for = self.settings.open;
            self.enter(State::Closed);
        }
    }

    fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        if self.state == State::Closed {
            if self.failures < self.settings.failures {
                return;
            }
        } else {
            self.open_for = self.open_for.saturating_mul(2).min(self.settings.open_max);
        }
        self.enter(State::Open(now.after(self.open_for)));
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(1_000 + secs)
    }

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings::default())
    }

    fn fail(breaker: &mut Breaker, now: Timestamp) {
        let permit = breaker.permit(now).unwrap();
        breaker.report(permit, Outcome::Failure, now);
    }

    /// Opens at 0 s.
    fn open() -> Breaker {
        let mut breaker = breaker();
        (0..3).for_each(|_| fail(&mut breaker, at(0)));
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it() {
        let mut breaker = breaker();
        for outcome in [Outcome::Failure, Outcome::Failure, Outcome::Success, Outcome::Failure, Outcome::Failure] {
            let permit = breaker.permit(at(0)).unwrap();
            breaker.report(permit, outcome, at(0));
        }
        assert!(breaker.lets_through());
        assert_eq!(breaker.view(at(0)), BreakerView { state: BreakerState::Closed, failures: 2, trial_at: None });
        assert_eq!(breaker.deadline(), None);

        fail(&mut breaker, at(1));
        assert!(!breaker.lets_through());
        assert_eq!(breaker.permit(at(30)), None);
        let view = BreakerView { state: BreakerState::Open, failures: 3, trial_at: Some(at(31)) };
        assert_eq!((breaker.view(at(30)), breaker.deadline()), (view, Some(at(31))));
    }

    #[test]
    fn one_trial_at_a_time_and_its_success_closes() {
        let mut breaker = open();
        let trial = breaker.permit(at(30)).unwrap();
        assert_eq!(breaker.permit(at(31)), None);
        assert!(!breaker.lets_through(), "a trial lets no calls through");
        assert_eq!(breaker.view(at(31)).state, BreakerState::HalfOpen);
        breaker.report(trial, Outcome::Success, at(32));
        assert!(breaker.lets_through());
        assert_eq!(breaker.view(at(32)), BreakerView::default());
    }

    #[test]
    fn failed_trials_double_the_time_up_to_the_most_and_closing_takes_it_back() {
        let mut breaker = open();
        let mut now = at(0);
        for secs in [30, 60, 120, 240, 300, 300] {
            assert_eq!(breaker.deadline(), Some(now.after(Duration::from_secs(secs))));
            now = now.after(Duration::from_secs(secs));
            fail(&mut breaker, now);
        }
        assert_eq!(breaker.view(now).failures, 9);
        now = breaker.deadline().unwrap();
        let trial = breaker.permit(now).unwrap();
        breaker.report(trial, Outcome::Success, now);
        (0..3).for_each(|_| fail(&mut breaker, now));
        assert_eq!(breaker.deadline(), Some(now.after(Duration::from_secs(30))));
    }

    #[test]
    fn what_was_started_before_a_change_has_no_say_after_it() {
        let mut breaker = breaker();
        let early = breaker.permit(at(0)).unwrap();
        (0..3).for_each(|_| fail(&mut breaker, at(0)));
        let before = breaker.clone();
        breaker.report(early, Outcome::Success, at(1));
        breaker.report(early, Outcome::Failure, at(1));
        assert_eq!(breaker, before, "open");

        let trial = breaker.permit(at(30)).unwrap();
        breaker.report(early, Outcome::Success, at(30));
        assert!(!breaker.lets_through(), "half open");

        breaker.report(trial, Outcome::Success, at(31));
        (0..5).for_each(|_| breaker.report(trial, Outcome::Failure, at(31)));
        assert!(breaker.lets_through(), "closed again: a second report of the trial is of a former generation");
    }

    #[test]
    fn a_trial_that_never_reports_lapses() {
        let mut breaker = open();
        let lost = breaker.permit(at(30)).unwrap();
        assert_eq!(breaker.deadline(), Some(at(33)));
        assert_eq!(breaker.permit(at(32)), None);
        let next = breaker.permit(at(33)).unwrap();
        breaker.report(lost, Outcome::Failure, at(33));
        assert_eq!(breaker.permit(at(34)), None, "the lost one has no say: the next is still under way");
        breaker.report(next, Outcome::Success, at(34));
        assert!(breaker.lets_through());
    }

    #[test]
    fn a_good_reply_after_the_timeout_is_a_failure() {
        let mut breaker = open();
        let trial = breaker.permit(at(30)).unwrap();
        breaker.report(trial, Outcome::Success, at(33).after(Duration::from_micros(1)));
        assert_eq!(breaker.view(at(34)).state, BreakerState::Open);

        let mut breaker = open();
        let trial = breaker.permit(at(30)).unwrap();
        breaker.report(trial, Outcome::Success, at(33));
        assert!(breaker.lets_through(), "on the limit is in time");
    }

    /// The same rules, told again: every permit ever given is kept with the number of changes at that time.
    struct Model {
        changes: u64,
        row: u32,
        /// `None` while closed; else since when, for how long, and the trial with its start.
        opened: Option<(i64, i64, Option<i64>)>,
    }

    impl Model {
        fn permit(&mut self, now: i64) -> bool {
            let Some((since, span, trial)) = &mut self.opened else { return true };
            let free = match trial {
                None => now >= *since + *span,
                Some(started) => now >= *started + 3,
            };
            if free {
                *trial = Some(now);
                self.changes += 1;
            }
            free
        }

        fn report(&mut self, given: u64, started: i64, good: bool, now: i64) {
            if given != self.changes {
                return;
            }
            let good = good && now - started <= 3;
            self.row = if good { 0 } else { self.row + 1 };
            match (self.opened, good) {
                (None, true) => {}
                (None, false) if self.row < 3 => {}
                (None, false) => self.change(Some((now, 30, None))),
                (Some(_), true) => self.change(None),
                (Some((_, span, _)), false) => self.change(Some((now, (2 * span).min(300), None))),
            }
        }

        fn change(&mut self, to: Option<(i64, i64, Option<i64>)>) {
            self.opened = to;
            self.changes += 1;
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(i64),
        Ask,
        Report { which: prop::sample::Index, good: bool },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0_i64..4).prop_map(Step::Wait),
            1 => (20_i64..320).prop_map(Step::Wait),
            6 => Just(Step::Ask),
            6 => (any::<prop::sample::Index>(), prop::bool::weighted(0.3))
                .prop_map(|(which, good)| Step::Report { which, good }),
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_the_model_does(steps in proptest::collection::vec(step(), 0..120)) {
            let mut breaker = breaker();
            let mut model = Model { changes: 0, row: 0, opened: None };
            let mut permits = Vec::new();
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Wait(secs) => now += secs,
                    Step::Ask => {
                        let permit = breaker.permit(at(now));
                        prop_assert_eq!(permit.is_some(), model.permit(now));
                        permits.extend(permit.map(|permit| (permit, model.changes, now)));
                    }
                    Step::Report { which, good } if !permits.is_empty() => {
                        // Mostly of the latest permits, sometimes of old ones.
                        let back = which.index(permits.len().min(4));
                        let (permit, given, started) = permits[permits.len() - 1 - back];
                        let outcome = if good { Outcome::Success } else { Outcome::Failure };
                        breaker.report(permit, outcome, at(now));
                        model.report(given, started, good, now);
                    }
                    Step::Report { .. } => {}
                }
                prop_assert_eq!(breaker.lets_through(), model.opened.is_none());
                let due = model.opened.map(|(since, span, trial)| trial.map_or(since + span, |started| started + 3));
                prop_assert_eq!(breaker.deadline(), due.map(at));
                prop_assert_eq!(breaker.view(at(now)).failures, model.row);
            }
        }
    }
}
