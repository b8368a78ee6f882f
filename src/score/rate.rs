//! How many calls a second are placed on a node.
//!
//! Counted in slices of a tenth of a second, so the memory is bounded whatever the rate, and a figure is at most one
//! slice off.

use std::time::Duration;

use crate::time::Timestamp;

/// The figure goes over this much time.
pub const SPAN: Duration = Duration::from_secs(10);

const SLICES: usize = 100;
const SLICE_US: i64 = 100_000;
const _: () = assert!(SLICE_US as u128 * SLICES as u128 == SPAN.as_micros());

/// Calls placed over the last ten seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    slices: [u64; SLICES],
    /// Number of the slice that runs, counted from the epoch.
    current: i64,
    total: u64,
}

impl Rate {
    /// None so far.
    #[must_use]
    pub fn new() -> Self {
        Self { slices: [0; SLICES], current: 0, total: 0 }
    }

    /// A call was placed.
    pub fn placed(&mut self, now: Timestamp) {
        self.advance(now);
        self.slices[slot(self.current)] += 1;
        self.total += 1;
    }

    /// Calls a second over the last ten seconds. A node that is watched for less has a figure that is too small.
    pub fn per_sec(&mut self, now: Timestamp) -> f64 {
        self.advance(now);
        self.total as f64 / SPAN.as_secs_f64()
    }

    /// Empties the slices that are over. A time before the slice that runs counts as that slice.
    fn advance(&mut self, now: Timestamp) {
        let number = now.as_micros().div_euclid(SLICE_US);
        if number.saturating_sub(self.current) >= SLICES as i64 {
            *self = Self { current: number, ..Self::new() };
        }
        while self.current < number {
            self.current += 1;
            self.total -= std::mem::take(&mut self.slices[slot(self.current)]);
        }
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self::new()
    }
}

fn slot(number: i64) -> usize {
    usize::try_from(number.rem_euclid(SLICES as i64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000 + millis * 1000)
    }

    #[test]
    fn calls_are_counted_for_ten_seconds() {
        let mut rate = Rate::new();
        (0..50).for_each(|_| rate.placed(at(0)));
        assert_eq!(rate.per_sec(at(0)), 5.0);
        assert_eq!(rate.per_sec(at(9_899)), 5.0);
        assert_eq!(rate.per_sec(at(10_000)), 0.0);
    }

    #[test]
    fn a_time_before_the_latest_counts_as_the_latest() {
        let mut rate = Rate::new();
        rate.placed(at(60_000));
        rate.placed(at(0));
        assert_eq!(rate.per_sec(at(60_000)), 0.2);
        assert_eq!(rate.per_sec(Timestamp::from_micros(i64::MAX)), 0.0);
    }

    proptest! {
        /// Between what the last 9.9 and the last 10 seconds hold.
        #[test]
        fn the_figure_is_at_most_a_slice_off(gaps in proptest::collection::vec(0_i64..2_000, 1..200)) {
            let mut rate = Rate::new();
            let mut times = Vec::new();
            let mut now = 0;
            for gap in gaps {
                now += gap;
                times.push(now);
                rate.placed(at(now));
                let within = |millis| times.iter().filter(|time| now - **time < millis).count() as f64 / 10.0;
                let figure = rate.per_sec(at(now));
                prop_assert!(figure >= within(9_900) && figure <= within(10_000), "{}", figure);
            }
        }
    }
}
