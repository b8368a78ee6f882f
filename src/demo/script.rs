//! The cast and the plot.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::sim::vendor::{Behaviour, Span};

/// What the nodes are called.
pub(super) const FREESWITCH: &str = "freeswitch-1";
pub(super) const ASTERISK: &str = "asterisk-1";

/// Route maps, and the order in which their calls try the vendors.
pub(super) const MAPS: [(&str, &str, [&str; 3]); 3] = [
    ("intl", "00", ["vendor-north", "vendor-south", "vendor-west"]),
    ("mobile", "07", ["vendor-east", "vendor-west", "vendor-south"]),
    ("local", "1", ["vendor-south", "vendor-west", "vendor-north"]),
];

/// The map that has a rule. The story is told of the others, whose orders quality alone changes.
const RULED: &str = "local";

const RULE: &str = r#"
[[routing_rules]]
id = "steady"
success_percent = { enabled = true, weight = 15, latency = 20, compensation = 1 }
avg_duration_sec = { enabled = true, weight = 5, latency = 20, compensation = 1 }
"#;

/// The vendors.
pub(super) const VENDORS: [&str; 4] = ["vendor-north", "vendor-south", "vendor-east", "vendor-west"];

/// Calls that a map gets on a node in a minute.
pub(super) const CALLS_PER_MINUTE: f64 = 8.0;

/// After this the plot begins anew.
pub(super) const PLOT: Duration = Duration::from_mins(20);

/// What the Asterisk calls a vendor: operators rarely name a trunk alike on two switches.
pub(super) fn name_on_asterisk(vendor: &str) -> String {
    vendor.replace("vendor-", "trunk-")
}

/// How a vendor behaves while nothing is wrong with it.
pub(super) fn usual() -> Behaviour {
    let seconds = |from, to| Span::Between(Duration::from_millis(from), Duration::from_millis(to));
    Behaviour { far_end_hangs_up: 0.4, ..Behaviour::answering(0.82) }
        .talking(seconds(15_000, 60_000))
        .ringing_after(seconds(600, 2_400))
        .answering_after(seconds(2_000, 9_000))
}

/// What happens in the plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// A vendor behaves in this way from now on, on every switch.
    Vendor(&'static str, Behaviour),
    /// The Asterisk is restarted.
    RestartAsterisk,
    /// The program itself is stopped and started again.
    RestartProgram,
}

/// Something that happens at a time of the plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cue {
    pub(super) at: Duration,
    pub(super) event: Event,
    pub(super) text: &'static str,
}

/// The plot, in order.
pub(super) fn plot() -> Vec<Cue> {
    let secs = Duration::from_secs;
    let cue = |at, event, text| Cue { at: secs(at), event, text };
    let failing = Behaviour { talk: usual().talk, ..Behaviour::answering(0.12) };
    let slow = usual().ringing_after(Span::Between(secs(9), secs(13)));
    let false_answers =
        Behaviour { fates: Behaviour::good().fates, ..usual().talking(Span::Between(secs(3), secs(6))) };
    vec![
        cue(
            60,
            Event::Vendor("vendor-north", failing),
            "vendor-north begins to fail: it answers one call in eight, most get a 503",
        ),
        cue(150, Event::Vendor("vendor-east", slow), "vendor-east becomes slow: some 10 s pass until anything rings"),
        cue(225, Event::Vendor("vendor-north", usual()), "vendor-north is repaired; nobody tells pointsman"),
        cue(390, Event::Vendor("vendor-east", usual()), "vendor-east is repaired"),
        cue(
            600,
            Event::Vendor("vendor-south", false_answers),
            "vendor-south answers every call with a recording of 5 s",
        ),
        cue(
            765,
            Event::RestartProgram,
            "pointsman itself is stopped and started again: it must not forget vendor-south",
        ),
        cue(870, Event::Vendor("vendor-south", usual()), "vendor-south is repaired"),
        cue(1080, Event::RestartAsterisk, "asterisk-1 is restarted: its calls and all its variables are gone"),
    ]
}

/// The configuration that the program reads.
pub(super) fn configuration(
    directory: &Path,
    listen: SocketAddr,
    freeswitch: SocketAddr,
    asterisk: SocketAddr,
    mail: SocketAddr,
) -> String {
    let path = |name: &str| serde_json::Value::from(directory.join(name).to_string_lossy()).to_string();
    let mut text = format!(
        r#"# Made by `pointsman demo`.
control_socket = {socket}
# The links answer in real time, whatever the clock of the demo does.
stale_threshold_sec = 900

[storage]
path = {database}

[http]
listen = "{listen}"

[[nodes]]
id = "{FREESWITCH}"
kind = "freeswitch"
address = "{freeswitch}"
password = "ClueCon"

[[nodes]]
id = "{ASTERISK}"
kind = "asterisk"
address = "{asterisk}"
username = "pointsman"
password = "ClueCon"

[quality]
monitor_asr = true
asr_threshold_percent = 40
monitor_acd = true
acd_threshold_sec = 12
monitor_pdd = true
pdd_threshold_sec = 6
statistics_window = 20
retry_interval_sec = 120
retry_batch = 10
notify_on_status_change = true

[email]
from = "Quality desk <quality@operator.example>"
server = "{mail}"
security = "none"
digest_window_sec = 10
"#,
        socket = path("control.sock"),
        database = path("demo.db"),
    );
    for vendor in VENDORS {
        let name = name_on_asterisk(vendor);
        let owner = vendor.trim_start_matches("vendor-");
        text += &format!("\n[[customers]]\nid = \"{owner}\"\nemail = \"noc@{owner}.example\"\n");
        text += &format!(
            "\n[[connections]]\nid = \"{vendor}\"\ncustomer = \"{owner}\"\nnames = {{ \"{ASTERISK}\" = \"{name}\" }}\n"
        );
        if vendor == "vendor-east" {
            text += "[connections.quality]\nbad_quality_action = \"block\"\n";
        }
    }
    text += RULE;
    for (map, prefix, vendors) in MAPS {
        let rule = if map == RULED { "rule = \"steady\"\n" } else { "" };
        text += &format!("\n[[route_maps]]\nid = \"{map}\"\nprefixes = [\"{prefix}\"]\n{rule}entries = [\n");
        for (place, vendor) in vendors.iter().enumerate() {
            text += &format!("  {{ connection = \"{vendor}\", priority = {} }},\n", (place + 1) * 10);
        }
        text += "]\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Format, Purpose, load_text};

    #[test]
    fn the_configuration_is_a_good_one() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8021));
        let other = SocketAddr::from(([127, 0, 0, 1], 5038));
        let text = configuration(Path::new("/tmp/a \"b\""), other, address, other, other);
        let loaded = load_text(Path::new("demo.toml"), &text, Format::Toml, [], Purpose::Connect)
            .unwrap_or_else(|p| panic!("{}", p.render(false)));
        assert_eq!(loaded.config.connections.len(), VENDORS.len());
        assert_eq!(loaded.config.route_maps.len(), MAPS.len());
    }

    #[test]
    fn the_plot_is_in_order_and_everything_that_breaks_is_repaired() {
        let plot = plot();
        assert!(plot.is_sorted_by_key(|cue| cue.at));
        assert!(plot.iter().all(|cue| cue.at < PLOT));
        for vendor in VENDORS {
            let last = plot.iter().rev().find_map(|cue| match &cue.event {
                Event::Vendor(name, behaviour) if *name == vendor => Some(behaviour),
                _ => None,
            });
            assert!(last.is_none_or(|behaviour| *behaviour == usual()), "{vendor}");
        }
    }
}
