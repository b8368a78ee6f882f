//! The simulated switch itself, without sockets: its variables, vendors, calls and subscribers, and the vocabulary
//! in which a protocol plugs into it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::sim::call::{Call, End, Route, Side};
use crate::sim::fault::{Act, Conditions, Copies, EventFaults};
use crate::sim::ledger::{Ledger, Seen};
use crate::sim::vendor::Behaviour;
use crate::tasks::Tasks;
use crate::time::Timestamp;

/// Events that may wait for one client: FreeSWITCH's own limit. Asterisk has none; a test that needs more than this
/// would only show that memory is finite.
pub(crate) const EVENT_QUEUE: usize = 100_000;

/// Events lost in a row after which FreeSWITCH gives a listener up.
const LOSSES_BEFORE_KILL: u32 = 500;

/// One-time acts that may wait for one connection.
const ACT_QUEUE: usize = 16;

/// Slots of a route that a dialplan looks at.
const SLOTS: usize = 32;

/// A random identifier in the form of a UUID of version 4.
pub(crate) fn new_uuid(ids: &mut fastrand::Rng) -> String {
    let bits = ids.u128(..);
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        bits as u32,
        (bits >> 32) as u16,
        (bits >> 48) as u16 & 0xfff,
        (bits >> 60) as u16 & 0x3fff | 0x8000,
        (bits >> 76) as u64 & 0xffff_ffff_ffff,
    )
}

/// A call of this PBX.
pub(crate) type CallNo = u64;
/// A leg to a vendor.
pub(crate) type LegNo = u64;

/// What happens in a call, in the order of its life. A dialect makes the events of its protocol of each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    /// The caller's leg arrives.
    CallerIn { call: CallNo, details: &'a Call },
    /// A leg is sent to a vendor.
    LegOut { call: CallNo, leg: LegNo, trunk: &'a str },
    /// The dialplan tried a vendor that this PBX does not know, or that is down: no leg comes of it.
    NoLeg { call: CallNo, trunk: &'a str },
    /// 180 from the vendor.
    Ringing { leg: LegNo },
    /// 183 with media from the vendor.
    EarlyMedia { leg: LegNo },
    /// 200 from the vendor; the other branches of a fork lose.
    Answered { call: CallNo, leg: LegNo, losers: &'a [LegNo] },
    /// A leg ends without an answer, while the caller still waits.
    LegFailed { leg: LegNo, end: End },
    /// The caller gives up; the legs that were being dialled end.
    CallerCancels { call: CallNo, legs: &'a [LegNo] },
    /// The dialplan has nothing left to try: the caller is refused, as the last leg was.
    CallerOut { call: CallNo, last: Option<End> },
    /// An answered call is hung up.
    Over { call: CallNo, leg: LegNo, by: Side },
}

/// The figures that a PBX reports of itself besides its calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) idle_cpu: f64,
    pub(crate) load_average: f64,
}

/// What a protocol must be able to do.
pub(crate) trait Dialect: Sized + Send + 'static {
    /// An event before it is put into bytes.
    type Event: Send;
    /// What one client asked to hear.
    type Subscription: Default + Send;
    /// The dialogue with one client.
    type Session: Session<Self>;

    /// Whether a leg to an address where nobody listens fails at once. (It does on FreeSWITCH; Asterisk's PJSIP hears
    /// nothing and waits.)
    const UNREACHABLE_FAILS_AT_ONCE: bool;

    /// A dialogue with a client that just connected.
    fn session(&self, connection: u64, peer: SocketAddr) -> Self::Session;
    /// Makes the events of a step; `wanted` says which kinds anybody would hear.
    fn perform(&mut self, at: Timestamp, step: Step<'_>, wanted: &dyn Fn(&str) -> bool) -> Vec<Self::Event>;
    /// Does what is to be done from time to time; says when next.
    fn tick(&mut self, at: Timestamp, load: Load, events: &mut Vec<Self::Event>) -> Option<Duration>;
    /// The name of an event.
    fn kind(event: &Self::Event) -> &str;
    /// Whether a subscription may hear events of this name at all.
    fn may_hear(subscription: &Self::Subscription, kind: &str) -> bool;
    /// The event as this subscriber gets it; `None` where it does not.
    fn encode(event: &Self::Event, subscription: &Self::Subscription) -> Option<Bytes>;
    /// Whether this subscriber hears anything at all.
    fn listens(subscription: &Self::Subscription) -> bool;
    /// The order that a dialplan finds in the variables for a map; empty where they hold none.
    fn order(variables: &BTreeMap<String, String>, prefix: &str, map: &str) -> Vec<String>;
    /// What the PBX calls a leg.
    fn leg_id(&self, leg: LegNo) -> String;
    /// Legs to vendors that are up.
    fn active_legs(&self) -> usize;
    /// The beginning of a frame of `bytes` bytes.
    fn huge_frame(bytes: u64) -> Vec<u8>;
    /// The last words before a restart.
    fn farewell(&mut self, at: Timestamp) -> Vec<Self::Event>;
    /// Forgets everything that does not survive a restart.
    fn restart(&mut self, at: Timestamp);
}

/// The dialogue with one client: bytes in, answers out.
pub(crate) trait Session<D: Dialect>: Send {
    /// What is said to a client that just connected.
    fn greet(&mut self, pbx: &mut Pbx<D>, conditions: &Conditions) -> Vec<Output>;
    /// Takes the next complete command off the buffer.
    fn take(&mut self, buffer: &mut BytesMut) -> Option<Vec<u8>>;
    /// Answers it.
    fn answer(&mut self, pbx: &mut Pbx<D>, at: Timestamp, conditions: &Conditions, command: &[u8]) -> Vec<Output>;
    /// How the command is remembered in the ledger.
    fn describe(command: &[u8]) -> String;
    /// Whether events may be written while this is in the buffer.
    fn takes_events(&self, buffer: &[u8]) -> bool;
}

/// What a session wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Write this.
    Say(Vec<u8>),
    /// Do nothing for so long, on the PBX's clock.
    Wait(Duration),
    /// Close the connection.
    Close,
}

struct Subscriber<D: Dialect> {
    subscription: D::Subscription,
    queue: mpsc::Sender<Bytes>,
    acts: mpsc::Sender<Act>,
    losses: u32,
}

/// A vendor as the PBX knows it.
struct Vendor {
    behaviour: Behaviour,
    /// Down gateways are not dialled at all.
    up: bool,
}

/// The ends that a connection's task holds.
pub(crate) struct Receivers {
    pub(crate) events: mpsc::Receiver<Bytes>,
    pub(crate) acts: mpsc::Receiver<Act>,
}

/// The state of a simulated PBX.
pub(crate) struct Pbx<D: Dialect> {
    pub(crate) dialect: D,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) ledger: Ledger,
    pub(crate) load: Load,
    seed: u64,
    pub(crate) faults: EventFaults,
    /// Cancelled when the PBX restarts: calls of the run before end without a word.
    pub(crate) run: CancellationToken,
    pub(crate) active_calls: usize,
    prefix: String,
    routes: BTreeMap<String, Vec<String>>,
    vendors: BTreeMap<String, Vendor>,
    subscribers: BTreeMap<u64, Subscriber<D>>,
    held: Vec<(u64, Bytes)>,
    next_call: CallNo,
    next_leg: LegNo,
}

impl<D: Dialect> Pbx<D> {
    pub(crate) fn new(dialect: D, seed: u64, prefix: &str, routes: BTreeMap<String, Vec<String>>) -> Self {
        Self {
            dialect,
            variables: BTreeMap::new(),
            ledger: Ledger::default(),
            load: Load { idle_cpu: 92.5, load_average: 0.25 },
            seed,
            faults: EventFaults::default(),
            run: CancellationToken::new(),
            active_calls: 0,
            prefix: prefix.to_owned(),
            routes,
            vendors: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            held: Vec::new(),
            next_call: 0,
            next_leg: 0,
        }
    }

    pub(crate) fn set_vendor(&mut self, name: &str, behaviour: Behaviour) {
        match self.vendors.get_mut(name) {
            Some(vendor) => vendor.behaviour = behaviour,
            None => drop(self.vendors.insert(name.to_owned(), Vendor { behaviour, up: true })),
        }
    }

    pub(crate) fn set_vendor_up(&mut self, name: &str, up: bool) {
        if let Some(vendor) = self.vendors.get_mut(name) {
            vendor.up = up;
        }
    }

    /// How a vendor that can be dialled behaves.
    pub(crate) fn vendor(&self, name: &str) -> Option<&Behaviour> {
        self.vendors.get(name).filter(|vendor| vendor.up).map(|vendor| &vendor.behaviour)
    }

    /// Whether such a vendor is configured, and whether it is up.
    pub(crate) fn vendor_state(&self, name: &str) -> Option<bool> {
        self.vendors.get(name).map(|vendor| vendor.up)
    }

    pub(crate) fn next_call(&mut self) -> CallNo {
        self.next_call += 1;
        self.next_call
    }

    pub(crate) fn calls_placed(&self) -> u64 {
        self.next_call
    }

    /// What is random about the next leg of a call. Every leg has its own generator, so that it does not matter which
    /// of two calls gets to its turn first: the same seed gives the same calls.
    pub(crate) fn chance(&self, call: CallNo, legs_before: usize) -> fastrand::Rng {
        // Far apart for neighbouring calls (the odd constant of a golden-ratio sequence).
        let place = (call << 8) ^ legs_before as u64;
        fastrand::Rng::with_seed(self.seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn next_leg(&mut self) -> LegNo {
        self.next_leg += 1;
        self.next_leg
    }

    /// What a call will try, hop by hop: copied once, when it starts.
    pub(crate) fn hops(&self, route: &Route) -> Vec<Vec<String>> {
        match route {
            Route::Map(map) => {
                let mut order = D::order(&self.variables, &self.prefix, map);
                if order.is_empty() {
                    order = self.routes.get(map).cloned().unwrap_or_default();
                }
                order.truncate(SLOTS);
                order.into_iter().map(|trunk| vec![trunk]).collect()
            }
            Route::Trunks(trunks) => trunks.iter().map(|trunk| vec![trunk.clone()]).collect(),
            Route::Fork(trunks) => vec![trunks.clone()],
        }
    }

    /// Lets a step of a call happen and tells everybody who listens.
    pub(crate) fn step(&mut self, at: Timestamp, step: Step<'_>) {
        let Self { dialect, subscribers, .. } = self;
        let wanted = |kind: &str| subscribers.values().any(|one| D::may_hear(&one.subscription, kind));
        for event in dialect.perform(at, step, &wanted) {
            self.publish(&event);
        }
    }

    /// Does what is due; says when to call again.
    pub(crate) fn tick(&mut self, at: Timestamp) -> Option<Duration> {
        let mut events = Vec::new();
        let next = self.dialect.tick(at, self.load, &mut events);
        for event in &events {
            self.publish(event);
        }
        next
    }

    /// Sends an event to everybody who asked for it, through whatever is to go wrong.
    pub(crate) fn publish(&mut self, event: &D::Event) {
        let deliveries: Vec<(u64, Bytes)> = self
            .subscribers
            .iter()
            .filter_map(|(id, one)| D::encode(event, &one.subscription).map(|bytes| (*id, bytes)))
            .collect();
        if deliveries.is_empty() {
            return;
        }
        let copies = self.faults.copies(D::kind(event));
        if copies == Copies::Lost {
            return;
        }
        if std::mem::take(&mut self.faults.reorder) {
            self.held = deliveries;
            return;
        }
        for (id, bytes) in &deliveries {
            self.queue(*id, bytes.clone());
            if copies == Copies::Two {
                self.queue(*id, bytes.clone());
            }
        }
        for (id, bytes) in std::mem::take(&mut self.held) {
            self.queue(id, bytes);
        }
    }

    fn queue(&mut self, id: u64, bytes: Bytes) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        if subscriber.queue.try_send(bytes).is_ok() {
            subscriber.losses = 0;
            return;
        }
        self.ledger.dropped(id);
        subscriber.losses += 1;
        if subscriber.losses > LOSSES_BEFORE_KILL {
            // A connection whose queue of acts is full as well is being ended already.
            let _ = subscriber.acts.try_send(Act::Close);
        }
    }

    pub(crate) fn connect(&mut self) -> (u64, Receivers) {
        let id = self.ledger.connected();
        let (queue, events) = mpsc::channel(EVENT_QUEUE);
        let (act, acts) = mpsc::channel(ACT_QUEUE);
        self.subscribers
            .insert(id, Subscriber { subscription: D::Subscription::default(), queue, acts: act, losses: 0 });
        (id, Receivers { events, acts })
    }

    pub(crate) fn disconnect(&mut self, id: u64) {
        self.subscribers.remove(&id);
        self.ledger.closed(id);
    }

    pub(crate) fn subscription(&mut self, id: u64) -> Option<&mut D::Subscription> {
        self.subscribers.get_mut(&id).map(|one| &mut one.subscription)
    }

    /// The queues of those who hear anything at all.
    pub(crate) fn listeners(&self) -> Vec<mpsc::Sender<Bytes>> {
        let listening = self.subscribers.values().filter(|one| D::listens(&one.subscription));
        listening.map(|one| one.queue.clone()).collect()
    }

    /// Number of connections that are up.
    pub(crate) fn connections(&self) -> usize {
        self.subscribers.len()
    }

    pub(crate) fn act(&mut self, act: &Act) {
        for subscriber in self.subscribers.values() {
            // A connection that has sixteen acts to perform already is beyond another one.
            let _ = subscriber.acts.try_send(act.clone());
        }
    }

    pub(crate) fn note(&mut self, connection: u64, at: Timestamp, text: String) {
        self.ledger.command(Seen { connection, at, text });
    }

    /// The PBX stops and starts again: calls and variables are gone, without a word about either.
    pub(crate) fn restart(&mut self, at: Timestamp) {
        for event in self.dialect.farewell(at) {
            self.publish(&event);
        }
        self.act(&Act::Close);
        self.run.cancel();
        self.run = CancellationToken::new();
        self.active_calls = 0;
        self.variables.clear();
        self.dialect.restart(at);
    }
}

/// A PBX and what its tasks share.
pub(crate) struct Shared<D: Dialect> {
    pub(crate) clock: Clock,
    pub(crate) tasks: Tasks,
    pub(crate) address: SocketAddr,
    pub(crate) conditions: watch::Sender<Conditions>,
    pub(crate) changed: watch::Sender<u64>,
    pub(crate) max_calls: usize,
    pbx: Mutex<Pbx<D>>,
}

impl<D: Dialect> Shared<D> {
    pub(crate) fn new(pbx: Pbx<D>, address: SocketAddr, clock: Clock, tasks: Tasks, max_calls: usize) -> Arc<Self> {
        let (conditions, changed) = (watch::Sender::new(Conditions::default()), watch::Sender::new(0));
        Arc::new(Self { clock, tasks, address, conditions, changed, max_calls, pbx: Mutex::new(pbx) })
    }

    /// Works on the PBX and tells those who wait for a change.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Pbx<D>) -> R) -> R {
        let result = work(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// Looks at the PBX.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&Pbx<D>) -> R) -> R {
        look(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Pbx<D>> {
        // A panic in a simulated PBX is a bug of ours, but what it left behind is still good for the other tests.
        self.pbx.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the PBX's clock shows `at`.
    pub(crate) async fn sleep_until(&self, at: Timestamp) {
        tokio::time::sleep(self.clock.real_time_until(at)).await;
    }
}
