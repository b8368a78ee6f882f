//! What a dialplan finds in the variables of a PBX, at every single moment.
//!
//! The whole way from attempts to commands is the program's own: configuration, states, hunt orders, desired variables,
//! reconciler. Only the PBX is played here: it carries out one command at a time, some time after it was sent, and its
//! link may break with commands on the way in either direction. After each command the test looks with the eyes of a call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pointsman::call::outcome::Outcome;
use pointsman::config::{Config, Format, Purpose, load_text};
use pointsman::dialplan::desired::{self, Desired};
use pointsman::dialplan::reconcile::{AstDb, Purpose as Why, Reconciler};
use pointsman::ids::QualityKey;
use pointsman::pbx::PbxKind;
use pointsman::pbx::command::{Command, CommandError, CommandResult, Reply};
use pointsman::quality::book::Book;
use pointsman::quality::machine::{Machine, Standing};
use pointsman::quality::window::Sample;
use pointsman::routing::RouteTable;
use pointsman::time::Timestamp;
use proptest::prelude::*;

const CONFIG: &str = r#"
    nodes = [
        { id = "fs", kind = "freeswitch", address = "127.0.0.1:8021", password = "x" },
        { id = "ast", kind = "asterisk", address = "127.0.0.1:5038", username = "u", password = "x", astdb = true },
    ]
    connections = [
        { id = "a" },
        { id = "b", quality = { bad_quality_action = "block" } },
        { id = "c", names = { fs = "gw-c", ast = "trunk-c" } },
        { id = "d", quality = { bad_quality_action = "block", retry_overflow = "withhold" } },
        { id = "e", quality = { bad_quality_action = "notify_only" } },
        { id = "f", quality = { retry_overflow = "withhold" } },
    ]
    quality = { monitor_asr = true, asr_threshold_percent = 50, statistics_window = 1, retry_batch = 2, retry_interval_sec = 5 }
    [[route_maps]]
    id = "intl"
    prefixes = ["00"]
    entries = [
        { connection = "a", priority = 10 },
        { connection = "b", priority = 20 },
        { map = "backup", priority = 30 },
        { connection = "f", priority = 40 },
    ]
    [[route_maps]]
    id = "backup"
    prefixes = [""]
    entries = [
        { connection = "d", priority = 1 },
        { connection = "c", priority = 2 },
        { connection = "e", priority = 3 },
    ]
"#;

const MAPS: [&str; 2] = ["intl", "backup"];

fn config() -> Config {
    let loaded = load_text(Path::new("test.toml"), CONFIG, Format::Toml, [], Purpose::Connect);
    loaded.unwrap_or_else(|problems| panic!("{problems}")).config
}

/// The program's side without its links: attempts in, desired variables out.
struct Program {
    config: Config,
    book: Book,
    routes: RouteTable,
    generation: u64,
    now: Timestamp,
}

impl Program {
    fn new() -> Self {
        let config = config();
        let book = Book::new(config.judged(), Timestamp::default());
        Self { routes: RouteTable::new(&config), book, config, generation: 1, now: Timestamp::default() }
    }

    fn machine(&self, id: &pointsman::ids::ConnectionId) -> Option<&Machine> {
        self.book.get(&QualityKey::connection(id.clone()))
    }

    fn desired(&self, kind: PbxKind) -> Arc<Desired> {
        let standing = |id: &_| self.machine(id).map_or(Standing::Usual, Machine::standing);
        let orders = self.routes.hunt_orders(standing);
        let node = self.config.nodes.iter().find(|node| node.kind == kind).expect("a node of each kind");
        let states = self.book.iter().map(|(key, machine)| (key, desired::word(machine, None)));
        Arc::new(desired::of(&self.config, node, &orders, states, self.generation))
    }

    /// One call over a connection, and the time that passes with it.
    fn call(&mut self, connection: usize, good: bool) {
        self.now = self.now.after(Duration::from_millis(700));
        self.book.fire_due(self.now);
        let id = self.config.connections[connection].id.clone();
        let seat = self.book.seat(&QualityKey::connection(id)).expect("configured");
        let sample = Sample {
            epoch: self.book.placed(seat),
            placed_at: self.now,
            ended_at: self.now,
            outcome: if good { Outcome::Answered } else { Outcome::VendorFailed },
            duration_ms: Some(if good { 1_000 } else { 0 }),
            pdd_ms: None,
            cause: None,
            sip_status: None,
        };
        self.book.finished(seat, &sample, self.now);
        if !self.book.take_moved().is_empty() {
            self.generation += 1;
        }
    }
}

/// A PBX behind a link. Commands wait in `sent` until it carries them out, answers in `answers` until they arrive.
#[derive(Default)]
struct Pbx {
    globals: BTreeMap<String, String>,
    astdb: BTreeMap<String, String>,
    sent: VecDeque<(Why, Command)>,
    answers: VecDeque<(Why, CommandResult)>,
    written: Vec<String>,
}

impl Pbx {
    fn carry_out(&mut self) -> bool {
        let Some((why, command)) = self.sent.pop_front() else { return false };
        let reply = match command {
            Command::SetVariable { name, value } => {
                self.written.push(name.clone());
                drop(self.globals.insert(name, value));
                Reply::Done
            }
            Command::ClearVariable { name } => {
                self.written.push(name.clone());
                drop(self.globals.remove(&name));
                Reply::Done
            }
            Command::GetVariable { name } => Reply::Value(self.globals.get(&name).cloned()),
            Command::PutAstDb { key, value, .. } => {
                drop(self.astdb.insert(key, value));
                Reply::Done
            }
            Command::DeleteAstDb { key, .. } => {
                drop(self.astdb.remove(&key));
                Reply::Done
            }
            Command::Describe(_) | Command::List => panic!("the reconciler asks for no legs"),
        };
        self.answers.push_back((why, Ok(reply)));
        true
    }

    /// The link breaks: what was sent is carried out in part, and no answer arrives.
    fn break_link(&mut self, carried_out: usize, mut after_each: impl FnMut(&Self)) -> Vec<(Why, CommandResult)> {
        for _ in 0..carried_out {
            self.carry_out();
            after_each(self);
        }
        let lost = |why| (why, Err(CommandError::LinkLost));
        let unanswered = self.answers.drain(..).map(|(why, _)| why);
        let undone = self.sent.drain(..).map(|(why, _)| why);
        unanswered.chain(undone).map(lost).collect()
    }

    fn get(&self, name: &str) -> &str {
        self.globals.get(name).map_or("", String::as_str)
    }

    /// The names that a call finds which goes from slot to slot.
    fn by_slots(&self, map: &str) -> BTreeSet<&str> {
        (1..).map_while(|i| self.globals.get(&format!("pm_route_{map}_{i}"))).map(String::as_str).collect()
    }

    /// The names that a call finds which takes as many slots as the count says.
    fn by_count(&self, map: &str) -> BTreeSet<&str> {
        let count: usize = self.get(&format!("pm_route_{map}_count")).parse().unwrap_or(0);
        let slots = (1..=count).filter_map(|i| self.globals.get(&format!("pm_route_{map}_{i}")));
        slots.map(String::as_str).collect()
    }
}

fn trunks(desired: &Desired, map: &str) -> Vec<String> {
    let list = format!("pm_route_{map}");
    desired.orders.iter().find(|order| order.list == list).expect("a map of the test").trunks.clone()
}

/// What a call may find in the variables of one map.
struct Promise {
    map: &'static str,
    /// The orders wanted since the PBX last held all of what was wanted.
    orders: Vec<BTreeSet<String>>,
    lists: Vec<String>,
    in_all: BTreeSet<String>,
    in_any: BTreeSet<String>,
}

impl Promise {
    fn new(map: &'static str, wanted: &[Arc<Desired>]) -> Self {
        let trunks: Vec<Vec<String>> = wanted.iter().map(|desired| trunks(desired, map)).collect();
        let orders: Vec<BTreeSet<String>> = trunks.iter().map(|trunks| trunks.iter().cloned().collect()).collect();
        Self {
            map,
            lists: trunks.iter().map(|trunks| trunks.join(",")).collect(),
            in_all: orders.iter().cloned().reduce(|a, b| a.intersection(&b).cloned().collect()).unwrap_or_default(),
            in_any: orders.iter().flatten().cloned().collect(),
            orders,
        }
    }

    fn check(&self, pbx: &Pbx, kind: PbxKind) {
        let Self { map, lists, orders, in_all, in_any } = self;
        let list = pbx.get(&format!("pm_route_{map}"));
        assert!(lists.iter().any(|wanted| wanted == list), "{map}: the list is {list:?}, never wanted: {lists:?}");
        if kind == PbxKind::Asterisk {
            return;
        }
        for seen in [pbx.by_slots(map), pbx.by_count(map)] {
            let sees_all = |of: &BTreeSet<String>| of.iter().all(|trunk| seen.contains(trunk.as_str()));
            assert!(sees_all(in_all), "{map}: {seen:?} lacks some of {in_all:?}");
            assert!(seen.iter().all(|trunk| in_any.contains(*trunk)), "{map}: {seen:?} is not only of {in_any:?}");
            if let [old, new] = &orders[..] {
                assert!(sees_all(old) || sees_all(new), "{map}: {seen:?} between {old:?} and {new:?}");
            }
        }
    }
}

/// Everything that was wanted since the PBX last held all of what was wanted.
struct Watch {
    kind: PbxKind,
    /// Nothing is promised before the PBX has once been given everything, and of what others write.
    is_armed: bool,
    was_meddled_with: bool,
    wanted: Vec<Arc<Desired>>,
    promises: Vec<Promise>,
}

impl Watch {
    fn new(kind: PbxKind) -> Self {
        Self { kind, is_armed: false, was_meddled_with: false, wanted: vec![], promises: vec![] }
    }

    fn promise(&mut self, wanted: Vec<Arc<Desired>>) {
        self.promises = MAPS.map(|map| Promise::new(map, &wanted)).into();
        self.wanted = wanted;
    }

    fn check(&self, pbx: &Pbx) {
        if self.is_armed {
            self.promises.iter().for_each(|promise| promise.check(pbx, self.kind));
            self.check_generation(pbx);
        }
    }

    /// Whoever sees a new generation finds all that belongs to it. Holds as the generation is written; afterwards the
    /// next order may be on its way already.
    fn check_generation(&self, pbx: &Pbx) {
        if pbx.written.last().is_none_or(|name| name != "pm_generation") {
            return;
        }
        let shown = |desired: &Desired| desired.generation.as_ref().map(|(_, number)| number.to_string());
        let held = self.wanted.iter().find(|desired| shown(desired).as_deref() == Some(pbx.get("pm_generation")));
        if let Some(desired) = held {
            check_holds(pbx, desired);
        }
    }
}

fn check_holds(pbx: &Pbx, desired: &Desired) {
    for order in &desired.orders {
        assert_eq!(pbx.get(&order.list), order.trunks.join(","));
        assert_eq!(pbx.get(&order.count), order.trunks.len().to_string());
        for (number, trunk) in (1..).zip(&order.trunks).filter(|_| order.slots) {
            assert_eq!(pbx.get(&order.slot(number)), trunk);
        }
        if order.slots {
            assert!(!pbx.globals.contains_key(&order.slot(order.trunks.len() + 1)), "{}", order.list);
        }
    }
    for state in desired.states.iter() {
        let held = pbx.get(&state.name);
        assert!(held == state.value || (held.is_empty() && state.may_be_unset), "{} is {held:?}", state.name);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A call over that connection ends, well or not.
    Call(usize, bool),
    /// The reconciler sends some, the PBX carries out some, some answers arrive.
    Progress(usize, usize, usize),
    /// Everything that there is to do is done.
    Settle,
    /// The link breaks after some more commands were carried out, and comes back.
    Break(usize),
    /// The PBX is started anew and knows nothing.
    Restart,
    /// Somebody sets a variable.
    Meddle(usize, &'static str),
    /// A minute passes.
    Minute,
}

fn steps(meddling: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => (0_usize..6, prop::bool::weighted(0.45)).prop_map(|(connection, good)| Step::Call(connection, good)),
        60 => (0_usize..9, 0_usize..9, 0_usize..9).prop_map(|(s, c, a)| Step::Progress(s, c, a)),
        12 => Just(Step::Settle),
        4 => (0_usize..9).prop_map(Step::Break),
        1 => Just(Step::Restart),
        meddling => (0_usize..8, prop::sample::select(&["a", "", "x", "gw-c", "3", "last"][..])).prop_map(|(which, value)| Step::Meddle(which, value)),
        4 => Just(Step::Minute),
    ];
    proptest::collection::vec(step, 1..120)
}

const MEDDLED: [&str; 8] = [
    "pm_route_intl",
    "pm_route_intl_1",
    "pm_route_intl_3",
    "pm_route_intl_7",
    "pm_route_intl_count",
    "pm_route_backup_2",
    "pm_conn_a",
    "pm_generation",
];

/// The stage: a program, one of its nodes, and somebody who looks.
struct Stage {
    program: Program,
    reconciler: Reconciler,
    pbx: Pbx,
    watch: Watch,
    repaired: usize,
}

impl Stage {
    fn new(kind: PbxKind) -> Self {
        let program = Program::new();
        let astdb = AstDb { family: "pm".to_owned(), expiry: Duration::from_secs(300) };
        let astdb = (kind == PbxKind::Asterisk).then_some(astdb);
        let mut stage = Self {
            reconciler: Reconciler::new(Duration::from_secs(60), astdb),
            pbx: Pbx::default(),
            watch: Watch::new(kind),
            repaired: 0,
            program,
        };
        stage.want();
        stage
    }

    fn want(&mut self) {
        let desired = self.program.desired(self.watch.kind);
        if self.watch.wanted.last() != Some(&desired) {
            self.reconciler.want(desired.clone(), self.program.now);
            let mut wanted = std::mem::take(&mut self.watch.wanted);
            wanted.push(desired);
            self.watch.promise(wanted);
        }
    }

    fn progress(&mut self, sent: usize, carried_out: usize, answered: usize) -> bool {
        let mut moved = false;
        for _ in 0..sent {
            let Some(command) = self.reconciler.next(self.program.now) else { break };
            self.pbx.sent.push_back(command);
            moved = true;
        }
        for _ in 0..carried_out {
            if !self.pbx.carry_out() {
                break;
            }
            self.watch.check(&self.pbx);
            moved = true;
        }
        for _ in 0..answered {
            let Some((why, answer)) = self.pbx.answers.pop_front() else { break };
            self.answered(why, answer);
            moved = true;
        }
        moved
    }

    fn answered(&mut self, why: Why, answer: CommandResult) {
        self.repaired += usize::from(self.reconciler.answered(why, answer, self.program.now).is_some());
    }

    fn settle(&mut self) {
        let mut rounds = 0;
        while self.progress(64, 64, 64) {
            rounds += 1;
            assert!(rounds < 1_000, "does not come to an end");
        }
        let last = self.watch.wanted.last().expect("wanted").clone();
        self.watch.promise(vec![last]);
    }

    /// The link is lost and comes back.
    fn break_link(&mut self, carried_out: usize) {
        let watch = &self.watch;
        for (why, answer) in self.pbx.break_link(carried_out, |pbx| watch.check(pbx)) {
            self.answered(why, answer);
        }
        self.program.now = self.program.now.after(Duration::from_secs(2));
        self.reconciler.forget();
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Call(connection, good) => {
                self.program.call(connection, good);
                self.want();
            }
            Step::Progress(sent, carried_out, answered) => drop(self.progress(sent, carried_out, answered)),
            Step::Settle => {
                self.settle();
                self.watch.is_armed = !self.watch.was_meddled_with;
            }
            Step::Break(carried_out) => self.break_link(carried_out),
            Step::Restart => {
                self.watch.is_armed = false;
                self.break_link(0);
                self.pbx.globals.clear();
            }
            Step::Meddle(which, value) => {
                (self.watch.is_armed, self.watch.was_meddled_with) = (false, true);
                let name = MEDDLED[which].to_owned();
                match value {
                    "" => drop(self.pbx.globals.remove(&name)),
                    value => drop(self.pbx.globals.insert(name, value.to_owned())),
                }
            }
            Step::Minute => self.minute(),
        }
    }

    fn minute(&mut self) {
        self.program.now = self.program.now.after(Duration::from_secs(60));
        if !self.program.book.fire_due(self.program.now).is_empty() && !self.program.book.take_moved().is_empty() {
            self.program.generation += 1;
        }
        self.want();
    }

    /// Two comparisons later everything is as it should be: one may have begun before somebody meddled.
    fn end(&mut self) {
        for _ in 0..2 {
            self.minute();
            self.settle();
        }
        let desired = self.program.desired(self.watch.kind);
        check_holds(&self.pbx, &desired);
        let (name, number) = desired.generation.clone().expect("a generation");
        assert_eq!(self.pbx.get(&name), number.to_string());
        assert!(self.reconciler.view().in_step_at.is_some());
        if self.watch.kind == PbxKind::Asterisk {
            self.check_copies(&desired);
        }
    }

    fn check_copies(&self, desired: &Desired) {
        for order in &desired.orders {
            let copy = self.pbx.astdb.get(&order.list).map(String::as_str).unwrap_or_default();
            let (expiry, list) = copy.split_once(':').unwrap_or(("0", ""));
            assert_eq!(list, order.trunks.join(","));
            let expiry = Timestamp::from_secs(expiry.parse().expect("seconds"));
            let left = expiry.since(self.program.now);
            assert!(order.trunks.is_empty() || left >= Duration::from_secs(199), "{copy:?} at {:?}", self.program.now);
        }
    }
}

fn play(kind: PbxKind, steps: &[Step]) -> Stage {
    let mut stage = Stage::new(kind);
    for step in steps {
        stage.step(step);
    }
    stage.end();
    stage
}

/// `PROPTEST_CASES=5000 cargo test --release --test dialplan` looks longer.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Orders change while writes are under way, links break, the PBX starts anew: a call finds every vendor, always.
    #[test]
    fn a_call_finds_every_vendor_at_every_moment(steps in steps(0)) {
        for kind in [PbxKind::FreeSwitch, PbxKind::Asterisk] {
            let stage = play(kind, &steps);
            assert_eq!(stage.repaired, 0, "nobody meddled");
        }
    }

    /// Whatever others do to the variables, the next comparison puts it right.
    #[test]
    fn what_others_change_is_put_right(steps in steps(8)) {
        for kind in [PbxKind::FreeSwitch, PbxKind::Asterisk] {
            play(kind, &steps);
        }
    }
}

#[test]
fn a_vendor_that_fails_moves_to_the_end_and_nothing_else_is_written() {
    let mut stage = Stage::new(PbxKind::FreeSwitch);
    stage.settle();
    assert_eq!(stage.pbx.get("pm_route_intl"), "a,b,d,gw-c,e,f");
    assert_eq!(stage.pbx.get("pm_route_backup"), "d,gw-c,e");
    stage.pbx.written.clear();
    stage.program.call(0, false);
    stage.want();
    stage.settle();
    assert_eq!(stage.pbx.get("pm_route_intl"), "b,d,gw-c,e,f,a");
    assert_eq!(stage.pbx.get("pm_conn_a"), "last");
    assert!(stage.pbx.written.iter().all(|name| !name.starts_with("pm_route_backup")), "{:?}", stage.pbx.written);
    assert_eq!(stage.pbx.written.last().map(String::as_str), Some("pm_generation"));
    // The list, six slots, the spare one twice, the count there and back, the state, the generation.
    assert_eq!(stage.pbx.written.len(), 13);
}
