//! Blocks that are durable in their final places before their txg is.
//!
//! Motivation: a large synchronous write would be written twice: to a log, and again when its txg syncs. Here
//! the owner of a log has the data written to its final place; the record names that place, and the txg
//! adopts the block as it is.
//!
//! Design: [`Pool::store`] works in three phases; the second waits for devices and holds no lock and no
//! transaction.
//! 1. Under the object's lock, shared: the newest bytes of each whole block are copied, and a token is left
//!    in the object. Every change of the block removes the token.
//! 2. The blocks are packed, get places among the data, are written, and their vdevs flushed. Until a txg
//!    adopts it, a stored block is a log block (`log_space`): busy, but in no stored bitmap.
//! 3. In a transaction: if the token is still there and the block is in the layer of that txg, the layer
//!    notes the place. A later change of the block removes the note. Noted or not, the block is *held* until
//!    that txg has synced.
//!
//! The sync of a txg adopts the blocks that its layer notes (`output`), unless a side of a mirror has missed
//! one: what a returning side must be given is known for log blocks and for what tables refer to, but not for
//! a block that turns from one into the other. When the txg is durable, blocks that it has not adopted are
//! freed (`publish`).
//!
//! Why a record of txg T finds its data after a crash, if T has not synced: the block was flushed before the
//! record was written; the transaction of phase 3 began after that of the record, so the block is held at
//! least until T has synced; and an import claims it
//! ([`LogSpace::claim_stored`](crate::LogSpace::claim_stored)) before its place can be used for anything
//! else. After T has synced, the record's data is not needed.
//!
//! Crash cases: before the uberblock of the txg that adopts a block, the block is free except for a record
//! that names it; afterwards it is data. There is nothing in between, because the bitmaps and the table
//! change in one txg.

mod address;
mod object;

pub(crate) use address::Address;
#[cfg(fuzzing)]
pub(crate) use address::{ENTRY_BYTES, HEAD_BYTES};

use std::sync::atomic::Ordering;

use fastness_blkdev::AlignedBuf;

use crate::codec::checksum;
use crate::error::Result;
use crate::ids::{Place, Txg, UNIT_BYTES};
use crate::namespace::props::Compression;
use crate::objects::extent::{BLOCK_BYTES_MAX, Extent, pack};
use crate::objects::handle::Object;
use crate::pool::Pool;

/// Most bytes that one call stores.
const STORE_BYTES_MAX: usize = 8 << 20;

/// A range of an object whose whole blocks may be stored.
#[derive(Debug, Clone, Copy)]
pub struct StoreRequest<'a> {
    /// Of the pool that stores it.
    pub object: &'a Object,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
}

/// Consecutive blocks that are durable in their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRun {
    /// First byte in the object.
    pub offset: u64,
    /// Number of bytes: whole blocks.
    pub len_bytes: u64,
    /// Bytes that were written for it.
    pub written_bytes: u64,
    /// Where they are, for [`LogSpace::claim_stored`](crate::LogSpace::claim_stored) after a crash. Layout:
    /// `docs/format.md`, "Addresses in records".
    pub address: Vec<u8>,
}

/// A block being stored.
#[derive(Debug)]
struct Part {
    request: usize,
    block: u64,
    token: u64,
    /// Where its bytes are in the buffer.
    at: usize,
    /// What is written of it; `None` if it is not stored.
    extent: Option<Extent>,
}

impl Pool {
    /// Writes whole blocks of the ranges to their final places and makes them durable there, as far as
    /// possible: skips a block that is not dirty in the open txg, is all zeroes, is stored already, finds no
    /// space or cannot be written. Does nothing if less than `least_bytes` in whole blocks could be stored,
    /// if the pool has a vdev for logs (its log then does not write among the data), or while a side of a
    /// mirror is stale.
    ///
    /// Returns what is stored of each range, in order. The caller must have changed the ranges in a
    /// transaction, which may still be open.
    ///
    /// Persistence: what is returned is durable. It can be read by its address until the txgs that were open
    /// during the call have synced, and after a crash before that by whoever claims it. Concurrency: any
    /// number of threads. Waits for I/O; the caller must hold no lock that a reader or a txg waits for.
    ///
    /// # Errors
    /// A flush failed, or the labels could not be updated to name the sides that missed a block: nothing is
    /// stored, and nothing written since the last flush may be assumed durable.
    /// [`PoolError`](crate::PoolError) of a pool that is closed or suspended.
    pub fn store(&self, requests: &[StoreRequest<'_>], least_bytes: u64) -> Result<Vec<Vec<StoredRun>>> {
        if !self.shared.can_store() {
            return Ok(vec![Vec::new(); requests.len()]);
        }
        let mut capture = Capture::of(requests, self.shared.txgs.pipeline.open_txg());
        let result = self.write_parts(requests, &mut capture, least_bytes);
        if result.is_err() {
            capture.parts.iter_mut().for_each(|part| part.extent = None);
        }
        // Whatever happened to the blocks: no token stays behind.
        self.note_parts(requests, &capture.parts);
        result?;
        let of_request = |(index, request): (usize, &StoreRequest<'_>)| {
            let parts = capture.parts.iter().filter(|part| part.request == index);
            runs(request.object.block_bytes(), parts)
        };
        Ok(requests.iter().enumerate().map(of_request).collect())
    }

    /// Phase 2: on return the stored parts have their places.
    fn write_parts(&self, requests: &[StoreRequest<'_>], capture: &mut Capture, least: u64) -> Result<()> {
        let Capture { buf, parts } = capture;
        let (mut end, mut bytes) = (0, 0);
        for part in parts.iter_mut() {
            let object = requests[part.request].object;
            let compression = object.dataset.effective.compression();
            part.extent = pack_part(buf, part.at, object.block_bytes(), compression, end);
            if let Some(extent) = &part.extent {
                end += (extent.units() * UNIT_BYTES) as usize;
                bytes += u64::from(object.block_bytes());
            }
        }
        if bytes == 0 || bytes < least {
            parts.iter_mut().for_each(|part| part.extent = None);
            return Ok(());
        }
        let units: Vec<u64> = parts.iter().filter_map(|part| Some(part.extent.as_ref()?.units())).collect();
        let mut places = self.shared.store_blocks(&units, &buf[..end])?.into_iter();
        for part in parts.iter_mut() {
            let extent = part.extent.take();
            part.extent = extent.and_then(|extent| Some(Extent { place: places.next()??, ..extent }));
        }
        Ok(())
    }

    /// Phase 3.
    fn note_parts(&self, requests: &[StoreRequest<'_>], parts: &[Part]) {
        let shared = &self.shared;
        // Not `begin_tx`: this makes nothing dirty, so it need not wait while much is dirty.
        let hold = shared.txgs.pipeline.hold();
        // When a pool is abandoned, it waits for the transactions that it can see, and returns what they
        // leave. In a suspended pool no txg would adopt what is noted.
        let is_alive = !shared.must_check.load(Ordering::Relaxed) || shared.check_alive().is_ok();
        // Before the notes: a txg that adopts a block takes it off this list, so it must be on the list
        // first.
        shared.hold_stored(parts.iter().filter_map(|part| part.extent.as_ref()), hold.txg);
        for (index, request) in requests.iter().enumerate() {
            let of_request = parts.iter().filter(|part| part.request == index);
            request.object.end_storing(of_request, is_alive.then_some(hold.txg));
        }
        shared.txgs.pipeline.release(hold);
    }
}

/// What phase 1 copied.
struct Capture {
    buf: AlignedBuf,
    parts: Vec<Part>,
}

impl Capture {
    fn of(requests: &[StoreRequest<'_>], open: Txg) -> Capture {
        let mut room = 0;
        let of_request = |request: &StoreRequest<'_>| {
            let (blocks, stride) = (request.object.whole_blocks(request), stride(request.object));
            let count =
                (blocks.end - blocks.start).min((STORE_BYTES_MAX.saturating_sub(room) / stride) as u64);
            room += count as usize * stride;
            blocks.start..blocks.start + count
        };
        let ranges: Vec<_> = requests.iter().map(of_request).collect();
        let mut capture = Capture { buf: AlignedBuf::zeroed(room, UNIT_BYTES as usize), parts: Vec::new() };
        let mut end = 0;
        for (index, (request, blocks)) in requests.iter().zip(ranges).enumerate() {
            let stride = stride(request.object);
            request.object.capture(blocks, open, &mut |block, token, bytes| {
                capture.buf[end..end + bytes.len()].copy_from_slice(bytes);
                capture.parts.push(Part { request: index, block, token, at: end, extent: None });
                end += stride;
            });
        }
        capture
    }
}

/// Space for a block in the buffer.
fn stride(object: &Object) -> usize {
    object.block_bytes().next_multiple_of(UNIT_BYTES as u32) as usize
}

/// Packs a captured block, and moves what is stored of it to `to`, in whole units; `to` is never after it.
fn pack_part(
    buf: &mut AlignedBuf,
    at: usize,
    block_bytes: u32,
    compression: Compression,
    to: usize,
) -> Option<Extent> {
    let (logical_bytes, codec, packed) = {
        let (logical, codec, packed) = pack(&buf[at..at + block_bytes as usize], compression)?;
        (logical.len(), codec, packed)
    };
    let len = match packed {
        Some(packed) => {
            buf[to..to + packed.len()].copy_from_slice(&packed);
            packed.len()
        }
        None => {
            buf.copy_within(at..at + logical_bytes, to);
            logical_bytes
        }
    };
    let end = (to + len).next_multiple_of(UNIT_BYTES as usize);
    let sum = checksum(&buf[to..to + len]);
    buf[to + len..end].fill(0);
    Some(Extent {
        place: Place { vdev: 0, unit: 0 },
        sum,
        birth: Txg(0),
        stored_bytes: len as u32,
        logical_bytes: logical_bytes as u32,
        codec,
    })
}

/// Consecutive parts, as runs of blocks with one address each.
fn runs<'p>(block_bytes: u32, parts: impl Iterator<Item = &'p Part>) -> Vec<StoredRun> {
    let mut runs: Vec<StoredRun> = Vec::new();
    for (block, extent) in parts.filter_map(|part| Some((part.block, part.extent.as_ref()?))) {
        let (offset, len_bytes) = (block * u64::from(block_bytes), u64::from(block_bytes));
        let goes_on = runs.last().is_some_and(|last| {
            last.offset + last.len_bytes == offset && last.len_bytes + len_bytes <= u64::from(BLOCK_BYTES_MAX)
        });
        if !goes_on {
            let address = Address::begin(block_bytes);
            runs.push(StoredRun { offset, len_bytes: 0, written_bytes: 0, address });
        }
        let run = runs.last_mut().expect("there is one now");
        run.len_bytes += len_bytes;
        run.written_bytes += extent.units() * UNIT_BYTES;
        Address::add(&mut run.address, extent);
    }
    runs
}
