//! The xDS server: edges subscribe once and are told of every change (Envoy's discovery protocol, version 3, over gRPC).
//!
//! It passes on what [`crate::edge`] publishes and owns nothing of the engine, so a client, however slow, hostile or many,
//! costs routing nothing but the processor time of its messages.
//!
//! ```text
//! edge::Snapshot ──resources──> watch<Resources> ──> one task per stream: dialogue (pure) ──> the client
//! ```

pub mod clients;
pub mod dialogue;
mod guard;
pub mod kind;
pub mod protocol;
pub mod resources;
mod server;
mod service;
pub mod tls;
pub mod view;

pub use self::server::{Limits, serve, serve_with};
pub use self::service::Served;
