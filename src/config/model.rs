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
use crate::ids::{ConnectionId, CustomerId, MapId, NodeId};
use crate::pbx::PbxKind;
use crate::quality::settings::Settings;

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

    /// The connection of that name.
    #[must_use]
    pub fn connection(&self, id: &ConnectionId) -> Option<&Connection> {
        self.connections.iter().find(|connection| connection.id == *id)
    }
}
