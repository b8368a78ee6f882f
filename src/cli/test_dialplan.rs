//! `pointsman test-dialplan`: what a call would try, and whether the PBXs know.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::WrongUsage;
use crate::cli::config_file::ConfigFile;
use crate::cli::question::{QuestionArgs, ask};
use crate::cli::status::{printable, socket_of};
use crate::control::{ControlError, Request, Response};
use crate::dialplan::readback::{NodeVariables, VariableSeen};
use crate::dialplan::report::{Report, RouteState};
use crate::routing::question::{Question, number};

/// Arguments of `pointsman test-dialplan`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The variables of the map are read back from every PBX that it concerns. Assumptions change the order that is
shown, and not the variables. What a rule adds to which priority is shown by `pointsman test-call`.

Exit codes: 0 every variable is as it should be, 1 one is not or a PBX cannot be read, or pointsman does not run or
has no such map, 2 wrong usage or configuration.

Examples:
  pointsman test-dialplan 00442071838750
  pointsman test-dialplan 00442071838750 --map uk --assume vendor-a=bad --without vendor-b"
)]
pub struct Args {
    #[command(flatten)]
    question: QuestionArgs,
    #[command(flatten)]
    config: ConfigFile,
    /// Control socket of the running pointsman, instead of the one in the configuration
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    socket: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Asks the running pointsman and prints its answer.
///
/// # Errors
/// A number that is none (exit code 2); where pointsman does not run, does not answer or refuses; where the output is closed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { question, config, socket, json } = args;
    let mut question = Question::from(question);
    question.number = number(&question.number).map_err(|error| WrongUsage(error.to_string()))?;
    let path = socket.map_or_else(|| socket_of(&config), Ok)?;
    let report = match ask(&path, &Request::TestDialplan(question))? {
        Response::TestDialplan(report) => report,
        other => {
            let problem = format!("not an answer: {other:?}");
            return Err(ControlError::NotUnderstood { path, problem }.into());
        }
    };
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text(&report).as_bytes())?;
    }
    out.flush()?;
    Ok(if report.agrees { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The answer as text.
fn text(report: &Report) -> String {
    let Report { number, map, why, panic, assumed, routes, nodes, .. } = report;
    let mut text = format!("{number}: route map {map}\n {why}\n");
    if *panic {
        text += " PANIC: every connection of this map is blocked\n";
    }
    text += if *assumed { "\nCalls would try, under these assumptions\n" } else { "\nCalls try\n" };
    let longest = routes.iter().map(|route| route.connection.as_str().len()).max().unwrap_or(0);
    for RouteState { place, connection, quality, .. } in routes {
        let place = place.map_or_else(|| "-".to_owned(), |place| place.to_string());
        let _ = writeln!(text, " {place:>2}  {connection:<longest$}  {}", printable(quality));
    }
    if routes.is_empty() {
        text += " nothing: the map has no connections\n";
    }
    text += if *assumed { "\nVariables (as they are, without the assumptions)\n" } else { "\nVariables\n" };
    nodes.iter().for_each(|node| text += &variables(node));
    if nodes.is_empty() {
        text += " no node uses this map\n";
    }
    text
}

fn variables(node: &NodeVariables) -> String {
    let state = match (node.agrees, node.problem.as_str()) {
        (true, _) => "as they should be".to_owned(),
        (false, "") => "DIFFERENT: what differs is put back at the next comparison".to_owned(),
        (false, problem) => format!("NOT READ: {}; they should hold", printable(problem)),
    };
    let mut text = format!(" {}: {state}\n", node.node);
    let longest = node.variables.iter().map(|variable| variable.name.len()).max().unwrap_or(0);
    for variable in &node.variables {
        let _ = writeln!(text, "   {:<longest$}  {}", variable.name, value(variable, &node.problem));
    }
    text
}

fn value(variable: &VariableSeen, problem: &str) -> String {
    let shown = |value: &Option<String>| match value.as_deref() {
        None | Some("") => "(not set)".to_owned(),
        Some(value) => printable(value),
    };
    if !problem.is_empty() {
        return shown(&variable.wanted);
    }
    let held = shown(&variable.held);
    if variable.agrees { held } else { format!("{held}  <- should be {}", shown(&variable.wanted)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ConnectionId, MapId, NodeId};
    use crate::pbx::PbxKind;

    fn route(place: Option<usize>, name: &str, quality: &str) -> RouteState {
        RouteState {
            place,
            connection: ConnectionId::new(name).unwrap(),
            state: "good".to_owned(),
            quality: quality.to_owned(),
            reason: String::new(),
        }
    }

    fn variable(name: &str, wanted: Option<&str>, held: Option<&str>) -> VariableSeen {
        let agrees = wanted == held;
        VariableSeen { name: name.to_owned(), wanted: wanted.map(Into::into), held: held.map(Into::into), agrees }
    }

    fn node(name: &str, problem: &str, variables: Vec<VariableSeen>) -> NodeVariables {
        let agrees = problem.is_empty() && variables.iter().all(|variable| variable.agrees);
        let (node, kind) = (NodeId::new(name).unwrap(), PbxKind::Asterisk);
        NodeVariables { node, kind, agrees, problem: problem.to_owned(), variables }
    }

    #[test]
    fn an_answer_says_what_is_tried_and_which_node_does_not_know() {
        let report = Report {
            number: "0044123".to_owned(),
            map: MapId::new("uk").unwrap(),
            why: "\"0044\" is the longest prefix of 0044123 that a map serves".to_owned(),
            panic: false,
            assumed: false,
            routes: vec![
                route(Some(1), "vendor-a", "Connection quality is good"),
                route(None, "b", "Connection blocked due to bad quality"),
            ],
            nodes: vec![
                node("pbx-01", "", vec![variable("pm_route_uk", Some("vendor-a"), Some("vendor-a"))]),
                node(
                    "pbx-02",
                    "",
                    vec![
                        variable("pm_route_uk", Some("vendor-a"), Some("b\u{1b},vendor-a")),
                        variable("pm_conn_b", Some("blocked"), None),
                    ],
                ),
                node("pbx-03", "no link", vec![variable("pm_route_uk", Some("vendor-a"), None)]),
            ],
            agrees: false,
        };
        let expected = "\
0044123: route map uk
 \"0044\" is the longest prefix of 0044123 that a map serves

Calls try
  1  vendor-a  Connection quality is good
  -  b         Connection blocked due to bad quality

Variables
 pbx-01: as they should be
   pm_route_uk  vendor-a
 pbx-02: DIFFERENT: what differs is put back at the next comparison
   pm_route_uk  b\u{fffd},vendor-a  <- should be vendor-a
   pm_conn_b    (not set)  <- should be blocked
 pbx-03: NOT READ: no link; they should hold
   pm_route_uk  vendor-a
";
        assert_eq!(text(&report), expected);
    }
}
