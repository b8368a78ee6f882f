//! From the tree of values to the structs of [`super::raw`], noting every mistake instead of ending at the first.
//!
//! serde ends at the first error. Here a field of type [`Located`] catches what goes wrong inside it, notes it with its
//! place, and reads as broken; its neighbours are read all the same. Unknown keys are noted and left out. So one pass
//! finds every structural mistake there is, and each value that was read knows its place for the checks to come.
//!
//! Types are taken strictly, as the file's formats have them; only a value from an environment variable, which is
//! always text, is read as whatever is wanted.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

use super::raw::TEXTS;
use super::report::{Draft, Mark};
use super::suggest;
use super::tree::{Kind, Node, Place, PlaceId};

/// For how many mistakes it is worked out what was probably meant.
const MAX_SUGGESTIONS: usize = 1000;

/// A value that may be absent or broken, with its place.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    /// `None` where it is not written.
    pub(super) place: Option<PlaceId>,
    /// `None` where it is not written or could not be read.
    pub(super) value: Option<T>,
}

impl<T> Default for Located<T> {
    fn default() -> Self {
        Self { place: None, value: None }
    }
}

impl<T> Located<T> {
    /// The value, where it was read.
    pub(super) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Whether it is not written at all.
    pub(super) fn is_absent(&self) -> bool {
        self.place.is_none()
    }

    /// Whether it is written and could not be read: that has been noted.
    pub(super) fn is_broken(&self) -> bool {
        self.place.is_some() && self.value.is_none()
    }

    /// The value with its place, where it was read.
    pub(super) fn placed(&self) -> Option<(&T, PlaceId)> {
        self.value.as_ref().zip(self.place)
    }
}

/// Name by which [`Located`] asks [`Reader`] for the place.
pub(super) const LOCATED: &str = "pointsman::Located";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(LOCATED, LocatedVisitor(PhantomData))
    }
}

struct LocatedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for LocatedVisitor<T> {
    type Value = Located<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a place and a value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Located<T>, A::Error> {
        let place = seq.next_element()?.map(PlaceId);
        Ok(Located { place, value: seq.next_element()? })
    }
}

/// What a value cannot be read as, and why.
#[derive(Debug)]
pub(super) struct ReadError {
    message: String,
    label: String,
    help: Option<String>,
    place: Option<PlaceId>,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), label: String::new(), help: None, place: None }
    }
}

/// Reads one value of the tree.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    node: &'a Node,
    /// The part of the text that is read, where an environment variable holds a list.
    part: Option<&'a str>,
    places: &'a [Place],
    /// Names of the keys of every table, to say where a misplaced key belongs.
    homes: &'a suggest::Homes,
    drafts: &'a RefCell<Vec<Draft>>,
}

/// Reads a whole tree; `drafts` gets everything that is wrong with its structure.
pub(super) fn read<T: DeserializeOwned + Default>(
    root: &Node,
    places: &[Place],
    homes: &suggest::Homes,
    drafts: &mut Vec<Draft>,
) -> T {
    let noted = RefCell::new(Vec::new());
    let reader = Reader { node: root, part: None, places, homes, drafts: &noted };
    let read = T::deserialize(reader).map_err(|error| reader.note(error));
    drafts.append(&mut noted.borrow_mut());
    read.unwrap_or_default()
}

impl<'a> Reader<'a> {
    fn at(self, node: &'a Node) -> Self {
        Self { node, ..self }
    }

    fn place(&self) -> Option<&'a Place> {
        self.places.get(self.node.place.0 as usize)
    }

    fn is_overridden(&self) -> bool {
        self.place().is_some_and(|place| place.variable.is_some())
    }

    fn note(&self, error: ReadError) {
        let place = error.place.unwrap_or(self.node.place);
        let mut draft = Draft::error(Mark::Value(place), error.message).label(error.label);
        if let Some(help) = error.help {
            draft = draft.help(help);
        }
        self.drafts.borrow_mut().push(draft);
    }

    fn note_unknown(&self, key: &str, node: &Node, known: &'static [&'static str]) {
        let mut draft = Draft::error(Mark::Key(node.place), format!("there is no key `{key}` here"));
        // A file that is something else altogether has a hundred thousand of them, and nobody reads so many suggestions.
        if self.drafts.borrow().len() < MAX_SUGGESTIONS
            && let Some(help) = suggest::unknown_key(key, known, self.homes)
        {
            draft = draft.help(help);
        }
        self.drafts.borrow_mut().push(draft);
    }

    /// The name of the last key on the path, to talk of.
    fn name(&self) -> &'a str {
        let path = self.place().map_or("", |place| place.path.as_str());
        let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
        if name.is_empty() { "the configuration" } else { name }
    }

    fn expected(&self, what: &str) -> ReadError {
        let found = match &self.node.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Int(_) => "a number",
            Kind::Float(number) if number.abs() > 9e15 => "a number as large as this",
            Kind::Float(number) if number.fract() == 0.0 => "a number with a decimal point",
            Kind::Float(_) => "a number with decimals",
            Kind::Text(_) => "text",
            Kind::List(_) => "a list",
            Kind::Table(_) => "a table",
        };
        let message = format!("`{}` must be {what}, not {found}", self.name());
        ReadError { message, label: format!("expected {what}"), help: None, place: Some(self.node.place) }
    }

    fn integer(&self) -> Option<i128> {
        match &self.node.kind {
            Kind::Int(number) => Some(*number),
            Kind::Text(text) if self.is_overridden() => text.trim().parse().ok(),
            _ => None,
        }
    }

    fn unsigned(&self) -> Result<u64, ReadError> {
        let what = "a whole number, 0 or greater";
        match self.integer() {
            Some(number) => u64::try_from(number)
                .map_err(|_| ReadError { message: format!("`{}` must be {what}", self.name()), ..self.expected(what) }),
            None => {
                let mut error = self.expected(what);
                if matches!(&self.node.kind, Kind::Text(text) if text.trim().parse::<u64>().is_ok()) {
                    error.help = Some("write the number without quotes".to_owned());
                }
                Err(error)
            }
        }
    }

    fn float(&self) -> Option<f64> {
        let number = match &self.node.kind {
            #[expect(clippy::cast_precision_loss, reason = "numbers of a configuration are far below 2^53")]
            Kind::Int(number) => *number as f64,
            Kind::Float(number) => *number,
            Kind::Text(text) if self.is_overridden() => text.trim().parse().ok()?,
            _ => return None,
        };
        number.is_finite().then_some(number)
    }

    fn text(&self) -> Result<&'a str, ReadError> {
        match &self.node.kind {
            Kind::Text(text) => Ok(self.part.unwrap_or(text)),
            Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) => {
                let help = Some("put the value into quotes".to_owned());
                Err(ReadError { help, ..self.expected("text") })
            }
            _ => Err(self.expected("text")),
        }
    }
}

macro_rules! number {
    ($($method:ident $visit:ident $read:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            self.$read().and_then(|number| visitor.$visit(number))
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = ReadError;

    number! {
        deserialize_u8 visit_u64 unsigned
        deserialize_u16 visit_u64 unsigned
        deserialize_u32 visit_u64 unsigned
        deserialize_u64 visit_u64 unsigned
        deserialize_str visit_str text
        deserialize_string visit_str text
        deserialize_identifier visit_str text
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Int(_) => self.deserialize_i64(visitor),
            Kind::Float(value) => visitor.visit_f64(*value),
            Kind::Text(text) => visitor.visit_str(text),
            Kind::List(_) => self.deserialize_seq(visitor),
            Kind::Table(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Text(text) if self.is_overridden() && text.trim() == "true" => visitor.visit_bool(true),
            Kind::Text(text) if self.is_overridden() && text.trim() == "false" => visitor.visit_bool(false),
            Kind::Text(text) if matches!(text.as_str(), "true" | "false") => {
                let help = Some(format!("write {text} without quotes"));
                Err(ReadError { help, ..self.expected("true or false") })
            }
            _ => Err(self.expected("true or false")),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let number = self.integer().and_then(|number| i64::try_from(number).ok());
        number.ok_or_else(|| self.expected("a whole number")).and_then(|number| visitor.visit_i64(number))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.float().ok_or_else(|| self.expected("a number")).and_then(|number| visitor.visit_f64(number))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.node.kind {
            Kind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match name {
            LOCATED => visitor.visit_seq(PlaceThenValue { reader: self, step: 0 }),
            TEXTS => match &self.node.kind {
                Kind::Text(text) if !self.is_overridden() => visitor.visit_str(text),
                Kind::Text(_) | Kind::List(_) => self.deserialize_seq(visitor),
                _ => Err(self.expected("text or a list of texts")),
            },
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            Kind::List(items) => visitor.visit_seq(Items { reader: self, items: items.iter() }),
            Kind::Text(text) if self.is_overridden() => {
                visitor.visit_seq(Parts { reader: self, parts: text.split(',') })
            }
            _ => Err(self.expected("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            Kind::Table(fields) => visitor.visit_map(Fields::new(self, fields, None)),
            _ => Err(self.expected("a table")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            Kind::Table(fields) => visitor.visit_map(Fields::new(self, fields, Some(known))),
            _ => Err(self.expected("a table")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let text = self.text()?.trim();
        if variants.contains(&text) {
            return visitor.visit_enum(StrDeserializer::new(text));
        }
        let shown: String = text.chars().take(40).collect();
        let help = suggest::closest(text, variants.iter().copied()).map(|close| format!("did you mean \"{close}\"?"));
        Err(ReadError {
            message: format!("`{}` cannot be {shown:?}", self.name()),
            label: format!("expected {}", suggest::one_of(variants)),
            help,
            place: Some(self.node.place),
        })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct ignored_any
    }
}

/// What [`Located`] gets: the place, then the value, or nothing where it cannot be read and that has been noted.
struct PlaceThenValue<'a> {
    reader: Reader<'a>,
    step: u8,
}

impl<'de> SeqAccess<'de> for PlaceThenValue<'_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        self.step += 1;
        if self.step == 1 {
            return seed.deserialize(self.reader.node.place.0.into_deserializer()).map(Some);
        }
        Ok(seed.deserialize(self.reader).map_err(|error| self.reader.note(error)).ok())
    }
}

/// The items of a list.
struct Items<'a> {
    reader: Reader<'a>,
    items: std::slice::Iter<'a, Node>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        self.items.next().map(|item| seed.deserialize(self.reader.at(item))).transpose()
    }
}

/// The parts of a list in an environment variable: text between commas.
struct Parts<'a> {
    reader: Reader<'a>,
    parts: std::str::Split<'a, char>,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        let part = self.parts.by_ref().map(str::trim).find(|part| !part.is_empty());
        part.map(|part| seed.deserialize(Reader { part: Some(part), ..self.reader })).transpose()
    }
}

/// The fields of a table: those of a struct, or any.
struct Fields<'a> {
    reader: Reader<'a>,
    fields: std::slice::Iter<'a, (String, Node)>,
    value: Option<&'a Node>,
    known: Option<&'static [&'static str]>,
}

impl<'a> Fields<'a> {
    fn new(reader: Reader<'a>, fields: &'a [(String, Node)], known: Option<&'static [&'static str]>) -> Self {
        Self { reader, fields: fields.iter(), value: None, known }
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        for (key, node) in self.fields.by_ref() {
            match self.known {
                Some(known) if !known.contains(&key.as_str()) => self.reader.note_unknown(key, node, known),
                // A key without a value (YAML, or null in JSON) is as good as not written.
                Some(_) if node.kind == Kind::Null => {}
                _ => {
                    self.value = Some(node);
                    return seed.deserialize(StrDeserializer::new(key)).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        match self.value.take() {
            Some(node) => seed.deserialize(self.reader.at(node)),
            None => Err(de::Error::custom("a value without its key")),
        }
    }
}
