//! All connections, the most troubled first, page by page.

use axum::extract::{FromRequestParts, Query};
use minijinja::value::{Serde, Value};
use serde::{Deserialize, Serialize};

use super::part::{Row, Standout, by_trouble};
use super::{Asked, Page};
use crate::api::problem::Problem;
use crate::engine::view::ConnectionView;

/// Connections on a page.
const ROWS: usize = 100;

/// The page.
#[derive(Clone, FromRequestParts)]
pub(super) struct Connections {
    #[from_request(via(Query))]
    filter: Filter,
}

/// Which of them.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
struct Filter {
    /// Part of the name of the connection, its map or its owner.
    q: String,
    /// How they stand: see [`Standout`]; empty: all.
    state: String,
    /// From 1.
    page: Option<usize>,
}

#[derive(Serialize)]
struct Facts<'a> {
    filter: &'a Filter,
    rows: Vec<Row>,
    found: usize,
    all: usize,
    page: usize,
    pages: usize,
}

impl Page for Connections {
    const TEMPLATE: &'static str = "connections.html";
    const LIVE: &'static [&'static str] = &["connections"];

    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        let wanted = self.filter.q.trim().to_lowercase();
        let mut found: Vec<&ConnectionView> =
            asked.view.connections.iter().filter(|one| self.filter.takes(one, &wanted)).collect();
        found.sort_by(|one, other| by_trouble(one, other));
        let pages = found.len().div_ceil(ROWS).max(1);
        let page = self.filter.page.unwrap_or(1).clamp(1, pages);
        let rows = found.iter().skip((page - 1) * ROWS).take(ROWS);
        Ok(Value::from(Serde(&Facts {
            filter: &self.filter,
            rows: rows.map(|connection| Row::new(connection, asked)).collect(),
            found: found.len(),
            all: asked.view.connections.len(),
            page,
            pages,
        })))
    }
}

impl Filter {
    fn takes(&self, connection: &ConnectionView, wanted: &str) -> bool {
        let has = |name: &str| name.to_lowercase().contains(wanted);
        let named = wanted.is_empty()
            || has(connection.key.connection.as_str())
            || connection.key.map.as_ref().is_some_and(|map| has(map.as_str()))
            || connection.customer.as_ref().is_some_and(|customer| has(customer.as_str()));
        named && (self.state.is_empty() || Standout::of(connection).as_str() == self.state)
    }
}
