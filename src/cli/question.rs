//! The arguments by which commands ask about a call, and how they ask.

use std::path::Path;

use anyhow::anyhow;

use crate::control::{self, ControlError, Request, Response};
use crate::ids::ConnectionId;
use crate::routing::picture::{Assumed, WhatIf, assumption};
use crate::routing::question::Question;

/// A call, and what is to be assumed; flatten it into the arguments of a command.
#[derive(Clone, Debug, clap::Args)]
pub struct QuestionArgs {
    /// The number dialled
    number: String,
    /// The route map, where the dialplan names it; without it the number decides
    #[arg(long, value_name = "MAP")]
    map: Option<String>,
    /// Assume a state of a connection: good, bad, retry, last or blocked; may be given several times
    #[arg(long, value_name = "CONNECTION=STATE", value_parser = assumption)]
    assume: Vec<(ConnectionId, Assumed)>,
    /// Assume that a connection is not there; may be given several times
    #[arg(long, value_name = "CONNECTION", value_parser = |text: &str| ConnectionId::new(text))]
    without: Vec<ConnectionId>,
}

impl From<QuestionArgs> for Question {
    fn from(args: QuestionArgs) -> Self {
        let QuestionArgs { number, map, assume, without } = args;
        Self { number, map, what_if: WhatIf { assume, without } }
    }
}

/// Asks the running pointsman about a call. Why there is no answer is said as it is, in the words that it has without a
/// running pointsman.
///
/// # Errors
/// Where pointsman does not run or does not answer, or where the question has no answer.
pub(super) fn ask(path: &Path, request: &Request) -> anyhow::Result<Response> {
    match control::request_blocking(path, request) {
        Err(ControlError::Refused(why)) => Err(anyhow!(why)),
        answered => Ok(answered?),
    }
}
