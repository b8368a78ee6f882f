//! The rules of the incremental dialect.

use super::*;

fn two() -> DeltaTalk {
    let mut resources = some(Kind::Cluster, &[("a", "1"), ("b", "1")]);
    hide(&mut resources, Kind::Cluster, "hidden", "1");
    Talk::with(resources)
}

fn holding(names: &[&str], has: &[(&str, &str)]) -> DeltaDiscoveryRequest {
    let has = has.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned()));
    DeltaDiscoveryRequest { initial_resource_versions: has.collect(), ..subscribe(Kind::Cluster, names) }
}

/// What is sent for a request, nothing or one answer, which is accepted.
fn settle(talk: &mut DeltaTalk, request: DeltaDiscoveryRequest) -> Vec<String> {
    let answers = talk.say(request);
    let all = answers.iter().flat_map(changes).collect();
    for answer in &answers {
        assert!(talk.say(accept(answer)).is_empty());
    }
    all
}

#[test]
fn who_names_nothing_at_first_or_a_star_gets_everything_listed() {
    for names in [&[][..], &["*"]] {
        assert_eq!(settle(&mut two(), subscribe(Kind::Cluster, names)), ["a 1", "b 1"]);
    }
    let nothing = one(two().say(unsubscribe_first(&["a"])));
    assert_eq!(changes(&nothing), ["hidden 1"], "it has named something");
}

/// A first request that unsubscribes from something too.
fn unsubscribe_first(names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { resource_names_unsubscribe: strings(names), ..subscribe(Kind::Cluster, &["hidden"]) }
}

#[test]
fn the_first_answer_to_who_wants_everything_comes_though_there_is_nothing() {
    let mut talk = DeltaTalk::with(Resources::default());
    let answer = one(talk.say(subscribe(Kind::Cluster, &[])));
    assert!(changes(&answer).is_empty());
    assert!(talk.say(accept(&answer)).is_empty());
    assert!(talk.push().is_empty());
}

#[test]
fn only_what_changed_is_sent() {
    let mut talk = two();
    settle(&mut talk, subscribe(Kind::Cluster, &["*", "hidden"]));
    assert!(talk.push().is_empty());
    put(&mut talk.resources, Kind::Cluster, "b", "2");
    put(&mut talk.resources, Kind::Cluster, "c", "1");
    talk.resources.remove(Kind::Cluster, "a");
    assert_eq!(changes(&one(talk.push())), ["b 2", "c 1", "-a"]);
}

#[test]
fn a_name_is_answered_as_removed_where_there_is_none_and_sent_once_there_is_one() {
    let mut talk = two();
    assert_eq!(settle(&mut talk, subscribe(Kind::Cluster, &["a", "none"])), ["a 1", "-none"]);
    assert!(talk.push().is_empty());
    put(&mut talk.resources, Kind::Cluster, "none", "1");
    assert_eq!(changes(&one(talk.push())), ["none 1"]);
}

#[test]
fn a_name_that_is_subscribed_to_again_is_answered_again() {
    let mut talk = two();
    settle(&mut talk, subscribe(Kind::Cluster, &["a", "none"]));
    assert_eq!(settle(&mut talk, subscribe(Kind::Cluster, &["a", "none"])), ["a 1", "-none"]);
    settle(&mut talk, unsubscribe(Kind::Cluster, &["a"]));
    assert_eq!(settle(&mut talk, subscribe(Kind::Cluster, &["a"])), ["a 1"]);
    assert_eq!(settle(&mut talk, subscribe(Kind::Cluster, &["*"])), ["a 1", "b 1"]);
    assert_eq!(settle(&mut talk, subscribe(Kind::Cluster, &["*"])), ["a 1", "b 1"]);
}

#[test]
fn subscriptions_count_whatever_the_nonce() {
    let mut talk = two();
    let first = one(talk.say(subscribe(Kind::Cluster, &["a"])));
    let stale = |request| DeltaDiscoveryRequest { response_nonce: "stale".to_owned(), ..request };
    assert!(talk.say(stale(subscribe(Kind::Cluster, &["b"]))).is_empty());
    assert!(talk.say(stale(unsubscribe(Kind::Cluster, &["a"]))).is_empty());
    assert!(talk.say(DeltaDiscoveryRequest { error_detail: error("x"), ..stale(accept(&first)) }).is_empty());
    let view = talk.view(Kind::Cluster);
    assert_eq!((view.names, view.accepted, view.rejected), (strings(&["b"]), 0, 0));
    assert_eq!(changes(&one(talk.say(accept(&first)))), ["b 1"]);
}

#[test]
fn what_was_under_way_when_the_client_changed_its_mind_is_set_right() {
    let mut talk = two();
    let first = one(talk.say(subscribe(Kind::Cluster, &["hidden"])));
    talk.say(unsubscribe(Kind::Cluster, &["hidden"]));
    talk.say(subscribe(Kind::Cluster, &["*"]));
    // It gets the first answer only now, wants everything, and keeps it.
    assert_eq!(changes(&one(talk.say(accept(&first)))), ["a 1", "b 1", "-hidden"]);
}

#[test]
fn what_is_unsubscribed_from_is_not_sent_any_more() {
    let mut talk = two();
    settle(&mut talk, subscribe(Kind::Cluster, &["a", "b"]));
    assert!(settle(&mut talk, unsubscribe(Kind::Cluster, &["a", "phantom"])).is_empty());
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    assert!(talk.push().is_empty());
}

#[test]
fn everything_ends_when_the_star_is_unsubscribed_from() {
    let mut talk = two();
    settle(&mut talk, subscribe(Kind::Cluster, &[]));
    settle(&mut talk, subscribe(Kind::Cluster, &["a"]));
    assert!(settle(&mut talk, unsubscribe(Kind::Cluster, &["*"])).is_empty());
    put(&mut talk.resources, Kind::Cluster, "b", "2");
    assert!(talk.push().is_empty());
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    assert_eq!(changes(&one(talk.push())), ["a 2"]);
}

#[test]
fn who_wants_everything_hears_what_becomes_of_a_name_it_unsubscribes_from() {
    let mut talk = two();
    settle(&mut talk, subscribe(Kind::Cluster, &["*", "a", "hidden"]));
    assert_eq!(settle(&mut talk, unsubscribe(Kind::Cluster, &["a", "hidden"])), ["a 1", "-hidden"]);
}

#[test]
fn who_comes_back_is_sent_what_differs_from_what_it_has() {
    assert_eq!(settle(&mut two(), holding(&[], &[("a", "1"), ("b", "0"), ("gone", "1")])), ["b 1", "-gone"]);
    assert_eq!(
        settle(&mut two(), holding(&["a", "b", "gone", "x"], &[("b", "1"), ("gone", "1")])),
        ["a 1", "-gone", "-x"]
    );
    assert!(two().say(holding(&["a"], &[("a", "1"), ("unwanted", "1")])).is_empty(), "it has it");
    let same = one(two().say(holding(&[], &[("a", "1"), ("b", "1")])));
    assert!(changes(&same).is_empty(), "it wants everything, and is told that it has it");
    let long = "x".repeat(1000);
    assert_eq!(settle(&mut two(), holding(&["a"], &[("a", &long)])), ["a 1"]);
}

#[test]
fn what_a_client_says_it_has_counts_in_its_first_request_only() {
    let mut talk = two();
    settle(&mut talk, subscribe(Kind::Cluster, &["a"]));
    assert_eq!(settle(&mut talk, holding(&["b"], &[("b", "1"), ("a", "0")])), ["b 1"]);
}

#[test]
fn one_answer_is_under_way_and_then_comes_the_latest() {
    let mut talk = two();
    let first = one(talk.say(subscribe(Kind::Cluster, &[])));
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    assert!(talk.push().is_empty());
    put(&mut talk.resources, Kind::Cluster, "a", "3");
    assert!(talk.push().is_empty());
    assert_eq!(changes(&one(talk.say(accept(&first)))), ["a 3"]);
}

#[test]
fn a_version_that_was_rejected_by_itself_is_never_sent_again() {
    let mut talk = two();
    let first = one(talk.say(subscribe(Kind::Cluster, &["a"])));
    assert!(talk.say(reject(&first)).is_empty());
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let second = one(talk.push());
    assert_eq!(changes(&second), ["a 2"]);
    assert!(talk.say(accept(&second)).is_empty());
    put(&mut talk.resources, Kind::Cluster, "a", "1");
    assert!(talk.push().is_empty());
    assert_eq!(settle(&mut talk, subscribe(Kind::Cluster, &["a", "b"])), ["b 1"]);
    talk.resources.remove(Kind::Cluster, "a");
    assert_eq!(changes(&one(talk.push())), ["-a"]);
}

#[test]
fn versions_that_were_rejected_together_are_sent_once_more_each_alone() {
    let mut talk = two();
    let both = one(talk.say(subscribe(Kind::Cluster, &[])));
    assert_eq!(changes(&both), ["a 1", "b 1"]);
    let bad = one(talk.say(reject(&both)));
    assert_eq!(changes(&bad), ["a 1"]);
    let good = one(talk.say(reject(&bad)));
    assert_eq!(changes(&good), ["b 1"]);
    assert!(talk.view(Kind::Cluster).rejection.is_some());
    assert!(talk.say(accept(&good)).is_empty());
    put(&mut talk.resources, Kind::Cluster, "b", "2");
    assert_eq!(changes(&one(talk.push())), ["b 2"], "what is bad stays away");
}

#[test]
fn a_rejection_is_shown_until_what_was_rejected_is_replaced() {
    let mut talk = two();
    settle(&mut talk, subscribe(Kind::Cluster, &[]));
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let bad = one(talk.push());
    talk.say(reject(&bad));
    put(&mut talk.resources, Kind::Cluster, "b", "2");
    let other = one(talk.push());
    talk.say(accept(&other));
    let view = talk.view(Kind::Cluster);
    assert_eq!((view.rejection.unwrap().version, view.rejected), (bad.system_version_info, 1));
    put(&mut talk.resources, Kind::Cluster, "a", "3");
    let good = one(talk.push());
    talk.say(accept(&good));
    assert_eq!(talk.view(Kind::Cluster).rejection, None);
}

#[test]
fn a_client_that_comes_back_with_what_it_holds_is_not_sent_what_it_rejected() {
    let mut talk = two();
    settle(&mut talk, subscribe(Kind::Cluster, &["a", "b"]));
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let bad = one(talk.push());
    talk.say(reject(&bad));

    let back = holding(&["a", "b"], &[("a", "1"), ("b", "1")]);
    talk.reconnect();
    assert!(talk.say(back.clone()).is_empty());
    assert_eq!(settle(&mut talk, subscribe(Kind::Cluster, &["a", "b"])), ["b 1"]);
    talk.reconnect();
    assert_eq!(settle(&mut talk, DeltaDiscoveryRequest { node: Some(node("another")), ..back.clone() }), ["a 2"]);
    talk.reconnect();
    assert!(talk.say(back.clone()).is_empty(), "what another accepts is not what this one does");
    put(&mut talk.resources, Kind::Cluster, "a", "3");
    let newer = one(talk.push());
    talk.say(accept(&newer));
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    talk.reconnect();
    assert_eq!(settle(&mut talk, back), ["a 2"], "what it accepted since has ended the memory");
}

#[test]
fn a_client_that_holds_nothing_is_sent_what_it_rejected() {
    let mut talk = two();
    let bad = one(talk.say(subscribe(Kind::Cluster, &["a"])));
    talk.say(reject(&bad));
    talk.reconnect();
    assert_eq!(settle(&mut talk, subscribe(Kind::Cluster, &["a"])), ["a 1"]);
}

#[test]
fn equal_subscriptions_have_the_same_version_in_both_dialects() {
    let delta = one(two().say(subscribe(Kind::Cluster, &[]))).system_version_info;
    let mut talk = SotwTalk::with(two().resources);
    assert_eq!(one(talk.say(ask(Kind::Cluster, &["a", "b"]))).version_info, delta);
}
