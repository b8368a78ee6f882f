//! The local control socket: how the command line talks to a running instance.
//!
//! A Unix socket, because who may use it is then decided by the file system: its directory is made for its user alone
//! and the socket has mode 0600. One JSON object per line in each direction; a connection may carry several requests,
//! answered in order. [`serve`] answers from the published [`View`] and asks the outbox; the engine is only asked to
//! change something, so a client that looks, however slow or broken, costs it nothing.

mod client;
mod server;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::dialplan::report::Report;
use crate::engine::reload::Reloaded;
use crate::engine::view::View;
use crate::ids::{NodeId, QualityKey};
use crate::notify::letter::Letter;
use crate::quality::pin::Pin;
use crate::routing::question::{Answer, Question};
use crate::score::Admin;
use crate::xds::view::XdsView;

pub use client::{request, request_blocking};
pub use server::{Engine, serve};

/// Longest path of the socket: 107 bytes fit into an address, and it is made under a name that is 4 bytes longer.
pub const MAX_PATH: usize = 103;

/// Longest request line. A request is a few words; this leaves room for reasons that an operator writes.
pub const MAX_REQUEST: usize = 16 * 1024;

/// Longest answer that a client reads: a picture of thousands of connections takes a few MiB.
pub const MAX_RESPONSE: u64 = 64 * 1024 * 1024;

/// Clients served at a time; further ones are told so. They are command lines on the same machine.
pub const MAX_CLIENTS: usize = 16;

/// How long a client may take to send a line or to read its answer, and how long a client waits for the server.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Whether anybody is there.
    Ping,
    /// The picture.
    Status,
    /// A node is to take calls, to run dry, or to be out of service.
    SetNode {
        /// Which.
        node: NodeId,
        /// What.
        admin: Admin,
        /// Who asks.
        who: String,
        /// Why; may be empty.
        why: String,
    },
    /// A connection is to be routed as said.
    Pin {
        /// Which.
        key: QualityKey,
        /// How; `None` ends a pin.
        pin: Option<Pin>,
        /// For how long, in seconds by the clock of the running program; without it until somebody says otherwise.
        for_sec: Option<u64>,
        /// Who asks.
        who: String,
        /// Why; may be empty.
        why: String,
    },
    /// A connection is to begin anew.
    Reset {
        /// Which.
        key: QualityKey,
        /// Who asks.
        who: String,
        /// Why; may be empty.
        why: String,
    },
    /// What a call would try, and why.
    TestCall(Question),
    /// The configuration is to be read again and put in force.
    ReloadRouteMaps {
        /// Only show what would change.
        dry_run: bool,
        /// Who asks.
        who: String,
        /// Why; may be empty.
        why: String,
    },
    /// What a call would try, and whether the PBXs know.
    TestDialplan(Question),
    /// The clients of the xDS server.
    XdsClients,
    /// The letters of the outbox.
    Outbox {
        /// Also those that are settled.
        all: bool,
    },
    /// Try letters now: that one, or all that are dead.
    OutboxRetry {
        /// Its number.
        letter: Option<u64>,
    },
    /// Do not try letters any more: that one, or all that are dead.
    OutboxDrop {
        /// Its number.
        letter: Option<u64>,
    },
}

/// The answer, with who gave it: the command line and the running program may be of different versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Version of the running program.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// The answer itself.
    #[serde(flatten)]
    pub response: Response,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", content = "content", rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Ping`].
    Pong,
    /// To [`Request::Status`].
    Status(Arc<View>),
    /// It was done.
    Done,
    /// To [`Request::TestCall`].
    TestCall(Box<Answer>),
    /// To [`Request::ReloadRouteMaps`], where that was done.
    Reloaded(Reloaded),
    /// To [`Request::ReloadRouteMaps`]: the configuration has errors, and nothing has changed.
    Unusable {
        /// All of them, as `pointsman check` prints them.
        text: String,
        /// Each on a line.
        problems: Vec<String>,
    },
    /// To [`Request::TestDialplan`].
    TestDialplan(Box<Report>),
    /// To [`Request::XdsClients`].
    Xds(Box<XdsView>),
    /// To [`Request::Outbox`]: oldest first, without their bodies.
    Outbox(Vec<Letter>),
    /// To [`Request::OutboxRetry`] and [`Request::OutboxDrop`]: how many deliveries it concerns.
    Deliveries(usize),
    /// The request was not understood or could not be done: why, in a sentence.
    Refused(String),
}

/// Why the control socket cannot be served or asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Serving: somebody answers on that socket.
    #[error("another pointsman runs with this configuration: it answers on {}; stop it first, or give this one its own control_socket", .0.display())]
    AlreadyRunning(PathBuf),
    /// Serving: something is in the way that is not a socket.
    #[error("{} exists and is not a socket; nothing was removed: move it away or choose another control_socket", .0.display())]
    NotASocket(PathBuf),
    /// The path does not fit into a socket address.
    #[error("the path {} is too long for a Unix socket (at most {MAX_PATH} bytes): choose a shorter control_socket", .0.display())]
    PathTooLong(PathBuf),
    /// Serving: the directory or the socket could not be made.
    #[error("cannot make the control socket {}: {source}", path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Asking: nobody is there.
    #[error("no pointsman answers on {}: it does not run, or it runs with another control_socket", .0.display())]
    NotRunning(PathBuf),
    /// Asking: the socket belongs to another user.
    #[error("no permission to use {}: run this as the user that pointsman runs as, or as root", .0.display())]
    NotAllowed(PathBuf),
    /// Asking: no answer in time.
    #[error("pointsman did not answer on {} within {} s", path.display(), PATIENCE.as_secs())]
    TimedOut {
        /// The socket.
        path: PathBuf,
    },
    /// Asking: the connection broke.
    #[error("the connection to {} broke: {source}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Asking: the answer is not one of ours.
    #[error("the answer from {} is not understood ({problem}); this is pointsman {}, is the running one of another version?", path.display(), env!("CARGO_PKG_VERSION"))]
    NotUnderstood {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Asking: the instance said no.
    #[error("pointsman refused the request: {0}")]
    Refused(String),
}
