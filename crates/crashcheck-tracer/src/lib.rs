//! A plug-in for QEMU that records what a program does to persistent memory (PM), as a trace
//! (`docs/trace-format.md`).
//!
//! Licence: GPL-2.0-or-later, unlike the rest of Fastness, because it is loaded into QEMU and built with
//! bindings under that licence. It is a program of its own that writes a file; nothing depends on it.
//!
//! Motivation: programs are traced as they are, and with all that they do to PM: stores of every instruction,
//! flushes, fences. QEMU translates each instruction, and calls a plug-in where that asks for it.
//!
//! Design: at translation each instruction is decoded (`translate`, `instr`). Stores have a callback, which
//! first asks whether the address may be PM; flushes, fences and hypercalls, for which QEMU has no callback
//! of memory, have one that reads the operand's registers. What concerns PM goes through the `recorder` into
//! the trace. `user` is for a program that maps files as PM:
//! `qemu-x86_64 -plugin libfastness_crashcheck_tracer.so,out=TRACE,pm=FILE PROGRAM`.
//!
//! | argument | what |
//! |---|---|
//! | `out=TRACE` | where the trace goes |
//! | `pm=FILE` | a file that is PM; may be repeated |
//! | `reads=on` | loads, too |
//! | `with_parent=on` | QEMU is killed when the process that started it is gone |
//! | `stack=on` | return addresses of each event, by frame pointers |
//! | `operations=FILE` | what the program writes there is its log of operations |
//! | `coverage=FILE` | which blocks of code ran, and how often, goes there |
//!
//! For a guest, in `qemu-system-x86_64` with its memory in a shared file (`system`):
//!
//! | argument | what |
//! |---|---|
//! | `out=TRACE` | where the trace goes, a file or a pipe |
//! | `pm=START+LENGTH` | physical memory that is PM, such as `0x10000000+64M` |
//! | `ram=FILE` | the guest's memory, of a `memory-backend-file` with `share=on` |
//! | `disk=LENGTH[/BLOCK][@FILE]` | an NVMe disk, blocks of 512 bytes if not said, on a raw file, or on zeroes; may be repeated |
//! | `from_boot=on` | do not wait for the hypercall `start` |
//! | `repeat=on` | go on after `success` or `fail` with the next `start`; contents of PM are not in the trace |
//! | `coverage=FILE` | as above, of what runs while the trace is recorded |
//! | `reads=on`, `stack=on`, `with_parent=on` | as above |
//! | `orc=FILE` | return addresses of each event of the kernel, by its tables, of which the file says where they are |
//!
//! What cannot be recorded ends QEMU with a line on standard error and exit code 125; the trace is cut off
//! then, and readers say so.
//!
//! Not traced: instructions that QEMU does not emulate (AVX-512, `movdir64b`); x87 stores of 80 bits, `xsave`
//! and the like to PM are refused.
//!
//! # Code map
//! ```text
//! install, args   where QEMU starts us                recorder, area  events into a trace; contents, dirty lines
//! translate       which instructions get a callback   pending         threads for which a fence matters
//! instr           what an instruction is              stack           frame pointers
//! api/            every call into QEMU                fail            how it gives up
//! coverage        which blocks ran
//! user/           programs: files, mappings, effects of system calls
//! system/         guests: RAM file, page tables, NVMe commands from doorbells; before: what is on a disk when the
//!                 trace begins
//! ```
//! Every store first checks whether its address may be PM (`user/ranges`), without a lock. QEMU has no memory
//! callback for a flush, so its operand is computed from registers. At the end PM must equal what the events
//! make of it, or the trace is refused.
//!
//! Source: PM file systems dissertation, 8.1 and 9.1; design notes on crash testing, 1 and 2.

mod api;
mod area;
mod args;
mod coverage;
mod fail;
mod install;
mod instr;
mod pending;
mod recorder;
mod stack;
mod system;
mod translate;
mod user;

/// The tool that traces name.
pub(crate) const TOOL: &str = concat!("fastness tracer ", env!("CARGO_PKG_VERSION"));
