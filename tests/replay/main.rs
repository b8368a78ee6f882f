//! Recordings of real PBXs give exactly the attempts that are known to be right, whatever the cut of the reads.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

mod cli;
mod damage;
mod recordings;
