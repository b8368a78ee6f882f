//! What operators say of nodes and connections, over HTTP, the control socket and the command line.

use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::control::Request;
use pointsman::engine::view::View;
use pointsman::ids::{ConnectionId, NodeId, QualityKey};
use pointsman::quality::machine::State;
use pointsman::quality::pin::Pin;
use pointsman::score::{Admin, Lethal};

use crate::stage::{Asterisk, FreeSwitch, Program, Stage, node};

fn key(connection: &str) -> QualityKey {
    QualityKey::connection(ConnectionId::new(connection).unwrap())
}

fn pinned(view: &View, connection: &str) -> Option<Pin> {
    let found = view.connections.iter().find(|one| one.key == key(connection)).unwrap();
    found.pinned.as_ref().map(|pinned| pinned.pin)
}

async fn is(program: &Program, connection: &str, state: State) {
    program.sees(|view| view.connections.iter().any(|one| one.key == key(connection) && one.state == state)).await;
}

#[tokio::test]
async fn nodes_are_drained_disabled_and_enabled_and_stay_so_over_a_restart() {
    let stage = Stage::set(Clock::system(), &[FreeSwitch, Asterisk]).await;
    let program = stage.start("").await;
    program.load(0, 0.0, 90.0).await;
    program.load(1, 0.0, 50.0).await;
    program.routes_to(0).await;

    program.change("PUT", "/api/nodes/pbx-01/admin", r#"{"admin": "draining", "why": "new kernel"}"#).await;
    let view = program.sees(|view| node(view, 0).admin == Admin::Draining).await;
    assert_eq!(node(&view, 0).assessment.lethal, [Lethal::Draining]);
    program.routes_to(1).await;
    program.stop().await;

    let program = stage.start("").await;
    let seen = node(&program.running.view().borrow(), 0).clone();
    assert_eq!((seen.admin, seen.assessment.lethal), (Admin::Draining, vec![Lethal::Draining]));
    program.routes_to(1).await;
    let done = stage.command(&["node", "enable", "pbx-01", "--why", "it is in"]).await;
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "pbx-01 takes calls from now on\n");
    let view = program.sees(|view| node(view, 0).admin == Admin::Enabled).await;
    assert_eq!(node(&view, 0).assessment.lethal, []);

    let out = |number: &str| Request::SetNode {
        node: NodeId::new(number).unwrap(),
        admin: Admin::Disabled,
        who: "bob".to_owned(),
        why: String::new(),
    };
    program.control(&out("pbx-01")).await;
    program.control(&out("pbx-02")).await;
    program.sees(|view| view.routing.fallback_active && view.routing.fallback_node.is_none()).await;
    assert_eq!(program.get("/api/route").await.status, 503, "nobody in service, not even as a fallback");
    stage.variable_becomes("pm_best_node", "none").await;
    stage.variable_becomes("pm_best_score", "-100").await;
    stage.variable_becomes("pm_fallback", "1").await;
    let unknown = stage.command(&["node", "drain", "pbx-9"]).await;
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no node pbx-9"), "{unknown:?}");
    program.stop().await;
}

/// The newest change: who said it, and in which words.
async fn last_word(program: &Program) -> (String, String) {
    let changes = program.get("/api/changes?limit=1").await.json();
    let text = |name: &str| changes["changes"][0][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(changes["changes"][0]["reason"], "operator", "{changes}");
    (text("who"), text("words"))
}

#[tokio::test]
async fn a_pin_moves_the_calls_at_once_until_it_is_over_and_is_on_record() {
    let stage = Stage::set(Clock::system(), &[FreeSwitch, Asterisk]).await;
    let program = stage.start("").await;
    stage.variable_becomes("pm_route_intl", "vendor-a,vendor-b").await;

    let path = "/api/connections/vendor-a/pin";
    program.change("PUT", path, r#"{"pin": "pin_last", "why": "rates"}"#).await;
    stage.variable_becomes("pm_route_intl", "vendor-b,vendor-a").await;
    stage.variable_becomes("pm_conn_vendor-a", "last").await;
    program.sees(|view| pinned(view, "vendor-a") == Some(Pin::PinLast)).await;
    let (who, words) = last_word(&program).await;
    assert!(who.contains("127.0.0.1"), "{who}");
    assert_eq!(words, "pinned to the end: rates");

    let done = stage.command(&["override", "vendor-a", "pin_block", "--why", "their works"]).await;
    assert!(done.status.success(), "{done:?}");
    stage.variable_becomes("pm_route_intl", "vendor-b").await;
    stage.variable_becomes("pm_conn_vendor-a", "blocked").await;
    program.sees(|view| pinned(view, "vendor-a") == Some(Pin::PinBlock)).await;
    assert_eq!(last_word(&program).await, ("alice".to_owned(), "pinned: gets no calls: their works".to_owned()));
    program.stop().await;

    let program = stage.start("").await;
    assert_eq!(pinned(&program.running.view().borrow(), "vendor-a"), Some(Pin::PinBlock));
    stage.variable_becomes("pm_route_intl", "vendor-b").await;
    assert_eq!(last_word(&program).await, ("alice".to_owned(), "pinned: gets no calls: their works".to_owned()));
    program.change("DELETE", &format!("{path}?why=done"), "").await;
    stage.variable_becomes("pm_route_intl", "vendor-a,vendor-b").await;
    stage.variable_becomes("pm_conn_vendor-a", "good").await;
    program.sees(|view| pinned(view, "vendor-a").is_none()).await;
    assert_eq!(last_word(&program).await.1, "pin ended: done");
    program.stop().await;
}

#[tokio::test]
async fn the_verdict_goes_on_under_a_pin_and_a_reset_begins_anew() {
    let stage = Stage::set(Clock::system(), &[Asterisk, FreeSwitch]).await;
    let program = stage.start("").await;
    let pin = |pin: Option<Pin>| Request::Pin {
        key: key("vendor-a"),
        pin,
        for_sec: None,
        who: "bob".to_owned(),
        why: "we know".to_owned(),
    };
    program.control(&pin(Some(Pin::PinGood))).await;
    stage.calls(0, "vendor-a", 3, false).await;
    is(&program, "vendor-a", State::Bad).await;
    stage.variable_becomes("pm_route_intl", "vendor-a,vendor-b").await;
    program.control(&pin(None)).await;
    stage.variable_becomes("pm_route_intl", "vendor-b,vendor-a").await;
    stage.variable_becomes("pm_conn_vendor-a", "last").await;

    program.control(&pin(Some(Pin::PinBlock))).await;
    stage.variable_becomes("pm_route_intl", "vendor-b").await;
    program.change("POST", "/api/connections/vendor-a/reset", r#"{"why": "other trunk"}"#).await;
    stage.variable_becomes("pm_route_intl", "vendor-a,vendor-b").await;
    is(&program, "vendor-a", State::Good).await;
    let fresh = program.get("/api/connections/vendor-a").await.json();
    assert_eq!((&fresh["figures"]["calls"], &fresh["pinned"]), (&0.into(), &().into()));
    let (who, words) = last_word(&program).await;
    assert!(who.contains("127.0.0.1"), "{who}");
    assert!(words.contains("reset") && words.contains("other trunk"), "{words}");
    program.stop().await;
}

#[tokio::test]
async fn a_pin_ends_at_its_time_also_over_a_restart() {
    let stage = Stage::set(Clock::running_at(60), &[Asterisk]).await;
    let program = stage.start("").await;
    let until = |view: &View| view.connections.iter().find_map(|one| one.pinned.as_ref()?.until);
    let pin = |connection: &str, for_sec: u64| {
        (format!("/api/connections/{connection}/pin"), format!(r#"{{"pin": "pin_block", "for_sec": {for_sec}}}"#))
    };
    let (path, body) = pin("vendor-a", 120);
    program.change("PUT", &path, &body).await;
    stage.variable_becomes("pm_route_intl", "vendor-b").await;
    let ends_at = until(&*program.sees(|view| until(view).is_some()).await).unwrap();
    stage.variable_becomes("pm_route_intl", "vendor-a,vendor-b").await;
    assert!(stage.clock.now() >= ends_at);
    let view = program.sees(|view| until(view).is_none()).await;
    assert_eq!(&*view.changes[0].words, "the time of its pin is over");

    // Its time is over while nobody is there.
    let (path, body) = pin("vendor-b", 120);
    program.change("PUT", &path, &body).await;
    stage.variable_becomes("pm_route_intl", "vendor-a").await;
    let ends_at = until(&*program.sees(|view| until(view).is_some()).await).unwrap();
    program.stop().await;
    while stage.clock.now() < ends_at {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(stage.pbxs[0].variable("pm_route_intl").as_deref(), Some("vendor-a"), "the last order stays");
    let program = stage.start("").await;
    stage.variable_becomes("pm_route_intl", "vendor-a,vendor-b").await;
    assert_eq!(until(&program.running.view().borrow()), None);
    program.stop().await;
}
