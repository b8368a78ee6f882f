//! What plots look like, and what is so of every plot.

use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::quality::machine::State;
use crate::store::history::Span;
use crate::store::{OUTCOMES, Tally};

/// Set, the checked-in plots are written anew.
const REGENERATE: &str = "POINTSMAN_WRITE_PLOTS";

static UTC: TimeZone = TimeZone::UTC;

/// Longest plot.
const LONGEST: usize = 40_000;

fn now() -> Timestamp {
    Timestamp::from_secs(1_796_036_585)
}

/// A day: a quiet night without calls, an hour of trouble at noon.
fn day() -> Series {
    let mut series = Series::empty(Span::Day, now());
    let buckets = series.sums.len();
    for (place, sums) in series.sums.iter_mut().enumerate() {
        let trouble = (180..204).contains(&place);
        if (60..100).contains(&place) || place == 130 || place + 1 == buckets {
            continue;
        }
        let wave = (place as u64 * 7) % 11;
        let answered = if trouble { 3 } else { 24 + wave };
        let failed = if trouble { 28 } else { wave / 4 };
        let outcomes = [answered, 5, 4 + wave / 3, 1, wave / 5, failed, 2, 0, 0, 0];
        let calls = outcomes.iter().sum();
        *sums = Some(Tally {
            calls,
            successes: answered,
            talks: answered,
            talk_ms: answered * (90_000 + wave * 4_000),
            delays: calls - failed,
            delay_ms: (calls - failed) * if trouble { 6_400 } else { 1_500 + 90 * wave },
            effective: calls - failed,
            ineffective: failed,
            outcomes,
            max_active: 0,
        });
    }
    series
}

fn at(series: &Series, place: u32) -> Timestamp {
    series.from.after(series.bucket * place)
}

fn states(series: &Series) -> (Vec<Stretch>, Vec<Timestamp>) {
    let stretch = |from, to, state| Stretch { from: at(series, from), to: at(series, to), state };
    let stretches = vec![
        stretch(182, 190, State::Bad),
        stretch(190, 193, State::Retry),
        stretch(193, 206, State::Bad),
        stretch(206, 209, State::Retry),
    ];
    let changes = stretches.iter().map(|stretch| stretch.from).chain([at(series, 209)]).collect();
    (stretches, changes)
}

fn plot<'a>(metric: Metric, series: &'a Series, zone: &'a TimeZone) -> Plot<'a> {
    Plot { metric, ..Plot::plain("vendor-a (intl)", series, zone) }
}

#[test]
fn plots_look_as_they_did() {
    let (series, zone) = (day(), TimeZone::get("Europe/Berlin").unwrap());
    let (stretches, changes) = states(&series);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plots");
    let month = Series::empty(Span::Month, now());
    let full = |metric, limit| Plot { limit, states: &stretches, changes: &changes, ..plot(metric, &series, &zone) };
    let plots = [
        ("asr", full(Metric::Asr, Some(40.0))),
        ("acd", full(Metric::Acd, None)),
        ("pdd.ru", Plot { language: Language::Ru, ..full(Metric::Pdd, Some(5.5)) }),
        ("attempts.narrow", Plot { size: Size::Narrow, ..full(Metric::Attempts, Some(40.0)) }),
        ("outcomes", full(Metric::Outcomes, None)),
        ("outcomes.ru.narrow", Plot { language: Language::Ru, size: Size::Narrow, ..full(Metric::Outcomes, None) }),
        ("nothing", plot(Metric::Asr, &month, &zone)),
    ];
    let mut different = Vec::new();
    for (name, plot) in plots {
        let path = folder.join(format!("{name}.svg"));
        let text = plot.document() + "\n";
        if std::env::var_os(REGENERATE).is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != text {
            different.push(name);
        }
    }
    assert!(different.is_empty(), "{different:?} look different; set {REGENERATE}=1, run this again and look at them");
}

#[test]
fn a_plot_is_heard_with_its_figures_in_words() {
    let (series, zone) = (day(), TimeZone::get("Europe/Berlin").unwrap());
    let (stretches, _) = states(&series);
    let said = |plot: &Plot<'_>| words::description(plot).replace('\u{a0}', " ");
    let asr = Plot { limit: Some(40.0), states: &stretches, ..plot(Metric::Asr, &series, &zone) };
    assert_eq!(words::title(&asr), "vendor-a (intl): ASR, %");
    assert_eq!(
        said(&asr),
        "29 November 2026, 12:05 (UTC+1) – 30 November 2026, 12:05 (UTC+1). Lowest 6.2 %, highest 68.4 %, latest 66.7 %. \
         Threshold 40 %. Bad for 1 h 45 min, on retry for 30 min."
    );
    let outcomes = Plot { language: Language::Ru, ..plot(Metric::Outcomes, &series, &UTC) };
    let text = said(&outcomes);
    assert!(text.starts_with("29 ноября 2026 г., 11:05 (UTC) – 30 ноября 2026 г., 11:05 (UTC). Попыток: "), "{text}");
    assert!(text.contains("отказ поставщика "), "{text}");
    let empty = Series::empty(Span::Hour, now());
    assert!(said(&plot(Metric::Pdd, &empty, &zone)).ends_with("No calls."));
}

#[test]
fn text_from_outside_stays_text() {
    let (series, zone) = (day(), TimeZone::UTC);
    let subject = "<script>\"&'\u{0}\n\u{ffff}</title>";
    let text = Plot { subject, ..plot(Metric::Asr, &series, &zone) }.svg();
    assert!(text.contains("<title>&lt;script&gt;&quot;&amp;&#39;&lt;/title&gt;: ASR, %</title>"), "{text}");
    assert!(!text.contains("<script") && !text.contains('\u{0}'));
}

#[test]
fn a_line_has_gaps_where_nothing_is_known_and_dots_where_a_value_stands_alone() {
    let mut series = Series::empty(Span::Hour, now());
    let tally = Tally { calls: 2, successes: 1, ..Tally::default() };
    for place in [3, 4, 5, 9, 20, 21] {
        series.sums[place] = Some(tally);
    }
    let text = plot(Metric::Asr, &series, &UTC).svg();
    let (_, line) = text.split_once("<path class=\"line\" d=\"").unwrap();
    let (line, _) = line.split_once('"').unwrap();
    assert_eq!(line.matches('M').count(), 3, "{line}");
    assert!(line.contains("h0"), "{line}");
}

#[test]
fn what_cannot_be_told_apart_is_drawn_once() {
    let series = Series::empty(Span::Month, now());
    let second = Duration::from_secs(1);
    let states: Vec<Stretch> = (0..5000)
        .map(|n| {
            let from = series.from.after(second * n * 500);
            let state = if n % 2 == 0 { State::Bad } else { State::Retry };
            Stretch { from, to: from.after(second * 500), state }
        })
        .collect();
    let changes: Vec<Timestamp> = states.iter().map(|stretch| stretch.from).collect();
    let text = Plot { states: &states, changes: &changes, ..plot(Metric::Asr, &series, &UTC) }.svg();
    assert!(text.len() < LONGEST / 2, "{}", text.len());
}

/// The numbers of the coordinates, with every path followed.
fn coordinates(text: &str) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for part in text.split("d=\"").skip(1) {
        let steps = part.split('"').next().unwrap();
        let (mut x, mut y) = (0, 0);
        let mut rest = steps;
        while let Some(command) = rest.chars().next() {
            let end = rest[1..].find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |end| end + 1);
            let numbers: Vec<i64> =
                rest[1..end].replace('-', " -").split_whitespace().map(|number| number.parse().unwrap()).collect();
            match (command, numbers.as_slice()) {
                ('M', [to_x, to_y]) => (x, y) = (*to_x, *to_y),
                ('l', [by_x, by_y]) => (x, y) = (x + by_x, y + by_y),
                ('h', [by]) => x += by,
                ('v', [by]) => y += by,
                ('z', []) => {}
                other => panic!("{other:?} in {steps}"),
            }
            found.push((x, y));
            rest = &rest[end..];
        }
    }
    let attribute = |tag: &str, name: &str| -> i64 {
        tag.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    };
    for tag in text.split("<text").skip(1).map(|tag| tag.split('>').next().unwrap()) {
        found.push((attribute(tag, "x"), attribute(tag, "y")));
    }
    found
}

fn view_box(text: &str) -> (i64, i64) {
    let numbers = text.split("viewBox=\"0 0 ").nth(1).unwrap().split('"').next().unwrap();
    let (width, height) = numbers.split_once(' ').unwrap();
    (width.parse().unwrap(), height.parse().unwrap())
}

fn tallies() -> impl Strategy<Value = Option<Tally>> {
    let count = prop_oneof![4 => 0_u64..1000, 1 => Just(u64::MAX), 1 => Just(0)];
    let some = (prop::collection::vec(count.clone(), 8), prop::collection::vec(count, OUTCOMES.len())).prop_map(
        |(sums, outcomes)| Tally {
            calls: sums[0],
            successes: sums[1],
            talks: sums[2],
            talk_ms: sums[3],
            delays: sums[4],
            delay_ms: sums[5],
            effective: sums[6],
            ineffective: sums[7],
            outcomes: outcomes.try_into().unwrap(),
            max_active: 0,
        },
    );
    prop_oneof![3 => some.prop_map(Some), 1 => Just(None)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the data are: no number that is none, nothing outside, not long, and well-formed.
    #[test]
    fn every_plot_is_sound(
        sums in prop::collection::vec(tallies(), 0..400),
        metric in prop::sample::select(Metric::ALL.to_vec()),
        limit in prop::option::of(prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(1e300), -10.0..500.0_f64]),
        narrow in any::<bool>(),
        russian in any::<bool>(),
        from in prop_oneof![8 => 0..4_000_000_000_i64, 1 => Just(i64::MIN / 1_000_000), 1 => Just(i64::MAX / 1_000_000)],
        bucket in 60_u64..10_000,
        stretches in prop::collection::vec((0_u64..5_000_000, 0_u64..100_000, any::<bool>()), 0..50),
    ) {
        let from = Timestamp::from_secs(from);
        let bucket = Duration::from_secs(bucket);
        let to = from.after(bucket * u32::try_from(sums.len()).unwrap());
        let series = Series { from, to, bucket, sums };
        let states: Vec<Stretch> = stretches.iter().map(|(begin, length, bad)| {
            let from = from.after(Duration::from_secs(*begin));
            let state = if *bad { State::Bad } else { State::Retry };
            Stretch { from, to: from.after(Duration::from_secs(*length)), state }
        }).collect();
        let changes: Vec<Timestamp> = states.iter().map(|stretch| stretch.to).collect();
        let plot = Plot {
            limit,
            states: &states,
            changes: &changes,
            size: if narrow { Size::Narrow } else { Size::Wide },
            language: if russian { Language::Ru } else { Language::En },
            ..plot(metric, &series, &UTC)
        };
        let text = plot.svg();
        prop_assert!(text.len() < LONGEST, "{} bytes", text.len());
        prop_assert!(!text.contains("NaN") && !text.contains("inf\"") && !text.contains(">inf"), "{}", text);
        let (width, height) = view_box(&text);
        for (x, y) in coordinates(&text) {
            prop_assert!((0..=width).contains(&x) && (0..=height).contains(&y), "{x} {y} in {text}");
        }
        prop_assert_eq!(text.matches("<text").count(), text.matches("</text>").count());
        prop_assert_eq!(&plot.svg(), &text);
    }
}
