//! The configuration: what the operator writes, checked as a whole.
//!
//! [`model`] is what the rest of the program gets: defaults applied, references resolved, every rule checked. Nothing
//! downstream checks again.

pub mod model;
pub mod report;

use std::path::Path;

pub use model::Config;
pub use report::{Problem, Problems, Severity};

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What the operator should look at all the same; may be empty.
    pub warnings: Problems,
}

/// Reads a configuration with the overrides of the environment and checks it.
///
/// # Errors
/// Everything that is wrong with it, warnings included.
pub fn load(path: &Path) -> Result<Loaded, Problems> {
    Err(Problems::unreadable(path, "reading configurations is not built yet"))
}
