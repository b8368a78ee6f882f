//! What opening a page of the dashboard costs over HTTP on loopback, with a few connections and with a thousand.
//!
//! `cargo bench --bench dashboard`. The whole program runs, over nodes that cannot be reached. How long each answer is
//! stands in the name of its measurement.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use pointsman::clock::Clock;
use pointsman::config::{Format, Purpose, load_text};
use pointsman::engine::run::{self, Running};
use tokio::runtime::Runtime;

/// One map for so many connections.
const OF_A_MAP: usize = 20;

fn configuration(folder: &Path, connections: usize) -> String {
    let mut text = format!(
        r#"
control_socket = "{0}/control"
[storage]
path = "{0}/state.db"
[http]
listen = "127.0.0.1:0"
[[nodes]]
id = "pbx-01"
kind = "freeswitch"
address = "127.0.0.1:1"
password = "x"
[quality]
monitor_asr = true
asr_threshold_percent = 40
"#,
        folder.display()
    );
    for number in 0..connections {
        let _ = writeln!(text, "[[connections]]\nid = \"vendor-{number:04}\"");
    }
    for map in 0..connections.div_ceil(OF_A_MAP) {
        let entries = (map * OF_A_MAP..connections.min((map + 1) * OF_A_MAP))
            .map(|number| format!("{{ connection = \"vendor-{number:04}\", priority = {number} }}"));
        let entries = entries.collect::<Vec<_>>().join(",\n");
        let _ =
            writeln!(text, "[[route_maps]]\nid = \"map-{map:02}\"\nprefixes = [\"{map:03}\"]\nentries = [{entries}]");
    }
    text
}

async fn start(folder: &Path, connections: usize) -> (Running, SocketAddr) {
    let text = configuration(folder, connections);
    let loaded = load_text(Path::new("bench.toml"), &text, Format::Toml, [], Purpose::Connect);
    let config = loaded.unwrap_or_else(|problems| panic!("{}", problems.render(false))).config;
    let running = run::start(Arc::new(config), Clock::system()).await.expect("it starts");
    let mut views = running.view();
    let listens = views.wait_for(|view| view.http.as_ref().is_some_and(|http| http.address.is_some()));
    let address = listens.await.expect("a picture").http.as_ref().and_then(|http| http.address.clone());
    (running, address.expect("an address").parse().expect("an address"))
}

/// The answer, on a connection of its own, as the first page of a browser has it.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/html\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    answer
}

fn pages(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    for connections in [10, 1_000] {
        let folder = tempfile::tempdir().expect("a folder");
        let (running, address) = runtime.block_on(start(folder.path(), connections));
        let mut group = criterion.benchmark_group(format!("{connections} connections"));
        for path in
            ["/", "/connections", "/connections/vendor-0001", "/maps", "/maps/map-00", "/nodes/pbx-01", "/changes"]
        {
            let bytes = get(address, path).len();
            group.bench_function(format!("{path} ({bytes} bytes)"), |bencher| bencher.iter(|| get(address, path)));
        }
        group.finish();
        runtime.block_on(running.stop());
    }
}

criterion_group!(benches, pages);
criterion_main!(benches);
