//! What nodes tell, what is told of them, and what it comes to.

use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::score::{Lethal, Source};
use pointsman::sim::{Behaviour, Call, Route};

use crate::stage::{Asterisk, FreeSwitch, MAX_CALLS, Stage, node};

/// For how long a figure is good.
const FIGURE_VALID: Duration = Duration::from_secs(60);

fn close(value: &serde_json::Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() < 0.01, "{value} and not {expected}");
}

#[tokio::test]
async fn the_better_node_is_the_answer_and_switches_and_agents_decide_which_that_is() {
    let stage = Stage::set(Clock::system(), &[FreeSwitch, Asterisk]).await;
    stage.pbxs[0].set_load(80.0, 9.0);
    stage.pbxs[1].set_load(3.0, 0.5);
    let program = stage.start("").await;
    // FreeSWITCH tells of idle CPU alone, Asterisk of the load average alone.
    program.sees(|view| node(view, 0).figures.idle_cpu.is_some() && node(view, 1).figures.load_avg.is_some()).await;
    let (freeswitch, asterisk) = (program.node(0).await, program.node(1).await);
    close(&freeswitch["assessment"]["score"], (100.0 * 0.4 + 80.0 * 0.2) / 0.6);
    close(&asterisk["assessment"]["score"], (100.0 * 0.4 + 75.0 * 0.3) / 0.7);
    assert_eq!(freeswitch["unknown"], serde_json::json!(["load_score", "fail_score"]));
    assert_eq!(asterisk["unknown"], serde_json::json!(["idle_score", "fail_score"]));
    assert_eq!(
        (&freeswitch["figures"]["idle_cpu"]["source"], &freeswitch["figures"]["load_avg"]),
        (&"pbx".into(), &().into())
    );
    assert_eq!(
        (&asterisk["figures"]["load_avg"]["source"], &asterisk["figures"]["idle_cpu"]),
        (&"pbx".into(), &().into())
    );
    program.routes_to(0).await;
    stage.variable_becomes("pm_best_node", "pbx-01").await;
    stage.variable_becomes("pm_best_score", "93").await;
    stage.variable_becomes("pm_fallback", "0").await;

    // It tells so with its next sign of life.
    stage.pbxs[0].set_load(20.0, 9.0);
    program.sees(|view| node(view, 0).figures.idle_cpu.is_some_and(|idle| idle.value == 20.0)).await;
    program.routes_to(1).await;
    stage.variable_becomes("pm_best_node", "pbx-02").await;

    // An agent goes before the switch.
    program.load(0, 0.1, 90.0).await;
    let view = program.running.view().borrow().clone();
    assert_eq!(node(&view, 0).figures.idle_cpu.map(|idle| idle.source), Some(Source::Pushed));
    close(&program.node(0).await["assessment"]["score"], (100.0 * 0.4 + 95.0 * 0.3 + 90.0 * 0.2) / 0.9);
    program.routes_to(0).await;
    stage.variable_becomes("pm_best_score", "96").await;
    program.stop().await;
}

/// The last figure reaches the dialplans although the one before it was written a moment ago, and nothing else happens.
#[tokio::test]
async fn the_best_score_follows_to_the_last_figure() {
    let stage = Stage::set(Clock::system(), &[Asterisk]).await;
    let program = stage.start("").await;
    for idle in [90.0, 80.0, 10.0] {
        program.load(0, 0.0, idle).await;
    }
    stage.variable_becomes("pm_best_score", "80").await;
    program.stop().await;
}

/// The clock runs so fast that the node itself is stale between two signs of life; that is not looked at here.
#[tokio::test]
async fn a_figure_is_forgotten_after_a_minute() {
    let stage = Stage::set(Clock::running_at(60), &[Asterisk]).await;
    let program = stage.start("").await;
    program.change("PUT", "/api/nodes/pbx-01/load", r#"{"idle_cpu": 4, "memory_free": 50}"#).await;
    let view = program.sees(|view| node(view, 0).figures.idle_cpu.is_some()).await;
    let told_at = node(&view, 0).figures.idle_cpu.unwrap().at;
    let short_of_cpu = Lethal::Cpu { idle: 4.0 };
    assert!(node(&view, 0).assessment.lethal.contains(&short_of_cpu));
    let view = program.sees(|view| node(view, 0).figures.idle_cpu.is_none()).await;
    assert!(view.at.since(told_at) > FIGURE_VALID, "{:?}", view.at.since(told_at));
    assert_eq!(node(&view, 0).figures.memory_free, None);
    assert!(!node(&view, 0).assessment.lethal.contains(&short_of_cpu));
    program.stop().await;
}

#[tokio::test]
async fn calls_cost_points_and_calls_that_fail_cost_the_node() {
    let stage = Stage::set(Clock::system(), &[Asterisk, FreeSwitch]).await;
    let failing = "[scoring]\nfailure_window = 4\nfailure_min_calls = 3";
    let program = stage.start(failing).await;
    stage.pbxs[0].set_vendor("vendor-b", Behaviour::instant());
    let talk = Some(Duration::from_secs(3600));
    let calls: Vec<_> = (0..10)
        .map(|_| Call { talk, ..Call::to("4930123456", Route::Trunks(vec!["vendor-b".to_owned()])) })
        .map(|call| stage.pbxs[0].place_call(call))
        .collect();
    let view = program.sees(|view| node(view, 0).active_calls == calls.len()).await;
    let term = node(&view, 0).assessment.terms.iter().find(|term| term.name == "call_score").unwrap();
    let expected = 100.0 - 100.0 * calls.len() as f64 / f64::from(MAX_CALLS);
    assert!(term.value.is_some_and(|value| (value - expected).abs() < 0.01), "{term:?}");
    for call in calls {
        call.hang_up(pointsman::sim::call::Side::Caller);
        call.report().await;
    }
    program.sees(|view| node(view, 0).active_calls == 0).await;

    program.load(0, 0.0, 90.0).await;
    program.load(1, 0.0, 10.0).await;
    stage.calls(0, "vendor-a", 4, false).await;
    let failing = |lethal: &[Lethal]| lethal.iter().any(|it| matches!(it, Lethal::Failures { rate } if *rate == 100.0));
    program.sees(|view| failing(&node(view, 0).assessment.lethal)).await;
    program.routes_to(1).await;
    stage.calls(0, "vendor-b", 4, true).await;
    let view = program.sees(|view| node(view, 0).assessment.lethal.is_empty()).await;
    assert_eq!(node(&view, 0).figures.failure_rate, Some(0.0));
    program.stop().await;
}
