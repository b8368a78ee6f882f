//! Facts that take every branch of the built-in templates: an operator's template is tried out with each of them.

use std::sync::Arc;

use jiff::tz::{Offset, TimeZone};

use super::engine::LANGUAGES;
use super::{Mail, Reader};
use crate::call::outcome::Outcome;
use crate::config::model::Language;
use crate::ids::{ConnectionId, CustomerId, MapId, NodeId, QualityKey};
use crate::notify::notice::{Condition, FailedCall, Notice};
use crate::quality::machine::{Change, Reason, State};
use crate::quality::settings::{BadQualityAction, Settings};
use crate::quality::window::{Epoch, Figures};
use crate::time::Timestamp;

/// 30 November 2026, 11:03:05 UTC.
const AT: i64 = 1_796_036_585;

/// A mail that could be.
#[derive(Debug)]
pub struct Sample {
    /// What it is a sample of, unique.
    pub(super) name: &'static str,
    about: About,
    customer: &'static str,
    zone: TimeZone,
    mask_numbers: bool,
}

#[derive(Debug)]
enum About {
    Change(Box<Notice>),
    Digest(Vec<Notice>),
    Condition { condition: Condition, detail: &'static str, over: bool },
    Test,
}

impl Sample {
    /// The mail.
    #[must_use]
    pub fn mail(&self) -> Mail<'_> {
        match &self.about {
            About::Change(notice) if notice.is_alarm() => Mail::Alarm(notice),
            About::Change(notice) => Mail::Recovery(notice),
            About::Digest(notices) => Mail::Digest(notices),
            About::Condition { condition, detail, over } => {
                let (began_at, over_at) = (at(-7_505), over.then(|| at(0)));
                Mail::Condition { condition, detail, began_at, over_at }
            }
            About::Test => Mail::Test,
        }
    }

    /// Its reader.
    pub(super) fn reader(&self, language: Language) -> Reader<'_> {
        Reader { name: self.customer, language, time_zone: &self.zone, mask_numbers: self.mask_numbers }
    }
}

/// The sample of that name; the test mail, where there is none.
pub(super) fn named(name: &str) -> Sample {
    all().into_iter().find(|sample| sample.name == name).unwrap_or_else(|| sample("test", About::Test))
}

/// All samples.
pub(super) fn all() -> Vec<Sample> {
    let mut all = changes();
    let everything: Vec<Notice> = all
        .iter()
        .filter_map(|sample| match &sample.about {
            About::Change(notice) => Some((**notice).clone()),
            _ => None,
        })
        .collect();
    let alone = everything.iter().take(1).cloned().collect();
    let many = std::iter::repeat_n(everything.clone(), 12).flatten().collect();
    for (name, notices) in [("digest", everything), ("digest-of-one", alone), ("digest-of-many", many)] {
        all.push(sample(name, About::Digest(notices)));
    }
    all.extend(conditions());
    all.push(sample("test", About::Test));
    // The operator's: nobody's name, a time zone without one, numbers in full.
    let zone = TimeZone::fixed(Offset::constant(-3));
    all.push(Sample { customer: "", zone, mask_numbers: false, ..sample("test-to-operator", About::Test) });
    all
}

/// All samples in every language.
pub(super) fn in_every_language() -> impl Iterator<Item = (Language, Sample)> {
    LANGUAGES.into_iter().flat_map(|language| all().into_iter().map(move |sample| (language, sample)))
}

fn sample(name: &'static str, about: About) -> Sample {
    let zone = TimeZone::get("Europe/Berlin").unwrap_or(TimeZone::UTC);
    Sample { name, about, customer: "ACME Telecom", zone, mask_numbers: true }
}

fn changes() -> Vec<Sample> {
    let change = |name, notice| sample(name, About::Change(Box::new(notice)));
    let (Some(lowered), Some(recovered)) = (alarm(), recovery()) else { return Vec::new() };
    let with_action = |notice: &Notice, bad_quality_action| Notice {
        settings: Settings { bad_quality_action, ..notice.settings.clone() },
        ..notice.clone()
    };
    let in_map = |notice: &Notice, map: &str| Notice {
        key: QualityKey { map: MapId::new(map).ok(), ..notice.key.clone() },
        maps: MapId::new(map).into_iter().collect(),
        ..notice.clone()
    };
    let of = |notice: &Notice, connection: &str| {
        let connection = ConnectionId::new(connection).unwrap_or_else(|_| notice.key.connection.clone());
        Notice { key: QualityKey { connection, ..notice.key.clone() }, ..notice.clone() }
    };
    let of_one_call = Notice {
        change: Change { figures: Figures { calls: 1, asr: Some(0.0), ..Figures::default() }, ..lowered.change },
        settings: Settings { acd_threshold_sec: None, retry_batch: 1, ..lowered.settings.clone() },
        maps: Vec::new(),
        failed: Vec::new(),
        retry_at: None,
        ..of(&lowered, "vendor-d")
    };
    let everything_crossed = Notice {
        change: Change {
            figures: Figures { calls: 20, asr: Some(39.96), acd: Some(12.3), pdd: Some(8.4), ner: None },
            ..lowered.change
        },
        ..of(&in_map(&with_action(&lowered, BadQualityAction::Block), "intl"), "vendor-b")
    };
    let too_slow = Notice {
        change: Change {
            reason: Reason::Pdd,
            figures: Figures { calls: 21, asr: Some(61.9), acd: Some(95.0), pdd: Some(8.4), ner: None },
            ..lowered.change
        },
        maps: (1..=25).filter_map(|n| MapId::new(&format!("map-{n}")).ok()).collect(),
        ..of(&with_action(&lowered, BadQualityAction::NotifyOnly), "vendor-c")
    };
    let reset = Notice {
        change: Change { reason: Reason::Operator, figures: Figures::default(), ..recovered.change },
        ..of(&recovered, "vendor-e")
    };
    let unmonitored = Notice {
        change: Change { reason: Reason::Unmonitored, figures: Figures::default(), ..recovered.change },
        settings: Settings::default(),
        ..of(&recovered, "vendor-d")
    };
    let unknown_begin = Notice { bad_since: None, maps: Vec::new(), ..recovered.clone() };
    vec![
        change("alarm-make-last", lowered.clone()),
        change("alarm-block", everything_crossed),
        change("alarm-notify-only", too_slow),
        change("alarm-of-one-call", of_one_call),
        change("recovery-make-last", recovered.clone()),
        change("recovery-block", of(&in_map(&with_action(&recovered, BadQualityAction::Block), "intl"), "vendor-b")),
        change("recovery-notify-only", of(&with_action(&unknown_begin, BadQualityAction::NotifyOnly), "vendor-c")),
        change("recovery-unmonitored", unmonitored),
        change("recovery-operator", reset),
    ]
}

fn conditions() -> Vec<Sample> {
    let of = [
        ("node-down", NodeId::new("pbx-01").map(Condition::NodeDown), "connection refused"),
        ("storage", Ok(Condition::Storage), "database or disk is full"),
        ("dead-letters", Ok(Condition::DeadLetters), "3 mails to noc@acme.example: 550 5.1.1 unknown user"),
        ("all-blocked", MapId::new("intl").map(Condition::AllBlocked), ""),
    ];
    let over = ["node-down-over", "storage-over", "dead-letters-over", "all-blocked-over"];
    let mut samples = Vec::new();
    for ((name, condition, detail), name_over) in of.into_iter().zip(over) {
        let Ok(condition) = condition else { continue };
        for (name, detail, over) in [(name, detail, false), (name_over, "", true)] {
            let about = About::Condition { condition: condition.clone(), detail, over };
            samples.push(Sample { customer: "", ..sample(name, about) });
        }
    }
    samples
}

/// A connection lowered by its ASR.
fn alarm() -> Option<Notice> {
    let settings = Settings {
        asr_threshold_percent: Some(40.0),
        acd_threshold_sec: Some(30.0),
        pdd_threshold_sec: Some(6.5),
        ..Settings::default()
    };
    let figures = Figures { calls: 20, asr: Some(35.0), acd: Some(41.26), pdd: None, ner: None };
    let (from, to) = (State::Good, State::Bad);
    Some(Notice {
        key: QualityKey::connection(ConnectionId::new("vendor-a").ok()?),
        customer: CustomerId::new("acme").ok()?,
        change: Change { at: at(0), from, to, reason: Reason::Asr, epoch: Epoch(1), figures },
        settings,
        retry_at: Some(at(600)),
        bad_since: None,
        maps: ["intl", "mobile"].into_iter().filter_map(|map| MapId::new(map).ok()).collect(),
        failed: failed(&NodeId::new("pbx-01").ok()?),
    })
}

/// It recovered by its retry batch.
fn recovery() -> Option<Notice> {
    let lowered = alarm()?;
    let figures = Figures { calls: 10, asr: Some(60.0), acd: Some(41.26), pdd: None, ner: None };
    let (at, from, to) = (at(1_505), State::Retry, State::Good);
    Some(Notice {
        change: Change { at, from, to, reason: Reason::Batch, epoch: Epoch(3), figures },
        settings: Settings { acd_threshold_sec: None, ..lowered.settings },
        retry_at: None,
        bad_since: Some(lowered.change.at),
        failed: Vec::new(),
        ..lowered
    })
}

fn failed(node: &NodeId) -> Vec<FailedCall> {
    let calls = [
        (-24, Some("+493012345678"), Outcome::VendorFailed, Some(34), Some(503)),
        (-31, Some("+4915112345678"), Outcome::Busy, Some(17), Some(486)),
        (-58, Some("0049891234567"), Outcome::VendorFailed, Some(34), None),
        (-90, None, Outcome::CallerGone, None, None),
        (-40_000, Some("110"), Outcome::VendorFailed, Some(102), Some(504)),
    ];
    let call = |(secs, number, outcome, cause, sip_status): (i64, Option<&str>, _, _, _)| FailedCall {
        at: at(secs),
        node: node.clone(),
        number: number.map(Arc::from),
        outcome,
        cause,
        sip_status,
    };
    calls.map(call).into()
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(AT + secs)
}
