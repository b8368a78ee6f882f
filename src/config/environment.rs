//! Overrides from environment variables.
//!
//! `POINTSMAN__STORAGE__PATH` is `storage.path`. In a list of things with an `id` the id is the step, in upper case and
//! with `_` for everything that is neither a letter nor a digit: `POINTSMAN__NODES__PBX_01__PASSWORD` is the password
//! of the node `pbx-01`. A variable that means nothing is an error like an unknown key: a misspelt override that is
//! silently ignored would be found on the worst day.

use std::ffi::OsString;

use config::{ConfigError, Map, Source, Value, ValueKind};

use super::suggest;

/// What the names of overrides begin with.
pub(super) const PREFIX: &str = "POINTSMAN__";

/// A step into the values.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(usize),
}

/// A variable that sets a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Override {
    variable: String,
    path: Vec<Step>,
    value: String,
}

/// A variable that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadVariable {
    pub(super) variable: String,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// The overrides among the variables of an environment, in the order of their names; `file` is what they apply to.
pub(super) fn overrides(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    file: &Map<String, Value>,
) -> (Vec<Override>, Vec<BadVariable>) {
    let ours = variables.into_iter().filter_map(|(name, value)| {
        let name = name.to_string_lossy().into_owned();
        name.starts_with(PREFIX).then_some((name, value))
    });
    let mut ours: Vec<_> = ours.collect();
    ours.sort();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let root = Value::new(None, file.clone());
    for (variable, value) in ours {
        match resolve(&variable, &root) {
            Err((message, help)) => bad.push(BadVariable { variable, message, help }),
            Ok(path) => match value.into_string() {
                Ok(value) => good.push(Override { variable, path, value }),
                Err(_) => bad.push(BadVariable { variable, message: "its value is not UTF-8".to_owned(), help: None }),
            },
        }
    }
    (good, bad)
}

/// A text as a step of a variable's name.
pub(super) fn step_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

type Unresolved = (String, Option<String>);

fn resolve(variable: &str, root: &Value) -> Result<Vec<Step>, Unresolved> {
    let rest = variable.strip_prefix(PREFIX).unwrap_or(variable);
    let mut path = Vec::new();
    let mut here = Some(root);
    for step in split(rest) {
        let step = step.to_ascii_uppercase();
        if step.is_empty() {
            let help = "write it like POINTSMAN__STORAGE__PATH".to_owned();
            return Err(("it names no key".to_owned(), Some(help)));
        }
        let next = match here.map(|value| &value.kind) {
            Some(ValueKind::Array(items)) => item(&step, items)?,
            Some(ValueKind::Table(fields)) => field(&step, fields, path.last(), root)?,
            _ => field(&step, &Map::new(), path.last(), root)?,
        };
        here = match (&next, here.map(|value| &value.kind)) {
            (Step::Item(index), Some(ValueKind::Array(items))) => items.get(*index),
            (Step::Key(key), Some(ValueKind::Table(fields))) => fields.get(key),
            _ => None,
        };
        path.push(next);
    }
    Ok(path)
}

/// The steps of a name. An id may itself have several `_` in a row, so a step ends at the last `__` of a run.
fn split(rest: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(found) = rest[at..].find("__") {
        let mut end = at + found;
        while rest[end + 2..].starts_with('_') {
            end += 1;
        }
        steps.push(&rest[from..end]);
        (from, at) = (end + 2, end + 2);
    }
    steps.push(&rest[from..]);
    steps
}

fn item(step: &str, items: &[Value]) -> Result<Step, Unresolved> {
    let ids: Vec<_> = items.iter().map(|item| id(item).map(step_name)).collect();
    let mut found = ids.iter().enumerate().filter(|(_, id)| id.as_deref() == Some(step)).map(|(index, _)| index);
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(Step::Item(index)),
        (Some(_), Some(_)) => {
            let message = format!("two ids of this list are {step} in the name of a variable");
            Err((message, Some("change one of them, or set the value in the file".to_owned())))
        }
        _ => {
            let known: Vec<_> = ids.iter().flatten().map(String::as_str).collect();
            let help = match suggest::closest(step, known.iter().copied()) {
                Some(close) => Some(format!("did you mean {close}?")),
                None if known.is_empty() => None,
                None => Some(format!("there are {}", known.join(", "))),
            };
            Err((format!("nothing in this list has an id that is {step} in the name of a variable"), help))
        }
    }
}

/// What an item of a list is called: its id, or the name of a token.
fn id(item: &Value) -> Option<&str> {
    match &item.kind {
        ValueKind::Table(fields) => text(fields.get("id").or_else(|| fields.get("name"))?),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match &value.kind {
        ValueKind::String(text) => Some(text),
        _ => None,
    }
}

/// Tables whose keys are ids of nodes.
const BY_NODE: [&str; 3] = ["names", "ports", "addresses"];

/// The key of that table: the id of a node, or else lower case.
fn field(step: &str, fields: &Map<String, Value>, table: Option<&Step>, root: &Value) -> Result<Step, Unresolved> {
    if let Some(key) = fields.keys().find(|key| step_name(key) == step) {
        return Ok(Step::Key(key.clone()));
    }
    if matches!(table, Some(Step::Key(table)) if BY_NODE.contains(&table.as_str())) {
        let ValueKind::Table(top) = &root.kind else { return Ok(Step::Key(step.to_ascii_lowercase())) };
        if let Some(ValueKind::Array(nodes)) = top.get("nodes").map(|nodes| &nodes.kind) {
            let Step::Item(index) = item(step, nodes)? else { return Ok(Step::Key(step.to_ascii_lowercase())) };
            return Ok(Step::Key(nodes.get(index).and_then(id).unwrap_or_default().to_owned()));
        }
    }
    Ok(Step::Key(step.to_ascii_lowercase()))
}

/// The overrides as a layer above the file.
#[derive(Clone, Debug)]
pub(super) struct Overrides(pub(super) Vec<Override>);

impl Source for Overrides {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        let mut root = Value::new(None, Map::<String, Value>::new());
        self.collect_to(&mut root)?;
        root.into_table()
    }

    fn collect_to(&self, root: &mut Value) -> Result<(), ConfigError> {
        'next: for set in &self.0 {
            let origin = Some(&set.variable);
            let mut here = &mut *root;
            for step in &set.path {
                here = match step {
                    Step::Key(key) => {
                        if !matches!(here.kind, ValueKind::Table(_)) {
                            *here = Value::new(origin, Map::<String, Value>::new());
                        }
                        let ValueKind::Table(fields) = &mut here.kind else { continue 'next };
                        fields.entry(key.clone()).or_insert_with(|| Value::new(origin, ValueKind::Nil))
                    }
                    Step::Item(index) => {
                        let ValueKind::Array(items) = &mut here.kind else { continue 'next };
                        let Some(item) = items.get_mut(*index) else { continue 'next };
                        item
                    }
                };
            }
            *here = Value::new(origin, set.value.clone());
        }
        Ok(())
    }
}
