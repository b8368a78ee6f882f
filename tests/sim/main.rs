//! The simulated switches, seen from the other end of a plain socket.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

mod asterisk;
mod client;
mod conformance;
mod faults;
mod freeswitch;
mod link;
