//! A letter as the bytes that leave: RFC 5322 and MIME.
//!
//! Everything in it may hold text from elsewhere (names of customers, numbers that callers dialled), so nothing is
//! written as it came: a header line holds printable ASCII only and a body is always encoded, whatever it holds. The
//! same letter makes the same bytes, however often it is composed.
//!
//! What is changed on the way: in a subject and a display name, each run of white space and control characters becomes
//! one space, and none is left at the ends; in a body, line ends become CRLF, and control characters other than line
//! ends and tabs are left out.
//!
//! The header is written here and not by lettre's builder, which (0.11.23) can hold each name only once, and whose text
//! headers pass control characters, anything that looks like an encoded word, and words of any length as they are.

use std::fmt::Write as _;

use email_encoding::headers::rfc2047;
use email_encoding::headers::writer::EmailWriter;
use jiff::tz::TimeZone;
use lettre::Address;
use lettre::message::header::{ContentTransferEncoding, ContentType};
use lettre::message::{Mailbox, MultiPart, SinglePart};

use crate::config::model::Email;
use crate::notify::letter::Letter;
use crate::notify::notice::Subject;
use crate::time::Timestamp;

/// Most connections that the header names: it is for filters, and some servers refuse a header beyond 64 KiB.
const MAX_CONNECTIONS: usize = 50;

/// Most Message-IDs in `References`: the first and the latest are what programs build threads of.
const MAX_REFERENCES: usize = 20;

/// Longest word that is left as it is: with the longest name of ours before it, its line stays within 78 characters.
const MAX_WORD: usize = 50;

/// Longest Message-ID: it cannot be folded, and a line must not exceed 998 characters.
const MAX_MESSAGE_ID: usize = 900;

/// Between the parts. `=_` can occur in neither base64 nor quoted-printable, so never within a part.
const BOUNDARY: &str = "=_pointsman_part";

/// Why a letter cannot be composed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// An address of ours cannot be written in ASCII.
    #[error("the address {0} cannot be used: the part before the @ must be ASCII")]
    Address(Address),
}

/// Composes the letter.
///
/// `To` holds all its recipients, so that answers can go to all; one that cannot be written is left out.
///
/// # Errors
/// Where [`Email::from`] or [`Email::reply_to`] cannot be written in ASCII.
pub fn compose(letter: &Letter, email: &Email) -> Result<Vec<u8>, ComposeError> {
    let mut head = Head::default();
    head.folded("Date", &date(letter.made_at));
    head.mailbox("From", &email.from)?;
    head.folded("To", &recipients(letter));
    if let Some(mailbox) = &email.reply_to {
        head.mailbox("Reply-To", mailbox)?;
    }
    head.text("Subject", &letter.subject);
    head.folded("Message-ID", &id(&letter.message_id));
    if let Some(parent) = letter.replies_to.last() {
        head.folded("In-Reply-To", &id(parent));
        head.folded("References", &references(&letter.replies_to));
    }
    head.folded("Auto-Submitted", "auto-generated");
    head.folded("X-Auto-Response-Suppress", "All");
    head.folded("List-Id", &list_id(letter, email));
    head.folded("X-Pointsman-Kind", letter.kind.as_str());
    if let Some(customer) = &letter.customer {
        head.folded("X-Pointsman-Customer", customer.as_str());
    }
    let connections = letter.about.iter().filter(|subject| matches!(subject, Subject::Connection(_)));
    for connection in connections.take(MAX_CONNECTIONS) {
        head.folded("X-Pointsman-Connection", &connection.to_string());
    }
    head.folded("MIME-Version", "1.0");
    let mut bytes = head.0.into_bytes();
    bytes.extend(parts(letter).formatted());
    Ok(bytes)
}

/// The address with its domain in ASCII (an IDN as `xn--...`), which every mail server takes; `None` where the part
/// before the @ is not ASCII.
#[must_use]
pub fn ascii_address(address: &Address) -> Option<Address> {
    let ascii = if address.domain().is_ascii() {
        address.clone()
    } else {
        Address::new(address.user(), idna::domain_to_ascii(address.domain()).ok()?).ok()?
    };
    let text: &str = ascii.as_ref();
    text.bytes().all(is_printable).then_some(ascii)
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// The text of the header so far.
#[derive(Default)]
struct Head(String);

impl Head {
    /// A header whose value is printable ASCII, folded at its spaces.
    fn folded(&mut self, name: &str, value: &str) {
        self.line(name, |line| line.folding().write_str(value));
    }

    /// A header with any text.
    fn text(&mut self, name: &str, value: &str) {
        let value = one_line(value);
        if is_plain(&value) {
            self.folded(name, &value);
        } else {
            self.line(name, |line| rfc2047::encode(&value, line));
        }
    }

    fn mailbox(&mut self, name: &str, mailbox: &Mailbox) -> Result<(), ComposeError> {
        let address = ascii_address(&mailbox.email).ok_or_else(|| ComposeError::Address(mailbox.email.clone()))?;
        let display = mailbox.name.as_deref().map(one_line).filter(|display| !display.is_empty());
        let Some(display) = display else {
            self.folded(name, address.as_ref());
            return Ok(());
        };
        self.line(name, |line| {
            if is_plain(&display) && !display.contains(['"', '\\']) {
                line.folding().write_str(&format!("\"{display}\""))?;
            } else {
                rfc2047::encode(&display, line)?;
            }
            line.folding().write_str(&format!(" <{address}>"))
        });
        Ok(())
    }

    fn line(&mut self, name: &str, value: impl FnOnce(&mut EmailWriter<'_>) -> std::fmt::Result) {
        self.0.push_str(name);
        self.0.push_str(": ");
        // Writing to a String cannot fail.
        let _ = value(&mut EmailWriter::new(&mut self.0, name.len() + 2, 0, false));
        self.0.push_str("\r\n");
    }
}

/// Each run of white space and control characters as one space, none at the ends.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    words.join(" ")
}

/// Whether a text can stand in a header as it is: a reader would not decode it, and it can be folded.
fn is_plain(text: &str) -> bool {
    text.bytes().all(is_printable) && !text.contains("=?") && text.split(' ').all(|word| word.len() <= MAX_WORD)
}

fn date(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or_default().to_zoned_datetime(TimeZone::UTC);
    jiff::fmt::rfc2822::to_string(&at).unwrap_or_default()
}

fn recipients(letter: &Letter) -> String {
    let addresses = letter.deliveries.iter().filter_map(|delivery| ascii_address(&delivery.address.parse().ok()?));
    let addresses: Vec<_> = addresses.map(|address| address.to_string()).collect();
    if addresses.is_empty() { "undisclosed-recipients:;".to_owned() } else { addresses.join(", ") }
}

fn id(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_graphic() && !matches!(c, '<' | '>') { c } else { '_' };
    format!("<{}>", text.chars().take(MAX_MESSAGE_ID).map(legal).collect::<String>())
}

fn references(ids: &[String]) -> String {
    let latest = ids.len().saturating_sub(MAX_REFERENCES - 1).max(1);
    let ids: Vec<_> = ids.iter().take(1).chain(ids.iter().skip(latest)).map(|text| id(text)).collect();
    ids.join(" ")
}

/// RFC 2919: a name within a domain of ours, by which mail programs sort.
fn list_id(letter: &Letter, email: &Email) -> String {
    let list = if letter.customer.is_some() { "quality" } else { "operator" };
    let domain = ascii_address(&email.from.email).map(|address| address.domain().to_owned());
    // An address literal is no name, and "localhost" is what the RFC sets aside for that.
    let domain = domain.filter(|domain| domain.parse::<std::net::IpAddr>().is_err() && !domain.starts_with('['));
    format!("<{list}.{}>", domain.as_deref().unwrap_or("localhost"))
}

fn parts(letter: &Letter) -> MultiPart {
    MultiPart::alternative()
        .boundary(BOUNDARY)
        .singlepart(part(ContentType::TEXT_PLAIN, &letter.text))
        .singlepart(part(ContentType::TEXT_HTML, &letter.html))
}

/// A part, encoded even where it need not be: no relay wraps its lines, and it cannot hold the boundary.
fn part(kind: ContentType, text: &str) -> SinglePart {
    let text = lines(text);
    // Cyrillic is twice as long in quoted-printable, and filters distrust base64 around plain ASCII.
    let encoding =
        if text.is_ascii() { ContentTransferEncoding::QuotedPrintable } else { ContentTransferEncoding::Base64 };
    SinglePart::builder().header(kind).header(encoding).body(text)
}

/// The text with LF at its line ends (which lettre makes CRLF) and without other control characters.
fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use lettre::message::Mailbox;
    use mailparse::{MailAddr, MailHeaderMap, ParsedMail, addrparse_header, parse_mail};
    use proptest::prelude::*;

    use super::*;
    use crate::config::model::Via;
    use crate::ids::{ConnectionId, CustomerId, MapId, QualityKey};
    use crate::notify::letter::{Delivery, Kind};
    use crate::notify::notice::Condition;

    fn mailbox(name: Option<&str>, address: &str) -> Mailbox {
        Mailbox::new(name.map(str::to_owned), address.parse().unwrap())
    }

    fn email() -> Email {
        Email {
            from: mailbox(Some("Pointsman"), "noc@carrier.example"),
            reply_to: None,
            via: Via::Sendmail("/usr/sbin/sendmail".into()),
            timeout: Duration::from_secs(60),
            give_up_after: Duration::from_secs(86_400),
            digest_after: 5,
            digest_window: Duration::from_secs(60),
            mask_numbers: false,
            time_zone: TimeZone::UTC,
            templates: None,
        }
    }

    fn delivery(address: &str) -> Delivery {
        Delivery::new(address, Timestamp::from_secs(0))
    }

    fn connection(name: &str, map: Option<&str>) -> Subject {
        Subject::Connection(QualityKey {
            connection: ConnectionId::new(name).unwrap(),
            map: map.map(|map| MapId::new(map).unwrap()),
        })
    }

    fn letter() -> Letter {
        Letter {
            number: 7,
            message_id: "alarm.vendor-a.12@carrier.example".to_owned(),
            replies_to: Vec::new(),
            made_at: Timestamp::from_secs(1_700_000_000),
            customer: Some(CustomerId::new("acme").unwrap()),
            kind: Kind::Alarm,
            about: vec![connection("vendor-a", Some("intl"))],
            subject: "vendor-a: bad quality".to_owned(),
            text: "ASR is 35 %.\n".to_owned(),
            html: "<p>ASR is 35 %.</p>\n".to_owned(),
            deliveries: vec![delivery("noc@acme.example"), delivery("boss@acme.example")],
        }
    }

    fn composed(letter: &Letter, email: &Email) -> String {
        let text = String::from_utf8(compose(letter, email).unwrap()).unwrap();
        assert!(text.bytes().all(|byte| is_printable(byte) || matches!(byte, b'\t' | b'\r' | b'\n')), "{text}");
        assert!(!text.replace("\r\n", "").contains(['\r', '\n']), "{text}");
        assert!(text.lines().all(|line| line.len() <= 998), "{text}");
        text
    }

    fn names(mail: &ParsedMail<'_>) -> Vec<String> {
        mail.headers.iter().map(mailparse::MailHeader::get_key).collect()
    }

    fn display_name(mail: &ParsedMail<'_>, header: &str) -> Option<String> {
        match &addrparse_header(mail.headers.get_first_header(header).unwrap()).unwrap()[..] {
            [MailAddr::Single(one)] => one.display_name.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_letter_says_what_it_is_and_what_it_answers() {
        let mut email = email();
        email.reply_to = Some(mailbox(None, "support@carrier.example"));
        let mut letter = letter();
        letter.replies_to = vec!["first@carrier.example".to_owned(), "second@carrier.example".to_owned()];
        let text = composed(&letter, &email);
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let expected = [
            "Date: Tue, 14 Nov 2023 22:13:20 +0000",
            "From: \"Pointsman\" <noc@carrier.example>",
            "To: noc@acme.example, boss@acme.example",
            "Reply-To: support@carrier.example",
            "Subject: vendor-a: bad quality",
            "Message-ID: <alarm.vendor-a.12@carrier.example>",
            "In-Reply-To: <second@carrier.example>",
            "References: <first@carrier.example> <second@carrier.example>",
            "Auto-Submitted: auto-generated",
            "X-Auto-Response-Suppress: All",
            "List-Id: <quality.carrier.example>",
            "X-Pointsman-Kind: alarm",
            "X-Pointsman-Customer: acme",
            "X-Pointsman-Connection: vendor-a (intl)",
            "MIME-Version: 1.0",
            "Content-Type: multipart/alternative; boundary=\"=_pointsman_part\"",
        ];
        assert_eq!(head, expected.join("\r\n"));
    }

    #[test]
    fn the_operators_letter_is_of_another_list_and_of_no_customer() {
        let mut letter = letter();
        letter.customer = None;
        letter.kind = Kind::ConditionBegan;
        letter.about = vec![Subject::Condition(Condition::Storage)];
        let text = composed(&letter, &email());
        assert!(text.contains("\r\nList-Id: <operator.carrier.example>\r\nX-Pointsman-Kind: condition-began\r\n"));
        assert!(!text.contains("X-Pointsman-C"), "{text}");
    }

    #[test]
    fn a_letter_is_the_same_however_often_it_is_composed() {
        assert_eq!(composed(&letter(), &email()), composed(&letter(), &email()));
    }

    #[test]
    fn long_and_cyrillic_subjects_and_names_are_encoded_and_folded() {
        let words = "Качество соединения поставщика упало ниже порога; вызовы идут к нему в последнюю очередь ";
        let mut email = email();
        email.from.name = Some(format!("Дежурная смена \"Оператор\", {words}"));
        let mut letter = letter();
        for subject in [words.repeat(8), "a long subject of many words ".repeat(40), "x".repeat(3000)] {
            letter.subject = subject;
            let text = composed(&letter, &email);
            let (head, _) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.lines().all(|line| line.len() <= 78), "{head}");
            let mail = parse_mail(text.as_bytes()).unwrap();
            assert_eq!(mail.headers.get_first_value("Subject").unwrap(), letter.subject.trim());
            assert_eq!(display_name(&mail, "From").as_deref(), email.from.name.as_deref().map(str::trim));
        }
    }

    #[test]
    fn what_looks_encoded_is_not_decoded() {
        let mut letter = letter();
        letter.subject = "=?utf-8?q?forged?=".to_owned();
        let mut email = email();
        email.from.name = Some("=?utf-8?q?forged?=".to_owned());
        let text = composed(&letter, &email);
        let mail = parse_mail(text.as_bytes()).unwrap();
        assert_eq!(mail.headers.get_first_value("Subject").unwrap(), letter.subject);
        assert_eq!(display_name(&mail, "From"), email.from.name);
    }

    #[test]
    fn domains_are_written_in_ascii_and_addresses_that_cannot_be_are_left_out_or_refused() {
        let mut letter = letter();
        let to = ["noc@оператор.example", "смена@acme.example", "no address", "a@b.example\r\nBcc: x@y.example"];
        letter.deliveries = to.map(delivery).into();
        let mail = composed(&letter, &email());
        assert!(mail.contains("\r\nTo: noc@xn--80aj0acchco.example\r\n"), "{mail}");
        letter.deliveries.remove(0);
        assert!(composed(&letter, &email()).contains("\r\nTo: undisclosed-recipients:;\r\n"));
        let mut email = email();
        email.from = mailbox(None, "смена@acme.example");
        assert_eq!(compose(&letter, &email), Err(ComposeError::Address(email.from.email.clone())));
    }

    #[test]
    fn a_sender_at_an_address_has_a_list_id_that_is_a_name() {
        let mut email = email();
        email.from = mailbox(None, "noc@[192.0.2.1]");
        assert!(composed(&letter(), &email).contains("\r\nList-Id: <quality.localhost>\r\n"));
    }

    #[test]
    fn headers_that_grow_with_the_letter_are_bounded() {
        let mut letter = letter();
        letter.about = (0..80).map(|n| connection(&format!("vendor-{n}"), None)).collect();
        letter.replies_to = (0..80).map(|n| format!("{n}@carrier.example")).collect();
        let text = composed(&letter, &email());
        let mail = parse_mail(text.as_bytes()).unwrap();
        let connections = mail.headers.get_all_values("X-Pointsman-Connection");
        assert_eq!((connections.len(), connections[0].as_str()), (MAX_CONNECTIONS, "vendor-0"));
        let references = mail.headers.get_first_value("References").unwrap();
        let references: Vec<_> = references.split_whitespace().collect();
        assert_eq!(references.len(), MAX_REFERENCES);
        assert_eq!((references[0], references[1]), ("<0@carrier.example>", "<61@carrier.example>"));
        assert_eq!(references.last(), Some(&"<79@carrier.example>"));
    }

    #[test]
    fn references_to_few_letters_name_each_once() {
        let ids = |n: usize| (0..n).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(references(&ids(1)), "<0>");
        assert_eq!(references(&ids(3)), "<0> <1> <2>");
        assert_eq!(references(&ids(20)).split(' ').count(), 20);
    }

    #[test]
    fn bodies_keep_dots_long_lines_and_the_boundary() {
        let mut letter = letter();
        letter.text = format!(".\n..\nFrom here\n--{BOUNDARY}\n{}\n trailing \t\n", "=x ".repeat(2000));
        letter.html = format!("<p>.\n.\nДа {}</p>", "ж".repeat(5000));
        let text = composed(&letter, &email());
        assert!(text.lines().all(|line| line.len() <= 78));
        let mail = parse_mail(text.as_bytes()).unwrap();
        assert_eq!(mail.subparts.len(), 2);
        assert_eq!(body(&mail, 0), letter.text);
        assert_eq!(body(&mail, 1), letter.html);
    }

    /// The body of a part, with LF at its line ends.
    fn body(mail: &ParsedMail<'_>, part: usize) -> String {
        mail.subparts[part].get_body().unwrap().replace("\r\n", "\n")
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[ -~]{0,200}",
            "[ a-z\r\n\t\0.:=?_<>\"\\\\]{0,200}",
            "(\\PC| ){0,80}",
            "[а-яё \r\n]{0,300}",
        ]
    }

    proptest! {
        #[test]
        fn what_went_in_comes_out_and_no_header_more(
            subject in any_text(),
            name in any_text(),
            text in any_text(),
            html in any_text(),
            message_id in any_text(),
            parent in any_text(),
            recipient in any_text(),
        ) {
            let mut email = email();
            email.from.name = Some(name.clone());
            let mut letter = letter();
            letter.subject.clone_from(&subject);
            letter.text.clone_from(&text);
            letter.html.clone_from(&html);
            letter.message_id = message_id;
            letter.replies_to = vec![parent];
            letter.deliveries.push(delivery(&recipient));
            let bytes = composed(&letter, &email);
            let mail = parse_mail(bytes.as_bytes()).unwrap();

            let expected = "Date From To Subject Message-ID In-Reply-To References Auto-Submitted \
                X-Auto-Response-Suppress List-Id X-Pointsman-Kind X-Pointsman-Customer X-Pointsman-Connection \
                MIME-Version Content-Type";
            prop_assert_eq!(names(&mail).join(" "), expected);
            prop_assert_eq!(mail.headers.get_first_value("Subject").unwrap(), one_line(&subject));
            prop_assert_eq!(display_name(&mail, "From").unwrap_or_default(), one_line(&name));
            prop_assert_eq!(mail.subparts.len(), 2);
            let kinds: BTreeMap<_, _> = mail.subparts.iter().map(|part| {
                (part.ctype.mimetype.as_str(), names(part).join(" "))
            }).collect();
            let headers = "Content-Type Content-Transfer-Encoding".to_owned();
            prop_assert_eq!(kinds, BTreeMap::from([("text/plain", headers.clone()), ("text/html", headers)]));
            prop_assert_eq!(body(&mail, 0), lines(&text));
            prop_assert_eq!(body(&mail, 1), lines(&html));
        }
    }
}
