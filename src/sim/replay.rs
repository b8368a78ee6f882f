//! A PBX that plays a recorded stream: it answers the login and the commands of a client as an idle switch would, and
//! sends the events of the recording when told to, cut into pieces of any size.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Clock;
use crate::pbx::PbxKind;
use crate::sim::handle::{Handle, Options};
use crate::sim::{asterisk, freeswitch};
use crate::tasks::Tasks;

/// A recorded stream, without the login it may begin with.
#[derive(Clone, Debug)]
pub struct Recording {
    kind: PbxKind,
    events: Bytes,
}

/// A PBX that plays recordings.
#[derive(Clone, Debug)]
pub struct Server {
    handle: Handle,
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|at| at == wanted)
}

impl Recording {
    /// From the bytes of a socket, from its very first one or from anywhere between two frames.
    #[must_use]
    pub fn new(kind: PbxKind, stream: &Bytes) -> Self {
        let start = match kind {
            // An event's frame begins with its length; everything before the first is the login.
            PbxKind::FreeSwitch => find(stream, b"Content-Type: text/event-")
                .and_then(|at| stream[..at].windows(16).rposition(|at| at == b"Content-Length: ")),
            // The FullyBooted that answers a login would mean a restart in mid-stream.
            PbxKind::Asterisk => find(stream, b"Event: ").map(|at| match find(&stream[at..], b"\r\n\r\n") {
                Some(end) if stream[at..].starts_with(b"Event: FullyBooted\r\n") => at + end + 4,
                _ => at,
            }),
        };
        Self { kind, events: stream.slice(start.unwrap_or(0)..) }
    }

    /// Which run of FreeSWITCH was recorded.
    fn core_uuid(&self) -> Option<String> {
        let at = find(&self.events, b"Core-UUID: ")? + b"Core-UUID: ".len();
        let uuid = self.events[at..].split(|byte| *byte == b'\n').next()?;
        Some(String::from_utf8_lossy(uuid).into_owned())
    }
}

impl Server {
    /// Starts one for this recording.
    ///
    /// # Errors
    /// Where the port cannot be had.
    pub async fn start(recording: &Recording, options: Options, clock: Clock, tasks: &Tasks) -> io::Result<Self> {
        let handle = match recording.kind {
            PbxKind::FreeSwitch => {
                let options = freeswitch::Options {
                    pbx: options,
                    // The recording has its own.
                    heartbeat: Duration::from_secs(1_000_000_000),
                    core_uuid: recording.core_uuid(),
                    ..freeswitch::Options::default()
                };
                freeswitch::Server::start(options, clock, tasks).await?
            }
            PbxKind::Asterisk => {
                let options = asterisk::Options { pbx: options, ..asterisk::Options::default() };
                asterisk::Server::start(options, clock, tasks).await?
            }
        };
        Ok(Self { handle })
    }

    /// What else can be done with it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Sends the recording to everybody who listens, in pieces of the sizes that `cut` gives (at least 1 byte), as
    /// fast as they are read.
    pub async fn play(&self, recording: &Recording, mut cut: impl FnMut() -> usize) {
        let mut rest = recording.events.clone();
        while !rest.is_empty() {
            let piece = rest.split_to(cut().clamp(1, rest.len()));
            self.handle.send_raw(piece).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_is_not_played() {
        let stream = b"Content-Type: auth/request\n\nContent-Type: command/reply\nReply-Text: +OK accepted\n\n\
                       Content-Length: 22\nContent-Type: text/event-plain\n\nCore-UUID: abc\n"
            .as_slice();
        let recording = Recording::new(PbxKind::FreeSwitch, &Bytes::from_static(stream));
        assert!(recording.events.starts_with(b"Content-Length: 22"));
        assert_eq!(recording.core_uuid().as_deref(), Some("abc"));

        let stream = b"Asterisk Call Manager/11.0.0\r\nResponse: Success\r\n\r\nEvent: FullyBooted\r\n\r\nEvent: Newchannel\r\n\r\n";
        let recording = Recording::new(PbxKind::Asterisk, &Bytes::from_static(stream));
        assert!(recording.events.starts_with(b"Event: Newchannel"));
    }
}
