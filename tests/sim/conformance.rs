//! The simulated switches against recordings of real ones: the same events for the same calls, with the same fields
//! in the same order, of about the same size.

use std::io::Read;
use std::time::Duration;

use pointsman::sim::asterisk::Version;
use pointsman::sim::vendor::Fate;
use pointsman::sim::{Behaviour, Call, Route, Span};

use crate::client::{Client, Frame, asterisk, beating_freeswitch, cut_ami, cut_esl, freeswitch};

pub(crate) fn recording(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/{name}.raw.zst", env!("CARGO_MANIFEST_DIR"));
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// The vendors of the recordings, and how the simulated ones do the same.
fn vendors() -> Vec<(&'static str, Behaviour)> {
    let busy_ring = Behaviour::always(Fate::RefusedAfterSign(486));
    vec![
        ("vendor-good", Behaviour::good()),
        ("vendor-early", Behaviour::early_media()),
        ("vendor-instant", Behaviour::instant()),
        ("vendor-busy", Behaviour::refusing(486)),
        ("vendor-busyring", busy_ring.answering_after(Span::millis(800))),
        ("vendor-fail503", Behaviour::refusing(503)),
        ("vendor-fail404", Behaviour::refusing(404)),
        ("vendor-noanswer", Behaviour::always(Fate::RingsOut)),
    ]
}

fn call(vendor: &str) -> Call {
    Call { ring_timeout: Duration::from_secs(4), ..Call::to("15550001", Route::Trunks(vec![vendor.into()])) }
}

/// Whether the simulated FreeSWITCH makes such an event.
fn made(frame: &Frame) -> bool {
    match frame.event().unwrap_or_default() {
        "CHANNEL_CALLSTATE" => frame.get("Channel-Call-State") == Some("ACTIVE"),
        "CHANNEL_STATE" => frame.get("Channel-State") == Some("CS_DESTROY"),
        "CHANNEL_EXECUTE" | "CHANNEL_EXECUTE_COMPLETE" => false,
        kind => kind.starts_with("CHANNEL_"),
    }
}

fn of_leg(frames: &[Frame], id: &str) -> Vec<Frame> {
    let ours = |frame: &&Frame| made(frame) && frame.get("Unique-ID") == Some(id);
    frames.iter().filter(ours).cloned().collect()
}

/// The vendor's leg of the first call to this gateway, and the caller's.
fn legs_of(frames: &[Frame], gateway: &str) -> (Vec<Frame>, Vec<Frame>) {
    let first = frames.iter().find(|frame| frame.get("variable_sip_gateway_name") == Some(gateway)).unwrap();
    let id = |name: &str| first.get(name).unwrap().to_owned();
    (of_leg(frames, &id("Unique-ID")), of_leg(frames, &id("Other-Leg-Unique-ID")))
}

/// Variables that the dialplan itself sets.
const DIALPLANS: [&str; 2] = ["variable_DP_MATCH", "variable_hangup_after_bridge"];

/// What two lists of names differ in.
fn difference(real: &[String], simulated: &[String]) -> Option<String> {
    if real == simulated {
        return None;
    }
    let only = |in_one: &[String], not_in: &[String]| {
        in_one.iter().filter(|name| !not_in.contains(name)).cloned().collect::<Vec<_>>().join(" ")
    };
    let place = real.iter().zip(simulated).position(|(a, b)| a != b).unwrap_or(0);
    let around = |list: &[String]| list[place.min(list.len())..list.len().min(place + 4)].join(" ");
    let (missing, extra) = (only(real, simulated), only(simulated, real));
    Some(format!(
        "missing [{missing}], extra [{extra}], from [{}] where recorded [{}]",
        around(simulated),
        around(real)
    ))
}

fn differences(what: &str, real: &[Frame], simulated: &[Frame]) -> Vec<String> {
    let kinds = |frames: &[Frame]| frames.iter().map(|frame| frame.event().unwrap().to_owned()).collect::<Vec<_>>();
    let mut found = Vec::new();
    if kinds(simulated) != kinds(real) {
        return vec![format!("{what}: {:?}, recorded {:?}", kinds(simulated), kinds(real))];
    }
    for (real, simulated) in real.iter().zip(simulated) {
        let what = format!("{what}, {}", real.event().unwrap());
        // What the dialplan of the recording set for some of its extensions.
        let names = |frame: &'_ Frame| {
            frame.names().into_iter().filter(|name| !DIALPLANS.contains(name)).map(str::to_owned).collect::<Vec<_>>()
        };
        found.extend(difference(&names(real), &names(simulated)).map(|text| format!("{what}: {text}")));
        // Names, numbers and addresses differ in length; the rest does not.
        if simulated.len.abs_diff(real.len) * 20 > real.len {
            found.push(format!("{what}: {} bytes, recorded {}", simulated.len, real.len));
        }
    }
    found
}

#[tokio::test]
async fn freeswitch_calls_look_like_recorded_ones() {
    let recorded = cut_esl(&recording("esl/matrix"));
    let (pbx, _tasks) = freeswitch().await;
    let mut found = Vec::new();
    for (vendor, behaviour) in vendors() {
        pbx.set_vendor(vendor, behaviour);
        let mut client = Client::esl_session(pbx.address(), &["event plain ALL"]).await;
        let report = pbx.place_call(call(vendor)).report().await;
        client.send("exit\n\n").await;
        let simulated = cut_esl(&client.rest().await.unwrap());
        let (real_b, real_a) = legs_of(&recorded, vendor);
        let (b, a) = legs_of(&simulated, vendor);
        assert_eq!(b[0].get("Unique-ID"), Some(report.legs[0].id.as_str()));
        found.extend(differences(&format!("{vendor}, its leg"), &real_b, &b));
        found.extend(differences(&format!("{vendor}, the caller's leg"), &real_a, &a));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[tokio::test]
async fn heartbeats_look_like_recorded_ones() {
    let recorded = cut_esl(&recording("esl/matrix"));
    let real = recorded.iter().find(|frame| frame.event() == Some("HEARTBEAT")).unwrap();
    let (pbx, _tasks) = beating_freeswitch(Duration::from_secs(1)).await;
    let mut client = Client::esl_session(pbx.address(), &["event plain HEARTBEAT"]).await;
    assert_eq!(client.esl().await.unwrap().names(), real.names());
}

/// The channel events of the first call to this endpoint: kind and side, with the names of the fields, sorted (the
/// threads of a real Asterisk race).
fn call_of(frames: &[Frame], endpoint: &str) -> Vec<(String, Vec<String>)> {
    let prefix = format!("PJSIP/{endpoint}-");
    let first = frames.iter().find(|frame| frame.get("Channel").is_some_and(|name| name.starts_with(&prefix))).unwrap();
    let linked = first.get("Linkedid").unwrap();
    let ours = |frame: &&Frame| frame.get("Privilege") == Some("call,all") && frame.get("Linkedid") == Some(linked);
    let mut events: Vec<_> = frames
        .iter()
        .filter(ours)
        .map(|frame| {
            let side = if frame.get("Channel").unwrap().starts_with(&prefix) { "vendor" } else { "caller" };
            let names = frame.names().into_iter().map(str::to_owned).collect();
            (format!("{} {side}", frame.event().unwrap()), names)
        })
        .collect();
    events.sort();
    events
}

#[tokio::test]
async fn asterisk_calls_look_like_recorded_ones() {
    for (version, name) in [(Version::V22, "ami/asterisk22-matrix"), (Version::V16, "ami/asterisk16-matrix")] {
        let recorded = cut_ami(&recording(name));
        let (pbx, _tasks) = asterisk(version).await;
        for (vendor, behaviour) in vendors() {
            pbx.set_vendor(vendor, behaviour);
            let mut client = Client::ami_session(pbx.address(), "call").await;
            pbx.place_call(call(vendor)).report().await;
            client.send("Action: Logoff\r\n\r\n").await;
            let simulated = cut_ami(&client.rest().await.unwrap());
            assert_eq!(call_of(&simulated, vendor), call_of(&recorded, vendor), "{name}, {vendor}");
        }
    }
}

#[tokio::test]
async fn asterisk_bridges_and_devices_look_like_recorded_ones() {
    let recorded = cut_ami(&recording("ami/asterisk22-matrix"));
    let (pbx, _tasks) = asterisk(Version::V22).await;
    pbx.set_vendor("vendor-good", Behaviour::good());
    let mut client = Client::ami_session(pbx.address(), "call").await;
    pbx.place_call(call("vendor-good")).report().await;
    client.send("Action: Logoff\r\n\r\n").await;
    let simulated = cut_ami(&client.rest().await.unwrap());
    for kind in ["BridgeCreate", "BridgeEnter", "BridgeLeave", "BridgeDestroy", "DeviceStateChange"] {
        let first = |frames: &[Frame]| {
            let frame = frames.iter().find(|frame| frame.event() == Some(kind)).unwrap();
            frame.names().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(first(&simulated), first(&recorded), "{kind}");
    }
}
