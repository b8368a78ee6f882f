//! How a connection is.

use std::fmt;
use std::str::FromStr;

use super::{Unreadable, because, place, read_place, read_until};
use crate::quality::machine::Progress;
use crate::quality::pin::{Pin, Pinned};
use crate::time::Timestamp;

/// What follows the sentence of a state that is only assumed.
pub const ASSUMED: &str = " (assumed)";

const TOO_FEW: &str = "Not enough calls yet";
const RETRY: &str = "Connection on retry batch";

/// How a connection is, by its figures or by an operator's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSentence {
    /// Nobody judges it.
    Unmonitored,
    /// There have not been enough calls to judge it: those that there have been, of those that it takes.
    TooFew(Progress),
    /// Its figures are good.
    Good,
    /// It was lowered.
    Lowered,
    /// It is blocked.
    Blocked,
    /// Its figures are bad, and nothing is done.
    Bad,
    /// It has a batch of calls to be judged anew by. How far the batch is, where there is one.
    Retry(Option<Progress>),
    /// An operator said how it is routed.
    Pinned {
        /// How.
        pin: Pin,
        /// Until when; in thousandths of a second.
        until: Option<Timestamp>,
        /// Who said so.
        who: String,
        /// Why, in their words; may be empty.
        why: String,
    },
}

impl StateSentence {
    const IN_WORDS: [Self; 6] =
        [Self::Unmonitored, Self::Good, Self::Lowered, Self::Blocked, Self::Bad, Self::Retry(None)];
}

impl From<&Pinned> for StateSentence {
    fn from(pinned: &Pinned) -> Self {
        let Pinned { pin, who, why, until, .. } = pinned;
        Self::Pinned { pin: *pin, until: *until, who: who.to_string(), why: why.to_string() }
    }
}

// === The sentence written ===

impl fmt::Display for StateSentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmonitored => f.write_str("Connection is not monitored"),
            Self::TooFew(Progress { done, of }) => write!(f, "{TOO_FEW} ({done} of {of})"),
            Self::Good => f.write_str("Connection quality is good"),
            Self::Lowered => f.write_str("Connection preference lowered due to bad quality"),
            Self::Blocked => f.write_str("Connection blocked due to bad quality"),
            Self::Bad => f.write_str("Connection quality is bad (notify only)"),
            Self::Retry(None) => f.write_str(RETRY),
            Self::Retry(Some(Progress { done, of })) => write!(f, "{RETRY} ({done} of {of})"),
            Self::Pinned { pin, until, who, why } => {
                write!(f, "{}{} (by {who}){}", place(*pin), super::until(*until), because(why))
            }
        }
    }
}

// === The sentence read ===

impl FromStr for StateSentence {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let in_words = Self::IN_WORDS.into_iter().find(|known| known.to_string() == text);
        in_words
            .or_else(|| read_progress(text, TOO_FEW).map(Self::TooFew))
            .or_else(|| read_progress(text, RETRY).map(|progress| Self::Retry(Some(progress))))
            .or_else(|| read_pinned(text))
            .ok_or(Unreadable)
    }
}

fn read_progress(text: &str, before: &str) -> Option<Progress> {
    let inside = text.strip_prefix(before)?.strip_prefix(" (")?.strip_suffix(')')?;
    let (done, of) = inside.split_once(" of ")?;
    Some(Progress { done: done.parse().ok()?, of: of.parse().ok()? })
}

fn read_pinned(text: &str) -> Option<StateSentence> {
    let (pin, rest) = read_place(text)?;
    let (until, rest) = read_until(rest)?;
    let rest = rest.strip_prefix(" (by ")?;
    let (who, why) = match rest.split_once("): ") {
        Some((who, why)) => (who, why.to_owned()),
        None => (rest.strip_suffix(')')?, String::new()),
    };
    Some(StateSentence::Pinned { pin, until, who: who.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pin_in_force_names_the_place_the_end_the_operator_and_the_reason() {
        let pinned = |pin, until, why: &str| {
            let pinned = Pinned { pin, who: "alice".into(), why: why.into(), since: Timestamp::default(), until };
            StateSentence::from(&pinned).to_string()
        };
        assert_eq!(pinned(Pin::PinGood, None, ""), "pinned to its usual place (by alice)");
        assert_eq!(pinned(Pin::PinBlock, None, "their works"), "pinned: gets no calls (by alice): their works");
        assert_eq!(
            pinned(Pin::PinLast, Some(Timestamp::from_secs(0)), "rates"),
            "pinned to the end until 1970-01-01T00:00:00.000Z (by alice): rates"
        );
    }

    #[test]
    fn what_is_none_of_the_sentences_is_not_read_as_one() {
        for text in ["", "Connection quality is good (assumed)", "Connection on retry batch (1)", "pinned to the end"] {
            assert_eq!(text.parse::<StateSentence>(), Err(Unreadable), "{text}");
        }
    }

    fn states() -> impl Strategy<Value = StateSentence> {
        let progress = || (0_usize..50, 1_usize..50).prop_map(|(done, of)| Progress { done, of });
        let pins = prop_oneof![Just(Pin::PinGood), Just(Pin::PinLast), Just(Pin::PinBlock)];
        let until = proptest::option::of((0_i64..10_000_000_000_000).prop_map(|ms| Timestamp::from_micros(ms * 1000)));
        prop_oneof![
            (0..StateSentence::IN_WORDS.len()).prop_map(|place| StateSentence::IN_WORDS[place].clone()),
            progress().prop_map(StateSentence::TooFew),
            progress().prop_map(|progress| StateSentence::Retry(Some(progress))),
            (pins, until, "[^)]*", ".*").prop_map(|(pin, until, who, why)| StateSentence::Pinned {
                pin,
                until,
                who,
                why
            }),
        ]
    }

    proptest! {
        #[test]
        fn every_sentence_that_is_written_is_read_back_as_what_it_says(sentence in states()) {
            let text = sentence.to_string();
            prop_assert_eq!(text.parse(), Ok(sentence), "{}", text);
        }
    }
}
