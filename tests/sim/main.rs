//! The simulated switches, seen from the other end of a plain socket.

mod asterisk;
mod client;
mod faults;
mod freeswitch;
