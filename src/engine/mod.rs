//! The single owner of all state: events and timers in, effects out.

pub mod view;
