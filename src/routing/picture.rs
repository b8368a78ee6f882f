//! A route map explained: the place of every route, and why. What `test-call` and the pages show.
//!
//! A picture holds all that its order was made of, so it answers "what if?" by itself: [`MapView::assuming`] changes the
//! inputs and [`MapView::derive`] makes the order anew, by the same rules as the engine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{ConnectionId, MapId};
use crate::quality::machine::Standing;
use crate::quality::sentence::{ASSUMED, StateSentence};
use crate::quality::settings::BadQualityAction;
use crate::routing::rule::{self, Measure, Rule, Value, Values};
use crate::routing::{Arranged, Route, RouteNow, WhenAllBlocked, arrange, whole};

/// A route map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MapView {
    /// Its name.
    pub id: MapId,
    /// The prefixes it serves.
    pub prefixes: Vec<String>,
    /// The dynamic routing rule; `None`: priorities are the static ones.
    pub rule: Option<Rule>,
    /// What happens when every connection is blocked.
    pub when_all_blocked: WhenAllBlocked,
    /// The connections in the order in which a call tries them now.
    pub hunt_order: Vec<ConnectionId>,
    /// Connections left out now.
    pub blocked: Vec<ConnectionId>,
    /// Whether every connection is blocked; the least bad one may be kept all the same.
    pub panic: bool,
    /// Every route in hunt order, those that are left out behind the others.
    pub routes: Vec<RouteView>,
}

/// A route of a map, and how it comes to its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RouteView {
    /// The connection.
    pub connection: ConnectionId,
    /// Its place in the hunt order, from 1; `None` where it is left out.
    pub place: Option<usize>,
    /// The priority as configured; smaller is tried first.
    pub static_priority: i64,
    /// What the rule knows, by criterion: those that are enabled.
    pub criteria: BTreeMap<Measure, CriterionView>,
    /// What the rule adds: the sum of the penalties.
    pub dynamic_priority: f64,
    /// Static plus dynamic.
    pub priority: f64,
    /// The state of the connection as dialplans read it: `good`, `last`, `blocked`, `retry` or `bad`.
    pub state: String,
    /// The state in a sentence.
    pub quality: String,
    /// Why it stands where it stands, in a sentence.
    pub reason: String,
    /// Its place as written, which decides between equal priorities.
    pub written: usize,
    /// Where its state, or an operator's word, puts it.
    pub standing: Standing,
    /// See [`RouteNow::merit`].
    pub merit: Option<f64>,
    /// What a bad state does.
    pub action: BadQualityAction,
}

/// What a rule knows of a route by one criterion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CriterionView {
    /// The estimate; `None` before the first sample.
    pub estimate: Option<f64>,
    /// What it gained by being bypassed.
    pub compensation: f64,
    /// What that adds to the priority.
    pub penalty: f64,
}

/// What is to be assumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// States of connections.
    pub assume: Vec<(ConnectionId, Assumed)>,
    /// Connections that are not there.
    pub without: Vec<ConnectionId>,
}

/// A state to assume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumed {
    /// In its usual place.
    Good,
    /// Bad, with what that does to this connection.
    Bad,
    /// Back for a retry batch.
    Retry,
    /// Lowered.
    Last,
    /// Blocked.
    Blocked,
}

/// Why an assumption is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an assumption: write it like vendor-a=bad, with good, bad, retry, last or blocked")]
pub struct BadAssumption(String);

/// An assumption as it is written: `vendor-a=bad`.
///
/// # Errors
/// [`BadAssumption`] where it is none.
pub fn assumption(text: &str) -> Result<(ConnectionId, Assumed), BadAssumption> {
    let read = || {
        let (connection, state) = text.split_once('=')?;
        let state = [Assumed::Good, Assumed::Bad, Assumed::Retry, Assumed::Last, Assumed::Blocked]
            .into_iter()
            .find(|known| known.as_str() == state)?;
        Some((ConnectionId::new(connection).ok()?, state))
    };
    read().ok_or_else(|| BadAssumption(text.chars().take(80).collect()))
}

/// A connection that a question names and the map does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the route map {map} has no connection {connection}")]
pub struct NotInMap {
    /// The map.
    pub map: MapId,
    /// The connection.
    pub connection: String,
}

impl WhatIf {
    /// Whether nothing is assumed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.assume.is_empty() && self.without.is_empty()
    }
}

impl Assumed {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Retry => "retry",
            Self::Last => "last",
            Self::Blocked => "blocked",
        }
    }

    /// What it makes of a connection: the word for dialplans, where that puts it, and the sentence.
    fn applied(self, action: BadQualityAction) -> (&'static str, Standing, StateSentence) {
        match (self, action) {
            (Self::Good, _) => ("good", Standing::Usual, StateSentence::Good),
            (Self::Retry, _) => ("retry", Standing::Usual, StateSentence::Retry(None)),
            (Self::Bad, BadQualityAction::NotifyOnly) => ("bad", Standing::Usual, StateSentence::Bad),
            (Self::Last, _) | (Self::Bad, BadQualityAction::MakeLast) => {
                ("last", Standing::Last, StateSentence::Lowered)
            }
            (Self::Blocked, _) | (Self::Bad, BadQualityAction::Block) => {
                ("blocked", Standing::Blocked, StateSentence::Blocked)
            }
        }
    }
}

impl RouteView {
    /// A route with its priority and what is known of it, which is not monitored.
    #[must_use]
    pub fn new(route: &Route, values: Option<&Values>) -> Self {
        let seen =
            |value: &Value| CriterionView { estimate: value.estimate, compensation: value.compensation, penalty: 0.0 };
        let criteria = values.into_iter().flatten().map(|(measure, value)| (*measure, seen(value)));
        Self {
            connection: route.connection.clone(),
            place: None,
            static_priority: route.priority,
            criteria: criteria.collect(),
            dynamic_priority: 0.0,
            priority: route.priority(),
            state: "good".to_owned(),
            quality: StateSentence::Unmonitored.to_string(),
            reason: String::new(),
            written: route.written,
            standing: Standing::Usual,
            merit: None,
            action: BadQualityAction::default(),
        }
    }

    fn values(&self) -> Values {
        let value = |seen: &CriterionView| Value { estimate: seen.estimate, compensation: seen.compensation };
        self.criteria.iter().map(|(measure, seen)| (*measure, value(seen))).collect()
    }

    fn now(&self) -> RouteNow {
        RouteNow { standing: self.standing, merit: self.merit }
    }
}

impl MapView {
    /// A map without routes and without a rule.
    #[must_use]
    pub fn new(id: MapId, prefixes: Vec<String>) -> Self {
        Self {
            id,
            prefixes,
            rule: None,
            when_all_blocked: WhenAllBlocked::Fail,
            hunt_order: Vec::new(),
            blocked: Vec::new(),
            panic: false,
            routes: Vec::new(),
        }
    }

    /// The picture as it would be. An assumed state goes over the verdict and over an operator's word.
    ///
    /// # Errors
    /// [`NotInMap`] for the first name that the map does not have.
    pub fn assuming(&self, what_if: &WhatIf) -> Result<Self, NotInMap> {
        let mut view = self.clone();
        let place = |view: &Self, connection: &ConnectionId| {
            let place = view.routes.iter().position(|route| route.connection == *connection);
            place.ok_or_else(|| NotInMap { map: self.id.clone(), connection: connection.to_string() })
        };
        for (connection, assumed) in &what_if.assume {
            let route = place(&view, connection)?;
            let route = &mut view.routes[route];
            let (word, standing, quality) = assumed.applied(route.action);
            (route.state, route.standing, route.quality) = (word.to_owned(), standing, format!("{quality}{ASSUMED}"));
            // Whatever an operator said of it: now it is assumed to be merely bad.
            route.merit = route.merit.or(Some(0.0));
        }
        for connection in &what_if.without {
            // Named twice is away once.
            place(self, connection)?;
            view.routes.retain(|route| route.connection != *connection);
        }
        view.derive();
        Ok(view)
    }

    /// Makes the order, and everything that follows from the inputs (the routes with their static priorities, estimates,
    /// compensations and standings), anew.
    pub fn derive(&mut self) {
        self.price();
        let inputs: Vec<_> = self.routes.iter().map(|route| (route.priority, route.written, route.now())).collect();
        let Arranged { order, blocked, panic } = arrange(&inputs, self.when_all_blocked);
        let mut routes: Vec<RouteView> = Vec::with_capacity(inputs.len());
        for (place, &index) in order.iter().enumerate() {
            let route = &self.routes[index];
            let reason = reason(route, routes.last(), panic);
            routes.push(RouteView { place: Some(place + 1), reason, ..route.clone() });
        }
        for &index in &blocked {
            let route = &self.routes[index];
            routes.push(RouteView { place: None, reason: format!("left out: {}", route.quality), ..route.clone() });
        }
        let names = |places: &[usize]| places.iter().map(|&i| self.routes[i].connection.clone()).collect();
        (self.hunt_order, self.blocked, self.panic) = (names(&order), names(&blocked), panic);
        self.routes = routes;
    }

    fn price(&mut self) {
        let values: Vec<Values> = self.routes.iter().map(RouteView::values).collect();
        let penalties = self.rule.as_ref().map(|rule| rule.penalties(&values.iter().collect::<Vec<_>>()));
        let penalties = penalties.unwrap_or_default().into_iter().map(Some).chain(std::iter::repeat(None));
        for (route, penalties) in self.routes.iter_mut().zip(penalties) {
            let penalties = penalties.unwrap_or_default();
            for (measure, seen) in &mut route.criteria {
                seen.penalty = penalties.get(measure).copied().unwrap_or_default();
            }
            route.dynamic_priority = rule::total(&penalties);
            route.priority = whole(route.static_priority) + route.dynamic_priority;
        }
    }
}

/// Why a route stands behind `before`, in a sentence.
fn reason(route: &RouteView, before: Option<&RouteView>, panic: bool) -> String {
    if panic {
        return format!(
            "kept because every connection of the map is blocked and this is the least bad: {}",
            route.quality
        );
    }
    let sum = priority(route);
    match (route.standing, before) {
        (Standing::Last, Some(before)) if before.standing == Standing::Last && before.priority < route.priority => {
            format!("at the end: {}; among those, {sum}", route.quality)
        }
        (Standing::Last, _) => format!("at the end: {}", route.quality),
        (_, Some(before)) if before.priority.total_cmp(&route.priority).is_eq() => {
            format!("{sum}, as {}, which is written before it", before.connection)
        }
        _ => sum,
    }
}

/// A priority and what it is made of.
fn priority(route: &RouteView) -> String {
    if route.criteria.is_empty() {
        return format!("priority {}", route.static_priority);
    }
    let added: Vec<String> = route
        .criteria
        .iter()
        .filter(|(_, seen)| seen.penalty > 0.0)
        .map(|(measure, seen)| format!("{:.2} for {}", seen.penalty, measure.as_str()))
        .collect();
    let untried = route.criteria.values().all(|seen| seen.estimate.is_none());
    match (added.is_empty(), untried) {
        (true, true) => format!("priority {}; nothing is known of it yet", route.static_priority),
        (true, false) => format!("priority {}, nothing added", route.static_priority),
        (false, _) => format!("priority {} + {} = {:.2}", route.static_priority, added.join(" + "), route.priority),
    }
}
