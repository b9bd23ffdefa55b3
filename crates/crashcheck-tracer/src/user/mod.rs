//! User mode: one program, and files that it maps as PM.
//!
//! Which files: known by device and inode, so it does not matter how the program names them, which part of
//! them it maps, or at how many places. A file is a region of the trace; the address of an event is the
//! region's first one and the byte in the file. Private mappings are no PM.
//!
//! What the kernel does for the program is recorded as a DAX file system would do it: `write` and the like as
//! non-temporal stores, `fsync` and `msync` as write-back of what is dirty and `sfence` (`syscalls`).
//!
//! Concurrency: callbacks of several threads run at once; those that find PM take one lock, in which the
//! order of the trace is made. Between an instruction and its callback another thread may do the same, so the
//! order of accesses that the program does not order itself is one of several that are possible.
//!
//! Shutdown: at the end of the program, however it ends, what the events make of the files is compared with
//! what is in them; a change without an event is an error. A child of `fork` is not traced.

mod files;
mod mappings;
mod modules;
mod numbers;
mod paths;
mod ranges;
mod syscalls;

use std::ffi::{c_uint, c_void};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fastness_crashcheck_trace::module::{self, Module};
use fastness_crashcheck_trace::{FenceKind, Header, Hypercall, Origin, Region, TEXT_BYTES_MAX, hypercall};
use iced_x86::Register;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::api::{self, Hooks, Plugin, REGISTERS, Registers};
use crate::area::start_of;
use crate::args::Arguments;
use crate::coverage::Coverage;
use crate::fail::{end, fail, or_fail, say};
use crate::instr::{Special, operand};
use crate::pending::Pending;
use crate::recorder::{RecordError, Recorder};
use crate::stack::Stack;
use crate::translate::{Callbacks, Place, site, translate};

use files::{FileError, PmFile, moved_up};
use mappings::Mappings;
use ranges::Ranges;

/// A traced program.
#[derive(Debug)]
struct User {
    files: Vec<PmFile>,
    /// Where the program writes its log of operations: device and inode.
    log: Option<(u64, u64)>,
    callbacks: Callbacks,
    has_stacks: bool,
    coverage: Option<Coverage>,
    pending: Arc<Pending>,
    state: Mutex<State>,
}

/// What a lock guards.
#[derive(Debug)]
struct State {
    recorder: Recorder<File>,
    mappings: Mappings,
}

static USER: OnceLock<User> = OnceLock::new();
static RANGES: Ranges = Ranges::new();
/// This process is a child of the traced one.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// Threads that there have been.
static THREADS: AtomicU32 = AtomicU32::new(0);

/// Why a program cannot be traced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}: {1}")]
    Out(std::path::PathBuf, std::io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("cannot read persistent memory: {0}")]
    Read(#[from] std::io::Error),
    #[error("started twice")]
    Twice,
    #[error("ram=, disk= and from_boot= are for guests, not for programs")]
    Guest,
}

/// Begins the trace, and registers the callbacks.
///
/// # Errors
/// [`UserError`]
pub(crate) fn install(plugin: Plugin, arguments: &Arguments) -> Result<(), UserError> {
    if arguments.ram.is_some() || !arguments.disks.is_empty() || arguments.is_from_boot {
        return Err(UserError::Guest);
    }
    let files = PmFile::open_all(&arguments.pm)?;
    let log = arguments.operations.as_deref().map(files::identity).transpose()?;
    let regions = files.iter().enumerate().map(|(index, file)| Region {
        name: file.path.display().to_string(),
        start: start_of(index),
        len_bytes: file.len_bytes,
    });
    let header = Header { tool: crate::TOOL.to_owned(), regions: regions.collect(), devices: Vec::new() };
    let out = File::create(&arguments.out).map_err(|error| UserError::Out(arguments.out.clone(), error))?;
    let pending = Arc::new(Pending::new());
    let mut recorder = Recorder::new(moved_up(out), &header, Arc::clone(&pending))?;
    for (index, file) in files.iter().enumerate() {
        file.for_each_part(|offset, part| {
            recorder.initial(start_of(index) + offset, part).map_err(UserError::from)
        })?;
    }
    let callbacks = Callbacks {
        on_store,
        on_locked,
        on_load: arguments.has_reads.then_some(on_load as api::OnMemory),
        on_special,
        reads_registers: arguments.has_stacks,
    };
    let state = Mutex::new(State { recorder, mappings: Mappings::default() });
    let coverage = arguments.coverage.as_deref().map(Coverage::new);
    let user = User { files, log, callbacks, has_stacks: arguments.has_stacks, coverage, pending, state };
    USER.set(user).map_err(|_| UserError::Twice)?;
    watch_forks();
    // A program that dies of a signal would leave QEMU's memory in a file.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        say(format_args!("core dumps cannot be turned off: {error}"));
    }
    plugin.register(Hooks { on_cpu, on_block, on_exit });
    plugin.register_syscalls(syscalls::begin, syscalls::end);
    Ok(())
}

/// Children know at once that they are none of our business.
#[allow(unsafe_code)]
fn watch_forks() {
    extern "C" fn in_child() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
    // SAFETY: the function only stores to an atomic, which is allowed in a child of a process with threads.
    if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
        fail(format_args!("no memory to watch for children"));
    }
}

/// The traced program; none in a child.
fn user() -> Option<&'static User> {
    if IS_CHILD.load(Ordering::Relaxed) { None } else { USER.get() }
}

impl User {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stack(&self) -> Option<Stack> {
        self.has_stacks.then(Stack::of_cpu)
    }

    /// A store that may touch PM, just executed. Returns whether it did.
    fn store(&self, thread: u32, info: u32, address: u64, place: Place, is_locked: bool) -> bool {
        let value = api::access_value(info);
        let stack = self.stack();
        let origin = origin(thread, Some(place.pc), stack.as_ref());
        let mut state = self.lock();
        let State { recorder, mappings } = &mut *state;
        let mut is_pm = false;
        for piece in mappings.pieces(address, address.saturating_add(value.as_slice().len() as u64)) {
            is_pm = true;
            let mut bytes = [0; 16];
            let mut data =
                &value.as_slice()[(piece.start - address) as usize..(piece.end - address) as usize];
            // QEMU gives the operand of some LOCKed operations, not what they leave. And with several
            // threads, what is in memory now is at least as new as what this one stored: the last event has
            // what stays.
            if is_locked || THREADS.load(Ordering::Relaxed) > 1 {
                let now = &mut bytes[..data.len()];
                if !api::read_memory(piece.start, now) {
                    fail(format_args!("cannot read {:#x}, which was just stored to", piece.start));
                }
                data = now;
            }
            let recorded = match is_locked {
                true => recorder.rmw(&origin, piece.address, data),
                false => recorder.store(&origin, piece.address, data, place.is_non_temporal),
            };
            or_fail(recorded, "store");
        }
        is_pm
    }

    fn fence(&self, thread: u32, pc: u64, kind: FenceKind) {
        if self.pending.is_set(thread) {
            let stack = self.stack();
            let origin = origin(thread, Some(pc), stack.as_ref());
            or_fail(self.lock().recorder.order(&origin, kind), "fence");
        }
    }
}

impl User {
    /// The program has logged a text, of these parts.
    fn log(&self, thread: u32, pc: u64, parts: &[(u64, u64)]) {
        let len = parts.iter().fold(0_u64, |sum, (_, len)| sum.saturating_add(*len));
        if len > TEXT_BYTES_MAX as u64 {
            fail(format_args!(
                "the program logs operations in a piece of {len} bytes; at most {TEXT_BYTES_MAX} are allowed: \
                 write each line by itself, as soon as it is known"
            ));
        }
        let mut text = Vec::new();
        for (address, len) in parts {
            let at = text.len();
            text.resize(at + *len as usize, 0);
            if !api::read_memory(*address, &mut text[at..]) {
                fail(format_args!("cannot read {len} bytes at {address:#x}, which the program logs"));
            }
        }
        let stack = self.stack();
        let origin = origin(thread, Some(pc), stack.as_ref());
        let value = String::from_utf8_lossy(&text);
        // Replacements may be longer than what they replace.
        let value = &value[..value.floor_char_boundary(TEXT_BYTES_MAX)];
        let message = Hypercall::Other { action: hypercall::OPERATION_ACTION, value };
        or_fail(self.lock().recorder.message(&origin, message), "log of operations");
    }
}

fn origin(thread: u32, pc: Option<u64>, stack: Option<&Stack>) -> Origin<'_> {
    Origin { thread, pc, is_kernel: false, stack: stack.map(Stack::as_slice) }
}

extern "C" fn on_cpu(_: u64, thread: c_uint) {
    THREADS.fetch_add(1, Ordering::Relaxed);
    let Some(user) = user() else { return };
    // A number is used again after its thread has ended.
    user.pending.clear(thread);
    if REGISTERS.get().is_none() {
        let found = Registers::find();
        // Another thread may have been faster: they are the same.
        let _ = REGISTERS.set(or_fail(found, "QEMU has no register of this name"));
    }
}

extern "C" fn on_block(_: u64, block: *mut qemu_plugin_sys::qemu_plugin_tb) {
    if let Some(user) = user() {
        modules::note_code(block);
        translate(block, &user.callbacks);
        if let Some(coverage) = &user.coverage {
            coverage.translated(block);
        }
    }
}

extern "C" fn on_store(thread: c_uint, info: u32, address: u64, place: *mut c_void) {
    if RANGES.may_have(address)
        && let Some(user) = user()
    {
        user.store(thread, info, address, Place::unpack(place), false);
    }
}

extern "C" fn on_locked(thread: c_uint, info: u32, address: u64, place: *mut c_void) {
    let Some(user) = user() else { return };
    let place = Place::unpack(place);
    if !(RANGES.may_have(address) && user.store(thread, info, address, place, true)) {
        user.fence(thread, place.pc, FenceKind::Locked);
    }
}

extern "C" fn on_load(thread: c_uint, info: u32, address: u64, place: *mut c_void) {
    if !RANGES.may_have(address) {
        return;
    }
    let Some(user) = user() else { return };
    let value = api::access_value(info);
    let stack = user.stack();
    let origin = origin(thread, Some(Place::unpack(place).pc), stack.as_ref());
    let mut state = user.lock();
    let State { recorder, mappings } = &mut *state;
    for piece in mappings.pieces(address, address.saturating_add(value.as_slice().len() as u64)) {
        let data = &value.as_slice()[(piece.start - address) as usize..(piece.end - address) as usize];
        or_fail(recorder.read(&origin, piece.address, data), "load");
    }
}

extern "C" fn on_special(thread: c_uint, number: *mut c_void) {
    let (Some(user), Some(site)) = (user(), site(number)) else { return };
    let address = || {
        operand(&site.instruction, api::read_register).unwrap_or_else(|| {
            fail(format_args!("cannot read the operand of the instruction at {:#x}", site.pc))
        })
    };
    match site.special {
        Special::Fence(kind) => user.fence(thread, site.pc, kind),
        Special::Flush(kind) => {
            let address = address();
            if !RANGES.may_have(address) {
                return;
            }
            let stack = user.stack();
            let origin = origin(thread, Some(site.pc), stack.as_ref());
            let mut state = user.lock();
            let State { recorder, mappings } = &mut *state;
            for piece in mappings.pieces(address, address.saturating_add(1)) {
                or_fail(recorder.flush(&origin, kind, piece.address), "flush");
            }
        }
        Special::Hypercall => {
            let register = |register| {
                api::read_register(register).unwrap_or_else(|| fail(format_args!("cannot read {register:?}")))
            };
            let (kind, value) = (register(Register::RDI), register(Register::RSI));
            if kind == hypercall::OPERATION {
                return user.log(thread, site.pc, &[(value, register(Register::RDX))]);
            }
            let message = hypercall::of_registers(kind, value);
            let stack = user.stack();
            let origin = origin(thread, Some(site.pc), stack.as_ref());
            or_fail(user.lock().recorder.message(&origin, message.event()), "hypercall");
        }
        Special::Untraceable(len) => {
            let address = address();
            let end = address.saturating_add(len.into());
            if user.lock().mappings.pieces(address, end).next().is_some() {
                let pc = site.pc;
                fail(format_args!("the instruction at {pc:#x} stores to PM what QEMU does not show"));
            }
        }
        // Not allowed to programs.
        Special::Wbinvd | Special::Border => {}
    }
}

/// The program has ended, well or not. May come twice.
extern "C" fn on_exit(_: u64, _: *mut c_void) {
    if let Some(user) = user()
        && user.lock().recorder.is_open()
    {
        user.finish();
    }
}

impl User {
    /// Ends the trace; says it, and ends QEMU, if PM is not what the events make of it.
    fn finish(&self) {
        let mut state = self.lock();
        let mut is_right = true;
        for (index, file) in self.files.iter().enumerate() {
            let read = |offset, buffer: &mut [u8]| file.read(offset, buffer);
            let difference = or_fail(state.recorder.difference(index, read), "cannot read PM");
            if let Some(difference) = difference {
                is_right = false;
                say(format_args!(
                    "{}: {} bytes, the first at {:#x}, were changed without an event: by another process, or by \
                     a system call that is not traced",
                    file.path.display(),
                    difference.count,
                    difference.first - start_of(index)
                ));
            }
        }
        for value in modules::modules().iter().filter_map(Module::value) {
            let message = Hypercall::Other { action: module::ACTION, value: &value };
            or_fail(state.recorder.message(&Origin::default(), message), "end of the trace");
        }
        or_fail(state.recorder.finish(), "end of the trace");
        if let Some(coverage) = &self.coverage {
            or_fail(coverage.save(), "cannot write which blocks ran");
        }
        if !is_right {
            end();
        }
    }
}
