//! The real program, killed at any moment while mails are on their way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::control::{self, Request, Response};
use pointsman::engine::view::{LinkState, View};

use crate::stage::{BATCH, Mail, PATIENCE, Stage, WINDOW};

/// How many times the program is killed.
const KILLS: usize = 12;

const CONNECTIONS: [&str; 3] = ["vendor-a", "vendor-b", "vendor-c"];

/// A running program that does not outlive the test.
struct Program(Child);

impl Program {
    async fn start(stage: &Stage, config: &Path) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(stage.path("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .env_clear()
            .args(["run", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let program = Self(child);
        program.sees(stage, |view| view.nodes.iter().all(|node| node.link.state == LinkState::Up)).await;
        program
    }

    async fn sees(&self, stage: &Stage, what: impl Fn(&View) -> bool) {
        let seen = tokio::time::timeout(PATIENCE, async {
            loop {
                let answer = control::request(&stage.path("pointsman.sock"), &Request::Status).await;
                if let Ok(Response::Status(view)) = answer
                    && what(&view)
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let log = || std::fs::read_to_string(stage.path("log")).unwrap_or_default();
        assert!(seen.await.is_ok(), "{}", log());
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The Message-IDs of every change between good and bad that the database tells of.
async fn expected(database: &Path) -> BTreeSet<String> {
    use sqlx::Connection;
    let url = format!("sqlite://{}?mode=ro", database.display());
    let mut conn = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let changes: Vec<(String, String, i64, i64)> = sqlx::query_as(
        "SELECT to_state, connection, epoch, at FROM change
          WHERE (from_state = 'good' AND to_state = 'bad') OR to_state = 'good'",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    let kind = |state: &str| if state == "bad" { "alarm" } else { "recovery" };
    let ids = changes
        .iter()
        .map(|(state, connection, epoch, at)| format!("<{}.{connection}.{epoch}.{at}@operator.example>", kind(state)));
    ids.collect()
}

/// Every change that is in the database has been told to both readers, whenever the program was killed; what was told
/// twice was the same mail.
#[tokio::test]
async fn a_kill_at_any_moment_loses_no_mail() {
    let stage = Stage::set(Clock::system()).await;
    let config = stage.write_config(&CONNECTIONS, "");
    let mut program = Program::start(&stage, &config).await;
    let mut bad = true;
    for _ in 0..KILLS {
        for connection in CONNECTIONS {
            stage.calls(connection, if bad { WINDOW } else { BATCH }, !bad).await;
        }
        bad = !bad;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..60_000))).await;
        program.kill();
        program = Program::start(&stage, &config).await;
    }
    program.sees(&stage, |view| view.mail.configured && view.mail.waiting == 0 && view.mail.undecided == 0).await;
    program.kill();

    let expected = expected(&stage.path("pointsman.db")).await;
    assert!(expected.len() >= KILLS, "{expected:?}");
    let mut told: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mails: Vec<Mail> = stage.mails.received().iter().map(Mail::of).collect();
    for mail in &mails {
        told.entry((mail.id.clone(), mail.to.clone())).or_default().insert(format!("{} {}", mail.subject, mail.text));
    }
    for to in ["noc@acme.example", "duty@acme.example"] {
        let ids: BTreeSet<String> =
            told.keys().filter(|(_, address)| address == to).map(|(id, _)| id.clone()).collect();
        assert_eq!(ids, expected, "{to}");
    }
    assert!(told.values().all(|contents| contents.len() == 1), "{told:#?}");
    println!("{} changes, {} mails for {} deliveries, {KILLS} kills", expected.len(), mails.len(), told.len());
}
