//! One connection to an NBD server.
#![allow(unsafe_code)] // Calls of a C library.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::time::{Duration, Instant};

use crate::error::OpenError;
use crate::name::NbdName;
use crate::nbd::api::{Completion, FUA, Functions, Handle, SIZES};

/// One request.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Read { offset: u64, buf: &'a mut [u8] },
    Write { offset: u64, data: &'a [u8], fua: bool },
    Trim { offset: u64, len_bytes: u64 },
    Zero { offset: u64, len_bytes: u64 },
    Flush,
}

/// What a server says of its export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) len_bytes: u64,
    /// 0 each if the server does not say.
    pub(crate) block_bytes_min: u64,
    pub(crate) block_bytes_preferred: u64,
    pub(crate) block_bytes_max: u64,
    pub(crate) is_read_only: bool,
    pub(crate) can_flush: bool,
    pub(crate) can_fua: bool,
    pub(crate) can_trim: bool,
    pub(crate) can_zero: bool,
    /// Several connections see the same, and a flush of one covers all.
    pub(crate) can_multi_conn: bool,
}

/// A connection; lost for good after any failure of the transport.
#[derive(Debug)]
pub(crate) struct Connection {
    functions: &'static Functions,
    /// `None`: lost.
    handle: Option<OpenHandle>,
    timeout: Option<Duration>,
}

#[derive(Debug)]
struct OpenHandle {
    functions: &'static Functions,
    handle: Handle,
}

// SAFETY: a handle of libnbd has no tie to a thread; only its errors have, and they are asked for at once.
unsafe impl Send for OpenHandle {}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        // SAFETY: `nbd_create` made it, and this is the end: it ends the connection and drops requests in
        // flight, whose buffers nothing uses from then on.
        unsafe { (self.functions.nbd_close)(self.handle) };
    }
}

/// The outcome of a request of a lost connection.
fn lost() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOTCONN)
}

impl Connection {
    /// Connects. A server that accepts and says nothing is waited for.
    ///
    /// # Errors
    /// [`OpenError::Call`].
    pub(crate) fn open(functions: &'static Functions, name: &NbdName) -> Result<Connection, OpenError> {
        // SAFETY: no argument.
        let handle = unsafe { (functions.nbd_create)() };
        if handle.is_null() {
            return Err(call(functions, name, "nbd_create"));
        }
        let handle = OpenHandle { functions, handle };
        let uri = CString::new(name.uri.as_str()).expect("a name without zero bytes");
        // SAFETY: an open handle and a string.
        if unsafe { (functions.nbd_connect_uri)(handle.handle, uri.as_ptr()) } != 0 {
            return Err(call(functions, name, "nbd_connect_uri"));
        }
        let timeout = name.timeout_s.map(|seconds| Duration::from_secs(u64::from(seconds)));
        Ok(Connection { functions, handle: Some(handle), timeout })
    }

    /// What the server says of the export.
    ///
    /// # Errors
    /// [`OpenError::Call`]; the connection is lost.
    pub(crate) fn offer(&self, name: &NbdName) -> Result<Offer, OpenError> {
        let functions = self.functions;
        let handle = self.handle.as_ref().map(|open| open.handle);
        let handle = handle.ok_or_else(|| call(functions, name, "nbd_get_size"))?;
        // SAFETY: a connected handle, for this and all calls below.
        let len_bytes = u64::try_from(unsafe { (functions.nbd_get_size)(handle) })
            .map_err(|_| call(functions, name, "nbd_get_size"))?;
        let is = |function: unsafe extern "C" fn(Handle) -> c_int, what: &'static str| {
            // SAFETY: as above.
            let answer = unsafe { function(handle) };
            if answer < 0 { Err(call(functions, name, what)) } else { Ok(answer > 0) }
        };
        let size = |which| {
            // SAFETY: as above. What a server does not say, or says wrongly, is no size.
            u64::try_from(unsafe { (functions.nbd_get_block_size)(handle, which) }).unwrap_or(0)
        };
        Ok(Offer {
            len_bytes,
            block_bytes_min: size(SIZES[0]),
            block_bytes_preferred: size(SIZES[1]),
            block_bytes_max: size(SIZES[2]),
            is_read_only: is(functions.nbd_is_read_only, "nbd_is_read_only")?,
            can_flush: is(functions.nbd_can_flush, "nbd_can_flush")?,
            can_fua: is(functions.nbd_can_fua, "nbd_can_fua")?,
            can_trim: is(functions.nbd_can_trim, "nbd_can_trim")?,
            can_zero: is(functions.nbd_can_zero, "nbd_can_zero")?,
            can_multi_conn: is(functions.nbd_can_multi_conn, "nbd_can_multi_conn")?,
        })
    }

    /// Whether no request can succeed any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.handle.is_none()
    }

    /// Tells the server that this is the end, as an orderly client does.
    pub(crate) fn end(&mut self) {
        if let Some(open) = self.handle.take() {
            // SAFETY: an open handle. Nothing is in flight, and an error leaves nothing to be done.
            unsafe { (self.functions.nbd_shutdown)(open.handle, 0) };
        }
    }

    /// Runs all requests at once, and waits until each has an answer. If the transport fails, or an answer
    /// takes longer than the timeout, the connection is lost, and so are all requests that have no answer:
    /// they were executed or not.
    pub(crate) fn run(&mut self, steps: &mut [Step<'_>]) -> Vec<io::Result<()>> {
        let Some(open) = self.handle.take() else { return steps.iter().map(|_| Err(lost())).collect() };
        // Owned by this call: whatever ends it early closes the handle, so that no buffer is used
        // afterwards.
        let mut answers: Vec<_> = steps.iter_mut().map(|step| self.start(&open, step)).collect();
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let is_waiting = self.collect(&open, &mut answers);
            if !is_waiting || !self.poll(&open, deadline) {
                break;
            }
        }
        // An error of the transport is the answer to all that were in flight.
        self.collect(&open, &mut answers);
        let is_whole = answers.iter().all(|answer| !matches!(answer, Answer::Waiting(_)));
        // SAFETY: an open handle.
        let is_dead = unsafe {
            (self.functions.nbd_aio_is_dead)(open.handle) != 0
                || (self.functions.nbd_aio_is_closed)(open.handle) != 0
        };
        if is_whole && !is_dead {
            self.handle = Some(open);
        }
        answers
            .into_iter()
            .map(|answer| match answer {
                Answer::Waiting(_) => Err(lost()),
                Answer::Is(result) => result,
            })
            .collect()
    }

    fn start(&self, open: &OpenHandle, step: &mut Step<'_>) -> Answer {
        let (handle, functions) = (open.handle, self.functions);
        let none = Completion::NONE;
        // SAFETY: a connected handle and no callback. The buffers are borrowed by the caller of `run`, which
        // does not return before each request has an answer or the handle is closed.
        let cookie = unsafe {
            match step {
                Step::Read { offset, buf } => {
                    (functions.nbd_aio_pread)(handle, buf.as_mut_ptr().cast(), buf.len(), *offset, none, 0)
                }
                Step::Write { offset, data, fua } => {
                    let flags = if *fua { FUA } else { 0 };
                    (functions.nbd_aio_pwrite)(handle, data.as_ptr().cast(), data.len(), *offset, none, flags)
                }
                Step::Trim { offset, len_bytes } => {
                    (functions.nbd_aio_trim)(handle, *len_bytes, *offset, none, 0)
                }
                Step::Zero { offset, len_bytes } => {
                    (functions.nbd_aio_zero)(handle, *len_bytes, *offset, none, 0)
                }
                Step::Flush => (functions.nbd_aio_flush)(handle, none, 0),
            }
        };
        match u64::try_from(cookie) {
            Ok(cookie) => Answer::Waiting(cookie),
            Err(_) => Answer::Is(Err(self.last_error())),
        }
    }

    /// Asks for the answers that are not there yet; false if none is missing any more.
    fn collect(&self, open: &OpenHandle, answers: &mut [Answer]) -> bool {
        let mut is_waiting = false;
        for answer in answers {
            let Answer::Waiting(cookie) = answer else { continue };
            // SAFETY: a handle, and the number of a request that it was not asked about after its answer.
            match unsafe { (self.functions.nbd_aio_command_completed)(open.handle, *cookie) } {
                0 => is_waiting = true,
                1.. => *answer = Answer::Is(Ok(())),
                _ => *answer = Answer::Is(Err(self.last_error())),
            }
        }
        is_waiting
    }

    /// Waits for something to happen; false if nothing will: an error, or the deadline.
    fn poll(&self, open: &OpenHandle, deadline: Option<Instant>) -> bool {
        let wait_ms = match deadline {
            None => -1,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                // Rounded up: a wait of 0 ms would be none.
                c_int::try_from(left.as_millis() + 1).unwrap_or(c_int::MAX)
            }
        };
        // SAFETY: a handle.
        let result = unsafe { (self.functions.nbd_poll)(open.handle, wait_ms) };
        result > 0 || result == 0 && deadline.is_some_and(|deadline| Instant::now() < deadline)
    }

    /// The error of the last call, made by this thread.
    fn last_error(&self) -> io::Error {
        // SAFETY: no argument.
        match unsafe { (self.functions.nbd_get_errno)() } {
            0 => io::Error::from_raw_os_error(libc::EIO),
            errno => io::Error::from_raw_os_error(errno),
        }
    }
}

enum Answer {
    Waiting(u64),
    Is(io::Result<()>),
}

/// The error of a call that failed just now.
fn call(functions: &Functions, name: &NbdName, call: &'static str) -> OpenError {
    // SAFETY: no arguments; the string lives until the next call of this thread.
    let (errno, detail) = unsafe {
        let said = (functions.nbd_get_error)();
        let said =
            if said.is_null() { String::new() } else { CStr::from_ptr(said).to_string_lossy().into_owned() };
        ((functions.nbd_get_errno)(), said)
    };
    let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
    let source = io::Error::from_raw_os_error(if errno == 0 { libc::EIO } else { errno });
    OpenError::Call { name: name.whole.clone(), call, detail, source }
}
