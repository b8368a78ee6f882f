//! The dialogue with one socket as a pure state machine.
