//! What the engine wants done. The engine itself does nothing but think.

use std::sync::Arc;

use crate::dialplan::desired::Desired;
use crate::engine::view::ChangeView;
use crate::ids::LegId;
use crate::notify::notice::Notice;
use crate::store::{AdminRow, StoreOp};
use crate::time::Timestamp;

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Keep something.
    Store(StoreOp),
    /// A node's variables should be these from now on.
    Variables {
        /// Index of the node.
        node: usize,
        /// The variables.
        desired: Arc<Desired>,
        /// When the event arrived that made it so; what the latency is measured from.
        cause_at: Timestamp,
    },
    /// A PBX was restarted: the variables that it held are gone.
    Restarted {
        /// Index of the node.
        node: usize,
    },
    /// Ask a node for all about one leg.
    Describe {
        /// Index of the node.
        node: usize,
        /// The leg.
        leg: LegId,
    },
    /// A call was placed on a node; a lease of the node is settled by it.
    Placed {
        /// Index of the node.
        node: usize,
    },
    /// An operator said whether a node takes calls.
    NodeSet {
        /// Index of the node.
        node: usize,
        /// What, who and why.
        row: AdminRow,
    },
    /// Tell everybody who listens that a connection's state has changed.
    Publish(Arc<ChangeView>),
    /// An owner is to hear of a change. It is handed over to be stored, too.
    Notify(Box<Notice>),
    /// Say once that a dialplan names a route map that is not configured.
    UnknownMap {
        /// Index of the node.
        node: usize,
        /// The name.
        name: Arc<str>,
    },
    /// Say once that a trunk carries calls and is not configured.
    UnknownTrunk {
        /// Index of the node.
        node: usize,
        /// What the node calls it.
        trunk: Arc<str>,
    },
}
