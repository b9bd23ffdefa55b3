//! Which log a pool has, as the pool stores it in its root dataset's aux data.
//!
//! Shape, little endian: version 2 (2 bytes), kind (1, see [`KindId`]), number of regions (1), zero (4);
//! then for each region: its number (8 bytes), flags (1: bit 0, it only stands in for persistent memory; bit
//! 1, it is out), length of its path (2), the path, UTF-8; then CRC-32C of everything before it (4). Version
//! 1 had no bit 1.
//!
//! A pool that stores nothing has kind lwb: it is like a new pool, and no log of it has a header.

use std::fmt;
use std::path::PathBuf;

use fastness_zil::KindId;

/// Number of a log, random.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(pub u64);

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionId({self})")
    }
}

/// Key in the root dataset's aux data: the pool's [`LogConfig`].
pub(crate) const DEVICE: &[u8] = b"log device";

/// Most regions of one log: two, which hold the same.
pub const REGIONS_MAX: usize = 2;

const VERSION: u16 = 2;
const FLAG_EMULATES: u8 = 1;
const FLAG_OUT: u8 = 2;
const HEAD_BYTES: usize = 8;
const PATH_BYTES_MAX: usize = 4096;

/// A region of persistent memory that holds a pool's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionConfig {
    /// The identity in its superblock.
    pub id: RegionId,
    /// Whether it is an ordinary file or memory that stands in for persistent memory.
    pub emulates: bool,
    /// It was missing when the log was put into use without it, and lacks what was logged since; or it was
    /// lost in use, and what only it had is in the pool. It is never read again. It is kept here so that it
    /// can be named.
    pub is_out: bool,
    /// Where it was last; a hint.
    pub path: PathBuf,
}

/// A pool's description of its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The kind of all its logs.
    pub kind: KindId,
    /// Regions of kind pmem; two are a mirror. If none is in use, all were lost, and nothing in them is
    /// needed. Empty for kind lwb.
    pub regions: Vec<RegionConfig>,
}

impl LogConfig {
    /// Regions that have everything that is in the log.
    pub fn in_use(&self) -> impl Iterator<Item = &RegionConfig> {
        self.regions.iter().filter(|region| !region.is_out)
    }
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig { kind: KindId::Lwb, regions: Vec::new() }
    }
}

/// The stored bytes are not a description of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// Written by a newer version.
    #[error("it is of version {0}")]
    Version(u16),
    /// An unknown kind.
    #[error("it is of unknown kind {0}")]
    Kind(u8),
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// A field with an invalid value.
    #[error("byte {0} of it cannot be")]
    Field(usize),
}

impl LogConfig {
    /// As stored by the pool.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.regions.len() <= REGIONS_MAX, "{} regions", self.regions.len());
        let mut out = Vec::new();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, self.regions.len() as u8, 0, 0, 0, 0]);
        for region in &self.regions {
            // A hint that cannot be stored is left empty.
            let path = region.path.to_str().filter(|path| path.len() <= PATH_BYTES_MAX).unwrap_or_default();
            out.extend_from_slice(&region.id.0.to_le_bytes());
            let flags = [(region.emulates, FLAG_EMULATES), (region.is_out, FLAG_OUT)];
            out.push(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
            out.extend_from_slice(&(path.len() as u16).to_le_bytes());
            out.extend_from_slice(path.as_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes stored bytes; they are not trusted.
    ///
    /// # Errors
    /// [`ConfigFault`].
    pub fn decode(bytes: &[u8]) -> Result<LogConfig, ConfigFault> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(ConfigFault::Checksum)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(ConfigFault::Checksum);
        }
        let (head, mut rest) = body.split_first_chunk::<HEAD_BYTES>().ok_or(ConfigFault::Field(0))?;
        let version = u16::from_le_bytes([head[0], head[1]]);
        let flags_max = match version {
            1 => FLAG_EMULATES,
            VERSION => FLAG_EMULATES | FLAG_OUT,
            other => return Err(ConfigFault::Version(other)),
        };
        let kind = KindId::from_byte(head[2]).ok_or(ConfigFault::Kind(head[2]))?;
        let count = usize::from(head[3]);
        let fits_kind = match kind {
            KindId::Pmem => (1..=REGIONS_MAX).contains(&count),
            KindId::Lwb => count == 0,
        };
        if !fits_kind {
            return Err(ConfigFault::Field(3));
        }
        if let Some(at) = head[4..].iter().position(|byte| *byte != 0) {
            return Err(ConfigFault::Field(4 + at));
        }
        let at = |rest: &[u8]| body.len() - rest.len();
        let mut regions = Vec::new();
        for _ in 0..count {
            let fault = ConfigFault::Field(at(rest));
            let (head, behind) = rest.split_first_chunk::<11>().ok_or(fault)?;
            let path_bytes = usize::from(u16::from_le_bytes([head[9], head[10]]));
            let path = behind.get(..path_bytes).and_then(|path| std::str::from_utf8(path).ok());
            let flags = head[8];
            let path = path.filter(|_| flags <= flags_max && path_bytes <= PATH_BYTES_MAX).ok_or(fault)?;
            let id = RegionId(u64::from_le_bytes(head[..8].try_into().expect("8 bytes")));
            let (emulates, is_out) = (flags & FLAG_EMULATES != 0, flags & FLAG_OUT != 0);
            regions.push(RegionConfig { id, emulates, is_out, path: path.into() });
            rest = &behind[path_bytes..];
        }
        if !rest.is_empty() {
            return Err(ConfigFault::Field(at(rest)));
        }
        Ok(LogConfig { kind, regions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror() -> LogConfig {
        let region = |id, path: &str| {
            let (id, is_second) = (RegionId(id), id == 2);
            RegionConfig { id, emulates: is_second, is_out: is_second, path: path.into() }
        };
        LogConfig { kind: KindId::Pmem, regions: vec![region(1, "/dev/dax0.0"), region(2, "")] }
    }

    /// Bytes after a change, with a matching checksum.
    fn with(good: &LogConfig, changes: &[(usize, u8)]) -> Vec<u8> {
        let mut bytes = good.encode();
        changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        let body = bytes.len() - 4;
        let crc = crc32c::crc32c(&bytes[..body]);
        bytes[body..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn version_1_is_read_and_had_no_region_that_is_out() {
        let mut single = mirror();
        single.regions.pop();
        assert_eq!(LogConfig::decode(&with(&single, &[(0, 1)])), Ok(single));
        assert_eq!(LogConfig::decode(&with(&mirror(), &[(0, 1)])), Err(ConfigFault::Field(30)));
    }

    #[test]
    fn a_description_comes_back() {
        let mut lost = mirror();
        lost.regions.iter_mut().for_each(|region| region.is_out = true);
        for config in [mirror(), lost, LogConfig::default()] {
            assert_eq!(LogConfig::decode(&config.encode()), Ok(config));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_an_error() {
        let good = mirror().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(LogConfig::decode(&bad).is_err(), "bit {bit}");
        }
        assert!((0..good.len()).all(|len| LogConfig::decode(&good[..len]).is_err()));
    }

    #[test]
    fn fields_out_of_their_bounds_are_named() {
        let with = |at: usize, byte: u8| LogConfig::decode(&with(&mirror(), &[(at, byte)])).unwrap_err();
        assert_eq!(with(0, 3), ConfigFault::Version(3));
        assert_eq!(with(2, 9), ConfigFault::Kind(9));
        assert_eq!(with(2, 2), ConfigFault::Field(3));
        assert_eq!(with(3, 3), ConfigFault::Field(3));
        assert_eq!(with(3, 1), ConfigFault::Field(30));
        assert_eq!(with(6, 1), ConfigFault::Field(6));
        assert_eq!(with(16, 4), ConfigFault::Field(8));
        assert_eq!(with(17, 200), ConfigFault::Field(8));
    }
}
