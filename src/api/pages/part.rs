//! Facts that several pages show.

use std::cmp::Ordering;

use serde::Serialize;

use super::look::Look;
use super::{Asked, said};
use crate::api::routes::changes::id;
use crate::config::model::Language;
use crate::engine::view::{ChangeView, ConnectionView, NodeView};
use crate::ids::{MapId, QualityKey};
use crate::notify::render::speech::{self, Moment};
use crate::pbx::PbxKind;
use crate::quality::machine::{Standing, State};
use crate::quality::sentence::{ChangeSentence, Done};
use crate::quality::settings::BadQualityAction;
use crate::time::Timestamp;

/// A point in time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct When {
    /// RFC 3339, in UTC.
    iso: String,
    /// Date, time and zone.
    full: String,
    /// The time, with the day where that is another than today.
    short: String,
}

impl When {
    pub(super) fn new(at: Timestamp, now: Timestamp, look: &Look) -> Self {
        let moment = |at| Moment::new(at, &look.zone, look.language);
        let (today, then) = (moment(now), moment(at));
        let short = if then.date() == today.date() { then.time } else { format!("{}, {}", then.day, then.clock) };
        Self { short, iso: then.iso, full: then.full }
    }
}

/// A figure of a connection against its threshold.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// `asr`, `acd`, `pdd` or `ner`.
    pub(super) metric: &'static str,
    /// With its unit; `None` over nothing.
    pub(super) shown: Option<String>,
    /// Its threshold with its unit, where it is judged by it.
    pub(super) limit: Option<String>,
    /// Whether it is on the wrong side of that.
    pub(super) crossed: bool,
    /// For a gauge: the figure, the threshold, and the end of the scale.
    pub(super) value: Option<f64>,
    pub(super) threshold: Option<f64>,
    pub(super) most: f64,
}

/// The figures of a connection.
pub(super) fn figures(connection: &ConnectionView, language: Language) -> [Figure; 3] {
    let (have, settings) = (&connection.figures, &connection.settings);
    let figure = |metric, value: Option<f64>, threshold: Option<f64>, over: bool| {
        let crossed =
            value.zip(threshold).is_some_and(|(value, limit)| if over { value > limit } else { value < limit });
        let unit = match (metric, language) {
            ("asr", _) => "%",
            (_, Language::En) => "s",
            (_, Language::Ru) => "с",
        };
        let with_unit = |text: String| format!("{text}{}{unit}", speech::JOINER);
        let most = if metric == "asr" {
            100.0
        } else {
            value.into_iter().chain(threshold.map(|limit| limit * 2.0)).fold(1.0, f64::max)
        };
        Figure {
            metric,
            shown: value.map(|value| with_unit(speech::figure(value, threshold, language))),
            limit: threshold.map(|limit| with_unit(speech::number(limit, None, language))),
            crossed,
            value,
            threshold,
            most,
        }
    };
    [
        figure("asr", have.asr, settings.asr_threshold_percent, false),
        figure("acd", have.acd, settings.acd_threshold_sec, false),
        figure("pdd", have.pdd, settings.pdd_threshold_sec, true),
    ]
}

/// How a connection stands, for its colour and sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Standout {
    Blocked,
    Last,
    /// Bad, and in its usual place all the same.
    Bad,
    Retry,
    Good,
    /// Not monitored.
    Off,
}

impl Standout {
    /// The word for it in addresses and classes.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Last => "last",
            Self::Bad => "bad",
            Self::Retry => "retry",
            Self::Good => "good",
            Self::Off => "off",
        }
    }

    pub(super) fn of(connection: &ConnectionView) -> Self {
        if let Some(pinned) = &connection.pinned {
            return match pinned.pin.standing() {
                Standing::Usual => Self::Good,
                Standing::Last => Self::Last,
                Standing::Blocked => Self::Blocked,
            };
        }
        match (connection.state, connection.action) {
            _ if !connection.monitored => Self::Off,
            (State::Good, _) => Self::Good,
            (State::Retry, _) => Self::Retry,
            (State::Bad, BadQualityAction::Block) => Self::Blocked,
            (State::Bad, BadQualityAction::MakeLast) => Self::Last,
            (State::Bad, BadQualityAction::NotifyOnly) => Self::Bad,
        }
    }
}

/// The most troubled first: by what is done to them, then by how near they are to their thresholds, then by name.
pub(super) fn by_trouble(one: &ConnectionView, other: &ConnectionView) -> Ordering {
    let place =
        |connection: &ConnectionView| (Standout::of(connection), connection.settings.merit(&connection.figures));
    let ((standout, merit), (other_standout, other_merit)) = (place(one), place(other));
    let by_name = || (&one.key.connection, &one.key.map).cmp(&(&other.key.connection, &other.key.map));
    standout.cmp(&other_standout).then(merit.total_cmp(&other_merit)).then_with(by_name)
}

/// A connection in a list.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// Of the row, within the page.
    id: String,
    connection: String,
    map: Option<String>,
    href: String,
    standout: Standout,
    words: String,
    pinned: bool,
    since: When,
    for_sec: u64,
    figures: [Figure; 3],
    calls: usize,
    window: usize,
    active: usize,
    retry_at: Option<When>,
    retry_in_sec: Option<u64>,
}

impl Row {
    pub(super) fn new(connection: &ConnectionView, asked: &Asked<'_>) -> Self {
        let key = &connection.key;
        Self {
            id: format!("c-{}{}", key.connection, key.map.as_ref().map(|map| format!(":{map}")).unwrap_or_default()),
            connection: key.connection.to_string(),
            map: key.map.as_ref().map(ToString::to_string),
            href: connection_path(key),
            standout: Standout::of(connection),
            words: said::state(connection, asked.look.language),
            pinned: connection.pinned.is_some(),
            since: asked.when(connection.since),
            for_sec: asked.now.since(connection.since).as_secs(),
            figures: figures(connection, asked.look.language),
            calls: connection.figures.calls,
            window: connection.settings.statistics_window,
            active: connection.active_calls,
            retry_at: connection.retry_at.map(|at| asked.when(at)),
            retry_in_sec: connection.retry_at.map(|at| at.since(asked.now).as_secs()),
        }
    }
}

/// Where the page of a connection is. The characters of names need no encoding.
pub(super) fn connection_path(key: &QualityKey) -> String {
    let map = key.map.as_ref().map(|map: &MapId| format!("?map={map}")).unwrap_or_default();
    format!("/connections/{}{map}", key.connection)
}

/// A change in a list.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Changed {
    id: String,
    connection: String,
    map: Option<String>,
    href: String,
    at: When,
    to: State,
    what: What,
    words: String,
    who: String,
    /// Whether an operator did it.
    by_hand: bool,
}

/// What happened, for its sign and its word: the state that it led to, as [`Standout`] has it, or an operator's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum What {
    Last,
    Blocked,
    /// Bad, and in its usual place all the same.
    Bad,
    Retry,
    Good,
    /// Not monitored any more.
    Off,
    /// An operator's word.
    Hand,
}

impl What {
    /// A sentence that cannot be read says no more than the state.
    fn of(change: &ChangeView) -> Self {
        match change.words.parse() {
            Ok(ChangeSentence::Bad { done, .. }) => match done {
                Done::Lowered | Done::LoweredAgain | Done::StillLowered => Self::Last,
                Done::Blocked | Done::BlockedAgain => Self::Blocked,
                Done::Bad | Done::BadAgain | Done::StillBad => Self::Bad,
            },
            Ok(ChangeSentence::Unmonitored) => Self::Off,
            Ok(
                ChangeSentence::Reset { .. }
                | ChangeSentence::Pinned { .. }
                | ChangeSentence::Unpinned { .. }
                | ChangeSentence::PinOver,
            ) => Self::Hand,
            Ok(ChangeSentence::Retry { .. } | ChangeSentence::Recovered { .. }) | Err(_) => match change.change.to {
                State::Bad => Self::Bad,
                State::Retry => Self::Retry,
                State::Good => Self::Good,
            },
        }
    }
}

impl Changed {
    pub(super) fn new(change: &ChangeView, asked: &Asked<'_>) -> Self {
        Self {
            id: id(change),
            connection: change.key.connection.to_string(),
            map: change.key.map.as_ref().map(ToString::to_string),
            href: connection_path(&change.key),
            at: asked.when(change.change.at),
            to: change.change.to,
            what: What::of(change),
            words: said::change(change, asked.look.language, &asked.look.zone),
            who: change.who.to_string(),
            by_hand: &*change.who != "pointsman",
        }
    }
}

/// A node in a list.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NodeRow {
    id: String,
    kind: PbxKind,
    address: String,
    score: f64,
    excluded: bool,
    best: bool,
    /// Why it gets no calls.
    lethal: Vec<String>,
    link: crate::engine::view::LinkState,
    link_up: bool,
    link_reason: String,
    active: u64,
    max: Option<u32>,
    calls_per_sec: Option<f64>,
    load_avg: Option<f64>,
    idle_cpu: Option<f64>,
    pending: usize,
}

impl NodeRow {
    pub(super) fn new(node: &NodeView, asked: &Asked<'_>) -> Self {
        use crate::engine::view::LinkState;
        let assessment = &node.assessment;
        Self {
            id: node.id.to_string(),
            kind: node.kind,
            address: node.address.clone(),
            score: assessment.score,
            excluded: node.excluded_since.is_some(),
            best: asked.view.routing.best_node.as_ref() == Some(&node.id),
            lethal: assessment.lethal.iter().map(|why| said::lethal(why, asked.look.language)).collect(),
            link: node.link.state,
            link_up: node.link.state == LinkState::Up,
            link_reason: node.link.reason.clone(),
            active: node.figures.active_calls,
            max: node.figures.max_calls,
            calls_per_sec: node.figures.calls_per_sec,
            load_avg: node.figures.load_avg.map(|figure| figure.value),
            idle_cpu: node.figures.idle_cpu.map(|figure| figure.value),
            pending: node.variables.pending,
        }
    }
}
