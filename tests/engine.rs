//! The engine without its driver: over a restart of the program, what it stored is what it goes on with; and what it tells
//! dialplans of the best node.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use pointsman::call::outcome::Outcome;
use pointsman::config::{Config, Format, Purpose, load_text};
use pointsman::engine::core::Engine;
use pointsman::engine::effect::Effect;
use pointsman::engine::request::{By, Request};
use pointsman::engine::view::{LinkView, VariablesView, View};
use pointsman::ids::{ConnectionId, LegId, NodeId, QualityKey};
use pointsman::pbx::asterisk::AstMapper;
use pointsman::pbx::event::{ListedLeg, PbxEvent, Snapshot};
use pointsman::pbx::freeswitch::{FsEvent, FsKind};
use pointsman::quality::pin::{self, Pin, Pinned};
use pointsman::quality::window::Sample;
use pointsman::store::{LegRow, Restored, StoreOp};
use pointsman::time::Timestamp;
use pointsman::wire::ami::{AmiCodec, AmiFrame};
use tokio_util::codec::Decoder;

const CONFIG: &str = r#"
    nodes = [{ id = "ast", kind = "asterisk", address = "127.0.0.1:5038", username = "u", password = "x" }]
    connections = [{ id = "vendor-a" }]
"#;

fn config() -> Arc<Config> {
    Arc::new(load_text(Path::new("test.toml"), CONFIG, Format::Toml, [], Purpose::Connect).unwrap().config)
}

/// The events of a recording, and those after the first that `cut` is true of.
fn recording(name: &str, cut: impl Fn(&str) -> bool) -> (Vec<PbxEvent>, Vec<PbxEvent>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ami-single").join(name);
    let mut bytes = BytesMut::from(&*std::fs::read(path).unwrap());
    let (mut codec, mut mapper) = (AmiCodec::default(), AstMapper::default());
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut past = false;
    while let Some(frame) = codec.decode(&mut bytes).unwrap() {
        let AmiFrame::Message(message) = frame else { continue };
        let side = if past { &mut after } else { &mut before };
        side.extend(mapper.event(&message));
        past |= message.headers.iter().any(|(_, value)| cut(&String::from_utf8_lossy(value)));
    }
    assert!(past && !after.is_empty(), "{name} is not cut");
    (before, after)
}

/// The legs that are up by what was stored, and the attempts that were.
#[derive(Default)]
struct Stored {
    legs: Vec<LegRow>,
    attempts: Vec<Sample>,
}

impl Stored {
    fn take(&mut self, engine: &mut Engine) {
        for effect in engine.take_effects() {
            match effect {
                Effect::Store(StoreOp::LegUp(row)) => {
                    self.legs.retain(|leg| leg.leg != row.leg);
                    self.legs.push(*row);
                }
                Effect::Store(StoreOp::LegGone(_, gone)) => self.legs.retain(|leg| leg.leg != gone),
                Effect::Store(StoreOp::Quality(_, saved)) => self.attempts.clone_from(&saved.window),
                _ => {}
            }
        }
    }
}

/// Plays a recording, with pointsman killed and started again behind the message that `cut` is true of.
fn killed_behind(name: &str, cut: impl Fn(&str) -> bool, answered: bool) -> Vec<Sample> {
    let (before, after) = recording(name, cut);
    let now = Timestamp::from_secs(1_796_014_300);
    let mut stored = Stored::default();
    let mut engine = Engine::new(config(), Restored::default(), now);
    before.iter().for_each(|event| engine.apply(0, event, now));
    stored.take(&mut engine);
    assert_eq!((stored.legs.len(), stored.attempts.len()), (1, 0));

    let listed = ListedLeg {
        leg: LegId::new(stored.legs[0].leg.as_str()),
        outbound: None,
        channel: "PJSIP/vendor-a-00000001".into(),
        trunk: Some("vendor-a".into()),
        answered,
        age_sec: None,
    };
    let restored = Restored { legs: stored.legs.clone(), ..Restored::default() };
    let mut again = Engine::new(config(), restored, now);
    again.apply(0, &PbxEvent::Linked, now);
    again.apply(0, &PbxEvent::Snapshot(Snapshot { legs: vec![listed] }), now);
    after.iter().for_each(|event| again.apply(0, event, now));
    stored.take(&mut again);
    assert!(stored.legs.is_empty(), "{:?}", stored.legs);
    stored.attempts
}

#[test]
fn a_call_that_had_rung_before_the_kill_rang() {
    let attempts = killed_behind("22-noanswer.txt", |value| value == "RINGING", false);
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].outcome, attempts[0].pdd_ms), (Outcome::NoAnswer, Some(201)));
}

#[test]
fn a_call_that_was_answered_before_the_kill_keeps_its_times() {
    let attempts = killed_behind("22-answered-callee-hangs.txt", |value| value == "ANSWER", true);
    assert_eq!(attempts.len(), 1);
    let attempt = attempts[0];
    assert_eq!((attempt.outcome, attempt.pdd_ms, attempt.duration_ms), (Outcome::Answered, Some(201), Some(1001)));
}

#[test]
fn a_call_that_is_found_up_is_no_call_that_is_placed_now() {
    let config = load_text(Path::new("test.toml"), TWO_NODES, Format::Toml, [], Purpose::Connect).unwrap().config;
    let mut engine = Engine::new(Arc::new(config), Restored::default(), at(0));
    engine.apply(0, &PbxEvent::Linked, at(0));
    for (number, kind) in [(1, FsKind::Described), (2, FsKind::Described), (3, FsKind::Created)] {
        let event = FsEvent {
            kind,
            leg: LegId::new(&format!("leg-{number}")),
            outbound: Some(true),
            gateway: Some("vendor-a".into()),
            caller: None,
            number: None,
            map: None,
            at: None,
            created: Some(at(0)),
            progress: None,
            early_media: None,
            answered: None,
            hung_up: None,
            delay_sec: 0,
            cause: None,
            cause_name: None,
            disposition: None,
            sip_status: None,
            recovered: false,
        };
        engine.apply(0, &PbxEvent::FreeSwitch(Box::new(event)), at(0));
    }
    let node = &view(&mut engine, at(0)).nodes[0];
    assert_eq!((node.figures.active_calls, node.figures.calls_per_sec), (3, Some(0.1)));
    let placed = engine.take_effects().into_iter().filter(|effect| matches!(effect, Effect::Placed { .. }));
    assert_eq!(placed.count(), 1, "the others are no answer's calls");
}

#[test]
fn a_pin_that_ended_while_nobody_was_there_routes_nothing() {
    let key = QualityKey::connection(ConnectionId::new("vendor-a").unwrap());
    let pin =
        |until| Pinned { pin: Pin::PinBlock, who: "somebody".into(), why: "".into(), since: at(0), until: Some(until) };
    let started = |until| {
        let restored = Restored { pins: vec![(key.clone(), pin(until))], ..Restored::default() };
        let mut engine = Engine::new(config(), restored, at(100));
        let words = engine.take_effects().into_iter().filter_map(|effect| match effect {
            Effect::Variables { desired, .. } => Some(desired.states[0].value.to_string()),
            _ => None,
        });
        (words.collect::<Vec<_>>(), view(&mut engine, at(100)).connections[0].pinned.is_some())
    };
    assert_eq!(started(at(101)), (vec!["blocked".to_owned()], true));
    assert_eq!(started(at(100)), (vec!["good".to_owned()], false));
}

#[test]
fn a_pin_that_cannot_be_is_refused_whoever_asks() {
    let mut engine = Engine::new(config(), Restored::default(), at(100));
    let mut pinned = |until: Timestamp| {
        let key = QualityKey::connection(ConnectionId::new("vendor-a").unwrap());
        let by = By::new("somebody", "").unwrap();
        engine.request(Request::Pin { key, pin: Some(Pin::PinBlock), until: Some(until), by }, at(100)).is_ok()
    };
    assert!(!pinned(at(100)), "over already");
    assert!(!pinned(at(100).after(pin::LONGEST + Duration::from_secs(1))));
    assert!(pinned(at(100).after(pin::LONGEST)));
}

#[test]
fn the_calls_of_a_connection_are_pictured_anew_only_when_one_ended() {
    let (before, after) = recording("22-noanswer.txt", |value| value == "RINGING");
    let mut engine = Engine::new(config(), Restored::default(), at(0));
    let mut calls = |events: &[PbxEvent]| {
        events.iter().for_each(|event| engine.apply(0, event, at(0)));
        view(&mut engine, at(0)).connections[0].calls.clone()
    };
    let (first, second) = (calls(&before), calls(&[]));
    assert!(Arc::ptr_eq(&first, &second) && first.window.is_empty());
    let third = calls(&after);
    assert_eq!((third.window.len(), third.failed.len()), (1, 1));
}

// ===== what dialplans are told of the best node =====

const TWO_NODES: &str = r#"
    nodes = [{ id = "a", kind = "freeswitch", address = "127.0.0.1:8021", password = "x" },
             { id = "b", kind = "freeswitch", address = "127.0.0.2:8021", password = "x" }]
"#;

/// An engine of two nodes, and what it told their dialplans.
struct Dialplans(Engine);

impl Dialplans {
    fn new() -> Self {
        let config = load_text(Path::new("test.toml"), TWO_NODES, Format::Toml, [], Purpose::Connect).unwrap().config;
        let mut engine = Engine::new(Arc::new(config), Restored::default(), at(0));
        let _ = engine.take_effects();
        Self(engine)
    }

    fn linked() -> Self {
        let mut dialplans = Self::new();
        (0..2).for_each(|node| dialplans.0.apply(node, &PbxEvent::Linked, at(0)));
        dialplans
    }

    /// What they hear when that is the picture at `ms`.
    fn told(&mut self, best: Option<&str>, score: f64, fallback: bool, ms: u64) -> Option<String> {
        let now = at(0).after(Duration::from_millis(ms));
        assert_eq!(self.0.candidates(now).len(), 2);
        let best = best.map(|id| NodeId::new(id).unwrap());
        self.0.show_best(best.as_ref(), score, fallback, now);
        let told = self.0.take_effects().into_iter().filter_map(|effect| match effect {
            Effect::Variables { desired, .. } => Some(desired),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        assert!(told.is_empty() || (told.len() == 2 && told[0].routing == told[1].routing), "{told:?}");
        let values = |routing: &[_]| routing.iter().map(value).collect::<Vec<_>>().join(" ");
        told.first().map(|desired| values(&desired.routing))
    }
}

fn value(variable: &pointsman::dialplan::desired::StateVariable) -> String {
    variable.value.to_string()
}

#[test]
fn a_score_is_told_every_five_seconds_also_where_nothing_happens_after_it() {
    let mut dialplans = Dialplans::linked();
    assert_eq!(dialplans.told(Some("a"), 90.0, false, 0).as_deref(), Some("a 90 0"));
    assert_eq!(dialplans.told(Some("a"), 80.0, false, 1000), None);
    assert_eq!(dialplans.told(Some("a"), 80.0, false, 4999), None);
    assert_eq!(dialplans.told(Some("a"), 80.0, false, 5000).as_deref(), Some("a 80 0"));
    assert_eq!(dialplans.told(Some("a"), 80.4, false, 15000), None, "the same in whole points");
}

#[test]
fn two_nodes_that_change_places_with_every_call_are_told_once_a_second() {
    let mut dialplans = Dialplans::linked();
    let told = (0..40).filter(|turn: &u64| {
        let best = if turn.is_multiple_of(2) { "a" } else { "b" };
        dialplans.told(Some(best), 90.0, false, turn * 50).is_some()
    });
    assert_eq!(told.count(), 2, "in two seconds");
}

#[test]
fn a_best_node_that_takes_no_calls_any_more_is_replaced_at_once() {
    let mut dialplans = Dialplans::linked();
    assert_eq!(dialplans.told(Some("a"), 90.0, false, 0).as_deref(), Some("a 90 0"));
    dialplans.0.apply(0, &PbxEvent::Unlinked, at(0));
    assert_eq!(dialplans.told(Some("b"), 85.0, false, 10).as_deref(), Some("b 85 0"));
    assert_eq!(dialplans.told(Some("b"), -100.0, true, 20).as_deref(), Some("b -100 1"));
    assert_eq!(dialplans.told(Some("b"), 85.0, false, 30).as_deref(), Some("b 85 0"));
}

#[test]
fn without_any_link_what_dialplans_know_stays() {
    let mut dialplans = Dialplans::new();
    assert_eq!(dialplans.told(None, -100.0, true, 0), None);
    dialplans.0.apply(1, &PbxEvent::Linked, at(0));
    assert_eq!(dialplans.told(Some("b"), 90.0, false, 10).as_deref(), Some("b 90 0"));
    dialplans.0.apply(1, &PbxEvent::Unlinked, at(0));
    assert_eq!(dialplans.told(None, -100.0, true, 6000), None);
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(1_796_014_300 + secs)
}

fn view(engine: &mut Engine, now: Timestamp) -> View {
    let (links, variables) = (vec![LinkView::default(); 2], vec![VariablesView::default(); 2]);
    engine.view(&links, &variables, now)
}
