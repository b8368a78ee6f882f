//! What storing costs: the engine (handing an attempt over), the disk (attempts per second), and the operator (how old
//! a row is when it is safe from a kill).
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pointsman::call::outcome::Outcome;
use pointsman::clock::Clock;
use pointsman::config::model::Storage;
use pointsman::ids::{ConnectionId, LegId, NodeId, QualityKey};
use pointsman::quality::machine::{Saved, State};
use pointsman::quality::settings::Settings;
use pointsman::quality::window::{Epoch, Sample};
use pointsman::store::{LegRow, Store, StoreOp, Tally, Whose, Writer};
use pointsman::tasks::Tasks;
use pointsman::time::Timestamp;

const CONNECTIONS: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(60);

fn sample(n: u64) -> Sample {
    let placed_at = Timestamp::from_secs(4_102_444_800).after(Duration::from_millis(n * 5));
    Sample {
        epoch: Epoch(1),
        placed_at,
        ended_at: placed_at.after(Duration::from_secs(30)),
        outcome: Outcome::Answered,
        duration_ms: Some(25_000),
        pdd_ms: Some(1_500),
        cause: Some(16),
        sip_status: None,
    }
}

/// What the engine hands over for the `n`th attempt of its life: its connection as it stands then, the leg that ended,
/// the leg that came up, and the sums.
fn attempt(n: u64) -> Vec<StoreOp> {
    let key = QualityKey::connection(ConnectionId::new(&format!("vendor-{}", n % CONNECTIONS)).unwrap());
    let node = NodeId::new("pbx-01").unwrap();
    let window = (0..20).map(|back| sample((n + 19 * CONNECTIONS).saturating_sub((19 - back) * CONNECTIONS))).collect();
    let saved = Saved {
        settings: Settings { asr_threshold_percent: Some(40.0), ..Settings::default() },
        state: State::Good,
        since: Timestamp::from_secs(1),
        epochs: vec![(Epoch(1), Timestamp::from_secs(1))],
        measured_from: Epoch(1),
        window,
        batch: vec![],
        interval_from: Timestamp::from_secs(1),
        bad_in_row: 0,
        turned_bad_at: None,
    };
    let sample = sample(n);
    let tally = Tally::attempt(&sample, Duration::from_secs(10));
    let leg = LegRow {
        node: node.clone(),
        leg: LegId::new(&format!("leg-{n}")),
        trunk: "trunk".into(),
        map: None,
        number: Some("4930123456".into()),
        placed_at: sample.placed_at,
        ringing_at: None,
        answered_at: None,
        epoch: Some(Epoch(1)),
    };
    let at = sample.ended_at;
    vec![
        StoreOp::Quality(key.clone(), Box::new(saved)),
        StoreOp::Count { at, whose: Whose::Connection(key), tally },
        StoreOp::Count { at, whose: Whose::Node(node.clone()), tally },
        StoreOp::LegUp(Box::new(leg)),
        // Thirty seconds of 200 calls per second are up at a time.
        StoreOp::LegGone(node, LegId::new(&format!("leg-{}", n.saturating_sub(6_000)))),
    ]
}

async fn start(dir: &tempfile::TempDir, tasks: &Tasks) -> Writer {
    let storage = Storage { path: dir.path().join("pointsman.db"), keep: Duration::from_secs(30 * 24 * 3600) };
    Store::open(&storage).await.unwrap().0.start(Clock::system(), tasks)
}

fn store(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new();
    let writer = runtime.block_on(start(&dir, &tasks));
    let mut next = 0..;
    let mut group = c.benchmark_group("store");
    group.throughput(Throughput::Elements(1));

    group.bench_function("hand one attempt over", |b| {
        b.iter_batched(|| attempt(next.next().unwrap()), |ops| writer.write_all(black_box(ops)), BatchSize::SmallInput);
    });
    assert!(runtime.block_on(writer.flush(PATIENCE)));

    group.sample_size(20);
    // As fast as they can be handed over and written: each flush is a transaction of up to as many attempts as came
    // while the one before was written.
    group.bench_function("attempts written", |b| {
        b.iter_custom(|attempts| {
            let ops: Vec<_> = next.by_ref().take(usize::try_from(attempts).unwrap()).map(attempt).collect();
            let started = started();
            runtime.block_on(async {
                for (n, ops) in ops.into_iter().enumerate() {
                    writer.write_all(ops);
                    if n % 20 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                assert!(writer.flush(PATIENCE).await);
            });
            started.elapsed()
        });
    });

    group.bench_function("from handing over to the file", |b| {
        b.iter_custom(|attempts| {
            let mut total = Duration::ZERO;
            for n in next.by_ref().take(usize::try_from(attempts).unwrap()) {
                let ops = attempt(n);
                let started = started();
                writer.write_all(ops);
                assert!(runtime.block_on(writer.flush(PATIENCE)));
                total += started.elapsed();
            }
            total
        });
    });
    group.finish();
    runtime.block_on(tasks.stop(PATIENCE));
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn started() -> Instant {
    Instant::now()
}

criterion_group!(benches, store);
criterion_main!(benches);
