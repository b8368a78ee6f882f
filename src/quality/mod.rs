//! From attempts to the state of a connection: windows, thresholds, retry batches.
//!
//! Pure: [`book`] holds one [`machine`] per connection, a machine one [`window`] and one batch. [`settings`] says how a
//! connection is judged. What is judged is a [`QualityKey`](crate::ids::QualityKey), so that verdicts per route map need
//! no other data model; another judge than the thresholds would take the place of [`settings::Settings::crossed`], and an
//! operator's override that of [`machine::Machine::standing`]. What is told of it is a [`sentence`].

pub mod book;
pub mod history;
pub mod machine;
pub mod pin;
pub mod sentence;
pub mod settings;
pub mod window;
