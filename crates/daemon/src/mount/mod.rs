//! Requests about file systems, and which of them are mounted.

mod adapter;
mod files;
mod groups;
mod known;
mod service;
mod translate;

use std::path::Path;

use fastness_base::{ErrorKind, chain};
use fastness_fuse::{MountOptions, Transport};
use fastness_store::{Dataset, DatasetKind, Pool};
use fastness_sync::lock;
use fastness_zpl::{FileSystem, FileSystemOptions, FsError};
use serde::{Deserialize, Serialize};

use crate::node::Node;
use crate::protocol::{Failure, MountRequest};
use crate::report::{FilesCheckReport, OfflineReport, ServedReport};
use crate::service::Service;
use service::MountService;

/// Key stored with a file system's dataset: where an import mounts it.
const KEPT: &[u8] = b"mount";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    path: String,
    options: MountRequest,
}

/// How the kernel is to hand requests over, if the mount's options say so.
fn transport_of(request: MountRequest) -> Option<Transport> {
    request.is_over_rings.map(|is_over| if is_over { Transport::Rings } else { Transport::Device })
}

fn options_of(request: MountRequest) -> MountOptions {
    MountOptions {
        source: String::new(),
        is_read_only: request.is_read_only,
        no_set_id: request.no_set_id,
        no_devices: request.no_devices,
        no_exec: request.no_exec,
        no_access_time: request.no_access_time,
        allows_others: request.allows_others,
    }
}

fn files_of(pool: &Pool, name: &str) -> Result<Dataset, FsError> {
    let dataset = pool.dataset(name)?;
    match dataset.snapshot_of().unwrap_or(dataset.kind()) {
        DatasetKind::Filesystem => Ok(dataset),
        _ => Err(FsError::NotAFileSystem { name: name.to_owned() }),
    }
}

fn checked(files: &Dataset, offline: Option<OfflineReport>) -> Result<FilesCheckReport, FsError> {
    let report = match offline {
        Some(_) => fastness_zpl::check(files)?,
        None => fastness_zpl::check_in_use(files)?,
    };
    Ok(FilesCheckReport {
        files: report.files,
        directories: report.directories,
        names: report.entries,
        without_name: report.orphans,
        findings: report.findings.iter().map(ToString::to_string).collect(),
        findings_count: report.findings_count,
        offline,
    })
}

/// Compares all tables of a file system with each other, of a pool that does not run and was opened
/// read-only: in the state of its last txg, without the records that its log may have besides.
///
/// # Errors
/// Those of reading the tables; it is no file system.
pub fn check_files_offline(pool: &Pool, name: &str) -> Result<FilesCheckReport, Failure> {
    let offline = OfflineReport { synced_txg: pool.synced_txg().0, leaves_log_out: !pool.was_exported() };
    Ok(checked(&files_of(pool, name)?, Some(offline))?)
}

impl Node {
    /// Creates an empty file system, whose root belongs to this user and group.
    ///
    /// # Errors
    /// Those of creating a dataset.
    pub fn create_files(
        &self,
        name: &str,
        (uid, gid): (u32, u32),
        properties: &[(String, String)],
        with_parents: bool,
    ) -> Result<(), Failure> {
        let plain = self.prepare(name, properties, with_parents)?;
        let options = FileSystemOptions { properties: plain, uid, gid, seed: None };
        FileSystem::create(&self.store, name, &options)?;
        self.set_user_properties(name, properties)
    }

    /// Mounts a file system, or a snapshot of one, which is read-only; with `is_kept`, after each import.
    ///
    /// # Errors
    /// It is mounted elsewhere, the mount point cannot be used, there is no FUSE; errors of opening it.
    pub fn mount(
        &self,
        name: &str,
        path: &Path,
        options: MountRequest,
        is_kept: bool,
    ) -> Result<ServedReport, Failure> {
        let _mounting = lock(&self.services.mounting);
        self.refuse_at_end()?;
        let dataset = self.files(name)?;
        if let Some(at) = self.services.mounted(dataset.id()) {
            let text = format!("{name} is mounted at {at} already; unmount it there first");
            return Err(Failure::refuse(ErrorKind::Retry, text));
        }
        let attached = self.store.attach::<FileSystem>(name)?;
        let service =
            MountService::start(attached, path, &options_of(options), transport_of(options), &self.journal)?;
        let report = service.report();
        self.services.add(service);
        if is_kept {
            let kept = Kept { path: path.display().to_string(), options };
            self.keep_mount(&dataset, Some(&kept))?;
        }
        Ok(report)
    }

    /// Unmounts a file system, given its name or its mount point, and forgets where it was.
    pub(crate) fn unmount(&self, what: &str, is_forced: bool) -> Result<(), Failure> {
        let _mounting = lock(&self.services.mounting);
        let dataset = match self.services.unmount(what, is_forced)? {
            Some(dataset) => {
                let forgotten = self.pool().dataset_by_id(dataset).map_err(Failure::from);
                let forgotten = forgotten.and_then(|dataset| self.keep_mount(&dataset, None));
                return forgotten.map_err(|failure| Failure {
                    message: format!("{what} is unmounted, and the next import mounts it again: {failure}"),
                    ..failure
                });
            }
            None => {
                let dataset = self.files(what)?;
                if self.kept_mount(&dataset).is_none() {
                    let text = format!("{what} is not mounted");
                    return Err(Failure::refuse(ErrorKind::Invalid, text));
                }
                dataset
            }
        };
        self.keep_mount(&dataset, None)
    }

    /// Compares all of a file system's tables with each other. What changes meanwhile may be a finding.
    pub(crate) fn check_files(&self, name: &str) -> Result<FilesCheckReport, Failure> {
        Ok(checked(&self.files(name)?, None)?)
    }

    /// Mounts the file systems that are set to be mounted after each import; notes those that cannot be.
    pub(crate) fn mount_kept(&self) {
        let all = self.pool().datasets().into_iter().filter(|info| info.kind == DatasetKind::Filesystem);
        // Snapshots last: a mount point of theirs may be in a file system.
        let snapshots = self.pool().snapshots().into_iter().map(|info| info.name);
        for name in all.map(|info| info.name).chain(snapshots) {
            let Ok(dataset) = self.files(&name) else { continue };
            let Some(Kept { path, options }) = self.kept_mount(&dataset) else { continue };
            if let Err(error) = self.mount(&name, Path::new(&path), options, false) {
                self.journal.fail(format!("{name} is not mounted: {}", chain(&error)));
            }
        }
    }

    fn files(&self, name: &str) -> Result<Dataset, Failure> {
        Ok(files_of(&self.pool(), name)?)
    }

    fn kept_mount(&self, dataset: &Dataset) -> Option<Kept> {
        let stored = dataset.synced_aux(KEPT).ok().flatten()?;
        serde_json::from_slice(&stored).ok()
    }

    fn keep_mount(&self, dataset: &Dataset, kept: Option<&Kept>) -> Result<(), Failure> {
        if self.kept_mount(dataset).as_ref() == kept {
            return Ok(());
        }
        let value = kept.map(|kept| serde_json::to_vec(kept).expect("text and flags"));
        let tx = self.pool().begin_tx()?;
        dataset.put_aux(&tx, KEPT, value.as_deref());
        Ok(self.pool().wait_synced(tx.commit())?)
    }
}
