//! A client that knows nothing but how to cut frames.

use std::net::SocketAddr;
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::sim::{Handle, asterisk, freeswitch};
use pointsman::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Nothing here takes longer than this on a machine that works at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How fast the PBXs of these tests live.
pub(crate) const RATE: u32 = 20;

/// Fields of a frame, in order.
pub(crate) type Fields = Vec<(String, String)>;

/// A frame: its head, and the fields of its body where that has any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) head: Fields,
    pub(crate) body: Fields,
    pub(crate) text: String,
    pub(crate) len: usize,
}

impl Frame {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.body.iter().chain(&self.head);
        fields.find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The event's name, for either kind.
    pub(crate) fn event(&self) -> Option<&str> {
        self.get("Event-Name").or_else(|| self.get("Event"))
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.body.iter().map(|(name, _)| name.as_str()).collect()
    }
}

fn fields(text: &str) -> Fields {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim_start().to_owned())).collect()
}

fn esl_frame(head: &[u8], body: &[u8]) -> Frame {
    let text = String::from_utf8_lossy(body).into_owned();
    let body_fields = fields(text.split("\n\n").next().unwrap_or_default());
    Frame { head: fields(&String::from_utf8_lossy(head)), body: body_fields, text, len: body.len() }
}

fn content_length(head: &[u8]) -> usize {
    let head = fields(&String::from_utf8_lossy(head));
    head.iter().find(|(name, _)| name == "Content-Length").map_or(0, |(_, length)| length.parse().unwrap())
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// Cuts a recorded event socket into its frames.
pub(crate) fn cut_esl(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(end) = find(bytes, b"\n\n") {
        let (head, rest) = bytes.split_at(end + 2);
        let (body, rest) = rest.split_at(content_length(head).min(rest.len()));
        frames.push(esl_frame(head, body));
        bytes = rest;
    }
    frames
}

fn ami_frame(bytes: &[u8]) -> Frame {
    let text = String::from_utf8_lossy(bytes).into_owned();
    Frame { head: Vec::new(), body: fields(&text), len: bytes.len(), text }
}

/// Cuts a recorded manager interface into its messages.
pub(crate) fn cut_ami(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(end) = find(bytes, b"\r\n\r\n") {
        let (message, rest) = bytes.split_at(end + 4);
        frames.push(ami_frame(message));
        bytes = rest;
    }
    frames
}

pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { socket: TcpStream::connect(address).await.unwrap(), buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads more; false at the end of the stream.
    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.socket.read_buf(&mut self.buffer)).await;
        matches!(read.expect("the server says nothing"), Ok(1..))
    }

    /// Takes bytes up to and with `end`.
    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = find(&self.buffer, end) {
                return Some(self.buffer.drain(..at + end.len()).collect());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// The next frame of an event socket; `None` at the end of the stream.
    pub(crate) async fn esl(&mut self) -> Option<Frame> {
        let head = self.until(b"\n\n").await?;
        let length = content_length(&head);
        while self.buffer.len() < length {
            if !self.more().await {
                return None;
            }
        }
        let body: Vec<u8> = self.buffer.drain(..length).collect();
        Some(esl_frame(&head, &body))
    }

    /// The next message of a manager interface; `None` at the end of the stream.
    pub(crate) async fn ami(&mut self) -> Option<Frame> {
        Some(ami_frame(&self.until(b"\r\n\r\n").await?))
    }

    /// The rest of the stream; `None` where it was reset.
    pub(crate) async fn rest(&mut self) -> Option<Vec<u8>> {
        let mut rest = std::mem::take(&mut self.buffer);
        let read = tokio::time::timeout(PATIENCE, self.socket.read_to_end(&mut rest)).await;
        read.expect("the server does not close").ok().map(|_| rest)
    }

    /// Logs in to an event socket and runs some commands.
    pub(crate) async fn esl_session(address: SocketAddr, commands: &[&str]) -> Self {
        let mut client = Self::connect(address).await;
        assert_eq!(client.esl().await.unwrap().get("Content-Type"), Some("auth/request"));
        client.send("auth ClueCon\n\n").await;
        assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("+OK accepted"));
        for command in commands {
            client.send(&format!("{command}\n\n")).await;
            let reply = client.esl().await.unwrap();
            assert!(reply.get("Reply-Text").unwrap().starts_with("+OK"), "{command}: {reply:?}");
        }
        client
    }

    /// An `api` command and its answer.
    pub(crate) async fn api(&mut self, command: &str) -> String {
        self.send(&format!("api {command}\n\n")).await;
        loop {
            let frame = self.esl().await.unwrap();
            if frame.get("Content-Type") == Some("api/response") {
                return frame.text;
            }
        }
    }

    /// Logs in to a manager interface.
    pub(crate) async fn ami_session(address: SocketAddr, events: &str) -> Self {
        let mut client = Self::connect(address).await;
        assert!(client.until(b"\r\n").await.unwrap().starts_with(b"Asterisk Call Manager/"));
        client
            .send(&format!(
                "Action: Login\r\nActionID: l\r\nUsername: pointsman\r\nSecret: ClueCon\r\nEvents: {events}\r\n\r\n"
            ))
            .await;
        assert_eq!(client.ami().await.unwrap().get("Response"), Some("Success"));
        client
    }

    /// An action and its answer, events that come between left out.
    pub(crate) async fn action(&mut self, action: &str) -> Frame {
        self.send(&format!("{action}\r\n\r\n")).await;
        loop {
            let frame = self.ami().await.unwrap();
            if frame.event().is_none() {
                return frame;
            }
        }
    }
}

/// A FreeSWITCH with a heartbeat that does not disturb.
pub(crate) async fn freeswitch() -> (Handle, Tasks) {
    beating_freeswitch(Duration::from_hours(1)).await
}

/// A FreeSWITCH with this heartbeat.
pub(crate) async fn beating_freeswitch(heartbeat: Duration) -> (Handle, Tasks) {
    let tasks = Tasks::new();
    let options = freeswitch::Options { heartbeat, ..freeswitch::Options::default() };
    let handle = freeswitch::Server::start(options, Clock::running_at(RATE), &tasks).await.unwrap();
    (handle, tasks)
}

/// An Asterisk.
pub(crate) async fn asterisk(version: asterisk::Version) -> (Handle, Tasks) {
    let tasks = Tasks::new();
    let options = asterisk::Options { version, ..asterisk::Options::default() };
    let handle = asterisk::Server::start(options, Clock::running_at(RATE), &tasks).await.unwrap();
    (handle, tasks)
}
