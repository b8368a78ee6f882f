//! The only place that reads the system's clocks.
//!
//! Everything pure takes a [`Timestamp`]; the drivers ask a [`Clock`]. A clock may run faster than the wall clock:
//! `pointsman demo` lives through an hour in a few minutes that way, with the very same program.
//!
//! A clock is anchored once and then follows the monotonic clock, so that a step of the system's time (NTP, an
//! operator) neither fires every retry timer at once nor holds them back.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::time::Timestamp;

/// A source of time. Cheap to copy; copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    anchor: Instant,
    anchored_at: Timestamp,
    rate: u32,
}

impl Clock {
    /// The wall clock.
    #[must_use]
    pub fn system() -> Self {
        Self::running_at(1)
    }

    /// A clock that starts now and runs `rate` times as fast as the wall clock.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clocks")]
    pub fn running_at(rate: u32) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { anchor: Instant::now(), anchored_at: Timestamp::from_micros(0).after(since_epoch), rate: rate.max(1) }
    }

    /// The time on this clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.anchored_at.after(self.anchor.elapsed().saturating_mul(self.rate))
    }

    /// How long to sleep, in real time, until this clock shows `at`.
    #[must_use]
    pub fn real_time_until(&self, at: Timestamp) -> Duration {
        at.since(self.now()) / self.rate
    }

    /// How many seconds this clock advances in a real second.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.rate
    }
}
