//! The first step of a sync: blocks to new places.
//!
//! A block that finds no run of free units that is long enough is written in pieces, each half as long as the one that
//! did not fit, down to single units: a pool whose free space is in small holes still takes every block that it has
//! room for.

use std::sync::atomic::Ordering;

use crate::codec::{Writer, checksum};
use crate::error::{PoolError, Result};
use crate::extent::{Extent, IN_PIECES, pack};
use crate::ids::{Place, Txg, UNIT_BYTES};
use crate::meta::Run;
use crate::props::Compression;
use crate::state::Shared;
use crate::sync::Dirty;
use crate::sync_util::{lock, read};

/// Where everything went.
pub(crate) struct Written {
    /// By object, in order of blocks; `None` for a block that is all zeroes.
    pub(crate) extents: Vec<Vec<(u64, Option<Extent>)>>,
    /// Rows for blocks in pieces: place of the first piece, row.
    pub(crate) pieces: Vec<(u64, Vec<u8>)>,
}

impl Shared {
    /// Writes all blocks to new places; returns where each went, `None` for blocks that are all zeroes.
    pub(crate) fn write_data(&self, txg: Txg, dirty: &[Dirty]) -> Result<Written> {
        let mut run = Run::new(&self.vdevs);
        let (mut all, mut pieces) = (Vec::with_capacity(dirty.len()), Vec::new());
        for Dirty { core, layer } in dirty {
            let mut extents = Vec::with_capacity(layer.blocks.len());
            let dataset = self.dataset(core.dataset);
            let compression =
                dataset.as_ref().map_or(Compression::Off, |dataset| read(&dataset.effective).compression());
            let mut blocks: Vec<_> = layer.blocks.iter().collect();
            blocks.sort_unstable_by_key(|(block, _)| **block);
            let mut bytes = 0;
            for (block, data) in blocks {
                bytes += data.len() as u64;
                if !layer.is_destroyed {
                    extents.push((*block, self.write_block(txg, data, compression, &mut run, &mut pieces)?));
                }
                self.pipeline.sub_dirty(data.len() as u64);
            }
            if let Some(dataset) = dataset {
                dataset.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            all.push(extents);
        }
        run.end()?;
        Ok(Written { extents: all, pieces })
    }

    fn write_block(
        &self,
        txg: Txg,
        data: &[u8],
        compression: Compression,
        run: &mut Run<'_>,
        pieces: &mut Vec<(u64, Vec<u8>)>,
    ) -> Result<Option<Extent>> {
        let Some((logical, codec, packed)) = pack(data, compression) else { return Ok(None) };
        let stored = packed.as_deref().unwrap_or(logical);
        let units = (stored.len() as u64).div_ceil(UNIT_BYTES);
        let place = lock(&self.allocator).allocate_data(units);
        let (place, codec) = match place {
            Some(place) => {
                run.push(place, stored)?;
                (place, codec)
            }
            None => {
                let (place, row) = self.write_pieces(stored, run)?;
                pieces.push((place.pack(), row));
                (place, codec | IN_PIECES)
            }
        };
        Ok(Some(Extent {
            place,
            sum: checksum(stored),
            birth: txg,
            stored_bytes: stored.len() as u32,
            logical_bytes: logical.len() as u32,
            codec,
        }))
    }

    /// Writes `stored` in as many pieces as it takes; the place of the first, and the row that describes all.
    fn write_pieces(&self, stored: &[u8], run: &mut Run<'_>) -> Result<(Place, Vec<u8>)> {
        let mut allocator = lock(&self.allocator);
        let (mut rest, mut row, mut first) = (stored, Writer::default(), None);
        let mut units = (stored.len() as u64).div_ceil(UNIT_BYTES);
        while !rest.is_empty() {
            units = units.min((rest.len() as u64).div_ceil(UNIT_BYTES));
            let Some(place) = allocator.allocate_data(units) else {
                if units == 1 {
                    let (wanted_bytes, free_bytes) = (rest.len() as u64, allocator.free_bytes());
                    return Err(PoolError::NoSpace { wanted_bytes, free_bytes });
                }
                units = units.div_ceil(2);
                continue;
            };
            let (piece, after) = rest.split_at(rest.len().min((units * UNIT_BYTES) as usize));
            run.push(place, piece)?;
            row.u64(place.pack()).u64(checksum(piece)).u32(piece.len() as u32);
            first.get_or_insert(place);
            rest = after;
        }
        let first = first.expect("a block that is stored is not empty");
        Ok((first, row.bytes))
    }
}
