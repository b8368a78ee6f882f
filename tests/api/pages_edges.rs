//! The page of edges, and what other pages say of them.

use std::time::Duration;

use pointsman::api::Limits;
use pointsman::clock::Clock;
use pointsman::edge::{Health, Snapshot};
use pointsman::engine::view::XdsSummary;
use pointsman::listen::Listening;
use pointsman::xds::clients::Presence;
use pointsman::xds::kind::Kind;
use pointsman::xds::view::{ClientView, Protocol, SubscriptionView};

use crate::client::{Answer, Stream, send};
use crate::edges::{client, enter, rejected, subscription};
use crate::picture::snapshot;
use crate::stage::{Stage, play};

const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";

async fn open(stage: &Stage, path: &str, language: &str) -> Answer {
    let headers = [("accept", "text/html"), ("accept-language", language)];
    let page = send(stage.address, "GET", path, &headers, "").await;
    assert_eq!(page.status, 200, "{path}: {page:?}");
    page
}

/// A page in words, without what holds a number and its unit together.
async fn read(stage: &Stage, path: &str, language: &str) -> String {
    open(stage, path, language).await.body.replace('\u{a0}', " ").replace("&#x2f;", "/").replace("&quot;", "\"")
}

fn tell(stage: &Stage, snapshot: Snapshot) {
    stage.publish(|view| view.edge = snapshot.into());
}

fn silent(node: &str, stage: &Stage) -> Presence {
    enter(stage, ClientView { subscriptions: vec![], ..client(node, stage.clock.now()) })
}

#[tokio::test]
async fn what_edges_are_told_is_shown_group_by_group() {
    let stage = Stage::set().await;
    assert!(read(&stage, "/edges", "en").await.contains("Nothing yet: the first snapshot"));
    let mut told = snapshot(1_700_000_000_004, stage.clock.now());
    told.groups[1].cluster = "wss".to_owned();
    let [one, other] = &mut told.groups[1].endpoints[..] else { panic!("two") };
    (one.stands_in, one.address, other.health) = (true, "2001:db8::1".to_owned(), Health::Unhealthy);
    tell(&stage, told);
    let page = read(&stage, "/edges", "en").await;
    for shown in [
        "Snapshot 1700000000004, made",
        "cluster sip-cluster",
        "id=\"e:sip:pbx-01\" data-state=\"good\"",
        "<a href=\"/nodes/pbx-01\">pbx-01</a>",
        ">10.0.0.1:5060<",
        "<span class=\"chip healthy\">Healthy</span>",
        ">67<",
        "<span class=\"chip draining\">Draining</span>",
        "<span class=\"chip unhealthy\">Unhealthy</span>",
        ">[2001:db8::1]:7443<",
        "stands in: no node",
    ] {
        assert!(page.contains(shown), "{shown} is missing: {page}");
    }
    assert!(!page.contains("cluster wss"), "a cluster that is called as its group is not said twice: {page}");
    let russian = read(&stage, "/edges", "ru").await;
    for shown in ["<h1>Балансировщики</h1>", "Принимает вызовы", "за неимением лучшего", "Готовность"]
    {
        assert!(russian.contains(shown), "{shown} is missing: {russian}");
    }
}

#[tokio::test]
async fn the_server_says_where_it_listens_or_why_it_does_not() {
    let stage = Stage::set().await;
    let page = read(&stage, "/edges", "en").await;
    assert!(page.contains("It listens on <code>127.0.0.1:18000</code>") && page.contains("Nobody has subscribed yet."));
    stage.xds.send_replace(Listening { address: None, problem: "the address is taken".to_owned() });
    let page = read(&stage, "/edges", "en").await;
    assert!(page.contains("Edges cannot subscribe: the address is taken") && !page.contains("It listens"), "{page}");
}

#[tokio::test]
async fn where_there_is_no_server_the_page_says_how_to_have_one() {
    let mut played = play(Clock::system());
    played.sources.xds = None;
    let stage = Stage::playing(played, &[], Limits { pace: Duration::from_millis(1), ..Limits::default() }).await;
    for (language, words) in [("en", "None is configured."), ("ru", "Не настроен.")] {
        let page = read(&stage, "/edges", language).await;
        for shown in [words, "<code>[xds]</code>", "docs/configuration.md", "href=\"/api/endpoints\""] {
            assert!(page.contains(shown), "{shown} is missing: {page}");
        }
        assert!(!page.contains("id=\"clients\""), "{page}");
    }
    let mut live = Stream::of_page(stage.address, "/edges", &[]).await;
    assert_eq!((live.next().await.unwrap().0, live.next().await.unwrap().0), ("hello".into(), "parts".into()));
}

#[tokio::test]
async fn a_client_shows_what_it_holds_and_what_it_rejects_in_its_words() {
    let stage = Stage::set().await;
    let now = stage.clock.now();
    let waits =
        SubscriptionView { waiting_since: Some(now.before(Duration::from_secs(5))), ..subscription(Kind::Route) };
    let moment = SubscriptionView { waiting_since: Some(now), ..subscription(Kind::Endpoints) };
    let _all = [
        silent("d-silent", &stage),
        enter(&stage, client("c-good", now)),
        enter(&stage, ClientView { subscriptions: vec![moment], ..client("b-good", now) }),
        enter(&stage, ClientView { subscriptions: vec![subscription(Kind::Cluster), waits], ..client("y-slow", now) }),
        enter(
            &stage,
            ClientView {
                subscriptions: vec![subscription(Kind::Endpoints), rejected(Kind::Listener, "no such filter", now)],
                protocol: Protocol::Delta,
                unserved: vec!["type.googleapis.com/envoy.Secret".to_owned()],
                ..client("z-bad", now)
            },
        ),
        enter(&stage, ClientView { node: String::new(), who: None, ..client("", now) }),
    ];
    let page = read(&stage, "/edges", "en").await;
    for shown in [
        "<span class=\"chip rejects\">LDS rejected</span>",
        "Rejects <code>6b21</code>",
        "<q>no such filter</q>",
        "all · holds version <code>5f3a</code>, accepted within 1.5 ms",
        "<span class=\"chip waits\">RDS waits</span>",
        "sip, wss",
        "envoy 1.40.0",
        "10.0.1.1:41000",
        "edge-token",
        ">delta<",
        ">state of the world<",
        "type.googleapis.com/envoy.Secret",
        "It has asked for nothing yet.",
        "has not said its name",
        "<div class=\"bad\"><dt>Reject an answer</dt><dd>1</dd>",
        "<div class=\"warn\"><dt>Keep an answer waiting</dt><dd>1</dd>",
        "6 clients",
    ] {
        assert!(page.contains(shown), "{shown} is missing: {page}");
    }
    let order = ["z-bad", "y-slow", "has not said its name", "b-good", "c-good", "d-silent"];
    let places: Vec<usize> = order.iter().map(|name| page.find(&format!(">{name}")).unwrap()).collect();
    assert!(places.is_sorted(), "{order:?} at {places:?}");
    let russian = read(&stage, "/edges", "ru").await;
    for shown in ["LDS отвергнуто", "RDS ждёт ответа", "только изменения", "6 клиентов", "имени не назвал"]
    {
        assert!(russian.contains(shown), "{shown} is missing: {russian}");
    }
}

#[tokio::test]
async fn clients_are_searched_and_have_pages() {
    let stage = Stage::set().await;
    let (now, mut all) = (stage.clock.now(), Vec::new());
    for number in 0..1000 {
        all.push(enter(&stage, client(&format!("edge-{number:03}"), now)));
    }
    let bad = ClientView { subscriptions: vec![rejected(Kind::Cluster, "x", now)], ..client("edge-zzz", now) };
    all.push(enter(&stage, bad));
    let rows = async |path: &str| open(&stage, path, "en").await.body.matches("<tr id=\"x-").count();
    assert_eq!(rows("/edges").await, 100);
    assert_eq!((rows("/edges?page=11").await, rows("/edges?page=99999").await), (1, 1));
    assert_eq!((rows("/edges?q=EDGE-99").await, rows("/edges?q=nobody").await), (10, 0));
    assert_eq!((rows("/edges?q=edge-token").await, rows("/edges?q=10.0.1.1:").await), (100, 100));
    let page = read(&stage, "/edges", "en").await;
    assert!(page.contains("1001 clients") && page.contains("rel=\"next\""), "{page}");
    assert!(page.find("edge-zzz").unwrap() < page.find("edge-000").unwrap(), "who rejects comes first");
    assert!(read(&stage, "/edges?q=edge-99", "en").await.contains("10 of 1001 clients"));
}

#[tokio::test]
async fn who_was_dropped_is_shown_with_the_reason() {
    let stage = Stage::set().await;
    assert!(read(&stage, "/edges", "en").await.contains("Nobody since pointsman started."));
    enter(&stage, client("front-1", stage.clock.now())).ends(true, "it took nothing for 30 s".to_owned());
    drop(enter(&stage, client("front-2", stage.clock.now())));
    stage.edges.refuse("10.0.9.9:1".to_owned(), "it has no token".to_owned());
    let page = read(&stage, "/edges", "en").await;
    for shown in
        ["<span class=\"chip dropped\">dropped</span> it took nothing for 30 s", "it went away", "it has no token"]
    {
        assert!(page.contains(shown), "{shown} is missing: {page}");
    }
    assert!(page.find("it has no token").unwrap() < page.find("it took nothing").unwrap(), "newest first");
    assert_eq!(page.matches("class=\"chip dropped\"").count(), 2, "who went away was not dropped: {page}");
    let russian = read(&stage, "/edges", "ru").await;
    assert!(russian.contains("</span> ничего не подтверждал 30 с") && russian.contains(">отключился<"), "{russian}");
    for number in 0..30 {
        stage.edges.refuse(format!("10.0.9.9:{number}"), "it has no token".to_owned());
    }
    assert!(read(&stage, "/edges", "en").await.contains("and 13 more"));
}

/// Clients say what they want, in names, errors and addresses.
#[tokio::test]
async fn what_clients_say_is_text_and_nothing_else() {
    let stage = Stage::set().await;
    let (now, hostile) = (stage.clock.now(), || HOSTILE.to_owned());
    let mut wants = rejected(Kind::Cluster, HOSTILE, now);
    (wants.names, wants.sent_version, wants.accepted_version) = (vec![hostile(); 1000], hostile(), hostile());
    wants.rejection.as_mut().unwrap().version = hostile();
    let _open = enter(
        &stage,
        ClientView {
            cluster: hostile(),
            software: hostile(),
            peer: hostile(),
            who: Some(hostile()),
            subscriptions: vec![wants],
            unserved: vec![hostile(); 8],
            ..client(HOSTILE, now)
        },
    );
    enter(&stage, client(HOSTILE, now)).ends(true, hostile());
    stage.xds.send_replace(Listening { address: None, problem: hostile() });
    let mut told = snapshot(4, now);
    (told.groups[0].cluster, told.groups[0].endpoints[0].address) = (hostile(), hostile());
    stage.publish(|view| {
        view.edge = told.into();
        view.xds = Some(XdsSummary { address: None, problem: hostile(), clients: 1, rejecting: 1 });
    });
    for path in ["/edges", "/edges?q=%3Cimg%20src%3Dx%3E%22", "/edges?q=%3Cimg", "/", "/nodes/pbx-01"] {
        for language in ["en", "ru"] {
            let page = open(&stage, path, language).await.body;
            assert!(page.contains("</html>") && !page.contains("<img"), "{path}: {page}");
            assert!(page.contains("&lt;img"), "{path}: it is shown all the same");
        }
    }
    assert!(read(&stage, "/edges", "en").await.contains("and 997 more"));
}

#[tokio::test]
async fn the_first_page_says_what_is_wrong_with_edges() {
    let stage = Stage::set().await;
    assert!(!read(&stage, "/", "en").await.contains("class=\"banner bad\">Edges"));
    let summary = |problem: &str, rejecting| {
        stage.publish(|view| {
            view.xds = Some(XdsSummary { address: None, problem: problem.to_owned(), clients: 9, rejecting });
        });
    };
    summary("the address is taken", 0);
    for (language, words) in
        [("en", "Edges cannot subscribe: the address"), ("ru", "не могут подписаться: the address")]
    {
        let page = read(&stage, "/", language).await;
        assert!(page.contains(words) && page.contains("<a href=\"/edges\">"), "{page}");
        assert!(!page.contains("class=\"banner warn\">0"), "{page}");
    }
    for (count, english, russian) in [
        (1, "1 edge rejects what pointsman tells, and goes on", "1 балансировщик отверг то"),
        (2, "2 edges reject what pointsman tells, and go on", "2 балансировщика отвергли то"),
    ] {
        summary("", count);
        for (language, words) in [("en", english), ("ru", russian)] {
            let page = read(&stage, "/", language).await;
            assert!(page.contains(words), "{words} is missing: {page}");
        }
    }
}

#[tokio::test]
async fn a_node_says_how_edges_see_it() {
    let stage = Stage::set().await;
    assert!(read(&stage, "/nodes/pbx-02", "en").await.contains("It is in no group"));
    tell(&stage, snapshot(4, stage.clock.now()));
    let page = read(&stage, "/nodes/pbx-02", "en").await;
    for shown in
        ["<a href=\"/edges#g:wss\">wss</a>", "10.0.0.2:5060", "10.0.0.2:7443", "chip draining", "As edges see it"]
    {
        assert!(page.contains(shown), "{shown} is missing: {page}");
    }
    assert!(!page.contains("10.0.0.1:7443"), "{page}");
}

#[tokio::test]
async fn its_parts_follow_by_themselves() {
    let stage = Stage::with_limits(Limits { pace: Duration::from_millis(1), ..Limits::default() }).await;
    let mut live = Stream::of_page(stage.address, "/edges", &[]).await;
    assert_eq!(live.next().await.unwrap().0, "hello");
    assert_eq!(live.next().await.unwrap().1.as_object().unwrap().len(), 4);
    tell(&stage, snapshot(4, stage.clock.now()));
    let (_, parts, _) = live.next().await.unwrap();
    assert_eq!(parts.as_object().unwrap().keys().collect::<Vec<_>>(), ["told"], "{parts}");
    let _open = enter(&stage, client("front-1", stage.clock.now()));
    stage.publish(|_| {});
    let (_, parts, _) = live.next().await.unwrap();
    assert_eq!(parts.as_object().unwrap().keys().collect::<Vec<_>>(), ["clients", "server"], "{parts}");
    assert!(parts["clients"].as_str().unwrap().contains("front-1"), "{parts}");
}

/// As many groups and nodes as nobody has, and as many clients, each with as much as a client can have.
#[tokio::test]
async fn it_is_painted_where_everything_is_as_large_as_it_gets() {
    let stage = Stage::set().await;
    let now = stage.clock.now();
    let mut told = snapshot(u64::MAX, now);
    let endpoint = told.groups[0].endpoints[0].clone();
    told.groups[0].endpoints = vec![endpoint; 250];
    told.groups = vec![told.groups[0].clone(); 30];
    tell(&stage, told);
    let mut all = Vec::new();
    for _ in 0..1000 {
        let mut subscriptions = Kind::ALL.map(|kind| rejected(kind, &"<x>".repeat(166), now)).to_vec();
        for subscription in &mut subscriptions {
            subscription.names = vec!["n".repeat(512); 1000];
            (subscription.accepted_after_us, subscription.waiting_since) = (Some(u64::MAX), Some(now));
        }
        let unserved = vec!["t".repeat(128); 8];
        let client = client(&"ж".repeat(128), now);
        all.push(enter(&stage, ClientView { subscriptions, unserved, ..client }));
    }
    for language in ["en", "ru"] {
        let page = open(&stage, "/edges", language).await.body;
        assert_eq!((page.matches("<tr id=\"x-").count(), page.matches("<tr id=\"e:").count()), (100, 2000));
        assert!(!page.contains("NaN") && !page.contains("<x>"), "{page}");
        let headers = [("accept-language", language)];
        let mut live = Stream::of_page(stage.address, "/edges", &headers).await;
        assert_eq!((live.next().await.unwrap().0, live.next().await.unwrap().0), ("hello".into(), "parts".into()));
    }
}
