//! What a node serves, in whatever way: a volume over NBD, later a mount or a cache.

use std::sync::{Arc, Mutex};

use fastness_pool::DatasetId;
use fastness_store::Attached;
use fastness_zvol::Volume;

use crate::lock;
use crate::report::{IoRow, ServedReport};

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

    /// Ends it after the requests in flight. Requests that wait for a suspended pool fail.
    fn stop(self: Box<Self>);
}

/// All that is served.
#[derive(Default)]
pub(crate) struct Services(Mutex<Vec<Box<dyn Service>>>);

impl Services {
    pub(crate) fn add(&self, service: impl Service + 'static) {
        lock(&self.0).push(Box::new(service));
    }

    pub(crate) fn reports(&self) -> Vec<ServedReport> {
        lock(&self.0).iter().map(|service| service.report()).collect()
    }

    /// Counters, a row for each dataset.
    pub(crate) fn io(&self) -> Vec<IoRow> {
        let mut rows: Vec<IoRow> = Vec::new();
        for row in lock(&self.0).iter().filter_map(|service| service.io()) {
            if rows.iter().all(|known| known.name != row.name) {
                rows.push(row);
            }
        }
        rows
    }

    /// The volume of this dataset, if it is served.
    pub(crate) fn volume(&self, dataset: DatasetId) -> Option<Arc<Attached<Volume>>> {
        let services = lock(&self.0);
        services.iter().filter_map(|service| service.volume()).find(|of| of.dataset() == dataset).cloned()
    }

    /// Stops whatever serves this dataset.
    pub(crate) fn stop(&self, dataset: DatasetId) {
        let ended: Vec<_> =
            lock(&self.0).extract_if(.., |service| service.dataset() == Some(dataset)).collect();
        ended.into_iter().for_each(|service| service.stop());
    }

    /// Stops everything.
    pub(crate) fn stop_all(&self) {
        let ended = std::mem::take(&mut *lock(&self.0));
        ended.into_iter().for_each(|service| service.stop());
    }
}
