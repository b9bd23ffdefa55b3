//! A process, and those that it starts, as one.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::guard::{self, Charge};

/// A process group of its own. When it is dropped, all of its processes are killed.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    /// Readable once the first process has ended.
    pidfd: OwnedFd,
}

type Job = (Command, Sender<io::Result<Group>>);

impl Group {
    /// Starts a program.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Group> {
        let mut child = command.process_group(0).spawn()?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => {
                guard::tell(&Charge::Group(Pid::from_child(&child)));
                Ok(Group { child, pidfd })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Starts a program that dies with this process, however that ends. The signal for that
    /// (`setpriv --pdeathsig`) comes when the *thread* that started it ends, so there is one thread for all
    /// of them, which never does.
    pub(crate) fn spawn_bound(command: Command) -> io::Result<Group> {
        static JOBS: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
        let jobs = JOBS.get_or_init(|| {
            let (sender, jobs) = mpsc::channel::<Job>();
            thread::spawn(move || {
                for (mut command, answer) in jobs {
                    // If the receiver is gone, the group is dropped, which kills it.
                    let _ = answer.send(Group::spawn(&mut command));
                }
            });
            Mutex::new(sender)
        });
        let (answer, spawned) = mpsc::channel();
        let gone = || io::Error::other("the thread that starts programs is gone");
        jobs.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer)).map_err(|_| gone())?;
        spawned.recv().map_err(|_| gone())?
    }

    /// Its first process, for its pipes.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(super) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Whether its first process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The status of the first process; none if it has not ended after `time_out`.
    pub(crate) fn wait(&mut self, time_out: Duration) -> io::Result<Option<ExitStatus>> {
        // A deadline beyond the clock's range is no deadline.
        let end = Instant::now().checked_add(time_out);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let left = left.map(TryInto::try_into).transpose().map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Signals all of it; a group that has ended already is not an error.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        // Before it is waited for: until then no other process has its number.
        guard::tell(&Charge::Gone(Pid::from_child(&self.child)));
        let _ = self.child.wait();
    }
}
