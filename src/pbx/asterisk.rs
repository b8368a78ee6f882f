//! Asterisk's channel events.

/// An Asterisk channel event.
#[derive(Clone, Debug, PartialEq)]
pub struct AstEvent {}
