//! Plots over time, as SVG text: the one place that draws.
//!
//! Data in, text out: the same data give the same text, which no script touches and which has no colour of its own. A
//! page that holds a plot also holds [`STYLE`]; its colours follow the page's `color-scheme`, and each can be replaced
//! by a variable. Whoever cannot see a plot hears its figures: it has a title, and a description in words.
//!
//! ```text
//! mod      what a plot is of
//!   draw     scales, areas and lines, by the crate plotters
//!   canvas   what plotters draws on: paths with a class in place of a colour
//!   ticks    round numbers, and round times of a time zone
//!   words    what is written and said
//! ```

mod canvas;
mod draw;
mod states;
#[cfg(test)]
mod tests;
mod ticks;
mod words;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::config::model::Language;
use crate::store::history::Series;
use crate::time::Timestamp;

pub use states::{Stretch, stretches};
pub(crate) use words::outcome;

/// The style sheet of plots. Every colour is a variable `--plot-...` with a default for light and for dark.
pub const STYLE: &str = include_str!("plot.css");

/// What is plotted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Answer-seizure ratio, in percent.
    Asr,
    /// Average call duration, in seconds.
    Acd,
    /// Post-dial delay, in seconds.
    Pdd,
    /// Calls sent.
    Attempts,
    /// All attempts by outcome, one above the other.
    Outcomes,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Asr, Self::Acd, Self::Pdd, Self::Attempts, Self::Outcomes];
}

/// For which width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// A page.
    #[default]
    Wide,
    /// A phone: the letters stay legible.
    Narrow,
}

/// A plot over time.
#[derive(Clone, Copy, Debug)]
pub struct Plot<'a> {
    /// Whose it is.
    pub subject: &'a str,
    /// Of what.
    pub metric: Metric,
    /// The sums, with their times.
    pub series: &'a Series,
    /// The threshold, in the unit of the metric; not drawn over counts.
    pub limit: Option<f64>,
    /// When it was not good.
    pub states: &'a [Stretch],
    /// When its state changed.
    pub changes: &'a [Timestamp],
    /// The reader's time zone.
    pub zone: &'a TimeZone,
    /// The reader's language.
    pub language: Language,
    /// For which width.
    pub size: Size,
}

impl<'a> Plot<'a> {
    /// Of the calls, without threshold and states, in English for a page.
    #[must_use]
    pub fn plain(subject: &'a str, series: &'a Series, zone: &'a TimeZone) -> Self {
        Self {
            subject,
            metric: Metric::Attempts,
            series,
            limit: None,
            states: &[],
            changes: &[],
            zone,
            language: Language::En,
            size: Size::Wide,
        }
    }
}

impl Plot<'_> {
    /// For a page that holds [`STYLE`].
    #[must_use]
    pub fn svg(&self) -> String {
        self.text("")
    }

    /// For a file of its own, with its style.
    #[must_use]
    pub fn document(&self) -> String {
        self.text(&format!("<style>svg{{color-scheme:light dark}}{STYLE}</style>"))
    }

    fn text(&self, style: &str) -> String {
        let sheet = draw::draw(self);
        let (width, height) = sheet.size();
        let title = canvas::escape(&words::title(self));
        let description = canvas::escape(&words::description(self));
        let lang = match self.language {
            Language::En => "en",
            Language::Ru => "ru",
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             lang=\"{lang}\"><title>{title}</title><desc>{description}</desc>{style}{}</svg>",
            sheet.elements()
        )
    }

    /// The threshold, where it is one of what is plotted.
    fn threshold(&self) -> Option<f64> {
        let figure = matches!(self.metric, Metric::Asr | Metric::Acd | Metric::Pdd);
        self.limit.filter(|limit| figure && limit.is_finite() && *limit >= 0.0)
    }

    /// The values of the metric, one a bucket.
    fn values(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        self.series.sums.iter().map(|sums| {
            let figures = sums.as_ref()?.figures();
            let value = match self.metric {
                Metric::Asr => figures.asr,
                Metric::Acd => figures.acd,
                Metric::Pdd => figures.pdd,
                Metric::Attempts => sums.map(|sums| float(sums.calls)),
                Metric::Outcomes => sums.map(|sums| float(sum(&sums.outcomes))),
            };
            value.filter(|value| value.is_finite())
        })
    }
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "more than 2^53 calls are not made")]
fn float(count: u64) -> f64 {
    count as f64
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}
