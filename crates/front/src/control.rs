//! The socket of a cache: lines of JSON, one request and one answer for each connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastness_base::{ErrorKind, chain};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::FrontError;
use crate::report::Report;

/// Longest line, in either direction: a report names files whose flushes fail.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// A process that does not say for so long how it is, is stopped, or as good as that.
const PATIENCE: Duration = Duration::from_secs(10);
/// A client that neither sends nor receives for so long is taken for dead.
const IDLE: Duration = Duration::from_secs(60);

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What there is.
    Status,
    /// The same after a flush.
    Flush,
    /// The same after certificates were read again.
    Reload,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer<R = Report> {
    /// It was done.
    Done(Box<R>),
    /// It failed; the report says what is left.
    Failed {
        /// Name of the error's kind.
        kind: String,
        /// Its words.
        message: String,
        /// If there is one.
        report: Option<Box<R>>,
    },
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens at `path`, with mode 0600. What is there is left over: the region's lock is held.
    pub(crate) fn start<R: Serialize>(
        path: &Path,
        answer: impl Fn(Request) -> Answer<R> + Send + Sync + 'static,
    ) -> Result<Control, FrontError> {
        let fail = |error| FrontError::io("listen at", path, error);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(fail)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
        let answer = Arc::new(answer);
        let accept = move || {
            for client in listener.incoming() {
                // One that is gone again, or no descriptors are left: the next one is served.
                let Ok(client) = client else { continue };
                let answer = answer.clone();
                // If no thread starts, the client sees the connection close.
                let _ = std::thread::Builder::new()
                    .name("control-client".to_owned())
                    .spawn(move || serve(client, &*answer));
            }
        };
        std::thread::Builder::new().name("control".to_owned()).spawn(accept).map_err(fail)?;
        Ok(Control { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The thread ends with the process.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve<R: Serialize>(client: UnixStream, answer: &dyn Fn(Request) -> Answer<R>) -> io::Result<()> {
    client.set_read_timeout(Some(IDLE))?;
    client.set_write_timeout(Some(IDLE))?;
    let line = line(&client)?;
    let answer = match serde_json::from_slice(&line) {
        Ok(request) => answer(request),
        Err(error) => failed(ErrorKind::Invalid, &error, None),
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    (&client).write_all(&bytes)
}

pub(crate) fn failed<R>(kind: ErrorKind, error: &dyn std::error::Error, report: Option<R>) -> Answer<R> {
    Answer::Failed { kind: kind.name().to_owned(), message: chain(error), report: report.map(Box::new) }
}

fn line(socket: &UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(socket).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    match line.last() {
        Some(b'\n') => Ok(line),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Asks the process that has a region; `None`: there is none at that socket, or it has ended meanwhile. A
/// flush may take any time; how it is, a process says at once.
///
/// # Errors
/// The socket fails, or what answers is something else; [`FrontError::Silent`].
pub fn ask<R: DeserializeOwned>(path: &Path, request: Request) -> Result<Option<Answer<R>>, FrontError> {
    let fail = |error: io::Error| FrontError::io("ask the process at", path, error);
    let mut socket = match UnixStream::connect(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        socket => socket.map_err(fail)?,
    };
    let mut bytes = serde_json::to_vec(&request).map_err(|error| fail(error.into()))?;
    bytes.push(b'\n');
    let has_ended = |error: &io::Error| {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
    };
    let patience = (request == Request::Status).then_some(PATIENCE);
    socket.set_read_timeout(patience).map_err(fail)?;
    match socket.write_all(&bytes).and_then(|()| line(&socket)) {
        Err(error) if has_ended(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(FrontError::Silent { path: path.to_owned(), seconds: PATIENCE.as_secs() })
        }
        Err(error) => Err(fail(error)),
        Ok(line) => serde_json::from_slice(&line).map(Some).map_err(|error| fail(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_while_it_is_asked_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        for (number, reads) in [false, true].into_iter().enumerate() {
            let path = dir.path().join(number.to_string());
            let listener = UnixListener::bind(&path).unwrap();
            let dies = std::thread::spawn(move || {
                let (client, _) = listener.accept().unwrap();
                if reads {
                    line(&client).unwrap();
                }
            });
            assert_eq!(
                ask::<Report>(&path, Request::Status).unwrap(),
                None,
                "it has read the request: {reads}"
            );
            dies.join().unwrap();
            assert_eq!(ask::<Report>(&path, Request::Status).unwrap(), None);
        }
    }
}
