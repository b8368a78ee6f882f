use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::lease::Leases;
use super::{Answer, Candidate, NoAnswer, Picture, Router};
use crate::config::model::{Mode, Scoring};
use crate::ids::NodeId;
use crate::score::{EXCLUDED, Lethal};
use crate::time::Timestamp;

const MODES: [Mode; 7] =
    [Mode::BestScore, Mode::Weighted, Mode::RoundRobin, Mode::LeastCalls, Mode::Ewma, Mode::P2c, Mode::ConsistentHash];

fn id(number: usize) -> NodeId {
    NodeId::new(&format!("pbx-{number:02}")).unwrap()
}

fn node(number: usize, score: f64) -> Candidate {
    Candidate {
        node: id(number),
        address: Arc::from(format!("10.0.0.{number}")),
        score,
        fitness: score,
        points_per_call: 0.02,
        active_calls: 0,
        max_calls: Some(2_000),
        rtt_ms: 1.0,
        linked: true,
        replied: true,
        disabled: false,
        lethal: Vec::new(),
        settled: 0,
    }
}

fn out(number: usize, fitness: f64, lethal: Lethal) -> Candidate {
    Candidate {
        linked: lethal != Lethal::LinkDown,
        disabled: lethal == Lethal::Disabled,
        lethal: vec![lethal],
        fitness,
        ..node(number, EXCLUDED)
    }
}

fn equal(count: usize) -> Vec<Candidate> {
    (1..=count).map(|number| node(number, 80.0)).collect()
}

fn picture_under(scoring: &Scoring, candidates: Vec<Candidate>) -> Picture {
    Picture::of(7, Timestamp::from_secs(1), candidates, scoring, false)
}

fn picture(candidates: Vec<Candidate>) -> Picture {
    picture_under(&Scoring::default(), candidates)
}

/// A router with the randomness that goes with it.
struct Desk {
    router: Router,
    random: fastrand::Rng,
}

impl Desk {
    fn new(candidates: Vec<Candidate>) -> Self {
        Self::of(picture(candidates))
    }

    fn of(picture: Picture) -> Self {
        let mut random = fastrand::Rng::with_seed(42);
        let router = Router::new(random.u64(..));
        router.publish(picture);
        Self { router, random }
    }

    fn ask(&mut self, mode: Mode) -> Result<Answer, NoAnswer> {
        let key = self.random.u64(..).to_string();
        self.router.answer(mode, Some(&key), &mut self.random)
    }

    fn name(&mut self, mode: Mode) -> String {
        self.ask(mode).unwrap().node_id.to_string()
    }

    /// How many of so many answers name each node.
    fn shares(&mut self, mode: Mode, answers: usize) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for _ in 0..answers {
            *shares.entry(self.name(mode)).or_default() += 1;
        }
        shares
    }

    /// The same, with every answer settled before the next is given.
    fn settled_shares(&mut self, mode: Mode, answers: usize) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        let mut candidates = self.router.picture().candidates.clone();
        for _ in 0..answers {
            let answer = self.ask(mode).unwrap();
            let chosen = candidates.iter_mut().find(|it| it.node == answer.node_id).unwrap();
            chosen.settled += 1;
            *shares.entry(answer.node_id.to_string()).or_default() += 1;
            self.router.publish(picture(candidates.clone()));
        }
        shares
    }
}

fn max_over_mean(shares: &BTreeMap<String, usize>, nodes: usize) -> f64 {
    let most = *shares.values().max().unwrap() as f64;
    most * nodes as f64 / shares.values().sum::<usize>() as f64
}

#[test]
fn a_burst_between_two_pictures_spreads_in_every_mode() {
    for mode in MODES.into_iter().filter(|mode| *mode != Mode::ConsistentHash) {
        for nodes in 2..=10 {
            let shares = Desk::new(equal(nodes)).shares(mode, 1_000);
            assert!(max_over_mean(&shares, nodes) <= 1.1, "{mode:?} over {nodes} nodes: {shares:?}");
        }
    }
}

#[test]
fn a_burst_of_random_keys_spreads_as_the_places_on_the_ring_do() {
    for nodes in 2..=10 {
        let candidates = equal(nodes).into_iter().map(|it| Candidate { max_calls: None, ..it }).collect();
        let shares = Desk::new(candidates).shares(Mode::ConsistentHash, 100_000);
        assert!(max_over_mean(&shares, nodes) <= 1.25, "{nodes} nodes: {shares:?}");
    }
}

#[test]
fn the_best_score_leads_until_its_answers_have_cost_it_the_lead() {
    let candidates = [node(1, 80.0), node(2, 90.0)].map(|it| Candidate { points_per_call: 0.5, ..it });
    let mut desk = Desk::new(candidates.to_vec());
    assert_eq!(desk.shares(Mode::BestScore, 20), [("pbx-02".to_owned(), 20)].into());
    assert_eq!(desk.name(Mode::BestScore), "pbx-01", "80 both: the one with fewer outstanding answers");
    assert_eq!(desk.shares(Mode::BestScore, 100).into_values().collect::<Vec<_>>(), [50, 50]);
}

#[test]
fn among_equals_the_first_is_best() {
    assert_eq!(picture(equal(3)).best, Some(id(1)));
    assert_eq!(Desk::new(equal(3)).name(Mode::BestScore), "pbx-01");
}

#[test]
fn weighted_shares_follow_the_scores_also_in_short_bursts() {
    let scores = [10.0, 20.0, 30.0, 40.0];
    let candidates = || {
        let node = |(number, score): (usize, &f64)| Candidate {
            points_per_call: 1e-9,
            max_calls: None,
            ..node(number, *score)
        };
        scores.iter().enumerate().map(node).collect::<Vec<_>>()
    };
    for (answers, sigmas) in [(100_usize, 2.0), (1_000, 1.0), (100_000, 1.0)] {
        let shares = Desk::new(candidates()).shares(Mode::Weighted, answers);
        for (number, score) in scores.iter().enumerate() {
            let p = score / 100.0;
            let (count, mean) = (shares[&id(number).to_string()] as f64, p * answers as f64);
            let sigma = (mean * (1.0 - p)).sqrt();
            assert!((count - mean).abs() <= sigmas * sigma, "{answers}: {shares:?}");
        }
    }
}

#[test]
fn weighted_among_nodes_of_score_zero_gives_each_the_same() {
    let shares = Desk::new((1..=4).map(|number| node(number, 0.0)).collect()).shares(Mode::Weighted, 1_000);
    assert!(max_over_mean(&shares, 4) <= 1.02, "{shares:?}");
}

#[test]
fn round_robin_goes_by_turns_whoever_comes_and_goes() {
    let mut desk = Desk::new(equal(3));
    let mut names = |candidates: Option<Vec<Candidate>>, count: usize| {
        candidates.into_iter().for_each(|candidates| desk.router.publish(picture(candidates)));
        (0..count).map(|_| desk.name(Mode::RoundRobin)).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 4), ["pbx-01", "pbx-02", "pbx-03", "pbx-01"]);
    let without_2 = vec![node(1, 80.0), out(2, 80.0, Lethal::NotReady), node(3, 80.0)];
    assert_eq!(names(Some(without_2), 3), ["pbx-03", "pbx-01", "pbx-03"]);
    assert_eq!(names(Some(equal(3)), 4), ["pbx-01", "pbx-02", "pbx-03", "pbx-01"]);
}

#[test]
fn round_robin_is_fair_while_a_node_flaps() {
    let mut desk = Desk::new(equal(4));
    let mut shares = BTreeMap::<String, usize>::new();
    for turn in 0..3_000 {
        let mut candidates = equal(4);
        if turn % 3 == 0 {
            candidates[1] = out(2, 80.0, Lethal::Full);
        }
        desk.router.publish(picture(candidates));
        *shares.entry(desk.name(Mode::RoundRobin)).or_default() += 1;
    }
    let others: Vec<_> = [1, 3, 4].map(|number| shares[&id(number).to_string()]).into();
    assert!(others.iter().max().unwrap() - others.iter().min().unwrap() <= 1, "{shares:?}");
}

#[test]
fn fewest_calls_fills_up_before_it_spreads() {
    let mut candidates = equal(2);
    candidates[0].active_calls = 10;
    let mut desk = Desk::new(candidates);
    assert_eq!(desk.shares(Mode::LeastCalls, 10), [("pbx-02".to_owned(), 10)].into());
    assert_eq!(desk.shares(Mode::LeastCalls, 10).into_values().collect::<Vec<_>>(), [5, 5]);
}

#[test]
fn reply_time_and_calls_weigh_against_each_other() {
    let mut candidates = equal(2);
    candidates[1].rtt_ms = 3.0;
    let shares = Desk::new(candidates.clone()).shares(Mode::Ewma, 400);
    assert_eq!(shares.into_values().collect::<Vec<_>>(), [300, 100]);
    candidates[0].rtt_ms = 0.0;
    candidates[1].rtt_ms = 0.0;
    let shares = Desk::new(candidates).shares(Mode::Ewma, 400);
    assert_eq!(shares.into_values().collect::<Vec<_>>(), [200, 200], "no reply time at all is no reason to pile up");
}

#[test]
fn two_choices_are_random_different_and_the_better_one_wins() {
    // 5 equal nodes, each answer settled before the next: uniform. Chi-square with 4 degrees of freedom: 0.0001 above 23.5.
    let shares = Desk::new(equal(5)).settled_shares(Mode::P2c, 10_000);
    let chi: f64 = shares.values().map(|count| (*count as f64 - 2_000.0).powi(2) / 2_000.0).sum();
    assert!(shares.len() == 5 && chi < 23.5, "{chi}: {shares:?}");

    // With scores in descending order node i of 4 is the better one of 6, 4, 2, 0 of 12 ordered pairs.
    let shares =
        Desk::new((1..=4).map(|number| node(number, 90.0 - number as f64)).collect()).settled_shares(Mode::P2c, 12_000);
    let count = |number| shares.get(&id(number).to_string()).copied().unwrap_or_default() as f64;
    for (number, expected) in [(1, 6_000.0_f64), (2, 4_000.0), (3, 2_000.0), (4, 0.0)] {
        let sigma = (expected * (1.0 - expected / 12_000.0)).sqrt();
        assert!((count(number) - expected).abs() <= 5.0 * sigma, "{shares:?}");
    }
}

#[test]
fn equal_keys_meet_on_the_node_that_anybody_can_compute() {
    let mut desk = Desk::new(equal(5));
    for (key, expected) in [
        ("alice@example.com", "pbx-04"),
        ("+4930123456", "pbx-02"),
        ("conference-42", "pbx-05"),
        ("a", "pbx-05"),
        ("Zoë", "pbx-03"),
    ] {
        for _ in 0..3 {
            let answer = desk.router.answer(Mode::ConsistentHash, Some(key), &mut desk.random).unwrap();
            assert_eq!(answer.node_id.as_str(), expected, "{key}");
        }
    }
}

#[test]
fn a_hash_without_a_key_is_refused() {
    let mut desk = Desk::new(equal(2));
    for key in [None, Some("")] {
        assert_eq!(desk.router.answer(Mode::ConsistentHash, key, &mut desk.random), Err(NoAnswer::NoKey));
        assert!(desk.router.answer(Mode::BestScore, key, &mut desk.random).is_ok());
    }
}

fn homes(candidates: Vec<Candidate>, keys: usize) -> Vec<NodeId> {
    let candidates = candidates.into_iter().map(|it| Candidate { max_calls: None, ..it }).collect();
    let mut desk = Desk::new(candidates);
    (0..keys)
        .map(|key| {
            desk.router.answer(Mode::ConsistentHash, Some(&format!("key-{key}")), &mut desk.random).unwrap().node_id
        })
        .collect()
}

#[test]
fn only_the_share_of_a_node_that_comes_or_goes_moves() {
    const KEYS: usize = 20_000;
    let before = homes(equal(6), KEYS);
    for gone in 1..=6 {
        let mut without = equal(6);
        without.retain(|it| it.node != id(gone));
        let mut excluded = equal(6);
        excluded[gone - 1] = out(gone, 80.0, Lethal::LinkDown);
        let after = homes(without, KEYS);
        assert_eq!(after, homes(excluded, KEYS), "gone or excluded: the same");
        let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|(before, _)| **before == id(gone)), "nobody else's key moves");
        let share = moved.len() as f64 / KEYS as f64;
        assert!((share - 1.0 / 6.0).abs() < 0.25 / 6.0, "{share}");
        let heirs: std::collections::BTreeSet<_> = moved.iter().map(|(_, after)| after).collect();
        assert_eq!(heirs.len(), 5, "its share goes to all others");
    }
    let mut turned = equal(6);
    turned.reverse();
    assert_eq!(homes(turned, KEYS), before, "the order in which nodes are written does not matter");
}

#[test]
fn outstanding_answers_make_a_node_full_in_every_mode() {
    for mode in MODES {
        let candidates = equal(3).into_iter().map(|it| Candidate { max_calls: Some(10), active_calls: 4, ..it });
        let mut desk = Desk::new(candidates.collect());
        let shares = desk.shares(mode, 18);
        assert_eq!(shares.into_values().collect::<Vec<_>>(), [6, 6, 6], "{mode:?}");
        let answer = desk.ask(mode).unwrap();
        assert!(answer.fallback_active, "{mode:?}");
        assert_eq!(answer.reason, "no node takes calls; the least bad (filled by the answers outstanding)");
    }
}

#[test]
fn a_node_below_the_floor_is_skipped_in_every_mode() {
    let scoring = Scoring { min_score: 30.0, ..Scoring::default() };
    for mode in MODES {
        let mut desk = Desk::of(picture_under(&scoring, vec![node(1, 29.9), node(2, 30.1), node(3, 50.0)]));
        // The second has room for 5 answers until it falls below the floor, the third for 1,000.
        let shares = desk.shares(mode, 300);
        assert!(!shares.contains_key("pbx-01"), "{mode:?}: {shares:?}");
        assert!(shares.get("pbx-02").is_none_or(|count| *count <= 6), "{mode:?}: {shares:?}");
    }
}

#[test]
fn the_fallback_configured_is_answered_when_no_node_takes_calls() {
    let scoring = Scoring { fallback_node: Some(id(3)), ..Scoring::default() };
    let ask = |third: Candidate| {
        let full = out(1, 40.0, Lethal::Full);
        let picture = picture_under(&scoring, vec![full, out(2, 60.0, Lethal::Cpu { idle: 3.0 }), third]);
        let fallback = picture.fallback.clone();
        let mut desk = Desk::of(picture);
        let answer = desk.ask(Mode::Weighted).unwrap();
        assert!(answer.fallback_active && desk.router.picture().best.is_none());
        assert_eq!(fallback.as_ref(), Some(&answer.node_id));
        (answer.node_id, answer.score, answer.reason)
    };
    let (node_id, score, reason) = ask(out(3, 10.0, Lethal::LinkDown));
    assert_eq!((node_id, score), (id(3), EXCLUDED), "with no link of ours it may still take calls");
    assert_eq!(reason, "no node takes calls; the fallback configured (no link)");
    let (node_id, _, reason) = ask(out(3, 90.0, Lethal::Disabled));
    assert_eq!(node_id, id(2), "what the operator took out of service is no fallback");
    assert_eq!(reason, "no node takes calls; the least bad (idle CPU 3.0 %)");

    let picture = picture_under(&scoring, vec![node(1, 5.0), out(3, 90.0, Lethal::Full)]);
    assert_eq!((picture.best, picture.fallback_active, picture.fallback), (Some(id(1)), false, None));
}

#[test]
fn the_least_bad_is_one_that_could_take_a_call() {
    // From the best to the worst.
    let ranks = [
        out(5, 50.0, Lethal::Failures { rate: 20.0 }),
        out(4, 40.0, Lethal::Full),
        out(9, 90.0, Lethal::Stale { silent_sec: 25.0 }),
        out(8, 80.0, Lethal::Breaker),
        out(7, 95.0, Lethal::Draining),
        out(6, 99.0, Lethal::NotReady),
    ];
    for (rank, expected) in ranks.iter().enumerate() {
        let mut worse = ranks[rank..].to_vec();
        worse.reverse();
        worse.push(out(1, 100.0, Lethal::LinkDown));
        worse.push(out(2, 100.0, Lethal::Disabled));
        assert_eq!(Desk::new(worse).ask(Mode::P2c).unwrap().node_id, expected.node);
    }
}

#[test]
fn answers_with_the_least_bad_spread_as_well() {
    let candidates = (1..=4).map(|number| out(number, 50.0, Lethal::Full)).collect();
    let shares = Desk::new(candidates).shares(Mode::BestScore, 400);
    assert!(max_over_mean(&shares, 4) <= 1.1, "{shares:?}");
}

#[test]
fn without_a_node_there_is_no_answer() {
    let mut random = fastrand::Rng::with_seed(1);
    let nothing = Router::new(0).answer(Mode::BestScore, None, &mut random);
    assert!(matches!(nothing, Err(NoAnswer::NoNode(_))));

    let mut desk = Desk::new(vec![out(1, 50.0, Lethal::LinkDown), out(2, 50.0, Lethal::Disabled)]);
    for mode in MODES {
        let refusal = desk.ask(mode).unwrap_err();
        assert_eq!(refusal, NoAnswer::NoNode("pbx-01: no link; pbx-02: out of service".to_owned()));
    }
    assert!(desk.router.picture().fallback_active);
    assert_eq!(desk.router.picture().fallback, None);
}

#[test]
fn an_answer_says_what_it_was_made_from() {
    let mut desk = Desk::of(Picture { panic: true, ..picture(vec![node(1, 67.48)]) });
    assert_eq!(
        desk.ask(Mode::BestScore).unwrap(),
        Answer {
            node_id: id(1),
            address: "10.0.0.1".into(),
            score: 67.48,
            mode: Mode::BestScore,
            fallback_active: false,
            panic: true,
            generation: 7,
            reason: "best score: 67.48, 0 answers outstanding".to_owned(),
        }
    );
}

#[test]
fn threads_never_fill_a_node_beyond_its_limit_and_every_lease_ends() {
    for mode in MODES {
        const THREADS: usize = 4;
        const EACH: usize = 1_000;
        let most = u32::try_from(THREADS * EACH / 4).unwrap();
        let candidates: Vec<_> = equal(4).into_iter().map(|it| Candidate { max_calls: Some(most), ..it }).collect();
        let router = Router::new(1);
        let nodes: Vec<_> = candidates.iter().map(|it| it.node.clone()).collect();
        let mut leases = Leases::new(Duration::from_secs(5), &router.counters(), &nodes);
        router.publish(picture(candidates));
        std::thread::scope(|scope| {
            for seed in 0..THREADS {
                let router = &router;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed as u64);
                    for _ in 0..EACH {
                        let key = random.u64(..).to_string();
                        assert!(!router.answer(mode, Some(&key), &mut random).unwrap().fallback_active);
                    }
                });
            }
        });
        leases.tick(Timestamp::from_secs(10));
        for node in &nodes {
            assert_eq!(leases.outstanding(node), u64::from(most), "{mode:?}: all room is used, and no more");
        }
        leases.tick(Timestamp::from_secs(15));
        assert!(!leases.any_outstanding());
    }
}

#[test]
fn a_call_that_shows_up_takes_the_place_of_its_answer() {
    let mut desk = Desk::new(equal(2));
    let mut leases = Leases::new(Duration::from_secs(5), &desk.router.counters(), &[id(1), id(2)]);
    let mut candidates = equal(2);
    for _ in 0..500 {
        let answer = desk.ask(Mode::LeastCalls).unwrap();
        leases.placed(&answer.node_id);
        leases.tick(Timestamp::from_secs(1));
        for it in &mut candidates {
            it.active_calls += u64::from(it.node == answer.node_id);
            it.settled = leases.settled(&it.node);
        }
        desk.router.publish(picture(candidates.clone()));
    }
    assert_eq!(candidates.iter().map(|it| it.active_calls).collect::<Vec<_>>(), [250, 250]);
    assert!(!leases.any_outstanding());
}

#[test]
fn a_node_that_leaves_the_picture_and_comes_back_keeps_its_numbers() {
    let mut desk = Desk::new(equal(2));
    assert_eq!(desk.shares(Mode::RoundRobin, 10).len(), 2);
    desk.router.publish(picture(vec![node(1, 80.0)]));
    desk.router.publish(picture(equal(2)));
    let leases = Leases::new(Duration::from_secs(5), &desk.router.counters(), &[id(1), id(2)]);
    assert_eq!((leases.settled(&id(1)), leases.settled(&id(2))), (5, 5));
}

fn any_lethal() -> impl Strategy<Value = Vec<Lethal>> {
    let one = prop_oneof![
        Just(Lethal::LinkDown),
        Just(Lethal::NotReady),
        Just(Lethal::Stale { silent_sec: 21.0 }),
        Just(Lethal::Full),
        Just(Lethal::Cpu { idle: 1.0 }),
        Just(Lethal::Failures { rate: 16.0 }),
        Just(Lethal::Breaker),
        Just(Lethal::Draining),
        Just(Lethal::Disabled),
    ];
    prop_oneof![1 => Just(vec![]), 1 => proptest::collection::vec(one, 1..3)]
}

prop_compose! {
    fn any_candidate()(
        fitness in 0.0_f64..100.0, points_per_call in 0.0_f64..1.0, active_calls in 0_u64..20,
        max_calls in proptest::option::of(21_u32..60), rtt_ms in 0.0_f64..10.0, lethal in any_lethal(),
    ) -> Candidate {
        let score = if lethal.is_empty() { fitness } else { EXCLUDED };
        Candidate {
            score, fitness, points_per_call, active_calls, max_calls, rtt_ms,
            linked: !lethal.contains(&Lethal::LinkDown), disabled: lethal.contains(&Lethal::Disabled), lethal,
            ..node(0, 0.0)
        }
    }
}

proptest! {
    /// In every mode: a node that takes calls wherever there is one, else the stand-in, else no answer; and each answer
    /// counts.
    #[test]
    fn an_answer_names_a_node_that_takes_calls_or_says_that_none_does(
        candidates in proptest::collection::vec(any_candidate(), 0..6),
        mode in proptest::sample::select(&MODES[..]),
        min_score in prop_oneof![Just(0.0), Just(30.0)],
        configured in 0_usize..8,
        answers in 1_u64..60,
    ) {
        let mut candidates = candidates;
        candidates.iter_mut().enumerate().for_each(|(number, it)| it.node = id(number));
        let scoring = Scoring { min_score, fallback_node: (configured < 6).then(|| id(configured)), ..Scoring::default() };
        let mut desk = Desk::of(picture_under(&scoring, candidates.clone()));
        let picture = desk.router.picture();
        let mut given = vec![0_u64; candidates.len()];
        let open = |given: &[u64]| {
            let is_open = |(it, given): (&Candidate, &u64)| {
                let score = (it.score - *given as f64 * it.points_per_call).max(0.0);
                let room = it.max_calls.is_none_or(|most| it.active_calls + given < u64::from(most));
                it.lethal.is_empty() && it.score >= min_score && score >= min_score && room
            };
            candidates.iter().zip(given).map(is_open).collect::<Vec<_>>()
        };
        prop_assert_eq!(picture.fallback_active, !open(&given).contains(&true));
        for number in 0..answers {
            let open = open(&given);
            let usable = candidates.iter().any(|it| it.linked && !it.disabled)
                || candidates.iter().any(|it| Some(&it.node) == scoring.fallback_node.as_ref() && !it.disabled);
            match desk.ask(mode) {
                Ok(answer) => {
                    let index = candidates.iter().position(|it| it.node == answer.node_id).unwrap();
                    prop_assert_eq!(answer.fallback_active, !open.contains(&true));
                    prop_assert!(answer.fallback_active || open[index]);
                    if number == 0 && answer.fallback_active {
                        prop_assert_eq!(Some(&answer.node_id), picture.fallback.as_ref());
                    } else if number == 0 && mode == Mode::BestScore {
                        prop_assert_eq!(Some(&answer.node_id), picture.best.as_ref());
                        prop_assert_eq!(answer.score, picture.best_score);
                    }
                    given[index] += 1;
                }
                Err(refusal) => {
                    prop_assert!(matches!(refusal, NoAnswer::NoNode(_)));
                    prop_assert!(!open.contains(&true) && !usable);
                }
            }
        }
        let leases = Leases::new(Duration::ZERO, &desk.router.counters(), candidates.iter().map(|it| &it.node));
        let counted: Vec<_> = candidates.iter().map(|it| leases.settled(&it.node)).collect();
        prop_assert_eq!(counted, given);
    }
}
