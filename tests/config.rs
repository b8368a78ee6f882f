//! Configurations, good and bad: every mistake is reported, all at once, each at its line and column, in every format.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use pointsman::config::model::{
    Balancing, BreakerSettings, Config, EdgeGroup, EdgeListener, EdgeProtocol, JudgePer, Language, Member, Mode,
    Profile, Role, RouteEntry, RouteTarget, Scoring, Security, Via, Weights,
};
use pointsman::config::{Format, Loaded, Problems, Purpose, Severity, load_text, load_with};
use pointsman::pbx::PbxKind;
use pointsman::quality::settings::{BadQualityAction, RetryBackoff, RetryOverflow, Settings};
use pointsman::routing::WhenAllBlocked;
use pointsman::routing::rule::{Criterion, Measure, Rule};
use proptest::prelude::*;
use secrecy::ExposeSecret;

type Environment = Vec<(OsString, OsString)>;

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn name(format: Format) -> &'static Path {
    Path::new(match format {
        Format::Toml => "p.toml",
        Format::Json => "p.json",
        Format::Yaml => "p.yaml",
    })
}

fn read_text(path: &Path, text: &str, format: Format, environment: impl Into<Environment>) -> Result<Loaded, Problems> {
    load_text(path, text, format, environment.into(), Purpose::Connect)
}

fn load(text: &str, format: Format) -> Result<Loaded, Problems> {
    read_text(name(format), text, format, [])
}

fn good(text: &str, format: Format) -> Config {
    load(text, format).unwrap_or_else(|problems| panic!("{problems}")).config
}

/// The positions and messages of everything that is wrong, as `line:column message`.
fn found(result: Result<Loaded, Problems>) -> Vec<String> {
    let problems = match result {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    problems
        .iter()
        .map(|problem| {
            let place = match (&problem.position, &problem.variable) {
                (_, Some(variable)) => variable.clone(),
                (Some(position), None) => format!("{}:{}", position.line, position.column),
                (None, None) => "-".to_owned(),
            };
            let mark = if problem.severity == Severity::Warning { "? " } else { "" };
            format!("{place} {mark}{}", problem.message)
        })
        .collect()
}

fn sample(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file)
}

/// The shape that is promised: it must load as it stands.
const PROMISED: &str = r#"[[nodes]]
id = "pbx-01"
kind = "freeswitch"              # or "asterisk" (then also username)
address = "127.0.0.1:8021"
password = "ClueCon"             # or password_file, or from the environment
max_calls = 250

[[customers]]
id = "acme"
email = ["noc@acme.example"]
language = "en"

[[connections]]
id = "vendor-a"
customer = "acme"
# names = { "pbx-02" = "trunk-a" }   what a node calls it, where that is not the id
[connections.quality]
monitor_asr = true
asr_threshold_percent = 40
monitor_acd = true
acd_threshold_sec = 30
monitor_pdd = true
pdd_threshold_sec = 6
statistics_window = 20
retry_interval_sec = 600
retry_batch = 10
bad_quality_action = "make_last"
notify_on_status_change = true

[quality]                        # defaults for all connections, same keys
"#;

#[test]
fn the_promised_shape_loads() {
    let config = good(PROMISED, Format::Toml);
    let node = &config.nodes[0];
    assert_eq!((node.id.as_str(), node.kind, node.address.as_str()), ("pbx-01", PbxKind::FreeSwitch, "127.0.0.1:8021"));
    assert_eq!(node.password.expose_secret(), "ClueCon");
    assert_eq!((node.max_calls, node.slots, node.astdb, node.tls.is_none()), (Some(250), true, false, true));
    assert!(!node.strict_loss_detection);
    let addresses: Vec<_> = config.customers[0].email.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["noc@acme.example"]);
    let connection = &config.connections[0];
    assert_eq!(connection.customer.as_ref().map(|customer| customer.as_str()), Some("acme"));
    let expected = Settings {
        asr_threshold_percent: Some(40.0),
        acd_threshold_sec: Some(30.0),
        pdd_threshold_sec: Some(6.0),
        notify_on_status_change: true,
        ..Settings::default()
    };
    assert_eq!(connection.quality, expected);
    assert!(config.route_maps.is_empty());
    assert_eq!(config.variables.prefix, "pm_");
    assert_eq!(config.variables.reconcile_every, Duration::from_secs(60));
    assert_eq!(config.storage.keep, Duration::from_secs(30 * 24 * 3600));
}

/// What is promised of node scores: it must load as it stands, and is what holds where nothing is said.
#[test]
fn the_promised_scoring_loads() {
    let scores = r#"{ "stale_threshold_sec": 20,
      "scoring": { "idle_cpu_min": 5, "call_failure_rate_lethal": 15.0,
        "weights": { "call_score": 0.40, "load_score": 0.30, "idle_score": 0.20, "fail_score": 0.10 } } }"#;
    let expected = [
        "- ? no node is configured: there is no PBX to watch",
        "- ? no connection is configured: calls are seen, but nothing is judged",
    ];
    assert_eq!(found(load(scores, Format::Json)), expected);
    assert_eq!(good(scores, Format::Json).scoring, good("{}", Format::Json).scoring);
}

/// What is promised of route maps and routing rules.
#[test]
fn the_promised_routes_load() {
    let routes = r#"
        [[connections]]
        id = "vendor-b"
        [[route_maps]]
        id = "intl"
        prefixes = ["00", "+"]
        rule = "standard"
        entries = [
          { connection = "vendor-a", priority = 10 },
          { connection = "vendor-b", priority = 20 },
          { map = "backup", priority = 30 },
        ]
        [[route_maps]]
        id = "backup"
        entries = [{ connection = "vendor-b", priority = 1 }]
        [[routing_rules]]
        id = "standard"
        success_percent = { enabled = true, weight = 20, latency = 10, compensation = 2 }
        avg_duration_sec = { enabled = true, weight = 5.5, latency = 10, compensation = 0 }
        signalling_failure_percent = { enabled = false }
    "#;
    let loaded = load(&format!("{PROMISED}{routes}"), Format::Toml).unwrap_or_else(|problems| panic!("{problems}"));
    let [intl, backup] = &loaded.config.route_maps[..] else { panic!("{:?}", loaded.config.route_maps) };
    let criterion = |weight, compensation| Criterion { weight, latency: 10, compensation };
    let criteria = [(Measure::SuccessPercent, criterion(20.0, 2.0)), (Measure::AvgDurationSec, criterion(5.5, 0.0))];
    let criteria = criteria.into_iter().collect();
    assert_eq!(intl.rule, Some(Rule { id: "standard".into(), criteria }));
    assert_eq!((intl.when_all_blocked, &backup.rule), (WhenAllBlocked::Fail, &None));
    let found: Vec<_> = found(Ok(loaded)).into_iter().filter(|found| !found.contains("notify")).collect();
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_connection_says_over_what_it_is_judged_and_so_does_the_file() {
    let text = format!(
        "{NODE}[quality]\njudge_per = 'map'\n[[connections]]\nid = 'v'\n[[connections]]\nid = 'w'\nquality.judge_per = 'connection'\n\
         [[route_maps]]\nid = 'm'\nwhen_all_blocked = 'least_bad'\nentries = [{{ map = 'n', priority = 1 }}]\n\
         [[route_maps]]\nid = 'n'\nentries = [{{ connection = 'v', priority = 1 }}]\n"
    );
    let config = good(&text, Format::Toml);
    let judged: Vec<_> = config.connections.iter().map(|connection| connection.judge_per).collect();
    assert_eq!(judged, [JudgePer::Map, JudgePer::Connection]);
    assert_eq!(config.route_maps[0].when_all_blocked, WhenAllBlocked::LeastBad);
    let keys: Vec<_> = config.judged().into_iter().map(|(key, _)| (key.connection, key.map)).collect();
    let keys: Vec<_> =
        keys.iter().map(|(connection, map)| (connection.as_str(), map.as_ref().map(|map| map.as_str()))).collect();
    assert_eq!(keys, [("v", Some("m")), ("v", Some("n")), ("w", None)]);
    assert_eq!(good(NODE, Format::Toml).connections.len(), 0);
    let usual = good(&format!("{NODE}[[connections]]\nid = 'v'\n"), Format::Toml);
    assert_eq!(usual.connections[0].judge_per, JudgePer::Connection);
}

#[test]
fn every_format_says_the_same() {
    let [toml, json, yaml] = ["pointsman.toml", "pointsman.json", "pointsman.yaml"].map(|file| {
        let loaded = load_with(&sample(file), [], Purpose::Connect).unwrap_or_else(|problems| panic!("{problems}"));
        format!("{:#?}", loaded.config)
    });
    assert_eq!(json, yaml);
    assert_eq!(toml, json);
}

#[test]
fn every_sample_is_good() {
    let samples = std::fs::read_dir(sample("")).expect("the samples").map(|entry| entry.expect("an entry").path());
    let samples: Vec<_> = samples.filter(|path| path.is_file()).chain([sample("docker/pointsman.toml")]).collect();
    assert!(samples.len() >= 6, "{samples:?}");
    for path in samples {
        let loaded = load_with(&path, [], Purpose::Connect).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    }
}

/// Each line of the full sample that is commented out shows a default (then it changes nothing), or is an example
/// (then it is legal, or the one thing that keeps it from being so is that the file it names is not there).
#[test]
fn what_the_full_sample_has_commented_out_is_true() {
    let path = sample("pointsman.toml");
    let text = std::fs::read_to_string(&path).expect("the sample");
    let shown = |config: &Config| format!("{config:#?}");
    let usual = shown(&read_text(&path, &text, Format::Toml, []).expect("good").config);
    let lines: Vec<&str> = text.lines().collect();
    let mut seen = 0;
    for (number, line) in lines.iter().enumerate() {
        let is_setting = line.starts_with('#') && line[1..].starts_with(|c: char| c.is_ascii_lowercase());
        if !is_setting {
            continue;
        }
        seen += 1;
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        changed[number] = line[1..].to_owned();
        match read_text(&path, &changed.join("\n"), Format::Toml, []) {
            Ok(loaded) if line.ends_with("# example") => drop(loaded),
            Ok(loaded) => assert_eq!(shown(&loaded.config), usual, "{line}"),
            Err(problems) => {
                // The last one is in the place of another key that is there.
                let excused = [
                    "#password_file",
                    "#password_env",
                    "#token_file",
                    "#token_env",
                    "#tls_ca_file",
                    "#tls_cert_file",
                    "#tls_key_file",
                    "#tls_client_ca_file",
                    "#sendmail",
                ];
                assert!(excused.iter().any(|key| line.starts_with(key)), "{line}\n{problems}");
            }
        }
    }
    assert!(seen > 30, "only {seen} settings are shown");
}

/// Compares what is found with what is expected, for all mistakes of a table, and shows every difference.
fn check(table: &[(&str, &[&str])], find: impl Fn(&str) -> Vec<String>) {
    let different = table.iter().filter_map(|(mistake, expected)| {
        let found = find(mistake);
        (found != *expected).then(|| format!("{mistake}\n  found    {found:#?}\n  expected {expected:#?}\n"))
    });
    let different: Vec<_> = different.collect();
    assert!(different.is_empty(), "{}", different.concat());
}

const NODE: &str = "[[nodes]]\nid = \"a\"\nkind = \"freeswitch\"\naddress = \"127.0.0.1:8021\"\npassword = \"x\"\n";

/// One mistake each, under a good node of five lines and a good connection of two.
#[test]
fn mistakes_in_toml() {
    let table: &[(&str, &[&str])] = &[
        ("[quality]\nmonitor_asr = true", &["9:15 `monitor_asr` is on and there is no `asr_threshold_percent`"]),
        ("[quality]\nmonitor_acd = true", &["9:15 `monitor_acd` is on and there is no `acd_threshold_sec`"]),
        ("[quality]\nmonitor_pdd = true", &["9:15 `monitor_pdd` is on and there is no `pdd_threshold_sec`"]),
        (
            "[quality]\nmonitor_asr = true\nasr_threshold_percent = 101",
            &["10:25 `asr_threshold_percent` must be greater than 0 and at most 100"],
        ),
        (
            "[quality]\nmonitor_pdd = true\npdd_threshold_sec = 0",
            &["10:21 `pdd_threshold_sec` must be greater than 0 and at most 300"],
        ),
        (
            "[quality]\nasr_threshold_percent = 40",
            &["9:1 ? `asr_threshold_percent` has no effect while `monitor_asr` is off"],
        ),
        ("[quality]\nstatistics_window = 0", &["9:21 `statistics_window` must be from 1 to 10000"]),
        ("[quality]\nstatistics_window = -1", &["9:21 `statistics_window` must be a whole number, 0 or greater"]),
        ("[quality]\nretry_batch = 10001", &["9:15 `retry_batch` must be from 1 to 10000"]),
        ("[quality]\nretry_interval_sec = 0", &["9:22 `retry_interval_sec` must be from 1 to 2592000"]),
        ("[quality]\nmin_calls = 21", &["9:13 `min_calls` is 21, and the window never holds more than 20 calls"]),
        (
            "[quality]\nretry_backoff = { factor = 0.5 }",
            &["9:17 `retry_backoff` has no `max_sec`", "9:28 `factor` must be from 1 to 100, not 0.5"],
        ),
        (
            "[quality]\nretry_backoff = { factor = 2, max_sec = 60 }",
            &["9:41 `max_sec` is 60, and the first interval is 600 s already"],
        ),
        ("[quality]\nretry_overflow = 'stop'", &["9:18 `retry_overflow` cannot be \"stop\""]),
        ("[quality]\nmonitor_asr = 'yes'", &["9:15 `monitor_asr` must be true or false, not text"]),
        ("[qualty]", &["8:2 there is no key `qualty` here"]),
        (
            "[[nodes]]\nid = 'b'\nkind = 'asterisk'\naddress = 'h:1'\npassword = 'x'",
            &["8:1 the node `b` has no `username`"],
        ),
        ("[[nodes]]\nid = 'b'\nkind = 'freeswitch'\naddress = 'h:1'", &["8:1 the node `b` has no password"]),
        (
            "[[nodes]]\nid = 'b'\nkind = 'freeswitch'\naddress = 'h:1'\npassword = 'x'\npassword_env = 'X'",
            &["13:1 the node `b` has more than one password"],
        ),
        (
            "[[nodes]]\nid = 'b'\nkind = 'freeswitch'\naddress = 'h:1'\npassword_env = 'X'",
            &["12:16 the environment variable \"X\" that holds the password is not set"],
        ),
        (
            "[[nodes]]\nid = 'a'\nkind = 'freeswitch'\naddress = '127.0.0.1:8021'\npassword = 'x'",
            &[
                "9:6 two nodes have the id `a`",
                "11:11 two nodes have the address 127.0.0.1:8021: each of its calls would count twice",
            ],
        ),
        (
            "[[nodes]]",
            &[
                "8:1 this node has no `id`",
                "8:1 this node has no `kind`",
                "8:1 this node has no `address`",
                "8:1 this node has no password",
            ],
        ),
        (
            "[[nodes]]\nid = 'b'\nkind = 'freeswitch'\naddress = 'h:1'\npassword = 'x'\ntls = true",
            &["13:1 FreeSWITCH's event socket has no TLS"],
        ),
        (
            "[[nodes]]\nid = 'b'\nkind = 'freeswitch'\naddress = 'h:1'\npassword = 'x'\nastdb = true\ntls_server_name = 'n'",
            &[
                "13:1 ? `astdb` has no effect here: it is for Asterisk only",
                "14:1 ? `tls_server_name` has no effect without `tls`",
            ],
        ),
        (
            "[[nodes]]\nid = 'b'\nkind = 'freeswitch'\naddress = 'h:1'\npassword = \"x\\n\\nexit\"",
            &["12:12 `password` must not contain line breaks or other control characters"],
        ),
        (
            "[[nodes]]\nid = 'b c'\nkind = 'freeswitch'\naddress = 'h'\npassword = ''",
            &[
                "9:6 \"b c\" cannot be an id: use 1 to 64 letters, digits, '_', '-' or '.', starting with a letter or a digit",
                "11:11 `address` cannot be \"h\"",
                "12:12 `password` must not be empty",
            ],
        ),
        ("[[customers]]\nid = 'c'\nemail = 'a@b, c@d'", &["10:9 \"a@b, c@d\" is not a mail address"]),
        (
            "[[customers]]\nid = 'c'\nemail = ['a@b', \"c@d\\nBcc: e@f\"]",
            &["10:17 \"c@d\\nBcc: e@f\" is not a mail address"],
        ),
        ("[[customers]]\nid = 'c'\nlanguage = 'de'", &["10:12 `language` cannot be \"de\""]),
        ("[[connections]]\nid = 'v'", &["9:6 two connections have the id `v`"]),
        (
            "[[connections]]\nid = 'V'",
            &[
                "9:6 the connections `v` and `V` differ in case alone, and FreeSWITCH takes their variables for the same",
            ],
        ),
        ("[[connections]]\nid = 'w'\ncustomer = 'c'", &["10:12 there is no customer `c`"]),
        ("[[connections]]\nid = 'w'\nnames = { b = 'x' }", &["10:11 there is no node `b`"]),
        (
            "[[connections]]\nid = 'w'\nnames = { a = 'x,y' }",
            &["10:15 \"x,y\" cannot be a name on a: gateway names have letters, digits, '_', '-' and '.', not ','"],
        ),
        ("[[connections]]\nid = 'w'\nnames = { a = 'v' }", &["10:15 `v` and `w` are both called \"v\" on a"]),
        (
            "[[connections]]\nid = 'w'\nquality.notify_on_status_change = true",
            &[
                "8:1 ? `notify_on_status_change` is on, and there is no `customer` to notify: `w`",
                "10:9 ? `notify_on_status_change` is on, and nothing says how mail is sent",
            ],
        ),
        (
            "[causes]\nsip = { '200' = 'busy', '486' = 'answered' }",
            &["9:9 \"200\" is not a refusing SIP status, 400 to 699", "9:33 an answer cannot stand for this outcome"],
        ),
        (
            "[causes]\nq850 = { 'x' = 'busy', '17' = 'bussy' }",
            &["9:10 \"x\" is not a Q.850 cause, 0 to 127", "9:31 `17` cannot be \"bussy\""],
        ),
        ("[[route_maps]]\nid = 'm'", &["8:1 ? the route map `m` has no entries: calls that use it have nowhere to go"]),
        (
            "[[route_maps]]\nid = 'm'\nprefixes = ['1', '+', '1', 'x']\nentries = [{ connection = 'v', priority = 1 }]",
            &["10:23 the prefix \"1\" is there twice", "10:28 \"x\" is not a prefix of numbers"],
        ),
        (
            "[[route_maps]]\nid = 'm'\nentries = [{ connection = 'x', priority = 1 }, { map = 'n', priority = 1 }]",
            &["10:27 there is no connection `x`", "10:56 there is no route map `n`"],
        ),
        (
            "[[route_maps]]\nid = 'm'\nentries = [\n { connection = 'v', priority = 1 },\n { connection = 'v', priority = 2 } ]",
            &["12:17 the route map `m` has the connection `v` twice"],
        ),
        (
            "[[route_maps]]\nid = 'm'\nentries = [{ priority = 1 }, { connection = 'v', map = 'm', priority = 1 }, { connection = 'v' }]",
            &[
                "10:12 this entry leads nowhere",
                "10:30 this entry leads to a connection and to a map",
                "10:56 route maps contain each other: m -> m",
                "10:77 this entry has no `priority`",
                "10:92 the route map `m` has the connection `v` twice",
            ],
        ),
        (
            "[[route_maps]]\nid = 'm'\nentries = [{ map = 'n', priority = 1 }]\n[[route_maps]]\nid = 'n'\nentries = [{ map = 'm', priority = 1 }]",
            &["13:20 route maps contain each other: m -> n -> m"],
        ),
        (
            "[[route_maps]]\nid = 'm'\nentries = [{ connection = 'v', priority = 1 }]\n[[route_maps]]\nid = 'm_2'\nentries = [{ connection = 'v', priority = 1 }]",
            &["12:6 the variable of the route map `m_2` is one of the variables of `m`"],
        ),
        (
            "[[route_maps]]\nid = 'm'\nrule = 'r'\nnodes = ['b']\nwhen_all_blocked = 'best'\nentries = [{ connection = 'v', priority = 1 }]",
            &[
                "10:8 there is no routing rule `r`",
                "11:10 there is no node `b`",
                "12:20 `when_all_blocked` cannot be \"best\"",
            ],
        ),
        (
            "[[routing_rules]]\nid = 'r'\nsuccess_percent = { enabled = true, weight = -1, latency = 0 }",
            &[
                "9:6 ? no route map uses the routing rule `r`",
                "10:19 the enabled criterion `success_percent` has no `compensation`",
                "10:46 `weight` must be from 0 to 1000000",
                "10:60 `latency` must be from 1 to 1000000",
            ],
        ),
        ("[variables]\nprefix = '_'", &["9:10 `prefix` cannot begin the name of a variable"]),
        ("[variables]\nprefix = '1-'", &["9:10 `prefix` cannot begin the name of a variable"]),
        ("[variables]\nreconcile_every_sec = 0", &["9:23 `reconcile_every_sec` must be from 1 to 86400"]),
        (
            "[variables]\nastdb_expiry_sec = 60",
            &["9:20 values in AstDB would expire after 60 s, and they are written again every 60 s only"],
        ),
        (
            "[storage]\npath = '/'\nkeep_days = 0",
            &["9:8 `storage.path` is a directory: name a file in it", "10:13 `keep_days` must be from 1 to 3650"],
        ),
        ("[storage]\npath = '/no/such/place/x.db'", &["9:8 ? the directory /no/such/place does not exist yet"]),
        (
            "[log]\nfilter = 'inof'\nformat = 'xml'",
            &[
                "9:10 `filter`: \"inof\" is neither a level (error, warn, info, debug, trace, off) nor MODULE=LEVEL",
                "10:10 `format` cannot be \"xml\"",
            ],
        ),
        (
            "[scoring]\nidle_cpu_min = 101\nweights = { call_score = 0.5 }",
            &["9:16 `idle_cpu_min` must be from 0 to 100", "10:11 the weights must sum to 1, and they sum to 1.1"],
        ),
        (
            "x = \n'y' 1",
            &["8:5 string values must be quoted, expected literal string", "9:5 key with no value, expected `=`"],
        ),
        ("a = 1\na = 2", &["9:1 duplicate key"]),
        ("a = 99999999999999999999", &["8:5 this number is too large"]),
        ("\"nodes[9]\" = 1", &["8:1 there is no key `nodes[9]` here"]),
        ("password = 'x'", &["8:1 there is no key `password` here"]),
    ];
    check(table, |mistake| {
        // What stands before the first header of its own belongs to the connection; `x`, `a` and such end up there.
        found(load(&format!("{NODE}[[connections]]\nid = \"v\"\n{mistake}\n"), Format::Toml))
    });
}

/// One mistake each, under the same lines and an `[email]` of two more.
#[test]
fn mistakes_about_mail() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        ("from = 'b@c'", &["11:1 duplicate key"]),
        ("reply_to = 'nobody'", &["11:12 `reply_to` cannot be \"nobody\""]),
        ("reply_to = 'A, B <a@b>'", &["11:12 `reply_to` cannot be \"A, B <a@b>\""]),
        ("reply_to = 'A <\u{fc}@b>'", &["11:12 `reply_to` cannot be \"A <\u{fc}@b>\""]),
        ("reply_to = 'a@b, c@d'", &["11:12 `reply_to` cannot be \"a@b, c@d\""]),
        (
            "reply_to = \"A\\r\\nBcc: <a@b>\"",
            &["11:12 `reply_to` must not contain line breaks or other control characters"],
        ),
        ("reply_to = ''", &["11:12 `reply_to` must not be empty"]),
        ("sendmail = '/bin/sh'", &["11:1 mail goes through a `server` or through `sendmail`"]),
        ("security = 'ssl'", &["11:12 `security` cannot be \"ssl\""]),
        ("username = 'u'", &["11:12 the user of the mail server has no password"]),
        ("username = ''\npassword = 'x'", &["11:12 `username` must not be empty"]),
        ("password = 'x'", &["11:1 `email` has a password and no `username`"]),
        ("password_file = 'x'", &["11:1 `email` has a password and no `username`"]),
        (
            "username = 'u'\npassword = 'x'\npassword_env = 'X'",
            &["13:1 the user of the mail server has more than one password"],
        ),
        (
            "username = 'u'\npassword = \"x\\n\"",
            &["12:12 `password` must not contain line breaks or other control characters"],
        ),
        (
            "username = 'u'\npassword_env = 'X'",
            &["12:16 the environment variable \"X\" that holds the password is not set"],
        ),
        (
            "username = 'u'\npassword = 'x'\nsecurity = 'none'",
            &["13:12 ? the password goes over the network as plain text"],
        ),
        ("security = 'none'", &[]),
        ("security = 'none'\ntls_ca_file = 'x'", &["12:1 ? `tls_ca_file` has no effect without TLS"]),
        ("hello_name = 'a b'", &["11:14 `hello_name` must be a host name, not \"a b\""]),
        ("hello_name = '10.0.0.1'", &["11:14 `hello_name` must be a host name, not \"10.0.0.1\""]),
        ("timeout_sec = 0", &["11:15 `timeout_sec` must be from 1 to 600"]),
        ("timeout_sec = 601", &["11:15 `timeout_sec` must be from 1 to 600"]),
        ("digest_after = 0", &["11:16 `digest_after` must be from 1 to 1000"]),
        ("digest_window_sec = 3601", &["11:21 `digest_window_sec` must be from 0 to 3600"]),
        ("digest_window_sec = 0", &[]),
        ("give_up_after = 3", &["11:17 `give_up_after` must be text, not a number"]),
        ("give_up_after = '3'", &["11:17 `give_up_after` cannot be \"3\""]),
        ("give_up_after = '59s'", &["11:17 `give_up_after` must be from one minute to 30 days"]),
        ("give_up_after = '30d 1s'", &["11:17 `give_up_after` must be from one minute to 30 days"]),
        ("mask_numbers = 'no'", &["11:16 `mask_numbers` must be true or false, not text"]),
        ("time_zone = 'Berlin'", &["11:13 there is no time zone \"Berlin\""]),
        ("time_zone = ''", &["11:13 there is no time zone \"\""]),
        ("templates = '/no/such/folder'", &["11:13 there is no folder /no/such/folder"]),
        ("tls_ca_file = '/'", &["11:15 cannot read certificates from /: I/O error: Is a directory (os error 21)"]),
        ("smtp = 'x'", &["11:1 there is no key `smtp` here"]),
        ("[operator]\nemail = ['a@b', 'c']", &["12:17 \"c\" is not a mail address"]),
        ("[operator]\nlanguage = 'de'", &["12:12 `language` cannot be \"de\""]),
        ("[operator]\nnode_down_after_sec = 0", &["12:23 `node_down_after_sec` must be from 1 to 86400"]),
        (
            "[[customers]]\nid = 'c'\nemail = ['a@b', 'a@B', 'A@b', '\u{fc}@b']\ntime_zone = 'Moscow'",
            &[
                "13:17 ? the address a@B is there twice: it gets each mail once",
                "13:31 \"\u{fc}@b\" is not a mail address",
                "14:13 there is no time zone \"Moscow\"",
            ],
        ),
    ];
    check(table, |mistake| {
        let email = "[email]\nfrom = 'Quality desk <noc@operator.example>'\nserver = 'mail.operator.example'";
        found(load(&format!("{NODE}[[connections]]\nid = \"v\"\n{email}\n{mistake}\n"), Format::Toml))
    });
}

#[test]
fn without_all_that_mail_needs_it_is_refused() {
    let table: &[(&str, &[&str])] = &[
        ("", &["8:1 `email` has no `from`", "8:1 `email` has neither a `server` nor `sendmail`"]),
        ("from = 'a@b'\nserver = 'smtp://m'", &["10:10 `server` cannot be \"smtp://m\""]),
        ("from = 'a@b'\nserver = 'm:x'", &["10:10 `server` cannot be \"m:x\""]),
        ("from = 'a@b'\nserver = 25", &["10:10 `server` must be text, not a number"]),
        ("from = 5\nserver = 'm'", &["9:8 `from` must be text, not a number"]),
        ("from = 'a'\nserver = 'm'", &["9:8 `from` cannot be \"a\""]),
        ("from = 'a@b'\nserver = 'm:465'", &["10:10 ? servers do not usually begin TLS in this way at port 465"]),
        (
            "from = 'a@b'\nserver = 'm:587'\nsecurity = 'tls'",
            &["10:10 ? servers do not usually begin TLS in this way at port 587"],
        ),
        ("from = 'a@b'\nserver = 'm:465'\nsecurity = 'tls'", &[]),
        (
            "from = 'a@b'\nsendmail = '/'\nsecurity = 'none'\nhello_name = 'x'\nusername = 'u'\npassword = 'x'",
            &[
                "10:12 / is not a program: name the file itself",
                "11:1 ? `security` has no effect with `sendmail`: it is for a `server`",
                "12:1 ? `hello_name` has no effect with `sendmail`: it is for a `server`",
                "13:1 ? `username` has no effect with `sendmail`: it is for a `server`",
                "14:1 ? `password` has no effect with `sendmail`: it is for a `server`",
            ],
        ),
        (
            "from = 'a@b'\nsendmail = '/no/such/file'",
            &["10:12 ? /no/such/file cannot be run yet: No such file or directory (os error 2)"],
        ),
        ("from = 'a@b'\nsendmail = '/etc/passwd'", &["10:12 /etc/passwd is not executable"]),
        ("from = 'a@b'\nsendmail = '/bin/sh'", &[]),
    ];
    check(table, |mistake| {
        found(load(&format!("{NODE}[[connections]]\nid = \"v\"\n[email]\n{mistake}\n"), Format::Toml))
    });
}

/// What mail is for, and what is not there for it: once each, whatever the number of connections.
#[test]
fn notifications_that_reach_nobody_are_warned_of() {
    let connections: String = (1..=8).map(|n| format!("[[connections]]\nid = 'v{n}'\n")).collect();
    let text = |more: &str| {
        format!("{NODE}[quality]\nnotify_on_status_change = true\n{connections}[[connections]]\nid = 'w'\n{more}\n")
    };
    let nobody = "8:1 ? `notify_on_status_change` is on, and there is no `customer` to notify: `v1`, `v2`, `v3`, `v4`, `v5` and 4 more";
    let by_nothing = "7:1 ? `notify_on_status_change` is on, and nothing says how mail is sent";
    assert_eq!(found(load(&text(""), Format::Toml)), [by_nothing, nobody]);
    let email = "[email]\nfrom = 'a@b'\nserver = 'm'";
    assert_eq!(found(load(&text(email), Format::Toml)), [nobody]);
    let customers = format!("customer = 'c'\n[[customers]]\nid = 'c'\n[[customers]]\nid = 'd'\n{email}");
    let no_address = "27:1 ? `c` has no `email` to be notified of its connections: `w`";
    assert_eq!(found(load(&text(&customers), Format::Toml))[1..], [no_address]);
    // Who wants no notification needs no mail; an operator with an address does.
    let text = format!("{NODE}[[connections]]\nid = 'v'\n[[customers]]\nid = 'c'\nemail = 'a@b'\n");
    assert_eq!(found(load(&text, Format::Toml)), [""; 0]);
    let operator = format!("{text}[operator]\nemail = 'a@b'\n");
    let expected = ["12:1 ? the operator has an address, and nothing says how mail is sent"];
    assert_eq!(found(load(&operator, Format::Toml)), expected);
}

#[test]
fn more_addresses_than_a_letter_can_go_to_are_refused() {
    let text = |count: usize| {
        let list: Vec<_> = (0..count).map(|n| format!("'a{n}@b'")).collect();
        format!("{NODE}[[connections]]\nid = 'v'\n[[customers]]\nid = 'c'\nemail = [{}]\n", list.join(", "))
    };
    assert_eq!(good(&text(100), Format::Toml).customers[0].email.len(), 100);
    assert_eq!(found(load(&text(101), Format::Toml)), ["10:9 these are more than 100 addresses"]);
}

#[test]
fn mail_has_defaults_and_keeps_what_is_said() {
    let short = format!("{NODE}[[connections]]\nid = 'v'\n[email]\nfrom = 'a@b'\nserver = 'm'\n");
    let config = good(&short, Format::Toml);
    let email = config.email.expect("mail");
    assert_eq!((email.from.to_string(), email.reply_to), ("a@b".to_owned(), None));
    assert_eq!(email.via.to_string(), "m:587");
    let Via::Smtp(smtp) = email.via else { panic!("not a server") };
    assert_eq!(
        (smtp.security, smtp.login.is_none(), smtp.ca_file, smtp.hello_name),
        (Security::Starttls, true, None, None)
    );
    assert_eq!((email.timeout, email.give_up_after), (Duration::from_secs(60), Duration::from_secs(3 * 86_400)));
    assert_eq!((email.digest_after, email.digest_window), (5, Duration::from_secs(60)));
    assert_eq!((email.mask_numbers, email.time_zone, email.templates), (true, TimeZone::system(), None));
    let operator = config.operator;
    assert_eq!((operator.email.len(), operator.language), (0, Language::En));
    assert_eq!(operator.node_down_after, Duration::from_secs(60));

    let long = format!(
        "{NODE}[[connections]]\nid = 'v'\n[email]\nfrom = '\"Acme, Inc.\" <a@b>'\nreply_to = '\u{41e}\u{442}\u{434}\u{435}\u{43b} <c@d>'\n\
         server = '[::1]'\nsecurity = 'tls'\nusername = 'u'\npassword = 's3cret'\nhello_name = 'pbx'\ntimeout_sec = 10\n\
         give_up_after = '36h'\ndigest_after = 2\ndigest_window_sec = 0\nmask_numbers = false\ntime_zone = 'Europe/Berlin'\n\
         [operator]\nemail = 'ops@b'\nlanguage = 'ru'\nnode_down_after_sec = 300\n\
         [[customers]]\nid = 'c'\ntime_zone = 'UTC'\n"
    );
    let config = good(&long, Format::Toml);
    let email = config.email.expect("mail");
    assert_eq!((email.from.name.as_deref(), email.from.email.to_string().as_str()), (Some("Acme, Inc."), "a@b"));
    assert_eq!(email.reply_to.and_then(|mailbox| mailbox.name).as_deref(), Some("\u{41e}\u{442}\u{434}\u{435}\u{43b}"));
    assert_eq!(email.via.to_string(), "[::1]:465");
    let Via::Smtp(smtp) = email.via else { panic!("not a server") };
    assert_eq!((smtp.host.as_str(), smtp.security, smtp.hello_name.as_deref()), ("::1", Security::Tls, Some("pbx")));
    let (user, password) = smtp.login.expect("a login");
    assert_eq!((user.as_str(), password.expose_secret()), ("u", "s3cret"));
    assert_eq!((email.timeout, email.give_up_after), (Duration::from_secs(10), Duration::from_secs(36 * 3600)));
    assert_eq!((email.digest_after, email.digest_window, email.mask_numbers), (2, Duration::ZERO, false));
    assert_eq!(email.time_zone, TimeZone::get("Europe/Berlin").expect("Berlin"));
    assert_eq!(config.operator.email[0].to_string(), "ops@b");
    assert_eq!((config.operator.language, config.operator.node_down_after), (Language::Ru, Duration::from_secs(300)));
    assert_eq!(config.customers[0].time_zone, Some(TimeZone::UTC));
}

#[test]
fn what_is_wrong_with_templates_is_wrong_with_the_configuration() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("p.toml");
    let folder = directory.path().join("own");
    std::fs::create_dir_all(folder.join("en")).expect("made");
    let text = format!(
        "{NODE}[[connections]]\nid = 'v'\n[email]\nfrom = 'a@b'\nserver = 'm'\ntemplates = 'own'\ntimeout_sec = 0\n"
    );
    let read = |purpose| found(load_text(&file, &text, Format::Toml, [], purpose));
    let timeout = "12:15 `timeout_sec` must be from 1 to 600";
    assert_eq!(read(Purpose::Connect), [timeout]);
    std::fs::write(folder.join("en/alarm.txt"), "one\n{{ nonsense").expect("written");
    let problems = read(Purpose::Connect);
    assert_eq!(problems.len(), 2, "{problems:?}");
    let at = format!("11:13 {}:2: ", folder.join("en/alarm.txt").display());
    assert!(problems[0].starts_with(&at), "{problems:?}");
    assert_eq!(read(Purpose::Mail), problems);
    assert_eq!(read(Purpose::Look), [timeout]);
    for n in 0..30 {
        std::fs::write(folder.join(format!("{n}.txt")), "").expect("written");
    }
    let problems = read(Purpose::Connect);
    assert_eq!(problems[20..], ["11:13 11 more mistakes in templates", timeout]);
}

#[test]
fn mail_has_its_password_from_where_nodes_have_theirs() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("p.toml");
    std::fs::write(directory.path().join("secret"), "s3cret\n").expect("written");
    let text = format!(
        "{NODE}[[connections]]\nid = 'v'\n[email]\nfrom = 'a@b'\nserver = 'm'\nusername = 'u'\npassword_file = 'secret'\n"
    );
    let password = |text: &str, variables: &[(&str, &str)]| {
        let loaded = read_text(&file, text, Format::Toml, environment(variables));
        match loaded.unwrap_or_else(|problems| panic!("{problems}")).config.email.map(|email| email.via) {
            Some(Via::Smtp(smtp)) => smtp.login.map(|(_, password)| password.expose_secret().to_owned()),
            via => panic!("{via:?}"),
        }
    };
    assert_eq!(password(&text, &[]).as_deref(), Some("s3cret"));
    assert_eq!(password(&text, &[("POINTSMAN__EMAIL__PASSWORD", "other")]).as_deref(), Some("other"));
    let bare = text.replace("password_file = 'secret'\n", "");
    assert_eq!(password(&bare, &[("POINTSMAN__EMAIL__PASSWORD", "other")]).as_deref(), Some("other"));
    let by_name = text.replace("password_file = 'secret'", "password_env = 'PW'");
    assert_eq!(password(&by_name, &[("PW", "third")]).as_deref(), Some("third"));
    let problems = read_text(&file, &bare, Format::Toml, []).expect_err("no password");
    assert!(problems.to_string().contains("set the environment variable POINTSMAN__EMAIL__PASSWORD"), "{problems}");
    let only = environment(&[("POINTSMAN__EMAIL__PASSWORD", "x")]);
    let problems = read_text(&file, &format!("{NODE}[[connections]]\nid = 'v'\n"), Format::Toml, only);
    assert_eq!(
        found(problems)[0],
        "POINTSMAN__EMAIL__PASSWORD `email` has no `from`",
        "a table that only the environment has"
    );
}

/// One mistake each, under a good node of five lines and a good connection of two; `n` is a second node without `cores`.
#[test]
fn mistakes_about_scores_and_the_choice_of_a_node() {
    let node =
        |more: &str| format!("[[nodes]]\nid = 'n'\nkind = 'freeswitch'\naddress = 'h:1'\npassword = 'x'\n{more}");
    let score = |more: &str| format!("[scoring]\n{more}");
    let choice = |more: &str| format!("[balancing]\n{more}");
    let breaker = |more: &str| format!("[breaker]\n{more}");
    let table: &[(String, &[&str])] = &[
        (score("idle_cpu_min = 101"), &["9:16 `idle_cpu_min` must be from 0 to 100"]),
        (score("idle_cpu_min = -1"), &["9:16 `idle_cpu_min` must be from 0 to 100"]),
        (score("idle_cpu_min = '5'"), &["9:16 `idle_cpu_min` must be a number, not text"]),
        (score("idle_cpu_min = nan"), &["9:16 this is not a finite number"]),
        (score("call_failure_rate_lethal = 100.5"), &["9:28 `call_failure_rate_lethal` must be from 0 to 100"]),
        (
            score("weights = { call_score = 1.5, load_score = -0.5, idle_score = 0, fail_score = 0 }"),
            &["9:26 `call_score` must be from 0 to 1", "9:44 `load_score` must be from 0 to 1"],
        ),
        (score("weights = { call_score = 0.5 }"), &["9:11 the weights must sum to 1, and they sum to 1.1"]),
        (score("weights = { call_score = '1' }"), &["9:26 `call_score` must be a number, not text"]),
        (score("weights = { calls = 1 }"), &["9:13 there is no key `calls` here"]),
        (
            score("weights = { call_score = 0.70001, load_score = 0 }"),
            &["9:11 the weights must sum to 1, and they sum to 1.00001"],
        ),
        (score("weights = { call_score = 0.3, load_score = 0.4 }"), &[]),
        (score("profile = 'healthy'"), &["9:11 `profile` cannot be \"healthy\""]),
        (score("load_per_core = 1"), &["9:17 `load_per_core` must be true or false, not a number"]),
        (score("failure_window = 0"), &["9:18 `failure_window` must be from 1 to 10000"]),
        (score("failure_window = 10"), &[]),
        (
            score("failure_window = 10\nfailure_min_calls = 11"),
            &["10:21 `failure_min_calls` is 11, and `failure_window` never holds more than 10 calls"],
        ),
        (
            score("failure_min_calls = 101"),
            &["9:21 `failure_min_calls` is 101, and `failure_window` never holds more than 100 calls"],
        ),
        (score("failure_min_calls = 0"), &["9:21 `failure_min_calls` must be from 1 to 10000"]),
        (score("min_score = 101"), &["9:13 `min_score` must be from 0 to 100"]),
        (score("fallback_node = 'b'"), &["9:17 there is no node `b`"]),
        (score("fallback_node = 'a'"), &[]),
        (
            score("latency_limit_ms = 0"),
            &[
                "9:1 ? `latency_limit_ms` has no effect with the profile \"weighted\"",
                "9:20 `latency_limit_ms` must be greater than 0 and at most 60000",
            ],
        ),
        (
            score("profile = 'health'\nlatency_limit_ms = 60001"),
            &["10:20 `latency_limit_ms` must be greater than 0 and at most 60000"],
        ),
        (
            score("profile = 'health'\nload_per_core = false\nweights = {}"),
            &[
                "10:1 ? `load_per_core` has no effect with the profile \"health\"",
                "11:1 ? `weights` has no effect with the profile \"health\"",
            ],
        ),
        ("scoring.stale_threshold_sec = 5".to_owned(), &["8:1 there is no key `scoring` here"]),
        (choice("mode = 'best'"), &["9:8 `mode` cannot be \"best\""]),
        (choice("lease_sec = 61"), &["9:13 `lease_sec` must be from 0 to 60"]),
        (choice("lease_sec = 0"), &[]),
        (
            choice("lease_sec = 0.5"),
            &["9:13 `lease_sec` must be a whole number, 0 or greater, not a number with decimals"],
        ),
        (choice("min_score = 5"), &["9:1 there is no key `min_score` here"]),
        (breaker("failures = 0"), &["9:12 `failures` must be from 1 to 100"]),
        (breaker("timeout_sec = 6"), &["9:15 `timeout_sec` must be from 1 to 5"]),
        (breaker("open_sec = 0"), &["9:12 `open_sec` must be from 1 to 3600"]),
        (breaker("open_sec = 3600"), &[]),
        (breaker("open_max_sec = 29"), &["9:16 `open_max_sec` is 29, and the first time is 30 s already"]),
        (breaker("open_max_sec = 86401"), &["9:16 `open_max_sec` must be from 1 to 86400"]),
        (
            node("max_calls_per_sec = 0"),
            &[
                "13:1 ? `max_calls_per_sec` has no effect: it is for `scoring` with the profile \"health\"",
                "13:21 `max_calls_per_sec` must be greater than 0 and at most 100000",
            ],
        ),
        (node("max_calls_per_sec = 0.5\n[scoring]\nprofile = 'health'"), &[]),
        (node("local = 'yes'"), &["13:9 `local` must be true or false, not text"]),
        (
            node("cores = 0"),
            &[
                "13:1 ? `cores` has no effect: the load average is not divided by them",
                "13:9 `cores` must be from 1 to 1024",
            ],
        ),
        (
            node("cores = 4\n[scoring]\nload_per_core = true"),
            &["1:1 ? `load_per_core` is on, and the node `a` has no `cores`: its load cannot be divided"],
        ),
        (
            node("local = true\n[scoring]\nload_per_core = true"),
            &["1:1 ? `load_per_core` is on, and the node `a` has no `cores`: its load cannot be divided"],
        ),
        (node("sip_address = ''"), &["13:15 `sip_address` cannot be \"\""]),
        (node("sip_address = \"a\\nb\""), &["13:15 `sip_address` cannot be \"a\\nb\""]),
        (node("sip_address = 'a b'"), &["13:15 `sip_address` cannot be \"a b\""]),
        (node("sip_address = 5060"), &["13:15 `sip_address` must be text, not a number"]),
        (node("sip_address = '[::1]:5060'"), &[]),
    ];
    let table: Vec<_> = table.iter().map(|(mistake, expected)| (mistake.as_str(), *expected)).collect();
    check(&table, |mistake| found(load(&format!("{NODE}[[connections]]\nid = \"v\"\n{mistake}\n"), Format::Toml)));
    for bad in ["0", "3601"] {
        let text = format!("stale_threshold_sec = {bad}\n{NODE}[[connections]]\nid = 'v'\n");
        assert_eq!(found(load(&text, Format::Toml)), ["1:23 `stale_threshold_sec` must be from 1 to 3600"]);
    }
}

#[test]
fn scores_have_defaults_and_keep_what_is_said() {
    let config = good(NODE, Format::Toml);
    assert_eq!(config.scoring, Scoring::default());
    assert_eq!(config.balancing, Balancing { mode: Mode::BestScore, lease: Duration::from_secs(5) });
    assert_eq!(config.breaker, BreakerSettings::default());
    let node = &config.nodes[0];
    assert_eq!((node.max_calls_per_sec, node.local, node.cores), (None, false, None));
    assert_eq!(node.sip_address, "127.0.0.1");
    let six = good(&NODE.replace("127.0.0.1", "[::1]"), Format::Toml);
    assert_eq!(six.nodes[0].sip_address, "[::1]");

    let long = format!(
        "stale_threshold_sec = 30\n{NODE}local = true\ncores = 8\nmax_calls_per_sec = 12.5\nsip_address = 'sip.example.net:5070'\n\
         [scoring]\nidle_cpu_min = 7.5\ncall_failure_rate_lethal = 20\nload_per_core = true\nfailure_window = 10\nmin_score = 1\n\
         fallback_node = 'a'\nlatency_limit_ms = 50\nweights = {{ call_score = 0.1, load_score = 0.2, idle_score = 0.3, fail_score = 0.4 }}\n\
         [balancing]\nmode = 'p2c'\nlease_sec = 0\n[breaker]\nfailures = 5\ntimeout_sec = 1\nopen_sec = 400\n"
    );
    let config = good(&long, Format::Toml);
    let node = &config.nodes[0];
    assert_eq!((node.max_calls_per_sec, node.local, node.cores), (Some(12.5), true, Some(8)));
    assert_eq!(node.sip_address, "sip.example.net:5070");
    let expected = Scoring {
        profile: Profile::Weighted,
        stale_threshold: Duration::from_secs(30),
        idle_cpu_min: 7.5,
        call_failure_rate_lethal: 20.0,
        weights: Weights { call_score: 0.1, load_score: 0.2, idle_score: 0.3, fail_score: 0.4 },
        load_per_core: true,
        failure_window: 10,
        failure_min_calls: 10,
        min_score: 1.0,
        fallback_node: Some(node.id.clone()),
        latency_limit_ms: 50.0,
    };
    assert_eq!(config.scoring, expected);
    assert_eq!(config.balancing, Balancing { mode: Mode::P2c, lease: Duration::ZERO });
    let [second, open] = [1, 400].map(Duration::from_secs);
    assert_eq!(config.breaker, BreakerSettings { failures: 5, timeout: second, open, open_max: open });
}

#[test]
fn the_health_profile_has_a_floor_of_its_own() {
    let scoring = |more: &str| good(&format!("{NODE}[scoring]\nprofile = 'health'\n{more}\n"), Format::Toml).scoring;
    assert_eq!(scoring(""), Scoring { profile: Profile::Health, min_score: 30.0, ..Scoring::default() });
    assert_eq!(scoring("min_score = 0").min_score.to_bits(), 0.0_f64.to_bits());
}

#[test]
fn every_mode_can_be_configured() {
    let modes = [
        ("best_score", Mode::BestScore),
        ("weighted", Mode::Weighted),
        ("round_robin", Mode::RoundRobin),
        ("least_calls", Mode::LeastCalls),
        ("ewma", Mode::Ewma),
        ("p2c", Mode::P2c),
        ("consistent_hash", Mode::ConsistentHash),
    ];
    for (name, mode) in modes {
        let config = good(&format!("{NODE}[balancing]\nmode = '{name}'\n"), Format::Toml);
        assert_eq!(config.balancing.mode, mode, "{name}");
    }
}

/// One mistake each, under the same seven lines and an `[http]` in the eighth.
#[test]
fn mistakes_about_http() {
    const TOKEN: &str = "[[http.tokens]]\nname = 'noc'\nrole = 'operate'\ntoken = '0123456789abcdef'\n";
    let token = |more: &str| format!("[[http.tokens]]\nname = 'noc'\nrole = 'operate'\n{more}");
    let second = |more: &str| format!("{TOKEN}[[http.tokens]]\n{more}");
    let open = |listen: &str| format!("listen = '{listen}'");
    let nobody = "9:10 who reaches this address could do everything: there is no token";
    let table: &[(String, &[&str])] = &[
        (String::new(), &[]),
        (open("127.0.0.1:0"), &[]),
        (open("127.1.2.3:80"), &[]),
        (open("[::1]:8321"), &[]),
        (open("[::ffff:127.0.0.1]:8321"), &[]),
        (open("0.0.0.0:8321"), &[nobody]),
        (open("[::]:0"), &[nobody]),
        (open("192.0.2.1:8321"), &[nobody]),
        (open("[::ffff:192.0.2.1]:8321"), &[nobody]),
        (format!("{}\ntokens = []", open("0.0.0.0:8321")), &[nobody]),
        (format!("{}\n{TOKEN}", open("0.0.0.0:8321")), &[]),
        (format!("{}\nenabled = false", open("0.0.0.0:8321")), &[]),
        (open("localhost:8321"), &["9:10 `listen` cannot be \"localhost:8321\""]),
        (open(":8321"), &["9:10 `listen` cannot be \":8321\""]),
        (open("127.0.0.1"), &["9:10 `listen` cannot be \"127.0.0.1\""]),
        (open("127.0.0.1:65536"), &["9:10 `listen` cannot be \"127.0.0.1:65536\""]),
        (open("::1:8321"), &["9:10 `listen` cannot be \"::1:8321\""]),
        (open("http://127.0.0.1:1"), &["9:10 `listen` cannot be \"http://127.0.0.1:1\""]),
        (open(""), &["9:10 `listen` cannot be \"\""]),
        ("listen = 8321".to_owned(), &["9:10 `listen` must be text, not a number"]),
        ("enabled = 'no'".to_owned(), &["9:11 `enabled` must be true or false, not text"]),
        ("port = 1".to_owned(), &["9:1 there is no key `port` here"]),
        ("tokens = ['0123456789abcdef']".to_owned(), &["9:11 `tokens[0]` must be a table, not text"]),
        (
            "[[http.tokens]]".to_owned(),
            &["9:1 this entry has no `name`", "9:1 this entry has no `role`", "9:1 this entry has no token"],
        ),
        (token(""), &["9:1 `noc` has no token"]),
        (token("token = ''"), &["12:9 `token` must not be empty"]),
        (token("token = '0123456789abcde'"), &["12:9 a token has at least 16 characters"]),
        (
            token("token = '0123456789 abcdef'"),
            &["12:9 a token has letters, digits and punctuation of ASCII, and no blanks"],
        ),
        (
            token("token = '0123456789\u{e4}bcdef'"),
            &["12:9 a token has letters, digits and punctuation of ASCII, and no blanks"],
        ),
        (
            token("token = \"0123456789\\nabcdef\""),
            &["12:9 `token` must not contain line breaks or other control characters"],
        ),
        (token("token = 1234567890123456"), &["12:9 `token` must be text, not a number"]),
        (token("token = '0123456789abcdef'\ntoken_env = 'X'"), &["13:1 `noc` has more than one token"]),
        (token("token_env = 'X'"), &["12:13 the environment variable \"X\" that holds the token is not set"]),
        (
            token("token_file = '/no/such/file'"),
            &["12:14 cannot read the token from /no/such/file: No such file or directory (os error 2)"],
        ),
        (token("password = 'x'"), &["9:1 `noc` has no token", "12:1 there is no key `password` here"]),
        (
            second("name = 'a b'\nrole = 'admin'\ntoken = 'fedcba9876543210'"),
            &[
                "14:8 \"a b\" cannot be an id: use 1 to 64 letters, digits, '_', '-' or '.', starting with a letter or a digit",
                "15:8 `role` cannot be \"admin\"",
            ],
        ),
        (second("name = 'noc'\nrole = 'read'\ntoken = 'fedcba9876543210'"), &["14:8 two tokens have the name `noc`"]),
        (
            second("name = 'b'\nrole = 'read'\ntoken = '0123456789abcdef'"),
            &["16:9 two tokens are the same: nobody could tell who uses it"],
        ),
        (second("name = 'b'\nrole = 'read'\ntoken = 'fedcba9876543210'"), &[]),
    ];
    let table: Vec<_> = table.iter().map(|(mistake, expected)| (mistake.as_str(), *expected)).collect();
    check(&table, |mistake| {
        found(load(&format!("{NODE}[[connections]]\nid = \"v\"\n[http]\n{mistake}\n"), Format::Toml))
    });
}

#[test]
fn who_listens_for_all_is_told_what_to_write() {
    let text = "nodes: [{id: a, kind: freeswitch, address: 'h:1', password: x}]\nhttp: {listen: '0.0.0.0:8321'}\n";
    let problems = load(text, Format::Yaml).expect_err("no token");
    let help = problems.iter().find_map(|problem| problem.help.as_deref().filter(|help| help.contains("tokens")));
    let expected = "add an entry to `http.tokens`: name: \"noc\", role: \"operate\", token_file: \"/etc/pointsman/noc.token\"; or write listen: \"127.0.0.1:8321\"";
    assert_eq!(help, Some(expected));
}

#[test]
fn http_is_on_loopback_unless_said_otherwise() {
    let http = |more: &str| good(&format!("{NODE}{more}\n"), Format::Toml).http;
    for nothing in ["", "[http]"] {
        let http = http(nothing).expect("a server");
        assert_eq!((http.listen.to_string().as_str(), http.tokens.len()), ("127.0.0.1:8321", 0));
    }
    assert!(http("[http]\nenabled = false").is_none());
    let tokens = "[http]\nlisten = '[::]:0'\n[[http.tokens]]\nname = 'grafana'\nrole = 'read'\ntoken = '0123456789abcdef'\n\
                  [[http.tokens]]\nname = 'noc'\nrole = 'operate'\ntoken = 'fedcba9876543210'\n";
    let http = http(tokens).expect("a server");
    assert_eq!(http.listen.to_string(), "[::]:0");
    let tokens: Vec<_> =
        http.tokens.iter().map(|token| (token.name.as_str(), token.role, token.secret.expose_secret())).collect();
    assert_eq!(tokens, [("grafana", Role::Read, "0123456789abcdef"), ("noc", Role::Operate, "fedcba9876543210")]);
}

#[test]
fn a_token_comes_from_where_passwords_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("p.toml");
    std::fs::write(directory.path().join("secret"), "from-a-file-0123456\n").expect("written");
    let text = format!("{NODE}[http]\n[[http.tokens]]\nname = 'noc-1'\nrole = 'read'\ntoken_file = 'secret'\n");
    let load = |text: &str, variables: &[(&str, &str)]| read_text(&file, text, Format::Toml, environment(variables));
    let token = |text: &str, variables: &[(&str, &str)]| {
        let loaded = load(text, variables).unwrap_or_else(|problems| panic!("{problems}"));
        loaded.config.http.expect("a server").tokens[0].secret.expose_secret().to_owned()
    };
    const OVERRIDE: &str = "POINTSMAN__HTTP__TOKENS__NOC_1__TOKEN";
    assert_eq!(token(&text, &[]), "from-a-file-0123456");
    assert_eq!(token(&text, &[(OVERRIDE, "from-the-environment")]), "from-the-environment");
    let by_name = text.replace("token_file = 'secret'", "token_env = 'TOKEN'");
    assert_eq!(token(&by_name, &[("TOKEN", "by-the-name-of-one")]), "by-the-name-of-one");
    let bare = text.replace("token_file = 'secret'\n", "");
    assert_eq!(token(&bare, &[(OVERRIDE, "from-the-environment")]), "from-the-environment");
    let problems = load(&bare, &[]).expect_err("no token").to_string();
    assert!(problems.contains(&format!("set the environment variable {OVERRIDE}")), "{problems}");
    let weak = format!("{OVERRIDE} a token has at least 16 characters");
    assert!(found(load(&text, &[(OVERRIDE, "short")])).contains(&weak), "the place is that of what counts");
    std::fs::write(directory.path().join("secret"), "short").expect("written");
    assert!(found(load(&text, &[])).contains(&"10:14 a token has at least 16 characters".to_owned()));
}

#[test]
fn who_does_not_serve_needs_no_token() {
    let text = format!(
        "{NODE}[[connections]]\nid = 'v'\n[http]\nlisten = '0.0.0.0:8321'\n[[http.tokens]]\nname = 'noc'\nrole = 'read'\n\
         token_file = '/no/such/file'\n"
    );
    let read = |text: &str, purpose| load_text(name(Format::Toml), text, Format::Toml, [], purpose);
    assert_eq!(found(read(&text, Purpose::Connect)).len(), 1);
    for purpose in [Purpose::Look, Purpose::Mail] {
        assert_eq!(found(read(&text, purpose)), [""; 0]);
    }
    // The same goes for a server that is switched off.
    let off = text.replace("[http]", "[http]\nenabled = false");
    assert_eq!(found(read(&off, Purpose::Connect)), [""; 0]);
}

/// Three nodes, one of which is known by a name alone, in six lines, and an `[xds]` in the seventh.
const EDGE: &str = "nodes = [\n\
    { id = 'a', kind = 'freeswitch', address = '192.0.2.1:8021', password = 'x' },\n\
    { id = 'b', kind = 'freeswitch', address = '10.0.0.2:8021', password = 'x', sip_address = '192.0.2.2:5080' },\n\
    { id = 'c', kind = 'freeswitch', address = 'c.example:8021', password = 'x' },\n\
    ]\n\
    connections = [{ id = 'v' }]\n\
    [xds]\n";

/// One mistake each, from the eighth line on.
#[test]
fn mistakes_about_the_xds_server() {
    const GROUP: &str = "[[xds.groups]]\nid = 'g'\nnodes = ['a', 'b']\n";
    const TOKEN: &str = "[[xds.tokens]]\nname = 'edge'\ntoken = '0123456789abcdef'\n";
    let with = |more: &str| format!("{more}\n{GROUP}");
    let open = |listen: &str, more: &str| with(&format!("listen = '{listen}'\n{more}"));
    let second = |more: &str| with(&format!("{TOKEN}[[xds.tokens]]\n{more}"));
    let nobody =
        "8:10 who reaches this address could read where every node is: neither a token nor a certificate is asked for";
    let plain = "8:10 ? tokens go over the network as plain text: who can listen there can use them";
    let files = "tls_cert_file = '/no/such/file'\ntls_key_file = '/no/such/file'";
    let no_file = |line: usize| format!("{line}:17 cannot read /no/such/file: No such file or directory (os error 2)");
    let (no_file_here, no_file_below) = (no_file(8), no_file(9));
    let table: &[(String, &[&str])] = &[
        (with(""), &[]),
        (open("127.0.0.1:0", ""), &[]),
        (open("[::1]:18000", ""), &[]),
        (open("0.0.0.0:18000", ""), &[nobody]),
        (open("0.0.0.0:18000", "tokens = []"), &[nobody]),
        (open("[::ffff:192.0.2.1]:18000", ""), &[nobody]),
        (open("0.0.0.0:18000", "enabled = false"), &[]),
        (open("0.0.0.0:18000", TOKEN), &[plain]),
        (open("0.0.0.0:18000", &format!("{files}\n{TOKEN}")), &[&no_file_below]),
        (open("0.0.0.0:18000", files), &[nobody, &no_file_below]),
        (open("0.0.0.0:18000", &format!("{files}\ntls_client_ca_file = '/ca'")), &[&no_file_below]),
        (open("localhost:18000", ""), &["8:10 `listen` cannot be \"localhost:18000\""]),
        (open("127.0.0.1:65536", ""), &["8:10 `listen` cannot be \"127.0.0.1:65536\""]),
        (open("127.0.0.1", ""), &["8:10 `listen` cannot be \"127.0.0.1\""]),
        (
            open("0.0.0.0:8321", TOKEN),
            &["8:10 the xDS server and the HTTP server cannot both listen on port 8321", plain],
        ),
        (open("127.0.0.1:8321", "enabled = false"), &[]),
        (open("127.0.0.2:8321", ""), &[]),
        (with("enabled = 'no'"), &["8:11 `enabled` must be true or false, not text"]),
        (with("port = 1"), &["8:1 there is no key `port` here"]),
        (with("tokens = ['0123456789abcdef']"), &["8:11 `tokens[0]` must be a table, not text"]),
        (with("[[xds.tokens]]"), &["8:1 this entry has no `name`", "8:1 this entry has no token"]),
        (with("[[xds.tokens]]\nname = 'edge'"), &["8:1 `edge` has no token"]),
        (with(&format!("{TOKEN}role = 'read'")), &["11:1 there is no key `role` here"]),
        (second("name = 'b'\ntoken = 'short'"), &["13:9 a token has at least 16 characters"]),
        (second("name = 'edge'\ntoken = 'fedcba9876543210'"), &["12:8 two tokens have the name `edge`"]),
        (
            second("name = 'b'\ntoken = '0123456789abcdef'"),
            &["13:9 two tokens are the same: nobody could tell who uses it"],
        ),
        (with("enabled = false\n[[xds.tokens]]\nname = 'edge'\ntoken_file = '/no/such/file'"), &[]),
        (with("tls_cert_file = '/a'"), &["8:1 `tls_cert_file` needs `tls_key_file`"]),
        (with("tls_key_file = '/a'"), &["8:1 `tls_key_file` needs `tls_cert_file`"]),
        (with("tls_client_ca_file = '/a'"), &["8:1 `tls_client_ca_file` needs `tls_cert_file` and `tls_key_file`"]),
        (with("enabled = false\ntls_key_file = '/a'"), &["9:1 `tls_key_file` needs `tls_cert_file`"]),
        (with(&format!("{files}\nenabled = false")), &[]),
        (with(files), &[&no_file_here]),
        (with("tls_cert_file = 1\ntls_key_file = '/a'"), &["8:17 `tls_cert_file` must be text, not a number"]),
    ];
    let table: Vec<_> = table.iter().map(|(mistake, expected)| (mistake.as_str(), *expected)).collect();
    check(&table, |mistake| found(load(&format!("{EDGE}{mistake}"), Format::Toml)));
    let http = format!("http.listen = '127.0.0.1:18000'\n{EDGE}{GROUP}");
    let both = ["1:15 the xDS server and the HTTP server cannot both listen on port 18000"];
    assert_eq!(found(load(&http, Format::Toml)), both);
    let off = format!("http.enabled = false\n{http}");
    assert_eq!(found(load(&off, Format::Toml)), [""; 0]);
}

/// One mistake each, in a group that begins in the eighth line and has its own keys from the tenth on.
#[test]
fn mistakes_about_groups_of_nodes() {
    let group = |more: &str| format!("[[xds.groups]]\nid = 'g'\n{more}\n");
    let pair = |more: &str| group(&format!("nodes = ['a', 'b']\n{more}"));
    let second =
        |first: &str, more: &str| format!("{}[[xds.groups]]\nid = 'h'\nnodes = ['a', 'b']\n{more}\n", pair(first));
    let listener = |listen: &str| pair(&format!("listener = {{ listen = '{listen}' }}"));
    let no_ip = "edges are told IP addresses alone, and `c` has none: \"c.example\"";
    let (no_ip_in_xds, no_ip_in_group, no_ip_in_nodes) =
        (format!("7:1 {no_ip}"), format!("8:1 {no_ip}"), format!("10:15 {no_ip}"));
    let blank = |line: usize, text: &str| format!("{line}:11 `cluster` cannot be {text:?}");
    let (empty, spaced, umlaut) = (blank(11, ""), blank(11, "a b"), blank(11, "\u{e4}"));
    let (star, authority) = (blank(11, "*"), blank(11, "xdstp:a"));
    let long = "x".repeat(201);
    let too_long = blank(11, &long[..80]);
    let bad_ip = |text: &str| format!("11:19 `addresses` cannot be {text:?}");
    let bad_ips = ["b.example", "192.0.2.2:5060", "0.0.0.0", "224.0.0.1", "[::1]", ""].map(|text| (text, bad_ip(text)));
    let mut table: Vec<(String, Vec<&str>)> = vec![
        (String::new(), vec![&no_ip_in_xds]),
        ("groups = []".to_owned(), vec![&no_ip_in_xds]),
        ("enabled = false".to_owned(), vec![]),
        (group(""), vec![&no_ip_in_group]),
        (group("addresses = { c = '192.0.2.3' }"), vec![]),
        (group("nodes = ['a', 'c']"), vec![&no_ip_in_nodes]),
        (format!("enabled = false\n{}", group("")), vec![]),
        (pair(""), vec![]),
        ("[[xds.groups]]\nnodes = ['a']\n".to_owned(), vec!["8:1 this group has no `id`"]),
        (
            pair("").replace("'g'", "'g h'"),
            vec![
                "9:6 \"g h\" cannot be an id: use 1 to 64 letters, digits, '_', '-' or '.', starting with a letter or a digit",
            ],
        ),
        (group("nodes = []"), vec!["10:9 the group `g` has no node"]),
        (group("nodes = ['a', 'x']"), vec!["10:15 there is no node `x`"]),
        (group("nodes = ['a', 'a']"), vec!["10:15 `a` is in the group `g` twice"]),
        (group("nodes = 'a'"), vec![]),
        (pair("node = 1"), vec!["11:1 there is no key `node` here"]),
        (pair("port = 0"), vec!["11:8 `port` must be from 1 to 65535"]),
        (pair("port = 65536"), vec!["11:8 `port` must be from 1 to 65535"]),
        (pair("port = '1'"), vec!["11:8 `port` must be a whole number, 0 or greater, not text"]),
        (pair("ports = { a = 0 }"), vec!["11:15 `ports` must be from 1 to 65535"]),
        (pair("ports = { a = 65536 }"), vec!["11:15 `ports` must be from 1 to 65535"]),
        (pair("ports = { x = 1 }"), vec!["11:11 there is no node `x`"]),
        (pair("ports = { c = 1 }"), vec!["11:11 `c` is not in the group `g`"]),
        (
            pair("ports = { a = 'x', c = 'x' }"),
            vec![
                "11:15 `a` must be a whole number, 0 or greater, not text",
                "11:20 `c` is not in the group `g`",
                "11:24 `c` must be a whole number, 0 or greater, not text",
            ],
        ),
        (pair("addresses = { x = '192.0.2.9' }"), vec!["11:15 there is no node `x`"]),
        (pair("addresses = { c = '192.0.2.9' }"), vec!["11:15 `c` is not in the group `g`"]),
        (group("nodes = ['x', 'a']\nports = { x = 1 }"), vec!["10:10 there is no node `x`"]),
        (
            pair("addresses = { a = '192.0.2.2' }\nport = 1"),
            vec!["10:15 `a` and `b` are both at 192.0.2.2:1: an edge refuses such a list"],
        ),
        (pair("addresses = { a = '192.0.2.2' }"), vec![]),
        (format!("enabled = false\n{}", pair("addresses = { a = '192.0.2.2' }\nport = 1")), vec![]),
        (pair("cluster = ''"), vec![&empty]),
        (pair("cluster = 'a b'"), vec![&spaced]),
        (pair("cluster = '\u{e4}'"), vec![&umlaut]),
        (pair("cluster = '*'"), vec![&star]),
        (pair("cluster = 'xdstp:a'"), vec![&authority]),
        (pair(&format!("cluster = '{long}'")), vec![&too_long]),
        (pair(&format!("cluster = '{}'", &long[1..])), vec![]),
        (second("", ""), vec![]),
        (second("", "").replace("'h'", "'g'"), vec!["13:6 two groups have the id `g`"]),
        (second("", "cluster = 'g'"), vec!["15:11 two groups have the cluster `g`"]),
        (second("cluster = 'h'", ""), vec!["13:6 two groups have the cluster `h`"]),
        (
            second("listener = { listen = '0.0.0.0:1' }", "cluster = 'g-listener'"),
            vec!["15:11 the cluster cannot be `g-listener`: that is the listener of the group `g`"],
        ),
        (second("", "cluster = 'g-listener'"), vec![]),
        (
            second("listener = { listen = '0.0.0.0:1' }", "listener = { listen = '0.0.0.0:1' }"),
            vec!["15:23 two groups have their listener on 0.0.0.0:1"],
        ),
        (second("listener = { listen = '0.0.0.0:1' }", "listener = { listen = '0.0.0.0:2' }"), vec![]),
        (pair("listener = {}"), vec!["11:12 this listener has no `listen`"]),
        (listener("7443"), vec!["11:23 `listen` cannot be \"7443\""]),
        (listener("edge.example:7443"), vec!["11:23 `listen` cannot be \"edge.example:7443\""]),
        (listener("0.0.0.0:0"), vec!["11:23 nobody would find a listener whose port the edge chooses"]),
        (pair("listener = { listen = '0.0.0.0:1', protocol = 'udp' }"), vec!["11:47 `protocol` cannot be \"udp\""]),
        (pair("listener = '0.0.0.0:1'"), vec!["11:12 `listener` must be a table, not text"]),
        (pair("fail_open = 1"), vec!["11:13 `fail_open` must be true or false, not a number"]),
    ];
    table.extend(
        bad_ips.iter().map(|(text, found)| (pair(&format!("addresses = {{ a = '{text}' }}")), vec![found.as_str()])),
    );
    let table: Vec<_> = table.iter().map(|(mistake, expected)| (mistake.as_str(), expected.as_slice())).collect();
    check(&table, |mistake| found(load(&format!("{EDGE}{mistake}"), Format::Toml)));
}

#[test]
fn a_node_that_edges_cannot_be_told_of_says_what_to_write() {
    let help = |text: &str, format| {
        let problems = load(text, format).expect_err("a host name");
        problems.iter().next().expect("a problem").to_owned()
    };
    let found = help(EDGE, Format::Toml);
    let expected = "write addresses = { \"c\" = \"192.0.2.2\" } in an entry of `xds.groups`, or an IP address as `sip_address` of the node";
    assert_eq!(found.help.as_deref(), Some(expected));
    let yaml = "nodes: [{id: pbx-02, kind: freeswitch, address: 'h:1', password: x}]\nconnections: [{id: v}]\n\
                xds: {groups: [{id: wss}]}\n";
    let found = help(yaml, Format::Yaml);
    let expected = "write addresses: { \"pbx-02\": \"192.0.2.2\" } in the group `wss`, or an IP address as `sip_address` of the node";
    assert_eq!(found.help.as_deref(), Some(expected));
    assert_eq!(found.related[0].key, "nodes[0].address");
    let two = "nodes: [{id: a, kind: freeswitch, address: '192.0.2.1:1', password: x}, \
               {id: b, kind: freeswitch, address: '192.0.2.1:2', password: x}]\nconnections: [{id: v}]\nxds: {}\n";
    let expected = "write ports: { \"b\": 5061 } or addresses: { \"b\": \"192.0.2.2\" } in an entry of `xds.groups`";
    assert_eq!(help(two, Format::Yaml).help.as_deref(), Some(expected));
}

#[test]
fn edges_elsewhere_that_are_told_to_call_themselves_are_warned_of() {
    let text = |listen: &str| {
        format!(
            "{NODE}[[connections]]\nid = 'v'\n[xds]\nlisten = '{listen}'\n[[xds.tokens]]\nname = 'e'\ntoken = '0123456789abcdef'\n"
        )
    };
    assert_eq!(found(load(&text("127.0.0.1:18000"), Format::Toml)), [""; 0]);
    assert_eq!(
        found(load(&text("0.0.0.0:18000"), Format::Toml)),
        [
            "8:1 ? edges on other machines are told that `a` is at 127.0.0.1: that is themselves",
            "9:10 ? tokens go over the network as plain text: who can listen there can use them",
        ]
    );
}

/// What edges are told, as `id cluster: node host:port, ...`.
fn told(config: &Config) -> Vec<String> {
    let member = |Member { node, host, port }: &Member| format!("{node} {host}:{port}");
    let group = |group: &EdgeGroup| {
        let members: Vec<_> = group.members.iter().map(member).collect();
        format!("{} {}: {}", group.id, group.cluster, members.join(", "))
    };
    config.edge.groups.iter().map(group).collect()
}

#[test]
fn without_an_xds_server_there_is_one_group_of_all_nodes_wherever_they_are() {
    let config = good(EDGE.trim_end_matches("[xds]\n"), Format::Toml);
    assert!(config.edge.xds.is_none());
    assert_eq!(told(&config), ["pbx pbx: a 192.0.2.1:5060, b 192.0.2.2:5080, c c.example:5060"]);
    assert!(config.edge.groups[0].fail_open && config.edge.groups[0].listener.is_none());
    let config =
        good(&format!("{EDGE}enabled = false\ngroups = [{{ id = 'g', nodes = ['c'], port = 1 }}]\n"), Format::Toml);
    assert!(config.edge.xds.is_none(), "it is switched off, and what it has of groups holds for the event stream");
    assert_eq!(told(&config), ["g g: c c.example:1"]);
}

#[test]
fn groups_say_where_each_node_is_in_every_format() {
    let toml = format!(
        "{}\n[[xds.groups]]\nid = 'wss'\ncluster = 'edge/wss'\nnodes = ['b', 'a']\nport = 7443\nports = {{ b = 8089 }}\n\
         fail_open = false\nlistener = {{ listen = '[::]:7443', protocol = 'http' }}\n\
         [[xds.groups]]\nid = 'sip'\naddresses = {{ c = '2001:DB8::3' }}\nlistener = {{ listen = '0.0.0.0:5060' }}\n",
        EDGE.replace("192.0.2.1:8021", "[2001:db8::1]:8021")
    );
    let json = r#"{"nodes": [{"id": "a", "kind": "freeswitch", "address": "[2001:db8::1]:8021", "password": "x"},
        {"id": "b", "kind": "freeswitch", "address": "10.0.0.2:8021", "password": "x", "sip_address": "192.0.2.2:5080"},
        {"id": "c", "kind": "freeswitch", "address": "c.example:8021", "password": "x"}],
        "connections": [{"id": "v"}],
        "xds": {"groups": [
            {"id": "wss", "cluster": "edge/wss", "nodes": ["b", "a"], "port": 7443, "ports": {"b": 8089}, "fail_open": false,
             "listener": {"listen": "[::]:7443", "protocol": "http"}},
            {"id": "sip", "addresses": {"c": "2001:DB8::3"}, "listener": {"listen": "0.0.0.0:5060"}}]}}"#;
    let yaml = "nodes:\n- {id: a, kind: freeswitch, address: '[2001:db8::1]:8021', password: x}\n\
                - {id: b, kind: freeswitch, address: '10.0.0.2:8021', password: x, sip_address: '192.0.2.2:5080'}\n\
                - {id: c, kind: freeswitch, address: 'c.example:8021', password: x}\nconnections: [{id: v}]\nxds:\n  groups:\n\
                \x20 - {id: wss, cluster: edge/wss, nodes: [b, a], port: 7443, ports: {b: 8089}, fail_open: false,\n\
                \x20    listener: {listen: '[::]:7443', protocol: http}}\n\
                \x20 - {id: sip, addresses: {c: '2001:DB8::3'}, listener: {listen: '0.0.0.0:5060'}}\n";
    for (text, format) in [(toml.as_str(), Format::Toml), (json, Format::Json), (yaml, Format::Yaml)] {
        let config = good(text, format);
        let expected = [
            "wss edge/wss: b 192.0.2.2:8089, a 2001:db8::1:7443",
            "sip sip: a 2001:db8::1:5060, b 192.0.2.2:5080, c 2001:db8::3:5060",
        ];
        assert_eq!(told(&config), expected);
        let [wss, sip] = &config.edge.groups[..] else { panic!("{:?}", config.edge) };
        assert_eq!((wss.fail_open, sip.fail_open), (false, true));
        let listeners = [wss, sip].map(|group| group.listener.expect("a listener"));
        let listeners = listeners.map(|EdgeListener { listen, protocol }| (listen.to_string(), protocol));
        let expected = [("[::]:7443", EdgeProtocol::Http), ("0.0.0.0:5060", EdgeProtocol::Tcp)];
        assert_eq!(listeners, expected.map(|(listen, protocol)| (listen.to_owned(), protocol)));
        let xds = config.edge.xds.expect("a server");
        assert_eq!((xds.listen.to_string().as_str(), xds.tls, xds.tokens.len()), ("127.0.0.1:18000", None, 0));
    }
}

#[test]
fn variables_override_groups_and_tokens_of_edges() {
    let text = format!("{EDGE}[[xds.tokens]]\nname = 'edge-1'\n[[xds.groups]]\nid = 'wss'\n");
    let variables = environment(&[
        ("POINTSMAN__XDS__TOKENS__EDGE_1__TOKEN", "from-the-environment"),
        ("POINTSMAN__XDS__GROUPS__WSS__NODES", "c,a"),
        ("POINTSMAN__XDS__GROUPS__WSS__PORTS__A", "7443"),
        ("POINTSMAN__XDS__GROUPS__WSS__ADDRESSES__C", "192.0.2.3"),
    ]);
    let loaded = read_text(name(Format::Toml), &text, Format::Toml, variables);
    let config = loaded.unwrap_or_else(|problems| panic!("{problems}")).config;
    assert_eq!(told(&config), ["wss wss: c 192.0.2.3:5060, a 192.0.2.1:7443"]);
    let tokens = config.edge.xds.expect("a server").tokens;
    let tokens: Vec<_> = tokens.iter().map(|token| (token.name.as_str(), token.secret.expose_secret())).collect();
    assert_eq!(tokens, [("edge-1", "from-the-environment")]);
    let problems = load(&text, Format::Toml).expect_err("no token").to_string();
    assert!(problems.contains("set the environment variable POINTSMAN__XDS__TOKENS__EDGE_1__TOKEN"), "{problems}");
}

#[test]
fn the_files_of_the_xds_server_are_read_and_must_go_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("p.toml");
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
    let text = format!(
        "{}listen = '0.0.0.0:0'\ntls_cert_file = 'cert.pem'\ntls_key_file = 'cert.key'\ntls_client_ca_file = 'ca.pem'\n\
         groups = [{{ id = 'g', nodes = ['a', 'b'] }}]\n",
        EDGE
    );
    let read = |purpose| load_text(&file, &text, Format::Toml, [], purpose);
    let pair = || rcgen::generate_simple_self_signed(["h".to_owned()]).expect("a certificate");
    let (ours, other) = (pair(), pair());
    let missing = found(read(Purpose::Connect));
    assert!(missing.len() == 1 && missing[0].starts_with("9:17 cannot read "), "{missing:?}");
    assert_eq!(found(read(Purpose::Look)), [""; 0], "who only looks need not be able to read them");
    write("cert.pem", &ours.cert.pem());
    write("cert.key", &other.signing_key.serialize_pem());
    write("ca.pem", &other.cert.pem());
    let mut permissions = std::fs::metadata(directory.path().join("cert.key")).expect("there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    std::fs::set_permissions(directory.path().join("cert.key"), permissions).expect("set");
    let wrong = found(read(Purpose::Connect));
    assert!(wrong.len() == 1 && wrong[0].starts_with("10:16 the key in "), "{wrong:?}");
    write("cert.key", &ours.signing_key.serialize_pem());
    assert_eq!(found(read(Purpose::Connect)), [""; 0]);
    let tls = read(Purpose::Connect).expect("good").config.edge.xds.and_then(|xds| xds.tls).expect("TLS");
    assert_eq!(tls.client_ca_file, Some(directory.path().join("ca.pem")));
    write("ca.pem", "nothing");
    let empty = found(read(Purpose::Connect));
    assert!(
        empty.len() == 1 && empty[0].starts_with("11:22 ") && empty[0].ends_with("holds no certificate in PEM form")
    );
    write("ca.pem", &other.cert.pem());
    let mut permissions = std::fs::metadata(directory.path().join("cert.key")).expect("there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    std::fs::set_permissions(directory.path().join("cert.key"), permissions).expect("set");
    let open = found(read(Purpose::Connect));
    assert!(open.len() == 1 && open[0].starts_with("10:16 ? every user of this machine can read "), "{open:?}");
}

/// A report shows the lines around a token, and whose it is.
#[test]
fn of_a_token_all_but_the_secret_is_shown() {
    let json = r#"{"http": {"tokens": [{"name": "noc", "role": "admin", "token": "hunter2hunter2hunter2"}]}}"#;
    let shown = load(json, Format::Json).expect_err("no such role").to_string();
    assert!(shown.contains(r#"[{"name": "noc", "role": "admin", "token": "*********************"}]"#), "{shown}");
    for tokens in [r#"["hunter2"]"#, r#"{"noc": "hunter2"}"#, r#""hunter2""#, r#"[{"noc": "hunter2"}]"#] {
        let json = format!(r#"{{"http": {{"tokens": {tokens}, "listen": 1}}}}"#);
        let problems = load(&json, Format::Json).expect_err("mistakes");
        let shown = format!("{problems}{problems:?}{}", serde_json::to_string(&problems).expect("JSON"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn who_only_mails_needs_the_password_of_the_mail_server_alone() {
    let text = "[[nodes]]\nid = 'a'\nkind = 'asterisk'\naddress = 'h:1'\nusername = 'u'\npassword_file = '/no/such/file'\n\
                tls = true\ntls_ca_file = '/no/such/file'\n[[connections]]\nid = 'v'\n[email]\nfrom = 'a@b'\nserver = 'm'\n\
                username = 'u'\npassword_file = '/no/such/mail'\ntls_ca_file = '/no/such/mail'\ntemplates = '/no/such/mail'\n";
    let read = |purpose| found(load_text(name(Format::Toml), text, Format::Toml, [], purpose));
    let mail = [
        "15:17 cannot read the password from /no/such/mail: No such file or directory (os error 2)",
        "16:15 cannot read certificates from /no/such/mail: I/O error: No such file or directory (os error 2)",
        "17:13 there is no folder /no/such/mail",
    ];
    assert_eq!(read(Purpose::Mail), mail);
    assert_eq!(read(Purpose::Connect)[2..], mail);
    assert_eq!(read(Purpose::Look), [""; 0]);
}

/// The same kinds of mistakes, with the places that JSON gives them.
#[test]
fn mistakes_in_json() {
    let table: &[(&str, &[&str])] = &[
        (
            "\"quality\": { \"monitor_asr\": true }",
            &["4:29 `monitor_asr` is on and there is no `asr_threshold_percent`"],
        ),
        (
            "\"quality\": { \"statistics_window\": 2.5 }",
            &["4:35 `statistics_window` must be a whole number, 0 or greater, not a number with decimals"],
        ),
        (
            "\"quality\": [], \"log\": 1",
            &["4:12 `quality` must be a table, not a list", "4:23 `log` must be a table, not a number"],
        ),
        (
            "\"customers\": [{ \"id\": \"\u{fc}\", \"emal\": [] },\n  5]",
            &[
                "4:23 \"\u{fc}\" cannot be an id: use 1 to 64 letters, digits, '_', '-' or '.', starting with a letter or a digit",
                "4:28 there is no key `emal` here",
                "5:3 `customers[1]` must be a table, not a number",
            ],
        ),
        (
            "\"route_maps\": [{ \"id\": \"m\", \"prefixes\": [1], \"entries\": [\n{ \"connection\": \"x\" }] }]",
            &[
                "4:42 `prefixes[0]` must be text, not a number",
                "5:1 this entry has no `priority`",
                "5:17 there is no connection `x`",
            ],
        ),
        ("\"control_socket\": null, \"x\": null", &["4:25 there is no key `x` here"]),
        ("\"storage\": {}, \"stor\\u0061ge\": {}", &["4:16 the key `storage` is written twice"]),
        ("\"storage\": { \"path\": \"a\\q\" }", &["4:25 invalid escape"]),
        ("\"storage\": { \"keep_days\": 1e999 }", &["4:31 number out of range"]),
        ("\"storage\": {,}", &["4:13 key must be a string"]),
        ("\"a[5]\": 1", &["4:1 there is no key `a[5]` here"]),
    ];
    check(table, |mistake| {
        let text = "{ \"nodes\": [{ \"id\": \"a\", \"kind\": \"freeswitch\",\n\"address\": \"h:1\", \"password\": \"x\" }],\n\
                    \"connections\": [{ \"id\": \"v\" }],\n";
        found(load(&format!("{text}{mistake} }}"), Format::Json))
    });
    assert_eq!(found(load("[1]", Format::Json)), ["1:1 the configuration must be a table of keys and values"]);
    assert_eq!(found(load("", Format::Json)), ["1:1 EOF while parsing a value"]);
    let deep = format!("{{\"x\": {}1{}}}", "[".repeat(100), "]".repeat(100));
    assert_eq!(found(load(&deep, Format::Json)), ["1:38 nested more than 32 levels deep"]);
}

/// And those that YAML gives them.
#[test]
fn mistakes_in_yaml() {
    let table: &[(&str, &[&str])] = &[
        ("quality:\n  monitor_asr: true", &["9:16 `monitor_asr` is on and there is no `asr_threshold_percent`"]),
        (
            "quality: {statistics_window: '20'}",
            &["8:30 `statistics_window` must be a whole number, 0 or greater, not text"],
        ),
        ("quality:\nlog: ~", &[]),
        ("customers:\n  - id: c\n    language: no", &["10:15 `language` cannot be \"no\""]),
        (
            "customers:\n  - language: ru\n  -\n    email: x",
            &["9:5 this customer has no `id`", "11:5 this customer has no `id`", "11:12 \"x\" is not a mail address"],
        ),
        (
            "route_maps:\n  - id: m\n    prefixes: [00, \"+\"]\n    entries: [{connection: x, prio: 1}]",
            &[
                "10:16 `prefixes[0]` must be text, not a number",
                "11:15 this entry has no `priority`",
                "11:28 there is no connection `x`",
                "11:31 there is no key `prio` here",
            ],
        ),
        ("causes:\n  sip:\n    486: bussy", &["10:10 `486` cannot be \"bussy\""]),
        ("storage: {}\nstorage: {}", &["9:1 the key `storage` is written twice"]),
        ("storage:\n path: x\n  keep_days: 1", &["10:12 mapping values are not allowed in this context"]),
        ("storage: *nowhere", &["8:10 while parsing node, found unknown anchor"]),
        ("? [a, b]\n: 1", &["8:3 a key must be text"]),
        (
            "log: &l\n  filter: inof\nscoring: *l",
            &[
                "9:3 there is no key `filter` here",
                "9:11 `filter`: \"inof\" is neither a level (error, warn, info, debug, trace, off) nor MODULE=LEVEL",
            ],
        ),
        ("storage:\n  ~: 1", &["9:3 a key must be text"]),
        ("storage:\n  keep_days: .inf", &["9:14 this is not a finite number"]),
        ("storage:\n  keep_days: 1e999", &["9:14 this is not a finite number"]),
        (
            "storage:\n  keep_days: 99999999999999999999",
            &["9:14 `keep_days` must be a whole number, 0 or greater, not a number as large as this"],
        ),
        ("...\n---\nx: 1", &["9:1 a second document begins here: put everything into one"]),
        ("log:\n  \u{fc}\u{fc}: [\u{fc}, {x: 1}]", &["9:3 there is no key `\u{fc}\u{fc}` here"]),
    ];
    check(table, |mistake| {
        let text = "nodes:\n  - id: a\n    kind: freeswitch\n    address: h:1\n    password: x\n\
                    connections:\n  - id: v\n";
        found(load(&format!("{text}{mistake}\n"), Format::Yaml))
    });
    assert_eq!(found(load("5", Format::Yaml)), ["1:1 the configuration must be a table of keys and values"]);
    let deep = |depth| format!("x: {}1{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(found(load(&deep(100), Format::Yaml)), ["1:35 nested more than 32 levels deep"]);
    assert_eq!(found(load(&deep(100_000), Format::Yaml)).len(), 1);
    assert_eq!(found(load(&"- ".repeat(100_000), Format::Yaml)).len(), 1);
}

#[test]
fn places_are_right_after_line_breaks_of_two_characters_and_letters_of_two_bytes() {
    let toml = format!("# \u{fc}\n{NODE}name = \"\u{fc}\"\n").replace('\n', "\r\n");
    assert_eq!(found(load(&toml, Format::Toml))[1], "7:1 there is no key `name` here");
    let json = "{\"\u{fc}\": \"\u{fc}\", \"x\": 1,\r\n \"\u{fc}x\": 1}";
    assert_eq!(
        found(load(json, Format::Json))[2..],
        ["1:2 there is no key `\u{fc}` here", "1:12 there is no key `x` here", "2:2 there is no key `\u{fc}x` here"]
    );
    let yaml = "# \u{fc}\r\n\u{fc}: \u{fc}\r\nlog:\r\n  x: {\u{fc}: \u{fc}, y: 1}\r\n  filter: 1\r\nx:\r\n- \u{a1}\r\n";
    assert_eq!(
        found(load(yaml, Format::Yaml))[2..],
        [
            "2:1 there is no key `\u{fc}` here",
            "4:3 there is no key `x` here",
            "5:11 `filter` must be text, not a number",
            "6:1 there is no key `x` here",
        ]
    );
}

#[test]
fn a_yaml_file_of_aliases_of_aliases_is_refused() {
    let mut text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (inner, outer) in ('a'..='i').zip('b'..='j') {
        let aliases = vec![format!("*{inner}"); 10].join(", ");
        text.push_str(&format!("{outer}: &{outer} [{aliases}]\n"));
    }
    let found = found(load(&text, Format::Yaml));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("more than 500000 values with this alias"), "{found:?}");
}

#[test]
fn an_empty_file_is_told_what_is_missing() {
    for format in [Format::Toml, Format::Yaml] {
        let expected = [
            "- ? no node is configured: there is no PBX to watch",
            "- ? no connection is configured: calls are seen, but nothing is judged",
        ];
        assert_eq!(found(load("", format)), expected);
        assert_eq!(found(load("# nothing\n", format)), expected);
    }
}

#[test]
fn who_only_looks_needs_no_password() {
    let text = "[[nodes]]\nid = 'a'\nkind = 'asterisk'\naddress = 'h:1'\nusername = 'u'\npassword_file = '/no/such/file'\n\
                tls = true\ntls_ca_file = '/no/such/file'\n[[connections]]\nid = 'v'\n";
    assert_eq!(found(load(text, Format::Toml)).len(), 2);
    let loaded = load_text(name(Format::Toml), text, Format::Toml, [], Purpose::Look);
    assert_eq!(found(loaded), [""; 0]);
    let loaded = load_text(name(Format::Toml), "[[connections]]\nid = 'v'\n", Format::Toml, [], Purpose::Look);
    assert_eq!(found(loaded), [""; 0]);
}

#[test]
fn five_different_mistakes_are_five_reports() {
    let text = format!(
        "{NODE}max_calls = \"many\"\n[[connections]]\nid = \"v\"\ncustomer = \"c\"\n[connections.quality]\n\
         monitor_asr = true\nretry_bach = 5\nstatistics_window = 0\n"
    );
    assert_eq!(
        found(load(&text, Format::Toml)),
        [
            "6:13 `max_calls` must be a whole number, 0 or greater, not text",
            "9:12 there is no customer `c`",
            "11:15 `monitor_asr` is on and there is no `asr_threshold_percent`",
            "12:1 there is no key `retry_bach` here",
            "13:21 `statistics_window` must be from 1 to 10000",
        ]
    );
}

#[test]
fn a_report_shows_the_line_and_what_to_write() {
    let text = format!("{NODE}[[connections]]\nid = \"v\"\n[connections.quality]\nbad_quality_action = \"make_lst\"\n");
    let problems = load(&text, Format::Toml).expect_err("a mistake");
    let expected = r#"error: `bad_quality_action` cannot be "make_lst"
 --> p.toml:9:22
  |
9 | bad_quality_action = "make_lst"
  |                      ^^^^^^^^^^ expected "make_last", "block" or "notify_only"
  |
  = help: did you mean "make_last"?"#;
    assert_eq!(problems.to_string(), expected);
}

#[test]
fn a_report_names_both_places() {
    let text = "nodes:\n- {id: a, kind: freeswitch, address: 'h:1', password: hunter2}\n\
                - {id: a, kind: freeswitch, address: 'h:2', password: hunter2}\nconnections: [{id: v}]\n";
    let problems = load(text, Format::Yaml).expect_err("a mistake");
    let expected = "error: two nodes have the id `a`
 --> p.yaml:3:8
  |
2 | - {id: a, kind: freeswitch, address: 'h:1', password: *******}
  |        - first used here
3 | - {id: a, kind: freeswitch, address: 'h:2', password: *******}
  |        ^ used again here";
    assert_eq!(problems.to_string(), expected);
}

#[test]
fn of_a_file_in_one_long_line_only_the_places_are_shown() {
    let blanks = " ".repeat(3000);
    let text = format!(r#"{{"customers": [{{"id": "b"}}, {blanks}{{"id": "a"}}, {{"id": "a"}}]}}"#);
    let problems = load_text(name(Format::Json), &text, Format::Json, [], Purpose::Look).expect_err("a mistake");
    let shown = problems.to_string();
    assert!(shown.contains("error: two customers have the id `a`\n--> p.json:1:3049\n = note: first used here: `customers[1].id` (line 1, column 3036)"), "{shown}");
}

#[test]
fn a_report_is_data_too() {
    let text = format!("{NODE}[[connections]]\nid = \"v\"\n[quality]\nretry_bach = 5\n");
    let problems = load(&text, Format::Toml).expect_err("a mistake");
    let expected = serde_json::json!([{
        "file": "p.toml",
        "severity": "error",
        "message": "there is no key `retry_bach` here",
        "key": "quality.retry_bach",
        "line": 9,
        "column": 1,
        "help": "did you mean `retry_batch`?",
    }]);
    assert_eq!(serde_json::to_value(&problems).expect("JSON"), expected);
}

#[test]
fn a_key_in_the_wrong_table_is_told_where_it_belongs() {
    let text = format!("{NODE}monitor_asr = true\nhost = \"x\"\n");
    let problems = load(&text, Format::Toml).expect_err("a mistake");
    let help: Vec<_> = problems.iter().filter_map(|problem| problem.help.as_deref()).collect();
    assert_eq!(help, ["`monitor_asr` belongs in `connections.quality` or in `quality`", "did you mean `address`?"]);
}

#[test]
fn variables_override_the_file() {
    let variables = environment(&[
        ("POINTSMAN__NODES__PBX_01__PASSWORD", "from the environment"),
        ("POINTSMAN__NODES__PBX_01__MAX_CALLS", "7"),
        ("POINTSMAN__NODES__PBX_01__SLOTS", "false"),
        ("POINTSMAN__CUSTOMERS__ACME__EMAIL", "a@b, c@d"),
        ("POINTSMAN__CONNECTIONS__VENDOR_A__QUALITY__ASR_THRESHOLD_PERCENT", "33.5"),
        ("POINTSMAN__CONNECTIONS__VENDOR_A__QUALITY__BAD_QUALITY_ACTION", "block"),
        ("POINTSMAN__CONNECTIONS__VENDOR_A__NAMES__PBX_01", "trunk-a"),
        ("POINTSMAN__QUALITY__RETRY_BACKOFF__FACTOR", "2"),
        ("POINTSMAN__QUALITY__RETRY_BACKOFF__MAX_SEC", "1200"),
        ("POINTSMAN__QUALITY__RETRY_OVERFLOW", "withhold"),
        ("POINTSMAN__CAUSES__SIP__480", "vendor_failed"),
        ("POINTSMAN__STORAGE__KEEP_DAYS", "90"),
        ("POINTSMAN_LOG", "not ours"),
        ("PATH", "/bin"),
    ]);
    let loaded = read_text(name(Format::Toml), PROMISED, Format::Toml, variables);
    let config = loaded.unwrap_or_else(|problems| panic!("{problems}")).config;
    let node = &config.nodes[0];
    assert_eq!(node.password.expose_secret(), "from the environment");
    assert_eq!((node.max_calls, node.slots), (Some(7), false));
    let addresses: Vec<_> = config.customers[0].email.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["a@b", "c@d"]);
    let connection = &config.connections[0];
    assert_eq!(connection.name_on(&node.id), "trunk-a");
    assert_eq!(connection.quality.asr_threshold_percent, Some(33.5));
    assert_eq!(connection.quality.bad_quality_action, BadQualityAction::Block);
    assert_eq!(connection.quality.retry_overflow, RetryOverflow::Withhold);
    assert_eq!(connection.quality.retry_backoff, Some(RetryBackoff { factor: 2.0, max_sec: 1200 }));
    assert_eq!(config.storage.keep, Duration::from_secs(90 * 24 * 3600));
}

#[test]
fn a_variable_that_is_wrong_is_named() {
    let table: &[(&str, &str, &str)] = &[
        (
            "POINTSMAN__NODES__PBX_02__PASSWORD",
            "x",
            "nothing in this list has an id that is PBX_02 in the name of a variable",
        ),
        ("POINTSMAN__NODES__PBX_01__PASWORD", "x", "there is no key `pasword` here"),
        ("POINTSMAN__STORAGE__KEEP_DAYS", "long", "`keep_days` must be a whole number, 0 or greater, not text"),
        ("POINTSMAN__STORAGE__KEEP_DAYS", "0", "`keep_days` must be from 1 to 3650"),
        ("POINTSMAN__STORAGE", "x", "`storage` must be a table, not text"),
        ("POINTSMAN__STORAGE__PATH__X", "x", "`path` must be text, not a table"),
        ("POINTSMAN__NODES", "x", "`nodes` must be a table, not text"),
        ("POINTSMAN__NODES__PBX_01__ADDRESS", "here", "`address` cannot be \"here\""),
        ("POINTSMAN__NODES__PBX_01__KIND", "asterix", "`kind` cannot be \"asterix\""),
        ("POINTSMAN__CONNECTIONS__VENDOR_A__CUSTOMER", "acne", "there is no customer `acne`"),
        ("POINTSMAN__", "x", "it names no key"),
        ("POINTSMAN____STORAGE", "x", "it names no key"),
    ];
    for (variable, value, message) in table {
        let result = read_text(name(Format::Toml), PROMISED, Format::Toml, environment(&[(variable, value)]));
        let problems = result.expect_err(variable);
        let found = problems.iter().any(|problem| {
            problem.variable.as_deref() == Some(variable) && problem.message == *message && problem.position.is_none()
        });
        assert!(found, "{variable}\n{problems}");
        assert!(problems.to_string().contains(variable), "{problems}");
    }
}

#[test]
fn ids_that_are_the_same_in_a_variable_are_not_guessed() {
    let text = format!("{NODE}[[connections]]\nid = \"v.1\"\n[[connections]]\nid = \"v-1\"\n");
    let variables = environment(&[("POINTSMAN__CONNECTIONS__V_1__CUSTOMER", "x")]);
    let problems = read_text(name(Format::Toml), &text, Format::Toml, variables).expect_err("ambiguous");
    assert_eq!(
        found(Err(problems)),
        ["POINTSMAN__CONNECTIONS__V_1__CUSTOMER two ids of this list are V_1 in the name of a variable"]
    );
}

#[test]
fn a_password_comes_from_where_the_file_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("p.toml");
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "s3cret\r\n").expect("written");
    let text = "[[nodes]]\nid = 'a'\nkind = 'freeswitch'\naddress = 'h:1'\npassword_file = 'secret'\n[[connections]]\nid = 'v'\n";
    let load = |text: &str, variables: &[(&str, &str)]| read_text(&file, text, Format::Toml, environment(variables));
    let loaded = load(text, &[]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.config.nodes[0].password.expose_secret(), "s3cret");
    // The environment goes before the file, without contradicting it.
    let loaded =
        load(text, &[("POINTSMAN__NODES__A__PASSWORD", "other")]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.config.nodes[0].password.expose_secret(), "other");
    let by_name = text.replace("password_file = 'secret'", "password_env = 'PW'");
    let loaded = load(&by_name, &[("PW", "third")]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.config.nodes[0].password.expose_secret(), "third");
    std::fs::remove_file(&secret).expect("removed");
    let problems = load(text, &[]).expect_err("no such file");
    assert!(problems.to_string().contains("cannot read the password from"), "{problems}");
}

#[cfg(unix)]
#[test]
fn a_password_file_that_all_can_read_is_a_warning() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "x").expect("written");
    let text = "[[nodes]]\nid = 'a'\nkind = 'freeswitch'\naddress = 'h:1'\npassword_file = 'secret'\n[[connections]]\nid = 'v'\n";
    for (mode, warnings) in [(0o644, 1), (0o600, 0), (0o640, 0)] {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).expect("a mode");
        let loaded = read_text(&directory.path().join("p.toml"), text, Format::Toml, []);
        let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(loaded.warnings.len(), warnings, "{mode:o}: {}", loaded.warnings);
    }
}

#[test]
fn a_certificate_file_must_hold_certificates() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("p.toml");
    let text = "[[nodes]]\nid = 'a'\nkind = 'asterisk'\naddress = 'h:1'\nusername = 'u'\npassword = 'x'\ntls = true\n\
                tls_ca_file = 'ca.pem'\n[[connections]]\nid = 'v'\n";
    let load = || read_text(&file, text, Format::Toml, []);
    assert!(found(load())[0].starts_with("8:15 cannot read certificates from"), "no file");
    std::fs::write(directory.path().join("ca.pem"), "nothing").expect("written");
    assert!(found(load())[0].ends_with("holds no certificate in PEM form"), "no certificate");
    let certificate = rcgen::generate_simple_self_signed(["h".to_owned()]).expect("a certificate");
    std::fs::write(directory.path().join("ca.pem"), certificate.cert.pem()).expect("written");
    let loaded = load().unwrap_or_else(|problems| panic!("{problems}"));
    let tls = loaded.config.nodes[0].tls.as_ref().expect("TLS");
    assert_eq!(tls.ca_file.as_deref(), Some(directory.path().join("ca.pem").as_path()));
}

#[test]
fn relative_paths_begin_where_the_file_is() {
    let loaded = |path: &str| read_text(Path::new(path), PROMISED, Format::Toml, []).expect("good").config;
    let here = loaded("/srv/x/p.toml");
    assert_eq!(here.storage.path, Path::new("/srv/x/pointsman.db"));
    assert_eq!(here.control_socket, Path::new("/srv/x/pointsman.sock"));
    let system = loaded("/etc/pointsman/pointsman.toml");
    assert_eq!(system.storage.path, Path::new("/var/lib/pointsman/pointsman.db"));
    assert_eq!(system.control_socket, Path::new("/run/pointsman/pointsman.sock"));
    let text = format!("{PROMISED}[storage]\npath = \"state.db\"\n");
    let named = read_text(Path::new("/srv/p.toml"), &text, Format::Toml, []).expect("good").config;
    assert_eq!(named.storage.path, Path::new("/srv/state.db"));
}

#[test]
fn defaults_are_overridden_per_connection() {
    let text = format!(
        "{NODE}[quality]\nmonitor_asr = true\nasr_threshold_percent = 40\nretry_batch = 5\n[[connections]]\nid = \"v\"\n\
         [[connections]]\nid = \"w\"\nquality = {{ asr_threshold_percent = 50, monitor_acd = true, acd_threshold_sec = 9 }}\n\
         [[connections]]\nid = \"x\"\nquality = {{ monitor_asr = false }}\n"
    );
    let config = good(&text, Format::Toml);
    let [v, w, x] = [0, 1, 2].map(|index| &config.connections[index].quality);
    assert_eq!((v.asr_threshold_percent, v.acd_threshold_sec, v.retry_batch), (Some(40.0), None, 5));
    assert_eq!((w.asr_threshold_percent, w.acd_threshold_sec, w.retry_batch), (Some(50.0), Some(9.0), 5));
    assert!(!x.is_monitored());
}

#[test]
fn causes_of_a_connection_go_before_those_for_all() {
    use pointsman::call::outcome::{EndedBy, Evidence, Outcome};
    let text = format!(
        "{NODE}[causes]\nsip = {{ \"480\" = \"vendor_failed\", \"403\" = \"busy\" }}\n[[connections]]\nid = \"v\"\n\
         [[connections]]\nid = \"w\"\ncauses = {{ sip = {{ \"403\" = \"number_invalid\" }}, q850 = {{ \"27\" = \"busy\" }} }}\n"
    );
    let config = good(&text, Format::Toml);
    let outcome = |connection: usize, sip_status, cause| {
        let evidence = Evidence { ended_by: EndedBy::FarEnd, answered: false, rang: true, sip_status, cause };
        config.connections[connection].causes.outcome(&evidence)
    };
    assert_eq!(outcome(0, Some(480), None), Outcome::VendorFailed);
    assert_eq!(outcome(1, Some(480), None), Outcome::VendorFailed);
    assert_eq!(outcome(0, Some(403), None), Outcome::Busy);
    assert_eq!(outcome(1, Some(403), None), Outcome::NumberInvalid);
    assert_eq!(outcome(0, None, Some(27)), Outcome::VendorFailed);
    assert_eq!(outcome(1, None, Some(27)), Outcome::Busy);
}

/// The table in the documentation is the one that the program has.
#[test]
fn the_documented_causes_are_true() {
    use pointsman::call::outcome::{CauseTable, EndedBy, Evidence, Outcome};
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let documentation = std::fs::read_to_string(path).expect("the documentation");
    let table = documentation.split("| outcome | SIP | Q.850 |\n").nth(1).expect("the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let numbers = |cell: &str| -> Vec<u16> {
        cell.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    let outcome = |sip_status, cause| {
        let evidence = Evidence { ended_by: EndedBy::FarEnd, answered: false, rang: true, sip_status, cause };
        CauseTable::default().outcome(&evidence)
    };
    let (mut sip, mut q850) = (Vec::new(), Vec::new());
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let expected: Outcome = serde_json::from_value(cells[1].trim_matches('`').into()).expect("an outcome");
        for number in numbers(cells[2]) {
            assert_eq!(outcome(Some(number), None), expected, "SIP {number}");
            sip.push(number);
        }
        for number in numbers(cells[3]) {
            assert_eq!(outcome(None, Some(number)), expected, "Q.850 {number}");
            q850.push(number);
        }
    }
    assert_eq!((sip.len(), q850.len()), (14, 10), "the rows are read");
    for number in (400..=699).filter(|number| !sip.contains(number)) {
        assert_eq!(outcome(Some(number), None), Outcome::VendorFailed, "SIP {number}");
    }
    for number in (0..=127).filter(|number| !q850.contains(number)) {
        assert_eq!(outcome(None, Some(number)), Outcome::VendorFailed, "Q.850 {number}");
    }
}

#[test]
fn route_maps_keep_their_order_and_targets() {
    let config = load_with(&sample("with-routes.toml"), [], Purpose::Connect).expect("good").config;
    let germany = &config.route_maps[0];
    assert_eq!(germany.prefixes, ["0049", "+49"]);
    let connection = |id: &str| RouteTarget::Connection(id.to_owned().try_into().expect("an id"));
    let expected = [
        RouteEntry { target: connection("north-direct"), priority: 10 },
        RouteEntry { target: RouteTarget::Map("world".to_owned().try_into().expect("an id")), priority: 20 },
    ];
    assert_eq!(germany.entries, expected);
}

/// Everything that is wrong, each with all of its places.
fn places(text: &str, format: Format) -> Vec<String> {
    let result = load_text(name(format), text, format, [], Purpose::Look);
    let problems = result.map_or_else(|problems| problems, |loaded| loaded.warnings);
    let at = |position: Option<(usize, usize)>| {
        position.map_or_else(|| "-".to_owned(), |(line, column)| format!("{line}:{column}"))
    };
    let of = |position: &pointsman::config::Position| (position.line, position.column);
    let shown = problems.iter().map(|problem| {
        let related = problem
            .related
            .iter()
            .map(|related| format!("; {} {}", at(related.position.as_ref().map(of)), related.label));
        format!("{} {}{}", at(problem.position.as_ref().map(of)), problem.message, related.collect::<String>())
    });
    shown.collect()
}

/// A name that is not there, a duplicate, a circle: the report names both places, or all of them.
#[test]
fn mistakes_of_route_maps_name_both_places_in_toml() {
    let text = r#"[[connections]]
id = "vendor-a"
[[connections]]
id = "vendor-b"
[[routing_rules]]
id = "standard"
[[route_maps]]
id = "m"
prefixes = ["49", "49"]
rule = "standrd"
entries = [
  { connection = "vendor-c", priority = 1 },
  { connection = "vendor-b", priority = 1 },
  { connection = "vendor-b", priority = 2 },
  { map = "zzz", priority = 3 },
  { map = "n", priority = 4 },
]
[[route_maps]]
id = "n"
prefixes = ["49"]
entries = [{ map = "o", priority = 1 }, { map = "n", priority = 2 }]
[[route_maps]]
id = "o"
entries = [{ map = "m", priority = 1 }]
"#;
    let expected = [
        "9:19 the prefix \"49\" is there twice; 9:13 first used here",
        "10:8 there is no routing rule `standrd`; 8:6 in this route map; 6:6 this one is there",
        "12:18 there is no connection `vendor-c`; 8:6 in this route map; 2:6 this one is there",
        "14:18 the route map `m` has the connection `vendor-b` twice; 13:18 first here",
        "15:11 there is no route map `zzz`; 8:6 in this route map",
        "20:13 the prefix \"49\" is there twice; 9:19 first used here",
        "21:49 route maps contain each other: n -> n; 19:6 this is the map itself",
        "24:20 route maps contain each other: m -> n -> o -> m; 16:11 from here; 21:20 from here",
    ];
    assert_eq!(places(text, Format::Toml), expected);
}

#[test]
fn mistakes_of_route_maps_name_both_places_in_json() {
    let text = r#"{ "connections": [{ "id": "vendor-a" },
    { "id": "vendor-b" }],
  "routing_rules": [{ "id": "standard" }],
  "route_maps": [
    { "id": "m", "prefixes": ["49", "49"], "rule": "standrd",
      "entries": [
        { "connection": "vendor-c", "priority": 1 },
        { "connection": "vendor-b", "priority": 1 },
        { "connection": "vendor-b", "priority": 2 },
        { "map": "zzz", "priority": 3 },
        { "map": "n", "priority": 4 }] },
    { "id": "n", "prefixes": ["49"],
      "entries": [{ "map": "o", "priority": 1 }, { "map": "n", "priority": 2 }] },
    { "id": "o", "entries": [{ "map": "m", "priority": 1 }] }] }
"#;
    let expected = [
        "5:37 the prefix \"49\" is there twice; 5:31 first used here",
        "5:52 there is no routing rule `standrd`; 5:13 in this route map; 3:29 this one is there",
        "7:25 there is no connection `vendor-c`; 5:13 in this route map; 1:27 this one is there",
        "9:25 the route map `m` has the connection `vendor-b` twice; 8:25 first here",
        "10:18 there is no route map `zzz`; 5:13 in this route map",
        "12:31 the prefix \"49\" is there twice; 5:37 first used here",
        "13:59 route maps contain each other: n -> n; 12:13 this is the map itself",
        "14:39 route maps contain each other: m -> n -> o -> m; 11:18 from here; 13:28 from here",
    ];
    assert_eq!(places(text, Format::Json), expected);
}

#[test]
fn mistakes_of_route_maps_name_both_places_in_yaml() {
    let text = r#"connections:
  - id: vendor-a
  - id: vendor-b
routing_rules:
  - id: standard
route_maps:
  - id: m
    prefixes: ["49", "49"]
    rule: standrd
    entries:
      - { connection: vendor-c, priority: 1 }
      - { connection: vendor-b, priority: 1 }
      - { connection: vendor-b, priority: 2 }
      - map: zzz
        priority: 3
      - { map: n, priority: 4 }
  - id: n
    prefixes: "49"
    entries: [{ map: o, priority: 1 }, { map: n, priority: 2 }]
  - id: o
    entries:
      - map: m
        priority: 1
"#;
    let expected = [
        "8:22 the prefix \"49\" is there twice; 8:16 first used here",
        "9:11 there is no routing rule `standrd`; 7:9 in this route map; 5:9 this one is there",
        "11:23 there is no connection `vendor-c`; 7:9 in this route map; 2:9 this one is there",
        "13:23 the route map `m` has the connection `vendor-b` twice; 12:23 first here",
        "14:14 there is no route map `zzz`; 7:9 in this route map",
        "18:15 the prefix \"49\" is there twice; 8:22 first used here",
        "19:47 route maps contain each other: n -> n; 17:9 this is the map itself",
        "22:14 route maps contain each other: m -> n -> o -> m; 16:16 from here; 19:22 from here",
    ];
    assert_eq!(places(text, Format::Yaml), expected);
}

/// Sixteen levels are taken, however wide; one more is refused with the entry and the outermost map.
#[test]
fn maps_that_are_nested_too_deep_are_refused_and_many_ways_into_one_are_not() {
    // Each level has two maps, and each of them both of the next level: 2^16 ways to the last one.
    let level = |n: usize| {
        let entries = format!("[{{ map = 'a{0}', priority = 1 }}, {{ map = 'b{0}', priority = 2 }}]", n + 1);
        format!("[[route_maps]]\nid = 'a{n}'\nentries = {entries}\n[[route_maps]]\nid = 'b{n}'\nentries = {entries}\n")
    };
    let last = |n: usize| {
        let entries = "[{ connection = 'v', priority = 1 }]";
        format!("[[route_maps]]\nid = 'a{n}'\nentries = {entries}\n[[route_maps]]\nid = 'b{n}'\nentries = {entries}\n")
    };
    let text = |levels: usize, upwards: bool| {
        let mut maps: Vec<String> = (0..levels).map(level).chain([last(levels)]).collect();
        if upwards {
            maps.reverse();
        }
        format!("[[connections]]\nid = 'v'\n{}", maps.concat())
    };
    for upwards in [false, true] {
        assert_eq!(places(&text(16, upwards), Format::Toml), [""; 0]);
        let found = places(&text(17, upwards), Format::Toml);
        assert!(found.len() >= 2, "{found:?}");
        for found in found {
            assert!(found.contains(" route maps are nested more than 16 levels deep in `"), "{found}");
            assert!(found.ends_with(" nested in this one"), "{found}");
        }
    }
    let chain: String = (0..17)
        .map(|n| format!("[[route_maps]]\nid = 'm{n}'\nentries = [{{ map = 'm{}', priority = 1 }}]\n", n + 1))
        .collect();
    let chain = format!("{chain}[[route_maps]]\nid = 'm17'\nentries = []\n");
    let found = places(&chain, Format::Toml);
    assert!(
        found.contains(
            &"51:20 route maps are nested more than 16 levels deep in `m0`; 2:6 nested in this one".to_owned()
        ),
        "{found:#?}"
    );
}

/// `pm_conn_<connection>` and `pm_conn_<connection>_<map>`: two states cannot be in one variable.
#[test]
fn states_that_would_share_a_variable_are_refused_with_both_places() {
    // A connection as a whole, and another one within a map; the letters' case makes no difference.
    let whole = "[[connections]]\nid = 'a'\nquality.judge_per = 'map'\n[[connections]]\nid = 'A_b'\n\
                 [[route_maps]]\nid = 'B'\nentries = [{ connection = 'a', priority = 1 }]\n";
    let same = "would be in one variable, pm_conn_A_b; 2:6 the first";
    let expected = format!("5:6 the states of `a` in the route map `B` and of `A_b` {same}; 7:6 in this route map");
    assert_eq!(places(whole, Format::Toml), [expected]);
    // Within the outer map it is judged as well.
    let nested =
        whole.replace("'B'", "'inner'") + "[[route_maps]]\nid = 'b'\nentries = [{ map = 'inner', priority = 1 }]\n";
    let expected = format!("5:6 the states of `a` in the route map `b` and of `A_b` {same}; 10:6 in this route map");
    assert_eq!(places(&nested, Format::Toml), [expected]);
    // Two pairs.
    let toml = "[quality]\njudge_per = 'map'\n[[connections]]\nid = 'a_b'\n[[connections]]\nid = 'a'\n\
                [[route_maps]]\nid = 'c'\nentries = [{ connection = 'a_b', priority = 1 }]\n\
                [[route_maps]]\nid = 'b_c'\nentries = [{ connection = 'a', priority = 1 }]\n";
    let json = r#"{ "quality": { "judge_per": "map" }, "connections": [{ "id": "a_b" },
        { "id": "a" }], "variables": { "prefix": "x_" }, "route_maps": [
        { "id": "c", "entries": [{ "connection": "a_b", "priority": 1 }] },
        { "id": "b_c", "entries": [{ "connection": "a", "priority": 1 }] }] }"#;
    let yaml = "quality:\n  judge_per: map\nconnections:\n  - id: a_b\n  - id: a\nroute_maps:\n\
                \x20 - id: c\n    entries: [{ connection: a_b, priority: 1 }]\n\
                \x20 - id: b_c\n    entries: [{ connection: a, priority: 1 }]\n";
    let pairs = "the states of `a_b` in the route map `c` and of `a` in the route map `b_c` would be in one variable";
    let map = "in this route map";
    let expected = format!("6:6 {pairs}, pm_conn_a_b_c; 4:6 the first; 8:6 {map}; 11:6 {map}");
    assert_eq!(places(toml, Format::Toml), [expected]);
    let expected = format!("2:17 {pairs}, x_conn_a_b_c; 1:62 the first; 3:17 {map}; 4:17 {map}");
    assert_eq!(places(json, Format::Json), [expected]);
    let expected = format!("5:9 {pairs}, pm_conn_a_b_c; 4:9 the first; 7:9 {map}; 9:9 {map}");
    assert_eq!(places(yaml, Format::Yaml), [expected]);
    // Each in its own map only, or judged as a whole: nothing is shared.
    let apart = toml.replace("connection = 'a',", "connection = 'a_b',");
    let expected = "2:13 `judge_per` is \"map\", and no route map has `a`: judged as a whole";
    assert_eq!(places(&apart, Format::Toml), [expected]);
    assert_eq!(places(&toml.replace("'map'", "'connection'"), Format::Toml), [""; 0]);
    // The slots and the count of a map are there in any case of letters.
    let slot = "[[connections]]\nid = 'v'\n[[route_maps]]\nid = 'Intl'\nentries = [{ connection = 'v', priority = 1 }]\n\
                [[route_maps]]\nid = 'intl_2'\nentries = [{ connection = 'v', priority = 1 }]\n";
    let expected =
        "7:6 the variable of the route map `intl_2` is one of the variables of `Intl`; 4:6 this map has it too";
    assert_eq!(places(slot, Format::Toml), [expected]);
}

#[test]
fn what_is_judged_per_map_and_is_in_none_is_warned_of_once_for_each_place() {
    let text = "[quality]\njudge_per = 'map'\n[[connections]]\nid = 'u'\n[[connections]]\nid = 'v'\n[[connections]]\nid = 'w'\n\
                quality.judge_per = 'map'\n[[connections]]\nid = 'x'\n[[connections]]\nid = 'y'\nquality.judge_per = 'connection'\n\
                [[route_maps]]\nid = 'm'\nentries = [{ connection = 'x', priority = 1 }]\n";
    let expected = [
        "2:13 `judge_per` is \"map\", and no route map has `u`, `v`: judged as a whole",
        "9:21 `judge_per` is \"map\", and no route map has `w`: judged as a whole",
    ];
    assert_eq!(places(text, Format::Toml), expected);
}

/// A rule that changes nothing was not meant so.
#[test]
fn rules_without_effect_are_warned_of() {
    let maps = "[[connections]]\nid = 'v'\n[[route_maps]]\nid = 'm'\nprefixes = ['1']\nrule = 'r'\n\
                entries = [{ connection = 'v', priority = 1 }]\n";
    let rule = |more: &str| format!("{maps}[[routing_rules]]\nid = 'r'\n{more}\n");
    let off = "9:6 no criterion of the routing rule `r` is enabled: it changes nothing";
    let table: &[(&str, &[&str])] = &[
        ("", &[off]),
        ("success_percent = {}", &[off]),
        ("success_percent = { enabled = false, weight = 1, latency = 1, compensation = 0 }", &[off]),
        (
            "success_percent = { weight = 1, latency = 1, compensation = 0 }",
            &["10:19 the criterion `success_percent` is off: it does not say `enabled`"],
        ),
        (
            "[routing_rules.success_percent]\nlatency = 5",
            &["10:1 the criterion `success_percent` is off: it does not say `enabled`"],
        ),
        ("success_percent = { enabled = 'yes', weight = 1 }", &["10:31 `enabled` must be true or false, not text"]),
        ("success_percent = 5", &["10:19 `success_percent` must be a table, not a number"]),
        ("success_percent = { enabled = true, weight = 0, latency = 1, compensation = 0 }", &[]),
        ("success_percent = { enabled = true, weight = 1e6, latency = 1000000, compensation = 1e6 }", &[]),
        (
            "success_percent = { enabled = true }",
            &[
                "10:19 the enabled criterion `success_percent` has no `weight`",
                "10:19 the enabled criterion `success_percent` has no `latency`",
                "10:19 the enabled criterion `success_percent` has no `compensation`",
            ],
        ),
        ("success_percent = { enabled = true, weight = nan }", &["10:46 this is not a finite number"]),
        ("success_percent = { enabled = true, compensation = inf }", &["10:52 this is not a finite number"]),
        (
            "success_percent = { enabled = true, weight = 1e7, latency = 0, compensation = -0.1 }",
            &[
                "10:46 `weight` must be from 0 to 1000000",
                "10:61 `latency` must be from 1 to 1000000",
                "10:79 `compensation` must be from 0 to 1000000",
            ],
        ),
        (
            "success_percent = { enabled = true, weight = 1, latency = 0.5, compensation = '1' }",
            &[
                "10:59 `latency` must be a whole number, 0 or greater, not a number with decimals",
                "10:79 `compensation` must be a number, not text",
            ],
        ),
        (
            "avg_duration_sec = { enabled = true, weight = 1, latency = 1, compensation = 0 }\n[[routing_rules]]\nid = 's'",
            &["12:6 no route map uses the routing rule `s`"],
        ),
        (
            "[[routing_rules]]\nid = 'r'\n[[routing_rules]]\nid = ''\n[[routing_rules]]",
            &[
                off,
                "11:6 two routing rules have the id `r`; 9:6 first used here",
                "11:6 no criterion of the routing rule `r` is enabled: it changes nothing",
                "13:6 `id` must not be empty",
                "14:1 this routing rule has no `id`",
            ],
        ),
    ];
    check(table, |more| places(&rule(more), Format::Toml));
}

/// A nested map's own rule has no say in the outer map; a map that serves numbers, or is in no other, has its own.
#[test]
fn the_rule_of_a_map_that_is_only_nested_is_warned_of() {
    let rule = "[[connections]]\nid = 'v'\n[[routing_rules]]\nid = 'r'\n\
                success_percent = { enabled = true, weight = 1, latency = 1, compensation = 0 }\n";
    let inner = |more: &str| {
        format!("[[route_maps]]\nid = 'inner'\nrule = 'r'\nentries = [{{ connection = 'v', priority = 1 }}]\n{more}\n")
    };
    let outer = "[[route_maps]]\nid = 'outer'\nprefixes = ['']\nentries = [{ map = 'inner', priority = 1 }]\n";
    let toml = |more: &str, outer: &str| places(&format!("{rule}{}{outer}", inner(more)), Format::Toml);
    let said = "the rule of `inner` has no say where that map is nested, and it serves no numbers itself";
    assert_eq!(toml("", outer), [format!("8:8 {said}; 14:20 nested here")]);
    assert_eq!(toml("prefixes = ['1']", outer), [""; 0]);
    assert_eq!(toml("", ""), [""; 0]);
    let json = r#"{ "connections": [{ "id": "v" }], "routing_rules": [{ "id": "r",
        "success_percent": { "enabled": true, "weight": 1, "latency": 1, "compensation": 0 } }], "route_maps": [
        { "id": "outer", "entries": [{ "map": "inner", "priority": 1 }] },
        { "id": "inner", "rule": "r", "entries": [{ "connection": "v", "priority": 1 }] }] }"#;
    assert_eq!(places(json, Format::Json), [format!("4:34 {said}; 3:47 nested here")]);
    let yaml = "connections: [{ id: v }]\nrouting_rules:\n  - id: r\n    success_percent: { enabled: true, weight: 1, latency: 1, compensation: 0 }\n\
                route_maps:\n  - id: inner\n    rule: r\n    entries: [{ connection: v, priority: 1 }]\n\
                \x20 - id: outer\n    entries:\n      - map: inner\n        priority: 1\n";
    assert_eq!(places(yaml, Format::Yaml), [format!("7:11 {said}; 11:14 nested here")]);
}

/// An order that is too long for a node: the map, and the node.
#[test]
fn an_order_that_is_too_long_names_the_map_and_the_node() {
    let names: Vec<String> = (10..30).map(|n| format!("{}{n}", "v".repeat(60))).collect();
    let each = |one: &dyn Fn(&str) -> String, between: &str| {
        names.iter().map(|name| one(name)).collect::<Vec<_>>().join(between)
    };
    let toml = format!(
        "[[nodes]]\nid = 'f'\nkind = 'freeswitch'\naddress = 'h:1'\n[[nodes]]\nkind = 'asterisk'\nid = 'b'\naddress = 'h:2'\nusername = 'u'\n\
         [[route_maps]]\nid = 'm'\nentries = [{}]\n[[route_maps]]\nid = 'short'\nentries = [{{ connection = '{}', priority = 1 }}]\n\
         [[route_maps]]\nid = 'outer'\nnodes = ['b']\nentries = [{{ map = 'm', priority = 1 }}]\n{}\n",
        each(&|name| format!("{{ connection = '{name}', priority = 1 }}"), ", "),
        names[0],
        each(&|name| format!("[[connections]]\nid = '{name}'"), "\n"),
    );
    let json = format!(
        "{{ \"nodes\": [{{ \"kind\": \"asterisk\", \"id\": \"b\", \"address\": \"h:2\", \"username\": \"u\" }}],\n\"connections\": [{}],\n\
         \"route_maps\": [\n{{ \"entries\": [{}],\n  \"id\": \"m\" }}] }}",
        each(&|name| format!("{{ \"id\": \"{name}\" }}"), ", "),
        each(&|name| format!("{{ \"connection\": \"{name}\", \"priority\": 1 }}"), ", "),
    );
    let yaml = format!(
        "nodes:\n  - kind: asterisk\n    id: b\n    address: h:2\n    username: u\nroute_maps:\n  - id: m\n    entries: [{}]\nconnections: [{}]\n",
        each(&|name| format!("{{ connection: {name}, priority: 1 }}"), ", "),
        each(&|name| format!("{{ id: {name} }}"), ", "),
    );
    let said = "bytes on b, and Asterisk takes 1000 at most";
    let expected = [
        format!("11:6 the order of `m` takes 1281 {said}; 7:6 for this node"),
        format!("17:6 the order of `outer` takes 1285 {said}; 7:6 for this node"),
    ];
    assert_eq!(places(&toml, Format::Toml), expected);
    assert_eq!(places(&json, Format::Json), [format!("5:9 the order of `m` takes 1281 {said}; 1:41 for this node")]);
    assert_eq!(places(&yaml, Format::Yaml), [format!("7:9 the order of `m` takes 1281 {said}; 3:9 for this node")]);
    // It is found whatever else is wrong.
    assert_eq!(places(&(toml + "[log]\nformat = 'xml'\n"), Format::Toml)[..2], expected);
}

#[test]
fn an_order_that_is_too_long_for_asterisk_is_refused() {
    let asterisk = "[[nodes]]\nid = 'b'\nkind = 'asterisk'\naddress = 'h:1'\nusername = 'u'\npassword = 'x'\n";
    let connections: String = (10..30).map(|n| format!("[[connections]]\nid = '{}{n}'\n", "v".repeat(60))).collect();
    let entries: Vec<_> =
        (10..30).map(|n| format!("{{ connection = '{}{n}', priority = 1 }}", "v".repeat(60))).collect();
    let map = format!("[[route_maps]]\nid = 'm'\nentries = [{}]\n", entries.join(", "));
    let text = |nodes: &str, more: &str| format!("{nodes}{connections}{map}{more}");
    let problems = found(load(&text(&format!("{NODE}{asterisk}"), ""), Format::Toml));
    assert_eq!(problems, ["53:6 the order of `m` takes 1281 bytes on b, and Asterisk takes 1000 at most"]);
    // FreeSWITCH alone, or a map that is not for Asterisk, is no problem.
    good(&text(NODE, ""), Format::Toml);
    good(&text(&format!("{NODE}{asterisk}"), "nodes = ['a']\n"), Format::Toml);
}

#[test]
fn files_that_cannot_be_read_are_told_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let load = |file: &str, content: Option<&[u8]>| {
        let path = directory.path().join(file);
        if let Some(content) = content {
            std::fs::write(&path, content).expect("written");
        }
        load_with(&path, [], Purpose::Connect).expect_err("not a configuration").to_string()
    };
    assert!(load("none.toml", None).contains("No such file"), "missing");
    assert!(load("p.ini", Some(b"")).contains("must end in .toml, .json, .yaml or .yml"), "extension");
    assert!(load("p.toml", Some(b"a = 1\nb = \xff\n")).contains("line 2"), "not UTF-8");
    assert!(load("big.toml", Some(&vec![b'\n'; 9 << 20])).contains("larger than"), "too large");
    std::fs::create_dir(directory.path().join("d.toml")).expect("a directory");
    assert!(load("d.toml", None).contains("directory"), "a directory");
}

/// Whatever is wrong, and wherever: no report holds a password.
#[test]
fn secrets_are_in_no_report() {
    let toml = format!("{NODE}[[connections]]\nid = \"v\"\n").replace("\"x\"", "\"hunter2\"");
    let json = r#"{"nodes": [{"id": "a", "kind": "freeswitch", "address": "h:1", "password": "hunter2"}], "connections": [{"id": "v"}]}"#;
    let yaml = "nodes:\n- id: a\n  kind: freeswitch\n  address: h:1\n  password: hunter2\nconnections: [{id: v}]\n";
    let block = "nodes:\n- id: a\n  password: |\n    hunter2\n    hunter2\n  kind: x\n";
    let mail = "[email]\nfrom = 'a@b'\nserver = 'm'\nusername = 'u'\npassword = 'hunter2'\nhello_name = ''\n";
    let http = "[http]\nlisten = '0.0.0.0:1'\n[[http.tokens]]\nname = 'n'\nrole = 'read'\ntoken = 'hunter2'\n";
    let http_yaml = "http:\n  tokens:\n  - name: n\n    role: read\n    token: hunter2\n";
    let xds = "[xds]\n[[xds.tokens]]\nname = 'n'\ntoken = 'hunter2'\n[[xds.groups]]\nid = 'g'\n";
    let mail_json = r#"{"email": {"from": "a@b", "server": "m", "username": "u", "password": "hunter2"}}"#;
    for (text, format) in [
        (toml.as_str(), Format::Toml),
        (json, Format::Json),
        (yaml, Format::Yaml),
        (block, Format::Yaml),
        (mail, Format::Toml),
        (mail_json, Format::Json),
        (http, Format::Toml),
        (http_yaml, Format::Yaml),
        (xds, Format::Toml),
    ] {
        for (at, _) in text.char_indices() {
            for insert in ["x", "\"", "\n", "}"] {
                let broken = format!("{}{insert}{}", &text[..at], &text[at..]);
                if !broken.contains("hunter2") {
                    continue;
                }
                let Err(problems) = load(&broken, format) else { continue };
                let shown = format!("{problems}{}{problems:?}", serde_json::to_string(&problems).expect("JSON"));
                assert!(!shown.contains("hunter2"), "{broken}\n{shown}");
            }
        }
    }
    let variables = environment(&[
        ("POINTSMAN__NODES__PBX_01__PASSWORD", "hunter2\n"),
        ("POINTSMAN__NODES__PBX_01__PASWORD", "hunter2"),
        ("POINTSMAN__EMAIL__PASSWORD", "hunter2\n"),
        ("POINTSMAN__HTTP__TOKENS__NOC__TOKEN", "hunter2"),
        ("POINTSMAN__XDS__TOKENS__EDGE__TOKEN", "hunter2"),
        ("POINTSMAN__EMAIL__USERNAME", "u"),
        ("POINTSMAN__EMAIL__SERVER", "m"),
    ]);
    let problems = read_text(name(Format::Toml), PROMISED, Format::Toml, variables).expect_err("a line break");
    assert!(!format!("{problems}{problems:?}").contains("hunter2"), "{problems}");
}

/// No address is a URL, and somebody will write one all the same.
#[test]
fn a_login_in_a_url_is_in_no_report() {
    let text = "nodes:\n- id: a\n  kind: freeswitch\n  address: esl://x:hunter2@h:1\nemail:\n  from: a@b\n  server: smtp://u:hunter2@m\n";
    for text in [text, &format!("{text}*"), &format!("{text}  server: x\n")] {
        let problems = load(text, Format::Yaml).expect_err("mistakes");
        let shown = format!("{problems}{problems:?}{}", serde_json::to_string(&problems).expect("JSON"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    // What stands around it is shown.
    let text = r#"{"nodes": [{"id": "a", "kind": "x", "address": "esl://x:hunter2@h"}]}"#;
    let shown = load(text, Format::Json).expect_err("mistakes").to_string();
    assert!(shown.contains(r#""kind": "x", "address": "*****************"}"#), "{shown}");
}

/// Pieces that configurations are made of, in any order.
fn garbage() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "[[nodes]]\n",
        "[quality]\n",
        "id",
        " = ",
        ": ",
        "\"",
        "'",
        "\"\"\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\n",
        "  ",
        "- ",
        "\t",
        "nodes",
        "password",
        "true",
        "1",
        "-",
        "1e9",
        "0x",
        "\u{fc}",
        "\u{1f512}",
        "#",
        "&a ",
        "*a",
        "!!int ",
        "|\n",
        ">\n",
        "? ",
        "\\",
        "\r\n",
        "\0",
        "---\n",
        "...\n",
        "~",
        "connections:\n- id: v\n",
        "\u{feff}",
        "<<",
        "%TAG ! x\n",
        "1979-05-27",
    ]);
    prop::collection::vec(prop_oneof![9 => pieces.prop_map(str::to_owned), 1 => ".{0,8}"], 0..40)
        .prop_map(|pieces| pieces.concat())
}

/// A good file with a piece of it replaced.
fn damaged(file: &'static str) -> impl Strategy<Value = String> {
    let text = std::fs::read_to_string(sample(file)).expect("the sample");
    (any::<prop::sample::Index>(), 0..40usize, garbage()).prop_map(move |(at, length, piece)| {
        let boundary = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let at = boundary(at.index(text.len()));
        format!("{}{piece}{}", &text[..at], &text[boundary(at + length).max(at)..])
    })
}

fn survives(text: &str, format: Format) {
    let result = load(text, format);
    let problems = result.as_ref().map_or_else(|problems| problems, |loaded| &loaded.warnings);
    let lines = text.split('\n').count();
    for position in problems.iter().filter_map(|problem| problem.position.as_ref()) {
        assert!(position.line >= 1 && position.line <= lines && position.column >= 1, "{position:?}");
    }
    assert_eq!(result.is_err(), problems.errors() > 0);
    assert!(!problems.render(true).is_empty() || problems.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in garbage()) {
        for format in [Format::Toml, Format::Json, Format::Yaml] {
            survives(&text, format);
        }
    }

    #[test]
    fn no_damage_makes_it_panic(toml in damaged("pointsman.toml"), json in damaged("pointsman.json"), yaml in damaged("pointsman.yaml")) {
        survives(&toml, Format::Toml);
        survives(&json, Format::Json);
        survives(&yaml, Format::Yaml);
    }

    #[test]
    fn no_variable_makes_it_panic(name in "[A-Z0-9_]{0,20}(__[A-Z0-9_]{1,20}){0,4}", value in ".{0,20}") {
        for place in ["", "NODES__PBX_01__", "CONNECTIONS__VENDOR_A__QUALITY__"] {
            let variables = environment(&[(&format!("POINTSMAN__{place}{name}"), &value)]);
            let _ = read_text(Path::new("p.toml"), PROMISED, Format::Toml, variables);
        }
    }
}
