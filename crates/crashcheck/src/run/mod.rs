//! A whole test: the program is traced, crash images are made and recovered, and the states are judged.

mod analysis;
mod config;
mod file_system;
mod guest_crashes;
mod guest_reads;
mod lines_read;
mod setting;
mod suite;
mod user;

pub use analysis::{Analysis, Limits};
pub use config::{
    HintsConfig, INPUT_FILE, ImagesConfig, NonTemporalConfig, OPERATIONS_FILE, OperationsConfig,
    OracleConfig, PersistenceConfig, PickConfig, PmConfig, RECOVERY_CRASHES_MAX, RECOVERY_IMAGES,
    RecoverConfig, Test, TraceConfig,
};
pub use file_system::{FileSystem, FileTest, Work, analyse_in_guest, run_in_guest, trace_in_guest};
pub use setting::{CrashesInGuests, GuestSetting};
pub use suite::{BUILT_IN, SUITE_FILE, Suite};
pub use user::{Setting, TracedRecovery};

#[cfg(test)]
mod logged_tests;
#[cfg(test)]
mod tests;
