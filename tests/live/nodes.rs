//! What real switches tell of themselves, and what becomes of their calls when they do not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pointsman::engine::view::{LinkState, View};
use pointsman::score::{Lethal, Source};

use crate::lab::asterisk::{Asterisk, Kind};
use crate::lab::freeswitch::FreeSwitch;
use crate::lab::pbx::{Pbx, Switch};
use crate::lab::pointsman::{Node, Pointsman, configuration, node};
use crate::lab::sipp::{Behaviour, Caller, Vendor, place};
use crate::lab::{SOON, eventually};
use crate::story::DURABLE;

/// Longest that a dead switch may get calls.
const EXCLUDED_WITHIN: Duration = Duration::from_secs(20);

/// How much later it shows on a machine under load, as we ask.
const SLACK: Duration = Duration::from_secs(5);

/// The node that the next call should go to, over HTTP; the status where there is none.
fn route(pointsman: &Pointsman) -> Result<String, u16> {
    let address = pointsman.shows("an HTTP server", SOON, |view| view.http.as_ref()?.address.clone());
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /api/route HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    if status != Some(200) {
        return Err(status.unwrap_or_else(|| panic!("no answer: {answer}")));
    }
    let route: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    Ok(route["node_id"].as_str().unwrap().to_owned())
}

fn excluded(pointsman: &Pointsman, id: &str, within: Duration) -> Vec<Lethal> {
    pointsman.shows(&format!("{id} excluded"), within, |view| {
        let node = node(view, id);
        (node.excluded_since.is_some() && node.assessment.score < 0.0).then(|| node.assessment.lethal.clone())
    })
}

fn takes_calls(pointsman: &Pointsman, id: &str) {
    pointsman.shows(&format!("{id} taking calls"), Duration::from_secs(90), |view| {
        let node = node(view, id);
        (node.link.state == LinkState::Up && node.assessment.lethal.is_empty()).then_some(())
    });
}

/// The load average over a minute, as the system tells it.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// What a switch tells is what is so: the load of the machine, and the calls that are up.
fn figures_are_true(switch: Switch) {
    let vendor = Vendor::start("vendor-a", Behaviour::Instant);
    let pbx = switch.start(&[&vendor]);
    let text = pbx.node("pbx") + "local = true\nmax_calls = 10\n";
    let pointsman = Pointsman::start(&configuration(&[text], &["vendor-a"], ""));
    pointsman.is_in_step_with("pbx");
    let figures = |view: &View| node(view, "pbx").figures;
    if switch == Switch::FreeSwitch {
        let idle = pointsman
            .shows("its idle CPU", SOON, |view| figures(view).idle_cpu.filter(|idle| idle.source == Source::Pbx));
        println!("idle CPU {} %", idle.value);
        assert!((0.0..=100.0).contains(&idle.value), "{idle:?}");
    } else {
        let (told, true_load) = pointsman.shows("its load average", SOON, |view| {
            let told = figures(view).load_avg.filter(|load| load.source == Source::Pbx)?;
            let true_load = load_average();
            // It moves by a tenth of what it is off by within the five seconds that a figure stands.
            ((told.value - true_load).abs() <= 0.3 + 0.1 * true_load).then_some((told.value, true_load))
        });
        println!("load average {told}, and that of the machine {true_load}");
    }
    pointsman.shows("the memory of this machine", SOON, |view| {
        figures(view).memory_free.filter(|free| free.source == Source::Local && free.value > 0.0)
    });

    let calls = place(&*pbx, &pbx.hunted("001"), Caller::Talks(8000), 4, 10);
    pointsman.shows("four calls up", SOON, |view| {
        let terms = &node(view, "pbx").assessment.terms;
        let score = terms.iter().find(|term| term.name == "call_score")?.value;
        (figures(view).active_calls == 4 && score == Some(60.0)).then_some(())
    });
    assert_eq!(calls.finals(SOON), [200; 4]);
    pointsman.shows("no calls up", SOON, |view| (figures(view).active_calls == 0).then_some(()));
}

#[test]
fn figures_of_a_recent_asterisk_are_true() {
    figures_are_true(Switch::Asterisk(Kind::Recent));
}

#[test]
fn figures_of_asterisk_16_are_true() {
    figures_are_true(Switch::Asterisk(Kind::Old));
}

#[test]
fn figures_of_freeswitch_are_true() {
    figures_are_true(Switch::FreeSwitch);
}

/// A switch that is killed, or that hangs, gets no calls; they go to the other until it returns.
#[test]
fn a_dead_asterisk_gets_no_calls_until_it_returns() {
    let vendor = Vendor::start("vendor-a", Behaviour::Good);
    let mut first = Asterisk::start(Kind::Recent, &[&vendor]);
    let second = Asterisk::start(Kind::Old, &[&vendor]);
    // Whatever the load of this machine: the first is the better one as long as it lives.
    let nodes = [
        Node { more: "max_calls = 1000".to_owned(), ..Node::of("first", &first) },
        Node { more: "max_calls = 1000".to_owned(), ..Node::of("second", &second) },
    ]
    .map(|node| node.text());
    let scoring = "[scoring.weights]\ncall_score = 1.0\nload_score = 0.0\nidle_score = 0.0\nfail_score = 0.0\n";
    let text = configuration(&nodes, &["vendor-a"], "") + scoring;
    let pointsman = Pointsman::start(&text);
    let best_is = |pbx: &Asterisk, id: &str| {
        let what = format!("pm_best_node to be {id}");
        eventually(&what, SOON, || (pbx.global("pm_best_node") == id).then_some(()));
    };
    for id in ["first", "second"] {
        pointsman.is_in_step_with(id);
        takes_calls(&pointsman, id);
    }
    best_is(&first, "first");
    best_is(&second, "first");

    let began = Instant::now();
    first.crash();
    assert_eq!(excluded(&pointsman, "first", EXCLUDED_WITHIN), [Lethal::LinkDown]);
    println!("killed: excluded after {:?}", began.elapsed());
    assert_eq!(route(&pointsman), Ok("second".to_owned()));
    best_is(&second, "second");
    first.boot();
    takes_calls(&pointsman, "first");
    best_is(&first, "first");
    best_is(&second, "first");

    let began = Instant::now();
    first.freeze();
    let why = excluded(&pointsman, "first", EXCLUDED_WITHIN + SLACK);
    println!("frozen: excluded after {:?}: {why:?}", began.elapsed());
    best_is(&second, "second");
    first.thaw();
    takes_calls(&pointsman, "first");
    best_is(&second, "first");
}

/// Without any switch there is no answer, and there is one when it returns.
#[test]
fn without_a_switch_there_is_no_answer() {
    let mut asterisk = Asterisk::start(Kind::Recent, &[]);
    let mut pointsman = Pointsman::start(&configuration(&[asterisk.node("pbx")], &["vendor-a"], ""));
    takes_calls(&pointsman, "pbx");
    assert_eq!(route(&pointsman), Ok("pbx".to_owned()));
    asterisk.crash();
    excluded(&pointsman, "pbx", EXCLUDED_WITHIN);
    assert_eq!(route(&pointsman), Err(503));

    // What the operator said holds over the death of either.
    let done = pointsman.command(&["node", "disable", "pbx", "--config", "pointsman.toml"]);
    assert!(done.status.success(), "{done:?}");
    std::thread::sleep(DURABLE);
    pointsman.kill();
    asterisk.boot();
    pointsman.go();
    pointsman.is_in_step_with("pbx");
    pointsman.shows("pbx out of service", SOON, |view| {
        (node(view, "pbx").assessment.lethal == [Lethal::Disabled]).then_some(())
    });
    assert_eq!(route(&pointsman), Err(503));
    eventually("pm_fallback to be 1", SOON, || (asterisk.global("pm_fallback") == "1").then_some(()));
    let done = pointsman.command(&["node", "enable", "pbx", "--config", "pointsman.toml"]);
    assert!(done.status.success(), "{done:?}");
    takes_calls(&pointsman, "pbx");
    assert_eq!(route(&pointsman), Ok("pbx".to_owned()));
    eventually("pm_fallback to be 0", SOON, || (asterisk.global("pm_fallback") == "0").then_some(()));
}

/// A FreeSWITCH that was paused says that it is not ready, and is believed.
#[test]
fn a_paused_freeswitch_gets_no_calls() {
    let vendor = Vendor::start("vendor-a", Behaviour::Good);
    let freeswitch = FreeSwitch::start(&[&vendor]);
    // However busy this machine is.
    let text = configuration(&[freeswitch.node("pbx")], &["vendor-a"], "") + "[scoring]\nidle_cpu_min = 0\n";
    let pointsman = Pointsman::start(&text);
    pointsman.is_in_step_with("pbx");
    takes_calls(&pointsman, "pbx");
    eventually("pm_best_node to be pbx", SOON, || (freeswitch.global("pm_best_node") == "pbx").then_some(()));

    let began = Instant::now();
    freeswitch.api("fsctl pause");
    assert_eq!(excluded(&pointsman, "pbx", SOON), [Lethal::NotReady]);
    println!("paused: excluded after {:?}", began.elapsed());
    eventually("pm_fallback to be 1", SOON, || (freeswitch.global("pm_fallback") == "1").then_some(()));
    freeswitch.api("fsctl resume");
    takes_calls(&pointsman, "pbx");
    eventually("pm_fallback to be 0", SOON, || (freeswitch.global("pm_fallback") == "0").then_some(()));
}

/// A FreeSWITCH whose machine has no time for it gets no calls. Its dialplans read the node as the least bad one.
#[test]
fn a_freeswitch_on_a_busy_machine_gets_no_calls() {
    let freeswitch = FreeSwitch::start(&[]);
    let text = configuration(&[freeswitch.node("pbx")], &["vendor-a"], "") + "[scoring]\nidle_cpu_min = 50\n";
    let pointsman = Pointsman::start(&text);
    pointsman.is_in_step_with("pbx");
    let (began, done) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            // Also where the test fails it comes to an end.
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && began.elapsed() < 2 * SOON {
                    std::hint::spin_loop();
                }
            });
        }
        let idle = pointsman.shows("too little idle CPU", SOON, |view| match node(view, "pbx").assessment.lethal[..] {
            [Lethal::Cpu { idle }] => Some(idle),
            _ => None,
        });
        println!("busy: idle CPU {idle} %");
        eventually("pm_fallback to be 1", SOON, || (freeswitch.global("pm_fallback") == "1").then_some(()));
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(freeswitch.global("pm_best_node"), "pbx");
    assert_eq!(route(&pointsman), Ok("pbx".to_owned()));
}
