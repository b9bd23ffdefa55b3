//! Checks whether log regions show that the pool's devices are older copies.

use std::path::PathBuf;

use fastness_pool::Pool;
use fastness_store::{LogConfig, RegionWitness};

use crate::error::StartError;
use crate::journal::Journal;
use crate::node::NodeOptions;

/// Asks all regions with known paths: those given, those that the device search came across, and those that
/// the pool names. True: the devices are copies, and the caller consents to the loss.
///
/// # Errors
/// [`StoreError::Copy`](fastness_store::StoreError::Copy), without that consent.
pub(crate) fn is_earlier_copy(
    pool: &Pool,
    known: &LogConfig,
    options: &NodeOptions,
    journal: &Journal,
) -> Result<bool, StartError> {
    let given = options.log_paths.iter().chain(&options.witnesses);
    let paths = given.chain(known.regions.iter().map(|region| &region.path));
    match RegionWitness::ask(pool, paths.map(PathBuf::as_path)) {
        Err(error) if options.consent.missing => {
            journal
                .note(format!("{error}; the pool goes on as it is, and what became durable later is lost"));
            Ok(true)
        }
        asked => Ok(asked.map(|()| false)?),
    }
}
