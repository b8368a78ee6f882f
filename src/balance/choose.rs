//! The seven ways to choose, over the latest picture and the answers given since.
//!
//! Nothing here waits: an answer reads the picture, and adds one to the number of answers given with its node. A node that
//! others have filled in the meantime is left, and the choice made again.

use std::cmp::Ordering::Less;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use crate::config::model::Mode;
use crate::ids::NodeId;

use super::lease::{Counters, Given};
use super::ring::Ring;
use super::{Answer, Candidate, Picture};

/// 2^64 divided by the golden ratio. Its multiples divide a circle more evenly than any other sequence: each next point
/// falls into one of the largest gaps.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Least reply time in milliseconds that the mode `ewma` reckons with: times 0, all numbers of calls would be equal.
const LEAST_RTT_MS: f64 = 0.001;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The mode `consistent_hash` was asked without a key.
    #[error("the mode consistent_hash needs a key")]
    NoKey,
    /// No node takes calls and there is none to fall back on.
    #[error("no node takes calls, and there is none to fall back on: {0}")]
    NoNode(String),
}

/// Answers which node the next call should go to. Copies share everything.
#[derive(Clone, Debug)]
pub struct Router(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: ArcSwap<Table>,
    counters: Counters,
    /// Index of the node that had the last turn (`round_robin`).
    turn: AtomicUsize,
    /// Where the sequence of `weighted` is.
    sequence: AtomicU64,
}

/// A picture, with what choosing from it needs.
#[derive(Debug, Default)]
struct Table {
    picture: Arc<Picture>,
    given: Vec<Given>,
    /// Indices of the candidates that took calls when the picture was made.
    open: Vec<usize>,
    ring: Arc<Ring>,
}

/// A candidate as it is now.
#[derive(Clone, Copy, Debug)]
struct Live {
    index: usize,
    /// Answers that are no calls yet.
    outstanding: u64,
    /// Calls, those to come included.
    calls: u64,
    /// The score less what the outstanding answers cost.
    score: f64,
}

impl Router {
    /// Without a node. `start` is where the sequence of the mode `weighted` begins: any random number.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self(Arc::new(Shared {
            table: ArcSwap::default(),
            counters: Counters::default(),
            turn: AtomicUsize::new(usize::MAX),
            sequence: AtomicU64::new(start),
        }))
    }

    /// The numbers of answers given, for the [`Leases`](super::lease::Leases).
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters.clone()
    }

    /// From now on this picture is answered from. One task publishes.
    pub fn publish(&self, picture: Picture) {
        let before = self.0.table.load();
        let names = |picture: &Picture| picture.candidates.iter().map(|it| it.node.clone()).collect::<Vec<NodeId>>();
        let same_nodes = names(&before.picture) == names(&picture);
        let (given, ring) = if same_nodes {
            (before.given.clone(), Arc::clone(&before.ring))
        } else {
            let given = picture.candidates.iter().map(|it| self.0.counters.of(&it.node)).collect();
            (given, Arc::new(Ring::of(picture.candidates.iter().map(|it| &it.node))))
        };
        let open = (0..picture.candidates.len()).filter(|index| picture.takes_calls(&picture.candidates[*index]));
        self.0.table.store(Arc::new(Table { open: open.collect(), picture: Arc::new(picture), given, ring }));
    }

    /// The picture that is answered from.
    #[must_use]
    pub fn picture(&self) -> Arc<Picture> {
        Arc::clone(&self.0.table.load().picture)
    }

    /// A node for one call. The answer counts as a call on it until that shows up or the lease is over.
    ///
    /// # Errors
    /// [`NoAnswer`], where the mode needs a key and there is none, and where there is no node to name.
    pub fn answer(&self, mode: Mode, key: Option<&str>, random: &mut fastrand::Rng) -> Result<Answer, NoAnswer> {
        let key = key.filter(|key| !key.is_empty());
        if mode == Mode::ConsistentHash && key.is_none() {
            return Err(NoAnswer::NoKey);
        }
        let table = self.0.table.load();
        while let Some(live) = self.choose(&table, mode, key.unwrap_or_default(), random) {
            if table.take(live.index) {
                return Ok(table.answer(live.index, mode, false, table.reason(mode, &live)));
            }
        }
        table.fall_back(mode)
    }

    fn choose(&self, table: &Table, mode: Mode, key: &str, random: &mut fastrand::Rng) -> Option<Live> {
        match mode {
            Mode::BestScore => table.least(|one, other| one.score > other.score),
            Mode::LeastCalls => table.least(|one, other| one.calls < other.calls),
            Mode::Ewma => table.least(|one, other| table.wait(one) < table.wait(other)),
            Mode::Weighted => table.at(self.0.sequence.fetch_add(GOLDEN, Ordering::Relaxed)),
            Mode::RoundRobin => self.next_turn(table),
            Mode::P2c => table.better_of_two(random),
            Mode::ConsistentHash => table.ring.from(key).find_map(|index| table.live(index)),
        }
    }

    /// The next node after the one that had the last turn, in the order of the nodes: one that takes no calls for a while
    /// loses its own turns and shifts nobody else's.
    fn next_turn(&self, table: &Table) -> Option<Live> {
        let mut last = self.0.turn.load(Ordering::Relaxed);
        loop {
            let start = table.open.partition_point(|index| last != usize::MAX && *index <= last);
            let (before, after) = table.open.split_at(start);
            let next = after.iter().chain(before).find_map(|index| table.live(*index))?;
            match self.0.turn.compare_exchange_weak(last, next.index, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(next),
                Err(other) => last = other,
            }
        }
    }
}

impl Table {
    fn candidate(&self, index: usize) -> &Candidate {
        &self.picture.candidates[index]
    }

    fn outstanding(&self, index: usize) -> u64 {
        self.given[index].load(Ordering::Acquire).saturating_sub(self.candidate(index).settled)
    }

    /// The candidate as it is now; `None` where it takes no calls, or takes no more.
    fn live(&self, index: usize) -> Option<Live> {
        let candidate = self.candidate(index);
        let outstanding = self.outstanding(index);
        let calls = candidate.active_calls.saturating_add(outstanding);
        let score = (candidate.score - outstanding as f64 * candidate.points_per_call).max(0.0);
        let open = candidate.lethal.is_empty() && calls < most(candidate);
        // What the picture lets in by its score, outstanding answers may put below the limit.
        (open && candidate.score >= self.picture.min_score && score >= self.picture.min_score).then_some(Live {
            index,
            outstanding,
            calls,
            score,
        })
    }

    fn all_live(&self) -> impl Iterator<Item = Live> {
        self.open.iter().filter_map(|index| self.live(*index))
    }

    /// The first that none goes before; among equals the one with the fewest outstanding answers.
    fn least(&self, before: impl Fn(&Live, &Live) -> bool) -> Option<Live> {
        self.all_live().reduce(|best, next| better(best, next, &before))
    }

    /// What the mode `ewma` compares: reply time times calls.
    fn wait(&self, live: &Live) -> f64 {
        self.candidate(live.index).rtt_ms.max(LEAST_RTT_MS) * (live.calls as f64 + 1.0)
    }

    /// The node at this point of a circle on which each has a share as large as its score.
    fn at(&self, point: u64) -> Option<Live> {
        let share = |live: &Live| live.score;
        let mut sum: f64 = self.all_live().map(|live| share(&live)).sum();
        let equal = sum <= 0.0;
        if equal {
            sum = self.all_live().count() as f64;
        }
        let mut left = point as f64 / 2_f64.powi(64) * sum;
        let mut last = None;
        for live in self.all_live() {
            left -= if equal { 1.0 } else { share(&live) };
            if left < 0.0 {
                return Some(live);
            }
            last = Some(live);
        }
        last
    }

    /// The better of two different ones at random. Where one of them is full by now, the other; where both are, the best.
    fn better_of_two(&self, random: &mut fastrand::Rng) -> Option<Live> {
        let by_score = |one: &Live, other: &Live| one.score > other.score;
        if self.open.len() < 2 {
            return self.least(by_score);
        }
        let first = random.usize(..self.open.len());
        let other = random.usize(..self.open.len() - 1);
        let second = if other < first { other } else { other + 1 };
        match (self.live(self.open[first]), self.live(self.open[second])) {
            (Some(first), Some(second)) => Some(better(first, second, &by_score)),
            (Some(only), None) | (None, Some(only)) => Some(only),
            (None, None) => self.least(by_score),
        }
    }

    /// Counts an answer with the node, unless others have filled it in the meantime.
    fn take(&self, index: usize) -> bool {
        let given = &self.given[index];
        given.try_update(Ordering::AcqRel, Ordering::Acquire, |count| self.live(index).map(|_| count + 1)).is_ok()
    }

    fn answer(&self, index: usize, mode: Mode, fallback_active: bool, reason: String) -> Answer {
        let candidate = self.candidate(index);
        Answer {
            node_id: candidate.node.clone(),
            address: Arc::clone(&candidate.address),
            score: candidate.score,
            mode,
            fallback_active,
            panic: self.picture.panic,
            generation: self.picture.generation,
            reason,
        }
    }

    fn reason(&self, mode: Mode, live: &Live) -> String {
        let Live { score, calls, outstanding, .. } = live;
        match mode {
            Mode::BestScore => format!("best score: {score:.2}, {outstanding} answers outstanding"),
            Mode::Weighted => format!("at random by score: {score:.2}"),
            Mode::RoundRobin => "its turn".to_owned(),
            Mode::LeastCalls => format!("fewest calls: {calls}"),
            Mode::Ewma => format!("least reply time x calls: {:.3} ms", self.wait(live)),
            Mode::P2c => format!("better of two: {score:.2}"),
            Mode::ConsistentHash => "by key".to_owned(),
        }
    }

    /// What keeps calls away from a node.
    fn trouble(&self, candidate: &Candidate) -> String {
        if !candidate.lethal.is_empty() {
            return candidate.lethal.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        }
        if self.picture.takes_calls(candidate) {
            return "filled by the answers outstanding".to_owned();
        }
        format!("score {:.2}, at least {:.2} wanted", candidate.score, self.picture.min_score)
    }

    fn fall_back(&self, mode: Mode) -> Result<Answer, NoAnswer> {
        let fitness = |index: usize| {
            let candidate = self.candidate(index);
            candidate.fitness - self.outstanding(index) as f64 * candidate.points_per_call
        };
        let Some(index) = self.picture.stand_in(fitness) else {
            let told = self.picture.candidates.iter().map(|it| format!("{}: {}", it.node, self.trouble(it)));
            return Err(NoAnswer::NoNode(told.collect::<Vec<_>>().join("; ")));
        };
        self.given[index].fetch_add(1, Ordering::AcqRel);
        let candidate = self.candidate(index);
        let what = if Some(&candidate.node) == self.picture.fallback_node.as_ref() {
            "the fallback configured"
        } else {
            "the least bad"
        };
        let reason = format!("no node takes calls; {what} ({})", self.trouble(candidate));
        Ok(self.answer(index, mode, true, reason))
    }
}

/// The one that goes before the other; of equals the one with fewer outstanding answers, else `best`.
fn better(best: Live, next: Live, before: &impl Fn(&Live, &Live) -> bool) -> Live {
    let tie = !before(&best, &next) && next.outstanding.cmp(&best.outstanding) == Less;
    if before(&next, &best) || tie { next } else { best }
}

/// Calls at which it is full.
fn most(candidate: &Candidate) -> u64 {
    candidate.max_calls.filter(|most| *most > 0).map_or(u64::MAX, u64::from)
}
