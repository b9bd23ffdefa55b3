//! Listening sockets.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use crate::error::BindError;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket, for the user only (mode 0600). An empty file `<path>.lock` next to it keeps two servers
    /// from taking over a stale socket at the same time; it is never removed.
    Unix(PathBuf),
    /// A loopback address, unless [`crate::Access`] allows others; port 0 takes a free one.
    Tcp(SocketAddr),
}

/// A listening socket, for any protocol. A Unix socket's file is removed when it is dropped.
pub struct Listener(Socket);

enum Socket {
    Unix { listener: UnixListener, path: PathBuf, identity: (u64, u64), _lock: File },
    Tcp(TcpListener),
}

impl Listener {
    /// Binds and listens; [`accept`](Self::accept) does not wait. The socket of a dead owner is replaced.
    ///
    /// # Errors
    /// See [`BindError`]; nothing that belongs to another owner was touched.
    pub fn bind(endpoint: &Endpoint) -> Result<Self, BindError> {
        match endpoint {
            Endpoint::Tcp(address) if !address.ip().is_loopback() => {
                Err(BindError::NotLoopback { address: *address })
            }
            endpoint => Self::bind_anywhere(endpoint),
        }
    }

    /// The same, also at an address that other machines reach.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_anywhere(endpoint: &Endpoint) -> Result<Self, BindError> {
        match endpoint {
            Endpoint::Unix(path) => bind_unix(path),
            Endpoint::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(BindError::system("bind the address"))?;
                listener.set_nonblocking(true).map_err(BindError::system("set up the listener"))?;
                Ok(Listener(Socket::Tcp(listener)))
            }
        }
    }

    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        match &self.0 {
            Socket::Unix { path, .. } => Ok(Endpoint::Unix(path.clone())),
            Socket::Tcp(listener) => listener.local_addr().map(Endpoint::Tcp),
        }
    }

    /// The next connection.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        match &self.0 {
            Socket::Unix { listener, .. } => listener.accept().map(|(stream, _)| stream.into()),
            Socket::Tcp(listener) => listener.accept().map(|(stream, _)| stream.into()),
        }
    }

    /// To wait on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Socket::Unix { listener, .. } => listener.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix { path, identity, .. } = &self.0
            && fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == *identity)
        {
            let _ = fs::remove_file(path);
        }
    }
}

fn bind_unix(path: &Path) -> Result<Listener, BindError> {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&lock_path)
        .map_err(BindError::system("open the lock beside the socket"))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
        rustix::io::Errno::WOULDBLOCK => BindError::InUse { path: path.to_owned() },
        errno => BindError::system("lock the file beside the socket")(errno),
    })?;
    remove_stale(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(BindError::system("make a socket"))?;
    // Before the file exists, so that other users can never connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(BindError::system("restrict the socket"))?;
    let address = SocketAddrUnix::new(path).map_err(BindError::system("use the socket's path"))?;
    bind(&socket, &address).map_err(BindError::system("bind the socket"))?;
    listen(&socket, 128).map_err(BindError::system("listen"))?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true).map_err(BindError::system("set up the listener"))?;
    let file = fs::symlink_metadata(path).map_err(BindError::system("look at the socket"))?;
    let identity = (file.dev(), file.ino());
    Ok(Listener(Socket::Unix { listener, path: path.to_owned(), identity, _lock: lock }))
}

/// Removes the socket of a dead server; leaves everything else alone.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BindError::system("look at the socket")(error)),
    };
    if !file.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(BindError::system("remove the stale socket"))
        }
        _ => Err(BindError::InUse { path: path.to_owned() }),
    }
}
