//! Hands what a node says to the engine without ever waiting for it.
//!
//! While the engine's queue is full, events are dropped and counted, because what would wait instead is the PBX:
//! FreeSWITCH freezes the events of all its clients for one that does not read, Asterisk throws it out. What must not
//! be missed, the state of the link and which run of the PBX speaks, is kept and goes first when there is room again,
//! with the count of what was dropped.

use std::collections::VecDeque;

use tokio::sync::mpsc::error::TrySendError;

use crate::clock::Clock;
use crate::pbx::event::PbxEvent;
use crate::pbx::link::{FromNode, LinkInbox};

/// Where the events of one node leave.
#[derive(Debug)]
pub(super) struct Outlet {
    inbox: LinkInbox,
    clock: Clock,
    /// Kept for when there is room: at most the last run's name and the last changes of the link.
    kept: VecDeque<FromNode>,
    /// Dropped since the engine was last told.
    dropped: u64,
}

/// Longest that `kept` gets; see [`Outlet::keep`].
#[cfg(test)]
const MAX_KEPT: usize = 5;

impl Outlet {
    pub(super) fn new(inbox: LinkInbox, clock: Clock) -> Self {
        Self { inbox, clock, kept: VecDeque::new(), dropped: 0 }
    }

    /// Hands events over. Returns how many had to be dropped.
    pub(super) fn put(&mut self, events: impl IntoIterator<Item = PbxEvent>) -> u64 {
        let before = self.dropped;
        let at = self.clock.now();
        for event in events {
            let message = self.inbox.message(at, event);
            if self.owes() {
                self.keep(message);
            } else if let Err(TrySendError::Full(message)) = self.inbox.sender().try_send(message) {
                self.keep(message);
            }
        }
        self.dropped - before
    }

    /// Whether something waits for room.
    pub(super) fn owes(&self) -> bool {
        self.dropped > 0 || !self.kept.is_empty()
    }

    /// What goes next once there is room: first how many events are missing.
    pub(super) fn owed(&mut self) -> Option<FromNode> {
        match std::mem::take(&mut self.dropped) {
            0 => self.kept.pop_front(),
            dropped => Some(self.inbox.message(self.clock.now(), PbxEvent::Lost(dropped))),
        }
    }

    fn keep(&mut self, message: FromNode) {
        match &message.event {
            // What was before a loss of the link does not matter any more, but for which run it was.
            PbxEvent::Unlinked => self.kept.retain(|kept| matches!(kept.event, PbxEvent::Incarnation(_))),
            PbxEvent::Incarnation(_) => self.kept.retain(|kept| !matches!(kept.event, PbxEvent::Incarnation(_))),
            PbxEvent::Linked => {}
            PbxEvent::Lost(count) => {
                self.dropped = self.dropped.saturating_add(*count);
                return;
            }
            _ => {
                self.dropped = self.dropped.saturating_add(1);
                return;
            }
        }
        self.kept.push_back(message);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::ids::LegId;

    fn gone() -> PbxEvent {
        PbxEvent::LegGone(LegId::new("u-1"))
    }

    fn run(name: &str) -> PbxEvent {
        PbxEvent::Incarnation(name.into())
    }

    fn events(receiver: &mut mpsc::Receiver<FromNode>) -> Vec<PbxEvent> {
        std::iter::from_fn(|| receiver.try_recv().ok()).map(|message| message.event).collect()
    }

    fn outlet(depth: usize) -> (Outlet, mpsc::Receiver<FromNode>) {
        let (sender, receiver) = mpsc::channel(depth);
        (Outlet::new(LinkInbox::new(sender, 3), Clock::system()), receiver)
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told_once() {
        let (mut outlet, mut receiver) = outlet(2);
        assert_eq!(outlet.put([gone(), gone(), gone(), gone()]), 2);
        assert_eq!(events(&mut receiver), [gone(), gone()]);
        assert_eq!(outlet.put([gone()]), 1, "what comes later must not overtake the news of the loss");
        assert_eq!(outlet.owed().map(|message| (message.node, message.event)), Some((3, PbxEvent::Lost(3))));
        assert_eq!((outlet.owed(), outlet.owes()), (None, false));
        assert_eq!(outlet.put([gone()]), 0);
        assert_eq!(events(&mut receiver), [gone()]);
    }

    #[test]
    fn the_state_of_the_link_is_kept_and_stays_short() {
        let (mut outlet, _receiver) = outlet(1);
        outlet.put([gone()]);
        for round in 0..1000 {
            outlet.put([PbxEvent::Linked, run(&round.to_string()), gone(), PbxEvent::Unlinked]);
            assert!(outlet.kept.len() <= MAX_KEPT);
        }
        outlet.put([PbxEvent::Linked, PbxEvent::Lost(5)]);
        let owed: Vec<_> = std::iter::from_fn(|| outlet.owed()).map(|message| message.event).collect();
        assert_eq!(owed, [PbxEvent::Lost(1005), run("999"), PbxEvent::Unlinked, PbxEvent::Linked]);
    }

    #[test]
    fn an_engine_that_is_gone_is_owed_nothing() {
        let (mut outlet, receiver) = outlet(1);
        drop(receiver);
        outlet.put([gone(), PbxEvent::Linked]);
        assert!(!outlet.owes());
    }
}
