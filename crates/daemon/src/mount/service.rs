//! A file system that is mounted at a path.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastness_base::ErrorKind;
use fastness_fuse::{
    MountError, MountOptions, MountPoint, NoRings, Session, SessionOptions, Transport, Unmount, is_in_use,
    mount, unmount,
};
use fastness_store::{Attached, DatasetId};
use fastness_zpl::FileSystem;

use crate::io_report::IoRow;
use crate::journal::Journal;
use crate::mount::adapter::{Adapter, Owed};
use crate::mount::known::Known;
use crate::protocol::Failure;
use crate::report::{Address, ServedReport};
use crate::service::Service;
use crate::status::{files_row, operation_row, request_row};

/// How long requests in flight may take when a mount ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// A mounted file system, and the session that serves it.
pub(crate) struct MountService {
    adapter: Arc<Adapter>,
    path: PathBuf,
    session: Session,
}

fn failed(error: &MountError) -> Failure {
    let kind = match error {
        MountError::Busy(_) => ErrorKind::Retry,
        _ => ErrorKind::Invalid,
    };
    Failure::new(kind, error)
}

/// Looks at a mount point; what a dead server left there is unmounted.
fn prepare(path: &Path, journal: &Journal) -> Result<(), Failure> {
    let inspect = || MountPoint::inspect(path).map_err(|error| failed(&error));
    let mut found = inspect()?;
    if found == MountPoint::Stale {
        unmount(path, Unmount::Force).map_err(|error| failed(&error))?;
        journal.note(format!("{}: unmounted what a server that died had left", path.display()));
        found = inspect()?;
    }
    match found {
        MountPoint::Empty => Ok(()),
        MountPoint::NotEmpty => {
            journal.warn(format!("{} is not empty; the mount hides what is in it", path.display()));
            Ok(())
        }
        MountPoint::Mounted | MountPoint::Stale => Err(Failure::refuse(
            ErrorKind::Retry,
            format!("something is mounted at {} already", path.display()),
        )),
    }
}

impl MountService {
    /// Mounts, and serves from threads of its own until [`stop`](Service::stop), or until it is unmounted
    /// from outside. Files that were open at a crash and have no name are erased first.
    pub(crate) fn start(
        fs: Arc<Attached<FileSystem>>,
        path: &Path,
        options: &MountOptions,
        transport: Option<Transport>,
        journal: &Arc<Journal>,
    ) -> Result<MountService, Failure> {
        let is_read_only = options.is_read_only || fs.get().is_some_and(|fs| fs.dataset().is_read_only());
        prepare(path, journal)?;
        if !is_read_only && let Some(fs) = fs.get() {
            fs.reap_all(|_| false)?;
        }
        let (known, journal, keeps_access_time) = (Known::default(), journal.clone(), options.no_access_time);
        let adapter = Adapter { fs, known, owed: Owed::default(), journal, is_read_only, keeps_access_time };
        let adapter = Arc::new(adapter);
        let options = MountOptions { source: adapter.fs.name(), is_read_only, ..options.clone() };
        let device = mount(path, &options).map_err(|error| failed(&error))?;
        let session_options = SessionOptions {
            transport: transport.unwrap_or_else(Transport::told),
            ..SessionOptions::default()
        };
        match Session::start(device, adapter.clone(), session_options) {
            Ok(session) => {
                // Most kernels do not offer it, and nobody asked.
                let is_noted = |why: &&NoRings| transport.is_some() || !matches!(why, NoRings::NotOffered);
                if let Some(why) = session.no_rings().filter(is_noted) {
                    let at = path.display();
                    adapter
                        .journal
                        .note(format!("{at}: requests come over /dev/fuse, not over io_uring: {why}"));
                }
                Ok(MountService { adapter, path: path.to_owned(), session })
            }
            Err(error) => {
                // Nothing serves it: a process that looked at it would fail.
                let _ = unmount(path, Unmount::Force);
                Err(Failure::new(ErrorKind::Invalid, &error))
            }
        }
    }

    /// Unmounts it; without `is_forced` only if no file of it is in use.
    fn end(&self, is_forced: bool) -> Result<(), Failure> {
        let Adapter { fs, journal, .. } = &*self.adapter;
        let path = self.path.display();
        if fs.is_suspended() {
            if !is_forced {
                let text = format!("the pool is suspended: clear it first, or unmount {path} with --force");
                return Err(Failure::refuse(ErrorKind::Retry, text));
            }
            // The kernel waits for what it still writes from its cache.
            fs.end();
        }
        match unmount(&self.path, Unmount::Clean) {
            Err(MountError::Busy(_)) if is_forced => {
                journal.warn(format!("{path} was in use: it is detached, and programs in it get errors"));
                fs.end();
                unmount(&self.path, Unmount::Force).map_err(|error| failed(&error))?;
            }
            ended => ended.map_err(|error| failed(&error))?,
        }
        self.tidy_when_all_is_answered();
        Ok(())
    }

    fn tidy_when_all_is_answered(&self) {
        if self.session.wait(Some(PATIENCE)) {
            self.tidy();
        } else {
            self.adapter.journal.warn(format!("{}: a request has not ended", self.path.display()));
        }
    }

    /// Nothing uses the files any more: stores their times, and erases those without a name. If this fails,
    /// times may be those of the last txg, and the next mount erases.
    fn tidy(&self) {
        self.adapter.tidy(|fs| {
            fs.settle_all()?;
            fs.reap_all(|_| false).map(drop)
        });
    }
}

impl Service for MountService {
    fn dataset(&self) -> Option<DatasetId> {
        Some(self.adapter.fs.dataset())
    }

    fn io(&self) -> Option<IoRow> {
        let requests = self.session.stats().into_iter();
        let requests = requests.map(|stats| request_row(stats.operation.to_lowercase(), &stats.counts));
        Some(IoRow { requests: requests.collect(), ..files_row(&*self.adapter.fs.get()?) })
    }

    fn settle(&self) {
        self.adapter.tidy(FileSystem::settle_all);
    }

    fn mounted_at(&self) -> Option<String> {
        Some(self.path.display().to_string())
    }

    fn unmount(&self, is_forced: bool) -> Result<(), Failure> {
        self.end(is_forced)
    }

    fn users(&self) -> Option<String> {
        is_in_use(&self.path).then(|| format!("files at {}", self.path.display()))
    }

    fn waiting(&self) -> usize {
        self.session.waiting()
    }

    fn is_over(&self) -> bool {
        self.session.has_ended()
    }

    fn stop(self: Box<Self>) {
        if self.session.has_ended() {
            self.tidy_when_all_is_answered();
        } else if let Err(error) = self.end(true) {
            self.adapter.journal.warn(format!("{}: {error}", self.path.display()));
        }
        self.adapter.fs.end();
    }

    fn report(&self) -> ServedReport {
        let path = self.path.display().to_string();
        let operations = self.session.stats().into_iter();
        let operations = operations.map(|stats| operation_row(stats.operation.to_lowercase(), &stats.counts));
        ServedReport {
            volume: self.adapter.fs.name(),
            size_bytes: 0,
            address: Address::Mount(path.clone()),
            uri: path,
            is_read_only: self.adapter.is_read_only,
            clients: 0,
            tls: None,
            operations: operations.collect(),
        }
    }
}
