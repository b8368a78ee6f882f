//! The one representation of time in the pure modules: microseconds since the Unix epoch.
//!
//! FreeSWITCH and Asterisk both report microseconds, the recordings hold them, and an integer survives JSON and
//! SQLite without loss. Arithmetic saturates: a PBX whose clock steps, or that sends nonsense, must not be able to
//! make anything here overflow.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time, in microseconds since the Unix epoch (UTC).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// From whole seconds since the epoch.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Seconds since the epoch, with decimals.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "microseconds of this age fit into 53 bits until the year 2255")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Time that has passed since `earlier`; zero where `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Milliseconds since `earlier`, rounded down; `None` where `earlier` is later, which is a clock that stepped.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> Option<u64> {
        u64::try_from(self.0.saturating_sub(earlier.0)).ok().map(|us| us / 1000)
    }

    /// This time plus `duration`.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This time minus `duration`.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{} us", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stepped_back_gives_no_negative_span() {
        let (early, late) = (Timestamp::from_secs(10), Timestamp::from_secs(12));
        assert_eq!(late.millis_since(early), Some(2000));
        assert_eq!(early.millis_since(late), None);
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::from_micros(i64::MAX).after(Duration::MAX).as_micros(), i64::MAX);
        assert_eq!(Timestamp::from_micros(i64::MIN).before(Duration::MAX).as_micros(), i64::MIN);
    }
}
