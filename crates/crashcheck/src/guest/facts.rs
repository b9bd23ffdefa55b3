//! What the kernel of a guest has, as it says itself.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Guest, GuestError, Result};

/// Shell: the release, whether PM can be used with DAX, and the names of file systems, a line each.
pub(super) const QUESTION: &str = "\
uname -r; cat /sys/block/pmem0/queue/dax 2>/dev/null || echo 0; sed 's/.*\\t//' /proc/filesystems";
/// Shell: forgets what the boot has read, and looks for PM.
const READY: &str = "sync; echo 3 > /proc/sys/vm/drop_caches; test -b /dev/pmem0";
const MESSAGES: &str = "dmesg | grep -E -i 'pmem|nvdimm|memremap|nd_|e820' | tail -n 8";
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the kernel of a guest has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// As `uname -r` says.
    pub release: String,
    /// PM can be mapped directly.
    pub has_dax: bool,
    /// Names of file systems.
    pub types: BTreeSet<String>,
}

impl Facts {
    /// Reads what the guest says; `None` if that is something else.
    pub(super) fn parse(text: &str) -> Option<Facts> {
        let mut lines = text.lines();
        let release = lines.next().filter(|release| !release.is_empty())?.to_owned();
        let has_dax = match lines.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        Some(Facts { release, has_dax, types: lines.map(str::to_owned).collect() })
    }

    /// What the kernel lacks to mount a file system `kind` with these mount options.
    pub fn lacks(&self, kind: &str, options: &str) -> Option<String> {
        let release = &self.release;
        if !self.types.contains(kind) {
            return Some(format!(
                "its kernel {release} has no file system {kind}: name its module in the suite's key `modules`, \
                 or build it in"
            ));
        }
        let wants_dax = options.split(',').any(|option| option == "dax" || option.starts_with("dax="));
        (wants_dax && !self.has_dax && !options.split(',').any(|option| option == "dax=never")).then(|| {
            format!(
                "its kernel {release} cannot map persistent memory, which the mount options {options} ask for: \
                 it needs CONFIG_FS_DAX and CONFIG_ZONE_DEVICE"
            )
        })
    }
}

/// Makes sure that a guest that has booted has PM.
///
/// # Errors
/// [`GuestError::NoPm`]: what its kernel lacks.
pub(super) fn has_pm(guest: &mut Guest) -> Result<()> {
    if guest.command(READY, TIMEOUT)?.is_success() {
        return Ok(());
    }
    let console = guest.command(MESSAGES, TIMEOUT)?.text();
    Err(GuestError::NoPm { hint: hint(&console), console })
}

/// Why a kernel with these messages has no PM.
fn hint(messages: &str) -> &'static str {
    if messages.contains("mixed region") || messages.contains("memremap") {
        "one before Linux 5.3 cannot use PM that shares 128 MiB with RAM; give --pm-size 128M or a multiple of it"
    } else {
        "it needs CONFIG_X86_PMEM_LEGACY (nd_e820) and CONFIG_BLK_DEV_PMEM (nd_pmem), built in or from --modules"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_named() {
        let facts = Facts::parse("6.1.0-44-amd64\n0\nsysfs\next4\n").unwrap();
        assert_eq!(facts.lacks("ext4", "rw"), None);
        assert_eq!(facts.lacks("ext4", "dax=never"), None);
        let said = |kind, options| facts.lacks(kind, options).unwrap();
        assert!(said("nova", "rw").contains("6.1.0-44-amd64 has no file system nova"));
        for options in ["dax", "rw,dax=always", "dax=inode"] {
            assert!(said("ext4", options).contains("CONFIG_FS_DAX"), "{options}");
        }
        let able = Facts { has_dax: true, ..facts };
        assert_eq!(able.lacks("ext4", "dax"), None);
    }

    #[test]
    fn other_answers_are_none() {
        for text in ["", "\n1\n", "6.1", "6.1\nyes\next4\n"] {
            assert_eq!(Facts::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_kernel_without_pm_says_why() {
        assert!(
            hint("nd_pmem namespace0.0: devm_memremap_pages attempted on mixed region").contains("--pm-size")
        );
        assert!(hint("").contains("CONFIG_X86_PMEM_LEGACY"));
    }
}
