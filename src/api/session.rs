//! Browsers that are logged in. A session is a text in a cookie that proves itself, so nothing of it is kept here: it
//! survives a restart, and it ends when its token is removed or changed.
//!
//! ```text
//! v1.<name of the token, base64url>.<end, seconds since the epoch>.<MAC, base64url>
//! ```
//!
//! The MAC is keyed by the digest of the token's secret: who has it can tell neither secret nor digest from a session,
//! and cannot make another one.

use std::time::Duration;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::bearer::Digest;
use crate::time::Timestamp;

/// The cookie.
pub(super) const COOKIE: &str = "pm_session";

/// How long a session lasts: who is on duty logs in once a week, and a browser that was left somewhere forgets.
pub(super) const LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// What the MAC is over begins with this: whatever else may be made of the same key is not a session.
const DOMAIN: &[u8] = b"pointsman session\0";

/// A session of this token, from now on.
pub(super) fn issue(name: &str, key: &Digest, now: Timestamp) -> String {
    let claim = format!("{}.{}", begin(name), now.after(LIFE).as_micros() / 1_000_000);
    let mac = BASE64.encode(mac(key, &claim).finalize().into_bytes());
    format!("{claim}.{mac}")
}

/// Whether this is a session of this token, and not over.
pub(super) fn check(session: &str, name: &str, key: &Digest, now: Timestamp) -> bool {
    let parts = session.rsplit_once('.').and_then(|(claim, mac)| Some((claim, claim.rsplit_once('.')?, mac)));
    let Some((claim, (begun, end), given)) = parts else { return false };
    let authentic = || BASE64.decode(given).is_ok_and(|given| mac(key, claim).verify_slice(&given).is_ok());
    begun == begin(name) && authentic() && end.parse().is_ok_and(|end| now < Timestamp::from_secs(end))
}

fn begin(name: &str) -> String {
    format!("v1.{}", BASE64.encode(name))
}

fn mac(key: &Digest, claim: &str) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.chain_update(DOMAIN).chain_update(claim)
}

/// The header that has a browser keep this session for as long as it lasts: out of reach of scripts and of requests that
/// other sites make. `secure`: over TLS only.
pub(super) fn keep(session: &str, secure: bool) -> String {
    set_cookie(session, LIFE, secure)
}

/// The header that has a browser forget its session.
pub(super) fn forget(secure: bool) -> String {
    set_cookie("", Duration::ZERO, secure)
}

fn set_cookie(value: &str, life: Duration, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", life.as_secs())
}

/// The values of the cookies of this name, as they come. There can be several, of other paths or other ports of the same
/// host; what is no cookie is passed over.
pub(super) fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|header| header.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let (known, value) = str::from_utf8(pair).ok()?.split_once('=')?;
        (known.trim() == name).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const KEY: Digest = [7; 32];

    fn now() -> Timestamp {
        Timestamp::from_micros(1_700_000_000_900_000)
    }

    #[test]
    fn a_session_says_its_token_and_its_end_and_nothing_of_the_secret() {
        let session = issue("noc", &KEY, now());
        let parts: Vec<_> = session.split('.').collect();
        assert_eq!(parts[..3], ["v1", "bm9j", "1700604800"]);
        assert_eq!(BASE64.decode(parts[3]).unwrap().len(), 32);
        assert_eq!(parts.len(), 4);
        assert_ne!(session, issue("noc", &[8; 32], now()), "the key counts");
    }

    #[test]
    fn the_mac_is_that_of_the_rfc() {
        // HMAC-SHA256 by another implementation (Python's hmac) over "pointsman session\0v1.bm9j.1700604800".
        assert!(issue("noc", &KEY, now()).ends_with(".LnMiUtXtVIkS1lwoi1t8F2TR2gGGaorl2QNtlQ-AHMg"));
    }

    #[test]
    fn a_session_lasts_until_its_end() {
        let session = issue("noc", &KEY, now());
        let end = Timestamp::from_secs(1_700_604_800);
        assert!(check(&session, "noc", &KEY, now()));
        assert!(check(&session, "noc", &KEY, end.before(Duration::from_micros(1))));
        assert!(!check(&session, "noc", &KEY, end));
        assert!(!check(&session, "noc", &KEY, end.after(LIFE)));
    }

    #[test]
    fn a_session_is_of_one_token_and_one_secret() {
        let session = issue("noc", &KEY, now());
        assert!(!check(&session, "wall", &KEY, now()));
        assert!(!check(&session, "noc", &[8; 32], now()));
    }

    #[test]
    fn a_session_that_was_tampered_with_is_none() {
        let session = issue("noc", &KEY, now());
        let [version, name, end, mac] = session.split('.').collect::<Vec<_>>()[..] else { panic!("{session}") };
        let wall = BASE64.encode("wall");
        let other_mac = issue("noc", &KEY, now().after(LIFE)).rsplit_once('.').unwrap().1.to_owned();
        let cases = [
            format!("v2.{name}.{end}.{mac}"),
            format!("{version}.{wall}.{end}.{mac}"),
            format!("{version}.{name}.9{end}.{mac}"),
            format!("{version}.{name}.0{end}.{mac}"),
            format!("{version}.{name}.+{end}.{mac}"),
            format!("{version}.{name}.{end}.{other_mac}"),
            format!("{version}.{name}.{end}.{mac}="),
            format!("{version}.{name}.{end}.{}", &mac[..42]),
            format!("{version}.{name}.{end}.{}", mac.to_uppercase()),
            format!("{version}.{name}.{end}."),
            format!("{version}.{name}.{end}"),
            format!("{version}.{name}..{end}.{mac}"),
            format!("{session}.x"),
            format!(" {session}"),
            "...".to_owned(),
            ".".to_owned(),
            String::new(),
        ];
        for tampered in cases {
            assert!(!check(&tampered, "noc", &KEY, now()), "{tampered}");
        }
        // Each single character counts; the last one of the MAC holds bits that must be zero.
        for place in 0..session.len() {
            for other in ["A", "B", ".", "1", "_"] {
                let mut tampered = session.clone();
                tampered.replace_range(place..=place, other);
                assert_eq!(check(&tampered, "noc", &KEY, now()), tampered == session, "{tampered}");
            }
        }
    }

    #[test]
    fn a_browser_is_told_to_keep_it_to_itself() {
        assert_eq!(keep("v", false), "pm_session=v; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict");
        assert_eq!(forget(true), "pm_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure");
    }

    #[test]
    fn cookies_are_found_among_others() {
        let found = |lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_bytes(line).unwrap());
            }
            cookies(&headers, "a").map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(found(&[b"a=1"]), ["1"]);
        assert_eq!(found(&[b"b=2; a=1; c=3", b"a=4;a = 5 "]), ["1", "4", "5"]);
        assert_eq!(found(&[b"a=b=c; aa=1; A=2"]), ["b=c"]);
        assert_eq!(found(&[b"a; =a; ;;=; a=; \xff=1; a=\xff; x"]), [""]);
        assert_eq!(found(&[b""]), Vec::<String>::new());
        assert_eq!(found(&[]), Vec::<String>::new());
    }
}
