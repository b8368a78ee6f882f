//! What the operator must know of: watched in the published picture, told once when it begins and once when it is over.
//! Pure.
//!
//! A condition must last before it is told, and be gone for as long before it is over, so that a node that flaps makes
//! one mail and not one a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::view::{LinkState, MapView, View};
use crate::ids::ConnectionId;
use crate::notify::notice::Condition;
use crate::time::Timestamp;

/// How long nothing must have been stored before it is worth a mail: a lock that another program holds for a moment is
/// none.
const STORAGE_PATIENCE: Duration = Duration::from_secs(10);

/// A condition that began or is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which.
    pub condition: Condition,
    /// What there is to say about it, in words.
    pub detail: String,
    /// When it began.
    pub began_at: Timestamp,
    /// When it was over; `None` where it began just now.
    pub over_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// There, and not told yet.
    Rising { since: Timestamp },
    /// Told.
    Told { since: Timestamp },
    /// Told, and not there any more.
    Falling { since: Timestamp, gone_at: Timestamp },
}

/// The conditions that are watched.
#[derive(Clone, Debug)]
pub struct Conditions {
    phases: BTreeMap<Condition, Phase>,
    node_patience: Duration,
}

impl Conditions {
    /// With those that have been told and are not over. A node must be without a link for `node_patience`.
    #[must_use]
    pub fn new(told: impl IntoIterator<Item = (Condition, Timestamp)>, node_patience: Duration) -> Self {
        let phases = told.into_iter().map(|(condition, since)| (condition, Phase::Told { since })).collect();
        Self { phases, node_patience }
    }

    /// Looks at the picture. `dead` says which mails of owners are dead, in words; empty where none is.
    #[must_use]
    pub fn look(&mut self, view: &View, dead: &str, now: Timestamp) -> Vec<Turn> {
        let there = present(view, dead);
        for condition in there.keys() {
            self.phases.entry(condition.clone()).or_insert(Phase::Rising { since: now });
        }
        let mut turns = Vec::new();
        let conditions: Vec<Condition> = self.phases.keys().cloned().collect();
        for condition in conditions {
            let detail = there.get(&condition);
            turns.extend(self.step(&condition, detail.map(String::as_str), now));
        }
        turns
    }

    fn step(&mut self, condition: &Condition, detail: Option<&str>, now: Timestamp) -> Option<Turn> {
        let patience = self.patience(condition);
        let phase = self.phases.get_mut(condition)?;
        let turn = |began_at, over_at| Turn {
            condition: condition.clone(),
            detail: detail.unwrap_or_default().to_owned(),
            began_at,
            over_at,
        };
        match (phase.clone(), detail.is_some()) {
            (Phase::Rising { since }, true) if now.since(since) >= patience => {
                *phase = Phase::Told { since };
                Some(turn(since, None))
            }
            (Phase::Rising { .. }, false) => {
                self.phases.remove(condition);
                None
            }
            (Phase::Told { since }, false) if patience.is_zero() => {
                self.phases.remove(condition);
                Some(turn(since, Some(now)))
            }
            (Phase::Told { since }, false) => {
                *phase = Phase::Falling { since, gone_at: now };
                None
            }
            (Phase::Falling { since, .. }, true) => {
                *phase = Phase::Told { since };
                None
            }
            (Phase::Falling { since, gone_at }, false) if now.since(gone_at) >= patience => {
                self.phases.remove(condition);
                Some(turn(since, Some(gone_at)))
            }
            (Phase::Rising { .. } | Phase::Told { .. }, true) | (Phase::Falling { .. }, false) => None,
        }
    }

    fn patience(&self, condition: &Condition) -> Duration {
        match condition {
            Condition::NodeDown(_) => self.node_patience,
            Condition::Storage => STORAGE_PATIENCE,
            Condition::DeadLetters | Condition::AllBlocked(_) => Duration::ZERO,
        }
    }
}

/// The conditions that are there now, with what there is to say about each.
fn present(view: &View, dead: &str) -> BTreeMap<Condition, String> {
    let nodes = view.nodes.iter().filter(|node| node.link.state != LinkState::Up);
    let down = nodes.map(|node| (Condition::NodeDown(node.id.clone()), node.link.reason.clone()));
    let blocked = view.maps.iter().filter(|map| map.panic);
    let blocked = blocked.map(|map| (Condition::AllBlocked(map.id.clone()), all_blocked(map)));
    let storage = (!view.storage.healthy).then(|| (Condition::Storage, view.storage.problem.clone()));
    let dead = (!dead.is_empty()).then(|| (Condition::DeadLetters, dead.to_owned()));
    down.chain(blocked).chain(storage).chain(dead).collect()
}

fn all_blocked(map: &MapView) -> String {
    let blocked: Vec<_> = map.blocked.iter().map(ConnectionId::as_str).collect();
    match map.hunt_order.first() {
        None => blocked.join(", "),
        Some(kept) => format!(
            "{}; calls go to {kept}, the least bad of them",
            [&[kept.as_str()], &blocked[..]].concat().join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::{LinkView, NodeView, StorageView};
    use crate::ids::{MapId, NodeId};
    use crate::pbx::PbxKind;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn view(link: LinkState, healthy: bool, orders: &[&str]) -> View {
        let reason = if link == LinkState::Up { "" } else { "connection refused" };
        let link = LinkView { state: link, reason: reason.to_owned(), ..LinkView::default() };
        let id = NodeId::new("pbx-01").unwrap();
        let ids = |names: &[&str]| names.iter().map(|name| ConnectionId::new(name).unwrap()).collect::<Vec<_>>();
        let blocked: Vec<_> = ["a", "b"].into_iter().filter(|name| !orders.contains(name)).collect();
        let map = MapView {
            hunt_order: ids(orders),
            blocked: ids(&blocked),
            panic: orders.is_empty(),
            ..MapView::new(MapId::new("intl").unwrap(), Vec::new())
        };
        let problem = if healthy { "" } else { "the disk is full" };
        View {
            nodes: vec![NodeView { link, ..NodeView::new(id, PbxKind::Asterisk, "") }],
            maps: vec![map.into()],
            storage: StorageView { healthy, problem: problem.to_owned(), ..StorageView::default() },
            ..View::empty(at(0))
        }
    }

    fn well() -> View {
        view(LinkState::Up, true, &["a", "b"])
    }

    /// What was told when `view` was looked at: `+condition: detail` or `-condition`.
    fn told(conditions: &mut Conditions, view: &View, dead: &str, secs: i64) -> Vec<String> {
        let words = |turn: &Turn| match turn.over_at {
            None => format!("+{}: {}", turn.condition, turn.detail),
            Some(over) => format!("-{} {}", turn.condition, over.since(turn.began_at).as_secs()),
        };
        conditions.look(view, dead, at(secs)).iter().map(words).collect()
    }

    #[test]
    fn a_node_that_is_down_is_told_once_until_it_has_been_up_for_a_while() {
        let mut conditions = Conditions::new([], Duration::from_secs(60));
        let down = view(LinkState::Waiting, true, &["a"]);
        assert_eq!(told(&mut conditions, &down, "", 0), [""; 0]);
        assert_eq!(told(&mut conditions, &down, "", 59), [""; 0]);
        assert_eq!(told(&mut conditions, &down, "", 60), ["+node pbx-01 down: connection refused"]);
        assert_eq!(told(&mut conditions, &down, "", 5_000), [""; 0]);
        assert_eq!(told(&mut conditions, &well(), "", 5_001), [""; 0], "it may only flap");
        assert_eq!(told(&mut conditions, &down, "", 5_030), [""; 0]);
        assert_eq!(told(&mut conditions, &well(), "", 6_000), [""; 0]);
        assert_eq!(told(&mut conditions, &well(), "", 6_060), ["-node pbx-01 down 6000"]);
        assert_eq!(told(&mut conditions, &well(), "", 9_000), [""; 0]);
    }

    #[test]
    fn a_short_absence_is_not_told() {
        let mut conditions = Conditions::new([], Duration::from_secs(60));
        let down = view(LinkState::Connecting, true, &["a"]);
        for start in [0, 1_000, 2_000] {
            assert_eq!(told(&mut conditions, &down, "", start), [""; 0]);
            assert_eq!(told(&mut conditions, &well(), "", start + 59), [""; 0]);
        }
    }

    #[test]
    fn what_was_told_before_a_restart_is_not_told_again() {
        let node = Condition::NodeDown(NodeId::new("pbx-01").unwrap());
        let mut conditions = Conditions::new([(node, at(10))], Duration::from_secs(60));
        let down = view(LinkState::Connecting, true, &["a"]);
        assert_eq!(told(&mut conditions, &down, "", 100), [""; 0]);
        assert_eq!(told(&mut conditions, &down, "", 500), [""; 0]);
        told(&mut conditions, &well(), "", 600);
        assert_eq!(told(&mut conditions, &well(), "", 660), ["-node pbx-01 down 590"]);
    }

    #[test]
    fn panic_disk_trouble_and_dead_letters_are_told() {
        let mut conditions = Conditions::new([], Duration::from_secs(60));
        let panic = view(LinkState::Up, true, &[]);
        assert_eq!(told(&mut conditions, &panic, "", 0), ["+map intl blocked: a, b"]);
        assert_eq!(told(&mut conditions, &well(), "1 to x@y", 1), ["+dead letters: 1 to x@y", "-map intl blocked 1"]);
        assert_eq!(told(&mut conditions, &well(), "2 to x@y", 2), [""; 0], "once until none is dead");
        let full = view(LinkState::Up, false, &["a"]);
        assert_eq!(told(&mut conditions, &full, "", 3), ["-dead letters 2"]);
        assert_eq!(told(&mut conditions, &full, "", 13), ["+storage: the disk is full"]);
    }

    #[test]
    fn of_a_map_that_keeps_its_least_bad_connection_that_one_is_named() {
        let id = |name: &str| ConnectionId::new(name).unwrap();
        let map = MapView {
            hunt_order: vec![id("b")],
            blocked: vec![id("a")],
            panic: true,
            ..MapView::new(MapId::new("intl").unwrap(), Vec::new())
        };
        let view = View { maps: vec![map.into()], ..view(LinkState::Up, true, &["a", "b"]) };
        let mut conditions = Conditions::new([], Duration::ZERO);
        assert_eq!(
            told(&mut conditions, &view, "", 0),
            ["+map intl blocked: b, a; calls go to b, the least bad of them"]
        );
    }
}
