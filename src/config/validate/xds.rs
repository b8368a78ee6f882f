//! Where the xDS server listens, and who may subscribe.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::credentials::{Sources, TOKEN};
use super::{Check, beyond_loopback, tables};
use crate::config::Purpose;
use crate::config::model::{Http, Xds, XdsTls, XdsToken};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;
use crate::xds::tls::{self, TlsFile};

/// Where it listens unless said otherwise.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 18000);

/// Examples of the files of a certificate.
const CERTIFICATE: [(&str, &str); 2] =
    [("tls_cert_file", "\"/etc/pointsman/xds.pem\""), ("tls_key_file", "\"/etc/pointsman/xds.key\"")];

impl<'a> Check<'a> {
    /// The server; `None` where it is switched off.
    pub(super) fn xds(&mut self, raw: &'a raw::Xds, http: Option<&Http>) -> Option<Xds> {
        let enabled = raw.enabled.get().copied().unwrap_or(true);
        let read = enabled && self.purpose == Purpose::Connect;
        let written = raw.listen.placed().and_then(|(text, at)| self.socket_address(text, at, DEFAULT_LISTEN.port()));
        let listen = written.unwrap_or(DEFAULT_LISTEN);
        let tls = self.xds_tls(raw, read);
        let tokens = self.xds_tokens(raw, read);
        if !enabled {
            return None;
        }
        self.servers_apart(raw, listen, http);
        if let Some(place) = raw.listen.place.filter(|_| beyond_loopback(listen)) {
            self.subscribers(raw, place);
        }
        Some(Xds { listen, tls, tokens })
    }

    /// Two servers cannot listen on one port.
    fn servers_apart(&mut self, raw: &raw::Xds, listen: SocketAddr, http: Option<&Http>) {
        let of_http = self.raw.http.get().and_then(|http| http.listen.place);
        let (Some(http), Some(place)) = (http, raw.listen.place.or(of_http)) else { return };
        if collide(listen, http.listen) {
            let message = format!("the xDS server and the HTTP server cannot both listen on port {}", listen.port());
            let draft = Draft::error(Mark::Value(place), message);
            let other = of_http.filter(|other| *other != place);
            self.note(match other {
                Some(other) => draft.also(Mark::Value(other), "the HTTP server listens here"),
                None => draft,
            });
        }
    }

    /// Beyond loopback somebody must be known to be one of ours.
    fn subscribers(&mut self, raw: &raw::Xds, listen: PlaceId) {
        let lines = |lines: &[(&str, &str)]| {
            let lines: Vec<_> = lines.iter().map(|(key, value)| self.write(key, value)).collect();
            lines.join(", ")
        };
        let no_token = raw.tokens.is_absent() || raw.tokens.get().is_some_and(Vec::is_empty);
        let tls = [&raw.tls_cert_file, &raw.tls_key_file, &raw.tls_client_ca_file].iter().any(|file| !file.is_absent());
        if no_token && raw.tls_client_ca_file.is_absent() {
            let message = "who reaches this address could read where every node is: neither a token nor a certificate is asked for";
            let token = lines(&[("name", "\"edge-01\""), ("token_file", "\"/etc/pointsman/edge-01.token\"")]);
            let ca = lines(&[CERTIFICATE[0], CERTIFICATE[1], ("tls_client_ca_file", "\"/etc/pointsman/edges.pem\"")]);
            let default = lines(&[("listen", "\"127.0.0.1:18000\"")]);
            let help = format!("write {ca}; or add an entry to `xds.tokens`: {token}; or write {default}");
            self.note(Draft::error(Mark::Value(listen), message).help(help));
        } else if !tls {
            let message = "tokens go over the network as plain text: who can listen there can use them";
            let help = format!("write {}", lines(&CERTIFICATE));
            self.note(Draft::warning(Mark::Value(listen), message).help(help));
        }
    }

    /// The tokens; without `read` none of them, their structure is checked alone.
    fn xds_tokens(&mut self, raw: &'a raw::Xds, read: bool) -> Vec<XdsToken> {
        self.token_names(tables(&raw.tokens).map(|(token, _)| token.name.placed()));
        let token = |(raw, place)| self.xds_token(raw, place, read);
        let tokens: Vec<_> = tables(&raw.tokens).filter_map(token).collect();
        self.tokens_differ(tokens.iter().map(|(token, place)| (&token.secret, *place)));
        tokens.into_iter().map(|(token, _)| token).collect()
    }

    fn xds_token(&mut self, raw: &'a raw::XdsToken, place: PlaceId, read: bool) -> Option<(XdsToken, PlaceId)> {
        let name = self.required(&raw.name, place, "name", "this entry", "\"edge-01\"");
        if !read {
            return None;
        }
        let sources = Sources { kind: &TOKEN, itself: &raw.token, file: &raw.token_file, variable: &raw.token_env };
        let (secret, at) = self.token_secret(&sources, place, name, "XDS")?;
        Some((XdsToken { name: name?.to_string(), secret }, at))
    }

    /// The files of its TLS, where there is any; without `read` only whether they are all named.
    fn xds_tls(&mut self, raw: &raw::Xds, read: bool) -> Option<XdsTls> {
        let (cert, key, ca) = (&raw.tls_cert_file, &raw.tls_key_file, &raw.tls_client_ca_file);
        let given = [("tls_cert_file", cert), ("tls_key_file", key), ("tls_client_ca_file", ca)];
        let first = given.iter().find_map(|(name, file)| Some((name, file.place?)))?;
        let missing = CERTIFICATE.iter().zip([cert, key]).filter(|(_, file)| file.is_absent()).map(|(line, _)| line);
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            let keys: Vec<_> = missing.iter().map(|(key, _)| format!("`{key}`")).collect();
            let lines: Vec<_> = missing.iter().map(|(key, value)| self.write(key, value)).collect();
            let message = format!("`{}` needs {}", first.0, keys.join(" and "));
            self.note(Draft::error(Mark::Key(first.1), message).help(format!("write {}", lines.join(", "))));
        }
        let ((cert_file, cert), (key_file, key)) = (cert.placed()?, key.placed()?);
        let (cert_file, key_file) = (self.path(cert_file), self.path(key_file));
        let tls = XdsTls { cert_file, key_file, client_ca_file: ca.get().map(|path| self.path(path)) };
        if read {
            self.guarded(&tls.key_file, key);
            if let Err(problem) = tls::server_config(&tls) {
                let place = match problem.file {
                    TlsFile::Certificate => cert,
                    TlsFile::Key => key,
                    TlsFile::ClientCa => ca.place.unwrap_or(cert),
                };
                self.note(Draft::error(Mark::Value(place), problem.message));
            }
        }
        Some(tls)
    }
}

/// Whether two listeners would be in each other's way: all addresses of a machine are in the way of each of them, and
/// those of IPv6 include those of IPv4.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let includes = |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    let same = a.ip() == b.ip() || includes(a, b) || includes(b, a);
    same && a.port() == b.port() && a.port() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_are_in_each_others_way_on_one_port_of_one_address() {
        let collide = |a: &str, b: &str| {
            let (a, b) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!(collide(a, b), collide(b, a));
            collide(a, b)
        };
        for (a, b) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("[::]:1", "127.0.0.1:1"),
            ("[::]:1", "0.0.0.0:1"),
        ] {
            assert!(collide(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("127.0.0.1:1", "127.0.0.1:2"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1:1", "127.0.0.2:1"),
            ("0.0.0.0:1", "[::1]:1"),
        ] {
            assert!(!collide(a, b), "{a} {b}");
        }
    }
}
