//! What an image says of itself beside its blocks: its number, and notes of its users.
//!
//! A note is a key with a value among the image's metadata (`rbd image-meta list`). It goes with the image
//! when that is renamed, and with a copy of it.
#![allow(unsafe_code)] // Calls of a C library.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;

use crate::rbd::image::Image;

/// Longest value that is read, and longest number of an image, with the zero byte.
const TEXT_BYTES_MAX: usize = 256;

fn checked(result: c_int) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// What the library wrote, up to the zero byte.
fn text(bytes: &[u8]) -> io::Result<String> {
    let text = CStr::from_bytes_until_nul(bytes).ok().and_then(|text| text.to_str().ok());
    text.map(str::to_owned).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

impl Image {
    /// Which image of which cluster it is, whatever it is called: a text that no other image has.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn identity(&self) -> io::Result<String> {
        let mut id = [0_u8; TEXT_BYTES_MAX];
        // SAFETY: an open image, and a buffer of the length that is given; its last byte stays zero.
        let result = unsafe {
            (self.functions.rbd_get_id)(self.handle, id.as_mut_ptr().cast::<c_char>(), id.len() - 1)
        };
        checked(result)?;
        Ok(format!("{}/{}", self.pool.identity()?, text(&id)?))
    }

    /// The note of that key, if there is one.
    ///
    /// # Errors
    /// Those of the library; a longer value than any of ours is one.
    pub(crate) fn note(&self, key: &str) -> io::Result<Option<String>> {
        let key = c_string(key)?;
        let mut value = [0_u8; TEXT_BYTES_MAX];
        let mut len = value.len() - 1;
        // SAFETY: an open image, a string, and a buffer of the length that is given; its last byte stays
        // zero.
        let result = unsafe {
            (self.functions.rbd_metadata_get)(
                self.handle,
                key.as_ptr(),
                value.as_mut_ptr().cast::<c_char>(),
                &raw mut len,
            )
        };
        match checked(result) {
            Ok(()) => text(&value).map(Some),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets or removes a note. Durable on return.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn set_note(&self, key: &str, value: Option<&str>) -> io::Result<()> {
        let key = c_string(key)?;
        let Some(value) = value else {
            // SAFETY: an open image, and a string.
            return match checked(unsafe { (self.functions.rbd_metadata_remove)(self.handle, key.as_ptr()) }) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                removed => removed,
            };
        };
        let value = c_string(value)?;
        // SAFETY: an open image, and two strings.
        checked(unsafe { (self.functions.rbd_metadata_set)(self.handle, key.as_ptr(), value.as_ptr()) })
    }
}
