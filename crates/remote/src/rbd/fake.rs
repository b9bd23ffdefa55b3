//! A cluster in memory, behind the functions of librados and librbd.
//!
//! It does what was seen of the real one (`docs/semantics.md`, "RBD images"): settings of an image go before
//! those of a client, an exclusive lock is kept from whoever asks, a client whose lock was broken is refused
//! everything, reads and writes are cut off at the end without an error. What a test says fails, does:
//! `fail`.
#![allow(unsafe_code)] // Functions for C.
// All of them get what the code that is tested promises in its own comments.
#![allow(clippy::undocumented_unsafe_blocks)]

mod requests;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::rbd::api::{ConfigOption, Functions};

/// One image.
#[derive(Debug, Default)]
pub(super) struct FakeImage {
    pub(super) bytes: Vec<u8>,
    pub(super) features: u64,
    /// Settings of its own.
    pub(super) settings: HashMap<String, String>,
    pub(super) notes: HashMap<String, String>,
    /// The client that has the lock.
    pub(super) owner: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) images: HashMap<String, FakeImage>,
    /// Errors of the next calls of a function; 0: this call succeeds.
    fails: HashMap<&'static str, VecDeque<c_int>>,
    pub(super) blocklist: Vec<usize>,
    /// Calls, in order.
    pub(super) calls: Vec<&'static str>,
    /// Handles and completions that are not released.
    pub(super) open: usize,
    clients: usize,
    pub(super) flushes: usize,
}

/// The cluster of a test.
#[derive(Debug, Clone, Default)]
pub(super) struct Fake(Arc<Mutex<World>>);

thread_local! {
    static CURRENT: RefCell<Fake> = RefCell::default();
}

impl Fake {
    /// A cluster with one image, `tank/disk`, for what this thread opens from now on.
    pub(super) fn with_image(len_bytes: usize) -> Fake {
        let fake = Fake::default();
        let image = FakeImage { bytes: vec![0; len_bytes], features: 4, ..FakeImage::default() };
        fake.world().images.insert("disk".to_owned(), image);
        CURRENT.set(fake.clone());
        fake
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// The next call of `function` ends with this error; those after it do what they should.
    pub(super) fn fail(&self, function: &'static str, errno: c_int) {
        self.world().fails.entry(function).or_default().push_back(-errno);
    }

    pub(super) fn change(&self, act: impl FnOnce(&mut FakeImage)) {
        act(self.world().images.get_mut("disk").unwrap());
    }

    /// Another client breaks the lock.
    pub(super) fn fence(&self) {
        let owner = self.world().images.get_mut("disk").unwrap().owner.replace(usize::MAX);
        self.world().blocklist.extend(owner);
    }
}

impl World {
    fn called(&mut self, function: &'static str) -> c_int {
        self.calls.push(function);
        self.fails.get_mut(function).and_then(VecDeque::pop_front).unwrap_or(0)
    }
}

/// What is behind each handle.
struct Handle {
    fake: Fake,
    client: usize,
    settings: HashMap<String, String>,
    image: String,
    is_read_only: bool,
}

fn text(of: *const c_char) -> String {
    // SAFETY: the caller passes a string.
    unsafe { CStr::from_ptr(of) }.to_str().unwrap().to_owned()
}

unsafe fn handle<'a>(of: *mut c_void) -> &'a mut Handle {
    // SAFETY: one of those made here, not yet closed; tests use a handle in one thread at a time, or only
    // read it.
    unsafe { &mut *of.cast::<Handle>() }
}

fn give(from: &Handle, image: String, is_read_only: bool) -> *mut c_void {
    from.fake.world().open += 1;
    let settings = from.settings.clone();
    let handle = Handle { fake: from.fake.clone(), client: from.client, settings, image, is_read_only };
    Box::into_raw(Box::new(handle)).cast()
}

unsafe fn take(of: *mut c_void, function: &'static str) -> Box<Handle> {
    // SAFETY: one of those made here, closed once.
    let taken = unsafe { Box::from_raw(of.cast::<Handle>()) };
    let mut world = taken.fake.world();
    world.called(function);
    world.open -= 1;
    drop(world);
    taken
}

unsafe extern "C" fn create(out: *mut *mut c_void, _id: *const c_char) -> c_int {
    let fake = CURRENT.with_borrow(Fake::clone);
    let mut world = fake.world();
    let result = world.called("rados_create");
    world.clients += 1;
    let client = world.clients;
    drop(world);
    let settings = HashMap::from([("rbd_cache".to_owned(), "true".to_owned())]);
    let root = Handle { fake, client, settings, image: String::new(), is_read_only: false };
    if result == 0 {
        // SAFETY: a place for the handle.
        unsafe { *out = give(&root, String::new(), false) };
    }
    result
}

unsafe extern "C" fn conf_read_file(of: *mut c_void, _path: *const c_char) -> c_int {
    unsafe { handle(of) }.fake.world().called("rados_conf_read_file")
}

unsafe extern "C" fn conf_set(of: *mut c_void, option: *const c_char, value: *const c_char) -> c_int {
    let handle = unsafe { handle(of) };
    handle.settings.insert(text(option), text(value));
    handle.fake.world().called("rados_conf_set")
}

unsafe extern "C" fn connect(of: *mut c_void) -> c_int {
    unsafe { handle(of) }.fake.world().called("rados_connect")
}

unsafe extern "C" fn shutdown(of: *mut c_void) {
    unsafe { take(of, "rados_shutdown") };
}

unsafe extern "C" fn ioctx_create(of: *mut c_void, pool: *const c_char, out: *mut *mut c_void) -> c_int {
    let handle = unsafe { handle(of) };
    let result = handle.fake.world().called("rados_ioctx_create");
    if text(pool) != "tank" {
        return -libc::ENOENT;
    }
    if result == 0 {
        unsafe { *out = give(handle, String::new(), false) };
    }
    result
}

unsafe extern "C" fn ioctx_destroy(of: *mut c_void) {
    unsafe { take(of, "rados_ioctx_destroy") };
}

unsafe extern "C" fn list(of: *mut c_void, names: *mut c_char, len: *mut usize) -> c_int {
    let mut world = unsafe { handle(of) }.fake.world();
    let result = world.called("rbd_list");
    let mut joined: Vec<u8> = Vec::new();
    world.images.keys().for_each(|name| joined.extend(name.bytes().chain([0])));
    let room = unsafe { std::mem::replace(&mut *len, joined.len()) };
    if result != 0 || room < joined.len() {
        return if result != 0 { result } else { -libc::ERANGE };
    }
    unsafe { std::ptr::copy_nonoverlapping(joined.as_ptr().cast(), names, joined.len()) };
    joined.len() as c_int
}

fn open_image(of: *mut c_void, name: *const c_char, out: *mut *mut c_void, is_read_only: bool) -> c_int {
    let from = unsafe { handle(of) };
    let mut world = from.fake.world();
    let result = world.called(if is_read_only { "rbd_open_read_only" } else { "rbd_open" });
    let is_there = world.images.contains_key(&text(name));
    drop(world);
    match result {
        0 if is_there => unsafe { *out = give(from, text(name), is_read_only) },
        0 => return -libc::ENOENT,
        _ => {}
    }
    result
}

unsafe extern "C" fn open(
    of: *mut c_void,
    name: *const c_char,
    out: *mut *mut c_void,
    _: *const c_char,
) -> c_int {
    open_image(of, name, out, false)
}

unsafe extern "C" fn open_read_only(
    of: *mut c_void,
    name: *const c_char,
    out: *mut *mut c_void,
    _: *const c_char,
) -> c_int {
    open_image(of, name, out, true)
}

unsafe extern "C" fn close(of: *mut c_void) -> c_int {
    let taken = unsafe { take(of, "rbd_close") };
    let mut world = taken.fake.world();
    let image = world.images.get_mut(&taken.image).unwrap();
    if image.owner == Some(taken.client) {
        image.owner = None;
    }
    0
}

/// Calls a function about an image.
fn about(
    of: *mut c_void,
    function: &'static str,
    act: impl FnOnce(&mut FakeImage, &Handle) -> c_int,
) -> c_int {
    let handle = unsafe { handle(of) };
    let mut world = handle.fake.world();
    match world.called(function) {
        0 => act(world.images.get_mut(&handle.image).unwrap(), handle),
        error => error,
    }
}

unsafe extern "C" fn get_size(of: *mut c_void, out: *mut u64) -> c_int {
    about(of, "rbd_get_size", |image, _| {
        unsafe { *out = image.bytes.len() as u64 };
        0
    })
}

unsafe extern "C" fn get_features(of: *mut c_void, out: *mut u64) -> c_int {
    about(of, "rbd_get_features", |image, _| {
        unsafe { *out = image.features };
        0
    })
}

unsafe extern "C" fn config_list(of: *mut c_void, out: *mut ConfigOption, count: *mut c_int) -> c_int {
    about(of, "rbd_config_image_list", |image, handle| {
        let mut all: Vec<_> = handle.settings.iter().map(|(name, value)| (name, value, 0)).collect();
        for (name, value) in &image.settings {
            all.retain(|(known, ..)| *known != name);
            all.push((name, value, 2));
        }
        let room = unsafe { std::mem::replace(&mut *count, all.len() as c_int) };
        if room < all.len() as c_int {
            return -libc::ERANGE;
        }
        for (index, (name, value, source)) in all.into_iter().enumerate() {
            let string = |text: &String| CString::new(text.as_str()).unwrap().into_raw();
            unsafe { *out.add(index) = ConfigOption { name: string(name), value: string(value), source } };
        }
        0
    })
}

unsafe extern "C" fn config_cleanup(options: *mut ConfigOption, count: c_int) {
    for index in 0..count as usize {
        let option = unsafe { *options.add(index) };
        drop(unsafe { (CString::from_raw(option.name), CString::from_raw(option.value)) });
    }
}

unsafe extern "C" fn pool_id(of: *mut c_void) -> i64 {
    unsafe { handle(of) }.fake.world().called("rados_ioctx_get_id");
    2
}

/// Writes a text with its zero byte; its length, or the error for one that does not fit.
unsafe fn put(text: &str, out: *mut c_char, room: usize) -> c_int {
    if text.len() >= room {
        return -libc::ERANGE;
    }
    let text = CString::new(text).unwrap();
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), out, text.as_bytes_with_nul().len()) };
    0
}

unsafe extern "C" fn fsid(of: *mut c_void, out: *mut c_char, room: usize) -> c_int {
    let result = unsafe { handle(of) }.fake.world().called("rados_cluster_fsid");
    match result {
        0 if unsafe { put("f51d", out, room) } == 0 => 4,
        0 => -libc::ERANGE,
        error => error,
    }
}

unsafe extern "C" fn get_id(of: *mut c_void, out: *mut c_char, room: usize) -> c_int {
    about(of, "rbd_get_id", |_, _| unsafe { put("10d5", out, room) })
}

unsafe extern "C" fn note_get(
    of: *mut c_void,
    key: *const c_char,
    out: *mut c_char,
    len: *mut usize,
) -> c_int {
    about(of, "rbd_metadata_get", |image, _| match image.notes.get(&text(key)) {
        Some(value) => unsafe { put(value, out, *len) },
        None => -libc::ENOENT,
    })
}

unsafe extern "C" fn note_set(of: *mut c_void, key: *const c_char, value: *const c_char) -> c_int {
    about(of, "rbd_metadata_set", |image, _| {
        image.notes.insert(text(key), text(value));
        0
    })
}

unsafe extern "C" fn note_remove(of: *mut c_void, key: *const c_char) -> c_int {
    about(of, "rbd_metadata_remove", |image, _| match image.notes.remove(&text(key)) {
        Some(_) => 0,
        None => -libc::ENOENT,
    })
}

unsafe extern "C" fn lock_acquire(of: *mut c_void, mode: c_int) -> c_int {
    assert_eq!(mode, 0, "exclusive");
    about(of, "rbd_lock_acquire", |image, handle| match image.owner {
        Some(owner) if owner != handle.client => -libc::EROFS,
        _ => {
            image.owner = Some(handle.client);
            0
        }
    })
}

unsafe extern "C" fn is_owner(of: *mut c_void, out: *mut c_int) -> c_int {
    about(of, "rbd_is_exclusive_lock_owner", |image, handle| {
        unsafe { *out = c_int::from(image.owner == Some(handle.client)) };
        0
    })
}

/// The functions of this cluster.
pub(super) static FUNCTIONS: Functions = Functions {
    rados_create: create,
    rados_conf_read_file: conf_read_file,
    rados_conf_set: conf_set,
    rados_connect: connect,
    rados_shutdown: shutdown,
    rados_ioctx_create: ioctx_create,
    rados_ioctx_destroy: ioctx_destroy,
    rados_ioctx_get_id: pool_id,
    rados_cluster_fsid: fsid,
    rbd_list: list,
    rbd_open: open,
    rbd_open_read_only: open_read_only,
    rbd_close: close,
    rbd_get_size: get_size,
    rbd_get_features: get_features,
    rbd_get_id: get_id,
    rbd_metadata_get: note_get,
    rbd_metadata_set: note_set,
    rbd_metadata_remove: note_remove,
    rbd_config_image_list: config_list,
    rbd_config_image_list_cleanup: config_cleanup,
    rbd_lock_acquire: lock_acquire,
    rbd_is_exclusive_lock_owner: is_owner,
    rbd_aio_create_completion: requests::create_completion,
    rbd_aio_wait_for_complete: requests::wait_for_complete,
    rbd_aio_get_return_value: requests::get_return_value,
    rbd_aio_release: requests::release,
    rbd_aio_read: requests::read,
    rbd_aio_write: requests::write,
    rbd_aio_discard: requests::discard,
    rbd_aio_write_zeroes: requests::write_zeroes,
    rbd_aio_flush: requests::flush,
};
