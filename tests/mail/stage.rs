//! A switch with vendors that do as told, a mail server, and the configuration of a pointsman between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mailparse::{MailHeaderMap, ParsedMail, parse_mail};
use pointsman::clock::Clock;
use pointsman::config::{Config, Format, Purpose, load_text};
use pointsman::sim::mail::{MailServer, Options, Received};
use pointsman::sim::{Behaviour, Call, Handle, Route, asterisk};
use pointsman::tasks::Tasks;

/// Longest wait for anything that happens at once on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Calls after which a good connection is judged.
pub(crate) const WINDOW: usize = 3;

/// Calls of a retry batch.
pub(crate) const BATCH: usize = 2;

pub(crate) struct Stage {
    pub(crate) pbx: Handle,
    pub(crate) mails: MailServer,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) clock: Clock,
    _tasks: Tasks,
}

impl Stage {
    pub(crate) async fn set(clock: Clock) -> Self {
        let tasks = Tasks::new();
        let pbx = asterisk::Server::start(asterisk::Options::default(), clock, &tasks).await.unwrap();
        let mails = MailServer::start(Options::default(), &tasks).await.unwrap();
        Self { pbx, mails, directory: tempfile::tempdir().unwrap(), clock, _tasks: tasks }
    }

    /// A configuration with these connections, all of them `acme`'s, and `more`.
    pub(crate) fn write_config(&self, connections: &[&str], more: &str) -> PathBuf {
        let mut text = format!(
            r#"
[http]
listen = "127.0.0.1:0"

[[nodes]]
id = "pbx-01"
kind = "asterisk"
address = "{}"
username = "pointsman"
password = "ClueCon"

[email]
from = "Quality <noc@operator.example>"
server = "{}"
security = "none"
digest_window_sec = 0
time_zone = "UTC"

[[customers]]
id = "acme"
name = "Акме"
email = ["noc@acme.example", "duty@acme.example"]

[quality]
monitor_asr = true
asr_threshold_percent = 60
statistics_window = {WINDOW}
retry_batch = {BATCH}
retry_interval_sec = 86400
notify_on_status_change = true
{more}
"#,
            self.pbx.address(),
            self.mails.address(),
        );
        for connection in connections {
            text.push_str(&format!("\n[[connections]]\nid = \"{connection}\"\ncustomer = \"acme\"\n"));
        }
        let path = self.directory.path().join("pointsman.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn config(&self, connections: &[&str], more: &str) -> Arc<Config> {
        let path = self.write_config(connections, more);
        let text = std::fs::read_to_string(&path).unwrap();
        match load_text(&path, &text, Format::Toml, [], Purpose::Connect) {
            Ok(loaded) => Arc::new(loaded.config),
            Err(problems) => panic!("{}", problems.render(false)),
        }
    }

    /// Sends that many calls over a vendor that answers them or refuses them, and waits until they are over.
    pub(crate) async fn calls(&self, vendor: &str, count: usize, good: bool) {
        let behaviour = if good { Behaviour::instant() } else { Behaviour::refusing(503) };
        self.pbx.set_vendor(vendor, behaviour);
        let route = Route::Trunks(vec![vendor.to_owned()]);
        let calls: Vec<_> = (0..count)
            .map(|n| {
                let talk = Some(Duration::from_millis(20));
                let number = format!("4930123456{n}");
                self.pbx.place_call(Call { talk, ..Call::to(&number, route.clone()) })
            })
            .collect();
        for call in calls {
            call.report().await;
        }
    }

    /// The mails once there are that many.
    pub(crate) async fn mails(&self, count: usize) -> Vec<Mail> {
        let there = self.mails.until(PATIENCE, |server| server.received().len() >= count).await;
        let mails: Vec<Mail> = self.mails.received().iter().map(Mail::of).collect();
        assert!(there, "{} mails of {count}: {:#?}", mails.len(), mails);
        mails
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }
}

/// A mail, as a parser that is not ours reads it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mail {
    pub(crate) to: String,
    pub(crate) subject: String,
    pub(crate) id: String,
    pub(crate) answers: Option<String>,
    pub(crate) kind: String,
    pub(crate) connections: Vec<String>,
    pub(crate) text: String,
    pub(crate) html: String,
}

impl Mail {
    pub(crate) fn of(received: &Received) -> Self {
        let parsed = parse_mail(&received.data).unwrap();
        let header = |name: &str| parsed.headers.get_first_value(name);
        let part = |kind: &str| {
            let part: &ParsedMail<'_> = parsed.subparts.iter().find(|part| part.ctype.mimetype == kind).unwrap();
            part.get_body().unwrap()
        };
        Self {
            to: received.to.join(", "),
            subject: header("Subject").unwrap(),
            id: header("Message-ID").unwrap(),
            answers: header("In-Reply-To"),
            kind: header("X-Pointsman-Kind").unwrap(),
            connections: parsed.headers.get_all_values("X-Pointsman-Connection"),
            text: part("text/plain"),
            html: part("text/html"),
        }
    }

    /// `kind connection > recipient`.
    pub(crate) fn brief(&self) -> String {
        format!("{} {} > {}", self.kind, self.connections.join("+"), self.to)
    }
}
