//! `pointsman demo`: simulated PBXs with the real program over them.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{WrongUsage, logging};
use crate::demo::screen::Screen;
use crate::demo::{self, DEFAULT_LISTEN, DEFAULT_RATE, MAX_RATE, Options, Shown};

/// Arguments of `pointsman demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Needs no PBX and touches nothing outside a temporary directory.

Exit codes: 0 a vendor was lowered and recovered (or it was stopped), 1 it could not show that, 2 wrong usage.")]
pub struct Args {
    /// End after this long, e.g. 60s or 5m; without it, when stopped
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<jiff::SignedDuration>,
    /// How many seconds of the demo clock pass in a second
    #[arg(long, value_name = "N", default_value_t = DEFAULT_RATE,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RATE)))]
    rate: u32,
    /// Where the HTTP API and the dashboard are, on this machine alone; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = DEFAULT_LISTEN, value_parser = loopback)]
    listen: SocketAddr,
    /// Seed of everything that happens at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Plays the demonstration.
///
/// # Errors
/// Where there is nothing to show: no port, no temporary directory, no link to the simulated PBXs.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments")]
pub fn run(args: Args, log: &logging::Args) -> anyhow::Result<ExitCode> {
    // What goes wrong on the stage is part of the show, and the lines tell it.
    log.start(logging::Format::Text, "error")?;
    let duration = args.duration.map(real_duration).transpose()?;
    let options = Options { duration, rate: args.rate, listen: args.listen, seed: args.seed };
    let mut out = io::stdout();
    let colour = out.is_terminal() && super::colour_wanted();
    let mut screen = Screen::new(&mut out, colour, args.json);
    let shown = super::runtime()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        anyhow::Ok(demo::run(options, &mut screen, stop).await?)
    })?;
    Ok(match shown {
        Shown::Everything | Shown::Stopped => ExitCode::SUCCESS,
        Shown::TooShort => ExitCode::FAILURE,
    })
}

/// Nobody logs in to the demo, so nobody else is let in.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "expected ADDRESS:PORT, as in 127.0.0.1:8321".to_owned())?;
    let ours = address.ip().to_canonical().is_loopback();
    ours.then_some(address).ok_or_else(|| "needs an address that this machine alone reaches, as 127.0.0.1".to_owned())
}

fn real_duration(duration: jiff::SignedDuration) -> Result<Duration, WrongUsage> {
    Duration::try_from(duration)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| WrongUsage("--for wants a time greater than zero, as in --for 60s".into()))
}
