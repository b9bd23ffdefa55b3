//! What can go wrong with a guest.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastness_base::{ErrorKind, HasKind};

use super::kernel::hint;
use crate::symbols::KernelSymbolsError;

/// Why a guest failed. `console` is the end of its console's output; messages show less of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum GuestError {
    /// Not a machine that can be built.
    #[error("no such guest: {0}")]
    Config(String),
    /// A file or a socket.
    #[error("{what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// QEMU could not be started, or ended: a wrong argument, a kernel panic, a power-off.
    #[error("the guest has ended while {during}\n{qemu}{}", shown(console))]
    Ended { during: &'static str, qemu: String, console: String },
    /// It did not boot, and its console says why.
    #[error("the guest does not boot: {hint}\n{}", shown(console))]
    Boot { hint: &'static str, console: String },
    /// Its kernel has no persistent memory.
    #[error("the guest's kernel has no persistent memory: {hint}\n{}", shown(console))]
    NoPm { hint: &'static str, console: String },
    /// No answer. The guest is killed.
    #[error("no answer after {:.1} s while {during}\n{}", after.as_secs_f64(), shown(console))]
    TimedOut { during: &'static str, after: Duration, console: String },
    /// QEMU refused.
    #[error("QEMU refuses {command}: {reason}")]
    Qmp { command: &'static str, reason: String },
    /// QEMU does not speak QMP, or the agent does not speak its protocol.
    #[error("unexpected answer while {during}: {text}")]
    Protocol { during: &'static str, text: String },
    /// The table of its kernel's symbols.
    #[error(transparent)]
    Symbols(#[from] KernelSymbolsError),
    /// An image of another size than the guest's PM. Bytes.
    #[error("the image {} has {actual_bytes} bytes, but the guest's PM has {expected_bytes}", path.display())]
    ImageSize { path: PathBuf, actual_bytes: u64, expected_bytes: u64 },
}

/// The end of a console, for people.
fn shown(console: &str) -> &str {
    const BYTES: usize = 4000;
    let from = console.len().saturating_sub(BYTES);
    // Not in the middle of a character.
    (from..console.len()).find_map(|from| console.get(from..)).unwrap_or_default()
}

impl HasKind for GuestError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl GuestError {
    /// For a guest that has not booted: says what its kernel lacks, if the console tells.
    pub(super) fn with_hint(self) -> GuestError {
        match self {
            GuestError::Ended { ref console, .. } | GuestError::TimedOut { ref console, .. } => {
                match hint(console) {
                    Some(hint) => GuestError::Boot { hint, console: console.clone() },
                    None => self,
                }
            }
            other => other,
        }
    }

    /// For `map_err`.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| GuestError::Io { what, path, source }
    }
}
