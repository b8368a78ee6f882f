//! The checked configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use lettre::Address;
use lettre::message::Mailbox;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::log;
use crate::call::outcome::CauseTable;
use crate::ids::{ConnectionId, CustomerId, GroupId, MapId, NodeId, QualityKey};
use crate::pbx::PbxKind;
use crate::quality::settings::Settings;
use crate::routing::rule::Rule;
use crate::routing::{RouteTable, WhenAllBlocked};

/// Everything that the operator configured.
#[derive(Clone, Debug)]
pub struct Config {
    /// The PBXs, in the order written.
    pub nodes: Vec<Node>,
    /// The owners of connections.
    pub customers: Vec<Customer>,
    /// The vendor connections, in the order written.
    pub connections: Vec<Connection>,
    /// The route maps, in the order written.
    pub route_maps: Vec<RouteMap>,
    /// How mail is sent; `None`: nobody is mailed.
    pub email: Option<Email>,
    /// Who runs this.
    pub operator: Operator,
    /// How nodes are scored.
    pub scoring: Scoring,
    /// How one of them is chosen.
    pub balancing: Balancing,
    /// When a node that fails is left alone.
    pub breaker: BreakerSettings,
    /// The HTTP server; `None`: there is none.
    pub http: Option<Http>,
    /// What edges are told, and how.
    pub edge: Edge,
    /// How variables are written.
    pub variables: Variables,
    /// Where state is kept.
    pub storage: Storage,
    /// Path of the local control socket.
    pub control_socket: PathBuf,
    /// What is logged, unless the command line says otherwise.
    pub log: Log,
}

/// What is logged, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// What.
    pub filter: log::Filter,
    /// How.
    pub format: log::Format,
}

/// A PBX.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// What it runs.
    pub kind: PbxKind,
    /// `host:port` of the event socket or the manager interface.
    pub address: String,
    /// User of the manager interface; for FreeSWITCH a directory user (`userauth`), usually none.
    pub username: Option<String>,
    /// Password of the event socket or the manager user.
    pub password: SecretString,
    /// Most calls that this node should carry; for its score.
    pub max_calls: Option<u32>,
    /// Most calls a second that this node should be given; for the health profile.
    pub max_calls_per_sec: Option<f64>,
    /// Whether it runs on this machine, so that its load can be read here.
    pub local: bool,
    /// Processor cores, where the load average is to be divided by them; this machine's for a local node.
    pub cores: Option<u32>,
    /// Where an edge sends calls for this node: what `/api/route` answers. The host of `address` unless said otherwise.
    pub sip_address: String,
    /// TLS to the manager interface; `None` for plain TCP.
    pub tls: Option<Tls>,
    /// Whether each slot of a hunt order is a variable of its own.
    pub slots: bool,
    /// Whether Asterisk's variables are also kept in AstDB.
    pub astdb: bool,
    /// Whether the end of every session is subscribed, so that a loss of events shows at the next heartbeat instead of
    /// the next comparison of the channel list. Costs some 5 to 9 KB a call. FreeSWITCH only.
    pub strict_loss_detection: bool,
}

/// TLS to a node.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Name expected in the certificate, where it is not the host of the address.
    pub server_name: Option<String>,
}

/// An owner of connections.
#[derive(Clone, Debug)]
pub struct Customer {
    /// Their name in the configuration.
    pub id: CustomerId,
    /// What they are called in their mail.
    pub name: Option<String>,
    /// Where their mail goes.
    pub email: Vec<Address>,
    /// Language of their mail.
    pub language: Language,
    /// The time zone of the times in their mail, where it is not [`Email::time_zone`].
    pub time_zone: Option<TimeZone>,
}

/// A language of mails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Russian.
    Ru,
}

/// How mail is sent.
#[derive(Clone, Debug)]
pub struct Email {
    /// Who it comes from.
    pub from: Mailbox,
    /// Where answers go, where that is not `from`.
    pub reply_to: Option<Mailbox>,
    /// By which way.
    pub via: Via,
    /// Longest that one attempt at a delivery may take, everything included.
    pub timeout: Duration,
    /// How long a letter is tried before it is given up.
    pub give_up_after: Duration,
    /// More connections of one customer than this that change within `digest_window` make one letter.
    pub digest_after: usize,
    /// How long a change waits for others before its letter is composed.
    pub digest_window: Duration,
    /// Whether the digits of called numbers are masked.
    pub mask_numbers: bool,
    /// The time zone of the times in a letter.
    pub time_zone: TimeZone,
    /// Where the operator's own templates are.
    pub templates: Option<PathBuf>,
}

/// By which way mail leaves.
#[derive(Clone, Debug)]
pub enum Via {
    /// Over SMTP.
    Smtp(Smtp),
    /// Through a local program with sendmail's interface.
    Sendmail(PathBuf),
}

impl fmt::Display for Via {
    /// `host:port`, or the path of the program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Smtp(Smtp { host, port, .. }) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Smtp(Smtp { host, port, .. }) => write!(f, "{host}:{port}"),
            Self::Sendmail(path) => path.display().fmt(f),
        }
    }
}

/// A mail server.
#[derive(Clone, Debug)]
pub struct Smtp {
    /// Its name or address; one of IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub security: Security,
    /// User and password.
    pub login: Option<(String, SecretString)>,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Name by which we introduce ourselves, where that is not the machine's.
    pub hello_name: Option<String>,
}

/// How the connection to a mail server is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// TLS after STARTTLS; a server that does not offer it is not used.
    #[default]
    Starttls,
    /// TLS from the first byte.
    Tls,
    /// None.
    None,
}

/// Who runs this.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Where the mail goes that is theirs; empty: nowhere.
    pub email: Vec<Address>,
    /// Its language.
    pub language: Language,
    /// How long a node may be without a link before it is worth a mail, and how long it must have one again.
    pub node_down_after: Duration,
}

/// A vendor trunk.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its name.
    pub id: ConnectionId,
    /// Its owner.
    pub customer: Option<CustomerId>,
    /// What a node calls it, where that is not the id.
    pub names: BTreeMap<NodeId, String>,
    /// How it is judged.
    pub quality: Settings,
    /// How its attempts' outcomes are decided.
    pub causes: Arc<CauseTable>,
    /// Over what it is judged.
    pub judge_per: JudgePer,
}

/// Over what a connection is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgePer {
    /// All of its attempts.
    #[default]
    Connection,
    /// Those of each route map by themselves: it may be bad for one destination and good for the others.
    Map,
}

impl Connection {
    /// What `node` calls this connection.
    #[must_use]
    pub fn name_on(&self, node: &NodeId) -> &str {
        self.names.get(node).map_or(self.id.as_str(), String::as_str)
    }
}

/// An ordered list of connections that serves a set of number prefixes.
#[derive(Clone, Debug)]
pub struct RouteMap {
    /// Its name.
    pub id: MapId,
    /// Prefixes that it serves; the longest match wins, `""` is the default map.
    pub prefixes: Vec<String>,
    /// What a call tries, by priority.
    pub entries: Vec<RouteEntry>,
    /// The nodes whose dialplans use it; empty means all.
    pub nodes: Vec<NodeId>,
    /// The dynamic routing rule; `None`: its routes keep their static priorities.
    pub rule: Option<Rule>,
    /// What happens when every connection is blocked.
    pub when_all_blocked: WhenAllBlocked,
}

impl RouteMap {
    /// Whether that node's dialplans use it.
    #[must_use]
    pub fn concerns(&self, node: &NodeId) -> bool {
        self.nodes.is_empty() || self.nodes.contains(node)
    }
}

/// One entry of a route map.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteEntry {
    /// Where the call goes.
    pub target: RouteTarget,
    /// Smaller is tried first.
    pub priority: i64,
}

/// Where an entry sends a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To a connection.
    Connection(ConnectionId),
    /// To the connections of another map, in place.
    Map(MapId),
}

/// How nodes are scored.
#[derive(Clone, Debug, PartialEq)]
pub struct Scoring {
    /// Which weighting.
    pub profile: Profile,
    /// A node without a sign of life for longer than this is excluded.
    pub stale_threshold: Duration,
    /// Idle CPU, in percent, under which a node is excluded.
    pub idle_cpu_min: f64,
    /// Failure rate, in percent, over which a node is excluded.
    pub call_failure_rate_lethal: f64,
    /// Weights of the plain profile; they sum to 1.
    pub weights: Weights,
    /// Whether the load average is divided by the cores.
    pub load_per_core: bool,
    /// Over how many of a node's last attempts its failure rate goes.
    pub failure_window: usize,
    /// Fewer attempts than this are not judged.
    pub failure_min_calls: usize,
    /// A node with a lower score is skipped.
    pub min_score: f64,
    /// The node that is answered when every node is excluded.
    pub fallback_node: Option<NodeId>,
    /// Reply time, in milliseconds, that counts as none left (health profile).
    pub latency_limit_ms: f64,
}

/// Which weighting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Calls, load, idle CPU, failures: 0 to 100.
    #[default]
    Weighted,
    /// Headroom in calls a second and calls, latency, memory.
    Health,
}

/// Weights of the plain profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Calls against `max_calls`.
    pub call_score: f64,
    /// Load average.
    pub load_score: f64,
    /// Idle CPU.
    pub idle_score: f64,
    /// Failed calls.
    pub fail_score: f64,
}

/// How one of the nodes is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balancing {
    /// The mode, where a question names none.
    pub mode: Mode,
    /// How long an answer counts as a call, unless that shows up before.
    pub lease: Duration,
}

/// How one of the nodes is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = BalancingMode)]
pub enum Mode {
    /// The node with the best score.
    #[default]
    BestScore,
    /// At random in proportion to the scores.
    Weighted,
    /// One after the other.
    RoundRobin,
    /// The node with the fewest calls.
    LeastCalls,
    /// The node with the least reply time times calls.
    Ewma,
    /// The better of two at random.
    P2c,
    /// By a key: equal keys meet on one node.
    ConsistentHash,
}

/// When a node that fails is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row that open it.
    pub failures: u32,
    /// A reply that takes longer is a failure.
    pub timeout: Duration,
    /// How long it stays open the first time.
    pub open: Duration,
    /// Longest that it stays open; the time doubles with each failed trial.
    pub open_max: Duration,
}

/// The HTTP server.
#[derive(Clone, Debug)]
pub struct Http {
    /// Where it listens.
    pub listen: std::net::SocketAddr,
    /// Who may use it; empty: everybody who reaches it, which is allowed on loopback only.
    pub tokens: Vec<Token>,
}

/// Somebody who may use the HTTP server.
#[derive(Clone, Debug)]
pub struct Token {
    /// Who it is, for the audit.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// The secret.
    pub secret: SecretString,
}

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look.
    Read,
    /// Look, and change.
    Operate,
}

/// What edges are told, and how.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The groups of nodes, in the order written; without any in the configuration one of all nodes.
    pub groups: Vec<EdgeGroup>,
    /// The xDS server; `None`: there is none.
    pub xds: Option<Xds>,
}

/// Nodes that serve the same, each with where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeGroup {
    /// Its name.
    pub id: GroupId,
    /// The name of its cluster in xDS, and of what refers to it.
    pub cluster: String,
    /// Its nodes, in the order written.
    pub members: Vec<Member>,
    /// Where Envoy is to listen for it; `None`: Envoy's own configuration says.
    pub listener: Option<EdgeListener>,
    /// Whether somebody is told as healthy also when no node of the group takes calls: whoever `/api/route` would answer,
    /// and all of them where no node has a link.
    pub fail_open: bool,
}

/// A node of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Where calls are sent; an IP address where there is an xDS server.
    pub host: String,
    /// The port there.
    pub port: u16,
}

/// Where Envoy is to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeListener {
    /// Its address.
    pub listen: std::net::SocketAddr,
    /// What comes in there.
    pub protocol: EdgeProtocol,
}

/// What comes in at an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeProtocol {
    /// Anything over TCP, passed on as it is: also TLS that ends at the PBX.
    #[default]
    Tcp,
    /// HTTP, with WebSocket.
    Http,
}

/// The xDS server.
#[derive(Clone, Debug)]
pub struct Xds {
    /// Where it listens.
    pub listen: std::net::SocketAddr,
    /// Its TLS; `None` for plain TCP.
    pub tls: Option<XdsTls>,
    /// Who may subscribe; empty: everybody who reaches it, or who has a certificate where one is wanted.
    pub tokens: Vec<XdsToken>,
}

/// TLS of the xDS server. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsTls {
    /// Its certificate with the chain (PEM).
    pub cert_file: PathBuf,
    /// The key of that (PEM).
    pub key_file: PathBuf,
    /// Who signs the certificates that clients must show (PEM); `None`: none is asked for.
    pub client_ca_file: Option<PathBuf>,
}

/// Somebody who may subscribe.
#[derive(Clone, Debug)]
pub struct XdsToken {
    /// Who it is.
    pub name: String,
    /// The secret.
    pub secret: SecretString,
}

/// How variables are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    /// What every name starts with.
    pub prefix: String,
    /// How often the PBX's values are compared with ours.
    pub reconcile_every: Duration,
    /// How long a value in AstDB is valid without being written again.
    pub astdb_expiry: Duration,
}

/// Where state is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The SQLite file.
    pub path: PathBuf,
    /// How long history is kept.
    pub keep: Duration,
}

impl Config {
    /// The node of that name.
    #[must_use]
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == *id)
    }

    /// The customer of that name.
    #[must_use]
    pub fn customer(&self, id: &CustomerId) -> Option<&Customer> {
        self.customers.iter().find(|customer| customer.id == *id)
    }

    /// Who is to hear of a connection's changes; `None` where nobody is, or can be.
    #[must_use]
    pub fn reader_of(&self, connection: &Connection) -> Option<&Customer> {
        let wanted = connection.quality.notify_on_status_change && self.email.is_some();
        let customer = connection.customer.as_ref().filter(|_| wanted)?;
        self.customer(customer).filter(|customer| !customer.email.is_empty())
    }

    /// The route map of that name.
    #[must_use]
    pub fn route_map(&self, id: &MapId) -> Option<&RouteMap> {
        self.route_maps.iter().find(|map| map.id == *id)
    }

    /// What is judged, and how, in the order written: each connection, or each pair of one and a map that holds it. A
    /// connection that is to be judged per map and is in none is judged as a whole.
    #[must_use]
    pub fn judged(&self) -> Vec<(QualityKey, Settings)> {
        let table = RouteTable::new(self);
        let mut keys = Vec::new();
        for connection in &self.connections {
            let maps = table.maps().iter().filter(|map| map.holds(&connection.id)).map(|map| Some(map.map.clone()));
            let mut maps: Vec<Option<MapId>> = maps.collect();
            if connection.judge_per == JudgePer::Connection || maps.is_empty() {
                maps = vec![None];
            }
            let key = |map| QualityKey { connection: connection.id.clone(), map };
            keys.extend(maps.into_iter().map(|map| (key(map), connection.quality.clone())));
        }
        keys
    }

    /// The connection of that name.
    #[must_use]
    pub fn connection(&self, id: &ConnectionId) -> Option<&Connection> {
        self.connections.iter().find(|connection| connection.id == *id)
    }
}

impl Default for Scoring {
    fn default() -> Self {
        Self {
            profile: Profile::Weighted,
            stale_threshold: Duration::from_secs(20),
            idle_cpu_min: 5.0,
            call_failure_rate_lethal: 15.0,
            weights: Weights::default(),
            load_per_core: false,
            failure_window: 100,
            failure_min_calls: 20,
            min_score: 0.0,
            fallback_node: None,
            latency_limit_ms: 100.0,
        }
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self { call_score: 0.40, load_score: 0.30, idle_score: 0.20, fail_score: 0.10 }
    }
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            timeout: Duration::from_secs(3),
            open: Duration::from_secs(30),
            open_max: Duration::from_secs(300),
        }
    }
}
