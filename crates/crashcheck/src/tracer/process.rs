//! A process that is not waited for for ever.

use std::fmt;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::error::TracerError;

/// From the signal that asks to the one that does not.
const GRACE: Duration = Duration::from_secs(5);

/// Of those that end a program, one that QEMU hands on to it: it ends the trace. `SIGTERM` ends QEMU itself.
const ASKING: Signal = Signal::QUIT;

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It took too long, and was ended.
    TimedOut,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exited with {code}"),
            End::Signalled(signal) => write!(f, "was killed by signal {signal}"),
            End::TimedOut => f.write_str("took too long, and was ended"),
        }
    }
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> End {
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Exited(code),
            (None, signal) => End::Signalled(signal.unwrap_or(0)),
        }
    }
}

/// Runs a command in a process group of its own. When it is too late, the whole group is ended.
pub(super) fn run(command: &mut Command, timeout: Duration) -> Result<End, TracerError> {
    let path = Path::new(command.get_program()).to_owned();
    let io = |what| move |error: io::Error| TracerError::io(what, &path, error);
    let mut child = command.process_group(0).spawn().map_err(io.clone()("start"))?;
    let status = wait(&mut child, timeout).map_err(io.clone()("wait for"))?;
    let end = match status {
        Some(status) => End::from(status),
        None => {
            signal(&child, ASKING);
            if wait(&mut child, GRACE).map_err(io.clone()("wait for"))?.is_none() {
                signal(&child, Signal::KILL);
                child.wait().map_err(io("wait for"))?;
            }
            End::TimedOut
        }
    };
    if end == End::TimedOut {
        // Children of it that have not listened.
        signal(&child, Signal::KILL);
    }
    Ok(end)
}

/// To the group; one that is gone already is no error.
fn signal(child: &Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(child), signal);
}

/// Its status; none if it is still running at the end.
fn wait(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now().checked_add(timeout);
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ends() {
        let shell = |text: &str, timeout| run(Command::new("sh").args(["-c", text]), timeout).unwrap();
        assert_eq!(shell("exit 7", Duration::from_secs(60)), End::Exited(7));
        assert_eq!(shell("kill -11 $$", Duration::from_secs(60)), End::Signalled(11));
        let begin = Instant::now();
        assert_eq!(shell("sleep 1000 & wait", Duration::from_millis(50)), End::TimedOut);
        assert!(begin.elapsed() < Duration::from_secs(30));
        let missing = run(&mut Command::new("/nonexistent"), Duration::from_secs(1)).unwrap_err();
        assert_eq!(missing.to_string(), "cannot start /nonexistent");
    }
}
