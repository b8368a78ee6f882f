//! The program's books against the vendors' own: every attempt that a vendor saw is counted once, with what happened.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pointsman::call::outcome::Outcome;
use pointsman::engine::view::{LinkState, View};

use crate::lab::SOON;
use crate::lab::asterisk::Kind;
use crate::lab::pbx::{Pbx, Switch};
use crate::lab::pointsman::{Pointsman, configuration, connection, node};
use crate::lab::sipp::{Behaviour, Caller, Vendor, call, place};

/// A call: how the two vendors behave, what the caller does, whether both are tried at once, and what must come out for
/// each vendor that is tried.
struct Case {
    first: Behaviour,
    second: Behaviour,
    caller: Caller,
    fork: bool,
    outcomes: &'static [(&'static str, Outcome)],
}

const A: &str = "vendor-a";
const B: &str = "vendor-b";

fn hunt(first: Behaviour, outcomes: &'static [(&'static str, Outcome)]) -> Case {
    Case { first, second: Behaviour::Good, caller: Caller::Talks(600), fork: false, outcomes }
}

fn cases(switch: Switch) -> Vec<Case> {
    use Behaviour::{Dead, Early, Good, HangsUp, Instant, Refuses, RingsForEver, RingsThenRefuses, Silent};
    use Outcome::{Answered, Busy, CallerGone, LostRace, NoAnswer, NumberInvalid, Rejected, VendorFailed};
    let mut cases = vec![
        hunt(Good, &[(A, Answered)]),
        hunt(Early, &[(A, Answered)]),
        hunt(Instant, &[(A, Answered)]),
        Case { caller: Caller::Listens, ..hunt(HangsUp, &[(A, Answered)]) },
        hunt(Refuses(486), &[(A, Busy)]),
        hunt(RingsThenRefuses(486), &[(A, Busy)]),
        hunt(Refuses(600), &[(A, Busy)]),
        hunt(Refuses(603), &[(A, Rejected)]),
        hunt(Refuses(480), &[(A, NoAnswer)]),
        hunt(RingsForEver, &[(A, NoAnswer)]),
        hunt(Refuses(404), &[(A, NumberInvalid)]),
        hunt(Refuses(484), &[(A, NumberInvalid)]),
        // The vendor's fault, and the next one takes the call: two attempts.
        hunt(Refuses(503), &[(A, VendorFailed), (B, Answered)]),
        hunt(RingsThenRefuses(503), &[(A, VendorFailed), (B, Answered)]),
        hunt(Refuses(500), &[(A, VendorFailed), (B, Answered)]),
        hunt(Silent, &[(A, VendorFailed), (B, Answered)]),
        Case { second: Refuses(486), ..hunt(Refuses(503), &[(A, VendorFailed), (B, Busy)]) },
        // The caller gives up.
        Case { caller: Caller::CancelsRinging(300), ..hunt(RingsForEver, &[(A, CallerGone)]) },
        Case { caller: Caller::CancelsSilence(300), ..hunt(Silent, &[(A, CallerGone)]) },
        // Both at once.
        Case { second: RingsForEver, fork: true, ..hunt(Good, &[(B, LostRace), (A, Answered)]) },
    ];
    // Without the status a vendor who refuses us looks like a person who refuses the call.
    let forbidden: &[_] = match switch.tells_sip_status() {
        true => &[(A, VendorFailed), (B, Answered)],
        false => &[(A, Rejected), (B, Answered)],
    };
    cases.push(hunt(Refuses(403), forbidden));
    // The last one: Asterisk goes on sending its INVITE for half a minute, to whoever listens there next.
    cases.push(hunt(Dead, &[(A, VendorFailed), (B, Answered)]));
    cases
}

/// Copies everything that a control port sends, until it is finished.
struct Recording {
    kind: &'static str,
    stream: TcpStream,
    thread: Option<std::thread::JoinHandle<Vec<u8>>>,
}

impl Recording {
    fn start(pbx: &dyn Pbx) -> Self {
        let (port, subscription, kind) = pbx.subscription();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(subscription).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = reader.read_to_end(&mut bytes);
            bytes
        });
        Self { kind, stream, thread: Some(thread) }
    }

    fn finish(mut self) -> Vec<u8> {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        self.thread.take().expect("it runs").join().unwrap()
    }
}

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Attempt {
    connection: String,
    outcome: Outcome,
}

fn attempts_are_what_happened(switch: Switch) {
    let mut first = Vendor::start(A, Behaviour::Good);
    let mut second = Vendor::start(B, Behaviour::Good);
    let pbx = switch.start(&[&first, &second]);
    let text = configuration(&[pbx.node("pbx")], &[A, B], "statistics_window = 500");
    let pointsman = Pointsman::start(&text);
    pointsman.is_in_step_with("pbx");
    let recording = Recording::start(&*pbx);

    let mut expected = Vec::new();
    let mut unseen = 0;
    for (i, case) in cases(switch).into_iter().enumerate() {
        first.turn(case.first);
        second.turn(case.second);
        let number = format!("00{i:04}");
        let number = if case.fork { pbx.forked(&number) } else { pbx.hunted(&number) };
        call(&*pbx, &number, case.caller);
        expected.extend(case.outcomes.iter().map(|(vendor, outcome)| ((*vendor).to_owned(), *outcome)));
        unseen += usize::from(case.first == Behaviour::Dead);
        // One call after the other: the ends come in the order of the calls.
        let counted = |id: &str| expected.iter().filter(|(c, outcome)| c == id && outcome.in_window()).count();
        pointsman.shows(&format!("call {i} ({:?}) counted", case.first), SOON, |view| {
            let both = [A, B].map(|id| connection(view, id).figures.calls == counted(id));
            (both == [true, true] && node(view, "pbx").active_calls == 0).then_some(())
        });
    }

    // The figures.
    let view = pointsman.view().expect("it answers");
    for (id, vendor) in [(A, &first), (B, &second)] {
        let mine: Vec<Outcome> = expected.iter().filter(|(c, _)| c == id).map(|(_, outcome)| *outcome).collect();
        let dead = if id == A { unseen } else { 0 };
        assert_eq!(vendor.calls().len() + dead, mine.len(), "what {id} itself saw");
        let measured = mine.iter().filter(|outcome| outcome.in_window()).count();
        let answered = mine.iter().filter(|outcome| **outcome == Outcome::Answered).count();
        let figures = &connection(&view, id).figures;
        assert_eq!(figures.calls, measured, "{id}");
        let asr = 100.0 * f64::from(u32::try_from(answered).unwrap()) / f64::from(u32::try_from(measured).unwrap());
        assert!((figures.asr.unwrap() - asr).abs() < 0.01, "{id}: {figures:?}, expected {asr}");
        assert!(figures.acd.is_some_and(|acd| (0.3..3.0).contains(&acd)), "{id}: {figures:?}");
        assert!(figures.pdd.is_some_and(|pdd| (0.02..2.0).contains(&pdd)), "{id}: {figures:?}");
    }
    let link = &node(&view, "pbx").link;
    assert_eq!((link.damaged, link.losses, link.dropped, link.ends_unseen_lost), (0, 0, 0, 0), "{link:?}");
    assert!(view.unknown_trunks.is_empty(), "{:?}", view.unknown_trunks);

    // Each attempt by itself, from a recording of the same events.
    let file = tempfile::NamedTempFile::new().unwrap();
    let kind = recording.kind;
    std::fs::write(file.path(), recording.finish()).unwrap();
    let output = pointsman.command(&["replay", "--kind", kind, file.path().to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let replayed: Vec<(String, Outcome)> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Attempt>(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .map(|attempt| (attempt.connection, attempt.outcome))
        .collect();
    assert_eq!(replayed, expected);
}

#[test]
fn attempts_are_what_happened_on_a_recent_asterisk() {
    attempts_are_what_happened(Switch::Asterisk(Kind::Recent));
}

#[test]
fn attempts_are_what_happened_on_asterisk_16() {
    attempts_are_what_happened(Switch::Asterisk(Kind::Old));
}

#[test]
fn attempts_are_what_happened_on_asterisk_16_with_chan_sip() {
    attempts_are_what_happened(Switch::Asterisk(Kind::OldChanSip));
}

#[test]
fn attempts_are_what_happened_on_freeswitch() {
    attempts_are_what_happened(Switch::FreeSwitch);
}

/// 400 calls, 20 a second (40 on FreeSWITCH), each over two vendors: not one attempt is lost.
fn nothing_is_lost_under_load(switch: Switch, rate: u32) {
    const CALLS: u32 = 400;
    let first = Vendor::start(A, Behaviour::Refuses(503));
    let second = Vendor::start(B, Behaviour::Good);
    let pbx = switch.start(&[&first, &second]);
    let text = configuration(&[pbx.node("pbx")], &[A, B], "statistics_window = 1000");
    let pointsman = Pointsman::start(&text);
    pointsman.is_in_step_with("pbx");
    let finals = place(&*pbx, &pbx.hunted("009"), Caller::Talks(2000), CALLS, rate).finals(Duration::from_secs(120));
    assert_eq!(finals, vec![200; CALLS as usize]);
    let view = pointsman.shows("every call counted", SOON, |view| {
        (node(view, "pbx").active_calls == 0 && connection(view, B).figures.calls >= second.calls().len())
            .then(|| view.clone())
    });
    for (id, vendor, asr) in [(A, &first, 0.0), (B, &second, 100.0)] {
        let figures = &connection(&view, id).figures;
        assert_eq!((figures.calls, figures.asr), (CALLS as usize, Some(asr)), "{id}");
        assert_eq!(vendor.calls().len(), CALLS as usize, "what {id} itself saw");
    }
    let link = &node(&view, "pbx").link;
    assert_eq!((link.damaged, link.losses, link.dropped), (0, 0, 0), "{link:?}");
    println!("{switch:?}: {} bytes and {} events for {CALLS} calls", link.bytes, link.events);
}

#[test]
fn nothing_is_lost_under_load_on_a_recent_asterisk() {
    nothing_is_lost_under_load(Switch::Asterisk(Kind::Recent), 20);
}

#[test]
fn nothing_is_lost_under_load_on_asterisk_16() {
    nothing_is_lost_under_load(Switch::Asterisk(Kind::Old), 20);
}

#[test]
fn nothing_is_lost_under_load_on_freeswitch() {
    nothing_is_lost_under_load(Switch::FreeSwitch, 40);
}

/// A program that stops reading under load costs the switch no call, and finds its way back: no leg stays up that is
/// not, none is counted twice.
fn a_frozen_program_is_no_burden(switch: Switch) {
    const CALLS: u32 = 300;
    let first = Vendor::start(A, Behaviour::Refuses(503));
    let second = Vendor::start(B, Behaviour::Good);
    let pbx = switch.start(&[&first, &second]);
    let pointsman = Pointsman::start(&configuration(&[pbx.node("pbx")], &[A, B], "statistics_window = 1000"));
    pointsman.is_in_step_with("pbx");
    let calls = place(&*pbx, &pbx.hunted("009"), Caller::Talks(2000), CALLS, 20);
    let counted = |view: &View| [A, B].map(|id| connection(view, id).figures.calls);
    pointsman.shows("calls counted", SOON, |view| (counted(view)[1] >= 20).then_some(()));
    pointsman.freeze();
    std::thread::sleep(Duration::from_secs(8));
    pointsman.thaw();
    assert_eq!(calls.finals(Duration::from_secs(120)), vec![200; CALLS as usize]);
    let view = pointsman.shows("no call up", Duration::from_secs(60), |view| {
        let pbx = node(view, "pbx");
        (pbx.link.state == LinkState::Up && pbx.active_calls == 0).then(|| view.clone())
    });
    let link = &node(&view, "pbx").link;
    println!("{switch:?}: {:?} of {CALLS} counted, {link:?}", counted(&view));
    assert!(counted(&view).iter().all(|calls| (40..=CALLS as usize).contains(calls)), "{view:#?}");
}

#[test]
fn a_frozen_program_is_no_burden_to_a_recent_asterisk() {
    a_frozen_program_is_no_burden(Switch::Asterisk(Kind::Recent));
}

#[test]
fn a_frozen_program_is_no_burden_to_asterisk_16() {
    a_frozen_program_is_no_burden(Switch::Asterisk(Kind::Old));
}

#[test]
fn a_frozen_program_is_no_burden_to_freeswitch() {
    a_frozen_program_is_no_burden(Switch::FreeSwitch);
}

/// From the event that makes a vendor bad to the variable that the switch acknowledged: a few milliseconds.
#[test]
fn the_variable_follows_the_event_at_once() {
    let mut first = Vendor::start(A, Behaviour::Good);
    let second = Vendor::start(B, Behaviour::Refuses(503));
    let pbx = Switch::Asterisk(Kind::Recent).start(&[&first, &second]);
    // Every attempt is a verdict: each call that differs from the one before turns the order round.
    let quality = "statistics_window = 1\nretry_batch = 1\nmonitor_asr = true\nasr_threshold_percent = 50";
    let text = configuration(&[pbx.node("pbx")], &[A, B], quality);
    let pointsman = Pointsman::start(&text);
    pointsman.is_in_step_with("pbx");
    let mut latencies = Vec::new();
    for i in 0..20 {
        let written = node(&pointsman.view().expect("it answers"), "pbx").variables.written;
        first.turn(if i % 2 == 0 { Behaviour::Refuses(503) } else { Behaviour::Instant });
        call(&*pbx, &pbx.hunted("009"), Caller::Talks(50));
        latencies.extend(pointsman.shows("the variables written", SOON, |view| {
            let variables = &node(view, "pbx").variables;
            (variables.written > written && variables.pending == 0).then_some(variables.last_latency_us)
        }));
    }
    latencies.sort_unstable();
    println!("event in to variable acknowledged, in microseconds: {latencies:?}");
    assert!(latencies.len() >= 10, "{latencies:?}");
    // The aim is 10 ms for 99 in 100 on an idle machine; this one may be busy.
    assert!(latencies[latencies.len() / 2] < 10_000, "{latencies:?}");
}
