//! When to read the list of legs that are up: after the login, after every loss, and now and then to make sure.

use std::time::Duration;

/// A list for comparison this often: a lost end is noticed after two of them at most.
pub(super) const AUDIT_EVERY: Duration = Duration::from_secs(60);

/// After a list that was asked for (login, loss) comes a second one this soon: a leg missing in one list alone proves
/// nothing (lists and events race), two lists at least 10 s apart do.
pub(super) const CONFIRM_AFTER: Duration = Duration::from_secs(12);

/// Lists are at least this far apart, however often one is asked for: a stream of damaged messages must not become a
/// stream of lists.
pub(super) const SPACING: Duration = Duration::from_secs(1);

/// A list that failed is asked for again this much later.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A list that makes no progress for this long has failed.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(10);

/// When the next list is due. One at a time.
#[derive(Debug, Default)]
pub(super) struct Lister {
    /// When the next list is to be asked for, where one is.
    next_at: Option<Duration>,
    /// Whether the next list is more than an audit.
    wanted: bool,
    /// Last sign of progress of the running list.
    progress_at: Option<Duration>,
    started_at: Option<Duration>,
}

impl Lister {
    /// A list is wanted as soon as the spacing allows. One that runs already may have passed what was lost, so another
    /// follows it.
    pub(super) fn want(&mut self, now: Duration) {
        let soonest = self.started_at.map_or(now, |at| (at + SPACING).max(now));
        self.next_at = Some(self.next_at.map_or(soonest, |at| at.min(soonest)));
        self.wanted = true;
    }

    /// Whether to ask for a list now; if so it runs from here on.
    pub(super) fn start(&mut self, now: Duration) -> bool {
        let due = self.progress_at.is_none() && self.next_at.is_some_and(|at| at <= now);
        if due {
            let confirm = if std::mem::take(&mut self.wanted) { CONFIRM_AFTER } else { AUDIT_EVERY };
            self.next_at = Some(now + confirm);
            self.started_at = Some(now);
            self.progress_at = Some(now);
        }
        due
    }

    /// A part of the list has come.
    pub(super) fn progress(&mut self, now: Duration) {
        if let Some(at) = &mut self.progress_at {
            *at = now;
        }
    }

    /// The list is complete.
    pub(super) fn finished(&mut self) {
        self.progress_at = None;
    }

    /// The list failed.
    pub(super) fn failed(&mut self, now: Duration) {
        self.progress_at = None;
        self.next_at = Some(now + RETRY_AFTER);
        self.wanted = true;
    }

    /// The PBX does not let us have lists. That may change, but nothing is gained by asking often.
    pub(super) fn refused(&mut self, now: Duration) {
        self.progress_at = None;
        self.next_at = Some(now + AUDIT_EVERY);
    }

    /// Whether the running list makes no progress any more.
    pub(super) fn stalled(&self, now: Duration) -> bool {
        self.progress_at.is_some_and(|at| now >= at + STALLED_AFTER)
    }

    pub(super) fn running(&self) -> bool {
        self.progress_at.is_some()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.progress_at.map(|at| at + STALLED_AFTER).or(self.next_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_list_that_was_asked_for_is_confirmed_and_then_audited() {
        let mut lister = Lister::default();
        assert!(!lister.start(secs(0)), "nothing was asked for");
        lister.want(secs(0));
        let mut starts = Vec::new();
        for second in 0..200 {
            if lister.start(secs(second)) {
                starts.push(second);
                lister.finished();
            }
        }
        assert_eq!(starts, [0, 12, 72, 132, 192]);
    }

    #[test]
    fn however_often_one_is_asked_for_lists_stay_apart() {
        let mut lister = Lister::default();
        let starts = (0..10_000u64)
            .filter(|&ms| {
                let now = Duration::from_millis(ms);
                lister.want(now);
                lister.start(now).then(|| lister.finished()).is_some()
            })
            .count();
        assert_eq!(starts, 10);
    }

    #[test]
    fn a_loss_during_a_list_asks_for_another() {
        let mut lister = Lister::default();
        lister.want(secs(0));
        assert!(lister.start(secs(0)));
        lister.want(secs(2));
        assert!(!lister.start(secs(2)), "one at a time");
        lister.finished();
        assert!(lister.start(secs(3)));
    }

    #[test]
    fn a_list_that_stalls_is_asked_for_again() {
        let mut lister = Lister::default();
        lister.want(secs(0));
        assert!(lister.start(secs(0)));
        lister.progress(secs(8));
        assert!(!lister.stalled(secs(17)));
        assert!(lister.stalled(secs(18)));
        lister.failed(secs(18));
        assert!(!lister.start(secs(22)));
        assert!(lister.start(secs(23)));
    }
}
