//! `pointsman check`: every problem of a configuration at once.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::config_file::ConfigFile;
use crate::config::{self, Config, Loaded, Problems};

/// Arguments of `pointsman check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 it can be used (there may be warnings), 2 it cannot.

Examples:
  pointsman check
  pointsman check -c config/pointsman.toml
  pointsman check -c pointsman.yaml --json | jq -r '.problems[] | \"\\(.line): \\(.message)\"'")]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    file: String,
    ok: bool,
    summary: Option<Summary>,
    problems: &'a Problems,
}

/// What a configuration holds.
#[derive(Debug, PartialEq, Serialize)]
struct Summary {
    nodes: usize,
    connections: usize,
    judged: usize,
    route_maps: usize,
    /// The mail server or the program that mail goes through.
    mail: Option<String>,
    /// Where the HTTP server listens.
    http: Option<String>,
    /// Where the xDS server listens.
    xds: Option<String>,
}

/// Checks the configuration.
///
/// # Errors
/// Where there is none, or stdout cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.config.find()?;
    let (problems, summary) = match config::load(&path) {
        Ok(Loaded { config, warnings }) => (warnings, Some(Summary::of(&config))),
        Err(problems) => (problems, None),
    };
    let mut out = io::stdout().lock();
    if args.json {
        let file = path.to_string_lossy().into_owned();
        serde_json::to_writer_pretty(&mut out, &Answer { file, ok: summary.is_some(), summary, problems: &problems })
            .map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let colour = out.is_terminal() && super::colour_wanted();
        write!(out, "{}{}", problems.render(colour), last_line(&path.to_string_lossy(), &problems, summary.as_ref()))?;
    }
    out.flush()?;
    Ok(if problems.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::from(super::WRONG_USAGE) })
}

fn last_line(file: &str, problems: &Problems, summary: Option<&Summary>) -> String {
    let errors = problems.errors();
    let warnings = problems.warnings();
    let and_warnings = if warnings == 0 { String::new() } else { format!(" and {}", count(warnings, "warning")) };
    match summary {
        None if problems.omitted() > 0 => format!("{file} cannot be used: {}\n", count(problems.len(), "problem")),
        Some(summary) if warnings == 0 => format!("{file} is good: {summary}\n"),
        Some(summary) => format!("{file} can be used, with {}: {summary}\n", count(warnings, "warning")),
        None => format!("{file} cannot be used: {}{and_warnings}\n", count(errors, "error")),
    }
}

fn count(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}

impl Summary {
    fn of(config: &Config) -> Self {
        let judged = config.connections.iter().filter(|connection| connection.quality.is_monitored()).count();
        let (nodes, connections) = (config.nodes.len(), config.connections.len());
        let mail = config.email.as_ref().map(|email| email.via.to_string());
        let http = config.http.as_ref().map(|http| http.listen.to_string());
        let xds = config.edge.xds.as_ref().map(|xds| xds.listen.to_string());
        Self { nodes, connections, judged, route_maps: config.route_maps.len(), mail, http, xds }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = count(self.nodes, "node");
        let connections = count(self.connections, "connection");
        let maps = count(self.route_maps, "route map");
        write!(f, "{nodes}, {connections} ({} judged), {maps}, ", self.judged)?;
        match &self.mail {
            Some(via) => write!(f, "mail through {via}, ")?,
            None => f.write_str("no mail, ")?,
        }
        match &self.http {
            Some(listen) => write!(f, "HTTP on {listen}, ")?,
            None => f.write_str("no HTTP, ")?,
        }
        match &self.xds {
            Some(listen) => write!(f, "xDS on {listen}"),
            None => f.write_str("no xDS"),
        }
    }
}
