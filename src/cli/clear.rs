//! `pointsman clear`: the static hunt orders back into the PBXs.

use std::process::ExitCode;

use crate::cli::config_file::ConfigFile;

/// Arguments of `pointsman clear`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Writes the static orders.
///
/// # Errors
/// Always: this command is not built yet.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { config, json: _ } = args;
    config.load()?;
    anyhow::bail!("`pointsman clear` is not built yet")
}
