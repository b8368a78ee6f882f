//! The HTTP API over real sockets, with sources that are played.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod client;
mod document;
mod edges;
mod events;
mod history;
mod limits;
mod listening;
mod login;
mod metrics;
mod monitoring;
mod pages;
mod pages_changes;
mod pages_edges;
mod pages_extremes;
mod pages_maps;
mod pages_node;
mod picture;
mod refusals;
mod requests;
mod stage;
