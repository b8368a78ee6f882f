//! How soon subscribers hear of a change.
//!
//! `cargo bench --bench xds`. From the moment when the engine publishes a picture in which a node has just died, or is back,
//! to the moment when a subscriber holds the decoded answer in its hands, over TCP on this machine. Subscribers and server
//! share the processors, so with many of them it is mostly the subscribers' own work that is measured. A thousand of them need
//! some 2,100 open files (`ulimit -n`).

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a bench measures time and says what it measured")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman::balance::{Candidate, Picture};
use pointsman::clock::Clock;
use pointsman::config::model::{EdgeGroup, Member, Scoring, Xds};
use pointsman::edge::feed;
use pointsman::ids::{GroupId, NodeId};
use pointsman::score::{EXCLUDED, Lethal};
use pointsman::tasks::Tasks;
use pointsman::time::Timestamp;
use pointsman::xds;
use pointsman::xds::kind::Kind;
use pointsman::xds::protocol::envoy::config::core::v3::Node;
use pointsman::xds::protocol::envoy::service::discovery::v3::DiscoveryRequest;
use pointsman::xds::protocol::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// Subscribers at a time, each with a connection of its own.
const CROWDS: [usize; 3] = [1, 100, 1_000];

/// Nodes in the group.
const NODES: usize = 10;

/// Changes that are measured with each crowd.
const CHANGES: u64 = 100;

/// Between two changes: longer than the slowest subscriber takes.
const PAUSE: Duration = Duration::from_millis(150);

/// Longest wait for a subscriber, so that the bench ends when something is broken.
const PATIENCE: Duration = Duration::from_secs(10);

fn node(number: usize) -> NodeId {
    NodeId::new(&format!("pbx-{number:02}")).expect("an id")
}

/// Ten nodes; the first of them is dead in every second picture.
fn picture(generation: u64) -> Arc<Picture> {
    let candidate = |number| {
        let dead = number == 0 && generation % 2 == 1;
        Candidate {
            node: node(number),
            address: Arc::from("192.0.2.1"),
            score: if dead { EXCLUDED } else { 70.0 },
            fitness: 70.0,
            points_per_call: 0.16,
            active_calls: 40,
            max_calls: None,
            rtt_ms: 0.8,
            linked: true,
            replied: true,
            disabled: false,
            lethal: if dead { vec![Lethal::Full] } else { Vec::new() },
            settled: 0,
        }
    };
    let candidates = (0..NODES).map(candidate).collect();
    Arc::new(Picture::of(generation, Timestamp::from_secs(1), candidates, &Scoring::default(), false))
}

fn group() -> EdgeGroup {
    let member = |number| Member { node: node(number), host: "192.0.2.1".to_owned(), port: 5060 };
    EdgeGroup {
        id: GroupId::new("sip").expect("an id"),
        cluster: "sip".to_owned(),
        members: (0..NODES).map(member).collect(),
        listener: None,
        fail_open: true,
    }
}

/// Subscribes, and tells when each answer was there.
async fn subscribe(address: SocketAddr, number: usize, heard: mpsc::Sender<Instant>) {
    let channel = Endpoint::from_shared(format!("http://{address}")).expect("a URI").connect().await.expect("a line");
    let (says, said) = mpsc::channel(4);
    let request = |nonce: String, version: String| DiscoveryRequest {
        version_info: version,
        node: Some(Node { id: format!("edge-{number}"), ..Node::default() }),
        resource_names: vec!["sip".to_owned()],
        type_url: Kind::Endpoints.type_url().to_owned(),
        response_nonce: nonce,
        error_detail: None,
    };
    says.send(request(String::new(), String::new())).await.expect("a stream");
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let stream = client.stream_aggregated_resources(ReceiverStream::new(said)).await;
    let mut stream = stream.expect("a stream").into_inner();
    while let Ok(Some(answer)) = stream.message().await {
        if heard.send(Instant::now()).await.is_err() {
            return;
        }
        let _ = says.send(request(answer.nonce, answer.version_info)).await;
    }
}

/// Milliseconds from the picture to each answer, in order.
async fn measure(crowd: usize) -> Vec<f64> {
    let (tasks, clock) = (Tasks::new(), Clock::system());
    let (pictures, pictured) = watch::channel(picture(0));
    let edge = feed::start(&[group()], &Scoring::default(), pictured, clock, &tasks);
    let open = Xds { listen: ([127, 0, 0, 1], 0).into(), tls: None, tokens: Vec::new() };
    let registry = xds::serve(&open, &[group()], edge, clock, &tasks);
    let address = loop {
        match registry.view().address {
            Some(address) => break address.parse().expect("an address"),
            None => sleep(Duration::from_millis(5)).await,
        }
    };
    let (heard, mut hearing) = mpsc::channel(crowd);
    for number in 0..crowd {
        tasks.spawn(subscribe(address, number, heard.clone()));
    }
    let mut took = Vec::new();
    for change in 0..=CHANGES {
        let begun = Instant::now();
        if change > 0 {
            pictures.send_replace(picture(change));
        }
        for _ in 0..crowd {
            let at = tokio::time::timeout(PATIENCE, hearing.recv()).await.expect("in time").expect("a subscriber");
            if change > 0 {
                took.push(at.duration_since(begun).as_secs_f64() * 1e3);
            }
        }
        sleep(PAUSE).await;
    }
    tasks.stop(PATIENCE).await;
    took.sort_by(f64::total_cmp);
    took
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    println!("subscribers   median      p99  slowest   (ms from the picture to the decoded answer, {CHANGES} changes)");
    for crowd in CROWDS {
        let took = runtime.block_on(measure(crowd));
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        println!("{crowd:>11} {:>8.2} {:>8.2} {:>8.2}", at(0.5), at(0.99), at(1.0));
    }
}
