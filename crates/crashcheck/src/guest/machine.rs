//! One run of QEMU.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastness_agent::clock::RECOVERY_BEGIN_S;
use serde_json::{Value, json};

use super::agent::{Agent, Output};
use super::qmp::{Qmp, Silence, connect};
use super::{GuestConfig, GuestError, Result, ram};
use crate::process::{Folder, Group};

/// For QEMU to start, and for an answer from QEMU itself.
const QEMU_TIMEOUT: Duration = Duration::from_secs(30);
/// For an agent that is later than the command's own time-out.
const AGENT_GRACE: Duration = Duration::from_secs(5);
/// With `-icount` a second in the guest may be that many outside.
const SLOW: u32 = 4;

/// A running guest. When it is dropped, it is killed and its files are removed.
#[derive(Debug)]
pub struct Guest {
    // In this order: the process is gone before its files are.
    process: Group,
    qmp: Qmp,
    agent: Agent,
    config: GuestConfig,
    is_stopped: bool,
    folder: Folder,
}

impl Guest {
    /// Starts QEMU, stopped, in a folder that has its RAM file.
    pub(super) fn start(config: &GuestConfig, folder: Folder, more: &[OsString]) -> Result<Self> {
        let log = folder.join("qemu.log");
        let log_file = File::create(&log).map_err(GuestError::io("cannot make", &log))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&config.qemu).args(config.arguments()).args(more);
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(log_file.try_clone().map_err(GuestError::io("cannot open", &log))?).stderr(log_file);
        let mut process =
            Group::spawn_bound(command).map_err(GuestError::io("cannot run setpriv and", &config.qemu))?;
        let by = Instant::now() + QEMU_TIMEOUT;
        let failed =
            |silence: Silence| silence.during("QEMU starts", QEMU_TIMEOUT, ram::tail(&log), String::new());
        let qmp = connect(&folder.join("qmp"), &mut process, by)
            .and_then(|stream| Qmp::new(stream, by))
            .map_err(failed)?;
        // Before the guest runs: output without a reader is lost.
        let agent = connect(&folder.join("agent"), &mut process, by).map(Agent::new).map_err(failed)?;
        Ok(Self { process, qmp, agent, config: config.clone(), is_stopped: true, folder })
    }

    /// Runs a command line with the guest's `sh`. A command that does not end in `timeout` is killed, and its
    /// output says so.
    ///
    /// # Errors
    /// [`GuestError::Ended`] for a guest that is gone (a kernel panic), [`GuestError::TimedOut`] for one that
    /// does not answer. After these it is of no use any more.
    pub fn command(&mut self, command: &str, timeout: Duration) -> Result<Output> {
        self.command_at(None, command, timeout)
    }

    /// The same for what recovers an image: it begins when each recovery does
    /// ([`RECOVERY_BEGIN_S`]).
    ///
    /// # Errors
    /// As of [`Guest::command`].
    pub fn recover(&mut self, script: &str, timeout: Duration) -> Result<Output> {
        self.command_at(Some(RECOVERY_BEGIN_S), script, timeout)
    }

    fn command_at(&mut self, clock_s: Option<i64>, command: &str, timeout: Duration) -> Result<Output> {
        let outside = timeout * if self.config.repeatable { SLOW } else { 1 } + AGENT_GRACE;
        let by = Instant::now() + outside;
        let asked = self.agent.ask(command, clock_s, timeout).and_then(|()| self.go_on(by));
        let done = asked.and_then(|()| self.agent.answer(by));
        done.map_err(|silence| self.error(silence, "a command runs", outside))
    }

    /// Resumes a restored guest. It is paused until QEMU has received its first command, so that the command
    /// always arrives at the same instruction.
    fn go_on(&mut self, by: Instant) -> Result<(), Silence> {
        if std::mem::take(&mut self.is_stopped) {
            // QEMU handles all its sockets in one loop: after a few answers it has taken the command.
            for _ in 0..3 {
                self.qmp.execute("query-status", json!({}), by)?;
            }
            self.qmp.execute("cont", json!({}), by)?;
        }
        Ok(())
    }

    /// Pauses the guest until its next command: PM does not change while it is read.
    ///
    /// # Errors
    /// As of [`Guest::command`].
    pub fn pause(&mut self) -> Result<()> {
        self.qmp("stop", json!({}))?;
        self.is_stopped = true;
        Ok(())
    }

    /// Copies the contents of PM to a file: all stores that the guest has made, as QEMU has no caches.
    ///
    /// # Errors
    /// [`GuestError::Io`].
    pub fn read_pm(&self, image: &Path) -> Result<()> {
        ram::take_pm(&self.ram_file(), image, self.config.pm_bytes)
    }

    /// Puts another image into PM while the guest runs: only when nothing in it is mounted from PM, or has it
    /// open.
    ///
    /// # Errors
    /// [`GuestError::Io`], [`GuestError::ImageSize`]; PM is undefined then.
    pub fn write_pm(&mut self, image: &Path) -> Result<()> {
        ram::clear_pm(&self.ram_file(), self.config.pm_bytes)?;
        ram::put_pm(image, &self.ram_file(), self.config.pm_bytes)
    }

    /// The file that is the guest's RAM; an offset is a physical address.
    pub fn ram_file(&self) -> PathBuf {
        self.folder.join("ram")
    }

    /// The end of the guest's console output: as much as a crash of its kernel can say.
    pub fn console(&self) -> String {
        ram::tail(&self.folder.join("console"))
    }

    /// The folder of the guest's files, which goes with it: QEMU runs there, so a plug-in may write there.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends QEMU in order, so that its files (such as a plug-in's trace) are complete; its folder still
    /// exists while `look` runs.
    ///
    /// # Errors
    /// It does not end.
    pub fn quit_and<T>(mut self, look: impl FnOnce(&Path) -> T) -> Result<T> {
        match self.qmp.execute("quit", json!({}), Instant::now() + QEMU_TIMEOUT) {
            // It may be gone before it has answered.
            Ok(_) | Err(Silence::Closed) => {}
            Err(silence) => return Err(self.error(silence, "QEMU ends", QEMU_TIMEOUT)),
        }
        if !matches!(self.process.wait(QEMU_TIMEOUT), Ok(Some(_))) {
            return Err(self.error(Silence::TimedOut, "QEMU ends", QEMU_TIMEOUT));
        }
        Ok(look(self.folder.path()))
    }

    /// Ends QEMU in order.
    ///
    /// # Errors
    /// It does not end.
    pub fn quit(self) -> Result<()> {
        self.quit_and(|_| ())
    }

    /// Boots.
    pub(super) fn wait_for_hello(&mut self) -> Result<()> {
        let timeout = self.config.boot_timeout;
        let by = Instant::now() + timeout;
        let said = self.go_on(by).and_then(|()| self.agent.wait_for_hello(by));
        said.map_err(|silence| self.error(silence, "it boots", timeout))
    }

    /// One command of QMP.
    pub(super) fn qmp(&mut self, command: &'static str, arguments: Value) -> Result<Value> {
        let done = self.qmp.execute(command, arguments, Instant::now() + QEMU_TIMEOUT);
        done.map_err(|silence| self.error(silence, "QEMU is asked", QEMU_TIMEOUT))
    }

    /// Waits until the answer to a command has the string `status` in its field of this name.
    pub(super) fn wait_for_status(&mut self, command: &'static str, status: &str) -> Result<()> {
        let done =
            self.qmp.wait(command, Instant::now() + QEMU_TIMEOUT, |answer| match answer["status"].as_str() {
                Some("failed") => Err(Silence::Refused { command, reason: answer.to_string() }),
                found => Ok(found == Some(status)),
            });
        done.map_err(|silence| self.error(silence, "its state is saved or loaded", QEMU_TIMEOUT))
    }

    /// Ends QEMU; its files stay with the folder.
    pub(super) fn into_folder(self) -> Folder {
        let Self { process, folder, .. } = self;
        drop(process);
        folder
    }

    fn error(&mut self, silence: Silence, during: &'static str, after: Duration) -> GuestError {
        // A machine that is about to end has closed its sockets before, and its last words are not yet in the
        // file.
        if matches!(silence, Silence::Closed) {
            let _ = self.process.wait(Duration::from_secs(1));
        }
        silence.during(during, after, ram::tail(&self.folder.join("qemu.log")), self.console())
    }
}
