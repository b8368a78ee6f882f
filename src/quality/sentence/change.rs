//! A change of a connection, with the figures that led to it or the reason that an operator gave.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{Unreadable, because, calls, place, read_because, read_calls, read_place, read_until};
use crate::call::outcome::Outcome;
use crate::quality::machine::{Change, Reason, State};
use crate::quality::pin::Pin;
use crate::quality::settings::{BadQualityAction, Settings};
use crate::quality::window::{Figures, Sample};
use crate::time::Timestamp;

/// How many kinds of failure a sentence lists.
const KINDS_LISTED: usize = 4;

/// Most decimals of a figure: milliseconds and thousandths of a percent.
const MAX_DECIMALS: usize = 3;

const USUAL_PLACE: &str = "back in its usual place for a retry batch of ";
const JUDGED_ANEW: &str = "judged anew by a retry batch of ";
const RECOVERED: &str = "recovered: ";
const BATCH: &str = " over a batch of ";
const UNMONITORED: &str = "not monitored any more, taken as good";
const RESET: &str = "reset by an operator: good, with an empty window";
const UNPINNED: &str = "pin ended";
const PIN_OVER: &str = "the time of its pin is over";
const NO_FIGURES: &str = "no figures";

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeSentence {
    /// Its figures were bad.
    Bad {
        /// What that did.
        done: Done,
        /// The figure that crossed its threshold.
        readings: Vec<Reading>,
        /// Over how many calls.
        calls: usize,
        /// What those that failed came to.
        failures: Failures,
    },
    /// It gets a batch of calls to be judged anew by.
    Retry {
        /// Calls of the batch.
        batch: usize,
        /// Whether it comes back into its place for that; else it never left it.
        back: bool,
    },
    /// A batch was good.
    Recovered {
        /// Its figures.
        readings: Vec<Reading>,
        /// How many calls it had.
        calls: usize,
    },
    /// It is not judged any more.
    Unmonitored,
    /// An operator had it begin anew.
    Reset {
        /// Why, in their words; may be empty.
        why: String,
    },
    /// An operator said how it is routed.
    Pinned {
        /// How.
        pin: Pin,
        /// Until when; in thousandths of a second.
        until: Option<Timestamp>,
        /// Why, in their words; may be empty.
        why: String,
    },
    /// An operator ended that.
    Unpinned {
        /// Why, in their words; may be empty.
        why: String,
    },
    /// The time of a pin is over.
    PinOver,
}

/// What bad figures did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the word that it is written as")]
pub enum Done {
    Lowered,
    LoweredAgain,
    StillLowered,
    Blocked,
    BlockedAgain,
    Bad,
    BadAgain,
    StillBad,
}

/// A figure that a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Answer-seizure ratio, in percent; bad under its threshold.
    Asr,
    /// Average call duration, in seconds; bad under its threshold.
    Acd,
    /// Post-dial delay, in seconds; bad over its threshold.
    Pdd,
}

/// A figure, beside its threshold where it crossed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Of what.
    pub metric: Metric,
    /// Its value.
    pub value: Digits,
    /// The threshold.
    pub limit: Option<Digits>,
}

/// A number as it is written in a sentence, with a decimal point: every language shows the same digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digits(String);

/// What the calls that failed came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many of each kind, most frequent first.
    pub kinds: Vec<(usize, Kind)>,
    /// How many others.
    pub others: usize,
}

/// What a failed call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// This SIP status.
    Status(u16),
    /// This Q.850 cause.
    Cause(u16),
    /// It was answered and over at once.
    AnsweredForNothing,
    /// The caller gave up.
    CallerGone,
    /// Nobody answered.
    NoAnswer,
    /// The vendor gave no sign at all.
    NoSign,
}

impl ChangeSentence {
    /// Of a change of state. `measured` are the attempts that the verdict was over, `why` an operator's reason where it
    /// was their word.
    #[must_use]
    pub fn new<'a>(
        change: &Change,
        settings: &Settings,
        measured: impl Iterator<Item = &'a Sample>,
        why: &str,
    ) -> Self {
        let calls = change.figures.calls;
        match (change.to, change.reason) {
            (State::Retry, _) => Self::Retry {
                batch: settings.retry_batch,
                back: settings.bad_quality_action != BadQualityAction::NotifyOnly,
            },
            (State::Good, Reason::Unmonitored) => Self::Unmonitored,
            (State::Good, Reason::Operator) => Self::Reset { why: why.to_owned() },
            (State::Good, _) => Self::Recovered { readings: readings(&change.figures), calls },
            (State::Bad, reason) => Self::Bad {
                done: Done::new(settings.bad_quality_action, change.from),
                readings: crossed(&change.figures, reason, settings),
                calls,
                failures: Failures::of(measured),
            },
        }
    }
}

impl Done {
    const ALL: [Self; 8] = [
        Self::Lowered,
        Self::LoweredAgain,
        Self::StillLowered,
        Self::Blocked,
        Self::BlockedAgain,
        Self::Bad,
        Self::BadAgain,
        Self::StillBad,
    ];

    fn new(action: BadQualityAction, from: State) -> Self {
        match (action, from) {
            (BadQualityAction::MakeLast, State::Good) => Self::Lowered,
            (BadQualityAction::MakeLast, State::Retry) => Self::LoweredAgain,
            (BadQualityAction::MakeLast, State::Bad) => Self::StillLowered,
            (BadQualityAction::Block, State::Retry) => Self::BlockedAgain,
            (BadQualityAction::Block, _) => Self::Blocked,
            (BadQualityAction::NotifyOnly, State::Good) => Self::Bad,
            (BadQualityAction::NotifyOnly, State::Retry) => Self::BadAgain,
            (BadQualityAction::NotifyOnly, State::Bad) => Self::StillBad,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Lowered => "lowered",
            Self::LoweredAgain => "lowered again",
            Self::StillLowered => "still lowered",
            Self::Blocked => "blocked",
            Self::BlockedAgain => "blocked again",
            Self::Bad => "bad (notify only)",
            Self::BadAgain => "bad again",
            Self::StillBad => "still bad",
        }
    }
}

impl Metric {
    const ALL: [Self; 3] = [Self::Asr, Self::Acd, Self::Pdd];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asr => "ASR",
            Self::Acd => "ACD",
            Self::Pdd => "PDD",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Asr => "%",
            Self::Acd | Self::Pdd => "s",
        }
    }

    /// On which side of its threshold it is bad.
    fn side(self) -> &'static str {
        match self {
            Self::Asr | Self::Acd => "under",
            Self::Pdd => "over",
        }
    }

    fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Asr => figures.asr,
            Self::Acd => figures.acd,
            Self::Pdd => figures.pdd,
        }
    }

    fn threshold(self, settings: &Settings) -> Option<f64> {
        match self {
            Self::Asr => settings.asr_threshold_percent,
            Self::Acd => settings.acd_threshold_sec,
            Self::Pdd => settings.pdd_threshold_sec,
        }
    }

    fn reading(self, figures: &Figures, limit: Option<f64>) -> Option<Reading> {
        let value = self.of(figures)?;
        let decimals = decimals(value, limit);
        let limit = limit.map(|limit| Digits(limit.to_string()));
        Some(Reading { metric: self, value: Digits(format!("{value:.decimals$}")), limit })
    }
}

/// How many decimals a figure is written with: one, or as many as tell it from the threshold that it differs from.
pub(crate) fn decimals(value: f64, threshold: Option<f64>) -> usize {
    let differs = |decimals: &usize| {
        threshold.is_none_or(|limit| {
            limit.total_cmp(&value).is_eq() || format!("{value:.decimals$}") != format!("{limit:.decimals$}")
        })
    };
    (1..MAX_DECIMALS).find(differs).unwrap_or(MAX_DECIMALS)
}

/// The figures that are known.
fn readings(figures: &Figures) -> Vec<Reading> {
    Metric::ALL.into_iter().filter_map(|metric| metric.reading(figures, None)).collect()
}

/// The figure that crossed its threshold.
fn crossed(figures: &Figures, reason: Reason, settings: &Settings) -> Vec<Reading> {
    let metric = match reason {
        Reason::Asr => Metric::Asr,
        Reason::Acd => Metric::Acd,
        Reason::Pdd => Metric::Pdd,
        Reason::RetryInterval | Reason::Batch | Reason::Unmonitored | Reason::Operator => return readings(figures),
    };
    metric.reading(figures, metric.threshold(settings)).into_iter().collect()
}

impl Failures {
    /// Of the attempts that were not answered.
    fn of<'a>(measured: impl Iterator<Item = &'a Sample>) -> Self {
        let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
        for sample in measured.filter(|sample| !sample.is_success()) {
            *counts.entry(Kind::of(sample)).or_default() += 1;
        }
        let mut kinds: Vec<(usize, Kind)> = counts.into_iter().map(|(kind, count)| (count, kind)).collect();
        kinds.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let others = kinds.iter().skip(KINDS_LISTED).map(|(count, _)| count).sum();
        kinds.truncate(KINDS_LISTED);
        Self { kinds, others }
    }

    fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.others == 0
    }
}

impl Kind {
    const IN_WORDS: [Self; 4] = [Self::AnsweredForNothing, Self::CallerGone, Self::NoAnswer, Self::NoSign];

    fn of(sample: &Sample) -> Self {
        match (sample.outcome, sample.sip_status, sample.cause) {
            (Outcome::Answered, ..) => Self::AnsweredForNothing,
            (Outcome::CallerGone, ..) => Self::CallerGone,
            (Outcome::NoAnswer, None, _) => Self::NoAnswer,
            (_, Some(status), _) => Self::Status(status),
            (_, None, Some(cause)) if cause != 0 => Self::Cause(cause),
            _ => Self::NoSign,
        }
    }
}

impl Digits {
    /// The digits, with a decimal point.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === The sentence written ===

impl fmt::Display for ChangeSentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad { done, readings, calls, failures } => {
                write!(f, "{}: {} over {}", done.as_str(), list(readings), super::calls(*calls))?;
                if failures.is_empty() { Ok(()) } else { write!(f, "; {failures}") }
            }
            Self::Retry { batch, back } => {
                write!(f, "{}{}", if *back { USUAL_PLACE } else { JUDGED_ANEW }, calls(*batch))
            }
            Self::Recovered { readings, calls } => {
                write!(f, "{RECOVERED}{}{BATCH}{}", list(readings), super::calls(*calls))
            }
            Self::Unmonitored => f.write_str(UNMONITORED),
            Self::Reset { why } => write!(f, "{RESET}{}", because(why)),
            Self::Pinned { pin, until, why } => {
                write!(f, "{}{}{}", place(*pin), super::until(*until), because(why))
            }
            Self::Unpinned { why } => write!(f, "{UNPINNED}{}", because(why)),
            Self::PinOver => f.write_str(PIN_OVER),
        }
    }
}

fn list(readings: &[Reading]) -> String {
    if readings.is_empty() {
        return NO_FIGURES.to_owned();
    }
    readings.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (metric, unit) = (self.metric, self.metric.unit());
        write!(f, "{} {} {unit}", metric.as_str(), self.value.0)?;
        self.limit.as_ref().map_or(Ok(()), |limit| write!(f, " {} {} {unit}", metric.side(), limit.0))
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.kinds.iter().map(|(count, kind)| format!("{count} x {kind}")).collect();
        if self.others > 0 {
            parts.push(format!("{} others", self.others));
        }
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Cause(cause) => write!(f, "cause {cause}"),
            Self::AnsweredForNothing => f.write_str("answered for 0 s"),
            Self::CallerGone => f.write_str("caller gave up"),
            Self::NoAnswer => f.write_str("no answer"),
            Self::NoSign => f.write_str("no sign of the vendor"),
        }
    }
}

// === The sentence read ===

impl FromStr for ChangeSentence {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        read_word(text)
            .or_else(|| read_retry(text))
            .or_else(|| read_pin(text))
            .or_else(|| read_recovered(text))
            .or_else(|| read_bad(text))
            .ok_or(Unreadable)
    }
}

fn read_word(text: &str) -> Option<ChangeSentence> {
    match text {
        UNMONITORED => Some(ChangeSentence::Unmonitored),
        PIN_OVER => Some(ChangeSentence::PinOver),
        _ => None,
    }
}

fn read_retry(text: &str) -> Option<ChangeSentence> {
    let (batch, back) = match text.strip_prefix(USUAL_PLACE) {
        Some(batch) => (batch, true),
        None => (text.strip_prefix(JUDGED_ANEW)?, false),
    };
    Some(ChangeSentence::Retry { batch: read_calls(batch)?, back })
}

fn read_pin(text: &str) -> Option<ChangeSentence> {
    if let Some(why) = text.strip_prefix(RESET) {
        return Some(ChangeSentence::Reset { why: read_because(why)? });
    }
    if let Some(why) = text.strip_prefix(UNPINNED) {
        return Some(ChangeSentence::Unpinned { why: read_because(why)? });
    }
    let (pin, rest) = read_place(text)?;
    let (until, why) = read_until(rest)?;
    Some(ChangeSentence::Pinned { pin, until, why: read_because(why)? })
}

fn read_recovered(text: &str) -> Option<ChangeSentence> {
    let (readings, calls) = text.strip_prefix(RECOVERED)?.rsplit_once(BATCH)?;
    Some(ChangeSentence::Recovered { readings: read_list(readings)?, calls: read_calls(calls)? })
}

fn read_bad(text: &str) -> Option<ChangeSentence> {
    let (done, rest) = text.split_once(": ")?;
    let done = Done::ALL.into_iter().find(|known| known.as_str() == done)?;
    let (figures, failures) = match rest.split_once("; ") {
        Some((figures, failures)) => (figures, read_failures(failures)?),
        None => (rest, Failures::default()),
    };
    let (readings, calls) = figures.rsplit_once(" over ")?;
    Some(ChangeSentence::Bad { done, readings: read_list(readings)?, calls: read_calls(calls)?, failures })
}

fn read_list(text: &str) -> Option<Vec<Reading>> {
    if text == NO_FIGURES { Some(Vec::new()) } else { text.split(", ").map(read_reading).collect() }
}

fn read_reading(text: &str) -> Option<Reading> {
    let words: Vec<&str> = text.split(' ').collect();
    let (name, value, unit, limit) = match words.as_slice() {
        [name, value, unit] => (name, value, unit, None),
        [name, value, unit, side, limit, again] if again == unit => (name, value, unit, Some((side, limit))),
        _ => return None,
    };
    let metric = Metric::ALL.into_iter().find(|metric| metric.as_str() == *name && metric.unit() == *unit)?;
    let limit = match limit {
        Some((side, limit)) if *side == metric.side() => Some(read_digits(limit)?),
        Some(_) => return None,
        None => None,
    };
    Some(Reading { metric, value: read_digits(value)?, limit })
}

fn read_digits(text: &str) -> Option<Digits> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(whole) && digits(decimals)).then(|| Digits(text.to_owned()))
}

fn read_failures(text: &str) -> Option<Failures> {
    let mut failures = Failures::default();
    for part in text.split(", ") {
        match part.strip_suffix(" others") {
            Some(others) => failures.others = others.parse().ok()?,
            None => {
                let (count, kind) = part.split_once(" x ")?;
                failures.kinds.push((count.parse().ok()?, read_kind(kind)?));
            }
        }
    }
    Some(failures)
}

fn read_kind(text: &str) -> Option<Kind> {
    if let Some(cause) = text.strip_prefix("cause ") {
        return cause.parse().ok().map(Kind::Cause);
    }
    let in_words = Kind::IN_WORDS.into_iter().find(|kind| kind.to_string() == text);
    in_words.or_else(|| text.parse().ok().map(Kind::Status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::window::Epoch;
    use crate::store::OUTCOMES;
    use proptest::prelude::*;

    const AT: Timestamp = Timestamp::from_secs(1);

    fn sample(outcome: Outcome, sip_status: Option<u16>, cause: Option<u16>) -> Sample {
        Sample {
            epoch: Epoch(0),
            placed_at: AT,
            ended_at: AT,
            outcome,
            duration_ms: Some(if outcome == Outcome::Answered { 1000 } else { 0 }),
            pdd_ms: None,
            cause,
            sip_status,
        }
    }

    fn settings(action: BadQualityAction) -> Settings {
        Settings {
            asr_threshold_percent: Some(40.0),
            acd_threshold_sec: Some(60.0),
            pdd_threshold_sec: Some(6.5),
            bad_quality_action: action,
            ..Settings::default()
        }
    }

    fn change(from: State, to: State, reason: Reason, figures: Figures) -> Change {
        Change { at: AT, from, to, reason, epoch: Epoch(1), figures }
    }

    fn say(change: &Change, settings: &Settings, measured: &[Sample]) -> String {
        ChangeSentence::new(change, settings, measured.iter(), "").to_string()
    }

    #[test]
    fn a_verdict_names_the_figure_the_threshold_and_what_the_calls_came_to() {
        let settings = settings(BadQualityAction::MakeLast);
        let mut measured = vec![sample(Outcome::Busy, Some(486), None); 4];
        measured.extend(vec![sample(Outcome::VendorFailed, Some(503), None); 9]);
        measured.extend(vec![sample(Outcome::Answered, None, None); 7]);
        let figures = Figures { calls: 20, asr: Some(35.0), acd: Some(30.04), pdd: Some(7.0), ner: None };
        let bad = |reason| say(&change(State::Good, State::Bad, reason, figures), &settings, &measured);
        assert_eq!(bad(Reason::Asr), "lowered: ASR 35.0 % under 40 % over 20 calls; 9 x 503, 4 x 486");
        assert_eq!(bad(Reason::Acd), "lowered: ACD 30.0 s under 60 s over 20 calls; 9 x 503, 4 x 486");
        assert_eq!(bad(Reason::Pdd), "lowered: PDD 7.0 s over 6.5 s over 20 calls; 9 x 503, 4 x 486");
    }

    #[test]
    fn a_figure_that_crossed_never_looks_like_its_threshold() {
        let figures = Figures { calls: 2500, asr: Some(39.96), ..Figures::default() };
        let bad = change(State::Good, State::Bad, Reason::Asr, figures);
        let text = say(&bad, &settings(BadQualityAction::MakeLast), &[]);
        assert_eq!(text, "lowered: ASR 39.96 % under 40 % over 2500 calls");
    }

    #[test]
    fn what_a_bad_verdict_did_depends_on_the_action_and_on_the_state_before() {
        let done = |action, from| {
            let text = say(&change(from, State::Bad, Reason::Asr, Figures::default()), &settings(action), &[]);
            text.split(':').next().unwrap().to_owned()
        };
        let all = |action| [State::Good, State::Retry, State::Bad].map(|from| done(action, from));
        assert_eq!(all(BadQualityAction::MakeLast), ["lowered", "lowered again", "still lowered"]);
        assert_eq!(all(BadQualityAction::Block), ["blocked", "blocked again", "blocked"]);
        assert_eq!(all(BadQualityAction::NotifyOnly), ["bad (notify only)", "bad again", "still bad"]);
    }

    #[test]
    fn every_other_change_says_what_became_of_the_connection() {
        let (last, notify) = (settings(BadQualityAction::MakeLast), settings(BadQualityAction::NotifyOnly));
        let figures = Figures { calls: 10, asr: Some(55.0), acd: Some(42.31), pdd: None, ner: None };
        let retry = change(State::Bad, State::Retry, Reason::RetryInterval, Figures::default());
        assert_eq!(say(&retry, &last, &[]), "back in its usual place for a retry batch of 10 calls");
        assert_eq!(say(&retry, &notify, &[]), "judged anew by a retry batch of 10 calls");
        let one = Settings { retry_batch: 1, ..last.clone() };
        assert_eq!(say(&retry, &one, &[]), "back in its usual place for a retry batch of 1 call");
        let good = |reason| change(State::Retry, State::Good, reason, figures);
        let recovered = say(&good(Reason::Batch), &last, &[]);
        assert_eq!(recovered, "recovered: ASR 55.0 %, ACD 42.3 s over a batch of 10 calls");
        assert_eq!(say(&good(Reason::Unmonitored), &last, &[]), "not monitored any more, taken as good");
        let reset = ChangeSentence::new(&good(Reason::Operator), &last, [].iter(), "new trunk: see ticket");
        assert_eq!(reset.to_string(), "reset by an operator: good, with an empty window: new trunk: see ticket");
    }

    #[test]
    fn the_commonest_failures_are_counted_by_status_by_cause_or_in_words_and_the_rest_together() {
        let failures = |kinds: &[(usize, Sample)]| {
            let measured: Vec<Sample> = kinds.iter().flat_map(|(count, kind)| vec![*kind; *count]).collect();
            Failures::of(measured.iter()).to_string()
        };
        let nothing = Sample { duration_ms: Some(0), ..sample(Outcome::Answered, None, Some(16)) };
        assert_eq!(
            failures(&[
                (1, sample(Outcome::VendorFailed, None, Some(34))),
                (1, sample(Outcome::VendorFailed, Some(503), Some(34))),
                (2, sample(Outcome::CallerGone, Some(487), Some(16))),
                (3, sample(Outcome::NoAnswer, None, Some(16))),
            ]),
            "3 x no answer, 2 x caller gave up, 1 x 503, 1 x cause 34"
        );
        assert_eq!(
            failures(&[
                (9, nothing),
                (8, sample(Outcome::VendorFailed, None, Some(0))),
                (7, sample(Outcome::VendorFailed, Some(500), None)),
                (6, sample(Outcome::VendorFailed, Some(502), None)),
                (5, sample(Outcome::VendorFailed, Some(503), None)),
                (4, sample(Outcome::VendorFailed, Some(504), None)),
            ]),
            "9 x answered for 0 s, 8 x no sign of the vendor, 7 x 500, 6 x 502, 9 others"
        );
    }

    #[test]
    fn what_is_none_of_the_sentences_is_not_read_as_one() {
        for text in [
            "",
            "good -> bad: ASR 35 % is under 40 %",
            "lowered: ASR unknown over 20 calls",
            "lowered: ASR 35.0 % over 40 % over 20 calls",
            "lowered: ASR 35.0 s under 40 s over 20 calls",
            "lowered: ASR 35.0 % under 40 % over 20 calls; 9 x",
            "lowered: ASR -1 % under 40 % over 20 calls",
            "back in its usual place",
            "pinned to the end until noon",
            "pinned to the end until 2026-11-30T12:03:05.000Z, maybe",
            "pin ended by alice",
        ] {
            assert_eq!(text.parse::<ChangeSentence>(), Err(Unreadable), "{text}");
        }
    }

    fn percent() -> impl Strategy<Value = Option<f64>> {
        proptest::option::of(0.0..120.0_f64)
    }

    fn samples() -> impl Strategy<Value = Vec<Sample>> {
        let code = || proptest::option::of(0_u16..700);
        let one = (0..OUTCOMES.len(), code(), code(), proptest::option::of(0_u64..3));
        let one = one.prop_map(|(outcome, status, cause, duration_ms)| Sample {
            duration_ms,
            ..sample(OUTCOMES[outcome], status, cause)
        });
        proptest::collection::vec(one, 0..30)
    }

    fn changes() -> impl Strategy<Value = ChangeSentence> {
        let states = || prop_oneof![Just(State::Good), Just(State::Bad), Just(State::Retry)];
        let reasons = prop_oneof![
            Just(Reason::Asr),
            Just(Reason::Acd),
            Just(Reason::Pdd),
            Just(Reason::RetryInterval),
            Just(Reason::Batch),
            Just(Reason::Unmonitored),
            Just(Reason::Operator),
        ];
        let actions = prop_oneof![
            Just(BadQualityAction::MakeLast),
            Just(BadQualityAction::Block),
            Just(BadQualityAction::NotifyOnly),
        ];
        let figures = (0_usize..40, percent(), percent(), percent());
        let thresholds = (percent(), percent(), percent(), 1_usize..40, actions);
        (states(), states(), reasons, figures, thresholds, samples(), ".*").prop_map(
            |(from, to, reason, (calls, asr, acd, pdd), (a, b, c, retry_batch, action), measured, why)| {
                let settings = Settings {
                    asr_threshold_percent: a,
                    acd_threshold_sec: b,
                    pdd_threshold_sec: c,
                    retry_batch,
                    bad_quality_action: action,
                    ..Settings::default()
                };
                let figures = Figures { calls, asr, acd, pdd, ner: None };
                ChangeSentence::new(&change(from, to, reason, figures), &settings, measured.iter(), &why)
            },
        )
    }

    fn words() -> impl Strategy<Value = ChangeSentence> {
        let pins = prop_oneof![Just(Pin::PinGood), Just(Pin::PinLast), Just(Pin::PinBlock)];
        let until = proptest::option::of((0_i64..10_000_000_000_000).prop_map(|ms| Timestamp::from_micros(ms * 1000)));
        prop_oneof![
            (pins, until, ".*").prop_map(|(pin, until, why)| ChangeSentence::Pinned { pin, until, why }),
            ".*".prop_map(|why| ChangeSentence::Unpinned { why }),
            Just(ChangeSentence::PinOver),
        ]
    }

    proptest! {
        #[test]
        fn every_sentence_that_is_written_is_read_back_as_what_it_says(sentence in prop_oneof![changes(), words()]) {
            let text = sentence.to_string();
            prop_assert_eq!(text.parse(), Ok(sentence), "{}", text);
        }
    }
}
