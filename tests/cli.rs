//! The program as a shell sees it: exit codes, what goes to which stream, and a reader that goes away.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.args(arguments).env_clear();
    command
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    outcome(program(arguments).output().expect("the program starts"))
}

fn outcome(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("it ended by itself"), text(output.stdout), text(output.stderr))
}

fn sample(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file).to_string_lossy().into_owned()
}

fn written(directory: &tempfile::TempDir, file: &str, text: &str) -> PathBuf {
    let path = directory.path().join(file);
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn help_and_version_are_no_errors() {
    let (code, out, err) = run(&["--help"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for shown in ["Beside the PBXs:", "  run  ", "Examples:", "--log <FILTER>"] {
        assert!(out.contains(shown), "{out}");
    }
    assert!(!out.contains('\u{1b}'), "no colours but on a terminal");
    assert_eq!(run(&["--version"]), (0, format!("pointsman {}\n", env!("CARGO_PKG_VERSION")), String::new()));
}

#[test]
fn wrong_usage_is_2_and_says_what_is_wrong() {
    for (arguments, said) in [
        (&["rum"][..], "'run'"),
        (&[], "Usage:"),
        (&["check", "--nonsense"], "--nonsense"),
        (&["xds"], "clients"),
        (&["xds", "clients", "-c", "/no/such/file.toml"], "/no/such/file.toml"),
        (&["xds", "clients", "-c", "x.toml", "--socket", "x.sock"], "cannot be used with"),
        (&["completions", "tcsh"], "tcsh"),
        (&["check", "--log", "inof"], "neither a level"),
        (&["check", "-c", "/no/such/file.toml"], ""),
    ] {
        let (code, _, err) = run(arguments);
        assert_eq!(code, 2, "{arguments:?}");
        assert!(err.contains(said), "{arguments:?}: {err}");
    }
}

#[test]
fn without_a_configuration_it_says_where_it_looked() {
    let directory = tempfile::tempdir().expect("a directory");
    let (code, out, err) = outcome(program(&["check"]).current_dir(directory.path()).output().expect("it starts"));
    if !Path::new("/etc/pointsman/pointsman.toml").exists() {
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.contains("--config FILE or POINTSMAN_CONFIG (looked for ./pointsman.toml"), "{err}");
    }
    std::fs::copy(sample("minimal.toml"), directory.path().join("pointsman.toml")).expect("copied");
    let (code, out, _) = outcome(program(&["check"]).current_dir(directory.path()).output().expect("it starts"));
    assert_eq!(
        (code, out.as_str()),
        (
            0,
            "./pointsman.toml is good: 1 node, 1 connection (1 judged), 0 route maps, no mail, HTTP on 127.0.0.1:8321, no xDS\n"
        )
    );
    let mut named = program(&["check"]);
    let (code, out, _) = outcome(named.env("POINTSMAN_CONFIG", sample("pointsman.json")).output().expect("it starts"));
    assert_eq!(code, 0);
    assert!(
        out.ends_with(
            "is good: 2 nodes, 2 connections (2 judged), 2 route maps, mail through mail.operator.example:587, HTTP on 127.0.0.1:8321, xDS on 127.0.0.1:18000\n"
        ),
        "{out}"
    );
}

#[test]
fn check_reports_everything_and_ends_with_2() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = written(&directory, "p.yaml", "nodes: [{id: a, kind: freeswich, address: h}]\nqualty: {}\n");
    let path = path.to_string_lossy();
    let (code, out, err) = run(&["check", "-c", &path]);
    assert_eq!((code, err.as_str()), (2, ""));
    for shown in [
        "did you mean \"freeswitch\"?",
        "did you mean `quality`?",
        "has no password",
        "cannot be used: 4 errors and 1 warning",
    ] {
        assert!(out.contains(shown), "{shown}\n{out}");
    }
    let (code, out, _) = run(&["check", "-c", &path, "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &answer["ok"], &answer["summary"]), (2, &false.into(), &serde_json::Value::Null));
    let problems = answer["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 5, "{out}");
    let kind = problems.iter().find(|problem| problem["key"] == "nodes[0].kind").expect("the misspelt kind");
    assert_eq!((&kind["line"], &kind["column"], &kind["severity"]), (&1.into(), &23.into(), &"error".into()));
    // A command that needs the configuration shows the same, on stderr.
    let (code, out, err) = run(&["clear", "-c", &path]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("did you mean \"freeswitch\"?"), "{err}");
}

#[test]
fn a_good_configuration_is_0_as_json_too() {
    let (code, out, _) = run(&["check", "-c", &sample("with-routes.toml"), "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(code, 0);
    let expected = serde_json::json!({
        "file": sample("with-routes.toml"),
        "ok": true,
        "summary": {
            "nodes": 2, "connections": 3, "judged": 3, "route_maps": 2, "mail": "localhost:25", "http": "127.0.0.1:8321",
            "xds": null
        },
        "problems": [],
    });
    assert_eq!(answer, expected);
}

#[test]
fn variables_of_the_environment_count() {
    let check = |name: &str, value: &str| {
        let mut command = program(&["check", "-c", &sample("minimal.toml")]);
        outcome(command.env(name, value).output().expect("it starts"))
    };
    assert_eq!(check("POINTSMAN__NODES__PBX_01__PASSWORD", "x").0, 0);
    let (code, out, _) = check("POINTSMAN__NODES__PBX_02__PASSWORD", "x");
    assert_eq!(code, 2);
    assert!(out.contains("POINTSMAN__NODES__PBX_02__PASSWORD") && out.contains("did you mean PBX_01?"), "{out}");
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_failure_to_shout_about() {
    for arguments in [
        &["completions", "bash"][..],
        &["check", "-c", &sample("minimal.toml")],
        &["check", "--json", "-c", &sample("minimal.toml")],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output =
            program(arguments).stdout(writer).stderr(std::process::Stdio::piped()).output().expect("it starts");
        let (code, _, err) = outcome(output);
        assert_eq!((code, err.as_str()), (141, ""), "{arguments:?}");
    }
}

#[test]
fn every_shell_has_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, err) = run(&["completions", shell]);
        assert_eq!((code, err.as_str()), (0, ""), "{shell}");
        assert!(out.contains("replay"), "{shell}");
        assert!(out.contains("clients"), "{shell}");
    }
}
