//! `libpmemlog` of PMDK beside our log, loaded at run time if it is installed (Debian: `libpmemlog1`).

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libloading::Library;

use crate::error::{Context, Result, foreign};
use crate::measure::time_ns;

type Create = unsafe extern "C" fn(*const c_char, usize, libc::mode_t) -> *mut c_void;
type Append = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;
type Rewind = unsafe extern "C" fn(*mut c_void);
type Close = unsafe extern "C" fn(*mut c_void);

/// A log pool in tmpfs, treated as PM.
pub(crate) struct PmemLog {
    pool: *mut c_void,
    append: Append,
    rewind: Rewind,
    close: Close,
    path: PathBuf,
    /// Keeps the functions loaded.
    _library: Library,
}

#[allow(unsafe_code)] // A C library: every call below is as its manual page says.
impl PmemLog {
    pub(crate) fn create(bytes: usize) -> Result<Self> {
        // SAFETY: the variable is set before any other thread of the benchmark runs; the library reads it
        // when it is loaded, to take tmpfs for PM: user-space flushes instead of msync, as our side does.
        unsafe { std::env::set_var("PMEM_IS_PMEM_FORCE", "1") };
        // SAFETY: libpmemlog's constructors have no requirements.
        let library = unsafe { Library::new("libpmemlog.so.1") }
            .map_err(foreign)
            .context("libpmemlog is not installed (apt-get install libpmemlog-dev)")?;
        // SAFETY: the types are those of libpmemlog.h.
        let (create, append, rewind, close) = unsafe {
            (
                *library.get::<Create>(b"pmemlog_create\0").map_err(foreign)?,
                *library.get::<Append>(b"pmemlog_append\0").map_err(foreign)?,
                *library.get::<Rewind>(b"pmemlog_rewind\0").map_err(foreign)?,
                *library.get::<Close>(b"pmemlog_close\0").map_err(foreign)?,
            )
        };
        let path = PathBuf::from(format!("/dev/shm/fastness-bench-pmemlog-{}", std::process::id()));
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(foreign)?;
        let _ = std::fs::remove_file(&path);
        // SAFETY: a path that ends in NUL; the pool is checked below.
        let pool = unsafe { create(c_path.as_ptr(), bytes, 0o600) };
        if pool.is_null() {
            return Err(std::io::Error::last_os_error()).context("pmemlog_create");
        }
        let mut log = Self { pool, append, rewind, close, path, _library: library };
        log.touch(bytes)?;
        Ok(log)
    }

    /// Touches every page, as our regions' are.
    fn touch(&mut self, bytes: usize) -> Result<()> {
        let block = vec![0; 1 << 20];
        for _ in 0..(bytes >> 20) - 4 {
            self.append(&block)?;
        }
        // SAFETY: an open pool.
        unsafe { (self.rewind)(self.pool) };
        Ok(())
    }

    fn append(&mut self, body: &[u8]) -> Result<()> {
        // SAFETY: an open pool, a readable buffer of that length.
        match unsafe { (self.append)(self.pool, body.as_ptr().cast(), body.len()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).context("pmemlog_append"),
        }
    }

    /// Appends `count` records; the rewind after it is not in the figure; neither is our collection.
    pub(crate) fn turn(&mut self, body: &[u8], count: usize) -> Result<f64> {
        let ns = time_ns(|| (0..count).try_for_each(|_| self.append(body)))?;
        // SAFETY: an open pool.
        unsafe { (self.rewind)(self.pool) };
        Ok(ns)
    }
}

#[allow(unsafe_code)]
impl Drop for PmemLog {
    fn drop(&mut self) {
        // SAFETY: an open pool, used no more.
        unsafe { (self.close)(self.pool) };
        let _ = std::fs::remove_file(&self.path);
    }
}
