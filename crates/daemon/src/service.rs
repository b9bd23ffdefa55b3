//! What a node serves, in whatever way: a volume over NBD, later a mount or a cache.

use std::sync::Arc;

use fastness_store::{Attached, DatasetId};
use fastness_sync::{Mutex, lock};
use fastness_zvol::Volume;

use crate::io_report::IoRow;
use crate::protocol::Failure;
use crate::report::ServedReport;

/// Something that is served until it is stopped.
pub(crate) trait Service: Send + Sync {
    /// The dataset; `None` for one without a pool.
    fn dataset(&self) -> Option<DatasetId>;

    fn report(&self) -> ServedReport;

    /// Counters of what it serves; two services of one dataset have the same.
    fn io(&self) -> Option<IoRow>;

    /// The volume, if it is one.
    fn volume(&self) -> Option<&Arc<Attached<Volume>>> {
        None
    }

    /// A snapshot is about to be made: what is only in memory, and need not be durable, is stored.
    fn settle(&self) {}

    /// Where it is mounted, if it is a mount.
    fn mounted_at(&self) -> Option<String> {
        None
    }

    /// Unmounts a mount; without `is_forced` only if no file of it is in use.
    fn unmount(&self, _is_forced: bool) -> Result<(), Failure> {
        Ok(())
    }

    /// The size of its volume has changed.
    fn resized(&self) {}

    /// Who uses it now, if anyone does and that can be found out.
    fn users(&self) -> Option<String> {
        None
    }

    /// Requests that wait for a suspended pool without a thread.
    fn waiting(&self) -> usize {
        0
    }

    /// Whether it has been ended from outside.
    fn is_over(&self) -> bool {
        false
    }

    /// Ends it after the requests in flight. Requests that wait for a suspended pool fail.
    fn stop(self: Box<Self>);
}

type ServedService = Box<dyn Service>;

/// All that is served.
#[derive(Default)]
pub(crate) struct Services {
    all: Mutex<Vec<ServedService>>,
    /// Held while something is mounted or unmounted, or datasets are destroyed. Taken before `all`.
    pub(crate) mounting: Mutex<()>,
}

impl Services {
    /// Adds what is served from now on; returns what to say of it.
    pub(crate) fn add(&self, service: impl Service + 'static) -> ServedReport {
        let report = service.report();
        lock(&self.all).push(Box::new(service));
        report
    }

    pub(crate) fn reports(&self) -> Vec<ServedReport> {
        self.drop_over();
        lock(&self.all).iter().map(|service| service.report()).collect()
    }

    /// Requests that wait for a suspended pool without a thread.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.all).iter().map(|service| service.waiting()).sum()
    }

    /// A snapshot of a dataset is about to be made.
    pub(crate) fn settle(&self, dataset: DatasetId) {
        let services = lock(&self.all);
        services.iter().filter(|of| of.dataset() == Some(dataset)).for_each(|of| of.settle());
    }

    /// Who uses a dataset, or anything.
    pub(crate) fn users(&self, dataset: Option<DatasetId>) -> Vec<String> {
        self.drop_over();
        let services = lock(&self.all);
        let chosen = services.iter().filter(|service| dataset.is_none() || service.dataset() == dataset);
        chosen.filter_map(|service| service.users()).collect()
    }

    /// Counters, a row for each dataset; requests to all its sockets together.
    pub(crate) fn io(&self) -> Vec<IoRow> {
        let mut rows: Vec<IoRow> = Vec::new();
        for row in lock(&self.all).iter().filter_map(|service| service.io()) {
            match rows.iter_mut().find(|known| known.name == row.name) {
                Some(known) => known.add_requests(row.requests),
                None => rows.push(row),
            }
        }
        rows
    }

    /// The volume of this dataset, if it is served.
    pub(crate) fn volume(&self, dataset: DatasetId) -> Option<Arc<Attached<Volume>>> {
        let services = lock(&self.all);
        services.iter().filter_map(|service| service.volume()).find(|of| of.dataset() == dataset).cloned()
    }

    /// Tells clients that the size of a volume has changed, where they can be told.
    pub(crate) fn resized(&self, dataset: DatasetId) {
        let services = lock(&self.all);
        services.iter().filter(|of| of.dataset() == Some(dataset)).for_each(|of| of.resized());
    }

    /// Where a dataset is mounted.
    pub(crate) fn mounted(&self, dataset: DatasetId) -> Option<String> {
        self.drop_over();
        let services = lock(&self.all);
        services
            .iter()
            .filter(|service| service.dataset() == Some(dataset))
            .find_map(|service| service.mounted_at())
    }

    /// Unmounts the mount with this name or path; returns its dataset, or `None` if there is none. The caller
    /// holds `mounting`.
    pub(crate) fn unmount(&self, what: &str, is_forced: bool) -> Result<Option<DatasetId>, Failure> {
        self.drop_over();
        let is_it = |service: &ServedService| {
            service.mounted_at().is_some_and(|at| at == what || service.report().volume == what)
        };
        // Taken out meanwhile: others need not wait for the unmount.
        let taken = {
            let mut services = lock(&self.all);
            services.iter().position(is_it).map(|at| services.remove(at))
        };
        let Some(service) = taken else { return Ok(None) };
        if let Err(error) = service.unmount(is_forced) {
            lock(&self.all).push(service);
            return Err(error);
        }
        let dataset = service.dataset();
        service.stop();
        Ok(dataset)
    }

    /// Lets go of what was ended from outside.
    fn drop_over(&self) {
        let over: Vec<_> = lock(&self.all).extract_if(.., |service| service.is_over()).collect();
        over.into_iter().for_each(|service| service.stop());
    }

    /// Stops whatever serves this dataset.
    pub(crate) fn stop(&self, dataset: DatasetId) {
        let ended: Vec<_> =
            lock(&self.all).extract_if(.., |service| service.dataset() == Some(dataset)).collect();
        ended.into_iter().for_each(|service| service.stop());
    }

    /// Stops everything.
    pub(crate) fn stop_all(&self) {
        let _mounting = lock(&self.mounting);
        let ended = std::mem::take(&mut *lock(&self.all));
        ended.into_iter().for_each(|service| service.stop());
    }
}
