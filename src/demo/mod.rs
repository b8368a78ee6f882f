//! The whole program on simulated PBXs.
