//! A connection to a cluster, and to one of its pools.
//!
//! What a cluster's administrator may have set otherwise is set here before connecting: no cache of librbd,
//! no persistent cache, and whoever breaks a lock puts its owner on the blocklist. Settings of a pool or an
//! image go before these; [`image`](super::image) reads back what holds.
#![allow(unsafe_code)] // Calls of a C library.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::ptr;

use crate::error::OpenError;
use crate::name::RbdName;
use crate::rbd::api::{Functions, RadosCluster, RadosPool};

/// Settings that a client must have.
pub(crate) const SETTINGS: [(&str, &str); 3] = [
    // A write that has completed is on the OSDs.
    ("rbd_cache", "false"),
    // Whoever had the lock before us cannot write any more.
    ("rbd_blocklist_on_break_lock", "true"),
    // A local cache would hold writes that another host must see.
    ("rbd_persistent_cache_mode", "disabled"),
];
/// Settings for a name with a timeout, in seconds.
const TIMEOUTS: [&str; 3] = ["client_mount_timeout", "rados_mon_op_timeout", "rados_osd_op_timeout"];
/// Longest number of a cluster; a UUID has 36 characters.
const FSID_BYTES_MAX: usize = 64;
/// Longest list of images that is accepted, with all names.
const LIST_BYTES_MAX: usize = 16 << 20;

/// A string for C. Names were checked for zero bytes.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).expect("a name without zero bytes")
}

/// The result of a call of the library.
pub(crate) fn checked(name: &RbdName, call: &'static str, result: c_int) -> Result<(), OpenError> {
    failed(name, call, "", result).map_or(Ok(()), Err)
}

/// The error of a call, with what it was about.
fn failed(name: &RbdName, call: &'static str, detail: &str, result: c_int) -> Option<OpenError> {
    let (name, detail) = (name.whole.clone(), detail.to_owned());
    (result < 0).then(|| OpenError::Call {
        name,
        call,
        detail,
        source: io::Error::from_raw_os_error(result.saturating_neg()),
    })
}

/// A connection.
#[derive(Debug)]
struct Cluster {
    functions: &'static Functions,
    handle: RadosCluster,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: `rados_create` made it, its pools are closed (a `Pool` owns its cluster), and this is the
        // end.
        unsafe { (self.functions.rados_shutdown)(self.handle) };
    }
}

impl Cluster {
    fn connect(functions: &'static Functions, name: &RbdName) -> Result<Cluster, OpenError> {
        let id = name.id.as_deref().map(c_string);
        let mut handle = ptr::null_mut();
        // SAFETY: a place for the handle, and a string or null.
        let result = unsafe { (functions.rados_create)(&raw mut handle, or_null(id.as_ref())) };
        checked(name, "rados_create", result)?;
        let cluster = Cluster { functions, handle };
        let conf = name.conf.as_deref().map(c_string);
        // SAFETY: a handle that is not connected, and a string or null.
        let result = unsafe { (functions.rados_conf_read_file)(handle, or_null(conf.as_ref())) };
        let detail = match &name.conf {
            Some(file) => format!(" for {file}"),
            None => {
                ", neither for the file in CEPH_CONF nor for /etc/ceph/ceph.conf: name one with @conf=FILE"
                    .to_owned()
            }
        };
        failed(name, "rados_conf_read_file", &detail, result).map_or(Ok(()), Err)?;
        for (option, value) in SETTINGS {
            cluster.set(name, option, value)?;
        }
        if let Some(seconds) = name.timeout_s {
            TIMEOUTS.iter().try_for_each(|option| cluster.set(name, option, &seconds.to_string()))?;
        }
        // SAFETY: a handle that is not connected.
        checked(name, "rados_connect", unsafe { (functions.rados_connect)(handle) })?;
        Ok(cluster)
    }

    fn set(&self, name: &RbdName, option: &str, value: &str) -> Result<(), OpenError> {
        let (c_option, c_value) = (c_string(option), c_string(value));
        // SAFETY: a handle, and two strings.
        let result =
            unsafe { (self.functions.rados_conf_set)(self.handle, c_option.as_ptr(), c_value.as_ptr()) };
        // A library that lacks a setting lacks what it is for; what matters is read back from the image.
        if result == -libc::ENOENT {
            return Ok(());
        }
        failed(name, "rados_conf_set", &format!(" for {option}"), result).map_or(Ok(()), Err)
    }
}

/// A pool of a connected cluster.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) functions: &'static Functions,
    pub(crate) handle: RadosPool,
    // Dropped after the pool's own end.
    cluster: Cluster,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: `rados_ioctx_create` made it, and its images are closed (an `Image` owns its pool).
        unsafe { (self.functions.rados_ioctx_destroy)(self.handle) };
    }
}

impl Pool {
    /// Connects. Waits without an end if no monitor answers, or for the name's timeout.
    ///
    /// # Errors
    /// [`OpenError::Call`].
    pub(crate) fn connect(functions: &'static Functions, name: &RbdName) -> Result<Pool, OpenError> {
        let cluster = Cluster::connect(functions, name)?;
        let (pool, mut handle) = (c_string(&name.pool), ptr::null_mut());
        // SAFETY: a connected handle, a string, a place for the pool's handle.
        let result =
            unsafe { (functions.rados_ioctx_create)(cluster.handle, pool.as_ptr(), &raw mut handle) };
        checked(name, "rados_ioctx_create", result)?;
        Ok(Pool { functions, handle, cluster })
    }

    /// Which pool of which cluster it is, whatever both are called.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn identity(&self) -> io::Result<String> {
        let mut fsid = [0_u8; FSID_BYTES_MAX];
        // SAFETY: a connected handle, and a buffer of the length that is given.
        let result = unsafe {
            (self.functions.rados_cluster_fsid)(self.cluster.handle, fsid.as_mut_ptr().cast(), fsid.len())
        };
        // SAFETY: an open pool.
        let id = unsafe { (self.functions.rados_ioctx_get_id)(self.handle) };
        match usize::try_from(result) {
            Ok(len) => Ok(format!("{}/{id}", String::from_utf8_lossy(&fsid[..len.min(fsid.len())]))),
            Err(_) => Err(io::Error::from_raw_os_error(result.saturating_neg())),
        }
    }

    /// The names of its images, as `rbd_list` writes them: each ends with a zero byte.
    fn list(&self, name: &RbdName) -> Result<Vec<u8>, OpenError> {
        let mut bytes: Vec<u8> = vec![0; 4096];
        loop {
            let mut len = bytes.len();
            // SAFETY: an open pool, and a buffer of the length that is given.
            let result = unsafe {
                (self.functions.rbd_list)(self.handle, bytes.as_mut_ptr().cast::<c_char>(), &raw mut len)
            };
            // The list may have become longer since its length was told.
            if result == -libc::ERANGE && len > bytes.len() && len <= LIST_BYTES_MAX {
                bytes.resize(len, 0);
                continue;
            }
            checked(name, "rbd_list", result)?;
            bytes.truncate(usize::try_from(result).unwrap_or(0).min(bytes.len()));
            return Ok(bytes);
        }
    }
}

fn or_null(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |text| text.as_ptr())
}

/// The images of a pool, as names of devices with the options of `name`.
///
/// # Errors
/// [`OpenError::Call`].
pub(crate) fn images(functions: &'static Functions, name: &RbdName) -> Result<Vec<String>, OpenError> {
    let list = Pool::connect(functions, name)?.list(name)?;
    let options = name.whole.split_once('@').map_or(String::new(), |(_, options)| format!("@{options}"));
    let names = list.split(|byte| *byte == 0).filter(|image| !image.is_empty());
    // A name that is no text, or has an @ in it, cannot be given on a command line either.
    let mut names: Vec<_> = names
        .filter_map(|image| std::str::from_utf8(image).ok())
        .filter(|image| !image.contains('@') && !image.contains('/'))
        .map(|image| format!("rbd:{}/{image}{options}", name.pool))
        .collect();
    names.sort();
    Ok(names)
}
