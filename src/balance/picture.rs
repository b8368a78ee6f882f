//! What follows from the candidates alone: who is best, and who stands in when nobody takes calls.

use crate::config::model::Scoring;
use crate::score::{EXCLUDED, Lethal};
use crate::time::Timestamp;

use super::{Candidate, Picture};

impl Picture {
    /// The picture of these candidates. The best node counts outstanding answers as little as the scores do.
    #[must_use]
    pub fn of(generation: u64, at: Timestamp, candidates: Vec<Candidate>, scoring: &Scoring, panic: bool) -> Self {
        let mut picture = Self {
            generation,
            at,
            candidates,
            best: None,
            best_score: EXCLUDED,
            fallback_active: false,
            fallback: None,
            panic,
            min_score: scoring.min_score,
            fallback_node: scoring.fallback_node.clone(),
        };
        let best = first_max(picture.candidates.iter().filter(|it| picture.takes_calls(it)), |it| it.score);
        match best {
            Some(best) => (picture.best, picture.best_score) = (Some(best.node.clone()), best.score),
            None => {
                picture.fallback_active = true;
                let fallback = picture.stand_in(|index| picture.candidates[index].fitness);
                picture.fallback = fallback.map(|index| picture.candidates[index].node.clone());
            }
        }
        picture
    }

    /// Whether a candidate takes calls: nothing rules it out and its score is high enough.
    #[must_use]
    pub fn takes_calls(&self, candidate: &Candidate) -> bool {
        candidate.lethal.is_empty() && candidate.score >= self.min_score
    }

    /// Index of the node that is answered when none takes calls: the one configured, else the least bad of those with a
    /// link, by the gravest thing that rules it out and then by `fitness`. Never one that the operator took out of
    /// service: that is a word about this very node.
    pub(super) fn stand_in(&self, fitness: impl Fn(usize) -> f64) -> Option<usize> {
        let usable = || self.candidates.iter().enumerate().filter(|(_, it)| !it.disabled);
        if let Some((index, _)) = usable().find(|(_, it)| Some(&it.node) == self.fallback_node.as_ref()) {
            return Some(index);
        }
        let linked = || usable().filter(|(_, it)| it.linked);
        let least = linked().map(|(_, it)| gravity(it)).min()?;
        first_max(linked().filter(|(_, it)| gravity(it) == least), |(index, _)| fitness(*index)).map(|(index, _)| index)
    }
}

/// How grave the gravest thing is that rules a node out: 0 where only figures do, so that it could take a call; 1 where it
/// may be dead; 2 where the operator lets it run dry; 3 where it would refuse, or has no link.
fn gravity(candidate: &Candidate) -> u8 {
    let of = |lethal: &Lethal| match lethal {
        Lethal::Full | Lethal::Cpu { .. } | Lethal::Failures { .. } => 0,
        Lethal::Stale { .. } | Lethal::Breaker => 1,
        Lethal::Draining => 2,
        Lethal::NotReady | Lethal::LinkDown | Lethal::Disabled => 3,
    };
    candidate.lethal.iter().map(of).max().unwrap_or(0)
}

/// The first of those with the greatest value.
pub(super) fn first_max<T>(items: impl Iterator<Item = T>, value: impl Fn(&T) -> f64) -> Option<T> {
    items.reduce(|best, next| if value(&next) > value(&best) { next } else { best })
}
