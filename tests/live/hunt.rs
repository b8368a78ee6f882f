//! The shipped Asterisk dialplan on real switches, without pointsman: the hunt order is set by hand.

use crate::lab::asterisk::{Asterisk, Kind};
use crate::lab::freeswitch::FreeSwitch;
use crate::lab::pbx::{Pbx, Switch};
use crate::lab::sipp::{Behaviour, Caller, Vendor, call};

/// What a vendor does first, whether the hunt goes on to the good one behind it, what the caller gets.
///
/// Asterisk gives the caller a status of its own for the cause, FreeSWITCH mostly the vendor's.
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
    (Behaviour::Refuses(600), false, &[486, 600]),
    (Behaviour::Refuses(603), false, &[603, 403]),
    (Behaviour::Refuses(480), false, &[480]),
    (Behaviour::Refuses(404), false, &[404]),
    (Behaviour::Refuses(410), false, &[410]),
    (Behaviour::Refuses(484), false, &[484]),
    (Behaviour::RingsForEver, false, &[480]),
    (Behaviour::RingsThenRefuses(487), false, &[480, 487]),
    (Behaviour::Refuses(604), false, &[404, 604]),
];

fn hunt_ends_where_it_should(switch: Switch) {
    let mut first = Vendor::start("vendor-a", Behaviour::Good);
    let second = Vendor::start("vendor-b", Behaviour::Good);
    let pbx = switch.start(&[&first, &second]);
    pbx.set_order("intl", &["vendor-a", "vendor-b"]);
    let mut wrong = Vec::new();
    for (i, &(behaviour, goes_on, expected)) in FIRST_VENDOR.iter().enumerate() {
        let number = format!("00{i:04}");
        first.turn(behaviour);
        let status = call(&*pbx, &pbx.hunted(&number), Caller::Talks(100));
        if !first.got(&number) || second.got(&number) != goes_on || !expected.contains(&status) {
            wrong.push(format!("{behaviour:?}: next tried {}, the caller got {status}", second.got(&number)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn hunt_ends_where_it_should_on_a_recent_asterisk() {
    hunt_ends_where_it_should(Switch::Asterisk(Kind::Recent));
}

#[test]
fn hunt_ends_where_it_should_on_asterisk_16() {
    hunt_ends_where_it_should(Switch::Asterisk(Kind::Old));
}

#[test]
fn hunt_ends_where_it_should_on_asterisk_16_with_chan_sip() {
    hunt_ends_where_it_should(Switch::Asterisk(Kind::OldChanSip));
}

#[test]
fn hunt_ends_where_it_should_on_freeswitch() {
    hunt_ends_where_it_should(Switch::FreeSwitch);
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

/// The same where each place of the order is a variable of its own.
#[test]
fn hunt_follows_the_variable_on_freeswitch() {
    let vendors = ["vendor-a", "vendor-b", "vendor-c"].map(|name| Vendor::start(name, Behaviour::Refuses(503)));
    let freeswitch = FreeSwitch::start(&vendors.each_ref());
    let who = |number: &str| -> Vec<&str> {
        vendors.iter().filter(|vendor| vendor.got(number)).map(|vendor| vendor.name.as_str()).collect()
    };
    assert_eq!(call(&freeswitch, "001", Caller::Talks(0)), 503);
    assert_eq!(who("001"), ["vendor-a", "vendor-b", "vendor-c"]);
    freeswitch.set_order("intl", &["vendor-c"]);
    assert_eq!(call(&freeswitch, "002", Caller::Talks(0)), 503);
    assert_eq!(who("002"), ["vendor-c"]);
    freeswitch.set_order("intl", &["nobody", "vendor-b"]);
    assert_eq!(call(&freeswitch, "003", Caller::Talks(0)), 503);
    assert_eq!(who("003"), ["vendor-b"]);
    freeswitch.set_order("intl", &[]);
    assert_eq!(call(&freeswitch, "004", Caller::Talks(0)), 503);
    assert_eq!(who("004"), Vec::<&str>::new());
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
