//! Which clients of a volume are served: options of `volume serve` and `up`.

use std::path::PathBuf;

use clap::Args;
use fastness_daemon::{AccessRequest, absolute};
use fastness_front::Access;
use fastness_front::block::access;

use crate::error::Result;

/// Options about clients.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccessArgs {
    /// Serve through TLS only; the folder has server-cert.pem and server-key.pem
    #[arg(long, value_name = "DIR")]
    tls_dir: Option<PathBuf>,
    /// Serve only clients with a certificate of the authority in ca-cert.pem in that folder
    #[arg(long, requires = "tls_dir")]
    tls_verify_peer: bool,
    /// Without TLS, serve at an address that other machines reach: whoever reaches it reads and writes
    #[arg(long, conflicts_with = "tls_dir")]
    insecure: bool,
}

impl AccessArgs {
    /// For this process, which serves itself.
    pub(crate) fn of_front(&self) -> Result<Access> {
        Ok(access(self.tls_dir.as_deref(), self.tls_verify_peer, self.insecure)?)
    }

    /// For the process that serves, which may be in another folder.
    pub(crate) fn request(&self) -> Result<AccessRequest> {
        let tls_dir = self.tls_dir.as_ref().map(|folder| absolute(folder)).transpose()?;
        Ok(AccessRequest {
            tls_dir: tls_dir.map(|folder| folder.display().to_string()),
            verifies_clients: self.tls_verify_peer,
            is_insecure: self.insecure,
        })
    }
}
