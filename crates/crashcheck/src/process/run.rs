//! Runs programs to their end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use super::Group;
use super::ending::{Ending, OUTPUT_MAX_BYTES};

/// From the signal that asks for the end to SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// The result of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub ending: Ending,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: Vec<u8>,
}

/// Runs a program to its end, and everything that it has started, with `input` as its standard input. After
/// `time_out` they are killed.
///
/// # Errors
/// Those of starting it, and of waiting for it.
pub fn run(command: &mut Command, input: &[u8], time_out: Duration) -> io::Result<Output> {
    let end = Instant::now() + time_out;
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    let mut group = Group::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let mut pipes = Pipes::of(group.child(), input)?;
    let cut = pipes.serve(group.pidfd(), end)?;
    if cut.is_some() {
        group.kill();
    }
    let status = group.child().wait()?;
    // Output that is still under way, or held open by processes that it started, is not waited for.
    group.kill();
    pipes.drain()?;
    let ending = cut.unwrap_or_else(|| status.into());
    Ok(Output { ending, stdout: pipes.stdout.bytes, stderr: pipes.stderr.bytes })
}

/// Runs a program to its end, and everything that it has started, with the standard streams of `command`.
/// After `time_out` all of them get the signal `ask`; those that are still there five seconds later are
/// killed.
///
/// # Errors
/// Those of starting it, and of waiting for it.
pub(crate) fn run_visibly(command: &mut Command, ask: Signal, time_out: Duration) -> io::Result<Ending> {
    let mut group = Group::spawn(command)?;
    if let Some(status) = group.wait(time_out)? {
        return Ok(status.into());
    }
    group.signal(ask);
    group.wait(GRACE)?;
    Ok(Ending::TimedOut)
}

/// One end of a pipe, and what came out of it.
struct Source {
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Source {
    fn new(fd: Option<OwnedFd>) -> io::Result<Source> {
        let file = fd.map(File::from);
        if let Some(file) = &file {
            set_nonblocking(file)?;
        }
        Ok(Source { file, bytes: Vec::new() })
    }

    /// Takes what is there; false once there is too much.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 16 << 10];
        while let Some(file) = &mut self.file {
            match file.read(&mut buffer) {
                Ok(0) => self.file = None,
                Ok(len) if self.bytes.len() + len > OUTPUT_MAX_BYTES => return Ok(false),
                Ok(len) => self.bytes.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

struct Pipes<'a> {
    stdin: Option<File>,
    input: &'a [u8],
    stdout: Source,
    stderr: Source,
}

impl<'a> Pipes<'a> {
    fn of(child: &mut Child, input: &'a [u8]) -> io::Result<Pipes<'a>> {
        let stdin = child.stdin.take().map(|stdin| File::from(OwnedFd::from(stdin)));
        if let Some(stdin) = &stdin {
            set_nonblocking(stdin)?;
        }
        let stdout = Source::new(child.stdout.take().map(OwnedFd::from))?;
        let stderr = Source::new(child.stderr.take().map(OwnedFd::from))?;
        Ok(Pipes { stdin, input, stdout, stderr })
    }

    /// Until the child has ended; says why it has to be killed.
    fn serve(&mut self, pidfd: &OwnedFd, end: Instant) -> io::Result<Option<Ending>> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Some(Ending::TimedOut));
            }
            let mut fds = vec![PollFd::new(pidfd, PollFlags::IN)];
            let sources = [&self.stdout.file, &self.stderr.file];
            fds.extend(sources.into_iter().flatten().map(|file| PollFd::new(file, PollFlags::IN)));
            fds.extend(self.stdin.iter().map(|file| PollFd::new(file, PollFlags::OUT)));
            let time_out = left.try_into().map_err(io::Error::other)?;
            match poll(&mut fds, Some(&time_out)) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let has_ended = !fds[0].revents().is_empty();
            self.write();
            if !self.stdout.read()? || !self.stderr.read()? {
                return Ok(Some(Ending::TooMuchOutput));
            }
            if has_ended {
                return Ok(None);
            }
        }
    }

    fn write(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(self.input) {
            Ok(len) => self.input = &self.input[len..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // It need not read its input.
            Err(_) => self.input = &[],
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    fn drain(&mut self) -> io::Result<()> {
        self.stdout.read()?;
        self.stderr.read()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, input: &[u8], ms: u64) -> Output {
        run(Command::new("sh").args(["-c", script]), input, Duration::from_millis(ms)).unwrap()
    }

    #[test]
    fn a_program_is_run_to_its_end() {
        let output = sh("cat; echo err >&2; exit 3", b"input", 10_000);
        assert_eq!(output.ending, Ending::Code(3));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"input"[..], &b"err\n"[..]));
        let large = vec![b'x'; 1 << 20];
        assert_eq!(sh("cat", &large, 10_000).stdout, large, "more than a pipe holds, both ways");
        assert_eq!(sh("exit 0", &large, 10_000).ending, Ending::Code(0), "input that is not read");
        assert_eq!(sh("kill -9 $$", b"", 10_000).ending, Ending::Signal(9));
    }

    #[test]
    fn what_does_not_end_is_killed_with_its_children() {
        let start = Instant::now();
        let output = sh("echo before; sleep 1000 & sleep 1000", b"", 300);
        assert_eq!((output.ending, &output.stdout[..]), (Ending::TimedOut, &b"before\n"[..]));
        // A child that outlives it holds the pipe.
        let output = sh("sleep 1000 & echo $!", b"", 10_000);
        assert_eq!(output.ending, Ending::Code(0));
        let pid = String::from_utf8(output.stdout).unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // A signal takes a moment.
        while stat().is_ok_and(|stat| !stat.contains(") Z")) {
            assert!(start.elapsed() < Duration::from_secs(50), "it is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn what_is_asked_to_end_may_still_do_something() {
        let folder = tempfile::tempdir().unwrap();
        let shell = |script: &str, ms: u64| {
            // A script that starts tests in the background makes them ignore SIGQUIT, and a shell cannot
            // trap what it ignores.
            let mut command = Command::new("env");
            command.args(["--default-signal=QUIT", "sh", "-c", script]).current_dir(folder.path());
            run_visibly(&mut command, Signal::QUIT, Duration::from_millis(ms)).unwrap()
        };
        assert_eq!(shell("exit 7", 60_000), Ending::Code(7));
        assert_eq!(shell("kill -11 $$", 60_000), Ending::Signal(11));
        let script = "trap 'echo asked > said; exit' QUIT; : > ready; sleep 1000 & while :; do wait; done";
        // On a busy machine a shell may need longer than that to be ready for a signal.
        for ms in [300, 3_000, 30_000] {
            let begin = Instant::now();
            assert_eq!(shell(script, ms), Ending::TimedOut);
            let is_ready = folder.path().join("ready").exists();
            if is_ready || ms == 30_000 {
                assert_eq!(std::fs::read_to_string(folder.path().join("said")).unwrap(), "asked\n");
                assert!(begin.elapsed() < Duration::from_millis(ms) + GRACE, "it has not been waited for");
                break;
            }
        }
        let begin = Instant::now();
        assert_eq!(shell("trap '' QUIT; sleep 1000", 50), Ending::TimedOut);
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn what_writes_without_end_is_killed() {
        assert_eq!(sh("yes", b"", 60_000).ending, Ending::TooMuchOutput);
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let error = run(&mut Command::new("/nonexistent/program"), b"", Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
