//! The kinds of resources that are served.

use serde::{Deserialize, Serialize};

/// A kind of resource, in the order in which a client needs them: what refers comes after what it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = XdsKind)]
pub enum Kind {
    /// CDS: a group of nodes, and how to choose among them.
    Cluster,
    /// EDS: the nodes of a group.
    Endpoints,
    /// LDS: where calls come in.
    Listener,
    /// RDS: which group they go to.
    Route,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cluster, Self::Endpoints, Self::Listener, Self::Route];

    /// Its name in the protocol.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// The kind of that name in the protocol; `None` for one that is not served.
    #[must_use]
    pub fn of(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }

    /// What the field calls it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "CDS",
            Self::Endpoints => "EDS",
            Self::Listener => "LDS",
            Self::Route => "RDS",
        }
    }

    /// Whether an answer must hold all that a client asked for, because what is left out is taken for gone.
    #[must_use]
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }
}
