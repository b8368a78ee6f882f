//! The states of a connection.

use serde::{Deserialize, Serialize};

use crate::quality::window::{Epoch, Figures};
use crate::time::Timestamp;

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// On the right side of every threshold, or not judged yet.
    Good,
    /// The action applies.
    Bad,
    /// Back in its usual place for a batch of calls.
    Retry,
}

/// Why a state changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// ASR under its threshold.
    Asr,
    /// ACD under its threshold.
    Acd,
    /// PDD over its threshold.
    Pdd,
    /// The retry interval is over.
    RetryInterval,
    /// A batch was good.
    Batch,
}

/// A change of state, with the figures that led to it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// The state before.
    pub from: State,
    /// The state now; may be [`State::Bad`] after [`State::Bad`] (a bad verdict on an early batch).
    pub to: State,
    /// Why.
    pub reason: Reason,
    /// The epoch that begins.
    pub epoch: Epoch,
    /// What the verdict was over; empty for a retry.
    pub figures: Figures,
}
