//! A configuration that changes while pointsman runs: the engine alone, the whole program over simulated switches, and the
//! real binary with its signal and its command.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

#[path = "../api/client.rs"]
#[expect(dead_code, reason = "the tests of the API use more of it")]
mod client;
mod command;
mod engine;
mod program;
mod stage;
