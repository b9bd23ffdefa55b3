//! Several exports at one address: one of them ends, and the others do not notice.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fastness_nbd::wire::{HeaderMode, command, reply};
use fastness_nbd::{
    Client, ClientError, Clients, Export, ExportEntry, ExportError, Exports, Features, Limits, MemoryExport,
    OpenError, Request, Service,
};
use support::tls::Authority;

/// Memory that can end, and that may take its time to do so.
struct Ending {
    memory: MemoryExport,
    is_ended: AtomicBool,
    /// How long a flush takes.
    flush_takes: Mutex<Duration>,
}

impl Export for Ending {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }
    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }
    fn features(&self) -> Features {
        self.memory.features()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.memory.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.memory.write(offset, data, fua)
    }
    fn flush(&self) -> Result<(), ExportError> {
        thread::sleep(*self.flush_takes.lock().unwrap());
        Ok(())
    }
}

/// The exports `a` and `b`, which are found even after they have ended.
struct Two([Arc<Ending>; 2]);

impl Exports for Two {
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, OpenError> {
        let at = ["a", "b"].iter().position(|known| *known == name).ok_or(OpenError::Unknown)?;
        Ok(self.0[at].clone())
    }
    fn list(&self) -> Option<Vec<ExportEntry>> {
        None
    }
}

fn two(limits: Limits, tls: Option<fastness_nbd::Tls>) -> (Arc<Service>, [Arc<Ending>; 2]) {
    let one = || Ending {
        memory: MemoryExport::new(1 << 20),
        is_ended: AtomicBool::new(false),
        flush_takes: Mutex::default(),
    };
    let both = [(); 2].map(|()| Arc::new(one()));
    (Arc::new(Service::with_tls(Arc::new(Two(both.clone())), limits, tls).unwrap()), both)
}

fn connect(service: &Arc<Service>, name: &str) -> Result<Client, ClientError> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let service = service.clone();
    thread::spawn(move || service.serve_connection(theirs));
    Client::handshake(ours, name, HeaderMode::Structured)
}

fn end(service: &Service, export: &Arc<Ending>) -> usize {
    export.is_ended.store(true, Ordering::SeqCst);
    let export: Arc<dyn Export> = export.clone();
    service.end_export(&export).cut
}

#[test]
fn one_ends_and_the_other_goes_on() {
    let (service, [a, b]) = two(Limits::default(), None);
    let (mut of_a, mut of_b) = (connect(&service, "a").unwrap(), connect(&service, "b").unwrap());
    of_a.write(0, b"a", false).unwrap();
    of_b.write(0, b"b", false).unwrap();
    // In flight when it ends: it is answered.
    *a.flush_takes.lock().unwrap() = Duration::from_millis(300);
    let flush = Request { kind: command::FLUSH, flags: 0, offset: 0, length: 0, payload: &[] };
    of_a.send(&flush).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(end(&service, &a), 0);
    assert_eq!(of_a.receive_chunk(|_| 0).unwrap().error, 0);
    assert!(of_a.read(0, 1).is_err());
    assert_eq!(of_b.read(0, 1).unwrap(), b"b");
    of_b.flush().unwrap();
    // Whoever found it just before it ended is not served either.
    let late = connect(&service, "a").and_then(|mut client| client.read(0, 1));
    assert!(late.is_err());
    assert!(connect(&service, "b").unwrap().read(0, 1).is_ok());
    let all = |export: &Arc<Ending>| service.clients(&(export.clone() as Arc<dyn Export>)).all;
    assert_eq!(all(&a), 0);
    assert!(all(&b) >= 1);
    assert_eq!(service.shutdown().cut, 0);
}

#[test]
fn a_client_that_hangs_is_cut_and_no_other() {
    let grace = Duration::from_millis(300);
    let (service, [a, _]) = two(Limits { shutdown_grace: grace, ..Limits::default() }, None);
    let (mut of_a, mut of_b) = (connect(&service, "a").unwrap(), connect(&service, "b").unwrap());
    // More replies than the socket holds, and none of them is read.
    let read = Request { kind: command::READ, flags: 0, offset: 0, length: 1 << 20, payload: &[] };
    for _ in 0..8 {
        of_a.send(&read).unwrap();
    }
    thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    assert_eq!(end(&service, &a), 1);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(of_b.read(0, 1).unwrap(), [0]);
}

#[test]
fn clients_are_counted_for_each() {
    let authority = Authority::new();
    let (service, [a, b]) = two(Limits::default(), Some(authority.tls(true)));
    let world = support::World { service: service.clone(), recorder: Arc::new(support::Recorder::new()) };
    let config = authority.client(Some(&authority.identity()));
    let mut stream = support::tls::secured(world.connect().0, &config);
    let count = |export: &Arc<Ending>| service.clients(&(export.clone() as Arc<dyn Export>));
    assert_eq!(count(&b), Clients::default(), "a handshake is nobody's client");
    std::io::Write::write_all(&mut stream, &support::tls::option_bytes(7, b"\0\0\0\x01b\0\0")).unwrap();
    while support::tls::code(&mut stream) != reply::ACK {}
    while count(&b).all == 0 {
        thread::yield_now();
    }
    assert_eq!(count(&b), Clients { all: 1, secure: 1, certified: 1 });
    assert_eq!(count(&a), Clients::default());
}
