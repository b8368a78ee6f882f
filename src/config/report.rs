//! What is wrong with a configuration, and how it is shown.

use std::fmt;
use std::path::{Path, PathBuf};

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can, but probably does not mean what was meant.
    Warning,
}

/// Something that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
}

/// All that is wrong with a configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    path: PathBuf,
    list: Vec<Problem>,
}

impl Problems {
    /// The file cannot be read at all.
    #[must_use]
    pub fn unreadable(path: &Path, why: &str) -> Self {
        let message = format!("cannot read {}: {why}", path.display());
        Self { path: path.to_owned(), list: vec![Problem { severity: Severity::Error, message }] }
    }

    /// The problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// For people: with the lines concerned, in colour or plain.
    #[must_use]
    pub fn render(&self, _colour: bool) -> String {
        self.list.iter().map(|problem| format!("error: {}\n", problem.message)).collect()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Problems {}
