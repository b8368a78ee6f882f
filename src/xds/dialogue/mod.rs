//! The dialogue with one client over one stream, as a state machine in two dialects. Pure: time is an argument, and what
//! is to be sent is returned.
//!
//! A client names what it wants and gets it; it accepts (ACK) or rejects (NACK) each answer by its nonce. One answer per kind
//! is under way at a time: a client that is slow to take one gets the latest state with the next and nothing of what came
//! between, so nothing piles up for anybody.
//!
//! What a client rejects it is not sent again: an answer of clusters or listeners as a whole (state of the world), else a
//! version of a resource. Who rejects several at once does not say which one is bad: each is sent once more, alone, so that a
//! client that dislikes one is not without the others.

mod delta;
mod rejections;
mod sotw;
mod stream;
mod subscription;

pub use self::delta::Delta;
pub use self::rejections::{Part, Rejections};
pub use self::sotw::Sotw;
pub use self::stream::Stream;
use super::resources::Resources;
use super::view::{Protocol, SubscriptionView};
use crate::notify::render::shown_line;
use crate::time::Timestamp;

/// Who a client says it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    /// `node.id`.
    pub node: String,
    /// `node.cluster`.
    pub cluster: String,
    /// Its program with its version.
    pub software: String,
}

/// One of the two dialects.
pub trait Dialogue: Send + 'static {
    /// What the client sends.
    type Request: Send;
    /// What it is sent.
    type Response: Send;
    /// Which one it is.
    const PROTOCOL: Protocol;

    /// A stream was opened by somebody who is known to be `asker`, whatever they call themselves: the name of their token or
    /// certificate, or their address.
    fn open(asker: &str, now: Timestamp) -> Self;

    /// The client says something; what it is to be sent for it, [`Dialogue::update`] says. What it rejects is remembered for
    /// its next streams.
    ///
    /// # Errors
    /// [`Fault`], where the stream is to be ended.
    fn take(&mut self, request: Self::Request, rejections: &mut Rejections, now: Timestamp) -> Result<(), Fault>;

    /// The client said something, or there are other resources: what it is to be sent now.
    fn update(&mut self, resources: &Resources, now: Timestamp) -> Vec<Self::Response>;

    /// What both dialects keep of a stream.
    fn stream(&self) -> &Stream;

    /// When the client will have been waited for long enough, unless it says something.
    fn deadline(&self) -> Option<Timestamp> {
        self.stream().deadline()
    }

    /// Why the stream is to be ended, where a deadline has passed.
    fn overdue(&self, now: Timestamp) -> Option<Fault> {
        self.stream().overdue(now)
    }

    /// Who the client is; `None` until it has said so.
    fn client(&self) -> Option<&Client> {
        self.stream().client()
    }

    /// What it asked for, and how that goes.
    fn subscriptions(&self) -> Vec<SubscriptionView> {
        self.stream().views()
    }

    /// Types that it asked for and that are not served.
    fn unserved(&self) -> &[String] {
        self.stream().unserved()
    }
}

/// Why a stream is ended here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The client sends something that the protocol does not know.
    #[error("it talks nonsense: {0}")]
    Nonsense(String),
    /// It asks for too much.
    #[error("it asks for too much: {0}")]
    TooMuch(String),
    /// It sends more than any client needs to.
    #[error("it floods: {0}")]
    Flood(String),
    /// It neither accepts nor rejects what it was sent.
    #[error("it took nothing for {0} s")]
    Silent(u64),
    /// It does not read what it is sent.
    #[error("it reads nothing of what it is sent")]
    Full,
}

/// Bytes of a client's text that are looked at for each character that is kept.
const MAX_BYTES_FOR_ONE: usize = 8;

/// A client's text as it is shown to people: one line of at most so many characters, all of them visible.
fn clean(text: &str, longest: usize) -> String {
    shown_line(&text[..text.floor_char_boundary(longest * MAX_BYTES_FOR_ONE)], longest)
}
