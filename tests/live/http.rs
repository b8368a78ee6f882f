//! The HTTP API of the whole program, by programs that others wrote: schemathesis tries what its document allows and
//! what it does not, promtool reads its figures and what asks for them, wrk asks for routes while nodes come and go.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use pointsman::time::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::dashboard::edges;
use crate::lab::cached;
use crate::lab::folder::Folder;
use crate::lab::scene::Scene;

/// Longest that one of the programs may take.
const PATIENCE: Duration = Duration::from_secs(240);

/// Whom the calls can be sent to.
const VENDORS: &str = r#"
[quality]
monitor_asr = true
asr_threshold_percent = 40
[[connections]]
id = "vendor-a"
[[connections]]
id = "vendor-b"
[[route_maps]]
id = "intl"
prefixes = ["00"]
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
"#;

/// What a program printed, and whether it was content.
async fn run(command: &mut Command, input: &[u8]) -> (bool, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("installed by scripts/live-setup");
    let mut stdin = child.stdin.take().unwrap();
    let feed = async move { stdin.write_all(input).await };
    let both = async { tokio::join!(child.wait_with_output(), feed) };
    let (output, _) = tokio::time::timeout(PATIENCE, both).await.expect("an end in time");
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// With edges of every kind.
async fn with_edges() -> (Scene, impl Sized) {
    let scene = Scene::set(&format!("{VENDORS}{}", edges::CONFIG)).await;
    let registry = scene.running.xds().unwrap();
    let there = edges::clients(Timestamp::from_secs(1_796_036_585)).map(|client| registry.enter(client));
    registry.enter(edges::clients(Timestamp::from_secs(1))[0].clone()).ends(true, "it floods".to_owned());
    (scene, there)
}

/// Everything that the document allows is answered as it says, and everything else is refused as it says. Left out: the
/// event stream, which does not end; and that every body of the right form is taken, because a form cannot say that two
/// keys exclude each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_the_api_does_what_its_document_says() {
    let (scene, _there) = with_edges().await;
    let mut schemathesis = Command::new(cached("schemathesis/bin/schemathesis"));
    schemathesis.args(["run", &scene.url("/api/openapi.json"), "--exclude-path", "/api/events"]);
    schemathesis.args([
        "--exclude-checks",
        "positive_data_acceptance",
        "--max-examples",
        "20",
        "--seed",
        "1",
        "--no-color",
    ]);
    schemathesis.current_dir(scene.folder.path());
    let (content, printed) = run(&mut schemathesis, b"").await;
    assert!(content, "{printed}");
    println!("{}", printed.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
    assert!(scene.running.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_the_figures_are_as_prometheus_wants_them() {
    let (scene, _there) = with_edges().await;
    let (content, figures) = run(Command::new("curl").args(["-sSf", &scene.url("/metrics")]), b"").await;
    for name in ["pointsman_node_score", "pointsman_endpoint_weight", "pointsman_xds_clients_rejecting"] {
        assert!(content && figures.contains(name), "{name}: {figures}");
    }
    let (content, printed) = run(Command::new(cached("promtool")).args(["check", "metrics"]), figures.as_bytes()).await;
    assert!(content && printed.is_empty(), "{printed}");
    assert!(scene.running.stop().await);
}

/// The files of `config/prometheus`, where the example of Prometheus expects them, and its token.
#[tokio::test]
async fn http_the_rules_of_prometheus_are_sound_and_fire_when_they_should() {
    let folder = Folder::new("prometheus");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus");
    for name in ["prometheus.yml", "alerts.yml", "alerts_test.yml"] {
        folder.write(name, &std::fs::read_to_string(shipped.join(name)).unwrap());
    }
    folder.write("pointsman.token", "0123456789abcdef");
    for arguments in
        [["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]]
    {
        let (content, printed) = run(promtool(&folder).args(arguments), b"").await;
        assert!(content && printed.contains("SUCCESS"), "{arguments:?}: {printed}");
    }
}

/// Prometheus itself reads every query of the dashboard: as rules, which promtool checks.
#[tokio::test]
async fn http_prometheus_understands_the_queries_of_the_dashboard() {
    let folder = Folder::new("grafana");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/grafana/pointsman.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(shipped).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    let notes = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let queries = panels.flatten().chain(notes).map(|query| query["expr"].as_str().unwrap());
    // In a range a variable is a time, elsewhere a text.
    let filled = queries.map(|query| query.replace("$__rate_interval", "1m").replace("$__range", "6h"));
    let rules: Vec<Value> = (filled.enumerate())
        .map(|(number, query)| json!({"record": format!("query_{number}"), "expr": query}))
        .collect();
    assert!(rules.len() > 60, "{}", rules.len());
    // JSON is YAML.
    folder.write("rules.yml", &json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string());
    let (content, printed) = run(promtool(&folder).args(["check", "rules", "rules.yml"]), b"").await;
    assert!(content && printed.contains("SUCCESS"), "{printed}");
}

fn promtool(folder: &Folder) -> Command {
    let mut promtool = Command::new(cached("promtool"));
    promtool.current_dir(folder.path());
    promtool
}

/// The event stream, to curl: everything at first, and then the group that changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_a_stream_follows_what_edges_are_told() {
    let (scene, _there) = with_edges().await;
    let mut curl = Command::new("curl");
    curl.args(["-sSfN", &scene.url("/api/events")]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut curl = curl.spawn().unwrap();
    let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines();
    let mut next = async || {
        let told = async {
            while lines.next_line().await.unwrap().expect("no end") != "event: endpoints" {}
            let data = lines.next_line().await.unwrap().expect("no end");
            serde_json::from_str::<Value>(data.strip_prefix("data: ").unwrap()).unwrap()
        };
        tokio::time::timeout(PATIENCE, told).await.expect("an event in time")
    };
    let whole = next().await;
    let health = |told: &Value| told["groups"][0]["endpoints"][1]["health"].clone();
    assert_eq!((&whole["after"], health(&whole)), (&json!(null), json!("healthy")));

    let order = json!({"admin": "draining", "why": "a test"}).to_string();
    let url = scene.url("/api/nodes/pbx-02/admin");
    let order = ["-sSf", "-X", "PUT", "-H", "content-type: application/json", "-d", &order, &url];
    let (content, printed) = run(Command::new("curl").args(order), b"").await;
    assert!(content, "{printed}");
    let mut held = whole["generation"].clone();
    let drained = loop {
        let told = next().await;
        assert_eq!(told["after"], held, "nothing is missed: {told}");
        held = told["generation"].clone();
        if health(&told) == "draining" {
            break told;
        }
    };
    let (content, printed) = run(Command::new("curl").args(["-sSf", &scene.url("/api/endpoints")]), b"").await;
    let now: Value = serde_json::from_str(&printed).unwrap();
    assert!(content && now["generation"].as_u64() >= drained["generation"].as_u64(), "{printed}");
    assert_eq!((health(&now), &now["groups"][0]["id"]), (json!("draining"), &json!("wss")));
    assert!(scene.running.stop().await);
    assert!(curl.wait().await.unwrap().success(), "the stream ends as it should");
}

/// Thousands of questions a second, while one node after the other goes and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_routes_are_answered_while_nodes_flap() {
    let scene = Scene::set(VENDORS).await;
    let mut wrk = Command::new("wrk");
    wrk.args(["-t", "1", "-c", "32", "-d", "12s", "--latency", &scene.url("/api/route?mode=p2c")]);
    let asking = tokio::spawn(async move { run(&mut wrk, b"").await });
    let mut flaps = 0;
    while !asking.is_finished() {
        let [one, other] = &scene.nodes;
        let node = if flaps % 2 == 0 { one } else { other };
        node.restart(Duration::from_millis(300)).await;
        flaps += 1;
        // The other one must be there when this one goes.
        scene.linked().await;
    }
    let (content, printed) = asking.await.unwrap();
    assert!(content, "{printed}");
    assert!(printed.contains("Requests/sec"), "{printed}");
    assert!(!printed.contains("Socket errors") && !printed.contains("Non-2xx"), "{printed}");
    println!("{printed}{flaps} restarts of a node meanwhile");
    assert!(flaps >= 2, "{flaps}");
    assert!(scene.running.stop().await);
}
