//! An idle log records on the medium what was acknowledged last.
//!
//! A block records which block was durable when it was filled. So no block records this for the last ones: if
//! the medium loses them completely, that looks like a crash (`docs/format.md`, "What stays undetected").
//! While records are written, the next block records it. When none come, a block without records (a
//! *witness*) does.
//!
//! No thread waits for that block, and it is not flushed for its own sake: it survives a crash of the process
//! at once, and a power cut after the next flush. It is part of the chain, so the next commit flushes it as
//! well.

use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::ids::{Lsn, Txg};
use crate::log::index::{Block, Index};
use crate::log::{Counters, Log};
use crate::space::Space;

impl<S: Space> Log<S> {
    /// Call it every few milliseconds while it returns `true`: the medium does not yet record everything that
    /// was acknowledged, and has not synced, as durable. The second time that it finds nothing new, it writes
    /// a block that does.
    ///
    /// In a pool without space for blocks it may stay `true` until the next txg has synced: no witness fits,
    /// or an import would not find it if a block before it is lost, as nothing else names it.
    ///
    /// Concurrency: any number of threads, in parallel to commits, which do not wait for it.
    pub fn witness_idle(&self) -> bool {
        if !self.lacks_witness() {
            return self.has_unbridged();
        }
        {
            let mut index = lock(&self.index);
            let is_idle = index.seen == index.flushed && index.in_flight == 0;
            index.seen = index.flushed;
            if !is_idle {
                return true;
            }
        }
        let mut work = lock(&self.spares).work();
        {
            let mut issuer = lock(&self.issuer);
            let open = issuer.open.as_ref().filter(|open| open.is_empty()).map(|open| open.seq);
            // A chain that runs out of space keeps the rest for records.
            let has_room = |seq| lock(&self.index).ahead(seq).0[0].is_some();
            if self.lacks_witness() && open.is_some_and(has_room) {
                Counters::add(&self.counters.witnesses, 1);
                self.close(&mut issuer, 0, &mut work);
            }
        }
        self.issue(work, Lsn(0));
        self.lacks_witness() || self.has_unbridged()
    }

    /// Whether a block was acknowledged, and has not synced, without which those after it are not found.
    fn has_unbridged(&self) -> bool {
        self.is_any_acknowledged(|block, _| !block.is_bridged)
    }

    /// Whether the log is up, and something was acknowledged and has not synced that no block records as
    /// durable.
    fn lacks_witness(&self) -> bool {
        self.is_any_acknowledged(|block, index| block.seq > index.stated)
    }

    /// Whether the log is up, and a block is as asked whose records were acknowledged and have not synced.
    fn is_any_acknowledged(&self, is_so: impl Fn(&Block, &Index) -> bool) -> bool {
        let synced = Txg(self.synced.load(Ordering::Acquire));
        let index = lock(&self.index);
        let mut acknowledged = index.blocks.iter().take_while(|block| block.seq <= index.flushed);
        index.down.is_none() && acknowledged.any(|block| block.newest_txg > synced && is_so(block, &index))
    }
}
