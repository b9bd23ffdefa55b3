//! Volumes that are being received, and become whole in one step.
//!
//! Motivation: what comes from another machine may end anywhere. Until all of it is there, nobody may take it
//! for a volume; and a volume that gets an increment stays what it was.
//!
//! Design: what comes is put into a dataset of a kind of its own ([`DatasetKind::Receiving`]), which nothing
//! opens as a volume. For a new volume, that dataset becomes the volume. For an increment it is a clone of
//! the volume's newest snapshot, below the volume; at the end the volume becomes what the clone is: their
//! rows change places, as in a promotion (`txg::promoting`), and the clone is destroyed with what the volume
//! had. The same txg makes the snapshot that was received.
//!
//! Crash cases: each end is one txg. Before it there is the dataset of that kind, and a volume as it was.

use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::{Guid, RECEIVED, Txg};
use crate::metadata::branches::{Base, BranchChange};
use crate::metadata::tables::DatasetKind;
use crate::namespace::dataset::Dataset;
use crate::namespace::names::split;
use crate::namespace::props::Property;
use crate::namespace::rollback::{Closed, newer};
use crate::namespace::settings::Feature;
use crate::namespace::snapshots::{DATA, charge_of_gone, charge_of_new, check_unneeded};
use crate::pool::{Pool, Tx};
use crate::space::room::Claim;
use crate::state::datasets::{DatasetCore, Namespace};
use fastness_sync::order::{lock, read, write};

impl Pool {
    /// Makes the dataset into which an increment on a snapshot is received: below the snapshot's volume, with
    /// the last part [`RECEIVED`].
    ///
    /// # Errors
    /// As [`clone_snapshot`](Self::clone_snapshot); [`PoolError::Exists`] if there is one already.
    pub fn receive_onto(&self, tx: &Tx, snapshot: &str) -> Result<Dataset> {
        let volume = snapshot.split('@').next().unwrap_or_default();
        // Whatever the volume says of writes of others.
        let own = [(Property::ReadOnly, 0)];
        self.add_clone(tx, snapshot, &format!("{volume}/{RECEIVED}"), &own, DatasetKind::Receiving)
    }

    /// What was received as a new volume becomes one, with its snapshot, `volume@name`, in the transaction's
    /// txg. Owners remove what they have stored for the time until then (`keys`); whether it is read-only is
    /// inherited from then on.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for what is not being received; [`PoolError::Busy`] for what somebody still has
    /// open, to write what comes; those of [`snapshot`](Self::snapshot). Nothing was changed then.
    pub fn complete(&self, tx: &Tx, snapshot: &str, guid: Guid, keys: &[&[u8]]) -> Result<()> {
        self.shared.need(tx, Feature::Snapshots)?;
        let mut namespace = write(&self.shared.datasets.namespace);
        namespace.check_order(tx.txg())?;
        let name = snapshot.split('@').next().unwrap_or_default();
        let core = namespace.find(name).ok_or_else(|| PoolError::NoDataset(name.to_owned()))?;
        if read(&core.row).kind != DatasetKind::Receiving || core.base().is_some() {
            return Err(PoolError::invalid("volume that is being received", name));
        }
        if let Some(why) = core.user(&lock(&core.objects)) {
            return Err(PoolError::Busy { name: name.to_owned(), why });
        }
        write(&core.row).kind = DatasetKind::Volume;
        let (volume, _) =
            match self.add_snapshot(&mut namespace, tx, (snapshot, DatasetKind::Volume), guid, Claim::Data) {
                Ok(made) => made,
                Err(error) => {
                    write(&core.row).kind = DatasetKind::Receiving;
                    return Err(error);
                }
            };
        write(&core.row).values.set(Property::ReadOnly, None);
        let row = read(&core.row).clone();
        self.shared.note_dataset(&mut namespace, tx, core.id.0, Some(&row));
        namespace.refresh(core.id.0);
        let mut changes = self.shared.txgs.changes(tx.txg());
        keys.iter().for_each(|key| drop(changes.aux.insert((core.id.0, key.to_vec()), None)));
        drop((changes, namespace));
        self.begin_keeping(tx.txg(), &volume);
        Ok(())
    }

    /// A volume becomes what was received for it, and gets the snapshot `volume@name` of that. With
    /// `is_forced`, what has changed since the snapshot that the increment is on is lost, with newer
    /// snapshots. The caller holds no transaction, and nothing has the volume open.
    ///
    /// Persistence: durable on return. A crash during the call leaves the volume as it was, with what was
    /// received beside it; or all of the new state.
    ///
    /// # Errors
    /// [`PoolError::NotNewest`], [`PoolError::ChangedSince`]; [`PoolError::HasClones`] and
    /// [`PoolError::Busy`] of the volume or of newer snapshots; [`PoolError::Exists`],
    /// [`PoolError::NoSpace`], [`PoolError::NoRoomForSnapshot`] of a thick volume; those of a sync. Nothing
    /// was changed, unless the sync failed.
    pub fn absorb(&self, snapshot: &str, guid: Guid, is_forced: bool) -> Result<Txg> {
        let (name, _) = split(snapshot)?;
        let (received, volume) = self.close_received(name)?;
        let ids = [received.core().id.0, volume.core().id.0];
        self.sync_until_rows(ids)?;
        let ((), txg) = self.transact(|tx| {
            self.shared.need(tx, Feature::Snapshots)?;
            let mut namespace = write(&self.shared.datasets.namespace);
            namespace.check_order(tx.txg())?;
            let base = base_of(&namespace, received.core())?;
            let at = namespace.path(base.snapshot);
            if !is_forced {
                self.check_at(&namespace, base, &at)?;
            }
            let newer = newer(&namespace, base);
            newer.iter().try_for_each(|core| check_unneeded(&namespace, core))?;
            self.shared.check_thick_snapshot(&namespace, volume.core())?;
            let charge = self.charge_of_promotion(ids[0], base, &namespace)?
                + charge_of_gone() * (newer.len() as u64 + 1);
            // The snapshot's own is taken when that is made, whatever is left.
            let charge = charge + charge_of_new();
            self.shared.reserve_rows(
                &mut self.shared.txgs.changes(tx.txg()),
                charge,
                tx.claim(Claim::Free),
            )?;
            // Of those that go, one may have the name.
            let is_free = !newer.iter().any(|core| namespace.path(core.id.0) == snapshot);
            if is_free && namespace.find(snapshot).is_some() {
                return Err(PoolError::Exists(snapshot.to_owned()));
            }
            newer.iter().rev().for_each(|core| self.shared.remove_snapshot(&mut namespace, tx, core));
            let change = BranchChange::Absorb { clone: ids[0], base };
            self.shared.txgs.changes(tx.txg()).branches.push(change);
            let key = (ids[1], RECEIVED.to_owned());
            self.shared.remove_dataset(&mut namespace, tx, received.core(), &key);
            // Nothing can be in its way: its name is free, and its room is reserved.
            let (volume, _) =
                self.add_snapshot(&mut namespace, tx, (snapshot, DatasetKind::Volume), guid, Claim::Replay)?;
            volume.has_snapshots.store(true, Ordering::SeqCst);
            Ok(())
        })?;
        self.wait_synced(txg)?;
        Ok(txg)
    }

    /// Keeps a volume, and what is received for it, from being opened.
    fn close_received(&self, volume: &str) -> Result<(Closed, Closed)> {
        let namespace = write(&self.shared.datasets.namespace);
        let find = |name: &str| namespace.find(name).ok_or_else(|| PoolError::NoDataset(name.to_owned()));
        let (of_volume, received) = (find(volume)?, find(&format!("{volume}/{RECEIVED}"))?);
        base_of(&namespace, &received)?;
        Ok((Closed::close(&namespace, received)?, Closed::close(&namespace, of_volume)?))
    }

    /// Refuses a volume with newer snapshots than this one, or other contents.
    pub(super) fn check_at(&self, namespace: &Namespace, base: Base, snapshot: &str) -> Result<()> {
        let newer: Vec<_> = newer(namespace, base).iter().map(|core| namespace.path(core.id.0)).collect();
        if !newer.is_empty() {
            return Err(PoolError::NotNewest { name: snapshot.to_owned(), newer });
        }
        let changed = self.shared.tables.current().has_changed(base, DATA.0);
        match self.shared.tables.explained(changed)? {
            true => Err(PoolError::ChangedSince(snapshot.to_owned())),
            false => Ok(()),
        }
    }
}

/// Where what is received for a volume begins: at a snapshot of that volume.
fn base_of(namespace: &Namespace, received: &DatasetCore) -> Result<Base> {
    let row = read(&received.row).clone();
    let base = received.base().filter(|base| base.branch == row.parent && row.kind == DatasetKind::Receiving);
    let base = base.filter(|base| namespace.by_id.contains_key(&base.snapshot));
    let name = || namespace.path(received.id.0);
    base.ok_or_else(|| PoolError::invalid("increment that is being received", name()))
}
