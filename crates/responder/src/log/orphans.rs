//! Records of files that are not in the directory any more: kept in a file there, until they are back.
//!
//! A recovery has to empty the log, and these may stay for long. They are written before it does. The file is
//! replaced as a whole, under a new name first.
//!
//! Shape: magic "FSTNORPH", the id of the cache, then the records: of each its length and the CRC-32C of the
//! id and the record, 4 bytes each and little endian, and the record.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::backing::{Backing, BackingFile, CacheId, FileId, Renaming};
use crate::error::{Error, LogError};
use crate::own_files::{NEXT_ORPHANS_FILE, ORPHANS_FILE};

use super::record::{Record, What, owner};

const MAGIC: [u8; 8] = *b"FSTNORPH";
const FRAME_BYTES: usize = 8;
/// No log has a longer record.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// All of them, in the order in which they are carried out.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    records: Vec<Vec<u8>>,
}

fn sum(cache: CacheId, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&cache.0), record)
}

impl Orphans {
    pub(super) fn of(records: Vec<Vec<u8>>) -> Orphans {
        Orphans { records }
    }

    pub(super) fn records(&self) -> u64 {
        self.records.len() as u64
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(Vec::as_slice)
    }

    /// Those of the directory.
    pub(super) fn read(backing: &dyn Backing, cache: CacheId) -> Result<Orphans, Error> {
        let file = match backing.open(Path::new(ORPHANS_FILE), None) {
            Ok((file, _)) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Orphans::default()),
            Err(error) => return Err(Error::backing("open what it has of lost files")(error)),
        };
        let mut at = 0;
        let mut read = |bytes: &mut [u8]| {
            let len = file.read_at(at, bytes).map_err(Error::backing("read what it has of lost files"))?;
            at += len as u64;
            Ok::<_, Error>(len)
        };
        let mut front = [0; 24];
        if read(&mut front)? != 24 || front[..8] != MAGIC || front[8..] != cache.0 {
            return Err(LogError::Orphans.into());
        }
        let mut records = Vec::new();
        loop {
            let mut frame = [0; FRAME_BYTES];
            match read(&mut frame)? {
                0 => return Ok(Orphans { records }),
                FRAME_BYTES => {}
                _ => return Err(LogError::Orphans.into()),
            }
            let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().expect("four bytes"));
            let len = word(0) as usize;
            if len > RECORD_BYTES_MAX {
                return Err(LogError::Orphans.into());
            }
            let mut record = vec![0; len];
            if read(&mut record)? != len || sum(cache, &record) != word(4) || owner(&record).is_none() {
                return Err(LogError::Orphans.into());
            }
            records.push(record);
        }
    }

    /// Adds one, unless a recovery that was interrupted has done so.
    pub(super) fn add(&mut self, record: &[u8]) {
        if !self.iter().any(|there| there == record) {
            self.records.push(record.to_vec());
        }
    }

    /// Makes them durable.
    pub(super) fn write(&self, backing: &dyn Backing, cache: CacheId) -> Result<(), Error> {
        let fail = || Error::backing("keep what it has of lost files");
        if self.records.is_empty() {
            return match backing.remove(Path::new(ORPHANS_FILE)) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(fail()(error)),
                // Else a crash could bring back what has been carried out, and newer bytes have replaced.
                _ => backing.sync_all().map_err(fail()),
            };
        }
        let mut bytes = [MAGIC.as_slice(), &cache.0].concat();
        for record in self.iter() {
            bytes.extend((record.len() as u32).to_le_bytes());
            bytes.extend(sum(cache, record).to_le_bytes());
            bytes.extend(record);
        }
        let (file, _) = backing.open(Path::new(NEXT_ORPHANS_FILE), Some(0o600)).map_err(fail())?;
        file.truncate(0).map_err(fail())?;
        file.write_at(0, &bytes).map_err(fail())?;
        file.sync().map_err(fail())?;
        let (next, path) = (Path::new(NEXT_ORPHANS_FILE), Path::new(ORPHANS_FILE));
        backing.rename(next, path, Renaming::Replace).map_err(fail())?;
        backing.sync_all().map_err(fail())
    }

    /// Takes those of one file.
    pub(super) fn of_file(&self, file: FileId) -> (Orphans, Orphans) {
        let (of_file, others) = self
            .records
            .iter()
            .cloned()
            .partition(|record| owner(record).is_some_and(|(owner, _)| owner == file));
        (Orphans::of(of_file), Orphans::of(others))
    }
}

/// Files that records are carried out on, until they are synced.
#[derive(Debug, Default)]
pub(super) struct Changed {
    files: BTreeMap<FileId, (Arc<dyn BackingFile>, u64)>,
}

impl Changed {
    /// Carries out a record; doing so again does no harm, in the order of all records of the file.
    pub(super) fn carry_out(
        &mut self,
        file: &Arc<dyn BackingFile>,
        record: &Record,
        data: &[u8],
    ) -> Result<(), Error> {
        let What::Data { size, modified_ns, ranges } = &record.what else { return Ok(()) };
        let stat = file.stat().map_err(Error::backing("say what a file is"))?;
        if stat.size < *size {
            file.truncate(*size).map_err(Error::backing("lengthen a file"))?;
        }
        let mut rest = data;
        for range in ranges {
            let part;
            (part, rest) = rest.split_at((range.end - range.start) as usize);
            file.write_at(range.start, part).map_err(Error::backing("write to a file"))?;
        }
        let changed = self.files.entry(record.file).or_insert((Arc::clone(file), stat.modified_ns));
        changed.1 = changed.1.max(*modified_ns);
        Ok(())
    }

    /// Makes all of it durable.
    pub(super) fn sync(self) -> Result<(), Error> {
        for (file, modified_ns) in self.files.into_values() {
            file.set_modified(modified_ns).map_err(Error::backing("set a file's time"))?;
            file.sync().map_err(Error::backing("sync a file"))?;
        }
        Ok(())
    }
}
