//! One task per stream: it reads what the client says, watches the resources, and sends what the dialogue wants sent.
//!
//! Nothing here waits for a client to read. What is to be sent goes into a queue that the dialogue cannot fill while the
//! client accepts or rejects what it gets; a client for which the queue is full, or that answers nothing in time, is ended.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::OptionFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::clients::{Presence, Registry};
use super::dialogue::{Delta, Dialogue, Fault, Sotw};
use super::guard::Guard;
use super::protocol::envoy::service::discovery::v3::aggregated_discovery_service_server::AggregatedDiscoveryService;
use super::protocol::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use super::resources::Resources;
use super::server::Line;
use super::view::ClientView;
use crate::clock::Clock;
use crate::tasks::Tasks;

/// Answers that wait for the client to read: one of each kind is under way, and one more of each may follow the word that
/// it was taken, before that was written.
const QUEUE: usize = 16;

/// How long a client may take to read why it is ended, before its connection is closed.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What is served: nothing until the first snapshot.
pub type Served = watch::Receiver<Option<Arc<Resources>>>;

/// The service, for all connections.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) served: Served,
    pub(super) registry: Registry,
    pub(super) guard: Arc<Guard>,
    /// Places for streams.
    pub(super) places: Arc<Semaphore>,
    pub(super) clock: Clock,
    pub(super) tasks: Tasks,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        self.open::<Sotw>(request)
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        self.open::<Delta>(request)
    }
}

impl Service {
    fn open<D: Dialogue>(
        &self,
        request: Request<Streaming<D::Request>>,
    ) -> Result<Response<Answers<D::Response>>, Status> {
        let line = request.extensions().get::<Line>().cloned().ok_or_else(|| Status::internal("no connection"))?;
        let who = self.admit(&request, &line)?;
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| self.refuse(&line, Code::ResourceExhausted, "too many streams are open"))?;
        let asker = who.clone().unwrap_or_else(|| line.peer.ip().to_canonical().to_string());
        let since = self.clock.now();
        let client = ClientView {
            stream: 0,
            node: String::new(),
            cluster: String::new(),
            software: String::new(),
            peer: line.peer.to_string(),
            who,
            protocol: D::PROTOCOL,
            since,
            subscriptions: Vec::new(),
            unserved: Vec::new(),
        };
        let (answers, queue) = mpsc::channel(QUEUE);
        let presence = self.registry.enter(client);
        let conversation = Conversation::<D> {
            incoming: request.into_inner(),
            answers,
            served: self.served.clone(),
            presence,
            line,
            asker,
            clock: self.clock,
            tasks: self.tasks.clone(),
            _place: place,
        };
        self.tasks.spawn(conversation.run());
        Ok(Response::new(Box::pin(ReceiverStream::new(queue))))
    }

    fn admit<T>(&self, request: &Request<T>, line: &Line) -> Result<Option<String>, Status> {
        let shown = request.metadata().get("authorization").map(|value| value.as_bytes());
        self.guard
            .admit(shown, line.certificate.as_deref())
            .map_err(|why| self.refuse(line, Code::Unauthenticated, why))
    }

    fn refuse(&self, line: &Line, code: Code, why: &str) -> Status {
        self.registry.refuse(line.peer.to_string(), why.to_owned());
        Status::new(code, why)
    }
}

/// A stream.
struct Conversation<D: Dialogue> {
    incoming: Streaming<D::Request>,
    answers: mpsc::Sender<Result<D::Response, Status>>,
    served: Served,
    presence: Presence,
    line: Line,
    /// Whom we know the client to be, whatever it calls itself.
    asker: String,
    clock: Clock,
    tasks: Tasks,
    _place: OwnedSemaphorePermit,
}

/// How a stream ends.
enum End {
    /// The client ends it.
    Gone(String),
    /// It is ended here, for what the client does.
    Dropped(Fault),
    /// The program stops.
    Stopping,
}

impl<D: Dialogue> Conversation<D> {
    async fn run(mut self) {
        let busy = self.line.busy();
        let end = match self.talk().await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        let status = match end {
            End::Gone(reason) => {
                return match self.line.fate().await {
                    Some(fate) => self.presence.ends(true, fate),
                    None => self.presence.ends(false, reason),
                };
            }
            End::Stopping => {
                self.presence.ends(false, "pointsman stops".to_owned());
                Status::unavailable("pointsman stops; subscribe again")
            }
            End::Dropped(fault) => {
                self.presence.tell(&fault);
                self.presence.ends(true, fault.to_string());
                Status::new(code(&fault), fault.to_string())
            }
        };
        drop(self.presence);
        let told = async {
            let _ = self.answers.send(Err(status)).await;
            self.answers.closed().await;
        };
        // Whoever does not even read why is on a connection that nothing can be said on any more.
        if timeout(LAST_WORD, told).await.is_err() {
            self.line.close();
        }
        drop(busy);
    }

    async fn talk(&mut self) -> Result<std::convert::Infallible, End> {
        let mut resources = self.first_resources().await?;
        let mut dialogue = D::open(&self.asker, self.clock.now());
        loop {
            let pause = dialogue.deadline().map(|at| sleep(self.clock.real_time_until(at)));
            let answers = tokio::select! {
                said = self.incoming.message() => {
                    let request = heard(said)?;
                    self.presence.take(&mut dialogue, request).map_err(End::Dropped)?;
                    dialogue.update(&resources, self.clock.now())
                }
                changed = self.served.changed() => {
                    changed.map_err(|_| End::Stopping)?;
                    if let Some(latest) = self.served.borrow_and_update().clone() {
                        resources = latest;
                    }
                    dialogue.update(&resources, self.clock.now())
                }
                Some(()) = OptionFuture::from(pause) => {
                    match dialogue.overdue(self.clock.now()) {
                        Some(fault) => return Err(End::Dropped(fault)),
                        None => Vec::new(),
                    }
                }
                () = self.answers.closed() => return Err(End::Gone("it closed the stream".to_owned())),
                () = self.tasks.stopping() => return Err(End::Stopping),
            };
            for answer in answers {
                self.answers.try_send(Ok(answer)).map_err(|_| End::Dropped(Fault::Full))?;
            }
            self.presence.show(&dialogue);
        }
    }

    /// Until there are any the client is not even read: it keeps what it has.
    async fn first_resources(&mut self) -> Result<Arc<Resources>, End> {
        tokio::select! {
            there = self.served.wait_for(Option::is_some) => {
                there.ok().and_then(|resources| resources.clone()).ok_or(End::Stopping)
            }
            () = self.answers.closed() => Err(End::Gone("it closed the stream".to_owned())),
            () = self.tasks.stopping() => Err(End::Stopping),
        }
    }
}

fn heard<T>(said: Result<Option<T>, Status>) -> Result<T, End> {
    match said {
        Ok(Some(request)) => Ok(request),
        Ok(None) => Err(End::Gone("it closed the stream".to_owned())),
        // What cannot be decoded, or is too long; what the connection does has a cause.
        Err(status) if status.source().is_none() && status.code() != Code::Cancelled => {
            Err(End::Dropped(Fault::Nonsense(status.message().to_owned())))
        }
        Err(_) => Err(End::Gone("its connection broke".to_owned())),
    }
}

fn code(fault: &Fault) -> Code {
    match fault {
        Fault::Nonsense(_) => Code::InvalidArgument,
        Fault::TooMuch(_) | Fault::Flood(_) => Code::ResourceExhausted,
        Fault::Silent(_) | Fault::Full => Code::DeadlineExceeded,
    }
}
