//! The life of one simulated call: it arrives, hunts over its route, is answered or not, and ends.
//!
//! The order of the hunt is copied once, when the call starts, and the hunt stops where the called person or the
//! number is the reason, as a dialplan should do it. Times are planned on the PBX's clock and the events carry the
//! planned time, so that a compressed clock does not blur what vendors do.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::sim::pbx::{CallNo, Dialect, LegNo, Pbx, Shared, Step};
use crate::sim::vendor::FarEnd;
use crate::time::Timestamp;

/// How long a SIP stack waits for any reply at all before it gives a leg up (64 times T1).
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(32);

/// A call to place.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The caller's number.
    pub caller_number: String,
    /// The caller's name: any bytes, as callers send them.
    pub caller_name: Vec<u8>,
    /// The number dialled.
    pub number: String,
    /// Where it may go.
    pub route: Route,
    /// What the dialplan writes into `pm_map`, where it does.
    pub map: Option<String>,
    /// How long one hop may ring.
    pub ring_timeout: Duration,
    /// How long the caller waits in all before giving up; for ever, where `None`.
    pub patience: Option<Duration>,
    /// Talk time, where the vendor's own is not wanted.
    pub talk: Option<Duration>,
}

impl Call {
    /// A call to `number` over `route`, from a patient caller.
    #[must_use]
    pub fn to(number: &str, route: Route) -> Self {
        Self {
            caller_number: "15551000".into(),
            caller_name: b"Caller One".to_vec(),
            number: number.into(),
            route,
            map: None,
            ring_timeout: Duration::from_secs(60),
            patience: None,
            talk: None,
        }
    }
}

/// Where a call may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Over the order that the PBX's variables hold for this map; where they hold none, over the PBX's own.
    Map(String),
    /// Over these vendors, one after the other.
    Trunks(Vec<String>),
    /// To these vendors at once; the first to answer wins.
    Fork(Vec<String>),
}

/// A party of an answered call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who called.
    Caller,
    /// Who answered.
    FarEnd,
}

/// How a leg to a vendor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The vendor's final answer.
    Refused(u16),
    /// Nobody listens there, and the network says so.
    Unreachable,
    /// No reply at all within the SIP stack's own limit.
    NoReply,
    /// Our switch stopped waiting; it had rung or not.
    RingTimeout {
        /// Whether there had been a sign of the far end.
        rang: bool,
    },
    /// The caller gave up.
    CallerGone,
    /// Another branch was answered first.
    LostRace,
    /// It was answered, and hung up.
    HungUp(Side),
    /// The PBX was restarted under it.
    Vanished,
}

impl End {
    /// Whether a dialplan tries the next vendor after this: not where the called person or the number is the reason.
    #[must_use]
    pub fn hunts_on(self) -> bool {
        match self {
            Self::Refused(status) => {
                !matches!(status, 404 | 410 | 416 | 480 | 484 | 485 | 486 | 600 | 603 | 604 | 607 | 608)
            }
            Self::Unreachable | Self::NoReply => true,
            Self::RingTimeout { rang } => !rang,
            Self::CallerGone | Self::LostRace | Self::HungUp(_) | Self::Vanished => false,
        }
    }
}

/// One leg to a vendor, as it really was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// What the PBX calls the vendor.
    pub trunk: String,
    /// What the PBX calls the leg.
    pub id: String,
    /// When it was sent.
    pub placed_at: Timestamp,
    /// First sign of the far end before the answer.
    pub sign_at: Option<Timestamp>,
    /// Answer.
    pub answered_at: Option<Timestamp>,
    /// End.
    pub ended_at: Timestamp,
    /// How it ended.
    pub end: End,
}

/// What became of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallReport {
    /// Its legs, in the order in which they were sent.
    pub legs: Vec<Leg>,
    /// Vendors that the dialplan tried and the PBX did not dial (unknown or down).
    pub not_dialled: Vec<String>,
}

impl CallReport {
    /// Whether somebody answered.
    #[must_use]
    pub fn answered(&self) -> bool {
        self.legs.iter().any(|leg| leg.answered_at.is_some())
    }

    /// The vendors dialled, in order.
    #[must_use]
    pub fn trunks(&self) -> Vec<&str> {
        self.legs.iter().map(|leg| leg.trunk.as_str()).collect()
    }
}

/// What happens next to the legs of a hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signal {
    FarEnd(FarEnd),
    NoReply,
}

/// A leg in flight.
struct Flight {
    leg: LegNo,
    /// Where its record is in the report.
    record: usize,
    up: bool,
    talk: Duration,
    far_end_hangs_up: bool,
}

/// Why a call woke up.
enum Woken {
    InTime,
    ToldToHangUp(Side),
    Vanished,
}

/// How a hop went.
enum Hop {
    Failed(Option<End>),
    Over,
}

/// A call while it lives.
struct Life<D: Dialect> {
    shared: Arc<Shared<D>>,
    no: CallNo,
    call: Call,
    /// The planned time.
    now: Timestamp,
    gives_up_at: Option<Timestamp>,
    run: CancellationToken,
    hang_up: mpsc::Receiver<Side>,
    report: CallReport,
}

/// Starts a call; the receiver gets its report at the end.
pub(crate) fn start<D: Dialect>(
    shared: &Arc<Shared<D>>,
    call: Call,
    hang_up: mpsc::Receiver<Side>,
) -> oneshot::Receiver<CallReport> {
    let (done, report) = oneshot::channel();
    let now = shared.clock.now();
    let begun = shared.with(|pbx| {
        if pbx.active_calls >= shared.max_calls {
            return None;
        }
        pbx.active_calls += 1;
        let no = pbx.next_call();
        pbx.step(now, Step::CallerIn { call: no, details: &call });
        Some((no, pbx.hops(&call.route), pbx.run.clone()))
    });
    let Some((no, hops, run)) = begun else {
        // Nobody may be waiting for it.
        let _ = done.send(CallReport::default());
        return report;
    };
    let gives_up_at = call.patience.map(|patience| now.after(patience));
    let report_so_far = CallReport::default();
    let mut life = Life { shared: Arc::clone(shared), no, call, now, gives_up_at, run, hang_up, report: report_so_far };
    shared.tasks.spawn(async move {
        life.live(&hops).await;
        life.happen(|pbx, _| pbx.active_calls = pbx.active_calls.saturating_sub(1));
        // Nobody may be waiting for it.
        let _ = done.send(life.report);
    });
    report
}

impl<D: Dialect> Life<D> {
    async fn live(&mut self, hops: &[Vec<String>]) {
        let mut last = None;
        for hop in hops {
            match self.hop(hop).await {
                Hop::Over => return,
                Hop::Failed(end) => last = end.or(last),
            }
            if last.is_some_and(|end| !end.hunts_on()) {
                break;
            }
        }
        self.step(Step::CallerOut { call: self.no, last });
    }

    /// Works on the PBX, unless that was restarted: what happens to this call then leaves no trace.
    fn happen(&mut self, work: impl FnOnce(&mut Pbx<D>, &mut CallReport)) {
        let Self { shared, run, report, .. } = self;
        shared.with(|pbx| {
            if !run.is_cancelled() {
                work(pbx, report);
            }
        });
    }

    /// Dials the branches of one hop and waits for what comes of it.
    async fn hop(&mut self, trunks: &[String]) -> Hop {
        let (mut flights, mut agenda) = self.dial(trunks);
        // Stable: at one instant the branches go in the order written.
        agenda.sort_by_key(|(at, _, _)| *at);
        let timeout = self.now.after(self.call.ring_timeout);
        let mut agenda = agenda.into_iter().peekable();
        let mut last = None;
        while flights.iter().any(|flight| flight.up) {
            let next = agenda.peek().map_or(timeout, |(at, _, _)| timeout.min(*at));
            let caller_first = self.gives_up_at.filter(|at| *at <= next);
            match self.wait(caller_first.unwrap_or(next)).await {
                Woken::Vanished => return self.vanish(),
                Woken::InTime if caller_first.is_none() => (),
                Woken::InTime | Woken::ToldToHangUp(_) => return self.cancel(&flights),
            }
            let due = agenda.next_if(|(at, _, _)| *at <= timeout);
            let Some((_, branch, signal)) = due else {
                last = Some(self.stop_waiting(&mut flights));
                continue;
            };
            if !flights[branch].up {
                continue;
            }
            match signal {
                Signal::FarEnd(FarEnd::Answered) => return self.talk(&flights, branch).await,
                Signal::FarEnd(FarEnd::Ringing) => self.sign(&flights[branch], false),
                Signal::FarEnd(FarEnd::EarlyMedia) => self.sign(&flights[branch], true),
                Signal::FarEnd(FarEnd::Refused(status)) => {
                    last = Some(self.fail(&mut flights[branch], End::Refused(status)));
                }
                Signal::FarEnd(FarEnd::Unreachable) => last = Some(self.fail(&mut flights[branch], End::Unreachable)),
                Signal::NoReply => last = Some(self.fail(&mut flights[branch], End::NoReply)),
            }
        }
        Hop::Failed(last)
    }

    fn dial(&mut self, trunks: &[String]) -> (Vec<Flight>, Vec<(Timestamp, usize, Signal)>) {
        let (no, now) = (self.no, self.now);
        let (mut flights, mut agenda) = (Vec::new(), Vec::new());
        self.happen(|pbx, report| {
            for trunk in trunks {
                let Some(behaviour) = pbx.vendor(trunk).cloned() else {
                    pbx.step(now, Step::NoLeg { call: no, trunk });
                    report.not_dialled.push(trunk.clone());
                    continue;
                };
                let plan = behaviour.draw(&mut pbx.chance(no, report.legs.len()));
                let leg = pbx.next_leg();
                pbx.step(now, Step::LegOut { call: no, leg, trunk });
                let mut heard = false;
                for (after, what) in plan.signals {
                    if what == FarEnd::Unreachable && !D::UNREACHABLE_FAILS_AT_ONCE {
                        continue;
                    }
                    heard |= after < TRANSACTION_TIMEOUT;
                    agenda.push((now.after(after), flights.len(), Signal::FarEnd(what)));
                }
                if !heard {
                    agenda.push((now.after(TRANSACTION_TIMEOUT), flights.len(), Signal::NoReply));
                }
                report.legs.push(Leg {
                    trunk: trunk.clone(),
                    id: pbx.dialect.leg_id(leg),
                    placed_at: now,
                    sign_at: None,
                    answered_at: None,
                    ended_at: now,
                    end: End::Vanished,
                });
                flights.push(Flight {
                    leg,
                    record: report.legs.len() - 1,
                    up: true,
                    talk: plan.talk,
                    far_end_hangs_up: plan.far_end_hangs_up,
                });
            }
        });
        (flights, agenda)
    }

    /// Waits until `at`, unless something else comes first; the planned time is then the clock's.
    async fn wait(&mut self, at: Timestamp) -> Woken {
        let at = at.max(self.now);
        let woken = tokio::select! {
            biased;
            () = self.run.cancelled() => Woken::Vanished,
            () = self.shared.tasks.stopping() => Woken::Vanished,
            Some(side) = self.hang_up.recv() => Woken::ToldToHangUp(side),
            () = self.shared.sleep_until(at) => Woken::InTime,
        };
        self.now = match woken {
            Woken::InTime => at,
            Woken::ToldToHangUp(_) | Woken::Vanished => self.shared.clock.now().max(self.now),
        };
        woken
    }

    fn step(&mut self, step: Step<'_>) {
        let now = self.now;
        self.happen(|pbx, _| pbx.step(now, step));
    }

    fn sign(&mut self, flight: &Flight, media: bool) {
        self.report.legs[flight.record].sign_at.get_or_insert(self.now);
        let leg = flight.leg;
        self.step(if media { Step::EarlyMedia { leg } } else { Step::Ringing { leg } });
    }

    fn close(&mut self, record: usize, end: End) {
        let leg = &mut self.report.legs[record];
        (leg.ended_at, leg.end) = (self.now, end);
    }

    fn fail(&mut self, flight: &mut Flight, end: End) -> End {
        flight.up = false;
        self.close(flight.record, end);
        self.step(Step::LegFailed { leg: flight.leg, end });
        end
    }

    fn stop_waiting(&mut self, flights: &mut [Flight]) -> End {
        let mut any_rang = false;
        for flight in flights.iter_mut().filter(|flight| flight.up) {
            let rang = self.report.legs[flight.record].sign_at.is_some();
            any_rang |= rang;
            self.fail(flight, End::RingTimeout { rang });
        }
        End::RingTimeout { rang: any_rang }
    }

    fn cancel(&mut self, flights: &[Flight]) -> Hop {
        let up: Vec<&Flight> = flights.iter().filter(|flight| flight.up).collect();
        let legs: Vec<LegNo> = up.iter().map(|flight| flight.leg).collect();
        for flight in up {
            self.close(flight.record, End::CallerGone);
        }
        self.step(Step::CallerCancels { call: self.no, legs: &legs });
        Hop::Over
    }

    async fn talk(&mut self, flights: &[Flight], winner: usize) -> Hop {
        let won = &flights[winner];
        let losers: Vec<&Flight> = flights.iter().filter(|flight| flight.up && flight.leg != won.leg).collect();
        for flight in &losers {
            self.close(flight.record, End::LostRace);
        }
        let losers: Vec<LegNo> = losers.iter().map(|flight| flight.leg).collect();
        self.report.legs[won.record].answered_at = Some(self.now);
        self.step(Step::Answered { call: self.no, leg: won.leg, losers: &losers });

        let over = self.now.after(self.call.talk.unwrap_or(won.talk));
        let by = match self.wait(over).await {
            Woken::Vanished => return self.vanish(),
            Woken::ToldToHangUp(side) => side,
            Woken::InTime if won.far_end_hangs_up => Side::FarEnd,
            Woken::InTime => Side::Caller,
        };
        self.close(won.record, End::HungUp(by));
        self.step(Step::Over { call: self.no, leg: won.leg, by });
        Hop::Over
    }

    /// The PBX is gone: the legs that were up end here, and nobody hears of it.
    fn vanish(&mut self) -> Hop {
        let now = self.now;
        for leg in self.report.legs.iter_mut().filter(|leg| leg.end == End::Vanished) {
            leg.ended_at = now;
        }
        Hop::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hunt_stops_where_the_person_or_the_number_is_the_reason() {
        for stops in [404, 410, 480, 484, 486, 600, 603] {
            assert!(!End::Refused(stops).hunts_on(), "{stops}");
        }
        for goes_on in [408, 500, 503, 403] {
            assert!(End::Refused(goes_on).hunts_on(), "{goes_on}");
        }
        assert!(End::Unreachable.hunts_on());
        assert!(End::RingTimeout { rang: false }.hunts_on());
        assert!(!End::RingTimeout { rang: true }.hunts_on());
    }
}
