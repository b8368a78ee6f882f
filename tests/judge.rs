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
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("pointsman.toml");
    std::fs::write(&config, CONFIG).expect("written");
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
