//! Tells a service manager that a pool runs: `Type=notify` of systemd, one datagram to the socket that it
//! names.
//!
//! Source: sd_notify(3).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::output::note;

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Volumes are served and file systems are mounted.
    Ready,
}

/// Tells the service manager, if there is one.
pub(crate) fn notify(state: State) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        // The manager will stop this process when it has waited for long enough.
        note(format_args!("fastness: the service manager cannot be told: {error}"));
    }
}

fn send(socket: &OsStr, state: State) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let text = match state {
        State::Ready => "READY=1",
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
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
        send(path.as_os_str(), State::Ready).unwrap();
        let len = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"READY=1");

        let name = format!("fastness-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), State::Ready).unwrap();
        let len = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"READY=1");
        assert!(send(OsStr::new("/does/not/exist"), State::Ready).is_err());
    }
}
