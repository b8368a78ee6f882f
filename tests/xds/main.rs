//! The xDS server over real connections.

mod crowd;
mod drops;
mod stage;
mod talk;
mod tls;
