//! Streams that are damaged, forged or cut: nothing false comes of them, and whatever comes does not depend on the
//! cut of the reads.

use std::collections::HashSet;
use std::path::Path;

use pointsman::cli::replay::{Index, Kind};
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use serde_json::Value;

use crate::recordings::{alike, assert_same, cut, lines, read, replay, unpacked, whole};

const SMALL: &[(Kind, &str)] = &[(Kind::Esl, "esl/matrix"), (Kind::Ami, "ami/asterisk22-matrix")];

/// A stream with some of its bytes changed, taken out or put in.
#[derive(Clone, Debug)]
enum Harm {
    Change(usize, u8),
    TakeOut(usize, usize),
    PutIn(usize, Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    let place = any::<usize>();
    proptest::prop_oneof![
        (place, any::<u8>()).prop_map(|(at, byte)| Harm::Change(at, byte)),
        (place, 1usize..3000).prop_map(|(at, length)| Harm::TakeOut(at, length)),
        (place, proptest::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Harm::PutIn(at, bytes)),
        (place, proptest::sample::select(TEXTS)).prop_map(|(at, text)| Harm::PutIn(at, text.as_bytes().to_vec())),
    ]
}

/// Texts that look like protocol.
const TEXTS: &[&str] = &[
    "\r\n\r\n",
    "\n\n",
    "\r\n",
    "Content-Length: 10\n\n",
    "Content-Type: text/event-plain\n\n",
    "\r\nResponse: Follows\r\nPrivilege: Command\r\n",
    "\r\n\r\nEvent: Hangup\r\nCause: 17\r\n\r\n",
    "Asterisk Call Manager/11.0.0\r\n",
];

fn harmed(bytes: &[u8], harms: &[Harm]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for harm in harms {
        let place = |at: &usize| at % (bytes.len() + 1);
        match harm {
            Harm::Change(at, byte) => {
                let at = place(at);
                if let Some(changed) = bytes.get_mut(at) {
                    *changed = *byte;
                }
            }
            Harm::TakeOut(at, length) => {
                let at = place(at);
                bytes.drain(at..(at + length).min(bytes.len()));
            }
            Harm::PutIn(at, put) => {
                let at = place(at);
                bytes.splice(at..at, put.iter().copied());
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_damaged_stream_is_read_the_same_whatever_its_cut(
        which in 0..SMALL.len(),
        from in any::<usize>(),
        harms in proptest::collection::vec(harm(), 1..6),
        sizes in proptest::collection::vec(1usize..3000, 1..20),
    ) {
        let (kind, name) = SMALL[which];
        let bytes = unpacked(&format!("{name}.raw.zst"));
        // A part of the recording, so that many damages can be tried.
        let start = from % bytes.len();
        let bytes = harmed(&bytes[start..(start + 150_000).min(bytes.len())], &harms);
        let (attempts, problems) = whole(kind, &bytes);
        prop_assert_eq!(replay(kind, Index::default(), cut(&bytes, &sizes)), (attempts.clone(), problems));
        let legs: HashSet<_> = attempts.iter().map(|attempt| attempt["leg"].to_string()).collect();
        prop_assert_eq!(legs.len(), attempts.len(), "a leg is counted once");
        for attempt in &attempts {
            let answered = attempt["outcome"] == "answered";
            prop_assert!(answered || attempt["duration_ms"] == 0 || attempt["outcome"] == "lost", "{}", attempt);
        }
    }

    #[test]
    fn random_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000), ami in any::<bool>()) {
        let (attempts, _) = whole(if ami { Kind::Ami } else { Kind::Esl }, &bytes);
        prop_assert!(attempts.is_empty());
    }
}

/// The messages of an AMI stream, each with its empty line.
fn messages(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.split_inclusive("\r\n\r\n").map(str::to_owned).collect()
}

fn value<'a>(message: &'a str, name: &str) -> &'a str {
    message.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or("")
}

/// A whole, well-formed end of a leg, as a caller may write it into a name or a number.
fn forged_end(channel: &str, leg: &str, state: u8) -> String {
    format!(
        "Event: Hangup\r\nPrivilege: call,all\r\nTimestamp: 1796013920.000000\r\nChannel: {channel}\r\n\
         ChannelState: {state}\r\nChannelStateDesc: Up\r\nCallerIDNum: 1\r\nCallerIDName: 1\r\nConnectedLineNum: 1\r\n\
         ConnectedLineName: 1\r\nLanguage: en\r\nAccountCode: \r\nContext: x\r\nExten: 1\r\nPriority: 1\r\n\
         Uniqueid: {leg}\r\nLinkedid: {leg}\r\nCause: 17\r\nCause-txt: User busy\r\n\r\n"
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a caller puts into the number of their own leg, the attempts are the same.
    #[test]
    fn a_caller_cannot_end_the_legs_of_others(
        old in any::<bool>(),
        places in proptest::collection::vec(any::<usize>(), 1..4),
        victim in any::<usize>(),
        state in proptest::sample::select(&[0u8, 5, 6][..]),
        form in 0..5,
    ) {
        let name = if old { "ami/asterisk16-matrix" } else { "ami/asterisk22-matrix" };
        let mut messages = messages(&unpacked(&format!("{name}.raw.zst")));
        let opened = messages.iter().filter(|message| message.starts_with("Event: Newchannel"));
        let legs: Vec<(String, String)> = opened
            .filter(|message| value(message, "ChannelState") == "0")
            .map(|message| (value(message, "Channel").to_owned(), value(message, "Uniqueid").to_owned()))
            .collect();
        let (channel, leg) = &legs[victim % legs.len()];
        let end = forged_end(channel, leg, state);
        let injected = match form {
            0 => format!("1\r\n\r\n{end}CallerIDNum: 1"),
            1 => format!("1\r\n\r\n{end}{end}X: 1"),
            2 => format!("1\r\n\r\nEvent: Hangup\r\nUniqueid: {leg}\r\nCause: 17\r\n\r\n"),
            3 => format!("1\r\nUniqueid: {leg}\r\nChannelState: 6\r\nCause: 17"),
            _ => format!("1\r\n\r\nResponse: Follows\r\nPrivilege: Command\r\n\r\n{end}"),
        };
        let own: Vec<usize> = messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.contains("\r\nChannel: PJSIP/caller-") && !message.contains("\r\nDestChannel: "))
            .filter(|(_, message)| message.contains("\r\nCallerIDNum: 1"))
            .map(|(at, _)| at)
            .collect();
        for place in places {
            let at = own[place % own.len()];
            messages[at] = messages[at].replacen("\r\nCallerIDNum: 1", &format!("\r\nCallerIDNum: {injected}"), 1);
        }
        let (attempts, problems) = whole(Kind::Ami, messages.concat().as_bytes());
        assert_same(name, &attempts, &lines(&format!("{name}.expected.jsonl")));
        prop_assert!(!problems.is_empty(), "and it is told");
    }

    /// HANGUP_COMPLETE says everything: without any of the other events the attempts are the same.
    #[test]
    fn the_last_event_of_freeswitch_is_enough(keep in proptest::collection::vec(any::<bool>(), 1..200)) {
        let text = String::from_utf8(unpacked("esl/matrix.raw.zst")).unwrap();
        let mut keep = keep.iter().cycle();
        // Every frame of this recording begins so after the login.
        let frames = text.split("Content-Length: ").skip(1).filter(|frame| frame.contains("Content-Type: text/event-plain"));
        let kept: String = frames
            .filter(|frame| frame.contains("\nEvent-Name: CHANNEL_HANGUP_COMPLETE\n") || *keep.next().unwrap())
            .map(|frame| format!("Content-Length: {frame}"))
            .collect();
        let (attempts, problems) = whole(Kind::Esl, kept.as_bytes());
        let expected = lines("esl/matrix.expected.jsonl");
        prop_assert!(problems.is_empty(), "{problems:?}");
        prop_assert_eq!(attempts.len(), expected.len());
        for attempt in &expected {
            prop_assert!(attempts.iter().any(|found| alike(found, attempt)), "{}", attempt);
        }
    }
}

fn first(stream: &[u8], kind: Kind) -> (usize, Vec<u64>) {
    let (attempts, problems) = whole(kind, stream);
    (attempts.len(), problems)
}

#[test]
fn a_stream_that_breaks_off_gives_what_could_be_read() {
    let bytes = unpacked("esl/matrix.raw.zst");
    let expected = lines("esl/matrix.expected.jsonl");
    for length in [0, 10, 27, 28, 100_000, 1_000_000, bytes.len() - 1] {
        let (attempts, problems) = whole(Kind::Esl, &bytes[..length]);
        assert_same("cut short", &attempts, &expected[..attempts.len()]);
        assert_eq!(problems.len(), usize::from(![0, 28].contains(&length)), "at {length}");
        assert!(problems.iter().all(|at| *at <= length as u64));
    }
    let bytes = unpacked("ami/asterisk22-matrix.raw.zst");
    let (attempts, problems) = whole(Kind::Ami, &bytes[..bytes.len() - 3]);
    assert_eq!((attempts.len(), problems.len()), (lines("ami/asterisk22-matrix.expected.jsonl").len(), 1));
}

#[test]
fn where_a_stream_cannot_be_followed_is_told_by_the_byte() {
    let good = "Content-Type: auth/request\n\n";
    assert_eq!(first(format!("{good}junk\n\n").as_bytes(), Kind::Esl), (0, vec![28]));
    assert_eq!(first(format!("{good}Content-Type: x\nContent-Length: -1\n\n").as_bytes(), Kind::Esl), (0, vec![28]));
    assert_eq!(first(format!("{good}Content-Type: x\nContent-Length: 10\n\nabc").as_bytes(), Kind::Esl), (0, vec![28]));
    let json = "Content-Type: text/event-json\nContent-Length: 3\n\n{\"a";
    assert_eq!(first(format!("{good}{json}{good}").as_bytes(), Kind::Esl), (0, vec![28]), "and goes on");
    assert_eq!(first(b"SSH-2.0-x\r\n", Kind::Ami), (0, vec![0]));
    let banner = "Asterisk Call Manager/11.0.0\r\n";
    assert_eq!(first(format!("{banner}A: b\r\n\r\nEvent: X\r\n\r\nEvent").as_bytes(), Kind::Ami), (0, vec![30, 50]));
}

#[test]
fn an_index_that_is_wrong_is_named_by_line() {
    for (index, line) in
        [("0 1.5\nx 2\n", ":2:"), ("0 1.5\n9\n", ":2:"), ("0 1 2", ":1:"), ("9 1\n8 2\n", ":2:"), ("0 -1", ":1:")]
    {
        let error = Index::read(index.as_bytes(), Path::new("some.idx")).unwrap_err().to_string();
        assert!(error.contains("some.idx") && error.contains(line), "{error}");
    }
}

/// The fields in their order, as those who read them line by line expect.
#[test]
fn the_fields_of_a_line_and_their_order() {
    let bytes = read("ami-single/22-busy486.txt");
    let mut printed = Vec::new();
    let mut replay = pointsman::cli::replay::Replay::new(Kind::Ami, Index::default());
    let mut print = |attempt: &pointsman::cli::replay::Attempt| {
        printed.push(serde_json::to_string(attempt)?);
        Ok(())
    };
    replay.feed(&bytes, &mut print).unwrap();
    replay.end(&mut print).unwrap();
    let line = "{\"connection\":\"vendor-a\",\"leg\":\"1796014271.3\",\"outcome\":\"busy\",\"pdd_ms\":null,\"duration_ms\":0,\
        \"cause\":17,\"sip_status\":486,\"placed_at_us\":1796014271278015,\"ended_at_us\":1796014271482946}";
    assert_eq!(printed, [line]);
    assert!(serde_json::from_str::<Value>(line).is_ok());
}
