//! The states of connections against a second, slow reading of the same rules.
//!
//! The model below shares nothing with the program but the vocabulary. It keeps every attempt for ever, recomputes each
//! figure from the whole list at each end, and compares in whole numbers.

use std::collections::BTreeSet;

use pointsman::call::outcome::Outcome;
use pointsman::ids::{ConnectionId, QualityKey};
use pointsman::quality::book::Book;
use pointsman::quality::history::{self, Attempt};
use pointsman::quality::machine::{Reason, State};
use pointsman::quality::settings::{BadQualityAction, RetryBackoff, RetryOverflow, Settings};
use pointsman::time::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// An attempt of the model; times in whole seconds.
#[derive(Clone, Copy, Debug)]
struct Call {
    connection: usize,
    placed: i64,
    ended: i64,
    outcome: Outcome,
    duration_ms: Option<u64>,
    pdd_ms: Option<u64>,
}

/// A change as both sides tell it.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    at: i64,
    connection: usize,
    from: State,
    to: State,
    reason: Reason,
    calls: usize,
    asr: Option<f64>,
    acd: Option<f64>,
    pdd: Option<f64>,
}

/// What the model knows of one connection.
struct Model {
    connection: usize,
    settings: Settings,
    /// All state changes: (from which second, what state, what the model calls the period).
    period: u64,
    state: State,
    due: Option<i64>,
    /// Attempts of periods before this one have no say in the window.
    first_period: u64,
    /// Every attempt that ended with a say in the ASR, with the period in which it was placed.
    ended: Vec<(u64, Call)>,
    failures_in_row: u32,
}

/// Whole-number thresholds, so that the model needs no fractions to compare.
const ASR: u64 = 50;
const ACD_SEC: u64 = 3;
const PDD_SEC: u64 = 2;

impl Model {
    fn new(connection: usize, settings: Settings) -> Self {
        let state = State::Good;
        Self { connection, settings, period: 0, state, due: None, first_period: 0, ended: vec![], failures_in_row: 0 }
    }

    fn verdict(&self, calls: &[Call]) -> Option<Reason> {
        let lengths: Vec<u64> = calls.iter().filter_map(|c| c.duration_ms).filter(|ms| *ms != 0).collect();
        let unknown = calls.iter().filter(|c| c.outcome == Outcome::Answered && c.duration_ms.is_none()).count();
        let delays: Vec<u64> = calls.iter().filter_map(|c| c.pdd_ms).collect();
        let count = |n: usize| n as u64;
        if self.settings.asr_threshold_percent.is_some()
            && 100 * (count(lengths.len()) + count(unknown)) < ASR * count(calls.len())
        {
            return Some(Reason::Asr);
        }
        if self.settings.acd_threshold_sec.is_some()
            && lengths.iter().sum::<u64>() < ACD_SEC * 1000 * count(lengths.len())
        {
            return Some(Reason::Acd);
        }
        if self.settings.pdd_threshold_sec.is_some()
            && delays.iter().sum::<u64>() > PDD_SEC * 1000 * count(delays.len())
        {
            return Some(Reason::Pdd);
        }
        None
    }

    fn tell(&mut self, at: i64, to: State, reason: Reason, over: &[Call]) -> Told {
        let mean = |values: Vec<u64>| {
            (!values.is_empty()).then(|| values.iter().sum::<u64>() as f64 / (1000 * values.len()) as f64)
        };
        let good = over.iter().filter(|c| match c.duration_ms {
            Some(ms) => ms != 0,
            None => c.outcome == Outcome::Answered,
        });
        let told = Told {
            at,
            connection: self.connection,
            from: self.state,
            to,
            reason,
            calls: over.len(),
            asr: (!over.is_empty()).then(|| (100 * good.count()) as f64 / over.len() as f64),
            acd: mean(over.iter().filter_map(|c| c.duration_ms).filter(|ms| *ms != 0).collect()),
            pdd: mean(over.iter().filter_map(|c| c.pdd_ms).collect()),
        };
        self.state = to;
        self.period += 1;
        self.due = None;
        if to == State::Bad {
            self.failures_in_row += 1;
            let wait = match &self.settings.retry_backoff {
                None => self.settings.retry_interval_sec,
                Some(backoff) => {
                    let mut wait = self.settings.retry_interval_sec;
                    for _ in 1..self.failures_in_row {
                        wait = (wait * backoff.factor as u64).min(backoff.max_sec);
                    }
                    wait
                }
            };
            self.due = Some(at + wait as i64);
        }
        if to == State::Good {
            self.failures_in_row = 0;
        }
        told
    }

    fn timer(&mut self, at: i64) -> Option<Told> {
        (self.due == Some(at)).then(|| self.tell(at, State::Retry, Reason::RetryInterval, &[]))
    }

    fn end(&mut self, at: i64, placed_in: u64, call: Call) -> Option<Told> {
        if matches!(call.outcome, Outcome::LostRace | Outcome::NotSent | Outcome::Lost) {
            return None;
        }
        self.ended.push((placed_in, call));
        let nothing_comes = self.settings.bad_quality_action == BadQualityAction::Block;
        match self.state {
            State::Bad if nothing_comes => None,
            State::Bad | State::Retry => {
                let of_now = self.ended.iter().filter(|(period, _)| *period == self.period);
                let batch: Vec<Call> = of_now.map(|(_, call)| *call).collect();
                if batch.len() < self.settings.retry_batch {
                    return None;
                }
                Some(match self.verdict(&batch) {
                    Some(reason) => self.tell(at, State::Bad, reason, &batch),
                    None => {
                        self.first_period = self.period;
                        self.tell(at, State::Good, Reason::Batch, &batch)
                    }
                })
            }
            State::Good => {
                if placed_in < self.first_period {
                    return None;
                }
                let counted = self.ended.iter().filter(|(period, _)| *period >= self.first_period);
                let counted: Vec<Call> = counted.map(|(_, call)| *call).collect();
                let window = &counted[counted.len().saturating_sub(self.settings.statistics_window)..];
                if window.len() < self.settings.min_calls {
                    return None;
                }
                let reason = self.verdict(window)?;
                Some(self.tell(at, State::Bad, reason, window))
            }
        }
    }
}

/// Second by second, as the rules are written.
fn slowly(settings: &[Settings], calls: &[Call]) -> Vec<Told> {
    let mut models: Vec<Model> = settings.iter().enumerate().map(|(i, s)| Model::new(i, s.clone())).collect();
    let mut periods = vec![None; calls.len()];
    let mut told = vec![];
    let last = calls.iter().map(|call| call.ended).max().unwrap_or(0);
    for now in 0..=last {
        for model in &mut models {
            told.extend(model.timer(now));
        }
        for (i, call) in calls.iter().enumerate().filter(|(_, c)| c.ended == now && c.placed < now) {
            told.extend(models[call.connection].end(now, periods[i].expect("placed before"), *call));
        }
        for (i, call) in calls.iter().enumerate().filter(|(_, c)| c.placed == now) {
            periods[i] = Some(models[call.connection].period);
        }
        for (i, call) in calls.iter().enumerate().filter(|(_, c)| c.ended == now && c.placed == now) {
            told.extend(models[call.connection].end(now, periods[i].expect("placed now"), *call));
        }
    }
    told
}

fn key(connection: usize) -> QualityKey {
    QualityKey::connection(ConnectionId::new(&format!("v{connection}")).expect("an id"))
}

fn by_the_program(settings: &[Settings], calls: &[Call]) -> Vec<Told> {
    let keys = settings.iter().enumerate().map(|(i, s)| (key(i), s.clone()));
    let mut book = Book::new(keys, Timestamp::from_secs(0));
    let attempts: Vec<Attempt> = (calls.iter())
        .map(|call| Attempt {
            seat: book.seat(&key(call.connection)).expect("configured"),
            placed_at: Timestamp::from_secs(call.placed),
            ended_at: Timestamp::from_secs(call.ended),
            outcome: call.outcome,
            duration_ms: call.duration_ms,
            pdd_ms: call.pdd_ms,
        })
        .collect();
    let last = Timestamp::from_secs(calls.iter().map(|call| call.ended).max().unwrap_or(0));
    let mut told = vec![];
    history::play::<()>(&mut book, &attempts, last, |book, seat, change| {
        let connection = (0..settings.len()).find(|i| key(*i) == *book.key(seat)).expect("configured");
        let f = change.figures;
        let at = change.at.as_micros() / 1_000_000;
        let (from, to, reason) = (change.from, change.to, change.reason);
        told.push(Told { at, connection, from, to, reason, calls: f.calls, asr: f.asr, acd: f.acd, pdd: f.pdd });
        Ok(())
    })
    .expect("told");
    told
}

fn settings() -> impl Strategy<Value = Settings> {
    let monitors = (any::<bool>(), any::<bool>(), any::<bool>());
    let lengths = (1_usize..7, 1_usize..7, 1_usize..5, 1_u64..12);
    let action = prop_oneof![
        Just(BadQualityAction::MakeLast),
        Just(BadQualityAction::Block),
        Just(BadQualityAction::NotifyOnly)
    ];
    let backoff = proptest::option::of(Just(RetryBackoff { factor: 2.0, max_sec: 24 }));
    (monitors, lengths, action, any::<bool>(), backoff).prop_map(
        |((asr, acd, pdd), (window, min_calls, batch, interval), action, withhold, retry_backoff)| Settings {
            asr_threshold_percent: asr.then_some(ASR as f64),
            acd_threshold_sec: acd.then_some(ACD_SEC as f64),
            pdd_threshold_sec: pdd.then_some(PDD_SEC as f64),
            statistics_window: window,
            min_calls: min_calls.min(window),
            retry_interval_sec: interval,
            retry_backoff,
            retry_batch: batch,
            retry_overflow: if withhold { RetryOverflow::Withhold } else { RetryOverflow::Stay },
            bad_quality_action: action,
            ..Settings::default()
        },
    )
}

/// Calls of three connections within about a minute, so that many things happen at one instant. `luck` is how many of
/// ten calls are good: seasons of either kind make the states change.
fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = (0_usize..3, 0_i64..60, prop_oneof![Just(0_i64), 0_i64..6, 0_i64..25], 0_u8..10, 0_u8..12, 0_u64..6);
    (proptest::collection::vec(call, 0..160), proptest::collection::vec(0_u8..=10, 7)).prop_map(|(calls, luck)| {
        let call = |(connection, placed, length, chance, kind, ms): (usize, i64, i64, u8, u8, u64)| {
            let season = usize::try_from(placed / 10).unwrap_or(0);
            let (outcome, duration_ms, pdd_ms) = if chance < luck[season] {
                match kind {
                    0 => (Outcome::Answered, None, None),
                    1 => (Outcome::Answered, Some(0), Some(0)),
                    2 => (Outcome::Answered, Some(3000), Some(2000)),
                    _ => (Outcome::Answered, Some(2990 + ms * 10), (kind > 4).then_some(1990 + ms * 5)),
                }
            } else {
                match kind {
                    0 => (Outcome::LostRace, Some(0), Some(9000)),
                    1 => (Outcome::NotSent, Some(0), None),
                    2 => (Outcome::Lost, None, None),
                    3 => (Outcome::CallerGone, Some(0), Some(2000 + ms)),
                    4 => (Outcome::Busy, Some(0), Some(1990 + ms * 10)),
                    _ => (Outcome::VendorFailed, Some(0), None),
                }
            };
            Call { connection, placed, ended: placed + length, outcome, duration_ms, pdd_ms }
        };
        calls.into_iter().map(call).collect()
    })
}

/// `PROPTEST_CASES=100000 cargo test --release --test quality_model` looks longer.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_program_decides_as_the_rules_are_written(
        settings in proptest::collection::vec(settings(), 3),
        calls in calls(),
    ) {
        prop_assert_eq!(by_the_program(&settings, &calls), slowly(&settings, &calls));
    }
}

/// The sequences above are worth something only if they reach every arrow of the state diagram.
#[test]
fn the_random_sequences_reach_every_change() {
    let mut seen = BTreeSet::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..400 {
        let tree = (proptest::collection::vec(settings(), 3), calls()).new_tree(&mut runner).expect("a sequence");
        let (settings, calls) = tree.current();
        for told in slowly(&settings, &calls) {
            let action = settings[told.connection].bad_quality_action;
            seen.insert(format!("{action:?} {:?} {:?} {:?}", told.from, told.to, told.reason));
        }
    }
    let blocked_has_no_early_batch = |from: State, action| from == State::Bad && action == BadQualityAction::Block;
    for action in [BadQualityAction::MakeLast, BadQualityAction::Block, BadQualityAction::NotifyOnly] {
        for (from, to, reasons) in [
            (State::Good, State::Bad, &[Reason::Asr, Reason::Acd, Reason::Pdd][..]),
            (State::Bad, State::Bad, &[Reason::Asr, Reason::Acd, Reason::Pdd]),
            (State::Bad, State::Good, &[Reason::Batch]),
            (State::Bad, State::Retry, &[Reason::RetryInterval]),
            (State::Retry, State::Bad, &[Reason::Asr, Reason::Acd, Reason::Pdd]),
            (State::Retry, State::Good, &[Reason::Batch]),
        ] {
            for reason in reasons {
                let arrow = format!("{action:?} {from:?} {to:?} {reason:?}");
                let expected = to == State::Retry || !blocked_has_no_early_batch(from, action);
                assert_eq!(seen.contains(&arrow), expected, "{arrow}");
            }
        }
    }
}
