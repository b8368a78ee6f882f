//! `pointsman clear`: the static hunt orders back into the PBXs.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::cli::config_file::ConfigFile;
use crate::clock::Clock;
use crate::config::model::{Config, Node};
use crate::control::{self, Request};
use crate::dialplan::{apply, desired};
use crate::engine::view::{LinkState, LinkView};
use crate::pbx::link::{self, LinkInbox};
use crate::quality::machine::Standing;
use crate::routing::RouteTable;
use crate::tasks::Tasks;

/// How long a PBX may take to let us in and to take its variables.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long the links may take to close.
const CLOSING: Duration = Duration::from_secs(2);

/// Events that a link may hand over meanwhile; nobody reads them.
const UNREAD: usize = 16;

/// Arguments of `pointsman clear`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Refuses while pointsman runs with this configuration: it would write its own order back.

Exit codes: 0 every PBX has its static order, 1 at least one has not (it is named), 2 wrong usage or configuration.")]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// How it went on one node.
#[derive(Debug, Serialize)]
struct Cleared {
    node: String,
    ok: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    problem: String,
}

/// Writes the static orders.
///
/// # Errors
/// Where the configuration has errors, pointsman runs with it, or stdout cannot be written.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments")]
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = Arc::new(args.config.load()?.config);
    if control::request_blocking(&config.control_socket, &Request::Ping).is_ok() {
        anyhow::bail!(
            "pointsman runs with this configuration (it answers on {}) and would write its own order back: stop it first",
            config.control_socket.display()
        );
    }
    let cleared = super::runtime()?.block_on(clear_all(&config));
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &cleared).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for node in &cleared {
            match node.problem.as_str() {
                "" => writeln!(out, "{}: has the static order", node.node)?,
                problem => writeln!(out, "{}: NOT cleared: {problem}", node.node)?,
            }
        }
    }
    out.flush()?;
    Ok(if cleared.iter().all(|node| node.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All nodes at once: one that is down must not keep the others waiting.
async fn clear_all(config: &Arc<Config>) -> Vec<Cleared> {
    let tasks = Tasks::new();
    let (results, mut collected) = mpsc::channel(config.nodes.len().max(1));
    for index in 0..config.nodes.len() {
        let (config, links, results) = (config.clone(), tasks.child(), results.clone());
        tasks.spawn(async move {
            let problem = clear_node(&config, index, &links).await.err().unwrap_or_default();
            links.stop(CLOSING).await;
            // The receiver outlives every sender.
            let _ = results.send((index, problem)).await;
        });
    }
    drop(results);
    let mut cleared: Vec<_> = Vec::new();
    while let Some((index, problem)) = collected.recv().await {
        let node = config.nodes[index].id.to_string();
        cleared.push((index, Cleared { node, ok: problem.is_empty(), problem }));
    }
    cleared.sort_by_key(|(index, _)| *index);
    cleared.into_iter().map(|(_, node)| node).collect()
}

async fn clear_node(config: &Config, index: usize, tasks: &Tasks) -> Result<(), String> {
    let node: Arc<Node> = Arc::new(config.nodes[index].clone());
    let clock = Clock::system();
    let (events, _unread) = mpsc::channel(UNREAD);
    let link = link::spawn(node.clone(), clock, LinkInbox::new(events, index), tasks);
    let mut applier = apply::spawn(&node, &config.variables, &link, clock, tasks);
    let orders = RouteTable::new(config).hunt_orders(|_| Standing::Usual);
    // No generation: who reads it must not take this for news.
    let judged = config.judged();
    let states = judged.iter().map(|(key, _)| (key, "good"));
    let wanted = desired::Desired { generation: None, ..desired::of(config, &node, &orders, states, 0) };
    applier.want(Arc::new(wanted), clock.now());
    if !let_in(link.view.clone()).await {
        return Err(link.view.borrow().reason.clone());
    }
    if applier.in_step(PATIENCE).await { Ok(()) } else { Err("it did not take all of its variables in time".into()) }
}

/// Waits until the node has let us in or has refused to.
async fn let_in(mut link: watch::Receiver<LinkView>) -> bool {
    let settled = |state| matches!(state, LinkState::Synchronising | LinkState::Up | LinkState::Refused);
    match timeout(PATIENCE, link.wait_for(|link| settled(link.state))).await {
        Ok(Ok(link)) => link.state != LinkState::Refused,
        _ => false,
    }
}
