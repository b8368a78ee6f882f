//! From frames to the events of a PBX, and the links that carry them.
//!
//! [`event`] is the only vocabulary that the rest of the program knows of a PBX. [`freeswitch`] and [`asterisk`] turn
//! frames of [`crate::wire`] into it; [`session`] holds the dialogue with one socket as a pure state machine;
//! [`link`] is the tokio driver that performs what a session asks for.

pub mod asterisk;
pub mod backoff;
pub mod command;
pub mod event;
pub mod freeswitch;
pub mod link;
mod outlet;
pub mod session;
mod transport;

use serde::{Deserialize, Serialize};

/// What a node runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PbxKind {
    /// FreeSWITCH, over its event socket (ESL).
    FreeSwitch,
    /// Asterisk, over its manager interface (AMI).
    Asterisk,
}
