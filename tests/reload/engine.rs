//! The engine without its driver, given another configuration.

use std::path::Path;
use std::sync::Arc;

use pointsman::config::{Config, Format, Purpose, load_text};
use pointsman::engine::core::Engine;
use pointsman::engine::effect::Effect;
use pointsman::engine::request::{By, NewConfig, Refused, Request};
use pointsman::engine::view::{ConnectionView, LinkView, VariablesView, View};
use pointsman::ids::{ConnectionId, LegId, MapId, QualityKey};
use pointsman::pbx::event::PbxEvent;
use pointsman::pbx::freeswitch::{Disposition, FsEvent, FsKind};
use pointsman::quality::machine::State;
use pointsman::quality::pin::Pin;
use pointsman::routing::rule::Measure;
use pointsman::store::{LegRow, Restored, StoreOp};
use pointsman::time::Timestamp;

const TOP: &str = r#"
nodes = [{ id = "fs", kind = "freeswitch", address = "127.0.0.1:8021", password = "x" }]
quality = { monitor_asr = true, asr_threshold_percent = 60, statistics_window = 3, retry_batch = 2, retry_interval_sec = 600 }
"#;
const INTL: &str = r#"
[[route_maps]]
id = "intl"
prefixes = ["00"]
entries = [{ connection = "vendor-a", priority = 10 }, { connection = "vendor-b", priority = 20 }]
"#;
const HOME: &str = r#"
[[route_maps]]
id = "home"
prefixes = [""]
entries = [{ connection = "vendor-a", priority = 10 }]
"#;

/// A configuration with these connections and these tables.
fn config(connections: &[&str], tables: &[&str]) -> Arc<Config> {
    let connections = connections.iter().map(|text| match text.split_once(' ') {
        Some((id, more)) => format!("[[connections]]\nid = \"{id}\"\n{more}\n"),
        None => format!("[[connections]]\nid = \"{text}\"\n"),
    });
    let text = TOP.to_owned() + &connections.collect::<String>() + &tables.concat();
    match load_text(Path::new("x.toml"), &text, Format::Toml, [], Purpose::Connect) {
        Ok(loaded) => Arc::new(loaded.config),
        Err(problems) => panic!("{}", problems.render(false)),
    }
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(1_796_014_300 + secs)
}

fn key(connection: &str, map: Option<&str>) -> QualityKey {
    QualityKey { connection: ConnectionId::new(connection).unwrap(), map: map.map(|map| MapId::new(map).unwrap()) }
}

/// An engine, and the calls of its node.
struct Played {
    engine: Engine,
    now: i64,
    calls: u32,
    /// What was stored of the legs that are up.
    stored: Vec<LegRow>,
}

impl Played {
    fn with(config: &Arc<Config>) -> Self {
        let mut engine = Engine::new(config.clone(), Restored::default(), at(0));
        engine.apply(0, &PbxEvent::Linked, at(0));
        Self { engine, now: 0, calls: 0, stored: Vec::new() }
    }

    fn event(&mut self, kind: FsKind, leg: &str, change: impl FnOnce(&mut FsEvent)) {
        let mut event = FsEvent {
            kind,
            leg: LegId::new(leg),
            outbound: Some(true),
            gateway: None,
            caller: None,
            number: None,
            map: None,
            at: None,
            created: None,
            progress: None,
            early_media: None,
            answered: None,
            hung_up: None,
            delay_sec: 0,
            cause: None,
            cause_name: None,
            disposition: None,
            sip_status: None,
            recovered: false,
        };
        change(&mut event);
        self.engine.apply(0, &PbxEvent::FreeSwitch(Box::new(event)), at(self.now));
        self.effects();
    }

    fn effects(&mut self) -> Vec<Effect> {
        let effects = self.engine.take_effects();
        for effect in &effects {
            match effect {
                Effect::Store(StoreOp::LegUp(row)) => {
                    self.stored.retain(|leg| leg.leg != row.leg);
                    self.stored.push((**row).clone());
                }
                Effect::Store(StoreOp::LegGone(_, gone)) => self.stored.retain(|leg| leg.leg != *gone),
                _ => {}
            }
        }
        effects
    }

    /// A call over `gateway` to `number`; a second goes by.
    fn place(&mut self, gateway: &str, number: &str) -> String {
        self.calls += 1;
        self.now += 1;
        let (leg, created) = (format!("leg-{}", self.calls), at(self.now));
        self.event(FsKind::Created, &leg, |event| {
            event.gateway = Some(gateway.into());
            event.number = Some(number.into());
            event.created = Some(created);
        });
        leg
    }

    fn end(&mut self, leg: &str, good: bool) {
        self.now += 1;
        let now = self.now;
        self.event(FsKind::Destroyed, leg, |event| {
            event.hung_up = Some(at(now));
            event.answered = good.then(|| at(now - 1));
            event.disposition = Some(if good { Disposition::Bye } else { Disposition::RecvRefuse });
            event.sip_status = (!good).then_some(503);
        });
    }

    fn calls(&mut self, gateway: &str, number: &str, outcomes: &[bool]) {
        for good in outcomes {
            let leg = self.place(gateway, number);
            self.end(&leg, *good);
        }
    }

    fn ask(&mut self, request: Request) {
        self.engine.request(request, at(self.now)).unwrap();
    }

    fn reload(&mut self, config: &Arc<Config>) -> Vec<Effect> {
        self.ask(Request::Configure(NewConfig(config.clone())));
        self.effects()
    }

    fn view(&mut self) -> View {
        self.engine.view(&[LinkView::default()], &[VariablesView::default()], at(self.now))
    }

    fn connection(&mut self, connection: &str, map: Option<&str>) -> ConnectionView {
        let found = self.view().connections.into_iter().find(|one| one.key == key(connection, map));
        found.unwrap_or_else(|| panic!("no {connection}"))
    }

    fn keys(&mut self) -> Vec<String> {
        self.view().connections.iter().map(|one| one.key.to_string()).collect()
    }
}

fn by() -> By {
    By::new("somebody", "").unwrap()
}

#[test]
fn what_a_reload_does_not_change_goes_on_as_if_nothing_had_been() {
    let mut played = Played::with(&config(&["vendor-a", "vendor-b"], &[INTL, HOME]));
    let early = played.place("vendor-a", "001");
    played.calls("vendor-a", "001", &[false; 3]);
    played.calls("vendor-b", "001", &[true, false]);
    let up = played.place("vendor-b", "001");
    let pin = Request::Pin { key: key("vendor-b", None), pin: Some(Pin::PinLast), until: None, by: by() };
    played.ask(pin);
    let before = (played.connection("vendor-a", None), played.connection("vendor-b", None));
    assert_eq!((before.0.state, before.0.active_calls, before.1.active_calls), (State::Bad, 1, 1));

    // Others come, before and between them, and the maps change places.
    played.reload(&config(&["vendor-0", "vendor-b", "vendor-a", "vendor-c"], &[HOME, INTL]));
    assert_eq!((played.connection("vendor-a", None), played.connection("vendor-b", None)), before);
    assert_eq!(played.keys(), ["vendor-0", "vendor-b", "vendor-a", "vendor-c"]);

    // The call that was placed before vendor-a was lowered has no say in its batch; one that is placed now has.
    played.end(&early, true);
    assert_eq!(played.connection("vendor-a", None).batch_done, Some(0));
    played.calls("vendor-a", "001", &[true]);
    assert_eq!(played.connection("vendor-a", None).batch_done, Some(1));
    played.end(&up, true);
    let b = played.connection("vendor-b", None);
    assert_eq!((b.figures.calls, b.active_calls, b.pinned.is_some()), (3, 0, true));
    assert!(played.stored.is_empty(), "{:?}", played.stored);

    // And the deadline is the one that it had.
    let retry_at = before.0.retry_at.unwrap();
    assert_eq!(played.connection("vendor-a", None).retry_at, Some(retry_at));
    played.engine.fire(retry_at);
    assert_eq!(played.connection("vendor-a", None).state, State::Retry);
}

#[test]
fn a_connection_that_goes_and_comes_back_is_as_it_was() {
    let (with, without) = (config(&["vendor-a", "vendor-b"], &[INTL]), config(&["vendor-b"], &[]));
    let mut played = Played::with(&with);
    played.calls("vendor-a", "001", &[false; 3]);
    let up = played.place("vendor-a", "001");
    let before = played.connection("vendor-a", None);
    played.reload(&without);
    assert_eq!(played.keys(), ["vendor-b"]);
    assert!(played.stored.is_empty(), "nobody waits for the end of its call");
    played.end(&up, true);
    played.calls("vendor-a", "001", &[true]);
    assert_eq!(played.view().unknown_trunks[0].attempts, 1);
    played.now += 100;
    played.reload(&with);
    assert_eq!(played.view().unknown_trunks, []);
    let after = played.connection("vendor-a", None);
    assert_eq!(
        (after.state, after.retry_at, &after.calls.window, after.batch_done, after.active_calls),
        (State::Bad, before.retry_at, &before.calls.window, Some(0), 0)
    );
}

#[test]
fn new_thresholds_judge_by_what_is_known_and_say_so() {
    let mut played = Played::with(&config(
        &["vendor-a"],
        &[INTL.replace("vendor-b", "vendor-a").replace(", { connection = \"vendor-a\", priority = 20 }", "").as_str()],
    ));
    played.calls("vendor-a", "001", &[false; 3]);
    assert_eq!(played.connection("vendor-a", None).state, State::Bad);
    // Not monitored any more: good at once.
    let effects = played.reload(&config(&["vendor-a quality = { monitor_asr = false }"], &[]));
    assert_eq!(played.connection("vendor-a", None).state, State::Good);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Publish(change) if change.change.to == State::Good)));
}

#[test]
fn verdicts_per_map_begin_with_their_maps_and_the_one_over_all_is_taken_up_again() {
    let whole = config(&["vendor-a", "vendor-b"], &[INTL, HOME]);
    let per_map = config(&["vendor-a quality = { judge_per = \"map\" }", "vendor-b"], &[INTL, HOME]);
    let mut played = Played::with(&whole);
    played.calls("vendor-a", "001", &[false; 3]);
    let (intl, home) = (played.place("vendor-a", "001"), played.place("vendor-a", "49"));
    played.reload(&per_map);
    assert_eq!(played.keys(), ["vendor-a (intl)", "vendor-a (home)", "vendor-b"]);
    for map in ["intl", "home"] {
        let seat = played.connection("vendor-a", Some(map));
        assert_eq!((seat.state, seat.figures.calls, seat.active_calls), (State::Good, 0, 1), "{map}");
    }
    // The calls that were up are each in the map that they were placed for.
    played.end(&intl, false);
    assert_eq!(played.connection("vendor-a", Some("intl")).figures.calls, 1);
    played.calls("vendor-a", "001", &[false; 2]);
    assert_eq!(played.connection("vendor-a", Some("intl")).state, State::Bad);
    assert_eq!(played.connection("vendor-a", Some("home")).state, State::Good);

    played.reload(&whole);
    let seat = played.connection("vendor-a", None);
    assert_eq!((seat.state, seat.figures.calls, seat.active_calls), (State::Bad, 3, 1));
    played.end(&home, true);
    assert_eq!(played.connection("vendor-a", None).active_calls, 0);
    played.reload(&per_map);
    assert_eq!(played.connection("vendor-a", Some("intl")).state, State::Bad, "as it was left");
}

#[test]
fn after_a_crash_the_calls_that_were_up_are_where_the_reload_put_them() {
    let whole = config(&["vendor-a", "vendor-b"], &[INTL, HOME]);
    let mut played = Played::with(&whole);
    played.calls("vendor-a", "001", &[false; 3]);
    played.place("vendor-a", "001");
    assert!(played.connection("vendor-a", None).key.map.is_none());
    // Judged per map from now on, and the numbers of intl are those of another map.
    let home = HOME.replace("\"\"", "\"00\"");
    let intl = INTL.replace("\"00\"", "\"99\"");
    let now = config(&["vendor-a quality = { judge_per = \"map\" }", "vendor-b"], &[&intl, &home]);
    played.reload(&now);
    assert_eq!(played.connection("vendor-a", Some("intl")).active_calls, 1);

    let restored = Restored { legs: played.stored.clone(), ..Restored::default() };
    played.engine = Engine::new(now, restored, at(played.now));
    assert_eq!(played.connection("vendor-a", Some("intl")).active_calls, 1);
    assert_eq!(played.connection("vendor-a", Some("home")).active_calls, 0);
    assert_eq!(played.stored[0].epoch, Some(pointsman::quality::window::Epoch(0)), "of the seat that it has now");
}

#[test]
fn a_call_that_was_up_when_its_connection_was_called_otherwise_survives_a_crash() {
    let mut played = Played::with(&config(&["vendor-a", "vendor-b"], &[INTL]));
    played.place("vendor-a", "001");
    let renamed = config(&["vendor-a names = { fs = \"trunk-a\" }", "vendor-b"], &[INTL]);
    played.reload(&renamed);
    let restored = Restored { legs: played.stored.clone(), ..Restored::default() };
    played.engine = Engine::new(renamed, restored, at(played.now));
    assert_eq!(played.connection("vendor-a", None).active_calls, 1);
    // Its end is of the connection, whatever the gateway was called.
    played.end("leg-1", false);
    assert_eq!(played.connection("vendor-a", None).figures.calls, 1);
}

#[test]
fn a_map_may_go_while_its_calls_are_up() {
    let mut played = Played::with(&config(&["vendor-a", "vendor-b"], &[INTL, HOME]));
    let leg = played.place("vendor-a", "001");
    let effects = played.reload(&config(&["vendor-a", "vendor-b"], &[HOME]));
    let orders = effects.iter().filter_map(|effect| match effect {
        Effect::Variables { desired, .. } => Some(desired.orders.iter().map(|order| order.list.clone()).collect()),
        _ => None,
    });
    assert_eq!(orders.collect::<Vec<Vec<String>>>(), [["pm_route_home"]]);
    played.end(&leg, true);
    assert_eq!(played.connection("vendor-a", None).figures.calls, 1, "the connection is judged by it all the same");

    // Judged per map, a call whose map is gone is judged nowhere.
    let per_map = |maps: &[&str]| config(&["vendor-a quality = { judge_per = \"map\" }", "vendor-b"], maps);
    let mut played = Played::with(&per_map(&[INTL, HOME]));
    let leg = played.place("vendor-a", "001");
    played.reload(&per_map(&[HOME]));
    played.end(&leg, false);
    let seat = played.connection("vendor-a", Some("home"));
    assert_eq!((seat.figures.calls, seat.unmapped), (0, 1));
    played.reload(&per_map(&[INTL, HOME]));
    assert_eq!(played.connection("vendor-a", Some("intl")).unmapped, 1, "the count goes on");
}

#[test]
fn what_the_rules_learnt_begins_anew_also_where_nothing_has_changed() {
    let rule = "[[routing_rules]]\nid = \"r\"\nsuccess_percent = { enabled = true, weight = 20, latency = 4, compensation = 1 }\n";
    let ruled = INTL.replace("prefixes", "rule = \"r\"\nprefixes");
    let config = config(&["vendor-a", "vendor-b"], &[rule, &ruled]);
    let mut played = Played::with(&config);
    played.calls("vendor-a", "001", &[false]);
    played.calls("vendor-b", "001", &[true]);
    let order = |played: &mut Played| {
        let map = played.view().maps[0].clone();
        let estimates = map.routes.iter().map(|route| route.criteria[&Measure::SuccessPercent].estimate);
        (map.hunt_order.iter().map(ToString::to_string).collect::<Vec<_>>(), estimates.collect::<Vec<_>>())
    };
    assert_eq!(order(&mut played).0, ["vendor-b", "vendor-a"]);
    let stored = played.reload(&config).into_iter().filter_map(|effect| match effect {
        Effect::Store(StoreOp::Learnt(map, learnt)) => Some((map.to_string(), learnt.is_some())),
        _ => None,
    });
    assert_eq!(stored.collect::<Vec<_>>(), [("intl".to_owned(), false), ("intl".to_owned(), true)]);
    assert_eq!(order(&mut played), (vec!["vendor-a".to_owned(), "vendor-b".to_owned()], vec![None, None]));
}

#[test]
fn a_pin_on_a_connection_holds_in_each_of_its_maps_when_those_are_judged_by_themselves() {
    let whole = config(&["vendor-a", "vendor-b"], &[INTL, HOME]);
    let per_map = config(&["vendor-a quality = { judge_per = \"map\" }", "vendor-b"], &[INTL, HOME]);
    let pin = |map, pin| Request::Pin { key: key("vendor-a", map), pin, until: None, by: by() };
    let mut played = Played::with(&whole);
    played.ask(pin(None, Some(Pin::PinBlock)));
    played.effects();
    let effects = played.reload(&per_map);
    for map in ["intl", "home"] {
        let pinned = played.connection("vendor-a", Some(map)).pinned.map(|pinned| pinned.pin);
        assert_eq!(pinned, Some(Pin::PinBlock), "{map}");
    }
    assert_eq!(played.view().maps[0].hunt_order, [ConnectionId::new("vendor-b").unwrap()]);
    let mut stored: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Store(StoreOp::Pin(key, pinned)) => Some((key.to_string(), pinned.is_some())),
            _ => None,
        })
        .collect();
    stored.sort();
    let expected = [("vendor-a", false), ("vendor-a (home)", true), ("vendor-a (intl)", true)];
    assert_eq!(stored, expected.map(|(key, pinned)| (key.to_owned(), pinned)));
    // Also where the change comes with a restart.
    let mut played = Played::with(&whole);
    played.ask(pin(None, Some(Pin::PinLast)));
    let pinned = played.connection("vendor-a", None).pinned.unwrap();
    let restored = Restored { pins: vec![(key("vendor-a", None), pinned)], ..Restored::default() };
    played.engine = Engine::new(per_map, restored, at(1));
    assert!(played.connection("vendor-a", Some("home")).pinned.is_some());
    // And each can be taken off.
    played.ask(pin(Some("home"), None));
    assert!(played.connection("vendor-a", Some("home")).pinned.is_none());
    assert!(played.connection("vendor-a", Some("intl")).pinned.is_some());
}

#[test]
fn an_operator_who_names_no_map_or_one_too_many_hears_which_there_are() {
    let tables = [INTL, HOME];
    let mut played = Played::with(&config(&["vendor-a quality = { judge_per = \"map\" }", "vendor-b"], &tables));
    for (connection, map, expected) in [
        ("vendor-a", None, "vendor-a is judged per map: name one of intl, home"),
        ("vendor-a", Some("x"), "vendor-a is judged per map: name one of intl, home"),
        ("vendor-b", Some("intl"), "vendor-b is judged over all maps: name none"),
        ("vendor-c", None, "there is no connection vendor-c"),
    ] {
        for request in [
            Request::Reset { key: key(connection, map), by: by() },
            Request::Pin { key: key(connection, map), pin: Some(Pin::PinLast), until: None, by: by() },
        ] {
            assert_eq!(played.engine.request(request, at(1)).unwrap_err().to_string(), expected);
        }
    }
}

#[test]
fn other_nodes_are_refused() {
    let mut played = Played::with(&config(&["vendor-a"], &[]));
    let text = TOP.replace("id = \"fs\"", "id = \"other\"");
    let other = load_text(Path::new("x.toml"), &text, Format::Toml, [], Purpose::Connect).unwrap().config;
    let refused = played.engine.request(Request::Configure(NewConfig(Arc::new(other))), at(1));
    assert!(matches!(refused, Err(Refused::Illegal(_))));
    assert_eq!(played.keys(), ["vendor-a"]);
}
