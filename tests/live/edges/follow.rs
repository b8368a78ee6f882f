//! Edges take nodes and weights, and follow them.

use super::*;
use crate::lab::backend::{Answer, Traffic, ask_often, now};

#[test]
fn edges_take_the_nodes_and_their_weights() {
    let edges = Edges::start();
    edges.differ_in_weight();
    for speech in Speech::BOTH {
        let (envoy, port) = edges.envoy(speech);
        edges.envoy_has(&envoy, WSS, ["HEALTHY", "HEALTHY"]);
        edges.envoy_has(&envoy, MEDIA, ["HEALTHY", "HEALTHY"]);
        is_in_proportion(&ask_often(port, 1000), edges.weights());
    }
    let mut client = edges.client();
    is_in_proportion(&client.call(&target(MEDIA), 1000), edges.weights());
}

/// A weight changes by what the switch says of its load.
#[test]
fn edges_follow_the_weights() {
    let edges = Edges::start();
    let [(whole, _), (delta, port)] = Speech::BOTH.map(|speech| edges.envoy(speech));
    let mut client = edges.client();
    client.call(&target(MEDIA), 1);
    edges.differ_in_weight();
    edges.switches[0].set_load(10.0, 0.1);
    edges.switches[1].set_load(90.0, 0.1);
    eventually("other weights", SOON, || {
        let [one, other] = edges.weights();
        (one + 20 < other).then_some(())
    });
    for envoy in [&whole, &delta] {
        edges.envoy_has(envoy, WSS, ["HEALTHY", "HEALTHY"]);
    }
    is_in_proportion(&ask_often(port, 1000), edges.weights());
    is_in_proportion(&client.call(&target(MEDIA), 1000), edges.weights());
}

/// When the last call went to a node, in milliseconds after `since`; negative where it was before.
fn last(answers: &[Answer], node: &str, since: f64) -> f64 {
    let to_it = answers.iter().filter(|answer| answer.by == node).map(|answer| answer.at);
    (to_it.fold(f64::NEG_INFINITY, f64::max) - since) * 1000.0
}

/// When the first call since went to a node, in milliseconds after `since`.
fn first(answers: &[Answer], node: &str, since: f64) -> f64 {
    let to_it = answers.iter().filter(|answer| answer.by == node && answer.at > since).map(|answer| answer.at);
    (to_it.fold(f64::INFINITY, f64::min) - since) * 1000.0
}

/// Asks until Envoy has that health for the first node; when it had, in seconds since 1970.
fn seen_at(edges: &Edges, envoy: &Envoy, health: &str, within: Duration) -> f64 {
    let began = now();
    loop {
        if envoy.hosts(WSS).get(&edges.plain[NODES[0]]).is_some_and(|host| host.health == health) {
            return now();
        }
        assert!(now() - began < within.as_secs_f64(), "{health}: {:?}", envoy.hosts(WSS));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is done to the first node shows at every edge: in Envoy's list, where its health was one thing and becomes the
/// other, and in whom calls reach.
fn every_edge_follows(edges: &Edges, what: &str, health: [&str; 2], within: Duration, act: impl FnOnce()) {
    let [before, after] = health;
    let mut client = edges.client();
    client.call(&target(MEDIA), 1);
    let envoys = Speech::BOTH.map(|speech| edges.envoy(speech));
    for (envoy, _) in &envoys {
        seen_at(edges, envoy, before, SOON);
    }
    client.begin(&target(MEDIA));
    let traffic = envoys.each_ref().map(|(_, port)| Traffic::begin(*port));
    std::thread::sleep(Duration::from_millis(300));
    let since = now();
    act();
    let seen = std::thread::scope(|scope| {
        let looks = envoys.each_ref().map(|(envoy, _)| scope.spawn(|| seen_at(edges, envoy, after, within)));
        looks.map(|look| (look.join().unwrap() - since) * 1000.0)
    });
    // Long enough for a call that was on its way.
    std::thread::sleep(Duration::from_millis(500));
    println!("{what}: in Envoy's list after {:.0} ms and {:.0} ms (delta)", seen[0], seen[1]);
    let [whole, delta] = traffic.map(Traffic::end);
    for (edge, answers) in [("gRPC", client.end()), ("Envoy", whole), ("Envoy (delta)", delta)] {
        let failed = answers.iter().find(|answer| !NODES.contains(&answer.by.as_str()));
        assert!(failed.is_none(), "{edge}: {failed:?}");
        let (word, passed) = match after {
            "HEALTHY" => ("first", first(&answers, NODES[0], since)),
            _ => ("last", last(&answers, NODES[0], since)),
        };
        println!("{what}: {edge}: {word} call to the node after {passed:.0} ms");
        assert!(passed < within.as_secs_f64() * 1000.0, "{edge}: {passed} ms");
        let to_other = answers.iter().filter(|answer| answer.by == NODES[1] && answer.at > since).count();
        assert!(to_other > 10, "{edge}: {to_other} calls to the other node");
    }
}

/// Everything here is a matter of milliseconds; what is asserted leaves room for a machine under load.
const FOLLOWS: Duration = Duration::from_secs(5);

#[test]
fn edges_send_no_calls_to_a_node_that_is_dead_and_some_when_it_is_back() {
    let edges = Edges::start();
    every_edge_follows(&edges, "a switch dies", ["HEALTHY", "UNHEALTHY"], FOLLOWS, || edges.dies(0));
    // It has to be found again first, and to be well for a while.
    every_edge_follows(&edges, "it is back", ["UNHEALTHY", "HEALTHY"], BACK, || edges.comes_back(0));
}

#[test]
fn edges_send_no_more_calls_to_a_node_that_is_drained() {
    let edges = Edges::start();
    every_edge_follows(&edges, "a node is drained", ["HEALTHY", "DRAINING"], FOLLOWS, || edges.operator("drain", 0));
    every_edge_follows(&edges, "it is enabled", ["DRAINING", "HEALTHY"], FOLLOWS, || edges.operator("enable", 0));
    every_edge_follows(&edges, "it is disabled", ["HEALTHY", "UNHEALTHY"], FOLLOWS, || edges.operator("disable", 0));
}

/// In a group where no node takes calls the least bad one stands in for all.
#[test]
fn edges_have_somebody_to_send_calls_to_when_every_node_is_drained() {
    let edges = Edges::start();
    let envoys = Speech::BOTH.map(|speech| edges.envoy(speech));
    let mut client = edges.client();
    client.call(&target(MEDIA), 1);
    edges.operator("drain", 0);
    edges.operator("drain", 1);
    for (envoy, port) in &envoys {
        envoy.shows(WSS, "one that stands in", |hosts| {
            let mut health: Vec<_> = hosts.values().map(|host| host.health.as_str()).collect();
            health.sort_unstable();
            health == ["DRAINING", "HEALTHY"]
        });
        let counted = ask_often(*port, 100);
        assert!(counted.len() == 1 && NODES.contains(&counted.keys().next().unwrap().as_str()), "{counted:?}");
    }
    let counted = client.call(&target(MEDIA), 100);
    assert!(counted.len() == 1 && NODES.contains(&counted.keys().next().unwrap().as_str()), "{counted:?}");
}

/// Where all switches are away nothing is known of any, and every edge tries them.
#[test]
fn edges_have_somebody_to_send_calls_to_when_every_switch_is_dead() {
    let edges = Edges::start();
    let envoys = Speech::BOTH.map(|speech| edges.envoy(speech));
    let mut client = edges.client();
    client.call(&target(MEDIA), 1);
    edges.dies(0);
    edges.dies(1);
    edges
        .pointsman
        .shows("no link", SOON, |view| view.nodes.iter().all(|node| node.link.state != LinkState::Up).then_some(()));
    for (envoy, port) in &envoys {
        // Unknown is healthy to Envoy until it learns better.
        envoy.shows(WSS, "both tried", |hosts| hosts.len() == 2 && hosts.values().all(|host| host.health == "HEALTHY"));
        let counted = ask_often(*port, 100);
        assert!(counted.keys().eq(NODES), "{counted:?}");
    }
    eventually("gRPC to try both", SOON, || client.call(&target(MEDIA), 50).keys().eq(NODES).then_some(()));
}
