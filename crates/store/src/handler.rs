//! Kinds of datasets, and how the records of each are replayed.

use std::any::Any;
use std::cell::OnceCell;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use fastness_pool::{Dataset, DatasetKind, LogSpace, Object, Tx};
use fastness_zil::ReplayHandler;
use fastness_zil::record::{Head, Record};

use crate::error::StoreError;
use crate::side::PoolSide;

/// Why a record cannot be applied.
pub type ReplayError = Box<dyn Error + Send + Sync>;

/// Applies the records of one kind of datasets after a crash. It is run before the dataset is served, and
/// each record is applied in one transaction with the note that it was; several records may share one.
pub trait Handler: Send + Sync {
    /// Applies a record, in the order of the changes. A record that
    /// [may be reordered](crate::record#records-of-other-owners) does nothing, without an error, if its
    /// object does not exist.
    ///
    /// # Errors
    /// What prevents it; nothing may then have been changed. The import fails, or gives up this record and
    /// those after it.
    fn apply(
        &self,
        dataset: &Replaying<'_>,
        tx: &Tx,
        head: &Head,
        record: &Record<'_>,
    ) -> Result<(), ReplayError>;
}

/// A dataset that is being replayed.
#[derive(Debug)]
pub struct Replaying<'a> {
    /// The dataset.
    pub dataset: &'a Dataset,
    /// It is no crash: the pool was suspended, and goes on with what is in memory. What was in use still is.
    pub is_resumed: bool,
    blocks: LogSpace,
    kept: OnceCell<Box<dyn Any>>,
}

impl<'a> Replaying<'a> {
    pub(crate) fn new(dataset: &'a Dataset, is_resumed: bool, blocks: LogSpace) -> Self {
        Replaying { dataset, is_resumed, blocks, kept: OnceCell::new() }
    }

    /// What the handler keeps from one record of the dataset to the next; `make` makes it for the first.
    ///
    /// # Errors
    /// Those of `make`.
    ///
    /// # Panics
    /// Caller bug only: a handler keeps things of one type.
    pub fn kept<T: 'static, E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let kept = match self.kept.get() {
            Some(kept) => kept,
            None => {
                let made = make()?;
                self.kept.get_or_init(|| Box::new(made))
            }
        };
        Ok(kept.downcast_ref().expect("a handler keeps things of one type"))
    }

    /// Writes data that a record names by its address; it was claimed with the record.
    ///
    /// # Errors
    /// Those of reading and writing it.
    pub fn write_stored(
        &self,
        tx: &Tx,
        object: &Object,
        offset: u64,
        (address, len_bytes): (&[u8], u64),
    ) -> fastness_pool::Result<()> {
        let (mut at, mut written) = (offset, Ok(()));
        self.blocks.read_stored(address, len_bytes, &mut |block| {
            if written.is_ok() {
                written = object.write(tx, at, block);
            }
            at += block.len() as u64;
        })?;
        written
    }
}

/// The kinds of datasets that a store knows. Datasets of any other kind are left alone, with the records in
/// their logs.
#[derive(Clone, Default)]
pub struct Kinds(Vec<(DatasetKind, Arc<dyn Handler>)>);

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(kind, _)| kind)).finish()
    }
}

impl Kinds {
    /// With one more kind, or another handler for a known one. A front end from outside takes a
    /// [`DatasetKind::Other`] with a number that nobody else uses, 3 or higher: a lower one is that of a
    /// known kind, no dataset is created with it, and its handler is never called.
    #[must_use]
    pub fn with(mut self, kind: DatasetKind, handler: impl Handler + 'static) -> Kinds {
        self.0.retain(|(known, _)| *known != kind);
        self.0.push((kind, Arc::new(handler)));
        self
    }

    pub(crate) fn handler(&self, kind: DatasetKind) -> Option<&dyn Handler> {
        self.0.iter().find(|(known, _)| *known == kind).map(|(_, handler)| &**handler)
    }

    /// Refuses datasets of unknown kinds.
    pub(crate) fn check(&self, dataset: &Dataset) -> Result<(), StoreError> {
        match self.handler(dataset.kind()) {
            Some(_) => Ok(()),
            None => Err(StoreError::UnknownKind { dataset: dataset.name(), kind: dataset.kind() }),
        }
    }
}

/// A handler as the log calls it.
pub(crate) struct Applying<'a> {
    pub(crate) handler: &'a dyn Handler,
    pub(crate) replaying: Replaying<'a>,
    /// Called for each record.
    pub(crate) applied: &'a mut dyn FnMut(&Record<'_>),
}

impl ReplayHandler<PoolSide> for Applying<'_> {
    fn apply(&mut self, tx: &Tx, head: &Head, record: &Record<'_>) -> Result<(), ReplayError> {
        (self.applied)(record);
        self.handler.apply(&self.replaying, tx, head, record)
    }
}
