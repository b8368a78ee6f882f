//! SQLite: what survives a restart.
