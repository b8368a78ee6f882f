//! Errors have one form, whoever finds them; who may not, may not.

use pointsman::api::{Limits, MAX_BODY};
use pointsman::config::model::Role;

use crate::client::{get, send, send_json};
use crate::stage::Stage;

#[tokio::test]
async fn every_error_is_a_problem_detail() {
    let stage = Stage::set().await;
    let missing = get(stage.address, "/api/nothing?x=1").await;
    assert!(missing.problem(404, "/api/nothing").contains("nothing at this path"));
    let wrong = send(stage.address, "DELETE", "/api/nodes", &[], "").await;
    wrong.problem(405, "/api/nodes");
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    let path = "/api/connections/vendor-a/reset";
    let text = send(stage.address, "POST", path, &[("content-type", "text/plain")], "{}").await;
    assert!(text.problem(415, path).contains("Content-Type"));
    let body = format!(r#"{{"why": "{}"}}"#, "x".repeat(MAX_BODY));
    assert!(send_json(stage.address, "POST", path, &body).await.problem(413, path).contains("limit"));
    send(stage.address, "POST", "/api/outbox/x/retry", &[], "").await.problem(400, "/api/outbox/x/retry");
    get(stage.address, "/api/nodes/%ff").await.problem(400, "/api/nodes/%ff");
    let nosniff = get(stage.address, "/api/nodes").await;
    assert_eq!(nosniff.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(nosniff.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn an_error_has_no_body_where_none_was_asked_for() {
    let stage = Stage::set().await;
    let head = send(stage.address, "HEAD", "/api/nothing", &[], "").await;
    assert_eq!((head.status, head.body.as_str()), (404, ""));
}

#[tokio::test]
async fn every_path_asks_for_a_token_and_every_change_for_the_role() {
    let stage = Stage::with(&[("wall", Role::Read, "r"), ("noc", Role::Operate, "o")], Limits::default()).await;
    let document = pointsman::api::document();
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, _) in methods.as_object().unwrap() {
            let path = path.replace("{number}", "8").replace("{id}", "nobody");
            let status = async |token: Option<&str>| {
                let bearer = format!("Bearer {}", token.unwrap_or_default());
                let headers: Vec<_> = token.map(|_| ("authorization", bearer.as_str())).into_iter().collect();
                // A stream would not end; this is refused before.
                if path == "/api/events" && matches!(token, Some("r" | "o")) {
                    return 200;
                }
                send(stage.address, &method.to_uppercase(), &path, &headers, "").await.status
            };
            let open = ["/healthz", "/readyz"].contains(&path.as_str());
            let may = |status: u16| ![401, 403].contains(&status);
            let verdict = (
                may(status(None).await),
                may(status(Some("x")).await),
                may(status(Some("r")).await),
                may(status(Some("o")).await),
            );
            assert_eq!(verdict, (open, open, method == "get", true), "{method} {path}");
            tried += 1;
        }
    }
    assert_eq!(tried, 30);
    assert_eq!(stage.asked(), []);
}

#[tokio::test]
async fn who_shows_no_token_is_told_how() {
    let stage = Stage::with(&[("wall", Role::Read, "r")], Limits::default()).await;
    let answer = get(stage.address, "/api/nodes").await;
    assert!(answer.problem(401, "/api/nodes").contains("Authorization: Bearer"));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    let headers = [("authorization", "Bearer r"), ("content-type", "application/json")];
    let path = "/api/connections/vendor-a/reset";
    let answer = send(stage.address, "POST", path, &headers, "{}").await;
    assert!(answer.problem(403, path).contains("the token wall may only read"));
    // By another name, too: that is what tokens are for.
    let headers = [("authorization", "Bearer r"), ("host", "pbx.example")];
    assert_eq!(send(stage.address, "GET", "/api/nodes", &headers, "").await.status, 200);
}

#[tokio::test]
async fn without_tokens_other_web_sites_reach_nothing() {
    let stage = Stage::set().await;
    let rebound = send(stage.address, "GET", "/api/nodes", &[("host", "evil.example")], "").await;
    assert!(rebound.problem(403, "/api/nodes").contains("localhost only"));
    let path = "/api/connections/vendor-a/reset";
    let own = format!("http://{}", stage.address);
    for (name, value, status) in
        [("origin", "https://evil.example", 403), ("sec-fetch-site", "cross-site", 403), ("origin", own.as_str(), 204)]
    {
        let headers = [(name, value), ("content-type", "application/json")];
        assert_eq!(send(stage.address, "POST", path, &headers, "{}").await.status, status, "{name}: {value}");
    }
    assert_eq!(stage.asked().len(), 1);
}
