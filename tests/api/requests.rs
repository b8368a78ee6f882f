//! What operators and agents say.

use std::time::Duration;

use pointsman::api::Limits;
use pointsman::config::model::Role;
use pointsman::engine::request::{By, Request};
use pointsman::quality::pin::Pin;
use pointsman::score::{Admin, Load};
use pointsman::time::Timestamp;

use crate::client::{send, send_json};
use crate::picture::{key, node_id};
use crate::stage::{SILENCE, Stage};

fn by(why: &str) -> By {
    By { who: "api 127.0.0.1".into(), why: why.into() }
}

#[tokio::test]
async fn a_load_is_handed_to_the_engine() {
    let stage = Stage::set().await;
    let answer =
        send_json(stage.address, "PUT", "/api/nodes/pbx-01/load", r#"{"load_avg": 0.85, "idle_cpu": 35}"#).await;
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    let load = Load { load_avg: Some(0.85), idle_cpu: Some(35.0), memory_free: None };
    assert_eq!(stage.asked(), [Request::PushLoad { node: node_id("pbx-01"), load }]);
}

#[tokio::test]
async fn a_load_that_cannot_be_is_refused() {
    let stage = Stage::set().await;
    let path = "/api/nodes/pbx-01/load";
    for (body, status, expected) in [
        (r#"{"load_avg": -0.1}"#, 422, "load_avg: from 0 to"),
        (r#"{"load_avg": 100001}"#, 422, "load_avg: from 0 to"),
        (r#"{"idle_cpu": 100.5}"#, 422, "idle_cpu: from 0 to 100"),
        (r#"{"memory_free": -1}"#, 422, "memory_free: from 0 to 100"),
        (r#"{"load_avg": "NaN"}"#, 422, "invalid type"),
        (r#"{"load": 1}"#, 422, "unknown field"),
        ("{}", 422, "none of"),
        (r#"{"load_avg": null}"#, 422, "none of"),
        (r#"{"load_avg": NaN}"#, 400, "expected"),
        (r#"{"load_avg": 1e999}"#, 400, "out of range"),
        (r#"{"load_avg": Infinity}"#, 400, "expected"),
        ("{", 400, "EOF"),
        ("", 400, "EOF"),
    ] {
        let detail = send_json(stage.address, "PUT", path, body).await.problem(status, path);
        assert!(detail.contains(expected), "{body}: {detail}");
    }
    assert_eq!(stage.asked(), []);
}

#[tokio::test]
async fn a_node_is_taken_out_of_service() {
    let stage = Stage::set().await;
    for (word, admin) in [("enabled", Admin::Enabled), ("draining", Admin::Draining), ("disabled", Admin::Disabled)] {
        let body = format!(r#"{{"admin": "{word}", "why": " works "}}"#);
        assert_eq!(send_json(stage.address, "PUT", "/api/nodes/pbx-02/admin", &body).await.status, 204);
        assert_eq!(stage.asked(), [Request::SetAdmin { node: node_id("pbx-02"), admin, by: by("works") }]);
    }
    let path = "/api/nodes/pbx-02/admin";
    for body in [r#"{"admin": "off"}"#, r#"{"why": "x"}"#, r#"{"admin": "enabled", "why": "a\nb"}"#] {
        send_json(stage.address, "PUT", path, body).await.problem(422, path);
    }
    let long = format!(r#"{{"admin": "enabled", "why": "{}"}}"#, "я".repeat(501));
    assert!(send_json(stage.address, "PUT", path, &long).await.problem(422, path).contains("at most 500"));
    assert_eq!(stage.asked(), []);
    for path in ["/api/nodes/pbx-99/admin", "/api/nodes/a%0Ab/admin"] {
        send_json(stage.address, "PUT", path, r#"{"admin": "enabled"}"#).await.problem(404, path);
    }
}

/// The end of the one pin that was asked for, having looked at the rest of it.
fn pin_end(stage: &Stage, map: Option<&str>, why: &str) -> Option<Timestamp> {
    let [Request::Pin { key: of, pin: Some(Pin::PinBlock), until, by: who }] = &stage.asked()[..] else {
        panic!("not one pin")
    };
    assert_eq!((of, who), (&key(if map.is_some() { "vendor-c" } else { "vendor-a" }, map), &by(why)));
    *until
}

#[tokio::test]
async fn a_connection_is_pinned_for_a_time_or_for_good() {
    let stage = Stage::set().await;
    let pin = async |path: &str, more: &str| {
        let answer = send_json(stage.address, "PUT", path, &format!(r#"{{"pin": "pin_block"{more}}}"#)).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    };
    pin("/api/connections/vendor-a/pin", "").await;
    assert_eq!(pin_end(&stage, None, ""), None);
    let before = stage.clock.now();
    pin("/api/connections/vendor-c/pin?map=intl", r#", "for_sec": 60, "why": "works""#).await;
    let end = pin_end(&stage, Some("intl"), "works").unwrap();
    let minute = Duration::from_secs(60);
    assert!((before.after(minute)..=stage.clock.now().after(minute)).contains(&end));
    pin("/api/connections/vendor-a/pin", r#", "until": "2096-01-02T03:04:05+01:00""#).await;
    assert_eq!(pin_end(&stage, None, "").unwrap().to_string(), "2096-01-02T02:04:05.000Z");
}

#[tokio::test]
async fn a_pin_that_cannot_be_is_refused() {
    let stage = Stage::set().await;
    let path = "/api/connections/vendor-a/pin";
    for (more, expected) in [
        (r#", "until": "2096-01-02T03:04:05Z", "for_sec": 60"#, "give one of them"),
        (r#", "until": "2020-01-02T03:04:05Z""#, "is over"),
        (r#", "until": "tomorrow""#, "write it as"),
        (r#", "for_sec": 0"#, "for_sec: from 1"),
        (r#", "for_sec": 999999999999"#, "for_sec: from 1"),
        (r#", "for_sec": -1"#, "invalid value"),
        (r#", "for": 1"#, "unknown field"),
    ] {
        let body = format!(r#"{{"pin": "pin_last"{more}}}"#);
        let detail = send_json(stage.address, "PUT", path, &body).await.problem(422, path);
        assert!(detail.contains(expected), "{more}: {detail}");
    }
    assert_eq!(stage.asked(), []);
    let path = "/api/connections/vendor-x/pin";
    send_json(stage.address, "PUT", path, r#"{"pin": "pin_last"}"#).await.problem(404, path);
    // What the engine refuses is told in its words.
    let path = "/api/connections/vendor-a/pin";
    let body = r#"{"pin": "pin_last", "until": "2099-01-02T03:04:05Z"}"#;
    assert_eq!(send_json(stage.address, "PUT", path, body).await.problem(422, path), "too late");
}

#[tokio::test]
async fn a_pin_ends_and_a_connection_begins_anew() {
    let stage = Stage::set().await;
    let answer = send(stage.address, "DELETE", "/api/connections/vendor-b/pin?why=done%20it", &[], "").await;
    assert_eq!(answer.status, 204);
    let key = key("vendor-b", None);
    assert_eq!(stage.asked(), [Request::Pin { key: key.clone(), pin: None, until: None, by: by("done it") }]);
    assert_eq!(
        send_json(stage.address, "POST", "/api/connections/vendor-b/reset", r#"{"why": "x"}"#).await.status,
        204
    );
    assert_eq!(stage.asked(), [Request::Reset { key, by: by("x") }]);
}

#[tokio::test]
async fn the_audit_names_the_token() {
    let stage = Stage::with(&[("noc", Role::Operate, "o")], Limits::default()).await;
    let headers = [("authorization", "Bearer o"), ("content-type", "application/json")];
    let answer = send(stage.address, "POST", "/api/connections/vendor-b/reset", &headers, "{}").await;
    assert_eq!(answer.status, 204);
    let asked = stage.asked();
    assert_eq!(asked, [Request::Reset { key: key("vendor-b", None), by: By { who: "noc".into(), why: "".into() } }]);
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_not_waited_for() {
    let limits = Limits { request: Duration::from_millis(50), ..Limits::default() };
    let stage = Stage::with_limits(limits).await;
    let body = format!(r#"{{"admin": "enabled", "why": "{SILENCE}"}}"#);
    let path = "/api/nodes/pbx-01/admin";
    let detail = send_json(stage.address, "PUT", path, &body).await.problem(503, path);
    assert!(detail.contains("a change may still come to be"), "{detail}");
}
