//! The log: to stderr, as text or as JSON lines, set up here and nowhere else.

use std::io::{self, IsTerminal};
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The options of the log, the same for all commands.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Log (to stderr)")]
pub struct Args {
    /// What to log: a level, or levels by module
    ///
    /// Levels are error, warn, info, debug, trace and off. A level can be set for a module alone, as in
    /// "info,pointsman::pbx=debug".
    #[arg(long, global = true, value_name = "FILTER", env = "POINTSMAN_LOG", value_parser = Filter::from_str)]
    pub log: Option<Filter>,
    /// How to log: text for people, JSON lines for programs
    #[arg(long, global = true, value_name = "FORMAT", env = "POINTSMAN_LOG_FORMAT")]
    pub log_format: Option<Format>,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// One line of text per event, with colours on a terminal.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// Which events are logged, e.g. `info,pointsman::pbx=debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter(Targets);

/// Why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a level (error, warn, info, debug, trace, off) nor MODULE=LEVEL")]
pub struct BadFilter(String);

impl FromStr for Filter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, BadFilter> {
        let mut targets = Targets::new();
        for part in text.split(',').map(str::trim) {
            let bad = || BadFilter(part.chars().take(80).collect());
            // A word alone is a level here: taken for a module, "inof" would silently turn the log off.
            let (module, level) = part.split_once('=').map_or((None, part), |(module, level)| (Some(module), level));
            let level = LevelFilter::from_str(level.trim()).map_err(|_| bad())?;
            targets = match module.map(str::trim) {
                None => targets.with_default(level),
                Some("") => return Err(bad()),
                Some(module) => targets.with_target(module, level),
            };
        }
        Ok(Self(targets))
    }
}

impl Args {
    /// Starts the log. What the command line (or its environment variables) says wins over the given defaults, which
    /// come from the configuration or the command.
    ///
    /// # Errors
    /// Where `default_filter` is not a filter, or a log has been started already.
    pub fn start(&self, default_format: Format, default_filter: &str) -> anyhow::Result<()> {
        let filter = match &self.log {
            Some(filter) => filter.clone(),
            None => default_filter.parse()?,
        };
        start(self.log_format.unwrap_or(default_format), filter.0)
    }
}

fn start(format: Format, targets: Targets) -> anyhow::Result<()> {
    let events = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = match format {
        Format::Json => events.json().flatten_event(true).boxed(),
        // The journal adds the time itself.
        Format::Text if std::env::var_os("JOURNAL_STREAM").is_some() => events.with_ansi(false).without_time().boxed(),
        Format::Text => events.with_ansi(io::stderr().is_terminal() && super::colour_wanted()).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(targets)).try_init()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_by_module() {
        let filter: Filter = "info,pointsman::pbx=debug, sqlx = off".parse().expect("legal");
        assert!(filter.0.would_enable("pointsman::engine", &tracing::Level::INFO));
        assert!(!filter.0.would_enable("pointsman::engine", &tracing::Level::DEBUG));
        assert!(filter.0.would_enable("pointsman::pbx::session", &tracing::Level::DEBUG));
        assert!(!filter.0.would_enable("sqlx::query", &tracing::Level::ERROR));
    }

    #[test]
    fn a_typing_error_is_not_taken_for_a_module() {
        for bad in ["inof", "info,", "=debug", "pointsman=loud", ""] {
            assert!(bad.parse::<Filter>().is_err(), "{bad}");
        }
    }
}
