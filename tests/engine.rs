//! The engine over a restart of the program: what it stored of a call that is up is what it goes on with.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use pointsman::call::outcome::Outcome;
use pointsman::config::{Config, Format, Purpose, load_text};
use pointsman::engine::core::Engine;
use pointsman::engine::effect::Effect;
use pointsman::ids::LegId;
use pointsman::pbx::asterisk::AstMapper;
use pointsman::pbx::event::{ListedLeg, PbxEvent, Snapshot};
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
