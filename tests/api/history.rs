//! The past, out of a real database.

use std::path::PathBuf;
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::config::model::Storage;
use pointsman::ids::QualityKey;
use pointsman::quality::machine::{Change, Reason, State};
use pointsman::quality::window::{Epoch, Figures};
use pointsman::store::{ChangeRow, POINTSMAN, Store, StoreOp, Tally, Whose};
use pointsman::tasks::Tasks;
use pointsman::time::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::get;
use crate::picture::{key, node_id};
use crate::stage::{PATIENCE, Stage};

const MINUTE: Duration = Duration::from_secs(60);

/// A stage over a database that holds this.
pub(crate) async fn past(ops: impl IntoIterator<Item = StoreOp>) -> (Stage, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("pointsman.db");
    let tasks = Tasks::new();
    let storage = Storage { path: path.clone(), keep: Duration::from_secs(30 * 24 * 3600) };
    let writer = Store::open(&storage).await.unwrap().0.start(Clock::system(), &tasks);
    writer.write_all(ops);
    assert!(writer.flush(PATIENCE).await);
    assert!(tasks.stop(PATIENCE).await);
    (Stage::over(&path).await, folder)
}

fn ago(minutes: u32) -> Timestamp {
    Clock::system().now().before(MINUTE * minutes)
}

pub(crate) fn count(minutes: u32, whose: Whose, calls: u64) -> StoreOp {
    let tally = Tally {
        calls,
        successes: 1,
        talks: 1,
        talk_ms: 30_500,
        effective: 1,
        outcomes: [1, calls - 1, 0, 0, 0, 0, 0, 2, 0, 0],
        max_active: 6,
        ..Tally::default()
    };
    StoreOp::Count { at: ago(minutes), whose, tally }
}

pub(crate) fn changed(n: u64, key: QualityKey, to: State, who: &str) -> StoreOp {
    let at = ago(1000).after(MINUTE * u32::try_from(n).unwrap());
    let figures = Figures { calls: 20, asr: Some(35.0), ..Figures::default() };
    let change = Change { at, from: State::Good, to, reason: Reason::Asr, epoch: Epoch(n), figures };
    StoreOp::Changed(Box::new(ChangeRow { key, change, words: format!("change {n}").into(), who: who.into() }))
}

/// The buckets in which something was counted.
fn filled(answer: &Value) -> Vec<&Value> {
    answer["buckets"].as_array().unwrap().iter().filter(|bucket| !bucket["calls"].is_null()).collect()
}

#[tokio::test]
async fn a_connection_and_a_node_show_what_they_did() {
    let vendor = Whose::Connection(key("vendor-a", None));
    let per_map = Whose::Connection(key("vendor-c", Some("intl")));
    let (stage, _folder) = past([
        count(30, vendor.clone(), 4),
        count(600, vendor.clone(), 2),
        count(3 * 24 * 60, vendor, 10),
        count(30, per_map, 5),
        count(30, Whose::Node(node_id("pbx-01")), 8),
    ])
    .await;
    let answer = get(stage.address, "/api/connections/vendor-a/history").await.json();
    assert_eq!((&answer["span"], &answer["bucket_sec"]), (&json!("24h"), &json!(300)));
    let length = answer["to"].as_i64().unwrap() - answer["from"].as_i64().unwrap();
    assert_eq!((length, answer["buckets"].as_array().unwrap().len()), (24 * 3_600_000_000, 288));
    assert_eq!(filled(&answer).iter().map(|bucket| bucket["calls"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 4]);
    let newest = filled(&answer)[1];
    assert_eq!((&newest["asr"], &newest["acd"], &newest["pdd"]), (&json!(25.0), &json!(30.5), &json!(null)));
    assert_eq!((&newest["outcomes"]["busy"], &newest["outcomes"]["lost_race"]), (&json!(3), &json!(2)));
    assert_eq!((&answer["total"]["calls"], &answer["total"]["ner"]), (&json!(6), &json!(100.0)));
    let gap = &answer["buckets"][0];
    assert_eq!((&gap["asr"], &gap["outcomes"], &gap["max_active"]), (&json!(null), &json!(null), &json!(null)));
    for (path, calls) in [
        ("/api/connections/vendor-a/history?span=7d", json!(16)),
        ("/api/connections/vendor-a/history?span=1h", json!(4)),
        ("/api/connections/vendor-b/history?span=30d", json!(null)),
        ("/api/connections/vendor-c/history?map=intl", json!(5)),
        ("/api/nodes/pbx-01/history?span=24h", json!(8)),
        ("/api/nodes/pbx-02/history", json!(null)),
    ] {
        assert_eq!(get(stage.address, path).await.json()["total"]["calls"], calls, "{path}");
    }
    let node = get(stage.address, "/api/nodes/pbx-01/history").await.json();
    assert_eq!(filled(&node)[0]["max_active"], json!(6));
}

#[tokio::test]
async fn a_past_that_is_asked_for_wrongly_is_refused() {
    let (stage, _folder) = past([]).await;
    for (status, path, query, expected) in [
        (404, "/api/connections/vendor-x/history", "", "no connection"),
        (404, "/api/connections/vendor-c/history", "", "add ?map="),
        (404, "/api/nodes/pbx-99/history", "", "no node"),
        (400, "/api/connections/vendor-a/history", "?span=2h", "unknown variant"),
        (400, "/api/nodes/pbx-01/history", "?map=intl", "unknown field"),
        (400, "/api/changes", "?before=yesterday", "neither the id of a change nor a time"),
    ] {
        let detail = get(stage.address, &format!("{path}{query}")).await.problem(status, path);
        assert!(detail.contains(expected), "{path}{query}: {detail}");
    }
}

#[tokio::test]
async fn changes_are_read_page_by_page_out_of_the_database() {
    let (a, b) = (key("vendor-a", None), key("vendor-c", Some("intl")));
    let ops = (1..=7).map(|n| {
        let (key, who) = if n % 2 == 1 { (&a, POINTSMAN) } else { (&b, "api noc") };
        changed(n, key.clone(), if n > 3 { State::Bad } else { State::Good }, who)
    });
    let (stage, _folder) = past(ops).await;
    let page = async |query: &str| {
        let answer = get(stage.address, &format!("/api/changes?{query}")).await.json();
        let changes = answer["changes"].as_array().unwrap().clone();
        let epochs: Vec<u64> = changes.iter().map(|change| change["epoch"].as_u64().unwrap()).collect();
        (epochs, answer["more"].clone(), changes.last().map(|change| change["id"].as_str().unwrap().to_owned()))
    };
    let now = Clock::system().now().as_micros();
    let (first, more, last) = page(&format!("before={now}&limit=3")).await;
    assert_eq!((first, more), (vec![7, 6, 5], json!(true)));
    let (second, more, last) = page(&format!("before={}&limit=3", last.unwrap())).await;
    assert_eq!((second, more), (vec![4, 3, 2], json!(true)));
    // The id of a change of one map has a slash in it.
    let (third, more, _) = page(&format!("before={}&limit=3", last.unwrap().replace('/', "%2F"))).await;
    assert_eq!((third, more), (vec![1], json!(false)));
    for (query, expected) in [
        ("connection=vendor-a", vec![7, 5, 3, 1]),
        ("map=intl", vec![6, 4, 2]),
        ("map=", vec![7, 5, 3, 1]),
        ("state=bad&map=intl", vec![6, 4]),
        ("who=api%20noc", vec![6, 4, 2]),
        ("who=nobody", vec![]),
        ("connection=no%20id", vec![]),
    ] {
        assert_eq!(page(&format!("before={now}&{query}")).await.0, expected, "{query}");
    }
    // Without a place to begin at, the latest of the picture, and the same filters.
    let (latest, more, _) = page("").await;
    assert_eq!((latest.len(), more), (2, Value::Null));
    assert_eq!(page("state=retry").await.0, [0; 0]);
    assert_eq!(page("map=intl").await.0, [0; 0]);
}

#[tokio::test]
async fn without_a_database_only_the_past_is_missing() {
    let stage = Stage::set().await;
    for (path, query) in [
        ("/api/connections/vendor-a/history", ""),
        ("/api/nodes/pbx-01/history", "?span=30d"),
        ("/api/changes", "?before=1"),
    ] {
        let detail = get(stage.address, &format!("{path}{query}")).await.problem(503, path);
        assert!(detail.contains("there is no database"), "{path}: {detail}");
    }
    assert_eq!(get(stage.address, "/api/changes").await.status, 200);
}

#[tokio::test]
async fn a_plot_shows_the_past_of_a_connection_with_its_threshold_and_states() {
    let a = key("vendor-a", None);
    let (stage, _folder) = past([
        count(30, Whose::Connection(a.clone()), 4),
        count(600, Whose::Connection(a.clone()), 2),
        changed(300, a.clone(), State::Bad, POINTSMAN),
        changed(400, key("vendor-c", Some("intl")), State::Retry, POINTSMAN),
    ])
    .await;
    let path = "/api/connections/vendor-a/plot.svg";
    for metric in ["asr", "acd", "pdd", "attempts", "outcomes"] {
        let answer = get(stage.address, &format!("{path}?metric={metric}")).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/svg+xml")), "{metric}");
        assert!(answer.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        let (start, end) = ("<svg xmlns=\"http://www.w3.org/2000/svg\"", "</svg>");
        assert!(answer.body.starts_with(start) && answer.body.ends_with(end), "{}", answer.body);
        assert!(answer.body.contains("class=\"bad\"") && !answer.body.contains("class=\"retry\""), "{}", answer.body);
    }
    let russian =
        get(stage.address, &format!("{path}?metric=asr&lang=ru&zone=Europe/Moscow&span=7d&size=narrow")).await;
    assert!(russian.body.contains("порог 40"), "{}", russian.body);
    assert!(russian.body.contains("(UTC+3)") && russian.body.contains("viewBox=\"0 0 360 "), "{}", russian.body);
    for (status, query, expected) in [
        (400, "", "missing field `metric`"),
        (400, "?metric=mos", "unknown variant"),
        (400, "?metric=asr&lang=de", "unknown variant"),
        (422, "?metric=asr&zone=Mars/North", "zone: "),
        (404, "?metric=asr&map=intl", "ask without ?map="),
    ] {
        let detail = get(stage.address, &format!("{path}{query}")).await.problem(status, path);
        assert!(detail.contains(expected), "{query}: {detail}");
    }
    let without = Stage::set().await;
    get(without.address, &format!("{path}?metric=asr")).await.problem(503, path);
}
