//! Which node is the answer when nodes come and go, and how answers spread.

use std::collections::BTreeMap;

use pointsman::clock::Clock;
use pointsman::config::model::Mode;
use pointsman::score::Lethal;

use crate::client::Stream;
use crate::stage::{Asterisk, FreeSwitch, Stage, is_up, node};

#[tokio::test]
async fn a_node_that_goes_away_gets_no_calls_and_is_back_when_it_returns() {
    let stage = Stage::set(Clock::system(), &[FreeSwitch, Asterisk]).await;
    let program = stage.start("").await;
    program.load(0, 0.0, 90.0).await;
    program.load(1, 0.0, 50.0).await;
    program.routes_to(0).await;
    assert!(program.node(0).await["excluded_since"].is_null());

    let before = stage.clock.now();
    stage.kill(0);
    program.sees(|view| !node(view, 0).assessment.lethal.is_empty()).await;
    program.routes_to(1).await;
    let gone = program.node(0).await;
    assert_eq!(gone["assessment"]["lethal"], serde_json::json!([{"reason": "link_down"}]));
    assert_eq!(gone["assessment"]["score"], -100.0);
    let since = gone["excluded_since"].as_i64().unwrap();
    assert!((before.as_micros()..=stage.clock.now().as_micros()).contains(&since), "{since}");
    let told = |node: &str| {
        stage.pbxs[1].until(crate::stage::PATIENCE, {
            let node = node.to_owned();
            move |pbx| pbx.variable("pm_best_node").as_deref() == Some(&*node)
        })
    };
    assert!(told("pbx-02").await);

    // The last one that is left is the answer even while it is not to get calls.
    program.change("PUT", "/api/nodes/pbx-02/admin", r#"{"admin": "draining"}"#).await;
    program.sees(|view| view.routing.fallback_active).await;
    assert_eq!(program.route().await, ("pbx-02".to_owned(), true));
    assert!(
        stage.pbxs[1].until(crate::stage::PATIENCE, |pbx| pbx.variable("pm_fallback").as_deref() == Some("1")).await
    );
    assert!(told("pbx-02").await);

    stage.kill(1);
    program.sees(|view| view.routing.fallback_active && view.routing.fallback_node.is_none()).await;
    let answer = program.get("/api/route").await;
    assert!(!answer.problem(503, "/api/route").is_empty());

    program.change("PUT", "/api/nodes/pbx-02/admin", r#"{"admin": "enabled"}"#).await;
    (0..2).for_each(|number| stage.revive(number));
    let view = program.sees(|view| (0..2).all(|number| is_up(view, number))).await;
    for number in 0..2 {
        assert_eq!((&node(&view, number).assessment.lethal, node(&view, number).excluded_since), (&vec![], None));
    }
    program.routes_to(0).await;
    stage.variable_becomes("pm_best_node", "pbx-01").await;
    stage.variable_becomes("pm_fallback", "0").await;
    program.stop().await;
}

/// A switch that says nothing any more is dead long before its link is given up; its breaker says so.
#[tokio::test]
async fn a_switch_that_falls_silent_gets_no_calls() {
    let stage = Stage::set(Clock::system(), &[Asterisk, Asterisk]).await;
    let program = stage.start("[breaker]\nfailures = 1\nopen_sec = 1").await;
    program.load(0, 0.0, 90.0).await;
    program.load(1, 0.0, 50.0).await;
    program.routes_to(0).await;
    stage.pbxs[0].misbehave(&pointsman::sim::Misbehaviour::Silent);
    program.sees(|view| node(view, 0).assessment.lethal == [Lethal::Breaker]).await;
    program.routes_to(1).await;
    stage.pbxs[0].misbehave(&pointsman::sim::Misbehaviour::None);
    program.sees(|view| node(view, 0).assessment.lethal.is_empty()).await;
    program.stop().await;
}

/// Most answers with one node, by the mean.
fn unevenness(answers: &BTreeMap<String, usize>, nodes: usize) -> f64 {
    let (most, all) = (answers.values().max().copied().unwrap_or(0), answers.values().sum::<usize>());
    most as f64 * nodes as f64 / all as f64
}

#[tokio::test]
async fn a_burst_of_answers_spreads_over_equal_nodes() {
    let stage = Stage::set(Clock::system(), &[Asterisk, Asterisk, Asterisk]).await;
    let program = stage.start("").await;
    for number in 0..3 {
        program.load(number, 0.0, 90.0).await;
    }
    let mut answers = BTreeMap::new();
    for _ in 0..240 {
        *answers.entry(program.route().await.0).or_default() += 1;
    }
    assert!(unevenness(&answers, 3) <= 1.1, "over HTTP: {answers:?}");
    let router = program.running.router();
    for mode in [Mode::BestScore, Mode::Weighted] {
        let mut answers = BTreeMap::new();
        // Nobody else runs on this thread meanwhile: no picture is made between two answers.
        for _ in 0..1000 {
            let answer = router.answer(mode, None, &mut fastrand::Rng::with_seed(1)).unwrap();
            assert!(!answer.fallback_active, "{answer:?}");
            *answers.entry(answer.node_id.to_string()).or_default() += 1;
        }
        assert!(unevenness(&answers, 3) <= 1.1, "{mode:?}: {answers:?}");
    }
    program.stop().await;
}

#[tokio::test]
async fn the_event_stream_tells_of_connections_and_of_the_best_node() {
    let stage = Stage::set(Clock::system(), &[Asterisk, Asterisk]).await;
    let program = stage.start("").await;
    program.load(0, 0.0, 90.0).await;
    program.load(1, 0.0, 50.0).await;
    program.routes_to(0).await;
    let mut stream = Stream::open(program.http, None).await;
    let (hello, routing) = (stream.next().await.unwrap(), stream.next().await.unwrap());
    assert_eq!((hello.0.as_str(), routing.0.as_str(), &routing.1["best_node"]), ("hello", "routing", &"pbx-01".into()));

    program.change("PUT", "/api/nodes/pbx-01/admin", r#"{"admin": "disabled"}"#).await;
    let mut told = stream.next().await.unwrap();
    while told.1["best_node"] != "pbx-02" {
        assert!(["routing", "endpoints"].contains(&told.0.as_str()), "{told:?}");
        told = stream.next().await.unwrap();
    }

    stage.calls(1, "vendor-a", 3, false).await;
    let change = next_change(&mut stream).await;
    assert_eq!(
        (&change["key"]["connection"], &change["from"], &change["to"]),
        (&"vendor-a".into(), &"good".into(), &"bad".into())
    );
    let pin = r#"{"pin": "pin_block", "why": "their works"}"#;
    program.change("PUT", "/api/connections/vendor-b/pin", pin).await;
    let change = next_change(&mut stream).await;
    assert_eq!(change["reason"], "operator");
    assert!(change["words"].as_str().unwrap().contains("their works"), "{change}");
    program.stop().await;
    assert!(stream.rest().await.iter().all(|kind| ["routing", "endpoints"].contains(&kind.as_str())));
}

async fn next_change(stream: &mut Stream) -> serde_json::Value {
    loop {
        let (kind, data, _) = stream.next().await.expect("the stream ended");
        if kind == "change" {
            return data;
        }
    }
}
