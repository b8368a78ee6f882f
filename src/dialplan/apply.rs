//! Drives the reconciler of one node over its link.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::clock::Clock;
use crate::config::model::{Node, Variables};
use crate::dialplan::desired::Desired;
use crate::dialplan::readback::Probe;
use crate::dialplan::reconcile::{AstDb, Finding, Purpose, Reconciler};
use crate::engine::view::{LinkState, LinkView, VariablesView};
use crate::ids::NodeId;
use crate::pbx::PbxKind;
use crate::pbx::command::{CommandError, CommandResult, Commander};
use crate::pbx::link::Link;
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// Longest sleep of the task: what it waits for comes as events, this only bounds a mistake.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What a node should hold, and which life of the PBX that is for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub(super) desired: Arc<Desired>,
    cause_at: Timestamp,
    restarts: u64,
}

/// A running applier.
#[derive(Debug)]
pub struct Applier {
    wanted: watch::Sender<Wanted>,
    view: watch::Receiver<VariablesView>,
    probe: Probe,
}

impl Applier {
    /// The node should hold this from now on. `cause_at` is when the event arrived that made it so.
    pub fn want(&self, desired: Arc<Desired>, cause_at: Timestamp) {
        self.wanted.send_modify(|wanted| (wanted.desired, wanted.cause_at) = (desired, cause_at));
    }

    /// The PBX was restarted: everything that it held is gone.
    pub fn restarted(&self) {
        self.wanted.send_modify(|wanted| wanted.restarts += 1);
    }

    /// How the node's variables are.
    #[must_use]
    pub fn view(&self) -> VariablesView {
        *self.view.borrow()
    }

    /// Reads what the node holds, beside what it should.
    #[must_use]
    pub fn probe(&self) -> Probe {
        self.probe.clone()
    }

    /// Waits until the node holds what it was last told to, at most `patience`. Says whether it does.
    pub async fn in_step(&mut self, patience: Duration) -> bool {
        let reached = self.view.wait_for(|view| view.in_step_at.is_some() && view.pending == 0);
        matches!(tokio::time::timeout(patience, reached).await, Ok(Ok(_)))
    }
}

/// Starts the applier of a node.
#[must_use]
pub fn spawn(node: &Node, variables: &Variables, link: &Link, clock: Clock, tasks: &Tasks) -> Applier {
    let astdb = (node.kind == PbxKind::Asterisk && node.astdb)
        .then(|| AstDb { family: variables.prefix.trim_end_matches('_').to_owned(), expiry: variables.astdb_expiry });
    let wanted = Wanted { desired: Arc::default(), cause_at: clock.now(), restarts: 0 };
    let (wanted, asked) = watch::channel(wanted);
    let (shown, view) = watch::channel(VariablesView::default());
    let reconciler = Reconciler::new(variables.reconcile_every, astdb);
    let task = Task {
        node: node.id.clone(),
        reconciler: match node.kind {
            PbxKind::Asterisk => reconciler,
            PbxKind::FreeSwitch => reconciler.ignoring_case(),
        },
        commander: link.commander.clone(),
        under_way: UnderWay::default(),
        restarts: 0,
        was_up: false,
        clock,
        shown,
    };
    let probe = Probe {
        node: node.id.clone(),
        kind: node.kind,
        wanted: wanted.subscribe(),
        link: link.view.clone(),
        commander: link.commander.clone(),
    };
    let (link, stopping) = (link.view.clone(), tasks.clone());
    tasks.spawn(async move { task.run(asked, link, &stopping).await });
    Applier { wanted, view, probe }
}

struct Task {
    node: NodeId,
    reconciler: Reconciler,
    commander: Commander,
    under_way: UnderWay,
    restarts: u64,
    was_up: bool,
    clock: Clock,
    shown: watch::Sender<VariablesView>,
}

impl Task {
    async fn run(mut self, mut asked: watch::Receiver<Wanted>, mut link: watch::Receiver<LinkView>, tasks: &Tasks) {
        loop {
            self.send();
            self.shown.send_if_modified(|shown| {
                let now = self.reconciler.view();
                std::mem::replace(shown, now) != now
            });
            let due = self.reconciler.deadline().filter(|_| self.was_up);
            let until_due = due.map_or(LONGEST_SLEEP, |at| self.clock.real_time_until(at));
            tokio::select! {
                (purpose, answer) = self.under_way.next() => self.answered(purpose, answer),
                Ok(()) = asked.changed() => self.want(&asked.borrow_and_update()),
                Ok(()) = link.changed() => self.link_changed(link.borrow_and_update().state),
                () = sleep(until_due.min(LONGEST_SLEEP)) => {}
                () = tasks.stopping() => return,
            }
        }
    }

    fn send(&mut self) {
        if !self.was_up {
            return;
        }
        while let Some((purpose, command)) = self.reconciler.next(self.clock.now()) {
            self.under_way.push(purpose, self.commander.submit(command));
        }
    }

    fn want(&mut self, wanted: &Wanted) {
        if std::mem::replace(&mut self.restarts, wanted.restarts) != wanted.restarts {
            self.reconciler.forget();
        }
        self.reconciler.want(wanted.desired.clone(), wanted.cause_at);
    }

    fn link_changed(&mut self, state: LinkState) {
        let is_up = matches!(state, LinkState::Synchronising | LinkState::Up);
        if is_up && !self.was_up {
            self.reconciler.forget();
        }
        self.was_up = is_up;
    }

    fn answered(&mut self, purpose: Purpose, answer: CommandResult) {
        match self.reconciler.answered(purpose, answer, self.clock.now()) {
            None => {}
            Some(Finding::Changed { name, ours, found }) => tracing::warn!(
                node.id = %self.node,
                "{}: somebody set {name} to {:?}; it is put back to {:?}",
                self.node,
                found.unwrap_or_default(),
                ours.unwrap_or_default(),
            ),
            Some(Finding::Refused { name, error }) => tracing::error!(
                node.id = %self.node,
                %error,
                "{}: the variable {name} cannot be kept: {error}; it is tried again at the next comparison",
                self.node,
            ),
        }
    }
}

/// The commands under way, in the order sent, which is the order of their answers.
#[derive(Default)]
struct UnderWay(VecDeque<(Purpose, oneshot::Receiver<CommandResult>)>);

impl UnderWay {
    fn push(&mut self, purpose: Purpose, answer: oneshot::Receiver<CommandResult>) {
        self.0.push_back((purpose, answer));
    }

    /// The next answer; waits for ever while nothing is under way. Nothing is lost when the wait is given up.
    async fn next(&mut self) -> (Purpose, CommandResult) {
        let answer = match self.0.front_mut() {
            Some((_, answer)) => answer.await.unwrap_or(Err(CommandError::LinkLost)),
            None => pending().await,
        };
        match self.0.pop_front() {
            Some((purpose, _)) => (purpose, answer),
            None => pending().await,
        }
    }
}
