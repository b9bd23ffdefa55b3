//! A stream becomes a volume, or the next state of one.
//!
//! What comes goes into a dataset that is no volume yet (`received` of the pool), with how far it came
//! (`state`) in the same transactions. Everything about the stream is checked before anything is made, and
//! each record before it is used. When the last record has come, the dataset becomes the volume in one txg.
//!
//! Crash cases: before that txg there is a dataset that is no volume, with all that came up to what is stored
//! with it. It goes on with a token if that was asked for, and is removed by the next import if not.

use std::io::Read;
use std::sync::Arc;

use fastness_store::{Dataset, DatasetHold, DatasetKind, Guid, Pool, PoolError, Property, RECEIVED, Store};
use fastness_stream::{Part, Reader, Token};

use crate::create::check_size;
use crate::transfer::error::TransferError;
use crate::transfer::state::{KEY, State};
use crate::volume::DATA;

/// How a stream is received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// What came is kept if the stream ends early.
    pub is_resumable: bool,
    /// A volume that is not at the snapshot that the increment is on goes back to it.
    pub is_forced: bool,
}

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Full name of the new snapshot.
    pub snapshot: String,
    /// Bytes of data in the stream.
    pub data_bytes: u64,
}

/// A volume of which not everything has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The volume.
    pub volume: String,
    /// Full name of the dataset that has what came.
    pub dataset: String,
    /// Where the stream goes on; `None` if what came is not kept.
    pub token: Option<Token>,
    /// Size of the volume.
    pub size_bytes: u64,
}

/// Where what is received is put, by the names that it had at the beginning.
struct Target {
    volume: String,
    /// Last part of the name of the snapshot that there will be.
    last: String,
    dataset: String,
    state: State,
}

/// The dataset that gets what comes. Nobody else has it meanwhile; it may be renamed.
struct Filled {
    dataset: Dataset,
    hold: DatasetHold,
}

/// All volumes of which not everything has come.
pub fn receiving(pool: &Pool) -> Vec<Incoming> {
    let all = pool.datasets().into_iter().filter(|info| info.kind == DatasetKind::Receiving);
    let incoming = all.filter_map(|info| {
        let state = State::of(&pool.dataset(&info.name).ok()?);
        Some(Incoming {
            volume: volume_of(&info.name).to_owned(),
            size_bytes: state.as_ref().map_or(0, |state| state.begin.size_bytes),
            token: state.filter(|state| state.is_resumable).map(|state| state.token()),
            dataset: info.name,
        })
    });
    incoming.collect()
}

/// Discards what came of a volume.
///
/// # Errors
/// [`TransferError::NotReceiving`]; [`TransferError::BeingReceived`] while it is still coming.
pub fn abort_receiving(store: &Store, volume: &str) -> Result<(), TransferError> {
    let is_it = |incoming: &Incoming| incoming.volume == volume || incoming.dataset == volume;
    let found = receiving(&store.pool()).into_iter().find(is_it);
    let found = found.ok_or_else(|| TransferError::NotReceiving(volume.to_owned()))?;
    let dropped = store.change_unopened(|pool, tx| pool.destroy_dataset(tx, &found.dataset));
    dropped.map_err(|error| being_received(error.into(), &found.volume))
}

/// What it means that the dataset of what comes is in use.
fn being_received(error: TransferError, volume: &str) -> TransferError {
    match error.of_pool() {
        Some(PoolError::Busy { .. }) => TransferError::BeingReceived(volume.to_owned()),
        _ => error,
    }
}

/// Discards what a crash has left of streams that were not to be kept; returns the volumes.
///
/// # Errors
/// Those of the pool.
pub fn drop_interrupted(store: &Store) -> Result<Vec<String>, TransferError> {
    let mut dropped = Vec::new();
    for incoming in receiving(&store.pool()).into_iter().filter(|incoming| incoming.token.is_none()) {
        store.change_unopened(|pool, tx| pool.destroy_dataset(tx, &incoming.dataset))?;
        dropped.push(incoming.volume);
    }
    Ok(dropped)
}

/// Receives a stream into a volume, `name` or, with a name for its snapshot, `volume@name`.
///
/// Persistence: durable on return. Until then there is no volume of that name, or the one that there was is
/// as it was.
///
/// # Errors
/// [`TransferError`].
pub fn receive(
    store: &Store,
    name: &str,
    input: impl Read,
    options: ReceiveOptions,
) -> Result<Received, TransferError> {
    let mut reader = Reader::begin(input)?;
    let (volume, own) = name.split_once('@').unwrap_or((name, ""));
    let last = if own.is_empty() { reader.about().name.rsplit('@').next().unwrap_or_default() } else { own };
    let state = State { begin: reader.about().clone(), is_resumable: options.is_resumable };
    let is_increment = state.begin.from.is_some();
    let mut target = Target {
        volume: volume.to_owned(),
        last: last.to_owned(),
        dataset: if is_increment { format!("{volume}/{RECEIVED}") } else { volume.to_owned() },
        state,
    };
    check_size(target.state.begin.size_bytes, u64::from(target.state.begin.block_bytes).max(1))?;
    let Filled { dataset, hold } = target.prepare(store, options)?;
    let filled = target.fill(&store.pool(), &dataset, &mut reader);
    drop(hold);
    let result = filled.and_then(|data_bytes| {
        let snapshot = target.finish(store, &dataset, options.is_forced)?;
        Ok(Received { snapshot, data_bytes })
    });
    result.map_err(|error| target.give_up(store, &dataset, error))
}

/// The volume for which a dataset gets what comes, by their full names.
pub fn volume_of(dataset: &str) -> &str {
    dataset.strip_suffix(RECEIVED).and_then(|above| above.strip_suffix('/')).unwrap_or(dataset)
}

impl Target {
    /// Checks what there is, and makes what is not.
    fn prepare(&mut self, store: &Store, options: ReceiveOptions) -> Result<Filled, TransferError> {
        let pool = store.pool();
        if let Ok(dataset) = pool.dataset(&self.dataset)
            && dataset.kind() == DatasetKind::Receiving
        {
            // Before anything else: whoever else has it would write to it as well, also to the volume that it
            // becomes.
            let filled = self.take(dataset)?;
            let found = State::of(&filled.dataset);
            let is_kept = found.as_ref().is_some_and(|state| state.is_resumable);
            return match found {
                Some(found) if self.state.begin.resumes_at > 0 => self.go_on(&found).map(|()| filled),
                // Nothing has come yet: the rest is all of it.
                Some(found) if found.is_beginning_of(&self.state.begin) => {
                    self.go_on(&found).map(|()| filled)
                }
                Some(found) if is_kept => Err(TransferError::Partial {
                    volume: self.volume.clone(),
                    token: found.token().to_string(),
                }),
                // A crash has left it.
                _ => {
                    drop(filled);
                    let dropped = store.change_unopened(|pool, tx| pool.destroy_dataset(tx, &self.dataset));
                    dropped.map_err(|error| being_received(error.into(), &self.volume))?;
                    self.take(self.make(store, options)?)
                }
            };
        }
        if self.state.begin.resumes_at > 0 {
            return Err(self.other_part("there is nothing"));
        }
        self.take(self.make(store, options)?)
    }

    /// The dataset for this stream alone.
    fn take(&self, dataset: Dataset) -> Result<Filled, TransferError> {
        let hold = dataset.hold_alone().map_err(|error| being_received(error.into(), &self.volume))?;
        if dataset.kind() != DatasetKind::Receiving {
            // Another stream has made a volume of it just now.
            return Err(TransferError::Exists(self.volume.clone()));
        }
        Ok(Filled { dataset, hold })
    }

    fn other_part(&self, why: &'static str) -> TransferError {
        TransferError::OtherPart { volume: self.volume.clone(), why }
    }

    fn go_on(&mut self, found: &State) -> Result<(), TransferError> {
        let (sent, has) = (&self.state.begin, &found.begin);
        if (sent.to, sent.from, sent.size_bytes, sent.block_bytes)
            != (has.to, has.from, has.size_bytes, has.block_bytes)
        {
            return Err(self.other_part("it is part of another snapshot"));
        }
        if sent.resumes_at != has.resumes_at {
            return Err(self.other_part("that ends elsewhere"));
        }
        // It was kept, and it stays so.
        self.state.is_resumable |= found.is_resumable;
        Ok(())
    }

    fn make(&self, store: &Store, options: ReceiveOptions) -> Result<Dataset, TransferError> {
        let pool = store.pool();
        let begin = &self.state.begin;
        let stored = self.state.encode();
        let Some(from) = begin.from else {
            if pool.dataset(&self.volume).is_ok() {
                return Err(TransferError::Exists(self.volume.clone()));
            }
            let own = [(Property::VolBlockSize, u64::from(begin.block_bytes)), (Property::ReadOnly, 0)];
            return Ok(store.change_unopened(|pool, tx| {
                let dataset = pool.create_dataset(tx, &self.dataset, DatasetKind::Receiving, &own)?;
                let filled = dataset.create_object(tx).and_then(|data| data.truncate(tx, begin.size_bytes));
                if filled.is_err() {
                    pool.destroy_dataset(tx, &self.dataset)?;
                }
                filled.map(|()| {
                    dataset.put_aux(tx, KEY, Some(&stored));
                    dataset
                })
            })?);
        };
        let volume = pool.dataset(&self.volume)?;
        if volume.kind() != DatasetKind::Volume {
            return Err(TransferError::Exists(self.volume.clone()));
        }
        if let Some(there) = pool.snapshots_with_guid(Guid(begin.to), Some(&self.volume))?.pop() {
            return Err(TransferError::AlreadyThere(there));
        }
        let on = pool.snapshots_with_guid(Guid(from), Some(&self.volume))?.pop();
        let no_base = || TransferError::NoBase { volume: self.volume.clone(), guid: from };
        let on = on.ok_or_else(no_base)?;
        let found = volume.get(Property::VolBlockSize).0;
        if found != u64::from(begin.block_bytes) {
            let volume = self.volume.clone();
            return Err(TransferError::OtherBlocks { volume, found, sent: begin.block_bytes });
        }
        if !options.is_forced {
            pool.sync()?;
            pool.check_unchanged_since(&on)?;
        }
        Ok(store.change_unopened(|pool, tx| {
            let dataset = pool.receive_onto(tx, &on)?;
            dataset.put_aux(tx, KEY, Some(&stored));
            Ok(dataset)
        })?)
    }

    /// Takes what comes.
    fn fill<R: Read>(
        &mut self,
        pool: &Arc<Pool>,
        dataset: &Dataset,
        reader: &mut Reader<R>,
    ) -> Result<u64, TransferError> {
        let data = dataset.object(DATA)?;
        if data.size_bytes() != self.state.begin.size_bytes {
            pool.transact(|tx| data.truncate(tx, self.state.begin.size_bytes))?;
        }
        let mut data_bytes = 0;
        while let Some(part) = reader.next()? {
            let end = match part {
                Part::Data(at, bytes) => at + bytes.len() as u64,
                Part::Hole(at, len) => at + len,
            };
            self.state.begin.resumes_at = end;
            let stored = self.state.encode();
            pool.transact(|tx| {
                match part {
                    Part::Data(at, bytes) => data.overwrite(tx, at, bytes)?,
                    Part::Hole(at, len) => data.punch(tx, at, len)?,
                }
                dataset.put_aux(tx, KEY, Some(&stored));
                Ok::<_, PoolError>(())
            })?;
            if let Part::Data(_, bytes) = part {
                data_bytes += bytes.len() as u64;
            }
        }
        Ok(data_bytes)
    }

    /// All of it has come. Returns the full name of the snapshot.
    fn finish(&self, store: &Store, dataset: &Dataset, is_forced: bool) -> Result<String, TransferError> {
        let guid = Guid(self.state.begin.to);
        // As they are called now.
        let (name, last) = (dataset.name(), &self.last);
        let snapshot = format!("{}@{last}", volume_of(&name));
        match self.state.begin.from {
            None => store.complete(&snapshot, guid, &[KEY])?,
            Some(_) => store.absorb(&snapshot, guid, is_forced)?,
        }
        Ok(snapshot)
    }

    /// The stream has ended early: keeps what came if that is wanted, or else removes it.
    fn give_up(&self, store: &Store, dataset: &Dataset, error: TransferError) -> TransferError {
        // Another stream may have made a volume of it, or somebody has discarded it.
        let is_there = store.pool().dataset_by_id(dataset.id()).is_ok();
        if !is_there || dataset.kind() != DatasetKind::Receiving {
            return error;
        }
        let name = dataset.name();
        if !self.state.is_resumable {
            // A pool that cannot do that any more leaves it to the next import.
            let _ = store.change_unopened(|pool, tx| pool.destroy_dataset(tx, &name));
            return error;
        }
        let _ = store.pool().sync();
        let Some(kept) = State::of(dataset) else { return error };
        TransferError::Interrupted {
            volume: volume_of(&name).to_owned(),
            token: kept.token().to_string(),
            source: Box::new(error),
        }
    }
}
