//! `pointsman demo`, as somebody who tries it sees it.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    // Whatever the environment says about a real pointsman is not meant here.
    command.env_clear().arg("demo").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn shows_a_vendor_lowered_and_recovered() {
    let output = demo(&["--for", "20s", "--seed", "1"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", text(&output.stderr));
    let place = |what: &str| {
        shown.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what:?} in\n{shown}"))
    };
    let linked = place("link  freeswitch-1: linked, FreeSWITCH 1.11");
    let lowered = place("BAD   vendor-north: lowered: ASR");
    let order = place("order calls of intl now try vendor-south first, then vendor-west, then vendor-north");
    let retry = place("retry vendor-north: back in its usual place for a retry batch of 10 calls");
    let recovered = place("GOOD  vendor-north: recovered");
    assert!(linked < lowered && lowered < order && order < retry && retry < recovered, "{shown}");
    // The other switch reads the same order from a list.
    place("link  asterisk-1: linked, Asterisk 22");
    place("shown vendor-north: lowered at");
    // Where to look in a browser, said once: the address stays.
    assert_eq!(shown.matches("in a browser: http://127.0.0.1:").count(), 1, "{shown}");
    // Plain lines where there is no terminal.
    assert!(!shown.contains('\x1b'));
    let directory = shown.lines().find_map(|line| line.split_once("configuration and database: ")).unwrap().1;
    assert!(!Path::new(directory).exists(), "{directory} is left behind");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn for_programs_every_line_is_an_object() {
    let output = demo(&["--for", "500ms", "--json"]);
    assert_eq!(output.status.code(), Some(1), "too short to show anything");
    let lines: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    assert!(lines.iter().all(|line| line["at_sec"].is_number()));
    assert!(
        lines
            .iter()
            .any(|line| line["kind"] == "node" && line["text"].as_str().unwrap().contains("asterisk-1: linked"))
    );
    assert!(lines.iter().any(|line| line["picture"]["connections"].as_array().is_some_and(|all| all.len() == 4)));
    assert!(lines.iter().any(|line| line["kind"] == "summary" && line["text"].as_str().unwrap().contains("too short")));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = demo(&["--for", "20s", "--listen", &address]);
    assert!(!output.status.success());
    let told = text(&output.stderr);
    assert!(told.contains(&format!("cannot listen on {address}: Address already in use")), "{told}");
}

/// The demo's plot restarts the program after some 13 minutes; with the fastest clock that is 13 seconds.
#[test]
fn after_its_restart_the_program_is_where_it_was() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.env_clear().args(["demo", "--for", "60s", "--rate", "60", "--seed", "1"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut address = None;
    let mut restarted = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
        if let Some((_, found)) = line.split_once("in a browser: http://") {
            address = Some(found.trim_end_matches('/').to_owned());
        }
        restarted |= line.contains("pointsman itself is stopped");
        // Told once it listens again.
        if restarted && line.contains("pointsman goes on where it was") {
            TcpStream::connect(address.take().expect("told before")).unwrap();
            break;
        }
    }
    assert!(restarted && address.is_none());
    // It ends by itself, and tidies up, now that nobody reads what it prints.
    child.wait().unwrap();
}

#[test]
fn nonsense_is_wrong_usage() {
    for arguments in [
        ["--for", "-1s"],
        ["--for", "soon"],
        ["--rate", "0"],
        ["--rate", "1000"],
        ["--listen", "8321"],
        ["--listen", "0.0.0.0:0"],
    ] {
        assert_eq!(demo(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}
