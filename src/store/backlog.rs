//! What waits to be written. Bounded, whatever the disk does: what stands for a state is kept once per owner, sums are
//! added up, and what grows with time is dropped, oldest first, and counted.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::op::{AdminRow, ChangeRow, LegRow, StoreOp, Tally, Whose};
use crate::ids::{LegId, MapId, NodeId, QualityKey};
use crate::notify::kept::{Kept, KeptKey};
use crate::notify::notice::{FAILED_CALLS, FailedCall};
use crate::quality::machine::Saved;
use crate::quality::pin::Pinned;
use crate::routing::dynamic::Learnt;
use crate::time::Timestamp;

/// Most changes of state that wait. Each is about 300 bytes; a hundred flapping connections with the shortest sensible
/// interval make 12,000 an hour.
pub(super) const MAX_CHANGES: usize = 10_000;

/// Most minutes of sums that wait, over all owners: a day for 40 owners, about 15 MB.
pub(super) const MAX_MINUTES: usize = 60_000;

/// Most legs that wait: more than a few full nodes carry, about 10 MB.
pub(super) const MAX_LEGS: usize = 50_000;

/// Most things of the outbox that wait: more than the outbox itself holds.
pub(super) const MAX_MAIL: usize = 20_000;

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
    /// Newest last, at most [`FAILED_CALLS`] of each.
    pub(super) failed: HashMap<QualityKey, VecDeque<FailedCall>>,
    /// `None`: needed no more.
    pub(super) mail: HashMap<KeptKey, Option<Kept>>,
    /// `None`: it ended. Bounded by the connections that are configured.
    pub(super) pins: HashMap<QualityKey, Option<Pinned>>,
    /// Bounded by the nodes that are configured.
    pub(super) admins: HashMap<NodeId, AdminRow>,
    /// `None`: of no use any more. Bounded by the maps that are configured.
    pub(super) learnt: HashMap<MapId, Option<Box<Learnt>>>,
}

impl Pending {
    /// Rows that wait.
    pub(super) fn rows(&self) -> usize {
        self.quality.len()
            + self.changes.len()
            + self.legs.len()
            + self.minutes.len()
            + usize::from(self.generation.is_some())
            + self.failed.values().map(VecDeque::len).sum::<usize>()
            + self.mail.len()
            + self.pins.len()
            + self.admins.len()
            + self.learnt.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Adds what is newer than everything in it. Says how many rows were dropped for want of room.
    fn push(&mut self, op: StoreOp, on_disk: &OnDisk) -> u64 {
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
                if on_disk.legs.contains(&key) {
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
            StoreOp::Failed(key, call) => self.push_failed(key, [*call]),
            StoreOp::Pin(key, pinned) => {
                self.pins.insert(key, pinned);
            }
            StoreOp::Admin(node, row) => {
                self.admins.insert(node, row);
            }
            StoreOp::Learnt(map, learnt) => {
                self.learnt.insert(map, learnt);
            }
            StoreOp::Mail(kept) => {
                self.mail.insert(kept.key(), Some(kept));
            }
            StoreOp::MailGone(key) => {
                // What came and went while nothing could be written needs no row, and must not pile up.
                if on_disk.mail.contains(&key) {
                    self.mail.insert(key, None);
                } else {
                    self.mail.remove(&key);
                }
            }
        }
        self.make_room()
    }

    fn push_failed(&mut self, key: QualityKey, calls: impl IntoIterator<Item = FailedCall>) {
        let failed = self.failed.entry(key).or_default();
        failed.extend(calls);
        failed.drain(..failed.len().saturating_sub(FAILED_CALLS));
    }

    /// Puts back `older`, which could not be written. Says how many rows were dropped for want of room.
    fn put_back(&mut self, older: Self, on_disk: &OnDisk) -> u64 {
        let newer = std::mem::replace(self, older);
        self.quality.extend(newer.quality);
        self.changes.extend(newer.changes);
        self.legs.extend(newer.legs);
        self.legs.retain(|key, row| row.is_some() || on_disk.legs.contains(key));
        for (key, tally) in newer.minutes {
            self.minutes.entry(key).or_default().add(&tally);
        }
        self.generation = self.generation.max(newer.generation);
        for (key, calls) in newer.failed {
            self.push_failed(key, calls);
        }
        self.pins.extend(newer.pins);
        self.admins.extend(newer.admins);
        self.learnt.extend(newer.learnt);
        self.mail.extend(newer.mail);
        self.mail.retain(|key, kept| kept.is_some() || on_disk.mail.contains(key));
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
        if self.mail.len() > MAX_MAIL {
            // The outbox itself has it in memory and goes on delivering; only a crash could lose it now.
            let victim = self.mail.iter().find(|(_, kept)| kept.is_some()).map(|(key, _)| key.clone());
            if let Some(victim) = victim {
                self.mail.remove(&victim);
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

/// What the file holds, or what is being written to it: only that has to be deleted once it is gone.
#[derive(Clone, Debug, Default)]
pub(super) struct OnDisk {
    pub(super) legs: HashSet<LegKey>,
    pub(super) mail: HashSet<KeptKey>,
}

/// Everything that is handed over, between the engine and the writer.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pending: Pending,
    on_disk: OnDisk,
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

    /// An empty one over a file that holds this.
    pub(super) fn over(on_disk: OnDisk) -> Self {
        Self { on_disk, ..Self::default() }
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
        self.on_disk.legs.extend(taken.legs.iter().filter(|(_, row)| row.is_some()).map(|(key, _)| key.clone()));
        self.on_disk.mail.extend(taken.mail.iter().filter(|(_, kept)| kept.is_some()).map(|(key, _)| key.clone()));
        taken
    }

    /// What was taken is in the file.
    pub(super) fn written(&mut self, taken: &Pending) {
        self.writing = 0;
        for (key, _) in taken.legs.iter().filter(|(_, row)| row.is_none()) {
            self.on_disk.legs.remove(key);
            if self.pending.legs.get(key).is_some_and(Option::is_none) {
                self.pending.legs.remove(key);
            }
        }
        for (key, _) in taken.mail.iter().filter(|(_, kept)| kept.is_none()) {
            self.on_disk.mail.remove(key);
            if self.pending.mail.get(key).is_some_and(Option::is_none) {
                self.pending.mail.remove(key);
            }
        }
    }

    /// `older`, which is older than everything that waits, is not in the file, which holds `on_disk`.
    pub(super) fn put_back(&mut self, older: Pending, on_disk: OnDisk) {
        self.writing = 0;
        self.on_disk = on_disk;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::call::outcome::Outcome;
    use crate::ids::ConnectionId;
    use crate::notify::kept::{KeptKind, Thread};
    use crate::notify::notice::Subject;
    use crate::quality::machine::{Change, Reason, State};
    use crate::quality::pin::Pin;
    use crate::quality::settings::Settings;
    use crate::quality::window::{Epoch, Figures};
    use crate::score::Admin;

    fn key(n: u8) -> QualityKey {
        QualityKey::connection(ConnectionId::new(&format!("vendor-{n}")).unwrap())
    }

    fn saved(n: u64) -> Box<Saved> {
        Box::new(Saved {
            settings: Settings::default(),
            state: State::Good,
            since: Timestamp::from_micros(0),
            epochs: vec![(Epoch(n), Timestamp::from_micros(0))],
            measured_from: Epoch(n),
            window: Vec::new(),
            batch: Vec::new(),
            interval_from: Timestamp::from_micros(0),
            bad_in_row: 0,
            turned_bad_at: None,
        })
    }

    fn change(n: u64) -> StoreOp {
        let change = Change {
            at: Timestamp::from_micros(0),
            from: State::Good,
            to: State::Bad,
            reason: Reason::Asr,
            epoch: Epoch(n),
            figures: Figures::default(),
        };
        StoreOp::Changed(Box::new(ChangeRow { key: key(0), change, words: "".into(), who: "".into() }))
    }

    fn node() -> NodeId {
        NodeId::new("pbx").unwrap()
    }

    fn leg(n: u8, epoch: u64) -> Box<LegRow> {
        Box::new(LegRow {
            node: node(),
            leg: LegId::new(&n.to_string()),
            trunk: "t".into(),
            map: None,
            number: None,
            placed_at: Timestamp::from_micros(0),
            ringing_at: None,
            answered_at: None,
            epoch: Some(Epoch(epoch)),
        })
    }

    fn gone(n: u8) -> StoreOp {
        StoreOp::LegGone(node(), LegId::new(&n.to_string()))
    }

    fn count(minute: u8, calls: u64) -> StoreOp {
        let tally = Tally { calls, max_active: calls, ..Tally::default() };
        StoreOp::Count { at: Timestamp::from_secs(i64::from(minute) * 60), whose: Whose::Node(node()), tally }
    }

    fn failed(at: i64) -> FailedCall {
        let at = Timestamp::from_micros(at);
        FailedCall { at, node: node(), number: None, outcome: Outcome::Busy, cause: Some(17), sip_status: None }
    }

    fn pinned(since: i64) -> Pinned {
        let since = Timestamp::from_micros(since);
        Pinned { pin: Pin::PinLast, who: "somebody".into(), why: "".into(), since, until: None }
    }

    fn admin(since: i64) -> AdminRow {
        let since = Timestamp::from_micros(since);
        AdminRow { admin: Admin::Draining, who: "somebody".into(), why: "".into(), since }
    }

    fn thread(n: u8, since: i64) -> Kept {
        let since = Timestamp::from_micros(since);
        Kept::Thread(Box::new(Thread { about: Subject::Connection(key(n)), message_id: "a@b".to_owned(), since }))
    }

    /// A file in the simplest form: what it holds after some operations, or after a backlog was written to it.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Model {
        quality: HashMap<QualityKey, Box<Saved>>,
        changes: Vec<ChangeRow>,
        legs: HashMap<LegKey, Box<LegRow>>,
        minutes: BTreeMap<(i64, Whose), Tally>,
        generation: u64,
        failed: HashMap<QualityKey, Vec<FailedCall>>,
        mail: HashMap<KeptKey, Kept>,
        pins: HashMap<QualityKey, Pinned>,
        learnt: HashMap<MapId, Learnt>,
        admins: HashMap<NodeId, AdminRow>,
    }

    impl Model {
        fn fail(&mut self, key: &QualityKey, call: FailedCall) {
            let failed = self.failed.entry(key.clone()).or_default();
            failed.push(call);
            if failed.len() > FAILED_CALLS {
                failed.remove(0);
            }
        }

        fn perform(&mut self, op: StoreOp) {
            match op {
                StoreOp::Quality(key, saved) => drop(self.quality.insert(key, saved)),
                StoreOp::Changed(row) => self.changes.push(*row),
                StoreOp::LegUp(row) => drop(self.legs.insert((row.node.clone(), row.leg.clone()), row)),
                StoreOp::LegGone(node, leg) => drop(self.legs.remove(&(node, leg))),
                StoreOp::Count { at, whose, tally } => {
                    self.minutes.entry((minute(at), whose)).or_default().add(&tally);
                }
                StoreOp::Generation(generation) => self.generation = self.generation.max(generation),
                StoreOp::Failed(key, call) => self.fail(&key, *call),
                StoreOp::Pin(key, Some(pinned)) => drop(self.pins.insert(key, pinned)),
                StoreOp::Pin(key, None) => drop(self.pins.remove(&key)),
                StoreOp::Learnt(map, Some(learnt)) => drop(self.learnt.insert(map, *learnt)),
                StoreOp::Learnt(map, None) => drop(self.learnt.remove(&map)),
                StoreOp::Admin(node, row) => drop(self.admins.insert(node, row)),
                StoreOp::Mail(kept) => drop(self.mail.insert(kept.key(), kept)),
                StoreOp::MailGone(key) => drop(self.mail.remove(&key)),
            }
        }

        fn write(&mut self, pending: &Pending) {
            self.quality.extend(pending.quality.clone());
            self.changes.extend(pending.changes.iter().cloned());
            for (key, row) in &pending.legs {
                match row {
                    Some(row) => drop(self.legs.insert(key.clone(), row.clone())),
                    None => assert!(self.legs.remove(key).is_some(), "a leg is deleted that was never written"),
                }
            }
            for (key, tally) in &pending.minutes {
                self.minutes.entry(key.clone()).or_default().add(tally);
            }
            self.generation = self.generation.max(pending.generation.unwrap_or(0));
            for (key, calls) in &pending.failed {
                calls.iter().for_each(|call| self.fail(key, call.clone()));
            }
            for (map, learnt) in &pending.learnt {
                match learnt {
                    Some(learnt) => drop(self.learnt.insert(map.clone(), Learnt::clone(learnt))),
                    None => drop(self.learnt.remove(map)),
                }
            }
            for (key, pinned) in &pending.pins {
                match pinned {
                    Some(pinned) => drop(self.pins.insert(key.clone(), pinned.clone())),
                    None => drop(self.pins.remove(key)),
                }
            }
            self.admins.extend(pending.admins.clone());
            for (key, kept) in &pending.mail {
                match kept {
                    Some(kept) => drop(self.mail.insert(key.clone(), kept.clone())),
                    None => assert!(self.mail.remove(key).is_some(), "mail is deleted that was never written"),
                }
            }
        }

        fn on_disk(&self) -> OnDisk {
            OnDisk { legs: self.legs.keys().cloned().collect(), mail: self.mail.keys().cloned().collect() }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Hand(StoreOp),
        /// What the writer took before is in the file, or is not; then it takes what waits.
        Write {
            succeeded: bool,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let op = prop_oneof![
            (0..3u8, 0..9u64).prop_map(|(n, epoch)| StoreOp::Quality(key(n), saved(epoch))),
            (0..9u64).prop_map(change),
            (0..4u8, 0..9u64).prop_map(|(n, epoch)| StoreOp::LegUp(leg(n, epoch))),
            (0..4u8).prop_map(gone),
            (0..3u8, 0..9u64).prop_map(|(minute, calls)| count(minute, calls)),
            (0..9u64).prop_map(StoreOp::Generation),
            (0..3u8, proptest::option::of(0..9i64)).prop_map(|(n, since)| StoreOp::Pin(key(n), since.map(pinned))),
            (0..3u8, proptest::option::of(0..9u64)).prop_map(|(n, fingerprint)| {
                let map = MapId::new(&format!("map-{n}")).unwrap();
                StoreOp::Learnt(map, fingerprint.map(|fingerprint| Box::new(Learnt { fingerprint, routes: vec![] })))
            }),
            (0..9i64).prop_map(|since| StoreOp::Admin(node(), admin(since))),
            (0..3u8, 0..99i64).prop_map(|(n, at)| StoreOp::Failed(key(n), Box::new(failed(at)))),
            (0..3u8, 0..9i64).prop_map(|(n, since)| StoreOp::Mail(thread(n, since))),
            (0..3u8).prop_map(|n| StoreOp::MailGone(thread(n, 0).key())),
        ];
        let step = prop_oneof![
            4 => op.prop_map(Step::Hand),
            1 => any::<bool>().prop_map(|succeeded| Step::Write { succeeded }),
        ];
        proptest::collection::vec(step, 0..80)
    }

    fn end(backlog: &mut Backlog, file: &mut Model, taken: Pending, succeeded: bool) {
        if succeeded {
            file.write(&taken);
            backlog.written(&taken);
        } else {
            backlog.put_back(taken, file.on_disk());
        }
    }

    proptest! {
        /// Whatever is handed over while whatever writes fail: once a write succeeds, the file holds what it would hold
        /// had each operation been performed as it came.
        #[test]
        fn failing_writes_lose_and_double_nothing(steps in steps()) {
            let (mut backlog, mut file, mut model) = (Backlog::default(), Model::default(), Model::default());
            let mut taken = backlog.take();
            for step in steps {
                match step {
                    Step::Hand(op) => {
                        model.perform(op.clone());
                        backlog.push(op);
                    }
                    Step::Write { succeeded } => {
                        end(&mut backlog, &mut file, taken, succeeded);
                        taken = backlog.take();
                    }
                }
            }
            end(&mut backlog, &mut file, taken, false);
            let rest = backlog.take();
            end(&mut backlog, &mut file, rest, true);
            prop_assert_eq!(file, model);
            prop_assert_eq!((backlog.rows(), backlog.dropped()), (0, 0));
        }
    }

    #[test]
    fn a_call_that_comes_and_goes_between_two_writes_costs_none() {
        let mut backlog = Backlog::default();
        backlog.push(StoreOp::LegUp(leg(1, 1)));
        backlog.push(gone(1));
        assert!(backlog.is_empty());
    }

    #[test]
    fn mail_that_comes_and_goes_during_an_outage_crowds_out_none() {
        let mut backlog = Backlog::default();
        backlog.push(StoreOp::Mail(thread(0, 0)));
        for n in 0..=MAX_MAIL {
            let name = format!("{n}");
            backlog.push(StoreOp::MailGone(KeptKey { kind: KeptKind::Notice, name }));
        }
        assert_eq!((backlog.rows(), backlog.dropped()), (1, 0));
    }

    #[test]
    fn an_outage_costs_the_oldest_history_and_no_state() {
        let mut backlog = Backlog::default();
        let changes = MAX_CHANGES as u64 + 3;
        for n in 0..changes {
            backlog.push(change(n));
            backlog.push(StoreOp::Quality(key(0), saved(n)));
            backlog.push(count(0, 1));
        }
        assert_eq!((backlog.rows(), backlog.dropped()), (MAX_CHANGES + 2, 3));
        let taken = backlog.take();
        assert_eq!(taken.changes[0].change.epoch, Epoch(3));
        assert_eq!(taken.quality[&key(0)].measured_from, Epoch(changes - 1));
        assert_eq!(taken.minutes.values().map(|tally| tally.calls).sum::<u64>(), changes);
        // What comes while a full backlog is being written makes its oldest rows go if that fails.
        backlog.push(change(changes));
        backlog.put_back(taken, OnDisk::default());
        assert_eq!((backlog.rows(), backlog.dropped()), (MAX_CHANGES + 2, 4));
    }

    #[test]
    fn legs_beyond_the_bound_are_not_kept() {
        let mut backlog = Backlog::default();
        for n in 0..=MAX_LEGS {
            let row = LegRow { leg: LegId::new(&n.to_string()), ..*leg(0, 0) };
            backlog.push(StoreOp::LegUp(Box::new(row)));
        }
        assert_eq!((backlog.rows(), backlog.dropped()), (MAX_LEGS, 1));
    }

    #[test]
    fn nothing_waits_for_a_writer_that_has_ended() {
        let mut backlog = Backlog::default();
        backlog.push(change(1));
        backlog.close();
        backlog.push(change(2));
        assert_eq!((backlog.rows(), backlog.dropped()), (0, 2));
    }
}
