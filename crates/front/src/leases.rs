//! Processes of the same user that use files directly in PM: who they are, and what they ask for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fastness_fuse::{Errno, Reply};
use fastness_pmem::PmRange;
use fastness_responder::link::{Ask, Tell, hear, tell};
use fastness_responder::{Cache, Stat};
use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, statx};

use crate::attributes::SET_ID;
use crate::cached::Cached;
use crate::contents::Contents;
use crate::error::FrontError;
use crate::pairing::ForOthers;
use crate::region::RegionUse;
use crate::server::PassThrough;

/// From one sign of life to the next.
const BEAT: Duration = Duration::from_millis(100);
/// The number before that of the first client.
const SERVER: u32 = 1;

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Leases {
    path: PathBuf,
}

/// What the connections share.
#[derive(Debug)]
struct Host {
    cache: Arc<Cache<PmRange>>,
    files: Arc<PassThrough<Cached>>,
    for_others: ForOthers,
    /// Number of the mount.
    device: u64,
    last: AtomicU32,
}

impl Leases {
    /// Listens at `path`, with mode 0600, for processes of this user that use the mount at `at`.
    pub(crate) fn start(
        path: &Path,
        at: &Path,
        cache: Arc<Cache<PmRange>>,
        files: Arc<PassThrough<Cached>>,
        for_others: ForOthers,
    ) -> Result<Leases, FrontError> {
        let fail = |error| FrontError::io("listen at", path, error);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let device = std::fs::metadata(at).map_err(fail)?.dev();
        let listener = UnixListener::bind(path).map_err(fail)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
        let host =
            Arc::new(Host { cache: cache.clone(), files, for_others, device, last: AtomicU32::new(SERVER) });
        cache.beat();
        let beating = Arc::downgrade(&cache);
        let beat = move || {
            while let Some(cache) = beating.upgrade() {
                cache.beat();
                drop(cache);
                std::thread::sleep(BEAT);
            }
        };
        std::thread::Builder::new().name("responder-beat".to_owned()).spawn(beat).map_err(fail)?;
        let accept = move || {
            for client in listener.incoming() {
                // One that is gone again, or no descriptors are left: it goes through the mount.
                let Ok(client) = client else { continue };
                let host = host.clone();
                let _ = std::thread::Builder::new()
                    .name("responder-lease".to_owned())
                    .spawn(move || host.serve(&client));
            }
        };
        std::thread::Builder::new().name("responder-leases".to_owned()).spawn(accept).map_err(fail)?;
        Ok(Leases { path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        // The thread ends with the process.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Host {
    /// Serves one process until it ends, then puts in order what it was doing.
    fn serve(&self, client: &UnixStream) {
        let is_ours = rustix::net::sockopt::socket_peercred(client)
            .is_ok_and(|peer| peer.uid == rustix::process::geteuid());
        // Numbers are not used again: what a dead one held is told by its number.
        let next = |last: u32| last.checked_add(1);
        let Ok(me) = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) else { return };
        if is_ours {
            // However the conversation ends: the process is gone.
            let _ = self.converse(client, me + 1);
            // A region that fails is told by everything else that uses it.
            let _ = self.cache.reap(me + 1);
        }
    }

    fn converse(&self, client: &UnixStream, me: u32) -> io::Result<()> {
        while let Some((ask, descriptor)) = hear(client)? {
            match ask {
                Ask::Join => {
                    let shared = self.cache.shared().ok_or(io::ErrorKind::Unsupported)?;
                    let is_emulated = self.for_others.how == RegionUse::Emulated;
                    let welcome = Tell::Welcome { me, device: self.device, is_emulated };
                    tell(client, &welcome, &[self.for_others.region.as_fd(), shared])?;
                }
                Ask::Lease => match descriptor.and_then(|descriptor| self.lease(descriptor)) {
                    Some((lease, backing)) => tell(client, &lease, &[backing.as_fd()])?,
                    None => tell(client, &Tell::No, &[])?,
                },
                Ask::Mount => {
                    let ended = descriptor.map(|descriptor| self.end_leases(&descriptor));
                    let answer = match ended {
                        Some(Ok(())) => Tell::Yes,
                        Some(Err(errno)) => Tell::Failed(errno.raw_os_error()),
                        None => Tell::No,
                    };
                    tell(client, &answer, &[])?;
                }
                Ask::Room { file, offset, len } => {
                    let answer = match self.cache.make_room(file, offset, len) {
                        Ok(true) => Tell::Yes,
                        Ok(false) => Tell::No,
                        Err(error) => Tell::Failed(error.errno()),
                    };
                    tell(client, &answer, &[])?;
                }
            }
        }
        Ok(())
    }

    /// A lease of the file that the process has open with this descriptor, and the directory's file, for
    /// reading; `None`: it goes through the mount.
    fn lease(&self, descriptor: OwnedFd) -> Option<(Tell, File)> {
        let node = self.files.nodes.get(self.number_of(descriptor.as_fd())?).ok()?;
        let metadata = node.metadata().ok()?;
        self.files.note_capabilities(&node);
        if !metadata.is_file()
            || metadata.mode() & SET_ID != 0
            || node.has_capabilities.load(Ordering::Relaxed)
        {
            return None;
        }
        let open = self.files.contents.open(&node.path(), OFlags::RDONLY).ok()?;
        let lease = open.lease().ok()??;
        Some((Tell::Lease(lease), File::open(node.path()).ok()?))
    }

    /// Ends all leases of the file that the process has open with this descriptor.
    fn end_leases(&self, descriptor: &OwnedFd) -> Reply<()> {
        let number = self.number_of(descriptor.as_fd()).ok_or(Errno::BADF)?;
        let metadata = self.files.nodes.get(number)?.metadata()?;
        self.files.contents.end_leases(Stat::from(&metadata).id)
    }

    /// The number of a file that is open in this mount. The kernel answers by itself: a request would come
    /// to this process.
    fn number_of(&self, descriptor: BorrowedFd<'_>) -> Option<u64> {
        if fcntl_getfl(descriptor).ok()?.contains(OFlags::PATH) {
            return None;
        }
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(descriptor, "", flags, StatxFlags::INO | StatxFlags::TYPE).ok()?;
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        (device == self.device).then_some(found.stx_ino)
    }
}
