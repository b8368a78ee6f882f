//! What the two dialects have in common over a stream: who the client is, what it may do, which answers are under way.

use std::collections::BTreeSet;
use std::time::Duration;

use super::rejections::Rejections;
use super::subscription::{Answer, OfKind, Subscription, Verdict};
use super::{Client, Fault, clean};
use crate::time::Timestamp;
use crate::xds::kind::Kind;
use crate::xds::protocol::envoy::config::core::v3::node::UserAgentVersionType;
use crate::xds::protocol::envoy::config::core::v3::{ControlPlane, Node};
use crate::xds::protocol::google::rpc::Status;
use crate::xds::resources::Resources;
use crate::xds::view::SubscriptionView;

/// Bytes of a node id: names of hosts, pods and services are shorter.
const MAX_NODE: usize = 256;

/// Characters kept of the cluster that a client names, and of its program.
const MAX_WORDS: usize = 128;

/// Types remembered that a client asked for and that are not served, and characters of each: for people to see.
const MAX_UNSERVED: usize = 8;
const MAX_TYPE: usize = 128;

/// Requests that are no answer to one of ours: so many at once, and then one in each of these. A client asks once for
/// each kind and again when its names change; one that starts with a hundred names, one by one, is still let through.
const BURST: u32 = 100;
const REFILL: Duration = Duration::from_millis(100);

/// How long an answer may stay neither accepted nor rejected. Clients take milliseconds; one that takes this long hangs.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long a stream may be open without a word: the client has opened it to say something.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// How a dialect answers a subscription: `None` where there is nothing to say.
pub(super) type Next = fn(&Subscription, Kind, &OfKind) -> Option<Answer>;

/// An answer with what the stream adds to it.
pub(super) struct Numbered {
    pub(super) kind: Kind,
    pub(super) nonce: String,
    pub(super) answer: Answer,
}

/// A stream and its subscriptions.
#[derive(Debug)]
pub struct Stream {
    opened: Timestamp,
    asker: String,
    client: Option<Client>,
    /// By which name its rejections are remembered: nobody can take that of another asker.
    whose: String,
    subscriptions: [Option<Subscription>; Kind::ALL.len()],
    /// Clusters that were sent, new or changed, before the client asked for any endpoints.
    without_endpoints: BTreeSet<String>,
    unserved: Vec<String>,
    bucket: Bucket,
    nonces: u64,
}

impl Stream {
    pub(super) fn open(asker: &str, now: Timestamp) -> Self {
        Self {
            opened: now,
            asker: asker.to_owned(),
            client: None,
            whose: String::new(),
            subscriptions: Default::default(),
            without_endpoints: BTreeSet::new(),
            unserved: Vec::new(),
            bucket: Bucket { used: Duration::ZERO, at: now },
            nonces: 0,
        }
    }

    /// Takes what every request has in it: the kind that it is about, `None` where that is not served, and whether it says
    /// something to an answer of ours.
    pub(super) fn hear(
        &mut self,
        node: Option<Node>,
        type_url: &str,
        nonce: &str,
        now: Timestamp,
    ) -> Result<Option<(Kind, bool)>, Fault> {
        let kind = Kind::of(type_url);
        let is_answer = kind
            .and_then(|kind| self.subscriptions[kind as usize].as_ref())
            .is_some_and(|known| known.is_answer(nonce));
        if !is_answer {
            self.bucket.take(now)?;
        }
        if self.client.is_none() {
            let client = identify(node)?;
            self.whose = format!("{} {}", self.asker, client.node);
            self.client = Some(client);
        }
        if type_url.is_empty() {
            return Err(Fault::Nonsense("a request without a type".to_owned()));
        }
        if kind.is_none() {
            let type_url = clean(type_url, MAX_TYPE);
            if self.unserved.len() < MAX_UNSERVED && !self.unserved.contains(&type_url) {
                self.unserved.push(type_url);
            }
        }
        Ok(kind.map(|kind| (kind, is_answer)))
    }

    /// Who accepts an answer and asks for something new with it asks unasked all the same.
    pub(super) fn asked(&mut self, kind: Kind, due_before: usize, now: Timestamp) -> Result<(), Fault> {
        let due = self.subscriptions[kind as usize].as_ref().map_or(0, Subscription::due);
        if due > due_before { self.bucket.take(now) } else { Ok(()) }
    }

    /// The subscription to a kind, a new one where the client speaks of it for the first time; a new one that holds
    /// something is spared what was rejected on earlier streams.
    pub(super) fn subscribe(&mut self, kind: Kind, holds: bool, rejections: &Rejections) -> (&mut Subscription, bool) {
        let place = &mut self.subscriptions[kind as usize];
        let is_new = place.is_none();
        let subscription = place.get_or_insert_default();
        if is_new && holds {
            subscription.hold_back(rejections.of(&self.whose, kind));
        }
        if kind == Kind::Endpoints {
            subscription.owed.append(&mut self.without_endpoints);
        }
        (subscription, is_new)
    }

    /// What the client says to the answer under way, if it is the one with this nonce; any other is stale.
    pub(super) fn settle(
        &mut self,
        kind: Kind,
        nonce: &str,
        error: Option<&Status>,
        rejections: &mut Rejections,
        now: Timestamp,
    ) {
        let Some(subscription) = &mut self.subscriptions[kind as usize] else { return };
        match subscription.settle(nonce, error.map(|status| status.message.as_str()), now) {
            Some(Verdict::Accepted(parts)) => rejections.forget(&self.whose, kind, &parts),
            Some(Verdict::Rejected(parts)) => rejections.remember(&self.whose, kind, &parts),
            None => {}
        }
    }

    /// All that is due and may be sent now, in the order in which the client needs it: one answer of each kind at a time,
    /// and nothing that may refer to clusters while clusters have yet to be sent.
    pub(super) fn answers(&mut self, next: Next, resources: &Resources, now: Timestamp) -> Vec<Numbered> {
        let mut answers = Vec::new();
        let mut clusters_wait = false;
        for kind in Kind::ALL {
            let Some(subscription) = &self.subscriptions[kind as usize] else { continue };
            let Some(answer) = next(subscription, kind, resources.of_kind(kind)) else { continue };
            if subscription.waiting_since().is_some() {
                clusters_wait |= kind == Kind::Cluster;
            } else if !(clusters_wait && matches!(kind, Kind::Listener | Kind::Route)) {
                answers.push(self.send(kind, answer, now));
            }
        }
        answers
    }

    fn send(&mut self, kind: Kind, answer: Answer, now: Timestamp) -> Numbered {
        if kind == Kind::Cluster {
            self.owe_endpoints(&answer);
        }
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        if let Some(subscription) = &mut self.subscriptions[kind as usize] {
            subscription.send(&answer, nonce.clone(), now);
        }
        Numbered { kind, nonce, answer }
    }

    /// The endpoints of a cluster that is new to the client, or changed, are sent once more after it: Envoy takes such a
    /// cluster into use only when it gets its endpoints, the same ones or others. A client that comes back may ask for
    /// clusters first, and say of endpoints that it has them.
    fn owe_endpoints(&mut self, answer: &Answer) {
        let [Some(clusters), endpoints, ..] = &mut self.subscriptions else { return };
        let changed =
            answer.resources.iter().filter(|cluster| clusters.told.get(&cluster.name) != Some(&cluster.version));
        for cluster in changed {
            match endpoints {
                None => _ = self.without_endpoints.insert(cluster.name.clone()),
                Some(endpoints) if endpoints.told.contains_key(&cluster.name) => {
                    endpoints.owed.insert(cluster.name.clone());
                }
                Some(_) => {}
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self.client {
            None => Some(self.opened.after(MAX_SILENCE)),
            Some(_) => self.waiting_since().map(|since| since.after(MAX_WAIT)),
        }
    }

    pub(super) fn overdue(&self, now: Timestamp) -> Option<Fault> {
        let patience = if self.client.is_none() { MAX_SILENCE } else { MAX_WAIT };
        self.deadline().filter(|deadline| now >= *deadline).map(|_| Fault::Silent(patience.as_secs()))
    }

    pub(super) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    pub(super) fn unserved(&self) -> &[String] {
        &self.unserved
    }

    pub(super) fn views(&self) -> Vec<SubscriptionView> {
        let known = Kind::ALL.into_iter().zip(&self.subscriptions);
        known.filter_map(|(kind, subscription)| Some(subscription.as_ref()?.view(kind))).collect()
    }

    /// When the answer was sent that the client is waited for longest.
    fn waiting_since(&self) -> Option<Timestamp> {
        self.subscriptions.iter().flatten().filter_map(Subscription::waiting_since).min()
    }
}

/// This server, for clients to show.
pub(super) fn control_plane() -> ControlPlane {
    ControlPlane { identifier: concat!("pointsman ", env!("CARGO_PKG_VERSION")).to_owned() }
}

/// Who the client says it is; only its first request must say so.
fn identify(node: Option<Node>) -> Result<Client, Fault> {
    let node = node.unwrap_or_default();
    if node.id.len() > MAX_NODE {
        return Err(Fault::Nonsense(format!("a node id of {} bytes; {MAX_NODE} at most", node.id.len())));
    }
    let id = clean(&node.id, MAX_NODE);
    if id.is_empty() {
        return Err(Fault::Nonsense("the first request does not say who asks (node.id)".to_owned()));
    }
    let version = match node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version,
        Some(UserAgentVersionType::UserAgentBuildVersion(build)) => {
            let number = build.version.unwrap_or_default();
            format!("{}.{}.{}", number.major_number, number.minor_number, number.patch)
        }
        None => String::new(),
    };
    let software = [clean(&node.user_agent_name, MAX_WORDS), clean(&version, MAX_WORDS)].join(" ");
    Ok(Client { node: id, cluster: clean(&node.cluster, MAX_WORDS), software: software.trim().to_owned() })
}

/// A bucket of requests, counted in the time that it takes to refill.
#[derive(Debug)]
struct Bucket {
    used: Duration,
    at: Timestamp,
}

impl Bucket {
    fn take(&mut self, now: Timestamp) -> Result<(), Fault> {
        self.used = self.used.saturating_sub(now.since(self.at)) + REFILL;
        self.at = now;
        if self.used > REFILL * BURST {
            let per_sec = 1000 / REFILL.as_millis();
            return Err(Fault::Flood(format!("more than {BURST} requests unasked, and {per_sec} each second after")));
        }
        Ok(())
    }
}
