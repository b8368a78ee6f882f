//! The operator's templates: found, read and tried out. Everything that is wrong is said at once.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use minijinja::value::{Serde, Value};
use minijinja::{Error, ErrorKind, context};

use super::engine::{BUILT_IN, Engines, SOURCES};
use super::facts::facts;
use super::{Part, part, samples};
use crate::config::suggest;

/// Longest template file; the longest built-in one has a twentieth of it.
const MAX_BYTES: u64 = 256 * 1024;

/// Most files that are looked at: a folder named by mistake may hold anything.
const MAX_FILES: usize = 200;

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadTemplate {
    /// The file, or the folder.
    pub path: PathBuf,
    /// The line, from 1, where one is to blame.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for BadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for BadTemplate {}

/// What is being loaded.
struct Loading<'a> {
    folder: &'a Path,
    engines: Engines,
    /// Names of the operator's templates, as far as their syntax is right.
    own: BTreeSet<String>,
    bad: BTreeSet<BadTemplate>,
}

/// Loads and tries out the templates of a folder.
pub(super) fn load(folder: &Path) -> Result<Engines, Vec<BadTemplate>> {
    let mut loading = Loading { folder, engines: Engines::built_in(), own: BTreeSet::new(), bad: BTreeSet::new() };
    for path in loading.files() {
        loading.take(&path);
    }
    loading.try_out();
    if loading.bad.is_empty() { Ok(loading.engines) } else { Err(loading.bad.into_iter().collect()) }
}

impl Loading<'_> {
    fn note(&mut self, path: &Path, line: Option<usize>, message: impl Into<String>) {
        self.bad.insert(BadTemplate { path: path.to_owned(), line, message: message.into() });
    }

    /// The files in the folder and the folders in it. Hidden ones are nobody's templates.
    fn files(&mut self) -> BTreeSet<PathBuf> {
        let mut files = BTreeSet::new();
        let mut folders = vec![self.folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    self.note(&folder, None, format!("cannot be read: {error}"));
                    continue;
                }
            };
            for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
                if path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.')) {
                    continue;
                }
                if files.len() + folders.len() >= MAX_FILES {
                    let folder = self.folder.to_owned();
                    self.note(&folder, None, format!("more than {MAX_FILES} files: not a folder of templates"));
                    return BTreeSet::new();
                }
                // Links into itself end here: no template is deeper than the folder of its language.
                if path.is_dir() && folder == self.folder {
                    folders.push(path);
                } else {
                    files.insert(path);
                }
            }
        }
        files
    }

    /// Puts a file in the place of the built-in template of that name.
    fn take(&mut self, path: &Path) {
        let relative = path.strip_prefix(self.folder).unwrap_or(path);
        let name = relative.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
        let known = || SOURCES.iter().map(|(path, _)| *path);
        if !known().any(|known| known == name) {
            let help = match suggest::closest(&name, known()) {
                Some(close) => format!("; did you mean \"{close}\"?"),
                None => String::new(),
            };
            return self.note(path, None, format!("there is no template of this name to be replaced{help}"));
        }
        let source = match read(path) {
            Ok(source) => source,
            Err(error) => return self.note(path, None, format!("cannot be read: {error}")),
        };
        match self.engines.put(&name, &source) {
            Ok(()) => {
                self.own.insert(name);
            }
            Err(error) => self.note(path, error.line(), message(&error)),
        }
    }

    /// Renders every part of every mail that the samples hold, in every language.
    fn try_out(&mut self) {
        for (language, sample) in samples::in_every_language() {
            let (mail, reader) = (sample.mail(), sample.reader(language));
            let facts = Value::from(Serde(facts(&mail, &reader)));
            let with_subject = context! { subject => "", ..facts.clone() };
            for (which, facts) in [(Part::Subject, &facts), (Part::Text, &with_subject), (Part::Html, &with_subject)] {
                if let Err(error) = part(&self.engines, &mail, language, which, facts.clone()) {
                    let bad = self.blame(&error);
                    self.bad.insert(bad);
                }
            }
        }
    }

    /// The innermost of the operator's templates on the way to an error. Where there is none, a built-in one misses
    /// something in one of theirs that it uses.
    fn blame(&self, error: &Error) -> BadTemplate {
        let message = message(innermost(error));
        let theirs = chain(error).filter(|error| error.name().is_some_and(|name| self.own.contains(name))).last();
        match theirs.and_then(|error| Some((error.name()?, error.line()))) {
            Some((name, line)) => BadTemplate { path: self.folder.join(name), line, message },
            None => {
                let message = format!("a template that is not replaced fails with those that are: {}", describe(error));
                BadTemplate { path: self.folder.to_owned(), line: None, message }
            }
        }
    }
}

/// The text of a file, unless it is absurdly long.
fn read(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut source = String::new();
    let read = fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut source)?;
    if read as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("more than {MAX_BYTES} bytes")));
    }
    Ok(source)
}

/// An error of the engine and the errors of the engine that led to it, outermost first.
fn chain(error: &Error) -> impl Iterator<Item = &Error> {
    std::iter::successors(Some(error), |error: &&Error| {
        let error: &Error = error;
        error.source()?.downcast_ref()
    })
}

fn innermost(error: &Error) -> &Error {
    chain(error).last().unwrap_or(error)
}

/// What is wrong, without the place.
fn message(error: &Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "rendering takes too long: is there a loop without end?".to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    }
}

/// An error with its place, for the log.
pub(super) fn describe(error: &Error) -> String {
    let last = innermost(error);
    let name = last.name().unwrap_or_default();
    let name = name.strip_prefix(BUILT_IN).unwrap_or(name);
    match last.line() {
        Some(line) => format!("{name}:{line}: {}", message(last)),
        None => format!("{name}: {}", message(last)),
    }
}
