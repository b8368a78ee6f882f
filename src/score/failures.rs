//! How many of a node's last attempts failed by the network's fault.
//!
//! The count is kept along, so an attempt costs the same whatever the length of the window.

use std::collections::VecDeque;

/// The last attempts of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures {
    window: VecDeque<bool>,
    capacity: usize,
    min_calls: usize,
    failed: usize,
}

impl Failures {
    /// Over the last `capacity` attempts, not judged below `min_calls` of them. Both are at least 1, and `min_calls` at
    /// most the window.
    #[must_use]
    pub fn new(capacity: usize, min_calls: usize) -> Self {
        let capacity = capacity.max(1);
        Self { window: VecDeque::new(), capacity, min_calls: min_calls.clamp(1, capacity), failed: 0 }
    }

    /// An attempt ended; `failed`: by the network's fault. One that says nothing about the network is not to be put in.
    pub fn push(&mut self, failed: bool) {
        if self.window.len() >= self.capacity && self.window.pop_front() == Some(true) {
            self.failed -= 1;
        }
        self.window.push_back(failed);
        self.failed += usize::from(failed);
    }

    /// Share of failed attempts, in percent; `None` over too few.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let calls = self.window.len();
        (calls >= self.min_calls).then(|| (self.failed * 100) as f64 / calls as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn too_few_attempts_have_no_rate() {
        let mut failures = Failures::new(100, 20);
        (0..19).for_each(|_| failures.push(true));
        assert_eq!(failures.rate(), None);
        failures.push(false);
        assert_eq!(failures.rate(), Some(95.0));
    }

    #[test]
    fn a_window_shorter_than_the_minimum_is_judged_when_it_is_full() {
        let mut failures = Failures::new(2, 20);
        failures.push(true);
        assert_eq!(failures.rate(), None);
        failures.push(false);
        assert_eq!(failures.rate(), Some(50.0));
        assert_eq!(Failures::new(0, 0).rate(), None, "nothing has no rate");
    }

    proptest! {
        #[test]
        fn the_rate_is_that_of_the_last_attempts(
            capacity in 1_usize..30, min_calls in 1_usize..30, calls in proptest::collection::vec(any::<bool>(), 0..100),
        ) {
            let mut failures = Failures::new(capacity, min_calls);
            for end in 1..=calls.len() {
                failures.push(calls[end - 1]);
                let last = &calls[end.saturating_sub(capacity)..end];
                let failed = last.iter().filter(|failed| **failed).count();
                let expected = (last.len() >= min_calls.min(capacity)).then(|| (failed * 100) as f64 / last.len() as f64);
                prop_assert_eq!(failures.rate(), expected);
            }
        }
    }
}
