//! `pointsman demo`: simulated PBXs with the real program over them.

use std::process::ExitCode;

use crate::cli::logging;

/// Arguments of `pointsman demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// End after this long, e.g. 60s or 5m; without it, when stopped
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<jiff::SignedDuration>,
}

/// Runs the demonstration.
///
/// # Errors
/// Always: this command is not built yet.
#[expect(clippy::needless_pass_by_value, reason = "the command will take its arguments apart")]
pub fn run(args: Args, log: &logging::Args) -> anyhow::Result<ExitCode> {
    log.start(logging::Format::Text, "warn")?;
    let Args { duration: _ } = args;
    anyhow::bail!("`pointsman demo` is not built yet")
}
