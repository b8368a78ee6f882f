//! `pointsman judge` as an operator runs it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const CONFIG: &str = r#"
    [[nodes]]
    id = "pbx-01"
    kind = "freeswitch"
    address = "127.0.0.1:8021"
    password = "ClueCon"

    [[connections]]
    id = "vendor-a"
    [connections.quality]
    monitor_asr = true
    asr_threshold_percent = 40
    statistics_window = 5
    retry_interval_sec = 600
    retry_batch = 2
"#;

/// A vendor with 1 answer in 5 at 104 s; on the threshold (2 of 5) before that.
const ATTEMPTS: &str = "\
connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome
vendor-a,94,95.5,false,0,,busy
vendor-a,95,96.5,true,30000,1200,
vendor-a,96,97.5,true,,800,
vendor-a,97,98.5,false,0,,
vendor-a,98,99.5,false,0,,number_invalid
vendor-a,98.5,99.75,false,0,,lost_race
vendor-a,100,101,false,0,,
vendor-a,102,104.000001,false,0,,
vendor-a,700,703,true,1000,,
vendor-a,704.000001,705,true,60000,250,answered
vendor-a,704.000000,705,false,0,,
vendor-a,706,707,false,0,2000,no_answer
";

fn judge(attempts: &str) -> Output {
    judge_by(CONFIG, attempts)
}

fn judge_by(text: &str, attempts: &str) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("pointsman.toml");
    std::fs::write(&config, text).expect("written");
    let mut child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(["judge", "--config", config.to_str().expect("a path"), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    child.stdin.take().expect("piped").write_all(attempts.as_bytes()).expect("written");
    child.wait_with_output().expect("ended")
}

fn lines(bytes: &[u8]) -> Vec<&str> {
    std::str::from_utf8(bytes).expect("text").lines().collect()
}

const EXPECTED: [&str; 3] = [
    r#"{"at":104.000001,"connection":"vendor-a","from":"good","to":"bad","reason":"asr","calls":5,"asr":20.0,"acd":null,"pdd":0.8}"#,
    r#"{"at":704.000001,"connection":"vendor-a","from":"bad","to":"retry","reason":"retry_interval","calls":0,"asr":null,"acd":null,"pdd":null}"#,
    r#"{"at":707.0,"connection":"vendor-a","from":"retry","to":"good","reason":"batch","calls":2,"asr":50.0,"acd":60.0,"pdd":1.125}"#,
];

#[test]
fn changes_are_printed_as_they_would_have_happened() {
    let output = judge(ATTEMPTS);
    assert_eq!(lines(&output.stderr), [] as [&str; 0]);
    assert_eq!(lines(&output.stdout), EXPECTED);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_order_of_the_rows_does_not_matter() {
    let (header, rows) = ATTEMPTS.split_once('\n').expect("a header");
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.reverse();
    let output = judge(&format!("{header}\n{}\n", rows.join("\n")));
    assert_eq!(lines(&output.stdout), EXPECTED);
}

#[test]
fn bad_rows_are_named_and_the_others_are_judged() {
    let output = judge(&ATTEMPTS.replacen('\n', "\nvendor-a,yesterday,95.5,false,0,,\n", 1));
    assert_eq!(lines(&output.stdout), EXPECTED);
    assert_eq!(
        lines(&output.stderr),
        [
            "line 2: placed_at \"yesterday\" is not a time in seconds since the epoch; the row is left out",
            "1 row could not be read; the others were judged"
        ]
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn timers_fire_up_to_the_last_end_of_the_file_and_no_further() {
    let (bad_only, _) = ATTEMPTS.split_once("vendor-a,700").expect("the first rows");
    assert_eq!(lines(&judge(bad_only).stdout), EXPECTED[..1]);
    let until_just_before = format!("{bad_only}nobody,1,704.000000,false,0,,\n");
    assert_eq!(lines(&judge(&until_just_before).stdout), EXPECTED[..1]);
    let until_the_timer = format!("{bad_only}nobody,1,704.000001,false,0,,\n");
    let output = judge(&until_the_timer);
    assert_eq!(lines(&output.stdout), EXPECTED[..2]);
    assert_eq!(lines(&output.stderr), ["line 10: connection \"nobody\" is not configured: its rows are not judged"]);
    assert_eq!(output.status.code(), Some(0));
}

/// `both` is judged per map and in both maps, `intl` by prefix and the rest by being the rest; `whole` is judged over all.
const PER_MAP: &str = r#"
    [[nodes]]
    id = "pbx-01"
    kind = "freeswitch"
    address = "127.0.0.1:8021"
    password = "ClueCon"

    [quality]
    monitor_asr = true
    asr_threshold_percent = 50
    statistics_window = 2

    [[connections]]
    id = "both"
    quality = { judge_per = "map" }
    [[connections]]
    id = "intl-only"
    quality = { judge_per = "map" }
    [[connections]]
    id = "whole"

    [[route_maps]]
    id = "intl"
    prefixes = ["00"]
    entries = [
        { connection = "both", priority = 10 },
        { connection = "intl-only", priority = 20 },
        { connection = "whole", priority = 30 },
    ]
    [[route_maps]]
    id = "rest"
    prefixes = [""]
    entries = [{ connection = "both", priority = 10 }]
"#;

fn bad(at: &str, connection: &str, map: Option<&str>) -> String {
    let map = map.map(|map| format!(r#","map":"{map}""#)).unwrap_or_default();
    format!(
        r#"{{"at":{at},"connection":"{connection}"{map},"from":"good","to":"bad","reason":"asr","calls":2,"asr":0.0,"acd":null,"pdd":null}}"#
    )
}

#[test]
fn what_is_judged_per_map_is_bad_in_the_map_where_it_fails_and_only_there() {
    let rows = [
        // By the name of the map, whatever the number; by the number where there is no name, or none of a map.
        "both,1,2,false,0,,,intl,112",
        "both,3,4,true,1000,,,rest,0049",
        "both,5,6,false,0,,,,0049",
        "both,7,8,true,1000,,,nonsense,112",
        "whole,9,10,false,0,,,,",
        "whole,11,12,false,0,,,rest,112",
    ];
    let output = judge_by(
        PER_MAP,
        &format!("connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome,map,number\n{}\n", rows.join("\n")),
    );
    assert_eq!(lines(&output.stderr), [] as [&str; 0]);
    assert_eq!(lines(&output.stdout), [bad("6.0", "both", Some("intl")), bad("12.0", "whole", None)]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn one_of_the_two_columns_is_enough() {
    let by_map = "map,connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome\n\
                  rest,both,1,2,false,0,,\nrest,both,3,4,false,0,,\n";
    assert_eq!(lines(&judge_by(PER_MAP, by_map).stdout), [bad("4.0", "both", Some("rest"))]);
    let by_number = by_map.replacen("map", "Number", 1).replace("rest", "0049");
    assert_eq!(lines(&judge_by(PER_MAP, &by_number).stdout), [bad("4.0", "both", Some("intl"))]);
}

#[test]
fn rows_of_no_map_that_holds_the_connection_are_not_judged_and_noted_once() {
    let rows = "intl-only,1,2,false,0,,,rest\nintl-only,3,4,false,0,,,\nintl-only,5,6,false,0,,,intl\n";
    let output =
        judge_by(PER_MAP, &format!("connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome,map\n{rows}"));
    assert_eq!(
        lines(&output.stderr),
        ["line 2: connection \"intl-only\" is judged per map, and this row belongs to none that holds it: such rows \
          are not judged"]
    );
    assert_eq!(lines(&output.stdout), [] as [&str; 0]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_file_that_knows_no_maps_is_judged_as_a_whole_and_says_so_once() {
    let header = "connection,placed_at,ended_at,answered,duration_ms,pdd_ms,outcome\n";
    let rows = "whole,1,2,true,1,,\nboth,1,2,false,0,,\nintl-only,1,2,false,0,,\nboth,3,4,false,0,,\n";
    let output = judge_by(PER_MAP, &format!("{header}{rows}"));
    assert_eq!(
        lines(&output.stderr),
        [
            "line 3: connection \"both\" is judged per map, and the file has no column map or number: such connections are \
          judged over all their rows"
        ]
    );
    assert_eq!(lines(&output.stdout), [bad("4.0", "both", None)]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_columns_of_maps_matter_only_where_something_is_judged_per_map() {
    let twice = ATTEMPTS.replace("outcome\n", "outcome,map,map\n").replace(",busy\n", ",busy,,\n");
    let twice: String = twice
        .lines()
        .map(|line| if line.matches(',').count() == 6 { format!("{line},x,y\n") } else { format!("{line}\n") })
        .collect();
    assert_eq!(lines(&judge(&twice).stdout), EXPECTED);
    let output = judge_by(PER_MAP, &twice);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1: the header names the column map twice"));
}
