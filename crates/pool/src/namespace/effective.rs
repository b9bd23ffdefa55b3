//! Values of a dataset's properties with inherited ones filled in, for reading on every write: no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::namespace::props::{COUNT, Compression, LogBias, Property, SyncMode, Values};

/// Values that are in effect.
///
/// Concurrency: each value is read and set on its own; properties do not depend on each other. The tree of
/// datasets is locked where they are set.
#[derive(Debug)]
pub(crate) struct Effective([AtomicU64; COUNT]);

impl Default for Effective {
    /// The defaults of all properties.
    fn default() -> Self {
        Self(Property::ALL.map(|property| AtomicU64::new(property.default_value())))
    }
}

impl Effective {
    pub(crate) fn set(&self, values: &Values) {
        for property in Property::ALL {
            let value = values.get(property).unwrap_or(property.default_value());
            self.0[property as usize].store(value, Ordering::Release);
        }
    }

    pub(crate) fn get(&self, property: Property) -> u64 {
        self.0[property as usize].load(Ordering::Acquire)
    }

    /// All of them, for a dataset below.
    pub(crate) fn values(&self) -> Values {
        let mut all = Values::default();
        Property::ALL.into_iter().for_each(|property| all.set(property, Some(self.get(property))));
        all
    }

    pub(crate) fn compression(&self) -> Compression {
        match self.get(Property::Compression) {
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            _ => Compression::Off,
        }
    }

    pub(crate) fn sync(&self) -> SyncMode {
        match self.get(Property::Sync) {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }

    pub(crate) fn log_bias(&self) -> LogBias {
        if self.get(Property::LogBias) == 1 { LogBias::Throughput } else { LogBias::Latency }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.get(Property::ReadOnly) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_in_effect_and_the_rest_is_default() {
        let effective = Effective::default();
        assert_eq!((effective.sync(), effective.is_read_only()), (SyncMode::Standard, false));
        let mut parent = Values::default();
        parent.set(Property::Sync, Some(2));
        parent.set(Property::Quota, Some(7));
        effective.set(&Values::default().effective(Some(&parent.effective(None))));
        assert_eq!((effective.sync(), effective.get(Property::Quota)), (SyncMode::Disabled, 0));
        let mut own = Values::default();
        own.set(Property::Compression, Some(1));
        own.set(Property::ReadOnly, Some(1));
        effective.set(&own.effective(Some(&effective.values())));
        assert_eq!((effective.sync(), effective.compression()), (SyncMode::Disabled, Compression::Lz4));
        assert!(effective.is_read_only());
    }
}
