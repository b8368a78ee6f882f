//! Dynamic routing rules.

use std::collections::HashSet;

use super::{Check, tables, texts};
use crate::config::de::Located;
use crate::config::raw::{self, Criterion};
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;
use crate::routing::rule::{self, Measure, Rule};

impl<'a> Check<'a> {
    /// The rule of a map whose id stands at `home`, with its enabled criteria.
    pub(super) fn rule_of(&mut self, raw: &'a raw::RouteMap, home: PlaceId) -> Option<Rule> {
        let (id, place) = raw.rule.placed()?;
        let rules = &self.raw.routing_rules;
        let Some((rule, _)) = tables(rules).find(|(rule, _)| rule.id.get() == Some(id)) else {
            let known = tables(rules).filter_map(|(rule, _)| rule.id.placed());
            self.unknown_in("routing rule", (id, place), home, known.map(|(id, place)| (id.as_str(), place)));
            return None;
        };
        let criteria = criteria(rule).into_iter();
        let criteria = criteria.filter_map(|(measure, raw)| Some((measure, enabled(raw.get()?)?)));
        Some(Rule { id: id.as_str().into(), criteria: criteria.collect() })
    }

    pub(super) fn routing_rules(&mut self) {
        let raw = self.raw;
        self.unique("routing rules", tables(&raw.routing_rules).filter_map(|(rule, _)| rule.id.placed()));
        let used: HashSet<&String> = tables(&raw.route_maps).filter_map(|(map, _)| map.rule.get()).collect();
        let known: HashSet<&String> = tables(&raw.routing_rules).filter_map(|(rule, _)| rule.id.get()).collect();
        // A name that is not there was probably meant for one of them.
        let all_known = used.is_subset(&known);
        for (rule, place) in tables(&raw.routing_rules) {
            self.required(&rule.id, place, "id", "this routing rule", "\"standard\"");
            for (measure, criterion) in criteria(rule) {
                if let Some((criterion, place)) = criterion.placed() {
                    self.criterion(criterion, measure.as_str(), place);
                }
            }
            let Some((id, place)) = rule.id.placed() else { continue };
            if !self.plain_text(id, place, "id") {
                continue;
            }
            if !used.contains(id) && all_known {
                let help = format!("write {} in the route maps that it is for", self.write("rule", &format!("{id:?}")));
                let message = format!("no route map uses the routing rule `{id}`");
                self.note(Draft::warning(Mark::Value(place), message).help(help));
            } else if used.contains(id) && is_off(rule) {
                let message = format!("no criterion of the routing rule `{id}` is enabled: it changes nothing");
                let help = "enable one, as in success_percent = { enabled = true, weight = 20, latency = 10, compensation = 2 }";
                self.note(Draft::warning(Mark::Value(place), message).help(help));
            }
        }
        self.rules_of_nested_maps();
    }

    fn criterion(&mut self, raw: &'a Criterion, key: &str, place: PlaceId) {
        let whose = format!("the enabled criterion `{key}`");
        if raw.enabled.get() == Some(&true) {
            self.required(&raw.weight, place, "weight", &whose, "20");
            self.required(&raw.latency, place, "latency", &whose, "10");
            self.required(&raw.compensation, place, "compensation", &whose, "2");
        }
        if is_forgotten(raw) {
            let help = format!("write {}, or leave the criterion out", self.write("enabled", "true"));
            let message = format!("the criterion `{key}` is off: it does not say `enabled`");
            self.note(Draft::warning(Mark::Value(place), message).help(help));
        }
        self.bounded(&raw.latency, "latency", 1..=1_000_000);
        self.within(&raw.weight, "weight", 0.0..=1e6);
        self.within(&raw.compensation, "compensation", 0.0..=1e6);
    }

    /// Warns of the rule of a map that serves no numbers and is nested: there the outer map's rule goes for its routes.
    fn rules_of_nested_maps(&mut self) {
        let raw = self.raw;
        for (map, _) in tables(&raw.route_maps).filter(|(map, _)| texts(&map.prefixes).next().is_none()) {
            let (Some(id), Some((_, place))) = (map.id.get(), map.rule.placed()) else { continue };
            let maps = tables(&raw.route_maps);
            let entries = maps.flat_map(|(outer, _)| tables(&outer.entries).map(move |(entry, _)| (outer, entry)));
            let mut nested = entries.filter_map(|(outer, entry)| Some((outer.id.get()?, entry.map.placed()?)));
            let Some((outer, (_, entry))) = nested.find(|(_, (inner, _))| **inner == *id.as_str()) else { continue };
            let message =
                format!("the rule of `{id}` has no say where that map is nested, and it serves no numbers itself");
            let draft = Draft::warning(Mark::Value(place), message).also(Mark::Value(entry), "nested here");
            let help = format!("give `{outer}` a rule; a rule here is for calls whose dialplan says `{id}` itself");
            self.note(draft.help(help));
        }
    }
}

fn criteria(rule: &raw::RoutingRule) -> [(Measure, &Located<Criterion>); 3] {
    [
        (Measure::SuccessPercent, &rule.success_percent),
        (Measure::AvgDurationSec, &rule.avg_duration_sec),
        (Measure::SignallingFailurePercent, &rule.signalling_failure_percent),
    ]
}

/// A criterion that is on and complete.
fn enabled(raw: &Criterion) -> Option<rule::Criterion> {
    raw.enabled.get().filter(|enabled| **enabled)?;
    Some(rule::Criterion {
        weight: *raw.weight.get()?,
        latency: u32::try_from(*raw.latency.get()?).ok()?,
        compensation: *raw.compensation.get()?,
    })
}

/// Whether it has values and does not say whether they count.
fn is_forgotten(raw: &Criterion) -> bool {
    let values = [raw.weight.place, raw.latency.place, raw.compensation.place];
    raw.enabled.is_absent() && values.iter().any(Option::is_some)
}

/// Whether every criterion is plainly off; of those that are broken or forgotten something else was said.
fn is_off(rule: &raw::RoutingRule) -> bool {
    criteria(rule).into_iter().all(|(_, criterion)| match criterion.get() {
        Some(raw) => raw.enabled.get() != Some(&true) && !raw.enabled.is_broken() && !is_forgotten(raw),
        None => !criterion.is_broken(),
    })
}
