//! Tests of file systems of a real kernel, in a guest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fastness_crashcheck_workload::{Command, Workload};
use serde::Deserialize;

use super::analysis::Analysis;
use super::guest_reads::GuestRecovery;
use super::setting::{GuestSetting, RECOVERY_TIMEOUT, traced};
use crate::check::{Extract, State, WorkDir, write_files};
use crate::error::{CheckError, Result, make_dir};
use crate::generate::{Contents, Layout};
use crate::guest::{GuestError, Guests};
use crate::process::Ending;
use crate::report::Report;
use crate::trace::open_trace;

/// For the whole of a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Shell: where the devices and the mount point are.
const PREFIX: &str = "PM=/dev/pmem0 DISK=/dev/nvme0n1 M=/mnt\n";
/// Shell: a drive that was plugged in a moment ago.
const WAIT_FOR_DISK: &str = "until [ -b $DISK ]; do sleep 0.05; done\n";

/// A file system under test; shell, with `$PM` for the device, `$DISK` for an NVMe disk beside it, and `$M`
/// for where it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystem {
    /// It has a disk of so many MiB, too.
    pub disk_mib: Option<u64>,
    /// Makes one.
    pub mkfs: String,
    /// Run after each operation, as part of it: what it did is durable then.
    pub settle: String,
    /// Mounts it.
    pub mount: String,
    /// Mounts the file system that a crash left, and prints its state.
    pub recover: String,
}

/// What is done to a file system.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTest {
    /// Its name.
    pub name: String,
    /// Run before what is tested.
    pub prepare: String,
    /// Each one operation.
    pub operations: Vec<String>,
    /// In place of these: J-lang, with its own checkpoints.
    #[serde(skip)]
    pub workload: Option<String>,
}

/// The file systems of the suite, by name.
///
/// # Errors
/// What is wrong with the text, and where.
pub fn file_systems(text: &str) -> Result<BTreeMap<String, FileSystem>, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

impl FileTest {
    /// A test of the suite.
    ///
    /// # Errors
    /// What is wrong with the text, and where.
    pub fn parse(text: &str) -> Result<FileTest, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// A generated workload. It says itself where its operation begins and ends; before both everything is
    /// made durable.
    pub fn of_workload(name: &str, workload: &Workload) -> FileTest {
        let mut workload = workload.clone();
        for section in [&mut workload.setup, &mut workload.run] {
            let settled = section.drain(..).flat_map(|command| match command {
                Command::Mark | Command::Checkpoint(_) => vec![Command::Sync, command],
                command => vec![command],
            });
            *section = settled.collect();
        }
        let (prepare, operations) = ("true".to_owned(), Vec::new());
        FileTest { name: name.to_owned(), prepare, operations, workload: Some(workload.to_string()) }
    }

    /// What the guest does: a checkpoint before the first operation, and one after each.
    fn script(&self, system: &FileSystem) -> String {
        let wait = if system.disk_mib.is_some() { WAIT_FOR_DISK } else { "" };
        let FileSystem { mkfs, mount, .. } = system;
        let mut script = format!("set -e\n{PREFIX}{wait}{mkfs}\n{mount}\n{}\n", self.prepare);
        if let Some(workload) = &self.workload {
            script.push_str(&format!("cat > /tmp/workload <<'END'\n{workload}\nEND\n"));
        }
        script.push_str("sync\nfastness-agent hypercall start\n");
        match &self.workload {
            Some(_) => script.push_str("fastness-agent run /tmp/workload --dir $M\n"),
            None => {
                script.push_str("fastness-agent hypercall checkpoint 0\n");
                for (number, operation) in self.operations.iter().enumerate() {
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
    make_dir(setting.work)?;
    let mut disks = Vec::new();
    if let Some(mib) = system.disk_mib {
        let disk = setting.work.join("disk");
        std::fs::File::create(&disk)
            .and_then(|file| file.set_len(mib << 20))
            .map_err(CheckError::file("make", &disk))?;
        disks.push(disk);
    }
    let options = if setting.has_stacks { ",stack=on" } else { "" };
    let restore = traced(setting, options, None, &disks)?;
    let mut guest = setting.guests.snapshot().restore(&restore)?;
    let output = guest.command(&test.script(system), TEST_TIMEOUT)?;
    let moved = guest.quit_and(|folder| std::fs::copy(folder.join("trace"), setting.trace))?;
    moved.map_err(CheckError::file("take the trace to", setting.trace))?;
    if !output.is_success() {
        return Err(CheckError::InGuest {
            said: format!("{}{}", output.text(), String::from_utf8_lossy(&output.stderr)),
        });
    }
    let layout = Layout::of(open_trace(setting.trace)?.header())?;
    let wait = if system.disk_mib.is_some() { WAIT_FOR_DISK } else { "" };
    let script = format!("{PREFIX}{wait}{}", system.recover);
    let extract =
        GuestExtract { guests: setting.guests, script: &script, layout: layout.clone(), work: setting.work };
    let mut recovery = GuestRecovery::new(setting, &script, layout);
    let analysis = Analysis {
        name,
        trace: setting.trace,
        images: setting.images,
        extract: &extract,
        recovery: Some(&mut recovery),
        oracles: Vec::new(),
        has_prefix_oracle: false,
        must_be_atomic: true,
        threads: setting.threads,
        symbols: &|pc, _| setting.symbols.and_then(|symbols| symbols.find(pc)),
        deadline: setting.deadline,
        progress: setting.progress,
    };
    analysis.run()
}

/// Recovers images in guests.
struct GuestExtract<'a> {
    guests: &'a Guests<'a>,
    script: &'a str,
    layout: Layout,
    work: &'a Path,
}

impl Extract for GuestExtract<'_> {
    type Place = WorkDir;

    fn place(&self) -> Result<WorkDir> {
        WorkDir::new(self.work)
    }

    fn extract(&self, place: &mut WorkDir, contents: &Contents) -> Result<State> {
        let files = write_files(&self.layout, contents, place.path())?;
        let output = self.guests.extract(self.script, RECOVERY_TIMEOUT, &files[0], &files[1..]);
        let (ending, text) = match output {
            Ok(output) if output.is_success() => (Ending::Code(0), output.stdout),
            Ok(output) => (Ending::Code(output.status), [output.stdout, output.stderr].concat()),
            Err(GuestError::Ended { .. }) => (Ending::Panicked, Vec::new()),
            Err(GuestError::TimedOut { .. }) => (Ending::TimedOut, Vec::new()),
            Err(error) => return Err(error.into()),
        };
        Ok(State { ending, text, write: None })
    }
}
