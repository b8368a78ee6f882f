//! From what the program publishes to lines that tell it.
//!
//! The narrator remembers the last picture and tells the differences; it knows nothing of the stage, so what it says
//! is what the program found out.

use std::collections::BTreeMap;

use super::screen::{Kind, Line, Picture, clock_text};
use crate::engine::view::{ChangeView, ConnectionView, LinkState, MapView, NodeView, View};
use crate::ids::ConnectionId;
use crate::notify::letter::{Delivery, DeliveryState, Letter};
use crate::quality::machine::{Reason, State};
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
    /// Mails delivered since the program was started, when last looked.
    sent: u64,
    /// The latest delivery told, and how many were.
    mail_told: (Timestamp, usize),
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
            sent: 0,
            mail_told: (began, 0),
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
            // A pin: nothing about the vendor itself.
            _ if change.change.reason == Reason::Operator => Kind::Note,
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
        if !matches!(kind, Kind::Retry | Kind::Note) {
            let verdict = change.words.split(':').next().unwrap_or_default();
            memory.verdicts.push(format!("{verdict} at {at}"));
        }
        self.line(change.change.at, kind, format!("{name}: {}", change.words))
    }

    /// The program is stopped and started again: what its links counted begins anew.
    pub(super) fn program_restarts(&mut self) {
        self.nodes.clear();
        self.sent = 0;
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

    /// Whether mails have been delivered that were not told.
    pub(super) fn awaits_mail(&mut self, view: &View) -> bool {
        std::mem::replace(&mut self.sent, view.mail.sent) < view.mail.sent
    }

    /// Tells the mails that were delivered since the last time.
    pub(super) fn mail(&mut self, letters: &[Letter]) -> Vec<Line> {
        let (told_until, told) = self.mail_told;
        let deliveries = letters.iter().flat_map(|letter| letter.deliveries.iter().map(move |one| (letter, one)));
        let mut new: Vec<_> = deliveries
            .filter(|(_, one)| one.state == DeliveryState::Sent)
            .filter_map(|(letter, one)| Some((one.settled_at?, letter, one)))
            .filter(|(at, ..)| *at > told_until)
            .collect();
        new.sort_by_key(|(at, ..)| *at);
        self.mail_told = (new.last().map_or(told_until, |(at, ..)| *at), told + new.len());
        let text = |letter: &Letter, one: &Delivery| format!("to {}: {}", one.address, letter.subject);
        new.into_iter().map(|(at, letter, one)| self.line(at, Kind::Mail, text(letter, one))).collect()
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
        lines.extend(flow(view.maps.iter().map(|map| order_in_short(map))).into_iter().map(plain));
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
            "{} on the demo clock ({:.0} s here), {calls} calls; vendors found bad: {}, recovered: {}",
            clock_text(secs),
            secs / f64::from(rate.max(1)),
            self.bad,
            self.recovered,
        )];
        for (name, memory) in self.vendors.iter().filter(|(_, memory)| !memory.verdicts.is_empty()) {
            texts.push(format!("{name}: {}", memory.verdicts.join(", ")));
        }
        if self.restarts > 0 {
            texts.push(format!("switches restarted, whose variables came back: {}", self.restarts));
        }
        if self.mail_told.1 > 0 {
            texts.push(format!("mails delivered to the owners of vendors: {}", self.mail_told.1));
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

fn software(node: &NodeView) -> String {
    // What follows these names the build.
    let software = node.link.software.split(['+', '~']).next().unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::{LinkView, VariablesView};
    use crate::ids::{MapId, NodeId, QualityKey};
    use crate::pbx::PbxKind;
    use crate::quality::machine::Change;
    use crate::quality::settings::Settings;
    use crate::quality::window::{Epoch, Figures};

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(1_000_000 + secs)
    }

    fn ids(names: &[&str]) -> Vec<ConnectionId> {
        names.iter().map(|name| ConnectionId::new(name).unwrap()).collect()
    }

    fn view(secs: i64, tried: &[&str], blocked: &[&str]) -> View {
        let map = MapView {
            hunt_order: ids(tried),
            blocked: ids(blocked),
            panic: tried.is_empty(),
            ..MapView::new(MapId::new("intl").unwrap(), vec!["00".into()])
        };
        View { maps: vec![map.into()], ..View::empty(at(secs)) }
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    fn change(secs: i64, from: State, to: State, words: &str) -> ChangeView {
        let figures = Figures::default();
        ChangeView {
            key: QualityKey::connection(ConnectionId::new("vendor-a").unwrap()),
            change: Change { at: at(secs), from, to, reason: Reason::Asr, epoch: Epoch(1), figures },
            words: words.into(),
            who: "pointsman".into(),
        }
    }

    #[test]
    fn orders_are_told_when_they_change() {
        let mut narrator = Narrator::new(at(0));
        let usual = view(0, &["a", "b", "c"], &[]);
        assert_eq!(texts(&narrator.picture(&usual)), ["calls of intl try a, then b, then c"]);
        assert_eq!(narrator.picture(&usual), []);
        assert_eq!(
            texts(&narrator.picture(&view(1, &["b", "c", "a"], &[]))),
            ["calls of intl now try b first, then c, then a"]
        );
        assert_eq!(
            texts(&narrator.picture(&view(2, &["a", "c"], &["b"]))),
            ["calls of intl now try a first, then c; without b"]
        );
        assert_eq!(texts(&narrator.picture(&usual)), ["calls of intl try a first again, then b, then c"]);
        assert_eq!(
            texts(&narrator.picture(&view(3, &[], &["a", "b", "c"]))),
            ["calls of intl now try nobody first; without a, b, c"]
        );
    }

    #[test]
    fn links_and_restarts_are_told_once() {
        let mut narrator = Narrator::new(at(0));
        let mut node = NodeView {
            link: LinkView { state: LinkState::Up, software: "FreeSWITCH 1.11+git~x".into(), ..LinkView::default() },
            variables: VariablesView { desired: 7, ..VariablesView::default() },
            ..NodeView::new(NodeId::new("n").unwrap(), PbxKind::FreeSwitch, "")
        };
        let mut tell = |node: &NodeView| {
            let lines = narrator.picture(&View { nodes: vec![node.clone()], ..View::empty(at(1)) });
            texts(&lines).join("|")
        };
        assert_eq!(tell(&node), "n: linked, FreeSWITCH 1.11, 7 variables to keep right");
        assert_eq!(tell(&node), "");
        (node.link.state, node.link.reason) = (LinkState::Waiting, "refused".into());
        assert_eq!(tell(&node), "n: the link is gone: refused");
        (node.link.state, node.link.restarts, node.variables.pending) = (LinkState::Up, 1, 7);
        assert_eq!(tell(&node), "n: it was restarted; all its variables are written again");
        assert_eq!(tell(&node), "");
        node.variables.pending = 0;
        assert_eq!(tell(&node), "n: its 7 variables are back");
        assert_eq!(tell(&node), "");
    }

    #[test]
    fn a_batch_is_followed_in_steps_and_never_after_its_verdict() {
        let mut narrator = Narrator::new(at(0));
        narrator.change(&change(10, State::Bad, State::Retry, "back in its usual place"));
        let mut connection = ConnectionView {
            key: QualityKey::connection(ConnectionId::new("vendor-a").unwrap()),
            customer: None,
            monitored: true,
            state: State::Retry,
            since: at(10),
            action: BadQualityAction::MakeLast,
            words: String::new(),
            figures: Figures::default(),
            settings: Settings::default(),
            batch_done: Some(0),
            retry_at: None,
            active_calls: 0,
            unmapped: 0,
            pinned: None,
            calls: std::sync::Arc::default(),
        };
        let mut told = Vec::new();
        for (secs, done) in [(11, 1), (12, 3), (13, 4), (14, 9), (15, 10)] {
            connection.batch_done = Some(done);
            told.extend(narrator.picture(&View { connections: vec![connection.clone()], ..View::empty(at(secs)) }));
        }
        assert_eq!(texts(&told), ["vendor-a: retry batch 3 of 10", "vendor-a: retry batch 9 of 10"]);
        let line = narrator.change(&change(16, State::Retry, State::Good, "recovered: ASR 70.0 %"));
        assert_eq!((line.kind, line.text.as_str()), (Kind::Recovered, "vendor-a: recovered: ASR 70.0 %"));
        connection.batch_done = Some(9);
        let late = View { connections: vec![connection], ..View::empty(at(15)) };
        assert_eq!(narrator.picture(&late), [], "a picture from before the verdict");
    }

    #[test]
    fn the_summary_has_every_verdict() {
        let mut narrator = Narrator::new(at(0));
        narrator.change(&change(65, State::Good, State::Bad, "lowered: ASR 25.0 % under 40 % over 20 calls"));
        assert!(!narrator.saw_everything());
        narrator.change(&change(185, State::Bad, State::Retry, "back in its usual place"));
        narrator.change(&change(300, State::Retry, State::Good, "recovered: ASR 70.0 %"));
        assert!(narrator.saw_everything());
        let lines = narrator.summary(at(600), 1234, 30);
        assert_eq!(
            texts(&lines),
            [
                "10:00 on the demo clock (20 s here), 1234 calls; vendors found bad: 1, recovered: 1",
                "vendor-a: lowered at 01:05, recovered at 05:00",
            ]
        );
    }

    #[test]
    fn what_does_not_fit_goes_to_the_next_line() {
        let items = ["a".repeat(40), "b".repeat(33), "c".repeat(40)];
        let lines = flow(items.into_iter());
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), 76);
    }
}
