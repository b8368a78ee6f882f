//! The dialogue of the event socket with one client.

use std::time::Duration;

use bytes::{Buf, BytesMut};

use crate::sim::fault::Conditions;
use crate::sim::freeswitch::event::Event;
use crate::sim::freeswitch::{FreeSwitch, api};
use crate::sim::pbx::{Output, Pbx, Session, new_uuid};
use crate::time::Timestamp;

/// The text before every orderly end.
const GOODBYE: &str = "Disconnected, goodbye.\nSee you at ClueCon! http://www.cluecon.com/\n";
const RUDE: &str = "Access Denied, go away.\n";

/// Events that the simulation knows by name; others are accepted and never come.
const EVENTS: [&str; 18] = [
    "ALL",
    "CUSTOM",
    "HEARTBEAT",
    "SHUTDOWN",
    "BACKGROUND_JOB",
    "CHANNEL_CREATE",
    "CHANNEL_OUTGOING",
    "CHANNEL_ORIGINATE",
    "CHANNEL_PROGRESS",
    "CHANNEL_PROGRESS_MEDIA",
    "CHANNEL_ANSWER",
    "CHANNEL_BRIDGE",
    "CHANNEL_UNBRIDGE",
    "CHANNEL_CALLSTATE",
    "CHANNEL_STATE",
    "CHANNEL_HANGUP",
    "CHANNEL_HANGUP_COMPLETE",
    "CHANNEL_DESTROY",
];

/// What one client asked to hear.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    pub(super) json: bool,
    names: Vec<String>,
    subclasses: Vec<String>,
    filters: Vec<(String, String)>,
    /// Whether anything was subscribed.
    pub(super) listening: bool,
}

impl Subscription {
    /// Whether an event of this name can come at all.
    pub(super) fn names_event(&self, name: &str) -> bool {
        self.names.iter().any(|have| have == name || have == "ALL")
    }

    /// Whether this event comes.
    pub(super) fn wants(&self, event: &Event) -> bool {
        let named = match event.subclass {
            Some(subclass) => self.subclasses.iter().any(|have| have == subclass) || self.names_event("ALL"),
            None => self.names_event(event.name),
        };
        self.listening && named && event.passes(&self.filters)
    }
}

/// One client's dialogue.
pub(crate) struct FsSession {
    connection: u64,
    authenticated: bool,
}

/// `command/reply` frame with this Reply-Text.
fn reply(text: &str) -> Output {
    Output::Say(format!("Content-Type: command/reply\nReply-Text: {text}\n\n").into_bytes())
}

fn content(content_type: &str, body: &[u8]) -> Output {
    let mut frame = format!("Content-Type: {content_type}\nContent-Length: {}\n\n", body.len()).into_bytes();
    frame.extend_from_slice(body);
    Output::Say(frame)
}

/// The end of an `api` command: FreeSWITCH never sends an empty one.
fn api_response(output: &[u8]) -> Output {
    content("api/response", if output.is_empty() { b"-ERR no reply\n" } else { output })
}

fn disconnect() -> [Output; 2] {
    [content("text/disconnect-notice", GOODBYE.as_bytes()), Output::Close]
}

impl FsSession {
    pub(super) fn new(connection: u64) -> Self {
        Self { connection, authenticated: false }
    }

    fn log_in(&mut self, accepted: bool, more: &str) -> Vec<Output> {
        if accepted {
            self.authenticated = true;
            return vec![reply(&format!("+OK accepted{more}"))];
        }
        let mut outputs = vec![reply("-ERR invalid")];
        outputs.extend(disconnect());
        outputs
    }

    fn authenticate(&mut self, pbx: &Pbx<FreeSwitch>, conditions: &Conditions, line: &str) -> Vec<Output> {
        if let Some(password) = line.strip_prefix("auth ") {
            let accepted = password == pbx.dialect.password && !conditions.refuse_password;
            return self.log_in(accepted, "");
        }
        if let Some(login) = line.strip_prefix("userauth ") {
            let users = &pbx.dialect.users;
            // Both `user@domain:password` and `user:password@domain` are understood.
            let accepted = !conditions.refuse_password
                && users.iter().any(|(user, password)| {
                    let (name, domain) = user.split_once('@').unwrap_or((user, ""));
                    login == format!("{user}:{password}") || login == format!("{name}:{password}@{domain}")
                });
            return self.log_in(accepted, "\nAllowed-Events: all\nAllowed-API: all\nAllowed-LOG: true");
        }
        vec![reply("-ERR command not found")]
    }

    fn command(
        &mut self,
        pbx: &mut Pbx<FreeSwitch>,
        at: Timestamp,
        line: &str,
        headers: &[(&str, &str)],
    ) -> Vec<Output> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match word.to_ascii_lowercase().as_str() {
            "exit" => {
                let mut outputs = vec![reply("+OK bye")];
                outputs.extend(disconnect());
                return outputs;
            }
            "api" => return Self::api(pbx, at, rest),
            "bgapi" => return vec![Self::bgapi(pbx, at, rest, headers)],
            _ => (),
        }
        let Some(subscription) = pbx.subscription(self.connection) else { return Vec::new() };
        let text = match word.to_ascii_lowercase().as_str() {
            "event" => subscription.subscribe(rest),
            "nixevent" => subscription.unsubscribe(rest),
            "noevents" => subscription.clear(),
            "filter" => subscription.filter(rest),
            "linger" | "nolinger" => "+OK will linger".to_owned(),
            "log" | "nolog" => "+OK log level set".to_owned(),
            "resume" | "divert_events" | "getvar" | "connect" => "-ERR not controlling a session".to_owned(),
            _ => "-ERR command not found".to_owned(),
        };
        vec![reply(&text)]
    }

    fn api(pbx: &mut Pbx<FreeSwitch>, at: Timestamp, line: &str) -> Vec<Output> {
        let (command, arguments) = line.split_once(' ').unwrap_or((line, ""));
        // The one command that blocks, as `api` commands do on the real one: nothing else happens on this connection.
        if let ("msleep", Ok(millis)) = (command, arguments.trim().parse::<u64>()) {
            return vec![Output::Wait(Duration::from_millis(millis)), api_response(b"+OK\n")];
        }
        vec![api_response(&api::run(pbx, at, command, arguments))]
    }

    fn bgapi(pbx: &mut Pbx<FreeSwitch>, at: Timestamp, line: &str, headers: &[(&str, &str)]) -> Output {
        let (command, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let chosen =
            headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("Job-UUID")).map(|(_, id)| (*id).to_owned());
        let job = chosen.unwrap_or_else(|| new_uuid(&mut pbx.dialect.ids));
        let output = api::run(pbx, at, command, arguments);
        let event = pbx.dialect.background_job(at, &job, command, arguments, &String::from_utf8_lossy(&output));
        pbx.publish(&event);
        Output::Say(
            format!("Content-Type: command/reply\nReply-Text: +OK Job-UUID: {job}\nJob-UUID: {job}\n\n").into_bytes(),
        )
    }
}

impl Subscription {
    fn subscribe(&mut self, rest: &str) -> String {
        let mut words = rest.split_ascii_whitespace().peekable();
        let format = words.next_if(|word| matches!(word.to_ascii_lowercase().as_str(), "plain" | "json" | "xml"));
        let mut valid = false;
        let mut custom = false;
        for word in words {
            let name = word.to_ascii_uppercase();
            let name = name.strip_prefix("SWITCH_EVENT_").unwrap_or(&name);
            if custom {
                // Everything after the word CUSTOM is a subclass, whatever it looks like.
                self.subclasses.push(word.to_owned());
            } else if name == "CUSTOM" {
                custom = true;
                valid = true;
            } else {
                valid |= EVENTS.contains(&name) || name.starts_with("CHANNEL_");
                self.names.push(name.to_owned());
            }
        }
        if !valid {
            return "-ERR no keywords supplied".to_owned();
        }
        let format =
            format.map_or("plain", |format| if format.eq_ignore_ascii_case("json") { "json" } else { "plain" });
        self.json = format == "json";
        self.listening = true;
        format!("+OK event listener enabled {format}")
    }

    fn unsubscribe(&mut self, rest: &str) -> String {
        let names: Vec<String> = rest.split_ascii_whitespace().map(str::to_ascii_uppercase).collect();
        self.names.retain(|have| !names.contains(have));
        self.subclasses.retain(|have| !names.contains(&have.to_ascii_uppercase()));
        "+OK events nixed".to_owned()
    }

    fn clear(&mut self) -> String {
        if !std::mem::take(&mut self.listening) {
            return "-ERR not listening for events".to_owned();
        }
        self.names.clear();
        self.subclasses.clear();
        "+OK no longer listening for events".to_owned()
    }

    fn filter(&mut self, rest: &str) -> String {
        let (first, after) = rest.split_once(' ').unwrap_or((rest, ""));
        match first.to_ascii_lowercase().as_str() {
            "delete" => {
                let (header, value) = after.split_once(' ').unwrap_or((after, ""));
                self.filters.retain(|(have, wanted)| {
                    let named = have.eq_ignore_ascii_case(header) || header.eq_ignore_ascii_case("all");
                    !(named && (value.is_empty() || wanted == value))
                });
                format!("+OK filter deleted. [{header}]=[{value}]")
            }
            "add" => self.add_filter(after),
            _ => self.add_filter(rest),
        }
    }

    fn add_filter(&mut self, text: &str) -> String {
        match text.split_once(' ') {
            Some((header, value)) if !value.is_empty() => {
                self.filters.push((header.to_owned(), value.to_owned()));
                format!("+OK filter added. [{header}]=[{value}]")
            }
            _ => "-ERR invalid syntax".to_owned(),
        }
    }
}

impl Session<FreeSwitch> for FsSession {
    fn greet(&mut self, _pbx: &mut Pbx<FreeSwitch>, conditions: &Conditions) -> Vec<Output> {
        if conditions.refuse_peers {
            let mut outputs = vec![content("text/rude-rejection", RUDE.as_bytes())];
            outputs.extend(disconnect());
            return outputs;
        }
        vec![Output::Say(b"Content-Type: auth/request\n\n".to_vec())]
    }

    fn take(&mut self, buffer: &mut BytesMut) -> Option<Vec<u8>> {
        let blank = buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        buffer.advance(blank);
        let text = buffer.as_ref();
        let (end, gap) = (0..text.len()).find_map(|at| match &text[at..] {
            [b'\n', b'\n', ..] => Some((at, 2)),
            [b'\n', b'\r', b'\n', ..] => Some((at, 3)),
            _ => None,
        })?;
        let command = buffer.split_to(end);
        buffer.advance(gap);
        Some(command.to_vec())
    }

    fn answer(
        &mut self,
        pbx: &mut Pbx<FreeSwitch>,
        at: Timestamp,
        conditions: &Conditions,
        command: &[u8],
    ) -> Vec<Output> {
        let text = String::from_utf8_lossy(command);
        let mut lines = text.lines();
        let line = lines.next().unwrap_or_default();
        let headers: Vec<(&str, &str)> =
            lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim())).collect();
        if self.authenticated {
            self.command(pbx, at, line, &headers)
        } else {
            self.authenticate(pbx, conditions, line)
        }
    }

    fn describe(command: &[u8]) -> String {
        String::from_utf8_lossy(command).lines().collect::<Vec<_>>().join("|")
    }

    fn takes_events(&self, buffer: &[u8]) -> bool {
        // A half-written command holds the events back.
        self.authenticated && buffer.is_empty()
    }
}
