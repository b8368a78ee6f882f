//! The ring of the mode `consistent_hash`.
//!
//! Each node stands at [`POINTS`] places of a ring of 2^64, at the hashes of `<node id>#<n>` for n from 0; a key belongs to
//! the first place at or after its own hash. The hash is XXH3 with 64 bits and the seed 0, over the bytes of the text. So
//! anybody can compute where a key belongs, and a node that comes or goes moves nothing but its own share.

use xxhash_rust::xxh3::xxh3_64;

use crate::ids::NodeId;

/// Places per node. With 160 the shares of ten equal nodes stay within some 25 % of each other's mean.
const POINTS: usize = 160;

/// Places of nodes, in the order of the ring.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ring {
    /// The hash, and the index of the node.
    points: Vec<(u64, usize)>,
}

impl Ring {
    /// Of these nodes. The order in which they are given changes nothing but the indices.
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a NodeId>) -> Self {
        let place = |(index, node): (usize, &'a NodeId)| {
            (0..POINTS).map(move |n| (xxh3_64(format!("{node}#{n}").as_bytes()), node, index))
        };
        let mut points: Vec<_> = nodes.enumerate().flat_map(place).collect();
        points.sort_unstable();
        Self { points: points.into_iter().map(|(hash, _, index)| (hash, index)).collect() }
    }

    /// The nodes by their places clockwise from where the key belongs; each comes [`POINTS`] times.
    pub(super) fn from<'a>(&'a self, key: &str) -> impl Iterator<Item = usize> + use<'a> {
        let hash = xxh3_64(key.as_bytes());
        let start = self.points.partition_point(|(at, _)| *at < hash);
        let (before, after) = self.points.split_at(start);
        after.iter().chain(before).map(|(_, index)| *index)
    }
}
