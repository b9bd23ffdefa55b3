//! Requests to an image, and their completions.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};

use super::{CURRENT, Fake, FakeImage, handle};

struct Completion {
    fake: Fake,
    result: isize,
    is_waited: bool,
}

pub(super) unsafe extern "C" fn create_completion(
    _: *mut c_void,
    _: *const c_void,
    out: *mut *mut c_void,
) -> c_int {
    let fake = CURRENT.with_borrow(Fake::clone);
    let result = fake.world().called("rbd_aio_create_completion");
    if result == 0 {
        fake.world().open += 1;
        let completion = Completion { fake, result: 0, is_waited: false };
        unsafe { *out = Box::into_raw(Box::new(completion)).cast() };
    }
    result
}

pub(super) unsafe extern "C" fn wait_for_complete(of: *mut c_void) -> c_int {
    let completion = unsafe { &mut *of.cast::<Completion>() };
    completion.is_waited = true;
    0
}

pub(super) unsafe extern "C" fn get_return_value(of: *mut c_void) -> isize {
    let completion = unsafe { &*of.cast::<Completion>() };
    assert!(completion.is_waited, "its result is asked for after it was waited for");
    completion.result
}

pub(super) unsafe extern "C" fn release(of: *mut c_void) {
    let completion = unsafe { Box::from_raw(of.cast::<Completion>()) };
    completion.fake.world().open -= 1;
}

/// Executes a request: an error of the call itself has a name with a `!`.
fn request(
    (of, completion): (*mut c_void, *mut c_void),
    (function, at_once): (&'static str, &'static str),
    is_change: bool,
    act: impl FnOnce(&mut FakeImage) -> isize,
) -> c_int {
    let handle = unsafe { handle(of) };
    let mut world = handle.fake.world();
    if let Some(error) = world.fails.get_mut(at_once).and_then(VecDeque::pop_front) {
        return error;
    }
    let failed = world.called(function);
    let is_listed = world.blocklist.contains(&handle.client);
    world.flushes += usize::from(function == "rbd_aio_flush");
    let image = world.images.get_mut(&handle.image).unwrap();
    let is_refused = is_change && (handle.is_read_only || image.owner != Some(handle.client));
    let result = match failed {
        _ if is_listed => -(libc::ESHUTDOWN as isize),
        0 if is_refused => -(libc::EROFS as isize),
        0 => act(image),
        error => error as isize,
    };
    unsafe { &mut *completion.cast::<Completion>() }.result = result;
    0
}

fn part(image: &mut FakeImage, offset: u64, len: usize) -> &mut [u8] {
    let end = image.bytes.len();
    let from = (offset as usize).min(end);
    &mut image.bytes[from..(from + len).min(end)]
}

pub(super) unsafe extern "C" fn read(
    of: *mut c_void,
    offset: u64,
    len: usize,
    to: *mut c_char,
    c: *mut c_void,
) -> c_int {
    request((of, c), ("rbd_aio_read", "!rbd_aio_read"), false, |image| {
        let part = part(image, offset, len);
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to.cast(), part.len()) };
        part.len() as isize
    })
}

pub(super) unsafe extern "C" fn write(
    of: *mut c_void,
    at: u64,
    len: usize,
    from: *const c_char,
    c: *mut c_void,
) -> c_int {
    request((of, c), ("rbd_aio_write", "!rbd_aio_write"), true, |image| {
        let part = part(image, at, len);
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), part.as_mut_ptr(), part.len()) };
        0
    })
}

pub(super) unsafe extern "C" fn discard(of: *mut c_void, _: u64, _: u64, c: *mut c_void) -> c_int {
    // What is shorter than its granule keeps its bytes.
    request((of, c), ("rbd_aio_discard", "!rbd_aio_discard"), true, |_| 0)
}

pub(super) unsafe extern "C" fn write_zeroes(
    of: *mut c_void,
    at: u64,
    len: usize,
    c: *mut c_void,
    _: c_int,
    _: c_int,
) -> c_int {
    request((of, c), ("rbd_aio_write_zeroes", "!rbd_aio_write_zeroes"), true, |image| {
        part(image, at, len).fill(0);
        0
    })
}

pub(super) unsafe extern "C" fn flush(of: *mut c_void, c: *mut c_void) -> c_int {
    request((of, c), ("rbd_aio_flush", "!rbd_aio_flush"), false, |_| 0)
}
