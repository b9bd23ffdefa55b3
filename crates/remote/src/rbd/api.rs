//! The functions of librados and librbd that are used here. Sources: `rados/librados.h`, `rbd/librbd.h`
//! (16.2).
#![allow(unsafe_code)] // Functions of a C library.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::error::OpenError;
use crate::load;

const LIBRARY: &str = "librbd.so.1";
const PACKAGE: &str = "librbd1";

pub(crate) type RadosCluster = *mut c_void;
pub(crate) type RadosPool = *mut c_void;
pub(crate) type RbdImage = *mut c_void;
pub(crate) type RbdCompletion = *mut c_void;

/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub(crate) const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_LOCK_MODE_EXCLUSIVE`: the lock is handed to nobody who asks.
pub(crate) const LOCK_MODE_EXCLUSIVE: c_int = 0;

/// `rbd_config_option_t`: a setting of an open image.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigOption {
    pub(crate) name: *mut c_char,
    pub(crate) value: *mut c_char,
    /// 0: of the client, 1: of the pool, 2: of the image.
    pub(crate) source: c_int,
}

load::functions! {
    /// The functions. All return 0 or a length, or a negative number of an error.
    Functions {
        rados_create(*mut RadosCluster, *const c_char) -> c_int;
        rados_conf_read_file(RadosCluster, *const c_char) -> c_int;
        rados_conf_set(RadosCluster, *const c_char, *const c_char) -> c_int;
        rados_connect(RadosCluster) -> c_int;
        rados_shutdown(RadosCluster);
        rados_ioctx_create(RadosCluster, *const c_char, *mut RadosPool) -> c_int;
        rados_ioctx_destroy(RadosPool);
        rados_ioctx_get_id(RadosPool) -> i64;
        rados_cluster_fsid(RadosCluster, *mut c_char, usize) -> c_int;
        rbd_list(RadosPool, *mut c_char, *mut usize) -> c_int;
        rbd_open(RadosPool, *const c_char, *mut RbdImage, *const c_char) -> c_int;
        rbd_open_read_only(RadosPool, *const c_char, *mut RbdImage, *const c_char) -> c_int;
        rbd_close(RbdImage) -> c_int;
        rbd_get_size(RbdImage, *mut u64) -> c_int;
        rbd_get_features(RbdImage, *mut u64) -> c_int;
        rbd_get_id(RbdImage, *mut c_char, usize) -> c_int;
        rbd_metadata_get(RbdImage, *const c_char, *mut c_char, *mut usize) -> c_int;
        rbd_metadata_set(RbdImage, *const c_char, *const c_char) -> c_int;
        rbd_metadata_remove(RbdImage, *const c_char) -> c_int;
        rbd_config_image_list(RbdImage, *mut ConfigOption, *mut c_int) -> c_int;
        rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
        rbd_lock_acquire(RbdImage, c_int) -> c_int;
        rbd_is_exclusive_lock_owner(RbdImage, *mut c_int) -> c_int;
        rbd_aio_create_completion(*mut c_void, *const c_void, *mut RbdCompletion) -> c_int;
        rbd_aio_wait_for_complete(RbdCompletion) -> c_int;
        rbd_aio_get_return_value(RbdCompletion) -> isize;
        rbd_aio_release(RbdCompletion);
        rbd_aio_read(RbdImage, u64, usize, *mut c_char, RbdCompletion) -> c_int;
        rbd_aio_write(RbdImage, u64, usize, *const c_char, RbdCompletion) -> c_int;
        rbd_aio_discard(RbdImage, u64, u64, RbdCompletion) -> c_int;
        rbd_aio_write_zeroes(RbdImage, u64, usize, RbdCompletion, c_int, c_int) -> c_int;
        rbd_aio_flush(RbdImage, RbdCompletion) -> c_int;
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
    // What librbd is linked with, librados, is found through it.
    let found = Functions::find(load::library(LIBRARY, PACKAGE)?).map_err(|source| OpenError::Library {
        library: LIBRARY,
        package: PACKAGE,
        source: Box::new(source),
    })?;
    Ok(FUNCTIONS.get_or_init(|| found))
}
