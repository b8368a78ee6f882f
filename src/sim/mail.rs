//! A small mail server on loopback that takes what it is given, keeps it for whoever asks, and does whatever a mail
//! server can do wrong, step by step as told. `pointsman demo` shows mails by it, and the tests deliver to it.
//!
//! It speaks enough SMTP for one client: EHLO, STARTTLS, AUTH PLAIN and LOGIN, MAIL, RCPT, DATA, RSET, NOOP, QUIT.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::tasks::Tasks;

/// Connections at one time; a client that loops must not eat the machine.
const MAX_CONNECTIONS: usize = 64;

/// Longest line that is read; RFC 5321 lets clients send 1,000 bytes, logins some more.
const MAX_LINE: u64 = 16 * 1024;

/// Largest message that is taken.
const MAX_MESSAGE: usize = 4 << 20;

/// Most recipients of a message; RFC 5321 asks for as many.
const MAX_RECIPIENTS: usize = 100;

/// Mails that are kept, the latest.
const KEPT: usize = 1000;

/// What the server offers and asks for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The certificate for STARTTLS, which is offered only with one, or for TLS from the first byte.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether TLS begins with the first byte.
    pub implicit_tls: bool,
    /// User and password, without which no mail is taken; with a certificate they are asked for over TLS only.
    pub login: Option<(String, String)>,
}

/// A mail that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender of the envelope.
    pub from: String,
    /// The recipients of the envelope.
    pub to: Vec<String>,
    /// The message, with CRLF at its line ends.
    pub data: Vec<u8>,
    /// Whether it came over TLS.
    pub encrypted: bool,
}

/// Where in a session something is to go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Instead of the greeting.
    Greeting,
    /// After EHLO, also the one within TLS.
    Ehlo,
    /// After STARTTLS.
    StartTls,
    /// At the end of AUTH.
    Auth,
    /// After MAIL.
    Mail,
    /// After RCPT, whoever it is.
    Rcpt,
    /// After RCPT for this address.
    RcptOf(String),
    /// After DATA.
    Data,
    /// After the message.
    End,
    /// After QUIT.
    Quit,
}

/// What is done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Say this, as it is, instead of the answer. The step goes on only where it is a yes (2xx, 3xx after DATA); with
    /// 421 the connection ends.
    Say(Vec<u8>),
    /// Say nothing more, and wait until the client goes.
    Silence,
    /// Close the connection.
    Close,
    /// Do what was asked, then close the connection without a word: the answer was lost.
    CloseAfter,
}

impl Act {
    /// An answer of one line.
    #[must_use]
    pub fn answer(code: u16, text: &str) -> Self {
        Self::Say(format!("{code} {text}\r\n").into_bytes())
    }
}

/// What goes wrong, and where.
pub type Script = Vec<(Step, Act)>;

/// A running mail server. Cheap to clone; it runs until its tasks are stopped.
#[derive(Clone, Debug)]
pub struct MailServer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    options: Options,
    tasks: Tasks,
    book: Mutex<Book>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Book {
    script: Script,
    /// Scripts of the next connections, before `script` is anybody's again.
    next: VecDeque<Script>,
    received: VecDeque<Received>,
    received_ever: u64,
    open: usize,
    connections: u64,
    silences: u64,
}

impl MailServer {
    /// Starts to listen on a loopback port that the system chooses.
    ///
    /// # Errors
    /// Where the system refuses the port.
    pub async fn start(options: Options, tasks: &Tasks) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (changed, _) = watch::channel(());
        let shared = Arc::new(Shared { address, options, tasks: tasks.clone(), book: Mutex::default(), changed });
        tasks.spawn(accept(Arc::clone(&shared), listener));
        Ok(Self { shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// What goes wrong in every connection from now on; an empty script ends it.
    pub fn set_script(&self, script: Script) {
        self.shared.book().script = script;
    }

    /// What goes wrong in the next connection that has no script of its own yet, and in no other.
    pub fn script_next(&self, script: Script) {
        self.shared.book().next.push_back(script);
    }

    /// The mails that were taken, oldest first.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.shared.book().received.iter().cloned().collect()
    }

    /// How many mails were taken since the start.
    #[must_use]
    pub fn received_ever(&self) -> u64 {
        self.shared.book().received_ever
    }

    /// How many connections were made since the start.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.book().connections
    }

    /// How often a connection fell silent as scripted, since the start.
    #[must_use]
    pub fn silences(&self) -> u64 {
        self.shared.book().silences
    }

    /// Waits, at most `within` (real time), until `condition` holds; it is looked at again after every mail,
    /// connection and silence. Says whether it came to hold.
    pub async fn until(&self, within: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let mut changes = self.shared.changed.subscribe();
        let holds = async {
            while !condition(self) {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(within, holds).await.is_ok()
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let result = change(&mut self.book());
        self.changed.send_replace(());
        result
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            () = shared.tasks.stopping() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        if shared.book().open >= MAX_CONNECTIONS {
            continue;
        }
        let script = shared.change(|book| {
            book.open += 1;
            book.connections += 1;
            book.next.pop_front().unwrap_or_else(|| book.script.clone())
        });
        let task = Arc::clone(&shared);
        shared.tasks.spawn(async move {
            tokio::select! {
                () = task.tasks.stopping() => (),
                // However a session ends, there is nobody to tell.
                _ = serve(&task, stream, script) => (),
            }
            task.change(|book| book.open -= 1);
        });
    }
}

/// Bytes in both directions.
trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Io for S {}

async fn serve(shared: &Shared, stream: TcpStream, script: Script) -> io::Result<()> {
    let io: Box<dyn Io> = match &shared.options.tls {
        Some(tls) if shared.options.implicit_tls => Box::new(TlsAcceptor::from(Arc::clone(tls)).accept(stream).await?),
        _ => Box::new(stream),
    };
    let encrypted = shared.options.implicit_tls;
    let mut session =
        Session { shared, script, io: BufReader::new(io), encrypted, logged_in: false, from: None, to: Vec::new() };
    if session.answer(&Step::Greeting, "220 mail.example ESMTP").await? {
        while session.command().await? {}
    }
    Ok(())
}

struct Session<'a> {
    shared: &'a Shared,
    script: Script,
    io: BufReader<Box<dyn Io>>,
    encrypted: bool,
    logged_in: bool,
    from: Option<String>,
    to: Vec<String>,
}

impl Session<'_> {
    /// Reads a command and does it. Says whether there may be another.
    async fn command(&mut self) -> io::Result<bool> {
        let line = self.line().await?;
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" => self.ehlo().await?,
            "STARTTLS" if self.shared.options.tls.is_some() && !self.encrypted => return self.start_tls().await,
            "AUTH" if self.offers_login() => self.log_in(rest).await?,
            "MAIL" => self.mail(rest).await?,
            "RCPT" => self.rcpt(rest).await?,
            "DATA" => return self.data().await,
            "RSET" => {
                self.reset();
                self.say("250 reset").await?;
            }
            "NOOP" => self.say("250 fine").await?,
            "QUIT" => {
                self.answer(&Step::Quit, "221 bye").await?;
                return Ok(false);
            }
            _ => self.say(&format!("500 5.5.1 unknown command {line}")).await?,
        }
        Ok(true)
    }

    fn offers_login(&self) -> bool {
        self.shared.options.login.is_some() && (self.encrypted || self.shared.options.tls.is_none())
    }

    async fn ehlo(&mut self) -> io::Result<()> {
        self.reset();
        let mut lines = vec!["mail.example", "8BITMIME"];
        if self.shared.options.tls.is_some() && !self.encrypted {
            lines.push("STARTTLS");
        }
        if self.offers_login() {
            lines.push("AUTH PLAIN LOGIN");
        }
        let last = lines.len() - 1;
        let lines =
            lines.iter().enumerate().map(|(at, line)| format!("250{}{line}", if at < last { '-' } else { ' ' }));
        let lines = lines.collect::<Vec<_>>().join("\r\n");
        self.answer(&Step::Ehlo, &lines).await?;
        Ok(())
    }

    async fn start_tls(&mut self) -> io::Result<bool> {
        if !self.answer(&Step::StartTls, "220 go ahead").await? {
            return Ok(true);
        }
        let Some(tls) = &self.shared.options.tls else { return Ok(false) };
        let plain: Box<dyn Io> = Box::new(tokio::io::empty());
        let plain = std::mem::replace(&mut self.io, BufReader::new(plain)).into_inner();
        let encrypted: Box<dyn Io> = Box::new(TlsAcceptor::from(Arc::clone(tls)).accept(plain).await?);
        self.io = BufReader::new(encrypted);
        self.encrypted = true;
        Ok(true)
    }

    async fn log_in(&mut self, rest: &str) -> io::Result<()> {
        let (mechanism, initial) = rest.split_once(' ').unwrap_or((rest, ""));
        let given = match (mechanism.to_ascii_uppercase().as_str(), initial) {
            ("PLAIN", "") => self.ask("").await?,
            ("PLAIN", initial) => decode(initial),
            ("LOGIN", _) => format!("\0{}\0{}", self.ask("Username:").await?, self.ask("Password:").await?),
            _ => return self.say("504 5.5.4 unknown mechanism").await,
        };
        let login = self.shared.options.login.as_ref();
        let right = login.is_some_and(|(user, password)| given == format!("\0{user}\0{password}"));
        let text = if right { "235 2.7.0 welcome" } else { "535 5.7.8 wrong user or password" };
        self.logged_in = self.answer(&Step::Auth, text).await? && right;
        Ok(())
    }

    async fn ask(&mut self, challenge: &str) -> io::Result<String> {
        self.say(&format!("334 {}", BASE64.encode(challenge))).await?;
        Ok(decode(&self.line().await?))
    }

    async fn mail(&mut self, rest: &str) -> io::Result<()> {
        if self.shared.options.login.is_some() && !self.logged_in {
            return self.say("530 5.7.0 log in first").await;
        }
        let Some(from) = path(rest, "FROM:") else { return self.say("501 5.5.4 MAIL FROM:<address>").await };
        self.reset();
        if self.answer(&Step::Mail, "250 2.1.0 ok").await? {
            self.from = Some(from);
        }
        Ok(())
    }

    async fn rcpt(&mut self, rest: &str) -> io::Result<()> {
        let Some(to) = path(rest, "TO:") else { return self.say("501 5.5.4 RCPT TO:<address>").await };
        if self.from.is_none() {
            return self.say("503 5.5.1 MAIL first").await;
        }
        if self.to.len() >= MAX_RECIPIENTS {
            return self.say("452 4.5.3 too many recipients").await;
        }
        let of = Step::RcptOf(to.clone());
        let step = if self.act(&of).is_some() { of } else { Step::Rcpt };
        if self.answer(&step, "250 2.1.5 ok").await? {
            self.to.push(to);
        }
        Ok(())
    }

    async fn data(&mut self) -> io::Result<bool> {
        if self.to.is_empty() {
            self.say("503 5.5.1 RCPT first").await?;
            return Ok(true);
        }
        if !self.answer(&Step::Data, "354 go ahead").await? {
            return Ok(true);
        }
        let Some(data) = self.message().await? else {
            self.say("552 5.3.4 too large").await?;
            return Ok(false);
        };
        let (from, to) = (self.from.take().unwrap_or_default(), std::mem::take(&mut self.to));
        let mail = Received { from, to, data, encrypted: self.encrypted };
        // Kept before the answer, so that who hears it finds the mail.
        let taken = match self.act(&Step::End) {
            None | Some(Act::CloseAfter) => true,
            Some(Act::Say(bytes)) => is_yes(&Step::End, bytes),
            Some(Act::Silence | Act::Close) => false,
        };
        if taken {
            self.shared.change(|book| {
                book.received_ever += 1;
                book.received.push_back(mail);
                if book.received.len() > KEPT {
                    book.received.pop_front();
                }
            });
        }
        self.answer(&Step::End, "250 2.0.0 ok: queued").await?;
        Ok(true)
    }

    /// The message up to its final dot; `None` where it is too large.
    async fn message(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut data = Vec::new();
        loop {
            let mut line = Vec::new();
            (&mut self.io).take(MAX_LINE).read_until(b'\n', &mut line).await?;
            if !line.ends_with(b"\n") {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if line == b".\r\n" {
                return Ok(Some(data));
            }
            data.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
            if data.len() > MAX_MESSAGE {
                return Ok(None);
            }
        }
    }

    fn reset(&mut self) {
        self.from = None;
        self.to.clear();
    }

    fn act(&self, step: &Step) -> Option<&Act> {
        self.script.iter().find(|(at, _)| at == step).map(|(_, act)| act)
    }

    /// Answers a step: as scripted, else with `text`. Says whether the step goes on; fails where the session is over.
    async fn answer(&mut self, step: &Step, text: &str) -> io::Result<bool> {
        let over = || io::Error::from(io::ErrorKind::ConnectionAborted);
        match self.act(step).cloned() {
            None => {
                self.say(text).await?;
                Ok(true)
            }
            Some(Act::Close | Act::CloseAfter) => Err(over()),
            Some(Act::Silence) => {
                self.shared.change(|book| book.silences += 1);
                tokio::io::copy(&mut self.io, &mut tokio::io::sink()).await?;
                Err(over())
            }
            Some(Act::Say(bytes)) => {
                self.io.write_all(&bytes).await?;
                self.io.flush().await?;
                if bytes.starts_with(b"421") { Err(over()) } else { Ok(is_yes(step, &bytes)) }
            }
        }
    }

    async fn say(&mut self, text: &str) -> io::Result<()> {
        self.io.write_all(format!("{text}\r\n").as_bytes()).await?;
        self.io.flush().await
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.io).take(MAX_LINE).read_until(b'\n', &mut line).await?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn is_yes(step: &Step, answer: &[u8]) -> bool {
    answer.starts_with(if *step == Step::Data { b"3" } else { b"2" })
}

fn decode(text: &str) -> String {
    String::from_utf8_lossy(&BASE64.decode(text).unwrap_or_default()).into_owned()
}

/// The address of `FROM:<address> ...`.
fn path(text: &str, before: &str) -> Option<String> {
    let (start, rest) = text.split_at_checked(before.len())?;
    let (path, _) = rest.strip_prefix('<')?.rsplit_once('>')?;
    start.eq_ignore_ascii_case(before).then(|| path.to_owned())
}
