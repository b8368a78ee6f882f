//! Edges that others wrote, at the program's xDS server: Envoy in both dialects, and gRPC with its own resolver.
//!
//! The switches are simulated, because what they do is not the matter here; the program is the real one in a process of
//! its own, so that it can be killed. Behind the edges stand services that say which node they belong to.

mod broken;
mod documented;
mod follow;
mod guarded;
mod listeners;
mod restart;

use std::collections::BTreeMap;
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::engine::view::LinkState;
use pointsman::sim::{Handle, Misbehaviour, asterisk, freeswitch};
use pointsman::tasks::Tasks;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::lab::envoy::{self, Envoy, Host, Speech};
use crate::lab::grpc_client::{self, GrpcClient, Services};
use crate::lab::pointsman::{Pointsman, node};
use crate::lab::{SOON, backend, eventually, ports};

/// The nodes.
const NODES: [&str; 2] = ["pbx-01", "pbx-02"];

/// The group whose services are plain TCP, and the one whose services are gRPC.
const WSS: &str = "wss";
const MEDIA: &str = "media";

/// A node gets calls again this long after it is back, at most: a second and a half without a fault, and then some for a
/// machine under load.
const BACK: Duration = Duration::from_secs(90);

/// The switches, the services and the program.
struct Edges {
    switches: Vec<Handle>,
    pointsman: Pointsman,
    /// Where its xDS server listens.
    port: u16,
    /// Ports of the plain services, by node.
    plain: BTreeMap<String, u16>,
    /// The services of gRPC.
    services: Services,
    _tasks: Tasks,
    _runtime: Runtime,
}

impl Edges {
    fn start() -> Self {
        Self::with("", "")
    }

    /// With more lines for the xDS server, and for the group of the plain services.
    fn with(server: &str, plain_group: &str) -> Self {
        Self::in_front_of(backend::start(&NODES), server, plain_group)
    }

    /// Waits until the switches have told their loads, so that the weights differ and stand still.
    fn differ_in_weight(&self) {
        self.pointsman.shows("the loads of the nodes", SOON, |view| {
            let figures = |id| node(view, id).figures;
            figures(NODES[0]).idle_cpu.and(figures(NODES[1]).load_avg).map(|_| ())
        });
        let [one, other] = self.weights();
        assert!(one > other + 20, "{one} and {other} are too close to tell apart");
    }

    /// With plain services at these ports.
    fn in_front_of(plain: BTreeMap<String, u16>, server: &str, plain_group: &str) -> Self {
        let (runtime, tasks, clock) = (Runtime::new().unwrap(), Tasks::new(), Clock::system());
        let (services, port) = (Services::start(&NODES), ports::kept());
        let switches = runtime.block_on(async {
            let one = freeswitch::Server::start(freeswitch::Options::default(), clock, &tasks).await.unwrap();
            let other = asterisk::Server::start(asterisk::Options::default(), clock, &tasks).await.unwrap();
            vec![one, other]
        });
        // Scores that differ: the weights of the nodes.
        switches[0].set_load(95.0, 0.1);
        switches[1].set_load(40.0, 2.0);
        let kinds = ["kind = \"freeswitch\"", "kind = \"asterisk\"\nusername = \"pointsman\""];
        let nodes = NODES.iter().zip(&switches).zip(kinds).map(|((id, switch), kind)| {
            let address = switch.address();
            format!(
                "[[nodes]]\nid = \"{id}\"\n{kind}\naddress = \"{address}\"\npassword = \"ClueCon\"\nmax_calls = 250\n"
            )
        });
        let text = format!(
            "{}[xds]\nlisten = \"127.0.0.1:{port}\"\n{server}\n{}{}",
            nodes.collect::<String>(),
            group(WSS, &plain, plain_group),
            group(MEDIA, &services.ports, ""),
        );
        let pointsman = Pointsman::start(&text);
        let edges = Self { switches, pointsman, port, plain, services, _tasks: tasks, _runtime: runtime };
        edges.are_linked();
        edges
    }

    fn are_linked(&self) {
        self.pointsman.shows("links to the nodes", SOON, |view| {
            view.nodes
                .iter()
                .all(|node| node.link.state == LinkState::Up && node.assessment.lethal.is_empty())
                .then_some(())
        });
    }

    /// The switch of a node dies: its connections break, and its port is closed.
    fn dies(&self, number: usize) {
        self.switches[number].misbehave(&Misbehaviour::RefuseConnections);
        self.switches[number].misbehave(&Misbehaviour::Reset);
    }

    fn comes_back(&self, number: usize) {
        self.switches[number].misbehave(&Misbehaviour::AcceptConnections);
    }

    /// What an operator says of a node: `drain`, `enable`, `disable`.
    fn operator(&self, order: &str, number: usize) {
        let output = self.pointsman.command(&["node", order, NODES[number], "--config", "pointsman.toml"]);
        assert!(output.status.success(), "{output:?}");
    }

    /// The weight that a node should have: its score, rounded.
    fn weight(&self, id: &str) -> u64 {
        let view = self.pointsman.view().expect("it runs");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a score is at most 100")]
        let weight = node(&view, id).assessment.score.round().clamp(1.0, 100.0) as u64;
        weight
    }

    fn weights(&self) -> [u64; 2] {
        NODES.map(|id| self.weight(id))
    }

    /// An Envoy in front of the plain services that passes connections on, and where it listens.
    fn envoy(&self, speech: Speech) -> (Envoy, u16) {
        let port = ports::passing();
        let bootstrap = in_front(envoy::bootstrap(speech, "edge-01", self.port), WSS, port);
        let envoy = Envoy::start(&bootstrap.to_string());
        eventually("Envoy to pass connections on", SOON, || (!backend::ask(port).is_empty()).then_some(()));
        (envoy, port)
    }

    /// A client of the services of gRPC.
    fn client(&self) -> GrpcClient {
        GrpcClient::start(&grpc_client::bootstrap("client-01", self.port, &json!({ "type": "insecure" })))
    }

    /// Waits until Envoy has both nodes, with these words for their health, and the weights that they should have.
    fn envoy_has(&self, envoy: &Envoy, cluster: &str, health: [&str; 2]) {
        let ports = if cluster == WSS { &self.plain } else { &self.services.ports };
        envoy.shows(cluster, &format!("{health:?} with their weights"), |hosts| {
            let right = |(id, health): (&&str, &str)| {
                let wanted = Host { health: health.to_owned(), weight: self.weight(id) };
                // A node that takes no calls has no score, and its weight says nothing.
                hosts.get(&ports[*id]).is_some_and(|host| match health {
                    "HEALTHY" => *host == wanted,
                    _ => host.health == health,
                })
            };
            hosts.len() == NODES.len() && NODES.iter().zip(health).all(right)
        });
    }
}

/// What a client of gRPC calls.
fn target(group: &str) -> String {
    format!("xds:///{group}")
}

/// The lines of a group whose nodes are at these ports.
fn group(id: &str, ports: &BTreeMap<String, u16>, more: &str) -> String {
    let list = |value: fn(u16) -> String| {
        ports.iter().map(|(node, port)| format!("\"{node}\" = {}", value(*port))).collect::<Vec<_>>().join(", ")
    };
    let (addresses, ports) = (list(|_| "\"127.0.0.1\"".to_owned()), list(|port| port.to_string()));
    format!("[[xds.groups]]\nid = \"{id}\"\naddresses = {{ {addresses} }}\nports = {{ {ports} }}\n{more}\n")
}

/// This configuration of Envoy, with a listener at that port which passes connections on to a cluster as they are.
fn in_front(mut bootstrap: Value, cluster: &str, port: u16) -> Value {
    bootstrap["static_resources"]["listeners"] = json!([{
        "name": "front",
        "address": { "socket_address": { "address": "127.0.0.1", "port_value": port } },
        "filter_chains": [{ "filters": [{
            "name": "envoy.filters.network.tcp_proxy",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "stat_prefix": "front",
                "cluster": cluster,
            },
        }] }],
    }]);
    bootstrap
}

/// Shares of the calls are those of the weights, as far as `count` calls that are spread at random can tell.
fn is_in_proportion(counted: &BTreeMap<String, u32>, weights: [u64; 2]) {
    let count: u32 = counted.values().sum();
    #[expect(clippy::cast_precision_loss, reason = "weights are at most 100")]
    let share = weights[0] as f64 / (weights[0] + weights[1]) as f64;
    let got = f64::from(counted.get(NODES[0]).copied().unwrap_or(0)) / f64::from(count);
    let sigma = (share * (1.0 - share) / f64::from(count)).sqrt();
    println!("{counted:?} for weights {weights:?}");
    assert!(counted.keys().all(|name| NODES.contains(&name.as_str())), "{counted:?}");
    // Six standard deviations: once in five hundred million runs it fails for no reason.
    assert!((got - share).abs() < 6.0 * sigma, "{counted:?} for weights {weights:?}");
}
