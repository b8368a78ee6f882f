//! The dashboard over the demo, in a browser.

use fantoccini::key::Key;
use serde_json::json;

use crate::lab::SOON;
use crate::lab::browser::{Browser, Page, Screen, Theme};
use crate::lab::demo::Demo;

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

/// In both languages, in light and in dark, on a screen and on a phone.
#[tokio::test]
async fn dashboard_nothing_keeps_anybody_from_using_a_page() {
    // A slow plot: the program stays up until everything is looked at.
    let demo = Demo::start(&["--rate", "5"]);
    let browser = Browser::start();
    for (language, accepted) in [("en", "en-GB,en"), ("ru", "ru-RU,ru")] {
        let page = browser.page().await;
        page.language(accepted).await;
        for path in
            ["/", "/connections", "/connections?q=south&state=good", "/connections/vendor-north", "/nothing-here"]
        {
            open(&page, &format!("{}{path}", demo.url)).await;
            assert_eq!(page.eval("document.documentElement.lang").await, language, "{path}");
            for screen in [Screen::Desktop, Screen::Phone] {
                page.screen(screen).await;
                assert_eq!(page.overflow().await, 0.0, "{path} in {language} is wider than the {screen:?}");
                for theme in [Theme::Light, Theme::Dark] {
                    page.theme(theme).await;
                    assert_eq!(page.axe().await, [""; 0], "{path} in {language}, {screen:?}, {theme:?}");
                }
            }
            let mut console = page.console().await;
            // The page of what is not there has that status.
            console.retain(|told| !(path == "/nothing-here" && told.contains("404")));
            assert_eq!(console, [""; 0], "{path} in {language}");
        }
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
    demo.tells("pointsman goes on where it was", SOON);
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
