//! Simulated FreeSWITCH and Asterisk servers on loopback that speak the real protocols, with vendors that behave as
//! told: what `pointsman demo` runs over, and the PBX of the tests.
//!
//! The servers play the part of the switch towards a management client: login, subscriptions, filters, commands,
//! global variables, snapshots, and for every call the events that a real switch sends, with its field lists in its
//! order (the layouts follow streams recorded from FreeSWITCH 1.11 and Asterisk 16 and 22). There is no SIP and no
//! media: [`vendor`] decides what the far end does with each leg, and [`call`] lets the call live.
//!
//! ```text
//!   callers ──► call (hunts over the order the variables hold) ──► steps ──► freeswitch / asterisk ──► events
//!                 ▲ what the far end does                                         │ login, commands
//!               vendor                                                          server ◄──► the client under test
//!                                                                                 ▲ fault: misbehaviour by command
//! ```
//!
//! Time comes from a [`Clock`](crate::clock::Clock), so that a fast clock compresses it; randomness comes from a seed.
//! [`freeswitch`] and [`asterisk`] are dialogues without I/O; `server` alone touches sockets, and everything that a
//! PBX can do wrong on the wire ([`fault`]) is done there, for both. [`mail`] is a mail server, for what they give rise
//! to.
//!
//! Not simulated: transfers, loopback and Local channels, masquerade. Recordings cover those.

pub mod asterisk;
pub mod call;
pub mod fault;
pub mod freeswitch;
pub mod handle;
pub mod ledger;
pub mod mail;
mod pbx;
pub mod replay;
mod server;
pub mod traffic;
pub mod vendor;

pub use call::{Call, CallReport, Route};
pub use fault::Misbehaviour;
pub use handle::{Handle, PlacedCall};
pub use vendor::{Behaviour, Span};
