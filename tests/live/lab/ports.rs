//! Free ports on 127.0.0.1, that no test running beside this one will take.
//!
//! Every process that runs tests locks a block of ports for itself. The blocks lie below the range that the kernel gives
//! to outgoing connections: a client that tries again and again to reach a PBX which is down must not meet itself.

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use super::{SOON, eventually};

const FIRST: u16 = 21_000;
const BLOCKS: u16 = 10;
const BLOCK: u16 = 1_000;
/// This much of a block is given once and not again, the rest goes round.
const KEPT: u16 = 600;
/// SIPp takes four media ports in a row, Asterisk's two channel drivers a port each.
const STEP: u16 = 4;

static KEPT_NEXT: AtomicU16 = AtomicU16::new(0);
static PASSING_NEXT: AtomicU16 = AtomicU16::new(0);
static OURS: Mutex<Option<(u16, File)>> = Mutex::new(None);

/// A port for as long as the test lasts, whether or not somebody listens there at the moment; the three after it too.
pub(crate) fn kept() -> u16 {
    free(&KEPT_NEXT, 0, KEPT)
}

/// A port for one process, to be taken at once; the three after it too.
pub(crate) fn passing() -> u16 {
    free(&PASSING_NEXT, KEPT, BLOCK - KEPT)
}

fn free(next: &AtomicU16, offset: u16, len: u16) -> u16 {
    let start = block() + offset;
    eventually("a free port", SOON, || {
        let port = start + next.fetch_add(STEP, Ordering::Relaxed) % len;
        (port..port + STEP).all(is_free).then_some(port)
    })
}

fn is_free(port: u16) -> bool {
    UdpSocket::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// The first port of our block; the lock ends with the process.
fn block() -> u16 {
    let mut ours = OURS.lock().unwrap();
    let (block, _) = ours.get_or_insert_with(|| {
        eventually("a block of ports", SOON, || {
            (0..BLOCKS).find_map(|block| {
                let path = std::env::temp_dir().join(format!("pointsman-lab-ports-{block}.lock"));
                let file = File::options().create(true).write(true).truncate(false).open(path).ok()?;
                file.try_lock().ok()?;
                Some((block, file))
            })
        })
    });
    FIRST + *block * BLOCK
}
