//! Programs with and without the library on the same files.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::{file, in_child, is_leased};
use crate::{bench, passes, root};

/// A file that was closed by everyone: the kernel tells the server of that later.
fn leased(path: &Path) -> File {
    for _ in 0..10_000 {
        let opened = file(path);
        if is_leased(&opened) {
            return opened;
        }
        drop(opened);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("no lease of {}", path.display());
}

/// A shell without the library.
fn plain(script: &str, path: &Path) -> Vec<u8> {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(path).env_remove("LD_PRELOAD");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn who_goes_through_the_mount_sees_every_write_and_is_seen() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::mixed::program_beside_others");
}

#[test]
fn program_beside_others() {
    let Some(root) = root() else { return };
    let path = root.join("a");
    let read = |at: u64, len: usize| {
        let mut buffer = vec![0; len];
        file(&path).read_exact_at(&mut buffer, at).unwrap();
        buffer
    };
    for round in 0..20_u8 {
        let a = leased(&path);
        let text = format!("round {round:02} ").repeat(500);
        a.write_all_at(text.as_bytes(), 0).unwrap();
        // The length that the kernel has remembered is not the one of before.
        assert_eq!(plain("stat -c %s \"$1\"", &path), format!("{}\n", text.len()).as_bytes());
        assert!(is_leased(&a), "nothing has read it");
        assert_eq!(plain("cat \"$1\"", &path), text.as_bytes());
        a.write_all_at(&text.as_bytes()[..1], 0).unwrap();
        assert!(!is_leased(&a), "the kernel has pages of it");
        plain("printf other | dd of=\"$1\" bs=1 seek=3 conv=notrunc 2> /dev/null", &path);
        assert_eq!(read(0, 10), [&text.as_bytes()[..3], b"other", &text.as_bytes()[8..10]].concat());
        a.write_all_at(b"mine", 3).unwrap();
        assert_eq!(plain("head -c 8 \"$1\"", &path), [&text.as_bytes()[..3], b"miner"].concat());
        plain("printf appended >> \"$1\"", &path);
        assert_eq!(read(text.len() as u64, 8), b"appended");
        drop(a);
        let a = file(&path);
        plain(": > \"$1\"", &path);
        assert_eq!(a.metadata().unwrap().len(), 0);
        a.write_all_at(&[b'y'; 5], 4095).unwrap();
        assert_eq!(read(0, 4100)[4094..], *b"\0yyyyy");
    }
}

#[test]
fn mapped_files_and_streams_are_what_was_written() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::mixed::program_that_maps");
    assert_eq!(fs::read(bench.path("dir/mapped")).unwrap()[..8], *b"ABcdefgh");
}

#[test]
fn program_that_maps() {
    let Some(root) = root() else { return };
    let a = file(&root.join("mapped"));
    a.write_all_at(b"abcdefgh", 0).unwrap();
    a.set_len(8192).unwrap();
    // SAFETY: a mapping of this program's, as long as its file.
    let mapped = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(std::ptr::null_mut(), 8192, access, libc::MAP_SHARED, a.as_raw_fd(), 0);
        assert_ne!(base, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(base.cast::<u8>(), 8192)
    };
    // Written before the first page is there, and after.
    a.write_all_at(b"A", 0).unwrap();
    assert_eq!(&mapped[..8], b"Abcdefgh");
    mapped[1] = b'B';
    let mut found = [0; 8];
    a.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"ABcdefgh");
    maps_what_grows(&root.join("grows before"), true);
    maps_what_grows(&root.join("grows after"), false);
    threads(&root);
    a.write_all_at(b"z", 5000).unwrap();
    assert_eq!(mapped[5000], b'z');
    // Memory of one file is written to another one, whose locks must not meet those of the first: pages
    // that are not there yet.
    let other = file(&root.join("other"));
    assert!(is_leased(&other));
    // SAFETY: as above.
    let again = unsafe {
        let base =
            libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ, libc::MAP_SHARED, a.as_raw_fd(), 0);
        libc::madvise(base, 8192, libc::MADV_DONTNEED);
        std::slice::from_raw_parts(base.cast::<u8>(), 8192)
    };
    other.write_all_at(again, 0).unwrap();
    assert_eq!(fs::read(root.join("other")).unwrap(), again);
    // A stream of the C library goes its own way.
    let b = file(&root.join("stream"));
    b.write_all_at(b"12345", 0).unwrap();
    // SAFETY: a descriptor of its own.
    unsafe {
        let mode = CString::new("r+").unwrap();
        let stream = libc::fdopen(libc::dup(b.as_raw_fd()), mode.as_ptr());
        assert!(!stream.is_null());
        assert_eq!(libc::fseek(stream, 2, libc::SEEK_SET), 0);
        assert_eq!(libc::fputc(i32::from(b'x'), stream), i32::from(b'x'));
        assert_eq!(libc::fclose(stream), 0);
    }
    assert_eq!(fs::read(root.join("stream")).unwrap(), b"12x45");
    b.write_all_at(b"y", 0).unwrap();
    assert_eq!(fs::read(root.join("stream")).unwrap(), b"y2x45");
    // A signal that comes in the middle of a write, whose handler writes to the same file.
    signals(&root);
}

/// Several threads while something is mapped: each has memory of its own for what it transfers.
fn threads(root: &Path) {
    std::thread::scope(|scope| {
        for thread in 0..6_u8 {
            scope.spawn(move || {
                let own = file(&root.join(format!("thread {thread}")));
                own.write_all_at(&[thread; 100_000], 0).unwrap();
                assert!(is_leased(&own));
                for round in 0..400 {
                    let mut found = vec![0xee; if round % 50 == 0 { 100_000 } else { 1 + round * 37 }];
                    own.read_exact_at(&mut found, 0).unwrap();
                    assert!(found.iter().all(|byte| *byte == thread), "thread {thread}, round {round}");
                    own.write_all_at(&found[..found.len() / 2], 0).unwrap();
                }
            });
        }
    });
}

/// A file whose length the kernel does not learn from its writes.
fn maps_what_grows(path: &Path, is_read_before: bool) {
    let c = file(path);
    c.set_len(3).unwrap();
    c.write_all_at(b"x", 5000).unwrap();
    assert!(is_leased(&c));
    // SAFETY: a mapping of this program's; what is looked at is in the file.
    let mapped = unsafe {
        let base =
            libc::mmap(std::ptr::null_mut(), 16384, libc::PROT_READ, libc::MAP_SHARED, c.as_raw_fd(), 0);
        assert_ne!(base, libc::MAP_FAILED);
        base.cast::<u8>().cast_const()
    };
    // SAFETY: as above.
    let at = |offset: usize| unsafe { mapped.add(offset).read_volatile() };
    if is_read_before {
        assert_eq!(at(5000), b'x');
    }
    c.write_all_at(b"y", 10_000).unwrap();
    assert_eq!(at(10_000), b'y');
    assert!(!is_leased(&c));
}

static LOG: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note(_: i32) {
    let log = LOG.load(Ordering::Relaxed);
    // SAFETY: a descriptor that stays open.
    unsafe { libc::write(log, b"s".as_ptr().cast(), 1) };
}

fn signals(root: &Path) {
    use std::io::Write;
    let log = fs::OpenOptions::new().create(true).append(true).open(root.join("signals")).unwrap();
    LOG.store(log.as_raw_fd(), Ordering::Relaxed);
    // SAFETY: a handler that only writes.
    unsafe {
        libc::signal(libc::SIGALRM, note as *const () as libc::sighandler_t);
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // SAFETY: this thread, which outlives the other one.
        let writer = unsafe { libc::pthread_self() };
        let is_done = &is_done;
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                // SAFETY: as above.
                unsafe { libc::pthread_kill(writer, libc::SIGALRM) };
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        for _ in 0..20_000 {
            (&log).write_all(&[b'm'; 300]).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(is_leased(&log));
    let found = fs::read(root.join("signals")).unwrap();
    let from_main = found.iter().filter(|&&byte| byte == b'm').count();
    assert_eq!(from_main, 20_000 * 300);
    assert!(found.len() > from_main, "no signal came");
    // No write has another one inside.
    assert!(found.split(|&byte| byte == b's').all(|run| run.len() % 300 == 0));
    in_child(|| (&log).write_all(b"child").unwrap());
}
