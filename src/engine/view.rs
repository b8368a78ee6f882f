//! What everybody else sees of the engine: an immutable picture, published after every change.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::edge::Snapshot;
use crate::ids::{CustomerId, NodeId, QualityKey};
use crate::notify::notice::FailedCall;
use crate::pbx::PbxKind;
use crate::quality::machine::{Change, State};
use crate::quality::pin::Pinned;
use crate::quality::settings::{BadQualityAction, Settings};
use crate::quality::window::{Figures as QualityFigures, Sample};
pub use crate::routing::picture::{CriterionView, MapView, RouteView};
use crate::score::{Admin, Assessment, Figures};
use crate::store::ChangeRow;
use crate::time::Timestamp;

/// The picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct View {
    /// Version of the program.
    pub version: String,
    /// When this picture was made.
    pub at: Timestamp,
    /// When the program started.
    pub started_at: Timestamp,
    /// Grows with every change of a variable.
    pub generation: u64,
    /// The nodes, in the order configured.
    pub nodes: Vec<NodeView>,
    /// The connections (or pairs of connection and map), in the order configured.
    pub connections: Vec<ConnectionView>,
    /// Which node is best.
    pub routing: RoutingView,
    /// The route maps with their hunt orders now.
    pub maps: Vec<Arc<MapView>>,
    /// The latest changes, newest first, at most 100.
    pub changes: Vec<ChangeView>,
    /// How storing goes.
    pub storage: StorageView,
    /// How mail goes.
    pub mail: MailView,
    /// The HTTP server; `None` where there is to be none.
    pub http: Option<HttpView>,
    /// What edges are told.
    pub edge: Arc<Snapshot>,
    /// The xDS server; `None` where there is to be none.
    pub xds: Option<XdsSummary>,
    /// Trunks that carry calls and are not configured.
    pub unknown_trunks: Vec<UnknownTrunk>,
}

impl View {
    /// A picture with nothing on it.
    #[must_use]
    pub fn empty(at: Timestamp) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at,
            started_at: at,
            generation: 0,
            nodes: Vec::new(),
            connections: Vec::new(),
            routing: RoutingView::default(),
            maps: Vec::new(),
            changes: Vec::new(),
            storage: StorageView::default(),
            mail: MailView::default(),
            http: None,
            edge: Arc::default(),
            xds: None,
            unknown_trunks: Vec::new(),
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeView {
    /// Its name.
    pub id: NodeId,
    /// What it runs.
    pub kind: PbxKind,
    /// Its address.
    pub address: String,
    /// How the link is.
    pub link: LinkView,
    /// Outbound legs that are up.
    pub active_calls: usize,
    /// How its variables are.
    pub variables: VariablesView,
    /// Where an edge sends its calls.
    pub sip_address: String,
    /// What the operator wants of it.
    pub admin: Admin,
    /// What its score is made of.
    pub figures: Figures,
    /// What they come to.
    pub assessment: Assessment,
    /// Since when it gets no calls; `None` where it does.
    pub excluded_since: Option<Timestamp>,
    /// Its circuit breaker.
    pub breaker: BreakerView,
}

impl NodeView {
    /// A node of which nothing is known.
    #[must_use]
    pub fn new(id: NodeId, kind: PbxKind, address: &str) -> Self {
        Self {
            id,
            kind,
            address: address.to_owned(),
            link: LinkView::default(),
            active_calls: 0,
            variables: VariablesView::default(),
            sip_address: String::new(),
            admin: Admin::default(),
            figures: Figures::default(),
            assessment: Assessment::default(),
            excluded_since: None,
            breaker: BreakerView::default(),
        }
    }
}

/// A circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BreakerView {
    /// What it does.
    pub state: BreakerState,
    /// Failures in a row.
    pub failures: u32,
    /// When the next trial is due, while open.
    pub trial_at: Option<Timestamp>,
}

/// What a circuit breaker does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Everything passes.
    #[default]
    Closed,
    /// Nothing passes.
    Open,
    /// One trial at a time passes.
    HalfOpen,
}

/// Which node is best.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RoutingView {
    /// Grows with every change of a node's figures.
    pub generation: u64,
    /// The node with the best score among those that take calls.
    pub best_node: Option<NodeId>,
    /// Its score; -100 where there is none.
    pub best_score: f64,
    /// Whether every node is excluded.
    pub fallback_active: bool,
    /// The node that is answered then.
    pub fallback_node: Option<NodeId>,
    /// Whether a route map has all of its connections blocked.
    pub panic: bool,
}

/// What a link is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// Connecting or logging in.
    #[default]
    Connecting,
    /// Logged in and subscribed; the legs that are up are being read.
    Synchronising,
    /// Events flow and the picture is complete.
    Up,
    /// Waiting for the next try.
    Waiting,
    /// The PBX refused the password, the user or our address; it is tried again at the longest step only.
    Refused,
}

/// A link, with its counters since the program started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LinkView {
    /// What it is doing.
    pub state: LinkState,
    /// Since when.
    pub since: Timestamp,
    /// Why it is not up, in words; empty while it is.
    pub reason: String,
    /// When the next try is due, while waiting.
    pub next_try_at: Option<Timestamp>,
    /// Reply time of the last keepalive, in microseconds.
    pub rtt_us: Option<u64>,
    /// What the PBX says it is (version text).
    pub software: String,
    /// Bytes received.
    pub bytes: u64,
    /// Events received.
    pub events: u64,
    /// Times the link came up.
    pub connects: u64,
    /// Times the PBX was found restarted.
    pub restarts: u64,
    /// Events dropped because our own queue was full.
    pub dropped: u64,
    /// Messages that were damaged and dropped.
    pub damaged: u64,
    /// Losses found by comparison with the PBX's own figures or lists.
    pub losses: u64,
    /// Lists of the legs that are up, read.
    pub resyncs: u64,
    /// Legs whose end was not seen, answered before: counted as answered with unknown duration.
    pub ends_unseen_answered: u64,
    /// Legs whose end was not seen, not answered before: outcome `lost`.
    pub ends_unseen_lost: u64,
    /// Ends of calls that turned out not to be true (a damaged or forged message).
    pub false_ends: u64,
    /// Legs that were not followed because too many are up.
    pub legs_refused: u64,
}

/// The variables of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct VariablesView {
    /// Variables that the node should have.
    pub desired: usize,
    /// Variables written and not acknowledged yet.
    pub pending: usize,
    /// Writes acknowledged since the start.
    pub written: u64,
    /// Values that somebody else had changed and that were put back.
    pub repaired: u64,
    /// When the node's values were last found or made equal to what they should be; `None` while they are not.
    pub in_step_at: Option<Timestamp>,
    /// Time from the event to the acknowledged variable, last change, in microseconds.
    pub last_latency_us: Option<u64>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ConnectionView {
    /// The connection, with its map where it is judged per map.
    pub key: QualityKey,
    /// Its owner.
    pub customer: Option<CustomerId>,
    /// Whether it is judged.
    pub monitored: bool,
    /// Its state.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
    /// What a bad state does.
    pub action: BadQualityAction,
    /// The state in a sentence.
    pub words: String,
    /// The figures over the window.
    pub figures: QualityFigures,
    /// How it is judged.
    pub settings: Settings,
    /// Attempts finished in the running batch, where one runs.
    pub batch_done: Option<usize>,
    /// When it is tried again, while bad.
    pub retry_at: Option<Timestamp>,
    /// Legs to it that are up.
    pub active_calls: usize,
    /// Attempts since the start that belonged to none of its maps, and were not judged; of connections judged per map.
    pub unmapped: u64,
    /// The operator's word over the verdict.
    pub pinned: Option<Pinned>,
    /// Its calls one by one. Not in the picture that goes to the command line.
    #[serde(skip)]
    pub calls: Arc<Calls>,
}

/// The calls of a connection, one by one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The window, oldest end first.
    pub window: Vec<Sample>,
    /// The last failed ones, newest first.
    pub failed: Vec<FailedCall>,
}

/// A change of a connection's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChangeView {
    /// Whose.
    pub key: QualityKey,
    /// What.
    #[serde(flatten)]
    pub change: Change,
    /// The change in a sentence, with the figures that led to it, or with the reason that an operator gave.
    pub words: Arc<str>,
    /// Who changed it: `pointsman`, or an operator.
    pub who: Arc<str>,
}

impl From<ChangeRow> for ChangeView {
    fn from(ChangeRow { key, change, words, who }: ChangeRow) -> Self {
        Self { key, change, words, who }
    }
}

/// Storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StorageView {
    /// Whether the last write succeeded.
    pub healthy: bool,
    /// What is wrong; empty while healthy.
    pub problem: String,
    /// Rows waiting to be written.
    pub backlog: usize,
    /// Rows dropped because the backlog was full.
    pub dropped: u64,
}

/// Mail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MailView {
    /// Whether mail is configured at all.
    pub configured: bool,
    /// The mail server, or the program that takes mail.
    pub via: String,
    /// Changes that wait for others, to make one letter with them.
    pub undecided: usize,
    /// Deliveries that wait to be tried, or tried again.
    pub waiting: usize,
    /// When the oldest of those was composed.
    pub oldest_waiting_at: Option<Timestamp>,
    /// Deliveries that were refused for good or given up.
    pub dead: usize,
    /// Deliveries made since the start.
    pub sent: u64,
    /// Letters that were dropped because the outbox was full.
    pub lost: u64,
    /// Why the mail server cannot be used; empty while it can.
    pub problem: String,
    /// When it is tried again, while it cannot.
    pub next_try_at: Option<Timestamp>,
}

/// The HTTP server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HttpView {
    /// Where it listens; `None` while it does not.
    pub address: Option<String>,
    /// Why it does not; empty while it does.
    pub problem: String,
}

/// The xDS server, in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct XdsSummary {
    /// Where it listens; `None` while it does not.
    pub address: Option<String>,
    /// Why it does not; empty while it does.
    pub problem: String,
    /// Streams that are open.
    pub clients: usize,
    /// How many of them have rejected the latest answer of some kind.
    pub rejecting: usize,
}

/// A trunk that carries calls and is not configured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UnknownTrunk {
    /// On which node.
    pub node: NodeId,
    /// What the node calls it.
    pub trunk: String,
    /// Attempts seen.
    pub attempts: u64,
}
