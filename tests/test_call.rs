//! `pointsman test-call` as an operator runs it: over attempts of the past, and beside a running program.
#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::config::{Format, Purpose, load_text};
use pointsman::engine::run;
use pointsman::engine::view::View;
use pointsman::sim::{Behaviour, Call, Route, freeswitch};
use pointsman::tasks::Tasks;
use serde_json::{Value, json};

const HEADER: &str = "connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome\n";

const SUCCESS: &str = "success_percent = { enabled = true, weight = 20, latency = 10, compensation = 2 }";

const A_THEN_B: &str = r#"{ connection = "a", priority = 10 }, { connection = "b", priority = 20 }"#;

/// A node whose password nobody has: nothing here may need it.
const NODE: &str = r#"
[[nodes]]
id = "pbx-01"
kind = "freeswitch"
address = "127.0.0.1:8021"
password_file = "/nonexistent/secret"
"#;

/// A map `intl` for 00 with those entries and that rule, over connections that nobody monitors.
fn config(criteria: &str, entries: &str) -> String {
    format!(
        "{NODE}
[[connections]]
id = \"a\"
[[connections]]
id = \"b\"
[[connections]]
id = \"c\"
[[routing_rules]]
id = \"standard\"
{criteria}
[[route_maps]]
id = \"intl\"
prefixes = [\"00\"]
rule = \"standard\"
entries = [{entries}]
"
    )
}

/// Asks about 0044123 after these rows, which come from standard input.
fn ask(config: &str, rows: &str, more: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pointsman.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.env_clear().args(["test-call", "0044123", "--attempts", "-", "--config"]).arg(&path).args(more);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // It may have ended without reading.
    let _ = child.stdin.take().unwrap().write_all(format!("{HEADER}{rows}").as_bytes());
    child.wait_with_output().unwrap()
}

/// The table after these rows, of which nothing is to be noted.
fn table(config: &str, rows: &str) -> Value {
    table_if(config, rows, &[])
}

fn table_if(config: &str, rows: &str, more: &[&str]) -> Value {
    let output = ask(config, rows, &[more, &["--json"]].concat());
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn order(table: &Value) -> Vec<(&str, Option<u64>)> {
    let routes = table["routes"].as_array().unwrap().iter();
    routes.map(|route| (route["connection"].as_str().unwrap(), route["place"].as_u64())).collect()
}

fn route<'t>(table: &'t Value, connection: &str) -> &'t Value {
    table["routes"].as_array().unwrap().iter().find(|route| route["connection"] == connection).unwrap()
}

/// Estimate, compensation and penalty.
fn criterion(table: &Value, connection: &str, name: &str) -> [Option<f64>; 3] {
    let seen = &route(table, connection)["criteria"][name];
    ["estimate", "compensation", "penalty"].map(|key| {
        assert!(seen.get(key).is_some(), "{table}");
        seen[key].as_f64()
    })
}

fn close(found: [Option<f64>; 3], expected: [f64; 3]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?} and not {expected}");
    }
}

// ===== the figures =====

/// One success and one failure over latency 10: 100 + (0 - 100) / 10.
#[test]
fn the_table_has_this_shape_and_nothing_else() {
    let rows = "a,1,2,true,1000,,\na,3,4,false,0,,\nb,5,6,true,1000,,\n";
    let expected = json!({
        "map": "intl",
        "number": "0044123",
        "why": "\"00\" is the longest prefix of 0044123 that a map serves",
        "rule": "standard",
        "panic": false,
        "routes": [
            {
                "connection": "a",
                "place": 1,
                "static_priority": 10,
                "criteria": { "success_percent": { "estimate": 90.0, "compensation": 0.0, "penalty": 2.0 } },
                "dynamic_priority": 2.0,
                "priority": 12.0,
                "state": "good",
                "quality": "Connection is not monitored",
                "reason": "priority 10 + 2.00 for success_percent = 12.00",
            },
            {
                "connection": "b",
                "place": 2,
                "static_priority": 20,
                "criteria": { "success_percent": { "estimate": 100.0, "compensation": 0.0, "penalty": 0.0 } },
                "dynamic_priority": 0.0,
                "priority": 20.0,
                "state": "good",
                "quality": "Connection is not monitored",
                "reason": "priority 20, nothing added",
            },
        ],
    });
    assert_eq!(table(&config(SUCCESS, A_THEN_B), rows), expected);
}

#[test]
fn without_a_rule_there_are_no_criteria_and_nothing_is_added() {
    let config = config(SUCCESS, A_THEN_B).replace("rule = \"standard\"\n", "");
    let output = ask(&config, "a,1,2,false,0,,\n", &["--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    // Not -0.0, which the sum of nothing is.
    assert!(text.contains(r#""criteria":{},"dynamic_priority":0.0,"priority":10.0,"#), "{text}");
    assert!(text.contains(r#""rule":null"#), "{text}");
}

#[test]
fn a_disabled_criterion_does_not_appear() {
    let criteria =
        format!("{SUCCESS}\navg_duration_sec = {{ enabled = false, weight = 9, latency = 9, compensation = 9 }}");
    let table = table(&config(&criteria, A_THEN_B), "a,1,2,true,1000,,\n");
    assert_eq!(route(&table, "a")["criteria"].as_object().unwrap().len(), 1);
}

#[test]
fn full_precision_is_kept() {
    let latency_3 = SUCCESS.replace("latency = 10", "latency = 3");
    let table = table(&config(&latency_3, A_THEN_B), "a,1,2,true,1000,,\na,3,4,false,0,,\n");
    assert_eq!(criterion(&table, "a", "success_percent")[0], Some(100.0 + (0.0 - 100.0) / 3.0));
}

/// `a` fails: 10 + 20 is behind the 20 of `b`. Each call over `b` then gives `a` 2 points, worth 20 x 2 / 100 = 0.4.
#[test]
fn a_bypassed_route_gains_until_it_fails_again() {
    let config = config(SUCCESS, A_THEN_B);
    let rows = "a,1,2,false,0,,\nb,3,4,true,1000,,\nb,5,6,true,1000,,\nb,7,8,true,1000,,\na,9,10,false,0,,lost_race\n";
    let before = table(&config, rows);
    // The first call over `b` went past nobody: nothing was known of `b`, so `a` was the best.
    close(criterion(&before, "a", "success_percent"), [0.0, 4.0, 19.2]);
    assert_eq!(order(&before), [("b", Some(1)), ("a", Some(2))]);
    let after = table(&config, &format!("{rows}a,11,12,false,0,,no_answer\n"));
    close(criterion(&after, "a", "success_percent"), [0.0, 0.0, 20.0]);
    let success = table(&config, &format!("{rows}a,11,12,true,1000,,\n"));
    close(criterion(&success, "a", "success_percent"), [10.0, 4.0, 20.0 * 86.0 / 100.0]);
}

/// One bypass makes 150 of nothing: that is 100 when it is compared, or `b` would be 50 points worse than the best.
#[test]
fn an_effective_percentage_is_at_most_100_and_the_compensation_is_not_limited() {
    let config = config(&SUCCESS.replace("compensation = 2", "compensation = 150"), A_THEN_B);
    let table = table(&config, "a,1,2,false,0,,\nb,3,4,true,1000,,\nb,5,6,true,1000,,\n");
    close(criterion(&table, "a", "success_percent"), [0.0, 150.0, 0.0]);
    close(criterion(&table, "b", "success_percent"), [100.0, 0.0, 0.0]);
}

/// 60 s, then 20 s over latency 4: 50. Against 100 s that is half of the weight.
#[test]
fn durations_are_those_of_successful_calls_relative_to_the_best() {
    let duration = "avg_duration_sec = { enabled = true, weight = 30, latency = 4, compensation = 10 }";
    let config = config(duration, A_THEN_B);
    let rows =
        "a,1,2,true,60000,,\na,3,4,true,20000,,\na,5,6,false,0,,\na,5,6,true,0,,\na,5,6,true,,,\nb,7,8,true,100000,,\n";
    let before = table(&config, rows);
    close(criterion(&before, "a", "avg_duration_sec"), [50.0, 0.0, 15.0]);
    assert_eq!(order(&before), [("b", Some(1)), ("a", Some(2))]);
    // Bypassed once: 60 of 100, and 10 + 12 is still more than 20; twice: 70 of 100 and 19.
    let once = table(&config, &format!("{rows}b,9,10,true,100000,,\n"));
    close(criterion(&once, "a", "avg_duration_sec"), [50.0, 10.0, 12.0]);
    let twice = table(&config, &format!("{rows}b,9,10,true,100000,,\nb,11,12,true,100000,,\n"));
    close(criterion(&twice, "a", "avg_duration_sec"), [50.0, 20.0, 9.0]);
    assert_eq!(order(&twice), [("a", Some(1)), ("b", Some(2))]);
}

/// A failure, then a busy callee over latency 2: 50 %. Each bypass takes 10 off.
#[test]
fn failures_of_the_vendor_are_worse_the_more_and_a_bypass_takes_some_off() {
    let failures = "signalling_failure_percent = { enabled = true, weight = 30, latency = 2, compensation = 10 }";
    let config = config(failures, A_THEN_B);
    let rows = "a,1,2,false,0,,\na,3,4,false,0,,busy\na,3,4,false,0,,not_sent\nb,5,6,true,1000,,\n";
    let bypassed = |times: usize| {
        let more: String = (0..times).map(|i| format!("b,{0},{0}.5,true,1000,,\n", 10 + i)).collect();
        let table = table(&config, &format!("{rows}{more}"));
        let first = order(&table)[0].0.to_owned();
        (criterion(&table, "a", "signalling_failure_percent"), first)
    };
    let [(none, _), (once, second), (twice, third)] = [0, 1, 2].map(bypassed);
    close(none, [50.0, 0.0, 15.0]);
    close(once, [50.0, 10.0, 12.0]);
    close(twice, [50.0, 20.0, 9.0]);
    assert_eq!((second.as_str(), third.as_str()), ("b", "a"));
    // 50 less 80 is none at all, and not less than the none of `b`.
    let much = config.replace("compensation = 10", "compensation = 80");
    let table = table(&much, &format!("{rows}b,10,11,true,1000,,\n"));
    close(criterion(&table, "a", "signalling_failure_percent"), [50.0, 80.0, 0.0]);
    close(criterion(&table, "b", "signalling_failure_percent"), [0.0, 0.0, 0.0]);
}

#[test]
fn criteria_add_up() {
    let criteria = format!(
        "{SUCCESS}\navg_duration_sec = {{ enabled = true, weight = 30, latency = 4, compensation = 10 }}
signalling_failure_percent = {{ enabled = true, weight = 8, latency = 4, compensation = 10 }}"
    );
    let rows = "a,1,2,true,40000,,\na,3,4,false,0,,\nb,5,6,true,60000,,\n";
    let table = table(&config(&criteria, A_THEN_B), rows);
    close(criterion(&table, "a", "success_percent"), [90.0, 0.0, 2.0]);
    close(criterion(&table, "a", "avg_duration_sec"), [40.0, 0.0, 10.0]);
    close(criterion(&table, "a", "signalling_failure_percent"), [25.0, 0.0, 2.0]);
    let a = route(&table, "a");
    assert_eq!((a["dynamic_priority"].as_f64(), a["priority"].as_f64()), (Some(14.0), Some(24.0)));
}

#[test]
fn what_was_never_tried_has_no_estimate_and_no_penalty() {
    let table = table(&config(SUCCESS, A_THEN_B), "b,1,2,true,1000,,\na,3,4,false,0,,lost_race\n");
    assert_eq!(criterion(&table, "a", "success_percent"), [None, Some(0.0), Some(0.0)]);
    assert_eq!(route(&table, "a")["reason"], "priority 10; nothing is known of it yet");
}

#[test]
fn equal_priorities_keep_the_order_written() {
    let rows = "a,1,2,false,0,,\nb,3,4,true,1000,,\n";
    let tie = |entries| table(&config(&SUCCESS.replace("weight = 20", "weight = 10"), entries), rows);
    // 10 + 10 against 20.
    assert_eq!(order(&tie(A_THEN_B)), [("a", Some(1)), ("b", Some(2))]);
    let b_first = tie(r#"{ connection = "b", priority = 20 }, { connection = "a", priority = 10 }"#);
    assert_eq!(order(&b_first), [("b", Some(1)), ("a", Some(2))]);
    assert_eq!(
        route(&b_first, "a")["reason"],
        "priority 10 + 10.00 for success_percent = 20.00, as b, which is written before it"
    );
}

/// Of the instant 10: `a` ends and fails before `b` is placed, whichever comes first in the file, so `b` goes past it.
#[test]
fn at_one_instant_ends_come_before_placements_and_what_ends_at_once_after_them() {
    let config = config(SUCCESS, A_THEN_B);
    let known = "b,1,2,true,1000,,\n";
    let ends_first = table(&config, &format!("{known}b,10,11,true,1000,,\na,3,10,false,0,,\n"));
    close(criterion(&ends_first, "a", "success_percent"), [0.0, 2.0, 19.6]);
    let at_once = table(&config, &format!("{known}a,10,10,false,0,,\nb,10,11,true,1000,,\n"));
    close(criterion(&at_once, "a", "success_percent"), [0.0, 0.0, 20.0]);
}

/// docs/routing.md works this out by hand.
#[test]
fn the_example_of_the_documentation_is_right() {
    let rule = "success_percent = { enabled = true, weight = 40, latency = 4, compensation = 5 }";
    let config = config(rule, A_THEN_B);
    let rows = "a,100,160,true,60000,,\na,200,201,false,0,,\na,300,301,false,0,,\nb,301,361,true,60000,,\n";
    let after = |calls: u32, more: &str| {
        let past: String = (0..calls).map(|call| format!("b,{0},{0}.5,true,60000,,\n", 400 + call)).collect();
        let table = table(&config, &format!("{rows}{past}{more}"));
        let first = order(&table)[0].0.to_owned();
        (criterion(&table, "a", "success_percent"), route(&table, "a")["priority"].as_f64().unwrap(), first)
    };
    for (calls, compensation, penalty, priority, first) in [
        (0, 0.0, 17.5, 27.5, "b"),
        (1, 5.0, 15.5, 25.5, "b"),
        (2, 10.0, 13.5, 23.5, "b"),
        (3, 15.0, 11.5, 21.5, "b"),
        (4, 20.0, 9.5, 19.5, "a"),
    ] {
        assert_eq!(after(calls, ""), ([Some(56.25), Some(compensation), Some(penalty)], priority, first.to_owned()));
    }
    let failed = after(4, "a,500,501,false,0,,\n");
    assert_eq!(failed, ([Some(42.1875), Some(0.0), Some(23.125)], 33.125, "b".to_owned()));
}

// ===== maps =====

#[test]
fn a_map_covers_what_is_nested_in_it_by_its_own_rule_only() {
    let nested = r#"{ connection = "a", priority = 10 }, { map = "backup", priority = 20 }"#;
    let failures = "signalling_failure_percent = { enabled = true, weight = 30, latency = 2, compensation = 10 }";
    let backup = format!(
        r#"
[[routing_rules]]
id = "other"
{failures}
[[route_maps]]
id = "backup"
rule = "other"
entries = [{{ connection = "c", priority = 1 }}, {{ connection = "a", priority = 2 }}, {{ connection = "b", priority = 3 }}]
"#
    );
    let config = config(SUCCESS, nested) + &backup;
    let rows = "a,1,2,true,1000,,\nc,3,4,false,0,,\n";
    let outer = table(&config, rows);
    assert_eq!(order(&outer), [("a", Some(1)), ("b", Some(2)), ("c", Some(3))]);
    assert_eq!((&route(&outer, "c")["static_priority"], &outer["rule"]), (&json!(20), &json!("standard")));
    close(criterion(&outer, "c", "success_percent"), [0.0, 0.0, 20.0]);
    assert_eq!(route(&outer, "c")["criteria"].as_object().unwrap().len(), 1);
    let inner = table_if(&config, rows, &["--map", "backup"]);
    let said = ["map", "rule", "why"].map(|key| inner[key].as_str().unwrap());
    assert_eq!(said, ["backup", "other", "it was asked for by name"]);
    close(criterion(&inner, "c", "signalling_failure_percent"), [100.0, 0.0, 30.0]);
}

#[test]
fn rows_of_other_connections_are_noted_once_and_do_not_move_the_time() {
    // `a` is bad at 2 and due for its retry at 602; only what is of the map lets time pass.
    let monitored = "[connections.quality]\nmonitor_asr = true\nasr_threshold_percent = 40\nstatistics_window = 1\n";
    let config = config(SUCCESS, A_THEN_B).replacen("id = \"a\"\n", &format!("id = \"a\"\n{monitored}"), 1);
    let state = |rows: &str| {
        let output = ask(&config, rows, &["--json"]);
        let table: Value = serde_json::from_slice(&output.stdout).unwrap();
        let a = route(&table, "a");
        (a["state"].as_str().unwrap().to_owned(), a["quality"].as_str().unwrap().to_owned(), stderr(&output))
    };
    let lowered = "Connection preference lowered due to bad quality".to_owned();
    let outside = "a,1,2,false,0,,\nc,1,9999,true,1,,\nc,1,9999,true,1,,\n\"new\u{1b}\",1,9999,true,1,,\n";
    let notes = "line 3: the route map intl has no connection \"c\": its rows are ignored\n\
                 line 5: the route map intl has no connection \"new\\u{1b}\": its rows are ignored\n";
    assert_eq!(state(outside), ("last".to_owned(), lowered.clone(), notes.to_owned()));
    assert_eq!(state("a,1,2,false,0,,\nb,1,601.999999,true,1,,\n"), ("last".to_owned(), lowered, String::new()));
    let (word, quality, _) = state("a,1,2,false,0,,\nb,1,602,true,1,,\n");
    assert_eq!((word.as_str(), quality.as_str()), ("retry", "Connection on retry batch (0 of 10)"));
}

#[test]
fn rows_that_cannot_be_read_are_named_and_the_table_is_printed_all_the_same() {
    let output = ask(&config(SUCCESS, A_THEN_B), "a,soon,2,false,0,,\na,1,2,true,1,,\n", &["--json"]);
    assert_eq!(
        stderr(&output),
        "line 2: placed_at \"soon\" is not a time in seconds since the epoch; the row is left out\n\
         1 row could not be read; the others count\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(criterion(&table, "a", "success_percent")[0], Some(100.0));
}

// ===== states =====

/// Three connections that are judged by one call each: what is bad is lowered, blocked or only told of.
const JUDGED: &str = r#"
[quality]
monitor_asr = true
asr_threshold_percent = 40
statistics_window = 1
[[connections]]
id = "a"
quality = { bad_quality_action = "block" }
[[connections]]
id = "b"
[[connections]]
id = "c"
quality = { bad_quality_action = "notify_only", judge_per = "map" }
[[route_maps]]
id = "intl"
prefixes = ["00"]
entries = [
  { connection = "a", priority = 10 },
  { connection = "b", priority = 20 },
  { connection = "c", priority = 30 },
]
[[route_maps]]
id = "rest"
prefixes = [""]
entries = [{ connection = "c", priority = 30 }]
"#;

#[test]
fn states_are_those_that_the_attempts_give_and_blocked_routes_have_no_place() {
    let config = format!("{NODE}{JUDGED}");
    let rows = "a,1,2,false,0,,\nb,1,2,false,0,,\nc,1,2,false,0,,\n";
    let table = table(&config, rows);
    assert_eq!(order(&table), [("c", Some(1)), ("b", Some(2)), ("a", None)]);
    let routes = table["routes"].as_array().unwrap().iter();
    let words: Vec<_> = routes.map(|r| (r["state"].as_str().unwrap(), r["reason"].as_str().unwrap())).collect();
    assert_eq!(
        words,
        [
            ("bad", "priority 30"),
            ("last", "at the end: Connection preference lowered due to bad quality"),
            ("blocked", "left out: Connection blocked due to bad quality"),
        ]
    );
    assert_eq!(route(&table, "a")["place"], Value::Null);
    assert_eq!(self::table(&config, "a,1,2,true,1,,\n")["routes"][0]["quality"], "Connection quality is good");
}

/// Every row is a call of the number's map: `c` is judged there.
#[test]
fn what_is_judged_per_map_is_judged_in_the_map_of_the_number() {
    let rows = "c,1,2,false,0,,\n";
    for (number, map) in [("0044", "intl"), ("112", "rest")] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("p.toml"), format!("{NODE}{JUDGED}")).unwrap();
        std::fs::write(path("a.csv"), format!("{HEADER}{rows}")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
        command.args(["test-call", number, "--json", "--config"]).arg(path("p.toml"));
        let output = command.arg("--attempts").arg(path("a.csv")).output().unwrap();
        let table: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&table["map"], &route(&table, "c")["state"]), (&json!(map), &json!("bad")));
    }
}

/// A CSV has no state of its time: a route that the very same attempts have blocked was gone past like any other.
#[test]
fn a_csv_goes_past_a_route_whatever_its_state() {
    let blocked = "id = \"a\"\nquality = { monitor_asr = true, asr_threshold_percent = 40, statistics_window = 1, \
                   bad_quality_action = \"block\" }\n";
    let config = config(SUCCESS, A_THEN_B).replacen("id = \"a\"\n", blocked, 1);
    let table = table(&config, "a,1,2,false,0,,\nb,3,4,true,1000,,\nb,5,6,true,1000,,\n");
    close(criterion(&table, "a", "success_percent"), [0.0, 2.0, 19.6]);
    assert_eq!(order(&table), [("b", Some(1)), ("a", None)]);
}

#[test]
fn a_map_that_is_blocked_as_a_whole_is_in_a_panic() {
    let blocked = "\n[quality]\nmonitor_asr = true\nasr_threshold_percent = 40\nstatistics_window = 2\n\
                   bad_quality_action = \"block\"\n";
    let config = config(SUCCESS, A_THEN_B).replace(NODE, &format!("{NODE}{blocked}"));
    let rows = "a,1,2,false,0,,\na,1,2,false,0,,\nb,1,2,false,0,,\nb,1,2,false,0,,\n";
    let fails = table(&config, rows);
    assert_eq!((&fails["panic"], order(&fails)), (&json!(true), vec![("a", None), ("b", None)]));
    let kept = config.replace("id = \"intl\"\n", "id = \"intl\"\nwhen_all_blocked = \"least_bad\"\n");
    let kept = table(&kept, rows);
    assert_eq!((&kept["panic"], order(&kept)), (&json!(true), vec![("a", Some(1)), ("b", None)]));
}

// ===== what if =====

#[test]
fn what_is_assumed_moves_routes() {
    let config = config(SUCCESS, A_THEN_B);
    let rows = "a,1,2,false,0,,\nb,3,4,true,1000,,\n";
    let bad = table_if(&config, rows, &["--assume", "b=bad"]);
    assert_eq!(order(&bad), [("a", Some(1)), ("b", Some(2))]);
    assert_eq!(route(&bad, "b")["quality"], "Connection preference lowered due to bad quality (assumed)");
    let blocked = table_if(&config, rows, &["--assume", "a=retry", "--assume", "b=blocked"]);
    assert_eq!(order(&blocked), [("a", Some(1)), ("b", None)]);
    // Without the best route the other one is the best.
    let without = table_if(&config, rows, &["--without", "b"]);
    assert_eq!((order(&without), &route(&without, "a")["priority"]), (vec![("a", Some(1))], &json!(10.0)));
    let text = ask(&config, rows, &["--assume", "b=bad", "--without", "a"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(" ASSUMED  b is bad; a is not there; the rest is as it is\n"), "{text}");
}

// ===== what cannot be answered =====

#[test]
fn what_cannot_be_answered_is_said_in_a_sentence() {
    let config = config(SUCCESS, A_THEN_B);
    for (more, code, said) in [
        (&["--map", "uk"][..], 1, "pointsman: there is no route map \"uk\"; there are intl\n"),
        (&["--without", "c"], 1, "pointsman: the route map intl has no connection c\n"),
        (&["--assume", "c=bad"], 1, "pointsman: the route map intl has no connection c\n"),
        (&["--assume", "a=worse"], 2, "\"a=worse\" is not an assumption"),
        (&["--socket", "x"], 2, "cannot be used with"),
        (&["--nonsense"], 2, "--nonsense"),
    ] {
        let output = ask(&config, "", more);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(code), &b""[..]), "{more:?}");
        assert!(stderr(&output).contains(said), "{more:?}: {}", stderr(&output));
    }
}

#[test]
fn numbers_and_files_that_are_none_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let config_file = dir.path().join("p.toml");
    std::fs::write(&config_file, config(SUCCESS, A_THEN_B)).unwrap();
    let empty = dir.path().join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let missing = dir.path().join("missing.csv");
    let run = |number: &str, attempts: &Path, config: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
        command.args(["test-call", number, "--attempts"]).arg(attempts).arg("--config").arg(config);
        let output = command.output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, said) = run("00x", &empty, &config_file);
    assert_eq!((code, said.starts_with("pointsman: \"00x\" is not a number: digits")), (Some(2), true), "{said}");
    let (code, said) = run("112", &empty, &config_file);
    assert_eq!((code, said.starts_with("pointsman: no route map serves 112")), (Some(1), true), "{said}");
    let (code, said) = run("00", &empty, &config_file);
    assert_eq!((code, said.contains("it is empty: the first line must name the columns")), (Some(1), true), "{said}");
    let (code, said) = run("00", &missing, &config_file);
    assert_eq!((code, said.contains("cannot open")), (Some(1), true), "{said}");
    assert_eq!(run("00", &empty, &missing).0, Some(2));
}

#[test]
fn where_nobody_runs_the_question_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("none.sock");
    let run = |number: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
        let output = command.args(["test-call", number, "--socket"]).arg(&socket).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, said) = run("0044");
    assert_eq!((code, said.contains("no pointsman answers on")), (Some(1), true), "{said}");
    assert_eq!(run("x").0, Some(2));
}

// ===== a running program =====

/// Longest wait for what happens at once on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call each over `a`, which refuses it, and over `b`: the running program and the same attempts as a CSV agree.
#[tokio::test]
async fn a_running_program_answers_with_what_it_knows() {
    let (tasks, clock, dir) = (Tasks::new(), Clock::system(), tempfile::tempdir().unwrap());
    let pbx = freeswitch::Server::start(freeswitch::Options::default(), clock, &tasks).await.unwrap();
    let path = dir.path().join("pointsman.toml");
    let node = NODE
        .replace("127.0.0.1:8021", &pbx.address().to_string())
        .replace("password_file = \"/nonexistent/secret\"", "password = \"ClueCon\"");
    let text = config(SUCCESS, A_THEN_B).replace(NODE, &format!("[http]\nlisten = \"127.0.0.1:0\"\n{node}"));
    std::fs::write(&path, &text).unwrap();
    let loaded = load_text(&path, &text, Format::Toml, [], Purpose::Connect);
    let config = Arc::new(loaded.map_err(|problems| problems.render(false)).unwrap().config);
    let running = run::start(config, clock).await.unwrap();
    let mut views = running.view();
    let in_step = views.wait_for(|view| view.nodes[0].variables.in_step_at.is_some());
    tokio::time::timeout(PATIENCE, in_step).await.unwrap().unwrap();
    let known = |view: &View, connection: &str| {
        let route = view.maps[0].routes.iter().find(|route| route.connection.as_str() == connection);
        route.is_some_and(|route| route.criteria.values().all(|seen| seen.estimate.is_some()))
    };
    let call = async |vendor: &str, behaviour: Behaviour| {
        pbx.set_vendor(vendor, behaviour);
        let talk = Some(Duration::from_millis(20));
        let route = Route::Trunks(vec![vendor.to_owned()]);
        pbx.place_call(Call { talk, ..Call::to("0044123", route) }).report().await;
    };
    call("a", Behaviour::refusing(503)).await;
    tokio::time::timeout(PATIENCE, views.wait_for(|view| known(view, "a"))).await.unwrap().unwrap();
    call("b", Behaviour::instant()).await;
    tokio::time::timeout(PATIENCE, views.wait_for(|view| known(view, "b"))).await.unwrap().unwrap();

    let ask = async |args: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pointsman"));
        command.env_clear().arg("test-call").args(args).arg("--config").arg(&path).output().await.unwrap()
    };
    let json = async |args: &[&str]| {
        let output = ask(args).await;
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let live = json(&["0044 123", "--json"]).await;
    close(criterion(&live, "a", "success_percent"), [0.0, 0.0, 20.0]);
    assert_eq!(order(&live), [("b", Some(1)), ("a", Some(2))]);
    let attempts = dir.path().join("attempts.csv");
    std::fs::write(&attempts, format!("{HEADER}a,1,2,false,0,,\nb,3,4,true,20,,\n")).unwrap();
    assert_eq!(json(&["0044123", "--json", "--attempts", attempts.to_str().unwrap()]).await, live);
    let assumed = json(&["0044123", "--json", "--assume", "b=blocked"]).await;
    assert_eq!(order(&assumed), [("a", Some(1)), ("b", None)]);
    let text = String::from_utf8(ask(&["0044123", "--without", "a"]).await.stdout).unwrap();
    assert!(text.contains("now, in the running pointsman") && text.contains("a is not there"), "{text}");
    for (args, code, said) in [
        (&["0044123", "--map", "uk"][..], 1, "pointsman: there is no route map \"uk\"; there are intl\n"),
        (&["112"], 1, "pointsman: no route map serves 112"),
        (&["0044123", "--without", "c"], 1, "pointsman: the route map intl has no connection c\n"),
        (&["none"], 2, "pointsman: \"none\" is not a number"),
    ] {
        let output = ask(args).await;
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(stderr(&output).starts_with(said), "{args:?}: {}", stderr(&output));
    }
    assert!(running.stop().await);
}
