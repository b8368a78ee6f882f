//! All connections' states: the one place that the engine, `pointsman judge` and the backtest feed attempts to.
//!
//! A key that is not monitored has a machine too: its attempts are shown and never judged.

use std::collections::{BTreeSet, HashMap};

use crate::ids::QualityKey;
use crate::quality::machine::{Change, Machine, Saved, Standing, State};
use crate::quality::settings::Settings;
use crate::quality::window::{Epoch, Sample};
use crate::time::Timestamp;

/// The place of a key in a [`Book`]; valid for that book until it is configured anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Seat(usize);

/// What others must hear of when it changes.
type Shown = (State, Standing);

#[derive(Debug)]
struct Entry {
    key: QualityKey,
    machine: Machine,
    /// The deadline that `timers` holds for it.
    timer: Option<Timestamp>,
    /// What `moved` was last told.
    shown: Shown,
}

/// The machines of all configured keys, with their timers.
#[derive(Debug, Default)]
pub struct Book {
    entries: Vec<Entry>,
    seats: HashMap<QualityKey, Seat>,
    timers: BTreeSet<(Timestamp, Seat)>,
    /// Keys whose state or standing may have changed since [`Book::take_moved`].
    moved: BTreeSet<Seat>,
}

/// What a new configuration made of the machines.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Configured {
    /// Changes of state, in the order configured.
    pub changes: Vec<(QualityKey, Change)>,
    /// What is not configured any more, as it should be kept for the day when it is again.
    pub gone: Vec<(QualityKey, Saved)>,
}

impl Book {
    /// Machines for the keys, all of them new. A key that comes twice keeps its first settings.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = (QualityKey, Settings)>, now: Timestamp) -> Self {
        let mut book = Self::default();
        for (key, settings) in keys {
            book.add(key, Machine::new(settings, now));
        }
        book
    }

    /// Takes the configured keys from now on: a key that stays keeps its machine (see [`Machine::set_settings`]), a new
    /// one begins, one that is not configured any more is given back. All [`Seat`]s become invalid.
    pub fn configure(&mut self, keys: impl IntoIterator<Item = (QualityKey, Settings)>, now: Timestamp) -> Configured {
        let mut before: HashMap<QualityKey, Machine> =
            std::mem::take(self).entries.into_iter().map(|entry| (entry.key, entry.machine)).collect();
        let mut changes = Vec::new();
        for (key, settings) in keys {
            let machine = match before.remove(&key) {
                None => Machine::new(settings, now),
                Some(mut machine) => {
                    changes.extend(machine.set_settings(settings, now).map(|change| (key.clone(), change)));
                    machine
                }
            };
            self.add(key, machine);
        }
        self.moved = (0..self.entries.len()).map(Seat).collect();
        let mut gone: Vec<_> = before.into_iter().map(|(key, machine)| (key, machine.save())).collect();
        gone.sort_by(|(a, _), (b, _)| a.cmp(b));
        Configured { changes, gone }
    }

    /// Puts back what was saved for a key; the change is what today's settings make of it. Nothing happens where the key
    /// is not configured.
    pub fn restore(&mut self, key: &QualityKey, saved: Saved, now: Timestamp) -> Option<Change> {
        let seat = self.seat(key)?;
        let entry = &mut self.entries[seat.0];
        let (machine, change) = Machine::restore(saved, entry.machine.settings().clone(), now);
        entry.machine = machine;
        self.settle(seat);
        change
    }

    /// The place of a key, where it is configured.
    #[must_use]
    pub fn seat(&self, key: &QualityKey) -> Option<Seat> {
        self.seats.get(key).copied()
    }

    /// The key of a place.
    #[must_use]
    pub fn key(&self, seat: Seat) -> &QualityKey {
        &self.entries[seat.0].key
    }

    /// The machine of a place.
    #[must_use]
    pub fn machine(&self, seat: Seat) -> &Machine {
        &self.entries[seat.0].machine
    }

    /// The machine of a key, where it is configured.
    #[must_use]
    pub fn get(&self, key: &QualityKey) -> Option<&Machine> {
        self.seat(key).map(|seat| self.machine(seat))
    }

    /// All keys and their machines, in the order configured.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&QualityKey, &Machine)> {
        self.entries.iter().map(|entry| (&entry.key, &entry.machine))
    }

    /// An attempt was placed: the epoch that it belongs to.
    pub fn placed(&mut self, seat: Seat) -> Epoch {
        let epoch = self.entries[seat.0].machine.placed();
        self.settle(seat);
        epoch
    }

    /// An attempt became known that was placed earlier: the epoch that it belongs to. See [`Machine::adopted`].
    pub fn adopted(&mut self, seat: Seat, placed_at: Timestamp) -> Epoch {
        let epoch = self.entries[seat.0].machine.adopted(placed_at);
        self.settle(seat);
        epoch
    }

    /// An attempt of `epoch` was up when the program ended. See [`Machine::resumed`].
    pub fn resumed(&mut self, seat: Seat, epoch: Epoch) {
        self.entries[seat.0].machine.resumed(epoch);
        self.settle(seat);
    }

    /// A placed attempt will never finish. See [`Machine::forgotten`].
    pub fn forgotten(&mut self, seat: Seat, epoch: Epoch) {
        self.entries[seat.0].machine.forgotten(epoch);
        self.settle(seat);
    }

    /// An attempt finished.
    pub fn finished(&mut self, seat: Seat, sample: &Sample, now: Timestamp) -> Option<Change> {
        let change = self.entries[seat.0].machine.finished(sample, now);
        self.settle(seat);
        change
    }

    /// An operator has a key begin anew. See [`Machine::reset`].
    pub fn reset(&mut self, seat: Seat, now: Timestamp) -> Change {
        let change = self.entries[seat.0].machine.reset(now);
        self.settle(seat);
        change
    }

    /// When [`Book::fire_due`] is due next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Fires the timers that are due, the earliest first. The changes carry `now`: that is when they take effect.
    pub fn fire_due(&mut self, now: Timestamp) -> Vec<(Seat, Change)> {
        let mut changes = Vec::new();
        while let Some(&(at, seat)) = self.timers.first()
            && at <= now
        {
            changes.extend(self.entries[seat.0].machine.fire(now).map(|change| (seat, change)));
            self.settle(seat);
        }
        changes
    }

    /// The keys whose state or standing changed since the last call, in the order configured.
    pub fn take_moved(&mut self) -> Vec<Seat> {
        std::mem::take(&mut self.moved).into_iter().collect()
    }

    fn add(&mut self, key: QualityKey, machine: Machine) {
        let seat = Seat(self.entries.len());
        if self.seats.contains_key(&key) {
            return;
        }
        self.seats.insert(key.clone(), seat);
        let shown = (machine.state(), machine.standing());
        self.entries.push(Entry { key, machine, timer: None, shown });
        self.settle(seat);
    }

    /// Brings the timer and the list of moved keys into step with a machine.
    fn settle(&mut self, seat: Seat) {
        let entry = &mut self.entries[seat.0];
        let due = entry.machine.deadline();
        if due != entry.timer {
            if let Some(old) = entry.timer {
                self.timers.remove(&(old, seat));
            }
            if let Some(new) = due {
                self.timers.insert((new, seat));
            }
            entry.timer = due;
        }
        let shown = (entry.machine.state(), entry.machine.standing());
        if shown != entry.shown {
            entry.shown = shown;
            self.moved.insert(seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::outcome::Outcome;
    use crate::ids::ConnectionId;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn key(name: &str) -> QualityKey {
        QualityKey::connection(ConnectionId::new(name).expect("an id"))
    }

    fn settings() -> Settings {
        Settings {
            asr_threshold_percent: Some(50.0),
            statistics_window: 1,
            min_calls: 1,
            retry_interval_sec: 100,
            retry_batch: 2,
            ..Settings::default()
        }
    }

    fn fail(book: &mut Book, name: &str, now: i64) -> Option<Change> {
        let seat = book.seat(&key(name)).expect("configured");
        let epoch = book.placed(seat);
        let sample = Sample {
            epoch,
            placed_at: at(now),
            ended_at: at(now),
            outcome: Outcome::VendorFailed,
            duration_ms: Some(0),
            pdd_ms: None,
            cause: None,
            sip_status: None,
        };
        book.finished(seat, &sample, at(now))
    }

    fn moved(book: &mut Book) -> Vec<String> {
        book.take_moved().into_iter().map(|seat| book.key(seat).to_string()).collect()
    }

    #[test]
    fn timers_fire_in_order_and_an_early_verdict_moves_them() {
        let mut book = Book::new([(key("a"), settings()), (key("b"), settings())], at(0));
        assert_eq!(book.next_deadline(), None);
        fail(&mut book, "b", 1);
        fail(&mut book, "a", 2);
        assert_eq!(book.next_deadline(), Some(at(101)));
        fail(&mut book, "b", 50);
        fail(&mut book, "b", 60);
        assert_eq!(book.next_deadline(), Some(at(102)));
        let fired: Vec<_> = book.fire_due(at(200)).iter().map(|(seat, _)| book.key(*seat).to_string()).collect();
        assert_eq!((fired, book.next_deadline()), (vec!["a".to_owned(), "b".to_owned()], None));
    }

    #[test]
    fn tells_what_moved_once() {
        let mut book = Book::new([(key("a"), settings()), (key("b"), settings())], at(0));
        assert!(moved(&mut book).is_empty());
        fail(&mut book, "b", 1);
        assert_eq!(moved(&mut book), ["b"]);
        fail(&mut book, "b", 2);
        assert!(moved(&mut book).is_empty());
        book.fire_due(at(500));
        assert_eq!(moved(&mut book), ["b"]);
    }

    #[test]
    fn a_new_configuration_keeps_who_stays_and_gives_back_who_goes() {
        let mut book = Book::new([(key("a"), settings()), (key("b"), settings())], at(0));
        fail(&mut book, "a", 1);
        fail(&mut book, "b", 1);
        let Configured { changes, gone } = book.configure([(key("c"), settings()), (key("b"), settings())], at(5));
        assert!(changes.is_empty());
        assert_eq!(
            gone.iter().map(|(key, saved)| (key.to_string(), saved.state)).collect::<Vec<_>>(),
            [("a".to_owned(), State::Bad)]
        );
        assert_eq!(book.get(&key("b")).map(Machine::state), Some(State::Bad));
        assert_eq!(book.next_deadline(), Some(at(101)));
        assert_eq!(moved(&mut book), ["c", "b"]);
        let Some((_, saved)) = gone.into_iter().next() else { panic!("one") };
        book.configure([(key("a"), settings())], at(6));
        assert_eq!(book.restore(&key("a"), saved, at(6)), None);
        assert_eq!(book.get(&key("a")).map(Machine::state), Some(State::Bad));
    }
}
