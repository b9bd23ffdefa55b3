//! Certificates, and a client that uses them.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use fastness_nbd::wire::{HeaderMode, RequestHeader, command, command_flag, option, reply};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A folder for a server; returns what a client with a certificate needs, and one without.
pub(crate) fn folder(folder: &Path) -> [Arc<ClientConfig>; 2] {
    fs::create_dir(folder).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let identity = || {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let (certificate, key) = identity();
    fs::write(folder.join("ca-cert.pem"), authority.pem()).unwrap();
    fs::write(folder.join("server-cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("server-key.pem"), key.serialize_pem()).unwrap();
    fs::set_permissions(folder.join("server-key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    let builder = || {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        builder.unwrap().with_root_certificates(roots)
    };
    let (certificate, key) = identity();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let certified = builder().with_client_auth_cert(vec![certificate.der().clone()], key).unwrap();
    [Arc::new(certified), Arc::new(builder().with_no_client_auth())]
}

/// A connection in transmission, with simple replies.
pub(crate) struct Secure(StreamOwned<ClientConnection, TcpStream>);

fn code(stream: &mut impl Read) -> io::Result<u32> {
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    let mut data = vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
    stream.read_exact(&mut data)?;
    Ok(u32::from_be_bytes(header[12..16].try_into().unwrap()))
}

impl Secure {
    pub(crate) fn connect(at: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> io::Result<Secure> {
        let mut stream = TcpStream::connect(at)?;
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(&3u32.to_be_bytes())?;
        stream.write_all(&[b"IHAVEOPT", &option::STARTTLS.to_be_bytes()[..], &[0; 4]].concat())?;
        assert_eq!(code(&mut stream)?, reply::ACK);
        let server = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(config.clone(), server).unwrap(), stream);
        let data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0; 2]].concat();
        let length = (data.len() as u32).to_be_bytes();
        stream.write_all(&[b"IHAVEOPT", &option::GO.to_be_bytes()[..], &length, &data].concat())?;
        while code(&mut stream)? != reply::ACK {}
        Ok(Secure(stream))
    }

    fn send(&mut self, kind: u16, flags: u16, offset: u64, length: usize) {
        let mut bytes = Vec::new();
        RequestHeader { flags, kind, cookie: 7, offset, length: length as u64 }
            .encode(HeaderMode::Simple, &mut bytes);
        self.0.write_all(&bytes).unwrap();
    }

    fn done(&mut self) {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0; 4], "no error");
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.send(command::WRITE, command_flag::FUA, offset, data.len());
        self.0.write_all(data).unwrap();
        self.done();
    }

    pub(crate) fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.send(command::READ, 0, offset, bytes);
        self.done();
        let mut data = vec![0; bytes];
        self.0.read_exact(&mut data).unwrap();
        data
    }
}
