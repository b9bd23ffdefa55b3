//! The x86-64 ways to store one line, and the kernels made of them.
//!
//! Source: Intel SDM volume 2 (MOVNTDQ, CLWB, CLFLUSHOPT, CLFLUSH, MOVDIR64B), volume 3A section 9.2;
//! Werling, *PM file systems* (2025), sections 2.4.1 and 3.3.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_clflush, _mm_loadu_si128, _mm_stream_si128, _mm256_loadu_si256,
    _mm256_stream_si256, _mm512_loadu_si512, _mm512_stream_si512,
};

use super::{store_line_plain, walk_extent};
use crate::cpu::CpuFeatures;
use crate::medium::{LINE_BYTES, Summer};

/// Declares a kernel: the walk with one way to store a line, compiled with the features named.
///
/// The kernels' safety contract is that of `kernels::copy`.
macro_rules! kernel {
    ($name:ident, $features:literal, $store_line:path) => {
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<S: Summer>(dst: *mut u8, src: &[u8], extent_bytes: usize, summer: &mut S) {
            walk_extent!(dst, src, extent_bytes, summer, $store_line);
        }
    };
}

kernel!(copy_nt_avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2", store_line_nt_avx512);
kernel!(copy_nt_avx2, "avx2,bmi2", store_line_nt_avx2);
kernel!(copy_nt_sse2, "sse2", store_line_nt_sse2);
kernel!(copy_clwb, "avx2,bmi2", store_line_clwb);
kernel!(copy_clflushopt, "sse2", store_line_clflushopt);
kernel!(copy_clflush, "sse2", store_line_clflush);
kernel!(copy_movdir64b, "avx2,bmi2", store_line_movdir64b);
kernel!(copy_plain_avx2, "avx2,bmi2", store_line_plain);

// Every function below: `dst` is line-aligned and valid for writes of a line, `src` for reads of a line.
// PERSIST (all of them): none of these orders anything by itself. Stores and write-backs of different lines
// may reach the medium in any order and in 8-byte pieces until `kernels::fence`; a structure relies on
// nothing else before that.

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_line_nt_avx512(dst: *mut u8, src: *const u8) {
    // SAFETY: a line is one 64-byte register; `dst` is aligned to it, the load takes any alignment.
    unsafe { _mm512_stream_si512(dst.cast::<__m512i>(), _mm512_loadu_si512(src.cast::<__m512i>())) }
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_line_nt_avx2(dst: *mut u8, src: *const u8) {
    let (dst, src) = (dst.cast::<__m256i>(), src.cast::<__m256i>());
    // SAFETY: a line is two 32-byte registers; `dst` is aligned to them, the loads take any alignment.
    unsafe {
        let low = _mm256_loadu_si256(src);
        let high = _mm256_loadu_si256(src.add(1));
        _mm256_stream_si256(dst, low);
        _mm256_stream_si256(dst.add(1), high);
    }
}

#[inline]
#[target_feature(enable = "sse2")]
unsafe fn store_line_nt_sse2(dst: *mut u8, src: *const u8) {
    let (dst, src) = (dst.cast::<__m128i>(), src.cast::<__m128i>());
    for index in 0..LINE_BYTES / size_of::<__m128i>() {
        // SAFETY: a line is four 16-byte registers; `dst` is aligned to them, the loads take any alignment.
        unsafe { _mm_stream_si128(dst.add(index), _mm_loadu_si128(src.add(index))) }
    }
}

#[inline(always)]
unsafe fn store_line_clwb(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller's promise; the kernel runs only where the CPU has clwb (Kernel::runs_on).
    unsafe {
        store_line_plain(dst, src);
        clwb(dst);
    }
}

#[inline(always)]
unsafe fn store_line_clflushopt(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller's promise; the kernel runs only where the CPU has clflushopt (Kernel::runs_on).
    unsafe {
        store_line_plain(dst, src);
        clflushopt(dst);
    }
}

#[inline(always)]
unsafe fn store_line_clflush(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller's promise; every x86-64 CPU has clflush.
    unsafe {
        store_line_plain(dst, src);
        // PERSIST: the line stored above must not stay in a volatile cache when the fence returns.
        _mm_clflush(dst);
    }
}

#[inline(always)]
unsafe fn store_line_movdir64b(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller's promise, and movdir64b demands the destination's alignment, which it includes; the
    // kernel runs only where the CPU has the instruction (Kernel::runs_on). The compiler must assume that the
    // block reads and writes memory.
    unsafe {
        asm!("movdir64b {dst}, [{src}]", dst = in(reg) dst, src = in(reg) src, options(nostack, preserves_flags));
    }
}

/// Starts the write-back of one line; it may stay cached.
#[inline(always)]
unsafe fn clwb(line: *const u8) {
    // PERSIST: the line must be on its way to the persistence domain when the next fence waits; without it
    // the fence returns while the line sits in a volatile cache. The block counts as a memory access for the
    // compiler, so stores stay before it; the CPU orders it after older stores to the same line. SAFETY: a
    // write-back changes no value; the caller promises a mapped address and a CPU with clwb.
    unsafe {
        asm!("clwb [{line}]", line = in(reg) line, options(nostack, preserves_flags));
    }
}

/// Starts the write-back of one line, which leaves the caches.
#[inline(always)]
unsafe fn clflushopt(line: *const u8) {
    // PERSIST: as clwb.
    // SAFETY: as clwb, with a CPU that has clflushopt.
    unsafe {
        asm!("clflushopt [{line}]", line = in(reg) line, options(nostack, preserves_flags));
    }
}

/// Starts the write-back of all lines from `start`, with the mildest instruction that the CPU has.
///
/// # Safety
/// `len_bytes` bytes from `start` are mapped.
pub(super) unsafe fn write_back(start: *const u8, len_bytes: usize) {
    let cpu = CpuFeatures::get();
    for offset in (0..len_bytes).step_by(LINE_BYTES) {
        // SAFETY: `offset` is below `len_bytes`; each instruction is used only where the CPU has it.
        unsafe {
            let line = start.add(offset);
            // PERSIST: bytes that an earlier process left in the caches are written back before the fence
            // that the caller issues; excludes that recovery acts on bytes which a power cut then takes away.
            if cpu.clwb {
                clwb(line);
            } else if cpu.clflushopt {
                clflushopt(line);
            } else {
                _mm_clflush(line);
            }
        }
    }
}
