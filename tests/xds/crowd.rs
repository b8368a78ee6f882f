//! A thousand subscribers.

use futures_util::future::join_all;
use pointsman::edge::Health;
use pointsman::xds::kind::Kind;

use crate::stage::{Stage, Subscriber, soon, two_nodes};

/// Subscribers, and how many of them share a connection.
const CROWD: usize = 1_000;
const SHARING: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_subscribers_hear_of_a_change_and_one_that_does_not_read_delays_nobody() {
    let stage = Stage::set().await;
    stage.serve(two_nodes((Health::Healthy, 67), (Health::Healthy, 50)));
    let slow = Subscriber::on(stage.channel().await).await.unwrap();
    slow.ask("slow", Kind::Endpoints, &["sip"]).await;
    let mut crowd = Vec::with_capacity(CROWD);
    for _ in 0..CROWD / SHARING {
        let channel = stage.channel().await;
        for _ in 0..SHARING {
            crowd.push(Subscriber::on(channel.clone()).await.unwrap());
        }
    }
    let subscribed = crowd.iter_mut().enumerate().map(|(n, client)| async move {
        client.ask(&format!("edge-{n}"), Kind::Endpoints, &["sip"]).await;
        client.take(&["sip"]).await;
    });
    soon(join_all(subscribed)).await;
    for weight in [66, 65, 64] {
        stage.serve(two_nodes((Health::Healthy, weight), (Health::Healthy, 50)));
        let heard = soon(join_all(crowd.iter_mut().map(|client| client.take(&["sip"])))).await;
        let version = &heard[0].version_info;
        assert!(heard.iter().all(|answer| answer.version_info == *version), "all hear the same");
    }
    let view = stage.seen(|view| view.totals.accepted == 4 * CROWD as u64).await;
    let slow = view.clients.iter().find(|client| client.node == "slow").unwrap();
    assert_eq!(
        (slow.subscriptions[0].sent, slow.subscriptions[0].accepted),
        (1, 0),
        "nothing piles up for who is slow"
    );
}
