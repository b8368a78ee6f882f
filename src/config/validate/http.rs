//! Where the HTTP server listens, and who may use it.

use std::net::{Ipv4Addr, SocketAddr};

use secrecy::{ExposeSecret, SecretString};

use super::credentials::{Sources, TOKEN};
use super::{Check, tables};
use crate::config::Purpose;
use crate::config::environment;
use crate::config::model::{Http, Token};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::secret::shown;
use crate::config::tree::PlaceId;

/// Where it listens unless said otherwise.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8321);

/// Shortest token. One of random letters and digits of this length has 95 bits: nobody guesses it over a network.
const MIN_TOKEN: usize = 16;

/// A token that was read, with the place where it is written.
type Placed = (Token, PlaceId);

impl<'a> Check<'a> {
    /// The server, where there is one.
    pub(super) fn http(&mut self) -> Option<Http> {
        let Some(raw) = self.raw.http.get() else { return Some(Http { listen: DEFAULT_LISTEN, tokens: Vec::new() }) };
        let enabled = raw.enabled.get().copied().unwrap_or(true);
        let listen = self.listen(raw, enabled);
        let tokens = self.tokens(raw, enabled && self.purpose == Purpose::Connect);
        enabled.then_some(Http { listen, tokens })
    }

    fn listen(&mut self, raw: &raw::Http, enabled: bool) -> SocketAddr {
        let Some((text, place)) = raw.listen.placed() else { return DEFAULT_LISTEN };
        let Ok(listen) = text.parse::<SocketAddr>() else {
            let draft = Draft::error(Mark::Value(place), format!("`listen` cannot be {:?}", shown(text)));
            self.note(draft.label("expected ADDRESS:PORT").help(
                "write an IP address of this machine and a port: \"127.0.0.1:8321\" or \"[::1]:8321\", for all of its addresses \"0.0.0.0:8321\" or \"[::]:8321\"",
            ));
            return DEFAULT_LISTEN;
        };
        let no_token = raw.tokens.is_absent() || raw.tokens.get().is_some_and(Vec::is_empty);
        if enabled && no_token && !listen.ip().to_canonical().is_loopback() {
            let message = "who reaches this address could do everything: there is no token";
            let lines = [("name", "\"noc\""), ("role", "\"operate\""), ("token_file", "\"/etc/pointsman/noc.token\"")];
            let lines = lines.map(|(key, value)| self.write(key, value)).join(", ");
            let help = format!(
                "add an entry to `http.tokens`: {lines}; or write {}",
                self.write("listen", "\"127.0.0.1:8321\"")
            );
            self.note(Draft::error(Mark::Value(place), message).help(help));
        }
        listen
    }

    /// The tokens; without `read` none of them, their structure is checked alone.
    fn tokens(&mut self, raw: &'a raw::Http, read: bool) -> Vec<Token> {
        let names = tables(&raw.tokens).filter_map(|(token, _)| token.name.placed());
        self.once(names.map(|(name, place)| (name.as_str(), place)), |name| {
            format!("two tokens have the name `{name}`")
        });
        let tokens: Vec<Placed> =
            tables(&raw.tokens).filter_map(|(token, place)| self.token(token, place, read)).collect();
        let secrets = tokens.iter().map(|(token, place)| (token.secret.expose_secret(), *place));
        self.once(secrets, |_| "two tokens are the same: nobody could tell who uses it".to_owned());
        tokens.into_iter().map(|(token, _)| token).collect()
    }

    /// Notes what is there twice, each time with the place before.
    fn once<'t>(&mut self, texts: impl Iterator<Item = (&'t str, PlaceId)>, message: impl Fn(&str) -> String) {
        let mut seen: Vec<(&str, PlaceId)> = Vec::new();
        for (text, place) in texts {
            match seen.iter().find(|(known, _)| *known == text) {
                None => seen.push((text, place)),
                Some((_, first)) => {
                    let draft = Draft::error(Mark::Value(place), message(text)).label("used again here");
                    self.note(draft.also(Mark::Value(*first), "first used here"));
                }
            }
        }
    }

    fn token(&mut self, raw: &'a raw::Token, place: PlaceId, read: bool) -> Option<Placed> {
        let name = self.required(&raw.name, place, "name", "this entry", "\"noc\"");
        let whose = name.map_or_else(|| "this entry".to_owned(), |name| format!("`{name}`"));
        self.required(&raw.role, place, "role", &whose, "\"read\" or \"operate\"");
        if !read {
            return None;
        }
        let sources = Sources { kind: &TOKEN, itself: &raw.token, file: &raw.token_file, variable: &raw.token_env };
        let step = name.map_or_else(|| "NAME".to_owned(), |name| environment::step_name(name.as_str()));
        let secret = self.secret(&sources, place, &whose, &format!("HTTP__TOKENS__{step}"))?;
        let at = self.in_use(&sources).first().map_or(place, |(_, place)| *place);
        self.strong(&secret, at);
        Some((Token { name: name?.to_string(), role: *raw.role.get()?, secret }, at))
    }

    /// A token goes into a header, and must not be guessed.
    fn strong(&mut self, secret: &SecretString, place: PlaceId) {
        let secret = secret.expose_secret();
        let problem = if secret.is_empty() || secret.chars().any(char::is_control) {
            return; // That has been noted.
        } else if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            "a token has letters, digits and punctuation of ASCII, and no blanks".to_owned()
        } else if secret.len() < MIN_TOKEN {
            format!("a token has at least {MIN_TOKEN} characters")
        } else {
            return;
        };
        self.note(Draft::error(Mark::Value(place), problem).help("make one with `openssl rand -hex 24`"));
    }
}
