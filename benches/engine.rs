//! How many attempts the states of connections take in a second, and what the engine does beside them: the nodes' figures
//! after every batch of events, and a picture of everything ten times a second.
//!
//! `cargo bench --bench engine`. One attempt is a placement and an end; what the rest of the engine does with it (lookup,
//! effects, rows) is not in here.

use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pointsman::call::outcome::Outcome;
use pointsman::config::{Format, Purpose, load_text};
use pointsman::engine::core::Engine;
use pointsman::engine::view::{LinkView, VariablesView};
use pointsman::ids::{ConnectionId, QualityKey};
use pointsman::quality::book::Book;
use pointsman::quality::history::{self, Attempt};
use pointsman::quality::settings::Settings;
use pointsman::quality::window::{Epoch, Sample};
use pointsman::store::Restored;
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

const NODES: usize = 20;

/// An engine of many nodes and a thousand connections with full windows.
fn engine() -> Engine {
    let mut text = String::from("[quality]\nmonitor_asr = true\nasr_threshold_percent = 1\nstatistics_window = 1000\n");
    for node in 0..NODES {
        let _ = write!(
            text,
            "[[nodes]]\nid = 'n{node}'\nkind = 'freeswitch'\naddress = '127.0.0.1:{}'\npassword = 'x'\nmax_calls = 250\n",
            8000 + node
        );
    }
    for number in 0..1000 {
        let _ = writeln!(text, "[[connections]]\nid = 'vendor-{number}'");
    }
    let loaded = load_text(Path::new("bench.toml"), &text, Format::Toml, [], Purpose::Connect);
    let config = Arc::new(loaded.expect("a configuration").config);
    let now = Timestamp::default();
    let mut book =
        Book::new(config.connections.iter().map(|it| (QualityKey::connection(it.id.clone()), it.quality.clone())), now);
    for number in 0..1000 {
        let seat = book.seat(&key(number)).expect("configured");
        for _ in 0..1000 {
            let epoch: Epoch = book.placed(seat);
            let sample = Sample {
                epoch,
                placed_at: now,
                ended_at: now,
                outcome: Outcome::Answered,
                duration_ms: Some(1_000),
                pdd_ms: Some(100),
                cause: Some(16),
                sip_status: None,
            };
            let _ = book.finished(seat, &sample, now);
        }
    }
    let machines = book.iter().map(|(key, machine)| (key.clone(), machine.save())).collect();
    Engine::new(config, Restored { machines, ..Restored::default() }, now)
}

fn pictures(criterion: &mut Criterion) {
    let mut engine = engine();
    let now = Timestamp::default();
    criterion.bench_function(&format!("figures of {NODES} nodes"), |bencher| {
        bencher.iter(|| black_box(engine.candidates(now)));
    });
    let (links, variables) = (vec![LinkView::default(); NODES], vec![VariablesView::default(); NODES]);
    criterion.bench_function("picture of 1000 connections", |bencher| {
        bencher.iter(|| black_box(engine.view(&links, &variables, now)));
    });
}

criterion_group!(benches, throughput, pictures);
criterion_main!(benches);
