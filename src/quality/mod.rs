//! From attempts to the state of a connection: windows, thresholds, retry batches. Pure; see [`machine`].

pub mod book;
pub mod machine;
pub mod settings;
pub mod window;
