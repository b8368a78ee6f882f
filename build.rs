//! Makes the code of Envoy's discovery protocol out of `proto/`, and has the program built again when a migration is
//! added: the ones that there are become part of it.

use std::error::Error;

/// What the program uses itself; these import the rest.
const PROTOS: [&str; 8] = [
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(PROTOS, ["proto"])?;
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    let build = tonic_prost_build::configure().build_transport(false).include_file("protocol.rs");
    build.compile_fds_with_config(files, config)?;
    Ok(())
}
