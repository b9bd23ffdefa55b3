//! The connection to the process that serves the cache, and what a fork does to it.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use fastness_pmem::counters::publish_with;
use fastness_pmem::{MsyncMode, OpenOptions, Region, SharedWords};
use fastness_responder::link::{Ask, Descriptors, Tell, ask, is_connected};
use fastness_responder::{Client, FileId};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, statx};

use crate::actions;
use crate::member::Member;
use crate::own;
use crate::real;
use crate::signals::{self, Calm};
use crate::table::{self, Entry};

/// Tells programs where to ask: the number of the mount, a colon, and the path of the socket.
const VARIABLE: &str = "FASTNESS_LEASES";
/// The folder in which to publish what this process writes to PM.
const COUNTERS: &str = "FASTNESS_COUNTERS";

/// A process that takes part in a cache. There is one at a time, and none of them ever goes: a thread may be
/// using it.
pub(crate) struct Process {
    pub(crate) member: Member,
    link: Mutex<UnixStream>,
    /// Descriptors of the connection.
    links: [i32; 2],
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// Forks between the program and this process, among those that used the cache.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Number of the mount; 0: there is none to ask for.
static DEVICE: AtomicU64 = AtomicU64::new(0);
/// Leaked: the path of the socket.
static PATH: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());
/// Leaked, or null.
static COUNTERS_FOLDER: AtomicPtr<PathBuf> = AtomicPtr::new(std::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
/// Files of the mount may be mapped into this process.
static HAS_MAPPINGS: AtomicBool = AtomicBool::new(false);
/// One thread connects.
static CONNECTING: AtomicU32 = AtomicU32::new(0);
/// One thread asks for the lease of a descriptor that came with the program.
static ASKING: AtomicU32 = AtomicU32::new(0);

/// Runs before the program.
extern "C" fn begin() {
    let Some((device, path)) = std::env::var(VARIABLE).ok().and_then(|told| {
        let (device, path) = told.split_once(':')?;
        Some((device.parse::<u64>().ok()?, path.to_owned()))
    }) else {
        return;
    };
    PID.store(std::process::id(), Ordering::Relaxed);
    PATH.store(Box::into_raw(Box::new(path)), Ordering::Release);
    if let Some(folder) = std::env::var_os(COUNTERS) {
        COUNTERS_FOLDER.store(Box::into_raw(Box::new(folder.into())), Ordering::Release);
        publish_with(counters_folder);
    }
    HAS_MAPPINGS.store(has_mappings(device), Ordering::Relaxed);
    note_inherited(device);
    // SAFETY: functions that stay where they are.
    unsafe { libc::pthread_atfork(None, None, Some(begin_in_child)) };
    DEVICE.store(device, Ordering::Release);
}

fn counters_folder() -> Option<PathBuf> {
    // SAFETY: it is leaked, or null.
    unsafe { COUNTERS_FOLDER.load(Ordering::Acquire).as_ref().cloned() }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Whether something of the mount is mapped already: the program itself, or its libraries.
fn has_mappings(device: u64) -> bool {
    let wanted = format!("{:02x}:{:02x}", rustix::fs::major(device), rustix::fs::minor(device));
    // If that cannot be read, the safe answer.
    std::fs::read_to_string("/proc/self/maps")
        .map_or(true, |maps| maps.lines().any(|line| line.split_whitespace().nth(3) == Some(wanted.as_str())))
}

/// Descriptors that the program has from whoever has started it. Most programs use few of them.
fn note_inherited(device: u64) {
    let Ok(found) = std::fs::read_dir("/proc/self/fd") else { return };
    for entry in found.flatten() {
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(fd) = fd.filter(|&fd| number(fd) == Some((device, FileType::RegularFile))) {
            table::add_inherited(fd);
        }
    }
}

extern "C" fn begin_in_child() {
    PID.store(std::process::id(), Ordering::Relaxed);
    CONNECTING.store(0, Ordering::Relaxed);
    ASKING.store(0, Ordering::Relaxed);
    table::begin_in_child();
    let parents = PROCESS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: processes are never freed.
    if let Some(parents) = unsafe { parents.as_ref() } {
        EPOCH.fetch_add(1, Ordering::Relaxed);
        // Ours of it: the server has to see it close when the parent ends.
        for link in parents.links {
            own::release(link);
            // SAFETY: nothing here uses it any more; its owner is leaked.
            unsafe { real::close(link) };
        }
    }
}

/// Whether this is the process whose tables these are: after `vfork` it is not.
pub(crate) fn is_ours() -> bool {
    PID.load(Ordering::Relaxed) == std::process::id()
}

/// Number of the mount; 0: there is none.
pub(crate) fn device() -> u64 {
    DEVICE.load(Ordering::Acquire)
}

/// Does something under the lock of all places, which no handler of this thread may meet.
pub(crate) fn calmly(act: impl FnOnce()) {
    let _calm = Calm::new();
    act();
}

/// Whether what a program hands over may be memory of the mount, which must not be touched under a lock.
pub(crate) fn has_mapped() -> bool {
    HAS_MAPPINGS.load(Ordering::Relaxed)
}

/// A file is about to be mapped: if it is one of the mount, the kernel has to know its length from now on.
pub(crate) fn mapping(fd: i32) {
    let device = DEVICE.load(Ordering::Acquire);
    if device == 0 || number(fd).is_some_and(|(of, _)| of != device) {
        return;
    }
    HAS_MAPPINGS.store(true, Ordering::Relaxed);
    // SAFETY: the number of a descriptor that the program has handed over; the kernel checks it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if is_ours() {
        let _calm = Calm::new();
        // If the server is gone, so is the mount.
        let _ = process().and_then(|process| process.ask(&Ask::Mount, Some(fd)));
    }
    let _ = learn_length(fd);
}

/// The kernel asks the server for the length of a file.
fn learn_length(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    statx(fd, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE).map(drop)
}

/// Device and type of an open file, as far as the kernel knows them by itself.
fn number(fd: i32) -> Option<(u64, FileType)> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the number of a descriptor that the program has handed over; the kernel checks it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(fd, "", flags, StatxFlags::TYPE).ok()?;
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    Some((device, FileType::from_raw_mode(found.stx_mode.into())))
}

/// The process, if it takes part already or can now.
#[inline]
pub(crate) fn process() -> Option<&'static Process> {
    // SAFETY: processes are never freed.
    let known = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    known.or_else(connect)
}

#[cold]
fn connect() -> Option<&'static Process> {
    if DEVICE.load(Ordering::Acquire) == 0 {
        return None;
    }
    while CONNECTING.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
    // SAFETY: as above.
    let mut process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    if process.is_none() {
        match join() {
            Some(joined) => {
                let joined = Box::leak(Box::new(joined));
                table::adopt(&joined.member);
                PROCESS.store(&raw mut *joined, Ordering::Release);
                process = Some(joined);
            }
            // Not again with every call.
            None => DEVICE.store(0, Ordering::Release),
        }
    }
    CONNECTING.store(0, Ordering::Release);
    process
}

fn join() -> Option<Process> {
    // SAFETY: it is leaked, or null.
    let path = unsafe { PATH.load(Ordering::Acquire).as_ref()? };
    let link = UnixStream::from(own::raise(UnixStream::connect(path).ok()?.into()));
    let (Tell::Welcome { me, device, is_emulated }, descriptors) = ask(&link, &Ask::Join, None).ok()? else {
        return None;
    };
    let [Some(region), Some(shared)] = descriptors else { return None };
    if device != DEVICE.load(Ordering::Acquire) {
        return None;
    }
    let mut options = OpenOptions::new();
    if is_emulated {
        options = options.msync(MsyncMode::Never);
    }
    let (region, shared) = (own::raise(region), own::raise(shared));
    let watched = own::raise(link.try_clone().ok()?.into());
    let ours = [region.as_raw_fd(), shared.as_raw_fd(), watched.as_raw_fd(), link.as_raw_fd()];
    let region = Region::join(region, &options).ok()?.into_range();
    let shared = SharedWords::join(shared.into()).ok()?;
    let links = [link.as_raw_fd(), watched.as_raw_fd()];
    let is_served = move || is_connected(&watched);
    let client = Client::join(region, shared, me, is_served).ok()?;
    signals::look_for_others(actions::is_unknown);
    // From here on none of them is dropped.
    ours.into_iter().for_each(own::protect);
    let epoch = EPOCH.load(Ordering::Relaxed);
    Some(Process { member: Member { client, epoch }, link: Mutex::new(link), links })
}

impl Process {
    fn ask(&self, what: &Ask, fd: Option<BorrowedFd<'_>>) -> Option<(Tell, Descriptors)> {
        let link = self.link.lock().ok()?;
        ask(&link, what, fd).ok()
    }

    /// Asks for room for a write; the error number if that fails, 0 if it has to go through the mount.
    pub(crate) fn make_room(&self, file: FileId, offset: u64, len: u64) -> Result<(), i32> {
        match self.ask(&Ask::Room { file, offset, len }, None) {
            Some((Tell::Yes, _)) => Ok(()),
            Some((Tell::Failed(errno), _)) => Err(errno),
            _ => Err(0),
        }
    }
}

/// A program has opened a file: if it is one of the mount, asks for a lease.
pub(crate) fn opened(fd: i32) {
    if device() == 0 || fd < 0 {
        return;
    }
    table::forget(fd);
    ask_lease(fd);
}

/// What is known of a descriptor that the program uses. If it came with the program, asks for a lease, once.
#[inline]
pub(crate) fn find(fd: i32) -> Option<Entry> {
    let found = table::find(fd);
    if found.is_none() && table::is_inherited(fd) {
        return find_inherited(fd);
    }
    found
}

#[cold]
fn find_inherited(fd: i32) -> Option<Entry> {
    if !is_ours() {
        return None;
    }
    let _calm = Calm::new();
    // Other threads that use it go on with what the first one gets.
    while ASKING.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
    if table::is_inherited(fd) {
        ask_lease(fd);
    }
    if table::is_inherited(fd) {
        table::forget(fd);
    }
    ASKING.store(0, Ordering::Release);
    table::find(fd)
}

/// Asks for a lease, if it is a file of the mount.
fn ask_lease(fd: i32) {
    if number(fd) == Some((device(), FileType::RegularFile)) && is_ours() {
        let _calm = Calm::new();
        let _ = attach(fd);
    }
}

fn attach(fd: i32) -> Option<()> {
    // SAFETY: the program has just opened it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = fcntl_getfl(borrowed).ok()?;
    // The kernel would stop a file at the limit of this process, and signal it.
    let limit = limit_of_files();
    if flags.contains(OFlags::PATH) || limit != libc::RLIM_INFINITY {
        return None;
    }
    let process = process()?;
    let (Tell::Lease(lease), [Some(backing), _]) = process.ask(&Ask::Lease, Some(borrowed))? else {
        return None;
    };
    // What the kernel remembers of its length ends here.
    learn_length(borrowed).ok()?;
    let access = flags & OFlags::RWMODE;
    let mut may = 0;
    if access != OFlags::WRONLY {
        may |= table::READS;
    }
    if access != OFlags::RDONLY {
        may |= table::WRITES;
    }
    if flags.contains(OFlags::APPEND) {
        may |= table::APPENDS;
    }
    table::add(fd, may, &process.member, &lease, backing);
    Some(())
}

fn limit_of_files() -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure of ours; if it fails, the limit is 0.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}
