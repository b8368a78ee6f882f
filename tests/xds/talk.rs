//! What clients that behave are told.

use pointsman::edge::Health;
use pointsman::xds::kind::Kind;
use pointsman::xds::protocol::envoy::config::core::v3::HealthStatus;
use pointsman::xds::protocol::envoy::config::endpoint::v3::ClusterLoadAssignment;
use pointsman::xds::protocol::envoy::service::discovery::v3::DiscoveryRequest;
use pointsman::xds::protocol::google::rpc;
use prost::Message;
use prost_types::Any;
use tonic::Code;

use crate::stage::{DeltaSubscriber, Stage, Subscriber, two_nodes};

/// Health and weight of each endpoint.
fn endpoints(body: &Any) -> Vec<(HealthStatus, u32)> {
    let told = ClusterLoadAssignment::decode(&*body.value).unwrap();
    let of = |it: &pointsman::xds::protocol::envoy::config::endpoint::v3::LocalityLbEndpoints| {
        (it.lb_endpoints[0].health_status(), it.load_balancing_weight.unwrap())
    };
    told.endpoints.iter().map(of).collect()
}

#[tokio::test]
async fn a_client_is_told_of_every_change() {
    let stage = Stage::set().await;
    stage.serve(two_nodes((Health::Healthy, 67), (Health::Healthy, 50)));
    let mut client = Subscriber::on(stage.channel().await).await.unwrap();
    client.ask("edge-1", Kind::Endpoints, &["sip"]).await;
    let first = client.take(&["sip"]).await;
    assert_eq!(endpoints(&first.resources[0]), [(HealthStatus::Healthy, 67), (HealthStatus::Healthy, 50)]);
    stage.serve(two_nodes((Health::Unhealthy, 1), (Health::Draining, 1)));
    let second = client.take(&["sip"]).await;
    assert_eq!(endpoints(&second.resources[0]), [(HealthStatus::Unhealthy, 1), (HealthStatus::Draining, 1)]);
    assert_ne!(first.version_info, second.version_info);

    let view = stage.seen(|view| view.totals.accepted == 2).await;
    let [shown] = &view.clients[..] else { panic!("{view:?}") };
    let [subscription] = &shown.subscriptions[..] else { panic!("{shown:?}") };
    assert_eq!((shown.node.as_str(), shown.software.as_str()), ("edge-1", "test"));
    assert_eq!((subscription.names.as_slice(), subscription.sent), (&["sip".to_owned()][..], 2));
    assert_eq!((&subscription.accepted_version, subscription.waiting_since), (&second.version_info, None));
}

#[tokio::test]
async fn a_client_of_changes_is_told_what_differs_and_what_is_gone() {
    let stage = Stage::set().await;
    let mut resources = two_nodes((Health::Healthy, 67), (Health::Healthy, 50));
    stage.serve(resources.clone());
    let mut client = DeltaSubscriber::on(stage.channel().await).await;
    client.ask("edge-1", Kind::Cluster, &[]).await;
    let first = client.take().await;
    assert_eq!(first.resources.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["sip"]);
    resources.remove(Kind::Cluster, "sip");
    stage.serve(resources);
    assert_eq!(client.take().await.removed_resources, ["sip"]);
}

#[tokio::test]
async fn nothing_is_answered_before_there_is_something_to_tell() {
    let stage = Stage::set().await;
    let mut client = Subscriber::on(stage.channel().await).await.unwrap();
    client.ask("edge-1", Kind::Endpoints, &["sip"]).await;
    let view = stage.seen(|view| view.clients.len() == 1).await;
    assert_eq!((view.totals.sent, view.clients[0].subscriptions.len()), (0, 0));
    stage.serve(two_nodes((Health::Healthy, 67), (Health::Healthy, 50)));
    assert_eq!(client.take(&["sip"]).await.resources.len(), 1);
}

#[tokio::test]
async fn a_rejection_is_shown_and_the_version_not_sent_again() {
    let stage = Stage::set().await;
    stage.serve(two_nodes((Health::Healthy, 67), (Health::Healthy, 50)));
    let mut client = Subscriber::on(stage.channel().await).await.unwrap();
    client.ask("edge-1", Kind::Cluster, &[]).await;
    client.take(&[]).await;
    client.ask("edge-1", Kind::Endpoints, &["sip"]).await;
    let bad = client.hear().await;
    let error = rpc::Status { code: 3, message: "weight\nof <b>67</b> is too much".to_owned() };
    let request = DiscoveryRequest {
        resource_names: vec!["sip".to_owned()],
        type_url: bad.type_url.clone(),
        response_nonce: bad.nonce.clone(),
        error_detail: Some(error),
        ..DiscoveryRequest::default()
    };
    client.says.send(request).await.unwrap();
    let view = stage.seen(|view| view.totals.rejected == 1).await;
    let rejection = view.clients[0].subscriptions[1].rejection.as_ref().unwrap();
    assert_eq!((&rejection.version, rejection.error.as_str()), (&bad.version_info, "weight of <b>67</b> is too much"));
    assert_eq!(stage.registry.summary().rejecting, 1);
    // Something else changes: what was rejected stays away, what is new comes.
    let mut other = two_nodes((Health::Healthy, 67), (Health::Healthy, 50));
    other.remove(Kind::Cluster, "sip");
    stage.serve(other);
    assert_eq!(client.take(&[]).await.type_url, Kind::Cluster.type_url());
    stage.serve(two_nodes((Health::Healthy, 66), (Health::Healthy, 50)));
    let mut kinds = vec![client.take(&[]).await.type_url, client.take(&["sip"]).await.type_url];
    kinds.sort();
    assert_eq!(kinds, [Kind::Cluster.type_url(), Kind::Endpoints.type_url()]);
    stage.seen(|view| view.clients[0].subscriptions[1].rejection.is_none()).await;
}

#[tokio::test]
async fn when_the_server_stops_clients_are_told_to_come_back() {
    let stage = Stage::set().await;
    stage.serve(two_nodes((Health::Healthy, 67), (Health::Healthy, 50)));
    let mut client = Subscriber::on(stage.channel().await).await.unwrap();
    client.ask("edge-1", Kind::Endpoints, &["sip"]).await;
    client.take(&["sip"]).await;
    assert!(stage.tasks.stop(crate::stage::PATIENCE).await, "everything ends");
    assert_eq!(client.end().await.code(), Code::Unavailable);
    assert_eq!(stage.registry.view().clients.len(), 0);
}
