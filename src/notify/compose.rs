//! From facts to a letter: its names, its thread, its readers and its words.

use std::collections::HashMap;
use std::fmt::Write as _;

use lettre::Address;

use crate::config::model::{Config, Customer, Email};
use crate::notify::conditions::Turn;
use crate::notify::desk::Bundle;
use crate::notify::kept::{Kept, KeptKey, Thread};
use crate::notify::letter::{Delivery, Kind, Letter};
use crate::notify::notice::{Notice, Subject};
use crate::notify::render::{Example, Mail, Reader, Rendered, Templates};
use crate::store::StoreOp;
use crate::time::Timestamp;

/// Most mails that one answers: a digest of recoveries could name hundreds, and some servers refuse long headers.
const MAX_REPLIES: usize = 20;

/// Makes letters, and remembers what the next one about a subject answers.
#[derive(Debug)]
pub struct Composer {
    templates: Templates,
    threads: HashMap<Subject, Thread>,
}

/// A letter that is not in the outbox yet, and what is to be stored with it.
#[derive(Debug)]
pub struct Composed {
    /// The letter; its number is not decided yet. `None` where nobody reads it.
    pub letter: Option<Letter>,
    /// What is to be stored in one transaction with it.
    pub rows: Vec<StoreOp>,
}

impl Composer {
    /// With the threads that were open when the program ended.
    #[must_use]
    pub fn new(templates: Templates, threads: impl IntoIterator<Item = Thread>) -> Self {
        let threads = threads.into_iter().map(|thread| (thread.about.clone(), thread)).collect();
        Self { templates, threads }
    }

    /// Takes over a thread that could not be read before; what is known of its subject by now is newer.
    pub fn adopt(&mut self, thread: Thread) {
        self.threads.entry(thread.about.clone()).or_insert(thread);
    }

    /// The threads that are open.
    pub fn open_threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values()
    }

    /// A letter to a customer.
    #[must_use]
    pub fn to_customer(&mut self, bundle: &Bundle, config: &Config, email: &Email, now: Timestamp) -> Composed {
        let told = bundle.notices.iter().map(|notice| StoreOp::MailGone(KeptKey::notice(notice)));
        let mut rows: Vec<StoreOp> = told.collect();
        let Some(customer) = config.customer(&bundle.customer).filter(|customer| !customer.email.is_empty()) else {
            return Composed { letter: None, rows };
        };
        let (kind, mail) = match bundle.notices.as_slice() {
            [alarm] if alarm.is_alarm() => (Kind::Alarm, Mail::Alarm(alarm)),
            [recovery] => (Kind::Recovery, Mail::Recovery(recovery)),
            several => (Kind::Digest, Mail::Digest(several)),
        };
        let message_id = message_id(kind, &bundle.notices, email);
        let mut letter = self.letter(kind, message_id, &mail, &reader(customer, email), now);
        letter.customer = Some(customer.id.clone());
        letter.deliveries = deliveries(&customer.email, now);
        for notice in &bundle.notices {
            self.thread(
                &mut letter,
                Subject::Connection(notice.key.clone()),
                notice.is_alarm(),
                notice.change.at,
                &mut rows,
            );
        }
        Composed { letter: Some(letter), rows }
    }

    /// A letter to the operator.
    #[must_use]
    pub fn to_operator(&mut self, turn: &Turn, config: &Config, email: &Email, now: Timestamp) -> Composed {
        let Turn { condition, detail, began_at, over_at } = turn;
        let kind = if over_at.is_none() { Kind::ConditionBegan } else { Kind::ConditionOver };
        let at = over_at.unwrap_or(*began_at);
        let message_id = local_id(&[kind.as_str(), &condition.to_string(), &at.as_micros().to_string()], email);
        let mail = Mail::Condition { condition, detail, began_at: *began_at, over_at: *over_at };
        let mut letter = self.letter(kind, message_id, &mail, &operator(config, email), now);
        letter.deliveries = deliveries(&config.operator.email, now);
        let mut rows = Vec::new();
        self.thread(&mut letter, Subject::Condition(condition.clone()), over_at.is_none(), *began_at, &mut rows);
        Composed { letter: Some(letter), rows }
    }

    fn letter(&self, kind: Kind, message_id: String, mail: &Mail<'_>, reader: &Reader<'_>, now: Timestamp) -> Letter {
        let Rendered { subject, text, html } = self.templates.render(mail, reader);
        Letter {
            number: 0,
            message_id,
            replies_to: Vec::new(),
            made_at: now,
            customer: None,
            kind,
            about: Vec::new(),
            subject,
            text,
            html,
            deliveries: Vec::new(),
        }
    }

    /// Puts the letter into the thread of what it is about. What begins opens a thread; what ends answers and closes it.
    fn thread(&mut self, letter: &mut Letter, about: Subject, begins: bool, since: Timestamp, rows: &mut Vec<StoreOp>) {
        if begins {
            let thread = Thread { about: about.clone(), message_id: letter.message_id.clone(), since };
            self.threads.insert(about.clone(), thread.clone());
            rows.push(StoreOp::Mail(Kept::Thread(Box::new(thread))));
        } else if let Some(Thread { message_id, .. }) = self.threads.remove(&about) {
            rows.push(StoreOp::MailGone(KeptKey::thread(&about)));
            let known = message_id == letter.message_id || letter.replies_to.contains(&message_id);
            if !known && letter.replies_to.len() < MAX_REPLIES {
                letter.replies_to.push(message_id);
            }
        }
        if !letter.about.contains(&about) {
            letter.about.push(about);
        }
    }
}

/// How the operator reads.
fn operator<'a>(config: &Config, email: &'a Email) -> Reader<'a> {
    Reader {
        name: "",
        language: config.operator.language,
        time_zone: &email.time_zone,
        mask_numbers: email.mask_numbers,
    }
}

/// How a customer reads.
fn reader<'a>(customer: &'a Customer, email: &'a Email) -> Reader<'a> {
    Reader {
        name: customer.name.as_deref().unwrap_or(customer.id.as_str()),
        language: customer.language,
        time_zone: customer.time_zone.as_ref().unwrap_or(&email.time_zone),
        mask_numbers: email.mask_numbers,
    }
}

/// A letter with invented facts to these addresses; `customer` is `None` for the operator.
#[must_use]
pub fn example(
    templates: &Templates,
    example: Example,
    (customer, to): (Option<&Customer>, &[Address]),
    (config, email): (&Config, &Email),
    now: Timestamp,
) -> Letter {
    let facts = example.facts();
    let reader = customer.map_or_else(|| operator(config, email), |customer| reader(customer, email));
    let Rendered { subject, text, html } = templates.render(&facts.mail(), &reader);
    Letter {
        number: 0,
        message_id: local_id(&[Kind::Test.as_str(), &now.as_micros().to_string()], email),
        replies_to: Vec::new(),
        made_at: now,
        customer: customer.map(|customer| customer.id.clone()),
        kind: Kind::Test,
        about: Vec::new(),
        subject,
        text,
        html,
        deliveries: deliveries(to, now),
    }
}

fn deliveries(addresses: &[Address], now: Timestamp) -> Vec<Delivery> {
    addresses.iter().map(|address| Delivery::new(address.as_ref(), now)).collect()
}

/// The Message-ID of a letter about these changes: the same however often it is composed.
fn message_id(kind: Kind, notices: &[Notice], email: &Email) -> String {
    let Some(first) = notices.first() else { return local_id(&[kind.as_str()], email) };
    let (key, epoch) = (first.key.to_string(), first.change.epoch.0.to_string());
    let at = first.change.at.as_micros().to_string();
    local_id(&[kind.as_str(), &key, &epoch, &at], email)
}

/// No two lists of parts make one id: what would is written as its code.
fn local_id(parts: &[&str], email: &Email) -> String {
    let mut local = String::new();
    for (n, part) in parts.iter().enumerate() {
        local.push_str(if n == 0 { "" } else { "." });
        for byte in part.bytes() {
            match byte {
                b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => local.push(char::from(byte)),
                b' ' => local.push('+'),
                // Writing to a String cannot fail.
                _ => drop(write!(local, "={byte:02x}")),
            }
        }
    }
    format!("{local}@{}", email.from.email.domain())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::Via;
    use jiff::tz::TimeZone;
    use std::time::Duration;

    fn email() -> Email {
        Email {
            from: "noc@operator.example".parse().unwrap(),
            reply_to: None,
            via: Via::Sendmail("/usr/sbin/sendmail".into()),
            timeout: Duration::from_secs(60),
            give_up_after: Duration::from_secs(3600),
            digest_after: 5,
            digest_window: Duration::from_secs(60),
            mask_numbers: true,
            time_zone: TimeZone::UTC,
            templates: None,
        }
    }

    #[test]
    fn letters_about_different_things_have_different_ids() {
        let email = email();
        let id = |parts: &[&str]| local_id(parts, &email);
        assert_eq!(id(&["alarm", "vendor-a", "12"]), "alarm.vendor-a.12@operator.example");
        let ids = [
            id(&["alarm", "vendor.a", "1"]),
            id(&["alarm", "vendor_a", "1"]),
            id(&["alarm", "vendor a", "1"]),
            id(&["alarm", "vendor", "a", "1"]),
            id(&["alarm", "vendor=2ea", "1"]),
        ];
        for (n, one) in ids.iter().enumerate() {
            assert!(!ids[n + 1..].contains(one), "{one}");
        }
    }
}
