//! The plug-in's messages, and how it gives up.

use std::fmt::{Arguments, Display};
use std::io::Write;

/// QEMU's exit code when the tracer cannot do its work.
pub(crate) const EXIT_CODE: i32 = 125;

/// A line on standard error.
pub(crate) fn say(text: Arguments<'_>) {
    // There is no place left to report that standard error does not work.
    let _ = writeln!(std::io::stderr(), "fastness tracer: {text}");
}

/// Reports why the trace is incomplete, and ends QEMU at once: no part of the guest runs untraced.
pub(crate) fn fail(text: Arguments<'_>) -> ! {
    say(text);
    end()
}

/// Ends QEMU with [`EXIT_CODE`]; what was recorded so far is cut off, and readers of the trace say so.
#[allow(unsafe_code)]
pub(crate) fn end() -> ! {
    // SAFETY: it takes a number and does not return. Handlers of `exit` would call this plug-in again.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// The value, or the end.
pub(crate) fn or_fail<T, E: Display>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|error| fail(format_args!("{what}: {error}")))
}
