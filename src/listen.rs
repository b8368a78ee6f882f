//! Listening on an address, for every server of the program: one that is taken is tried again until it is free while
//! everything else goes on, and so many connections are served at a time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Pause after the system refused to accept a client (no file descriptor left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Clients that may wait in the system's queue until they are accepted: after a restart all of them come back at once, and one
/// that finds the queue full tries again after seconds.
const BACKLOG: u32 = 4096;

/// Whether a server can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// Where, while it listens.
    pub address: Option<SocketAddr>,
    /// Why it does not; empty while it does.
    pub problem: String,
}

/// Where a server lets its clients in.
pub(crate) struct Door {
    /// What the server is called in the log.
    pub(crate) what: &'static str,
    /// Where it is to listen.
    pub(crate) listen: SocketAddr,
    /// A place for each connection; further ones wait in the system's queue.
    pub(crate) places: Arc<Semaphore>,
    /// Pause before an address that is taken is tried again.
    pub(crate) bind_again: Duration,
    /// Who is told whether it can be reached.
    pub(crate) listening: watch::Sender<Listening>,
}

impl Door {
    /// Lets clients in, each with its place, and never ends. `opened` hears the address once.
    pub(crate) async fn open(
        &self,
        opened: impl FnOnce(SocketAddr),
        mut welcome: impl FnMut(TcpStream, SocketAddr, OwnedSemaphorePermit),
    ) {
        let listener = self.bind(opened).await;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // The places are never closed.
                    let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
                    welcome(stream, peer, place);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client of {}", self.what);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn bind(&self, opened: impl FnOnce(SocketAddr)) -> TcpListener {
        loop {
            match listen(self.listen).and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((address, listener)) => {
                    opened(address);
                    self.listening.send_replace(Listening { address: Some(address), problem: String::new() });
                    return listener;
                }
                Err(error) => self.tell_problem(&error.to_string()),
            }
            tokio::time::sleep(self.bind_again).await;
        }
    }

    /// In the log once, not at every try.
    fn tell_problem(&self, error: &str) {
        let problem = format!("{} cannot listen on {}: {error}", self.what, self.listen);
        let news = self.listening.send_if_modified(|listening| {
            let news = listening.problem != problem;
            problem.clone_into(&mut listening.problem);
            news
        });
        if news {
            tracing::error!("{problem}; everything else works, and this is tried again");
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of the program before that still linger are no reason to wait.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
