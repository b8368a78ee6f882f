//! How a connection is judged.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quality::machine::Reason;
use crate::quality::window::Figures;

/// What happens to the routing of a bad connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BadQualityAction {
    /// It goes to the end of every hunt order.
    #[default]
    MakeLast,
    /// It is left out of every hunt order.
    Block,
    /// Nothing changes in routing.
    NotifyOnly,
}

/// What happens when all calls of a retry batch have been placed and not all of them have finished.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryOverflow {
    /// The connection stays in its place.
    #[default]
    Stay,
    /// The action applies again until the verdict.
    Withhold,
}

/// A growing retry interval: each bad verdict in a row multiplies it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RetryBackoff {
    /// Factor by which the interval grows, at least 1.
    pub factor: f64,
    /// Longest interval in seconds.
    pub max_sec: u64,
}

/// The settings of one connection, defaults applied and checked. A metric is monitored where its threshold is set.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
#[schema(as = QualitySettings)]
pub struct Settings {
    /// Bad where the ASR is under this, in percent.
    pub asr_threshold_percent: Option<f64>,
    /// Bad where the ACD is under this, in seconds.
    pub acd_threshold_sec: Option<f64>,
    /// Bad where the PDD is over this, in seconds.
    pub pdd_threshold_sec: Option<f64>,
    /// Length of the window in attempts, at least 1.
    pub statistics_window: usize,
    /// How many attempts the window must hold to be judged, at most `statistics_window`.
    pub min_calls: usize,
    /// Seconds from a bad verdict to the retry.
    pub retry_interval_sec: u64,
    /// Growth of that interval.
    pub retry_backoff: Option<RetryBackoff>,
    /// Calls of a retry batch, at least 1.
    pub retry_batch: usize,
    /// What to do when the batch has been placed.
    pub retry_overflow: RetryOverflow,
    /// What a bad verdict does.
    pub bad_quality_action: BadQualityAction,
    /// Whether the owner hears of changes.
    pub notify_on_status_change: bool,
    /// Waiting time, in seconds, from which a caller who gave up without any ringing counts against the vendor (NER).
    pub caller_patience_sec: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            asr_threshold_percent: None,
            acd_threshold_sec: None,
            pdd_threshold_sec: None,
            statistics_window: 20,
            min_calls: 20,
            retry_interval_sec: 600,
            retry_backoff: None,
            retry_batch: 10,
            retry_overflow: RetryOverflow::Stay,
            bad_quality_action: BadQualityAction::MakeLast,
            notify_on_status_change: false,
            caller_patience_sec: 10,
        }
    }
}

impl Settings {
    /// Whether the connection is judged at all.
    #[must_use]
    pub fn is_monitored(&self) -> bool {
        self.asr_threshold_percent.is_some() || self.acd_threshold_sec.is_some() || self.pdd_threshold_sec.is_some()
    }

    /// How many attempts the window must hold to be judged.
    #[must_use]
    pub fn needed_calls(&self) -> usize {
        self.min_calls.min(self.statistics_window).max(1)
    }

    /// How near the figures are to their thresholds: 1 is on the threshold, less is worse, and the worst monitored metric
    /// decides. Calls without a figure (nothing was answered, nothing rang) are the worst there is; without calls it is 1.
    #[must_use]
    pub fn merit(&self, figures: &Figures) -> f64 {
        if figures.calls == 0 {
            return 1.0;
        }
        let share = |figure: Option<f64>, threshold: Option<f64>, of: fn(f64, f64) -> f64| {
            threshold.map(|threshold| figure.map_or(0.0, |figure| of(figure, threshold)))
        };
        let asr = share(figures.asr, self.asr_threshold_percent, |figure, threshold| figure / threshold);
        let acd = share(figures.acd, self.acd_threshold_sec, |figure, threshold| figure / threshold);
        let pdd = share(figures.pdd, self.pdd_threshold_sec, |figure, threshold| threshold / figure);
        [asr, acd, pdd].into_iter().flatten().reduce(f64::min).unwrap_or(1.0)
    }

    /// The first monitored metric that is strictly on the wrong side of its threshold, in the order ASR, ACD, PDD. A
    /// metric without data crosses nothing.
    #[must_use]
    pub fn crossed(&self, figures: &Figures) -> Option<Reason> {
        let below = |figure: Option<f64>, threshold| figure.zip(threshold).is_some_and(|(have, want)| have < want);
        let above = |figure: Option<f64>, threshold| figure.zip(threshold).is_some_and(|(have, want)| have > want);
        if below(figures.asr, self.asr_threshold_percent) {
            Some(Reason::Asr)
        } else if below(figures.acd, self.acd_threshold_sec) {
            Some(Reason::Acd)
        } else if above(figures.pdd, self.pdd_threshold_sec) {
            Some(Reason::Pdd)
        } else {
            None
        }
    }

    /// Time from a bad verdict to the retry, where it is the `bad_in_row`-th in a row (from 1).
    #[must_use]
    pub fn retry_interval(&self, bad_in_row: u32) -> Duration {
        let base = Duration::from_secs(self.retry_interval_sec);
        let Some(RetryBackoff { factor, max_sec }) = self.retry_backoff else {
            return base;
        };
        let steps = i32::try_from(bad_in_row.saturating_sub(1)).unwrap_or(i32::MAX);
        let longest = Duration::from_secs(max_sec);
        let grown = Duration::try_from_secs_f64(base.as_secs_f64() * factor.powi(steps)).unwrap_or(longest);
        grown.min(longest).max(base)
    }

    /// [`Settings::caller_patience_sec`] as a duration.
    #[must_use]
    pub fn caller_patience(&self) -> Duration {
        Duration::from_secs(self.caller_patience_sec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(asr: f64, acd: f64, pdd: f64) -> Figures {
        Figures { calls: 20, asr: Some(asr), acd: Some(acd), pdd: Some(pdd), ner: None }
    }

    #[test]
    fn on_the_threshold_is_good_and_the_first_crossed_is_named() {
        let settings = Settings {
            asr_threshold_percent: Some(40.0),
            acd_threshold_sec: Some(30.0),
            pdd_threshold_sec: Some(6.0),
            ..Settings::default()
        };
        assert_eq!(settings.crossed(&figures(40.0, 30.0, 6.0)), None);
        assert_eq!(settings.crossed(&figures(39.9, 29.0, 7.0)), Some(Reason::Asr));
        assert_eq!(settings.crossed(&figures(40.0, 29.9, 7.0)), Some(Reason::Acd));
        assert_eq!(settings.crossed(&figures(40.0, 30.0, 6.001)), Some(Reason::Pdd));
        assert_eq!(settings.crossed(&Figures::default()), None);
    }

    #[test]
    fn the_worst_metric_says_how_near_the_figures_are_and_no_figure_is_the_worst() {
        let settings = Settings {
            asr_threshold_percent: Some(40.0),
            acd_threshold_sec: Some(30.0),
            pdd_threshold_sec: Some(6.0),
            ..Settings::default()
        };
        assert_eq!(settings.merit(&figures(20.0, 30.0, 3.0)), 0.5);
        assert_eq!(settings.merit(&figures(40.0, 60.0, 24.0)), 0.25);
        assert_eq!(settings.merit(&figures(80.0, 60.0, 0.0)), 2.0);
        let nothing_answered = Figures { acd: None, ..figures(0.0, 0.0, 1.0) };
        let acd_alone = Settings { acd_threshold_sec: Some(30.0), ..Settings::default() };
        assert_eq!(acd_alone.merit(&nothing_answered), 0.0);
        assert_eq!(acd_alone.merit(&Figures::default()), 1.0);
    }

    #[test]
    fn what_is_not_monitored_is_not_judged() {
        let settings = Settings { asr_threshold_percent: Some(40.0), ..Settings::default() };
        assert_eq!(settings.crossed(&figures(50.0, 0.1, 99.0)), None);
    }

    #[test]
    fn the_interval_grows_to_its_cap_and_no_further() {
        let backoff = Some(RetryBackoff { factor: 2.0, max_sec: 2_000 });
        let settings = Settings { retry_backoff: backoff, ..Settings::default() };
        let secs: Vec<u64> = (1..=4).map(|n| settings.retry_interval(n).as_secs()).collect();
        assert_eq!(secs, [600, 1_200, 2_000, 2_000]);
        assert_eq!(settings.retry_interval(u32::MAX).as_secs(), 2_000);
        assert_eq!(Settings::default().retry_interval(9).as_secs(), 600);
    }
}
