//! Changes of connections' states: the latest, and page by page all that the database holds.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Asked;
use super::connections::is_named;
use crate::api::problem::Problem;
use crate::engine::view::ChangeView;
use crate::ids::{ConnectionId, MapId, QualityKey};
use crate::quality::machine::State as Quality;
use crate::quality::window::Epoch;
use crate::store::history::{Before, Page, Wanted};
use crate::time::Timestamp;

/// Most changes that an answer has: as many as the picture holds.
const MOST: usize = 100;

/// A change, with its name among all.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct ChangeAnswer<'a> {
    /// Its name, as in the event stream.
    id: String,
    #[serde(flatten)]
    change: &'a ChangeView,
}

impl<'a> ChangeAnswer<'a> {
    pub(super) fn new(change: &'a ChangeView) -> Self {
        Self { id: id(change), change }
    }
}

/// The name of a change: no two changes of a connection begin the same epoch, and the time is in it for the day when a
/// lost database makes epochs begin anew.
pub(in crate::api) fn id(change: &ChangeView) -> String {
    let ChangeView { key, change, .. } = change;
    let map = key.map.as_ref().map(|map| format!("/{map}")).unwrap_or_default();
    format!("{}-{}-{}{map}", change.at.as_micros(), change.epoch.0, key.connection)
}

/// Reads a time in microseconds, or the name of a change.
pub(in crate::api) fn before(text: &str) -> Result<Before, Problem> {
    let place = text.parse().ok().map(|micros| Before::Time(Timestamp::from_micros(micros)));
    place.or_else(|| named(text)).ok_or_else(|| {
        let detail = format!("before: {text:?} is neither the id of a change nor a time in microseconds");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })
}

fn named(text: &str) -> Option<Before> {
    let mut parts = text.splitn(3, '-');
    let at = Timestamp::from_micros(parts.next()?.parse().ok()?);
    let epoch = Epoch(parts.next()?.parse().ok()?);
    let key = parts.next()?;
    let (connection, map) = key.split_once('/').map_or((key, None), |(connection, map)| (connection, Some(map)));
    let connection = ConnectionId::new(connection).ok()?;
    let map = map.map(MapId::new).transpose().ok()?;
    Some(Before::Change { at, epoch, key: QualityKey { connection, map } })
}

/// The changes.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Changes<'a> {
    /// Newest first.
    changes: Vec<ChangeAnswer<'a>>,
    /// Whether there are older ones of those asked for; with `before` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    more: Option<bool>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct Filter {
    /// At most so many; 100 unless said otherwise.
    #[param(minimum = 1, maximum = 100)]
    pub(in crate::api) limit: Option<usize>,
    /// Only those of this connection.
    pub(in crate::api) connection: Option<String>,
    /// Only those of this route map; empty: only those of connections that are judged over all maps.
    pub(in crate::api) map: Option<String>,
    /// Only those that began this state.
    pub(in crate::api) state: Option<Quality>,
    /// Only those by this one: `pointsman`, or an operator as the changes name them.
    pub(in crate::api) who: Option<String>,
    /// Only those before this one (the id of a change) or before this time (microseconds), out of the database.
    pub(in crate::api) before: Option<String>,
}

impl Filter {
    fn limit(&self) -> Result<usize, Problem> {
        let limit = self.limit.unwrap_or(MOST);
        if (1..=MOST).contains(&limit) {
            return Ok(limit);
        }
        Err(Problem::new(StatusCode::BAD_REQUEST, format!("limit: from 1 to {MOST}")))
    }

    pub(in crate::api) fn takes(&self, ChangeView { key, change, who, .. }: &ChangeView) -> bool {
        let map = key.map.as_ref().map_or("", MapId::as_str);
        is_named(&key.connection, self.connection.as_deref())
            && self.map.as_deref().is_none_or(|wanted| wanted == map)
            && self.state.is_none_or(|wanted| wanted == change.to)
            && self.who.as_deref().is_none_or(|wanted| wanted == &**who)
    }

    /// What is wanted of the database, newest first unless it is to begin elsewhere; `None` where nothing can be of that
    /// name.
    pub(in crate::api) fn wanted(&self) -> Result<Option<Wanted>, Problem> {
        let before = self.before.as_deref().map(before).transpose()?;
        let Ok(connection) = self.connection.as_deref().map(ConnectionId::new).transpose() else { return Ok(None) };
        let map = |map: &str| if map.is_empty() { Ok(None) } else { MapId::new(map).map(Some) };
        let Ok(map) = self.map.as_deref().map(map).transpose() else { return Ok(None) };
        Ok(Some(Wanted {
            connection,
            map,
            state: self.state,
            who: self.who.as_deref().map(Into::into),
            from: None,
            before,
            limit: u32::try_from(self.limit()?).unwrap_or(u32::MAX),
        }))
    }
}

/// Changes of connections' states
///
/// Of the last 100 of all connections, those asked for. With `before`, all that the database holds, page by page: ask for
/// those before the last one of the page.
#[utoipa::path(get, path = "/api/changes", tag = "connections", params(Filter), responses(
    (status = 200, description = "The changes", body = Changes<'_>),
    (status = 503, description = "The database cannot be read now", body = Problem,
     content_type = "application/problem+json"),
))]
pub(in crate::api) async fn changes(State(app): Asked, Query(filter): Query<Filter>) -> Result<Response, Problem> {
    let limit = filter.limit()?;
    if filter.before.is_some() {
        let page = match filter.wanted()? {
            Some(wanted) => app.sources.history.changes(&wanted).await?,
            None => Page::default(),
        };
        let changes: Vec<ChangeView> = page.changes.into_iter().map(ChangeView::from).collect();
        let changes = Changes { changes: changes.iter().map(ChangeAnswer::new).collect(), more: Some(page.more) };
        return Ok(Json(changes).into_response());
    }
    let view = app.view();
    let wanted = view.changes.iter().filter(|change| filter.takes(change));
    Ok(Json(Changes { changes: wanted.take(limit).map(ChangeAnswer::new).collect(), more: None }).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_change_leads_back_to_it() {
        let key = |connection: &str, map: Option<&str>| QualityKey {
            connection: ConnectionId::new(connection).unwrap(),
            map: map.map(|map| MapId::new(map).unwrap()),
        };
        let (at, epoch) = (Timestamp::from_micros(17), Epoch(4));
        for (text, expected) in [
            ("17", Before::Time(at)),
            ("-17", Before::Time(Timestamp::from_micros(-17))),
            ("17-4-vendor-a", Before::Change { at, epoch, key: key("vendor-a", None) }),
            ("17-4-vendor-a-1/intl-2", Before::Change { at, epoch, key: key("vendor-a-1", Some("intl-2")) }),
        ] {
            assert_eq!(before(text).unwrap(), expected, "{text}");
        }
        for bad in
            ["", "x", "17-", "17-4", "17-4-", "17-x-a", "17-4-a/", "17-4-a/b/c", "17-4-a b", "99999999999999999999"]
        {
            assert!(before(bad).is_err(), "{bad}");
        }
    }
}
