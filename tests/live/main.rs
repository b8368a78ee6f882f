//! Tests against real PBXs: Asterisk 22 and 16, with SIPp as callers and vendors; with a real mail server; of the HTTP
//! API by programs that others wrote; of the dashboard in Chromium; and of the xDS server by Envoy and gRPC.
//!
//! They need Linux, root and what `scripts/live-setup` installs, so plain `cargo test` leaves them out (`test = false`
//! in Cargo.toml). `scripts/test` runs them; by hand: `cargo nextest run --test live`.
//!
//! Every test starts what it needs on free ports of 127.0.0.1 and ends it: an Asterisk in mounts of its own, which
//! vanish with it, a SIPp for each vendor, a SIPp for each call. A test that fails leaves its folder and says where.
//!
//! FreeSWITCH cannot be installed from packages everywhere: the tests with `freeswitch` in their name need one, in the
//! folder that `POINTSMAN_FREESWITCH` names, and `scripts/test` leaves them out where that is not set.

#![expect(clippy::disallowed_methods, reason = "the tests measure real time, beside the program and not through it")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what was measured, and what there is to look at")]
#![expect(clippy::unwrap_used, reason = "a harness that cannot go on ends the test")]

mod books;
mod dashboard;
mod edges;
mod ground;
mod http;
mod hunt;
mod lab;
mod mail;
mod maps;
mod nodes;
mod orders;
mod story;
mod trouble;
