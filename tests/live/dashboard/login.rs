//! Logging in and out, with the keyboard alone.

use fantoccini::key::Key;
use pointsman::sim::Behaviour;
use pointsman::sim::traffic::Callers;

use crate::lab::browser::{Browser, Page, Screen, Theme};
use crate::lab::scene::Scene;

/// A token of each role, and somebody to look at.
pub(super) const CONFIG: &str = r#"
[[http.tokens]]
name = "wall"
role = "read"
token = "the-token-of-the-wall"
[[http.tokens]]
name = "noc"
role = "operate"
token = "the-token-of-the-noc"
[[connections]]
id = "vendor-a"
[[connections]]
id = "vendor-b"
[[route_maps]]
id = "intl"
prefixes = ["00"]
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
"#;

/// Most stops of the Tab key on a page.
const STOPS: usize = 40;

/// Types where the focus is.
async fn write(page: &Page, text: &str) {
    for letter in text.chars() {
        page.press(letter).await;
    }
    page.press(Key::Enter).await;
}

/// Where the browser is.
async fn here(page: &Page) -> String {
    page.eval("location.pathname + location.search").await.as_str().unwrap().to_owned()
}

/// Goes to a page with a token, by way of the login.
async fn log_in(page: &Page, scene: &Scene, wanted: &str, token: &str) {
    page.open(&scene.url(wanted)).await;
    page.wait_for("input[name=token]:focus").await;
    write(page, token).await;
    page.until(wanted, &format!("location.pathname + location.search === '{wanted}'")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_a_token_opens_the_page_that_was_wanted_until_the_log_out() {
    let scene = Scene::set(CONFIG).await;
    let browser = Browser::start();
    let page = browser.page().await;
    page.open(&scene.url("/")).await;
    page.wait_for("input[name=token]").await;
    assert_eq!(page.eval("location.pathname").await, "/login");

    page.open(&scene.url("/connections?q=vendor")).await;
    page.wait_for("input[name=token]:focus").await;
    write(&page, "the-token-of-nobody").await;
    page.wait_for("[role=alert]").await;
    assert_eq!(page.text_of("[role=alert]").await, "There is no such token.");
    page.wait_for("input[name=token]:focus").await;
    assert_eq!(page.eval("document.activeElement.value").await, "", "the wrong token is not said again");
    // The answer to a wrong token has the status of one.
    let mut console = page.console().await;
    console.retain(|told| !told.contains("401"));
    assert_eq!(console, [""; 0]);
    write(&page, "the-token-of-the-noc").await;
    page.wait_for("#c-vendor-a").await;
    assert_eq!(here(&page).await, "/connections?q=vendor");

    // The page has come with the time zone by now, and follows what happens with the cookie that scripts cannot read.
    page.until("the time zone", "document.body.dataset.zone && document.readyState === 'complete'").await;
    let cookies = page.eval("document.cookie").await;
    let cookies = cookies.as_str().unwrap();
    assert!(cookies.contains("pm_zone=") && !cookies.contains("pm_session"), "{cookies}");
    assert_eq!(page.session().await.as_deref(), Some("HttpOnly, SameSite=Strict, Path=/"));
    page.eval("window.marker = 'the same page'").await;
    let calls = "document.querySelector('#c-vendor-a [data-label^=Calls]').innerText";
    page.eval(&format!("window.before = {calls}")).await;
    scene.nodes.iter().for_each(|node| node.set_vendor("vendor-a", Behaviour::good()));
    scene.call(&Callers { calls_per_minute: 300.0, ..Callers::of_map("intl", 1) });
    page.until("calls in the window", &format!("{calls} !== before")).await;
    assert_eq!(page.eval("window.marker").await, "the same page");

    for stop in 0.. {
        assert!(stop < STOPS, "no way to the log out");
        page.press(Key::Tab).await;
        if page.eval("document.activeElement.matches('form[action=\"/logout\"] button')").await == true {
            break;
        }
    }
    page.press(Key::Enter).await;
    page.until("the login", "location.pathname === '/login'").await;
    assert_eq!(page.session().await, None);
    assert_eq!(page.eval("fetch('/api/nodes').then(answer => answer.status)").await, 401);
    page.open(&scene.url("/connections/vendor-a")).await;
    page.wait_for("input[name=token]").await;
    assert_eq!(here(&page).await, "/login?next=%2Fconnections%2Fvendor%2Da");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_who_may_only_read_sees_no_forms() {
    let scene = Scene::set(CONFIG).await;
    let browser = Browser::start();
    let (reader, operator) = (browser.page().await, browser.page().await);
    log_in(&reader, &scene, "/connections/vendor-a", "the-token-of-the-wall").await;
    log_in(&operator, &scene, "/connections/vendor-a", "the-token-of-the-noc").await;
    // Besides the one to log out.
    let forms = "document.querySelectorAll('form[method=post]:not([action=\"/logout\"])').length";
    for path in ["/connections/vendor-a", "/", "/connections"] {
        reader.open(&scene.url(path)).await;
        reader.wait_for("form[action='/logout']").await;
        assert_eq!(reader.eval(forms).await, 0, "{path}");
    }
    operator.wait_for("select[name=pin]").await;
    assert!(operator.eval(forms).await.as_u64() > Some(0));
    // A form that is sent all the same is refused.
    let pin = "fetch('/connections/vendor-a/pin', {method: 'POST', body: new URLSearchParams({pin: 'pin_block',
               for_sec: '0', why: 'no right to'})}).then(answer => answer.status)";
    assert_eq!(reader.eval(pin).await, 403);
    assert_eq!(operator.eval(pin).await, 200, "the page that follows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_nothing_keeps_anybody_from_logging_in() {
    let scene = Scene::set(CONFIG).await;
    let browser = Browser::start();
    let page = browser.page().await;
    for (language, accepted) in [("en", "en-GB,en"), ("ru", "ru-RU,ru")] {
        page.language(accepted).await;
        page.open(&scene.url("/login")).await;
        for wrong in [false, true] {
            if wrong {
                write(&page, "the-token-of-nobody").await;
                page.wait_for("[role=alert]").await;
            }
            assert_eq!(page.eval("document.documentElement.lang").await, language);
            for screen in [Screen::Desktop, Screen::Phone] {
                page.screen(screen).await;
                assert_eq!(page.overflow().await, 0.0, "{language}, {screen:?}");
                for theme in [Theme::Light, Theme::Dark] {
                    page.theme(theme).await;
                    assert_eq!(page.axe().await, [""; 0], "{language}, {screen:?}, {theme:?}");
                }
            }
        }
    }
}
