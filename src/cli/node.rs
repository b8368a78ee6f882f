//! `pointsman node`: takes a node out of routing and back.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::config_file::ConfigFile;
use crate::cli::operator;
use crate::control::Request;
use crate::ids::NodeId;
use crate::score::Admin;

/// Arguments of `pointsman node`.
#[derive(Debug, clap::Args)]
#[command(after_help = "What is said here holds over a restart, until something else is said.

Exit codes: 0 done, 1 pointsman does not run or has no such node, 2 wrong usage or configuration.

Examples:
  pointsman node drain pbx-01 --why 'kernel update at 22:00'
  pointsman node enable pbx-01")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Take calls again
    Enable(Chosen),
    /// Take no new calls; those that are up end by themselves
    Drain(Chosen),
    /// Out of service: no calls, not even as the fallback
    Disable(Chosen),
}

#[derive(Debug, clap::Args)]
struct Chosen {
    /// The node's id
    #[arg(value_parser = |text: &str| NodeId::new(text))]
    node: NodeId,
    /// Why, for whoever looks later
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = operator::why)]
    why: String,
    #[command(flatten)]
    config: ConfigFile,
    /// Control socket of the running pointsman, instead of the one in the configuration
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    socket: Option<PathBuf>,
}

/// Tells the running pointsman.
///
/// # Errors
/// Where it does not run or does not answer, or has no such node.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (chosen, admin, words) = match args.command {
        Command::Enable(chosen) => (chosen, Admin::Enabled, "takes calls"),
        Command::Drain(chosen) => (chosen, Admin::Draining, "takes no new calls"),
        Command::Disable(chosen) => (chosen, Admin::Disabled, "is out of service"),
    };
    let Chosen { node, why, config, socket } = chosen;
    let done = format!("{node} {words} from now on");
    operator::tell(socket, &config, &Request::SetNode { node, admin, who: operator::who(), why }, &done)
}
