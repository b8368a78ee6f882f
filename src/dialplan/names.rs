//! Names of variables.
//!
//! They are made of a prefix and of identifiers, whose alphabet ([`crate::ids`]) both PBXs take in a variable's name:
//! FreeSWITCH gives `:`, `[`, `(` and blanks a meaning, Asterisk `:`, `)` and braces, and none of these can be in one.

use crate::ids::{ConnectionId, MapId};

/// The word that follows a map in the name of its count. With a slot's number it is all that ever follows.
const COUNT: &str = "count";

/// The variable that holds the whole order of a map.
#[must_use]
pub fn route(prefix: &str, map: &MapId) -> String {
    format!("{prefix}route_{map}")
}

/// The variable that holds how many connections the order of a map has.
#[must_use]
pub fn route_count(prefix: &str, map: &MapId) -> String {
    format!("{prefix}route_{map}_{COUNT}")
}

/// The variable of the `number`-th connection of a map's order, counted from 1.
#[must_use]
pub fn route_slot(prefix: &str, map: &MapId, number: usize) -> String {
    format!("{prefix}route_{map}_{number}")
}

/// The variable of a connection's state.
#[must_use]
pub fn connection(prefix: &str, connection: &ConnectionId) -> String {
    format!("{prefix}conn_{connection}")
}

/// The variable of a connection's state within a map, where it is judged per map.
#[must_use]
pub fn connection_in(prefix: &str, connection: &ConnectionId, map: &MapId) -> String {
    format!("{prefix}conn_{connection}_{map}")
}

/// The variable of the generation.
#[must_use]
pub fn generation(prefix: &str) -> String {
    format!("{prefix}generation")
}

/// The variable of the best node's name.
#[must_use]
pub fn best_node(prefix: &str) -> String {
    format!("{prefix}best_node")
}

/// The variable of the best node's score.
#[must_use]
pub fn best_score(prefix: &str) -> String {
    format!("{prefix}best_score")
}

/// The variable that says whether every node is excluded.
#[must_use]
pub fn fallback(prefix: &str) -> String {
    format!("{prefix}fallback")
}

/// The first two maps whose variables would get in each other's way: `a` and `a_1`, or `a` and `a_count`. Case makes no
/// difference: FreeSWITCH ignores it.
#[must_use]
pub fn collision<'a>(maps: &[&'a MapId]) -> Option<(&'a MapId, &'a MapId)> {
    maps.iter().find_map(|longer| {
        let (shorter, last) = longer.as_str().rsplit_once('_')?;
        let taken =
            last.eq_ignore_ascii_case(COUNT) || (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()));
        let other = maps.iter().find(|map| map.as_str().eq_ignore_ascii_case(shorter))?;
        taken.then_some((*other, *longer))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_must_not_be_called_like_the_slot_of_another() {
        let [a, slot, count, word] = ["a", "a_1", "a_count", "a_x"].map(|name| MapId::new(name).unwrap());
        assert_eq!(collision(&[&slot, &a]), Some((&a, &slot)));
        assert_eq!(collision(&[&a, &count]), Some((&a, &count)));
        assert_eq!(collision(&[&a, &word]), None);
        assert_eq!(collision(&[&slot, &count]), None);
        let [capital, shouted] = ["A", "a_COUNT"].map(|name| MapId::new(name).unwrap());
        assert_eq!(collision(&[&capital, &slot]), Some((&capital, &slot)));
        assert_eq!(collision(&[&a, &shouted]), Some((&a, &shouted)));
        assert_eq!(route_slot("pm_", &a, 1), route("pm_", &slot));
    }
}
