//! What happened to a connection, and how it is, each as facts and as an English sentence.
//!
//! The log, the audit, the terminal and the programs that ask get the sentence; it is what the database keeps. Whoever
//! speaks another language reads the facts back out of it. Writer and reader of a sentence stand side by side here, and a
//! property test has each read what the other writes.

mod change;
mod state;

pub(crate) use change::decimals;
pub use change::{ChangeSentence, Digits, Done, Failures, Kind, Metric, Reading};
pub use state::{ASSUMED, StateSentence};

use crate::quality::pin::Pin;
use crate::time::Timestamp;

/// A text that is none of these sentences, or one of an earlier version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a sentence of this version")]
pub struct Unreadable;

/// Where a pin puts a connection.
fn place(pin: Pin) -> &'static str {
    match pin {
        Pin::PinGood => "pinned to its usual place",
        Pin::PinLast => "pinned to the end",
        Pin::PinBlock => "pinned: gets no calls",
    }
}

/// The pin at the beginning of a text, and what follows.
fn read_place(text: &str) -> Option<(Pin, &str)> {
    let pins = [Pin::PinGood, Pin::PinLast, Pin::PinBlock];
    pins.into_iter().find_map(|pin| Some((pin, text.strip_prefix(place(pin))?)))
}

/// The end of a pin, after where it puts the connection.
fn until(until: Option<Timestamp>) -> String {
    until.map(|until| format!(" until {until}")).unwrap_or_default()
}

/// The end of a pin at the beginning of a text, where there is one, and what follows.
fn read_until(text: &str) -> Option<(Option<Timestamp>, &str)> {
    let Some(rest) = text.strip_prefix(" until ") else { return Some((None, text)) };
    let (time, _) = rest.split_once('Z')?;
    let (time, rest) = rest.split_at(time.len() + 1);
    let time: jiff::Timestamp = time.parse().ok()?;
    Some((Some(Timestamp::from_micros(time.as_microsecond())), rest))
}

/// The reason that an operator gave, after what they did; empty where they gave none.
fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// The reason that ends a text.
fn read_because(text: &str) -> Option<String> {
    if text.is_empty() { Some(String::new()) } else { text.strip_prefix(": ").map(str::to_owned) }
}

/// A number of calls.
fn calls(count: usize) -> String {
    if count == 1 { "1 call".to_owned() } else { format!("{count} calls") }
}

fn read_calls(text: &str) -> Option<usize> {
    text.strip_suffix(" calls").or_else(|| text.strip_suffix(" call"))?.parse().ok()
}
