//! `pointsman reload-route-maps`: puts a changed configuration in force.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::config_file::ConfigFile;
use crate::cli::operator;
use crate::cli::status::socket_of;
use crate::config::Problems;
use crate::control::{self, ControlError, Request, Response};
use crate::engine::reload::Reloaded;

/// Arguments of `pointsman reload-route-maps`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The running pointsman reads its configuration again. Customers, connections, route maps and routing rules may
have changed; links, states, windows and calls of what has not are untouched. What the routing rules learnt begins anew.
A configuration with errors changes nothing, and so does one with a change that takes a restart. SIGHUP does the same.

Exit codes: 0 done, 1 pointsman does not run, or something takes a restart, 2 the configuration has errors.

Examples:
  pointsman reload-route-maps --dry-run
  pointsman reload-route-maps --reason 'vendor-b is cheaper now'
  pointsman reload-route-maps --json | jq -r '.changes[].words'"
)]
pub struct Args {
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Why, for whoever looks later
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = operator::why)]
    reason: String,
    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigFile,
    /// Control socket of the running pointsman, instead of the one in the configuration
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    socket: Option<PathBuf>,
}

/// What `--json` prints where nothing was done.
#[derive(Serialize)]
struct Undone {
    applied: bool,
    error: String,
    /// What is wrong with the configuration, each on a line.
    problems: Vec<String>,
}

impl Undone {
    fn new(error: &str, problems: Vec<String>) -> Self {
        Self { applied: false, error: error.to_owned(), problems }
    }
}

/// Tells the running pointsman.
///
/// # Errors
/// Where it does not run, does not answer or refuses, and where the configuration has errors.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { dry_run, reason, json, config, socket } = args;
    let request = Request::ReloadRouteMaps { dry_run, who: operator::who(), why: reason };
    let answer = socket.map_or_else(|| socket_of(&config), Ok).and_then(|path| {
        let answer = control::request_blocking(&path, &request)?;
        Ok((path, answer))
    });
    match answer {
        Ok((_, Response::Reloaded(reloaded))) => print(&reloaded, json),
        Ok((_, Response::Unusable { text, problems })) => unusable(&text, problems, json),
        Ok((path, other)) => {
            Err(ControlError::NotUnderstood { path, problem: format!("not an answer: {other:?}") }.into())
        }
        Err(error) if json => refused(error),
        Err(error) => Err(error),
    }
}

fn print(reloaded: &Reloaded, json: bool) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    if json {
        write_json(&mut out, reloaded)?;
    } else {
        out.write_all(text(reloaded).as_bytes())?;
    }
    out.flush()?;
    let would_fail = !reloaded.takes_restart.is_empty();
    Ok(if would_fail { ExitCode::from(super::FAILED) } else { ExitCode::SUCCESS })
}

fn text(Reloaded { applied, changes, takes_restart, warnings }: &Reloaded) -> String {
    let mut lines: Vec<String> = warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    lines.push(match (applied, changes.is_empty()) {
        (true, true) => "Nothing in it has changed; what the routing rules learnt begins anew".to_owned(),
        (true, false) => "In force now:".to_owned(),
        (false, true) if takes_restart.is_empty() => "A reload would change nothing".to_owned(),
        (false, true) => "There is nothing that a reload can change".to_owned(),
        (false, false) => "A reload would change:".to_owned(),
    });
    lines.extend(changes.iter().map(|change| format!("  {}", change.words)));
    if !takes_restart.is_empty() {
        lines.push("This takes a restart, and a reload would be refused as a whole because of it:".to_owned());
        lines.extend(takes_restart.iter().map(|part| format!("  {part}")));
    }
    lines.join("\n") + "\n"
}

fn unusable(text: &str, problems: Vec<String>, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        write_json(&mut io::stdout().lock(), &Undone::new(NOTHING_CHANGED, problems))?;
    } else {
        writeln!(io::stderr().lock(), "{text}pointsman: {NOTHING_CHANGED}")?;
    }
    Ok(ExitCode::from(super::WRONG_USAGE))
}

const NOTHING_CHANGED: &str = "the configuration cannot be used, and nothing was changed";

/// As JSON what else would be said on stderr.
fn refused(error: anyhow::Error) -> anyhow::Result<ExitCode> {
    if let Some(problems) = error.downcast_ref::<Problems>() {
        return unusable("", problems.iter().map(ToString::to_string).collect(), true);
    }
    let Some(ControlError::Refused(why)) = error.downcast_ref::<ControlError>() else { return Err(error) };
    write_json(&mut io::stdout().lock(), &Undone::new(why, Vec::new()))?;
    Ok(ExitCode::from(super::FAILED))
}

fn write_json(out: &mut impl Write, value: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diff::{Change, Changed};

    fn reloaded(applied: bool, words: &[&str], takes_restart: &[&str]) -> Reloaded {
        let change = |words: &&str| Change { of: Changed::RouteMap, id: "intl".to_owned(), words: (*words).to_owned() };
        Reloaded {
            applied,
            changes: words.iter().map(change).collect(),
            takes_restart: takes_restart.iter().map(ToString::to_string).collect(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn people_read_what_changed_or_would() {
        assert_eq!(text(&reloaded(true, &["route map intl added"], &[])), "In force now:\n  route map intl added\n");
        assert_eq!(text(&reloaded(false, &["x"], &[])), "A reload would change:\n  x\n");
        assert_eq!(text(&reloaded(false, &[], &[])), "A reload would change nothing\n");
        assert!(text(&reloaded(true, &[], &[])).starts_with("Nothing in it has changed"));
        let both = text(&reloaded(false, &["x"], &["[log]: filter"]));
        assert!(both.ends_with("refused as a whole because of it:\n  [log]: filter\n"), "{both}");
        let warned = Reloaded { warnings: vec!["odd (line 3, column 1)".to_owned()], ..reloaded(true, &["x"], &[]) };
        assert_eq!(text(&warned), "warning: odd (line 3, column 1)\nIn force now:\n  x\n");
    }
}
