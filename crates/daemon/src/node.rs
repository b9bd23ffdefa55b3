//! A pool that this process has imported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use fastness_base::ErrorKind;
use fastness_store::{
    DatasetKind, Device, ImportOptions, Kinds, Local, Places, Pool, PoolError, PoolLog, PoolOptions, Pulse,
    Store, StoreOptions,
};
use fastness_sync::{Condvar, Mutex, RwLock, lock};
use fastness_zpl::FileReplay;
use fastness_zvol::VolumeReplay;
use serde::Serialize;
use serde_json::Value;

use crate::durability::GivenUp;
use crate::error::StartError;
use crate::imported;
use crate::importing::{ImportReport, ImportStep, ImportWatch};
use crate::jobs::{Jobs, Tell};
use crate::journal::Journal;
use crate::listeners::Listeners;
use crate::paths::remember_devices;
use crate::protocol::{Failure, Request};
use crate::report::HistoryReport;
use crate::service::Services;
use crate::signals::on_signals;
use crate::transfers::Transfers;

/// Settings of a run; none of them is stored.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Options of the pool.
    pub pool: PoolOptions,
    /// Whether the devices are remembered for the next import by name.
    pub remembers: bool,
    /// Whether nothing is served and mounted that was before.
    pub is_quiet: bool,
    /// Where its parts may be, and what part of the log may be given up; acknowledged writes are then lost.
    pub places: Places,
    /// Receives the progress of the import.
    pub watch: ImportWatch,
}

/// Why a node has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A request exported the pool.
    Request,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// The pool was destroyed.
    Destroyed,
}

/// An imported pool, what it serves and what it does in the background.
///
/// Concurrency: any number of threads hand it requests.
pub struct Node {
    pub(crate) store: Arc<Store>,
    pub(crate) options: NodeOptions,
    /// What of the log was given up.
    pub(crate) given_up: GivenUp,
    /// Held shared by requests that change something, exclusively while the pool is imported again.
    pub(crate) changing: RwLock<()>,
    pub(crate) services: Services,
    /// Where volumes are served over NBD.
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) jobs: Jobs,
    /// A trim runs beside them.
    pub(crate) trims: Jobs,
    pub(crate) transfers: Transfers,
    pub(crate) journal: Arc<Journal>,
    /// What was asked of the pool; the pool has the same.
    pub(crate) history: Mutex<Vec<HistoryReport>>,
    pub(crate) started: Instant,
    /// How long the latest import took.
    pub(crate) imported: Mutex<ImportReport>,
    pub(crate) endings: (Sender<Ending>, Mutex<Receiver<Ending>>),
    pub(crate) is_ending: AtomicBool,
    /// The devices are free, and so is the name of the control socket.
    pub(crate) released: (Mutex<bool>, Condvar),
    /// Why a request ended the node; held until the request's answer has been sent.
    pub(crate) ending: Mutex<Option<Ending>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.pool().name())
    }
}

impl Node {
    /// Imports a pool, and serves what it served before.
    ///
    /// # Errors
    /// Errors of [`Pool::import`].
    pub fn import(
        devices: &[Device],
        import: &ImportOptions,
        options: NodeOptions,
    ) -> Result<Arc<Node>, StartError> {
        let journal: Arc<Journal> = Arc::default();
        options.watch.begin(ImportStep::Pool);
        let of_store = StoreOptions {
            pool: options.pool.clone(),
            import: import.clone(),
            consent: options.places.consent,
            kinds: Kinds::default()
                .with(DatasetKind::Volume, VolumeReplay)
                .with(DatasetKind::Filesystem, FileReplay::default()),
            ..StoreOptions::default()
        };
        let note = |text| journal.note(text);
        let mut tell = options.watch.of_log(&journal);
        let mut source = Local::new(&options.places, devices.to_vec(), &note, &mut tell);
        let (store, report) = Store::import(&mut source, of_store)?;
        let given_up = imported::note(&store, &source, &report, &journal);
        drop(source);
        drop(tell);
        let (sender, receiver) = channel();
        let node = Arc::new(Node {
            store,
            options,
            given_up,
            changing: RwLock::default(),
            services: Services::default(),
            listeners: Arc::default(),
            jobs: Jobs::default(),
            trims: Jobs::default(),
            transfers: Transfers::default(),
            journal,
            history: Mutex::default(),
            started: Instant::now(),
            imported: Mutex::default(),
            endings: (sender, Mutex::new(receiver)),
            is_ending: AtomicBool::new(false),
            released: Default::default(),
            ending: Mutex::default(),
        });
        node.options.watch.begin(ImportStep::Serve);
        node.remember();
        node.load_history();
        node.expand_all();
        node.drop_interrupted();
        node.resume_trim();
        Node::trim_always(&node);
        if !node.options.is_quiet {
            node.serve_kept();
            node.mount_kept();
        }
        node.note_imported();
        Ok(node)
    }

    /// Name of the pool.
    pub fn name(&self) -> String {
        self.pool().name()
    }

    /// Its log; none if the pool is read-only.
    pub fn log(&self) -> Option<Arc<PoolLog>> {
        self.store.log()
    }

    /// The pool with its log.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The current import of the pool; clearing a suspended pool replaces it.
    pub fn pool(&self) -> Arc<Pool> {
        self.store.pool()
    }

    pub(crate) fn note_imported(&self) {
        *lock(&self.imported) = self.options.watch.end(&self.journal);
    }

    /// Remembers the paths of the devices.
    pub(crate) fn remember(&self) {
        if !self.options.remembers {
            return;
        }
        let status = self.pool().status();
        let sides = status.vdevs.iter().flat_map(|(.., sides)| sides);
        let mut paths: Vec<_> = sides.map(|side| side.path.clone()).collect();
        // They can tell that the devices are older copies, even if the devices know of no region.
        paths.extend(self.regions().into_iter().map(|region| region.path));
        if let Err(error) = remember_devices(&status.name, &paths) {
            self.journal.warn(format!("the devices are not remembered: {error}"));
        }
    }

    /// Ends the node on SIGINT, SIGTERM and, unless it is ignored, SIGHUP. Another one, a second later, ends
    /// the process at once, as a crash would.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn end_on_signals(&self) -> Result<(), StartError> {
        let sender = self.endings.0.clone();
        on_signals(move || {
            // If the receiver is gone, the process is ending anyway.
            let _ = sender.send(Ending::Signal);
        })
    }

    /// Lets [`run`](Self::run) export the pool and return, as a signal does.
    pub fn end(&self) {
        // The receiver lives as long as the node.
        let _ = self.endings.0.send(Ending::Signal);
    }

    /// Whether the thread that ends txgs moves, or has nothing to do.
    pub fn pulse(&self) -> Pulse {
        self.pool().pulse()
    }

    /// Waits until the node has to end. On a signal, exports the pool here; otherwise the request has already
    /// exported or destroyed it.
    ///
    /// # Errors
    /// Errors of the export after a signal; the pool is closed all the same, and the next import finds the
    /// last synced txg.
    pub fn run(&self) -> Result<Ending, PoolError> {
        let ending = self.watch(&lock(&self.endings.1));
        let mut result = Ok(ending);
        if ending == Ending::Signal {
            self.quiet();
            result = self.pool().export().map(|()| ending);
        }
        // Threads that still answer clients have the pool, too, and end with the process.
        self.pool().release();
        result
    }

    /// Stops everything that uses the pool.
    pub(crate) fn quiet(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.services.stop_all();
        self.jobs.stop();
        self.trims.stop();
    }

    /// Carries out a request of this user; calls `tell` with the progress of long work.
    ///
    /// # Errors
    /// What went wrong, with its kind.
    pub fn handle(&self, request: Request, tell: Tell<'_>) -> Result<Value, Failure> {
        self.handle_of(rustix::process::getuid().as_raw(), request, tell)
    }

    /// The same for the user with this number; what has changed something is noted in the pool.
    pub(crate) fn handle_of(&self, user: u32, request: Request, tell: Tell<'_>) -> Result<Value, Failure> {
        let noted = request.for_history();
        let answer = self.carry_out(user, request, tell)?;
        if let Some(command) = noted {
            self.note_history(user, command);
        }
        Ok(answer)
    }

    fn carry_out(&self, user: u32, request: Request, tell: Tell<'_>) -> Result<Value, Failure> {
        self.refuse_at_end()?;
        if let Request::Add { vdevs, is_forced, .. } = &request
            && self.pool().is_suspended()
        {
            return answer(self.add_to_suspended(vdevs, *is_forced)?);
        }
        let _unchanged = (!request.may_come_any_time()).then(|| fastness_sync::read(&self.changing));
        match request {
            Request::Clear { is_degraded, device } => answer(self.clear(is_degraded, device.as_deref())?),
            Request::PoolProperties => answer(self.pool_properties()),
            Request::SetPoolProperty { property, value } => {
                answer(self.set_pool_property(&property, &value)?)
            }
            Request::Status => answer(self.status()),
            Request::Io => answer(self.io()),
            Request::Sync => answer(self.pool().sync()?.0),
            Request::Users { name } => answer(self.users(name.as_deref())?),
            Request::Export { is_forced } => answer(self.export(user, is_forced)?),
            Request::Destroy { is_forced } => answer(self.destroy(user, is_forced)?),
            Request::History => answer(self.history()),
            Request::Check => answer(self.check()?),
            Request::Scrub { wait } => answer(self.scrub(wait, tell)?),
            Request::StopJob => {
                self.jobs.stop();
                answer(self.jobs.report())
            }
            Request::Trim { device, wait } => answer(self.trim(device.as_deref(), wait, tell)?),
            Request::CancelTrim => answer(self.cancel_trim()?),
            Request::Add { vdevs, is_forced, pm } => answer(self.add(&vdevs, is_forced, pm)?),
            Request::Remove { device } => answer(self.remove(&device)?),
            Request::Attach { to, device, is_forced, wait } => {
                answer(self.attach(&to, &device, is_forced, wait, tell)?)
            }
            Request::Detach { device } => answer(self.detach(&device)?),
            Request::Replace { old, new, is_forced, wait } => {
                answer(self.replace(&old, &new, is_forced, wait, tell)?)
            }
            Request::Offline { device } => answer(self.offline(&device)?),
            Request::Online { device, path, wait } => {
                answer(self.online(&device, path.as_deref(), wait, tell)?)
            }
            Request::Expand { device } => answer(self.expand(&device)?),
            Request::Datasets => answer(self.datasets()),
            Request::CreateDataset { name, properties, with_parents } => {
                answer(self.create_dataset(&name, &properties, with_parents)?)
            }
            Request::DestroyDataset { name, is_recursive, is_dry } => {
                answer(self.destroy_dataset(&name, is_recursive, is_dry)?)
            }
            Request::Snapshots => answer(self.snapshots()?),
            Request::Ratios { names } => answer(self.ratios(&names)?),
            Request::Snapshot { names } => answer(self.snapshot(&names)?),
            Request::Rollback { snapshot, newer_too } => answer(self.rollback(&snapshot, newer_too)?),
            Request::CloneSnapshot { snapshot, name, properties, with_parents } => {
                answer(self.clone_snapshot(&snapshot, &name, &properties, with_parents)?)
            }
            Request::Promote { name } => answer(self.promote(&name)?),
            Request::StreamSize(request) => answer(self.stream_size(&request)?),
            Request::AbortReceive { name } => answer(self.abort_receiving(&name)?),
            Request::Send(_) | Request::Receive { .. } => {
                Err(Failure::refuse(ErrorKind::Invalid, "a stream needs a connection of its own"))
            }
            Request::RenameDataset { from, to } => answer(self.rename_dataset(&from, &to)?),
            Request::SetProperties { name, values } => answer(self.set_properties(&name, &values)?),
            Request::CreateVolume { name, size_bytes, properties, with_parents } => {
                answer(self.create_volume(&name, size_bytes, &properties, with_parents)?)
            }
            Request::ResizeVolume { name, size_bytes, is_forced } => {
                answer(self.resize_volume(&name, size_bytes, is_forced)?)
            }
            Request::Serve { name, address, is_read_only, is_kept, access } => {
                answer(self.serve(&name, &address, &access, is_read_only, is_kept)?)
            }
            Request::ReloadCertificates => answer(self.reload_certificates()?),
            Request::Unserve { name, is_forced } => answer(self.unserve(&name, is_forced)?),
            Request::CreateFiles { name, uid, gid, properties, with_parents } => {
                answer(self.create_files(&name, (uid, gid), &properties, with_parents)?)
            }
            Request::Mount { name, path, options, is_kept } => {
                answer(self.mount(&name, path.as_ref(), options, is_kept)?)
            }
            Request::Unmount { what, is_forced } => answer(self.unmount(&what, is_forced)?),
            Request::CheckFiles { name } => answer(self.check_files(&name)?),
        }
    }
}

fn answer(value: impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::new(ErrorKind::Bug, &error))
}
