//! The real binary: its signal, and the command beside it.

use std::process::{Child, Command, Output, Stdio};

use pointsman::control::{self, Request, Response};
use pointsman::engine::view::View;
use serde_json::Value;

use crate::stage::{FIRST, PATIENCE, Stage, is_up};

/// The running program; it does not outlive the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    async fn start(stage: &Stage) -> Self {
        let log = std::fs::File::create(stage.path("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .env_clear()
            .args(["run", "--config"])
            .arg(stage.path("pointsman.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let program = Self(child);
        until(stage, || async { picture(stage).await.is_some_and(|view| is_up(&view)) }).await;
        program
    }

    fn hang_up(&self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    }
}

async fn picture(stage: &Stage) -> Option<std::sync::Arc<View>> {
    match control::request(&stage.path("pointsman.sock"), &Request::Status).await {
        Ok(Response::Status(view)) => Some(view),
        _ => None,
    }
}

async fn until<F: Future<Output = bool>>(stage: &Stage, what: impl Fn() -> F) {
    let reached = tokio::time::timeout(PATIENCE, async {
        while !what().await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    assert!(reached.await.is_ok(), "{}", log(stage));
}

fn log(stage: &Stage) -> String {
    std::fs::read_to_string(stage.path("log")).unwrap_or_default()
}

async fn logged(stage: &Stage, words: &[&str]) {
    until(stage, || async { words.iter().all(|words| log(stage).contains(words)) }).await;
}

async fn reload(stage: &Stage, more: &[&str]) -> (i32, String, String) {
    let path = stage.path("pointsman.toml");
    let args = [&["reload-route-maps", "--config", path.to_str().unwrap()], more].concat();
    said(stage.command(&args).await)
}

/// The same over the socket, where the file may be broken.
async fn reload_over_socket(stage: &Stage, more: &[&str]) -> (i32, String, String) {
    let path = stage.path("pointsman.sock");
    let args = [&["reload-route-maps", "--socket", path.to_str().unwrap()], more].concat();
    said(stage.command(&args).await)
}

fn said(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn sighup_puts_a_changed_file_in_force_and_a_broken_one_not() {
    let stage = Stage::set().await;
    let program = Program::start(&stage).await;
    stage.edit(&[("priority = 20", "priority = 5")]);
    program.hang_up();
    stage.variable_becomes("pm_route_intl", Some("vendor-b,vendor-a")).await;
    logged(&stage, &["SIGHUP", "route map intl: vendor-b priority 20 -> 5"]).await;

    let before = picture(&stage).await.unwrap();
    stage.edit(&[
        ("[quality]", "[qualty]"),
        ("connection = \"vendor-b\", priority = 10", "connection = \"vendor-x\", priority = 10"),
    ]);
    program.hang_up();
    logged(&stage, &["cannot be used, and nothing was changed", "qualty", "vendor-x"]).await;
    let after = picture(&stage).await.unwrap();
    assert_eq!(
        (&after.connections, &after.maps, after.generation),
        (&before.connections, &before.maps, before.generation)
    );
    stage.write(FIRST);
    program.hang_up();
    stage.variable_becomes("pm_route_intl", Some("vendor-a,vendor-b")).await;
}

#[tokio::test]
async fn the_command_shows_does_and_fails_with_the_right_code() {
    let stage = Stage::set().await;
    let (code, _, err) = reload(&stage, &[]).await;
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("no pointsman answers"), "{err}");
    let _program = Program::start(&stage).await;

    let (code, out, _) = reload(&stage, &["--dry-run"]).await;
    assert_eq!((code, out.as_str()), (0, "A reload would change nothing\n"));
    stage.edit(&[("priority = 20", "priority = 5")]);
    let (code, out, _) = reload(&stage, &["--dry-run"]).await;
    assert_eq!((code, out.as_str()), (0, "A reload would change:\n  route map intl: vendor-b priority 20 -> 5\n"));
    let (code, out, _) = reload(&stage, &["--json", "--reason", "cheaper"]).await;
    let done: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &done["applied"], &done["changes"][0]["id"]), (0, &true.into(), &"intl".into()));
    logged(&stage, &["alice had the configuration reloaded", "cheaper"]).await;
    stage.variable_becomes("pm_route_intl", Some("vendor-b,vendor-a")).await;

    stage.edit(&[("[quality]", "[log]\nfilter = \"debug\"\n[quality]")]);
    let (code, out, err) = reload(&stage, &[]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("nothing was changed: this takes a restart: [log]: filter"), "{err}");
    let (code, out, _) = reload(&stage, &["--dry-run"]).await;
    assert!(code == 1 && out.contains("priority 5 -> 20") && out.contains("takes a restart"), "{out}");
    let (code, out, _) = reload(&stage, &["--json"]).await;
    let undone: Value = serde_json::from_str(&out).unwrap();
    assert!(code == 1 && undone["applied"] == false && undone["error"].as_str().unwrap().contains("restart"), "{out}");

    stage.edit(&[("[quality]", "[qualty]")]);
    let check = said(stage.command(&["check", "--config", stage.path("pointsman.toml").to_str().unwrap()]).await);
    for (code, out, err) in [reload(&stage, &[]).await, reload_over_socket(&stage, &[]).await] {
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains("did you mean `quality`?"), "{err}");
    }
    let (_, _, err) = reload_over_socket(&stage, &[]).await;
    let printed = check.1.split("\n\n").next().unwrap();
    assert!(err.contains(printed), "{err}\nas check prints it:\n{printed}");
    for (code, out, _) in [reload(&stage, &["--json"]).await, reload_over_socket(&stage, &["--json"]).await] {
        let undone: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &undone["applied"]), (2, &false.into()));
        assert!(undone["problems"][0].as_str().unwrap().contains("qualty"), "{out}");
    }
    stage.variable_becomes("pm_route_intl", Some("vendor-b,vendor-a")).await;
    let (code, _, err) = reload(&stage, &["--reason", "a\nb"]).await;
    assert_eq!(code, 2, "{err}");
}
