//! A delivery over SMTP, step by step with lettre's connection, so that every failure names its step.
//!
//! lettre (0.11.23) is helped out in a few places: after STARTTLS it would go on with what it had read before, so its
//! connection gets bytes one by one until TLS begins ([`Plain`]); it takes any 2xx or 3xx for a yes; its timeout bounds
//! only the connecting; and a reply that it cannot parse (a code like 571, text that is not UTF-8) is an error without
//! a code, which is taken for a temporary one of the letter, since it may well be a refusal of this recipient.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use lettre::Address;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, AsyncTokioStream, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::{Response, Severity};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{TransportError, span, words};
use crate::config::model::{Security, Smtp};
use crate::notify::letter::Failure;

/// An address of the host that does not answer the connection for this long is passed over for its next one.
const ADDRESS_LIMIT: Duration = Duration::from_secs(15);

/// How long the answer to QUIT is waited for; all is decided by then.
const QUIT_LIMIT: Duration = Duration::from_secs(5);

/// The ways to log in that are used, best first.
const MECHANISMS: &[Mechanism] = &[Mechanism::Plain, Mechanism::Login];

/// A mail server.
pub(super) struct Server {
    host: String,
    port: u16,
    security: Security,
    /// Where `security` is not [`Security::None`].
    tls: Option<TlsParameters>,
    login: Option<(String, SecretString)>,
    hello: ClientId,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &format_args!("{self}")).finish_non_exhaustive()
    }
}

/// How far a delivery is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Connect,
    StartTls,
    Login,
    Sender,
    Recipient,
    Data,
    Message,
}

impl Step {
    /// When it was that something happened.
    fn when(self) -> &'static str {
        match self {
            Self::Connect => "while connecting",
            Self::StartTls => "after STARTTLS",
            Self::Login => "during the login",
            Self::Sender => "after MAIL FROM",
            Self::Recipient => "after RCPT TO",
            Self::Data => "after DATA",
            Self::Message => "after the end of the message",
        }
    }

    /// Whether it is about one letter and one recipient.
    fn is_of_the_letter(self) -> bool {
        matches!(self, Self::Sender | Self::Recipient | Self::Data | Self::Message)
    }
}

/// One delivery.
struct Delivery<'a> {
    server: &'a Server,
    from: &'a Address,
    to: &'a Address,
    message: &'a [u8],
    step: Step,
    /// What it came to, once decided: nothing that follows changes it.
    outcome: Option<Result<String, Failure>>,
}

impl Server {
    pub(super) fn new(smtp: &Smtp) -> Result<Self, TransportError> {
        let host = smtp.host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&smtp.host).to_owned();
        let tls = match smtp.security {
            Security::Starttls | Security::Tls => Some(tls_parameters(&host, smtp)?),
            Security::None => None,
        };
        let hello = smtp.hello_name.as_deref().map_or_else(|| Ok(ClientId::default()), client_id)?;
        Ok(Self { host, port: smtp.port, security: smtp.security, tls, login: smtp.login.clone(), hello })
    }

    pub(super) async fn deliver(
        &self,
        from: &Address,
        to: &Address,
        message: &[u8],
        limit: Duration,
    ) -> Result<String, Failure> {
        let mut delivery = Delivery { server: self, from, to, message, step: Step::Connect, outcome: None };
        // What ends in time ends with an outcome.
        let _ = tokio::time::timeout(limit, Box::pin(delivery.run())).await;
        let Delivery { step, outcome, .. } = delivery;
        outcome.unwrap_or_else(|| {
            Err(Failure::Server(format!("{self} did not answer within {} {}", span(limit), step.when())))
        })
    }

    /// A TCP connection to the first address of the host that takes one.
    async fn dial(&self) -> io::Result<TcpStream> {
        let mut problem = io::Error::other("the name has no address");
        for address in tokio::net::lookup_host((self.host.as_str(), self.port)).await? {
            match tokio::time::timeout(ADDRESS_LIMIT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => problem = error,
                Err(_) => problem = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(problem)
    }
}

impl Delivery<'_> {
    async fn run(&mut self) {
        let mut connection = match self.open().await {
            Ok(connection) => connection,
            Err(failure) => {
                self.outcome = Some(Err(failure));
                return;
            }
        };
        self.outcome = Some(self.hand_over(&mut connection).await);
        // It is decided; this is courtesy.
        let _ = tokio::time::timeout(QUIT_LIMIT, connection.quit()).await;
    }

    /// A connection that is protected as configured. One that is not is never used again: after a TLS handshake that
    /// failed lettre's connection cannot be.
    async fn open(&mut self) -> Result<AsyncSmtpConnection, Failure> {
        let server = self.server;
        let tls = match (server.security, &server.tls) {
            (Security::Tls, Some(tls)) => {
                let address = (server.host.as_str(), server.port);
                let tls = Some(tls.clone());
                return AsyncSmtpConnection::connect_tokio1(address, Some(ADDRESS_LIMIT), &server.hello, tls, None)
                    .await
                    .map_err(|error| self.failure(&error));
            }
            (_, tls) => tls,
        };
        let stream = server
            .dial()
            .await
            .map_err(|error| Failure::Server(format!("cannot connect to {server}: {}", words(&error.to_string()))))?;
        let mut connection = AsyncSmtpConnection::connect_with_transport(Box::new(Plain::new(stream)), &server.hello)
            .await
            .map_err(|error| self.failure(&error))?;
        let Some(tls) = tls else { return Ok(connection) };
        if !connection.can_starttls() {
            return Err(Failure::Server(format!(
                "{server} does not offer STARTTLS (security = \"none\" would send without encryption)"
            )));
        }
        self.step = Step::StartTls;
        connection.starttls(tls.clone(), &server.hello).await.map_err(|error| self.failure(&error))?;
        Ok(connection)
    }

    /// Everything from the login to the server's yes.
    async fn hand_over(&mut self, connection: &mut AsyncSmtpConnection) -> Result<String, Failure> {
        if let Some((user, password)) = &self.server.login {
            self.step = Step::Login;
            self.log_in(connection, user, password).await?;
        }
        self.step = Step::Sender;
        let reply = connection.command(Mail::new(Some(self.from.clone()), Vec::new())).await;
        self.expect(reply, Severity::PositiveCompletion)?;
        self.step = Step::Recipient;
        let reply = connection.command(Rcpt::new(self.to.clone(), Vec::new())).await;
        self.expect(reply, Severity::PositiveCompletion)?;
        self.step = Step::Data;
        let reply = connection.command(Data).await;
        self.expect(reply, Severity::PositiveIntermediate)?;
        self.step = Step::Message;
        // lettre ends the last line itself.
        let reply = connection.message(self.message.strip_suffix(b"\r\n").unwrap_or(self.message)).await;
        let reply = self.expect(reply, Severity::PositiveCompletion)?;
        Ok(words(&spoken(&reply)))
    }

    async fn log_in(
        &self,
        connection: &mut AsyncSmtpConnection,
        user: &str,
        password: &SecretString,
    ) -> Result<(), Failure> {
        let server = self.server;
        if connection.server_info().get_auth_mechanism(MECHANISMS).is_none() {
            return Err(Failure::Server(format!("{server} does not offer a login that can be used (PLAIN or LOGIN)")));
        }
        let credentials = Credentials::new(user.to_owned(), password.expose_secret().to_owned());
        match connection.auth(MECHANISMS, &credentials).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// The reply, where it is the yes that this step needs.
    fn expect(&self, reply: Result<Response, Error>, severity: Severity) -> Result<Response, Failure> {
        let reply = reply.map_err(|error| self.failure(&error))?;
        if reply.code().severity == severity {
            return Ok(reply);
        }
        let (server, when) = (self.server, self.step.when());
        Err(Failure::Temporary(format!("{server} answered out of turn {when}: {}", self.said(&spoken(&reply)))))
    }

    fn failure(&self, error: &Error) -> Failure {
        let message = self.message(error);
        let of_the_letter = self.step.is_of_the_letter();
        match error.status().map(u16::from) {
            // "Going away", and "log in first": so it would be with any other letter.
            Some(421 | 530) => Failure::Server(message),
            Some(_) if of_the_letter && error.is_permanent() => Failure::Permanent(message),
            Some(_) if of_the_letter => Failure::Temporary(message),
            None if of_the_letter && is_garbled(error) => Failure::Temporary(message),
            _ => Failure::Server(message),
        }
    }

    /// What happened, in one line.
    fn message(&self, error: &Error) -> String {
        let (server, when) = (self.server, self.step.when());
        if let Some(code) = error.status() {
            let said = error.source().map(ToString::to_string).unwrap_or_default();
            return format!("{server} refused {}: {}", self.subject(), self.said(&format!("{code} {said}")));
        }
        let cause = self.said(&cause(error));
        match self.step {
            _ if was_closed(error) => format!("{server} closed the connection {when}"),
            _ if is_garbled(error) => format!("{server} answered {when} with what is no SMTP reply: {cause}"),
            Step::Connect => format!("cannot connect to {server}: {cause}"),
            Step::StartTls => format!("TLS with {server} failed: {cause}"),
            _ => format!("the connection to {server} failed {when}: {cause}"),
        }
    }

    /// The server's words, without the password: servers are known to repeat what they did not understand.
    fn said(&self, text: &str) -> String {
        let Some((user, password)) = &self.server.login else { return words(text) };
        let password = password.expose_secret();
        let secrets = [BASE64.encode(format!("\0{user}\0{password}")), BASE64.encode(password), password.to_owned()];
        let secrets = secrets.iter().filter(|secret| !secret.is_empty());
        words(&secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "***")))
    }

    /// What it is that was refused.
    fn subject(&self) -> String {
        match self.step {
            Step::Connect => "the connection".to_owned(),
            Step::StartTls => "STARTTLS".to_owned(),
            Step::Login => {
                let user = self.server.login.as_ref().map(|(user, _)| user.as_str()).unwrap_or_default();
                format!("the login of user {}", words(user))
            }
            Step::Sender => format!("the sender {}", self.from),
            Step::Recipient => format!("the recipient {}", self.to),
            Step::Data => "DATA".to_owned(),
            Step::Message => "the message".to_owned(),
        }
    }
}

fn spoken(reply: &Response) -> String {
    format!("{} {}", reply.code(), reply.message().collect::<Vec<_>>().join(" "))
}

/// The innermost cause, and what to do where that is known.
fn cause(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let hint =
        if cause.to_string().contains("UnknownIssuer") { " (ca_file can name the authority to trust)" } else { "" };
    format!("{cause}{hint}")
}

fn was_closed(error: &Error) -> bool {
    if let Some(error) = io_error(error) {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        return matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
    }
    // What lettre says of an end between two lines.
    error.is_response() && error.source().is_some_and(|source| source.to_string() == "incomplete response")
}

/// Whether the server said something that is no reply.
fn is_garbled(error: &Error) -> bool {
    match io_error(error) {
        // That bytes are not UTF-8; rustls uses the same kind for its own errors.
        Some(error) => {
            let is_of_tls = error.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>());
            error.kind() == io::ErrorKind::InvalidData && !is_of_tls
        }
        None => error.is_response() && !was_closed(error),
    }
}

fn io_error(error: &Error) -> Option<&io::Error> {
    std::iter::successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
}

fn client_id(name: &str) -> Result<ClientId, TransportError> {
    match name.parse() {
        Ok(IpAddr::V4(address)) => Ok(ClientId::Ipv4(address)),
        Ok(IpAddr::V6(address)) => Ok(ClientId::Ipv6(address)),
        Err(_) if ServerName::try_from(name).is_ok() => Ok(ClientId::Domain(name.to_owned())),
        Err(_) => Err(TransportError::HelloName(name.to_owned())),
    }
}

fn tls_parameters(host: &str, smtp: &Smtp) -> Result<TlsParameters, TransportError> {
    let problem = |problem: String| TransportError::Tls { host: host.to_owned(), problem };
    ServerName::try_from(host).map_err(|error| problem(error.to_string()))?;
    let mut builder = TlsParameters::builder(host.to_owned());
    if smtp.ca_file.is_some() {
        builder = builder.certificate_store(CertificateStore::None);
        for certificate in certificates(smtp)? {
            builder = builder.add_root_certificate(certificate);
        }
    } else if rustls_native_certs::load_native_certs().certs.is_empty() {
        return Err(TransportError::NoCertificates);
    }
    builder.build().map_err(|error| problem(words(&cause(&error))))
}

fn certificates(smtp: &Smtp) -> Result<Vec<Certificate>, TransportError> {
    let Some(path) = &smtp.ca_file else { return Ok(Vec::new()) };
    let problem = |problem: String| TransportError::CaFile { path: path.clone(), problem: words(&problem) };
    let read = CertificateDer::pem_file_iter(path).map_err(|error| problem(error.to_string()))?;
    let certificates = read
        .map(|certificate| {
            let certificate = certificate.map_err(|error| problem(error.to_string()))?;
            Certificate::from_der(certificate.to_vec()).map_err(|error| problem(cause(&error)))
        })
        .collect::<Result<Vec<_>, _>>()?;
    if certificates.is_empty() { Err(problem("holds no certificate".to_owned())) } else { Ok(certificates) }
}

/// A TCP connection that gives bytes one by one until TLS begins, so that nobody reads ahead: what an attacker adds to
/// the answer to STARTTLS must not be taken for an answer that came over TLS. It then ends the handshake.
#[derive(Debug)]
struct Plain {
    stream: TcpStream,
    encrypted: bool,
}

/// The first byte of a TLS handshake; no SMTP command begins with it.
const HANDSHAKE: u8 = 22;

impl Plain {
    fn new(stream: TcpStream) -> Self {
        Self { stream, encrypted: false }
    }
}

impl AsyncRead for Plain {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.encrypted {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let mut one = [0];
        let mut byte = ReadBuf::new(&mut one);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut byte))?;
        buf.put_slice(byte.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Plain {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.encrypted |= bytes.first() == Some(&HANDSHAKE);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncTokioStream for Plain {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}
