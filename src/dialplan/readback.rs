//! What the variables of a route map hold on each node, read back from the PBX, beside what they should hold. What
//! `test-dialplan` and the pages show.
//!
//! It asks over the same link and in the same queue as the writes, a few at a time and for one reader at a time, so a
//! curious operator is no burden to a switch. A write may be under way while it reads; what does not agree is therefore
//! read again before it is called a difference.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};

use crate::dialplan::apply::Wanted;
use crate::dialplan::desired::{Desired, Order, StateVariable};
use crate::dialplan::names;
use crate::engine::view::{LinkState, LinkView, MapView};
use crate::ids::{MapId, NodeId};
use crate::pbx::PbxKind;
use crate::pbx::command::{Command, CommandError, Commander, Reply};

/// Reads under way at a time on a node.
const PIPELINED: usize = 16;

/// Places in the queue of commands that a read leaves free for the variables.
const KEPT_FOR_WRITES: usize = 256;

/// How often differing variables are looked at before they are called different, and the pause between two looks: a write
/// takes some milliseconds, and a repeated comparison some seconds.
const LOOKS: usize = 3;
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// Longest that a node is waited for; whoever asked waits ten seconds.
const PATIENCE: Duration = Duration::from_secs(6);

/// Longest wait for another reader to be done.
const TURN: Duration = Duration::from_secs(2);

/// A node that can be asked.
#[derive(Clone, Debug)]
pub struct Probe {
    pub(super) node: NodeId,
    pub(super) kind: PbxKind,
    pub(super) wanted: watch::Receiver<Wanted>,
    pub(super) link: watch::Receiver<LinkView>,
    pub(super) commander: Commander,
}

/// All nodes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    prefix: Arc<str>,
    nodes: Arc<[Probe]>,
    turn: Arc<Mutex<()>>,
}

/// The variables of a map on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeVariables {
    /// The node.
    pub node: NodeId,
    /// What it runs.
    pub kind: PbxKind,
    /// Whether every variable holds what it should.
    pub agrees: bool,
    /// Why they could not be read; empty where they were.
    pub problem: String,
    /// The variables, those of the order first.
    pub variables: Vec<VariableSeen>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct VariableSeen {
    /// Its name.
    pub name: String,
    /// What it should hold; `None`: it should not be set.
    pub wanted: Option<String>,
    /// What it holds; `None`: it is not set, or was not read.
    pub held: Option<String>,
    /// Whether that is as it should be.
    pub agrees: bool,
}

/// A node that a map concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Concerned {
    /// The node.
    pub node: NodeId,
    /// What it runs.
    pub kind: PbxKind,
    /// Whether each connection of an order has a variable of its own there.
    pub slots: bool,
}

/// Somebody else is reading, and takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another test-dialplan is reading the variables; try again in a moment")]
pub struct Busy;

impl Probes {
    /// Those of all nodes, in the order configured; `prefix` is that of the variables.
    #[must_use]
    pub fn new(prefix: &str, nodes: Vec<Probe>) -> Self {
        Self { prefix: prefix.into(), nodes: nodes.into(), turn: Arc::default() }
    }

    /// The prefix of the variables.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The nodes that the map concerns, in the order configured. Asks no PBX.
    #[must_use]
    pub fn concerned(&self, map: &MapId) -> Vec<Concerned> {
        let list = names::route(&self.prefix, map);
        let concerned = |probe: &Probe| {
            let slots = probe.wanted.borrow().desired.orders.iter().find(|order| order.list == list)?.slots;
            Some(Concerned { node: probe.node.clone(), kind: probe.kind, slots })
        };
        self.nodes.iter().filter_map(concerned).collect()
    }

    /// Reads what the nodes that the map concerns hold of it.
    ///
    /// # Errors
    /// [`Busy`] where somebody else is reading.
    pub async fn read(&self, map: &MapView) -> Result<Vec<NodeVariables>, Busy> {
        let _turn = timeout(TURN, self.turn.lock()).await.map_err(|_| Busy)?;
        let states = self.states_of(map);
        let read = self.nodes.iter().map(|probe| probe.read(&self.prefix, &map.id, &states));
        Ok(join_all(read).await.into_iter().flatten().collect())
    }

    /// The names that the states of the map's connections have: judged as a whole, or within this map.
    fn states_of(&self, map: &MapView) -> Vec<String> {
        let connections = map.routes.iter().map(|route| &route.connection);
        let names = connections.flat_map(|connection| {
            [names::connection(&self.prefix, connection), names::connection_in(&self.prefix, connection, &map.id)]
        });
        names.collect()
    }
}

impl Probe {
    /// `None` where the map does not concern the node.
    async fn read(&self, prefix: &str, map: &MapId, states: &[String]) -> Option<NodeVariables> {
        let list = names::route(prefix, map);
        expected(&self.wanted.borrow().desired, &list, states)?;
        let seen = match timeout(PATIENCE, self.look(&list, states)).await {
            Ok(seen) => seen,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        let (variables, problem) = match seen {
            Ok(variables) => (variables, String::new()),
            Err(problem) => {
                let wanted = expected(&self.wanted.borrow().desired, &list, states).unwrap_or_default();
                (wanted.into_iter().map(|wanted| wanted.seen(None, false)).collect(), problem)
            }
        };
        let agrees = problem.is_empty() && variables.iter().all(|variable| variable.agrees);
        Some(NodeVariables { node: self.node.clone(), kind: self.kind, agrees, problem, variables })
    }

    async fn look(&self, list: &str, states: &[String]) -> Result<Vec<VariableSeen>, String> {
        let mut look = 1;
        loop {
            let wanted = expected(&self.wanted.borrow().desired, list, states).unwrap_or_default();
            let variables = self.read_all(wanted).await?;
            if look == LOOKS || variables.iter().all(|variable| variable.agrees) {
                return Ok(variables);
            }
            look += 1;
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn read_all(&self, wanted: Vec<Expected>) -> Result<Vec<VariableSeen>, String> {
        let mut seen = Vec::with_capacity(wanted.len());
        let mut wanted = wanted.into_iter().peekable();
        while wanted.peek().is_some() {
            if self.commander.room() < KEPT_FOR_WRITES {
                return Err("too many commands are waiting for the PBX".to_owned());
            }
            let read =
                |variable: &Expected| self.commander.submit(Command::GetVariable { name: variable.name.clone() });
            let asked: Vec<_> = wanted.by_ref().take(PIPELINED).map(|variable| (read(&variable), variable)).collect();
            for (answer, variable) in asked {
                let held = match answer.await.unwrap_or(Err(CommandError::LinkLost)) {
                    Ok(Reply::Value(held)) => held,
                    Ok(Reply::Done) => None,
                    Err(error) => return Err(self.words(&error)),
                };
                let agrees = variable.agrees(held.as_deref());
                seen.push(variable.seen(held, agrees));
            }
        }
        Ok(seen)
    }

    fn words(&self, error: &CommandError) -> String {
        let link = self.link.borrow();
        match error {
            CommandError::NotConnected if link.state != LinkState::Up && !link.reason.is_empty() => {
                format!("{error}: {}", link.reason)
            }
            _ => error.to_string(),
        }
    }
}

/// A variable and what it should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    name: String,
    value: Option<String>,
    /// Not being set is as good.
    may_be_unset: bool,
}

impl Expected {
    fn set(name: String, value: String) -> Self {
        Self { name, value: Some(value), may_be_unset: false }
    }

    /// Asterisk cannot tell a variable that is empty from one that is not set.
    fn agrees(&self, held: Option<&str>) -> bool {
        let held = held.filter(|held| !held.is_empty());
        held == self.value.as_deref() || (held.is_none() && self.may_be_unset)
    }

    fn seen(self, held: Option<String>, agrees: bool) -> VariableSeen {
        VariableSeen { name: self.name, wanted: self.value, held, agrees }
    }
}

/// The variables of the map whose list is called so: of its order, then of the states named. `None` where the node has no
/// such map.
fn expected(desired: &Desired, list: &str, states: &[String]) -> Option<Vec<Expected>> {
    let order = desired.orders.iter().find(|order| order.list == list)?;
    let state = |state: &StateVariable| Expected {
        name: state.name.clone(),
        value: Some(state.value.clone().into_owned()),
        may_be_unset: state.may_be_unset,
    };
    let states = desired.states.iter().filter(|variable| states.contains(&variable.name)).map(state);
    Some(of_order(order).into_iter().chain(states).collect())
}

fn of_order(order: &Order) -> Vec<Expected> {
    let list = (!order.trunks.is_empty()).then(|| order.trunks.join(","));
    let mut all = vec![
        Expected { name: order.list.clone(), value: list, may_be_unset: false },
        Expected::set(order.count.clone(), order.trunks.len().to_string()),
    ];
    if order.slots {
        let slots = order.trunks.iter().enumerate();
        all.extend(slots.map(|(place, trunk)| Expected::set(order.slot(place + 1), trunk.clone())));
        // A reader goes on to the first slot that is not set.
        let end = order.slot(order.trunks.len() + 1);
        all.push(Expected { name: end, value: None, may_be_unset: false });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(trunks: &[&str], slots: bool) -> Order {
        let trunks = trunks.iter().map(ToString::to_string).collect();
        Order { list: "pm_route_m".into(), count: "pm_route_m_count".into(), trunks, slots }
    }

    #[test]
    fn every_variable_of_the_map_is_looked_at_and_none_of_others() {
        let state = |name: &str, value: &'static str, may_be_unset| StateVariable {
            name: name.into(),
            value: value.into(),
            may_be_unset,
        };
        let desired = Desired {
            orders: vec![order(&["a", "b"], true).into()],
            states: [
                state("pm_conn_a", "last", false),
                state("pm_conn_b", "good", true),
                state("pm_conn_z", "bad", false),
            ]
            .into(),
            ..Desired::default()
        };
        let states = ["pm_conn_a", "pm_conn_a_m", "pm_conn_b"].map(String::from);
        let all = expected(&desired, "pm_route_m", &states).unwrap();
        let all: Vec<_> = all.iter().map(|variable| (variable.name.as_str(), variable.value.as_deref())).collect();
        assert_eq!(
            all,
            [
                ("pm_route_m", Some("a,b")),
                ("pm_route_m_count", Some("2")),
                ("pm_route_m_1", Some("a")),
                ("pm_route_m_2", Some("b")),
                ("pm_route_m_3", None),
                ("pm_conn_a", Some("last")),
                ("pm_conn_b", Some("good")),
            ]
        );
        assert_eq!(expected(&desired, "pm_route_n", &states), None);
    }

    #[test]
    fn an_empty_order_is_not_set_and_good_may_not_be_set() {
        let [list, count] = <[Expected; 2]>::try_from(of_order(&order(&[], false))).unwrap();
        assert!(list.agrees(None) && list.agrees(Some("")) && !list.agrees(Some("a")));
        assert!(count.agrees(Some("0")) && !count.agrees(None));
        let good = Expected { name: String::new(), value: Some("good".into()), may_be_unset: true };
        assert!(good.agrees(None) && good.agrees(Some("good")) && !good.agrees(Some("last")));
    }
}
