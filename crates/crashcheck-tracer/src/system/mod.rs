//! A whole guest: its kernel and programs, and a range of physical memory that is PM.
//!
//! The guest's memory is a file that QEMU shares (`memory-backend-file,share=on`): page tables are walked in
//! it for operands of flushes, and it says what PM held when the trace began. Addresses of the trace begin
//! with 0 at the first byte of PM.
//!
//! Tracing is on between the hypercalls `start` and `success` or `fail`, which end the trace; or always
//! (`from_boot=on`). With `repeat=on` it may go on with another `start`: a reader of the trace while it
//! grows finds all events up to `success` there when that has been executed. In between PM may be changed
//! from outside; its contents are not in such a trace. A flush of an address that is not mapped does nothing
//! in QEMU; their number is said at the end.
//!
//! Disks are NVMe ones, in the order in which the guest begins to use them. Their registers are watched all
//! the time, as queues are older than the trace (`nvme`), and as what is on them when it begins is what they
//! held and what was done to it (`before`).
//!
//! Limits: memory up to 2 GiB. What devices write to PM (DMA) is no store: it is found at the end, as a
//! difference between what the events make of PM and what is there, and is an error.

mod before;
mod callbacks;
mod disks;
mod frames;
mod nvme;
mod orc;
mod ram;
mod walk;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fastness_crashcheck_trace::{FenceKind, Header, Hypercall, Origin, Region, hypercall};
use iced_x86::Register;

use crate::api::{self, Hooks, Plugin, Target};
use crate::area::AREA_BYTES_MAX;
use crate::args::{ArgumentError, Arguments, range};
use crate::coverage::Coverage;
use crate::fail::{end, fail, or_fail, say};
use crate::instr::{Special, operand};
use crate::pending::Pending;
use crate::recorder::{RecordError, Recorder};
use crate::stack::Stack;
use crate::translate::{Callbacks, Place, Site};

use callbacks::{on_block, on_cpu, on_exit, on_load, on_locked, on_special, on_store};
use disks::Disks;
use frames::{Frames, FramesError};
use ram::Ram;
use walk::{Paging, physical};

const PAGE_BYTES: u64 = 4096;

/// A traced guest.
#[derive(Debug)]
struct Guest {
    /// PM: first physical byte, and length.
    start: u64,
    len_bytes: u64,
    ram_path: PathBuf,
    ram: OnceLock<Ram>,
    callbacks: Callbacks,
    frames: Frames,
    coverage: Option<Coverage>,
    is_from_boot: bool,
    is_repeated: bool,
    pending: Arc<Pending>,
    recorder: Mutex<Recorder<File>>,
    disks: Disks,
    /// Flushes of what is not mapped.
    unmapped: AtomicU64,
    has_returns: bool,
    /// The kernel has used PM since it returned to a program the last time.
    has_worked: AtomicBool,
}

static GUEST: OnceLock<Guest> = OnceLock::new();
/// Events are recorded.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Why a guest cannot be traced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error("a guest has one range of persistent memory, of up to 1 TiB")]
    Ranges,
    #[error("{0}: {1}")]
    Out(PathBuf, io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("started twice")]
    Twice,
    #[error("operations= is for programs, not for guests")]
    Operations,
    #[error(transparent)]
    Frames(#[from] FramesError),
}

/// Begins the trace, and registers the callbacks.
///
/// # Errors
/// [`GuestError`]
pub(crate) fn install(plugin: Plugin, arguments: &Arguments) -> Result<(), GuestError> {
    if arguments.operations.is_some() {
        return Err(GuestError::Operations);
    }
    let [pm] = &arguments.pm[..] else { return Err(GuestError::Ranges) };
    let (start, len_bytes) = range(pm)?;
    if len_bytes > AREA_BYTES_MAX {
        return Err(GuestError::Ranges);
    }
    let ram_path = arguments.ram.clone().ok_or(ArgumentError::Missing("ram"))?;
    let disks = Disks::parse(&arguments.disks)?;
    let frames = Frames::new(arguments.has_stacks, arguments.orc.as_deref())?;
    let region = Region { name: format!("physical {pm}"), start: 0, len_bytes };
    let header =
        Header { tool: crate::TOOL.to_owned(), regions: vec![region], devices: disks.devices.clone() };
    let out = File::create(&arguments.out).map_err(|error| GuestError::Out(arguments.out.clone(), error))?;
    let pending = Arc::new(Pending::new());
    let recorder = Mutex::new(Recorder::new(out, &header, Arc::clone(&pending))?);
    let callbacks = Callbacks {
        on_store,
        on_locked,
        on_load: arguments.has_reads.then_some(on_load as api::OnMemory),
        on_special,
        reads_registers: arguments.has_stacks || arguments.orc.is_some(),
    };
    let guest = Guest {
        start,
        len_bytes,
        ram_path,
        ram: OnceLock::new(),
        callbacks,
        frames,
        coverage: arguments.coverage.as_deref().map(Coverage::new),
        is_from_boot: arguments.is_from_boot,
        is_repeated: arguments.is_repeated,
        pending,
        recorder,
        disks,
        unmapped: AtomicU64::new(0),
        has_returns: arguments.has_returns,
        has_worked: AtomicBool::new(false),
    };
    GUEST.set(guest).map_err(|_| GuestError::Twice)?;
    plugin.register(Hooks { on_cpu, on_block, on_exit });
    Ok(())
}

/// A part of an access that is in PM: address in the trace, and which of the access's bytes.
type Piece = (u64, std::ops::Range<usize>);

impl Guest {
    fn lock(&self) -> MutexGuard<'_, Recorder<File>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ram(&self) -> &Ram {
        self.ram.get_or_init(|| {
            let what = format!("cannot map the guest's memory, {}", self.ram_path.display());
            let ram = or_fail(Ram::map(&self.ram_path), &what);
            if self.start + self.len_bytes > ram.len_bytes() {
                fail(format_args!(
                    "persistent memory is not in the guest's memory, {} bytes",
                    ram.len_bytes()
                ));
            }
            ram
        })
    }

    /// By the page tables of this CPU.
    fn physical(&self, address: u64) -> Option<u64> {
        let register = |register| {
            api::read_register(register).unwrap_or_else(|| fail(format_args!("cannot read {register:?}")))
        };
        let paging = Paging {
            cr0: register(Register::CR0),
            cr3: register(Register::CR3),
            cr4: register(Register::CR4),
        };
        physical(paging, address, |at| self.ram().word(at))
    }

    /// The part of a physical range that is PM; `from` is the number of its first byte in an access.
    fn piece(&self, physical: u64, from: usize, len: usize) -> Option<Piece> {
        let first = physical.max(self.start);
        let end = physical.saturating_add(len as u64).min(self.start + self.len_bytes);
        (first < end).then(|| {
            let skipped = from + (first - physical) as usize;
            (first - self.start, skipped..skipped + (end - first) as usize)
        })
    }

    /// The parts of an access that are in PM. One that crosses into another page may be in two places.
    fn pieces(&self, info: u32, address: u64) -> [Option<Piece>; 2] {
        let len = api::access_bytes(info);
        let to_end = (PAGE_BYTES - address % PAGE_BYTES) as usize;
        let Target::Memory(first) = api::access_target(info, address) else { return [None, None] };
        if len <= to_end {
            return [self.piece(first, 0, len), None];
        }
        let next = address.wrapping_add(to_end as u64);
        let Some(second) = self.physical(next) else {
            fail(format_args!("{next:#x} was just accessed, but is not in the page tables"))
        };
        [self.piece(first, 0, to_end), self.piece(second, to_end, len - to_end)]
    }

    /// A store, just executed. Returns whether it touched PM.
    fn store(&self, cpu: u32, info: u32, address: u64, place: Place, is_locked: bool) -> bool {
        let pieces = self.pieces(info, address);
        if pieces == [None, None] {
            return false;
        }
        let value = api::access_value(info);
        let stack = self.frames.of_cpu(place.pc);
        let origin = origin(cpu, place.pc, stack.as_ref());
        self.has_worked.fetch_or(origin.is_kernel, Ordering::Relaxed);
        let mut recorder = self.lock();
        for (address, part) in pieces.into_iter().flatten() {
            let mut bytes = [0; 16];
            let data = &mut bytes[..part.len()];
            data.copy_from_slice(&value.as_slice()[part]);
            // QEMU gives the operand of some LOCKed operations, not what they leave.
            if is_locked && !self.ram().read(self.start + address, data) {
                fail(format_args!("PM is not in the guest's memory"));
            }
            or_fail(
                match is_locked {
                    true => recorder.rmw(&origin, address, data),
                    false => recorder.store(&origin, address, data, place.is_non_temporal),
                },
                "store",
            );
        }
        true
    }

    /// A register of a disk was written.
    fn register(&self, cpu: u32, info: u32, physical: u64, pc: u64) {
        let value = api::access_value(info);
        let memory = |address, buffer: &mut [u8]| self.ram().read(address, buffer);
        let (disk, actions) = or_fail(self.disks.write(physical, value.as_slice(), &memory), "NVMe");
        if !IS_ON.load(Ordering::Relaxed) {
            return;
        }
        let stack = if actions.is_empty() { None } else { self.frames.of_cpu(pc) };
        let origin = origin(cpu, pc, stack.as_ref());
        for action in &actions {
            let recorded = self.lock().block(&origin, disk, action.command, disks::event(&action.what));
            or_fail(recorded, "NVMe");
        }
    }

    fn fence(&self, cpu: u32, pc: u64, kind: FenceKind) {
        if self.pending.is_set(cpu) {
            let stack = self.frames.of_cpu(pc);
            or_fail(self.lock().order(&origin(cpu, pc, stack.as_ref()), kind), "fence");
        }
    }

    /// From here on events are recorded; what is in PM and on the disks now is where they begin.
    fn begin(&self) {
        let mut recorder = self.lock();
        let mut buffer = vec![0; 1 << 20];
        for offset in (0..self.len_bytes).step_by(buffer.len()) {
            let part = &mut buffer[..(self.len_bytes - offset).min(1 << 20) as usize];
            self.ram().read(self.start + offset, part);
            let done = match self.is_repeated {
                true => recorder.assume(offset, part),
                false => recorder.initial(offset, part),
            };
            or_fail(done, "first contents");
        }
        for (disk, (contents, pending)) in (0..).zip(or_fail(self.disks.begin(), "NVMe")) {
            let len_bytes = self.disks.devices[disk as usize].len_bytes;
            let written = contents.each(len_bytes, |offset, data| recorder.disk_initial(disk, offset, data));
            or_fail(written, "first contents of a disk");
            for action in &pending {
                let event = disks::event(&action.what);
                or_fail(recorder.block(&Origin::default(), disk, action.command, event), "NVMe");
            }
        }
        if let Some(coverage) = &self.coverage {
            coverage.begin();
        }
        IS_ON.store(true, Ordering::Relaxed);
    }

    /// Ends the trace, or what is recorded of it for now; says it, and ends QEMU, if PM is not what the
    /// events make of it.
    fn finish(&self, is_end: bool) {
        let was_on = IS_ON.swap(false, Ordering::Relaxed);
        let mut recorder = self.lock();
        let unmapped = self.unmapped.load(Ordering::Relaxed);
        if unmapped > 0 {
            say(format_args!("{unmapped} flushes of addresses that are not mapped are left out"));
        }
        let read = |offset, buffer: &mut [u8]| match self.ram().read(self.start + offset, buffer) {
            true => Ok(()),
            false => Err(io::Error::other("PM is not in the guest's memory")),
        };
        let difference = if was_on { or_fail(recorder.difference(0, read), "cannot read PM") } else { None };
        let done = if is_end { recorder.finish().map(drop) } else { recorder.flush_out() };
        or_fail(done, "end of the trace");
        if let Some(coverage) = &self.coverage
            && was_on
        {
            or_fail(coverage.save(), "cannot write which blocks ran");
        }
        if let Some(difference) = difference {
            let (count, first) = (difference.count, difference.first);
            say(format_args!("{count} bytes of PM, the first at {first:#x}, were changed without an event"));
            end();
        }
    }
}

fn origin(cpu: u32, pc: u64, stack: Option<&Stack>) -> Origin<'_> {
    // The upper half of addresses is the kernel's.
    Origin { thread: cpu, pc: Some(pc), is_kernel: pc >> 63 == 1, stack: stack.map(Stack::as_slice) }
}

impl Guest {
    fn message(&self, cpu: u32, pc: u64) {
        let register = |register| {
            api::read_register(register).unwrap_or_else(|| fail(format_args!("cannot read {register:?}")))
        };
        let message = hypercall::of_registers(register(Register::RDI), register(Register::RSI));
        if message.event() == Hypercall::Start && !IS_ON.load(Ordering::Relaxed) {
            self.begin();
        }
        if !IS_ON.load(Ordering::Relaxed) {
            return;
        }
        let stack = self.frames.of_cpu(pc);
        or_fail(self.lock().message(&origin(cpu, pc, stack.as_ref()), message.event()), "hypercall");
        if matches!(message.event(), Hypercall::Success | Hypercall::Fail) && !self.is_from_boot {
            self.finish(!self.is_repeated);
        }
    }

    fn special(&self, cpu: u32, site: &Site) {
        let address = || {
            operand(&site.instruction, api::read_register).unwrap_or_else(|| {
                fail(format_args!("cannot read the operand of the instruction at {:#x}", site.pc))
            })
        };
        let origin = |stack| origin(cpu, site.pc, stack);
        match site.special {
            Special::Fence(kind) => self.fence(cpu, site.pc, kind),
            Special::Flush(kind) => match self.physical(address()) {
                Some(physical) => {
                    if let Some((address, _)) = self.piece(physical, 0, 1) {
                        let stack = self.frames.of_cpu(site.pc);
                        self.has_worked.fetch_or(origin(None).is_kernel, Ordering::Relaxed);
                        or_fail(self.lock().flush(&origin(stack.as_ref()), kind, address), "flush");
                    }
                }
                None => {
                    self.unmapped.fetch_add(1, Ordering::Relaxed);
                }
            },
            Special::Wbinvd => {
                let stack = self.frames.of_cpu(site.pc);
                self.has_worked.store(true, Ordering::Relaxed);
                or_fail(self.lock().flush_all(&origin(stack.as_ref())), "flush");
            }
            Special::Untraceable(len) => {
                let address = address();
                // It may cross into a page that is somewhere else.
                for at in [address, address.wrapping_add(u64::from(len) - 1)] {
                    let physical = self.physical(at);
                    if physical.is_some_and(|physical| self.piece(physical, 0, 1).is_some()) {
                        let pc = site.pc;
                        fail(format_args!("the instruction at {pc:#x} stores to PM what QEMU does not show"));
                    }
                }
            }
            // At the entry there is nothing: what the kernel has done was told when it returned. A program's
            // own stores are no system calls.
            Special::Border => {
                if self.has_returns && self.has_worked.swap(false, Ordering::Relaxed) {
                    let message = Hypercall::Other { action: hypercall::RETURN, value: "" };
                    or_fail(self.lock().message(&origin(None), message), "return of a system call");
                }
            }
            Special::Hypercall => {}
        }
    }
}
