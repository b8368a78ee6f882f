//! What the commands share by which an operator tells the running pointsman something.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::config_file::ConfigFile;
use crate::cli::status::socket_of;
use crate::control::{self, ControlError, Request, Response};
use crate::engine::request::{By, Refused};

/// Who asks, for the audit: the user of the system.
pub(super) fn who() -> String {
    let named = |name: &str| std::env::var(name).ok().filter(|user| !user.is_empty());
    named("SUDO_USER").or_else(|| named("USER")).or_else(|| named("LOGNAME")).unwrap_or_else(|| "cli".to_owned())
}

/// A reason as it goes into the audit; checked here too, so that a bad one is wrong usage.
///
/// # Errors
/// See [`By::new`].
pub(super) fn why(text: &str) -> Result<String, Refused> {
    By::new("", text).map(|by| by.why.to_string())
}

/// Sends a request, and prints `done` where it was done.
///
/// # Errors
/// Where pointsman does not run, does not answer or refuses.
pub(super) fn tell(
    socket: Option<PathBuf>,
    config: &ConfigFile,
    request: &Request,
    done: &str,
) -> anyhow::Result<ExitCode> {
    let path = socket.map_or_else(|| socket_of(config), Ok)?;
    match control::request_blocking(&path, request)? {
        Response::Done => {
            writeln!(io::stdout().lock(), "{done}")?;
            Ok(ExitCode::SUCCESS)
        }
        other => Err(ControlError::NotUnderstood { path, problem: format!("not an answer: {other:?}") }.into()),
    }
}
