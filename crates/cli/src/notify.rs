//! Tells a service manager about this process: `Type=notify` of systemd, datagrams to the socket that it
//! names. No message waits for the manager.
//!
//! Source: sd_notify(3).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use fastness_daemon::{Level, say};

/// How long a message may wait where nothing else is to be done.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Volumes are served and file systems are mounted.
    Ready,
}

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notified {
    /// The manager has it, or is gone.
    Done,
    /// Its queue is full; later it may not be.
    QueueFull,
}

/// The socket of the manager.
#[derive(Debug)]
pub(crate) struct Socket {
    address: SocketAddr,
    socket: UnixDatagram,
}

impl Socket {
    /// The one that the environment names.
    pub(crate) fn of_environment() -> Option<Socket> {
        let name = std::env::var_os("NOTIFY_SOCKET")?;
        let socket = Socket::at(&name);
        // The manager will stop this process when it has waited for long enough.
        socket.inspect_err(say_untold).ok()
    }

    /// At a path, or with `@` at a name without one.
    pub(crate) fn at(name: &OsStr) -> io::Result<Socket> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Socket { address, socket })
    }

    /// Sends a message, without waiting.
    pub(crate) fn send(&self, message: &str) -> Notified {
        match self.socket.send_to_addr(message.as_bytes(), &self.address) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Notified::QueueFull,
            Err(error) => say_untold(&error),
            Ok(_) => {}
        }
        Notified::Done
    }
}

fn say_untold(error: &io::Error) {
    say(Level::Warning, format_args!("the service manager cannot be told: {error}"));
}

/// Tells the service manager, if there is one. Waits a moment for one that does not read.
pub(crate) fn notify(state: State) {
    let Some(socket) = Socket::of_environment() else { return };
    let message = match state {
        State::Ready => "READY=1",
    };
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if socket.send(message) == Notified::Done {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    say(Level::Warning, format_args!("the service manager does not read: {message} is not told"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_is_told_at_a_path_or_a_name() {
        let mut bytes = [0; 32];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let manager = UnixDatagram::bind(&path).unwrap();
        assert_eq!(Socket::at(path.as_os_str()).unwrap().send("READY=1"), Notified::Done);
        let len = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"READY=1");

        let name = format!("fastness-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Socket::at(OsStr::new(&format!("@{name}"))).unwrap().send("STOPPING=1");
        let len = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"STOPPING=1");
        assert!(Socket::at(OsStr::new(&"x".repeat(200))).is_err());
    }

    #[test]
    fn a_manager_that_does_not_read_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = Socket::at(path.as_os_str()).unwrap();
        while socket.send("STATUS=1") == Notified::Done {}
        assert_eq!(socket.send("READY=1"), Notified::QueueFull);
        manager.recv(&mut [0; 32]).unwrap();
        assert_eq!(socket.send("READY=1"), Notified::Done);
    }
}
