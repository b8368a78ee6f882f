//! pointsman stands beside FreeSWITCH and Asterisk, works out from their events what every outbound call did, judges
//! each vendor connection by it and sets the variables that dialplans route by.
//!
//! Data moves one way; each arrow is a module boundary, and everything between the first and the last arrow is plain
//! state without I/O, clock or randomness of its own:
//!
//! ```text
//! bytes -> frames -> PBX events -> attempts -> windows -> quality state -> hunt orders
//!  wire     wire        pbx          call      quality      quality         routing
//!                                                              |
//!                                              effects: variables, rows, changes
//!                                              dialplan         store  control
//! ```
//!
//! `ARCHITECTURE.md` walks one call through all of it.

pub mod api;
pub mod balance;
mod bearer;
pub mod call;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod demo;
pub mod dialplan;
pub mod edge;
pub mod engine;
pub mod ids;
pub mod listen;
pub mod notify;
pub mod pbx;
pub mod plot;
pub mod quality;
pub mod routing;
pub mod score;
pub mod sim;
pub mod store;
pub mod tasks;
pub mod time;
pub mod wire;
pub mod xds;
