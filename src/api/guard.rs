//! Who may: bearer tokens where there are any; where there are none, whoever reaches the loopback interface, except web
//! pages of others that a browser on this machine happens to show.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::problem::Problem;
use crate::config::model::{Http, Role, Token};

/// Paths that are open to everybody: whoever watches the process has no token.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Paths whose answers count as calls: reading them changes what the next one is told.
const COUNTED: [&str; 1] = ["/api/route"];

/// Who asks.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// The owner of a token.
    Token(Arc<str>),
    /// Somebody at this address.
    Peer(IpAddr),
}

impl Caller {
    /// The name of the audit.
    pub(super) fn who(&self) -> Arc<str> {
        match self {
            Self::Token(name) => name.clone(),
            Self::Peer(address) => format!("api {address}").into(),
        }
    }
}

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Decides who may.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    tokens: Vec<Known>,
}

/// A token as it is kept: its secret cannot be read from it, and every digest has the same length, so that comparing
/// takes the same time for every guess.
#[derive(Clone, Debug)]
struct Known {
    name: Arc<str>,
    role: Role,
    digest: [u8; 32],
}

impl Guard {
    pub(super) fn new(http: &Http) -> Self {
        let known = |token: &Token| Known {
            name: token.name.as_str().into(),
            role: token.role,
            digest: Sha256::digest(token.secret.expose_secret().as_bytes()).into(),
        };
        Self { tokens: http.tokens.iter().map(known).collect() }
    }

    /// Who asks, if they may.
    pub(super) fn admit(&self, request: &Parts) -> Result<Caller, Problem> {
        let peer =
            request.extensions.get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip().to_canonical());
        if OPEN.contains(&request.uri.path()) {
            return Ok(Caller::Peer(peer));
        }
        if self.tokens.is_empty() {
            refuse_foreign_host(&request.uri, &request.headers)?;
            if needed(&request.method) == Role::Operate || COUNTED.contains(&request.uri.path()) {
                refuse_foreign_page(&request.headers)?;
            }
            return Ok(Caller::Peer(peer));
        }
        let known = self.known(&request.headers)?;
        if known.role < needed(&request.method) {
            let detail = format!("the token {} may only read; changing needs one with the role operate", known.name);
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(Caller::Token(known.name.clone()))
    }

    fn known(&self, headers: &HeaderMap) -> Result<&Known, Problem> {
        let refused = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, detail);
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            return Err(refused("this needs a token: Authorization: Bearer SECRET"));
        };
        let secret =
            bearer(given.as_bytes()).ok_or_else(|| refused("the Authorization header is not: Bearer SECRET"))?;
        let digest: [u8; 32] = Sha256::digest(secret).into();
        // All of them are compared, whichever fits.
        let mut found = None;
        for known in &self.tokens {
            let equal: Choice = known.digest.ct_eq(&digest);
            if bool::from(equal) {
                found = Some(known);
            }
        }
        found.ok_or_else(|| refused("there is no such token"))
    }
}

/// What a method needs.
fn needed(method: &Method) -> Role {
    if method.is_safe() { Role::Read } else { Role::Operate }
}

fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = header.split_at_checked("bearer ".len())?;
    let secret = secret.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !secret.is_empty()).then_some(secret)
}

/// A page of others can have its name point to this machine and then read everything (DNS rebinding); the browser still
/// says by which name it asks.
fn refuse_foreign_host(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host = match (uri.authority(), headers.get(header::HOST)) {
        (Some(authority), _) => Some(authority.clone()),
        (None, Some(host)) => Some(authority(host.as_bytes())?),
        (None, None) => None,
    };
    if host.is_none_or(|host| is_loopback(host.host())) {
        return Ok(());
    }
    let detail =
        "without tokens the API answers to localhost only; configure [[http.tokens]] to use it by another name";
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

fn authority(host: &[u8]) -> Result<Authority, Problem> {
    Authority::try_from(host).map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the Host header is not a host"))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A page of others can send a request without asking, though it cannot read the answer (cross-site request forgery);
/// the browser says from where.
fn refuse_foreign_page(headers: &HeaderMap) -> Result<(), Problem> {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    let foreign_site = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    let host = headers.get(header::HOST).map(|host| host.as_bytes());
    let foreign_origin = headers.get(header::ORIGIN).is_some_and(|origin| {
        let origin = origin.as_bytes();
        let own = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
        own.is_none() || own != host
    });
    if foreign_site || foreign_origin {
        return Err(Problem::new(StatusCode::FORBIDDEN, "this was sent by a web page of somebody else"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn guard(tokens: &[(&str, Role, &str)]) -> Guard {
        let token = |(name, role, secret): &(&str, Role, &str)| Token {
            name: (*name).to_owned(),
            role: *role,
            secret: (*secret).into(),
        };
        Guard::new(&Http { listen: ([127, 0, 0, 1], 0).into(), tokens: tokens.iter().map(token).collect() })
    }

    /// The status of the refusal, or who it is.
    fn verdict(guard: &Guard, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        use axum::response::IntoResponse;
        match guard.admit(&parts(method, path, headers)) {
            Ok(caller) => caller.who().to_string(),
            Err(problem) => problem.into_response().status().as_u16().to_string(),
        }
    }

    #[test]
    fn a_token_may_what_its_role_says() {
        let guard = guard(&[("wall", Role::Read, "r-secret"), ("noc", Role::Operate, "o-secret")]);
        let cases = [
            ("GET", "/api/nodes", Some("Bearer r-secret"), "wall"),
            ("HEAD", "/metrics", Some("bearer  o-secret "), "noc"),
            ("PUT", "/api/nodes/a/load", Some("Bearer r-secret"), "403"),
            ("PUT", "/api/nodes/a/load", Some("Bearer o-secret"), "noc"),
            ("DELETE", "/api/nodes", Some("Bearer r-secret"), "403"),
            ("GET", "/api/nodes", None, "401"),
            ("GET", "/nothing", None, "401"),
            ("GET", "/api/nodes", Some("Bearer r-secre"), "401"),
            ("GET", "/api/nodes", Some("Bearer "), "401"),
            ("GET", "/api/nodes", Some("Basic r-secret"), "401"),
            ("GET", "/api/nodes", Some("r-secret"), "401"),
            ("GET", "/healthz", None, "api 0.0.0.0"),
            ("GET", "/readyz", Some("Bearer wrong"), "api 0.0.0.0"),
        ];
        for (method, path, token, expected) in cases {
            let headers: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
            assert_eq!(verdict(&guard, method, path, &headers), expected, "{method} {path} {token:?}");
        }
    }

    #[test]
    fn with_tokens_any_name_may_be_used() {
        let guard = guard(&[("noc", Role::Operate, "s")]);
        let headers = [("authorization", "Bearer s"), ("host", "pbx.example"), ("origin", "https://noc.example")];
        assert_eq!(verdict(&guard, "PUT", "/x", &headers), "noc");
    }

    #[test]
    fn without_tokens_only_names_of_this_machine_are_answered() {
        let guard = guard(&[]);
        for host in ["localhost", "LocalHost:8321", "127.0.0.1:8321", "127.9.9.9", "[::1]:8321", "[::ffff:127.0.0.1]"] {
            assert_eq!(verdict(&guard, "GET", "/api/nodes", &[("host", host)]), "api 0.0.0.0", "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8321", "10.0.0.7:8321", "[fe80::1]", "user@evil.example"] {
            assert_eq!(verdict(&guard, "GET", "/api/nodes", &[("host", host)]), "403", "{host}");
        }
        assert_eq!(verdict(&guard, "GET", "/api/nodes", &[("host", "a b")]), "400");
        assert_eq!(verdict(&guard, "GET", "http://evil.example/api/nodes", &[("host", "localhost")]), "403");
        assert_eq!(verdict(&guard, "GET", "/api/nodes", &[]), "api 0.0.0.0");
    }

    #[test]
    fn without_tokens_pages_of_others_change_nothing() {
        let guard = guard(&[]);
        let cases: [(&[(&str, &str)], &str); 9] = [
            (&[], "api 0.0.0.0"),
            (&[("origin", "http://127.0.0.1:8321")], "api 0.0.0.0"),
            (&[("origin", "http://127.0.0.1:8321"), ("sec-fetch-site", "same-origin")], "api 0.0.0.0"),
            (&[("sec-fetch-site", "none")], "api 0.0.0.0"),
            (&[("origin", "http://127.0.0.1:3000")], "403"),
            (&[("origin", "https://evil.example")], "403"),
            (&[("origin", "null")], "403"),
            (&[("sec-fetch-site", "cross-site")], "403"),
            (&[("sec-fetch-site", "same-site")], "403"),
        ];
        for (headers, expected) in cases {
            let headers: Vec<_> = [("host", "127.0.0.1:8321")].iter().chain(headers).copied().collect();
            assert_eq!(verdict(&guard, "POST", "/api/connections/a/reset", &headers), expected, "{headers:?}");
        }
        let page = [("host", "127.0.0.1:8321"), ("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")];
        assert_eq!(verdict(&guard, "GET", "/api/nodes", &page), "api 0.0.0.0");
        assert_eq!(verdict(&guard, "GET", "/api/route", &page), "403", "each answer counts as a call");
    }
}
