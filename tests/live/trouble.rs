//! Links that fail in every way, beside one that works: each says clearly what is wrong, none is hammered, and the one
//! that works is not disturbed.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pointsman::engine::view::LinkState;
use pointsman::quality::machine::State;

use crate::lab::asterisk::{Asterisk, Kind};
use crate::lab::pointsman::{Node, Pointsman, configuration, connection, node as node_view};
use crate::lab::sipp::{Behaviour, Caller, Vendor, call};
use crate::lab::{SOON, ports};

/// A port of ours that counts who connects and greets everybody with `greeting`.
fn listener(greeting: &'static [u8]) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connects = Arc::new(AtomicUsize::new(0));
    let counter = connects.clone();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::Relaxed);
            let Ok(mut stream) = stream else { return };
            let _ = stream.write_all(greeting);
            open.push(stream);
        }
    });
    (port, connects)
}

/// Most tries that the backoff (0.5 s doubled up to 30 s, full jitter) makes likely in that time, with a wide margin.
fn most_tries(watched: Duration) -> usize {
    12 + usize::try_from(watched.as_secs()).unwrap() / 3
}

#[test]
fn links_that_fail_say_why_and_disturb_nobody() {
    let began = Instant::now();
    let mut first = Vendor::start("vendor-a", Behaviour::Good);
    let second = Vendor::start("vendor-b", Behaviour::Good);
    let well = Asterisk::start(Kind::Recent, &[&first, &second]);
    let silent = Asterisk::start(Kind::Old, &[]);
    let (garbage_port, garbage_connects) = listener(b"SSH-2.0-OpenSSH_9.2\r\n\x00\xff\xfe: :\r\n\r\n\r\n");
    let (mute_port, mute_connects) = listener(b"");
    let nodes = [
        Node::of("well", &well),
        // By another name: two nodes with one address would be a mistake in a configuration.
        Node { password: "wrong".to_owned(), host: "localhost", ..Node::of("refused", &well) },
        Node::at("unreachable", ports::kept()),
        Node::at("garbage", garbage_port),
        Node::at("mute", mute_port),
        Node::of("silent", &silent),
    ]
    .map(|node| node.text());
    let quality = "monitor_asr = true\nasr_threshold_percent = 50\nstatistics_window = 2\nretry_batch = 2";
    let pointsman = Pointsman::start(&configuration(&nodes, &["vendor-a", "vendor-b"], quality));
    pointsman.is_in_step_with("well");
    pointsman.is_in_step_with("silent");
    silent.freeze();

    let reason = |id: &str, within: Duration| {
        pointsman.shows(&format!("{id} not up, with a reason"), within, |view| {
            let link = &node_view(view, id).link;
            let down = matches!(link.state, LinkState::Waiting | LinkState::Refused);
            (down && !link.reason.is_empty()).then(|| (link.state, link.reason.clone()))
        })
    };
    let mut reasons = Vec::new();
    for id in ["refused", "unreachable", "garbage", "mute", "silent"] {
        // Silence is noticed after three keepalives of 5 s, or when a greeting does not come.
        let (state, reason) = reason(id, Duration::from_secs(60));
        reasons.push(format!("{id}: {state:?}: {reason}"));
        assert!(pointsman.log().contains(id), "the log does not mention {id}");
    }
    let reasons = reasons.join("\n");
    println!("{reasons}");
    assert!(reasons.contains("refused: Refused"), "{reasons}");

    // Beside all that the link that works does its work.
    for _ in 0..2 {
        assert_eq!(call(&well, "1001", Caller::Talks(50)), 200);
    }
    first.turn(Behaviour::Refuses(503));
    for _ in 0..2 {
        assert_eq!(call(&well, "1002", Caller::Talks(50)), 200);
    }
    pointsman.shows("vendor-a lowered", SOON, |view| (connection(view, "vendor-a").state == State::Bad).then_some(()));
    let mut manager = well.manager();
    crate::lab::eventually("the order on the node that works", SOON, || {
        (manager.global("pm_route_intl") == "vendor-b,vendor-a").then_some(())
    });

    // The silent one comes back and is brought up to date.
    silent.thaw();
    let mut manager = silent.manager();
    crate::lab::eventually("the order on the node that came back", Duration::from_secs(90), || {
        (manager.global("pm_route_intl") == "vendor-b,vendor-a").then_some(())
    });
    pointsman.is_in_step_with("silent");

    // Nobody was hammered, the log least of all.
    let watched = began.elapsed();
    let limit = most_tries(watched);
    for (id, connects) in [("garbage", &garbage_connects), ("mute", &mute_connects)] {
        let tries = connects.load(Ordering::Relaxed);
        assert!((1..=limit).contains(&tries), "{tries} connections to {id} in {watched:?}");
    }
    let refusals = well.log_lines("failed to authenticate").len();
    assert!((1..=1 + usize::try_from(watched.as_secs()).unwrap() / 20).contains(&refusals), "{refusals} logins");
    let complaints = |id: &str| {
        let log = pointsman.log();
        log.lines().filter(|line| line.contains(id) && (line.contains("WARN") || line.contains("ERROR"))).count()
    };
    for id in ["refused", "unreachable", "garbage", "mute"] {
        let lines = complaints(id);
        assert!((1..=limit).contains(&lines), "{lines} lines of the log warn of {id} in {watched:?}");
    }
}

/// Over TLS everything works as over TCP; an authority that we do not trust is refused with a reason.
fn links_over_tls(kind: Kind) {
    let first = Vendor::start("vendor-a", Behaviour::Good);
    let asterisk = Asterisk::start(kind, &[&first]);
    let stranger = Asterisk::start(kind, &[]);
    let node = |id: &str, host: &'static str, authority: &Asterisk| {
        let authority = authority.authority();
        let more = format!("tls = true\ntls_ca_file = {authority:?}\ntls_server_name = \"pbx.test\"");
        Node { host, more, ..Node::at(id, asterisk.tls_port()) }.text()
    };
    let nodes = [node("trusted", "127.0.0.1", &asterisk), node("stranger", "localhost", &stranger)];
    let pointsman = Pointsman::start(&configuration(&nodes, &["vendor-a"], ""));
    pointsman.is_in_step_with("trusted");
    assert_eq!(asterisk.manager().global("pm_route_intl"), "vendor-a");
    assert_eq!(call(&asterisk, "1001", Caller::Talks(50)), 200);
    pointsman.shows("the call counted", SOON, |view| (connection(view, "vendor-a").figures.calls == 1).then_some(()));
    let reason = pointsman.shows("the stranger refused", SOON, |view| {
        let link = &node_view(view, "stranger").link;
        (link.state == LinkState::Waiting && !link.reason.is_empty()).then(|| link.reason.clone())
    });
    println!("{kind:?}: {reason}");
    assert!(reason.contains("certificate"), "{reason}");
}

#[test]
fn links_over_tls_to_a_recent_asterisk() {
    links_over_tls(Kind::Recent);
}

#[test]
fn links_over_tls_to_asterisk_16() {
    links_over_tls(Kind::Old);
}
