//! What a test or the demo holds of a running simulated PBX.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::sim::call::{self, Call, CallReport, Side};
use crate::sim::fault::{Act, Misbehaviour};
use crate::sim::ledger::{Ledger, Seen};
use crate::sim::pbx::{Dialect, Pbx, Shared};
use crate::sim::server;
use crate::sim::vendor::Behaviour;
use crate::tasks::Tasks;

/// What both kinds of simulated PBX need to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The password that is accepted.
    pub password: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Prefix of the variables that the dialplan reads.
    pub prefix: String,
    /// The order per map that the dialplan uses while the variables hold none.
    pub routes: BTreeMap<String, Vec<String>>,
    /// Most calls at one time; more are refused before they leave a trace.
    pub max_calls: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            password: "ClueCon".into(),
            seed: 1,
            prefix: "pm_".into(),
            routes: BTreeMap::new(),
            max_calls: 500,
        }
    }
}

impl Options {
    /// The same, with the order that the dialplan of its own uses for a map.
    #[must_use]
    pub fn route(mut self, map: &str, trunks: &[&str]) -> Self {
        self.routes.insert(map.into(), trunks.iter().map(|trunk| (*trunk).to_owned()).collect());
        self
    }
}

/// A call that was placed. Dropping it does not end the call.
#[derive(Debug)]
pub struct PlacedCall {
    hang_up: mpsc::Sender<Side>,
    report: oneshot::Receiver<CallReport>,
}

impl PlacedCall {
    /// Makes one side hang up now; a caller who is still waiting gives up.
    pub fn hang_up(&self, side: Side) {
        // Told twice, or over already: the same to the one who asks.
        let _ = self.hang_up.try_send(side);
    }

    /// Waits for the end of the call.
    pub async fn report(self) -> CallReport {
        self.report.await.unwrap_or_default()
    }
}

/// A running simulated PBX. Cheap to clone; it runs until its tasks are stopped.
#[derive(Clone)]
pub struct Handle {
    control: Arc<dyn Control>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Handle {
    /// Starts to listen and serve.
    pub(crate) async fn start<D: Dialect>(
        dialect: D,
        options: Options,
        clock: Clock,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let address = listener.local_addr()?;
        let pbx = Pbx::new(dialect, options.seed, &options.prefix, options.routes);
        let shared = Shared::new(pbx, address, clock, tasks.clone(), options.max_calls);
        tasks.spawn(server::accept(Arc::clone(&shared), listener));
        tasks.spawn(tick(Arc::clone(&shared)));
        Ok(Self { control: shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.control.address()
    }

    /// Adds a vendor, or changes how one behaves towards the calls that come from now on.
    pub fn set_vendor(&self, name: &str, behaviour: Behaviour) {
        self.control.set_vendor(name, behaviour);
    }

    /// Marks a vendor as up or down; one that is down is not dialled.
    pub fn set_vendor_up(&self, name: &str, up: bool) {
        self.control.set_vendor_up(name, up);
    }

    /// Places a call.
    #[must_use = "the call goes on without it, but nobody hears how it went"]
    pub fn place_call(&self, call: Call) -> PlacedCall {
        let (hang_up, told) = mpsc::channel(1);
        let report = Arc::clone(&self.control).place_call(call, told);
        PlacedCall { hang_up, report }
    }

    /// Misbehaves.
    pub fn misbehave(&self, misbehaviour: &Misbehaviour) {
        self.control.misbehave(misbehaviour);
    }

    /// Restarts the PBX: connections, calls and variables are gone at once; it listens again after `downtime` (real
    /// time).
    pub async fn restart(&self, downtime: Duration) {
        self.control.misbehave(&Misbehaviour::RefuseConnections);
        self.control.restart();
        tokio::time::sleep(downtime).await;
        self.control.misbehave(&Misbehaviour::AcceptConnections);
    }

    /// The global variables.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<String, String> {
        self.control.variables()
    }

    /// One global variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<String> {
        self.control.variables().remove(name)
    }

    /// Changes a global variable behind the client's back, as an operator would at the console.
    pub fn set_variable(&self, name: &str, value: &str) {
        self.control.set_variable(name, value);
    }

    /// Sets what the PBX says of its machine: idle CPU in percent, and the load average.
    pub fn set_load(&self, idle_cpu: f64, load_average: f64) {
        self.control.set_load(idle_cpu, load_average);
    }

    /// Calls that are up.
    #[must_use]
    pub fn active_calls(&self) -> usize {
        self.control.active_calls()
    }

    /// Legs to vendors that are up.
    #[must_use]
    pub fn active_legs(&self) -> usize {
        self.control.active_legs()
    }

    /// Calls placed since the start.
    #[must_use]
    pub fn calls_placed(&self) -> u64 {
        self.control.calls_placed()
    }

    /// A copy of the book of what was sent and asked.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.control.ledger()
    }

    /// The latest commands, oldest first.
    #[must_use]
    pub fn commands(&self) -> Vec<Seen> {
        self.control.ledger().commands().cloned().collect()
    }

    /// Sends bytes as they are to every client that listens to events, when there is room for them.
    pub(crate) async fn send_raw(&self, bytes: Bytes) {
        for listener in self.control.listeners() {
            // One that closed meanwhile gets nothing more.
            let _ = listener.send(bytes.clone()).await;
        }
    }

    /// Waits, at most `within` (real time), until `condition` holds; it is looked at again after every change. Says
    /// whether it came to hold.
    pub async fn until(&self, within: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let mut changes = self.control.changes();
        let holds = async {
            while !condition(self) {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(within, holds).await.is_ok()
    }
}

async fn tick<D: Dialect>(shared: Arc<Shared<D>>) {
    let mut at = shared.clock.now();
    while let Some(next) = shared.with(|pbx| pbx.tick(at)) {
        at = at.after(next).max(shared.clock.now());
        tokio::select! {
            () = shared.tasks.stopping() => return,
            () = shared.sleep_until(at) => (),
        }
    }
}

/// What [`Handle`] needs of a PBX, whatever it speaks.
trait Control: Send + Sync {
    fn address(&self) -> SocketAddr;
    fn set_vendor(&self, name: &str, behaviour: Behaviour);
    fn set_vendor_up(&self, name: &str, up: bool);
    fn place_call(self: Arc<Self>, call: Call, hang_up: mpsc::Receiver<Side>) -> oneshot::Receiver<CallReport>;
    fn misbehave(&self, misbehaviour: &Misbehaviour);
    fn restart(&self);
    fn variables(&self) -> BTreeMap<String, String>;
    fn set_variable(&self, name: &str, value: &str);
    fn set_load(&self, idle_cpu: f64, load_average: f64);
    fn active_calls(&self) -> usize;
    fn active_legs(&self) -> usize;
    fn calls_placed(&self) -> u64;
    fn ledger(&self) -> Ledger;
    fn changes(&self) -> watch::Receiver<u64>;
    fn listeners(&self) -> Vec<mpsc::Sender<Bytes>>;
}

impl<D: Dialect> Control for Shared<D> {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn set_vendor(&self, name: &str, behaviour: Behaviour) {
        self.with(|pbx| pbx.set_vendor(name, behaviour));
    }

    fn set_vendor_up(&self, name: &str, up: bool) {
        self.with(|pbx| pbx.set_vendor_up(name, up));
    }

    fn place_call(self: Arc<Self>, call: Call, hang_up: mpsc::Receiver<Side>) -> oneshot::Receiver<CallReport> {
        call::start(&self, call, hang_up)
    }

    fn misbehave(&self, misbehaviour: &Misbehaviour) {
        self.conditions.send_if_modified(|conditions| conditions.apply(misbehaviour));
        self.with(|pbx| match misbehaviour {
            Misbehaviour::Close => pbx.act(&Act::Close),
            Misbehaviour::Reset => pbx.act(&Act::Reset),
            Misbehaviour::Garbage(bytes) => pbx.act(&Act::Garbage(bytes.clone())),
            Misbehaviour::HalfFrame => pbx.act(&Act::HalfFrame),
            Misbehaviour::HugeFrame(bytes) => pbx.act(&Act::HugeFrame(*bytes)),
            Misbehaviour::LoseEvents { count, kind } => pbx.faults.lose(*count, kind.clone()),
            Misbehaviour::DuplicateEvents(count) => pbx.faults.duplicate(*count),
            Misbehaviour::ReorderEvents => pbx.faults.reorder = true,
            _ => (),
        });
    }

    fn restart(&self) {
        let now = self.clock.now();
        self.with(|pbx| pbx.restart(now));
    }

    fn variables(&self) -> BTreeMap<String, String> {
        self.peek(|pbx| pbx.variables.clone())
    }

    fn set_variable(&self, name: &str, value: &str) {
        self.with(|pbx| drop(pbx.variables.insert(name.into(), value.into())));
    }

    fn set_load(&self, idle_cpu: f64, load_average: f64) {
        self.with(|pbx| (pbx.load.idle_cpu, pbx.load.load_average) = (idle_cpu, load_average));
    }

    fn active_calls(&self) -> usize {
        self.peek(|pbx| pbx.active_calls)
    }

    fn active_legs(&self) -> usize {
        self.peek(|pbx| pbx.dialect.active_legs())
    }

    fn calls_placed(&self) -> u64 {
        self.peek(Pbx::calls_placed)
    }

    fn ledger(&self) -> Ledger {
        self.peek(|pbx| pbx.ledger.clone())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn listeners(&self) -> Vec<mpsc::Sender<Bytes>> {
        self.peek(Pbx::listeners)
    }
}
