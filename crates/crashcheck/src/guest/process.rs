//! QEMU as a process that cannot outlive us.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::qmp::Silence;

/// A process group of its own, killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process(Child);

type Job = (Command, Sender<io::Result<Child>>);

impl Process {
    /// Starts a program that is to die with us. The signal for that (`setpriv --pdeathsig`) comes when the *thread* that
    /// started it ends, so there is one thread for all of them, which never does.
    pub(super) fn spawn(command: Command) -> io::Result<Self> {
        static JOBS: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
        let jobs = JOBS.get_or_init(|| {
            let (sender, jobs) = mpsc::channel::<Job>();
            thread::spawn(move || {
                for (mut command, answer) in jobs {
                    // Nobody waits for it any more: dropped, it would go on.
                    if let Err(mpsc::SendError(Ok(child))) = answer.send(command.spawn()) {
                        drop(Process(child));
                    }
                }
            });
            Mutex::new(sender)
        });
        let (answer, spawned) = mpsc::channel();
        let gone = || io::Error::other("the thread that starts programs is gone");
        jobs.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer)).map_err(|_| gone())?;
        spawned.recv().map_err(|_| gone())?.map(Process)
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// True once it has ended.
    pub(super) fn wait(&mut self, timeout: Duration) -> bool {
        let by = Instant::now() + timeout;
        while !self.has_ended() {
            if Instant::now() > by {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Connects to a socket that the process makes.
    pub(super) fn connect(&mut self, socket: &Path, deadline: Instant) -> Result<UnixStream, Silence> {
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Ok(stream),
                Err(_) if self.has_ended() => return Err(Silence::Closed),
                Err(_) if Instant::now() > deadline => return Err(Silence::TimedOut),
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            // It is not waited for yet, so the number is its own.
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}
