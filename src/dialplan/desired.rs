//! What a node should hold. Pure.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::config::model::{Config, Connection, Node};
use crate::dialplan::names;
use crate::ids::{ConnectionId, NodeId, QualityKey};
use crate::pbx::PbxKind;
use crate::quality::machine::{Machine, Standing, State};
use crate::quality::pin::Pin;
use crate::quality::settings::BadQualityAction;
use crate::routing::HuntOrder;

/// All variables that a node should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The hunt orders, with this node's names.
    pub orders: Vec<Arc<Order>>,
    /// The states of the connections.
    pub states: Arc<[StateVariable]>,
    /// Which node is best. They change often and belong to no generation.
    pub routing: Vec<StateVariable>,
    /// Name and value of the generation.
    pub generation: Option<(String, u64)>,
}

/// The variables of one map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The variable of the whole order; the others are called after it.
    pub list: String,
    /// The variable of the count.
    pub count: String,
    /// What the node calls the connections, first to last.
    pub trunks: Vec<String>,
    /// Whether each has a variable of its own too.
    pub slots: bool,
}

impl Order {
    /// The variable of the `number`-th slot, counted from 1.
    #[must_use]
    pub fn slot(&self, number: usize) -> String {
        format!("{}_{number}", self.list)
    }
}

/// The variable of a connection's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateVariable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Cow<'static, str>,
    /// Whether it may just as well not be set: on Asterisk, where every variable slows every look-up, `good` is only
    /// written over something else.
    pub may_be_unset: bool,
}

impl Desired {
    /// Whether both say the same of calls and connections, whatever their generations and the best node.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.orders == other.orders && self.states == other.states
    }
}

/// What `node` should hold. `states` are all that is judged, with the state of each as dialplans read it.
pub fn of<'a>(
    config: &Config,
    node: &Node,
    orders: &[HuntOrder],
    states: impl Iterator<Item = (&'a QualityKey, &'static str)>,
    generation: u64,
) -> Desired {
    let prefix = &config.variables.prefix;
    let by_id: HashMap<&ConnectionId, &Connection> =
        config.connections.iter().map(|connection| (&connection.id, connection)).collect();
    let here = config.route_maps.iter().zip(orders).filter(|(map, _)| map.concerns(&node.id));
    Desired {
        orders: here.map(|(_, hunt)| Arc::new(order(prefix, node, hunt, |id| by_id.get(id).copied()))).collect(),
        states: states.filter_map(|(key, word)| state(config, node, key, word)).collect(),
        routing: Vec::new(),
        generation: Some((names::generation(prefix), generation)),
    }
}

/// The variables of one map on `node`. `connection` finds the connections that are in it.
#[must_use]
pub fn order<'a>(
    prefix: &str,
    node: &Node,
    hunt: &HuntOrder,
    connection: impl Fn(&ConnectionId) -> Option<&'a Connection>,
) -> Order {
    let name_on =
        |id: &ConnectionId| connection(id).map_or(id.as_str(), |connection| connection.name_on(&node.id)).to_owned();
    Order {
        list: names::route(prefix, &hunt.map),
        count: names::route_count(prefix, &hunt.map),
        trunks: hunt.order.iter().map(name_on).collect(),
        slots: node.slots,
    }
}

/// The variable of a state on `node`; `None` where the map that it is about does not concern the node.
#[must_use]
pub fn state(config: &Config, node: &Node, key: &QualityKey, word: &'static str) -> Option<StateVariable> {
    let prefix = &config.variables.prefix;
    let name = match &key.map {
        None => names::connection(prefix, &key.connection),
        Some(map) => {
            config.route_map(map).filter(|map| map.concerns(&node.id))?;
            names::connection_in(prefix, &key.connection, map)
        }
    };
    let may_be_unset = node.kind == PbxKind::Asterisk && word == "good";
    Some(StateVariable { name, value: word.into(), may_be_unset })
}

/// The variables that say which node is best: its name (`none` where there is none: FreeSWITCH takes an empty value for a
/// removal), its score in whole points, and whether every node is excluded.
#[must_use]
pub fn best_node(prefix: &str, best: Option<&NodeId>, score: f64, fallback_active: bool) -> Vec<StateVariable> {
    let variable = |name: String, value: String| StateVariable { name, value: value.into(), may_be_unset: false };
    vec![
        variable(names::best_node(prefix), best.map_or_else(|| "none".to_owned(), ToString::to_string)),
        variable(names::best_score(prefix), format!("{score:.0}")),
        variable(names::fallback(prefix), if fallback_active { "1" } else { "0" }.to_owned()),
    ]
}

/// The state in the word that dialplans read; under a pin, what that makes of it.
#[must_use]
pub fn word(machine: &Machine, pin: Option<Pin>) -> &'static str {
    match pin.map(Pin::standing) {
        None => {}
        Some(Standing::Usual) => return "good",
        Some(Standing::Last) => return "last",
        Some(Standing::Blocked) => return "blocked",
    }
    match (machine.state(), machine.standing()) {
        (State::Good, _) => "good",
        (_, Standing::Last) => "last",
        (_, Standing::Blocked) => "blocked",
        (State::Retry, Standing::Usual) => "retry",
        (State::Bad, Standing::Usual) => match machine.settings().bad_quality_action {
            BadQualityAction::NotifyOnly => "bad",
            BadQualityAction::MakeLast => "last",
            BadQualityAction::Block => "blocked",
        },
    }
}
