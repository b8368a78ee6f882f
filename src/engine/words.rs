//! A change of state in a sentence, with the figures that led to it: what the log, the audit and the terminal show.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::call::outcome::Outcome;
use crate::quality::machine::{Change, Reason, State};
use crate::quality::pin::{Pin, Pinned};
use crate::quality::settings::{BadQualityAction, Settings};
use crate::quality::window::{Figures, Sample};
use crate::time::Timestamp;

/// How many kinds of failure a sentence lists.
const KINDS_LISTED: usize = 4;

/// The change in a sentence. `measured` are the attempts that the verdict was over.
#[must_use]
pub fn change<'a>(change: &Change, settings: &Settings, measured: impl Iterator<Item = &'a Sample>) -> String {
    match (change.to, change.reason) {
        (State::Retry, _) if settings.bad_quality_action == BadQualityAction::NotifyOnly => {
            format!("judged anew by a retry batch of {} calls", settings.retry_batch)
        }
        (State::Retry, _) => {
            format!("back in its usual place for a retry batch of {} calls", settings.retry_batch)
        }
        (State::Good, Reason::Unmonitored) => "not monitored any more, taken as good".to_owned(),
        (State::Good, Reason::Operator) => "reset by an operator: good, with an empty window".to_owned(),
        (State::Good, _) => {
            format!("recovered: {} over a batch of {}", figures(&change.figures), calls(&change.figures))
        }
        (State::Bad, reason) => {
            let mut text = format!(
                "{}: {} over {}",
                verb(change, settings),
                crossed(change, reason, settings),
                calls(&change.figures)
            );
            let failures = failures(measured);
            if !failures.is_empty() {
                let _ = write!(text, "; {failures}");
            }
            text
        }
    }
}

/// An operator's word over a verdict.
#[must_use]
pub fn pinned(pin: Pin, until: Option<Timestamp>, why: &str) -> String {
    let place = match pin {
        Pin::PinGood => "pinned to its usual place",
        Pin::PinLast => "pinned to the end",
        Pin::PinBlock => "pinned: gets no calls",
    };
    let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
    format!("{place}{until}{}", because(why))
}

/// A pin that is in force.
#[must_use]
pub fn pinned_by(pinned: &Pinned) -> String {
    format!("{} by {}", self::pinned(pinned.pin, pinned.until, &pinned.why), pinned.who)
}

/// An operator ended a pin.
#[must_use]
pub fn unpinned(why: &str) -> String {
    format!("pin ended{}", because(why))
}

/// The time of a pin is over.
#[must_use]
pub fn pin_over() -> String {
    "the time of its pin is over".to_owned()
}

/// The reason that an operator gave, after what they did; empty where they gave none.
#[must_use]
pub fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

fn verb(change: &Change, settings: &Settings) -> &'static str {
    match (settings.bad_quality_action, change.from) {
        (BadQualityAction::MakeLast, State::Bad) => "still lowered",
        (BadQualityAction::MakeLast, State::Retry) => "lowered again",
        (BadQualityAction::MakeLast, State::Good) => "lowered",
        (BadQualityAction::Block, State::Retry) => "blocked again",
        (BadQualityAction::Block, _) => "blocked",
        (BadQualityAction::NotifyOnly, State::Bad) => "still bad",
        (BadQualityAction::NotifyOnly, State::Retry) => "bad again",
        (BadQualityAction::NotifyOnly, State::Good) => "bad (notify only)",
    }
}

fn crossed(change: &Change, reason: Reason, settings: &Settings) -> String {
    let figures = &change.figures;
    match reason {
        Reason::Asr => against("ASR", figures.asr, "%", "under", settings.asr_threshold_percent),
        Reason::Acd => against("ACD", figures.acd, "s", "under", settings.acd_threshold_sec),
        Reason::Pdd => against("PDD", figures.pdd, "s", "over", settings.pdd_threshold_sec),
        Reason::RetryInterval | Reason::Batch | Reason::Unmonitored | Reason::Operator => self::figures(figures),
    }
}

fn against(name: &str, figure: Option<f64>, unit: &str, side: &str, threshold: Option<f64>) -> String {
    match (figure, threshold) {
        (Some(figure), Some(threshold)) => format!("{name} {figure:.1} {unit} {side} {threshold} {unit}"),
        (Some(figure), None) => format!("{name} {figure:.1} {unit}"),
        (None, _) => format!("{name} unknown"),
    }
}

/// The figures that are known: `ASR 55.0 %, ACD 42.3 s, PDD 1.2 s`.
#[must_use]
pub fn figures(figures: &Figures) -> String {
    let known = [("ASR", figures.asr, "%"), ("ACD", figures.acd, "s"), ("PDD", figures.pdd, "s")];
    let words: Vec<String> =
        known.iter().filter_map(|(name, figure, unit)| figure.map(|f| format!("{name} {f:.1} {unit}"))).collect();
    if words.is_empty() { "no figures".to_owned() } else { words.join(", ") }
}

fn calls(figures: &Figures) -> String {
    if figures.calls == 1 { "1 call".to_owned() } else { format!("{} calls", figures.calls) }
}

/// What the attempts that were not answered came to: `9 x 503, 4 x 486`.
fn failures<'a>(measured: impl Iterator<Item = &'a Sample>) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for sample in measured.filter(|sample| !sample.is_success()) {
        *kinds.entry(kind(sample)).or_default() += 1;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let more: usize = kinds.iter().skip(KINDS_LISTED).map(|(_, count)| count).sum();
    let mut words: Vec<String> =
        kinds.iter().take(KINDS_LISTED).map(|(kind, count)| format!("{count} x {kind}")).collect();
    if more > 0 {
        words.push(format!("{more} others"));
    }
    words.join(", ")
}

fn kind(sample: &Sample) -> String {
    match (sample.outcome, sample.sip_status, sample.cause) {
        (Outcome::Answered, ..) => "answered for 0 s".to_owned(),
        (Outcome::CallerGone, ..) => "caller gave up".to_owned(),
        (Outcome::NoAnswer, None, _) => "no answer".to_owned(),
        (_, Some(status), _) => status.to_string(),
        (_, None, Some(cause)) if cause != 0 => format!("cause {cause}"),
        _ => "no sign of the vendor".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::window::Epoch;

    fn sample(outcome: Outcome, sip_status: Option<u16>) -> Sample {
        let at = Timestamp::from_secs(1);
        Sample {
            epoch: Epoch(0),
            placed_at: at,
            ended_at: at,
            outcome,
            duration_ms: Some(if outcome == Outcome::Answered { 1000 } else { 0 }),
            pdd_ms: None,
            cause: Some(34),
            sip_status,
        }
    }

    #[test]
    fn a_verdict_names_the_figure_the_threshold_and_what_the_calls_came_to() {
        let settings = Settings { asr_threshold_percent: Some(40.0), ..Settings::default() };
        let mut measured = vec![sample(Outcome::VendorFailed, Some(503)); 9];
        measured.extend(vec![sample(Outcome::Busy, Some(486)); 4]);
        measured.extend(vec![sample(Outcome::Answered, None); 7]);
        let figures = Figures { calls: 20, asr: Some(35.0), ..Figures::default() };
        let at = Timestamp::from_secs(1);
        let bad = Change { at, from: State::Good, to: State::Bad, reason: Reason::Asr, epoch: Epoch(1), figures };
        assert_eq!(
            change(&bad, &settings, measured.iter()),
            "lowered: ASR 35.0 % under 40 % over 20 calls; 9 x 503, 4 x 486"
        );
        let retry = Change { from: State::Bad, to: State::Retry, reason: Reason::RetryInterval, ..bad };
        assert_eq!(change(&retry, &settings, [].iter()), "back in its usual place for a retry batch of 10 calls");
        let settings = Settings { bad_quality_action: BadQualityAction::NotifyOnly, ..settings };
        assert_eq!(change(&retry, &settings, [].iter()), "judged anew by a retry batch of 10 calls");
    }
}
