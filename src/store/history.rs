//! Reading the history back, for pages and plots, while the writer writes.
//!
//! Every question opens the file anew, to read only: so it finds the file that is there now, and neither the writer nor
//! the engine ever waits for a reader. Who asks gets a clear error where the file is missing, locked, broken, or the
//! answer would take too long; nothing else suffers. A question is bounded in rows, in the work that SQLite may do for
//! it, and in time, and only a few are answered at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, Connection, QueryBuilder, Row, Sqlite};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::file::check_owner;
use super::op::{ChangeRow, OUTCOMES, Tally, Whose};
use super::rows::{change_of, map_text, uint, word};
use super::{StoreError, code, code_of};
use crate::ids::{ConnectionId, MapId, QualityKey};
use crate::quality::machine::State;
use crate::quality::window::Epoch;
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// Most changes of an answer: more than a plot can tell apart.
pub const MOST_CHANGES: u32 = 1000;

/// Questions that are answered at a time. Each has a thread, which is not to take more than its share from the engine; the
/// others wait.
const PLACES: usize = 2;

/// Longest wait for a place, and longest wait for an answer after that. An answer takes milliseconds, over a
/// month of a connection that is never idle a few tenths of a second.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a statement waits for a lock that another program holds.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// Steps of SQLite's machine between two looks at how much was done.
const STEPS_AT_ONCE: i32 = 1000;

/// Most looks: 20 million steps, a second or two. A month of one owner takes 3 million, a search through a
/// hundred thousand changes less than one.
const MOST_LOOKS: u32 = 20_000;

const MINUTE: Duration = Duration::from_secs(60);

/// How far back a plot looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub enum Span {
    /// An hour, by the minute.
    #[serde(rename = "1h")]
    Hour,
    /// A day, by five minutes.
    #[default]
    #[serde(rename = "24h")]
    Day,
    /// A week, by half hours.
    #[serde(rename = "7d")]
    Week,
    /// Thirty days, by two hours.
    #[serde(rename = "30d")]
    Month,
}

impl Span {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Week, Self::Month];

    /// Its length in minutes.
    #[must_use]
    pub const fn minutes(self) -> u32 {
        match self {
            Self::Hour => 60,
            Self::Day => 24 * 60,
            Self::Week => 7 * 24 * 60,
            Self::Month => 30 * 24 * 60,
        }
    }

    /// The length of a bucket in minutes. At most 400 buckets make a span, which is as many as a plot can show.
    #[must_use]
    pub const fn bucket_minutes(self) -> u32 {
        match self {
            Self::Hour => 1,
            Self::Day => 5,
            Self::Week => 30,
            Self::Month => 120,
        }
    }
}

/// The sums of an owner over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Where the first bucket begins.
    pub from: Timestamp,
    /// Where the last one ends: at most a bucket's length after now.
    pub to: Timestamp,
    /// Length of a bucket.
    pub bucket: Duration,
    /// The sums of each bucket, oldest first; `None` where nothing was counted. The last is not over yet.
    pub sums: Vec<Option<Tally>>,
}

impl Series {
    /// One without any sums.
    #[must_use]
    pub fn empty(span: Span, now: Timestamp) -> Self {
        let (length, bucket) = (MINUTE * span.minutes(), MINUTE * span.bucket_minutes());
        let width = i64::from(span.bucket_minutes()) * 60_000_000;
        let to = Timestamp::from_micros(now.as_micros().div_euclid(width).saturating_add(1).saturating_mul(width));
        let buckets = span.minutes() / span.bucket_minutes();
        Self { from: to.before(length), to, bucket, sums: (0..buckets).map(|_| None).collect() }
    }

    /// Where the buckets begin, with their sums, oldest first.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = (Timestamp, Option<&Tally>)> + ExactSizeIterator {
        let begin =
            |place: usize| self.from.after(self.bucket.saturating_mul(u32::try_from(place).unwrap_or(u32::MAX)));
        self.sums.iter().enumerate().map(move |(place, sums)| (begin(place), sums.as_ref()))
    }

    /// The sums over all buckets; `None` where nothing was counted.
    #[must_use]
    pub fn total(&self) -> Option<Tally> {
        self.sums.iter().flatten().copied().reduce(|mut total, sums| {
            total.add(&sums);
            total
        })
    }
}

/// A place in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// Changes before this time.
    Time(Timestamp),
    /// Changes before this one. One that the file does not hold stands for its time.
    Change {
        /// Its time.
        at: Timestamp,
        /// The epoch that it began.
        epoch: Epoch,
        /// Whose it is.
        key: QualityKey,
    },
}

/// Which changes are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only of this connection.
    pub connection: Option<ConnectionId>,
    /// Only of this map; `Some(None)`: only those over all maps.
    pub map: Option<Option<MapId>>,
    /// Only those that began this state.
    pub state: Option<State>,
    /// Only by this one, as the change names it.
    pub who: Option<Arc<str>>,
    /// Only from this time on.
    pub from: Option<Timestamp>,
    /// Only older ones.
    pub before: Option<Before>,
    /// At most so many, and at most [`MOST_CHANGES`].
    pub limit: u32,
}

/// Changes of state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Newest first.
    pub changes: Vec<ChangeRow>,
    /// Whether there are older ones of those wanted.
    pub more: bool,
}

/// Why there is no answer. Trying again later may help.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file cannot be read.
    #[error("no history: {0}")]
    Unreadable(#[from] StoreError),
    /// There is no file.
    #[error("no history: there is no database {0}")]
    NoFile(String),
    /// Too many others ask.
    #[error("no history now: too many ask for it; try again")]
    Busy,
    /// It takes too long.
    #[error("no history now: the disk did not answer within {} s", PATIENCE.as_secs())]
    Slow,
    /// SQLite would have to look at too much.
    #[error("this would take a search through too much of the history; ask for less of it")]
    TooMuch,
}

impl HistoryError {
    fn of(path: &Path, source: sqlx::Error) -> Self {
        match code_of(&source) {
            Some(code::INTERRUPT) => Self::TooMuch,
            Some(code::CANTOPEN) if !path.exists() => Self::NoFile(path.display().to_string()),
            _ => Self::Unreadable(StoreError::of(path, source)),
        }
    }
}

/// Answers questions about the past out of the database. Cheap to clone; clones share their places.
#[derive(Clone, Debug)]
pub struct History {
    path: Arc<Path>,
    places: Arc<Semaphore>,
    tasks: Tasks,
}

impl History {
    /// Of the database at `path`, which need not be there. The reading is done in `tasks`.
    #[must_use]
    pub fn of(path: &Path, tasks: &Tasks) -> Self {
        Self { path: path.into(), places: Arc::new(Semaphore::new(PLACES)), tasks: tasks.clone() }
    }

    /// The sums of an owner over the span that ends at `now`.
    ///
    /// # Errors
    /// Where the file cannot be read now; see [`HistoryError`].
    pub async fn series(&self, whose: &Whose, span: Span, now: Timestamp) -> Result<Series, HistoryError> {
        let whose = whose.clone();
        self.ask(move |conn| Box::pin(read_series(conn, whose, Series::empty(span, now)))).await
    }

    /// Changes of state, newest first.
    ///
    /// # Errors
    /// Where the file cannot be read now; see [`HistoryError`].
    pub async fn changes(&self, wanted: &Wanted) -> Result<Page, HistoryError> {
        let wanted = wanted.clone();
        self.ask(move |conn| Box::pin(read_changes(conn, wanted))).await
    }

    /// A place belongs to the reading and not to the one who asks: where a disk hangs, [`PLACES`] threads hang at most.
    async fn ask<T, Q>(&self, question: Q) -> Result<T, HistoryError>
    where
        T: Send + 'static,
        Q: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        let place = timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(HistoryError::Busy) };
        let (answer, answered) = oneshot::channel();
        let (path, tasks) = (Arc::clone(&self.path), self.tasks.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                read = read(&path, question) => drop(answer.send(read)),
                () = tasks.stopping() => {}
            }
            drop(place);
        });
        timeout(PATIENCE, answered).await.ok().and_then(Result::ok).unwrap_or(Err(HistoryError::Slow))
    }
}

async fn read<T, Q>(path: &Path, question: Q) -> Result<T, HistoryError>
where
    Q: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>,
{
    let of = |source| HistoryError::of(path, source);
    let options = SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(BUSY_TIMEOUT);
    let mut conn = options.connect().await.map_err(of)?;
    check_owner(path, &mut conn).await?;
    bound_work(&mut conn).await.map_err(of)?;
    let answer = question(&mut conn).await.map_err(of)?;
    conn.close().await.map_err(of)?;
    Ok(answer)
}

/// Interrupts whatever takes more than [`MOST_LOOKS`] looks.
async fn bound_work(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut looks = 0;
    conn.lock_handle().await?.set_progress_handler(STEPS_AT_ONCE, move || {
        looks += 1;
        looks < MOST_LOOKS
    });
    Ok(())
}

// ===== sums =====

const SUMS: &str = "SELECT (minute - ?1) / ?2 AS place, sum(calls) AS calls, sum(successes) AS successes, \
     sum(talks) AS talks, sum(talk_ms) AS talk_ms, sum(delays) AS delays, sum(delay_ms) AS delay_ms, \
     sum(effective) AS effective, sum(ineffective) AS ineffective, sum(answered) AS answered, sum(busy) AS busy, \
     sum(no_answer) AS no_answer, sum(rejected) AS rejected, sum(number_invalid) AS number_invalid, \
     sum(vendor_failed) AS vendor_failed, sum(caller_gone) AS caller_gone, sum(lost_race) AS lost_race, \
     sum(not_sent) AS not_sent, sum(lost) AS lost, max(max_active) AS max_active \
     FROM minute WHERE kind = ?3 AND name = ?4 AND map = ?5 AND minute >= ?1 AND minute < ?6 GROUP BY place";

async fn read_series(conn: &mut SqliteConnection, whose: Whose, mut series: Series) -> Result<Series, sqlx::Error> {
    let (kind, name, map) = match &whose {
        Whose::Connection(key) => ("connection", key.connection.as_str(), map_text(key)),
        Whose::Node(node) => ("node", node.as_str(), ""),
    };
    let minute = |at: Timestamp| at.as_micros().div_euclid(60_000_000);
    let rows = sqlx::query(SUMS)
        .bind(minute(series.from))
        .bind(i64::try_from(series.bucket.as_secs() / 60).unwrap_or(i64::MAX))
        .bind(kind)
        .bind(name)
        .bind(map)
        .bind(minute(series.to))
        .fetch_all(conn)
        .await?;
    for row in &rows {
        let place = usize::try_from(row.try_get::<i64, _>("place")?).ok();
        if let Some(sums) = place.and_then(|place| series.sums.get_mut(place)) {
            *sums = Some(tally_of(row)?);
        }
    }
    Ok(series)
}

fn tally_of(row: &SqliteRow) -> Result<Tally, sqlx::Error> {
    let sum = |name: &str| row.try_get(name).map(uint);
    let mut outcomes = [0; OUTCOMES.len()];
    for (count, outcome) in outcomes.iter_mut().zip(OUTCOMES) {
        *count = sum(&word(&outcome))?;
    }
    Ok(Tally {
        calls: sum("calls")?,
        successes: sum("successes")?,
        talks: sum("talks")?,
        talk_ms: sum("talk_ms")?,
        delays: sum("delays")?,
        delay_ms: sum("delay_ms")?,
        effective: sum("effective")?,
        ineffective: sum("ineffective")?,
        outcomes,
        max_active: sum("max_active")?,
    })
}

// ===== changes =====

async fn read_changes(conn: &mut SqliteConnection, wanted: Wanted) -> Result<Page, sqlx::Error> {
    let limit = wanted.limit.min(MOST_CHANGES);
    let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM change WHERE true");
    if let Some(from) = wanted.from {
        query.push(" AND at >= ").push_bind(from.as_micros());
    }
    match &wanted.before {
        None => {}
        Some(Before::Time(at)) => {
            query.push(" AND at < ").push_bind(at.as_micros());
        }
        Some(Before::Change { at, epoch, key }) => {
            // A row value would keep SQLite from using the index for the time alone.
            let id = id_of(conn, *at, *epoch, key).await?.unwrap_or(i64::MIN);
            query.push(" AND at <= ").push_bind(at.as_micros());
            query.push(" AND (at < ").push_bind(at.as_micros()).push(" OR id < ").push_bind(id).push(")");
        }
    }
    if let Some(connection) = wanted.connection {
        query.push(" AND connection = ").push_bind(connection.as_str().to_owned());
    }
    if let Some(map) = wanted.map {
        query.push(" AND map = ").push_bind(map.map(String::from).unwrap_or_default());
    }
    if let Some(state) = wanted.state {
        query.push(" AND to_state = ").push_bind(word(&state));
    }
    if let Some(who) = wanted.who {
        query.push(" AND who = ").push_bind(who.to_string());
    }
    query.push(" ORDER BY at DESC, id DESC LIMIT ").push_bind(limit.saturating_add(1));
    let rows = query.build().fetch_all(conn).await?;
    let shown = rows.iter().take(usize::try_from(limit).unwrap_or(usize::MAX));
    let more = rows.len() > shown.len();
    // What somebody else wrote and nobody can read is left out, as it is at the start.
    Ok(Page { changes: shown.filter_map(|row| change_of(row).ok()).collect(), more })
}

async fn id_of(
    conn: &mut SqliteConnection,
    at: Timestamp,
    epoch: Epoch,
    key: &QualityKey,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar("SELECT min(id) FROM change WHERE at = ? AND epoch = ? AND connection = ? AND map = ?")
        .bind(at.as_micros())
        .bind(i64::try_from(epoch.0).unwrap_or(i64::MAX))
        .bind(key.connection.as_str())
        .bind(map_text(key))
        .fetch_one(conn)
        .await
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::clock::Clock;
    use crate::config::model::Storage;
    use crate::ids::NodeId;
    use crate::quality::machine::{Change, Reason};
    use crate::quality::window::Figures;
    use crate::store::{POINTSMAN, Store, StoreOp, Writer};

    const LONG: Duration = Duration::from_secs(20);

    /// A round time that no hourly deletion takes for old, whenever the tests run.
    fn noon() -> Timestamp {
        Timestamp::from_secs(4_102_444_800 + 12 * 3600)
    }

    struct Past {
        folder: TempDir,
        tasks: Tasks,
        writer: Writer,
        history: History,
    }

    impl Past {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("pointsman.db");
            let storage = Storage { path: path.clone(), keep: Duration::from_secs(30 * 24 * 3600) };
            let tasks = Tasks::new();
            let (store, _) = Store::open(&storage).await.unwrap();
            let writer = store.start(Clock::system(), &tasks);
            let history = History::of(&path, &tasks);
            Self { folder, tasks, writer, history }
        }

        async fn write(&self, ops: impl IntoIterator<Item = StoreOp>) {
            self.writer.write_all(ops);
            assert!(self.writer.flush(LONG).await);
        }

        fn path(&self) -> std::path::PathBuf {
            self.folder.path().join("pointsman.db")
        }
    }

    fn key(connection: &str, map: Option<&str>) -> QualityKey {
        QualityKey { connection: ConnectionId::new(connection).unwrap(), map: map.map(|map| MapId::new(map).unwrap()) }
    }

    fn connection(name: &str, map: Option<&str>) -> Whose {
        Whose::Connection(key(name, map))
    }

    /// Calls, one of them answered for half a minute after two seconds; every column has a value of its own.
    fn tally(calls: u64) -> Tally {
        Tally {
            calls,
            successes: 1,
            talks: 1,
            talk_ms: 30_000,
            delays: 2,
            delay_ms: 4_000,
            effective: 3,
            ineffective: 1,
            outcomes: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            max_active: calls + 5,
        }
    }

    fn count(before: Duration, whose: Whose, tally: Tally) -> StoreOp {
        StoreOp::Count { at: noon().before(before), whose, tally }
    }

    fn changed(n: i64, connection: &str, map: Option<&str>, to: State, who: &str) -> StoreOp {
        let figures = Figures { calls: 20, asr: Some(35.0), ..Figures::default() };
        let (from, reason) = if to == State::Bad { (State::Good, Reason::Asr) } else { (State::Bad, Reason::Operator) };
        let epoch = Epoch(u64::try_from(n).unwrap());
        let change = Change { at: noon().after(MINUTE * (n as u32)), from, to, reason, epoch, figures };
        let row = ChangeRow { key: key(connection, map), change, words: format!("change {n}").into(), who: who.into() };
        StoreOp::Changed(Box::new(row))
    }

    fn epochs(page: &Page) -> Vec<u64> {
        page.changes.iter().map(|row| row.change.epoch.0).collect()
    }

    #[test]
    fn a_span_is_a_whole_number_of_buckets_and_at_most_400() {
        for span in Span::ALL {
            assert_eq!(span.minutes() % span.bucket_minutes(), 0);
            let now = noon().after(Duration::from_secs(77));
            let series = Series::empty(span, now);
            assert!(series.sums.len() <= 400, "{span:?}");
            assert!(series.to > now && series.to.since(now) <= series.bucket, "{span:?}");
            let (last, _) = series.buckets().last().unwrap();
            assert_eq!((last.after(series.bucket), series.buckets().next().unwrap().0), (series.to, series.from));
        }
        assert_eq!(Series::empty(Span::Hour, Timestamp::from_micros(-1)).to, Timestamp::from_micros(0));
        let _ = Series::empty(Span::Month, Timestamp::from_micros(i64::MAX));
        let _ = Series::empty(Span::Month, Timestamp::from_micros(i64::MIN));
    }

    #[tokio::test]
    async fn minutes_are_added_up_and_those_without_calls_are_gaps() {
        let past = Past::new().await;
        past.write([
            count(MINUTE * 6, connection("a", None), tally(10)),
            count(MINUTE * 9, connection("a", None), tally(3)),
            count(MINUTE * 21, connection("a", None), tally(7)),
            count(MINUTE * 6, connection("a", Some("intl")), tally(100)),
            count(MINUTE * 6, connection("b", None), tally(1000)),
            count(MINUTE * 6, Whose::Node(NodeId::new("a").unwrap()), tally(50)),
            count(MINUTE * (24 * 60 + 1), connection("a", None), tally(20)),
        ])
        .await;
        let series = past.history.series(&connection("a", None), Span::Day, noon()).await.unwrap();
        let found: Vec<(Timestamp, Tally)> = series.buckets().filter_map(|(at, sums)| Some((at, *sums?))).collect();
        let mut both = tally(10);
        both.add(&tally(3));
        let at = |minutes| noon().before(MINUTE * minutes);
        assert_eq!(found, [(at(25), tally(7)), (at(10), both)]);
        assert_eq!((series.sums.len(), series.total().unwrap().calls), (288, 20));
        for (whose, calls) in [
            (connection("a", Some("intl")), Some(100)),
            (Whose::Node(NodeId::new("a").unwrap()), Some(50)),
            (connection("x", None), None),
        ] {
            let series = past.history.series(&whose, Span::Hour, noon()).await.unwrap();
            assert_eq!(series.total().map(|sums| sums.calls), calls, "{whose:?}");
        }
        let month = past.history.series(&connection("a", None), Span::Month, noon()).await.unwrap();
        assert_eq!((month.total().unwrap().calls, month.sums.iter().flatten().count()), (40, 2));
    }

    #[tokio::test]
    async fn the_figures_of_a_bucket_are_those_of_its_calls() {
        let past = Past::new().await;
        let idle = Tally { calls: 0, ..Tally::active(4) };
        past.write([count(MINUTE, connection("a", None), tally(4)), count(MINUTE * 3, connection("a", None), idle)])
            .await;
        let series = past.history.series(&connection("a", None), Span::Hour, noon()).await.unwrap();
        let figures: Vec<Figures> = series.sums.iter().flatten().map(Tally::figures).collect();
        let of_calls = Figures { calls: 4, asr: Some(25.0), acd: Some(30.0), pdd: Some(2.0), ner: Some(75.0) };
        assert_eq!(figures, [Figures::default(), of_calls]);
    }

    #[tokio::test]
    async fn changes_are_found_by_what_they_are_about_newest_first() {
        let past = Past::new().await;
        past.write([
            changed(1, "a", None, State::Bad, POINTSMAN),
            changed(2, "a", Some("intl"), State::Bad, POINTSMAN),
            changed(3, "b", None, State::Good, "api noc"),
            changed(4, "a", None, State::Good, "api noc"),
            changed(5, "a", None, State::Bad, POINTSMAN),
        ])
        .await;
        let all = Wanted { limit: 10, ..Wanted::default() };
        let a = Wanted { connection: Some(ConnectionId::new("a").unwrap()), ..all.clone() };
        let cases = [
            (all.clone(), vec![5, 4, 3, 2, 1], false),
            (Wanted { limit: 2, ..all.clone() }, vec![5, 4], true),
            (a.clone(), vec![5, 4, 2, 1], false),
            (Wanted { map: Some(None), ..a.clone() }, vec![5, 4, 1], false),
            (Wanted { map: Some(Some(MapId::new("intl").unwrap())), ..a.clone() }, vec![2], false),
            (Wanted { state: Some(State::Bad), ..a.clone() }, vec![5, 2, 1], false),
            (Wanted { who: Some("api noc".into()), ..all.clone() }, vec![4, 3], false),
            (Wanted { from: Some(noon().after(MINUTE * 3)), ..all.clone() }, vec![5, 4, 3], false),
            (Wanted { before: Some(Before::Time(noon().after(MINUTE * 3))), ..all.clone() }, vec![2, 1], false),
            (Wanted { limit: 0, ..all.clone() }, vec![], true),
        ];
        for (wanted, expected, more) in cases {
            let page = past.history.changes(&wanted).await.unwrap();
            assert_eq!((epochs(&page), page.more), (expected, more), "{wanted:?}");
        }
        let page = past.history.changes(&all).await.unwrap();
        let first = &page.changes[4];
        assert_eq!((&*first.words, first.change.figures.asr, &first.key), ("change 1", Some(35.0), &key("a", None)));
    }

    #[tokio::test]
    async fn pages_are_whole_also_where_many_changes_have_one_time() {
        let past = Past::new().await;
        let same = (1..=7).map(|n| {
            let StoreOp::Changed(mut row) = changed(n, "a", None, State::Bad, POINTSMAN) else { unreachable!() };
            row.change.at = noon();
            StoreOp::Changed(row)
        });
        past.write(same).await;
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let wanted = Wanted { before, limit: 3, ..Wanted::default() };
            let page = past.history.changes(&wanted).await.unwrap();
            seen.extend(epochs(&page));
            let Some(last) = page.changes.last().filter(|_| page.more) else { break };
            before = Some(Before::Change { at: last.change.at, epoch: last.change.epoch, key: last.key.clone() });
        }
        assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
        let unknown = Before::Change { at: noon(), epoch: Epoch(99), key: key("a", None) };
        let wanted = Wanted { before: Some(unknown), limit: 9, ..Wanted::default() };
        assert_eq!(epochs(&past.history.changes(&wanted).await.unwrap()), [0; 0]);
    }

    async fn error_of(path: &Path) -> String {
        let tasks = Tasks::new();
        let history = History::of(path, &tasks);
        let error = history.series(&connection("a", None), Span::Day, noon()).await.unwrap_err();
        assert_eq!(history.changes(&Wanted::default()).await.unwrap_err().to_string(), error.to_string());
        error.to_string()
    }

    #[tokio::test]
    async fn a_file_that_is_missing_broken_or_of_others_is_told_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        assert!(error_of(&path).await.contains("there is no database"), "{}", error_of(&path).await);
        assert!(!path.exists());
        std::fs::write(&path, "no database at all, but long enough to have a header of one ".repeat(99)).unwrap();
        assert!(error_of(&path).await.contains("is damaged or is none"), "{}", error_of(&path).await);
        std::fs::remove_file(&path).unwrap();
        let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
        let mut other = options.connect().await.unwrap();
        sqlx::query("CREATE TABLE minute (a)").execute(&mut other).await.unwrap();
        other.close().await.unwrap();
        assert!(error_of(&path).await.contains("of another program"), "{}", error_of(&path).await);
    }

    #[tokio::test]
    async fn reading_needs_no_writer_and_does_not_stop_one() {
        let past = Past::new().await;
        past.write([count(MINUTE, connection("a", None), tally(4))]).await;
        // Somebody holds the file locked for writing: readers read on, and the writer waits for that one and not for them.
        let mut locked = SqliteConnectOptions::new().filename(past.path()).connect().await.unwrap();
        sqlx::query("BEGIN IMMEDIATE").execute(&mut locked).await.unwrap();
        let calls = async || {
            let series = past.history.series(&connection("a", None), Span::Hour, noon()).await.unwrap();
            series.total().unwrap().calls
        };
        assert_eq!(calls().await, 4);
        locked.close().await.unwrap();
        past.write([count(MINUTE, connection("a", None), tally(3))]).await;
        assert_eq!(calls().await, 7);
        assert!(past.tasks.stop(LONG).await);
        assert!(past.path().exists());
    }

    #[tokio::test]
    async fn a_reader_cannot_write() {
        let past = Past::new().await;
        let tried = past
            .history
            .ask(|conn| Box::pin(async { sqlx::query("DELETE FROM minute").execute(conn).await.map(|_| ()) }))
            .await;
        assert!(tried.unwrap_err().to_string().contains("may not be written"));
    }

    #[tokio::test]
    async fn a_question_that_would_take_too_much_work_is_given_up() {
        let past = Past::new().await;
        let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let asked = past.history.ask(move |conn| Box::pin(sqlx::query_scalar::<_, i64>(endless).fetch_one(conn))).await;
        assert!(matches!(asked, Err(HistoryError::TooMuch | HistoryError::Slow)), "{asked:?}");
        assert!(past.history.changes(&Wanted::default()).await.is_ok());
    }
}
