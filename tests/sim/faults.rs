//! Everything that a simulated PBX can do wrong.

use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::sim::asterisk::Version;
use pointsman::sim::call::End;
use pointsman::sim::{Behaviour, Call, Misbehaviour, Route, Span};
use tokio::net::TcpStream;

use crate::client::{Client, PATIENCE, asterisk, freeswitch};

/// Long enough to see that nothing comes, short enough to wait for.
const A_MOMENT: Duration = Duration::from_millis(100);

fn call() -> Call {
    Call::to("15550001", Route::Trunks(vec!["good".into()]))
}

#[tokio::test]
async fn silence_holds_everything_back_until_it_ends() {
    let (pbx, _tasks) = freeswitch().await;
    let mut client = Client::esl_session(pbx.address(), &[]).await;
    pbx.misbehave(&Misbehaviour::Silent);
    client.send("api echo hello\n\n").await;
    assert!(pbx.until(PATIENCE, |pbx| pbx.commands().iter().any(|seen| seen.text == "api echo hello")).await);
    assert!(tokio::time::timeout(A_MOMENT, client.esl()).await.is_err());
    pbx.misbehave(&Misbehaviour::None);
    assert_eq!(client.esl().await.unwrap().text, "hello");
}

#[tokio::test]
async fn the_deaf_do_not_hear_commands() {
    let (pbx, _tasks) = freeswitch().await;
    let mut client = Client::esl_session(pbx.address(), &[]).await;
    pbx.misbehave(&Misbehaviour::Deaf);
    client.send("api echo hello\n\n").await;
    assert!(tokio::time::timeout(A_MOMENT, client.esl()).await.is_err());
    assert_eq!(pbx.commands().len(), 1, "nothing but the login");
    pbx.misbehave(&Misbehaviour::None);
    assert_eq!(client.esl().await.unwrap().text, "hello");
}

#[tokio::test]
async fn connections_end_in_good_order_or_not() {
    let (pbx, _tasks) = freeswitch().await;
    let mut client = Client::esl_session(pbx.address(), &[]).await;
    pbx.misbehave(&Misbehaviour::Close);
    assert_eq!(client.rest().await, Some(Vec::new()));

    let mut client = Client::esl_session(pbx.address(), &[]).await;
    pbx.misbehave(&Misbehaviour::Reset);
    assert_eq!(client.rest().await, None, "reset");

    let mut client = Client::esl_session(pbx.address(), &["event plain CHANNEL_CREATE"]).await;
    pbx.set_vendor("good", Behaviour::good());
    pbx.misbehave(&Misbehaviour::HalfFrame);
    drop(pbx.place_call(call()));
    let half = client.rest().await.unwrap();
    assert!((1_500..3_000).contains(&half.len()), "{}", half.len());
}

#[tokio::test]
async fn garbage_and_frames_that_are_too_large() {
    let (pbx, _tasks) = freeswitch().await;
    let mut client = Client::esl_session(pbx.address(), &[]).await;
    pbx.misbehave(&Misbehaviour::Garbage(b"\x00\xffgarbage\n\n".to_vec()));
    assert!(client.esl().await.is_some());
    pbx.misbehave(&Misbehaviour::HugeFrame(1 << 20));
    assert_eq!(client.esl().await.unwrap().len, 1 << 20);
    assert_eq!(client.api("echo still there").await, "still there");
}

#[tokio::test]
async fn events_are_lost_doubled_and_exchanged() {
    let (pbx, _tasks) = freeswitch().await;
    pbx.set_vendor("good", Behaviour::instant());
    let legs = &["event plain CHANNEL_CREATE CHANNEL_ANSWER CHANNEL_HANGUP_COMPLETE", "filter Call-Direction outbound"];
    let mut client = Client::esl_session(pbx.address(), legs).await;
    let names = async |client: &mut Client, count: usize| {
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(client.esl().await.unwrap().event().unwrap().trim_start_matches("CHANNEL_").to_owned());
        }
        names
    };
    pbx.misbehave(&Misbehaviour::LoseEvents { count: 1, kind: Some("CHANNEL_ANSWER".into()) });
    pbx.place_call(call()).report().await;
    assert_eq!(names(&mut client, 2).await, ["CREATE", "HANGUP_COMPLETE"]);
    pbx.misbehave(&Misbehaviour::DuplicateEvents(1));
    pbx.place_call(call()).report().await;
    assert_eq!(names(&mut client, 4).await, ["CREATE", "CREATE", "ANSWER", "HANGUP_COMPLETE"]);
    pbx.misbehave(&Misbehaviour::ReorderEvents);
    pbx.place_call(call()).report().await;
    assert_eq!(names(&mut client, 3).await, ["ANSWER", "CREATE", "HANGUP_COMPLETE"]);
}

#[tokio::test]
async fn refusals_of_every_kind() {
    let (pbx, _tasks) = freeswitch().await;
    pbx.misbehave(&Misbehaviour::RefusePassword);
    let mut client = Client::connect(pbx.address()).await;
    client.esl().await.unwrap();
    client.send("auth ClueCon\n\n").await;
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("-ERR invalid"));

    pbx.misbehave(&Misbehaviour::RefusePeers);
    let mut client = Client::connect(pbx.address()).await;
    assert_eq!(client.esl().await.unwrap().get("Content-Type"), Some("text/rude-rejection"));

    pbx.misbehave(&Misbehaviour::Mute);
    let mut client = Client::connect(pbx.address()).await;
    assert!(tokio::time::timeout(A_MOMENT, client.esl()).await.is_err());
    pbx.misbehave(&Misbehaviour::None);
    assert_eq!(client.esl().await.unwrap().get("Content-Type"), Some("auth/request"));

    pbx.misbehave(&Misbehaviour::RefuseConnections);
    let refused = async {
        while TcpStream::connect(pbx.address()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the port closes");
    pbx.misbehave(&Misbehaviour::AcceptConnections);
    let accepted = async {
        while TcpStream::connect(pbx.address()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, accepted).await.expect("the port opens again");
}

#[tokio::test]
async fn a_trickle_arrives_whole() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    pbx.misbehave(&Misbehaviour::Trickle { bytes: 7, pause: Duration::from_micros(100) });
    let mut client = Client::ami_session(pbx.address(), "system").await;
    assert_eq!(client.ami().await.unwrap().event(), Some("FullyBooted"));
    pbx.misbehave(&Misbehaviour::DelayReplies(Duration::from_millis(30)));
    let clock = Clock::system();
    let asked = clock.now();
    client.action("Action: Ping").await;
    assert!(clock.now().since(asked) >= Duration::from_millis(30));
}

#[tokio::test]
async fn a_restart_forgets_calls_and_variables() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    pbx.set_vendor("good", Behaviour::instant().talking(Span::Exactly(Duration::from_hours(1))));
    let mut client = Client::ami_session(pbx.address(), "system").await;
    assert_eq!(client.ami().await.unwrap().event(), Some("FullyBooted"));
    client.action("Action: Setvar\r\nVariable: pm_x\r\nValue: 1").await;
    let call = pbx.place_call(call());
    assert!(pbx.until(PATIENCE, |pbx| pbx.active_legs() == 1).await);
    pbx.restart(Duration::ZERO).await;
    assert_eq!(client.ami().await.unwrap().event(), Some("Shutdown"));
    assert_eq!(client.ami().await, None);
    assert_eq!(call.report().await.legs[0].end, End::Vanished);
    assert_eq!((pbx.active_calls(), pbx.variable("pm_x")), (0, None));
    let again = async {
        while TcpStream::connect(pbx.address()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("it listens again");

    let (pbx, _tasks) = freeswitch().await;
    let mut client = Client::esl_session(pbx.address(), &["event plain HEARTBEAT"]).await;
    pbx.restart(Duration::ZERO).await;
    assert_eq!(client.rest().await, Some(Vec::new()), "FreeSWITCH goes without a word");
}
