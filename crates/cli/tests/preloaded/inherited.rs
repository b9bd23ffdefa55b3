//! Descriptors that a program has from whoever has started it.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Barrier;

use super::{file, is_leased};
use crate::{ROOT, bench, passes, root};

/// Tells the second program that it is one.
const SECOND: &str = "FASTNESS_PRELOAD_SECOND";
const THREADS: usize = 4;

#[test]
fn files_that_a_program_has_from_its_parent_get_leases() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::inherited::program_that_starts_another");
    let found = fs::read(bench.path("dir/output")).unwrap();
    assert_eq!(found.len(), 6 + THREADS * 100);
    assert_eq!(&found[..6], b"first\n");
}

#[test]
fn program_that_starts_another() {
    let Some(root) = root() else { return };
    let output = OpenOptions::new().create(true).append(true).open(root.join("output")).unwrap();
    let input = file(&root.join("input"));
    input.write_all_at(b"what the parent wrote", 0).unwrap();
    (&output).write_all(b"first\n").unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "preloaded::inherited::program_with_descriptors", "--nocapture"]);
    program.env(SECOND, "").env(ROOT, &root).stderr(output.try_clone().unwrap());
    let done = program.stdin(input.try_clone().unwrap()).stdout(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    // Neither went through the mount, which would have ended these.
    assert!(is_leased(&output) && is_leased(&input));
    (&output).write_all(b"").unwrap();
    let mut found = [0; 3];
    input.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"WHA");
    assert!(is_leased(&input));
    streams(&root);
}

#[test]
fn program_with_descriptors() {
    if std::env::var_os(SECOND).is_none() {
        return;
    }
    let root = root().unwrap();
    // SAFETY: descriptors that stay open.
    let [input, output] = unsafe { [0, 2].map(|fd| BorrowedFd::borrow_raw(fd)) };
    assert!(!is_leased(&input) && !is_leased(&output), "not before they are used");
    let same = File::from(input.try_clone_to_owned().unwrap());
    assert!(!is_leased(&same));
    same.write_all_at(b"WHA", 0).unwrap();
    assert!(is_leased(&same));
    let mut found = String::new();
    std::io::stdin().read_to_string(&mut found).unwrap();
    assert_eq!(found, "WHAt the parent wrote");
    assert!(is_leased(&input));
    // Several threads use one for the first time.
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                // SAFETY: a descriptor that stays open.
                let done = unsafe { libc::write(output.as_raw_fd(), [b'x'; 100].as_ptr().cast(), 100) };
                assert_eq!(done, 100);
            });
        }
    });
    assert!(is_leased(&output));
    // What is closed is not what comes into its place.
    // SAFETY: a descriptor that nothing here uses any more.
    unsafe { assert_eq!(libc::close(0), 0) };
    let other = file(&root.join("in its place"));
    assert_eq!(other.as_raw_fd(), 0);
    other.write_all_at(b"other", 0).unwrap();
    assert!(is_leased(&other));
    std::mem::forget(other);
}

/// A stream takes the number of a file with a lease that is open elsewhere, too.
fn streams(root: &std::path::Path) {
    let first = file(&root.join("first"));
    let path = |name: &str| CString::new(root.join(name).into_os_string().into_encoded_bytes()).unwrap();
    let fclose_and_reopen: [&dyn Fn(*mut libc::FILE) -> *mut libc::FILE; 2] = [
        &|stream| {
            // SAFETY: a stream of this program, then another one.
            unsafe {
                assert_eq!(libc::fclose(stream), 0);
                libc::fopen(path("second").as_ptr(), c"w+".as_ptr())
            }
        },
        // SAFETY: a stream of this program.
        &|stream| unsafe { libc::freopen(path("second").as_ptr(), c"w+".as_ptr(), stream) },
    ];
    for replace in fclose_and_reopen {
        // SAFETY: descriptors and streams of this program alone.
        unsafe {
            let stream = libc::fopen(path("third").as_ptr(), c"w+".as_ptr());
            let number = libc::fileno(stream);
            assert_eq!(libc::dup2(first.as_raw_fd(), number), number);
            assert!(is_leased(&number));
            let second = replace(stream);
            assert_eq!(libc::fileno(second), number);
            assert_eq!(libc::write(number, b"second".as_ptr().cast(), 6), 6);
            assert_eq!(libc::fclose(second), 0);
        }
        assert_eq!(fs::read(root.join("second")).unwrap(), b"second");
        assert_eq!(fs::read(root.join("first")).unwrap(), b"");
    }
}
