//! How an attempt ended, in the words that the figures are made of, and the table that decides it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize, utoipa::ToSchema)]
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

    /// The word for it in files and on the screen.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Busy => "busy",
            Self::NoAnswer => "no_answer",
            Self::Rejected => "rejected",
            Self::NumberInvalid => "number_invalid",
            Self::VendorFailed => "vendor_failed",
            Self::CallerGone => "caller_gone",
            Self::LostRace => "lost_race",
            Self::NotSent => "not_sent",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Whether the network did its part (ITU-T E.425): `Some(true)` where the call reached the called person or their
/// line, `Some(false)` where it did not, `None` where the attempt says nothing about the network.
///
/// A caller who gave up counts as good if it had rung, as bad if nothing rang for `patience` or longer, else not at
/// all: nobody can tell what would have come.
#[must_use]
pub fn ner(outcome: Outcome, rang: bool, waited: Duration, patience: Duration) -> Option<bool> {
    match outcome {
        Outcome::Answered | Outcome::Busy | Outcome::NoAnswer | Outcome::Rejected => Some(true),
        Outcome::NumberInvalid | Outcome::VendorFailed => Some(false),
        Outcome::CallerGone if rang => Some(true),
        Outcome::CallerGone if waited >= patience => Some(false),
        Outcome::CallerGone | Outcome::LostRace | Outcome::NotSent | Outcome::Lost => None,
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
    /// The Q.850 cause. Where the switch names a cause without giving its number, this is the number of that name.
    pub cause: Option<u16>,
}

/// What one SIP status or cause stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ruling {
    Is(Outcome),
    /// Nobody answered if it rang; else nothing at all came of it, which is the vendor's failure.
    NoAnswerIfRang,
}

use Outcome::{Busy, NoAnswer, NotSent, NumberInvalid, Rejected, VendorFailed};
use Ruling::{Is, NoAnswerIfRang};

/// The default for SIP statuses; the first range that holds the status decides.
const SIP: &[(RangeInclusive<u16>, Ruling)] = &[
    (300..=399, Is(NotSent)),
    (404..=404, Is(NumberInvalid)),
    (408..=408, NoAnswerIfRang),
    (410..=410, Is(NumberInvalid)),
    (416..=416, Is(NumberInvalid)),
    (480..=480, Is(NoAnswer)),
    (484..=485, Is(NumberInvalid)),
    (486..=486, Is(Busy)),
    (487..=487, NoAnswerIfRang),
    (600..=600, Is(Busy)),
    (603..=603, Is(Rejected)),
    (604..=604, Is(NumberInvalid)),
    (607..=608, Is(Rejected)),
    (400..=699, Is(VendorFailed)),
];

/// The default for Q.850 causes, in the same way. A cause that is not named here is the vendor's failure.
const Q850: &[(RangeInclusive<u16>, Ruling)] = &[
    (0..=0, NoAnswerIfRang),
    (1..=1, Is(NumberInvalid)),
    (16..=16, NoAnswerIfRang),
    (17..=17, Is(Busy)),
    (18..=18, NoAnswerIfRang),
    (19..=19, Is(NoAnswer)),
    (21..=21, Is(Rejected)),
    (22..=22, Is(NumberInvalid)),
    (23..=23, Is(NotSent)),
    (28..=28, Is(NumberInvalid)),
    (0..=u16::MAX, Is(VendorFailed)),
];

fn ruling(table: &[(RangeInclusive<u16>, Ruling)], number: u16) -> Option<Ruling> {
    table.iter().find(|(range, _)| range.contains(&number)).map(|(_, ruling)| *ruling)
}

/// Which outcome each SIP status and each Q.850 cause stands for: data, with the default of [`CauseTable::default`].
///
/// It has a say only where the far end gave the final answer itself. What our side ended (a timeout, the caller, the
/// winner of a fork) is known without it, and an answered call is answered whatever its cause.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CauseTable {
    sip: BTreeMap<u16, Outcome>,
    q850: BTreeMap<u16, Outcome>,
}

impl CauseTable {
    /// The default table with other outcomes for some SIP statuses and Q.850 causes.
    #[must_use]
    pub fn with_overrides(sip: BTreeMap<u16, Outcome>, q850: BTreeMap<u16, Outcome>) -> Self {
        Self { sip, q850 }
    }

    /// The SIP statuses that stand for another outcome than by default.
    #[must_use]
    pub fn sip(&self) -> &BTreeMap<u16, Outcome> {
        &self.sip
    }

    /// The Q.850 causes that stand for another outcome than by default.
    #[must_use]
    pub fn q850(&self) -> &BTreeMap<u16, Outcome> {
        &self.q850
    }

    /// The outcome that the evidence stands for.
    #[must_use]
    pub fn outcome(&self, evidence: &Evidence) -> Outcome {
        if evidence.answered {
            return Outcome::Answered;
        }
        match evidence.ended_by {
            EndedBy::FarEnd => self.final_answer(evidence),
            EndedBy::OurTimeout => NoAnswerIfRang.decide(evidence.rang),
            EndedBy::Caller => Outcome::CallerGone,
            EndedBy::Race => Outcome::LostRace,
            EndedBy::Redirect | EndedBy::NeverSent => Outcome::NotSent,
            EndedBy::Unseen => Outcome::Lost,
        }
    }

    fn final_answer(&self, evidence: &Evidence) -> Outcome {
        let of = |overrides: &BTreeMap<u16, Outcome>, table, number: u16| {
            overrides.get(&number).map(|outcome| Is(*outcome)).or_else(|| ruling(table, number))
        };
        let by_status = evidence.sip_status.and_then(|status| of(&self.sip, SIP, status));
        let by_cause = || evidence.cause.and_then(|cause| of(&self.q850, Q850, cause));
        by_status.or_else(by_cause).unwrap_or(NoAnswerIfRang).decide(evidence.rang)
    }
}

impl Ruling {
    fn decide(self, rang: bool) -> Outcome {
        match self {
            Is(outcome) => outcome,
            NoAnswerIfRang if rang => NoAnswer,
            NoAnswerIfRang => VendorFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far_end(rang: bool, sip_status: Option<u16>, cause: Option<u16>) -> Evidence {
        Evidence { ended_by: EndedBy::FarEnd, answered: false, rang, sip_status, cause }
    }

    fn decide(rang: bool, sip_status: Option<u16>, cause: Option<u16>) -> Outcome {
        CauseTable::default().outcome(&far_end(rang, sip_status, cause))
    }

    #[test]
    fn sip_statuses() {
        let table: &[(&[u16], Outcome)] = &[
            (&[486, 600], Busy),
            (&[480], NoAnswer),
            (&[603, 607, 608], Rejected),
            (&[404, 410, 416, 484, 485, 604], NumberInvalid),
            (&[300, 302, 305, 380], NotSent),
            (&[400, 401, 403, 405, 407, 408, 481, 482, 487, 488, 489, 491, 499], VendorFailed),
            (&[500, 501, 502, 503, 504, 513, 580, 599, 601, 606, 699], VendorFailed),
        ];
        for (statuses, outcome) in table {
            for &status in *statuses {
                assert_eq!(decide(false, Some(status), Some(17)), *outcome, "{status}");
            }
        }
        for status in [408, 480, 487] {
            assert_eq!(decide(true, Some(status), Some(127)), NoAnswer, "{status} after ringing");
        }
        assert_eq!(decide(true, Some(503), Some(16)), VendorFailed, "ringing does not excuse a 503");
    }

    #[test]
    fn causes_decide_where_there_is_no_sip_status() {
        let table: &[(&[u16], Outcome)] = &[
            (&[17], Busy),
            (&[19], NoAnswer),
            (&[21], Rejected),
            (&[1, 22, 28], NumberInvalid),
            (&[23], NotSent),
            (&[2, 3, 20, 27, 31, 34, 38, 41, 42, 44, 58, 88, 102, 127, 487, 604], VendorFailed),
            (&[0, 16, 18], VendorFailed),
        ];
        for (causes, outcome) in table {
            for &cause in *causes {
                assert_eq!(decide(false, None, Some(cause)), *outcome, "{cause}");
            }
        }
        for cause in [0, 16, 18, 19] {
            assert_eq!(decide(true, None, Some(cause)), NoAnswer, "{cause} after ringing");
        }
        assert_eq!(decide(false, None, None), VendorFailed);
        assert_eq!(decide(true, None, None), NoAnswer);
        assert_eq!(decide(false, Some(200), Some(17)), Busy, "200 is no refusal, so the cause decides");
    }

    #[test]
    fn the_table_has_a_say_only_where_the_far_end_answered() {
        let table = CauseTable::default();
        let outcome = |ended_by, answered, rang| {
            let (sip_status, cause) = (Some(486), Some(17));
            table.outcome(&Evidence { ended_by, answered, rang, sip_status, cause })
        };
        assert_eq!(outcome(EndedBy::Race, true, true), Outcome::Answered);
        assert_eq!(outcome(EndedBy::Unseen, true, false), Outcome::Answered);
        assert_eq!(outcome(EndedBy::Unseen, false, true), Outcome::Lost);
        assert_eq!(outcome(EndedBy::OurTimeout, false, true), NoAnswer);
        assert_eq!(outcome(EndedBy::OurTimeout, false, false), VendorFailed);
        assert_eq!(outcome(EndedBy::Caller, false, true), Outcome::CallerGone);
        assert_eq!(outcome(EndedBy::Race, false, true), Outcome::LostRace);
        assert_eq!(outcome(EndedBy::Redirect, false, true), NotSent);
        assert_eq!(outcome(EndedBy::NeverSent, false, false), NotSent);
    }

    #[test]
    fn the_table_can_be_edited() {
        let table = CauseTable::with_overrides([(403, Rejected)].into(), [(27, Busy)].into());
        assert_eq!(table.outcome(&far_end(false, Some(403), Some(21))), Rejected);
        assert_eq!(table.outcome(&far_end(false, Some(503), Some(27))), VendorFailed, "the status goes first");
        assert_eq!(table.outcome(&far_end(false, None, Some(27))), Busy);
        assert_eq!(table.outcome(&far_end(false, None, Some(17))), Busy, "the rest is as before");
    }

    #[test]
    fn the_network_is_judged_by_what_it_could_do() {
        let ner = |outcome, rang, waited| ner(outcome, rang, Duration::from_secs(waited), Duration::from_secs(10));
        for good in [Outcome::Answered, Busy, NoAnswer, Rejected] {
            assert_eq!(ner(good, false, 0), Some(true), "{good}");
        }
        assert_eq!(ner(NumberInvalid, true, 60), Some(false));
        assert_eq!(ner(VendorFailed, true, 60), Some(false));
        assert_eq!(ner(Outcome::CallerGone, true, 1), Some(true));
        assert_eq!(ner(Outcome::CallerGone, false, 9), None);
        assert_eq!(ner(Outcome::CallerGone, false, 10), Some(false));
        for none in [Outcome::LostRace, NotSent, Outcome::Lost] {
            assert_eq!(ner(none, true, 60), None, "{none}");
        }
    }
}
