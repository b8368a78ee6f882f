//! The tokio driver of a link.
