//! `pointsman replay`: a captured byte stream in, finished attempts out.

use std::process::ExitCode;

use std::path::PathBuf;

/// Arguments of `pointsman replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Protocol of the recording
    #[arg(long, value_name = "KIND", value_enum)]
    kind: Kind,
    /// Arrival times: one line per read, as recorded beside the stream
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Protocol of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// FreeSWITCH, event socket.
    Esl,
    /// Asterisk, manager interface.
    Ami,
}

/// Replays the recording.
///
/// # Errors
/// Always: this command is not built yet.
#[expect(clippy::needless_pass_by_value, reason = "the command will take its arguments apart")]
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { kind: _, index: _, file: _ } = args;
    anyhow::bail!("`pointsman replay` is not built yet")
}
