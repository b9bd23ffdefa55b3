//! An image as a block device.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fastness_blkdev::{
    BlockDevice, BlockError, Cause, DeviceInfo, DeviceKind, Engine, Operation, Request, Stats, StatsSnapshot,
    WriteCache,
};

use crate::access::Access;
use crate::error::OpenError;
use crate::latch::Latch;
use crate::name::RbdName;
use crate::rbd::api::Functions;
use crate::rbd::cluster::Pool;
use crate::rbd::image::{Image, Step};

/// Requests of a batch in flight at once.
const IN_FLIGHT_MAX: usize = 128;
/// The longest discard or write of zeroes that is asked for at once.
const RANGE_BYTES_MAX: u64 = 256 << 20;

/// An RBD image.
///
/// A write that has returned is on the OSDs. Opened for writing, it holds the image's exclusive lock until
/// it is dropped, which waits for the cluster.
#[derive(Debug)]
pub struct RbdDevice {
    info: DeviceInfo,
    image: Image,
    /// Another client has the image, or what was sent may still arrive.
    fenced: Latch,
    is_poisoned: AtomicBool,
    stats: Stats,
}

impl RbdDevice {
    pub(crate) fn open(
        functions: &'static Functions,
        name: &RbdName,
        access: Access,
    ) -> Result<RbdDevice, OpenError> {
        let unfit = |why: String| OpenError::Unfit { name: name.whole.clone(), why };
        if name.image.is_none() {
            return Err(unfit("it is a pool of images; name one of them: rbd:POOL/IMAGE".to_owned()));
        }
        let image = Image::open(Pool::connect(functions, name)?, name, access)?;
        image.check_settings(name)?;
        if access == Access::Write {
            image.lock(name)?;
        }
        // After the lock: who had it before may have changed the length.
        let len_bytes = image.len_bytes().map_err(|source| {
            let (name, detail) = (name.whole.clone(), String::new());
            OpenError::Call { name, call: "rbd_get_size", detail, source }
        })?;
        if !len_bytes.is_multiple_of(u64::from(name.block_bytes)) {
            return Err(unfit(format!(
                "its {len_bytes} bytes are not a multiple of its blocks of {} bytes",
                name.block_bytes
            )));
        }
        let kind = (DeviceKind::Remote, WriteCache::WriteThrough);
        let mut info = DeviceInfo::of_memory(&name.whole, len_bytes, kind.0, kind.1);
        info.logical_block_bytes = name.block_bytes;
        info.engine = Engine::Library;
        info.is_read_only = access == Access::Look;
        info.can_discard = true;
        info.fences_others = access == Access::Write;
        Ok(RbdDevice {
            info,
            image,
            fenced: Latch::default(),
            is_poisoned: AtomicBool::new(false),
            stats: Stats::default(),
        })
    }

    /// Which image of which cluster it is: a text that no other image has, also after a renaming.
    ///
    /// # Errors
    /// Those of the cluster.
    pub fn identity(&self) -> io::Result<String> {
        self.image.identity()
    }

    /// The note with that key among the image's metadata, if there is one.
    ///
    /// # Errors
    /// Those of the cluster.
    pub fn note(&self, key: &str) -> io::Result<Option<String>> {
        self.image.note(key)
    }

    /// Sets or removes a note. Persistence: durable on return.
    ///
    /// # Errors
    /// Those of the cluster; of kind PermissionDenied if another client has the image now.
    pub fn set_note(&self, key: &str, value: Option<&str>) -> io::Result<()> {
        match self.fenced.error() {
            Some(_) => Err(io::ErrorKind::PermissionDenied.into()),
            None => self.image.set_note(key, value),
        }
    }

    fn admit(&self, operation: Operation, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.info.check(operation, offset, len_bytes)?;
        let cause = match self.fenced.error() {
            Some(error) => Cause::Fenced(error),
            None if operation != Operation::Read && self.is_poisoned.load(Ordering::SeqCst) => {
                Cause::Poisoned
            }
            None => return Ok(()),
        };
        Err(self.info.error(operation, offset, len_bytes, cause))
    }

    /// The cause that an error of the library stands for. One that fences does it here.
    fn cause(&self, error: io::Error) -> Cause {
        match error.raw_os_error() {
            // The lock went to another client; the cluster has us on its blocklist; no answer in time: a
            // request that timed out may still be executed, after a later one. Read-only, too, but that was
            // checked.
            Some(errno @ (libc::EROFS | libc::ESHUTDOWN | libc::ETIMEDOUT)) => {
                self.fenced.set(errno);
                Cause::Fenced(error)
            }
            Some(libc::ENOENT) => Cause::Gone(error),
            _ => Cause::from_io(error),
        }
    }

    /// Judges the outcome of one request.
    fn judge(
        &self,
        (operation, offset, len_bytes): (Operation, u64, u64),
        outcome: io::Result<usize>,
    ) -> Result<(), BlockError> {
        let (done, cause) = match outcome {
            Err(error) => (0, self.cause(error)),
            // librbd cuts off what is after the end: a read says so, a write does not. An image can be made
            // shorter while it is open.
            Ok(read) if operation == Operation::Read && (read as u64) < len_bytes => {
                let block_bytes = u64::from(self.info.logical_block_bytes);
                (read as u64 / block_bytes * block_bytes, Cause::Ended)
            }
            Ok(_) if operation.is_change() => match self.image.len_bytes() {
                Ok(now_bytes) if now_bytes >= offset + len_bytes => return Ok(()),
                Ok(_) => (0, Cause::Ended),
                Err(error) => (0, self.cause(error)),
            },
            Ok(_) => return Ok(()),
        };
        if matches!(operation, Operation::Flush | Operation::WriteFua) {
            self.is_poisoned.store(true, Ordering::SeqCst);
        }
        Err(self.info.error(operation, offset + done, len_bytes - done, cause))
    }

    /// Admits, runs, judges and counts one request.
    fn run(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        step: Step<'_>,
    ) -> Result<(), BlockError> {
        self.admit(operation, offset, len_bytes)?;
        let since = Instant::now();
        let outcome = self.image.run(&mut [step]).remove(0);
        let judged = self.judge((operation, offset, len_bytes), outcome);
        self.stats.note(operation, len_bytes, since, judged.is_err());
        judged
    }

    /// Runs a request without data in parts that the library takes; the first that fails ends it.
    fn run_range(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        step: impl Fn(u64, u64) -> Step<'static>,
    ) -> Result<(), BlockError> {
        self.admit(operation, offset, len_bytes)?;
        let since = Instant::now();
        let mut done = 0;
        let mut judged = Ok(());
        while done < len_bytes && judged.is_ok() {
            let part = (len_bytes - done).min(RANGE_BYTES_MAX);
            let outcome = self.image.run(&mut [step(offset + done, part)]).remove(0);
            judged = self.judge((operation, offset + done, part), outcome);
            done += part;
        }
        self.stats.note(operation, len_bytes, since, judged.is_err());
        // What is left is more than the part that failed.
        judged.map_err(|error| BlockError { len_bytes: offset + len_bytes - error.offset, ..error })
    }
}

/// Operation, offset and length of a request, and the request for the library.
fn described<'a>(request: &'a mut Request<'_>) -> ((Operation, u64, u64), Step<'a>) {
    match request {
        Request::Read { offset, buf } => {
            ((Operation::Read, *offset, buf.len() as u64), Step::Read { offset: *offset, buf })
        }
        Request::Write { offset, data, fua } => {
            let operation = if *fua { Operation::WriteFua } else { Operation::Write };
            ((operation, *offset, data.len() as u64), Step::Write { offset: *offset, data })
        }
    }
}

impl BlockDevice for RbdDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.run(Operation::Read, offset, buf.len() as u64, Step::Read { offset, buf })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::Write, offset, data.len() as u64, Step::Write { offset, data })
    }

    // Without a cache, a write that has completed is durable.
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::WriteFua, offset, data.len() as u64, Step::Write { offset, data })
    }

    fn flush(&self) -> Result<(), BlockError> {
        if self.info.is_read_only {
            return Ok(());
        }
        self.run(Operation::Flush, 0, 0, Step::Flush)
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        // What is not a whole unit of `rbd_discard_granularity_bytes` keeps its bytes: a hint, and no more.
        self.run_range(Operation::Discard, offset, len_bytes, |offset, len_bytes| Step::Discard {
            offset,
            len_bytes,
        })
    }

    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run_range(Operation::WriteZeroes, offset, len_bytes, |offset, len_bytes| Step::Zero {
            offset,
            len_bytes,
        })
    }

    fn stats(&self) -> StatsSnapshot {
        self.stats.snapshot()
    }

    fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::SeqCst) || self.fenced.is_set()
    }

    fn run_batch(&self, requests: &mut [Request<'_>]) -> Vec<Result<(), BlockError>> {
        let mut results = Vec::with_capacity(requests.len());
        for part in requests.chunks_mut(IN_FLIGHT_MAX) {
            let since = Instant::now();
            let (described, mut steps): (Vec<_>, Vec<_>) = part.iter_mut().map(described).unzip();
            let admitted: Vec<_> = described
                .iter()
                .map(|&(operation, offset, len)| self.admit(operation, offset, len))
                .collect();
            let mut keep = admitted.iter().map(Result::is_ok);
            steps.retain(|_| keep.next().unwrap_or(false));
            let mut outcomes = self.image.run(&mut steps).into_iter();
            results.extend(described.into_iter().zip(admitted).map(|(request, admitted)| {
                admitted?;
                let outcome = outcomes.next().unwrap_or_else(|| Err(io::ErrorKind::Other.into()));
                let judged = self.judge(request, outcome);
                self.stats.note(request.0, request.2, since, judged.is_err());
                judged
            }));
        }
        results
    }
}
