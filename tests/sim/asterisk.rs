//! The simulated Asterisk.

use std::time::Duration;

use pointsman::sim::asterisk::Version;
use pointsman::sim::vendor::Fate;
use pointsman::sim::{Behaviour, Call, Route, Span};

use crate::client::{Client, Frame, asterisk};

fn to(trunks: &[&str]) -> Call {
    Call::to("15550001", Route::Trunks(trunks.iter().map(|name| (*name).to_owned()).collect()))
}

/// Events until the caller's channel hung up, and its device with it.
async fn events(client: &mut Client) -> Vec<Frame> {
    let mut all = Vec::new();
    loop {
        let frame = client.ami().await.unwrap();
        let last = frame.event() == Some("Hangup") && frame.get("Channel").unwrap().contains("caller");
        all.push(frame);
        if last {
            return all;
        }
    }
}

/// `Event Channel`, with C for the caller's and T for the vendor's.
fn story(frames: &[Frame]) -> Vec<String> {
    let side = |frame: &Frame| match frame.get("Channel") {
        Some(name) if name.contains("caller") => " C",
        Some(_) => " T",
        None => "",
    };
    let told = frames.iter().filter(|frame| frame.event() != Some("DeviceStateChange"));
    told.map(|frame| format!("{}{}", frame.event().unwrap(), side(frame))).collect()
}

#[tokio::test]
async fn an_answered_call_is_26_events() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    pbx.set_vendor("vendor-good", Behaviour::good());
    let mut client = Client::ami_session(pbx.address(), "call").await;
    let call = pbx.place_call(to(&["vendor-good"]));
    let mut frames = events(&mut client).await;
    frames.push(client.ami().await.unwrap());
    assert_eq!(frames.len(), 26, "{:#?}", story(&frames));
    let wanted = [
        "Newchannel C",
        "Newchannel T",
        "NewCallerid T",
        "NewConnectedLine T",
        "DialBegin C",
        "NewConnectedLine C",
        "Newstate T",
        "DialState C",
        "Newstate T",
        "DialEnd C",
        "Newstate C",
        "BridgeCreate",
        "BridgeEnter T",
        "BridgeEnter C",
        "HangupRequest C",
        "BridgeLeave C",
        "BridgeLeave T",
        "BridgeDestroy",
        "SoftHangupRequest C",
        "Hangup T",
        "Hangup C",
    ];
    assert_eq!(story(&frames), wanted);
    let bytes: usize = frames.iter().map(|frame| frame.len).sum();
    assert!((9_000..12_000).contains(&bytes), "{bytes}");
    let report = call.report().await;
    let begin = frames.iter().find(|frame| frame.event() == Some("DialBegin")).unwrap();
    assert_eq!(begin.get("DestUniqueid"), Some(report.legs[0].id.as_str()));
    assert_eq!(begin.get("DestChannel"), Some("PJSIP/vendor-good-00000001"));
}

#[tokio::test]
async fn refusals_say_what_the_vendor_sent() {
    for (version, tech) in [(Version::V22, Some("503")), (Version::V16, None)] {
        let (pbx, _tasks) = asterisk(version).await;
        pbx.set_vendor("v503", Behaviour::refusing(503));
        let mut client = Client::ami_session(pbx.address(), "call").await;
        drop(pbx.place_call(to(&["v503"])));
        let frames = events(&mut client).await;
        let requested = frames.iter().find(|frame| frame.event() == Some("HangupRequest")).unwrap();
        assert_eq!((requested.get("Cause"), requested.get("TechCause")), (Some("34"), tech));
        let end = frames.iter().find(|frame| frame.event() == Some("DialEnd")).unwrap();
        assert_eq!(end.get("DialStatus"), Some("CONGESTION"));
        let hangup = frames.iter().find(|frame| frame.event() == Some("Hangup")).unwrap();
        assert_eq!((hangup.get("Cause"), hangup.get("TechCause")), (Some("34"), tech));
        assert_eq!(hangup.get("Cause-txt"), Some("Circuit/channel congestion"));
    }
}

#[tokio::test]
async fn our_own_ends_have_made_up_causes() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    pbx.set_vendor("rings", Behaviour::always(Fate::RingsOut));
    pbx.set_vendor("dead", Behaviour::always(Fate::Unreachable));
    let mut client = Client::ami_session(pbx.address(), "call").await;
    let end_of = |frames: &[Frame]| {
        let end = frames.iter().find(|frame| frame.event() == Some("DialEnd")).unwrap();
        let hangup = frames.iter().find(|frame| frame.event() == Some("Hangup")).unwrap();
        assert_eq!(hangup.get("Uniqueid"), end.get("DestUniqueid"));
        (
            end.get("DialStatus").unwrap().to_owned(),
            hangup.get("Cause").unwrap().to_owned(),
            hangup.get("TechCause").map(str::to_owned),
        )
    };
    let short = |trunk| Call { ring_timeout: Duration::from_secs(4), ..to(&[trunk]) };
    for trunk in ["rings", "dead"] {
        drop(pbx.place_call(short(trunk)));
        let frames = events(&mut client).await;
        assert_eq!(end_of(&frames), ("NOANSWER".into(), "0".into(), None));
        assert_eq!(frames.iter().any(|frame| frame.event() == Some("DialState")), trunk == "rings");
        assert!(frames.iter().all(|frame| frame.event() != Some("HangupRequest")));
    }
    drop(pbx.place_call(Call { patience: Some(Duration::from_secs(2)), ..to(&["rings"]) }));
    let frames = events(&mut client).await;
    assert_eq!(end_of(&frames), ("CANCEL".into(), "127".into(), Some("500".into())));
}

#[tokio::test]
async fn the_dialplan_follows_the_variables() {
    let (pbx, _tasks) = asterisk(Version::V16).await;
    for name in ["first", "second"] {
        pbx.set_vendor(name, Behaviour::instant());
    }
    let mut client = Client::ami_session(pbx.address(), "off").await;
    let set = client.action("Action: Setvar\r\nActionID: 1\r\nVariable: pm_route_intl\r\nValue: second,first").await;
    assert_eq!((set.get("ActionID"), set.get("Message")), (Some("1"), Some("Variable Set")));
    let call = Call::to("15550001", Route::Map("intl".into()));
    assert_eq!(pbx.place_call(call).report().await.trunks(), ["second"]);
    assert_eq!(client.action("Action: Getvar\r\nVariable: pm_route_intl").await.get("Value"), Some("second,first"));
    assert_eq!(client.action("Action: Getvar\r\nVariable: unset").await.get("Value"), Some(""));
    assert_eq!(client.action("Action: Getvar\r\nVariable: SYSINFO(loadavg)").await.get("Value"), Some("0.250000"));
    assert_eq!(
        client.action("Action: Setvar\r\nVariable: DB(a/b)\r\nValue: 1").await.get("Message"),
        Some("Variable not set")
    );
}

#[tokio::test]
async fn the_database_and_the_lists_work() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    pbx.set_vendor("good", Behaviour::good().talking(Span::Exactly(Duration::from_hours(1))));
    let mut client = Client::ami_session(pbx.address(), "off").await;
    let entry = "Family: pm\r\nKey: k";
    let message = |frame: &Frame| frame.get("Message").unwrap_or_default().to_owned();
    assert_eq!(
        message(&client.action(&format!("Action: DBDel\r\n{entry}")).await),
        "Database entry could not be deleted"
    );
    assert_eq!(
        message(&client.action(&format!("Action: DBPut\r\n{entry}\r\nVal: v")).await),
        "Updated database successfully"
    );
    assert_eq!(client.action(&format!("Action: DBGet\r\n{entry}")).await.get("EventList"), Some("start"));
    assert_eq!(client.ami().await.unwrap().get("Val"), Some("v"));
    assert_eq!(client.ami().await.unwrap().get("EventList"), Some("Complete"));

    drop(pbx.place_call(to(&["good"])));
    assert!(pbx.until(crate::client::PATIENCE, |pbx| pbx.active_calls() == 1).await);
    client.send("Action: CoreShowChannels\r\nActionID: list\r\n\r\n").await;
    let mut listed = 0;
    loop {
        let frame = client.ami().await.unwrap();
        assert_eq!(frame.get("ActionID"), Some("list"));
        match frame.event() {
            Some("CoreShowChannel") => listed += 1,
            Some("CoreShowChannelsComplete") => {
                assert_eq!(frame.get("ListItems"), Some(listed.to_string().as_str()));
                break;
            }
            _ => assert_eq!(frame.get("EventList"), Some("start")),
        }
    }
    assert_eq!(listed, 2);
}

#[tokio::test]
async fn limits_and_permissions_are_those_of_the_real_one() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    let mut client = Client::connect(pbx.address()).await;
    client.send("Action: CoreStatus\r\nActionID: early\r\n\r\n").await;
    let refused = client.ami().await.unwrap();
    assert_eq!(refused.get("Message"), Some("Permission denied"));
    drop(client);

    let mut client = Client::ami_session(pbx.address(), "call").await;
    let long = format!("Action: Setvar\r\nVariable: x\r\nValue: {}", "v".repeat(1015));
    assert_eq!(client.action(&long).await.get("Message"), Some("Variable Set"));
    let longer = format!("Action: Setvar\r\nVariable: x\r\nValue: {}", "v".repeat(1016));
    assert_eq!(client.action(&longer).await.get("Message"), Some("Failed to parse message: line too long"));
    let many = format!("Action: Ping\r\n{}", "X: y\r\n".repeat(130));
    assert!(client.action(many.trim_end()).await.get("Message").unwrap().starts_with("Too many lines"));
    assert_eq!(client.action("").await.get("Message"), Some("Missing action in request"));
    client.ami().await.unwrap();
    assert_eq!(
        client.action("Action: Command\r\nCommand: core show uptime").await.get("Message"),
        Some("Permission denied")
    );
    assert!(
        client
            .action("Action: Nonsense")
            .await
            .get("Message")
            .unwrap()
            .starts_with("Invalid/unknown command: Nonsense.")
    );
    assert_eq!(client.action("action:PING\r\nActionID: p").await.get("Ping"), Some("Pong"));
    assert!(client.action("Action: ListCommands").await.get("Setvar").is_some());
    assert_eq!(client.action("Action: Logoff").await.get("Response"), Some("Goodbye"));
    assert_eq!(client.rest().await, Some(Vec::new()));
}

#[tokio::test]
async fn a_wrong_password_is_answered_late_and_with_the_end() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    let mut client = Client::connect(pbx.address()).await;
    client.send("Action: Login\r\nUsername: pointsman\r\nSecret: no\r\n\r\n").await;
    let text = String::from_utf8(client.rest().await.unwrap()).unwrap();
    assert!(text.ends_with("Message: Authentication failed\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn a_challenge_is_answered_with_the_secret_unseen() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    let mut client = Client::connect(pbx.address()).await;
    client.send("Action: Challenge\r\nAuthType: MD5\r\n\r\n").await;
    let challenge = client.ami().await.unwrap().get("Challenge").unwrap().to_owned();
    let digest = <md5::Md5 as md5::Digest>::digest(format!("{challenge}ClueCon"));
    let key: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let login = format!("Action: Login\r\nUsername: POINTSMAN\r\nAuthType: MD5\r\nKey: {key}\r\nEvents: off");
    assert_eq!(client.action(&login).await.get("Message"), Some("Authentication accepted"));
}

#[tokio::test]
async fn filters_limit_what_is_sent() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    pbx.set_vendor("good", Behaviour::instant());
    let mut client = Client::ami_session(pbx.address(), "call").await;
    let add = |filter: &str| format!("Action: Filter\r\nOperation: Add\r\nFilter: {filter}");
    client.action(&add("^Event: (Newchannel|Hangup)")).await;
    client.action(&add("!Event: HangupRequest")).await;
    drop(pbx.place_call(to(&["good"])));
    let mut kinds = Vec::new();
    while kinds.len() < 4 {
        kinds.push(client.ami().await.unwrap().event().unwrap().to_owned());
    }
    assert_eq!(kinds, ["Newchannel", "Newchannel", "Hangup", "Hangup"]);
}

#[tokio::test]
async fn names_of_callers_may_hold_anything() {
    let (pbx, _tasks) = asterisk(Version::V22).await;
    pbx.set_vendor("good", Behaviour::instant());
    let mut client = Client::ami_session(pbx.address(), "call").await;
    let name = b"Ren\xe9\r\n\r\nEvent: Hangup\r\nUniqueid: 1.1".to_vec();
    drop(pbx.place_call(Call { caller_name: name, ..to(&["good"]) }));
    let first = client.ami().await.unwrap();
    assert_eq!(first.event(), Some("Newchannel"));
    assert!(first.get("CallerIDName").unwrap().contains("\\r\\n\\r\\nEvent: Hangup"), "{first:?}");
}
