//! The shipped Asterisk dialplan on real switches, without pointsman: the hunt order is set by hand.

use crate::lab::asterisk::{Asterisk, Kind};
use crate::lab::sipp::{Behaviour, Caller, Vendor, call};

/// What a vendor does first, whether the hunt goes on to the good one behind it, what the caller gets.
///
/// Asterisk turns causes into SIP its own way: 34 is a 503, 17 a 486, 19 a 480, 1 a 404; the rest differs by release.
const FIRST_VENDOR: &[(Behaviour, bool, &[u16])] = &[
    (Behaviour::Good, false, &[200]),
    (Behaviour::Early, false, &[200]),
    (Behaviour::Instant, false, &[200]),
    // The vendor's fault: on to the next.
    (Behaviour::Refuses(503), true, &[200]),
    (Behaviour::Refuses(500), true, &[200]),
    (Behaviour::Refuses(403), true, &[200]),
    (Behaviour::Refuses(488), true, &[200]),
    (Behaviour::RingsThenRefuses(503), true, &[200]),
    (Behaviour::Silent, true, &[200]),
    // The called person or the number: nobody could do better.
    (Behaviour::Refuses(486), false, &[486]),
    (Behaviour::RingsThenRefuses(486), false, &[486]),
    (Behaviour::Refuses(600), false, &[486]),
    (Behaviour::Refuses(603), false, &[603, 403]),
    (Behaviour::Refuses(480), false, &[480]),
    (Behaviour::Refuses(404), false, &[404]),
    (Behaviour::Refuses(410), false, &[410]),
    (Behaviour::Refuses(484), false, &[484]),
    (Behaviour::RingsForEver, false, &[480]),
    (Behaviour::RingsThenRefuses(487), false, &[480]),
];

fn hunt_ends_where_it_should(kind: Kind) {
    let mut first = Vendor::start("vendor-a", Behaviour::Good);
    let second = Vendor::start("vendor-b", Behaviour::Good);
    let asterisk = Asterisk::start(kind, &[&first, &second]);
    asterisk.manager().set_global("pm_route_intl", "vendor-a,vendor-b");
    let mut wrong = Vec::new();
    for (i, &(behaviour, goes_on, expected)) in FIRST_VENDOR.iter().enumerate() {
        let number = format!("00{i:04}");
        first.turn(behaviour);
        let status = call(&asterisk, &format!("1{number}"), Caller::Talks(100));
        if !first.got(&number) || second.got(&number) != goes_on || !expected.contains(&status) {
            wrong.push(format!("{behaviour:?}: next tried {}, the caller got {status}", second.got(&number)));
        }
    }
    assert!(wrong.is_empty(), "{kind:?}:\n{}", wrong.join("\n"));
    first.turn(Behaviour::Dead);
    assert_eq!(asterisk.log_lines("ERROR").iter().filter(|line| line.contains("pbx")).count(), 0);
}

#[test]
fn hunt_ends_where_it_should_on_a_recent_asterisk() {
    hunt_ends_where_it_should(Kind::Recent);
}

#[test]
fn hunt_ends_where_it_should_on_asterisk_16() {
    hunt_ends_where_it_should(Kind::Old);
}

#[test]
fn hunt_ends_where_it_should_on_asterisk_16_with_chan_sip() {
    hunt_ends_where_it_should(Kind::OldChanSip);
}

fn hunt_follows_the_variable(kind: Kind) {
    let vendors = ["vendor-a", "vendor-b", "vendor-c"].map(|name| Vendor::start(name, Behaviour::Refuses(503)));
    let asterisk = Asterisk::start(kind, &vendors.each_ref());
    let mut manager = asterisk.manager();
    let who = |number: &str| -> Vec<&str> {
        vendors.iter().filter(|vendor| vendor.got(number)).map(|vendor| vendor.name.as_str()).collect()
    };
    // Never written: the static order.
    assert_eq!(call(&asterisk, "1001", Caller::Talks(0)), 503);
    assert_eq!(who("001"), ["vendor-a", "vendor-b", "vendor-c"]);
    // One trunk alone; one that this Asterisk does not know is passed over.
    manager.set_global("pm_route_intl", "vendor-c");
    assert_eq!(call(&asterisk, "1002", Caller::Talks(0)), 503);
    assert_eq!(who("002"), ["vendor-c"]);
    manager.set_global("pm_route_intl", "nobody,vendor-b");
    assert_eq!(call(&asterisk, "1003", Caller::Talks(0)), 503);
    assert_eq!(who("003"), ["vendor-b"]);
    // All blocked is an order, not a missing one.
    manager.set_global("pm_route_intl", "");
    manager.set_global("pm_route_intl_count", "0");
    assert_eq!(call(&asterisk, "1004", Caller::Talks(0)), 503);
    assert_eq!(who("004"), Vec::<&str>::new());
    // A map that nobody knows ends the call; it must not hang.
    assert_eq!(call(&asterisk, "3005", Caller::Talks(0)), 503);
    assert_eq!(asterisk.log_lines("Ext. hunt: pointsman: route map none has no order").len(), 1);
}

#[test]
fn hunt_follows_the_variable_on_a_recent_asterisk() {
    hunt_follows_the_variable(Kind::Recent);
}

#[test]
fn hunt_follows_the_variable_on_asterisk_16() {
    hunt_follows_the_variable(Kind::Old);
}

#[test]
fn hunt_follows_the_variable_on_asterisk_16_with_chan_sip() {
    hunt_follows_the_variable(Kind::OldChanSip);
}

/// A change of the order in the middle of a hunt reaches the next call, not this one.
#[test]
fn hunt_keeps_the_order_it_began_with() {
    let first = Vendor::start("vendor-a", Behaviour::Silent);
    let second = Vendor::start("vendor-b", Behaviour::Good);
    let asterisk = Asterisk::start(Kind::Recent, &[&first, &second]);
    let mut manager = asterisk.manager();
    manager.set_global("pm_route_intl", "vendor-a,vendor-b");
    let calls = crate::lab::sipp::place(&asterisk, "1001", Caller::Talks(100), 1, 1);
    crate::lab::eventually("the first vendor to be tried", crate::lab::SOON, || first.got("001").then_some(()));
    manager.set_global("pm_route_intl", "vendor-a");
    assert_eq!(calls.finals(crate::lab::SOON), [200]);
    assert!(second.got("001"));
}
