//! Events as bytes of a frame.

use std::collections::HashMap;

use crate::bytes::{put, put_bytes, put_difference};
use crate::event::{
    BLOCK_BYTES_MAX, BlockEvent, Event, Hypercall, Kind, MEMORY_BYTES_MAX, Origin, STACK_MAX, TEXT_BYTES_MAX,
};

/// Tags; `docs/trace-format.md` has what follows each.
pub(crate) mod tag {
    pub(crate) const INITIAL: u8 = 0;
    pub(crate) const STORE: u8 = 1;
    pub(crate) const RMW: u8 = 2;
    pub(crate) const FLUSH: u8 = 3;
    pub(crate) const FENCE: u8 = 4;
    pub(crate) const READ: u8 = 5;
    pub(crate) const BLOCK_WRITE: u8 = 6;
    pub(crate) const BLOCK_ZEROES: u8 = 7;
    pub(crate) const BLOCK_DISCARD: u8 = 8;
    pub(crate) const BLOCK_FLUSH: u8 = 9;
    pub(crate) const BLOCK_COMPLETION: u8 = 10;
    pub(crate) const START: u8 = 11;
    pub(crate) const SUCCESS: u8 = 12;
    pub(crate) const FAIL: u8 = 13;
    pub(crate) const CHECKPOINT: u8 = 14;
    pub(crate) const OTHER: u8 = 15;
    pub(crate) const DISK_INITIAL: u8 = 16;
}

/// Flags of all events, after the tag. The lowest three bits belong to the tag.
pub(crate) mod flag {
    /// Store: non-temporal. Block: FUA. Completion: ended well. Flush, fence: the instruction, in bits 0 and
    /// 1.
    pub(crate) const FIRST: u8 = 1;
    /// Store: atomic.
    pub(crate) const SECOND: u8 = 2;
    /// In the kernel.
    pub(crate) const KERNEL: u8 = 8;
    /// Another thread than that of the event before.
    pub(crate) const THREAD: u8 = 16;
    pub(crate) const PC: u8 = 32;
    /// A stack that the frame has already.
    pub(crate) const STACK: u8 = 64;
    /// A stack that it does not have yet.
    pub(crate) const NEW_STACK: u8 = 128;
}

/// What differences are taken from; anew in each frame.
#[derive(Debug, Default)]
pub(crate) struct Last {
    pub(crate) address: u64,
    pub(crate) pc: u64,
    pub(crate) thread: u32,
}

/// A frame of events in the making.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    pub(crate) bytes: Vec<u8>,
    last: Last,
    stacks: HashMap<Vec<u64>, u64>,
}

impl Encoder {
    /// Begins another frame.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.last = Last::default();
        self.stacks.clear();
    }

    /// Appends an event that [`check`] accepts.
    pub(crate) fn push(&mut self, event: &Event<'_>) {
        let (tag, own) = tag_of(&event.kind);
        self.bytes.push(tag);
        self.put_origin(own, &event.origin);
        let out = &mut self.bytes;
        match event.kind {
            Kind::Initial { address, data }
            | Kind::Store { address, data, .. }
            | Kind::Rmw { address, data }
            | Kind::Read { address, data } => {
                put_difference(out, self.last.address, address);
                put_bytes(out, data);
                self.last.address = address.wrapping_add(data.len() as u64);
            }
            Kind::Flush { address, .. } => {
                put_difference(out, self.last.address, address);
                self.last.address = address;
            }
            Kind::Fence(_) => {}
            Kind::DiskInitial { device, offset, data } => {
                put(out, device.into());
                put(out, offset);
                put_bytes(out, data);
            }
            Kind::Block { device, command, event } => {
                put(out, device.into());
                put(out, command.into());
                match event {
                    BlockEvent::Write { offset, data, .. } => {
                        put(out, offset);
                        put_bytes(out, data);
                    }
                    BlockEvent::WriteZeroes { offset, len_bytes, .. }
                    | BlockEvent::Discard { offset, len_bytes } => {
                        put(out, offset);
                        put(out, len_bytes);
                    }
                    BlockEvent::Flush | BlockEvent::Completion { .. } => {}
                }
            }
            Kind::Hypercall(Hypercall::Checkpoint(number)) => put(out, number),
            Kind::Hypercall(Hypercall::Other { action, value }) => {
                put_bytes(out, action.as_bytes());
                put_bytes(out, value.as_bytes());
            }
            Kind::Hypercall(_) => {}
        }
    }

    fn put_origin(&mut self, own: u8, origin: &Origin<'_>) {
        let known = origin.stack.and_then(|stack| self.stacks.get(stack).copied());
        let mut flags = own;
        for (is_set, flag) in [
            (origin.is_kernel, flag::KERNEL),
            (origin.thread != self.last.thread, flag::THREAD),
            (origin.pc.is_some(), flag::PC),
            (known.is_some(), flag::STACK),
            (origin.stack.is_some() && known.is_none(), flag::NEW_STACK),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        let out = &mut self.bytes;
        out.push(flags);
        if flags & flag::THREAD != 0 {
            put(out, origin.thread.into());
            self.last.thread = origin.thread;
        }
        if let Some(pc) = origin.pc {
            put_difference(out, self.last.pc, pc);
            self.last.pc = pc;
        }
        match (known, origin.stack) {
            (Some(number), _) => put(out, number),
            (None, Some(stack)) => {
                put(out, stack.len() as u64);
                let mut last = self.last.pc;
                for address in stack {
                    put_difference(out, last, *address);
                    last = *address;
                }
                self.stacks.insert(stack.to_vec(), self.stacks.len() as u64);
            }
            (None, None) => {}
        }
    }
}

/// The tag, and its own flags.
fn tag_of(kind: &Kind<'_>) -> (u8, u8) {
    let first = |is_set: bool| if is_set { flag::FIRST } else { 0 };
    match kind {
        Kind::Initial { .. } => (tag::INITIAL, 0),
        Kind::DiskInitial { .. } => (tag::DISK_INITIAL, 0),
        Kind::Store { is_non_temporal, is_atomic64, .. } => {
            (tag::STORE, first(*is_non_temporal) | if *is_atomic64 { flag::SECOND } else { 0 })
        }
        Kind::Rmw { .. } => (tag::RMW, 0),
        Kind::Flush { kind, .. } => (tag::FLUSH, *kind as u8),
        Kind::Fence(kind) => (tag::FENCE, *kind as u8),
        Kind::Read { .. } => (tag::READ, 0),
        Kind::Block { event, .. } => match event {
            BlockEvent::Write { is_fua, .. } => (tag::BLOCK_WRITE, first(*is_fua)),
            BlockEvent::WriteZeroes { is_fua, .. } => (tag::BLOCK_ZEROES, first(*is_fua)),
            BlockEvent::Discard { .. } => (tag::BLOCK_DISCARD, 0),
            BlockEvent::Flush => (tag::BLOCK_FLUSH, 0),
            BlockEvent::Completion { is_ok } => (tag::BLOCK_COMPLETION, first(*is_ok)),
        },
        Kind::Hypercall(hypercall) => match hypercall {
            Hypercall::Start => (tag::START, 0),
            Hypercall::Success => (tag::SUCCESS, 0),
            Hypercall::Fail => (tag::FAIL, 0),
            Hypercall::Checkpoint(_) => (tag::CHECKPOINT, 0),
            Hypercall::Other { .. } => (tag::OTHER, 0),
        },
    }
}

/// Why a trace cannot have this event.
pub(crate) fn check(event: &Event<'_>) -> Result<(), String> {
    if let Some(stack) = event.origin.stack
        && stack.len() > STACK_MAX
    {
        return Err(format!("a stack of {} frames, the deepest has {STACK_MAX}", stack.len()));
    }
    let no_more = |len: usize, max: usize, what: &str| {
        if len > max { Err(format!("{what} of {len} bytes, the longest is {max}")) } else { Ok(()) }
    };
    match event.kind {
        Kind::Store { data, is_atomic64: true, .. } if data.len() != 64 => {
            Err(format!("an atomic store of {} bytes", data.len()))
        }
        Kind::Initial { data, .. }
        | Kind::Store { data, .. }
        | Kind::Rmw { data, .. }
        | Kind::Read { data, .. } => no_more(data.len(), MEMORY_BYTES_MAX, "data"),
        Kind::DiskInitial { data, .. } | Kind::Block { event: BlockEvent::Write { data, .. }, .. } => {
            no_more(data.len(), BLOCK_BYTES_MAX, "data")
        }
        Kind::Hypercall(Hypercall::Other { action, value }) => {
            no_more(action.len().max(value.len()), TEXT_BYTES_MAX, "a text")
        }
        _ => Ok(()),
    }
}
