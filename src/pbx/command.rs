//! What pointsman asks of a PBX, and the answers.

use tokio::sync::{mpsc, oneshot};

use crate::ids::LegId;

/// A request to a PBX. Names and values are checked once more where they are put on the wire: whatever cannot be sent
/// without changing the meaning of the command is refused there as [`CommandError::Illegal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Set a global variable.
    SetVariable {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Remove a global variable (Asterisk knows no removal: it is set to nothing).
    ClearVariable {
        /// Its name.
        name: String,
    },
    /// Read a global variable.
    GetVariable {
        /// Its name.
        name: String,
    },
    /// Write a value to AstDB (Asterisk only).
    PutAstDb {
        /// Family.
        family: String,
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
    /// Remove a value from AstDB; done as well where there is none.
    DeleteAstDb {
        /// Family.
        family: String,
        /// Key.
        key: String,
    },
    /// Ask for all about one leg (FreeSWITCH). The answer comes as an event: `PbxEvent::FreeSwitch` or
    /// `PbxEvent::LegGone`.
    Describe(LegId),
    /// Ask for the legs that are up. The answer comes as an event: `PbxEvent::Snapshot`.
    List,
}

/// What a PBX answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It did so.
    Done,
    /// The value of a variable; `None` where it is not set (Asterisk cannot tell that from empty).
    Value(Option<String>),
}

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no link to the PBX at the moment; nothing was sent.
    #[error("the PBX is not connected")]
    NotConnected,
    /// Too many commands are waiting already; nothing was sent.
    #[error("too many commands are waiting for the PBX")]
    Busy,
    /// The link was lost before the answer came: it may have been done or not.
    #[error("the link was lost before the answer came")]
    LinkLost,
    /// No answer in time: it may have been done or not.
    #[error("no answer in time")]
    TimedOut,
    /// The PBX answered with an error.
    #[error("the PBX refused: {0}")]
    Refused(String),
    /// It cannot be put into a command of this protocol.
    #[error("cannot be sent: {0}")]
    Illegal(String),
    /// This kind of PBX has no such command.
    #[error("this kind of PBX cannot do that")]
    Unsupported,
}

/// The answer to one command.
pub type CommandResult = Result<Reply, CommandError>;

/// Sends commands to one PBX. Commands are executed in the order submitted and pipelined; cheap to clone.
#[derive(Clone, Debug)]
pub struct Commander {
    queue: mpsc::Sender<(Command, oneshot::Sender<CommandResult>)>,
}

impl Commander {
    /// A commander and the queue that a link serves.
    #[must_use]
    pub fn new(depth: usize) -> (Self, mpsc::Receiver<(Command, oneshot::Sender<CommandResult>)>) {
        let (queue, served) = mpsc::channel(depth);
        (Self { queue }, served)
    }

    /// Hands a command over without waiting; the receiver resolves with the answer. Where the queue is full it
    /// resolves at once with [`CommandError::Busy`].
    #[must_use]
    pub fn submit(&self, command: Command) -> oneshot::Receiver<CommandResult> {
        let (answer, receiver) = oneshot::channel();
        if let Err(refused) = self.queue.try_send((command, answer)) {
            let (error, (_, answer)) = match refused {
                mpsc::error::TrySendError::Full(back) => (CommandError::Busy, back),
                mpsc::error::TrySendError::Closed(back) => (CommandError::NotConnected, back),
            };
            // The receiver is in our own hands, so this cannot fail.
            let _ = answer.send(Err(error));
        }
        receiver
    }

    /// How many more commands can be handed over now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.queue.capacity()
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub async fn run(&self, command: Command) -> CommandResult {
        self.submit(command).await.unwrap_or(Err(CommandError::LinkLost))
    }
}
