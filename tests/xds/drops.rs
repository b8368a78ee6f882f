//! Clients that do not behave: each is dropped, and it is shown why.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use pointsman::clock::Clock;
use pointsman::edge::Health;
use pointsman::xds::Limits;
use pointsman::xds::kind::Kind;
use pointsman::xds::protocol::envoy::service::discovery::v3::DiscoveryRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::stage::{Stage, Subscriber, node, open, soon, two_nodes};

fn resources() -> pointsman::xds::resources::Resources {
    two_nodes((Health::Healthy, 67), (Health::Healthy, 50))
}

#[tokio::test]
async fn who_does_not_say_who_asks_is_dropped() {
    let stage = Stage::set().await;
    stage.serve(resources());
    let mut client = Subscriber::on(stage.channel().await).await.unwrap();
    client.says.send(DiscoveryRequest::default()).await.unwrap();
    assert_eq!(client.end().await.code(), Code::InvalidArgument);
    let gone = stage.ended("nonsense").await;
    assert!(gone.dropped && gone.reason.contains("node.id"), "{gone:?}");
    assert_eq!(stage.registry.totals().dropped, 1);
}

#[tokio::test]
async fn bytes_that_are_no_message_end_the_stream_with_a_reason() {
    let stage = Stage::set().await;
    stage.serve(resources());
    let mut client = Subscriber::on(stage.channel().await).await.unwrap();
    let long = DiscoveryRequest { node: node(&"x".repeat(2 * 1024 * 1024)), ..DiscoveryRequest::default() };
    client.says.send(long).await.unwrap();
    let status = client.end().await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    stage.ended("nonsense").await;
}

#[tokio::test]
async fn who_floods_is_dropped_and_others_are_served() {
    let stage = Stage::set().await;
    stage.serve(resources());
    let mut good = Subscriber::on(stage.channel().await).await.unwrap();
    let mut client = Subscriber::on(stage.channel().await).await.unwrap();
    let flood = async {
        let request = || DiscoveryRequest {
            node: node("flood"),
            type_url: Kind::Route.type_url().to_owned(),
            response_nonce: "17".to_owned(),
            ..DiscoveryRequest::default()
        };
        while client.says.send(request()).await.is_ok() {}
    };
    soon(flood).await;
    assert_eq!(client.end().await.code(), Code::ResourceExhausted);
    assert_eq!(stage.ended("floods").await.node, "flood");
    good.ask("edge-1", Kind::Endpoints, &["sip"]).await;
    good.take(&["sip"]).await;
}

#[tokio::test]
async fn who_neither_accepts_nor_rejects_is_dropped() {
    // Thirty seconds pass in less than one.
    let stage = Stage::set_with(&open(), Limits::default(), Clock::running_at(60)).await;
    stage.serve(resources());
    let mut client = Subscriber::on(stage.channel().await).await.unwrap();
    client.ask("sleeper", Kind::Endpoints, &["sip"]).await;
    client.hear().await;
    assert_eq!(client.end().await.code(), Code::DeadlineExceeded);
    assert_eq!(stage.ended("took nothing for 30 s").await.node, "sleeper");
}

#[tokio::test]
async fn who_never_reads_is_dropped_and_its_connection_closed() {
    let stage = Stage::set_with(&open(), Limits::default(), Clock::running_at(60)).await;
    stage.serve(resources());
    // Room for one byte of any answer until it is read, and it never is.
    let target = Endpoint::from_shared(format!("http://{}", stage.address)).unwrap().initial_stream_window_size(1);
    let channel = target.connect().await.unwrap();
    let client = Subscriber::on(channel).await.unwrap();
    client.ask("deaf", Kind::Endpoints, &["sip"]).await;
    assert_eq!(stage.ended("took nothing for 30 s").await.node, "deaf");
    soon(client.says.closed()).await;
}

/// The preface of HTTP/2, and settings without anything in them.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// A line on which nothing is read any more once it is told so.
struct Deaf {
    line: TcpStream,
    deaf: Arc<AtomicBool>,
}

impl AsyncRead for Deaf {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.deaf.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.line).poll_read(context, to)
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.line).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_shutdown(context)
    }
}

#[tokio::test]
async fn a_client_that_vanished_without_a_word_is_dropped_and_delays_nobody() {
    let limits = Limits { keep_alive: Duration::from_millis(300), ..Limits::default() };
    let stage = Stage::set_with(&open(), limits, Clock::system()).await;
    stage.serve(resources());
    let (deaf, address) = (Arc::new(AtomicBool::new(false)), stage.address);
    let goes_deaf = Arc::clone(&deaf);
    let connect = tower::service_fn(move |_| {
        let deaf = Arc::clone(&deaf);
        async move { TcpStream::connect(address).await.map(|line| TokioIo::new(Deaf { line, deaf })) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap();
    let mut client = Subscriber::on(channel).await.unwrap();
    let mut good = Subscriber::on(stage.channel().await).await.unwrap();
    for (client, name) in [(&mut client, "vanished"), (&mut good, "good")] {
        client.ask(name, Kind::Endpoints, &["sip"]).await;
        client.take(&["sip"]).await;
    }
    stage.seen(|view| view.totals.accepted == 2).await;
    goes_deaf.store(true, Ordering::Relaxed);
    stage.serve(two_nodes((Health::Unhealthy, 1), (Health::Healthy, 50)));
    good.take(&["sip"]).await;
    let gone = stage.ended("did not answer when asked whether it is there").await;
    assert!(gone.dropped && gone.node == "vanished", "{gone:?}");
    assert_eq!((stage.registry.totals().dropped, stage.registry.totals().refused), (1, 0));
}

#[tokio::test]
async fn who_only_looks_whether_the_port_is_open_is_nobody() {
    let stage = Stage::set().await;
    for _ in 0..3 {
        drop(TcpStream::connect(stage.address).await.unwrap());
    }
    let mut line = TcpStream::connect(stage.address).await.unwrap();
    line.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    stage.ended("no HTTP/2").await;
    assert_eq!(stage.registry.view().gone.len(), 1);
}

#[tokio::test]
async fn who_is_about_to_say_hello_does_not_keep_the_program_from_stopping() {
    let stage = Stage::set().await;
    let _silent = TcpStream::connect(stage.address).await.unwrap();
    let mut half = TcpStream::connect(stage.address).await.unwrap();
    half.write_all(b"PRI").await.unwrap();
    let channel = stage.channel().await;
    assert!(stage.tasks.stop(Duration::from_secs(5)).await, "within less than the ten seconds that a hello may take");
    drop(channel);
}

#[tokio::test]
async fn who_opens_no_stream_is_let_go() {
    let limits = Limits { hello: Duration::from_millis(100), ..Limits::default() };
    let stage = Stage::set_with(&open(), limits, Clock::system()).await;
    let mut line = TcpStream::connect(stage.address).await.unwrap();
    line.write_all(HELLO).await.unwrap();
    soon(line.read_to_end(&mut Vec::new())).await.unwrap();
    stage.ended("it opened no stream").await;
}

#[tokio::test]
async fn who_speaks_something_else_is_let_go() {
    let stage = Stage::set().await;
    let mut line = TcpStream::connect(stage.address).await.unwrap();
    line.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    soon(line.read_to_end(&mut Vec::new())).await.ok();
    stage.ended("no HTTP/2").await;
    assert_eq!(stage.registry.totals().refused, 1);
}

#[tokio::test]
async fn there_is_an_end_to_streams() {
    let limits = Limits { streams: 1, ..Limits::default() };
    let stage = Stage::set_with(&open(), limits, Clock::system()).await;
    stage.serve(resources());
    let channel = stage.channel().await;
    let first = Subscriber::on(channel.clone()).await.unwrap();
    first.ask("edge-1", Kind::Endpoints, &["sip"]).await;
    let refused = Subscriber::on(channel.clone()).await.err().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(first);
    stage.seen(|view| view.clients.is_empty()).await;
    Subscriber::on(channel).await.unwrap();
}
