//! Connections to a PBX: TCP, with TLS where it is configured.

use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config::model::Tls;
use crate::pbx::session::{End, Secrecy};

/// A connection that is not made after this long is given up, TLS and the look-up of the name included.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The kernel's own check of a silent connection; the keepalive of the sessions is quicker, this one also ends what
/// they no longer look at.
const TCP_KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5)).with_retries(3);

/// What was sent and is not acknowledged after this long ends a connection.
#[cfg(target_os = "linux")]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes in both directions.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Io for S {}

/// A connection, and whether a password may go over it as it is.
pub(super) struct Connection {
    pub(super) io: Box<dyn Io>,
    pub(super) secrecy: Secrecy,
}

/// Makes connections.
pub(super) trait Connect: Send + Sync + 'static {
    /// Makes one.
    fn connect(&self) -> impl Future<Output = Result<Connection, End>> + Send;
}

/// Connections to one address.
pub(super) struct Transport {
    address: String,
    tls: Option<Tls>,
    /// Made at the first connection that needs it: certificates may be put into place while we run.
    connector: OnceLock<TlsConnector>,
}

impl Transport {
    pub(super) fn new(address: String, tls: Option<Tls>) -> Self {
        Self { address, tls, connector: OnceLock::new() }
    }

    async fn open(&self) -> Result<Connection, End> {
        let stream = TcpStream::connect(&self.address)
            .await
            .map_err(|error| End::Lost(format!("cannot connect to {}: {}", self.address, words(&error))))?;
        // Best effort: a socket without these still works.
        let _ = tune(&stream);
        let Some(tls) = &self.tls else {
            let local = stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
            let secrecy = if local { Secrecy::Plain } else { Secrecy::Challenge };
            return Ok(Connection { io: Box::new(stream), secrecy });
        };
        let name = server_name(tls, &self.address)?;
        let connector = self.connector(tls).await?;
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| End::Lost(format!("TLS with {} failed: {error}", self.address)))?;
        Ok(Connection { io: Box::new(stream), secrecy: Secrecy::Plain })
    }

    async fn connector(&self, tls: &Tls) -> Result<TlsConnector, End> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector.clone());
        }
        let tls = tls.clone();
        // Reading the system's certificates takes some milliseconds of blocking file access.
        let config = tokio::task::spawn_blocking(move || client_config(&tls))
            .await
            .map_err(|_| End::Lost("TLS could not be set up".to_owned()))??;
        Ok(self.connector.get_or_init(|| TlsConnector::from(Arc::new(config))).clone())
    }
}

impl Connect for Transport {
    async fn connect(&self) -> Result<Connection, End> {
        match tokio::time::timeout(CONNECT_LIMIT, self.open()).await {
            Ok(result) => result,
            Err(_) => Err(End::Lost(format!(
                "cannot connect to {}: no answer in {} s",
                self.address,
                CONNECT_LIMIT.as_secs()
            ))),
        }
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there (connection refused)".to_owned(),
        _ => error.to_string(),
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TCP_KEEPALIVE)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT))?;
    Ok(())
}

/// The name that the certificate must show: the one configured, else the host of the address.
fn server_name(tls: &Tls, address: &str) -> Result<ServerName<'static>, End> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = tls.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned())
        .map_err(|_| End::Lost(format!("TLS: {name:?} cannot be the name of a server")))
}

fn client_config(tls: &Tls) -> Result<ClientConfig, End> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| End::Lost(format!("TLS could not be set up: {error}")))?;
    Ok(config.with_root_certificates(roots(tls)?).with_no_client_auth())
}

fn roots(tls: &Tls) -> Result<RootCertStore, End> {
    let mut store = RootCertStore::empty();
    let Some(path) = &tls.ca_file else {
        let (added, _) = store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if added > 0 {
            Ok(store)
        } else {
            Err(End::Lost("TLS: this system has no trusted certificates".to_owned()))
        };
    };
    let problem = |what: String| End::Lost(format!("TLS: {}: {what}", path.display()));
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| problem(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| problem(error.to_string()))?;
        store.add(certificate).map_err(|error| problem(error.to_string()))?;
    }
    if store.is_empty() { Err(problem("holds no certificate".to_owned())) } else { Ok(store) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_must_show_the_host_of_the_address_or_the_name_configured() {
        let name = |address: &str, configured: Option<&str>| {
            let tls = Tls { ca_file: None, server_name: configured.map(str::to_owned) };
            server_name(&tls, address).map(|name| name.to_str().into_owned())
        };
        assert_eq!(name("pbx.example:5039", None).unwrap(), "pbx.example");
        assert_eq!(name("10.0.0.7:5039", None).unwrap(), "10.0.0.7");
        assert_eq!(name("[2001:db8::1]:5039", None).unwrap(), "2001:db8::1");
        assert_eq!(name("10.0.0.7:5039", Some("pbx.example")).unwrap(), "pbx.example");
        assert!(name("a b:5039", None).is_err());
    }
}
