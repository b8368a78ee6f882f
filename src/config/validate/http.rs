//! Where the HTTP server listens, and who may use it.

use std::net::{Ipv4Addr, SocketAddr};

use super::credentials::{Sources, TOKEN};
use super::tokens::holder;
use super::{Check, beyond_loopback, tables};
use crate::config::Purpose;
use crate::config::model::{Http, Token};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;

/// Where it listens unless said otherwise.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8321);

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
        let Some(listen) = self.socket_address(text, place, DEFAULT_LISTEN.port()) else { return DEFAULT_LISTEN };
        let no_token = raw.tokens.is_absent() || raw.tokens.get().is_some_and(Vec::is_empty);
        if enabled && no_token && beyond_loopback(listen) {
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
        self.token_names(tables(&raw.tokens).map(|(token, _)| token.name.placed()));
        let tokens: Vec<Placed> =
            tables(&raw.tokens).filter_map(|(token, place)| self.token(token, place, read)).collect();
        self.tokens_differ(tokens.iter().map(|(token, place)| (&token.secret, *place)));
        tokens.into_iter().map(|(token, _)| token).collect()
    }

    fn token(&mut self, raw: &'a raw::Token, place: PlaceId, read: bool) -> Option<Placed> {
        let name = self.required(&raw.name, place, "name", "this entry", "\"noc\"");
        self.required(&raw.role, place, "role", &holder(name), "\"read\" or \"operate\"");
        if !read {
            return None;
        }
        let sources = Sources { kind: &TOKEN, itself: &raw.token, file: &raw.token_file, variable: &raw.token_env };
        let (secret, at) = self.token_secret(&sources, place, name, "HTTP")?;
        Some((Token { name: name?.to_string(), role: *raw.role.get()?, secret }, at))
    }
}
