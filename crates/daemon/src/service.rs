//! What a node serves, in whatever way: a volume over NBD, later a mount or a cache.

use std::sync::{Arc, Mutex};

use fastness_pool::DatasetId;
use fastness_store::Attached;
use fastness_zvol::Volume;

use crate::lock;
use crate::mount::MountService;
use crate::protocol::Failure;
use crate::report::{Address, IoRow, ServedReport};

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

    /// The mount, if it is one.
    fn mount(&self) -> Option<&MountService> {
        None
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
pub(crate) struct Services(Mutex<Vec<ServedService>>);

impl Services {
    pub(crate) fn add(&self, service: impl Service + 'static) {
        lock(&self.0).push(Box::new(service));
    }

    pub(crate) fn reports(&self) -> Vec<ServedReport> {
        self.drop_over();
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

    /// Where a dataset is mounted.
    pub(crate) fn mounted(&self, dataset: DatasetId) -> Option<String> {
        let is_of = |service: &ServedService| service.mount().is_some() && service.dataset() == Some(dataset);
        self.drop_over();
        let services = lock(&self.0);
        services.iter().find(|service| is_of(service)).map(|service| service.report().uri)
    }

    /// Unmounts the mount with this name or path; returns its dataset, or `None` if there is none.
    pub(crate) fn unmount(&self, what: &str, is_forced: bool) -> Result<Option<DatasetId>, Failure> {
        self.drop_over();
        let mut services = lock(&self.0);
        let is_it = |service: &ServedService| {
            let report = service.report();
            service.mount().is_some()
                && (report.volume == what || report.address == Address::Mount(what.to_owned()))
        };
        let Some(at) = services.iter().position(is_it) else { return Ok(None) };
        if let Some(mount) = services[at].mount() {
            mount.end(is_forced)?;
        }
        let ended = services.remove(at);
        drop(services);
        let dataset = ended.dataset();
        ended.stop();
        Ok(dataset)
    }

    /// Lets go of what was ended from outside.
    fn drop_over(&self) {
        let over: Vec<_> = lock(&self.0).extract_if(.., |service| service.is_over()).collect();
        over.into_iter().for_each(|service| service.stop());
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
