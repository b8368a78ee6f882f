//! Manager messages: `Key: Value` lines, ended by an empty one.

use crate::sim::asterisk::class::Classes;
use crate::time::Timestamp;

/// A message in the making.
#[derive(Clone, Debug)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// An answer to an action.
    pub(crate) fn response(kind: &str, action_id: Option<&str>) -> Self {
        let mut message = Self(Vec::with_capacity(256));
        message.push("Response", kind);
        if let Some(id) = action_id {
            message.push("ActionID", id);
        }
        message
    }

    /// An item of a list, which belongs to an action.
    pub(crate) fn item(name: &str, action_id: Option<&str>) -> Self {
        let mut message = Self(Vec::with_capacity(512));
        message.push("Event", name);
        if let Some(id) = action_id {
            message.push("ActionID", id);
        }
        message
    }

    /// An event without the time, as the FullyBooted at the login is.
    pub(crate) fn untimed(name: &str, classes: Classes) -> Self {
        let mut message = Self(Vec::with_capacity(1024));
        message.push("Event", name);
        message.push("Privilege", format!("{},all", classes.list()));
        message
    }

    /// An event.
    pub(crate) fn event(name: &str, classes: Classes, at: Timestamp) -> Self {
        let mut message = Self::untimed(name, classes);
        let micros = at.as_micros();
        message.push("Timestamp", format!("{}.{:06}", micros / 1_000_000, micros.rem_euclid(1_000_000)));
        message
    }

    /// Adds a line. Values go out as they are, whatever they hold.
    pub(crate) fn push(&mut self, key: &str, value: impl AsRef<[u8]>) {
        self.push_with("", key, value);
    }

    /// Adds a line whose key has a prefix.
    pub(crate) fn push_with(&mut self, prefix: &str, key: &str, value: impl AsRef<[u8]>) {
        self.0.extend_from_slice(prefix.as_bytes());
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value.as_ref());
        self.0.extend_from_slice(b"\r\n");
    }

    /// The bytes, with the end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"\r\n");
        self.0
    }
}

/// An event, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) classes: Classes,
    pub(crate) bytes: bytes::Bytes,
}

/// As newer versions escape callers' names: what could break a line becomes a visible escape.
pub(crate) fn c_escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        let escaped: &[u8] = match byte {
            0x07 => b"\\a",
            0x08 => b"\\b",
            0x0c => b"\\f",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x0b => b"\\v",
            b'\\' => b"\\\\",
            b'\'' => b"\\'",
            b'"' => b"\\\"",
            b'?' => b"\\?",
            other => std::slice::from_ref(other),
        };
        out.extend_from_slice(escaped);
    }
    out
}
