//! What the kernel does to PM and its mappings, and how programs end.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::pm::{Pm, expect, hex, map, put};

pub(crate) fn signal(file: &str) {
    let pm = Pm::map(file);
    put(pm.byte(0x40), 7);
    expect("store 0x40 0700000000000000");
    unsafe { std::ptr::null_mut::<u8>().wrapping_add(16).write_volatile(1) };
}

pub(crate) fn hang(file: &str) {
    let pm = Pm::map(file);
    put(pm.byte(0x40), 7);
    expect("store 0x40 0700000000000000");
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// A child that ends on its own; its store, if it makes one, is not traced.
pub(crate) fn fork(file: &str, child_writes: bool) {
    let pm = Pm::map(file);
    put(pm.byte(0), 1);
    expect("store 0x0 0100000000000000");
    unsafe {
        match libc::fork() {
            0 => {
                if child_writes {
                    put(pm.byte(0x80), 2);
                }
                libc::exit(0);
            }
            child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
        }
    }
    put(pm.byte(8), 3);
    expect("store 0x8 0300000000000000");
}

pub(crate) fn exec(file: &str) {
    let pm = Pm::map(file);
    put(pm.byte(0), 1);
    expect("store 0x0 0100000000000000");
    let text = |text: &str| CString::new(text).unwrap();
    let run = |path: &str| unsafe {
        libc::execv(text(path).as_ptr(), [text("true").as_ptr(), std::ptr::null()].as_ptr());
    };
    run("/nonexistent/program");
    put(pm.byte(8), 1);
    expect("store 0x8 0100000000000000");
    run("/bin/true");
}

/// `write` and its like, and what makes it durable.
pub(crate) fn files(file: &str) {
    let pm = Pm::map(file);
    let descriptor = pm.file.as_raw_fd();
    unsafe {
        pm.file.write_all_at(b"pwrite", 0x1001).unwrap();
        expect(&format!("ntstore 0x1001 {}", hex(b"pwrite")));
        assert_eq!(libc::lseek(descriptor, 0x2000, libc::SEEK_SET), 0x2000);
        assert_eq!(libc::write(descriptor, b"write".as_ptr().cast(), 5), 5);
        expect(&format!("ntstore 0x2000 {}", hex(b"write")));
        let parts =
            [b"wr", b"it", b"ev"].map(|part| libc::iovec { iov_base: part.as_ptr() as *mut _, iov_len: 2 });
        assert_eq!(libc::writev(descriptor, parts.as_ptr(), 3), 6);
        expect(&format!("ntstore 0x2005 {}", hex(b"writev")));
        assert_eq!(libc::fdatasync(descriptor), 0);
        expect("sfence");
        // Dirty lines, of which two are in the range of msync.
        for line in [0x3000, 0x3040, 0x4000, 0x5000] {
            put(pm.byte(line), 1);
            expect(&format!("store {line:#x} 0100000000000000"));
        }
        assert_eq!(libc::msync(pm.byte(0x3000).cast(), 0x1000, libc::MS_ASYNC), 0);
        assert_eq!(libc::msync(pm.byte(0x3000).cast(), 0x1000, libc::MS_SYNC), 0);
        ["clwb 0x3000", "clwb 0x3040", "sfence"].into_iter().for_each(expect);
        assert_eq!(libc::fsync(descriptor), 0);
        ["clwb 0x4000", "clwb 0x5000", "sfence"].into_iter().for_each(expect);
        assert_eq!(libc::fsync(descriptor), 0);
        // Nothing left to do.
        let synchronous = libc::open(c_path(&pm).as_ptr(), libc::O_WRONLY | libc::O_DSYNC);
        assert_eq!(libc::pwrite(synchronous, b"dsync".as_ptr().cast(), 5, 0x6000), 5);
        expect(&format!("ntstore 0x6000 {}", hex(b"dsync")));
        expect("sfence");
        assert_eq!(
            libc::fallocate(
                descriptor,
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                0x6000,
                0x1000
            ),
            0
        );
        expect(&format!("ntstore 0x6000 {}", hex(&[0; 4096])));
        assert_eq!(libc::ftruncate(descriptor, 0x5000), 0);
        expect(&format!("ntstore 0x5000 {}", hex(&[0; 4096])));
        assert_eq!(libc::ftruncate(descriptor, pm.len as i64), 0);
        let source = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(libc::pread(source.as_raw_fd(), pm.byte(0x7ffe).cast(), 4, 0), 4);
        expect("store 0x7ffe 7f454c46");
        let mut offset: i64 = 0x8000;
        assert_eq!(libc::copy_file_range(descriptor, &raw mut offset, descriptor, &mut 0x9000, 8, 0), 8);
        expect("ntstore 0x9000 4c46000000000000");
        // Last, as it does not come back.
        std::fs::File::create(std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap()).unwrap();
        for page in [0x1000, 0x2000, 0x3000, 0x4000, 0x7000, 0x8000, 0x9000] {
            expect(&format!("ntstore {page:#x} {}", hex(&[0; 4096])));
        }
        assert_eq!(libc::ftruncate(descriptor, pm.len as i64), 0);
    }
}

fn c_path(pm: &Pm) -> CString {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", pm.file.as_raw_fd())).unwrap();
    CString::new(path.to_str().unwrap()).unwrap()
}

/// Two files, one of them at several places.
pub(crate) fn maps(file: &str, other: &str) {
    let (first, second) = (Pm::map(file), Pm::map(other));
    let store = |at: *mut u8, address: u64| {
        put(at, address + 1);
        expect(&format!("store {address:#x} {}", hex(&(address + 1).to_le_bytes())));
    };
    let other_region = 1 << 40;
    store(first.byte(0x10), 0x10);
    store(second.byte(0x18), other_region + 0x18);
    unsafe {
        // A part, beside the whole.
        let part = map(&first.file, std::ptr::null_mut(), 0x2000, 0x3000, libc::MAP_SHARED);
        store(part.add(0x20), 0x3020);
        store(first.byte(0x3028), 0x3028);
        // Private is no PM.
        let private = map(&first.file, std::ptr::null_mut(), 0x1000, 0, libc::MAP_PRIVATE);
        put(private, 1);
        // The second file over a part of the part, and a store over the border between the two.
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        map(&second.file, part.add(0x1000), 0x1000, 0x2000, flags);
        store(part.add(0x1000), other_region + 0x2000);
        part.add(0xffc).cast::<u64>().write_unaligned(u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]));
        expect("store 0x3ffc 01020304");
        expect(&format!("store {:#x} 05060708", other_region + 0x2000));
        // Moved, and grown.
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let room = libc::mmap(
            std::ptr::null_mut(),
            0x10000,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        let to: *mut u8 = room.cast::<u8>().add(0x4000);
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved: *mut u8 = libc::mremap(part.cast(), 0x1000, 0x2000, how, to).cast();
        assert_eq!(moved, to);
        store(moved.add(0x30), 0x3030);
        store(moved.add(0x1030), 0x4030);
        // From PM to other memory after it, and from other memory before it.
        moved.add(0x1ffc).cast::<u64>().write_unaligned(u64::from_le_bytes([9; 8]));
        expect("store 0x4ffc 09090909");
        moved.sub(4).cast::<u64>().write_unaligned(u64::from_le_bytes([8; 8]));
        expect("store 0x3000 08080808");
        // Gone; something else is there.
        assert_eq!(libc::munmap(moved.cast(), 0x1000), 0);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(moved.cast(), 0x1000, protection, flags, -1, 0);
        put(moved, 1);
        store(moved.add(0x1038), 0x4038);
        // A mapping outlives its descriptor.
        drop(second.file);
        store(second.at.add(0x40), other_region + 0x40);
    }
}

/// Two functions deep; the test knows their addresses from the trace.
pub(crate) fn stacks(file: &str) {
    let pm = Pm::map(file);
    // Frame pointers by hand: this program is compiled without.
    unsafe {
        std::arch::asm!(
            "push rbp", "mov rbp, rsp", "call 2f", "jmp 4f",
            "2:", "push rbp", "mov rbp, rsp", "call 3f", "pop rbp", "ret",
            "3:", "push rbp", "mov rbp, rsp", "mov qword ptr [{to}], 5", "pop rbp", "ret",
            "4:", "pop rbp", to = in(reg) pm.byte(0x40));
    }
    expect("store 0x40 0500000000000000");
}
