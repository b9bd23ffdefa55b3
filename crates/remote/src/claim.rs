//! One writer of a device on one machine, for devices that know no lock of their own.
//!
//! A claim is a listening socket with an abstract name: the kernel lets one process have it, in one network
//! namespace, and takes it back when that process ends, however it ends. Another name of the same device is
//! another claim.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::error::OpenError;

/// The right to write to a device; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixListener,
}

impl Claim {
    /// Claims the device of that name.
    ///
    /// # Errors
    /// [`OpenError::InUse`]: a process, perhaps this one, has it.
    pub(crate) fn of(name: &str) -> Result<Claim, OpenError> {
        // Names of sockets are short. With the default keys the hash is the same in every process.
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let claimed = SocketAddr::from_abstract_name(format!("fastness-claim-{:016x}", hasher.finish()))
            .and_then(|address| UnixListener::bind_addr(&address));
        match claimed {
            Ok(socket) => Ok(Claim { _socket: socket }),
            Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {
                Err(OpenError::InUse { name: name.to_owned() })
            }
            Err(source) => {
                let (name, detail) = (name.to_owned(), " for the name of its claim".to_owned());
                Err(OpenError::Call { name, call: "bind", detail, source })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_claim_of_a_name_until_it_is_dropped() {
        let name = format!("nbd://test/{}", std::process::id());
        let claim = Claim::of(&name).unwrap();
        assert!(matches!(Claim::of(&name), Err(OpenError::InUse { .. })));
        Claim::of(&format!("{name}x")).unwrap();
        drop(claim);
        Claim::of(&name).unwrap();
    }
}
