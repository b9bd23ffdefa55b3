//! The configuration of a guest, and of one restore.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::nvme::Nvme;
use super::{GuestError, Result};

/// Physical address of the first byte of PM, and its offset in the RAM file.
pub const PM_START: u64 = 256 << 20;
const MIB: u64 = 1 << 20;
/// Beyond this size q35 splits RAM, and addresses no longer equal offsets.
const RAM_MAX: u64 = 2 << 30;
/// RAM after PM, where the initramfs is put.
const MORE_RAM: u64 = 192 << 20;

/// A machine. All guests of a snapshot have these in common.
#[derive(Debug, Clone)]
pub struct GuestConfig {
    /// Kernel and initramfs, as `scripts/crash-guest` makes them.
    pub kernel: PathBuf,
    /// See `kernel`.
    pub initrd: PathBuf,
    /// RAM with the PM in it, in bytes: a multiple of 1 MiB, at most 2 GiB.
    pub ram_bytes: u64,
    /// PM, in bytes: a multiple of 2 MiB, which ends in the RAM.
    pub pm_bytes: u64,
    /// Time is instructions (`-icount`): the same commands give the same trace. Slower to boot, and idle time
    /// passes at once.
    pub repeatable: bool,
    /// Where folders of guests are made: on memory, with room for the RAM of each.
    pub folder: PathBuf,
    /// The program.
    pub qemu: PathBuf,
    /// More for the kernel's command line.
    pub kernel_arguments: String,
    /// For the boot, until the agent says hello.
    pub boot_timeout: Duration,
}

impl GuestConfig {
    /// The guest that `scripts/crash-guest` has built in `folder`: 512 MiB of RAM, of which 64 MiB are PM.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let built: PathBuf = folder.into();
        Self {
            kernel: built.join("vmlinuz"),
            initrd: built.join("initrd"),
            ram_bytes: 512 * MIB,
            pm_bytes: 64 * MIB,
            repeatable: false,
            folder: PathBuf::from("/dev/shm"),
            qemu: PathBuf::from("qemu-system-x86_64"),
            kernel_arguments: String::new(),
            boot_timeout: Duration::from_secs(180),
        }
    }

    /// Sets the length of PM, and of RAM so that there is enough of it besides.
    ///
    /// # Errors
    /// It is not whole 2 MiB, or too much.
    pub fn set_pm(&mut self, bytes: u64) -> Result<()> {
        let most = RAM_MAX - PM_START - MORE_RAM;
        if bytes == 0 || bytes > most || !bytes.is_multiple_of(2 * MIB) {
            let most = most / MIB;
            return Err(GuestError::Config(format!(
                "PM of {bytes} bytes: whole 2 MiB up to {most}M are expected"
            )));
        }
        self.pm_bytes = bytes;
        self.ram_bytes = (PM_START + bytes + MORE_RAM).max(512 * MIB);
        Ok(())
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(GuestError::Config(text));
        if !self.ram_bytes.is_multiple_of(MIB) || self.ram_bytes > RAM_MAX {
            return wrong(format!("RAM of {} bytes is not whole MiB up to 2 GiB", self.ram_bytes));
        }
        if self.pm_bytes == 0 || !self.pm_bytes.is_multiple_of(2 * MIB) {
            return wrong(format!("PM of {} bytes is not whole 2 MiB", self.pm_bytes));
        }
        if self.pm_bytes.checked_add(PM_START).is_none_or(|end| end > self.ram_bytes) {
            return wrong(format!(
                "PM of {} bytes at 256 MiB is not in {} bytes of RAM",
                self.pm_bytes, self.ram_bytes
            ));
        }
        for file in [&self.kernel, &self.initrd] {
            if !file.is_file() {
                return wrong(format!("there is no {}: run scripts/crash-guest", file.display()));
            }
        }
        if self.folder.as_os_str().len() > 60 || self.folder.to_string_lossy().contains(',') {
            return wrong(format!("{} is too long for sockets, or has a comma", self.folder.display()));
        }
        Ok(())
    }

    /// The kernel's command line: nothing random, a panic ends the machine, pages are not cleared twice, and
    /// what makes processes slow in software emulation is off. With one CPU a kernel would patch its LOCK
    /// prefixes away, which are fences on any machine with more.
    pub(super) fn command_line(&self) -> String {
        // For the guest's init. A kernel draws a new key for its random numbers after half of its uptime, and
        // from two minutes on once in one: then rarely during a test.
        let idle = if self.repeatable { "CRASH_GUEST_IDLE_S=130 " } else { "" };
        format!(
            "console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr mitigations=off tsc=reliable noreplace-smp random.trust_cpu=off \
             init_on_alloc=0 no5lvl lsm= audit=0 cgroup_disable=memory printk.devkmsg=on memmap={}M!{}M {idle}{}",
            self.pm_bytes / MIB,
            PM_START / MIB,
            self.kernel_arguments
        )
    }

    /// Arguments of QEMU that are the same in each of its runs.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let ram_mib = self.ram_bytes / MIB;
        let memory = format!("memory-backend-file,id=ram,size={ram_mib}M,mem-path=ram,share=on");
        let mut arguments: Vec<OsString> = [
            "-nodefaults -no-user-config -display none -no-reboot -S -M q35,memory-backend=ram -smp 1 -accel tcg",
            // Their random numbers are this machine's, and the kernel mixes them into its own.
            "-cpu max,-rdrand,-rdseed",
            "-serial file:console -qmp unix:qmp,server=on,wait=off -device virtio-serial-pci",
            "-chardev socket,id=agent,path=agent,server=on,wait=off -device virtserialport,chardev=agent,name=agent",
            // Slots for drives that are plugged in afterwards.
            "-device pcie-root-port,id=slot0,chassis=1,slot=1 -device pcie-root-port,id=slot1,chassis=2,slot=2",
            if self.repeatable { "-icount shift=1,sleep=off -rtc base=2020-01-01,clock=vm" } else { "" },
        ]
        .iter()
        .flat_map(|words| words.split_whitespace())
        .map(OsString::from)
        .collect();
        arguments.extend(["-m".into(), format!("{ram_mib}M").into(), "-object".into(), memory.into()]);
        // QEMU runs in another folder.
        let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        arguments.extend(["-kernel".into(), absolute(&self.kernel).into()]);
        arguments.extend(["-initrd".into(), absolute(&self.initrd).into()]);
        arguments.extend(["-append".into(), self.command_line().into()]);
        arguments
    }
}

/// What is particular to one restore.
#[derive(Debug, Clone, Default)]
pub struct Restore {
    /// What is in PM: a file of its size. Without one PM is as it was after the boot, all zeroes.
    pub pm_image: Option<PathBuf>,
    /// More arguments for QEMU, as `-plugin FILE,ARGUMENTS`. They may not change the machine. QEMU runs in
    /// the guest's folder ([`Guest::folder`](super::Guest::folder)), where the RAM is the file `ram`: so a
    /// plug-in finds it, and its own output goes with the guest unless it is taken away by
    /// [`Guest::quit_and`](super::Guest::quit_and).
    pub qemu_arguments: Vec<OsString>,
    /// Drives that are plugged in before the guest runs on; two at most.
    pub nvme: Vec<Nvme>,
}
