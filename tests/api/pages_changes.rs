//! The page of all changes.

use std::sync::Arc;

use pointsman::engine::view::ChangeView;
use pointsman::quality::machine::State;
use pointsman::store::POINTSMAN;

use crate::client::{Answer, Stream, get, send};
use crate::history::{changed, past};
use crate::picture::{change, key};
use crate::stage::Stage;

/// A picture with these changes only.
fn show(stage: &Stage, changes: Vec<ChangeView>) {
    stage.publish(|view| view.changes = changes);
}

/// The sentences in the order of the page.
fn said(page: &Answer) -> Vec<&str> {
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")), "{page:?}");
    let parts = page.body.split("<span class=\"said\">").skip(1);
    parts.map(|part| part.split_once("</span>").unwrap().0).collect()
}

/// Where a link leads.
fn link<'a>(page: &'a Answer, text: &str) -> Option<&'a str> {
    let before = page.body.split(text).next().filter(|before| before.len() < page.body.len())?;
    let (_, href) = before.rsplit_once("href=\"")?;
    Some(href.split('"').next().unwrap())
}

#[tokio::test]
async fn changes_are_shown_page_by_page_and_the_filter_stays() {
    let ops = (1..=120).map(|n| changed(n, key("vendor-a", None), State::Bad, POINTSMAN));
    let others = (121..=130).map(|n| changed(n, key("vendor-c", Some("intl")), State::Retry, "api noc"));
    let (stage, _folder) = past(ops.chain(others)).await;
    show(&stage, vec![]);
    let first = get(stage.address, "/changes").await;
    assert_eq!((said(&first).len(), said(&first)[0], link(&first, "← Newest")), (50, "change 130", None));

    let filtered = get(stage.address, "/changes?connection=vendor-a&map=&state=bad&who=pointsman").await;
    assert_eq!((said(&filtered)[0], said(&filtered).len()), ("change 120", 50));
    let mut page = filtered;
    let mut seen = 50;
    while let Some(older) = link(&page, "Older →") {
        assert!(older.contains("connection=vendor-a&amp;map=&amp;state=bad&amp;who=pointsman&amp;before="), "{older}");
        page = get(stage.address, &older.replace("&amp;", "&")).await;
        assert_eq!(said(&page)[0], format!("change {}", 120 - seen));
        seen += said(&page).len();
    }
    assert_eq!(seen, 120);
    assert_eq!(link(&page, "← Newest"), Some("/changes?connection=vendor-a&amp;map=&amp;state=bad&amp;who=pointsman"));

    for (query, expected) in [("map=intl", 10), ("who=api%20noc", 10), ("state=good", 0), ("connection=no%20id", 0)] {
        assert_eq!(said(&get(stage.address, &format!("/changes?{query}")).await).len(), expected, "{query}");
    }
    let of_a_map = get(stage.address, "/changes?map=intl").await;
    assert_eq!(link(&of_a_map, ">vendor-c</a>"), Some("&#x2f;connections&#x2f;vendor-c?map=intl"));
    let none = get(stage.address, "/changes?state=good").await;
    assert!(none.body.contains("No change fits.") && none.body.contains(r#"<option value="good" selected>"#));
    for (status, query) in [(400, "state=lost"), (400, "before=yesterday")] {
        let answer = send(stage.address, "GET", &format!("/changes?{query}"), &[("accept", "text/html")], "").await;
        assert_eq!((answer.status, answer.body.contains("<main")), (status, true), "{query}: {answer:?}");
    }
}

#[tokio::test]
async fn what_is_not_in_the_database_yet_stands_before_what_is() {
    let (stage, _folder) = past([changed(1, key("vendor-a", None), State::Bad, POINTSMAN)]).await;
    let written = get(stage.address, "/api/changes?before=9000000000000000").await.json()["changes"][0].clone();
    let written: ChangeView = serde_json::from_value(written).unwrap();
    let earlier = ChangeView { words: "of long ago".into(), ..change("vendor-b", 1, stage.clock.now()) };
    let earlier = ChangeView {
        change: pointsman::quality::machine::Change {
            at: written.change.at.before(std::time::Duration::from_secs(1)),
            ..earlier.change
        },
        ..earlier
    };
    let new = ChangeView { words: "just now".into(), ..change("vendor-a", 2, stage.clock.now()) };
    show(&stage, vec![new, written, earlier]);
    assert_eq!(said(&get(stage.address, "/changes").await), ["just now", "change 1"]);
    assert_eq!(said(&get(stage.address, "/changes?connection=vendor-b").await), ["of long ago"]);
    assert_eq!(said(&get(stage.address, "/changes?before=9000000000000000").await), ["change 1"]);
}

#[tokio::test]
async fn a_change_is_shown_at_once_to_who_looks() {
    let (stage, _folder) = past([changed(1, key("vendor-a", None), State::Bad, POINTSMAN)]).await;
    show(&stage, vec![]);
    let mut live = Stream::of_page(stage.address, "/changes", &[]).await;
    assert_eq!(live.next().await.unwrap().0, "hello");
    let (kind, parts, _) = live.next().await.unwrap();
    assert_eq!((kind.as_str(), parts.as_object().unwrap().len()), ("parts", 1));
    assert!(parts["list"].as_str().unwrap().contains("change 1"), "{parts}");
    show(&stage, vec![ChangeView { words: "just now".into(), ..change("vendor-b", 2, stage.clock.now()) }]);
    let (_, parts, _) = live.next().await.unwrap();
    assert!(parts["list"].as_str().unwrap().contains("just now"), "{parts}");
}

#[tokio::test]
async fn without_a_database_the_page_shows_what_the_picture_has_and_says_so() {
    let stage = Stage::set().await;
    let now = stage.clock.now();
    show(&stage, (0..100).rev().map(|n| change("vendor-a", n, now)).collect());
    let page = get(stage.address, "/changes").await;
    assert_eq!(said(&page).len(), 100);
    assert!(page.body.contains("there is no database") && page.body.contains("only what pointsman remembers"));
    let older = get(stage.address, "/changes?before=1").await;
    assert!(said(&older).is_empty() && older.body.contains("there is no database"), "{older:?}");
}

#[tokio::test]
async fn the_page_is_in_both_languages_and_takes_names_for_text() {
    let (stage, _folder) = past([]).await;
    let hostile = "</span><script>alert(1)</script>\"'&";
    let now = stage.clock.now();
    let sentence = "lowered: ASR 35.0 % under 40 % over 20 calls; 9 x 503, 4 x 486";
    let changes = vec![
        ChangeView { words: hostile.into(), who: Arc::from(hostile), ..change("vendor-a", 2, now) },
        ChangeView { words: sentence.into(), ..change("vendor-b", 1, now) },
    ];
    show(&stage, changes);
    let english = get(stage.address, "/changes").await;
    assert!(english.body.contains(sentence) && english.body.contains("<h1>Changes</h1>"), "{english:?}");
    assert!(english.body.contains(r#"<span class="chip last">Lowered</span>"#), "{english:?}");
    let cookie = [("cookie", "pm_language=ru")];
    let russian = send(stage.address, "GET", "/changes", &cookie, "").await;
    assert!(russian.body.contains("<h1>Изменения</h1>") && russian.body.contains("переведено в конец"), "{russian:?}");
    for page in [english, russian] {
        assert!(!page.body.contains("<script>") && page.body.contains("&lt;script&gt;alert(1)"), "{page:?}");
    }
    let asked = get(stage.address, "/changes?who=%22%3E%3Cscript%3E&connection=%22%3E%3Cscript%3E").await;
    assert!(!asked.body.contains("<script>") && asked.body.contains("&quot;&gt;&lt;script&gt;"), "{asked:?}");
    show(&stage, vec![]);
    assert!(get(stage.address, "/changes").await.body.contains("Nothing has changed yet."));
}
