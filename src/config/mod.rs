//! The configuration: what the operator writes, checked as a whole.
//!
//! ```text
//! file --+-- locate: where every key and value stands ------------------+
//!        |                                                              |
//!        +-- config crate: values --+                                   v
//! environment -- environment ------ merge --> tree --> de (raw structs) --> validate --> model
//!                                                        |                     |
//!                                                        +---- drafts ---------+--> report
//! ```
//!
//! [`model`] is what the rest of the program gets: defaults applied, references resolved, every rule checked. Nothing
//! downstream checks again. Every mistake is reported at once, each with its place and what to write instead; what is
//! only suspicious is a warning.

mod de;
pub mod diff;
mod environment;
mod load;
mod locate;
pub mod log;
pub mod model;
mod raw;
pub mod report;
mod schema;
mod secret;
pub(crate) mod suggest;
mod tree;
mod validate;

pub use load::{Format, Purpose, load, load_text, load_with};
pub use model::Config;
pub use report::{Position, Problem, Problems, Severity};

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What the operator should look at all the same; may be empty.
    pub warnings: Problems,
}
