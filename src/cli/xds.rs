//! `pointsman xds clients`: who is at the xDS server of a running pointsman.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::{ColumnConstraint, Table};

use crate::cli::config_file::ConfigFile;
use crate::cli::question;
use crate::cli::status::{duration, edges, plural, printable, roughly, socket_of, table, titled, unbroken, width};
use crate::clock::Clock;
use crate::control::{ControlError, Request, Response};
use crate::engine::view::XdsSummary;
use crate::time::Timestamp;
use crate::xds::view::{ClientView, GoneView, Protocol, SubscriptionView, XdsView};

/// How much of a version the text shows: enough to tell two apart.
const VERSION: usize = 8;

/// How many of the streams that were ended here the text shows; `--json` has all that are remembered.
const DROPPED: usize = 10;

/// Arguments of `pointsman xds`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the clients: what each was told, what it accepted and what it rejected
    Clients(Clients),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A client is current in what it asked for once it has accepted the latest that it was sent. What it REJECTED is not
sent to it again; it goes on with what it accepted before.

Exit codes: 0 done, 1 pointsman does not run, did not answer, or has no xDS server that listens, 2 wrong usage or
configuration.

Examples:
  pointsman xds clients
  pointsman xds clients --json | jq '.clients[] | select(.subscriptions[].rejection != null) | .node'"
)]
struct Clients {
    #[command(flatten)]
    config: ConfigFile,
    /// Control socket of the running pointsman, instead of the one in the configuration
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    socket: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Asks the running pointsman and prints its answer.
///
/// # Errors
/// Where it does not run, does not answer or has no xDS server, where the configuration cannot be read, or where the
/// output is closed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Command::Clients(Clients { config, socket, json }) = args.command;
    let socket = socket.map_or_else(|| socket_of(&config), Ok)?;
    let view = match question::ask(&socket, &Request::XdsClients)? {
        Response::Xds(view) => view,
        other => {
            let problem = format!("not about the xDS server: {other:?}");
            return Err(ControlError::NotUnderstood { path: socket, problem }.into());
        }
    };
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, &view).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text(&view, Clock::system().now(), width()).as_bytes())?;
    }
    out.flush()?;
    Ok(if view.address.is_some() { ExitCode::SUCCESS } else { ExitCode::from(super::FAILED) })
}

/// The server and its clients as text.
fn text(view: &XdsView, now: Timestamp, width: u16) -> String {
    let mut blocks = vec![head(view)];
    if !view.clients.is_empty() {
        blocks.push(titled("Clients", &clients(view, now, width)));
    }
    if view.clients.iter().any(|client| client.rejects()) {
        blocks.push(titled("Rejected", &rejected(view, width)));
    }
    let dropped: Vec<_> = view.gone.iter().filter(|gone| gone.dropped).take(DROPPED).collect();
    if !dropped.is_empty() {
        blocks.push(titled("Latest that were dropped", &gone(&dropped, now, width)));
    }
    let mut text = blocks.join("\n\n");
    text.push('\n');
    text
}

fn head(view: &XdsView) -> String {
    let XdsView { address, problem, clients, totals, .. } = view;
    let rejecting = clients.iter().filter(|client| client.rejects()).count();
    let summary = XdsSummary { address: address.clone(), problem: String::new(), clients: clients.len(), rejecting };
    let problem = if problem.is_empty() { String::new() } else { format!("\n{}", printable(problem)) };
    format!(
        "{}{problem}\nSince the start: {}, {} dropped, {} refused\n{} sent, {} accepted, {} rejected",
        edges(&summary),
        plural(totals.streams, "stream"),
        totals.dropped,
        totals.refused,
        plural(totals.sent, "answer"),
        totals.accepted,
        totals.rejected,
    )
}

/// A row for each thing that a client asked for; what is said of the client itself stands in the first.
fn clients(view: &XdsView, now: Timestamp, width: u16) -> Table {
    let mut table = table(width, &["Client", "Software", "From", "Protocol", "For", "Kind", "Accepted", "State"], &[]);
    for client in &view.clients {
        let whole = [
            name(&client.node),
            name(&client.software),
            from(client),
            protocol(client.protocol).to_owned(),
            roughly(now.since(client.since)),
        ];
        for (row, cells) in rows(client, now).into_iter().enumerate() {
            let whole = if row == 0 { whole.clone() } else { Default::default() };
            table.add_row(whole.into_iter().chain(cells));
        }
    }
    for short in [3, 4, 5, 6] {
        if let Some(column) = table.column_mut(short) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

fn rows(client: &ClientView, now: Timestamp) -> Vec<[String; 3]> {
    let mut rows: Vec<_> = client
        .subscriptions
        .iter()
        .map(|subscription| {
            [subscription.kind.as_str().to_owned(), version(&subscription.accepted_version), state(subscription, now)]
        })
        .collect();
    rows.extend(client.unserved.iter().map(|kind| {
        let kind = kind.rsplit('.').next().unwrap_or(kind);
        ["-".to_owned(), "-".to_owned(), format!("not served: {}", printable(kind))]
    }));
    if rows.is_empty() {
        rows.push(["-".to_owned(), "-".to_owned(), "asked for nothing".to_owned()]);
    }
    rows
}

fn state(subscription: &SubscriptionView, now: Timestamp) -> String {
    let SubscriptionView { rejection, waiting_since, sent, .. } = subscription;
    let waiting = waiting_since.map(|since| format!("waiting {}", unbroken(&duration(now.since(since)))));
    match (rejection, waiting) {
        _ if !subscription.wildcard && subscription.names.is_empty() => "asked for nothing".to_owned(),
        (Some(rejection), None) => format!("REJECTED {}", ago(rejection.at, now)),
        (Some(_), Some(waiting)) => format!("REJECTED, {waiting}"),
        (None, Some(waiting)) => waiting,
        (None, None) if *sent == 0 => "not answered yet".to_owned(),
        (None, None) => "current".to_owned(),
    }
}

/// What clients say of what they did not take.
fn rejected(view: &XdsView, width: u16) -> Table {
    let mut table = table(width, &["Client", "Kind", "Version", "Error"], &[]);
    for client in &view.clients {
        for subscription in &client.subscriptions {
            let Some(rejection) = &subscription.rejection else { continue };
            table.add_row([
                name(&client.node),
                subscription.kind.as_str().to_owned(),
                version(&rejection.version),
                printable(&rejection.error),
            ]);
        }
    }
    table
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    unbroken(&format!("{} ago", roughly(now.since(at))))
}

fn gone(dropped: &[&GoneView], now: Timestamp, width: u16) -> Table {
    let mut table = table(width, &[], &[]);
    for GoneView { node, peer, at, reason, .. } in dropped {
        table.add_row([ago(*at, now), name(node), printable(peer), printable(reason)]);
    }
    table
}

/// Where a client comes from, and by what it was let in.
fn from(client: &ClientView) -> String {
    match &client.who {
        Some(who) => format!("{} ({})", printable(&client.peer), printable(who)),
        None => printable(&client.peer),
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::StateOfTheWorld => "whole",
        Protocol::Delta => "delta",
    }
}

fn version(version: &str) -> String {
    name(&version.chars().take(VERSION).collect::<String>())
}

/// Text of a client, which may be absent.
fn name(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { printable(text) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::xds::kind::Kind;
    use crate::xds::view::{Rejection, XdsTotals};

    fn second(n: i64) -> Timestamp {
        Timestamp::from_secs(1_700_000_000 + n)
    }

    fn subscription(kind: Kind) -> SubscriptionView {
        SubscriptionView {
            kind,
            wildcard: kind.is_whole(),
            names: vec!["wss".to_owned()],
            sent: 7,
            sent_version: "0123456789abcdef".to_owned(),
            waiting_since: None,
            accepted: 7,
            accepted_version: "0123456789abcdef".to_owned(),
            accepted_after_us: Some(800),
            rejected: 0,
            rejection: None,
        }
    }

    fn client(node: &str, subscriptions: Vec<SubscriptionView>) -> ClientView {
        ClientView {
            stream: 1,
            node: node.to_owned(),
            cluster: "edges".to_owned(),
            software: "envoy 1.40.0".to_owned(),
            peer: "192.0.2.7:41234".to_owned(),
            who: Some("edge-01".to_owned()),
            protocol: Protocol::Delta,
            since: second(-7200),
            subscriptions,
            unserved: Vec::new(),
        }
    }

    fn view() -> XdsView {
        let waiting = SubscriptionView {
            waiting_since: Some(second(-72)),
            accepted_version: "fedcba9876543210".to_owned(),
            ..subscription(Kind::Endpoints)
        };
        let rejection = Rejection {
            version: "89abcdef01234567".to_owned(),
            error: "Error adding/updating listener(s) wss-listener:\u{1b}[2J cannot bind '0.0.0.0:7443'".to_owned(),
            at: second(-40),
        };
        let rejected = SubscriptionView { rejection: Some(rejection.clone()), ..subscription(Kind::Listener) };
        let envoy = client("envoy-01\u{1b}[2J", vec![subscription(Kind::Cluster), waiting, rejected]);
        let left = SubscriptionView { wildcard: false, names: vec![], ..subscription(Kind::Cluster) };
        let first = SubscriptionView { sent: 0, accepted_version: String::new(), ..subscription(Kind::Endpoints) };
        let tried_again = SubscriptionView {
            rejection: Some(Rejection { error: "no".to_owned(), ..rejection }),
            waiting_since: Some(second(-3)),
            accepted_version: String::new(),
            ..subscription(Kind::Route)
        };
        let grpc = ClientView {
            software: "grpc-python".to_owned(),
            protocol: Protocol::StateOfTheWorld,
            who: None,
            unserved: vec!["type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret".to_owned()],
            ..client("caller", vec![left, first, tried_again])
        };
        let silent = ClientView { software: String::new(), ..client("", vec![]) };
        let gone = |n: i64, dropped, reason: &str| GoneView {
            node: format!("edge-{n}"),
            peer: "192.0.2.8:999".to_owned(),
            at: second(-60 * n),
            dropped,
            reason: reason.to_owned(),
        };
        XdsView {
            address: Some("192.0.2.1:18000".to_owned()),
            problem: String::new(),
            clients: [envoy, grpc, silent].map(Arc::new).to_vec(),
            gone: vec![
                gone(1, false, "it went away"),
                gone(2, true, "it did not read what it was sent for 10 s"),
                gone(3, true, "its message is no protocol\u{1b}[2J buffer"),
            ],
            totals: XdsTotals { streams: 6, dropped: 2, sent: 41, accepted: 39, rejected: 2, refused: 1 },
        }
    }

    #[test]
    fn the_clients_read_well_at_80_columns() {
        let text = text(&view(), second(0), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text, include_str!("xds.expected.txt"), "{text}");
    }

    #[test]
    fn nothing_of_a_client_reaches_the_terminal_as_a_command_at_any_width() {
        for width in [80, 120, 200] {
            let text = text(&view(), second(0), width);
            assert!(!text.contains('\u{1b}'), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{text}");
        }
    }

    #[test]
    fn only_the_latest_of_those_that_were_dropped_are_shown() {
        let one = GoneView { dropped: true, ..view().gone.remove(0) };
        let many = XdsView { gone: vec![one; DROPPED + 5], clients: Vec::new(), ..view() };
        assert_eq!(text(&many, second(0), 80).matches("it went away").count(), DROPPED);
    }

    #[test]
    fn a_server_that_nobody_can_reach_says_why() {
        let problem = "the xDS server cannot listen on 127.0.0.1:18000: Address already in use".to_owned();
        let down = XdsView { problem, ..XdsView::default() };
        let expected = "xDS: NOT listening\nthe xDS server cannot listen on 127.0.0.1:18000: Address already in use\n\
                        Since the start: 0 streams, 0 dropped, 0 refused\n0 answers sent, 0 accepted, 0 rejected\n";
        assert_eq!(text(&down, second(0), 80), expected);
    }
}
