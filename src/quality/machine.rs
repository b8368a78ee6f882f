//! The states of one connection.
//!
//! ```text
//!          window crosses a threshold                retry interval over
//!   GOOD ------------------------------> BAD -------------------------------> RETRY
//!     ^                                 |  ^ |                                 |  |
//!     |        full batch, good         |  +-+ full batch, bad (new interval)  |  |
//!     +---------------------------------+  ^                                   |  |
//!     |                                    +---- full batch, bad --------------+  |
//!     +------------------------------ full batch, good --------------------------+
//! ```
//!
//! Each arrow begins a new [`Epoch`]. An attempt belongs to the epoch in which it was placed, and that decides where it
//! has a say, however late it ends:
//!
//! - a **batch** (in RETRY, and in BAD where calls keep coming) is the first `retry_batch` attempts to finish among those
//!   placed in the epoch that runs. What was placed before finishes without a say;
//! - the **window** (in GOOD) measures every attempt placed since the batch began that led to the recovery, and starts
//!   with that batch.
//!
//! An outcome that says nothing about the connection (lost race, not sent, lost) takes no place anywhere.
//!
//! Pure: the time is an argument, the timer is [`Machine::deadline`], and what must survive a restart is [`Saved`].

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::quality::sentence::StateSentence;
use crate::quality::settings::{BadQualityAction, RetryOverflow, Settings};
use crate::quality::window::{Epoch, Figures, Sample, Window};
use crate::time::Timestamp;

/// How many beginnings of epochs are remembered for attempts that become known late. A connection with the shortest
/// sensible interval (a minute) changes state twice in it, so this covers more than a quarter of an hour of the worst
/// case; an attempt from before that has no say anyway.
const EPOCHS_KEPT: usize = 32;

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ConnectionState)]
pub enum State {
    /// On the right side of every threshold, or not judged yet.
    Good,
    /// The action applies.
    Bad,
    /// Back in its usual place for a batch of calls.
    Retry,
}

/// Why a state changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ChangeReason)]
pub enum Reason {
    /// ASR under its threshold.
    Asr,
    /// ACD under its threshold.
    Acd,
    /// PDD over its threshold.
    Pdd,
    /// The retry interval is over.
    RetryInterval,
    /// A batch was good.
    Batch,
    /// The configuration does not monitor the connection any more.
    Unmonitored,
    /// An operator said so.
    Operator,
}

/// A change of state, with the figures that led to it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// The state before.
    pub from: State,
    /// The state now; may be [`State::Bad`] after [`State::Bad`] (a bad verdict on an early batch).
    pub to: State,
    /// Why.
    pub reason: Reason,
    /// The epoch that begins.
    pub epoch: Epoch,
    /// What the verdict was over; empty for a retry.
    pub figures: Figures,
}

/// Where a connection stands in the hunt orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// In its usual place.
    #[default]
    Usual,
    /// At the end.
    Last,
    /// Left out.
    Blocked,
}

/// How far a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Attempts that finished.
    pub done: usize,
    /// Attempts of a full batch.
    pub of: usize,
}

/// All of a machine that survives a restart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// The settings that it ran under.
    pub settings: Settings,
    /// See [`Machine::state`].
    pub state: State,
    /// See [`Machine::since`].
    pub since: Timestamp,
    /// Beginnings of the latest epochs, oldest first; the last is the epoch in force.
    pub epochs: Vec<(Epoch, Timestamp)>,
    /// The oldest epoch whose attempts the window measures while good.
    pub measured_from: Epoch,
    /// The attempts in the window, oldest end first.
    pub window: Vec<Sample>,
    /// The attempts in the batch, oldest end first.
    pub batch: Vec<Sample>,
    /// When the running interval began, while bad.
    pub interval_from: Timestamp,
    /// Bad verdicts in a row.
    pub bad_in_row: u32,
    /// When it last turned from good to bad.
    pub turned_bad_at: Option<Timestamp>,
}

/// One connection (or connection and map): its state, its window, its batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    settings: Settings,
    state: State,
    since: Timestamp,
    /// Never empty; the last is the epoch in force.
    epochs: VecDeque<(Epoch, Timestamp)>,
    measured_from: Epoch,
    window: Window,
    batch: Window,
    /// Attempts placed in the running retry epoch that finished in the batch or may still do so.
    placed: usize,
    interval_from: Timestamp,
    bad_in_row: u32,
    turned_bad_at: Option<Timestamp>,
    /// What the last verdict was over.
    judged: Vec<Sample>,
}

impl Machine {
    /// A connection that nothing is known of: good until judged.
    #[must_use]
    pub fn new(settings: Settings, now: Timestamp) -> Self {
        let patience = settings.caller_patience();
        Self {
            state: State::Good,
            since: now,
            epochs: VecDeque::from([(Epoch::default(), now)]),
            measured_from: Epoch::default(),
            window: Window::new(settings.statistics_window, patience),
            batch: Window::new(settings.retry_batch, patience),
            placed: 0,
            interval_from: now,
            bad_in_row: 0,
            turned_bad_at: None,
            judged: Vec::new(),
            settings,
        }
    }

    /// An attempt was placed: the epoch that it belongs to.
    pub fn placed(&mut self) -> Epoch {
        self.placed = self.placed.saturating_add(1);
        self.epoch()
    }

    /// An attempt became known that was placed at `placed_at` (a leg found when a link came up): the epoch that it
    /// belongs to.
    pub fn adopted(&mut self, placed_at: Timestamp) -> Epoch {
        let epoch = self.epoch_at(placed_at);
        self.resumed(epoch);
        epoch
    }

    /// An attempt of `epoch` was up when the program ended, and may still be.
    pub fn resumed(&mut self, epoch: Epoch) {
        if epoch == self.epoch() {
            self.placed = self.placed.saturating_add(1);
        }
    }

    /// An attempt of `epoch` turned out not to be one, or its end will never be known: it keeps no place in the batch.
    pub fn forgotten(&mut self, epoch: Epoch) {
        if epoch == self.epoch() {
            self.placed = self.placed.saturating_sub(1);
        }
    }

    /// An attempt finished.
    pub fn finished(&mut self, sample: &Sample, now: Timestamp) -> Option<Change> {
        if !sample.outcome.in_window() {
            self.forgotten(sample.epoch);
            return None;
        }
        if self.takes_batch() {
            if sample.epoch == self.epoch() {
                self.batch.push(*sample);
            }
            self.window.push(*sample);
            return self.judge_batch(now);
        }
        if self.state == State::Good && sample.epoch < self.measured_from {
            // No say also means that it is no occasion to judge the window again.
            return None;
        }
        self.window.push(*sample);
        self.judge_window(now)
    }

    /// The timer: a bad connection gets its batch when its interval is over.
    pub fn fire(&mut self, now: Timestamp) -> Option<Change> {
        if self.deadline()? > now {
            return None;
        }
        Some(self.change(State::Retry, Reason::RetryInterval, Figures::default(), now))
    }

    /// When [`Machine::fire`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let interval = || self.settings.retry_interval(self.bad_in_row);
        (self.state == State::Bad).then(|| self.interval_from.after(interval()))
    }

    /// An operator has it begin anew: good, with an empty window. Calls that are up have no say any more.
    pub fn reset(&mut self, now: Timestamp) -> Change {
        self.bad_in_row = 0;
        self.measured_from = self.epoch().next();
        self.window = Window::new(self.settings.statistics_window, self.settings.caller_patience());
        self.change(State::Good, Reason::Operator, Figures::default(), now)
    }

    /// The configuration changed. The state, the window and the running batch stay, trimmed where they became shorter;
    /// a batch that is full by the new length is judged at once, and an interval keeps its beginning. A connection that
    /// is not monitored any more is good.
    pub fn set_settings(&mut self, settings: Settings, now: Timestamp) -> Option<Change> {
        if settings == self.settings {
            return None;
        }
        let (patience, was_blocked) = (settings.caller_patience(), self.is_blocking());
        self.window = Window::of(self.window.samples().copied(), settings.statistics_window, patience);
        // The batch is the first attempts to finish, so it is the latest that go.
        let first = self.batch.samples().copied().take(settings.retry_batch.max(1));
        self.batch = Window::of(first, settings.retry_batch, patience);
        self.settings = settings;
        if !self.settings.is_monitored() {
            return self.release(now);
        }
        if self.state == State::Bad && was_blocked != self.is_blocking() {
            // What was placed while blocked has no say in an early batch, and a blocked connection has no such batch.
            self.begin_epoch(now);
        }
        self.judge_batch(now)
    }

    /// What must survive a restart.
    #[must_use]
    pub fn save(&self) -> Saved {
        Saved {
            settings: self.settings.clone(),
            state: self.state,
            since: self.since,
            epochs: self.epochs.iter().copied().collect(),
            measured_from: self.measured_from,
            window: self.window.samples().copied().collect(),
            batch: self.batch.samples().copied().collect(),
            interval_from: self.interval_from,
            bad_in_row: self.bad_in_row,
            turned_bad_at: self.turned_bad_at,
        }
    }

    /// Goes on from what was saved, under the settings of today; the change is what those make of it, see
    /// [`Machine::set_settings`].
    ///
    /// Attempts that were up then count as placed again once they are [`resumed`](Machine::resumed) or
    /// [`adopted`](Machine::adopted). A number kept from before could hold places of a batch for attempts whose end
    /// nobody will ever see.
    #[must_use]
    pub fn restore(saved: Saved, settings: Settings, now: Timestamp) -> (Self, Option<Change>) {
        let Saved {
            settings: then,
            state,
            since,
            epochs,
            measured_from,
            window,
            batch,
            interval_from,
            bad_in_row,
            turned_bad_at,
        } = saved;
        let mut epochs = VecDeque::from(epochs);
        if epochs.is_empty() {
            epochs.push_back((measured_from, since));
        }
        let patience = then.caller_patience();
        let mut machine = Self {
            state,
            since,
            epochs,
            measured_from,
            window: Window::of(window, then.statistics_window, patience),
            placed: batch.len(),
            batch: Window::of(batch, then.retry_batch, patience),
            // A clock that was ahead when this was saved must not hold a connection back for longer than an interval.
            interval_from: interval_from.min(now),
            bad_in_row,
            turned_bad_at,
            judged: Vec::new(),
            settings: then,
        };
        let change = machine.set_settings(settings, now);
        (machine, change)
    }

    /// The epoch that was in force at `placed_at`.
    #[must_use]
    pub fn epoch_at(&self, placed_at: Timestamp) -> Epoch {
        let known = self.epochs.iter().rev().find(|(_, began)| *began <= placed_at).map(|(epoch, _)| *epoch);
        known.unwrap_or_else(|| match self.epochs.front() {
            Some((Epoch(oldest), _)) => Epoch(oldest.saturating_sub(1)),
            None => Epoch::default(),
        })
    }

    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epochs.back().map(|(epoch, _)| *epoch).unwrap_or_default()
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// When it came into its state. A bad verdict on an early batch does not move it.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// When it last turned from good to bad, whatever became of it since; `None` where it never did.
    #[must_use]
    pub fn turned_bad_at(&self) -> Option<Timestamp> {
        self.turned_bad_at
    }

    /// How it is judged.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The last finished attempts. While the connection is not good they are only shown: the batch decides.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The figures over the window.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.window.figures()
    }

    /// The attempts that the last verdict was over which changed the state, oldest end first. For telling of the change:
    /// empty after a retry and after a restart.
    #[must_use]
    pub fn judged(&self) -> &[Sample] {
        &self.judged
    }

    /// How far the running batch is, where one runs.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        let of = self.settings.retry_batch.max(1);
        self.takes_batch().then(|| Progress { done: self.batch.len(), of })
    }

    /// Where it stands in the hunt orders.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let acted_on = match self.state {
            State::Good => false,
            State::Bad => true,
            State::Retry => self.is_withheld(),
        };
        match self.settings.bad_quality_action {
            BadQualityAction::MakeLast if acted_on => Standing::Last,
            BadQualityAction::Block if acted_on => Standing::Blocked,
            BadQualityAction::MakeLast | BadQualityAction::Block | BadQualityAction::NotifyOnly => Standing::Usual,
        }
    }

    /// The state in a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        self.sentence().to_string()
    }

    fn sentence(&self) -> StateSentence {
        let needed = self.settings.needed_calls();
        match self.state {
            State::Good if !self.settings.is_monitored() => StateSentence::Unmonitored,
            State::Good if self.window.len() < needed => {
                StateSentence::TooFew(Progress { done: self.window.len(), of: needed })
            }
            State::Good => StateSentence::Good,
            State::Retry => {
                StateSentence::Retry(Some(Progress { done: self.batch.len(), of: self.settings.retry_batch }))
            }
            State::Bad => match self.settings.bad_quality_action {
                BadQualityAction::MakeLast => StateSentence::Lowered,
                BadQualityAction::Block => StateSentence::Blocked,
                BadQualityAction::NotifyOnly => StateSentence::Bad,
            },
        }
    }

    /// Whether a batch is being measured: always in retry; while bad only where calls keep coming.
    fn takes_batch(&self) -> bool {
        match self.state {
            State::Good => false,
            State::Bad => !self.is_blocking(),
            State::Retry => true,
        }
    }

    fn is_blocking(&self) -> bool {
        self.settings.bad_quality_action == BadQualityAction::Block
    }

    /// Whether the whole batch has been placed and the rest of the calls are to go elsewhere until the verdict.
    fn is_withheld(&self) -> bool {
        self.settings.retry_overflow == RetryOverflow::Withhold && self.placed >= self.settings.retry_batch
    }

    fn judge_window(&mut self, now: Timestamp) -> Option<Change> {
        if self.state != State::Good || self.window.len() < self.settings.needed_calls() {
            return None;
        }
        let figures = self.window.figures();
        let reason = self.settings.crossed(&figures)?;
        self.bad_in_row = 1;
        let change = self.change(State::Bad, reason, figures, now);
        self.judged = self.window.samples().copied().collect();
        Some(change)
    }

    fn judge_batch(&mut self, now: Timestamp) -> Option<Change> {
        if !self.takes_batch() || !self.batch.is_full() {
            return None;
        }
        let figures = self.batch.figures();
        let judged: Vec<Sample> = self.batch.samples().copied().collect();
        let change = if let Some(reason) = self.settings.crossed(&figures) {
            self.bad_in_row = self.bad_in_row.saturating_add(1);
            self.change(State::Bad, reason, figures, now)
        } else {
            self.bad_in_row = 0;
            self.measured_from = self.epoch();
            let (length, patience) = (self.settings.statistics_window, self.settings.caller_patience());
            self.window = Window::of(judged.iter().copied(), length, patience);
            self.change(State::Good, Reason::Batch, figures, now)
        };
        self.judged = judged;
        Some(change)
    }

    /// Nobody judges the connection any more, so nothing must be held against it.
    fn release(&mut self, now: Timestamp) -> Option<Change> {
        if self.state == State::Good {
            return None;
        }
        self.bad_in_row = 0;
        self.measured_from = self.epoch().next();
        Some(self.change(State::Good, Reason::Unmonitored, Figures::default(), now))
    }

    /// The only place that changes the state.
    fn change(&mut self, to: State, reason: Reason, figures: Figures, now: Timestamp) -> Change {
        let from = self.state;
        self.state = to;
        if from != to {
            self.since = now;
        }
        if from == State::Good && to == State::Bad {
            self.turned_bad_at = Some(now);
        }
        if to == State::Bad {
            self.interval_from = now;
        }
        self.judged.clear();
        self.begin_epoch(now);
        Change { at: now, from, to, reason, epoch: self.epoch(), figures }
    }

    fn begin_epoch(&mut self, now: Timestamp) {
        let next = self.epoch().next();
        if self.epochs.len() >= EPOCHS_KEPT {
            self.epochs.pop_front();
        }
        self.epochs.push_back((next, now));
        self.placed = 0;
        self.batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::outcome::Outcome;
    use crate::quality::settings::RetryBackoff;
    use proptest::prelude::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn settings() -> Settings {
        Settings {
            asr_threshold_percent: Some(50.0),
            statistics_window: 4,
            min_calls: 4,
            retry_interval_sec: 100,
            retry_batch: 2,
            ..Settings::default()
        }
    }

    fn end(machine: &mut Machine, epoch: Epoch, outcome: Outcome, now: i64) -> Option<Change> {
        let duration_ms = Some(if outcome == Outcome::Answered { 30_000 } else { 0 });
        let (placed_at, ended_at) = (at(now - 40), at(now));
        let sample =
            Sample { epoch, placed_at, ended_at, outcome, duration_ms, pdd_ms: None, cause: None, sip_status: None };
        machine.finished(&sample, at(now))
    }

    fn call(machine: &mut Machine, outcome: Outcome, now: i64) -> Option<Change> {
        let epoch = machine.placed();
        end(machine, epoch, outcome, now)
    }

    fn bad(settings: Settings) -> Machine {
        let mut machine = Machine::new(settings, at(0));
        for now in 1..=4 {
            call(&mut machine, Outcome::VendorFailed, now);
        }
        assert_eq!((machine.state(), machine.since()), (State::Bad, at(4)));
        machine
    }

    fn retrying(settings: Settings) -> Machine {
        let mut machine = bad(settings);
        assert_eq!(machine.deadline(), Some(at(104)));
        assert_eq!(machine.fire(at(103)), None);
        assert_eq!(machine.fire(at(104)).map(|change| change.to), Some(State::Retry));
        machine
    }

    #[test]
    fn a_life_in_words() {
        let mut machine = Machine::new(settings(), at(0));
        assert_eq!(machine.words(), "Not enough calls yet (0 of 4)");
        for now in 1..=4 {
            call(&mut machine, Outcome::Answered, now);
        }
        assert_eq!(machine.words(), "Connection quality is good");
        assert_eq!(bad(settings()).words(), "Connection preference lowered due to bad quality");
        let block = Settings { bad_quality_action: BadQualityAction::Block, ..settings() };
        assert_eq!(bad(block).words(), "Connection blocked due to bad quality");
        let notify = Settings { bad_quality_action: BadQualityAction::NotifyOnly, ..settings() };
        assert_eq!(bad(notify).words(), "Connection quality is bad (notify only)");
        let mut machine = retrying(settings());
        call(&mut machine, Outcome::Answered, 105);
        assert_eq!(machine.words(), "Connection on retry batch (1 of 2)");
        call(&mut machine, Outcome::Answered, 106);
        assert_eq!(machine.words(), "Not enough calls yet (2 of 4)");
        assert_eq!(Machine::new(Settings::default(), at(0)).words(), "Connection is not monitored");
    }

    #[test]
    fn what_is_not_monitored_is_shown_and_never_judged() {
        let mut machine = Machine::new(Settings::default(), at(0));
        for now in 1..=50 {
            assert_eq!(call(&mut machine, Outcome::VendorFailed, now), None);
        }
        assert_eq!((machine.figures().calls, machine.figures().asr), (20, Some(0.0)));
    }

    #[test]
    fn the_action_decides_the_standing() {
        for (action, bad_standing) in [
            (BadQualityAction::MakeLast, Standing::Last),
            (BadQualityAction::Block, Standing::Blocked),
            (BadQualityAction::NotifyOnly, Standing::Usual),
        ] {
            let settings = Settings { bad_quality_action: action, ..settings() };
            assert_eq!(bad(settings.clone()).standing(), bad_standing);
            let mut machine = retrying(settings.clone());
            for _ in 0..5 {
                machine.placed();
            }
            assert_eq!(machine.standing(), Standing::Usual, "the overflow stays");
            let withhold = Settings { retry_overflow: RetryOverflow::Withhold, ..settings };
            let mut machine = retrying(withhold);
            machine.placed();
            assert_eq!(machine.standing(), Standing::Usual);
            machine.placed();
            assert_eq!(machine.standing(), bad_standing, "the batch is placed");
        }
    }

    #[test]
    fn an_attempt_without_a_say_gives_its_place_in_the_batch_back() {
        let withhold = Settings { retry_overflow: RetryOverflow::Withhold, ..settings() };
        let mut machine = retrying(withhold);
        let (first, second) = (machine.placed(), machine.placed());
        assert_eq!(machine.standing(), Standing::Last);
        end(&mut machine, first, Outcome::NotSent, 105);
        assert_eq!(machine.standing(), Standing::Usual, "or a blocked connection would wait for ever");
        machine.placed();
        assert_eq!(machine.standing(), Standing::Last);
        machine.forgotten(second);
        assert_eq!(machine.standing(), Standing::Usual);
        machine.forgotten(Epoch(0));
        assert_eq!(machine.placed, 1, "an attempt of another epoch held no place");
    }

    #[test]
    fn attempts_up_over_a_restart_count_once() {
        let withhold = Settings { retry_overflow: RetryOverflow::Withhold, ..settings() };
        let mut machine = retrying(withhold.clone());
        machine.placed();
        machine.placed();
        let (mut again, change) = Machine::restore(machine.save(), withhold, at(200));
        assert_eq!((again.standing(), change), (Standing::Usual, None));
        assert_eq!(again.adopted(at(50)), Epoch(1), "placed while bad");
        assert_eq!(again.adopted(at(110)), Epoch(2));
        assert_eq!(again.standing(), Standing::Usual);
        assert_eq!(again.adopted(at(111)), Epoch(2));
        assert_eq!(again.standing(), Standing::Last);
    }

    #[test]
    fn an_attempt_known_from_before_a_restart_keeps_its_epoch_whatever_the_clock_of_the_pbx_says() {
        let withhold = Settings { retry_overflow: RetryOverflow::Withhold, ..settings() };
        let (mut machine, _) = Machine::restore(retrying(withhold.clone()).save(), withhold, at(200));
        machine.resumed(Epoch(1));
        machine.resumed(Epoch(1));
        assert_eq!(machine.standing(), Standing::Usual, "or two places of the batch would never be filled");
        machine.resumed(Epoch(2));
        machine.resumed(Epoch(2));
        assert_eq!(machine.standing(), Standing::Last);
    }

    #[test]
    fn a_verdict_keeps_what_it_was_over_and_nothing_else() {
        let mut machine = bad(settings());
        assert_eq!(machine.judged().len(), 4);
        machine.fire(at(104));
        assert_eq!(machine.judged().len(), 0);
        call(&mut machine, Outcome::VendorFailed, 105);
        end(&mut machine, Epoch(0), Outcome::Busy, 106);
        call(&mut machine, Outcome::NoAnswer, 107);
        assert_eq!(machine.state(), State::Bad);
        let judged: Vec<Outcome> = machine.judged().iter().map(|sample| sample.outcome).collect();
        assert_eq!(judged, [Outcome::VendorFailed, Outcome::NoAnswer]);
    }

    #[test]
    fn an_attempt_found_late_belongs_to_the_epoch_of_its_placing() {
        let machine = retrying(settings());
        let epoch_of = |secs| machine.epoch_at(at(secs)).0;
        assert_eq!([-5, 0, 3, 4, 103, 104, 9_999].map(epoch_of), [0, 0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn each_bad_verdict_in_a_row_waits_longer_and_a_good_one_starts_anew() {
        let backoff = Some(RetryBackoff { factor: 3.0, max_sec: 500 });
        let mut machine = bad(Settings { retry_backoff: backoff, ..settings() });
        let fail_a_batch = |machine: &mut Machine| {
            let due = machine.deadline().expect("bad");
            machine.fire(due);
            let now = due.as_micros() / 1_000_000;
            call(machine, Outcome::VendorFailed, now);
            call(machine, Outcome::VendorFailed, now);
            (machine.deadline().expect("bad").as_micros() / 1_000_000) - now
        };
        assert_eq!([(); 3].map(|()| fail_a_batch(&mut machine)), [300, 500, 500]);
        let due = machine.deadline().expect("bad");
        machine.fire(due);
        call(&mut machine, Outcome::Answered, 5_000);
        call(&mut machine, Outcome::Answered, 5_000);
        assert_eq!(machine.state(), State::Good);
        for _ in 0..3 {
            call(&mut machine, Outcome::VendorFailed, 6_000);
        }
        assert_eq!((machine.state(), machine.deadline()), (State::Bad, Some(at(6_100))));
    }

    #[test]
    fn a_shorter_interval_counts_from_the_verdict() {
        let mut machine = bad(settings());
        assert_eq!(machine.set_settings(Settings { retry_interval_sec: 30, ..settings() }, at(90)), None);
        assert_eq!(machine.deadline(), Some(at(34)));
    }

    #[test]
    fn a_batch_that_is_full_by_a_new_length_is_judged_at_once() {
        let mut machine = retrying(settings());
        call(&mut machine, Outcome::Answered, 105);
        let change = machine.set_settings(Settings { retry_batch: 1, ..settings() }, at(106)).expect("a verdict");
        assert_eq!((change.to, change.reason, change.figures.calls), (State::Good, Reason::Batch, 1));
    }

    #[test]
    fn a_shorter_window_keeps_the_latest() {
        let mut machine = Machine::new(settings(), at(0));
        for (now, outcome) in [(1, Outcome::Answered), (2, Outcome::Busy), (3, Outcome::NoAnswer)] {
            call(&mut machine, outcome, now);
        }
        machine.set_settings(Settings { statistics_window: 2, ..settings() }, at(4));
        let kept: Vec<Outcome> = machine.window().samples().map(|sample| sample.outcome).collect();
        assert_eq!((kept, machine.state()), (vec![Outcome::Busy, Outcome::NoAnswer], State::Good));
    }

    #[test]
    fn what_was_placed_while_blocked_has_no_say_after_the_action_changed() {
        let block = Settings { bad_quality_action: BadQualityAction::Block, ..settings() };
        let mut machine = bad(block.clone());
        let while_blocked = machine.placed();
        assert_eq!(machine.set_settings(settings(), at(50)), None);
        for now in 51..=54 {
            assert_eq!(end(&mut machine, while_blocked, Outcome::Answered, now), None);
        }
        assert_eq!((machine.deadline(), machine.progress().map(|p| p.done)), (Some(at(104)), Some(0)));
        call(&mut machine, Outcome::Answered, 55);
        assert_eq!(machine.progress().map(|p| p.done), Some(1));
        machine.set_settings(block, at(56));
        assert_eq!(machine.progress(), None);
    }

    #[test]
    fn who_is_not_monitored_any_more_is_good() {
        let mut machine = bad(settings());
        let change = machine.set_settings(Settings::default(), at(60)).expect("a change");
        assert_eq!((change.from, change.to, change.reason), (State::Bad, State::Good, Reason::Unmonitored));
        assert_eq!((machine.standing(), machine.deadline()), (Standing::Usual, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// A restart between any two events changes nothing of what follows.
        #[test]
        fn a_restart_forgets_nothing(
            action in 0_usize..3,
            events in proptest::collection::vec((0_u8..4, 0_usize..5, any::<bool>()), 0..120),
        ) {
            let actions = [BadQualityAction::MakeLast, BadQualityAction::Block, BadQualityAction::NotifyOnly];
            let settings = Settings {
                bad_quality_action: actions[action],
                retry_interval_sec: 5,
                retry_backoff: Some(RetryBackoff { factor: 1.5, max_sec: 20 }),
                ..settings()
            };
            let mut machine = Machine::new(settings.clone(), at(0));
            let mut restarted = machine.clone();
            let mut up = Vec::new();
            for (now, (what, which, good)) in (1..).zip(events) {
                if what == 0 || up.is_empty() {
                    up.push(machine.placed());
                    prop_assert_eq!(restarted.placed(), machine.epoch());
                } else {
                    let epoch = up.swap_remove(which % up.len());
                    let outcome = if good { Outcome::Answered } else { Outcome::VendorFailed };
                    prop_assert_eq!(end(&mut machine, epoch, outcome, now), end(&mut restarted, epoch, outcome, now));
                }
                prop_assert_eq!(machine.fire(at(now)), restarted.fire(at(now)));
                let text = serde_json::to_string(&restarted.save()).expect("JSON");
                let saved: Saved = serde_json::from_str(&text).expect("what was saved");
                let change;
                (restarted, change) = Machine::restore(saved, settings.clone(), at(now));
                prop_assert_eq!(change, None);
                (restarted.placed, restarted.judged) = (machine.placed, machine.judged.clone());
                prop_assert_eq!(&restarted, &machine);
            }
        }
    }
}
