//! Where the lines of a scale are.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::time::Timestamp;

/// Lengths between two marks of a time scale, in minutes. They divide a day, or are whole days.
const STEPS: [i64; 16] = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440, 2 * 1440, 5 * 1440, 10 * 1440];

/// Most marks of a scale of numbers.
const MOST_NUMBERS: f64 = 5.0;

/// A scale from 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// Where it ends; more than 0.
    pub(super) top: f64,
    /// Its marks, from 0 to the top.
    pub(super) marks: Vec<f64>,
}

/// A scale that holds `most`, with round marks; of whole numbers where `whole`.
pub(super) fn scale(most: f64, whole: bool) -> Scale {
    let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
    let rough = most / MOST_NUMBERS;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(rough).max(if whole { 1.0 } else { 0.0 });
    let count = (most / step * 0.999).ceil().clamp(1.0, MOST_NUMBERS + 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most six")]
    let marks = (0..=count as u32).map(|mark| f64::from(mark) * step).collect();
    Scale { top: count * step, marks }
}

/// Round times in the zone, at most about `most` of them, and whether they are days.
pub(super) fn times(from: Timestamp, to: Timestamp, zone: &TimeZone, most: u32) -> (Vec<i64>, bool) {
    let minutes = i64::try_from(to.since(from).as_secs() / 60).unwrap_or(i64::MAX);
    let longest = STEPS[STEPS.len() - 1];
    let step = STEPS.into_iter().find(|step| minutes / step <= i64::from(most)).unwrap_or(longest);
    let days = step >= 1440;
    let mut marks = Vec::new();
    let mut next = first(from, zone, step);
    while let Some(civil) = next {
        // An hour that the clocks leave out stands at its end, and one that they repeat at its first time.
        let Ok(at) = zone.to_timestamp(civil) else { break };
        let at = at.as_microsecond();
        if at >= to.as_micros() || marks.len() > 2 * most as usize {
            break;
        }
        if at >= from.as_micros() && marks.last() != Some(&at) {
            marks.push(at);
        }
        next = civil.checked_add(SignedDuration::from_mins(step)).ok();
    }
    (marks, days)
}

/// The last round time of the zone's clock that is not after `from`.
fn first(from: Timestamp, zone: &TimeZone, step: i64) -> Option<DateTime> {
    let civil = zone.to_datetime(jiff::Timestamp::from_microsecond(from.as_micros()).ok()?);
    let midnight = civil.date().at(0, 0, 0, 0);
    if step >= 1440 {
        return Some(midnight);
    }
    let minutes = i64::from(civil.hour()) * 60 + i64::from(civil.minute());
    midnight.checked_add(SignedDuration::from_mins(minutes / step * step)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_round_and_holds_the_most() {
        let marks = |most, whole| scale(most, whole).marks;
        assert_eq!(marks(100.0, false), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(marks(7.3, false), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(marks(2.0, true), [0.0, 1.0, 2.0]);
        assert_eq!(marks(1.0, true), [0.0, 1.0]);
        assert_eq!(marks(0.0, false).last(), Some(&1.0));
        for most in [f64::NAN, f64::INFINITY, -5.0, 1e-9, 1e300, 0.07, 12_345.0] {
            let scale = scale(most, false);
            assert!(scale.top.is_finite() && scale.top > 0.0 && scale.marks.len() <= 7, "{most}: {scale:?}");
            assert!(!most.is_finite() || scale.top >= most, "{most}: {scale:?}");
        }
    }

    #[test]
    fn marks_of_time_are_round_on_the_clock_of_the_zone() {
        let from = Timestamp::from_secs(1_796_036_585);
        let shown = |zone: &str, hours: i64, most| {
            let zone = TimeZone::get(zone).unwrap();
            let (marks, days) =
                times(from, from.after(std::time::Duration::from_secs(hours as u64 * 3600)), &zone, most);
            let text = |at: &i64| zone.to_datetime(jiff::Timestamp::from_microsecond(*at).unwrap()).to_string();
            (marks.iter().map(text).collect::<Vec<_>>(), days)
        };
        assert_eq!(
            shown("Asia/Kolkata", 24, 6),
            (
                [
                    "2026-11-30T20:00:00",
                    "2026-12-01T00:00:00",
                    "2026-12-01T04:00:00",
                    "2026-12-01T08:00:00",
                    "2026-12-01T12:00:00",
                    "2026-12-01T16:00:00"
                ]
                .map(String::from)
                .to_vec(),
                false
            )
        );
        let (marks, days) = shown("Europe/Berlin", 24 * 7, 8);
        assert_eq!((marks.len(), marks[0].as_str(), days), (7, "2026-12-01T00:00:00", true));
        assert_eq!(shown("UTC", 1, 8).0.len(), 6);
    }

    #[test]
    fn clocks_that_are_changed_give_no_mark_twice() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        // 28 March 2027: two o'clock is three o'clock.
        let from = Timestamp::from_secs(1_806_188_400);
        let (marks, _) = times(from, from.after(std::time::Duration::from_secs(6 * 3600)), &zone, 8);
        assert!(marks.windows(2).all(|pair| pair[0] < pair[1]), "{marks:?}");
    }

    #[test]
    fn times_out_of_any_calendar_have_no_marks() {
        let (low, high) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));
        assert!(times(low, high, &TimeZone::UTC, 8).0.is_empty());
    }
}
