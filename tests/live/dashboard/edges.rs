//! The page of edges over a server that has clients.

use pointsman::time::Timestamp;
use pointsman::xds::kind::Kind;
use pointsman::xds::protocol::envoy::config::core::v3::Node;
use pointsman::xds::protocol::envoy::service::discovery::v3::DiscoveryRequest;
use pointsman::xds::protocol::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use pointsman::xds::protocol::google::rpc::Status;
use pointsman::xds::view::{ClientView, Protocol, Rejection, SubscriptionView};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use super::open;
use crate::lab::browser::{Browser, Screen, Theme};
use crate::lab::scene::Scene;

/// A server, and what edges are told.
pub(crate) const CONFIG: &str = r#"
[xds]
listen = "127.0.0.1:0"
[[xds.groups]]
id = "wss"
port = 7443
addresses = { "pbx-01" = "192.0.2.1", "pbx-02" = "2001:db8::2" }
listener = { listen = "0.0.0.0:7443" }
"#;

fn subscription(kind: Kind) -> SubscriptionView {
    SubscriptionView {
        kind,
        wildcard: kind.is_whole(),
        names: if kind.is_whole() { vec![] } else { vec!["wss".to_owned()] },
        sent: 2,
        sent_version: "5f3a0b1c".to_owned(),
        waiting_since: None,
        accepted: 2,
        accepted_version: "5f3a0b1c".to_owned(),
        accepted_after_us: Some(1_500),
        rejected: 0,
        rejection: None,
    }
}

fn client(node: &str, at: Timestamp) -> ClientView {
    ClientView {
        stream: 0,
        node: node.to_owned(),
        cluster: "front".to_owned(),
        software: "envoy 1.40.0".to_owned(),
        peer: "[2001:db8:1234:5678:9abc:def0:1234:5678]:41000".to_owned(),
        who: Some("edge-token".to_owned()),
        protocol: Protocol::Delta,
        since: at,
        subscriptions: Kind::ALL.map(subscription).into(),
        unserved: vec!["type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret".to_owned()],
    }
}

/// One that takes what it is told, one that says with long words why not, one that waits, and one that says nothing.
pub(crate) fn clients(at: Timestamp) -> [ClientView; 4] {
    let rejected = |kind| {
        let error = format!("no such thing: {}", "x".repeat(480));
        let rejection = Rejection { version: "6b210b1c".to_owned(), error, at };
        SubscriptionView { rejected: 1, rejection: Some(rejection), ..subscription(kind) }
    };
    let waits = SubscriptionView { waiting_since: Some(Timestamp::from_secs(1)), ..subscription(Kind::Endpoints) };
    [
        client("good", at),
        ClientView { subscriptions: Kind::ALL.map(rejected).into(), ..client(&"n".repeat(256), at) },
        ClientView { subscriptions: vec![waits], ..client("slow", at) },
        ClientView { subscriptions: vec![], ..client("", at) },
    ]
}

/// Subscribes to everything as Envoy does, and accepts all of it but the kind that it refuses. Stays for as long as what is
/// returned is kept.
pub(crate) async fn subscribe(server: &str, node: &str, program: &str, refuses: Option<Kind>) -> impl Sized + use<> {
    let channel = Channel::from_shared(format!("http://{server}")).unwrap().connect().await.unwrap();
    let (says, said) = mpsc::channel(8);
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let mut hears = client.stream_aggregated_resources(ReceiverStream::new(said)).await.unwrap().into_inner();
    let node = Node { id: node.to_owned(), user_agent_name: program.to_owned(), ..Node::default() };
    for kind in Kind::ALL {
        let names = if kind.is_whole() { vec![] } else { vec!["wss".to_owned()] };
        let asked = DiscoveryRequest {
            node: Some(node.clone()),
            resource_names: names,
            type_url: kind.type_url().to_owned(),
            ..DiscoveryRequest::default()
        };
        says.send(asked.clone()).await.unwrap();
        let answer = hears.message().await.unwrap().expect("an answer");
        let message =
            "Error adding/updating listener(s) wss-listener: cannot bind '0.0.0.0:7443': Address already in use";
        let refusal = (refuses == Some(kind)).then(|| Status { code: 13, message: message.to_owned() });
        let version_info = if refusal.is_some() { String::new() } else { answer.version_info };
        let told = DiscoveryRequest { version_info, response_nonce: answer.nonce, error_detail: refusal, ..asked };
        says.send(told).await.unwrap();
    }
    (says, hears)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_nothing_keeps_anybody_from_seeing_who_subscribed() {
    let scene = Scene::set(CONFIG).await;
    let edges = scene.running.xds().unwrap();
    let mut there = clients(Timestamp::from_secs(1_796_036_585)).map(|client| edges.enter(client));
    let browser = Browser::start();
    for language in ["en", "ru"] {
        let page = browser.page().await;
        page.language(language).await;
        open(&page, &scene.url("/edges")).await;
        page.wait_for("tr[data-state=bad]").await;
        page.wait_for("#told tbody tr").await;
        for screen in [Screen::Desktop, Screen::Phone] {
            page.screen(screen).await;
            assert_eq!(page.overflow().await, 0.0, "{screen:?}");
            for theme in [Theme::Light, Theme::Dark] {
                page.theme(theme).await;
                assert_eq!(page.axe().await, [""; 0], "{language}, {screen:?}, {theme:?}");
            }
        }
        assert_eq!(page.console().await, [""; 0]);
    }

    // It follows by itself who comes and who goes.
    let page = browser.page().await;
    open(&page, &scene.url("/edges")).await;
    page.eval("window.marker = 'the same page'").await;
    there[2].ends(true, "it took nothing for 30 s".to_owned());
    let [_, _, slow, _] = there;
    drop(slow);
    page.until("the one that was dropped", "document.querySelector('#gone .chip.dropped')").await;
    page.until("one less", "document.querySelectorAll('#clients tbody tr').length === 3").await;
    let gone = page.text_of("#gone").await;
    assert!(gone.contains("slow") && gone.contains("it took nothing for 30 s"), "{gone}");
    assert_eq!(page.eval("window.marker").await, "the same page");
    drop(page);
    assert!(scene.running.stop().await);
}
