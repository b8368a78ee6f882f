//! The task that owns the outbox: it takes notices, watches the picture for what the operator must know, composes,
//! stores, and tries one delivery at a time.
//!
//! A letter is stored, and the store flushed, before it is tried for the first time; a delivery is noted when the
//! server has taken it. So a crash repeats at most the one delivery that was under way, with the same Message-ID. A
//! database that does not work holds up no mail.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lettre::Address;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::config::model::{Config, Email};
use crate::engine::view::{MailView, View};
use crate::notify::compose::{Composed, Composer};
use crate::notify::conditions::Conditions;
use crate::notify::desk::Desk;
use crate::notify::kept::{Kept, KeptKey, KeptKind, Thread};
use crate::notify::letter::{Delivery, DeliveryState, Failure, Letter};
use crate::notify::message;
use crate::notify::notice::{Condition, Notice, Subject};
use crate::notify::outbox::{Changed, Outbox, Ticket};
use crate::notify::render::Templates;
use crate::notify::transport::Transport;
use crate::store::{StoreOp, Writer};
use crate::tasks::Tasks;

/// Notices that wait for the task, which takes them at once whatever the mail server does. More than every connection
/// of a large configuration changing at once.
const INBOX: usize = 10_000;

/// Requests of operators that wait for an answer.
const REQUESTS: usize = 16;

/// How long a letter waits to be stored before it is tried all the same.
const STORING: Duration = Duration::from_secs(2);

/// How long a delivery that is under way is waited for at the end. What is broken off is tried again after the next
/// start.
const LAST_DELIVERY: Duration = Duration::from_secs(2);

/// How often the picture is looked at. It is made anew ten times a second; no mail need be that quick, and each look
/// goes over the whole outbox.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Notices taken in one go, for the same reason.
const BATCH: usize = 256;

/// What an operator asks of the outbox.
#[derive(Debug)]
enum Request {
    List { all: bool, answer: oneshot::Sender<Vec<Letter>> },
    Retry { which: Which, answer: oneshot::Sender<Option<usize>> },
    Discard { which: Which, answer: oneshot::Sender<Option<usize>> },
}

/// Which deliveries an operator means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those of the letter of that number.
    Letter(u64),
    /// All that are dead.
    Dead,
}

/// Why an operator's request was not done.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No mail is sent at all.
    #[error("no mail is sent: the configuration has no [email]")]
    NoMail,
    /// The task has ended, or does not answer.
    #[error("the outbox is closed; pointsman is stopping")]
    Closed,
    /// There is no such letter.
    #[error("there is no mail {0} in the outbox; `pointsman outbox --all` lists them")]
    NoSuchLetter(u64),
}

/// The way to the outbox for whoever serves operators. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct OutboxDesk {
    requests: Option<mpsc::Sender<Request>>,
}

impl OutboxDesk {
    /// The letters that are not settled, or all that are kept, oldest first.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn list(&self, all: bool) -> Result<Vec<Letter>, Refused> {
        self.ask(|answer| Request::List { all, answer }).await
    }

    /// Has letters tried now. Says how many deliveries that are.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn retry(&self, which: Which) -> Result<usize, Refused> {
        found(which, self.ask(|answer| Request::Retry { which, answer }).await?)
    }

    /// Has letters not tried any more. Says how many deliveries that are.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn discard(&self, which: Which) -> Result<usize, Refused> {
        found(which, self.ask(|answer| Request::Discard { which, answer }).await?)
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, Refused> {
        let requests = self.requests.as_ref().ok_or(Refused::NoMail)?;
        let (answer, answered) = oneshot::channel();
        requests.send(request(answer)).await.map_err(|_| Refused::Closed)?;
        answered.await.map_err(|_| Refused::Closed)
    }
}

fn found(which: Which, deliveries: Option<usize>) -> Result<usize, Refused> {
    match (which, deliveries) {
        (_, Some(deliveries)) => Ok(deliveries),
        (Which::Letter(number), None) => Err(Refused::NoSuchLetter(number)),
        (Which::Dead, None) => Ok(0),
    }
}

/// What the database holds of the outbox.
#[derive(Debug, Default)]
pub struct KeptMail {
    /// What it held when it was opened.
    pub at_start: Vec<Kept>,
    /// Where it could not be opened at the start: what it holds, once it can.
    pub late: Option<oneshot::Receiver<Vec<Kept>>>,
}

/// The handles of the task.
#[derive(Debug)]
pub struct Mail {
    notices: Option<mpsc::Sender<Notice>>,
    view: watch::Receiver<MailView>,
    desk: OutboxDesk,
}

impl Mail {
    /// Starts the task, where the configuration has mail. `config` shows the configuration in force, whose customers are
    /// those of the moment; how mail is sent stays as it was at the start. `kept` is what the database holds of the outbox,
    /// `pictures` what the engine publishes.
    #[must_use]
    pub fn start(
        config: watch::Receiver<Arc<Config>>,
        clock: Clock,
        kept: KeptMail,
        pictures: watch::Receiver<Arc<View>>,
        writer: &Writer,
        tasks: &Tasks,
    ) -> Self {
        let (view, seen) = watch::channel(MailView::default());
        let Some(email) = config.borrow().email.clone() else {
            return Self { notices: None, view: seen, desk: OutboxDesk::default() };
        };
        let (notices, inbox) = mpsc::channel(INBOX);
        let (requests, asked) = mpsc::channel(REQUESTS);
        let task = Task::new(config, email, clock, kept.at_start, writer.clone(), view);
        let (stopping, late) = (tasks.clone(), kept.late);
        tasks.spawn(async move { task.run(Inputs { inbox, asked, pictures, late }, &stopping).await });
        Self { notices: Some(notices), view: seen, desk: OutboxDesk { requests: Some(requests) } }
    }

    /// Hands a notice over; never waits. One that finds no room is told after the next start, from the database.
    pub fn tell(&self, notice: Notice) {
        let Some(notices) = &self.notices else { return };
        if let Err(mpsc::error::TrySendError::Full(notice)) = notices.try_send(notice) {
            tracing::error!(connection.id = %notice.key, "too many changes at once: the mail about this one is sent after the next start");
        }
    }

    /// How mail goes.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<MailView> {
        self.view.clone()
    }

    /// The way to the outbox.
    #[must_use]
    pub fn desk(&self) -> OutboxDesk {
        self.desk.clone()
    }
}

struct Inputs {
    inbox: mpsc::Receiver<Notice>,
    asked: mpsc::Receiver<Request>,
    pictures: watch::Receiver<Arc<View>>,
    late: Option<oneshot::Receiver<Vec<Kept>>>,
}

/// A delivery under way.
type Flight = Pin<Box<dyn Future<Output = (Ticket, Result<String, Failure>)> + Send>>;

struct Task {
    config: watch::Receiver<Arc<Config>>,
    email: Email,
    clock: Clock,
    writer: Writer,
    composer: Composer,
    desk: Desk,
    outbox: Outbox,
    /// `None` where the operator wants no mail.
    conditions: Option<Conditions>,
    /// What is due and not tried yet.
    tickets: VecDeque<Ticket>,
    /// `None` until it is needed, and after the server could not be used: then everything about it is read anew.
    transport: Option<Arc<Transport>>,
    view: watch::Sender<MailView>,
    /// Which mails of owners are dead, in words; empty where none is.
    dead: String,
}

impl Task {
    fn new(
        config: watch::Receiver<Arc<Config>>,
        email: Email,
        clock: Clock,
        kept: Vec<Kept>,
        writer: Writer,
        view: watch::Sender<MailView>,
    ) -> Self {
        let Sorted { notices, letters, threads } = sorted(kept);
        let mut desk = Desk::new(email.digest_after, email.digest_window);
        notices.into_iter().for_each(|notice| desk.take(notice, clock.now()));
        let composer = Composer::new(templates(&email), threads);
        let at_start = config.borrow().clone();
        let told = composer.open_threads().filter_map(|thread| match &thread.about {
            Subject::Condition(condition) if is_configured(condition, &at_start) => {
                Some((condition.clone(), thread.since))
            }
            _ => None,
        });
        let watched = !at_start.operator.email.is_empty();
        let conditions = watched.then(|| Conditions::new(told, at_start.operator.node_down_after));
        let outbox = Outbox::new(letters, email.give_up_after, clock.now());
        let mut task = Self {
            config,
            email,
            clock,
            writer,
            composer,
            desk,
            outbox,
            conditions,
            tickets: VecDeque::new(),
            transport: None,
            view,
            dead: String::new(),
        };
        task.show();
        task
    }

    async fn run(mut self, mut inputs: Inputs, tasks: &Tasks) {
        let mut flight: Option<Flight> = None;
        let mut notices = Vec::with_capacity(BATCH);
        while !tasks.is_stopping() {
            self.compose();
            self.watch(&mut inputs.pictures);
            self.store();
            if flight.is_none() {
                flight = self.next_delivery();
            }
            let pause = if flight.is_some() { LOOK_EVERY } else { self.pause() };
            tokio::select! {
                1.. = inputs.inbox.recv_many(&mut notices, BATCH) => {
                    let now = self.clock.now();
                    notices.drain(..).for_each(|notice| self.desk.take(notice, now));
                }
                Some(request) = inputs.asked.recv() => self.answer(request),
                (ticket, outcome) = landing(&mut flight) => {
                    flight = None;
                    self.landed(&ticket, outcome);
                }
                Some(kept) = late(&mut inputs.late) => self.adopt(kept),
                () = sleep(pause) => {}
                () = tasks.stopping() => {}
            }
        }
        if let Some(flight) = flight
            && let Ok((ticket, outcome)) = timeout(LAST_DELIVERY, flight).await
        {
            self.landed(&ticket, outcome);
        }
        self.store();
    }

    /// Goes on with what a database holds that could not be read at the start.
    fn adopt(&mut self, kept: Vec<Kept>) {
        let now = self.clock.now();
        let Sorted { notices, letters, threads } = sorted(kept);
        notices.into_iter().for_each(|notice| self.desk.take(notice, now));
        threads.into_iter().for_each(|thread| self.composer.adopt(thread));
        self.outbox.adopt(letters, now);
    }

    /// How long there is nothing to do on our own.
    fn pause(&self) -> Duration {
        let next = self.desk.next_due().into_iter().chain(self.outbox.next_due()).min();
        next.map_or(LOOK_EVERY, |at| self.clock.real_time_until(at)).min(LOOK_EVERY)
    }

    /// Makes letters of what has waited long enough.
    fn compose(&mut self) {
        let now = self.clock.now();
        let config = self.config.borrow().clone();
        for bundle in self.desk.due(now) {
            let composed = self.composer.to_customer(&bundle, &config, &self.email, now);
            if composed.letter.is_none() {
                tracing::warn!(customer.id = %bundle.customer, "nobody to mail: the customer has no address any more");
            }
            self.post(composed);
        }
    }

    /// Makes letters of what the operator must know of. The picture with nothing on it, which is there until the engine
    /// has published one, is none to look at: on it everything is over.
    fn watch(&mut self, pictures: &mut watch::Receiver<Arc<View>>) {
        if !pictures.has_changed().unwrap_or(false) {
            return;
        }
        let now = self.clock.now();
        let picture = pictures.borrow_and_update().clone();
        let turns = self.conditions.as_mut().map(|conditions| conditions.look(&picture, &self.dead, now));
        let config = self.config.borrow().clone();
        for turn in turns.into_iter().flatten() {
            let composed = self.composer.to_operator(&turn, &config, &self.email, now);
            self.post(composed);
        }
    }

    /// Into the outbox and the database, in one transaction with what it replaces there.
    fn post(&mut self, composed: Composed) {
        let mut rows = composed.rows;
        if let Some(letter) = composed.letter {
            self.outbox.post(letter);
        }
        rows.extend(self.changed_rows());
        self.writer.write_all(rows);
    }

    fn changed_rows(&mut self) -> Vec<StoreOp> {
        let Changed { kept, gone } = self.outbox.take_changed();
        let gone = gone.into_iter().map(|name| StoreOp::MailGone(KeptKey { kind: KeptKind::Letter, name }));
        kept.into_iter().map(|letter| StoreOp::Mail(Kept::Letter(Box::new(letter)))).chain(gone).collect()
    }

    /// Stores what changed, and shows it.
    fn store(&mut self) {
        let rows = self.changed_rows();
        if !rows.is_empty() {
            self.writer.write_all(rows);
        }
        self.show();
    }

    fn next_delivery(&mut self) -> Option<Flight> {
        let now = self.clock.now();
        if self.tickets.is_empty() && self.outbox.next_due().is_some_and(|due| due <= now) {
            for ticket in self.outbox.give_up(now) {
                self.log_given_up(&ticket);
            }
            self.tickets = self.outbox.due(now).into();
        }
        while let Some(ticket) = self.tickets.pop_front() {
            if !self.outbox.is_open(now) {
                self.tickets.clear();
                return None;
            }
            let Some(letter) = self.outbox.letter(ticket.number) else { continue };
            let waits = |delivery: &&_| Ticket::of(letter, delivery) == ticket && delivery.is_waiting();
            if letter.deliveries.iter().find(waits).is_some() {
                return Some(self.deliver(letter.clone(), ticket));
            }
        }
        None
    }

    fn deliver(&mut self, letter: Letter, ticket: Ticket) -> Flight {
        let (email, writer) = (self.email.clone(), self.writer.clone());
        let transport = match &self.transport {
            Some(transport) => Ok(transport.clone()),
            None => Transport::new(&email).map(Arc::new).map_err(|error| Failure::Server(error.to_string())),
        };
        self.transport = transport.as_ref().ok().cloned();
        Box::pin(async move {
            if writer.health().borrow().healthy {
                writer.flush(STORING).await;
            }
            let outcome = match transport {
                Ok(transport) => send(&transport, &email, &letter, &ticket.address).await,
                Err(failure) => Err(failure),
            };
            (ticket, outcome)
        })
    }

    fn landed(&mut self, ticket: &Ticket, outcome: Result<String, Failure>) {
        if matches!(outcome, Err(Failure::Server(_))) {
            self.transport = None;
        }
        let was_down = self.outbox.server_problem().is_some();
        self.log(ticket, &outcome, was_down);
        let refused_for_good = matches!(outcome, Err(Failure::Permanent(_)));
        self.outbox.tried(ticket, outcome.map(drop), self.clock.now(), fastrand::f64());
        if !refused_for_good && self.delivery(ticket).is_some_and(Delivery::is_dead) {
            self.log_given_up(ticket);
        }
    }

    fn delivery(&self, ticket: &Ticket) -> Option<&Delivery> {
        let letter = self.outbox.letter(ticket.number)?;
        letter.deliveries.iter().find(|delivery| delivery.address == ticket.address)
    }

    fn log_given_up(&self, ticket: &Ticket) {
        let problem = self.delivery(ticket).map_or("", |delivery| delivery.problem.as_str());
        tracing::error!(letter = ticket.number, to = %ticket.address, %problem, "a mail was given up; see `pointsman outbox`");
    }

    fn log(&self, ticket: &Ticket, outcome: &Result<String, Failure>, was_down: bool) {
        let Ticket { number, address } = ticket;
        let subject = self.outbox.letter(*number).map_or("", |letter| letter.subject.as_str());
        match outcome {
            Ok(reply) => {
                if was_down {
                    tracing::info!("the mail server can be used again");
                }
                tracing::info!(letter = number, to = %address, %subject, %reply, "mail delivered");
            }
            Err(Failure::Server(problem)) if was_down => {
                tracing::debug!(%problem, "the mail server still cannot be used");
            }
            Err(Failure::Server(problem)) => tracing::warn!(%problem, "the mail server cannot be used; mail waits"),
            Err(Failure::Temporary(problem)) => {
                tracing::warn!(letter = number, to = %address, %problem, "a mail was refused for now");
            }
            Err(Failure::Permanent(problem)) => {
                tracing::error!(letter = number, to = %address, %problem, "a mail was refused for good; see `pointsman outbox`");
            }
        }
    }

    fn answer(&mut self, request: Request) {
        let now = self.clock.now();
        // Whoever asked may have gone away.
        match request {
            Request::List { all, answer } => {
                let letters = self.outbox.letters().filter(|letter| all || letter.is_open());
                let _ = answer.send(letters.map(Letter::without_body).collect());
            }
            Request::Retry { which, answer } => {
                let _ = answer.send(self.each(which, |outbox, number, meant| outbox.retry(number, meant, now)));
            }
            Request::Discard { which, answer } => {
                let _ = answer.send(self.each(which, |outbox, number, meant| outbox.discard(number, meant, now)));
            }
        }
    }

    fn each(
        &mut self,
        which: Which,
        act: impl Fn(&mut Outbox, u64, fn(&Delivery) -> bool) -> Option<usize>,
    ) -> Option<usize> {
        self.tickets.clear();
        match which {
            Which::Letter(number) => act(&mut self.outbox, number, Delivery::is_open),
            Which::Dead => {
                let dead = self.outbox.letters().filter(|letter| letter.is_dead());
                let numbers: Vec<u64> = dead.map(|letter| letter.number).collect();
                numbers.into_iter().map(|number| act(&mut self.outbox, number, Delivery::is_dead)).sum()
            }
        }
    }

    /// Brings what others see into step.
    fn show(&mut self) {
        let deliveries = |state| {
            let letters = self.outbox.letters();
            letters
                .flat_map(move |letter| letter.deliveries.iter().map(move |delivery| (letter, delivery)))
                .filter(move |(_, delivery)| delivery.state == state)
        };
        let dead: Vec<_> = deliveries(DeliveryState::Dead).filter(|(letter, _)| letter.customer.is_some()).collect();
        let words = dead
            .last()
            .map(|(_, last)| format!("{} not delivered; the last to {}: {}", dead.len(), last.address, last.problem));
        let problem = self.outbox.server_problem();
        let view = MailView {
            configured: true,
            via: self.email.via.to_string(),
            undecided: self.desk.len(),
            waiting: deliveries(DeliveryState::Waiting).count(),
            oldest_waiting_at: deliveries(DeliveryState::Waiting).map(|(letter, _)| letter.made_at).min(),
            dead: deliveries(DeliveryState::Dead).count(),
            sent: self.outbox.sent(),
            lost: self.outbox.overflowed(),
            problem: problem.map(|(problem, _)| problem.to_owned()).unwrap_or_default(),
            next_try_at: problem.map(|(_, at)| at),
        };
        self.dead = words.unwrap_or_default();
        self.view.send_if_modified(|shown| std::mem::replace(shown, view.clone()) != view);
    }
}

/// Waits for the delivery that is under way, for ever where none is.
async fn landing(flight: &mut Option<Flight>) -> (Ticket, Result<String, Failure>) {
    match flight {
        Some(flight) => flight.await,
        None => std::future::pending().await,
    }
}

/// Waits for mail that could not be read at the start, for ever where there is none to come.
async fn late(coming: &mut Option<oneshot::Receiver<Vec<Kept>>>) -> Option<Vec<Kept>> {
    let Some(receiver) = coming else { return std::future::pending().await };
    let kept = receiver.await.ok();
    *coming = None;
    kept
}

/// What is kept, by what it is.
#[derive(Default)]
struct Sorted {
    /// Oldest first.
    notices: Vec<Notice>,
    letters: Vec<Letter>,
    threads: Vec<Thread>,
}

fn sorted(kept: Vec<Kept>) -> Sorted {
    let mut sorted = Sorted::default();
    for kept in kept {
        match kept {
            Kept::Notice(notice) => sorted.notices.push(*notice),
            Kept::Letter(letter) => sorted.letters.push(*letter),
            Kept::Thread(thread) => sorted.threads.push(*thread),
        }
    }
    sorted.notices.sort_by_key(|notice| (notice.change.at, notice.change.epoch));
    sorted
}

async fn send(transport: &Transport, email: &Email, letter: &Letter, address: &str) -> Result<String, Failure> {
    let to: Address = address.parse().map_err(|error| Failure::Permanent(format!("{address}: {error}")))?;
    let message = message::compose(letter, email).map_err(|error| Failure::Permanent(error.to_string()))?;
    transport.deliver(&message, &to).await
}

/// The operator's templates, or the built-in ones where those cannot be used; the configuration was checked, so
/// somebody changed them since.
fn templates(email: &Email) -> Templates {
    let Some(folder) = &email.templates else { return Templates::built_in() };
    Templates::load(folder).unwrap_or_else(|problems| {
        for problem in problems {
            tracing::error!(%problem, "a mail template cannot be used; all mails use the built-in ones");
        }
        Templates::built_in()
    })
}

/// Whether a condition can still be over one day: what it is about is in the configuration.
fn is_configured(condition: &Condition, config: &Config) -> bool {
    match condition {
        Condition::NodeDown(node) => config.node(node).is_some(),
        Condition::AllBlocked(map) => config.route_maps.iter().any(|known| known.id == *map),
        Condition::Storage | Condition::DeadLetters => true,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Format, Purpose, load_text};
    use crate::ids::MapId;

    const CONFIG: &str = r#"
[[nodes]]
id = "pbx-01"
kind = "asterisk"
address = "127.0.0.1:5038"
username = "pointsman"
password = "secret"

[email]
from = "noc@operator.example"
sendmail = "/does/not/exist"

[operator]
email = "ops@operator.example"

[[connections]]
id = "vendor-a"

[[route_maps]]
id = "intl"
prefixes = ["00"]
entries = [{ connection = "vendor-a", priority = 10 }]
"#;

    fn config() -> Arc<Config> {
        match load_text(Path::new("x.toml"), CONFIG, Format::Toml, [], Purpose::Look) {
            Ok(loaded) => Arc::new(loaded.config),
            Err(problems) => panic!("{}", problems.render(false)),
        }
    }

    #[tokio::test]
    async fn what_was_told_before_a_restart_is_not_over_before_the_engine_has_published() {
        let (clock, tasks, writer) = (Clock::system(), Tasks::new(), Writer::detached("a test"));
        let condition = Condition::AllBlocked(MapId::new("intl").unwrap());
        let about = Subject::Condition(condition);
        let told = Thread { about, message_id: "began@operator.example".to_owned(), since: clock.now() };
        let (_engine, pictures) = watch::channel(Arc::new(View::empty(clock.now())));
        let kept = KeptMail { at_start: vec![Kept::Thread(Box::new(told))], late: None };
        let mail = Mail::start(watch::channel(config()).1, clock, kept, pictures, &writer, &tasks);
        // It answers only after it has looked around.
        assert_eq!(mail.desk().list(true).await, Ok(Vec::new()));
        assert_eq!(mail.desk().list(true).await, Ok(Vec::new()));
        assert!(tasks.stop(Duration::from_secs(10)).await);
    }
}
