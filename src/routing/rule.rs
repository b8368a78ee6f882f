//! Dynamic routing rules: what each attempt teaches of a route, and what that adds to its static priority. Pure.
//!
//! For every criterion of its rule a route has an **estimate** (exponential: most of it rests on the last `latency`
//! samples) and a **compensation**, which grows each time the route is bypassed and makes it look better until it is tried
//! again. The **penalty** compares the two with the best route of the map. It is never negative: a rule can only make a
//! route worse than its static priority, and the best one by every criterion stays where it was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::outcome::Outcome;
use crate::quality::window::Sample;

/// What a criterion measures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Share of successful attempts, in percent. More is better.
    SuccessPercent,
    /// Mean duration of successful attempts, in seconds. More is better.
    AvgDurationSec,
    /// Share of attempts at which the vendor failed, in percent. Less is better.
    SignallingFailurePercent,
}

impl Measure {
    /// Its name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SuccessPercent => "success_percent",
            Self::AvgDurationSec => "avg_duration_sec",
            Self::SignallingFailurePercent => "signalling_failure_percent",
        }
    }

    /// What an attempt that counts as a call sent says by this measure; `None`: nothing.
    fn sample(self, attempt: &Sample) -> Option<f64> {
        let percent = |is_so: bool| if is_so { 100.0 } else { 0.0 };
        match self {
            Self::SuccessPercent => Some(percent(attempt.is_success())),
            Self::AvgDurationSec => attempt.duration_ms.filter(|ms| *ms > 0).map(seconds),
            Self::SignallingFailurePercent => Some(percent(attempt.outcome == Outcome::VendorFailed)),
        }
    }

    /// The estimate as it is compared: a bypassed route is given the benefit of its compensation.
    fn effective(self, estimate: f64, compensation: f64) -> f64 {
        match self {
            Self::SuccessPercent => (estimate + compensation).min(100.0),
            Self::AvgDurationSec => estimate + compensation,
            Self::SignallingFailurePercent => (estimate - compensation).max(0.0),
        }
    }

    fn better(self, a: f64, b: f64) -> f64 {
        if self == Self::SignallingFailurePercent { a.min(b) } else { a.max(b) }
    }

    /// What a route of the estimate `own` gets where `best` is the best one: 0 to `weight`.
    fn penalty(self, weight: f64, best: f64, own: f64) -> f64 {
        match self {
            Self::SuccessPercent | Self::SignallingFailurePercent => weight * (best - own).abs() / 100.0,
            Self::AvgDurationSec if best == 0.0 => 0.0,
            Self::AvgDurationSec => weight * (best - own) / best,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a call of 2^53 ms is longer than telephony is old")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// An enabled criterion.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Criterion {
    /// The most that it adds to a priority.
    pub weight: f64,
    /// Length of the sample, in attempts, that the estimate rests on; at least 1.
    pub latency: u32,
    /// What a bypassed route gains with each call that bypasses it: percent, or seconds.
    pub compensation: f64,
}

/// A dynamic routing rule with its enabled criteria.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = RoutingRule)]
pub struct Rule {
    /// Its name.
    pub id: Arc<str>,
    /// Its criteria.
    pub criteria: BTreeMap<Measure, Criterion>,
}

/// What is known of a route by one criterion.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Value {
    /// The estimate; `None` before the first sample.
    pub estimate: Option<f64>,
    /// The compensation.
    pub compensation: f64,
}

/// What is known of a route by each criterion of its rule.
pub type Values = BTreeMap<Measure, Value>;

/// What each criterion adds to the priority of a route.
pub type Penalties = BTreeMap<Measure, f64>;

/// What they add together. (The sum of nothing is 0, not the -0 that `sum` gives.)
#[must_use]
pub fn total(penalties: &Penalties) -> f64 {
    penalties.values().fold(0.0, |sum, penalty| sum + penalty)
}

impl Rule {
    /// A route of which nothing is known.
    #[must_use]
    pub fn unknown(&self) -> Values {
        self.criteria.keys().map(|measure| (*measure, Value::default())).collect()
    }

    /// An attempt of a route ended. One that does not count as a call sent says nothing.
    pub fn learn(&self, values: &mut Values, attempt: &Sample) {
        if !attempt.outcome.in_window() {
            return;
        }
        for (measure, value) in values {
            if let Some((criterion, sample)) = self.criteria.get(measure).zip(measure.sample(attempt)) {
                let latency = f64::from(criterion.latency.max(1));
                value.estimate = Some(value.estimate.map_or(sample, |before| before + (sample - before) / latency));
            }
            if !attempt.is_success() {
                value.compensation = 0.0;
            }
        }
    }

    /// A call went past a route.
    pub fn bypass(&self, values: &mut Values) {
        for (measure, value) in values {
            value.compensation += self.criteria.get(measure).map_or(0.0, |criterion| criterion.compensation);
        }
    }

    /// What the routes of a map get added to their priorities, criterion by criterion; the order is that of `routes`. A
    /// route without an estimate gets nothing: it must be tried to be known.
    #[must_use]
    pub fn penalties(&self, routes: &[&Values]) -> Vec<Penalties> {
        let mut penalties = vec![Penalties::new(); routes.len()];
        for (measure, criterion) in &self.criteria {
            let effective = |values: &&Values| {
                let Value { estimate, compensation } = values.get(measure).copied().unwrap_or_default();
                estimate.map(|estimate| measure.effective(estimate, compensation))
            };
            let known: Vec<Option<f64>> = routes.iter().map(effective).collect();
            let best = known.iter().flatten().copied().reduce(|a, b| measure.better(a, b));
            for (own, penalties) in known.iter().zip(&mut penalties) {
                let penalty = own.zip(best).map_or(0.0, |(own, best)| measure.penalty(criterion.weight, best, own));
                penalties.insert(*measure, penalty);
            }
        }
        penalties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::window::Epoch;
    use crate::time::Timestamp;

    fn rule(criteria: &[(Measure, f64, u32, f64)]) -> Rule {
        let criteria = criteria
            .iter()
            .map(|&(measure, weight, latency, compensation)| (measure, Criterion { weight, latency, compensation }));
        Rule { id: "standard".into(), criteria: criteria.collect() }
    }

    fn attempt(outcome: Outcome, duration_ms: Option<u64>) -> Sample {
        let at = Timestamp::from_secs(1);
        Sample {
            epoch: Epoch(0),
            placed_at: at,
            ended_at: at,
            outcome,
            duration_ms,
            pdd_ms: None,
            cause: None,
            sip_status: None,
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_first_sample_sets_the_estimate_and_the_next_move_it_by_one_part_in_latency() {
        let rule = rule(&[(Measure::SuccessPercent, 20.0, 10, 2.0), (Measure::AvgDurationSec, 10.0, 4, 1.0)]);
        let mut values = rule.unknown();
        rule.learn(&mut values, &attempt(Outcome::Answered, Some(60_000)));
        rule.learn(&mut values, &attempt(Outcome::VendorFailed, Some(0)));
        rule.learn(&mut values, &attempt(Outcome::Answered, Some(20_000)));
        assert!(close(values[&Measure::SuccessPercent].estimate.unwrap(), 91.0), "{values:?}");
        assert!(close(values[&Measure::AvgDurationSec].estimate.unwrap(), 50.0), "{values:?}");
    }

    #[test]
    fn what_is_no_call_sent_teaches_nothing_and_takes_no_compensation_away() {
        let rule = rule(&[(Measure::SignallingFailurePercent, 20.0, 10, 2.0)]);
        let mut values = rule.unknown();
        rule.bypass(&mut values);
        for outcome in [Outcome::LostRace, Outcome::NotSent, Outcome::Lost] {
            rule.learn(&mut values, &attempt(outcome, Some(0)));
        }
        assert_eq!(values[&Measure::SignallingFailurePercent], Value { estimate: None, compensation: 2.0 });
        rule.learn(&mut values, &attempt(Outcome::Busy, Some(0)));
        assert_eq!(values[&Measure::SignallingFailurePercent], Value { estimate: Some(0.0), compensation: 0.0 });
    }

    #[test]
    fn the_best_gets_nothing_and_the_others_their_distance_from_it() {
        let rule = rule(&[
            (Measure::SuccessPercent, 20.0, 10, 2.0),
            (Measure::AvgDurationSec, 10.0, 10, 1.0),
            (Measure::SignallingFailurePercent, 30.0, 10, 5.0),
        ]);
        let values = |success, duration, failure, compensation| -> Values {
            [
                (Measure::SuccessPercent, success),
                (Measure::AvgDurationSec, duration),
                (Measure::SignallingFailurePercent, failure),
            ]
            .map(|(measure, estimate)| (measure, Value { estimate, compensation }))
            .into()
        };
        let routes = [
            values(Some(80.0), Some(30.0), Some(20.0), 0.0),
            values(Some(50.0), Some(60.0), Some(70.0), 0.0),
            values(Some(99.0), Some(60.0), Some(3.0), 5.0),
            values(None, None, None, 50.0),
        ];
        let penalties = rule.penalties(&routes.iter().collect::<Vec<_>>());
        let of = |route: usize| penalties[route].values().copied().collect::<Vec<f64>>();
        for (have, want) in of(0).iter().zip([4.0, 10.0 * 35.0 / 65.0, 6.0]) {
            assert!(close(*have, want), "{penalties:?}");
        }
        for (have, want) in of(1).iter().zip([10.0, 10.0 * 5.0 / 65.0, 21.0]) {
            assert!(close(*have, want), "{penalties:?}");
        }
        assert_eq!((of(2), of(3)), (vec![0.0; 3], vec![0.0; 3]));
    }

    #[test]
    fn a_best_duration_of_nothing_divides_nothing() {
        assert_eq!(Measure::AvgDurationSec.penalty(20.0, 0.0, 0.0), 0.0);
    }
}
