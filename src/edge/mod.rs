//! What an edge is told: a load balancer or a proxy in front of the PBXs, which sends each call to one of them.
//!
//! The picture of [`crate::balance`] answers a question; this is the same picture as a list that can be pushed. Nodes stand
//! in groups, one for each port that an edge serves; every node of a group is an [`Endpoint`] with whether it takes calls
//! and its share of them. A [`Snapshot`] is made whenever that changes, numbered, and handed to whoever passes it on: the
//! xDS server ([`crate::xds`]) and the event stream of the HTTP API.
//!
//! ```text
//! balance::Picture ──group──> Vec<EndpointGroup> ──pace──> feed: watch<Snapshot> ──> xds, /api/events, /api/endpoints
//! ```

pub mod feed;
pub mod group;
pub mod pace;

use serde::{Deserialize, Serialize};

use crate::ids::{GroupId, NodeId};
use crate::time::Timestamp;

/// What all edges are told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = EdgeSnapshot)]
pub struct Snapshot {
    /// Grows with every snapshot, also over restarts of the program; 0 before the first.
    pub generation: u64,
    /// When it was made.
    pub at: Timestamp,
    /// The groups, in the order configured.
    pub groups: Vec<EndpointGroup>,
}

/// Nodes that serve the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EndpointGroup {
    /// Its name.
    pub id: GroupId,
    /// The name of its cluster in xDS.
    pub cluster: String,
    /// Its nodes, in the order configured.
    pub endpoints: Vec<Endpoint>,
}

/// A node as an edge sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Endpoint {
    /// The node.
    pub node: NodeId,
    /// Where calls are sent: an IP address, or a name where no xDS server is configured.
    pub address: String,
    /// The port there.
    pub port: u16,
    /// Whether it takes calls.
    pub health: Health,
    /// Its share of the calls in proportion to the others: its score rounded, from 1 to 100.
    pub weight: u32,
    /// Whether it is healthy only because no node of the group takes calls and somebody must.
    pub stands_in: bool,
}

/// Whether a node takes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = EndpointHealth)]
pub enum Health {
    /// It does.
    Healthy,
    /// It does not.
    Unhealthy,
    /// It keeps the calls that it has and takes no more.
    Draining,
    /// Nobody knows: no node of the group has a link and takes calls. Edges try it.
    Unknown,
}
