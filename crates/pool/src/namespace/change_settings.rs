//! Properties and features of a pool in use.

use crate::error::{PoolError, Result};
use crate::namespace::settings::{
    AUTOEXPAND, AUTOTRIM, FAILMODE, FailMode, Feature, LOGDATA, LogData, SETTINGS, Settings,
};
use crate::pool::{Pool, Tx};
use crate::state::Shared;
use fastness_sync::order::{lock, read};

impl Shared {
    /// Changes the settings in a transaction; changes must be in the order of their txgs.
    fn change_settings(&self, tx: &Tx, change: impl FnOnce(&mut Settings)) -> Result<()> {
        let root = read(&self.datasets.namespace).root().ok_or(PoolError::Closed)?;
        let mut settings = lock(&self.datasets.settings);
        let (newest, mut next) = (settings.0, settings.1.clone());
        if newest > tx.txg() {
            return Err(PoolError::Overtaken { txg: tx.txg(), newest });
        }
        change(&mut next);
        self.txgs.changes(tx.txg()).aux.insert((root, SETTINGS.to_vec()), Some(next.encode()));
        *settings = (tx.txg(), next);
        Ok(())
    }

    /// As [`activate`](Self::activate), or says that only a newer txg may do it.
    pub(super) fn need(&self, tx: &Tx, feature: Feature) -> Result<()> {
        match self.activate(tx, feature) {
            true => Ok(()),
            false => Err(PoolError::Overtaken { txg: tx.txg(), newest: self.txgs.pipeline.open_txg() }),
        }
    }

    /// Records that the media need a feature, at the latest with the transaction. `false` if only a newer txg
    /// may record it.
    pub(crate) fn activate(&self, tx: &Tx, feature: Feature) -> bool {
        {
            let settings = lock(&self.datasets.settings);
            if settings.1.is_active(feature) {
                return settings.0 <= tx.txg();
            }
        }
        self.change_settings(tx, |settings| settings.set_active(feature, true)).is_ok()
    }
}

impl Pool {
    /// What happens to requests when the pool is suspended. The pool itself never waits: its owner does.
    pub fn fail_mode(&self) -> FailMode {
        lock(&self.shared.datasets.settings).1.fail_mode()
    }

    /// Sets the fail mode; durable with the transaction.
    ///
    /// # Errors
    /// [`PoolError::Overtaken`].
    pub fn set_fail_mode(&self, tx: &Tx, mode: FailMode) -> Result<()> {
        let value = u64::from(mode == FailMode::Continue);
        self.shared.change_settings(tx, |settings| {
            settings.properties.insert(FAILMODE.to_owned(), value);
        })
    }

    /// Whether the pool is to use devices that have grown without being told; its owner does that.
    pub fn is_expanding(&self) -> bool {
        lock(&self.shared.datasets.settings).1.is_expanding()
    }

    /// Sets whether the pool is to use devices that have grown; durable with the transaction.
    ///
    /// # Errors
    /// [`PoolError::Overtaken`].
    pub fn set_expanding(&self, tx: &Tx, is_expanding: bool) -> Result<()> {
        self.shared.change_settings(tx, |settings| {
            settings.properties.insert(AUTOEXPAND.to_owned(), u64::from(is_expanding));
        })
    }

    /// Whether what is freed is to be discarded without being told; its owner does that.
    pub fn is_trimming(&self) -> bool {
        lock(&self.shared.datasets.settings).1.is_trimming()
    }

    /// Sets whether what is freed is to be discarded; durable with the transaction.
    ///
    /// # Errors
    /// [`PoolError::Overtaken`].
    pub fn set_trimming(&self, tx: &Tx, is_trimming: bool) -> Result<()> {
        self.shared.change_settings(tx, |settings| {
            settings.properties.insert(AUTOTRIM.to_owned(), u64::from(is_trimming));
        })
    }

    /// Where the bytes of synchronous writes of whole blocks are until their txg has synced.
    #[inline]
    pub fn log_data(&self) -> LogData {
        if self.shared.blocks.logs.is_only_copy() { LogData::Pm } else { LogData::Both }
    }

    /// Sets where they are, of writes from now on; durable with the transaction.
    ///
    /// # Errors
    /// [`PoolError::Overtaken`].
    pub fn set_log_data(&self, tx: &Tx, log_data: LogData) -> Result<()> {
        let is_only_copy = log_data == LogData::Pm;
        self.shared.change_settings(tx, |settings| {
            settings.properties.insert(LOGDATA.to_owned(), u64::from(is_only_copy));
        })?;
        self.shared.blocks.logs.set_only_copy(is_only_copy);
        Ok(())
    }

    /// Whether the media need a feature.
    pub fn is_active(&self, feature: Feature) -> bool {
        lock(&self.shared.datasets.settings).1.is_active(feature)
    }

    /// Records that the media need a feature, or no longer do: in the transaction that stores or removes what
    /// the feature stands for.
    ///
    /// # Errors
    /// [`PoolError::Overtaken`].
    pub fn set_feature(&self, tx: &Tx, feature: Feature, is_active: bool) -> Result<()> {
        if self.is_active(feature) == is_active {
            return Ok(());
        }
        self.shared.change_settings(tx, |settings| settings.set_active(feature, is_active))
    }
}
