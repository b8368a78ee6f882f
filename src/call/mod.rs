//! From the events of a PBX to attempts: which call legs went to which vendor, and how each of them ended.
//!
//! One tracker per node follows its legs; [`outcome`] holds the table that turns the evidence of an end into an
//! [`Outcome`](outcome::Outcome). Pure: the time of arrival is an argument.

pub mod attempt;
pub mod outcome;
pub mod tracker;
