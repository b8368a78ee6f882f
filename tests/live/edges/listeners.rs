//! Listeners that the program pushes: where Envoy is to listen is said in one place, for all of them.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::lab::backend::ask_often;
use crate::lab::http;

fn line(port: u16, protocol: &str) -> String {
    format!("listener = {{ listen = \"127.0.0.1:{port}\", protocol = \"{protocol}\" }}")
}

#[test]
fn edges_open_a_listener_for_tcp_that_is_pushed_and_share_connections_by_weight() {
    let port = ports::kept();
    let edges = Edges::with("", &line(port, "tcp"));
    edges.differ_in_weight();
    for speech in Speech::BOTH {
        let envoy = Envoy::start(&envoy::bootstrap(speech, "edge-01", edges.port).to_string());
        edges.envoy_has(&envoy, WSS, ["HEALTHY", "HEALTHY"]);
        eventually("the listener", SOON, || TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(()));
        is_in_proportion(&ask_often(port, 1000), edges.weights());
    }
}

/// What answers to the wish to change to WebSocket: everything up to the end.
fn upgraded(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let wish = "GET /ws HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(wish.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn edges_open_a_listener_for_http_that_is_pushed_and_pass_websockets_on() {
    let port = ports::kept();
    let edges = Edges::in_front_of(backend::start_http(&NODES), "", &line(port, "http"));
    edges.differ_in_weight();
    for speech in Speech::BOTH {
        let envoy = Envoy::start(&envoy::bootstrap(speech, "edge-01", edges.port).to_string());
        edges.envoy_has(&envoy, WSS, ["HEALTHY", "HEALTHY"]);
        let address = format!("127.0.0.1:{port}");
        eventually("the listener", SOON, || http::get(&address, "/").filter(|(status, _)| *status == 200));
        let mut counted = BTreeMap::new();
        for _ in 0..500 {
            let (status, name) = http::get(&address, "/").expect("an answer");
            assert_eq!(status, 200, "{name}");
            *counted.entry(name).or_default() += 1;
        }
        is_in_proportion(&counted, edges.weights());
        let answer = upgraded(port);
        assert!(answer.starts_with("HTTP/1.1 101 ") && NODES.iter().any(|node| answer.ends_with(node)), "{answer}");
    }
}

/// A listener is elsewhere after a restart of the program with another configuration.
#[test]
fn edges_move_a_listener_when_the_configuration_does() {
    let (old, new) = (ports::kept(), ports::kept());
    let mut edges = Edges::with("", &line(old, "tcp"));
    // Both listen at the same port, which Envoy allows.
    let envoys = Speech::BOTH.map(|speech| Envoy::start(&envoy::bootstrap(speech, "edge-01", edges.port).to_string()));
    let listens = |envoy: &Envoy, port: u16| envoy.admin("/listeners").contains(&format!("127.0.0.1:{port}"));
    for envoy in &envoys {
        eventually("the listener", SOON, || listens(envoy, old).then_some(()));
    }
    edges.pointsman.stop();
    edges.pointsman.change(|text| text.replace(&format!("127.0.0.1:{old}"), &format!("127.0.0.1:{new}")));
    edges.pointsman.go();
    for envoy in &envoys {
        eventually("the listener at its new port", SOON, || {
            (listens(envoy, new) && !listens(envoy, old)).then_some(())
        });
        edges.envoy_has(envoy, WSS, ["HEALTHY", "HEALTHY"]);
    }
    assert!(NODES.contains(&backend::ask(new).as_str()));
}
