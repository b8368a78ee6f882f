//! The command line: parse, call, print.
//!
//! Every command has a file of its own with its arguments and a `run` function; this file knows their names, what
//! they share, and how an end becomes an exit code:
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed, or done in part |
//! | 2 | wrong usage, or a configuration with errors |
//! | 141 | whoever read our output went away; ended quietly, as other programs do (128 + SIGPIPE) |

mod attempts;
pub mod check;
pub mod clear;
pub mod completions;
pub mod config_file;
pub mod demo;
pub mod judge;
pub mod logging;
pub mod node;
mod operator;
pub mod outbox;
pub mod override_;
pub mod question;
pub mod reload;
pub mod replay;
pub mod run;
pub mod status;
pub mod templates;
pub mod test_call;
pub mod test_dialplan;
pub mod test_email;
pub mod xds;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Style, Styles};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::Problems;

/// Exit code of a command that failed.
const FAILED: u8 = 1;
/// Exit code of wrong usage and of a configuration with errors; clap uses the same.
const WRONG_USAGE: u8 = 2;
/// What a shell reports for a program that SIGPIPE ended.
const OUTPUT_CLOSED: u8 = 141;

/// What follows the options in `pointsman --help`.
const EXAMPLES: &[(&str, &str)] = &[
    ("pointsman demo --for 60s", "a vendor fails, is lowered, recovers; no PBX needed"),
    ("pointsman check -c pointsman.toml", "every mistake of a configuration at once"),
    ("pointsman run -c pointsman.toml", "do the job"),
    ("pointsman status", "what every node and connection is doing now"),
    ("pointsman test-email acme", "does mail arrive, and how does it look"),
    ("pointsman run --log info,pointsman::pbx=debug", "with all details of the links to the PBXs"),
];

/// The commands as `--help` shows them. A test holds this list against the commands that there are.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Beside the PBXs",
        &[
            "run",
            "check",
            "status",
            "test-call",
            "test-dialplan",
            "node",
            "override",
            "reload-route-maps",
            "xds",
            "clear",
        ],
    ),
    ("Mail", &["outbox", "test-email", "templates"]),
    ("Without a PBX", &["demo", "replay", "judge"]),
    ("Your shell", &["completions"]),
];

/// Judges vendor connections by what their calls do, and moves traffic away from failing ones.
///
/// pointsman listens to FreeSWITCH (ESL) and Asterisk (AMI), works out what every outbound call did, judges each
/// vendor connection by ASR, ACD and PDD over its last calls, and sets the variables that dialplans route by. It is
/// never in the path of a call: when it stops, calls go on in the last order.
#[derive(Debug, Parser)]
#[command(name = "pointsman", version, styles = STYLES, subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    log: logging::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch the configured PBXs and keep their routing variables right, until stopped
    Run(run::Args),
    /// Check a configuration: every problem at once, with its place and what to write instead
    Check(check::Args),
    /// Show what a running pointsman sees: nodes, connections, hunt orders, latest changes
    Status(status::Args),
    /// Show what a call to a number would try, and how each route comes to its place; also from a CSV of attempts
    TestCall(test_call::Args),
    /// Show what a call to a number would try, and whether every PBX's variables say so
    TestDialplan(test_dialplan::Args),
    /// Look at the mails that wait or are dead; have them tried again or dropped
    Outbox(outbox::Args),
    /// Send a customer a test mail, or an example of each kind, and say what the mail server answers
    TestEmail(test_email::Args),
    /// Write the built-in mail templates to files, to be changed
    Templates(templates::Args),
    /// Take a node out of routing, let it run dry, or put it back
    Node(node::Args),
    /// Route a connection as you say, whatever its figures are
    Override(override_::Args),
    /// Put a changed configuration in force: connections, customers, route maps, routing rules
    ReloadRouteMaps(reload::Args),
    /// Show who is at the xDS server: what each edge was told, what it accepted and what it rejected
    Xds(xds::Args),
    /// Put the static hunt orders back into the PBXs' variables, after pointsman has been stopped
    Clear(clear::Args),
    /// Watch it work: simulated PBXs, callers and vendors, with the real program over them
    Demo(demo::Args),
    /// Turn a captured ESL or AMI byte stream into one JSON line per finished attempt
    Replay(replay::Args),
    /// Judge a CSV of finished attempts: one JSON line per state change
    Judge(judge::Args),
    /// Print the completion script of a shell
    Completions(completions::Args),
}

const HEADER: Style = AnsiColor::Green.on_default().bold();
const LITERAL: Style = AnsiColor::Cyan.on_default().bold();
const PLACEHOLDER: Style = AnsiColor::Cyan.on_default();
const STYLES: Styles = Styles::styled()
    .header(HEADER)
    .usage(HEADER)
    .literal(LITERAL)
    .placeholder(PLACEHOLDER)
    .error(AnsiColor::Red.on_default().bold())
    .valid(AnsiColor::Green.on_default())
    .invalid(AnsiColor::Yellow.on_default().bold());

/// Wrong usage that clap cannot see (two options that contradict each other, say): exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    dispatch(cli).unwrap_or_else(|error| report(&error))
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    // `run` starts its log itself, once it has read what the configuration says about it.
    let quiet = |log: &logging::Args| log.start(logging::Format::Text, "warn");
    match cli.command {
        Command::Run(args) => run::run(args, &cli.log),
        Command::Demo(args) => demo::run(args, &cli.log),
        Command::Check(args) => quiet(&cli.log).and_then(|()| check::run(&args)),
        Command::TestCall(args) => quiet(&cli.log).and_then(|()| test_call::run(args)),
        Command::TestDialplan(args) => quiet(&cli.log).and_then(|()| test_dialplan::run(args)),
        Command::Status(args) => quiet(&cli.log).and_then(|()| status::run(args)),
        Command::Outbox(args) => quiet(&cli.log).and_then(|()| outbox::run(args)),
        Command::TestEmail(args) => quiet(&cli.log).and_then(|()| test_email::run(args)),
        Command::Templates(args) => quiet(&cli.log).and_then(|()| templates::run(args)),
        Command::Node(args) => quiet(&cli.log).and_then(|()| node::run(args)),
        Command::Override(args) => quiet(&cli.log).and_then(|()| override_::run(args)),
        Command::ReloadRouteMaps(args) => quiet(&cli.log).and_then(|()| reload::run(args)),
        Command::Xds(args) => quiet(&cli.log).and_then(|()| xds::run(args)),
        Command::Clear(args) => quiet(&cli.log).and_then(|()| clear::run(args)),
        Command::Replay(args) => quiet(&cli.log).and_then(|()| replay::run(args)),
        Command::Judge(args) => quiet(&cli.log).and_then(|()| judge::run(args)),
        Command::Completions(args) => completions::run(&args),
    }
}

/// The whole command line, as clap knows it.
#[must_use]
pub fn command() -> clap::Command {
    let command = Cli::command();
    let help = commands_help(&command);
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{help}{HEADER}Options:{HEADER:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template).after_help(examples_help())
}

fn commands_help(command: &clap::Command) -> String {
    let mut help = String::new();
    for (title, names) in GROUPS {
        help.push_str(&format!("{HEADER}{title}:{HEADER:#}\n"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about).cloned().unwrap_or_default();
            help.push_str(&format!("  {LITERAL}{name:<19}{LITERAL:#}{about}\n"));
        }
        help.push('\n');
    }
    help
}

fn examples_help() -> String {
    let mut help = format!("{HEADER}Examples:{HEADER:#}\n");
    for (line, what) in EXAMPLES {
        help.push_str(&format!("  {LITERAL}{line:<47}{LITERAL:#}{what}\n"));
    }
    help.push_str("\n'pointsman COMMAND --help' says more about a command.");
    help
}

/// Says on stderr what went wrong and gives the exit code for it.
fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_output(error) {
        return ExitCode::from(OUTPUT_CLOSED);
    }
    let mut err = io::stderr().lock();
    if let Some(problems) = error.downcast_ref::<Problems>() {
        let _ = write!(err, "{}", problems.render(err.is_terminal() && colour_wanted()));
        return ExitCode::from(WRONG_USAGE);
    }
    let _ = writeln!(err, "pointsman: {error:#}");
    ExitCode::from(if error.is::<WrongUsage>() { WRONG_USAGE } else { FAILED })
}

fn is_closed_output(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether colours are wanted on a terminal: the `NO_COLOR` convention.
pub(crate) fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A runtime for a command that needs one.
///
/// # Errors
/// Where the system gives no threads or no event queue.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn help_shows_every_command() {
        let command = command();
        let mut shown: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut there: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        shown.sort_unstable();
        there.sort_unstable();
        assert_eq!(shown, there);
    }

    #[test]
    fn the_examples_are_legal() {
        for (line, _) in EXAMPLES {
            let parsed = command().try_get_matches_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.err().map(|e| e.to_string()).unwrap_or_default());
        }
    }
}
