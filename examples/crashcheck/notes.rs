//! The same as notes.c, in Rust. `checkpoint` is what a program of yours takes over.
//!
//!   rustc --edition 2024 -g -o notes examples/crashcheck/notes.rs
//!   crashcheck run --pm 4K --recover './notes show {pm}' -- ./notes run {pm}
//!
//! `--cfg bug` leaves a write-back out.

use std::arch::asm;
use std::arch::x86_64::{_mm_clflush, _mm_sfence};
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;

/// One operation has ended: one instruction, which does nothing unless the tester traces this program.
fn checkpoint(number: u64) {
    // SAFETY: the instruction changes nothing, and touches no memory.
    unsafe { asm!("nop dword ptr [rax + rax + 0x7a5c0001]", in("rdi") 3u64, in("rsi") number) };
}

#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Notes {
    count: Line<u64>,
    notes: [Line<[u8; 64]>; 63],
}

/// What lies in one cache line is durable on return.
fn persist<T>(line: &Line<T>) {
    // SAFETY: any address of ours can be written back.
    unsafe {
        _mm_clflush(std::ptr::from_ref(line).cast());
        _mm_sfence();
    }
}

impl Notes {
    fn add(&mut self, text: &str) {
        let note = &mut self.notes[self.count.0 as usize];
        for (to, from) in note.0.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        if !cfg!(bug) {
            persist(note);
        }
        self.count.0 += 1;
        persist(&self.count);
    }

    fn show(&self) {
        for note in &self.notes[..self.count.0 as usize] {
            println!("{}", String::from_utf8_lossy(&note.0).trim_end_matches('\0'));
        }
    }
}

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, protection: i32, flags: i32, file: i32, offset: i64) -> *mut c_void;
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, command, path] = &arguments[..] else { panic!("usage: notes run|show FILE") };
    let file = File::options().read(true).write(true).open(path).expect("a file that is there");
    // SAFETY: the mapping is shared, for reading and writing, and never unmapped.
    let at = unsafe { mmap(std::ptr::null_mut(), size_of::<Notes>(), 3, 1, file.as_raw_fd(), 0) };
    assert!(at as isize != -1, "{path} cannot be mapped");
    // SAFETY: the file has 4 KiB, any bytes are notes, and nothing else uses them.
    let notes = unsafe { &mut *at.cast::<Notes>() };
    if command == "show" {
        return notes.show();
    }
    checkpoint(0);
    for (number, text) in (1..).zip(["milk", "bread", "eggs"]) {
        notes.add(text);
        checkpoint(number);
    }
}
