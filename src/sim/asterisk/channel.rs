//! Asterisk channels, as the snapshots in its events show them.

use crate::sim::asterisk::message::{Message, c_escape};
use crate::time::Timestamp;

const UNKNOWN: &[u8] = b"<unknown>";

/// State of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Down,
    Ring,
    Ringing,
    Up,
}

impl State {
    fn number(self) -> &'static str {
        match self {
            Self::Down => "0",
            Self::Ring => "4",
            Self::Ringing => "5",
            Self::Up => "6",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Down => "Down",
            Self::Ring => "Ring",
            Self::Ringing => "Ringing",
            Self::Up => "Up",
        }
    }
}

/// A number and a name; empty where they are not known.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    pub(super) number: String,
    pub(super) name: Vec<u8>,
}

/// A channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) name: String,
    pub(super) device: String,
    pub(super) state: State,
    pub(super) caller: Identity,
    pub(super) connected: Identity,
    pub(super) context: &'static str,
    pub(super) exten: String,
    pub(super) unique_id: String,
    pub(super) linked_id: String,
    pub(super) created: Timestamp,
    pub(super) bridge: Option<String>,
    /// Application and its data, as the list of channels shows them.
    pub(super) application: (&'static str, String),
    /// Channel variables that the administrator chose to show.
    pub(super) shown_variables: Vec<(String, String)>,
    /// Whether its device was reported as in use.
    pub(super) device_in_use: bool,
}

fn or_unknown(text: &[u8]) -> &[u8] {
    if text.is_empty() { UNKNOWN } else { text }
}

impl Channel {
    /// Writes the snapshot: always these lines in this order.
    pub(super) fn write(&self, prefix: &str, message: &mut Message) {
        message.push_with(prefix, "Channel", &self.name);
        message.push_with(prefix, "ChannelState", self.state.number());
        message.push_with(prefix, "ChannelStateDesc", self.state.text());
        message.push_with(prefix, "CallerIDNum", or_unknown(self.caller.number.as_bytes()));
        message.push_with(prefix, "CallerIDName", or_unknown(&c_escape(&self.caller.name)));
        message.push_with(prefix, "ConnectedLineNum", or_unknown(self.connected.number.as_bytes()));
        message.push_with(prefix, "ConnectedLineName", or_unknown(&c_escape(&self.connected.name)));
        message.push_with(prefix, "Language", "en");
        message.push_with(prefix, "AccountCode", "");
        message.push_with(prefix, "Context", self.context);
        message.push_with(prefix, "Exten", &self.exten);
        message.push_with(prefix, "Priority", "1");
        message.push_with(prefix, "Uniqueid", &self.unique_id);
        message.push_with(prefix, "Linkedid", &self.linked_id);
        for (name, value) in &self.shown_variables {
            message.push_with(prefix, "ChanVariable", format!("{name}={value}"));
        }
    }

    /// `hh:mm:ss` since it began.
    pub(super) fn age(&self, now: Timestamp) -> String {
        let secs = now.since(self.created).as_secs();
        format!("{:02}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
    }
}
