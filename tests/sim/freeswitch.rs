//! The simulated FreeSWITCH.

use std::time::Duration;

use pointsman::sim::call::{End, Side};
use pointsman::sim::vendor::Fate;
use pointsman::sim::{Behaviour, Call, Route, Span};

use crate::client::{Client, Frame, beating_freeswitch, freeswitch};

const LEG_EVENTS: &str = "event plain CHANNEL_CREATE CHANNEL_PROGRESS CHANNEL_PROGRESS_MEDIA CHANNEL_ANSWER CHANNEL_BRIDGE \
                          CHANNEL_UNBRIDGE CHANNEL_HANGUP CHANNEL_HANGUP_COMPLETE CHANNEL_DESTROY";

fn to(trunks: &[&str]) -> Call {
    Call::to("15550001", Route::Trunks(trunks.iter().map(|name| (*name).to_owned()).collect()))
}

/// Events until the caller's own leg is destroyed.
async fn events(client: &mut Client) -> Vec<Frame> {
    let mut all = Vec::new();
    loop {
        let frame = client.esl().await.unwrap();
        let caller_gone = frame.event() == Some("CHANNEL_DESTROY") && frame.get("Call-Direction") == Some("inbound");
        all.push(frame);
        if caller_gone {
            return all;
        }
    }
}

fn seen(frames: &[Frame]) -> Vec<(&str, &str)> {
    frames.iter().map(|frame| (frame.event().unwrap(), frame.get("Call-Direction").unwrap())).collect()
}

#[tokio::test]
async fn an_answered_call_tells_its_story_in_order() {
    let (pbx, _tasks) = freeswitch().await;
    pbx.set_vendor("vendor-good", Behaviour::good());
    let mut client = Client::esl_session(pbx.address(), &[LEG_EVENTS]).await;
    let call = pbx.place_call(to(&["vendor-good"]));
    let frames = events(&mut client).await;
    let (a, b) = ("inbound", "outbound");
    let story = [
        ("CHANNEL_CREATE", a),
        ("CHANNEL_CREATE", b),
        ("CHANNEL_PROGRESS", b),
        ("CHANNEL_PROGRESS", a),
        ("CHANNEL_ANSWER", b),
        ("CHANNEL_ANSWER", a),
        ("CHANNEL_BRIDGE", a),
        ("CHANNEL_HANGUP", a),
        ("CHANNEL_UNBRIDGE", a),
        ("CHANNEL_HANGUP", b),
        ("CHANNEL_HANGUP_COMPLETE", a),
        ("CHANNEL_DESTROY", a),
    ];
    assert_eq!(seen(&frames), story);
    let report = call.report().await;
    assert_eq!(report.legs[0].end, End::HungUp(Side::Caller));
    // The rest of the vendor's leg comes after the caller's is gone.
    let complete = client.esl().await.unwrap();
    assert_eq!(complete.event(), Some("CHANNEL_HANGUP_COMPLETE"));
    assert_eq!(complete.get("Unique-ID"), Some(report.legs[0].id.as_str()));
    assert_eq!(complete.get("variable_sip_gateway_name"), Some("vendor-good"));
    assert_eq!(complete.get("variable_billmsec"), Some("2000"));
    assert_eq!(complete.get("variable_progressmsec"), Some("300"));
    assert_eq!(complete.get("variable_sip_hangup_disposition"), Some("send_bye"));
    assert!((6_500..11_000).contains(&complete.len), "{}", complete.len);
    assert_eq!(complete.names().iter().filter(|name| **name == "Hangup-Cause").count(), 2);
    assert!((4_000..5_200).contains(&frames[1].len), "{}", frames[1].len);
}

#[tokio::test]
async fn refusals_say_what_the_vendor_sent() {
    let (pbx, _tasks) = freeswitch().await;
    pbx.set_vendor("v486", Behaviour::refusing(486));
    pbx.set_vendor("v503", Behaviour::refusing(503));
    pbx.set_vendor("dead", Behaviour::always(Fate::Unreachable));
    let filter = "filter Call-Direction outbound";
    let mut client = Client::esl_session(pbx.address(), &["event plain CHANNEL_HANGUP_COMPLETE", filter]).await;
    // The hunt goes on after what is the vendor's fault and stops at the busy one.
    let report = pbx.place_call(to(&["dead", "v503", "v486", "v503"])).report().await;
    assert_eq!(report.trunks(), ["dead", "v503", "v486"]);
    let wanted = [
        ("503", "NORMAL_TEMPORARY_FAILURE", "41"),
        ("503", "NORMAL_TEMPORARY_FAILURE", "41"),
        ("486", "USER_BUSY", "17"),
    ];
    for (status, cause, q850) in wanted {
        let frame = client.esl().await.unwrap();
        assert_eq!(frame.get("variable_sip_hangup_disposition"), Some("recv_refuse"));
        assert_eq!(frame.get("variable_sip_term_status"), Some(status));
        assert_eq!(frame.get("Hangup-Cause"), Some(cause));
        assert_eq!(frame.get("variable_hangup_cause_q850"), Some(q850));
        assert_eq!(frame.get("variable_answer_uepoch"), Some("0"));
    }
}

#[tokio::test]
async fn our_own_ends_are_cancels() {
    let (pbx, _tasks) = freeswitch().await;
    pbx.set_vendor("rings", Behaviour::always(Fate::RingsOut));
    pbx.set_vendor("quick", Behaviour::instant());
    let filter = "filter Call-Direction outbound";
    let mut client = Client::esl_session(pbx.address(), &["event json CHANNEL_HANGUP_COMPLETE", filter]).await;
    let ended = async |client: &mut Client, cause: &str| {
        let text = client.esl().await.unwrap().text;
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["variable_hangup_cause"], cause);
        assert_eq!(event["variable_sip_hangup_disposition"], "send_cancel");
        assert_eq!(event["variable_sip_invite_failure_status"], "487");
        assert_eq!(event.get("variable_sip_term_status"), None);
    };
    let short = Call { ring_timeout: Duration::from_secs(4), ..to(&["rings", "quick"]) };
    assert_eq!(pbx.place_call(short).report().await.trunks(), ["rings"], "somebody was called already");
    ended(&mut client, "NO_ANSWER").await;

    let impatient = Call { patience: Some(Duration::from_secs(2)), ..to(&["rings"]) };
    assert_eq!(pbx.place_call(impatient).report().await.legs[0].end, End::CallerGone);
    ended(&mut client, "ORIGINATOR_CANCEL").await;

    pbx.set_vendor("slow", Behaviour::instant().answering_after(Span::millis(900)));
    let fork = Call { route: Route::Fork(vec!["rings".into(), "slow".into()]), ..to(&[]) };
    let call = pbx.place_call(fork);
    ended(&mut client, "LOSE_RACE").await;
    let report = call.report().await;
    assert_eq!(report.legs[0].end, End::LostRace);
    assert!(report.legs[1].answered_at.is_some());
}

#[tokio::test]
async fn a_gateway_that_is_down_leaves_nothing_but_a_destroy() {
    let (pbx, _tasks) = freeswitch().await;
    pbx.set_vendor("down", Behaviour::good());
    pbx.set_vendor_up("down", false);
    let mut client = Client::esl_session(pbx.address(), &[LEG_EVENTS, "filter Call-Direction outbound"]).await;
    let report = pbx.place_call(to(&["down", "unknown"])).report().await;
    assert_eq!((report.legs.len(), report.not_dialled.len()), (0, 2));
    for _ in 0..2 {
        let frame = client.esl().await.unwrap();
        assert_eq!(frame.event(), Some("CHANNEL_DESTROY"));
        assert_eq!(frame.get("Channel-Name"), Some("N/A"));
        assert_eq!(frame.get("Hangup-Cause"), None);
        assert!(frame.len < 1_500);
    }
    assert!(client.api("sofia status gateway down").await.contains("Status  \tDOWN"));
}

#[tokio::test]
async fn the_dialplan_follows_the_variables() {
    let (pbx, _tasks) = freeswitch().await;
    for name in ["first", "second"] {
        pbx.set_vendor(name, Behaviour::instant());
    }
    let mut client = Client::esl_session(pbx.address(), &[]).await;
    for setting in ["pm_route_intl_1=second", "pm_route_intl_2=first"] {
        assert_eq!(client.api(&format!("global_setvar {setting}")).await, "+OK");
    }
    let call = Call::to("15550001", Route::Map("intl".into()));
    assert_eq!(pbx.place_call(call.clone()).report().await.trunks(), ["second"]);
    assert_eq!(client.api("global_setvar pm_route_intl_1=").await, "+OK");
    assert_eq!(pbx.place_call(call).report().await.trunks(), ["first"], "an empty slot is skipped");
}

#[tokio::test]
async fn global_variables_have_their_quirks() {
    let (pbx, _tasks) = freeswitch().await;
    let mut client = Client::esl_session(pbx.address(), &[]).await;
    assert_eq!(client.api("global_getvar x").await, "-ERR no reply\n");
    assert_eq!(client.api("global_setvar x=${dest}/1").await, "+OK");
    assert_eq!(client.api("global_getvar x").await, "%{dest}/1");
    assert_eq!(client.api("global_setvar x=new=old").await, "+OK", "compare and set: says +OK and does nothing");
    assert_eq!(client.api("global_getvar x").await, "%{dest}/1");
    assert_eq!(client.api("global_setvar x").await, "+OK");
    assert_eq!(client.api("global_getvar x").await, "-ERR no reply\n");
    assert_eq!(client.api("nonsense").await, "-ERR nonsense Command not found!\n");
    assert_eq!(client.api("echo a  b").await, "a  b");
    assert!(client.api("status").await.contains("min idle cpu 0.00/92.50"));
    let seen = pbx.commands();
    assert_eq!(seen[0].text, "auth ClueCon");
    assert_eq!(seen[1].text, "api global_getvar x");
}

#[tokio::test]
async fn snapshots_show_what_is_up() {
    let (pbx, _tasks) = freeswitch().await;
    pbx.set_vendor("good", Behaviour::good().talking(Span::Exactly(Duration::from_hours(1))));
    let mut client = Client::esl_session(pbx.address(), &["event plain CHANNEL_BRIDGE"]).await;
    assert_eq!(client.api("show channels as json").await, "{\"row_count\": 0}\n");
    let call = pbx.place_call(to(&["good"]));
    let bridged = client.esl().await.unwrap();
    let b = bridged.get("Bridge-B-Unique-ID").unwrap().to_owned();
    let list: serde_json::Value = serde_json::from_str(&client.api("show channels as json").await).unwrap();
    assert_eq!(list["row_count"], 2);
    assert!(list["rows"].as_array().unwrap().iter().any(|row| row["uuid"] == b && row["direction"] == "outbound"));
    let dump: serde_json::Value = serde_json::from_str(&client.api(&format!("uuid_dump {b} json")).await).unwrap();
    assert_eq!(dump["variable_sip_gateway_name"], "good");
    assert_ne!(dump["Caller-Channel-Answered-Time"], "0");
    call.hang_up(Side::FarEnd);
    let report = call.report().await;
    assert_eq!(report.legs[0].end, End::HungUp(Side::FarEnd));
    assert_eq!(client.api(&format!("uuid_dump {b} json")).await, "-ERR No such channel!\n");
}

#[tokio::test]
async fn heartbeats_balance_with_destroys() {
    let (pbx, _tasks) = beating_freeswitch(Duration::from_secs(2)).await;
    pbx.set_vendor("good", Behaviour::good());
    let mut client = Client::esl_session(pbx.address(), &["event plain HEARTBEAT CHANNEL_DESTROY"]).await;
    let gone = |frame: &Frame| -> u64 {
        let figure = |name: &str| frame.get(name).unwrap().parse::<u64>().unwrap();
        figure("Session-Since-Startup") - figure("Session-Count")
    };
    let (mut before, mut destroyed) = (None, 0);
    let calls: Vec<_> = (0..3).map(|_| pbx.place_call(to(&["unknown", "good"]))).collect();
    let mut beats = 0;
    while beats < 4 {
        let frame = client.esl().await.unwrap();
        if frame.event() == Some("CHANNEL_DESTROY") {
            destroyed += 1;
            continue;
        }
        beats += 1;
        if let Some(before) = before.replace(gone(&frame)) {
            assert_eq!(gone(&frame) - before, destroyed, "no loss, no mismatch");
        }
        destroyed = 0;
    }
    drop(calls);
}

#[tokio::test]
async fn logins_and_subscriptions_are_answered_as_freeswitch_does() {
    let (pbx, _tasks) = freeswitch().await;
    let mut client = Client::connect(pbx.address()).await;
    client.esl().await.unwrap();
    client.send("api status\n\n").await;
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("-ERR command not found"));
    client.send("auth wrong\n\n").await;
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("-ERR invalid"));
    let notice = client.esl().await.unwrap();
    assert_eq!((notice.get("Content-Type"), notice.len), (Some("text/disconnect-notice"), 67));
    assert_eq!(client.esl().await, None);

    let mut client = Client::esl_session(pbx.address(), &[]).await;
    // Empty lines cost nothing; a half command holds the rest back.
    client.send("\n\nevent plain\n\nevent plain CUSTOM sofia::gateway_state HEARTBEAT\n\n").await;
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("-ERR no keywords supplied"));
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("+OK event listener enabled plain"));
    client
        .send(
            "bgapi echo hello\nJob-UUID: job-1\n\nevent plain BACKGROUND_JOB\n\nbgapi echo hello\nJob-UUID: job-2\n\n",
        )
        .await;
    assert_eq!(client.esl().await.unwrap().get("Job-UUID"), Some("job-1"), "nobody had subscribed to its result");
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("+OK event listener enabled plain"));
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("+OK Job-UUID: job-2"));
    let job = client.esl().await.unwrap();
    assert_eq!((job.event(), job.get("Job-UUID")), (Some("BACKGROUND_JOB"), Some("job-2")));
    assert!(job.text.ends_with("hello"));
    client.send("noevents\n\nnoevents\n\nexit\n\n").await;
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("+OK no longer listening for events"));
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("-ERR not listening for events"));
    assert_eq!(client.esl().await.unwrap().get("Reply-Text"), Some("+OK bye"));
    assert_eq!(client.esl().await.unwrap().get("Content-Type"), Some("text/disconnect-notice"));
    assert_eq!(client.esl().await, None);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_calls() {
    let mut stories = Vec::new();
    for _ in 0..2 {
        let (pbx, _tasks) = freeswitch().await;
        pbx.set_vendor("mixed", Behaviour::answering(0.5));
        let calls: Vec<_> = (0..20)
            .map(|_| pbx.place_call(Call { ring_timeout: Duration::from_secs(3), ..to(&["mixed", "mixed"]) }))
            .collect();
        let mut ends = Vec::new();
        for call in calls {
            ends.push(call.report().await.legs.iter().map(|leg| leg.end).collect::<Vec<_>>());
        }
        stories.push(ends);
    }
    assert_eq!(stories[0], stories[1]);
    assert!(stories[0].iter().any(|ends| ends.len() == 2) && stories[0].iter().any(|ends| ends.len() == 1));
}
