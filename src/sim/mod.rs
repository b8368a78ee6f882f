//! Simulated PBXs that speak the real protocols on loopback: the demo runs on them and the tests use them as peers.
