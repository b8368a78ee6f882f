//! Node scores, the routing answer and what operators say, of the whole program: simulated switches at one end, HTTP, the
//! control socket and the command line at the other.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

#[path = "../api/client.rs"]
#[expect(dead_code, reason = "the tests of the API use more of it")]
mod client;
mod maps;
mod operators;
mod routing;
mod scores;
mod stage;
