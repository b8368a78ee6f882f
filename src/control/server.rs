//! Answering on the control socket.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::{ControlError, MAX_CLIENTS, MAX_PATH, MAX_REQUEST, PATIENCE, Reply, Request, Response};
use crate::clock::Clock;
use crate::dialplan::readback::Probes;
use crate::dialplan::report::report;
use crate::engine::reload::{Failed, Order, Reloader};
use crate::engine::request::{self as engine, By, Desk};
use crate::engine::view::View;
use crate::notify::run::{OutboxDesk, Refused, Which};
use crate::tasks::Tasks;
use crate::xds::clients::Registry;

/// What follows the name of the socket while it is being made.
const NEW: &str = ".new";

/// Pause after the system refused to accept a client (no file descriptor left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why there are no clients of an xDS server.
const NO_XDS: &str = "no xDS server is configured: it takes a section `xds` in the configuration";

/// Makes the socket `path` and answers on it until the tasks stop; then the socket is removed.
///
/// # Errors
/// [`ControlError::AlreadyRunning`] where somebody answers there; see the other variants. A socket that a dead process
/// left is replaced.
pub async fn serve(
    path: &Path,
    view: watch::Receiver<Arc<View>>,
    outbox: OutboxDesk,
    engine: Engine,
    tasks: &Tasks,
) -> Result<(), ControlError> {
    let socket = Socket::bind(path)?;
    let sources = Sources { view, outbox, engine };
    let server = Server { sources, tasks: tasks.clone(), clients: Arc::new(Semaphore::new(MAX_CLIENTS)) };
    tasks.spawn(server.run(socket));
    Ok(())
}

/// A bound socket, removed when dropped.
struct Socket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
    /// Held for as long as the socket is ours; the system lets go of it however the process ends.
    _lock: File,
}

impl Socket {
    fn bind(path: &Path) -> Result<Self, ControlError> {
        if path.as_os_str().len() > MAX_PATH {
            return Err(ControlError::PathTooLong(path.into()));
        }
        let bind = |source| ControlError::Bind { path: path.into(), source };
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(bind)?;
        }
        let lock = lock(path)?;
        refuse_to_replace(path)?;
        let (listener, inode) = bind_privately(path).map_err(bind)?;
        Ok(Self { listener, path: path.into(), inode, _lock: lock })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Only if it is still ours: an operator may have put another in its place.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Takes the lock beside the socket, which keeps two instances that start at one time apart. The lock file stays:
/// removing it would let two processes each hold "the" lock.
fn lock(path: &Path) -> Result<File, ControlError> {
    let lock_path = beside(path, ".lock");
    let bind = |source| ControlError::Bind { path: lock_path.clone(), source };
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path).map_err(bind)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ControlError::AlreadyRunning(path.into())),
        Err(TryLockError::Error(source)) => Err(bind(source)),
    }
}

/// Errors where `path` is something that must not be replaced: a file, or a socket that somebody answers on.
fn refuse_to_replace(path: &Path) -> Result<(), ControlError> {
    let bind = |source| ControlError::Bind { path: path.into(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(bind(error)),
        Ok(found) if !found.file_type().is_socket() => Err(ControlError::NotASocket(path.into())),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(ControlError::AlreadyRunning(path.into())),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
            Err(error) => Err(bind(error)),
        },
    }
}

/// Binds under another name, takes the permissions away from everybody else, and only then gives the socket its name:
/// nobody can connect in between, and a stale socket is replaced in one step.
fn bind_privately(path: &Path) -> io::Result<(UnixListener, u64)> {
    let temporary = beside(path, NEW);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(0o600))?;
    let inode = fs::symlink_metadata(&temporary)?.ino();
    fs::rename(&temporary, path)?;
    Ok((listener, inode))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What is asked for the answers.
#[derive(Clone)]
struct Sources {
    view: watch::Receiver<Arc<View>>,
    outbox: OutboxDesk,
    engine: Engine,
}

/// The way to the engine, and its clock.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The way.
    pub desk: Desk,
    /// Its clock.
    pub clock: Clock,
    /// The way to the variables that the nodes hold.
    pub probes: Probes,
    /// The way to another configuration.
    pub reloader: Reloader,
    /// Who is at the xDS server; `None` where there is none.
    pub xds: Option<Registry>,
}

impl Engine {
    /// Asks for what `request` makes of who asks and why.
    async fn ask(&self, who: &str, why: &str, request: impl FnOnce(By) -> engine::Request) -> Response {
        let done = match By::new(who, why) {
            Ok(by) => self.desk.ask(request(by)).await,
            Err(refused) => Err(refused),
        };
        done.map_or_else(|refused| Response::Refused(refused.to_string()), |()| Response::Done)
    }

    async fn reload(&self, dry_run: bool, who: &str, why: &str) -> Response {
        let done = match By::new(who, why) {
            Ok(by) => self.reloader.reload(Order { dry_run, by }).await,
            Err(refused) => Err(refused.into()),
        };
        match done {
            Ok(reloaded) => Response::Reloaded(reloaded),
            Err(Failed::Unusable { text, problems }) => Response::Unusable { text, problems },
            Err(failed) => Response::Refused(failed.to_string()),
        }
    }
}

struct Server {
    sources: Sources,
    tasks: Tasks,
    clients: Arc<Semaphore>,
}

impl Server {
    async fn run(self, socket: Socket) {
        loop {
            let accepted = tokio::select! {
                accepted = socket.listener.accept() => accepted,
                () = self.tasks.stopping() => return,
            };
            match accepted {
                Ok((stream, _)) => self.welcome(stream),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client on the control socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn welcome(&self, stream: UnixStream) {
        let permit = Arc::clone(&self.clients).try_acquire_owned().ok();
        let tasks = self.tasks.clone();
        let sources = self.sources.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                // A client that goes away or stops reading is its own affair.
                _ = converse(stream, sources, permit) => {}
                () = tasks.stopping() => {}
            }
        });
    }
}

async fn converse(stream: UnixStream, sources: Sources, permit: Option<OwnedSemaphorePermit>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    if permit.is_none() {
        let full = Response::Refused(format!("{MAX_CLIENTS} clients are connected already; try again in a moment"));
        return send(&mut writer, full).await;
    }
    let mut reader = BufReader::new(reader);
    loop {
        let line = match read_line(&mut reader).await? {
            Line::Complete(line) => line,
            Line::TooLong => {
                let too_long = format!("a request may have at most {MAX_REQUEST} bytes");
                return send(&mut writer, Response::Refused(too_long)).await;
            }
            Line::End => return Ok(()),
        };
        let response = answer(&line, &sources).await;
        send(&mut writer, response).await?;
    }
}

async fn answer(line: &[u8], sources: &Sources) -> Response {
    let outbox = &sources.outbox;
    match serde_json::from_slice(line) {
        Ok(Request::Ping) => Response::Pong,
        Ok(Request::Status) => Response::Status(Arc::clone(&sources.view.borrow())),
        Ok(Request::XdsClients) => match &sources.engine.xds {
            Some(registry) => Response::Xds(Box::new(registry.view())),
            None => Response::Refused(NO_XDS.to_owned()),
        },
        Ok(Request::Outbox { all }) => outbox.list(all).await.map_or_else(|why| refused(&why), Response::Outbox),
        Ok(Request::OutboxRetry { letter }) => {
            outbox.retry(which(letter)).await.map_or_else(|why| refused(&why), Response::Deliveries)
        }
        Ok(Request::OutboxDrop { letter }) => {
            outbox.discard(which(letter)).await.map_or_else(|why| refused(&why), Response::Deliveries)
        }
        Ok(Request::SetNode { node, admin, who, why }) => {
            sources.engine.ask(&who, &why, |by| engine::Request::SetAdmin { node, admin, by }).await
        }
        Ok(Request::Pin { key, pin, for_sec, who, why }) => {
            let until = for_sec.map(|seconds| sources.engine.clock.now().after(Duration::from_secs(seconds)));
            sources.engine.ask(&who, &why, |by| engine::Request::Pin { key, pin, until, by }).await
        }
        Ok(Request::Reset { key, who, why }) => {
            sources.engine.ask(&who, &why, |by| engine::Request::Reset { key, by }).await
        }
        Ok(Request::TestCall(question)) => {
            let view = Arc::clone(&sources.view.borrow());
            match question.answer(&view.maps) {
                Ok(answer) => Response::TestCall(Box::new(answer)),
                Err(why) => Response::Refused(why.to_string()),
            }
        }
        Ok(Request::ReloadRouteMaps { dry_run, who, why }) => sources.engine.reload(dry_run, &who, &why).await,
        Ok(Request::TestDialplan(question)) => {
            let view = Arc::clone(&sources.view.borrow());
            match report(&question, &view, &sources.engine.probes).await {
                Ok(report) => Response::TestDialplan(Box::new(report)),
                Err(why) => Response::Refused(why.to_string()),
            }
        }
        Err(error) => Response::Refused(format!(
            "not understood: {error}; this is pointsman {}, is yours of another version?",
            env!("CARGO_PKG_VERSION")
        )),
    }
}

fn which(letter: Option<u64>) -> Which {
    letter.map_or(Which::Dead, Which::Letter)
}

fn refused(why: &Refused) -> Response {
    Response::Refused(why.to_string())
}

enum Line {
    Complete(Vec<u8>),
    TooLong,
    End,
}

async fn read_line(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Line> {
    let mut line = Vec::new();
    let limit = MAX_REQUEST as u64 + 1;
    timeout(PATIENCE, reader.take(limit).read_until(b'\n', &mut line)).await??;
    Ok(match line.last() {
        Some(b'\n') => Line::Complete(line),
        Some(_) if line.len() > MAX_REQUEST => Line::TooLong,
        _ => Line::End,
    })
}

async fn send(writer: &mut OwnedWriteHalf, response: Response) -> io::Result<()> {
    let reply = Reply { version: env!("CARGO_PKG_VERSION").into(), pid: std::process::id(), response };
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    timeout(PATIENCE, writer.write_all(&line)).await??;
    Ok(())
}
