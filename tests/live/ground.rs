//! The ground that the tests of the dashboard stand on: what a browser finds in a page that is known.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;

use fantoccini::key::Key;

use crate::lab::browser::{Browser, Page, Screen, Theme, width_of};

/// As strict as the program's own.
const POLICY: &str =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'";

const SCRIPT: &str = "
const shown = document.getElementById('shown');
let presses = 0;
document.querySelector('button').addEventListener('click', () => { presses += 1; shown.textContent = String(presses); });
setInterval(() => { shown.dataset.beat = String(Date.now()); }, 10);
";

const STYLE: &str = "
:root { color-scheme: light dark; }
body { margin: 0; font-family: sans-serif; }
";

fn page(body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Ground</title>\
         <meta name=viewport content=\"width=device-width\"><link rel=icon href=\"data:,\">\
         <link rel=stylesheet href=/style.css></head><body><main><h1>Ground, почва</h1>{body}\
         <p>Pressed: <output id=shown>0</output></p><button>Press</button></main>\
         <script src=/script.js></script></body></html>"
    )
}

/// Serves one page, its script and its style; it ends with the test's process.
fn serve(body: &str, script: &str) -> String {
    let (page, script) = (page(body), format!("{SCRIPT}{script}"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request: Vec<String> =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let path = request.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
            let (status, kind, text) = match path {
                "/" => ("200 OK", "text/html", page.as_str()),
                "/script.js" => ("200 OK", "text/javascript", script.as_str()),
                "/style.css" => ("200 OK", "text/css", STYLE),
                _ => ("404 Not Found", "text/plain", "nothing"),
            };
            // A browser that has hung up is no business of ours.
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: {kind}; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\
                 content-security-policy: {POLICY}\r\n\r\n{text}",
                text.len()
            );
        }
    });
    url
}

async fn opened(browser: &Browser, body: &str, script: &str) -> Page {
    let page = browser.page().await;
    page.open(&serve(body, script)).await;
    page
}

#[tokio::test]
async fn browser_a_page_without_fault_is_found_to_have_none() {
    let browser = Browser::start();
    let page = opened(&browser, "<p id=languages></p>", "languages.textContent = navigator.language;").await;
    for (screen, width) in [(Screen::Desktop, 1280), (Screen::Phone, 720)] {
        page.screen(screen).await;
        for theme in [Theme::Light, Theme::Dark] {
            page.theme(theme).await;
            let dark = page.eval("matchMedia('(prefers-color-scheme: dark)').matches").await;
            assert_eq!(dark, theme == Theme::Dark);
            assert_eq!(page.axe().await, [""; 0], "{screen:?} {theme:?}");
            assert_eq!(page.overflow().await, 0.0, "{screen:?}");
        }
        let picture = browser.folder().join("ground.png");
        page.screenshot(&picture, f64::MAX).await;
        assert_eq!(width_of(&picture), width);
    }
    page.language("ru-RU,ru").await;
    page.open(page.eval("location.href").await.as_str().unwrap()).await;
    assert_eq!(page.text_of("#languages").await, "ru-RU");
    assert_eq!(page.console().await, [""; 0]);
}

#[tokio::test]
async fn browser_what_is_wrong_with_a_page_is_found() {
    let browser = Browser::start();
    let body = "<img src=/none.png><p style='color: red'>styled</p><script>alert(1)</script>\
                <div id=wide>wide</div><p id=pale>pale</p>";
    let script = "
        wide.style.width = '500px'; pale.style.color = '#aaa'; pale.style.background = '#fff';
        console.error('an error of ours'); throw new Error('thrown');";
    let page = opened(&browser, body, script).await;
    page.wait_for("#pale").await;
    let console = page.console().await;
    let told = console.join("\n");
    for what in ["an error of ours", "Error: thrown", "404", "inline style", "inline script"] {
        assert!(told.contains(what), "no {what:?} in\n{told}");
    }
    assert_eq!(page.console().await, [""; 0], "each is told once");
    let found = page.axe().await.join("\n");
    for what in ["image-alt (critical, 1 x): img", "color-contrast (serious, 1 x): #pale"] {
        assert!(found.contains(what), "no {what:?} in\n{found}");
    }
    page.screen(Screen::Phone).await;
    assert_eq!(page.overflow().await, 140.0);
}

#[tokio::test]
async fn browser_what_a_page_gathers_is_weighed() {
    let browser = Browser::start();
    // A page that is at work and gathers nothing, and one that keeps what nobody sees.
    let steady = opened(&browser, "", "").await;
    let gathering = opened(
        &browser,
        "",
        "const kept = []; setInterval(() => {
            for (let i = 0; i < 20; i += 1) kept.push(document.createElement('p'));
            document.body.dataset.kept = String(kept.length);
        }, 10);",
    )
    .await;
    let (light, heavy) = (steady.weight().await, gathering.weight().await);
    gathering.eval("window.before = Number(document.body.dataset.kept)").await;
    gathering.until("2,000 more elements", "document.body.dataset.kept > before + 2000").await;
    let (later_light, later_heavy) = (steady.weight().await, gathering.weight().await);
    assert!(later_heavy.nodes > heavy.nodes + 2_000.0, "{heavy:?} {later_heavy:?}");
    assert!(later_heavy.heap_bytes > heavy.heap_bytes + 20_000.0, "{heavy:?} {later_heavy:?}");
    assert!(later_light.nodes <= light.nodes + 10.0, "{light:?} {later_light:?}");
    assert!(later_light.heap_bytes < light.heap_bytes + 100_000.0, "{light:?} {later_light:?}");
}

#[tokio::test]
async fn browser_keys_clicks_and_a_network_that_fails() {
    let browser = Browser::start();
    let page = opened(&browser, "", "").await;
    page.press(Key::Tab).await;
    page.press(Key::Enter).await;
    page.click("button").await;
    assert_eq!(page.text_of("#shown").await, "2");
    let loading = page.loading().await;
    assert_eq!(loading.files, 3, "{loading:?}");
    let bytes = (STYLE.len() + SCRIPT.len() + self::page("").len()) as u64;
    assert!((bytes..bytes + 2_000).contains(&loading.bytes), "{loading:?} of {bytes}");
    assert!(loading.millis > 0.0, "{loading:?}");
    let reach = "(fetch('/').then(() => { window.reached = 'yes' }, () => { window.reached = 'no' }), true)";
    page.offline(true).await;
    page.eval(reach).await;
    page.until("no answer", "window.reached === 'no'").await;
    page.offline(false).await;
    page.eval(reach).await;
    page.until("an answer", "window.reached === 'yes'").await;
}

#[tokio::test]
async fn browser_nothing_of_it_outlives_it() {
    let browser = Browser::start();
    let _page = opened(&browser, "", "").await;
    let folder = browser.folder().display().to_string();
    let processes = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).contains(&folder)).count()
    };
    assert!(processes() > 2, "ChromeDriver, and a browser of several processes");
    drop(browser);
    assert_eq!(processes(), 0);
    assert!(!Path::new(&folder).exists(), "{folder} is left behind");
}
