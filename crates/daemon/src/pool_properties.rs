//! Properties of the pool itself.

use fastness_base::ErrorKind;
use fastness_store::{FailMode, Feature};

use crate::node::Node;
use crate::protocol::Failure;
use crate::report::PropertyReport;

const FAILMODE: &str = "failmode";
const FEATURE: &str = "feature@";

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
        std::iter::once(failmode).chain(Feature::ALL.map(feature)).collect()
    }

    /// Durable on return.
    pub(crate) fn set_pool_property(&self, property: &str, value: &str) -> Result<(), Failure> {
        if property != FAILMODE {
            let why = if property.starts_with(FEATURE) {
                "a feature becomes active when it is used"
            } else {
                "a pool has the property failmode; those of datasets are set with `fastness dataset set`"
            };
            let text = format!("{property} cannot be set: {why}");
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        }
        let mode: FailMode = value.parse()?;
        let pool = self.pool();
        let ((), txg) = pool.transact(|tx| pool.set_fail_mode(tx, mode))?;
        pool.wait_synced(txg)?;
        self.journal.note(format!("failmode is {value}"));
        Ok(())
    }
}
