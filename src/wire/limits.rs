//! Bounds on what a peer can make us hold, each with its reason, and what is said of a peer that breaks them.

/// Longest header block of a frame. Real channel events with large SDPs reach some 200 KB.
pub const MAX_HEADER_BLOCK: usize = 1 << 20;

/// Longest body of a frame. FreeSWITCH itself accepts no more.
pub const MAX_BODY: usize = 16 << 20;

/// Longest line that Asterisk is sent: it takes 1,024 bytes with the line end and answers oddly at the edge.
pub const MAX_AMI_LINE: usize = 1000;

/// Longest first line of a stream, and longest name of a header. Whoever sends more without a line end or a colon
/// speaks another protocol.
pub(crate) const MAX_FIRST_WORDS: usize = 256;

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
    /// The stream ended within a frame.
    #[error("the stream ends within a frame, {0} bytes after its beginning")]
    Truncated(usize),
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Says in an operator's words what a stream looks like that is not what was expected.
pub(crate) fn describe(start: &[u8]) -> String {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"SSH-", "an SSH server answers here"),
        (b"HTTP/", "an HTTP server answers here"),
        (b"<!DOCTYPE", "a web page comes from here"),
        (b"<html", "a web page comes from here"),
        (b"\x15\x03", "a TLS server answers here (an AMI node may need tls = true)"),
        (b"\x16\x03", "a TLS client or server speaks here (an AMI node may need tls = true)"),
        (b"220 ", "a mail or FTP server answers here"),
        (b"220-", "a mail or FTP server answers here"),
        (b"RFB ", "a VNC server answers here"),
        (b"Asterisk Call Manager", "Asterisk's manager interface answers here (is the node's kind right?)"),
        (b"Content-Type: auth/request", "FreeSWITCH's event socket answers here (is the node's kind right?)"),
        (b"Content-Type: text/rude-rejection", "FreeSWITCH's event socket answers here (is the node's kind right?)"),
    ];
    let line = start.split(|&b| b == b'\n' || b == b'\r').next().unwrap_or_default();
    let shown = line.get(..64).unwrap_or(line).escape_ascii();
    match KNOWN.iter().find(|(prefix, _)| start.starts_with(prefix)) {
        Some((_, what)) => format!("{what}: it begins with \"{shown}\""),
        None => format!("it begins with \"{shown}\""),
    }
}
