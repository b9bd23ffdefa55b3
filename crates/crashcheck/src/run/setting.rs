//! Where tests of file systems are run: guests with the tracer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::config::ImagesConfig;
use super::user::absolute;
use crate::check::Step;
use crate::error::{CheckError, Result};
use crate::explain::Exclusion;
use crate::guest::{Guests, Nvme, PM_START, Restore, Snapshot};
use crate::symbols::KernelSymbols;

/// For one recovery.
pub(super) const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Which crashes during recovery are tested in guests.
#[derive(Debug, Clone, Copy, Default)]
pub struct CrashesInGuests<'a> {
    /// How many of them follow each other; 0 tests none.
    pub depth: usize,
    /// Most images of a failure point of a recovery.
    pub per_point: usize,
    /// Where the images are kept that findings are about, each in a folder named by its hash; none: nowhere.
    pub keep: Option<&'a Path>,
}

/// Where tests of file systems are run.
pub struct GuestSetting<'a> {
    /// Where guests that are traced come from. Time should be instructions in them ([`GuestConfig`]): then a
    /// test has the same trace each time, and the kernel's interrupts, whose locks are fences, are rare.
    ///
    /// [`GuestConfig`]: crate::guest::GuestConfig::repeatable
    pub traced: &'a Snapshot,
    /// Those that look at crash images.
    pub guests: &'a Guests<'a>,
    /// The plug-in.
    pub plugin: &'a Path,
    /// Where the trace goes.
    pub trace: &'a Path,
    /// Temporary files.
    pub work: &'a Path,
    /// Guests at a time.
    pub threads: usize,
    /// Return addresses by frame pointers, where the kernel has no tables for that.
    pub has_stacks: bool,
    /// Which crash images.
    pub images: &'a ImagesConfig,
    /// Whether recoveries crash, too.
    pub in_recovery: CrashesInGuests<'a>,
    /// What no hint is about.
    pub exclude: &'a [Exclusion],
    /// Functions of the guest's kernel, for reports
    /// ([`Snapshot::kernel_symbols`](crate::guest::Snapshot::kernel_symbols)).
    pub symbols: Option<&'a KernelSymbols>,
    /// No recovery begins after this.
    pub deadline: Option<Instant>,
    /// Told of each recovery.
    pub progress: &'a (dyn Fn(&Step<'_>) + Sync),
}

/// A guest with the tracer, with more options of its own, each after a comma, and with disks on these files.
/// The trace is the file `trace` of the guest's folder.
pub(super) fn traced(
    setting: &GuestSetting<'_>,
    options: &str,
    pm_image: Option<PathBuf>,
    disks: &[PathBuf],
) -> Result<Restore> {
    let mib = setting.traced.config().pm_bytes >> 20;
    let mut plugin: OsString = setting.plugin.into();
    plugin.push(format!(",out=trace,ram=ram,pm={PM_START:#x}+{mib}M{options}"));
    let mut nvme = Vec::new();
    for disk in disks {
        let len_bytes = std::fs::metadata(disk).map_err(CheckError::file("read", disk))?.len();
        let image = absolute(disk)?;
        plugin.push(format!(",disk={len_bytes}@{}", value_of(&image)));
        nvme.push(Nvme { image });
    }
    Ok(Restore { pm_image, qemu_arguments: vec!["-plugin".into(), plugin], nvme })
}

/// Options of the tracer, each after a comma: return addresses, as far as the guest's kernel lets them be
/// found.
pub(super) fn stacks(setting: &GuestSetting<'_>) -> Result<String> {
    let orc = setting.traced.frames()?.map(|tables| format!(",orc={}", value_of(&tables)));
    let pointers = if setting.has_stacks { ",stack=on" } else { "" };
    Ok(format!("{pointers}{}", orc.unwrap_or_default()))
}

/// A comma in a value is written twice.
fn value_of(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
