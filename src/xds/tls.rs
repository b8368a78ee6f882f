//! TLS of the xDS server: from the files that the operator names to what a connection is accepted with.
//!
//! `pointsman check` reads the same files by the same function as the running program, so what it calls good will serve.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use crate::config::model::XdsTls;
use crate::tasks::Tasks;

/// What is spoken inside: gRPC is HTTP/2 alone.
const ALPN: &[u8] = b"h2";

/// Most of a file that is read. The bundle of all public authorities takes a quarter of it.
const MAX_PEM: u64 = 1024 * 1024;

/// One of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The server's certificate with its chain.
    Certificate,
    /// The key of that.
    Key,
    /// Who signs the certificates of clients.
    ClientCa,
}

/// Why the files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TlsProblem {
    /// Which of them is at fault.
    pub file: TlsFile,
    /// What is wrong, with the path.
    pub message: String,
}

/// What connections are accepted with: TLS 1.2 and 1.3, HTTP/2 alone, and a certificate wanted of every client where
/// `client_ca_file` says who signs them.
///
/// # Errors
/// The file that cannot be read, holds nothing of its kind, or does not go with the others.
pub fn server_config(tls: &XdsTls) -> Result<ServerConfig, TlsProblem> {
    read_config(tls, false)
}

/// [`server_config`]; with `or_token` a client may leave the certificate, and show a token later on.
fn read_config(tls: &XdsTls, or_token: bool) -> Result<ServerConfig, TlsProblem> {
    let XdsTls { cert_file, key_file, client_ca_file } = tls;
    let wrong = |error| unusable(TlsFile::Certificate, cert_file, reason(&error));
    let chain = certificates(TlsFile::Certificate, cert_file)?;
    let key = PrivateKeyDer::from_pem_slice(&read(TlsFile::Key, key_file)?)
        .map_err(|error| no_pem(TlsFile::Key, key_file, &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().map_err(wrong)?;
    let config = match client_ca_file {
        None => config.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(TlsFile::ClientCa, path)? {
                roots.add(certificate).map_err(|error| unusable(TlsFile::ClientCa, path, reason(&error)))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if or_token { verifier.allow_unauthenticated() } else { verifier };
            config
                .with_client_cert_verifier(verifier.build().map_err(|error| unusable(TlsFile::ClientCa, path, error))?)
        }
    };
    let mut config = config.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InvalidCertificate(_) => wrong(error),
        rustls::Error::InconsistentKeys(_) => {
            let (key, certificate) = (key_file.display(), cert_file.display());
            let message = format!("the key in {key} is not that of the certificate in {certificate}");
            TlsProblem { file: TlsFile::Key, message }
        }
        _ => unusable(TlsFile::Key, key_file, reason(&error)),
    })?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

fn certificates(file: TlsFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(file, path)?).collect();
    match found {
        Ok(found) if found.is_empty() => Err(no_pem(file, path, &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(error) => Err(no_pem(file, path, &error)),
    }
}

fn read(file: TlsFile, path: &Path) -> Result<Vec<u8>, TlsProblem> {
    let mut bytes = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(MAX_PEM + 1).read_to_end(&mut bytes));
    let problem = match opened {
        Err(error) => error.to_string(),
        Ok(_) if bytes.len() as u64 > MAX_PEM => format!("it has more than {MAX_PEM} bytes"),
        Ok(_) => return Ok(bytes),
    };
    Err(TlsProblem { file, message: format!("cannot read {}: {problem}", path.display()) })
}

fn no_pem(file: TlsFile, path: &Path, error: &pem::Error) -> TlsProblem {
    let shown = path.display();
    let message = match (error, file) {
        (pem::Error::NoItemsFound, TlsFile::Key) => format!("{shown} holds no key in PEM form without a passphrase"),
        (pem::Error::NoItemsFound, _) => format!("{shown} holds no certificate in PEM form"),
        _ => format!("{shown} is damaged: what it holds is not PEM to its end"),
    };
    TlsProblem { file, message }
}

fn unusable(file: TlsFile, path: &Path, why: impl std::fmt::Display) -> TlsProblem {
    TlsProblem { file, message: format!("{} cannot be used: {why}", path.display()) }
}

/// What is wrong; that it is "the peer's certificate" is not so, and left out.
fn reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => format!("a certificate in it: {why}"),
        error => error.to_string(),
    }
}

/// How often the files are looked at: whoever renews certificates does so days before they end.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What the files hold, for every connection from now on; read again when they change.
pub(super) struct Identity {
    files: XdsTls,
    or_token: bool,
    current: ArcSwapOption<ServerConfig>,
}

/// A connection with TLS, and the name in the client's certificate where it showed one.
type Accepted<S> = (TlsStream<S>, Option<Arc<str>>);

impl Identity {
    /// What the files hold now. With `or_token` a client may leave its certificate, and show a token later on.
    pub(super) async fn read(files: XdsTls, or_token: bool, tasks: &Tasks) -> Arc<Self> {
        let identity = Arc::new(Self { files, or_token, current: ArcSwapOption::empty() });
        let seen = tasks
            .run_blocking({
                let identity = Arc::clone(&identity);
                move || identity.look(Seen::default())
            })
            .await;
        let (looking, stopping) = (Arc::clone(&identity), tasks.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = looking.keep_looking(seen.unwrap_or_default(), &stopping) => {}
                () = stopping.stopping() => {}
            }
        });
        identity
    }

    async fn keep_looking(self: Arc<Self>, mut seen: Seen, tasks: &Tasks) {
        loop {
            sleep(LOOK_EVERY).await;
            let identity = Arc::clone(&self);
            seen = tasks.run_blocking(move || identity.look(seen)).await.unwrap_or_default();
        }
    }

    /// Takes what the files hold, where they are not as they were seen last. What cannot be used leaves everything as it was,
    /// is said once, and is tried again at every look: whoever renews a file may set its owner a moment later.
    fn look(&self, seen: Seen) -> Seen {
        let stamps = Stamps::of(&self.files);
        if seen.stamps.as_ref() == Some(&stamps) {
            return seen;
        }
        match read_config(&self.files, self.or_token) {
            Ok(config) => {
                if seen.stamps.is_some() {
                    tracing::info!("the xDS server has read its certificates again");
                }
                self.current.store(Some(Arc::new(config)));
                Seen { stamps: Some(stamps), problem: None }
            }
            Err(problem) => {
                if seen.problem.as_ref() != Some(&problem) {
                    tracing::error!("the xDS server goes on with the certificates that it has: {problem}");
                }
                Seen { problem: Some(problem), ..seen }
            }
        }
    }

    /// The handshake of a connection.
    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<Accepted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.current.load_full().ok_or_else(|| io::Error::other("there is no usable certificate"))?;
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let name = shown.map(|certificate| name_in(certificate).into());
        Ok((stream, name))
    }
}

/// What was seen of the files.
#[derive(Default)]
struct Seen {
    /// As they were when they were read.
    stamps: Option<Stamps>,
    /// Why they cannot be used as they are now.
    problem: Option<TlsProblem>,
}

/// What tells a file from the one that was there before: when it was changed, itself or its owner, and its length.
#[derive(PartialEq)]
struct Stamps([Option<(i64, i64, i64, u64)>; 3]);

impl Stamps {
    fn of(files: &XdsTls) -> Self {
        let stamp = |path: &PathBuf| {
            let file = fs::metadata(path).ok()?;
            Some((file.mtime(), file.ctime(), file.ctime_nsec(), file.len()))
        };
        Self([stamp(&files.cert_file), stamp(&files.key_file), files.client_ca_file.as_ref().and_then(stamp)])
    }
}

/// What a certificate says whose it is: the first name or URI for whom it is valid.
fn name_in(certificate: &CertificateDer<'_>) -> String {
    let parsed = EndEntityCert::try_from(certificate).ok();
    let first = parsed.and_then(|parsed| {
        let mut names = parsed.valid_dns_names().map(str::to_owned);
        names.next().or_else(|| parsed.valid_uri_names().next().map(str::to_owned))
    });
    first.unwrap_or_else(|| "a certificate without a name".to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, ProtocolVersion, ServerConnection, version};

    use super::*;

    /// An authority, and what it signs.
    struct Authority {
        pem: String,
        der: CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = params.self_signed(&key).unwrap();
            Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
        }

        /// Certificate and key for a name.
        fn signs(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &self.issuer).unwrap(), key)
        }
    }

    /// A folder with the files of a server for `localhost`, and that of an authority for its clients.
    fn folder(authority: &Authority) -> (tempfile::TempDir, XdsTls) {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) = authority.signs("localhost");
        let tls = XdsTls {
            cert_file: file("cert.pem", certificate.pem()),
            key_file: file("key.pem", key.serialize_pem()),
            client_ca_file: Some(file("ca.pem", authority.pem.clone())),
        };
        (folder, tls)
    }

    /// What both ends agree on: the version, the protocol inside, and whether the client showed a certificate; or why
    /// the server refuses.
    fn shake(server: ServerConfig, client: ClientConfig) -> Result<(ProtocolVersion, Vec<u8>, bool), rustls::Error> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
            let mut there = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut there).unwrap();
            }
            let mut there = &there[..];
            while !there.is_empty() {
                server.read_tls(&mut there).unwrap();
                server.process_new_packets()?;
            }
            let mut back = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut back).unwrap();
            }
            let mut back = &back[..];
            while !back.is_empty() {
                client.read_tls(&mut back).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        let inside = server.alpn_protocol().unwrap_or_default().to_vec();
        Ok((server.protocol_version().unwrap(), inside, server.peer_certificates().is_some()))
    }

    fn client(
        authority: &Authority,
        version: &'static rustls::SupportedProtocolVersion,
        identity: Option<(rcgen::Certificate, KeyPair)>,
        inside: &[u8],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let config = config.with_root_certificates(roots);
        let mut config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![inside.to_vec()];
        config
    }

    #[test]
    fn both_versions_are_spoken_with_http_2_inside_and_nothing_else() {
        let authority = Authority::new();
        let (_folder, tls) = folder(&authority);
        let tls = XdsTls { client_ca_file: None, ..tls };
        for version in [&version::TLS12, &version::TLS13] {
            let agreed = shake(server_config(&tls).unwrap(), client(&authority, version, None, b"h2")).unwrap();
            assert_eq!(agreed, (version.version, b"h2".to_vec(), false));
        }
        let older = shake(server_config(&tls).unwrap(), client(&authority, &version::TLS13, None, b"http/1.1"));
        assert_eq!(older, Err(rustls::Error::NoApplicationProtocol));
    }

    #[test]
    fn where_an_authority_is_named_a_client_needs_a_certificate_of_it() {
        let authority = Authority::new();
        let (_folder, tls) = folder(&authority);
        let shake =
            |identity| shake(server_config(&tls).unwrap(), client(&authority, &version::TLS13, identity, b"h2"));
        assert_eq!(shake(Some(authority.signs("edge-01"))), Ok((ProtocolVersion::TLSv1_3, b"h2".to_vec(), true)));
        assert_eq!(shake(None), Err(rustls::Error::NoCertificatesPresented));
        let strange = shake(Some(Authority::new().signs("edge-01")));
        assert!(matches!(strange, Err(rustls::Error::InvalidCertificate(_))), "{strange:?}");
    }

    #[test]
    fn files_that_cannot_serve_are_named_with_what_is_wrong() {
        use TlsFile::{Certificate, ClientCa, Key};
        let authority = Authority::new();
        let (folder, tls) = folder(&authority);
        let file = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let with = |file, path| match file {
            Certificate => XdsTls { cert_file: path, ..tls.clone() },
            Key => XdsTls { key_file: path, ..tls.clone() },
            ClientCa => XdsTls { client_ca_file: Some(path), ..tls.clone() },
        };
        let other = KeyPair::generate().unwrap().serialize_pem();
        let locked = other.replace("PRIVATE", "ENCRYPTED PRIVATE");
        let cut = &authority.pem[..authority.pem.len() / 2];
        let junk = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let long = vec![b'\n'; 1024 * 1024 + 1];
        for (at_fault, path, expected) in [
            (Certificate, folder.path().join("none"), "cannot read "),
            (Certificate, folder.path().to_owned(), "Is a directory"),
            (Certificate, file("empty", b""), "holds no certificate in PEM form"),
            (Certificate, tls.key_file.clone(), "holds no certificate in PEM form"),
            (Certificate, file("cut", cut.as_bytes()), "is damaged"),
            (Certificate, file("junk", junk), "cannot be used: a certificate in it: "),
            (Certificate, file("long", &long), "it has more than 1048576 bytes"),
            (Key, folder.path().join("none"), "cannot read "),
            (Key, tls.cert_file.clone(), "holds no key in PEM form without a passphrase"),
            (Key, file("locked", locked.as_bytes()), "holds no key in PEM form without a passphrase"),
            (Key, file("other", other.as_bytes()), "is not that of the certificate in "),
            (ClientCa, folder.path().join("none"), "cannot read "),
            (ClientCa, tls.key_file.clone(), "holds no certificate in PEM form"),
            (ClientCa, file("junk", junk), "cannot be used: a certificate in it: "),
        ] {
            let problem = server_config(&with(at_fault, path.clone())).unwrap_err();
            assert_eq!(problem.file, at_fault, "{problem}");
            assert!(problem.message.contains(expected), "{problem}");
            assert!(problem.message.contains(&path.display().to_string()), "{problem}");
        }
    }
}
