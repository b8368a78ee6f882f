//! `pointsman override`: an operator's word over a connection's verdict.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::config_file::ConfigFile;
use crate::cli::{WrongUsage, operator};
use crate::control::Request;
use crate::ids::{ConnectionId, MapId, QualityKey};
use crate::quality::pin::{self, Pin};

/// Arguments of `pointsman override`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A pin routes a connection as said, whatever its figures are; it goes on being measured and judged, and when
the pin ends its state is the one that the figures give. A pin holds over a restart.

Exit codes: 0 done, 1 pointsman does not run or has no such connection, 2 wrong usage or configuration.

Examples:
  pointsman override vendor-a pin_block --for 2h --why 'maintenance at the vendor'
  pointsman override vendor-a unpin
  pointsman override vendor-a reset"
)]
pub struct Args {
    /// The connection's id
    #[arg(value_parser = |text: &str| ConnectionId::new(text))]
    connection: ConnectionId,
    /// What to do
    #[arg(value_enum)]
    action: Action,
    /// Of this route map only, where connections are judged per map
    #[arg(long, value_name = "MAP", value_parser = |text: &str| MapId::new(text))]
    map: Option<MapId>,
    /// End a pin after this long, e.g. 30m or 2h; without it, when somebody says so
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<jiff::SignedDuration>,
    /// Why, for whoever looks later
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = operator::why)]
    why: String,
    #[command(flatten)]
    config: ConfigFile,
    /// Control socket of the running pointsman, instead of the one in the configuration
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    socket: Option<PathBuf>,
}

/// What an operator can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Action {
    /// In its usual place
    PinGood,
    /// After all others
    PinLast,
    /// No calls
    PinBlock,
    /// As its figures say again
    Unpin,
    /// Begin anew: good, with an empty window, no pin
    Reset,
}

/// Tells the running pointsman.
///
/// # Errors
/// Where it does not run or does not answer, or has no such connection.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { connection, action, map, duration, why, config, socket } = args;
    let key = QualityKey { connection, map };
    let for_sec = duration.map(seconds).transpose()?;
    let who = operator::who();
    let (pin, words) = match action {
        Action::PinGood => (Some(Pin::PinGood), "is pinned to its usual place"),
        Action::PinLast => (Some(Pin::PinLast), "is pinned to the end"),
        Action::PinBlock => (Some(Pin::PinBlock), "is pinned: it gets no calls"),
        Action::Unpin => (None, "is routed as its figures say"),
        Action::Reset => (None, "begins anew: good, with an empty window"),
    };
    if for_sec.is_some() && pin.is_none() {
        return Err(WrongUsage("--for goes with a pin".to_owned()).into());
    }
    let done = format!("{key} {words}");
    let request = match action {
        Action::Reset => Request::Reset { key, who, why },
        _ => Request::Pin { key, pin, for_sec, who, why },
    };
    operator::tell(socket, &config, &request, &done)
}

fn seconds(duration: jiff::SignedDuration) -> Result<u64, WrongUsage> {
    let seconds =
        u64::try_from(duration.as_secs()).ok().filter(|seconds| (1..=pin::LONGEST.as_secs()).contains(seconds));
    seconds.ok_or_else(|| WrongUsage("--for wants from a second to ten years, as in --for 2h".to_owned()))
}
