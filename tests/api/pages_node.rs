//! The page of a node.

use std::time::Duration;

use pointsman::api::Limits;
use pointsman::config::model::Role;
use pointsman::engine::request::Request;
use pointsman::score::Admin;
use pointsman::store::Whose;

use crate::client::{Answer, Stream, get, send};
use crate::history::{count, past};
use crate::picture::node_id;
use crate::stage::Stage;

const BROWSER: (&str, &str) = ("accept", "text/html");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

async fn order(stage: &Stage, node: &str, form: &str) -> Answer {
    send(stage.address, "POST", &format!("/nodes/{node}/admin"), &[BROWSER, FORM], form).await
}

#[tokio::test]
async fn a_node_shows_every_term_of_its_score_and_where_its_figures_come_from() {
    let (stage, _folder) = past([count(30, Whose::Node(node_id("pbx-01")), 8)]).await;
    let page = get(stage.address, "/nodes/pbx-01").await;
    assert_eq!(page.status, 200, "{page:?}");
    for shown in [
        "<strong>67.48</strong>",
        "call_score",
        ">42 of 250<",
        "83.2",
        "33.28",
        "57.5",
        "17.25",
        "35.0",
        "7.00",
        "99.5",
        "9.95",
        "read on this machine",
        "pushed by an agent",
        "measured by pointsman",
        "Operator's order",
        "<svg ",
        "24 hours",
    ] {
        assert!(page.body.replace("&#x27;", "'").contains(shown), "{shown} is missing: {}", page.body);
    }
    let cookie = [("cookie", "pm_language=ru")];
    let russian = send(stage.address, "GET", "/nodes/pbx-01?span=7d", &cookie, "").await;
    for shown in ["Из чего складывается оценка", "67,48", "измерено на этой машине", "<html lang=\"ru\""]
    {
        assert!(russian.body.contains(shown), "{shown} is missing: {}", russian.body);
    }
}

#[tokio::test]
async fn a_node_that_gets_no_calls_says_why_and_what_is_unknown() {
    let stage = Stage::set().await;
    let page = get(stage.address, "/nodes/pbx-02").await;
    for shown in ["no link, no sign of life for", "its breaker is open", "draining", "unknown", "open, 3", "12.50"] {
        assert!(page.body.replace('\u{a0}', " ").contains(shown), "{shown} is missing: {}", page.body);
    }
    assert!(page.body.contains("there is no database"), "the past is missing, and nothing else: {}", page.body);
    let nobody = send(stage.address, "GET", "/nodes/nobody", &[BROWSER], "").await;
    assert!(nobody.status == 404 && nobody.body.contains("There is nothing here"), "{nobody:?}");
}

#[tokio::test]
async fn an_order_reaches_the_engine_with_who_and_why() {
    let stage = Stage::set().await;
    let answer = order(&stage, "pbx-01", "admin=draining&why=kernel+update").await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/nodes/pbx-01?done=draining")));
    let asked = stage.asked();
    let [Request::SetAdmin { node, admin: Admin::Draining, by }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((node.as_str(), &*by.who, &*by.why), ("pbx-01", "api 127.0.0.1", "kernel update"));
    let page = get(stage.address, "/nodes/pbx-01?done=draining").await;
    assert!(page.body.contains("role=\"status\">Done: it gets no new calls."), "{}", page.body);
    for (node, form, status, words) in [
        ("pbx-01", "admin=draining&why=+", 422, "say why"),
        ("pbx-01", "admin=gone&why=x", 422, "gone"),
        ("pbx-01", "admin=enabled&why=a%0ab", 422, "on one line"),
        ("nobody", "admin=enabled&why=x", 404, "nobody"),
    ] {
        let page = order(&stage, node, form).await;
        assert_eq!((page.status, page.header("content-type")), (status, Some("text/html; charset=utf-8")), "{form}");
        assert!(page.body.contains(words), "{form}: {}", page.body);
    }
    let foreign = [BROWSER, FORM, ("sec-fetch-site", "cross-site")];
    let foreign = send(stage.address, "POST", "/nodes/pbx-01/admin", &foreign, "admin=disabled&why=x").await;
    assert_eq!((foreign.status, stage.asked().len()), (403, 0));
}

#[tokio::test]
async fn who_may_only_read_sees_no_form() {
    let tokens = [("wall", Role::Read, "r-secret"), ("noc", Role::Operate, "o-secret")];
    let stage = Stage::with(&tokens, Limits::default()).await;
    for (token, expected) in [("Bearer r-secret", false), ("Bearer o-secret", true)] {
        let page = send(stage.address, "GET", "/nodes/pbx-01", &[("authorization", token)], "").await;
        assert_eq!((page.status, page.body.contains("/admin\"")), (200, expected));
    }
}

#[tokio::test]
async fn variables_are_read_back_where_that_is_asked_for() {
    let stage = Stage::set().await;
    assert!(!get(stage.address, "/nodes/pbx-01").await.body.contains("no variables of"));
    // The nodes of the stage have no variables.
    let read = get(stage.address, "/nodes/pbx-01?read=intl").await;
    assert!(read.body.contains("The node has no variables of intl."), "{}", read.body);
    let nothing = send(stage.address, "GET", "/nodes/pbx-01?read=%3Cb%3E", &[BROWSER], "").await;
    assert!(nothing.status == 404 && !nothing.body.contains("<b>"), "{nothing:?}");
}

#[tokio::test]
async fn its_text_from_outside_is_text_and_its_parts_follow_the_picture() {
    let stage = Stage::with_limits(Limits { pace: Duration::from_millis(1), ..Limits::default() }).await;
    let mut live = Stream::of_page(stage.address, "/nodes/pbx-02", &[]).await;
    assert_eq!(live.next().await.unwrap().0, "hello");
    assert_eq!(live.next().await.unwrap().1.as_object().unwrap().len(), 7);
    stage.publish(|view| {
        view.nodes[1].link.reason = "<img src=x>".to_owned();
        view.nodes[1].link.software = "<img src=y>".to_owned();
    });
    let (_, parts, _) = live.next().await.unwrap();
    let names: Vec<&String> = parts.as_object().unwrap().keys().collect();
    assert_eq!(names, ["link"]);
    assert!(!parts["link"].as_str().unwrap().contains("<img"), "{parts}");
    let page = get(stage.address, "/nodes/pbx-02").await.body;
    assert!(page.contains("&lt;img src=x") && page.contains("&lt;img src=y"), "{page}");
}
