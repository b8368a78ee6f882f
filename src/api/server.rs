//! Listening, and what bounds a connection.
//!
//! A connection is a task of its own. Its client has a limited time to send the head of a request, and to take what is
//! sent to it; so neither a client that sends a byte a minute nor one that stopped reading keeps its place.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_io_timeout::TimeoutStream;

use super::guard::{Guard, Peer};
use super::{Limits, Sources, app};
use crate::config::model::Http;
use crate::listen::{Door, Listening};
use crate::tasks::Tasks;

/// Longest head of a request. A token and what browsers add fit many times.
const MAX_HEAD: usize = 32 * 1024;

/// Most headers of a request; browsers send some twenty.
const MAX_HEADERS: usize = 100;

/// Most that the system keeps of what a client has not taken yet: many that take nothing must not cost gigabytes.
const SEND_BUFFER: usize = 256 * 1024;

/// The running server.
#[derive(Clone, Debug)]
pub struct Handle {
    listening: watch::Receiver<Listening>,
}

impl Handle {
    /// Whether it can be reached, now and whenever that changes.
    #[must_use]
    pub fn listening(&self) -> watch::Receiver<Listening> {
        self.listening.clone()
    }
}

/// Serves the API until the tasks stop. An address that cannot be used is tried again until it can.
pub fn serve(http: &Http, sources: Sources, tasks: &Tasks) -> Handle {
    serve_with(http, sources, Limits::default(), tasks)
}

/// [`serve`], with other limits.
pub fn serve_with(http: &Http, sources: Sources, limits: Limits, tasks: &Tasks) -> Handle {
    let places = Arc::new(Semaphore::new(limits.connections));
    let router = app::router(sources, Guard::new(http), limits, &places, tasks);
    let (listening, seen) = watch::channel(Listening::default());
    let door = Door { what: "the HTTP API", listen: http.listen, places, bind_again: limits.bind_again, listening };
    let server = Server { door, router, limits, tasks: tasks.clone() };
    tasks.spawn(server.run());
    Handle { listening: seen }
}

struct Server {
    door: Door,
    router: Router,
    limits: Limits,
    tasks: Tasks,
}

impl Server {
    async fn run(self) {
        let opened = |address| tracing::info!(%address, "the dashboard and the HTTP API are at http://{address}/");
        tokio::select! {
            () = self.door.open(opened, |stream, peer, place| self.welcome(stream, peer, place)) => {}
            () = self.tasks.stopping() => {}
        }
    }

    fn welcome(&self, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        let (router, limits, tasks) = (self.router.clone(), self.limits, self.tasks.clone());
        self.tasks.spawn(async move {
            converse(stream, peer, router, limits, &tasks).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, peer: SocketAddr, router: Router, limits: Limits, tasks: &Tasks) {
    // Answers are small, and an event is to leave at once.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    let inner = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        inner.call(request.map(Body::new))
    });
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(limits.head).max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD);
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(Box::pin(stream)), service));
    tokio::select! {
        ended = connection.as_mut() => return log_end(peer, ended),
        () = tasks.stopping() => connection.as_mut().graceful_shutdown(),
    }
    if let Ok(ended) = tokio::time::timeout(limits.grace, connection).await {
        log_end(peer, ended);
    }
}

/// A client that goes away, is too slow or talks nonsense is its own affair.
fn log_end(peer: SocketAddr, ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection to the HTTP API ended");
    }
}
