//! The framing of FreeSWITCH's event socket (ESL), and its two encodings of an event.
//!
//! A frame is a block of `Name: value` lines ended by an empty line, and a body of exactly `Content-Length` bytes;
//! nothing separates a body from the next frame. An event is carried in a body, either as lines with percent-encoded
//! values (`text/event-plain`) or as one JSON object (`text/event-json`); [`EslEvent`] is the same for both.
//!
//! Safe against any input: work is linear in the bytes, whatever the cut of the reads, and memory is bounded by
//! [`limits`](crate::wire::limits).

use std::borrow::Cow;

use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memmem};
use nom::bytes::complete::{tag, take_while, take_while1};
use nom::character::complete::space0;
use nom::combinator::{all_consuming, map_opt};
use nom::sequence::terminated;
use nom::{IResult, Parser};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tokio_util::codec::Decoder;

use crate::wire::limits::{FrameError, MAX_BODY, MAX_FIRST_WORDS, MAX_HEADER_BLOCK, describe};

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

    /// What the frame is, e.g. `command/reply`. Every frame that the codec lets through has one.
    #[must_use]
    pub fn content_type(&self) -> &[u8] {
        self.header("Content-Type").unwrap_or_default()
    }

    /// The event that the frame carries; `None` where it is a frame of another kind.
    #[must_use]
    pub fn event(&self) -> Option<Result<EslEvent, BadEvent>> {
        match self.content_type() {
            b"text/event-plain" => Some(EslEvent::from_plain(&self.body)),
            b"text/event-json" => Some(EslEvent::from_json(&self.body)),
            _ => None,
        }
    }
}

/// Splits a stream into frames.
///
/// Any error ends the stream: FreeSWITCH frames by counting bytes, so a stream that is out of step stays so.
#[derive(Debug, Default)]
pub struct EslCodec {
    /// Where the line begins that is being read, and how far it was searched for its end.
    line: usize,
    searched: usize,
    /// The frame whose body is awaited, and the length of that body.
    head: Option<(Vec<(Bytes, Bytes)>, usize)>,
}

impl EslCodec {
    /// The end of the header block at the start of `src`, the empty line included.
    fn block_end(&mut self, src: &[u8]) -> Option<usize> {
        while let Some(found) = memchr(b'\n', &src[self.searched..]) {
            let line_end = self.searched + found;
            let empty = matches!(&src[self.line..line_end], b"" | b"\r");
            self.searched = line_end + 1;
            self.line = self.searched;
            if empty {
                return Some(self.searched);
            }
        }
        self.searched = src.len();
        None
    }

    fn decode_head(&mut self, src: &mut BytesMut) -> Result<bool, FrameError> {
        if self.searched == 0 {
            let blank = src.iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
            src.advance(blank);
        }
        check_start(src)?;
        let end = self.block_end(src);
        if end.unwrap_or(src.len()) > MAX_HEADER_BLOCK {
            return Err(FrameError::HeaderTooLong);
        }
        let Some(end) = end else { return Ok(false) };
        let end = cut_reply_end(&src[..end]).unwrap_or(end);
        (self.line, self.searched) = (0, 0);
        let headers = header_block(&src.split_to(end).freeze())?;
        let length = body_length(&headers)?;
        self.head = Some((headers, length));
        Ok(true)
    }
}

impl Decoder for EslCodec {
    type Item = EslFrame;
    type Error = FrameError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<EslFrame>, FrameError> {
        if self.head.is_none() && !self.decode_head(src)? {
            return Ok(None);
        }
        match self.head.take() {
            Some((headers, length)) if src.len() >= length => {
                Ok(Some(EslFrame { headers, body: src.split_to(length).freeze() }))
            }
            waiting => {
                self.head = waiting;
                Ok(None)
            }
        }
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> Result<Option<EslFrame>, FrameError> {
        match self.decode(src)? {
            Some(frame) => Ok(Some(frame)),
            None if src.is_empty() && self.head.is_none() => Ok(None),
            None => Err(FrameError::Truncated(std::mem::take(src).len())),
        }
    }
}

/// Whether a frame can begin like this, as soon as that can be told: a header name, then a colon.
fn check_start(src: &[u8]) -> Result<(), FrameError> {
    let name = src.iter().take(MAX_FIRST_WORDS).take_while(|&&b| is_outer_name(b)).count();
    match src.get(name) {
        None => Ok(()),
        Some(b':') if name > 0 => Ok(()),
        Some(_) => Err(FrameError::Nonsense(describe(src))),
    }
}

fn is_outer_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Where the reply to `userauth` really ends if it was cut.
///
/// FreeSWITCH builds that reply in 512 bytes; a long list of allowed events or commands is cut together with the empty
/// line, and the next frame is glued to it. No such list contains the name of the header that a frame begins with.
fn cut_reply_end(block: &[u8]) -> Option<usize> {
    const START: &[u8] = b"Content-Type: command/reply\nReply-Text: +OK accepted";
    let rest = block.strip_prefix(START)?;
    let next = [&b"Content-Type: "[..], b"Content-Length: "];
    next.iter().filter_map(|name| memmem::find(rest, name)).min().map(|at| START.len() + at)
}

/// The lines of a block that ends with an empty line (or, where a reply was cut, without any line end).
fn header_block(block: &Bytes) -> Result<Vec<(Bytes, Bytes)>, FrameError> {
    let mut headers = Vec::with_capacity(4);
    let mut rest = &block[..];
    while !matches!(rest, b"" | b"\n" | b"\r\n") {
        let (after, (name, value)) = outer_header(rest).map_err(|_| FrameError::Nonsense(describe(rest)))?;
        headers.push((block.slice_ref(name), block.slice_ref(value)));
        rest = after;
    }
    Ok(headers)
}

fn outer_header(input: &[u8]) -> IResult<&[u8], (&[u8], &[u8])> {
    let (input, name) = terminated(take_while1(is_outer_name), (tag(&b":"[..]), space0)).parse(input)?;
    let (input, value) = take_while(|b| b != b'\n')(input)?;
    let value = value.strip_suffix(b"\r").unwrap_or(value);
    Ok((input.get(1..).unwrap_or_default(), (name, value)))
}

/// How many bytes of body follow a header block. Where the length is given twice, the last one holds.
fn body_length(headers: &[(Bytes, Bytes)]) -> Result<usize, FrameError> {
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"Content-Type")) {
        let first = headers.first().map_or(&b""[..], |(name, _)| name);
        return Err(FrameError::Nonsense(format!(
            "a header block without Content-Type (it begins with \"{}\")",
            first.escape_ascii()
        )));
    }
    let Some((_, text)) = headers.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(b"Content-Length")) else {
        return Ok(0);
    };
    let Some(length) = decimal(text) else {
        let shown = text.get(..32).unwrap_or(text).escape_ascii();
        return Err(FrameError::Nonsense(format!("Content-Length is \"{shown}\"")));
    };
    usize::try_from(length).ok().filter(|&length| length <= MAX_BODY).ok_or(FrameError::BodyTooLong(length))
}

/// A decimal number without a sign; blanks around it are ignored, and it saturates.
fn decimal(text: &[u8]) -> Option<u64> {
    let digits = take_while1::<_, &[u8], nom::error::Error<&[u8]>>(|b: u8| b.is_ascii_digit());
    let number = map_opt(digits, |digits: &[u8]| {
        Some(digits.iter().fold(0u64, |sum, d| sum.saturating_mul(10).saturating_add(u64::from(d - b'0'))))
    });
    all_consuming(number).parse(text.trim_ascii()).ok().map(|(_, number)| number)
}

/// Why the body of an event frame is not an event. The frame itself was whole, so the stream can be followed on; the
/// event is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    /// The JSON is broken.
    #[error("an event that is not valid JSON: {0}")]
    Json(String),
    /// The lines of a plain event break off before the empty one, or its body is shorter than announced.
    #[error("an event that breaks off")]
    Cut,
    /// No event has no name.
    #[error("an event without a name")]
    Nameless,
}

/// An event of FreeSWITCH, or the description of a leg in the same form.
///
/// Values are bytes: what callers send need not be UTF-8.
#[derive(Clone, Debug)]
pub struct EslEvent {
    fields: Fields,
    body: Bytes,
}

#[derive(Clone, Debug)]
enum Fields {
    /// The lines as received; values are decoded when they are looked at.
    Plain {
        text: Bytes,
        lines: Vec<Line>,
    },
    Json(Vec<(String, JsonValue)>),
}

/// Where name and value of a line lie in the text.
#[derive(Clone, Copy, Debug)]
struct Line {
    name: (u32, u32),
    value: (u32, u32),
}

#[derive(Clone, Debug)]
enum JsonValue {
    One(String),
    Many(Vec<String>),
}

impl EslEvent {
    /// From the body of a `text/event-plain` frame.
    ///
    /// # Errors
    /// [`BadEvent::Cut`], [`BadEvent::Nameless`].
    pub fn from_plain(text: &Bytes) -> Result<Self, BadEvent> {
        let (lines, head) = plain_lines(text).ok_or(BadEvent::Cut)?;
        let mut event = Self { fields: Fields::Plain { text: text.clone(), lines }, body: Bytes::new() };
        // The last Content-Length is the one that FreeSWITCH adds for the body; a field of the event itself may have
        // the same name.
        let length = event.fields().filter(|(name, _)| *name == b"Content-Length").last();
        let length = length.and_then(|(_, value)| decimal(value)).and_then(|length| usize::try_from(length).ok());
        let rest = text.len() - head;
        let length = length.unwrap_or(rest);
        if length > rest {
            return Err(BadEvent::Cut);
        }
        event.body = text.slice(head..head + length);
        event.named()
    }

    /// From the body of a `text/event-json` frame.
    ///
    /// # Errors
    /// [`BadEvent`].
    pub fn from_json(text: &[u8]) -> Result<Self, BadEvent> {
        Self::description(text)?.named()
    }

    /// From the answer to `uuid_dump <uuid> json`, which describes a leg and names no event.
    ///
    /// # Errors
    /// [`BadEvent::Json`].
    pub fn description(text: &[u8]) -> Result<Self, BadEvent> {
        let text = String::from_utf8_lossy(text);
        let Object(mut fields) = serde_json::from_str(&text).map_err(|error| BadEvent::Json(error.to_string()))?;
        let body = match fields.iter().position(|(name, _)| name == "_body") {
            Some(at) => match fields.remove(at).1 {
                JsonValue::One(body) => Bytes::from(body),
                JsonValue::Many(_) => Bytes::new(),
            },
            None => Bytes::new(),
        };
        Ok(Self { fields: Fields::Json(fields), body })
    }

    fn named(self) -> Result<Self, BadEvent> {
        if self.get("Event-Name").is_some() { Ok(self) } else { Err(BadEvent::Nameless) }
    }

    /// The event's name; empty for a description.
    #[must_use]
    pub fn name(&self) -> Cow<'_, [u8]> {
        self.get("Event-Name").unwrap_or_default()
    }

    /// The first field of that name (names are compared exactly); the first element where it is an array.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.fields().find(|(n, _)| *n == name.as_bytes()).map(|(_, value)| self.first(value))
    }

    /// All elements of the first field of that name: one where it is no array, none where there is no such field.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<Cow<'_, [u8]>> {
        match &self.fields {
            Fields::Json(fields) => match fields.iter().find(|(n, _)| n == name) {
                None => Vec::new(),
                Some((_, JsonValue::One(value))) => vec![Cow::Borrowed(value.as_bytes())],
                Some((_, JsonValue::Many(values))) => values.iter().map(|v| Cow::Borrowed(v.as_bytes())).collect(),
            },
            Fields::Plain { .. } => match self.fields().find(|(n, _)| *n == name.as_bytes()) {
                None => Vec::new(),
                Some((_, raw)) => elements(percent_decoded(raw)),
            },
        }
    }

    /// Like [`EslEvent::get`], as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name).map(lossy)
    }

    /// All fields in the order sent, arrays by their first element.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Cow<'_, [u8]>)> {
        self.fields().map(|(name, value)| (name, self.first(value)))
    }

    /// The event's own body (the output of a background job, for one), as sent.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Names and values, the latter as they are kept: not decoded where the event is plain.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (lines, text, json) = match &self.fields {
            Fields::Plain { text, lines } => (&lines[..], &text[..], &[][..]),
            Fields::Json(fields) => (&[][..], &[][..], &fields[..]),
        };
        let part = |(start, end): (u32, u32)| &text[start as usize..end as usize];
        let plain = lines.iter().map(move |line| (part(line.name), part(line.value)));
        plain.chain(json.iter().map(|(name, value)| (name.as_bytes(), value.first().as_bytes())))
    }

    /// Decodes a value that [`EslEvent::fields`] gave.
    pub(crate) fn first<'a>(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.fields {
            Fields::Json(_) => Cow::Borrowed(value),
            Fields::Plain { .. } => match percent_decoded(value) {
                array if array.starts_with(ARRAY) => elements(array).into_iter().next().unwrap_or_default(),
                value => value,
            },
        }
    }
}

/// The lines of a plain event up to the empty one, and where what follows them begins. `None` where there is no empty
/// one: FreeSWITCH always sends it.
fn plain_lines(text: &[u8]) -> Option<(Vec<Line>, usize)> {
    let mut lines = Vec::with_capacity(text.len() / 40);
    let mut start = 0;
    while let Some(length) = memchr(b'\n', &text[start..]) {
        let line = &text[start..start + length];
        if line.is_empty() {
            return Some((lines, start + 1));
        }
        lines.extend(plain_line(start, line));
        start += length + 1;
    }
    None
}

/// Splits a line at its first colon with a blank behind it. Names are not encoded and may hold anything else.
fn plain_line(start: usize, line: &[u8]) -> Option<Line> {
    let (name, value) = match memmem::find(line, b": ") {
        Some(colon) => (colon, colon + 2),
        None => (line.strip_suffix(b":")?.len(), line.len()),
    };
    let at = |offset: usize| u32::try_from(start + offset).ok();
    Some(Line { name: (at(0)?, at(name)?), value: (at(value)?, at(line.len())?) })
}

const ARRAY: &[u8] = b"ARRAY::";

/// The elements of a value that may be an array (`ARRAY::a|:b`).
fn elements(value: Cow<'_, [u8]>) -> Vec<Cow<'_, [u8]>> {
    let Some(list) = value.strip_prefix(ARRAY) else { return vec![value] };
    let mut rest = list;
    let mut found = Vec::new();
    while let Some(at) = memmem::find(rest, b"|:") {
        found.push(Cow::Owned(rest[..at].to_vec()));
        rest = &rest[at + 2..];
    }
    found.push(Cow::Owned(rest.to_vec()));
    found
}

/// Decodes `%XX`, once; a `%` without two hex digits behind it, and `+`, stand for themselves.
fn percent_decoded(value: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(b'%', value) else { return Cow::Borrowed(value) };
    let mut decoded = Vec::with_capacity(value.len());
    decoded.extend_from_slice(&value[..first]);
    let mut rest = &value[first..];
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, behind @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                decoded.push(hex_digit(*high) << 4 | hex_digit(*low));
                rest = behind;
            }
            _ => decoded.push(*byte),
        }
    }
    Cow::Owned(decoded)
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
    }
}

/// Text for people and for keys; what is not UTF-8 is replaced.
pub(crate) fn lossy(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

impl JsonValue {
    fn first(&self) -> &str {
        match self {
            Self::One(value) => value,
            Self::Many(values) => values.first().map_or("", String::as_str),
        }
    }
}

/// A JSON object with its keys in order, repeated ones included.
struct Object(Vec<(String, JsonValue)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::with_capacity(128);
                while let Some(name) = map.next_key::<String>()? {
                    if let Some(value) = map.next_value::<MaybeValue>()?.0 {
                        fields.push((name, value));
                    }
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// A text, a list of texts, or something that no event holds (left out; a number counts as its digits).
struct MaybeValue(Option<JsonValue>);

impl<'de> Deserialize<'de> for MaybeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;
        impl<'de> Visitor<'de> for Value {
            type Value = MaybeValue;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value")
            }
            fn visit_str<E>(self, text: &str) -> Result<MaybeValue, E> {
                Ok(MaybeValue(Some(JsonValue::One(text.to_owned()))))
            }
            fn visit_string<E>(self, text: String) -> Result<MaybeValue, E> {
                Ok(MaybeValue(Some(JsonValue::One(text))))
            }
            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<MaybeValue, E> {
                self.visit_string(value.to_string())
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<MaybeValue, E> {
                self.visit_string(value.to_string())
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<MaybeValue, E> {
                self.visit_string(value.to_string())
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<MaybeValue, E> {
                self.visit_string(value.to_string())
            }
            fn visit_unit<E>(self) -> Result<MaybeValue, E> {
                Ok(MaybeValue(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MaybeValue, A::Error> {
                let mut values = Vec::new();
                while let Some(MaybeValue(value)) = seq.next_element()? {
                    if let Some(JsonValue::One(value)) = value {
                        values.push(value);
                    }
                }
                Ok(MaybeValue(Some(JsonValue::Many(values))))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MaybeValue, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(MaybeValue(None))
            }
        }
        deserializer.deserialize_any(Value)
    }
}
