//! Callers: a stream of calls that arrive by themselves.

use std::time::Duration;

use crate::clock::Clock;
use crate::sim::call::{Call, Route};
use crate::sim::handle::Handle;
use crate::sim::vendor::Span;
use crate::tasks::Tasks;

/// Names that callers show; one of them is not UTF-8, as in real life.
const NAMES: [&[u8]; 5] = [b"Alice Moreau", b"B. Okafor", b"Ren\xe9 Dupont", b"Support Desk", b"+1 555 0100"];

/// A stream of callers.
#[derive(Clone, Debug)]
pub struct Callers {
    /// How many calls arrive in a minute of the PBX's clock, on average; they arrive at random.
    pub calls_per_minute: f64,
    /// Where the calls may go.
    pub route: Route,
    /// What the dialplan writes into `pm_map`.
    pub map: Option<String>,
    /// Beginning of the numbers called.
    pub prefix: String,
    /// How long a hop may ring.
    pub ring_timeout: Duration,
    /// How long callers wait before giving up.
    pub patience: Span,
    /// Seed of everything random here.
    pub seed: u64,
}

impl Callers {
    /// Callers of a route map: 30 calls a minute, patient for one to two minutes, 30 s of ringing.
    #[must_use]
    pub fn of_map(map: &str, seed: u64) -> Self {
        Self {
            calls_per_minute: 30.0,
            route: Route::Map(map.into()),
            map: Some(map.into()),
            prefix: "1555".into(),
            ring_timeout: Duration::from_secs(30),
            patience: Span::Between(Duration::from_secs(60), Duration::from_secs(120)),
            seed,
        }
    }

    /// Lets them call until the tasks stop.
    pub fn start(self, pbx: &Handle, clock: Clock, tasks: &Tasks) {
        let (pbx, stopping) = (pbx.clone(), tasks.clone());
        tasks.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(self.seed);
            let between = Span::About(Duration::from_mins(1).div_f64(self.calls_per_minute.max(1e-3)));
            let mut next = clock.now();
            loop {
                next = next.after(between.draw(&mut rng));
                tokio::select! {
                    () = stopping.stopping() => return,
                    () = tokio::time::sleep(clock.real_time_until(next)) => (),
                }
                drop(pbx.place_call(self.call(&mut rng)));
            }
        });
    }

    fn call(&self, rng: &mut fastrand::Rng) -> Call {
        let number = |rng: &mut fastrand::Rng, prefix: &str| format!("{prefix}{:07}", rng.u32(0..10_000_000));
        Call {
            caller_number: number(rng, "1555"),
            caller_name: NAMES[rng.usize(0..NAMES.len())].to_vec(),
            number: number(rng, &self.prefix),
            route: self.route.clone(),
            map: self.map.clone(),
            ring_timeout: self.ring_timeout,
            patience: Some(self.patience.draw(rng)),
            talk: None,
        }
    }
}
