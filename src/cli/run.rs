//! `pointsman run`: the daemon.

use std::process::ExitCode;

use crate::cli::config_file::ConfigFile;
use crate::cli::logging;

/// Arguments of `pointsman run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
}

/// Runs until stopped.
///
/// # Errors
/// Always: this command is not built yet.
#[expect(clippy::needless_pass_by_value, reason = "the command will take its arguments apart")]
pub fn run(args: Args, log: &logging::Args) -> anyhow::Result<ExitCode> {
    log.start(logging::Format::Text, "info")?;
    args.config.load()?;
    anyhow::bail!("`pointsman run` is not built yet")
}
