//! Attempts of the past, fed to a [`Book`] as they would have happened.
//!
//! At one instant the timers come first, then the attempts that end, then those that are placed; an attempt that ends
//! at the instant at which it was placed ends after the placements. Among equals the order given decides.

use crate::call::outcome::Outcome;
use crate::quality::book::{Book, Seat};
use crate::quality::machine::Change;
use crate::quality::window::{Epoch, Sample};
use crate::time::Timestamp;

/// An attempt that finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Whose.
    pub seat: Seat,
    /// When it was placed.
    pub placed_at: Timestamp,
    /// When it ended, not before it was placed.
    pub ended_at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// See [`Sample::duration_ms`].
    pub duration_ms: Option<u64>,
    /// See [`Sample::pdd_ms`].
    pub pdd_ms: Option<u64>,
}

/// What happens while attempts are played.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// An attempt was placed.
    Placed(Seat),
    /// An attempt ended.
    Ended(Seat, &'a Sample),
    /// A state changed.
    Changed(Seat, &'a Change),
}

/// What happens at one instant, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    End,
    Placement,
    EndAtOnce,
}

/// Plays the attempts, in whatever order they are given, and hands every change of state to `on_change` as it happens.
/// Timers fire at their exact times, those that are due at `until` included.
///
/// # Errors
/// The first one of `on_change`; the rest is not played.
pub fn play<E>(
    book: &mut Book,
    attempts: &[Attempt],
    until: Timestamp,
    mut on_change: impl FnMut(&Book, Seat, &Change) -> Result<(), E>,
) -> Result<(), E> {
    follow(book, attempts, until, |book, event| match event {
        Event::Changed(seat, change) => on_change(book, seat, change),
        Event::Placed(_) | Event::Ended(..) => Ok(()),
    })
}

/// As [`play`], for those who want to see every attempt: a placement and an end are told before the book has its change of
/// state from them.
///
/// # Errors
/// The first one of `on_event`; the rest is not played.
pub fn follow<E>(
    book: &mut Book,
    attempts: &[Attempt],
    until: Timestamp,
    mut on_event: impl FnMut(&Book, Event<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut steps: Vec<(Timestamp, Step, usize)> = Vec::with_capacity(attempts.len() * 2);
    for (index, attempt) in attempts.iter().enumerate() {
        let end = if attempt.ended_at > attempt.placed_at { Step::End } else { Step::EndAtOnce };
        steps.push((attempt.placed_at, Step::Placement, index));
        steps.push((attempt.ended_at.max(attempt.placed_at), end, index));
    }
    steps.sort_unstable();
    let mut epochs = vec![Epoch::default(); attempts.len()];
    for (at, step, index) in steps {
        fire(book, at, &mut on_event)?;
        let attempt = &attempts[index];
        match step {
            Step::Placement => {
                on_event(book, Event::Placed(attempt.seat))?;
                epochs[index] = book.placed(attempt.seat);
            }
            Step::End | Step::EndAtOnce => {
                let sample = sample(attempt, epochs[index]);
                on_event(book, Event::Ended(attempt.seat, &sample))?;
                if let Some(change) = book.finished(attempt.seat, &sample, at) {
                    on_event(book, Event::Changed(attempt.seat, &change))?;
                }
            }
        }
    }
    fire(book, until, &mut on_event)
}

fn fire<E>(
    book: &mut Book,
    until: Timestamp,
    on_event: &mut impl FnMut(&Book, Event<'_>) -> Result<(), E>,
) -> Result<(), E> {
    while let Some(due) = book.next_deadline().filter(|due| *due <= until) {
        for (seat, change) in book.fire_due(due) {
            on_event(book, Event::Changed(seat, &change))?;
        }
    }
    Ok(())
}

fn sample(attempt: &Attempt, epoch: Epoch) -> Sample {
    let Attempt { seat: _, placed_at, ended_at, outcome, duration_ms, pdd_ms } = *attempt;
    Sample { epoch, placed_at, ended_at, outcome, duration_ms, pdd_ms, cause: None, sip_status: None }
}
