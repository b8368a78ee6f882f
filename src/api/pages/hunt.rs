//! A hunt order against the order as written: who stands where, and why.

use std::collections::HashSet;

use serde::Serialize;

use super::part::{Standout, connection_path};
use super::{Asked, said};
use crate::engine::view::{MapView, RouteView};
use crate::ids::{ConnectionId, QualityKey};
use crate::quality::sentence::StateSentence;

/// A connection in its place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Placed {
    connection: String,
    href: String,
    standout: Standout,
    pinned: bool,
    /// From 1; `None` where it is left out.
    place: Option<usize>,
    /// Its place by the static priorities alone, from 1.
    written: usize,
    /// How many places it stands nearer to the front than that; `None` where it is left out.
    moved: Option<i64>,
    quality: String,
    reason: String,
    static_priority: i64,
    criteria: Vec<Seen>,
    dynamic_priority: f64,
    priority: f64,
}

/// What the rule knows of it by a criterion.
#[derive(Clone, Debug, Serialize)]
struct Seen {
    name: &'static str,
    unit: &'static str,
    estimate: Option<f64>,
    compensation: f64,
    penalty: f64,
}

/// The connections of a map, those that are left out behind the others, each as it is asked for.
pub(super) struct Hunt<'a> {
    map: &'a MapView,
    written: Vec<usize>,
    judged_here: HashSet<&'a ConnectionId>,
    asked: &'a Asked<'a>,
}

impl<'a> Hunt<'a> {
    pub(super) fn new(map: &'a MapView, asked: &'a Asked<'a>) -> Self {
        let keys = asked.view.connections.iter().map(|connection| &connection.key);
        let judged_here = keys.filter(|key| key.map.as_ref() == Some(&map.id)).map(|key| &key.connection);
        Self { map, written: static_places(&map.routes), judged_here: judged_here.collect(), asked }
    }

    /// How many stand elsewhere than as written, or are left out.
    pub(super) fn elsewhere(&self) -> usize {
        let routes = self.map.routes.iter().zip(&self.written);
        routes.filter(|(route, written)| route.place != Some(**written)).count()
    }

    /// Those of these places among the routes, counted from 0.
    pub(super) fn placed(&self, skip: usize, most: usize) -> Vec<Placed> {
        let end = skip.saturating_add(most).min(self.map.routes.len());
        (skip.min(end)..end).map(|index| self.at(index)).collect()
    }

    fn at(&self, index: usize) -> Placed {
        let (map, look) = (self.map, self.asked.look);
        let (route, written) = (&map.routes[index], self.written[index]);
        let before = index.checked_sub(1).map(|index| &map.routes[index]);
        let judged_here = self.judged_here.contains(&route.connection);
        let key = QualityKey { connection: route.connection.clone(), map: judged_here.then(|| map.id.clone()) };
        let (standout, pinned) = standing(route);
        let seen = |(measure, seen): (&_, &crate::engine::view::CriterionView)| Seen {
            name: said::measure(*measure, look.language),
            unit: said::measure_unit(*measure, look.language),
            estimate: seen.estimate,
            compensation: seen.compensation,
            penalty: seen.penalty,
        };
        Placed {
            connection: route.connection.to_string(),
            href: connection_path(&key),
            standout,
            pinned,
            place: route.place,
            written,
            moved: route.place.map(|place| signed(written) - signed(place)),
            quality: said::route_quality(route, look.language, &look.zone),
            reason: said::route_reason(route, before, map.panic, look.language, &look.zone),
            static_priority: route.static_priority,
            criteria: route.criteria.iter().map(seen).collect(),
            dynamic_priority: route.dynamic_priority,
            priority: route.priority,
        }
    }
}

fn signed(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

/// The place of each route by the static priorities alone, from 1.
fn static_places(routes: &[RouteView]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..routes.len()).collect();
    order.sort_by_key(|&index| (routes[index].static_priority, routes[index].written));
    let mut places = vec![0; routes.len()];
    for (place, index) in order.into_iter().enumerate() {
        places[index] = place + 1;
    }
    places
}

/// How a route stands, for its colour and sign, and whether an operator said so.
fn standing(route: &RouteView) -> (Standout, bool) {
    let said: Option<StateSentence> = route.quality.parse().ok();
    let standout = match &*route.state {
        "blocked" => Standout::Blocked,
        "last" => Standout::Last,
        "bad" => Standout::Bad,
        "retry" => Standout::Retry,
        _ if said == Some(StateSentence::Unmonitored) => Standout::Off,
        _ => Standout::Good,
    };
    (standout, matches!(said, Some(StateSentence::Pinned { .. })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MapId;
    use crate::quality::machine::Standing;
    use crate::routing::Route;

    fn map(routes: &[(&str, i64, Standing)]) -> MapView {
        let route = |(written, (name, priority, standing)): (usize, &(&str, i64, Standing))| {
            let route = Route { connection: ConnectionId::new(name).unwrap(), priority: *priority, written };
            RouteView { standing: *standing, ..RouteView::new(&route, None) }
        };
        let mut map = MapView::new(MapId::new("intl").unwrap(), vec![]);
        map.routes = routes.iter().enumerate().map(route).collect();
        map.derive();
        map
    }

    fn places(map: &MapView) -> Vec<(&str, Option<usize>, usize)> {
        let routes = map.routes.iter().zip(static_places(&map.routes));
        routes.map(|(route, written)| (route.connection.as_str(), route.place, written)).collect()
    }

    #[test]
    fn the_static_place_is_by_priority_and_then_as_written_whatever_the_standings_are() {
        use Standing::{Blocked, Last, Usual};
        let usual = map(&[("c", 20, Usual), ("a", 10, Usual), ("b", 10, Usual)]);
        assert_eq!(places(&usual), [("a", Some(1), 1), ("b", Some(2), 2), ("c", Some(3), 3)]);
        let moved = map(&[("c", 20, Usual), ("a", 10, Last), ("b", 10, Blocked)]);
        assert_eq!(places(&moved), [("c", Some(1), 3), ("a", Some(2), 1), ("b", None, 2)]);
        assert_eq!(static_places(&[]), [0; 0]);
    }

    #[test]
    fn a_route_is_shown_as_dialplans_read_it() {
        let route = |state: &str, quality: &str| {
            let mut route = map(&[("a", 1, Standing::Usual)]).routes.remove(0);
            (route.state, route.quality) = (state.to_owned(), quality.to_owned());
            standing(&route)
        };
        let unmonitored = StateSentence::Unmonitored.to_string();
        assert_eq!(route("good", &unmonitored), (Standout::Off, false));
        assert_eq!(route("good", &StateSentence::Good.to_string()), (Standout::Good, false));
        assert_eq!(route("last", "in the words of an older version"), (Standout::Last, false));
        let pin = crate::quality::pin::Pin::PinBlock;
        let pinned = StateSentence::Pinned { pin, until: None, who: "noc".into(), why: "works".into() };
        assert_eq!(route("blocked", &pinned.to_string()), (Standout::Blocked, true));
        assert_eq!([route("retry", "").0, route("bad", "").0], [Standout::Retry, Standout::Bad]);
    }
}
