//! Certificates, and clients that use them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use fastness_nbd::wire::{HeaderMode, option, reply};
use fastness_nbd::{CA_FILE, CERTIFICATE_FILE, Client, KEY_FILE, Limits, Service, SingleExport, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Recorder, World};

/// An authority, as a company or a test has its own.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate, and its key.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn identity(&self) -> Identity {
        self.identity_until(2100)
    }

    /// Good until the year begins.
    pub fn identity_until(&self, year: i32) -> Identity {
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(year, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    /// A folder as a server wants it.
    pub fn folder(&self, folder: &Path) {
        let Identity { certificate, key } = self.identity();
        fs::write(folder.join(CA_FILE), &self.pem).unwrap();
        fs::write(folder.join(CERTIFICATE_FILE), certificate).unwrap();
        fs::write(folder.join(KEY_FILE), key).unwrap();
        fs::set_permissions(folder.join(KEY_FILE), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub fn tls(&self, verifies_clients: bool) -> Tls {
        let folder = tempfile::tempdir().unwrap();
        self.folder(folder.path());
        Tls::load(folder.path(), verifies_clients).unwrap()
    }

    /// What a client needs that trusts this authority.
    pub fn client(&self, identity: Option<&Identity>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Arc::new(config)
    }
}

/// A world whose service requires TLS.
pub fn world(tls: Tls, limits: Limits) -> World {
    let recorder = Arc::new(Recorder::new());
    let exports = Arc::new(SingleExport::new("disk", recorder.clone()));
    World { service: Arc::new(Service::with_tls(exports, limits, Some(tls)).unwrap()), recorder }
}

pub fn option_bytes(kind: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &kind.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

/// The code of one reply to an option.
pub fn code(stream: &mut impl Read) -> u32 {
    let mut header = [0; 20];
    stream.read_exact(&mut header).unwrap();
    let mut data = vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
    stream.read_exact(&mut data).unwrap();
    u32::from_be_bytes(header[12..16].try_into().unwrap())
}

/// Greets.
pub fn greet(stream: &mut UnixStream) {
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
}

/// Greets, and asks for TLS.
pub fn ask_for_tls(stream: &mut UnixStream) {
    greet(stream);
    stream.write_all(&option_bytes(option::STARTTLS, &[])).unwrap();
    assert_eq!(code(stream), reply::ACK);
}

pub fn connection(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config.clone(), ServerName::try_from("localhost").unwrap()).unwrap()
}

pub type TlsStream = StreamOwned<ClientConnection, UnixStream>;

/// A client that has done the TLS handshake, and no option after it.
pub fn secured(mut stream: UnixStream, config: &Arc<ClientConfig>) -> TlsStream {
    ask_for_tls(&mut stream);
    let mut stream = StreamOwned::new(connection(config), stream);
    stream.conn.complete_io(&mut stream.sock).unwrap();
    stream
}

/// How the server ended a connection: whether it said that nothing follows.
pub type Goodbye = JoinHandle<bool>;

/// A client without TLS, whose bytes go through TLS.
pub fn client(world: &World, config: &Arc<ClientConfig>, mode: HeaderMode) -> (Client, Goodbye) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let secure = secured(world.connect().0, config);
    let goodbye = thread::spawn(move || tunnel(theirs, secure));
    (Client::handshake(ours, "disk", mode).unwrap(), goodbye)
}

fn tunnel(mut plain: UnixStream, mut secure: TlsStream) -> bool {
    plain.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    plain.read_exact(&mut [0; 4]).unwrap();
    let mut buffer = vec![0; 64 << 10];
    let mut is_open = true;
    loop {
        let plain_events = if is_open { PollFlags::IN } else { PollFlags::empty() };
        let mut waits = [PollFd::new(&secure.sock, PollFlags::IN), PollFd::new(&plain, plain_events)];
        poll(&mut waits, None).unwrap();
        let [from_server, from_client] = waits.map(|wait| !wait.revents().is_empty());
        if from_server {
            if secure.conn.read_tls(&mut secure.sock).unwrap_or(0) == 0 {
                return false;
            }
            let state = secure.conn.process_new_packets().unwrap();
            let mut data = vec![0; state.plaintext_bytes_to_read()];
            secure.conn.reader().read_exact(&mut data).unwrap();
            // The client may have what it wants.
            let _ = plain.write_all(&data);
            if state.peer_has_closed() {
                return true;
            }
        }
        if from_client && is_open {
            match plain.read(&mut buffer).unwrap_or(0) {
                0 => {
                    is_open = false;
                    secure.conn.send_close_notify();
                }
                bytes => secure.conn.writer().write_all(&buffer[..bytes]).unwrap(),
            }
            while secure.conn.wants_write() {
                if secure.conn.write_tls(&mut secure.sock).is_err() {
                    return false;
                }
            }
        }
    }
}
