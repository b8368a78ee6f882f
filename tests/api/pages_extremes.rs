//! The dashboard over pictures with nothing in them, with everything missing, and with everything as large as it gets: a
//! page is painted all the same, and so are its parts.

use std::sync::Arc;

use pointsman::engine::view::{BreakerState, LinkState, View};
use pointsman::ids::ConnectionId;
use pointsman::quality::machine::State;
use pointsman::quality::pin::{Pin, Pinned};
use pointsman::quality::settings::BadQualityAction;
use pointsman::score::{Admin, Figure, Figures, Lethal, Source};
use pointsman::time::Timestamp;

use crate::client::{Answer, Stream, send};
use crate::picture::key;
use crate::stage::Stage;

const PATHS: [&str; 9] = [
    "/",
    "/connections",
    "/connections/vendor-a",
    "/connections/vendor-c?map=intl&span=1h",
    "/maps",
    "/maps/intl?number=4420&ask=call&assume=vendor-c=away",
    "/nodes/pbx-01",
    "/edges",
    "/changes?connection=nobody",
];

const LANGUAGES: [&str; 2] = ["en", "ru"];

async fn open(stage: &Stage, path: &str, language: &str) -> Answer {
    let headers = [("accept", "text/html"), ("accept-language", language)];
    send(stage.address, "GET", path, &headers, "").await
}

/// Opens a page in each language.
async fn painted(stage: &Stage, path: &str, what: &str) -> [String; 2] {
    let mut pages = [String::new(), String::new()];
    for (page, language) in pages.iter_mut().zip(LANGUAGES) {
        let answer = open(stage, path, language).await;
        assert_eq!(answer.status, 200, "{what}: {path} in {language}: {}", answer.body);
        for wrong in ["NaN", "undefined", "Some(", "None,"] {
            assert!(!answer.body.contains(wrong), "{what}: {path} in {language} says {wrong}");
        }
        *page = answer.body;
    }
    pages
}

/// Opens every page in each language, and the stream of its parts.
async fn all_painted(stage: &Stage, what: &str) {
    for path in PATHS {
        painted(stage, path, what).await;
        for language in LANGUAGES {
            let mut stream = Stream::of_page(stage.address, path, &[("accept-language", language)]).await;
            for expected in ["hello", "parts"] {
                let (kind, _, _) = stream.next().await.unwrap_or_else(|| panic!("{what}: the stream of {path} ended"));
                assert_eq!(kind, expected, "{what}: {path} in {language}");
            }
        }
    }
}

fn bare(view: &mut View) {
    for node in &mut view.nodes {
        *node = pointsman::engine::view::NodeView::new(node.id.clone(), node.kind, "");
    }
    for one in &mut view.connections {
        (one.customer, one.batch_done, one.retry_at, one.pinned) = (None, None, None, None);
        (one.words, one.calls, one.figures) = (String::new(), Arc::default(), Default::default());
        let settings = &mut one.settings;
        (settings.asr_threshold_percent, settings.acd_threshold_sec, settings.pdd_threshold_sec) = (None, None, None);
    }
    view.routing = Default::default();
    (view.storage, view.mail, view.http) = Default::default();
    view.changes.clear();
    view.unknown_trunks.clear();
}

#[tokio::test]
async fn every_page_is_painted_where_everything_is_missing() {
    let stage = Stage::set().await;
    stage.publish(bare);
    all_painted(&stage, "bare").await;
    stage.publish(|view| {
        for map in &mut view.maps {
            let map = Arc::make_mut(map);
            (map.rule, map.hunt_order) = (None, Default::default());
            map.routes.clear();
            map.prefixes.clear();
        }
    });
    painted(&stage, "/maps", "maps of nothing").await;
    painted(&stage, "/maps/intl?number=4420&ask=dialplan", "maps of nothing").await;
    stage.publish(|view| *view = View::empty(view.at));
    for path in ["/", "/connections", "/maps", "/maps?number=1", "/edges", "/changes"] {
        painted(&stage, path, "empty").await;
    }
}

fn extreme(view: &mut View) {
    let at = Timestamp::from_secs(253_000_000_000);
    let figure = |value| Some(Figure { value, source: Source::Pushed, at });
    for node in &mut view.nodes {
        node.figures = Figures {
            active_calls: u64::MAX / 4,
            max_calls: Some(0),
            load_avg: figure(1e9),
            cores: Some(0),
            idle_cpu: figure(0.0),
            memory_free: figure(100.0),
            failure_rate: Some(100.0),
            calls_per_sec: Some(1e12),
            max_calls_per_sec: Some(0.0),
            rtt_ms: Some(1e9),
        };
        (node.link.rtt_us, node.link.next_try_at) = (Some(u64::MAX), Some(at));
        node.link.reason = "<script>\"&'".repeat(100);
        (node.excluded_since, node.breaker.trial_at) = (Some(at), Some(at));
        (node.breaker.failures, node.assessment.score, node.assessment.fitness) = (u32::MAX, -1e9, 1e9);
        (node.variables.in_step_at, node.variables.last_latency_us) = (Some(at), Some(u64::MAX));
    }
    for one in &mut view.connections {
        (one.figures.calls, one.figures.ner) = (1000, Some(100.0));
        (one.figures.asr, one.figures.acd, one.figures.pdd) = (Some(100.0), Some(1e9), Some(1e9));
        let settings = &mut one.settings;
        (settings.asr_threshold_percent, settings.acd_threshold_sec, settings.pdd_threshold_sec) =
            (Some(0.0), Some(0.0), Some(0.0));
        (one.since, one.retry_at, one.batch_done, one.unmapped) =
            (at, Some(Timestamp::from_secs(0)), Some(0), u64::MAX);
        let mut calls = (*one.calls).clone();
        if let Some(sample) = calls.window.first().cloned() {
            calls.window = vec![sample; 1000];
            for (place, sample) in calls.window.iter_mut().enumerate() {
                (sample.pdd_ms, sample.duration_ms) =
                    [(None, None), (Some(0), Some(0)), (Some(1 << 40), Some(1 << 40))][place % 3];
            }
        }
        one.calls = Arc::new(calls);
    }
    for map in &mut view.maps {
        let map = Arc::make_mut(map);
        let Some(route) = map.routes.first().cloned() else { continue };
        map.routes = (0..500)
            .map(|place| {
                let mut route = route.clone();
                route.connection = ConnectionId::new(&format!("{place:0>64}")).unwrap();
                route.written = place;
                route
            })
            .collect();
        map.derive();
    }
    (view.storage.problem, view.storage.dropped) = ("<b>disk</b>".to_owned(), u64::MAX);
    (view.mail.problem, view.mail.dead) = ("<b>mail</b>".to_owned(), 1);
    if let Some(trunk) = view.unknown_trunks.first().cloned() {
        view.unknown_trunks = vec![trunk; 500];
    }
}

#[tokio::test]
async fn every_page_is_painted_where_everything_is_as_large_as_it_gets() {
    let stage = Stage::set().await;
    stage.publish(extreme);
    all_painted(&stage, "extreme").await;
    for page in painted(&stage, "/", "extreme").await {
        assert!(!page.contains("<b>disk") && !page.contains("<b>mail"), "{page}");
    }
    for page in painted(&stage, "/nodes/pbx-01", "extreme").await {
        assert!(!page.contains("<script>"), "{page}");
    }
}

#[tokio::test]
async fn a_node_is_painted_in_every_condition() {
    let stage = Stage::set().await;
    let lethal = [
        Lethal::LinkDown,
        Lethal::NotReady,
        Lethal::Stale { silent_sec: 0.0 },
        Lethal::Full,
        Lethal::Cpu { idle: 0.0 },
        Lethal::Failures { rate: 100.0 },
        Lethal::Breaker,
        Lethal::Draining,
        Lethal::Disabled,
    ];
    let links =
        [LinkState::Connecting, LinkState::Synchronising, LinkState::Up, LinkState::Waiting, LinkState::Refused];
    let breakers = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];
    let admins = [Admin::Enabled, Admin::Draining, Admin::Disabled];
    for (place, lethal) in lethal.iter().enumerate() {
        stage.publish(|view| {
            for node in &mut view.nodes {
                node.link.state = links[place % links.len()];
                node.breaker.state = breakers[place % breakers.len()];
                node.admin = admins[place % admins.len()];
                node.assessment.lethal = vec![lethal.clone()];
                node.excluded_since = Some(node.link.since);
                node.assessment.terms.iter_mut().for_each(|term| term.value = None);
            }
        });
        for path in ["/", "/nodes/pbx-01", "/nodes/pbx-01?done=draining"] {
            painted(&stage, path, &format!("{lethal:?}")).await;
        }
    }
}

#[tokio::test]
async fn a_connection_is_painted_in_every_state_with_every_action_and_every_pin() {
    let stage = Stage::set().await;
    for state in [State::Good, State::Bad, State::Retry] {
        for action in [BadQualityAction::NotifyOnly, BadQualityAction::MakeLast, BadQualityAction::Block] {
            for pin in [None, Some(Pin::PinGood), Some(Pin::PinLast), Some(Pin::PinBlock)] {
                stage.publish(|view| {
                    let since = view.at;
                    for one in &mut view.connections {
                        let pinned = |pin| Pinned { pin, who: "<i>".into(), why: "<u>".into(), since, until: None };
                        (one.state, one.action, one.pinned) = (state, action, pin.map(pinned));
                        one.monitored = one.key != key("vendor-a", None);
                    }
                });
                for path in ["/", "/connections", "/connections/vendor-a", "/connections/vendor-b?done=pinned"] {
                    for page in painted(&stage, path, &format!("{state:?} {action:?} {pin:?}")).await {
                        assert!(!page.contains("<i>") && !page.contains("<u>"), "{page}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_not_monitored_is_counted_so_whatever_an_operator_said_of_it() {
    let stage = Stage::set().await;
    stage.publish(|view| {
        let since = view.at;
        for one in &mut view.connections {
            one.monitored = false;
            one.pinned = Some(Pinned { pin: Pin::PinLast, who: "noc".into(), why: "works".into(), since, until: None });
        }
    });
    let [page, _] = painted(&stage, "/", "pinned").await;
    assert!(page.contains("+3 not monitored"), "{page}");
}
