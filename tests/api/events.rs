//! The event stream.

use std::sync::Arc;
use std::time::Duration;

use pointsman::api::Limits;
use pointsman::edge::{EndpointGroup, Health, Snapshot};
use pointsman::engine::view::ChangeView;
use serde_json::{Value, json};

use crate::client::{Stream, get};
use crate::picture::{change, snapshot};
use crate::stage::{PATIENCE, Stage};

/// Opens a stream and reads what every stream begins with.
async fn open(stage: &Stage) -> Stream {
    greeted(Stream::open(stage.address, None).await).await
}

async fn greeted(mut stream: Stream) -> Stream {
    let (kind, hello, id) = stream.next().await.unwrap();
    assert_eq!((kind.as_str(), &hello["generation"], &hello["resumed"], id), ("hello", &json!(7), &json!(null), None));
    let (kind, routing, _) = stream.next().await.unwrap();
    assert_eq!((kind.as_str(), &routing["best_node"]), ("routing", &json!("pbx-01")));
    stream
}

#[tokio::test]
async fn a_change_is_told_as_it_happens() {
    let stage = Stage::set().await;
    let (mut one, mut other) = (open(&stage).await, open(&stage).await);
    let told = change("vendor-a", 3, stage.clock.now());
    stage.changes.send(Arc::new(told.clone())).unwrap();
    for stream in [&mut one, &mut other] {
        let (kind, data, id) = stream.next().await.unwrap();
        assert_eq!(
            (kind.as_str(), &data["key"]["connection"], &data["to"]),
            ("change", &json!("vendor-a"), &json!("bad"))
        );
        assert_eq!(Some(data["id"].as_str().unwrap()), id.as_deref());
        assert_eq!(serde_json::from_value::<ChangeView>(data).unwrap(), told);
    }
}

#[tokio::test]
async fn routing_is_told_when_it_is_news() {
    let stage = Stage::set().await;
    let mut stream = open(&stage).await;
    stage.publish(|view| view.routing.generation += 1);
    stage.changes.send(Arc::new(change("vendor-a", 3, stage.clock.now()))).unwrap();
    // Had the generation alone been told, it would have come before.
    assert_eq!(stream.next().await.unwrap().0, "change");
    stage.publish(|view| {
        view.routing.generation += 1;
        view.routing.best_score = 50.0;
    });
    let (kind, data, id) = stream.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &data["best_score"], &data["generation"], id),
        ("routing", &json!(50.0), &json!(5), None)
    );
}

/// The next event, which is of what edges are told.
async fn endpoints(stream: &mut Stream) -> Value {
    let (kind, data, id) = stream.next().await.unwrap();
    assert_eq!((kind.as_str(), id), ("endpoints", None), "{data}");
    data
}

#[tokio::test]
async fn what_edges_are_told_comes_whole_and_then_by_what_changes() {
    let stage = Stage::set().await;
    let whole = snapshot(4, stage.clock.now());
    stage.tell_edges(whole.clone());
    let mut stream = open(&stage).await;
    let told = endpoints(&mut stream).await;
    assert_eq!((&told["generation"], &told["after"], &told["at"]), (&json!(4), &json!(null), &json!(whole.at)));
    assert_eq!(told["groups"], json!(whole.groups));

    let mut other = whole.clone();
    other.generation = 7;
    other.groups[1].endpoints[0].health = Health::Unhealthy;
    stage.tell_edges(other.clone());
    let told = endpoints(&mut stream).await;
    assert_eq!((&told["generation"], &told["after"]), (&json!(7), &json!(4)));
    assert_eq!(told["groups"], json!([other.groups[1]]));

    // To and fro: nothing to do, and a number to hold.
    stage.tell_edges(Snapshot { generation: 9, ..other.clone() });
    let told = endpoints(&mut stream).await;
    assert_eq!((&told["generation"], &told["after"], &told["groups"]), (&json!(9), &json!(7), &json!([])));
    // Who comes now gets it whole.
    assert_eq!(endpoints(&mut open(&stage).await).await["groups"], json!(other.groups));
}

#[tokio::test]
async fn there_is_nothing_to_tell_before_the_first_snapshot() {
    let stage = Stage::set().await;
    let mut stream = open(&stage).await;
    stage.tell_edges(Snapshot::default());
    stage.changes.send(Arc::new(change("vendor-a", 3, stage.clock.now()))).unwrap();
    assert_eq!(stream.next().await.unwrap().0, "change");
    stage.tell_edges(snapshot(1, stage.clock.now()));
    assert_eq!(endpoints(&mut stream).await["after"], json!(null));
}

#[tokio::test]
async fn who_comes_back_for_changes_gets_the_whole_of_what_edges_are_told() {
    let stage = Stage::set().await;
    stage.tell_edges(snapshot(4, stage.clock.now()));
    let last_seen = stage.view.borrow().changes.first().map(id_of);
    let mut stream = Stream::open(stage.address, last_seen.as_deref()).await;
    assert_eq!(stream.next().await.unwrap().1["resumed"], json!(true));
    stream.next().await.unwrap();
    assert_eq!(endpoints(&mut stream).await["after"], json!(null));
}

fn id_of(change: &ChangeView) -> String {
    format!("{}-{}-{}", change.change.at.as_micros(), change.change.epoch.0, change.key.connection)
}

/// A client as the documentation wants it.
#[derive(Default)]
struct Edge {
    generation: u64,
    groups: Vec<EndpointGroup>,
}

impl Edge {
    /// Whether the event could be used.
    fn take(&mut self, told: &Value) -> bool {
        let groups: Vec<EndpointGroup> = serde_json::from_value(told["groups"].clone()).unwrap();
        match told["after"].as_u64() {
            None => self.groups = groups,
            Some(after) if after == self.generation => {
                for group in groups {
                    let place = self.groups.iter().position(|known| known.id == group.id).unwrap();
                    self.groups[place] = group;
                }
            }
            Some(_) => return told["generation"].as_u64().unwrap() <= self.generation,
        }
        self.generation = told["generation"].as_u64().unwrap();
        true
    }
}

/// Whatever is told in which order and however slowly it is read: who follows holds what there is, and so does who missed
/// an event and asks.
#[tokio::test]
async fn a_client_that_follows_holds_what_there_is() {
    let stage = Stage::set().await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut now = snapshot(1, stage.clock.now());
    stage.tell_edges(now.clone());
    let mut stream = open(&stage).await;
    let (mut follows, mut misses) = (Edge::default(), Edge::default());
    let mut asked = 0;
    for round in 2..300 {
        now.generation = round;
        let group = random.choice(&mut now.groups).unwrap();
        let endpoint = random.choice(&mut group.endpoints).unwrap();
        endpoint.weight = random.u32(1..4);
        endpoint.health = random.choice([Health::Healthy, Health::Unhealthy, Health::Draining]).unwrap();
        stage.tell_edges(now.clone());
        if random.bool() && round != 299 {
            continue;
        }
        while follows.generation != round {
            let told = endpoints(&mut stream).await;
            assert!(follows.take(&told), "nothing is missed on a stream: {told}");
            if random.u8(..) < 200 && !misses.take(&told) {
                misses.take(&get(stage.address, "/api/endpoints").await.json());
                asked += 1;
            }
        }
        assert_eq!(follows.groups, now.groups, "{round}");
    }
    assert!(asked > 0, "the test is about one that misses something");
    misses.take(&get(stage.address, "/api/endpoints").await.json());
    assert_eq!((misses.generation, misses.groups), (now.generation, now.groups));
}

#[tokio::test]
async fn a_reader_that_is_slow_gets_the_latest_and_nothing_piles_up() {
    let stage = Stage::set().await;
    let mut told = snapshot(1, stage.clock.now());
    for group in &mut told.groups {
        group.cluster = "x".repeat(64 * 1024);
    }
    stage.tell_edges(told.clone());
    let mut slow = greeted(Stream::open_narrow(stage.address).await).await;
    endpoints(&mut slow).await;
    let mut quick = open(&stage).await;
    endpoints(&mut quick).await;
    for generation in 2..=100 {
        told.generation = generation;
        told.groups.iter_mut().for_each(|group| group.endpoints[0].weight = u32::try_from(generation).unwrap());
        stage.tell_edges(told.clone());
        assert_eq!(endpoints(&mut quick).await["generation"], json!(generation));
    }
    let (mut count, mut last) = (0, 0);
    while last != 100 {
        let told = endpoints(&mut slow).await;
        assert_eq!(told["after"].as_u64().unwrap(), last.max(1));
        (count, last) = (count + 1, told["generation"].as_u64().unwrap());
    }
    assert!(count < 60, "{count} of what the system and the server hold for a connection");
}

#[tokio::test]
async fn who_comes_back_gets_what_was_missed_once() {
    let stage = Stage::set().await;
    let mut stream = open(&stage).await;
    let at = stage.clock.now();
    stage.changes.send(Arc::new(change("vendor-a", 3, at))).unwrap();
    let (.., seen) = stream.next().await.unwrap();
    drop(stream);
    let missed = [change("vendor-b", 5, at), change("vendor-b", 4, at), change("vendor-a", 3, at)];
    stage.publish(|view| view.changes.splice(..0, missed.clone()).for_each(drop));
    let mut stream = Stream::open(stage.address, seen.as_deref()).await;
    assert_eq!(stream.next().await.unwrap().1["resumed"], json!(true));
    // One that is in the picture already and comes by once more.
    stage.changes.send(Arc::new(missed[0].clone())).unwrap();
    stage.changes.send(Arc::new(change("vendor-b", 6, at))).unwrap();
    stream.next().await.unwrap();
    for expected in [4, 5, 6] {
        assert_eq!(stream.next().await.unwrap().1["epoch"], json!(expected));
    }
}

#[tokio::test]
async fn who_was_away_too_long_is_told_so() {
    let stage = Stage::set().await;
    let mut stream = Stream::open(stage.address, Some("1-2-vendor-z")).await;
    assert_eq!(stream.next().await.unwrap().1["resumed"], json!(false));
    stream.next().await.unwrap();
    for expected in ["vendor-b", "vendor-a"] {
        assert_eq!(stream.next().await.unwrap().1["key"]["connection"], json!(expected));
    }
}

#[tokio::test]
async fn a_silent_stream_says_that_it_is_alive() {
    let limits = Limits { keep_alive: Duration::from_millis(20), ..Limits::default() };
    let stage = Stage::with_limits(limits).await;
    assert!(open(&stage).await.comment().await.contains("alive"));
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_closed_and_told_to_resume() {
    let stage = Stage::set().await;
    let mut slow = greeted(Stream::open_narrow(stage.address).await).await;
    let at = stage.clock.now();
    let words = "x".repeat(64 * 1024);
    // More than the system keeps for a connection, and than the queue holds. The reader of the other one keeps up, so
    // that this does not outrun the server as such.
    let mut quick = open(&stage).await;
    for epoch in 0..60 {
        let told = ChangeView { words: words.as_str().into(), ..change("vendor-a", epoch, at) };
        stage.changes.send(Arc::new(told)).unwrap();
        assert_eq!(quick.next().await.unwrap().1["epoch"], json!(epoch));
    }
    let kinds = slow.rest().await;
    assert_eq!(kinds.last().map(String::as_str), Some("lost"));

    assert!(kinds.len() < 60, "{}", kinds.len());
}

#[tokio::test]
async fn a_reader_that_stopped_loses_its_place() {
    let limits = Limits { write: Duration::from_millis(100), streams: 2, ..Limits::default() };
    let stage = Stage::with_limits(limits).await;
    let _stopped = greeted(Stream::open_narrow(stage.address).await).await;
    let mut quick = open(&stage).await;
    let words = "x".repeat(64 * 1024);
    let third = async || Stream::open(stage.address, None).await.status().await;
    assert!(third().await.contains("503"));
    let freed = async {
        for epoch in 0.. {
            let told = ChangeView { words: words.as_str().into(), ..change("vendor-a", epoch, stage.clock.now()) };
            stage.changes.send(Arc::new(told)).unwrap();
            quick.next().await.unwrap();
            if third().await.contains("200") {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("the place is still taken");
}

#[tokio::test]
async fn streams_end_when_the_server_does() {
    let stage = Stage::set().await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(open(&stage).await);
    }
    assert!(stage.tasks.stop(Duration::from_secs(10)).await, "open streams held up the end");
    for stream in &mut streams {
        assert_eq!(stream.rest().await, [""; 0]);
    }
}

#[tokio::test]
async fn there_are_not_more_streams_than_allowed_and_a_place_comes_back() {
    let stage = Stage::with_limits(Limits { streams: 2, ..Limits::default() }).await;
    let (one, _other) = (open(&stage).await, open(&stage).await);
    let third = async || Stream::open(stage.address, None).await.status().await;
    assert!(third().await.contains("503"));
    drop(one);
    let freed = async {
        // The server notices when it next has something to say.
        while !third().await.contains("200") {
            stage.changes.send(Arc::new(change("vendor-a", 3, stage.clock.now()))).unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("the place is still taken");
}
