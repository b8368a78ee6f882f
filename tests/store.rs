//! The database against real files: what survives a kill, a broken disk's ways, and other people's files.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pointsman::call::outcome::Outcome;
use pointsman::clock::Clock;
use pointsman::config::model::Storage;
use pointsman::ids::{ConnectionId, LegId, MapId, NodeId, QualityKey};
use pointsman::quality::machine::{Change, Reason, Saved, State};
use pointsman::quality::settings::Settings;
use pointsman::quality::window::{Epoch, Figures, Sample};
use pointsman::store::{ChangeRow, LegRow, POINTSMAN, Restored, Store, StoreError, StoreOp, Tally, Whose, Writer};
use pointsman::tasks::Tasks;
use pointsman::time::Timestamp;
use proptest::prelude::*;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

const PATIENCE: Duration = Duration::from_secs(20);

/// The `n`th second of a time that is not old yet, whenever the tests run.
fn second(n: u64) -> Timestamp {
    Timestamp::from_secs(4_102_444_800).after(Duration::from_secs(n))
}

fn storage(path: &Path) -> Storage {
    Storage { path: path.into(), keep: Duration::from_secs(30 * 24 * 3600) }
}

fn key(connection: &str) -> QualityKey {
    QualityKey::connection(ConnectionId::new(connection).unwrap())
}

fn node() -> NodeId {
    NodeId::new("pbx-01").unwrap()
}

fn sample(n: u64) -> Sample {
    let placed_at = second(n);
    Sample {
        epoch: Epoch(n / 10),
        placed_at,
        ended_at: placed_at.after(Duration::from_millis(2_500)),
        outcome: if n.is_multiple_of(3) { Outcome::VendorFailed } else { Outcome::Answered },
        duration_ms: Some(if n.is_multiple_of(3) { 0 } else { 2_000 }),
        pdd_ms: (!n.is_multiple_of(3)).then_some(500),
        cause: Some(16),
        sip_status: n.is_multiple_of(3).then_some(503),
    }
}

/// How a connection stands after its `n`th attempt; every part of it tells `n`.
fn saved(n: u64) -> Saved {
    Saved {
        settings: Settings { asr_threshold_percent: Some(40.1), ..Settings::default() },
        state: if n.is_multiple_of(2) { State::Good } else { State::Bad },
        since: Timestamp::from_micros(n as i64),
        epochs: vec![(Epoch(n), Timestamp::from_micros(n as i64 + 1))],
        measured_from: Epoch(n),
        window: (n.saturating_sub(19)..=n).map(sample).collect(),
        batch: (n - n % 10..=n).map(sample).collect(),
        interval_from: Timestamp::from_micros(n as i64 + 2),
        bad_in_row: n as u32,
        turned_bad_at: Some(Timestamp::from_micros(n as i64 + 3)),
    }
}

fn change(n: u64) -> ChangeRow {
    let figures = Figures { calls: 20, asr: Some(35.0), acd: None, pdd: Some(0.1 + 0.2), ner: Some(n as f64) };
    ChangeRow {
        key: QualityKey { connection: ConnectionId::new("vendor-a").unwrap(), map: Some(MapId::new("intl").unwrap()) },
        change: Change {
            at: second(n),
            from: State::Good,
            to: State::Bad,
            reason: Reason::Asr,
            epoch: Epoch(n),
            figures,
        },
        words: format!("change {n}").into(),
        who: POINTSMAN.into(),
    }
}

fn leg(n: u64) -> LegRow {
    LegRow {
        node: node(),
        leg: LegId::new(&format!("leg-{n}")),
        trunk: "trunk a".into(),
        map: n.is_multiple_of(2).then(|| "intl".into()),
        number: Some("+7\u{0}\n'; DROP TABLE leg; --".into()),
        placed_at: second(n),
        ringing_at: None,
        answered_at: Some(second(n)),
        epoch: Some(Epoch(n)),
    }
}

/// What one attempt hands over, all of which tells `n`.
fn attempt(n: u64) -> Vec<StoreOp> {
    let tally = Tally::attempt(&sample(n), Duration::from_secs(10));
    let at = second(n);
    let mut ops = vec![
        StoreOp::Quality(key("vendor-a"), Box::new(saved(n))),
        StoreOp::Changed(Box::new(change(n))),
        StoreOp::Count { at, whose: Whose::Connection(key("vendor-a")), tally },
        StoreOp::Count { at, whose: Whose::Node(node()), tally },
        StoreOp::LegUp(Box::new(leg(n))),
        StoreOp::Generation(n),
    ];
    if n > 5 {
        ops.push(StoreOp::LegGone(node(), LegId::new(&format!("leg-{}", n - 5))));
    }
    ops
}

/// Everything in the file belongs to the first `n` attempts, and nothing of them is missing.
async fn check_consistent(path: &Path, restored: &Restored, n: u64) {
    assert_eq!(restored.generation, n);
    if n == 0 {
        return;
    }
    assert_eq!(restored.machines, [(key("vendor-a"), saved(n))]);
    let newest_first: Vec<_> = (1..=n).rev().take(100).map(change).collect();
    assert_eq!(restored.changes, newest_first);
    let up: Vec<_> = (n.saturating_sub(5) + 1..=n).map(leg).collect();
    assert_eq!(restored.legs, up);
    assert_eq!(restored.unreadable, 0);
    let mut conn = peek(path).await;
    let changes: i64 = sqlx::query_scalar("SELECT count(*) FROM change").fetch_one(&mut conn).await.unwrap();
    let sums: Vec<(String, i64)> = sqlx::query_as("SELECT kind, sum(calls) FROM minute GROUP BY kind ORDER BY kind")
        .fetch_all(&mut conn)
        .await
        .unwrap();
    assert_eq!(changes, n as i64);
    assert_eq!(sums, [("connection".into(), n as i64), ("node".into(), n as i64)]);
    let check: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut conn).await.unwrap();
    assert_eq!(check, "ok");
    conn.close().await.unwrap();
}

/// Another program's connection.
async fn peek(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(5)).connect().await.unwrap()
}

struct Running {
    writer: Writer,
    tasks: Tasks,
    restored: Restored,
}

async fn start(storage: &Storage) -> Running {
    let (store, restored) = Store::open(storage).await.unwrap();
    let tasks = Tasks::new();
    Running { writer: store.start(Clock::system(), &tasks), tasks, restored }
}

impl Running {
    async fn stop(self) {
        assert!(self.tasks.stop(PATIENCE).await);
    }
}

#[tokio::test]
async fn an_empty_place_gets_a_database_that_only_its_owner_can_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/pointsman.db");
    let running = start(&storage(&path)).await;
    assert_eq!(running.restored, Restored::default());
    assert!(running.writer.health().borrow().healthy);
    running.writer.write_all(attempt(1));
    assert!(running.writer.flush(PATIENCE).await);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir.path().join("deep/er")), 0o700);
    for name in ["pointsman.db", "pointsman.db-wal", "pointsman.db-shm"] {
        assert_eq!(mode(dir.path().join("deep/er").join(name)), 0o600, "{name}");
    }
    running.stop().await;
}

#[tokio::test]
async fn what_was_handed_over_before_the_end_is_there_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir.path().join("pointsman.db"));
    let running = start(&storage).await;
    for n in 1..=150 {
        running.writer.write_all(attempt(n));
    }
    let writer = running.writer.clone();
    running.stop().await;
    assert!(!dir.path().join("pointsman.db-wal").exists(), "the log is folded into the database at the end");
    writer.write_all(attempt(151));
    let again = start(&storage).await;
    check_consistent(&storage.path, &again.restored, 150).await;
    again.stop().await;
}

#[tokio::test]
async fn a_second_instance_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir.path().join("pointsman.db"));
    let running = start(&storage).await;
    assert!(matches!(Store::open(&storage).await, Err(StoreError::InUse(_))));
    running.stop().await;
    start(&storage).await.stop().await;
}

#[tokio::test]
async fn a_database_of_another_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    let mut other = SqliteConnectOptions::new().filename(&path).create_if_missing(true).connect().await.unwrap();
    sqlx::query("CREATE TABLE accounts (id INTEGER)").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let before = fs::read(&path).unwrap();
    let error = Store::open(&storage(&path)).await.unwrap_err();
    assert!(matches!(error, StoreError::Foreign(_)), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_database_of_a_newer_pointsman_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir.path().join("pointsman.db"));
    start(&storage).await.stop().await;
    let mut conn = peek(&storage.path).await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9999, 'later', 1, x'00', 0)";
    sqlx::query(newer).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let error = Store::open(&storage).await.unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 9999, .. }), "{error}");
    assert!(error.to_string().contains("pointsman.db"), "{error}");
}

#[tokio::test]
async fn rows_that_make_no_sense_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir.path().join("pointsman.db"));
    let running = start(&storage).await;
    running.writer.write_all(attempt(25));
    running.writer.write(StoreOp::Quality(key("vendor-b"), Box::new(saved(7))));
    running.stop().await;
    let mut conn = peek(&storage.path).await;
    for spoil in [
        "UPDATE quality SET state = 'excellent' WHERE connection = 'vendor-b'",
        "UPDATE sample SET outcome = 'splendid' WHERE position = 3 AND list = 'window' AND quality IN
             (SELECT id FROM quality WHERE connection = 'vendor-a')",
        "UPDATE leg SET node = 'no/node'",
    ] {
        sqlx::query(spoil).execute(&mut conn).await.unwrap();
    }
    conn.close().await.unwrap();

    let running = start(&storage).await;
    assert_eq!(running.restored.unreadable, 3);
    assert_eq!(running.restored.machines.len(), 1);
    assert_eq!(running.restored.machines[0].1.window.len(), 19);
    // What is handed over next replaces them.
    running.writer.write(StoreOp::Quality(key("vendor-a"), Box::new(saved(26))));
    running.writer.write(StoreOp::Quality(key("vendor-b"), Box::new(saved(8))));
    running.stop().await;
    let running = start(&storage).await;
    assert_eq!(running.restored.machines, [(key("vendor-a"), saved(26)), (key("vendor-b"), saved(8))]);
    running.stop().await;
}

#[tokio::test]
async fn a_damaged_file_stops_nothing_and_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pointsman.db");
    let garbage = b"this is not a database, but it is long enough to look at".repeat(200);
    fs::write(&path, &garbage).unwrap();
    let storage = storage(&path);
    let error = Store::open(&storage).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");

    let tasks = Tasks::new();
    let (writer, _mail) = Writer::retrying(&storage, &error, Clock::system(), &tasks);
    assert!(!writer.health().borrow().healthy);
    for n in 1..=30 {
        writer.write_all(attempt(n));
    }
    assert!(!writer.flush(Duration::from_millis(300)).await);
    assert_eq!(fs::read(&path).unwrap(), garbage);
    let seen = writer.health().borrow().clone();
    assert!(seen.problem.contains("damaged") && !seen.healthy && seen.backlog > 0, "{seen:?}");

    fs::rename(&path, dir.path().join("damaged.db")).unwrap();
    assert!(writer.flush(PATIENCE).await, "{:?}", writer.health().borrow());
    assert!(tasks.stop(PATIENCE).await);
    let again = start(&storage).await;
    check_consistent(&path, &again.restored, 30).await;
    again.stop().await;
}

#[tokio::test]
async fn a_file_locked_by_another_program_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir.path().join("pointsman.db"));
    let running = start(&storage).await;
    running.writer.write_all(attempt(1));
    assert!(running.writer.flush(PATIENCE).await);

    let mut other = peek(&storage.path).await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let mut health = running.writer.health();
    for n in 2..=40 {
        running.writer.write_all(attempt(n));
    }
    let seen = tokio::time::timeout(PATIENCE, health.wait_for(|seen| !seen.healthy)).await.unwrap().unwrap().clone();
    assert!(seen.problem.contains("another program holds it locked"), "{seen:?}");
    assert!(seen.backlog > 0, "{seen:?}");
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    assert!(running.writer.flush(PATIENCE).await);
    let healthy = tokio::time::timeout(PATIENCE, health.wait_for(|seen| seen.healthy)).await.unwrap().unwrap().clone();
    assert_eq!((healthy.backlog, healthy.dropped, healthy.problem.as_str()), (0, 0, ""));
    running.stop().await;
    let again = start(&storage).await;
    check_consistent(&storage.path, &again.restored, 40).await;
    again.stop().await;
}

#[tokio::test]
async fn a_file_that_was_removed_is_made_again_with_the_state() {
    let removals: [fn(&Path); 2] =
        [|path| fs::remove_file(path).unwrap(), |path| fs::remove_dir_all(path.parent().unwrap()).unwrap()];
    for remove in removals {
        let dir = tempfile::tempdir().unwrap();
        let storage = storage(&dir.path().join("data/pointsman.db"));
        let running = start(&storage).await;
        for n in 1..=30 {
            running.writer.write_all(attempt(n));
        }
        assert!(running.writer.flush(PATIENCE).await);
        remove(&storage.path);
        running.writer.write(StoreOp::Quality(key("vendor-b"), Box::new(saved(7))));
        assert!(running.writer.flush(PATIENCE).await);
        running.stop().await;
        let again = start(&storage).await;
        assert_eq!(again.restored.machines, [(key("vendor-a"), saved(30)), (key("vendor-b"), saved(7))]);
        assert_eq!(again.restored.legs, (26..=30).map(leg).collect::<Vec<_>>());
        assert_eq!(again.restored.generation, 30);
        assert_eq!(again.restored.changes, []);
        again.stop().await;
    }
}

#[tokio::test]
async fn history_older_than_kept_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let storage = Storage { path: dir.path().join("pointsman.db"), keep: Duration::from_secs(3600) };
    let times = [clock.now().before(Duration::from_secs(2 * 3600)), clock.now().before(Duration::from_secs(60))];
    let running = start(&storage).await;
    for at in times {
        let row = ChangeRow { change: Change { at, ..change(1).change }, ..change(1) };
        running.writer.write(StoreOp::Changed(Box::new(row)));
        for connection in ["vendor-a", "vendor-b"] {
            let whose = Whose::Connection(key(connection));
            running.writer.write(StoreOp::Count { at, whose, tally: Tally::active(1) });
        }
    }
    running.stop().await;

    let running = start(&storage).await;
    let mut conn = peek(&storage.path).await;
    let left = async {
        loop {
            let left: (i64, i64) =
                sqlx::query_as("SELECT (SELECT count(*) FROM change), (SELECT count(*) FROM minute)")
                    .fetch_one(&mut conn)
                    .await
                    .unwrap();
            if left == (1, 2) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, left).await.unwrap();
    conn.close().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_detached_writer_counts() {
    let writer = Writer::detached("storage is off");
    writer.write_all(attempt(1));
    assert!(!writer.flush(Duration::from_millis(1)).await);
    assert_eq!(writer.health().borrow().problem, "storage is off");
}

// ===== round trip =====

#[derive(Clone, Debug)]
enum Step {
    Finish(u64),
    FinishInBatch(u64),
    Promote,
    Shorten(usize),
    Turn(State, u64),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![Just(State::Good), Just(State::Bad), Just(State::Retry)];
    let step = prop_oneof![
        6 => (0..4u64).prop_map(Step::Finish),
        4 => (0..4u64).prop_map(Step::FinishInBatch),
        1 => Just(Step::Promote),
        1 => (0..8usize).prop_map(Step::Shorten),
        1 => (state, 0..i64::MAX as u64).prop_map(|(state, n)| Step::Turn(state, n)),
        2 => Just(Step::Flush),
    ];
    proptest::collection::vec(step, 1..60)
}

fn settings() -> impl Strategy<Value = Settings> {
    let threshold = || proptest::option::of(0.0..100.0f64);
    (threshold(), threshold(), threshold(), 1..50usize).prop_map(|(asr, acd, pdd, window)| Settings {
        asr_threshold_percent: asr,
        acd_threshold_sec: acd,
        pdd_threshold_sec: pdd,
        statistics_window: window,
        ..Settings::default()
    })
}

fn perform(saved: &mut Saved, step: &Step) {
    match *step {
        // Few different samples, so that the front of a list often looks like its end.
        Step::Finish(n) => {
            saved.window.push(sample(n));
            if saved.window.len() > 8 {
                saved.window.remove(0);
            }
        }
        Step::FinishInBatch(n) => saved.batch.push(sample(n)),
        Step::Promote => saved.window = std::mem::take(&mut saved.batch),
        Step::Shorten(to) => saved.window = saved.window.split_off(saved.window.len().saturating_sub(to)),
        Step::Turn(state, n) => {
            saved.state = state;
            saved.since = Timestamp::from_micros(n as i64);
            saved.epochs.push((Epoch(n), Timestamp::from_micros(-1 - n as i64)));
            saved.measured_from = Epoch(n / 2);
            saved.interval_from = Timestamp::from_micros(n as i64 / 3);
            saved.bad_in_row = (n % 5) as u32;
            saved.batch.clear();
        }
        Step::Flush => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_connection_comes_back_as_it_was(steps in steps(), settings in settings()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let storage = storage(&dir.path().join("pointsman.db"));
            let mut expected = Saved { settings, ..saved(0) };
            expected.window.clear();
            expected.batch.clear();
            let running = start(&storage).await;
            for step in &steps {
                perform(&mut expected, step);
                running.writer.write(StoreOp::Quality(key("vendor-a"), Box::new(expected.clone())));
                if matches!(step, Step::Flush) {
                    assert!(running.writer.flush(PATIENCE).await);
                }
            }
            running.stop().await;
            let again = start(&storage).await;
            assert_eq!(again.restored.machines, [(key("vendor-a"), expected)]);
            again.stop().await;
        });
    }
}

// ===== kill -9 =====

const CHILD_DIR: &str = "POINTSMAN_TEST_STORE_CHILD";

/// How many times the child is killed.
const KILLS: u64 = 12;

/// Not a test of its own: what the child process of the next test does. It goes on after the last attempt in the file,
/// notes the time before each attempt that it hands over, and ends by being killed.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let running = start(&storage(&dir.join("pointsman.db"))).await;
        let mut notes = fs::File::create(dir.join("handed")).unwrap();
        let clock = Clock::system();
        println!("ready");
        for n in running.restored.generation + 1.. {
            let mut note = clock.now().as_micros().to_le_bytes().to_vec();
            running.writer.write_all(attempt(n));
            note.extend(clock.now().as_micros().to_le_bytes());
            notes.write_all(&note).unwrap();
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..4_000))).await;
        }
    });
}

/// When each attempt of the child's life had been handed over.
fn handed(dir: &Path) -> Vec<Timestamp> {
    let notes = fs::read(dir.join("handed")).unwrap();
    let after = notes.chunks_exact(16).map(|note| i64::from_le_bytes(note[8..].try_into().unwrap()));
    after.map(Timestamp::from_micros).collect()
}

/// A kill at any moment leaves a file that is whole, and at most the last 50 ms are missing. The time is asserted of the
/// median kill, because a machine that is busy with other things keeps the child from working at all now and then.
#[tokio::test]
async fn a_kill_at_any_moment_loses_the_last_50_ms_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir.path().join("pointsman.db"));
    let mut stored = 0;
    let mut losses = Vec::new();
    for _ in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the child ended by itself");
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(5..300))).await;
        let killed_at = Clock::system().now();
        child.kill().unwrap();
        child.wait().unwrap();
        output.read_to_string(&mut line).unwrap();

        let (store, restored) = Store::open(&storage).await.unwrap();
        check_consistent(&storage.path, &restored, restored.generation).await;
        drop(store);
        let handed = handed(dir.path());
        let survived = usize::try_from(restored.generation - stored).unwrap();
        losses.push(handed.get(survived).map_or(Duration::ZERO, |first_lost| killed_at.since(*first_lost)));
        stored = restored.generation;
    }
    losses.sort();
    assert!(stored > 0);
    assert!(losses[losses.len() / 2] <= Duration::from_millis(50), "time lost by each kill: {losses:?}");
    println!("time lost by each kill: {losses:?}");
}
