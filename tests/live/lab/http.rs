//! A question over HTTP, from a test that is no task.

use std::io::{Read, Write};
use std::net::TcpStream;

/// The status and the body; `None` where nobody answers.
pub(crate) fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Some((status, if chunked { joined(body)? } else { body.to_owned() }))
}

/// A body that came in pieces, each after a line with its length.
fn joined(mut rest: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (length, after) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(whole);
        }
        whole += after.get(..length)?;
        rest = after.get(length + 2..)?;
    }
}
