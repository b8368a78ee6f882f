//! The server over resources that a test sets, and clients of the generated code.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::config::model::{EdgeGroup, Member, Xds};
use pointsman::edge::{Endpoint, EndpointGroup, Health, Snapshot};
use pointsman::ids::{GroupId, NodeId};
use pointsman::tasks::Tasks;
use pointsman::time::Timestamp;
use pointsman::xds::clients::Registry;
use pointsman::xds::kind::Kind;
use pointsman::xds::protocol::envoy::config::core::v3::Node;
use pointsman::xds::protocol::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use pointsman::xds::protocol::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use pointsman::xds::resources::Resources;
use pointsman::xds::view::{GoneView, XdsView};
use pointsman::xds::{self, Limits};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint as Target};
use tonic::{Status, Streaming};

/// Longest wait for anything that happens at once on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    pub(crate) registry: Registry,
    pub(crate) tasks: Tasks,
    served: watch::Sender<Option<Arc<Resources>>>,
}

/// A server for everybody who reaches it.
pub(crate) fn open() -> Xds {
    Xds { listen: ([127, 0, 0, 1], 0).into(), tls: None, tokens: Vec::new() }
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::set_with(&open(), Limits::default(), Clock::system()).await
    }

    pub(crate) async fn set_with(xds: &Xds, limits: Limits, clock: Clock) -> Self {
        let (served, seen) = watch::channel(None);
        let tasks = Tasks::new();
        let registry = xds::serve_with(xds, seen, limits, clock, &tasks);
        let address = soon(async {
            loop {
                match registry.view().address {
                    Some(address) => return address.parse().unwrap(),
                    None => sleep(Duration::from_millis(5)).await,
                }
            }
        });
        Self { address: address.await, registry, tasks, served }
    }

    /// From now on these are served.
    pub(crate) fn serve(&self, resources: Resources) {
        self.served.send_replace(Some(Arc::new(resources)));
    }

    /// Waits for the server to show that.
    pub(crate) async fn seen(&self, is_so: impl Fn(&XdsView) -> bool) -> XdsView {
        soon(async {
            loop {
                let view = self.registry.view();
                if is_so(&view) {
                    return view;
                }
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// Waits for a stream or a connection to end for a reason with these words in it.
    pub(crate) async fn ended(&self, words: &str) -> GoneView {
        let is_it = |gone: &GoneView| gone.reason.contains(words);
        let view = self.seen(|view| view.gone.iter().any(is_it)).await;
        view.gone.into_iter().find(is_it).unwrap()
    }

    pub(crate) async fn channel(&self) -> Channel {
        Target::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }
}

/// What comes of it, within the patience of the tests.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("in time")
}

/// The resources of one group `sip` of two nodes.
pub(crate) fn two_nodes(first: (Health, u32), second: (Health, u32)) -> Resources {
    let endpoint = |node: &str, (health, weight)| Endpoint {
        node: NodeId::new(node).unwrap(),
        address: "192.0.2.1".to_owned(),
        port: 5060,
        health,
        weight,
        stands_in: false,
    };
    let endpoints = vec![endpoint("pbx-01", first), endpoint("pbx-02", second)];
    let id = GroupId::new("sip").unwrap();
    let told = EndpointGroup { id: id.clone(), cluster: "sip".to_owned(), endpoints };
    let member = |node| Member { node: NodeId::new(node).unwrap(), host: "192.0.2.1".to_owned(), port: 5060 };
    let members = ["pbx-01", "pbx-02"].map(member).to_vec();
    let group = EdgeGroup { id, cluster: "sip".to_owned(), members, listener: None, fail_open: true };
    Resources::of(&Snapshot { generation: 1, at: Timestamp::from_secs(1), groups: vec![told] }, &[group])
}

pub(crate) fn node(id: &str) -> Option<Node> {
    Some(Node { id: id.to_owned(), user_agent_name: "test".to_owned(), ..Node::default() })
}

/// A stream of the state of the world.
pub(crate) struct Subscriber {
    pub(crate) says: mpsc::Sender<DiscoveryRequest>,
    pub(crate) hears: Streaming<DiscoveryResponse>,
}

impl Subscriber {
    pub(crate) async fn on(channel: Channel) -> Result<Self, Status> {
        let (says, said) = mpsc::channel(256);
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let hears = client.stream_aggregated_resources(ReceiverStream::new(said)).await?.into_inner();
        Ok(Self { says, hears })
    }

    /// Asks for resources of a kind; no names are all of them.
    pub(crate) async fn ask(&self, id: &str, kind: Kind, names: &[&str]) {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let type_url = kind.type_url().to_owned();
        let request =
            DiscoveryRequest { node: node(id), resource_names: names, type_url, ..DiscoveryRequest::default() };
        self.says.send(request).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> DiscoveryResponse {
        soon(self.hears.message()).await.expect("no end").expect("an answer")
    }

    /// Accepts an answer to a question for these names.
    pub(crate) async fn accept(&self, answer: &DiscoveryResponse, names: &[&str]) {
        let request = DiscoveryRequest {
            version_info: answer.version_info.clone(),
            resource_names: names.iter().map(|&name| name.to_owned()).collect(),
            type_url: answer.type_url.clone(),
            response_nonce: answer.nonce.clone(),
            ..DiscoveryRequest::default()
        };
        self.says.send(request).await.unwrap();
    }

    /// Hears and accepts.
    pub(crate) async fn take(&mut self, names: &[&str]) -> DiscoveryResponse {
        let answer = self.hear().await;
        self.accept(&answer, names).await;
        answer
    }

    /// How the server ends the stream.
    pub(crate) async fn end(&mut self) -> Status {
        soon(async {
            loop {
                match self.hears.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("an end without a status"),
                    Err(status) => return status,
                }
            }
        })
        .await
    }
}

/// A stream of changes.
pub(crate) struct DeltaSubscriber {
    pub(crate) says: mpsc::Sender<DeltaDiscoveryRequest>,
    pub(crate) hears: Streaming<DeltaDiscoveryResponse>,
}

impl DeltaSubscriber {
    pub(crate) async fn on(channel: Channel) -> Self {
        let (says, said) = mpsc::channel(256);
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let hears = client.delta_aggregated_resources(ReceiverStream::new(said)).await.unwrap().into_inner();
        Self { says, hears }
    }

    pub(crate) async fn ask(&self, id: &str, kind: Kind, names: &[&str]) {
        let request = DeltaDiscoveryRequest {
            node: node(id),
            type_url: kind.type_url().to_owned(),
            resource_names_subscribe: names.iter().map(|&name| name.to_owned()).collect(),
            ..DeltaDiscoveryRequest::default()
        };
        self.says.send(request).await.unwrap();
    }

    pub(crate) async fn take(&mut self) -> DeltaDiscoveryResponse {
        let answer = soon(self.hears.message()).await.expect("no end").expect("an answer");
        let (type_url, response_nonce) = (answer.type_url.clone(), answer.nonce.clone());
        let accepted = DeltaDiscoveryRequest { type_url, response_nonce, ..DeltaDiscoveryRequest::default() };
        self.says.send(accepted).await.unwrap();
        answer
    }
}
