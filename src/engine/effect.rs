//! What the engine wants done. The engine itself does nothing but think.

use std::sync::Arc;

use crate::dialplan::desired::Desired;
use crate::engine::view::ChangeView;
use crate::ids::LegId;
use crate::store::StoreOp;
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
    /// What a node holds is not known any more (restarted, or newly connected): compare, or write everything again.
    Relinked {
        /// Index of the node.
        node: usize,
        /// Whether the PBX was restarted: everything that it held is gone.
        restarted: bool,
    },
    /// Ask a node for all about one leg.
    Describe {
        /// Index of the node.
        node: usize,
        /// The leg.
        leg: LegId,
    },
    /// Tell everybody who listens that a connection's state has changed.
    Publish(Arc<ChangeView>),
    /// Say once that a trunk carries calls and is not configured.
    UnknownTrunk {
        /// Index of the node.
        node: usize,
        /// What the node calls it.
        trunk: Arc<str>,
    },
}
