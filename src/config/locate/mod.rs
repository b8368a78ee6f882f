//! Where every key and every value of a configuration file stands.
//!
//! The `config` crate merges layers and loses positions on the way, so the same text is read a second time for its
//! shape alone: a tree of [`Spot`]s with the same keys and indices as the values. Whoever has a path into the values
//! can look its place up here.

mod json;
mod toml;
mod yaml;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::config::Format;

/// A range of bytes of the file.
pub(super) type Span = Range<usize>;

/// How deep tables and lists may be nested. The configuration needs four levels; the bound keeps recursion over the
/// tree away from the end of the stack.
pub(super) const MAX_DEPTH: usize = 32;

/// How many values a file may have, aliases of YAML counted as often as they are used.
pub(super) const MAX_VALUES: usize = 500_000;

/// The place of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spot {
    /// Its key, where it has one.
    pub(super) key: Option<Span>,
    /// The value. For a table that TOML opens with a header this is the header.
    pub(super) value: Span,
    /// What is inside it.
    pub(super) inside: Inside,
}

/// What is inside a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Inside {
    Nothing,
    List(Vec<Spot>),
    Table(BTreeMap<String, Spot>),
}

impl Spot {
    fn leaf(value: Span) -> Self {
        Self { key: None, value, inside: Inside::Nothing }
    }

    /// The place of the value under that key.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        match &self.inside {
            Inside::Table(fields) => fields.get(name),
            _ => None,
        }
    }

    /// The place of the value at that index.
    pub(super) fn item(&self, index: usize) -> Option<&Self> {
        match &self.inside {
            Inside::List(items) => items.get(index),
            _ => None,
        }
    }

    /// Calls `visit` with the key and the place of everything in here that has a key.
    pub(super) fn for_each_field<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a Self)) {
        match &self.inside {
            Inside::Nothing => {}
            Inside::List(items) => items.iter().for_each(|item| item.for_each_field(visit)),
            Inside::Table(fields) => {
                for (key, spot) in fields {
                    visit(key, spot);
                    spot.for_each_field(visit);
                }
            }
        }
    }
}

/// Why a text is not of its format.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SyntaxError {
    pub(super) at: Span,
    pub(super) message: String,
    /// Where the same key was written before.
    pub(super) before: Option<Span>,
}

impl SyntaxError {
    fn new(at: Span, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), before: None }
    }

    fn duplicate(key: &str, at: Span, before: Span) -> Self {
        Self { at, message: format!("the key `{key}` is written twice"), before: Some(before) }
    }

    fn too_deep(at: usize) -> Self {
        Self::new(at..at, format!("nested more than {MAX_DEPTH} levels deep"))
    }
}

/// Finds the places of all values of `text`.
pub(super) fn locate(text: &str, format: Format) -> Result<Spot, Vec<SyntaxError>> {
    match format {
        Format::Toml => toml::locate(text),
        Format::Json => json::locate(text).map_err(|error| vec![error]),
        Format::Yaml => yaml::locate(text).map_err(|error| vec![error]),
    }
}
