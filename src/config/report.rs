//! What is wrong with a configuration, and how it is shown.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annotate_snippets::renderer::Renderer;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Snippet};
use serde::{Serialize, Serializer};

use super::locate::Span;
use super::secret;
use super::tree::{Place, PlaceId};

/// Most problems that are kept, errors before warnings: a file that is not a configuration at all has as many as it has
/// lines, and each takes a walk over its line.
const MAX_KEPT: usize = 500;

/// Most problems that are shown for people.
const MAX_SHOWN: usize = 100;

/// Longest line that is shown: one of a generated file may hold all of it, and says nothing to anybody.
const MAX_LINE: usize = 2000;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can, but probably does not mean what was meant.
    Warning,
}

/// A place of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    #[serde(skip)]
    span: Range<usize>,
}

/// Something that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Path of the value, e.g. `nodes[0].address`; empty for the file as a whole.
    pub key: String,
    /// Where it stands in the file.
    #[serde(flatten)]
    pub position: Option<Position>,
    /// The environment variable that set the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// What to write instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Other places that it has to do with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
    /// What to say at the place itself, e.g. what is expected there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// Another place that a problem has to do with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Related {
    /// Path of the value.
    pub key: String,
    /// Where it stands in the file.
    #[serde(flatten)]
    pub position: Option<Position>,
    /// The environment variable that set the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// What it has to do with it.
    pub label: String,
}

impl fmt::Display for Related {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`", self.label, self.key)?;
        match (&self.position, &self.variable) {
            (_, Some(variable)) => write!(f, " ({variable})"),
            (Some(Position { line, column, .. }), None) => write!(f, " (line {line}, column {column})"),
            (None, None) => Ok(()),
        }
    }
}

/// All that is wrong with a configuration, in the order of the file. Values of secrets are masked wherever lines of
/// the file are shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Problems {
    file: PathBuf,
    /// The text, secrets masked.
    shown: Arc<str>,
    list: Vec<Problem>,
    /// How many are not in the list, because there are too many.
    omitted: usize,
}

impl Problems {
    /// The file cannot be read at all.
    #[must_use]
    pub fn unreadable(path: &Path, why: impl fmt::Display) -> Self {
        let mut problems = Self { file: path.to_owned(), shown: Arc::default(), list: Vec::new(), omitted: 0 };
        problems.list.push(Problem::new(Severity::Error, &why.to_string()));
        problems
    }

    /// The problems.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.list.iter()
    }

    /// How many there are; those that are too many to be listed included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len() + self.omitted
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many of the listed ones are errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.list.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// How many of the listed ones are warnings.
    #[must_use]
    pub fn warnings(&self) -> usize {
        self.list.len() - self.errors()
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// How many are not listed, because there are too many.
    #[must_use]
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// For people: with the lines concerned, in colour or plain.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for problem in self.list.iter().take(MAX_SHOWN) {
            text.push_str(&renderer.render(&[self.group(problem)]));
            text.push_str("\n\n");
        }
        if let Some(more) = self.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
            text.push_str(&format!("... and {more} more\n\n"));
        }
        text
    }

    fn group<'a>(&'a self, problem: &'a Problem) -> Group<'a> {
        let level = match problem.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let file = self.file.to_string_lossy();
        let snippet = self.snippet(problem);
        let marked = snippet.is_some();
        let group = Group::with_title(level.primary_title(problem.message.as_str()));
        let mut group = match (snippet, &problem.position) {
            (Some(snippet), _) => group.element(snippet.path(file)),
            (None, Some(Position { line, column, .. })) => {
                group.element(Origin::path(file).line(*line).char_column(*column))
            }
            (None, None) => group.element(Origin::path(file)),
        };
        if let Some(variable) = &problem.variable {
            group = group.element(Level::NOTE.message(format!("set by the environment variable {variable}")));
        }
        for related in problem.related.iter().filter(|related| !marked || related.position.is_none()) {
            group = group.element(Level::NOTE.message(related.to_string()));
        }
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        group
    }

    /// The lines concerned, with what is marked in them.
    fn snippet<'a>(&'a self, problem: &'a Problem) -> Option<Snippet<'a, annotate_snippets::Annotation<'a>>> {
        let position = problem.position.as_ref()?;
        let related = problem.related.iter();
        let related = related.filter_map(|related| Some((related.position.as_ref()?, related.label.as_str())));
        let marks = || std::iter::once((position, problem.label.as_str())).chain(related.clone());
        // Only these lines are handed over: the renderer walks all that it is given.
        let first = marks().min_by_key(|(position, _)| position.span.start)?.0;
        let last = marks().map(|(position, _)| position.span.end).max()?;
        let from = self.shown[..first.span.start].rfind('\n').map_or(0, |end| end + 1);
        let to = self.shown[last..].find('\n').map_or(self.shown.len(), |end| last + end);
        if self.shown[from..to].split('\n').any(|line| line.len() > MAX_LINE) {
            return None;
        }
        let mark = |(index, (position, label)): (usize, (&Position, &'a str))| {
            let kind = if index == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let span = position.span.start - from..position.span.end - from;
            let label = Some(label).filter(|label| !label.is_empty());
            kind.span(span).label(label)
        };
        let snippet = Snippet::source(&self.shown[from..to]).line_start(first.line);
        Some(snippet.annotations(marks().enumerate().map(mark)))
    }
}

impl fmt::Debug for Problems {
    /// Without the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problems").field("file", &self.file).field("list", &self.list).finish_non_exhaustive()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Problems {}

impl Serialize for Problems {
    /// A list of problems, each with its file.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct InFile<'a> {
            file: String,
            #[serde(flatten)]
            problem: &'a Problem,
        }
        let file = self.file.to_string_lossy();
        serializer.collect_seq(self.list.iter().map(|problem| InFile { file: file.clone().into_owned(), problem }))
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl Problem {
    fn new(severity: Severity, message: &str) -> Self {
        let (help, position, variable) = (None, None, None);
        let message = printable(message);
        Self {
            severity,
            message,
            key: String::new(),
            position,
            variable,
            help,
            related: Vec::new(),
            label: String::new(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match (&self.position, &self.variable) {
            (_, Some(variable)) => write!(f, " ({variable})"),
            (Some(Position { line, column, .. }), None) => write!(f, " (line {line}, column {column})"),
            (None, None) => Ok(()),
        }
    }
}

/// What a draft points at: a key or its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Key(PlaceId),
    Value(PlaceId),
    /// The file as a whole.
    File,
}

/// A problem as it is found: its places are numbers yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    severity: Severity,
    message: String,
    mark: Mark,
    label: String,
    related: Vec<(Mark, String)>,
    help: Option<String>,
}

impl Draft {
    pub(super) fn error(mark: Mark, message: impl Into<String>) -> Self {
        let (related, label) = (Vec::new(), String::new());
        Self { severity: Severity::Error, message: message.into(), mark, label, related, help: None }
    }

    pub(super) fn warning(mark: Mark, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(mark, message) }
    }

    /// What to say at the place itself.
    pub(super) fn label(self, label: impl Into<String>) -> Self {
        Self { label: label.into(), ..self }
    }

    /// Another place that it has to do with.
    pub(super) fn also(mut self, mark: Mark, label: impl Into<String>) -> Self {
        self.related.push((mark, label.into()));
        self
    }

    /// What to write instead.
    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(super) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Whether it says the same of the same place.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        self.message == other.message && self.mark == other.mark
    }
}

/// Turns what was found into problems of a file.
pub(super) struct Reporter<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    pub(super) places: &'a [Place],
}

impl Reporter<'_> {
    /// The problems, in the order of the file.
    pub(super) fn problems(&self, mut drafts: Vec<Draft>, secrets: &[Span]) -> Problems {
        drafts.sort_by_key(|draft| !draft.is_error());
        let omitted = drafts.len().saturating_sub(MAX_KEPT);
        drafts.truncate(MAX_KEPT);
        let mut list: Vec<_> = drafts.into_iter().map(|draft| self.problem(draft)).collect();
        list.sort_by_key(|problem| problem.position.as_ref().map_or(0, |position| position.span.start));
        Problems { omitted, ..self.with(list, secrets) }
    }

    fn problem(&self, draft: Draft) -> Problem {
        let (key, position, variable) = self.find(draft.mark);
        let related = draft.related.into_iter().map(|(mark, label)| {
            let (key, position, variable) = self.find(mark);
            Related { key, position, variable, label: printable(&label) }
        });
        Problem {
            key,
            position,
            variable,
            help: draft.help.map(|help| printable(&help)),
            related: related.collect(),
            label: printable(&draft.label),
            ..Problem::new(draft.severity, &draft.message)
        }
    }

    fn find(&self, mark: Mark) -> (String, Option<Position>, Option<String>) {
        let (id, on_key) = match mark {
            Mark::Key(id) => (id, true),
            Mark::Value(id) => (id, false),
            Mark::File => return (String::new(), None, None),
        };
        let Some(place) = self.places.get(id.0 as usize).filter(|place| !place.path.is_empty()) else {
            return (String::new(), None, None);
        };
        let span = if on_key { place.key.as_ref().unwrap_or(&place.value) } else { &place.value };
        let position = place.variable.is_none().then(|| position(self.text, span));
        (printable(&place.path), position, place.variable.clone())
    }

    /// A problem at a place that is known by its bytes.
    pub(super) fn at(&self, span: &Span, message: &str, before: Option<&Span>) -> Problem {
        let related = before.map(|span| Related {
            key: String::new(),
            position: Some(position(self.text, span)),
            variable: None,
            label: "first written here".to_owned(),
        });
        let position = Some(position(self.text, span));
        let related = related.into_iter().collect();
        Problem { position, related, ..Problem::new(Severity::Error, message) }
    }

    /// A problem of a variable that belongs to no place.
    pub(super) fn of_variable(variable: &str, message: &str, help: Option<String>) -> Problem {
        Problem { variable: Some(printable(variable)), help, ..Problem::new(Severity::Error, message) }
    }

    /// Problems that are made already.
    pub(super) fn with(&self, list: Vec<Problem>, secrets: &[Span]) -> Problems {
        Problems { file: self.file.to_owned(), shown: secret::mask(self.text, secrets).into(), list, omitted: 0 }
    }
}

impl Problems {
    /// Adds to the front.
    pub(super) fn prepend(&mut self, mut list: Vec<Problem>) {
        list.append(&mut self.list);
        self.list = list;
    }
}

/// A span within one line: what spans several is marked at its beginning.
fn position(text: &str, span: &Span) -> Position {
    let inside = |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let (start, end) = (inside(span.start), inside(span.end.max(span.start)));
    let end = text[start..end].find(['\r', '\n']).map_or(end, |line| start + line);
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line = text[..line_start].matches('\n').count() + 1;
    Position { line, column: text[line_start..start].chars().count() + 1, span: start..end }
}

/// The text without control characters: it may hold what somebody wrote, and goes to a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
