//! `pointsman test-call`: what a call would try, and how each route comes to its place.
//!
//! Asked of the running pointsman, or worked out of a CSV of attempts by the same rules. Turning the answer into text is a
//! pure function of it and of the width of the terminal.

use std::collections::HashSet;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use comfy_table::{ColumnConstraint, Table, Width};

use crate::cli::WrongUsage;
use crate::cli::attempts::{self, Attempts, MapColumns};
use crate::cli::config_file::ConfigFile;
use crate::cli::question::{QuestionArgs, ask};
use crate::cli::status::{printable, socket_of, table, width};
use crate::config::Config;
use crate::control::{ControlError, Request, Response};
use crate::engine::past::Past;
use crate::routing::WhenAllBlocked;
use crate::routing::picture::{CriterionView, MapView, RouteView, WhatIf};
use crate::routing::question::{Answer, Question, number};
use crate::routing::rule::{Criterion, Measure, Rule};
use crate::time::Timestamp;

/// Least width of the column with the state's sentence; a table that leaves it less becomes one block per route.
const SENTENCE: u16 = 24;

/// What comfy-table puts around the text of a cell.
const PADDING: u16 = 2;

/// Arguments of `pointsman test-call`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --attempts the running pointsman is asked, and the table is as of now. With it no pointsman runs: the table
is as of after the last end in the file, whose rows all count as calls of the number's map.

Exit codes: 0 done, 1 there is no answer, or pointsman does not run, or rows could not be read, 2 wrong usage or
configuration.

Examples:
  pointsman test-call 00442071838750
  pointsman test-call 00442071838750 --assume vendor-a=bad --without vendor-b
  pointsman test-call 00442071838750 --config pointsman.toml --attempts ATTEMPTS.csv --json"
)]
pub struct Args {
    #[command(flatten)]
    question: QuestionArgs,
    #[command(flatten)]
    config: ConfigFile,
    /// Attempts to learn from, in the columns of `pointsman judge`; "-" reads standard input
    #[arg(long, value_name = "ATTEMPTS.csv")]
    attempts: Option<PathBuf>,
    /// Control socket of the running pointsman, instead of the one in the configuration
    #[arg(long, value_name = "PATH", conflicts_with_all = ["path", "attempts"])]
    socket: Option<PathBuf>,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
}

/// Answers, from the running pointsman or from attempts.
///
/// # Errors
/// A number that is none and a configuration with errors (exit code 2); a map or a connection that is not there; pointsman
/// where it does not run; a file that cannot be read; stdout that cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { question, config, attempts, socket, json } = args;
    let mut question = Question::from(question);
    question.number = number(&question.number).map_err(|error| WrongUsage(error.to_string()))?;
    let (answer, basis) = match attempts {
        Some(path) => past(&config, &path, &question)?,
        None => (live(socket.map_or_else(|| socket_of(&config), Ok)?, &question)?, Basis::Now),
    };
    let mut out = io::stdout().lock();
    let bad_rows = matches!(basis, Basis::Attempts { bad_rows: 1.., .. });
    if json {
        serde_json::to_writer(&mut out, &answer.table()).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text(&answer, &question.what_if, &basis, width()).as_bytes())?;
    }
    out.flush()?;
    Ok(if bad_rows { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What a table rests on.
enum Basis {
    /// What the running pointsman knows.
    Now,
    /// Attempts of the map that were read from a file.
    Attempts { count: usize, last_end: Option<Timestamp>, bad_rows: usize },
}

fn live(path: PathBuf, question: &Question) -> anyhow::Result<Answer> {
    match ask(&path, &Request::TestCall(question.clone()))? {
        Response::TestCall(answer) => Ok(*answer),
        other => {
            let problem = format!("not an answer: {other:?}");
            Err(ControlError::NotUnderstood { path, problem }.into())
        }
    }
}

fn past(config: &ConfigFile, path: &Path, question: &Question) -> anyhow::Result<(Answer, Basis)> {
    let config = config.load_to_look()?.config;
    let mut past = asked(&config, question)?;
    let mut input = attempts::open(path)?;
    let basis = learn(&mut past, &mut *input, &mut BufWriter::new(io::stderr().lock()))
        .with_context(|| format!("cannot read the attempts of {}", path.display()))?;
    Ok((question.answer(&pictures(&config, past.picture()))?, basis))
}

/// The map that the question is about. Whether it has the connections that the question names is settled before anything is
/// read.
fn asked<'a>(config: &'a Config, question: &Question) -> anyhow::Result<Past<'a>> {
    let nothing = config.route_maps.iter().map(|map| Arc::new(MapView::new(map.id.clone(), map.prefixes.clone())));
    let bare = Question { what_if: WhatIf::default(), ..question.clone() };
    let map = bare.answer(&nothing.collect::<Vec<_>>())?.map.id;
    let past = Past::of(config, &map).with_context(|| format!("there is no route map {map}"))?;
    past.picture().assuming(&question.what_if)?;
    Ok(past)
}

/// The pictures of all maps, of which only that one is asked for.
fn pictures(config: &Config, picture: MapView) -> Vec<Arc<MapView>> {
    let picture = Arc::new(picture);
    let maps = config.route_maps.iter().map(|map| {
        if map.id == picture.id {
            return picture.clone();
        }
        Arc::new(MapView::new(map.id.clone(), map.prefixes.clone()))
    });
    maps.collect()
}

/// Plays the rows of the map's connections; the others are noted once each.
fn learn(past: &mut Past<'_>, input: &mut dyn BufRead, notes: &mut dyn Write) -> anyhow::Result<Basis> {
    let (mut attempts, mut noted) = (Vec::new(), HashSet::new());
    let map = past.map().clone();
    let file = Attempts::of(input, MapColumns::Ignored)?;
    let bad_rows = file.read(notes, |line, row, notes| {
        match past.seat(&row.connection) {
            Some(seat) => attempts.push(row.attempt(seat)),
            None if noted.contains(&*row.connection) => {}
            None => {
                noted.insert(row.connection.to_string());
                let connection = &row.connection;
                writeln!(
                    notes,
                    "line {line}: the route map {map} has no connection {connection:?}: its rows are ignored"
                )?;
            }
        }
        Ok(())
    })?;
    attempts::note_bad_rows(notes, bad_rows, "count")?;
    past.play(&attempts);
    let last_end = attempts.iter().map(|attempt| attempt.ended_at).max();
    Ok(Basis::Attempts { count: attempts.len(), last_end, bad_rows })
}

// ===== text =====

/// The answer as text.
fn text(answer: &Answer, what_if: &WhatIf, basis: &Basis, width: u16) -> String {
    let mut blocks = vec![head(answer, what_if, basis, width)];
    let routes = &answer.map.routes;
    match priorities(&answer.map, width) {
        _ if routes.is_empty() => blocks.push("The map has no connections: calls have nowhere to go.".to_owned()),
        Some(table) => {
            blocks.push(table.trim_fmt());
            blocks.push(format!("Why this order\n{}", reasons(routes, width).trim_fmt()));
        }
        None => {
            let digits = u16::try_from(routes.len().to_string().len()).unwrap_or(u16::MAX);
            blocks.extend(routes.iter().map(|route| block(route, digits, width).trim_fmt()));
        }
    }
    let mut text = blocks.join("\n\n");
    text.push('\n');
    text
}

/// Which map, why, and on what the table rests.
fn head(answer: &Answer, what_if: &WhatIf, basis: &Basis, width: u16) -> String {
    let map = &answer.map;
    let mut rows = table(width, &[], &[]);
    rows.add_row(["Number".to_owned(), answer.number.clone()]);
    rows.add_row(["Map".to_owned(), format!("{}: {}", map.id, answer.why())]);
    rows.add_row(["Rule".to_owned(), rule(map.rule.as_ref())]);
    rows.add_row(["As of".to_owned(), as_of(basis)]);
    if !what_if.is_empty() {
        rows.add_row(["ASSUMED".to_owned(), format!("{}; the rest is as it is", assumed(what_if))]);
    }
    if map.panic {
        rows.add_row(["PANIC".to_owned(), panic(map)]);
    }
    rows.trim_fmt()
}

fn rule(rule: Option<&Rule>) -> String {
    let Some(Rule { id, criteria }) = rule else { return "none: priorities are the static ones".to_owned() };
    let criterion = |(measure, criterion): (&Measure, &Criterion)| {
        let Criterion { weight, latency, compensation } = criterion;
        format!("{} (weight {weight}, latency {latency}, compensation {compensation})", measure.as_str())
    };
    let criteria: Vec<String> = criteria.iter().map(criterion).collect();
    let criteria = if criteria.is_empty() { "no criterion is enabled".to_owned() } else { criteria.join(",\n") };
    format!("{}: {criteria}", printable(id))
}

fn as_of(basis: &Basis) -> String {
    match basis {
        Basis::Now => "now, in the running pointsman".to_owned(),
        Basis::Attempts { last_end: None, .. } => "before any attempt: the file has none of this map".to_owned(),
        Basis::Attempts { count: 1, last_end: Some(at), .. } => format!("{at}, after the one attempt of this map"),
        Basis::Attempts { count, last_end: Some(at), .. } => {
            format!("{at}, after the last of {count} attempts of this map")
        }
    }
}

fn assumed(what_if: &WhatIf) -> String {
    let states = what_if.assume.iter().map(|(connection, state)| format!("{connection} is {}", state.as_str()));
    let away = what_if.without.iter().map(|connection| format!("{connection} is not there"));
    states.chain(away).collect::<Vec<_>>().join("; ")
}

fn panic(map: &MapView) -> String {
    match (map.when_all_blocked, map.hunt_order.first()) {
        (WhenAllBlocked::LeastBad, Some(kept)) => {
            format!("every connection is blocked; calls go to {kept}, the least bad")
        }
        _ => "every connection is blocked; calls fail".to_owned(),
    }
}

/// One line per route; `None` where that is too wide.
fn priorities(map: &MapView, width: u16) -> Option<Table> {
    let measures: Vec<Measure> = map.rule.iter().flat_map(|rule| rule.criteria.keys().copied()).collect();
    let mut headers = vec!["Place", "Connection", "Static"];
    for measure in &measures {
        headers.extend([short(*measure), "Comp.", "Penalty"]);
    }
    if map.rule.is_some() {
        headers.extend(["Dynamic", "Priority"]);
    }
    headers.push("State");
    let numbers: Vec<usize> = (2..headers.len() - 1).collect();
    let mut table = table(width, &headers, &numbers);
    for route in &map.routes {
        let mut cells = vec![place(route), route.connection.to_string(), route.static_priority.to_string()];
        for measure in &measures {
            cells.extend(criterion(route.criteria.get(measure)));
        }
        if map.rule.is_some() {
            cells.extend([two(route.dynamic_priority), two(route.priority)]);
        }
        cells.push(printable(&route.quality));
        table.add_row(cells);
    }
    let (_, others) = table.column_max_content_widths().split_last().map(|(last, others)| (*last, others.to_vec()))?;
    let needed: u16 = others.iter().map(|content| content.saturating_add(PADDING)).sum();
    (needed + SENTENCE + PADDING <= width).then_some(table)
}

/// A measure in a column's header.
fn short(measure: Measure) -> &'static str {
    match measure {
        Measure::SuccessPercent => "Success %",
        Measure::AvgDurationSec => "Duration s",
        Measure::SignallingFailurePercent => "Failures %",
    }
}

/// Estimate, compensation and penalty.
fn criterion(seen: Option<&CriterionView>) -> [String; 3] {
    let CriterionView { estimate, compensation, penalty } = seen.copied().unwrap_or_default();
    [estimate.map_or_else(|| "-".to_owned(), two), two(compensation), two(penalty)]
}

fn reasons(routes: &[RouteView], width: u16) -> Table {
    let mut rows = table(width, &[], &[]);
    for route in routes {
        rows.add_row([place(route), route.connection.to_string(), printable(&route.reason)]);
    }
    rows
}

/// A route by itself; `digits` is the length of the longest place.
fn block(route: &RouteView, digits: u16, width: u16) -> Table {
    let mut rows = table(width, &[], &[]);
    let mut row = |place: &str, text: String| {
        rows.add_row([place.to_owned(), text]);
    };
    row(&place(route), format!("{}: {}", route.connection, printable(&route.quality)));
    let (dynamic, sum) = (two(route.dynamic_priority), two(route.priority));
    row("", format!("priority {sum}: static {}, dynamic {dynamic}", route.static_priority));
    if !route.criteria.is_empty() {
        row("", criteria(route));
    }
    row("", format!("why here: {}", printable(&route.reason)));
    if let Some(column) = rows.column_mut(0) {
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(digits.saturating_add(PADDING))));
    }
    rows
}

/// Estimate, compensation and penalty of a route, a line for each criterion.
fn criteria(route: &RouteView) -> String {
    let line = |name: &str, [estimate, compensation, penalty]: [String; 3]| {
        format!("{name:<26}  {estimate:>9}  {compensation:>12}  {penalty:>8}")
    };
    let head = line("", ["estimate", "compensation", "penalty"].map(str::to_owned));
    let lines = route.criteria.iter().map(|(measure, seen)| line(measure.as_str(), criterion(Some(seen))));
    std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
}

fn place(route: &RouteView) -> String {
    route.place.map_or_else(|| "-".to_owned(), |place| place.to_string())
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ConnectionId, MapId};
    use crate::quality::machine::Standing;
    use crate::routing::Route;
    use crate::routing::matching::Match;
    use crate::routing::picture::Assumed;
    use crate::routing::rule::{Value, Values};

    fn id(name: &str) -> ConnectionId {
        ConnectionId::new(name).unwrap()
    }

    fn rule(measures: &[Measure]) -> Rule {
        let criterion = |measure: &Measure| {
            let weight = if *measure == Measure::AvgDurationSec { 10.0 } else { 20.0 };
            (*measure, Criterion { weight, latency: 10, compensation: 2.5 })
        };
        Rule { id: "standard".into(), criteria: measures.iter().map(criterion).collect() }
    }

    fn answer(measures: &[Measure]) -> Answer {
        let known = [
            ("vendor-a", 10, [Some(41.254_321), Some(20.5), Some(50.0)], 5.0),
            ("vendor-b", 20, [Some(90.0), Some(61.0), Some(1.25)], 0.0),
            ("vendor-c", 20, [None; 3], 0.0),
            ("vendor-d", 5, [Some(12.5), None, Some(80.0)], 45.5),
        ];
        let routes = known.into_iter().enumerate().map(|(written, (name, priority, estimates, compensation))| {
            let all = [Measure::SuccessPercent, Measure::AvgDurationSec, Measure::SignallingFailurePercent];
            let values: Values =
                all.into_iter().zip(estimates.map(|estimate| Value { estimate, compensation })).collect();
            let values = values.into_iter().filter(|(measure, _)| measures.contains(measure)).collect();
            RouteView::new(&Route { connection: id(name), priority, written }, Some(&values))
        });
        let rule = (!measures.is_empty()).then(|| rule(measures));
        let mut map =
            MapView { rule, routes: routes.collect(), ..MapView::new(MapId::new("intl").unwrap(), vec!["00".into()]) };
        map.routes[0].quality = "Connection quality is good".into();
        map.routes[1].standing = Standing::Last;
        map.routes[1].quality = "pinned to the end (by alice): mind the \u{1b}[2J screen".into();
        map.routes[3].standing = Standing::Blocked;
        map.routes[3].quality = "Connection blocked due to bad quality".into();
        map.derive();
        Answer { number: "00442071838750".into(), matched: Match::Prefix("00".into()), map }
    }

    const ALL: [Measure; 3] = [Measure::SuccessPercent, Measure::AvgDurationSec, Measure::SignallingFailurePercent];

    fn what_if() -> WhatIf {
        WhatIf { assume: vec![(id("vendor-d"), Assumed::Blocked)], without: vec![id("vendor-x")] }
    }

    #[test]
    fn an_answer_reads_well_at_80_columns() {
        let text = text(&answer(&ALL), &WhatIf::default(), &Basis::Now, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text, include_str!("test_call.80.expected.txt"), "{text}");
    }

    #[test]
    fn an_answer_reads_well_at_160_columns() {
        let basis = Basis::Attempts { count: 12, last_end: Some(Timestamp::from_secs(1_700_000_000)), bad_rows: 1 };
        let text = text(&answer(&ALL), &what_if(), &basis, 160);
        assert!(text.lines().all(|line| line.chars().count() <= 160), "{text}");
        assert_eq!(text, include_str!("test_call.160.expected.txt"), "{text}");
    }

    #[test]
    fn without_a_rule_a_table_fits_into_80_columns() {
        let text = text(&answer(&[]), &WhatIf::default(), &Basis::Now, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("Place  Connection  Static  State") && text.contains("none: priorities are the static"));
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn a_map_whose_routes_are_all_blocked_says_what_becomes_of_calls() {
        let mut blocked = answer(&[]);
        for route in &mut blocked.map.routes {
            (route.standing, route.merit) = (Standing::Blocked, Some(0.5));
        }
        blocked.map.derive();
        let said = |answer: &Answer| text(answer, &WhatIf::default(), &Basis::Now, 80);
        assert!(said(&blocked).contains(" PANIC   every connection is blocked; calls fail\n"));
        blocked.map.when_all_blocked = WhenAllBlocked::LeastBad;
        blocked.map.derive();
        assert!(said(&blocked).contains(" PANIC   every connection is blocked; calls go to vendor-d, the least bad\n"));
        blocked.map.routes.clear();
        blocked.map.derive();
        assert!(said(&blocked).ends_with("\nThe map has no connections: calls have nowhere to go.\n"));
    }
}
