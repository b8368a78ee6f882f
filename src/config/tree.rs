//! The merged values with their places.
//!
//! The `config` crate has put the layers together; here every value gets its place back: where it stands in the file,
//! or which environment variable it came from. From here on a place is a number ([`PlaceId`]) that is cheap to carry.

use config::{Value, ValueKind};

use super::locate::{Inside, Span, Spot};

/// The number of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlaceId(pub(super) u32);

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// Its path, e.g. `nodes[0].address`.
    pub(super) path: String,
    /// Its key in the file.
    pub(super) key: Option<Span>,
    /// Its value in the file; that of what contains it, where it is not in the file itself.
    pub(super) value: Span,
    /// The environment variable that set it.
    pub(super) variable: Option<String>,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) place: PlaceId,
    pub(super) kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

/// The values, and the places that they refer to.
pub(super) struct Tree {
    pub(super) root: Node,
    pub(super) places: Vec<Place>,
}

impl Tree {
    /// Puts the values and their places together.
    pub(super) fn new(root: Value, spots: &Spot) -> Self {
        let mut places = Vec::new();
        let place = Place { path: String::new(), key: None, value: 0..0, variable: None };
        let root = build(root, Some(spots), place, &mut places);
        Self { root, places }
    }
}

fn build(value: Value, spot: Option<&Spot>, place: Place, places: &mut Vec<Place>) -> Node {
    let id = PlaceId(u32::try_from(places.len()).unwrap_or(u32::MAX));
    let (path, around) = (place.path.clone(), place.value.clone());
    places.push(place);
    let mut child = |path: String, value: Value, spot: Option<&Spot>| {
        let key = spot.and_then(|spot| spot.key.clone());
        let span = spot.map_or(around.clone(), |spot| spot.value.clone());
        let variable = value.origin().map(str::to_owned);
        build(value, spot, Place { path, key, value: span, variable }, places)
    };
    let kind = match value.kind {
        ValueKind::Nil => Kind::Null,
        ValueKind::Boolean(value) => Kind::Bool(value),
        ValueKind::I64(value) => Kind::Int(value.into()),
        ValueKind::I128(value) => Kind::Int(value),
        ValueKind::U64(value) => Kind::Int(value.into()),
        ValueKind::U128(value) => Kind::Int(i128::try_from(value).unwrap_or(i128::MAX)),
        ValueKind::Float(value) => Kind::Float(value),
        ValueKind::String(value) => Kind::Text(value),
        ValueKind::Array(items) => {
            let items = items.into_iter().enumerate();
            let item =
                |(index, value)| child(format!("{path}[{index}]"), value, spot.and_then(|spot| spot.item(index)));
            Kind::List(items.map(item).collect())
        }
        ValueKind::Table(fields) => {
            let mut fields: Vec<_> = fields.into_iter().collect();
            fields.sort_by(|(a, _), (b, _)| (start(spot, a), a).cmp(&(start(spot, b), b)));
            let field = |(name, value): (String, Value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let node = child(path, value, spot.and_then(|spot| spot.field(&name)));
                (name, node)
            };
            Kind::Table(fields.into_iter().map(field).collect())
        }
    };
    // A table that only environment variables have made comes from the first of them.
    if let Kind::Table(fields) = &kind
        && !spot.is_some_and(|spot| matches!(spot.inside, Inside::Table(_)))
        && let Some(variable) = fields.first().and_then(|(_, node)| places[node.place.0 as usize].variable.clone())
    {
        places[id.0 as usize].variable = Some(variable);
    }
    Node { place: id, kind }
}

/// Where the key stands; what is not in the file comes last.
fn start(spot: Option<&Spot>, key: &str) -> usize {
    let key = spot.and_then(|spot| spot.field(key)).and_then(|spot| spot.key.as_ref());
    key.map_or(usize::MAX, |key| key.start)
}
