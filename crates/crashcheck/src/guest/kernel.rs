//! Kernels that others have built: which release, which modules, and what they lack.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{GuestError, Result, read};
use crate::process;

/// For programs that find modules and unpack them.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);
/// Of a kernel, where its release is.
const HEAD_BYTES: u64 = 64 << 10;
/// The longest module, with debug symbols.
const MODULE_BYTES_MAX: u64 = 64 << 20;

/// What every guest needs, and the kernel's option for it.
const NEEDED: [(&str, &str); 4] = [
    ("virtio_pci", "CONFIG_VIRTIO_PCI"),
    ("virtio_console", "CONFIG_VIRTIO_CONSOLE"),
    ("nd_e820", "CONFIG_X86_PMEM_LEGACY"),
    ("nd_pmem", "CONFIG_BLK_DEV_PMEM"),
];
/// What a guest with a disk needs.
const DISK: (&str, &str) = ("nvme", "CONFIG_BLK_DEV_NVME");
/// What file systems ask for without saying so; a kernel has them or needs no such module.
const WELCOME: [&str; 2] = ["crc32c_generic", "crc32c_intel"];

/// The release of a kernel, as `uname -r` says it.
///
/// Layout: `HdrS` at 0x202, and at 0x20e where, from 0x200 on, the text is (16 bits, little endian). Source:
/// the kernel's `Documentation/arch/x86/boot.rst`.
///
/// # Errors
/// It is not a kernel for x86.
pub(super) fn release(kernel: &Path) -> Result<String> {
    let mut head = Vec::new();
    File::open(kernel)
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
        .map_err(GuestError::io("cannot read", kernel))?;
    let text = || {
        head.get(0x202..0x206).filter(|magic| *magic == b"HdrS")?;
        let at = usize::from(u16::from_le_bytes([*head.get(0x20e)?, *head.get(0x20f)?]));
        let text = head.get(at + 0x200..)?.split(|byte| *byte == 0 || *byte == b' ').next()?;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+~".contains(byte);
        (!text.is_empty() && text.iter().all(is_plain)).then(|| String::from_utf8_lossy(text).into_owned())
    };
    text().ok_or_else(|| {
        GuestError::Config(format!("{} is not a kernel for x86 (vmlinuz, bzImage)", kernel.display()))
    })
}

/// Of modules: which need which.
pub(super) const INDEX: &str = "modules.dep.bin";

/// The modules of one release.
#[derive(Debug)]
pub(super) struct Modules {
    /// The folder that `lib/modules` is in.
    root: PathBuf,
    release: String,
}

impl Modules {
    /// In a folder that has `lib/modules/RELEASE`, or is that.
    ///
    /// # Errors
    /// It has none for this release, or `depmod` has not looked at them.
    pub(super) fn of(folder: &Path, release: &str) -> Result<Modules> {
        let below = folder.join("lib/modules").join(release);
        let root = if below.is_dir() {
            folder.to_owned()
        } else if folder.ends_with(Path::new("lib/modules").join(release)) {
            folder.ancestors().nth(3).unwrap_or(folder).to_owned()
        } else {
            return Err(GuestError::Config(format!(
                "the kernel is {release}, and {} has no lib/modules/{release}",
                folder.display()
            )));
        };
        if !root.join("lib/modules").join(release).join(INDEX).is_file() {
            let root = root.display();
            return Err(GuestError::Config(format!(
                "the modules in {root} have no index: depmod -b {root} {release}"
            )));
        }
        Ok(Modules { root, release: release.to_owned() })
    }

    /// What is loaded before and with a module, in this order, none if it is built in; `None` if the kernel
    /// does not have it.
    ///
    /// # Errors
    /// `modprobe` cannot be run.
    pub(super) fn needed_by(&self, module: &str) -> Result<Option<Vec<PathBuf>>> {
        let mut command = Command::new("modprobe");
        // -C: what is configured on this machine is not for the guest.
        command.args(["-C", "/dev/null", "-S", &self.release, "-d"]).arg(&self.root);
        let done = run(command.args(["--show-depends", "--", module]))?;
        if !done.ending.is_success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        Ok(Some(
            text.lines()
                .filter_map(|line| line.strip_prefix("insmod "))
                .map(|path| path.trim().into())
                .collect(),
        ))
    }
}

/// Modules that a guest needs whatever it tests, in the order in which they are loaded.
///
/// # Errors
/// The kernel lacks one: the message names it, and the kernel's option.
pub(super) fn basic_modules(modules: &Modules, has_disk: bool) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for (module, option) in NEEDED.into_iter().chain(has_disk.then_some(DISK)) {
        let found = modules.needed_by(module)?;
        all.extend(found.ok_or_else(|| {
            GuestError::Config(format!(
                "the kernel {} has no {module}, neither as a module nor built in: build it with {option}",
                modules.release
            ))
        })?);
    }
    for module in WELCOME {
        all.extend(modules.needed_by(module)?.unwrap_or_default());
    }
    Ok(all)
}

/// The contents of a module, unpacked, and what it is called without what says how it was packed.
///
/// # Errors
/// It cannot be read or unpacked, or is too long.
pub(super) fn module(path: &Path) -> Result<(String, Vec<u8>)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let packed = [(".xz", "xz"), (".zst", "zstd"), (".gz", "gzip")];
    let packed =
        packed.iter().find_map(|(end, program)| Some((name.strip_suffix(end)?.to_owned(), *program)));
    let Some((name, program)) = packed else { return Ok((name, read(path, MODULE_BYTES_MAX)?)) };
    let done = run(Command::new(program).arg("-dc").arg("--").arg(path))?;
    if !done.ending.is_success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(GuestError::Config(format!("{program} cannot unpack {}: {said}", path.display())));
    }
    Ok((name, done.stdout))
}

/// Runs a program of this machine.
pub(super) fn run(command: &mut Command) -> Result<process::Output> {
    let program = PathBuf::from(command.get_program());
    process::run(command, &[], PROGRAM_TIMEOUT).map_err(GuestError::io("cannot run", &program))
}

/// What the console of a guest that did not boot says about its kernel.
pub(super) fn hint(console: &str) -> Option<&'static str> {
    let says = |text: &str| console.contains(text);
    if console.trim().is_empty() {
        Some(
            "nothing came over its serial console: a guest's kernel needs CONFIG_SERIAL_8250_CONSOLE, \
             CONFIG_BLK_DEV_INITRD, CONFIG_BINFMT_ELF, CONFIG_BINFMT_SCRIPT and CONFIG_DEVTMPFS",
        )
    } else if says("Unable to mount root fs") || says("No working init") || says("Failed to execute /init") {
        Some("a guest's kernel needs CONFIG_BLK_DEV_INITRD, CONFIG_BINFMT_ELF and CONFIG_BINFMT_SCRIPT")
    } else if says("crash-guest: nobody to serve") {
        Some("a guest's kernel needs CONFIG_VIRTIO_PCI and CONFIG_VIRTIO_CONSOLE, built in or from --modules")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
