//! What a front end keeps open on a dataset, across imports of the pool.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use fastness_base::{ErrorKind, HasKind};
use fastness_pool::{DatasetId, FailMode};
use fastness_sync::{lock, read};

use crate::dataset::OpenDataset;
use crate::error::StoreError;
use crate::imported::{Reopen, Unopened};
use crate::store::Store;

/// Time between two looks at whether a request has ended.
const PAUSE: Duration = Duration::from_millis(1);

/// What is opened on a dataset: a volume, a file system.
pub trait FrontEnd: Sized + Send + Sync + 'static {
    /// Why an operation of it failed.
    type Error: HasKind + From<StoreError> + Send + Sync + 'static;
    /// What it has in memory alone; `()`: nothing.
    type Kept: Default + Send + 'static;

    /// Opens it; called again after each import of the pool.
    ///
    /// # Errors
    /// The dataset is of another kind, or damaged.
    fn open(dataset: OpenDataset) -> Result<Self, Self::Error>;

    /// Hands out what it has in memory alone, before it is dropped because the pool is imported again.
    fn keep(&self) -> Self::Kept {
        Self::Kept::default()
    }

    /// Takes that over from the one before; nothing else uses it yet.
    fn take_over(&self, kept: Self::Kept) {
        drop(kept);
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome<E> {
    /// The request was carried out, or refused.
    Done(Result<(), E>),
    /// While it waited for a suspended pool, [`Attached::end`] was called, or its caller gave up.
    Ended,
}

/// A front end on a dataset, across imports of the pool. Made by [`Store::attach`].
///
/// Concurrency: any number of threads; a request that goes through takes no lock here.
pub struct Attached<F: FrontEnd> {
    store: Arc<Store>,
    /// `None` while the pool is imported again.
    opened: ArcSwapOption<F>,
    /// While the pool is imported again: what the one before had in memory alone.
    kept: Mutex<Option<F::Kept>>,
    is_ended: AtomicBool,
    dataset: DatasetId,
    /// The last known name.
    name: Mutex<String>,
}

impl<F: FrontEnd> std::fmt::Debug for Attached<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attached({})", *lock(&self.name))
    }
}

impl<F: FrontEnd> Attached<F> {
    /// The dataset.
    pub fn dataset(&self) -> DatasetId {
        self.dataset
    }

    /// Current full name of the dataset, or the last known one.
    pub fn name(&self) -> String {
        let mut name = lock(&self.name);
        if let Ok(dataset) = self.store.pool().dataset_by_id(self.dataset) {
            *name = dataset.name();
        }
        name.clone()
    }

    /// What is opened; `None` while the pool is imported again. It must not be kept: the pool is not imported
    /// again before it is dropped.
    pub fn get(&self) -> Option<Arc<F>> {
        self.opened.load_full()
    }

    /// Carries out a request. If it fails because the pool is suspended, and the pool's `failmode` says to
    /// wait, waits until the pool goes on and calls `request` again, for the front end in the new import.
    ///
    /// So a request must be *repeatable*: made a second time, after it was made in part or as a whole and
    /// reported an error, it must leave what one call leaves, and report what one call reports. What was
    /// made in memory before an error is not taken back, and the new import has it: durable or not, it is
    /// carried over. A write at an offset is repeatable; so is a commit. Not repeatable: an append, which
    /// may be there in part and would be there twice, and a creation, which would find what it has made.
    /// Such a request decides once, outside of `request`, where its bytes go; or does nothing that can fail
    /// after its change: a [`transact`](OpenDataset::transact) that fails has done nothing. A commit after
    /// it is then a request of its own. What `request` adds to variables of the caller must begin anew with
    /// each call.
    pub fn run(&self, request: impl FnMut(&F) -> Result<(), F::Error>) -> Outcome<F::Error> {
        self.run_until(|| false, request)
    }

    /// As [`run`](Self::run), for a request whose caller may give up while it waits.
    pub fn run_until(
        &self,
        is_given_up: impl Fn() -> bool,
        mut request: impl FnMut(&F) -> Result<(), F::Error>,
    ) -> Outcome<F::Error> {
        let must_end = || self.is_ended.load(Ordering::SeqCst) || is_given_up();
        loop {
            let seen = self.store.suspension.seen();
            let opened: Guard<Option<Arc<F>>> = self.opened.load();
            if let Some(front) = &*opened {
                match request(front) {
                    Err(error) if self.waits(&error) => {}
                    result => return Outcome::Done(result),
                }
            }
            drop(opened);
            if !self.store.suspension.wait(seen, must_end) {
                return Outcome::Ended;
            }
        }
    }

    /// Whether a request failed only because the pool is suspended.
    fn waits(&self, error: &F::Error) -> bool {
        let pool = self.store.pool();
        pool.fail_mode() == FailMode::Wait
            && matches!(error.kind(), ErrorKind::Closed | ErrorKind::MediaFailed)
            && pool.is_suspended()
    }

    /// Whether the pool is suspended now.
    pub fn is_suspended(&self) -> bool {
        self.store.pool().is_suspended()
    }

    /// Ends all waiting, now and later.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        self.store.suspension.wake();
    }
}

impl<F: FrontEnd> Reopen for Attached<F> {
    fn let_go(&self) {
        self.name();
        let Some(opened) = self.opened.swap(None) else { return };
        // A request of a suspended pool fails soon.
        while Arc::strong_count(&opened) > 1 {
            fastness_sync::sleep(PAUSE);
        }
        *lock(&self.kept) = Some(opened.keep());
    }

    fn take_up(&self) -> Result<(), Unopened> {
        let imported = self.store.imported();
        let dataset = imported.pool.dataset_by_id(self.dataset).map_err(StoreError::from);
        let opened = dataset.and_then(|dataset| self.store.open(&imported, dataset)).map_err(F::Error::from);
        match opened.and_then(F::open) {
            Ok(front) => {
                front.take_over(lock(&self.kept).take().unwrap_or_default());
                self.opened.store(Some(Arc::new(front)));
                Ok(())
            }
            Err(error) => {
                self.end();
                Err(Unopened { dataset: lock(&self.name).clone(), why: fastness_base::chain(&error) })
            }
        }
    }
}

impl Store {
    /// Opens a front end on a dataset; it goes on when the pool is suspended and imported again. Until it is
    /// dropped, the dataset is not destroyed.
    ///
    /// # Errors
    /// Those of [`Store::dataset`] and of opening it.
    pub fn attach<F: FrontEnd>(self: &Arc<Self>, name: &str) -> Result<Arc<Attached<F>>, F::Error> {
        let _clearing = read(&self.clearing);
        let imported = self.imported();
        let dataset = imported.pool.dataset(name).map_err(StoreError::from)?;
        let id = dataset.id();
        let front = F::open(self.open(&imported, dataset)?)?;
        let attached = Arc::new(Attached {
            store: self.clone(),
            opened: ArcSwapOption::from_pointee(front),
            kept: Mutex::default(),
            is_ended: AtomicBool::new(false),
            dataset: id,
            name: Mutex::new(name.to_owned()),
        });
        let weak = Arc::downgrade(&attached);
        let mut all = lock(&self.attached);
        all.retain(|other| other.strong_count() > 0);
        all.push(weak);
        Ok(attached)
    }

    /// Requests that wait for a suspended pool.
    pub fn waiting(&self) -> usize {
        self.suspension.waiting()
    }
}
