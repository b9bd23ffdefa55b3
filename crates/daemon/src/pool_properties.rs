//! Properties of the pool itself.

use fastness_base::ErrorKind;
use fastness_store::{FailMode, Feature, LogData, Pool, PoolError, Tx, VdevClass};

use crate::dataset_report::PropertyReport;
use crate::node::Node;
use crate::protocol::Failure;

const FAILMODE: &str = "failmode";
const AUTOEXPAND: &str = "autoexpand";
const AUTOTRIM: &str = "autotrim";
const LOGDATA: &str = "logdata";
const FEATURE: &str = "feature@";

/// A property of a pool that can be set, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolSetting {
    /// Whether devices that have grown are used.
    AutoExpand(bool),
    /// Whether what is freed is discarded.
    AutoTrim(bool),
    /// What requests see while the pool is suspended.
    FailMode(FailMode),
    /// Where synchronous writes are until their txg has synced.
    LogData(LogData),
}

impl PoolSetting {
    /// The setting of that name; `None` if there is none.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a value that it cannot have.
    pub fn parse(name: &str, value: &str) -> Result<Option<PoolSetting>, PoolError> {
        Ok(Some(match name {
            AUTOEXPAND => PoolSetting::AutoExpand(is_on("autoexpand (on, off)", value)?),
            AUTOTRIM => PoolSetting::AutoTrim(is_on("autotrim (on, off)", value)?),
            FAILMODE => PoolSetting::FailMode(value.parse()?),
            LOGDATA => PoolSetting::LogData(value.parse()?),
            _ => return Ok(None),
        }))
    }

    /// Sets it; durable with the transaction.
    ///
    /// # Errors
    /// [`PoolError::Overtaken`].
    pub fn set(self, pool: &Pool, tx: &Tx) -> Result<(), PoolError> {
        match self {
            PoolSetting::AutoExpand(is_on) => pool.set_expanding(tx, is_on),
            PoolSetting::AutoTrim(is_on) => pool.set_trimming(tx, is_on),
            PoolSetting::FailMode(mode) => pool.set_fail_mode(tx, mode),
            PoolSetting::LogData(log_data) => pool.set_log_data(tx, log_data),
        }
    }
}

fn is_on(what: &'static str, value: &str) -> Result<bool, PoolError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(PoolError::invalid(what, value)),
    }
}

impl Node {
    pub(crate) fn pool_properties(&self) -> Vec<PropertyReport> {
        let pool = self.pool();
        let report = |name: String, value: &str, is_default: bool| PropertyReport {
            name,
            value: value.to_owned(),
            source: if is_default { "default" } else { "local" }.to_owned(),
        };
        let mode = pool.fail_mode();
        let feature = |feature: Feature| {
            let is_active = pool.is_active(feature);
            let value = if is_active { "active" } else { "enabled" };
            report(format!("{FEATURE}{}", feature.name()), value, !is_active)
        };
        let failmode = report(FAILMODE.to_owned(), mode.name(), mode == FailMode::default());
        let autoexpand = if pool.is_expanding() { "on" } else { "off" };
        let autoexpand = report(AUTOEXPAND.to_owned(), autoexpand, !pool.is_expanding());
        let autotrim = if pool.is_trimming() { "on" } else { "off" };
        let autotrim = report(AUTOTRIM.to_owned(), autotrim, !pool.is_trimming());
        let log_data = pool.log_data();
        let logdata = report(LOGDATA.to_owned(), &log_data.to_string(), log_data == LogData::default());
        [autoexpand, autotrim, failmode, logdata].into_iter().chain(Feature::ALL.map(feature)).collect()
    }

    /// Durable on return.
    pub(crate) fn set_pool_property(&self, property: &str, value: &str) -> Result<(), Failure> {
        let pool = self.pool();
        let Some(setting) = PoolSetting::parse(property, value)? else {
            let why = if property.starts_with(FEATURE) {
                "a feature becomes active when it is used"
            } else {
                "a pool has the properties autoexpand, autotrim, failmode and logdata; those of datasets are set with \
                 `fastness dataset set`"
            };
            let text = format!("{property} cannot be set: {why}");
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        };
        if let PoolSetting::AutoTrim(is_on) = setting {
            pool.note_freed(is_on);
        }
        let ((), txg) = pool.transact(|tx| setting.set(&pool, tx))?;
        pool.wait_synced(txg)?;
        self.journal.note(format!("{property} is {value}"));
        self.expand_all();
        Ok(())
    }

    /// Uses what devices have grown by, if the pool is to; notes what it did.
    pub(crate) fn expand_all(&self) {
        let pool = self.pool();
        if !pool.is_expanding() || self.options.pool.is_read_only {
            return;
        }
        let vdevs = pool.status().vdevs.into_iter().filter(|(_, class, _)| *class == VdevClass::Normal);
        for (_, _, sides) in vdevs {
            let Some(side) = sides.first() else { continue };
            match pool.expand(side.guid) {
                Ok(0) => {}
                Ok(bytes) => self.journal.note(format!("{} has {bytes} bytes more", side.path)),
                Err(error) => {
                    self.journal.warn(format!(
                        "{} does not grow: {}",
                        side.path,
                        fastness_base::chain(&error)
                    ));
                }
            }
        }
    }
}
