//! How nodes are scored, how one of them is chosen, and when one is left alone.

use std::time::Duration;

use super::{Check, tables};
use crate::config::model::{Balancing, BreakerSettings, Profile, Scoring, Weights};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::ids::NodeId;

/// Longest window of a node's failures. They are kept in memory, and older ones say nothing of the node as it is.
const MAX_FAILURE_WINDOW: u64 = 10_000;

/// Floor of the health profile, unless said otherwise.
const HEALTH_MIN_SCORE: f64 = 30.0;

/// Longest time in which a reply can be a good one: after it nobody waits for the reply any more.
const LONGEST_REPLY: Duration = crate::pbx::session::COMMAND_LIMIT;

/// How long an answer counts as a call, unless said otherwise, in seconds.
const DEFAULT_LEASE_SEC: u64 = 5;

impl Check<'_> {
    /// The weighting that scores follow; `None` where what is written could not be read.
    pub(super) fn profile(&self) -> Option<Profile> {
        let scoring = &self.raw.scoring;
        match scoring.get() {
            Some(scoring) if scoring.profile.is_broken() => None,
            Some(scoring) => Some(scoring.profile.get().copied().unwrap_or_default()),
            None => scoring.is_absent().then(Profile::default),
        }
    }

    pub(super) fn scoring(&mut self) -> Scoring {
        let usual = Scoring::default();
        let stale = self.bounded(&self.raw.stale_threshold_sec, "stale_threshold_sec", 1..=3600);
        let stale_threshold = stale.map_or(usual.stale_threshold, Duration::from_secs);
        let default = raw::Scoring::default();
        let raw = self.raw.scoring.get().unwrap_or(&default);
        self.idle_scoring(raw);
        let profile = self.profile().unwrap_or_default();
        let lethal = "call_failure_rate_lethal";
        let (failure_window, failure_min_calls) = self.failures(raw, &usual);
        let floor = if profile == Profile::Health { HEALTH_MIN_SCORE } else { usual.min_score };
        Scoring {
            profile,
            stale_threshold,
            idle_cpu_min: self.within(&raw.idle_cpu_min, "idle_cpu_min", 0.0..=100.0).unwrap_or(usual.idle_cpu_min),
            call_failure_rate_lethal: self
                .within(&raw.call_failure_rate_lethal, lethal, 0.0..=100.0)
                .unwrap_or(usual.call_failure_rate_lethal),
            weights: self.weights(raw),
            load_per_core: raw.load_per_core.get().copied().unwrap_or(usual.load_per_core),
            failure_window,
            failure_min_calls,
            min_score: self.within(&raw.min_score, "min_score", 0.0..=100.0).unwrap_or(floor),
            fallback_node: self.fallback_node(raw),
            latency_limit_ms: self
                .above(&raw.latency_limit_ms, "latency_limit_ms", 0.0, 60_000.0)
                .unwrap_or(usual.latency_limit_ms),
        }
    }

    /// Warns of keys that are for the other profile.
    fn idle_scoring(&mut self, raw: &raw::Scoring) {
        let (profile, idle) = match self.profile() {
            None => return,
            Some(Profile::Weighted) => ("weighted", vec![("latency_limit_ms", raw.latency_limit_ms.place)]),
            Some(Profile::Health) => {
                ("health", vec![("weights", raw.weights.place), ("load_per_core", raw.load_per_core.place)])
            }
        };
        for (key, place) in idle {
            if let Some(place) = place {
                let message = format!("`{key}` has no effect with the profile \"{profile}\"");
                self.note(Draft::warning(Mark::Key(place), message));
            }
        }
    }

    fn weights(&mut self, scoring: &raw::Scoring) -> Weights {
        let usual = Weights::default();
        let Some((raw, place)) = scoring.weights.placed() else { return usual };
        let list = [
            (&raw.call_score, "call_score", usual.call_score),
            (&raw.load_score, "load_score", usual.load_score),
            (&raw.idle_score, "idle_score", usual.idle_score),
            (&raw.fail_score, "fail_score", usual.fail_score),
        ];
        let broken = list.iter().any(|(value, ..)| value.is_broken());
        let [call_score, load_score, idle_score, fail_score] =
            list.map(|(value, key, usual)| self.within(value, key, 0.0..=1.0).unwrap_or(usual));
        let sum = call_score + load_score + idle_score + fail_score;
        if !broken && (sum - 1.0).abs() > 1e-6 {
            let sum = (sum * 1e6).round() / 1e6;
            let message = format!("the weights must sum to 1, and they sum to {sum}");
            let help = "one that is not written has its default: 0.40, 0.30, 0.20, 0.10";
            self.note(Draft::error(Mark::Value(place), message).help(help));
        }
        Weights { call_score, load_score, idle_score, fail_score }
    }

    /// The window of a node's failures, and how many calls it takes to judge them.
    fn failures(&mut self, raw: &raw::Scoring, usual: &Scoring) -> (usize, usize) {
        let size = |calls: u64| usize::try_from(calls).unwrap_or(usize::MAX);
        let window = self.bounded(&raw.failure_window, "failure_window", 1..=MAX_FAILURE_WINDOW);
        let window = window.map_or(usual.failure_window, size);
        let min = self.bounded(&raw.failure_min_calls, "failure_min_calls", 1..=MAX_FAILURE_WINDOW).map(size);
        if let (Some(min), Some(place)) = (min, raw.failure_min_calls.place)
            && min > window
            && !raw.failure_window.is_broken()
        {
            let message =
                format!("`failure_min_calls` is {min}, and `failure_window` never holds more than {window} calls");
            let draft = Draft::error(Mark::Value(place), message);
            self.note(match raw.failure_window.place {
                Some(window) => draft.also(Mark::Value(window), "the window"),
                None => draft,
            });
        }
        (window, min.unwrap_or(usual.failure_min_calls.min(window)))
    }

    fn fallback_node(&mut self, raw: &raw::Scoring) -> Option<NodeId> {
        let (node, place) = raw.fallback_node.placed()?;
        let nodes = &self.raw.nodes;
        let known = tables(nodes).filter_map(|(node, _)| Some(node.id.get()?.as_str()));
        if !known.clone().any(|known| known == node.as_str()) {
            self.unknown("node", node.as_str(), Mark::Value(place), known);
        }
        Some(node.clone())
    }

    pub(super) fn balancing(&mut self) -> Balancing {
        let default = raw::Balancing::default();
        let raw = self.raw.balancing.get().unwrap_or(&default);
        let lease = self.bounded(&raw.lease_sec, "lease_sec", 0..=60).unwrap_or(DEFAULT_LEASE_SEC);
        Balancing { mode: raw.mode.get().copied().unwrap_or_default(), lease: Duration::from_secs(lease) }
    }

    pub(super) fn breaker(&mut self) -> BreakerSettings {
        let usual = BreakerSettings::default();
        let default = raw::Breaker::default();
        let raw = self.raw.breaker.get().unwrap_or(&default);
        let failures = self.bounded(&raw.failures, "failures", 1..=100);
        let timeout = self.bounded(&raw.timeout_sec, "timeout_sec", 1..=LONGEST_REPLY.as_secs());
        let open = self.bounded(&raw.open_sec, "open_sec", 1..=3600).map_or(usual.open, Duration::from_secs);
        let most = self.bounded(&raw.open_max_sec, "open_max_sec", 1..=86_400).map(Duration::from_secs);
        if let (Some(most), Some(place)) = (most, raw.open_max_sec.place)
            && most < open
            && !raw.open_sec.is_broken()
        {
            let (most, first) = (most.as_secs(), open.as_secs());
            let message = format!("`open_max_sec` is {most}, and the first time is {first} s already");
            let help = "the time doubles from `open_sec` up to `open_max_sec`";
            self.note(Draft::error(Mark::Value(place), message).help(help));
        }
        BreakerSettings {
            failures: failures.and_then(|failures| u32::try_from(failures).ok()).unwrap_or(usual.failures),
            timeout: timeout.map_or(usual.timeout, Duration::from_secs),
            open,
            open_max: most.unwrap_or(usual.open_max.max(open)),
        }
    }
}
