use std::collections::HashMap;
use std::fmt::Write;

use bytes::BytesMut;
use pointsman::call::tracker::Tracker;
use pointsman::pbx::PbxKind;
use pointsman::pbx::asterisk::{self, AstMapper, ChannelList};
use pointsman::pbx::event::PbxEvent;
use pointsman::time::Timestamp;
use pointsman::wire::ami::{AmiCodec, AmiFrame, AmiKind, AmiMessage};
use pointsman::wire::limits::FrameError;
use tokio_util::codec::Decoder;

use crate::{Attempts, frames_cut, live};

/// Second 0 of the cases.
const T0: i64 = 1_700_000_000;

// ---- wire ----

/// The bytes of a case: `⏎` is CR LF, `␊` is LF, `∎` ends a message.
fn bytes(case: &str) -> Vec<u8> {
    case.replace('⏎', "\r\n").replace('␊', "\n").replace('∎', "\r\n\r\n").into_bytes()
}

/// The messages of a stream, whatever its cut: in one piece, in any two pieces, byte by byte.
fn messages(case: &str) -> Vec<AmiMessage> {
    let bytes = bytes(case);
    let (frames, error) = frames_cut::<AmiCodec>(&bytes, &[]);
    assert!(error.is_none(), "{error:?}");
    for at in 0..bytes.len() {
        assert_eq!(frames_cut::<AmiCodec>(&bytes, &[at]).0, frames, "cut at {at}");
    }
    assert_eq!(frames_cut::<AmiCodec>(&bytes, &(1..bytes.len()).collect::<Vec<_>>()).0, frames, "byte by byte");
    let message = |frame| match frame {
        AmiFrame::Message(message) => Some(message),
        AmiFrame::Banner(_) => None,
    };
    frames.into_iter().filter_map(message).collect()
}

fn get<'a>(message: &'a AmiMessage, name: &str) -> &'a [u8] {
    message.header(name).unwrap_or(b"(none)")
}

#[test]
fn a01_the_end_mark_may_come_anywhere_in_a_read() {
    let found = messages("Event: A⏎X: 1∎Event: B⏎Y: 2∎");
    assert_eq!(found.len(), 2);
    assert_eq!((get(&found[0], "X"), get(&found[1], "Y")), (&b"1"[..], &b"2"[..]));
    let long = format!("Event: Long⏎X: {}∎", "x".repeat(20_000));
    let bytes = bytes(&long);
    let (frames, error) = frames_cut::<AmiCodec>(&bytes, &(1..bytes.len()).collect::<Vec<_>>());
    assert!(error.is_none());
    assert_eq!(frames.len(), 1);
}

#[test]
fn a02_a_burst_in_one_read() {
    let burst = format!("Event: E⏎X: {}∎", "x".repeat(680)).repeat(300);
    let (frames, error) = frames_cut::<AmiCodec>(&bytes(&(burst + "Event: Last∎")), &[]);
    assert!(error.is_none());
    assert_eq!(frames.len(), 301);
}

#[test]
fn a03_a04_bare_line_feeds() {
    let list = "Event: CoreShowChannelMap⏎ActionID: 7⏎Channel: PJSIP/a-00000001⏎ConnectedChannel: PJSIP/b-00000002⏎␊\
        Event: CoreShowChannelMapComplete⏎ActionID: 7⏎EventList: Complete⏎ListItems: 1∎";
    let found = messages(list);
    assert_eq!(
        found.iter().map(AmiMessage::kind).collect::<Vec<_>>(),
        [AmiKind::Event(b"CoreShowChannelMap"), AmiKind::Event(b"CoreShowChannelMapComplete")]
    );
    let agents =
        messages("Event: Agents⏎Agent: a1⏎CallStarted: 1443613421␊LoggedInTime: 1443608760⏎Channel: SIP/x-00000060∎");
    assert_eq!(get(&agents[0], "CallStarted"), b"1443613421");
    assert_eq!(get(&agents[0], "LoggedInTime"), b"1443608760");
    let answers =
        messages("Response: Error⏎ActionID: m⏎Message: No Contacts found␊⏎⏎Response: Success⏎ActionID: n⏎Ping: Pong∎");
    assert_eq!(answers.len(), 2);
    assert_eq!((get(&answers[0], "Message"), get(&answers[1], "Ping")), (&b"No Contacts found"[..], &b"Pong"[..]));
}

#[test]
fn a06_a07_a08_a10_odd_headers_and_values() {
    let empty = messages("Event: RTCPSent⏎ReportBlock:⏎FractionLost: 0∎");
    assert_eq!((get(&empty[0], "ReportBlock"), get(&empty[0], "FractionLost")), (&b""[..], &b"0"[..]));
    let odd = messages("Event: ReceivedSMS⏎Content: hi⏎--END SMS EVENT--⏎⏎Event: X∎");
    assert_eq!(odd.len(), 2);
    assert_eq!(odd[0].extra, [&b"--END SMS EVENT--"[..]]);
    let colons = messages("Event: X⏎CallerIDName: Room: 5⏎DialString: sip:1@[2001:db8::1]:5060⏎AppData: a=b:c ∎");
    assert_eq!(get(&colons[0], "CallerIDName"), b"Room: 5");
    assert_eq!(get(&colons[0], "DialString"), b"sip:1@[2001:db8::1]:5060");
    assert_eq!(get(&colons[0], "AppData"), b"a=b:c ", "blanks at the end belong to the value");
    let (frames, _) = frames_cut::<AmiCodec>(b"Event: X\r\nCallerIDName: \xC2\xE8\xF2\r\n\r\n", &[]);
    let AmiFrame::Message(latin) = &frames[0] else { panic!() };
    assert_eq!(get(latin, "calleridname"), b"\xC2\xE8\xF2");
}

#[test]
fn a11_answers_to_commands_old_and_new() {
    let old = messages("Response: Follows⏎Privilege: Command⏎ActionID: 1⏎line one␊a: b␊--END COMMAND--∎Event: X∎");
    assert_eq!(old[0].output(), [&b"line one"[..], b"a: b"]);
    assert_eq!((get(&old[0], "ActionID"), old.len()), (&b"1"[..], 2));
    let new = messages(
        "Response: Success⏎ActionID: 1⏎Message: Command output follows⏎Output: line one⏎Output: ⏎Output: a: b∎",
    );
    assert_eq!(new[0].output(), [&b"line one"[..], b"", b"a: b"]);
    let failed = messages("Response: Error⏎ActionID: 2⏎Message: Command output follows⏎Output: No such command∎");
    assert_eq!(failed[0].kind(), AmiKind::Response(b"Error"));
    assert_eq!(failed[0].output(), [&b"No such command"[..]]);
    let blank = messages("Response: Follows⏎Privilege: Command⏎one␊␊two␊--END COMMAND--∎Event: X∎");
    assert_eq!((blank.len(), blank[0].output()), (2, vec![&b"one"[..], b"", b"two"]));
    // Without its end mark the text is over where a message begins: nobody can make us deaf with three words.
    let forged = messages("Response: Follows⏎⏎Event: X⏎A: 1∎Event: Y∎");
    assert_eq!(forged.len(), 3);
}

#[test]
fn a12_repeated_headers() {
    let hangup = &messages("Event: Hangup⏎ChanVariable: trunk=a⏎ChanVariable: try=2⏎Cause: 17∎")[0];
    assert_eq!(hangup.all("ChanVariable").collect::<Vec<_>>(), [&b"trunk=a"[..], b"try=2"]);
    let old = &messages("Event: Hangup⏎ChanVariable(SIP/x-00000062): trunk=a⏎ChanVariable(SIP/x-00000062): b=c∎")[0];
    assert_eq!(old.all("ChanVariable(SIP/x-00000062)").count(), 2);
}

#[test]
fn a14_any_banner() {
    for banner in ["Asterisk Call Manager/2.5.0", "Asterisk Call Manager/99.1", "Asterisk Call Manager Proxy/1.30.0"] {
        let stream = bytes(&format!("{banner}⏎Response: Success⏎ActionID: 1∎"));
        let (frames, error) = frames_cut::<AmiCodec>(&stream, &[]);
        assert!(error.is_none());
        assert_eq!((frames.len(), &frames[0]), (2, &AmiFrame::Banner(banner.as_bytes().to_vec().into())));
    }
    assert!(frames_cut::<AmiCodec>(b"", &[]).1.is_none(), "an end without a banner is for the session to judge");
}

#[test]
fn a24_a_foreign_event_within_a_list() {
    let channel = Script::default().block("", "T");
    let stream = format!(
        "Response: Success⏎ActionID: 4⏎EventList: start∎Event: Newchannel⏎Privilege: call,all⏎{}⏎\
         Event: CoreShowChannel⏎ActionID: 4⏎{}Application: AppDial⏎ApplicationData: (Outgoing Line)⏎Duration: 00:01:05⏎BridgeId: ⏎⏎\
         Event: CoreShowChannelsComplete⏎ActionID: 4⏎EventList: Complete⏎ListItems: 1∎",
        channel, channel
    );
    let mut list = ChannelList::default();
    let found: Vec<_> = messages(&stream).iter().filter_map(|message| list.message(message).unwrap()).collect();
    let [snapshot] = &found[..] else { panic!("{found:?}") };
    let [row] = &snapshot.legs[..] else { panic!("{snapshot:?}") };
    assert_eq!((row.leg.as_str(), row.trunk.as_deref(), row.outbound), ("1.2", Some("t"), Some(true)));
    assert_eq!((row.answered, row.age_sec), (false, Some(65)));
}

#[test]
fn a_list_with_a_damaged_or_missing_row_says_nothing() {
    let row = format!("Event: CoreShowChannel⏎{}⏎", Script::default().block("", "T"));
    let complete = "Event: CoreShowChannelsComplete⏎ListItems: 2∎";
    for rows in [row.clone(), row.replace("Exten", "Extension") + &row] {
        let mut list = ChannelList::default();
        let results: Vec<_> = messages(&(rows + complete)).iter().map(|message| list.message(message)).collect();
        assert!(results.iter().any(Result::is_err), "{results:?}");
        assert!(results.iter().flatten().all(Option::is_none), "{results:?}");
    }
}

#[test]
fn a38_the_trunk_by_a_channels_name() {
    let names: &[(&str, Option<&str>)] = &[
        ("PJSIP/Example-Trunk-Primary-0000a1b2", Some("Example-Trunk-Primary")),
        ("SIP/carrier-00000abc-0000001f", Some("carrier-00000abc")),
        ("SIP/10.0.0.7-00000003", Some("10.0.0.7")),
        ("IAX2/trunk-12-4711", Some("trunk-12")),
        ("Local/7@out-0000af99;1", None),
        ("Surrogate/PJSIP/t-1-0000000a", Some("t-1")),
        ("PJSIP/t-1-0000000a<ZOMBIE>", Some("t-1")),
        ("PJSIP/t-00000005<MASQ>", Some("t")),
        ("DAHDI/i1/5551-3", Some("i1")),
        ("DAHDI/1-1", Some("1")),
        ("PJSIP/no-counter", None),
        ("PJSIP/-0000000a", None),
        ("Message/ast_msg_queue", None),
        ("none", None),
        ("", None),
    ];
    for (channel, expected) in names {
        assert_eq!(asterisk::trunk(channel.as_bytes()), expected.map(str::as_bytes), "{channel}");
    }
}

#[test]
fn streams_of_other_kinds_are_refused_at_once() {
    let nonsense: &[(&[u8], &str)] = &[
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "an SSH server"),
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "tls = true"),
        (b"Content-Type: auth/request\n\n", "FreeSWITCH's event socket"),
        (b"220 mx.example ESMTP\r\n", "a mail or FTP server"),
        (b"\x4a\x00\x00\x00\x0a8.0.33\x00", "\\x00"),
        (b"hello\n", "hello"),
    ];
    for (stream, words) in nonsense {
        let bytewise: Vec<usize> = (1..stream.len()).collect();
        assert!(
            matches!(frames_cut::<AmiCodec>(stream, &bytewise).1, Some(FrameError::Nonsense(_))),
            "{}",
            stream.escape_ascii()
        );
        let Some(FrameError::Nonsense(what)) = frames_cut::<AmiCodec>(stream, &[]).1 else {
            panic!("{}", stream.escape_ascii())
        };
        assert!(what.contains(words), "{what}");
    }
    let endless = "x".repeat(5000);
    assert!(matches!(frames_cut::<AmiCodec>(endless.as_bytes(), &[]).1, Some(FrameError::Nonsense(_))));
    let endless = format!("Event: X\r\n{}", "a: b\r\n".repeat(300_000));
    assert!(matches!(frames_cut::<AmiCodec>(endless.as_bytes(), &[]).1, Some(FrameError::HeaderTooLong)));
}

#[test]
fn l13_the_last_bytes_are_half_an_event() {
    let (frames, error) = frames_cut::<AmiCodec>(&bytes("Event: A∎Event: B⏎X"), &[]);
    assert_eq!(frames.len(), 1);
    assert!(matches!(error, Some(FrameError::Truncated(11))), "{error:?}");
}

// ---- legs ----

/// Legs by a short name: channel and Uniqueid.
const LEGS: &[(&str, &str, &str)] = &[
    ("C", "PJSIP/caller-00000001", "1.1"),
    ("T", "PJSIP/t-00000002", "1.2"),
    ("U", "PJSIP/u-00000003", "1.3"),
    ("S", "SIP/s-00000004", "1.4"),
    ("L1", "Local/7@out-00000001;1", "1.5"),
    ("L2", "Local/7@out-00000001;2", "1.6"),
    ("P", "PJSIP/picker-00000007", "1.7"),
    ("D", "DAHDI/i1/5551-3", "1.8"),
    ("X", "Surrogate/PJSIP/t-00000002", "1.9"),
];

/// Writes messages in a notation: `seconds Event leg [words]`, `seconds Event caller>leg [words]`.
#[derive(Default)]
struct Script {
    states: HashMap<String, u8>,
}

impl Script {
    fn block(&self, prefix: &str, leg: &str) -> String {
        let (_, channel, uniqueid) = LEGS.iter().find(|(name, ..)| *name == leg).unwrap_or_else(|| panic!("{leg}"));
        let state = self.states.get(leg).copied().unwrap_or(if leg == "C" || leg == "P" { 4 } else { 0 });
        let mut block = String::new();
        for (name, value) in [
            ("Channel", *channel),
            ("ChannelState", &state.to_string()),
            ("ChannelStateDesc", "Desc"),
            ("CallerIDNum", "15550001"),
            ("CallerIDName", "Caller One"),
            ("ConnectedLineNum", "<unknown>"),
            ("ConnectedLineName", "<unknown>"),
            ("Language", "en"),
            ("AccountCode", ""),
            ("Context", "out"),
            ("Exten", "4930111"),
            ("Priority", "1"),
            ("Uniqueid", uniqueid),
            ("Linkedid", "1.1"),
        ] {
            write!(block, "{prefix}{name}: {value}⏎").unwrap();
        }
        block
    }

    fn message(&mut self, line: &str) -> String {
        if let Some(raw) = line.strip_prefix("raw ") {
            return raw.to_owned();
        }
        let mut words = line.split_whitespace();
        let (seconds, event) = (words.next().unwrap(), words.next().unwrap());
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let at = format!("{}.{fraction:0<6}", T0 + whole.parse::<i64>().unwrap());
        let mut message = format!("Event: {event}⏎Privilege: call,all⏎Timestamp: {at}⏎");
        let (caller, leg) = match words.next() {
            Some(legs) => legs.split_once('>').map_or((None, Some(legs)), |(a, b)| (Some(a), Some(b))),
            None => (None, None),
        };
        let words: Vec<&str> = words.collect();
        if event == "Newstate" {
            self.states.insert(leg.unwrap().to_owned(), words[0].parse().unwrap());
        }
        if let Some(caller) = caller.filter(|caller| !caller.is_empty()) {
            message += &self.block("", caller);
        }
        if let Some(leg) = leg.filter(|_| event != "Rename") {
            let prefix = if event.starts_with("Dial") { "Dest" } else { "" };
            message += &self.block(if event == "Pickup" { "Target" } else { prefix }, leg);
        }
        let named = match event {
            "Hangup" => &["Cause"][..],
            "DialEnd" | "DialState" => &["DialStatus"],
            "Newstate" => &[""],
            _ => &[],
        };
        for (at, word) in words.iter().enumerate() {
            match (named.get(at), word.split_once('=')) {
                (Some(&""), _) => {}
                (Some(name), _) => write!(message, "{name}: {word}⏎").unwrap(),
                (None, Some((name, value))) => write!(message, "{name}: {value}⏎").unwrap(),
                (None, None) => panic!("{line}"),
            }
        }
        if event == "Hangup" {
            message += "Cause-txt: text⏎";
        }
        message + "⏎"
    }
}

struct Node {
    script: Script,
    mapper: AstMapper,
    tracker: Tracker,
    attempts: Attempts,
    lost: u64,
    codec: AmiCodec,
    buffer: BytesMut,
}

impl Node {
    fn new() -> Self {
        Self {
            script: Script::default(),
            mapper: AstMapper::default(),
            tracker: Tracker::new(PbxKind::Asterisk),
            attempts: Attempts::default(),
            lost: 0,
            codec: AmiCodec::default(),
            buffer: BytesMut::from(&b"Asterisk Call Manager/11.0.0\r\n"[..]),
        }
    }

    fn run(lines: &str) -> Self {
        let mut node = Self::new();
        node.feed(lines);
        node
    }

    fn feed(&mut self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let message = self.script.message(line);
            self.buffer.extend_from_slice(&bytes(&message));
            while let Some(frame) = self.codec.decode(&mut self.buffer).unwrap() {
                let AmiFrame::Message(message) = frame else { continue };
                let now = message.header("Timestamp").and_then(asterisk::time).unwrap_or(Timestamp::from_secs(T0));
                let Some(event) = self.mapper.event(&message) else { continue };
                self.apply(&event, now);
                if asterisk::is_damage(&event) {
                    self.lost += 1;
                    self.apply(&PbxEvent::Lost(1), now);
                }
            }
        }
    }

    fn apply(&mut self, event: &PbxEvent, now: Timestamp) {
        let output = self.tracker.apply(event, now);
        self.attempts.take(&output);
    }

    /// A list of channels with these legs.
    fn list(&mut self, legs: &[&str], seconds: i64) {
        let mut list = ChannelList::default();
        let note = "Application: AppDial⏎ApplicationData: (Outgoing Line)⏎Duration: 00:00:10⏎BridgeId: ⏎⏎";
        let mut stream = String::new();
        for leg in legs {
            stream += &format!("Event: CoreShowChannel⏎ActionID: 1⏎{}{note}", self.script.block("", leg));
        }
        stream +=
            &format!("Event: CoreShowChannelsComplete⏎ActionID: 1⏎EventList: Complete⏎ListItems: {}∎", legs.len());
        for frame in frames_cut::<AmiCodec>(&bytes(&stream), &[]).0 {
            let AmiFrame::Message(message) = frame else { continue };
            if let Some(snapshot) = list.message(&message).unwrap() {
                self.apply(&PbxEvent::Snapshot(snapshot), Timestamp::from_secs(T0 + seconds));
            }
        }
    }

    fn finished(&self) -> Vec<&str> {
        self.attempts.finished.iter().map(String::as_str).collect()
    }
}

/// A leg to T that was dialled at second 0.
const DIALLED: &str = "0 Newchannel C
    0 Newchannel T
    0 DialBegin C>T DialString=4930111@t\n";

/// Streams of events and the attempts that come of them.
const STREAMS: &[(&str, &str, &[&str])] = &[
    (
        "A30",
        "0 Newchannel T
         0 DialBegin C>T
         raw Event: Rename⏎Channel: PJSIP/t-00000002⏎Newname: PJSIP/t-00000002<MASQ>⏎Uniqueid: 1.2∎
         1 Newstate T 6
         2 Hangup T 16",
        &["t answered 1000/1000"],
    ),
    (
        "A34, a queue: only the winner gets an end of dialling",
        "0 DialBegin C>T
         0 DialBegin C>U
         1 DialState C>T RINGING
         1 DialState C>U RINGING
         2 Newstate U 6
         2 DialEnd C>U ANSWER
         2.1 Hangup T 0
         9 Hangup U 16",
        &["t lost_race 1000/0", "u answered 1000/7000"],
    ),
    (
        "A42, six messages for one refusal",
        "0 DialBegin C>T
         1 HangupRequest T Cause=19 TechCause=480
         1 DialEnd C>T NOANSWER
         1 Hangup T 19 TechCause=480
         raw Event: VarSet⏎Privilege: dialplan,all⏎Channel: none⏎Uniqueid: none⏎Variable: DIALSTATUS⏎Value: NOANSWER∎
         raw Event: Cdr⏎Channel: PJSIP/caller-00000001⏎DestinationChannel: PJSIP/t-00000002⏎UniqueID: 1.1⏎Disposition: NO ANSWER∎
         raw Event: Cdr⏎Channel: PJSIP/caller-00000001⏎DestinationChannel: ⏎UniqueID: 1.1⏎Disposition: FAILED∎",
        &["t no_answer -/0 480"],
    ),
    (
        "A43",
        "0 DialBegin C>T
         1 HangupRequest T Cause=17 TechCause=486
         1 DialEnd C>T BUSY
         1 Hangup T 17 TechCause=486
         2 DialBegin C>U
         3 Newstate U 6
         4 Hangup U 16",
        &["t busy -/0 486", "u answered 1000/1000"],
    ),
    (
        "A45",
        "0 DialBegin C>T
         1 DialState C>T RINGING
         2 HangupRequest C Cause=127 TechCause=487
         2 DialEnd C>T CANCEL
         2 Hangup T 127 TechCause=500",
        &["t caller_gone 1000/0"],
    ),
    (
        "A47",
        "0 DialBegin C>T
         0 DialBegin C>U
         1 DialState C>T RINGING
         2 Newstate U 6
         2 DialEnd C>T CANCEL
         2 DialEnd C>U ANSWER
         2 Hangup T 26
         5 Hangup U 16",
        &["t lost_race 1000/0", "u answered 2000/3000"],
    ),
    (
        "A47, a loser whose cause does not tell",
        "0 DialBegin C>T
         0 DialBegin C>U
         2 Newstate U 6
         2 DialEnd C>T CANCEL
         2 Hangup T 127
         5 Hangup U 16",
        &["t lost_race -/0", "u answered 2000/3000"],
    ),
    (
        "A49, a queue member behind a Local channel",
        "0 Newchannel C
         30 Newchannel L1
         30 Newchannel L2
         30 DialBegin C>L1
         30 Newchannel T
         30 DialBegin L2>T
         31 Newstate T 5
         31 DialState L2>T RINGING
         31 DialState C>L1 RINGING
         40 Newstate T 6
         40 DialEnd L2>T ANSWER
         40 DialEnd C>L1 ANSWER
         100 Hangup L2 16
         100 Hangup L1 16
         100 Hangup T 16",
        &["t answered 1000/60000"],
    ),
    (
        "A50",
        "0 DialBegin C>T
         4.07 Newstate T 6
         64.07 Hangup T 16
         65 DialBegin C>U
         66 HangupRequest U Cause=34 TechCause=503
         66 DialEnd C>U CONGESTION
         66 Hangup U 34",
        &["t answered 4070/60000", "u vendor_failed -/0 503"],
    ),
    (
        "A52a",
        "0 DialBegin C>T
         1 DialState C>T RINGING
         9 DialEnd C>T NOANSWER
         9 Hangup T 0",
        &["t no_answer 1000/0"],
    ),
    (
        "A52b, originated",
        "0 Newchannel T
         0 DialBegin >T
         1 DialState >T RINGING
         raw Event: OriginateResponse⏎Response: Failure⏎Channel: PJSIP/1@t⏎Reason: 3⏎Uniqueid: <unknown>∎
         9 Hangup T 19 TechCause=480",
        &["t no_answer 1000/0"],
    ),
    (
        "A52b, before 20.18",
        "0 DialBegin >T
         1 DialState >T RINGING
         9 Hangup T 0",
        &["t no_answer 1000/0"],
    ),
    (
        "A52c",
        "0 DialBegin C>T
         9 DialEnd C>T NOANSWER
         9 Hangup T 0",
        &["t vendor_failed -/0"],
    ),
    (
        "A54, old and new",
        "0 DialBegin C>T
         1 HangupRequest T Cause=127
         1 DialEnd C>T CANCEL Forward=2000
         1 Hangup T 127
         2 DialBegin C>U
         3 HangupRequest U Cause=23 TechCause=302
         3 DialEnd C>U CANCEL Forward=Local/2000@out
         3 Hangup U 23 TechCause=302",
        &["t not_sent -/0", "u not_sent -/0 302"],
    ),
    (
        "A55, a HangupRequest without a cause",
        "0 DialBegin C>T
         1 HangupRequest T
         1 DialEnd C>T NOANSWER
         1 Hangup T 21
         2 DialBegin C>U
         3 HangupRequest C
         3 DialEnd C>U CANCEL
         3 Hangup U 127",
        &["t rejected -/0", "u caller_gone -/0"],
    ),
    (
        "A57, a progress timeout",
        "0 DialBegin C>T
         3 DialEnd C>T CHANUNAVAIL
         3 Hangup T 0",
        &["t vendor_failed -/0"],
    ),
    (
        "L04, the sign that comes first counts",
        "0 DialBegin C>T
         1 DialState C>T RINGING
         1.2 Newstate T 5
         2 Newstate T 6
         3 Hangup T 16",
        &["t answered 1000/1000"],
    ),
    (
        "L06, chan_sip asks for no end",
        "0 DialBegin C>S
         1 DialEnd C>S BUSY
         1 Hangup S 21",
        &["s rejected -/0"],
    ),
    (
        "L06, 480",
        "0 DialBegin C>S
         1 DialEnd C>S BUSY
         1 Hangup S 19",
        &["s no_answer -/0"],
    ),
    (
        "L06, 500",
        "0 DialBegin C>S
         1 DialEnd C>S CONGESTION
         1 Hangup S 38",
        &["s vendor_failed -/0"],
    ),
    (
        "chan_sip, our timeout after ringing leaves cause 16",
        "0 DialBegin C>S
         1 DialState C>S RINGING
         9 DialEnd C>S NOANSWER
         9 Hangup S 16",
        &["s no_answer 1000/0"],
    ),
    (
        "L07, nobody could be reached at all",
        "0 DialBegin C>T
         0.001 HangupRequest T Cause=34 TechCause=503
         0.001 DialEnd C>T CONGESTION
         0.001 Hangup T 34",
        &["t vendor_failed -/0 503"],
    ),
    (
        "L10, a blind transfer: the leg becomes a caller and goes on",
        "0 DialBegin C>T
         0.709 Newstate T 6
         0.709 DialEnd C>T ANSWER
         1.8 Hangup C 16
         1.805 DialBegin T>U
         2.5 Newstate U 6
         4.5 Hangup U 16
         5.709 Hangup T 16",
        &["u answered 695/2000", "t answered 709/5000"],
    ),
    (
        "L16, the originate's answer comes first",
        "0 DialBegin >T
         raw Event: OriginateResponse⏎Response: Success⏎Channel: PJSIP/1@t⏎Reason: 4⏎Uniqueid: 1.2∎
         1 Newstate T 6
         2 Hangup T 0",
        &["t answered 1000/1000"],
    ),
    (
        "L18, a global variable is no leg",
        "raw Event: VarSet⏎Privilege: dialplan,all⏎Channel: none⏎Uniqueid: none⏎Variable: X⏎Value: 1∎",
        &[],
    ),
    (
        "a pickup",
        "0 DialBegin C>T
         1 DialState C>T RINGING
         2 Pickup P>T
         2 Hangup T 26
         2 DialEnd C>P ANSWER",
        &["t lost_race 1000/0"],
    ),
    (
        "a subroutine's word after the answer",
        "0 DialBegin C>T
         1 Newstate T 6
         2 DialEnd C>T BUSY
         2 SoftHangupRequest T Cause=34
         2 Hangup T 34 TechCause=503",
        &["t answered 1000/1000"],
    ),
    (
        "a call that ast_call could not place",
        "0 Newchannel T
         0 Hangup T 20",
        &["t not_sent -/0"],
    ),
    (
        "a line that is reserved before it rings came in",
        "0 Newchannel D
         0.1 Newstate D 4
         1 Hangup D 16",
        &[],
    ),
    (
        "a stand-in is no leg",
        "0 DialBegin C>T
         1 Newstate T 6
         2 Newchannel X
         2 Hangup X 16
         3 Hangup T 16",
        &["t answered 1000/2000"],
    ),
    (
        "a sign that overtakes the beginning",
        "0 Newchannel T
         0.5 Newstate T 6
         0.501 DialBegin C>T
         0.502 DialEnd C>T ANSWER
         2 Hangup T 16",
        &["t answered 500/1500"],
    ),
    (
        "proceeding is no ringing",
        "0 DialBegin C>T
         1 DialState C>T PROCEEDING
         9 DialEnd C>T NOANSWER
         9 Hangup T 0",
        &["t vendor_failed -/0"],
    ),
    (
        "early media is",
        "0 DialBegin C>T
         1 DialState C>T PROGRESS
         9 DialEnd C>T NOANSWER
         9 Hangup T 0",
        &["t no_answer 1000/0"],
    ),
    (
        "a leg that was up before the link",
        "0 DialState C>T RINGING
         1 Newstate T 6
         1 DialEnd C>T ANSWER
         2 Hangup T 16",
        &[],
    ),
    (
        "a clock that stepped gives no figure",
        "100 DialBegin C>T
         50 Newstate T 6
         49 Hangup T 16",
        &["t answered -/-"],
    ),
];

#[test]
fn streams_give_the_right_attempts() {
    for (case, stream, expected) in STREAMS {
        let node = Node::run(stream);
        assert_eq!(node.finished(), *expected, "{case}");
        assert_eq!(node.attempts.placed, [""; 0], "{case}: legs without an end");
        assert_eq!((node.tracker.active(), node.lost), (0, 0), "{case}: active, damaged");
    }
}

/// The map is found by the number, and DialBegin is what names it.
#[test]
fn a_refusal_that_overtakes_the_beginning_is_told_with_its_number() {
    let mut node = Node::run(
        "0 Newchannel C
         0 Newchannel T
         0.001 HangupRequest T Cause=34 TechCause=503",
    );
    assert_eq!(node.attempts.placed, [""; 0], "nobody knows yet for whom it is");
    node.feed("0.002 DialBegin C>T DialString=4930111@t");
    assert_eq!(node.attempts.placed, ["1.2"]);
    assert_eq!(node.tracker.live_legs().next().unwrap().number.as_deref(), Some("4930111"));
    node.feed(
        "0.003 DialEnd C>T CHANUNAVAIL
         0.004 Hangup T 34",
    );
    assert_eq!(node.finished(), ["t vendor_failed -/0 503"]);
}

#[test]
fn a31_a32_legs_are_told_apart_by_their_uniqueid_alone() {
    // The part before the dot differs within one call, and Linkedid changes while a leg lives.
    let mut node = Node::run(DIALLED);
    node.feed("1 Newstate T 6");
    let hangup = node.script.message("2 Hangup T 16").replace("Linkedid: 1.1", "Linkedid: 1.128");
    node.feed(&format!("raw {hangup}"));
    assert_eq!((node.finished(), node.tracker.active()), (vec!["t answered 1000/1000"], 0));
}

#[test]
fn a35_a_leg_that_says_nothing_any_more() {
    let mut node = Node::run(DIALLED);
    node.list(&[], 30);
    assert_eq!((node.finished(), node.tracker.active()), (vec![], 1), "one list is no proof");
    node.list(&[], 60);
    assert_eq!((node.finished(), node.tracker.active()), (vec!["t lost -/-"], 0));
    assert_eq!(node.tracker.counters().unseen_ends_lost, 1);
}

#[test]
fn a36_a_ghost_in_the_list() {
    let mut node = Node::run(&format!("{DIALLED}1 Newstate T 6\n 2 Hangup T 16"));
    for seconds in [3, 60, 300, 700, 1400, 2000] {
        node.list(&["T"], seconds);
        assert_eq!(node.tracker.active(), 0, "at {seconds} s");
    }
    assert_eq!(node.finished().len(), 1);
}

#[test]
fn a40_one_call_through_a_local_pair_is_one_trunk_call() {
    let node = Node::run(
        "0 Newchannel C
         0 Newchannel L1
         0 Newchannel L2
         0 DialBegin C>L1
         0 Newchannel T
         0 DialBegin L2>T",
    );
    assert_eq!(live(&node.tracker), ["1.2"]);
    let leg = node.tracker.live_legs().next().unwrap();
    assert_eq!((&*leg.trunk, leg.adopted), ("t", false));
}

#[test]
fn l12_a_list_that_runs_ahead_of_the_events() {
    let mut node = Node::new();
    node.apply(&PbxEvent::Linked, Timestamp::from_secs(T0));
    node.list(&["T"], 0);
    assert_eq!(live(&node.tracker), ["1.2"]);
    // The leg turns out to be new: it is an attempt after all.
    node.feed(DIALLED);
    node.list(&[], 1);
    node.feed(
        "1 DialState C>T RINGING
         2 Newstate T 6
         3 Hangup T 16",
    );
    assert_eq!(node.finished(), ["t answered 1000/1000"]);
}

#[test]
fn calls_that_were_up_before_the_link() {
    let mut node = Node::new();
    node.apply(&PbxEvent::Linked, Timestamp::from_secs(T0));
    node.script.states.insert("T".into(), 6);
    node.list(&["T"], 0);
    assert_eq!(node.tracker.active(), 1);
    let leg = node.tracker.live_legs().next().unwrap();
    assert_eq!((leg.adopted, leg.placed_at), (true, Timestamp::from_secs(T0 - 10)));
    node.feed("5 Hangup T 16");
    assert_eq!((node.finished(), node.tracker.active()), (vec![], 0));
}

#[test]
fn a_gap_in_the_link() {
    let mut node = Node::new();
    node.apply(&PbxEvent::Linked, Timestamp::from_secs(T0));
    node.list(&[], 0);
    node.feed(
        "0 DialBegin C>T
         0 DialBegin C>U
         0 DialBegin C>S
         1 Newstate T 6",
    );
    node.apply(&PbxEvent::Unlinked, Timestamp::from_secs(T0 + 5));
    node.apply(&PbxEvent::Linked, Timestamp::from_secs(T0 + 10));
    node.script.states.insert("S".into(), 6);
    node.list(&["S"], 10);
    assert_eq!(node.finished(), ["t answered 1000/-", "u lost -/-"]);
    assert_eq!(live(&node.tracker), ["1.4"]);
    // S was answered in the gap: nobody knows when.
    node.feed("20 Hangup S 16");
    assert_eq!(node.finished()[2..], ["s answered -/-"]);
}

#[test]
fn asterisk_was_restarted() {
    let mut node = Node::new();
    node.apply(&PbxEvent::Incarnation("2026-11-30 04:43:01".into()), Timestamp::from_secs(T0));
    node.feed("0 DialBegin C>T\n 1 Newstate T 6");
    node.apply(&PbxEvent::Incarnation("2026-11-30 04:43:01".into()), Timestamp::from_secs(T0 + 1));
    assert_eq!(node.tracker.active(), 1);
    node.apply(&PbxEvent::Incarnation("2026-11-30 05:00:00".into()), Timestamp::from_secs(T0 + 2));
    assert_eq!((node.finished(), node.tracker.active()), (vec!["t answered 1000/-"], 0));
}

#[test]
fn what_the_dialplan_and_the_dial_string_tell() {
    let mut node = Node::new();
    let begin = node.script.message("0 DialBegin C>T DialString=4930111@t");
    node.feed(&format!(
        "raw {}",
        begin.replace("DestLinkedid: 1.1⏎", "DestLinkedid: 1.1⏎DestChanVariable: pm_map=intl⏎")
    ));
    let leg = node.tracker.live_legs().next().unwrap();
    assert_eq!((leg.number.as_deref(), leg.map.as_deref()), (Some("4930111"), Some("intl")));
    let begin = node.script.message("0 DialBegin C>S DialString=s/4930222");
    node.feed(&format!("raw {}", begin.replacen("Linkedid: 1.1⏎", "Linkedid: 1.1⏎ChanVariable: pm_map=home⏎", 1)));
    let leg = node.tracker.live_legs().find(|leg| &*leg.trunk == "s").unwrap();
    assert_eq!((leg.number.as_deref(), leg.map.as_deref()), (Some("4930222"), Some("home")));
}

// ---- damage ----

#[test]
fn a_snapshot_that_is_not_whole_or_not_in_order_is_damage() {
    let mut script = Script::default();
    let whole = script.message("0 Hangup T 17");
    let lines: Vec<&str> = whole.split_inclusive('⏎').filter(|line| *line != "⏎").collect();
    let first = lines.iter().position(|line| line.starts_with("Channel:")).unwrap();
    let after = lines.iter().position(|line| line.starts_with("Cause:")).unwrap();
    let judge = |lines: &[&str]| AstMapper::default().event(&messages(&(lines.concat() + "⏎"))[0]);
    assert!(judge(&lines).is_some_and(|event| !asterisk::is_doubtful(&event)));
    for at in first..=after {
        let mut without = lines.clone();
        without.remove(at);
        assert_eq!(judge(&without), Some(PbxEvent::Lost(1)), "without {}", lines[at]);
        if at + 1 < after {
            let mut swapped = lines.clone();
            swapped.swap(at, at + 1);
            assert_eq!(judge(&swapped), Some(PbxEvent::Lost(1)), "{} behind the next", lines[at]);
        }
        let mut injected = lines.clone();
        injected.insert(at + 1, "Uniqueid: 9.9⏎");
        let judged = judge(&injected);
        let harmless = at + 1 >= after;
        assert!(judged == Some(PbxEvent::Lost(1)) || harmless, "Uniqueid behind {}: {judged:?}", lines[at]);
    }
    assert_eq!(judge(&["CallerIDNum: 5⏎", "Uniqueid: 1.2⏎"]).map(|event| asterisk::is_damage(&event)), Some(true));
    let unusual: Vec<&str> = lines.iter().copied().filter(|line| !line.starts_with("Privilege:")).collect();
    assert!(judge(&unusual).is_some_and(|event| asterisk::is_doubtful(&event)), "not believed at once");
}

/// A caller whose number holds line ends and a forged end of somebody else's leg.
fn broken_open(script: &mut Script, forged: &str) -> String {
    script
        .message("1 Newstate C 4")
        .replace("CallerIDNum: 15550001", &format!("CallerIDNum: 1⏎⏎{forged}CallerIDNum: 2"))
}

#[test]
fn a_forged_end_is_not_believed_if_the_leg_is_still_listed() {
    let mut node = Node::run(DIALLED);
    let forged = node.script.message("1 Hangup T 17");
    let broken = broken_open(&mut node.script, &forged);
    node.feed(&format!("raw {broken}"));
    assert_eq!((node.finished(), node.tracker.active(), node.lost), (vec![], 1, 2));
    node.list(&["T"], 2);
    node.list(&["T"], 4);
    assert_eq!((node.finished(), node.tracker.active()), (vec![], 1));
    assert_eq!(node.tracker.counters().false_ends, 1);
    node.feed("20 Newstate T 6\n 30 Hangup T 16");
    assert_eq!(node.finished(), ["t answered 20000/10000"]);
}

#[test]
fn a_forged_end_is_refuted_by_any_sign_of_life() {
    let mut node = Node::run(DIALLED);
    let forged = node.script.message("1 Hangup T 17");
    let broken = broken_open(&mut node.script, &forged);
    node.feed(&format!("raw {broken}"));
    node.feed("2 DialState C>T RINGING\n 3 Newstate T 6\n 4 Hangup T 16");
    assert_eq!(node.finished(), [""; 0], "held back, too: the doubt is not over");
    node.list(&[], 5);
    assert_eq!(node.finished(), ["t answered 2000/1000"]);
}

#[test]
fn a_forged_end_with_another_channel_or_state_is_not_believed() {
    let mut node = Node::run(DIALLED);
    let forged = node.script.message("1 Hangup T 17");
    node.feed(&format!("raw {}", forged.replace("PJSIP/t-00000002", "PJSIP/t-0000ffff")));
    assert_eq!((node.finished(), node.tracker.active()), (vec![], 1));
    node.feed(&format!("2 Newstate T 6\n raw {forged}"));
    assert_eq!((node.finished(), node.tracker.active()), (vec![], 1));
}

#[test]
fn true_ends_after_damage_come_in_their_order_once_they_are_confirmed() {
    let mut node = Node::run("0 DialBegin C>T\n 0 DialBegin C>U\n 0 DialBegin C>S\n 1 Newstate T 6");
    node.feed("raw CallerIDNum: 5⏎Uniqueid: 1.2∎");
    node.feed(
        "2 HangupRequest U Cause=17 TechCause=486
         2 Hangup U 17
         3 Hangup T 16",
    );
    assert_eq!(node.finished(), [""; 0]);
    node.list(&["S"], 3);
    assert_eq!(node.finished(), ["u busy -/0 486", "t answered 1000/2000"]);
    // Without any list they are believed in the end.
    node.feed("raw CallerIDNum: 5∎");
    node.feed("4 HangupRequest S Cause=17\n 4 Hangup S 17\n 8 Newchannel C");
    assert_eq!(node.finished().len(), 2);
    node.feed("40 Newchannel C");
    assert_eq!(node.finished()[2..], ["s busy -/0"]);
}

#[test]
fn a_list_that_was_on_its_way_refutes_nothing() {
    let mut node = Node::run("0 DialBegin C>T\n 1 Newstate T 6");
    node.feed("raw CallerIDNum: 5∎");
    node.feed("2 Hangup T 16");
    node.list(&["T"], 2);
    node.list(&[], 14);
    assert_eq!(node.finished(), ["t answered 1000/1000"]);
}
