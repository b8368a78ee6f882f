use std::borrow::Cow;
use std::fmt::Write;

use pointsman::call::tracker::Tracker;
use pointsman::ids::LegId;
use pointsman::pbx::PbxKind;
use pointsman::pbx::event::PbxEvent;
use pointsman::pbx::freeswitch::{self, FsMapper};
use pointsman::time::Timestamp;
use pointsman::wire::esl::{EslCodec, EslEvent, EslFrame};
use pointsman::wire::limits::FrameError;

use crate::{Attempts, frames_cut, live};

/// The beginning of time in the cases; times are milliseconds after it.
const T0: i64 = 1_700_000_000_000_000;

// ---- wire ----

/// The frames of a stream that is whole, whatever its cut: in one piece, in any two pieces, byte by byte.
fn frames(bytes: &[u8]) -> Vec<EslFrame> {
    let (frames, error) = frames_cut::<EslCodec>(bytes, &[]);
    assert!(error.is_none(), "{error:?}");
    for at in 0..bytes.len() {
        assert_eq!(frames_cut::<EslCodec>(bytes, &[at]).0, frames, "cut at {at}");
    }
    assert_eq!(frames_cut::<EslCodec>(bytes, &(1..bytes.len()).collect::<Vec<_>>()).0, frames, "byte by byte");
    frames
}

fn event(frame: &EslFrame) -> EslEvent {
    frame.event().expect("an event frame").expect("a good event")
}

fn get(event: &EslEvent, name: &str) -> String {
    event.text(name).map(Cow::into_owned).unwrap_or_default()
}

fn framed(body: &str) -> String {
    format!("Content-Length: {}\nContent-Type: text/event-plain\n\n{body}", body.len())
}

const HEARTBEAT: &str = "Content-Length: 23\nContent-Type: text/event-plain\n\nEvent-Name: HEARTBEAT\n\n";

#[test]
fn e01_a_reply_stands_behind_an_event() {
    let stream = "Content-Length: 62\nContent-Type: text/event-plain\n\n\
        Event-Name: CHANNEL_ANSWER\nUnique-ID: u-0\nEvent-Sequence: 17\n\n\
        Content-Type: command/reply\nReply-Text: +OK filter added. [Unique-ID]=[u-1]\n\n";
    let frames = frames(stream.as_bytes());
    assert_eq!(frames.len(), 2);
    assert_eq!(get(&event(&frames[0]), "Unique-ID"), "u-0");
    assert_eq!(frames[1].header("reply-text"), Some(&b"+OK filter added. [Unique-ID]=[u-1]"[..]));
}

#[test]
fn e02_several_frames_in_one_read_and_one_frame_in_many() {
    let stream = "Content-Type: command/reply\nReply-Text: +OK event listener enabled plain\n\n\
        Content-Type: api/response\nContent-Length: 6\n\n+OK 1\n\
        Content-Length: 40\nContent-Type: text/event-plain\n\nEvent-Name: HEARTBEAT\nSession-Count: 3\n\n";
    let frames = frames(stream.as_bytes());
    let kinds: Vec<_> = frames.iter().map(EslFrame::content_type).collect();
    assert_eq!(kinds, [&b"command/reply"[..], b"api/response", b"text/event-plain"]);
    assert_eq!(&frames[1].body[..], b"+OK 1\n");
    assert_eq!(get(&event(&frames[2]), "Session-Count"), "3");
}

#[test]
fn e03_content_length_counts_bytes() {
    let mut stream = b"Content-Length: 83\nContent-Type: text/event-json\n\n\
        {\"Event-Name\":\"CHANNEL_CREATE\",\"Unique-ID\":\"u-1\",\"Caller-Caller-ID-Name\":\"Zo\xc3\xab \xd0\x9b\"}"
        .to_vec();
    stream.extend_from_slice(HEARTBEAT.as_bytes());
    let frames = frames(&stream);
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0].body.len(), 83);
    assert_eq!(get(&event(&frames[0]), "Caller-Caller-ID-Name"), "Zoë Л");
    assert_eq!(&*event(&frames[1]).name(), b"HEARTBEAT");
}

#[test]
fn e05_names_that_are_no_utf8() {
    let mut stream = b"Content-Length: 125\nContent-Type: text/event-json\n\n\
        {\"Event-Name\":\"CHANNEL_CREATE\",\"Unique-ID\":\"u-1\",\"Caller-Caller-ID-Name\":\"caf\xe9\\u0001x\",\
        \"Caller-Destination-Number\":\"4930111\"}"
        .to_vec();
    stream.extend_from_slice(HEARTBEAT.as_bytes());
    let frames = frames(&stream);
    assert_eq!(frames.len(), 2);
    let json = event(&frames[0]);
    assert_eq!(get(&json, "Caller-Caller-ID-Name"), "caf\u{fffd}\u{1}x");
    assert_eq!(get(&json, "Caller-Destination-Number"), "4930111");
    let plain = EslEvent::from_plain(&"Event-Name: A\nCaller-Caller-ID-Name: caf%E9%01x\n\n".into()).unwrap();
    assert_eq!(plain.get("Caller-Caller-ID-Name").unwrap()[..], *b"caf\xe9\x01x");
}

#[test]
fn e06_e12_the_inner_body_is_raw_and_within_the_outer_length() {
    let stream = format!(
        "Content-Length: 89\nContent-Type: text/event-plain\n\n\
         Event-Name: BACKGROUND_JOB\nJob-UUID: j-1\nJob-Command: status\nContent-Length: 9\n\n+OK done\n{HEARTBEAT}\
         Content-Length: 76\nContent-Type: text/event-plain\n\n\
         Event-Name: BACKGROUND_JOB\nJob-UUID: j-2\nContent-Length: 15\n\n100%25 %0A a+b\n"
    );
    let frames = frames(stream.as_bytes());
    assert_eq!(frames.len(), 3);
    assert_eq!(&event(&frames[0]).body()[..], b"+OK done\n");
    assert_eq!(get(&event(&frames[0]), "Job-UUID"), "j-1");
    assert_eq!(&event(&frames[2]).body()[..], b"100%25 %0A a+b\n");
    // An event's own field may be called like the length that governs the body: the last one does.
    let named = "Event-Name: CUSTOM\nContent-Length: 900\nContent-Length: 3\n\nabc";
    assert_eq!(&EslEvent::from_plain(&named.into()).unwrap().body()[..], b"abc");
}

#[test]
fn e08_arrays_and_repeated_keys() {
    let stream = "Content-Length: 181\nContent-Type: text/event-json\n\n\
        {\"Event-Name\":\"CHANNEL_CREATE\",\"Unique-ID\":\"u-1\",\"variable_a\":[\"x\",\"y\"],\"variable_b\":[\"solo\"],\
        \"variable_c\":\"plain\",\"Hangup-Cause\":\"NORMAL_CLEARING\",\"Hangup-Cause\":\"NORMAL_CLEARING\"}\
        Content-Length: 110\nContent-Type: text/event-plain\n\n\
        Event-Name: CHANNEL_CREATE\nUnique-ID: u-1\nvariable_a: ARRAY%3A%3Ax%7C%3Ay\nvariable_b: solo\nvariable_c: plain\n\n";
    for frame in frames(stream.as_bytes()) {
        let event = event(&frame);
        assert_eq!(event.all("variable_a"), [&b"x"[..], b"y"]);
        assert_eq!(event.all("variable_b"), [&b"solo"[..]]);
        assert_eq!(get(&event, "variable_a"), "x");
        assert_eq!(get(&event, "variable_b"), "solo");
        assert_eq!(get(&event, "variable_c"), "plain");
    }
}

#[test]
fn e09_nothing_follows_a_json_body() {
    let stream = "Content-Length: 26\nContent-Type: text/event-json\n\n{\"Event-Name\":\"HEARTBEAT\"}\
        Content-Type: api/response\nContent-Length: 6\n\n+OK 1\n";
    assert_eq!(frames(stream.as_bytes()).len(), 2);
    let upto = stream.find('}').unwrap() + 1;
    assert_eq!(frames_cut::<EslCodec>(&stream.as_bytes()[..upto], &[]).0.len(), 1, "delivered with its last byte");
}

#[test]
fn e10_an_event_of_200_kb_in_small_reads() {
    let body = format!(
        "Event-Name: CHANNEL_CREATE\nUnique-ID: u-1\nvariable_switch_r_sdp: {}\nvariable_sip_gateway_name: v1\n\n",
        "a".repeat(200_000)
    );
    let stream = framed(&body) + HEARTBEAT;
    let cuts: Vec<usize> = (1448..stream.len()).step_by(1448).collect();
    let (frames, error) = frames_cut::<EslCodec>(stream.as_bytes(), &cuts);
    assert!(error.is_none());
    assert_eq!(get(&event(&frames[0]), "variable_sip_gateway_name"), "v1");
    assert_eq!(frames.len(), 2);
}

#[test]
fn e13_e14_rejection_notice_and_greeting() {
    let stream = "Content-Type: text/rude-rejection\nContent-Length: 24\n\nAccess Denied, go away.\n\
        Content-Type: text/disconnect-notice\nContent-Length: 67\n\n\
        Disconnected, goodbye.\nSee you at ClueCon! http://www.cluecon.com/\n";
    let frames_ = frames(stream.as_bytes());
    assert_eq!(frames_[0].content_type(), b"text/rude-rejection");
    assert_eq!(&frames_[0].body[..], b"Access Denied, go away.\n");
    assert_eq!(frames_[1].content_type(), b"text/disconnect-notice");
    let greeting = frames(b"Content-Type: auth/request\n\n");
    assert_eq!((greeting.len(), greeting[0].content_type()), (1, &b"auth/request"[..]));
}

#[test]
fn e16_the_end_of_the_stream_within_a_frame() {
    let stream = "Content-Type: auth/request\n\nContent-Type: command/reply\nReply-Text: +OK accepted\n\n\
        Content-Length: 100\nContent-Type: text/event-plain\n\nEvent-Na";
    let (frames, error) = frames_cut::<EslCodec>(stream.as_bytes(), &[]);
    assert_eq!(frames.len(), 2);
    assert!(matches!(error, Some(FrameError::Truncated(8))), "{error:?}");
}

#[test]
fn e18_replies_come_in_the_order_of_the_commands() {
    let stream = "Content-Type: api/response\nContent-Length: 11\n\n\n4 total.\n\n\
        Content-Length: 44\nContent-Type: text/event-plain\n\nEvent-Name: CHANNEL_DESTROY\nUnique-ID: u-9\n\n\
        Content-Type: api/response\nContent-Length: 5\n\nfalse";
    let bodies: Vec<_> = frames(stream.as_bytes())
        .into_iter()
        .filter(|frame| frame.content_type() == b"api/response")
        .map(|frame| frame.body)
        .collect();
    assert_eq!(bodies, [&b"\n4 total.\n\n"[..], b"false"]);
}

#[test]
fn l04_a_reply_to_userauth_that_was_cut() {
    let cut = format!("Content-Type: command/reply\nReply-Text: +OK accepted\nAllowed-Events: {}", "e".repeat(400));
    for next in ["Content-Type: command/reply\nReply-Text: +OK event listener enabled plain\n\n", HEARTBEAT] {
        for glue in ["", "\n"] {
            let frames = frames(format!("{cut}{glue}{next}").as_bytes());
            assert_eq!(frames.len(), 2, "{next}");
            assert_eq!(frames[0].header("Reply-Text"), Some(&b"+OK accepted"[..]));
            assert!(frames[0].header("Allowed-Events").unwrap().iter().all(|&b| b == b'e'));
            assert_eq!(frames[1], frames_cut::<EslCodec>(next.as_bytes(), &[]).0[0]);
        }
    }
}

#[test]
fn l05_a_refused_api_call_is_answered_by_another_kind_of_frame() {
    let frames = frames(b"Content-Type: command/reply\nReply-Text: -ERR permission denied\n\n");
    assert_eq!(frames[0].header("Reply-Text"), Some(&b"-ERR permission denied"[..]));
}

#[test]
fn streams_of_other_kinds_are_refused_at_once() {
    let nonsense: &[(&[u8], &str)] = &[
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "an SSH server"),
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "a TLS server"),
        (b"Asterisk Call Manager/11.0.0\r\n", "Asterisk's manager interface"),
        (b"220 mx.example ESMTP\r\n", "a mail or FTP server"),
        (b"\x4a\x00\x00\x00\x0a8.0.33\x00", "\\x00"),
        (b"Foo: bar\n\n", "without Content-Type"),
        (b"Content-Type: text/event-plain\nContent-Length: -5\n\n", "Content-Length is \"-5\""),
        (b"Content-Type: text/event-plain\nContent-Length: many\n\n", "Content-Length is \"many\""),
        (b"Content-Type: x\nno colon here\n\n", "no colon here"),
    ];
    for (stream, words) in nonsense {
        let (frames, error) = frames_cut::<EslCodec>(stream, &[]);
        assert!(frames.is_empty());
        let Some(FrameError::Nonsense(what)) = error else { panic!("{error:?} for {}", stream.escape_ascii()) };
        assert!(what.contains(words), "{what}");
        let bytewise: Vec<usize> = (1..stream.len()).collect();
        assert!(
            matches!(frames_cut::<EslCodec>(stream, &bytewise).1, Some(FrameError::Nonsense(_))),
            "{}",
            stream.escape_ascii()
        );
    }
    let (_, error) = frames_cut::<EslCodec>(b"Content-Type: x\nContent-Length: 99999999999999999999999\n\n", &[]);
    assert!(matches!(error, Some(FrameError::BodyTooLong(u64::MAX))));
    let endless = format!("Content-Type: x\n{}", "a: b\n".repeat(300_000));
    assert!(matches!(frames_cut::<EslCodec>(endless.as_bytes(), &[]).1, Some(FrameError::HeaderTooLong)));
    let pieces: Vec<usize> = (4096..endless.len()).step_by(4096).collect();
    assert!(matches!(frames_cut::<EslCodec>(endless.as_bytes(), &pieces).1, Some(FrameError::HeaderTooLong)));
}

#[test]
fn a_broken_event_in_a_whole_frame_costs_only_itself() {
    let mut mapper = FsMapper::new(false);
    let json = ["{\"Event-Name\":\"CHANNEL_CREATE\",", "[1]", "{}", "nonsense"].map(|body| ("json", body));
    let cut = "Event-Name: CHANNEL_HANGUP_COMPLETE\nUnique-ID: u-1\nvariable_sip_gateway_name: v1\n";
    let plain = [cut, "Event-Name: CHANNEL_DESTROY\n\n", "A: b\n\n", "Event-Name: X\nContent-Length: 9\n\nshort"];
    for (format, body) in json.into_iter().chain(plain.map(|body| ("plain", body))) {
        let stream = format!("Content-Length: {}\nContent-Type: text/event-{format}\n\n{body}{HEARTBEAT}", body.len());
        let frames = frames(stream.as_bytes());
        assert_eq!(mapper.frame(&frames[0]), [PbxEvent::Lost(1)], "{body}");
        assert!(matches!(mapper.frame(&frames[1])[..], [PbxEvent::Heartbeat(_)]));
    }
}

// ---- legs ----

/// One node, fed with lines `NAME uuid key=value …` as the cases write them.
struct Node {
    mapper: FsMapper,
    tracker: Tracker,
    attempts: Attempts,
    /// What else came out, in words.
    told: Vec<String>,
}

impl Node {
    fn new() -> Self {
        let tracker = Tracker::new(PbxKind::FreeSwitch);
        Self { mapper: FsMapper::new(true), tracker, attempts: Attempts::default(), told: Vec::new() }
    }

    fn run(lines: &str) -> Self {
        let mut node = Self::new();
        node.feed(lines);
        node
    }

    fn feed(&mut self, lines: &str) {
        for line in lines.lines().flat_map(|line| line.split(" ; ")).filter(|line| !line.trim().is_empty()) {
            let stream = framed(&plain_event(line));
            for frame in frames_cut::<EslCodec>(stream.as_bytes(), &[]).0 {
                for event in self.mapper.frame(&frame) {
                    self.apply(&event, 0);
                }
            }
        }
    }

    fn apply(&mut self, event: &PbxEvent, now_ms: i64) {
        if let PbxEvent::Lost(count) = event {
            self.told.push(format!("lost {count}"));
        }
        let output = self.tracker.apply(event, Timestamp::from_micros(T0 + now_ms * 1000));
        self.told.extend(output.describe.iter().map(|leg| format!("describe {leg}")));
        self.attempts.take(&output);
    }

    fn snapshot(&mut self, legs: &[&str], now_ms: i64) {
        let row = |leg: &&str| {
            format!(r#"{{"uuid":"{leg}","direction":"outbound","name":"sofia/x/1","callstate":"ACTIVE"}}"#)
        };
        let rows: Vec<String> = legs.iter().map(row).collect();
        let answer = format!(r#"{{"row_count":{},"rows":[{}]}}"#, rows.len(), rows.join(","));
        let snapshot = freeswitch::snapshot(answer.as_bytes()).unwrap();
        self.apply(&PbxEvent::Snapshot(snapshot), now_ms);
    }

    fn finished(&self) -> Vec<&str> {
        self.attempts.finished.iter().map(String::as_str).collect()
    }
}

/// The notation of the cases as a plain event.
fn plain_event(line: &str) -> String {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    let channel = !matches!(name, "HEARTBEAT" | "CUSTOM");
    let mut event = format!("Event-Name: {}{name}\n", if channel { "CHANNEL_" } else { "" });
    let mut given = |name: &str, value: &str| {
        let value = value.replace('%', "%25");
        writeln!(event, "{name}: {value}").unwrap();
    };
    let (mut direction, mut core) = ("outbound", "core-1");
    if channel {
        given("Unique-ID", words.next().unwrap());
    }
    for word in words {
        let Some((key, value)) = word.split_once('=') else { continue };
        let time = |value: &str| (T0 + value.parse::<i64>().unwrap() * 1000).to_string();
        match key {
            "dir" => direction = value,
            "core" => core = value,
            "gw" => given("variable_sip_gateway_name", value),
            "c" => given("Caller-Channel-Created-Time", &time(value)),
            "p" => given("Caller-Channel-Progress-Time", &time(value)),
            "m" => given("Caller-Channel-Progress-Media-Time", &time(value)),
            "a" => given("Caller-Channel-Answered-Time", &time(value)),
            "h" => given("Caller-Channel-Hangup-Time", &time(value)),
            "ts" => given("Event-Date-Timestamp", &time(value)),
            "cause" => given("Hangup-Cause", value),
            "disp" => given("variable_sip_hangup_disposition", value),
            "st" => given("variable_sip_term_status", value),
            "inv" => given("variable_sip_invite_failure_status", value),
            "seq" => given("Event-Sequence", value),
            other => given(other, value),
        }
    }
    given("Core-UUID", core);
    if channel {
        given("Call-Direction", direction);
        for never in ["Answered", "Progress", "Progress-Media", "Hangup"] {
            given(&format!("Caller-Channel-{never}-Time"), "0");
        }
    }
    event + "\n"
}

/// Streams of events and the attempts that come of them.
const STREAMS: &[(&str, &str, &[&str])] = &[
    (
        "E22",
        "CREATE u-1 gw=v1 c=0
         ANSWER u-1 gw=v1 c=0 a=40
         HANGUP_COMPLETE u-1 gw=v1 c=0 a=40 h=60 cause=NORMAL_CLEARING disp=recv_bye
         DESTROY u-1 gw=v1 c=0 a=40 h=60",
        &["v1 answered 40/20"],
    ),
    (
        "E22, the last event first",
        "DESTROY u-1 gw=v1 c=0 a=40 h=60
         HANGUP_COMPLETE u-1 gw=v1 c=0 a=40 h=60 cause=NORMAL_CLEARING disp=recv_bye
         CREATE u-1 gw=v1 c=0
         ANSWER u-1 gw=v1 c=0 a=40",
        &["v1 answered 40/20"],
    ),
    (
        "E23, arriving half a minute late",
        "ANSWER u-1 gw=v1 c=0 a=2000 ts=2000
         HANGUP_COMPLETE u-1 gw=v1 c=0 a=2000 h=5000 cause=NORMAL_CLEARING disp=send_bye ts=35000",
        &["v1 answered 2000/3000"],
    ),
    (
        "E33",
        "CREATE  u-1 gw=v1 c=0
         DESTROY u-8 Channel-Name=N/A Answer-State=ringing
         DESTROY u-9 Channel-Name=N/A Answer-State=ringing
         HANGUP_COMPLETE u-1 gw=v1 c=0 h=100 cause=USER_BUSY disp=recv_refuse st=486
         DESTROY u-1 gw=v1 c=0 h=100
         DESTROY u-1 gw=v1 c=0 h=100",
        &["v1 busy -/0 486"],
    ),
    (
        "E37",
        "CREATE u-1 gw=v1 c=0 ; CREATE u-2 gw=v2 c=0
         PROGRESS u-1 gw=v1 c=0 p=300 ; PROGRESS u-2 gw=v2 c=0 p=700
         ANSWER u-2 gw=v2 c=0 p=700 a=4000
         HANGUP_COMPLETE u-1 gw=v1 c=0 p=300 h=4020 cause=LOSE_RACE disp=send_cancel inv=487 variable_group_dial_status=loser
         HANGUP_COMPLETE u-2 gw=v2 c=0 p=700 a=4000 h=9000 cause=NORMAL_CLEARING disp=recv_bye",
        &["v1 lost_race 300/0", "v2 answered 700/5000"],
    ),
    (
        "E39",
        "CREATE u-1 dir=inbound  Channel-Name=sofia/internal/100
         CREATE u-2 dir=outbound Channel-Name=loopback/4930111-a c=0
         CREATE u-3 dir=inbound  Channel-Name=loopback/4930111-b c=0
         CREATE u-4 dir=outbound Channel-Name=sofia/external/4930111 gw=v1 c=20
         ANSWER u-4 gw=v1 c=20 a=1000 ; ANSWER u-3 dir=inbound a=1000 ; ANSWER u-2 a=1000 ; ANSWER u-1 dir=inbound a=1000
         HANGUP_COMPLETE u-2 c=0 a=1000 h=2000 disp=send_bye
         HANGUP_COMPLETE u-4 gw=v1 c=20 a=1000 h=2000 disp=send_bye",
        &["v1 answered 980/1000"],
    ),
    (
        "E40",
        "CREATE u-1 gw=v1 c=0    Other-Leg-Unique-ID=u-0
         HANGUP_COMPLETE u-1 gw=v1 c=0 h=400 cause=NORMAL_TEMPORARY_FAILURE disp=recv_refuse st=503
         CREATE u-2 gw=v2 c=420  Other-Leg-Unique-ID=u-0
         HANGUP_COMPLETE u-2 gw=v2 c=420 p=900 a=3000 h=8000 cause=NORMAL_CLEARING disp=send_bye
         HANGUP_COMPLETE u-0 dir=inbound c=0 p=900 a=3000 h=8000 cause=NORMAL_CLEARING",
        &["v1 vendor_failed -/0 503", "v2 answered 480/5000"],
    ),
    (
        "E41",
        "CUSTOM sofia::gateway_state Gateway=v1 State=NOREG Ping-Status=DOWN
         DESTROY u-8 Channel-Name=N/A
         HANGUP_COMPLETE u-0 dir=inbound variable_originate_failed_cause=GATEWAY_DOWN cause=GATEWAY_DOWN
         CUSTOM sofia::gateway_state Gateway=v1 State=NOREG Ping-Status=UP",
        &[],
    ),
    (
        "E42",
        "HANGUP_COMPLETE u-1 gw=v1 c=0 a=1000 h=61000 cause=MEDIA_TIMEOUT disp=send_bye
         HANGUP_COMPLETE u-2 gw=v1 c=0 a=1000 h=61000 cause=ALLOTTED_TIMEOUT disp=send_bye
         HANGUP_COMPLETE u-3 gw=v1 c=0 h=900 cause=NORMAL_CLEARING disp=recv_refuse st=603
         HANGUP_COMPLETE u-4 gw=v1 c=0 h=900 cause=NORMAL_TEMPORARY_FAILURE disp=recv_refuse st=500",
        &["v1 answered 1000/60000", "v1 answered 1000/60000", "v1 rejected -/0 603", "v1 vendor_failed -/0 500"],
    ),
    (
        "E45",
        "HANGUP_COMPLETE u-1 gw=v1 c=0 p=500 a=6990 h=7010 cause=NORMAL_CLEARING disp=recv_bye variable_billsec=1",
        &["v1 answered 500/20"],
    ),
    (
        "E46",
        "HANGUP_COMPLETE u-1 gw=v1 c=0 h=500 variable_answer_epoch=0 variable_answer_uepoch=0 cause=ORIGINATOR_CANCEL disp=send_cancel",
        &["v1 caller_gone -/0"],
    ),
    (
        "E48, without HANGUP_COMPLETE",
        "CREATE  u-1 gw=v1 c=0
         HANGUP  u-1 gw=v1 c=0 cause=UNALLOCATED_NUMBER
         DESTROY u-1 gw=v1 c=0 h=250 disp=recv_refuse st=404",
        &["v1 number_invalid -/0 404"],
    ),
    (
        "E49",
        "CREATE u-1 gw=v1 Channel-Call-UUID=u-0 Other-Leg-Unique-ID=u-0 c=0
         CREATE u-2 gw=v2 Channel-Call-UUID=u-2 Other-Leg-Unique-ID=u-0 c=0
         CREATE u-3 gw=v2 Channel-Call-UUID=u-3 c=0
         HANGUP_COMPLETE u-2 gw=v2 c=0 h=9 disp=recv_refuse st=503 ; HANGUP_COMPLETE u-1 gw=v1 c=0 h=9 disp=recv_refuse st=486
         HANGUP_COMPLETE u-3 gw=v2 c=0 h=9 disp=recv_refuse st=404",
        &["v2 vendor_failed -/0 503", "v1 busy -/0 486", "v2 number_invalid -/0 404"],
    ),
    (
        "L09",
        "HANGUP u-1 gw=v1 c=0 cause=LOSE_RACE
         HANGUP_COMPLETE u-1 gw=v1 c=0 h=4000 cause=LOSE_RACE
         DESTROY u-1 gw=v1 c=0 h=4000",
        &["v1 not_sent -/0"],
    ),
    (
        "L10",
        "HANGUP u-1 gw=v1 c=0 cause=USER_BUSY
         CREATE u-1 gw=v1 c=0
         HANGUP_COMPLETE u-1 gw=v1 c=0 h=100 cause=USER_BUSY disp=recv_refuse st=486
         CREATE u-1 gw=v1 c=0",
        &["v1 busy -/0 486"],
    ),
    (
        "L11",
        "HANGUP_COMPLETE u-1 gw=v1 c=0 h=900 disp=send_bye cause=INCOMPATIBLE_DESTINATION variable_hangup_cause_q850=88",
        &["v1 vendor_failed -/0"],
    ),
    (
        "L12",
        "CREATE u-1 gw=v1 c=0 a=1000 variable_recovered=true
         HANGUP_COMPLETE u-1 gw=v1 c=0 a=1000 h=60000 cause=NORMAL_CLEARING disp=recv_bye variable_recovered=true",
        &["v1 answered 1000/59000"],
    ),
    (
        "timeouts and cancels",
        "HANGUP_COMPLETE u-1 gw=v1 c=0 p=300 h=9000 cause=NO_ANSWER disp=send_cancel inv=487
         HANGUP_COMPLETE u-2 gw=v1 c=0 h=9000 cause=NO_ANSWER disp=send_cancel inv=487
         HANGUP_COMPLETE u-3 gw=v1 c=0 m=300 h=9000 cause=ALLOTTED_TIMEOUT disp=send_cancel
         HANGUP_COMPLETE u-4 gw=v1 c=0 h=9000 cause=PROGRESS_TIMEOUT disp=send_cancel
         HANGUP_COMPLETE u-5 gw=v1 c=0 p=300 h=9000 cause=NORMAL_CLEARING disp=send_cancel
         HANGUP_COMPLETE u-6 gw=v1 c=0 p=300 h=9000 cause=PICKED_OFF disp=send_cancel
         HANGUP_COMPLETE u-7 gw=v1 c=0 p=300 h=9000 cause=ORIGINATOR_CANCEL disp=recv_refuse st=487
         HANGUP_COMPLETE u-8 gw=v1 c=0 h=9000 cause=ORIGINATOR_CANCEL disp=recv_refuse st=487
         HANGUP_COMPLETE u-9 gw=v1 c=0 h=9000 cause=NORMAL_CLEARING disp=recv_refuse
         HANGUP_COMPLETE u-10 gw=v1 c=0 h=9000 cause=REDIRECTION_TO_NEW_DESTINATION disp=recv_refuse st=302
         HANGUP_COMPLETE u-11 gw=v1 c=0 h=9000 cause=DESTINATION_OUT_OF_ORDER
         HANGUP_COMPLETE u-12 gw=v1 c=0 a=100 h=9000 cause=LOSE_RACE disp=send_bye",
        &[
            "v1 no_answer 300/0",
            "v1 vendor_failed -/0",
            "v1 no_answer 300/0",
            "v1 vendor_failed -/0",
            "v1 caller_gone 300/0",
            "v1 lost_race 300/0",
            "v1 no_answer 300/0 487",
            "v1 vendor_failed -/0 487",
            "v1 vendor_failed -/0",
            "v1 not_sent -/0 302",
            "v1 not_sent -/0",
            "v1 answered 100/8900",
        ],
    ),
    (
        "the delay of a leg is taken off its PDD and off nothing else",
        "HANGUP_COMPLETE u-1 gw=v1 c=0 p=5300 a=6000 h=8000 disp=recv_bye variable_leg_delay_start=5",
        &["v1 answered 300/2000"],
    ),
    (
        "a clock that stepped gives no figure",
        "HANGUP_COMPLETE u-1 gw=v1 c=5000 p=1000 a=2000 h=1500 disp=recv_bye
         HANGUP_COMPLETE u-2 gw=v1 c=0 a=1000 h=99000000000 disp=recv_bye",
        &["v1 answered -/-", "v1 answered 1000/-"],
    ),
    (
        "a leg that is renamed",
        "CREATE u-1 gw=v1 c=0
         UUID u-2 Old-Unique-ID=u-1 gw=v1 c=0
         HANGUP_COMPLETE u-2 gw=v1 c=0 h=9 disp=recv_refuse st=486",
        &["v1 busy -/0 486"],
    ),
];

#[test]
fn streams_give_the_right_attempts() {
    for (case, stream, expected) in STREAMS {
        let node = Node::run(stream);
        assert_eq!(node.finished(), *expected, "{case}");
        assert_eq!(node.attempts.placed, [""; 0], "{case}: legs without an end");
        assert_eq!(node.tracker.active(), 0, "{case}: active");
    }
}

#[test]
fn e22_any_order_with_the_last_event_last() {
    let [create, answer] = ["CREATE u-1 gw=v1 c=0", "ANSWER u-1 gw=v1 c=0 a=40"];
    let complete = "HANGUP_COMPLETE u-1 gw=v1 c=0 a=40 h=60 cause=NORMAL_CLEARING disp=recv_bye";
    let destroy = "DESTROY u-1 gw=v1 c=0 a=40 h=60 cause=NORMAL_CLEARING disp=recv_bye";
    let events = [create, answer, complete, destroy];
    for a in 0..4 {
        for b in 0..4 {
            for c in 0..4 {
                for d in 0..4 {
                    let stream = [a, b, c, d].map(|i| events[i]).join("\n");
                    let node = Node::run(&stream);
                    let ended = [a, b, c, d].iter().any(|&i| i >= 2);
                    assert_eq!(node.finished(), vec!["v1 answered 40/20"; usize::from(ended)], "{stream}");
                    assert_eq!(node.tracker.active(), usize::from(!ended), "{stream}");
                }
            }
        }
    }
}

#[test]
fn e25_the_second_session_counts_nothing_twice() {
    let mut node = Node::new();
    node.apply(&PbxEvent::Linked, 0);
    node.feed("CREATE u-1 gw=v1 c=0");
    node.apply(&PbxEvent::Unlinked, 500);
    node.apply(&PbxEvent::Linked, 800);
    node.feed("HANGUP_COMPLETE u-1 gw=v1 c=0 h=900 cause=USER_BUSY disp=recv_refuse st=486");
    assert_eq!(node.finished(), ["v1 busy -/0 486"]);
}

#[test]
fn e26_a_gap_in_the_link() {
    let mut node = Node::new();
    node.apply(&PbxEvent::Linked, 0);
    node.snapshot(&[], 0);
    node.feed("CREATE u-1 gw=v1 c=0 ; ANSWER u-1 gw=v1 c=0 a=1000 ; CREATE u-2 gw=v2 c=0 ; CREATE u-4 gw=v1 c=0");
    node.apply(&PbxEvent::Unlinked, 5000);
    node.apply(&PbxEvent::Linked, 20_000);
    node.snapshot(&["u-2", "u-3"], 20_000);
    assert_eq!(node.finished(), ["v1 answered 1000/-", "v1 lost -/-"]);
    assert_eq!(node.told, ["describe u-3"]);
    let dump = format!(
        r#"{{"Unique-ID":"u-3","Call-Direction":"outbound","variable_sip_gateway_name":"v1","Caller-Channel-Created-Time":"{}","Caller-Channel-Answered-Time":"{}"}}"#,
        T0 + 7_000_000,
        T0 + 9_000_000
    );
    let described = freeswitch::described(dump.as_bytes()).unwrap().unwrap();
    node.apply(&described, 20_100);
    assert_eq!(live(&node.tracker), ["u-2", "u-3"]);
    node.feed(
        "HANGUP_COMPLETE u-2 gw=v2 c=0 a=6000 h=30000 cause=NORMAL_CLEARING disp=recv_bye
         HANGUP_COMPLETE u-3 gw=v1 c=7000 a=9000 h=31000 cause=NORMAL_CLEARING disp=recv_bye",
    );
    assert_eq!(node.finished()[2..], ["v2 answered 6000/24000", "v1 answered 2000/22000"]);
    let counters = node.tracker.counters();
    assert_eq!((counters.unseen_ends_answered, counters.unseen_ends_lost), (1, 1));
}

#[test]
fn e27_freeswitch_dies_and_comes_back() {
    let mut node = Node::run(
        "HEARTBEAT core=core-1 Session-Count=2 Session-Since-Startup=900 seq=900
         CREATE u-1 gw=v1 c=0 ; ANSWER u-1 gw=v1 c=0 a=1000
         HEARTBEAT core=core-2 Session-Count=0 Session-Since-Startup=0 seq=31",
    );
    assert_eq!(node.finished(), ["v1 answered 1000/-"]);
    assert_eq!(node.tracker.active(), 0);
    // The leg is brought back from before the crash: it is up, and no second attempt.
    node.feed("CREATE u-1 gw=v1 c=0 a=1000 core=core-2 variable_recovered=true");
    assert_eq!(live(&node.tracker), ["u-1"]);
    node.feed("HANGUP_COMPLETE u-1 gw=v1 c=0 a=1000 h=90000 core=core-2 disp=recv_bye variable_recovered=true");
    assert_eq!(node.finished(), ["v1 answered 1000/-"]);
    assert_eq!((node.tracker.active(), node.told.len()), (0, 0));
}

#[test]
fn e32_a_silent_loss_shows_at_the_second_heartbeat() {
    let mut node = Node::run(
        "HEARTBEAT Session-Since-Startup=100 Session-Count=10 seq=5000
         CREATE u-1 gw=v1 c=0 seq=5003 ; HANGUP_COMPLETE u-1 gw=v1 c=0 h=9 disp=recv_refuse st=486 ; DESTROY u-1 gw=v1 seq=5050
         HEARTBEAT Session-Since-Startup=104 Session-Count=10 seq=5200",
    );
    assert_eq!(node.told, [""; 0], "they may be on their way");
    node.feed("HEARTBEAT Session-Since-Startup=104 Session-Count=10 seq=5300");
    assert_eq!(node.told, ["lost 3"]);
    node.feed("HEARTBEAT Session-Since-Startup=104 Session-Count=10 seq=5400");
    assert_eq!(node.told, ["lost 3"], "told once");
    assert_eq!(node.tracker.counters().events_lost, 3);
    // What comes late is no loss.
    node.feed(
        "HEARTBEAT Session-Since-Startup=105 Session-Count=10
         DESTROY u-7 dir=inbound
         HEARTBEAT Session-Since-Startup=105 Session-Count=10 ; HEARTBEAT Session-Since-Startup=105 Session-Count=10",
    );
    assert_eq!(node.told, ["lost 3"]);
}

#[test]
fn e33_the_active_calls_are_a_set() {
    let mut node = Node::new();
    let mut active = Vec::new();
    for line in STREAMS.iter().find(|(case, ..)| *case == "E33").unwrap().1.lines() {
        node.feed(line);
        active.push(node.tracker.active());
    }
    assert_eq!(active, [1, 1, 1, 0, 0, 0]);
}

#[test]
fn e35_a_leg_that_is_gone_before_it_is_described() {
    let stream = "Content-Type: api/response\nContent-Length: 22\n\n-ERR No such channel!\n\
        Content-Type: api/response\nContent-Length: 129\n\n{\"Unique-ID\":\"u-2\",\"Call-Direction\":\"outbound\",\
        \"variable_sip_gateway_name\":\"v1\",\"Caller-Channel-Created-Time\":\"1700000000000000\"}";
    let frames = frames(stream.as_bytes());
    let mut node = Node::new();
    node.apply(&PbxEvent::Linked, 0);
    node.snapshot(&["u-1", "u-2"], 0);
    assert_eq!(node.told, ["describe u-1", "describe u-2"]);
    assert!(freeswitch::described(&frames[0].body).is_err());
    node.apply(&PbxEvent::LegGone(LegId::new("u-1")), 10);
    node.apply(&freeswitch::described(&frames[1].body).unwrap().unwrap(), 10);
    assert_eq!(live(&node.tracker), ["u-2"]);
}

#[test]
fn e39_legs_without_a_gateway_are_asked_about_once() {
    let mut node = Node::new();
    node.apply(&PbxEvent::Linked, 0);
    node.snapshot(&["loop"], 0);
    let dump = r#"{"Unique-ID":"loop","Call-Direction":"outbound","Channel-Name":"loopback/1-a"}"#;
    node.apply(&freeswitch::described(dump.as_bytes()).unwrap().unwrap(), 10);
    node.snapshot(&["loop"], 30_000);
    assert_eq!((node.told.len(), node.tracker.active()), (1, 0));
}

#[test]
fn e48_active_goes_down_at_the_hangup_and_the_outcome_comes_once() {
    let mut node = Node::run("CREATE u-1 gw=v1 c=0");
    assert_eq!(node.tracker.active(), 1);
    node.feed("HANGUP u-1 gw=v1 c=0 cause=UNALLOCATED_NUMBER");
    assert_eq!((node.tracker.active(), node.finished().len()), (0, 0));
    node.feed("HANGUP_COMPLETE u-1 gw=v1 c=0 h=250 cause=UNALLOCATED_NUMBER disp=recv_refuse st=404");
    node.feed("DESTROY u-1 gw=v1 c=0 h=250 disp=recv_refuse st=404");
    assert_eq!(node.finished(), ["v1 number_invalid -/0 404"]);
}

#[test]
fn one_list_without_a_leg_is_no_proof_two_are() {
    let mut node = Node::new();
    node.apply(&PbxEvent::Linked, 0);
    node.snapshot(&[], 0);
    node.feed("CREATE u-1 gw=v1 c=0 ; CREATE u-2 gw=v1 c=0");
    node.snapshot(&[], 1000);
    node.snapshot(&["u-2"], 9000);
    assert_eq!(node.finished(), [""; 0]);
    node.snapshot(&[], 11_000);
    assert_eq!(node.finished(), ["v1 lost -/-"], "u-1 was missing for 10 s, u-2 only since now");
    node.feed("ANSWER u-2 gw=v1 c=0 a=12000");
    node.snapshot(&[], 22_000);
    assert_eq!(live(&node.tracker), ["u-2"], "an event shows that it is there");
    node.feed("HANGUP_COMPLETE u-1 gw=v1 c=0 h=9 disp=recv_refuse st=486");
    assert_eq!(node.finished().len(), 1, "closed is closed");
}

#[test]
fn legs_known_from_before_a_restart_of_pointsman() {
    let mut node = Node::new();
    node.feed("CREATE u-1 gw=v1 c=0 ; ANSWER u-1 gw=v1 c=0 p=300 a=1000 ; CREATE u-2 gw=v1 c=0 ; CREATE u-3 gw=v1 c=0");
    let kept: Vec<_> = node.tracker.live_legs().collect();
    let mut again = Node::new();
    for leg in kept {
        again.attempts.placed.push(leg.leg.to_string());
        again.tracker.restore(leg);
    }
    assert_eq!(again.tracker.active(), 3);
    again.apply(&PbxEvent::Linked, 5000);
    again.feed("HEARTBEAT Session-Count=1");
    again.snapshot(&["u-2"], 5000);
    assert_eq!(again.finished(), ["v1 answered 300/-", "v1 lost -/-"]);
    again.feed("HANGUP_COMPLETE u-2 gw=v1 c=0 p=200 a=6000 h=7000 disp=recv_bye");
    assert_eq!(again.finished()[2..], ["v1 answered 200/1000"]);
}

#[test]
fn an_answer_that_is_not_a_list_is_not_taken_for_an_empty_one() {
    let other = [
        "{\"row_count\":3}",
        "{\"row_count\":2,\"rows\":[{\"uuid\":\"u\",\"direction\":\"outbound\",\"name\":\"\",\"callstate\":\"\"}]}",
        "{\"row_count\":1,\"rows\":[{\"reg_user\":\"100\",\"realm\":\"x\"}]}",
        "{\"row_count\":1,\"rows\":[{\"uuid\":",
    ];
    for answer in ["-ERR no such command", "{}", "[]", ""].into_iter().chain(other) {
        assert!(freeswitch::snapshot(answer.as_bytes()).is_err(), "{answer}");
    }
    assert!(freeswitch::snapshot(b"{\"row_count\": 0}\n").unwrap().legs.is_empty());
    assert!(freeswitch::snapshot(b"{\"row_count\":0,\"rows\":[]}").unwrap().legs.is_empty());
}
