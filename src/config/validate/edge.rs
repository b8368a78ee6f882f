//! What edges are told, and who may hear it.

use super::Check;
use crate::config::model::{Edge, EdgeGroup, Member, Node};
use crate::ids::GroupId;

/// The group where none is configured.
const ALL: &str = "pbx";

/// Where SIP is spoken, where a node's SIP address names no port.
const SIP_PORT: u16 = 5060;

impl Check<'_> {
    /// The groups, and the server where there is one.
    pub(super) fn edge(&mut self, nodes: &[Node]) -> Edge {
        let groups = GroupId::new(ALL).into_iter().map(|id| all_nodes(id, nodes)).collect();
        Edge { groups, xds: None }
    }
}

fn all_nodes(id: GroupId, nodes: &[Node]) -> EdgeGroup {
    let members = nodes.iter().map(|node| {
        let (host, port) = split(&node.sip_address);
        Member { node: node.id.clone(), host: host.to_owned(), port: port.unwrap_or(SIP_PORT) }
    });
    EdgeGroup { cluster: id.to_string(), id, members: members.collect(), listener: None, fail_open: true }
}

/// Host and port of an address; one of IPv6 has brackets where it has a port.
fn split(address: &str) -> (&str, Option<u16>) {
    let bare = |host: &'_ str| host.trim_start_matches('[').trim_end_matches(']').len();
    match address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) if !host.contains(':') || bare(host) < host.len() => {
            (host.trim_start_matches('[').trim_end_matches(']'), Some(port))
        }
        _ => (address.trim_start_matches('[').trim_end_matches(']'), None),
    }
}
