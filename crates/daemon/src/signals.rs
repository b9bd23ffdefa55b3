//! Signals that end a process in order.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::StartError;

/// A signal that comes this soon after the first one is the same one: a terminal and a parent both send it.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Calls `end` on SIGINT, SIGTERM and, unless it is ignored, SIGHUP. Another one, a second later, ends the
/// process at once, as a crash would.
///
/// # Errors
/// The handlers cannot be installed.
pub fn on_signals(end: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    let system = |source| StartError::System { what: "handle signals", source };
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let all = [SIGINT, SIGTERM].into_iter().chain(hangup);
    let mut signals = signal_hook::iterator::Signals::new(all).map_err(system)?;
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let (mut end, mut first) = (Some(end), None);
        for signal in signals.forever() {
            if let Some(end) = end.take() {
                first = Some(Instant::now());
                end();
            } else if first.is_some_and(|first: Instant| first.elapsed() >= SAME_SIGNAL) {
                signal_hook::low_level::exit(128 + signal);
            }
        }
    });
    thread.map_err(system)?;
    Ok(())
}

/// Whether this process was started with a signal ignored, as `nohup` does it.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set & 1 << (signal - 1) != 0)
}
