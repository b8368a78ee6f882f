//! How long to wait before the next try to connect.
//!
//! Exponential with full jitter between a floor and a ceiling: many nodes that went away together (a switch, a site)
//! must not be called back in step, and one that refuses must not be hammered. Pure: the randomness is an argument.

use std::time::Duration;

/// Shortest wait.
pub const FLOOR: Duration = Duration::from_millis(500);

/// Longest wait, jitter included.
pub const CEILING: Duration = Duration::from_secs(30);

/// A session that lasted this long was healthy: the waits start over. One that came up and went down at once is a
/// success too, but a row of those is not (a PBX that throws us out after every login).
pub const STABLE: Duration = Duration::from_secs(10);

/// Upper end of the first draw; it doubles with every failure.
const FIRST: Duration = Duration::from_secs(1);

/// Waits between tries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
    short_lives: u32,
}

impl Backoff {
    #[expect(clippy::manual_clamp, reason = "clamp would pass a NaN on")]
    /// The next wait: uniform between [`FLOOR`] and an upper end of 1, 2, 4 ... 30 s. `random` is in `0.0..1.0`.
    #[must_use]
    pub fn next(&mut self, random: f64) -> Duration {
        let upper = FIRST.saturating_mul(1 << self.failures.min(5)).min(CEILING);
        self.failures = self.failures.saturating_add(1);
        FLOOR + (upper - FLOOR).mul_f64(random.max(0.0).min(1.0))
    }

    /// A session had come up (the first frame after the login was there) and has ended after `lifetime`.
    pub fn session_ended(&mut self, lifetime: Duration) {
        if lifetime >= STABLE {
            *self = Self::default();
        } else {
            self.failures = self.short_lives;
            self.short_lives = self.short_lives.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upper_ends(backoff: &mut Backoff, count: usize) -> Vec<f64> {
        (0..count).map(|_| backoff.next(1.0).as_secs_f64()).collect()
    }

    #[test]
    fn waits_grow_to_thirty_seconds_and_stay_there() {
        let mut backoff = Backoff::default();
        assert_eq!(upper_ends(&mut backoff, 8), [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
        assert_eq!(backoff.next(0.0), FLOOR, "the whole range is drawn from");
        for _ in 0..100_000 {
            assert!(backoff.next(1.0) <= CEILING);
        }
    }

    #[test]
    fn only_sessions_that_last_or_come_alone_start_the_waits_over() {
        let mut backoff = Backoff::default();
        let _ = upper_ends(&mut backoff, 6);
        backoff.session_ended(STABLE);
        assert_eq!(upper_ends(&mut backoff, 2), [1.0, 2.0], "a healthy session starts over");

        backoff.session_ended(Duration::from_millis(20));
        assert_eq!(upper_ends(&mut backoff, 1), [1.0], "so does a single short one");
        let thrown_out: Vec<_> = (0..7)
            .map(|_| {
                backoff.session_ended(Duration::from_millis(20));
                backoff.next(1.0).as_secs_f64()
            })
            .collect();
        assert_eq!(thrown_out, [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0], "a row of short ones does not");
    }

    #[test]
    fn nonsense_randomness_stays_within_bounds() {
        for random in [-1.0, 2.0, f64::NAN] {
            let wait = Backoff::default().next(random);
            assert!(wait >= FLOOR && wait <= CEILING);
        }
    }
}
