//! `pointsman run`: the daemon.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::config_file::ConfigFile;
use crate::cli::logging;
use crate::clock::Clock;
use crate::config::{self, Config, Loaded};
use crate::engine::reload::{Loader, Order};
use crate::engine::request::By;
use crate::engine::run::{self, Running};

/// Arguments of `pointsman run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Stops on SIGTERM and SIGINT; a second one ends it at once. The PBXs keep their variables: calls
go on in the last order. `pointsman clear` puts the static order back. On SIGHUP it reads its configuration again, as
`pointsman reload-route-maps` has it do, and says in the log what came of it.

Exit codes: 0 stopped as asked, 1 failed, 2 the configuration has errors."
)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
}

/// Runs until stopped.
///
/// # Errors
/// Where the configuration has errors, another instance runs with it, or the control socket cannot be made.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments")]
pub fn run(args: Args, log: &logging::Args) -> anyhow::Result<ExitCode> {
    let path = args.config.find()?;
    let Loaded { config, warnings } = config::load(&path)?;
    log.start_with(&config.log)?;
    let mut err = io::stderr().lock();
    write!(err, "{}", warnings.render(err.is_terminal() && super::colour_wanted()))?;
    drop(err);
    let loader = Loader::new(move || config::load(&path));
    super::runtime()?.block_on(serve(Arc::new(config), loader))
}

async fn serve(config: Arc<Config>, loader: Loader) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let running = run::start_with(config.clone(), Clock::system(), Some(loader)).await?;
    tracing::info!(
        nodes = config.nodes.len(),
        connections = config.connections.len(),
        control = %config.control_socket.display(),
        "pointsman {} runs: {} nodes, {} connections, {} route maps",
        env!("CARGO_PKG_VERSION"),
        config.nodes.len(),
        config.connections.len(),
        config.route_maps.len(),
    );
    loop {
        tokio::select! {
            Some(()) = hangup.recv() => reload(&running),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!("stopping; the PBXs keep their variables and calls go on in the last order");
    let clean = tokio::select! {
        clean = running.stop() => clean,
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
    };
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What comes of it is in the log.
fn reload(running: &Running) {
    let by = By { who: "SIGHUP".into(), why: "".into() };
    if let Err(failed) = running.reloader().begin(Order { dry_run: false, by }) {
        tracing::error!("SIGHUP: {failed}");
    }
}
