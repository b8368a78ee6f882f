//! When a change is passed on. Pure.
//!
//! Scores move with every call, health seldom; and a call that an edge sends to a dead node is lost, while one that goes to
//! the second best node is not. So a change of health goes out at once, and so does a change of weights after a quiet
//! moment, but weights that never rest are told a few times a second. Health that never rests, as that of a node
//! whose last place is taken and given back with every call, is told no more often than they are.

use std::time::Duration;

use super::{Endpoint, EndpointGroup, Health, Snapshot};
use crate::time::Timestamp;

/// Shortest time between two snapshots.
pub const APART: Duration = Duration::from_millis(5);

/// Shortest time between two snapshots that differ in weights alone: an edge spreads calls over seconds.
pub const WEIGHTS_APART: Duration = Duration::from_millis(100);

/// Changes of health that go out at once in a row; each makes up for itself in [`WEIGHTS_APART`]. More than nodes that fail
/// together need: what changes at one moment is one snapshot.
pub const BURST: u32 = 20;

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

/// How soon the second is to be told to who has the first. Who stands in for nodes that all take no calls is no better than
/// the others, so that another one does is no more urgent than weights.
#[must_use]
pub fn urgency(before: &Snapshot, after: &Snapshot) -> Urgency {
    fn endpoints(snapshot: &Snapshot) -> impl Iterator<Item = &Endpoint> {
        snapshot.groups.iter().flat_map(|group| &group.endpoints)
    }
    if before.groups == after.groups {
        return Urgency::None;
    }
    let own = |it: &Endpoint| if it.stands_in { Health::Unhealthy } else { it.health };
    let health = |snapshot| endpoints(snapshot).map(|it| (it.node.clone(), own(it))).collect::<Vec<_>>();
    let standing_in = |snapshot: &Snapshot| snapshot.groups.iter().map(stands_in).collect::<Vec<_>>();
    let same = health(before) == health(after) && standing_in(before) == standing_in(after);
    if same { Urgency::Weights } else { Urgency::Health }
}

/// Whether somebody in the group stands in.
fn stands_in(group: &EndpointGroup) -> bool {
    group.endpoints.iter().any(|it| it.stands_in)
}

/// Keeps the intervals. They stretch with the rate of the clock: edges live in real time.
#[derive(Debug)]
pub struct Pace {
    rate: u32,
    /// Of the burst, in the time that it takes to make up for it.
    used: Duration,
    used_at: Timestamp,
}

impl Pace {
    /// For a clock that runs at this rate.
    #[must_use]
    pub fn new(rate: u32) -> Self {
        Self { rate, used: Duration::ZERO, used_at: Timestamp::default() }
    }

    fn used(&self, now: Timestamp) -> Duration {
        self.used.saturating_sub(now.since(self.used_at) / self.rate)
    }

    /// When a change of that urgency is due, where the snapshot before was made at `last`; `None` where there is no change.
    #[must_use]
    pub fn due(&self, urgency: Urgency, last: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let apart = match urgency {
            Urgency::None => return None,
            Urgency::Health if self.used(now) + WEIGHTS_APART <= WEIGHTS_APART * BURST => APART,
            Urgency::Weights | Urgency::Health => WEIGHTS_APART,
        };
        Some(last.after(apart.saturating_mul(self.rate)))
    }

    /// A snapshot was made.
    pub fn made(&mut self, urgency: Urgency, now: Timestamp) {
        let more = if urgency == Urgency::Health { WEIGHTS_APART } else { Duration::ZERO };
        (self.used, self.used_at) = (self.used(now) + more, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn with_stand_in(mut snapshot: Snapshot, number: usize) -> Snapshot {
        let endpoint = &mut snapshot.groups[0].endpoints[number];
        (endpoint.stands_in, endpoint.health) = (true, Health::Healthy);
        snapshot
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
    fn that_somebody_stands_in_is_urgent_and_who_is_not() {
        let none = snapshot(&[("a", Health::Unhealthy, 1), ("b", Health::Unhealthy, 1)]);
        let [first, second] = [0, 1].map(|number| with_stand_in(none.clone(), number));
        assert_eq!(urgency(&none, &first), Urgency::Health);
        assert_eq!(urgency(&first, &second), Urgency::Weights);
        let well = snapshot(&[("a", Health::Healthy, 50), ("b", Health::Unhealthy, 1)]);
        assert_eq!(urgency(&first, &well), Urgency::Health);
    }

    #[test]
    fn each_waits_for_its_own_interval_since_the_last_snapshot() {
        let last = Timestamp::from_secs(1);
        let due = |rate, urgency| Pace::new(rate).due(urgency, last, last);
        assert_eq!(due(1, Urgency::None), None);
        assert_eq!(due(1, Urgency::Health), Some(last.after(APART)));
        assert_eq!(due(1, Urgency::Weights), Some(last.after(WEIGHTS_APART)));
        assert_eq!(due(60, Urgency::Health), Some(last.after(APART * 60)), "a clock that runs 60 times as fast");
    }

    #[test]
    fn health_that_never_rests_is_told_like_weights() {
        let (mut pace, mut now) = (Pace::new(1), Timestamp::from_secs(1));
        let mut made = Vec::new();
        for _ in 0..40 {
            let due = pace.due(Urgency::Health, now, now).unwrap();
            made.push(due.since(now));
            now = due;
            pace.made(Urgency::Health, now);
        }
        assert_eq!(made[..20], [APART; 20], "a burst at once");
        assert!(made[30..].iter().filter(|apart| **apart == WEIGHTS_APART).count() >= 9, "{made:?}");
        now = now.after(WEIGHTS_APART * BURST);
        assert_eq!(pace.due(Urgency::Health, now, now), Some(now.after(APART)), "after a quiet while at once again");
    }
}
