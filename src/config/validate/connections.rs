//! The owners and their connections.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Check, tables};
use crate::call::outcome::{CauseTable, Outcome};
use crate::config::de::Located;
use crate::config::model::{Connection, Customer, Node};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;
use crate::ids::NodeId;
use crate::pbx::PbxKind;

/// Longest name of a gateway or an endpoint; Asterisk keeps channel names in 80 bytes.
const MAX_NAME: usize = 80;

impl<'a> Check<'a> {
    pub(super) fn customers(&mut self) -> Vec<Customer> {
        let raw = self.raw;
        self.unique("customers", tables(&raw.customers).filter_map(|(customer, _)| customer.id.placed()));
        tables(&raw.customers).filter_map(|(customer, place)| self.customer(customer, place)).collect()
    }

    fn customer(&mut self, raw: &'a raw::Customer, place: PlaceId) -> Option<Customer> {
        let id = self.required(&raw.id, place, "id", "this customer", "\"acme\"");
        let email = self.addresses(&raw.email);
        let time_zone = self.time_zone(&raw.time_zone);
        if let Some((name, place)) = raw.name.placed() {
            self.plain_text(name, place, "name");
        }
        Some(Customer {
            id: id?.clone(),
            name: raw.name.get().cloned(),
            email,
            language: raw.language.get().copied().unwrap_or_default(),
            time_zone,
        })
    }

    /// The connections that have at least an id, with their places.
    pub(super) fn connections(&mut self, nodes: &[(Node, PlaceId)]) -> Vec<(Connection, PlaceId)> {
        let raw = self.raw;
        if raw.connections.is_absent() || raw.connections.get().is_some_and(Vec::is_empty) {
            self.note(Draft::warning(Mark::File, "no connection is configured: calls are seen, but nothing is judged"));
        }
        self.unique("connections", tables(&raw.connections).filter_map(|(connection, _)| connection.id.placed()));
        self.ids_apart_by_case(
            "connections",
            tables(&raw.connections).filter_map(|(raw, _)| raw.id.placed()).map(|(id, place)| (id.as_str(), place)),
        );
        let shared = self.causes(&raw.causes);
        let mut connections = Vec::new();
        for (connection, place) in tables(&raw.connections) {
            let quality = self.quality(connection);
            let causes = self.causes(&connection.causes);
            let customer = self.customer_of(connection);
            let names = self.names(connection, nodes);
            let id = self.required(&connection.id, place, "id", "this connection", "\"vendor-a\"");
            let Some(id) = id.cloned() else { continue };
            let causes = Arc::new(cause_table(&shared, &causes));
            let judge_per = self.judge_per(connection);
            connections.push((Connection { id, customer, names, quality, causes, judge_per }, place));
        }
        self.unused_thresholds();
        self.nobody_to_notify(&connections);
        self.names_apart(nodes, &connections);
        connections
    }

    fn customer_of(&mut self, raw: &'a raw::Connection) -> Option<crate::ids::CustomerId> {
        let (customer, place) = raw.customer.placed()?;
        let customers = &self.raw.customers;
        let known = tables(customers).filter_map(|(customer, _)| Some(customer.id.get()?.as_str()));
        if !known.clone().any(|known| known == customer.as_str()) {
            self.unknown("customer", customer.as_str(), Mark::Value(place), known);
        }
        Some(customer.clone())
    }

    fn names(&mut self, raw: &'a raw::Connection, nodes: &[(Node, PlaceId)]) -> BTreeMap<NodeId, String> {
        let mut names = BTreeMap::new();
        for (node, name) in raw.names.get().into_iter().flatten() {
            let Some((name, place)) = name.placed() else { continue };
            let Some((node, _)) = nodes.iter().find(|(known, _)| known.id.as_str() == node) else {
                self.unknown_node(node, place);
                continue;
            };
            if let Err(why) = check_name(name, node.kind) {
                let shown: String = name.chars().take(80).collect();
                self.note(Draft::error(
                    Mark::Value(place),
                    format!("{shown:?} cannot be a name on {}: {why}", node.id),
                ));
            }
            names.insert(node.id.clone(), name.clone());
        }
        names
    }

    /// Notes a node, named in a key, that is not there.
    pub(super) fn unknown_node(&mut self, node: &str, place: PlaceId) {
        let nodes = &self.raw.nodes;
        let known = tables(nodes).filter_map(|(node, _)| Some(node.id.get()?.as_str()));
        // Nodes that could not be read are not unknown: their own mistakes have been noted.
        if !known.clone().any(|known| known == node) {
            self.unknown("node", node, Mark::Key(place), known);
        }
    }

    /// Two connections must not have the same name on one node: their calls could not be told apart.
    fn names_apart(&mut self, nodes: &[(Node, PlaceId)], connections: &[(Connection, PlaceId)]) {
        for (node, _) in nodes {
            let mut seen: HashMap<&str, &(Connection, PlaceId)> = HashMap::new();
            for connection in connections {
                let name = connection.0.name_on(&node.id);
                let Some(first) = seen.insert(name, connection) else { continue };
                if first.0.id == connection.0.id {
                    continue;
                }
                let message =
                    format!("`{}` and `{}` are both called {name:?} on {}", first.0.id, connection.0.id, node.id);
                let draft = Draft::error(self.name_mark(connection, &node.id), message).label("the second");
                self.note(draft.also(self.name_mark(first, &node.id), "the first"));
            }
        }
    }

    /// Where the name of a connection on that node stands: in `names`, or its id.
    fn name_mark(&self, connection: &(Connection, PlaceId), node: &NodeId) -> Mark {
        let raw = tables(&self.raw.connections).find(|(_, place)| *place == connection.1).map(|(raw, _)| raw);
        let name = raw.and_then(|raw| raw.names.get()?.get(node.as_str())?.place);
        Mark::Value(name.or(raw.and_then(|raw| raw.id.place)).unwrap_or(connection.1))
    }

    /// Ids that differ in case alone give the same variable: names of variables have no case on FreeSWITCH.
    pub(super) fn ids_apart_by_case<'i>(&mut self, what: &str, ids: impl Iterator<Item = (&'i str, PlaceId)>) {
        let mut seen: HashMap<String, (&str, PlaceId)> = HashMap::new();
        for (id, place) in ids {
            if let Some((first, first_place)) =
                seen.insert(id.to_ascii_lowercase(), (id, place)).filter(|(first, _)| *first != id)
            {
                let message = format!(
                    "the {what} `{first}` and `{id}` differ in case alone, and FreeSWITCH takes their variables for the same"
                );
                self.note(Draft::error(Mark::Value(place), message).also(Mark::Value(first_place), "the first"));
            }
        }
    }

    fn causes(&mut self, raw: &'a Located<raw::Causes>) -> Overrides {
        let raw = raw.get();
        let sip = raw
            .and_then(|raw| raw.sip.get())
            .map(|table| self.cause_entries(table, 400..=699, "a refusing SIP status, 400 to 699"));
        let q850 = raw
            .and_then(|raw| raw.q850.get())
            .map(|table| self.cause_entries(table, 0..=127, "a Q.850 cause, 0 to 127"));
        Overrides { sip: sip.unwrap_or_default(), q850: q850.unwrap_or_default() }
    }

    fn cause_entries(
        &mut self,
        table: &BTreeMap<String, Located<Outcome>>,
        bounds: std::ops::RangeInclusive<u16>,
        what: &str,
    ) -> BTreeMap<u16, Outcome> {
        let mut entries = BTreeMap::new();
        for (number, outcome) in table {
            let Some((outcome, place)) = outcome.placed() else { continue };
            let Some(number) = number.parse::<u16>().ok().filter(|number| bounds.contains(number)) else {
                let shown: String = number.chars().take(40).collect();
                self.note(Draft::error(Mark::Key(place), format!("{shown:?} is not {what}")));
                continue;
            };
            if !CONFIGURABLE.contains(outcome) {
                let draft = Draft::error(Mark::Value(place), "an answer cannot stand for this outcome");
                self.note(draft.help(
                    "use \"busy\", \"no_answer\", \"rejected\", \"number_invalid\", \"vendor_failed\" or \"not_sent\"",
                ));
            }
            entries.insert(number, *outcome);
        }
        entries
    }
}

/// Outcomes that an answer of the far end can stand for; the others are decided by what happened to the call.
const CONFIGURABLE: &[Outcome] = &[
    Outcome::Busy,
    Outcome::NoAnswer,
    Outcome::Rejected,
    Outcome::NumberInvalid,
    Outcome::VendorFailed,
    Outcome::NotSent,
];

/// What the configuration says of answers.
#[derive(Default)]
struct Overrides {
    sip: BTreeMap<u16, Outcome>,
    q850: BTreeMap<u16, Outcome>,
}

/// The default table with what the file says for all, and above it what one connection says.
fn cause_table(shared: &Overrides, own: &Overrides) -> CauseTable {
    let above = |shared: &BTreeMap<u16, Outcome>, own: &BTreeMap<u16, Outcome>| {
        shared.iter().chain(own).map(|(number, outcome)| (*number, *outcome)).collect()
    };
    CauseTable::with_overrides(above(&shared.sip, &own.sip), above(&shared.q850, &own.q850))
}

/// Whether a PBX of that kind could have a trunk of that name, and a dialplan could read it from a list.
fn check_name(name: &str, kind: PbxKind) -> Result<(), String> {
    let legal = |c: char| match kind {
        PbxKind::FreeSwitch => c.is_ascii_alphanumeric() || "_.-".contains(c),
        PbxKind::Asterisk => c.is_ascii_alphanumeric() || "_.-@+: ".contains(c),
    };
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!("it must have 1 to {MAX_NAME} bytes"));
    }
    if name.trim() != name {
        return Err("it must not begin or end with a blank".to_owned());
    }
    if let Some((_, peer)) = name.rsplit_once('/').filter(|_| kind == PbxKind::Asterisk) {
        return Err(format!("leave the technology out, as in {peer:?}"));
    }
    match name.chars().find(|c| !legal(*c)) {
        None => Ok(()),
        Some(c) if kind == PbxKind::FreeSwitch => {
            Err(format!("gateway names have letters, digits, '_', '-' and '.', not {c:?}"))
        }
        Some(c) => Err(format!("{c:?} has a meaning in dialplans")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_a_list() {
        for good in ["trunk-a", "a.b_c"] {
            assert_eq!(check_name(good, PbxKind::FreeSwitch), Ok(()));
            assert_eq!(check_name(good, PbxKind::Asterisk), Ok(()));
        }
        assert_eq!(check_name("old peer@host", PbxKind::Asterisk), Ok(()));
        for bad in ["", "PJSIP/a", "a,b", "a\r\nb", "${x}", "a;b", " a", "a|b", "a\"b", "a=b"] {
            assert!(check_name(bad, PbxKind::FreeSwitch).is_err(), "{bad}");
            assert!(check_name(bad, PbxKind::Asterisk).is_err(), "{bad}");
        }
    }
}
