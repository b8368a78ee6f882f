//! What operators and agents ask of the engine. Each request is answered once it is done.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::config::model::Config;
use crate::ids::{NodeId, QualityKey};
use crate::quality::pin::Pin;
use crate::score::{Admin, Load};
use crate::time::Timestamp;

/// Requests that wait for the engine, which takes them within a few milliseconds.
pub const QUEUE: usize = 256;

/// Longest reason that goes into the audit, in characters.
pub const MAX_WHY: usize = 500;

/// Who asks, and why: for the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Who.
    pub who: Arc<str>,
    /// Why; may be empty.
    pub why: Arc<str>,
}

impl By {
    /// Checks the reason, whoever sent it: it is shown on one line of a terminal.
    ///
    /// # Errors
    /// [`Refused::Illegal`] where the reason is longer than [`MAX_WHY`] or has control characters.
    pub fn new(who: &str, why: &str) -> Result<Self, Refused> {
        if why.chars().count() > MAX_WHY || why.chars().any(char::is_control) {
            return Err(Refused::Illegal(format!("a reason has at most {MAX_WHY} characters on one line")));
        }
        Ok(Self { who: who.into(), why: why.trim().into() })
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A node is to take calls, to run dry, or to be out of service. Survives a restart.
    SetAdmin {
        /// Which.
        node: NodeId,
        /// What.
        admin: Admin,
        /// Who and why.
        by: By,
    },
    /// The load of a node, as an agent measured it. What is absent stays as it is.
    PushLoad {
        /// Which.
        node: NodeId,
        /// The figures.
        load: Load,
    },
    /// A connection is to be routed as said, whatever its figures are. Survives a restart.
    Pin {
        /// Which.
        key: QualityKey,
        /// How; `None` ends a pin.
        pin: Option<Pin>,
        /// Until when; `None`: until somebody says otherwise.
        until: Option<Timestamp>,
        /// Who and why.
        by: By,
    },
    /// Another configuration is to be in force, whose nodes are those of the one before.
    Configure(NewConfig),
    /// A connection is to begin anew: good, with an empty window, without a pin.
    Reset {
        /// Which.
        key: QualityKey,
        /// Who and why.
        by: By,
    },
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct NewConfig(pub Arc<Config>);

impl PartialEq for NewConfig {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such node.
    #[error("there is no node {0}")]
    NoSuchNode(NodeId),
    /// There is no such connection.
    #[error("there is no connection {0}")]
    NoSuchConnection(QualityKey),
    /// A value that cannot be.
    #[error("{0}")]
    Illegal(String),
    /// The engine has ended, or is too busy.
    #[error("pointsman is stopping or too busy; nothing was changed")]
    NotNow,
}

/// A request with the place for its answer.
pub type Asked = (Request, oneshot::Sender<Result<(), Refused>>);

/// The way to the engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk {
    requests: mpsc::Sender<Asked>,
}

impl Desk {
    /// A desk, and the queue that the engine serves.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Asked>) {
        let (requests, asked) = mpsc::channel(QUEUE);
        (Self { requests }, asked)
    }

    /// Asks, and waits until it is done.
    ///
    /// # Errors
    /// See [`Refused`]. A full queue refuses at once.
    pub async fn ask(&self, request: Request) -> Result<(), Refused> {
        let (answer, answered) = oneshot::channel();
        self.requests.try_send((request, answer)).map_err(|_| Refused::NotNow)?;
        answered.await.unwrap_or(Err(Refused::NotNow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_and_not_a_novel() {
        let by = By::new("noc", "  kernel update ").unwrap();
        assert_eq!((&*by.who, &*by.why), ("noc", "kernel update"));
        assert!(By::new("noc", "").is_ok());
        for bad in ["a\nb".to_owned(), "\u{1b}[2J".to_owned(), "ä".repeat(MAX_WHY + 1)] {
            assert!(matches!(By::new("noc", &bad), Err(Refused::Illegal(_))), "{bad:?}");
        }
        assert!(By::new("noc", &"ä".repeat(MAX_WHY)).is_ok());
    }
}
