//! What is logged, and how: names that the configuration and the command line share.

use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};

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

impl Filter {
    /// For the subscriber.
    #[must_use]
    pub fn targets(&self) -> Targets {
        self.0.clone()
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self(Targets::new().with_default(LevelFilter::INFO))
    }
}

impl FromStr for Filter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, BadFilter> {
        let mut targets = Targets::new();
        for part in text.split(',').map(str::trim) {
            let bad = || BadFilter(part.chars().take(80).collect());
            // A word alone is a level here: taken for a module, "inof" would silently turn the log off.
            let (module, level) = part.split_once('=').map_or((None, part), |(module, level)| (Some(module), level));
            let level = Some(level.trim()).filter(|level| !level.is_empty()).ok_or_else(bad)?;
            let level = LevelFilter::from_str(level).map_err(|_| bad())?;
            targets = match module.map(str::trim) {
                None => targets.with_default(level),
                Some("") => return Err(bad()),
                Some(module) => targets.with_target(module, level),
            };
        }
        Ok(Self(targets))
    }
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
