//! The last finished attempts of a connection, and the figures over them.

use serde::{Deserialize, Serialize};

use crate::call::outcome::Outcome;
use crate::time::Timestamp;

/// A counter that a connection's state change increments; every attempt carries the one in force when it was placed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// What the window keeps of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The epoch in force when it was placed.
    pub epoch: Epoch,
    /// When it was placed.
    pub placed_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// Answer to end in milliseconds; 0 where unanswered, `None` where the end was not seen.
    pub duration_ms: Option<u64>,
    /// Placing to the first sign of the far end in milliseconds.
    pub pdd_ms: Option<u64>,
    /// The Q.850 cause.
    pub cause: Option<u16>,
    /// The SIP status, where the vendor sent it.
    pub sip_status: Option<u16>,
}

/// The figures over some attempts.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Attempts measured.
    pub calls: usize,
    /// Answer-seizure ratio in percent; `None` over no attempt.
    pub asr: Option<f64>,
    /// Average call duration in seconds; `None` where none has one.
    pub acd: Option<f64>,
    /// Mean post-dial delay in seconds; `None` where none has one.
    pub pdd: Option<f64>,
    /// Network effectiveness ratio (ITU-T E.425) in percent; `None` where no attempt counts for it.
    pub ner: Option<f64>,
}
