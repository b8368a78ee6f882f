//! `/metrics`: figures for Prometheus.
//!
//! What the picture holds is read from it when somebody asks; only what passes by is counted here. Labels are names of the
//! configuration and words of the program, never text from calls, so their number is bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, watch};

use super::{Limits, Sources};
use crate::edge::{Endpoint, EndpointGroup, Health, Snapshot};
use crate::engine::view::{BreakerState, ChangeView, ConnectionView, LinkState, MapView, NodeView, RouteView, View};
use crate::ids::QualityKey;
use crate::quality::machine::{Reason, State};
use crate::score::{Admin, Figure};
use crate::tasks::Tasks;
use crate::xds::clients::Registry as Clients;
use crate::xds::view::{Protocol, XdsTotals, XdsView};

/// Bounds of the times that requests take, in seconds: answers from memory, up to the limit.
const SECONDS: [f64; 8] = [0.000_1, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0];

/// The label of a path that does not exist. Paths as they were asked for would be without bound.
const NO_ROUTE: &str = "none";

/// Names with their values. Few and short; a page has some thousands of them.
type Labels = Vec<(&'static str, String)>;

/// All that is counted, and where it is read.
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
}

impl Metrics {
    pub(super) fn new(
        sources: &Sources,
        limits: &Limits,
        places: &Arc<Semaphore>,
        streams: &Arc<Semaphore>,
        tasks: &Tasks,
    ) -> Self {
        let mut registry = Registry::with_prefix("pointsman");
        let requests = Family::default();
        registry.register("http_requests", "Requests answered", requests.clone());
        let seconds = Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> Histogram);
        registry.register("http_request_duration_seconds", "Time that requests took", seconds.clone());
        let changes = Family::default();
        registry.register(
            "connection_changes",
            "Changes of connections' states, by the state that began and why",
            changes.clone(),
        );
        count_changes(sources.changes.subscribe(), changes, tasks);
        registry.register_collector(Box::new(Picture(sources.view.clone())));
        registry.register_collector(Box::new(Edges(sources.endpoints.clone())));
        if let Some(clients) = &sources.xds {
            registry.register_collector(Box::new(Xds(clients.clone())));
        }
        registry.register_collector(Box::new(Places {
            connections: (limits.connections, places.clone()),
            streams: (limits.streams, streams.clone()),
        }));
        Self { registry, requests, seconds }
    }

    /// A request was answered.
    pub(super) fn count(&self, route: Option<&str>, method: &Method, status: StatusCode, took: Duration) {
        let route = route.unwrap_or(NO_ROUTE);
        let labels = vec![
            ("route", route.to_owned()),
            ("method", known(method).to_owned()),
            ("status", status.as_str().to_owned()),
        ];
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&vec![("route", route.to_owned())]).observe(took.as_secs_f64());
    }

    /// The page.
    pub(super) fn page(&self) -> String {
        let mut page = String::new();
        // Writing to memory does not fail.
        let _ = encode(&mut page, &self.registry);
        page
    }
}

/// A method as a label: clients may invent others.
fn known(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD | Method::PUT | Method::POST | Method::DELETE | Method::OPTIONS => method.as_str(),
        _ => "other",
    }
}

fn count_changes(mut changes: broadcast::Receiver<Arc<ChangeView>>, counters: Family<Labels, Counter>, tasks: &Tasks) {
    let stopping = tasks.clone();
    tasks.spawn(async move {
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = stopping.stopping() => return,
            };
            match change {
                // A pin, or its end: the state is what it was.
                Ok(change) if change.change.reason == Reason::Operator && change.change.from == change.change.to => {}
                Ok(change) => {
                    let labels = with(key_labels(&change.key), "state", word(&change.change.to));
                    counters.get_or_create(&with(labels, "reason", word(&change.change.reason))).inc();
                }
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "changes were not counted"),
                Err(RecvError::Closed) => return,
            }
        }
    });
}

/// What is taken of what is limited.
#[derive(Debug)]
struct Places {
    connections: (usize, Arc<Semaphore>),
    streams: (usize, Arc<Semaphore>),
}

impl Collector for Places {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let taken = |(all, free): &(usize, Arc<Semaphore>)| count(all.saturating_sub(free.available_permits()));
        let mut page = Page(encoder);
        page.gauge("http_connections", "Connections to the HTTP server", [(NONE, Some(taken(&self.connections)))])?;
        page.gauge("http_event_streams", "Event streams that are open", [(NONE, Some(taken(&self.streams)))])
    }
}

/// What edges are told.
#[derive(Debug)]
struct Edges(watch::Receiver<Arc<Snapshot>>);

impl Collector for Edges {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = Arc::clone(&self.0.borrow());
        let mut page = Page(encoder);
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
        let generation = snapshot.generation as f64;
        page.gauge(
            "endpoints_generation",
            "Snapshot that edges are told, 0 before the first",
            [(NONE, Some(generation))],
        )?;
        let all = || snapshot.groups.iter().flat_map(|group| group.endpoints.iter().map(move |one| (group, one)));
        let healths = [Health::Healthy, Health::Unhealthy, Health::Draining, Health::Unknown];
        let states = all().flat_map(|(group, one)| one_hot(&endpoint_labels(group, one), healths, one.health));
        page.gauge("endpoint_state", "1 for what edges are told of the node", states)?;
        let weights = all().map(|(group, one)| (endpoint_labels(group, one), Some(f64::from(one.weight))));
        page.gauge("endpoint_weight", "Its share of the calls, against the others of the cluster", weights)
    }
}

fn endpoint_labels(group: &EndpointGroup, endpoint: &Endpoint) -> Labels {
    vec![("cluster", group.cluster.clone()), ("node", endpoint.node.to_string())]
}

/// The xDS server. Nothing of a single client: how many there are, and what they call themselves, is theirs to choose.
#[derive(Debug)]
struct Xds(Clients);

impl Collector for Xds {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        xds(&mut Page(encoder), &self.0.view())
    }
}

fn xds(page: &mut Page<'_>, XdsView { address, clients, totals, .. }: &XdsView) -> fmt::Result {
    let &XdsTotals { streams, dropped, sent, accepted, rejected, refused } = totals;
    page.gauge("xds_listening", "Whether edges can reach the xDS server", [(NONE, flag(address.is_some()))])?;
    let of = |protocol| clients.iter().filter(|client| client.protocol == protocol).count();
    let protocols = [Protocol::StateOfTheWorld, Protocol::Delta];
    let open = protocols.map(|protocol| (vec![("protocol", word(&protocol))], Some(count(of(protocol)))));
    page.gauge("xds_clients", "Streams that are open", open)?;
    let rejecting = clients.iter().filter(|client| client.rejects()).count();
    page.gauge("xds_clients_rejecting", "Streams whose client rejects an answer", [(NONE, Some(count(rejecting)))])?;
    page.counter("xds_streams", "Streams opened", [(NONE, streams)])?;
    page.counter("xds_dropped_streams", "Streams that pointsman ended, for a reason", [(NONE, dropped)])?;
    page.counter("xds_refused_clients", "Clients that were not let in", [(NONE, refused)])?;
    page.counter("xds_sent_responses", "Answers sent", [(NONE, sent)])?;
    page.counter("xds_accepted_responses", "Answers that clients accepted", [(NONE, accepted)])?;
    page.counter("xds_rejected_responses", "Answers that clients rejected", [(NONE, rejected)])
}

/// The picture, at the moment of the question.
#[derive(Debug)]
struct Picture(watch::Receiver<Arc<View>>);

impl Collector for Picture {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let view = Arc::clone(&self.0.borrow());
        let mut page = Page(encoder);
        program(&mut page, &view)?;
        nodes(&mut page, &view.nodes)?;
        links(&mut page, &view.nodes)?;
        variables(&mut page, &view.nodes)?;
        connections(&mut page, &view.connections)?;
        routing(&mut page, &view)?;
        storage_and_mail(&mut page, &view)
    }
}

/// Writes metrics one after the other.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// Values that go up and down; one that is not known is left out.
    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, Option<f64>)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            if let Some(value) = value {
                encoder.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    /// Values that only grow; `_total` is added to the name.
    fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels, u64)>) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn of_nodes(
        &mut self,
        name: &str,
        help: &str,
        nodes: &[NodeView],
        value: fn(&NodeView) -> Option<f64>,
    ) -> fmt::Result {
        self.gauge(name, help, nodes.iter().map(|node| (node_label(node), value(node))))
    }

    fn counts_of_nodes(
        &mut self,
        name: &str,
        help: &str,
        nodes: &[NodeView],
        value: fn(&NodeView) -> u64,
    ) -> fmt::Result {
        self.counter(name, help, nodes.iter().map(|node| (node_label(node), value(node))))
    }

    fn of_connections(
        &mut self,
        name: &str,
        help: &str,
        connections: &[ConnectionView],
        value: fn(&ConnectionView) -> Option<f64>,
    ) -> fmt::Result {
        self.gauge(name, help, connections.iter().map(|connection| (key_labels(&connection.key), value(connection))))
    }
}

fn program(page: &mut Page<'_>, view: &View) -> fmt::Result {
    page.gauge("build_info", "Version of the program", [(vec![("version", view.version.clone())], Some(1.0))])?;
    page.gauge("start_time_seconds", "When the program started", [(NONE, Some(view.started_at.as_secs_f64()))])?;
    page.gauge("picture_time_seconds", "When the engine last published", [(NONE, Some(view.at.as_secs_f64()))])
}

fn nodes(page: &mut Page<'_>, nodes: &[NodeView]) -> fmt::Result {
    let value = |figure: Option<Figure>| figure.map(|figure| figure.value);
    page.of_nodes("node_up", "Whether there is a link to the node", nodes, |n| flag(n.link.state == LinkState::Up))?;
    page.of_nodes("node_score", "Score from 0 to 100, -100 while excluded", nodes, |n| Some(n.assessment.score))?;
    page.of_nodes("node_excluded", "Whether the node gets no calls", nodes, |n| flag(!n.assessment.lethal.is_empty()))?;
    page.of_nodes("node_active_calls", "Outbound legs that are up", nodes, |n| Some(count(n.active_calls)))?;
    page.of_nodes("node_max_calls", "Most that there should be", nodes, |n| n.figures.max_calls.map(f64::from))?;
    page.of_nodes("node_calls_per_second", "Calls placed a second", nodes, |n| n.figures.calls_per_sec)?;
    page.gauge("node_load_average", "Load average over a minute", each(nodes, |n| value(n.figures.load_avg)))?;
    page.gauge("node_idle_cpu_ratio", "Idle CPU", each(nodes, |n| percent(value(n.figures.idle_cpu))))?;
    page.gauge("node_memory_free_ratio", "Free memory", each(nodes, |n| percent(value(n.figures.memory_free))))?;
    page.of_nodes("node_failure_ratio", "Attempts that the network failed", nodes, |n| {
        percent(n.figures.failure_rate)
    })?;
    page.of_nodes("node_rtt_seconds", "Reply time to the keepalive, smoothed", nodes, |n| {
        n.figures.rtt_ms.map(|ms| ms / 1e3)
    })?;
    let breakers = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];
    let states = nodes.iter().flat_map(|node| one_hot(&node_label(node), breakers, node.breaker.state));
    page.gauge("node_breaker_state", "1 for what the circuit breaker does", states)?;
    let admins = [Admin::Enabled, Admin::Draining, Admin::Disabled];
    let states = nodes.iter().flat_map(|node| one_hot(&node_label(node), admins, node.admin));
    page.gauge("node_admin_state", "1 for what the operator wants", states)
}

fn links(page: &mut Page<'_>, nodes: &[NodeView]) -> fmt::Result {
    page.counts_of_nodes("node_link_received_bytes", "Bytes from the PBX", nodes, |n| n.link.bytes)?;
    page.counts_of_nodes("node_link_events", "Events from the PBX", nodes, |n| n.link.events)?;
    page.counts_of_nodes("node_link_connects", "Times that the link came up", nodes, |n| n.link.connects)?;
    page.counts_of_nodes("node_pbx_restarts", "Times that the PBX was found restarted", nodes, |n| n.link.restarts)?;
    page.counts_of_nodes("node_link_dropped_events", "Events that found our queue full", nodes, |n| n.link.dropped)?;
    page.counts_of_nodes("node_link_damaged_messages", "Messages that were damaged", nodes, |n| n.link.damaged)?;
    page.counts_of_nodes("node_link_losses", "Losses of events found", nodes, |n| n.link.losses)?;
    page.counts_of_nodes("node_link_resyncs", "Lists of calls read", nodes, |n| n.link.resyncs)?;
    page.counts_of_nodes("node_false_ends", "Ends of calls that were not true", nodes, |n| n.link.false_ends)?;
    page.counts_of_nodes("node_refused_legs", "Legs not followed: too many", nodes, |n| n.link.legs_refused)?;
    let unseen = nodes.iter().flat_map(|node| {
        let ends = [("answered", node.link.ends_unseen_answered), ("lost", node.link.ends_unseen_lost)];
        ends.map(|(outcome, ends)| (with(node_label(node), "outcome", outcome.to_owned()), ends))
    });
    page.counter("node_unseen_ends", "Legs whose end was not seen", unseen)
}

fn variables(page: &mut Page<'_>, nodes: &[NodeView]) -> fmt::Result {
    page.of_nodes("node_variables", "Variables that the node should have", nodes, |n| {
        Some(count(n.variables.desired))
    })?;
    page.of_nodes("node_variables_pending", "Written, not acknowledged yet", nodes, |n| {
        Some(count(n.variables.pending))
    })?;
    page.of_nodes("node_variables_in_step", "Whether all are as they should be", nodes, |n| {
        flag(n.variables.in_step_at.is_some())
    })?;
    page.counts_of_nodes("node_variables_written", "Writes acknowledged", nodes, |n| n.variables.written)?;
    page.counts_of_nodes("node_variables_repaired", "Values put back", nodes, |n| n.variables.repaired)?;
    page.of_nodes("node_variable_latency_seconds", "From the last event to its acknowledged variable", nodes, |n| {
        n.variables.last_latency_us.map(|us| Duration::from_micros(us).as_secs_f64())
    })
}

fn connections(page: &mut Page<'_>, all: &[ConnectionView]) -> fmt::Result {
    let states = [State::Good, State::Bad, State::Retry];
    let states = all.iter().flat_map(|connection| one_hot(&key_labels(&connection.key), states, connection.state));
    page.gauge("connection_state", "1 for the state of the connection", states)?;
    page.of_connections("connection_pinned", "Whether an operator pinned it", all, |c| flag(c.pinned.is_some()))?;
    page.of_connections("connection_active_calls", "Legs that are up", all, |c| Some(count(c.active_calls)))?;
    page.of_connections("connection_window_calls", "Attempts in the window", all, |c| Some(count(c.figures.calls)))?;
    page.of_connections("connection_asr_ratio", "Answer-seizure ratio", all, |c| percent(c.figures.asr))?;
    page.of_connections("connection_ner_ratio", "Network effectiveness ratio", all, |c| percent(c.figures.ner))?;
    page.of_connections("connection_acd_seconds", "Average call duration", all, |c| c.figures.acd)?;
    page.of_connections("connection_pdd_seconds", "Mean post-dial delay", all, |c| c.figures.pdd)?;
    // Every pair of a connection and a map has the count of the connection.
    let unmapped: BTreeMap<_, u64> = all.iter().map(|one| (one.key.connection.to_string(), one.unmapped)).collect();
    let unmapped = unmapped.into_iter().map(|(connection, attempts)| (vec![("connection", connection)], attempts));
    page.counter("connection_unmapped_attempts", "Attempts in no map of the connection, not judged", unmapped)
}

fn routing(page: &mut Page<'_>, view: &View) -> fmt::Result {
    page.gauge("best_score", "Score of the best node, -100 without one", [(NONE, Some(view.routing.best_score))])?;
    page.gauge("fallback_active", "Whether every node is excluded", [(NONE, flag(view.routing.fallback_active))])?;
    page.gauge("panic", "Whether a map has all of its connections blocked", [(NONE, flag(view.routing.panic))])?;
    maps(page, &view.maps)
}

fn maps(page: &mut Page<'_>, all: &[Arc<MapView>]) -> fmt::Result {
    let of = |value: fn(&MapView) -> Option<f64>| all.iter().map(move |map| (map_label(map), value(map)));
    page.gauge("map_connections", "Connections in the hunt order of the map", of(|m| Some(count(m.hunt_order.len()))))?;
    page.gauge("map_blocked_connections", "Connections left out of the map", of(|m| Some(count(m.blocked.len()))))?;
    page.gauge("map_panic", "Whether all connections of the map are blocked", of(|m| flag(m.panic)))?;
    let route = |value: fn(&RouteView) -> Option<f64>| {
        let routes = all.iter().flat_map(|map| map.routes.iter().map(move |route| (map, route)));
        routes.map(move |(map, route)| (with(map_label(map), "connection", route.connection.to_string()), value(route)))
    };
    page.gauge("route_priority", "Static and dynamic priority of the route", route(|r| Some(r.priority)))?;
    page.gauge("route_dynamic_priority", "What the rule of the map adds", route(|r| Some(r.dynamic_priority)))?;
    page.gauge("route_place", "Place in the hunt order, from 1", route(|r| r.place.map(count)))
}

fn map_label(map: &MapView) -> Labels {
    vec![("map", map.id.to_string())]
}

fn storage_and_mail(page: &mut Page<'_>, View { storage, mail, .. }: &View) -> fmt::Result {
    page.gauge("storage_healthy", "Whether the last write succeeded", [(NONE, flag(storage.healthy))])?;
    page.gauge("storage_backlog_rows", "Rows that wait to be written", [(NONE, Some(count(storage.backlog)))])?;
    page.counter("storage_dropped_rows", "Rows dropped: the backlog was full", [(NONE, storage.dropped)])?;
    page.gauge("mail_usable", "Whether the mail server can be used", [(NONE, flag(mail.problem.is_empty()))])?;
    page.gauge("mail_waiting", "Deliveries that wait", [(NONE, Some(count(mail.waiting)))])?;
    page.gauge("mail_dead", "Deliveries that were given up", [(NONE, Some(count(mail.dead)))])?;
    page.counter("mail_sent", "Deliveries made", [(NONE, mail.sent)])?;
    page.counter("mail_lost", "Letters dropped: the outbox was full", [(NONE, mail.lost)])
}

const NONE: Labels = Vec::new();

fn each<'a>(
    nodes: &'a [NodeView],
    value: impl Fn(&NodeView) -> Option<f64> + 'a,
) -> impl Iterator<Item = (Labels, Option<f64>)> + 'a {
    nodes.iter().map(move |node| (node_label(node), value(node)))
}

fn node_label(node: &NodeView) -> Labels {
    vec![("node", node.id.to_string())]
}

fn key_labels(key: &QualityKey) -> Labels {
    vec![
        ("connection", key.connection.to_string()),
        ("map", key.map.as_ref().map(ToString::to_string).unwrap_or_default()),
    ]
}

/// The labels and one more.
fn with(mut labels: Labels, name: &'static str, value: String) -> Labels {
    labels.push((name, value));
    labels
}

/// 1 for what is, 0 for what could be.
fn one_hot<T: Serialize + PartialEq + Copy, const S: usize>(
    labels: &Labels,
    states: [T; S],
    now: T,
) -> [(Labels, Option<f64>); S] {
    states.map(|state| (with(labels.clone(), "state", word(&state)), flag(state == now)))
}

/// The word for a state, as in JSON.
fn word(state: &impl Serialize) -> String {
    serde_json::to_value(state).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn flag(is: bool) -> Option<f64> {
    Some(f64::from(u8::from(is)))
}

fn percent(percent: Option<f64>) -> Option<f64> {
    percent.map(|percent| percent / 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(XdsView);

    impl Collector for Fixed {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            xds(&mut Page(encoder), &self.0)
        }
    }

    #[test]
    fn each_count_of_the_xds_server_has_its_own_name() {
        let totals = XdsTotals { streams: 1, dropped: 2, sent: 3, accepted: 4, rejected: 5, refused: 6 };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Fixed(XdsView { totals, ..XdsView::default() })));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        let is_count = |line: &&str| line.contains("_total ") && !line.starts_with('#');
        let counts: Vec<&str> = page.lines().filter(is_count).collect();
        let expected = [
            "xds_streams_total 1",
            "xds_dropped_streams_total 2",
            "xds_refused_clients_total 6",
            "xds_sent_responses_total 3",
            "xds_accepted_responses_total 4",
            "xds_rejected_responses_total 5",
        ];
        assert_eq!(counts, expected);
        assert!(page.contains("xds_listening 0"), "{page}");
    }
}
