//! What an import has claimed of one dataset's log: the chain, and the data that its records refer to.
//!
//! Both are held until no header names the chain: until then a crash claims them again.

use std::fmt;
use std::sync::Arc;

use fastness_base::ErrorKind;
use fastness_lwb::{
    ClaimError, Claimed, Header, Lsn, OnLoss, Record as ChainRecord, Space, SpaceError, claim_each,
};

use crate::pool::{PoolFailure, StoredBlocks};
use crate::record::{Record, Write, WriteData};
use fastness_base::Txg;

/// The data of one record.
struct Taken {
    lsn: Lsn,
    address: Box<[u8]>,
    len_bytes: u64,
}

/// A claimed chain, with the data that its records refer to.
pub(super) struct Held<S: Space> {
    pub(super) chain: Claimed<Arc<S>>,
    blocks: Arc<dyn StoredBlocks>,
    taken: Vec<Taken>,
}

impl<S: Space> fmt::Debug for Held<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("taken", &self.taken.len()).finish_non_exhaustive()
    }
}

impl<S: Space> Held<S> {
    /// Claims a chain, and the data of each record that counts. A record whose data is missing is damage.
    ///
    /// # Errors
    /// Those of the chain; nothing is held then.
    pub(super) fn claim(
        space: Arc<S>,
        blocks: Arc<dyn StoredBlocks>,
        header: &Header,
        first_txg: Txg,
        on_loss: OnLoss,
    ) -> Result<Self, ClaimError> {
        let mut taken = Vec::new();
        let mut take = |record: ChainRecord<'_>| take(&*blocks, record, &mut taken);
        match claim_each(space, header, first_txg, on_loss, &mut take) {
            Ok(chain) => {
                let last = chain.last_lsn();
                // Those after the last record that counts.
                taken.extract_if(.., |taken| taken.lsn > last).for_each(|taken| give(&*blocks, &taken));
                Ok(Self { chain, blocks, taken })
            }
            Err(error) => {
                taken.iter().for_each(|taken| give(&*blocks, taken));
                Err(error)
            }
        }
    }

    /// Records whose data is held.
    pub(super) fn indirect_records(&self) -> usize {
        self.taken.len()
    }

    /// Frees all of it; see [`Claimed::release`].
    pub(super) fn release(self) {
        self.taken.iter().for_each(|taken| give(&*self.blocks, taken));
        self.chain.release();
    }
}

fn take(
    blocks: &dyn StoredBlocks,
    record: ChainRecord<'_>,
    taken: &mut Vec<Taken>,
) -> Result<(), SpaceError> {
    // Anything that is not a record stops replay, which reports it.
    let Ok((_, Record::Write(Write { data: WriteData::Indirect { len_bytes, address }, .. }))) =
        Record::decode(record.bytes)
    else {
        return Ok(());
    };
    blocks.claim(address, len_bytes).map_err(|failure| SpaceError::new(failure.kind, failure.source))?;
    taken.push(Taken { lsn: record.lsn, address: address.into(), len_bytes });
    Ok(())
}

fn give(blocks: &dyn StoredBlocks, taken: &Taken) {
    blocks.free(&taken.address, taken.len_bytes);
}

/// For an import without a pool in which data could be.
pub(super) struct NoBlocks;

impl StoredBlocks for NoBlocks {
    fn claim(&self, _: &[u8], _: u64) -> Result<(), PoolFailure> {
        Err(PoolFailure::new(ErrorKind::Corrupt, "it is not in the log, and there is nowhere else"))
    }

    fn free(&self, _: &[u8], _: u64) {}
}
