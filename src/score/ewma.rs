//! Reply time of a node, smoothed: `e = 0.95 * e + 0.05 * sample`, from 1 ms on.
//!
//! Only replies that came and were good enter it: a request that failed has no reply time, and the breaker counts it.

use std::time::Duration;

/// Where it starts, in milliseconds.
pub const START_MS: f64 = 1.0;

const KEEP: f64 = 0.95;
const TAKE: f64 = 0.05;

/// A smoothed reply time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ewma(f64);

impl Ewma {
    /// Takes the time of a good reply in.
    pub fn sample(&mut self, reply: Duration) {
        self.0 = KEEP * self.0 + TAKE * (reply.as_secs_f64() * 1e3);
    }

    /// The smoothed time in milliseconds.
    #[must_use]
    pub fn ms(self) -> f64 {
        self.0
    }
}

impl Default for Ewma {
    fn default() -> Self {
        Self(START_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_a_twentieth_of_the_say() {
        let mut ewma = Ewma::default();
        assert_eq!(ewma.ms(), 1.0);
        ewma.sample(Duration::from_millis(21));
        assert_eq!(ewma.ms(), 0.95 + 0.05 * 21.0);
        ewma.sample(Duration::from_micros(500));
        assert_eq!(ewma.ms(), 0.95 * 2.0 + 0.05 * 0.5);
    }

    #[test]
    fn small_reply_times_are_not_rounded_away() {
        let mut ewma = Ewma::default();
        (0..1_000).for_each(|_| ewma.sample(Duration::from_micros(80)));
        assert!((ewma.ms() - 0.08).abs() < 1e-9, "in whole milliseconds it would stay at 0 or 1");
    }
}
