//! Mail of the whole program, from a call that fails on a (simulated) switch to what a mail server takes: what is told
//! and what is not, in which order, and what survives outages and kills.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

mod killed;
mod program;
mod stage;
