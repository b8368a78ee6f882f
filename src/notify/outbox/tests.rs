use proptest::prelude::*;

use super::*;
use crate::ids::{ConnectionId, QualityKey};
use crate::notify::letter::Kind;
use crate::notify::notice::Subject;

const GIVE_UP: Duration = Duration::from_secs(3 * 24 * 3600);

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(1_000_000 + secs)
}

fn about(connection: &str) -> Subject {
    Subject::Connection(QualityKey::connection(ConnectionId::new(connection).unwrap()))
}

/// A letter named `id` about these connections to these people.
fn letter(id: &str, connections: &[&str], to: &[&str], now: Timestamp) -> Letter {
    Letter {
        number: 0,
        message_id: id.to_owned(),
        replies_to: Vec::new(),
        made_at: now,
        customer: None,
        kind: Kind::Alarm,
        about: connections.iter().map(|connection| about(connection)).collect(),
        subject: id.to_owned(),
        text: "text".to_owned(),
        html: "html".to_owned(),
        deliveries: to.iter().map(|address| Delivery::new(address, now)).collect(),
    }
}

fn outbox() -> Outbox {
    Outbox::new([], GIVE_UP, at(0))
}

/// What is due, as `id to address`.
fn due(outbox: &mut Outbox, secs: i64) -> Vec<String> {
    let tickets = outbox.due(at(secs));
    tickets
        .iter()
        .map(|ticket| format!("{} to {}", outbox.letter(ticket.number).unwrap().message_id, ticket.address))
        .collect()
}

/// Reports how the first due delivery went.
fn try_first(outbox: &mut Outbox, secs: i64, outcome: Result<(), Failure>) {
    let first = outbox.due(at(secs)).into_iter().next().expect("something is due");
    outbox.tried(&first, outcome, at(secs), 1.0);
}

fn temporary() -> Result<(), Failure> {
    Err(Failure::Temporary("451 later".to_owned()))
}

fn permanent() -> Result<(), Failure> {
    Err(Failure::Permanent("550 no such user".to_owned()))
}

fn server() -> Result<(), Failure> {
    Err(Failure::Server("connection refused".to_owned()))
}

fn states(outbox: &Outbox, number: u64) -> Vec<(DeliveryState, u32, &str)> {
    let letter = outbox.letter(number).expect("there");
    letter.deliveries.iter().map(|delivery| (delivery.state, delivery.tries, delivery.problem.as_str())).collect()
}

#[test]
fn letters_about_one_connection_go_to_each_reader_in_order() {
    let mut outbox = outbox();
    outbox.post(letter("alarm", &["a"], &["x", "y"], at(0)));
    outbox.post(letter("recovery", &["a"], &["x", "y"], at(1)));
    outbox.post(letter("other", &["b"], &["x"], at(2)));
    assert_eq!(due(&mut outbox, 2), ["alarm to x", "alarm to y", "other to x"]);
    try_first(&mut outbox, 2, temporary());
    assert_eq!(due(&mut outbox, 3), ["alarm to y", "other to x"], "the recovery waits behind its alarm");
    try_first(&mut outbox, 3, Ok(()));
    assert_eq!(due(&mut outbox, 3), ["recovery to y", "other to x"], "each reader for himself");
    assert_eq!(due(&mut outbox, 62), ["recovery to y", "other to x", "alarm to x"]);
}

#[test]
fn a_digest_waits_for_everything_it_is_about_and_everything_about_that_waits_for_it() {
    let mut outbox = outbox();
    outbox.post(letter("alarm a", &["a"], &["x"], at(0)));
    outbox.post(letter("digest", &["a", "b"], &["x"], at(1)));
    outbox.post(letter("alarm b", &["b"], &["x"], at(2)));
    assert_eq!(due(&mut outbox, 2), ["alarm a to x"]);
    try_first(&mut outbox, 2, Ok(()));
    assert_eq!(due(&mut outbox, 2), ["digest to x"]);
    try_first(&mut outbox, 2, Ok(()));
    assert_eq!(due(&mut outbox, 2), ["alarm b to x"]);
}

#[test]
fn a_refusal_for_good_is_dead_at_once_and_holds_up_nobody() {
    let mut outbox = outbox();
    let number = outbox.post(letter("alarm", &["a"], &["x", "y"], at(0)));
    outbox.post(letter("recovery", &["a"], &["x"], at(1)));
    try_first(&mut outbox, 1, permanent());
    assert_eq!(states(&outbox, number)[0], (DeliveryState::Dead, 1, "550 no such user"));
    assert_eq!(due(&mut outbox, 1), ["alarm to y", "recovery to x"]);
}

#[test]
fn waits_grow_to_an_hour_and_end_after_three_days() {
    let mut outbox = outbox();
    let number = outbox.post(letter("alarm", &["a"], &["x"], at(0)));
    let (mut now, mut waits) = (0, Vec::new());
    while let Some(next) = outbox.next_due() {
        let next = next.as_micros() / 1_000_000 - 1_000_000;
        waits.push((next - now) / 60);
        now = next;
        try_first(&mut outbox, now, temporary());
    }
    assert_eq!(waits[..9], [0, 1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(states(&outbox, number), [(DeliveryState::Dead, waits.len() as u32, "given up: 451 later")]);
    assert!((now - 3 * 24 * 3600) < 3600 && now >= 3 * 24 * 3600, "{now}");
}

#[test]
fn a_server_that_cannot_be_used_is_tried_with_one_letter_after_the_other_and_soon_again() {
    let mut outbox = outbox();
    let first = outbox.post(letter("one", &["a"], &["x"], at(0)));
    let second = outbox.post(letter("two", &["b"], &["x"], at(0)));
    try_first(&mut outbox, 0, server());
    assert_eq!(outbox.server_problem(), Some(("connection refused", at(5))));
    assert_eq!(due(&mut outbox, 4), [""; 0]);
    assert_eq!(outbox.next_due(), Some(at(5)));
    assert_eq!(due(&mut outbox, 5), ["two to x", "one to x"]);
    try_first(&mut outbox, 5, server());
    assert_eq!(outbox.next_due(), Some(at(15)));
    assert_eq!((states(&outbox, first)[0].1, states(&outbox, second)[0].1), (1, 1));
    try_first(&mut outbox, 15, temporary());
    assert_eq!(outbox.server_problem(), None, "a server that refuses a letter works");
    assert_eq!(due(&mut outbox, 15), ["two to x"]);
}

/// A letter at which the server falls silent or hangs up each time: that looks as if the server could not be used.
#[test]
fn a_letter_that_the_server_chokes_on_keeps_no_other_from_going() {
    let mut outbox = outbox();
    outbox.post(letter("poison", &["p"], &["x"], at(0)));
    let mut delivered = Vec::new();
    let mut now = at(0);
    for n in 0..50 {
        outbox.post(letter(&n.to_string(), &[&format!("v{n}")], &["x"], now));
        now = now.max(outbox.next_due().unwrap());
        while let Some(ticket) = outbox.due(now).into_iter().next() {
            let id = outbox.letter(ticket.number).unwrap().message_id.clone();
            let outcome = if id == "poison" { server() } else { Ok(()) };
            if outcome.is_ok() {
                delivered.push(id);
            }
            outbox.tried(&ticket, outcome, now, 1.0);
        }
    }
    assert_eq!(delivered.len(), 50, "{delivered:?}");
    assert!(now <= at(3600), "{now:?}");
}

#[test]
fn an_outage_before_it_does_not_make_a_refused_letter_wait_longer() {
    let mut outbox = outbox();
    outbox.post(letter("alarm", &["a"], &["x"], at(0)));
    for _ in 0..12 {
        let next = outbox.next_due().unwrap();
        let first = outbox.due(next).remove(0);
        outbox.tried(&first, server(), next, 1.0);
    }
    let back = outbox.next_due().unwrap();
    let first = outbox.due(back).remove(0);
    outbox.tried(&first, temporary(), back, 1.0);
    assert_eq!(outbox.next_due(), Some(back.after(FIRST_WAIT)));
}

#[test]
fn a_clock_that_was_ahead_before_a_restart_holds_nothing_back() {
    let mut ahead = letter("alarm", &["a"], &["x"], at(900_000_000));
    ahead.deliveries[0].tries = 1;
    let outbox = Outbox::new([ahead], GIVE_UP, at(0));
    assert_eq!(outbox.next_due(), Some(at(0).after(LONGEST_WAIT)));
    let delivery = &outbox.letters().next().unwrap().deliveries[0];
    assert_eq!(delivery.give_up_at(GIVE_UP), at(0).after(GIVE_UP));
}

#[test]
fn dropping_all_that_is_dead_leaves_what_still_waits_for_other_readers() {
    let mut outbox = outbox();
    let number = outbox.post(letter("alarm", &["a"], &["x", "y"], at(0)));
    try_first(&mut outbox, 0, permanent());
    assert_eq!(outbox.discard(number, Delivery::is_dead, at(1)), Some(1));
    assert_eq!(due(&mut outbox, 1), ["alarm to y"]);
}

#[test]
fn what_is_given_up_is_named() {
    let mut outbox = outbox();
    let number = outbox.post(letter("alarm", &["a"], &["x"], at(0)));
    try_first(&mut outbox, 0, server());
    let later = at(4 * 24 * 3600);
    let given_up = outbox.give_up(later);
    assert_eq!(given_up, [Ticket { number, address: "x".to_owned() }]);
    assert_eq!(outbox.give_up(later), []);
}

#[test]
fn everything_is_given_up_after_three_days_without_a_server() {
    let mut outbox = outbox();
    let numbers: Vec<_> = ["a", "b"].map(|name| outbox.post(letter(name, &[name], &["x"], at(0)))).into();
    let mut tries = 0;
    while let Some(next) = outbox.next_due() {
        outbox.give_up(next);
        if let Some(first) = outbox.due(next).into_iter().next() {
            tries += 1;
            outbox.tried(&first, server(), next, 1.0);
        }
    }
    for number in numbers {
        assert_eq!(
            (states(&outbox, number)[0].0, states(&outbox, number)[0].2),
            (DeliveryState::Dead, "given up: connection refused")
        );
    }
    let every_five_minutes = 3 * 24 * 12;
    assert!((every_five_minutes - 5..every_five_minutes + 10).contains(&tries), "{tries}");
}

#[test]
fn a_letter_that_outlived_an_outage_of_our_own_is_tried_before_it_is_given_up() {
    let old = letter("old", &["a"], &["x"], at(0));
    let mut outbox = Outbox::new([old], Duration::from_secs(60), at(9_999));
    assert_eq!(due(&mut outbox, 9_999), ["old to x"]);
    try_first(&mut outbox, 9_999, server());
    assert_eq!(outbox.next_due(), None);
}

#[test]
fn an_operator_has_a_dead_letter_tried_anew_with_all_its_time() {
    let mut outbox = outbox();
    let number = outbox.post(letter("alarm", &["a"], &["x", "y"], at(0)));
    try_first(&mut outbox, 0, permanent());
    try_first(&mut outbox, 0, Ok(()));
    assert_eq!(outbox.next_due(), None);
    let later = 10 * 24 * 3600;
    assert_eq!(outbox.retry(number, Delivery::is_open, at(later)), Some(1), "what is sent stays sent");
    assert_eq!(due(&mut outbox, later), ["alarm to x"]);
    try_first(&mut outbox, later, temporary());
    assert_eq!(due(&mut outbox, later + 120), ["alarm to x"]);
    assert_eq!(outbox.retry(99, Delivery::is_open, at(later)), None);
}

#[test]
fn an_operator_opens_the_outbox_with_a_retry() {
    let mut outbox = outbox();
    let number = outbox.post(letter("alarm", &["a"], &["x"], at(0)));
    try_first(&mut outbox, 0, server());
    assert_eq!(outbox.retry(number, Delivery::is_open, at(1)), Some(1));
    assert_eq!(due(&mut outbox, 1), ["alarm to x"]);
}

#[test]
fn what_an_operator_drops_is_not_tried_even_if_it_was_under_way() {
    let mut outbox = outbox();
    let number = outbox.post(letter("alarm", &["a"], &["x"], at(0)));
    let under_way = outbox.due(at(0)).remove(0);
    assert_eq!(outbox.discard(number, Delivery::is_open, at(0)), Some(1));
    outbox.tried(&under_way, temporary(), at(1), 1.0);
    assert_eq!(states(&outbox, number)[0].0, DeliveryState::Dropped);
    assert_eq!(outbox.next_due(), None);
    assert_eq!(outbox.discard(number, Delivery::is_open, at(1)), Some(0));
}

#[test]
fn a_letter_composed_again_is_not_taken_twice() {
    let mut outbox = outbox();
    let number = outbox.post(letter("alarm", &["a"], &["x"], at(0)));
    try_first(&mut outbox, 0, Ok(()));
    assert_eq!(outbox.post(letter("alarm", &["a"], &["x"], at(5))), number);
    assert_eq!(outbox.next_due(), None);
}

#[test]
fn settled_letters_lose_their_bodies_and_the_oldest_of_them_go() {
    let mut outbox = outbox();
    for n in 0..SETTLED_KEPT + 2 {
        outbox.post(letter(&n.to_string(), &["a"], &["x"], at(0)));
        try_first(&mut outbox, 0, Ok(()));
    }
    assert_eq!(outbox.letters().count(), SETTLED_KEPT);
    assert!(outbox.letters().all(|letter| letter.text.is_empty() && letter.html.is_empty()));
    let Changed { kept, gone } = outbox.take_changed();
    assert_eq!((kept.len(), gone), (SETTLED_KEPT, vec!["0".to_owned(), "1".to_owned()]));
    assert_eq!(outbox.take_changed(), Changed::default());
    assert_eq!(
        outbox.post(letter("next", &["a"], &["x"], at(0))),
        SETTLED_KEPT as u64 + 3,
        "numbers are not used again"
    );
}

#[test]
fn a_full_outbox_loses_the_dead_before_those_that_wait_and_says_so() {
    let mut outbox = outbox();
    outbox.post(letter("waiting", &["w"], &["x"], at(0)));
    outbox.post(letter("dead", &["d"], &["y"], at(0)));
    let dead = outbox.due(at(0)).remove(1);
    outbox.tried(&dead, permanent(), at(0), 1.0);
    for n in 2..MAX_LETTERS + 2 {
        outbox.post(letter(&n.to_string(), &[&format!("v{n}")], &["x"], at(0)));
    }
    assert_eq!((outbox.letters().count(), outbox.overflowed()), (MAX_LETTERS, 2));
    let Changed { gone, .. } = outbox.take_changed();
    assert_eq!(gone, ["dead", "waiting"]);
}

#[test]
fn numbers_of_two_databases_do_not_collide() {
    let one = Letter { number: 7, ..letter("one", &["a"], &["x"], at(0)) };
    let two = Letter { number: 7, ..letter("two", &["a"], &["x"], at(1)) };
    let mut outbox = Outbox::new([two, one], GIVE_UP, at(2));
    assert_eq!(due(&mut outbox, 2), ["one to x"]);
    assert_eq!(outbox.letters().map(|letter| letter.number).collect::<Vec<_>>(), [7, 8]);
}

/// Lives through an outage of an hour while letters keep coming: what was delivered, in the order of delivery.
fn an_hour_without_a_server(letters: &[(u8, u16)], randoms: &[f64]) -> (Vec<(u64, Subject)>, Timestamp) {
    let mut outbox = outbox();
    let (from, until) = (at(0), at(3600));
    let mut coming: Vec<_> = letters.to_vec();
    coming.sort_by_key(|(_, minute)| *minute);
    let mut coming = coming.into_iter().enumerate().peekable();
    let mut random = randoms.iter().cycle();
    let mut delivered = Vec::new();
    let mut now = from;
    loop {
        while let Some((n, (connection, minute))) =
            coming.next_if(|(_, (_, minute))| from.after(Duration::from_secs(60 * u64::from(*minute))) <= now)
        {
            let posted = from.after(Duration::from_secs(60 * u64::from(minute)));
            outbox.post(letter(&n.to_string(), &[&format!("v{connection}")], &["x"], posted));
        }
        for ticket in outbox.due(now) {
            if !outbox.is_open(now) {
                break;
            }
            let random = *random.next().unwrap();
            if now < until {
                outbox.tried(&ticket, server(), now, random);
            } else {
                let about = outbox.letter(ticket.number).unwrap().about[0].clone();
                outbox.tried(&ticket, Ok(()), now, random);
                delivered.push((ticket.number, about));
            }
        }
        let next_letter =
            coming.peek().map(|(_, (_, minute))| from.after(Duration::from_secs(60 * u64::from(*minute))));
        let Some(next) = outbox.next_due().into_iter().chain(next_letter).min() else { return (delivered, now) };
        now = now.max(next);
    }
}

proptest! {
    #[test]
    fn an_outage_of_an_hour_loses_nothing_and_keeps_the_order(
        letters in proptest::collection::vec((0..4u8, 0..60u16), 1..60),
        randoms in proptest::collection::vec(0.0..1.0, 1..50),
    ) {
        let (delivered, done_at) = an_hour_without_a_server(&letters, &randoms);
        prop_assert_eq!(delivered.len(), letters.len());
        for connection in 0..4u8 {
            let numbers: Vec<u64> = delivered
                .iter()
                .filter(|(_, subject)| *subject == about(&format!("v{connection}")))
                .map(|(number, _)| *number)
                .collect();
            prop_assert!(numbers.is_sorted(), "{:?}", numbers);
        }
        // The server is tried every five minutes at the least.
        prop_assert!(done_at <= at(3600 + 300), "{:?}", done_at);
    }
}
