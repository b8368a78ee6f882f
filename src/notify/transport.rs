//! How a letter leaves: over SMTP, or through a local program.
//!
//! A delivery is one connection (or one run of the program) for one recipient. What goes wrong is sorted for whoever
//! tries again: [`Failure::Server`] is nothing that the letter could help and stands for all of them, the others are
//! about this letter and this recipient.
//!
//! Where the mail server took the message and its yes is lost on the way, it is sent again, with the same Message-ID.
//! SMTP knows no better; what counts is that it is not the other way round.

mod sendmail;
mod smtp;

use std::path::PathBuf;
use std::time::Duration;

use lettre::Address;

use crate::config::model::{Email, Via};
use crate::notify::letter::Failure;
use crate::notify::message::{ascii_address, one_line};

/// Most characters of another program's words that are kept: enough for what mail servers explain, little enough to
/// be stored with every delivery.
const MAX_WORDS: usize = 300;

/// Why mail cannot be sent as it is configured. The message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The sender's address cannot be sent.
    #[error("the address {0} cannot send mail: the part before the @ must be ASCII")]
    From(Address),
    /// The certificates to trust cannot be had.
    #[error("ca_file {}: {problem}; it must be a PEM file with the certificates to trust", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The system trusts nobody.
    #[error("this system has no trusted certificates: install them (ca-certificates) or name some in ca_file")]
    NoCertificates,
    /// A name by which no client can introduce itself.
    #[error("hello_name {0:?} is neither a host name nor an IP address")]
    HelloName(String),
    /// Nobody could have a certificate for this host.
    #[error("TLS with {host:?} cannot be set up: {problem}")]
    Tls {
        /// The host.
        host: String,
        /// What is wrong.
        problem: String,
    },
}

/// Delivers messages. Cheap to make, but for the certificates that it reads from disk.
#[derive(Debug)]
pub struct Transport {
    from: Address,
    timeout: Duration,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Smtp(Box<smtp::Server>),
    Sendmail(sendmail::Program),
}

impl Transport {
    /// Reads what is needed: it blocks for some milliseconds where TLS is used.
    ///
    /// # Errors
    /// [`TransportError`]; nothing is sent until somebody changed something.
    pub fn new(email: &Email) -> Result<Self, TransportError> {
        let from = &email.from.email;
        let from = ascii_address(from).ok_or_else(|| TransportError::From(from.clone()))?;
        let way = match &email.via {
            Via::Smtp(smtp) => Way::Smtp(Box::new(smtp::Server::new(smtp)?)),
            Via::Sendmail(path) => Way::Sendmail(sendmail::Program::new(path)),
        };
        Ok(Self { from, timeout: email.timeout, way })
    }

    /// Delivers a message (see [`compose`](crate::notify::message::compose)) to one recipient, within
    /// [`Email::timeout`]. Gives what the mail server said when it took it, in one line; may be empty.
    ///
    /// # Errors
    /// [`Failure`], with a message of one line that names the step and holds no password.
    pub async fn deliver(&self, message: &[u8], to: &Address) -> Result<String, Failure> {
        let to = ascii_address(to).ok_or_else(|| {
            Failure::Permanent(format!("{to} cannot be sent to: the part before the @ must be ASCII"))
        })?;
        match &self.way {
            Way::Smtp(server) => server.deliver(&self.from, &to, message, self.timeout).await,
            Way::Sendmail(program) => program.deliver(&self.from, &to, message, self.timeout).await,
        }
    }
}

/// Another program's words, fit for a line of ours.
fn words(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

fn span(span: Duration) -> String {
    if span.subsec_nanos() == 0 { format!("{} s", span.as_secs()) } else { format!("{} ms", span.as_millis()) }
}
