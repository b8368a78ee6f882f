//! What clients rejected, kept over their streams: a client that comes back with what it still holds is not sent again
//! what it has rejected.
//!
//! Only a client that says it holds something is spared: one that holds nothing was started anew, perhaps with a program
//! that takes the answer now, and would have nothing at all without it.

use std::collections::HashMap;

use crate::xds::kind::Kind;

/// Clients remembered; the one that rejected something longest ago is forgotten first. Far more than one server has, and
/// a client that calls itself something else each time costs others at most this memory.
const MAX_CLIENTS: usize = 4096;

/// What is remembered of a client and kind. Who rejects more than that rejects everything, and hears of it each time.
const MAX_REJECTED: usize = 32;

/// What is rejected: a version of a resource, by its name; a version of a whole answer has no name.
pub type Part = (String, String);

/// What clients rejected and have accepted nothing newer of.
#[derive(Debug, Default)]
pub struct Rejections {
    clients: HashMap<String, Rejected>,
    counted: u64,
}

#[derive(Debug, Default)]
struct Rejected {
    latest: u64,
    kinds: [Vec<Part>; Kind::ALL.len()],
}

impl Rejections {
    /// A client rejected this; what it rejected of the same names before is forgotten.
    pub fn remember(&mut self, node: &str, kind: Kind, parts: &[Part]) {
        if parts.is_empty() {
            return;
        }
        if !self.clients.contains_key(node) && self.clients.len() >= MAX_CLIENTS {
            let oldest = self.clients.iter().min_by_key(|(_, rejected)| rejected.latest);
            if let Some(oldest) = oldest.map(|(node, _)| node.clone()) {
                self.clients.remove(&oldest);
            }
        }
        self.counted += 1;
        let rejected = self.clients.entry(node.to_owned()).or_default();
        rejected.latest = self.counted;
        let of_kind = &mut rejected.kinds[kind as usize];
        of_kind.retain(|(name, _)| !parts.iter().any(|(newer, _)| newer == name));
        of_kind.extend_from_slice(parts);
        of_kind.drain(..of_kind.len().saturating_sub(MAX_REJECTED));
    }

    /// A client accepted this: what it rejected of the same names before no longer matters.
    pub fn forget(&mut self, node: &str, kind: Kind, parts: &[Part]) {
        let Some(rejected) = self.clients.get_mut(node) else { return };
        rejected.kinds[kind as usize].retain(|(name, _)| !parts.iter().any(|(newer, _)| newer == name));
        if rejected.kinds.iter().all(Vec::is_empty) {
            self.clients.remove(node);
        }
    }

    /// What a client rejected of a kind.
    #[must_use]
    pub fn of(&self, node: &str, kind: Kind) -> &[Part] {
        self.clients.get(node).map_or(&[], |rejected| &rejected.kinds[kind as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, version: &str) -> Part {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn the_latest_rejected_version_of_each_name_is_remembered_by_client_and_kind() {
        let mut all = Rejections::default();
        all.remember("a", Kind::Cluster, &[part("x", "1"), part("y", "1")]);
        all.remember("a", Kind::Cluster, &[part("x", "2")]);
        all.remember("b", Kind::Route, &[part("", "7")]);
        assert_eq!(all.of("a", Kind::Cluster), [part("y", "1"), part("x", "2")]);
        assert_eq!(all.of("b", Kind::Route), [part("", "7")]);
        assert!(all.of("a", Kind::Route).is_empty() && all.of("c", Kind::Cluster).is_empty());
    }

    #[test]
    fn what_is_accepted_later_ends_the_memory_of_its_name_only() {
        let mut all = Rejections::default();
        all.remember("a", Kind::Cluster, &[part("x", "1"), part("y", "1")]);
        all.forget("a", Kind::Cluster, &[part("x", "2")]);
        assert_eq!(all.of("a", Kind::Cluster), [part("y", "1")]);
        all.forget("a", Kind::Cluster, &[part("y", "2")]);
        assert!(all.clients.is_empty());
    }

    #[test]
    fn there_is_an_end_to_clients_and_to_what_is_remembered_of_one() {
        let mut all = Rejections::default();
        for n in 0..=MAX_CLIENTS {
            all.remember(&format!("node-{n}"), Kind::Cluster, &[part("x", "1")]);
        }
        assert_eq!(all.clients.len(), MAX_CLIENTS);
        assert!(all.of("node-0", Kind::Cluster).is_empty(), "the oldest is out");
        assert!(!all.of("node-1", Kind::Cluster).is_empty());

        let many: Vec<_> = (0..MAX_REJECTED + 5).map(|n| part(&n.to_string(), "1")).collect();
        all.remember("node-1", Kind::Cluster, &many);
        assert_eq!(all.of("node-1", Kind::Cluster), &many[5..]);
    }
}
