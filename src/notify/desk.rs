//! From notices to what goes into one letter: a change waits a little for others of its customer, so that a storm makes
//! one digest and not a mail per connection. Pure.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::ids::{CustomerId, QualityKey};
use crate::notify::notice::Notice;
use crate::time::Timestamp;

/// Most changes that go into one digest; a storm that is larger makes several.
pub const MAX_DIGEST: usize = 500;

/// What goes into one letter.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    /// Whose.
    pub customer: CustomerId,
    /// The changes, in the order in which they came; one, or those of a digest.
    pub notices: Vec<Notice>,
}

/// Notices that wait.
#[derive(Clone, Debug)]
pub struct Desk {
    waiting: BTreeMap<CustomerId, Pile>,
    digest_after: usize,
    window: Duration,
}

#[derive(Clone, Debug)]
struct Pile {
    due_at: Timestamp,
    notices: Vec<Notice>,
}

impl Desk {
    /// An empty desk: more than `digest_after` connections of a customer that change within `window` of the first make a
    /// digest.
    #[must_use]
    pub fn new(digest_after: usize, window: Duration) -> Self {
        Self { waiting: BTreeMap::new(), digest_after, window }
    }

    /// Takes a notice, the older ones first: they are told in the order in which they come, because a clock may have been
    /// ahead before a restart. One that lies there already (a restart hands it over again) is not taken twice.
    pub fn take(&mut self, notice: Notice, now: Timestamp) {
        // Not by a clock that is ahead of ours.
        let began = notice.change.at.min(now);
        let pile = self.waiting.entry(notice.customer.clone());
        let pile = pile.or_insert_with(|| Pile { due_at: began.after(self.window), notices: Vec::new() });
        if !pile.notices.iter().any(|known| known.id() == notice.id()) {
            pile.notices.push(notice);
        }
    }

    /// How many notices wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.values().map(|pile| pile.notices.len()).sum()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What has waited long enough.
    #[must_use]
    pub fn due(&mut self, now: Timestamp) -> Vec<Bundle> {
        let due: Vec<CustomerId> =
            self.waiting.iter().filter(|(_, pile)| pile.due_at <= now).map(|(customer, _)| customer.clone()).collect();
        due.iter().flat_map(|customer| self.bundles(customer)).collect()
    }

    /// When [`Desk::due`] has something next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.waiting.values().map(|pile| pile.due_at).min()
    }

    fn bundles(&mut self, customer: &CustomerId) -> Vec<Bundle> {
        let notices = self.waiting.remove(customer).map(|pile| pile.notices).unwrap_or_default();
        let connections: HashSet<&QualityKey> = notices.iter().map(|notice| &notice.key).collect();
        let size = if connections.len() > self.digest_after { MAX_DIGEST } else { 1 };
        let bundle = |notices: &[Notice]| Bundle { customer: customer.clone(), notices: notices.to_vec() };
        notices.chunks(size).map(bundle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ConnectionId;
    use crate::quality::machine::{Change, Reason, State};
    use crate::quality::settings::Settings;
    use crate::quality::window::{Epoch, Figures};

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn notice(customer: &str, connection: &str, epoch: u64, secs: i64) -> Notice {
        let (from, to) = if epoch.is_multiple_of(2) { (State::Bad, State::Good) } else { (State::Good, State::Bad) };
        let figures = Figures::default();
        Notice {
            key: QualityKey::connection(ConnectionId::new(connection).unwrap()),
            customer: CustomerId::new(customer).unwrap(),
            change: Change { at: at(secs), from, to, reason: Reason::Asr, epoch: Epoch(epoch), figures },
            settings: Settings::default(),
            retry_at: None,
            bad_since: None,
            maps: Vec::new(),
            failed: Vec::new(),
        }
    }

    fn desk() -> Desk {
        Desk::new(2, Duration::from_secs(60))
    }

    /// The bundles as `customer: connection epoch, ...`.
    fn due(desk: &mut Desk, secs: i64) -> Vec<String> {
        let words = |bundle: &Bundle| {
            let notices = bundle.notices.iter().map(|notice| format!("{} {}", notice.key, notice.change.epoch.0));
            format!("{}: {}", bundle.customer, notices.collect::<Vec<_>>().join(", "))
        };
        desk.due(at(secs)).iter().map(words).collect()
    }

    #[test]
    fn few_changes_make_a_letter_each_and_many_make_a_digest() {
        let mut desk = desk();
        desk.take(notice("acme", "a", 1, 100), at(100));
        desk.take(notice("acme", "b", 1, 159), at(159));
        desk.take(notice("zeta", "x", 1, 130), at(130));
        desk.take(notice("zeta", "y", 1, 131), at(131));
        desk.take(notice("zeta", "z", 1, 132), at(132));
        assert_eq!(desk.next_due(), Some(at(160)));
        assert_eq!(due(&mut desk, 159), [""; 0]);
        assert_eq!(due(&mut desk, 160), ["acme: a 1", "acme: b 1"]);
        assert_eq!(desk.next_due(), Some(at(190)));
        assert_eq!(due(&mut desk, 190), ["zeta: x 1, y 1, z 1"]);
        assert_eq!(desk.next_due(), None);
    }

    #[test]
    fn one_connection_that_flaps_is_no_storm() {
        let mut desk = desk();
        for epoch in 1..=4 {
            desk.take(notice("acme", "a", epoch, 100 + epoch as i64), at(110));
        }
        assert_eq!(due(&mut desk, 161), ["acme: a 1", "acme: a 2", "acme: a 3", "acme: a 4"]);
    }

    #[test]
    fn a_notice_that_is_handed_over_again_is_told_once() {
        let mut desk = desk();
        desk.take(notice("acme", "a", 1, 100), at(100));
        desk.take(notice("acme", "a", 1, 100), at(130));
        assert_eq!(due(&mut desk, 160), ["acme: a 1"]);
    }

    #[test]
    fn a_clock_that_is_ahead_holds_nothing_back() {
        let mut desk = desk();
        desk.take(notice("acme", "a", 1, 9_999), at(100));
        assert_eq!(desk.next_due(), Some(at(160)));
    }

    #[test]
    fn a_clock_that_was_ahead_puts_no_recovery_before_its_alarm() {
        let mut desk = desk();
        desk.take(notice("acme", "a", 1, 9_999), at(100));
        desk.take(notice("acme", "a", 2, 110), at(110));
        assert_eq!(due(&mut desk, 160), ["acme: a 1", "acme: a 2"]);
    }

    #[test]
    fn a_storm_beyond_a_digest_makes_several() {
        let mut desk = desk();
        for n in 0..MAX_DIGEST + 1 {
            desk.take(notice("acme", &format!("v{n}"), 1, 100), at(100));
        }
        assert_eq!(desk.due(at(160)).iter().map(|bundle| bundle.notices.len()).collect::<Vec<_>>(), [MAX_DIGEST, 1]);
    }
}
