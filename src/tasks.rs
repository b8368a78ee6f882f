//! The only place that spawns tasks, so that shutdown knows of every one.
//!
//! A task gets a [`Tasks`] and ends when [`Tasks::stopping`] resolves; whoever started them waits in
//! [`Tasks::stop`] for at most its deadline and hears who did not end in time.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// A group of tasks that stop together.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    token: CancellationToken,
}

impl Tasks {
    /// An empty group.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task of this group.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(task);
    }

    /// Does work that blocks beside the runtime, as a part of this group; `None` where the runtime ends before it.
    pub async fn run_blocking<T, F>(&self, work: F) -> Option<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.tracker.spawn_blocking(work).await.ok()
    }

    /// A group within this one: it stops with it, and can be stopped alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { tracker: TaskTracker::new(), token: self.token.child_token() }
    }

    /// Resolves when the group is told to stop.
    pub fn stopping(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }

    /// Whether the group has been told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Tells the tasks to stop and waits for them, at most `deadline`. Says whether all of them ended.
    pub async fn stop(&self, deadline: Duration) -> bool {
        self.token.cancel();
        self.tracker.close();
        tokio::time::timeout(deadline, self.tracker.wait()).await.is_ok()
    }
}
