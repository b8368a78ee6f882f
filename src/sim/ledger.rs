//! What a simulated PBX sent and was asked, for tests to look at.

use std::collections::{BTreeMap, VecDeque};

use crate::time::Timestamp;

/// Most commands remembered; the oldest go first. A day of a demo must not fill the memory.
const COMMANDS_KEPT: usize = 20_000;

/// A command as it came from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The connection, numbered from 1 in the order in which they were accepted.
    pub connection: u64,
    /// When.
    pub at: Timestamp,
    /// The command: FreeSWITCH's line; Asterisk's lines joined by `|`.
    pub text: String,
}

/// The figures of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes written to it.
    pub bytes_sent: u64,
    /// Events among them.
    pub events_sent: u64,
    /// Events that its queue had no room for.
    pub events_dropped: u64,
    /// Whether it is still up.
    pub open: bool,
}

/// The book.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    connections: BTreeMap<u64, Traffic>,
    commands: VecDeque<Seen>,
}

impl Ledger {
    /// A new connection, which gets the next number.
    pub(crate) fn connected(&mut self) -> u64 {
        let number = self.connections.len() as u64 + 1;
        self.connections.insert(number, Traffic { open: true, ..Traffic::default() });
        number
    }

    pub(crate) fn closed(&mut self, connection: u64) {
        self.entry(connection).open = false;
    }

    pub(crate) fn sent(&mut self, connection: u64, bytes: usize, events: u64) {
        let entry = self.entry(connection);
        entry.bytes_sent += bytes as u64;
        entry.events_sent += events;
    }

    pub(crate) fn dropped(&mut self, connection: u64) {
        self.entry(connection).events_dropped += 1;
    }

    pub(crate) fn command(&mut self, seen: Seen) {
        if self.commands.len() == COMMANDS_KEPT {
            self.commands.pop_front();
        }
        self.commands.push_back(seen);
    }

    fn entry(&mut self, connection: u64) -> &mut Traffic {
        self.connections.entry(connection).or_default()
    }

    /// The figures of every connection since the start, by number.
    #[must_use]
    pub fn connections(&self) -> &BTreeMap<u64, Traffic> {
        &self.connections
    }

    /// The latest commands, oldest first.
    pub fn commands(&self) -> impl Iterator<Item = &Seen> {
        self.commands.iter()
    }
}
