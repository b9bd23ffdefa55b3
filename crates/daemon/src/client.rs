//! The other end of a control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastness_base::ErrorKind;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;

use crate::frames::{FrameReader, FrameWriter};
use crate::protocol::{Failure, LINE_BYTES_MAX, Message, Request};
use crate::report::JobReport;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nothing listens: the pool is not running.
    #[error("pool {pool} is not running")]
    NotRunning {
        /// The pool.
        pool: String,
    },
    /// The process ended, or was killed, before it answered.
    #[error(
        "the process that has pool {pool} has gone before it answered: \
         what was asked for may have been done or not"
    )]
    Gone {
        /// The pool.
        pool: String,
        /// How that was noticed.
        #[source]
        source: io::Error,
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
    /// The reply is not a valid answer: another version, or not a daemon at all.
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
            ClientError::NotRunning { .. } => ErrorKind::NotRunning,
            ClientError::Gone { .. } => ErrorKind::Closed,
            ClientError::Socket { source, .. } => ErrorKind::of_denial(source).unwrap_or(ErrorKind::Retry),
            ClientError::Strange { .. } => ErrorKind::Bug,
            ClientError::Failed(failure) => failure.kind(),
        }
    }
}

fastness_base::has_kind!(ClientError);

/// A connection to a running pool.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    pool: String,
    input: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the control socket of `pool`.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::Socket`].
    pub fn connect(path: &Path, pool: &str) -> Result<Client, ClientError> {
        Client::with(path, pool, UnixStream::connect(path))
    }

    /// The same, and waits for no part of this or of a later call longer than `patience`: neither for a
    /// process that accepts nobody nor for one that does not read or answer.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_within(path: &Path, pool: &str, patience: Duration) -> Result<Client, ClientError> {
        let connected = || -> rustix::io::Result<UnixStream> {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // The first one is for connecting, too. Source: socket(7), unix(7).
            set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
            set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
            connect(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(socket.into())
        };
        Client::with(path, pool, connected().map_err(io::Error::from))
    }

    fn with(path: &Path, pool: &str, connected: io::Result<UnixStream>) -> Result<Client, ClientError> {
        match connected {
            Ok(socket) => {
                Ok(Client { path: path.to_owned(), pool: pool.to_owned(), input: BufReader::new(socket) })
            }
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
    /// The daemon's failure, or a connection error; whether the request was carried out is then unknown.
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
        self.ask(request)?;
        loop {
            match self.receive()? {
                Message::Progress(report) => progress(&report),
                Message::Stream => return Err(self.strange(io::Error::other("bulk data"))),
                Message::Done(value) => {
                    return serde_json::from_value(value).map_err(|error| self.strange(error.into()));
                }
                Message::Failed(failure) => return Err(failure.into()),
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(request).map_err(|error| self.strange(error.into()))?;
        line.push(b'\n');
        if let Err(error) = self.input.get_mut().write_all(&line) {
            // A process with too many clients says so and does not read.
            return match self.receive() {
                Ok(Message::Failed(failure)) => Err(failure.into()),
                _ => Err(self.broken(error)),
            };
        }
        Ok(())
    }

    /// Sends a request that bulk data follows.
    fn ask_for_stream(&mut self, request: &Request) -> Result<(), ClientError> {
        self.ask(request)?;
        match self.receive()? {
            Message::Stream => Ok(()),
            Message::Failed(failure) => Err(failure.into()),
            _ => Err(self.strange(io::Error::other("no bulk data"))),
        }
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T, ClientError> {
        match self.receive()? {
            Message::Done(value) => serde_json::from_value(value).map_err(|error| self.strange(error.into())),
            Message::Failed(failure) => Err(failure.into()),
            _ => Err(self.strange(io::Error::other("more than an answer"))),
        }
    }

    /// Sends a request for bulk data, and copies that to `output`. The connection is used up.
    ///
    /// # Errors
    /// As [`call`](Self::call), and inside of that the error of `output`. What was copied is not whole then.
    pub fn copy_to(
        mut self,
        request: &Request,
        output: &mut dyn Write,
    ) -> Result<io::Result<()>, ClientError> {
        self.ask_for_stream(request)?;
        let mut frames = FrameReader::new(&mut self.input);
        let mut buffer = vec![0; 256 << 10];
        loop {
            match frames.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => {
                    if let Err(error) = output.write_all(&buffer[..len]) {
                        return Ok(Err(error));
                    }
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
        let () = self.answer()?;
        Ok(output.flush())
    }

    /// Sends a request with bulk data, all that `input` has. The connection is used up.
    ///
    /// # Errors
    /// As [`call`](Self::call), and inside of that the error of `input`, of which everything before was sent.
    pub fn copy_from<T: DeserializeOwned>(
        mut self,
        request: &Request,
        input: &mut dyn Read,
    ) -> Result<io::Result<T>, ClientError> {
        self.ask_for_stream(request)?;
        let socket = self.input.get_ref().try_clone().map_err(|error| self.broken(error))?;
        let mut frames = FrameWriter::new(socket);
        let mut buffer = vec![0; 256 << 10];
        loop {
            let len = match input.read(&mut buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Err(error)),
            };
            let sent = frames.write_all(&buffer[..len]);
            if len == 0 || sent.is_err() {
                break;
            }
        }
        // If it is not read, an answer is there already.
        let _ = frames.end();
        self.answer().map(Ok)
    }

    /// Waits until the daemon has closed the connection: after an export or a destroy, until its process has
    /// exited.
    pub fn wait_end(mut self) {
        // Closed cleanly or with an error, the connection is over.
        let _ = io::copy(&mut self.input, &mut io::sink());
    }

    fn receive(&mut self) -> Result<Message, ClientError> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let len_bytes = read.map_err(|error| self.broken(error))? as u64;
        if line.last() != Some(&b'\n') {
            let too_long = || io::Error::other(format!("a line of more than {LINE_BYTES_MAX} bytes"));
            let is_cut = len_bytes < LINE_BYTES_MAX;
            return Err(if is_cut {
                self.broken(io::ErrorKind::UnexpectedEof.into())
            } else {
                self.strange(too_long())
            });
        }
        serde_json::from_slice(&line).map_err(|error| self.strange(error.into()))
    }

    /// A connection error: the peer is gone, or something else is wrong.
    fn broken(&self, source: io::Error) -> ClientError {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
        match source.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof => {
                ClientError::Gone { pool: self.pool.clone(), source }
            }
            _ => ClientError::Socket { path: self.path.clone(), source },
        }
    }

    fn strange(&self, source: io::Error) -> ClientError {
        ClientError::Strange { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests;
