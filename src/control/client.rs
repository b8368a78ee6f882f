//! Asking a running instance.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use super::{ControlError, MAX_RESPONSE, PATIENCE, Reply, Request, Response};

/// Asks the instance behind `path` and waits for its answer, at most [`PATIENCE`].
///
/// # Errors
/// [`ControlError::NotRunning`] where nobody listens; see the other variants.
pub async fn request(path: &Path, request: &Request) -> Result<Response, ControlError> {
    let exchange = async {
        let mut stream = tokio::net::UnixStream::connect(path).await?;
        stream.write_all(&encode(request)).await?;
        let mut line = Vec::new();
        tokio::io::BufReader::new(stream.take(MAX_RESPONSE)).read_until(b'\n', &mut line).await?;
        Ok(line)
    };
    match tokio::time::timeout(PATIENCE, exchange).await {
        Ok(Ok(line)) => decode(path, &line),
        Ok(Err(error)) => Err(failed(path, error)),
        Err(_) => Err(ControlError::TimedOut { path: path.into() }),
    }
}

/// [`request`] for callers without a runtime.
///
/// # Errors
/// As [`request`].
pub fn request_blocking(path: &Path, request: &Request) -> Result<Response, ControlError> {
    let exchange = || -> io::Result<Vec<u8>> {
        let mut stream = StdStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&encode(request))?;
        let mut line = Vec::new();
        BufReader::new(stream.take(MAX_RESPONSE)).read_until(b'\n', &mut line)?;
        Ok(line)
    };
    match exchange() {
        Ok(line) => decode(path, &line),
        Err(error) => Err(failed(path, error)),
    }
}

fn encode(request: &Request) -> Vec<u8> {
    let mut line = serde_json::to_vec(request).unwrap_or_default();
    line.push(b'\n');
    line
}

fn decode(path: &Path, line: &[u8]) -> Result<Response, ControlError> {
    let not_understood = |problem: String| ControlError::NotUnderstood { path: path.into(), problem };
    let Some(text) = line.strip_suffix(b"\n") else {
        return Err(not_understood(format!("it ends after {} bytes", line.len())));
    };
    let reply: Reply = serde_json::from_slice(text).map_err(|error| {
        // The envelope alone may still tell which version answered.
        let version = serde_json::from_slice::<serde_json::Value>(text)
            .ok()
            .and_then(|value| value.get("version").and_then(|v| v.as_str()).map(str::to_owned));
        not_understood(match version {
            Some(version) => format!("from version {version}: {error}"),
            None => error.to_string(),
        })
    })?;
    match reply.response {
        Response::Refused(why) => Err(ControlError::Refused(why)),
        response => Ok(response),
    }
}

fn failed(path: &Path, source: io::Error) -> ControlError {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlError::NotRunning(path.into()),
        io::ErrorKind::PermissionDenied => ControlError::NotAllowed(path.into()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::TimedOut { path: path.into() },
        io::ErrorKind::InvalidInput => ControlError::PathTooLong(path.into()),
        _ => ControlError::Broken { path: path.into(), source },
    }
}
