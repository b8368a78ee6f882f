//! Who is there: the streams that are open, those that ended, and what was counted.
//!
//! Each stream puts its own picture up whenever something about it changes; whoever looks takes the pictures as they are.
//! So looking holds up no stream, and no stream another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::dialogue::{Dialogue, Fault, Rejections};
use super::view::{ClientView, GoneView, SubscriptionView, XdsTotals, XdsView};
use crate::clock::Clock;
use crate::engine::view::XdsSummary;
use crate::listen::Listening;
use crate::time::Timestamp;

/// Ended streams that are remembered: enough to see why an edge comes and goes.
const GONE: usize = 50;

/// Shortest time between two warnings about clients that are dropped: one that comes back each time is one message.
const TELL_APART: Duration = Duration::from_secs(1);

/// Everybody who is there. Copies share everything.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    listening: watch::Receiver<Listening>,
    clock: Clock,
    clients: Mutex<BTreeMap<u64, Arc<ArcSwap<ClientView>>>>,
    gone: Mutex<VecDeque<GoneView>>,
    rejections: Mutex<Rejections>,
    /// When the log was told last that a client is dropped.
    told_at: Mutex<Timestamp>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    streams: AtomicU64,
    dropped: AtomicU64,
    sent: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
    refused: AtomicU64,
}

/// Nothing that is done under these locks can panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// With nobody there.
    #[must_use]
    pub fn new(listening: watch::Receiver<Listening>, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            listening,
            clock,
            clients: Mutex::default(),
            gone: Mutex::default(),
            rejections: Mutex::default(),
            told_at: Mutex::default(),
            totals: Totals::default(),
        }))
    }

    /// A stream was opened. It is there until what is returned is dropped; its number is set here.
    pub fn enter(&self, client: ClientView) -> Presence {
        let stream = self.0.totals.streams.fetch_add(1, Relaxed) + 1;
        let seat = Arc::new(ArcSwap::from_pointee(ClientView { stream, ..client }));
        lock(&self.0.clients).insert(stream, Arc::clone(&seat));
        let ended = Ended { dropped: false, reason: "it went away".to_owned() };
        Presence { registry: self.clone(), seat, counted: Counts::default(), ended }
    }

    /// Somebody was not let in.
    pub fn refuse(&self, peer: String, reason: String) {
        self.0.totals.refused.fetch_add(1, Relaxed);
        self.remember(GoneView { node: String::new(), peer, at: self.0.clock.now(), dropped: true, reason });
    }

    fn remember(&self, gone: GoneView) {
        let mut all = lock(&self.0.gone);
        all.push_front(gone);
        all.truncate(GONE);
    }

    /// The server and its clients now.
    #[must_use]
    pub fn view(&self) -> XdsView {
        let Listening { address, problem } = self.0.listening.borrow().clone();
        let clients = lock(&self.0.clients).values().map(|seat| seat.load_full()).collect();
        let gone = lock(&self.0.gone).iter().cloned().collect();
        let address = address.map(|address| address.to_string());
        XdsView { address, problem, clients, gone, totals: self.totals() }
    }

    /// The same in short.
    #[must_use]
    pub fn summary(&self) -> XdsSummary {
        let Listening { address, problem } = self.0.listening.borrow().clone();
        let clients = lock(&self.0.clients);
        let rejecting = clients.values().filter(|seat| seat.load().rejects()).count();
        let address = address.map(|address| address.to_string());
        XdsSummary { address, problem, clients: clients.len(), rejecting }
    }

    /// What was counted.
    #[must_use]
    pub fn totals(&self) -> XdsTotals {
        let Totals { streams, dropped, sent, accepted, rejected, refused } = &self.0.totals;
        XdsTotals {
            streams: streams.load(Relaxed),
            dropped: dropped.load(Relaxed),
            sent: sent.load(Relaxed),
            accepted: accepted.load(Relaxed),
            rejected: rejected.load(Relaxed),
            refused: refused.load(Relaxed),
        }
    }
}

/// A stream that is open. It is gone when this is dropped.
#[derive(Debug)]
pub struct Presence {
    registry: Registry,
    seat: Arc<ArcSwap<ClientView>>,
    counted: Counts,
    ended: Ended,
}

/// Answers of one stream over all kinds.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u64,
    accepted: u64,
    rejected: u64,
}

#[derive(Debug)]
struct Ended {
    dropped: bool,
    reason: String,
}

impl Presence {
    /// Has the dialogue take what the client says, with what it rejected on its other streams.
    pub(super) fn take<D: Dialogue>(&self, dialogue: &mut D, request: D::Request) -> Result<(), Fault> {
        let Shared { rejections, clock, .. } = &*self.registry.0;
        dialogue.take(request, &mut lock(rejections), clock.now())
    }

    /// Tells the log why the client is dropped; not of each, where they come by the hundred.
    pub(super) fn tell(&self, fault: &Fault) {
        let Shared { told_at, clock, .. } = &*self.registry.0;
        let client = self.seat.load();
        let (peer, now) = (&client.peer, clock.now());
        let told = std::mem::replace(&mut *lock(told_at), now);
        if now.since(told) >= TELL_APART {
            tracing::warn!(%peer, "the xDS client {:?} is dropped: {fault}", client.node);
        } else {
            tracing::debug!(%peer, "the xDS client {:?} is dropped: {fault}", client.node);
        }
    }

    /// Puts up how the dialogue is.
    pub(super) fn show(&mut self, dialogue: &impl Dialogue) {
        let mut client = ClientView::clone(&self.seat.load());
        if let Some(said) = dialogue.client() {
            (client.node, client.cluster, client.software) =
                (said.node.clone(), said.cluster.clone(), said.software.clone());
        }
        client.subscriptions = dialogue.subscriptions();
        client.unserved = dialogue.unserved().to_vec();
        self.count(&client.subscriptions);
        self.seat.store(Arc::new(client));
    }

    fn count(&mut self, subscriptions: &[SubscriptionView]) {
        let sum = |count: fn(&SubscriptionView) -> u64| subscriptions.iter().map(count).sum::<u64>();
        let now = Counts { sent: sum(|it| it.sent), accepted: sum(|it| it.accepted), rejected: sum(|it| it.rejected) };
        let totals = &self.registry.0.totals;
        totals.sent.fetch_add(now.sent.saturating_sub(self.counted.sent), Relaxed);
        totals.accepted.fetch_add(now.accepted.saturating_sub(self.counted.accepted), Relaxed);
        totals.rejected.fetch_add(now.rejected.saturating_sub(self.counted.rejected), Relaxed);
        self.counted = now;
    }

    /// Says why the stream ends; `dropped` where that is decided here.
    pub fn ends(&mut self, dropped: bool, reason: String) {
        self.ended = Ended { dropped, reason };
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let client = self.seat.load_full();
        lock(&self.registry.0.clients).remove(&client.stream);
        let Ended { dropped, reason } =
            std::mem::replace(&mut self.ended, Ended { dropped: false, reason: String::new() });
        if dropped {
            self.registry.0.totals.dropped.fetch_add(1, Relaxed);
        }
        let at = self.registry.0.clock.now();
        self.registry.remember(GoneView { node: client.node.clone(), peer: client.peer.clone(), at, dropped, reason });
    }
}
