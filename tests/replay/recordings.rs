use std::io::Read;
use std::path::{Path, PathBuf};

use pointsman::cli::replay::{Attempt, Index, Kind, Replay};
use proptest::prelude::{ProptestConfig, any, proptest};
use serde_json::Value;

/// FreeSWITCH's clock ticks every 20 ms.
const TOLERANCE_MS: i64 = 25;

const RECORDINGS: &[(Kind, &str)] = &[
    (Kind::Esl, "esl/matrix"),
    (Kind::Esl, "esl/load"),
    (Kind::Ami, "ami/asterisk22-matrix"),
    (Kind::Ami, "ami/asterisk16-matrix"),
    (Kind::Ami, "ami/asterisk22-load"),
    (Kind::Ami, "ami/asterisk16-load"),
];

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub(crate) fn read(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

pub(crate) fn unpacked(name: &str) -> Vec<u8> {
    let packed = read(name);
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

pub(crate) fn lines(name: &str) -> Vec<Value> {
    let text = String::from_utf8(read(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The attempts of a stream that comes in these pieces, and where it could not be read.
pub(crate) fn replay<'a>(kind: Kind, index: Index, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Value>, Vec<u64>) {
    let mut attempts = Vec::new();
    let mut print = |attempt: &Attempt| {
        attempts.push(serde_json::to_value(attempt).unwrap());
        Ok(())
    };
    let mut replay = Replay::new(kind, index);
    for piece in pieces {
        replay.feed(piece, &mut print).unwrap();
    }
    replay.end(&mut print).unwrap();
    (attempts, replay.problems().first.iter().map(|problem| problem.offset).collect())
}

pub(crate) fn whole(kind: Kind, bytes: &[u8]) -> (Vec<Value>, Vec<u64>) {
    replay(kind, Index::default(), std::iter::once(bytes))
}

/// Cuts by the sizes that come round again and again.
pub(crate) fn cut<'a>(bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    sizes.iter().cycle().map_while(move |&size| {
        let (piece, after) = rest.split_at(size.clamp(1, rest.len().max(1)).min(rest.len()));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

pub(crate) fn assert_same(what: &str, actual: &[Value], expected: &[Value]) {
    for (number, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!(alike(actual, expected), "{what}, attempt {number}:\n  is       {actual}\n  expected {expected}");
    }
    assert_eq!(actual.len(), expected.len(), "{what}: number of attempts");
}

pub(crate) fn alike(actual: &Value, expected: &Value) -> bool {
    let exact = ["connection", "leg", "outcome", "cause", "sip_status"];
    let times = [("placed_at_us", 1000), ("ended_at_us", 1000), ("pdd_ms", 1), ("duration_ms", 1)];
    let close = |(name, per_ms): (&str, i64)| match (actual[name].as_i64(), expected[name].as_i64()) {
        (Some(a), Some(e)) => (a - e).abs() <= TOLERANCE_MS * per_ms,
        (a, e) => a == e,
    };
    exact.iter().all(|name| actual[name] == expected[name]) && times.into_iter().all(close)
}

#[test]
fn every_recording_gives_the_expected_attempts() {
    for (kind, name) in RECORDINGS {
        let (attempts, problems) = whole(*kind, &unpacked(&format!("{name}.raw.zst")));
        assert_same(name, &attempts, &lines(&format!("{name}.expected.jsonl")));
        assert_eq!(problems, [0u64; 0], "{name}");
    }
}

#[test]
fn json_events_give_the_same_attempts_as_plain_ones() {
    let (plain, _) = whole(Kind::Esl, &unpacked("esl/matrix.raw.zst"));
    let (json, problems) = whole(Kind::Esl, &unpacked("esl/matrix-json.raw.zst"));
    assert_eq!(json, plain);
    assert_eq!(problems, [0u64; 0]);
}

#[test]
fn every_single_scenario_gives_the_expected_attempts() {
    for scenario in lines("ami-single/expected.jsonl") {
        let name = scenario["file"].as_str().unwrap();
        let bytes = read(&format!("ami-single/{name}"));
        let (attempts, problems) = whole(Kind::Ami, &bytes);
        assert_same(name, &attempts, scenario["attempts"].as_array().unwrap());
        assert_eq!(problems, [0u64; 0], "{name}");
        let bytewise = replay(Kind::Ami, Index::default(), cut(&bytes, &[1]));
        assert_eq!(bytewise, (attempts.clone(), problems), "{name} byte by byte");
        let lf: Vec<u8> = bytes.iter().copied().filter(|&b| b != b'\r').collect();
        assert_eq!(whole(Kind::Ami, &lf).0, attempts, "{name} with LF for CR LF");
    }
}

#[test]
fn the_cut_of_the_reads_changes_nothing() {
    for (kind, name) in RECORDINGS.iter().filter(|(_, name)| name.ends_with("matrix")) {
        let bytes = unpacked(&format!("{name}.raw.zst"));
        let expected = whole(*kind, &bytes);
        for sizes in [&[1][..], &[1448], &[1, 2, 3, 5, 8, 13, 4000], &[65536, 1]] {
            assert_eq!(replay(*kind, Index::default(), cut(&bytes, sizes)), expected, "{name} cut by {sizes:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_cut_changes_anything(sizes in proptest::collection::vec(1usize..5000, 1..40), second in any::<bool>()) {
        let (kind, name) = if second { (Kind::Ami, "ami/asterisk22-matrix") } else { (Kind::Esl, "esl/matrix") };
        let bytes = unpacked(&format!("{name}.raw.zst"));
        let expected = lines(&format!("{name}.expected.jsonl"));
        let (attempts, problems) = replay(kind, Index::default(), cut(&bytes, &sizes));
        assert_same(name, &attempts, &expected);
        assert!(problems.is_empty());
    }
}

/// The pieces that the socket really gave, and when.
fn socket_reads<'a>(bytes: &'a [u8], index: &str) -> Vec<&'a [u8]> {
    let starts: Vec<usize> =
        index.lines().map(|line| line.split(' ').next().unwrap().parse::<usize>().unwrap()).collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &bytes[start.min(bytes.len())..end.min(bytes.len())]).collect()
}

#[test]
fn reads_as_they_came_give_the_expected_attempts() {
    for (kind, name) in RECORDINGS {
        let bytes = unpacked(&format!("{name}.raw.zst"));
        let index = String::from_utf8(unpacked(&format!("{name}.idx.zst"))).unwrap();
        let parsed = Index::read(index.as_bytes(), Path::new("index")).unwrap();
        let (attempts, _) = replay(*kind, parsed, socket_reads(&bytes, &index).into_iter());
        assert_same(name, &attempts, &lines(&format!("{name}.expected.jsonl")));
    }
}

#[test]
fn where_the_pbx_tells_no_time_the_index_does() {
    for name in ["ami/asterisk22-matrix", "ami/asterisk16-matrix"] {
        let bytes = unpacked(&format!("{name}.raw.zst"));
        let index = String::from_utf8(unpacked(&format!("{name}.idx.zst"))).unwrap();
        // The same recording without the lines `Timestamp:`, and its index moved accordingly.
        let mut kept = Vec::new();
        let mut moved = String::new();
        for (read, line) in socket_reads(&bytes, &index).into_iter().zip(index.lines()) {
            moved.push_str(&format!("{} {}\n", kept.len(), line.split(' ').nth(1).unwrap()));
            let without = read.split_inclusive(|&b| b == b'\n').filter(|line| !line.starts_with(b"Timestamp: "));
            kept.extend(without.flatten());
        }
        let index = Index::read(moved.as_bytes(), Path::new("index")).unwrap();
        let (attempts, problems) = replay(Kind::Ami, index, std::iter::once(&kept[..]));
        assert_same(name, &attempts, &lines(&format!("{name}.expected.jsonl")));
        assert_eq!(problems, [0u64; 0], "{name}");
    }
}
