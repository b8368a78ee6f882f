//! The figures for Prometheus.

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman::api::Limits;
use pointsman::config::model::Role;
use pointsman::quality::machine::{Reason, State};

use crate::client::{get, send};
use crate::picture::change;
use crate::stage::{PATIENCE, Stage};

/// What the page says of the metric and labels of this line.
pub(crate) fn value(page: &str, line: &str) -> Option<f64> {
    let (name, _) = line.rsplit_once(' ').unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map(|value| value.parse().unwrap())
}

#[tokio::test]
async fn the_page_shows_the_picture() {
    let stage = Stage::set().await;
    let page = get(stage.address, "/metrics").await;
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        concat!("pointsman_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "pointsman_node_up{node=\"pbx-01\"} 1",
        "pointsman_node_up{node=\"pbx-02\"} 0",
        "pointsman_node_score{node=\"pbx-01\"} 67.48",
        "pointsman_node_score{node=\"pbx-02\"} -100",
        "pointsman_node_excluded{node=\"pbx-02\"} 1",
        "pointsman_node_idle_cpu_ratio{node=\"pbx-01\"} 0.35",
        "pointsman_node_failure_ratio{node=\"pbx-01\"} 0.005",
        "pointsman_node_rtt_seconds{node=\"pbx-01\"} 0.0015",
        "pointsman_node_breaker_state{node=\"pbx-02\",state=\"open\"} 1",
        "pointsman_node_breaker_state{node=\"pbx-02\",state=\"half_open\"} 0",
        "pointsman_node_admin_state{node=\"pbx-02\",state=\"draining\"} 1",
        "pointsman_node_link_received_bytes_total{node=\"pbx-01\"} 12345",
        "pointsman_node_unseen_ends_total{node=\"pbx-01\",outcome=\"lost\"} 2",
        "pointsman_connection_state{connection=\"vendor-a\",map=\"\",state=\"bad\"} 1",
        "pointsman_connection_state{connection=\"vendor-c\",map=\"intl\",state=\"bad\"} 0",
        "pointsman_connection_pinned{connection=\"vendor-b\",map=\"\"} 1",
        "pointsman_connection_asr_ratio{connection=\"vendor-a\",map=\"\"} 0.35",
        "pointsman_connection_acd_seconds{connection=\"vendor-a\",map=\"\"} 41.3",
        "pointsman_map_blocked_connections{map=\"intl\"} 1",
        "pointsman_best_score 67.48",
        "pointsman_storage_healthy 1",
        "pointsman_mail_sent_total 5",
        "pointsman_mail_dead 1",
        "pointsman_http_connections 1",
    ] {
        assert_eq!(value(&page.body, line), value(line, line), "{line} in\n{}", page.body);
    }
    // What nobody knows is not there, and no text from calls is.
    assert!(!page.body.contains("pointsman_connection_ner_ratio{") && !page.body.contains("NaN"), "{}", page.body);
    assert!(!page.body.contains("\u{1b}"));
}

#[tokio::test]
async fn requests_are_counted_by_route_and_not_by_path() {
    let stage = Stage::set().await;
    for path in ["/api/nodes/pbx-01", "/api/nodes/pbx-02", "/api/nodes/pbx-99", "/a", "/b"] {
        get(stage.address, path).await;
    }
    send(stage.address, "BREW", "/a", &[], "").await;
    let page = get(stage.address, "/metrics").await.body;
    for line in [
        "pointsman_http_requests_total{route=\"/api/nodes/{id}\",method=\"GET\",status=\"200\"} 2",
        "pointsman_http_requests_total{route=\"/api/nodes/{id}\",method=\"GET\",status=\"404\"} 1",
        "pointsman_http_requests_total{route=\"none\",method=\"GET\",status=\"404\"} 2",
        "pointsman_http_requests_total{route=\"none\",method=\"other\",status=\"404\"} 1",
        "pointsman_http_request_duration_seconds_count{route=\"/api/nodes/{id}\"} 3",
    ] {
        assert_eq!(value(&page, line), value(line, line), "{line} in\n{page}");
    }
}

#[tokio::test]
async fn changes_are_counted_and_pins_are_none() {
    let stage = Stage::set().await;
    let line = "pointsman_connection_changes_total{connection=\"vendor-a\",map=\"\",state=\"bad\",reason=\"asr\"} 2";
    let mut pinned = change("vendor-a", 2, stage.clock.now());
    (pinned.change.from, pinned.change.reason) = (State::Bad, Reason::Operator);
    stage.changes.send(Arc::new(pinned)).unwrap();
    for epoch in [3, 4] {
        stage.changes.send(Arc::new(change("vendor-a", epoch, stage.clock.now()))).unwrap();
    }
    let counted = async {
        while !get(stage.address, "/metrics").await.body.lines().any(|known| known == line) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("not counted");
}

#[tokio::test]
async fn the_page_needs_a_token_where_there_are_any() {
    let stage = Stage::with(&[("prometheus", Role::Read, "p")], Limits::default()).await;
    assert_eq!(get(stage.address, "/metrics").await.status, 401);
    assert_eq!(send(stage.address, "GET", "/metrics", &[("authorization", "Bearer p")], "").await.status, 200);
}

#[tokio::test]
async fn the_documentation_lists_every_metric_and_no_other() {
    let stage = Stage::set().await;
    stage.changes.send(Arc::new(change("vendor-a", 3, stage.clock.now()))).unwrap();
    get(stage.address, "/healthz").await;
    let page = get(stage.address, "/metrics").await.body;
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let known: BTreeSet<&str> = types.collect();
    let text = include_str!("../../docs/api.md");
    let documented: BTreeSet<&str> = text
        .split('`')
        .filter(|word| word.starts_with("pointsman_"))
        .map(|word| word.split('{').next().unwrap())
        .collect();
    assert_eq!(documented, known);
}
