//! The guest's clock: a test begins at one fixed instant, and each recovery at another, years later.
//!
//! Motivation: a recovery may write the time of day into what it recovers. If its clock went on from where a
//! guest happened to be, two recoveries of one image would leave different states, and an operation would
//! seem not to be atomic. So what a recovery's clock has written is known by its value, and
//! [`dump`](mod@crate::dump) prints it as one word.
//!
//! Both instants are before 2038, where times of 32 bits end.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// 2020-01-01 00:00:00 UTC, in seconds since 1970: when a test begins.
pub const TEST_BEGIN_S: i64 = 1_577_836_800;
/// 2037-01-01 00:00:00 UTC, in seconds since 1970: when a recovery begins.
pub const RECOVERY_BEGIN_S: i64 = 2_114_380_800;
/// A test begins at a multiple of this, of the time since the guest has booted.
const STEP_MS: u64 = 100;
/// More than a recovery can take. Times after that were not written by one: a damaged file system may show
/// any.
const RECOVERY_MAX_S: i64 = 86_400;

/// Whether a clock that was set for a recovery has written this time.
pub fn is_of_recovery(seconds: i64) -> bool {
    (RECOVERY_BEGIN_S..RECOVERY_BEGIN_S + RECOVERY_MAX_S).contains(&seconds)
}

/// Begins a test: waits for the next tenth of a second since the guest has booted, and sets the clock. A
/// restored guest has its first command sooner or later; where time is instructions, the timer's ticks come
/// at the same instructions of each run from here on.
///
/// # Errors
/// Those of [`set`].
pub fn begin_test() -> io::Result<()> {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(tv_sec as u64, tv_nsec as u32);
    let next = Duration::from_millis((now.as_millis() as u64 / STEP_MS + 1) * STEP_MS);
    sleep(next - now);
    set(TEST_BEGIN_S)
}

/// Sets the clock of the machine, in seconds since 1970.
///
/// # Errors
/// This is not a guest: the first process of one sets `FASTNESS_GUEST`. Those of the system call.
pub fn set(seconds: i64) -> io::Result<()> {
    if std::env::var_os("FASTNESS_GUEST").is_none() {
        return Err(io::Error::other(
            "the clock is set only in a guest of the crash tester (FASTNESS_GUEST is not set)",
        ));
    }
    Ok(clock_settime(ClockId::Realtime, Timespec { tv_sec: seconds, tv_nsec: 0 })?)
}
