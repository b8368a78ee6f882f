//! Logging in with a browser: a token once, then a cookie.

use pointsman::api::Limits;
use pointsman::clock::Clock;
use pointsman::config::model::Role;
use tokio::time::timeout;

use crate::client::{Answer, Stream, get, send};
use crate::stage::{PATIENCE, Stage, play};

const TOKENS: [(&str, Role, &str); 2] = [("wall", Role::Read, "r-secret"), ("noc", Role::Operate, "o-secret")];

/// What browsers send with everything that they ask for to show it.
const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("content-type", "application/json");
const OWN: (&str, &str) = ("sec-fetch-site", "same-origin");

async fn set() -> Stage {
    Stage::with(&TOKENS, Limits::default()).await
}

async fn log_in(stage: &Stage, form: &str, headers: &[(&str, &str)]) -> Answer {
    send(stage.address, "POST", "/login", &[&[FORM], headers].concat(), form).await
}

/// The cookie of who logs in with this token, as the browser gives it back.
async fn cookie(stage: &Stage, token: &str) -> String {
    let answer = log_in(stage, &format!("token={token}"), &[OWN]).await;
    let cookie = answer.header("set-cookie").unwrap_or_else(|| panic!("{answer:?}"));
    cookie.split_once(';').unwrap().0.to_owned()
}

async fn ask(stage: &Stage, path: &str, cookie: &str) -> u16 {
    send(stage.address, "GET", path, &[("cookie", cookie)], "").await.status
}

#[tokio::test]
async fn a_browser_logs_in_and_comes_to_where_it_wanted() {
    let stage = set().await;
    let led = send(stage.address, "GET", "/api-docs?a=%20b&c", &[HTML], "").await;
    assert_eq!((led.status, led.body.as_str()), (303, ""));
    let login = led.header("location").unwrap();
    assert_eq!(login, "/login?next=%2Fapi%2Ddocs%3Fa%3D%2520b%26c");

    let page = send(stage.address, "GET", login, &[HTML, OWN], "").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.body.contains(r#"action="/login""#) && page.body.contains("b&amp;c"), "{page:?}");
    assert!(
        !page.body.contains("<nav") && !page.body.contains("/logout"),
        "nothing leads to where they may not: {page:?}"
    );
    let russian = [HTML, OWN, ("cookie", "pm_language=ru")];
    let russian = send(stage.address, "GET", login, &russian, "").await;
    assert!(russian.body.contains("<h1>Войти</h1>") && russian.body.contains("Токен"), "{russian:?}");

    let form = |token: &str| format!("token={token}&next=%2Fapi-docs%3Fa%3D%2520b%26c");
    let wrong = log_in(&stage, &form("o-secre"), &[OWN]).await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    assert_eq!(wrong.header("www-authenticate"), Some("Bearer"));
    let alert = r#"role="alert" id="trouble">There is no such token.<"#;
    assert!(wrong.body.contains(alert) && wrong.body.contains("b&amp;c"), "{wrong:?}");
    assert!(!wrong.body.contains("o-secre"), "{wrong:?}");

    let right = log_in(&stage, &form("o-secret%0A"), &[OWN]).await;
    assert_eq!((right.status, right.header("location")), (303, Some("/api-docs?a=%20b&c")));
    let cookie = right.header("set-cookie").unwrap();
    let (session, rest) = cookie.split_once("; ").unwrap();
    assert_eq!(rest, "Path=/; Max-Age=604800; HttpOnly; SameSite=Strict");
    assert!(session.starts_with("pm_session=v1.") && !session.contains("secret"), "{session}");

    assert_eq!(ask(&stage, "/api/nodes", session).await, 200);
    assert_eq!(ask(&stage, "/metrics", session).await, 200);
    assert_eq!(ask(&stage, "/api/route", session).await, 200);
    assert_eq!(send(stage.address, "GET", "/api-docs", &[HTML, ("cookie", session)], "").await.status, 404);
    let mut events = Stream::open_with(stage.address, session).await;
    assert_eq!(events.next().await.unwrap().0, "hello");
    let again = send(stage.address, "GET", "/login?next=%2Fmaps", &[HTML, ("cookie", session)], "").await;
    assert_eq!((again.status, again.header("location")), (303, Some("/maps")), "it is logged in already");
}

#[tokio::test]
async fn who_comes_by_a_link_in_a_mail_comes_in_with_the_session_that_the_browser_has() {
    let stage = set().await;
    let session = cookie(&stage, "r-secret").await;
    // The browser keeps the session to itself, as it is a page of others that sends it here.
    for elsewhere in [&[HTML, ("sec-fetch-site", "cross-site")][..], &[HTML, ("sec-fetch-site", "same-site")], &[HTML]]
    {
        let led = send(stage.address, "GET", "/changes?map=intl", elsewhere, "").await;
        let login = led.header("location").unwrap();
        let page = send(stage.address, "GET", login, elsewhere, "").await;
        let (_, refresh) = page.body.split_once(r#"<meta http-equiv="refresh" content="0; url="#).unwrap();
        let again = refresh.split('"').next().unwrap().replace("&#x2f;", "/").replace("&amp;", "&");
        assert_eq!((page.status, again.as_str()), (200, "/login?next=%2Fchanges%3Fmap%3Dintl&again=1"));
        assert!(page.body.contains("Go on to pointsman</a>"), "{page:?}");

        let ours = [HTML, OWN, ("cookie", session.as_str())];
        let inside = send(stage.address, "GET", &again, &ours, "").await;
        assert_eq!((inside.status, inside.header("location")), (303, Some("/changes?map=intl")));
        // Whoever has none is asked, whatever the browser says.
        for headers in [&ours[..2], elsewhere] {
            let form = send(stage.address, "GET", &again, headers, "").await;
            assert!(form.status == 200 && form.body.contains(r#"action="/login""#), "{form:?}");
            assert!(!form.body.contains("http-equiv=\"refresh\""), "{form:?}");
        }
    }
    let led = send(stage.address, "GET", "/login?next=%22%3E%3Cscript%3E%2F", &[HTML], "").await;
    assert!(led.body.contains("next=%2F&amp;again=1") && !led.body.contains("<script>"), "{led:?}");
}

#[tokio::test]
async fn a_form_that_may_not_be_sent_gets_a_page() {
    let stage = set().await;
    let session = cookie(&stage, "r-secret").await;
    for (status, headers) in [
        (401, &[HTML, FORM, OWN][..]),
        (403, &[HTML, FORM, OWN, ("cookie", session.as_str())]),
        (403, &[HTML, FORM, ("sec-fetch-site", "cross-site"), ("cookie", session.as_str())]),
    ] {
        let answer = send(stage.address, "POST", "/nodes/pbx-01/admin", headers, "admin=disabled").await;
        assert_eq!((answer.status, answer.header("content-type")), (status, Some("text/html; charset=utf-8")));
        assert_eq!(answer.header("www-authenticate"), (status == 401).then_some("Bearer"));
        assert!(answer.body.contains("<main"), "{answer:?}");
    }
    assert_eq!(stage.asked(), []);
}

#[tokio::test]
async fn what_is_no_page_is_refused_as_ever() {
    let stage = set().await;
    send(stage.address, "GET", "/api/nodes", &[HTML], "").await.problem(401, "/api/nodes");
    send(stage.address, "GET", "/metrics", &[HTML], "").await.problem(401, "/metrics");
    send(stage.address, "POST", "/nothing", &[], "").await.problem(401, "/nothing");
    send(stage.address, "POST", "/api/reload", &[HTML], "").await.problem(401, "/api/reload");
    send(stage.address, "GET", "/", &[("accept", "text/event-stream")], "").await.problem(401, "/");
    send(stage.address, "GET", "/", &[HTML, ("authorization", "Bearer x")], "").await.problem(401, "/");
    assert_eq!(send(stage.address, "GET", "/healthz", &[HTML], "").await.status, 200);
    send(stage.address, "GET", "/assets/nothing.js", &[], "").await.problem(404, "/assets/nothing.js");
}

#[tokio::test]
async fn nobody_is_led_elsewhere_by_the_login() {
    let stage = set().await;
    for next in ["%2F%2Fevil.example", "%2F%5Cevil.example", "https%3A%2F%2Fevil.example", "%2F%0D%0Ax%3A+y", "%FF", ""]
    {
        let answer = log_in(&stage, &format!("token=o-secret&next={next}"), &[]).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{next}");
        assert_eq!(answer.header("x"), None);
        let page = send(stage.address, "GET", &format!("/login?next={next}"), &[OWN], "").await;
        assert!(page.body.contains(r#"name="next" value="&#x2f;""#), "{next}: {page:?}");
    }
    let led = send(stage.address, "GET", "//evil.example/x", &[HTML], "").await;
    assert_eq!(led.header("location"), Some("/login?next=%2F"));
}

#[tokio::test]
async fn a_form_that_is_none_is_refused() {
    let stage = set().await;
    let long = format!("token={}", "x".repeat(4096));
    log_in(&stage, &long, &[]).await.problem(413, "/login");
    send(stage.address, "POST", "/login", &[JSON], r#"{"token": "o-secret"}"#).await.problem(415, "/login");
    assert_eq!(log_in(&stage, "next=%2F", &[]).await.status, 401);
    assert_eq!(log_in(&stage, "token=&token=", &[]).await.header("set-cookie"), None);
}

#[tokio::test]
async fn over_tls_the_cookie_stays_there() {
    let stage = set().await;
    let headers = [OWN, ("origin", "https://noc.example")];
    let answer = log_in(&stage, "token=o-secret", &headers).await;
    assert!(answer.header("set-cookie").unwrap().ends_with("; SameSite=Strict; Secure"), "{answer:?}");
}

#[tokio::test]
async fn pages_of_others_neither_use_a_session_nor_begin_or_end_one() {
    let stage = set().await;
    let session = cookie(&stage, "o-secret").await;
    let reset = "/api/connections/vendor-a/reset";
    for foreign in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example"), ("origin", "null")] {
        let headers = [("cookie", session.as_str()), JSON, foreign];
        send(stage.address, "POST", reset, &headers, "{}").await.problem(403, reset);
        send(stage.address, "GET", "/api/route", &headers, "").await.problem(403, "/api/route");
        send(stage.address, "POST", "/logout", &headers, "").await.problem(403, "/logout");
        log_in(&stage, "token=o-secret", &[foreign]).await.problem(403, "/login");
    }
    assert_eq!(stage.asked(), []);
    let own = format!("http://{}", stage.address);
    for own in [OWN, ("origin", own.as_str())] {
        let headers = [("cookie", session.as_str()), JSON, own];
        assert_eq!(send(stage.address, "POST", reset, &headers, "{}").await.status, 204);
    }
    assert_eq!(stage.asked().len(), 2);
}

#[tokio::test]
async fn a_session_may_what_its_token_may() {
    let stage = set().await;
    let session = cookie(&stage, "r-secret").await;
    let headers = [("cookie", session.as_str()), JSON, OWN];
    let reset = "/api/connections/vendor-a/reset";
    let refused = send(stage.address, "POST", reset, &headers, "{}").await.problem(403, reset);
    assert!(refused.contains("the token wall may only read"), "{refused}");
    assert_eq!(ask(&stage, "/api/nodes", &session).await, 200);
    let wrong = [headers[0], ("authorization", "Bearer x")];
    send(stage.address, "GET", "/api/nodes", &wrong, "").await.problem(401, "/api/nodes");
    assert_eq!(stage.asked(), []);
}

#[tokio::test]
async fn a_session_survives_a_restart_and_ends_with_its_token() {
    let session = cookie(&set().await, "o-secret").await;
    assert_eq!(ask(&set().await, "/api/nodes", &session).await, 200);
    for tokens in [
        &[("wall", Role::Read, "r-secret")][..],
        &[("noc", Role::Operate, "another")],
        &[("duty", Role::Operate, "o-secret")],
    ] {
        let other = Stage::with(tokens, Limits::default()).await;
        assert_eq!(ask(&other, "/api/nodes", &session).await, 401, "{tokens:?}");
    }
}

#[tokio::test]
async fn a_session_ends_by_itself() {
    // Its week takes 60 ms.
    let mut played = play(Clock::system());
    played.sources.clock = Clock::running_at(10_000_000);
    let stage = Stage::playing(played, &TOKENS, Limits::default()).await;
    let session = cookie(&stage, "o-secret").await;
    let over = async { while ask(&stage, "/api/nodes", &session).await != 401 {} };
    timeout(PATIENCE, over).await.expect("the session does not end");
    let token = [("authorization", "Bearer o-secret")];
    assert_eq!(send(stage.address, "GET", "/api/nodes", &token, "").await.status, 200);
}

#[tokio::test]
async fn only_a_whole_session_opens() {
    let stage = set().await;
    let session = cookie(&stage, "o-secret").await;
    let [version, name, end, mac] = session.split('.').collect::<Vec<_>>()[..] else { panic!("{session}") };
    for tampered in [
        format!("pm_session=v2.{name}.{end}.{mac}"),
        format!("{version}.d2FsbA.{end}.{mac}"),
        format!("{version}.{name}.9{end}.{mac}"),
        format!("{version}.{name}.{end}.{}", mac.chars().rev().collect::<String>()),
        format!("{version}.{name}.{end}"),
        format!("pm_session={}", "A".repeat(8000)),
        "pm_session".to_owned(),
        ";;;=".to_owned(),
    ] {
        assert_eq!(ask(&stage, "/api/nodes", &tampered).await, 401, "{tampered}");
        let both = format!("theme=dark; {tampered}; {session}");
        assert_eq!(ask(&stage, "/api/nodes", &both).await, 200, "{both}");
    }
}

#[tokio::test]
async fn logging_out_has_the_browser_forget() {
    let stage = set().await;
    let session = cookie(&stage, "r-secret").await;
    let headers = [("cookie", session.as_str()), OWN];
    let answer = send(stage.address, "POST", "/logout", &headers, "").await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/login")));
    let forget = "pm_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict";
    assert_eq!(answer.header("set-cookie"), Some(forget));
    assert_eq!(send(stage.address, "GET", "/logout", &[], "").await.status, 405);
}

#[tokio::test]
async fn without_tokens_there_is_nothing_to_log_in_to() {
    let stage = Stage::set().await;
    let answer = get(stage.address, "/login?next=%2Fmaps").await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/maps")));
    let answer = log_in(&stage, "token=x", &[OWN]).await;
    assert_eq!((answer.status, answer.header("location"), answer.header("set-cookie")), (303, Some("/"), None));
    for (method, path) in [("GET", "/login"), ("POST", "/login"), ("POST", "/logout"), ("GET", "/assets/live.js")] {
        let rebound = send(stage.address, method, path, &[("host", "evil.example"), FORM], "").await;
        assert!(rebound.problem(403, path).contains("localhost only"));
    }
    log_in(&stage, "token=x", &[("sec-fetch-site", "cross-site")]).await.problem(403, "/login");
}

#[tokio::test]
async fn browsers_are_told_what_a_page_may() {
    let stage = set().await;
    let token = [("authorization", "Bearer r-secret")];
    let plot = "/api/connections/vendor-a/plot.svg?metric=asr";
    for (path, status) in [("/login", 200), ("/api/nodes", 200), ("/api/nothing", 404), ("/", 200), (plot, 503)] {
        let shown = if path == "/login" { &[][..] } else { &token };
        let answer = send(stage.address, "GET", path, shown, "").await;
        assert_eq!(answer.status, status, "{answer:?}");
        for (header, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("cross-origin-resource-policy", "same-origin"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(header), Some(value), "{path}");
        }
    }
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                  form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    assert_eq!(get(stage.address, "/login").await.header("content-security-policy"), Some(policy));
    let json = send(stage.address, "GET", "/api/nodes", &token, "").await;
    assert_eq!(json.header("content-security-policy"), None);
}
