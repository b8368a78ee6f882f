//! What stands behind an edge: something that takes connections and says who it is.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Far longer than an answer on loopback takes: it only ends one that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts one for each name, on 127.0.0.1, until the test ends: their ports by their names.
pub(crate) fn start(names: &[&str]) -> BTreeMap<String, u16> {
    names.iter().map(|name| ((*name).to_owned(), serve(name, say))).collect()
}

/// The same, for HTTP: a plain request is answered with the name, and one for a WebSocket with the change to that.
pub(crate) fn start_http(names: &[&str]) -> BTreeMap<String, u16> {
    names.iter().map(|name| ((*name).to_owned(), serve(name, answer))).collect()
}

fn serve(name: &str, mut talk: impl FnMut(&TcpStream, &str) -> std::io::Result<()> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = name.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Somebody who left is no reason to end.
            let _ = talk(&stream, &name);
        }
    });
    port
}

fn say(mut stream: &TcpStream, name: &str) -> std::io::Result<()> {
    stream.write_all(name.as_bytes())
}

fn answer(mut stream: &TcpStream, name: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut upgrade = false;
    for line in BufReader::new(stream).lines() {
        let line = line?.to_ascii_lowercase();
        upgrade |= line == "upgrade: websocket";
        if line.is_empty() {
            break;
        }
    }
    let head = if upgrade {
        "101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n".to_owned()
    } else {
        format!("200 OK\r\ncontent-length: {}\r\nconnection: close\r\n", name.len())
    };
    stream.write_all(format!("HTTP/1.1 {head}\r\n{name}").as_bytes())
}

/// Who answers at this port of 127.0.0.1; empty where the connection is closed without a word or refused.
pub(crate) fn ask(port: u16) -> String {
    let mut said = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.read_to_string(&mut said);
    }
    said
}

/// How often who answers.
pub(crate) fn ask_often(port: u16, count: u32) -> BTreeMap<String, u32> {
    let mut counted = BTreeMap::new();
    for _ in 0..count {
        *counted.entry(ask(port)).or_default() += 1;
    }
    counted
}

/// A call or connection that was answered, or was not.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct Answer {
    /// When, in seconds since 1970.
    pub(crate) at: f64,
    /// By whom.
    pub(crate) by: String,
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// One connection after the other, on and on.
#[derive(Debug)]
pub(crate) struct Traffic {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Answer>>,
}

impl Traffic {
    pub(crate) fn begin(port: u16) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut answers = Vec::new();
            while !heard.load(Ordering::Relaxed) {
                let by = ask(port);
                answers.push(Answer { at: now(), by });
                // Some hundreds a second, and time for others on the machine.
                std::thread::sleep(Duration::from_millis(1));
            }
            answers
        });
        Self { over, thread }
    }

    /// No more: every one since.
    pub(crate) fn end(self) -> Vec<Answer> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
