//! Route maps on real switches: which map a call belongs to, a rule that learns from it and brings a bypassed route back,
//! verdicts per map, and a configuration that changes while calls are up.

use pointsman::engine::view::{MapView, View};
use pointsman::quality::machine::State;
use pointsman::routing::rule::Measure;
use serde_json::Value;

use crate::lab::asterisk::Kind;
use crate::lab::pbx::{Pbx, Switch};
use crate::lab::pointsman::{Pointsman, connection, node};
use crate::lab::sipp::{Behaviour, Caller, Vendor, call, place};
use crate::lab::{SOON, eventually};

/// The dialplan names "intl" for hunted calls; of the others, which go to both vendors at once, the number decides.
const PLAN: &str = r#"
[[connections]]
id = "vendor-a"
[[connections]]
id = "vendor-b"
[[routing_rules]]
id = "standard"
success_percent = { enabled = true, weight = 40, latency = 1, compensation = 30 }
[[route_maps]]
id = "intl"
prefixes = ["00"]
rule = "standard"
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
[[route_maps]]
id = "uk"
prefixes = ["0044"]
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
"#;

const QUALITY: &str = r#"
[quality]
judge_per = "map"
monitor_asr = true
asr_threshold_percent = 50
statistics_window = 2
retry_interval_sec = 3600
"#;

struct Scene {
    first: Vendor,
    _second: Vendor,
    pbx: Box<dyn Pbx>,
    pointsman: Pointsman,
    calls: u32,
}

impl Scene {
    fn new(switch: Switch, quality: &str) -> Self {
        let first = Vendor::start("vendor-a", Behaviour::Good);
        let second = Vendor::start("vendor-b", Behaviour::Good);
        let pbx = switch.start(&[&first, &second]);
        let pointsman = Pointsman::start(&format!("{quality}{}{PLAN}", pbx.node("pbx")));
        pointsman.is_in_step_with("pbx");
        Self { first, _second: second, pbx, pointsman, calls: 0 }
    }

    /// A call that hunts over "intl"; gives the vendors that were tried.
    fn hunt(&mut self, prefix: &str) -> Vec<String> {
        self.calls += 1;
        let number = format!("{prefix}{:07}", self.calls);
        assert_eq!(call(&*self.pbx, &self.pbx.hunted(&number), Caller::Talks(200)), 200);
        self.pbx.tried(&number)
    }

    /// A call that goes to both vendors at once, and that no dialplan says the map of.
    fn fork(&mut self, prefix: &str) {
        self.calls += 1;
        let number = format!("{prefix}{:07}", self.calls);
        assert_eq!(call(&*self.pbx, &self.pbx.forked(&number), Caller::Talks(200)), 200);
    }

    fn map_shows<T>(&self, name: &str, what: &str, look: impl Fn(&MapView) -> Option<T>) -> T {
        let map = |view: &View| look(view.maps.iter().find(|map| map.id.as_str() == name)?);
        self.pointsman.shows(what, SOON, map)
    }

    /// Waits until estimate and compensation of a route of "intl" are these.
    fn knows(&self, route: &str, estimate: Option<f64>, compensation: f64) {
        self.map_shows("intl", &format!("{route} at {estimate:?} and {compensation}"), |map| {
            let route = map.routes.iter().find(|one| one.connection.as_str() == route)?;
            let seen = route.criteria[&Measure::SuccessPercent];
            ((seen.estimate, seen.compensation) == (estimate, compensation)).then_some(())
        });
    }

    fn order_becomes(&self, map: &str, order: &str) {
        let what = format!("the order of {map} to become {order}");
        eventually(&what, SOON, || (self.pbx.order(map) == order).then_some(()));
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.pointsman.command(&[args, &["--config", "pointsman.toml", "--json"]].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"))
    }
}

/// `latency = 1`: the estimate is the last call. 100 points are worth 40 of priority, the 10 between the two are worth 25
/// points, and a bypass is worth 30: after three of them `vendor-a` is first again.
fn a_rule_learns_and_tries_the_bypassed_route_again(switch: Switch) {
    let mut scene = Scene::new(switch, "");
    scene.first.turn(Behaviour::Refuses(503));
    assert_eq!(scene.hunt("0049"), ["vendor-a", "vendor-b"]);
    // The hunt had tried vendor-a before: nothing was bypassed. Its estimate came before vendor-b was tried.
    scene.knows("vendor-a", Some(0.0), 0.0);
    scene.knows("vendor-b", Some(100.0), 0.0);
    scene.order_becomes("intl", "vendor-b,vendor-a");
    for bypass in [30.0, 60.0] {
        assert_eq!(scene.hunt("0049"), ["vendor-b"]);
        scene.knows("vendor-a", Some(0.0), bypass);
        assert_eq!(scene.pbx.order("intl"), "vendor-b,vendor-a");
    }
    assert_eq!(scene.hunt("0049"), ["vendor-b"]);
    scene.order_becomes("intl", "vendor-a,vendor-b");
    let table = scene.json(&["test-call", "00491"]);
    let first = &table["routes"][0];
    assert_eq!((&first["connection"], &first["dynamic_priority"]), (&"vendor-a".into(), &4.0.into()), "{table}");
    let report = scene.json(&["test-dialplan", "00491"]);
    assert_eq!((&report["agrees"], &report["nodes"][0]["problem"]), (&true.into(), &"".into()), "{report}");

    // A restart forgets nothing of it.
    scene.pointsman.stop();
    scene.pointsman.go();
    scene.pointsman.is_in_step_with("pbx");
    scene.knows("vendor-a", Some(0.0), 90.0);
    assert_eq!(scene.pbx.order("intl"), "vendor-a,vendor-b");
    assert_eq!(scene.hunt("0049"), ["vendor-a", "vendor-b"]);
    scene.knows("vendor-a", Some(0.0), 0.0);
    scene.order_becomes("intl", "vendor-b,vendor-a");
}

fn a_vendor_is_lowered_for_the_destination_that_it_fails_for(switch: Switch) {
    let mut scene = Scene::new(switch, QUALITY);
    scene.first.turn(Behaviour::Refuses(503));
    for _ in 0..2 {
        scene.fork("0044");
    }
    let state = |view: &View, key: &str| connection(view, key).state;
    scene.pointsman.shows("vendor-a bad for uk", SOON, |view| {
        (state(view, "vendor-a (uk)") == State::Bad && state(view, "vendor-a (intl)") == State::Good).then_some(())
    });
    scene.order_becomes("uk", "vendor-b,vendor-a");
    assert_eq!(scene.pbx.order("intl"), "vendor-a,vendor-b");
    assert_eq!(scene.pbx.global("pm_conn_vendor-a_uk"), "last");
    // What the dialplan says goes before the number.
    scene.first.turn(Behaviour::Good);
    assert_eq!(scene.hunt("0044"), ["vendor-a"]);
    scene
        .pointsman
        .shows("a call of intl", SOON, |view| (connection(view, "vendor-a (intl)").figures.calls == 1).then_some(()));
    let report = scene.json(&["test-dialplan", "00441"]);
    assert_eq!((&report["agrees"], &report["map"]), (&true.into(), &"uk".into()), "{report}");
    assert_eq!(report["routes"][1]["quality"], "Connection preference lowered due to bad quality");
}

fn another_configuration_is_taken_while_calls_are_up(switch: Switch) {
    let mut scene = Scene::new(switch, "");
    scene.hunt("0049");
    scene.knows("vendor-a", Some(100.0), 0.0);
    let calls = place(&*scene.pbx, &scene.pbx.hunted("00491234567"), Caller::Talks(3_000), 1, 1);
    scene.pointsman.shows("a call that is up", SOON, |view| (node(view, "pbx").active_calls == 1).then_some(()));

    let refused = scene.pointsman.change(|text| text.replace("connection = \"vendor-b\"", "connection = \"vendor-x\""));
    let output = scene.pointsman.command(&["reload-route-maps", "--config", "pointsman.toml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    scene.pointsman.change(|_| refused);
    assert_eq!(scene.pbx.order("intl"), "vendor-a,vendor-b");
    scene.knows("vendor-a", Some(100.0), 0.0);

    scene.pointsman.change(|text| {
        text.replace(
            "id = \"uk\"\nprefixes = [\"0044\"]\nentries = [{ connection = \"vendor-a\", priority = 10 }",
            "id = \"uk\"\nprefixes = [\"0044\"]\nentries = [{ connection = \"vendor-a\", priority = 30 }",
        )
    });
    let output = scene.pointsman.command(&["reload-route-maps", "--config", "pointsman.toml"]);
    assert!(output.status.success(), "{output:?}");
    scene.order_becomes("uk", "vendor-b,vendor-a");
    scene.knows("vendor-a", None, 0.0);
    // The call was placed before, and its end counts.
    assert_eq!(calls.finals(SOON), [200]);
    scene.knows("vendor-a", Some(100.0), 0.0);
    let connects = scene.pointsman.shows("the node", SOON, |view| Some(node(view, "pbx").link.connects));
    assert_eq!(connects, 1);
}

#[test]
fn a_rule_learns_on_a_recent_asterisk() {
    a_rule_learns_and_tries_the_bypassed_route_again(Switch::Asterisk(Kind::Recent));
}

#[test]
fn a_rule_learns_on_asterisk_16() {
    a_rule_learns_and_tries_the_bypassed_route_again(Switch::Asterisk(Kind::Old));
}

#[test]
fn a_rule_learns_on_freeswitch() {
    a_rule_learns_and_tries_the_bypassed_route_again(Switch::FreeSwitch);
}

#[test]
fn a_vendor_is_lowered_for_one_destination_on_a_recent_asterisk() {
    a_vendor_is_lowered_for_the_destination_that_it_fails_for(Switch::Asterisk(Kind::Recent));
}

#[test]
fn a_vendor_is_lowered_for_one_destination_on_freeswitch() {
    a_vendor_is_lowered_for_the_destination_that_it_fails_for(Switch::FreeSwitch);
}

#[test]
fn another_configuration_is_taken_by_a_program_over_a_recent_asterisk() {
    another_configuration_is_taken_while_calls_are_up(Switch::Asterisk(Kind::Recent));
}

#[test]
fn another_configuration_is_taken_by_a_program_over_freeswitch() {
    another_configuration_is_taken_while_calls_are_up(Switch::FreeSwitch);
}
