//! What is served: snapshots as the resources of the discovery protocol. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost_types::Any;

use super::kind::Kind;

/// A resource, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// Changes with its content and with nothing else, so that it is the same after a restart.
    pub version: String,
    /// Its content.
    pub body: Any,
    /// Whether a client that asks for everything gets it. One that only makes sense to who names it is not: a listener
    /// for a client without a proxy is none that a proxy could open.
    pub listed: bool,
}

/// All resources of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    kinds: [BTreeMap<String, Arc<Resource>>; Kind::ALL.len()],
}

impl Resources {
    /// Those of a kind, by name.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> &BTreeMap<String, Arc<Resource>> {
        &self.kinds[kind as usize]
    }

    /// Adds one, or puts it in the place of another of its name.
    pub fn insert(&mut self, kind: Kind, resource: Resource) {
        self.kinds[kind as usize].insert(resource.name.clone(), Arc::new(resource));
    }

    /// Takes one away.
    pub fn remove(&mut self, kind: Kind, name: &str) {
        self.kinds[kind as usize].remove(name);
    }
}
