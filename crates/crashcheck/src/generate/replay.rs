//! PM and disks during the events of a trace.

use fastness_crashcheck_trace::{self as trace, Event, Header, Hypercall, Kind, TraceError};
use fastness_pm_model::{Config, FenceKind, FlushKind, Machine, Memory, ModelError};

use super::disk::Disk;
use super::layout::{Layout, Place};
use super::point::Contents;
use crate::image::{Image, PAGE_BYTES};

const LINE_BYTES: u64 = 64;

impl Memory for Image {
    fn len_bytes(&self) -> u64 {
        self.len_bytes()
    }

    fn line(&self, number: u64) -> [u8; 64] {
        // Layouts consist of whole pages.
        let mut bytes = [0; 64];
        self.read(number * LINE_BYTES, &mut bytes);
        bytes
    }

    fn put_line(&mut self, number: u64, bytes: &[u8; 64]) {
        self.write(number * LINE_BYTES, bytes);
    }
}

/// What the events so far have left: in PM, on the disks, and on the way there.
#[derive(Debug, Clone)]
pub struct Replay {
    layout: Layout,
    machine: Machine<Image>,
    disks: Vec<Disk>,
    checkpoint: Option<u64>,
}

/// Where something can be pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Memory,
    /// A disk, by its index.
    Disk(usize),
}

impl Replay {
    /// Before the first event of a trace.
    ///
    /// # Errors
    /// [`TraceError::Invalid`] if PM has more than `len_max_bytes` bytes.
    pub fn new(header: &Header, config: Config, len_max_bytes: u64) -> Result<Replay, TraceError> {
        let layout = Layout::of(header)?;
        if layout.len_bytes() > len_max_bytes {
            let what = format!("its regions together have more than {len_max_bytes} bytes");
            return Err(TraceError::Invalid { number: 0, what });
        }
        let len_bytes = layout.len_bytes().max(PAGE_BYTES as u64);
        let machine = Machine::new(Image::zeroed(len_bytes), config);
        let disks = header.devices.iter().map(Disk::new).collect();
        Ok(Replay { layout, machine, disks, checkpoint: None })
    }

    /// Where the regions are in the images.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// PM.
    pub fn machine(&self) -> &Machine<Image> {
        &self.machine
    }

    /// The disks, in the order of the header.
    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }

    /// What a crash leaves that loses nothing.
    pub fn everything(&self) -> Contents {
        let disks = self.disks.iter().map(Disk::volatile).collect();
        Contents { memory: self.machine.volatile(), disks }
    }

    /// The last checkpoint.
    pub fn checkpoint(&self) -> Option<u64> {
        self.checkpoint
    }

    /// A checkpoint is here, which the trace has later.
    pub(super) fn reach(&mut self, checkpoint: u64) {
        self.checkpoint = Some(checkpoint);
    }

    /// What `event` applies to if it makes contents impossible that are possible now. Crashes just before
    /// such an event, just before checkpoints and at the end leave everything that a crash at any moment
    /// can leave: other events only add possible contents.
    pub(super) fn shrinks(&self, event: &Event<'_>) -> Option<Medium> {
        let cpu = event.origin.thread;
        let is_shrinking = match event.kind {
            Kind::Fence(kind) => kind != trace::FenceKind::Lfence && self.machine.fence_can_shrink(cpu),
            Kind::Rmw { address, data } if self.layout.place(address, data.len()) == Place::Outside => {
                self.machine.fence_can_shrink(cpu)
            }
            Kind::Rmw { .. } => self.machine.rmw_can_shrink(cpu),
            Kind::Block { device, command, ref event } => {
                let disk = self.disks.get(device as usize);
                let shrinks = disk.is_some_and(|disk| disk.can_shrink(command, event));
                return shrinks.then_some(Medium::Disk(device as usize));
            }
            _ => false,
        };
        is_shrinking.then_some(Medium::Memory)
    }

    /// Whether `event` would make something certain.
    pub fn can_shrink(&self, event: &Event<'_>) -> bool {
        self.shrinks(event).is_some()
    }

    /// Performs an event; `number` names it in errors.
    ///
    /// # Errors
    /// [`TraceError::Invalid`] for an impossible event; nothing has changed.
    pub fn apply(&mut self, event: &Event<'_>, number: u64) -> Result<(), TraceError> {
        self.perform(&event.kind, event.origin.thread).map_err(|what| TraceError::Invalid { number, what })
    }

    /// A thread is taken for a processor: its fences wait for what it did itself (R13 of the model).
    fn perform(&mut self, kind: &Kind<'_>, cpu: u32) -> Result<(), String> {
        let model = |error: ModelError| error.to_string();
        match *kind {
            Kind::Initial { address, data } => {
                if let Some(offset) = self.offset(address, data.len())? {
                    self.machine.persistent_mut().write(offset, data);
                }
            }
            Kind::DiskInitial { device, offset, data } => self.disk(device)?.initial(offset, data)?,
            Kind::Store { address, data, is_non_temporal, is_atomic64 } => {
                if let Some(offset) = self.offset(address, data.len())? {
                    self.machine.store(cpu, offset, data, is_non_temporal, is_atomic64).map_err(model)?;
                }
            }
            Kind::Rmw { address, data } => match self.offset(address, data.len())? {
                Some(offset) => self.machine.rmw(cpu, offset, data).map_err(model)?,
                None => self.machine.fence(cpu, FenceKind::Mfence),
            },
            Kind::Flush { kind: trace::FlushKind::Wbinvd, .. } => self.machine.flush_all(cpu),
            Kind::Flush { kind, address } => {
                if let Some(offset) = self.offset(address, 1)? {
                    self.machine.flush(cpu, flush_kind(kind), offset).map_err(model)?;
                }
            }
            Kind::Fence(kind) => self.machine.fence(cpu, fence_kind(kind)),
            Kind::Block { device, command, ref event } => {
                self.disk(device)?.apply(command, event)?;
            }
            Kind::Hypercall(Hypercall::Checkpoint(number)) => self.checkpoint = Some(number),
            Kind::Read { .. } | Kind::Hypercall(_) => {}
        }
        Ok(())
    }

    fn disk(&mut self, device: u32) -> Result<&mut Disk, String> {
        self.disks.get_mut(device as usize).ok_or_else(|| format!("there is no disk {device}"))
    }

    fn offset(&self, address: u64, len: usize) -> Result<Option<u64>, String> {
        match self.layout.place(address, len) {
            Place::Inside(offset) => Ok(Some(offset)),
            Place::Outside => Ok(None),
            Place::Crossing => Err(format!("{len} bytes at {address:#x} are partly in a region")),
        }
    }
}

fn flush_kind(kind: trace::FlushKind) -> FlushKind {
    match kind {
        trace::FlushKind::Clwb => FlushKind::Clwb,
        trace::FlushKind::Clflush => FlushKind::Clflush,
        trace::FlushKind::Clflushopt | trace::FlushKind::Wbinvd => FlushKind::Clflushopt,
    }
}

fn fence_kind(kind: trace::FenceKind) -> FenceKind {
    match kind {
        trace::FenceKind::Sfence => FenceKind::Sfence,
        trace::FenceKind::Lfence => FenceKind::Lfence,
        trace::FenceKind::Mfence | trace::FenceKind::Locked => FenceKind::Mfence,
    }
}
