//! The functions of libnbd that are used here. Source: `libnbd.h` (1.14).
#![allow(unsafe_code)] // Functions of a C library.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::error::OpenError;
use crate::load;

const LIBRARY: &str = "libnbd.so.0";
const PACKAGE: &str = "libnbd0";

pub(crate) type Handle = *mut c_void;

/// `LIBNBD_CMD_FLAG_FUA`.
pub(crate) const FUA: u32 = 1;
/// `LIBNBD_SIZE_MINIMUM`, `_PREFERRED`, `_MAXIMUM`.
pub(crate) const SIZES: [c_int; 3] = [0, 1, 2];

/// `nbd_completion_callback`; without functions, the caller asks.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    callback: *const c_void,
    user_data: *mut c_void,
    free: *const c_void,
}

impl Completion {
    pub(crate) const NONE: Completion =
        Completion { callback: std::ptr::null(), user_data: std::ptr::null_mut(), free: std::ptr::null() };
}

load::functions! {
    /// The functions. Those that return a number return -1 for an error, which `nbd_get_errno` then tells,
    /// to the same thread.
    Functions {
        nbd_create() -> Handle;
        nbd_close(Handle);
        nbd_get_error() -> *const c_char;
        nbd_get_errno() -> c_int;
        nbd_connect_uri(Handle, *const c_char) -> c_int;
        nbd_shutdown(Handle, u32) -> c_int;
        nbd_get_size(Handle) -> i64;
        nbd_get_block_size(Handle, c_int) -> i64;
        nbd_is_read_only(Handle) -> c_int;
        nbd_can_flush(Handle) -> c_int;
        nbd_can_fua(Handle) -> c_int;
        nbd_can_trim(Handle) -> c_int;
        nbd_can_zero(Handle) -> c_int;
        nbd_can_multi_conn(Handle) -> c_int;
        nbd_aio_pread(Handle, *mut c_void, usize, u64, Completion, u32) -> i64;
        nbd_aio_pwrite(Handle, *const c_void, usize, u64, Completion, u32) -> i64;
        nbd_aio_flush(Handle, Completion, u32) -> i64;
        nbd_aio_trim(Handle, u64, u64, Completion, u32) -> i64;
        nbd_aio_zero(Handle, u64, u64, Completion, u32) -> i64;
        nbd_aio_command_completed(Handle, u64) -> c_int;
        nbd_aio_is_dead(Handle) -> c_int;
        nbd_aio_is_closed(Handle) -> c_int;
        nbd_poll(Handle, c_int) -> c_int;
    }
}

/// The functions of the installed library, which is loaded once.
///
/// # Errors
/// [`OpenError::Library`].
pub(crate) fn functions() -> Result<&'static Functions, OpenError> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let found = Functions::find(load::library(LIBRARY, PACKAGE)?).map_err(|source| OpenError::Library {
        library: LIBRARY,
        package: PACKAGE,
        source: Box::new(source),
    })?;
    Ok(FUNCTIONS.get_or_init(|| found))
}
