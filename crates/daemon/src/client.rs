//! The other end of a control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use fastness_error::ErrorKind;
use serde::de::DeserializeOwned;

use crate::protocol::{Failure, LINE_BYTES_MAX, Message, Request};
use crate::report::JobReport;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens: the pool is not running.
    #[error("pool {pool} is not running")]
    NotRunning {
        /// The pool.
        pool: String,
    },
    /// The socket cannot be used.
    #[error("cannot talk to {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What came back is no answer: another version, or no daemon at all.
    #[error("{} answered something else than was expected", path.display())]
    Strange {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The daemon refused or failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl ClientError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ClientError::NotRunning { .. } => ErrorKind::Closed,
            ClientError::Socket { .. } => ErrorKind::Retry,
            ClientError::Strange { .. } => ErrorKind::Bug,
            ClientError::Failed(failure) => failure.kind(),
        }
    }
}

/// A connection to a running pool.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    input: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the control socket of `pool`.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::Socket`].
    pub fn connect(path: &Path, pool: &str) -> Result<Client, ClientError> {
        match UnixStream::connect(path) {
            Ok(socket) => Ok(Client { path: path.to_owned(), input: BufReader::new(socket) }),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Err(ClientError::NotRunning { pool: pool.to_owned() })
            }
            Err(source) => Err(ClientError::Socket { path: path.to_owned(), source }),
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The daemon's failure, or what happened to the connection; then it is not known what was done.
    pub fn call<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        self.call_with(request, &mut |_| {})
    }

    /// The same, with progress.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_with<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        progress: &mut dyn FnMut(&JobReport),
    ) -> Result<T, ClientError> {
        let mut line = serde_json::to_vec(request).map_err(|error| self.strange(error.into()))?;
        line.push(b'\n');
        let sent = self.input.get_mut().write_all(&line);
        sent.map_err(|source| ClientError::Socket { path: self.path.clone(), source })?;
        loop {
            match self.receive()? {
                Message::Progress(report) => progress(&report),
                Message::Done(value) => {
                    return serde_json::from_value(value).map_err(|error| self.strange(error.into()));
                }
                Message::Failed(failure) => return Err(failure.into()),
            }
        }
    }

    /// Waits until the daemon has closed the connection: after an export or a destruction, until its process has ended.
    pub fn wait_end(mut self) {
        // However it ends, it has ended.
        let _ = io::copy(&mut self.input, &mut io::sink());
    }

    fn receive(&mut self) -> Result<Message, ClientError> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|source| ClientError::Socket { path: self.path.clone(), source })?;
        if line.last() != Some(&b'\n') {
            return Err(self.strange(io::ErrorKind::UnexpectedEof.into()));
        }
        serde_json::from_slice(&line).map_err(|error| self.strange(error.into()))
    }

    fn strange(&self, source: io::Error) -> ClientError {
        ClientError::Strange { path: self.path.clone(), source }
    }
}
