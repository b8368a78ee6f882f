//! A client's subscription to one kind of resource, and how that goes: what both dialects have in common.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::rejections::Part;
use super::{Fault, clean};
use crate::time::Timestamp;
use crate::xds::kind::Kind;
use crate::xds::resources::Resource;
use crate::xds::view::{Rejection, SubscriptionView};

/// Names that a client may ask for of one kind: there are as many resources as groups of nodes, and nobody has so many.
pub(super) const MAX_NAMES: usize = 256;

/// Bytes of a name: more than any that can be configured.
pub(super) const MAX_NAME: usize = 256;

/// Names that people are shown: what is shown of all clients is copied whenever somebody looks.
const SHOWN_NAMES: usize = 32;

/// Names that wait for an answer: what is asked for now, and as many that were a moment ago.
const MAX_OWED: usize = 2 * MAX_NAMES;

/// Versions rejected by themselves that a stream keeps of a kind, the oldest out: some for each name.
const MAX_REJECTED: usize = 256;

/// Characters kept of why a client rejects something.
const MAX_ERROR: usize = 500;

/// The name that stands for everything listed.
pub(super) const EVERYTHING: &str = "*";

/// Resources of one kind by name.
pub(super) type OfKind = BTreeMap<String, Arc<Resource>>;

/// Versions by name.
pub(super) type Versions = BTreeMap<String, String>;

/// What a client is to be sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) resources: Vec<Arc<Resource>>,
    /// Names of what the client is to drop; only delta can say so.
    pub(super) removed: Vec<String>,
    /// Its version.
    pub(super) version: String,
    /// What the client will have been told with it.
    pub(super) told: Versions,
    /// What it rejects if it rejects it.
    pub(super) parts: Vec<Part>,
}

/// An answer that is neither accepted nor rejected yet.
#[derive(Debug)]
struct UnderWay {
    nonce: String,
    at: Timestamp,
    version: String,
    parts: Vec<Part>,
}

/// What is known of the parts of an answer, now that the client said what it thinks of it.
#[derive(Debug)]
pub(super) enum Verdict {
    Accepted(Vec<Part>),
    Rejected(Vec<Part>),
}

/// A client's subscription to one kind.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    /// To everything listed.
    pub(super) wildcard: bool,
    /// Whether any name was ever given.
    pub(super) named: bool,
    /// To these, listed or not.
    pub(super) names: BTreeSet<String>,
    /// What the client has of it, accepted or not: the versions that were sent last.
    pub(super) told: Versions,
    /// Names that are to be answered even where the client has been told all of them.
    pub(super) owed: BTreeSet<String>,
    /// Whether an answer is due even with nothing in it.
    pub(super) unanswered: bool,
    /// Versions that the client rejected by themselves: never sent again.
    rejected: VecDeque<Part>,
    /// Versions by name that were rejected on an earlier stream: not sent again before another version is.
    held_back: Versions,
    /// Versions by name that were rejected with others: each is sent once more, alone.
    apart: Versions,
    under_way: Option<UnderWay>,
    sent: u64,
    sent_version: String,
    accepted: u64,
    accepted_version: String,
    accepted_after_us: Option<u64>,
    rejections: u64,
    rejection: Option<Rejection>,
}

impl Subscription {
    /// Whether it is to this one.
    pub(super) fn wants(&self, resource: &Resource) -> bool {
        self.wildcard && resource.listed || self.names.contains(&resource.name)
    }

    /// What the client wants of what there is.
    pub(super) fn wanted<'a>(&'a self, all: &'a OfKind) -> impl Iterator<Item = &'a Arc<Resource>> {
        all.values().filter(|resource| self.wants(resource))
    }

    /// The client wants these by name.
    ///
    /// # Errors
    /// [`Fault::TooMuch`], with some of them taken.
    pub(super) fn add(&mut self, names: impl IntoIterator<Item = String>) -> Result<(), Fault> {
        for name in names {
            if name.len() > MAX_NAME {
                return Err(Fault::TooMuch(format!("a name of {} bytes; {MAX_NAME} at most", name.len())));
            }
            self.names.insert(name);
            if self.names.len() > MAX_NAMES {
                return Err(Fault::TooMuch(format!("more than {MAX_NAMES} names of one kind")));
            }
        }
        Ok(())
    }

    /// Forgets what the client was told of what it no longer wants.
    ///
    /// # Errors
    /// [`Fault::TooMuch`], where more than it may ask for has yet to be answered.
    pub(super) fn prune(&mut self) -> Result<(), Fault> {
        if !self.wildcard {
            self.told.retain(|name, _| self.names.contains(name));
            self.owed.retain(|name| self.names.contains(name));
        }
        if self.owed.len() > MAX_OWED {
            return Err(Fault::TooMuch(format!("more than {MAX_OWED} names in one answer")));
        }
        Ok(())
    }

    /// How much is to be answered though nothing has changed.
    pub(super) fn due(&self) -> usize {
        self.owed.len() + usize::from(self.unanswered)
    }

    /// All that the client has is to be answered again, with what is under way: it is no longer known here whether that was
    /// wanted when it was sent, and a client that wants everything keeps it.
    pub(super) fn owe_all(&mut self) {
        let under_way = self.under_way.iter().flat_map(|sent| &sent.parts).map(|(name, _)| name);
        self.owed.extend(self.told.keys().chain(under_way).cloned());
    }

    /// Whether the client rejected this version, so that it is not sent.
    pub(super) fn has_rejected(&self, name: &str, version: &str) -> bool {
        self.held_back.get(name).is_some_and(|held_back| held_back == version)
            || self.rejected.iter().any(|(of, rejected)| of == name && rejected == version)
    }

    /// The client is not sent these, until other versions of them are.
    pub(super) fn hold_back(&mut self, parts: &[Part]) {
        self.held_back.extend(parts.iter().cloned());
    }

    /// Whether this was rejected with others and has yet to be sent alone.
    pub(super) fn is_apart(&self, resource: &Resource) -> bool {
        self.apart.get(&resource.name) == Some(&resource.version)
    }

    /// The client rejects an answer. Of several parts nobody knows which one is bad, and whether it took the good ones
    /// differs between clients: each comes once more, alone.
    fn reject(&mut self, parts: &[Part]) {
        let [part] = parts else { return self.apart.extend(parts.iter().cloned()) };
        self.rejected.push_back(part.clone());
        if self.rejected.len() > MAX_REJECTED {
            self.rejected.pop_front();
        }
    }

    /// When the answer was sent that the client is waited for.
    pub(super) fn waiting_since(&self) -> Option<Timestamp> {
        self.under_way.as_ref().map(|sent| sent.at)
    }

    /// Whether a request with this nonce says something to the answer under way.
    pub(super) fn is_answer(&self, nonce: &str) -> bool {
        self.under_way.as_ref().is_some_and(|sent| sent.nonce == nonce)
    }

    /// An answer is sent.
    pub(super) fn send(&mut self, answer: &Answer, nonce: String, now: Timestamp) {
        self.told = answer.told.clone();
        let is_sent = |name: &String| answer.parts.iter().any(|(sent, _)| sent == name);
        self.held_back.retain(|name, _| !is_sent(name));
        self.apart.retain(|name, _| !is_sent(name) && answer.told.contains_key(name));
        self.owed.clear();
        self.unanswered = false;
        self.sent += 1;
        self.sent_version.clone_from(&answer.version);
        self.under_way =
            Some(UnderWay { nonce, at: now, version: answer.version.clone(), parts: answer.parts.clone() });
    }

    /// The client accepts what is under way, or rejects it with an error; `None` where the nonce is another one, and where
    /// it is not known which part is bad.
    pub(super) fn settle(&mut self, nonce: &str, error: Option<&str>, now: Timestamp) -> Option<Verdict> {
        let sent = self.under_way.take_if(|sent| sent.nonce == nonce)?;
        if let Some(error) = error {
            self.rejections += 1;
            self.reject(&sent.parts);
            self.rejection = Some(Rejection { version: sent.version, error: clean(error, MAX_ERROR), at: now });
            return (sent.parts.len() == 1).then_some(Verdict::Rejected(sent.parts));
        }
        self.accepted += 1;
        self.accepted_after_us = u64::try_from(now.since(sent.at).as_micros()).ok();
        self.accepted_version = sent.version;
        // An answer is accepted for what is in it: what was rejected before and not replaced since is still rejected.
        if self.apart.is_empty() && !self.told.iter().any(|(name, version)| self.has_rejected(name, version)) {
            self.rejection = None;
        }
        Some(Verdict::Accepted(sent.parts))
    }

    /// For people.
    pub(super) fn view(&self, kind: Kind) -> SubscriptionView {
        SubscriptionView {
            kind,
            wildcard: self.wildcard,
            names: self.names.iter().take(SHOWN_NAMES).map(|name| clean(name, MAX_NAME)).collect(),
            sent: self.sent,
            sent_version: self.sent_version.clone(),
            waiting_since: self.waiting_since(),
            accepted: self.accepted,
            accepted_version: self.accepted_version.clone(),
            accepted_after_us: self.accepted_after_us,
            rejected: self.rejections,
            rejection: self.rejection.clone(),
        }
    }
}

/// The version of an answer after which a client has been told this: the same after a restart, and for everybody who is
/// told the same.
pub(super) fn version_of(told: &Versions) -> String {
    let mut hash = Xxh3::new();
    for text in told.iter().flat_map(|(name, version)| [name, version]) {
        hash.update(text.as_bytes());
        // No text holds this byte, so that no two lists of texts look the same.
        hash.update(&[0xff]);
    }
    format!("{:016x}", hash.digest())
}
