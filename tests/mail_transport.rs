//! Deliveries to a mail server, and a sendmail, that do everything wrong that can be done wrong.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use lettre::Address;
use lettre::message::Mailbox;
use pointsman::config::model::{Email, Security, Smtp, Via};
use pointsman::notify::letter::Failure;
use pointsman::notify::transport::{Transport, TransportError};
use pointsman::sim::mail::{Act, MailServer, Options, Script, Step};
use pointsman::tasks::Tasks;
use secrecy::SecretString;
use tempfile::TempDir;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// The end of the patience of a test that waits for what must come.
const SOON: Duration = Duration::from_secs(60);

/// Longest delivery, unless a test is about it.
const TIMEOUT: Duration = Duration::from_secs(600);

const MESSAGE: &[u8] = b"Subject: a test\r\n\r\n.\r\n..dots\r\nlast line\r\n";

fn address(text: &str) -> Address {
    text.parse().expect("an address")
}

fn noc() -> Address {
    address("noc@acme.example")
}

fn email(via: Via) -> Email {
    Email {
        from: Mailbox::new(Some("Pointsman".to_owned()), address("pointsman@carrier.example")),
        reply_to: None,
        via,
        timeout: TIMEOUT,
        give_up_after: Duration::from_secs(86_400),
        digest_after: 5,
        digest_window: Duration::from_secs(60),
        mask_numbers: false,
        time_zone: TimeZone::UTC,
        templates: None,
    }
}

fn plain(server: &MailServer) -> Smtp {
    Smtp {
        host: "127.0.0.1".to_owned(),
        port: server.address().port(),
        security: Security::None,
        login: None,
        ca_file: None,
        hello_name: None,
    }
}

fn transport(smtp: Smtp) -> Transport {
    Transport::new(&email(Via::Smtp(smtp))).expect("a transport")
}

async fn server(options: Options) -> (MailServer, Tasks) {
    let tasks = Tasks::new();
    (MailServer::start(options, &tasks).await.expect("a mail server"), tasks)
}

/// Delivers over a plain connection to a server with this script.
async fn deliver(script: Script) -> (Result<String, Failure>, MailServer, Tasks) {
    let (server, tasks) = server(Options::default()).await;
    server.set_script(script);
    let outcome = transport(plain(&server)).deliver(MESSAGE, &noc()).await;
    (outcome, server, tasks)
}

/// What kind of failure it is, and its message without the address of the server.
fn told(outcome: Result<String, Failure>, server: &MailServer) -> (&'static str, String) {
    let (kind, message) = match outcome.expect_err("a failure") {
        Failure::Server(message) => ("server", message),
        Failure::Temporary(message) => ("temporary", message),
        Failure::Permanent(message) => ("permanent", message),
    };
    assert!(!message.contains(char::is_control), "{message:?}");
    assert!(message.chars().count() < 500, "{message:?}");
    let port = server.address().port();
    (kind, message.replace(&format!("127.0.0.1:{port}"), "HOST").replace(&format!("localhost:{port}"), "HOST"))
}

#[tokio::test]
async fn a_message_arrives_as_it_is() {
    let (outcome, server, _tasks) = deliver(Vec::new()).await;
    assert_eq!(outcome.expect("a delivery"), "250 2.0.0 ok: queued");
    let mails = server.received();
    assert_eq!(mails.len(), 1);
    assert_eq!(mails[0].from, "pointsman@carrier.example");
    assert_eq!(mails[0].to, ["noc@acme.example"]);
    assert_eq!(mails[0].data, MESSAGE);
    assert!(!mails[0].encrypted);
}

#[tokio::test]
async fn each_refusal_names_its_step_and_the_servers_words() {
    let steps = [
        (Step::Greeting, "the connection", false),
        (Step::Ehlo, "the connection", false),
        (Step::Mail, "the sender pointsman@carrier.example", true),
        (Step::Rcpt, "the recipient noc@acme.example", true),
        (Step::RcptOf("noc@acme.example".to_owned()), "the recipient noc@acme.example", true),
        (Step::Data, "DATA", true),
        (Step::End, "the message", true),
    ];
    for (step, subject, of_the_letter) in steps {
        for (code, kind) in [(421, "server"), (451, "temporary"), (550, "permanent")] {
            let (outcome, server, _tasks) =
                deliver(vec![(step.clone(), Act::answer(code, "5.1.1 no  such\tuser"))]).await;
            let expected = format!("HOST refused {subject}: {code} 5.1.1 no such user");
            assert_eq!(told(outcome, &server), (if of_the_letter { kind } else { "server" }, expected));
            assert!(server.received().is_empty());
        }
    }
}

#[tokio::test]
async fn a_refusal_of_one_recipient_is_none_of_another() {
    let (server, _tasks) = server(Options::default()).await;
    server.set_script(vec![(Step::RcptOf("gone@acme.example".to_owned()), Act::answer(550, "gone"))]);
    let transport = transport(plain(&server));
    let refused = transport.deliver(MESSAGE, &address("gone@acme.example")).await;
    assert!(matches!(refused, Err(Failure::Permanent(_))), "{refused:?}");
    transport.deliver(MESSAGE, &noc()).await.expect("a delivery");
}

#[tokio::test]
async fn a_connection_that_ends_is_the_servers_failure_wherever_it_ends() {
    let steps = [Step::Greeting, Step::Ehlo, Step::Mail, Step::Rcpt, Step::Data, Step::End];
    let when = ["while connecting", "while connecting", "after MAIL FROM", "after RCPT TO", "after DATA"];
    for (step, when) in steps.into_iter().zip(when.into_iter().chain(["after the end of the message"])) {
        let (outcome, server, _tasks) = deliver(vec![(step, Act::Close)]).await;
        assert_eq!(told(outcome, &server), ("server", format!("HOST closed the connection {when}")));
        assert!(server.received().is_empty());
    }
}

#[tokio::test]
async fn a_yes_that_is_lost_is_no_yes() {
    let (outcome, server, _tasks) = deliver(vec![(Step::End, Act::CloseAfter)]).await;
    let expected = "HOST closed the connection after the end of the message".to_owned();
    assert_eq!(told(outcome, &server), ("server", expected));
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn silence_ends_with_the_timeout() {
    let steps = [Step::Greeting, Step::Ehlo, Step::Mail, Step::Rcpt, Step::Data, Step::End];
    let when = ["while connecting", "while connecting", "after MAIL FROM", "after RCPT TO", "after DATA"];
    for (step, when) in steps.into_iter().zip(when.into_iter().chain(["after the end of the message"])) {
        let (server, _tasks) = server(Options::default()).await;
        server.set_script(vec![(step, Act::Silence)]);
        let transport = transport(plain(&server));
        let (to, time_passes) = (noc(), pass_time_once_silent(&server));
        let (outcome, ()) = tokio::join!(transport.deliver(MESSAGE, &to), time_passes);
        assert_eq!(told(outcome, &server), ("server", format!("HOST did not answer within 600 s {when}")));
        tokio::time::resume();
    }
}

/// Lets the time of a delivery pass at once, as soon as the server said its last word.
async fn pass_time_once_silent(server: &MailServer) {
    assert!(server.until(SOON, |server| server.silences() > 0).await);
    tokio::time::pause();
    tokio::time::advance(TIMEOUT).await;
}

#[tokio::test]
async fn once_the_server_took_the_message_nothing_that_follows_matters() {
    for act in [Act::answer(421, "late"), Act::answer(500, "what?"), Act::Close, Act::Say(b"\xff\xfe\r\n".to_vec())] {
        let (outcome, server, _tasks) = deliver(vec![(Step::Quit, act)]).await;
        outcome.expect("a delivery");
        assert_eq!(server.received().len(), 1);
    }
    let (server, _tasks) = server(Options::default()).await;
    server.set_script(vec![(Step::Quit, Act::Silence)]);
    let transport = transport(plain(&server));
    let (to, time_passes) = (noc(), pass_time_once_silent(&server));
    let (outcome, ()) = tokio::join!(transport.deliver(MESSAGE, &to), time_passes);
    outcome.expect("a delivery");
}

#[tokio::test]
async fn what_is_no_reply_is_about_the_server_or_the_letter_as_the_step_is() {
    let garbage = [b"what?\r\n".to_vec(), b"571 5.7.1 no\r\n".to_vec(), b"550 \xcd\xe5\xf2\r\n".to_vec()];
    for bytes in garbage {
        for (step, kind, when) in [
            (Step::Greeting, "server", "while connecting"),
            (Step::Rcpt, "temporary", "after RCPT TO"),
            (Step::End, "temporary", "after the end of the message"),
        ] {
            let (outcome, server, _tasks) = deliver(vec![(step, Act::Say(bytes.clone()))]).await;
            let (told, message) = told(outcome, &server);
            assert_eq!(told, kind, "{message}");
            assert!(message.starts_with(&format!("HOST answered {when} with what is no SMTP reply: ")), "{message}");
        }
    }
}

#[tokio::test]
async fn a_yes_of_the_wrong_kind_is_none() {
    let (outcome, server, _tasks) = deliver(vec![(Step::Data, Act::answer(250, "ok"))]).await;
    assert_eq!(told(outcome, &server), ("temporary", "HOST answered out of turn after DATA: 250 ok".to_owned()));
    let (outcome, server, _tasks) = deliver(vec![(Step::End, Act::answer(354, "go on"))]).await;
    let expected = "HOST answered out of turn after the end of the message: 354 go on".to_owned();
    assert_eq!(told(outcome, &server), ("temporary", expected));
}

#[tokio::test]
async fn a_long_explanation_is_cut_and_several_lines_become_one() {
    let long = format!("550-5.7.1 first line\r\n550-\x1b[31m{}\r\n550 last\r\n", "x".repeat(900));
    let (outcome, server, _tasks) = deliver(vec![(Step::Rcpt, Act::Say(long.into_bytes()))]).await;
    let (kind, message) = told(outcome, &server);
    assert_eq!(kind, "permanent");
    assert!(
        message.starts_with("HOST refused the recipient noc@acme.example: 550 5.7.1 first line [31mxxx"),
        "{message}"
    );
    assert!(message.ends_with("x..."), "{message}");
}

#[tokio::test]
async fn where_nothing_listens_the_message_says_so() {
    let (server, tasks) = server(Options::default()).await;
    assert!(tasks.stop(SOON).await);
    let (kind, message) = told(transport(plain(&server)).deliver(MESSAGE, &noc()).await, &server);
    assert_eq!(kind, "server");
    assert!(message.starts_with("cannot connect to HOST: Connection refused"), "{message}");
}

#[tokio::test]
async fn a_name_that_cannot_be_looked_up_is_the_servers_failure() {
    let (server, _tasks) = server(Options::default()).await;
    let transport = transport(Smtp { host: "no..such-host.invalid".to_owned(), ..plain(&server) });
    let outcome = transport.deliver(MESSAGE, &noc()).await;
    assert!(
        matches!(&outcome, Err(Failure::Server(message)) if message.starts_with("cannot connect to no..such-host.invalid:")),
        "{outcome:?}"
    );
}

/// An authority in a directory of its own, and what a server needs that it vouches for.
struct Authority {
    directory: TempDir,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("a certificate");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let directory = tempfile::tempdir().expect("a directory");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        fs::write(directory.path().join("ca.pem"), pem).expect("a file");
        Self { directory, issuer: rcgen::Issuer::new(params, key) }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    fn server_config(&self, name: &str) -> Arc<ServerConfig> {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a certificate");
        let leaf = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key);
        Arc::new(config.expect("a server's TLS"))
    }

    /// Delivers with TLS to a server that shows a certificate for `name`.
    async fn deliver(&self, security: Security, name: &str, ca_file: PathBuf) -> (Result<String, Failure>, MailServer) {
        let options = Options {
            tls: Some(self.server_config(name)),
            implicit_tls: security == Security::Tls,
            ..Options::default()
        };
        let (server, tasks) = server(options).await;
        let smtp = Smtp { host: "localhost".to_owned(), security, ca_file: Some(ca_file), ..plain(&server) };
        let outcome = transport(smtp).deliver(MESSAGE, &noc()).await;
        tasks.stop(SOON).await;
        (outcome, server)
    }
}

#[tokio::test]
async fn mail_goes_over_tls_where_the_certificate_is_trusted() {
    let authority = Authority::new("ours");
    for security in [Security::Starttls, Security::Tls] {
        let (outcome, server) = authority.deliver(security, "localhost", authority.file()).await;
        outcome.expect("a delivery");
        assert!(server.received()[0].encrypted);
    }
}

#[tokio::test]
async fn a_connection_that_ends_within_tls_is_told_like_any_other() {
    let authority = Authority::new("ours");
    for security in [Security::Starttls, Security::Tls] {
        let options = Options {
            tls: Some(authority.server_config("localhost")),
            implicit_tls: security == Security::Tls,
            ..Options::default()
        };
        let (server, _tasks) = server(options).await;
        server.set_script(vec![(Step::Data, Act::Close)]);
        let smtp = Smtp { host: "localhost".to_owned(), security, ca_file: Some(authority.file()), ..plain(&server) };
        let outcome = transport(smtp).deliver(MESSAGE, &noc()).await;
        assert_eq!(told(outcome, &server), ("server", "HOST closed the connection after DATA".to_owned()));
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_or_of_another_name_is_refused() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    for security in [Security::Starttls, Security::Tls] {
        let (outcome, server) = authority.deliver(security, "localhost", other.file()).await;
        let (kind, message) = told(outcome, &server);
        assert_eq!(kind, "server");
        assert!(message.contains("invalid peer certificate: UnknownIssuer (ca_file can name"), "{message}");
        assert!(server.received().is_empty());

        let (outcome, server) = authority.deliver(security, "mail.other.example", authority.file()).await;
        let (kind, message) = told(outcome, &server);
        assert_eq!(kind, "server");
        assert!(message.contains("not valid for name \"localhost\""), "{message}");
        assert!(server.received().is_empty());
    }
}

#[tokio::test]
async fn without_starttls_nothing_is_sent() {
    let (server, _tasks) = server(Options::default()).await;
    let authority = Authority::new("ours");
    let login = Some(("user".to_owned(), SecretString::from("hunter2")));
    let smtp = Smtp { security: Security::Starttls, ca_file: Some(authority.file()), login, ..plain(&server) };
    let expected = "HOST does not offer STARTTLS (security = \"none\" would send without encryption)";
    let outcome = transport(smtp).deliver(MESSAGE, &noc()).await;
    assert_eq!(told(outcome, &server), ("server", expected.to_owned()));
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn a_refusal_of_starttls_is_the_servers_failure() {
    let authority = Authority::new("ours");
    let (server, _tasks) =
        server(Options { tls: Some(authority.server_config("localhost")), ..Options::default() }).await;
    server.set_script(vec![(Step::StartTls, Act::answer(454, "4.7.0 TLS not available"))]);
    let smtp = Smtp { security: Security::Starttls, ca_file: Some(authority.file()), ..plain(&server) };
    let outcome = transport(smtp).deliver(MESSAGE, &noc()).await;
    assert_eq!(told(outcome, &server), ("server", "HOST refused STARTTLS: 454 4.7.0 TLS not available".to_owned()));
}

#[tokio::test]
async fn what_is_said_before_tls_is_not_taken_for_an_answer_within_it() {
    let authority = Authority::new("ours");
    let (server, _tasks) =
        server(Options { tls: Some(authority.server_config("localhost")), ..Options::default() }).await;
    let forged = "220 go ahead\r\n250 mail.example\r\n250 ok\r\n250 ok\r\n354 go ahead\r\n250 forged\r\n";
    server.set_script(vec![(Step::StartTls, Act::Say(forged.into()))]);
    let smtp = Smtp {
        host: "localhost".to_owned(),
        security: Security::Starttls,
        ca_file: Some(authority.file()),
        ..plain(&server)
    };
    let (kind, message) = told(transport(smtp).deliver(MESSAGE, &noc()).await, &server);
    assert_eq!(kind, "server");
    assert!(message.starts_with("TLS with HOST failed: "), "{message}");
}

fn login(password: &str) -> Option<(String, SecretString)> {
    Some(("user".to_owned(), SecretString::from(password)))
}

#[tokio::test]
async fn a_login_is_used_over_tls_and_without() {
    let authority = Authority::new("ours");
    for tls in [None, Some(authority.server_config("localhost"))] {
        let security = if tls.is_some() { Security::Starttls } else { Security::None };
        let (server, _tasks) =
            server(Options { tls, login: Some(("user".into(), "pässword".into())), ..Options::default() }).await;
        let smtp = Smtp { host: "localhost".to_owned(), security, ca_file: Some(authority.file()), ..plain(&server) };
        transport(Smtp { login: login("pässword"), ..smtp.clone() })
            .deliver(MESSAGE, &noc())
            .await
            .expect("a delivery");
        assert_eq!(server.received().len(), 1);

        let outcome = transport(Smtp { login: login("hunter2"), ..smtp.clone() }).deliver(MESSAGE, &noc()).await;
        let expected = "HOST refused the login of user user: 535 5.7.8 wrong user or password";
        assert_eq!(told(outcome, &server), ("server", expected.to_owned()));

        let outcome = transport(smtp).deliver(MESSAGE, &noc()).await;
        let expected = "HOST refused the sender pointsman@carrier.example: 530 5.7.0 log in first";
        assert_eq!(told(outcome, &server), ("server", expected.to_owned()));
    }
}

#[tokio::test]
async fn auth_login_is_used_where_plain_is_not_offered() {
    let (server, _tasks) = server(Options { login: Some(("user".into(), "right".into())), ..Options::default() }).await;
    server.set_script(vec![(Step::Ehlo, Act::Say(b"250-mail.example\r\n250 AUTH CRAM-MD5 LOGIN\r\n".to_vec()))]);
    transport(Smtp { login: login("right"), ..plain(&server) }).deliver(MESSAGE, &noc()).await.expect("a delivery");
    server.set_script(vec![(Step::Ehlo, Act::Say(b"250-mail.example\r\n250 AUTH CRAM-MD5\r\n".to_vec()))]);
    let outcome = transport(Smtp { login: login("right"), ..plain(&server) }).deliver(MESSAGE, &noc()).await;
    let expected = "HOST does not offer a login that can be used (PLAIN or LOGIN)";
    assert_eq!(told(outcome, &server), ("server", expected.to_owned()));
}

#[tokio::test]
async fn a_server_that_repeats_the_password_does_not_make_it_known() {
    let (server, _tasks) = server(Options { login: Some(("user".into(), "right".into())), ..Options::default() }).await;
    // "AHVzZXIAaHVudGVyMg==" is what AUTH PLAIN sends, "aHVudGVyMg==" what AUTH LOGIN does.
    let words = "\"AUTH PLAIN AHVzZXIAaHVudGVyMg==\" aHVudGVyMg== hunter2";
    for code in [500, 535, 421, 454] {
        server.set_script(vec![(Step::Auth, Act::answer(code, words))]);
        let outcome = transport(Smtp { login: login("hunter2"), ..plain(&server) }).deliver(MESSAGE, &noc()).await;
        let expected = format!("HOST refused the login of user user: {code} \"AUTH PLAIN ***\" *** ***");
        assert_eq!(told(outcome, &server), ("server", expected));
    }
    // Where the words are cut, no half of it stays.
    for before in 280..300 {
        let words = format!("{} aHVudGVyMg==", "x".repeat(before));
        server.set_script(vec![(Step::Auth, Act::answer(535, &words))]);
        let outcome = transport(Smtp { login: login("hunter2"), ..plain(&server) }).deliver(MESSAGE, &noc()).await;
        let (_, message) = told(outcome, &server);
        assert!(!message.contains("aHV"), "{message}");
    }
}

#[test]
fn what_is_configured_wrongly_is_said_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let ca_file = |content: &str| {
        let path = directory.path().join("ca.pem");
        fs::write(&path, content).expect("a file");
        Some(path)
    };
    let smtp = Smtp {
        host: "mail.example".to_owned(),
        port: 587,
        security: Security::Starttls,
        login: None,
        ca_file: ca_file("no certificate at all"),
        hello_name: None,
    };
    let problem = |smtp: &Smtp| Transport::new(&email(Via::Smtp(smtp.clone()))).expect_err("a problem");
    let message = problem(&smtp).to_string();
    assert!(
        message.ends_with("ca.pem: holds no certificate; it must be a PEM file with the certificates to trust"),
        "{message}"
    );
    let missing = Smtp { ca_file: Some(directory.path().join("missing.pem")), ..smtp.clone() };
    assert!(matches!(problem(&missing), TransportError::CaFile { .. }));
    let garbage =
        Smtp { ca_file: ca_file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), ..smtp.clone() };
    assert!(matches!(problem(&garbage), TransportError::CaFile { .. } | TransportError::Tls { .. }));
    let hello = Smtp { security: Security::None, hello_name: Some("a\r\nMAIL FROM:<x@y>".to_owned()), ..smtp.clone() };
    assert!(matches!(problem(&hello), TransportError::HelloName(_)));
    let mut email = email(Via::Smtp(Smtp { security: Security::None, ..smtp }));
    email.from.email = address("смена@carrier.example");
    assert!(matches!(Transport::new(&email), Err(TransportError::From(_))));
}

#[tokio::test]
async fn domains_are_sent_in_ascii_and_other_addresses_refused() {
    let (server, _tasks) = server(Options::default()).await;
    let transport = transport(plain(&server));
    transport.deliver(MESSAGE, &address("noc@оператор.example")).await.expect("a delivery");
    assert_eq!(server.received()[0].to, ["noc@xn--80aj0acchco.example"]);
    let outcome = transport.deliver(MESSAGE, &address("смена@acme.example")).await;
    assert!(matches!(outcome, Err(Failure::Permanent(_))), "{outcome:?}");
}

/// A directory with a script that stands for sendmail.
struct Sendmail(TempDir);

impl Sendmail {
    /// Written by another process: a file that this one has open for writing, or gives to a child of another test just
    /// then, could not be run.
    fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut writer = std::process::Command::new("sh")
            .args(["-c", "cat > sendmail && chmod +x sendmail"])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let script = format!("#!/bin/sh\ncd '{}'\n{script}\n", directory.path().display());
        writer.stdin.take().expect("its input").write_all(script.as_bytes()).expect("a script");
        assert!(writer.wait().expect("an end").success());
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("sendmail")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.path().join(name)).unwrap_or_default()
    }

    fn transport(&self) -> Transport {
        Transport::new(&email(Via::Sendmail(self.path()))).expect("a transport")
    }
}

#[tokio::test]
async fn sendmail_gets_the_message_and_addresses_that_are_no_options() {
    let sendmail = Sendmail::new("printf '%s\\n' \"$@\" > arguments; cat > message");
    let mut email = email(Via::Sendmail(sendmail.path()));
    email.from.email = address("-oQ/tmp@carrier.example");
    let transport = Transport::new(&email).expect("a transport");
    transport.deliver(MESSAGE, &address("-bp@acme.example")).await.expect("a delivery");
    assert_eq!(sendmail.read("arguments"), b"-i\n-f\n-oQ/tmp@carrier.example\n--\n-bp@acme.example\n");
    assert_eq!(sendmail.read("message"), MESSAGE);
}

#[tokio::test]
async fn the_exit_status_of_sendmail_says_whether_to_try_again() {
    let cases = [
        (64, "permanent"),
        (65, "permanent"),
        (67, "permanent"),
        (68, "permanent"),
        (1, "temporary"),
        (69, "temporary"),
        (70, "temporary"),
        (71, "temporary"),
        (73, "temporary"),
        (75, "temporary"),
        (76, "temporary"),
        (127, "temporary"),
        (77, "server"),
        (78, "server"),
    ];
    for (status, expected) in cases {
        let sendmail = Sendmail::new(&format!("cat > message; echo no  luck >&2; exit {status}"));
        let failure = sendmail.transport().deliver(MESSAGE, &noc()).await.expect_err("a failure");
        let kind = match failure {
            Failure::Server(_) => "server",
            Failure::Temporary(_) => "temporary",
            Failure::Permanent(_) => "permanent",
        };
        let path = sendmail.path();
        let message = format!("{} failed for noc@acme.example (exit status: {status}): no luck", path.display());
        assert_eq!((kind, failure.to_string()), (expected, message));
    }
}

#[tokio::test]
async fn a_sendmail_that_is_killed_may_do_better_next_time() {
    let sendmail = Sendmail::new("kill -9 $$");
    let outcome = sendmail.transport().deliver(MESSAGE, &noc()).await;
    assert!(matches!(outcome, Err(Failure::Temporary(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_sendmail_that_does_not_read_has_not_delivered() {
    let sendmail = Sendmail::new("exec 0<&-; exit 0");
    // More than a pipe holds.
    let outcome = sendmail.transport().deliver(&b"x".repeat(4 << 20), &noc()).await;
    assert!(matches!(outcome, Err(Failure::Temporary(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_talkative_sendmail_does_not_block_and_is_cut_short() {
    let talk = "head -c 3000000 /dev/zero | tr '\\0' x";
    let sendmail = Sendmail::new(&format!("{talk}; {talk} >&2; cat > message; exit 75"));
    let failure = sendmail.transport().deliver(MESSAGE, &noc()).await.expect_err("a failure");
    assert!(failure.to_string().ends_with("xxx..."), "{failure}");
    assert!(failure.to_string().len() < 600, "{failure}");
    assert_eq!(sendmail.read("message"), MESSAGE);
}

#[tokio::test]
async fn what_sendmail_leaves_running_is_not_waited_for() {
    let sendmail = Sendmail::new("cat > message; (read _ < gate) 2>&2 & exit 0");
    let gate = sendmail.0.path().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().expect("mkfifo").success());
    sendmail.transport().deliver(MESSAGE, &noc()).await.expect("a delivery");
    // Lets it go; opening for both ways does not wait for it.
    let _ = fs::OpenOptions::new().read(true).write(true).open(&gate).expect("the gate").write_all(b"\n");
}

#[tokio::test]
async fn a_sendmail_that_hangs_is_killed_at_the_timeout() {
    let sendmail = Sendmail::new("echo $$ > pid.new; mv pid.new pid; exec sleep 100000");
    let transport = sendmail.transport();
    let pid = || String::from_utf8(sendmail.read("pid")).expect("a number");
    let time_passes = async {
        while pid().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::pause();
        tokio::time::advance(TIMEOUT).await;
    };
    let to = noc();
    let (outcome, ()) = tokio::join!(transport.deliver(MESSAGE, &to), time_passes);
    let expected = format!("{} did not end within 600 s and was killed", sendmail.path().display());
    assert_eq!(outcome, Err(Failure::Server(expected)));
    tokio::time::resume();
    while runs(pid().trim()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process is there and not merely waiting to be buried.
fn runs(pid: &str) -> bool {
    let state = std::process::Command::new("ps").args(["-o", "stat=", "-p", pid]).output();
    state.is_ok_and(|output| output.status.success() && !output.stdout.starts_with(b"Z"))
}

#[tokio::test]
async fn a_sendmail_that_is_missing_or_no_program_is_the_servers_failure() {
    for path in [Path::new("/no/such/sendmail"), Path::new("/etc/passwd")] {
        let transport = Transport::new(&email(Via::Sendmail(path.to_owned()))).expect("a transport");
        let outcome = transport.deliver(MESSAGE, &noc()).await;
        let expected = format!("cannot start {}: ", path.display());
        assert!(matches!(&outcome, Err(Failure::Server(message)) if message.starts_with(&expected)), "{outcome:?}");
    }
}
