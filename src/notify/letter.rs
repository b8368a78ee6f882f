//! A mail and how far its delivery is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::CustomerId;
use crate::notify::notice::Subject;
use crate::time::Timestamp;

/// A mail, composed once: what is tried again later has the same content and the same Message-ID.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// Its number in the outbox; grows with every letter, so a smaller one is older.
    pub number: u64,
    /// Its Message-ID, without angle brackets. Made of what it is about, so that the same letter composed again after a
    /// crash has the same.
    pub message_id: String,
    /// The Message-IDs that it answers, oldest first.
    pub replies_to: Vec<String>,
    /// When it was composed.
    pub made_at: Timestamp,
    /// Whose mail it is; `None` for the operator's.
    pub customer: Option<CustomerId>,
    /// What kind of mail it is.
    pub kind: Kind,
    /// What it is about.
    pub about: Vec<Subject>,
    /// Subject line.
    pub subject: String,
    /// The body as plain text.
    pub text: String,
    /// The body as HTML.
    pub html: String,
    /// To whom, and how far each delivery is. Each recipient is a delivery of its own: one wrong address must not keep
    /// the mail from the others.
    pub deliveries: Vec<Delivery>,
}

/// What kind of mail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LetterKind)]
pub enum Kind {
    /// A connection became bad.
    Alarm,
    /// A connection became good again.
    Recovery,
    /// Several changes at once.
    Digest,
    /// Something that the operator must know of has begun.
    ConditionBegan,
    /// It is over.
    ConditionOver,
    /// Sent by hand, to see whether mails arrive.
    Test,
}

impl Kind {
    /// The word for it in headers and on the screen.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alarm => "alarm",
            Self::Recovery => "recovery",
            Self::Digest => "digest",
            Self::ConditionBegan => "condition-began",
            Self::ConditionOver => "condition-over",
            Self::Test => "test",
        }
    }
}

/// A delivery of a letter to one recipient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Delivery {
    /// The address.
    pub address: String,
    /// How far it is.
    pub state: DeliveryState,
    /// How often it was tried.
    pub tries: u32,
    /// How often it was refused for now; the other tries failed because the server could not be used.
    #[serde(default)]
    pub refusals: u32,
    /// When it is due, while waiting.
    pub next_try_at: Timestamp,
    /// From when on the time counts after which it is given up.
    pub waits_since: Timestamp,
    /// What the last try came to; empty where it succeeded or there was none.
    pub problem: String,
    /// When it came to its end; `None` while waiting.
    pub settled_at: Option<Timestamp>,
}

impl Letter {
    /// Whether any of its deliveries may still be tried, on its own or by an operator.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.deliveries.iter().any(Delivery::is_open)
    }

    /// Whether any of its deliveries is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.deliveries.iter().any(Delivery::is_dead)
    }

    /// All but what it says, for lists.
    #[must_use]
    pub fn without_body(&self) -> Self {
        let empty = String::new;
        Self { text: empty(), html: empty(), ..self.clone() }
    }
}

impl Delivery {
    /// A delivery that is due at once.
    #[must_use]
    pub fn new(address: &str, now: Timestamp) -> Self {
        Self {
            address: address.to_owned(),
            state: DeliveryState::Waiting,
            tries: 0,
            refusals: 0,
            next_try_at: now,
            waits_since: now,
            problem: String::new(),
            settled_at: None,
        }
    }

    /// Whether it waits to be tried.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.state == DeliveryState::Waiting
    }

    /// Whether it was refused for good or given up.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state == DeliveryState::Dead
    }

    /// Whether it may still be tried, on its own or by an operator.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, DeliveryState::Waiting | DeliveryState::Dead)
    }

    /// When it is given up.
    #[must_use]
    pub fn give_up_at(&self, give_up_after: Duration) -> Timestamp {
        self.waits_since.after(give_up_after)
    }

    /// Brings it to its end.
    pub fn settle(&mut self, state: DeliveryState, problem: &str, now: Timestamp) {
        self.state = state;
        problem.clone_into(&mut self.problem);
        self.settled_at = Some(now);
    }
}

/// How far a delivery is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// To be tried, or tried again.
    Waiting,
    /// The mail server took it.
    Sent,
    /// Refused for good, or given up; an operator may have it tried again.
    Dead,
    /// An operator dropped it.
    Dropped,
}

/// Why a delivery did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The mail server cannot be used now (no connection, no TLS, no login, silence, 421): no other letter would fare
    /// better.
    #[error("{0}")]
    Server(String),
    /// This letter was refused for now (4xx).
    #[error("{0}")]
    Temporary(String),
    /// This letter was refused for good (5xx).
    #[error("{0}")]
    Permanent(String),
}
