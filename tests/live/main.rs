//! Tests against real PBXs: Asterisk 22 and 16, with SIPp as callers and vendors.
//!
//! They need Linux, root and what `scripts/live-setup` installs, so plain `cargo test` leaves them out (`test = false`
//! in Cargo.toml). `scripts/test` runs them; by hand: `cargo nextest run --test live`.
//!
//! Every test starts what it needs on free ports of 127.0.0.1 and ends it: an Asterisk in mounts of its own, which
//! vanish with it, a SIPp for each vendor, a SIPp for each call. A test that fails leaves its folder and says where.

#![expect(clippy::disallowed_methods, reason = "the tests measure real time, beside the program and not through it")]
#![expect(clippy::unwrap_used, reason = "a harness that cannot go on ends the test")]

mod books;
mod hunt;
mod lab;
mod story;
mod trouble;
