//! Connections: how they are, and what changed.

use jiff::tz::TimeZone;

use super::{form, wide};
use crate::config::model::Language;
use crate::engine::view::{ChangeView, ConnectionView};
use crate::notify::causes;
use crate::notify::render::speech::{JOINER, Moment};
use crate::plot::outcome;
use crate::quality::pin::{Pin, Pinned};
use crate::quality::sentence::{ASSUMED, ChangeSentence, Done, Failures, Kind, Metric, Reading, StateSentence};
use crate::quality::window::Sample;
use crate::time::Timestamp;

/// A change, with the figures that led to it or the reason that an operator gave. Times are those of the zone.
pub(in crate::api::pages) fn change(change: &ChangeView, language: Language, zone: &TimeZone) -> String {
    let Ok(said) = change.words.parse() else { return change.words.to_string() };
    match (said, language) {
        (ChangeSentence::Pinned { pin, until, why }, _) => {
            format!("{}{}{}", place(pin, language), self::until(until, language, zone), because(&why))
        }
        (_, Language::En) => change.words.to_string(),
        (said, Language::Ru) => change_in_russian(said),
    }
}

/// How a connection is, in a sentence: by its figures, whatever an operator says of it; see [`pinned`].
pub(in crate::api::pages) fn state(connection: &ConnectionView, language: Language) -> String {
    quality(&connection.words, language, &TimeZone::UTC)
}

/// An operator's word over the verdict. Times are those of the zone.
pub(in crate::api::pages) fn pinned(pinned: &Pinned, language: Language, zone: &TimeZone) -> String {
    state_sentence(StateSentence::from(pinned), language, zone)
}

/// How an attempt of a window ended.
pub(in crate::api::pages) fn attempt(sample: &Sample, language: Language) -> String {
    if sample.is_success() {
        return outcome(sample.outcome, language).to_owned();
    }
    causes::words(sample.outcome, sample.sip_status, sample.cause, language)
}

/// A sentence of the engine about how a connection is, or about an operator's word over it.
pub(super) fn quality(words: &str, language: Language, zone: &TimeZone) -> String {
    if let Ok(said) = words.parse() {
        return state_sentence(said, language, zone);
    }
    match (words.strip_suffix(ASSUMED).map(str::parse), language) {
        (Some(Ok(said)), Language::Ru) => format!("{} (предположение)", state_sentence(said, language, zone)),
        _ => words.to_owned(),
    }
}

fn state_sentence(said: StateSentence, language: Language, zone: &TimeZone) -> String {
    match (said, language) {
        (StateSentence::Pinned { pin, until, who, why }, _) => {
            format!("{}{} ({who}){}", place(pin, language), self::until(until, language, zone), because(&why))
        }
        (said, Language::En) => said.to_string(),
        (said, Language::Ru) => state_in_russian(&said),
    }
}

fn state_in_russian(said: &StateSentence) -> String {
    match said {
        StateSentence::Unmonitored => "Качество не отслеживается".to_owned(),
        StateSentence::TooFew(progress) => {
            format!("Пока недостаточно вызовов ({} из {})", progress.done, progress.of)
        }
        StateSentence::Good => "Качество в норме".to_owned(),
        StateSentence::Lowered => "Переведено в конец списка из-за плохого качества".to_owned(),
        StateSentence::Blocked => "Заблокировано из-за плохого качества".to_owned(),
        StateSentence::Bad => "Качество ниже нормы (только уведомление)".to_owned(),
        StateSentence::Retry(None) => "Проверка пробными вызовами".to_owned(),
        StateSentence::Retry(Some(progress)) => {
            format!("Проверка пробными вызовами ({} из {})", progress.done, progress.of)
        }
        StateSentence::Pinned { pin, .. } => place(*pin, Language::Ru).to_owned(),
    }
}

fn change_in_russian(said: ChangeSentence) -> String {
    match said {
        ChangeSentence::Bad { done, readings, calls, failures } => {
            format!("{}: {}{}{}", done_in_russian(done), list(&readings), over(calls), failed(&failures))
        }
        ChangeSentence::Retry { batch, back: true } => {
            format!("вернулось на обычное место для проверки{}", over(batch))
        }
        ChangeSentence::Retry { batch, back: false } => format!("оценивается заново{}", over(batch)),
        ChangeSentence::Recovered { readings, calls } => format!("снова в норме: {}{}", list(&readings), over(calls)),
        ChangeSentence::Unmonitored => "больше не отслеживается, качество считается нормальным".to_owned(),
        ChangeSentence::Reset { why } => {
            format!("сброшено вручную: качество считается нормальным и измеряется заново{}", because(&why))
        }
        ChangeSentence::Pinned { pin, why, .. } => format!("{}{}", place(pin, Language::Ru), because(&why)),
        ChangeSentence::Unpinned { why } => format!("ручное управление отменено{}", because(&why)),
        ChangeSentence::PinOver => "срок ручного управления истёк".to_owned(),
    }
}

fn done_in_russian(done: Done) -> &'static str {
    match done {
        Done::Lowered => "переведено в конец списка",
        Done::LoweredAgain => "снова переведено в конец списка",
        Done::StillLowered => "по-прежнему в конце списка",
        Done::Blocked => "заблокировано",
        Done::BlockedAgain => "снова заблокировано",
        Done::Bad => "ниже нормы (только уведомление)",
        Done::BadAgain => "снова ниже нормы",
        Done::StillBad => "по-прежнему ниже нормы",
    }
}

/// Over how many calls, with a blank before it.
fn over(calls: usize) -> String {
    let noun = form(wide(calls), Language::Ru, [""; 2], ["вызову", "вызовам", "вызовам"]);
    format!(" по {calls}{JOINER}{noun}")
}

fn list(readings: &[Reading]) -> String {
    if readings.is_empty() {
        return "показателей нет".to_owned();
    }
    readings.iter().map(reading).collect::<Vec<_>>().join(", ")
}

fn reading(Reading { metric, value, limit }: &Reading) -> String {
    let (unit, side) = match metric {
        Metric::Asr => ("%", "ниже"),
        Metric::Acd => ("с", "ниже"),
        Metric::Pdd => ("с", "выше"),
    };
    let written = |digits: &str| format!("{}{JOINER}{unit}", digits.replace('.', ","));
    let limit = limit.as_ref().map(|limit| format!(" {side} {}", written(limit.as_str()))).unwrap_or_default();
    format!("{}{JOINER}{}{limit}", metric.as_str(), written(value.as_str()))
}

/// What the calls that failed came to, with what parts it from the text before; nothing where none did.
fn failed(failures: &Failures) -> String {
    let kinds = failures.kinds.iter().map(|(count, of)| format!("{count}{JOINER}×{JOINER}{}", kind(*of)));
    let others = (failures.others > 0).then(|| format!("{}{JOINER}×{JOINER}прочее", failures.others));
    let parts: Vec<String> = kinds.chain(others).collect();
    if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) }
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Status(status) => status.to_string(),
        Kind::Cause(cause) => format!("Q.850{JOINER}{cause}"),
        Kind::AnsweredForNothing => format!("ответ на 0{JOINER}с"),
        Kind::CallerGone => "отбой вызывающего".to_owned(),
        Kind::NoAnswer => "нет ответа".to_owned(),
        Kind::NoSign => "поставщик не отозвался".to_owned(),
    }
}

fn place(pin: Pin, language: Language) -> &'static str {
    let (en, ru) = match pin {
        Pin::PinGood => ("pinned to its usual place", "вручную закреплено на обычном месте"),
        Pin::PinLast => ("pinned to the end", "вручную закреплено в конце списка"),
        Pin::PinBlock => ("pinned: gets no calls", "вручную заблокировано"),
    };
    super::either(language, en, ru)
}

/// Until when, with a blank before it; nothing where there is no end.
fn until(until: Option<Timestamp>, language: Language, zone: &TimeZone) -> String {
    let word = super::either(language, "until", "до");
    until.map(|until| format!(" {word} {}", Moment::new(until, zone, language).full)).unwrap_or_default()
}

/// The reason that an operator gave, after what they did; nothing where they gave none.
fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}
