//! What would a call try, and why? Asked by `test-call`, `test-dialplan` and the pages, answered from the pictures of the
//! maps. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{ConnectionId, MapId};
use crate::routing::matching::{Match, Prefixes};
use crate::routing::picture::{CriterionView, MapView, NotInMap, RouteView, WhatIf};
use crate::routing::rule::Measure;

/// Longest number that is asked about; E.164 has 15 digits, and dialplans put codes in front.
const MAX_NUMBER: usize = 64;

/// A question about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The number dialled. Blanks and the signs that people write between digits do not matter.
    pub number: String,
    /// The route map, where the dialplan names it; otherwise the number decides.
    pub map: Option<String>,
    /// What is to be assumed.
    #[serde(default)]
    pub what_if: WhatIf,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Answer {
    /// The number, without what people write between digits.
    pub number: String,
    /// Why it is this map.
    pub matched: Match,
    /// The map as it is, or as it would be.
    pub map: MapView,
}

/// The answer as programs read it: what `test-call --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = TestCall)]
pub struct CallTable {
    /// The route map.
    pub map: MapId,
    /// The number, without what people write between digits.
    pub number: String,
    /// Why it is this map, in a sentence.
    pub why: String,
    /// The dynamic routing rule of the map; `None`: priorities are the static ones.
    pub rule: Option<Arc<str>>,
    /// Whether every connection is blocked; the least bad one may be kept all the same.
    pub panic: bool,
    /// Every route in hunt order, those that are left out behind the others.
    pub routes: Vec<CallRoute>,
}

/// A route that a call may take.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = TestCallRoute)]
pub struct CallRoute {
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
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswerable {
    /// The number is none.
    #[error("{0:?} is not a number: digits, with or without a \"+\" in front, \"*\" and \"#\"")]
    NotANumber(String),
    /// There is no such map.
    #[error("there is no route map {name:?}; there are {known}", known = list(known))]
    NoSuchMap {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// No map serves the number.
    #[error(
        "no route map serves {0}: none of their prefixes begins it, and there is no map for all other numbers (\"\")"
    )]
    NotServed(String),
    /// A connection that the map does not have.
    #[error(transparent)]
    NotInMap(#[from] NotInMap),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Question {
    /// Answers from the pictures of all maps.
    ///
    /// # Errors
    /// See [`Unanswerable`].
    pub fn answer(&self, maps: &[Arc<MapView>]) -> Result<Answer, Unanswerable> {
        let (number, map, matched) = self.find(maps)?;
        let map = if self.what_if.is_empty() { map.clone() } else { map.assuming(&self.what_if)? };
        Ok(Answer { number, matched, map })
    }

    /// The number, without what people write between digits, and the map that it is about, with the reason. What is to be
    /// assumed is not looked at.
    ///
    /// # Errors
    /// See [`Unanswerable`].
    pub fn find<'a>(&self, maps: &'a [Arc<MapView>]) -> Result<(String, &'a MapView, Match), Unanswerable> {
        let number = number(&self.number)?;
        let prefixes = Prefixes::new(maps.iter().map(|map| (&map.id, &*map.prefixes)));
        let (map, matched) = match &self.map {
            Some(name) => {
                let map = prefixes.named(name).ok_or_else(|| Unanswerable::NoSuchMap {
                    name: name.chars().take(80).collect(),
                    known: maps.iter().map(|map| map.id.to_string()).collect(),
                })?;
                (map, Match::Named)
            }
            None => {
                let served = prefixes.serving(&number);
                let (map, prefix) = served.ok_or_else(|| Unanswerable::NotServed(number.clone()))?;
                (map, Match::Prefix(prefix.to_owned()))
            }
        };
        Ok((number, &maps[map], matched))
    }
}

impl Answer {
    /// Why it is this map, in a sentence.
    #[must_use]
    pub fn why(&self) -> String {
        self.matched.words(&self.number)
    }

    /// As programs read it.
    #[must_use]
    pub fn table(self) -> CallTable {
        let why = self.why();
        let MapView { id, rule, panic, routes, .. } = self.map;
        CallTable {
            map: id,
            number: self.number,
            why,
            rule: rule.map(|rule| rule.id),
            panic,
            routes: routes.into_iter().map(CallRoute::from).collect(),
        }
    }
}

impl From<RouteView> for CallRoute {
    fn from(route: RouteView) -> Self {
        Self {
            connection: route.connection,
            place: route.place,
            static_priority: route.static_priority,
            criteria: route.criteria,
            dynamic_priority: route.dynamic_priority,
            priority: route.priority,
            state: route.state,
            quality: route.quality,
            reason: route.reason,
        }
    }
}

/// The number without what people write between digits.
///
/// # Errors
/// [`Unanswerable::NotANumber`].
pub fn number(text: &str) -> Result<String, Unanswerable> {
    let number: String = text.chars().filter(|c| !" -()./\u{a0}".contains(*c)).collect();
    let (first, rest) = (number.strip_prefix('+').unwrap_or(&number), number.len());
    let legal = first.chars().all(|c| c.is_ascii_digit() || matches!(c, '*' | '#'));
    if first.is_empty() || rest > MAX_NUMBER || !legal {
        return Err(Unanswerable::NotANumber(text.chars().take(80).collect()));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Route;
    use crate::routing::picture::{Assumed, assumption};

    fn maps() -> Vec<Arc<MapView>> {
        let map = |name: &str, prefix: &str| {
            let route = |(written, name): (usize, &str)| {
                let connection = ConnectionId::new(name).unwrap();
                RouteView::new(&Route { connection, priority: 10, written }, None)
            };
            let mut map = MapView::new(MapId::new(name).unwrap(), vec![prefix.to_owned()]);
            map.routes = ["a", "b", "c"].into_iter().enumerate().map(route).collect();
            map.derive();
            Arc::new(map)
        };
        vec![map("intl", "00"), map("uk", "0044")]
    }

    fn ask(number: &str, map: Option<&str>, what_if: WhatIf) -> Result<Answer, Unanswerable> {
        Question { number: number.to_owned(), map: map.map(str::to_owned), what_if }.answer(&maps())
    }

    fn order(answer: &Answer) -> Vec<&str> {
        answer.map.hunt_order.iter().map(ConnectionId::as_str).collect()
    }

    #[test]
    fn the_number_decides_unless_a_map_is_named() {
        let answer = ask("0044 (20) 7183-8750", None, WhatIf::default()).unwrap();
        assert_eq!((&*answer.number, answer.map.id.as_str()), ("00442071838750", "uk"));
        assert_eq!(answer.matched, Match::Prefix("0044".to_owned()));
        assert_eq!(ask("0044", Some("intl"), WhatIf::default()).unwrap().map.id.as_str(), "intl");
        assert!(matches!(ask("112", None, WhatIf::default()), Err(Unanswerable::NotServed(_))));
        assert!(matches!(ask("112", Some("x"), WhatIf::default()), Err(Unanswerable::NoSuchMap { .. })));
        for bad in ["", "+", "12a", "1+2", "\u{1b}[2J", &"1".repeat(65)] {
            assert!(matches!(ask(bad, None, WhatIf::default()), Err(Unanswerable::NotANumber(_))), "{bad:?}");
        }
    }

    #[test]
    fn an_assumption_is_a_connection_and_a_state() {
        let read = |text| assumption(text).ok().map(|(connection, state)| (connection.to_string(), state));
        assert_eq!(read("vendor-a=bad"), Some(("vendor-a".to_owned(), Assumed::Bad)));
        for bad in ["", "vendor-a", "=bad", "vendor-a=", "vendor-a=worse", "a b=bad", "vendor-a=bad=good"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_assumed_moves_routes_and_says_why() {
        let id = |name: &str| ConnectionId::new(name).unwrap();
        let assume = |name: &str, state| WhatIf { assume: vec![(id(name), state)], without: vec![] };
        assert_eq!(order(&ask("00", None, WhatIf::default()).unwrap()), ["a", "b", "c"]);
        let lowered = ask("00", None, assume("a", Assumed::Bad)).unwrap();
        assert_eq!(order(&lowered), ["b", "c", "a"]);
        let last = lowered.map.routes.last().unwrap();
        assert_eq!(last.reason, "at the end: Connection preference lowered due to bad quality (assumed)");
        let blocked = ask("00", None, assume("b", Assumed::Blocked)).unwrap();
        assert_eq!((order(&blocked), blocked.map.routes[2].place), (vec!["a", "c"], None));
        let without = ask("00", None, WhatIf { assume: vec![], without: vec![id("a"), id("a")] }).unwrap();
        assert_eq!((order(&without), without.map.routes.len()), (vec!["b", "c"], 2));
        assert!(matches!(ask("00", None, assume("d", Assumed::Bad)), Err(Unanswerable::NotInMap(_))));
        assert!(matches!(
            ask("00", None, WhatIf { assume: vec![], without: vec![id("d")] }),
            Err(Unanswerable::NotInMap(_))
        ));
    }
}
