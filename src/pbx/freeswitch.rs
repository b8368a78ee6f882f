//! FreeSWITCH's channel events.

/// A FreeSWITCH channel event.
#[derive(Clone, Debug, PartialEq)]
pub struct FsEvent {}
