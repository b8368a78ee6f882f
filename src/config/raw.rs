//! The configuration as it is written: the names of all keys.
//!
//! Everything may be absent here; what must be there, what goes together and what the defaults are is decided in
//! [`super::validate`], so that one pass can report all of it. Each key is described in `docs/configuration.md` and
//! shown in `config/pointsman.toml`; tests hold both against these structs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::de::Located;
use super::log;
use super::model::{EdgeProtocol, JudgePer, Language, Mode, Profile, Role, Security};
use crate::call::outcome::Outcome;
use crate::ids::{ConnectionId, CustomerId, GroupId, MapId, NodeId, TokenName};
use crate::pbx::PbxKind;
use crate::quality::settings::{BadQualityAction, RetryOverflow};
use crate::routing::WhenAllBlocked;

/// A list of tables, each with its own place.
pub(super) type Tables<T> = Located<Vec<Located<T>>>;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Raw {
    /// The PBXs to watch.
    pub(super) nodes: Tables<Node>,
    /// The owners of connections.
    pub(super) customers: Tables<Customer>,
    /// The vendor connections to judge.
    pub(super) connections: Tables<Connection>,
    /// What calls to which numbers try, in which order.
    pub(super) route_maps: Tables<RouteMap>,
    /// Dynamic routing rules.
    pub(super) routing_rules: Tables<RoutingRule>,
    /// How connections are judged, unless they say otherwise.
    pub(super) quality: Located<Quality>,
    /// Which outcome an answer stands for, unless a connection says otherwise.
    pub(super) causes: Located<Causes>,
    /// How mail is sent.
    pub(super) email: Located<Email>,
    /// Who runs this.
    pub(super) operator: Located<Operator>,
    /// The dialplan variables.
    pub(super) variables: Located<Variables>,
    /// Where state is kept.
    pub(super) storage: Located<Storage>,
    /// The socket of `pointsman status`.
    pub(super) control_socket: Located<PathBuf>,
    /// The log.
    pub(super) log: Located<Log>,
    /// How nodes are scored.
    pub(super) scoring: Located<Scoring>,
    /// How long a node may be silent, in seconds, before it is excluded.
    pub(super) stale_threshold_sec: Located<u64>,
    /// How one of them is chosen.
    pub(super) balancing: Located<Balancing>,
    /// When a node that fails is left alone.
    pub(super) breaker: Located<Breaker>,
    /// The HTTP server.
    pub(super) http: Located<Http>,
    /// The xDS server.
    pub(super) xds: Located<Xds>,
}

/// `[[nodes]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Node {
    /// Its name.
    pub(super) id: Located<NodeId>,
    /// What it runs.
    pub(super) kind: Located<PbxKind>,
    /// Where the event socket or the manager interface listens.
    pub(super) address: Located<String>,
    /// Manager user (Asterisk), or directory user (FreeSWITCH, seldom).
    pub(super) username: Located<String>,
    /// The password itself.
    pub(super) password: Located<SecretString>,
    /// A file whose first line is the password.
    pub(super) password_file: Located<PathBuf>,
    /// An environment variable that holds the password.
    pub(super) password_env: Located<String>,
    /// Most calls that the node should carry.
    pub(super) max_calls: Located<u64>,
    /// Most calls a second that it should be given.
    pub(super) max_calls_per_sec: Located<f64>,
    /// Whether it runs on this machine.
    pub(super) local: Located<bool>,
    /// Its processor cores.
    pub(super) cores: Located<u64>,
    /// Where an edge sends calls for it.
    pub(super) sip_address: Located<String>,
    /// TLS to the manager interface.
    pub(super) tls: Located<bool>,
    /// Certificates to trust instead of the system's.
    pub(super) tls_ca_file: Located<PathBuf>,
    /// Name in the certificate, where it is not the host of the address.
    pub(super) tls_server_name: Located<String>,
    /// Whether each place of a hunt order is a variable of its own.
    pub(super) slots: Located<bool>,
    /// Whether variables are kept in AstDB too.
    pub(super) astdb: Located<bool>,
    /// How a loss of events is found.
    pub(super) loss_detection: Located<LossDetection>,
}

/// How a loss of events is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LossDetection {
    /// By comparison with the PBX's list of calls.
    #[default]
    Audit,
    /// By counting every end of a leg against the PBX's heartbeat.
    Strict,
}

/// `[[customers]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Customer {
    /// Their name in this file.
    pub(super) id: Located<CustomerId>,
    /// What they are called in their mail.
    pub(super) name: Located<String>,
    /// Where their mail goes.
    pub(super) email: Located<Texts>,
    /// The language of their mail.
    pub(super) language: Located<Language>,
    /// The time zone of the times in their mail.
    pub(super) time_zone: Located<String>,
}

/// `[email]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Email {
    /// Who it comes from.
    pub(super) from: Located<String>,
    /// Where answers go.
    pub(super) reply_to: Located<String>,
    /// The mail server.
    pub(super) server: Located<String>,
    /// A local program in its place.
    pub(super) sendmail: Located<PathBuf>,
    /// How the connection to the server is protected.
    pub(super) security: Located<Security>,
    /// User of the server.
    pub(super) username: Located<String>,
    /// The password itself.
    pub(super) password: Located<SecretString>,
    /// A file whose first line is the password.
    pub(super) password_file: Located<PathBuf>,
    /// An environment variable that holds the password.
    pub(super) password_env: Located<String>,
    /// Certificates to trust instead of the system's.
    pub(super) tls_ca_file: Located<PathBuf>,
    /// Name by which we introduce ourselves.
    pub(super) hello_name: Located<String>,
    /// Longest attempt at a delivery.
    pub(super) timeout_sec: Located<u64>,
    /// How long a letter is tried.
    pub(super) give_up_after: Located<String>,
    /// More changes than this make one letter.
    pub(super) digest_after: Located<u64>,
    /// How long a change waits for others.
    pub(super) digest_window_sec: Located<u64>,
    /// Whether digits of called numbers are masked.
    pub(super) mask_numbers: Located<bool>,
    /// The time zone of the times in a letter.
    pub(super) time_zone: Located<String>,
    /// A folder of templates.
    pub(super) templates: Located<PathBuf>,
}

/// `[operator]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Operator {
    /// Where their mail goes.
    pub(super) email: Located<Texts>,
    /// The language of their mail.
    pub(super) language: Located<Language>,
    /// How long a node may be without a link.
    pub(super) node_down_after_sec: Located<u64>,
}

/// `[[connections]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Connection {
    /// Its name.
    pub(super) id: Located<ConnectionId>,
    /// Its owner.
    pub(super) customer: Located<CustomerId>,
    /// What nodes call it, where that is not its id.
    pub(super) names: Located<BTreeMap<String, Located<String>>>,
    /// How it is judged.
    pub(super) quality: Located<Quality>,
    /// Which outcome its answers stand for.
    pub(super) causes: Located<Causes>,
}

/// `[quality]` and `[connections.quality]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Quality {
    /// Whether the average call duration is watched.
    pub(super) monitor_acd: Located<bool>,
    /// Whether the answer-seizure ratio is watched.
    pub(super) monitor_asr: Located<bool>,
    /// Whether the post-dial delay is watched.
    pub(super) monitor_pdd: Located<bool>,
    /// Bad where the average call duration is under this.
    pub(super) acd_threshold_sec: Located<f64>,
    /// Bad where the answer-seizure ratio is under this.
    pub(super) asr_threshold_percent: Located<f64>,
    /// Bad where the post-dial delay is over this.
    pub(super) pdd_threshold_sec: Located<f64>,
    /// How many of the last attempts are looked at.
    pub(super) statistics_window: Located<u64>,
    /// How many attempts are needed for a verdict.
    pub(super) min_calls: Located<u64>,
    /// How long the action applies before the connection gets a retry.
    pub(super) retry_interval_sec: Located<u64>,
    /// How that interval grows with each bad verdict in a row.
    pub(super) retry_backoff: Located<RetryBackoff>,
    /// How many calls a retry is judged by.
    pub(super) retry_batch: Located<u64>,
    /// What happens when all calls of a retry have been placed.
    pub(super) retry_overflow: Located<RetryOverflow>,
    /// What happens to a bad connection.
    pub(super) bad_quality_action: Located<BadQualityAction>,
    /// Whether a connection has one verdict, or one for each route map.
    pub(super) judge_per: Located<JudgePer>,
    /// Whether the owner hears of changes.
    pub(super) notify_on_status_change: Located<bool>,
    /// From which waiting time a caller who gave up without any ringing counts against the vendor (NER).
    pub(super) caller_patience_sec: Located<u64>,
}

/// `retry_backoff`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetryBackoff {
    /// Factor of each step.
    pub(super) factor: Located<f64>,
    /// Longest interval.
    pub(super) max_sec: Located<u64>,
}

/// `[causes]` and `[connections.causes]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Causes {
    /// Outcome by SIP status.
    pub(super) sip: Located<BTreeMap<String, Located<Outcome>>>,
    /// Outcome by Q.850 cause.
    pub(super) q850: Located<BTreeMap<String, Located<Outcome>>>,
}

/// `[[route_maps]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteMap {
    /// Its name.
    pub(super) id: Located<MapId>,
    /// The prefixes that it serves.
    pub(super) prefixes: Located<Texts>,
    /// The dynamic routing rule.
    pub(super) rule: Located<String>,
    /// What a call tries.
    pub(super) entries: Tables<Entry>,
    /// The nodes whose dialplans use it.
    pub(super) nodes: Located<Texts>,
    /// What happens when every connection is blocked.
    pub(super) when_all_blocked: Located<WhenAllBlocked>,
}

/// `route_maps.entries`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Entry {
    /// A connection.
    pub(super) connection: Located<String>,
    /// Another map.
    pub(super) map: Located<String>,
    /// Smaller is tried first.
    pub(super) priority: Located<i64>,
}

/// `[[routing_rules]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RoutingRule {
    /// Its name.
    pub(super) id: Located<String>,
    /// Share of successful calls.
    pub(super) success_percent: Located<Criterion>,
    /// Mean duration of successful calls.
    pub(super) avg_duration_sec: Located<Criterion>,
    /// Share of calls with signalling failures.
    pub(super) signalling_failure_percent: Located<Criterion>,
}

/// A criterion of a routing rule.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Criterion {
    /// Whether it counts.
    pub(super) enabled: Located<bool>,
    /// The most that it adds to a priority.
    pub(super) weight: Located<f64>,
    /// Length of its sample in calls.
    pub(super) latency: Located<u64>,
    /// What a bypassed route gains with each call.
    pub(super) compensation: Located<f64>,
}

/// `[variables]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Variables {
    /// What every name starts with.
    pub(super) prefix: Located<String>,
    /// How often the PBX's values are compared with ours.
    pub(super) reconcile_every_sec: Located<u64>,
    /// How long a value in AstDB is valid.
    pub(super) astdb_expiry_sec: Located<u64>,
}

/// `[storage]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Storage {
    /// The SQLite file.
    pub(super) path: Located<PathBuf>,
    /// How long history is kept.
    pub(super) keep_days: Located<u64>,
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Log {
    /// What to log.
    pub(super) filter: Located<String>,
    /// How to log.
    pub(super) format: Located<log::Format>,
}

/// `[scoring]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Scoring {
    /// Which weighting.
    pub(super) profile: Located<Profile>,
    /// Idle CPU, in percent, under which a node is excluded.
    pub(super) idle_cpu_min: Located<f64>,
    /// Failure rate, in percent, over which a node is excluded.
    pub(super) call_failure_rate_lethal: Located<f64>,
    /// Weights of the parts of a score.
    pub(super) weights: Located<Weights>,
    /// Whether the load average is divided by the cores.
    pub(super) load_per_core: Located<bool>,
    /// Over how many attempts a node's failure rate goes.
    pub(super) failure_window: Located<u64>,
    /// How many of them are needed to judge it.
    pub(super) failure_min_calls: Located<u64>,
    /// A node with a lower score is skipped.
    pub(super) min_score: Located<f64>,
    /// The answer when every node is excluded.
    pub(super) fallback_node: Located<NodeId>,
    /// Reply time that counts as none left.
    pub(super) latency_limit_ms: Located<f64>,
}

/// `[scoring.weights]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Weights {
    /// Calls against `max_calls`.
    pub(super) call_score: Located<f64>,
    /// Load average.
    pub(super) load_score: Located<f64>,
    /// Idle CPU.
    pub(super) idle_score: Located<f64>,
    /// Failed calls.
    pub(super) fail_score: Located<f64>,
}

/// `[balancing]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Balancing {
    /// How a node is chosen, where a question does not say.
    pub(super) mode: Located<Mode>,
    /// How long an answer counts as a call.
    pub(super) lease_sec: Located<u64>,
}

/// `[breaker]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Breaker {
    /// Failures in a row that open it.
    pub(super) failures: Located<u64>,
    /// A reply that takes longer is a failure.
    pub(super) timeout_sec: Located<u64>,
    /// How long it stays open the first time.
    pub(super) open_sec: Located<u64>,
    /// Longest that it stays open.
    pub(super) open_max_sec: Located<u64>,
}

/// `[http]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Http {
    /// Whether there is a server.
    pub(super) enabled: Located<bool>,
    /// Where it listens.
    pub(super) listen: Located<String>,
    /// Who may use it.
    pub(super) tokens: Tables<Token>,
}

/// `[[http.tokens]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Token {
    /// Who has it.
    pub(super) name: Located<TokenName>,
    /// What it allows.
    pub(super) role: Located<Role>,
    /// The token itself.
    pub(super) token: Located<SecretString>,
    /// A file whose first line is the token.
    pub(super) token_file: Located<PathBuf>,
    /// An environment variable that holds the token.
    pub(super) token_env: Located<String>,
}

/// `[xds]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Xds {
    /// Whether there is a server.
    pub(super) enabled: Located<bool>,
    /// Where it listens.
    pub(super) listen: Located<String>,
    /// Its certificate.
    pub(super) tls_cert_file: Located<PathBuf>,
    /// The key of that.
    pub(super) tls_key_file: Located<PathBuf>,
    /// Who signs the certificates that clients must show.
    pub(super) tls_client_ca_file: Located<PathBuf>,
    /// Who may subscribe.
    pub(super) tokens: Tables<XdsToken>,
    /// What edges are told.
    pub(super) groups: Tables<XdsGroup>,
}

/// `[[xds.tokens]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct XdsToken {
    /// Who has it.
    pub(super) name: Located<TokenName>,
    /// The token itself.
    pub(super) token: Located<SecretString>,
    /// A file whose first line is the token.
    pub(super) token_file: Located<PathBuf>,
    /// An environment variable that holds the token.
    pub(super) token_env: Located<String>,
}

/// `[[xds.groups]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct XdsGroup {
    /// Its name.
    pub(super) id: Located<GroupId>,
    /// The name of its cluster.
    pub(super) cluster: Located<String>,
    /// Its nodes.
    pub(super) nodes: Located<Texts>,
    /// The port of all of them.
    pub(super) port: Located<u64>,
    /// The port of one of them.
    pub(super) ports: Located<BTreeMap<String, Located<u64>>>,
    /// The IP address of one of them.
    pub(super) addresses: Located<BTreeMap<String, Located<String>>>,
    /// Whether somebody is told as healthy when no node takes calls.
    pub(super) fail_open: Located<bool>,
    /// Where Envoy is to listen.
    pub(super) listener: Located<XdsListener>,
}

/// `xds.groups.listener`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct XdsListener {
    /// Its address.
    pub(super) listen: Located<String>,
    /// What comes in there.
    pub(super) protocol: Located<EdgeProtocol>,
}

/// One text, or a list of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts(pub(super) Vec<Located<String>>);

/// Name by which [`Texts`] says that one text will do as well.
pub(super) const TEXTS: &str = "pointsman::Texts";

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(TEXTS, TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a list of texts")
    }

    fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
        Ok(Texts(vec![Located { place: None, value: Some(text.to_owned()) }]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = seq.next_element()? {
            texts.push(text);
        }
        Ok(Texts(texts))
    }
}
