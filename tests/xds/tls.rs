//! Who is let in: by certificate, by token, by either.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use pointsman::clock::Clock;
use pointsman::config::model::{Xds, XdsTls, XdsToken};
use pointsman::edge::Health;
use pointsman::xds::Limits;
use pointsman::xds::kind::Kind;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::stage::{PATIENCE, Stage, Subscriber, open, soon, two_nodes};

const SECRET: &str = "0123456789abcdef";

/// An authority with the certificates of one server in a folder.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let authority = Self { issuer: Issuer::new(params, key), certificate, folder: TempDir::new().unwrap() };
        authority.renew();
        std::fs::write(authority.path("ca.pem"), authority.certificate.pem()).unwrap();
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Another certificate for the server.
    fn renew(&self) {
        let (certificate, key) = self.sign("localhost");
        std::fs::write(self.path("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(self.path("key.pem"), key.serialize_pem()).unwrap();
    }

    fn server(&self, of_clients: Option<&Path>, tokens: &[&str]) -> Xds {
        let tls = XdsTls {
            cert_file: self.path("cert.pem"),
            key_file: self.path("key.pem"),
            client_ca_file: of_clients.map(Path::to_owned),
        };
        let token = |name: &&str| XdsToken { name: (*name).to_owned(), secret: SECRET.to_owned().into() };
        Xds { tls: Some(tls), tokens: tokens.iter().map(token).collect(), ..open() }
    }

    /// A connection that trusts this authority and shows a certificate of that one, where there is one.
    async fn connect(&self, stage: &Stage, shows: Option<(&Self, &str)>) -> Result<Channel, tonic::transport::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let mut config = match shows {
            None => config.with_no_client_auth(),
            Some((authority, name)) => {
                let (certificate, key) = authority.sign(name);
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (connector, address) = (TlsConnector::from(Arc::new(config)), stage.address);
        let connect = tower::service_fn(move |_| {
            let connector = connector.clone();
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = ServerName::try_from("localhost").unwrap();
                connector.connect(name, stream).await.map(TokioIo::new)
            }
        });
        soon(Endpoint::from_static("http://localhost").connect_with_connector(connect)).await
    }
}

/// Whether somebody on this connection is told anything, and what they are called then.
async fn told(stage: &Stage, channel: Channel) -> Result<Option<String>, Status> {
    let mut client = Subscriber::on(channel).await?;
    client.ask("edge-1", Kind::Endpoints, &["sip"]).await;
    match soon(client.hears.message()).await? {
        Some(_) => Ok(stage.registry.view().clients.last().unwrap().who.clone()),
        None => Err(Status::unknown("the stream ended")),
    }
}

async fn stage(xds: &Xds) -> Stage {
    let stage = Stage::set_with(xds, Limits::default(), Clock::system()).await;
    stage.serve(two_nodes((Health::Healthy, 67), (Health::Healthy, 50)));
    stage
}

#[tokio::test]
async fn a_certificate_of_the_right_authority_is_wanted() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let stage = stage(&ours.server(Some(&ours.path("ca.pem")), &[])).await;
    let channel = ours.connect(&stage, Some((&ours, "edge-7.example"))).await.unwrap();
    assert_eq!(told(&stage, channel).await.unwrap().as_deref(), Some("edge-7.example"));
    for shows in [None, Some((&theirs, "edge-7.example"))] {
        // With TLS 1.3 a client hears that it is refused only when it goes on.
        if let Ok(channel) = ours.connect(&stage, shows).await {
            told(&stage, channel).await.unwrap_err();
        }
    }
    stage.seen(|view| view.totals.refused == 2).await;
}

#[tokio::test]
async fn where_tokens_are_configured_too_either_will_do() {
    let ours = Authority::new();
    let stage = stage(&ours.server(Some(&ours.path("ca.pem")), &["edge"])).await;
    let channel = ours.connect(&stage, Some((&ours, "edge-7.example"))).await.unwrap();
    assert_eq!(told(&stage, channel).await.unwrap().as_deref(), Some("edge-7.example"));
    let nothing = ours.connect(&stage, None).await.unwrap();
    assert_eq!(told(&stage, nothing).await.unwrap_err().code(), Code::Unauthenticated);
    stage.ended("this needs a token").await;
}

#[tokio::test]
async fn a_token_lets_in_and_a_wrong_one_does_not() {
    use pointsman::xds::protocol::envoy::service::discovery::v3::DiscoveryRequest;
    use pointsman::xds::protocol::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient as Client;

    let tokens = vec![XdsToken { name: "edge".to_owned(), secret: SECRET.to_owned().into() }];
    let stage = stage(&Xds { tokens, ..open() }).await;
    let subscribe = async |secret: &str| {
        let mut request = Request::new(tokio_stream::pending::<DiscoveryRequest>());
        let shown = MetadataValue::try_from(format!("Bearer {secret}")).unwrap();
        request.metadata_mut().insert("authorization", shown);
        Client::new(stage.channel().await).stream_aggregated_resources(request).await
    };
    assert_eq!(subscribe("0123456789abcdeF").await.unwrap_err().code(), Code::Unauthenticated);
    let _stream = subscribe(SECRET).await.unwrap();
    let view = stage.seen(|view| view.clients.len() == 1).await;
    assert_eq!(view.clients[0].who.as_deref(), Some("edge"));
}

#[tokio::test]
async fn a_handshake_that_never_comes_does_not_keep_the_program_from_stopping() {
    use tokio::io::AsyncWriteExt;

    let ours = Authority::new();
    let stage = stage(&ours.server(None, &[])).await;
    let mut half = TcpStream::connect(stage.address).await.unwrap();
    // The head of a record of the handshake, and nothing in it.
    half.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
    drop(ours.connect(&stage, None).await.unwrap());
    let limit = std::time::Duration::from_secs(5);
    assert!(stage.tasks.stop(limit).await, "within less than the ten seconds that a handshake may take");
}

#[tokio::test]
async fn a_certificate_that_is_renewed_is_taken_without_a_restart() {
    let ours = Authority::new();
    let stage = stage(&ours.server(None, &[])).await;
    let shown = async || {
        let stream = TcpStream::connect(stage.address).await.unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(ours.certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let before = shown().await;
    // Half of it is there when it is looked at, in the worst case.
    std::fs::write(ours.path("key.pem"), "half a key").unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    assert_eq!(shown().await, before);
    ours.renew();
    let renewed = async {
        while shown().await == before {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.expect("the new one in time");
}
