//! Return addresses in a kernel without frame pointers, by the tables that it has for that (ORC).
//!
//! Motivation: distributions build kernels without frame pointers. What stores to persistent memory there is
//! a copy loop, and the file system is some frames further out.
//!
//! A table is two arrays in the kernel's memory: where code begins, as signed 32-bit distances from the
//! element itself, ascending; and for each what has to be done to get from there to the caller, 6 bytes.
//! Where tables are, the file of `orc=` says: a line `new` or `old` for the format (from Linux 6.4 on, and
//! before), then a line for each table: the addresses of both arrays, in hex, and most elements. Registers
//! have got other numbers in between (seen: 6.12 and 7.2), which the tables tell: nearly all of a kernel's
//! stacks are found by `rsp`.
//!
//! Source: Linux, Documentation/arch/x86/orc-unwinder.rst; arch/x86/include/asm/orc_types.h.

use std::path::Path;
use std::sync::OnceLock;

use crate::stack::Stack;

/// Most elements of a table: a distribution's kernel has some 800,000.
const ELEMENTS_MAX: u64 = 8 << 20;
/// Most tables: one for each module.
const TABLES_MAX: usize = 1024;
/// Memory is there by pages.
const PAGE_BYTES: usize = 4096;

/// The numbers of what the stack of the caller is found by, and of where the caller's `rbp` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    previous_sp: u16,
    bp: u16,
    sp: u16,
    bp_indirect: u16,
    sp_indirect: u16,
}

const UNDEFINED: u16 = 0;
const NUMBERS: [Numbers; 2] = [
    Numbers { previous_sp: 1, bp: 4, sp: 5, bp_indirect: 8, sp_indirect: 9 },
    Numbers { previous_sp: 8, bp: 4, sp: 3, bp_indirect: 10, sp_indirect: 9 },
];

/// Where `rbp`, `rip` and `rsp` are in the registers that an interrupt saves (`struct pt_regs`).
const SAVED_BP: u64 = 32;
const SAVED_IP: u64 = 128;
const SAVED_SP: u64 = 152;

/// Why a file is none that says where tables are.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrcError {
    #[error("cannot read it: {0}")]
    File(#[from] std::io::Error),
    #[error("line {0}: `new` or `old` is expected first, then two addresses in hex and a number")]
    Line(usize),
}

/// The tables of a kernel and its modules.
#[derive(Debug)]
pub(crate) struct Orc {
    is_old: bool,
    places: Vec<(u64, u64, u64)>,
    /// Read when the first stack is wanted.
    tables: OnceLock<Tables>,
}

#[derive(Debug)]
struct Tables {
    numbers: Numbers,
    /// By their first address.
    tables: Vec<Table>,
}

#[derive(Debug)]
struct Table {
    begins: Vec<u64>,
    entries: Vec<Entry>,
}

/// What has to be done to get to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    sp_offset: i16,
    bp_offset: i16,
    sp_register: u16,
    bp_register: u16,
    frame: Frame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// The return address is below the caller's stack.
    Call,
    /// An interrupt has saved all registers.
    Registers,
    /// It ends here, or nothing is known.
    None,
}

impl Entry {
    fn of(bytes: [u8; 6], is_old: bool) -> Entry {
        let [sp_offset, bp_offset, flags] =
            [0, 2, 4].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let frame = match (is_old, flags >> 8 & if is_old { 3 } else { 7 }) {
            (true, 0) | (false, 2) => Frame::Call,
            (true, 1) | (false, 3) => Frame::Registers,
            _ => Frame::None,
        };
        let (sp_register, bp_register) = (flags & 15, flags >> 4 & 15);
        let [sp_offset, bp_offset] = [sp_offset, bp_offset].map(|offset| offset as i16);
        Entry { sp_offset, bp_offset, sp_register, bp_register, frame }
    }
}

impl Orc {
    /// Where the tables of a kernel are.
    ///
    /// # Errors
    /// [`OrcError`]
    pub(crate) fn read(path: &Path) -> Result<Orc, OrcError> {
        Orc::parse(&std::fs::read_to_string(path)?)
    }

    fn parse(text: &str) -> Result<Orc, OrcError> {
        let mut lines = text.lines().zip(1..);
        let is_old = match lines.next() {
            Some(("new", _)) => false,
            Some(("old", _)) => true,
            _ => return Err(OrcError::Line(1)),
        };
        let place = |(line, number): (&str, usize)| {
            let mut words = line.split(' ');
            let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
            let addresses = hex().zip(hex());
            let most = words.next().and_then(|most| most.parse().ok()).filter(|most| *most <= ELEMENTS_MAX);
            let place = addresses.zip(most).filter(|_| words.next().is_none() && number <= TABLES_MAX);
            place.map(|((begins, entries), most)| (begins, entries, most)).ok_or(OrcError::Line(number))
        };
        let places = lines.map(place).collect::<Result<_, _>>()?;
        Ok(Orc { is_old, places, tables: OnceLock::new() })
    }

    /// Return addresses, innermost first, of code at `pc` with this stack. `read` reads the kernel's memory.
    pub(crate) fn walk(
        &self,
        pc: u64,
        mut sp: u64,
        mut bp: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Stack {
        let Tables { numbers, tables } = self.tables.get_or_init(|| self.load(read));
        let mut word = |address: u64| {
            let mut bytes = [0; 8];
            read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
        };
        let mut stack = Stack::default();
        let mut at = pc;
        while let Some(Entry { sp_offset, bp_offset, sp_register, bp_register, frame }) = find(tables, at) {
            let [sp_offset, bp_offset] = [sp_offset, bp_offset].map(|offset| i64::from(offset) as u64);
            let caller_sp = match sp_register {
                by if by == numbers.sp => Some(sp.wrapping_add(sp_offset)),
                by if by == numbers.bp => Some(bp.wrapping_add(sp_offset)),
                by if by == numbers.bp_indirect => word(bp.wrapping_add(sp_offset)),
                by if by == numbers.sp_indirect => word(sp).map(|at| at.wrapping_add(sp_offset)),
                _ => None,
            };
            let Some(caller_sp) = caller_sp else { break };
            let caller_bp = match (frame, bp_register) {
                (Frame::Registers, UNDEFINED) => word(caller_sp.wrapping_add(SAVED_BP)),
                (_, by) if by == numbers.previous_sp => word(caller_sp.wrapping_add(bp_offset)),
                (_, by) if by == numbers.bp => word(bp.wrapping_add(bp_offset)),
                _ => Some(bp),
            };
            let (next, next_sp) = match frame {
                Frame::Call => (word(caller_sp.wrapping_sub(8)), Some(caller_sp)),
                Frame::Registers => {
                    (word(caller_sp.wrapping_add(SAVED_IP)), word(caller_sp.wrapping_add(SAVED_SP)))
                }
                Frame::None => break,
            };
            let (Some(next), Some(next_sp), Some(next_bp)) = (next, next_sp, caller_bp) else { break };
            // The kernel's stack ends here, or is none: it grows down.
            if next >> 63 == 0 || next_sp <= sp && frame == Frame::Call || !stack.push(next) {
                break;
            }
            (sp, bp) = (next_sp, next_bp);
            // A call may be the last instruction of its function.
            at = if frame == Frame::Call { next - 1 } else { next };
        }
        stack
    }

    /// Reads the tables, as far as they are there.
    fn load(&self, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Tables {
        let mut bytes = |start: u64, len: u64| {
            let mut bytes = vec![0; len as usize];
            let mut known = 0;
            while known < bytes.len() {
                let at = start.wrapping_add(known as u64);
                let end = bytes.len().min(known + PAGE_BYTES - at as usize % PAGE_BYTES);
                if !read(at, &mut bytes[known..end]) {
                    break;
                }
                known = end;
            }
            bytes.truncate(known);
            bytes
        };
        let mut tables: Vec<Table> = Vec::new();
        for (begins, entries, most) in &self.places {
            let distances = bytes(*begins, most * 4);
            let distances = distances.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
            let mut last = 0;
            let ascending = (*begins..).step_by(4).zip(distances).map_while(|(element, distance)| {
                let begin = element.wrapping_add(i64::from(distance) as u64);
                (begin >= std::mem::replace(&mut last, begin)).then_some(begin)
            });
            let mut begins: Vec<u64> = ascending.collect();
            let entries = bytes(*entries, begins.len() as u64 * 6);
            let entries = entries.as_chunks::<6>().0.iter().map(|bytes| Entry::of(*bytes, self.is_old));
            let entries: Vec<Entry> = entries.collect();
            begins.truncate(entries.len());
            tables.push(Table { begins, entries });
        }
        tables.retain(|table| !table.begins.is_empty());
        tables.sort_by_key(|table| table.begins[0]);
        let entries = || tables.iter().flat_map(|table| &table.entries);
        let by_sp = |numbers: &Numbers| entries().filter(|entry| entry.sp_register == numbers.sp).count();
        let numbers = NUMBERS.into_iter().max_by_key(by_sp).unwrap_or(NUMBERS[0]);
        Tables { numbers, tables }
    }
}

fn find(tables: &[Table], at: u64) -> Option<Entry> {
    let next = tables.partition_point(|table| table.begins[0] <= at);
    let table = &tables[next.checked_sub(1)?];
    let next = table.begins.partition_point(|begin| *begin <= at);
    table.entries.get(next.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests;
