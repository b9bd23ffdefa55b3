//! Sampling: events opened, buffers drained.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::SampleError;
use super::estimate::{Estimator, Tally};
use super::event::{PERIOD, StoreEvent, check_period};
use super::maps::LiveProcesses;
use super::record::records;
use super::ring::Ring;
use crate::accounting::{KnownRegion, Written};
use crate::machine::{Machine, read};
use crate::perf_event::{self, Scope};

/// Most pages of a buffer: 64 MiB.
const PAGES_MAX: usize = 1 << 14;
/// Most threads of a process that are sampled.
const THREADS_MAX: usize = 4096;

/// Whose stores are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Those of all processes.
    All,
    /// Those of the threads of one process.
    Process(u32),
}

/// How stores are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Whose.
    pub target: Target,
    /// Events between two samples: a prime number is best.
    pub period: u64,
    /// Pages of the buffer of each CPU, or of each thread of a process: a power of two.
    pub buffer_pages: usize,
}

impl SamplerOptions {
    /// As in the source, with a buffer of 512 KiB.
    pub fn new(target: Target) -> SamplerOptions {
        SamplerOptions { target, period: PERIOD, buffer_pages: 128 }
    }
}

/// Samples the stores of a machine, or of a process. Dropping it ends that.
pub struct Sampler {
    events: Vec<StoreEvent>,
    options: SamplerOptions,
    /// By CPU or thread.
    rings: BTreeMap<u32, Ring>,
    estimator: Estimator<LiveProcesses>,
    buffer: Vec<u8>,
}

impl Sampler {
    /// Begins to sample.
    ///
    /// # Errors
    /// [`SampleError`]: says what is missing.
    pub fn start(machine: &Machine, options: SamplerOptions) -> Result<Sampler, SampleError> {
        Sampler::with_events(machine, StoreEvent::find(machine)?, options)
    }

    pub(super) fn with_events(
        machine: &Machine,
        events: Vec<StoreEvent>,
        options: SamplerOptions,
    ) -> Result<Sampler, SampleError> {
        check_period(options.period).or_else(|error| if cfg!(test) { Ok(()) } else { Err(error) })?;
        if !options.buffer_pages.is_power_of_two() || options.buffer_pages > PAGES_MAX {
            let text = format!("a buffer has a power of two of pages, at most {PAGES_MAX}");
            return Err(SampleError::Options(text));
        }
        let mut sampler = Sampler {
            events,
            options,
            rings: BTreeMap::new(),
            estimator: Estimator::new(LiveProcesses::default()),
            buffer: Vec::new(),
        };
        match options.target {
            Target::All => sampler.open_cpus(machine)?,
            Target::Process(pid) => sampler.open_threads(machine, pid)?,
        }
        Ok(sampler)
    }

    /// What it samples, and how: "cpu/mem-stores/ (PEBS)".
    pub fn describe(&self) -> String {
        let names: Vec<_> =
            self.events.iter().map(|event| format!("{} ({})", event.name, event.by)).collect();
        names.join(", ")
    }

    /// Says which files are regions beside those on PM.
    pub fn know(&mut self, known: Vec<KnownRegion>) {
        self.estimator.processes().know(known);
    }

    /// Takes what was sampled until `deadline` into the sums; looks for new threads of the process before.
    ///
    /// # Errors
    /// The process has ended.
    pub fn sample_until(&mut self, machine: &Machine, deadline: Instant) -> Result<(), SampleError> {
        if let Target::Process(pid) = self.options.target {
            self.open_threads(machine, pid)?;
        }
        self.estimator.forget_ended(|pid| machine.proc.join(pid.to_string()).exists());
        loop {
            self.drain();
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.wait(left);
        }
    }

    fn drain(&mut self) {
        for ring in self.rings.values_mut() {
            ring.drain(&mut self.buffer);
            records(&self.buffer).for_each(|record| self.estimator.add(record));
        }
    }

    /// Until a buffer is half full, or the time is over.
    fn wait(&self, left: Duration) {
        let mut waiting: Vec<_> =
            self.rings.values().map(|ring| PollFd::from_borrowed_fd(ring.event(), PollFlags::IN)).collect();
        let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        // A signal ends it early; the caller looks at its clock. A thread that has ended hangs up, for ever.
        let woken = poll(&mut waiting, Some(&time));
        let hung_up = waiting.iter().any(|fd| fd.revents().contains(PollFlags::HUP));
        if woken.is_ok() && hung_up {
            std::thread::sleep(left.min(Duration::from_millis(10)));
        }
    }

    /// What was written so far, as far as it was sampled.
    pub fn written(&self) -> Vec<Written> {
        self.estimator.written()
    }

    /// What became of the records.
    pub fn tally(&self) -> Tally {
        self.estimator.tally()
    }

    fn open_cpus(&mut self, machine: &Machine) -> Result<(), SampleError> {
        let online = read(&machine.sys.join("devices/system/cpu/online")).unwrap_or_default();
        let cpus =
            fastness_pmem::cpu_list(&online).filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| vec![0]);
        for cpu in cpus {
            let ring = self.open(machine, Scope::Cpu(cpu as u32), "all processes")?;
            self.rings.insert(cpu as u32, ring);
        }
        Ok(())
    }

    fn open_threads(&mut self, machine: &Machine, pid: u32) -> Result<(), SampleError> {
        let tasks = machine.proc.join(pid.to_string()).join("task");
        let listed = std::fs::read_dir(tasks).map_err(|source| SampleError::Process { pid, source })?;
        let threads = listed.flatten().filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
        let threads: Vec<u32> = threads.take(THREADS_MAX).collect();
        // What a thread has left in its buffer counts before that goes.
        self.drain();
        self.rings.retain(|thread, _| threads.contains(thread));
        for thread in threads {
            if self.rings.contains_key(&thread) {
                continue;
            }
            match self.open(machine, Scope::Thread(thread), "this process") {
                Ok(ring) => drop(self.rings.insert(thread, ring)),
                // It has ended meanwhile.
                Err(SampleError::Open { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// On a CPU with several kinds of cores, each of them has its own event.
    fn open(&self, machine: &Machine, scope: Scope, what: &'static str) -> Result<Ring, SampleError> {
        let mut why = None;
        for event in &self.events {
            match self.open_event(event, scope) {
                Ok(ring) => return Ok(ring),
                Err(error) => {
                    why.get_or_insert_with(|| refused(machine, event, what, error));
                }
            }
        }
        Err(why.unwrap_or_else(|| SampleError::NoEvent { missing: "none was given".to_owned() }))
    }

    fn open_event(&self, event: &StoreEvent, scope: Scope) -> io::Result<Ring> {
        let wake_bytes = (self.options.buffer_pages * rustix::param::page_size() / 2) as u32;
        let attributes = |event: &StoreEvent| event.attributes(self.options.period, wake_bytes);
        let opened = perf_event::open(&attributes(event), scope).or_else(|error| {
            // IBS cannot leave the kernel out before Linux 6.15; the records say whose they are.
            let everything = event.with_kernel();
            let is_invalid = error.raw_os_error() == Some(libc::EINVAL) && !event.is_precise();
            if is_invalid { perf_event::open(&attributes(&everything), scope) } else { Err(error) }
        })?;
        Ring::map(opened, self.options.buffer_pages)
    }
}

/// In words, what the kernel says about an event.
fn refused(machine: &Machine, event: &StoreEvent, what: &'static str, source: io::Error) -> SampleError {
    let name = event.name.clone();
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let paranoid = read(&machine.proc.join("sys/kernel/perf_event_paranoid"));
            let paranoid = paranoid.map_or_else(|_| "not readable".to_owned(), |text| text.trim().to_owned());
            SampleError::NotPermitted { event: name, paranoid, what }
        }
        Some(libc::EOPNOTSUPP) if event.is_precise() => SampleError::NotPrecise { event: name },
        Some(libc::ENOENT | libc::ENODEV) => {
            SampleError::NoEvent { missing: format!("{name} is listed, and the kernel does not have it") }
        }
        _ => SampleError::Open { event: name, source },
    }
}

#[cfg(test)]
mod tests;
