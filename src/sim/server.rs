//! The sockets of a simulated PBX: accepts, reads commands, writes answers and events, and does on the wire whatever
//! is to go wrong there.
//!
//! One task serves one connection, as one thread does in both real servers: what it writes is written in order, and
//! while it writes or waits it neither reads nor sends events.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::sim::fault::{Act, Conditions};
use crate::sim::pbx::{Dialect, Output, Pbx, Receivers, Session, Shared};

/// Connections at one time; a client that loops must not eat the machine.
const MAX_CONNECTIONS: usize = 256;

/// Bytes of answers held back while the PBX is to be silent; what is beyond is lost.
const HELD_ANSWERS: usize = 1 << 20;

/// Longest command line accepted before the connection is given up.
const MAX_INPUT: usize = 1 << 20;

/// Filler of a frame that is too large, written again and again.
const FILLER: [u8; 16 * 1024] = [b'x'; 16 * 1024];

/// How long to wait before the port is tried again, where somebody else holds it.
const REBIND_PAUSE: Duration = Duration::from_millis(20);

/// Accepts until the tasks stop; closes the port while connections are to be refused.
pub(crate) async fn accept<D: Dialect>(shared: Arc<Shared<D>>, first: TcpListener) {
    let mut listener = Some(first);
    let mut conditions = shared.conditions.subscribe();
    loop {
        let refuse = conditions.borrow_and_update().refuse_connections;
        if refuse {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(shared.address).await.ok();
        }
        tokio::select! {
            () = shared.tasks.stopping() => return,
            _ = conditions.changed() => (),
            () = tokio::time::sleep(REBIND_PAUSE), if listener.is_none() && !refuse => (),
            accepted = accept_on(listener.as_ref()), if listener.is_some() => {
                if let Ok((stream, peer)) = accepted {
                    welcome(&shared, stream, peer);
                }
            }
        }
    }
}

async fn accept_on(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

fn welcome<D: Dialect>(shared: &Arc<Shared<D>>, stream: TcpStream, peer: SocketAddr) {
    if shared.peek(Pbx::connections) >= MAX_CONNECTIONS {
        return;
    }
    // Real servers write event by event as well; a failure would only cost latency.
    let _ = stream.set_nodelay(true);
    let (id, receivers) = shared.with(Pbx::connect);
    let session = shared.peek(|pbx| pbx.dialect.session(id, peer));
    let task = Arc::clone(shared);
    shared.tasks.spawn(async move {
        let (reader, writer) = stream.into_split();
        let Receivers { events, acts } = receivers;
        let conditions = task.conditions.subscribe();
        let mut connection = Connection {
            id,
            session,
            writer: Writer {
                id,
                shared: Arc::clone(&task),
                socket: writer,
                acts,
                conditions,
                held: Vec::new(),
                halve_next: false,
            },
            reader,
            events,
            buffer: BytesMut::new(),
            shared: Arc::clone(&task),
        };
        if let Err(Gone::Reset) = connection.converse().await {
            connection.reset();
        }
        task.with(|pbx| pbx.disconnect(id));
    });
}

/// The connection is over: the peer, an act or a failure ended it.
enum Gone {
    Closed,
    /// It is to end with a reset.
    Reset,
}

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

struct Connection<D: Dialect> {
    id: u64,
    session: D::Session,
    writer: Writer<D>,
    reader: OwnedReadHalf,
    events: mpsc::Receiver<Bytes>,
    buffer: BytesMut,
    shared: Arc<Shared<D>>,
}

impl<D: Dialect> Connection<D> {
    /// Ends with RST instead of FIN.
    fn reset(self) {
        // Without linger the system discards what is unsent and resets; a failure leaves an ordinary close.
        let _ = socket2::SockRef::from(self.writer.socket.as_ref()).set_linger(Some(Duration::ZERO));
        // Dropping this half would send FIN before.
        self.writer.socket.forget();
    }

    async fn converse(&mut self) -> Result<(), Gone> {
        let mut conditions = self.shared.conditions.subscribe();
        while conditions.borrow_and_update().mute {
            self.ignore_input(&mut conditions).await?;
        }
        let now = conditions.borrow_and_update().clone();
        let greeting = self.shared.with(|pbx| self.session.greet(pbx, &now));
        self.perform(greeting).await?;
        loop {
            self.answer_commands().await?;
            let Conditions { silent, deaf, .. } = *conditions.borrow_and_update();
            if !silent {
                self.writer.release().await?;
            }
            let events_flow = !silent && self.session.takes_events(&self.buffer);
            tokio::select! {
                biased;
                () = self.shared.tasks.stopping() => return Ok(()),
                Some(act) = self.writer.acts.recv() => {
                    if act == Act::Close && !silent {
                        self.say_what_is_left().await?;
                    }
                    self.writer.act(act).await?;
                }
                _ = conditions.changed() => (),
                read = self.reader.read_buf(&mut self.buffer), if !deaf => {
                    if read? == 0 || self.buffer.len() > MAX_INPUT {
                        return Ok(());
                    }
                }
                Some(event) = self.events.recv(), if events_flow => self.writer.event(&event).await?,
            }
        }
    }

    /// Sends the events that were there before the end.
    async fn say_what_is_left(&mut self) -> Result<(), Gone> {
        while let Ok(event) = self.events.try_recv() {
            self.writer.event(&event).await?;
        }
        Ok(())
    }

    /// Reads and forgets until the conditions change.
    async fn ignore_input(&mut self, conditions: &mut watch::Receiver<Conditions>) -> Result<(), Gone> {
        tokio::select! {
            () = self.shared.tasks.stopping() => Err(Gone::Closed),
            Some(act) = self.writer.acts.recv() => self.writer.act(act).await,
            _ = conditions.changed() => Ok(()),
            read = self.reader.read_buf(&mut self.buffer) => {
                self.buffer.clear();
                if read? == 0 { Err(Gone::Closed) } else { Ok(()) }
            }
        }
    }

    async fn answer_commands(&mut self) -> Result<(), Gone> {
        while let Some(command) = self.session.take(&mut self.buffer) {
            let at = self.shared.clock.now();
            let conditions = self.shared.conditions.borrow().clone();
            if !conditions.delay_replies.is_zero() {
                self.writer.pause(conditions.delay_replies).await?;
            }
            let outputs = self.shared.with(|pbx| {
                pbx.note(self.id, at, D::Session::describe(&command));
                self.session.answer(pbx, at, &conditions, &command)
            });
            self.perform(outputs).await?;
        }
        Ok(())
    }

    async fn perform(&mut self, outputs: Vec<Output>) -> Result<(), Gone> {
        for output in outputs {
            match output {
                Output::Say(bytes) => self.writer.reply(&bytes).await?,
                Output::Wait(span) => self.writer.pause(span / self.shared.clock.rate()).await?,
                Output::Close => return Err(Gone::Closed),
            }
        }
        Ok(())
    }
}

/// The writing half, with everything that can go wrong there.
struct Writer<D: Dialect> {
    id: u64,
    shared: Arc<Shared<D>>,
    socket: OwnedWriteHalf,
    acts: mpsc::Receiver<Act>,
    conditions: watch::Receiver<Conditions>,
    held: Vec<u8>,
    halve_next: bool,
}

impl<D: Dialect> Writer<D> {
    async fn reply(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if self.conditions.borrow().silent {
            let room = HELD_ANSWERS.saturating_sub(self.held.len());
            self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return Ok(());
        }
        self.put(bytes, 0).await
    }

    /// Sends what silence held back.
    async fn release(&mut self) -> Result<(), Gone> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() { Ok(()) } else { self.put(&held, 0).await }
    }

    async fn event(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if self.halve_next {
            self.put(&bytes[..bytes.len() / 2], 0).await?;
            return Err(Gone::Closed);
        }
        self.put(bytes, 1).await
    }

    async fn act(&mut self, act: Act) -> Result<(), Gone> {
        match act {
            Act::Close => Err(Gone::Closed),
            Act::Reset => Err(Gone::Reset),
            Act::Garbage(bytes) => self.put(&bytes, 0).await,
            Act::HalfFrame => {
                self.halve_next = true;
                Ok(())
            }
            Act::HugeFrame(bytes) => self.huge(bytes).await,
        }
    }

    async fn huge(&mut self, mut left: u64) -> Result<(), Gone> {
        self.put(&D::huge_frame(left), 0).await?;
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(FILLER.len());
            self.put(&FILLER[..part], 0).await?;
            left -= part as u64;
        }
        Ok(())
    }

    /// Writes, in pieces where that is to be; an end of the connection interrupts it.
    async fn put(&mut self, bytes: &[u8], events: u64) -> Result<(), Gone> {
        let trickle = self.conditions.borrow().trickle;
        let (piece, pause) = trickle.unwrap_or((bytes.len().max(1), Duration::ZERO));
        for part in bytes.chunks(piece) {
            tokio::select! {
                written = self.socket.write_all(part) => written?,
                () = self.shared.tasks.stopping() => return Err(Gone::Closed),
                gone = ended(&mut self.acts) => return Err(gone),
            }
            if !pause.is_zero() {
                self.pause(pause).await?;
            }
        }
        self.shared.with(|pbx| pbx.ledger.sent(self.id, bytes.len(), events));
        Ok(())
    }

    async fn pause(&mut self, span: Duration) -> Result<(), Gone> {
        tokio::select! {
            () = tokio::time::sleep(span) => Ok(()),
            () = self.shared.tasks.stopping() => Err(Gone::Closed),
            gone = ended(&mut self.acts) => Err(gone),
        }
    }
}

/// Resolves when a connection that is busy writing is to end; other acts that come meanwhile are of no use to it.
async fn ended(acts: &mut mpsc::Receiver<Act>) -> Gone {
    loop {
        match acts.recv().await {
            Some(Act::Close) => return Gone::Closed,
            Some(Act::Reset) => return Gone::Reset,
            Some(_) => (),
            None => std::future::pending().await,
        }
    }
}
