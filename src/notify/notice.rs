//! What an owner is to hear of, and what the operator is to hear of: facts only, no words.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::outcome::Outcome;
use crate::ids::{CustomerId, MapId, NodeId, QualityKey};
use crate::quality::machine::{Change, State};
use crate::quality::settings::Settings;
use crate::quality::window::Epoch;
use crate::time::Timestamp;

/// How many of the last failed calls are kept for each connection and told to its owner.
pub const FAILED_CALLS: usize = 10;

/// A real change of a connection between good and bad, for its owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Whose state changed.
    pub key: QualityKey,
    /// Its owner.
    pub customer: CustomerId,
    /// What changed, when, why and by which figures.
    pub change: Change,
    /// What it was judged by, and what a bad state does.
    pub settings: Settings,
    /// When it is tried again; only of a connection that became bad.
    pub retry_at: Option<Timestamp>,
    /// Since when it was bad; only of a connection that became good.
    pub bad_since: Option<Timestamp>,
    /// The route maps that it is in.
    pub maps: Vec<MapId>,
    /// Its last failed calls, newest first, at most [`FAILED_CALLS`].
    pub failed: Vec<FailedCall>,
}

impl Notice {
    /// Its name: no two changes of a connection begin the same epoch.
    #[must_use]
    pub fn id(&self) -> NoticeId {
        NoticeId { key: self.key.clone(), epoch: self.change.epoch, at: self.change.at }
    }

    /// Whether the connection became bad; else it became good.
    #[must_use]
    pub fn is_alarm(&self) -> bool {
        self.change.to == State::Bad
    }
}

/// The name of a notice, the same however often it is made. The time is in it for the day when a lost database makes
/// the epochs begin anew.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NoticeId {
    /// Whose state changed.
    pub key: QualityKey,
    /// The epoch that the change began.
    pub epoch: Epoch,
    /// When.
    pub at: Timestamp,
}

/// An attempt that was sent and not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FailedCall {
    /// When it ended.
    pub at: Timestamp,
    /// On which node.
    pub node: NodeId,
    /// The number dialled, as the PBX gave it: text from callers, may hold anything.
    pub number: Option<Arc<str>>,
    /// How it ended.
    pub outcome: Outcome,
    /// The Q.850 cause.
    pub cause: Option<u16>,
    /// The SIP status, where the vendor sent it.
    pub sip_status: Option<u16>,
}

/// Something that the operator must know of, for as long as it lasts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", tag = "condition", content = "of")]
pub enum Condition {
    /// There is no link to a node.
    NodeDown(NodeId),
    /// Nothing is stored.
    Storage,
    /// Mails could not be delivered and are not tried again.
    DeadLetters,
    /// Panic: every connection of a route map is blocked.
    AllBlocked(MapId),
}

/// What mails are about; those about one thing are delivered in order, and make one thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A connection, or a connection within a map.
    Connection(QualityKey),
    /// The operator's affair.
    Condition(Condition),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeDown(node) => write!(f, "node {node} down"),
            Self::Storage => f.write_str("storage"),
            Self::DeadLetters => f.write_str("dead letters"),
            Self::AllBlocked(map) => write!(f, "map {map} blocked"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(key) => key.fmt(f),
            Self::Condition(condition) => condition.fmt(f),
        }
    }
}
