//! The program ends without a word and comes back: edges go on with what they have.

use super::*;
use crate::lab::backend::Traffic;

/// How long the program is away: long enough for edges to try to reach it in vain, more than once.
const AWAY: Duration = Duration::from_secs(5);

#[test]
fn edges_go_on_while_the_program_is_killed_and_follow_it_again_afterwards() {
    let mut edges = Edges::start();
    let mut client = edges.client();
    let envoys = Speech::BOTH.map(|speech| edges.envoy(speech));
    for (envoy, _) in &envoys {
        edges.envoy_has(envoy, WSS, ["HEALTHY", "HEALTHY"]);
    }
    client.call(&target(MEDIA), 1);
    client.begin(&target(MEDIA));
    let traffic = envoys.each_ref().map(|(_, port)| Traffic::begin(*port));

    edges.pointsman.kill();
    std::thread::sleep(AWAY);
    for (envoy, _) in &envoys {
        assert_eq!(envoy.stat("control_plane.connected_state"), 0);
        assert_eq!(envoy.hosts(WSS).len(), 2);
    }
    edges.pointsman.go();
    edges.are_linked();
    for (envoy, _) in &envoys {
        edges.envoy_has(envoy, WSS, ["HEALTHY", "HEALTHY"]);
    }
    edges.operator("drain", 0);
    for (envoy, _) in &envoys {
        edges.envoy_has(envoy, WSS, ["DRAINING", "HEALTHY"]);
    }
    let rejected = |envoy: &Envoy| envoy.stat(&format!("cluster.{WSS}.update_rejected"));
    assert!(envoys.iter().all(|(envoy, _)| rejected(envoy) == 0));

    for (edge, answers) in Speech::BOTH.iter().zip(traffic.map(Traffic::end)) {
        println!("{edge:?}: {} connections", answers.len());
        let failed: Vec<_> = answers.iter().filter(|answer| !NODES.contains(&answer.by.as_str())).collect();
        assert!(failed.is_empty() && answers.len() > 100, "{edge:?}: {failed:?} of {}", answers.len());
    }
    let answers = client.end();
    let failed: Vec<_> = answers.iter().filter(|answer| !NODES.contains(&answer.by.as_str())).collect();
    println!("gRPC: {} calls", answers.len());
    assert!(failed.is_empty() && answers.len() > 100, "{failed:?} of {}", answers.len());
    // It comes back to its server later than Envoy does.
    eventually("gRPC to leave the drained node alone", SOON, || {
        client.call(&target(MEDIA), 20).keys().eq([NODES[1]]).then_some(())
    });
}
