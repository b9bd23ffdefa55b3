//! Return addresses, by the chain of frame pointers.

use fastness_crashcheck_trace::STACK_MAX;
use iced_x86::Register;

use crate::api;

/// Longest frame that is believed.
const FRAME_BYTES_MAX: u64 = 1 << 20;

/// Return addresses, innermost first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stack {
    addresses: [u64; STACK_MAX],
    len: usize,
}

impl Default for Stack {
    fn default() -> Stack {
        Stack { addresses: [0; STACK_MAX], len: 0 }
    }
}

impl Stack {
    /// Appends the return address of the next frame, unless there are too many.
    pub(crate) fn push(&mut self, address: u64) -> bool {
        let has_room = self.len < STACK_MAX;
        if has_room {
            self.addresses[self.len] = address;
            self.len += 1;
        }
        has_room
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.addresses[..self.len]
    }

    /// That of this CPU. Code without frame pointers gives a short one, or none of it.
    pub(crate) fn of_cpu() -> Stack {
        Stack::walk(api::read_register(Register::RBP).unwrap_or(0), |address| {
            let mut bytes = [0; 16];
            api::read_memory(address, &mut bytes).then(|| {
                let number =
                    |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
                [number(0), number(8)]
            })
        })
    }

    /// Follows the chain while it looks like one: frames are aligned, readable, and each above the one
    /// before.
    fn walk(mut frame: u64, mut read: impl FnMut(u64) -> Option<[u64; 2]>) -> Stack {
        let mut stack = Stack::default();
        while frame != 0 && frame.is_multiple_of(8) {
            let Some([next, address]) = read(frame) else { break };
            if address == 0 || !stack.push(address) {
                break;
            }
            if next <= frame || next - frame > FRAME_BYTES_MAX {
                break;
            }
            frame = next;
        }
        stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_end_where_they_are_none() {
        let memory = |address| {
            [(0x100, [0x200, 1]), (0x200, [0x300, 2]), (0x300, [0x300, 3]), (0x400, [0x508, 0])]
                .into_iter()
                .find(|(at, _)| *at == address)
                .map(|(_, frame)| frame)
        };
        assert_eq!(Stack::walk(0x100, memory).as_slice(), [1, 2, 3]);
        assert_eq!(Stack::walk(0x400, memory).as_slice(), []);
        assert_eq!(Stack::walk(0x101, memory).as_slice(), []);
        assert_eq!(Stack::walk(0, memory).as_slice(), []);
        assert_eq!(Stack::walk(8, |at| Some([at + 16, 7])).as_slice(), [7; STACK_MAX]);
        assert_eq!(Stack::walk(8, |at| Some([at + (2 << 20), 7])).as_slice(), [7]);
    }
}
