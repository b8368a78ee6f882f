//! The dialogue of the xDS server with its clients, rule by rule and as laws over random courses of events.

#![expect(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

mod delta;
mod laws;
mod sotw;
mod stream;

use pointsman::time::Timestamp;
use pointsman::xds::dialogue::{Delta, Dialogue, Fault, Rejections, Sotw};
use pointsman::xds::kind::Kind;
use pointsman::xds::protocol::envoy::config::core::v3::Node;
use pointsman::xds::protocol::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use pointsman::xds::protocol::google::rpc::Status;
use pointsman::xds::resources::{Resource, Resources};
use pointsman::xds::view::SubscriptionView;
use prost_types::Any;

/// Whom the server knows the client to be.
const ASKER: &str = "192.0.2.7";

const START: Timestamp = Timestamp::from_secs(1_000);

fn secs(secs: i64) -> Timestamp {
    Timestamp::from_secs(1_000 + secs)
}

/// Puts a resource with nothing in it but what it is: `NAME VERSION`.
fn put(resources: &mut Resources, kind: Kind, name: &str, version: &str) {
    insert(resources, kind, name, version, true);
}

/// The same for one that is sent only to who asks for it by name.
fn hide(resources: &mut Resources, kind: Kind, name: &str, version: &str) {
    insert(resources, kind, name, version, false);
}

fn insert(resources: &mut Resources, kind: Kind, name: &str, version: &str, listed: bool) {
    let body = Any { type_url: kind.type_url().to_owned(), value: format!("{name} {version}").into_bytes() };
    resources.insert(kind, Resource { name: name.to_owned(), version: version.to_owned(), body, listed });
}

fn some(kind: Kind, parts: &[(&str, &str)]) -> Resources {
    let mut resources = Resources::default();
    for (name, version) in parts {
        put(&mut resources, kind, name, version);
    }
    resources
}

fn node(id: &str) -> Node {
    Node { id: id.to_owned(), ..Node::default() }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn error(text: &str) -> Option<Status> {
    Some(Status { code: 3, message: text.to_owned() })
}

/// A stream with what its server knows, for one dialect.
struct Talk<D> {
    dialogue: D,
    resources: Resources,
    rejections: Rejections,
    now: Timestamp,
}

impl<D: Dialogue> Talk<D> {
    fn with(resources: Resources) -> Self {
        Self { dialogue: D::open(ASKER, START), resources, rejections: Rejections::default(), now: START }
    }

    fn try_say(&mut self, request: D::Request) -> Result<Vec<D::Response>, Fault> {
        self.dialogue.take(request, &mut self.rejections, self.now)?;
        Ok(self.dialogue.update(&self.resources, self.now))
    }

    fn say(&mut self, request: D::Request) -> Vec<D::Response> {
        self.try_say(request).unwrap()
    }

    /// What is sent because the resources are others now.
    fn push(&mut self) -> Vec<D::Response> {
        self.dialogue.update(&self.resources, self.now)
    }

    /// The client closes its stream and opens another one.
    fn reconnect(&mut self) {
        self.dialogue = D::open(ASKER, self.now);
    }

    fn view(&self, kind: Kind) -> SubscriptionView {
        self.dialogue.subscriptions().into_iter().find(|view| view.kind == kind).unwrap()
    }
}

type SotwTalk = Talk<Sotw>;
type DeltaTalk = Talk<Delta>;

/// A request of a client named `edge` for these names.
fn ask(kind: Kind, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        node: Some(node("edge")),
        type_url: kind.type_url().to_owned(),
        resource_names: strings(names),
        ..DiscoveryRequest::default()
    }
}

fn ack(answer: &DiscoveryResponse, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: answer.version_info.clone(),
        response_nonce: answer.nonce.clone(),
        type_url: answer.type_url.clone(),
        resource_names: strings(names),
        ..DiscoveryRequest::default()
    }
}

fn nack(answer: &DiscoveryResponse, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest { version_info: String::new(), error_detail: error("no good"), ..ack(answer, names) }
}

/// What is in an answer, each resource as `NAME VERSION`.
fn held(answer: &DiscoveryResponse) -> Vec<String> {
    answer.resources.iter().map(|any| String::from_utf8(any.value.clone()).unwrap()).collect()
}

/// A request of a client named `edge` that subscribes to these names.
fn subscribe(kind: Kind, names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(node("edge")),
        type_url: kind.type_url().to_owned(),
        resource_names_subscribe: strings(names),
        ..DeltaDiscoveryRequest::default()
    }
}

fn unsubscribe(kind: Kind, names: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: kind.type_url().to_owned(),
        resource_names_unsubscribe: strings(names),
        ..DeltaDiscoveryRequest::default()
    }
}

fn accept(answer: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        response_nonce: answer.nonce.clone(),
        type_url: answer.type_url.clone(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn reject(answer: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { error_detail: error("no good"), ..accept(answer) }
}

/// What is in an answer, each resource as `NAME VERSION`, and what is removed as `-NAME`.
fn changes(answer: &DeltaDiscoveryResponse) -> Vec<String> {
    let resources = answer.resources.iter().map(|it| format!("{} {}", it.name, it.version));
    resources.chain(answer.removed_resources.iter().map(|name| format!("-{name}"))).collect()
}

/// The one answer.
fn one<T: std::fmt::Debug>(answers: Vec<T>) -> T {
    let [answer] = <[T; 1]>::try_from(answers).unwrap();
    answer
}
