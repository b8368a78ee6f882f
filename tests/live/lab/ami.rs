//! A small manager-interface client, independent of the program's own: the tests check one against the other.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A message: its lines as pairs.
pub(crate) type Message = Vec<(String, String)>;

/// The value of a key in a message.
pub(crate) fn field<'m>(message: &'m Message, key: &str) -> Option<&'m str> {
    message.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| v.as_str())
}

/// A session.
#[derive(Debug)]
pub(crate) struct Ami {
    stream: BufReader<TcpStream>,
}

impl Ami {
    /// Connects and logs in; `None` where the PBX does not answer (yet).
    pub(crate) fn login(port: u16, user: &str, secret: &str, events: &str) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.set_nodelay(true).ok()?;
        let mut ami = Self { stream: BufReader::new(stream) };
        let mut banner = String::new();
        ami.stream.read_line(&mut banner).ok()?;
        let answer = ami.ask(&[("Action", "Login"), ("Username", user), ("Secret", secret), ("Events", events)])?;
        (field(&answer, "Response") == Some("Success")).then_some(ami)
    }

    /// Sends an action and reads up to its response; events before it are dropped.
    pub(crate) fn ask(&mut self, action: &[(&str, &str)]) -> Option<Message> {
        let mut text: String = action.iter().map(|(key, value)| format!("{key}: {value}\r\n")).collect();
        text.push_str("\r\n");
        self.stream.get_mut().write_all(text.as_bytes()).ok()?;
        loop {
            let message = self.read()?;
            if field(&message, "Response").is_some() {
                return Some(message);
            }
        }
    }

    /// The next message; `None` when the stream ends or nothing comes for ten seconds.
    pub(crate) fn read(&mut self) -> Option<Message> {
        let mut message = Message::new();
        loop {
            let mut line = Vec::new();
            if self.stream.read_until(b'\n', &mut line).ok()? == 0 {
                return None;
            }
            let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            match line.split_once(':') {
                Some((key, value)) => message.push((key.to_owned(), value.trim_start().to_owned())),
                None if line.is_empty() && !message.is_empty() => return Some(message),
                None => {}
            }
        }
    }

    /// Waits for an event of that name.
    pub(crate) fn wait_for(&mut self, event: &str) -> Option<Message> {
        loop {
            let message = self.read()?;
            if field(&message, "Event") == Some(event) {
                return Some(message);
            }
        }
    }

    /// A global variable; empty where it is not set.
    pub(crate) fn global(&mut self, name: &str) -> String {
        let answer = self.ask(&[("Action", "Getvar"), ("Variable", name)]).expect("the PBX answers");
        field(&answer, "Value").unwrap_or_default().to_owned()
    }

    /// Sets a global variable.
    pub(crate) fn set_global(&mut self, name: &str, value: &str) {
        let answer = self.ask(&[("Action", "Setvar"), ("Variable", name), ("Value", value)]).expect("the PBX answers");
        assert_eq!(field(&answer, "Response"), Some("Success"), "Setvar {name}: {answer:?}");
    }

    /// Runs a command of the PBX's own command line and gives its output.
    pub(crate) fn command(&mut self, command: &str) -> String {
        let answer = self.ask(&[("Action", "Command"), ("Command", command)]).unwrap_or_default();
        let lines: Vec<&str> = answer.iter().filter(|(key, _)| key == "Output").map(|(_, v)| v.as_str()).collect();
        lines.join("\n")
    }
}
