//! The incremental dialect: a request says what the client wants from now on and no longer, an answer what has changed.
//!
//! - A kind whose first request names nothing is asked for as a whole, like one that subscribes to `*`, until it
//!   unsubscribes from `*`. The first answer to that is sent with nothing in it too, so that the client knows. The protocol
//!   has wildcards for clusters and listeners only; here any kind has them.
//! - What the client wants and no longer wants counts whatever the nonce. It accepts or rejects only with the nonce of the
//!   answer under way.
//! - A client that comes back says with its first request which versions it has (`initial_resource_versions`): it is sent
//!   what differs, and told what is gone. A name that it has in the version of now is not answered: to save that is what
//!   it says so for. But the endpoints of a cluster that was sent are, because Envoy waits for them.
//! - Any other name that it subscribes to is answered, even if it was told of it before, for it may have forgotten it: with
//!   the resource, or as removed where there is none. So is a name that it unsubscribes from while it wants everything: it
//!   cannot know whether that is part of everything.
//! - The version of a resource that was in a rejected answer is not sent again, not even to who subscribes to it anew: the
//!   client keeps what it has. Other resources and later versions are sent. Where it was rejected with others, it may not be
//!   the bad one: each of them comes once more, alone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::rejections::Rejections;
use super::stream::{Stream, control_plane};
use super::subscription::{Answer, EVERYTHING, MAX_NAME, MAX_NAMES, OfKind, Subscription, version_of};
use super::{Dialogue, Fault};
use crate::time::Timestamp;
use crate::xds::kind::Kind;
use crate::xds::protocol::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use crate::xds::resources::{self, Resources};
use crate::xds::view::Protocol;

/// Bytes of a version that a client says it has; a longer one is none of ours, and is not kept.
const MAX_VERSION: usize = 64;

/// A stream of changes.
#[derive(Debug)]
pub struct Delta {
    stream: Stream,
}

impl Dialogue for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;
    const PROTOCOL: Protocol = Protocol::Delta;

    fn open(asker: &str, now: Timestamp) -> Self {
        Self { stream: Stream::open(asker, now) }
    }

    fn take(
        &mut self,
        request: DeltaDiscoveryRequest,
        rejections: &mut Rejections,
        now: Timestamp,
    ) -> Result<(), Fault> {
        let nonce = &request.response_nonce;
        let Some((kind, is_answer)) = self.stream.hear(request.node, &request.type_url, nonce, now)? else {
            return Ok(());
        };
        self.stream.settle(kind, nonce, request.error_detail.as_ref(), rejections, now);
        let has = request.initial_resource_versions;
        let (subscription, is_new) = self.stream.subscribe(kind, !has.is_empty(), rejections);
        let due = subscription.due();
        if is_new {
            hold(subscription, has)?;
            if request.resource_names_subscribe.is_empty() && request.resource_names_unsubscribe.is_empty() {
                want_everything(subscription);
            }
        }
        unsubscribe(subscription, request.resource_names_unsubscribe);
        subscribe(subscription, request.resource_names_subscribe, is_new)?;
        subscription.prune()?;
        if is_answer { self.stream.asked(kind, due, now) } else { Ok(()) }
    }

    fn update(&mut self, resources: &Resources, now: Timestamp) -> Vec<DeltaDiscoveryResponse> {
        let answers = self.stream.answers(next, resources, now).into_iter();
        answers
            .map(|sent| DeltaDiscoveryResponse {
                system_version_info: sent.answer.version,
                resources: sent
                    .answer
                    .resources
                    .iter()
                    .map(|resource| Resource {
                        version: resource.version.clone(),
                        resource: Some(resource.body.clone()),
                        name: resource.name.clone(),
                    })
                    .collect(),
                type_url: sent.kind.type_url().to_owned(),
                nonce: sent.nonce,
                removed_resources: sent.answer.removed,
                control_plane: Some(control_plane()),
            })
            .collect()
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// The client has this from an earlier stream.
fn hold(subscription: &mut Subscription, has: HashMap<String, String>) -> Result<(), Fault> {
    if has.len() > MAX_NAMES || has.keys().any(|name| name.len() > MAX_NAME) {
        return Err(Fault::TooMuch(format!(
            "it holds more than {MAX_NAMES} resources, or names over {MAX_NAME} bytes"
        )));
    }
    let ours = |version: String| if version.len() > MAX_VERSION { String::new() } else { version };
    subscription.told = has.into_iter().map(|(name, version)| (name, ours(version))).collect();
    Ok(())
}

fn want_everything(subscription: &mut Subscription) {
    subscription.wildcard = true;
    subscription.unanswered = true;
}

fn unsubscribe(subscription: &mut Subscription, names: Vec<String>) {
    for name in names {
        if name == EVERYTHING {
            subscription.wildcard = false;
            subscription.unanswered = false;
        } else if subscription.names.remove(&name) {
            subscription.owed.insert(name);
        }
    }
}

fn subscribe(subscription: &mut Subscription, names: Vec<String>, is_new: bool) -> Result<(), Fault> {
    for name in names {
        if name == EVERYTHING {
            if !is_new {
                subscription.owe_all();
            }
            want_everything(subscription);
            continue;
        }
        if !is_new || !subscription.told.contains_key(&name) {
            subscription.owed.insert(name.clone());
        }
        subscription.add([name])?;
    }
    Ok(())
}

/// What differs from what the client was told, and what it asked for anew; else one of those that it rejected with others.
fn next(subscription: &Subscription, _: Kind, all: &OfKind) -> Option<Answer> {
    let owed = &subscription.owed;
    let wanted = subscription.wanted(all).filter(|it| !subscription.has_rejected(&it.name, &it.version)).cloned();
    let (apart, rest): (Vec<_>, Vec<_>) = wanted.partition(|it| subscription.is_apart(it));
    let is_news =
        |it: &Arc<resources::Resource>| subscription.told.get(&it.name) != Some(&it.version) || owed.contains(&it.name);
    let news: Vec<_> = rest.into_iter().filter(is_news).collect();
    let is_gone = |name: &&String| !all.get(*name).is_some_and(|resource| subscription.wants(resource));
    let removed: BTreeSet<_> = subscription.told.keys().chain(owed).filter(is_gone).cloned().collect();
    let nothing_else = news.is_empty() && removed.is_empty() && !subscription.unanswered;
    let resources = if nothing_else { vec![apart.into_iter().next()?] } else { news };
    let parts: Vec<_> = resources.iter().map(|it| (it.name.clone(), it.version.clone())).collect();
    let mut told = subscription.told.clone();
    told.retain(|name, _| !removed.contains(name));
    told.extend(parts.iter().cloned());
    Some(Answer { resources, removed: removed.into_iter().collect(), version: version_of(&told), told, parts })
}
