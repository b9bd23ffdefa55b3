//! Hypercalls: an instruction that does nothing, which the tracer finds when it translates it
//! ([`fastness_crashcheck_trace::hypercall`]).

use std::fmt;

use fastness_crashcheck_trace::hypercall::{CHECKPOINT, FAIL, START, SUCCESS};

/// A message to the tracer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hypercall {
    /// The test begins.
    Start,
    /// It has ended well.
    Success,
    /// It has failed.
    Fail,
    /// All operations before have returned.
    Checkpoint(u64),
}

impl Hypercall {
    /// The kind in `rdi` and the value in `rsi`.
    pub fn registers(self) -> (u64, u64) {
        match self {
            Hypercall::Start => (START, 0),
            Hypercall::Success => (SUCCESS, 0),
            Hypercall::Fail => (FAIL, 0),
            Hypercall::Checkpoint(number) => (CHECKPOINT, number),
        }
    }

    /// Reads `start`, `success`, `fail`, or `checkpoint` with a number.
    pub fn parse(words: &[&str]) -> Option<Self> {
        match words {
            ["start"] => Some(Hypercall::Start),
            ["success"] => Some(Hypercall::Success),
            ["fail"] => Some(Hypercall::Fail),
            ["checkpoint", number] => number.parse().ok().map(Hypercall::Checkpoint),
            _ => None,
        }
    }

    /// Tells the tracer, if there is one. Stores before it are before it for the compiler, too.
    pub fn issue(self) {
        let (kind, value) = self.registers();
        issue(kind, value);
    }
}

impl fmt::Display for Hypercall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hypercall::Start => f.write_str("start"),
            Hypercall::Success => f.write_str("success"),
            Hypercall::Fail => f.write_str("fail"),
            Hypercall::Checkpoint(number) => write!(f, "checkpoint {number}"),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the instruction")]
fn issue(kind: u64, value: u64) {
    use fastness_crashcheck_trace::hypercall::INSTRUCTION as CODE;
    // SAFETY: a `nop` with a memory operand that the CPU does not access; it changes no register, flag or
    // memory. Without `nomem` the compiler moves no store over it.
    unsafe {
        std::arch::asm!(
            ".byte {}, {}, {}, {}, {}, {}, {}, {}",
            const CODE[0], const CODE[1], const CODE[2], const CODE[3],
            const CODE[4], const CODE[5], const CODE[6], const CODE[7],
            in("rdi") kind,
            in("rsi") value,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn issue(_kind: u64, _value: u64) {}
