//! The dialect "state of the world": a request names all that the client wants of a kind, an answer holds all of it.
//!
//! - A kind whose first request names nothing, or `*`, is asked for as a whole. Once a name was given, a request without
//!   names wants nothing any more. The protocol has wildcards for clusters and listeners only; here any kind has them.
//! - The first request of a kind on a stream is answered whatever version it brings: the client may want names that it did
//!   not before, and the version alone does not tell. A name that was added is answered too, even where nothing is there.
//! - The names of a request count whatever its nonce, because the client sends the latest last. It accepts or rejects only
//!   with the nonce of the answer under way.
//! - Clusters and listeners are gone when an answer lacks them. Of the other kinds nothing can be taken away: that such a
//!   resource is gone is no reason for an answer, and the client drops it with what refers to it.
//! - A rejected answer of clusters or listeners is not sent again; another one is, though the resource that was the reason
//!   may be in it: clients take the good resources of an answer and leave the bad ones. The price: where all is again as
//!   it was in the rejected answer, the client hears of it with the next change only.
//! - Of the other kinds what was rejected is left out of the next answers, and the client keeps what it has of it; where
//!   several were in the answer, each comes once more alone, for Envoy takes none of them. So the rest, and names that are
//!   added later, are not disturbed.

use std::sync::Arc;

use super::rejections::Rejections;
use super::stream::{Stream, control_plane};
use super::subscription::{Answer, EVERYTHING, OfKind, Subscription, Versions, version_of};
use super::{Dialogue, Fault};
use crate::time::Timestamp;
use crate::xds::kind::Kind;
use crate::xds::protocol::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use crate::xds::resources::{Resource, Resources};
use crate::xds::view::Protocol;

/// A stream of the state of the world.
#[derive(Debug)]
pub struct Sotw {
    stream: Stream,
}

impl Dialogue for Sotw {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;
    const PROTOCOL: Protocol = Protocol::StateOfTheWorld;

    fn open(asker: &str, now: Timestamp) -> Self {
        Self { stream: Stream::open(asker, now) }
    }

    fn take(&mut self, request: DiscoveryRequest, rejections: &mut Rejections, now: Timestamp) -> Result<(), Fault> {
        let nonce = &request.response_nonce;
        let Some((kind, is_answer)) = self.stream.hear(request.node, &request.type_url, nonce, now)? else {
            return Ok(());
        };
        self.stream.settle(kind, nonce, request.error_detail.as_ref(), rejections, now);
        let (subscription, is_new) = self.stream.subscribe(kind, !request.version_info.is_empty(), rejections);
        let due = subscription.due();
        subscription.unanswered |= is_new;
        name(subscription, request.resource_names)?;
        if is_answer { self.stream.asked(kind, due, now) } else { Ok(()) }
    }

    fn update(&mut self, resources: &Resources, now: Timestamp) -> Vec<DiscoveryResponse> {
        let answers = self.stream.answers(next, resources, now).into_iter();
        answers
            .map(|sent| DiscoveryResponse {
                version_info: sent.answer.version,
                resources: sent.answer.resources.iter().map(|resource| resource.body.clone()).collect(),
                type_url: sent.kind.type_url().to_owned(),
                nonce: sent.nonce,
                control_plane: Some(control_plane()),
            })
            .collect()
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// The client wants these, and nothing else any more.
fn name(subscription: &mut Subscription, names: Vec<String>) -> Result<(), Fault> {
    if names.is_empty() && !subscription.named {
        subscription.wildcard = true;
        return Ok(());
    }
    subscription.named = true;
    let had_everything = std::mem::replace(&mut subscription.wildcard, names.iter().any(|name| name == EVERYTHING));
    subscription.unanswered |= subscription.wildcard && !had_everything;
    let before = std::mem::take(&mut subscription.names);
    subscription.add(names.into_iter().filter(|name| name != EVERYTHING))?;
    subscription.owed.extend(subscription.names.difference(&before).cloned());
    subscription.prune()
}

/// All that the client wants, where it was told something else or asked for more.
fn next(subscription: &Subscription, kind: Kind, all: &OfKind) -> Option<Answer> {
    if kind.is_whole() { whole(subscription, all) } else { parts(subscription, all) }
}

/// An answer that is accepted or rejected as a whole.
fn whole(subscription: &Subscription, all: &OfKind) -> Option<Answer> {
    let resources: Vec<_> = subscription.wanted(all).cloned().collect();
    let told = versions(&resources);
    let is_due = subscription.unanswered || !subscription.owed.is_empty() || told != subscription.told;
    let version = version_of(&told);
    if !is_due || subscription.has_rejected("", &version) {
        return None;
    }
    let parts = vec![(String::new(), version.clone())];
    Some(Answer { resources, removed: Vec::new(), version, told, parts })
}

/// An answer of which the client may take some and not others.
fn parts(subscription: &Subscription, all: &OfKind) -> Option<Answer> {
    let wanted = subscription.wanted(all).filter(|it| !subscription.has_rejected(&it.name, &it.version)).cloned();
    let (apart, together): (Vec<_>, Vec<_>) = wanted.partition(|it| subscription.is_apart(it));
    let has_changed = || together.iter().any(|it| subscription.told.get(&it.name) != Some(&it.version));
    let is_due = subscription.unanswered || !subscription.owed.is_empty() || has_changed();
    let resources = if is_due { together } else { vec![apart.into_iter().next()?] };
    let sent = versions(&resources);
    let (version, parts) = (version_of(&sent), sent.clone().into_iter().collect());
    let mut told = subscription.told.clone();
    told.extend(sent);
    Some(Answer { resources, removed: Vec::new(), version, told, parts })
}

fn versions(resources: &[Arc<Resource>]) -> Versions {
    resources.iter().map(|it| (it.name.clone(), it.version.clone())).collect()
}
