//! How a connection is judged.

use serde::{Deserialize, Serialize};

/// What happens to the routing of a bad connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryOverflow {
    /// The connection stays in its place.
    #[default]
    Stay,
    /// The action applies again until the verdict.
    Withhold,
}

/// A growing retry interval: each bad verdict in a row multiplies it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct RetryBackoff {
    /// Factor by which the interval grows, at least 1.
    pub factor: f64,
    /// Longest interval in seconds.
    pub max_sec: u64,
}

/// The settings of one connection, defaults applied and checked. A metric is monitored where its threshold is set.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
}
