//! How connections are judged: defaults, overrides, and what goes together.

use std::sync::LazyLock;

use super::{Check, tables};
use crate::config::de::Located;
use crate::config::model::{Connection, JudgePer};
use crate::config::raw::{self, Quality};
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;
use crate::quality::settings::{RetryBackoff, Settings};

/// A table without a key.
static NOTHING: LazyLock<Quality> = LazyLock::new(Quality::default);

/// Longest window and batch. A verdict over more calls comes too late to be of use, and windows are kept in memory.
const MAX_CALLS: u64 = 10_000;

/// Longest retry interval: 30 days.
const MAX_INTERVAL_SEC: u64 = 30 * 24 * 3600;

/// Most names in a message.
const MAX_LISTED: usize = 5;

/// A metric: its monitor, its threshold, and their keys.
struct Metric {
    monitor: fn(&Quality) -> &Located<bool>,
    threshold: fn(&Quality) -> &Located<f64>,
    monitor_key: &'static str,
    threshold_key: &'static str,
    example: &'static str,
}

const ASR: Metric = Metric {
    monitor: |quality| &quality.monitor_asr,
    threshold: |quality| &quality.asr_threshold_percent,
    monitor_key: "monitor_asr",
    threshold_key: "asr_threshold_percent",
    example: "40",
};
const ACD: Metric = Metric {
    monitor: |quality| &quality.monitor_acd,
    threshold: |quality| &quality.acd_threshold_sec,
    monitor_key: "monitor_acd",
    threshold_key: "acd_threshold_sec",
    example: "30",
};
const PDD: Metric = Metric {
    monitor: |quality| &quality.monitor_pdd,
    threshold: |quality| &quality.pdd_threshold_sec,
    monitor_key: "monitor_pdd",
    threshold_key: "pdd_threshold_sec",
    example: "6",
};

impl<'a> Check<'a> {
    /// The settings of a connection: its own, else the defaults of the file, else those of the program.
    pub(super) fn quality(&mut self, raw: &'a raw::Connection) -> Settings {
        let shared = self.raw.quality.get();
        let layers: Vec<&'a Quality> = raw.quality.get().into_iter().chain(shared).collect();
        self.settings(&layers, raw.quality.place.or(raw.id.place))
    }

    /// Over what a connection is judged: as it says itself, else as the file says for all.
    pub(super) fn judge_per(&self, raw: &raw::Connection) -> JudgePer {
        let layers = raw.quality.get().into_iter().chain(self.raw.quality.get());
        layers.filter_map(|quality| quality.judge_per.get().copied()).next().unwrap_or_default()
    }

    /// Warns of thresholds that nothing uses, and checks the defaults even where there is no connection.
    pub(super) fn unused_thresholds(&mut self) {
        let Some(shared) = self.raw.quality.get() else { return };
        let connections = &self.raw.connections;
        let tables_of = || tables(connections).filter_map(|(connection, _)| connection.quality.get());
        if tables(connections).next().is_none() {
            self.settings(&[shared], self.raw.quality.place);
        }
        for metric in [ASR, ACD, PDD] {
            let on = |quality: &Quality| (metric.monitor)(quality).get() == Some(&true);
            let used = on(shared) || tables_of().any(on);
            self.unused_threshold(shared, &metric, used);
            for own in tables_of() {
                let monitor = (metric.monitor)(own);
                let monitor = if monitor.is_absent() { (metric.monitor)(shared) } else { monitor };
                self.unused_threshold(own, &metric, monitor.get() == Some(&true));
            }
        }
    }

    fn unused_threshold(&mut self, quality: &'a Quality, metric: &Metric, used: bool) {
        let broken = (metric.monitor)(quality).is_broken();
        if let Some(place) = (metric.threshold)(quality).place.filter(|_| !used && !broken) {
            let message = format!("`{}` has no effect while `{}` is off", metric.threshold_key, metric.monitor_key);
            let help = format!("write {}", self.write(metric.monitor_key, "true"));
            self.note(Draft::warning(Mark::Key(place), message).help(help));
        }
    }

    fn settings(&mut self, layers: &[&'a Quality], at: Option<PlaceId>) -> Settings {
        let default = Settings::default();
        let asr = self.threshold(layers, &ASR, 100.0, at);
        let acd = self.threshold(layers, &ACD, 86_400.0, at);
        let pdd = self.threshold(layers, &PDD, 300.0, at);
        let window = self.calls(layers, |quality| &quality.statistics_window, "statistics_window");
        let batch = self.calls(layers, |quality| &quality.retry_batch, "retry_batch");
        let interval = first(layers, |quality| &quality.retry_interval_sec);
        let interval = self.bounded(interval, "retry_interval_sec", 1..=MAX_INTERVAL_SEC);
        let patience =
            self.bounded(first(layers, |quality| &quality.caller_patience_sec), "caller_patience_sec", 0..=600);
        let statistics_window = window.unwrap_or(default.statistics_window);
        let retry_interval_sec = interval.unwrap_or(default.retry_interval_sec);
        Settings {
            asr_threshold_percent: asr,
            acd_threshold_sec: acd,
            pdd_threshold_sec: pdd,
            statistics_window,
            min_calls: self.min_calls(layers, statistics_window),
            retry_interval_sec,
            retry_backoff: self.backoff(layers, retry_interval_sec),
            retry_batch: batch.unwrap_or(default.retry_batch),
            retry_overflow: value(layers, |quality| &quality.retry_overflow).unwrap_or_default(),
            bad_quality_action: value(layers, |quality| &quality.bad_quality_action).unwrap_or_default(),
            notify_on_status_change: value(layers, |quality| &quality.notify_on_status_change).unwrap_or(false),
            caller_patience_sec: patience.unwrap_or(default.caller_patience_sec),
        }
    }

    /// The threshold of a metric, where its monitor is on.
    fn threshold(&mut self, layers: &[&'a Quality], metric: &Metric, most: f64, at: Option<PlaceId>) -> Option<f64> {
        for layer in layers {
            self.above((metric.threshold)(layer), metric.threshold_key, 0.0, most);
        }
        let (on, monitor) = first(layers, metric.monitor).placed()?;
        if !on {
            return None;
        }
        let threshold = first(layers, metric.threshold);
        if threshold.is_absent() {
            let (monitor_key, threshold_key) = (metric.monitor_key, metric.threshold_key);
            let draft =
                Draft::error(Mark::Value(monitor), format!("`{monitor_key}` is on and there is no `{threshold_key}`"));
            let draft = draft.help(format!("write {}", self.write(threshold_key, metric.example)));
            let defaults = self.raw.quality.get().is_some_and(|shared| (metric.monitor)(shared).place == Some(monitor));
            let elsewhere = at.filter(|at| defaults && Some(*at) != self.raw.quality.place);
            self.note(match elsewhere {
                Some(at) => draft.also(Mark::Value(at), "this connection has none"),
                None => draft,
            });
        }
        threshold.get().copied()
    }

    fn calls(&mut self, layers: &[&'a Quality], field: fn(&Quality) -> &Located<u64>, key: &str) -> Option<usize> {
        for layer in layers {
            self.bounded(field(layer), key, 1..=MAX_CALLS);
        }
        first(layers, field).get().and_then(|calls| usize::try_from(*calls).ok())
    }

    fn min_calls(&mut self, layers: &[&'a Quality], window: usize) -> usize {
        let field: fn(&Quality) -> &Located<u64> = |quality| &quality.min_calls;
        let Some(calls) = self.calls(layers, field, "min_calls") else { return window };
        let window_known = !first(layers, |quality| &quality.statistics_window).is_broken();
        if let Some(place) = first(layers, field).place.filter(|_| window_known && calls > window) {
            let message = format!("`min_calls` is {calls}, and the window never holds more than {window} calls");
            let window_place = first(layers, |quality| &quality.statistics_window).place;
            let draft = Draft::error(Mark::Value(place), message);
            self.note(match window_place {
                Some(window) => draft.also(Mark::Value(window), "the window"),
                None => draft,
            });
        }
        calls
    }

    fn backoff(&mut self, layers: &[&'a Quality], interval: u64) -> Option<RetryBackoff> {
        let (raw, place) = first(layers, |quality| &quality.retry_backoff).placed()?;
        let factor = self.required(&raw.factor, place, "factor", "`retry_backoff`", "2.0").copied();
        let max_sec = self.required(&raw.max_sec, place, "max_sec", "`retry_backoff`", "7200").copied();
        if let Some((factor, place)) = raw.factor.placed().filter(|(factor, _)| !(1.0..=100.0).contains(*factor)) {
            let message = format!("`factor` must be from 1 to 100, not {factor}");
            self.note(Draft::error(Mark::Value(place), message));
        }
        let most = self.bounded(&raw.max_sec, "max_sec", 1..=MAX_INTERVAL_SEC);
        if let (Some(most), Some(place)) = (most.filter(|most| *most < interval), raw.max_sec.place) {
            let message = format!("`max_sec` is {most}, and the first interval is {interval} s already");
            self.note(
                Draft::error(Mark::Value(place), message)
                    .help("the interval grows from `retry_interval_sec` to `max_sec`"),
            );
        }
        Some(RetryBackoff { factor: factor?, max_sec: max_sec? })
    }

    /// Warns of notifications that reach nobody.
    pub(super) fn nobody_to_notify(&mut self, connections: &[(Connection, PlaceId)]) {
        let notifying: Vec<_> =
            connections.iter().filter(|(connection, _)| connection.quality.notify_on_status_change).collect();
        let Some((_, first_place)) = notifying.first() else { return };
        if self.raw.email.is_absent() {
            let own = tables(&self.raw.connections).find(|(_, at)| at == first_place);
            let own = own.and_then(|(raw, _)| raw.quality.get());
            let layers: Vec<_> = own.into_iter().chain(self.raw.quality.get()).collect();
            let place = first(&layers, |quality| &quality.notify_on_status_change).place.unwrap_or(*first_place);
            let message = "`notify_on_status_change` is on, and nothing says how mail is sent";
            self.note(Draft::warning(Mark::Key(place), message).help(self.how_to_send()));
        }
        let orphans: Vec<_> = notifying.iter().filter(|(connection, _)| connection.customer.is_none()).collect();
        if let Some((_, place)) = orphans.first() {
            let whom = listed(orphans.iter().map(|(connection, _)| connection.id.as_str()));
            let message = format!("`notify_on_status_change` is on, and there is no `customer` to notify: {whom}");
            self.note(Draft::warning(Mark::Value(*place), message));
        }
        for (customer, place) in tables(&self.raw.customers) {
            let nowhere = customer.email.is_absent() || customer.email.get().is_some_and(|list| list.0.is_empty());
            let (true, Some(id)) = (nowhere, customer.id.get()) else { continue };
            let theirs: Vec<_> =
                notifying.iter().filter(|(connection, _)| connection.customer.as_ref() == Some(id)).collect();
            if !theirs.is_empty() {
                let whom = listed(theirs.iter().map(|(connection, _)| connection.id.as_str()));
                let message = format!("`{id}` has no `email` to be notified of its connections: {whom}");
                let help = format!("write {}", self.write("email", "\"noc@acme.example\""));
                self.note(Draft::warning(Mark::Value(place), message).help(help));
            }
        }
    }
}

/// Names for a message, the first few of them.
pub(super) fn listed<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    let more = names.len().saturating_sub(MAX_LISTED);
    let names: Vec<_> = names.take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    let and_more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{and_more}", names.join(", "))
}

/// The innermost layer in which that key is written.
fn first<'l, T>(layers: &[&'l Quality], field: fn(&Quality) -> &Located<T>) -> &'l Located<T> {
    let mut fields = layers.iter().map(|layer| field(layer));
    let written = fields.clone().find(|field| !field.is_absent());
    written.or_else(|| fields.next()).unwrap_or_else(|| field(&NOTHING))
}

fn value<T: Copy>(layers: &[&Quality], field: fn(&Quality) -> &Located<T>) -> Option<T> {
    first(layers, field).get().copied()
}
