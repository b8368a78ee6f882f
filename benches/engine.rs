//! How many attempts the states of connections take in a second.
//!
//! `cargo bench --bench engine`. One attempt is a placement and an end; what the rest of the engine does with it (lookup,
//! effects, rows) is not in here.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pointsman::call::outcome::Outcome;
use pointsman::ids::{ConnectionId, QualityKey};
use pointsman::quality::book::Book;
use pointsman::quality::history::{self, Attempt};
use pointsman::quality::settings::Settings;
use pointsman::time::Timestamp;

const CONNECTIONS: usize = 200;
const ATTEMPTS: i64 = 20_000;

fn key(number: usize) -> QualityKey {
    QualityKey::connection(ConnectionId::new(&format!("vendor-{number}")).expect("an id"))
}

fn book(window: usize) -> Book {
    let settings = Settings {
        asr_threshold_percent: Some(40.0),
        acd_threshold_sec: Some(30.0),
        pdd_threshold_sec: Some(6.0),
        statistics_window: window,
        min_calls: window,
        ..Settings::default()
    };
    Book::new((0..CONNECTIONS).map(|number| (key(number), settings.clone())), Timestamp::default())
}

/// Calls of random vendors, 10 ms apart, of which about half are answered: vendors go bad and recover all the time.
fn attempts(book: &Book) -> Vec<Attempt> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut attempt = |number| {
        let placed_at = Timestamp::from_micros(number * 10_000);
        let duration_ms = if random.bool() { random.u64(1_000..120_000) } else { 0 };
        let waited = random.i64(500_000..12_000_000);
        Attempt {
            seat: book.seat(&key(random.usize(0..CONNECTIONS))).expect("configured"),
            placed_at,
            ended_at: Timestamp::from_micros(placed_at.as_micros() + waited + duration_ms as i64 * 1_000),
            outcome: if duration_ms > 0 { Outcome::Answered } else { Outcome::VendorFailed },
            duration_ms: Some(duration_ms),
            pdd_ms: (duration_ms > 0).then_some(1_500),
        }
    };
    (0..ATTEMPTS).map(&mut attempt).collect()
}

fn throughput(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attempts");
    group.throughput(Throughput::Elements(ATTEMPTS as u64));
    for window in [20, 1_000] {
        let attempts = attempts(&book(window));
        group.bench_function(format!("window of {window}"), |bencher| {
            let play = |mut book: Book| {
                let mut changes = 0_u32;
                let told = history::play::<()>(&mut book, &attempts, Timestamp::default(), |_, _, _| {
                    changes += 1;
                    Ok(())
                });
                (told, changes)
            };
            bencher.iter_batched(|| book(window), |book| black_box(play(book)), BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, throughput);
criterion_main!(benches);
