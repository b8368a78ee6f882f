//! Listening, and what bounds a connection.
//!
//! A connection is a task of its own. Its client has a limited time to say hello, to take what is sent to it and to open a
//! stream; so neither one that is half dead nor one that never wanted anything keeps its place.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::clients::Registry;
use super::guard::Guard;
use super::protocol::envoy::service::discovery::v3::aggregated_discovery_service_server::AggregatedDiscoveryServiceServer;
use super::resources::Resources;
use super::service::{Served, Service};
use super::tls::Identity;
use crate::clock::Clock;
use crate::config::model::{EdgeGroup, Xds, XdsTls};
use crate::edge::Snapshot;
use crate::listen::{Door, Listening};
use crate::tasks::Tasks;

/// Longest message of a client. Envoy lists all its extensions with its first, some 150 KB.
const MAX_MESSAGE: usize = 1024 * 1024;

/// Streams of one connection at a time; a client needs one, a proxy in between may carry those of several.
const STREAMS_A_CONNECTION: u32 = 64;

/// What a client may send of a stream, and of a connection, before it is read: its messages come one at a time.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;

/// Longest headers of a request: a token and what a proxy adds.
const MAX_HEADERS: u32 = 16 * 1024;

/// Most that waits to be written to one stream; an answer with a hundred nodes has 10 KB.
const SEND_BUFFER: usize = 256 * 1024;

/// How long a stream that lost its client waits for the connection to say why.
const FATE: Duration = Duration::from_millis(100);

/// What bounds the use of the server. The defaults are for production; tests make them smaller.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; further ones wait in the system's queue.
    pub connections: usize,
    /// Streams at a time; further ones are refused.
    pub streams: usize,
    /// How long a client may take for the TLS handshake, and afterwards to open a stream.
    pub hello: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub write: Duration,
    /// How often a silent client is asked whether it is there, and how long it may take to say so.
    pub keep_alive: Duration,
    /// Pause before a port that is taken is tried again.
    pub bind_again: Duration,
    /// How long what is under way at the end may still take.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 2048,
            streams: 2048,
            hello: Duration::from_secs(10),
            write: Duration::from_secs(30),
            keep_alive: Duration::from_secs(10),
            bind_again: Duration::from_secs(5),
            grace: Duration::from_secs(1),
        }
    }
}

/// The connection that a stream came over.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Where it comes from.
    pub(super) peer: SocketAddr,
    /// The name in the client's certificate, where it showed one.
    pub(super) certificate: Option<Arc<str>>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Streams that are open.
    streams: AtomicUsize,
    /// Whether there ever was one.
    had_streams: AtomicBool,
    /// It is to be closed, whatever is under way.
    closing: CancellationToken,
    /// It has ended.
    over: CancellationToken,
    /// Why it was ended here.
    fate: OnceLock<String>,
}

impl Line {
    /// Counts a stream until what is returned is dropped.
    pub(super) fn busy(&self) -> Busy {
        self.state.streams.fetch_add(1, Ordering::Relaxed);
        self.state.had_streams.store(true, Ordering::Relaxed);
        Busy(Arc::clone(&self.state))
    }

    /// Closes the connection, whatever is under way.
    pub(super) fn close(&self) {
        self.state.closing.cancel();
    }

    /// Why the connection was ended here, if it was: a stream hears that it has no client any more before that is known.
    pub(super) async fn fate(&self) -> Option<String> {
        let _ = timeout(FATE, self.state.over.cancelled()).await;
        self.state.fate.get().cloned()
    }

    fn had_streams(&self) -> bool {
        self.state.had_streams.load(Ordering::Relaxed)
    }

    /// The connection has ended: why that is worth telling, where no stream does.
    fn ended(&self, ended: hyper::Result<()>) -> Result<(), String> {
        let Err(error) = ended else { return Ok(()) };
        let silent = is_timeout(&error);
        if silent {
            let _ = self.state.fate.set("it did not answer when asked whether it is there".to_owned());
        }
        match (self.had_streams(), silent) {
            (true, _) => Ok(()),
            (false, true) => Err("it did not answer when asked whether it is there".to_owned()),
            (false, false) => Err(format!("no HTTP/2: {error}")),
        }
    }
}

/// Whether a client was waited for in vain: for a word, or for room to write.
fn is_timeout(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    error.is_timeout() || cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

/// A stream that is open on a connection.
pub(super) struct Busy(Arc<State>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves what edges are told until the tasks stop. An address that cannot be used is tried again until it can.
pub fn serve(
    xds: &Xds,
    groups: &[EdgeGroup],
    edge: watch::Receiver<Arc<Snapshot>>,
    clock: Clock,
    tasks: &Tasks,
) -> Registry {
    let served = translate(groups.to_vec(), edge, tasks);
    serve_with(xds, served, Limits::default(), clock, tasks)
}

/// [`serve`] with any resources, and other limits.
pub fn serve_with(xds: &Xds, served: Served, limits: Limits, clock: Clock, tasks: &Tasks) -> Registry {
    let (listening, seen) = watch::channel(Listening::default());
    let registry = Registry::new(seen, clock);
    let service = Service {
        served,
        registry: registry.clone(),
        guard: Arc::new(Guard::new(xds)),
        places: Arc::new(Semaphore::new(limits.streams)),
        clock,
        tasks: tasks.clone(),
    };
    let service = AggregatedDiscoveryServiceServer::new(service).max_decoding_message_size(MAX_MESSAGE);
    let server = Server {
        door: Door {
            what: "the xDS server",
            listen: xds.listen,
            places: Arc::new(Semaphore::new(limits.connections)),
            bind_again: limits.bind_again,
            listening,
        },
        tls: xds.tls.clone().map(|files| (files, !xds.tokens.is_empty())),
        router: Routes::new(service).into_axum_router(),
        registry: registry.clone(),
        limits,
        tasks: tasks.clone(),
    };
    tasks.spawn(server.run());
    registry
}

/// Makes resources of snapshots, from the first that there is.
fn translate(groups: Vec<EdgeGroup>, mut edge: watch::Receiver<Arc<Snapshot>>, tasks: &Tasks) -> Served {
    let (out, served) = watch::channel(None);
    let stopping = tasks.clone();
    let follow = async move {
        loop {
            let snapshot = Arc::clone(&edge.borrow_and_update());
            if snapshot.generation > 0 {
                out.send_replace(Some(Arc::new(Resources::of(&snapshot, &groups))));
            }
            if edge.changed().await.is_err() {
                return;
            }
        }
    };
    tasks.spawn(async move {
        tokio::select! {
            () = follow => {}
            () = stopping.stopping() => {}
        }
    });
    served
}

struct Server {
    door: Door,
    /// The files of its TLS, and whether a token will do for a certificate.
    tls: Option<(XdsTls, bool)>,
    router: Router,
    registry: Registry,
    limits: Limits,
    tasks: Tasks,
}

impl Server {
    async fn run(self) {
        tokio::select! {
            () = self.serve() => {}
            () = self.tasks.stopping() => {}
        }
    }

    async fn serve(&self) {
        let identity = match &self.tls {
            Some((files, or_token)) => Some(Identity::read(files.clone(), *or_token, &self.tasks).await),
            None => None,
        };
        let opened = |address| tracing::info!(%address, "edges subscribe by xDS at {address}");
        self.door.open(opened, |stream, peer, place| self.welcome(stream, peer, place, identity.clone())).await;
    }

    fn welcome(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
        identity: Option<Arc<Identity>>,
    ) {
        let visit = Visit {
            router: self.router.clone(),
            registry: self.registry.clone(),
            limits: self.limits,
            tasks: self.tasks.clone(),
            peer,
        };
        self.tasks.spawn(async move {
            if let Err(reason) = visit.receive(stream, identity).await {
                tracing::debug!(%peer, %reason, "a connection to the xDS server ended");
                visit.registry.refuse(peer.to_string(), reason);
            }
            drop(place);
        });
    }
}

/// A connection that is being served.
struct Visit {
    router: Router,
    registry: Registry,
    limits: Limits,
    tasks: Tasks,
    peer: SocketAddr,
}

impl Visit {
    async fn receive(&self, stream: TcpStream, identity: Option<Arc<Identity>>) -> Result<(), String> {
        if !self.speaks(&stream).await? {
            return Ok(());
        }
        // Answers are small, and a change is to leave at once.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.limits.write));
        let stream = Box::pin(stream);
        let Some(identity) = identity else { return self.converse(stream, None).await };
        let handshake = tokio::select! {
            handshake = timeout(self.limits.hello, identity.accept(stream)) => handshake,
            () = self.tasks.stopping() => return Ok(()),
        };
        let (stream, certificate) = handshake
            .map_err(|_| format!("no TLS handshake within {} s", self.limits.hello.as_secs()))?
            .map_err(|error| format!("no TLS: {error}"))?;
        self.converse(stream, certificate).await
    }

    /// Whether the client says anything: who looks whether the port is open connects and goes.
    async fn speaks(&self, stream: &TcpStream) -> Result<bool, String> {
        let mut byte = [0];
        tokio::select! {
            peeked = timeout(self.limits.hello, stream.peek(&mut byte)) => match peeked {
                Ok(Ok(bytes)) => Ok(bytes > 0),
                Ok(Err(_)) => Ok(false),
                Err(_) => Err(format!("it said nothing for {} s", self.limits.hello.as_secs())),
            },
            () = self.tasks.stopping() => Ok(false),
        }
    }

    async fn converse<S>(&self, stream: S, certificate: Option<Arc<str>>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let line = Line { peer: self.peer, certificate, state: Arc::default() };
        let _over = line.state.over.clone().drop_guard();
        let inner = TowerToHyperService::new(self.router.clone());
        let on = line.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(on.clone());
            inner.call(request.map(Body::new))
        });
        let mut connection = pin!(self.protocol().serve_connection(TokioIo::new(stream), service));
        let mut idle = interval(self.limits.hello);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        idle.reset();
        let mut was_idle = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => return line.ended(ended),
                () = line.state.closing.cancelled() => return Ok(()),
                _ = idle.tick() => {
                    let is_idle = line.state.streams.load(Ordering::Relaxed) == 0;
                    if is_idle && was_idle {
                        return if line.had_streams() { Ok(()) } else { Err("it opened no stream".to_owned()) };
                    }
                    was_idle = is_idle;
                }
                () = self.tasks.stopping() => break,
            }
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(self.limits.grace, connection).await;
        Ok(())
    }

    fn protocol(&self) -> http2::Builder<Spawner> {
        let mut protocol = http2::Builder::new(Spawner(self.tasks.clone()));
        protocol
            .timer(TokioTimer::new())
            .keep_alive_interval(self.limits.keep_alive)
            .keep_alive_timeout(self.limits.keep_alive)
            .max_concurrent_streams(STREAMS_A_CONNECTION)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADERS)
            .max_send_buf_size(SEND_BUFFER);
        protocol
    }
}

/// Spawns what a connection needs for its streams as a part of the server.
#[derive(Clone)]
struct Spawner(Tasks);

impl<F> Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
