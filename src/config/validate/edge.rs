//! What edges are told: the groups of nodes, and where each node of them is.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::{Check, beyond_loopback, tables, texts};
use crate::config::Format;
use crate::config::de::Located;
use crate::config::model::{Edge, EdgeGroup, EdgeListener, Http, Member, Node};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::secret::shown;
use crate::config::tree::PlaceId;
use crate::ids::GroupId;

/// The group where none is configured.
const ALL: &str = "pbx";

/// Where SIP is spoken, where a node's SIP address names no port.
const SIP_PORT: u16 = 5060;

/// The port in examples of a listener.
const EXAMPLE_PORT: u16 = 7443;

/// Longest name of a cluster: it stands in every message about it.
const MAX_CLUSTER: usize = 200;

/// A group, with where its cluster and its listener are written.
struct Placed {
    group: EdgeGroup,
    cluster: PlaceId,
    listen: Option<PlaceId>,
}

/// A node of a group, with where it is named and where its address is written.
struct Sited {
    member: Member,
    place: PlaceId,
    source: PlaceId,
}

/// A table by nodes.
type ByNode<T> = Located<BTreeMap<String, Located<T>>>;

impl<'a> Check<'a> {
    /// The groups, and the server where there is one.
    pub(super) fn edge(&mut self, nodes: &[Node], http: Option<&Http>) -> Edge {
        let Some((raw, place)) = self.raw.xds.placed() else {
            return Edge { groups: all_nodes(nodes), xds: None };
        };
        let xds = self.xds(raw, http);
        let listen = xds.as_ref().map(|xds| xds.listen);
        if tables(&raw.groups).next().is_some() {
            return Edge { groups: self.groups(raw, nodes, listen), xds };
        }
        let mut groups = all_nodes(nodes);
        for group in &mut groups {
            let sited = nodes.iter().map(|node| self.sited(node, place)).collect();
            group.members = self.told(sited, "an entry of `xds.groups`", listen);
        }
        Edge { groups, xds }
    }

    fn groups(&mut self, raw: &'a raw::Xds, nodes: &[Node], listen: Option<SocketAddr>) -> Vec<EdgeGroup> {
        self.unique("groups", tables(&raw.groups).filter_map(|(group, _)| group.id.placed()));
        let groups: Vec<Placed> =
            tables(&raw.groups).filter_map(|(group, place)| self.group(group, place, nodes, listen)).collect();
        self.clusters_apart(&groups);
        let listeners = groups.iter().filter_map(|group| group.group.listener.as_ref().zip(group.listen));
        self.once(listeners.map(|(listener, place)| (&listener.listen, place)), |listen| {
            format!("two groups have their listener on {listen}")
        });
        groups.into_iter().map(|group| group.group).collect()
    }

    fn group(
        &mut self,
        raw: &'a raw::XdsGroup,
        place: PlaceId,
        nodes: &[Node],
        listen: Option<SocketAddr>,
    ) -> Option<Placed> {
        let id = self.required(&raw.id, place, "id", "this group", "\"wss\"");
        let whose = id.map_or_else(|| "this group".to_owned(), |id| format!("the group `{id}`"));
        let cluster = self.cluster(raw);
        let port = self.port(&raw.port, "port");
        let ports = self.ports(raw, &whose);
        let addresses = self.node_addresses(raw, &whose);
        let mut sited = Vec::new();
        for (node, place) in self.nodes_of_group(raw, place, nodes, &whose) {
            let mut one = self.sited(node, place);
            if let Some(port) = ports.get(node.id.as_str()).copied().or(port) {
                one.member.port = port;
            }
            if let Some((ip, source)) = addresses.get(node.id.as_str()) {
                one = Sited { member: Member { host: ip.to_string(), ..one.member }, source: *source, ..one };
            }
            sited.push(one);
        }
        let members = self.told(sited, &whose, listen);
        let listener = self.listener(&raw.listener);
        let (cluster, at) = cluster?;
        let group = EdgeGroup {
            id: id?.clone(),
            cluster,
            members,
            listener: listener.map(|(listener, _)| listener),
            fail_open: raw.fail_open.get().copied().unwrap_or(true),
        };
        Some(Placed { group, cluster: at, listen: listener.map(|(_, place)| place) })
    }

    /// The name of a group's cluster, with its place.
    fn cluster(&mut self, raw: &raw::XdsGroup) -> Option<(String, PlaceId)> {
        if raw.cluster.is_absent() {
            return raw.id.placed().map(|(id, place)| (id.to_string(), place));
        }
        let (cluster, place) = raw.cluster.placed()?;
        // It stands behind `xds:///`, where `?`, `#` and `%` have a meaning, and for itself, where `*` and `xdstp:` do.
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:|/".contains(&byte);
        let good = (1..=MAX_CLUSTER).contains(&cluster.len()) && cluster.bytes().all(legal);
        if !good || cluster.starts_with("xdstp:") {
            let draft = Draft::error(Mark::Value(place), format!("`cluster` cannot be {:?}", shown(cluster)));
            let help = format!("write 1 to {MAX_CLUSTER} letters, digits, '-', '_', '.', ':', '|' and '/'");
            self.note(draft.help(help));
        }
        Some((cluster.clone(), place))
    }

    /// The nodes of a group, each with where it is named; all of them where none is.
    fn nodes_of_group<'n>(
        &mut self,
        raw: &'a raw::XdsGroup,
        place: PlaceId,
        nodes: &'n [Node],
        whose: &str,
    ) -> Vec<(&'n Node, PlaceId)> {
        let Some((list, at)) = raw.nodes.placed() else { return nodes.iter().map(|node| (node, place)).collect() };
        if list.0.is_empty() {
            let help = "name the nodes, or leave `nodes` out: then they are all in it";
            self.note(Draft::error(Mark::Value(at), format!("{whose} has no node")).help(help));
        }
        self.once(texts(&raw.nodes), |node| format!("`{node}` is in {whose} twice"));
        let mut named: Vec<(&Node, PlaceId)> = Vec::new();
        for (node, at) in texts(&raw.nodes) {
            if !self.is_node(node) {
                let known = tables(&self.raw.nodes).filter_map(|(node, _)| Some(node.id.get()?.as_str()));
                self.unknown("node", node, Mark::Value(at), known);
            }
            if named.iter().all(|(known, _)| known.id.as_str() != node) {
                named.extend(nodes.iter().find(|known| known.id.as_str() == node).map(|node| (node, at)));
            }
        }
        named
    }

    fn is_node(&self, name: &str) -> bool {
        tables(&self.raw.nodes).any(|(node, _)| node.id.get().is_some_and(|id| id.as_str() == name))
    }

    fn ports(&mut self, raw: &'a raw::XdsGroup, whose: &str) -> HashMap<&'a str, u16> {
        self.only_of_group(&raw.ports, raw, whose);
        let ports = raw.ports.get().into_iter().flatten();
        ports.filter_map(|(node, port)| Some((node.as_str(), self.port(port, "ports")?))).collect()
    }

    fn port(&mut self, port: &Located<u64>, key: &str) -> Option<u16> {
        self.bounded(port, key, 1..=u64::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
    }

    fn node_addresses(&mut self, raw: &'a raw::XdsGroup, whose: &str) -> HashMap<&'a str, (IpAddr, PlaceId)> {
        self.only_of_group(&raw.addresses, raw, whose);
        let mut addresses = HashMap::new();
        for (node, address) in raw.addresses.get().into_iter().flatten() {
            let Some((text, place)) = address.placed() else { continue };
            if let Some(ip) = ip(text) {
                addresses.insert(node.as_str(), (ip, place));
                continue;
            }
            let draft = Draft::error(Mark::Value(place), format!("`addresses` cannot be {:?}", shown(text)));
            let help = "write it like \"192.0.2.2\" or \"2001:db8::2\"; a port goes into `ports`";
            self.note(draft.label("expected the IP address of a node").help(help));
        }
        addresses
    }

    /// Notes keys that are no nodes of the group.
    fn only_of_group<T>(&mut self, table: &'a ByNode<T>, raw: &'a raw::XdsGroup, whose: &str) {
        let all = raw.nodes.get().is_none();
        for (node, value) in table.get().into_iter().flatten() {
            let Some(place) = value.place else { continue };
            match texts(&raw.nodes).any(|(named, _)| named == node) {
                true => {} // Where there is no such node, that has been noted.
                false if !all && self.is_node(node) => {
                    let draft = Draft::error(Mark::Key(place), format!("`{node}` is not in {whose}"));
                    self.note(draft.help("add it to `nodes`, or leave this out"));
                }
                false => self.unknown_node(node, place),
            }
        }
    }

    /// A node as its own configuration has it.
    fn sited(&self, node: &Node, place: PlaceId) -> Sited {
        let raw = tables(&self.raw.nodes).find(|(raw, _)| raw.id.get() == Some(&node.id));
        let source = raw.and_then(|(raw, _)| raw.sip_address.place.or(raw.address.place));
        Sited { member: member(node), place, source: source.unwrap_or(place) }
    }

    /// What an xDS server tells of the nodes: IP addresses, each with its port once. Without one any host will do.
    fn told(&mut self, sited: Vec<Sited>, whose: &str, listen: Option<SocketAddr>) -> Vec<Member> {
        let Some(listen) = listen else { return sited.into_iter().map(|one| one.member).collect() };
        let mut seen: HashMap<SocketAddr, Sited> = HashMap::new();
        let mut members = Vec::new();
        for Sited { member, place, source } in sited {
            let Some(ip) = ip(&member.host) else {
                self.no_ip(&member, place, source, whose);
                continue;
            };
            if ip.to_canonical().is_loopback() && beyond_loopback(listen) {
                let message =
                    format!("edges on other machines are told that `{}` is at {ip}: that is themselves", member.node);
                let draft =
                    Draft::warning(Mark::Value(place), message).also(Mark::Value(source), "its address is this");
                self.note(draft.help(self.ways_to_an_address(&member, whose)));
            }
            let member = Member { host: ip.to_string(), ..member };
            let at = SocketAddr::new(ip, member.port);
            match seen.get(&at) {
                Some(first) => self.same_place(first, &member, place, at, whose),
                None => {
                    seen.insert(at, Sited { member: member.clone(), place, source });
                }
            }
            members.push(member);
        }
        members
    }

    fn no_ip(&mut self, member: &Member, place: PlaceId, source: PlaceId, whose: &str) {
        let Member { node, host, .. } = member;
        if host.is_empty() {
            return; // That it has no address has been noted.
        }
        let message = format!("edges are told IP addresses alone, and `{node}` has none: {:?}", shown(host));
        let draft = Draft::error(Mark::Value(place), message).also(Mark::Value(source), "its address is this");
        self.note(draft.help(self.ways_to_an_address(member, whose)));
    }

    fn ways_to_an_address(&self, member: &Member, whose: &str) -> String {
        let entry = self.write_for("addresses", member, "\"192.0.2.2\"");
        format!("write {entry} in {whose}, or an IP address as `sip_address` of the node")
    }

    fn same_place(&mut self, first: &Sited, member: &Member, place: PlaceId, at: SocketAddr, whose: &str) {
        let message =
            format!("`{}` and `{}` are both at {at}: an edge refuses such a list", first.member.node, member.node);
        let draft = Draft::error(Mark::Value(place), message);
        let draft = if first.place == place { draft } else { draft.also(Mark::Value(first.place), "the other one") };
        let (port, address) =
            (self.write_for("ports", member, "5061"), self.write_for("addresses", member, "\"192.0.2.2\""));
        self.note(draft.help(format!("write {port} or {address} in {whose}")));
    }

    /// An entry of a table by nodes in the language of the file.
    fn write_for(&self, key: &str, Member { node, .. }: &Member, value: &str) -> String {
        match self.format {
            Format::Toml => self.write(key, &format!("{{ \"{node}\" = {value} }}")),
            Format::Json | Format::Yaml => self.write(key, &format!("{{ \"{node}\": {value} }}")),
        }
    }

    fn listener(&mut self, raw: &'a Located<raw::XdsListener>) -> Option<(EdgeListener, PlaceId)> {
        let (raw, place) = raw.placed()?;
        self.required(&raw.listen, place, "listen", "this listener", "\"0.0.0.0:7443\"");
        let (text, place) = raw.listen.placed()?;
        let listen = self.socket_address(text, place, EXAMPLE_PORT)?;
        if listen.port() == 0 {
            self.note(Draft::error(Mark::Value(place), "nobody would find a listener whose port the edge chooses"));
        }
        Some((EdgeListener { listen, protocol: raw.protocol.get().copied().unwrap_or_default() }, place))
    }

    /// Clusters are known to edges by their names, and so are the listeners that go by them.
    fn clusters_apart(&mut self, groups: &[Placed]) {
        let first_of_id =
            |(at, one): &(usize, &Placed)| groups[..*at].iter().all(|group| group.group.id != one.group.id);
        let clusters = groups.iter().enumerate().filter(first_of_id).map(|(_, one)| (&*one.group.cluster, one.cluster));
        self.once(clusters, |cluster| format!("two groups have the cluster `{cluster}`"));
        for with_listener in groups.iter().filter(|group| group.group.listener.is_some()) {
            let id = &with_listener.group.id;
            let name = format!("{}-listener", with_listener.group.cluster);
            for Placed { cluster, .. } in groups.iter().filter(|group| group.group.cluster == name) {
                let message = format!("the cluster cannot be `{name}`: that is the listener of the group `{id}`");
                let draft = Draft::error(Mark::Value(*cluster), message);
                self.note(draft.also(Mark::Value(with_listener.cluster), "it has its name from here"));
            }
        }
    }
}

fn all_nodes(nodes: &[Node]) -> Vec<EdgeGroup> {
    let group = |id: GroupId| EdgeGroup {
        cluster: id.to_string(),
        id,
        members: nodes.iter().map(member).collect(),
        listener: None,
        fail_open: true,
    };
    GroupId::new(ALL).into_iter().map(group).collect()
}

fn member(node: &Node) -> Member {
    let (host, port) = split(&node.sip_address);
    Member { node: node.id.clone(), host: host.to_owned(), port: port.unwrap_or(SIP_PORT) }
}

/// The address of a single machine.
fn ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|ip: &IpAddr| !ip.is_unspecified() && !ip.is_multicast())
}

/// Host and port of an address; one of IPv6 has brackets where it has a port.
fn split(address: &str) -> (&str, Option<u16>) {
    let port = |port: &str| port.parse().ok().filter(|port| *port != 0);
    let bare = |host: &'_ str| host.trim_start_matches('[').trim_end_matches(']').len();
    match address.rsplit_once(':').and_then(|(host, text)| Some((host, port(text)?))) {
        Some((host, port)) if !host.contains(':') || bare(host) < host.len() => {
            (host.trim_start_matches('[').trim_end_matches(']'), Some(port))
        }
        _ => (address.trim_start_matches('[').trim_end_matches(']'), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_or_has_none() {
        for (address, expected) in [
            ("192.0.2.1", ("192.0.2.1", None)),
            ("192.0.2.1:5080", ("192.0.2.1", Some(5080))),
            ("pbx.example:7443", ("pbx.example", Some(7443))),
            ("2001:db8::1", ("2001:db8::1", None)),
            ("[2001:db8::1]", ("2001:db8::1", None)),
            ("[2001:db8::1]:5061", ("2001:db8::1", Some(5061))),
            ("192.0.2.1:0", ("192.0.2.1:0", None)),
            ("192.0.2.1:65536", ("192.0.2.1:65536", None)),
        ] {
            assert_eq!(split(address), expected, "{address}");
        }
    }
}
