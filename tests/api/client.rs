//! A client that says exactly what a test wants said.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::stage::PATIENCE;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The detail of a problem, having looked at the rest of it.
    pub(crate) fn problem(&self, status: u16, path: &str) -> String {
        let problem = self.json();
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!((self.status, problem["status"].as_u64()), (status, Some(u64::from(status))), "{self:?}");
        assert_eq!((&problem["type"], &problem["instance"]), (&"about:blank".into(), &path.into()), "{self:?}");
        assert!(!problem["title"].as_str().unwrap().is_empty(), "{self:?}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

/// Says these bytes on a connection of their own and reads to its end.
pub(crate) async fn say(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_to_end(&mut stream).await
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // A server that closes with something of ours unread resets the connection; what it said before counts.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("the server did not close");
    String::from_utf8(said).unwrap()
}

/// One request with these headers.
pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        request += &format!("host: {address}\r\n");
    }
    if !body.is_empty() {
        request += &format!("content-length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    parse(&say(address, format!("{request}\r\n{body}").as_bytes()).await)
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, "GET", path, &[], "").await
}

/// A request with a JSON body.
pub(crate) async fn send_json(address: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    send(address, method, path, &[("content-type", "application/json")], body).await
}

pub(crate) fn parse(said: &str) -> Answer {
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {said:?}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    Answer { status, headers: lines.filter_map(header).collect(), body: body.to_owned() }
}

/// An event stream.
#[derive(Debug)]
pub(crate) struct Stream {
    lines: BufReader<TcpStream>,
}

/// An event: its kind, its data, its id.
pub(crate) type Event = (String, Value, Option<String>);

impl Stream {
    pub(crate) async fn open(address: SocketAddr, last_seen: Option<&str>) -> Self {
        let last_seen: Vec<_> = last_seen.map(|id| ("last-event-id", id)).into_iter().collect();
        Self::begin(TcpSocket::new_v4().unwrap(), address, &last_seen).await
    }

    /// One of a browser that is logged in.
    pub(crate) async fn open_with(address: SocketAddr, cookie: &str) -> Self {
        Self::begin(TcpSocket::new_v4().unwrap(), address, &[("cookie", cookie)]).await
    }

    /// One whose system keeps little for it, so that a reader that is slow is soon seen to be.
    pub(crate) async fn open_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 * 1024).unwrap();
        Self::begin(socket, address, &[]).await
    }

    /// The parts of a page that change.
    pub(crate) async fn of_page(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        Self::at(TcpSocket::new_v4().unwrap(), address, &format!("/live{path}"), headers).await
    }

    /// Those of a page, for a reader whose system keeps little for it.
    pub(crate) async fn of_page_narrow(address: SocketAddr, path: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        Self::at(socket, address, &format!("/live{path}"), &[]).await
    }

    async fn begin(socket: TcpSocket, address: SocketAddr, headers: &[(&str, &str)]) -> Self {
        Self::at(socket, address, "/api/events", headers).await
    }

    async fn at(socket: TcpSocket, address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = socket.connect(address).await.unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { lines: BufReader::new(stream) }
    }

    /// The next line; `None` at the end, which is a chunk of no bytes or the end of the connection.
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.lines.read_line(&mut line)).await.expect("the stream says nothing");
        // A reset is an end too.
        let line = line.trim_end();
        (read.unwrap_or(0) > 0 && line != "0").then(|| line.to_owned())
    }

    /// The status line.
    pub(crate) async fn status(&mut self) -> String {
        self.line().await.unwrap_or_default()
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let (mut kind, mut data, mut id) = (String::new(), None, None);
        loop {
            let line = self.line().await?;
            match line.split_once(": ") {
                Some(("event", value)) => kind = value.to_owned(),
                Some(("data", value)) => data = Some(serde_json::from_str(value).unwrap()),
                Some(("id", value)) => id = Some(value.to_owned()),
                _ if line.is_empty() && data.is_some() => return Some((kind, data.unwrap(), id)),
                _ => {}
            }
        }
    }

    /// Reads until a comment comes.
    pub(crate) async fn comment(&mut self) -> String {
        loop {
            let line = self.line().await.expect("the stream ended");
            if line.starts_with(':') {
                return line;
            }
        }
    }

    /// Reads to the end: the kinds of the events that come before it.
    pub(crate) async fn rest(&mut self) -> Vec<String> {
        let mut kinds = Vec::new();
        while let Some((kind, ..)) = self.next().await {
            kinds.push(kind);
        }
        kinds
    }
}
