//! What a plot says, in each language.

use super::{Metric, Plot, sum};
use crate::call::outcome::Outcome;
use crate::config::model::Language;
use crate::notify::render::speech::{self, Moment, figure, number};
use crate::quality::machine::State;
use crate::store::{OUTCOMES, Tally};
use crate::time::Timestamp;

/// The text of the language.
fn either<'a>(plot: &Plot<'_>, en: &'a str, ru: &'a str) -> &'a str {
    match plot.language {
        Language::En => en,
        Language::Ru => ru,
    }
}

/// What an outcome is called.
pub(crate) fn outcome(outcome: Outcome, language: Language) -> &'static str {
    let (en, ru) = match outcome {
        Outcome::Answered => ("answered", "отвечено"),
        Outcome::Busy => ("busy", "занято"),
        Outcome::NoAnswer => ("no answer", "нет ответа"),
        Outcome::Rejected => ("rejected", "отклонено"),
        Outcome::NumberInvalid => ("number invalid", "неверный номер"),
        Outcome::VendorFailed => ("vendor failed", "отказ поставщика"),
        Outcome::CallerGone => ("caller gone", "отбой вызывающего"),
        Outcome::LostRace => ("lost race", "ответил другой"),
        Outcome::NotSent => ("not sent", "не отправлено"),
        Outcome::Lost => ("end not seen", "конец не замечен"),
    };
    match language {
        Language::En => en,
        Language::Ru => ru,
    }
}

/// The unit of the values, with a blank before it; none of counts.
fn unit(plot: &Plot<'_>) -> &'static str {
    match plot.metric {
        Metric::Asr => "\u{a0}%",
        Metric::Acd | Metric::Pdd => match plot.language {
            Language::En => "\u{a0}s",
            Language::Ru => "\u{a0}с",
        },
        Metric::Attempts | Metric::Outcomes => "",
    }
}

fn bucket(plot: &Plot<'_>) -> String {
    speech::duration(plot.series.bucket.as_secs(), plot.language)
}

/// What the values are, with their unit.
pub(super) fn metric(plot: &Plot<'_>) -> String {
    let unit = unit(plot).trim_start();
    let per = |en, ru| format!("{} {}", either(plot, en, ru), bucket(plot));
    match plot.metric {
        Metric::Asr => format!("ASR, {unit}"),
        Metric::Acd => format!("ACD, {unit}"),
        Metric::Pdd => format!("PDD, {unit}"),
        Metric::Attempts => per("calls per", "вызовов за"),
        Metric::Outcomes => per("attempts by outcome per", "исходы попыток за"),
    }
}

/// The threshold, written beside its line.
pub(super) fn limit(plot: &Plot<'_>, limit: f64) -> String {
    format!("{} {}{}", either(plot, "threshold", "порог"), number(limit, None, plot.language), unit(plot))
}

/// A mark of a scale of numbers.
pub(super) fn value(plot: &Plot<'_>, value: f64) -> String {
    if value >= 10_000.0 {
        return number(value / 1000.0, None, plot.language) + either(plot, "k", "\u{a0}тыс.");
    }
    number(value, None, plot.language)
}

/// A mark of a scale of time: midnight is the day that begins.
pub(super) fn time(plot: &Plot<'_>, micros: i64, days: bool) -> String {
    let moment = Moment::new(Timestamp::from_micros(micros), plot.zone, plot.language);
    if days || moment.clock == "00:00" { moment.day } else { moment.clock }
}

/// The name of the plot.
pub(super) fn title(plot: &Plot<'_>) -> String {
    format!("{}: {}", plot.subject, metric(plot))
}

/// What stands where nothing is plotted.
pub(super) fn nothing(plot: &Plot<'_>) -> &'static str {
    either(plot, "No calls", "Вызовов нет")
}

/// The figures in words, for those who do not see the plot.
pub(super) fn description(plot: &Plot<'_>) -> String {
    let moment = |at| Moment::new(at, plot.zone, plot.language).full;
    let mut sentences = vec![format!("{} – {}.", moment(plot.series.from), moment(plot.series.to))];
    match plot.series.total() {
        None => sentences.push(format!("{}.", nothing(plot))),
        Some(total) => sentences.push(figures(plot, &total)),
    }
    if let Some(threshold) = plot.threshold() {
        let mut text = limit(plot, threshold);
        text.push('.');
        sentences.push(capital(&text));
    }
    sentences.extend(states(plot));
    sentences.join(" ")
}

fn figures(plot: &Plot<'_>, total: &Tally) -> String {
    let values: Vec<f64> = plot.values().flatten().collect();
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    match plot.metric {
        Metric::Attempts => {
            let words = either(plot, "Calls: {}; at most {} in {}.", "Вызовов: {}; не более {} за {}.");
            fill(words, [total.calls.to_string(), number(most, Some(0), plot.language), bucket(plot)])
        }
        Metric::Outcomes => {
            let counts = OUTCOMES.into_iter().zip(total.outcomes).filter(|(_, count)| *count > 0);
            let counts: Vec<String> =
                counts.map(|(of, count)| format!("{} {count}", outcome(of, plot.language))).collect();
            let words = either(plot, "Attempts: {}: {}.", "Попыток: {}: {}.");
            fill(words, [sum(&total.outcomes).to_string(), counts.join(", ")])
        }
        Metric::Asr | Metric::Acd | Metric::Pdd => {
            let Some(last) = values.last() else {
                return either(plot, "No figures.", "Показателей нет.").to_owned();
            };
            let words =
                either(plot, "Lowest {}, highest {}, latest {}.", "Наименьшее {}, наибольшее {}, последнее {}.");
            let shown = |value| figure(value, plot.threshold(), plot.language) + unit(plot);
            fill(words, [shown(least), shown(most), shown(*last)])
        }
    }
}

fn states(plot: &Plot<'_>) -> Option<String> {
    let spent = |state| {
        let of_state = plot.states.iter().filter(|stretch| stretch.state == state);
        of_state.map(|stretch| stretch.to.since(stretch.from).as_secs()).sum::<u64>()
    };
    let times = [
        (spent(State::Bad), either(plot, "bad for", "плохое качество")),
        (spent(State::Retry), either(plot, "on retry for", "пробные вызовы")),
    ];
    let times = times.iter().filter(|(secs, _)| *secs > 0);
    let parts: Vec<String> =
        times.map(|(secs, words)| format!("{words} {}", speech::duration(*secs, plot.language))).collect();
    (!parts.is_empty()).then(|| capital(&format!("{}.", parts.join(", "))))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The words with each `{}` replaced, in order.
fn fill(words: &str, values: impl IntoIterator<Item = String>) -> String {
    let mut parts = words.split("{}");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (value, part) in values.into_iter().zip(parts) {
        text.push_str(&value);
        text.push_str(part);
    }
    text
}
