//! Changes in transactions of their own, tried again where that helps.

use crate::error::{PoolError, Result};
use crate::ids::Txg;
use crate::pool::{Pool, Tx};

impl Pool {
    /// Runs `change` in a transaction of its own, and again in a newer one for as long as it is overtaken;
    /// once more if it found no room and a sync may free some. Returns its result, and the txg to wait for.
    ///
    /// # Errors
    /// Those of [`begin_tx`](Self::begin_tx) and of `change`, which may then have changed something.
    pub fn transact<T>(&self, change: impl FnMut(&Tx) -> Result<T>) -> Result<(T, Txg)> {
        self.transact_begun(Pool::begin_tx, change)
    }

    /// The same, for transactions that `begin` begins.
    ///
    /// # Errors
    /// Those of `begin` and of `change`.
    pub(crate) fn transact_begun<T>(
        &self,
        begin: impl Fn(&Pool) -> Result<Tx>,
        mut change: impl FnMut(&Tx) -> Result<T>,
    ) -> Result<(T, Txg)> {
        let mut is_reclaimed = false;
        loop {
            let tx = begin(self)?;
            match change(&tx) {
                Err(PoolError::Overtaken { .. }) => {}
                Err(error @ PoolError::NoSpace { .. }) if !is_reclaimed => {
                    drop(tx);
                    is_reclaimed = true;
                    if !self.reclaim()? {
                        return Err(error);
                    }
                }
                result => return result.map(|value| (value, tx.commit())),
            }
        }
    }

    /// Begins a transaction in a txg whose predecessor has synced: what the tables say now is what its sync
    /// finds, as far as no user has changed it meanwhile. A txg that frees in the background changes rows.
    pub(crate) fn begin_after_synced(&self) -> Result<Tx> {
        loop {
            let tx = self.begin_tx()?;
            let before = Txg(tx.txg().0 - 1);
            if self.synced_txg() >= before {
                return Ok(tx);
            }
            drop(tx);
            self.wait_synced(before)?;
        }
    }
}
