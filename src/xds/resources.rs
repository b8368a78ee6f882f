//! What is served: snapshots as the resources of the discovery protocol. Pure.
//!
//! Every group is four or five resources that refer to each other by the name of its cluster. What they hold is what both
//! Envoy and the clients without a proxy of gRPC take:
//!
//! | kind | name | content |
//! |---|---|---|
//! | cluster | NAME | its endpoints come over the same stream; weighted round robin; an unhealthy node gets nothing, ever |
//! | endpoints | NAME | each node is a locality of its own: gRPC weighs localities, Envoy endpoints, so both have the weight |
//! | listener | NAME | for gRPC (`xds:///NAME`): not told to who asks for all |
//! | listener | NAME-listener | for Envoy: a socket, where the group has one configured |
//! | route | NAME | everything goes to the cluster |

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::{Message, Name};
use prost_types::{Any, Duration};
use xxhash_rust::xxh3::xxh3_64;

use super::kind::Kind;
use super::protocol::envoy::config::cluster::v3::Cluster;
use super::protocol::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy,
};
use super::protocol::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, HealthStatus, Locality, SocketAddress, address,
    config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
};
use super::protocol::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use super::protocol::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as EndpointProto, LbEndpoint, LocalityLbEndpoints,
};
use super::protocol::envoy::config::listener::v3::{ApiListener, Filter, FilterChain, Listener, filter};
use super::protocol::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route, route_action, route_match,
};
use super::protocol::envoy::extensions::filters::http::router::v3::Router;
use super::protocol::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    RouteSpecifier, UpgradeConfig,
};
use super::protocol::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_filter,
};
use super::protocol::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use super::protocol::envoy::r#type::v3::Percent;
use crate::config::model::{EdgeGroup, EdgeListener, EdgeProtocol};
use crate::edge::{Endpoint, EndpointGroup, Health, Snapshot};

/// How long an edge tries to reach a node: a PBX in the same network answers within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration { seconds: 2, nanos: 0 };

/// How long a WebSocket may be silent. Phones say something at least each time that they register again; Envoy's own five
/// minutes would end the calls of those that do so every ten. Envoy gives plain TCP an hour by itself.
const WEBSOCKET_IDLE: Duration = Duration { seconds: 3_600, nanos: 0 };

/// What is added to a name to tell the listener that it opens from the one that gRPC asks for.
const LISTENER: &str = "-listener";

/// A resource, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// Changes with its content and with nothing else, so that it is the same after a restart.
    pub version: String,
    /// Its content.
    pub body: Any,
    /// Whether a client that asks for everything gets it. One that only makes sense to who names it is not: a listener
    /// for a client without a proxy is none that a proxy could open.
    pub listed: bool,
}

impl Resource {
    /// A resource with its version.
    #[must_use]
    pub fn new(kind: Kind, name: &str, content: &impl Message, listed: bool) -> Self {
        let body = Any { type_url: kind.type_url().to_owned(), value: content.encode_to_vec() };
        let version = format!("{:016x}", xxh3_64(&body.value));
        Self { name: name.to_owned(), version, body, listed }
    }
}

/// All resources of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    kinds: [BTreeMap<String, Arc<Resource>>; Kind::ALL.len()],
}

impl Resources {
    /// Those of a snapshot of these groups.
    #[must_use]
    pub fn of(snapshot: &Snapshot, groups: &[EdgeGroup]) -> Self {
        let mut all = Self::default();
        for told in &snapshot.groups {
            let name = told.cluster.as_str();
            let mut add = |kind, resource: Resource| all.insert(kind, resource);
            add(Kind::Cluster, Resource::new(Kind::Cluster, name, &cluster(name), true));
            add(Kind::Endpoints, Resource::new(Kind::Endpoints, name, &assignment(told), true));
            add(Kind::Listener, Resource::new(Kind::Listener, name, &api_listener(name), false));
            add(Kind::Route, Resource::new(Kind::Route, name, &routes(name), true));
            let configured = groups.iter().find(|group| group.id == told.id).and_then(|group| group.listener);
            if let Some(socket) = configured {
                let listener = socket_listener(name, &socket);
                let own_name = listener.name.clone();
                add(Kind::Listener, Resource::new(Kind::Listener, &own_name, &listener, true));
            }
        }
        all
    }

    /// Those of a kind, by name.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> &BTreeMap<String, Arc<Resource>> {
        &self.kinds[kind as usize]
    }

    /// Adds one, or puts it in the place of another of its name.
    pub fn insert(&mut self, kind: Kind, resource: Resource) {
        self.kinds[kind as usize].insert(resource.name.clone(), Arc::new(resource));
    }

    /// Takes one away.
    pub fn remove(&mut self, kind: Kind, name: &str) {
        self.kinds[kind as usize].remove(name);
    }
}

fn cluster(name: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(this_stream()), service_name: String::new() }),
        connect_timeout: Some(CONNECT_TIMEOUT),
        lb_policy: LbPolicy::RoundRobin.into(),
        // Otherwise Envoy sends calls to unhealthy nodes too as soon as half of them are. Who is to be tried when no node
        // takes calls is decided where the snapshot is made.
        common_lb_config: Some(CommonLbConfig { healthy_panic_threshold: Some(Percent { value: 0.0 }) }),
    }
}

fn assignment(group: &EndpointGroup) -> ClusterLoadAssignment {
    ClusterLoadAssignment {
        cluster_name: group.cluster.clone(),
        endpoints: group.endpoints.iter().map(locality).collect(),
    }
}

fn locality(endpoint: &Endpoint) -> LocalityLbEndpoints {
    let health = match endpoint.health {
        Health::Healthy => HealthStatus::Healthy,
        Health::Unhealthy => HealthStatus::Unhealthy,
        Health::Draining => HealthStatus::Draining,
        Health::Unknown => HealthStatus::Unknown,
    };
    let address = Some(socket_address(&endpoint.address, endpoint.port));
    let at = EndpointProto { address, hostname: endpoint.node.to_string() };
    let lb_endpoint = LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(at)),
        health_status: health.into(),
        load_balancing_weight: Some(endpoint.weight),
    };
    LocalityLbEndpoints {
        locality: Some(Locality { sub_zone: endpoint.node.to_string(), ..Locality::default() }),
        lb_endpoints: vec![lb_endpoint],
        load_balancing_weight: Some(endpoint.weight),
        priority: 0,
    }
}

fn api_listener(name: &str) -> Listener {
    let api_listener = Some(ApiListener { api_listener: Some(any(&connection_manager(name))) });
    Listener { name: name.to_owned(), api_listener, ..Listener::default() }
}

fn socket_listener(name: &str, socket: &EdgeListener) -> Listener {
    let (filter, config) = match socket.protocol {
        EdgeProtocol::Tcp => ("envoy.filters.network.tcp_proxy", any(&tcp_proxy(name))),
        EdgeProtocol::Http => ("envoy.filters.network.http_connection_manager", any(&connection_manager(name))),
    };
    let filter = Filter { name: filter.to_owned(), config_type: Some(filter::ConfigType::TypedConfig(config)) };
    Listener {
        name: format!("{name}{LISTENER}"),
        address: Some(socket_address(&socket.listen.ip().to_string(), socket.listen.port())),
        filter_chains: vec![FilterChain { filters: vec![filter] }],
        api_listener: None,
    }
}

fn tcp_proxy(name: &str) -> TcpProxy {
    TcpProxy {
        stat_prefix: name.to_owned(),
        cluster_specifier: Some(tcp_proxy::ClusterSpecifier::Cluster(name.to_owned())),
    }
}

fn connection_manager(name: &str) -> HttpConnectionManager {
    let router = http_filter::ConfigType::TypedConfig(any(&Router {}));
    HttpConnectionManager {
        stat_prefix: name.to_owned(),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(this_stream()),
            route_config_name: name.to_owned(),
        })),
        http_filters: vec![HttpFilter { name: "envoy.filters.http.router".to_owned(), config_type: Some(router) }],
        upgrade_configs: vec![UpgradeConfig { upgrade_type: "websocket".to_owned() }],
        stream_idle_timeout: Some(WEBSOCKET_IDLE),
    }
}

fn routes(name: &str) -> RouteConfiguration {
    let action = RouteAction {
        cluster_specifier: Some(route_action::ClusterSpecifier::Cluster(name.to_owned())),
        // A WebSocket is one request that lasts as long as the phone is there.
        timeout: Some(Duration::default()),
    };
    let everything = RouteMatch { path_specifier: Some(route_match::PathSpecifier::Prefix("/".to_owned())) };
    let route = Route { r#match: Some(everything), action: Some(route::Action::Route(action)) };
    let host = VirtualHost { name: name.to_owned(), domains: vec!["*".to_owned()], routes: vec![route] };
    RouteConfiguration { name: name.to_owned(), virtual_hosts: vec![host] }
}

/// What a resource refers to comes over the stream that it came over itself.
fn this_stream() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
    }
}

fn socket_address(address: &str, port: u16) -> Address {
    let port_specifier = Some(PortSpecifier::PortValue(port.into()));
    let socket = SocketAddress { address: address.to_owned(), port_specifier };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: format!("type.googleapis.com/{}", M::full_name()), value: message.encode_to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::Member;
    use crate::ids::{GroupId, NodeId};
    use crate::time::Timestamp;

    fn group(listener: Option<EdgeListener>) -> EdgeGroup {
        let member = Member { node: NodeId::new("pbx-01").unwrap(), host: "192.0.2.1".to_owned(), port: 7443 };
        let id = GroupId::new("wss").unwrap();
        EdgeGroup { id, cluster: "phones".to_owned(), members: vec![member], listener, fail_open: true }
    }

    fn snapshot(generation: u64, health: Health, weight: u32) -> Snapshot {
        let endpoint = Endpoint {
            node: NodeId::new("pbx-01").unwrap(),
            address: "192.0.2.1".to_owned(),
            port: 7443,
            health,
            weight,
            stands_in: false,
        };
        let (id, cluster) = (GroupId::new("wss").unwrap(), "phones".to_owned());
        let groups = vec![EndpointGroup { id, cluster, endpoints: vec![endpoint] }];
        Snapshot { generation, at: Timestamp::from_secs(1), groups }
    }

    fn names(resources: &Resources, kind: Kind) -> Vec<(&str, bool)> {
        resources.of_kind(kind).values().map(|it| (it.name.as_str(), it.listed)).collect()
    }

    #[test]
    fn a_group_is_a_cluster_with_all_that_leads_to_it() {
        let all = Resources::of(&snapshot(1, Health::Healthy, 67), &[group(None)]);
        for kind in [Kind::Cluster, Kind::Endpoints, Kind::Route] {
            assert_eq!(names(&all, kind), [("phones", true)], "{kind:?}");
        }
        assert_eq!(names(&all, Kind::Listener), [("phones", false)], "for who names it");
        for resource in Kind::ALL.iter().flat_map(|kind| all.of_kind(*kind).values()) {
            assert!(Kind::ALL.iter().any(|kind| kind.type_url() == resource.body.type_url), "{resource:?}");
        }
    }

    #[test]
    fn the_socket_is_there_for_who_asks_for_all_where_one_is_configured() {
        let listen = ([0, 0, 0, 0], 7443).into();
        let mut opened = Vec::new();
        for protocol in [EdgeProtocol::Tcp, EdgeProtocol::Http] {
            let all =
                Resources::of(&snapshot(1, Health::Healthy, 67), &[group(Some(EdgeListener { listen, protocol }))]);
            assert_eq!(names(&all, Kind::Listener), [("phones", false), ("phones-listener", true)]);
            let body = &all.of_kind(Kind::Listener)["phones-listener"].body.value;
            let listener = Listener::decode(&**body).unwrap();
            opened.push(listener.filter_chains[0].filters[0].name.clone());
        }
        assert_eq!(opened, ["envoy.filters.network.tcp_proxy", "envoy.filters.network.http_connection_manager"]);
    }

    #[test]
    fn a_version_is_that_of_the_content() {
        let versions = |snapshot: &Snapshot| {
            let all = Resources::of(snapshot, &[group(None)]);
            Kind::ALL.map(|kind| all.of_kind(kind)["phones"].version.clone())
        };
        let before = versions(&snapshot(1, Health::Healthy, 67));
        assert_eq!(before, versions(&snapshot(2, Health::Healthy, 67)), "another snapshot of the same");
        let after = versions(&snapshot(2, Health::Unhealthy, 1));
        let changed: Vec<_> = Kind::ALL.iter().zip(before.iter().zip(&after)).filter(|(_, (a, b))| a != b).collect();
        assert_eq!(changed.iter().map(|(kind, _)| **kind).collect::<Vec<_>>(), [Kind::Endpoints]);
    }

    #[test]
    fn both_clients_find_the_weight_and_the_health() {
        let healths = [
            (Health::Healthy, HealthStatus::Healthy),
            (Health::Unhealthy, HealthStatus::Unhealthy),
            (Health::Draining, HealthStatus::Draining),
            (Health::Unknown, HealthStatus::Unknown),
        ];
        for (health, told) in healths {
            let all = Resources::of(&snapshot(1, health, 42), &[group(None)]);
            let body = &all.of_kind(Kind::Endpoints)["phones"].body.value;
            let locality = ClusterLoadAssignment::decode(&**body).unwrap().endpoints.remove(0);
            let endpoint = &locality.lb_endpoints[0];
            assert_eq!((locality.load_balancing_weight, endpoint.load_balancing_weight), (Some(42), Some(42)));
            assert_eq!(endpoint.health_status(), told);
            assert_eq!(locality.locality.map(|it| it.sub_zone).as_deref(), Some("pbx-01"));
        }
    }
}
