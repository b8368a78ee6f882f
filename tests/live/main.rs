//! Tests against real PBXs: Asterisk 22 and 16, with SIPp as callers and vendors.
//!
//! They need Linux, root and what `scripts/live-setup` installs, so plain `cargo test` leaves them out (`test = false`
//! in Cargo.toml). `scripts/test` runs them; by hand: `cargo nextest run --test live`.
