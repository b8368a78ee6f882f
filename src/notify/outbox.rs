//! What is to be delivered, in which order, and when: everything about the outbox but the sending. Pure: the time and
//! the randomness are arguments, the tries happen elsewhere and are reported back.
//!
//! ```text
//!            taken by the server                        WAITING ──> SENT
//!            refused for good, or given up              WAITING ──> DEAD ──(operator: retry)──> WAITING
//!            operator: drop                             WAITING, DEAD ──> DROPPED
//! ```
//!
//! - **Order.** Of the mails to one address about one subject only the oldest that waits is tried: nobody reads of a
//!   recovery before the alarm. A dead one holds up nobody.
//! - **The server and the letter.** A failure that says nothing about the letter (no connection, no login, silence)
//!   closes the outbox for a while instead of being found out again for every letter.
//! - **Bounded.** At most [`MAX_LETTERS`]; what must give way is counted.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::notify::letter::{Delivery, DeliveryState, Failure, Letter};
use crate::time::Timestamp;

/// Most letters that are kept. One is some 10 KB: 100 MB at the very worst, for a thousand customers with ten mails each.
pub const MAX_LETTERS: usize = 10_000;

/// How many letters that came to their end are kept to be looked at; their bodies are not.
pub const SETTLED_KEPT: usize = 100;

/// First wait of a letter that was refused for now; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(60);

/// Longest wait of a letter.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// First wait after the server could not be used; it doubles with each further failure.
const FIRST_CLOSED: Duration = Duration::from_secs(5);

/// Longest wait for the server: it should be used soon after it is back.
const LONGEST_CLOSED: Duration = Duration::from_secs(300);

/// A delivery to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The letter.
    pub number: u64,
    /// To whom.
    pub address: String,
}

impl Ticket {
    /// For a delivery of a letter.
    #[must_use]
    pub fn of(letter: &Letter, delivery: &Delivery) -> Self {
        Self { number: letter.number, address: delivery.address.clone() }
    }
}

/// How the server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Server {
    /// Failures in a row.
    failures: u32,
    closed_until: Timestamp,
    /// What the last failure was; empty while it works.
    problem: String,
}

/// The outbox.
#[derive(Clone, Debug)]
pub struct Outbox {
    letters: BTreeMap<u64, Letter>,
    server: Server,
    give_up_after: Duration,
    /// Numbers of letters that changed since [`Outbox::take_changed`].
    changed: HashSet<u64>,
    /// Message-IDs of letters that are not kept any more.
    gone: Vec<String>,
    /// Deliveries that the server took since the start.
    sent: u64,
    /// Letters that gave way to others before they were delivered.
    overflowed: u64,
}

/// What changed, to be stored.
#[derive(Debug, Default, PartialEq)]
pub struct Changed {
    /// Letters to keep as they are now.
    pub kept: Vec<Letter>,
    /// Message-IDs of letters not to keep any more.
    pub gone: Vec<String>,
}

impl Outbox {
    /// The outbox with what was kept of it. `give_up_after` is how long a delivery is tried.
    #[must_use]
    pub fn new(letters: impl IntoIterator<Item = Letter>, give_up_after: Duration, now: Timestamp) -> Self {
        let mut outbox = Self {
            letters: BTreeMap::new(),
            server: Server::default(),
            give_up_after,
            changed: HashSet::new(),
            gone: Vec::new(),
            sent: 0,
            overflowed: 0,
        };
        let mut letters: Vec<_> = letters.into_iter().collect();
        letters.sort_by_key(|letter| (letter.number, letter.made_at));
        for mut letter in letters {
            let number = outbox.next_number().max(letter.number);
            letter.deliveries.iter_mut().for_each(|delivery| not_by_a_clock_ahead(delivery, now));
            outbox.letters.insert(number, Letter { number, ..letter });
        }
        outbox.make_room();
        outbox
    }

    /// Takes over what was kept and could not be read before: letters that are not settled, oldest first.
    pub fn adopt(&mut self, mut letters: Vec<Letter>, now: Timestamp) {
        letters.sort_by_key(|letter| (letter.number, letter.made_at));
        for mut letter in letters.into_iter().filter(Letter::is_open) {
            letter.deliveries.iter_mut().for_each(|delivery| not_by_a_clock_ahead(delivery, now));
            self.post(letter);
        }
    }

    fn next_number(&self) -> u64 {
        self.letters.last_key_value().map_or(1, |(last, _)| last + 1)
    }

    /// Takes a letter. Says its number. A letter with the Message-ID of one that
    /// is there is that one, composed again, and is not taken twice.
    pub fn post(&mut self, letter: Letter) -> u64 {
        if let Some(known) = self.letters.values().find(|known| known.message_id == letter.message_id) {
            return known.number;
        }
        let number = self.next_number();
        self.letters.insert(number, Letter { number, ..letter });
        self.changed.insert(number);
        self.make_room();
        number
    }

    /// Whether the server may be tried.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.server.closed_until <= now
    }

    /// The deliveries to try now, in this order: what has been due for longest first, so that one at which the server
    /// fails each time comes after all that it keeps waiting.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Vec<Ticket> {
        if !self.is_open(now) {
            return Vec::new();
        }
        let mut due: Vec<_> = self.heads().filter(|(_, delivery)| delivery.next_try_at <= now).collect();
        due.sort_by_key(|(_, delivery)| delivery.next_try_at);
        due.into_iter().map(|(letter, delivery)| Ticket::of(letter, delivery)).collect()
    }

    /// When [`Outbox::due`] has something next; `None` where nothing waits.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let first = self.heads().map(|(_, delivery)| delivery.next_try_at).min()?;
        Some(first.max(self.server.closed_until))
    }

    /// Deliveries that wait for no other: the oldest of each address and subject.
    fn heads(&self) -> impl Iterator<Item = (&Letter, &Delivery)> {
        let mut behind = HashSet::new();
        self.letters.values().flat_map(waiting).filter(move |(letter, delivery)| {
            let mut first = true;
            for about in &letter.about {
                first &= behind.insert((delivery.address.as_str(), about));
            }
            first
        })
    }

    /// Gives up what has waited too long for a server that cannot be used; do so before [`Outbox::due`]. While nothing is
    /// known against the server nothing is given up, so that what outlived an outage of our own gets its chance.
    pub fn give_up(&mut self, now: Timestamp) -> Vec<Ticket> {
        let mut given_up = Vec::new();
        if self.server.failures == 0 {
            return given_up;
        }
        let problem = in_vain(&self.server.problem);
        for letter in self.letters.values_mut() {
            let number = letter.number;
            for delivery in letter.deliveries.iter_mut().filter(|delivery| delivery.is_waiting()) {
                if delivery.give_up_at(self.give_up_after) <= now {
                    delivery.settle(DeliveryState::Dead, &problem, now);
                    given_up.push(Ticket { number, address: delivery.address.clone() });
                    self.changed.insert(number);
                }
            }
        }
        given_up
    }

    /// A try came to its end at `now`. `random` is in `0.0..1.0`.
    pub fn tried(&mut self, ticket: &Ticket, outcome: Result<(), Failure>, now: Timestamp, random: f64) {
        match &outcome {
            Err(Failure::Server(problem)) => self.server.failed(problem, now, random),
            _ => self.server = Server::default(),
        }
        let closed_until = self.server.closed_until;
        let give_up_after = self.give_up_after;
        let Some(letter) = self.letters.get_mut(&ticket.number) else { return };
        let Some(delivery) = letter.deliveries.iter_mut().find(|delivery| delivery.address == ticket.address) else {
            return;
        };
        delivery.tries = delivery.tries.saturating_add(1);
        self.changed.insert(ticket.number);
        match outcome {
            Ok(()) => {
                delivery.settle(DeliveryState::Sent, "", now);
                self.sent += 1;
            }
            // An operator may have dropped it meanwhile.
            Err(_) if !delivery.is_waiting() => {}
            Err(Failure::Permanent(problem)) => delivery.settle(DeliveryState::Dead, &problem, now),
            Err(Failure::Temporary(problem) | Failure::Server(problem))
                if delivery.give_up_at(give_up_after) <= now =>
            {
                delivery.settle(DeliveryState::Dead, &in_vain(&problem), now);
            }
            Err(Failure::Temporary(problem)) => {
                delivery.refusals = delivery.refusals.saturating_add(1);
                delivery.next_try_at = now.after(wait(FIRST_WAIT, LONGEST_WAIT, delivery.refusals, random));
                delivery.problem = problem;
            }
            Err(Failure::Server(problem)) => {
                // It may be this letter that the server fails at: the others reset the server's wait, not this one.
                let failures = delivery.tries - delivery.refusals;
                let own = now.after(wait(FIRST_CLOSED, LONGEST_CLOSED, failures, random));
                delivery.next_try_at = own.max(closed_until);
                delivery.problem = problem;
            }
        }
        self.tidy_after(ticket.number);
    }

    /// An operator wants a letter tried now: of its deliveries that may still be tried, those that are `meant` are due at
    /// once. Says how many that are; `None` where there is no such letter.
    pub fn retry(&mut self, number: u64, meant: fn(&Delivery) -> bool, now: Timestamp) -> Option<usize> {
        let letter = self.letters.get_mut(&number)?;
        let mut count = 0;
        for delivery in letter.deliveries.iter_mut().filter(|delivery| delivery.is_open() && meant(delivery)) {
            if delivery.is_dead() {
                delivery.waits_since = now;
                delivery.refusals = 0;
            }
            delivery.state = DeliveryState::Waiting;
            delivery.next_try_at = now;
            delivery.settled_at = None;
            count += 1;
        }
        if count > 0 {
            self.server.closed_until = now;
            self.changed.insert(number);
        }
        Some(count)
    }

    /// An operator wants those deliveries of a letter that are `meant` not to be tried any more. Says how many that are;
    /// `None` where there is no such letter.
    pub fn discard(&mut self, number: u64, meant: fn(&Delivery) -> bool, now: Timestamp) -> Option<usize> {
        let letter = self.letters.get_mut(&number)?;
        let mut count = 0;
        for delivery in letter.deliveries.iter_mut().filter(|delivery| delivery.is_open() && meant(delivery)) {
            let problem = std::mem::take(&mut delivery.problem);
            delivery.settle(DeliveryState::Dropped, &problem, now);
            count += 1;
        }
        self.changed.insert(number);
        self.tidy_after(number);
        Some(count)
    }

    /// A letter.
    #[must_use]
    pub fn letter(&self, number: u64) -> Option<&Letter> {
        self.letters.get(&number)
    }

    /// All letters, oldest first.
    pub fn letters(&self) -> impl DoubleEndedIterator<Item = &Letter> {
        self.letters.values()
    }

    /// What changed since this was last asked, to be stored.
    pub fn take_changed(&mut self) -> Changed {
        let mut numbers: Vec<u64> = self.changed.drain().collect();
        numbers.sort_unstable();
        let kept = numbers.iter().filter_map(|number| self.letters.get(number).cloned()).collect();
        Changed { kept, gone: std::mem::take(&mut self.gone) }
    }

    /// Why the server cannot be used, and when it is tried again; `None` while it works.
    #[must_use]
    pub fn server_problem(&self) -> Option<(&str, Timestamp)> {
        (self.server.failures > 0).then_some((self.server.problem.as_str(), self.server.closed_until))
    }

    /// Deliveries that the server took since the start.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Letters that were not delivered because there was no room for them.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Empties a letter that came to its end, and forgets the oldest of those.
    fn tidy_after(&mut self, number: u64) {
        let Some(letter) = self.letters.get_mut(&number).filter(|letter| !letter.is_open()) else { return };
        letter.text = String::new();
        letter.html = String::new();
        let settled: Vec<u64> =
            self.letters.values().filter(|letter| !letter.is_open()).map(|letter| letter.number).collect();
        for number in settled.iter().take(settled.len().saturating_sub(SETTLED_KEPT)) {
            self.forget(*number);
        }
    }

    /// Forgets letters beyond the bound: those that wait for an operator before those that wait for the server.
    fn make_room(&mut self) {
        while self.letters.len() > MAX_LETTERS {
            let idle = self.letters.values().find(|letter| waiting(letter).next().is_none());
            let Some(victim) = idle.or_else(|| self.letters.values().next()) else { return };
            let (number, lost) = (victim.number, victim.is_open());
            self.overflowed += u64::from(lost);
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        self.changed.remove(&number);
        self.gone.extend(self.letters.remove(&number).map(|letter| letter.message_id));
    }
}

impl Server {
    fn failed(&mut self, problem: &str, now: Timestamp, random: f64) {
        self.failures = self.failures.saturating_add(1);
        self.closed_until = now.after(wait(FIRST_CLOSED, LONGEST_CLOSED, self.failures, random));
        problem.clone_into(&mut self.problem);
    }
}

/// The wait after that many failures in a row: it doubles up to `longest`, and jitter takes up to half of it away, so
/// that many who failed together do not come back together.
fn wait(first: Duration, longest: Duration, failures: u32, random: f64) -> Duration {
    let whole = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest);
    whole.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

/// What a clock wrote down that was ahead of ours (it was put right since) must not hold a delivery back, and all that
/// waits behind it.
fn not_by_a_clock_ahead(delivery: &mut Delivery, now: Timestamp) {
    delivery.next_try_at = delivery.next_try_at.min(now.after(LONGEST_WAIT));
    delivery.waits_since = delivery.waits_since.min(now);
}

fn in_vain(problem: &str) -> String {
    format!("given up: {problem}")
}

fn waiting(letter: &Letter) -> impl Iterator<Item = (&Letter, &Delivery)> {
    letter.deliveries.iter().filter(|delivery| delivery.is_waiting()).map(move |delivery| (letter, delivery))
}

#[cfg(test)]
mod tests;
