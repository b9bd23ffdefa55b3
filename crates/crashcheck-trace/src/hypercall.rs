//! How a program under a tracer that emulates its CPU speaks to it.
//!
//! A message is one instruction that does nothing, `nopl 0x7a5c0001(%rax,%rax,1)`, with the kind in `rdi` and
//! its value in `rsi`. It works in user mode and in the kernel, and outside of a tracer it still does
//! nothing.
//!
//! ```text
//! mov   $3, %edi                          kind: checkpoint
//! mov   $7, %esi                          its number
//! nopl  0x7a5c0001(%rax,%rax,1)           0f 1f 84 00 01 00 5c 7a
//! ```

/// The instruction, byte for byte; exactly these are a message. No assembler pads with this displacement.
pub const INSTRUCTION: [u8; 8] = [0x0f, 0x1f, 0x84, 0x00, 0x01, 0x00, 0x5c, 0x7a];

/// `rdi`: the test begins.
pub const START: u64 = 0;
/// `rdi`: it has ended well.
pub const SUCCESS: u64 = 1;
/// `rdi`: it has failed.
pub const FAIL: u64 = 2;
/// `rdi`: one operation has ended; `rsi` has its number.
pub const CHECKPOINT: u64 = 3;

/// `rdi`: a line, or several, of the program's log of operations; `rsi` has the address of the text, `rdx`
/// its length in bytes, at most [`TEXT_BYTES_MAX`](crate::TEXT_BYTES_MAX). Programs only, not guests.
pub const OPERATION: u64 = 4;
/// The action of the message that it becomes, [`Hypercall::Other`](crate::Hypercall::Other); its value is the
/// text. What a program writes into the file of its log becomes such messages, too, one for each write.
pub const OPERATION_ACTION: &str = "operation";

/// The action of a message that the tracer of a guest writes by itself, [`Hypercall::Other`]: the kernel
/// returns to a program, and has stored to PM, or flushed it, since it returned the last time.
///
/// [`Hypercall::Other`]: crate::Hypercall::Other
pub const RETURN: &str = "system-call-returns";

/// The message of these two registers; another kind is kept as `Other`, with the kind and the value as text.
pub fn of_registers(kind: u64, value: u64) -> Message {
    match kind {
        START => Message::Start,
        SUCCESS => Message::Success,
        FAIL => Message::Fail,
        CHECKPOINT => Message::Checkpoint(value),
        _ => Message::Other { action: kind.to_string(), value: value.to_string() },
    }
}

/// A message that owns its texts; [`Message::event`] is what goes into a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The test begins.
    Start,
    /// It has ended well.
    Success,
    /// It has failed.
    Fail,
    /// One operation has ended.
    Checkpoint(u64),
    /// A kind without a meaning.
    Other {
        /// The kind.
        action: String,
        /// The value.
        value: String,
    },
}

impl Message {
    /// As an event of a trace.
    pub fn event(&self) -> crate::Hypercall<'_> {
        match self {
            Message::Start => crate::Hypercall::Start,
            Message::Success => crate::Hypercall::Success,
            Message::Fail => crate::Hypercall::Fail,
            Message::Checkpoint(number) => crate::Hypercall::Checkpoint(*number),
            Message::Other { action, value } => crate::Hypercall::Other { action, value },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_become_messages() {
        assert_eq!(of_registers(CHECKPOINT, 7).event(), crate::Hypercall::Checkpoint(7));
        let other = of_registers(9, 1);
        assert_eq!(other.event(), crate::Hypercall::Other { action: "9", value: "1" });
    }
}
