//! How mail is sent, and to whom it can go.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo};
use lettre::Address;
use lettre::message::Mailbox;
use rustls_pki_types::{DnsName, ServerName};
use secrecy::SecretString;

use super::credentials::{PASSWORD, Sources};
use super::{Check, texts};
use crate::config::de::Located;
use crate::config::model::{Email, Operator, Security, Smtp, Via};
use crate::config::raw::{self, Texts};
use crate::config::report::{Draft, Mark};
use crate::config::secret::shown;
use crate::config::tree::PlaceId;
use crate::config::{Purpose, suggest};
use crate::notify::render::Templates;

/// Longest mail address (RFC 5321).
const MAX_ADDRESS: usize = 254;

/// Longest sender with its name: it must fit into a line of a header, 998 bytes (RFC 5322), encoded.
const MAX_MAILBOX: usize = 400;

/// Most addresses of one customer, or of the operator: each is a delivery of its own with every letter.
const MAX_ADDRESSES: usize = 100;

/// Most mistakes in templates that are told of: they must not crowd out those of the configuration.
const MAX_BAD_TEMPLATES: usize = 20;

/// How long a letter is tried, at least and at most.
const GIVE_UP_AFTER: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3600);

/// How long a letter is tried unless said otherwise. Servers themselves try for 4 to 5 days (RFC 5321); news of a route
/// is stale before.
const DEFAULT_GIVE_UP_AFTER: Duration = Duration::from_secs(3 * 24 * 3600);

impl Check<'_> {
    /// How mail is sent, where it is.
    pub(super) fn email(&mut self) -> Option<Email> {
        let (raw, place) = self.raw.email.placed()?;
        let from = self.required(&raw.from, place, "from", "`email`", "\"noc@operator.example\"");
        let from = from.and_then(|_| self.mailbox(&raw.from, "from"));
        let reply_to = self.mailbox(&raw.reply_to, "reply_to");
        let via = self.via(raw, place);
        let timeout = self.bounded(&raw.timeout_sec, "timeout_sec", 1..=600).unwrap_or(60);
        let digest_after = self.bounded(&raw.digest_after, "digest_after", 1..=1000).unwrap_or(5);
        let digest_window = self.bounded(&raw.digest_window_sec, "digest_window_sec", 0..=3600).unwrap_or(60);
        let give_up_after = self.give_up_after(&raw.give_up_after);
        let time_zone = self.time_zone(&raw.time_zone).unwrap_or_else(TimeZone::system);
        let templates = self.templates(&raw.templates);
        Some(Email {
            from: from?,
            reply_to,
            via: via?,
            timeout: Duration::from_secs(timeout),
            give_up_after,
            digest_after: usize::try_from(digest_after).unwrap_or(usize::MAX),
            digest_window: Duration::from_secs(digest_window),
            mask_numbers: raw.mask_numbers.get().copied().unwrap_or(true),
            time_zone,
            templates,
        })
    }

    pub(super) fn operator(&mut self) -> Operator {
        let default = raw::Operator::default();
        let raw = self.raw.operator.get().unwrap_or(&default);
        let email = self.addresses(&raw.email);
        if let Some(place) = raw.email.place.filter(|_| self.raw.email.is_absent()) {
            let message = "the operator has an address, and nothing says how mail is sent";
            self.note(Draft::warning(Mark::Key(place), message).help(self.how_to_send()));
        }
        let down = self.bounded(&raw.node_down_after_sec, "node_down_after_sec", 1..=86_400).unwrap_or(60);
        let language = raw.language.get().copied().unwrap_or_default();
        Operator { email, language, node_down_after: Duration::from_secs(down) }
    }

    /// What to write where there is no `email`.
    pub(super) fn how_to_send(&self) -> String {
        let from = self.write("from", "\"noc@operator.example\"");
        let server = self.write("server", "\"mail.operator.example\"");
        format!("add `email` at the top of the file: {from}, {server}")
    }

    /// The addresses of a list, each once.
    pub(super) fn addresses(&mut self, list: &Located<Texts>) -> Vec<Address> {
        let mut addresses: Vec<Address> = Vec::new();
        if let Some(place) = list.place.filter(|_| texts(list).count() > MAX_ADDRESSES) {
            let draft = Draft::error(Mark::Value(place), format!("these are more than {MAX_ADDRESSES} addresses"));
            self.note(draft.help("use the address of a mailing list"));
        }
        for (text, place) in texts(list) {
            match address(text) {
                Err(help) => {
                    let message = format!("{:?} is not a mail address", shown(text));
                    self.note(Draft::error(Mark::Value(place), message).help(help));
                }
                Ok(address) if addresses.iter().any(|known| is_same(known, &address)) => {
                    let message = format!("the address {address} is there twice: it gets each mail once");
                    self.note(Draft::warning(Mark::Value(place), message));
                }
                Ok(address) => addresses.push(address),
            }
        }
        addresses
    }

    pub(super) fn time_zone(&mut self, raw: &Located<String>) -> Option<TimeZone> {
        let (name, place) = raw.placed()?;
        let found = TimeZone::get(name).ok();
        if found.is_none() {
            let known: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
            let help = match suggest::closest(name, known.iter().map(String::as_str)) {
                Some(close) => format!("did you mean \"{close}\"?"),
                None => "write its IANA name, like \"Europe/Berlin\" or \"UTC\"".to_owned(),
            };
            let message = format!("there is no time zone {:?}", shown(name));
            self.note(Draft::error(Mark::Value(place), message).help(help));
        }
        found
    }

    /// A sender: an address, or a name and an address.
    fn mailbox(&mut self, raw: &Located<String>, key: &str) -> Option<Mailbox> {
        let (text, place) = raw.placed()?;
        if !self.plain_text(text, place, key) {
            return None;
        }
        let mailbox = Some(text).filter(|text| text.len() <= MAX_MAILBOX).and_then(|text| text.parse::<Mailbox>().ok());
        let mailbox = mailbox.filter(|mailbox| address(mailbox.email.as_ref()).is_ok());
        if mailbox.is_none() {
            let draft = Draft::error(Mark::Value(place), format!("`{key}` cannot be {:?}", shown(text)));
            self.note(draft.label("expected an address, or a name and an address").help(
                "write it like \"noc@operator.example\" or \"Quality desk <noc@operator.example>\"; a name with commas or the like in quotes of its own",
            ));
        }
        mailbox
    }

    fn via(&mut self, raw: &raw::Email, email: PlaceId) -> Option<Via> {
        match (raw.server.place, raw.sendmail.place) {
            (None, None) => {
                let help = format!(
                    "write {}, or {}",
                    self.write("server", "\"mail.operator.example\""),
                    self.write("sendmail", "\"/usr/sbin/sendmail\""),
                );
                let message = "`email` has neither a `server` nor `sendmail`";
                self.note(Draft::error(Mark::Value(email), message).help(help));
                None
            }
            (Some(server), Some(sendmail)) => {
                let draft = Draft::error(Mark::Key(sendmail), "mail goes through a `server` or through `sendmail`");
                self.note(draft.also(Mark::Key(server), "the server").help("leave one of them out"));
                None
            }
            (Some(_), None) => self.smtp(raw).map(Via::Smtp),
            (None, Some(_)) => self.sendmail(raw).map(Via::Sendmail),
        }
    }

    fn sendmail(&mut self, raw: &raw::Email) -> Option<PathBuf> {
        let idle = [
            ("security", raw.security.place),
            ("username", raw.username.place),
            ("tls_ca_file", raw.tls_ca_file.place),
            ("hello_name", raw.hello_name.place),
        ];
        for (key, place) in idle.into_iter().filter_map(|(key, place)| Some((key, place?))).chain(mail(raw).given()) {
            let message = format!("`{key}` has no effect with `sendmail`: it is for a `server`");
            self.note(Draft::warning(Mark::Key(place), message));
        }
        let (path, place) = raw.sendmail.placed()?;
        let path = self.path(path);
        let shown = path.display();
        match path.metadata() {
            _ if self.purpose == Purpose::Look => {}
            Err(error) => self.note(Draft::warning(Mark::Value(place), format!("{shown} cannot be run yet: {error}"))),
            Ok(metadata) if !metadata.is_file() => {
                self.note(Draft::error(Mark::Value(place), format!("{shown} is not a program: name the file itself")));
            }
            Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
                self.note(Draft::error(Mark::Value(place), format!("{shown} is not executable")));
            }
            Ok(_) => {}
        }
        Some(path)
    }

    fn smtp(&mut self, raw: &raw::Email) -> Option<Smtp> {
        let (server, place) = raw.server.placed()?;
        let security = raw.security.get().copied().unwrap_or_default();
        let (host, port) = match check_server(server) {
            Ok(server) => server,
            Err(help) => {
                let draft = Draft::error(Mark::Value(place), format!("`server` cannot be {:?}", shown(server)));
                self.note(draft.label("expected HOST or HOST:PORT").help(help));
                return None;
            }
        };
        let port = port.unwrap_or(match security {
            Security::Starttls => 587,
            Security::Tls => 465,
            Security::None => 25,
        });
        self.usual_security(port, security, place);
        let login = self.login(raw);
        if let Some(place) = raw.security.place.filter(|_| security == Security::None)
            && login.is_some()
            && !is_loopback(&host)
        {
            let draft = Draft::warning(Mark::Value(place), "the password goes over the network as plain text");
            self.note(draft.help(format!("write {}", self.write("security", "\"starttls\""))));
        }
        if let Some((name, place)) =
            raw.hello_name.placed().filter(|(name, _)| DnsName::try_from(name.as_str()).is_err())
        {
            let message = format!("`hello_name` must be a host name, not {:?}", shown(name));
            self.note(Draft::error(Mark::Value(place), message));
        }
        let ca_file = self.mail_ca_file(raw, security);
        Some(Smtp { host, port, security, login, ca_file, hello_name: raw.hello_name.get().cloned() })
    }

    /// Warns of a way to begin TLS that servers do not expect at that port: both sides would wait for the other.
    fn usual_security(&mut self, port: u16, security: Security, server: PlaceId) {
        let usual = match (port, security) {
            (465, Security::Starttls) => "tls",
            (25 | 587, Security::Tls) => "starttls",
            _ => return,
        };
        let written = self.write("security", &format!("\"{usual}\""));
        let message = format!("servers do not usually begin TLS in this way at port {port}");
        self.note(Draft::warning(Mark::Value(server), message).help(format!("most want {written} there")));
    }

    fn login(&mut self, raw: &raw::Email) -> Option<(String, SecretString)> {
        let sources = mail(raw);
        if let Some((username, place)) = raw.username.placed() {
            self.credential(username, place, "username");
        }
        if self.purpose == Purpose::Look {
            return None;
        }
        let Some(user) = raw.username.place else {
            if let Some((_, place)) = sources.given().next() {
                let draft = Draft::error(Mark::Key(place), "`email` has a password and no `username`");
                self.note(draft.help(format!("write {}", self.write("username", "\"noc@operator.example\""))));
            }
            return None;
        };
        let password = self.secret(&sources, user, "the user of the mail server", "EMAIL")?;
        Some((raw.username.get()?.clone(), password))
    }

    fn mail_ca_file(&mut self, raw: &raw::Email, security: Security) -> Option<PathBuf> {
        let (path, place) = raw.tls_ca_file.placed()?;
        if security == Security::None {
            let help = format!("write {}", self.write("security", "\"starttls\""));
            let message = "`tls_ca_file` has no effect without TLS";
            self.note(Draft::warning(Mark::Key(place), message).help(help));
            return None;
        }
        let path = self.path(path);
        if self.purpose != Purpose::Look {
            self.ca_file(&path, place);
        }
        Some(path)
    }

    fn give_up_after(&mut self, raw: &Located<String>) -> Duration {
        let Some((text, place)) = raw.placed() else { return DEFAULT_GIVE_UP_AFTER };
        let help = "write it like \"3d\", \"36h\" or \"90m\"";
        match duration(text) {
            None => {
                let message = format!("`give_up_after` cannot be {:?}", shown(text));
                self.note(Draft::error(Mark::Value(place), message).label("expected a length of time").help(help));
            }
            Some(length) if !GIVE_UP_AFTER.contains(&length) => {
                let message = "`give_up_after` must be from one minute to 30 days";
                self.note(Draft::error(Mark::Value(place), message).help(help));
            }
            Some(length) => return length,
        }
        DEFAULT_GIVE_UP_AFTER
    }

    fn templates(&mut self, raw: &Located<PathBuf>) -> Option<PathBuf> {
        let (path, place) = raw.placed()?;
        let path = self.path(path);
        if self.purpose == Purpose::Look {
            return Some(path);
        }
        if !path.is_dir() {
            let message = format!("there is no folder {}", path.display());
            self.note(Draft::error(Mark::Value(place), message));
            return None;
        }
        let bad = Templates::load(&path).err().unwrap_or_default();
        for bad in bad.iter().take(MAX_BAD_TEMPLATES) {
            self.note(Draft::error(Mark::Value(place), bad.to_string()));
        }
        if let Some(more) = bad.len().checked_sub(MAX_BAD_TEMPLATES).filter(|more| *more > 0) {
            self.note(Draft::error(Mark::Value(place), format!("{more} more mistakes in templates")));
        }
        Some(path)
    }
}

/// Where the password of the mail server may stand.
fn mail(raw: &raw::Email) -> Sources<'_> {
    Sources { kind: &PASSWORD, itself: &raw.password, file: &raw.password_file, variable: &raw.password_env }
}

/// The address, as plain as mail servers agree on; what to write instead, where it is not.
fn address(text: &str) -> Result<Address, &'static str> {
    let plain = |c: char| c.is_ascii() && !c.is_ascii_control() && !" ,;<>()\"".contains(c);
    if text.matches('@').count() > 1 {
        return Err("write several addresses as a list");
    }
    if !text.is_ascii() {
        return Err("use ASCII alone; a domain has such a form too, \"xn--...\"");
    }
    let help = "write it like \"noc@acme.example\"";
    if text.len() > MAX_ADDRESS || !text.chars().all(plain) {
        return Err(help);
    }
    text.parse().map_err(|_| help)
}

/// Whether mail to both goes to one place. Case counts before the `@` alone (RFC 5321).
fn is_same(a: &Address, b: &Address) -> bool {
    a.user() == b.user() && a.domain().eq_ignore_ascii_case(b.domain())
}

/// The host, one of IPv6 without its brackets, and the port, where it is written; else what to write instead.
fn check_server(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let help = "write it like \"mail.example.net\", \"mail.example.net:587\" or \"[::1]:25\"";
    if text.contains("://") {
        return Err("leave the scheme out: write \"mail.example.net\" and say how it is protected in `security`");
    }
    let (host, port) = match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
        Some((host, port)) => (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0).ok_or(help)?)),
        None => (text, None),
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good = match bracketed {
        Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.contains(':') && ServerName::try_from(host).is_ok(),
    };
    if good { Ok((bracketed.unwrap_or(host).to_owned(), port)) } else { Err(help) }
}

fn is_loopback(host: &str) -> bool {
    let ip = host.parse::<std::net::IpAddr>();
    ip.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback())
}

/// A length of time such as `3d` or `1h 30m`; days have 24 hours.
fn duration(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_address_cannot_break_out_of_a_header() {
        for good in ["noc@acme.example", "a.b+c@x", "o'neil@xn--80a1acny.xn--p1ai", "a@[127.0.0.1]"] {
            assert_eq!(address(good).map(|address| address.to_string()), Ok(good.to_owned()));
        }
        let long = format!("a@{}x.y", "b.".repeat(MAX_ADDRESS / 2));
        let long_user = format!("{}@x", "a".repeat(65));
        for bad in [
            "",
            "noc",
            "@x",
            "a@",
            "a@b@c",
            "a b@c",
            "a@b\nBcc: x@y",
            "a@b\0",
            "a@.b",
            "a@b..c",
            ".a@b",
            "A <a@b>",
            "a@b,c@d",
            "\"a b\"@c",
            "ю@почта.рф",
            long.as_str(),
            long_user.as_str(),
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_is_a_host_and_perhaps_a_port() {
        let table = [
            ("mail.example.net", "mail.example.net", None),
            ("mail.example.net:2525", "mail.example.net", Some(2525)),
            ("127.0.0.1:25", "127.0.0.1", Some(25)),
            ("[::1]", "::1", None),
            ("[2001:db8::1]:465", "2001:db8::1", Some(465)),
            ("my_mail", "my_mail", None),
        ];
        for (text, host, port) in table {
            assert_eq!(check_server(text), Ok((host.to_owned(), port)), "{text}");
        }
        for bad in [
            "", ":25", "a:", "a:0", "a:65536", "a:b", "::1", "::1:25", "[a]:25", "[::1", "smtp://a", "a b", "a\r\nb",
            "u@a", "a/b",
        ] {
            assert!(check_server(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn loopback_is_this_machine() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["mail.example.net", "10.0.0.1", "::2", "localhost.example.net"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_length_of_time_is_read_as_people_write_it() {
        let table =
            [("3d", 259_200), ("36h", 129_600), ("90m", 5400), ("1d 12h", 129_600), ("1w", 604_800), ("90s", 90)];
        for (text, seconds) in table {
            assert_eq!(duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "3", "d", "1mo", "1y", "-1h", "1h ago", "three days", "9999999999999999h"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
