//! What the pages say of the engine's facts, in each language: pure functions from facts to text, without HTML.
//!
//! The engine speaks English: its sentences are in the picture and in the database. Where a fact has only a sentence, it
//! is read back ([`quality::sentence`](crate::quality::sentence)) and said anew; what cannot be read (a row that an older
//! version wrote) is shown as it is, and so is whatever an operator, a PBX or the system said in its own words.

mod connections;
mod edges;
mod nodes;
mod routes;
#[cfg(test)]
mod tests;

pub(super) use connections::{attempt, change, pinned, state};
pub(super) use edges::ended;
pub(super) use nodes::{admin, breaker, lethal, link_state, source, term, term_figure};
pub(super) use routes::{measure, measure_unit, no_answer, route_quality, route_reason, why_map};

pub(super) use crate::notify::causes::cause;
pub(super) use crate::plot::outcome;

use crate::config::model::Language;
use crate::notify::render::speech::{JOINER, number, plural_form};

/// The text of the language.
fn either<'a>(language: Language, en: &'a str, ru: &'a str) -> &'a str {
    match language {
        Language::En => en,
        Language::Ru => ru,
    }
}

/// Which of these forms goes with a count; English has two, for one and for more.
fn form<'a>(count: u64, language: Language, en: [&'a str; 2], ru: [&'a str; 3]) -> &'a str {
    let forms: &[&str] = match language {
        Language::En => &en,
        Language::Ru => &ru,
    };
    forms.get(plural_form(count, language)).copied().unwrap_or_default()
}

/// A number of calls.
fn calls(count: u64, language: Language) -> String {
    format!("{count}{JOINER}{}", form(count, language, ["call", "calls"], ["вызов", "вызова", "вызовов"]))
}

/// A share, with one decimal.
fn percent(value: f64, language: Language) -> String {
    format!("{}{JOINER}%", number(value, Some(1), language))
}

/// A count as the plural forms want it.
fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
