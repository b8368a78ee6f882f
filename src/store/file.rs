//! Opening a database file: its place, its lock, whose it is, its schema.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use super::StoreError;

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// What the first migration writes into the header of our files.
const APPLICATION_ID: i32 = 1_886_678_382;

/// How long a statement waits for a lock that another program holds before that is reported as a problem.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// How the writer's connection works. The log is folded into the database by a connection of its own, because a
/// commit that does it waits for the disk; once folded, it keeps at most 16 MiB.
const PRAGMAS: [&str; 4] = [
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA journal_size_limit = 16777216",
];

/// An open file, locked against other instances.
pub(super) struct OpenFile {
    pub(super) conn: SqliteConnection,
    path: PathBuf,
    identity: (u64, u64),
    /// Held for as long as the file is open; the system lets go of it however the process ends.
    _lock: File,
}

impl OpenFile {
    /// Opens or makes the file and brings its schema up to date.
    pub(super) async fn open(path: &Path) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).map_err(|source| StoreError::NotMade { path: path.into(), source })?;
        let lock = prepare(&path)?;
        let mut conn = connect(&path).await?;
        check_owner(&path, &mut conn).await?;
        configure(&mut conn).await.map_err(|source| StoreError::of(&path, source))?;
        migrate(&path).await?;
        let identity = identity(&path).ok_or_else(|| StoreError::Gone(path.clone()))?;
        Ok(Self { conn, path, identity, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Errors where the path does not lead to this file any more: what is written now, nobody will ever read.
    pub(super) fn check_in_place(&self) -> Result<(), StoreError> {
        if identity(&self.path) == Some(self.identity) { Ok(()) } else { Err(StoreError::Gone(self.path.clone())) }
    }

    /// Folds the log into the database and closes both.
    pub(super) async fn close(self) -> Result<(), sqlx::Error> {
        self.conn.close().await
    }
}

/// A further connection to a file that is open, for folding the log.
pub(super) async fn connect_beside(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(BUSY_TIMEOUT);
    options.synchronous(SqliteSynchronous::Normal).connect().await
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Makes the directory, takes the lock, and makes an empty file that only its owner can read where there is none.
fn prepare(path: &Path) -> Result<File, StoreError> {
    let not_made = |path: &Path, source| StoreError::NotMade { path: path.into(), source };
    if let Some(directory) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| not_made(directory, source))?;
    }
    let open = |path: &Path| {
        let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        opened.map_err(|source| not_made(path, source))
    };
    let lock_path = lock_path(path);
    let lock = open(&lock_path)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(StoreError::InUse(path.into())),
        Err(TryLockError::Error(source)) => return Err(not_made(&lock_path, source)),
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => drop(open(path)?),
        // SQLite says what is wrong with it.
        _ => {}
    }
    Ok(lock)
}

/// The lock beside a database. It stays when we stop: removing it would let two processes each hold "the" lock.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

async fn connect(path: &Path) -> Result<SqliteConnection, StoreError> {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(BUSY_TIMEOUT);
    options.connect().await.map_err(|source| StoreError::of(path, source))
}

/// Errors where the file is somebody else's, before anything of it is changed.
pub(super) async fn check_owner(path: &Path, conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let header =
        sqlx::query_as("SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id");
    let (application, objects): (i32, i64) =
        header.fetch_one(conn).await.map_err(|source| StoreError::of(path, source))?;
    if application == APPLICATION_ID || (application == 0 && objects == 0) {
        Ok(())
    } else {
        Err(StoreError::Foreign(path.into()))
    }
}

async fn configure(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    for pragma in PRAGMAS {
        sqlx::query(pragma).execute(&mut *conn).await?;
    }
    Ok(())
}

async fn migrate(path: &Path) -> Result<(), StoreError> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    // Over a pool, because a future that migrates over a plain connection may not move between threads.
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(BUSY_TIMEOUT);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options);
    let migrated = MIGRATIONS.run(&pool).await;
    pool.close().await;
    match migrated {
        Ok(()) => Ok(()),
        Err(
            MigrateError::VersionMissing(found)
            | MigrateError::VersionMismatch(found)
            | MigrateError::VersionTooNew(found, _),
        ) => Err(StoreError::TooNew { path: path.into(), found, known }),
        Err(MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) => {
            Err(StoreError::of(path, source))
        }
        Err(other) => Err(StoreError::of(path, sqlx::Error::Migrate(Box::new(other)))),
    }
}
