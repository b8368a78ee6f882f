//! The first words on Asterisk's manager interface: its banner, our login, its verdict.

use std::fmt::Write;
use std::time::Duration;

use md5::{Digest, Md5};

use super::ami_encode::{Action, parse_id};
use super::{Credentials, End, LOGIN_LIMIT, Step, quote};
use crate::pbx::command::CommandError;
use crate::wire::ami::{AmiFrame, AmiKind, AmiMessage};

/// Numbers below belong to the login; a session's own actions begin here.
pub(super) const FIRST_ID: u64 = 16;

/// How the password goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// As it is: the connection is encrypted, or does not leave the machine.
    Plain,
    /// As an answer to a challenge (MD5), so that it cannot be read on the way. What Asterisk says can: that takes TLS.
    Challenge,
}

/// Login of one session.
#[derive(Debug)]
pub(super) struct AmiLogin {
    credentials: Credentials,
    /// The classes of events wanted. They stand in the login itself: a separate action would come after a flood.
    mask: &'static str,
    secrecy: Secrecy,
    stage: Stage,
    /// What the banner calls the interface.
    banner: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Banner,
    Challenge(u64),
    Verdict(u64),
    Accepted,
}

impl AmiLogin {
    pub(super) fn new(credentials: Credentials, mask: &'static str, secrecy: Secrecy) -> Self {
        Self { credentials, mask, secrecy, stage: Stage::Banner, banner: String::new() }
    }

    pub(super) fn accepted(&self) -> bool {
        self.stage == Stage::Accepted
    }

    pub(super) fn frame(&mut self, frame: &AmiFrame) -> Step {
        match (frame, &self.stage) {
            (AmiFrame::Banner(line), Stage::Banner) => {
                self.banner = quote(line);
                match self.secrecy {
                    Secrecy::Plain => self.log_in(1, None),
                    Secrecy::Challenge => {
                        self.stage = Stage::Challenge(1);
                        send(Action::new("Challenge", 1).with("AuthType", "MD5").finish())
                    }
                }
            }
            (AmiFrame::Message(message), Stage::Banner) => {
                let first = message.headers.first().map(|(name, _)| quote(name)).unwrap_or_default();
                Step::End(End::lost(format!("expected Asterisk's banner and got {first:?}")))
            }
            (AmiFrame::Message(message), &(Stage::Challenge(id) | Stage::Verdict(id))) => self.answer(message, id),
            _ => Step::Wait,
        }
    }

    fn answer(&mut self, message: &AmiMessage, awaited: u64) -> Step {
        let AmiKind::Response(word) = message.kind() else { return Step::Wait };
        if message.header("ActionID").is_some_and(|id| parse_id(id) != Some(awaited)) {
            return Step::Wait;
        }
        let success = word.eq_ignore_ascii_case(b"Success");
        match self.stage {
            // An Asterisk (or what poses as one) that knows no challenge gets the login that every one knows.
            Stage::Challenge(id) => self.log_in(id + 1, message.header("Challenge").filter(|_| success)),
            _ if success => {
                self.stage = Stage::Accepted;
                Step::Accepted
            }
            _ => Step::End(self.refusal(message.header("Message").unwrap_or_default())),
        }
    }

    fn log_in(&mut self, id: u64, challenge: Option<&[u8]>) -> Step {
        let Some(user) = self.credentials.user() else {
            return Step::End(End::refused("no username is configured for this Asterisk"));
        };
        let login = Action::new("Login", id).with("Username", user);
        let login = match challenge {
            None => login.with("Secret", self.credentials.password()),
            Some(challenge) => {
                login.with("AuthType", "MD5").with("Key", &challenge_key(challenge, self.credentials.password()))
            }
        };
        self.stage = Stage::Verdict(id);
        send(login.with("Events", self.mask).finish())
    }

    /// Asterisk gives one text for an unknown user, a wrong secret and a refused address.
    fn refusal(&self, message: &[u8]) -> End {
        let text = quote(message);
        let user = self.credentials.user().unwrap_or_default();
        let hint = match text.to_ascii_lowercase().as_str() {
            "authentication failed" => "unknown user, wrong secret, or our address is not permitted",
            "login already in use" => "set allowmultiplelogin = yes in manager.conf: two sessions are needed",
            "asterisk is shutting down" => return End::lost("Asterisk is shutting down"),
            _ => return End::refused(format!("Asterisk refuses the login of {user:?}: {text}")),
        };
        End::refused(format!("Asterisk refuses the login of {user:?}: {text} ({hint})"))
    }

    pub(super) fn tick(&self, now: Duration) -> Step {
        if now < LOGIN_LIMIT {
            return Step::Wait;
        }
        Step::End(End::lost(match self.stage {
            Stage::Banner => format!("connected, but no banner in {} s", LOGIN_LIMIT.as_secs()),
            _ => format!("no answer to the login in {} s", LOGIN_LIMIT.as_secs()),
        }))
    }

    /// What it means that the connection was closed at this stage.
    pub(super) fn eof(&self) -> End {
        End::lost(match self.stage {
            Stage::Banner => {
                "Asterisk refused the connection: closed without a banner (too many logins at once, authlimit)"
            }
            Stage::Challenge(_) | Stage::Verdict(_) => "Asterisk closed the connection during the login",
            Stage::Accepted => "Asterisk closed the connection",
        })
    }
}

fn send(action: Result<String, CommandError>) -> Step {
    match action {
        Ok(text) => Step::Send(text),
        Err(error) => Step::End(End::refused(format!("the login {error}"))),
    }
}

/// MD5 over challenge and secret, in lower-case hex as Asterisk compares it.
fn challenge_key(challenge: &[u8], secret: &str) -> String {
    let digest = Md5::new().chain_update(challenge).chain_update(secret).finalize();
    digest.iter().fold(String::with_capacity(32), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_md5_of_challenge_and_secret() {
        // RFC 1321: MD5("message digest") = f96b697d7cb7938d525a2f31aaf161d0
        assert_eq!(challenge_key(b"message ", "digest"), "f96b697d7cb7938d525a2f31aaf161d0");
    }
}
