//! A pool's own settings, besides its datasets: properties of the pool, and which features its media need.
//!
//! Features: a program that stores something which an older one would overlook or misread makes a feature
//! *active*, in the transaction that stores it. An import refuses a pool with an active feature that it does
//! not know, by name. A feature that the program knows and the pool does not need is *enabled*. Changes to
//! labels, page map and tables themselves, which are read before the settings, have their own versions
//! (`label`, `tables`).
//!
//! Layout: `docs/format.md`, section "Settings of a pool". Source: OpenZFS, zpool-features(7), zpoolprops(7).

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::codec::{Reader, Writer, checksum};
use crate::error::{PoolError, Result};

/// Key of the settings, in the root dataset's aux data.
pub(crate) const SETTINGS: &[u8] = b"pool";
const VERSION: u16 = 1;
/// Most entries: a bound for what is read.
const ENTRIES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;
const PROPERTY: u8 = 1;
const FEATURE: u8 = 2;
const READ_ONLY_COMPATIBLE: u8 = 1;
pub(super) const FAILMODE: &str = "failmode";
pub(super) const AUTOEXPAND: &str = "autoexpand";
pub(super) const AUTOTRIM: &str = "autotrim";
pub(super) const LOGDATA: &str = "logdata";

/// Where the bytes of a synchronous write of whole blocks are until its txg has synced, if the log is in
/// persistent memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogData {
    /// In the log, and in memory as well: what a region loses meanwhile is not lost.
    #[default]
    Both,
    /// In the log alone.
    Pm,
}

impl std::str::FromStr for LogData {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<LogData, PoolError> {
        match text {
            "both" => Ok(LogData::Both),
            "pm" => Ok(LogData::Pm),
            _ => Err(PoolError::invalid("logdata (both, pm)", text)),
        }
    }
}

impl std::fmt::Display for LogData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LogData::Both => "both",
            LogData::Pm => "pm",
        })
    }
}

/// What happens to requests when a txg could not be made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailMode {
    /// They wait until the devices are back and the pool has been cleared, or until the process is told to
    /// end.
    #[default]
    Wait,
    /// They fail at once.
    Continue,
}

impl FailMode {
    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            FailMode::Wait => "wait",
            FailMode::Continue => "continue",
        }
    }
}

impl FromStr for FailMode {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<FailMode> {
        let known = [FailMode::Wait, FailMode::Continue].into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| PoolError::invalid("failmode (wait, continue)", text))
    }
}

/// Something on media that an older program does not understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// The pool's description names a log device: acknowledged writes may be on it and nowhere else.
    LogDevice,
    /// Several blocks may be stored in one place: who frees one has to look at how many there are.
    SharedBlocks,
    /// Volumes have had snapshots: a block that a row no longer has may still be needed.
    Snapshots,
    /// Volumes have begun as clones: what has no row may be stored all the same.
    Clones,
    /// File systems have had snapshots: rows and objects as they were are kept beside the current ones.
    FileSystemSnapshots,
    /// Volumes have room of their own, and what snapshots have of them is counted (`thick`).
    ThickVolumes,
}

impl Feature {
    /// All features that this program knows.
    pub const ALL: [Feature; 6] = [
        Feature::LogDevice,
        Feature::SharedBlocks,
        Feature::Snapshots,
        Feature::Clones,
        Feature::FileSystemSnapshots,
        Feature::ThickVolumes,
    ];

    /// Name as stored.
    pub fn name(self) -> &'static str {
        match self {
            Feature::LogDevice => "log_device",
            Feature::SharedBlocks => "shared_blocks",
            Feature::Snapshots => "snapshots",
            Feature::Clones => "clones",
            Feature::FileSystemSnapshots => "file_system_snapshots",
            Feature::ThickVolumes => "thick_volumes",
        }
    }

    /// Whether a program that does not know the feature may read the pool: all that it knows is where it
    /// always is.
    pub(super) fn is_read_only_compatible(self) -> bool {
        match self {
            Feature::LogDevice | Feature::SharedBlocks | Feature::ThickVolumes => true,
            Feature::Snapshots | Feature::FileSystemSnapshots => true,
            Feature::Clones => false,
        }
    }
}

/// What is stored. Unknown entries are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(super) properties: BTreeMap<String, u64>,
    /// Active features, and whether a program without them may read the pool.
    pub(super) features: BTreeMap<String, bool>,
}

fn is_name(name: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_:.-".contains(byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(is_allowed)
}

impl Settings {
    /// Whether the media need a feature.
    pub(super) fn is_active(&self, feature: Feature) -> bool {
        self.features.contains_key(feature.name())
    }

    pub(super) fn set_active(&mut self, feature: Feature, is_active: bool) {
        match is_active {
            true => self.features.insert(feature.name().to_owned(), feature.is_read_only_compatible()),
            false => self.features.remove(feature.name()),
        };
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u16(VERSION).u16((self.properties.len() + self.features.len()) as u16);
        let mut entry = |tag: u8, flags: u8, name: &str, value: u64| {
            out.u8(tag).u8(flags).u8(name.len() as u8);
            out.bytes.extend(name.as_bytes());
            out.u64(value);
        };
        self.properties.iter().for_each(|(name, value)| entry(PROPERTY, 0, name, *value));
        self.features.iter().for_each(|(name, reads)| entry(FEATURE, u8::from(*reads), name, 0));
        let sum = checksum(&out.bytes);
        out.u64(sum);
        out.bytes
    }

    /// `None` for bytes that [`encode`](Self::encode) does not make.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Settings> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return None;
        }
        let mut input = Reader::new(body);
        let (version, count) = (input.u16()?, usize::from(input.u16()?));
        if version != VERSION || count > ENTRIES_MAX {
            return None;
        }
        let mut found = Settings::default();
        let mut before: Option<(u8, String)> = None;
        for _ in 0..count {
            let (tag, flags, len) = (input.u8()?, input.u8()?, usize::from(input.u8()?));
            let name = input.take(len).filter(|name| is_name(name))?;
            let name = std::str::from_utf8(name).ok()?.to_owned();
            let value = input.u64()?;
            // In order, and none twice.
            if before.replace((tag, name.clone())).is_some_and(|before| before >= (tag, name.clone())) {
                return None;
            }
            match (tag, flags, value) {
                (PROPERTY, 0, _) => drop(found.properties.insert(name, value)),
                (FEATURE, 0 | READ_ONLY_COMPATIBLE, 0) => drop(found.features.insert(name, flags != 0)),
                _ => return None,
            }
        }
        input.end()?;
        Some(found)
    }

    /// The settings that a pool stores; pools from before there were settings store none.
    pub(crate) fn of_stored(stored: Option<&[u8]>) -> Result<Settings> {
        match stored {
            None => Ok(Settings::default()),
            Some(stored) => Settings::decode(stored)
                .ok_or_else(|| PoolError::bad_value("aux", "the settings of the pool")),
        }
    }

    /// Refuses what this program does not know.
    pub(crate) fn check(&self, pool: &str, is_read_only: bool) -> Result<()> {
        let is_known = |name: &String| Feature::ALL.iter().any(|feature| feature.name() == *name);
        let mut unknown = self.features.iter().filter(|(name, _)| !is_known(name));
        let refused = unknown.find(|(_, is_readable)| !(is_read_only && **is_readable));
        match refused {
            None => Ok(()),
            Some((feature, is_readable)) => Err(PoolError::UnknownFeature {
                pool: pool.to_owned(),
                feature: feature.clone(),
                is_read_only_compatible: *is_readable,
            }),
        }
    }

    pub(super) fn is_expanding(&self) -> bool {
        self.properties.get(AUTOEXPAND) == Some(&1)
    }

    pub(super) fn is_trimming(&self) -> bool {
        self.properties.get(AUTOTRIM) == Some(&1)
    }

    pub(crate) fn log_data(&self) -> LogData {
        if self.properties.get(LOGDATA) == Some(&1) { LogData::Pm } else { LogData::Both }
    }

    pub(super) fn fail_mode(&self) -> FailMode {
        // A value of a newer program: nothing that this one could act on.
        if self.properties.get(FAILMODE) == Some(&1) { FailMode::Continue } else { FailMode::Wait }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fastness_blkdev::MemDevice;

    use super::*;
    use crate::{Device, ImportOptions, Pool, PoolOptions, VdevSpec};

    fn some() -> Settings {
        let properties = BTreeMap::from([(FAILMODE.to_owned(), 1), ("other".to_owned(), u64::MAX)]);
        let features = BTreeMap::from([("log_device".to_owned(), true), ("x:unknown".to_owned(), false)]);
        Settings { properties, features }
    }

    #[test]
    fn settings_go_there_and_back_and_no_flip_is_taken() {
        for settings in [Settings::default(), some()] {
            let bytes = settings.encode();
            assert_eq!(Settings::decode(&bytes), Some(settings));
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Settings::decode(&damaged), None, "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert_eq!(Settings::decode(&bytes[..len]), None);
            }
        }
    }

    /// Even with a valid checksum, only input that would be written back identically is accepted.
    #[test]
    fn forged_settings_are_canonical_or_refused() {
        let bytes = some().encode();
        let body = bytes.len() - 8;
        let mut taken = 0;
        for byte in 0..body {
            for value in 0..=u8::MAX {
                let mut forged = bytes.clone();
                forged[byte] = value;
                let sum = checksum(&forged[..body]);
                forged[body..].copy_from_slice(&sum.to_le_bytes());
                if let Some(settings) = Settings::decode(&forged) {
                    assert_eq!(settings.encode(), forged, "byte {byte} {value}");
                    taken += 1;
                }
            }
        }
        // Values and letters may be anything; more of the bytes may not.
        assert!(taken > body && taken < body * 128, "{taken}");
    }

    #[test]
    fn golden_bytes() {
        let settings = Settings { features: BTreeMap::new(), ..some() };
        let mut expected = vec![1, 0, 2, 0, 1, 0, 8];
        expected.extend(b"failmode\x01\0\0\0\0\0\0\0\x01\0\x05other\xff\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(settings.encode()[..expected.len()], expected);
    }

    #[test]
    fn an_unknown_feature_is_refused_by_name_unless_it_may_be_read() {
        let refused = |is_readable, is_read_only| {
            let features = BTreeMap::from([("log_device".to_owned(), true), ("new".to_owned(), is_readable)]);
            Settings { features, ..Settings::default() }.check("tank", is_read_only).is_err()
        };
        assert!(refused(false, false) && refused(false, true) && refused(true, false));
        assert!(!refused(true, true));
        assert!(Settings::default().check("tank", false).is_ok());
    }

    #[test]
    fn an_import_refuses_a_pool_that_needs_what_it_does_not_know() {
        for is_readable in [true, false] {
            let device = Arc::new(MemDevice::new("a", 64 << 20));
            let opened = || Device::new("a", device.clone());
            let options =
                |is_read_only| PoolOptions { has_txg_thread: false, is_read_only, ..PoolOptions::default() };
            let import =
                |is_read_only| Pool::import(&[opened()], &ImportOptions::default(), options(is_read_only));
            let pool = Pool::create("tank", &[VdevSpec::single(opened())], options(false)).unwrap();
            // As a newer program would have stored it.
            let features = BTreeMap::from([("new".to_owned(), is_readable)]);
            let stored = Settings { features, ..Settings::default() }.encode();
            let root = pool.dataset("tank").unwrap().id();
            pool.put_aux(&pool.begin_tx().unwrap(), root, SETTINGS, Some(&stored));
            pool.export().unwrap();
            drop(pool);
            for _ in 0..2 {
                let refused = import(false).unwrap_err();
                assert!(matches!(&refused, PoolError::UnknownFeature { feature, .. } if feature == "new"));
                assert_eq!(refused.kind(), crate::ErrorKind::Invalid);
                assert_eq!(import(true).is_ok(), is_readable);
            }
        }
    }
}
