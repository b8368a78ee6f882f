//! The lab: real PBXs, vendors, callers and the program itself, as values that end with their owner.

pub(crate) mod ami;
pub(crate) mod asterisk;
pub(crate) mod backend;
pub(crate) mod browser;
pub(crate) mod demo;
pub(crate) mod envoy;
pub(crate) mod folder;
pub(crate) mod freeswitch;
pub(crate) mod grpc_client;
pub(crate) mod http;
pub(crate) mod keys;
pub(crate) mod mail_server;
pub(crate) mod pbx;
pub(crate) mod pointsman;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod scene;
pub(crate) mod sipp;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long anything may take that usually takes a moment; machines under load are slow.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// What `scripts/live-setup` has put below its cache.
pub(crate) fn cached(name: &str) -> PathBuf {
    let cache = std::env::var_os("POINTSMAN_CACHE").unwrap_or_else(|| "/var/cache/pointsman".into());
    Path::new(&cache).join(name)
}

/// Asks until `probe` has an answer; the panic of a test that waits in vain says what for.
pub(crate) fn eventually<T>(what: &str, within: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(began.elapsed() < within, "waited {within:?} in vain for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
