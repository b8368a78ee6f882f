//! When a connection was not good, out of its changes.

use crate::quality::machine::{Change, State};
use crate::time::Timestamp;

/// A time in which a connection had one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it begins.
    pub from: Timestamp,
    /// Where it ends.
    pub to: Timestamp,
    /// The state.
    pub state: State,
}

/// The times from `from` to `to` in which a connection was not good, oldest first. `changes` are those of this time,
/// newest first; `before_known` says that they are all of them, so that the state before the first one is known too.
/// Without any, it had the state `now` all the time.
#[must_use]
pub fn stretches<'a>(
    changes: impl DoubleEndedIterator<Item = &'a Change>,
    before_known: bool,
    now: State,
    from: Timestamp,
    to: Timestamp,
) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    let mut add = |from: Timestamp, to: Timestamp, state| {
        if state != State::Good && from < to {
            stretches.push(Stretch { from, to, state });
        }
    };
    let (mut begin, mut state) = (from, None);
    for change in changes.rev() {
        let at = change.at.clamp(from, to);
        match state {
            Some(state) => add(begin, at, state),
            None if before_known => add(begin, at, change.from),
            None => {}
        }
        (begin, state) = (at, Some(change.to));
    }
    if state.is_some() || before_known {
        add(begin, to, state.unwrap_or(now));
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::machine::Reason;
    use crate::quality::window::{Epoch, Figures};

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn change(secs: i64, from: State, to: State) -> Change {
        Change { at: at(secs), from, to, reason: Reason::Asr, epoch: Epoch(0), figures: Figures::default() }
    }

    fn of(changes: &[Change], before_known: bool, now: State) -> Vec<(i64, i64, State)> {
        let stretches = stretches(changes.iter(), before_known, now, at(100), at(200));
        let secs = |at: Timestamp| at.as_micros() / 1_000_000;
        stretches.iter().map(|stretch| (secs(stretch.from), secs(stretch.to), stretch.state)).collect()
    }

    #[test]
    fn what_is_not_good_is_told_from_the_first_moment_to_the_last() {
        use State::{Bad, Good, Retry};
        let newest_first = [change(180, Good, Bad), change(160, Retry, Good), change(150, Bad, Retry)];
        assert_eq!(of(&newest_first, true, Bad), [(100, 150, Bad), (150, 160, Retry), (180, 200, Bad)]);
        assert_eq!(of(&newest_first, false, Bad), [(150, 160, Retry), (180, 200, Bad)]);
    }

    #[test]
    fn without_a_change_the_state_of_now_was_there_all_the_time() {
        assert_eq!(of(&[], true, State::Bad), [(100, 200, State::Bad)]);
        assert_eq!(of(&[], true, State::Good), []);
    }

    #[test]
    fn changes_outside_the_time_are_moved_to_its_edges() {
        use State::{Bad, Good};
        assert_eq!(of(&[change(250, Bad, Good), change(50, Good, Bad)], true, Good), [(100, 200, Bad)]);
    }
}
