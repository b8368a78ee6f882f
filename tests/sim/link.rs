//! The simulated switches at the other end of the real links: what comes out of a link is what really happened, and a
//! recording that a switch plays gives what the file gives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pointsman::call::attempt::CallEvent;
use pointsman::call::tracker::Tracker;
use pointsman::cli::replay::Attempt;
use pointsman::clock::Clock;
use pointsman::config::{Format, Purpose, load_text};
use pointsman::engine::view::LinkState;
use pointsman::pbx::PbxKind;
use pointsman::pbx::event::PbxEvent;
use pointsman::pbx::link::{self, FromNode, Link, LinkInbox};
use pointsman::sim::asterisk::Version;
use pointsman::sim::call::{End, Leg};
use pointsman::sim::handle::Options;
use pointsman::sim::replay::{Recording, Server};
use pointsman::sim::vendor::{Fate, Sign};
use pointsman::sim::{Behaviour, Call, CallReport, Handle, Route, Span, asterisk, freeswitch};
use pointsman::tasks::Tasks;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::client::PATIENCE;
use crate::conformance::recording;

/// FreeSWITCH's clock ticks every 20 ms.
const TOLERANCE_MS: u64 = 25;

/// A link and the tracker behind it.
struct Far {
    link: Link,
    inbox: mpsc::Receiver<FromNode>,
    tracker: Tracker,
    runs: Vec<String>,
}

impl Far {
    async fn connect(kind: PbxKind, address: SocketAddr, clock: Clock, tasks: &Tasks) -> Self {
        let word = if kind == PbxKind::FreeSwitch { "freeswitch" } else { "asterisk" };
        let user = if kind == PbxKind::FreeSwitch { "" } else { "username = \"pointsman\"\n" };
        let text = format!(
            "[[nodes]]\nid = \"n\"\nkind = \"{word}\"\naddress = \"{address}\"\npassword = \"ClueCon\"\n{user}"
        );
        let loaded = load_text(Path::new("test.toml"), &text, Format::Toml, [], Purpose::Connect);
        let node = loaded.unwrap_or_else(|problems| panic!("{}", problems.render(false))).config.nodes.remove(0);
        let (sender, inbox) = mpsc::channel(65_536);
        let mut link = link::spawn(Arc::new(node), clock, LinkInbox::new(sender, 0), tasks);
        let up = link.view.wait_for(|view| view.state == LinkState::Up);
        tokio::time::timeout(PATIENCE, up).await.expect("the link comes up").unwrap();
        Self { link, inbox, tracker: Tracker::new(kind), runs: Vec::new() }
    }

    /// Waits until a leg is answered.
    async fn answer(&mut self) {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.inbox.recv()).await.expect("an answer").unwrap();
            if let PbxEvent::Incarnation(run) = &next.event {
                self.runs.push(run.to_string());
            }
            let told = self.tracker.apply(&next.event, next.at).events;
            if told.iter().any(|event| matches!(event, CallEvent::Answered { .. })) {
                return;
            }
        }
    }

    /// Attempts, until there are so many.
    async fn attempts(&mut self, count: usize) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        while attempts.len() < count {
            let next = tokio::time::timeout(PATIENCE, self.inbox.recv()).await;
            let next =
                next.unwrap_or_else(|_| panic!("{} attempts of {count}: {attempts:#?}", attempts.len())).unwrap();
            attempts.extend(self.take(&next));
        }
        attempts
    }

    fn take(&mut self, next: &FromNode) -> Vec<Attempt> {
        if let PbxEvent::Incarnation(run) = &next.event {
            self.runs.push(run.to_string());
        }
        let told = self.tracker.apply(&next.event, next.at).events;
        let finished = told.iter().filter_map(|event| match event {
            CallEvent::Finished(finished) => Some(Attempt::from(&**finished)),
            _ => None,
        });
        finished.collect()
    }
}

/// What must come out of a leg that went like this.
fn outcome(leg: &Leg) -> &'static str {
    match leg.end {
        _ if leg.answered_at.is_some() => "answered",
        End::Refused(486) => "busy",
        End::Refused(404) => "number_invalid",
        End::Refused(603) => "rejected",
        End::Refused(_) | End::Unreachable | End::NoReply | End::RingTimeout { rang: false } => "vendor_failed",
        End::RingTimeout { rang: true } => "no_answer",
        End::CallerGone => "caller_gone",
        End::LostRace => "lost_race",
        End::HungUp(_) | End::Vanished => unreachable!("such a leg does not end unanswered"),
    }
}

fn assert_true(report: &[CallReport], attempts: &[Attempt]) {
    let mut found: BTreeMap<&str, &Attempt> = attempts.iter().map(|attempt| (attempt.leg.as_str(), attempt)).collect();
    assert_eq!(found.len(), attempts.len(), "no leg twice");
    for leg in report.iter().flat_map(|call| &call.legs) {
        let attempt = found.remove(leg.id.as_str()).unwrap_or_else(|| panic!("no attempt of {leg:#?}"));
        assert_eq!(attempt.connection, leg.trunk, "{leg:#?}");
        assert_eq!(attempt.outcome.as_str(), outcome(leg), "{attempt:#?}\n{leg:#?}");
        let sign = leg.sign_at.or(leg.answered_at);
        let pdd = sign.and_then(|sign| sign.millis_since(leg.placed_at));
        let close = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => a.abs_diff(b) <= TOLERANCE_MS,
            (a, b) => a == b,
        };
        assert!(close(attempt.pdd_ms, pdd), "{attempt:#?}\n{leg:#?}");
        let talked = leg.answered_at.map_or(Some(0), |answered| leg.ended_at.millis_since(answered));
        assert!(close(attempt.duration_ms, talked), "{attempt:#?}\n{leg:#?}");
        let vendors_own = match leg.end {
            End::Refused(status) => Some(status),
            _ => None,
        };
        assert!(attempt.sip_status == vendors_own || vendors_own.is_none() || attempt.sip_status.is_none());
    }
    assert_eq!(found, BTreeMap::new(), "attempts that nobody made");
}

fn vendors(pbx: &Handle) {
    for (name, behaviour) in [
        ("good", Behaviour::good()),
        ("early", Behaviour::early_media()),
        ("instant", Behaviour::instant()),
        ("mixed", Behaviour::answering(0.5)),
        ("busy", Behaviour::always(Fate::RefusedAfterSign(486))),
        ("declines", Behaviour::refusing(603)),
        ("fails", Behaviour::refusing(503)),
        ("invalid", Behaviour::refusing(404)),
        ("rings", Behaviour::always(Fate::RingsOut)),
        ("silent", Behaviour::always(Fate::Silent)),
        ("dead", Behaviour::always(Fate::Unreachable)),
        ("direct", Behaviour { sign: Sign::Nothing, ..Behaviour::good() }),
        ("their-end", Behaviour { far_end_hangs_up: 1.0, ..Behaviour::good() }),
    ] {
        pbx.set_vendor(name, behaviour.talking(Span::Between(Duration::from_millis(0), Duration::from_secs(4))));
    }
}

/// One call of every kind, and a hundred that anything may happen to.
fn calls(rng: &mut fastrand::Rng) -> Vec<Call> {
    const NAMES: [&str; 13] = [
        "good",
        "early",
        "instant",
        "mixed",
        "busy",
        "declines",
        "fails",
        "invalid",
        "rings",
        "silent",
        "dead",
        "direct",
        "their-end",
    ];
    let short = |route| Call { ring_timeout: Duration::from_secs(6), ..Call::to("15550001", route) };
    let mut calls: Vec<Call> = NAMES.iter().map(|name| short(Route::Trunks(vec![(*name).into()]))).collect();
    calls.push(Call { ring_timeout: Duration::from_secs(60), ..short(Route::Trunks(vec!["silent".into()])) });
    for _ in 0..100 {
        let mut names: Vec<String> = (0..rng.usize(1..4)).map(|_| NAMES[rng.usize(0..NAMES.len())].into()).collect();
        names.push("unknown".into());
        let route = if rng.u8(0..4) == 0 { Route::Fork(names) } else { Route::Trunks(names) };
        let patience = (rng.u8(0..3) == 0).then(|| Duration::from_millis(rng.u64(0..8_000)));
        let map = (rng.bool()).then(|| "intl".into());
        calls.push(Call { patience, map, caller_name: b"Ren\xe9\r\n\r\nEvent: Hangup".to_vec(), ..short(route) });
    }
    calls
}

async fn everything_comes_out(kind: PbxKind, pbx: &Handle, clock: Clock, tasks: &Tasks) {
    vendors(pbx);
    let mut far = Far::connect(kind, pbx.address(), clock, tasks).await;
    let mut rng = fastrand::Rng::with_seed(7);
    let placed: Vec<_> = calls(&mut rng).into_iter().map(|call| pbx.place_call(call)).collect();
    let mut reports = Vec::new();
    for call in placed {
        reports.push(call.report().await);
    }
    let legs = reports.iter().map(|call| call.legs.len()).sum();
    let attempts = far.attempts(legs).await;
    assert_true(&reports, &attempts);
    assert_eq!(far.tracker.active(), 0, "nothing is left");
    let view = far.link.view.borrow().clone();
    assert_eq!((view.losses, view.damaged, view.dropped, view.connects), (0, 0, 0, 1));
}

#[tokio::test]
async fn what_freeswitch_does_comes_out_of_its_link() {
    let (clock, tasks) = (Clock::running_at(10), Tasks::new());
    let pbx = freeswitch::Server::start(freeswitch::Options::default(), clock, &tasks).await.unwrap();
    everything_comes_out(PbxKind::FreeSwitch, &pbx, clock, &tasks).await;
}

#[tokio::test]
async fn what_asterisk_does_comes_out_of_its_link() {
    for version in [Version::V22, Version::V16] {
        let (clock, tasks) = (Clock::running_at(10), Tasks::new());
        let options = asterisk::Options { version, ..asterisk::Options::default() };
        let pbx = asterisk::Server::start(options, clock, &tasks).await.unwrap();
        everything_comes_out(PbxKind::Asterisk, &pbx, clock, &tasks).await;
    }
}

#[tokio::test]
async fn a_restart_is_another_run() {
    let (clock, tasks) = (Clock::running_at(10), Tasks::new());
    let fs = freeswitch::Server::start(freeswitch::Options::default(), clock, &tasks).await.unwrap();
    let ast = asterisk::Server::start(asterisk::Options::default(), clock, &tasks).await.unwrap();
    for (kind, pbx) in [(PbxKind::FreeSwitch, fs), (PbxKind::Asterisk, ast)] {
        vendors(&pbx);
        let mut far = Far::connect(kind, pbx.address(), clock, &tasks).await;
        let long = Call { talk: Some(Duration::from_hours(1)), ..Call::to("1", Route::Trunks(vec!["instant".into()])) };
        let call = pbx.place_call(long);
        far.answer().await;
        pbx.restart(Duration::from_millis(300)).await;
        let report = call.report().await;
        // Its end was not seen, its answer was: answered, for nobody knows how long.
        let attempts = far.attempts(1).await;
        assert_eq!(attempts[0].leg, report.legs[0].id);
        assert_eq!((attempts[0].outcome.as_str(), attempts[0].duration_ms), ("answered", None));
        while far.runs.first() == far.runs.last() {
            let next = tokio::time::timeout(PATIENCE, far.inbox.recv()).await.expect("it comes back").unwrap();
            far.take(&next);
        }
    }
}

fn expected(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/fixtures/{name}.expected.jsonl", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn alike(actual: &Value, expected: &Value) -> bool {
    let exact = ["connection", "leg", "outcome", "cause", "sip_status"];
    let times = [("placed_at_us", 1000), ("ended_at_us", 1000), ("pdd_ms", 1), ("duration_ms", 1)];
    exact.iter().all(|name| actual[name] == expected[name])
        && times.iter().all(|(name, per_ms)| match (actual[name].as_u64(), expected[name].as_u64()) {
            (Some(a), Some(e)) => a.abs_diff(e) <= TOLERANCE_MS * per_ms,
            (a, e) => a == e,
        })
}

#[tokio::test]
async fn a_recording_played_by_a_switch_gives_what_the_file_gives() {
    let recordings = [
        (PbxKind::FreeSwitch, "esl/matrix"),
        (PbxKind::FreeSwitch, "esl/load"),
        (PbxKind::Asterisk, "ami/asterisk22-matrix"),
        (PbxKind::Asterisk, "ami/asterisk16-matrix"),
        (PbxKind::Asterisk, "ami/asterisk22-load"),
    ];
    for (kind, name) in recordings {
        let (clock, tasks) = (Clock::system(), Tasks::new());
        let recording = Recording::new(kind, &Bytes::from(recording(name)));
        let options = Options { seed: 3, ..Options::default() };
        let server = Server::start(&recording, options, clock, &tasks).await.unwrap();
        let mut far = Far::connect(kind, server.handle().address(), clock, &tasks).await;
        let wanted = expected(name);
        let mut rng = fastrand::Rng::with_seed(11);
        let cut = move || if rng.u8(0..8) == 0 { rng.usize(1..64) } else { rng.usize(64..16_384) };
        let ((), attempts) = tokio::join!(server.play(&recording, cut), far.attempts(wanted.len()));
        for (attempt, wanted) in attempts.iter().zip(&wanted) {
            let attempt = serde_json::to_value(attempt).unwrap();
            assert!(alike(&attempt, wanted), "{name}:\n  is       {attempt}\n  expected {wanted}");
        }
        assert!(tasks.stop(PATIENCE).await);
        while let Some(next) = far.inbox.recv().await {
            // Legs that were up at the end are given up as the link ends, as they would be at any loss.
            if next.event == PbxEvent::Unlinked {
                break;
            }
            assert_eq!(far.take(&next), [], "{name}: nothing more");
        }
    }
}
