//! Scales, areas and lines, by plotters.

use std::convert::Infallible;
use std::iter::once;
use std::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::combinators::{BindKeyPoints, WithKeyPoints};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::{RangedCoordf64, RangedCoordi64};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, TextStyle};

use super::canvas::{Canvas, Ink, Sheet, width_of};
use super::ticks::{Scale, scale, times};
use super::{Metric, Plot, Size, words};
use crate::quality::machine::State;
use crate::store::OUTCOMES;

type Drawn = Result<(), DrawingAreaErrorKind<Infallible>>;
type Area<'a> = DrawingArea<Canvas<'a>, Shift>;
type Scales = Cartesian2d<WithKeyPoints<RangedCoordi64>, Numbers>;
type Chart<'c, 'a> = ChartContext<'c, Canvas<'a>, Scales>;

/// Height of the letters of scales, as in the style sheet.
const LETTERS: f64 = 11.0;

/// Height of the letters above the plot, as in the style sheet.
const CAPTION: f64 = 12.0;

/// Room above the plot for its name and threshold.
const ABOVE: u32 = 24;

/// Room for the numbers on the left, and for the times below.
const LEFT: u32 = 46;
const BELOW: u32 = 22;

/// Room on the right, for half of the last time.
const RIGHT: u32 = 20;

/// Height of the plot itself.
const HEIGHT: u32 = 170;

/// Height of a line of the legend.
const LEGEND: u32 = 18;

impl Size {
    const fn width(self) -> u32 {
        match self {
            Self::Wide => 720,
            Self::Narrow => 360,
        }
    }

    /// Most times on the scale.
    const fn times(self) -> u32 {
        match self {
            Self::Wide => 8,
            Self::Narrow => 4,
        }
    }
}

/// A scale of numbers, for plotters; its own has marks of its own.
struct Numbers(Scale);

impl Ranged for Numbers {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    /// Plotters asks twice; the second time for lines between those that have a number.
    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.0.marks.clone() }
    }

    fn range(&self) -> Range<f64> {
        0.0..self.0.top
    }
}

/// Draws it all.
pub(super) fn draw(plot: &Plot<'_>) -> Sheet {
    let width = plot.size.width();
    let legend = legend(plot, width);
    let lines = legend.iter().map(|entry| entry.line + 1).max().unwrap_or(0);
    let mut sheet = Sheet::new(width, ABOVE + HEIGHT + BELOW + lines * LEGEND + 2);
    let drawn = draw_on(plot, &legend, &Canvas(&mut sheet).into_drawing_area());
    debug_assert!(drawn.is_ok(), "{drawn:?}");
    sheet
}

fn draw_on(plot: &Plot<'_>, legend: &[Entry], area: &Area<'_>) -> Drawn {
    let (from, to) = (plot.series.from.as_micros(), plot.series.to.as_micros());
    let limit = plot.threshold();
    // A threshold is not to lie on the edge.
    let most = plot.values().flatten().chain(limit.map(|limit| limit * 1.1)).fold(0.0, f64::max);
    let scale = match plot.metric {
        Metric::Asr => scale(100.0, false),
        metric => scale(most, matches!(metric, Metric::Attempts | Metric::Outcomes)),
    };
    let (marks, days) = times(plot.series.from, plot.series.to, plot.zone, plot.size.times());
    let (_, height) = area.dim_in_pixel();
    let mut chart = ChartBuilder::on(area)
        .margin_top(ABOVE)
        .margin_right(RIGHT)
        .margin_bottom(height - ABOVE - HEIGHT - BELOW)
        .y_label_area_size(LEFT)
        .x_label_area_size(BELOW)
        .build_cartesian_2d((from..to).with_key_points(marks), Numbers(scale.clone()))?;
    draw_states(plot, scale.top, &mut chart)?;
    draw_mesh(plot, days, &mut chart)?;
    match plot.metric {
        Metric::Asr | Metric::Acd | Metric::Pdd => draw_line(plot, &mut chart)?,
        Metric::Attempts => {
            let calls: Vec<Option<u64>> = plot.series.sums.iter().map(|sums| sums.map(|sums| sums.calls)).collect();
            draw_steps(plot, &calls, Ink::Area, &mut chart)?;
        }
        Metric::Outcomes => draw_outcomes(plot, &mut chart)?,
    }
    if let Some(limit) = limit {
        chart.draw_series(once(PathElement::new(vec![(from, limit), (to, limit)], Ink::Limit.colour())))?;
    }
    draw_changes(plot, scale.top, &mut chart)?;
    draw_words(plot, limit, area)?;
    draw_legend(legend, area)
}

fn style(ink: Ink, size: f64, anchor: HPos, height: VPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&ink.colour()).pos(Pos::new(anchor, height))
}

// ===== scales and words =====

fn draw_mesh(plot: &Plot<'_>, days: bool, chart: &mut Chart<'_, '_>) -> Drawn {
    let label = style(Ink::Text, LETTERS, HPos::Center, VPos::Center);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(Ink::Grid.colour())
        .light_line_style(Ink::Grid.colour())
        .axis_style(Ink::Axis.colour())
        .label_style(label)
        .x_label_formatter(&|micros| words::time(plot, *micros, days))
        .y_label_formatter(&|value| words::value(plot, *value))
        .set_all_tick_mark_size(3)
        .draw()
}

fn draw_words(plot: &Plot<'_>, limit: Option<f64>, area: &Area<'_>) -> Drawn {
    let (width, _) = area.dim_in_pixel();
    let right = i32::try_from(width - RIGHT).unwrap_or(i32::MAX);
    let limit = limit.map(|limit| words::limit(plot, limit)).unwrap_or_default();
    let room = f64::from(width - RIGHT) - 2.0 * CAPTION - width_of(&limit, CAPTION);
    let title = shortened(words::title(plot), room);
    area.draw(&Text::new(title, (4, 4), style(Ink::Caption, CAPTION, HPos::Left, VPos::Top)))?;
    if plot.series.total().is_none() {
        #[expect(clippy::cast_possible_wrap, reason = "a place within the plot")]
        let middle = ((LEFT + width - RIGHT) as i32 / 2, (ABOVE + HEIGHT / 2) as i32);
        area.draw(&Text::new(words::nothing(plot), middle, style(Ink::Text, CAPTION, HPos::Center, VPos::Center)))?;
    }
    if limit.is_empty() {
        return Ok(());
    }
    area.draw(&Text::new(limit, (right, 4), style(Ink::Caption, CAPTION, HPos::Right, VPos::Top)))
}

/// As much of the text as has room.
fn shortened(text: String, room: f64) -> String {
    if width_of(&text, CAPTION) <= room {
        return text;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few letters")]
    let letters = (room / width_of("x", CAPTION)).max(1.0) as usize;
    text.chars().take(letters.saturating_sub(1)).chain(once('…')).collect()
}

/// An outcome in the legend.
struct Entry {
    ink: Ink,
    words: String,
    left: i32,
    line: u32,
}

/// The outcomes that there were, side by side in as many lines as they need.
fn legend(plot: &Plot<'_>, width: u32) -> Vec<Entry> {
    if plot.metric != Metric::Outcomes {
        return Vec::new();
    }
    let total = plot.series.total().unwrap_or_default();
    let (mut left, mut line) = (f64::from(LEFT), 0);
    let mut entries = Vec::new();
    let counts = OUTCOMES.into_iter().zip(total.outcomes).enumerate();
    for (place, (outcome, count)) in counts.filter(|(_, (_, count))| *count > 0) {
        let words = format!("{} {count}", words::outcome(outcome, plot.language));
        let wide = 14.0 + width_of(&words, LETTERS) + 14.0;
        if left + wide > f64::from(width) && left > f64::from(LEFT) {
            (left, line) = (f64::from(LEFT), line + 1);
        }
        #[expect(clippy::cast_possible_truncation, reason = "a place within the plot")]
        entries.push(Entry { ink: Ink::Outcome(place as u8), words, left: left.round() as i32, line });
        left += wide;
    }
    entries
}

fn draw_legend(legend: &[Entry], area: &Area<'_>) -> Drawn {
    for Entry { ink, words, left, line } in legend {
        let top = i32::try_from(ABOVE + HEIGHT + BELOW + line * LEGEND).unwrap_or(i32::MAX);
        area.draw(&Rectangle::new([(*left, top + 4), (left + 10, top + 14)], ink.colour().filled()))?;
        let text = style(Ink::Text, LETTERS, HPos::Left, VPos::Center);
        area.draw(&Text::new(words.clone(), (left + 14, top + 9), text))?;
    }
    Ok(())
}

// ===== data =====

fn draw_states(plot: &Plot<'_>, top: f64, chart: &mut Chart<'_, '_>) -> Drawn {
    for (state, ink) in [(State::Bad, Ink::Bad), (State::Retry, Ink::Retry)] {
        for (from, to) in visible(plot, state) {
            chart.draw_series(once(Rectangle::new([(from, 0.0), (to, top)], ink.colour().filled())))?;
        }
    }
    Ok(())
}

/// What a unit of the plot's width stands for, in microseconds.
fn pixel(plot: &Plot<'_>) -> i64 {
    let length = plot.series.to.as_micros().saturating_sub(plot.series.from.as_micros());
    (length / i64::from(plot.size.width() - LEFT - RIGHT)).max(1)
}

/// When it had the state, at least a unit each, and those as one that nobody could tell apart.
fn visible(plot: &Plot<'_>, state: State) -> Vec<(i64, i64)> {
    let (begin, end, pixel) = (plot.series.from.as_micros(), plot.series.to.as_micros(), pixel(plot));
    let mut shown: Vec<(i64, i64)> = Vec::new();
    for stretch in plot.states.iter().filter(|stretch| stretch.state == state) {
        let from = stretch.from.as_micros().clamp(begin, end);
        let to = stretch.to.as_micros().max(from.saturating_add(pixel)).clamp(begin, end);
        match shown.last_mut() {
            Some((_, last)) if from <= last.saturating_add(pixel) => *last = to.max(*last),
            _ => shown.push((from, to)),
        }
    }
    shown
}

fn draw_changes(plot: &Plot<'_>, top: f64, chart: &mut Chart<'_, '_>) -> Drawn {
    let (begin, end, pixel) = (plot.series.from.as_micros(), plot.series.to.as_micros(), pixel(plot));
    let mut changes: Vec<i64> = plot.changes.iter().map(|at| at.as_micros()).collect();
    changes.retain(|at| (begin..end).contains(at));
    changes.sort_unstable();
    changes.dedup_by(|later, earlier| later.saturating_sub(*earlier) < 2 * pixel);
    let line = |at| PathElement::new(vec![(at, 0.0), (at, top)], Ink::Change.colour());
    chart.draw_series(changes.into_iter().map(line))?;
    Ok(())
}

/// Where a bucket begins, in microseconds.
fn begin(plot: &Plot<'_>, bucket: usize) -> i64 {
    let length = i64::try_from(plot.series.bucket.as_micros()).unwrap_or(i64::MAX);
    let offset = length.saturating_mul(i64::try_from(bucket).unwrap_or(i64::MAX));
    plot.series.from.as_micros().saturating_add(offset)
}

/// The values without gaps between them, each time with the place of the first.
fn runs<T: Copy>(values: &[Option<T>]) -> Vec<(usize, Vec<T>)> {
    let mut runs: Vec<(usize, Vec<T>)> = Vec::new();
    for (place, value) in values.iter().enumerate() {
        let Some(value) = *value else { continue };
        match runs.last_mut() {
            Some((first, run)) if *first + run.len() == place => run.push(value),
            _ => runs.push((place, vec![value])),
        }
    }
    runs
}

/// A line through the middles of the buckets. It ends where nothing is known.
fn draw_line(plot: &Plot<'_>, chart: &mut Chart<'_, '_>) -> Drawn {
    let values: Vec<Option<f64>> = plot.values().collect();
    for (first, run) in runs(&values) {
        let middle = |place: usize| begin(plot, place).midpoint(begin(plot, place + 1));
        let points: Vec<(i64, f64)> = run.iter().enumerate().map(|(n, value)| (middle(first + n), *value)).collect();
        chart.draw_series(once(PathElement::new(points, Ink::Line.colour())))?;
    }
    Ok(())
}

/// Each count as high as it is, for the whole width of its bucket.
fn draw_steps(plot: &Plot<'_>, counts: &[Option<u64>], ink: Ink, chart: &mut Chart<'_, '_>) -> Drawn {
    for (first, run) in runs(counts) {
        let mut points = vec![(begin(plot, first), 0.0)];
        for (n, count) in run.iter().enumerate() {
            let height = super::float(*count);
            points.extend([(begin(plot, first + n), height), (begin(plot, first + n + 1), height)]);
        }
        points.push((begin(plot, first + run.len()), 0.0));
        chart.draw_series(once(Polygon::new(points, ink.colour())))?;
    }
    Ok(())
}

/// The outcomes one above the other: each with all below it, the highest first, so that the lower ones cover it.
fn draw_outcomes(plot: &Plot<'_>, chart: &mut Chart<'_, '_>) -> Drawn {
    let total = plot.series.total().unwrap_or_default();
    for place in (0..OUTCOMES.len()).rev().filter(|place| total.outcomes[*place] > 0) {
        let up_to = |sums: &Option<crate::store::Tally>| sums.map(|sums| super::sum(&sums.outcomes[..=place]));
        let counts: Vec<Option<u64>> = plot.series.sums.iter().map(up_to).collect();
        let ink = Ink::Outcome(u8::try_from(place).unwrap_or(u8::MAX));
        draw_steps(plot, &counts, ink, chart)?;
    }
    Ok(())
}
