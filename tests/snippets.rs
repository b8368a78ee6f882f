//! The shipped dialplans against the rules that attempts are judged by. That they work is tested on real PBXs (`tests/live`).

use std::collections::BTreeSet;

use pointsman::call::outcome::{CauseTable, EndedBy, Evidence, Outcome};

const ASTERISK: &str = include_str!("../config/dialplan/asterisk/extensions-pointsman.conf");
const FREESWITCH: &str = include_str!("../config/dialplan/freeswitch/pointsman.xml");

/// Whether another vendor could not do better: by the default table, for a vendor's answer before any ringing.
fn ends_the_hunt(sip_status: Option<u16>, cause: Option<u16>) -> bool {
    let evidence = Evidence { ended_by: EndedBy::FarEnd, answered: false, rang: false, sip_status, cause };
    let outcome = CauseTable::default().outcome(&evidence);
    matches!(outcome, Outcome::Busy | Outcome::NoAnswer | Outcome::Rejected | Outcome::NumberInvalid)
}

#[test]
fn the_hunt_of_asterisk_ends_where_the_outcome_is_the_persons_or_the_numbers() {
    let list = ASTERISK.split_once("[pointsman-ends]\nexten => s,1,Return(").expect("the list").1;
    let shipped: BTreeSet<String> = list.split_once(')').expect("its end").0.split(',').map(str::to_owned).collect();
    let statuses = (400..=699).filter(|status| ends_the_hunt(Some(*status), None)).map(|status| format!("sip{status}"));
    let causes = (1..=127).filter(|cause| ends_the_hunt(None, Some(*cause))).map(|cause| format!("q{cause}"));
    let expected: BTreeSet<String> = statuses.chain(causes).chain(["rang".to_owned()]).collect();
    assert_eq!(shipped, expected);
}

#[test]
fn the_hunt_of_freeswitch_ends_at_the_statuses_that_share_a_cause_with_a_failure() {
    // What FreeSWITCH 1.11 makes of a status whose cause is in `continue_on_fail`.
    const GOES_ON: &[u16] = &[
        400, 401, 402, 403, 405, 406, 407, 408, 413, 414, 415, 416, 420, 421, 423, 481, 482, 483, 485, 488, 500, 501,
        502, 503, 504, 505, 513, 603, 604, 606, 608,
    ];
    let (_, rest) = FREESWITCH.split_once("expression=\"^sip:(").expect("the list");
    let shipped: BTreeSet<u16> =
        rest.split_once(')').expect("its end").0.split('|').map(|status| status.parse().expect("a status")).collect();
    let expected: BTreeSet<u16> = GOES_ON.iter().copied().filter(|status| ends_the_hunt(Some(*status), None)).collect();
    assert_eq!(shipped, expected);
}

/// Every tag is closed, and no comment holds what would end it.
#[test]
fn the_file_of_freeswitch_is_well_formed() {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = FREESWITCH;
    while let Some((_, tag)) = rest.split_once('<') {
        let (inside, after) = match tag.strip_prefix("!--") {
            Some(comment) => {
                let (text, after) = comment.split_once("-->").expect("the comment ends");
                assert!(!text.contains("--"), "{text}");
                ("", after)
            }
            None => tag.split_once('>').expect("the tag ends"),
        };
        rest = after;
        let name = inside.split_whitespace().next().unwrap_or_default();
        assert_eq!(inside.matches('"').count() % 2, 0, "<{inside}>");
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if name.is_empty() || inside.ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
