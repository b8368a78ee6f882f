//! How fit a node is for the next call: its figures into a score, and what rules it out. Pure.
//!
//! A figure that nobody supplies is *unknown*: its term is left out and the weights of the others are scaled up, so that
//! a node is neither praised nor punished for what nobody knows. Nothing that is not a number ever reaches a score.

pub mod breaker;
pub mod ewma;
pub mod failures;
pub mod formula;
pub mod rate;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The score of a node that is ruled out.
pub const EXCLUDED: f64 = -100.0;

/// What the operator wants of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Admin {
    /// It takes calls.
    #[default]
    Enabled,
    /// It takes no new calls; those that are up end by themselves.
    Draining,
    /// It is out of service.
    Disabled,
}

impl Admin {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Draining => "draining",
            Self::Disabled => "disabled",
        }
    }
}

/// Where a figure comes from; one from further up in this list goes before one from further down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = FigureSource)]
pub enum Source {
    /// Somebody told us (`PUT /api/nodes/{id}/load`).
    Pushed,
    /// The PBX said so.
    Pbx,
    /// This machine, which the node runs on.
    Local,
}

/// A figure, with where it comes from and when.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Figure {
    /// Its value.
    pub value: f64,
    /// Where it comes from.
    pub source: Source,
    /// When it was true.
    pub at: Timestamp,
}

/// Load figures, as somebody reports them; absent ones are not known.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// Load average over a minute.
    #[schema(minimum = 0, maximum = 100_000)]
    pub load_avg: Option<f64>,
    /// Idle CPU of the machine, in percent.
    #[schema(minimum = 0, maximum = 100)]
    pub idle_cpu: Option<f64>,
    /// Free memory of the machine, in percent.
    #[schema(minimum = 0, maximum = 100)]
    pub memory_free: Option<f64>,
}

/// All that a score is made of, as far as it is known.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = NodeFigures)]
pub struct Figures {
    /// Outbound legs that are up.
    pub active_calls: u64,
    /// Most that there should be.
    pub max_calls: Option<u32>,
    /// Load average over a minute.
    pub load_avg: Option<Figure>,
    /// Cores that it is divided by, where it is.
    pub cores: Option<u32>,
    /// Idle CPU, in percent.
    pub idle_cpu: Option<Figure>,
    /// Free memory, in percent.
    pub memory_free: Option<Figure>,
    /// Share of the last attempts that failed by the network's fault, in percent; `None` over too few.
    pub failure_rate: Option<f64>,
    /// Calls placed a second, over the last ten.
    pub calls_per_sec: Option<f64>,
    /// Most calls a second that there should be.
    pub max_calls_per_sec: Option<f64>,
    /// Reply time to the keepalive in milliseconds, smoothed.
    pub rtt_ms: Option<f64>,
}

/// Why a node gets no calls.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Lethal {
    /// There is no link to it.
    LinkDown,
    /// The PBX says that it takes no calls: paused, shutting down, not ready.
    NotReady,
    /// No sign of life for too long.
    Stale {
        /// Seconds since the last one.
        silent_sec: f64,
    },
    /// It carries as many calls as it should, or more.
    Full,
    /// Too little idle CPU.
    Cpu {
        /// Idle CPU, in percent.
        idle: f64,
    },
    /// Too many failed calls.
    Failures {
        /// Failure rate, in percent.
        rate: f64,
    },
    /// Its breaker is open, or half open and waiting for the trial's result.
    Breaker,
    /// The operator lets it run dry.
    Draining,
    /// The operator took it out of service.
    Disabled,
}

impl fmt::Display for Lethal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown => f.write_str("no link"),
            Self::NotReady => f.write_str("the PBX takes no calls"),
            Self::Stale { silent_sec } => write!(f, "no sign of life for {silent_sec:.0} s"),
            Self::Full => f.write_str("full"),
            Self::Cpu { idle } => write!(f, "idle CPU {idle:.1} %"),
            Self::Failures { rate } => write!(f, "{rate:.1} % of calls failed"),
            Self::Breaker => f.write_str("its breaker is open"),
            Self::Draining => f.write_str("draining"),
            Self::Disabled => f.write_str("out of service"),
        }
    }
}

/// One term of a score.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Term {
    /// Its name, as in the configuration.
    pub name: String,
    /// Its weight as configured.
    pub weight: f64,
    /// Its weight here, scaled up where other terms are unknown; 0 where it is unknown itself.
    pub weight_used: f64,
    /// Its value from 0 to 100; `None` where it is unknown.
    pub value: Option<f64>,
}

/// What a node's figures come to.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Assessment {
    /// From 0 to 100, or [`EXCLUDED`].
    pub score: f64,
    /// What the score would be without anything lethal.
    pub fitness: f64,
    /// The terms that the score is made of.
    pub terms: Vec<Term>,
    /// Why it gets no calls; empty where it does.
    pub lethal: Vec<Lethal>,
}
