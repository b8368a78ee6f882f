//! Envoy itself, with a configuration of the test's.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::folder::Folder;
use super::process::Process;
use super::{SOON, cached, eventually, http};

/// Which of the two protocols an Envoy speaks to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// State of the world.
    Whole,
    /// Incremental.
    Delta,
}

impl Speech {
    pub(crate) const BOTH: [Self; 2] = [Self::Whole, Self::Delta];

    /// As Envoy's configuration says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "GRPC",
            Self::Delta => "DELTA_GRPC",
        }
    }
}

/// A configuration that takes everything from the server at that port of this machine.
pub(crate) fn bootstrap(speech: Speech, node: &str, port: u16) -> Value {
    json!({
        "node": { "id": node, "cluster": "edges" },
        "admin": { "address": address(0) },
        "dynamic_resources": {
            "ads_config": {
                "api_type": speech.name(),
                "transport_api_version": "V3",
                "grpc_services": [{ "envoy_grpc": {
                    "cluster_name": "pointsman",
                    // Back soon after a server that was away; Envoy's own bounds are half a second and half a minute.
                    "retry_policy": { "retry_back_off": { "base_interval": "0.2s", "max_interval": "1s" } },
                } }],
            },
            "cds_config": { "ads": {}, "resource_api_version": "V3" },
            "lds_config": { "ads": {}, "resource_api_version": "V3" },
        },
        "static_resources": { "clusters": [{
            "name": "pointsman",
            "type": "STATIC",
            "connect_timeout": "1s",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http2_protocol_options": {} },
                },
            },
            "load_assignment": {
                "cluster_name": "pointsman",
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(port) } }] }],
            },
        }] },
    })
}

/// This configuration with TLS to the server: who signed the server's certificate, and Envoy's own certificate and key.
pub(crate) fn over_tls(mut bootstrap: Value, authority: &str, own: Option<&(String, String)>) -> Value {
    let mut context = json!({
        "alpn_protocols": ["h2"],
        "validation_context": { "trusted_ca": { "filename": authority }, "match_typed_subject_alt_names": [{
            "san_type": "IP_ADDRESS",
            "matcher": { "exact": "127.0.0.1" },
        }] },
    });
    if let Some((certificate, key)) = own {
        context["tls_certificates"] =
            json!([{ "certificate_chain": { "filename": certificate }, "private_key": { "filename": key } }]);
    }
    bootstrap["static_resources"]["clusters"][0]["transport_socket"] = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": context,
        },
    });
    bootstrap
}

/// This configuration with a token for the server.
pub(crate) fn with_token(mut bootstrap: Value, token: &str) -> Value {
    bootstrap["dynamic_resources"]["ads_config"]["grpc_services"][0]["initial_metadata"] =
        json!([{ "key": "authorization", "value": format!("Bearer {token}") }]);
    bootstrap
}

fn address(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}

/// A node as Envoy has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// In Envoy's words.
    pub(crate) health: String,
    pub(crate) weight: u64,
}

/// Envoy, running.
#[derive(Debug)]
pub(crate) struct Envoy {
    folder: Folder,
    process: Process,
    admin: String,
}

impl Envoy {
    /// With this configuration (YAML, or JSON, which is YAML too).
    pub(crate) fn start(bootstrap: &str) -> Self {
        let folder = Folder::new("envoy");
        folder.write("envoy.yaml", bootstrap);
        let (program, out) = (cached("edges/bin/envoy"), folder.join("log"));
        // Hot restart shares memory by a number that must be one's own on the machine.
        let args = "-c envoy.yaml --admin-address-path admin --concurrency 1 --disable-hot-restart --log-level warning";
        let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
        let mut process = Process::start(program.to_str().unwrap(), &args, &out);
        let admin = eventually("Envoy's admin port", SOON, || {
            assert!(process.runs(), "Envoy ended (scripts/live-setup?):\n{}", folder.read("log"));
            let address = folder.read("admin");
            (http::get(&address, "/ready").is_some()).then_some(address)
        });
        Self { folder, process, admin }
    }

    /// What Envoy itself says of a configuration without running it: whether it is sound, and its words.
    pub(crate) fn validate(bootstrap: &str) -> (bool, String) {
        let folder = Folder::new("envoy");
        folder.write("envoy.yaml", bootstrap);
        let output = std::process::Command::new(cached("edges/bin/envoy"))
            .args(["--mode", "validate", "-c", "envoy.yaml"])
            .current_dir(folder.path())
            .output()
            .expect("installed by scripts/live-setup");
        let words = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&words).into_owned())
    }

    pub(crate) fn log(&self) -> String {
        self.folder.read("log")
    }

    /// An answer of its admin port.
    pub(crate) fn admin(&self, path: &str) -> String {
        let answer = http::get(&self.admin, path);
        let (status, body) = answer.unwrap_or_else(|| panic!("Envoy does not answer {path}:\n{}", self.log()));
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// A counter or a gauge; 0 where there is none of that name.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let lines = self.admin(&format!("/stats?filter=^{name}$"));
        lines.split_once(": ").map_or(0, |(_, value)| value.trim().parse().unwrap())
    }

    /// The nodes of a cluster by their ports; none where there is no such cluster.
    pub(crate) fn hosts(&self, cluster: &str) -> BTreeMap<u16, Host> {
        let told: Value = serde_json::from_str(&self.admin("/clusters?format=json")).unwrap();
        let statuses = told["cluster_statuses"].as_array().into_iter().flatten();
        let of_cluster = statuses.filter(|status| status["name"] == cluster);
        of_cluster.flat_map(|status| status["host_statuses"].as_array().into_iter().flatten()).map(host).collect()
    }

    /// Waits until the nodes of a cluster are as looked for.
    pub(crate) fn shows(&self, cluster: &str, what: &str, look: impl Fn(&BTreeMap<u16, Host>) -> bool) {
        let mut last = BTreeMap::new();
        eventually(&format!("Envoy's {cluster}: {what}"), SOON, || {
            last = self.hosts(cluster);
            look(&last).then_some(())
        });
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

fn host(status: &Value) -> (u16, Host) {
    let port = status["address"]["socket_address"]["port_value"].as_u64().unwrap();
    let health = status["health_status"]["eds_health_status"].as_str().unwrap_or("none").to_owned();
    (u16::try_from(port).unwrap(), Host { health, weight: status["weight"].as_u64().unwrap() })
}

impl Drop for Envoy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("Envoy's nodes:\n{}", http::get(&self.admin, "/clusters").unwrap_or_default().1);
            eprintln!("Envoy's log:\n{}", self.log());
        }
        self.kill();
    }
}
