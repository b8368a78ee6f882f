//! The score itself.
//!
//! Weighted profile, each term clamped to 0..100:
//!
//! ```text
//! call_score = 100 - active_calls / max_calls * 100
//! load_score = 100 - load_avg * 50
//! idle_score = idle_cpu
//! fail_score = 100 - call_failure_rate
//! ```
//!
//! Health profile: headroom in calls a second and in calls, reply time against a limit, free memory, each as a share of
//! 100. The score is the weighted mean of the terms that are known.

use crate::config::model::{Profile, Scoring};
use crate::time::Timestamp;

use super::{Admin, Assessment, EXCLUDED, Figures, Lethal, Term, rate};

/// The fitness of a node of which no term is known. It must be usable, and neither go before a node that is known to be
/// fit nor behind one that is known to be loaded: the middle.
pub const UNKNOWN_FITNESS: f64 = 50.0;

/// What one more call costs where the score does not tell (no `max_calls`, or no weight on calls). Something it must
/// cost, or a burst of answers would all name the node that was ahead by a hair.
pub const UNKNOWN_POINTS_PER_CALL: f64 = 0.1;

/// Weights of the health profile.
const RATE_HEADROOM: f64 = 0.40;
const CALLS_HEADROOM: f64 = 0.30;
const LATENCY: f64 = 0.20;
const MEMORY: f64 = 0.10;

/// What is known of a node beside its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether there is a link to it.
    pub link_up: bool,
    /// Whether the PBX takes calls, where it says so.
    pub ready: Option<bool>,
    /// Its last sign of life; for one that gave none yet, when it began to be watched.
    pub seen_at: Timestamp,
    /// What the operator wants of it.
    pub admin: Admin,
    /// Whether its breaker lets calls through.
    pub lets_through: bool,
}

/// A term before its weight is settled.
struct Part {
    name: &'static str,
    weight: f64,
    value: Option<f64>,
}

/// What the figures of a node come to.
#[must_use]
pub fn assess(figures: &Figures, settings: &Scoring, condition: &Condition, now: Timestamp) -> Assessment {
    let terms = terms(&parts(figures, settings));
    let fitness = fitness(&terms);
    let lethal = lethal(figures, settings, condition, now);
    let score = if lethal.is_empty() { fitness } else { EXCLUDED };
    Assessment { score, fitness, terms, lethal }
}

/// Points of the score that one more call costs; always positive.
#[must_use]
pub fn points_per_call(figures: &Figures, settings: &Scoring) -> f64 {
    let cost = |term: &Term| {
        let whole = match term.name.as_str() {
            "call_score" | "calls_headroom" => f64::from(max_calls(figures)?),
            "rate_headroom" => max_rate(figures)? * rate::SPAN.as_secs_f64(),
            _ => return None,
        };
        Some(term.weight_used * 100.0 / whole)
    };
    let points: f64 = terms(&parts(figures, settings)).iter().filter_map(cost).sum();
    if points.is_finite() && points > 0.0 { points } else { UNKNOWN_POINTS_PER_CALL }
}

/// A figure that can be one: NaN, infinite and negative ones are not known.
fn known(figure: Option<f64>) -> Option<f64> {
    figure.filter(|value| value.is_finite() && *value >= 0.0)
}

fn max_calls(figures: &Figures) -> Option<u32> {
    figures.max_calls.filter(|most| *most > 0)
}

fn max_rate(figures: &Figures) -> Option<f64> {
    known(figures.max_calls_per_sec).filter(|most| *most > 0.0)
}

fn idle_cpu(figures: &Figures) -> Option<f64> {
    known(figures.idle_cpu.map(|figure| figure.value))
}

/// The load average, by the cores where that is wanted.
fn load(figures: &Figures, settings: &Scoring) -> Option<f64> {
    let load = known(figures.load_avg.map(|figure| figure.value))?;
    if !settings.load_per_core {
        return Some(load);
    }
    figures.cores.filter(|cores| *cores > 0).map(|cores| load / f64::from(cores))
}

/// What is left of 100 when `used` of `whole` are gone.
fn left(used: f64, whole: f64) -> f64 {
    100.0 - 100.0 * used / whole
}

fn parts(figures: &Figures, settings: &Scoring) -> [Part; 4] {
    let part = |name, weight, value: Option<f64>| Part { name, weight, value: value.map(|it| it.clamp(0.0, 100.0)) };
    let calls = max_calls(figures).map(|most| left(figures.active_calls as f64, f64::from(most)));
    match settings.profile {
        Profile::Weighted => {
            let weights = &settings.weights;
            [
                part("call_score", weights.call_score, calls),
                part("load_score", weights.load_score, load(figures, settings).map(|load| 100.0 - load * 50.0)),
                part("idle_score", weights.idle_score, idle_cpu(figures)),
                part("fail_score", weights.fail_score, known(figures.failure_rate).map(|rate| 100.0 - rate)),
            ]
        }
        Profile::Health => {
            let limit = known(Some(settings.latency_limit_ms)).filter(|limit| *limit > 0.0);
            let against = |figure, whole: Option<f64>| Some(left(known(figure)?, whole?));
            let memory = known(figures.memory_free.map(|figure| figure.value));
            [
                part("rate_headroom", RATE_HEADROOM, against(figures.calls_per_sec, max_rate(figures))),
                part("calls_headroom", CALLS_HEADROOM, calls),
                part("latency", LATENCY, against(figures.rtt_ms, limit)),
                part("memory", MEMORY, memory),
            ]
        }
    }
}

/// The terms with the weights they have here: as configured where all are known, else those of the known ones scaled up
/// to a sum of 1.
fn terms(parts: &[Part; 4]) -> Vec<Term> {
    let all_known = parts.iter().all(|part| part.value.is_some() || part.weight == 0.0);
    let sum: f64 = parts.iter().filter(|part| part.value.is_some()).map(|part| part.weight).sum();
    let weight_used = |part: &Part| match part.value {
        Some(_) if all_known => part.weight,
        Some(_) if sum > 0.0 => part.weight / sum,
        _ => 0.0,
    };
    let term = |part: &Part| Term {
        name: part.name.to_owned(),
        weight: part.weight,
        weight_used: weight_used(part),
        value: part.value,
    };
    parts.iter().map(term).collect()
}

fn fitness(terms: &[Term]) -> f64 {
    if terms.iter().all(|term| term.weight_used == 0.0) {
        return UNKNOWN_FITNESS;
    }
    let sum: f64 = terms.iter().filter_map(|term| Some(term.weight_used * term.value?)).sum();
    sum.clamp(0.0, 100.0)
}

fn lethal(figures: &Figures, settings: &Scoring, condition: &Condition, now: Timestamp) -> Vec<Lethal> {
    let silent = now.since(condition.seen_at);
    let full = max_calls(figures).is_some_and(|most| figures.active_calls >= u64::from(most));
    let idle = idle_cpu(figures).filter(|idle| *idle < settings.idle_cpu_min);
    let rate = known(figures.failure_rate).filter(|rate| *rate > settings.call_failure_rate_lethal);
    let operator = match condition.admin {
        Admin::Enabled => None,
        Admin::Draining => Some(Lethal::Draining),
        Admin::Disabled => Some(Lethal::Disabled),
    };
    let stale = (silent > settings.stale_threshold).then_some(Lethal::Stale { silent_sec: silent.as_secs_f64() });
    [
        operator,
        (!condition.link_up).then_some(Lethal::LinkDown),
        (condition.ready == Some(false)).then_some(Lethal::NotReady),
        stale,
        full.then_some(Lethal::Full),
        idle.map(|idle| Lethal::Cpu { idle }),
        rate.map(|rate| Lethal::Failures { rate }),
        (!condition.lets_through).then_some(Lethal::Breaker),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::model::Weights;
    use crate::score::{Figure, Source};
    use proptest::option;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);

    const WELL: Condition =
        Condition { link_up: true, ready: Some(true), seen_at: NOW, admin: Admin::Enabled, lets_through: true };

    fn figure(value: f64) -> Option<Figure> {
        Some(Figure { value, source: Source::Pbx, at: NOW })
    }

    fn example() -> Figures {
        Figures {
            active_calls: 42,
            max_calls: Some(250),
            load_avg: figure(0.85),
            idle_cpu: figure(35.0),
            failure_rate: Some(0.5),
            ..Figures::default()
        }
    }

    fn score(figures: &Figures) -> Assessment {
        assess(figures, &Scoring::default(), &WELL, NOW)
    }

    fn values(assessment: &Assessment) -> Vec<Option<f64>> {
        assessment.terms.iter().map(|term| term.value).collect()
    }

    fn weights(assessment: &Assessment) -> Vec<f64> {
        assessment.terms.iter().map(|term| term.weight_used).collect()
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn the_documented_example_holds_to_the_last_digit() {
        let assessment = score(&example());
        assert_eq!(values(&assessment), [Some(83.2), Some(57.5), Some(35.0), Some(99.5)]);
        assert_eq!(weights(&assessment), [0.40, 0.30, 0.20, 0.10]);
        assert_eq!((assessment.score, assessment.fitness), (67.48, 67.48));
        let names: Vec<_> = assessment.terms.iter().map(|term| term.name.as_str()).collect();
        assert_eq!(names, ["call_score", "load_score", "idle_score", "fail_score"]);
        assert!(close(points_per_call(&example(), &Scoring::default()), 0.16));
    }

    #[test]
    fn an_unknown_term_is_left_out_and_the_other_weights_grow() {
        let assessment = score(&Figures { load_avg: None, ..example() });
        assert_eq!(values(&assessment)[1], None);
        assert!(weights(&assessment).iter().zip([4.0 / 7.0, 0.0, 2.0 / 7.0, 1.0 / 7.0]).all(|(a, b)| close(*a, b)));
        assert!(close(assessment.score, (83.2 * 0.40 + 35.0 * 0.20 + 99.5 * 0.10) / 0.70));
        assert_eq!(assessment.terms[1].weight, 0.30, "the weight configured is still shown");
    }

    #[test]
    fn a_node_of_which_nothing_is_known_is_usable() {
        let assessment = score(&Figures::default());
        assert_eq!((assessment.score, assessment.lethal.is_empty()), (UNKNOWN_FITNESS, true));
        assert_eq!(points_per_call(&Figures::default(), &Scoring::default()), UNKNOWN_POINTS_PER_CALL);

        let calls_only = Weights { call_score: 1.0, load_score: 0.0, idle_score: 0.0, fail_score: 0.0 };
        let settings = Scoring { weights: calls_only, ..Scoring::default() };
        let unlimited = Figures { max_calls: None, ..example() };
        assert_eq!(assess(&unlimited, &settings, &WELL, NOW).score, UNKNOWN_FITNESS, "no weight on what is known");
    }

    #[test]
    fn a_limit_of_no_calls_is_no_limit() {
        let assessment = score(&Figures { max_calls: Some(0), ..example() });
        assert_eq!((values(&assessment)[0], assessment.lethal), (None, vec![]));
    }

    #[test]
    fn load_by_core_needs_the_cores() {
        let settings = Scoring { load_per_core: true, ..Scoring::default() };
        let load = |cores| values(&assess(&Figures { cores, ..example() }, &settings, &WELL, NOW))[1];
        assert_eq!(load(Some(2)), Some(78.75));
        assert_eq!((load(None), load(Some(0))), (None, None));
    }

    #[test]
    fn health_is_headroom_latency_and_memory() {
        let settings = Scoring { profile: Profile::Health, latency_limit_ms: 100.0, ..Scoring::default() };
        let figures = Figures {
            calls_per_sec: Some(5.0),
            max_calls_per_sec: Some(20.0),
            rtt_ms: Some(10.0),
            memory_free: figure(40.0),
            ..example()
        };
        let assessment = assess(&figures, &settings, &WELL, NOW);
        assert_eq!(values(&assessment), [Some(75.0), Some(83.2), Some(90.0), Some(40.0)]);
        assert!(close(assessment.score, 75.0 * 0.40 + 83.2 * 0.30 + 90.0 * 0.20 + 40.0 * 0.10));
        let per_call = 0.30 * 100.0 / 250.0 + 0.40 * 100.0 / (20.0 * 10.0);
        assert!(close(points_per_call(&figures, &settings), per_call));

        let beyond = Figures { calls_per_sec: Some(21.0), rtt_ms: Some(101.0), ..figures };
        let assessment = assess(&beyond, &settings, &WELL, NOW);
        assert_eq!(values(&assessment)[..3], [Some(0.0), Some(83.2), Some(0.0)]);
        assert!(assessment.lethal.is_empty(), "too many calls a second are not lethal");
    }

    #[test]
    fn each_lethal_condition_begins_just_beyond_its_limit() {
        let of = |figures: Figures, condition: Condition| assess(&figures, &Scoring::default(), &condition, NOW);
        let silent = |micros| Condition { seen_at: NOW.before(Duration::from_micros(micros)), ..WELL };
        let figures = example();
        let alive = [
            of(figures, silent(20_000_000)),
            of(Figures { active_calls: 249, ..figures }, WELL),
            of(Figures { idle_cpu: figure(5.0), ..figures }, WELL),
            of(Figures { failure_rate: Some(15.0), ..figures }, WELL),
            of(figures, Condition { ready: None, ..WELL }),
        ];
        for assessment in alive {
            assert_eq!(assessment.lethal, [], "on the limit is not beyond it");
            assert_eq!(assessment.score, assessment.fitness);
        }
        let dead = [
            (of(figures, silent(20_000_001)), Lethal::Stale { silent_sec: 20.000_001 }),
            (of(Figures { active_calls: 250, ..figures }, WELL), Lethal::Full),
            (of(Figures { idle_cpu: figure(4.999), ..figures }, WELL), Lethal::Cpu { idle: 4.999 }),
            (of(Figures { failure_rate: Some(15.001), ..figures }, WELL), Lethal::Failures { rate: 15.001 }),
            (of(figures, Condition { ready: Some(false), ..WELL }), Lethal::NotReady),
            (of(figures, Condition { link_up: false, ..WELL }), Lethal::LinkDown),
            (of(figures, Condition { admin: Admin::Draining, ..WELL }), Lethal::Draining),
            (of(figures, Condition { admin: Admin::Disabled, ..WELL }), Lethal::Disabled),
            (of(figures, Condition { lets_through: false, ..WELL }), Lethal::Breaker),
        ];
        for (assessment, expected) in dead {
            assert_eq!(assessment.lethal, [expected]);
            assert_eq!(assessment.score, EXCLUDED);
            assert!(assessment.fitness > 0.0, "the fitness stands without it");
        }
    }

    #[test]
    fn all_that_is_lethal_is_told() {
        let condition = Condition { link_up: false, seen_at: NOW.before(Duration::from_secs(60)), ..WELL };
        let lethal = assess(&example(), &Scoring::default(), &condition, NOW).lethal;
        assert_eq!(lethal, [Lethal::LinkDown, Lethal::Stale { silent_sec: 60.0 }]);
    }

    /// Anything that a number can be, ordinary ones often.
    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![4 => 0.0..200.0, 1 => any::<f64>(), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(-1.0)]
    }

    prop_compose! {
        fn figures()(
            active_calls in prop_oneof![4 => 0_u64..300, 1 => any::<u64>()],
            max_calls in option::of(prop_oneof![4 => 0_u32..300, 1 => any::<u32>()]),
            cores in option::of(0_u32..8),
            [load, idle, memory] in [option::of(number()), option::of(number()), option::of(number())],
            [failure_rate, calls_per_sec, max_calls_per_sec, rtt_ms]
                in [option::of(number()), option::of(number()), option::of(number()), option::of(number())],
        ) -> Figures {
            Figures {
                active_calls, max_calls, cores,
                load_avg: load.and_then(figure), idle_cpu: idle.and_then(figure), memory_free: memory.and_then(figure),
                failure_rate, calls_per_sec, max_calls_per_sec, rtt_ms,
            }
        }
    }

    prop_compose! {
        fn settings()(
            health in any::<bool>(),
            load_per_core in any::<bool>(),
            raw in [0_u32..10, 0_u32..10, 0_u32..10, 0_u32..10].prop_filter("a sum", |raw| raw.iter().sum::<u32>() > 0),
        ) -> Scoring {
            let sum = f64::from(raw.iter().sum::<u32>());
            let [call_score, load_score, idle_score, fail_score] = raw.map(|weight| f64::from(weight) / sum);
            let weights = Weights { call_score, load_score, idle_score, fail_score };
            let profile = if health { Profile::Health } else { Profile::Weighted };
            Scoring { profile, load_per_core, weights, ..Scoring::default() }
        }
    }

    proptest! {
        #[test]
        fn a_score_is_a_number_within_bounds_whatever_comes_in(figures in figures(), settings in settings()) {
            let assessment = assess(&figures, &settings, &WELL, NOW);
            prop_assert!((0.0..=100.0).contains(&assessment.fitness), "{:?}", assessment);
            let expected = if assessment.lethal.is_empty() { assessment.fitness } else { EXCLUDED };
            prop_assert_eq!(assessment.score, expected);
            let points = points_per_call(&figures, &settings);
            prop_assert!(points.is_finite() && points > 0.0);
        }

        #[test]
        fn the_weights_used_sum_to_one_or_nothing_is_known(figures in figures(), settings in settings()) {
            let assessment = assess(&figures, &settings, &WELL, NOW);
            let sum: f64 = weights(&assessment).iter().sum();
            if sum == 0.0 {
                prop_assert_eq!(assessment.fitness, UNKNOWN_FITNESS);
                prop_assert!(assessment.terms.iter().all(|term| term.value.is_none() || term.weight == 0.0));
            } else {
                prop_assert!((sum - 1.0).abs() < 1e-9);
            }
            for term in &assessment.terms {
                prop_assert!(term.value.is_some() || term.weight_used == 0.0);
                prop_assert!(term.value.is_none() || term.weight_used >= term.weight * (1.0 - 1e-9));
            }
        }

        /// The terms that are known keep their proportions, so a score lies between the smallest and the largest of them.
        #[test]
        fn an_unknown_figure_neither_praises_nor_punishes(figures in figures(), settings in settings()) {
            let assessment = assess(&figures, &settings, &WELL, NOW);
            let used = assessment.terms.iter().filter(|term| term.weight_used > 0.0);
            let values: Vec<f64> = used.filter_map(|term| term.value).collect();
            if !values.is_empty() {
                let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(l, m), v| (l.min(*v), m.max(*v)));
                prop_assert!(assessment.fitness >= least - 1e-9 && assessment.fitness <= most + 1e-9);
            }
        }

        #[test]
        fn nonsense_counts_as_unknown(
            figures in figures(),
            settings in settings(),
            nonsense in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(-0.5)],
            which in 0_usize..7,
        ) {
            let (mut odd, mut none) = (figures, figures);
            let (odd_at, none_at) = match which {
                0 => (&mut odd.failure_rate, &mut none.failure_rate),
                1 => (&mut odd.calls_per_sec, &mut none.calls_per_sec),
                2 => (&mut odd.max_calls_per_sec, &mut none.max_calls_per_sec),
                3 => (&mut odd.rtt_ms, &mut none.rtt_ms),
                _ => {
                    let (odd_at, none_at) = match which {
                        4 => (&mut odd.load_avg, &mut none.load_avg),
                        5 => (&mut odd.idle_cpu, &mut none.idle_cpu),
                        _ => (&mut odd.memory_free, &mut none.memory_free),
                    };
                    (*odd_at, *none_at) = (figure(nonsense), None);
                    prop_assert_eq!(assess(&odd, &settings, &WELL, NOW), assess(&none, &settings, &WELL, NOW));
                    return Ok(());
                }
            };
            (*odd_at, *none_at) = (Some(nonsense), None);
            prop_assert_eq!(assess(&odd, &settings, &WELL, NOW), assess(&none, &settings, &WELL, NOW));
        }

        /// A figure that gets worse never makes a score better.
        #[test]
        fn a_worse_figure_makes_no_better_score(
            figures in figures(), settings in settings(), worse_by in 0.0_f64..50.0, which in 0_usize..7,
        ) {
            let mut worse = figures;
            let add = |value: Option<f64>| value.map(|it| it + worse_by);
            let shift = |it: Option<Figure>, by: f64| it.map(|it| Figure { value: it.value + by, ..it });
            let drop = |it: Option<Figure>| it.map(|it| Figure { value: (it.value - worse_by).max(0.0), ..it });
            let ordinary = |it: Option<Figure>| it.is_none_or(|it| it.value.is_finite() && it.value >= 0.0);
            let usual = |it: Option<f64>| it.is_none_or(|it| it.is_finite() && it >= 0.0);
            prop_assume!([figures.load_avg, figures.idle_cpu, figures.memory_free].into_iter().all(ordinary));
            prop_assume!([figures.failure_rate, figures.calls_per_sec, figures.rtt_ms].into_iter().all(usual));
            match which {
                0 => worse.active_calls = figures.active_calls.saturating_add(worse_by as u64),
                1 => worse.load_avg = shift(figures.load_avg, worse_by),
                2 => worse.idle_cpu = drop(figures.idle_cpu),
                3 => worse.memory_free = drop(figures.memory_free),
                4 => worse.failure_rate = add(figures.failure_rate),
                5 => worse.calls_per_sec = add(figures.calls_per_sec),
                _ => worse.rtt_ms = add(figures.rtt_ms),
            }
            let (before, after) = (assess(&figures, &settings, &WELL, NOW), assess(&worse, &settings, &WELL, NOW));
            prop_assert!(after.score <= before.score + 1e-9, "{} after {}", after.score, before.score);
        }

        /// What one more call costs is what the formula says it costs, as long as no term is at its end.
        #[test]
        fn a_call_costs_the_points_told(active in 0_u64..200, max in 201_u32..5_000, settings in settings()) {
            let figures = Figures { active_calls: active, max_calls: Some(max), ..example() };
            let settings = Scoring { profile: Profile::Weighted, ..settings };
            prop_assume!(settings.weights.call_score > 0.0);
            let one_more = Figures { active_calls: active + 1, ..figures };
            let fitness = |figures: &Figures| assess(figures, &settings, &WELL, NOW).fitness;
            let cost = fitness(&figures) - fitness(&one_more);
            prop_assert!((cost - points_per_call(&figures, &settings)).abs() < 1e-9);
        }
    }
}
