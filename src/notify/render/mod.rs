//! From facts to mails: templates in each language, built in, and the operator's own in their place.
//!
//! A template that fails must not cost a mail. So the operator's are tried out when they are loaded, with facts that take
//! every branch of the built-in ones; and where one fails all the same, the mail is made of the built-in ones.

mod clean;
pub(crate) mod engine;
mod facts;
mod load;
mod samples;
pub(crate) mod speech;
#[cfg(test)]
mod tests;

use std::path::Path;

use jiff::tz::TimeZone;
use minijinja::value::{Serde, Value};
use minijinja::{Error, context};

use crate::config::model::Language;
use crate::notify::notice::{Condition, Notice};
use crate::time::Timestamp;

use engine::Engines;
use facts::{Facts, facts};

pub(crate) use clean::{line as shown_line, number as shown_number};
pub use load::BadTemplate;
pub use samples::Sample;

/// Who reads a mail, and how they like it.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// What the customer is called; empty for the operator.
    pub name: &'a str,
    /// The language.
    pub language: Language,
    /// The time zone of the times.
    pub time_zone: &'a TimeZone,
    /// Whether called numbers are masked.
    pub mask_numbers: bool,
}

/// What a mail tells of.
#[derive(Clone, Copy, Debug)]
pub enum Mail<'a> {
    /// A connection became bad.
    Alarm(&'a Notice),
    /// A connection became good again.
    Recovery(&'a Notice),
    /// Several changes, in any order.
    Digest(&'a [Notice]),
    /// Something that the operator must know of.
    Condition {
        /// What.
        condition: &'a Condition,
        /// More about it, such as why a link is down; in English, may be empty.
        detail: &'a str,
        /// When it began.
        began_at: Timestamp,
        /// When it was over; `None` while it lasts.
        over_at: Option<Timestamp>,
    },
    /// A mail sent by hand, to see whether mails arrive.
    Test,
}

impl Mail<'_> {
    /// What the names of its templates begin with.
    fn template(&self) -> &'static str {
        match self {
            Mail::Alarm(_) => "alarm",
            Mail::Recovery(_) => "recovery",
            Mail::Digest(_) => "digest",
            Mail::Condition { .. } => "condition",
            Mail::Test => "test",
        }
    }
}

/// A kind of mail with invented facts, to see what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Example {
    /// Says that it is a test
    Test,
    /// A connection became bad
    Alarm,
    /// It recovered
    Recovery,
    /// Several changes in one mail
    Digest,
    /// Something that the operator must know of
    Condition,
}

impl Example {
    /// Its facts; borrow the mail from them.
    #[must_use]
    pub fn facts(self) -> Sample {
        samples::named(match self {
            Self::Test => "test",
            Self::Alarm => "alarm-make-last",
            Self::Recovery => "recovery-make-last",
            Self::Digest => "digest",
            Self::Condition => "node-down",
        })
    }
}

/// A finished mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The subject line: one line, at most 200 characters.
    pub subject: String,
    /// The body as plain text.
    pub text: String,
    /// The body as HTML.
    pub html: String,
}

/// The templates in all languages.
#[derive(Debug)]
pub struct Templates {
    built_in: Engines,
    /// With the operator's in the place of built-in ones.
    own: Option<Engines>,
}

impl Templates {
    /// Those that are part of the program.
    #[must_use]
    pub fn built_in() -> Self {
        Self { built_in: Engines::built_in(), own: None }
    }

    /// Those of a folder in the place of the built-in ones of the same relative path, tried out with sample facts.
    ///
    /// # Errors
    /// Everything that is wrong with the folder and the templates in it.
    pub fn load(folder: &Path) -> Result<Self, Vec<BadTemplate>> {
        let own = load::load(folder)?;
        Ok(Self { built_in: Engines::built_in(), own: Some(own) })
    }

    /// The built-in templates: relative path (`en/alarm.txt`) and text.
    pub fn sources() -> impl Iterator<Item = (&'static str, &'static str)> {
        engine::SOURCES.iter().copied()
    }

    /// Composes a mail. Where an operator's template fails, that is logged and the built-in ones are used.
    #[must_use]
    pub fn render(&self, mail: &Mail<'_>, reader: &Reader<'_>) -> Rendered {
        let facts = facts(mail, reader);
        for engines in self.own.iter().chain([&self.built_in]) {
            match compose(engines, mail, reader.language, &facts) {
                Ok(rendered) => return rendered,
                Err(error) => tracing::error!("mail template: {}", load::describe(&error)),
            }
        }
        bare(mail)
    }
}

/// Renders a mail.
fn compose(engines: &Engines, mail: &Mail<'_>, language: Language, facts: &Facts) -> Result<Rendered, Error> {
    let facts = Value::from(Serde(facts));
    let subject = clean::subject(&part(engines, mail, language, Part::Subject, facts.clone())?);
    let facts = context! { subject => subject.clone(), ..facts };
    let text = clean::text(&part(engines, mail, language, Part::Text, facts.clone())?);
    let html = part(engines, mail, language, Part::Html, facts)?;
    Ok(Rendered { subject, text, html })
}

/// The parts of a mail.
#[derive(Clone, Copy)]
enum Part {
    Subject,
    Text,
    Html,
}

impl Part {
    /// What the name of its template ends with.
    fn ending(self) -> &'static str {
        match self {
            Self::Subject => "subject.txt",
            Self::Text => "txt",
            Self::Html => "html",
        }
    }
}

/// Renders one part, as its template has it.
fn part(engines: &Engines, mail: &Mail<'_>, language: Language, part: Part, facts: Value) -> Result<String, Error> {
    let name = format!("{}/{}.{}", engine::folder(language), mail.template(), part.ending());
    engines.of(language).get_template(&name)?.render(facts)
}

/// What is left to say where even the built-in templates fail.
fn bare(mail: &Mail<'_>) -> Rendered {
    let changes = |notices: &[Notice]| {
        let lines = notices.iter().map(|notice| {
            let state = if notice.is_alarm() { "bad" } else { "good" };
            format!("{} {}: {state}", notice.change.at, notice.key)
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let (subject, text) = match mail {
        Mail::Alarm(notice) | Mail::Recovery(notice) => (notice.key.to_string(), changes(std::slice::from_ref(notice))),
        Mail::Digest(notices) => ("Connections changed".to_owned(), changes(notices)),
        Mail::Condition { condition, detail, began_at, over_at } => {
            let over = over_at.map(|at| format!(", over at {at}")).unwrap_or_default();
            (condition.to_string(), format!("{condition} since {began_at}{over}: {}", clean::line(detail, 500)))
        }
        Mail::Test => ("Test".to_owned(), "Test".to_owned()),
    };
    let html = format!("<pre>{}</pre>", minijinja::HtmlEscape(&text));
    Rendered { subject: clean::subject(&subject), text: clean::text(&text), html }
}
