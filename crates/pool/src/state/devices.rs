//! What the pool is made of, and what its labels say.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastness_sync::order::Mutex;

use crate::devices::config::PoolConfig;
use crate::devices::label::Uberblock;
use crate::devices::vdev::Vdevs;
use crate::ids::ImportId;
use crate::order;

/// Vdevs with their configuration.
pub(crate) struct Devices {
    pub(crate) vdevs: Arc<Vdevs>,
    pub(crate) config: Mutex<PoolConfig, { order::CONFIG }>,
    /// The last uberblock that is durable. Txg 0 if there is none yet.
    pub(crate) uberblock: Mutex<Uberblock, { order::UBERBLOCK }>,
    /// Held while devices come and go, until the labels say so, and when labels are written without
    /// `syncing`. Its holder waits for no transaction, so a transaction may wait for it. Taken after
    /// `syncing`.
    pub(crate) naming: Mutex<(), { order::NAMING }>,
    /// Labels could not be written: devices may disagree. The next txg writes them again.
    pub(crate) has_unsure_labels: AtomicBool,
    /// Of this import.
    pub(crate) import: ImportId,
    /// Whether the pool had been exported before.
    pub(crate) was_exported: bool,
}

impl Devices {
    /// With labels as they were found.
    pub(crate) fn new(
        vdevs: Arc<Vdevs>,
        config: PoolConfig,
        uberblock: Uberblock,
        was_exported: bool,
    ) -> Devices {
        Devices {
            vdevs,
            config: Mutex::new(config),
            uberblock: Mutex::new(uberblock),
            naming: Mutex::new(()),
            has_unsure_labels: AtomicBool::new(false),
            import: ImportId::random(),
            was_exported,
        }
    }
}
