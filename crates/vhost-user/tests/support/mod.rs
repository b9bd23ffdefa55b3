//! A disk in memory, a server of it at a socket, and a driver of others (the crate `virtio-driver`).

// Memory that a driver shares with a device cannot be had in safe Rust.
#![allow(unsafe_code, dead_code)]

pub(crate) mod front;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use fastness_vhost_user::{Disk, DiskError, Options, Server};
use virtio_driver::{
    VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags,
};

/// Bytes in memory; those of a flush, or written as durable, are kept apart.
pub(crate) struct Ram {
    pub(crate) bytes: RwLock<Vec<u8>>,
    pub(crate) durable: Mutex<Vec<u8>>,
    pub(crate) flushes: AtomicUsize,
    pub(crate) discards: Mutex<Vec<(u64, u64)>>,
    pub(crate) is_read_only: bool,
    pub(crate) pause: Mutex<Duration>,
    /// Requests in work, and the most of them at once.
    pub(crate) in_work: AtomicUsize,
    pub(crate) most: AtomicUsize,
    pub(crate) fails: Mutex<Option<DiskError>>,
}

impl Ram {
    pub(crate) fn new(size: usize) -> Ram {
        Ram {
            bytes: RwLock::new(vec![0; size]),
            durable: Mutex::new(vec![0; size]),
            flushes: AtomicUsize::new(0),
            discards: Mutex::default(),
            is_read_only: false,
            pause: Mutex::default(),
            in_work: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            fails: Mutex::default(),
        }
    }

    fn work(&self) -> Result<(), DiskError> {
        let now = self.in_work.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let pause = *self.pause.lock().unwrap();
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        self.in_work.fetch_sub(1, Ordering::SeqCst);
        self.fails.lock().unwrap().map_or(Ok(()), Err)
    }
}

impl Disk for Ram {
    fn size_bytes(&self) -> u64 {
        self.bytes.read().unwrap().len() as u64
    }

    fn block_bytes(&self) -> u32 {
        4096
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn serial(&self) -> String {
        "serial number 1".to_owned()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.work()?;
        let at = offset as usize;
        buffer.copy_from_slice(&self.bytes.read().unwrap()[at..at + buffer.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], is_durable: bool) -> Result<(), DiskError> {
        self.work()?;
        let at = offset as usize;
        self.bytes.write().unwrap()[at..at + data.len()].copy_from_slice(data);
        if is_durable {
            self.durable.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.work()?;
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.durable.lock().unwrap().copy_from_slice(&self.bytes.read().unwrap());
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64, is_durable: bool) -> Result<(), DiskError> {
        self.discards.lock().unwrap().push((offset, length));
        self.write_zeroes(offset, length, is_durable)
    }

    fn write_zeroes(&self, offset: u64, length: u64, is_durable: bool) -> Result<(), DiskError> {
        self.write(offset, &vec![0; length as usize], is_durable)
    }
}

/// A server at a socket in a folder of its own.
pub(crate) struct Bench {
    pub(crate) disk: Arc<Ram>,
    pub(crate) server: Arc<Server>,
    pub(crate) path: PathBuf,
    pub(crate) notes: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(disk: Ram) -> Bench {
        Bench::with(disk, Options::default())
    }

    pub(crate) fn with(disk: Ram, options: Options) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (disk, notes) = (Arc::new(disk), Arc::new(Mutex::new(Vec::new())));
        let noted = notes.clone();
        let note = move |text| noted.lock().unwrap().push(text);
        let server = Arc::new(Server::new(disk.clone(), options, note));
        let listener = UnixListener::bind(&path).unwrap();
        let (serving, told) = (server.clone(), notes.clone());
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if let Err(error) = serving.run_client(stream) {
                    told.lock().unwrap().push(format!("disconnected: {error}"));
                }
                if Arc::strong_count(&serving) == 1 {
                    break;
                }
            }
        });
        Bench { disk, server, path, notes, thread: Some(thread), _folder: folder }
    }

    pub(crate) fn driver(&self, features: u64, queues: usize, size: u16) -> Driver {
        Driver::new(&self.path, features, queues, size)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.server.shutdown();
        // The thread waits for another client; the process ends without it.
        drop(self.thread.take());
    }
}

/// The features that a driver takes if they are offered.
pub(crate) fn all_features() -> u64 {
    let blk = VirtioBlkFeatureFlags::BLK_SIZE
        | VirtioBlkFeatureFlags::FLUSH
        | VirtioBlkFeatureFlags::MQ
        | VirtioBlkFeatureFlags::RO
        | VirtioBlkFeatureFlags::DISCARD
        | VirtioBlkFeatureFlags::WRITE_ZEROES;
    let ring = VirtioFeatureFlags::VERSION_1
        | VirtioFeatureFlags::RING_EVENT_IDX
        | VirtioFeatureFlags::RING_INDIRECT_DESC;
    blk.bits() | ring.bits()
}

/// A driver with memory for data that it shares with the device.
pub(crate) struct Driver {
    pub(crate) queues: Vec<VirtioBlkQueue<'static, usize>>,
    pub(crate) transport: Box<VirtioBlkTransport>,
    data: *mut u8,
    len: usize,
    _file: File,
}

pub(crate) const DATA_BYTES: usize = 8 << 20;

impl Driver {
    pub(crate) fn new(path: &std::path::Path, features: u64, queues: usize, size: u16) -> Driver {
        let connected = VhostUser::new(path.to_str().unwrap(), features).unwrap();
        let mut transport: Box<VirtioBlkTransport> = Box::new(connected);
        let mut queues = VirtioBlkQueue::setup_queues(&mut *transport, queues, size).unwrap();
        queues.iter_mut().for_each(|queue| queue.set_used_notif_enabled(true));
        // SAFETY: a new file without a name, mapped at an address of the kernel's choice.
        let (file, data) = unsafe {
            let file = File::from_raw_fd(libc::memfd_create(c"data".as_ptr(), 0));
            file.set_len(DATA_BYTES as u64).unwrap();
            let (rights, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let data = libc::mmap(std::ptr::null_mut(), DATA_BYTES, rights, shared, file.as_raw_fd(), 0);
            assert_ne!(data, libc::MAP_FAILED);
            (file, data.cast::<u8>())
        };
        // The queues are in use already: memory may come later.
        transport.map_mem_region(data as usize, DATA_BYTES, file.as_raw_fd(), 0).unwrap();
        Driver { queues, transport, data, len: DATA_BYTES, _file: file }
    }

    fn at(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at + len <= self.len);
        self.data.wrapping_add(at)
    }

    /// Asks for a write of `len` times `byte`, which lie at `at` in the shared memory.
    pub(crate) fn submit(
        &mut self,
        queue: usize,
        offset: u64,
        at: usize,
        byte: u8,
        len: usize,
        context: usize,
    ) {
        let from = self.at(at, len);
        // SAFETY: shared memory that stays mapped for as long as the driver lives.
        unsafe {
            from.write_bytes(byte, len);
            self.queues[queue].write_raw(offset, from, len, context).unwrap();
        }
    }

    /// Cuts the shared memory short.
    pub(crate) fn cut(&self) {
        self._file.set_len(0).unwrap();
    }

    pub(crate) fn kick(&mut self, queue: usize) {
        // The crate has this for event indices alone; without it, it may read the server's flag of before its
        // own entry was seen, and both sleep.
        fence(Ordering::SeqCst);
        if self.queues[queue].avail_notif_needed() {
            self.transport.get_submission_notifier(queue).notify().unwrap();
        }
    }

    /// Kicks, and waits for `count` answers: (context, result).
    pub(crate) fn answers(&mut self, queue: usize, count: usize) -> Vec<(usize, i32)> {
        self.kick(queue);
        let (mut found, call) = (Vec::new(), self.transport.get_completion_fd(queue));
        loop {
            found.extend(self.queues[queue].completions().map(|done| (done.context, done.ret)));
            if found.len() >= count {
                return found;
            }
            let mut ready = libc::pollfd { fd: call.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            let got = unsafe { libc::poll(&mut ready, 1, 20_000) };
            assert_eq!(got, 1, "no call in 20 s, {} of {count} answers", found.len());
            call.read().unwrap();
        }
    }

    pub(crate) fn write(&mut self, offset: u64, byte: u8, len: usize) -> i32 {
        self.submit(0, offset, 0, byte, len, 1);
        self.answers(0, 1)[0].1
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        let to = self.at(0, len);
        // SAFETY: as in `submit`.
        unsafe {
            to.write_bytes(0xee, len);
            self.queues[0].read_raw(offset, to, len, 1).unwrap();
        }
        match self.answers(0, 1)[0].1 {
            // SAFETY: as in `submit`; the device has answered.
            0 => Ok(unsafe { std::slice::from_raw_parts(to, len) }.to_vec()),
            error => Err(error),
        }
    }

    pub(crate) fn flush(&mut self) -> i32 {
        self.queues[0].flush(1).unwrap();
        self.answers(0, 1)[0].1
    }
}
