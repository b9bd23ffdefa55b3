//! Many stores: what the trace makes of the first contents has to be what is in the file at the end.

use std::arch::asm;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::pm::Pm;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Stores of every width and alignment, in a part of PM.
fn stores(pm: &Pm, random: &mut Random, part: std::ops::Range<usize>, count: usize) {
    for _ in 0..count {
        let offset = part.start + random.below(part.len() - 600);
        let to = unsafe { pm.at.add(offset) };
        let to16 = unsafe { pm.at.add(offset / 32 * 32 + 32) };
        let values: [u64; 4] = std::array::from_fn(|_| random.next());
        let (a, from) = (values[0], values.as_ptr());
        let len = random.below(500);
        unsafe {
            match random.below(26) {
                0 => asm!("mov [{to}], al", to = in(reg) to, in("al") a as u8),
                1 => asm!("mov [{to}], ax", to = in(reg) to, in("ax") a as u16),
                2 => asm!("mov [{to}], eax", to = in(reg) to, in("eax") a as u32),
                3 | 4 => asm!("mov [{to}], rax", to = in(reg) to, in("rax") a),
                5 => {
                    asm!("movdqu xmm0, [{from}]", "movdqu [{to}], xmm0", from = in(reg) from, to = in(reg) to, out("xmm0") _)
                }
                6 => {
                    asm!("vmovdqu ymm0, [{from}]", "vmovdqu [{to}], ymm0", from = in(reg) from, to = in(reg) to, out("xmm0") _)
                }
                7 => {
                    asm!("vmovdqu ymm0, [{from}]", "vmovntdq [{to}], ymm0", from = in(reg) from, to = in(reg) to16, out("xmm0") _)
                }
                8 => {
                    asm!("movdqu xmm0, [{from}]", "movntps [{to}], xmm0", from = in(reg) from, to = in(reg) to16, out("xmm0") _)
                }
                9 => asm!("movnti [{to}], rax", to = in(reg) to, in("rax") a),
                10 => asm!("movnti [{to}], eax", to = in(reg) to, in("eax") a as u32),
                11 => asm!("rep stosb", inout("rdi") to => _, inout("rcx") len => _, in("al") a as u8),
                12 => {
                    asm!("rep movsb", inout("rsi") pm.at.add(part.start) => _, inout("rdi") to => _, inout("rcx") len => _)
                }
                13 => {
                    asm!("rep movsq", inout("rsi") pm.at.add(part.start) => _, inout("rdi") to => _, inout("rcx") len / 8 => _)
                }
                14 => asm!("lock xadd [{to}], rax", to = in(reg) to, inout("rax") a => _),
                15 => {
                    asm!("lock cmpxchg [{to}], {new:e}", to = in(reg) to, new = in(reg) values[1], inout("rax") a => _)
                }
                16 => asm!("xchg [{to}], ax", to = in(reg) to, inout("ax") a as u16 => _),
                17 => asm!("lock and byte ptr [{to}], al", to = in(reg) to, in("al") a as u8),
                18 => {
                    asm!("lock cmpxchg16b [{to}]", to = in(reg) to16, inout("rax") a => _, inout("rdx") a => _, in("rcx") a)
                }
                19 => asm!("sub [{to}], rax", to = in(reg) to, in("rax") a),
                20 => {
                    asm!("cmpxchg [{to}], {new}", to = in(reg) to, new = in(reg) values[1], inout("rax") a => _)
                }
                21 => asm!("movdqu xmm0, [{from}]", "movdqu xmm1, [{from} + 16]", "maskmovdqu xmm0, xmm1",
                    from = in(reg) from, in("rdi") to, out("xmm0") _, out("xmm1") _),
                22 => {
                    asm!("vmovdqu ymm0, [{from}]", "vmovdqu ymm1, [{from}]", "vpmaskmovq [{to}], ymm1, ymm0",
                    from = in(reg) from, to = in(reg) to, out("xmm0") _, out("xmm1") _)
                }
                23 => {
                    asm!("movq mm0, [{from}]", "movntq [{to}], mm0", "emms", from = in(reg) from, to = in(reg) to)
                }
                24 => {
                    asm!("push rax", "pop qword ptr [{to}]", "bts qword ptr [{to}], 5", to = in(reg) to, out("rax") _)
                }
                _ => flush(to, a),
            }
        }
    }
}

unsafe fn flush(to: *mut u8, choice: u64) {
    unsafe {
        match choice % 5 {
            0 => asm!("clwb [{to}]", to = in(reg) to),
            1 => asm!("clflushopt [{to}]", to = in(reg) to),
            2 => asm!("clflush [{to}]", to = in(reg) to),
            3 => asm!("sfence"),
            _ => asm!("mfence"),
        }
    }
}

pub(crate) fn run(file: &str, seed: u64, count: usize) {
    let pm = Pm::map(file);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    stores(&pm, &mut random, 0..pm.len, count);
}

struct Shared(Pm);
unsafe impl Sync for Shared {}

/// Four threads, each with a part of its own and one word for all. None ends before all have begun: QEMU
/// gives the number of one that has ended to the next.
pub(crate) fn threads(file: &str) {
    let pm = Shared(Pm::map(file));
    let part = pm.0.len / 5;
    let all = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pm, all) = (&pm, &all);
            scope.spawn(move || {
                let word = unsafe { AtomicU64::from_ptr(pm.0.byte(4 * part / 64 * 64).cast()) };
                let mut random = Random(thread as u64 + 1);
                for _ in 0..20 {
                    stores(&pm.0, &mut random, thread * part..(thread + 1) * part, 50);
                    word.fetch_add(1, Ordering::SeqCst);
                }
                all.wait();
            });
        }
    });
}

/// For measurements: a record, a flush, a fence; some work of its own between them.
pub(crate) fn persist(file: &str, count: usize) {
    let pm = Pm::map(file);
    let mut text = Vec::new();
    for record in 0..count {
        text.clear();
        let mut sum = record as u64;
        for step in 0..200u64 {
            sum = sum.rotate_left(5) ^ step.wrapping_mul(0x9e37_79b9);
            text.push(sum as u8);
        }
        let at = pm.byte((record * 256) % (pm.len - 256));
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), at, text.len());
            for line in 0..4 {
                asm!("clwb [{at}]", at = in(reg) at.add(line * 64));
            }
            asm!("sfence");
        }
    }
}
