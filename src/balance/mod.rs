//! Which node the next call should go to: the published picture of all nodes, and seven ways to choose from it.
//!
//! The engine publishes a [`Picture`] whenever a figure changes; whoever asks reads it without a lock. Between two
//! pictures the answers themselves are what changes: each counts as a call on its node until the call shows up or the
//! lease is over, so that a burst spreads.

mod choose;
pub mod lease;
mod picture;
mod ring;
#[cfg(test)]
mod tests;

pub use choose::{NoAnswer, Router};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::score::Lethal;
use crate::time::Timestamp;

/// A node, as far as a choice needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Where its calls are sent.
    pub address: Arc<str>,
    /// Its score, or [`EXCLUDED`](crate::score::EXCLUDED).
    pub score: f64,
    /// What its score would be without anything lethal.
    pub fitness: f64,
    /// Points of the score that one more call costs.
    pub points_per_call: f64,
    /// Outbound legs that are up.
    pub active_calls: u64,
    /// Most that there should be.
    pub max_calls: Option<u32>,
    /// Reply time in milliseconds, smoothed.
    pub rtt_ms: f64,
    /// Whether there is a link to it: what a fallback must have.
    pub linked: bool,
    /// Whether it has answered, since the start, how it is.
    pub replied: bool,
    /// Whether the operator took it out of service: no fallback either.
    pub disabled: bool,
    /// Why it gets no calls.
    pub lethal: Vec<Lethal>,
    /// Answers with this node that have become calls or whose lease is over, of all that were given.
    pub settled: u64,
}

/// What the engine publishes of all nodes.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Picture {
    /// Grows with every picture.
    pub generation: u64,
    /// When it was made.
    pub at: Timestamp,
    /// The nodes, in the order configured.
    pub candidates: Vec<Candidate>,
    /// The node with the best score among those that take calls.
    pub best: Option<NodeId>,
    /// Its score; [`EXCLUDED`](crate::score::EXCLUDED) where there is none.
    pub best_score: f64,
    /// Whether no node takes calls: each is excluded or below `min_score`.
    pub fallback_active: bool,
    /// The node that is answered then; `None` while some node takes calls, and where there is none to fall back on.
    pub fallback: Option<NodeId>,
    /// Whether a route map has all of its connections blocked.
    pub panic: bool,
    /// A node with a lower score is skipped.
    pub min_score: f64,
    /// The node that the operator wants answered when no other takes calls.
    pub fallback_node: Option<NodeId>,
}

/// An answer to "which node?".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Answer {
    /// The node.
    pub node_id: NodeId,
    /// Where its calls are sent.
    pub address: Arc<str>,
    /// Its score in the picture, outstanding answers not counted; [`EXCLUDED`](crate::score::EXCLUDED) where it is the
    /// fallback and something is lethal.
    pub score: f64,
    /// How it was chosen.
    pub mode: crate::config::model::Mode,
    /// Whether no node takes calls and this is the fallback.
    pub fallback_active: bool,
    /// Whether a route map has all of its connections blocked.
    pub panic: bool,
    /// Of the picture.
    pub generation: u64,
    /// Why this node, in a few words.
    pub reason: String,
}
