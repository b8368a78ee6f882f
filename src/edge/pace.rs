//! When a change is passed on. Pure.
//!
//! Scores move with every call, health seldom; and a call that an edge sends to a dead node is lost, while one that goes to
//! the second best node is not. So a change of health goes out at once, and so does a change of weights after a quiet
//! moment, but weights that never rest are told a few times a second.

use std::time::Duration;

use super::{Endpoint, Snapshot};
use crate::time::Timestamp;

/// Shortest time between two snapshots: even a storm of failures makes no more than 200 a second.
pub const APART: Duration = Duration::from_millis(5);

/// Shortest time between two snapshots that differ in weights alone: an edge spreads calls over seconds.
pub const WEIGHTS_APART: Duration = Duration::from_millis(100);

/// How soon a change is to be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Nothing has changed.
    None,
    /// Weights have.
    Weights,
    /// Which nodes take calls has.
    Health,
}

/// How soon the second is to be told to who has the first.
#[must_use]
pub fn urgency(before: &Snapshot, after: &Snapshot) -> Urgency {
    fn endpoints(snapshot: &Snapshot) -> impl Iterator<Item = &Endpoint> {
        snapshot.groups.iter().flat_map(|group| &group.endpoints)
    }
    if before.groups == after.groups {
        return Urgency::None;
    }
    let health = |snapshot| endpoints(snapshot).map(|it| (&it.node, it.health)).collect::<Vec<_>>();
    if health(before) == health(after) { Urgency::Weights } else { Urgency::Health }
}

/// When a change of that urgency is due, where the snapshot before was made at `last`; `None` where there is no change.
/// The two intervals stretch with the rate of the clock: edges live in real time.
#[must_use]
pub fn due(urgency: Urgency, last: Timestamp, rate: u32) -> Option<Timestamp> {
    let apart = match urgency {
        Urgency::None => return None,
        Urgency::Weights => WEIGHTS_APART,
        Urgency::Health => APART,
    };
    Some(last.after(apart.saturating_mul(rate)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::{EndpointGroup, Health};
    use crate::ids::{GroupId, NodeId};

    fn snapshot(endpoints: &[(&str, Health, u32)]) -> Snapshot {
        let endpoint = |&(node, health, weight): &(&str, Health, u32)| Endpoint {
            node: NodeId::new(node).unwrap(),
            address: "192.0.2.1".to_owned(),
            port: 5060,
            health,
            weight,
            stands_in: false,
        };
        let endpoints = endpoints.iter().map(endpoint).collect();
        let group = EndpointGroup { id: GroupId::new("g").unwrap(), cluster: "g".to_owned(), endpoints };
        Snapshot { generation: 1, at: Timestamp::from_secs(1), groups: vec![group] }
    }

    #[test]
    fn health_is_urgent_and_weights_are_not() {
        let before = snapshot(&[("a", Health::Healthy, 50), ("b", Health::Healthy, 50)]);
        let lighter = snapshot(&[("a", Health::Healthy, 49), ("b", Health::Healthy, 50)]);
        let dead = snapshot(&[("a", Health::Unhealthy, 1), ("b", Health::Healthy, 50)]);
        assert_eq!(urgency(&before, &before), Urgency::None);
        assert_eq!(urgency(&before, &lighter), Urgency::Weights);
        assert_eq!(urgency(&before, &dead), Urgency::Health);
        assert_eq!(urgency(&Snapshot::default(), &before), Urgency::Health, "the first one");
    }

    #[test]
    fn each_waits_for_its_own_interval_since_the_last_snapshot() {
        let last = Timestamp::from_secs(1);
        assert_eq!(due(Urgency::None, last, 1), None);
        assert_eq!(due(Urgency::Health, last, 1), Some(last.after(APART)));
        assert_eq!(due(Urgency::Weights, last, 1), Some(last.after(WEIGHTS_APART)));
        assert_eq!(due(Urgency::Health, last, 60), Some(last.after(APART * 60)), "a clock that runs 60 times as fast");
    }
}
