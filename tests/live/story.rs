//! The whole story on a real switch: a vendor fails, is lowered or blocked, gets its retry and recovers, and neither
//! the end of the switch nor that of the program is in the way.

use std::time::Duration;

use pointsman::engine::view::LinkState;
use pointsman::quality::machine::{Reason, State};

use crate::lab::asterisk::{Asterisk, Kind};
use crate::lab::pbx::{Pbx, Switch};
use crate::lab::pointsman::{Node, Pointsman, configuration, connection, node};
use crate::lab::sipp::{Behaviour, Caller, Vendor, call, place};
use crate::lab::{SOON, eventually};

/// From the end of a call to a durable row it takes 50 ms at most; kill -9 may lose that much and no more.
pub(crate) const DURABLE: Duration = Duration::from_millis(100);

/// How every number begins that a scene calls.
pub(crate) const NUMBERS: &str = "004930";

/// A switch, two vendors and the program over them.
pub(crate) struct Scene {
    pub(crate) first: Vendor,
    second: Vendor,
    pbx: Box<dyn Pbx>,
    pub(crate) pointsman: Pointsman,
    calls: u32,
}

impl Scene {
    fn new(switch: Switch, quality: &str) -> Self {
        Self::with(switch, quality, |text| text)
    }

    /// The same with a configuration that is changed before it is used.
    pub(crate) fn with(switch: Switch, quality: &str, change: impl FnOnce(String) -> String) -> Self {
        let first = Vendor::start("vendor-a", Behaviour::Good);
        let second = Vendor::start("vendor-b", Behaviour::Good);
        let pbx = switch.start(&[&first, &second]);
        let quality = format!("monitor_asr = true\nasr_threshold_percent = 50\nstatistics_window = 4\n{quality}");
        let text = configuration(&[pbx.node("pbx")], &["vendor-a", "vendor-b"], &quality);
        let pointsman = Pointsman::start(&change(text));
        pointsman.is_in_step_with("pbx");
        let scene = Self { first, second, pbx, pointsman, calls: 0 };
        scene.order_becomes("vendor-a,vendor-b");
        scene
    }

    /// Places a call; gives what the caller got and the vendors that were tried, in order.
    pub(crate) fn call(&mut self) -> (u16, Vec<String>) {
        self.calls += 1;
        let number = format!("{NUMBERS}{:07}", self.calls);
        let status = call(&*self.pbx, &self.pbx.hunted(&number), Caller::Talks(200));
        let tried = self.pbx.tried(&number);
        // The vendors' own books say the same.
        for vendor in [&self.first, &self.second] {
            assert_eq!(vendor.got(&number), tried.contains(&vendor.name), "{} and call {number}", vendor.name);
        }
        (status, tried)
    }

    /// Waits until the variable, read by a session of our own, is that.
    pub(crate) fn order_becomes(&self, order: &str) {
        let what = format!("the hunt order to become {order}");
        eventually(&what, SOON, || (self.pbx.order("intl") == order).then_some(()));
    }

    fn variable(&self, name: &str) -> String {
        self.pbx.global(name)
    }

    /// Waits until the vendor is in that state.
    pub(crate) fn first_becomes(&self, state: State, within: Duration) {
        let what = format!("vendor-a to become {state:?}");
        self.pointsman.shows(&what, within, |view| (connection(view, "vendor-a").state == state).then_some(()));
    }

    /// Four good calls, then the vendor fails until it is bad: with the fourth call of the window under 50 %.
    pub(crate) fn vendor_goes_bad(&mut self) {
        for _ in 0..4 {
            assert_eq!(self.call(), (200, vec!["vendor-a".to_owned()]));
        }
        self.pointsman.shows("four calls counted", SOON, |view| {
            let seen = connection(view, "vendor-a");
            (seen.state == State::Good && seen.figures.calls == 4 && seen.figures.asr == Some(100.0)).then_some(())
        });
        self.first.turn(Behaviour::Refuses(503));
        for _ in 0..3 {
            assert_eq!(self.call(), (200, vec!["vendor-a".to_owned(), "vendor-b".to_owned()]));
        }
        self.first_becomes(State::Bad, SOON);
    }
}

fn lowered_and_recovered(switch: Switch) {
    let mut scene = Scene::new(switch, "retry_interval_sec = 30\nretry_batch = 3");
    scene.vendor_goes_bad();

    // Lowered: the very next call does not try it, unless everybody else fails.
    scene.order_becomes("vendor-b,vendor-a");
    assert_eq!(scene.variable("pm_conn_vendor-a"), "last");
    assert_eq!(scene.call(), (200, vec!["vendor-b".to_owned()]));
    scene.second.turn(Behaviour::Refuses(503));
    assert_eq!(scene.call(), (503, vec!["vendor-b".to_owned(), "vendor-a".to_owned()]));
    scene.second.turn(Behaviour::Good);

    // Killed: the switch keeps the order, and the program goes on where it was.
    let counted = |scene: &Scene| {
        scene.pointsman.shows("the last call counted", SOON, |view| {
            (connection(view, "vendor-a").batch_done == Some(1)).then(|| view.clone())
        })
    };
    let before = counted(&scene);
    std::thread::sleep(DURABLE);
    scene.pointsman.kill();
    assert_eq!(scene.pbx.order("intl"), "vendor-b,vendor-a");
    assert_eq!(scene.call(), (200, vec!["vendor-b".to_owned()]));
    scene.pointsman.go();
    scene.pointsman.is_in_step_with("pbx");
    let after = counted(&scene);
    for id in ["vendor-a", "vendor-b"] {
        let (before, after) = (connection(&before, id), connection(&after, id));
        assert_eq!(
            (after.state, after.since, after.retry_at, after.figures, after.batch_done),
            (before.state, before.since, before.retry_at, before.figures, before.batch_done)
        );
    }
    assert_eq!(after.changes.first().map(|c| c.change.epoch), before.changes.first().map(|c| c.change.epoch));
    assert!(after.generation >= before.generation);

    // The switch is restarted: what it forgot is written again.
    scene.pbx.stop();
    scene.pbx.boot();
    scene.order_becomes("vendor-b,vendor-a");
    scene.pointsman.is_in_step_with("pbx");
    assert_eq!(scene.variable("pm_conn_vendor-a"), "last");

    // The interval is over: back in its usual place for a batch, and good again with the last call of it.
    scene.first.turn(Behaviour::Good);
    scene.first_becomes(State::Retry, Duration::from_secs(60));
    scene.order_becomes("vendor-a,vendor-b");
    assert_eq!(scene.variable("pm_conn_vendor-a"), "retry");
    assert_eq!(scene.call(), (200, vec!["vendor-a".to_owned()]));
    counted(&scene);
    std::thread::sleep(DURABLE);
    scene.pointsman.kill();
    scene.pointsman.go();
    scene.pointsman.is_in_step_with("pbx");
    assert_eq!(connection(&counted(&scene), "vendor-a").state, State::Retry);
    for _ in 0..2 {
        assert_eq!(scene.call(), (200, vec!["vendor-a".to_owned()]));
    }
    scene.first_becomes(State::Good, SOON);
    scene.order_becomes("vendor-a,vendor-b");
    eventually("pm_conn_vendor-a to say good", SOON, || {
        ["", "good"].contains(&scene.variable("pm_conn_vendor-a").as_str()).then_some(())
    });

    // What happened is on record, newest first.
    let changes = scene.pointsman.view().expect("it answers").changes;
    let reasons: Vec<_> = changes.iter().map(|c| (c.change.from, c.change.to, c.change.reason)).collect();
    assert_eq!(
        reasons,
        [
            (State::Retry, State::Good, Reason::Batch),
            (State::Bad, State::Retry, Reason::RetryInterval),
            (State::Good, State::Bad, Reason::Asr),
        ]
    );
}

#[test]
fn lowered_and_recovered_on_a_recent_asterisk() {
    lowered_and_recovered(Switch::Asterisk(Kind::Recent));
}

#[test]
fn lowered_and_recovered_on_asterisk_16() {
    lowered_and_recovered(Switch::Asterisk(Kind::Old));
}

#[test]
fn lowered_and_recovered_on_asterisk_16_with_chan_sip() {
    lowered_and_recovered(Switch::Asterisk(Kind::OldChanSip));
}

#[test]
fn lowered_and_recovered_on_freeswitch() {
    lowered_and_recovered(Switch::FreeSwitch);
}

fn blocked_and_recovered(switch: Switch) {
    let mut scene = Scene::new(switch, "retry_interval_sec = 12\nretry_batch = 2\nbad_quality_action = \"block\"");
    scene.vendor_goes_bad();
    scene.order_becomes("vendor-b");
    assert_eq!(scene.variable("pm_conn_vendor-a"), "blocked");

    // Not tried at all, even where everybody else fails.
    scene.second.turn(Behaviour::Refuses(503));
    assert_eq!(scene.call(), (503, vec!["vendor-b".to_owned()]));
    scene.second.turn(Behaviour::Good);

    // Still broken when its batch comes: blocked for another interval.
    scene.first_becomes(State::Retry, SOON);
    scene.order_becomes("vendor-a,vendor-b");
    for _ in 0..2 {
        assert_eq!(scene.call(), (200, vec!["vendor-a".to_owned(), "vendor-b".to_owned()]));
    }
    scene.first_becomes(State::Bad, SOON);
    scene.order_becomes("vendor-b");

    // Repaired when the next batch comes.
    scene.first.turn(Behaviour::Good);
    scene.first_becomes(State::Retry, SOON);
    scene.order_becomes("vendor-a,vendor-b");
    for _ in 0..2 {
        assert_eq!(scene.call(), (200, vec!["vendor-a".to_owned()]));
    }
    scene.first_becomes(State::Good, SOON);
}

#[test]
fn blocked_and_recovered_on_a_recent_asterisk() {
    blocked_and_recovered(Switch::Asterisk(Kind::Recent));
}

#[test]
fn blocked_and_recovered_on_asterisk_16() {
    blocked_and_recovered(Switch::Asterisk(Kind::Old));
}

#[test]
fn blocked_and_recovered_on_freeswitch() {
    blocked_and_recovered(Switch::FreeSwitch);
}

/// A stopped program leaves the last order; `pointsman clear` puts the static one back.
#[test]
fn stopped_and_cleared() {
    let mut scene = Scene::new(Switch::Asterisk(Kind::Recent), "retry_interval_sec = 600\nretry_batch = 3");
    scene.vendor_goes_bad();
    scene.order_becomes("vendor-b,vendor-a");
    scene.pointsman.stop();
    assert_eq!(scene.pbx.order("intl"), "vendor-b,vendor-a");
    assert_eq!(scene.variable("pm_conn_vendor-a"), "last");
    let output = scene.pointsman.command(&["clear", "--config", "pointsman.toml"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(scene.pbx.order("intl"), "vendor-a,vendor-b");
    assert_ne!(scene.variable("pm_conn_vendor-a"), "last");
    assert_eq!(scene.call(), (200, vec!["vendor-a".to_owned(), "vendor-b".to_owned()]));
}

/// Calls that are up when the program is killed are up when it comes back, and are measured by their real times when
/// they end; calls that are up when the switch crashes have ended unseen: answered, for who knows how long.
fn calls_up_across_ends(switch: Switch) {
    let first = Vendor::start("vendor-a", Behaviour::Instant);
    let mut pbx = switch.start(&[&first]);
    let mut pointsman = Pointsman::start(&configuration(&[pbx.node("pbx")], &["vendor-a"], ""));
    pointsman.is_in_step_with("pbx");
    let up = |pointsman: &Pointsman, calls: usize| {
        pointsman.shows(&format!("{calls} calls up"), SOON, |view| {
            let link = node(view, "pbx").link.state;
            (link == LinkState::Up && connection(view, "vendor-a").active_calls == calls).then_some(())
        });
    };
    let talking = place(&*pbx, &pbx.hunted("001"), Caller::Talks(8000), 1, 1);
    up(&pointsman, 1);
    std::thread::sleep(DURABLE);
    pointsman.kill();
    pointsman.go();
    up(&pointsman, 1);
    assert_eq!(talking.finals(SOON), [200]);
    let figures = pointsman.shows("the call counted", SOON, |view| {
        let figures = connection(view, "vendor-a").figures;
        (figures.calls == 1).then_some(figures)
    });
    assert_eq!(figures.asr, Some(100.0));
    assert!(figures.acd.is_some_and(|acd| (7.8..9.0).contains(&acd)), "{figures:?}");

    let talking = place(&*pbx, &pbx.hunted("002"), Caller::Talks(120_000), 1, 1);
    up(&pointsman, 1);
    let acd = figures.acd;
    pbx.crash();
    pbx.boot();
    pointsman.is_in_step_with("pbx");
    let figures = pointsman.shows("the end that nobody saw", SOON, |view| {
        let seen = connection(view, "vendor-a");
        let unseen = node(view, "pbx").link.ends_unseen_answered;
        (seen.figures.calls == 2 && seen.active_calls == 0 && unseen == 1).then_some(seen.figures)
    });
    assert_eq!((figures.asr, figures.acd), (Some(100.0), acd));
    drop(talking);
}

#[test]
fn calls_up_across_ends_on_a_recent_asterisk() {
    calls_up_across_ends(Switch::Asterisk(Kind::Recent));
}

#[test]
fn calls_up_across_ends_on_asterisk_16() {
    calls_up_across_ends(Switch::Asterisk(Kind::Old));
}

#[test]
fn calls_up_across_ends_on_freeswitch() {
    calls_up_across_ends(Switch::FreeSwitch);
}

/// A value that somebody else changes is put back, and reported.
#[test]
fn a_changed_variable_is_put_back() {
    let first = Vendor::start("vendor-a", Behaviour::Good);
    let asterisk = Asterisk::start(Kind::Recent, &[&first]);
    let text = configuration(&[asterisk.node("pbx")], &["vendor-a"], "");
    let pointsman = Pointsman::start(&(text + "[variables]\nreconcile_every_sec = 5\n"));
    pointsman.is_in_step_with("pbx");
    let mut manager = asterisk.manager();
    manager.set_global("pm_route_intl", "somebody-else");
    eventually("the value to be put back", SOON, || (manager.global("pm_route_intl") == "vendor-a").then_some(()));
    pointsman.shows("the repair reported", SOON, |view| (node(view, "pbx").variables.repaired >= 1).then_some(()));
}

/// With `astdb = true` the order outlives the switch, and the program need not be there.
fn kept_in_astdb(kind: Kind) {
    let vendors = ["vendor-a", "vendor-b"].map(|name| Vendor::start(name, Behaviour::Refuses(503)));
    let mut asterisk = Asterisk::start_with(kind, &vendors.each_ref(), "call,reporting,system");
    let node = Node { more: "astdb = true\nslots = true".to_owned(), ..Node::of("pbx", &asterisk) };
    // Not the static order of the dialplan.
    let mut pointsman = Pointsman::start(&configuration(&[node.text()], &["vendor-b", "vendor-a"], ""));
    pointsman.is_in_step_with("pbx");
    let slots = [1, 2].map(|slot| asterisk.global(&format!("pm_route_intl_{slot}")));
    assert_eq!(slots, ["vendor-b", "vendor-a"]);
    pointsman.stop();
    asterisk.stop();
    asterisk.boot();
    assert_eq!(asterisk.order("intl"), "");
    assert_eq!(call(&asterisk, &asterisk.hunted("001"), Caller::Talks(0)), 503);
    assert_eq!(asterisk.tried("001"), ["vendor-b", "vendor-a"]);
    // Too old: the static order.
    let put = [("Action", "DBPut"), ("Family", "pm"), ("Key", "pm_route_intl"), ("Val", "1700000000:vendor-b")];
    asterisk.manager().ask(&put).expect("it answers");
    assert_eq!(call(&asterisk, &asterisk.hunted("002"), Caller::Talks(0)), 503);
    assert_eq!(asterisk.tried("002").first().map(String::as_str), Some("vendor-a"));
}

#[test]
fn kept_in_astdb_on_a_recent_asterisk() {
    kept_in_astdb(Kind::Recent);
}

#[test]
fn kept_in_astdb_on_asterisk_16() {
    kept_in_astdb(Kind::Old);
}
