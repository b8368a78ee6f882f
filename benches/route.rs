//! How many answers to "which node?" are given in a second.
//!
//! `cargo bench --bench route`. What HTTP costs around an answer is not in here. Before each measurement all answers are
//! settled, so that the nodes are as fit as in the picture.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pointsman::balance::lease::Leases;
use pointsman::balance::{Candidate, Picture, Router};
use pointsman::config::model::{Mode, Scoring};
use pointsman::ids::NodeId;
use pointsman::time::Timestamp;

const MODES: [Mode; 7] =
    [Mode::BestScore, Mode::Weighted, Mode::RoundRobin, Mode::LeastCalls, Mode::Ewma, Mode::P2c, Mode::ConsistentHash];

fn candidate(number: usize) -> Candidate {
    let score = 60.0 + number as f64 % 30.0;
    Candidate {
        node: NodeId::new(&format!("pbx-{number:03}")).expect("an id"),
        address: Arc::from("10.0.0.1"),
        score,
        fitness: score,
        points_per_call: 0.16,
        active_calls: 40 + number as u64,
        max_calls: None,
        rtt_ms: 0.8,
        linked: true,
        replied: true,
        disabled: false,
        lethal: Vec::new(),
        settled: 0,
    }
}

/// A router over so many nodes; settles everything each time it is asked to.
struct Bench {
    router: Router,
    leases: Leases,
    candidates: Vec<Candidate>,
}

impl Bench {
    fn new(nodes: usize) -> Self {
        let router = Router::new(7);
        let candidates: Vec<_> = (0..nodes).map(candidate).collect();
        let leases = Leases::new(Duration::ZERO, &router.counters(), candidates.iter().map(|it| &it.node));
        Self { router, leases, candidates }
    }

    fn settle(&mut self) {
        self.leases.tick(Timestamp::from_secs(1));
        self.candidates.iter_mut().for_each(|it| it.settled = self.leases.settled(&it.node));
        let picture = Picture::of(1, Timestamp::from_secs(1), self.candidates.clone(), &Scoring::default(), false);
        self.router.publish(picture);
    }

    /// Time that so many answers take on each of so many threads.
    #[expect(clippy::disallowed_methods, reason = "a measurement")]
    fn run(&mut self, mode: Mode, threads: u64, each: u64) -> Duration {
        self.settle();
        let router = &self.router;
        let started = Instant::now();
        std::thread::scope(|scope| {
            for seed in 0..threads {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for number in 0..each {
                        let key = KEYS[number as usize % KEYS.len()];
                        black_box(router.answer(mode, Some(key), &mut random)).expect("a node");
                    }
                });
            }
        });
        started.elapsed()
    }
}

const KEYS: [&str; 5] = ["alice@example.com", "+4930123456", "conference-42", "bob@example.com", "+79161234567"];

fn answers(criterion: &mut Criterion) {
    for nodes in [10, 100] {
        let mut bench = Bench::new(nodes);
        for threads in [1, 4] {
            let mut group = criterion.benchmark_group(format!("answers, {nodes} nodes, {threads} threads"));
            group.throughput(Throughput::Elements(threads));
            group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(10);
            for mode in MODES {
                group.bench_function(format!("{mode:?}"), |bencher| {
                    bencher.iter_custom(|each| bench.run(mode, threads, each));
                });
            }
            group.finish();
        }
    }
}

fn publishing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a picture made and published");
    for nodes in [10, 100] {
        let mut bench = Bench::new(nodes);
        group.bench_function(format!("{nodes} nodes"), |bencher| bencher.iter(|| bench.settle()));
    }
    group.finish();
}

criterion_group!(benches, answers, publishing);
criterion_main!(benches);
