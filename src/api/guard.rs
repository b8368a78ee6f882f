//! Who may: bearer tokens where there are any, and browsers that logged in with one; where there are none, whoever reaches
//! the loopback interface. Never web pages of others that a browser happens to show: it sends them with what it has.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};

use super::problem::Problem;
use super::session;
use crate::bearer::{self, Digest, bearer};
use crate::config::model::{Http, Role, Token};
use crate::time::Timestamp;

/// Paths that are open to everybody: whoever watches the process has no token.
const WATCHED: [&str; 2] = ["/healthz", "/readyz"];

/// Paths to log in and out by, and to choose in which language and colours: open to everybody too, though not to pages of
/// others where they touch anything.
const DOORS: [&str; 3] = ["/login", "/logout", "/look"];

/// Below it is what the page of the login is shown with, so that is open as well.
const ASSETS: &str = "/assets/";

/// Paths whose answers count as calls: reading them changes what the next one is told.
const COUNTED: [&str; 1] = ["/api/route"];

/// Who asks.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// The owner of a token, who showed it or logged in with it.
    Token { name: Arc<str>, role: Role },
    /// Somebody at this address, where there are no tokens.
    Peer(IpAddr),
    /// Somebody at this address who showed nothing, on a path that is open to everybody.
    Guest(IpAddr),
}

impl Caller {
    /// The name of the audit.
    pub(super) fn who(&self) -> Arc<str> {
        match self {
            Self::Token { name, .. } => name.clone(),
            Self::Peer(address) | Self::Guest(address) => format!("api {address}").into(),
        }
    }

    /// Whether they may change something.
    pub(super) fn may_operate(&self) -> bool {
        match self {
            Self::Token { role, .. } => *role >= Role::Operate,
            Self::Peer(_) => true,
            Self::Guest(_) => false,
        }
    }

    /// Whether they may no more than what is open to everybody.
    pub(super) fn is_guest(&self) -> bool {
        matches!(self, Self::Guest(_))
    }

    /// Whether they showed a token or logged in with one.
    pub(super) fn is_known(&self) -> bool {
        matches!(self, Self::Token { .. })
    }
}

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Decides who may.
pub(super) struct Guard {
    tokens: Vec<Known>,
}

/// A token as it is kept. Its digest makes sessions, so it is not to be seen either: there is no `Debug`.
struct Known {
    name: Arc<str>,
    role: Role,
    digest: Digest,
}

impl Known {
    fn caller(&self) -> Caller {
        Caller::Token { name: self.name.clone(), role: self.role }
    }
}

impl Guard {
    pub(super) fn new(http: &Http) -> Self {
        let known = |token: &Token| Known {
            name: token.name.as_str().into(),
            role: token.role,
            digest: bearer::digest(&token.secret),
        };
        Self { tokens: http.tokens.iter().map(known).collect() }
    }

    /// Whether there are tokens at all.
    pub(super) fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// A session of the owner of this secret, from now on, and their name.
    pub(super) fn open_session(&self, secret: &str, now: Timestamp) -> Option<(Arc<str>, String)> {
        let known = self.owner(secret.as_bytes())?;
        Some((known.name.clone(), session::issue(&known.name, &known.digest, now)))
    }

    /// Who asks, if they may.
    pub(super) fn admit(&self, request: &Parts, now: Timestamp) -> Result<Caller, Problem> {
        let peer =
            request.extensions.get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip().to_canonical());
        let (path, headers) = (request.uri.path(), &request.headers);
        if WATCHED.contains(&path) {
            return Ok(Caller::Guest(peer));
        }
        let touches = !request.method.is_safe() || COUNTED.contains(&path);
        if !self.has_tokens() {
            refuse_foreign_host(&request.uri, headers)?;
            if touches {
                refuse_foreign_page(headers)?;
            }
            return Ok(Caller::Peer(peer));
        }
        // A page can have a browser send what it keeps, sessions above all; a bearer token is none of that.
        let shows_token = headers.get(header::AUTHORIZATION).is_some_and(|given| bearer(given.as_bytes()).is_some());
        if touches && !shows_token {
            refuse_foreign_page(headers)?;
        }
        if DOORS.contains(&path) || path.starts_with(ASSETS) {
            return Ok(self.known(headers, now).map_or(Caller::Guest(peer), Known::caller));
        }
        let known = self.known(headers, now)?;
        let caller = known.caller();
        if !request.method.is_safe() && !caller.may_operate() {
            let detail = format!("the token {} may only read; changing needs one with the role operate", known.name);
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(caller)
    }

    /// Whose token is shown, or whose session. One that is shown decides, whatever the session says.
    fn known(&self, headers: &HeaderMap, now: Timestamp) -> Result<&Known, Problem> {
        let refused = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, detail);
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            return self.in_session(headers, now).ok_or_else(|| {
                refused("this needs a token, as in Authorization: Bearer SECRET, or a browser that is logged in")
            });
        };
        let secret =
            bearer(given.as_bytes()).ok_or_else(|| refused("the Authorization header is not: Bearer SECRET"))?;
        self.owner(secret).ok_or_else(|| refused("there is no such token"))
    }

    fn owner(&self, secret: &[u8]) -> Option<&Known> {
        bearer::owner(secret, &self.tokens, |known| &known.digest)
    }

    fn in_session(&self, headers: &HeaderMap, now: Timestamp) -> Option<&Known> {
        session::cookies(headers, session::COOKIE).find_map(|session| {
            self.tokens.iter().find(|known| session::check(session, &known.name, &known.digest, now))
        })
    }
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
    let own = match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
        // No page can forge it, and it holds behind a proxy that asks for us by another name.
        Some(site) => site == b"same-origin" || site == b"none",
        None => headers.get(header::ORIGIN).is_none_or(|origin| {
            let origin = origin.as_bytes();
            let origin = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
            origin.is_some() && origin == headers.get(header::HOST).map(|host| host.as_bytes())
        }),
    };
    if !own {
        return Err(Problem::new(StatusCode::FORBIDDEN, "this was sent by a web page of somebody else"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_secs(1_700_000_000)
    }

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
        match guard.admit(&parts(method, path, headers), now()) {
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
            ("GET", "/login", None, "api 0.0.0.0"),
            ("POST", "/login", Some("Bearer wrong"), "api 0.0.0.0"),
            ("POST", "/logout", Some("Bearer r-secret"), "wall"),
            ("GET", "/assets/live.js", None, "api 0.0.0.0"),
            ("GET", "/look?language=ru", None, "api 0.0.0.0"),
            ("GET", "/login/x", None, "401"),
            ("GET", "/assets", None, "401"),
            ("GET", "/", None, "401"),
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
        let cases: [(&[(&str, &str)], &str); 12] = [
            (&[], "api 0.0.0.0"),
            (&[("origin", "http://127.0.0.1:8321")], "api 0.0.0.0"),
            (&[("origin", "http://127.0.0.1:8321"), ("sec-fetch-site", "same-origin")], "api 0.0.0.0"),
            (&[("sec-fetch-site", "none")], "api 0.0.0.0"),
            (&[("origin", "http://127.0.0.1:3000")], "403"),
            (&[("origin", "https://evil.example")], "403"),
            (&[("origin", "null")], "403"),
            (&[("sec-fetch-site", "cross-site")], "403"),
            (&[("sec-fetch-site", "same-site")], "403"),
            (&[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:8321")], "403"),
            (&[("sec-fetch-site", "")], "403"),
            // A proxy asks for us by another name than the browser.
            (&[("sec-fetch-site", "same-origin"), ("origin", "https://noc.example")], "api 0.0.0.0"),
        ];
        for (headers, expected) in cases {
            let headers: Vec<_> = [("host", "127.0.0.1:8321")].iter().chain(headers).copied().collect();
            for path in ["/api/connections/a/reset", "/nodes/a/admin", "/login", "/logout"] {
                assert_eq!(verdict(&guard, "POST", path, &headers), expected, "{path} {headers:?}");
            }
        }
        let page = [("host", "127.0.0.1:8321"), ("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")];
        assert_eq!(verdict(&guard, "GET", "/api/nodes", &page), "api 0.0.0.0");
        assert_eq!(verdict(&guard, "GET", "/api/route", &page), "403", "each answer counts as a call");
    }

    fn cookie(guard: &Guard, secret: &str) -> String {
        format!("pm_session={}", guard.open_session(secret, now()).unwrap().1)
    }

    #[test]
    fn a_session_may_what_its_token_may() {
        let guard = guard(&[("wall", Role::Read, "r-secret"), ("noc", Role::Operate, "o-secret")]);
        let (wall, noc) = (cookie(&guard, "r-secret"), cookie(&guard, "o-secret"));
        for (method, path, wall_may, noc_may) in [
            ("GET", "/api/nodes", "wall", "noc"),
            ("GET", "/", "wall", "noc"),
            ("GET", "/api/route", "wall", "noc"),
            ("POST", "/nodes/a/admin", "403", "noc"),
            ("DELETE", "/api/connections/a/pin", "403", "noc"),
            ("GET", "/login", "wall", "noc"),
            ("POST", "/logout", "wall", "noc"),
        ] {
            let own = [("cookie", wall.as_str()), ("sec-fetch-site", "same-origin")];
            assert_eq!(verdict(&guard, method, path, &own), wall_may, "{method} {path}");
            assert_eq!(verdict(&guard, method, path, &[("cookie", &noc)]), noc_may, "{method} {path}");
        }
        assert!(guard.open_session("o-secre", now()).is_none());
        assert!(guard.open_session("", now()).is_none());
    }

    #[test]
    fn a_session_ends_with_its_token() {
        let guards = guard(&[("noc", Role::Operate, "o-secret")]);
        let session = cookie(&guards, "o-secret");
        let asked = |guard: &Guard| verdict(guard, "GET", "/api/nodes", &[("cookie", &session)]);
        assert_eq!(asked(&guard(&[("noc", Role::Operate, "o-secret"), ("wall", Role::Read, "r")])), "noc");
        assert_eq!(asked(&guard(&[("noc", Role::Operate, "other")])), "401");
        assert_eq!(asked(&guard(&[("duty", Role::Operate, "o-secret")])), "401");
        let weaker = guard(&[("noc", Role::Read, "o-secret")]);
        assert_eq!(
            verdict(&weaker, "POST", "/nodes/a/admin", &[("cookie", &session)]),
            "403",
            "the role is that of now"
        );
        let later = guards.admit(&parts("GET", "/api/nodes", &[("cookie", &session)]), now().after(session::LIFE));
        assert!(later.is_err());
    }

    #[test]
    fn a_token_that_is_shown_decides_whatever_the_session_says() {
        let guard = guard(&[("wall", Role::Read, "r-secret"), ("noc", Role::Operate, "o-secret")]);
        let session = cookie(&guard, "o-secret");
        for (shown, expected) in
            [("Bearer r-secret", "403"), ("Bearer wrong", "401"), ("Basic o-secret", "401"), ("", "401")]
        {
            let headers = [("cookie", session.as_str()), ("authorization", shown)];
            assert_eq!(verdict(&guard, "POST", "/nodes/a/admin", &headers), expected, "{shown}");
        }
    }

    #[test]
    fn one_good_session_among_others_suffices() {
        let guard = guard(&[("noc", Role::Operate, "o-secret")]);
        let good = cookie(&guard, "o-secret");
        let headers = [("cookie", "pm_session=v1.x; theme=dark"), ("cookie", &*format!("a=b; {good};"))];
        assert_eq!(verdict(&guard, "GET", "/api/nodes", &headers), "noc");
        let renamed = good.replace("pm_session", "pm_sessions");
        for bad in ["", ";;=", "pm_session", "pm_session=", "pm_session=....", renamed.as_str()] {
            assert_eq!(verdict(&guard, "GET", "/api/nodes", &[("cookie", bad)]), "401", "{bad}");
        }
    }

    #[test]
    fn pages_of_others_cannot_use_a_session() {
        let guard = guard(&[("noc", Role::Operate, "o-secret")]);
        let session = cookie(&guard, "o-secret");
        let basic = ("authorization", "Basic b3BlbjpzZXNhbWU=");
        for foreign in
            [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "https://evil.example")]
        {
            let headers = [("host", "pbx.example:8321"), ("cookie", &*session), foreign];
            for (method, path) in [
                ("POST", "/nodes/a/admin"),
                ("PUT", "/api/nodes/a/admin"),
                ("GET", "/api/route"),
                ("POST", "/login"),
                ("POST", "/logout"),
            ] {
                assert_eq!(verdict(&guard, method, path, &headers), "403", "{method} {path} {foreign:?}");
            }
            assert_eq!(
                verdict(&guard, "GET", "/connections/a", &headers),
                "noc",
                "a link from elsewhere may be followed"
            );
            // What a browser sends by itself to a proxy on the way is no token.
            assert_eq!(verdict(&guard, "POST", "/login", &[headers[0], foreign, basic]), "403");
        }
        let own = [("host", "pbx.example:8321"), ("cookie", &*session), ("origin", "http://pbx.example:8321")];
        assert_eq!(verdict(&guard, "POST", "/nodes/a/admin", &own), "noc");
    }

    #[test]
    fn who_may_operate_is_known() {
        let with = guard(&[("wall", Role::Read, "r"), ("noc", Role::Operate, "o")]);
        let may = |guard: &Guard, path, secret: &str| {
            let shown = format!("Bearer {secret}");
            let caller = guard.admit(&parts("GET", path, &[("authorization", &shown)]), now()).unwrap();
            (caller.may_operate(), caller.is_known())
        };
        assert_eq!(may(&with, "/", "r"), (false, true));
        assert_eq!(may(&with, "/", "o"), (true, true));
        assert_eq!(may(&with, "/login", "x"), (false, false));
        assert_eq!(may(&guard(&[]), "/", "x"), (true, false));
    }
}
