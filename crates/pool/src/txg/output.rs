//! The first step of a sync: writing blocks to new places.
//!
//! Blocks are packed and checksummed a part at a time, by several threads if they are compressed, and one
//! thread allocates their places in order: where each block goes does not depend on the number of threads.
//! Without compression one thread is faster, because it copies what its checksum has just brought into the
//! CPU's cache.
//!
//! A block that was stored ahead of its txg (`stored`) is already in its final place; so is one that was
//! copied from a block that has not changed since (`copied`).
//!
//! If a device turns out to be out of space, the whole step is undone and repeated elsewhere (`elsewhere`).
//!
//! A block that finds no long enough run of free units is written in pieces, each half as long as the one
//! that did not fit, down to single units: a pool whose free space is in small holes still takes every block
//! that it has space for.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::codec::{Writer, checksum};
use crate::devices::run::{Run, write_all};
use crate::error::{PoolError, Result};
use crate::ids::{Place, Txg, UNIT_BYTES};
use crate::namespace::props::Compression;
use crate::objects::extent::{Extent, IN_PIECES, Packed, pack, stored};
use crate::objects::in_log::LayerBlock;
use crate::objects::object::RANGE_BYTES;
use crate::space::elsewhere::with_room;
use crate::state::Shared;
use crate::txg::dirty::Dirty;
use crate::txg::from_log::Loaded;
use fastness_sync::order::lock;

/// Bytes that are packed together before progress is reported to writers. No more than a CPU's own cache
/// holds.
const PART_BYTES: usize = 256 << 10;
/// The same where several threads share the work.
const COMPRESSED_PART_BYTES: usize = 4 << 20;
/// Least work, in bytes, for each additional thread.
const THREAD_BYTES_MIN: usize = 512 << 10;

/// Blocks of an object in order, with their places; `None` for one that is all zeroes.
type Placed = Vec<(u64, Option<Extent>)>;

/// Where everything was written.
pub(crate) struct Written {
    /// By object, in block order; `None` for a block that is all zeroes.
    pub(crate) extents: Vec<Placed>,
    /// Rows for blocks in pieces: place of the first piece, row.
    pub(crate) pieces: Vec<(u64, Vec<u8>)>,
    /// Places that one more block is stored in.
    pub(crate) shared: Vec<Place>,
}

/// What to store of each block, with its checksum; `None` for one that is all zeroes.
fn pack_all<'b>(
    blocks: &[(u64, &'b [u8])],
    compression: Compression,
    threads: usize,
) -> Vec<Option<(Packed<'b>, u64)>> {
    let pack_some = |blocks: &[(u64, &'b [u8])]| -> Vec<_> {
        let with_sum = |packed: Packed<'b>| {
            let sum = checksum(stored(&packed));
            (packed, sum)
        };
        blocks.iter().map(|(_, data)| pack(data, compression).map(with_sum)).collect()
    };
    let bytes: usize = blocks.iter().map(|(_, data)| data.len()).sum();
    let threads = (bytes / THREAD_BYTES_MIN).clamp(1, threads);
    let mut parts = blocks.chunks(blocks.len().div_ceil(threads));
    let first = parts.next().unwrap_or_default();
    if threads == 1 {
        return pack_some(first);
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(move || pack_some(part))).collect();
        let mut all = pack_some(first);
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    })
}

impl Shared {
    /// Writes all blocks to new places; returns the place of each, `None` for blocks that are all zeroes.
    pub(crate) fn write_data(&self, txg: Txg, dirty: &[Dirty]) -> Result<Written> {
        let bytes = dirty.iter().map(|dirty| dirty.bytes).sum();
        // Only once: adopting changes their state.
        let mut shared = Vec::new();
        let adopted = dirty.iter().map(|dirty| self.adopt_stored(txg, dirty, &mut shared));
        let adopted = adopted.collect::<Result<Vec<_>>>()?;
        let before = self.txgs.pipeline.written_bytes();
        let written = with_room(&self.devices.vdevs, &self.space.allocator, || {
            self.txgs.pipeline.set_written(before);
            write_all(&self.devices.vdevs, self.options.has_txg_thread, bytes, |run| {
                self.write_blocks(txg, dirty, &adopted, run)
            })
        })?;
        Ok(Written { shared, ..written })
    }

    /// Blocks that are already in their final places, in order; adds those that others are stored in, too, to
    /// `shared`.
    fn adopt_stored(&self, txg: Txg, dirty: &Dirty, shared: &mut Vec<Place>) -> Result<Placed> {
        let Dirty { layer, .. } = dirty;
        if layer.is_destroyed {
            return Ok(Placed::new());
        }
        let stored = layer.stored.iter().filter(|(block, _)| layer.blocks.contains_key(block));
        let adopted = stored.filter(|(_, extent)| self.adopt(extent));
        let mut adopted: BTreeMap<u64, Extent> =
            adopted.map(|(block, extent)| (*block, Extent { birth: txg, ..*extent })).collect();
        for (block, extent) in self.shareable(dirty)? {
            if let Entry::Vacant(entry) = adopted.entry(block) {
                shared.push(entry.insert(extent).place);
            }
        }
        Ok(adopted.into_iter().map(|(block, extent)| (block, Some(extent))).collect())
    }

    fn write_blocks(
        &self,
        txg: Txg,
        dirty: &[Dirty],
        adopted: &[Placed],
        run: &mut Run<'_>,
    ) -> Result<Written> {
        let (mut all, mut pieces) = (Vec::with_capacity(dirty.len()), Vec::new());
        for (Dirty { core, layer, bytes }, adopted) in dirty.iter().zip(adopted) {
            let mut extents = Vec::with_capacity(layer.blocks.len());
            let dataset = self.datasets.get(core.dataset, txg);
            let compression =
                dataset.as_ref().map_or(Compression::Off, |dataset| dataset.effective.compression());
            // Numbers next to their bytes: a sort that looked each one up in the map would wait for memory.
            let mut blocks: Vec<(u64, &LayerBlock)> =
                layer.blocks.iter().map(|(block, data)| (*block, data)).collect();
            blocks.sort_unstable_by_key(|(block, _)| *block);
            if layer.is_destroyed {
                self.txgs.pipeline.note_written(*bytes);
                blocks.clear();
            } else {
                self.txgs.pipeline.note_written(layer.cleared.len() as u64 * RANGE_BYTES);
            }
            if !adopted.is_empty() {
                blocks.retain(|(block, _)| adopted.binary_search_by_key(block, |(block, _)| *block).is_err());
                extents.extend_from_slice(adopted);
                self.txgs.pipeline.note_written(adopted.len() as u64 * u64::from(core.block_bytes));
            }
            let was_stored = !extents.is_empty();
            let (part_bytes, threads) = match compression {
                Compression::Off => (PART_BYTES, 1),
                _ => (COMPRESSED_PART_BYTES, self.txgs.packers),
            };
            let mut loaded = Loaded::default();
            for part in blocks.chunks((part_bytes / core.block_bytes as usize).max(1)) {
                loaded.load(self, core, part);
                let part = loaded.bytes(core, part);
                for ((block, _), packed) in part.iter().zip(pack_all(&part, compression, threads)) {
                    let mut extent = match packed {
                        Some(packed) => Some(self.write_block(txg, &packed, run, &mut pieces)?),
                        None => None,
                    };
                    if let Some(extent) = &mut extent {
                        loaded.seal(self, core, *block, txg, extent);
                    }
                    extents.push((*block, extent));
                }
                self.txgs.pipeline.note_written(part.iter().map(|(_, data)| data.len() as u64).sum());
            }
            if was_stored {
                extents.sort_unstable_by_key(|(block, _)| *block);
            }
            all.push(extents);
        }
        Ok(Written { extents: all, pieces, shared: Vec::new() })
    }

    fn write_block(
        &self,
        txg: Txg,
        (packed, sum): &(Packed<'_>, u64),
        run: &mut Run<'_>,
        pieces: &mut Vec<(u64, Vec<u8>)>,
    ) -> Result<Extent> {
        let (logical, codec) = (packed.0, packed.1);
        let stored = stored(packed);
        let units = (stored.len() as u64).div_ceil(UNIT_BYTES);
        let place = lock(&self.space.allocator).allocate_data(units);
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
        Ok(Extent {
            place,
            sum: *sum,
            birth: txg,
            stored_bytes: stored.len() as u32,
            logical_bytes: logical.len() as u32,
            codec,
        })
    }

    /// Writes `stored` in as many pieces as it takes; returns the place of the first, and the row for all.
    fn write_pieces(&self, stored: &[u8], run: &mut Run<'_>) -> Result<(Place, Vec<u8>)> {
        let (mut rest, mut row, mut first) = (stored, Writer::default(), None);
        let mut units = (stored.len() as u64).div_ceil(UNIT_BYTES);
        while !rest.is_empty() {
            units = units.min((rest.len() as u64).div_ceil(UNIT_BYTES));
            let place = lock(&self.space.allocator).allocate_data(units);
            let Some(place) = place else {
                if units == 1 {
                    let free_bytes = lock(&self.space.allocator).free_bytes();
                    let wanted_bytes = rest.len() as u64;
                    return Err(PoolError::NoSpace { wanted_bytes, free_bytes, is_quota: false });
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
