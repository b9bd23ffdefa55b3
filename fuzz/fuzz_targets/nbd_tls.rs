//! What a client sends to an NBD server that requires TLS: anything after STARTTLS, records with strange
//! contents, a greeting that was changed, or any bytes through TLS, with damage after them.
#![no_main]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use arbitrary::Arbitrary;
use fastness_nbd::{CA_FILE, CERTIFICATE_FILE, KEY_FILE, Limits, MemoryExport, Service, SingleExport, Tls};
use libfuzzer_sys::fuzz_target;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

#[derive(Debug, Arbitrary)]
enum Input {
    /// Before TLS: options (kind, data), then STARTTLS, and bytes that come too early.
    Early(Vec<(u8, Vec<u8>)>, Vec<u8>),
    /// After STARTTLS.
    Bytes(Vec<u8>),
    /// The same, as records: kind, contents, and a length that may be wrong.
    Records(Vec<(u8, Vec<u8>, Option<u16>)>),
    /// A right greeting with these bytes in it.
    Hello(Vec<(u16, u8)>),
    /// Through TLS: what each record has; then bytes that are not TLS, and whether it says goodbye.
    Secure(Vec<Vec<u8>>, Vec<u8>, bool),
}

struct World {
    service: Service,
    client: Arc<ClientConfig>,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("nbd-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.join(CA_FILE), authority.pem()).unwrap();
        std::fs::write(folder.join(CERTIFICATE_FILE), certificate.pem()).unwrap();
        std::fs::write(folder.join(KEY_FILE), key.serialize_pem()).unwrap();
        let tls = Tls::load(&folder, true).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let exports = SingleExport::new("disk", Arc::new(MemoryExport::new(1 << 20)));
        let limits = Limits { workers: 1, ..Limits::default() };
        let service = Service::with_tls(Arc::new(exports), limits, Some(tls)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let client = builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        World { service, client: Arc::new(client) }
    })
}

fn option(bytes: &mut Vec<u8>, kind: u32, data: &[u8]) {
    bytes.extend(b"IHAVEOPT");
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
}

/// Writes one buffer at a time: unlike several at once, that raises no SIGPIPE when the server has gone, and
/// nobody ignores the signal here.
struct Single(UnixStream);

impl Read for Single {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(to)
    }
}

impl Write for Single {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The client's part; an error ends it.
fn talk(mut stream: UnixStream, input: &Input) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 18])?;
    let mut bytes = 3u32.to_be_bytes().to_vec();
    if let Input::Early(options, early) = input {
        options.iter().for_each(|(kind, data)| option(&mut bytes, (*kind).into(), data));
        option(&mut bytes, 5, &[]);
        bytes.extend(early);
        return stream.write_all(&bytes);
    }
    option(&mut bytes, 5, &[]);
    stream.write_all(&bytes)?;
    stream.read_exact(&mut [0; 20])?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(world().client.clone(), name).unwrap();
    match input {
        Input::Early(..) => unreachable!("returned above"),
        Input::Bytes(bytes) => stream.write_all(bytes),
        Input::Records(records) => {
            let mut bytes = Vec::new();
            for (kind, data, length) in records {
                bytes.extend([*kind, 3, 3]);
                bytes.extend(length.unwrap_or(data.len() as u16).to_be_bytes());
                bytes.extend(data);
            }
            stream.write_all(&bytes)
        }
        Input::Hello(changes) => {
            let mut hello = Vec::new();
            connection.write_tls(&mut hello)?;
            for (at, value) in changes {
                let at = usize::from(*at) % hello.len();
                hello[at] = *value;
            }
            stream.write_all(&hello)
        }
        Input::Secure(records, tail, says_goodbye) => {
            let mut secure = StreamOwned::new(connection, Single(stream));
            for record in records {
                secure.write_all(record)?;
                secure.flush()?;
            }
            if *says_goodbye {
                secure.conn.send_close_notify();
                secure.flush()?;
            }
            secure.sock.write_all(tail)
        }
    }
}

fuzz_target!(|input: Input| {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reading = ours.try_clone().unwrap();
            let _ = talk(ours, &input);
            let _ = reading.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut reading, &mut std::io::sink());
        });
        let _ = world().service.serve_connection(theirs);
    });
    let stats = world().service.stats();
    assert_eq!(stats.connections, 0);
    assert_eq!(stats.timed_out, 0, "a client that is done is not waited for");
});
