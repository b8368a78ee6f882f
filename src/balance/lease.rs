//! Answers that have not become calls yet.
//!
//! Each answer counts as a call on its node until a call shows up there (the oldest answer first) or the lease is over.
//! Whoever answers only adds to one number per node. The owner of the pictures works out how many of those answers are
//! *settled*; what is left, given less settled, is *outstanding*. Both numbers only grow, so whoever reads them in any
//! order sees too many outstanding at worst, and never fewer than none.
//!
//! When each answer was given is known only to the tick after it: a lease ends up to one tick late, and never early.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ids::NodeId;
use crate::time::Timestamp;

/// How often the owner should tick while answers are outstanding: how late a lease may end.
pub const TICK: Duration = Duration::from_millis(250);

/// Into how many steps a lease is divided at most: ticks closer together than a step share one. Bounds the memory,
/// whatever the rate of answers and ticks.
const STEPS: u32 = 256;

/// Answers given with a node, since the start.
pub type Given = Arc<AtomicU64>;

/// Answers given, per node. Copies share the numbers. The lock is for whoever makes pictures, not for who answers.
#[derive(Clone, Debug, Default)]
pub struct Counters(Arc<Mutex<BTreeMap<NodeId, Given>>>);

impl Counters {
    /// The number of that node.
    #[must_use]
    pub fn of(&self, node: &NodeId) -> Given {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counters.entry(node.clone()).or_default())
    }
}

/// The leases of one node.
#[derive(Debug)]
struct Account {
    given: Given,
    settled: u64,
    /// When how many had been given, oldest first; only what is not settled.
    seen: VecDeque<(Timestamp, u64)>,
}

impl Account {
    fn tick(&mut self, now: Timestamp, lease: Duration) {
        let given = self.given.load(Ordering::Acquire);
        let last = self.seen.back();
        if given > last.map_or(self.settled, |(_, count)| *count)
            && last.is_none_or(|(at, _)| now.since(*at) >= lease / STEPS)
        {
            self.seen.push_back((now, given));
        }
        while let Some((_, count)) = self.seen.pop_front_if(|(at, _)| *at <= now.before(lease)) {
            self.settled = self.settled.max(count);
        }
    }

    fn placed(&mut self) {
        if self.settled >= self.given.load(Ordering::Acquire) {
            return;
        }
        self.settled += 1;
        let settled = self.settled;
        while self.seen.pop_front_if(|(_, count)| *count <= settled).is_some() {}
    }

    fn outstanding(&self) -> u64 {
        self.given.load(Ordering::Acquire).saturating_sub(self.settled)
    }
}

/// The leases of all nodes: the owner's side.
#[derive(Debug)]
pub struct Leases {
    lease: Duration,
    accounts: BTreeMap<NodeId, Account>,
}

impl Leases {
    /// Of these nodes, with the numbers that the answers count up.
    #[must_use]
    pub fn new<'a>(lease: Duration, counters: &Counters, nodes: impl IntoIterator<Item = &'a NodeId>) -> Self {
        let account = |node: &NodeId| {
            let given = counters.of(node);
            let settled = given.load(Ordering::Acquire);
            Account { given, settled, seen: VecDeque::new() }
        };
        Self { lease, accounts: nodes.into_iter().map(|node| (node.clone(), account(node))).collect() }
    }

    /// Time has passed: looks what was given, ends what is over. To be called before each picture, and every [`TICK`]
    /// while something is outstanding.
    pub fn tick(&mut self, now: Timestamp) {
        self.accounts.values_mut().for_each(|account| account.tick(now, self.lease));
    }

    /// A call was placed on the node: its oldest lease is settled, where it has one.
    pub fn placed(&mut self, node: &NodeId) {
        if let Some(account) = self.accounts.get_mut(node) {
            account.placed();
        }
    }

    /// Answers with the node that have become calls or whose lease is over.
    #[must_use]
    pub fn settled(&self, node: &NodeId) -> u64 {
        self.accounts.get(node).map_or(0, |account| account.settled)
    }

    /// Answers with the node that still count as calls.
    #[must_use]
    pub fn outstanding(&self, node: &NodeId) -> u64 {
        self.accounts.get(node).map_or(0, Account::outstanding)
    }

    /// Whether any answer still counts as a call.
    #[must_use]
    pub fn any_outstanding(&self) -> bool {
        self.accounts.values().any(|account| account.outstanding() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEASE: Duration = Duration::from_secs(5);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + millis * 1000)
    }

    fn node() -> NodeId {
        NodeId::new("pbx-01").unwrap()
    }

    fn leases() -> (Given, Leases) {
        let counters = Counters::default();
        (counters.of(&node()), Leases::new(LEASE, &counters, [&node()]))
    }

    fn give(given: &Given, count: u64) {
        given.fetch_add(count, Ordering::AcqRel);
    }

    #[test]
    fn an_answer_counts_until_its_lease_is_over() {
        let (given, mut leases) = leases();
        give(&given, 3);
        leases.tick(at(0));
        give(&given, 2);
        leases.tick(at(1_000));
        assert_eq!(leases.outstanding(&node()), 5);
        leases.tick(at(4_999));
        assert_eq!(leases.outstanding(&node()), 5);
        leases.tick(at(5_000));
        assert_eq!((leases.settled(&node()), leases.outstanding(&node())), (3, 2));
        leases.tick(at(6_000));
        assert_eq!((leases.settled(&node()), leases.any_outstanding()), (5, false));
    }

    #[test]
    fn a_call_settles_the_oldest_answer() {
        let (given, mut leases) = leases();
        give(&given, 1);
        leases.tick(at(0));
        give(&given, 1);
        leases.tick(at(3_000));
        leases.placed(&node());
        leases.tick(at(5_000));
        assert_eq!(leases.outstanding(&node()), 1, "the first became a call, the second still runs");
        leases.tick(at(8_000));
        assert_eq!(leases.outstanding(&node()), 0);
    }

    #[test]
    fn calls_that_nobody_asked_about_settle_nothing_to_come() {
        let (given, mut leases) = leases();
        (0..10).for_each(|_| leases.placed(&node()));
        give(&given, 1);
        assert_eq!((leases.settled(&node()), leases.outstanding(&node())), (0, 1));
        leases.placed(&NodeId::new("unknown").unwrap());
    }

    #[test]
    fn memory_is_bounded_whatever_the_rate() {
        let (given, mut leases) = leases();
        for step in 0..100_000 {
            give(&given, 7);
            leases.tick(at(0).after(Duration::from_micros(step * 200)));
            assert!(leases.accounts[&node()].seen.len() <= STEPS as usize + 1);
        }
        assert!(leases.outstanding(&node()) >= 7 * 25_000, "five seconds' worth");
        assert!(leases.outstanding(&node()) <= 7 * 25_200, "and hardly more");
    }

    #[test]
    fn without_a_lease_an_answer_counts_until_the_next_tick() {
        let counters = Counters::default();
        let mut leases = Leases::new(Duration::ZERO, &counters, [&node()]);
        give(&counters.of(&node()), 4);
        assert_eq!(leases.outstanding(&node()), 4);
        leases.tick(at(0));
        assert_eq!(leases.outstanding(&node()), 0);
    }

    #[test]
    fn answers_from_many_threads_are_all_settled_in_the_end() {
        const THREADS: u64 = 4;
        const EACH: u64 = 20_000;
        let (given, mut leases) = leases();
        let mut now = 0;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let given = &given;
                scope.spawn(move || (0..EACH).for_each(|_| give(given, 1)));
            }
            while given.load(Ordering::Acquire) < THREADS * EACH {
                now += 20;
                leases.tick(at(now));
                (0..50).for_each(|_| leases.placed(&node()));
                assert!(leases.settled(&node()) <= given.load(Ordering::Acquire));
            }
        });
        leases.tick(at(now + 20));
        leases.tick(at(now + 5_020));
        assert_eq!((leases.settled(&node()), leases.any_outstanding()), (THREADS * EACH, false));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Give(u64),
        Placed,
        Wait(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![(1_u64..20).prop_map(Step::Give), Just(Step::Placed), (1_i64..2_000).prop_map(Step::Wait)]
    }

    proptest! {
        /// Against two lists of every single answer with its time: one in which a lease ends to the millisecond, and one
        /// in which it ends as late as it may, by a step and by the time between two ticks. The owner ticks at each step.
        #[test]
        fn what_is_outstanding_is_what_lists_of_all_answers_say(steps in proptest::collection::vec(step(), 0..200)) {
            let (given, mut leases) = leases();
            let mut lists = [(5_000, VecDeque::new()), (5_000 + 20 + 2_000, VecDeque::new())];
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Give(count) => {
                        give(&given, count);
                        lists.iter_mut().for_each(|(_, list)| list.extend((0..count).map(|_| now)));
                    }
                    Step::Placed => {
                        leases.placed(&node());
                        for (_, list) in &mut lists {
                            list.pop_front();
                        }
                    }
                    Step::Wait(millis) => now += millis,
                }
                leases.tick(at(now));
                lists.iter_mut().for_each(|(age, list)| list.retain(|given_at| now - given_at < *age));
                let [(_, least), (_, most)] = &lists;
                let outstanding = leases.outstanding(&node());
                prop_assert!(least.len() as u64 <= outstanding && outstanding <= most.len() as u64);
                prop_assert!(leases.settled(&node()) <= given.load(Ordering::Acquire));
            }
            leases.tick(at(now + 10_000));
            leases.tick(at(now + 20_000));
            prop_assert!(!leases.any_outstanding());
        }
    }
}
