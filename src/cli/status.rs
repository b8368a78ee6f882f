//! `pointsman status`: what a running pointsman sees.

use std::process::ExitCode;

use crate::cli::config_file::ConfigFile;

/// Arguments of `pointsman status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Asks the running pointsman and prints its answer.
///
/// # Errors
/// Always: this command is not built yet.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { config, json: _ } = args;
    config.load()?;
    anyhow::bail!("`pointsman status` is not built yet")
}
