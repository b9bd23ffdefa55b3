//! Handlers of signals are installed: ours is, in their place.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{SIG_DFL, SIG_ERR, sigaction as Action, sighandler_t};

use crate::actions::{self, as_set};
use crate::real;
use crate::signals::{self, waits};

/// Signals that end system calls, as the program has demanded (`siginterrupt`).
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
/// `sigset`: it is held back.
const SIG_HOLD: sighandler_t = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the program's call.
    unsafe { actions::act(signal, new, old) }
}

/// # Safety
/// As of `sigaction`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the program's call.
    unsafe { actions::act(signal, new, old) }
}

/// Installs a handler; returns the one of before.
fn install(signal: c_int, handler: sighandler_t, flags: c_int, mask: u64) -> sighandler_t {
    let new = Action { sa_sigaction: handler, sa_mask: as_set(mask), sa_flags: flags, sa_restorer: None };
    let mut old = Action { sa_sigaction: SIG_ERR, sa_mask: as_set(0), sa_flags: 0, sa_restorer: None };
    // SAFETY: structures of ours.
    let done = unsafe { actions::act(signal, &raw const new, &raw mut old) };
    if done == 0 { old.sa_sigaction } else { SIG_ERR }
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

macro_rules! signals {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
                if !waits(signal) || handler == SIG_ERR {
                    // SAFETY: the program's call.
                    return unsafe { real::signal(signal, handler) };
                }
                let interrupts = INTERRUPTS.load(Ordering::Relaxed) & bit(signal) != 0;
                install(signal, handler, if interrupts { 0 } else { libc::SA_RESTART }, bit(signal))
            }
        )*
    };
}

signals! { signal bsd_signal ssignal }

macro_rules! signals_of_system_v {
    ($($name:ident)*) => {
        $(
            /// # Safety
            /// As of `signal`.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
                if !waits(signal) || handler == SIG_ERR {
                    // SAFETY: the program's call.
                    return unsafe { real::__sysv_signal(signal, handler) };
                }
                install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0)
            }
        )*
    };
}

signals_of_system_v! { __sysv_signal sysv_signal }

#[unsafe(no_mangle)]
unsafe extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if !waits(signal) || handler == SIG_ERR {
        // SAFETY: the program's call.
        return unsafe { real::sigset(signal, handler) };
    }
    let mut held_back = 0;
    let installed = match handler {
        SIG_HOLD => {
            signals::change(libc::SIG_BLOCK, bit(signal), &raw mut held_back);
            let mut old =
                Action { sa_sigaction: SIG_DFL, sa_mask: as_set(0), sa_flags: 0, sa_restorer: None };
            // SAFETY: a structure of ours.
            let done = unsafe { actions::act(signal, std::ptr::null(), &raw mut old) };
            if done == 0 { old.sa_sigaction } else { SIG_ERR }
        }
        handler => {
            let installed = install(signal, handler, 0, 0);
            if installed != SIG_ERR {
                signals::change(libc::SIG_UNBLOCK, bit(signal), &raw mut held_back);
            }
            installed
        }
    };
    if installed != SIG_ERR && held_back & bit(signal) != 0 { SIG_HOLD } else { installed }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: the program's call. It changes a flag of what the kernel has.
    let done = unsafe { real::siginterrupt(signal, interrupts) };
    if done == 0 && waits(signal) {
        match interrupts {
            0 => INTERRUPTS.fetch_and(!bit(signal), Ordering::Relaxed),
            _ => INTERRUPTS.fetch_or(bit(signal), Ordering::Relaxed),
        };
    }
    done
}

/// A thread that can be cancelled at any moment would keep what it has locked.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int {
    const ASYNCHRONOUS: c_int = 1;
    if kind == ASYNCHRONOUS {
        signals::set_cancellable(true);
    }
    // SAFETY: the program's call.
    let done = unsafe { real::pthread_setcanceltype(kind, before) };
    if done == 0 && kind != ASYNCHRONOUS {
        signals::set_cancellable(false);
    }
    done
}
