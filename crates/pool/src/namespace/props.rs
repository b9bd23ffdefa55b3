//! Properties of datasets: which values they can have, and how they are inherited.

use std::str::FromStr;

use crate::error::{PoolError, Result};

/// When a synchronous write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// When it is durable, if the program asked for that.
    Standard,
    /// When it is durable, whether the program asked or not.
    Always,
    /// At once: a crash loses the last seconds.
    Disabled,
}

/// What the intent log is optimised for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogBias {
    /// Short response times.
    Latency,
    /// Large writes go directly to their final place.
    Throughput,
}

/// Compression of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// None.
    Off,
    /// LZ4.
    Lz4,
    /// Zstandard, level 3.
    Zstd,
}

/// A property of a dataset. Its value is a number; [`parse`](Self::parse) and [`format`](Self::format)
/// convert it to and from text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Property {
    /// See [`SyncMode`]. Inherited.
    Sync,
    /// See [`LogBias`]. Inherited.
    LogBias,
    /// Block of new objects in bytes. Inherited.
    RecordSize,
    /// Block of a volume in bytes, fixed when it is created. Not inherited.
    VolBlockSize,
    /// See [`Compression`]. Inherited.
    Compression,
    /// Whether changes are refused. Inherited.
    ReadOnly,
    /// Bytes that the dataset and those below it may use; 0 for no limit. Not inherited.
    Quota,
    /// Bytes that are kept free for the dataset and those below it. Not inherited.
    Reservation,
    /// Bytes of data that a volume is sure to find room for, without its snapshots (`thick`). Not inherited.
    RefReservation,
}

pub(crate) const COUNT: usize = 9;

impl Property {
    /// All of them.
    pub const ALL: [Property; COUNT] = [
        Property::Sync,
        Property::LogBias,
        Property::RecordSize,
        Property::VolBlockSize,
        Property::Compression,
        Property::ReadOnly,
        Property::Quota,
        Property::Reservation,
        Property::RefReservation,
    ];

    /// Name as on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Property::Sync => "sync",
            Property::LogBias => "logbias",
            Property::RecordSize => "recordsize",
            Property::VolBlockSize => "volblocksize",
            Property::Compression => "compression",
            Property::ReadOnly => "readonly",
            Property::Quota => "quota",
            Property::Reservation => "reservation",
            Property::RefReservation => "refreservation",
        }
    }

    /// Value for a dataset that has none and inherits none.
    pub fn default_value(self) -> u64 {
        match self {
            Property::RecordSize => 128 << 10,
            Property::VolBlockSize => 16 << 10,
            _ => 0,
        }
    }

    /// Whether a dataset without a value has its parent's.
    pub fn is_inherited(self) -> bool {
        !matches!(
            self,
            Property::VolBlockSize | Property::Quota | Property::Reservation | Property::RefReservation
        )
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            Property::Sync => &["standard", "always", "disabled"],
            Property::LogBias => &["latency", "throughput"],
            Property::Compression => &["off", "lz4", "zstd"],
            Property::ReadOnly => &["off", "on"],
            _ => &[],
        }
    }

    /// Parses a word or a size ("16K"; "1.5G" is not one; "none" is 0) into a value.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for anything else.
    pub fn parse(self, text: &str) -> Result<u64> {
        let value = match self.words() {
            [] => parse_size(text),
            words => words.iter().position(|word| *word == text).map(|index| index as u64),
        };
        let value = value.ok_or_else(|| PoolError::invalid(self.name(), text))?;
        self.check(value)?;
        Ok(value)
    }

    /// The word or size for a value.
    pub fn format(self, value: u64) -> String {
        match self.words().get(value as usize) {
            Some(word) => (*word).to_owned(),
            None if value == 0 => "none".to_owned(),
            None => format_size(value),
        }
    }

    /// Refuses a value that no dataset may have.
    pub(crate) fn check(self, value: u64) -> Result<()> {
        let is_valid = match self {
            Property::RecordSize | Property::VolBlockSize => {
                value.is_power_of_two() && (512..=1 << 20).contains(&value)
            }
            Property::Quota | Property::Reservation | Property::RefReservation => true,
            _ => (value as usize) < self.words().len(),
        };
        if is_valid { Ok(()) } else { Err(PoolError::invalid(self.name(), value)) }
    }
}

impl FromStr for Property {
    type Err = PoolError;

    fn from_str(name: &str) -> Result<Property> {
        let found = Property::ALL.into_iter().find(|property| property.name() == name);
        found.ok_or_else(|| PoolError::invalid("property", name))
    }
}

const SUFFIXES: [&str; 6] = ["", "K", "M", "G", "T", "P"];

fn parse_size(text: &str) -> Option<u64> {
    if text == "none" {
        return Some(0);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = text[digits.len()..].to_ascii_uppercase();
    let suffix = suffix.strip_suffix("IB").or_else(|| suffix.strip_suffix('B')).unwrap_or(&suffix);
    let power = SUFFIXES.iter().position(|known| *known == suffix)?;
    digits.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

fn format_size(value: u64) -> String {
    let power = (value.trailing_zeros() / 10).min(5);
    format!("{}{}", value >> (10 * power), SUFFIXES[power as usize])
}

/// Values by property; those that are `None` are inherited or default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Values([Option<u64>; COUNT]);

impl Values {
    pub(crate) fn get(&self, property: Property) -> Option<u64> {
        self.0[property as usize]
    }

    pub(crate) fn set(&mut self, property: Property, value: Option<u64>) {
        self.0[property as usize] = value;
    }

    /// The effective values of a dataset with these values, below a parent that has `parent`.
    pub(crate) fn effective(&self, parent: Option<&Values>) -> Values {
        let mut all = *self;
        for property in Property::ALL {
            let inherited =
                parent.filter(|_| property.is_inherited()).and_then(|parent| parent.get(property));
            all.set(property, self.get(property).or(inherited).or(Some(property.default_value())));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_sizes_go_there_and_back() {
        for (property, text, value) in [
            (Property::Sync, "disabled", 2),
            (Property::LogBias, "throughput", 1),
            (Property::RecordSize, "128K", 128 << 10),
            (Property::VolBlockSize, "512", 512),
            (Property::Compression, "lz4", 1),
            (Property::ReadOnly, "on", 1),
            (Property::Quota, "none", 0),
            (Property::Quota, "3G", 3 << 30),
            (Property::RefReservation, "8M", 8 << 20),
        ] {
            assert_eq!(property.parse(text).unwrap(), value, "{text}");
            assert_eq!(property.format(value), text);
        }
        for (property, text) in [
            (Property::Sync, "on"),
            (Property::RecordSize, "3K"),
            (Property::RecordSize, "2M"),
            (Property::Quota, "many"),
            (Property::Quota, "99999999P"),
            (Property::Quota, ""),
        ] {
            assert!(property.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_inherited_where_that_makes_sense() {
        let mut parent = Values::default();
        parent.set(Property::Compression, Some(1));
        parent.set(Property::Quota, Some(7));
        let child = Values::default().effective(Some(&parent.effective(None)));
        assert_eq!(child.get(Property::Compression), Some(1));
        assert_eq!(child.get(Property::Quota), Some(0));
        assert_eq!(child.get(Property::RecordSize), Some(128 << 10));
    }
}
