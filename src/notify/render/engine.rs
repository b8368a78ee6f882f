//! The template engine as it is set up for each language.

use minijinja::value::{Rest, Value};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use textwrap::core::display_width;

use super::speech;
use crate::config::model::Language;

/// Under which names the built-in templates can be reached however much of them is replaced.
pub(super) const BUILT_IN: &str = "built-in/";

/// Most steps of rendering one part of a mail; a full digest takes a tenth of it. A loop without end in an operator's
/// template must not hold up the mail of all.
pub(super) const FUEL: u64 = 1_000_000;

/// Widest column that a template can ask for.
const MAX_WIDTH: usize = 200;

macro_rules! sources {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../config/templates/", $path)))),*]
    };
}

/// Every built-in template.
pub(super) const SOURCES: &[(&str, &str)] = sources![
    "layout.html",
    "layout.txt",
    "parts.html",
    "parts.txt",
    "en/words.jinja",
    "en/alarm.subject.txt",
    "en/alarm.txt",
    "en/alarm.html",
    "en/recovery.subject.txt",
    "en/recovery.txt",
    "en/recovery.html",
    "en/digest.subject.txt",
    "en/digest.txt",
    "en/digest.html",
    "en/condition.subject.txt",
    "en/condition.txt",
    "en/condition.html",
    "en/test.subject.txt",
    "en/test.txt",
    "en/test.html",
    "ru/words.jinja",
    "ru/alarm.subject.txt",
    "ru/alarm.txt",
    "ru/alarm.html",
    "ru/recovery.subject.txt",
    "ru/recovery.txt",
    "ru/recovery.html",
    "ru/digest.subject.txt",
    "ru/digest.txt",
    "ru/digest.html",
    "ru/condition.subject.txt",
    "ru/condition.txt",
    "ru/condition.html",
    "ru/test.subject.txt",
    "ru/test.txt",
    "ru/test.html",
];

/// The filters that every language has beside the engine's own.
#[cfg(test)]
pub(super) const FILTERS: [&str; 8] =
    ["number", "unit", "plural", "duration", "upper_first", "flow", "column", "column_right"];

/// Every language.
pub(super) const LANGUAGES: [Language; 2] = [Language::En, Language::Ru];

/// The folder of a language, which is also its code.
pub(crate) fn folder(language: Language) -> &'static str {
    match language {
        Language::En => "en",
        Language::Ru => "ru",
    }
}

/// One engine for each language: numbers and nouns are written differently, whatever template asks for them.
#[derive(Clone, Debug)]
pub(super) struct Engines {
    en: Environment<'static>,
    ru: Environment<'static>,
}

impl Engines {
    /// With the built-in templates.
    pub(super) fn built_in() -> Self {
        let mut engines = Self { en: engine(Language::En), ru: engine(Language::Ru) };
        for (path, source) in SOURCES {
            for name in [(*path).to_owned(), format!("{BUILT_IN}{path}")] {
                if let Err(error) = engines.put(&name, source) {
                    tracing::error!("built-in template: {error}");
                }
            }
        }
        engines
    }

    /// The engine of a language.
    pub(super) fn of(&self, language: Language) -> &Environment<'static> {
        match language {
            Language::En => &self.en,
            Language::Ru => &self.ru,
        }
    }

    /// With other fuel than [`FUEL`].
    #[cfg(test)]
    pub(super) fn with_fuel(mut self, fuel: u64) -> Self {
        self.en.set_fuel(Some(fuel));
        self.ru.set_fuel(Some(fuel));
        self
    }

    /// Puts a template in its place, unless its syntax is wrong.
    pub(super) fn put(&mut self, name: &str, source: &str) -> Result<(), Error> {
        self.en.add_template_owned(name.to_owned(), source.to_owned())?;
        self.ru.add_template_owned(name.to_owned(), source.to_owned())
    }
}

/// The engine of a language, without templates: texts of files named `.html` are escaped, what is not there is an error.
pub(crate) fn engine(language: Language) -> Environment<'static> {
    let mut engine = Environment::new();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(FUEL));
    engine.set_auto_escape_callback(|name| match name.rsplit_once('.') {
        Some((_, "html")) => minijinja::AutoEscape::Html,
        _ => minijinja::AutoEscape::None,
    });
    if let Ok(syntax) = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        engine.set_syntax(syntax);
    }
    engine.add_global("language", folder(language));
    engine.add_filter("number", move |value: f64, decimals: Option<usize>| speech::number(value, decimals, language));
    engine.add_filter("duration", move |secs: u64| speech::duration(secs, language));
    engine.add_filter("unit", |value: String, unit: String| format!("{value}{}{unit}", speech::JOINER));
    engine.add_filter("plural", move |count: u64, forms: Rest<String>| plural(count, &forms, language));
    engine.add_filter("flow", |text: Value| keep_safe(&text, flow));
    engine.add_filter("upper_first", |text: Value| keep_safe(&text, upper_first));
    engine.add_filter("column", |text: String, width: usize| format!("{text}{}", gap(&text, width)));
    engine.add_filter("column_right", |text: String, width: usize| format!("{}{text}", gap(&text, width)));
    engine
}

fn plural(count: u64, forms: &[String], language: Language) -> Result<String, Error> {
    if forms.len() != speech::plural_forms(language) {
        let detail = format!("plural takes {} forms of the noun in this language", speech::plural_forms(language));
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    Ok(forms.get(speech::plural_form(count, language)).cloned().unwrap_or_default())
}

/// What has been escaped already must not be escaped again.
fn keep_safe(text: &Value, change: impl Fn(&str) -> String) -> Value {
    let changed = change(&text.to_string());
    if text.is_safe() { Value::from_safe_string(changed) } else { Value::from(changed) }
}

/// The text as one line; blanks that hold a number and its unit together stay.
fn flow(text: &str) -> String {
    text.split([' ', '\n', '\t']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn upper_first(text: &str) -> String {
    let mut chars = text.trim_start().chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn gap(text: &str, width: usize) -> String {
    " ".repeat(width.min(MAX_WIDTH).saturating_sub(display_width(text)))
}
