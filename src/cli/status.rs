//! `pointsman status`: what a running pointsman sees.
//!
//! The picture comes over the control socket; turning it into text is a pure function of the picture, the time and the
//! width of the terminal. No colours: what matters is said in words, first.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

use crate::cli::WrongUsage;
use crate::cli::config_file::ConfigFile;
use crate::clock::Clock;
use crate::control::{self, ControlError, Request, Response};
use crate::engine::view::{
    ConnectionView, LinkState, LinkView, MailView, MapView, NodeView, RoutingView, UnknownTrunk, VariablesView, View,
    XdsSummary,
};
use crate::ids::ConnectionId;
use crate::pbx::PbxKind;
use crate::quality::machine::State;
use crate::quality::pin::{Pin, Pinned};
use crate::quality::settings::BadQualityAction;
use crate::time::Timestamp;

/// Width where the terminal does not tell its own, and the least that tables are laid out for.
const WIDTH: u16 = 80;

/// How many changes the text shows; `--json` has all that the picture holds.
const CHANGES: usize = 10;

/// How many trunks that are not configured the text explains.
const UNKNOWN_TRUNKS: usize = 10;

/// Arguments of `pointsman status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 it runs and answered, 1 it does not run or did not answer, 2 wrong usage or configuration."
)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Control socket of the running pointsman, instead of the one in the configuration
    #[arg(long, value_name = "PATH", conflicts_with = "path")]
    socket: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Ask again every SECONDS until stopped
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

/// Asks the running pointsman and prints its answer.
///
/// # Errors
/// Where it does not run or does not answer, where the configuration cannot be read, or where the output is closed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { config, socket, json, watch } = args;
    let socket = match socket {
        Some(socket) => socket,
        None => socket_of(&config)?,
    };
    let mut out = io::stdout();
    let Some(seconds) = watch else {
        let view = ask(&socket)?;
        print(&mut out, &view, json)?;
        return Ok(ExitCode::SUCCESS);
    };
    loop {
        // The whole picture at once, so that the screen does not flicker.
        let mut frame = Vec::new();
        if out.is_terminal() && !json {
            frame.extend(b"\x1b[H\x1b[2J");
        }
        match ask(&socket) {
            Ok(view) => print(&mut frame, &view, json)?,
            // It may be restarting; whoever watches wants to see it come back.
            Err(error) if json => writeln!(io::stderr().lock(), "pointsman: {error}")?,
            Err(error) => writeln!(frame, "{error}")?,
        }
        out.write_all(&frame)?;
        out.flush()?;
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

pub(super) fn socket_of(config: &ConfigFile) -> anyhow::Result<PathBuf> {
    config.find().map_err(|error| WrongUsage(format!("{error}, or the control socket with --socket PATH")))?;
    Ok(config.load_to_look()?.config.control_socket)
}

fn ask(socket: &Path) -> Result<Arc<View>, ControlError> {
    match control::request_blocking(socket, &Request::Status)? {
        Response::Status(view) => Ok(view),
        other => Err(ControlError::NotUnderstood { path: socket.into(), problem: format!("not a status: {other:?}") }),
    }
}

fn print(out: &mut impl Write, view: &View, json: bool) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, view)?;
        writeln!(out)
    } else {
        // A clock that runs faster than ours (`demo`) is ahead of it; the picture's own time is right then.
        let now = Clock::system().now().max(view.at);
        out.write_all(text(view, now, width()).as_bytes())
    }
}

pub(super) fn width() -> u16 {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(WIDTH, |size| size.ws_col.max(WIDTH))
}

/// The picture as text.
fn text(view: &View, now: Timestamp, width: u16) -> String {
    let mut blocks = vec![head(view, now)];
    blocks.extend(troubles(view));
    blocks.push(titled("Nodes", &nodes(&view.nodes, now, width)));
    if !view.connections.is_empty() {
        blocks.push(titled("Connections (thresholds in parentheses)", &connections(&view.connections, now, width)));
    }
    if !view.maps.is_empty() {
        blocks.push(titled("Hunt orders", &maps(&view.maps, width)));
    }
    blocks.push(titled("Latest changes", &changes(view, now, width)));
    if !view.unknown_trunks.is_empty() {
        blocks.push(unknown_trunks(&view.unknown_trunks));
    }
    let mut text = blocks.join("\n\n");
    text.push('\n');
    text
}

fn head(view: &View, now: Timestamp) -> String {
    let running = duration(now.since(view.started_at));
    let stored = if view.storage.healthy { "storing" } else { "NOT storing" };
    let mail = if view.mail.configured { format!("\n{}", mail(&view.mail)) } else { String::new() };
    let best = best(&view.routing);
    let xds = view.xds.as_ref().map(|xds| format!("\n{}", edges(xds))).unwrap_or_default();
    format!(
        "pointsman {}, running for {running}, generation {}, {stored}\n{best}{mail}{xds}",
        view.version, view.generation
    )
}

/// The xDS server in a line.
pub(super) fn edges(xds: &XdsSummary) -> String {
    let Some(address) = &xds.address else { return "xDS: NOT listening".into() };
    let rejecting = if xds.rejecting > 0 { format!(", {} REJECTING", xds.rejecting) } else { String::new() };
    format!("xDS on {}: {}{rejecting}", printable(address), plural(xds.clients as u64, "client"))
}

fn best(routing: &RoutingView) -> String {
    match (&routing.best_node, &routing.fallback_node) {
        (Some(node), _) => format!("Best node: {node} (score {})", number(routing.best_score)),
        (None, Some(node)) => format!("Every node is excluded; calls fall back on {node}"),
        (None, None) => "Every node is excluded, and none is left to fall back on".into(),
    }
}

fn mail(mail: &MailView) -> String {
    let mut words = vec![format!("{} sent", mail.sent)];
    let waiting = mail.waiting + mail.undecided;
    if waiting > 0 {
        words.push(format!("{waiting} waiting"));
    }
    if mail.dead > 0 {
        words.push(format!("{} DEAD", mail.dead));
    }
    format!("Mail through {}: {}", printable(&mail.via), words.join(", "))
}

/// What needs somebody's attention and has no line of its own in a table.
fn troubles(view: &View) -> Option<String> {
    let mut lines = Vec::new();
    let storage = &view.storage;
    if !storage.healthy {
        let rows = plural(storage.backlog as u64, "row");
        lines.push(format!("Storage: {}; {rows} waiting", printable(&storage.problem)));
    }
    if storage.dropped > 0 {
        lines.push(format!("Storage: {} could not be kept and were dropped", plural(storage.dropped, "row")));
    }
    lines.extend(view.maps.iter().filter(|map| map.panic).map(|map| all_blocked(map)));
    lines.extend(unmapped(&view.connections));
    lines.extend(view.http.iter().map(|http| &http.problem).filter(|problem| !problem.is_empty()).cloned());
    lines.extend(view.xds.iter().filter(|xds| !xds.problem.is_empty()).map(|xds| printable(&xds.problem)));
    lines.extend(mail_troubles(&view.mail, view.at));
    for node in &view.nodes {
        if node.link.state != LinkState::Up && !node.link.reason.is_empty() {
            lines.push(format!("{}: {}", node.id, printable(&node.link.reason)));
        }
        if !node.assessment.lethal.is_empty() {
            let reasons: Vec<_> = node.assessment.lethal.iter().map(ToString::to_string).collect();
            let since =
                node.excluded_since.map(|at| format!(" (for {})", duration(view.at.since(at)))).unwrap_or_default();
            lines.push(format!("{} gets no new calls: {}{since}", node.id, reasons.join(", ")));
        }
        lines.extend(losses(&node.link).map(|losses| format!("{}: {losses}", node.id)));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn all_blocked(map: &MapView) -> String {
    match map.hunt_order.first() {
        None => format!("PANIC: every connection of {} is blocked, and its calls fail", map.id),
        Some(kept) => format!("PANIC: every connection of {} is blocked; calls go to {kept}, the least bad", map.id),
    }
}

/// Calls that nobody judged, because they belong to no map of a connection that is judged per map.
fn unmapped(connections: &[ConnectionView]) -> impl Iterator<Item = String> {
    let with_some = connections.iter().filter(|connection| connection.unmapped > 0);
    let mut lines: Vec<String> = with_some
        .map(|connection| {
            let calls = plural(connection.unmapped, "call");
            format!("{}: {calls} in none of its route maps, not judged", connection.key.connection)
        })
        .collect();
    lines.dedup();
    lines.into_iter()
}

fn mail_troubles(mail: &MailView, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    if !mail.problem.is_empty() {
        let next = mail.next_try_at.map(|at| format!("; next try in {}", duration(at.since(now)))).unwrap_or_default();
        lines.push(format!("Mail: {}{next}", printable(&mail.problem)));
    }
    if mail.dead > 0 {
        let dead = plural(mail.dead as u64, "mail");
        lines.push(format!("Mail: {dead} could not be delivered, see `pointsman outbox`"));
    }
    if mail.lost > 0 {
        lines.push(format!("Mail: {} dropped, because too many waited", plural(mail.lost, "mail")));
    }
    lines
}

/// What a link lost since the start, where it lost anything.
fn losses(link: &LinkView) -> Option<String> {
    let counts = [
        (link.dropped, "event dropped on overload", "events dropped on overload"),
        (link.damaged, "damaged message", "damaged messages"),
        (link.losses, "loss found", "losses found"),
        (link.ends_unseen_answered, "answered call whose end was not seen", "answered calls whose ends were not seen"),
        (link.ends_unseen_lost, "other call whose end was not seen", "other calls whose ends were not seen"),
        (link.false_ends, "end of a call that was not true", "ends of calls that were not true"),
        (link.legs_refused, "leg not followed (too many are up)", "legs not followed (too many are up)"),
    ];
    let words: Vec<_> = counts
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn nodes(nodes: &[NodeView], now: Timestamp, width: u16) -> Table {
    let mut table = table(width, &["Node", "PBX", "Link", "For", "Active", "Score", "Reply", "Variables"], &[4, 5, 6]);
    for node in nodes {
        table.add_row([
            node.id.to_string(),
            pbx(node.kind).into(),
            link(&node.link, now),
            roughly(now.since(node.link.since)),
            node.active_calls.to_string(),
            score(node),
            node.link.rtt_us.map_or_else(|| "-".into(), milliseconds),
            variables(&node.variables),
        ]);
    }
    table
}

fn score(node: &NodeView) -> String {
    if node.assessment.lethal.is_empty() { number(node.assessment.score) } else { "out".into() }
}

fn pbx(kind: PbxKind) -> &'static str {
    match kind {
        PbxKind::FreeSwitch => "FreeSWITCH",
        PbxKind::Asterisk => "Asterisk",
    }
}

fn link(link: &LinkView, now: Timestamp) -> String {
    let next = |what: &str| match link.next_try_at {
        Some(at) => format!("{what}, next try in {}", unbroken(&duration(at.since(now)))),
        None => what.into(),
    };
    match link.state {
        LinkState::Connecting => "connecting".into(),
        LinkState::Synchronising => "reading calls".into(),
        LinkState::Up => "up".into(),
        LinkState::Waiting => next("down"),
        LinkState::Refused => next("refused"),
    }
}

fn variables(variables: &VariablesView) -> String {
    let mut words = match (variables.pending, variables.in_step_at) {
        (0, Some(_)) => format!("{} in step", variables.desired),
        (0, None) => format!("{} unknown", variables.desired),
        (pending, _) => format!("{} of {} pending", pending, variables.desired),
    };
    if variables.repaired > 0 {
        words.push_str(&format!(", {} put back", variables.repaired));
    }
    words
}

fn connections(connections: &[ConnectionView], now: Timestamp, width: u16) -> Table {
    let headers = ["Connection", "State", "For", "ASR %", "ACD s", "PDD s", "Calls", "Active"];
    let mut table = table(width, &headers, &[3, 4, 5, 6, 7]);
    for connection in connections {
        let (figures, settings) = (&connection.figures, &connection.settings);
        table.add_row([
            connection.key.to_string(),
            pinned(connection, now).unwrap_or_else(|| state(connection, now)),
            roughly(now.since(connection.since)),
            figure(figures.asr, settings.asr_threshold_percent),
            figure(figures.acd, settings.acd_threshold_sec),
            figure(figures.pdd, settings.pdd_threshold_sec),
            measured(connection),
            connection.active_calls.to_string(),
        ]);
    }
    table
}

/// What an operator made of its place, and what its figures say.
fn pinned(connection: &ConnectionView, now: Timestamp) -> Option<String> {
    let Pinned { pin, who, until, .. } = connection.pinned.as_ref()?;
    let place = match pin {
        Pin::PinGood => "in place",
        Pin::PinLast => "last",
        Pin::PinBlock => "blocked",
    };
    let until = until.map(|at| format!(" for {}", unbroken(&duration(at.since(now))))).unwrap_or_default();
    Some(format!("PINNED {place}{until} by {}; is {}", printable(who), state(connection, now)))
}

fn state(connection: &ConnectionView, now: Timestamp) -> String {
    let bad = |what: &str| match connection.retry_at {
        Some(at) => format!("{what}, retry in {}", unbroken(&duration(at.since(now)))),
        None => what.into(),
    };
    match (connection.state, connection.action) {
        _ if !connection.monitored => "not judged".into(),
        (State::Good, _) => "good".into(),
        (State::Retry, _) => {
            format!("retry, {} of {}", connection.batch_done.unwrap_or(0), connection.settings.retry_batch)
        }
        (State::Bad, BadQualityAction::MakeLast) => bad("lowered"),
        (State::Bad, BadQualityAction::Block) => bad("blocked"),
        (State::Bad, BadQualityAction::NotifyOnly) => bad("bad"),
    }
}

/// A figure with its threshold, where it has one.
fn figure(value: Option<f64>, threshold: Option<f64>) -> String {
    let value = value.map_or_else(|| "-".into(), number);
    match threshold {
        Some(threshold) => format!("{value} ({})", number(threshold)),
        None => value,
    }
}

/// What the figures are over, and what they must be over before they are judged.
fn measured(connection: &ConnectionView) -> String {
    let (calls, needed) = (connection.figures.calls, connection.settings.min_calls);
    if connection.monitored && connection.state == State::Good && calls < needed {
        format!("{calls} of {needed}")
    } else {
        calls.to_string()
    }
}

fn maps(maps: &[Arc<MapView>], width: u16) -> Table {
    let mut table = table(width, &["Map", "Prefixes", "Calls try", "Left out"], &[]);
    for map in maps {
        let prefixes: Vec<_> = map
            .prefixes
            .iter()
            .map(|prefix| if prefix.is_empty() { "(others)".into() } else { printable(prefix) })
            .collect();
        table.add_row([map.id.to_string(), prefixes.join(" "), list(&map.hunt_order), list(&map.blocked)]);
    }
    table
}

fn list(connections: &[ConnectionId]) -> String {
    let names: Vec<_> = connections.iter().map(ConnectionId::as_str).collect();
    if names.is_empty() { "-".into() } else { names.join(", ") }
}

fn changes(view: &View, now: Timestamp, width: u16) -> Table {
    let mut table = table(width, &[], &[]);
    for change in view.changes.iter().take(CHANGES) {
        let ago = unbroken(&format!("{} ago", roughly(now.since(change.change.at))));
        table.add_row([ago, change.key.to_string(), printable(&change.words)]);
    }
    if view.changes.is_empty() {
        table.add_row(["none"]);
    }
    table
}

fn unknown_trunks(trunks: &[UnknownTrunk]) -> String {
    let mut text = String::from("Not configured, so not judged");
    for trunk in trunks.iter().take(UNKNOWN_TRUNKS) {
        let (calls, name) = (plural(trunk.attempts, "call"), printable(&trunk.trunk));
        text.push_str(&format!("\n {} on {}: {calls}. To judge it, add:\n", name, trunk.node));
        for line in lines_to_add(trunk) {
            text.push_str(&format!("\n     {line}"));
        }
        text.push('\n');
    }
    let more = trunks.len().saturating_sub(UNKNOWN_TRUNKS);
    if more > 0 {
        text.push_str(&format!("\n and {more} more (pointsman status --json)"));
    }
    text.trim_end().into()
}

/// The lines of configuration (TOML) that make a connection of a trunk.
fn lines_to_add(trunk: &UnknownTrunk) -> Vec<String> {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let mut lines = vec!["[[connections]]".into()];
    match ConnectionId::new(&trunk.trunk) {
        Ok(id) => lines.push(format!("id = {}", quoted(id.as_str()))),
        Err(_) => {
            lines.push(format!("id = {}   # or a better name", quoted(&made_id(&trunk.trunk))));
            lines.push(format!("names = {{ {} = {} }}", quoted(trunk.node.as_str()), quoted(&trunk.trunk)));
        }
    }
    lines
}

/// A legal id that still reminds of the trunk.
fn made_id(trunk: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let id: String = trunk.chars().take(40).map(legal).collect();
    match id.trim_matches('-') {
        "" => "trunk".into(),
        id => id.into(),
    }
}

// ===== words =====

pub(super) fn table(width: u16, headers: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    if !headers.is_empty() {
        table.set_header(headers);
    }
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

pub(super) fn titled(title: &str, table: &Table) -> String {
    format!("{title}\n{}", table.trim_fmt().replace(NO_BREAK, " "))
}

/// A space at which a cell is not broken; a plain one when printed.
const NO_BREAK: char = '\u{a0}';

pub(super) fn unbroken(text: &str) -> String {
    text.replace(' ', &NO_BREAK.to_string())
}

/// A span in its largest unit.
pub(super) fn roughly(span: Duration) -> String {
    let seconds = span.as_secs();
    let (value, unit) = match seconds {
        0..60 => (seconds, "s"),
        60..3_600 => (seconds / 60, "min"),
        3_600..86_400 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    unbroken(&format!("{value} {unit}"))
}

/// A span in its two largest units: `12 s`, `7 min 12 s`, `3 h 5 min`, `2 d 4 h`.
pub(super) fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |value: u64, unit: &str, size: u64, smaller: &str, smaller_size: u64| {
        let rest = value % size / smaller_size;
        let whole = value / size;
        if rest == 0 { format!("{whole} {unit}") } else { format!("{whole} {unit} {rest} {smaller}") }
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => two(seconds, "min", 60, "s", 1),
        3_600..86_400 => two(seconds, "h", 3_600, "min", 60),
        _ => two(seconds, "d", 86_400, "h", 3_600),
    }
}

/// One decimal, where it says anything.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), Into::into)
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn milliseconds(micros: u64) -> String {
    format!("{} ms", number(micros as f64 / 1000.0))
}

pub(super) fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Text from outside (names, reasons) without what a terminal would take for a command.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::{ChangeView, StorageView};
    use crate::ids::{CustomerId, MapId, NodeId, QualityKey};
    use crate::quality::machine::{Change, Reason};
    use crate::quality::settings::Settings;
    use crate::quality::window::{Epoch, Figures};
    use crate::score::Lethal;

    fn second(n: i64) -> Timestamp {
        Timestamp::from_secs(1_700_000_000 + n)
    }

    fn connection_id(text: &str) -> ConnectionId {
        ConnectionId::new(text).unwrap()
    }

    fn node(id: &str, kind: PbxKind, link: LinkView) -> NodeView {
        let variables = VariablesView { desired: 24, in_step_at: Some(second(0)), ..VariablesView::default() };
        let address = "127.0.0.1:8021";
        NodeView { link, active_calls: 42, variables, ..NodeView::new(NodeId::new(id).unwrap(), kind, address) }
    }

    fn connection(id: &str, state: State, action: BadQualityAction) -> ConnectionView {
        let settings = Settings {
            asr_threshold_percent: Some(40.0),
            acd_threshold_sec: Some(30.0),
            pdd_threshold_sec: Some(6.0),
            ..Settings::default()
        };
        ConnectionView {
            key: QualityKey::connection(connection_id(id)),
            customer: Some(CustomerId::new("acme").unwrap()),
            monitored: true,
            state,
            since: second(-180),
            action,
            words: String::new(),
            figures: Figures { calls: 20, asr: Some(35.0), acd: Some(31.25), pdd: None, ner: None },
            settings,
            batch_done: (state == State::Retry).then_some(3),
            retry_at: (state == State::Bad).then_some(second(432)),
            active_calls: 3,
            unmapped: 0,
            pinned: None,
            calls: Arc::default(),
        }
    }

    fn view() -> View {
        let up = LinkView {
            state: LinkState::Up,
            since: second(-11_520),
            rtt_us: Some(840),
            ends_unseen_lost: 1,
            ..LinkView::default()
        };
        let refused = LinkView {
            state: LinkState::Refused,
            since: second(-30),
            reason: "the password was refused\u{1b}[2J".into(),
            next_try_at: Some(second(12)),
            ..LinkView::default()
        };
        let mut excluded = node("pbx-02", PbxKind::Asterisk, refused);
        excluded.assessment.lethal = vec![Lethal::LinkDown];
        excluded.excluded_since = Some(second(-30));
        let change = Change {
            at: second(-180),
            from: State::Good,
            to: State::Bad,
            reason: Reason::Asr,
            epoch: Epoch(4),
            figures: Figures::default(),
        };
        let mut new = connection("vendor-new", State::Good, BadQualityAction::MakeLast);
        new.figures = Figures { calls: 7, ..Figures::default() };
        let mut unmonitored = connection("vendor-free", State::Good, BadQualityAction::MakeLast);
        unmonitored.monitored = false;
        unmonitored.settings = Settings::default();
        View {
            version: "0.1.0".into(),
            at: second(0),
            started_at: second(-11_520),
            generation: 214,
            nodes: vec![node("pbx-01", PbxKind::FreeSwitch, up), excluded],
            connections: vec![
                connection("vendor-a", State::Bad, BadQualityAction::MakeLast),
                connection("vendor-b", State::Retry, BadQualityAction::Block),
                new,
                unmonitored,
            ],
            routing: RoutingView { best_node: NodeId::new("pbx-01").ok(), best_score: 67.48, ..RoutingView::default() },
            maps: vec![Arc::new(MapView {
                hunt_order: vec![connection_id("vendor-b"), connection_id("vendor-a")],
                ..MapView::new(MapId::new("intl").unwrap(), vec!["00".into(), "+".into(), String::new()])
            })],
            changes: vec![ChangeView {
                key: QualityKey::connection(connection_id("vendor-a")),
                change,
                words: "good -> bad: ASR 35 % is under 40 % over the last 20 calls; its preference is lowered".into(),
                who: "pointsman".into(),
            }],
            mail: MailView {
                configured: true,
                sent: 12,
                waiting: 2,
                undecided: 1,
                dead: 1,
                via: "mail.example.net:587".into(),
                problem: "mail.example.net:587: connection refused\r".into(),
                next_try_at: Some(second(75)),
                ..MailView::default()
            },
            http: None,
            edge: Arc::default(),
            xds: Some(XdsSummary {
                clients: 3,
                rejecting: 1,
                address: Some("127.0.0.1:18000".into()),
                ..XdsSummary::default()
            }),
            storage: StorageView { healthy: false, problem: "the disk is full".into(), backlog: 213, dropped: 0 },
            unknown_trunks: vec![
                UnknownTrunk { node: NodeId::new("pbx-01").unwrap(), trunk: "vendor-z".into(), attempts: 1 },
                UnknownTrunk { node: NodeId::new("pbx-02").unwrap(), trunk: "trunk \"z\"".into(), attempts: 12 },
            ],
        }
    }

    #[test]
    fn a_picture_reads_well_at_80_columns() {
        let text = text(&view(), second(0), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text, include_str!("status.expected.txt"), "{text}");
    }

    #[test]
    fn nothing_from_outside_reaches_the_terminal_as_a_command() {
        assert!(!text(&view(), second(0), 80).contains('\u{1b}'));
    }

    #[test]
    fn an_xds_server_that_cannot_be_reached_is_a_trouble() {
        let problem = "the xDS server cannot listen on 127.0.0.1:18000: Address in use".to_owned();
        let xds = Some(XdsSummary { problem: problem.clone(), ..XdsSummary::default() });
        let text = text(&View { xds, ..view() }, second(0), 80);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.contains(&"xDS: NOT listening") && lines.contains(&problem.as_str()), "{text}");
    }

    #[test]
    fn the_lines_to_add_are_configuration_for_that_trunk() {
        for trunk in view().unknown_trunks {
            let table: toml::Table = lines_to_add(&trunk).join("\n").parse().unwrap();
            let connection = table["connections"][0].as_table().unwrap();
            let id = connection_id(connection["id"].as_str().unwrap());
            let name =
                connection.get("names").and_then(|names| names.get(trunk.node.as_str())).and_then(|n| n.as_str());
            assert_eq!(name.unwrap_or(id.as_str()), trunk.trunk);
        }
    }

    #[test]
    fn spans_are_said_in_their_two_largest_units() {
        let said = [0, 59, 60, 432, 3_600, 11_520, 86_400, 187_200].map(|s| duration(Duration::from_secs(s)));
        assert_eq!(said, ["0 s", "59 s", "1 min", "7 min 12 s", "1 h", "3 h 12 min", "1 d", "2 d 4 h"]);
    }
}
