//! Every call that is replaced, as a program uses it.

use std::fs::{self, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use super::{file, in_child, is_leased};
use crate::{bench, passes, root};

#[test]
fn all_calls_do_what_they_do_without_the_library() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::calls::program_of_all_calls");
    let found = fs::read(bench.path("dir/a")).unwrap();
    assert_eq!(found.len(), 20_003);
    assert_eq!(found[20_000..], *b"end");
}

#[test]
fn program_of_all_calls() {
    let Some(root) = root() else { return };
    let path = root.join("a");
    let mut a = file(&path);
    assert!(is_leased(&a));
    // The position is the kernel's, and shared.
    assert_eq!(a.write(&[1; 5000]).unwrap(), 5000);
    assert_eq!(a.stream_position().unwrap(), 5000);
    let mut same = a.try_clone().unwrap();
    assert!(is_leased(&same));
    assert_eq!(same.write_vectored(&[IoSlice::new(&[2; 100]), IoSlice::new(&[3; 4000])]).unwrap(), 4100);
    assert_eq!(a.stream_position().unwrap(), 9100);
    assert_eq!(a.seek(SeekFrom::End(-4050)).unwrap(), 5050);
    let (mut first, mut second) = ([0; 50], [0; 10_000]);
    let read = a.read_vectored(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)]).unwrap();
    assert_eq!((read, first, second[0], second[3999], second[4000]), (4050, [2; 50], 3, 3, 0));
    assert_eq!(a.read(&mut first).unwrap(), 0, "the end");
    assert_eq!(a.stream_position().unwrap(), 9100);
    a.write_all_at(&[4; 10], 19_990).unwrap();
    let mut hole = [9; 10];
    a.read_exact_at(&mut hole, 9100).unwrap();
    assert_eq!(hole, [0; 10]);
    // Length and times.
    let found = a.metadata().unwrap();
    assert_eq!((found.len(), found.nlink(), found.ino()), (20_000, 1, fs::metadata(&path).unwrap().ino()));
    assert_eq!(fs::metadata(&path).unwrap().len(), 20_000);
    let before = found.modified().unwrap();
    a.write_all_at(&[5], 0).unwrap();
    assert!(a.metadata().unwrap().modified().unwrap() > before);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), a.metadata().unwrap().modified().unwrap());
    a.sync_all().unwrap();
    a.sync_data().unwrap();
    // Appends, told when opening and later.
    let mut end = OpenOptions::new().append(true).open(&path).unwrap();
    assert!(is_leased(&end));
    end.write_all(b"e").unwrap();
    assert_eq!(end.stream_position().unwrap(), 20_001);
    // SAFETY: a descriptor that is open.
    unsafe { assert_eq!(libc::fcntl(a.as_raw_fd(), libc::F_SETFL, libc::O_APPEND), 0) };
    a.write_all_at(b"n", 0).unwrap();
    // SAFETY: as above.
    unsafe { assert_eq!(libc::fcntl(a.as_raw_fd(), libc::F_SETFL, 0), 0) };
    end.write_all(b"d").unwrap();
    a.read_exact_at(&mut hole[..3], 20_000).unwrap();
    assert_eq!(&hole[..3], b"end");
    // What a descriptor may not do.
    let only_read = fs::File::open(&path).unwrap();
    assert!(is_leased(&only_read));
    assert_eq!((&only_read).write(b"x").unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert_eq!((&end).read(&mut hole).unwrap_err().raw_os_error(), Some(libc::EBADF));
    // Shorter, and longer again: nothing comes back.
    a.set_len(100).unwrap();
    assert_eq!(a.metadata().unwrap().len(), 100);
    a.set_len(300).unwrap();
    let mut all = vec![9; 400];
    assert_eq!(a.read_at(&mut all, 0).unwrap(), 300);
    assert_eq!((all[0], all[99], &all[100..300]), (5, 1, &[0; 200][..]));
    a.set_len(20_000).unwrap();
    a.write_all_at(b"end", 20_000).unwrap();
    assert!(is_leased(&a), "all of this went past the mount");
    a.sync_all().unwrap();
}

#[test]
fn descriptors_are_followed_over_dup_close_and_fork() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::calls::program_of_descriptors");
    let lines = fs::read_to_string(bench.path("dir/log")).unwrap();
    let mut numbers: Vec<u32> = lines.lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..400).collect::<Vec<_>>());
}

#[test]
fn program_of_descriptors() {
    let Some(root) = root() else { return };
    let a = file(&root.join("a"));
    let b = file(&root.join("b"));
    a.write_all_at(b"aaaa", 0).unwrap();
    b.write_all_at(b"bbbb", 0).unwrap();
    // A number that becomes another file.
    // SAFETY: descriptors of this program.
    unsafe {
        let number = libc::dup(a.as_raw_fd());
        assert_eq!(libc::dup2(b.as_raw_fd(), number), number);
        assert_eq!(libc::pwrite(number, b"B".as_ptr().cast(), 1, 0), 1);
        let null = fs::File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(libc::dup2(null.as_raw_fd(), number), number);
        assert_eq!(libc::pwrite(number, b"z".as_ptr().cast(), 1, 0), 1);
        assert_eq!(libc::dup3(a.as_raw_fd(), number, libc::O_CLOEXEC), number);
        assert_eq!(libc::pwrite(number, b"A".as_ptr().cast(), 1, 0), 1);
        let other = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 100);
        assert!(other >= 100);
        assert_eq!(libc::close(number), 0);
        assert_eq!(libc::pwrite(number, b"x".as_ptr().cast(), 1, 0), -1);
        assert_eq!(libc::pwrite(other, b"a".as_ptr().cast(), 1, 3), 1);
        assert_eq!(libc::close(other), 0);
    }
    // All that the program did not open, as it thinks.
    for number in 3..20_000 {
        if number != a.as_raw_fd() && number != b.as_raw_fd() {
            // SAFETY: descriptors that nothing of this program uses; the library's are not among them.
            unsafe { libc::close(number) };
        }
    }
    assert_eq!(fs::read(root.join("a")).unwrap(), b"Aaaa");
    assert_eq!(fs::read(root.join("b")).unwrap(), b"Bbbb");
    let c = file(&root.join("c"));
    assert!(is_leased(&c), "its connection is open still");
    // A file that is gone while it is open.
    fs::remove_file(root.join("c")).unwrap();
    c.write_all_at(b"still", 0).unwrap();
    let mut still = [0; 5];
    c.read_exact_at(&mut still, 0).unwrap();
    assert_eq!((&still, c.metadata().unwrap().len()), (b"still", 5));
    drop(c);
    // Forked processes, which share a descriptor and its position, each with threads of its own.
    let log = OpenOptions::new().create(true).append(true).open(root.join("log")).unwrap();
    let shared = file(&root.join("shared"));
    let write = |from: u32| {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (log, shared) = (&log, &shared);
                scope.spawn(move || {
                    for n in 0..50 {
                        let line = format!("{}\n", from + 50 * thread + n);
                        (&*log).write_all(line.as_bytes()).unwrap();
                        (&*shared).write_all(&[b'x'; 70]).unwrap();
                    }
                });
            }
        });
        assert!(is_leased(&log) && is_leased(&shared));
    };
    in_child(|| {
        write(0);
        in_child(|| write(100));
    });
    write(200);
    in_child(|| write(300));
    assert_eq!(fs::read(root.join("shared")).unwrap(), vec![b'x'; 400 * 70]);
    // SAFETY: closes all but the first three; the test's own are not used after that.
    let closed = unsafe { libc::close_range(100, u32::MAX, 0) };
    assert_eq!(closed, 0);
    b.write_all_at(b"!", 4).unwrap();
    assert!(is_leased(&b));
    assert_eq!(fs::read(root.join("b")).unwrap(), b"Bbbb!");
    // SAFETY: a descriptor that nothing else owns.
    let again = unsafe { fs::File::from_raw_fd(libc::dup(b.as_raw_fd())) };
    drop(b);
    again.write_all_at(b"?", 4).unwrap();
    assert!(is_leased(&again));
}

#[test]
fn files_that_need_the_mount_go_through_it() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::calls::program_of_other_files");
}

#[test]
fn program_of_other_files() {
    let Some(root) = root() else { return };
    // A write takes set-id bits away, which the mount does.
    let lent = OpenOptions::new().write(true).create_new(true).mode(0o4755).open(root.join("lent")).unwrap();
    assert!(!is_leased(&lent));
    let plain = file(&root.join("plain"));
    assert!(is_leased(&plain));
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(root.join("plain"), fs::Permissions::from_mode(0o2755)).unwrap();
    plain.write_all_at(b"x", 0).unwrap();
    assert!(!is_leased(&plain));
    // What is no file of the directory.
    assert!(!is_leased(&file(&std::env::temp_dir().join("fastness-preload-elsewhere"))));
    assert!(!is_leased(&fs::File::open(&root).unwrap()));
}

#[test]
fn a_limit_of_the_length_of_files_is_kept() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::calls::program_with_a_limit");
    let found = fs::read(bench.path("dir/appended")).unwrap();
    assert_eq!(found, [[1; 700], [2; 700], [3; 700]].concat()[..2000]);
}

#[test]
fn program_with_a_limit() {
    let Some(root) = root() else { return };
    let limit = libc::rlimit { rlim_cur: 2000, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a process of ours, which does not want the signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // SAFETY: a limit of ours.
    let set = || assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let exchange = || {
        let before = std::ptr::null_mut();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::prlimit(0, libc::RLIMIT_FSIZE, &raw const limit, before) }, 0);
    };
    let is_refused = |file: &fs::File| {
        assert_eq!(file.write_all_at(&[1; 10], 2000).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    };
    in_child(|| {
        set();
        is_refused(&file(&root.join("later")));
    });
    in_child(|| {
        let before = file(&root.join("before"));
        assert!(is_leased(&before));
        exchange();
        is_refused(&before);
    });
    // What went past the kernel counts as well, and what follows comes after it.
    let options = OpenOptions::new().append(true).create(true).clone();
    let mut appended = options.open(root.join("appended")).unwrap();
    assert!(is_leased(&appended));
    appended.write_all(&[1; 700]).unwrap();
    in_child(|| {
        let mut appended = options.open(root.join("appended")).unwrap();
        assert!(is_leased(&appended));
        appended.write_all(&[2; 700]).unwrap();
        set();
        assert_eq!(appended.write(&[3; 700]).unwrap(), 600, "up to the limit");
        assert_eq!(appended.write(&[3; 700]).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    });
}

#[test]
fn the_status_counts_what_goes_past_the_mount() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::calls::program_that_is_counted");
}

#[test]
fn program_that_is_counted() {
    let Some(root) = root() else { return };
    let a = file(&root.join("a"));
    in_child(|| (0..10).for_each(|at| a.write_all_at(&[1; 100], 100 * at).unwrap()));
    a.read_exact_at(&mut [0; 70], 30).unwrap();
    assert!(is_leased(&a));
    let status = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fastness"));
        command.args(["responder", "status"]).arg(root.with_file_name("pm")).args(more);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let said = status(&["--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let counts = ["direct_writes", "direct_written_bytes", "direct_reads", "direct_read_bytes", "read_hits"];
    assert_eq!(counts.map(|name| said[name].as_u64().unwrap()), [10, 1000, 1, 70, 1], "{said}");
    assert_eq!(said["written_chunks"], 10);
    let said = status(&[]);
    assert!(said.contains("writes: 10, 1000 bytes; reads: 1, 70 bytes"), "{said}");
}

/// The kernel makes these calls by the length that it knows, and writes past it have changed that.
#[test]
fn what_the_kernel_copies_ends_where_the_file_ends() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::calls::program_that_lets_the_kernel_copy");
}

#[test]
fn program_that_lets_the_kernel_copy() {
    let Some(root) = root() else { return };
    let (null, four) = (std::ptr::null_mut(), [4_u8; 4]);
    let (reader, writer) = std::io::pipe().unwrap();
    for call in 0..4 {
        let (mut from, to) = (file(&root.join(format!("from{call}"))), file(&root.join(format!("to{call}"))));
        assert!(is_leased(&from) && is_leased(&to));
        from.write_all(&[7; 20_000]).unwrap();
        let (at, into, mut offset) = (from.as_raw_fd(), to.as_raw_fd(), 0);
        let part = libc::iovec { iov_base: four.as_ptr().cast_mut().cast(), iov_len: 4 };
        // SAFETY: descriptors that are open, and memory of this function.
        let done = unsafe {
            match call {
                0 => libc::sendfile(into, at, &raw mut offset, 5000),
                1 => libc::copy_file_range(at, &raw mut offset, into, null, 5000, 0),
                2 => libc::splice(at, &raw mut offset, writer.as_raw_fd(), null, 5000, 0),
                _ => libc::pwritev2(at, &raw const part, 1, -1, libc::RWF_APPEND),
            }
        };
        assert_eq!(done, if call == 3 { 4 } else { 5000 }, "call {call}");
        if call == 3 {
            let mut end = [0; 8];
            from.read_exact_at(&mut end, 19_996).unwrap();
            assert_eq!(end, [7, 7, 7, 7, 4, 4, 4, 4]);
        }
    }
    drop(reader);
}
