//! The guest that `crashcheck fs` tests in.

use std::panic::resume_unwind;
use std::path::PathBuf;

use clap::Args;
use fastness_crashcheck::guest::{Addition, GuestConfig, Snapshot};
use fastness_crashcheck::run::{FileSystem, Suite};
use fastness_crashcheck::symbols::KernelLines;
use fastness_terminal::size;

use crate::error::{Context, Result, refuse};

/// Arguments that say which guest.
#[derive(Debug, Args)]
#[command(next_help_heading = "Guest")]
pub(crate) struct MachineArgs {
    /// Folder with the guest that scripts/crash-guest has built; default: target/crash-guest, or
    /// fastness/crash-guest in ~/.cache
    #[arg(long, value_name = "FOLDER")]
    guest: Option<PathBuf>,
    /// A kernel of your own (vmlinuz, bzImage), in place of the guest's
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Where the kernel's modules are: a folder with lib/modules/RELEASE, as `make modules_install` makes it
    #[arg(long, value_name = "FOLDER")]
    modules: Option<PathBuf>,
    /// The kernel's debug symbols: a vmlinux that has them, or a folder with that and modules (*.ko,
    /// *.ko.debug). Reports show lines of its source
    #[arg(long, value_name = "PATH")]
    debug_symbols: Option<PathBuf>,
    /// More for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    kernel_args: String,
    /// Persistent memory, up to 1600M; default: what the suite says, or 64M
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pm_size: Option<u64>,
    /// An archive (cpio) to unpack over the guest's root file system. May be repeated
    #[arg(long, value_name = "FILE")]
    initrd_extra: Vec<PathBuf>,
}

/// Guests that have booted.
pub(crate) struct Booted {
    /// For traces: time is instructions, so that all of a test is the same each time.
    pub(crate) traced: Snapshot,
    /// For recoveries: faster.
    pub(crate) snapshot: Snapshot,
}

impl MachineArgs {
    /// Lines of the kernel's source, if they are asked for.
    ///
    /// # Errors
    /// There are no debug symbols.
    pub(crate) fn lines(&self) -> Result<Option<KernelLines>> {
        let find = |path: &PathBuf| {
            let what = || format!("no debug symbols in {}", path.display());
            KernelLines::find(path).with_context(what)
        };
        self.debug_symbols.as_ref().map(find).transpose()
    }

    /// Boots the guests with what these file systems need, or takes those that were kept.
    ///
    /// # Errors
    /// What the kernel, this machine, or a file system's description lacks.
    pub(crate) fn boot(&self, suite: &Suite, systems: &[(&str, &FileSystem)]) -> Result<Booted> {
        let guest = self.guest.clone().unwrap_or_else(built_guest);
        let cache = guest.join("snapshots");
        let mut config = GuestConfig::new(&guest);
        config.kernel_arguments.clone_from(&self.kernel_args);
        if let Some(bytes) = self.pm_size.or(suite.pm_bytes) {
            config.set_pm(bytes)?;
        }
        let each = || systems.iter().map(|(_, system)| system);
        let addition = Addition {
            kernel: self.kernel.clone(),
            modules_folder: self.modules.clone(),
            modules: each().flat_map(|system| system.modules.iter().cloned()).collect(),
            programs: each().flat_map(|system| system.programs.iter().cloned()).collect(),
            files: suite.files.clone(),
            initrds: self.initrd_extra.clone(),
            has_disk: each().any(|system| system.disk_bytes.is_some()),
        };
        config.add(&addition, &cache)?;
        let repeatable = GuestConfig { repeatable: true, ..config.clone() };
        let boot = |config: &GuestConfig| Snapshot::cached(config, &cache);
        let (traced, snapshot) = std::thread::scope(|scope| {
            let traced = scope.spawn(|| boot(&repeatable));
            let snapshot = boot(&config);
            (traced.join().unwrap_or_else(|panic| resume_unwind(panic)), snapshot)
        });
        let [traced, snapshot] = [traced, snapshot].map(|booted| booted.context("the guest cannot be used"));
        let (traced, snapshot) = (traced?, snapshot?);
        let facts = snapshot.facts()?;
        for (name, system) in systems {
            if let Some(lack) = facts.lacks(&system.kind, &system.options) {
                return Err(refuse(format!("{name} cannot be tested in this guest: {lack}")));
            }
        }
        Ok(Booted { traced, snapshot })
    }
}

/// Where scripts/crash-guest puts a guest: in the target folder of the source, or in the user's cache if the
/// script is that of a package.
fn built_guest() -> PathBuf {
    let here = PathBuf::from("target/crash-guest");
    if here.is_dir() {
        return here;
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    cache.map_or(here, |cache| cache.join("fastness/crash-guest"))
}
