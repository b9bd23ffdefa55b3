//! Handlers of signals, which wait while their thread is in PM, and are otherwise those that the program has
//! installed.

use std::fs::{self, File};
use std::io::Write;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use libc::{c_int, c_void, siginfo_t};

use super::is_leased;
use crate::{bench, passes, root};

static LOG: AtomicI32 = AtomicI32::new(-1);
static SUM: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static MASK: AtomicU64 = AtomicU64::new(0);

fn log_of(root: &Path, name: &str) -> File {
    let log = fs::OpenOptions::new().create(true).append(true).open(root.join(name)).unwrap();
    assert!(is_leased(&log));
    LOG.store(log.as_raw_fd(), Ordering::Relaxed);
    log
}

/// Writes to the file that the program is writing to.
extern "C" fn note(_: c_int, information: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: a descriptor that stays open, and what the kernel gives to handlers.
    unsafe {
        libc::write(LOG.load(Ordering::Relaxed), b"s".as_ptr().cast(), 1);
        SUM.fetch_add((*information).si_value().sival_ptr as u64, Ordering::Relaxed);
    }
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// Notes which signals are held back in a handler.
extern "C" fn look(_: c_int) {
    // SAFETY: a set of this function.
    let held_back = unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, null(), &raw mut set);
        (1..=64)
            .filter(|&signal| libc::sigismember(&raw const set, signal) == 1)
            .fold(0, |sum, signal| sum | 1_u64 << (signal - 1))
    };
    MASK.store(held_back, Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::Relaxed);
}

fn action(handler: usize, flags: c_int, held_back: &[c_int]) -> libc::sigaction {
    // SAFETY: numbers, all of which may be 0.
    let mut action: libc::sigaction = unsafe { zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    for &signal in held_back {
        // SAFETY: a set of ours.
        unsafe { libc::sigaddset(&raw mut action.sa_mask, signal) };
    }
    action
}

fn install(signal: c_int, new: &libc::sigaction) -> libc::sigaction {
    let mut old = action(0, 0, &[]);
    // SAFETY: structures of this function, handlers of this file.
    unsafe { assert_eq!(libc::sigaction(signal, new, &raw mut old), 0) };
    old
}

fn installed(signal: c_int) -> libc::sigaction {
    let mut old = action(0, 0, &[]);
    // SAFETY: a structure of this function.
    unsafe { assert_eq!(libc::sigaction(signal, null(), &raw mut old), 0) };
    old
}

/// Another thread sends signals, by `send`, for as long as this one writes.
fn written_under_signals(
    log: &File,
    rounds: usize,
    send: impl Fn(libc::pthread_t, u64) -> bool + Sync,
) -> u64 {
    let is_done = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // SAFETY: this thread, which outlives the other one.
        let writer = unsafe { libc::pthread_self() };
        let (is_done, sent, send) = (&is_done, &sent, &send);
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                if send(writer, sent.load(Ordering::Relaxed) + 1) {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        });
        let mut log = log;
        for _ in 0..rounds {
            log.write_all(&[b'm'; 300]).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    sent.into_inner()
}

/// No write of the program has one of a handler inside, and none is missing.
fn check(path: &Path, rounds: usize) {
    let found = fs::read(path).unwrap();
    assert_eq!(found.iter().filter(|&&byte| byte == b'm').count(), rounds * 300);
    assert!(found.split(|&byte| byte == b's').all(|run| run.len() % 300 == 0));
    assert_eq!(found.len() as u64 - rounds as u64 * 300, CALLS.load(Ordering::Relaxed));
}

#[test]
fn handlers_are_those_of_the_program_and_get_every_signal() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::handlers::program_with_handlers");
}

#[test]
fn program_with_handlers() {
    let Some(root) = root() else { return };
    // Queued signals: each comes, with its value.
    let log = log_of(&root, "queued");
    let real_time = libc::SIGRTMIN() + 3;
    let handler = note as *const () as usize;
    install(real_time, &action(handler, libc::SA_SIGINFO | libc::SA_RESTART, &[]));
    let send = |to: libc::pthread_t, number: u64| {
        let value = libc::sigval { sival_ptr: number as *mut c_void };
        // SAFETY: a thread that runs.
        unsafe { pthread_sigqueue(to, real_time, value) == 0 }
    };
    let sent = written_under_signals(&log, 20_000, send);
    assert!(sent > 100, "{sent}");
    assert_eq!((CALLS.load(Ordering::Relaxed), SUM.load(Ordering::Relaxed)), (sent, sent * (sent + 1) / 2));
    check(&root.join("queued"), 20_000);
    assert!(is_leased(&log));
    actions();
}

unsafe extern "C" {
    fn pthread_sigqueue(thread: libc::pthread_t, signal: c_int, value: libc::sigval) -> c_int;
}

fn raise(signal: c_int) -> u64 {
    let before = CALLS.load(Ordering::Relaxed);
    // SAFETY: to this thread, which has a handler.
    unsafe { libc::raise(signal) };
    CALLS.load(Ordering::Relaxed) - before
}

/// What a program finds out about its handlers.
fn actions() {
    let (look, default) = (look as *const () as usize, libc::SIG_DFL);
    let bit = |signal: c_int| 1_u64 << (signal - 1);
    let flags = libc::SA_RESTART | libc::SA_RESETHAND;
    assert_eq!(install(libc::SIGUSR1, &action(look, flags, &[libc::SIGUSR2])).sa_sigaction, default);
    let found = installed(libc::SIGUSR1);
    // SAFETY: a set that was filled.
    let holds = |signal: c_int| unsafe { libc::sigismember(&raw const found.sa_mask, signal) == 1 };
    assert_eq!((found.sa_sigaction, found.sa_flags & flags), (look, flags));
    assert_eq!(found.sa_flags & (libc::SA_SIGINFO | libc::SA_NODEFER), 0);
    assert!(holds(libc::SIGUSR2) && !holds(libc::SIGTERM));
    assert_eq!(raise(libc::SIGUSR1), 1);
    assert_eq!(MASK.load(Ordering::Relaxed), bit(libc::SIGUSR1) | bit(libc::SIGUSR2));
    assert_eq!(installed(libc::SIGUSR1).sa_sigaction, default, "once");
    install(libc::SIGUSR1, &action(look, libc::SA_NODEFER, &[]));
    assert_eq!(raise(libc::SIGUSR1), 1);
    assert_eq!((MASK.load(Ordering::Relaxed), installed(libc::SIGUSR1).sa_sigaction), (0, look));
    // Not one of the program's: it is the kernel's alone.
    assert_eq!(install(libc::SIGUSR1, &action(libc::SIG_IGN, 0, &[])).sa_sigaction, look);
    assert_eq!((raise(libc::SIGUSR1), installed(libc::SIGUSR1).sa_sigaction), (0, libc::SIG_IGN));
    // SAFETY: a handler of this file.
    unsafe {
        assert_eq!(libc::signal(libc::SIGUSR1, look), libc::SIG_IGN);
        assert_eq!(libc::signal(libc::SIGUSR1, look), look);
    }
    assert_eq!(installed(libc::SIGUSR1).sa_flags & libc::SA_RESTART, libc::SA_RESTART);
    assert_eq!((raise(libc::SIGUSR1), MASK.load(Ordering::Relaxed)), (1, bit(libc::SIGUSR1)));
    // SAFETY: no signal has that number.
    unsafe { assert_eq!(libc::signal(0, look), libc::SIG_ERR) };
}

#[test]
fn handlers_that_the_library_does_not_see_wait_as_well() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::handlers::program_with_a_handler_of_its_own");
}

#[test]
fn program_with_a_handler_of_its_own() {
    let Some(root) = root() else { return };
    #[repr(C)]
    struct KernelsAction {
        handler: usize,
        flags: u64,
        restorer: usize,
        mask: u64,
    }
    let change = |new: *const KernelsAction, old: *mut KernelsAction| {
        // SAFETY: the kernel's structure; its set has 8 bytes.
        unsafe { assert_eq!(libc::syscall(libc::SYS_rt_sigaction, libc::SIGALRM, new, old, 8), 0) };
    };
    // What a handler returns to is the C library's; all else goes past it.
    let handler = note as *const () as usize;
    install(libc::SIGALRM, &action(handler, libc::SA_SIGINFO | libc::SA_RESTART, &[]));
    let mut own = KernelsAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    change(null(), &raw mut own);
    own.handler = handler;
    own.mask = 0;
    change(&raw const own, null_mut());
    // The first file with a lease comes after that.
    let log = log_of(&root, "own");
    // SAFETY: a thread that runs.
    let send = |to: libc::pthread_t, _| unsafe { libc::pthread_kill(to, libc::SIGALRM) == 0 };
    written_under_signals(&log, 5000, send);
    assert!(CALLS.load(Ordering::Relaxed) > 10);
    check(&root.join("own"), 5000);
}
