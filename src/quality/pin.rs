//! An operator's word over the verdict: a connection is routed as said, whatever its figures are, until told otherwise.
//!
//! The machine goes on measuring and judging under a pin; only what comes of it in routing is the operator's. So when the
//! pin ends, the state is the one that the figures give.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quality::machine::Standing;
use crate::time::Timestamp;

/// Longest time that a pin may have: ten years. Whoever wants more means "until told otherwise".
pub const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

/// How a connection is routed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pin {
    /// In its usual place.
    PinGood,
    /// After all others.
    PinLast,
    /// Not at all.
    PinBlock,
}

impl Pin {
    /// Where it puts the connection.
    #[must_use]
    pub fn standing(self) -> Standing {
        match self {
            Self::PinGood => Standing::Usual,
            Self::PinLast => Standing::Last,
            Self::PinBlock => Standing::Blocked,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PinGood => "pin_good",
            Self::PinLast => "pin_last",
            Self::PinBlock => "pin_block",
        }
    }
}

/// A pin that is in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Pinned {
    /// What.
    pub pin: Pin,
    /// Who said so.
    pub who: Arc<str>,
    /// Why.
    pub why: Arc<str>,
    /// Since when.
    pub since: Timestamp,
    /// Until when; `None`: until somebody says otherwise.
    pub until: Option<Timestamp>,
}
