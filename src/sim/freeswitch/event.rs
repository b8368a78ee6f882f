//! FreeSWITCH events, and how they look on the wire.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::time::Timestamp;

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Text, as bytes: callers' names need not be UTF-8.
    Text(Vec<u8>),
    /// An array, which FreeSWITCH makes of a variable that was pushed to.
    List(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into_bytes())
    }
}

impl From<Vec<u8>> for Value {
    fn from(text: Vec<u8>) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        number.to_string().into()
    }
}

impl Value {
    /// The text that a filter compares.
    fn matches(&self, wanted: &str) -> bool {
        // Of regular expressions only "anything": no value here is empty.
        if wanted == "/./" {
            return true;
        }
        match self {
            Self::Text(text) => text.eq_ignore_ascii_case(wanted.as_bytes()),
            Self::List(items) => items.iter().any(|item| item.eq_ignore_ascii_case(wanted)),
        }
    }
}

/// Where in FreeSWITCH's source an event says that it comes from.
pub(crate) type Origin = (&'static str, &'static str, u32);

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    /// Of a CUSTOM event.
    pub(crate) subclass: Option<&'static str>,
    fields: Vec<(Cow<'static, str>, Value)>,
    body: Option<String>,
}

impl Event {
    /// An event without any field.
    pub(crate) fn bare(name: &'static str) -> Self {
        Self { name, subclass: None, fields: Vec::with_capacity(192), body: None }
    }

    /// Adds a field; empty values do not exist in FreeSWITCH.
    pub(crate) fn push(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        let value = value.into();
        if value != Value::Text(Vec::new()) {
            self.fields.push((name.into(), value));
        }
    }

    pub(crate) fn set_body(&mut self, body: &str) {
        self.body = Some(body.to_owned());
    }

    /// Whether these filters let it through: one of the positive ones must match, and none of the negative ones
    /// (`-value`) may. Without filters everything goes.
    pub(crate) fn passes(&self, filters: &[(String, String)]) -> bool {
        let matches = |header: &str, wanted: &str| {
            self.fields.iter().any(|(name, value)| name.eq_ignore_ascii_case(header) && value.matches(wanted))
        };
        filters.is_empty()
            || filters.iter().any(|(header, wanted)| matches(header, wanted))
                && !filters.iter().any(|(header, value)| value.strip_prefix('-').is_some_and(|v| matches(header, v)))
    }

    /// The frame of `event plain`.
    pub(crate) fn plain(&self) -> Vec<u8> {
        let mut inner = Vec::with_capacity(8 * 1024);
        for (name, value) in &self.fields {
            inner.extend_from_slice(name.as_bytes());
            inner.extend_from_slice(b": ");
            match value {
                Value::Text(text) => url_encode(text, &mut inner),
                Value::List(items) if items.len() == 1 => url_encode(items[0].as_bytes(), &mut inner),
                Value::List(items) => url_encode(format!("ARRAY::{}", items.join("|:")).as_bytes(), &mut inner),
            }
            inner.push(b'\n');
        }
        match &self.body {
            Some(body) => inner.extend_from_slice(format!("Content-Length: {}\n\n{body}", body.len()).as_bytes()),
            None => inner.push(b'\n'),
        }
        frame("text/event-plain", &inner)
    }

    /// The frame of `event json`.
    pub(crate) fn json(&self) -> Vec<u8> {
        frame("text/event-json", &self.json_object())
    }

    /// The JSON object alone, as `uuid_dump` answers it. Names that come twice come twice here as well.
    pub(crate) fn json_object(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 * 1024);
        for (name, value) in &self.fields {
            out.push(if out.is_empty() { b'{' } else { b',' });
            json_string(name.as_bytes(), &mut out);
            out.push(b':');
            match value {
                Value::Text(text) => json_string(text, &mut out),
                Value::List(items) => {
                    out.push(b'[');
                    for (index, item) in items.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        json_string(item.as_bytes(), &mut out);
                    }
                    out.push(b']');
                }
            }
        }
        if let Some(body) = &self.body {
            out.extend_from_slice(format!(",\"Content-Length\":\"{}\",\"_body\":", body.len()).as_bytes());
            json_string(body.as_bytes(), &mut out);
        }
        out.push(b'}');
        out
    }
}

fn frame(content_type: &str, inner: &[u8]) -> Vec<u8> {
    let mut out = format!("Content-Length: {}\nContent-Type: {content_type}\n\n", inner.len()).into_bytes();
    out.extend_from_slice(inner);
    out
}

/// FreeSWITCH's own encoding: a `%` that is followed by two upper-case hex digits stays as it is.
fn url_encode(text: &[u8], out: &mut Vec<u8>) {
    const UNSAFE: &[u8] = b" \"#%&+:;<=>?@[\\]^`{|}";
    let hex = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(b));
    for (at, byte) in text.iter().enumerate() {
        let encoded_already = *byte == b'%' && hex(text.get(at + 1)) && hex(text.get(at + 2));
        if (*byte < 0x20 || *byte > 0x7e || UNSAFE.contains(byte)) && !encoded_already {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        } else {
            out.push(*byte);
        }
    }
}

/// Quotes and escapes; bytes of 0x80 and above go out as they are, valid UTF-8 or not, as FreeSWITCH does it.
pub(crate) fn json_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// `2026-11-30 05:12:34`.
pub(crate) fn date(at: Timestamp) -> String {
    strftime(at, "%Y-%m-%d %H:%M:%S")
}

/// `Mon, 30 Nov 2026 05:12:34 GMT`.
pub(crate) fn date_gmt(at: Timestamp) -> String {
    strftime(at, "%a, %d %b %Y %H:%M:%S GMT")
}

fn strftime(at: Timestamp, format: &str) -> String {
    jiff::Timestamp::from_microsecond(at.as_micros())
        .map_or_else(|_| String::new(), |at| at.strftime(format).to_string())
}

/// `0 years, 0 days, 0 hours, 20 minutes, 5 seconds, 138 milliseconds, 198 microseconds`.
pub(crate) fn uptime(micros: u128) -> String {
    let (millis, secs) = (micros / 1000, micros / 1_000_000);
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    let plural = |count: u128, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut text = String::new();
    let parts = [
        plural(days / 365, "year"),
        plural(days % 365, "day"),
        plural(hours % 24, "hour"),
        plural(minutes % 60, "minute"),
        plural(secs % 60, "second"),
        plural(millis % 1000, "millisecond"),
        plural(micros % 1000, "microsecond"),
    ];
    for (index, part) in parts.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{part}", if index == 0 { "" } else { ", " });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &[u8]) -> String {
        let mut out = Vec::new();
        url_encode(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn encodes_as_freeswitch_does() {
        assert_eq!(encoded(b"sofia/internal/15551000@127.0.0.1:6270"), "sofia/internal/15551000%40127.0.0.1%3A6270");
        assert_eq!(encoded(b"\"Caller One\" <sip:1>;tag=x+y"), "%22Caller%20One%22%20%3Csip%3A1%3E%3Btag%3Dx%2By");
        assert_eq!(encoded(b"caf\xe9\r\n"), "caf%E9%0D%0A");
        assert_eq!(encoded(b"a%20b a%2fb 100%"), "a%20b%20a%252fb%20100%25");
    }

    #[test]
    fn a_list_of_one_is_bare_in_plain_and_a_list_in_json() {
        let mut event = Event::bare("X");
        event.push("one", Value::List(vec!["a".into()]));
        event.push("two", Value::List(vec!["a".into(), "b".into()]));
        event.push("empty", "");
        let plain = String::from_utf8(event.plain()).unwrap();
        assert!(plain.ends_with("one: a\ntwo: ARRAY%3A%3Aa%7C%3Ab\n\n"), "{plain}");
        assert_eq!(event.json_object(), br#"{"one":["a"],"two":["a","b"]}"#);
    }

    #[test]
    fn filters_compare_whole_values_and_any_of_them_is_enough() {
        let mut event = Event::bare("X");
        event.push("Call-Direction", "outbound");
        let filter = |header: &str, value: &str| (header.to_owned(), value.to_owned());
        assert!(event.passes(&[]));
        assert!(event.passes(&[filter("Event-Name", "HEARTBEAT"), filter("call-direction", "OUTBOUND")]));
        assert!(!event.passes(&[filter("Call-Direction", "out")]));
    }

    #[test]
    fn the_uptime_is_written_out() {
        assert_eq!(
            uptime(1_205_138_198),
            "0 years, 0 days, 0 hours, 20 minutes, 5 seconds, 138 milliseconds, 198 microseconds"
        );
        assert_eq!(date_gmt(Timestamp::from_secs(1_796_015_554)), "Mon, 30 Nov 2026 05:12:34 GMT");
    }
}
