//! Every kind of instruction, once.

use std::arch::asm;

use crate::pm::{Pm, expect, hex, hypercall};

/// 64 bytes that differ.
fn pattern() -> [u8; 64] {
    std::array::from_fn(|index| (index * 3 + 1) as u8)
}

/// A store of a register's lowest bytes, to an offset; then what is to be in the trace.
macro_rules! store {
    ($pm:expr, $offset:expr, $len:expr, $kind:literal, $($code:tt)*) => {{
        let (pm, offset): (&Pm, usize) = ($pm, $offset);
        let (from, to) = (pattern(), pm.byte(offset));
        unsafe {
            asm!($($code)*, from = in(reg) from.as_ptr(), to = in(reg) to,
                out("rax") _, out("xmm0") _, out("xmm1") _, options(nostack));
        }
        pieces($kind, offset, &from[..$len]);
    }};
}

/// Vectors of 32 bytes come as two.
fn pieces(kind: &str, offset: usize, bytes: &[u8]) {
    for (index, bytes) in bytes.chunks(16).enumerate() {
        expect(&format!("{kind} {:#x} {}", offset + 16 * index, hex(bytes)));
    }
}

pub(crate) fn run(file: &str) {
    let pm = &Pm::map(file);
    hypercall(0, 0);
    expect("start");
    plain(pm);
    non_temporal(pm);
    locked(pm);
    strings(pm);
    flushes(pm);
    hypercall(3, 0x1234_5678_9abc);
    expect("checkpoint 20015998343868");
    hypercall(77, 5);
    expect("message 77 5");
    hypercall(2, 0);
    expect("fail");
    hypercall(1, 0);
    expect("success");
}

fn plain(pm: &Pm) {
    store!(pm, 0x101, 1, "store", "mov al, [{from}]", "mov [{to}], al");
    store!(pm, 0x113, 2, "store", "mov ax, [{from}]", "mov [{to}], ax");
    store!(pm, 0x125, 4, "store", "mov eax, [{from}]", "mov [{to}], eax");
    store!(pm, 0x13f, 8, "store", "mov rax, [{from}]", "mov [{to}], rax");
    store!(pm, 0xffc, 8, "store", "mov rax, [{from}]", "mov [{to}], rax");
    store!(pm, 0x203, 16, "store", "movdqu xmm0, [{from}]", "movdqu [{to}], xmm0");
    store!(pm, 0x220, 16, "store", "movdqa xmm0, [{from}]", "movaps [{to}], xmm0");
    store!(pm, 0x241, 32, "store", "vmovdqu ymm0, [{from}]", "vmovdqu [{to}], ymm0");
    store!(pm, 0x280, 32, "store", "vmovdqu ymm0, [{from}]", "vmovaps [{to}], ymm0");
    store!(pm, 0x2c4, 8, "store", "movq xmm0, [{from}]", "movq [{to}], xmm0");
    store!(pm, 0x2d4, 4, "store", "movd xmm0, [{from}]", "movss [{to}], xmm0");
    // The other way round.
    unsafe { asm!("movbe [{to}], rax", to = in(reg) pm.byte(0x2e8), in("rax") 0x0102_0304_0506_0708u64) };
    expect("store 0x2e8 0102030405060708");
    unsafe { asm!("movbe [{to}], ax", to = in(reg) pm.byte(0x2f0), in("ax") 0x0102u16) };
    expect("store 0x2f0 0102");
    unsafe { asm!("fldpi", "fstp qword ptr [{to}]", to = in(reg) pm.byte(0x2f8)) };
    expect("store 0x2f8 182d4454fb210940");
    // No LOCK: loads, stores.
    store!(pm, 0x300, 8, "store", "mov rax, [{from}]", "add [{to}], rax");
    let zero = pm.byte(0x380);
    unsafe { asm!("cmp rax, rax", "sete byte ptr [{to}]", to = in(reg) zero, out("rax") _) };
    expect("store 0x380 01");
    unsafe { asm!("push rax", "pop qword ptr [{to}]", to = in(reg) pm.byte(0x388), in("rax") 7u64) };
    expect("store 0x388 0700000000000000");
    // Of bytes that a mask chooses, each for itself.
    let from = pattern();
    let mask: [u8; 16] = [0x80, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
    unsafe {
        asm!("movdqu xmm0, [{from}]", "movdqu xmm1, [{mask}]", "maskmovdqu xmm0, xmm1",
            from = in(reg) from.as_ptr(), mask = in(reg) mask.as_ptr(), in("rdi") pm.byte(0x3a0),
            out("xmm0") _, out("xmm1") _);
    }
    expect("ntstore 0x3a0 01");
    expect("ntstore 0x3a3 0a");
    expect("ntstore 0x3af 2e");
    // Of elements that a mask chooses.
    let words: [u32; 4] = [0x8000_0000, 0, 0x8000_0000, 0];
    unsafe {
        asm!("movdqu xmm0, [{from}]", "movdqu xmm1, [{mask}]", "vpmaskmovd [{to}], xmm1, xmm0",
            from = in(reg) from.as_ptr(), mask = in(reg) words.as_ptr(), to = in(reg) pm.byte(0x3c0),
            out("xmm0") _, out("xmm1") _);
    }
    expect("store 0x3c0 0104070a");
    expect("store 0x3c8 191c1f22");
}

fn non_temporal(pm: &Pm) {
    store!(pm, 0x404, 4, "ntstore", "mov eax, [{from}]", "movnti [{to}], eax");
    store!(pm, 0x408, 8, "ntstore", "mov rax, [{from}]", "movnti [{to}], rax");
    store!(pm, 0x410, 16, "ntstore", "movdqu xmm0, [{from}]", "movntdq [{to}], xmm0");
    store!(pm, 0x420, 16, "ntstore", "movdqu xmm0, [{from}]", "movntps [{to}], xmm0");
    store!(pm, 0x430, 16, "ntstore", "movdqu xmm0, [{from}]", "movntpd [{to}], xmm0");
    store!(pm, 0x440, 32, "ntstore", "vmovdqu ymm0, [{from}]", "vmovntdq [{to}], ymm0");
    store!(pm, 0x460, 32, "ntstore", "vmovdqu ymm0, [{from}]", "vmovntps [{to}], ymm0");
    store!(pm, 0x480, 32, "ntstore", "vmovdqu ymm0, [{from}]", "vmovntpd [{to}], ymm0");
    store!(pm, 0x4a8, 8, "ntstore", "movq mm0, [{from}]", "movntq [{to}], mm0", "emms");
}

fn locked(pm: &Pm) {
    let (to, other) = (pm.byte(0x500), &mut 0u64);
    unsafe {
        asm!("lock xadd [{to}], rax", to = in(reg) to, inout("rax") 5u64 => _);
        expect("rmw 0x500 0500000000000000");
        asm!("lock add dword ptr [{to}], 3", to = in(reg) to);
        expect("rmw 0x500 08000000");
        asm!("lock or byte ptr [{to}], 0x40", to = in(reg) to);
        expect("rmw 0x500 48");
        asm!("lock inc word ptr [{to}]", to = in(reg) to);
        expect("rmw 0x500 4900");
        asm!("xchg [{to}], rax", to = in(reg) to, inout("rax") 0x77u64 => _);
        expect("rmw 0x500 7700000000000000");
        // One that compares well, and one that does not: the old value is stored again.
        asm!("lock cmpxchg [{to}], {new}", to = in(reg) to, new = in(reg) 0x88u64, inout("rax") 0x77u64 => _);
        expect("rmw 0x500 8800000000000000");
        asm!("lock cmpxchg [{to}], {new}", to = in(reg) to, new = in(reg) 0x99u64, inout("rax") 0x11u64 => _);
        expect("rmw 0x500 8800000000000000");
        asm!("mov {save}, rbx", "mov rbx, 0x21", "lock cmpxchg16b [{to}]", "mov rbx, {save}", save = out(reg) _,
            to = in(reg) to, inout("rax") 0x88u64 => _, inout("rdx") 0u64 => _, in("rcx") 0x22u64);
        expect("rmw 0x500 21000000000000002200000000000000");
        asm!("lock bts qword ptr [{to}], 3", to = in(reg) to);
        expect("rmw 0x500 2900000000000000");
        // Elsewhere it is a fence: once, as there is something to wait for.
        asm!("lock inc qword ptr [{to}]", "lock inc qword ptr [{to}]", to = in(reg) other);
        expect("lock");
        asm!("mov byte ptr [{pm}], 9", "xchg [{to}], rax", pm = in(reg) to, to = in(reg) other, out("rax") _);
        expect("store 0x500 09");
        expect("lock");
    }
}

fn strings(pm: &Pm) {
    let from = pattern();
    unsafe {
        asm!("rep stosb", inout("rdi") pm.byte(0x601) => _, inout("rcx") 3u64 => _, in("al") 0x5au8);
        (0..3).for_each(|index| expect(&format!("store {:#x} 5a", 0x601 + index)));
        asm!("rep movsq", inout("rsi") from.as_ptr() => _, inout("rdi") pm.byte(0x613) => _, inout("rcx") 2u64 => _);
        expect(&format!("store 0x613 {}", hex(&from[..8])));
        expect(&format!("store 0x61b {}", hex(&from[8..16])));
        // Backwards.
        asm!("std", "rep movsb", "cld", inout("rsi") from.as_ptr().add(1) => _,
            inout("rdi") pm.byte(0x631) => _, inout("rcx") 2u64 => _);
        expect(&format!("store 0x631 {:02x}", from[1]));
        expect(&format!("store 0x630 {:02x}", from[0]));
        asm!("stosw", inout("rdi") pm.byte(0x640) => _, in("ax") 0x1234u16);
        expect("store 0x640 3412");
    }
}

fn flushes(pm: &Pm) {
    let at = pm.byte(0x700);
    unsafe {
        asm!("sfence");
        expect("sfence");
        asm!("clwb [{at} + 7]", at = in(reg) at);
        expect("clwb 0x707");
        asm!("clflushopt [{at} + {index} * 8 + 1]", at = in(reg) at, index = in(reg) 9u64);
        expect("clflushopt 0x749");
        asm!("clflush [{at} + {index} * 4 - 0x40]", at = in(reg) at, index = in(reg) 0x20u64);
        expect("clflush 0x740");
        asm!("mfence", "sfence", "mfence", "lfence");
        expect("mfence");
        // A segment with a base, and a register of 32 bits, and one that is on the stack.
        let base: u64;
        asm!("mov {base}, fs:[0]", base = out(reg) base);
        asm!("clwb fs:[{at}]", at = in(reg) (at as u64).wrapping_sub(base));
        expect("clwb 0x700");
        asm!("xchg rsp, {at}", "clwb [rsp + 0x10]", "xchg rsp, {at}", at = inout(reg) at => _);
        expect("clwb 0x710");
        // No PM: nothing.
        asm!("clwb [{at}]", "clflush [rip]", at = in(reg) &raw const base);
        asm!("sfence");
        expect("sfence");
    }
}

/// An instruction that QEMU does not show.
pub(crate) fn save_state(file: &str) {
    let pm = Pm::map(file);
    unsafe { asm!("fxsave64 [{to}]", to = in(reg) pm.byte(0x1000)) };
}
