//! What an instruction stores.

use iced_x86::{
    Code, Decoder as X86, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpAccess,
};

/// The longest instruction. Source: Intel SDM volume 2A, 2.3.11.
pub(super) const INSTRUCTION_BYTES_MAX: usize = 15;
/// How far back decoding begins to find the instruction before an address.
pub(super) const BEFORE_BYTES: usize = 64;

/// What an instruction stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// So many bytes. Of stores under a mask or a condition, all that it can be.
    Store {
        /// Bytes.
        bytes: u32,
        /// Past the CPU caches.
        is_non_temporal: bool,
    },
    /// A number of bytes that the instruction does not say: strings with a prefix, scatters, saved states.
    Unsized,
    /// Nothing: it writes a line back (`clwb`, `clflushopt`, `clflush`, `cldemote`).
    Flush,
    /// Nothing, or it is no instruction.
    NoStore,
}

/// A decoder of x86-64 instructions.
#[derive(Debug)]
pub struct Decoder(InstructionInfoFactory);

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder(InstructionInfoFactory::new())
    }
}

impl Decoder {
    /// The instruction at the start of `code`, which lies at the address `ip`.
    pub fn at(&mut self, code: &[u8], ip: u64) -> Decoded {
        let instruction = X86::with_ip(64, code, ip, DecoderOptions::NONE).decode();
        self.of(&instruction)
    }

    /// The instruction that ends where `code` ends, which is the address `ip`.
    ///
    /// x86 code cannot be read backwards, but reading it from any place falls into step after a few
    /// instructions: of the instructions that end there, the one that most starts lead to.
    pub fn before(&mut self, code: &[u8], ip: u64) -> Decoded {
        let code = &code[code.len().saturating_sub(BEFORE_BYTES)..];
        let mut found: Vec<(usize, u32, Instruction)> = Vec::new();
        for start in 0..code.len() {
            let from = ip.wrapping_sub((code.len() - start) as u64);
            let mut decoder = X86::with_ip(64, &code[start..], from, DecoderOptions::NONE);
            let mut last = None;
            while decoder.can_decode() {
                let at = start + decoder.position();
                let instruction = decoder.decode();
                last = (instruction.code() != Code::INVALID).then_some((at, instruction));
                if last.is_none() {
                    break;
                }
            }
            let Some((at, instruction)) = last else { continue };
            match found.iter_mut().find(|(of, ..)| *of == at) {
                Some((_, votes, _)) => *votes += 1,
                None => found.push((at, 1, instruction)),
            }
        }
        // Of as many votes, the longer one.
        let best = found.into_iter().max_by_key(|(at, votes, _)| (*votes, usize::MAX - at));
        best.map_or(Decoded::NoStore, |(.., instruction)| self.of(&instruction))
    }

    fn of(&mut self, instruction: &Instruction) -> Decoded {
        match instruction.mnemonic() {
            Mnemonic::Clwb | Mnemonic::Clflushopt | Mnemonic::Clflush | Mnemonic::Cldemote => {
                return Decoded::Flush;
            }
            // It stores a line that has no operand.
            Mnemonic::Clzero => return Decoded::Store { bytes: 64, is_non_temporal: true },
            _ => {}
        }
        let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let is_scatter = instruction.is_vsib();
        let is_non_temporal = is_non_temporal(instruction.mnemonic());
        let info = self.0.info_options(instruction, InstructionInfoOptions::NO_REGISTER_USAGE);
        let mut most: Option<usize> = None;
        for memory in info.used_memory().iter().filter(|memory| is_written(memory.access())) {
            most = most.max(Some(memory.memory_size().size()));
        }
        match most {
            None => Decoded::NoStore,
            Some(0) => Decoded::Unsized,
            Some(_) if is_scatter || (is_repeated && instruction.is_string_instruction()) => Decoded::Unsized,
            Some(bytes) => Decoded::Store { bytes: bytes as u32, is_non_temporal },
        }
    }
}

fn is_written(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn is_non_temporal(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Movnti
            | Mnemonic::Movntq
            | Mnemonic::Movntdq
            | Mnemonic::Movntps
            | Mnemonic::Movntpd
            | Mnemonic::Movntss
            | Mnemonic::Movntsd
            | Mnemonic::Vmovntdq
            | Mnemonic::Vmovntps
            | Mnemonic::Vmovntpd
            | Mnemonic::Maskmovq
            | Mnemonic::Maskmovdqu
            | Mnemonic::Vmaskmovdqu
            | Mnemonic::Movdiri
            | Mnemonic::Movdir64b
    )
}

#[cfg(test)]
mod tests;
