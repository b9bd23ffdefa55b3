//! The server's certificate and key, and the authority of clients' certificates, from files.
//!
//! The names are QEMU's (`tls-creds-x509`), so one folder serves both.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastness_sync::{RwLock, read, write};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, crypto, version};

/// The authorities whose clients are served.
pub const CA_FILE: &str = "ca-cert.pem";
/// The server's certificate, followed by those between it and its authority.
pub const CERTIFICATE_FILE: &str = "server-cert.pem";
/// The key of that certificate, not encrypted.
pub const KEY_FILE: &str = "server-key.pem";

/// Longest file that is read; a chain has a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Mode bits with which others than the owner and the group can do something; for the group: write.
const OTHERS: u32 = 0o027;

/// What a server needs to serve through TLS. A server that has it serves no client without. Clones have the
/// same certificates, also after [`reload`](Self::reload).
#[derive(Clone, Debug)]
pub struct Tls {
    folder: PathBuf,
    verifies_clients: bool,
    loaded: Arc<RwLock<Loaded>>,
}

/// What is in the files, as of the last time that they were read.
#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    warnings: Vec<String>,
}

/// Why a folder of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file is a folder, a pipe, or too long.
    #[error("{} is not a file of at most 1 MiB", path.display())]
    NotAFile {
        /// What is there.
        path: PathBuf,
    },
    /// A file has nothing of what it should have.
    #[error("{} has no {what} in PEM format", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// A file is not PEM.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it goes wrong.
        #[source]
        source: pem::Error,
    },
    /// Certificate or key are of a kind that is not supported, or do not belong together.
    #[error("{} and {KEY_FILE} beside it cannot be used", path.display())]
    Unusable {
        /// The certificate.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// What should be an authority's certificate is none.
    #[error("{} is no authority for clients' certificates", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: AuthorityError,
    },
}

/// What is wrong with an authority.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AuthorityError(#[from] AuthorityCause);

#[derive(Debug, thiserror::Error)]
enum AuthorityCause {
    #[error(transparent)]
    Certificate(rustls::Error),
    #[error(transparent)]
    Verifier(VerifierBuilderError),
}

impl Tls {
    /// Reads [`CERTIFICATE_FILE`] and [`KEY_FILE`] in `folder`; to verify clients, [`CA_FILE`] too. Later
    /// changes of the files have no effect before a [`reload`](Self::reload).
    ///
    /// # Errors
    /// A file is missing, or is not what it should be.
    pub fn load(folder: &Path, verifies_clients: bool) -> Result<Tls, TlsError> {
        let loaded = Arc::new(RwLock::new(Loaded::read(folder, verifies_clients)?));
        Ok(Tls { folder: folder.to_owned(), verifies_clients, loaded })
    }

    /// Reads the files again. Connections that there are go on with what they began with; those that begin
    /// from now on get the new certificate, and are judged by the new authority.
    ///
    /// # Errors
    /// As [`load`](Self::load); what was read before stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = Loaded::read(&self.folder, self.verifies_clients)?;
        *write(&self.loaded) = loaded;
        Ok(())
    }

    /// What a connection that begins now uses.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        read(&self.loaded).config.clone()
    }

    /// Whether clients need a certificate.
    pub fn verifies_clients(&self) -> bool {
        self.verifies_clients
    }

    /// What the operator should know: a key that others can read.
    pub fn warnings(&self) -> Vec<String> {
        read(&self.loaded).warnings.clone()
    }
}

impl Loaded {
    fn read(folder: &Path, verifies_clients: bool) -> Result<Loaded, TlsError> {
        let mut warnings = Vec::new();
        let certificate = folder.join(CERTIFICATE_FILE);
        let chain = certificates(&certificate)?;
        let key = key(&folder.join(KEY_FILE), &mut warnings)?;
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has suites of TLS 1.3");
        let builder = if verifies_clients {
            let path = folder.join(CA_FILE);
            let refuse = |cause| TlsError::Authority { path: path.clone(), source: AuthorityError(cause) };
            let mut roots = RootCertStore::empty();
            for authority in certificates(&path)? {
                roots.add(authority).map_err(|error| refuse(AuthorityCause::Certificate(error)))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder
                .with_client_cert_verifier(verifier.map_err(|error| refuse(AuthorityCause::Verifier(error)))?)
        } else {
            builder.with_no_client_auth()
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|source| TlsError::Unusable { path: certificate, source })?;
        // A resumed session would outlive the certificate that it began with.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Loaded { config: Arc::new(config), warnings })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (bytes, _) = read_file(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|source| TlsError::Damaged { path: path.to_owned(), source })?;
    match found.is_empty() {
        true => Err(TlsError::Empty { path: path.to_owned(), what: "certificate" }),
        false => Ok(found),
    }
}

fn key(path: &Path, warnings: &mut Vec<String>) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (bytes, mode) = read_file(path)?;
    if mode & OTHERS != 0 {
        let (mode, path) = (mode & 0o777, path.display());
        warnings.push(format!(
            "{path} has mode {mode:o}: other users can read or change the key (chmod 600 {path})"
        ));
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::Empty { path: path.to_owned(), what: "private key" },
        source => TlsError::Damaged { path: path.to_owned(), source },
    })
}

/// The file's bytes and mode.
fn read_file(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    // Does not wait for the other end of a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() || found.len() > FILE_BYTES_MAX {
        return Err(TlsError::NotAFile { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok((bytes, found.mode()))
}
