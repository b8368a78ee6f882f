//! Commands that were sent and not answered yet.

use std::collections::VecDeque;
use std::time::Duration;

use super::{COMMAND_LIMIT, MAX_IN_FLIGHT};

/// Longest run of numbers in a [`Table`] from the oldest command that waits to the newest.
const LONGEST_SPAN: usize = 1 << 16;

#[derive(Debug)]
struct Asked<K> {
    /// What was asked; `None` once it was given up or answered out of turn.
    what: Option<K>,
    at: Duration,
}

/// Replies that come in the order of the commands (ESL). What is given up keeps its place, so that its late reply
/// cannot be taken for the next one's.
#[derive(Debug)]
pub(super) struct Fifo<K> {
    queue: VecDeque<Asked<K>>,
    /// How many at the front were given up: all have the same limit, so they go in order.
    given_up: usize,
}

impl<K> Default for Fifo<K> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), given_up: 0 }
    }
}

impl<K> Fifo<K> {
    pub(super) fn push(&mut self, what: K, now: Duration) {
        self.queue.push_back(Asked { what: Some(what), at: now });
    }

    /// The command that the reply which has just come belongs to, and when it was sent. `None`: nobody waits for it
    /// (any more).
    pub(super) fn answered(&mut self) -> Answered<K> {
        match self.queue.pop_front() {
            None => Answered::Stray,
            Some(Asked { what: None, .. }) => {
                self.given_up -= 1;
                Answered::Late
            }
            Some(Asked { what: Some(what), at }) => Answered::Awaited(what, at),
        }
    }

    /// Gives up the oldest command whose time is over.
    pub(super) fn expired(&mut self, now: Duration) -> Option<K> {
        let asked = self.queue.get_mut(self.given_up).filter(|asked| now >= asked.at + COMMAND_LIMIT)?;
        self.given_up += 1;
        asked.what.take()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.queue.get(self.given_up).map(|asked| asked.at + COMMAND_LIMIT)
    }

    /// Whether another command may be sent. Those given up count: the PBX still has them before it.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < MAX_IN_FLIGHT
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = K> {
        self.given_up = 0;
        std::mem::take(&mut self.queue).into_iter().filter_map(|asked| asked.what)
    }
}

/// What a reply belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered<K> {
    /// A command that waits, and when it was sent.
    Awaited(K, Duration),
    /// A command that was given up.
    Late,
    /// Nothing that was asked.
    Stray,
}

/// Replies that name their command (AMI's ActionID). The names are numbers that are never used twice in a session.
#[derive(Debug)]
pub(super) struct Table<K> {
    /// Commands by number, beginning with `first`.
    asked: VecDeque<Asked<K>>,
    first: u64,
    waiting: usize,
}

impl<K> Table<K> {
    /// An empty table whose first command gets the number `first`.
    pub(super) fn beginning_at(first: u64) -> Self {
        Self { asked: VecDeque::new(), first, waiting: 0 }
    }

    /// The number of the next command.
    pub(super) fn next_id(&self) -> u64 {
        self.first + self.asked.len() as u64
    }

    pub(super) fn push(&mut self, what: K, now: Duration) {
        self.asked.push_back(Asked { what: Some(what), at: now });
        self.waiting += 1;
    }

    /// The command with this number, and when it was sent.
    pub(super) fn take(&mut self, id: u64) -> Option<(K, Duration)> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        let asked = self.asked.get_mut(index)?;
        let taken = (asked.what.take()?, asked.at);
        self.waiting -= 1;
        self.trim();
        Some(taken)
    }

    /// The oldest command that waits.
    pub(super) fn oldest(&self) -> Option<u64> {
        (!self.asked.is_empty()).then_some(self.first)
    }

    /// Gives up the oldest command whose time is over; its late reply belongs to nothing.
    pub(super) fn expired(&mut self, now: Duration) -> Option<K> {
        let asked = self.asked.front_mut().filter(|asked| now >= asked.at + COMMAND_LIMIT)?;
        let what = asked.what.take()?;
        self.waiting -= 1;
        self.trim();
        Some(what)
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.asked.front().map(|asked| asked.at + COMMAND_LIMIT)
    }

    /// Whether another command may be sent. One that is never answered must not hold up those behind it, so those
    /// that wait are counted, not the span from the oldest to the newest; that has a bound of its own.
    pub(super) fn has_room(&self) -> bool {
        self.waiting < MAX_IN_FLIGHT && self.asked.len() < LONGEST_SPAN
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = K> {
        self.first += self.asked.len() as u64;
        self.waiting = 0;
        std::mem::take(&mut self.asked).into_iter().filter_map(|asked| asked.what)
    }

    /// The front always waits: what was answered out of turn goes with what was before it.
    fn trim(&mut self) {
        while self.asked.front().is_some_and(|asked| asked.what.is_none()) {
            self.asked.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_reply_that_is_late_takes_nobody_elses_place() {
        let mut fifo = Fifo::default();
        fifo.push("slow", secs(0));
        fifo.push("next", secs(4));
        assert_eq!(fifo.deadline(), Some(secs(5)));
        assert_eq!(fifo.expired(secs(4)), None);
        assert_eq!(fifo.expired(secs(5)), Some("slow"));
        assert_eq!(fifo.expired(secs(5)), None);
        assert_eq!(fifo.deadline(), Some(secs(9)));
        assert_eq!(fifo.answered(), Answered::Late);
        assert_eq!(fifo.answered(), Answered::Awaited("next", secs(4)));
        assert_eq!(fifo.answered(), Answered::Stray);
    }

    #[test]
    fn a_named_reply_finds_its_command_in_any_order() {
        let mut table = Table::beginning_at(1);
        let ids: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|what| {
                let id = table.next_id();
                table.push(what, secs(id));
                id
            })
            .collect();
        assert_eq!(table.take(ids[1]), Some(("b", secs(2))));
        assert_eq!(table.take(ids[1]), None, "once");
        assert_eq!(table.take(99), None);
        assert_eq!(table.take(0), None);
        assert_eq!(table.take(ids[2]), Some(("c", secs(3))));
        assert_eq!(table.expired(secs(6)), Some("a"));
        assert_eq!((table.waiting, table.expired(secs(60)), table.oldest()), (0, None, None));
        assert_eq!(table.next_id(), 4, "a number is never used twice");
    }

    #[test]
    fn all_that_wait_hear_of_a_loss_once() {
        let mut fifo = Fifo::default();
        fifo.push(1, secs(0));
        fifo.push(2, secs(3));
        assert_eq!(fifo.expired(secs(5)), Some(1));
        assert_eq!(fifo.drain().collect::<Vec<_>>(), [2]);
        assert_eq!(fifo.answered(), Answered::Stray);
    }
}
