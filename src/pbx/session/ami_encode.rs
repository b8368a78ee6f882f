//! Actions as Asterisk's manager interface takes them. The protocol knows no escaping: whatever would end a line, or
//! a message, is refused here, wherever it came from.

use std::fmt::Write;

use crate::pbx::command::{Command, CommandError};
use crate::pbx::session::esl_encode::is_name;
use crate::wire::limits::MAX_AMI_LINE;

/// Most lines of an action that Asterisk takes.
pub(super) const MAX_LINES: usize = 128;

/// What every ActionID begins with. With the number it stays far below the 64 bytes from which on Asterisk garbles
/// its answers.
const ID_PREFIX: &str = "pm-";

/// An action under construction.
#[derive(Debug)]
pub(super) struct Action {
    text: String,
    lines: usize,
    illegal: Option<String>,
}

impl Action {
    pub(super) fn new(name: &str, id: u64) -> Self {
        Self { text: String::new(), lines: 0, illegal: None }
            .with("Action", name)
            .with("ActionID", &format!("{ID_PREFIX}{id}"))
    }

    /// Adds a line.
    pub(super) fn with(mut self, key: &str, value: &str) -> Self {
        self.lines += 1;
        let problem = if value.chars().any(char::is_control) {
            Some(format!("{key} holds a control character"))
        } else if value.starts_with(' ') {
            Some(format!("{key} begins with a blank, which Asterisk drops"))
        } else if key.len() + 2 + value.len() > MAX_AMI_LINE {
            Some(format!("{key} makes a line longer than {MAX_AMI_LINE} bytes"))
        } else if self.lines > MAX_LINES {
            Some(format!("more than {MAX_LINES} lines"))
        } else {
            None
        };
        match problem {
            Some(problem) => self.illegal = self.illegal.or(Some(problem)),
            None => {
                // Writing to a String cannot fail.
                let _ = write!(self.text, "{key}: {value}\r\n");
            }
        }
        self
    }

    /// The bytes to send.
    pub(super) fn finish(self) -> Result<String, CommandError> {
        match self.illegal {
            Some(problem) => Err(CommandError::Illegal(problem)),
            None => Ok(self.text + "\r\n"),
        }
    }
}

/// The number of one of our ActionIDs.
pub(super) fn parse_id(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.strip_prefix(ID_PREFIX)?.parse().ok()
}

/// The action that performs a command.
pub(super) fn encode(command: &Command, id: u64) -> Result<String, CommandError> {
    match command {
        Command::SetVariable { name, value } => set_variable(name, value, id),
        Command::ClearVariable { name } => set_variable(name, "", id),
        Command::GetVariable { name } => Action::new("Getvar", id).with("Variable", variable(name)?).finish(),
        Command::PutAstDb { family, key, value } => {
            Action::new("DBPut", id).with("Family", entry(family)?).with("Key", entry(key)?).with("Val", value).finish()
        }
        Command::DeleteAstDb { family, key } => {
            Action::new("DBDel", id).with("Family", entry(family)?).with("Key", entry(key)?).finish()
        }
        Command::Describe(_) | Command::List => Err(CommandError::Unsupported),
    }
}

fn set_variable(name: &str, value: &str, id: u64) -> Result<String, CommandError> {
    if value.contains("${") || value.contains("$[") {
        return Err(CommandError::Illegal("the value holds an expression that a dialplan would evaluate".to_owned()));
    }
    Action::new("Setvar", id).with("Variable", variable(name)?).with("Value", value).finish()
}

/// A name that ends in `)` would be a function call, and a leading `_` is stripped.
fn variable(name: &str) -> Result<&str, CommandError> {
    if is_name(name) {
        Ok(name)
    } else {
        Err(CommandError::Illegal("the name of the variable holds more than letters, digits and _-.".to_owned()))
    }
}

/// A `/` would end the family.
fn entry(name: &str) -> Result<&str, CommandError> {
    if is_name(name) {
        Ok(name)
    } else {
        Err(CommandError::Illegal("family or key of AstDB hold more than letters, digits and _-.".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(name: &str, value: &str) -> Result<String, CommandError> {
        encode(&Command::SetVariable { name: name.to_owned(), value: value.to_owned() }, 7)
    }

    #[test]
    fn a_command_is_one_action() {
        assert_eq!(
            set("pm_route_intl", "trunk-a,trunk-b").unwrap(),
            "Action: Setvar\r\nActionID: pm-7\r\nVariable: pm_route_intl\r\nValue: trunk-a,trunk-b\r\n\r\n"
        );
        assert_eq!(parse_id(b"pm-7"), Some(7));
        for not_ours in [&b"7"[..], b"pm-", b"pm-x", b"pm--7", b"\xff"] {
            assert_eq!(parse_id(not_ours), None);
        }
    }

    #[test]
    fn what_asterisk_would_change_is_refused() {
        for value in ["a\r\nAction: Originate", "a\n", "a\0", " a", "${x}", "$[1]"] {
            assert!(set("pm_x", value).is_err(), "{value:?}");
        }
        for name in ["", "SHELL(rm)", "DB(a/b)", "a b", "_a", "a\r\nb", "ä"] {
            assert!(set(name, "v").is_err(), "{name:?}");
        }
        assert!(encode(&Command::DeleteAstDb { family: "pm/x".into(), key: "k".into() }, 1).is_err());
    }

    /// A15, A16: a line or a message that Asterisk would not take is refused here; at the very edge it answers twice.
    #[test]
    fn lines_and_their_number_have_a_limit() {
        let longest = MAX_AMI_LINE - "Value: ".len();
        assert!(set("pm_x", &"v".repeat(longest)).is_ok());
        assert!(set("pm_x", &"v".repeat(longest + 1)).is_err());
        let lines = |count| (2..count).fold(Action::new("X", 1), |action, _| action.with("Variable", "v")).finish();
        assert!(lines(MAX_LINES).is_ok());
        assert!(lines(MAX_LINES + 1).is_err());
        let id = Action::new("X", u64::MAX).finish().unwrap();
        assert!(id.lines().all(|line| line.len() <= 64));
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_one_message(name in any::<String>(), value in any::<String>(), key in "[a-z_]{1,8}") {
            let commands = [
                Command::SetVariable { name: name.clone(), value: value.clone() },
                Command::SetVariable { name: key.clone(), value: value.clone() },
                Command::ClearVariable { name: name.clone() },
                Command::GetVariable { name: name.clone() },
                Command::PutAstDb { family: name.clone(), key: key.clone(), value: value.clone() },
                Command::PutAstDb { family: key.clone(), key, value },
                Command::DeleteAstDb { family: name.clone(), key: name },
            ];
            for command in commands {
                let Ok(text) = encode(&command, 1) else { continue };
                let body = text.strip_suffix("\r\n\r\n").unwrap();
                for line in body.split("\r\n") {
                    prop_assert!(!line.is_empty() && line.len() <= MAX_AMI_LINE);
                    prop_assert!(!line.chars().any(char::is_control));
                }
                prop_assert!(body.split("\r\n").count() <= MAX_LINES);
            }
        }
    }
}
