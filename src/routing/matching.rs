//! Which route map a call belongs to. Pure.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::ids::MapId;

/// Why a call belongs to a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Match {
    /// It was named: by the dialplan (`pm_map`), or by whoever asks.
    Named,
    /// This is the longest prefix of the number that a map serves.
    Prefix(String),
}

impl Match {
    /// Why, in a sentence about that map.
    #[must_use]
    pub fn words(&self, number: &str) -> String {
        match self {
            Self::Named => "it was asked for by name".to_owned(),
            Self::Prefix(prefix) if prefix.is_empty() => {
                format!("no longer prefix of {number} is served by another map: this is the map for all other numbers")
            }
            Self::Prefix(prefix) => format!("\"{prefix}\" is the longest prefix of {number} that a map serves"),
        }
    }
}

/// The prefixes of all maps.
#[derive(Clone, Debug, Default)]
pub struct Prefixes {
    by_prefix: HashMap<String, usize>,
    by_name: HashMap<MapId, usize>,
    longest: usize,
}

impl Prefixes {
    /// Of those maps, each with the prefixes that it serves; a call's map is its index among them.
    #[must_use]
    pub fn new<'a>(maps: impl Iterator<Item = (&'a MapId, &'a [String])>) -> Self {
        let mut all = Self::default();
        for (index, (map, prefixes)) in maps.enumerate() {
            all.by_name.insert(map.clone(), index);
            for prefix in prefixes {
                all.longest = all.longest.max(prefix.len());
                all.by_prefix.entry(prefix.clone()).or_insert(index);
            }
        }
        all
    }

    /// The map of that name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The map that serves the longest prefix of a number, with that prefix.
    #[must_use]
    pub fn serving<'n>(&self, number: &'n str) -> Option<(usize, &'n str)> {
        let longest = self.longest.min(number.len());
        let prefixes = (0..=longest).rev().filter_map(|length| number.get(..length));
        prefixes.filter_map(|prefix| Some((*self.by_prefix.get(prefix)?, prefix))).next()
    }

    /// The map of a call. The dialplan's word goes before the number, where it names a map.
    #[must_use]
    pub fn of_call(&self, word: Option<&str>, number: Option<&str>) -> Option<usize> {
        let named = word.and_then(|word| self.named(word));
        named.or_else(|| self.serving(number?).map(|(map, _)| map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::RouteMap;
    use crate::routing::tests::map;

    fn prefixes() -> Prefixes {
        let maps = [("intl", &["00", "+"][..]), ("uk", &["0044", "+44"]), ("rest", &[""])];
        let maps: Vec<RouteMap> = maps
            .iter()
            .map(|(name, prefixes)| RouteMap {
                prefixes: prefixes.iter().map(ToString::to_string).collect(),
                ..map(name, &[])
            })
            .collect();
        Prefixes::new(maps.iter().map(|map| (&map.id, &*map.prefixes)))
    }

    #[test]
    fn the_longest_prefix_wins() {
        let all = prefixes();
        assert_eq!(all.serving("00442071838750"), Some((1, "0044")));
        assert_eq!(all.serving("0049301234"), Some((0, "00")));
        assert_eq!(all.serving("+44"), Some((1, "+44")));
        assert_eq!(all.serving("112"), Some((2, "")));
        assert_eq!(all.serving(""), Some((2, "")));
        assert_eq!(Prefixes::default().serving("112"), None);
    }

    #[test]
    fn the_dialplans_word_goes_before_the_number_where_it_names_a_map() {
        let all = prefixes();
        assert_eq!(all.of_call(Some("uk"), Some("0049301234")), Some(1));
        assert_eq!(all.of_call(Some("nonsense"), Some("0049301234")), Some(0));
        assert_eq!(all.of_call(None, None), None);
    }

    #[test]
    fn a_number_of_other_letters_is_cut_between_them() {
        assert_eq!(prefixes().serving("\u{e4}\u{e4}"), Some((2, "")));
    }
}
