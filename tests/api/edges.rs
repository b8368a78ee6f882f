//! The clients of the xDS server, as the API and the figures show them.

use pointsman::listen::Listening;
use pointsman::time::Timestamp;
use pointsman::xds::clients::Presence;
use pointsman::xds::kind::Kind;
use pointsman::xds::view::{ClientView, Protocol, Rejection, SubscriptionView, XdsTotals, XdsView};
use serde_json::json;

use crate::client::get;
use crate::metrics::value;
use crate::picture::snapshot;
use crate::stage::{Stage, XDS_ADDRESS, play};

/// A client that has accepted clusters and endpoints.
pub(crate) fn client(node: &str, at: Timestamp) -> ClientView {
    ClientView {
        stream: 0,
        node: node.to_owned(),
        cluster: "front".to_owned(),
        software: "envoy 1.40.0".to_owned(),
        peer: "10.0.1.1:41000".to_owned(),
        who: Some("edge-token".to_owned()),
        protocol: Protocol::StateOfTheWorld,
        since: at,
        subscriptions: vec![subscription(Kind::Cluster), subscription(Kind::Endpoints)],
        unserved: vec![],
    }
}

pub(crate) fn subscription(kind: Kind) -> SubscriptionView {
    SubscriptionView {
        kind,
        wildcard: kind.is_whole(),
        names: if kind.is_whole() { vec![] } else { vec!["sip".to_owned(), "wss".to_owned()] },
        sent: 3,
        sent_version: "5f3a".to_owned(),
        waiting_since: None,
        accepted: 3,
        accepted_version: "5f3a".to_owned(),
        accepted_after_us: Some(1_500),
        rejected: 0,
        rejection: None,
    }
}

/// The same, which the client does not take.
pub(crate) fn rejected(kind: Kind, error: &str, at: Timestamp) -> SubscriptionView {
    let rejection = Rejection { version: "6b21".to_owned(), error: error.to_owned(), at };
    SubscriptionView { rejected: 1, rejection: Some(rejection), ..subscription(kind) }
}

/// Has somebody be there who is like this.
pub(crate) fn enter(stage: &Stage, client: ClientView) -> Presence {
    stage.edges.enter(client)
}

#[tokio::test]
async fn the_server_and_its_clients_are_answered() {
    let stage = Stage::set().await;
    let now = stage.clock.now();
    let _open = enter(&stage, client("front-1", now));
    let subscriptions = vec![rejected(Kind::Cluster, "no such filter", now)];
    let _other = enter(&stage, ClientView { subscriptions, ..client("front-2", now) });
    enter(&stage, client("gone", now)).ends(true, "it floods".to_owned());
    let answer = get(stage.address, "/api/xds").await;
    let said: XdsView = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((answer.status, &said), (200, &stage.edges.view()));
    assert_eq!(
        (said.address.as_deref(), said.clients.len(), said.gone.len()),
        (Some(XDS_ADDRESS.to_string().as_str()), 2, 1)
    );
    let json = answer.json();
    assert_eq!(json["clients"][1]["subscriptions"][0]["rejection"]["error"], json!("no such filter"));
    assert_eq!((&json["gone"][0]["dropped"], &json["gone"][0]["reason"]), (&json!(true), &json!("it floods")));
    let totals = XdsTotals { streams: 3, dropped: 1, ..XdsTotals::default() };
    assert_eq!(json["totals"], json!(totals));
}

#[tokio::test]
async fn where_no_server_is_configured_there_are_neither_clients_nor_figures() {
    let mut played = play(pointsman::clock::Clock::system());
    played.sources.xds = None;
    let stage = Stage::playing(played, &[], pointsman::api::Limits::default()).await;
    assert!(get(stage.address, "/api/xds").await.problem(404, "/api/xds").contains("no section [xds]"));
    let page = get(stage.address, "/metrics").await.body;
    assert!(!page.contains("pointsman_xds_") && page.contains("pointsman_endpoints_generation 0"), "{page}");
}

#[tokio::test]
async fn figures_are_of_all_clients_together() {
    let stage = Stage::set().await;
    let now = stage.clock.now();
    stage.tell_edges(snapshot(1_700_000_000_004, now));
    let subscriptions = vec![subscription(Kind::Cluster), rejected(Kind::Endpoints, "x", now)];
    let delta = ClientView { protocol: Protocol::Delta, subscriptions, ..client("front-1", now) };
    let _open = [delta, client("front-2", now), client("front-3", now)].map(|client| enter(&stage, client));
    enter(&stage, client("gone", now)).ends(true, "it floods".to_owned());
    for _ in 0..3 {
        stage.edges.refuse("10.0.1.9:1".to_owned(), "no token".to_owned());
    }
    let page = get(stage.address, "/metrics").await.body;
    for line in [
        "pointsman_endpoints_generation 1700000000004",
        "pointsman_endpoint_state{cluster=\"sip-cluster\",node=\"pbx-01\",state=\"healthy\"} 1",
        "pointsman_endpoint_state{cluster=\"wss-cluster\",node=\"pbx-02\",state=\"healthy\"} 0",
        "pointsman_endpoint_state{cluster=\"wss-cluster\",node=\"pbx-02\",state=\"draining\"} 1",
        "pointsman_endpoint_state{cluster=\"wss-cluster\",node=\"pbx-02\",state=\"unknown\"} 0",
        "pointsman_endpoint_weight{cluster=\"sip-cluster\",node=\"pbx-01\"} 67",
        "pointsman_xds_listening 1",
        "pointsman_xds_clients{protocol=\"state_of_the_world\"} 2",
        "pointsman_xds_clients{protocol=\"delta\"} 1",
        "pointsman_xds_clients_rejecting 1",
        "pointsman_xds_streams_total 4",
        "pointsman_xds_dropped_streams_total 1",
        "pointsman_xds_refused_clients_total 3",
    ] {
        assert_eq!(value(&page, line), value(line, line), "{line} in\n{page}");
    }
    assert!(!page.contains("front-"), "what clients call themselves is no label: {page}");

    stage.xds.send_replace(Listening { address: None, problem: "in use".to_owned() });
    assert_eq!(value(&get(stage.address, "/metrics").await.body, "pointsman_xds_listening 0"), Some(0.0));
}
