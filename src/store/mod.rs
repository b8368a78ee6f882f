//! SQLite: what survives a restart, and the history.
//!
//! The engine hands over [`StoreOp`]s and never waits: they are folded into a bounded backlog in memory. One task
//! writes it, in one transaction every few hundredths of a second, so that a row is in the file at most 50 ms after it
//! was handed over and a file never shows half of what belongs together. A disk that is full, locked, broken or gone
//! stops nothing: the backlog waits (what stands for a state is kept once, the rest is dropped oldest first and
//! counted), [`StorageView`](crate::engine::view::StorageView) says what is wrong, and the task tries again until it
//! works.
//!
//! The database is in WAL mode with `synchronous = NORMAL`: a commit is a write to the log and survives the death of
//! the process; the log is synchronised to the disk every [`CHECKPOINT_EVERY`], which is what a loss of power can cost.
//! A file is never removed or replaced by pointsman.

mod backlog;
mod file;
pub mod history;
mod op;
mod rows;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::{MapId, NodeId, QualityKey};
use crate::notify::kept::Kept;
use crate::notify::notice::FailedCall;
use crate::quality::machine::Saved;
use crate::quality::pin::Pinned;
use crate::routing::dynamic::Learnt;

pub use op::{AdminRow, ChangeRow, LegRow, OUTCOMES, POINTSMAN, StoreOp, Tally, Whose};
pub use writer::{CHECKPOINT_EVERY, Store, Writer};

/// How many of the latest changes [`Restored`] holds; as many as the picture shows.
pub const CHANGES_RESTORED: u32 = 100;

/// What a file held when it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// The generation of the variables.
    pub generation: u64,
    /// How each connection stood, also those that are not configured any more.
    pub machines: Vec<(QualityKey, Saved)>,
    /// The legs that were up. Those that are not up any more must be handed over as [`StoreOp::LegGone`].
    pub legs: Vec<LegRow>,
    /// The latest changes, newest first, at most [`CHANGES_RESTORED`].
    pub changes: Vec<ChangeRow>,
    /// The last failed calls of each connection, newest first.
    pub failed: Vec<(QualityKey, FailedCall)>,
    /// What operators said of connections, also of those that are not configured any more.
    pub pins: Vec<(QualityKey, Pinned)>,
    /// What operators said of nodes.
    pub admins: Vec<(NodeId, AdminRow)>,
    /// What the rules of route maps learnt.
    pub learnt: Vec<(MapId, Learnt)>,
    /// The outbox.
    pub mail: Vec<Kept>,
    /// Rows that could not be read (somebody else wrote them) and were left alone.
    pub unreadable: usize,
}

/// Why a file cannot be used. Routing goes on without it: see [`Writer::retrying`].
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Its directory or the lock beside it could not be made.
    #[error("cannot make {}: {}", path.display(), words_of_io(source))]
    NotMade {
        /// What could not be made.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process holds it.
    #[error("another pointsman uses the database {}; stop it first, or give this one its own storage.path", .0.display())]
    InUse(PathBuf),
    /// It is a database of another program.
    #[error("{} is a database of another program; nothing was changed: choose another storage.path", .0.display())]
    Foreign(PathBuf),
    /// A newer or an otherwise different pointsman wrote it.
    #[error("the database {} was written by a newer pointsman (its step {found}, this one knows {known}); nothing was changed: run that version, or choose another storage.path", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// The newest migration that was applied to it.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// Its content is damaged, or it is no database at all.
    #[error("the database {} is damaged or is none ({detail}); nothing was changed: move it away (pointsman then starts a new one) or put a backup in its place", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        detail: String,
    },
    /// Reading or writing failed.
    #[error("cannot use the database {}: {}", path.display(), words(source))]
    Failed {
        /// The file.
        path: PathBuf,
        /// Why.
        source: sqlx::Error,
    },
    /// It is not where it was, or another file is in its place.
    #[error("the database {} was removed or replaced while in use", .0.display())]
    Gone(PathBuf),
}

/// SQLite's primary result codes that an operator can do something about (<https://www.sqlite.org/rescode.html>).
mod code {
    pub(super) const PERM: i32 = 3;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const READONLY: i32 = 8;
    pub(super) const INTERRUPT: i32 = 9;
    pub(super) const IOERR: i32 = 10;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANTOPEN: i32 = 14;
    pub(super) const NOTADB: i32 = 26;
}

/// The primary result code of a database error.
fn code_of(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|extended| extended & 0xff)
}

impl StoreError {
    /// The error that `source` stands for.
    fn of(path: &Path, source: sqlx::Error) -> Self {
        match code_of(&source) {
            Some(code::CORRUPT | code::NOTADB) => Self::Damaged { path: path.into(), detail: source.to_string() },
            _ => Self::Failed { path: path.into(), source },
        }
    }
}

/// What a database error means, in words.
fn words(error: &sqlx::Error) -> String {
    let meaning = match code_of(error) {
        Some(code::BUSY | code::LOCKED) => "another program holds it locked",
        Some(code::FULL) => "the disk is full",
        Some(code::READONLY) => "it or its directory may not be written to",
        Some(code::PERM | code::CANTOPEN) => {
            "it cannot be opened; check that its directory exists and may be written to"
        }
        Some(code::IOERR) => "the disk fails to read or write",
        _ => return error.to_string(),
    };
    format!("{meaning} ({error})")
}

/// What an error of the system means, in words.
fn words_of_io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("no permission ({error}); run as its owner or choose another path"),
        _ => error.to_string(),
    }
}
