//! A picture with something of everything.

use std::sync::Arc;

use pointsman::balance::{Candidate, Picture};
use pointsman::call::outcome::Outcome;
use pointsman::edge::{Endpoint, EndpointGroup, Health, Snapshot};
use pointsman::engine::view::{
    BreakerState, BreakerView, Calls, ChangeView, ConnectionView, LinkState, LinkView, MailView, MapView, NodeView,
    RoutingView, StorageView, UnknownTrunk, VariablesView, View,
};
use pointsman::ids::{ConnectionId, CustomerId, GroupId, MapId, NodeId, QualityKey};
use pointsman::notify::notice::FailedCall;
use pointsman::pbx::PbxKind;
use pointsman::quality::machine::{Change, Reason, State};
use pointsman::quality::pin::{Pin, Pinned};
use pointsman::quality::settings::{BadQualityAction, Settings};
use pointsman::quality::window::{Epoch, Figures as QualityFigures, Sample};
use pointsman::score::{Admin, Assessment, EXCLUDED, Figure, Figures, Lethal, Source, Term};
use pointsman::time::Timestamp;

pub(crate) fn node_id(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

pub(crate) fn key(connection: &str, map: Option<&str>) -> QualityKey {
    QualityKey { connection: ConnectionId::new(connection).unwrap(), map: map.map(|map| MapId::new(map).unwrap()) }
}

pub(crate) fn view(now: Timestamp) -> View {
    View {
        generation: 7,
        nodes: vec![good_node(now), bad_node(now)],
        connections: vec![bad(now), pinned(now), connection("vendor-c", Some("intl"), now)],
        routing: RoutingView {
            generation: 3,
            best_node: Some(node_id("pbx-01")),
            best_score: 67.48,
            fallback_active: false,
            fallback_node: None,
            panic: false,
        },
        maps: vec![Arc::new(MapView {
            hunt_order: vec![ConnectionId::new("vendor-b").unwrap(), ConnectionId::new("vendor-a").unwrap()],
            blocked: vec![ConnectionId::new("vendor-c").unwrap()],
            ..MapView::new(MapId::new("intl").unwrap(), vec!["00".to_owned(), "+".to_owned()])
        })],
        changes: vec![change("vendor-a", 2, now), change("vendor-b", 1, now)],
        storage: StorageView { healthy: true, ..StorageView::default() },
        mail: MailView { configured: true, via: "127.0.0.1:25".to_owned(), sent: 5, dead: 1, ..MailView::default() },
        unknown_trunks: vec![UnknownTrunk { node: node_id("pbx-01"), trunk: "a \"b\"\n\u{1b}c".into(), attempts: 3 }],
        ..View::empty(now)
    }
}

/// What edges are told: two groups of the two nodes.
pub(crate) fn snapshot(generation: u64, at: Timestamp) -> Snapshot {
    let group = |id: &str, port| EndpointGroup {
        id: GroupId::new(id).unwrap(),
        cluster: format!("{id}-cluster"),
        endpoints: vec![
            endpoint("pbx-01", "10.0.0.1", port, Health::Healthy, 67),
            endpoint("pbx-02", "10.0.0.2", port, Health::Draining, 1),
        ],
    };
    Snapshot { generation, at, groups: vec![group("sip", 5060), group("wss", 7443)] }
}

fn endpoint(node: &str, address: &str, port: u16, health: Health, weight: u32) -> Endpoint {
    Endpoint { node: node_id(node), address: address.to_owned(), port, health, weight, stands_in: false }
}

/// What the router answers from: one node.
pub(crate) fn candidates() -> Picture {
    let candidate = Candidate {
        node: node_id("pbx-01"),
        address: "10.0.0.1:5060".into(),
        score: 67.48,
        fitness: 67.48,
        points_per_call: 0.16,
        active_calls: 42,
        max_calls: Some(250),
        rtt_ms: 1.5,
        linked: true,
        replied: true,
        disabled: false,
        lethal: vec![],
        settled: 0,
    };
    Picture { generation: 3, candidates: vec![candidate], ..Picture::default() }
}

/// The example whose score is 67.48.
fn good_node(now: Timestamp) -> NodeView {
    let figure = |value, source| Some(Figure { value, source, at: now });
    let term = |name: &str, weight, value| Term { name: name.to_owned(), weight, weight_used: weight, value };
    NodeView {
        link: LinkView {
            state: LinkState::Up,
            since: now,
            rtt_us: Some(900),
            bytes: 12_345,
            events: 67,
            connects: 1,
            ends_unseen_lost: 2,
            ..LinkView::default()
        },
        active_calls: 42,
        variables: VariablesView { desired: 4, written: 9, in_step_at: Some(now), ..VariablesView::default() },
        sip_address: "10.0.0.1:5060".to_owned(),
        figures: Figures {
            active_calls: 42,
            max_calls: Some(250),
            load_avg: figure(0.85, Source::Local),
            idle_cpu: figure(35.0, Source::Pushed),
            failure_rate: Some(0.5),
            rtt_ms: Some(1.5),
            ..Figures::default()
        },
        assessment: Assessment {
            score: 67.48,
            fitness: 67.48,
            terms: vec![
                term("call_score", 0.4, Some(83.2)),
                term("load_score", 0.3, Some(57.5)),
                term("idle_score", 0.2, Some(35.0)),
                term("fail_score", 0.1, Some(99.5)),
            ],
            lethal: vec![],
        },
        ..NodeView::new(node_id("pbx-01"), PbxKind::FreeSwitch, "10.0.0.1:8021")
    }
}

fn bad_node(now: Timestamp) -> NodeView {
    NodeView {
        admin: Admin::Draining,
        assessment: Assessment {
            score: EXCLUDED,
            fitness: 12.5,
            terms: vec![Term { name: "idle_score".to_owned(), weight: 0.2, weight_used: 0.0, value: None }],
            lethal: vec![Lethal::LinkDown, Lethal::Stale { silent_sec: 33.5 }, Lethal::Breaker, Lethal::Draining],
        },
        excluded_since: Some(now),
        breaker: BreakerView { state: BreakerState::Open, failures: 3, trial_at: Some(now) },
        ..NodeView::new(node_id("pbx-02"), PbxKind::Asterisk, "10.0.0.2:5038")
    }
}

fn connection(id: &str, map: Option<&str>, now: Timestamp) -> ConnectionView {
    ConnectionView {
        key: key(id, map),
        customer: Some(CustomerId::new("acme").unwrap()),
        monitored: true,
        state: State::Good,
        since: now,
        action: BadQualityAction::MakeLast,
        words: "good".to_owned(),
        figures: QualityFigures { calls: 20, asr: Some(35.0), acd: Some(41.3), pdd: Some(1.2), ner: None },
        settings: Settings { asr_threshold_percent: Some(40.0), ..Settings::default() },
        batch_done: None,
        retry_at: None,
        active_calls: 2,
        unmapped: 0,
        pinned: None,
        calls: Arc::default(),
    }
}

fn bad(now: Timestamp) -> ConnectionView {
    let sample = Sample {
        epoch: Epoch(1),
        placed_at: now,
        ended_at: now,
        outcome: Outcome::VendorFailed,
        duration_ms: Some(0),
        pdd_ms: None,
        cause: Some(41),
        sip_status: Some(503),
    };
    let failed = FailedCall {
        at: now,
        node: node_id("pbx-01"),
        number: Some("+4930123456789".into()),
        outcome: Outcome::VendorFailed,
        cause: Some(41),
        sip_status: Some(503),
    };
    ConnectionView {
        state: State::Bad,
        retry_at: Some(now.after(std::time::Duration::from_secs(600))),
        calls: Arc::new(Calls { window: vec![sample, sample], failed: vec![failed] }),
        ..connection("vendor-a", None, now)
    }
}

fn pinned(now: Timestamp) -> ConnectionView {
    let pin = Pinned { pin: Pin::PinBlock, who: "noc".into(), why: "works".into(), since: now, until: None };
    ConnectionView { pinned: Some(pin), ..connection("vendor-b", None, now) }
}

pub(crate) fn change(connection: &str, epoch: u64, at: Timestamp) -> ChangeView {
    let figures = QualityFigures { calls: 20, asr: Some(35.0), ..QualityFigures::default() };
    let (from, to) = (State::Good, State::Bad);
    ChangeView {
        key: key(connection, None),
        change: Change { at, from, to, reason: Reason::Asr, epoch: Epoch(epoch), figures },
        words: "lowered: ASR 35 % under 40 %".into(),
        who: "pointsman".into(),
    }
}
