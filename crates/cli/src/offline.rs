//! Pools that do not run, opened to be looked at.

use std::path::PathBuf;
use std::sync::Arc;

use fastness_daemon::{Among, Control, PATIENCE, control_socket, find_devices, run_dir};
use fastness_store::survey::import_to_look;
use fastness_store::{Device, Pool};

use crate::error::Result;
use crate::start::tell_search;

/// Whether a pool runs.
pub(crate) fn is_running(name: &str) -> Result<bool> {
    Ok(Control::is_alive(&control_socket(&run_dir()?, name)?))
}

/// The devices of a pool that does not run; which are found is told meanwhile.
pub(crate) fn devices(name: &str, places: &[PathBuf]) -> Result<Vec<Device>> {
    Ok(find_devices(name, places, Among::Existing, PATIENCE, &mut tell_search)?.devices)
}

/// Opens a pool that does not run, in the state of its last synced txg. Nothing is changed, neither on its
/// devices nor in its log, which is not looked at.
pub(crate) fn open(name: &str, places: &[PathBuf]) -> Result<Arc<Pool>> {
    Ok(import_to_look(&devices(name, places)?)?)
}
