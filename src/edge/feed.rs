//! The task that makes snapshots of pictures and hands them to everybody who passes them on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::pace::{self, Pace};
use super::{Snapshot, group};
use crate::balance::Picture;
use crate::clock::Clock;
use crate::config::model::{EdgeGroup, Scoring};
use crate::ids::NodeId;
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// How long the first snapshot waits for nodes that have no link yet, or have not said yet how they are. Without it, a
/// restart of this program would tell every edge for a moment that no node takes calls.
pub const SETTLE: Duration = Duration::from_secs(5);

/// Shortest time between two looks.
const LOOKS_APART: Duration = Duration::from_millis(2);

/// Looks at pictures from now on. What is seen is an empty snapshot of generation 0 until every node has its link and has
/// said how it is, or for [`SETTLE`].
pub fn start(
    groups: &[EdgeGroup],
    scoring: &Scoring,
    mut pictures: watch::Receiver<Arc<Picture>>,
    clock: Clock,
    tasks: &Tasks,
) -> watch::Receiver<Arc<Snapshot>> {
    let (out, seen) = watch::channel(Arc::default());
    let mut maker = Maker::new(groups, scoring, clock.now(), clock.rate());
    let stopping = tasks.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = follow(&mut maker, &mut pictures, clock, &out) => {}
            () = stopping.stopping() => {}
        }
    });
    seen
}

async fn follow(
    maker: &mut Maker,
    pictures: &mut watch::Receiver<Arc<Picture>>,
    clock: Clock,
    out: &watch::Sender<Arc<Snapshot>>,
) {
    loop {
        let picture = Arc::clone(&pictures.borrow_and_update());
        let before = Arc::clone(&out.borrow());
        let until = match maker.look(&before, &picture, clock.now()) {
            Look::Same => None,
            Look::Later(at) => Some(at),
            Look::Now(snapshot) => {
                out.send_replace(Arc::new(snapshot));
                None
            }
        };
        // While calls come in by the hundred, so do pictures: not every one is looked at.
        sleep(LOOKS_APART).await;
        let pause = until.map(|at| clock.real_time_until(at));
        tokio::select! {
            seen = pictures.changed() => if seen.is_err() { return },
            () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

/// Decides what is told when. Pure.
struct Maker {
    groups: Vec<EdgeGroup>,
    scoring: Scoring,
    settled_at: Timestamp,
    pace: Pace,
}

/// What is to be done with a picture.
#[derive(Debug, PartialEq)]
enum Look {
    /// Nothing: edges know.
    Same,
    /// It is to be looked at again then, unless there is another one before.
    Later(Timestamp),
    /// This is to be told.
    Now(Snapshot),
}

impl Maker {
    fn new(groups: &[EdgeGroup], scoring: &Scoring, started_at: Timestamp, rate: u32) -> Self {
        let settled_at = started_at.after(SETTLE.saturating_mul(rate));
        Self { groups: groups.to_vec(), scoring: scoring.clone(), settled_at, pace: Pace::new(rate) }
    }

    fn look(&mut self, before: &Snapshot, picture: &Picture, now: Timestamp) -> Look {
        let is_first = before.generation == 0;
        if is_first && now < self.settled_at && !self.all_known(picture) {
            return Look::Later(self.settled_at);
        }
        let groups = self.groups.iter().map(|group| group::told(group, picture, &self.scoring)).collect();
        let generation = if is_first { now.as_micros().unsigned_abs() / 1_000 } else { before.generation + 1 };
        let after = Snapshot { generation, at: now, groups };
        let urgency = pace::urgency(before, &after);
        match self.pace.due(urgency, before.at, now) {
            None => Look::Same,
            Some(due) if now < due => Look::Later(due),
            Some(_) => {
                self.pace.made(urgency, now);
                Look::Now(after)
            }
        }
    }

    /// Whether every node has its link and has said how it is.
    fn all_known(&self, picture: &Picture) -> bool {
        let known = |node: &NodeId| picture.candidates.iter().any(|it| it.node == *node && it.linked && it.replied);
        self.groups.iter().flat_map(|group| &group.members).all(|member| known(&member.node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Candidate;
    use crate::config::model::Member;
    use crate::ids::GroupId;
    use crate::score::Lethal;

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn at(ms: u64) -> Timestamp {
        START.after(Duration::from_millis(ms))
    }

    fn maker() -> Maker {
        let member = |node| Member { node: NodeId::new(node).unwrap(), host: "192.0.2.1".to_owned(), port: 5060 };
        let group = EdgeGroup {
            id: GroupId::new("pbx").unwrap(),
            cluster: "pbx".to_owned(),
            members: ["a", "b"].map(member).to_vec(),
            listener: None,
            fail_open: true,
        };
        Maker::new(&[group], &Scoring::default(), START, 1)
    }

    /// Two nodes; without a score there is no link.
    fn picture(scores: [Option<f64>; 2]) -> Picture {
        let candidate = |(node, score): (&str, Option<f64>)| Candidate {
            node: NodeId::new(node).unwrap(),
            address: "192.0.2.1".into(),
            score: score.unwrap_or(crate::score::EXCLUDED),
            fitness: score.unwrap_or_default(),
            points_per_call: 0.0,
            active_calls: 0,
            max_calls: None,
            rtt_ms: 1.0,
            linked: score.is_some(),
            replied: score.is_some(),
            disabled: false,
            lethal: if score.is_some() { Vec::new() } else { vec![Lethal::LinkDown] },
            settled: 0,
        };
        let candidates = ["a", "b"].into_iter().zip(scores).map(candidate).collect();
        Picture::of(1, START, candidates, &Scoring::default(), false)
    }

    fn told(look: Look) -> Snapshot {
        match look {
            Look::Now(snapshot) => snapshot,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_snapshot_waits_for_all_nodes_but_not_for_ever() {
        let (mut maker, nothing) = (maker(), Snapshot::default());
        let half = picture([Some(50.0), None]);
        assert_eq!(maker.look(&nothing, &Picture::default(), at(0)), Look::Later(at(5_000)));
        assert_eq!(maker.look(&nothing, &half, at(4_999)), Look::Later(at(5_000)));
        let mut mute = picture([Some(50.0), Some(1.0)]);
        mute.candidates[1].replied = false;
        assert_eq!(maker.look(&nothing, &mute, at(4_999)), Look::Later(at(5_000)), "a link alone says nothing");
        assert_eq!(told(maker.look(&nothing, &half, at(5_000))).generation, 1_005_000);
        assert_eq!(told(maker.look(&nothing, &picture([Some(50.0), Some(1.0)]), at(7))).generation, 1_000_007);
    }

    #[test]
    fn a_lost_link_is_told_at_once_and_weights_that_never_rest_are_not() {
        let mut maker = maker();
        let first = told(maker.look(&Snapshot::default(), &picture([Some(50.0), Some(50.0)]), at(0)));
        let lighter = picture([Some(49.0), Some(50.0)]);
        assert_eq!(maker.look(&first, &lighter, at(20)), Look::Later(at(100)));
        assert_eq!(told(maker.look(&first, &lighter, at(100))).generation, first.generation + 1);
        let dead = picture([None, Some(50.0)]);
        assert_eq!(maker.look(&first, &dead, at(3)), Look::Later(at(5)));
        assert_eq!(told(maker.look(&first, &dead, at(5))).generation, first.generation + 1);
    }

    #[test]
    fn what_rounds_to_the_same_weight_is_no_news() {
        let mut maker = maker();
        let first = told(maker.look(&Snapshot::default(), &picture([Some(50.0), Some(50.0)]), at(0)));
        assert_eq!(maker.look(&first, &picture([Some(50.4), Some(49.6)]), at(200)), Look::Same);
    }
}
