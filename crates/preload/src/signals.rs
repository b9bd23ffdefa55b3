//! Handlers of signals wait while their thread is in PM.
//!
//! A handler may write to a file, and would wait for a lock that its own thread holds. To hold all signals
//! back would be two system calls for each call of the program, so the handlers that a program installs are
//! called by ours, which looks first whether its thread is in PM. If it is, our handler holds everything back
//! from then on, sends the signal to the thread again, with all that came with it, and returns; what the
//! thread does when it leaves PM, lets the signal in. Signals whose action is the default one, or that are
//! ignored, are the kernel's alone. Faults are not held back: the handler of `pmem` answers those of a region
//! that goes away.
//!
//! A handler that was not installed by the C library's functions is found when the process connects: from
//! then on signals are held back for each call. So they are in a thread that can be cancelled at any moment,
//! which is a signal that the C library keeps to itself.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use libc::{siginfo_t, ucontext_t};

/// Bytes of the kernel's set of signals.
const SET_BYTES: usize = 8;

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Those that an instruction or a system call of the thread itself causes.
const FAULTS: [i32; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

pub(crate) const HELD_BACK: u64 = {
    let (mut set, mut at) = (u64::MAX, 0);
    while at < FAULTS.len() {
        set &= !bit(FAULTS[at]);
        at += 1;
    }
    set
};

/// Whether handlers of a signal wait.
pub(crate) fn waits(signal: c_int) -> bool {
    (1..=64).contains(&signal) && HELD_BACK & bit(signal) != 0
}

/// A handler was installed that ours does not call.
static HAS_OTHERS: AtomicBool = AtomicBool::new(false);

/// Runs the program's handler of a signal.
pub(crate) type Run = unsafe fn(c_int, *mut siginfo_t, *mut ucontext_t);

/// What a thread is doing, and what came meanwhile.
struct Thread {
    /// Calls in PM: one, or one inside of another.
    depth: Cell<u32>,
    /// A signal was put off, and all are held back.
    has_put_off: Cell<bool>,
    /// The signals that were held back before that.
    before: Cell<u64>,
    /// The signal could not be sent again.
    kept: Cell<Option<(siginfo_t, Run)>>,
    /// It can be cancelled at any moment.
    is_cancellable: Cell<bool>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            depth: Cell::new(0),
            has_put_off: Cell::new(false),
            before: Cell::new(0),
            kept: Cell::new(None),
            is_cancellable: Cell::new(false),
        }
    };
}

/// No handler of a signal runs in this thread until this is dropped.
pub(crate) struct Calm {
    thread: *const Thread,
    /// What was held back before, if everything is now.
    before: Option<u64>,
}

impl Calm {
    #[inline]
    pub(crate) fn new() -> Calm {
        THREAD.with(|thread| {
            let must_hold_back = HAS_OTHERS.load(Ordering::Relaxed) || thread.is_cancellable.get();
            let before = must_hold_back.then(|| {
                let mut before = 0;
                change(libc::SIG_BLOCK, HELD_BACK, &raw mut before);
                before
            });
            thread.depth.set(thread.depth.get() + 1);
            compiler_fence(Ordering::SeqCst);
            Calm { thread, before }
        })
    }
}

impl Drop for Calm {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: of this thread, which made it: nothing hands it to another one.
        let thread = unsafe { &*self.thread };
        compiler_fence(Ordering::SeqCst);
        thread.depth.set(thread.depth.get() - 1);
        compiler_fence(Ordering::SeqCst);
        if thread.has_put_off.get() && thread.depth.get() == 0 {
            let_in(thread);
        }
        if let Some(before) = self.before {
            change(libc::SIG_SETMASK, before, null_mut());
        }
    }
}

/// Lets in what was put off.
#[cold]
fn let_in(thread: &Thread) {
    // Everything is held back still.
    thread.has_put_off.set(false);
    let kept = thread.kept.take();
    change(libc::SIG_SETMASK, thread.before.get(), null_mut());
    if let Some((mut information, run)) = kept {
        // There is no place where it has interrupted the program.
        let mut context = MaybeUninit::<ucontext_t>::zeroed();
        // SAFETY: both are of the types that handlers get.
        unsafe { run(information.si_signo, &raw mut information, context.as_mut_ptr()) };
    }
}

/// Puts a signal off if this thread is in PM; `run` is what it is for.
///
/// # Safety
/// The others are what the kernel gives to handlers.
pub(crate) unsafe fn puts_off(
    signal: c_int,
    information: *mut siginfo_t,
    context: *mut ucontext_t,
    run: Run,
) -> bool {
    THREAD.with(|thread| {
        if thread.depth.get() == 0 {
            return false;
        }
        // SAFETY: the kernel's; on return it takes the set of signals that are held back from there.
        let mask = unsafe { (&raw mut (*context).uc_sigmask).cast::<u64>() };
        // SAFETY: as above; the kernel's set has as many bits.
        let before = unsafe { mask.read_unaligned() };
        thread.has_put_off.set(true);
        thread.before.set(before);
        // SAFETY: as above.
        unsafe { mask.write_unaligned(before | HELD_BACK) };
        // SAFETY: to this thread, with what the kernel has said.
        let sent = unsafe {
            let (process, number) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, number, signal, information)
        };
        if sent != 0 {
            // SAFETY: the kernel's.
            thread.kept.set(Some((unsafe { *information }, run)));
        }
        true
    })
}

/// A handler that ours does not call may be there.
pub(crate) fn look_for_others(is_unknown: impl Fn(c_int) -> bool) {
    if (1..=64).any(|signal| waits(signal) && is_unknown(signal)) {
        HAS_OTHERS.store(true, Ordering::Relaxed);
    }
}

/// Whether this thread can be cancelled at any moment, from now on.
pub(crate) fn set_cancellable(is_cancellable: bool) {
    THREAD.with(|thread| thread.is_cancellable.set(is_cancellable));
}

/// Changes which signals are held back, as a system call.
pub(crate) fn change(how: i32, set: u64, before: *mut u64) {
    // SAFETY: both sets have the length that is given. The call fails only for arguments that it does not
    // know.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, before, SET_BYTES) };
}
