//! A port that is taken, and the end.

use std::time::Duration;

use pointsman::api::{self, Limits};
use pointsman::clock::Clock;
use pointsman::tasks::Tasks;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::client::{get, parse, read_to_end};
use crate::stage::{PATIENCE, Stage, http, listening, play};

#[tokio::test]
async fn a_port_that_is_taken_is_shown_and_tried_again() {
    let clock = Clock::system();
    let (played, tasks) = (play(clock), Tasks::new());
    let taken = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = taken.local_addr().unwrap();
    let limits = Limits { bind_again: Duration::from_millis(20), ..Limits::default() };
    let handle = api::serve_with(&http(address, &[]), played.sources, limits, &tasks);
    let word = listening(&handle).await;
    assert!(word.address.is_none() && word.problem.contains(&address.to_string()), "{word:?}");
    drop(taken);
    let mut listening = handle.listening();
    let freed = timeout(PATIENCE, listening.wait_for(|listening| listening.address.is_some())).await;
    let word = freed.expect("it does not listen").unwrap().clone();
    assert_eq!((word.address, word.problem.as_str()), (Some(address), ""));
    assert_eq!(get(address, "/healthz").await.status, 200);
}

#[tokio::test]
async fn it_ends_while_the_port_is_taken() {
    let (played, tasks) = (play(Clock::system()), Tasks::new());
    let taken = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let handle = api::serve(&http(taken.local_addr().unwrap(), &[]), played.sources, &tasks);
    listening(&handle).await;
    assert!(tasks.stop(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn idle_and_half_spoken_connections_do_not_hold_up_the_end() {
    let stage = Stage::set().await;
    let mut idle = TcpStream::connect(stage.address).await.unwrap();
    let mut half = TcpStream::connect(stage.address).await.unwrap();
    half.write_all(b"GET /api/nodes HTTP/1.1\r\nho").await.unwrap();
    let mut used = TcpStream::connect(stage.address).await.unwrap();
    used.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(get(stage.address, "/healthz").await.status, 200);
    assert!(stage.tasks.stop(Duration::from_secs(10)).await);
    assert_eq!(read_to_end(&mut idle).await, "");
    read_to_end(&mut half).await;
    assert_eq!(parse(&read_to_end(&mut used).await).status, 200);
    assert!(TcpStream::connect(stage.address).await.is_err());
}
