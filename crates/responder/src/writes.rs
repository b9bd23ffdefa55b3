//! Writes to files, and what makes them durable.

use fastness_sync::atomic::Ordering;

use crate::cache::{Cache, Handle};
use crate::error::Error;
use crate::file::File;
use crate::kind::ProtocolKind;
use crate::medium::CacheMedium;
use crate::protocol::Protocol;

/// What a write promises.
#[derive(Debug, Clone, Copy)]
enum How {
    /// What the protocol does.
    Plain,
    /// It is durable when it returns.
    Synced,
}

impl<M: CacheMedium> Cache<M> {
    /// Writes `data` at `offset`, and says how much of it: less than all if something failed on the way; the
    /// next call for the rest says what. A part of it that is longer than 256 chunks, or than the region has
    /// slots, can be found without what follows it after a crash.
    ///
    /// Persistence: what it says was written is durable on return; with the protocol Log after a sync.
    ///
    /// # Errors
    /// [`Error`]; nothing was written, unless PM failed, or with the protocol Log the backing store for
    /// another reason than a lack of room.
    pub fn write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.write_how(handle, offset, data, How::Plain)
    }

    /// As [`write`](Self::write), and durable on return with every protocol.
    ///
    /// # Errors
    /// As [`write`](Self::write); with the protocol Log `data` may have been written and not be durable.
    pub fn write_synced(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize, Error> {
        self.write_how(handle, offset, data, How::Synced)
    }

    fn write_how(&self, handle: &Handle, offset: u64, data: &[u8], how: How) -> Result<usize, Error> {
        let file = &handle.file;
        let end = Self::end_of(offset, data.len())?;
        let inside = file.size.share()?;
        if end <= *inside && !file.is_unfinished.load(Ordering::Relaxed) {
            return self.write_at(file, offset, data, *inside, how);
        }
        drop(inside);
        let mut size = file.size.hold()?;
        self.finish_truncation(file)?;
        self.extend(file, offset, data, &mut size, how)
    }

    /// Writes `data` at the end of the file, whichever that is; where it was put, and how much of it.
    ///
    /// Persistence: as [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn append(&self, handle: &Handle, data: &[u8]) -> Result<(u64, usize), Error> {
        self.append_how(handle, data, How::Plain)
    }

    /// As [`append`](Self::append), and durable on return with every protocol.
    ///
    /// # Errors
    /// As [`write_synced`](Self::write_synced).
    pub fn append_synced(&self, handle: &Handle, data: &[u8]) -> Result<(u64, usize), Error> {
        self.append_how(handle, data, How::Synced)
    }

    fn append_how(&self, handle: &Handle, data: &[u8], how: How) -> Result<(u64, usize), Error> {
        let mut size = handle.file.size.hold()?;
        self.finish_truncation(&handle.file)?;
        let offset = *size;
        Self::end_of(offset, data.len())?;
        let done = self.extend(&handle.file, offset, data, &mut size, how)?;
        Ok((offset, done))
    }

    /// Makes durable what was written to a file. Only the protocol Log has anything to do.
    ///
    /// Persistence: every write to the file that had returned is durable on return.
    ///
    /// # Errors
    /// [`Error`]; what was written since the last success may not be durable. An error of the backing store
    /// that no call was waiting for is told here, once.
    pub fn sync(&self, handle: &Handle) -> Result<(), Error> {
        let file = &handle.file;
        if self.syncs_itself() {
            return Ok(());
        }
        if file.is_unfinished.load(Ordering::Relaxed) {
            let _size = file.size.hold()?;
            self.finish_truncation(file)?;
        }
        let size = file.size.share()?;
        self.protocol.sync(file, *size)
    }

    /// Whether every write is durable when it returns, so that nothing needs a sync.
    pub fn syncs_itself(&self) -> bool {
        self.superblock.protocol != ProtocolKind::Log
    }

    fn end_of(offset: u64, len: usize) -> Result<u64, Error> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= i64::MAX as u64);
        let too_large =
            || Error::backing("hold a file of that length")(std::io::ErrorKind::InvalidInput.into());
        end.ok_or_else(too_large)
    }

    /// Writes where the file may get longer.
    fn extend(
        &self,
        file: &File,
        offset: u64,
        data: &[u8],
        size: &mut u64,
        how: How,
    ) -> Result<usize, Error> {
        let before = *size;
        file.check_fits(before, offset + data.len() as u64)?;
        let mut done = 0;
        let mut result = Ok(());
        while done < data.len() && result.is_ok() {
            match self.write_part(file, offset + done as u64, &data[done..], *size, how) {
                Ok(more) => {
                    done += more;
                    *size = (*size).max(offset + done as u64);
                }
                Err(error) => result = Err(error),
            }
        }
        if result.is_err() && !self.syncs_itself() {
            // A part may be there, which readers past the cache see.
            *size = file.backing.stat().map_or(*size, |stat| stat.size.max(*size));
        }
        self.resized(file, before, *size);
        prefix(done, result)
    }

    fn write_at(&self, file: &File, offset: u64, data: &[u8], size: u64, how: How) -> Result<usize, Error> {
        let mut done = 0;
        while done < data.len() {
            match self.write_part(file, offset + done as u64, &data[done..], size, how) {
                Ok(more) => done += more,
                Err(error) => return prefix(done, Err(error)),
            }
        }
        Ok(done)
    }

    fn write_part(&self, file: &File, offset: u64, data: &[u8], size: u64, how: How) -> Result<usize, Error> {
        match how {
            How::Plain => self.protocol.write(file, offset, data, size),
            How::Synced => self.protocol.write_synced(file, offset, data, size),
        }
    }
}

/// What a write answers that was made in part: a program that was told of an error would take all of it for
/// not written.
fn prefix(done: usize, result: Result<(), Error>) -> Result<usize, Error> {
    match result {
        Err(error) if done == 0 => Err(error),
        _ => Ok(done),
    }
}
