//! Debian's Chromium, through its ChromeDriver: pages as people see them.
//!
//! ChromeDriver and all its browsers live in a PID namespace of their own, which ends as a whole with the process that
//! made it: a browser is a dozen processes, and none of them may outlive a test that panics or is killed.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::http::Method;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::Url;

use super::folder::Folder;
use super::process::Process;
use super::{SOON, cached, eventually};

/// It draws without a screen and asks nobody beyond this machine for anything; root may not use its sandbox.
const FLAGS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
];

/// Pauses between two looks at a page.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// ChromeDriver, running.
#[derive(Debug)]
pub(crate) struct Browser {
    folder: Folder,
    process: Process,
    url: String,
    pages: Cell<usize>,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let folder = Folder::new("browser");
        let home = folder.path().display();
        // Sockets, shared memory and settings go into our folder too.
        let args = format!(
            "--pid --fork --kill-child --mount-proc -- env TMPDIR={home} HOME={home} chromedriver --port=0 \
             --allowed-ips=127.0.0.1"
        );
        let args: Vec<String> = args.split_ascii_whitespace().map(str::to_owned).collect();
        let mut process = Process::start("unshare", &args, &folder.join("out"));
        let port = eventually("ChromeDriver to say its port", SOON, || {
            let told = folder.read("out");
            assert!(process.runs(), "ChromeDriver ended (scripts/live-setup?): {told}");
            let (port, _) = told.split_once("started successfully on port ")?.1.split_once('.')?;
            Some(port.to_owned())
        });
        Self { folder, process, url: format!("http://127.0.0.1:{port}"), pages: Cell::new(0) }
    }

    /// A browser of its own, with a profile of its own: no cookies, nothing in its cache.
    pub(crate) async fn page(&self) -> Page {
        let profile = self.folder.join(format!("profile-{}", self.pages.replace(self.pages.get() + 1)));
        let args: Vec<String> =
            FLAGS.into_iter().map(str::to_owned).chain([format!("--user-data-dir={}", profile.display())]).collect();
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": SOON.as_millis() as u64, "pageLoad": SOON.as_millis() as u64},
        });
        let Value::Object(wanted) = wanted else { unreachable!("an object") };
        let client = ClientBuilder::new(HttpConnector::new()).capabilities(wanted).connect(&self.url).await;
        let client = client.unwrap_or_else(|error| panic!("no browser: {error}\n{}", self.folder.read("out")));
        let page = Page { client };
        page.screen(Screen::Desktop).await;
        page
    }

    /// The folder of all its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // They end before the folder goes: a browser that still runs writes into it. The process that waits for the
        // namespace's first one learns of its end after everything in the namespace has ended.
        self.process.kill_children();
        self.process.wait(SOON);
    }
}

/// What a page is looked at on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// 1280 x 800.
    Desktop,
    /// 360 x 800 at two dots a pixel, with a touch screen.
    Phone,
}

/// What the system of whoever looks prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    Light,
    Dark,
}

/// What a page keeps in memory once everything is collected that can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weight {
    /// Bytes that its script holds.
    pub(crate) heap_bytes: f64,
    /// Nodes, those in the document and those that the script still holds.
    pub(crate) nodes: f64,
}

/// What it took to load a page, with all that it needs.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub(crate) struct Loading {
    /// Bytes over the wire, headers included; what comes out of the cache counts nothing.
    pub(crate) bytes: u64,
    /// Files, the page itself included.
    pub(crate) files: u64,
    /// Milliseconds from the click to the end of loading.
    pub(crate) millis: f64,
}

/// A command that ChromeDriver alone knows.
#[derive(Debug)]
struct Own {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Own {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// A page in a browser.
#[derive(Debug)]
pub(crate) struct Page {
    client: Client,
}

impl Page {
    /// Loads a page, all of it.
    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// Looks from this screen on.
    pub(crate) async fn screen(&self, screen: Screen) {
        let (width, scale, mobile) = match screen {
            Screen::Desktop => (1280, 1, false),
            Screen::Phone => (360, 2, true),
        };
        let metrics = json!({"width": width, "height": 800, "deviceScaleFactor": scale, "mobile": mobile});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        self.devtools("Emulation.setTouchEmulationEnabled", json!({"enabled": mobile})).await;
    }

    /// Prefers this from now on.
    pub(crate) async fn theme(&self, theme: Theme) {
        let value = if theme == Theme::Dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": value}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// Asks for pages in this language from now on, as `Accept-Language` has it.
    pub(crate) async fn language(&self, accepted: &str) {
        let agent = self.eval("navigator.userAgent").await;
        let params = json!({"userAgent": agent, "acceptLanguage": accepted});
        self.devtools("Emulation.setUserAgentOverride", params).await;
    }

    /// Without a network, or with one again.
    pub(crate) async fn offline(&self, offline: bool) {
        let conditions = json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        self.devtools("Network.enable", json!({})).await;
        self.devtools("Network.emulateNetworkConditions", conditions).await;
    }

    /// What the console has got since the last look: errors, and whatever the page's own security policy stopped.
    pub(crate) async fn console(&self) -> Vec<String> {
        #[derive(serde::Deserialize)]
        struct Message {
            level: String,
            message: String,
        }
        let messages = self.own("se/log", json!({"type": "browser"})).await;
        let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
        let bad = |one: &Message| one.level == "SEVERE" || one.message.contains("Content Security Policy");
        messages.into_iter().filter(bad).map(|one| format!("{}: {}", one.level, one.message)).collect()
    }

    /// What axe-core finds in the page as it stands that keeps somebody from using it: the serious and the critical, each
    /// with the first three elements that have it.
    pub(crate) async fn axe(&self) -> Vec<String> {
        let path = cached("axe-core/axe.min.js");
        let axe = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{} (scripts/live-setup?): {error}", path.display()));
        self.client.execute(&axe, Vec::new()).await.expect("axe-core starts");
        let script = "
            const done = arguments[0];
            const told = one => one.nodes.slice(0, 3).map(node =>
                `${one.id} (${one.impact}, ${one.nodes.length} x): ${node.target.join(' ')}: ${node.failureSummary}`);
            axe.run(document, {resultTypes: ['violations']}).then(
                found => done({Ok: found.violations.filter(one => /serious|critical/.test(one.impact)).flatMap(told)}),
                error => done({Err: String(error)}));";
        let found = self.client.execute_async(script, Vec::new()).await.expect("axe-core ends");
        let found: Result<Vec<String>, String> = serde_json::from_value(found).unwrap();
        found.expect("axe-core works")
    }

    /// A picture of the whole page, not only of what the screen shows, as PNG; of so many pixels of its height at most.
    pub(crate) async fn screenshot(&self, path: &Path, tallest: f64) {
        let size = self.devtools("Page.getLayoutMetrics", json!({})).await["cssContentSize"].clone();
        let height = size["height"].as_f64().unwrap().min(tallest);
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1});
        let wanted = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let taken = self.devtools("Page.captureScreenshot", wanted).await;
        let png = BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        std::fs::write(path, png).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// How the browser keeps the session that a log in began; `None` without one. Pages do not see it.
    pub(crate) async fn session(&self) -> Option<String> {
        let cookies = self.client.get_all_cookies().await.unwrap();
        let session = cookies.into_iter().find(|cookie| cookie.name() == "pm_session")?;
        let script = if session.http_only() == Some(true) { "HttpOnly" } else { "for scripts too" };
        let site = session.same_site().map(|site| site.to_string()).unwrap_or_default();
        Some(format!("{script}, SameSite={site}, Path={}", session.path().unwrap_or_default()))
    }

    /// Collects all that nobody holds, and says what is left. Every script from outside leaves some 60 bytes behind.
    pub(crate) async fn weight(&self) -> Weight {
        self.devtools("HeapProfiler.collectGarbage", json!({})).await;
        self.devtools("Performance.enable", json!({})).await;
        let metrics = self.devtools("Performance.getMetrics", json!({})).await;
        let metric = |name: &str| {
            let found = metrics["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == name);
            found.and_then(|metric| metric["value"].as_f64()).unwrap_or_else(|| panic!("no {name} in {metrics}"))
        };
        Weight { heap_bytes: metric("JSHeapUsedSize"), nodes: metric("Nodes") }
    }

    /// What loading this page took.
    pub(crate) async fn loading(&self) -> Loading {
        let script = "(page => page.loadEventEnd > 0 && {
            bytes: performance.getEntriesByType('resource').reduce((sum, one) => sum + one.transferSize, page.transferSize),
            files: performance.getEntriesByType('resource').length + 1,
            millis: page.loadEventEnd,
        })(performance.getEntriesByType('navigation')[0])";
        serde_json::from_value(self.until("the end of loading", script).await).unwrap()
    }

    /// How many pixels of the page lie beyond the screen's right edge.
    pub(crate) async fn overflow(&self) -> f64 {
        self.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth").await.as_f64().unwrap()
    }

    /// The value of a JavaScript expression.
    pub(crate) async fn eval(&self, expression: &str) -> Value {
        let value = self.client.execute(&format!("return ({expression});"), Vec::new()).await;
        value.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until an expression is true, as JavaScript understands it, and gives its value.
    pub(crate) async fn until(&self, what: &str, expression: &str) -> Value {
        let began = Instant::now();
        loop {
            let value = self.eval(&format!("(value => value ? [value] : [])({expression})")).await;
            if let Some(value) = value.as_array().and_then(|found| found.first()) {
                return value.clone();
            }
            if began.elapsed() > SOON {
                let shown = self.eval("document.body.innerText").await;
                panic!("waited {SOON:?} in vain for: {what}; the page shows:\n{}", shown.as_str().unwrap_or_default());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until something in the page fits the selector.
    pub(crate) async fn wait_for(&self, css: &str) {
        self.until(css, &format!("!!document.querySelector({})", json!(css))).await;
    }

    /// What the first that fits the selector shows.
    pub(crate) async fn text_of(&self, css: &str) -> String {
        let text = self.eval(&format!("document.querySelector({})?.innerText", json!(css))).await;
        text.as_str().unwrap_or_else(|| panic!("nothing fits {css}")).to_owned()
    }

    /// Clicks the first that fits the selector.
    pub(crate) async fn click(&self, css: &str) {
        let found = self.client.find(Locator::Css(css)).await;
        found.unwrap_or_else(|error| panic!("{css}: {error}")).click().await.unwrap();
    }

    /// Types into the first that fits the selector; in a list of choices, that chooses.
    pub(crate) async fn type_into(&self, css: &str, text: &str) {
        let found = self.client.find(Locator::Css(css)).await;
        found.unwrap_or_else(|error| panic!("{css}: {error}")).send_keys(text).await.unwrap();
    }

    /// Presses a key and releases it: a letter, or a `fantoccini::key::Key`.
    pub(crate) async fn press(&self, key: impl Into<char>) {
        let value = key.into();
        let keys = KeyActions::new("keyboard".to_owned()).then(KeyAction::Down { value }).then(KeyAction::Up { value });
        self.client.perform_actions(keys).await.unwrap();
    }

    /// A command of the DevTools protocol.
    async fn devtools(&self, command: &str, params: Value) -> Value {
        self.own("goog/cdp/execute", json!({"cmd": command, "params": params})).await
    }

    async fn own(&self, path: &'static str, body: Value) -> Value {
        let answer = self.client.issue_cmd(Own { path, body: body.clone() }).await;
        answer.unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }
}

/// How wide a picture is, out of the head of its PNG.
pub(crate) fn width_of(png: &Path) -> u32 {
    let bytes = std::fs::read(png).unwrap();
    assert!(bytes.starts_with(b"\x89PNG"));
    u32::from_be_bytes(bytes[16..20].try_into().unwrap())
}
