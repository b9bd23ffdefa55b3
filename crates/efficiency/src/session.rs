//! A load under measurement: a thread reads the counters while it runs.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastness_sync::{Condvar, Mutex, lock, wait_for};

use crate::bytes::ByteSource;
use crate::cpu::CpuTimes;
use crate::error::CostError;
use crate::machine::Machine;
use crate::meter::Meter;
use crate::window::{Sample, Window};

/// How often the counters are read.
const INTERVAL: Duration = Duration::from_millis(100);

/// A measurement that runs. Start it right before the load, and finish it right after.
#[derive(Debug)]
pub struct Session {
    reader: Arc<Reader>,
    /// Of a source that is read at both ends only.
    bytes_before: Result<Option<u64>, CostError>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<Result<Sampled, CostError>>,
}

/// What a run has used.
#[derive(Debug)]
pub struct Run {
    /// The first and last sample of the run.
    pub whole: (Sample, Sample),
    /// Those that count.
    pub counted: (Sample, Sample),
    /// Whether both ends were cut off; otherwise the run was too short, and all of it counts.
    pub is_cut: bool,
    /// Bytes of the whole run, or why they are not known.
    pub bytes: Result<u64, CostError>,
    /// Why energy is not known, though there is a meter.
    pub no_energy: Option<CostError>,
}

#[derive(Debug)]
struct Reader {
    machine: Machine,
    meter: Meter,
    bytes: ByteSource,
    started: Instant,
}

#[derive(Debug)]
struct Sampled {
    window: Window,
    no_energy: Option<CostError>,
    no_bytes: Option<CostError>,
}

impl Session {
    /// Starts a measurement that leaves out `cut` at either end.
    ///
    /// # Errors
    /// The counters of CPUs, or those of bytes, cannot be read; there can be no thread.
    pub fn start(
        machine: &Machine,
        meter: &Meter,
        bytes: ByteSource,
        cut: Duration,
    ) -> Result<Session, CostError> {
        let reader =
            Reader { machine: machine.clone(), meter: meter.clone(), bytes, started: Instant::now() };
        let reader = Arc::new(reader);
        let stop = Arc::<(Mutex<bool>, Condvar)>::default();
        let mut sampled = Sampled::begin(&reader, cut)?;
        let (of_thread, until) = (reader.clone(), stop.clone());
        let sample = move || {
            loop {
                let mut stopped = lock(&until.0);
                if !*stopped {
                    stopped = wait_for(&until.1, stopped, INTERVAL);
                }
                // After the load has ended there is one more sample, always.
                let is_last = *stopped;
                drop(stopped);
                let sample = sampled.read(&of_thread)?;
                sampled.window.push(sample);
                if is_last {
                    return Ok(sampled);
                }
            }
        };
        let thread = std::thread::Builder::new().name("cost".to_owned()).spawn(sample);
        let thread = thread.map_err(CostError::Thread)?;
        // With the thread there: what our own threads have used is subtracted.
        let bytes_before = match &reader.bytes {
            ByteSource::Given(_) => Ok(Some(0)),
            source if source.is_running() => Ok(None),
            source => source.read(&reader.machine),
        };
        Ok(Session { reader, bytes_before, stop, thread })
    }

    /// Ends the measurement. The load has transferred `more_bytes` that the source does not see.
    ///
    /// # Errors
    /// The counters of CPUs could not be read.
    pub fn finish(self, more_bytes: u64) -> Result<Run, CostError> {
        let bytes_after = match &self.reader.bytes {
            source if source.is_running() => Ok(None),
            source => source.read(&self.reader.machine),
        };
        *lock(&self.stop.0) = true;
        self.stop.1.notify_one();
        let sampled = match self.thread.join() {
            Ok(sampled) => sampled?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let (whole, counted) = (sampled.window.whole(), sampled.window.counted());
        let ends = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
        let at_ends = self.bytes_before.and_then(|before| Ok(ends(before, bytes_after?)));
        let seen = |at_ends: Option<u64>| at_ends.or_else(|| ends(whole.0.bytes, whole.1.bytes)).unwrap_or(0);
        let bytes = match sampled.no_bytes {
            Some(error) => Err(error),
            None => at_ends.map(|at_ends| seen(at_ends).saturating_add(more_bytes)),
        };
        Ok(Run {
            whole,
            counted: (counted.0, counted.1),
            is_cut: counted.2,
            bytes,
            no_energy: sampled.no_energy,
        })
    }
}

impl Sampled {
    fn begin(reader: &Reader, cut: Duration) -> Result<Sampled, CostError> {
        let nothing = Sample { at: Duration::ZERO, cpu: CpuTimes::default(), joules: None, bytes: None };
        let mut sampled = Sampled { window: Window::new(cut, nothing), no_energy: None, no_bytes: None };
        let first = sampled.read(reader)?;
        if let Some(error) = sampled.no_bytes {
            return Err(error);
        }
        sampled.window = Window::new(cut, first);
        Ok(sampled)
    }

    /// All counters. One that fails is not read again; a measurement without energy is one all the same.
    fn read(&mut self, reader: &Reader) -> Result<Sample, CostError> {
        let cpu = CpuTimes::read(&reader.machine)?;
        let at = reader.started.elapsed();
        let mut joules = None;
        if self.no_energy.is_none() {
            match reader.meter.joules() {
                Ok(read) => joules = read,
                Err(error) => self.no_energy = Some(error),
            }
        }
        let mut bytes = None;
        if self.no_bytes.is_none() {
            let read = match &reader.bytes {
                ByteSource::Meter => reader.meter.bytes(),
                source if source.is_running() => source.read(&reader.machine),
                _ => Ok(None),
            };
            match read {
                Ok(read) => bytes = read,
                Err(error) => self.no_bytes = Some(error),
            }
        }
        Ok(Sample { at, cpu, joules, bytes })
    }
}
