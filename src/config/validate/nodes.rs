//! The PBXs.

use secrecy::SecretString;

use super::credentials::{PASSWORD, Sources};
use super::{Check, tables};
use crate::config::de::Located;
use crate::config::model::{Node, Profile, Tls};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::secret::shown;
use crate::config::tree::PlaceId;
use crate::config::{Purpose, environment};
use crate::pbx::PbxKind;

/// Longest address that an edge is given: a host name has at most 253 characters, and there may be a port.
const MAX_SIP_ADDRESS: usize = 260;

impl<'a> Check<'a> {
    /// The nodes that have at least an id, with their places.
    pub(super) fn nodes(&mut self) -> Vec<(Node, PlaceId)> {
        let raw = self.raw;
        let none = raw.nodes.is_absent() || raw.nodes.get().is_some_and(Vec::is_empty);
        if none && self.purpose == Purpose::Connect {
            let lines = ["id", "kind", "address", "password"].iter().zip([
                "\"pbx-01\"",
                "\"freeswitch\"",
                "\"127.0.0.1:8021\"",
                "\"...\"",
            ]);
            let lines: Vec<_> = lines.map(|(key, value)| self.write(key, value)).collect();
            let help = format!("add an entry to `nodes`: {}", lines.join(", "));
            self.note(Draft::warning(Mark::File, "no node is configured: there is no PBX to watch").help(help));
        }
        self.unique("nodes", tables(&raw.nodes).filter_map(|(node, _)| node.id.placed()));
        let nodes: Vec<_> =
            tables(&raw.nodes).filter_map(|(node, place)| Some((self.node(node, place)?, place))).collect();
        self.one_node_per_address();
        nodes
    }

    fn one_node_per_address(&mut self) {
        let raw = self.raw;
        let mut seen: Vec<(&str, PlaceId)> = Vec::new();
        for (address, place) in tables(&raw.nodes).filter_map(|(node, _)| node.address.placed()) {
            match seen.iter().find(|(known, _)| known.eq_ignore_ascii_case(address)) {
                None => seen.push((address, place)),
                Some((_, first)) => {
                    let message = format!("two nodes have the address {address}: each of its calls would count twice");
                    let draft = Draft::error(Mark::Value(place), message).label("used again here");
                    self.note(draft.also(Mark::Value(*first), "first used here"));
                }
            }
        }
    }

    fn node(&mut self, raw: &'a raw::Node, place: PlaceId) -> Option<Node> {
        let id = self.required(&raw.id, place, "id", "this node", "\"pbx-01\"");
        let whose = id.map_or_else(|| "this node".to_owned(), |id| format!("the node `{id}`"));
        let kind = self.required(&raw.kind, place, "kind", &whose, "\"freeswitch\" or \"asterisk\"").copied();
        let port = if kind == Some(PbxKind::Asterisk) { "\"127.0.0.1:5038\"" } else { "\"127.0.0.1:8021\"" };
        let address = self.required(&raw.address, place, "address", &whose, port).cloned();
        if let Some((address, place)) = raw.address.placed() {
            self.address(address, place);
        }
        let username = self.username(raw, kind, place, &whose);
        let connect = self.purpose == Purpose::Connect;
        let password = if connect { self.node_password(raw, place, &whose) } else { None };
        let tls = self.tls(raw, kind);
        self.only_for(
            PbxKind::Asterisk,
            kind,
            raw.astdb.placed().filter(|(on, _)| **on).map(|(_, place)| place),
            "astdb",
        );
        self.only_for(PbxKind::FreeSwitch, kind, raw.loss_detection.place, "loss_detection");
        let max_calls = self.bounded(&raw.max_calls, "max_calls", 1..=1_000_000);
        let max_calls_per_sec = self.max_calls_per_sec(raw);
        let cores = self.cores(raw, place, &whose);
        let sip_address = self.sip_address(raw);
        Some(Node {
            id: id?.clone(),
            kind: kind?,
            address: address.unwrap_or_default(),
            username,
            password: password.unwrap_or_default(),
            max_calls: max_calls.and_then(|most| u32::try_from(most).ok()),
            max_calls_per_sec,
            local: raw.local.get().copied().unwrap_or(false),
            cores,
            sip_address,
            tls,
            slots: raw.slots.get().copied().unwrap_or(kind == Some(PbxKind::FreeSwitch)),
            astdb: raw.astdb.get().copied().unwrap_or(false) && kind == Some(PbxKind::Asterisk),
            strict_loss_detection: raw.loss_detection.get() == Some(&raw::LossDetection::Strict),
        })
    }

    fn max_calls_per_sec(&mut self, raw: &raw::Node) -> Option<f64> {
        let place = raw.max_calls_per_sec.place?;
        if self.profile() == Some(Profile::Weighted) {
            let message = "`max_calls_per_sec` has no effect: it is for `scoring` with the profile \"health\"";
            self.note(Draft::warning(Mark::Key(place), message));
        }
        self.above(&raw.max_calls_per_sec, "max_calls_per_sec", 0.0, 100_000.0)
    }

    /// The cores that the load average is divided by, where it is.
    fn cores(&mut self, raw: &raw::Node, place: PlaceId, whose: &str) -> Option<u32> {
        let per_core = self.raw.scoring.get().map(|scoring| &scoring.load_per_core);
        let broken = self.raw.scoring.is_broken() || per_core.is_some_and(Located::is_broken);
        match (per_core.and_then(Located::get).is_some_and(|on| *on), raw.cores.place) {
            (false, Some(cores)) if !broken => {
                let message = "`cores` has no effect: the load average is not divided by them";
                let help = format!("write {} in `scoring`", self.write("load_per_core", "true"));
                self.note(Draft::warning(Mark::Key(cores), message).help(help));
            }
            (true, None)
                if raw.local.get() != Some(&true)
                    && !raw.local.is_broken()
                    && self.profile() == Some(Profile::Weighted) =>
            {
                let message = format!("`load_per_core` is on, and {whose} has no `cores`: its load cannot be divided");
                let local = self.write("local", "true");
                let help =
                    format!("write {}; where it runs on this machine, {local} will do", self.write("cores", "8"));
                self.note(Draft::warning(Mark::Value(place), message).help(help));
            }
            _ => {}
        }
        let cores = self.bounded(&raw.cores, "cores", 1..=1024)?;
        u32::try_from(cores).ok()
    }

    /// Where an edge sends calls for the node: as written, else the host of its address.
    fn sip_address(&mut self, raw: &raw::Node) -> String {
        let Some((address, place)) = raw.sip_address.placed() else {
            let address = raw.address.get().map(String::as_str).unwrap_or_default();
            return address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
        };
        let good =
            (1..=MAX_SIP_ADDRESS).contains(&address.len()) && address.bytes().all(|byte| byte.is_ascii_graphic());
        if !good {
            let draft = Draft::error(Mark::Value(place), format!("`sip_address` cannot be {:?}", shown(address)));
            let help = "write it like \"pbx-01.example.net\" or \"192.0.2.1:5060\", without blanks";
            self.note(draft.label("expected HOST or HOST:PORT").help(help));
        }
        address.clone()
    }

    /// Warns of a key that has no effect on that kind of PBX.
    fn only_for(&mut self, wanted: PbxKind, kind: Option<PbxKind>, place: Option<PlaceId>, key: &str) {
        if let (Some(place), Some(kind)) = (place, kind)
            && kind != wanted
        {
            let name = if wanted == PbxKind::Asterisk { "Asterisk" } else { "FreeSWITCH" };
            self.note(Draft::warning(Mark::Key(place), format!("`{key}` has no effect here: it is for {name} only")));
        }
    }

    fn address(&mut self, address: &str, place: PlaceId) {
        if let Err(help) = check_address(address) {
            let draft = Draft::error(Mark::Value(place), format!("`address` cannot be {:?}", shown(address)));
            self.note(draft.label("expected HOST:PORT").help(help));
        }
    }

    fn username(&mut self, raw: &'a raw::Node, kind: Option<PbxKind>, place: PlaceId, whose: &str) -> Option<String> {
        if kind == Some(PbxKind::Asterisk) {
            self.required(&raw.username, place, "username", whose, "\"pointsman\"");
        }
        let (username, place) = raw.username.placed()?;
        self.credential(username, place, "username");
        Some(username.clone())
    }

    fn node_password(&mut self, raw: &'a raw::Node, place: PlaceId, whose: &str) -> Option<SecretString> {
        let (file, variable) = (&raw.password_file, &raw.password_env);
        let sources = Sources { kind: &PASSWORD, itself: &raw.password, file, variable };
        let step = raw.id.get().map_or_else(|| "ID".to_owned(), |id| environment::step_name(id.as_str()));
        self.secret(&sources, place, whose, &format!("NODES__{step}"))
    }

    fn tls(&mut self, raw: &'a raw::Node, kind: Option<PbxKind>) -> Option<Tls> {
        let on = raw.tls.get().copied().unwrap_or(false);
        if let Some(place) = raw.tls.place.filter(|_| on && kind == Some(PbxKind::FreeSwitch)) {
            let draft = Draft::error(Mark::Key(place), "FreeSWITCH's event socket has no TLS");
            self.note(draft.help("leave `tls` out; across machines, use a tunnel"));
        }
        for (key, place) in [("tls_ca_file", raw.tls_ca_file.place), ("tls_server_name", raw.tls_server_name.place)] {
            if let Some(place) = place.filter(|_| !on && (raw.tls.is_absent() || raw.tls.get().is_some())) {
                let help = format!("write {}", self.write("tls", "true"));
                self.note(Draft::warning(Mark::Key(place), format!("`{key}` has no effect without `tls`")).help(help));
            }
        }
        if !on {
            return None;
        }
        if let Some((name, place)) = raw.tls_server_name.placed()
            && rustls_pki_types::ServerName::try_from(name.as_str()).is_err()
        {
            self.note(Draft::error(Mark::Value(place), "`tls_server_name` must be a host name or an IP address"));
        }
        let ca_file = raw.tls_ca_file.placed().map(|(path, place)| {
            let path = self.path(path);
            if self.purpose == Purpose::Connect {
                self.ca_file(&path, place);
            }
            path
        });
        Some(Tls { ca_file, server_name: raw.tls_server_name.get().cloned() })
    }
}

/// Whether the text is `host:port`; what to write instead, where it is not.
fn check_address(address: &str) -> Result<(), String> {
    let help = "write it like \"127.0.0.1:8021\", \"pbx.example.net:5038\" or \"[::1]:8021\"";
    if address.contains("://") {
        return Err(format!("leave the scheme out: {help}"));
    }
    let (host, port) = address.rsplit_once(':').ok_or(help)?;
    match port.parse::<u16>() {
        Ok(0) | Err(_) => return Err(format!("the port must be from 1 to 65535: {help}")),
        Ok(_) => {}
    }
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good = match bracketed {
        Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    };
    if good { Ok(()) } else { Err(help.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:8021", "pbx-01.example.net:5038", "[::1]:8021", "localhost:1"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        for bad in
            ["127.0.0.1", ":8021", "::1:8021", "tcp://a:1", "a:0", "a:65536", "a:b", "a b:1", "[x]:1", "a\n:1", ""]
        {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }
}
