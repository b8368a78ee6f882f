//! The framing of Asterisk's manager interface.

use bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

use crate::wire::limits::FrameError;

/// One message of the manager interface, or the banner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmiFrame {
    /// The first line of a session, e.g. `Asterisk Call Manager/11.0.0`.
    Banner(Bytes),
    /// A message with at least one header.
    Message(AmiMessage),
}

/// Headers in the order sent; a name may come more than once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AmiMessage {
    /// Names and values as bytes.
    pub headers: Vec<(Bytes, Bytes)>,
    /// Lines without a colon (odd modules, old `Command` answers), in order.
    pub extra: Vec<Bytes>,
}

impl AmiMessage {
    /// The first header of that name (ASCII case is ignored).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| &v[..])
    }
}

/// Splits a stream into messages.
#[derive(Debug, Default)]
pub struct AmiCodec {}

impl Decoder for AmiCodec {
    type Item = AmiFrame;
    type Error = FrameError;

    fn decode(&mut self, _src: &mut BytesMut) -> Result<Option<AmiFrame>, FrameError> {
        Ok(None)
    }
}
