//! What holds in both dialects: who a client is, what it may do, how long it is waited for.

use pointsman::xds::protocol::envoy::config::core::v3::BuildVersion;
use pointsman::xds::protocol::envoy::config::core::v3::node::UserAgentVersionType;
use pointsman::xds::protocol::envoy::r#type::v3::SemanticVersion;

use super::*;

fn empty() -> SotwTalk {
    Talk::with(Resources::default())
}

fn nonsense(result: &Result<Vec<DiscoveryResponse>, Fault>) -> bool {
    matches!(result, Err(Fault::Nonsense(_)))
}

#[test]
fn the_first_request_says_who_asks_and_later_ones_need_not() {
    let unnamed = DiscoveryRequest { node: None, ..ask(Kind::Cluster, &[]) };
    assert!(nonsense(&empty().try_say(unnamed.clone())));
    for id in [String::new(), " \u{7}\n".to_owned(), "x".repeat(257)] {
        assert!(nonsense(&empty().try_say(DiscoveryRequest { node: Some(node(&id)), ..unnamed.clone() })), "{id:?}");
    }
    let mut talk = empty();
    assert_eq!(talk.dialogue.client(), None);
    talk.say(ask(Kind::Cluster, &[]));
    talk.say(DiscoveryRequest { node: None, ..ask(Kind::Endpoints, &["a"]) });
    talk.say(DiscoveryRequest { node: Some(node("another")), ..ask(Kind::Route, &["a"]) });
    assert_eq!(talk.dialogue.client().unwrap().node, "edge");

    let unnamed = DeltaDiscoveryRequest { node: None, ..subscribe(Kind::Cluster, &[]) };
    assert!(matches!(DeltaTalk::with(Resources::default()).try_say(unnamed), Err(Fault::Nonsense(_))));
}

#[test]
fn the_program_of_a_client_is_known_with_its_version_in_either_form() {
    let version = SemanticVersion { major_number: 1, minor_number: 40, patch: 2 };
    let build = BuildVersion { version: Some(version) };
    for (version, shown) in [
        (Some(UserAgentVersionType::UserAgentBuildVersion(build)), "envoy 1.40.2"),
        (Some(UserAgentVersionType::UserAgentVersion("dev".to_owned())), "envoy dev"),
        (None, "envoy"),
    ] {
        let node = Node { user_agent_name: "envoy".to_owned(), user_agent_version_type: version, ..node("edge") };
        let mut talk = empty();
        talk.say(DiscoveryRequest { node: Some(node), ..ask(Kind::Cluster, &[]) });
        assert_eq!(talk.dialogue.client().unwrap().software, shown);
    }
}

#[test]
fn texts_of_clients_are_short_lines_of_visible_characters() {
    let long = format!("a\u{1b}[31m\nb\u{202e}{}", "c".repeat(10_000));
    let version = Some(UserAgentVersionType::UserAgentVersion(long.clone()));
    let node = Node {
        id: "edge\r\n1".to_owned(),
        cluster: long.clone(),
        user_agent_name: long.clone(),
        user_agent_version_type: version,
    };
    let mut talk = empty();
    let answer = one(talk.say(DiscoveryRequest { node: Some(node), ..ask(Kind::Cluster, &["x\ty"]) }));
    talk.say(DiscoveryRequest { error_detail: error(&long), ..nack(&answer, &["x\ty"]) });
    talk.say(DiscoveryRequest { type_url: long, ..ask(Kind::Cluster, &[]) });

    let client = talk.dialogue.client().unwrap().clone();
    let view = talk.view(Kind::Cluster);
    assert_eq!((client.node.as_str(), view.names.as_slice()), ("edge 1", strings(&["x y"]).as_slice()));
    let rejection = view.rejection.unwrap().error;
    for (text, longest) in
        [(client.cluster, 128), (client.software, 257), (rejection, 500), (talk.dialogue.unserved()[0].clone(), 128)]
    {
        assert!(text.starts_with("a [31m bccc"), "{text}");
        assert!(text.chars().count() <= longest && text.ends_with('…'), "{text}");
    }
}

#[test]
fn a_request_without_a_type_is_nonsense() {
    let mut talk = empty();
    assert!(nonsense(&talk.try_say(DiscoveryRequest { type_url: String::new(), ..ask(Kind::Cluster, &[]) })));
}

#[test]
fn a_type_that_is_not_served_is_remembered_and_never_answered() {
    let mut talk = empty();
    for n in [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9] {
        let request = DiscoveryRequest { type_url: format!("type.googleapis.com/t{n}"), ..ask(Kind::Cluster, &[]) };
        assert!(talk.say(request).is_empty());
    }
    let types: Vec<_> = (0..8).map(|n| format!("type.googleapis.com/t{n}")).collect();
    assert_eq!(talk.dialogue.unserved(), types);
    assert!(talk.dialogue.subscriptions().is_empty());
}

#[test]
fn a_client_that_asks_without_end_floods() {
    let mut talk = empty();
    let again = ask(Kind::Cluster, &[]);
    let other = DiscoveryRequest { type_url: "other".to_owned(), ..again.clone() };
    for _ in 0..50 {
        talk.say(again.clone());
        talk.say(other.clone());
    }
    talk.now = talk.now.after(std::time::Duration::from_millis(250));
    talk.say(again.clone());
    talk.say(other.clone());
    assert!(matches!(talk.try_say(again), Err(Fault::Flood(_))), "two were refilled, not three");
}

#[test]
fn who_only_answers_may_answer_as_often_as_there_is_something_new() {
    let mut talk = SotwTalk::with(some(Kind::Cluster, &[("a", "0")]));
    let mut answer = one(talk.say(ask(Kind::Cluster, &[])));
    for n in 1..500 {
        put(&mut talk.resources, Kind::Cluster, "a", &n.to_string());
        answer = one(talk.say(ack(&answer, &[])));
    }
    assert_eq!(talk.view(Kind::Cluster).accepted, 499);
}

#[test]
fn who_asks_for_more_with_each_answer_floods_all_the_same() {
    let mut talk = SotwTalk::with(some(Kind::Endpoints, &[("a", "0"), ("b", "0")]));
    let mut answer = one(talk.say(ask(Kind::Endpoints, &["a"])));
    let flooded = (0..500).any(|n| {
        let names: &[&str] = if n % 2 == 0 { &["a", "b"] } else { &["a"] };
        let request = ack(&answer, names);
        match talk.try_say(request) {
            Ok(answers) => {
                answer = answers.into_iter().next().unwrap_or_else(|| answer.clone());
                false
            }
            Err(fault) => matches!(fault, Fault::Flood(_)),
        }
    });
    assert!(flooded);

    let mut talk = DeltaTalk::with(some(Kind::Endpoints, &[("a", "0")]));
    let mut answer = one(talk.say(subscribe(Kind::Endpoints, &["a"])));
    let flooded = (0..500).any(|_| {
        let request =
            DeltaDiscoveryRequest { response_nonce: answer.nonce.clone(), ..subscribe(Kind::Endpoints, &["a"]) };
        match talk.try_say(request) {
            Ok(answers) => {
                answer = one(answers);
                false
            }
            Err(fault) => matches!(fault, Fault::Flood(_)),
        }
    });
    assert!(flooded);
}

#[test]
fn what_one_asker_rejects_is_not_held_back_from_another_of_the_same_name() {
    let mut talk = SotwTalk::with(some(Kind::Cluster, &[("a", "1")]));
    let first = one(talk.say(ask(Kind::Cluster, &[])));
    talk.say(nack(&first, &[]));
    let holding = DiscoveryRequest { version_info: "0".to_owned(), ..ask(Kind::Cluster, &[]) };
    let mut other = Sotw::open("198.51.100.9", talk.now);
    other.take(holding.clone(), &mut talk.rejections, talk.now).unwrap();
    assert_eq!(other.update(&talk.resources, talk.now).len(), 1);
    talk.reconnect();
    assert!(talk.say(holding).is_empty());
}

#[test]
fn there_is_an_end_to_names() {
    let names: Vec<_> = (0..257).map(|n| n.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    empty().say(ask(Kind::Endpoints, &names[..256]));
    for names in [names.as_slice(), &[&"x".repeat(257)]] {
        assert!(matches!(empty().try_say(ask(Kind::Endpoints, names)), Err(Fault::TooMuch(_))));
        let request = subscribe(Kind::Endpoints, names);
        let initial = names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
        let holding = DeltaDiscoveryRequest { initial_resource_versions: initial, ..subscribe(Kind::Cluster, &[]) };
        for request in [request, holding] {
            let result = DeltaTalk::with(Resources::default()).try_say(request);
            assert!(matches!(result, Err(Fault::TooMuch(_))), "{result:?}");
        }
    }
    let mut talk = DeltaTalk::with(Resources::default());
    talk.say(subscribe(Kind::Endpoints, &names[..150]));
    assert!(matches!(talk.try_say(subscribe(Kind::Endpoints, &names[100..])), Err(Fault::TooMuch(_))));
}

#[test]
fn names_that_come_and_go_while_nothing_is_accepted_do_not_pile_up() {
    let mut talk = DeltaTalk::with(Resources::default());
    talk.say(subscribe(Kind::Endpoints, &["*"]));
    let result = (0..50).try_for_each(|round| {
        let names: Vec<_> = (0..200).map(|n| format!("{round}-{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        talk.try_say(subscribe(Kind::Endpoints, &names))?;
        talk.try_say(unsubscribe(Kind::Endpoints, &names)).map(drop)
    });
    assert!(matches!(result, Err(Fault::TooMuch(_))), "{result:?}");
}

#[test]
fn a_stream_without_a_word_is_ended_after_10_s() {
    let talk = empty();
    assert_eq!(talk.dialogue.deadline(), Some(secs(10)));
    assert_eq!(talk.dialogue.overdue(secs(9)), None);
    assert_eq!(talk.dialogue.overdue(secs(10)), Some(Fault::Silent(10)));
}

#[test]
fn an_answer_that_is_neither_accepted_nor_rejected_ends_the_stream_after_30_s() {
    let mut talk = empty();
    talk.now = secs(3);
    let clusters = one(talk.say(ask(Kind::Cluster, &[])));
    talk.now = secs(5);
    let routes = one(talk.say(ask(Kind::Route, &[])));
    assert_eq!(talk.dialogue.deadline(), Some(secs(33)));
    talk.say(nack(&clusters, &[]));
    assert_eq!(talk.dialogue.deadline(), Some(secs(35)));
    assert_eq!(talk.dialogue.overdue(secs(34)), None);
    assert_eq!(talk.dialogue.overdue(secs(35)), Some(Fault::Silent(30)));
    talk.say(ack(&routes, &[]));
    assert_eq!((talk.dialogue.deadline(), talk.dialogue.overdue(secs(99_999))), (None, None));
}

#[test]
fn every_answer_names_the_program_and_has_a_nonce_of_its_own() {
    let mut talk = empty();
    let clusters = one(talk.say(ask(Kind::Cluster, &[])));
    let routes = one(talk.say(ask(Kind::Route, &[])));
    assert_ne!(clusters.nonce, routes.nonce);
    assert_eq!(clusters.control_plane.unwrap().identifier, concat!("pointsman ", env!("CARGO_PKG_VERSION")));
    let mut talk = DeltaTalk::with(Resources::default());
    let answer = one(talk.say(subscribe(Kind::Cluster, &[])));
    assert_eq!(answer.control_plane.unwrap().identifier, concat!("pointsman ", env!("CARGO_PKG_VERSION")));
}

/// A client that has taken the first version of each kind.
fn settled(first: &[Kind]) -> (SotwTalk, Resources) {
    let (mut old, mut new) = (Resources::default(), Resources::default());
    for kind in Kind::ALL {
        put(&mut old, kind, "a", "1");
        put(&mut new, kind, "a", "2");
    }
    let mut talk = SotwTalk::with(old);
    for kind in first {
        for answer in talk.say(ask(*kind, &[])) {
            talk.say(ack(&answer, &[]));
        }
    }
    (talk, new)
}

fn types(answers: &[DiscoveryResponse]) -> Vec<Kind> {
    answers.iter().map(|answer| Kind::of(&answer.type_url).unwrap()).collect()
}

#[test]
fn what_changes_at_once_is_sent_in_the_order_in_which_it_is_needed() {
    let (mut talk, new) = settled(&[Kind::Route, Kind::Listener, Kind::Endpoints, Kind::Cluster]);
    talk.resources = new;
    assert_eq!(types(&talk.push()), Kind::ALL);
}

#[test]
fn a_request_that_comes_before_the_push_does_not_change_the_order() {
    let (mut talk, new) = settled(&Kind::ALL);
    talk.resources = new;
    assert_eq!(types(&talk.say(ask(Kind::Route, &["*", "b"]))), Kind::ALL);
    assert!(talk.push().is_empty());
}

#[test]
fn what_refers_to_clusters_waits_for_clusters_that_have_yet_to_be_sent() {
    let (mut talk, mut new) = settled(&Kind::ALL);
    put(&mut talk.resources, Kind::Cluster, "a", "1b");
    // The endpoints follow their cluster.
    let [clusters, endpoints] = <[_; 2]>::try_from(talk.push()).unwrap();
    talk.say(ack(&endpoints, &[]));
    std::mem::swap(&mut talk.resources, &mut new);
    assert_eq!(types(&talk.push()), [Kind::Endpoints], "the state of the nodes waits for nothing");
    assert_eq!(types(&talk.say(ack(&clusters, &[]))), [Kind::Cluster, Kind::Listener, Kind::Route]);
}

#[test]
fn a_changed_cluster_has_its_endpoints_sent_again() {
    let (mut talk, _) = settled(&Kind::ALL);
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let answers = talk.push();
    assert_eq!(types(&answers), [Kind::Cluster, Kind::Endpoints]);
    assert_eq!(held(&answers[1]), ["a 1"]);
    for answer in &answers {
        assert!(talk.say(ack(answer, &[])).is_empty());
    }
    put(&mut talk.resources, Kind::Cluster, "b", "1");
    assert_eq!(types(&talk.push()), [Kind::Cluster], "nothing is known of the endpoints of a new one");

    let mut talk = DeltaTalk::with(some(Kind::Cluster, &[("a", "1"), ("b", "1")]));
    put(&mut talk.resources, Kind::Endpoints, "a", "1");
    put(&mut talk.resources, Kind::Endpoints, "b", "1");
    for kind in [Kind::Cluster, Kind::Endpoints] {
        let answer = one(talk.say(subscribe(kind, &[])));
        talk.say(accept(&answer));
    }
    put(&mut talk.resources, Kind::Cluster, "a", "2");
    let answers: Vec<_> = talk.push().iter().map(changes).collect();
    assert_eq!(answers, [["a 2"], ["a 1"]]);
}

/// It asks for clusters first, as Envoy does, and is told of a changed one before it says that it has the endpoints.
#[test]
fn the_endpoints_of_a_changed_cluster_are_sent_to_who_comes_back_with_them_too() {
    let mut talk = DeltaTalk::with(some(Kind::Cluster, &[("a", "2"), ("b", "1")]));
    put(&mut talk.resources, Kind::Endpoints, "a", "1");
    put(&mut talk.resources, Kind::Endpoints, "b", "1");
    let comes_back = |kind, names: &[&str]| {
        let has = ["a", "b"].map(|name| (name.to_owned(), "1".to_owned()));
        DeltaDiscoveryRequest { initial_resource_versions: has.into(), ..subscribe(kind, names) }
    };
    assert_eq!(changes(&one(talk.say(comes_back(Kind::Cluster, &[])))), ["a 2"]);
    let endpoints = one(talk.say(comes_back(Kind::Endpoints, &["a", "b"])));
    assert_eq!(changes(&endpoints), ["a 1"]);
    assert!(talk.say(accept(&endpoints)).is_empty());
}
