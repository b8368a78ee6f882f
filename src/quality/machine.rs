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

use crate::quality::settings::{BadQualityAction, RetryOverflow, Settings};
use crate::quality::window::{Epoch, Figures, Sample, Window};
use crate::time::Timestamp;

/// How many beginnings of epochs are remembered for attempts that become known late. A connection with the shortest
/// sensible interval (a minute) changes state twice in it, so this covers more than a quarter of an hour of the worst
/// case; an attempt from before that has no say anyway.
const EPOCHS_KEPT: usize = 32;

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// On the right side of every threshold, or not judged yet.
    Good,
    /// The action applies.
    Bad,
    /// Back in its usual place for a batch of calls.
    Retry,
}

/// Why a state changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
}

/// A change of state, with the figures that led to it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
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
            settings,
        }
    }

    /// An attempt was placed: the epoch that it belongs to.
    pub fn placed(&mut self) -> Epoch {
        self.placed = self.placed.saturating_add(1);
        self.epoch()
    }

    /// An attempt became known that was placed at `placed_at` (a leg found when a link came up, or known before a
    /// restart): the epoch that it belongs to.
    pub fn adopted(&mut self, placed_at: Timestamp) -> Epoch {
        let epoch = self.epoch_at(placed_at);
        if epoch == self.epoch() {
            self.placed = self.placed.saturating_add(1);
        }
        epoch
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
        if self.state == State::Bad || sample.epoch >= self.measured_from {
            self.window.push(*sample);
        }
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
        }
    }

    /// Goes on from what was saved, under the settings of today; the change is what those make of it, see
    /// [`Machine::set_settings`].
    ///
    /// Attempts that were up then count as placed again once they are [`adopted`](Machine::adopted). A number kept from
    /// before could hold places of a batch for attempts whose end nobody will ever see.
    #[must_use]
    pub fn restore(saved: Saved, settings: Settings, now: Timestamp) -> (Self, Option<Change>) {
        let Saved { settings: then, state, since, epochs, measured_from, window, batch, interval_from, bad_in_row } =
            saved;
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
        let needed = self.settings.needed_calls();
        match self.state {
            State::Good if !self.settings.is_monitored() => "Connection is not monitored".to_owned(),
            State::Good if self.window.len() < needed => {
                format!("Not enough calls yet ({} of {needed})", self.window.len())
            }
            State::Good => "Connection quality is good".to_owned(),
            State::Retry => {
                format!("Connection on retry batch ({} of {})", self.batch.len(), self.settings.retry_batch)
            }
            State::Bad => match self.settings.bad_quality_action {
                BadQualityAction::MakeLast => "Connection preference lowered due to bad quality".to_owned(),
                BadQualityAction::Block => "Connection blocked due to bad quality".to_owned(),
                BadQualityAction::NotifyOnly => "Connection quality is bad (notify only)".to_owned(),
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
        Some(self.change(State::Bad, reason, figures, now))
    }

    fn judge_batch(&mut self, now: Timestamp) -> Option<Change> {
        if !self.takes_batch() || !self.batch.is_full() {
            return None;
        }
        let figures = self.batch.figures();
        if let Some(reason) = self.settings.crossed(&figures) {
            self.bad_in_row = self.bad_in_row.saturating_add(1);
            return Some(self.change(State::Bad, reason, figures, now));
        }
        self.bad_in_row = 0;
        self.measured_from = self.epoch();
        let (length, patience) = (self.settings.statistics_window, self.settings.caller_patience());
        self.window = Window::of(self.batch.samples().copied(), length, patience);
        Some(self.change(State::Good, Reason::Batch, figures, now))
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
        if to == State::Bad {
            self.interval_from = now;
        }
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
