//! The contents of a disk when the trace begins.
//!
//! The disk's file does not say it: what the guest has written without a flush is in the file, but a crash
//! may lose it; and how much of the commands in flight is there is unknown. So the file is read before the
//! guest first uses the disk, and from then on commands are followed. Those that a flush has made durable
//! become contents; the others, and those in flight, are the first events of the trace.
//!
//! A flush settles what came before it if nothing else was in flight when it was handed over. Otherwise the
//! next one does: too much may be said to be pending, never too little.
//!
//! Memory: what the disk holds, and what was written to it since such a flush.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::nvme::{Action, What};

const PAGE_BYTES: u64 = 4096;
/// Longest piece that contents are given in.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// Contents of a disk, by pages; those of zeroes are left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents(BTreeMap<u64, Box<[u8]>>);

/// A disk before the trace begins.
#[derive(Debug)]
pub(super) struct Before {
    image: Option<PathBuf>,
    len_bytes: u64,
    is_read: bool,
    contents: Contents,
    /// What is not known to be durable, in order.
    unsettled: Vec<Action>,
    in_flight: HashSet<u32>,
    /// A flush that was handed over alone: its command, and how many of the unsettled came before it.
    flush: Option<(u32, usize)>,
    has_failed: bool,
}

/// Why it is not known what is on a disk.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeforeError {
    #[error("cannot read what the disk holds, {0}: {1}")]
    Image(PathBuf, io::Error),
    #[error("a command to the disk failed before the trace began: what it left is not known")]
    Failed,
}

impl Before {
    /// The disk on `image`, or one of zeroes.
    pub(super) fn new(image: Option<PathBuf>, len_bytes: u64) -> Before {
        Before {
            image,
            len_bytes,
            is_read: false,
            contents: Contents::default(),
            unsettled: Vec::new(),
            in_flight: HashSet::new(),
            flush: None,
            has_failed: false,
        }
    }

    /// Reads the disk's file, once: before the guest first hands a command to it.
    ///
    /// # Errors
    /// [`BeforeError::Image`]
    pub(super) fn read(&mut self) -> Result<(), BeforeError> {
        if !std::mem::replace(&mut self.is_read, true)
            && let Some(image) = &self.image
        {
            let contents = Contents::read(image, self.len_bytes);
            self.contents = contents.map_err(|error| BeforeError::Image(image.clone(), error))?;
        }
        Ok(())
    }

    /// What the guest has done to it.
    pub(super) fn add(&mut self, action: Action) {
        let command = action.command;
        match action.what {
            What::Completion { is_ok } => {
                self.has_failed |= !is_ok;
                self.in_flight.remove(&command);
                match self.flush {
                    Some((flush, before)) if flush == command => self.settle(before, command),
                    _ => self.unsettled.push(action),
                }
            }
            What::Flush if self.in_flight.is_empty() => {
                self.flush = Some((command, self.unsettled.len()));
                self.in_flight.insert(command);
                self.unsettled.push(action);
            }
            _ => {
                self.in_flight.insert(command);
                self.unsettled.push(action);
            }
        }
    }

    /// The first `count` are durable, and the flush after them, which made them so, is over.
    fn settle(&mut self, count: usize, flush: u32) {
        self.flush = None;
        let mut rest = self.unsettled.split_off(count);
        debug_assert_eq!(rest.first().map(|action| action.command), Some(flush), "the flush is after them");
        rest.remove(0);
        for action in std::mem::replace(&mut self.unsettled, rest) {
            match action.what {
                What::Write { offset, data, .. } => self.contents.write(offset, &data),
                What::Zeroes { offset, len_bytes, .. } | What::Discard { offset, len_bytes } => {
                    self.contents.clear(offset, len_bytes);
                }
                What::Flush | What::Completion { .. } => {}
            }
        }
    }

    /// What is durable, and what has been done since.
    ///
    /// # Errors
    /// [`BeforeError`]
    pub(super) fn end(mut self) -> Result<(Contents, Vec<Action>), BeforeError> {
        self.read()?;
        if self.has_failed { Err(BeforeError::Failed) } else { Ok((self.contents, self.unsettled)) }
    }
}

impl Contents {
    fn read(image: &Path, len_bytes: u64) -> io::Result<Contents> {
        let file = File::open(image)?;
        let actual = file.metadata()?.len();
        if actual != len_bytes {
            return Err(io::Error::other(format!("it has {actual} bytes, the disk {len_bytes}")));
        }
        let mut contents = Contents::default();
        let mut buffer = vec![0; PIECE_BYTES_MAX as usize];
        let mut at = 0;
        loop {
            at = match seek(&file, SeekFrom::Data(at)) {
                Ok(data) => data / PAGE_BYTES * PAGE_BYTES,
                // Nothing but holes up to the end.
                Err(Errno::NXIO) => return Ok(contents),
                Err(error) => return Err(error.into()),
            };
            let hole = seek(&file, SeekFrom::Hole(at))?.max(at + 1);
            while at < hole {
                let piece = &mut buffer[..(len_bytes - at).min(PIECE_BYTES_MAX) as usize];
                file.read_exact_at(piece, at)?;
                contents.write(at, piece);
                at += piece.len() as u64;
            }
            if at >= len_bytes {
                return Ok(contents);
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut left = data;
        while !left.is_empty() {
            let within = (at % PAGE_BYTES) as usize;
            let (part, rest) = left.split_at(left.len().min(PAGE_BYTES as usize - within));
            if part.iter().all(|byte| *byte == 0) {
                self.clear(at, part.len() as u64);
            } else {
                let page = self.0.entry(at / PAGE_BYTES).or_insert_with(|| [0; PAGE_BYTES as usize].into());
                page[within..within + part.len()].copy_from_slice(part);
            }
            at += part.len() as u64;
            left = rest;
        }
    }

    fn clear(&mut self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes);
        let first = offset / PAGE_BYTES;
        let touched: Vec<u64> =
            self.0.range(first..end.div_ceil(PAGE_BYTES)).map(|(number, _)| *number).collect();
        for number in touched {
            let start = number * PAGE_BYTES;
            if offset <= start && start + PAGE_BYTES <= end {
                self.0.remove(&number);
            } else if let Some(page) = self.0.get_mut(&number) {
                let from = offset.saturating_sub(start) as usize;
                page[from..(end - start).min(PAGE_BYTES) as usize].fill(0);
            }
        }
    }

    /// The pieces that have anything, in order; `take` gets the first byte and the bytes.
    pub(super) fn each<E>(
        &self,
        len_bytes: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut piece: (u64, Vec<u8>) = (0, Vec::new());
        for (number, page) in &self.0 {
            let start = number * PAGE_BYTES;
            let is_next = piece.0 + piece.1.len() as u64 == start;
            if !is_next || piece.1.len() as u64 >= PIECE_BYTES_MAX {
                if !piece.1.is_empty() {
                    take(piece.0, &piece.1)?;
                }
                piece = (start, Vec::new());
            }
            // The last page may be longer than what is left of the disk.
            piece.1.extend_from_slice(&page[..len_bytes.saturating_sub(start).min(PAGE_BYTES) as usize]);
        }
        if piece.1.is_empty() { Ok(()) } else { take(piece.0, &piece.1) }
    }
}

#[cfg(test)]
mod tests;
