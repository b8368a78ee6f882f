//! What waits to be written. Bounded, whatever the disk does: what stands for a state is kept once per owner, sums are
//! added up, and what grows with time is dropped, oldest first, and counted.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::op::{ChangeRow, LegRow, StoreOp, Tally, Whose};
use crate::ids::{LegId, NodeId, QualityKey};
use crate::quality::machine::Saved;
use crate::time::Timestamp;

/// Most changes of state that wait. Each is about 300 bytes; a hundred flapping connections with the shortest sensible
/// interval make 12,000 an hour.
pub(super) const MAX_CHANGES: usize = 10_000;

/// Most minutes of sums that wait, over all owners: a day for 40 owners, about 15 MB.
pub(super) const MAX_MINUTES: usize = 60_000;

/// Most legs that wait: more than a node can carry, about 20 MB.
pub(super) const MAX_LEGS: usize = 100_000;

/// A leg's name: unique on its node only.
pub(super) type LegKey = (NodeId, LegId);

/// Waiting to be written, folded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pending {
    pub(super) quality: HashMap<QualityKey, Box<Saved>>,
    pub(super) changes: VecDeque<ChangeRow>,
    /// `None`: the leg is gone.
    pub(super) legs: HashMap<LegKey, Option<Box<LegRow>>>,
    /// By minute since the epoch first, so that the oldest are found at once.
    pub(super) minutes: BTreeMap<(i64, Whose), Tally>,
    pub(super) generation: Option<u64>,
}

impl Pending {
    /// Rows that wait.
    pub(super) fn rows(&self) -> usize {
        self.quality.len()
            + self.changes.len()
            + self.legs.len()
            + self.minutes.len()
            + usize::from(self.generation.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Adds what is newer than everything in it. Says how many rows were dropped for want of room.
    fn push(&mut self, op: StoreOp, on_disk: &HashSet<LegKey>) -> u64 {
        match op {
            StoreOp::Quality(key, saved) => {
                self.quality.insert(key, saved);
            }
            StoreOp::Changed(row) => self.changes.push_back(*row),
            StoreOp::LegUp(row) => {
                let key = (row.node.clone(), row.leg.clone());
                self.legs.insert(key, Some(row));
            }
            StoreOp::LegGone(node, leg) => {
                let key = (node, leg);
                // A call that came and went between two writes needs none.
                if on_disk.contains(&key) {
                    self.legs.insert(key, None);
                } else {
                    self.legs.remove(&key);
                }
            }
            StoreOp::Count { at, whose, tally } => {
                self.minutes.entry((minute(at), whose)).or_default().add(&tally);
            }
            StoreOp::Generation(generation) => {
                self.generation = self.generation.max(Some(generation));
            }
        }
        self.make_room()
    }

    /// Puts back `older`, which could not be written. Says how many rows were dropped for want of room.
    fn put_back(&mut self, older: Self, on_disk: &HashSet<LegKey>) -> u64 {
        let newer = std::mem::replace(self, older);
        self.quality.extend(newer.quality);
        self.changes.extend(newer.changes);
        self.legs.extend(newer.legs);
        self.legs.retain(|key, row| row.is_some() || on_disk.contains(key));
        for (key, tally) in newer.minutes {
            self.minutes.entry(key).or_default().add(&tally);
        }
        self.generation = self.generation.max(newer.generation);
        self.make_room()
    }

    fn make_room(&mut self) -> u64 {
        let mut dropped = 0;
        while self.changes.len() > MAX_CHANGES {
            self.changes.pop_front();
            dropped += 1;
        }
        while self.minutes.len() > MAX_MINUTES {
            self.minutes.pop_first();
            dropped += 1;
        }
        if self.legs.len() > MAX_LEGS {
            // No leg matters more than another; without its row a call that outlives us only loses its epoch.
            let victim = self.legs.iter().find(|(_, row)| row.is_some()).map(|(key, _)| key.clone());
            if let Some(victim) = victim {
                self.legs.remove(&victim);
                dropped += 1;
            }
        }
        dropped
    }
}

/// Minutes since the Unix epoch.
pub(super) fn minute(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(60_000_000)
}

/// Everything that is handed over, between the engine and the writer.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pending: Pending,
    /// Legs that the file holds, or that are being written to it.
    on_disk: HashSet<LegKey>,
    /// Rows that are being written.
    writing: usize,
    /// Operations handed over since the start.
    handed: u64,
    dropped: u64,
    /// Nothing is written any more: what comes is counted as dropped.
    closed: bool,
}

impl Backlog {
    /// One that nobody will ever write.
    pub(super) fn closed() -> Self {
        Self { closed: true, ..Self::default() }
    }

    /// An empty one over a file that holds these legs.
    pub(super) fn over(legs: impl IntoIterator<Item = LegKey>) -> Self {
        Self { on_disk: legs.into_iter().collect(), ..Self::default() }
    }

    pub(super) fn push(&mut self, op: StoreOp) {
        self.handed += 1;
        if self.closed {
            self.dropped += 1;
        } else {
            self.dropped += self.pending.push(op, &self.on_disk);
        }
    }

    /// Takes everything, to write it in one transaction. [`Backlog::written`] or [`Backlog::put_back`]
    /// must follow.
    pub(super) fn take(&mut self) -> Pending {
        let taken = std::mem::take(&mut self.pending);
        self.writing = taken.rows();
        self.on_disk.extend(taken.legs.iter().filter(|(_, row)| row.is_some()).map(|(key, _)| key.clone()));
        taken
    }

    /// What was taken is in the file.
    pub(super) fn written(&mut self, taken: &Pending) {
        self.writing = 0;
        for (key, row) in &taken.legs {
            if row.is_none() {
                self.on_disk.remove(key);
            }
        }
    }

    /// `older`, which is older than everything that waits, is not in the file, which holds `legs`.
    pub(super) fn put_back(&mut self, older: Pending, legs: impl IntoIterator<Item = LegKey>) {
        self.writing = 0;
        self.on_disk = legs.into_iter().collect();
        self.dropped += self.pending.put_back(older, &self.on_disk);
    }

    /// Nothing will be written any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.dropped += self.pending.rows() as u64;
        self.pending = Pending::default();
    }

    /// Rows not in the file yet.
    pub(super) fn rows(&self) -> usize {
        self.pending.rows() + self.writing
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn handed(&self) -> u64 {
        self.handed
    }
}
