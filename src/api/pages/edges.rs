//! Edges: what they are told, and who takes it over xDS and who does not.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Query};
use minijinja::value::{Serde, Value};
use serde::{Deserialize, Serialize};

use super::part::When;
use super::{Asked, Page, said};
use crate::api::problem::Problem;
use crate::edge::{Endpoint, EndpointGroup, Health};
use crate::time::Timestamp;
use crate::xds::view::{ClientView, GoneView, Protocol, Rejection, SubscriptionView, XdsTotals, XdsView};

/// Clients on a page.
const ROWS: usize = 100;

/// Most groups that are shown, and most nodes of each: the API has them all.
const GROUPS: usize = 20;
const NODES: usize = 100;

/// Most ended streams that are shown.
const GONE: usize = 20;

/// Most names that are said of those that a client asks for.
const NAMES: usize = 3;

/// An answer that has been under way for less is no news: each takes a moment.
const USUAL_WAIT: Duration = Duration::from_secs(1);

/// The page.
#[derive(Clone, FromRequestParts)]
pub(super) struct Edges {
    #[from_request(via(Query))]
    filter: Filter,
}

/// Which of the clients.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
struct Filter {
    /// Part of what the client calls itself, of its program, its address, or the name of its token or certificate.
    q: String,
    /// From 1.
    page: Option<usize>,
}

#[derive(Serialize)]
struct Facts<'a> {
    filter: &'a Filter,
    told: Told<'a>,
    server: Option<Server>,
}

/// What edges are told.
#[derive(Serialize)]
struct Told<'a> {
    generation: u64,
    at: When,
    groups: Vec<Group<'a>>,
    more: usize,
}

#[derive(Serialize)]
struct Group<'a> {
    id: &'a str,
    cluster: &'a str,
    nodes: Vec<&'a Endpoint>,
    more: usize,
}

/// The xDS server.
#[derive(Serialize)]
struct Server {
    address: Option<String>,
    problem: String,
    totals: XdsTotals,
    /// How many clients there are, how many reject something, and how many keep an answer waiting.
    all: usize,
    rejecting: usize,
    waiting: usize,
    found: usize,
    rows: Vec<Row>,
    page: usize,
    pages: usize,
    gone: Vec<Gone>,
    gone_more: usize,
}

/// How a client, or one of its subscriptions, does; the most troubled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Stance {
    /// It rejects the latest answer.
    Rejects,
    /// It has neither accepted nor rejected one for a while.
    Waits,
    /// It holds what it accepted.
    Holds,
    /// It has accepted nothing yet.
    Nothing,
}

impl Stance {
    fn of(subscription: &SubscriptionView, now: Timestamp) -> Self {
        let SubscriptionView { rejection, waiting_since, accepted, .. } = subscription;
        match waiting_since {
            _ if rejection.is_some() => Self::Rejects,
            Some(since) if now.since(*since) > USUAL_WAIT => Self::Waits,
            _ if *accepted > 0 => Self::Holds,
            _ => Self::Nothing,
        }
    }

    fn of_client(client: &ClientView, now: Timestamp) -> Self {
        let all = client.subscriptions.iter().map(|subscription| Self::of(subscription, now));
        all.min().unwrap_or(Self::Nothing)
    }
}

/// A client.
#[derive(Serialize)]
struct Row {
    stream: u64,
    node: String,
    cluster: String,
    software: String,
    peer: String,
    who: Option<String>,
    protocol: Protocol,
    since: When,
    stance: Stance,
    kinds: Vec<Kind>,
    unserved: Vec<String>,
}

/// A client's subscription to a kind of resource.
#[derive(Serialize)]
struct Kind {
    name: &'static str,
    stance: Stance,
    wildcard: bool,
    names: Vec<String>,
    names_more: usize,
    version: String,
    after_ms: Option<f64>,
    waiting_since: Option<When>,
    rejected: Option<Rejected>,
}

#[derive(Serialize)]
struct Rejected {
    version: String,
    error: String,
    at: When,
}

impl Row {
    fn new(client: &ClientView, asked: &Asked<'_>) -> Self {
        Self {
            stream: client.stream,
            node: client.node.clone(),
            cluster: client.cluster.clone(),
            software: client.software.clone(),
            peer: client.peer.clone(),
            who: client.who.clone(),
            protocol: client.protocol,
            since: asked.when(client.since),
            stance: Stance::of_client(client, asked.now),
            kinds: client.subscriptions.iter().map(|subscription| Kind::new(subscription, asked)).collect(),
            unserved: client.unserved.clone(),
        }
    }
}

impl Kind {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
    fn new(subscription: &SubscriptionView, asked: &Asked<'_>) -> Self {
        let SubscriptionView { names, rejection, .. } = subscription;
        let rejected = |Rejection { version, error, at }: &Rejection| Rejected {
            version: version.clone(),
            error: error.clone(),
            at: asked.when(*at),
        };
        Self {
            name: subscription.kind.as_str(),
            stance: Stance::of(subscription, asked.now),
            wildcard: subscription.wildcard,
            names: names.iter().take(NAMES).cloned().collect(),
            names_more: names.len().saturating_sub(NAMES),
            version: subscription.accepted_version.clone(),
            after_ms: subscription.accepted_after_us.map(|us| us as f64 / 1e3),
            waiting_since: subscription.waiting_since.map(|at| asked.when(at)),
            rejected: rejection.as_ref().map(rejected),
        }
    }
}

/// A stream that ended.
#[derive(Serialize)]
struct Gone {
    node: String,
    peer: String,
    at: When,
    dropped: bool,
    reason: String,
}

impl Gone {
    fn new(gone: &GoneView, asked: &Asked<'_>) -> Self {
        let GoneView { node, peer, at, dropped, reason } = gone.clone();
        Self { node, peer, at: asked.when(at), dropped, reason: said::ended(&reason, asked.look.language) }
    }
}

impl Page for Edges {
    const TEMPLATE: &'static str = "edges.html";
    const LIVE: &'static [&'static str] = &["told", "server", "clients", "gone"];

    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let server = asked.app.sources.xds.as_ref().map(|clients| self.server(clients.view(), asked));
        Ok(Value::from(Serde(&Facts { filter: &self.filter, told: told(asked), server })))
    }
}

fn told<'a>(asked: &Asked<'a>) -> Told<'a> {
    let snapshot = &asked.view.edge;
    Told {
        generation: snapshot.generation,
        at: asked.when(snapshot.at),
        groups: snapshot.groups.iter().take(GROUPS).map(Group::new).collect(),
        more: snapshot.groups.len().saturating_sub(GROUPS),
    }
}

impl<'a> Group<'a> {
    fn new(group: &'a EndpointGroup) -> Self {
        Self {
            id: group.id.as_str(),
            cluster: &group.cluster,
            nodes: group.endpoints.iter().take(NODES).collect(),
            more: group.endpoints.len().saturating_sub(NODES),
        }
    }
}

impl Edges {
    fn server(&self, view: XdsView, asked: &Asked<'_>) -> Server {
        let XdsView { address, problem, clients, gone, totals } = view;
        let count = |stance| clients.iter().filter(|one| Stance::of_client(one, asked.now) == stance).count();
        let wanted = self.filter.q.trim().to_lowercase();
        let mut found: Vec<&Arc<ClientView>> = clients.iter().filter(|client| has(client, &wanted)).collect();
        found.sort_by_cached_key(|client| place(client, asked.now));
        let pages = found.len().div_ceil(ROWS).max(1);
        let page = self.filter.page.unwrap_or(1).clamp(1, pages);
        let rows = found.iter().skip((page - 1) * ROWS).take(ROWS);
        Server {
            address,
            problem,
            totals,
            all: clients.len(),
            rejecting: count(Stance::Rejects),
            waiting: count(Stance::Waits),
            found: found.len(),
            rows: rows.map(|client| Row::new(client, asked)).collect(),
            page,
            pages,
            gone: gone.iter().take(GONE).map(|gone| Gone::new(gone, asked)).collect(),
            gone_more: gone.len().saturating_sub(GONE),
        }
    }
}

/// Who rejects comes first, then who keeps an answer waiting, then by name.
fn place(client: &ClientView, now: Timestamp) -> (Stance, String, u64) {
    let stance = match Stance::of_client(client, now) {
        Stance::Nothing => Stance::Holds,
        other => other,
    };
    (stance, client.node.clone(), client.stream)
}

fn has(client: &ClientView, wanted: &str) -> bool {
    let ClientView { node, software, peer, who, .. } = client;
    let mut texts = [node, software, peer].into_iter().chain(who);
    wanted.is_empty() || texts.any(|text| text.to_lowercase().contains(wanted))
}

/// A node as edges see it, in one of its groups.
#[derive(Serialize)]
pub(super) struct Membership<'a> {
    group: &'a str,
    address: &'a str,
    port: u16,
    health: Health,
    weight: u32,
    stands_in: bool,
}

/// The groups of a node.
pub(super) fn memberships<'a>(asked: &Asked<'a>, node: &str) -> Vec<Membership<'a>> {
    let all = asked.view.edge.groups.iter().flat_map(|group| group.endpoints.iter().map(move |one| (group, one)));
    let own = all.filter(|(_, endpoint)| endpoint.node.as_str() == node);
    own.map(|(group, endpoint)| Membership {
        group: group.id.as_str(),
        address: &endpoint.address,
        port: endpoint.port,
        health: endpoint.health,
        weight: endpoint.weight,
        stands_in: endpoint.stands_in,
    })
    .collect()
}
