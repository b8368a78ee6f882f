//! From what the program publishes to lines that tell it.
//!
//! The narrator remembers the last picture and tells the differences; it knows nothing of the stage, so what it says
//! is what the program found out.

use std::collections::BTreeMap;

use super::screen::{Kind, Line, Picture, clock_text};
use crate::engine::view::{ChangeView, ConnectionView, LinkState, MapView, NodeView, View};
use crate::ids::ConnectionId;
use crate::quality::machine::State;
use crate::quality::settings::BadQualityAction;
use crate::time::Timestamp;

/// What is remembered of a node.
#[derive(Clone, Debug, Default)]
struct NodeMemory {
    up: bool,
    restarts: u64,
    /// Its variables are being written again after a restart.
    rewriting: bool,
}

/// What is remembered of a vendor.
#[derive(Clone, Debug, Default)]
struct VendorMemory {
    /// Its verdicts, for the summary.
    verdicts: Vec<String>,
    /// When its state changed last.
    changed_at: Timestamp,
    /// Attempts finished in its running retry batch, when last told.
    batch_told: usize,
}

/// Who is tried in a map, and who is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Order {
    tried: Vec<String>,
    left_out: Vec<String>,
    /// How it was in the beginning.
    usual: Vec<String>,
}

/// Tells what happens.
#[derive(Debug)]
pub(super) struct Narrator {
    began: Timestamp,
    nodes: BTreeMap<String, NodeMemory>,
    orders: BTreeMap<String, Order>,
    vendors: BTreeMap<String, VendorMemory>,
    restarts: u64,
    bad: usize,
    recovered: usize,
}

impl Narrator {
    pub(super) fn new(began: Timestamp) -> Self {
        Self {
            began,
            nodes: BTreeMap::new(),
            orders: BTreeMap::new(),
            vendors: BTreeMap::new(),
            restarts: 0,
            bad: 0,
            recovered: 0,
        }
    }

    fn secs(&self, at: Timestamp) -> f64 {
        at.since(self.began).as_secs_f64()
    }

    pub(super) fn line(&self, at: Timestamp, kind: Kind, text: String) -> Line {
        Line { at_sec: self.secs(at), kind, text }
    }

    /// A connection changed its state.
    pub(super) fn change(&mut self, change: &ChangeView) -> Line {
        let kind = match change.change.to {
            State::Bad => Kind::Bad,
            State::Retry => Kind::Retry,
            State::Good => Kind::Recovered,
        };
        let name = change.key.to_string();
        match kind {
            Kind::Bad => self.bad += 1,
            Kind::Recovered => self.recovered += 1,
            _ => (),
        }
        let at = clock_text(self.secs(change.change.at));
        let memory = self.vendors.entry(name.clone()).or_default();
        (memory.changed_at, memory.batch_told) = (change.change.at, 0);
        if kind != Kind::Retry {
            let verdict = change.words.split(':').next().unwrap_or_default();
            memory.verdicts.push(format!("{verdict} at {at}"));
        }
        self.line(change.change.at, kind, format!("{name}: {}", change.words))
    }

    /// The program is stopped and started again: what its links counted begins anew.
    pub(super) fn program_restarts(&mut self) {
        self.nodes.clear();
    }

    /// What the program knows right after it was started again.
    pub(super) fn remembered(&self, view: &View) -> Line {
        let not_good = view.connections.iter().filter(|connection| connection.state != State::Good);
        let states: Vec<String> =
            not_good.map(|one| format!("{} is {}", one.key, state_in_short(one, view.at))).collect();
        let what = if states.is_empty() { "every vendor is good".to_owned() } else { states.join("; ") };
        self.line(view.at, Kind::Node, format!("pointsman goes on where it was: {what}"))
    }

    /// A new picture: tells what is different from the one before.
    pub(super) fn picture(&mut self, view: &View) -> Vec<Line> {
        let mut told = Vec::new();
        for node in &view.nodes {
            told.extend(self.node(node).map(|text| (Kind::Node, text)));
        }
        for map in &view.maps {
            told.extend(self.map(map).map(|text| (Kind::Order, text)));
        }
        for connection in &view.connections {
            told.extend(self.batch(connection, view.at).map(|text| (Kind::Retry, text)));
        }
        told.into_iter().map(|(kind, text)| self.line(view.at, kind, text)).collect()
    }

    fn node(&mut self, node: &NodeView) -> Option<String> {
        let (name, link) = (node.id.to_string(), &node.link);
        let memory = self.nodes.entry(name.clone()).or_default();
        let up = link.state == LinkState::Up;
        let in_step = node.variables.pending == 0;
        if link.restarts > memory.restarts {
            (memory.restarts, memory.rewriting, memory.up) = (link.restarts, true, up);
            self.restarts += 1;
            return Some(format!("{name}: it was restarted; all its variables are written again"));
        }
        if memory.rewriting && up && in_step {
            memory.rewriting = false;
            return Some(format!("{name}: its {} variables are back", node.variables.desired));
        }
        if up == memory.up {
            return None;
        }
        memory.up = up;
        Some(match (up, link.reason.as_str()) {
            (true, _) => format!("{name}: linked, {}", software(node)),
            (false, "") => format!("{name}: the link is gone"),
            (false, reason) => format!("{name}: the link is gone: {reason}"),
        })
    }

    fn map(&mut self, map: &MapView) -> Option<String> {
        let texts = |ids: &[ConnectionId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (tried, left_out) = (texts(&map.hunt_order), texts(&map.blocked));
        let before = self.orders.get(map.id.as_str());
        let usual = before.map_or_else(|| tried.clone(), |before| before.usual.clone());
        let now = Order { tried, left_out, usual };
        if before == Some(&now) {
            return None;
        }
        let text = now.tell(map.id.as_str(), before.is_some());
        self.orders.insert(map.id.to_string(), now);
        Some(text)
    }

    fn batch(&mut self, connection: &ConnectionView, at: Timestamp) -> Option<String> {
        let name = connection.key.to_string();
        let memory = self.vendors.get_mut(&name)?;
        // A picture may be older than the change that was told already.
        let done = connection.batch_done.filter(|_| connection.state == State::Retry && at >= memory.changed_at)?;
        let of = connection.settings.retry_batch;
        // A few steps are enough to follow it; the last one is the verdict's.
        if done < memory.batch_told + (of / 3).max(1) || done >= of {
            return None;
        }
        memory.batch_told = done;
        Some(format!("{name}: retry batch {done} of {of}"))
    }

    /// The picture as a table.
    pub(super) fn table(&self, view: &View) -> Picture {
        let head = format!("{:<14}{:<24}{:>8}{:>9}{:>8}{:>5}", "connection", "state", "ASR", "ACD", "PDD", "up");
        let mut lines = vec![(None, head)];
        for connection in &view.connections {
            let kind = match connection.state {
                State::Good => None,
                State::Bad => Some(Kind::Bad),
                State::Retry => Some(Kind::Retry),
            };
            lines.push((kind, Self::row(connection, view.at)));
        }
        let plain = |line| (None, line);
        lines.extend(flow(view.maps.iter().map(order_in_short)).into_iter().map(plain));
        lines.extend(flow(view.nodes.iter().map(node_in_short)).into_iter().map(plain));
        let picture = serde_json::json!({ "nodes": view.nodes, "connections": view.connections, "maps": view.maps });
        Picture { at_sec: self.secs(view.at), lines, picture }
    }

    fn row(connection: &ConnectionView, now: Timestamp) -> String {
        let figures = &connection.figures;
        let figure =
            |value: Option<f64>, unit: &str| value.map_or_else(|| "-".into(), |value| format!("{value:.1} {unit}"));
        format!(
            "{:<14}{:<24}{:>8}{:>9}{:>8}{:>5}",
            connection.key.to_string(),
            state_in_short(connection, now),
            figure(figures.asr, "%"),
            figure(figures.acd, "s"),
            figure(figures.pdd, "s"),
            connection.active_calls,
        )
    }

    /// Whether a vendor was found bad and one recovered.
    pub(super) fn saw_everything(&self) -> bool {
        self.bad > 0 && self.recovered > 0
    }

    /// What was shown.
    pub(super) fn summary(&self, now: Timestamp, calls: u64, rate: u32) -> Vec<Line> {
        let secs = self.secs(now);
        let mut texts = vec![format!(
            "{} on the demo clock ({:.0} s here), {calls} calls: {}, {}",
            clock_text(secs),
            secs / f64::from(rate.max(1)),
            times(self.bad, "a vendor was found bad"),
            times(self.recovered, "one recovered"),
        )];
        for (name, memory) in self.vendors.iter().filter(|(_, memory)| !memory.verdicts.is_empty()) {
            texts.push(format!("{name}: {}", memory.verdicts.join(", ")));
        }
        if self.restarts > 0 {
            texts.push(format!(
                "{} and its variables came back",
                times(self.restarts as usize, "a switch was restarted")
            ));
        }
        texts.into_iter().map(|text| self.line(now, Kind::Summary, text)).collect()
    }
}

impl Order {
    fn tell(&self, map: &str, changed: bool) -> String {
        let then = |names: &[String]| names.iter().map(|name| format!(", then {name}")).collect::<String>();
        let (first, rest) = match self.tried.split_first() {
            Some((first, rest)) => (first.as_str(), then(rest)),
            None => ("nobody", String::new()),
        };
        let left_out = match self.left_out.as_slice() {
            [] => String::new(),
            names => format!("; without {}", names.join(", ")),
        };
        match changed {
            false => format!("calls of {map} try {first}{rest}{left_out}"),
            true if self.tried == self.usual => format!("calls of {map} try {first} first again{rest}"),
            true => format!("calls of {map} now try {first} first{rest}{left_out}"),
        }
    }
}

/// Puts items on lines that fit a terminal.
fn flow(items: impl Iterator<Item = String>) -> Vec<String> {
    const WIDTH: usize = 76;
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.len() + item.len() + 3 <= WIDTH => *line = format!("{line} | {item}"),
            _ => lines.push(item),
        }
    }
    lines
}

fn times(count: usize, what: &str) -> String {
    match count {
        1 => format!("once {what}"),
        count => format!("{count} times {what}"),
    }
}

fn software(node: &NodeView) -> String {
    let software = node.link.software.as_str();
    let software = if software.is_empty() { "events flow" } else { software };
    format!("{software}, {} variables to keep right", node.variables.desired)
}

fn state_in_short(connection: &ConnectionView, now: Timestamp) -> String {
    let wait = |at: Option<Timestamp>| {
        at.map_or_else(String::new, |at| format!(", retry in {}", clock_text(at.since(now).as_secs_f64())))
    };
    match connection.state {
        State::Bad => {
            let word = match connection.settings.bad_quality_action {
                BadQualityAction::MakeLast => "lowered",
                BadQualityAction::Block => "blocked",
                BadQualityAction::NotifyOnly => "bad",
            };
            format!("{word}{}", wait(connection.retry_at))
        }
        State::Retry => {
            format!("retry batch {} of {}", connection.batch_done.unwrap_or(0), connection.settings.retry_batch)
        }
        State::Good if !connection.monitored => "not judged".into(),
        State::Good if connection.figures.calls < connection.settings.needed_calls() => {
            format!("{} of {} calls", connection.figures.calls, connection.settings.needed_calls())
        }
        State::Good => "good".into(),
    }
}

fn order_in_short(map: &MapView) -> String {
    let order: Vec<&str> = map.hunt_order.iter().map(|id| id.as_str().trim_start_matches("vendor-")).collect();
    let blocked: Vec<&str> = map.blocked.iter().map(|id| id.as_str().trim_start_matches("vendor-")).collect();
    let out = if blocked.is_empty() { String::new() } else { format!(", without {}", blocked.join(", ")) };
    format!("{}: {}{out}", map.id, order.join(" > "))
}

fn node_in_short(node: &NodeView) -> String {
    let state = match node.link.state {
        LinkState::Up => "up",
        LinkState::Connecting => "connecting",
        LinkState::Synchronising => "synchronising",
        LinkState::Waiting => "waiting",
        LinkState::Refused => "refused",
    };
    let variables = &node.variables;
    format!(
        "{} {state}, {} legs, {} of {} variables in step",
        node.id,
        node.active_calls,
        variables.desired.saturating_sub(variables.pending),
        variables.desired,
    )
}
