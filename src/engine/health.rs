//! What is known of a node's fitness, gathered from wherever it comes, and what it comes to. Pure.

use std::time::Duration;

use crate::balance::Candidate;
use crate::config::model::{BreakerSettings, Node, Scoring};
use crate::engine::local;
use crate::engine::view::BreakerView;
use crate::pbx::event::{PbxEvent, Vitals};
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
    excluded_since: Option<Timestamp>,
    figures_valid: Duration,
}

impl Health {
    pub(super) fn new(scoring: &Scoring, breaker: BreakerSettings, admin: Admin, now: Timestamp) -> Self {
        Self {
            admin,
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
            excluded_since: Some(now),
            figures_valid: scoring.stale_threshold * FIGURES_VALID,
        }
    }

    /// The node told something, or said nothing.
    pub(super) fn hear(&mut self, event: &PbxEvent, now: Timestamp) {
        match event {
            PbxEvent::Silent => return self.probed(None, now),
            PbxEvent::Unlinked => {
                self.link_up = false;
                return self.probed(None, now);
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
        if vitals.took.is_some() {
            self.probed(vitals.took, now);
        }
    }

    /// A keepalive request was answered after that long, or not at all.
    fn probed(&mut self, took: Option<Duration>, now: Timestamp) {
        let began = Timestamp::from_micros(
            now.as_micros().saturating_sub(took.map_or(0, |took| i64::try_from(took.as_micros()).unwrap_or(i64::MAX))),
        );
        if let Some(took) = took {
            self.reply.sample(took);
            self.replied = true;
        }
        if let Some(permit) = self.breaker.permit(began) {
            let outcome = if took.is_some() { Outcome::Success } else { Outcome::Failure };
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
            disabled: self.admin == Admin::Disabled,
            lethal: assessment.lethal.clone(),
            settled: 0,
        }
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
