//! The handlers that the program has installed: what ours calls in their place.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use libc::{sigaction as Action, siginfo_t, ucontext_t};

use crate::real;
use crate::signals::{self, Calm, waits};

const SIGNALS: usize = 65;

/// A handler with what the kernel would do for it.
struct Handler {
    /// Odd while the rest changes.
    version: AtomicU32,
    function: AtomicUsize,
    flags: AtomicU32,
    mask: AtomicU64,
}

/// Of each signal; it counts as long as the kernel has ours.
static HANDLERS: [Handler; SIGNALS] = [const {
    Handler {
        version: AtomicU32::new(0),
        function: AtomicUsize::new(0),
        flags: AtomicU32::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

/// What only ours has of a handler.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Own {
    function: usize,
    flags: c_int,
    mask: u64,
}

/// Flags that the kernel does not get: it calls ours.
const OWN_FLAGS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER;

fn ours() -> usize {
    handle as *const () as usize
}

impl Handler {
    fn get(&self) -> Own {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let own = Own {
                function: self.function.load(Ordering::Relaxed),
                flags: self.flags.load(Ordering::Relaxed) as c_int,
                mask: self.mask.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if version & 1 == 0 && self.version.load(Ordering::Relaxed) == version {
                return own;
            }
            std::hint::spin_loop();
        }
    }

    /// Nothing of this thread reads it meanwhile: the caller is calm.
    fn set(&self, own: Own) -> Own {
        loop {
            let version = self.version.load(Ordering::Relaxed);
            let taken =
                || self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed);
            if version & 1 == 0 && taken().is_ok() {
                fence(Ordering::Release);
                let before = Own {
                    function: self.function.swap(own.function, Ordering::Relaxed),
                    flags: self.flags.swap(own.flags as u32, Ordering::Relaxed) as c_int,
                    mask: self.mask.swap(own.mask, Ordering::Relaxed),
                };
                self.version.store(version.wrapping_add(2), Ordering::Release);
                return before;
            }
            std::hint::spin_loop();
        }
    }
}

fn handler(signal: c_int) -> Option<&'static Handler> {
    HANDLERS.get(usize::try_from(signal).ok()?).filter(|_| waits(signal))
}

/// The C library's set has more bits than the kernel's.
fn mask_of(set: &libc::sigset_t) -> u64 {
    // SAFETY: it begins with the kernel's, 64 bits.
    unsafe { (&raw const *set).cast::<u64>().read_unaligned() }
}

pub(crate) fn as_set(mask: u64) -> libc::sigset_t {
    // SAFETY: a set of bits, of which any may be 0.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as in `mask_of`.
    unsafe { (&raw mut set).cast::<u64>().write_unaligned(mask) };
    set
}

/// The action of a signal as the program has set it, by what the kernel says and by what ours had before.
fn as_set_by_program(mut action: Action, own: Own) -> Action {
    if action.sa_sigaction == ours() {
        action.sa_sigaction = own.function;
        action.sa_flags = action.sa_flags & !OWN_FLAGS | own.flags;
        action.sa_mask = as_set(own.mask);
    }
    action
}

/// As the C library's `sigaction`.
///
/// # Safety
/// As of that.
pub(crate) unsafe fn act(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let Some(handler) = handler(signal) else {
        // SAFETY: the caller's.
        return unsafe { real::sigaction(signal, new, old) };
    };
    // SAFETY: the caller's.
    let new = unsafe { new.as_ref() }.copied();
    let has_function = |new: &Action| ![libc::SIG_DFL, libc::SIG_IGN, ours()].contains(&new.sa_sigaction);
    let mut found = MaybeUninit::<Action>::zeroed();
    let mut own = None;
    let calm = Calm::new();
    let before = match new.filter(has_function) {
        Some(new) => {
            own = Some(Own {
                function: new.sa_sigaction,
                flags: new.sa_flags & OWN_FLAGS,
                mask: mask_of(&new.sa_mask),
            });
            handler.set(own.expect("it was made just now"))
        }
        None => handler.get(),
    };
    let to_kernel = new.map(|new| match own {
        Some(_) => Action {
            sa_sigaction: ours(),
            sa_flags: new.sa_flags & !OWN_FLAGS | libc::SA_SIGINFO,
            sa_mask: as_set(signals::HELD_BACK),
            ..new
        },
        None => new,
    });
    let new = to_kernel.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: structures of ours.
    let done = unsafe { real::sigaction(signal, new, found.as_mut_ptr()) };
    if done != 0 && own.is_some() {
        handler.set(before);
    }
    drop(calm);
    if done == 0 && !old.is_null() {
        // SAFETY: it was filled; the caller's.
        unsafe { old.write(as_set_by_program(found.assume_init(), before)) };
    }
    done
}

/// The handler of all signals that a program has handlers for; the kernel holds all others back meanwhile.
///
/// # Safety
/// The kernel's call.
unsafe extern "C-unwind" fn handle(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    let context = context.cast::<ucontext_t>();
    // SAFETY: the kernel's call.
    unsafe {
        if !signals::puts_off(signal, information, context, run) {
            run(signal, information, context);
        }
    }
}

/// Runs the program's handler of a signal, as the kernel would.
///
/// # Safety
/// `information` and `context` are what the kernel gives to handlers.
unsafe fn run(signal: c_int, information: *mut siginfo_t, context: *mut ucontext_t) {
    let Some(handler) = handler(signal) else { return };
    let own = handler.get();
    if own.flags & libc::SA_RESETHAND != 0 {
        let default =
            Action { sa_sigaction: libc::SIG_DFL, sa_mask: as_set(0), sa_flags: 0, sa_restorer: None };
        // SAFETY: a structure of ours; it is allowed in handlers, and was found when this one was installed.
        unsafe { real::sigaction(signal, &raw const default, std::ptr::null_mut()) };
    }
    // SAFETY: the kernel's structure, which begins like that.
    let interrupted = unsafe { mask_of(&(*context).uc_sigmask) };
    let itself = if own.flags & libc::SA_NODEFER == 0 { 1 << (signal - 1) } else { 0 };
    // SAFETY: set by the program for this signal. Without SA_SIGINFO it ignores all but the first argument.
    let function = unsafe {
        std::mem::transmute::<usize, unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut ucontext_t)>(
            own.function,
        )
    };
    signals::change(libc::SIG_SETMASK, interrupted | own.mask | itself, std::ptr::null_mut());
    // SAFETY: as above.
    unsafe { function(signal, information, context) };
}

/// Whether a signal has a handler that ours does not call.
pub(crate) fn is_unknown(signal: c_int) -> bool {
    let mut found = MaybeUninit::<Action>::zeroed();
    // SAFETY: a structure of ours.
    let done = unsafe { real::sigaction(signal, std::ptr::null(), found.as_mut_ptr()) };
    // SAFETY: zeroes at least.
    let function = unsafe { found.assume_init() }.sa_sigaction;
    done == 0 && ![libc::SIG_DFL, libc::SIG_IGN, ours()].contains(&function)
}
