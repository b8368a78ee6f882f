//! What is known of a node's fitness, gathered from wherever it comes, and what it comes to. Pure.

use std::time::Duration;

use crate::balance::Candidate;
use crate::config::model::{BreakerSettings, Node, Scoring};
use crate::engine::local;
use crate::engine::view::BreakerView;
use crate::pbx::event::{PbxEvent, Vitals};
use crate::pbx::session::COMMAND_LIMIT;
use crate::score::breaker::{Breaker, Outcome};
use crate::score::ewma::Ewma;
use crate::score::failures::Failures;
use crate::score::formula::{self, Condition};
use crate::score::rate::Rate;
use crate::score::{Admin, Assessment, Figure, Figures, Load, Source};
use crate::time::Timestamp;

/// How often a node may be silent for its longest time before its figures are forgotten: an agent that died must not
/// vouch for its node for ever, and one that pushes every half minute is heard.
const FIGURES_VALID: u32 = 3;

/// The fitness of one node.
#[derive(Debug)]
pub(super) struct Health {
    admin: Admin,
    link_up: bool,
    ready: Option<bool>,
    seen_at: Timestamp,
    load_avg: [Option<Figure>; 3],
    idle_cpu: [Option<Figure>; 3],
    memory_free: [Option<Figure>; 3],
    failures: Failures,
    rate: Rate,
    reply: Ewma,
    replied: bool,
    breaker: Breaker,
    /// A reply that takes longer is a failure.
    timeout: Duration,
    excluded_since: Option<Timestamp>,
    figures_valid: Duration,
}

impl Health {
    pub(super) fn new(scoring: &Scoring, breaker: BreakerSettings, now: Timestamp) -> Self {
        Self {
            admin: Admin::Enabled,
            link_up: false,
            ready: None,
            seen_at: now,
            load_avg: [None; 3],
            idle_cpu: [None; 3],
            memory_free: [None; 3],
            failures: Failures::new(scoring.failure_window, scoring.failure_min_calls),
            rate: Rate::new(),
            reply: Ewma::default(),
            replied: false,
            breaker: Breaker::new(breaker),
            timeout: breaker.timeout,
            excluded_since: Some(now),
            figures_valid: scoring.stale_threshold * FIGURES_VALID,
        }
    }

    /// The node told something, or said nothing.
    pub(super) fn hear(&mut self, event: &PbxEvent, now: Timestamp) {
        match event {
            PbxEvent::Silent => return self.probed(now.before(COMMAND_LIMIT), None, now),
            PbxEvent::Unlinked => {
                self.link_up = false;
                return self.probed(now, None, now);
            }
            PbxEvent::Linked => self.link_up = true,
            PbxEvent::Heartbeat(heartbeat) => set(&mut self.idle_cpu, heartbeat.idle_cpu_percent, Source::Pbx, now),
            PbxEvent::Vitals(vitals) => self.vitals(vitals, now),
            _ => {}
        }
        self.seen_at = self.seen_at.max(now);
    }

    fn vitals(&mut self, vitals: &Vitals, now: Timestamp) {
        self.ready = vitals.ready.or(self.ready);
        set(&mut self.idle_cpu, vitals.idle_cpu, Source::Pbx, now);
        set(&mut self.load_avg, vitals.load_avg, Source::Pbx, now);
        if let Some(took) = vitals.took {
            self.probed(now.before(took), Some(took), now);
        }
    }

    /// A keepalive request of `asked_at` was answered after that long, or not at all.
    fn probed(&mut self, asked_at: Timestamp, took: Option<Duration>, now: Timestamp) {
        let good = took.filter(|took| *took <= self.timeout);
        if let Some(took) = good {
            self.reply.sample(took);
            self.replied = true;
        }
        if let Some(permit) = self.breaker.permit(asked_at) {
            let outcome = if good.is_some() { Outcome::Success } else { Outcome::Failure };
            self.breaker.report(permit, outcome, now);
        }
    }

    /// Somebody reports the machine's load.
    pub(super) fn load(&mut self, load: &Load, source: Source, now: Timestamp) {
        set(&mut self.load_avg, load.load_avg, source, now);
        set(&mut self.idle_cpu, load.idle_cpu, source, now);
        set(&mut self.memory_free, load.memory_free, source, now);
    }

    pub(super) fn set_admin(&mut self, admin: Admin) {
        self.admin = admin;
    }

    pub(super) fn admin(&self) -> Admin {
        self.admin
    }

    pub(super) fn placed(&mut self, now: Timestamp) {
        self.rate.placed(now);
    }

    /// An attempt ended; `effective` says whether the network carried it, where it says anything.
    pub(super) fn finished(&mut self, effective: Option<bool>) {
        if let Some(effective) = effective {
            self.failures.push(!effective);
        }
    }

    /// The figure of the source that goes first, among those that are not too old.
    fn best(&self, figures: &[Option<Figure>; 3], now: Timestamp) -> Option<Figure> {
        figures.iter().flatten().find(|figure| now.since(figure.at) <= self.figures_valid).copied()
    }

    pub(super) fn figures(&mut self, node: &Node, active_calls: usize, now: Timestamp) -> Figures {
        Figures {
            active_calls: active_calls as u64,
            max_calls: node.max_calls,
            load_avg: self.best(&self.load_avg, now),
            cores: node.cores.or_else(|| if node.local { local::cores() } else { None }),
            idle_cpu: self.best(&self.idle_cpu, now),
            memory_free: self.best(&self.memory_free, now),
            failure_rate: self.failures.rate(),
            calls_per_sec: Some(self.rate.per_sec(now)),
            max_calls_per_sec: node.max_calls_per_sec,
            rtt_ms: self.replied.then(|| self.reply.ms()),
        }
    }

    /// What the figures come to; remembers since when the node gets no calls.
    pub(super) fn assess(&mut self, figures: &Figures, scoring: &Scoring, now: Timestamp) -> Assessment {
        let condition = Condition {
            link_up: self.link_up,
            ready: self.ready,
            seen_at: self.seen_at,
            admin: self.admin,
            lets_through: self.breaker.lets_through(),
        };
        let assessment = formula::assess(figures, scoring, &condition, now);
        if assessment.lethal.is_empty() {
            self.excluded_since = None;
        } else {
            self.excluded_since.get_or_insert(now);
        }
        assessment
    }

    pub(super) fn candidate(
        &self,
        node: &Node,
        figures: &Figures,
        assessment: &Assessment,
        scoring: &Scoring,
    ) -> Candidate {
        Candidate {
            node: node.id.clone(),
            address: node.sip_address.as_str().into(),
            score: assessment.score,
            fitness: assessment.fitness,
            points_per_call: formula::points_per_call(figures, scoring),
            active_calls: figures.active_calls,
            max_calls: figures.max_calls,
            rtt_ms: self.reply.ms(),
            linked: self.link_up,
            replied: self.replied,
            disabled: self.admin == Admin::Disabled,
            lethal: assessment.lethal.clone(),
            settled: 0,
        }
    }

    pub(super) fn is_linked(&self) -> bool {
        self.link_up
    }

    pub(super) fn excluded_since(&self) -> Option<Timestamp> {
        self.excluded_since
    }

    pub(super) fn breaker(&self, now: Timestamp) -> BreakerView {
        self.breaker.view(now)
    }
}

/// Remembers a figure of one source, where it is one.
fn set(figures: &mut [Option<Figure>; 3], value: Option<f64>, source: Source, at: Timestamp) {
    if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
        figures[source as usize] = Some(Figure { value, source, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::BreakerState;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_secs(1_000).after(Duration::from_millis(ms))
    }

    fn health() -> Health {
        Health::new(&Scoring::default(), BreakerSettings::default(), at(0))
    }

    fn replied(took_ms: u64) -> PbxEvent {
        PbxEvent::Vitals(Vitals { took: Some(Duration::from_millis(took_ms)), ..Vitals::default() })
    }

    #[test]
    fn a_reply_after_the_timeout_is_a_failure_and_no_reply_time() {
        let mut health = health();
        health.hear(&replied(3_000), at(3_000));
        let in_time = health.reply.ms();
        assert!((in_time - (0.95 + 0.05 * 3_000.0)).abs() < 1e-9, "{in_time}");
        health.hear(&replied(3_001), at(8_001));
        assert_eq!((health.reply.ms(), health.breaker(at(8_001)).failures), (in_time, 1));
    }

    #[test]
    fn a_request_from_before_the_breaker_opened_is_no_trial() {
        let mut health = health();
        for ms in [5_000, 10_000, 15_000] {
            health.hear(&PbxEvent::Silent, at(ms));
        }
        assert_eq!(health.breaker(at(15_000)).trial_at, Some(at(45_000)));
        // Asked five seconds before.
        health.hear(&PbxEvent::Silent, at(46_000));
        assert_eq!(health.breaker(at(46_000)).state, BreakerState::HalfOpen);
        health.hear(&PbxEvent::Silent, at(51_000));
        assert_eq!(health.breaker(at(51_000)).trial_at, Some(at(111_000)), "a trial that failed");
        health.hear(&replied(5), at(112_000));
        assert_eq!(health.breaker(at(112_000)).state, BreakerState::Closed);
    }
}
