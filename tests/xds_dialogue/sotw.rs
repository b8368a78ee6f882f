//! The rules of the state of the world.

use super::*;

fn two() -> SotwTalk {
    let mut resources = some(Kind::Cluster, &[("a", "1"), ("b", "1")]);
    hide(&mut resources, Kind::Cluster, "hidden", "1");
    Talk::with(resources)
}

#[test]
fn who_names_nothing_at_first_or_a_star_gets_everything_listed() {
    for names in [&[][..], &["*"]] {
        let answer = one(two().say(ask(Kind::Cluster, names)));
        assert_eq!(held(&answer), ["a 1", "b 1"]);
    }
}

#[test]
fn what_is_named_is_sent_listed_or_not() {
    assert_eq!(held(&one(two().say(ask(Kind::Cluster, &["hidden", "b", "none"])))), ["b 1", "hidden 1"]);
    assert_eq!(held(&one(two().say(ask(Kind::Cluster, &["*", "hidden"])))), ["a 1", "b 1", "hidden 1"]);
}

#[test]
fn once_a_name_was_given_no_names_means_nothing() {
    let mut talk = two();
    let everything = one(talk.say(ask(Kind::Cluster, &[])));
    assert!(talk.say(ack(&everything, &[])).is_empty(), "still everything");
    let more = one(talk.say(ask(Kind::Cluster, &["*", "hidden"])));
    let named = one(talk.say(ack(&more, &["*", "a", "hidden"])));
    assert_eq!(held(&named), ["a 1", "b 1", "hidden 1"]);
    assert!(talk.say(ack(&named, &["a"])).is_empty(), "less is no reason for an answer");
    assert!(talk.say(ack(&named, &[])).is_empty());
    let view = talk.view(Kind::Cluster);
    assert!(!view.wildcard && view.names.is_empty());
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    assert!(talk.push().is_empty());
}

#[test]
fn a_star_that_is_asked_for_later_is_answered() {
    let mut talk = two();
    let named = one(talk.say(ask(Kind::Cluster, &["a"])));
    assert_eq!(held(&one(talk.say(ack(&named, &["a", "*"])))), ["a 1", "b 1"]);
}

#[test]
fn the_first_request_is_answered_whatever_version_it_brings() {
    let mut talk = two();
    let answer = one(talk.say(ask(Kind::Cluster, &[])));
    talk.say(ack(&answer, &[]));
    talk.reconnect();
    let again = one(talk.say(DiscoveryRequest { node: Some(node("edge")), ..ack(&answer, &[]) }));
    assert_eq!(again.version_info, answer.version_info);
    assert!(one(two().say(ask(Kind::Route, &["none"]))).resources.is_empty());
}

#[test]
fn the_version_is_that_of_what_is_sent_and_of_nothing_else() {
    let version = |talk: &mut SotwTalk, names| one(talk.say(ask(Kind::Cluster, names))).version_info;
    let all = version(&mut two(), &[]);
    assert_eq!(version(&mut two(), &["b", "a"]), all);
    let mut more = two();
    put(&mut more.resources, Kind::Cluster, "c", "1");
    put(&mut more.resources, Kind::Route, "a", "1");
    assert_eq!(version(&mut more, &["b", "a"]), all);
    let mut other = two();
    put(&mut other.resources, Kind::Cluster, "a", "2");
    assert_ne!(version(&mut other, &[]), all);
    assert_ne!(version(&mut two(), &["a"]), all);
}

#[test]
fn an_answer_comes_when_something_changed_and_only_then() {
    let mut talk = two();
    let first = one(talk.say(ask(Kind::Cluster, &[])));
    assert!(talk.say(ack(&first, &[])).is_empty());
    assert!(talk.push().is_empty());
    hide(&mut talk.resources, Kind::Cluster, "hidden", "2");
    put(&mut talk.resources, Kind::Route, "a", "1");
    assert!(talk.push().is_empty());
    talk.resources.remove(Kind::Cluster, "a");
    assert_eq!(held(&one(talk.push())), ["b 1"]);
}

#[test]
fn names_that_are_added_are_answered_though_nothing_is_there() {
    let mut talk = two();
    let first = one(talk.say(ask(Kind::Cluster, &["a"])));
    let second = one(talk.say(ack(&first, &["a", "none"])));
    assert_eq!((held(&second), &second.version_info), (vec!["a 1".to_owned()], &first.version_info));
    assert!(talk.say(ack(&second, &["a"])).is_empty());
    let third = one(talk.say(ack(&second, &["a", "b"])));
    assert_eq!(held(&third), ["a 1", "b 1"]);
}

#[test]
fn of_kinds_that_cannot_take_away_less_is_no_reason_for_an_answer() {
    let mut talk = SotwTalk::with(some(Kind::Endpoints, &[("a", "1"), ("b", "1")]));
    let first = one(talk.say(ask(Kind::Endpoints, &["a", "b"])));
    talk.say(ack(&first, &["a", "b"]));
    talk.resources.remove(Kind::Endpoints, "b");
    assert!(talk.push().is_empty());
    put(&mut talk.resources, Kind::Endpoints, "a", "2");
    assert_eq!(held(&one(talk.push())), ["a 2"]);
}

#[test]
fn one_answer_is_under_way_and_then_comes_the_latest() {
    let mut talk = two();
    let first = one(talk.say(ask(Kind::Cluster, &[])));
    for version in ["2", "3", "4"] {
        put(&mut talk.resources, Kind::Cluster, "a", version);
        assert!(talk.push().is_empty());
    }
    assert_eq!(held(&one(talk.say(ack(&first, &[])))), ["a 4", "b 1"]);
}

#[test]
fn a_stale_or_unknown_nonce_accepts_and_rejects_nothing_but_its_names_count() {
    let mut talk = two();
    let first = one(talk.say(ask(Kind::Cluster, &["a"])));
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let second = one(talk.say(ack(&first, &["a"])));
    for request in [nack(&first, &["a"]), ack(&first, &["a"]), nack(&second, &["a"])] {
        let nonce = if request.response_nonce == second.nonce { "never sent" } else { &first.nonce };
        assert!(talk.say(DiscoveryRequest { response_nonce: nonce.to_owned(), ..request }).is_empty());
    }
    assert!(talk.say(ack(&first, &["a", "b"])).is_empty());
    let view = talk.view(Kind::Cluster);
    assert_eq!((view.accepted, view.rejected, view.waiting_since), (1, 0, Some(START)));
    assert_eq!(held(&one(talk.say(ack(&second, &["a", "b"])))), ["a 2", "b 1"]);
}

#[test]
fn the_nonce_of_another_kind_is_stale() {
    let mut talk = two();
    let clusters = one(talk.say(ask(Kind::Cluster, &[])));
    let routes = one(talk.say(ask(Kind::Route, &[])));
    talk.say(DiscoveryRequest { response_nonce: clusters.nonce.clone(), ..nack(&routes, &[]) });
    assert!(talk.view(Kind::Cluster).waiting_since.is_some() && talk.view(Kind::Route).waiting_since.is_some());
}

#[test]
fn what_became_of_answers_is_counted() {
    let mut talk = two();
    let first = one(talk.say(ask(Kind::Cluster, &["*", "hidden"])));
    let view = talk.view(Kind::Cluster);
    assert_eq!((view.wildcard, view.names, view.sent), (true, strings(&["hidden"]), 1));
    assert_eq!((&view.sent_version, view.waiting_since), (&first.version_info, Some(START)));

    talk.now = secs(2);
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let second = one(talk.say(ack(&first, &["*", "hidden"])));
    talk.now = secs(3);
    put(&mut talk.resources, Kind::Cluster, "a", "3");
    let third = one(talk.say(nack(&second, &["*", "hidden"])));
    let view = talk.view(Kind::Cluster);
    assert_eq!((view.sent, view.accepted, view.rejected), (3, 1, 1));
    assert_eq!((&view.accepted_version, view.accepted_after_us), (&first.version_info, Some(2_000_000)));
    let rejection = view.rejection.unwrap();
    assert_eq!((rejection.version, rejection.error.as_str(), rejection.at), (second.version_info, "no good", secs(3)));

    talk.say(ack(&third, &["*", "hidden"]));
    let view = talk.view(Kind::Cluster);
    assert_eq!((view.accepted, view.rejected, view.rejection, view.waiting_since), (2, 1, None, None));
}

#[test]
fn a_rejected_answer_is_not_sent_again_and_another_one_is() {
    let mut talk = two();
    let first = one(talk.say(ask(Kind::Cluster, &["a"])));
    assert!(talk.say(nack(&first, &["a"])).is_empty());
    assert!(talk.push().is_empty());
    assert!(talk.say(nack(&first, &["a", "none"])).is_empty(), "it would be the same answer");
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let second = one(talk.push());
    assert!(talk.say(ack(&second, &["a"])).is_empty());
    put(&mut talk.resources, Kind::Cluster, "a", "1");
    assert!(talk.push().is_empty(), "nor after another one");
    assert!(talk.say(ack(&second, &[])).is_empty());
    assert!(talk.say(ack(&second, &["a"])).is_empty(), "nor to who asks anew");
}

#[test]
fn names_that_are_added_after_a_rejection_are_answered() {
    let mut talk = two();
    let first = one(talk.say(ask(Kind::Cluster, &["a"])));
    assert_eq!(held(&one(talk.say(nack(&first, &["a", "b"])))), ["a 1", "b 1"]);
}

#[test]
fn a_client_that_comes_back_with_what_it_holds_is_not_sent_what_it_rejected() {
    let mut talk = two();
    let good = one(talk.say(ask(Kind::Cluster, &[])));
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let bad = one(talk.say(ack(&good, &[])));
    talk.say(nack(&bad, &[]));

    let holding = DiscoveryRequest { version_info: good.version_info.clone(), ..ask(Kind::Cluster, &[]) };
    talk.reconnect();
    assert!(talk.say(holding.clone()).is_empty());
    talk.reconnect();
    let another = DiscoveryRequest { node: Some(node("another")), ..holding.clone() };
    assert_eq!(one(talk.say(another)).version_info, bad.version_info, "others are");
    talk.reconnect();
    assert_eq!(one(talk.say(ask(Kind::Cluster, &[]))).version_info, bad.version_info, "one that holds nothing is");

    talk.reconnect();
    assert!(talk.say(holding.clone()).is_empty());
    put(&mut talk.resources, Kind::Cluster, "a", "3");
    let newer = one(talk.push());
    talk.say(ack(&newer, &[]));
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    talk.reconnect();
    assert_eq!(one(talk.say(holding)).version_info, bad.version_info, "what it accepted since has ended the memory");
}

#[test]
fn of_kinds_that_cannot_take_away_what_was_rejected_is_left_out_and_the_rest_goes_on() {
    let names = ["good", "bad"];
    let mut talk = SotwTalk::with(some(Kind::Endpoints, &[("good", "1"), ("bad", "1")]));
    let both = one(talk.say(ask(Kind::Endpoints, &names)));
    let bad = one(talk.say(nack(&both, &names)));
    assert_eq!(held(&bad), ["bad 1"], "each alone, to see which one it is");
    let good = one(talk.say(nack(&bad, &names)));
    assert_eq!(held(&good), ["good 1"]);
    assert!(talk.say(ack(&good, &names)).is_empty());
    for version in ["2", "1"] {
        put(&mut talk.resources, Kind::Endpoints, "good", version);
        let answer = one(talk.push());
        assert_eq!(held(&answer), [format!("good {version}")]);
        assert!(talk.say(ack(&answer, &names)).is_empty());
    }
    assert!(talk.view(Kind::Endpoints).rejection.is_some(), "still");
    put(&mut talk.resources, Kind::Endpoints, "bad", "2");
    let answer = one(talk.push());
    assert_eq!(held(&answer), ["bad 2", "good 1"]);
    talk.say(ack(&answer, &names));
    assert_eq!(talk.view(Kind::Endpoints).rejection, None);
}

#[test]
fn a_node_that_goes_and_comes_back_is_seen_by_a_client_that_dislikes_another() {
    let mut talk = SotwTalk::with(some(Kind::Endpoints, &[("good", "up"), ("bad", "1")]));
    let mut answers = talk.say(ask(Kind::Endpoints, &[]));
    let mut seen = Vec::new();
    for (good, bad) in [("down", "2"), ("up", "1"), ("down", "2")] {
        while let Some(answer) = answers.pop() {
            assert!(answers.is_empty());
            let dislikes = held(&answer).iter().any(|it| it.starts_with("bad"));
            if !dislikes {
                seen.extend(held(&answer));
            }
            answers = talk.say(if dislikes { nack(&answer, &[]) } else { ack(&answer, &[]) });
        }
        put(&mut talk.resources, Kind::Endpoints, "good", good);
        put(&mut talk.resources, Kind::Endpoints, "bad", bad);
        answers = talk.push();
    }
    assert_eq!(held(&one(answers)), ["good down"]);
    assert_eq!(seen, ["good up", "good down", "good up"]);
}
