//! `pointsman judge`: a CSV of finished attempts in, state changes out.

use std::process::ExitCode;

use std::path::PathBuf;

use crate::cli::config_file::ConfigFile;

/// Arguments of `pointsman judge`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Attempts: connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome
    #[arg(value_name = "ATTEMPTS.csv")]
    attempts: PathBuf,
}

/// Judges the attempts.
///
/// # Errors
/// Always: this command is not built yet.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { config, attempts: _ } = args;
    config.load()?;
    anyhow::bail!("`pointsman judge` is not built yet")
}
