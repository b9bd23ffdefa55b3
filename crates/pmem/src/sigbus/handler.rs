//! The `SIGBUS` handler, and the one that was installed before it.

use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};

#[cfg(target_arch = "x86_64")]
use super::checked_x86;
use super::fault::{BUS_MCEERR_AO, Fault};
use super::watch;

/// Installs the handler, once in a process.
///
/// A library that installs its own handler later without calling ours takes the protection away.
pub(crate) fn prepare() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(install);
}

/// What was installed before us.
static PREVIOUS: OnceLock<Previous> = OnceLock::new();

struct Previous(libc::sigaction);

// SAFETY: a `sigaction` is plain data: an address, flags and a mask.
unsafe impl Send for Previous {}
// SAFETY: as above; it is never changed after it was set.
unsafe impl Sync for Previous {}

fn install() {
    // SAFETY: all-zero is a valid `sigaction` to be overwritten; the handler has the signature that
    // SA_SIGINFO demands, and calls nothing that is not async-signal-safe. The previous action is stored
    // before ours can run. Its mask and the flags that concern interrupted code are kept, so that a chained
    // handler runs under the conditions that it asked for.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return;
        }
        let mut ours = previous;
        ours.sa_sigaction = on_sigbus as *const () as usize;
        ours.sa_flags =
            libc::SA_SIGINFO | libc::SA_ONSTACK | (previous.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
        let _ = PREVIOUS.set(Previous(previous));
        libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut());
    }
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers to a handler installed with SA_SIGINFO; nothing else uses
    // them.
    unsafe {
        let is_ours = Fault::of(&*info).is_some_and(|fault| survives(&fault, context));
        if !is_ours {
            chain(signal, info, context);
        }
    }
}

/// Whether the interrupted code can go on.
///
/// # Safety
/// `context` is that of the handler.
unsafe fn survives(fault: &Fault, context: *mut c_void) -> bool {
    if fault.code == BUS_MCEERR_AO {
        // No instruction of ours has met it; the one that does is told.
        return watch::knows(fault.address);
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the context of a handler with SA_SIGINFO is a `ucontext_t`, which nothing else uses.
    if unsafe { checked_x86::recover(fault, &mut *context.cast::<libc::ucontext_t>()) } {
        return true;
    }
    let _ = context;
    watch::take_over(fault)
}

/// Does what would have happened without us.
///
/// # Safety
/// Called from the handler, with its arguments.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: a non-default, non-ignore action is a function with the signature that its flags say;
    // `sigaction` and `raise` are async-signal-safe.
    unsafe {
        let by_fault = (*info).si_code > 0;
        let previous = PREVIOUS.get().map(|previous| &previous.0);
        let action = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
        match action {
            libc::SIG_IGN if !by_fault => {}
            // The kernel does not let a process ignore a fault either.
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                if !by_fault {
                    libc::raise(signal);
                }
                // A fault happens again when the handler returns.
            }
            handler if previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0) => {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
