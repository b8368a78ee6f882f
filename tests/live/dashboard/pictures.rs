//! Pictures of every page, for the docs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pointsman::xds::kind::Kind;

use super::{edges, login, open, row};
use crate::lab::browser::{Browser, Page, Screen, Theme, width_of};
use crate::lab::demo::Demo;
use crate::lab::scene::Scene;

/// What each is called, where it is, and whether it is taken in Russian too. First those that show the trouble.
const PAGES: [(&str, &str, bool); 7] = [
    ("overview", "/", true),
    ("connection", "/connections/vendor-north?span=1h", true),
    ("connections", "/connections", false),
    ("maps", "/maps", false),
    ("map", "/maps/local?number=15550100&ask=call", false),
    ("node", "/nodes/asterisk-1?read=intl&span=1h", false),
    ("changes", "/changes", false),
];

/// Longest picture, in pixels of the page: what goes on below has been shown enough.
const TALLEST: f64 = 2_600.0;
/// The same on a phone, where everything is below everything else.
const TALLEST_ON_PHONE: f64 = 1_800.0;

/// How long the second round of the plot may be in coming.
const SECOND_ROUND: Duration = Duration::from_secs(240);

/// The folder that `POINTSMAN_SCREENSHOTS` names; where it names none, one that goes away.
fn folder(browser: &Browser) -> (bool, PathBuf) {
    let asked = std::env::var_os("POINTSMAN_SCREENSHOTS").map(PathBuf::from);
    (asked.is_some(), asked.unwrap_or_else(|| browser.folder().to_owned()))
}

/// Takes the page in light, in dark and on a phone.
async fn take(page: &Page, folder: &Path, name: &str) {
    let looks = [
        ("", Screen::Desktop, Theme::Light),
        ("-dark", Screen::Desktop, Theme::Dark),
        ("-phone", Screen::Phone, Theme::Light),
    ];
    for (suffix, screen, theme) in looks {
        page.screen(screen).await;
        page.theme(theme).await;
        take_as_it_is(page, &folder.join(format!("{name}{suffix}.png")), screen).await;
    }
    page.screen(Screen::Desktop).await;
}

async fn take_as_it_is(page: &Page, path: &Path, screen: Screen) {
    // At the beginning of the page, and without a ring around what has the focus.
    page.eval("(scrollTo(0, 0), document.activeElement?.blur())").await;
    let (width, tallest, least) = match screen {
        Screen::Desktop => (1280, TALLEST, 15_000),
        Screen::Phone => (720, TALLEST_ON_PHONE, 20_000),
    };
    page.screenshot(path, tallest).await;
    assert_eq!(width_of(path), width, "{}", path.display());
    let bytes = std::fs::metadata(path).unwrap().len();
    assert!(bytes > least, "{} has {bytes} bytes: is there anything on it?", path.display());
}

/// Where they are asked for, they are taken when there is a past to show: in the second round of the plot, when two vendors
/// are in trouble. Elsewhere the plot is so slow that its restart of the program does not come between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_pictures_of_every_page() {
    let browser = Browser::start();
    let (asked, folder) = folder(&browser);
    let mut demo = Demo::start(&["--rate", if asked { "8" } else { "2" }]);
    let (page, russian) = (browser.page().await, browser.page().await);
    russian.language("ru-RU,ru").await;
    open(&page, &demo.url).await;
    if asked {
        demo.tells("vendor-east becomes slow", 2, SECOND_ROUND);
        page.wait_for(&row("vendor-east", "blocked")).await;
    }
    for (name, path, in_russian) in PAGES {
        let url = format!("{}{path}", demo.url);
        open(&page, &url).await;
        take(&page, &folder, name).await;
        if in_russian {
            open(&russian, &url).await;
            take_as_it_is(&russian, &folder.join(format!("{name}-ru.png")), Screen::Desktop).await;
        }
    }

    let scene = Scene::set(login::CONFIG).await;
    page.open(&scene.url("/login")).await;
    take(&page, &folder, "login").await;
    assert!(scene.running.stop().await);

    let scene = Scene::set(edges::CONFIG).await;
    let server = scene.running.xds().unwrap().view().address.unwrap();
    let mut there = Vec::new();
    for (node, program, refuses) in [
        ("envoy-berlin-1", "envoy", None),
        ("envoy-berlin-2", "envoy", Some(Kind::Listener)),
        ("envoy-paris-1", "envoy", None),
        ("dispatcher", "gRPC Python", None),
    ] {
        there.push(edges::subscribe(&server, node, program, refuses).await);
    }
    open(&page, &scene.url("/edges")).await;
    page.wait_for("#told tbody tr").await;
    page.wait_for("#clients tbody tr[data-state=bad]").await;
    take(&page, &folder, "edges").await;
    drop(there);
    assert!(scene.running.stop().await);
}
