//! The facts of a mail as templates see them: every text made harmless, every time in the reader's zone, every figure
//! beside its threshold. `docs/mail-templates.md` lists them; a test holds it against this.

use std::cmp::Reverse;

use serde::Serialize;

use super::speech::{self, Moment};
use super::{Mail, Reader, clean};
use crate::config::model::Language;
use crate::notify::causes;
use crate::notify::notice::{Condition, FAILED_CALLS, FailedCall, Notice};
use crate::quality::machine::{Reason, State};
use crate::quality::settings::BadQualityAction;
use crate::time::Timestamp;

/// Most changes that a digest shows one by one: some mail programs cut off what is longer than 100 KB.
const MAX_CHANGES: usize = 60;

/// Most maps that are named; a business reader does not read more.
const MAX_MAPS: usize = 20;

/// All that the templates of one mail get.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    kind: &'static str,
    customer: String,
    time_zone: String,
    numbers_masked: bool,
    #[serde(flatten)]
    about: About,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum About {
    Change {
        change: Box<Change>,
    },
    Digest {
        changes: Vec<Change>,
        /// Changes that are counted and not shown.
        left_out: usize,
        became_bad: usize,
        recovered: usize,
        failed: Vec<Call>,
    },
    Condition {
        condition: Box<Trouble>,
    },
    Test {},
}

#[derive(Debug, Serialize)]
struct Change {
    connection: String,
    map: Option<String>,
    at: Moment,
    bad: bool,
    reason: &'static str,
    action: &'static str,
    calls: usize,
    figures: Vec<Figure>,
    crossed: Vec<Figure>,
    retry_at: Option<Moment>,
    retry_batch: usize,
    bad_since: Option<Moment>,
    bad_for_sec: Option<u64>,
    maps: Vec<String>,
    maps_left_out: usize,
    failed: Vec<Call>,
}

#[derive(Clone, Debug, Serialize)]
struct Figure {
    metric: &'static str,
    value: Option<f64>,
    shown: Option<String>,
    threshold: Option<f64>,
    limit: Option<String>,
    crossed: bool,
}

#[derive(Debug, Serialize)]
struct Call {
    at: Moment,
    connection: String,
    node: String,
    number: Option<String>,
    outcome: &'static str,
    sip_status: Option<u16>,
    q850: Option<u16>,
    cause: String,
}

#[derive(Debug, Serialize)]
struct Trouble {
    kind: &'static str,
    node: Option<String>,
    map: Option<String>,
    detail: String,
    began_at: Moment,
    over_at: Option<Moment>,
    lasted_sec: Option<u64>,
}

/// Gathers the facts of a mail for a reader.
pub(super) fn facts(mail: &Mail<'_>, reader: &Reader<'_>) -> Facts {
    let (kind, about) = match mail {
        Mail::Alarm(notice) => ("alarm", About::Change { change: Box::new(reader.change(notice)) }),
        Mail::Recovery(notice) => ("recovery", About::Change { change: Box::new(reader.change(notice)) }),
        Mail::Digest(notices) => ("digest", reader.digest(notices)),
        Mail::Condition { condition, detail, began_at, over_at } => (
            "condition",
            About::Condition { condition: Box::new(reader.trouble(condition, detail, *began_at, *over_at)) },
        ),
        Mail::Test => ("test", About::Test {}),
    };
    Facts {
        kind,
        customer: clean::line(reader.name, clean::MAX_NAME),
        time_zone: speech::zone(reader.time_zone),
        numbers_masked: reader.mask_numbers,
        about,
    }
}

impl Reader<'_> {
    fn moment(&self, at: Timestamp) -> Moment {
        Moment::new(at, self.time_zone, self.language)
    }

    fn digest(&self, notices: &[Notice]) -> About {
        let mut in_order: Vec<&Notice> = notices.iter().collect();
        in_order.sort_by_key(|notice| notice.change.at);
        let left_out = in_order.len().saturating_sub(MAX_CHANGES);
        let became_bad = notices.iter().filter(|notice| notice.is_alarm()).count();
        let mut failed: Vec<(&Notice, &FailedCall)> =
            notices.iter().flat_map(|notice| notice.failed.iter().map(move |call| (notice, call))).collect();
        failed.sort_by_key(|(notice, call)| (Reverse(call.at), &notice.key.connection));
        // A connection that is in it twice brings some of its calls twice.
        failed.dedup_by(|(a, one), (b, other)| one == other && a.key.connection == b.key.connection);
        About::Digest {
            changes: in_order.into_iter().skip(left_out).map(|notice| self.change(notice)).collect(),
            left_out,
            became_bad,
            recovered: notices.len() - became_bad,
            failed: failed.into_iter().take(FAILED_CALLS).map(|(notice, call)| self.call(notice, call)).collect(),
        }
    }

    fn change(&self, notice: &Notice) -> Change {
        let Notice { key, change, settings, retry_at, bad_since, maps, failed, .. } = notice;
        let figures = figures(notice, self.language);
        Change {
            connection: key.connection.to_string(),
            map: key.map.as_ref().map(ToString::to_string),
            at: self.moment(change.at),
            bad: change.to == State::Bad,
            reason: reason(change.reason),
            action: match settings.bad_quality_action {
                BadQualityAction::MakeLast => "make_last",
                BadQualityAction::Block => "block",
                BadQualityAction::NotifyOnly => "notify_only",
            },
            calls: change.figures.calls,
            crossed: figures.iter().filter(|figure| figure.crossed).cloned().collect(),
            figures,
            retry_at: retry_at.map(|at| self.moment(at)),
            retry_batch: settings.retry_batch,
            bad_since: bad_since.map(|at| self.moment(at)),
            bad_for_sec: bad_since.map(|since| change.at.since(since).as_secs()),
            maps: maps.iter().take(MAX_MAPS).map(ToString::to_string).collect(),
            maps_left_out: maps.len().saturating_sub(MAX_MAPS),
            failed: failed.iter().take(FAILED_CALLS).map(|call| self.call(notice, call)).collect(),
        }
    }

    fn call(&self, notice: &Notice, call: &FailedCall) -> Call {
        Call {
            at: self.moment(call.at),
            connection: notice.key.connection.to_string(),
            node: call.node.to_string(),
            number: call.number.as_deref().and_then(|number| clean::number(number, self.mask_numbers)),
            outcome: call.outcome.as_str(),
            sip_status: call.sip_status,
            q850: call.cause,
            cause: causes::cause(call, self.language),
        }
    }

    fn trouble(&self, condition: &Condition, detail: &str, began: Timestamp, over: Option<Timestamp>) -> Trouble {
        let (kind, node, map) = match condition {
            Condition::NodeDown(node) => ("node_down", Some(node.to_string()), None),
            Condition::Storage => ("storage", None, None),
            Condition::DeadLetters => ("dead_letters", None, None),
            Condition::AllBlocked(map) => ("all_blocked", None, Some(map.to_string())),
        };
        Trouble {
            kind,
            node,
            map,
            detail: clean::line(detail, clean::MAX_DETAIL),
            began_at: self.moment(began),
            over_at: over.map(|at| self.moment(at)),
            lasted_sec: over.map(|at| at.since(began).as_secs()),
        }
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Asr => "asr",
        Reason::Acd => "acd",
        Reason::Pdd => "pdd",
        Reason::RetryInterval => "retry_interval",
        Reason::Batch => "batch",
        Reason::Unmonitored => "unmonitored",
        Reason::Operator => "operator",
    }
}

/// The three figures against their thresholds. More than one may have crossed; the one that the verdict names always has.
fn figures(notice: &Notice, language: Language) -> Vec<Figure> {
    let (have, settings) = (&notice.change.figures, &notice.settings);
    let metrics = [
        ("asr", have.asr, settings.asr_threshold_percent, Reason::Asr),
        ("acd", have.acd, settings.acd_threshold_sec, Reason::Acd),
        ("pdd", have.pdd, settings.pdd_threshold_sec, Reason::Pdd),
    ];
    let figure = |(metric, value, threshold, named): (&'static str, Option<f64>, Option<f64>, Reason)| Figure {
        metric,
        value,
        shown: value.map(|value| speech::figure(value, threshold, language)),
        threshold,
        limit: threshold.map(|threshold| speech::number(threshold, None, language)),
        crossed: notice.change.reason == named
            || value.zip(threshold).is_some_and(|(value, threshold)| match named {
                Reason::Pdd => value > threshold,
                _ => value < threshold,
            }),
    };
    metrics.into_iter().map(figure).collect()
}
