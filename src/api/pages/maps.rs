//! All route maps: who is tried first, and where that is other than written.

use axum::extract::{FromRequestParts, Query};
use minijinja::value::{Serde, Value};
use serde::{Deserialize, Serialize};

use super::hunt::{Hunt, Placed};
use super::question::Question;
use super::{Asked, Page};
use crate::api::problem::Problem;
use crate::engine::view::MapView;
use crate::routing::WhenAllBlocked;

/// Maps on a page.
const MAPS: usize = 50;

/// Most connections of a map that are shown one by one, and as many of those that are left out; its own page has all.
const CHIPS: usize = 12;

/// The page.
#[derive(Clone, FromRequestParts)]
pub(super) struct Maps {
    #[from_request(via(Query))]
    filter: Filter,
    #[from_request(via(Query))]
    query: Vec<(String, String)>,
}

/// Which of them.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
struct Filter {
    /// Part of the name of the map, of a prefix, or of the name of a connection.
    q: String,
    /// From 1.
    page: Option<usize>,
}

#[derive(Serialize)]
struct Facts<'a> {
    filter: &'a Filter,
    maps: Vec<Card<'a>>,
    found: usize,
    all: usize,
    page: usize,
    pages: usize,
}

/// A map in a few words.
#[derive(Serialize)]
struct Card<'a> {
    id: &'a str,
    prefixes: &'a [String],
    rule: Option<&'a str>,
    when_all_blocked: WhenAllBlocked,
    panic: bool,
    /// Who is kept though all are blocked.
    kept: Option<&'a str>,
    routes: usize,
    elsewhere: usize,
    order: Vec<Placed>,
    order_more: usize,
    blocked: Vec<Placed>,
    blocked_more: usize,
}

impl Page for Maps {
    const TEMPLATE: &'static str = "maps.html";
    const LIVE: &'static [&'static str] = &["maps"];

    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let wanted = self.filter.q.trim().to_lowercase();
        let maps = asked.view.maps.iter().map(|map| &**map);
        let found: Vec<&MapView> = maps.filter(|map| has(map, &wanted)).collect();
        let pages = found.len().div_ceil(MAPS).max(1);
        let page = self.filter.page.unwrap_or(1).clamp(1, pages);
        let shown = found.iter().skip((page - 1) * MAPS).take(MAPS);
        Ok(Value::from(Serde(&Facts {
            filter: &self.filter,
            maps: shown.map(|map| Card::new(map, asked)).collect(),
            found: found.len(),
            all: asked.view.maps.len(),
            page,
            pages,
        })))
    }

    /// Why there is no map to answer for; where there is one, its page answers.
    async fn once(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        Ok(Question::of(&self.query).by_number(asked))
    }
}

/// Whether a map, one of its prefixes or one of its connections is called like that.
fn has(map: &MapView, wanted: &str) -> bool {
    let has = |name: &str| name.to_lowercase().contains(wanted);
    wanted.is_empty()
        || has(map.id.as_str())
        || map.prefixes.iter().any(|prefix| has(prefix))
        || map.routes.iter().any(|route| has(route.connection.as_str()))
}

impl<'a> Card<'a> {
    fn new(map: &'a MapView, asked: &Asked<'_>) -> Self {
        let hunt = Hunt::new(map, asked);
        let order = map.routes.iter().filter(|route| route.place.is_some()).count();
        let blocked = map.routes.len() - order;
        Self {
            id: map.id.as_str(),
            prefixes: &map.prefixes,
            rule: map.rule.as_ref().map(|rule| &*rule.id),
            when_all_blocked: map.when_all_blocked,
            panic: map.panic,
            kept: kept(map),
            routes: map.routes.len(),
            elsewhere: hunt.elsewhere(),
            order: hunt.placed(0, order.min(CHIPS)),
            order_more: order.saturating_sub(CHIPS),
            blocked: hunt.placed(order, blocked.min(CHIPS)),
            blocked_more: blocked.saturating_sub(CHIPS),
        }
    }
}

/// The connection that is tried though every one is blocked.
pub(super) fn kept(map: &MapView) -> Option<&str> {
    map.hunt_order.first().filter(|_| map.panic).map(crate::ids::ConnectionId::as_str)
}
