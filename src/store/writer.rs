//! The task that writes, and the handle through which it is fed.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::Connection;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

use super::backlog::{Backlog, minute};
use super::file::{self, OpenFile};
use super::op::StoreOp;
use super::rows::{self, Content, Owner};
use super::{Restored, StoreError};
use crate::clock::Clock;
use crate::config::model::Storage;
use crate::engine::view::StorageView;
use crate::notify::kept::Kept;
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// How often the log is synchronised to the disk and folded into the database: what a loss of power can cost.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);

/// Least time from one transaction to the next. What comes after a pause is written at once; under load, what comes
/// within this time shares a transaction, and the larger part of the 50 ms is left to the write itself.
const PACE: Duration = Duration::from_millis(20);

/// How often the task looks, without anything to write, whether the file is still there.
const TICK: Duration = Duration::from_secs(1);

/// Wait before the first new try after a failure; each further one waits twice as long.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// Longest wait before a new try. Short enough that a repaired disk is used at once in an operator's eyes.
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// A write that has not come back after this is reported as a problem; it is waited for all the same.
const HANGING: Duration = Duration::from_secs(2);

/// How long the task goes on trying to write the rest after it was told to stop.
const LAST_TRIES: Duration = Duration::from_secs(3);

/// How long closing the file may take; a disk that hangs would never let us.
const CLOSING: Duration = Duration::from_secs(2);

/// Pages of log from which on its folding makes the writer wait rather than let it grow further: 32 MiB.
const LOG_PAGES: i64 = 8192;

/// How often rows older than `storage.keep` are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// An open database that is not written yet.
pub struct Store {
    file: OpenFile,
    content: Content,
    keep: Duration,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.file.path()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the file, makes it where there is none (mode 0600, its directory 0700), brings its schema up to date and
    /// reads what it holds.
    ///
    /// # Errors
    /// See [`StoreError`]. The file is left as it is then; go on with [`Writer::retrying`].
    pub async fn open(storage: &Storage) -> Result<(Self, Restored), StoreError> {
        let (file, content, restored) = open(&storage.path).await?;
        if restored.unreadable > 0 {
            tracing::warn!(
                rows = restored.unreadable,
                path = %storage.path.display(),
                "rows of the database could not be read and were left alone"
            );
        }
        Ok((Self { file, content, keep: storage.keep }, restored))
    }

    /// Starts the task that writes. Give it a group of its own and stop that last, so that whatever the others hand
    /// over while they stop is written too.
    #[must_use]
    pub fn start(self, clock: Clock, tasks: &Tasks) -> Writer {
        let backlog = Backlog::over(self.content.on_disk());
        let writer = Writer::new(backlog, StorageView { healthy: true, ..StorageView::default() });
        let path = self.file.path().to_owned();
        let task =
            Task { file: Some(self.file), content: self.content, ..Task::new(path, self.keep, clock, tasks, &writer) };
        task.spawn();
        writer
    }
}

async fn open(path: &Path) -> Result<(OpenFile, Content, Restored), StoreError> {
    let mut file = OpenFile::open(path).await?;
    let read = rows::read(&mut file.conn).await;
    let (content, restored) = read.map_err(|source| StoreError::of(file.path(), source))?;
    Ok((file, content, restored))
}

/// Where rows are handed over. Cheap to clone; clones share one backlog.
#[derive(Clone, Debug)]
pub struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backlog: Mutex<Backlog>,
    wake: Notify,
    health: watch::Sender<StorageView>,
    /// How many of the operations handed over are in the file.
    durable: watch::Sender<u64>,
}

impl Writer {
    fn new(backlog: Backlog, health: StorageView) -> Self {
        let (health, _) = watch::channel(health);
        let (durable, _) = watch::channel(0);
        Self { shared: Arc::new(Shared { backlog: Mutex::new(backlog), wake: Notify::new(), health, durable }) }
    }

    /// A writer for a file that could not be opened: it keeps what is handed over in memory and tries again to open the
    /// file until that works. What it is handed then replaces what the file holds of the same connections; the mail that
    /// the file holds comes over the receiver.
    #[must_use]
    pub fn retrying(
        storage: &Storage,
        error: &StoreError,
        clock: Clock,
        tasks: &Tasks,
    ) -> (Self, oneshot::Receiver<Vec<Kept>>) {
        let health = StorageView { problem: error.to_string(), ..StorageView::default() };
        let writer = Self::new(Backlog::default(), health);
        let (found, mail) = oneshot::channel();
        let task = Task::new(storage.path.clone(), storage.keep, clock, tasks, &writer);
        Task { late_mail: Some(found), ..task }.spawn();
        (writer, mail)
    }

    /// A writer that stores nothing and only counts; `why` is what the picture says.
    #[must_use]
    pub fn detached(why: &str) -> Self {
        Self::new(Backlog::closed(), StorageView { problem: why.into(), ..StorageView::default() })
    }

    /// Hands one thing over. Never waits for the disk.
    pub fn write(&self, op: StoreOp) {
        self.write_all([op]);
    }

    /// Hands over what belongs together: after a crash the file holds all of it or nothing.
    pub fn write_all(&self, ops: impl IntoIterator<Item = StoreOp>) {
        let mut backlog = self.shared.backlog();
        ops.into_iter().for_each(|op| backlog.push(op));
        drop(backlog);
        self.shared.wake.notify_one();
    }

    /// How storing goes; changes when something is wrong or right again.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<StorageView> {
        self.shared.health.subscribe()
    }

    /// Waits until everything that was handed over so far is in the file, at most `patience`. Says whether it is.
    pub async fn flush(&self, patience: Duration) -> bool {
        let handed = self.shared.backlog().handed();
        let mut durable = self.shared.durable.subscribe();
        matches!(timeout(patience, durable.wait_for(|durable| *durable >= handed)).await, Ok(Ok(_)))
    }
}

impl Shared {
    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        // Nothing that is done under the lock can leave it half done.
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_healthy(&self) {
        let dropped = self.backlog().dropped();
        let now = StorageView { healthy: true, problem: String::new(), backlog: 0, dropped };
        let recovered = self.replace_health(now);
        if recovered {
            tracing::info!(dropped, "the database is written again");
        }
    }

    fn report_problem(&self, problem: String) {
        let (backlog, dropped) = {
            let backlog = self.backlog();
            (backlog.rows(), backlog.dropped())
        };
        let was_healthy = self.health.borrow().healthy;
        if was_healthy {
            tracing::error!(%problem, backlog, "nothing is stored; routing goes on from memory");
        }
        self.replace_health(StorageView { healthy: false, problem, backlog, dropped });
    }

    /// Says whether it went from unhealthy to healthy.
    fn replace_health(&self, now: StorageView) -> bool {
        let mut recovered = false;
        self.health.send_if_modified(|health| {
            recovered = now.healthy && !health.healthy;
            let modified = *health != now;
            *health = now;
            modified
        });
        recovered
    }
}

/// How far the deletion of old rows is.
enum Pruning {
    /// Nothing to do before that time.
    Until(Timestamp),
    /// The sums of the owner after this one are next.
    Minutes(Owner),
}

struct Task {
    path: PathBuf,
    keep: Duration,
    clock: Clock,
    tasks: Tasks,
    shared: Arc<Shared>,
    /// `None` after a failure: everything is looked at anew then.
    file: Option<OpenFile>,
    /// What the file holds, or held when we last had it.
    content: Content,
    /// Where the mail goes that a file holds which could not be opened at the start.
    late_mail: Option<oneshot::Sender<Vec<Kept>>>,
    pruning: Pruning,
    pace: Interval,
}

impl Task {
    fn new(path: PathBuf, keep: Duration, clock: Clock, tasks: &Tasks, writer: &Writer) -> Self {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            pace,
            path,
            keep,
            clock,
            tasks: tasks.clone(),
            shared: Arc::clone(&writer.shared),
            file: None,
            content: Content::default(),
            late_mail: None,
            pruning: Pruning::Until(clock.now()),
        }
    }

    fn spawn(self) {
        let tasks = self.tasks.clone();
        tasks.spawn(fold_log(self.path.clone(), self.shared.durable.subscribe(), tasks.clone()));
        tasks.spawn(self.run());
    }

    async fn run(mut self) {
        let mut retry = FIRST_RETRY;
        while !self.tasks.is_stopping() {
            match watched(&Arc::clone(&self.shared), self.work()).await {
                Ok(()) => {
                    retry = FIRST_RETRY;
                    watched(&Arc::clone(&self.shared), self.prune()).await;
                    self.wait_for_work().await;
                }
                Err(error) => {
                    self.shared.report_problem(error.to_string());
                    let _ = timeout(retry, self.tasks.stopping()).await;
                    retry = LONGEST_RETRY.min(retry * 2);
                }
            }
        }
        self.finish().await;
    }

    /// Waits until something was handed over and the next transaction is due.
    async fn wait_for_work(&mut self) {
        let due = async {
            let _ = timeout(TICK, self.shared.wake.notified()).await;
            self.pace.tick().await;
        };
        tokio::select! {
            () = due => {}
            () = self.tasks.stopping() => {}
        }
    }

    /// Writes everything that waits. After an error the file is looked at anew.
    async fn work(&mut self) -> Result<(), StoreError> {
        let done = self.write_backlog().await;
        if done.is_err() {
            self.close().await;
        }
        let handed = done?;
        self.shared.report_healthy();
        self.shared.durable.send_if_modified(|durable| std::mem::replace(durable, handed) != handed);
        Ok(())
    }

    /// Says how many of the operations handed over are in the file now.
    async fn write_backlog(&mut self) -> Result<u64, StoreError> {
        let file = match &mut self.file {
            Some(file) => file,
            closed @ None => {
                let (file, found, restored) = open(&self.path).await?;
                // It may be another file than before, or a former state of it.
                let missing = self.content.missing_from(&found);
                self.shared.backlog().put_back(missing, found.on_disk());
                self.content = found;
                // Only now: what becomes of it is handed over to a backlog that knows what the file holds. Where no mail
                // is sent nobody listens.
                if let Some(late_mail) = self.late_mail.take() {
                    drop(late_mail.send(restored.mail));
                }
                closed.insert(file)
            }
        };
        file.check_in_place()?;
        let (taken, handed) = {
            let mut backlog = self.shared.backlog();
            (backlog.take(), backlog.handed())
        };
        if !taken.is_empty() {
            if let Err(source) = rows::write(&mut file.conn, &mut self.content, &taken).await {
                self.shared.backlog().put_back(taken, self.content.on_disk());
                return Err(StoreError::of(&self.path, source));
            }
            self.shared.backlog().written(&taken);
        }
        Ok(handed)
    }

    /// One small step of deleting what is too old, so that what is handed over meanwhile does not wait for all of it.
    async fn prune(&mut self) {
        let now = self.clock.now();
        let Some(file) = &mut self.file else { return };
        let oldest = now.before(self.keep);
        let step = match &self.pruning {
            Pruning::Until(due) if now < *due => return,
            Pruning::Until(_) => rows::prune_changes(&mut file.conn, oldest).await.map(|()| Some(Owner::default())),
            Pruning::Minutes(after) => match rows::next_owner(&mut file.conn, after).await {
                Ok(Some(owner)) => {
                    rows::prune_minutes(&mut file.conn, &owner, minute(oldest)).await.map(|()| Some(owner))
                }
                other => other,
            },
        };
        self.pruning = match step {
            Ok(Some(owner)) => {
                self.shared.wake.notify_one();
                Pruning::Minutes(owner)
            }
            Ok(None) => Pruning::Until(now.after(PRUNE_EVERY)),
            Err(error) => {
                // If the disk is the reason, the next write says so.
                tracing::warn!(%error, "old rows were not deleted from the database; tried again in an hour");
                Pruning::Until(now.after(PRUNE_EVERY))
            }
        };
    }

    /// Writes the rest and closes the file.
    async fn finish(mut self) {
        let rest = async {
            while !self.shared.backlog().is_empty() {
                if let Err(error) = self.work().await {
                    self.shared.report_problem(error.to_string());
                    sleep(FIRST_RETRY).await;
                }
            }
        };
        let _ = timeout(LAST_TRIES, rest).await;
        let lost = {
            let mut backlog = self.shared.backlog();
            let lost = backlog.rows();
            backlog.close();
            lost
        };
        if lost > 0 {
            tracing::error!(rows = lost, path = %self.path.display(), "rows could not be stored before the end");
        }
        self.close().await;
    }

    /// Lets go of the file before anybody opens it anew. It is whole however this ends: what is not folded into it
    /// stands in its log.
    async fn close(&mut self) {
        let Some(file) = self.file.take() else { return };
        match timeout(CLOSING, file.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the database was not closed cleanly"),
            Err(_) => tracing::debug!("the disk did not let the database be closed in time"),
        }
    }
}

/// Waits for `work`, and reports it as a problem for as long as it hangs.
async fn watched<T>(shared: &Shared, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut hanging = Duration::ZERO;
    loop {
        match timeout(HANGING, &mut work).await {
            Ok(done) => return done,
            Err(_) => {
                hanging += HANGING;
                shared.report_problem(format!("the disk has not answered for {} s", hanging.as_secs()));
            }
        }
    }
}

/// Synchronises the log to the disk and folds it into the database, every now and then, over a connection of its own:
/// within a commit the writer would wait for the disk.
async fn fold_log(path: PathBuf, mut durable: watch::Receiver<u64>, tasks: Tasks) {
    let mut warned = false;
    loop {
        tokio::select! {
            () = sleep(CHECKPOINT_EVERY) => {}
            () = tasks.stopping() => return,
        }
        if !durable.has_changed().unwrap_or(false) {
            continue;
        }
        durable.mark_unchanged();
        match fold_once(&path).await {
            // The writer meets the same disk and reports what is wrong with it.
            Err(error) => tracing::debug!(%error, "the log of the database was not folded into it"),
            Ok(pages) if pages > LOG_PAGES => {
                if !warned {
                    tracing::warn!(
                        pages,
                        path = %path.display(),
                        "the log of the database grows, because another program keeps reading it: end that program"
                    );
                }
                warned = true;
            }
            Ok(_) => warned = false,
        }
    }
}

/// Says how many pages of the log could not be folded.
async fn fold_once(path: &Path) -> Result<i64, sqlx::Error> {
    let mut conn = file::connect_beside(path).await?;
    let (_, pages, folded): (i64, i64, i64) =
        sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(&mut conn).await?;
    let mut left = pages - folded;
    if pages > LOG_PAGES {
        let (_, pages, folded): (i64, i64, i64) =
            sqlx::query_as("PRAGMA wal_checkpoint(RESTART)").fetch_one(&mut conn).await?;
        left = pages - folded;
    }
    conn.close().await?;
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::super::op::{Tally, Whose};
    use super::*;
    use crate::ids::NodeId;

    async fn task(dir: &Path) -> (Task, Writer) {
        let storage = Storage { path: dir.join("pointsman.db"), keep: Duration::from_secs(3600) };
        let (store, _) = Store::open(&storage).await.unwrap();
        let writer = Writer::new(Backlog::default(), StorageView::default());
        let task = Task::new(storage.path, storage.keep, Clock::system(), &Tasks::new(), &writer);
        (Task { file: Some(store.file), ..task }, writer)
    }

    fn fill(writer: &Writer, clock: Clock, minutes: u64) {
        for minute in 0..minutes {
            let at = clock.now().after(Duration::from_secs(60 * minute));
            let whose = Whose::Node(NodeId::new("pbx-01").unwrap());
            writer.write(StoreOp::Count { at, whose, tally: Tally::active(1) });
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_named_and_nothing_is_lost_by_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut task, writer) = task(dir.path()).await;
        // The database may not grow: to SQLite that is a full disk.
        let conn = &mut task.file.as_mut().unwrap().conn;
        sqlx::query("PRAGMA max_page_count = 1").execute(conn).await.unwrap();
        fill(&writer, task.clock, 5_000);
        let error = task.work().await.unwrap_err();
        assert!(error.to_string().contains("the disk is full"), "{error}");
        assert_eq!(writer.shared.backlog().rows(), 5_000);
        assert!(task.file.is_none(), "everything is looked at anew after a failure");

        // There is room again (the limit went with the connection).
        task.work().await.unwrap();
        assert_eq!(writer.shared.backlog().rows(), 0);
        assert_eq!(writer.shared.backlog().dropped(), 0);
        let conn = &mut task.file.as_mut().unwrap().conn;
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM minute").fetch_one(conn).await.unwrap();
        assert_eq!(stored, 5_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_is_reported_while_it_hangs() {
        let writer = Writer::new(Backlog::default(), StorageView { healthy: true, ..StorageView::default() });
        let mut health = writer.health();
        let hanging = watched(&writer.shared, sleep(HANGING * 2 + Duration::from_millis(1)));
        let seen = async {
            let seen = health.wait_for(|seen| !seen.healthy).await.unwrap().problem.clone();
            assert_eq!(seen, "the disk has not answered for 2 s");
        };
        tokio::join!(hanging, seen);
        assert_eq!(writer.health().borrow().problem, "the disk has not answered for 4 s");
    }

    #[tokio::test]
    async fn the_log_is_folded_into_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let (mut task, writer) = task(dir.path()).await;
        fill(&writer, task.clock, 500);
        task.work().await.unwrap();
        let size = || std::fs::metadata(&task.path).unwrap().len();
        let before = size();
        assert_eq!(fold_once(&task.path).await.unwrap(), 0);
        assert!(size() > before);
    }
}
