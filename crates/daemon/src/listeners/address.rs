//! Addresses, and who may come to them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use fastness_base::ErrorKind;
use fastness_nbd::{Access, BindError, Endpoint, Listener, Tls, TlsError};

use crate::error::bind_kind;
use crate::protocol::{AccessRequest, Failure};
use crate::report::Address;

pub(super) fn endpoint(address: &Address) -> Result<Endpoint, Failure> {
    match address {
        Address::Unix(path) => Ok(Endpoint::Unix(PathBuf::from(path))),
        Address::VhostUser(path) | Address::Mount(path) => {
            let text = format!("{path} is no address of NBD; a volume is served at a socket");
            Err(Failure::refuse(ErrorKind::Invalid, text))
        }
        Address::Tcp(text) => match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Endpoint::Tcp(address)),
            Err(_) => Err(Failure::refuse(
                ErrorKind::Invalid,
                format!("{text} is no address: write 127.0.0.1:10809, or [::1]:10809"),
            )),
        },
    }
}

/// Refuses an address that nothing can listen at now, and certificates that cannot be used; nothing listens
/// there afterwards. Of a socket, only the path is looked at: to listen at it for a moment would be in the
/// way of another process.
///
/// # Errors
/// It is invalid, or in use.
pub fn check_address(address: &Address, request: &AccessRequest) -> Result<(), Failure> {
    let access = access(request)?;
    match endpoint(address)? {
        Endpoint::Unix(path) => match std::os::unix::net::SocketAddr::from_pathname(&path) {
            Ok(_) => Ok(()),
            Err(error) => {
                let text = format!("{} cannot be a socket: {error}", path.display());
                Err(Failure::refuse(ErrorKind::Invalid, text))
            }
        },
        tcp if access.is_open() => Listener::bind_anywhere(&tcp).map(drop).map_err(|error| refusal(&error)),
        tcp => Listener::bind(&tcp).map(drop).map_err(|error| refusal(&error)),
    }
}

/// What a request allows, with the certificates read.
pub(super) fn access(request: &AccessRequest) -> Result<Access, Failure> {
    let AccessRequest { tls_dir, verifies_clients, is_insecure } = request;
    let tls = match tls_dir {
        Some(folder) => {
            let tls = Tls::load(Path::new(folder), *verifies_clients);
            Some(tls.map_err(|error| Failure::new(tls_kind(&error), &error))?)
        }
        None if *verifies_clients => {
            let text =
                "clients have certificates only with TLS: give the folder of the server's with --tls-dir";
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        }
        None => None,
    };
    Ok(Access { tls, insecure: *is_insecure })
}

/// Why nothing listens there.
pub(super) fn refusal(error: &BindError) -> Failure {
    match error {
        BindError::NotLoopback { .. } => Failure::refuse(
            ErrorKind::Invalid,
            format!("{error}: use TLS (--tls-dir DIR), or allow that (--insecure)"),
        ),
        error => Failure::new(bind_kind(error), error),
    }
}

pub(super) fn tls_kind(error: &TlsError) -> ErrorKind {
    match error {
        TlsError::Unreadable { source, .. } => ErrorKind::of_denial(source).unwrap_or(ErrorKind::Invalid),
        _ => ErrorKind::Invalid,
    }
}
