//! A configuration that changes while the program runs: read again, checked, compared, and put in force as a whole or not at
//! all.
//!
//! One task does one reload after the other. What the operator asks for is never broken off half done: whoever asked may go
//! away, and the reload still comes to its end. Reading is blocking work beside the runtime; the engine only hears of a
//! configuration that is good, and whose difference to the one in force it can take over.
//!
//! What only a restart can change (the nodes and everything that was set up from the configuration when the program
//! started) makes the whole reload be refused: a file of which half is in force is a file that nobody can read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::config::diff::{Change, Diff};
use crate::config::{Config, Loaded, Problems};
use crate::engine::request::{By, Desk, NewConfig, Refused, Request};
use crate::tasks::Tasks;

/// Reloads that wait for the one that is going on. Each is a person's or a program's order; more at a time are a mistake.
const QUEUE: usize = 16;

/// Longest that reading the configuration may take: whoever asked waits for ten seconds. A password file on a disk that does
/// not answer must not keep the next reload waiting for ever.
const LOADING: Duration = Duration::from_secs(6);

/// Reads the configuration that the program was started with again, as it is now.
#[derive(Clone)]
pub struct Loader(Arc<dyn Fn() -> Result<Loaded, Problems> + Send + Sync>);

impl Loader {
    /// One that does what `load` does; it may block.
    pub fn new(load: impl Fn() -> Result<Loaded, Problems> + Send + Sync + 'static) -> Self {
        Self(Arc::new(load))
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loader")
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Only show what would change.
    pub dry_run: bool,
    /// Who and why.
    pub by: By,
}

/// What a reload did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reloaded {
    /// Whether it is in force now; not after a dry run.
    pub applied: bool,
    /// What changes by it. Also where that is nothing, what the routing rules learnt begins anew.
    pub changes: Vec<Change>,
    /// The parts that only a restart changes, because of which it would be refused as a whole; of a dry run only.
    pub takes_restart: Vec<String>,
    /// What `pointsman check` would warn of, each on a line.
    pub warnings: Vec<String>,
}

/// Why a reload was not done. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The configuration has errors.
    #[error("the configuration cannot be used, and nothing was changed:\n\n{}", .text.trim_end())]
    Unusable {
        /// All of them, as `pointsman check` prints them.
        text: String,
        /// Each on a line.
        problems: Vec<String>,
    },
    /// Something has changed that a running program cannot take over.
    #[error(
        "nothing was changed: this takes a restart: {}; a reload is applied as a whole or not at all",
        .0.join("; ")
    )]
    TakesRestart(Vec<String>),
    /// The program was started without a file.
    #[error("this pointsman was started without a configuration file: there is nothing to reload")]
    NoFile,
    /// Reading took too long.
    #[error("the configuration could not be read within {} s, and nothing was changed", LOADING.as_secs())]
    TooSlow,
    /// Too many reloads, or the program ends.
    #[error("pointsman is stopping, or too many reloads are waiting; nothing was changed")]
    NotNow,
    /// The engine did not take it.
    #[error("nothing was changed: {0}")]
    Refused(Refused),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotNow => Self::NotNow,
            refused => Self::Refused(refused),
        }
    }
}

type Asked = (Order, oneshot::Sender<Result<Reloaded, Failed>>);

/// The way to whoever reloads. Cheap to clone; the default is one that cannot.
#[derive(Clone, Debug, Default)]
pub struct Reloader {
    orders: Option<mpsc::Sender<Asked>>,
}

impl Reloader {
    /// Starts the task. `config` shows the configuration in force.
    #[must_use]
    pub fn start(loader: Loader, config: watch::Receiver<Arc<Config>>, desk: Desk, tasks: &Tasks) -> Self {
        let (orders, asked) = mpsc::channel(QUEUE);
        let reading = Arc::new(Semaphore::new(1));
        let task = Task { loader, reading, config, desk, tasks: tasks.clone() };
        tasks.spawn(task.run(asked));
        Self { orders: Some(orders) }
    }

    /// Has the configuration reloaded, and waits until that is done.
    ///
    /// # Errors
    /// See [`Failed`].
    pub async fn reload(&self, order: Order) -> Result<Reloaded, Failed> {
        self.begin(order)?.await.unwrap_or(Err(Failed::NotNow))
    }

    /// The same, for whoever has no time to wait; the outcome is in the log too.
    ///
    /// # Errors
    /// [`Failed::NoFile`], and [`Failed::NotNow`] where too many wait already.
    pub fn begin(&self, order: Order) -> Result<oneshot::Receiver<Result<Reloaded, Failed>>, Failed> {
        let orders = self.orders.as_ref().ok_or(Failed::NoFile)?;
        let (answer, answered) = oneshot::channel();
        orders.try_send((order, answer)).map_err(|_| Failed::NotNow)?;
        Ok(answered)
    }
}

struct Task {
    loader: Loader,
    /// Held while the configuration is being read, also by a read that nobody waits for any more.
    reading: Arc<Semaphore>,
    config: watch::Receiver<Arc<Config>>,
    desk: Desk,
    tasks: Tasks,
}

impl Task {
    async fn run(self, mut asked: mpsc::Receiver<Asked>) {
        loop {
            tokio::select! {
                Some((order, answer)) = asked.recv() => {
                    let outcome = self.reload(&order).await;
                    tell(&order, &outcome);
                    // Whoever asked may have gone away.
                    let _ = answer.send(outcome);
                }
                () = self.tasks.stopping() => return,
            }
        }
    }

    async fn reload(&self, order: &Order) -> Result<Reloaded, Failed> {
        let loader = self.loader.clone();
        // A disk that does not answer may hold the read before this one up still; one of them is enough.
        let alone = self.reading.clone().try_acquire_owned().map_err(|_| Failed::TooSlow)?;
        let loading = self.tasks.run_blocking(move || {
            let loaded = (loader.0)();
            drop(alone);
            loaded
        });
        let loaded = timeout(LOADING, loading).await.map_err(|_| Failed::TooSlow)?.ok_or(Failed::NotNow)?;
        let Loaded { config, warnings } = loaded.map_err(|problems| unusable(&problems))?;
        let Diff { changes, takes_restart } = Diff::between(&self.config.borrow(), &config);
        if !order.dry_run {
            if !takes_restart.is_empty() {
                return Err(Failed::TakesRestart(takes_restart));
            }
            self.desk.ask(Request::Configure(NewConfig(Arc::new(config)))).await?;
        }
        Ok(Reloaded { applied: !order.dry_run, changes, takes_restart, warnings: lines(&warnings) })
    }
}

fn unusable(problems: &Problems) -> Failed {
    Failed::Unusable { text: problems.render(false), problems: lines(problems) }
}

fn lines(problems: &Problems) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// Into the log: who, and what came of it. A dry run is nobody's business.
fn tell(Order { dry_run, by: By { who, why } }: &Order, outcome: &Result<Reloaded, Failed>) {
    if *dry_run {
        return;
    }
    match outcome {
        Ok(Reloaded { changes, warnings, .. }) => {
            tracing::info!(%who, %why, changes = changes.len(), "{who} had the configuration reloaded; it is in force, and what the routing rules learnt begins anew");
            for change in changes {
                tracing::info!("reload: {}", change.words);
            }
            for warning in warnings {
                tracing::warn!("reload: {warning}");
            }
        }
        Err(Failed::Unusable { problems, .. }) => {
            tracing::error!(%who, %why, problems = problems.len(), "{who} wanted the configuration reloaded: it cannot be used, and nothing was changed");
            for problem in problems {
                tracing::error!("reload: {problem}");
            }
        }
        Err(failed) => tracing::error!(%who, %why, "{who} wanted the configuration reloaded: {failed}"),
    }
}
