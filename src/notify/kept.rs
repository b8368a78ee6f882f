//! What the outbox keeps over a restart.

use serde::{Deserialize, Serialize};

use crate::notify::letter::Letter;
use crate::notify::notice::{Notice, Subject};
use crate::time::Timestamp;

/// One thing that is kept. Boxed, because they differ in size a hundredfold.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    /// A change that stands in no letter yet.
    Notice(Box<Notice>),
    /// A letter, with how far its deliveries are.
    Letter(Box<Letter>),
    /// What the next mail about a subject answers.
    Thread(Box<Thread>),
}

/// The mail that the next one about its subject answers: there is one for as long as a connection is bad, or a
/// condition of the operator lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// What it is about.
    pub about: Subject,
    /// The Message-ID of the mail that told of it.
    pub message_id: String,
    /// When it began.
    pub since: Timestamp,
}

/// The kind of a thing that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeptKind {
    /// [`Kept::Notice`]
    Notice,
    /// [`Kept::Letter`]
    Letter,
    /// [`Kept::Thread`]
    Thread,
}

impl KeptKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Notice, Self::Letter, Self::Thread];

    /// The word for it in the database.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Letter => "letter",
            Self::Thread => "thread",
        }
    }
}

/// The name of a thing that is kept: what is kept under it replaces what was kept under it before.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeptKey {
    /// What it is.
    pub kind: KeptKind,
    /// Its name among those.
    pub name: String,
}

impl KeptKey {
    /// The name of a notice.
    #[must_use]
    pub fn notice(notice: &Notice) -> Self {
        let name = format!("{}/{}/{}", notice.key, notice.change.epoch.0, notice.change.at.as_micros());
        Self { kind: KeptKind::Notice, name }
    }

    /// The name of a letter: its Message-ID, because numbers begin anew where a database is lost.
    #[must_use]
    pub fn letter(letter: &Letter) -> Self {
        Self { kind: KeptKind::Letter, name: letter.message_id.clone() }
    }

    /// The name of a thread.
    #[must_use]
    pub fn thread(about: &Subject) -> Self {
        let kind = match about {
            Subject::Connection(_) => "connection",
            Subject::Condition(_) => "condition",
        };
        Self { kind: KeptKind::Thread, name: format!("{kind}/{about}") }
    }
}

impl Kept {
    /// Its name.
    #[must_use]
    pub fn key(&self) -> KeptKey {
        match self {
            Self::Notice(notice) => KeptKey::notice(notice),
            Self::Letter(letter) => KeptKey::letter(letter),
            Self::Thread(thread) => KeptKey::thread(&thread.about),
        }
    }

    /// Its content as JSON.
    ///
    /// # Errors
    /// Where a figure cannot be written as JSON, which no figure of ours is.
    pub fn body(&self) -> serde_json::Result<String> {
        match self {
            Self::Notice(notice) => serde_json::to_string(notice),
            Self::Letter(letter) => serde_json::to_string(letter),
            Self::Thread(thread) => serde_json::to_string(thread),
        }
    }

    /// What `body` says.
    ///
    /// # Errors
    /// Where somebody else wrote it.
    pub fn read(kind: KeptKind, body: &str) -> serde_json::Result<Self> {
        Ok(match kind {
            KeptKind::Notice => Self::Notice(serde_json::from_str(body)?),
            KeptKind::Letter => Self::Letter(serde_json::from_str(body)?),
            KeptKind::Thread => Self::Thread(serde_json::from_str(body)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ConnectionId, QualityKey};
    use crate::notify::notice::Condition;

    #[test]
    fn a_connection_that_is_called_like_a_condition_has_a_thread_of_its_own() {
        let key = QualityKey::connection(ConnectionId::new("storage").unwrap());
        let connection = KeptKey::thread(&Subject::Connection(key));
        assert_ne!(connection, KeptKey::thread(&Subject::Condition(Condition::Storage)));
    }
}
