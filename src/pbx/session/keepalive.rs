//! Notices a peer that is gone without a word.

use std::time::Duration;

/// A request this often.
pub(super) const EVERY: Duration = Duration::from_secs(5);

/// Dead after this many requests in a row without a sign of life.
pub(super) const MISSED: u8 = 3;

/// When to ask, and when to give up. Any byte from the peer is a sign of life: events that flow prove the path as
/// well as an answer does, and an answer may stand behind many events.
#[derive(Debug)]
pub(super) struct Keepalive {
    next_at: Duration,
    waiting: bool,
    missed: u8,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Ask,
    Dead,
}

impl Keepalive {
    /// The first request is due at `at`.
    pub(super) fn starting(at: Duration) -> Self {
        Self { next_at: at, waiting: false, missed: 0 }
    }

    pub(super) fn heard(&mut self) {
        self.waiting = false;
        self.missed = 0;
    }

    pub(super) fn tick(&mut self, now: Duration) -> Due {
        if now < self.next_at {
            return Due::Nothing;
        }
        if self.waiting {
            self.missed += 1;
            if self.missed >= MISSED {
                return Due::Dead;
            }
        }
        self.waiting = true;
        self.next_at = now + EVERY;
        Due::Ask
    }

    pub(super) fn deadline(&self) -> Duration {
        self.next_at
    }

    /// Why the link is given up, in words.
    pub(super) fn obituary() -> String {
        format!("no sign of life: {MISSED} keepalive requests in {} s unanswered", EVERY.as_secs() * u64::from(MISSED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn three_requests_without_an_answer_are_the_end() {
        let mut keepalive = Keepalive::starting(secs(5));
        assert_eq!(keepalive.tick(secs(4)), Due::Nothing);
        assert_eq!(keepalive.tick(secs(5)), Due::Ask);
        assert_eq!(keepalive.tick(secs(10)), Due::Ask);
        assert_eq!(keepalive.tick(secs(15)), Due::Ask);
        assert_eq!(keepalive.tick(secs(20)), Due::Dead);
    }

    #[test]
    fn any_sign_of_life_starts_the_count_over() {
        let mut keepalive = Keepalive::starting(secs(0));
        for round in 0..100 {
            assert_eq!(keepalive.tick(secs(round * 10)), Due::Ask);
            assert_eq!(keepalive.tick(secs(round * 10 + 5)), Due::Ask, "one miss is nothing");
            keepalive.heard();
        }
    }
}
