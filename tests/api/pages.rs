//! The dashboard, as a browser asks for it: pages, their parts that change, and forms.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pointsman::api::Limits;
use pointsman::config::model::Role;
use pointsman::engine::request::Request;
use pointsman::engine::view::View;
use pointsman::quality::machine::State;
use pointsman::quality::pin::Pin;
use serde_json::Value;

use crate::client::{Answer, Stream, send};
use crate::picture::{key, node_id};
use crate::stage::Stage;

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
const RUSSIAN: (&str, &str) = ("accept-language", "ru");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// So that a test need not wait for what a reader would not notice.
fn quick() -> Limits {
    Limits { pace: Duration::from_millis(1), ..Limits::default() }
}

async fn open(stage: &Stage, path: &str, more: &[(&str, &str)]) -> Answer {
    send(stage.address, "GET", path, &[&[BROWSER], more].concat(), "").await
}

async fn submit(stage: &Stage, path: &str, form: &str) -> Answer {
    send(stage.address, "POST", path, &[BROWSER, FORM], form).await
}

/// The names of the parts of an event, which must be of the kind `parts`.
fn names(event: Option<(String, Value, Option<String>)>) -> BTreeSet<String> {
    let (kind, data, _) = event.expect("the stream ended");
    assert_eq!(kind, "parts", "{data}");
    data.as_object().unwrap().keys().cloned().collect()
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[tokio::test]
async fn every_page_is_there_in_both_languages() {
    let stage = Stage::set().await;
    for (path, english, russian) in [
        ("/", "the most troubled first", "сначала проблемные"),
        ("/connections", "3\u{a0}connections", "3\u{a0}подключения"),
        ("/edges", "What they are told", "Что им сообщается"),
        ("/connections/vendor-a", "Last failed calls", "Последние неудачные"),
        ("/connections/vendor-c?map=intl&span=7d", "Last failed calls", "Последние неудачные"),
    ] {
        for (language, words) in [(None, english), (Some(RUSSIAN), russian)] {
            let page = open(&stage, path, language.as_slice()).await;
            assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")), "{path}");
            assert!(page.body.contains(words), "{path} says nothing of {words:?}: {}", page.body);
            assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"), "{path}");
            assert_eq!(page.header("cache-control"), Some("no-store"), "{path}");
            for inline in ["<script>", " style=", " onclick=", "javascript:"] {
                assert!(!page.body.contains(inline), "{path} has {inline}, which its policy forbids");
            }
        }
    }
}

#[tokio::test]
async fn the_first_page_says_whom_routers_get_when_no_node_takes_calls() {
    let stage = Stage::set().await;
    assert!(!open(&stage, "/", &[]).await.body.contains("No node takes calls"));
    for (fallback, english, russian) in [
        (None, "No node takes calls, and there is none to fall back on.", "и запасного нет."),
        (Some("pbx-02"), "No node takes calls; whoever asks is told pbx-02.", "на запросы отвечаем pbx-02."),
    ] {
        stage.publish(|view| {
            view.routing.fallback_active = true;
            view.routing.fallback_node = fallback.map(node_id);
        });
        for (language, words) in [(None, english), (Some(RUSSIAN), russian)] {
            let page = open(&stage, "/", language.as_slice()).await.body;
            assert!(page.contains(words), "{page}");
        }
    }
}

#[tokio::test]
async fn the_worst_comes_first_and_says_so_beside_its_colour() {
    let stage = Stage::set().await;
    let page = open(&stage, "/connections", &[]).await.body;
    let place = |row: &str| page.find(row).unwrap_or_else(|| panic!("{row} is missing: {page}"));
    // vendor-b is pinned to get no calls, vendor-a is lowered, vendor-c is good.
    assert!(place("id=\"c-vendor-b\"") < place("id=\"c-vendor-a\""));
    assert!(place("id=\"c-vendor-a\"") < place("id=\"c-vendor-c:intl\""));
    assert!(page.contains("<span class=\"chip last\">Last</span>") && page.contains("by hand"), "{page}");
    let overview = open(&stage, "/", &[]).await.body;
    // Good and bad are verdicts; who is routed by hand is counted beside them.
    assert!(overview.contains("<dt>Routed by hand</dt><dd>1</dd>"), "{overview}");
}

#[tokio::test]
async fn a_list_is_searched_and_has_pages() {
    let stage = Stage::set().await;
    stage.publish(|view| {
        let good = view.connections[2].clone();
        view.connections.extend((0..250).map(|number| {
            let key = key(&format!("more-{number:03}"), None);
            pointsman::engine::view::ConnectionView { key, ..good.clone() }
        }));
    });
    let rows = |page: &Answer| page.body.matches("<tr id=\"c-").count();
    let first = open(&stage, "/connections", &[]).await;
    assert_eq!(
        (rows(&first), first.body.contains("rel=\"next\""), first.body.contains("rel=\"prev\"")),
        (100, true, false)
    );
    let last = open(&stage, "/connections?page=3", &[]).await;
    assert_eq!((rows(&last), last.body.contains("rel=\"next\"")), (53, false));
    assert_eq!(rows(&open(&stage, "/connections?page=99999", &[]).await), 53, "what is too far is the last");
    assert_eq!(rows(&open(&stage, "/connections?q=MORE-24&state=", &[]).await), 10);
    assert_eq!(rows(&open(&stage, "/connections?state=last", &[]).await), 1);
    assert_eq!(rows(&open(&stage, "/connections?q=nothing", &[]).await), 0);
    let overview = open(&stage, "/", &[]).await;
    assert_eq!(rows(&overview), 25);
    assert!(overview.body.contains("All 253 connections"));
}

#[tokio::test]
async fn text_from_outside_is_text_and_nothing_else() {
    let stage = Stage::set().await;
    let hostile = "<img src=x onerror=alert(1)>\"'&";
    stage.publish(|view| {
        view.unknown_trunks[0].trunk = hostile.into();
        view.storage.problem = hostile.to_owned();
        view.mail.problem = hostile.to_owned();
        view.changes[0].words = hostile.into();
        view.changes[0].who = hostile.into();
        view.nodes[0].link.reason = hostile.to_owned();
        let pinned = view.connections[1].pinned.as_mut().unwrap();
        (pinned.who, pinned.why) = (hostile.into(), hostile.into());
    });
    for path in ["/", "/connections", "/connections/vendor-b", "/connections?q=%3Cimg%20src%3Dx%3E%22", "/%3Cimg%3E"] {
        let page = open(&stage, path, &[]).await.body;
        assert!(page.contains("</html>") && !page.contains("<img"), "{path}: {page}");
    }
    assert!(open(&stage, "/", &[]).await.body.contains("&lt;img"), "it is shown all the same");
}

#[tokio::test]
async fn what_is_not_there_is_a_page_for_people_and_a_problem_for_programs() {
    let stage = Stage::set().await;
    for path in ["/connections/nobody", "/nothing", "/connections/vendor-c"] {
        let page = open(&stage, path, &[]).await;
        assert_eq!((page.status, page.header("content-type")), (404, Some("text/html; charset=utf-8")), "{path}");
        assert!(page.body.contains("There is nothing here"), "{path}: {}", page.body);
        let problem = send(stage.address, "GET", path, &[], "").await;
        problem.problem(404, path);
    }
    let page = open(&stage, "/connections/vendor-a?span=1y", &[]).await;
    assert_eq!((page.status, page.header("content-type")), (400, Some("text/html; charset=utf-8")), "{}", page.body);
}

#[tokio::test]
async fn the_past_that_cannot_be_read_is_said_and_costs_nothing_else() {
    let stage = Stage::set().await;
    let page = open(&stage, "/connections/vendor-a", &[]).await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("no history: there is no database"), "{}", page.body);
}

#[tokio::test]
async fn style_and_script_are_kept_for_good_under_a_name_of_their_content() {
    let stage = Stage::set().await;
    let page = open(&stage, "/", &[]).await.body;
    for (begin, kind) in [
        ("<link rel=\"stylesheet\" href=\"", "text/css; charset=utf-8"),
        ("<script src=\"", "text/javascript; charset=utf-8"),
        ("<link rel=\"icon\" href=\"", "image/svg+xml"),
    ] {
        let path = page.split_once(begin).unwrap().1.split_once('"').unwrap().0.replace("&#x2f;", "/");
        let asset = send(stage.address, "GET", &path, &[], "").await;
        assert_eq!((asset.status, asset.header("content-type")), (200, Some(kind)), "{path}");
        assert_eq!(asset.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert!(!asset.body.contains("http://") || kind == "image/svg+xml", "nothing is loaded from elsewhere");
    }
}

#[tokio::test]
async fn a_choice_is_kept_and_leads_back() {
    let stage = Stage::set().await;
    let answer = open(&stage, "/look?language=ru&theme=dark&back=/connections%3Fq%3Da", &[]).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/connections?q=a")));
    let cookies: Vec<_> =
        answer.headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value).collect();
    assert!(cookies[0].starts_with("pm_language=ru; ") && cookies[1].starts_with("pm_theme=dark; "), "{cookies:?}");
    let page = open(&stage, "/", &[("cookie", "pm_language=ru; pm_theme=dark; pm_zone=Europe/Berlin")]).await.body;
    assert!(page.contains("<html lang=\"ru\" data-theme=\"dark\">") && page.contains("Europe&#x2f;Berlin"), "{page}");
    let away = open(&stage, "/look?language=ru&back=//evil.example", &[]).await;
    assert_eq!(away.header("location"), Some("/"));
}

#[tokio::test]
async fn an_override_reaches_the_engine_with_who_and_why() {
    let stage = Stage::set().await;
    let before = stage.clock.now();
    let answer =
        submit(&stage, "/connections/vendor-c/pin?map=intl", "pin=pin_block&for_sec=3600&why=ticket+42+%C3%A9").await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/connections/vendor-c?map=intl&done=pinned")));
    let asked = stage.asked();
    let [Request::Pin { key: whose, pin: Some(Pin::PinBlock), until: Some(until), by }] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!((whose, &*by.who, &*by.why), (&key("vendor-c", Some("intl")), "api 127.0.0.1", "ticket 42 é"));
    let length = until.since(before).as_secs();
    assert!((3600..3700).contains(&length), "{length}");
    let page = open(&stage, "/connections/vendor-c?map=intl&done=pinned", &[]).await.body;
    assert!(page.contains("Done: it is routed as you said."), "{page}");

    submit(&stage, "/connections/vendor-a/pin", "pin=pin_good&for_sec=0&why=x").await;
    submit(&stage, "/connections/vendor-b/unpin", "why=").await;
    submit(&stage, "/connections/vendor-b/reset", "why=new+route").await;
    let asked = stage.asked();
    assert!(matches!(&asked[0], Request::Pin { pin: Some(Pin::PinGood), until: None, .. }), "{asked:?}");
    assert!(
        matches!(&asked[1], Request::Pin { pin: None, key: whose, .. } if *whose == key("vendor-b", None)),
        "{asked:?}"
    );
    assert!(matches!(&asked[2], Request::Reset { by, .. } if &*by.why == "new route"), "{asked:?}");
}

#[tokio::test]
async fn an_override_that_cannot_be_is_refused_in_words() {
    let stage = Stage::set().await;
    for (path, form, status, words) in [
        ("/connections/vendor-a/pin", "pin=pin_block&for_sec=60&why=+", 422, "say why"),
        ("/connections/vendor-a/pin", "pin=pin_up&for_sec=60&why=x", 422, "pin_up"),
        ("/connections/vendor-a/pin", "pin=pin_block&for_sec=99999999999&why=x", 422, "for_sec: from 1 to"),
        ("/connections/vendor-a/pin", "pin=pin_block&for_sec=60&why=a%0ab", 422, "on one line"),
        ("/connections/nobody/pin", "pin=pin_block&for_sec=60&why=x", 404, "nobody"),
    ] {
        let page = submit(&stage, path, form).await;
        assert_eq!((page.status, page.header("content-type")), (status, Some("text/html; charset=utf-8")), "{form}");
        assert!(page.body.contains(words), "{form}: {}", page.body);
    }
    assert_eq!(stage.asked(), [], "nothing of it reached the engine");
}

#[tokio::test]
async fn who_may_only_read_sees_no_forms_and_sends_none() {
    let stage = Stage::with(
        &[("wall", Role::Read, "r-secret-0123456789"), ("noc", Role::Operate, "o-secret-0123456789")],
        Limits::default(),
    )
    .await;
    let page = async |secret: &str| open(&stage, "/connections/vendor-a", &[("authorization", secret)]).await.body;
    assert!(!page("Bearer r-secret-0123456789").await.contains("/pin\""));
    assert!(page("Bearer o-secret-0123456789").await.contains("/pin\""));
    let headers = [BROWSER, FORM, ("authorization", "Bearer r-secret-0123456789")];
    let answer =
        send(stage.address, "POST", "/connections/vendor-a/pin", &headers, "pin=pin_good&for_sec=0&why=x").await;
    assert_eq!((answer.status, stage.asked().len()), (403, 0));
}

#[tokio::test]
async fn pages_of_others_order_nothing() {
    let stage = Stage::set().await;
    let headers = [BROWSER, FORM, ("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")];
    let answer =
        send(stage.address, "POST", "/connections/vendor-a/pin", &headers, "pin=pin_block&for_sec=0&why=x").await;
    assert_eq!((answer.status, stage.asked().len()), (403, 0));
}

#[tokio::test]
async fn only_the_parts_that_changed_are_sent() {
    let stage = Stage::with_limits(quick()).await;
    let mut stream = Stream::of_page(stage.address, "/", &[]).await;
    let (kind, hello, _) = stream.next().await.unwrap();
    assert_eq!(kind, "hello");
    let page = open(&stage, "/", &[]).await.body.replace("&#x2f;", "/");
    for (attribute, asset) in [("data-style", "style"), ("data-script", "script")] {
        assert!(page.contains(&format!("{attribute}=\"{}\"", hello[asset].as_str().unwrap())), "{hello}");
    }
    assert_eq!(names(stream.next().await), set(["troubles", "now", "nodes", "connections", "changes"]));
    stage.publish(|view| view.nodes[0].figures.active_calls = 77);
    let (_, parts, _) = stream.next().await.unwrap();
    assert!(parts["nodes"].as_str().unwrap().contains(">77"), "{parts}");
    assert_eq!(names(Some(("parts".to_owned(), parts, None))), set(["now", "nodes"]));
    stage.publish(|view| {
        view.connections[2].state = State::Bad;
        view.generation += 1;
    });
    let (_, parts, _) = stream.next().await.unwrap();
    assert!(parts["connections"].as_str().unwrap().contains("id=\"c-vendor-c:intl\" data-state=\"last\""), "{parts}");
    assert_eq!(names(Some(("parts".to_owned(), parts, None))), set(["now", "connections"]));
}

#[tokio::test]
async fn a_page_whose_subject_is_gone_says_so() {
    let stage = Stage::with_limits(quick()).await;
    let mut stream = Stream::of_page(stage.address, "/connections/vendor-a", &[RUSSIAN]).await;
    assert_eq!(stream.next().await.unwrap().0, "hello");
    let parts = names(stream.next().await);
    assert_eq!(parts, set(["standing", "figures", "calls", "failed", "plots"]));
    stage.publish(|view| view.connections.retain(|one| one.key != key("vendor-a", None)));
    assert_eq!(stream.rest().await, ["gone"]);
    let mut late = Stream::of_page(stage.address, "/connections/vendor-a", &[RUSSIAN]).await;
    assert_eq!(late.rest().await, ["hello", "gone"], "also to who comes later");
}

/// A viewer that takes nothing misses what came between, and nobody else notices it.
#[tokio::test]
async fn a_viewer_that_is_slow_delays_nobody() {
    let stage = Stage::with_limits(quick()).await;
    let mut sleeper = Stream::of_page_narrow(stage.address, "/connections").await;
    assert_eq!(sleeper.next().await.unwrap().0, "hello");
    let mut quick = Stream::of_page(stage.address, "/connections", &[]).await;
    assert_eq!(quick.next().await.unwrap().0, "hello");
    const PICTURES: usize = 400;
    let mut seen = 0;
    for picture in 1..=PICTURES {
        stage.publish(|view| view.connections[0].active_calls = 1000 + picture);
        // Every picture reaches who reads: the sleeper, in the same show, holds nothing up.
        let mark = format!(">{}<", 1000 + picture);
        loop {
            let (_, parts, _) = quick.next().await.unwrap();
            seen += 1;
            if parts["connections"].as_str().is_some_and(|part| part.contains(&mark)) {
                break;
            }
        }
    }
    assert!(seen >= PICTURES);
    let mut taken = 0;
    loop {
        let (_, parts, _) = sleeper.next().await.unwrap();
        taken += 1;
        if parts["connections"].as_str().unwrap().contains(&format!(">{}<", 1000 + PICTURES)) {
            break;
        }
    }
    assert!(taken < PICTURES, "{taken}: what nobody took was kept for it");
}

#[tokio::test]
async fn only_so_many_look_at_a_time() {
    let stage = Stage::with_limits(Limits { streams: 1, ..quick() }).await;
    let mut first = Stream::of_page(stage.address, "/", &[]).await;
    assert_eq!(first.next().await.unwrap().0, "hello");
    let mut second = Stream::of_page(stage.address, "/", &[]).await;
    assert_eq!(second.status().await, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(open(&stage, "/", &[]).await.status, 200, "a page by itself is there all the same");
}

#[tokio::test]
async fn a_show_that_nobody_looked_at_begins_anew() {
    let stage = Stage::with_limits(quick()).await;
    for round in 0..3_usize {
        stage.publish(|view: &mut View| view.nodes[0].figures.active_calls = 500 + round as u64);
        let mut stream = Stream::of_page(stage.address, "/", &[]).await;
        assert_eq!(stream.next().await.unwrap().0, "hello");
        let mut newest = String::new();
        while !newest.contains(&format!(">{}<", 500 + round)) {
            let (_, parts, _) = stream.next().await.unwrap();
            newest = parts["nodes"].as_str().unwrap_or_default().to_owned();
        }
        drop(stream);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(Arc::strong_count(&stage.view.borrow()), 1, "nobody holds an old picture");
}
