//! Resources that the program does not make: its server is run here with resources of the test's. One that no client can
//! take is rejected, and nothing else suffers; a cluster that is another one is in use at once.

use std::sync::Arc;

use pointsman::config::model::Xds;
use pointsman::edge::{Endpoint, EndpointGroup, Health, Snapshot};
use pointsman::ids::{GroupId, NodeId};
use pointsman::time::Timestamp;
use pointsman::xds::clients::Registry;
use pointsman::xds::kind::Kind;
use pointsman::xds::protocol::envoy::config::cluster::v3::Cluster;
use pointsman::xds::protocol::envoy::config::core::v3::address;
use pointsman::xds::protocol::envoy::config::endpoint::v3::ClusterLoadAssignment;
use pointsman::xds::protocol::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use pointsman::xds::resources::{Resource, Resources};
use pointsman::xds::view::{ClientView, Rejection, SubscriptionView};
use pointsman::xds::{Limits, serve_with};
use prost::Message;
use tokio::sync::watch;

use super::*;

/// Longer than it takes to send something again, were it sent again.
const WHILE: Duration = Duration::from_secs(2);

/// The server with its resources.
struct Source {
    resources: Resources,
    out: watch::Sender<Option<Arc<Resources>>>,
    registry: Registry,
    port: u16,
    plain: BTreeMap<String, u16>,
    services: Services,
    tasks: Tasks,
    runtime: Runtime,
}

fn serve(runtime: &Runtime, port: u16) -> (watch::Sender<Option<Arc<Resources>>>, Registry, Tasks) {
    let (tasks, (out, seen)) = (Tasks::new(), watch::channel(None));
    let xds = Xds { listen: ([127, 0, 0, 1], port).into(), tls: None, tokens: Vec::new() };
    let _inside = runtime.enter();
    let registry = serve_with(&xds, seen, Limits::default(), Clock::system(), &tasks);
    (out, registry, tasks)
}

impl Source {
    fn start() -> Self {
        let (plain, services, port) = (backend::start(&NODES), Services::start(&NODES), ports::kept());
        let runtime = Runtime::new().unwrap();
        let (out, registry, tasks) = serve(&runtime, port);
        let resources = Resources::default();
        let mut source = Self { resources, out, registry, port, plain, services, tasks, runtime };
        source.resources = source.good([70, 30], [70, 30]);
        source.push();
        source
    }

    /// Ends the server.
    fn stop(&self) {
        assert!(self.runtime.block_on(self.tasks.stop(SOON)));
    }

    /// Starts it anew, with nothing to serve.
    fn serve(&mut self) {
        (self.out, self.registry, self.tasks) = serve(&self.runtime, self.port);
    }

    /// What two groups are with these weights.
    fn good(&self, plain: [u32; 2], media: [u32; 2]) -> Resources {
        let group = |name: &str, ports: &BTreeMap<String, u16>, weights: [u32; 2]| EndpointGroup {
            id: GroupId::new(name).unwrap(),
            cluster: name.to_owned(),
            endpoints: NODES
                .iter()
                .zip(weights)
                .map(|(node, weight)| Endpoint {
                    node: NodeId::new(node).unwrap(),
                    address: "127.0.0.1".to_owned(),
                    port: ports[*node],
                    health: Health::Healthy,
                    weight,
                    stands_in: false,
                })
                .collect(),
        };
        let groups = vec![group(WSS, &self.plain, plain), group(MEDIA, &self.services.ports, media)];
        Resources::of(&Snapshot { generation: 1, at: Timestamp::default(), groups }, &[])
    }

    /// Changes the content of a resource.
    fn change<M: Message + Default>(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut M)) {
        let old = &self.resources.of_kind(kind)[name];
        let mut content = M::decode(old.body.value.as_slice()).unwrap();
        change(&mut content);
        let new = Resource::new(kind, name, &content, old.listed);
        assert_ne!(new.version, old.version);
        self.resources.insert(kind, new);
    }

    /// An endpoint at an address that is none.
    fn break_endpoints(&mut self, name: &str) {
        self.change(Kind::Endpoints, name, |list: &mut ClusterLoadAssignment| {
            let Some(HostIdentifier::Endpoint(endpoint)) = &mut list.endpoints[0].lb_endpoints[0].host_identifier
            else {
                panic!("no endpoint");
            };
            let Some(address::Address::SocketAddress(socket)) = &mut endpoint.address.as_mut().unwrap().address else {
                panic!("no address");
            };
            "nowhere at all".clone_into(&mut socket.address);
        });
    }

    /// A cluster whose endpoints come from nowhere.
    fn break_cluster(&mut self, name: &str) {
        self.change(Kind::Cluster, name, |cluster: &mut Cluster| {
            cluster.eds_cluster_config.as_mut().unwrap().eds_config = None;
        });
    }

    fn take(&mut self, kind: Kind, name: &str, from: &Resources) {
        self.resources.insert(kind, Resource::clone(&from.of_kind(kind)[name]));
    }

    fn push(&self) {
        self.out.send_replace(Some(Arc::new(self.resources.clone())));
    }

    fn client(&self, node: &str) -> Arc<ClientView> {
        let clients = self.registry.view().clients;
        clients.iter().find(|client| client.node == node).unwrap_or_else(|| panic!("{node} in {clients:#?}")).clone()
    }

    /// Waits until the client has rejected something of that kind: what it says.
    fn rejection(&self, node: &str, kind: Kind) -> Rejection {
        let what = format!("{node} to reject the {}", kind.as_str());
        eventually(&what, SOON, || subscription(&self.client(node), kind).rejection.clone())
    }

    /// Waits until the client has accepted all that it was sent of that kind and rejects nothing of it.
    fn is_content(&self, node: &str, kind: Kind) {
        eventually(&format!("{node} to take the {}", kind.as_str()), SOON, || {
            let client = self.client(node);
            let subscription = subscription(&client, kind);
            (subscription.rejection.is_none() && subscription.waiting_since.is_none()).then_some(())
        });
    }
}

fn subscription(client: &ClientView, kind: Kind) -> &SubscriptionView {
    let found = client.subscriptions.iter().find(|subscription| subscription.kind == kind);
    found.unwrap_or_else(|| panic!("no {kind:?} in {client:#?}"))
}

/// Weights by port, as Envoy has them.
fn weights(envoy: &Envoy, cluster: &str) -> Vec<u64> {
    envoy.hosts(cluster).values().map(|host| host.weight).collect()
}

/// Waits until an Envoy has these weights in a cluster, in any order.
fn has_weights(envoy: &Envoy, cluster: &str, wanted: [u32; 2]) {
    let mut wanted = wanted.map(u64::from);
    wanted.sort_unstable();
    envoy.shows(cluster, &format!("the weights {wanted:?}"), |hosts| {
        let mut weights: Vec<_> = hosts.values().map(|host| host.weight).collect();
        weights.sort_unstable();
        weights == wanted
    });
}

#[test]
fn edges_that_are_envoys_reject_what_is_broken_and_follow_the_rest() {
    for speech in Speech::BOTH {
        let mut source = Source::start();
        let port = ports::passing();
        let bootstrap = in_front(envoy::bootstrap(speech, "edge-01", source.port), WSS, port);
        let envoy = Envoy::start(&bootstrap.to_string());
        has_weights(&envoy, WSS, [70, 30]);
        has_weights(&envoy, MEDIA, [70, 30]);
        source.is_content("edge-01", Kind::Endpoints);

        // A broken list, and a good one at the same moment.
        let better = source.good([60, 40], [80, 20]);
        source.break_endpoints(WSS);
        source.take(Kind::Endpoints, MEDIA, &better);
        source.push();
        let rejection = source.rejection("edge-01", Kind::Endpoints);
        println!("{speech:?}: {}", rejection.error);
        assert!(rejection.error.contains("nowhere at all"), "{rejection:?}");
        has_weights(&envoy, MEDIA, [80, 20]);
        has_weights(&envoy, WSS, [70, 30]);
        assert!(backend::ask_often(port, 100).keys().eq(NODES));

        // A broken cluster on top of it, and a change elsewhere.
        source.break_cluster(WSS);
        let another = source.good([60, 40], [90, 10]);
        source.take(Kind::Endpoints, MEDIA, &another);
        source.push();
        let rejection = source.rejection("edge-01", Kind::Cluster);
        println!("{speech:?}: {}", rejection.error);
        has_weights(&envoy, MEDIA, [90, 10]);
        has_weights(&envoy, WSS, [70, 30]);

        // Neither is sent again.
        let before = source.client("edge-01");
        std::thread::sleep(WHILE);
        let after = source.client("edge-01");
        for kind in [Kind::Cluster, Kind::Endpoints] {
            let counts = [&before, &after].map(|client| {
                let subscription = subscription(client, kind);
                (subscription.sent, subscription.rejected)
            });
            assert_eq!(counts[0], counts[1], "{kind:?}");
        }
        assert!(backend::ask_often(port, 100).keys().eq(NODES));

        // What is repaired is taken.
        source.resources = another;
        source.push();
        has_weights(&envoy, WSS, [60, 40]);
        source.is_content("edge-01", Kind::Endpoints);
        source.is_content("edge-01", Kind::Cluster);
        assert_eq!(weights(&envoy, MEDIA).len(), 2);
        assert!(backend::ask_often(port, 100).keys().eq(NODES));
    }
}

/// Envoy takes a cluster that has changed into use when it gets its endpoints after it, and waits for 15 seconds until it
/// gives them up. They are sent once more, though they are the same: on the stream that is open, and on one that comes
/// after it.
#[test]
fn edges_that_are_envoys_use_a_changed_cluster_at_once() {
    for speech in Speech::BOTH {
        let mut source = Source::start();
        let envoy = Envoy::start(&envoy::bootstrap(speech, "edge-01", source.port).to_string());
        has_weights(&envoy, WSS, [70, 30]);
        for (seconds, reconnects) in [(3, false), (4, true)] {
            source.is_content("edge-01", Kind::Endpoints);
            if reconnects {
                source.stop();
            }
            source.change(Kind::Cluster, WSS, |cluster: &mut Cluster| {
                cluster.connect_timeout.as_mut().unwrap().seconds = seconds;
            });
            if reconnects {
                source.serve();
            }
            source.push();
            let timeout = format!("\"connect_timeout\": \"{seconds}s\"");
            eventually("the cluster in use", SOON, || {
                let dump = envoy.admin("/config_dump?resource=dynamic_active_clusters");
                dump.contains(&timeout).then_some(())
            });
            assert_eq!(envoy.stat(&format!("cluster.{WSS}.init_fetch_timeout")), 0, "{speech:?}, {reconnects}");
            has_weights(&envoy, WSS, [70, 30]);
        }
    }
}

#[test]
fn edges_that_are_grpc_clients_reject_what_is_broken_and_follow_the_rest() {
    let mut source = Source::start();
    let mut client =
        GrpcClient::start(&grpc_client::bootstrap("client-01", source.port, &json!({ "type": "insecure" })));
    is_in_proportion(&client.call(&target(MEDIA), 500), [70, 30]);

    source.break_endpoints(MEDIA);
    source.push();
    let rejection = source.rejection("client-01", Kind::Endpoints);
    println!("{}", rejection.error);
    assert!(rejection.error.contains("nowhere at all"), "{rejection:?}");
    is_in_proportion(&client.call(&target(MEDIA), 500), [70, 30]);

    // Its cluster breaks, its endpoints are good again.
    let better = source.good([70, 30], [20, 80]);
    source.break_cluster(MEDIA);
    source.take(Kind::Endpoints, MEDIA, &better);
    source.push();
    let rejection = source.rejection("client-01", Kind::Cluster);
    println!("{}", rejection.error);
    source.is_content("client-01", Kind::Endpoints);
    let before = source.client("client-01");
    std::thread::sleep(WHILE);
    let after = source.client("client-01");
    assert_eq!(subscription(&before, Kind::Cluster).sent, subscription(&after, Kind::Cluster).sent);
    is_in_proportion(&client.call(&target(MEDIA), 500), [20, 80]);

    let another = source.good([70, 30], [50, 50]);
    source.resources = another;
    source.push();
    source.is_content("client-01", Kind::Cluster);
    eventually("the new weights", SOON, || {
        let counted = client.call(&target(MEDIA), 200);
        counted.values().all(|count| (70..130).contains(count)).then_some(())
    });
}
