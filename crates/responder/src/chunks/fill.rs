//! What a write stores into its chunks: its own bytes, and around them what was there.

use std::ops::Range;

use crate::error::Error;
use crate::file::File;
use crate::group::Group;
use crate::medium::CacheMedium;
use crate::tag::LINE;

use super::ChunkStore;
use super::difference::lines;
use super::fr::{Plan, Write};
use super::load::{Loads, read_below};

/// Bytes that are put together outside of PM at a time, and in the usual short write.
const PIECE_BYTES: usize = 4096;
const SHORT_BYTES: usize = 512;

impl Write<'_> {
    /// Its bytes in the chunk that begins at `start` of the file, by their place in the chunk.
    pub(super) fn bytes_in(&self, start: u64, chunk_bytes: usize) -> Range<usize> {
        let end = self.offset + self.data.len() as u64;
        let at = |offset: u64| offset.saturating_sub(start).min(chunk_bytes as u64) as usize;
        at(self.offset)..at(end)
    }
}

/// A chunk that is being filled.
struct Filling<'a> {
    file: &'a File,
    write: &'a Write<'a>,
    plan: &'a Plan,
    /// Where it begins in its file.
    start: u64,
    /// Of the write, by their place in the chunk.
    bytes: Range<usize>,
    /// How much of the file only the backing store has, as far as the write needs it.
    below: u64,
    /// That much of the chunk, unless others kept writing to its slot.
    loaded: Option<&'a [u8]>,
}

impl Filling<'_> {
    /// Bytes of the write, by their place in the chunk.
    fn data(&self, bytes: Range<usize>) -> &[u8] {
        let place = |at: usize| (self.start + at as u64 - self.write.offset) as usize;
        &self.write.data[place(bytes.start)..place(bytes.end)]
    }

    /// Fills a piece of the chunk, from `at` on, with what was there before the write.
    fn read_before<M: CacheMedium>(
        &self,
        group: &mut Group<M>,
        at: usize,
        piece: &mut [u8],
    ) -> Result<(), Error> {
        if self.plan.overwrites {
            return group.read_chunk(self.plan.into ^ 1, at, piece);
        }
        let here = self.start + at as u64;
        let known = self.below.saturating_sub(here).min(piece.len() as u64) as usize;
        let (known, after) = piece.split_at_mut(known);
        after.fill(0);
        match self.loaded {
            _ if known.is_empty() => {}
            Some(loaded) => known.copy_from_slice(&loaded[at..at + known.len()]),
            None => read_below(self.file, here, known)?,
        }
        Ok(())
    }
}

impl<M: CacheMedium> ChunkStore<M> {
    /// Stores what the chunk is to hold: bytes of the write, around them what it held, or what was loaded. If
    /// it has all of that but for the lines that differ, only these and those of the write.
    pub(super) fn fill_chunk(
        &self,
        group: &mut Group<M>,
        file: &File,
        write: &Write<'_>,
        (at, plan): (usize, &Plan),
        (loads, differ): (&Loads, Option<Range<usize>>),
    ) -> Result<(), Error> {
        let chunk_bytes = self.geometry.chunk_bytes as usize;
        let start = self.geometry.offset_of(write.first + at as u64);
        let bytes = write.bytes_in(start, chunk_bytes);
        let own = lines(&bytes);
        let stored =
            differ.map_or(0..chunk_bytes, |differ| differ.start.min(own.start)..differ.end.max(own.end));
        // The lines of which the write has all bytes.
        let (from, to) = (bytes.start.next_multiple_of(LINE), bytes.end - bytes.end % LINE);
        let needs = write.needs(at, start, chunk_bytes as u64, plan);
        // What is after the end of the file is zero, whatever the backing store has there.
        let below = if needs { write.size_before } else { 0 };
        let filling = Filling { file, write, plan, start, bytes, below, loaded: loads.of(at) };
        if from < to {
            Self::fill_lines(group, &filling, stored.start..from)?;
            group.copy_chunk(plan.into, from, filling.data(from..to));
            Self::fill_lines(group, &filling, to..stored.end)?;
        } else {
            Self::fill_lines(group, &filling, stored)?;
        }
        group.counts.loaded += u64::from(needs);
        Ok(())
    }

    /// Stores lines that are not the write's alone.
    fn fill_lines(group: &mut Group<M>, filling: &Filling<'_>, lines: Range<usize>) -> Result<(), Error> {
        match lines.len() {
            0 => Ok(()),
            1..=SHORT_BYTES => {
                Self::fill_piece(group, filling, lines.start, &mut [0; SHORT_BYTES][..lines.len()])
            }
            _ => {
                let mut buffer = [0; PIECE_BYTES];
                for at in lines.clone().step_by(PIECE_BYTES) {
                    let piece = &mut buffer[..PIECE_BYTES.min(lines.end - at)];
                    Self::fill_piece(group, filling, at, piece)?;
                }
                Ok(())
            }
        }
    }

    fn fill_piece(
        group: &mut Group<M>,
        filling: &Filling<'_>,
        at: usize,
        piece: &mut [u8],
    ) -> Result<(), Error> {
        let end = at + piece.len();
        let (from, to) = (filling.bytes.start.max(at), filling.bytes.end.min(end));
        filling.read_before(group, at, piece)?;
        if from < to {
            piece[from - at..to - at].copy_from_slice(filling.data(from..to));
        }
        group.copy_chunk(filling.plan.into, at, piece);
        Ok(())
    }
}
