//! The pages of route maps: orders against the orders as written, and what a call would try.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pointsman::api::Limits;
use pointsman::clock::Clock;
use pointsman::config::{Format, Purpose, load_text};
use pointsman::dialplan::apply;
use pointsman::dialplan::desired::{Desired, Order, StateVariable};
use pointsman::dialplan::readback::Probes;
use pointsman::engine::view::{LinkState, LinkView, MapView, RouteView, View};
use pointsman::ids::{ConnectionId, MapId};
use pointsman::pbx::command::{Command, Commander, Reply};
use pointsman::pbx::link::Link;
use pointsman::quality::machine::Standing;
use pointsman::quality::sentence::StateSentence;
use pointsman::routing::Route;
use pointsman::routing::rule::{Criterion, Measure, Rule, Value, Values};
use pointsman::tasks::Tasks;
use tokio::sync::watch;

use crate::client::{Answer, Stream, send};
use crate::stage::{PATIENCE, Played, Stage, play};

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
const RUSSIAN: (&str, &str) = ("accept-language", "ru");

/// A route: its connection, its static priority, and how it is.
type Written<'a> = (&'a str, i64, &'a str, Standing, StateSentence);

const GOOD: (&str, Standing, StateSentence) = ("good", Standing::Usual, StateSentence::Good);

fn map(name: &str, prefixes: &[&str], routes: &[Written<'_>]) -> MapView {
    let route = |(written, (name, priority, state, standing, quality)): (usize, &Written<'_>)| {
        let route = Route { connection: ConnectionId::new(name).unwrap(), priority: *priority, written };
        RouteView {
            state: (*state).to_owned(),
            standing: *standing,
            quality: quality.to_string(),
            merit: Some(0.5),
            ..RouteView::new(&route, None)
        }
    };
    let prefixes = prefixes.iter().map(ToString::to_string).collect();
    let mut map = MapView::new(MapId::new(name).unwrap(), prefixes);
    map.routes = routes.iter().enumerate().map(route).collect();
    map.derive();
    map
}

/// vendor-a is lowered, vendor-b is blocked, vendor-c is good and written last.
fn intl() -> MapView {
    map(
        "intl",
        &["00", "+"],
        &[
            ("vendor-a", 10, "last", Standing::Last, StateSentence::Lowered),
            ("vendor-b", 20, "blocked", Standing::Blocked, StateSentence::Blocked),
            ("vendor-c", 30, GOOD.0, GOOD.1, GOOD.2),
        ],
    )
}

fn uk() -> MapView {
    map("uk", &["0044"], &[("vendor-a", 10, GOOD.0, GOOD.1, GOOD.2)])
}

/// vendor-x is written first and does worse.
fn ruled() -> MapView {
    let criterion = Criterion { weight: 20.0, latency: 25, compensation: 2.0 };
    let rule = Rule { id: "steady".into(), criteria: [(Measure::SuccessPercent, criterion)].into() };
    let values = |estimate, compensation| -> Values {
        [(Measure::SuccessPercent, Value { estimate: Some(estimate), compensation })].into()
    };
    let route = |(written, (name, estimate)): (usize, (&str, f64))| {
        let priority = i64::try_from(written).unwrap() * 5 + 10;
        let route = Route { connection: ConnectionId::new(name).unwrap(), priority, written };
        RouteView::new(&route, Some(&values(estimate, 4.0)))
    };
    let mut map = MapView::new(MapId::new("ruled").unwrap(), vec!["7".to_owned()]);
    map.rule = Some(rule);
    map.routes = [("vendor-x", 40.0), ("vendor-y", 90.0)].into_iter().enumerate().map(route).collect();
    map.derive();
    map
}

fn with_maps(view: &mut View) {
    view.maps = [intl(), uk(), ruled()].map(Arc::new).into();
}

async fn stage() -> Stage {
    let stage = Stage::set().await;
    stage.publish(with_maps);
    stage
}

async fn open(stage: &Stage, path: &str) -> Answer {
    send(stage.address, "GET", path, &[BROWSER], "").await
}

async fn page(stage: &Stage, path: &str) -> String {
    let answer = open(stage, path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    assert!(!answer.body.contains(" style="), "{path}");
    // Written in this way where it comes out of a fact; it is the same to a browser.
    answer.body.replace("&#x2f;", "/")
}

async fn in_russian(stage: &Stage, path: &str) -> String {
    send(stage.address, "GET", path, &[BROWSER, RUSSIAN], "").await.body
}

/// The text between the first `from` and the next `to`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {text}"));
    rest.split_once(to).unwrap_or_else(|| panic!("no {to:?} after {from:?} in {text}")).0
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[tokio::test]
async fn the_list_shows_each_order_with_who_moved_and_who_is_left_out() {
    let stage = stage().await;
    let all = page(&stage, "/maps").await;
    let intl = between(&all, "<section id=\"map:intl\"", "</section>");
    has(intl, &["<code>00</code>, <code>+</code>", "static priorities", "when all are blocked, calls fail"]);
    has(intl, &["Not as written: 3 of 3\u{a0}connections stand elsewhere", "1 vendor-c", "▲ up by 2", "▼ down by 1"]);
    has(intl, &["class=\"chip blocked\"", "<del>vendor-b</del>", "href=\"/connections/vendor-c?map=intl\""]);
    let place = |name| intl.find(&format!("id=\"intl:{name}\"")).unwrap();
    assert!(place("vendor-c") < place("vendor-a") && place("vendor-a") < place("vendor-b"), "{intl}");
    has(between(&all, "<section id=\"map:uk\"", "</section>"), &["As written: the order is that"]);
    has(between(&all, "<section id=\"map:ruled\"", "</section>"), &["rule <code>steady</code>"]);
    let russian = in_russian(&stage, "/maps").await;
    has(&russian, &["▲ выше на 2", "Не так, как записано: не на месте", "если заблокированы все, вызовы не проходят"]);
}

#[tokio::test]
async fn a_map_without_a_way_out_says_so_and_so_does_a_program_without_maps() {
    let stage = stage().await;
    stage.publish(|view| {
        let blocked = ("vendor-a", 10, "blocked", Standing::Blocked, StateSentence::Blocked);
        let mut kept = map("kept", &[""], std::slice::from_ref(&blocked));
        kept.when_all_blocked = pointsman::routing::WhenAllBlocked::LeastBad;
        kept.derive();
        view.maps = [map("lost", &[], &[blocked]), kept, map("empty", &["1"], &[])].map(Arc::new).into();
    });
    let all = page(&stage, "/maps").await;
    has(&all, &["Every connection of this map is blocked: calls fail.", "calls go to vendor-a, the least bad one."]);
    has(&all, &["no prefix: calls come to it only where", "all other numbers", "There is no connection in it."]);
    has(&page(&stage, "/maps/lost").await, &["banner bad", "calls fail."]);
    has(&page(&stage, "/maps/empty").await, &["There is no connection in it."]);
    stage.publish(|view| view.maps.clear());
    has(&page(&stage, "/maps").await, &["No route maps are configured"]);
    has(&in_russian(&stage, "/maps").await, &["Карты маршрутов не настроены"]);
}

#[tokio::test]
async fn many_maps_are_searched_and_have_pages() {
    let stage = stage().await;
    stage.publish(|view| {
        let more = (0..60).map(|number| map(&format!("more-{number}"), &[], &[]));
        view.maps.extend(more.map(Arc::new));
    });
    let count = |page: &str| page.matches("<section id=\"map:").count();
    let first = page(&stage, "/maps").await;
    assert_eq!((count(&first), first.contains("rel=\"next\"")), (50, true));
    let last = page(&stage, "/maps?page=2").await;
    assert_eq!((count(&last), last.contains("rel=\"prev\""), last.contains("rel=\"next\"")), (13, true, false));
    for (query, found) in [("INTL", 1), ("0044", 1), ("vendor-x", 1), ("vendor-a", 2), ("nothing", 0)] {
        assert_eq!(count(&page(&stage, &format!("/maps?q={query}")).await), found, "{query}");
    }
    has(&page(&stage, "/maps?q=more-1").await, &["value=\"more-1\"", "11 of 63\u{a0}route maps"]);
}

#[tokio::test]
async fn a_long_order_has_pages_and_the_list_shows_its_beginning() {
    let stage = stage().await;
    stage.publish(|view| {
        let names: Vec<String> = (0..250).map(|number| format!("v{number:03}")).collect();
        let routes: Vec<Written<'_>> = names.iter().map(|name| (&**name, 10, GOOD.0, GOOD.1, GOOD.2)).collect();
        view.maps = vec![Arc::new(map("long", &["9"], &routes))];
    });
    let rows = |page: &str| page.matches("<tr id=\"r-").count();
    let first = page(&stage, "/maps/long").await;
    assert_eq!((rows(&first), first.matches("name=\"assume\"").count()), (100, 100));
    has(&first, &["and 150 more", "rel=\"next\""]);
    let last = page(&stage, "/maps/long?page=3").await;
    assert_eq!(rows(&last), 50);
    has(&last, &["as v199, which is written before it"]);
    let all = page(&stage, "/maps").await;
    assert_eq!(all.matches("id=\"long:").count(), 12);
    has(&all, &["and 238 more"]);
}

#[tokio::test]
async fn a_map_shows_every_figure_that_leads_to_a_place() {
    let stage = stage().await;
    let ruled = page(&stage, "/maps/ruled").await;
    has(&ruled, &["Successful calls: adds 20 at most", "about the last 25\u{a0}calls", "look better by 2\u{a0}%"]);
    let last = between(&ruled, "<tr id=\"r-vendor-x\"", "</tr>");
    has(last, &["<strong>2</strong>", "▼ down by 1", ">10<", "40.0\u{a0}%", "taken as 4.0\u{a0}% better"]);
    has(last, &["adds 10.00", "<strong>20.00</strong>", "Priority 10 + 10.00", "Not monitored"]);
    let intl = page(&stage, "/maps/intl").await;
    has(between(&intl, "<tr id=\"r-vendor-b\"", "</tr>"), &["left out", "<del>vendor-b</del>", "chip blocked"]);
    let russian = in_russian(&stage, "/maps/ruled").await;
    has(&russian, &["прибавляет 10,00", "Приоритет 10 + 10,00 (доля успешных вызовов) = 20,00", "▼ ниже на 1"]);
    assert_eq!(open(&stage, "/maps/nowhere").await.status, 404);
}

#[tokio::test]
async fn a_question_is_answered_on_the_page_and_its_form_stays_as_sent() {
    let stage = stage().await;
    let answer =
        page(&stage, "/maps/intl?number=%2B49+30&ask=call&assume=&assume=vendor-b%3Dgood&assume=vendor-c%3Daway").await;
    has(&answer, &["value=\"+49 30\"", "<option value=\"vendor-b=good\" selected>", "<details open>"]);
    has(&answer, &["<option value=\"vendor-c=away\" selected>"]);
    let shown = between(&answer, "<div class=\"answer\">", "</section>");
    has(shown, &["A call to +4930 would try", "is the longest prefix of +4930", "This is under your assumptions."]);
    assert!(shown.find("vendor-b").unwrap() < shown.find("vendor-a").unwrap(), "{shown}");
    assert!(!shown.contains("vendor-c") && !shown.contains("What the PBXs hold"), "{shown}");
    let russian = in_russian(&stage, "/maps/intl?number=0049&assume=vendor-c%3Dbad").await;
    let shown = between(&russian, "<div class=\"answer\">", "</section>");
    has(shown, &["«00» — самый длинный префикс номера 0049", "(предположение)", "Это при ваших предположениях."]);
}

#[tokio::test]
async fn a_number_of_another_map_is_answered_with_the_way_there() {
    let stage = stage().await;
    let answer = page(&stage, "/maps/intl?number=0044&ask=dialplan&assume=vendor-a%3Dbad&assume=vendor-c%3Dbad").await;
    has(&answer, &["It was asked for by name", "belongs to another route map"]);
    has(&answer, &["/uk?number=0044&amp;ask=dialplan&amp;assume=vendor%2Da%3Dbad#h-question\">uk</a>"]);
    assert!(!answer.contains("vendor%2Dc"), "a connection that is not there cannot be asked about there");
    has(&page(&stage, "/maps/uk?number=555").await, &["By its number no route map would get this call"]);
}

#[tokio::test]
async fn what_cannot_be_answered_is_said_at_the_form_in_words() {
    let stage = stage().await;
    let many = "&assume=vendor-a%3Dbad".repeat(101);
    for (query, english, russian) in [
        ("number=12a", "is not a number", "не номер"),
        ("number=", "is not a number", "не номер"),
        ("number=00&assume=vendor-z%3Dbad", "has no connection vendor-z", "нет подключения vendor-z"),
        ("number=00&assume=vendor-a%3Dworse", "is not an assumption", "такого предположить нельзя"),
        (&format!("number=00{many}"), "at most 100 assumptions", "лишком много предположений"),
    ] {
        let path = format!("/maps/intl?{query}");
        let (wrong, in_russian) = (page(&stage, &path).await, in_russian(&stage, &path).await);
        for (page, words) in [(&wrong, english), (&in_russian, russian)] {
            let alert = between(page, "role=\"alert\">", "</p>");
            assert!(alert.to_lowercase().contains(&words.to_lowercase()), "{query}: {alert}");
            assert!(page.contains("aria-invalid") && !page.contains("class=\"answer\""), "{query}");
        }
    }
    has(
        &page(&stage, "/maps?number=555&ask=call").await,
        &["role=\"alert\"", "o route map serves 555", "value=\"555\""],
    );
}

#[tokio::test]
async fn text_of_an_address_is_text_and_nothing_else() {
    let stage = stage().await;
    let hostile = "%3Cimg+src%3Dx+onerror%3Dalert%281%29%3E%22%27%26";
    for path in [
        format!("/maps?q={hostile}"),
        format!("/maps?number={hostile}"),
        format!("/maps/intl?number={hostile}"),
        format!("/maps/intl?number=00&assume={hostile}"),
        format!("/maps/intl?number=00&assume={hostile}%3Dbad&ask={hostile}"),
    ] {
        let page = page(&stage, &path).await;
        assert!(page.contains("</html>") && !page.contains("<img"), "{path}: {page}");
    }
    has(&page(&stage, &format!("/maps/intl?number={hostile}")).await, &["value=\"&lt;img"]);
    let lead = open(&stage, "/call?number=%0D%0Alocation%3A+//evil.example").await;
    assert_eq!((lead.status, lead.header("location").map(|to| to.starts_with("/maps?number=%0D"))), (303, Some(true)));
}

#[tokio::test]
async fn the_number_alone_leads_to_the_map_that_answers() {
    let stage = stage().await;
    let lead = |query: &'static str| {
        let stage = &stage;
        async move { open(stage, &format!("/call?{query}")).await.header("location").unwrap().to_owned() }
    };
    assert_eq!(lead("number=0044+20&ask=dialplan").await, "/maps/uk?number=0044%2020&ask=dialplan#h-question");
    assert_eq!(lead("number=0049").await, "/maps/intl?number=0049&ask=call#h-question");
    assert_eq!(lead("number=555").await, "/maps?number=555&ask=call#h-question");
    assert_eq!(lead("").await, "/maps?number=&ask=call#h-question");
}

/// A PBX that holds what it is told, and counts how often it is asked.
struct Pbx {
    reads: Arc<AtomicUsize>,
    held: Arc<Mutex<HashMap<String, String>>>,
    _applier: apply::Applier,
    _link: watch::Sender<LinkView>,
}

impl Pbx {
    async fn play(played: &mut Played) -> Self {
        let text = r#"
            variables = { reconcile_every_sec = 3600, astdb_expiry_sec = 7200 }
            nodes = [{ id = "pbx-01", kind = "freeswitch", address = "127.0.0.1:1", password = "x" }]
        "#;
        let config = load_text(Path::new("x.toml"), text, Format::Toml, [], Purpose::Connect).unwrap().config;
        let (commander, mut queue) = Commander::new(1024);
        let (reads, held) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(HashMap::new())));
        let (asked, memory) = (reads.clone(), held.clone());
        played.others.spawn(async move {
            while let Some((command, answer)) = queue.recv().await {
                let mut memory = memory.lock().unwrap();
                let reply = match command {
                    Command::SetVariable { name, value } => {
                        memory.insert(name, value);
                        Reply::Done
                    }
                    Command::ClearVariable { name } => {
                        memory.remove(&name);
                        Reply::Done
                    }
                    Command::GetVariable { name } => {
                        asked.fetch_add(1, Ordering::Relaxed);
                        Reply::Value(memory.get(&name).cloned())
                    }
                    _ => Reply::Done,
                };
                let _ = answer.send(Ok(reply));
            }
        });
        let (link, view) = watch::channel(LinkView::default());
        let (clock, tasks): (Clock, &Tasks) = (played.sources.clock, &played.others);
        let mut applier = apply::spawn(&config.nodes[0], &config.variables, &Link { commander, view }, clock, tasks);
        link.send_replace(LinkView { state: LinkState::Up, ..LinkView::default() });
        let order = Order {
            list: "pm_route_intl".to_owned(),
            count: "pm_route_intl_count".to_owned(),
            trunks: vec!["gw-c".to_owned(), "gw-a".to_owned()],
            slots: false,
        };
        let state = StateVariable { name: "pm_conn_vendor-a".to_owned(), value: "last".into(), may_be_unset: false };
        let desired = Desired { orders: vec![Arc::new(order)], states: [state].into(), ..Desired::default() };
        applier.want(Arc::new(desired), clock.now());
        assert!(applier.in_step(PATIENCE).await, "the variables are not written");
        played.sources.probes = Probes::new("pm_", vec![applier.probe()]);
        Self { reads, held, _applier: applier, _link: link }
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn the_pbxs_are_read_once_with_the_page_and_never_for_its_parts() {
    let mut played = play(Clock::system());
    let pbx = Pbx::play(&mut played).await;
    let limits = Limits { pace: Duration::from_millis(1), ..Limits::default() };
    let stage = Stage::playing(played, &[], limits).await;
    stage.publish(with_maps);
    let path = "/maps/intl?number=00&ask=dialplan";

    let before = pbx.reads();
    let call = page(&stage, "/maps/intl?number=00&ask=call").await;
    assert!(!call.contains("What the PBXs hold"), "{call}");
    has(&call, &["<code>pm_route_intl</code>", "<code>pm_conn_vendor-c_intl</code>", "href=\"/nodes/pbx-01\""]);
    assert_eq!(pbx.reads(), before, "a question about the order alone asks no PBX");

    let answer = page(&stage, path).await;
    let held = between(&answer, "What the PBXs hold", "</section>");
    has(held, &["as it should be", "<code>gw-c,gw-a</code>", "<code>pm_route_intl_count</code>", "✓ yes"]);
    let after = pbx.reads();
    assert_eq!(after - before, 3);

    let mut stream = Stream::of_page(stage.address, path, &[]).await;
    for round in 0..3 {
        loop {
            let (kind, ..) = stream.next().await.expect("the stream ended");
            if kind == "parts" {
                break;
            }
        }
        stage.publish(|view| {
            let name = format!("more-{round}");
            view.maps[0] = Arc::new(map("intl", &["00"], &[(&name, 10, GOOD.0, GOOD.1, GOOD.2)]));
        });
    }
    assert_eq!(pbx.reads(), after, "the stream asked the PBX");

    stage.publish(with_maps);
    pbx.held.lock().unwrap().insert("pm_route_intl".to_owned(), "<b>other</b>".to_owned());
    let differs = page(&stage, path).await;
    has(&differs, &["not as it should be", "&lt;b&gt;other&lt;", "✕ no"]);
    has(&in_russian(&stage, path).await, &["есть расхождения", "Должно быть", "✕ нет"]);
}
