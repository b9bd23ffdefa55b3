//! What a caller may ask for when opening a region.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::info::{PersistenceDomain, REGION_ALIGN_BYTES};
use crate::method::WriteMethod;
use crate::pkeys::Protection;

/// When a fence calls `msync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MsyncMode {
    /// On ordinary files, where nothing else reaches the medium.
    #[default]
    Auto,
    /// Never: an ordinary file then survives process crashes only.
    Never,
    /// On memory files too, where it makes nothing more durable; for tests.
    Always,
}

/// Called with the region offsets of the span before each `msync`; an error takes the place of the call.
pub type MsyncHook = Arc<dyn Fn(Range<u64>) -> io::Result<()> + Send + Sync>;

/// How to open a region; the default suits a real one.
#[derive(Clone)]
pub struct OpenOptions {
    pub(crate) min_len_bytes: u64,
    pub(crate) method: WriteMethod,
    pub(crate) msync: MsyncMode,
    pub(crate) protection: Protection,
    pub(crate) domain: Option<PersistenceDomain>,
    pub(crate) sysfs_root: PathBuf,
    pub(crate) mode: u32,
    pub(crate) msync_hook: Option<MsyncHook>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            min_len_bytes: REGION_ALIGN_BYTES,
            method: WriteMethod::Auto,
            msync: MsyncMode::Auto,
            protection: Protection::None,
            domain: None,
            sysfs_root: PathBuf::from("/sys"),
            mode: 0o600,
            msync_hook: None,
        }
    }
}

impl OpenOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses regions shorter than `bytes`.
    #[must_use]
    pub fn min_len_bytes(mut self, bytes: u64) -> Self {
        self.min_len_bytes = bytes.max(REGION_ALIGN_BYTES);
        self
    }

    /// Sets how bytes are stored.
    #[must_use]
    pub fn write_method(mut self, method: WriteMethod) -> Self {
        self.method = method;
        self
    }

    /// Sets when a fence calls `msync`.
    #[must_use]
    pub fn msync(mut self, mode: MsyncMode) -> Self {
        self.msync = mode;
        self
    }

    /// Asks for a guard against stray stores.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Overrides the persistence domain that sysfs reports.
    ///
    /// The caller vouches for it: a domain wider than the machine's loses data at a power cut. Emulated PM is
    /// not made durable by it.
    #[must_use]
    pub fn persistence_domain(mut self, domain: PersistenceDomain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Reads device attributes below `root` instead of `/sys`; for tests.
    #[must_use]
    pub fn sysfs_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.sysfs_root = root.into();
        self
    }

    /// Permission bits of a file that is created (before the umask); 0600 unless set.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Puts `hook` before every `msync`, so that a test can make one fail; not for production.
    #[must_use]
    pub fn testing_msync_hook(mut self, hook: MsyncHook) -> Self {
        self.msync_hook = Some(hook);
        self
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("min_len_bytes", &self.min_len_bytes)
            .field("method", &self.method)
            .field("msync", &self.msync)
            .field("protection", &self.protection)
            .field("domain", &self.domain)
            .field("sysfs_root", &self.sysfs_root)
            .field("mode", &format_args!("{:o}", self.mode))
            .field("msync_hook", &self.msync_hook.is_some())
            .finish()
    }
}
