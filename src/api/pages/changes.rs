//! Every change that there was, newest first, each with the figures that led to it.
//!
//! The past holds them. What happened just now is in the picture already and not in the past yet, so the first page shows
//! both; without a database it still shows what the picture holds.

use std::collections::{BTreeSet, HashSet};

use axum::extract::{FromRequestParts, Query};
use minijinja::value::{Serde, Value};
use serde::de::IntoDeserializer;
use serde::de::value::Error as Unreadable;
use serde::{Deserialize, Deserializer, Serialize};

use super::part::Changed;
use super::{Asked, Page};
use crate::api::problem::Problem;
use crate::api::routes::changes::{Filter as Wanted, id};
use crate::engine::view::{ChangeView, View};
use crate::quality::machine::State;
use crate::store::history;

/// Changes on a page.
const ROWS: usize = 50;

/// The page.
#[derive(Clone, FromRequestParts)]
pub(super) struct Changes {
    #[from_request(via(Query))]
    filter: Filter,
}

/// Which of them; what a form leaves empty is not asked for.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
struct Filter {
    #[serde(deserialize_with = "chosen")]
    connection: Option<String>,
    #[serde(deserialize_with = "chosen")]
    map: Option<String>,
    #[serde(deserialize_with = "chosen")]
    state: Option<State>,
    #[serde(deserialize_with = "chosen")]
    who: Option<String>,
    /// Those before this one; see [`id`].
    #[serde(deserialize_with = "chosen")]
    before: Option<String>,
}

fn chosen<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(field)?;
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let value: Result<T, Unreadable> = T::deserialize(text.to_owned().into_deserializer());
    value.map(Some).map_err(serde::de::Error::custom)
}

impl Filter {
    fn wanted(&self) -> Wanted {
        Wanted {
            limit: Some(ROWS),
            connection: self.connection.clone(),
            map: self.map.clone(),
            state: self.state,
            who: self.who.clone(),
            before: self.before.clone(),
        }
    }
}

#[derive(Serialize)]
struct Facts<'a> {
    filter: &'a Filter,
    /// Whether anything is left out by it.
    filtered: bool,
    connections: BTreeSet<&'a str>,
    maps: Vec<&'a str>,
}

#[derive(Serialize)]
struct Past {
    rows: Vec<Changed>,
    /// The last of them, where there are older ones.
    older: Option<String>,
    /// Why the past cannot be read.
    trouble: Option<String>,
}

impl Page for Changes {
    const TEMPLATE: &'static str = "changes.html";
    const LIVE: &'static [&'static str] = &[];
    const PAST: &'static [&'static str] = &["list"];

    fn facts(&self, asked: &Asked<'_>) -> Result<Value, Problem> {
        self.filter.wanted().wanted()?;
        let Filter { connection, map, state, who, .. } = &self.filter;
        Ok(Value::from(Serde(&Facts {
            filter: &self.filter,
            filtered: connection.is_some() || map.is_some() || state.is_some() || who.is_some(),
            connections: asked.view.connections.iter().map(|one| one.key.connection.as_str()).collect(),
            maps: asked.view.maps.iter().map(|map| map.id.as_str()).collect(),
        })))
    }

    async fn past(&self, asked: &Asked<'_>) -> Value {
        let filter = self.filter.wanted();
        let page = match filter.wanted() {
            Ok(Some(wanted)) => asked.app.sources.history.changes(&wanted).await,
            _ => Ok(history::Page::default()),
        };
        let (page, trouble) = match page {
            Ok(page) => (page, None),
            Err(why) => (history::Page::default(), Some(why.to_string())),
        };
        let known: Vec<ChangeView> = page.changes.into_iter().map(ChangeView::from).collect();
        let most = if trouble.is_none() { ROWS } else { usize::MAX };
        let rows: Vec<&ChangeView> = unwritten(asked.view, &filter, &known).chain(&known).collect();
        let more = page.more || rows.len() > most;
        let older = rows.iter().take(most).next_back().filter(|_| more).map(|change| id(change));
        let rows = rows.iter().take(most).map(|change| Changed::new(change, asked)).collect();
        Value::from(Serde(&Past { rows, older, trouble }))
    }

    fn past_mark(&self, view: &View) -> Option<String> {
        view.changes.first().map(id).filter(|_| self.filter.before.is_none())
    }
}

/// What the picture has and the database has not yet; only the first page shows it.
fn unwritten<'a>(view: &'a View, filter: &Wanted, known: &[ChangeView]) -> impl Iterator<Item = &'a ChangeView> {
    let newest = known.first().map(|change| change.change.at);
    let known: HashSet<String> = known.iter().map(id).collect();
    let changes = view.changes.iter().filter(|_| filter.before.is_none()).filter(|change| filter.takes(change));
    changes.filter(move |change| newest.is_none_or(|newest| change.change.at >= newest) && !known.contains(&id(change)))
}
