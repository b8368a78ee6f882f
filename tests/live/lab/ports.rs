//! Free ports on 127.0.0.1.
//!
//! They lie below the range that the kernel gives to outgoing connections: a client that tries again and again to
//! reach a PBX which is down must not meet itself there.

use std::net::{TcpListener, UdpSocket};

const FIRST: u16 = 21_000;
const LAST: u16 = 31_900;

/// A port that is free for UDP and TCP, with its neighbour (RTP and RTCP come in pairs).
pub(crate) fn free() -> u16 {
    loop {
        let port = fastrand::u16(FIRST..LAST) & !1;
        if is_free(port) && is_free(port + 1) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    UdpSocket::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok()
}
