//! E-mail: owners of connections hear of each real change between good and bad, the operator of what needs a hand.
//!
//! ```text
//! engine ──Notice──> desk (waits for a minute: one letter, or a digest) ──Letter──> outbox ──> transport
//! view ────────────> watch (conditions of the operator) ───────────────────┘          │
//!                                                       store (every step, durable) <─┘
//! ```
//!
//! Never none: a notice is stored in the transaction of the change that it tells of, becomes a letter in one
//! transaction, and a letter is stored before it is tried. Never twice, as far as SMTP can tell: what a crash between
//! the server's yes and our note of it repeats carries the same Message-ID.

pub mod causes;
pub mod compose;
pub mod conditions;
pub mod desk;
pub mod kept;
pub mod letter;
pub mod message;
pub mod notice;
pub mod outbox;
pub mod render;
pub mod run;
pub mod transport;
