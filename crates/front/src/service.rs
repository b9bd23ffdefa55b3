//! A mount with its cache, its flusher, and a socket for commands.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fastness_base::{HasKind, chain};
use fastness_fuse::{MountError, MountPoint, Session, Unmount, unmount};
use fastness_pmem::PmRange;
use fastness_responder::{Cache, Error, FileId, Flusher};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cached::Cached;
use crate::control::{Answer, Control, Request, failed};
use crate::descriptors::Descriptors;
use crate::error::FrontError;
use crate::leases::Leases;
use crate::pairing::Recovery;
use crate::report::{Report, found};
use crate::server::{PassThrough, serve_with};

/// How requests in flight may take when a mount ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long files may be in use before that is worth a word: what a program has left running may just be
/// ending.
const PATIENCE_WITH_USERS: Duration = Duration::from_secs(1);
/// Between the first two looks whether they still are, and at most: for an ordinary user each is a process.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(320);

/// Where and how a cache is mounted.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// The mount point.
    pub place: Place,
    /// From one flush to the next.
    pub flush_period: Duration,
    /// The socket for commands.
    pub socket: PathBuf,
}

/// Where a cache is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Beside its directory.
    At(PathBuf),
    /// Over its directory, for processes with mounts of their own ([`fastness_fuse::own_mounts`]): the cache
    /// reaches what it covers, and they do not.
    Over,
}

/// A mount that is served.
#[derive(Debug)]
pub struct Service {
    cache: Arc<Cache<PmRange>>,
    mount_point: PathBuf,
    session: Session,
    _flusher: Flusher,
    _control: Control,
    leases: Option<Leases>,
    asked: Asked,
}

/// What is said of a mount.
#[derive(Debug, Clone)]
struct Asked {
    cache: Arc<Cache<PmRange>>,
    report: Report,
    descriptors: Arc<Descriptors>,
    /// Once it is mounted.
    files: Arc<OnceLock<Arc<PassThrough<Cached>>>>,
}

/// Looks at a mount point; what a dead server left there is unmounted.
fn prepare(path: &Path) -> Result<(), FrontError> {
    if MountPoint::inspect(path)? == MountPoint::Stale {
        unmount(path, Unmount::Force)?;
    }
    match MountPoint::inspect(path)? {
        MountPoint::Empty | MountPoint::NotEmpty => Ok(()),
        MountPoint::Mounted | MountPoint::Stale => {
            Err(FrontError::Refused(format!("something is mounted at {} already", path.display())))
        }
    }
}

/// The real path of a mount point that can be used.
fn beside(directory: &Path, mount_point: &Path) -> Result<PathBuf, FrontError> {
    prepare(mount_point)?;
    let at = mount_point.canonicalize().map_err(|error| FrontError::io("use", mount_point, error))?;
    if at.starts_with(directory) || directory.starts_with(&at) {
        let text = format!("{} and {} contain each other", at.display(), directory.display());
        return Err(FrontError::Refused(text));
    }
    Ok(at)
}

impl Service {
    /// Mounts the directory of a cache, and serves it from threads of its own until it is unmounted.
    ///
    /// # Errors
    /// [`FrontError`]; nothing is mounted, and the cache is as it was.
    pub fn start(recovery: Recovery, options: &ServiceOptions) -> Result<Service, FrontError> {
        let ServiceOptions { place, flush_period, socket } = options;
        let directory = recovery.directory();
        let at = match place {
            Place::At(mount_point) => beside(&directory, mount_point)?,
            Place::Over => directory.clone(),
        };
        // Before the mount covers it.
        let root = File::open(&directory).map_err(|error| FrontError::io("use", &directory, error))?;
        let Recovery { cache, info, inspection, for_others, recovered, descriptors, .. } = recovery;
        let descriptors = Arc::new(descriptors);
        let region = info.path.clone().unwrap_or_default();
        let report = Report {
            directory: directory.display().to_string(),
            mounted_at: Some(at.display().to_string()),
            pid: Some(std::process::id()),
            flush_period_ms: Some(flush_period.as_millis() as u64),
            found: Some(found(inspection.protocol, recovered.as_ref())),
            ..Report::of_inspection(&region, &inspection, &info)
        };
        let cache = Arc::new(cache);
        let files_here = Arc::new(OnceLock::new());
        let asked = Asked {
            cache: cache.clone(),
            report,
            descriptors: descriptors.clone(),
            files: files_here.clone(),
        };
        let control = {
            let asked = asked.clone();
            Control::start(socket, move |request| asked.answer(request))?
        };
        // Files are made with the umask of whoever makes them; the socket was made with ours.
        rustix::process::umask(rustix::fs::Mode::empty());
        let source = directory.display().to_string();
        let (session, files) = serve_with(Cached(cache.clone()), root, &at, source, descriptors.clone())?;
        // It is set once.
        let _ = files_here.set(files.clone());
        let leases = match for_others.filter(|_| cache.shared().is_some()) {
            Some(for_others) => {
                Some(Leases::start(&socket.with_extension("leases"), &at, cache.clone(), files, for_others)?)
            }
            None => None,
        };
        let flusher = Flusher::start(cache.clone(), *flush_period);
        Ok(Service { cache, mount_point: at, session, _flusher: flusher, _control: control, leases, asked })
    }

    /// What there is.
    ///
    /// # Errors
    /// PM cannot be read.
    pub fn report(&self) -> Result<Report, FrontError> {
        let region = Path::new(&self.asked.report.region);
        self.asked.report().map_err(FrontError::cache("cannot read", region))
    }

    /// The socket at which other processes ask to use files directly, if they may.
    pub fn leases(&self) -> Option<&Path> {
        self.leases.as_ref().map(Leases::path)
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Unmounts it after SIGINT or SIGTERM, as soon as no file of it is in use; `tell` hears if that is not
    /// at once, and why it cannot be done. Another signal detaches it: programs in it get errors.
    ///
    /// # Errors
    /// Signals cannot be handled.
    pub fn unmount_on_signals(
        self: &Arc<Self>,
        tell: impl Fn(&str) + Send + 'static,
    ) -> Result<(), FrontError> {
        let fail = |error| FrontError::io("handle signals for", &self.mount_point, error);
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(fail)?;
        let service = Arc::downgrade(self);
        let wait = move || {
            while signals.forever().next().is_some() {
                let Some(service) = service.upgrade() else { return };
                let is_in_use = || {
                    tell(
                        "the mount is in use, and ends with that; once more detaches it from under its users",
                    );
                };
                match service.unmount_when_unused(is_in_use, || signals.pending().next().is_some()) {
                    Ok(()) => return,
                    Err(error) => tell(&chain(&error)),
                }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(fail)?;
        Ok(())
    }

    /// Waits until it is unmounted.
    pub fn wait(&self) {
        self.session.wait(None);
    }

    /// Unmounts it; without `is_forced` only if no file of it is in use: false then.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn unmount(&self, is_forced: bool) -> Result<bool, FrontError> {
        let how = if is_forced { Unmount::Force } else { Unmount::Clean };
        match unmount(&self.mount_point, how) {
            Ok(()) => Ok(true),
            Err(MountError::Busy(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Unmounts it as soon as no file of it is in use; `tell` is called if that is not at once. While it is
    /// in use, `is_forced` detaches it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn unmount_when_unused(
        &self,
        tell: impl FnOnce(),
        mut is_forced: impl FnMut() -> bool,
    ) -> Result<(), FrontError> {
        let begun = Instant::now();
        let mut tell = Some(tell);
        let mut pause = PAUSE;
        while !self.unmount(false)? {
            if is_forced() && self.unmount(true)? {
                break;
            }
            if begun.elapsed() > PATIENCE_WITH_USERS
                && let Some(tell) = tell.take()
            {
                tell();
            }
            std::thread::sleep(pause);
            pause = PAUSE_MAX.min(pause * 2);
        }
        Ok(())
    }

    /// Writes everything to the directory, after the mount has ended; the region and the directory still
    /// belong together.
    ///
    /// # Errors
    /// The flush's; what was not written is in PM.
    pub fn end(&self) -> Result<Report, FrontError> {
        self.session.wait(Some(PATIENCE));
        let region = PathBuf::from(&self.asked.report.region);
        let flushed =
            self.cache.flush().map_err(FrontError::cache("not everything could be flushed from", &region));
        flushed?;
        self.report()
    }
}

impl Asked {
    fn report(&self) -> Result<Report, Error> {
        // The directory may not answer: only what the kernel was told of has a name here.
        let place = |file: FileId| self.files.get().and_then(|files| files.nodes.place(file));
        Ok(self.report.clone().with_status(&self.cache.status()?, place).with_descriptors(&self.descriptors))
    }

    fn answer(&self, request: Request) -> Answer {
        let flushed = match request {
            // It has no certificates.
            Request::Status | Request::Reload => Ok(()),
            Request::Flush => self.cache.flush(),
        };
        let report = match self.report() {
            Ok(report) => report,
            Err(error) => return failed(error.kind(), &error, None),
        };
        match flushed {
            Ok(()) => Answer::Done(Box::new(report)),
            Err(error) => failed(error.kind(), &error, Some(report)),
        }
    }
}
