//! What bounds a client.

use std::time::Duration;

use pointsman::api::Limits;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{get, parse, read_to_end, say};
use crate::stage::Stage;

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let stage = Stage::with_limits(Limits { head: Duration::from_millis(100), ..Limits::default() }).await;
    for begun in ["", "GET /api/nodes HTTP/1.1\r\nhost: loc"] {
        let mut stream = TcpStream::connect(stage.address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        // Ends: the test would fail at its patience otherwise.
        read_to_end(&mut stream).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_idle_after_an_answer_is_closed() {
    let stage = Stage::with_limits(Limits { head: Duration::from_millis(100), ..Limits::default() }).await;
    let said = say(stage.address, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(parse(&said).status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let stage = Stage::with_limits(Limits { request: Duration::from_millis(100), ..Limits::default() }).await;
    let head = "POST /api/connections/vendor-a/reset HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 20\r\n\r\n{\"why\"";
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(parse(&read_to_end(&mut stream).await).status, 503);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let stage = Stage::set().await;
    let long = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024));
    assert!(say(stage.address, long.as_bytes()).await.starts_with("HTTP/1.1 431"));
    let many = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(200));
    assert!(say(stage.address, many.as_bytes()).await.starts_with("HTTP/1.1 431"));
    let path = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(64 * 1024));
    assert!(say(stage.address, path.as_bytes()).await.starts_with("HTTP/1.1 4"));
    assert!(say(stage.address, b"\x16\x03\x01\x02\x00\x01\r\n\r\n").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn further_connections_wait_until_one_is_free() {
    let stage = Stage::with_limits(Limits { connections: 2, ..Limits::default() }).await;
    let idle = [TcpStream::connect(stage.address).await.unwrap(), TcpStream::connect(stage.address).await.unwrap()];
    let address = stage.address;
    let waiting = std::pin::pin!(get(address, "/healthz"));
    let mut waiting = waiting;
    let early = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(early.is_err(), "the third connection was served: {early:?}");
    drop(idle);
    assert_eq!(waiting.await.status, 200);
}
