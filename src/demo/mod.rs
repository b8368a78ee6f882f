//! `pointsman demo`: the whole program over simulated switches, told in words.
//!
//! `script` holds the cast and the plot, `stage` the simulated switches that play it, `narrator` turns what the
//! program publishes into lines, and [`screen`] prints them. Nothing here takes part in a decision: the program reads a
//! configuration file, connects to the switches over their real protocols, judges, and writes their variables, as it
//! would anywhere; only its clock runs faster.

mod narrator;
pub mod screen;
mod script;
mod stage;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::config::{self, Config, Format, Purpose};
use crate::engine::run::{self, Running, StartError};
use crate::engine::view::{LinkState, View};
use crate::tasks::Tasks;
use narrator::Narrator;
use screen::{Kind, Line, Screen};
use stage::{Played, Stage};

/// Fast enough to see everything within a minute, slow enough to follow it.
pub const DEFAULT_RATE: u32 = 30;
/// Above this the timers of a usual machine are too coarse for what vendors do.
pub const MAX_RATE: u32 = 60;
/// A port that is free, for this machine alone.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Real time between two tables.
const TABLE_EVERY: Duration = Duration::from_secs(10);
/// Real time within which links on loopback must be up.
const LINKS_WITHIN: Duration = Duration::from_secs(15);
/// Real time that the simulated switches get to end.
const END_WITHIN: Duration = Duration::from_secs(3);

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When to end, in real time; until stopped, where `None`.
    pub duration: Option<Duration>,
    /// How many seconds of the demo clock pass in a second.
    pub rate: u32,
    /// Where the program listens over HTTP; with port 0, on the one that its first start finds free.
    pub listen: SocketAddr,
    /// Seed of everything random.
    pub seed: u64,
}

/// Why there was nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No place for the configuration and the database.
    #[error("cannot make a temporary directory for the demo: {0}")]
    Directory(#[source] io::Error),
    /// The simulated switches could not listen.
    #[error("cannot start the simulated switches on loopback: {0}")]
    Stage(#[source] io::Error),
    /// Our own configuration was refused.
    #[error("the demo's configuration is refused: {0}")]
    Config(String),
    /// The program did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The program did not get to its switches.
    #[error("the links to the simulated switches did not come up: {0}")]
    NoLinks(String),
    /// The program cannot be reached over HTTP.
    #[error("{0}")]
    NoHttp(String),
    /// The output is closed or full.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// What a run showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A vendor was lowered or blocked, and one recovered.
    Everything,
    /// It was stopped before that.
    Stopped,
    /// Its time was over before that.
    TooShort,
}

/// Plays the demo until `stop` resolves or its time is over.
///
/// # Errors
/// See [`DemoError`].
pub async fn run(
    options: Options,
    screen: &mut Screen<'_>,
    stop: impl Future<Output = ()>,
) -> Result<Shown, DemoError> {
    let directory = tempfile::Builder::new().prefix("pointsman-demo-").tempdir().map_err(DemoError::Directory)?;
    let clock = Clock::running_at(options.rate.clamp(1, MAX_RATE));
    let tasks = Tasks::new();
    let stage = Stage::start(clock, options.seed, &tasks).await.map_err(DemoError::Stage)?;
    let config = configure(directory.path(), options.listen, &stage)?;
    let mut play = Play { clock, stage, narrator: Narrator::new(clock.now()), screen };
    play.introduce(directory.path(), &config.control_socket)?;
    let shown = play.perform(config, time_is_over(options.duration), stop).await;
    tasks.stop(END_WITHIN).await;
    shown
}

/// Writes the configuration as an operator would, and reads it as the program does.
fn configure(directory: &Path, listen: SocketAddr, stage: &Stage) -> Result<Config, DemoError> {
    let text = script::configuration(directory, listen, stage.freeswitch(), stage.asterisk(), stage.mail());
    let path = directory.join("pointsman.toml");
    std::fs::write(&path, &text).map_err(DemoError::Directory)?;
    // The demo's own file alone: whatever the environment says about the real one is not meant here.
    match config::load_text(&path, &text, Format::Toml, [], Purpose::Connect) {
        Ok(loaded) => Ok(loaded.config),
        Err(problems) => Err(DemoError::Config(problems.render(false))),
    }
}

async fn time_is_over(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// Why an act ended.
enum Curtain {
    /// Somebody stopped the demo.
    Stopped,
    /// Its time is over.
    Over,
    /// The plot wants the program to be stopped and started again.
    Restart,
}

struct Play<'a, 'b> {
    clock: Clock,
    stage: Stage,
    narrator: Narrator,
    screen: &'a mut Screen<'b>,
}

impl Play<'_, '_> {
    fn say(&mut self, kind: Kind, text: impl Into<String>) -> io::Result<()> {
        let line = self.narrator.line(self.clock.now(), kind, text.into());
        self.screen.show(&line)
    }

    fn show(&mut self, lines: &[Line]) -> io::Result<()> {
        lines.iter().try_for_each(|line| self.screen.show(line))
    }

    fn introduce(&mut self, directory: &Path, socket: &Path) -> io::Result<()> {
        let rate = self.clock.rate();
        for text in [
            "pointsman over one FreeSWITCH and one Asterisk, simulated on loopback with callers and four vendors"
                .to_owned(),
            format!("1 second here is {rate} seconds for all of them; the times on the left are theirs (min:sec)"),
            format!("configuration and database: {}", directory.display()),
            format!(
                "to look yourself: pointsman status --socket {0}, pointsman outbox --all --socket {0}",
                socket.display()
            ),
            format!(
                "what would a call try, and why: pointsman test-call 1555 --socket {0}, pointsman test-dialplan 1555 --socket {0}",
                socket.display()
            ),
        ] {
            self.say(Kind::Note, text)?;
        }
        Ok(())
    }

    /// Runs the program over the stage, act by act: between two acts it is stopped and started again.
    async fn perform(
        &mut self,
        mut config: Config,
        over: impl Future<Output = ()>,
        stop: impl Future<Output = ()>,
    ) -> Result<Shown, DemoError> {
        tokio::pin!(over, stop);
        let mut first = true;
        loop {
            let running = run::start(Arc::new(config.clone()), self.clock).await?;
            let mut views = running.view();
            let curtain = match self.open(&mut views, first).await {
                Ok(()) => self.act(&running, &mut views, over.as_mut(), stop.as_mut()).await,
                Err(error) => Err(error),
            };
            // It is started again where it listens now: a page that is open in a browser finds it.
            let address = running.http().and_then(|listening| listening.borrow().address);
            if let (Some(http), Some(address)) = (&mut config.http, address) {
                http.listen = address;
            }
            running.stop().await;
            match curtain? {
                Curtain::Restart => first = false,
                Curtain::Stopped => return self.conclude(&views.borrow(), Shown::Stopped),
                Curtain::Over => return self.conclude(&views.borrow(), Shown::TooShort),
            }
        }
    }

    /// Waits until the program has its links, and lets the show begin or go on.
    async fn open(&mut self, views: &mut watch::Receiver<Arc<View>>, first: bool) -> Result<(), DemoError> {
        let links_up = |view: &View| view.nodes.iter().all(|node| node.link.state == LinkState::Up);
        let listens = |view: &View| view.http.as_ref().is_none_or(|http| http.address.is_some());
        let problem = |view: &View| view.http.as_ref().map(|http| http.problem.clone()).filter(|text| !text.is_empty());
        let ready = |view: &Arc<View>| problem(view).is_some() || links_up(view) && listens(view);
        let up = tokio::time::timeout(LINKS_WITHIN, views.wait_for(ready)).await.is_ok_and(|view| view.is_ok());
        let view = views.borrow_and_update().clone();
        if let Some(problem) = problem(&view) {
            return Err(DemoError::NoHttp(problem));
        }
        if !up {
            let reasons: Vec<_> = view.nodes.iter().map(|node| format!("{}: {}", node.id, node.link.reason)).collect();
            return Err(DemoError::NoLinks(reasons.join("; ")));
        }
        if first && let Some(address) = view.http.as_ref().and_then(|http| http.address.as_ref()) {
            self.say(Kind::Note, format!("in a browser: http://{address}/"))?;
            self.say(Kind::Note, format!("over HTTP: http://{address}/api/nodes, http://{address}/api/route"))?;
        }
        let lines = self.narrator.picture(&view);
        self.show(&lines)?;
        if first {
            self.stage.raise_the_curtain();
        } else {
            let line = self.narrator.remembered(&view);
            self.screen.show(&line)?;
        }
        Ok(())
    }

    async fn act(
        &mut self,
        running: &Running,
        views: &mut watch::Receiver<Arc<View>>,
        mut over: Pin<&mut impl Future<Output = ()>>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Curtain, DemoError> {
        let mut changes = running.changes();
        let mut tables = tokio::time::interval(TABLE_EVERY);
        tables.set_missed_tick_behavior(MissedTickBehavior::Skip);
        tables.reset();
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return Ok(Curtain::Stopped),
                () = &mut over => return Ok(Curtain::Over),
                change = changes.recv() => match change {
                    Ok(change) => {
                        let line = self.narrator.change(&change);
                        self.screen.show(&line)?;
                    }
                    // A terminal that stalls loses lines, nothing else.
                    Err(RecvError::Lagged(lost)) => self.say(Kind::Note, format!("{lost} changes were not shown"))?,
                    Err(RecvError::Closed) => return Ok(Curtain::Stopped),
                },
                cue = self.stage.next_cue() => {
                    let played = self.stage.play(&cue);
                    self.say(Kind::Scene, cue.text)?;
                    if played == Played::ProgramMustRestart {
                        self.narrator.program_restarts();
                        return Ok(Curtain::Restart);
                    }
                }
                changed = views.changed() => {
                    if changed.is_err() {
                        return Ok(Curtain::Stopped);
                    }
                    let view = views.borrow_and_update().clone();
                    let lines = self.narrator.picture(&view);
                    self.show(&lines)?;
                    if self.narrator.awaits_mail(&view) && let Ok(letters) = running.outbox().list(true).await {
                        let lines = self.narrator.mail(&letters);
                        self.show(&lines)?;
                    }
                }
                _ = tables.tick() => {
                    let table = self.narrator.table(&views.borrow());
                    self.screen.table(&table)?;
                }
            }
        }
    }

    fn conclude(&mut self, view: &View, otherwise: Shown) -> Result<Shown, DemoError> {
        let table = self.narrator.table(view);
        self.screen.table(&table)?;
        let lines = self.narrator.summary(self.clock.now(), self.stage.calls_placed(), self.clock.rate());
        self.show(&lines)?;
        if self.narrator.saw_everything() {
            return Ok(Shown::Everything);
        }
        if otherwise == Shown::TooShort {
            self.say(Kind::Summary, "too short to show a vendor lowered and recovered: try --for 60s")?;
        }
        Ok(otherwise)
    }
}
