//! The HTTP API: which node the next call should go to, what pointsman sees, and what operators and agents say to it.
//!
//! It reads pictures that others publish and asks through their desks; it owns nothing of the engine. So a client, however
//! slow, hostile or many, costs routing nothing but the processor time of its requests, and a port that is taken costs
//! only the API: it is tried again while everything else goes on.
//!
//! ```text
//! server   listens, accepts, bounds connections and time
//!   app      one router; observe (counting, problem details) around guard (who may) around the time limit
//!     routes   what each path answers
//!     pages    what people look at, and how they log in
//! ```

mod app;
mod guard;
mod metrics;
mod openapi;
mod pages;
mod problem;
mod routes;
mod server;
mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, watch};

use crate::balance::Router;
use crate::clock::Clock;
use crate::config::model::Mode;
use crate::dialplan::readback::Probes;
use crate::edge::Snapshot;
use crate::engine::reload::Reloader;
use crate::engine::request::Desk;
use crate::engine::view::{ChangeView, View};
use crate::notify::run::OutboxDesk;
use crate::store::history::History;
use crate::xds::clients::Registry;

pub use openapi::document;
pub use server::{Handle, serve, serve_with};

/// Whom the API asks.
#[derive(Clone)]
pub struct Sources {
    /// The picture.
    pub view: watch::Receiver<Arc<View>>,
    /// Every change of a connection's state; each event stream subscribes.
    pub changes: broadcast::Sender<Arc<ChangeView>>,
    /// What edges are told.
    pub endpoints: watch::Receiver<Arc<Snapshot>>,
    /// The clients of the xDS server; `None`: there is no server.
    pub xds: Option<Registry>,
    /// Who chooses a node.
    pub router: Router,
    /// How a node is chosen where the question names no mode.
    pub mode: Mode,
    /// The way to the engine.
    pub desk: Desk,
    /// The way to the outbox.
    pub outbox: OutboxDesk,
    /// The time.
    pub clock: Clock,
    /// Whether the digits of called numbers are masked, as they are in mails.
    pub mask_numbers: bool,
    /// The way to the variables that the nodes hold.
    pub probes: Probes,
    /// The past.
    pub history: History,
    /// The way to another configuration.
    pub reloader: Reloader,
}

/// What bounds the use of the server. The defaults are for production; tests make them smaller.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; further ones wait in the system's queue. Each edge needs a few, a dashboard two.
    pub connections: usize,
    /// Event streams at a time. Each is a connection that stays, so they get a part of the connections only.
    pub streams: usize,
    /// How long a client may take to send the head of a request, and a connection may be idle between two.
    pub head: Duration,
    /// How long a request may take, its body included. Answers are made of what is in memory, or of a database that is
    /// not waited for half as long.
    pub request: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub write: Duration,
    /// How often a silent event stream says that it is alive, so that nothing on the way closes it.
    pub keep_alive: Duration,
    /// Shortest time between two paintings of the same part of the same page of the dashboard.
    pub pace: Duration,
    /// Pause before a port that is taken is tried again.
    pub bind_again: Duration,
    /// How long answers that are under way at the end may still take.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            streams: 256,
            head: Duration::from_secs(10),
            request: Duration::from_secs(10),
            write: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            pace: Duration::from_secs(1),
            bind_again: Duration::from_secs(5),
            grace: Duration::from_secs(2),
        }
    }
}

/// Tells proxies to hand event streams on as they come; nginx keeps answers back by itself.
const UNBUFFERED: [(&str, &str); 1] = [("x-accel-buffering", "no")];

/// Longest body of a request: a load, a pin, an order, each with a reason in words.
pub const MAX_BODY: usize = 64 * 1024;
