//! Pools that do not run, opened to be looked at.

use std::path::PathBuf;
use std::sync::Arc;

use fastness_daemon::{Control, PATIENCE, control_socket, find_devices, run_dir};
use fastness_store::{ImportOptions, MissingLog, Pool, PoolOptions};

use crate::error::Result;
use crate::start::tell_search;

/// Whether a pool runs.
pub(crate) fn is_running(name: &str) -> Result<bool> {
    Ok(Control::is_alive(&control_socket(&run_dir()?, name)?))
}

/// Opens a pool that does not run, in the state of its last synced txg. Nothing is changed, neither on its
/// devices nor in its log, which is not looked at.
pub(crate) fn open(name: &str, places: &[PathBuf]) -> Result<Arc<Pool>> {
    let devices = find_devices(name, places, PATIENCE, &mut tell_search)?.devices;
    // Nothing is changed, so any state may be examined.
    let import = ImportOptions {
        is_forced: true,
        allows_degraded: true,
        missing_log: MissingLog::Drop,
        ..ImportOptions::default()
    };
    let options = PoolOptions { is_read_only: true, ..PoolOptions::default() };
    Ok(Arc::new(Pool::import_paused(&devices, &import, options)?))
}
