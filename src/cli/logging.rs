//! The log: to stderr, as text or as JSON lines, set up here and nowhere else.

use std::io::{self, IsTerminal};
use std::str::FromStr;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use crate::config::log::{Filter, Format};
use crate::config::model::Log;

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
    #[arg(long, global = true, value_name = "FORMAT", env = "POINTSMAN_LOG_FORMAT", hide_possible_values = true)]
    pub log_format: Option<Format>,
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
        start(self.log_format.unwrap_or(default_format), filter.targets())
    }

    /// Starts the log as the configuration says, where the command line does not say otherwise.
    ///
    /// # Errors
    /// Where a log has been started already.
    pub fn start_with(&self, configured: &Log) -> anyhow::Result<()> {
        let filter = self.log.as_ref().unwrap_or(&configured.filter);
        start(self.log_format.unwrap_or(configured.format), filter.targets())
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
