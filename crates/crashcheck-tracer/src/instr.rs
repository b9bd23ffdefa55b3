//! Decodes an instruction: what the tracer has to know of it.

use fastness_crashcheck_trace::{FenceKind, FlushKind, hypercall};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// Longest area of `xsave`; there is no more than that without AMX.
const XSAVE_BYTES_MAX: u16 = 4096;

/// What an instruction does beside loading and storing; QEMU has no callback for its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// Of the line of its operand.
    Flush(FlushKind),
    /// Of all lines.
    Wbinvd,
    /// `sfence`, `mfence`.
    Fence(FenceKind),
    /// A message, in `rdi` and `rsi`.
    Hypercall,
    /// `swapgs`: the kernel has been entered, or is about to return to a program.
    Border,
    /// It stores up to so many bytes, and QEMU does not say what: the x87 in its own formats, the state of
    /// the CPU.
    Untraceable(u16),
}

/// An instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded {
    /// Its stores go past the caches.
    pub(crate) is_non_temporal: bool,
    /// It has a LOCK prefix, or is `xchg` with memory.
    pub(crate) is_locked: bool,
    pub(crate) special: Option<Special>,
    pub(crate) instruction: Instruction,
}

/// Decodes an instruction of 64-bit code; invalid bytes do nothing.
///
/// `lfence` is nothing: it orders no stores. `movdir64b` is not emulated by QEMU, and so never here.
pub(crate) fn decode(bytes: &[u8], address: u64) -> Decoded {
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    let has_memory =
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let is_xchg = instruction.mnemonic() == Mnemonic::Xchg && has_memory;
    Decoded {
        is_non_temporal: is_non_temporal(instruction.mnemonic()),
        is_locked: instruction.has_lock_prefix() || is_xchg,
        special: special(bytes, &instruction),
        instruction,
    }
}

fn is_non_temporal(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Movnti
            | Movntq
            | Movntdq
            | Movntpd
            | Movntps
            | Movntsd
            | Movntss
            | Vmovntdq
            | Vmovntpd
            | Vmovntps
            | Maskmovq
            | Maskmovdqu
            | Vmaskmovdqu
    )
}

fn special(bytes: &[u8], instruction: &Instruction) -> Option<Special> {
    use Mnemonic::*;
    Some(match instruction.mnemonic() {
        Clwb => Special::Flush(FlushKind::Clwb),
        Clflushopt => Special::Flush(FlushKind::Clflushopt),
        Clflush => Special::Flush(FlushKind::Clflush),
        Wbinvd | Wbnoinvd => Special::Wbinvd,
        Sfence => Special::Fence(FenceKind::Sfence),
        Mfence => Special::Fence(FenceKind::Mfence),
        Swapgs => Special::Border,
        Nop if bytes == hypercall::INSTRUCTION => Special::Hypercall,
        Fstp if instruction.code() == Code::Fstp_m80fp => Special::Untraceable(10),
        Fbstp => Special::Untraceable(10),
        Fnstenv | Fstenv => Special::Untraceable(28),
        Fnsave | Fsave => Special::Untraceable(108),
        Fxsave | Fxsave64 => Special::Untraceable(512),
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Xsaves | Xsaves64 => {
            Special::Untraceable(XSAVE_BYTES_MAX)
        }
        _ => return None,
    })
}

/// Address of the only operand of a [`Special`]; none if a register of it cannot be read.
pub(crate) fn operand(
    instruction: &Instruction,
    mut read_register: impl FnMut(Register) -> Option<u64>,
) -> Option<u64> {
    instruction.virtual_address(0, 0, |register, _, _| read_register(register))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Decoded {
        decode(bytes, 0x1000)
    }

    #[test]
    fn what_each_instruction_is() {
        // movnti %rax,(%rdi); movntdq %xmm0,(%rdi); vmovntdq %ymm0,(%rdi); movntq %mm0,(%rdi); maskmovdqu
        // %xmm1,%xmm0
        for bytes in [
            &[0x48, 0x0f, 0xc3, 0x07][..],
            &[0x66, 0x0f, 0xe7, 0x07],
            &[0xc5, 0xfd, 0xe7, 0x07],
            &[0x0f, 0xe7, 0x07],
            &[0x66, 0x0f, 0xf7, 0xc1],
        ] {
            let decoded = of(bytes);
            assert!(decoded.is_non_temporal && !decoded.is_locked && decoded.special.is_none(), "{bytes:x?}");
        }
        // lock xadd %rax,(%rdi); xchg %rax,(%rdi); lock cmpxchg16b (%rdi)
        for bytes in
            [&[0xf0, 0x48, 0x0f, 0xc1, 0x07][..], &[0x48, 0x87, 0x07], &[0xf0, 0x48, 0x0f, 0xc7, 0x0f]]
        {
            assert!(of(bytes).is_locked && !of(bytes).is_non_temporal, "{bytes:x?}");
        }
        // xchg %rax,%rbx; mov %rax,(%rdi); cmpxchg %rax,(%rdi); movntdqa (%rdi),%xmm0; lfence; pause
        for bytes in [
            &[0x48, 0x87, 0xd8][..],
            &[0x48, 0x89, 0x07],
            &[0x48, 0x0f, 0xb1, 0x07],
            &[0x66, 0x0f, 0x38, 0x2a, 0x07],
            &[0x0f, 0xae, 0xe8],
            &[0xf3, 0x90],
        ] {
            let decoded = of(bytes);
            assert!(
                !decoded.is_locked && !decoded.is_non_temporal && decoded.special.is_none(),
                "{bytes:x?}"
            );
        }
        for (bytes, special) in [
            (&[0x66, 0x0f, 0xae, 0x37][..], Special::Flush(FlushKind::Clwb)),
            (&[0x66, 0x0f, 0xae, 0x3f], Special::Flush(FlushKind::Clflushopt)),
            (&[0x0f, 0xae, 0x3f], Special::Flush(FlushKind::Clflush)),
            (&[0x0f, 0x09], Special::Wbinvd),
            (&[0x0f, 0xae, 0xf8], Special::Fence(FenceKind::Sfence)),
            (&[0x0f, 0xae, 0xf0], Special::Fence(FenceKind::Mfence)),
            (&hypercall::INSTRUCTION, Special::Hypercall),
            (&[0x0f, 0x01, 0xf8], Special::Border),
            // xsave64 (%rdi); fxsave64 (%rdi); fstpt (%rdi); fnsave (%rdi)
            (&[0x48, 0x0f, 0xae, 0x27], Special::Untraceable(4096)),
            (&[0x48, 0x0f, 0xae, 0x07], Special::Untraceable(512)),
            (&[0xdb, 0x3f], Special::Untraceable(10)),
            (&[0xdd, 0x37], Special::Untraceable(108)),
        ] {
            assert_eq!(of(bytes).special, Some(special), "{bytes:x?}");
        }
        // fstpl (%rdi)
        assert_eq!(of(&[0xdd, 0x1f]).special, None);
        // What assemblers pad with: the same instruction with another displacement, and with another prefix.
        assert_eq!(of(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]).special, None);
        assert_eq!(of(&[0x66, 0x0f, 0x1f, 0x84, 0, 1, 0, 0x5c, 0x7a]).special, None);
    }

    #[test]
    fn addresses_of_operands() {
        let registers = |register: Register| {
            Some(match register {
                Register::DS | Register::SS => 0,
                Register::FS => 0x7000_0000_0000,
                Register::GS => 0x7100_0000_0000,
                Register::RAX | Register::EAX => 0x10_0000,
                Register::RSP => 0x20_0000,
                Register::R12 => 0x30_0000,
                Register::R13 => 0x40_0000,
                Register::RCX => 5,
                _ => return None,
            })
        };
        for (bytes, address) in [
            // clwb (%rax); 8(%rsp); -0x10(%r13); (%r12); 0x100(%rax,%rcx,8)
            (&[0x66, 0x0f, 0xae, 0x30][..], 0x10_0000),
            (&[0x66, 0x0f, 0xae, 0x74, 0x24, 0x08], 0x20_0008),
            (&[0x66, 0x41, 0x0f, 0xae, 0x75, 0xf0], 0x3f_fff0),
            (&[0x66, 0x41, 0x0f, 0xae, 0x34, 0x24], 0x30_0000),
            (&[0x66, 0x0f, 0xae, 0xb4, 0xc8, 0, 1, 0, 0], 0x10_0128),
            // clwb 0x100(%rip), which ends at 0x1008; %fs:0x10; %gs:(%rax); clflush 0x40; clwb (%eax)
            (&[0x66, 0x0f, 0xae, 0x35, 0, 1, 0, 0], 0x1108),
            (&[0x64, 0x66, 0x0f, 0xae, 0x34, 0x25, 0x10, 0, 0, 0], 0x7000_0000_0010),
            (&[0x65, 0x66, 0x0f, 0xae, 0x30], 0x7100_0010_0000),
            (&[0x0f, 0xae, 0x3c, 0x25, 0x40, 0, 0, 0], 0x40),
            (&[0x67, 0x66, 0x0f, 0xae, 0x30], 0x10_0000),
        ] {
            let decoded = of(bytes);
            assert_eq!(operand(&decoded.instruction, registers), Some(address), "{bytes:x?}");
        }
        // clwb (%rbx): a register that cannot be read.
        assert_eq!(operand(&of(&[0x66, 0x0f, 0xae, 0x33]).instruction, registers), None);
    }
}
