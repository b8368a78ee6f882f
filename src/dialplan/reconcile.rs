//! Keeps what a node holds equal to what it should hold, one write at a time. Pure; [`super::apply`] drives it.
//!
//! It knows what the PBX holds once everything that was sent has been carried out ([`Belief`]): commands are carried out
//! in the order sent, so the next write can be chosen before the last one is acknowledged. What it does not know (after
//! a connect, a restart, a lost reply) it reads first; only then can it choose an order of writes that hides no vendor
//! (see [`super::slots`]).
//!
//! Once in a while everything is read and compared. What somebody else changed is put back and counted.
//!
//! What is not wanted any more (the variables of a map or a connection that was taken out of the configuration) is cleared
//! after everything else was written: see [`Gone`].

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::dialplan::desired::{Desired, Order, StateVariable};
use crate::dialplan::slots::{self, SlotWrite};
use crate::engine::view::VariablesView;
use crate::pbx::command::{Command, CommandError, CommandResult, Reply};
use crate::time::Timestamp;

/// Commands under way at a time: enough to keep a link busy, few enough not to occupy a switch.
const IN_FLIGHT: usize = 64;

/// Wait before a new try after the PBX did not do what it was asked.
const RETRY: Duration = Duration::from_secs(1);

/// Most slots that are read of a map: more connections than any map has.
const SLOTS_READ: usize = 512;

/// Most variables and orders that are remembered because they are to be cleared: those of a large configuration. Of further
/// ones, which takes a link that is down for a hundred reloads, the oldest stay on the PBX until it is restarted.
const GONE_KEPT: usize = 20_000;

/// How AstDB copies are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AstDb {
    /// The family that they are in.
    pub family: String,
    /// How long a copy is valid; it is written again when a third of that has passed.
    pub expiry: Duration,
}

/// What a variable holds once everything that was sent has been carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Belief {
    /// Not known.
    Unknown,
    /// Being read.
    Reading,
    /// Known; `None`: it is not set.
    Holds(Option<String>),
}

/// What a command was sent for; goes back in with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To learn what a variable holds.
    Learn(String),
    /// To see whether it still holds what was believed when this was sent.
    Compare(String, Option<String>),
    /// To make it hold something.
    Write(String),
    /// To keep a copy.
    Copy(String),
}

/// What an answer showed that somebody should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Somebody else had changed a variable; it is put back.
    Changed {
        /// The variable.
        name: String,
        /// What it should hold.
        ours: Option<String>,
        /// What it held.
        found: Option<String>,
    },
    /// The PBX does not take a variable.
    Refused {
        /// The variable.
        name: String,
        /// Its words, or why it was not sent.
        error: CommandError,
    },
}

/// The variables of one node.
#[derive(Debug)]
pub struct Reconciler {
    desired: Arc<Desired>,
    was_told: bool,
    beliefs: HashMap<String, Belief>,
    gone: Gone,
    /// Variables to read: to learn what they hold, or to compare.
    to_read: VecDeque<String>,
    copies: HashMap<String, Copy>,
    astdb: Option<AstDb>,
    compare_every: Duration,
    next_compare: Option<Timestamp>,
    /// Nothing is sent before that time.
    paused_until: Option<Timestamp>,
    /// Refused variables, left alone until the next comparison.
    refused: BTreeSet<String>,
    /// AstDB takes no copies; none are sent until the next comparison.
    copies_refused: bool,
    in_flight: usize,
    /// Whether something new is wanted that has not been written yet, as far as it can be.
    is_urgent: bool,
    /// When the event arrived that made the latest order, until that is acknowledged.
    cause_at: Option<Timestamp>,
    view: VariablesView,
}

/// What was wanted once and is not any more. It is remembered until the PBX is known not to hold it, over losses of the link
/// too; a PBX that was restarted holds nothing, and is asked all the same, because its copies in AstDB are still there.
#[derive(Debug, Default)]
struct Gone {
    orders: VecDeque<Arc<Order>>,
    single: VecDeque<String>,
    /// The names that are wanted, made when something last went or came: they are not cleared, whatever they were once.
    wanted: HashSet<String>,
    /// The lists of the orders with slots that are wanted.
    slotted: HashSet<String>,
    /// Whether names that differ in case alone are one variable. `wanted` and `slotted` hold small letters then.
    ignores_case: bool,
}

impl Gone {
    fn is_empty(&self) -> bool {
        self.orders.is_empty() && self.single.is_empty()
    }

    /// Notes what goes where `now` takes the place of `before`, and forgets what is wanted again. Says whether a variable
    /// is to be called otherwise, which only is where case makes no difference.
    fn replace(&mut self, before: &Desired, now: &Desired) -> bool {
        if has_the_names_of(before, now) {
            return false;
        }
        let exactly: HashSet<&str> = fixed_names(now).collect();
        self.wanted = exactly.iter().map(|name| self.variable(name)).collect();
        let slotted = now.orders.iter().filter(|order| order.slots);
        self.slotted = slotted.map(|order| self.variable(&order.list)).collect();
        // Of an order that went several times the latest is kept; of one that is wanted nothing goes but its slots.
        let mut seen: HashSet<String> = now.orders.iter().map(|order| self.variable(&order.list)).collect();
        let orders = std::mem::take(&mut self.orders).into_iter().chain(before.orders.iter().cloned());
        for order in orders.rev() {
            if seen.insert(self.variable(&order.list)) {
                self.orders.push_front(order);
            }
        }
        let gone = std::mem::take(&mut self.single).into_iter();
        for name in gone.chain(single(before).map(|state| state.name.clone())) {
            let variable = self.variable(&name);
            if !self.wanted.contains(&variable) && seen.insert(variable) {
                self.single.push_back(name);
            }
        }
        bounded(&mut self.orders);
        bounded(&mut self.single);
        fixed_names(before).any(|name| !exactly.contains(name) && self.wanted.contains(&self.variable(name)))
    }

    /// What a name stands for.
    fn variable(&self, name: &str) -> String {
        if self.ignores_case { name.to_ascii_lowercase() } else { name.to_owned() }
    }

    /// Whether a name is some wanted variable's, whatever it was once: a map `a_1` is called like a slot of a map `a`.
    fn is_wanted(&self, name: &str) -> bool {
        let name = &*self.variable(name);
        let is_slot = || {
            let slot = name.rsplit_once('_').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
            slot.is_some_and(|(list, _)| self.slotted.contains(list))
        };
        self.wanted.contains(name) || is_slot()
    }
}

fn bounded<T>(gone: &mut VecDeque<T>) {
    gone.drain(..gone.len().saturating_sub(GONE_KEPT));
}

/// Whether both want the same variables, whatever they hold.
fn has_the_names_of(before: &Desired, now: &Desired) -> bool {
    fixed_names(before).eq(fixed_names(now))
}

/// All names but those of slots.
fn fixed_names(desired: &Desired) -> impl Iterator<Item = &str> {
    let orders = desired.orders.iter().flat_map(|order| [order.list.as_str(), order.count.as_str()]);
    let generation = desired.generation.iter().map(|(name, _)| name.as_str());
    orders.chain(single(desired).map(|state| state.name.as_str())).chain(generation)
}

/// The variables that stand alone.
fn single(desired: &Desired) -> impl Iterator<Item = &StateVariable> {
    desired.states.iter().chain(&desired.routing)
}

/// A copy in AstDB.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Copy {
    value: Option<String>,
    valid_until: Timestamp,
}

impl Reconciler {
    /// One that knows nothing and wants nothing yet.
    #[must_use]
    pub fn new(compare_every: Duration, astdb: Option<AstDb>) -> Self {
        Self {
            desired: Arc::default(),
            was_told: false,
            beliefs: HashMap::new(),
            gone: Gone::default(),
            to_read: VecDeque::new(),
            copies: HashMap::new(),
            astdb,
            compare_every,
            next_compare: None,
            paused_until: None,
            refused: BTreeSet::new(),
            copies_refused: false,
            in_flight: 0,
            is_urgent: false,
            cause_at: None,
            view: VariablesView::default(),
        }
    }

    /// For a PBX that takes small and capital letters in names for the same.
    #[must_use]
    pub fn ignoring_case(mut self) -> Self {
        self.gone.ignores_case = true;
        self
    }

    /// The node should hold this from now on. `cause_at` is when the event arrived that made it so.
    pub fn want(&mut self, desired: Arc<Desired>, cause_at: Timestamp) {
        let before = std::mem::replace(&mut self.desired, desired);
        if self.gone.replace(&before, &self.desired) {
            // What was believed of a variable stands under a name that is not looked at any more, or not yet.
            self.beliefs.clear();
        }
        self.was_told = true;
        self.is_urgent = true;
        self.cause_at = Some(cause_at);
        self.view.in_step_at = None;
        self.refused.clear();
    }

    /// The link came up, or the PBX was restarted: nothing that was believed holds. What is to be cleared still is.
    pub fn forget(&mut self) {
        self.beliefs.clear();
        self.to_read.clear();
        self.copies.clear();
        self.refused.clear();
        self.copies_refused = false;
        self.paused_until = None;
        self.next_compare = None;
        self.view.in_step_at = None;
    }

    /// How things are.
    #[must_use]
    pub fn view(&self) -> VariablesView {
        VariablesView { desired: self.count_desired(), pending: self.in_flight, ..self.view }
    }

    /// When [`Reconciler::next`] may have something to send although nothing else happened.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.paused_until.or(self.next_compare).filter(|_| self.in_flight < IN_FLIGHT)
    }

    /// The next command to send now, with the purpose to give back with its answer.
    pub fn next(&mut self, now: Timestamp) -> Option<(Purpose, Command)> {
        if self.paused_until.is_some_and(|until| now < until) || self.in_flight >= IN_FLIGHT {
            return None;
        }
        self.paused_until = None;
        self.begin_comparison(now);
        let next = self.next_urgent().or_else(|| self.next_read()).or_else(|| self.next_write(now));
        if next.is_some() {
            self.in_flight += 1;
        } else if self.in_flight == 0 {
            self.forget_cleared();
            self.in_step(now);
        }
        next
    }

    /// The answer to a command.
    pub fn answered(&mut self, purpose: Purpose, answer: CommandResult, now: Timestamp) -> Option<Finding> {
        self.in_flight = self.in_flight.saturating_sub(1);
        match (purpose, answer) {
            (Purpose::Learn(name), Ok(reply)) => {
                // A write that was sent meanwhile makes the answer old news.
                if self.beliefs.get(&name) == Some(&Belief::Reading) {
                    self.beliefs.insert(name, Belief::Holds(value(reply)));
                }
                None
            }
            (Purpose::Compare(name, expected), Ok(reply)) => self.compared(name, expected, value(reply)),
            (Purpose::Write(_), Ok(_)) => {
                self.view.written += 1;
                None
            }
            (Purpose::Copy(_), Ok(_)) => None,
            (Purpose::Copy(name), Err(error)) => self.copy_failed(&name, error, now),
            (Purpose::Learn(name) | Purpose::Compare(name, _) | Purpose::Write(name), Err(error)) => {
                self.beliefs.insert(name.clone(), Belief::Unknown);
                self.failed(name, error, now)
            }
        }
    }

    fn copy_failed(&mut self, name: &str, error: CommandError, now: Timestamp) -> Option<Finding> {
        self.copies.remove(name);
        let finding = self.failed(name.to_owned(), error, now);
        // A variable that is taken must not suffer for a copy that is not.
        self.refused.remove(name);
        let told = self.copies_refused || finding.is_none();
        self.copies_refused |= finding.is_some();
        finding.filter(|_| !told)
    }

    fn compared(&mut self, name: String, expected: Option<String>, found: Option<String>) -> Option<Finding> {
        let still_believed = self.beliefs.get(&name) == Some(&Belief::Holds(expected.clone()));
        if !still_believed || found == expected {
            return None;
        }
        self.beliefs.insert(name.clone(), Belief::Holds(found.clone()));
        self.view.repaired += 1;
        Some(Finding::Changed { name, ours: expected, found })
    }

    fn failed(&mut self, name: String, error: CommandError, now: Timestamp) -> Option<Finding> {
        match error {
            CommandError::Refused(_) | CommandError::Illegal(_) | CommandError::Unsupported => {
                self.refused.insert(name.clone()).then_some(Finding::Refused { name, error })
            }
            CommandError::NotConnected | CommandError::Busy | CommandError::LinkLost | CommandError::TimedOut => {
                self.paused_until = Some(now.after(RETRY));
                None
            }
        }
    }

    /// When it is time, reads of everything that is believed to be known.
    fn begin_comparison(&mut self, now: Timestamp) {
        let due = *self.next_compare.get_or_insert_with(|| now.after(self.compare_every));
        if now < due {
            return;
        }
        self.next_compare = Some(now.after(self.compare_every));
        self.refused.clear();
        self.copies_refused = false;
        if self.to_read.is_empty() {
            self.to_read.extend(self.names());
        }
    }

    /// What is newly wanted does not wait for a comparison that is going on.
    fn next_urgent(&mut self) -> Option<(Purpose, Command)> {
        if !self.is_urgent {
            return None;
        }
        let difference = self.next_difference();
        self.is_urgent = difference.is_some();
        difference.map(|(name, value)| self.write(name, value))
    }

    fn next_read(&mut self) -> Option<(Purpose, Command)> {
        if self.to_read.is_empty() {
            let unknown: Vec<_> = self.names().into_iter().filter(|name| self.must_learn(name)).collect();
            self.to_read.extend(unknown);
        }
        while let Some(name) = self.to_read.pop_front() {
            let read = Command::GetVariable { name: name.clone() };
            match self.belief(&name) {
                Belief::Holds(expected) => return Some((Purpose::Compare(name, expected.clone()), read)),
                Belief::Unknown if !self.refused.contains(&name) => {
                    self.beliefs.insert(name.clone(), Belief::Reading);
                    return Some((Purpose::Learn(name), read));
                }
                Belief::Unknown | Belief::Reading => {}
            }
        }
        None
    }

    fn must_learn(&self, name: &str) -> bool {
        *self.belief(name) == Belief::Unknown && !self.refused.contains(name)
    }

    fn belief(&self, name: &str) -> &Belief {
        self.beliefs.get(name).unwrap_or(&Belief::Unknown)
    }

    /// What a variable holds, where that is known.
    fn holds(&self, name: &str) -> Option<&Option<String>> {
        match self.belief(name) {
            Belief::Holds(value) => Some(value),
            Belief::Unknown | Belief::Reading => None,
        }
    }

    /// Every variable that is ours to keep or to clear, slots past the end included as far as they are set.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for order in &self.desired.orders {
            names.push(order.list.clone());
            names.push(order.count.clone());
            if order.slots {
                names.extend((1..=self.slots_to_know(order)).map(|number| order.slot(number)));
            }
        }
        names.extend(self.single().map(|state| state.name.clone()));
        names.extend(self.desired.generation.iter().map(|(name, _)| name.clone()));
        names.extend(self.gone.orders.iter().flat_map(|order| self.gone_names_of(order)));
        names.extend(self.gone.single.iter().cloned());
        names
    }

    /// What is to be cleared of an order that is not wanted any more, the list first and the first slot last: a reader goes
    /// from slot to slot.
    fn gone_names_of(&self, order: &Order) -> Vec<String> {
        let slots = if order.slots { self.slots_to_know(order) } else { 0 };
        let slots = (1..=slots).rev().map(|number| order.slot(number));
        let names = [order.list.clone(), order.count.clone()].into_iter().chain(slots);
        names.filter(|name| !self.gone.is_wanted(name)).collect()
    }

    /// As many slots as the order has, and on to the first that is not set.
    fn slots_to_know(&self, order: &Order) -> usize {
        let mut known = order.trunks.len() + 1;
        while known < SLOTS_READ && matches!(self.holds(&order.slot(known)), Some(Some(_))) {
            known += 1;
        }
        known
    }

    fn count_desired(&self) -> usize {
        let of_orders: usize =
            self.desired.orders.iter().map(|order| 2 + if order.slots { order.trunks.len() } else { 0 }).sum();
        of_orders + self.single().count() + usize::from(self.desired.generation.is_some())
    }

    fn next_write(&mut self, now: Timestamp) -> Option<(Purpose, Command)> {
        match self.next_difference() {
            Some((name, value)) => Some(self.write(name, value)),
            None => self.next_copy(now),
        }
    }

    fn write(&mut self, name: String, value: Option<String>) -> (Purpose, Command) {
        self.beliefs.insert(name.clone(), Belief::Holds(value.clone()));
        let command = match value {
            Some(value) => Command::SetVariable { name: name.clone(), value },
            None => Command::ClearVariable { name: name.clone() },
        };
        (Purpose::Write(name), command)
    }

    /// The first variable that does not hold what it should, with that. The order of variables is that of the writes.
    fn next_difference(&self) -> Option<(String, Option<String>)> {
        let orders = self.desired.orders.iter().find_map(|order| self.next_of_order(order));
        orders.or_else(|| self.next_state()).or_else(|| self.next_generation()).or_else(|| self.next_gone())
    }

    /// The variables that stand alone.
    fn single(&self) -> impl Iterator<Item = &StateVariable> {
        single(&self.desired)
    }

    /// The next variable to clear, because it is not wanted any more. What takes its place is there by then.
    fn next_gone(&self) -> Option<(String, Option<String>)> {
        if self.gone.is_empty() || !self.all_known() {
            return None;
        }
        let is_set = |name: &String| matches!(self.writable(name), Some(Some(_)));
        let of_orders = self.gone.orders.iter().find_map(|order| self.gone_names_of(order).into_iter().find(is_set));
        let name = of_orders.or_else(|| self.gone.single.iter().find(|name| is_set(name)).cloned())?;
        Some((name, None))
    }

    /// Nothing is under way: what the PBX does not hold any more need not be remembered.
    fn forget_cleared(&mut self) {
        if self.gone.is_empty() {
            return;
        }
        let orders = self.gone.orders.iter().map(|order| (order.clone(), self.gone_names_of(order)));
        let (cleared, left): (Vec<_>, Vec<_>) =
            orders.partition(|(_, names)| names.iter().all(|name| self.is_cleared(name)));
        let (single, single_left): (Vec<_>, Vec<_>) =
            self.gone.single.iter().cloned().partition(|name| self.is_cleared(name));
        self.gone.orders = left.into_iter().map(|(order, _)| order).collect();
        self.gone.single = single_left.into();
        for name in cleared.into_iter().flat_map(|(_, names)| names).chain(single) {
            self.beliefs.remove(&name);
            self.copies.remove(&name);
        }
    }

    /// Whether neither a variable nor its copy is there any more.
    fn is_cleared(&self, name: &str) -> bool {
        let no_copy = || self.astdb.is_none() || self.copies.get(name).is_some_and(|copy| copy.value.is_none());
        self.holds(name) == Some(&None) && no_copy()
    }

    fn next_state(&self) -> Option<(String, Option<String>)> {
        self.single().find_map(|state| {
            let held = self.writable(&state.name)?;
            let right = held.as_deref() == Some(&*state.value) || (held.is_none() && state.may_be_unset);
            (!right).then(|| (state.name.clone(), Some(state.value.clone().into_owned())))
        })
    }

    /// Comes after everything else, so that whoever waits for a generation finds all that belongs to it.
    fn next_generation(&self) -> Option<(String, Option<String>)> {
        let (name, number) = self.desired.generation.as_ref()?;
        let number = Some(number.to_string());
        let held = self.writable(name)?;
        (*held != number && self.all_known()).then(|| (name.clone(), number))
    }

    fn all_known(&self) -> bool {
        self.names().iter().all(|name| self.holds(name).is_some() || self.refused.contains(name))
    }

    /// What a variable holds, where that is known and it may be written.
    fn writable(&self, name: &str) -> Option<&Option<String>> {
        if self.refused.contains(name) { None } else { self.holds(name) }
    }

    fn next_of_order(&self, order: &Order) -> Option<(String, Option<String>)> {
        let held = self.writable(&order.list)?;
        let list = (!order.trunks.is_empty()).then(|| order.trunks.join(","));
        if *held != list {
            return Some((order.list.clone(), list));
        }
        let held = self.writable(&order.count)?;
        let count = held.as_ref().and_then(|count| count.parse().ok());
        if !order.slots {
            let right = count == Some(order.trunks.len());
            return (!right).then(|| (order.count.clone(), Some(order.trunks.len().to_string())));
        }
        let known = self.slots_to_know(order);
        let slots: Option<Vec<Option<String>>> =
            (1..=known).map(|number| self.writable(&order.slot(number)).cloned()).collect();
        Some(match slots::next(&slots?, count, &order.trunks)? {
            SlotWrite::Set(place, trunk) => (order.slot(place + 1), Some(trunk)),
            SlotWrite::Clear(place) => (order.slot(place + 1), None),
            SlotWrite::Count(count) => (order.count.clone(), Some(count.to_string())),
        })
    }

    /// A copy in AstDB that is missing, old or different.
    fn next_copy(&mut self, now: Timestamp) -> Option<(Purpose, Command)> {
        let astdb = self.astdb.clone().filter(|_| !self.copies_refused)?;
        let fresh_until = now.after(astdb.expiry * 2 / 3);
        let names: Vec<String> = self.names();
        let differs = |name: &String| {
            let Some(value) = self.writable(name) else { return false };
            match self.copies.get(name) {
                // AstDB outlives the PBX and us: a copy from before must go where nothing stands now.
                None => true,
                Some(copy) => copy.value != *value || (value.is_some() && copy.valid_until < fresh_until),
            }
        };
        let name = names.into_iter().find(differs).or_else(|| self.stale_copy())?;
        let value = self.holds(&name)?.clone();
        let valid_until = now.after(astdb.expiry);
        self.copies.insert(name.clone(), Copy { value: value.clone(), valid_until });
        let (family, key) = (astdb.family, name.clone());
        let command = match value {
            Some(value) => {
                let expiry = valid_until.as_micros().div_euclid(1_000_000);
                Command::PutAstDb { family, key, value: format!("{expiry}:{value}") }
            }
            None => Command::DeleteAstDb { family, key },
        };
        Some((Purpose::Copy(name), command))
    }

    /// A copy of what is not set any more: a slot past the end, further than anything that is set.
    fn stale_copy(&self) -> Option<String> {
        let stale =
            self.copies.iter().filter(|(name, copy)| copy.value.is_some() && self.writable(name) == Some(&None));
        stale.map(|(name, _)| name.clone()).min()
    }

    /// Nothing to send and nothing under way.
    fn in_step(&mut self, now: Timestamp) {
        if !self.was_told || !self.all_known() {
            return;
        }
        self.view.in_step_at = Some(now);
        if let Some(cause_at) = self.cause_at.take() {
            self.view.last_latency_us = u64::try_from(now.since(cause_at).as_micros()).ok();
        }
    }
}

/// What a variable holds by the answer to a read.
fn value(reply: Reply) -> Option<String> {
    match reply {
        Reply::Value(value) => value.filter(|value| !value.is_empty()),
        Reply::Done => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialplan::desired::StateVariable;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    /// A PBX that carries out one command at a time.
    #[derive(Debug, Default)]
    struct Pbx {
        globals: BTreeMap<String, String>,
        astdb: BTreeMap<String, String>,
        log: Vec<String>,
        ignores_case: bool,
    }

    impl Pbx {
        fn variable(&self, name: String) -> String {
            if self.ignores_case { name.to_ascii_lowercase() } else { name }
        }

        fn carry_out(&mut self, command: Command) -> CommandResult {
            match command {
                Command::SetVariable { name, value } => {
                    self.log.push(format!("{name}={value}"));
                    self.globals.insert(self.variable(name), value);
                }
                Command::ClearVariable { name } => {
                    self.log.push(format!("{name}="));
                    self.globals.remove(&self.variable(name));
                }
                Command::GetVariable { name } => {
                    return Ok(Reply::Value(self.globals.get(&self.variable(name)).cloned()));
                }
                Command::PutAstDb { key, value, .. } => drop(self.astdb.insert(key, value)),
                Command::DeleteAstDb { key, .. } => drop(self.astdb.remove(&key)),
                Command::Describe(_) | Command::List => return Err(CommandError::Unsupported),
            }
            Ok(Reply::Done)
        }

        fn trunks(&self, list: &str) -> BTreeSet<String> {
            let slot = |number: usize| self.globals.get(&format!("{list}_{number}")).cloned();
            (1..).map_while(slot).collect()
        }
    }

    fn desired(trunks: &[&str], slots: bool, states: &[(&str, &'static str)], generation: u64) -> Arc<Desired> {
        let order = Order {
            list: "pm_route_m".into(),
            count: "pm_route_m_count".into(),
            trunks: trunks.iter().map(|trunk| (*trunk).to_owned()).collect(),
            slots,
        };
        let state = |(name, value): &(&str, &'static str)| StateVariable {
            name: (*name).to_owned(),
            value: (*value).into(),
            may_be_unset: !slots && *value == "good",
        };
        Arc::new(Desired {
            orders: vec![order.into()],
            states: states.iter().map(state).collect(),
            routing: Vec::new(),
            generation: Some(("pm_generation".into(), generation)),
        })
    }

    /// Sends and answers until there is nothing left to do; gives what was found.
    fn settle(reconciler: &mut Reconciler, pbx: &mut Pbx, now: Timestamp) -> Vec<Finding> {
        let mut findings = Vec::new();
        while let Some((purpose, command)) = reconciler.next(now) {
            let answer = pbx.carry_out(command);
            findings.extend(reconciler.answered(purpose, answer, now));
        }
        findings
    }

    #[test]
    fn a_fresh_pbx_gets_everything_once_and_the_generation_last() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        reconciler.want(desired(&["a", "b"], true, &[("pm_conn_a", "good")], 7), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        let expected = [
            "pm_route_m=a,b",
            "pm_route_m_1=a",
            "pm_route_m_2=b",
            "pm_route_m_count=2",
            "pm_conn_a=good",
            "pm_generation=7",
        ];
        assert_eq!(pbx.log, expected);
        assert_eq!(reconciler.view().in_step_at, Some(at(0)));
        settle(&mut reconciler, &mut pbx, at(1));
        assert_eq!(pbx.log.len(), expected.len());
    }

    #[test]
    fn what_the_pbx_holds_already_is_not_written_again_after_a_reconnect() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        reconciler.want(desired(&["a", "b"], true, &[], 1), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        pbx.log.clear();
        reconciler.forget();
        assert_eq!(settle(&mut reconciler, &mut pbx, at(5)), []);
        assert_eq!(pbx.log, Vec::<String>::new());
        pbx.globals.clear();
        reconciler.forget();
        settle(&mut reconciler, &mut pbx, at(9));
        assert_eq!(pbx.globals.len(), 5);
    }

    #[test]
    fn asterisk_is_not_given_good_connections_but_is_cured_of_stale_ones() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        pbx.globals.insert("pm_conn_b".into(), "last".into());
        reconciler.want(desired(&["a", "b"], false, &[("pm_conn_a", "good"), ("pm_conn_b", "good")], 1), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        assert_eq!(pbx.log, ["pm_route_m=a,b", "pm_route_m_count=2", "pm_conn_b=good", "pm_generation=1"]);
    }

    #[test]
    fn with_every_connection_blocked_the_list_is_empty_and_the_count_says_so() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        reconciler.want(desired(&["a"], true, &[], 1), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        reconciler.want(desired(&[], true, &[], 2), at(1));
        settle(&mut reconciler, &mut pbx, at(1));
        assert_eq!(pbx.globals.keys().map(String::as_str).collect::<Vec<_>>(), ["pm_generation", "pm_route_m_count"]);
        assert_eq!(pbx.globals["pm_route_m_count"], "0");
    }

    #[test]
    fn a_value_that_somebody_changed_is_put_back_within_a_minute_and_reported() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        reconciler.want(desired(&["a", "b"], false, &[], 1), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        pbx.globals.insert("pm_route_m".into(), "b".into());
        assert_eq!(settle(&mut reconciler, &mut pbx, at(59)), []);
        let ours = Some("a,b".to_owned());
        let changed = Finding::Changed { name: "pm_route_m".into(), ours, found: Some("b".into()) };
        assert_eq!(settle(&mut reconciler, &mut pbx, at(60)), [changed]);
        assert_eq!(pbx.globals["pm_route_m"], "a,b");
        assert_eq!(reconciler.view().repaired, 1);
    }

    #[test]
    fn a_new_order_does_not_wait_for_a_comparison() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        let many: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        reconciler.want(desired(&many, true, &[("pm_conn_a", "good")], 1), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        let (_, command) = reconciler.next(at(60)).unwrap();
        assert!(matches!(command, Command::GetVariable { .. }));
        reconciler.want(desired(&many, true, &[("pm_conn_a", "last")], 2), at(60));
        let (_, command) = reconciler.next(at(60)).unwrap();
        assert_eq!(command, Command::SetVariable { name: "pm_conn_a".into(), value: "last".into() });
    }

    #[test]
    fn slots_of_a_longer_order_from_before_are_found_and_cleared() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        for number in 1..=9 {
            pbx.globals.insert(format!("pm_route_m_{number}"), format!("old-{number}"));
        }
        reconciler.want(desired(&["a", "b"], true, &[], 1), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        assert_eq!(pbx.globals.keys().filter(|name| name.starts_with("pm_route_m_")).count(), 3);
    }

    #[test]
    fn a_refused_variable_is_reported_once_and_holds_nothing_else_up() {
        let mut reconciler = Reconciler::new(MINUTE, None);
        let mut pbx = Pbx::default();
        reconciler.want(desired(&["a"], false, &[("pm_conn_a", "last")], 1), at(0));
        let mut found = 0;
        while let Some((purpose, command)) = reconciler.next(at(0)) {
            let refuse = matches!(&command, Command::SetVariable { name, .. } if name == "pm_route_m");
            let answer =
                if refuse { Err(CommandError::Refused("Permission denied".into())) } else { pbx.carry_out(command) };
            found += usize::from(reconciler.answered(purpose, answer, at(0)).is_some());
        }
        assert_eq!(found, 1);
        assert_eq!(pbx.globals["pm_conn_a"], "last");
    }

    #[test]
    fn copies_carry_their_expiry_and_are_renewed() {
        let astdb = AstDb { family: "pm".into(), expiry: Duration::from_secs(300) };
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, Some(astdb)), Pbx::default());
        reconciler.want(desired(&["a"], false, &[], 1), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        assert_eq!(pbx.astdb["pm_route_m"], "300:a");
        settle(&mut reconciler, &mut pbx, at(120));
        assert_eq!(pbx.astdb["pm_route_m"], "420:a");
    }

    #[test]
    fn after_a_lost_reply_the_value_is_read_before_anything_is_written() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        reconciler.want(desired(&["a", "b"], false, &[], 1), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        reconciler.want(desired(&["b", "a"], false, &[], 2), at(1));
        let (purpose, command) = reconciler.next(at(1)).unwrap();
        pbx.carry_out(command).unwrap();
        reconciler.answered(purpose, Err(CommandError::TimedOut), at(1));
        assert!(reconciler.next(at(1)).is_none());
        pbx.log.clear();
        settle(&mut reconciler, &mut pbx, at(3));
        assert_eq!(pbx.log, ["pm_generation=2"]);
    }

    /// Of maps with these trunks and connections with these states, by their names.
    fn wanted(maps: &[(&str, &[&str])], connections: &[&str], slots: bool) -> Arc<Desired> {
        let order = |(name, trunks): &(&str, &[&str])| {
            let list = format!("pm_route_{name}");
            let trunks = trunks.iter().map(|trunk| (*trunk).to_owned()).collect();
            Arc::new(Order { count: format!("{list}_count"), list, trunks, slots })
        };
        let state =
            |name: &&str| StateVariable { name: format!("pm_conn_{name}"), value: "last".into(), may_be_unset: false };
        Arc::new(Desired {
            orders: maps.iter().map(order).collect(),
            states: connections.iter().map(state).collect(),
            routing: Vec::new(),
            generation: Some(("pm_generation".into(), 1)),
        })
    }

    /// What a PBX holds that holds what is wanted and nothing else.
    fn exactly(wanted: &Desired) -> BTreeMap<String, String> {
        let mut globals = BTreeMap::new();
        for order in &wanted.orders {
            globals.insert(order.count.clone(), order.trunks.len().to_string());
            if !order.trunks.is_empty() {
                globals.insert(order.list.clone(), order.trunks.join(","));
            }
            let slots = order.trunks.iter().enumerate().filter(|_| order.slots);
            globals.extend(slots.map(|(place, trunk)| (order.slot(place + 1), trunk.clone())));
        }
        globals.extend(single(wanted).map(|state| (state.name.clone(), state.value.to_string())));
        globals.extend(wanted.generation.iter().map(|(name, number)| (name.clone(), number.to_string())));
        globals
    }

    #[test]
    fn what_is_not_wanted_any_more_is_cleared_after_everything_else_was_written() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        reconciler.want(wanted(&[("old", &["a", "b"]), ("m", &["a"])], &["a", "b_old"], true), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        pbx.log.clear();
        let now = wanted(&[("m", &["a"]), ("new", &["c"])], &["a", "c"], true);
        reconciler.want(now.clone(), at(1));
        settle(&mut reconciler, &mut pbx, at(1));
        let expected = [
            "pm_route_new=c",
            "pm_route_new_1=c",
            "pm_route_new_count=1",
            "pm_conn_c=last",
            "pm_route_old=",
            "pm_route_old_count=",
            "pm_route_old_2=",
            "pm_route_old_1=",
            "pm_conn_b_old=",
        ];
        assert_eq!(pbx.log, expected);
        assert_eq!((&pbx.globals, reconciler.view().in_step_at), (&exactly(&now), Some(at(1))));
        assert!(reconciler.gone.is_empty());
        assert!(!reconciler.beliefs.keys().any(|name| name.contains("old")), "nothing is kept of it");
    }

    #[test]
    fn what_went_while_the_link_was_down_is_cleared_when_it_is_back_and_so_are_copies_after_a_restart_of_the_pbx() {
        let astdb = AstDb { family: "pm".into(), expiry: Duration::from_secs(300) };
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, Some(astdb)), Pbx::default());
        reconciler.want(wanted(&[("m", &["a"]), ("old", &["a", "b"])], &["a", "b"], false), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        assert_eq!(pbx.astdb.len(), pbx.globals.len());
        reconciler.want(wanted(&[("m", &["a"])], &["a", "b"], false), at(1));
        let now = wanted(&[("m", &["a"])], &["a"], false);
        reconciler.want(now.clone(), at(1));
        reconciler.forget();
        pbx.globals.remove("pm_conn_b");
        settle(&mut reconciler, &mut pbx, at(2));
        assert_eq!(pbx.globals, exactly(&now));
        assert_eq!(pbx.astdb.keys().collect::<Vec<_>>(), pbx.globals.keys().collect::<Vec<_>>());
        assert!(reconciler.gone.is_empty());
    }

    #[test]
    fn what_is_wanted_again_is_not_cleared() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        let all = wanted(&[("m", &["a"]), ("n", &["a", "b"])], &["a", "b"], true);
        reconciler.want(all.clone(), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        pbx.log.clear();
        reconciler.want(wanted(&[("m", &["a"])], &["a"], true), at(1));
        reconciler.want(all.clone(), at(1));
        reconciler.forget();
        settle(&mut reconciler, &mut pbx, at(1));
        assert_eq!(pbx.log, [""; 0]);
        assert_eq!(pbx.globals, exactly(&all));
    }

    #[test]
    fn a_map_or_connection_that_is_spelt_otherwise_is_the_same_variable_where_case_makes_no_difference() {
        let small = wanted(&[("intl", &["a", "b"])], &["vendor"], true);
        let capital = wanted(&[("Intl", &["b", "a"])], &["Vendor"], true);
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None).ignoring_case(), Pbx::default());
        pbx.ignores_case = true;
        for (now, wanted) in [(0, &small), (1, &capital), (2, &small)] {
            reconciler.want(wanted.clone(), at(now));
            settle(&mut reconciler, &mut pbx, at(now));
            let expected = exactly(wanted).into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
            assert_eq!(pbx.globals, expected.collect());
        }
        // Where it does make one, they are two.
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        for (now, wanted) in [(0, &small), (1, &capital)] {
            reconciler.want(wanted.clone(), at(now));
            settle(&mut reconciler, &mut pbx, at(now));
            assert_eq!(pbx.globals, exactly(wanted));
        }
    }

    #[test]
    fn a_clear_that_got_lost_or_was_refused_is_tried_again() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        reconciler.want(wanted(&[], &["a", "b"], true), at(0));
        settle(&mut reconciler, &mut pbx, at(0));
        reconciler.want(wanted(&[], &["a"], true), at(1));
        let (purpose, command) = reconciler.next(at(1)).unwrap();
        assert_eq!(command, Command::ClearVariable { name: "pm_conn_b".into() });
        reconciler.answered(purpose, Err(CommandError::TimedOut), at(1));
        settle(&mut reconciler, &mut pbx, at(1));
        assert_eq!(reconciler.view().in_step_at, None);
        let mut findings = 0;
        while let Some((purpose, command)) = reconciler.next(at(3)) {
            let refuse = matches!(command, Command::ClearVariable { .. });
            let answer = if refuse { Err(CommandError::Refused("no".into())) } else { pbx.carry_out(command) };
            findings += usize::from(reconciler.answered(purpose, answer, at(3)).is_some());
        }
        assert_eq!((findings, pbx.globals.contains_key("pm_conn_b")), (1, true));
        settle(&mut reconciler, &mut pbx, at(63));
        assert_eq!(pbx.globals.keys().collect::<Vec<_>>(), ["pm_conn_a", "pm_generation"]);
    }

    #[test]
    fn a_map_that_is_called_like_a_slot_of_one_that_went_is_left_alone() {
        let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
        for maps in [[("m", &["a", "b"][..])], [("m_1", &["c"])], [("m_count", &["d"])], [("m", &["b"])]] {
            let now = wanted(&maps, &[], true);
            reconciler.want(now.clone(), at(0));
            settle(&mut reconciler, &mut pbx, at(0));
            assert_eq!(pbx.globals, exactly(&now));
        }
    }

    /// What happens while maps and connections come and go.
    #[derive(Clone, Debug)]
    enum Turn {
        /// The trunks of each map that there is, of [`MAPS`], and which connections there are.
        Want([Option<Vec<&'static str>>; 3], [bool; 3]),
        /// That many commands are sent, and as many are carried out and answered.
        Progress(usize, usize),
        /// The link is lost; that many of the commands under way were carried out before. Sometimes the PBX was restarted.
        Lose(usize, bool),
    }

    const MAPS: [&str; 3] = ["m", "n", "o"];

    fn turns() -> impl Strategy<Value = Vec<Turn>> {
        let trunks = || {
            let all = Just(vec!["a", "b", "c", "d"]).prop_shuffle();
            all.prop_flat_map(|all| (0..=all.len()).prop_map(move |n| all[..n].to_vec()))
        };
        let map = move || proptest::option::of(trunks());
        let maps = [map(), map(), map()];
        let turn = prop_oneof![
            3 => (maps, any::<[bool; 3]>()).prop_map(|(maps, connections)| Turn::Want(maps, connections)),
            5 => (0_usize..20, 0_usize..20).prop_map(|(sent, answered)| Turn::Progress(sent, answered)),
            1 => (0_usize..20, proptest::bool::weighted(0.3)).prop_map(|(done, restart)| Turn::Lose(done, restart)),
        ];
        proptest::collection::vec(turn, 1..25)
    }

    proptest! {
        /// Maps and connections come and go while writes are under way, links are lost and PBXs restarted: in the end a
        /// PBX holds what is wanted and nothing else, and nothing that is wanted was cleared on the way.
        #[test]
        fn what_went_is_cleared_and_what_is_wanted_never(turns in turns(), slots: bool, copies: bool) {
            let lost = turns.iter().any(|turn| matches!(turn, Turn::Lose(..)));
            let astdb = copies.then(|| AstDb { family: "pm".into(), expiry: Duration::from_secs(3600) });
            let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, astdb), Pbx::default());
            let mut under_way: VecDeque<(Purpose, Command)> = VecDeque::new();
            let mut last = wanted(&[], &[], slots);
            let mut now = at(0);
            for turn in turns {
                match turn {
                    Turn::Want(maps, connections) => {
                        let maps: Vec<(&str, &[&str])> = MAPS
                            .into_iter()
                            .zip(&maps)
                            .filter_map(|(name, trunks)| Some((name, trunks.as_deref()?)))
                            .collect();
                        let connections = ["a", "b", "b_m"].into_iter().zip(connections);
                        let connections: Vec<&str> =
                            connections.filter_map(|(name, there)| there.then_some(name)).collect();
                        last = wanted(&maps, &connections, slots);
                        reconciler.want(last.clone(), now);
                    }
                    Turn::Progress(sent, answered) => {
                        for _ in 0..sent {
                            let Some((purpose, command)) = reconciler.next(now) else { break };
                            if let Command::ClearVariable { name } = &command {
                                let empty = |order: &Arc<Order>| order.list == *name && order.trunks.is_empty();
                                let is_wanted = fixed_names(&last).any(|wanted| wanted == name);
                                prop_assert!(!is_wanted || last.orders.iter().any(empty), "{name} of {last:?}");
                            }
                            under_way.push_back((purpose, command));
                        }
                        for (purpose, command) in under_way.drain(..answered.min(under_way.len())) {
                            reconciler.answered(purpose, pbx.carry_out(command), now);
                        }
                    }
                    Turn::Lose(done, restart) => {
                        for (n, (purpose, command)) in under_way.drain(..).enumerate() {
                            if n < done {
                                pbx.carry_out(command).unwrap();
                            }
                            reconciler.answered(purpose, Err(CommandError::LinkLost), now);
                        }
                        if restart {
                            pbx.globals.clear();
                        }
                        reconciler.forget();
                        now = now.after(RETRY);
                    }
                }
            }
            reconciler.want(last.clone(), now);
            for (purpose, command) in under_way.drain(..) {
                reconciler.answered(purpose, pbx.carry_out(command), now);
            }
            settle(&mut reconciler, &mut pbx, now.after(RETRY));
            prop_assert_eq!(&pbx.globals, &exactly(&last));
            prop_assert!(reconciler.gone.is_empty(), "{:?}", reconciler.gone);
            // Copies of slots past the end that a link was lost over lapse by themselves.
            if copies && !(slots && lost) {
                let copied = |(name, copy): (&String, &String)| (name.clone(), copy.split_once(':').unwrap().1.to_owned());
                prop_assert_eq!(&pbx.astdb.iter().map(copied).collect::<BTreeMap<_, _>>(), &pbx.globals);
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Want(Vec<String>),
        /// That many commands are sent, and as many answers come back.
        Progress(usize, usize),
        LoseAll,
        Meddle(usize, String),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let order = || {
            let all: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).into();
            Just(all).prop_shuffle().prop_flat_map(|all| (0..=all.len()).prop_map(move |n| all[..n].to_vec()))
        };
        let step = prop_oneof![
            3 => order().prop_map(Step::Want),
            6 => (0_usize..12, 0_usize..12).prop_map(|(sent, answered)| Step::Progress(sent, answered)),
            1 => Just(Step::LoseAll),
            1 => (1_usize..7, "[a-f]").prop_map(|(slot, trunk)| Step::Meddle(slot, trunk)),
        ];
        proptest::collection::vec(step, 1..30)
    }

    proptest! {
        /// Orders change while writes are under way, replies get lost, others meddle: in the end it is right, and as long
        /// as nobody meddles no vendor that every order has is ever missing.
        #[test]
        fn it_ends_right_and_hides_no_vendor_on_the_way(steps in steps()) {
            let (mut reconciler, mut pbx) = (Reconciler::new(MINUTE, None), Pbx::default());
            let mut under_way: VecDeque<(Purpose, CommandResult)> = VecDeque::new();
            let want = |trunks: &[String]| desired(&trunks.iter().map(String::as_str).collect::<Vec<_>>(), true, &[], 1);
            let orders = steps.iter().filter_map(|step| if let Step::Want(order) = step { Some(order) } else { None });
            let in_all = orders
                .map(|order| order.iter().cloned().collect::<BTreeSet<_>>())
                .reduce(|a, b| a.intersection(&b).cloned().collect())
                .unwrap_or_default();
            let meddled = steps.iter().any(|step| matches!(step, Step::Meddle(..)));
            let first: Vec<String> = in_all.iter().cloned().collect();
            reconciler.want(want(&first), at(0));
            settle(&mut reconciler, &mut pbx, at(0));
            let mut last = first;
            let mut now = at(1);
            for step in steps {
                match step {
                    Step::Want(order) => {
                        reconciler.want(want(&order), now);
                        last = order;
                    }
                    Step::Progress(sent, answered) => {
                        for _ in 0..sent {
                            let Some((purpose, command)) = reconciler.next(now) else { break };
                            under_way.push_back((purpose, pbx.carry_out(command)));
                            prop_assert!(meddled || pbx.trunks("pm_route_m").is_superset(&in_all), "{:?}", pbx);
                        }
                        for (purpose, answer) in under_way.drain(..answered.min(under_way.len())) {
                            reconciler.answered(purpose, answer, now);
                        }
                    }
                    Step::LoseAll => {
                        for (purpose, _) in under_way.drain(..) {
                            reconciler.answered(purpose, Err(CommandError::LinkLost), now);
                        }
                        now = now.after(RETRY);
                    }
                    Step::Meddle(slot, trunk) => drop(pbx.globals.insert(format!("pm_route_m_{slot}"), trunk)),
                }
            }
            for (purpose, answer) in under_way.drain(..) {
                reconciler.answered(purpose, answer, now);
            }
            for minutes in 1..=3 {
                settle(&mut reconciler, &mut pbx, now.after(MINUTE * minutes));
            }
            let slots: Vec<String> = (1..).map_while(|n| pbx.globals.get(&format!("pm_route_m_{n}")).cloned()).collect();
            prop_assert_eq!(&slots, &last);
            prop_assert_eq!(pbx.globals.get("pm_route_m").cloned().unwrap_or_default(), last.join(","));
            prop_assert_eq!(&pbx.globals["pm_route_m_count"], &last.len().to_string());
        }
    }
}
