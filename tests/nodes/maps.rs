//! Route maps: verdicts per map, rules, the least bad, and what operators ask about a call.

use std::process::Output;

use pointsman::clock::Clock;
use pointsman::engine::view::{MapView, View};
use serde_json::Value;

use crate::stage::{Asterisk, FreeSwitch, Program, Stage};

const PER_MAP: &str = r#"
[quality]
judge_per = "map"
monitor_asr = true
asr_threshold_percent = 60
statistics_window = 3
retry_batch = 2
retry_interval_sec = 86400
[[connections]]
id = "vendor-a"
[[connections]]
id = "vendor-b"
[[route_maps]]
id = "intl"
prefixes = ["00"]
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
[[route_maps]]
id = "uk"
prefixes = ["0044"]
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
"#;

const RULED: &str = r#"
[[connections]]
id = "vendor-a"
[[connections]]
id = "vendor-b"
[[routing_rules]]
id = "standard"
success_percent = { enabled = true, weight = 40, latency = 2, compensation = 10 }
[[route_maps]]
id = "intl"
prefixes = ["00"]
rule = "standard"
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
"#;

const LEAST_BAD: &str = r#"
[quality]
monitor_asr = true
asr_threshold_percent = 60
statistics_window = 4
retry_interval_sec = 86400
bad_quality_action = "block"
[[connections]]
id = "vendor-a"
[[connections]]
id = "vendor-b"
[[route_maps]]
id = "intl"
prefixes = ["00"]
when_all_blocked = "least_bad"
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
[[route_maps]]
id = "strict"
prefixes = ["0"]
entries = [{ connection = "vendor-a", priority = 10 }]
"#;

fn map<'a>(view: &'a View, name: &str) -> &'a MapView {
    view.maps.iter().find(|map| map.id.as_str() == name).unwrap()
}

/// Waits until calls of that map try these, in this order.
async fn tries(program: &Program, name: &str, order: &[&str]) {
    program.sees(|view| map(view, name).hunt_order.iter().map(|one| one.as_str()).eq(order.iter().copied())).await;
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn a_vendor_that_fails_for_one_destination_is_lowered_there_and_only_there() {
    let stage = Stage::planned(Clock::system(), &[FreeSwitch, Asterisk], PER_MAP).await;
    let program = stage.start("").await;
    // On both switches, by the number or by the dialplan's word, which goes before it.
    stage.call(0, "vendor-a", "00442071838750", None, false).await;
    stage.call(1, "vendor-a", "0049301234", Some("uk"), false).await;
    stage.call(0, "vendor-a", "0049301234", Some("uk"), false).await;
    stage.call(1, "vendor-a", "0049301234", None, true).await;
    stage.call(0, "vendor-a", "00442071838750", Some("intl"), true).await;
    stage.call(0, "vendor-a", "0049301234", Some("nonsense"), true).await;
    stage.call(0, "vendor-a", "112", None, false).await;
    tries(&program, "uk", &["vendor-b", "vendor-a"]).await;
    stage.variable_becomes("pm_route_uk", "vendor-b,vendor-a").await;
    stage.variable_becomes("pm_conn_vendor-a_uk", "last").await;
    stage.variable_becomes("pm_route_intl", "vendor-a,vendor-b").await;
    assert_eq!(stage.pbxs[0].variable("pm_conn_vendor-a_intl").as_deref(), Some("good"));
    assert_eq!(stage.pbxs[0].variable("pm_conn_vendor-a"), None);
    let view = program.sees(|view| view.connections[0].unmapped == 1).await;
    let of = |name: &str| view.connections.iter().find(|one| one.key.to_string() == name).unwrap().figures.calls;
    assert_eq!((of("vendor-a (uk)"), of("vendor-a (intl)"), view.connections.len()), (3, 3, 4));
    assert_eq!(program.get("/api/connections/vendor-a?map=uk").await.json()["state"], "bad");
    assert_eq!(program.get("/api/connections/vendor-a?map=intl").await.json()["state"], "good");
    program.stop().await;

    let program = stage.start("").await;
    tries(&program, "uk", &["vendor-b", "vendor-a"]).await;
    let pinned = stage.command(&["override", "vendor-a", "pin_good", "--map", "uk"]).await;
    assert!(pinned.status.success(), "{pinned:?}");
    tries(&program, "uk", &["vendor-a", "vendor-b"]).await;
    program.stop().await;
}

#[tokio::test]
async fn a_rule_moves_calls_to_the_better_route_and_tries_the_other_again() {
    let stage = Stage::planned(Clock::system(), &[FreeSwitch, Asterisk], RULED).await;
    let program = stage.start("").await;
    stage.call(0, "vendor-b", "0049301234", None, true).await;
    stage.call(1, "vendor-a", "0049301234", None, false).await;
    // 40 * 100 / 100 = 40 on top of 10: behind 20.
    tries(&program, "intl", &["vendor-b", "vendor-a"]).await;
    stage.variable_becomes("pm_route_intl", "vendor-b,vendor-a").await;
    let answer = program.get("/api/maps/intl").await.json();
    let last = &answer["routes"][1];
    let table = stage.command(&["test-call", "0049301234", "--json"]).await;
    let table: Value = serde_json::from_slice(&table.stdout).unwrap();
    assert_eq!(table, program.get("/api/test-call?number=0049301234").await.json());
    assert_eq!((&table["routes"][1]["priority"], &table["map"]), (&last["priority"], &Value::from("intl")));
    let assumed = program.get("/api/test-call?number=00&assume=vendor-b%3Dbad").await.json();
    assert_eq!(assumed["routes"][0]["connection"], "vendor-a");
    assert_eq!((&last["connection"], &last["priority"]), (&Value::from("vendor-a"), &Value::from(50.0)));
    assert_eq!(last["criteria"]["success_percent"]["penalty"], 40.0);
    program.stop().await;

    let program = stage.start("").await;
    tries(&program, "intl", &["vendor-b", "vendor-a"]).await;
    // Each bypass is worth 10 points, which are 4 of priority: after 8 of them 40 - 32 = 8 is less than the 10 between.
    for bypass in 1..=7 {
        stage.call(bypass % 2, "vendor-b", "0049301234", None, true).await;
    }
    program.sees(|view| map(view, "intl").routes[1].criteria.values().all(|seen| seen.compensation == 70.0)).await;
    tries(&program, "intl", &["vendor-b", "vendor-a"]).await;
    stage.call(0, "vendor-b", "0049301234", None, true).await;
    tries(&program, "intl", &["vendor-a", "vendor-b"]).await;
    stage.variable_becomes("pm_route_intl", "vendor-a,vendor-b").await;
    stage.call(0, "vendor-a", "0049301234", None, false).await;
    tries(&program, "intl", &["vendor-b", "vendor-a"]).await;
    program.stop().await;
}

#[tokio::test]
async fn where_all_connections_are_blocked_the_least_bad_one_may_stay() {
    let stage = Stage::planned(Clock::system(), &[FreeSwitch], LEAST_BAD).await;
    let program = stage.start("").await;
    for good in [false, false, false, false] {
        stage.call(0, "vendor-a", "0049", None, good).await;
    }
    tries(&program, "intl", &["vendor-b"]).await;
    for good in [true, true, false, false] {
        stage.call(0, "vendor-b", "0049", None, good).await;
    }
    let view = program.sees(|view| map(view, "intl").panic).await;
    tries(&program, "intl", &["vendor-b"]).await;
    let reason = &map(&view, "intl").routes[0].reason;
    assert!(reason.starts_with("kept because every connection of the map is blocked"), "{reason}");
    assert!(map(&view, "strict").panic && map(&view, "strict").hunt_order.is_empty());
    stage.variable_becomes("pm_route_intl", "vendor-b").await;
    stage.variable_becomes("pm_conn_vendor-b", "blocked").await;
    stage.variable_becomes("pm_route_strict_count", "0").await;
    assert_eq!(program.get("/api/route").await.json()["panic"], true);
    let status = printed(&stage.command(&["status"]).await);
    assert!(
        status.contains("PANIC: every connection of intl is blocked; calls go to vendor-b, the least bad"),
        "{status}"
    );
    // An operator's word goes before it.
    let blocked = stage.command(&["override", "vendor-b", "pin_block"]).await;
    assert!(blocked.status.success(), "{blocked:?}");
    tries(&program, "intl", &["vendor-a"]).await;
    stage.variable_becomes("pm_route_intl", "vendor-a").await;
    assert!(stage.command(&["override", "vendor-b", "unpin"]).await.status.success());
    stage.variable_becomes("pm_route_intl", "vendor-b").await;
    // It gets the calls, and fails at them: the other one is no worse now, and written before it.
    for good in [false, false] {
        stage.call(0, "vendor-b", "0049", None, good).await;
    }
    tries(&program, "intl", &["vendor-a"]).await;
    stage.variable_becomes("pm_route_intl", "vendor-a").await;
    program.stop().await;
}

#[tokio::test]
async fn test_dialplan_says_what_a_call_tries_and_whether_every_switch_knows() {
    let stage = Stage::planned(Clock::system(), &[FreeSwitch, Asterisk], PER_MAP).await;
    let program = stage.start("").await;
    let answer = stage.command(&["test-dialplan", "0044 20 7183 8750"]).await;
    let text = printed(&answer);
    assert!(answer.status.success(), "{text}");
    for expected in [
        "00442071838750: route map uk\n",
        "\"0044\" is the longest prefix",
        "  1  vendor-a  Not enough calls yet (0 of 3)\n",
        " pbx-01: as they should be\n",
        "   pm_route_uk_2        vendor-b\n",
        "   pm_conn_vendor-a_uk  good\n",
        " pbx-02: as they should be\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }

    stage.pbxs[0].set_variable("pm_route_uk_1", "vendor-x");
    let answer = stage.command(&["test-dialplan", "0044", "--json"]).await;
    assert_eq!(answer.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(report, program.get("/api/test-dialplan?number=0044").await.json());
    let of = |node: usize, name: &str| {
        let variables = report["nodes"][node]["variables"].as_array().unwrap();
        variables.iter().find(|variable| variable["name"] == name).cloned()
    };
    let differs = of(0, "pm_route_uk_1").unwrap();
    assert_eq!((&differs["wanted"], &differs["held"]), (&Value::from("vendor-a"), &Value::from("vendor-x")));
    assert_eq!((&report["nodes"][0]["agrees"], &report["nodes"][1]["agrees"]), (&false.into(), &true.into()));
    assert_eq!((&report["agrees"], of(1, "pm_route_uk_1")), (&false.into(), None));

    stage.kill(1);
    program.sees(|view| view.nodes[1].link.state != pointsman::engine::view::LinkState::Up).await;
    let text = printed(&stage.command(&["test-dialplan", "0044"]).await);
    assert!(text.contains(" pbx-02: NOT READ: "), "{text}");
    program.stop().await;
}

#[tokio::test]
async fn test_dialplan_takes_assumptions_and_refuses_nonsense() {
    let stage = Stage::planned(Clock::system(), &[FreeSwitch], PER_MAP).await;
    let program = stage.start("").await;
    let path = "/api/test-dialplan?number=112&map=intl&assume=vendor-a%3Dbad";
    let report = program.get(path).await.json();
    assert_eq!((&report["assumed"], &report["agrees"]), (&true.into(), &true.into()));
    assert_eq!(report["routes"][0]["connection"], "vendor-b");
    let without = program.get("/api/test-dialplan?number=0044&without=vendor-a").await.json();
    assert_eq!(without["routes"].as_array().unwrap().len(), 1);
    for (query, status, expected) in [
        ("number=112", 404, "no route map serves 112"),
        ("number=112&map=x", 404, "there is no route map"),
        ("number=0044&without=vendor-x", 404, "has no connection vendor-x"),
        ("number=0044&assume=vendor-a", 422, "is not an assumption"),
        ("number=abc", 422, "is not a number"),
        ("map=uk", 400, "missing field `number`"),
    ] {
        let path = format!("/api/test-dialplan?{query}");
        let answer = program.get(&path).await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(expected), "{query}: {answer:?}");
    }
    for (args, code, expected) in [
        (&["test-dialplan", "112"][..], 1, "no route map serves 112"),
        (&["test-dialplan", "abc"], 2, "\"abc\" is not a number"),
        (&["test-dialplan", "0044", "--assume", "vendor-a=worse"], 2, "is not an assumption"),
        (&["test-dialplan", "0044", "--map", "x"], 1, "there is no route map \"x\"; there are intl, uk"),
    ] {
        let answer = stage.command(args).await;
        assert_eq!(answer.status.code(), Some(code), "{answer:?}");
        assert!(printed(&answer).contains(expected), "{answer:?}");
        assert!(!printed(&answer).contains("refused the request"), "{answer:?}");
    }
    program.stop().await;
}
