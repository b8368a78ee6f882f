//! How a route stands, and the picture that explains a route map: one rule for the engine, which routes by it, and for those
//! who ask what would have been.

use std::collections::HashMap;

use crate::config::model::RouteMap;
use crate::dialplan::desired;
use crate::ids::{ConnectionId, MapId, QualityKey};
use crate::quality::book::Book;
use crate::quality::pin::Pinned;
use crate::quality::sentence::StateSentence;
use crate::routing::dynamic::MapState;
use crate::routing::picture::{MapView, RouteView};
use crate::routing::rule::Values;
use crate::routing::{Route, RouteNow};

/// What operators said of connections.
pub(super) type Pins = HashMap<QualityKey, Pinned>;

/// A route map explained.
pub(super) fn map(configured: &RouteMap, state: &MapState, book: &Book, pins: &Pins) -> MapView {
    let routes = state.static_order().routes.iter().enumerate();
    let routes = routes.map(|(index, of)| route(&configured.id, of, state.values().get(index), book, pins));
    let mut picture = MapView {
        rule: state.rule().cloned(),
        when_all_blocked: state.when_all_blocked(),
        routes: routes.collect(),
        ..MapView::new(configured.id.clone(), configured.prefixes.clone())
    };
    picture.derive();
    picture
}

fn route(map: &MapId, route: &Route, values: Option<&Values>, book: &Book, pins: &Pins) -> RouteView {
    let RouteNow { standing, merit } = route_now(book, pins, map, &route.connection);
    let judged = key_in(book, map, &route.connection);
    let machine = judged.as_ref().and_then(|key| book.get(key));
    let pinned = judged.as_ref().and_then(|key| pins.get(key));
    let quality = match (pinned, machine) {
        (Some(pinned), _) => StateSentence::from(pinned).to_string(),
        (None, Some(machine)) => machine.words(),
        (None, None) => String::new(),
    };
    RouteView {
        state: machine.map_or("good", |machine| desired::word(machine, pinned.map(|pinned| pinned.pin))).to_owned(),
        quality,
        standing,
        merit,
        action: machine.map(|machine| machine.settings().bad_quality_action).unwrap_or_default(),
        ..RouteView::new(route, values)
    }
}

pub(super) fn pair(connection: &ConnectionId, map: &MapId) -> QualityKey {
    QualityKey { connection: connection.clone(), map: Some(map.clone()) }
}

/// Under which key a connection is judged within a map.
pub(super) fn key_in(book: &Book, map: &MapId, connection: &ConnectionId) -> Option<QualityKey> {
    let keys = [pair(connection, map), QualityKey::connection(connection.clone())];
    keys.into_iter().find(|key| book.seat(key).is_some())
}

/// How a route is: its state, and above that the operator's word.
pub(super) fn route_now(book: &Book, pins: &Pins, map: &MapId, connection: &ConnectionId) -> RouteNow {
    let Some(key) = key_in(book, map, connection) else { return RouteNow::default() };
    let Some(machine) = book.get(&key) else { return RouteNow::default() };
    match pins.get(&key) {
        Some(pinned) => RouteNow { standing: pinned.pin.standing(), merit: None },
        None => RouteNow { standing: machine.standing(), merit: Some(machine.settings().merit(&machine.figures())) },
    }
}
