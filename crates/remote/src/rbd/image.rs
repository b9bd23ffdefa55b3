//! An open image: its settings, its lock, its requests.
#![allow(unsafe_code)] // Calls of a C library.

use std::ffi::{CStr, c_int};
use std::io;
use std::ptr;

use crate::access::Access;
use crate::error::OpenError;
use crate::name::RbdName;
use crate::rbd::api::{
    ConfigOption, FEATURE_EXCLUSIVE_LOCK, Functions, LOCK_MODE_EXCLUSIVE, RbdCompletion, RbdImage,
};
use crate::rbd::cluster::{Pool, SETTINGS, c_string, checked};

/// Most settings that an image is believed to have; librbd 16 has some 70.
const SETTINGS_MAX: c_int = 10_000;

/// One request to an image.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Read { offset: u64, buf: &'a mut [u8] },
    Write { offset: u64, data: &'a [u8] },
    Discard { offset: u64, len_bytes: u64 },
    Zero { offset: u64, len_bytes: u64 },
    Flush,
}

/// An open image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(super) functions: &'static Functions,
    pub(super) handle: RbdImage,
    // Dropped after the image's own end.
    pub(super) pool: Pool,
}

// SAFETY: librbd's images may be used by any thread, and by several at once ("librbd is thread-safe"); the
// other fields are only dropped.
unsafe impl Send for Image {}
// SAFETY: as above; no method takes anything of the image's but its handle.
unsafe impl Sync for Image {}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: `rbd_open` made it, no request is in flight (`run` waits for its own, and borrows the
        // image), and this is the end. It also gives up the lock. An error leaves nothing to be done: all
        // that was acknowledged has completed.
        unsafe { (self.functions.rbd_close)(self.handle) };
    }
}

impl Image {
    /// Opens an image.
    ///
    /// # Errors
    /// [`OpenError::Call`].
    pub(crate) fn open(pool: Pool, name: &RbdName, access: Access) -> Result<Image, OpenError> {
        let functions = pool.functions;
        let (open, call) = match access {
            Access::Write => (functions.rbd_open, "rbd_open"),
            Access::Look => (functions.rbd_open_read_only, "rbd_open_read_only"),
        };
        let image = c_string(name.image.as_deref().unwrap_or_default());
        let mut handle = ptr::null_mut();
        // SAFETY: an open pool, a string, a place for the handle, no snapshot.
        let result = unsafe { open(pool.handle, image.as_ptr(), &raw mut handle, ptr::null()) };
        checked(name, call, result)?;
        Ok(Image { functions, handle, pool })
    }

    /// Length in bytes at this moment.
    pub(crate) fn len_bytes(&self) -> io::Result<u64> {
        let mut len_bytes = 0;
        // SAFETY: an open image, and a place for its length.
        match unsafe { (self.functions.rbd_get_size)(self.handle, &raw mut len_bytes) } {
            0.. => Ok(len_bytes),
            error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        }
    }

    /// Takes the lock, to keep it. Waits for an owner that does not answer until the cluster takes it for
    /// dead.
    ///
    /// # Errors
    /// [`OpenError::Unfit`]: the image has no lock. [`OpenError::InUse`]: its owner answers.
    pub(crate) fn lock(&self, name: &RbdName) -> Result<(), OpenError> {
        let mut features = 0;
        // SAFETY: an open image, and a place for its features.
        let result = unsafe { (self.functions.rbd_get_features)(self.handle, &raw mut features) };
        checked(name, "rbd_get_features", result)?;
        if features & FEATURE_EXCLUSIVE_LOCK == 0 {
            let image = format!("{}/{}", name.pool, name.image.as_deref().unwrap_or_default());
            let why = format!(
                "the image has no exclusive lock, so that nothing keeps two hosts from writing to it; `rbd feature \
                 enable {image} exclusive-lock` gives it one"
            );
            return Err(OpenError::Unfit { name: name.whole.clone(), why });
        }
        // SAFETY: an open image.
        let result = unsafe { (self.functions.rbd_lock_acquire)(self.handle, LOCK_MODE_EXCLUSIVE) };
        if matches!(result.saturating_neg(), libc::EROFS | libc::EBUSY) {
            return Err(OpenError::InUse { name: name.whole.clone() });
        }
        checked(name, "rbd_lock_acquire", result)?;
        let mut is_owner = 0;
        // SAFETY: an open image, and a place for the answer.
        let result = unsafe { (self.functions.rbd_is_exclusive_lock_owner)(self.handle, &raw mut is_owner) };
        checked(name, "rbd_is_exclusive_lock_owner", result)?;
        if is_owner == 0 { Err(OpenError::InUse { name: name.whole.clone() }) } else { Ok(()) }
    }

    /// Checks that what a write relies on holds for this image, whatever its pool and itself say.
    ///
    /// # Errors
    /// [`OpenError::Unfit`], with the setting.
    pub(crate) fn check_settings(&self, name: &RbdName) -> Result<(), OpenError> {
        let found = self.settings(name)?;
        for (option, wanted) in SETTINGS {
            let why = match found.iter().find(|(name, ..)| name == option) {
                Some((_, value, _)) if value == wanted => continue,
                Some((_, value, source)) => format!(
                    "{option} is {value}, set for the {}, and must be {wanted}: what is written would not be \
                     where it is said to be (`rbd config {} remove`)",
                    if *source == 1 { "pool" } else { "image" },
                    if *source == 1 { "pool" } else { "image" },
                ),
                // Older than the persistent cache.
                None if option == "rbd_persistent_cache_mode" => continue,
                None => format!("librbd does not say what {option} is"),
            };
            return Err(OpenError::Unfit { name: name.whole.clone(), why });
        }
        Ok(())
    }

    /// The settings that hold for the image: name, value, and where it is from.
    fn settings(&self, name: &RbdName) -> Result<Vec<(String, String, c_int)>, OpenError> {
        let mut count = 0;
        // SAFETY: an open image; with no room, only the number is told.
        let result =
            unsafe { (self.functions.rbd_config_image_list)(self.handle, ptr::null_mut(), &raw mut count) };
        if result != -libc::ERANGE {
            checked(name, "rbd_config_image_list", result)?;
        }
        count = count.clamp(0, SETTINGS_MAX);
        let empty = ConfigOption { name: ptr::null_mut(), value: ptr::null_mut(), source: 0 };
        let mut options = vec![empty; usize::try_from(count).unwrap_or(0)];
        // SAFETY: an open image, and room for as many as is said.
        let result = unsafe {
            (self.functions.rbd_config_image_list)(self.handle, options.as_mut_ptr(), &raw mut count)
        };
        checked(name, "rbd_config_image_list", result)?;
        options.truncate(usize::try_from(count).unwrap_or(0));
        let text = |of: *mut std::ffi::c_char| {
            if of.is_null() {
                return String::new();
            }
            // SAFETY: the library has filled these with strings, which live until they are cleaned up.
            unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned()
        };
        let found =
            options.iter().map(|option| (text(option.name), text(option.value), option.source)).collect();
        // SAFETY: what the library has filled, once.
        unsafe { (self.functions.rbd_config_image_list_cleanup)(options.as_mut_ptr(), count) };
        Ok(found)
    }

    /// Runs all requests at once, and waits until all have completed: the bytes that each transferred (0 for
    /// what is no read), or its error. Waits without an end for a cluster that does not answer, unless the
    /// image was opened with a timeout.
    pub(crate) fn run(&self, steps: &mut [Step<'_>]) -> Vec<io::Result<usize>> {
        // All of them are started before the first is waited for. An early end of this function, by a panic,
        // waits too: see `InFlight`.
        let mut started = Vec::with_capacity(steps.len());
        for step in steps {
            started.push(self.start(step));
        }
        started.into_iter().map(|started| started?.wait()).collect()
    }

    fn start(&self, step: &mut Step<'_>) -> io::Result<InFlight<'_>> {
        let mut completion = ptr::null_mut();
        // SAFETY: no callback, and a place for the completion.
        let result = unsafe {
            (self.functions.rbd_aio_create_completion)(ptr::null_mut(), ptr::null(), &raw mut completion)
        };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(result.saturating_neg()));
        }
        let mut request = InFlight { functions: self.functions, completion, is_started: false };
        let length = |len_bytes: u64| usize::try_from(len_bytes).expect("64-bit Linux");
        // SAFETY: an open image and a fresh completion. The buffers outlive the request: they are borrowed
        // by the caller of `run`, which does not return, not even by a panic, before the completion was
        // waited for.
        let result = unsafe {
            match step {
                Step::Read { offset, buf } => (self.functions.rbd_aio_read)(
                    self.handle,
                    *offset,
                    buf.len(),
                    buf.as_mut_ptr().cast(),
                    completion,
                ),
                Step::Write { offset, data } => (self.functions.rbd_aio_write)(
                    self.handle,
                    *offset,
                    data.len(),
                    data.as_ptr().cast(),
                    completion,
                ),
                Step::Discard { offset, len_bytes } => {
                    (self.functions.rbd_aio_discard)(self.handle, *offset, *len_bytes, completion)
                }
                Step::Zero { offset, len_bytes } => (self.functions.rbd_aio_write_zeroes)(
                    self.handle,
                    *offset,
                    length(*len_bytes),
                    completion,
                    0,
                    0,
                ),
                Step::Flush => (self.functions.rbd_aio_flush)(self.handle, completion),
            }
        };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(result.saturating_neg()));
        }
        request.is_started = true;
        Ok(request)
    }
}

/// A request that may be in flight: dropping it waits for it.
struct InFlight<'a> {
    functions: &'a Functions,
    completion: RbdCompletion,
    is_started: bool,
}

impl InFlight<'_> {
    fn complete(&mut self) {
        if std::mem::take(&mut self.is_started) {
            // SAFETY: a completion of a request that was started, waited for once.
            unsafe { (self.functions.rbd_aio_wait_for_complete)(self.completion) };
        }
    }

    fn wait(mut self) -> io::Result<usize> {
        self.complete();
        // SAFETY: a completion that has completed.
        let result = unsafe { (self.functions.rbd_aio_get_return_value)(self.completion) };
        usize::try_from(result).map_err(|_| {
            io::Error::from_raw_os_error(i32::try_from(result.saturating_neg()).unwrap_or(libc::EIO))
        })
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.complete();
        // SAFETY: a completion that is not in flight, released once.
        unsafe { (self.functions.rbd_aio_release)(self.completion) };
    }
}
