//! Painting: templates, with the words of each language.
//!
//! Painting takes processor time and nothing else, beside the runtime; only so much of it is done at a time, however many
//! look.

use std::sync::Arc;
use std::time::Duration;

use minijinja::value::Value;
use minijinja::{Environment, Error, context};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::live::Shows;
use crate::api::problem::Problem;
use crate::config::model::Language;
use crate::notify::render::engine::{engine, folder};
use crate::tasks::Tasks;

/// Pages and plots that are painted at a time.
const AT_ONCE: usize = 2;

/// Most steps of painting a page; a list of a hundred connections takes a tenth of it.
const FUEL: u64 = 5_000_000;

macro_rules! templates {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("templates/", $path)))),*]
    };
}

/// Every template.
const TEMPLATES: &[(&str, &str)] = templates![
    "layout.html",
    "bare.html",
    "parts.html",
    "words/en.jinja",
    "words/ru.jinja",
    "overview.html",
    "connection.html",
    "connections.html",
    "changes.html",
    "maps.html",
    "map.html",
    "node.html",
    "edges.html",
    "problem.html",
    "login.html",
    "onward.html",
];

/// A part of a page.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) html: Arc<str>,
}

/// The templates, and who may paint now.
pub(in crate::api) struct Studio {
    engines: Arc<Engines>,
    pages: Arc<Semaphore>,
    /// For the one who paints parts of pages anew.
    easel: Arc<Semaphore>,
    pub(super) shows: Shows,
}

/// One for each language.
struct Engines {
    en: Environment<'static>,
    ru: Environment<'static>,
}

impl Engines {
    fn of(&self, language: Language) -> &Environment<'static> {
        match language {
            Language::En => &self.en,
            Language::Ru => &self.ru,
        }
    }
}

fn with_templates(language: Language) -> Result<Environment<'static>, Error> {
    let mut engine = engine(language);
    engine.set_fuel(Some(FUEL));
    for (name, source) in TEMPLATES {
        engine.add_template(name, source)?;
    }
    Ok(engine)
}

impl Studio {
    /// With the templates that are part of the program, all of which tests have seen.
    pub(in crate::api) fn new() -> Self {
        let engine = |language| {
            with_templates(language).unwrap_or_else(|error| {
                tracing::error!("template of the dashboard: {error}");
                Environment::new()
            })
        };
        Self {
            engines: Arc::new(Engines { en: engine(Language::En), ru: engine(Language::Ru) }),
            pages: Arc::new(Semaphore::new(AT_ONCE)),
            easel: Arc::new(Semaphore::new(1)),
            shows: Shows::default(),
        }
    }

    /// A whole page.
    pub(super) async fn page(
        &self,
        tasks: &Tasks,
        language: Language,
        template: &'static str,
        facts: Value,
    ) -> Result<String, Problem> {
        let engines = Arc::clone(&self.engines);
        let paint = move || {
            let facts = context! { frame => "layout.html", ..facts };
            engines.of(language).get_template(template)?.render(with_words(facts, language))
        };
        painted(self.beside(tasks, paint).await)
    }

    /// Work that takes processor time, beside the runtime and only so much of it at a time; `None` where the program stops.
    pub(super) async fn beside<T: Send + 'static>(
        &self,
        tasks: &Tasks,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // Held by the work and not by who waits for it, who may go away.
        let place = Arc::clone(&self.pages).acquire_owned().await.ok()?;
        let work = move || {
            let done = work();
            drop(place);
            done
        };
        tasks.run_blocking(work).await
    }

    /// Waits for the turn to paint parts; whoever has it keeps the others waiting.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.easel).acquire_owned().await.ok()
    }

    /// Parts of a page.
    pub(super) async fn parts(
        &self,
        tasks: &Tasks,
        language: Language,
        template: &'static str,
        names: Vec<&'static str>,
        facts: Value,
    ) -> Result<Vec<Part>, Problem> {
        let engines = Arc::clone(&self.engines);
        let paint = move || {
            let facts = context! { frame => "bare.html", ..facts };
            let template = engines.of(language).get_template(template)?;
            template.render_captured(with_words(facts, language))?.with_state_mut(|state| {
                let part = |name| Ok(Part { name, html: state.render_block(name)?.into() });
                names.into_iter().map(part).collect::<Result<Vec<_>, Error>>()
            })
        };
        painted(tasks.run_blocking(paint).await)
    }
}

fn with_words(facts: Value, language: Language) -> Value {
    context! { words_path => format!("words/{}.jinja", folder(language)), ..facts }
}

/// A template that fails is our fault: the log says where.
fn painted<T>(result: Option<Result<T, Error>>) -> Result<T, Problem> {
    match result {
        Some(Ok(painted)) => Ok(painted),
        Some(Err(error)) => {
            tracing::error!("a page of the dashboard cannot be painted: {error:#}");
            Err(Problem::unavailable("this page cannot be painted; the log says why"))
        }
        None => Err(Problem::unavailable("pointsman is stopping")),
    }
}

/// How long to rest after work that took so long: painting parts anew takes a quarter of one processor at most.
pub(super) fn rest(took: Duration) -> Duration {
    took * 3
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The words that a language has; none of them twice, as the second would be said in the place of the first.
    fn words(name: &str) -> BTreeSet<&'static str> {
        let (_, source) = TEMPLATES.iter().find(|(known, _)| *known == name).unwrap();
        let mut words = BTreeSet::new();
        for line in source.lines() {
            let set = line.strip_prefix("{% set ").or(line.strip_prefix("{% macro "));
            let Some(word) = set.and_then(|rest| rest.split([' ', '(']).next()) else { continue };
            assert!(words.insert(word), "{name} says {word} twice");
        }
        words
    }

    #[test]
    fn both_languages_have_the_same_words_and_each_once() {
        let english = words("words/en.jinja");
        assert!(english.len() > 100, "{english:?}");
        assert_eq!(english, words("words/ru.jinja"));
    }
}
