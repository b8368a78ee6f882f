//! The tokio driver of a link: connects, performs what the sessions ask for, reconnects.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::config::model::Node;
use crate::engine::view::LinkView;
use crate::pbx::command::Commander;
use crate::pbx::event::PbxEvent;
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// Most commands that wait between the engine and a link; what comes on top is answered with
/// [`CommandError::Busy`](crate::pbx::command::CommandError::Busy). A full rewrite of the variables of a large
/// configuration fits in.
pub const COMMAND_QUEUE: usize = 8192;

/// One thing that a node told us, with the time at which it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct FromNode {
    /// Place of the node in the configuration.
    pub node: usize,
    /// When it arrived, by the program's [`Clock`].
    pub at: Timestamp,
    /// What.
    pub event: PbxEvent,
}

/// Where a link puts what it hears: a bounded queue that all nodes share.
///
/// A link never waits for room in it. While it is full events are dropped and counted; once there is room again the
/// link says so ([`PbxEvent::Lost`]) and reads the list of legs anew.
#[derive(Clone, Debug)]
pub struct LinkInbox {
    sender: mpsc::Sender<FromNode>,
    node: usize,
}

impl LinkInbox {
    /// The inbox as the node at `node` sees it.
    #[must_use]
    pub fn new(sender: mpsc::Sender<FromNode>, node: usize) -> Self {
        Self { sender, node }
    }
}

/// A running link to a node.
#[derive(Clone, Debug)]
pub struct Link {
    /// Sends commands to the node.
    pub commander: Commander,
    /// How the link is. `changed()` resolves when the state or the reason changes; the counters are always current in
    /// `borrow()`.
    pub view: watch::Receiver<LinkView>,
}

/// Starts the link to `node`. It keeps itself up until `tasks` is told to stop.
///
/// Keepalive, time-outs and waiting between tries run in real time, however fast `clock` runs; only the arrival
/// stamps come from it.
#[must_use]
pub fn spawn(_node: Arc<Node>, _clock: Clock, _inbox: LinkInbox, _tasks: &Tasks) -> Link {
    let (commander, _queue) = Commander::new(COMMAND_QUEUE);
    let (_, view) = watch::channel(LinkView::default());
    Link { commander, view }
}
