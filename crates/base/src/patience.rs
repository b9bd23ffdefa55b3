//! What another process lets go of in a moment.

use std::time::{Duration, Instant};

use crate::{ErrorKind, HasKind};

/// Time between two attempts.
pub const PAUSE: Duration = Duration::from_millis(50);

/// Whether another process has what was asked for, or a later attempt may succeed for another reason.
pub fn is_busy<T, E: HasKind>(result: &Result<T, E>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Retry)
}

/// Retries `attempt` while its result is busy (another process has what it needs), for at most `patience`.
pub fn patiently<T>(patience: Duration, mut attempt: impl FnMut() -> T, is_busy: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let result = attempt();
        if !is_busy(&result) || begun.elapsed() >= patience {
            return result;
        }
        std::thread::sleep(PAUSE);
    }
}
