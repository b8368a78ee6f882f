//! The command as it is used: what goes where, and the exit codes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::recordings::{fixture, lines, read, unpacked};

fn pointsman(args: &[&str], input: Option<&[u8]>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .arg("replay")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    if let Some(input) = input {
        stdin.write_all(input).unwrap();
    }
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn shown(output: &Output) -> (i32, usize, String) {
    let lines = String::from_utf8_lossy(&output.stdout).lines().count();
    (output.status.code().unwrap(), lines, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_recording_that_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let stream = write(dir.path(), "matrix.raw", &unpacked("ami/asterisk22-matrix.raw.zst"));
    let index = write(dir.path(), "matrix.idx", &unpacked("ami/asterisk22-matrix.idx.zst"));
    let expected = lines("ami/asterisk22-matrix.expected.jsonl").len();
    assert_eq!(shown(&pointsman(&["--kind", "ami", &stream], None)), (0, expected, String::new()));
    assert_eq!(shown(&pointsman(&["--kind", "ami", "--index", &index, &stream], None)), (0, expected, String::new()));
    let single = fixture("ami-single/22-failover.txt");
    assert_eq!(shown(&pointsman(&["--kind", "ami", single.to_str().unwrap()], None)).1, 2);
    let events = read("ami-single/22-failover.txt");
    assert_eq!(shown(&pointsman(&["--kind", "ami", "-"], Some(&events))), (0, 2, String::new()));
    assert_eq!(shown(&pointsman(&["--kind", "esl", "-"], Some(b""))), (0, 0, String::new()));
    let timeless: Vec<u8> = events
        .split_inclusive(|&byte| byte == b'\n')
        .filter(|line| !line.starts_with(b"Timestamp: "))
        .flatten()
        .copied()
        .collect();
    let (code, attempts, errors) = shown(&pointsman(&["--kind", "ami", "-"], Some(&timeless)));
    assert_eq!((code, attempts), (0, 2));
    assert!(errors.contains("--index"), "{errors}");
}

#[test]
fn a_recording_that_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let whole = unpacked("esl/matrix.raw.zst");
    let cut = write(dir.path(), "cut.raw", &whole[..whole.len() / 2]);
    let (code, attempts, errors) = shown(&pointsman(&["--kind", "esl", &cut], None));
    assert_eq!(code, 1);
    assert!(attempts > 0 && attempts < lines("esl/matrix.expected.jsonl").len());
    assert!(errors.contains("cut.raw: byte ") && errors.contains("ends within a frame"), "{errors}");
    let (code, attempts, errors) = shown(&pointsman(&["--kind", "ami", &cut], None));
    assert_eq!((code, attempts), (1, 0));
    assert!(errors.contains("byte 0: ") && errors.contains("FreeSWITCH's event socket"), "{errors}");
    let many = b"Event: X\r\n\r\n".iter().copied().chain(b"a: b\r\n\r\n".repeat(100)).collect::<Vec<_>>();
    let (code, _, errors) = shown(&pointsman(&["--kind", "ami", "-"], Some(&many)));
    assert_eq!((code, errors.lines().count()), (1, 21), "{errors}");
    assert!(errors.contains("80 more"), "{errors}");
}

#[test]
fn wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let index = write(dir.path(), "bad.idx", b"0 12.5\nnonsense\n");
    for (args, words) in [
        (&["--kind", "esl", "no-such-file"][..], "no-such-file"),
        (&["--kind", "esl", dir.path().to_str().unwrap()], "directory"),
        (&["--kind", "esl", "--index", "no-such-index", "-"], "no-such-index"),
        (&["--kind", "esl", "--index", &index, "-"], "bad.idx:2"),
        (&["--kind", "sip", "-"], "sip"),
        (&["-"], "--kind"),
        (&["--kind", "esl"], "FILE"),
    ] {
        let (code, attempts, errors) = shown(&pointsman(args, None));
        assert_eq!((code, attempts), (2, 0), "{args:?}: {errors}");
        assert!(errors.contains(words), "{args:?}: {errors}");
    }
}
