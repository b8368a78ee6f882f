//! Ten thousand reorders under the eyes of a reader: what a dialplan finds is always an order that pointsman meant.
//!
//! The program's own link and applier write to a real Asterisk; clients of the tests' own read the variable of the whole
//! order as fast as the Asterisk answers. Two counters bracket each reading: reorders that were acknowledged before it
//! began, and reorders that had begun when it was over. What is read must be one of the orders in between.
//!
//! Asterisk itself tears single reads: it looks a global variable up under a lock, and copies its value after letting go
//! of it, when a writer may have freed it. So a reading is what docs/dialplans.md asks of dialplans, two equal reads in a
//! row. How many single reads were torn is counted and printed; each must be one that the next read shows to be wrong.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pointsman::clock::Clock;
use pointsman::config::{Format, Purpose, load_text};
use pointsman::dialplan::apply::{self, Applier};
use pointsman::dialplan::desired::{Desired, Order};
use pointsman::pbx::link::{self, LinkInbox};
use pointsman::tasks::Tasks;
use tokio::sync::mpsc;

use crate::lab::ami::Ami;
use crate::lab::asterisk::{Asterisk, Kind};
use crate::lab::eventually;
use crate::lab::pointsman::{Node, configuration};

const REORDERS: usize = 10_000;

const LIST: &str = "pm_route_intl";
const COUNT: &str = "pm_route_intl_count";

/// Vendors of the longest order; some of the orders are shorter, as where a vendor is blocked.
const VENDORS: usize = 8;

/// How far the writer is.
#[derive(Default)]
struct Progress {
    begun: AtomicUsize,
    acknowledged: AtomicUsize,
    over: AtomicBool,
}

/// The orders, each unlike the one before it: shuffled, and every fourth without a vendor.
fn orders() -> Vec<Vec<String>> {
    let mut rng = fastrand::Rng::with_seed(20_261_130);
    let mut order: Vec<String> = (0..VENDORS).map(|number| format!("vendor-{number}")).collect();
    let mut orders = vec![order.clone()];
    while orders.len() <= REORDERS {
        rng.shuffle(&mut order);
        let length = if orders.len().is_multiple_of(4) { VENDORS - 1 } else { VENDORS };
        if orders.last().is_none_or(|last| *last != order[..length]) {
            orders.push(order[..length].to_vec());
        }
    }
    orders
}

fn desired(trunks: &[String]) -> Arc<Desired> {
    let order = Order { list: LIST.into(), count: COUNT.into(), trunks: trunks.to_vec(), slots: false };
    Arc::new(Desired { orders: vec![order.into()], ..Desired::default() })
}

/// What a reader saw.
#[derive(Debug, Default)]
struct Seen {
    readings: usize,
    orders: HashSet<String>,
    /// Single reads that gave no order that there was.
    torn: Vec<String>,
}

/// Reads until the writer is done.
fn read(mut manager: Ami, orders: &[Vec<String>], progress: &Progress) -> Seen {
    let lists: Vec<String> = orders.iter().map(|order| order.join(",")).collect();
    let mut seen = Seen::default();
    while !progress.over.load(Ordering::SeqCst) {
        let from = progress.acknowledged.load(Ordering::SeqCst);
        let mut reads = vec![manager.global(LIST), manager.global(LIST)];
        while reads[reads.len() - 2] != reads[reads.len() - 1] {
            reads.push(manager.global(LIST));
        }
        let to = progress.begun.load(Ordering::SeqCst);
        let meant = &lists[from..=to];
        let agreed = reads[reads.len() - 1].clone();
        assert!(meant.contains(&agreed), "{reads:?} ends in none of the orders {from} to {to}: {meant:?}");
        seen.torn.extend(reads.into_iter().filter(|read| !meant.contains(read)));
        seen.readings += 1;
        seen.orders.insert(agreed);
    }
    seen
}

/// Writes each order once the one before it is acknowledged.
async fn write(applier: &Applier, orders: &[Vec<String>], progress: &Progress, clock: Clock) {
    let written = || applier.view().written;
    for (number, order) in orders.iter().enumerate().skip(1) {
        let before = written();
        progress.begun.store(number, Ordering::SeqCst);
        applier.want(desired(order), clock.now());
        // The list, and where its length changed the count.
        let writes = if order.len() == orders[number - 1].len() { 1 } else { 2 };
        while written() < before + writes {
            tokio::task::yield_now().await;
        }
        progress.acknowledged.store(number, Ordering::SeqCst);
    }
}

fn a_reader_sees_whole_orders_only(kind: Kind) {
    let asterisk = Asterisk::start(kind, &[]);
    let text = configuration(&[Node::of("pbx-01", &asterisk).text()], &["vendor-0"], "");
    let config = match load_text(Path::new("lab.toml"), &text, Format::Toml, [], Purpose::Connect) {
        Ok(loaded) => loaded.config,
        Err(problems) => panic!("{}", problems.render(false)),
    };
    let (orders, progress, clock) = (orders(), Progress::default(), Clock::system());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let tasks = Tasks::new();
    let node = Arc::new(config.nodes[0].clone());
    let (events, _unread) = mpsc::channel(16);
    let entered = runtime.enter();
    let link = link::spawn(node.clone(), clock, LinkInbox::new(events, 0), &tasks);
    let applier = apply::spawn(&node, &config.variables, &link, clock, &tasks);
    applier.want(desired(&orders[0]), clock.now());
    drop(entered);
    let mut manager = asterisk.manager();
    let first = orders[0].join(",");
    eventually("the first order", Duration::from_secs(20), || (manager.global(LIST) == first).then_some(()));
    eventually("the first count", Duration::from_secs(20), || (manager.global(COUNT) == "8").then_some(()));
    eventually("both acknowledged", Duration::from_secs(20), || (applier.view().written == 2).then_some(()));

    let readers: Vec<Ami> = (0..2).map(|_| asterisk.manager()).collect();
    let (orders, progress) = (&orders, &progress);
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            readers.into_iter().map(|manager| scope.spawn(move || read(manager, orders, progress))).collect();
        runtime.block_on(async {
            let all = tokio::time::timeout(Duration::from_secs(300), write(&applier, orders, progress, clock));
            let in_time = all.await.is_ok();
            progress.over.store(true, Ordering::SeqCst);
            assert!(in_time, "only {} reorders", progress.acknowledged.load(Ordering::SeqCst));
        });
        for reader in readers {
            let Seen { readings, orders: seen, torn } = reader.join().expect("a reader saw an order that never was");
            println!("{readings} readings saw {} of {} orders; torn single reads: {torn:?}", seen.len(), orders.len());
            assert!(seen.len() > REORDERS / 20, "it hardly looked: {readings} readings saw {} orders", seen.len());
        }
    });
    assert_eq!(manager.global(LIST), orders[REORDERS].join(","));
    assert_eq!((progress.acknowledged.load(Ordering::SeqCst), applier.view().repaired), (REORDERS, 0));
    runtime.block_on(tasks.stop(Duration::from_secs(5)));
}

#[test]
fn a_reader_sees_whole_orders_only_on_a_recent_asterisk() {
    a_reader_sees_whole_orders_only(Kind::Recent);
}

#[test]
fn a_reader_sees_whole_orders_only_on_asterisk_16() {
    a_reader_sees_whole_orders_only(Kind::Old);
}
