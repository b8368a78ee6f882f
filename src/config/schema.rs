//! Which keys there are, taken from the structs of [`super::raw`] themselves.

use std::cell::RefCell;

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::de::LOCATED;
use super::raw::Raw;
use super::suggest::Homes;

/// The keys of every table, by the table's path (`""` is the top; lists of tables have no index).
pub(super) fn homes() -> Homes {
    let homes = RefCell::new(Homes::new());
    // Every leaf of the exploration fails, and `Located` takes that for an absent value: it cannot fail as a whole.
    let _ = Raw::deserialize(Explorer { path: "", homes: &homes });
    homes.into_inner()
}

/// A deserializer that has no values and writes down what it is asked for.
#[derive(Clone, Copy)]
struct Explorer<'a> {
    path: &'a str,
    homes: &'a RefCell<Homes>,
}

impl<'de> Deserializer<'de> for Explorer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a leaf"))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match name {
            LOCATED => visitor.visit_seq(PlaceThenLeaf { explorer: self, step: 0 }),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(OneItem(Some(self)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.homes.borrow_mut().insert(self.path.to_owned(), keys);
        visitor.visit_map(EveryKey { explorer: self, keys: keys.iter(), key: "" })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        tuple tuple_struct map enum identifier ignored_any
    }
}

struct PlaceThenLeaf<'a> {
    explorer: Explorer<'a>,
    step: u8,
}

impl<'de> SeqAccess<'de> for PlaceThenLeaf<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.step += 1;
        if self.step == 1 {
            return seed.deserialize(0u32.into_deserializer()).map(Some);
        }
        Ok(seed.deserialize(self.explorer).ok())
    }
}

struct OneItem<'a>(Option<Explorer<'a>>);

impl<'de> SeqAccess<'de> for OneItem<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.0.take().map(|explorer| seed.deserialize(explorer)).transpose()
    }
}

struct EveryKey<'a> {
    explorer: Explorer<'a>,
    keys: std::slice::Iter<'static, &'static str>,
    key: &'static str,
}

impl<'de> MapAccess<'de> for EveryKey<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(key) = self.keys.next() else { return Ok(None) };
        self.key = key;
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let path = self.explorer.path;
        let path = if path.is_empty() { self.key.to_owned() } else { format!("{path}.{}", self.key) };
        seed.deserialize(Explorer { path: &path, ..self.explorer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_found() {
        let homes = homes();
        let tables: Vec<_> = homes.keys().map(String::as_str).collect();
        let expected = [
            "",
            "balancing",
            "breaker",
            "causes",
            "connections",
            "connections.causes",
            "connections.quality",
            "connections.quality.retry_backoff",
            "customers",
            "email",
            "http",
            "http.tokens",
            "log",
            "nodes",
            "operator",
            "quality",
            "quality.retry_backoff",
            "route_maps",
            "route_maps.entries",
            "routing_rules",
            "routing_rules.avg_duration_sec",
            "routing_rules.signalling_failure_percent",
            "routing_rules.success_percent",
            "scoring",
            "scoring.weights",
            "storage",
            "variables",
            "xds",
            "xds.groups",
            "xds.groups.listener",
            "xds.tokens",
        ];
        assert_eq!(tables, expected);
        assert!(homes["nodes"].contains(&"password_file"));
    }

    fn read(file: &str) -> String {
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file)
    }

    #[test]
    fn the_full_sample_shows_every_key() {
        let sample = read("config/pointsman.toml");
        for (table, keys) in homes() {
            for key in keys {
                let shown = [format!("{key} ="), format!("[{key}]"), format!(".{key}]")];
                assert!(shown.iter().any(|shown| sample.contains(shown)), "{table}.{key}");
            }
        }
    }

    #[test]
    fn the_documentation_names_every_key() {
        let documentation = read("docs/configuration.md");
        for (table, keys) in homes() {
            for key in keys {
                assert!(
                    documentation.contains(&format!("`{key}`")) || documentation.contains(&format!("{key} =")),
                    "{table}.{key}"
                );
            }
        }
    }

    /// The first column of every table under a heading that is the name of a table of the configuration.
    #[test]
    fn the_documentation_names_no_other_key() {
        let homes = homes();
        let mut home = None;
        for line in read("docs/configuration.md").lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                let name = heading.split('`').nth(1).unwrap_or(if heading == "At the top" { "" } else { "-" });
                home = homes.get(name).map(|keys| (name.to_owned(), *keys));
            } else if line == "`entries`:" {
                home = Some(("route_maps.entries".to_owned(), homes["route_maps.entries"]));
            } else if line.starts_with("Each criterion") {
                let criterion = "routing_rules.success_percent";
                home = Some((criterion.to_owned(), homes[criterion]));
            }
            let Some((table, keys)) = &home else { continue };
            let first = line.strip_prefix("| `").and_then(|row| row.split(" | ").next());
            for key in first.into_iter().flat_map(|cell| cell.split(", ")).map(|key| key.trim_matches('`')) {
                let outcome = table.ends_with("causes");
                assert!(outcome || keys.contains(&key), "{table}.{key}");
            }
        }
    }
}
