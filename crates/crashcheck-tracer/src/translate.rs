//! At translation: which instructions get which callbacks.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{PoisonError, RwLock};

use iced_x86::Instruction;

use crate::api::{self, Access, OnExecution, OnMemory};
use crate::instr::{Special, decode};

/// Callbacks of a mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callbacks {
    pub(crate) on_store: OnMemory,
    /// Stores of LOCKed operations and of `xchg`.
    pub(crate) on_locked: OnMemory,
    pub(crate) on_load: Option<OnMemory>,
    pub(crate) on_special: OnExecution,
    /// Callbacks for memory read general registers.
    pub(crate) reads_registers: bool,
}

/// Where a store or load is in the program; travels as the number that QEMU hands to callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Address of the instruction.
    pub(crate) pc: u64,
    pub(crate) is_non_temporal: bool,
}

impl Place {
    /// Addresses are sign-extended from 57 bits at most: the highest bit says nothing.
    fn pack(self) -> u64 {
        self.pc << 1 | u64::from(self.is_non_temporal)
    }

    pub(crate) fn unpack(data: *mut c_void) -> Place {
        let data = data.addr() as u64;
        Place { pc: (data.cast_signed() >> 1).cast_unsigned(), is_non_temporal: data & 1 == 1 }
    }
}

/// A special instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) pc: u64,
    pub(crate) special: Special,
    pub(crate) instruction: Instruction,
}

/// Special instructions by number; each is kept once, however often it is translated.
#[derive(Debug, Default)]
struct Sites {
    sites: Vec<Site>,
    numbers: HashMap<(u64, [u8; 16]), usize>,
}

static SITES: RwLock<Option<Sites>> = RwLock::new(None);

/// The site of this number.
pub(crate) fn site(data: *mut c_void) -> Option<Site> {
    let sites = SITES.read().unwrap_or_else(PoisonError::into_inner);
    sites.as_ref()?.sites.get(data.addr()).copied()
}

fn number_of(site: Site, bytes: [u8; 16]) -> u64 {
    let mut sites = SITES.write().unwrap_or_else(PoisonError::into_inner);
    let Sites { sites, numbers } = sites.get_or_insert_default();
    let number = *numbers.entry((site.pc, bytes)).or_insert(sites.len());
    if number == sites.len() {
        sites.push(site);
    }
    number as u64
}

/// Registers callbacks for the instructions of a block that may matter.
pub(crate) fn translate(block: *mut qemu_plugin_sys::qemu_plugin_tb, callbacks: &Callbacks) {
    for insn in api::instructions(block) {
        let (bytes, len) = insn.bytes();
        let pc = insn.address();
        let decoded = decode(&bytes[..len], pc);
        if let Some(special) = decoded.special {
            let site = Site { pc, special, instruction: decoded.instruction };
            insn.on_execution(callbacks.on_special, number_of(site, bytes));
        }
        let place = Place { pc, is_non_temporal: decoded.is_non_temporal }.pack();
        let on_store = if decoded.is_locked { callbacks.on_locked } else { callbacks.on_store };
        insn.on_memory(on_store, Access::Stores, callbacks.reads_registers, place);
        if let Some(on_load) = callbacks.on_load {
            insn.on_memory(on_load, Access::Loads, callbacks.reads_registers, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_the_way_through_qemu() {
        for pc in [0, 0x7fff_ffff_f000, 0xffff_ffff_8100_0001, 0xff00_0000_0000_0000] {
            for is_non_temporal in [false, true] {
                let place = Place { pc, is_non_temporal };
                let data = std::ptr::without_provenance_mut(place.pack() as usize);
                assert_eq!(Place::unpack(data), place);
            }
        }
    }
}
