//! Reuse of block buffers.
//!
//! Motivation: fresh memory from the kernel costs a page fault for every 4 KiB, several times as much as
//! copying a block into it. The buffers that a synced txg leaves are as good as new.
//!
//! Design: buffers of one length move in batches between a shared stack and small caches, one for each group
//! of threads, so that writers contend for the stack's lock only once per batch. What is kept is bounded, and
//! each new buffer displaces a kept one of another length: kept and unsynced bytes together stay within the
//! limit for unsynced bytes.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::txg::pipeline::{SHARDS, shard_of_thread};
use fastness_sync::order::lock;

/// A block in memory. The layer that holds it owns it alone and may change it; once it is in the cache, it is
/// immutable.
pub(crate) type Block = Arc<[u8]>;
type Batch = Vec<Block>;

/// Bytes of a batch; at least one buffer.
const BATCH_BYTES: usize = 256 << 10;

/// A cache for some threads, in its own cache lines.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard(Mutex<Batch>);

/// The buffers that are kept.
#[derive(Debug)]
pub(crate) struct Buffers {
    shards: [Shard; SHARDS],
    /// All of one length per batch; no batch is empty.
    batches: Mutex<Vec<Batch>>,
    kept_bytes: AtomicU64,
    kept_max_bytes: u64,
}

/// The bytes of a block, for changing them.
pub(crate) fn own(block: &mut Block) -> &mut [u8] {
    Arc::get_mut(block).expect("a block that is not in the cache has one owner")
}

fn bytes(batch: &Batch) -> u64 {
    batch.iter().map(|buf| buf.len() as u64).sum()
}

impl Buffers {
    pub(crate) fn new(kept_max_bytes: u64) -> Buffers {
        Buffers {
            shards: Default::default(),
            batches: Mutex::default(),
            kept_bytes: AtomicU64::new(0),
            kept_max_bytes,
        }
    }

    /// A buffer with these bytes.
    pub(crate) fn copy_of(&self, data: &[u8]) -> Block {
        let mut cache = lock(&self.shards[shard_of_thread()].0);
        if cache.last().is_none_or(|buf| buf.len() != data.len()) {
            *cache = self.take_batch(data.len());
        }
        let kept = cache.pop();
        drop(cache);
        match kept {
            Some(mut buf) => {
                own(&mut buf).copy_from_slice(data);
                buf
            }
            None => data.into(),
        }
    }

    /// Takes back a buffer that only the calling thread has used, while it is still in the CPU's cache.
    pub(crate) fn give_back(&self, buf: Block) {
        let mut cache = lock(&self.shards[shard_of_thread()].0);
        if cache.last().is_none_or(|other| other.len() == buf.len())
            && (cache.len() + 1) * buf.len() <= BATCH_BYTES
        {
            cache.push(buf);
        }
    }

    /// A batch of buffers of `len` bytes; if there is none, drops one of another length.
    fn take_batch(&self, len: usize) -> Batch {
        if self.kept_bytes.load(Ordering::Relaxed) == 0 {
            return Batch::new();
        }
        let mut batches = lock(&self.batches);
        let found = batches.iter().rposition(|batch| batch[0].len() == len);
        let batch = match found {
            Some(at) => Some(batches.swap_remove(at)),
            None => batches.pop(),
        };
        let Some(batch) = batch else { return Batch::new() };
        self.kept_bytes.fetch_sub(bytes(&batch), Ordering::Relaxed);
        if found.is_some() { batch } else { Batch::new() }
    }

    /// Keeps buffers while there is space and frees the rest. Only adjacent buffers of one length form a
    /// batch.
    ///
    /// In address order: a thread that takes a batch then writes to adjacent memory, which processors expect.
    pub(crate) fn give(&self, buffers: impl Iterator<Item = Block>) {
        // A buffer that is still being read is freed when its reader is done.
        let mut buffers: Vec<_> = buffers.filter(|buf| Arc::strong_count(buf) == 1).collect();
        buffers.sort_unstable_by_key(|buf| Reverse(buf.as_ptr().addr()));
        let mut buffers = buffers.into_iter().peekable();
        while let Some(first) = buffers.peek() {
            let count = (BATCH_BYTES / first.len().max(1)).max(1);
            let len = first.len();
            let same = |buf: &Block| buf.len() == len;
            let batch: Batch = std::iter::from_fn(|| buffers.next_if(same)).take(count).collect();
            let bytes = bytes(&batch);
            if self.kept_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.kept_max_bytes {
                self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
                continue;
            }
            lock(&self.batches).push(batch);
        }
    }

    /// Frees everything: the pool is idle.
    pub(crate) fn clear(&self) {
        let batches = std::mem::take(&mut *lock(&self.batches));
        self.kept_bytes.fetch_sub(batches.iter().map(bytes).sum(), Ordering::Relaxed);
        self.shards.iter().for_each(|shard| drop(std::mem::take(&mut *lock(&shard.0))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(buffers: &Buffers) -> u64 {
        buffers.kept_bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn what_is_kept_is_bounded_used_again_and_leaves_for_another_length() {
        let buffers = Buffers::new(1 << 20);
        buffers.give((0..1000).map(|_| vec![1; 4096].into()));
        assert_eq!(kept(&buffers), 1 << 20);
        assert_eq!(&*buffers.copy_of(&[2; 4096]), &[2; 4096]);
        assert_eq!(kept(&buffers), (1 << 20) - BATCH_BYTES as u64);
        assert_eq!(&*buffers.copy_of(&[3; 512]), &[3; 512]);
        assert_eq!(kept(&buffers), (1 << 20) - 2 * BATCH_BYTES as u64);
        buffers.clear();
        assert_eq!(kept(&buffers), 0);
        assert_eq!(&*buffers.copy_of(&[4; 4096]), &[4; 4096]);
    }
}
