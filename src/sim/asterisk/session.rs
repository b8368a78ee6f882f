//! The dialogue of the manager interface with one client.

use std::time::Duration;

use bytes::BytesMut;
use md5::{Digest, Md5};

use crate::sim::asterisk::class::Classes;
use crate::sim::asterisk::message::{Event, Message};
use crate::sim::asterisk::{Asterisk, action};
use crate::sim::fault::Conditions;
use crate::sim::pbx::{Output, Pbx, Session};
use crate::time::Timestamp;

/// Longest line of an action, with its end.
const MAX_LINE: usize = 1024;
/// Most lines of an action.
const MAX_LINES: usize = 128;
/// How long a refused login waits for its answer.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// What one client hears.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    pub(super) classes: Classes,
    filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Filter {
    exclude: bool,
    /// Name of the event, in advanced filters.
    name: Option<String>,
    text: Option<Pattern>,
}

impl Filter {
    fn matches(&self, event: &Event) -> bool {
        let named = self.name.as_deref().is_none_or(|name| name == event.name);
        named && self.text.as_ref().is_none_or(|text| text.matches(&event.bytes))
    }
}

/// As much of a regular expression as filters of events need: text, `^` before it, `(one|another)` after it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    anchored: bool,
    any_of: Vec<Vec<u8>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let (anchored, text) = text.strip_prefix('^').map_or((false, text), |text| (true, text));
        let group = text.strip_suffix(')').and_then(|text| text.split_once('('));
        let any_of = match group {
            Some((before, inside)) => inside.split('|').map(|word| format!("{before}{word}").into_bytes()).collect(),
            None => vec![text.as_bytes().to_vec()],
        };
        Self { anchored, any_of }
    }

    fn matches(&self, text: &[u8]) -> bool {
        self.any_of.iter().any(|wanted| {
            text.starts_with(wanted) || (!self.anchored && text.windows(wanted.len().max(1)).any(|at| at == wanted))
        })
    }
}

impl Subscription {
    /// Includes first, then excludes; without includes everything passes the first.
    pub(super) fn wants(&self, event: &Event) -> bool {
        if !self.classes.contains(event.classes) || self.classes == Classes::NONE {
            return false;
        }
        let mut includes = self.filters.iter().filter(|filter| !filter.exclude).peekable();
        let included = includes.peek().is_none() || includes.any(|filter| filter.matches(event));
        included && !self.filters.iter().any(|filter| filter.exclude && filter.matches(event))
    }

    /// `Filter`, with or without `MatchCriteria`.
    pub(super) fn add_filter(&mut self, criteria: Option<&str>, filter: &str) {
        let Some(criteria) = criteria else {
            let (exclude, text) = filter.strip_prefix('!').map_or((false, filter), |text| (true, text));
            self.filters.push(Filter { exclude, name: None, text: Some(Pattern::new(text)) });
            return;
        };
        let argument = |key: &str| {
            let (_, after) = criteria.split_once(&format!("{key}("))?;
            after.split_once(')').map(|(inside, _)| inside.to_owned())
        };
        let text = if filter.is_empty() { None } else { Some(Pattern::new(filter)) };
        let exclude = argument("action").as_deref() == Some("exclude");
        self.filters.push(Filter { exclude, name: argument("name"), text });
    }
}

/// An action: its headers, as far as they count.
#[derive(Debug)]
pub(super) struct Action<'a> {
    headers: Vec<(&'a str, &'a str)>,
}

impl<'a> Action<'a> {
    /// A header; of several the first one counts.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    pub(super) fn text(&self, name: &str) -> &'a str {
        self.get(name).unwrap_or_default()
    }

    pub(super) fn id(&self) -> Option<&'a str> {
        self.get("ActionID").filter(|id| !id.is_empty())
    }

    /// `Response: Error` with a message.
    pub(super) fn error(&self, message: &str) -> Output {
        self.respond("Error", message)
    }

    /// `Response: Success` with a message.
    pub(super) fn success(&self, message: &str) -> Output {
        self.respond("Success", message)
    }

    fn respond(&self, kind: &str, message: &str) -> Output {
        let mut response = Message::response(kind, self.id());
        response.push("Message", message);
        Output::Say(response.finish())
    }
}

/// One client's dialogue.
pub(crate) struct AmiSession {
    connection: u64,
    logged_in: bool,
    challenge: String,
}

impl AmiSession {
    pub(super) fn new(connection: u64) -> Self {
        Self { connection, logged_in: false, challenge: String::new() }
    }

    fn log_in(
        &mut self,
        pbx: &mut Pbx<Asterisk>,
        at: Timestamp,
        conditions: &Conditions,
        action: &Action<'_>,
    ) -> Vec<Output> {
        if self.logged_in {
            return vec![action.success("Already authenticated")];
        }
        let asterisk = &pbx.dialect;
        let known = action.text("Username").eq_ignore_ascii_case(&asterisk.username);
        let secret = if action.text("AuthType").eq_ignore_ascii_case("MD5") {
            !self.challenge.is_empty() && action.text("Key") == challenge_key(&self.challenge, &asterisk.password)
        } else {
            action.text("Secret") == asterisk.password
        };
        if !known || !secret || conditions.refuse_password || conditions.refuse_peers {
            return vec![Output::Wait(REFUSAL_DELAY), action.error("Authentication failed"), Output::Close];
        }
        self.logged_in = true;
        let asked = action.get("Events").map_or(Classes::ALL, Classes::parse);
        let heard = asked.and(asterisk.read);
        let mut outputs = vec![action.success("Authentication accepted")];
        if heard.contains(Classes::SYSTEM) {
            let up = at.since(asterisk.started).as_secs().to_string();
            let mut booted = Message::untimed("FullyBooted", Classes::SYSTEM);
            booted.push("Uptime", &up);
            booted.push("LastReload", &up);
            booted.push("Status", "Fully Booted");
            outputs.push(Output::Say(booted.finish()));
        }
        if let Some(subscription) = pbx.subscription(self.connection) {
            subscription.classes = heard;
        }
        outputs
    }

    fn challenge(&mut self, pbx: &mut Pbx<Asterisk>, action: &Action<'_>) -> Vec<Output> {
        if !action.text("AuthType").eq_ignore_ascii_case("MD5") {
            return vec![action.error("Must specify AuthType")];
        }
        self.challenge = pbx.dialect.ids.u32(100_000_000..1_000_000_000).to_string();
        let mut response = Message::response("Success", action.id());
        response.push("Challenge", &self.challenge);
        vec![Output::Say(response.finish())]
    }

    fn events(&self, pbx: &mut Pbx<Asterisk>, action: &Action<'_>) -> Vec<Output> {
        let mask = action.text("EventMask");
        if mask.is_empty() {
            return vec![action.error("Invalid event mask")];
        }
        let heard = Classes::parse(mask).and(pbx.dialect.read);
        if let Some(subscription) = pbx.subscription(self.connection) {
            subscription.classes = heard;
        }
        let mut response = Message::response("Success", action.id());
        response.push("Events", if heard == Classes::NONE { "Off" } else { "On" });
        vec![Output::Say(response.finish())]
    }
}

/// What proves the secret: MD5 over challenge and secret, in lower-case hex.
fn challenge_key(challenge: &str, secret: &str) -> String {
    let digest = Md5::new().chain_update(challenge).chain_update(secret).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes the lines of an action apart.
fn parse(text: &str) -> Action<'_> {
    let headers = text
        .lines()
        .map(|line| line.split('\0').next().unwrap_or_default())
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim_start()))
        .collect();
    Action { headers }
}

impl Session<Asterisk> for AmiSession {
    fn greet(&mut self, pbx: &mut Pbx<Asterisk>, _conditions: &Conditions) -> Vec<Output> {
        vec![Output::Say(format!("Asterisk Call Manager/{}\r\n", pbx.dialect.version.banner()).into_bytes())]
    }

    fn take(&mut self, buffer: &mut BytesMut) -> Option<Vec<u8>> {
        let mut start = 0;
        while let Some(length) = buffer[start..].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[start..start + length];
            let blank = line.is_empty() || line == b"\r";
            start += length + 1;
            if blank {
                return Some(buffer.split_to(start).to_vec());
            }
        }
        None
    }

    fn answer(
        &mut self,
        pbx: &mut Pbx<Asterisk>,
        at: Timestamp,
        conditions: &Conditions,
        command: &[u8],
    ) -> Vec<Output> {
        let text = String::from_utf8_lossy(command);
        let action = parse(&text);
        if command.split_inclusive(|byte| *byte == b'\n').any(|line| line.len() > MAX_LINE) {
            return vec![action.error("Failed to parse message: line too long")];
        }
        if text.lines().count() > MAX_LINES {
            return vec![action.error("Too many lines in message or allocation failure")];
        }
        let name = action.text("Action").trim().to_ascii_lowercase();
        match name.as_str() {
            "" => vec![action.error("Missing action in request")],
            "login" => self.log_in(pbx, at, conditions, &action),
            "challenge" => self.challenge(pbx, &action),
            "logoff" => {
                let mut response = Message::response("Goodbye", action.id());
                response.push("Message", "Thanks for all the fish.");
                vec![Output::Say(response.finish()), Output::Close]
            }
            _ if !self.logged_in => vec![action.error("Permission denied")],
            "events" => self.events(pbx, &action),
            _ => action::run(pbx, at, self.connection, &name, &action),
        }
    }

    fn describe(command: &[u8]) -> String {
        String::from_utf8_lossy(command).lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("|")
    }

    fn takes_events(&self, _buffer: &[u8]) -> bool {
        self.logged_in
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_know_what_filters_need() {
        let event = b"Event: HangupRequest\r\nPrivilege: call,all\r\n";
        assert!(Pattern::new("^Event: (Newchannel|Hangup)").matches(event));
        assert!(!Pattern::new("^Event: (Newchannel|Newstate)").matches(event));
        assert!(!Pattern::new("^Hangup").matches(event));
        assert!(Pattern::new("Privilege: call").matches(event));
    }
}
