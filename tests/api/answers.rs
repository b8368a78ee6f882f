//! What is answered to those who look.

use pointsman::balance::Picture;
use pointsman::engine::view::View;
use serde_json::json;

use crate::client::{Answer, get, send};
use crate::picture::snapshot;
use crate::stage::Stage;

#[tokio::test]
async fn a_route_is_answered_by_the_mode_asked_for() {
    let stage = Stage::set().await;
    let answer = get(stage.address, "/api/route").await;
    let mut said = answer.json();
    assert!(!said["reason"].as_str().unwrap().is_empty(), "{said}");
    said.as_object_mut().unwrap().remove("reason");
    let expected = json!({
        "node_id": "pbx-01", "address": "10.0.0.1:5060", "score": 67.48, "mode": "best_score",
        "fallback_active": false, "panic": false, "generation": 3,
    });
    assert_eq!((answer.status, said), (200, expected));
    for mode in ["best_score", "weighted", "round_robin", "least_calls", "ewma", "p2c", "consistent_hash"] {
        let answer = get(stage.address, &format!("/api/route?mode={mode}&key=a%20b")).await.json();
        assert_eq!((&answer["mode"], &answer["node_id"]), (&json!(mode), &json!("pbx-01")));
    }
}

#[tokio::test]
async fn a_route_that_cannot_be_answered_says_why() {
    let stage = Stage::set().await;
    let long = format!("/api/route?key={}", "x".repeat(1025));
    for (path, expected) in [
        ("/api/route?mode=consistent_hash", "needs a key"),
        ("/api/route?mode=consistent_hash&key=", "needs a key"),
        ("/api/route?mode=best", "unknown variant"),
        ("/api/route?mod=best_score", "unknown field"),
        (long.as_str(), "at most 1024"),
    ] {
        let detail = get(stage.address, path).await.problem(400, "/api/route");
        assert!(detail.contains(expected), "{path}: {detail}");
    }
    stage.router.publish(Picture::default());
    assert!(get(stage.address, "/api/route").await.problem(503, "/api/route").contains("no node takes calls"));
}

#[tokio::test]
async fn a_node_shows_all_that_its_score_is_made_of() {
    let stage = Stage::set().await;
    let node = get(stage.address, "/api/nodes/pbx-01").await.json();
    assert_eq!(node["assessment"]["score"], json!(67.48));
    assert_eq!(
        node["assessment"]["terms"][1],
        json!({"name": "load_score", "weight": 0.3, "weight_used": 0.3, "value": 57.5})
    );
    assert_eq!((&node["figures"]["idle_cpu"]["source"], &node["unknown"]), (&json!("pushed"), &json!([])));
    assert_eq!((&node["link"]["state"], &node["excluded_since"]), (&json!("up"), &json!(null)));
    let node = get(stage.address, "/api/nodes/pbx-02").await.json();
    assert_eq!(node["assessment"]["lethal"][1], json!({"reason": "stale", "silent_sec": 33.5}));
    assert_eq!((&node["unknown"], &node["admin"]), (&json!(["idle_score"]), &json!("draining")));
    assert_eq!(node["breaker"]["state"], json!("open"));
    assert!(node["excluded_since"].as_i64().unwrap() > 0);
    let nodes = get(stage.address, "/api/nodes").await.json();
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(nodes["nodes"][1], node);
}

#[tokio::test]
async fn a_connection_shows_what_led_to_its_state() {
    let stage = Stage::set().await;
    let connection = get(stage.address, "/api/connections/vendor-a").await.json();
    assert_eq!((&connection["state"], &connection["figures"]["asr"]), (&json!("bad"), &json!(35.0)));
    assert_eq!(connection["settings"]["asr_threshold_percent"], json!(40.0));
    let left = connection["retry_in_sec"].as_f64().unwrap();
    assert!((500.0..=600.0).contains(&left), "{left}");
    assert_eq!(connection["window"].as_array().unwrap().len(), 2);
    assert_eq!(connection["window"][0]["outcome"], json!("vendor_failed"));
    assert_eq!(connection["failed"][0]["number"], json!("+49301xxxxxxxx"));
    let per_map = get(stage.address, "/api/connections/vendor-c?map=intl").await.json();
    assert_eq!(per_map["key"], json!({"connection": "vendor-c", "map": "intl"}));
    let all = get(stage.address, "/api/connections").await.json();
    assert_eq!(all["connections"].as_array().unwrap().len(), 3);
    assert_eq!(all["connections"][1]["pinned"]["pin"], json!("pin_block"));
    assert_eq!(all["connections"][0]["window"], json!(null));
}

#[tokio::test]
async fn a_connection_that_is_not_there_is_told_apart_from_one_asked_for_wrongly() {
    let stage = Stage::set().await;
    for (path, expected) in [
        ("/api/connections/vendor-x", "no connection \"vendor-x\""),
        ("/api/connections/vendor-c", "add ?map= with one of intl"),
        ("/api/connections/vendor-c?map=x", "add ?map= with one of intl"),
        ("/api/connections/vendor-a?map=intl", "ask without ?map="),
    ] {
        let instance = path.split('?').next().unwrap();
        let detail = get(stage.address, path).await.problem(404, instance);
        assert!(detail.contains(expected), "{path}: {detail}");
    }
    let detail = get(stage.address, "/api/nodes/pbx-99").await.problem(404, "/api/nodes/pbx-99");
    assert!(detail.contains("no node \"pbx-99\""), "{detail}");
}

#[tokio::test]
async fn the_whole_picture_and_the_maps_can_be_read() {
    let stage = Stage::set().await;
    let status: View = serde_json::from_str(&get(stage.address, "/api/status").await.body).unwrap();
    assert_eq!((status.generation, status.nodes.len(), status.maps.len()), (7, 2, 1));
    let maps = get(stage.address, "/api/maps").await.json();
    assert_eq!(maps["maps"][0]["hunt_order"], json!(["vendor-b", "vendor-a"]));
    assert_eq!(maps["maps"][0]["blocked"], json!(["vendor-c"]));
}

#[tokio::test]
async fn what_edges_are_told_is_answered_whole_or_as_known() {
    let stage = Stage::set().await;
    let detail = get(stage.address, "/api/endpoints").await.problem(503, "/api/endpoints");
    assert!(detail.contains("go on with what you hold"), "{detail}");
    let told = snapshot(1_700_000_000_000_004, stage.clock.now());
    stage.tell_edges(told.clone());
    let answer = get(stage.address, "/api/endpoints").await;
    assert_eq!((answer.status, answer.json()), (200, json!(told)));
    assert_eq!(answer.json()["groups"][1]["endpoints"][0]["health"], json!("healthy"));
    let head = |answer: &Answer| ["etag", "cache-control"].map(|name| answer.header(name).unwrap().to_owned());
    assert_eq!(head(&answer), ["\"1700000000000004\"", "no-cache"]);
    let again = send(stage.address, "GET", "/api/endpoints", &[("if-none-match", &head(&answer)[0])], "").await;
    assert_eq!((again.status, again.body.as_str(), head(&again)), (304, "", head(&answer)));
    stage.tell_edges(snapshot(1_700_000_000_000_005, stage.clock.now()));
    let other = send(stage.address, "GET", "/api/endpoints", &[("if-none-match", &head(&answer)[0])], "").await;
    assert_eq!((other.status, &other.json()["generation"]), (200, &json!(1_700_000_000_000_005_u64)));
}

#[tokio::test]
async fn changes_are_filtered_and_counted() {
    let stage = Stage::set().await;
    let count = async |query: &str| {
        let changes = get(stage.address, &format!("/api/changes{query}")).await.json();
        changes["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| change["key"]["connection"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(count("").await, ["vendor-a", "vendor-b"]);
    assert_eq!(count("?limit=1").await, ["vendor-a"]);
    assert_eq!(count("?limit=1&connection=vendor-b").await, ["vendor-b"]);
    assert_eq!(count("?connection=vendor-x").await, [""; 0]);
    for limit in ["0", "101", "-1", "x", ""] {
        get(stage.address, &format!("/api/changes?limit={limit}")).await.problem(400, "/api/changes");
    }
}

#[tokio::test]
async fn the_outbox_can_be_read_tried_and_emptied() {
    let stage = Stage::set().await;
    let outbox = get(stage.address, "/api/outbox").await;
    let letter = &outbox.json()["letters"][0];
    assert_eq!((&letter["number"], &letter["deliveries"][0]["state"]), (&json!(7), &json!("dead")));
    assert!(!outbox.body.contains("secret"), "{}", outbox.body);
    let post = send(stage.address, "POST", "/api/outbox/7/retry", &[], "").await;
    assert_eq!((post.status, post.json()), (200, json!({"deliveries": 1})));
    let delete = send(stage.address, "DELETE", "/api/outbox/7", &[], "").await;
    assert_eq!((delete.status, delete.json()), (200, json!({"deliveries": 1})));
    assert_eq!(get(stage.address, "/api/outbox").await.json(), json!({"letters": []}));
    assert_eq!(get(stage.address, "/api/outbox?all=true").await.json()["letters"][0]["number"], json!(7));
    let none = send(stage.address, "DELETE", "/api/outbox/8", &[], "").await;
    assert!(none.problem(404, "/api/outbox/8").contains("no mail 8"));
}

#[tokio::test]
async fn not_ready_is_told_with_its_reasons_and_alive_all_the_same() {
    let stage = Stage::set().await;
    assert_eq!(get(stage.address, "/readyz").await.json(), json!({"ready": true}));
    stage.publish(|view| {
        view.storage.healthy = false;
        view.storage.problem = "disk full".to_owned();
        view.at = view.at.before(std::time::Duration::from_secs(60));
    });
    let answer = get(stage.address, "/readyz").await;
    let detail = answer.problem(503, "/readyz");
    assert!(detail.contains("published nothing for 6") && detail.contains("nothing is stored: disk full"), "{detail}");
    assert_eq!(answer.json()["reasons"].as_array().unwrap().len(), 2);
    let alive = get(stage.address, "/healthz").await;
    assert_eq!((alive.status, alive.body.as_str()), (200, "ok\n"));
}

#[tokio::test]
async fn a_map_is_answered_by_itself_and_one_that_is_not_there_is_named() {
    let stage = Stage::set().await;
    assert_eq!(get(stage.address, "/api/maps/intl").await.json()["hunt_order"], json!(["vendor-b", "vendor-a"]));
    let detail = get(stage.address, "/api/maps/x").await.problem(404, "/api/maps/x");
    assert!(detail.contains("there is no route map \"x\""), "{detail}");
}
