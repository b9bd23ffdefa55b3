//! The few functions of GLib that arrays of QEMU's interface need; QEMU itself is linked to it.

use std::ffi::c_void;

use qemu_plugin_sys::{GArray, GByteArray};

unsafe extern "C" {
    fn g_byte_array_new() -> *mut GByteArray;
    fn g_byte_array_set_size(array: *mut GByteArray, length: u32) -> *mut GByteArray;
    fn g_byte_array_free(array: *mut GByteArray, free_segment: i32) -> *mut u8;
    fn g_array_free(array: *mut GArray, free_segment: i32) -> *mut c_void;
}

/// Bytes that QEMU fills.
#[derive(Debug)]
pub(super) struct Bytes(*mut GByteArray);

impl Bytes {
    pub(super) fn new() -> Bytes {
        // SAFETY: no arguments; GLib aborts if there is no memory, so the pointer is valid.
        Bytes(unsafe { g_byte_array_new() })
    }

    /// For a call that fills it; valid as long as `self`.
    pub(super) fn as_ptr(&mut self) -> *mut GByteArray {
        // SAFETY: the array is alive; readers of registers append, so it begins empty.
        unsafe { g_byte_array_set_size(self.0, 0) }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: GLib keeps `len` bytes at `data`, and the array is not shared.
        unsafe {
            let array = &*self.0;
            if array.data.is_null() {
                return &[];
            }
            std::slice::from_raw_parts(array.data, array.len as usize)
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: made by `g_byte_array_new`, freed once.
        unsafe { g_byte_array_free(self.0, 1) };
    }
}

/// Frees an array whose elements are owned by QEMU.
///
/// # Safety
/// `array` comes from QEMU, which left it to the caller, and is not used any more.
pub(super) unsafe fn free_array(array: *mut GArray) {
    // SAFETY: by contract.
    unsafe { g_array_free(array, 1) };
}
