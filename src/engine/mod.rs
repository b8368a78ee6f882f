//! The single owner of all state: events and timers in, effects out.
//!
//! [`core::Engine`] is pure: it owns the trackers, the connections' states and the hunt orders, is told what happened
//! and when, and returns [`effect::Effect`]s. [`run`] is its driver: it feeds the engine from the links, performs the
//! effects and publishes the [`view::View`]. [`past`] asks the same rules what would have been, and [`reload`] has the engine take
//! another configuration.

pub mod core;
pub mod effect;
mod explain;
mod health;
mod local;
pub mod past;
pub mod reload;
pub mod request;
mod routes;
pub mod run;
pub mod view;
