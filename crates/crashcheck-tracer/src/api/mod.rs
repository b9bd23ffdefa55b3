//! QEMU's plug-in interface, version 4: every call into QEMU is in here.
//!
//! Concurrency: callbacks run in the thread of the virtual CPU that they are about, several at a time. What
//! is read here (registers, memory, values) is that CPU's, so it may be asked for in its callbacks only.

#![allow(unsafe_code)]

mod counters;
mod glib;
mod registers;

use std::ffi::{CStr, c_uint, c_void};

use qemu_plugin_sys as sys;

pub(crate) use counters::{Counters, block_address};
use glib::Bytes;
pub(crate) use registers::{REGISTERS, Registers, read_register};

/// A store or load was executed: virtual CPU, which kind of access, address, and what was given at
/// registration.
pub(crate) type OnMemory = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// An instruction is about to be executed: virtual CPU, and what was given at registration.
pub(crate) type OnExecution = extern "C" fn(c_uint, *mut c_void);

/// Identity of this plug-in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plugin(pub(crate) sys::qemu_plugin_id_t);

/// Callbacks of a whole plug-in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hooks {
    pub(crate) on_cpu: extern "C" fn(sys::qemu_plugin_id_t, c_uint),
    pub(crate) on_block: extern "C" fn(sys::qemu_plugin_id_t, *mut sys::qemu_plugin_tb),
    pub(crate) on_exit: extern "C" fn(sys::qemu_plugin_id_t, *mut c_void),
}

/// A system call begins: number and eight arguments.
pub(crate) type OnSyscall =
    extern "C" fn(sys::qemu_plugin_id_t, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// It has ended: number and result.
pub(crate) type OnSyscallEnd = extern "C" fn(sys::qemu_plugin_id_t, c_uint, i64, i64);

impl Plugin {
    pub(crate) fn register(self, hooks: Hooks) {
        // SAFETY: the identity is that of this plug-in, which stays loaded as long as QEMU runs; so do
        // functions.
        unsafe {
            sys::qemu_plugin_register_vcpu_init_cb(self.0, Some(hooks.on_cpu));
            sys::qemu_plugin_register_vcpu_tb_trans_cb(self.0, Some(hooks.on_block));
            sys::qemu_plugin_register_atexit_cb(self.0, Some(hooks.on_exit), std::ptr::null_mut());
        }
    }

    pub(crate) fn register_syscalls(self, begin: OnSyscall, end: OnSyscallEnd) {
        // SAFETY: as above.
        unsafe {
            sys::qemu_plugin_register_vcpu_syscall_cb(self.0, Some(begin));
            sys::qemu_plugin_register_vcpu_syscall_ret_cb(self.0, Some(end));
        }
    }
}

/// Which accesses a callback is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Loads,
    Stores,
}

/// An instruction that is being translated.
#[derive(Debug)]
pub(crate) struct Insn(*mut sys::qemu_plugin_insn);

/// The instructions of a block, in the callback for its translation.
pub(crate) fn instructions(block: *mut sys::qemu_plugin_tb) -> impl Iterator<Item = Insn> {
    // SAFETY: QEMU hands the block to the callback, and it is valid there.
    let count = unsafe { sys::qemu_plugin_tb_n_insns(block) };
    // SAFETY: as above, and the index is below the count.
    (0..count).map(move |index| Insn(unsafe { sys::qemu_plugin_tb_get_insn(block, index) }))
}

impl Insn {
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: valid during the translation, and it is not kept longer.
        unsafe { sys::qemu_plugin_insn_vaddr(self.0) }
    }

    /// Its bytes, and how many there are.
    pub(crate) fn bytes(&self) -> ([u8; 16], usize) {
        let mut bytes = [0; 16];
        // SAFETY: as above; no more than 16 bytes are copied.
        let len = unsafe { sys::qemu_plugin_insn_data(self.0, bytes.as_mut_ptr().cast(), bytes.len()) };
        (bytes, len.min(bytes.len()))
    }

    /// `reads_registers`: the callback reads general registers. `data` is handed to it.
    pub(crate) fn on_memory(&self, callback: OnMemory, access: Access, reads_registers: bool, data: u64) {
        let rw = match access {
            Access::Loads => sys::qemu_plugin_mem_rw::QEMU_PLUGIN_MEM_R,
            Access::Stores => sys::qemu_plugin_mem_rw::QEMU_PLUGIN_MEM_W,
        };
        // SAFETY: as above; the pointer is only a number, and never followed.
        unsafe {
            sys::qemu_plugin_register_vcpu_mem_cb(
                self.0,
                Some(callback),
                flags(reads_registers),
                rw,
                std::ptr::without_provenance_mut(data as usize),
            );
        }
    }

    /// The callback may read registers.
    pub(crate) fn on_execution(&self, callback: OnExecution, data: u64) {
        // SAFETY: as above.
        unsafe {
            sys::qemu_plugin_register_vcpu_insn_exec_cb(
                self.0,
                Some(callback),
                flags(true),
                std::ptr::without_provenance_mut(data as usize),
            );
        }
    }
}

fn flags(reads_registers: bool) -> sys::qemu_plugin_cb_flags {
    match reads_registers {
        true => sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_R_REGS,
        false => sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS,
    }
}

/// Bytes of an access, in the order in which they lie in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value {
    bytes: [u8; 16],
    len: usize,
}

impl Value {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Number of bytes of an access.
pub(crate) fn access_bytes(info: u32) -> usize {
    // SAFETY: `info` is what a memory callback was given.
    1 << unsafe { sys::qemu_plugin_mem_size_shift(info) }.min(4)
}

/// What was loaded or stored, in the callback of the access.
pub(crate) fn access_value(info: u32) -> Value {
    // SAFETY: in the callback of the access, whose value QEMU keeps until the next one; all bit patterns are
    // integers.
    let (low, high) = unsafe {
        let value = sys::qemu_plugin_mem_get_value(info);
        match value.type_ {
            sys::qemu_plugin_mem_value_type::QEMU_PLUGIN_MEM_VALUE_U8 => (value.data.u8_.into(), 0),
            sys::qemu_plugin_mem_value_type::QEMU_PLUGIN_MEM_VALUE_U16 => (value.data.u16_.into(), 0),
            sys::qemu_plugin_mem_value_type::QEMU_PLUGIN_MEM_VALUE_U32 => (value.data.u32_.into(), 0),
            sys::qemu_plugin_mem_value_type::QEMU_PLUGIN_MEM_VALUE_U64 => (value.data.u64_, 0),
            sys::qemu_plugin_mem_value_type::QEMU_PLUGIN_MEM_VALUE_U128 => {
                (value.data.u128_.low, value.data.u128_.high)
            }
        }
    };
    let mut bytes = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
    let len = access_bytes(info);
    // `movbe`: QEMU has the value of the register.
    // SAFETY: `info` is what a memory callback was given.
    if unsafe { sys::qemu_plugin_mem_is_big_endian(info) } {
        bytes[..len].reverse();
    }
    Value { bytes, len }
}

/// What a guest's access was to, by physical address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Memory(u64),
    /// Registers of an NVMe controller.
    Nvme(u64),
    /// Another device, or nothing that QEMU knows any more.
    Other,
}

/// What an access was to, in its callback. In a guest only.
pub(crate) fn access_target(info: u32, address: u64) -> Target {
    // SAFETY: in the callback of the access; the handle is used before the next call; the name is a text that
    // stays.
    unsafe {
        let handle = sys::qemu_plugin_get_hwaddr(info, address);
        if handle.is_null() {
            return Target::Other;
        }
        let physical = sys::qemu_plugin_hwaddr_phys_addr(handle);
        if !sys::qemu_plugin_hwaddr_is_io(handle) {
            return Target::Memory(physical);
        }
        match CStr::from_ptr(sys::qemu_plugin_hwaddr_device_name(handle)) == c"nvme" {
            true => Target::Nvme(physical),
            false => Target::Other,
        }
    }
}

/// Fills the buffer from the memory of this CPU, as its page tables show it. `false`: not all of it can be
/// read.
pub(crate) fn read_memory(address: u64, buffer: &mut [u8]) -> bool {
    if buffer.is_empty() {
        return true;
    }
    let mut bytes = Bytes::new();
    // SAFETY: in a callback of a CPU; the array is alive, and QEMU makes it as long as it has to be.
    let is_read = unsafe { sys::qemu_plugin_read_memory_vaddr(address, bytes.as_ptr(), buffer.len()) };
    if !is_read || bytes.as_slice().len() != buffer.len() {
        return false;
    }
    buffer.copy_from_slice(bytes.as_slice());
    true
}
