//! The configuration: what the operator writes, checked as a whole.
//!
//! [`model`] is what the rest of the program gets: defaults applied, references resolved, every rule checked. Nothing
//! downstream checks again.

pub mod model;
