//! A group of nodes out of the picture of all of them. Pure.

use crate::balance::{Candidate, Picture};
use crate::config::model::{EdgeGroup, Member, Scoring};
use crate::score::Lethal;

use super::{Endpoint, EndpointGroup, Health};

/// The greatest weight: that of a node with the best score there is.
const MOST: f64 = 100.0;

/// The group as an edge is told it: what `/api/route` would answer if there were no other nodes, spread over all of them.
#[must_use]
pub fn told(group: &EdgeGroup, picture: &Picture, scoring: &Scoring) -> EndpointGroup {
    let ours = group.members.iter().filter_map(|member| candidate(picture, member)).cloned().collect();
    let ours = Picture::of(picture.generation, picture.at, ours, scoring, picture.panic);
    let endpoints = group.members.iter().map(|member| endpoint(member, &ours, group.fail_open)).collect();
    EndpointGroup { id: group.id.clone(), cluster: group.cluster.clone(), endpoints }
}

fn candidate<'a>(picture: &'a Picture, member: &Member) -> Option<&'a Candidate> {
    picture.candidates.iter().find(|it| it.node == member.node)
}

fn endpoint(member: &Member, group: &Picture, fail_open: bool) -> Endpoint {
    let node = candidate(group, member);
    let is_blind = fail_open && is_blind(group);
    let stands_in = fail_open && !is_blind && group.fallback.as_ref() == Some(&member.node);
    let is_draining = |node: &Candidate| node.lethal.contains(&Lethal::Draining);
    let (health, weight) = match node {
        Some(node) if group.takes_calls(node) => (Health::Healthy, weight(node.score)),
        Some(node) if stands_in => (Health::Healthy, weight(node.fitness)),
        Some(node) if is_blind && !node.disabled && is_draining(node) => (Health::Draining, 1),
        Some(node) if is_blind && !node.disabled => (Health::Unknown, 1),
        Some(node) if node.lethal == [Lethal::Draining] => (Health::Draining, 1),
        _ => (Health::Unhealthy, 1),
    };
    Endpoint { node: member.node.clone(), address: member.host.clone(), port: member.port, health, weight, stands_in }
}

/// Whether nothing is known of any node in service: then the trouble may well be ours, and an edge finds out by trying.
fn is_blind(group: &Picture) -> bool {
    let mut in_service = group.candidates.iter().filter(|node| !node.disabled);
    group.fallback_active && in_service.all(|node| !node.linked)
}

/// A score as a share. A node that takes calls gets some, however low its score: its minimum is `min_score`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 100 by then")]
fn weight(score: f64) -> u32 {
    score.round().clamp(1.0, MOST) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, NodeId};
    use crate::score::EXCLUDED;
    use crate::time::Timestamp;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn fit(name: &str, score: f64) -> Candidate {
        Candidate {
            node: node(name),
            address: "192.0.2.1".into(),
            score,
            fitness: score,
            points_per_call: 0.0,
            active_calls: 0,
            max_calls: None,
            rtt_ms: 1.0,
            linked: true,
            replied: true,
            disabled: false,
            lethal: Vec::new(),
            settled: 0,
        }
    }

    fn out(name: &str, lethal: &[Lethal]) -> Candidate {
        Candidate {
            score: EXCLUDED,
            linked: !lethal.contains(&Lethal::LinkDown),
            disabled: lethal.contains(&Lethal::Disabled),
            lethal: lethal.to_vec(),
            ..fit(name, 40.0)
        }
    }

    fn group(names: &[&str]) -> EdgeGroup {
        let member = |name: &&str| Member { node: node(name), host: "192.0.2.1".to_owned(), port: 7443 };
        EdgeGroup {
            id: GroupId::new("wss").unwrap(),
            cluster: "wss".to_owned(),
            members: names.iter().map(member).collect(),
            listener: None,
            fail_open: true,
        }
    }

    /// Health, weight and standing in of each.
    fn shown(group: &EdgeGroup, candidates: &[Candidate], scoring: &Scoring) -> Vec<(Health, u32, bool)> {
        let picture = Picture::of(1, Timestamp::from_secs(1), candidates.to_vec(), scoring, false);
        let told = told(group, &picture, scoring);
        told.endpoints.iter().map(|it| (it.health, it.weight, it.stands_in)).collect()
    }

    #[test]
    fn a_score_is_a_weight_and_what_is_lethal_is_unhealthy() {
        let candidates = [fit("a", 67.48), fit("b", 0.2), out("c", &[Lethal::Full]), out("d", &[Lethal::Disabled])];
        assert_eq!(
            shown(&group(&["a", "b", "c", "d"]), &candidates, &Scoring::default()),
            [
                (Health::Healthy, 67, false),
                (Health::Healthy, 1, false),
                (Health::Unhealthy, 1, false),
                (Health::Unhealthy, 1, false)
            ]
        );
    }

    #[test]
    fn a_node_under_the_least_score_is_unhealthy() {
        let scoring = Scoring { min_score: 30.0, ..Scoring::default() };
        let shown = shown(&group(&["a", "b"]), &[fit("a", 30.0), fit("b", 29.9)], &scoring);
        assert_eq!(shown, [(Health::Healthy, 30, false), (Health::Unhealthy, 1, false)]);
    }

    #[test]
    fn draining_is_told_where_nothing_else_is_lethal() {
        let dead = [Lethal::Draining, Lethal::LinkDown];
        let candidates = [fit("a", 50.0), out("b", &[Lethal::Draining]), out("c", &dead)];
        let shown = shown(&group(&["a", "b", "c"]), &candidates, &Scoring::default());
        assert_eq!(shown[1..], [(Health::Draining, 1, false), (Health::Unhealthy, 1, false)]);
    }

    #[test]
    fn where_no_node_takes_calls_the_least_bad_of_the_group_stands_in() {
        let candidates = [fit("other", 90.0), out("a", &[Lethal::LinkDown]), out("b", &[Lethal::Full])];
        let group = group(&["a", "b"]);
        let expected = [(Health::Unhealthy, 1, false), (Health::Healthy, 40, true)];
        assert_eq!(shown(&group, &candidates, &Scoring::default()), expected);
        let closed = EdgeGroup { fail_open: false, ..group };
        let expected = [(Health::Unhealthy, 1, false); 2];
        assert_eq!(shown(&closed, &candidates, &Scoring::default()), expected);
    }

    #[test]
    fn where_no_node_in_service_has_a_link_they_are_unknown() {
        use Health::{Draining, Unhealthy, Unknown};
        let no_link = |name, more: &[Lethal]| out(name, &[&[Lethal::LinkDown], more].concat());
        let candidates = [
            no_link("a", &[]),
            no_link("b", &[]),
            no_link("c", &[Lethal::Draining]),
            no_link("d", &[Lethal::Disabled]),
            out("e", &[Lethal::Disabled]),
        ];
        // The node to fall back on is no better known than the others.
        for fallback_node in [None, Some(node("b"))] {
            let scoring = Scoring { fallback_node, ..Scoring::default() };
            let shown = shown(&group(&["a", "b", "c", "d", "e"]), &candidates, &scoring);
            let healths: Vec<_> = shown.into_iter().map(|(health, ..)| health).collect();
            assert_eq!(healths, [Unknown, Unknown, Draining, Unhealthy, Unhealthy]);
        }
    }

    #[test]
    fn one_out_of_service_never_stands_in_nor_is_tried() {
        let candidates = [out("a", &[Lethal::Disabled])];
        assert_eq!(shown(&group(&["a"]), &candidates, &Scoring::default()), [(Health::Unhealthy, 1, false)]);
    }
}
