//! An export as a device: libnbd, where it is installed, and the project's own server.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastness_blkdev::{BlockDevice, Cause, ErrorKind, Operation, Request};
use fastness_nbd::{
    BlockSizes, Endpoint, Export, ExportError, Features, Limits, MemoryExport, Server, SingleExport,
    ZeroOptions,
};

use crate::error::OpenError;
use crate::name::{Name, parse};
use crate::nbd::{NbdDevice, functions};

const LEN: u64 = 64 << 20;

/// An export whose requests are counted, and fail when a test says so.
struct Peer {
    memory: MemoryExport,
    features: Features,
    blocks: BlockSizes,
    is_read_only: bool,
    size_bytes: u64,
    fails: AtomicBool,
    hangs: AtomicBool,
    flushes: AtomicUsize,
    fua_writes: AtomicUsize,
    longest: AtomicUsize,
}

impl Peer {
    fn new() -> Peer {
        Peer {
            memory: MemoryExport::new(LEN),
            features: MemoryExport::new(0).features(),
            blocks: BlockSizes::default(),
            is_read_only: false,
            size_bytes: LEN,
            fails: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            flushes: AtomicUsize::new(0),
            fua_writes: AtomicUsize::new(0),
            longest: AtomicUsize::new(0),
        }
    }

    fn outcome(&self, len: usize) -> Result<(), ExportError> {
        self.longest.fetch_max(len, Ordering::SeqCst);
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.fails.load(Ordering::SeqCst) { Err(ExportError::Io) } else { Ok(()) }
    }
}

impl Export for Peer {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
    fn block_sizes(&self) -> BlockSizes {
        self.blocks
    }
    fn is_read_only(&self) -> bool {
        self.is_read_only
    }
    fn features(&self) -> Features {
        self.features
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.outcome(buffer.len())?;
        self.memory.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.outcome(data.len())?;
        self.fua_writes.fetch_add(usize::from(fua), Ordering::SeqCst);
        self.memory.write(offset, data, fua)
    }
    fn flush(&self) -> Result<(), ExportError> {
        self.outcome(0)?;
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.outcome(0)?;
        self.memory.trim(offset, length, fua)
    }
    fn write_zeroes(&self, offset: u64, length: u64, options: ZeroOptions) -> Result<(), ExportError> {
        self.outcome(0)?;
        self.memory.write_zeroes(offset, length, options)
    }
}

/// A server, and the name of its export.
struct Place {
    peer: Arc<Peer>,
    server: Arc<Server>,
    name: String,
    _folder: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.peer.hangs.store(false, Ordering::SeqCst);
        self.server.shutdown();
    }
}

fn serve(peer: Peer) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let peer = Arc::new(peer);
    let exports = Arc::new(SingleExport::new("disk", peer.clone()));
    let server = Server::bind(&Endpoint::Unix(socket.clone()), exports, Limits::default()).unwrap();
    let server = Arc::new(server);
    let serving = server.clone();
    std::thread::spawn(move || serving.serve());
    Place { peer, server, name: uri(&socket), _folder: folder }
}

fn uri(socket: &std::path::Path) -> String {
    format!("nbd+unix:///disk?socket={}", socket.display())
}

fn open(name: &str) -> Result<NbdDevice, OpenError> {
    let Name::Nbd(name) = parse(name).unwrap() else { unreachable!() };
    NbdDevice::open(functions()?, &name)
}

/// Whether libnbd is here; otherwise the test says that it tests nothing.
#[allow(clippy::print_stderr)]
fn has_library(test: &str) -> bool {
    let found = functions();
    if let Err(error) = &found {
        eprintln!("SKIPPED {test}: {}", fastness_base::chain(error));
    }
    found.is_ok()
}

macro_rules! needs_library {
    ($test:literal) => {
        if !has_library($test) {
            return;
        }
    };
}

#[test]
fn bytes_go_to_the_export_and_come_back() {
    needs_library!("bytes_go_to_the_export_and_come_back");
    let place = serve(Peer::new());
    let device = open(&place.name).unwrap();
    assert_eq!((device.len_bytes(), device.logical_block_bytes()), (LEN, 512));
    assert!(!device.info().fences_others && device.info().can_discard);
    device.write_at(4096, &[7; 1024]).unwrap();
    device.write_fua(8192, &[8; 512]).unwrap();
    assert_eq!(place.peer.fua_writes.load(Ordering::SeqCst), 1);
    device.flush().unwrap();
    assert_eq!(place.peer.flushes.load(Ordering::SeqCst), 1);
    let mut buf = vec![0; 8192];
    device.read_at(4096, &mut buf).unwrap();
    assert!(buf[..1024] == [7; 1024] && buf[4096..4608] == [8; 512]);
    device.write_zeroes(4096, 512).unwrap();
    device.discard(8192, 512).unwrap();
    device.read_at(4096, &mut buf).unwrap();
    assert!(buf[..512] == [0; 512] && buf[512..1024] == [7; 512]);
    assert_eq!(device.stats().of(Operation::Write).bytes, 1024);
}

#[test]
fn long_requests_go_in_parts_that_the_server_takes() {
    needs_library!("long_requests_go_in_parts_that_the_server_takes");
    let blocks = BlockSizes { minimum: 4096, preferred: 4096, maximum: 1 << 20 };
    let place = serve(Peer { blocks, ..Peer::new() });
    let device = open(&place.name).unwrap();
    assert_eq!(device.logical_block_bytes(), 4096);
    let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    device.write_at(4096, &data).unwrap();
    let mut buf = vec![0; data.len()];
    device.read_at(4096, &mut buf).unwrap();
    assert!(buf == data);
    assert_eq!(place.peer.longest.load(Ordering::SeqCst), 1 << 20);
    assert!(matches!(device.write_at(512, &[0; 512]).unwrap_err().cause, Cause::Misaligned { .. }));
    device.write_zeroes(0, LEN).unwrap();
    device.read_at(4096, &mut buf).unwrap();
    assert!(buf.iter().all(|byte| *byte == 0));
}

#[test]
fn the_requests_of_a_batch_each_have_their_own_result() {
    needs_library!("the_requests_of_a_batch_each_have_their_own_result");
    let place = serve(Peer::new());
    let device = open(&place.name).unwrap();
    let data = [6; 512];
    let mut buf = [9; 512];
    let mut batch = vec![
        Request::Write { offset: 1, data: &data, fua: false },
        Request::Read { offset: LEN - 512, buf: &mut buf },
    ];
    batch.extend((0..200).map(|at| Request::Write { offset: at * 512, data: &data, fua: at % 100 == 99 }));
    let results = device.run_batch(&mut batch);
    drop(batch);
    assert!(results[0].is_err() && results[1..].iter().all(Result::is_ok) && results.len() == 202);
    assert_eq!(buf, [0; 512]);
    let mut written = vec![0; 200 * 512];
    device.read_at(0, &mut written).unwrap();
    assert!(written.iter().all(|byte| *byte == 6));
    place.peer.fails.store(true, Ordering::SeqCst);
    let mut batch = [
        Request::Write { offset: 0, data: &data, fua: false },
        Request::Write { offset: 512, data: &data, fua: false },
    ];
    let results = device.run_batch(&mut batch);
    assert!(results.iter().all(|result| result.as_ref().unwrap_err().kind() == ErrorKind::MediaFailed));
}

#[test]
fn what_the_server_cannot_do_is_done_by_other_means() {
    needs_library!("what_the_server_cannot_do_is_done_by_other_means");
    let features = Features { fua: false, trim: false, write_zeroes: false, ..Peer::new().features };
    let place = serve(Peer { features, ..Peer::new() });
    let device = open(&place.name).unwrap();
    device.write_fua(0, &[5; 4096]).unwrap();
    assert_eq!(place.peer.flushes.load(Ordering::SeqCst), 1, "instead of FUA");
    assert!(!device.info().can_discard);
    device.discard(0, 4096).unwrap();
    let mut buf = [0; 4096];
    device.read_at(0, &mut buf).unwrap();
    assert_eq!(buf, [5; 4096]);
    device.write_zeroes(0, 3 << 20).unwrap();
    device.read_at(0, &mut buf).unwrap();
    assert_eq!(buf, [0; 4096]);
}

#[test]
fn a_server_that_cannot_make_anything_durable_is_only_read() {
    needs_library!("a_server_that_cannot_make_anything_durable_is_only_read");
    let features = Features { flush: false, fua: false, multi_conn: false, ..Peer::new().features };
    let place = serve(Peer { features, ..Peer::new() });
    assert!(matches!(open(&place.name), Err(OpenError::Unfit { .. })));
    let place = serve(Peer { features, is_read_only: true, ..Peer::new() });
    let device = open(&place.name).unwrap();
    assert!(device.is_read_only());
    device.read_at(0, &mut [0; 512]).unwrap();
    device.flush().unwrap();
    assert!(matches!(device.write_at(0, &[0; 512]).unwrap_err().cause, Cause::ReadOnly));
    drop(device);
    let place = serve(Peer { size_bytes: LEN - 3, ..Peer::new() });
    // The protocol's blocks may be single bytes; ours are not.
    assert!(open(&place.name).is_err_and(|error| error.kind() == ErrorKind::Invalid));
}

#[test]
fn errors_of_the_server_are_those_of_the_device_and_a_failed_flush_is_the_last() {
    needs_library!("errors_of_the_server_are_those_of_the_device_and_a_failed_flush_is_the_last");
    for is_flush in [true, false] {
        let place = serve(Peer::new());
        let device = open(&place.name).unwrap();
        place.peer.fails.store(true, Ordering::SeqCst);
        let failed = device.write_at(512, &[1; 512]).unwrap_err();
        assert!(matches!(failed.cause, Cause::Media(_)), "{failed}");
        assert!(!device.is_poisoned());
        assert!(device.read_at(0, &mut [0; 512]).is_err());
        assert!(device.write_zeroes(0, 512).is_err() && device.discard(0, 512).is_err());
        let failed = if is_flush { device.flush() } else { device.write_fua(0, &[1; 512]) };
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::MediaFailed);
        place.peer.fails.store(false, Ordering::SeqCst);
        assert!(device.is_poisoned());
        assert!(matches!(device.flush().unwrap_err().cause, Cause::Poisoned));
        assert!(matches!(device.write_at(0, &[1; 512]).unwrap_err().cause, Cause::Poisoned));
        device.read_at(0, &mut [0; 512]).unwrap();
    }
}

#[test]
fn a_connection_that_is_lost_is_a_device_that_is_lost() {
    needs_library!("a_connection_that_is_lost_is_a_device_that_is_lost");
    let place = serve(Peer::new());
    let device = open(&place.name).unwrap();
    device.write_at(0, &[1; 512]).unwrap();
    place.server.shutdown();
    let error = device.write_at(0, &[2; 512]).unwrap_err();
    assert!(error.is_gone() && device.is_poisoned(), "{error}");
    let mut batch = [Request::Write { offset: 0, data: &[4; 512], fua: false }];
    assert!(device.run_batch(&mut batch).remove(0).unwrap_err().is_gone());
    assert!(device.flush().unwrap_err().is_gone());
    assert!(device.read_at(0, &mut [0; 512]).unwrap_err().is_gone());
}

#[test]
fn a_server_that_does_not_answer_is_waited_for_up_to_the_timeout() {
    needs_library!("a_server_that_does_not_answer_is_waited_for_up_to_the_timeout");
    let place = serve(Peer::new());
    let device = open(&format!("{}&timeout=1", place.name)).unwrap();
    device.write_at(0, &[1; 512]).unwrap();
    place.peer.hangs.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let error = device.write_at(512, &[2; 512]).unwrap_err();
    assert!(error.is_gone() && begun.elapsed() >= Duration::from_secs(1), "{error}");
    place.peer.hangs.store(false, Ordering::SeqCst);
    // It may have been executed, or not yet: nothing is written in its stead.
    assert!(device.write_at(512, &[3; 512]).unwrap_err().is_gone());
}

#[test]
fn there_is_one_writer_of_an_export_on_a_machine() {
    needs_library!("there_is_one_writer_of_an_export_on_a_machine");
    let place = serve(Peer::new());
    let device = open(&place.name).unwrap();
    let error = open(&format!("{}&timeout=9", place.name)).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(device);
    open(&place.name).unwrap();
}

#[test]
fn a_server_that_is_not_there_or_speaks_something_else_is_an_error() {
    needs_library!("a_server_that_is_not_there_or_speaks_something_else_is_an_error");
    let folder = tempfile::tempdir().unwrap();
    let socket: PathBuf = folder.path().join("s");
    let error = open(&uri(&socket)).unwrap_err();
    assert!(error.to_string().contains("nbd_connect_uri"), "{error}");
    let listener = UnixListener::bind(&socket).unwrap();
    let speaker = std::thread::spawn(move || {
        use std::io::Write;
        let (mut client, _) = listener.accept().unwrap();
        let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert!(open(&uri(&socket)).is_err());
    speaker.join().unwrap();
}

#[test]
fn many_threads_write_at_once() {
    needs_library!("many_threads_write_at_once");
    let place = serve(Peer::new());
    let device = open(&place.name).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let device = &device;
            scope.spawn(move || {
                for at in 0..100 {
                    let offset = (thread * 100 + at) * 512;
                    device.write_at(offset, &[thread as u8 + 1; 512]).unwrap();
                    device.flush().unwrap();
                }
            });
        }
    });
    let mut buf = vec![0; 800 * 512];
    device.read_at(0, &mut buf).unwrap();
    assert!(buf.chunks(51_200).enumerate().all(|(thread, part)| part.iter().all(|b| *b == thread as u8 + 1)));
    assert_eq!(place.peer.flushes.load(Ordering::SeqCst), 800);
}
