//! An NBD export as a block device.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use fastness_blkdev::{
    BlockDevice, BlockError, Cause, DeviceInfo, DeviceKind, Engine, Health, Operation, Request, Stats,
    StatsSnapshot, WriteCache,
};

use crate::claim::Claim;
use crate::error::OpenError;
use crate::latch::Latch;
use crate::name::NbdName;
use crate::nbd::api::Functions;
use crate::nbd::connection::{Connection, Offer, Step};

/// Connections to a server that keeps several in agreement.
const CONNECTIONS_MAX: usize = 4;
/// Requests of a batch in flight at once.
const IN_FLIGHT_MAX: usize = 64;
/// The longest trim or write of zeroes that is asked for at once.
const RANGE_BYTES_MAX: u64 = 256 << 20;
/// The longest read or write, if the server does not say; the protocol's default.
const DATA_BYTES_MAX: u64 = 32 << 20;

/// An NBD export.
///
/// A connection that is lost is not made again: what had not been flushed may be gone, so the device is lost
/// too.
#[derive(Debug)]
pub struct NbdDevice {
    info: DeviceInfo,
    connections: Vec<Mutex<Connection>>,
    turn: AtomicUsize,
    offer: Offer,
    /// Longest read or write.
    data_bytes_max: usize,
    /// A connection is lost.
    lost: Latch,
    health: Arc<Health>,
    stats: Stats,
    _claim: Claim,
}

impl NbdDevice {
    pub(crate) fn open(functions: &'static Functions, name: &NbdName) -> Result<NbdDevice, OpenError> {
        let claim = Claim::of(&name.uri).map_err(|error| match error {
            OpenError::InUse { .. } => OpenError::InUse { name: name.whole.clone() },
            other => other,
        })?;
        let first = Connection::open(functions, name)?;
        let offer = first.offer(name)?;
        let mut info = describe(name, &offer)?;
        let mut connections = vec![Mutex::new(first)];
        while offer.can_multi_conn && connections.len() < CONNECTIONS_MAX {
            let next = Connection::open(functions, name)?;
            if next.offer(name)? != offer {
                let why = "its server says something else on each connection".to_owned();
                return Err(OpenError::Unfit { name: name.whole.clone(), why });
            }
            connections.push(Mutex::new(next));
        }
        info.notes.push(format!("{} connections", connections.len()));
        let limit = match offer.block_bytes_max {
            0 => DATA_BYTES_MAX,
            said => said.min(DATA_BYTES_MAX),
        };
        let block_bytes = u64::from(info.logical_block_bytes);
        let data_bytes_max = usize::try_from((limit / block_bytes).max(1) * block_bytes).expect("32 MiB");
        Ok(NbdDevice {
            info,
            connections,
            turn: AtomicUsize::new(0),
            offer,
            data_bytes_max,
            lost: Latch::default(),
            health: Health::alone(),
            stats: Stats::default(),
            _claim: claim,
        })
    }

    /// A connection that is idle, or the next one in turn.
    fn connection(&self) -> MutexGuard<'_, Connection> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let of = |step: usize| &self.connections[(turn + step) % self.connections.len()];
        for step in 0..self.connections.len() {
            match of(step).try_lock() {
                Ok(free) => return free,
                // A connection that a panic left in the middle of a request was closed by it.
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        of(0).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, operation: Operation, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.info.check(operation, offset, len_bytes)?;
        let cause = match self.lost.error() {
            Some(error) => Cause::Gone(error),
            None if operation != Operation::Read && self.health.is_poisoned() => Cause::Poisoned,
            None => return Ok(()),
        };
        Err(self.info.error(operation, offset, len_bytes, cause))
    }

    /// Runs requests on one connection.
    fn ask(&self, steps: &mut [Step<'_>]) -> Vec<Result<(), Cause>> {
        let mut connection = self.connection();
        let answers = connection.run(steps);
        if connection.is_lost() {
            self.lost.set(libc::ENOTCONN);
        }
        drop(connection);
        let cause = |error: io::Error| match error.raw_os_error() {
            _ if self.lost.is_set() => Cause::Gone(error),
            Some(libc::ENOTCONN | libc::EPIPE | libc::ECONNRESET) => Cause::Gone(error),
            _ => Cause::from_io(error),
        };
        answers.into_iter().map(|answer| answer.map_err(cause)).collect()
    }

    /// Runs requests one after the other, up to the first that fails; `None`: all succeeded.
    fn ask_each<'a>(&self, steps: impl Iterator<Item = (u64, Step<'a>)>) -> Result<(), (u64, Cause)> {
        for (done, step) in steps {
            self.ask(&mut [step]).remove(0).map_err(|cause| (done, cause))?;
        }
        Ok(())
    }

    /// Admits, runs and counts one operation, which says how far it got.
    fn run(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        act: impl FnOnce() -> Result<(), (u64, Cause)>,
    ) -> Result<(), BlockError> {
        self.admit(operation, offset, len_bytes)?;
        let since = Instant::now();
        let outcome = match operation {
            Operation::Flush | Operation::WriteFua => self.synced(act),
            _ => act(),
        };
        self.stats.note(operation, len_bytes, since, outcome.is_err());
        outcome.map_err(|(done, cause)| self.info.error(operation, offset + done, len_bytes - done, cause))
    }

    /// Runs what makes writes durable. A server may tell one of two flushes of the error that concerns both.
    fn synced(&self, act: impl FnOnce() -> Result<(), (u64, Cause)>) -> Result<(), (u64, Cause)> {
        let poisoned = |_| (0, Cause::Poisoned);
        let guard = self.health.enter().map_err(poisoned)?;
        if let Err(failed) = act() {
            self.health.poison();
            return Err(failed);
        }
        drop(guard);
        self.health.settle().map_err(poisoned)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), (u64, Cause)> {
        let parts = data.chunks(self.data_bytes_max).enumerate().map(|(index, data)| {
            let done = (index * self.data_bytes_max) as u64;
            (done, Step::Write { offset: offset + done, data, fua: fua && self.offer.can_fua })
        });
        self.ask_each(parts)?;
        if fua && !self.offer.can_fua { self.ask_each([(0, Step::Flush)].into_iter()) } else { Ok(()) }
    }

    /// Runs a request without data in parts.
    fn range(&self, len_bytes: u64, step: impl Fn(u64, u64) -> Step<'static>) -> Result<(), (u64, Cause)> {
        let starts = (0..len_bytes).step_by(RANGE_BYTES_MAX as usize);
        self.ask_each(starts.map(|done| (done, step(done, RANGE_BYTES_MAX.min(len_bytes - done)))))
    }
}

/// Properties of the export.
fn describe(name: &NbdName, offer: &Offer) -> Result<DeviceInfo, OpenError> {
    let unfit = |why: String| OpenError::Unfit { name: name.whole.clone(), why };
    let logical = offer.block_bytes_min.max(512);
    if !logical.is_power_of_two() || logical > 65_536 || !offer.len_bytes.is_multiple_of(logical) {
        let len_bytes = offer.len_bytes;
        return Err(unfit(format!("it has {len_bytes} bytes in blocks of {logical}: neither fits a device")));
    }
    if !offer.is_read_only && !offer.can_flush {
        return Err(unfit("its server knows no flush: nothing could be made durable on it".to_owned()));
    }
    let preferred = offer.block_bytes_preferred.clamp(4096, 65_536).max(logical);
    let kind = (DeviceKind::Remote, WriteCache::DeviceCache);
    let mut info = DeviceInfo::of_memory(&name.whole, offer.len_bytes, kind.0, kind.1);
    info.logical_block_bytes = logical as u32;
    info.physical_block_bytes =
        (if preferred.is_power_of_two() { preferred } else { logical.max(4096) }) as u32;
    info.engine = Engine::Library;
    info.is_read_only = offer.is_read_only;
    info.can_discard = offer.can_trim;
    Ok(info)
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        for connection in &mut self.connections {
            connection.get_mut().unwrap_or_else(PoisonError::into_inner).end();
        }
    }
}

impl BlockDevice for NbdDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.run(Operation::Read, offset, buf.len() as u64, || {
            let parts = buf.chunks_mut(self.data_bytes_max).enumerate().map(|(index, buf)| {
                let done = (index * self.data_bytes_max) as u64;
                (done, Step::Read { offset: offset + done, buf })
            });
            self.ask_each(parts)
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::Write, offset, data.len() as u64, || self.write(offset, data, false))
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::WriteFua, offset, data.len() as u64, || self.write(offset, data, true))
    }

    fn flush(&self) -> Result<(), BlockError> {
        if self.info.is_read_only {
            return Ok(());
        }
        self.run(Operation::Flush, 0, 0, || self.ask_each([(0, Step::Flush)].into_iter()))
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::Discard, offset, len_bytes, || match self.info.can_discard {
            true => self.range(len_bytes, |done, len_bytes| Step::Trim { offset: offset + done, len_bytes }),
            false => Ok(()),
        })
    }

    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::WriteZeroes, offset, len_bytes, || {
            if self.offer.can_zero {
                return self
                    .range(len_bytes, |done, len_bytes| Step::Zero { offset: offset + done, len_bytes });
            }
            let zeroes = vec![0; self.data_bytes_max.min(1 << 20)];
            let starts = (0..len_bytes).step_by(zeroes.len());
            self.ask_each(starts.map(|done| {
                let part = zeroes.len().min(usize::try_from(len_bytes - done).unwrap_or(usize::MAX));
                (done, Step::Write { offset: offset + done, data: &zeroes[..part], fua: false })
            }))
        })
    }

    fn stats(&self) -> StatsSnapshot {
        self.stats.snapshot()
    }

    fn is_poisoned(&self) -> bool {
        self.health.is_poisoned() || self.lost.is_set()
    }

    fn run_batch(&self, requests: &mut [Request<'_>]) -> Vec<Result<(), BlockError>> {
        // Long requests, and those that make writes durable, go alone; the others of the batch at once.
        let is_short = |request: &Request<'_>| match request {
            Request::Read { buf, .. } => buf.len() <= self.data_bytes_max,
            Request::Write { data, fua, .. } => !fua && data.len() <= self.data_bytes_max,
        };
        let mut results = Vec::with_capacity(requests.len());
        for part in requests.chunks_mut(IN_FLIGHT_MAX) {
            if part.iter().all(is_short) {
                self.run_at_once(part, &mut results);
            } else {
                results.extend(part.iter_mut().map(|request| match request {
                    Request::Read { offset, buf } => self.read_at(*offset, buf),
                    Request::Write { offset, data, fua: false } => self.write_at(*offset, data),
                    Request::Write { offset, data, fua: true } => self.write_fua(*offset, data),
                }));
            }
        }
        results
    }
}

impl NbdDevice {
    /// Runs requests, each of which the server takes whole, on one connection.
    fn run_at_once(&self, requests: &mut [Request<'_>], results: &mut Vec<Result<(), BlockError>>) {
        let since = Instant::now();
        let described = requests.iter().map(|request| match request {
            Request::Read { offset, buf } => (Operation::Read, *offset, buf.len() as u64),
            Request::Write { offset, data, .. } => (Operation::Write, *offset, data.len() as u64),
        });
        let described: Vec<_> = described.collect();
        let admitted: Vec<_> =
            described.iter().map(|&(operation, offset, len)| self.admit(operation, offset, len)).collect();
        let asked = requests.iter_mut().zip(&admitted).filter(|(_, admitted)| admitted.is_ok());
        let mut steps: Vec<_> = asked
            .map(|(request, _)| match request {
                Request::Read { offset, buf } => Step::Read { offset: *offset, buf },
                Request::Write { offset, data, .. } => Step::Write { offset: *offset, data, fua: false },
            })
            .collect();
        let mut answers = self.ask(&mut steps).into_iter();
        results.extend(described.into_iter().zip(admitted).map(
            |((operation, offset, len_bytes), admitted)| {
                admitted?;
                let answer = answers.next().unwrap_or_else(|| Err(Cause::Gone(io::ErrorKind::Other.into())));
                self.stats.note(operation, len_bytes, since, answer.is_err());
                answer.map_err(|cause| self.info.error(operation, offset, len_bytes, cause))
            },
        ));
    }
}
