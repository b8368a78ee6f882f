//! How numbers, times and lengths of time are written in each language.

use std::fmt::Write;

use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp as Instant, ZonedDateTime};
use serde::Serialize;

use crate::config::model::Language;
use crate::quality::sentence::decimals;
use crate::time::Timestamp;

/// Most decimals of a number: milliseconds and thousandths of a percent.
const MAX_DECIMALS: usize = 3;

/// A blank at which no line is broken, between a number and its unit.
pub(crate) const JOINER: char = '\u{a0}';

const MONTHS_EN: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const MONTHS_RU: [&str; 12] = [
    "января",
    "февраля",
    "марта",
    "апреля",
    "мая",
    "июня",
    "июля",
    "августа",
    "сентября",
    "октября",
    "ноября",
    "декабря",
];

/// A point in time in the reader's time zone, written in every way that a mail needs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Moment {
    /// `30 November 2026, 12:03 (UTC+1)`.
    pub(crate) full: String,
    /// `30 Nov`.
    pub(crate) day: String,
    /// `12:03`.
    pub(crate) clock: String,
    /// `12:03:05`.
    pub(crate) time: String,
    /// RFC 3339, in UTC.
    pub(crate) iso: String,
}

impl Moment {
    pub(crate) fn new(at: Timestamp, zone: &TimeZone, language: Language) -> Self {
        let instant = Instant::from_microsecond(at.as_micros()).unwrap_or(if at.as_micros() < 0 {
            Instant::MIN
        } else {
            Instant::MAX
        });
        let zoned = instant.to_zoned_datetime(zone.clone());
        let clock = format!("{:02}:{:02}", zoned.hour(), zoned.minute());
        Self {
            full: format!("{}, {clock} ({})", date(&zoned, language), offset(zoned.offset())),
            day: day(&zoned, language),
            time: format!("{clock}:{:02}", zoned.second()),
            clock,
            iso: format!("{instant:.0}"),
        }
    }

    /// The day with its year: all of [`Self::full`] before the time.
    pub(crate) fn date(&self) -> &str {
        self.full.split_once(',').map_or(&self.full, |(date, _)| date)
    }
}

fn month<'a>(zoned: &ZonedDateTime, names: &[&'a str; 12]) -> &'a str {
    usize::try_from(zoned.month() - 1).ok().and_then(|month| names.get(month)).copied().unwrap_or_default()
}

fn date(zoned: &ZonedDateTime, language: Language) -> String {
    let (day, year) = (zoned.day(), zoned.year());
    match language {
        Language::En => format!("{day}{JOINER}{} {year}", month(zoned, &MONTHS_EN)),
        Language::Ru => format!("{day}{JOINER}{} {year}{JOINER}г.", month(zoned, &MONTHS_RU)),
    }
}

fn day(zoned: &ZonedDateTime, language: Language) -> String {
    match language {
        Language::En => format!("{}{JOINER}{:.3}", zoned.day(), month(zoned, &MONTHS_EN)),
        Language::Ru => format!("{:02}.{:02}", zoned.day(), zoned.month()),
    }
}

/// `UTC`, `UTC+1`, `UTC-3:30`.
pub(crate) fn offset(offset: Offset) -> String {
    let minutes = offset.seconds() / 60;
    let mut text = "UTC".to_owned();
    if minutes != 0 {
        let sign = if minutes < 0 { '-' } else { '+' };
        let _ = write!(text, "{sign}{}", minutes.abs() / 60);
        if minutes % 60 != 0 {
            let _ = write!(text, ":{:02}", minutes.abs() % 60);
        }
    }
    text
}

/// What people call a time zone.
pub(crate) fn zone(zone: &TimeZone) -> String {
    let fixed = || zone.to_fixed_offset().map_or_else(|_| "UTC".to_owned(), offset);
    zone.iana_name().map_or_else(fixed, str::to_owned)
}

/// A number with that many decimals; without, as many as it needs.
pub(crate) fn number(value: f64, decimals: Option<usize>, language: Language) -> String {
    let text = match decimals {
        Some(decimals) => format!("{value:.*}", decimals.min(MAX_DECIMALS)),
        None => {
            let text = format!("{value:.MAX_DECIMALS$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    };
    match language {
        Language::En => text,
        Language::Ru => text.replace('.', ","),
    }
}

/// A figure with one decimal, or with as many as it takes to tell it from the threshold that it differs from.
pub(crate) fn figure(value: f64, threshold: Option<f64>, language: Language) -> String {
    number(value, Some(decimals(value, threshold)), language)
}

/// A length of time in its two largest units: `2 h 5 min`.
pub(crate) fn duration(secs: u64, language: Language) -> String {
    let units = match language {
        Language::En => ["d", "h", "min", "s"],
        Language::Ru => ["сут.", "ч", "мин", "с"],
    };
    let parts = [secs / 86_400, secs / 3_600 % 24, secs / 60 % 60, secs % 60];
    let first = parts.iter().position(|part| *part > 0).unwrap_or(3);
    let shown = parts.iter().zip(units).skip(first).take(2).enumerate();
    let words = shown.filter(|(place, (part, _))| *place == 0 || **part > 0);
    words.map(|(_, (part, unit))| format!("{part}{JOINER}{unit}")).collect::<Vec<_>>().join(" ")
}

/// How many forms a noun has beside a number.
pub(crate) fn plural_forms(language: Language) -> usize {
    match language {
        Language::En => 2,
        Language::Ru => 3,
    }
}

/// Which of these forms goes with `count`.
pub(crate) fn plural_form(count: u64, language: Language) -> usize {
    match (language, count % 10, count % 100) {
        (Language::En, ..) => usize::from(count != 1),
        (Language::Ru, _, 11..=14) => 2,
        (Language::Ru, 1, _) => 0,
        (Language::Ru, 2..=4, _) => 1,
        (Language::Ru, ..) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::Language::{En, Ru};
    use super::*;

    fn plain(text: &str) -> String {
        text.replace(JOINER, " ")
    }

    #[test]
    fn a_time_is_written_in_the_zone_and_the_language_of_the_reader() {
        let at = Timestamp::from_secs(1_796_036_585);
        let full = |zone: &str, language| plain(&Moment::new(at, &TimeZone::get(zone).unwrap(), language).full);
        assert_eq!(full("Europe/Berlin", En), "30 November 2026, 12:03 (UTC+1)");
        assert_eq!(full("Europe/Moscow", Ru), "30 ноября 2026 г., 14:03 (UTC+3)");
        assert_eq!(full("Asia/Kolkata", En), "30 November 2026, 16:33 (UTC+5:30)");
        assert_eq!(full("America/St_Johns", En), "30 November 2026, 07:33 (UTC-3:30)");
        assert_eq!(full("UTC", Ru), "30 ноября 2026 г., 11:03 (UTC)");
        let moment = Moment::new(at, &TimeZone::UTC, En);
        assert_eq!((plain(&moment.day).as_str(), moment.time.as_str()), ("30 Nov", "11:03:05"));
        assert_eq!((moment.clock.as_str(), moment.iso.as_str()), ("11:03", "2026-11-30T11:03:05Z"));
    }

    #[test]
    fn a_time_out_of_any_calendar_is_written_all_the_same() {
        for micros in [i64::MIN, i64::MAX] {
            for zone in [TimeZone::UTC, TimeZone::fixed(Offset::MAX), TimeZone::fixed(Offset::MIN)] {
                assert!(!Moment::new(Timestamp::from_micros(micros), &zone, Ru).full.is_empty());
            }
        }
    }

    #[test]
    fn numbers_have_the_decimal_sign_of_the_language() {
        assert_eq!(number(35.0, Some(1), En), "35.0");
        assert_eq!(number(35.0, Some(1), Ru), "35,0");
        assert_eq!(number(40.0, None, Ru), "40");
        assert_eq!(number(6.5, None, Ru), "6,5");
        assert_eq!(number(1200.0, None, En), "1200");
    }

    #[test]
    fn a_figure_that_crossed_never_looks_like_its_threshold() {
        assert_eq!(figure(39.96, Some(40.0), En), "39.96");
        assert_eq!(figure(6.001, Some(6.0), En), "6.001");
        assert_eq!(figure(35.04, Some(40.0), En), "35.0");
        assert_eq!(figure(40.0, Some(40.0), En), "40.0");
        assert_eq!(figure(35.04, None, En), "35.0");
    }

    #[test]
    fn a_length_of_time_has_its_two_largest_units() {
        let english = |secs| plain(&duration(secs, En));
        assert_eq!([0, 45, 600, 605].map(english), ["0 s", "45 s", "10 min", "10 min 5 s"]);
        assert_eq!([3_600, 7_505, 90_061, 86_405].map(english), ["1 h", "2 h 5 min", "1 d 1 h", "1 d"]);
        assert_eq!(plain(&duration(7_505, Ru)), "2 ч 5 мин");
    }

    #[test]
    fn nouns_follow_their_number() {
        let russian = |count| plural_form(count, Ru);
        assert_eq!([1, 21, 101].map(russian), [0; 3]);
        assert_eq!([2, 4, 22, 104].map(russian), [1; 4]);
        assert_eq!([0, 5, 11, 12, 14, 20, 111, 112].map(russian), [2; 8]);
        assert_eq!([0, 1, 2, 21].map(|count| plural_form(count, En)), [1, 0, 1, 1]);
    }
}
