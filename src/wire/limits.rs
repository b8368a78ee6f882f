//! Bounds on what a peer can make us hold, each with its reason.

/// Longest header block of a frame. Real channel events with large SDPs reach some 200 KB.
pub const MAX_HEADER_BLOCK: usize = 1 << 20;

/// Longest body of a frame. FreeSWITCH itself accepts no more.
pub const MAX_BODY: usize = 16 << 20;

/// Longest line that Asterisk is sent: it takes 1,024 bytes with the line end and answers oddly at the edge.
pub const MAX_AMI_LINE: usize = 1000;

/// Why a stream cannot be followed any further.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A header block is longer than [`MAX_HEADER_BLOCK`].
    #[error("a header block longer than {MAX_HEADER_BLOCK} bytes")]
    HeaderTooLong,
    /// A body longer than [`MAX_BODY`] was announced.
    #[error("a body of {0} bytes was announced; the limit is {MAX_BODY}")]
    BodyTooLong(u64),
    /// The stream does not speak the protocol.
    #[error("not the protocol expected: {0}")]
    Nonsense(String),
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
