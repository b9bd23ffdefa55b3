//! Events from the bytes of a frame.

use crate::bytes::Input;
use crate::encode::{Last, check, flag, tag};
use crate::event::{
    BLOCK_BYTES_MAX, BlockEvent, Event, FenceKind, FlushKind, Hypercall, Kind, MEMORY_BYTES_MAX, Origin,
    STACK_MAX, TEXT_BYTES_MAX,
};

/// What differences are taken from, and the stacks of the frame so far; anew in each frame.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    last: Last,
    stacks: Vec<Vec<u64>>,
}

/// The first part of an event.
struct Front {
    tag: u8,
    own: u8,
    is_kernel: bool,
    pc: Option<u64>,
    stack: Option<usize>,
}

const OWN: u8 = 7;

impl Decoder {
    pub(crate) fn clear(&mut self) {
        self.last = Last::default();
        self.stacks.clear();
    }

    /// Takes the next event from the front.
    pub(crate) fn next<'a>(&'a mut self, input: &mut Input<'a>) -> Result<Event<'a>, String> {
        let front = self.front(input)?;
        let kind = self.kind(front.tag, front.own, input)?;
        let Front { is_kernel, pc, stack, .. } = front;
        let stack = stack.map(|at| &self.stacks[at][..]);
        let event = Event { kind, origin: Origin { thread: self.last.thread, pc, is_kernel, stack } };
        check(&event)?;
        Ok(event)
    }

    fn front(&mut self, input: &mut Input<'_>) -> Result<Front, String> {
        let (tag, flags) = (input.byte()?, input.byte()?);
        if flags & flag::THREAD != 0 {
            let thread = input.small("a thread")?;
            if thread == self.last.thread {
                return Err("the same thread as another one".to_owned());
            }
            self.last.thread = thread;
        }
        let pc = if flags & flag::PC != 0 {
            self.last.pc = input.difference(self.last.pc)?;
            Some(self.last.pc)
        } else {
            None
        };
        let stack = match (flags & flag::STACK != 0, flags & flag::NEW_STACK != 0) {
            (false, false) => None,
            (true, false) => {
                let number = input.number()?;
                let at = usize::try_from(number).ok().filter(|at| *at < self.stacks.len());
                Some(at.ok_or_else(|| format!("stack {number}, there are {}", self.stacks.len()))?)
            }
            (false, true) => {
                self.new_stack(input)?;
                Some(self.stacks.len() - 1)
            }
            (true, true) => return Err("a stack that is both known and new".to_owned()),
        };
        Ok(Front { tag, own: flags & OWN, is_kernel: flags & flag::KERNEL != 0, pc, stack })
    }

    fn new_stack(&mut self, input: &mut Input<'_>) -> Result<(), String> {
        let len = input.number()?;
        if len > STACK_MAX as u64 {
            return Err(format!("a stack of {len} frames, the deepest has {STACK_MAX}"));
        }
        let (mut stack, mut last) = (Vec::with_capacity(len as usize), self.last.pc);
        for _ in 0..len {
            last = input.difference(last)?;
            stack.push(last);
        }
        self.stacks.push(stack);
        Ok(())
    }

    fn kind<'a>(&mut self, tag: u8, own: u8, input: &mut Input<'a>) -> Result<Kind<'a>, String> {
        let (is_first, is_second) = (own & flag::FIRST != 0, own & flag::SECOND != 0);
        let allowed = match tag {
            tag::STORE | tag::FLUSH | tag::FENCE => flag::FIRST | flag::SECOND,
            tag::BLOCK_WRITE | tag::BLOCK_ZEROES | tag::BLOCK_COMPLETION => flag::FIRST,
            _ => 0,
        };
        if own & !allowed != 0 {
            return Err(format!("flags {own} of an event of kind {tag}"));
        }
        Ok(match tag {
            tag::INITIAL => {
                let (address, data) = self.memory(input)?;
                Kind::Initial { address, data }
            }
            tag::DISK_INITIAL => {
                let (device, offset) = (input.small("a device")?, input.number()?);
                Kind::DiskInitial { device, offset, data: input.bytes(BLOCK_BYTES_MAX, "data")? }
            }
            tag::STORE => {
                let (address, data) = self.memory(input)?;
                Kind::Store { address, data, is_non_temporal: is_first, is_atomic64: is_second }
            }
            tag::RMW => {
                let (address, data) = self.memory(input)?;
                Kind::Rmw { address, data }
            }
            tag::READ => {
                let (address, data) = self.memory(input)?;
                Kind::Read { address, data }
            }
            tag::FLUSH => {
                self.last.address = input.difference(self.last.address)?;
                Kind::Flush { kind: FlushKind::ALL[usize::from(own)], address: self.last.address }
            }
            tag::FENCE => Kind::Fence(FenceKind::ALL[usize::from(own)]),
            tag::START => Kind::Hypercall(Hypercall::Start),
            tag::SUCCESS => Kind::Hypercall(Hypercall::Success),
            tag::FAIL => Kind::Hypercall(Hypercall::Fail),
            tag::CHECKPOINT => Kind::Hypercall(Hypercall::Checkpoint(input.number()?)),
            tag::OTHER => {
                let action = input.text(TEXT_BYTES_MAX, "an action")?;
                Kind::Hypercall(Hypercall::Other { action, value: input.text(TEXT_BYTES_MAX, "a value")? })
            }
            _ => block(tag, is_first, input)?,
        })
    }

    fn memory<'a>(&mut self, input: &mut Input<'a>) -> Result<(u64, &'a [u8]), String> {
        let address = input.difference(self.last.address)?;
        let data = input.bytes(MEMORY_BYTES_MAX, "data")?;
        self.last.address = address.wrapping_add(data.len() as u64);
        Ok((address, data))
    }
}

fn block<'a>(tag: u8, is_first: bool, input: &mut Input<'a>) -> Result<Kind<'a>, String> {
    if !(tag::BLOCK_WRITE..=tag::BLOCK_COMPLETION).contains(&tag) {
        return Err(format!("an event of kind {tag}"));
    }
    let (device, command) = (input.small("a device")?, input.small("a command")?);
    let event = match tag {
        tag::BLOCK_WRITE => {
            let offset = input.number()?;
            BlockEvent::Write { offset, data: input.bytes(BLOCK_BYTES_MAX, "data")?, is_fua: is_first }
        }
        tag::BLOCK_ZEROES => {
            BlockEvent::WriteZeroes { offset: input.number()?, len_bytes: input.number()?, is_fua: is_first }
        }
        tag::BLOCK_DISCARD => BlockEvent::Discard { offset: input.number()?, len_bytes: input.number()? },
        tag::BLOCK_FLUSH => BlockEvent::Flush,
        _ => BlockEvent::Completion { is_ok: is_first },
    };
    Ok(Kind::Block { device, command, event })
}
