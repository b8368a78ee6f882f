//! A real mail server: aiosmtpd, in a process of its own, with a certificate of the test's. What arrives is read by
//! Python's e-mail package.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::folder::Folder;
use super::process::Process;
use super::{SOON, eventually, keys, ports};

/// The system's own Python, for which Debian packages aiosmtpd; not one that somebody put before it in the path.
const PYTHON: &str = "/usr/bin/python3";

const PROGRAM: &str = include_str!("mail_server.py");

/// The user of the server.
pub(crate) const USER: &str = "noc@operator.example";

/// The user's password.
pub(crate) const PASSWORD: &str = "correct-horse-battery";

/// How the server speaks TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tls {
    /// After STARTTLS, and nothing goes before.
    Starttls,
    /// From the first byte.
    Implicit,
}

impl Tls {
    /// As the configuration and the server's command line say it.
    fn name(self) -> &'static str {
        match self {
            Self::Starttls => "starttls",
            Self::Implicit => "tls",
        }
    }
}

/// A mail as Python reads it.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Message {
    headers: BTreeMap<String, Vec<String>>,
    /// Names and addresses.
    pub(crate) from: Vec<(String, String)>,
    pub(crate) to: Vec<(String, String)>,
    /// The parts by their types.
    bodies: BTreeMap<String, String>,
    /// What is wrong with any part or any header.
    pub(crate) defects: Vec<String>,
}

impl Message {
    /// Reads a mail.
    pub(crate) fn parse(raw: &[u8]) -> Self {
        let mut child = Command::new(PYTHON)
            .args(["-I", "-c", PROGRAM, "parse"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(raw).unwrap();
        let output = child.wait_with_output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// The header of that name, of which there is one.
    pub(crate) fn header(&self, name: &str) -> &str {
        match self.headers.get(name).map(Vec::as_slice) {
            Some([value]) => value,
            other => panic!("{name}: {other:?} in {self:#?}"),
        }
    }

    pub(crate) fn has_header(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }

    /// The part of that type; a mail of ours has one as text and one as HTML.
    pub(crate) fn body(&self, kind: &str) -> &str {
        assert!(self.bodies.keys().eq(["text/html", "text/plain"]), "{self:#?}");
        &self.bodies[kind]
    }
}

/// A mail that the server took.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Mail {
    pub(crate) sender: String,
    pub(crate) recipients: Vec<String>,
    /// Who had logged in.
    pub(crate) user: String,
    /// The version of TLS.
    pub(crate) tls: String,
    pub(crate) message: Message,
    /// As it came.
    #[serde(skip)]
    pub(crate) raw: Vec<u8>,
}

/// The server.
#[derive(Debug)]
pub(crate) struct MailServer {
    folder: Folder,
    /// Its own for as long as the test lasts, so that it can come back there.
    port: u16,
    tls: Tls,
    process: Option<Process>,
}

impl MailServer {
    pub(crate) fn start(tls: Tls) -> Self {
        let folder = Folder::new("mail");
        folder.write("server.py", PROGRAM);
        keys::write(&folder, "mail", "localhost");
        let mut server = Self { folder, port: ports::kept(), tls, process: None };
        server.boot();
        server
    }

    /// Starts it (again), on the same port and with what it has taken so far.
    pub(crate) fn boot(&mut self) {
        let (folder, port) = (self.folder.path().to_str().unwrap(), self.port.to_string());
        let args = ["-I", "server.py", "serve", folder, &port, self.tls.name(), USER, PASSWORD].map(str::to_owned);
        let mut process = Process::start(PYTHON, &args, &self.folder.join("out"));
        eventually("the mail server's port to open", SOON, || {
            assert!(process.runs(), "the mail server ended (scripts/live-setup?): {}", self.folder.read("out"));
            TcpStream::connect(("127.0.0.1", self.port)).ok()
        });
        self.process = Some(process);
    }

    /// Ends it at once, without a word to its clients.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// From now on it does not answer RCPT TO ("rcpt"), or not the end of a message, which it has kept by then ("end").
    pub(crate) fn hold(&self, step: &str) {
        let _ = std::fs::remove_file(self.folder.join("holding"));
        self.folder.write("hold.new", step);
        std::fs::rename(self.folder.join("hold.new"), self.folder.join("hold")).unwrap();
    }

    /// Waits until somebody waits for the answer that does not come.
    pub(crate) fn is_holding(&self) {
        eventually("a delivery to be under way", SOON, || self.folder.join("holding").exists().then_some(()));
    }

    /// Everything is answered again.
    pub(crate) fn release(&self) {
        std::fs::remove_file(self.folder.join("hold")).unwrap();
    }

    /// The authority that its certificate is from.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("keys/authority.pem")
    }

    /// Host and port, by a name; the certificate is for the name alone.
    pub(crate) fn address(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }

    /// The table `email` of a configuration, with everything that the server asks for and this sender.
    pub(crate) fn configuration(&self, sender: &str) -> String {
        format!(
            "[email]\nfrom = '\"{sender}\" <{USER}>'\nserver = \"{}\"\nsecurity = \"{}\"\nusername = \"{USER}\"\n\
             password = \"{PASSWORD}\"\ntls_ca_file = \"{}\"\ntime_zone = \"UTC\"\n",
            self.address("localhost"),
            self.tls.name(),
            self.authority().display()
        )
    }

    /// What it has taken, in order.
    pub(crate) fn mails(&self) -> Vec<Mail> {
        let number = |n: u32| self.folder.join(format!("mails/{n:04}"));
        let there = (1..).map(number).take_while(|path| path.with_extension("json").exists());
        there
            .map(|path| {
                let mail = std::fs::read(path.with_extension("json")).unwrap();
                let raw = std::fs::read(path.with_extension("eml")).unwrap();
                Mail { raw, ..serde_json::from_slice(&mail).unwrap() }
            })
            .collect()
    }

    /// Waits until it has taken that many.
    pub(crate) fn gets(&self, count: usize, within: Duration) -> Vec<Mail> {
        eventually(&format!("{count} mails"), within, || {
            let mails = self.mails();
            assert!(mails.len() <= count, "{} mails of {count}: {mails:#?}", mails.len());
            (mails.len() == count).then_some(mails)
        })
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what the mail server printed:\n{}", self.folder.read("out"));
        }
        self.process = None;
    }
}
