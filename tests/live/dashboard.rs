//! The dashboard over the demo, in a browser.

mod crowd;
pub(crate) mod edges;
mod login;
mod pictures;

use fantoccini::key::Key;
use serde_json::json;

use crate::lab::browser::{Browser, Page, Screen, Theme};
use crate::lab::demo::Demo;
use crate::lab::{SOON, eventually};

/// Opens a page of the dashboard, and waits until it follows what happens.
async fn open(page: &Page, url: &str) {
    page.open(url).await;
    // The first page that a browser opens tells the server its time zone, and is loaded again for it.
    page.until("the time zone", "document.body.dataset.zone && document.readyState === 'complete'").await;
}

/// The selector of a vendor's row in this state.
fn row(vendor: &str, state: &str) -> String {
    format!("#c-{vendor}[data-state={state}]")
}

#[tokio::test]
async fn dashboard_nothing_keeps_anybody_from_using_a_page() {
    look_at_every_page("en", "en-GB,en").await;
}

#[tokio::test]
async fn dashboard_nothing_keeps_anybody_from_using_a_page_in_russian() {
    look_at_every_page("ru", "ru-RU,ru").await;
}

/// On a screen and on a phone, in light and in dark.
async fn look_at_every_page(language: &str, accepted: &str) {
    // So slow that the plot's restart of the program comes after the end of the test.
    let demo = Demo::start(&["--rate", "2"]);
    let browser = Browser::start();
    let page = browser.page().await;
    page.language(accepted).await;
    let paths = [
        "/",
        "/connections",
        "/connections?q=south&state=good",
        "/connections/vendor-north",
        "/maps",
        "/maps/local",
        "/maps/intl?number=001234&ask=dialplan&assume=vendor-north%3Dbad",
        "/maps/intl?number=nobody&ask=call",
        "/nodes/freeswitch-1?read=local",
        "/nodes/asterisk-1?read=intl&span=24h",
        "/edges",
        "/changes",
        "/nothing-here",
    ];
    for path in paths {
        open(&page, &format!("{}{path}", demo.url)).await;
        assert_eq!(page.eval("document.documentElement.lang").await, language, "{path}");
        for screen in [Screen::Desktop, Screen::Phone] {
            page.screen(screen).await;
            assert_eq!(page.overflow().await, 0.0, "{path} is wider than the {screen:?}");
            for theme in [Theme::Light, Theme::Dark] {
                page.theme(theme).await;
                assert_eq!(page.axe().await, [""; 0], "{path}, {screen:?}, {theme:?}");
            }
        }
        let mut console = page.console().await;
        // The page of what is not there has that status.
        console.retain(|told| !(path == "/nothing-here" && told.contains("404")));
        assert_eq!(console, [""; 0], "{path}");
    }
}

/// The vendor's row goes to the top of the table and back, and who reads it with the keyboard stays where they are.
#[tokio::test]
async fn dashboard_a_vendor_goes_bad_and_recovers_without_a_reload() {
    let demo = Demo::start(&[]);
    let browser = Browser::start();
    let page = browser.page().await;
    open(&page, &demo.url).await;
    page.wait_for(&row("vendor-north", "good")).await;
    page.eval("window.marker = 'the same page'").await;
    page.eval("document.querySelector('#c-vendor-north a').focus()").await;

    page.wait_for(&row("vendor-north", "last")).await;
    assert_eq!(page.eval("document.querySelector('#connections tbody tr').id").await, "c-vendor-north");
    page.until("the change among the last ones", "document.querySelector('#changes li.bad')").await;
    let said = page.text_of("#changes li.bad").await;
    assert!(said.contains("vendor-north") && said.contains("ASR"), "{said}");
    page.wait_for(&row("vendor-north", "retry")).await;
    page.wait_for(&row("vendor-north", "good")).await;

    assert_eq!(page.eval("window.marker").await, "the same page");
    let focus = page.eval("document.activeElement.closest('tr')?.id").await;
    assert_eq!(focus, "c-vendor-north", "the focus stays on the link that had it");
    assert_eq!(page.console().await, [""; 0]);
    page.press(Key::Enter).await;
    page.until("the vendor's own page", "location.pathname === '/connections/vendor-north'").await;
}

/// The plot of the demo restarts the program.
#[tokio::test]
async fn dashboard_a_page_survives_the_restart_of_the_program() {
    let mut demo = Demo::start(&["--rate", "60"]);
    let browser = Browser::start();
    let page = browser.page().await;
    open(&page, &demo.url).await;
    page.eval(
        "(window.said = [], new MutationObserver(() => {
            if (!contact.hidden) said.push(contact.textContent);
        }).observe(contact, {attributes: true, childList: true}))",
    )
    .await;
    demo.tells("pointsman goes on where it was", 1, SOON);
    page.until("a word about the lost contact", "said.join().includes('No contact')").await;
    page.until("contact again", "contact.hidden && !document.body.classList.contains('stale')").await;

    // It follows again: what comes now is news.
    let calls = page.text_of("#now dd").await;
    page.until("other figures", &format!("document.querySelector('#now dd').innerText !== {}", json!(calls))).await;
    page.wait_for(&row("vendor-south", "good")).await;
    assert!(page.eval("said.length").await.as_u64().is_some_and(|times| times > 0), "the page is still the same one");
}

/// The program is killed, and started again in the same place. What is shown meanwhile can be read as well.
#[tokio::test]
async fn dashboard_a_page_without_contact_says_so() {
    let demo = Demo::start(&[]);
    let (url, address) = (demo.url.clone(), demo.url.trim_start_matches("http://").to_owned());
    let browser = Browser::start();
    let page = browser.page().await;
    open(&page, &url).await;
    page.wait_for(&row("vendor-north", "good")).await;
    page.eval("window.marker = 'the same page'").await;
    drop(demo);
    page.until("a word about the lost contact", "!contact.hidden && document.body.classList.contains('stale')").await;
    for theme in [Theme::Light, Theme::Dark] {
        page.theme(theme).await;
        assert_eq!(page.axe().await, [""; 0], "{theme:?}");
    }
    let _demo = Demo::start(&["--listen", &address]);
    page.until("contact again", "contact.hidden && !document.body.classList.contains('stale')").await;
    page.wait_for(&row("vendor-north", "last")).await;
    assert_eq!(page.eval("window.marker").await, "the same page");
}

/// What each PBX holds in the variable that lists whom calls of the map try.
fn held(demo: &Demo, number: &str) -> Vec<String> {
    let answer = demo.dialplan(number);
    let nodes = answer["nodes"].as_array().unwrap().iter();
    nodes
        .map(|node| {
            let variables = node["variables"].as_array().unwrap();
            let list = variables.iter().find(|variable| variable["name"] == "pm_route_intl").unwrap();
            list["held"].as_str().unwrap_or_default().to_owned()
        })
        .collect()
}

#[tokio::test]
async fn dashboard_an_override_from_the_page_reaches_the_variables() {
    // Slow enough that nothing else changes the order meanwhile.
    let demo = Demo::start(&["--rate", "1"]);
    let browser = Browser::start();
    let (operator, reader) = (browser.page().await, browser.page().await);
    open(&reader, &demo.url).await;
    reader.wait_for(&row("vendor-south", "good")).await;
    reader.eval("window.marker = 'the same page'").await;
    open(&operator, &format!("{}/connections/vendor-south", demo.url)).await;
    operator.type_into("select[name=pin]", "not at all").await;
    operator.type_into("input[name=why]", "their trunk is down").await;
    operator.press(Key::Enter).await;
    operator.wait_for(".banner.good[role=status]").await;
    assert_eq!(operator.eval("location.pathname").await, "/connections/vendor-south");
    eventually("both PBXs to leave it out", SOON, || {
        (held(&demo, "001234") == ["vendor-north,vendor-west", "trunk-north,trunk-west"]).then_some(())
    });

    reader.wait_for(&row("vendor-south", "blocked")).await;
    operator.type_into("form[action$='/unpin'] input[name=why]", "repaired").await;
    operator.press(Key::Enter).await;
    reader.wait_for(&row("vendor-south", "good")).await;
    assert_eq!(reader.eval("window.marker").await, "the same page");
    let changes = reader.text_of("#changes").await;
    assert!(changes.contains("vendor-south"), "{changes}");
    eventually("both PBXs to have it back", SOON, || {
        let usual = ["vendor-north,vendor-south,vendor-west", "trunk-north,trunk-south,trunk-west"];
        (held(&demo, "001234") == usual).then_some(())
    });
    assert_eq!([operator.console().await, reader.console().await], [[""; 0], [""; 0]]);
}

/// All that a browser loads which has none of it.
#[tokio::test]
async fn dashboard_the_first_page_is_light() {
    let demo = Demo::start(&[]);
    let browser = Browser::start();
    let page = browser.page().await;
    // The server knows the time zone already: it is the first page that is weighed, and not the same one loaded again.
    page.open(&format!("{}/healthz", demo.url)).await;
    page.eval("document.cookie = 'pm_zone=' + Intl.DateTimeFormat().resolvedOptions().timeZone + '; Path=/'").await;
    page.open(&demo.url).await;
    let loading = page.loading().await;
    println!("the first page: {loading:?}");
    assert!(loading.files >= 3 && (20_000..200_000).contains(&loading.bytes), "{loading:?}");
}

/// A page that has been open for long holds no more than one that has not.
#[tokio::test]
async fn dashboard_a_page_that_stays_open_does_not_grow() {
    let demo = Demo::start(&["--rate", "60"]);
    let browser = Browser::start();
    let page = browser.page().await;
    open(&page, &demo.url).await;
    // The list of the last changes has all the rows that it gets.
    page.until("a full list", "document.querySelectorAll('#changes li').length === 8").await;
    let before = page.weight().await;
    // The page counts by itself: every look from outside would add to its weight.
    let ten_pictures = "new Promise(done => {
        let painted = 0;
        const count = (_, observer) => { if (++painted === 10) { observer.disconnect(); done(true); } };
        new MutationObserver(count).observe(beat, {attributes: true});
    })";
    for _ in 0..2 {
        page.eval(ten_pictures).await;
    }
    let after = page.weight().await;
    println!("{before:?}, 20 pictures later {after:?}");
    assert!(after.nodes < before.nodes + 100.0, "{before:?} {after:?}");
    assert!(after.heap_bytes < before.heap_bytes + 50_000.0, "{before:?} {after:?}");
}
