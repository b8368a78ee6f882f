//! The framing of FreeSWITCH's event socket.

use bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

use crate::wire::limits::FrameError;

/// One frame: a header block and a body of `Content-Length` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EslFrame {
    /// Header names and values in the order sent, as bytes, not decoded.
    pub headers: Vec<(Bytes, Bytes)>,
    /// The body; empty where there is none.
    pub body: Bytes,
}

impl EslFrame {
    /// The first header of that name (ASCII case is ignored).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| &v[..])
    }
}

/// Splits a stream into frames.
#[derive(Debug, Default)]
pub struct EslCodec {}

impl Decoder for EslCodec {
    type Item = EslFrame;
    type Error = FrameError;

    fn decode(&mut self, _src: &mut BytesMut) -> Result<Option<EslFrame>, FrameError> {
        Ok(None)
    }
}
