//! What docs/edge.md and config/envoy tell operators to write does what they say.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::lab::backend::{Traffic, ask, ask_often};
use crate::lab::folder::Folder;
use crate::lab::{cached, keys};

fn shipped(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The text with this in the place of that, which is there once.
fn with(text: &str, that: &str, this: &str) -> String {
    assert_eq!(text.matches(that).count(), 1, "{that:?} in {text}");
    text.replace(that, this)
}

/// The blocks of that language in docs/edge.md.
fn blocks(language: &str) -> Vec<String> {
    let document = shipped("docs/edge.md");
    let fence = format!("```{language}\n");
    document.split(&fence).skip(1).map(|rest| rest.split_once("```").unwrap().0.to_owned()).collect()
}

/// The block of that language that holds these words.
fn block(language: &str, words: &str) -> String {
    let found = blocks(language).into_iter().find(|block| block.contains(words));
    found.unwrap_or_else(|| panic!("no block of {language} with {words:?}"))
}

/// The shipped configuration, with these ports in the place of its own.
fn wss(xds: u16, listen: u16) -> String {
    let text = with(&shipped("config/envoy/wss.yaml"), "port_value: 443 ", &format!("port_value: {listen} "));
    let text = with(&text, "0.0.0.0", "127.0.0.1");
    let text = with(&text, "port_value: 9901 ", "port_value: 0 ");
    with(&text, "port_value: 18000 ", &format!("port_value: {xds} "))
}

#[test]
fn edges_run_with_the_configuration_that_is_shipped() {
    let (sound, words) = Envoy::validate(&shipped("config/envoy/wss.yaml"));
    assert!(sound, "{words}");
    let (edges, port) = (Edges::start(), ports::kept());
    edges.differ_in_weight();
    let envoy = Envoy::start(&wss(edges.port, port));
    edges.envoy_has(&envoy, WSS, ["HEALTHY", "HEALTHY"]);
    eventually("the port", SOON, || (!ask(port).is_empty()).then_some(()));
    is_in_proportion(&ask_often(port, 1000), edges.weights());
}

/// An edge that knows no node keeps its port closed, for longer than Envoy would by itself, and opens it when it does.
#[test]
fn edges_that_are_there_first_wait_for_the_program() {
    let mut edges = Edges::start();
    edges.pointsman.kill();
    let port = ports::kept();
    let envoy = Envoy::start(&wss(edges.port, port));
    let mut client = edges.client();
    let refused = client.call(&target(MEDIA), 1);
    assert!(refused.keys().all(|by| by.starts_with("!UNAVAILABLE")), "{refused:?}");
    std::thread::sleep(Duration::from_secs(17));
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    edges.pointsman.go();
    edges.envoy_has(&envoy, WSS, ["HEALTHY", "HEALTHY"]);
    let traffic = Traffic::begin(port);
    eventually("gRPC to be served", SOON, || {
        client.call(&target(MEDIA), 1).keys().all(|by| !by.starts_with('!')).then_some(())
    });
    // The port is opened a moment after the nodes are known, and nothing fails from then on.
    let answers: Vec<_> = traffic.end().into_iter().skip_while(|answer| answer.by.is_empty()).collect();
    assert!(!answers.is_empty() && answers.iter().all(|answer| !answer.by.is_empty()));
}

/// A program that hangs keeps its connections open and says nothing: the edge notices, goes on, and follows it again.
#[test]
fn edges_notice_a_program_that_hangs() {
    let (edges, port) = (Edges::start(), ports::kept());
    let envoy = Envoy::start(&wss(edges.port, port));
    edges.envoy_has(&envoy, WSS, ["HEALTHY", "HEALTHY"]);
    eventually("the port", SOON, || (!ask(port).is_empty()).then_some(()));
    assert_eq!(envoy.stat("control_plane.connected_state"), 1);
    let traffic = Traffic::begin(port);
    edges.pointsman.freeze();
    eventually("Envoy to notice", SOON, || (envoy.stat("control_plane.connected_state") == 0).then_some(()));
    edges.pointsman.thaw();
    eventually("Envoy to be back", SOON, || (envoy.stat("control_plane.connected_state") == 1).then_some(()));
    edges.operator("drain", 0);
    edges.envoy_has(&envoy, WSS, ["DRAINING", "HEALTHY"]);
    assert!(traffic.end().iter().all(|answer| NODES.contains(&answer.by.as_str())));
}

/// The listener comes from the program, as the documentation shows it.
#[test]
fn edges_take_a_listener_as_documented() {
    let port = ports::kept();
    let edges = Edges::with("", &format!("listener = {{ listen = \"127.0.0.1:{port}\", protocol = \"tcp\" }}"));
    let text = wss(edges.port, ports::passing());
    let (before, rest) = text.split_once("  listeners:\n").unwrap();
    let (_, clusters) = rest.split_once("  clusters:\n").unwrap();
    let text = format!("{before}  clusters:\n{clusters}");
    let text = with(&text, "\nstatic_resources:", &format!("{}\nstatic_resources:", block("yaml", "lds_config")));
    let envoy = Envoy::start(&text);
    edges.envoy_has(&envoy, WSS, ["HEALTHY", "HEALTHY"]);
    eventually("the port", SOON, || NODES.contains(&ask(port).as_str()).then_some(()));
}

/// A certificate or a token, as the documentation shows them: either is enough.
#[test]
fn edges_show_a_certificate_or_a_token_as_documented() {
    let (server, client) = (Folder::new("server"), Folder::new("client"));
    keys::write(&server, "server", "127.0.0.1");
    keys::write(&client, "client", "127.0.0.1");
    let path = |folder: &Folder, name: &str| folder.join("keys").join(name).display().to_string();
    let edges = Edges::with(
        &format!(
            "tls_cert_file = \"{}\"\ntls_key_file = \"{}\"\ntls_client_ca_file = \"{}\"\n\
             [[xds.tokens]]\nname = \"edges\"\ntoken = \"change-me-change-me\"\n",
            path(&server, "server.crt"),
            path(&server, "server.key"),
            path(&client, "authority.pem"),
        ),
        "",
    );
    let tls = with(&block("yaml", "transport_socket"), "/etc/envoy/authority.pem", &path(&server, "authority.pem"));
    let tls = with(&tls, "/etc/envoy/edge-01.pem", &path(&client, "client.crt"));
    let tls = with(&tls, "/etc/envoy/edge-01.key", &path(&client, "client.key"));
    let (own, rest) =
        (tls.find("            tls_certificates").unwrap(), tls.find("            validation_context").unwrap());
    let nameless = format!("{}{}", &tls[..own], &tls[rest..]);
    let over = |tls: &str| {
        let text = wss(edges.port, ports::passing());
        with(&text, "      connect_timeout: 1s\n", &format!("      connect_timeout: 1s\n{tls}"))
    };
    let below = "  # The clusters, one for each group of pointsman's";
    let token = format!("{}{below}", block("yaml", "initial_metadata"));

    let neither = Envoy::start(&over(&nameless));
    for shown in [over(&tls), with(&over(&nameless), below, &token)] {
        let envoy = Envoy::start(&shown);
        edges.envoy_has(&envoy, WSS, ["HEALTHY", "HEALTHY"]);
    }
    assert!(neither.hosts(WSS).is_empty());
}

/// The client of the documentation, with its bootstrap.
#[test]
fn edges_that_are_python_programs_run_as_documented() {
    let edges = Edges::start();
    edges.differ_in_weight();
    let folder = Folder::new("python");
    let bootstrap = with(&block("json", "insecure"), ":18000", &format!(":{}", edges.port));
    folder.write("xds.json", &bootstrap);
    folder.write("client.py", &block("python", "xds:///media"));
    let output = Command::new(cached("edges/bin/python"))
        .args(["-I", "client.py"])
        .current_dir(folder.path())
        .env("GRPC_XDS_BOOTSTRAP", folder.join("xds.json"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut counted = BTreeMap::new();
    for name in String::from_utf8(output.stdout).unwrap().lines() {
        *counted.entry(name.to_owned()).or_default() += 1;
    }
    is_in_proportion(&counted, edges.weights());
}
