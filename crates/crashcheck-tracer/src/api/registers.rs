//! Registers of the guest, by the names that GDB has for them.

use std::ffi::CStr;
use std::sync::OnceLock;

use iced_x86::Register;
use qemu_plugin_sys as sys;

use super::glib::{Bytes, free_array};

const NAMES: [(&str, Register); 22] = [
    ("rax", Register::RAX),
    ("rbx", Register::RBX),
    ("rcx", Register::RCX),
    ("rdx", Register::RDX),
    ("rsi", Register::RSI),
    ("rdi", Register::RDI),
    ("rbp", Register::RBP),
    ("rsp", Register::RSP),
    ("r8", Register::R8),
    ("r9", Register::R9),
    ("r10", Register::R10),
    ("r11", Register::R11),
    ("r12", Register::R12),
    ("r13", Register::R13),
    ("r14", Register::R14),
    ("r15", Register::R15),
    ("rip", Register::RIP),
    // The bases of these segments.
    ("fs_base", Register::FS),
    ("gs_base", Register::GS),
    ("cr0", Register::CR0),
    ("cr3", Register::CR3),
    ("cr4", Register::CR4),
];

/// What QEMU calls the registers; the same for all CPUs.
#[derive(Debug)]
pub(crate) struct Registers {
    /// In the order of `NAMES`; handles of QEMU are numbers that it made pointers.
    handles: [usize; NAMES.len()],
}

/// Set when the first CPU begins.
pub(crate) static REGISTERS: OnceLock<Registers> = OnceLock::new();

impl Registers {
    /// Asks QEMU, in the callback for a new CPU. Control registers may be missing in user mode.
    ///
    /// # Errors
    /// The name of a register that QEMU does not have.
    pub(crate) fn find() -> Result<Registers, &'static str> {
        let mut handles = [0; NAMES.len()];
        // SAFETY: in a callback of a CPU; QEMU leaves the array to us, its descriptors have texts that stay.
        unsafe {
            let array = sys::qemu_plugin_get_registers();
            let descriptors: &[sys::qemu_plugin_reg_descriptor] = match (*array).data.is_null() {
                true => &[],
                false => std::slice::from_raw_parts((*array).data.cast(), (*array).len as usize),
            };
            for descriptor in descriptors {
                let name = CStr::from_ptr(descriptor.name).to_bytes();
                if let Some(index) = NAMES.iter().position(|(wanted, _)| wanted.as_bytes() == name) {
                    handles[index] = descriptor.handle.addr();
                }
            }
            free_array(array);
        }
        match handles.iter().position(|handle| *handle == 0) {
            Some(missing) if !NAMES[missing].0.starts_with("cr") => Err(NAMES[missing].0),
            _ => Ok(Registers { handles }),
        }
    }
}

/// Value of a 64-bit register of this CPU, or the base of `fs` or `gs`; that of other segments is 0, as in
/// 64-bit mode. Parts of registers, vectors and the like are none.
pub(crate) fn read_register(register: Register) -> Option<u64> {
    if matches!(register, Register::CS | Register::DS | Register::ES | Register::SS) {
        return Some(0);
    }
    if (Register::EAX..=Register::R15D).contains(&register) {
        let full = Register::RAX + (register as u32 - Register::EAX as u32);
        return read_register(full).map(|value| value & 0xffff_ffff);
    }
    let index = NAMES.iter().position(|(_, known)| *known == register)?;
    let handle = REGISTERS.get()?.handles[index];
    if handle == 0 {
        return None;
    }
    let mut bytes = Bytes::new();
    // SAFETY: in a callback of a CPU; QEMU has given us the handle, and appends to the array.
    let len =
        unsafe { sys::qemu_plugin_read_register(std::ptr::without_provenance_mut(handle), bytes.as_ptr()) };
    let value = bytes.as_slice();
    (len == 8 && value.len() == 8).then(|| u64::from_le_bytes(value.try_into().expect("eight bytes")))
}
