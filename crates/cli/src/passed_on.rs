//! Signals that are for a program which this one has started.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_sync::{Mutex, lock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::error::{Context, Result};

/// Could not be started; as shells say it.
pub(crate) const NOT_STARTED: u8 = 127;

/// A program gets the signals that come to this process, until this is dropped.
pub(crate) struct PassedOn {
    program: Arc<Mutex<Program>>,
    has_ended: Arc<AtomicBool>,
    handle: Handle,
}

/// The program that gets signals.
#[derive(Default)]
struct Program {
    itself: Option<OwnedFd>,
    /// What came before that was known.
    early: Vec<i32>,
}

impl Program {
    fn tell(&mut self, signal: i32) {
        match &self.itself {
            Some(program) => pass_on(signal, program),
            None => self.early.push(signal),
        }
    }

    fn begin(&mut self, itself: OwnedFd) {
        self.early.drain(..).for_each(|signal| pass_on(signal, &itself));
        self.itself = Some(itself);
    }
}

impl PassedOn {
    /// To be called before the program is started: no signal ends this process without it. `afterwards` is
    /// called for each signal that comes once it has ended.
    ///
    /// # Errors
    /// Signals cannot be handled.
    pub(crate) fn begin(mut afterwards: impl FnMut() + Send + 'static) -> Result<PassedOn> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
        let handle = signals.handle();
        let (program, has_ended) = (Arc::<Mutex<Program>>::default(), Arc::<AtomicBool>::default());
        let (to, is_over) = (program.clone(), has_ended.clone());
        let pass = move || {
            for signal in signals.forever() {
                match is_over.load(Ordering::SeqCst) {
                    true => afterwards(),
                    false => lock(&to).tell(signal),
                }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(pass)?;
        Ok(PassedOn { program, has_ended, handle })
    }

    /// Waits until the program ends; its exit code.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub(crate) fn wait(&self, mut program: Child, name: &OsStr) -> Result<u8> {
        // Its number may be another's once it has ended; this is not.
        let itself =
            pidfd_open(Pid::from_child(&program), PidfdFlags::empty()).map_err(std::io::Error::from)?;
        lock(&self.program).begin(itself);
        let status = program.wait().with_context(|| format!("cannot wait for {}", name.display()));
        self.has_ended.store(true, Ordering::SeqCst);
        Ok(code(status?))
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Signals of a terminal reach the program without us.
fn pass_on(signal: i32, program: &OwnedFd) {
    let signal = match signal {
        SIGTERM => Signal::TERM,
        SIGHUP => Signal::HUP,
        _ => return,
    };
    // It may have ended just now.
    let _ = pidfd_send_signal(program, signal);
}

/// As shells do.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or_default();
    code as u8
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_signal_that_comes_before_the_program_is_known_reaches_it() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let itself = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let mut program = Program::default();
        program.tell(SIGTERM);
        program.begin(itself);
        assert_eq!(child.wait().unwrap().signal(), Some(SIGTERM));
    }
}
