//! Laws over random courses of events, with a client of each dialect that keeps what it is sent and nothing else.
//!
//! Requests and answers travel in queues, so that they cross each other; resources change with and without anybody being
//! told; clients come back with what they hold or with nothing. A picky client rejects every answer that has something bad
//! in it, and takes the rest of it, as Envoy and gRPC do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::*;

/// The names there are, one that is not listed, and one that never exists.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "hidden", "none"];

/// Versions of each; a picky client does not take the last.
const VERSIONS: [&str; 4] = ["1", "2", "3", "bad"];

type Versions = BTreeMap<String, String>;
type Names = BTreeSet<String>;

/// What is rejected by itself: a version of a resource, or of a whole answer with no name.
type Part = (Kind, String, String);

#[derive(Clone, Debug)]
enum Event {
    Put(usize, usize, usize),
    Remove(usize, usize),
    Push,
    Want(usize, Names),
    /// The client has lost one resource and asks for it again, where its dialect knows how.
    Lose(usize, usize),
    Request,
    Answer,
    Reconnect,
    /// The client starts anew and holds nothing.
    Forget,
    /// The server starts anew and remembers nothing.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    let kind = || 0..Kind::ALL.len();
    let names = prop::sample::subsequence(vec!["*", "a", "b", "c", "d", "hidden", "none"], 0..=4);
    prop_oneof![
        6 => (kind(), 0..5_usize, 0..VERSIONS.len()).prop_map(|(kind, name, version)| Event::Put(kind, name, version)),
        2 => (kind(), 0..5_usize).prop_map(|(kind, name)| Event::Remove(kind, name)),
        4 => Just(Event::Push),
        4 => (kind(), names).prop_map(|(kind, names)| Event::Want(kind, strings(&names).into_iter().collect())),
        1 => (kind(), 0..6_usize).prop_map(|(kind, name)| Event::Lose(kind, name)),
        8 => Just(Event::Request),
        8 => Just(Event::Answer),
        1 => Just(Event::Reconnect),
        1 => Just(Event::Forget),
        1 => Just(Event::Restart),
    ]
}

/// What a client keeps of one kind.
#[derive(Default)]
struct Kept {
    want: Names,
    held: Versions,
    started: bool,
    // Of the state of the world only:
    named: bool,
    version: String,
    nonce: String,
}

impl Kept {
    fn wants(&self, name: &str) -> bool {
        self.want.contains(name) || self.want.contains("*")
    }

    fn drop_unwanted(&mut self) {
        if !self.want.contains("*") {
            self.held.retain(|name, _| self.want.contains(name));
        }
    }
}

/// How a client is.
#[derive(Clone, Copy, Debug)]
struct Manner {
    picky: bool,
    /// It takes nothing of an answer in which something is bad, as Envoy does with endpoints.
    strict: bool,
    /// It asks for everything without a star.
    legacy: bool,
}

impl Manner {
    fn is_bad(self, version: &str) -> bool {
        self.picky && version == "bad"
    }

    /// Takes what is good of an answer: whether all of it is.
    fn take(self, kept: &mut Kept, resources: Vec<(String, String)>) -> bool {
        let all_good = !resources.iter().any(|(name, version)| kept.wants(name) && self.is_bad(version));
        if all_good || !self.strict {
            kept.held.extend(resources.into_iter().filter(|(_, version)| !self.is_bad(version)));
        }
        kept.drop_unwanted();
        all_good
    }
}

/// A client's side of a dialect.
trait Side {
    type Dialogue: Dialogue<Request: Clone, Response: Clone>;
    fn want(kept: &mut Kept, kind: Kind, names: Names, manner: Manner) -> Option<Request<Self>>;
    fn lose(kept: &mut Kept, kind: Kind, name: &str) -> Option<Request<Self>>;
    fn take(kept: &mut Kept, answer: Response<Self>, manner: Manner) -> Request<Self>;
    fn said(request: &Request<Self>) -> Said;
    fn sent(answer: &Response<Self>) -> Sent;
    /// What no client of this dialect can be told to drop.
    fn keeps_what_is_gone(kind: Kind) -> bool;
    /// What is rejected with the present answer to this subscription, if it is rejected as a whole.
    fn whole(kind: Kind, want: &Names, resources: &Resources) -> Option<String>;
}

type Request<S> = <<S as Side>::Dialogue as Dialogue>::Request;
type Response<S> = <<S as Side>::Dialogue as Dialogue>::Response;

struct Said {
    kind: Kind,
    nonce: String,
    rejects: bool,
    holds: bool,
}

struct Sent {
    kind: Kind,
    nonce: String,
    parts: Vec<(String, String)>,
}

/// The resources of an answer of the state of the world.
fn resources_of(answer: &DiscoveryResponse) -> Vec<(String, String)> {
    let split = |text: &String| text.split_once(' ').map(|(name, version)| (name.to_owned(), version.to_owned()));
    held(answer).iter().filter_map(split).collect()
}

impl Side for Sotw {
    type Dialogue = Self;

    fn want(kept: &mut Kept, kind: Kind, names: Names, manner: Manner) -> Option<DiscoveryRequest> {
        kept.want = names;
        kept.drop_unwanted();
        if kept.want.is_empty() && !kept.started {
            return None;
        }
        kept.started = true;
        let everything = manner.legacy && !kept.named && kept.want.len() == 1 && kept.want.contains("*");
        kept.named |= !everything;
        let names: Vec<_> = if everything { Vec::new() } else { kept.want.iter().map(String::as_str).collect() };
        let (version_info, response_nonce) = (kept.version.clone(), kept.nonce.clone());
        Some(DiscoveryRequest { version_info, response_nonce, ..ask(kind, &names) })
    }

    fn lose(_: &mut Kept, _: Kind, _: &str) -> Option<DiscoveryRequest> {
        None
    }

    fn take(kept: &mut Kept, answer: DiscoveryResponse, manner: Manner) -> DiscoveryRequest {
        let kind = Kind::of(&answer.type_url).unwrap();
        let resources = resources_of(&answer);
        if kind.is_whole() {
            kept.held.retain(|name, _| resources.iter().any(|(of, _)| of == name));
        }
        kept.nonce.clone_from(&answer.nonce);
        let all_good = manner.take(kept, resources);
        if all_good {
            kept.version = answer.version_info;
        }
        let request = Self::want(kept, kind, kept.want.clone(), manner).unwrap();
        DiscoveryRequest { error_detail: error("bad").filter(|_| !all_good), ..request }
    }

    fn said(request: &DiscoveryRequest) -> Said {
        Said {
            kind: Kind::of(&request.type_url).unwrap(),
            nonce: request.response_nonce.clone(),
            rejects: request.error_detail.is_some(),
            holds: !request.version_info.is_empty(),
        }
    }

    fn sent(answer: &DiscoveryResponse) -> Sent {
        let kind = Kind::of(&answer.type_url).unwrap();
        let whole = || vec![(String::new(), answer.version_info.clone())];
        Sent { kind, nonce: answer.nonce.clone(), parts: if kind.is_whole() { whole() } else { resources_of(answer) } }
    }

    fn keeps_what_is_gone(kind: Kind) -> bool {
        !kind.is_whole()
    }

    fn whole(kind: Kind, want: &Names, resources: &Resources) -> Option<String> {
        let names: Vec<_> = want.iter().map(String::as_str).collect();
        let fresh = || one(SotwTalk::with(resources.clone()).say(ask(kind, &names))).version_info;
        (kind.is_whole() && !want.is_empty()).then(fresh)
    }
}

impl Side for Delta {
    type Dialogue = Self;

    fn want(kept: &mut Kept, kind: Kind, names: Names, manner: Manner) -> Option<DeltaDiscoveryRequest> {
        let before = std::mem::replace(&mut kept.want, names);
        kept.drop_unwanted();
        // Whether what it no longer names is part of everything it must be told.
        kept.held.retain(|name, _| kept.want.contains(name) || !before.contains(name));
        if kept.want.is_empty() && !kept.started {
            return None;
        }
        let mut request = subscribe(kind, &[]);
        if kept.started {
            request.resource_names_subscribe = kept.want.difference(&before).cloned().collect();
            request.resource_names_unsubscribe = before.difference(&kept.want).cloned().collect();
        } else {
            let everything = manner.legacy && kept.want.len() == 1 && kept.want.contains("*");
            request.resource_names_subscribe = kept.want.iter().filter(|_| !everything).cloned().collect();
            request.initial_resource_versions = kept.held.clone().into_iter().collect();
        }
        kept.started = true;
        Some(request)
    }

    fn lose(kept: &mut Kept, kind: Kind, name: &str) -> Option<DeltaDiscoveryRequest> {
        if !kept.started || !kept.want.contains(name) {
            return None;
        }
        kept.held.remove(name);
        Some(subscribe(kind, &[name]))
    }

    fn take(kept: &mut Kept, answer: DeltaDiscoveryResponse, manner: Manner) -> DeltaDiscoveryRequest {
        kept.held.retain(|name, _| !answer.removed_resources.contains(name));
        let resources = answer.resources.iter().map(|it| (it.name.clone(), it.version.clone())).collect();
        if manner.take(kept, resources) { accept(&answer) } else { reject(&answer) }
    }

    fn said(request: &DeltaDiscoveryRequest) -> Said {
        Said {
            kind: Kind::of(&request.type_url).unwrap(),
            nonce: request.response_nonce.clone(),
            rejects: request.error_detail.is_some(),
            holds: !request.initial_resource_versions.is_empty(),
        }
    }

    fn sent(answer: &DeltaDiscoveryResponse) -> Sent {
        let parts = answer.resources.iter().map(|it| (it.name.clone(), it.version.clone())).collect();
        Sent { kind: Kind::of(&answer.type_url).unwrap(), nonce: answer.nonce.clone(), parts }
    }

    fn keeps_what_is_gone(_: Kind) -> bool {
        false
    }

    fn whole(_: Kind, _: &Names, _: &Resources) -> Option<String> {
        None
    }
}

/// What must not be sent, worked out from what went over the wire.
#[derive(Default)]
struct Watch {
    under_way: BTreeMap<Kind, Sent>,
    heard_of: BTreeSet<Kind>,
    /// Rejected by itself on this stream.
    never: BTreeSet<Part>,
    /// Rejected on an earlier stream: not before another version of the name.
    not_yet: BTreeMap<(Kind, String), String>,
    /// Rejected and not replaced by something accepted, over streams.
    remembered: BTreeMap<(Kind, String), String>,
}

impl Watch {
    fn said(&mut self, said: &Said) {
        if self.heard_of.insert(said.kind) && said.holds {
            let of_kind = self.remembered.iter().filter(|((kind, _), _)| *kind == said.kind);
            self.not_yet.extend(of_kind.map(|(name, version)| (name.clone(), version.clone())));
        }
        if self.under_way.get(&said.kind).is_none_or(|sent| sent.nonce != said.nonce) {
            return;
        }
        let parts = self.under_way.remove(&said.kind).unwrap().parts;
        let single = parts.len() == 1;
        for (name, version) in parts {
            let place = (said.kind, name.clone());
            if !said.rejects {
                self.remembered.remove(&place);
            } else if single {
                self.remembered.insert(place, version.clone());
                self.never.insert((said.kind, name, version));
            }
        }
    }

    fn sent(&mut self, sent: Sent) {
        for (name, version) in &sent.parts {
            assert!(!self.is_held_back(sent.kind, name, version), "{:?}: {name} {version} again", sent.kind);
            self.not_yet.remove(&(sent.kind, name.clone()));
        }
        let kind = sent.kind;
        assert!(self.under_way.insert(kind, sent).is_none(), "two answers under way: {kind:?}");
    }

    fn is_held_back(&self, kind: Kind, name: &str, version: &str) -> bool {
        self.never.contains(&(kind, name.to_owned(), version.to_owned()))
            || self.not_yet.get(&(kind, name.to_owned())).is_some_and(|held_back| held_back == version)
    }

    fn reconnect(&mut self) {
        *self = Self { remembered: std::mem::take(&mut self.remembered), ..Self::default() };
    }
}

/// A server, a client, and what is under way between them.
struct World<S: Side> {
    talk: Talk<S::Dialogue>,
    client: [Kept; Kind::ALL.len()],
    manner: Manner,
    requests: VecDeque<Request<S>>,
    answers: VecDeque<Response<S>>,
    watch: Watch,
}

impl<S: Side> World<S> {
    fn new(manner: Manner) -> Self {
        Self {
            talk: Talk::with(Resources::default()),
            client: Default::default(),
            manner,
            requests: VecDeque::new(),
            answers: VecDeque::new(),
            watch: Watch::default(),
        }
    }

    fn happen(&mut self, event: &Event) {
        // Slow enough that no client floods.
        self.talk.now = self.talk.now.after(Duration::from_millis(100));
        match event {
            Event::Put(kind, name, version) => {
                let (kind, name) = (Kind::ALL[*kind], NAMES[*name]);
                insert(&mut self.talk.resources, kind, name, VERSIONS[*version], name != "hidden");
            }
            Event::Remove(kind, name) => self.talk.resources.remove(Kind::ALL[*kind], NAMES[*name]),
            Event::Push => {
                let answers = self.talk.push();
                self.sent(answers);
            }
            Event::Want(kind, names) => {
                // Who asked for everything without a star has no word for nothing.
                let names = if names.is_empty() && self.manner.legacy {
                    BTreeSet::from(["a".to_owned()])
                } else {
                    names.clone()
                };
                self.requests.extend(S::want(&mut self.client[*kind], Kind::ALL[*kind], names, self.manner));
            }
            Event::Lose(kind, name) => {
                self.requests.extend(S::lose(&mut self.client[*kind], Kind::ALL[*kind], NAMES[*name]));
            }
            Event::Request => {
                if let Some(request) = self.requests.pop_front() {
                    self.watch.said(&S::said(&request));
                    let answers = self.talk.say(request);
                    self.sent(answers);
                }
            }
            Event::Answer => {
                if let Some(answer) = self.answers.pop_front() {
                    let kept = &mut self.client[S::sent(&answer).kind as usize];
                    self.requests.push_back(S::take(kept, answer, self.manner));
                }
            }
            Event::Reconnect => self.reconnect(),
            Event::Forget => {
                self.client = std::mem::take(&mut self.client).map(|kept| Kept { want: kept.want, ..Kept::default() });
                self.reconnect();
            }
            Event::Restart => {
                self.talk.rejections = Rejections::default();
                self.watch.remembered.clear();
                self.reconnect();
            }
        }
    }

    fn sent(&mut self, answers: Vec<Response<S>>) {
        let sent: Vec<_> = answers.iter().map(S::sent).collect();
        assert!(sent.is_sorted_by_key(|sent| sent.kind), "the wrong way round");
        sent.into_iter().for_each(|sent| self.watch.sent(sent));
        self.answers.extend(answers);
    }

    fn reconnect(&mut self) {
        self.requests.clear();
        self.answers.clear();
        self.watch.reconnect();
        self.talk.reconnect();
        for (kind, kept) in Kind::ALL.into_iter().zip(&mut self.client) {
            (kept.started, kept.named, kept.nonce) = (false, false, String::new());
            self.requests.extend(S::want(kept, kind, kept.want.clone(), self.manner));
        }
    }

    /// Lets all come to rest.
    fn settle(&mut self) {
        self.happen(&Event::Push);
        for _ in 0..10_000 {
            if self.requests.is_empty() && self.answers.is_empty() {
                assert!(self.talk.push().is_empty(), "at rest there is nothing to say");
                return;
            }
            self.happen(&Event::Request);
            self.happen(&Event::Answer);
        }
        panic!("it does not come to rest");
    }

    /// What the client should hold of what it holds now.
    fn check(&self, kind: Kind) -> Versions {
        let kept = &self.client[kind as usize];
        let all = self.talk.resources.of_kind(kind).values();
        let wants = |it: &Resource| kept.want.contains(&it.name) || it.listed && kept.want.contains("*");
        let wanted: Versions = all.filter(|it| wants(it)).map(|it| (it.name.clone(), it.version.clone())).collect();
        // An answer that would be one that was rejected is not sent, so that nothing in it changes and nothing goes.
        let whole = S::whole(kind, &kept.want, &self.talk.resources);
        let whole_is_held_back = whole.is_some_and(|version| self.watch.is_held_back(kind, "", &version));
        for (name, version) in &wanted {
            let is_held_back = whole_is_held_back || self.watch.is_held_back(kind, name, version);
            assert!(is_held_back <= self.manner.picky, "{kind:?}: {name} {version} is held back for nothing");
            if !is_held_back && !self.manner.is_bad(version) {
                assert_eq!(kept.held.get(name), Some(version), "{kind:?}: {name}");
            }
        }
        let rest = kept.held.keys().filter(|name| !wanted.contains_key(*name)).count();
        let may_rest = whole_is_held_back || S::keeps_what_is_gone(kind);
        assert!(rest == 0 || may_rest, "{kind:?}: {rest} that should be gone");
        kept.held.clone().into_iter().filter(|(name, _)| wanted.contains_key(name)).collect()
    }
}

proptest! {
    /// No two answers of a kind are under way, nothing that was rejected comes again, and in the end both clients hold what
    /// they asked for.
    #[test]
    fn both_dialects_end_in_the_same_state(events in vec(event(), 0..200), [picky, strict, legacy] in any::<[bool; 3]>()) {
        let manner = Manner { picky, strict, legacy };
        let (mut sotw, mut delta) = (World::<Sotw>::new(manner), World::<Delta>::new(manner));
        for event in &events {
            sotw.happen(event);
            delta.happen(event);
        }
        sotw.settle();
        delta.settle();
        for kind in Kind::ALL {
            let (whole, changed) = (sotw.check(kind), delta.check(kind));
            if !picky {
                prop_assert_eq!(whole, changed);
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_request_however_damaged_panics_or_takes_memory_without_end(requests in vec(damaged(), 0..40)) {
        let mut resources = Resources::default();
        for kind in Kind::ALL {
            put(&mut resources, kind, "a", "1");
        }
        let mut sotw = SotwTalk::with(resources.clone());
        let mut delta = DeltaTalk::with(resources);
        sotw.say(ask(Kind::Cluster, &[]));
        delta.say(subscribe(Kind::Cluster, &[]));
        for request in requests {
            if let Ok(request) = DiscoveryRequest::decode(request.as_slice()) && sotw.try_say(request).is_err() {
                sotw.reconnect();
            }
            if let Ok(request) = DeltaDiscoveryRequest::decode(request.as_slice()) && delta.try_say(request).is_err() {
                delta.reconnect();
            }
        }
        for view in sotw.dialogue.subscriptions().into_iter().chain(delta.dialogue.subscriptions()) {
            prop_assert!(view.names.len() <= 256 && view.names.iter().all(|name| name.len() <= 256));
        }
        // Each kind: names, names owed, and names held with their versions.
        let most = Kind::ALL.len() * 256 * (256 + 2 * 256 + 256 + 64);
        let texts = [format!("{:?}", sotw.dialogue), format!("{:?}", delta.dialogue)];
        prop_assert!(texts.iter().all(|text| text.len() < most));
        prop_assert!(sotw.dialogue.unserved().len() <= 8 && delta.dialogue.unserved().len() <= 8);
    }
}

/// A request of either dialect, with some of its bytes changed.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let text = || prop_oneof!["[a-c*]", any::<String>(), "[a-c]{500,530}", "[0-9]"];
    let kind = prop_oneof![4 => prop::sample::select(Kind::ALL.map(Kind::type_url).to_vec()), 1 => Just("other")];
    let names = prop_oneof![20 => vec(text(), 0..4), 1 => (900..1100_usize).prop_map(|names| (0..names).map(|n| n.to_string()).collect())];
    let parts = (kind, names, vec((text(), text()), 0..3), text(), any::<bool>(), any::<bool>());
    let whole = parts.prop_map(|(kind, names, versions, nonce, rejects, delta)| {
        let error_detail = error(&nonce).filter(|_| rejects);
        let (node, type_url) = (Some(node("edge")), kind.to_owned());
        if !delta {
            let (resource_names, response_nonce, version_info) = (names, nonce, "1".to_owned());
            return DiscoveryRequest { version_info, node, resource_names, type_url, response_nonce, error_detail }
                .encode_to_vec();
        }
        DeltaDiscoveryRequest {
            node,
            type_url,
            resource_names_unsubscribe: versions.iter().map(|(name, _)| name.clone()).collect(),
            initial_resource_versions: versions.into_iter().collect(),
            resource_names_subscribe: names,
            response_nonce: nonce,
            error_detail,
        }
        .encode_to_vec()
    });
    (whole, vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)).prop_map(|(mut bytes, changes)| {
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes
    })
}
