//! What people are shown of the xDS server and its clients.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::kind::Kind;
use crate::time::Timestamp;

/// The xDS server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct XdsView {
    /// Where it listens; `None` while it does not.
    pub address: Option<String>,
    /// Why it does not; empty while it does.
    pub problem: String,
    /// The streams that are open, in the order opened.
    pub clients: Vec<Arc<ClientView>>,
    /// The latest streams that ended, newest first, at most 50.
    pub gone: Vec<GoneView>,
    /// Since the program started.
    pub totals: XdsTotals,
}

/// Counters since the program started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct XdsTotals {
    /// Streams opened.
    pub streams: u64,
    /// Streams that were ended here, for a reason.
    pub dropped: u64,
    /// Answers sent.
    pub sent: u64,
    /// Answers that a client accepted.
    pub accepted: u64,
    /// Answers that a client rejected.
    pub rejected: u64,
    /// Streams and connections that were refused: no token, no certificate, no place.
    pub refused: u64,
}

/// A stream of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = XdsClient)]
pub struct ClientView {
    /// Its number since the program started.
    pub stream: u64,
    /// What it calls itself (`node.id`); empty until it has.
    pub node: String,
    /// The cluster that it says it belongs to.
    pub cluster: String,
    /// What it says it is, with its version.
    pub software: String,
    /// Where it comes from.
    pub peer: String,
    /// The name of its token, or of its certificate; `None` where it showed neither.
    pub who: Option<String>,
    /// Which protocol it speaks.
    pub protocol: Protocol,
    /// When it opened the stream.
    pub since: Timestamp,
    /// What it asked for.
    pub subscriptions: Vec<SubscriptionView>,
    /// Types that it asked for and that are not served; at most 8.
    pub unserved: Vec<String>,
}

impl ClientView {
    /// Whether it has rejected the latest answer of some kind.
    #[must_use]
    pub fn rejects(&self) -> bool {
        self.subscriptions.iter().any(|subscription| subscription.rejection.is_some())
    }
}

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = XdsProtocol)]
pub enum Protocol {
    /// State of the world: an answer holds everything that was asked for.
    StateOfTheWorld,
    /// An answer holds what has changed.
    Delta,
}

/// A client's subscription to one kind of resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = XdsSubscription)]
pub struct SubscriptionView {
    /// To what.
    pub kind: Kind,
    /// Whether to all of them.
    pub wildcard: bool,
    /// The names asked for, the first 32 of them.
    pub names: Vec<String>,
    /// Answers sent.
    pub sent: u64,
    /// Version of the latest answer.
    pub sent_version: String,
    /// When it was sent, while it is neither accepted nor rejected.
    pub waiting_since: Option<Timestamp>,
    /// Answers accepted.
    pub accepted: u64,
    /// The version that was accepted last.
    pub accepted_version: String,
    /// How long that took, in microseconds.
    pub accepted_after_us: Option<u64>,
    /// Answers rejected.
    pub rejected: u64,
    /// The latest rejection, until what was rejected is replaced by something that is accepted.
    pub rejection: Option<Rejection>,
}

/// A client does not take an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = XdsRejection)]
pub struct Rejection {
    /// Its version; that one is not sent to this client again.
    pub version: String,
    /// Why, in the client's words, shortened.
    pub error: String,
    /// When.
    pub at: Timestamp,
}

/// A stream that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = XdsGone)]
pub struct GoneView {
    /// What the client called itself.
    pub node: String,
    /// Where it came from.
    pub peer: String,
    /// When it ended.
    pub at: Timestamp,
    /// Whether it was ended here.
    pub dropped: bool,
    /// Why, in a sentence.
    pub reason: String,
}
