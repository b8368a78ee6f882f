//! The framing of Asterisk's manager interface (AMI).
//!
//! A session begins with one line, the banner; then messages of `Key: Value` lines follow, each ended by an empty
//! line. A line ends with CR LF or with LF alone. Values are whatever callers sent.
//!
//! Nothing but the limits ends a stream once its first line was understood: Asterisk frames by empty lines, so a
//! damaged message ends at the next of them. What a message is worth is decided in
//! [`crate::pbx::asterisk`].

use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memmem};
use nom::bytes::complete::{tag, take_while, take_while1};
use nom::character::complete::space0;
use nom::sequence::terminated;
use nom::{IResult, Parser};
use tokio_util::codec::Decoder;

use crate::wire::limits::{FrameError, MAX_FIRST_WORDS, MAX_HEADER_BLOCK, describe};

/// One message of the manager interface, or the banner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmiFrame {
    /// The first line of a session, e.g. `Asterisk Call Manager/11.0.0`.
    Banner(Bytes),
    /// A message with at least one line.
    Message(AmiMessage),
}

/// Headers in the order sent; a name may come more than once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AmiMessage {
    /// Names and values as bytes. Only the blanks between colon and value are gone.
    pub headers: Vec<(Bytes, Bytes)>,
    /// Lines without a colon (odd modules), and the text of an old `Command` answer (`Response: Follows`), in order.
    pub extra: Vec<Bytes>,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmiKind<'a> {
    /// An event, with its name.
    Event(&'a [u8]),
    /// The answer to an action, with its first word (`Success`, `Error`, `Follows`, `Goodbye`).
    Response(&'a [u8]),
    /// Neither: the remains of a damaged message.
    Damaged,
}

impl AmiMessage {
    /// The first header of that name (ASCII case is ignored).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| &v[..])
    }

    /// All headers of that name (ASCII case is ignored), in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| &v[..])
    }

    /// What this message is. `OriginateResponse` is an event that has a `Response` header too, so `Event` goes first
    /// where it comes first; some modules send an `ActionID` before either.
    #[must_use]
    pub fn kind(&self) -> AmiKind<'_> {
        for (name, value) in &self.headers {
            if name.eq_ignore_ascii_case(b"Event") {
                return AmiKind::Event(value);
            }
            if name.eq_ignore_ascii_case(b"Response") {
                return AmiKind::Response(value);
            }
        }
        AmiKind::Damaged
    }

    /// The text that a `Command` printed, in both the old and the new form.
    #[must_use]
    pub fn output(&self) -> Vec<&[u8]> {
        match self.kind() {
            AmiKind::Response(word) if word.eq_ignore_ascii_case(b"Follows") => {
                self.extra.iter().map(|line| &line[..]).collect()
            }
            _ => self.all("Output").collect(),
        }
    }
}

/// Splits a stream into messages.
#[derive(Debug, Default)]
pub struct AmiCodec {
    /// Whether the first line of the stream was understood.
    greeted: bool,
    /// Where the line begins that is being read, and how far it was searched for its end.
    line: usize,
    searched: usize,
    shape: Shape,
}

/// How the message ends that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shape {
    /// At the next empty line.
    #[default]
    Headers,
    /// At the line `--END COMMAND--`: the text of an old `Command` answer may hold empty lines.
    Output,
    /// As before, after an empty line: if a message begins here, the text has no end mark and is over.
    OutputAfterBlank,
}

const END_COMMAND: &[u8] = b"--END COMMAND--";

impl AmiCodec {
    /// Reads the first line; the banner, where it is one.
    fn greeting(&mut self, src: &mut BytesMut) -> Result<Option<AmiFrame>, FrameError> {
        let blank = src.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        src.advance(blank);
        let end = memchr(b'\n', src);
        let line = trimmed(&src[..end.unwrap_or(src.len())]);
        let printable = line.iter().all(|b| matches!(b, b'\t' | b' '..=b'~'));
        if !printable || line.len() > MAX_FIRST_WORDS {
            return Err(FrameError::Nonsense(describe(src)));
        }
        let Some(end) = end else { return Ok(None) };
        let is_banner = memmem::find(line, b"Call Manager").is_some() && memchr(b':', line).is_none();
        let is_esl = line.starts_with(b"Content-Type:");
        if is_esl || !is_banner && first_header(line).is_err() {
            return Err(FrameError::Nonsense(describe(src)));
        }
        self.greeted = true;
        if !is_banner {
            return Ok(None);
        }
        let length = line.len();
        Ok(Some(AmiFrame::Banner(src.split_to(end + 1).freeze().slice(..length))))
    }

    /// The end of the message at the start of `src`, its empty line included.
    fn message_end(&mut self, src: &[u8]) -> Option<usize> {
        while let Some(found) = memchr(b'\n', &src[self.searched..]) {
            let start = self.line;
            let line_end = self.searched + found;
            let line = trimmed(&src[start..line_end]);
            self.searched = line_end + 1;
            self.line = self.searched;
            match (self.shape, line.is_empty()) {
                (Shape::Headers, true) => return Some(self.line),
                (Shape::Headers, false) if start == 0 && begins_output(line) => self.shape = Shape::Output,
                (Shape::OutputAfterBlank, false) if begins_message(line) => return Some(start),
                (Shape::Output | Shape::OutputAfterBlank, _) if line.ends_with(END_COMMAND) => {
                    self.shape = Shape::Headers;
                }
                (Shape::Output | Shape::OutputAfterBlank, true) => self.shape = Shape::OutputAfterBlank,
                (Shape::OutputAfterBlank, false) => self.shape = Shape::Output,
                (Shape::Headers | Shape::Output, false) => {}
            }
        }
        self.searched = src.len();
        None
    }

    fn message(&mut self, src: &mut BytesMut) -> Result<Option<AmiMessage>, FrameError> {
        loop {
            let end = self.message_end(src);
            if end.unwrap_or(src.len()) > MAX_HEADER_BLOCK {
                return Err(FrameError::HeaderTooLong);
            }
            let Some(end) = end else { return Ok(None) };
            (self.line, self.searched, self.shape) = (0, 0, Shape::default());
            let message = parsed(&src.split_to(end).freeze());
            // An odd line end within a message makes a second empty line: a message of no lines is none.
            if !message.headers.is_empty() || !message.extra.is_empty() {
                return Ok(Some(message));
            }
        }
    }
}

impl Decoder for AmiCodec {
    type Item = AmiFrame;
    type Error = FrameError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<AmiFrame>, FrameError> {
        if !self.greeted {
            let banner = self.greeting(src)?;
            if banner.is_some() || !self.greeted {
                return Ok(banner);
            }
        }
        Ok(self.message(src)?.map(AmiFrame::Message))
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> Result<Option<AmiFrame>, FrameError> {
        match self.decode(src)? {
            Some(frame) => Ok(Some(frame)),
            None if src.iter().all(|b| matches!(b, b'\r' | b'\n')) => {
                src.clear();
                Ok(None)
            }
            None => Err(FrameError::Truncated(std::mem::take(src).len())),
        }
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn begins_output(line: &[u8]) -> bool {
    line.eq_ignore_ascii_case(b"Response: Follows")
}

fn begins_message(line: &[u8]) -> bool {
    line.starts_with(b"Event: ") || line.starts_with(b"Response: ")
}

/// The header that a stream without a banner may begin with.
fn first_header(line: &[u8]) -> IResult<&[u8], &[u8]> {
    terminated(take_while1(|b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')), tag(&b":"[..])).parse(line)
}

fn header(line: &[u8]) -> IResult<&[u8], &[u8]> {
    terminated(take_while(|b| b != b':'), (tag(&b":"[..]), space0)).parse(line)
}

fn parsed(text: &Bytes) -> AmiMessage {
    let mut message = AmiMessage { headers: Vec::with_capacity(24), extra: Vec::new() };
    let mut lines = text.split(|&b| b == b'\n').map(trimmed);
    while let Some(line) = lines.next() {
        match header(line) {
            Ok((value, name)) if !name.is_empty() => {
                message.headers.push((text.slice_ref(name), text.slice_ref(value)));
                if message.headers.len() == 1 && begins_output(line) {
                    parse_output(text, &mut lines, &mut message);
                }
            }
            _ if line.is_empty() => {}
            _ => message.extra.push(text.slice_ref(line)),
        }
    }
    message
}

/// Reads an old `Command` answer: after the usual headers everything is text, whatever it looks like, up to the mark.
fn parse_output<'a>(text: &Bytes, lines: &mut impl Iterator<Item = &'a [u8]>, message: &mut AmiMessage) {
    for line in lines {
        match header(line) {
            Ok((value, name)) if message.extra.is_empty() && is_output_header(name) => {
                message.headers.push((text.slice_ref(name), text.slice_ref(value)));
            }
            _ => {
                let shown = line.strip_suffix(END_COMMAND);
                if !shown.unwrap_or(line).is_empty() || shown.is_none() {
                    message.extra.push(text.slice_ref(shown.unwrap_or(line)));
                }
                if shown.is_some() {
                    return;
                }
            }
        }
    }
    // Without the mark, the empty lines at the end belong to the framing.
    while message.extra.last().is_some_and(Bytes::is_empty) {
        message.extra.pop();
    }
}

fn is_output_header(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"Privilege") || name.eq_ignore_ascii_case(b"ActionID")
}
