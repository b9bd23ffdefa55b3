//! A DMA engine that threads stand in for: it reads descriptors as the hardware does, and can fail.

use std::collections::VecDeque;
use std::io;
use std::ptr::{copy_nonoverlapping, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;
use std::thread::JoinHandle;

use fastness_sync::{Condvar, Mutex, lock, wait};

use super::device::DeviceModel;
use crate::gate::{Completion, Descriptor, WorkQueue};

/// What goes wrong with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineFault {
    /// The queue is full.
    Full,
    /// The kernel refuses it.
    Refused,
    /// A page is not there after so many bytes.
    PageAfter(u32),
    /// It ends with this status, and nothing is stored.
    Status(u8),
    /// It is taken, and never done; [`SimulatedQueue::do_late`] does it after all.
    Silent,
}

/// A queue with so many channels, each of which makes one transfer at a time.
#[derive(Debug)]
pub struct SimulatedQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    transfer_bytes_max: usize,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    is_there: Condvar,
    /// Who says how long a transfer takes; none: as long as the copy.
    device: Option<Arc<DeviceModel>>,
}

#[derive(Debug, Default)]
struct State {
    queued: VecDeque<(Descriptor, Option<EngineFault>)>,
    /// For the next descriptors, in order.
    faults: VecDeque<EngineFault>,
    never_done: Vec<Descriptor>,
    is_over: bool,
}

impl SimulatedQueue {
    /// An engine with so many channels, as fast as the device says.
    pub fn new(
        channels: usize,
        transfer_bytes_max: usize,
        device: Option<Arc<DeviceModel>>,
    ) -> SimulatedQueue {
        let shared = Arc::new(Shared { state: Mutex::default(), is_there: Condvar::new(), device });
        let run = |_| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.run())
        };
        SimulatedQueue { threads: (0..channels).map(run).collect(), shared, transfer_bytes_max }
    }

    /// What goes wrong with the next descriptors, in order.
    pub fn fail(&self, faults: &[EngineFault]) {
        lock(&self.shared.state).faults.extend(faults);
    }

    /// Does what was never done, long after its caller has given up.
    pub fn do_late(&self) {
        let late = std::mem::take(&mut lock(&self.shared.state).never_done);
        late.iter().for_each(|descriptor| self.shared.execute(descriptor, None));
    }
}

impl WorkQueue for SimulatedQueue {
    fn submit(&self, descriptor: &Descriptor) -> io::Result<()> {
        let mut state = lock(&self.shared.state);
        match state.faults.pop_front() {
            Some(EngineFault::Full) => return Err(io::ErrorKind::WouldBlock.into()),
            Some(EngineFault::Refused) => return Err(io::ErrorKind::InvalidInput.into()),
            Some(EngineFault::Silent) => state.never_done.push(*descriptor),
            fault => {
                state.queued.push_back((*descriptor, fault));
                self.shared.is_there.notify_one();
            }
        }
        Ok(())
    }

    fn transfer_bytes_max(&self) -> usize {
        self.transfer_bytes_max
    }
}

impl Shared {
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some((descriptor, fault)) = state.queued.pop_front() {
                drop(state);
                self.execute(&descriptor, fault);
                state = lock(&self.state);
            } else if state.is_over {
                return;
            } else {
                state = wait(&self.is_there, state);
            }
        }
    }

    fn execute(&self, descriptor: &Descriptor, fault: Option<EngineFault>) {
        use crate::gate::{PAGE_FAULT, SUCCESS};
        let (status, bytes) = match (fault, descriptor.addresses()) {
            (Some(EngineFault::Status(status)), _) => (status, 0),
            (Some(EngineFault::PageAfter(bytes)), Some((src, dst, len_bytes))) => {
                let bytes = len_bytes.min(bytes as usize);
                copy(src, dst, bytes);
                (0x80 | PAGE_FAULT, bytes as u32)
            }
            (_, Some((src, dst, len_bytes))) => {
                match &self.device {
                    Some(device) => device.transfer(0, len_bytes, || copy(src, dst, len_bytes)),
                    None => copy(src, dst, len_bytes),
                }
                (SUCCESS, len_bytes as u32)
            }
            (_, None) => (SUCCESS, 0),
        };
        let completion = with_exposed_provenance::<Completion>(descriptor.completion());
        // SAFETY: whoever made the descriptor keeps the record until it is complete, or for ever.
        unsafe { (*completion).complete(status, bytes) };
    }
}

fn copy(src: usize, dst: usize, len_bytes: usize) {
    // SAFETY: as of the engine that this stands in for: the source and the mapped destination of a write that
    // waits for the completion; of one that has given up, memory that stays mapped.
    unsafe {
        let (src, dst) = (with_exposed_provenance::<u8>(src), with_exposed_provenance_mut::<u8>(dst));
        copy_nonoverlapping(src, dst, len_bytes);
    }
}

impl Drop for SimulatedQueue {
    fn drop(&mut self) {
        lock(&self.shared.state).is_over = true;
        self.shared.is_there.notify_all();
        for thread in self.threads.drain(..) {
            // It panics nowhere.
            let _ = thread.join();
        }
    }
}
