//! Tests of file systems of a real kernel, in a guest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fastness_agent::recover::{NOT_MOUNTED, WRITTEN};
use fastness_crashcheck_workload::{Command, Workload};

use super::analysis::{Analysis, Limits};
use super::guest_crashes::TracedRecoveries;
use super::guest_reads::GuestRecovery;
use super::setting::{GuestSetting, RECOVERY_TIMEOUT, stacks, traced};
use crate::check::{Extract, RecoveryCrashes, State, WorkDir, write_files};
use crate::error::{CheckError, Result, make_dir};
use crate::generate::{Contents, Layout};
use crate::guest::{GuestError, Guests, KernelCrash, Output};
use crate::process::Ending;
use crate::report::Report;
use crate::trace::open_trace;

/// For the whole of a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Shell: the guest's clock begins at the same instant in each test, and not at that of recoveries
/// ([`Guest::recover`](crate::guest::Guest::recover)).
const TEST_CLOCK: &str =
    "fastness-agent clock test || { echo 'the guest is too old: run scripts/crash-guest' >&2; exit 1; }\n";

/// Shell: what the kernel says in a recovery comes after this line.
const MESSAGES_BEGIN: &str = "echo '<6>crashcheck: a recovery begins' > /dev/kmsg\n";
/// Shell: the last two of these messages that match `$MESSAGES`, without their times.
const MESSAGES: &str = "dmesg | awk '/crashcheck: a recovery begins/ { n = 0; next } \
    $0 ~ ENVIRON[\"MESSAGES\"] { sub(/^[^]]*. /, \"\"); said[n++] = $0 } \
    END { for (i = n > 2 ? n - 2 : 0; i < n; i++) print said[i] }'\n";
/// The same of the input, in place of the shell: the exit status is that of what cannot be mounted.
const MESSAGES_GIVEN: &str = "exec awk '$0 ~ ENVIRON[\"MESSAGES\"] { said[n++] = $0 } \
    END { for (i = n > 2 ? n - 2 : 0; i < n; i++) print said[i]; exit 32 }'\n";
const _: () = assert!(NOT_MOUNTED == 32);

/// The device of persistent memory in the guest, and the disk beside it.
const PM: &str = "/dev/pmem0";
const DISK: &str = "/dev/nvme0n1";

/// What is done where a suite has no scripts of its own; the agent does it in one process.
pub(super) const MOUNT: &str = "mount -t $TYPE -o $OPTIONS $PM $M";
pub(super) const STATE: &str = "fastness-agent fs-dump $M --no-blocks";
pub(super) const WRITE: &str = "echo written > $M/after-recovery && sync";
pub(super) const UNMOUNT: &str = "umount $M";
/// What the built-in suite has for a file system on a disk beside persistent memory.
const MOUNT_DISK: &str = "mount -t $TYPE -o $OPTIONS $DISK $M";

/// A file system under test; shell, with `$PM` for the device, `$DISK` for an NVMe disk beside it, `$M` for
/// where it is mounted, `$TYPE`, and `$OPTIONS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// What the kernel calls it.
    pub kind: String,
    /// Kernel modules that it needs, unless they are built in; those of `files` by their file names.
    pub modules: Vec<String>,
    /// Programs of this machine that its scripts need.
    pub programs: Vec<String>,
    /// It has a disk of this length, too.
    pub disk_bytes: Option<u64>,
    /// Makes one.
    pub make: String,
    /// What it is mounted with: a word that may have `$PM` and `$DISK`. For a recovery `noatime` is added, so
    /// that looking changes nothing.
    pub options: String,
    /// Mounts it; in a recovery, too, which begins with this.
    pub mount: String,
    /// Run after each operation, as part of it: what it did is durable then.
    pub settle: String,
    /// What a system call did is durable when it returns: operations end there, and nothing settles them.
    pub is_synchronous: bool,
    /// Prints the state of one that is mounted.
    pub state: String,
    /// Writes to one that has been recovered, if it is not empty.
    pub write: String,
    /// Unmounts it.
    pub unmount: String,
    /// Where it cannot be mounted: the kernel's messages that say why, as a pattern of `grep -E`.
    pub messages: String,
}

/// What is done to a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTest {
    /// Its name.
    pub name: String,
    /// Run before what is tested.
    pub prepare: String,
    /// What is tested.
    pub work: Work,
}

/// What is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Shell, each one operation, which ends with a checkpoint.
    Operations(Vec<String>),
    /// J-lang, with its own marks and checkpoints; what was done before them is made durable first.
    Workload(Workload),
    /// Shell: a program, with its own checkpoints.
    Program(String),
}

/// A workload in which everything is made durable where an operation begins or ends.
fn settled(workload: &Workload) -> Workload {
    let mut workload = workload.clone();
    for section in [&mut workload.setup, &mut workload.run] {
        let settled = section.drain(..).flat_map(|command| match command {
            Command::Mark | Command::Checkpoint(_) => vec![Command::Sync, command],
            command => vec![command],
        });
        *section = settled.collect();
    }
    workload
}

impl FileSystem {
    /// Shell: what all scripts begin with.
    fn prefix(&self, more_options: &str) -> String {
        // A drive that was plugged in a moment ago.
        let wait = if self.disk_bytes.is_some() { "until [ -b $DISK ]; do sleep 0.05; done\n" } else { "" };
        let options = self.options.replace("$PM", PM).replace("$DISK", DISK);
        let options = quoted(&format!("{options}{more_options}"));
        format!(
            "PATH=$PATH:/suite PM={PM} DISK={DISK} M=/mnt TYPE={} OPTIONS={options}\n{wait}",
            quoted(&self.kind)
        )
    }

    /// Mounts what a crash left, and prints its state; with `has_write` it is written to afterwards if that
    /// went well, and [`written`] finds in its output what came of it.
    fn recovery(&self, has_write: bool) -> String {
        let FileSystem { mount, state, write, unmount, messages, .. } = self;
        let mut script = self.prefix(",noatime");
        let export = format!("export MESSAGES={}\n", quoted(messages));
        let has_messages = !messages.is_empty();
        if let Some(device) = self.device_of_defaults(has_write) {
            let write = if has_write { " --write" } else { "" };
            let failed = if has_messages { export + MESSAGES_GIVEN } else { format!("exit {NOT_MOUNTED}\n") };
            let options =
                format!("--type \"$TYPE\" --options \"$OPTIONS\"{write} --failed {}", quoted(&failed));
            return script + &format!("exec fastness-agent recover {device} $M {options}\n");
        }
        if has_messages {
            script += MESSAGES_BEGIN;
        }
        let failed = if has_messages { export + MESSAGES } else { String::new() };
        script += &format!("(set -e\n{mount}\n)\n[ $? -eq 0 ] || {{\n{failed}exit {NOT_MOUNTED}\n}}\n");
        script += &format!("(set -e\n{state}\n)\nstatus=$?\n");
        if has_write {
            script += &format!("[ $status -ne 0 ] || {{\n(set -e\n{write}\n) > /dev/null\nstatus=$?\n");
            script += &format!("echo \"{WRITTEN}$status\" >&2\n}}\n");
        }
        script + &format!("(set -e\n{unmount}\n) && exit $status\n")
    }

    /// What is mounted, if nothing of a recovery is a script of the suite's own.
    fn device_of_defaults(&self, has_write: bool) -> Option<&'static str> {
        let device = match &*self.mount {
            MOUNT => "$PM",
            MOUNT_DISK => "$DISK",
            _ => return None,
        };
        let is_default =
            self.state == STATE && self.unmount == UNMOUNT && (!has_write || self.write == WRITE);
        is_default.then_some(device)
    }
}

/// A word of a shell that is nothing but this text.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

impl FileTest {
    /// A generated workload.
    pub fn of_workload(name: &str, workload: &Workload) -> FileTest {
        FileTest { name: name.to_owned(), prepare: "true".to_owned(), work: Work::Workload(workload.clone()) }
    }

    /// What the guest does: a checkpoint before the first operation, and one after each.
    fn script(&self, system: &FileSystem) -> String {
        let FileSystem { make, mount, .. } = system;
        let prefix = system.prefix("");
        let mut script = format!("set -e\n{prefix}{TEST_CLOCK}{make}\n{mount}\n{}\n", self.prepare);
        if let Work::Workload(workload) = &self.work {
            let workload = if system.is_synchronous { workload.clone() } else { settled(workload) };
            script.push_str(&format!("cat > /tmp/workload <<'END'\n{workload}\nEND\n"));
        }
        script.push_str("sync\nfastness-agent hypercall start\n");
        match &self.work {
            Work::Workload(_) => script.push_str("fastness-agent run /tmp/workload --dir $M\n"),
            Work::Program(program) => script.push_str(&format!("{program}\n")),
            Work::Operations(operations) => {
                script.push_str("fastness-agent hypercall checkpoint 0\n");
                for (number, operation) in operations.iter().enumerate() {
                    let (settle, number) = (&system.settle, number + 1);
                    let checkpoint = format!("fastness-agent hypercall checkpoint {number}");
                    script.push_str(&format!("{operation}\n{settle}\n{checkpoint}\n"));
                }
            }
        }
        script.push_str("fastness-agent hypercall success\n");
        script
    }
}

/// Traces a test on a file system, and analyses what the file system did. `name` is that of the report.
///
/// # Errors
/// [`CheckError`]; an operation that fails is [`CheckError::InGuest`].
pub fn run_in_guest(
    name: &str,
    test: &FileTest,
    system: &FileSystem,
    setting: &GuestSetting<'_>,
) -> Result<Report> {
    trace_in_guest(test, system, setting, None)?;
    analyse_in_guest(name, system, setting)
}

/// Traces a test on a file system. It goes to `coverage` which blocks of the kernel's code ran.
///
/// # Errors
/// [`CheckError`]; an operation that fails is [`CheckError::InGuest`].
pub fn trace_in_guest(
    test: &FileTest,
    system: &FileSystem,
    setting: &GuestSetting<'_>,
    coverage: Option<&Path>,
) -> Result<()> {
    make_dir(setting.work)?;
    let mut disks = Vec::new();
    if let Some(bytes) = system.disk_bytes {
        let disk = setting.work.join("disk");
        std::fs::File::create(&disk)
            .and_then(|file| file.set_len(bytes))
            .map_err(CheckError::file("make", &disk))?;
        disks.push(disk);
    }
    let returns = if system.is_synchronous { ",returns=on" } else { "" };
    let covered = if coverage.is_some() { ",coverage=coverage" } else { "" };
    let restore = traced(setting, &format!("{}{returns}{covered}", stacks(setting)?), None, &disks)?;
    let mut guest = setting.traced.restore(&restore)?;
    let output = guest.command(&test.script(system), TEST_TIMEOUT)?;
    let moved = guest.quit_and(|folder| {
        let blocks = coverage.map_or(Ok(0), |path| std::fs::copy(folder.join("coverage"), path));
        blocks.and(std::fs::copy(folder.join("trace"), setting.trace))
    })?;
    if !output.is_success() {
        return Err(CheckError::InGuest {
            said: format!("{}{}", output.text(), String::from_utf8_lossy(&output.stderr)),
        });
    }
    moved.map_err(CheckError::file("take the trace to", setting.trace))?;
    Ok(())
}

/// Analyses what [`trace_in_guest`] has recorded. `name` is that of the report.
///
/// # Errors
/// [`CheckError`]
pub fn analyse_in_guest(name: &str, system: &FileSystem, setting: &GuestSetting<'_>) -> Result<Report> {
    let layout = Layout::of(open_trace(setting.trace)?.header())?;
    let script = system.recovery(false);
    let write = (!system.write.is_empty()).then(|| system.recovery(true));
    let (guests, work) = (setting.guests, setting.work);
    let extract = GuestExtract { guests, script: &script, write, layout: layout.clone(), work };
    let mut recovery = GuestRecovery::new(setting, &script, layout.clone());
    let recoveries = TracedRecoveries::new(setting, &script, layout);
    let crashes = RecoveryCrashes {
        depth: setting.in_recovery.depth,
        per_point: setting.in_recovery.per_point,
        tracer: &recoveries,
        is_in_kernel: true,
        work,
        keep: setting.in_recovery.keep,
    };
    let analysis = Analysis {
        name,
        trace: setting.trace,
        images: setting.images,
        extract: &extract,
        recovery: Some(&mut recovery),
        oracles: Vec::new(),
        has_prefix_oracle: false,
        has_operations: false,
        must_be_atomic: true,
        in_recovery: (crashes.depth > 0).then_some(crashes),
        threads: setting.threads,
        exclude: setting.exclude,
        symbols: &|pc, _| setting.symbols.and_then(|symbols| symbols.place(pc)),
        deadline: setting.deadline,
        limits: Limits::default(),
        progress: setting.progress,
    };
    analysis.run()
}

/// Recovers images in guests.
struct GuestExtract<'a> {
    guests: &'a Guests<'a>,
    script: &'a str,
    /// The same, and then a write.
    write: Option<String>,
    layout: Layout,
    work: &'a Path,
}

impl GuestExtract<'_> {
    /// As [`state_of`].
    fn run(&self, script: &str, files: &[PathBuf]) -> Result<(State, Option<i32>)> {
        state_of(self.guests.extract(script, RECOVERY_TIMEOUT, &files[0], &files[1..]))
    }
}

/// The state that a recovery has shown, and the status of the write if there was one.
fn state_of(said: Result<Output, GuestError>) -> Result<(State, Option<i32>)> {
    let mut write = None;
    let (ending, text) = match said {
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            write = stderr.lines().rev().find_map(|line| line.strip_prefix(WRITTEN)?.parse().ok());
            match output.status {
                _ if output.timed_out => (Ending::TimedOut, Vec::new()),
                // If anything is wrong it is the write.
                status if status == 0 || write == Some(status) => (Ending::Code(0), output.stdout),
                status => (Ending::Code(status), [output.stdout, output.stderr].concat()),
            }
        }
        Err(GuestError::Ended { console, .. }) => {
            (Ending::Panicked, KernelCrash::text(&console).into_bytes())
        }
        Err(GuestError::TimedOut { console, .. }) => {
            let crash = KernelCrash::of(&console).map(|crash| crash.to_string());
            (Ending::TimedOut, crash.unwrap_or_default().into_bytes())
        }
        Err(error) => return Err(error.into()),
    };
    Ok((State { ending, text, write: None }, write))
}

impl Extract for GuestExtract<'_> {
    type Place = WorkDir;

    fn place(&self) -> Result<WorkDir> {
        WorkDir::new(self.work)
    }

    fn extract(&self, place: &mut WorkDir, contents: &Contents) -> Result<State> {
        let files = write_files(&self.layout, contents, place.path())?;
        let Some(write) = &self.write else { return Ok(self.run(self.script, &files)?.0) };
        let (with_write, status) = self.run(write, &files)?;
        match (with_write.ending, status) {
            (Ending::Code(0), Some(0)) => return Ok(with_write),
            (Ending::Code(0), Some(code)) => {
                return Ok(State { write: Some(Ending::Code(code)), ..with_write });
            }
            // It was not written to.
            (Ending::Code(_), None) => return Ok(with_write),
            _ => {}
        }
        // Which of the two was it?
        let (mut state, _) = self.run(self.script, &files)?;
        let is_write = state.ending.is_success() && !with_write.ending.is_success();
        state.write = is_write.then_some(with_write.ending);
        Ok(state)
    }
}

#[cfg(test)]
mod tests;
