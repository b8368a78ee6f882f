//! How an attempt ended, in the words that the figures are made of, and the table that decides it.

use serde::{Deserialize, Serialize};

/// The outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The leg was answered, whatever came after.
    Answered,
    /// The called person is busy.
    Busy,
    /// It rang and nobody answered.
    NoAnswer,
    /// Refused by the called person.
    Rejected,
    /// The number does not exist or is not complete.
    NumberInvalid,
    /// The vendor failed the call.
    VendorFailed,
    /// The caller gave up first.
    CallerGone,
    /// Another branch of a fork won, or somebody picked the call up.
    LostRace,
    /// The switch says that it never left, or it was redirected.
    NotSent,
    /// Its end was not seen.
    Lost,
}

impl Outcome {
    /// Whether the attempt counts as a call sent: it takes a place in the window and in the ASR.
    #[must_use]
    pub fn in_window(self) -> bool {
        !matches!(self, Self::LostRace | Self::NotSent | Self::Lost)
    }
}

/// What ended a leg, as far as the switch tells.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EndedBy {
    /// The far end's own final answer (a SIP status or a cause that came from it), or the hangup of an answered leg.
    FarEnd,
    /// Our switch stopped waiting.
    OurTimeout,
    /// The caller gave up first.
    Caller,
    /// Another branch won, or it was picked up elsewhere.
    Race,
    /// It was redirected (3xx).
    Redirect,
    /// It never left the switch.
    NeverSent,
    /// The end was not seen.
    Unseen,
}

/// All that decides an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Evidence {
    /// What ended the leg.
    pub ended_by: EndedBy,
    /// Whether it was answered.
    pub answered: bool,
    /// Whether it rang (180 or 183).
    pub rang: bool,
    /// The SIP status, only where the vendor sent it.
    pub sip_status: Option<u16>,
    /// The Q.850 cause as the switch gives it.
    pub cause: Option<u16>,
}

/// Which outcome each SIP status and each cause stands for: data, with the default of [`CauseTable::default`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CauseTable {}

impl CauseTable {
    /// The outcome that the evidence stands for.
    #[must_use]
    pub fn outcome(&self, _evidence: &Evidence) -> Outcome {
        Outcome::Lost
    }
}
