//! What a PBX, or the network before it, can do wrong.

use std::time::Duration;

/// Misbehaviour, by command. What lasts (silence, deafness, trickle, delay, refusals) lasts until
/// [`Misbehaviour::None`]; everything else happens once, to every connection that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Back to normal: ends everything that lasts. What was held back by silence is sent then.
    None,
    /// Stop writing, go on reading: a PBX that hangs, or a network that lost the way back.
    Silent,
    /// Stop reading, go on writing.
    Deaf,
    /// Close every connection in good order (FIN).
    Close,
    /// Reset every connection (RST).
    Reset,
    /// Send these bytes between two frames.
    Garbage(Vec<u8>),
    /// Send the first half of the next event, then close.
    HalfFrame,
    /// Never send the next events: `count` of those of this kind (any, where it is `None`).
    LoseEvents {
        /// How many.
        count: u32,
        /// The event's name, as in `CHANNEL_HANGUP_COMPLETE` or `Hangup`.
        kind: Option<String>,
    },
    /// Send each of the next events twice.
    DuplicateEvents(u32),
    /// Exchange the next two events.
    ReorderEvents,
    /// Wait this long (real time) before every reply.
    DelayReplies(Duration),
    /// Refuse the password of every login from now on.
    RefusePassword,
    /// Refuse peers before the login (FreeSWITCH: the ACL; Asterisk: as a wrong password).
    RefusePeers,
    /// Announce a frame of this many bytes and send filler for as long as the peer reads: a frame that is too large.
    HugeFrame(u64),
    /// Write only so many bytes at a time, with this (real) time between.
    Trickle {
        /// Bytes per write, at least 1.
        bytes: usize,
        /// Time between two writes.
        pause: Duration,
    },
    /// Close the port: connections in progress go on, new ones are refused by the system.
    RefuseConnections,
    /// Open the port again.
    AcceptConnections,
    /// Accept connections and say nothing at all: not even the greeting.
    Mute,
}

/// The conditions that last, as the connections see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) silent: bool,
    pub(crate) deaf: bool,
    pub(crate) mute: bool,
    pub(crate) refuse_password: bool,
    pub(crate) refuse_peers: bool,
    pub(crate) refuse_connections: bool,
    pub(crate) delay_replies: Duration,
    pub(crate) trickle: Option<(usize, Duration)>,
}

/// What happens once to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Close,
    Reset,
    Garbage(Vec<u8>),
    HalfFrame,
    HugeFrame(u64),
}

/// What is to be done to the stream of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFaults {
    lose: u32,
    lose_kind: Option<String>,
    duplicate: u32,
    pub(crate) reorder: bool,
}

/// How many times an event goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    Lost,
    One,
    Two,
}

impl EventFaults {
    pub(crate) fn lose(&mut self, count: u32, kind: Option<String>) {
        (self.lose, self.lose_kind) = (count, kind);
    }

    pub(crate) fn duplicate(&mut self, count: u32) {
        self.duplicate = count;
    }

    /// Decides about one event that somebody would have got.
    pub(crate) fn copies(&mut self, kind: &str) -> Copies {
        if self.lose > 0 && self.lose_kind.as_deref().is_none_or(|wanted| wanted == kind) {
            self.lose -= 1;
            return Copies::Lost;
        }
        if self.duplicate > 0 {
            self.duplicate -= 1;
            return Copies::Two;
        }
        Copies::One
    }
}

impl Conditions {
    /// Applies what lasts; says whether it was something that lasts.
    pub(crate) fn apply(&mut self, misbehaviour: &Misbehaviour) -> bool {
        match misbehaviour {
            Misbehaviour::None => *self = Self::default(),
            Misbehaviour::Silent => self.silent = true,
            Misbehaviour::Deaf => self.deaf = true,
            Misbehaviour::Mute => self.mute = true,
            Misbehaviour::RefusePassword => self.refuse_password = true,
            Misbehaviour::RefusePeers => self.refuse_peers = true,
            Misbehaviour::RefuseConnections => self.refuse_connections = true,
            Misbehaviour::AcceptConnections => self.refuse_connections = false,
            Misbehaviour::DelayReplies(delay) => self.delay_replies = *delay,
            Misbehaviour::Trickle { bytes, pause } => self.trickle = Some(((*bytes).max(1), *pause)),
            Misbehaviour::Close
            | Misbehaviour::Reset
            | Misbehaviour::Garbage(_)
            | Misbehaviour::HalfFrame
            | Misbehaviour::HugeFrame(_)
            | Misbehaviour::LoseEvents { .. }
            | Misbehaviour::DuplicateEvents(_)
            | Misbehaviour::ReorderEvents => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kind_asked_for_is_lost() {
        let mut faults = EventFaults::default();
        faults.lose(1, Some("Hangup".into()));
        assert_eq!(faults.copies("Newstate"), Copies::One);
        assert_eq!(faults.copies("Hangup"), Copies::Lost);
        assert_eq!(faults.copies("Hangup"), Copies::One);
        faults.duplicate(1);
        assert_eq!(faults.copies("Hangup"), Copies::Two);
        assert_eq!(faults.copies("Hangup"), Copies::One);
    }

    #[test]
    fn none_ends_everything_that_lasts() {
        let mut conditions = Conditions::default();
        assert!(conditions.apply(&Misbehaviour::Silent));
        assert!(conditions.apply(&Misbehaviour::RefusePassword));
        assert!(!conditions.apply(&Misbehaviour::Close));
        assert!(conditions.silent && conditions.refuse_password);
        conditions.apply(&Misbehaviour::None);
        assert_eq!(conditions, Conditions::default());
    }
}
