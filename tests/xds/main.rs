//! The xDS server over real connections.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod crowd;
mod drops;
mod stage;
mod talk;
mod tls;
