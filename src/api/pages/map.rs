//! A route map: its order now against the order as written, how each connection comes to its place, and what a call would
//! try.

use axum::extract::{FromRequestParts, Path, Query};
use minijinja::value::{Serde, Value};
use serde::{Deserialize, Serialize};

use super::hunt::{Hunt, Placed};
use super::maps::kept;
use super::question::Question;
use super::{Asked, Page, said};
use crate::api::problem::Problem;
use crate::api::routes::maps::find;
use crate::config::model::Language;
use crate::dialplan::names;
use crate::dialplan::readback::Concerned;
use crate::engine::view::MapView;
use crate::routing::WhenAllBlocked;
use crate::routing::rule::{Criterion, Measure};

/// Connections on a page.
const ROWS: usize = 100;

/// The page.
#[derive(Clone, FromRequestParts)]
pub(super) struct Map {
    #[from_request(via(Path))]
    id: String,
    #[from_request(via(Query))]
    which: Which,
    #[from_request(via(Query))]
    query: Vec<(String, String)>,
}

#[derive(Clone, Deserialize)]
struct Which {
    /// From 1.
    page: Option<usize>,
}

#[derive(Serialize)]
struct Facts<'a> {
    id: &'a str,
    prefixes: &'a [String],
    rule: Option<RuleFacts<'a>>,
    when_all_blocked: WhenAllBlocked,
    panic: bool,
    /// Who is kept though all are blocked.
    kept: Option<&'a str>,
    all: usize,
    elsewhere: usize,
    rows: Vec<Placed>,
    page: usize,
    pages: usize,
    nodes: Vec<Concerned>,
    variables: Variables,
}

/// A rule with its numbers.
#[derive(Serialize)]
struct RuleFacts<'a> {
    id: &'a str,
    criteria: Vec<CriterionFacts>,
}

#[derive(Serialize)]
struct CriterionFacts {
    name: &'static str,
    unit: &'static str,
    #[serde(flatten)]
    criterion: Criterion,
}

/// Where dialplans read the map.
#[derive(Serialize)]
struct Variables {
    list: String,
    count: String,
    slot: String,
    /// The state of the first connection, for an example.
    state: Option<String>,
}

impl Page for Map {
    const TEMPLATE: &'static str = "map.html";
    const LIVE: &'static [&'static str] = &["standing", "rule", "order", "dialplan"];

    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let map = find(asked.view, &self.id)?;
        let hunt = Hunt::new(map, asked);
        let pages = map.routes.len().div_ceil(ROWS).max(1);
        let page = self.which.page.unwrap_or(1).clamp(1, pages);
        Ok(Value::from(Serde(&Facts {
            id: map.id.as_str(),
            prefixes: &map.prefixes,
            rule: RuleFacts::of(map, asked.look.language),
            when_all_blocked: map.when_all_blocked,
            panic: map.panic,
            kept: kept(map),
            all: map.routes.len(),
            elsewhere: hunt.elsewhere(),
            rows: hunt.placed((page - 1) * ROWS, ROWS),
            page,
            pages,
            nodes: asked.app.sources.probes.concerned(&map.id),
            variables: Variables::of(map, asked),
        })))
    }

    async fn once(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let map = find(asked.view, &self.id)?;
        Ok(Question::of(&self.query).of_map(map, asked).await)
    }
}

impl<'a> RuleFacts<'a> {
    fn of(map: &'a MapView, language: Language) -> Option<Self> {
        let rule = map.rule.as_ref()?;
        let facts = |(measure, criterion): (&Measure, &Criterion)| CriterionFacts {
            name: said::measure(*measure, language),
            unit: said::measure_unit(*measure, language),
            criterion: *criterion,
        };
        Some(Self { id: &rule.id, criteria: rule.criteria.iter().map(facts).collect() })
    }
}

impl Variables {
    fn of(map: &MapView, asked: &Asked<'_>) -> Self {
        let prefix = asked.app.sources.probes.prefix();
        let first = map.routes.first().map(|route| &route.connection);
        let state = first.map(|connection| {
            let keys = asked.view.connections.iter().map(|connection| &connection.key);
            let mut here = keys.filter(|key| key.connection == *connection);
            if here.any(|key| key.map.as_ref() == Some(&map.id)) {
                names::connection_in(prefix, connection, &map.id)
            } else {
                names::connection(prefix, connection)
            }
        });
        Self {
            list: names::route(prefix, &map.id),
            count: names::route_count(prefix, &map.id),
            slot: names::route_slot(prefix, &map.id, 1),
            state,
        }
    }
}
