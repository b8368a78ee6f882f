//! Who may subscribe: certificates and tokens.

use super::*;
use crate::lab::folder::Folder;
use crate::lab::keys;

/// Keys of the server, of a client that it knows and of a stranger; each with an authority of its own.
fn keys() -> [Folder; 3] {
    ["server", "client", "stranger"].map(|name| {
        let folder = Folder::new(name);
        keys::write(&folder, name, "127.0.0.1");
        folder
    })
}

fn path(folder: &Folder, name: &str) -> String {
    folder.join("keys").join(name).display().to_string()
}

/// The lines of a server with TLS.
fn server_lines(server: &Folder) -> String {
    format!("tls_cert_file = \"{}\"\ntls_key_file = \"{}\"\n", path(server, "server.crt"), path(server, "server.key"))
}

/// Whether an Envoy with this configuration gets the nodes; how it fails otherwise is in its log.
fn is_served(bootstrap: &Value) -> bool {
    let envoy = Envoy::start(&bootstrap.to_string());
    eventually("Envoy to be served or refused", SOON, || {
        let served = envoy.hosts(WSS).len() == NODES.len();
        let refused = envoy.stat("cluster.pointsman.upstream_cx_connect_fail") > 0
            || envoy.stat("cluster_manager.cds.update_failure") > 0;
        (served || refused).then_some(served)
    })
}

#[test]
fn edges_with_a_certificate_are_served_and_others_are_not() {
    let [server, client, stranger] = keys();
    let lines = server_lines(&server) + &format!("tls_client_ca_file = \"{}\"\n", path(&client, "authority.pem"));
    let edges = Edges::with(&lines, "");
    let authority = path(&server, "authority.pem");
    let own = (path(&client, "client.crt"), path(&client, "client.key"));
    let foreign = (path(&stranger, "stranger.crt"), path(&stranger, "stranger.key"));

    for speech in Speech::BOTH {
        let plain = envoy::bootstrap(speech, "edge-01", edges.port);
        let with = |own: Option<&(String, String)>| envoy::over_tls(plain.clone(), &authority, own);
        assert!(is_served(&with(Some(&own))));
        assert!(!is_served(&with(None)));
        assert!(!is_served(&with(Some(&foreign))));
        assert!(!is_served(&plain));
    }

    let called = |own: Option<&(String, String)>| {
        let mut config = json!({ "ca_certificate_file": authority });
        if let Some((certificate, key)) = own {
            config["certificate_file"] = json!(certificate);
            config["private_key_file"] = json!(key);
        }
        let credentials = json!({ "type": "tls", "config": config });
        let mut client = GrpcClient::start(&grpc_client::bootstrap("client-01", edges.port, &credentials));
        client.call(&target(MEDIA), 1).into_keys().next().unwrap()
    };
    let by = called(Some(&own));
    assert!(NODES.contains(&by.as_str()), "{by}");
    let refused = called(None);
    assert!(refused.starts_with('!'), "{refused}");
}

#[test]
fn edges_with_a_token_are_served_and_others_are_not() {
    let [server, ..] = keys();
    let token = "3fd1b4a5c2e94c1d8a7b6f5e4d3c2b1a";
    let lines = server_lines(&server) + &format!("[[xds.tokens]]\nname = \"edges\"\ntoken = \"{token}\"\n");
    let edges = Edges::with(&lines, "");
    for speech in Speech::BOTH {
        let plain = envoy::bootstrap(speech, "edge-01", edges.port);
        let bootstrap = envoy::over_tls(plain, &path(&server, "authority.pem"), None);
        assert!(is_served(&envoy::with_token(bootstrap.clone(), token)));
        assert!(!is_served(&envoy::with_token(bootstrap.clone(), "another")));
        assert!(!is_served(&bootstrap));
    }
}
