//! Copy kernels: one loop per way of storing a line, and the dispatch over them.
//!
//! Every kernel walks the source in blocks of [`Summer::BLOCK_BYTES`], stores the block and hands it to the
//! summer, so that the summer's arithmetic runs while the stores drain; the summer is inlined into a function
//! compiled with the kernel's CPU features. The last partial line is completed with zeroes in a buffer on the
//! stack: PM is only ever written in whole, aligned lines, hence without a read-modify-write of a line.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::medium::{LINE_BYTES, Summer};
use crate::method::Kernel;

/// A line under construction.
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

/// Walks one extent: sums blocks of `$src`, stores its lines with `$store_line`, then zero lines.
///
/// A macro, not a function, so that the body and the inlined summer are compiled with the target features of
/// the function around it.
macro_rules! walk_extent {
    ($dst:ident, $src:ident, $extent_bytes:ident, $summer:ident, $store_line:path) => {{
        let mut dst = $dst;
        let mut blocks = $src.chunks_exact(S::BLOCK_BYTES);
        for block in &mut blocks {
            for line in block.chunks_exact(LINE_BYTES) {
                // SAFETY: `dst` advances by a line for every line of `src`, and `src` is no longer than the
                // extent, which the caller of the kernel guarantees to be mapped, writable, exclusively
                // ours and line-aligned; `line` has LINE_BYTES bytes; the CPU features are this function's.
                unsafe {
                    $store_line(dst, line.as_ptr());
                    dst = dst.add(LINE_BYTES);
                }
            }
            $summer.update(block);
        }
        let rest = blocks.remainder();
        let mut lines = rest.chunks_exact(LINE_BYTES);
        for line in &mut lines {
            // SAFETY: as above.
            unsafe {
                $store_line(dst, line.as_ptr());
                dst = dst.add(LINE_BYTES);
            }
        }
        let partial = lines.remainder();
        let mut stored_bytes = $src.len() - partial.len();
        let mut last = $crate::kernels::Line([0; LINE_BYTES]);
        if !partial.is_empty() {
            last.0[..partial.len()].copy_from_slice(partial);
            // SAFETY: as above; a partial line exists, so the extent, a multiple of lines, has room for it.
            unsafe {
                $store_line(dst, last.0.as_ptr());
                dst = dst.add(LINE_BYTES);
            }
            stored_bytes += LINE_BYTES;
            last.0 = [0; LINE_BYTES];
        }
        while stored_bytes < $extent_bytes {
            // SAFETY: as above; the loop ends with the extent.
            unsafe {
                $store_line(dst, last.0.as_ptr());
                dst = dst.add(LINE_BYTES);
            }
            stored_bytes += LINE_BYTES;
        }
        if !rest.is_empty() {
            $summer.update(rest);
        }
    }};
}
#[cfg(target_arch = "x86_64")]
use walk_extent;

/// Stores one line with whatever the compiler finds best.
///
/// # Safety
/// `dst` is valid for writes of [`LINE_BYTES`], `src` for reads, and they do not overlap.
#[inline(always)]
unsafe fn store_line_plain(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, LINE_BYTES) }
}

/// Cached stores without CPU-specific code.
unsafe fn copy_plain<S: Summer>(dst: *mut u8, src: &[u8], extent_bytes: usize, summer: &mut S) {
    walk_extent!(dst, src, extent_bytes, summer, store_line_plain);
}

/// Copies `src` to `dst`, zeroes up to `extent_bytes`, and sums `src`.
///
/// # Safety
/// `dst` is line-aligned and valid for writes of `extent_bytes`, which nothing else reads or writes meanwhile
/// and which `src` does not overlap; `extent_bytes` is a multiple of [`LINE_BYTES`] and at least `src.len()`;
/// the CPU runs `kernel`.
#[inline]
pub(crate) unsafe fn copy<S: Summer>(
    kernel: Kernel,
    dst: *mut u8,
    src: &[u8],
    extent_bytes: usize,
    summer: &mut S,
) {
    // SAFETY: the caller's promise, which is the promise that each kernel asks for.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match kernel {
            Kernel::NtAvx512 => x86::copy_nt_avx512(dst, src, extent_bytes, summer),
            Kernel::NtAvx2 => x86::copy_nt_avx2(dst, src, extent_bytes, summer),
            Kernel::NtSse2 => x86::copy_nt_sse2(dst, src, extent_bytes, summer),
            Kernel::FlushClwb => x86::copy_clwb(dst, src, extent_bytes, summer),
            Kernel::FlushClflushopt => x86::copy_clflushopt(dst, src, extent_bytes, summer),
            Kernel::FlushClflush => x86::copy_clflush(dst, src, extent_bytes, summer),
            Kernel::Movdir64b => x86::copy_movdir64b(dst, src, extent_bytes, summer),
            Kernel::PlainAvx2 => x86::copy_plain_avx2(dst, src, extent_bytes, summer),
            Kernel::Plain => copy_plain(dst, src, extent_bytes, summer),
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            // Only Kernel::Plain runs on other architectures (Kernel::runs_on).
            let _ = kernel;
            copy_plain(dst, src, extent_bytes, summer);
        }
    }
}

/// Waits until earlier stores and write-backs of this thread have been accepted by the persistence domain.
///
/// On other architectures it only orders; the region then calls `msync`.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has SSE, and the instruction touches no memory.
    unsafe {
        // PERSIST: orders every non-temporal store, movdir64b and clwb/clflushopt of this thread before every
        // later store of it; excludes the crash state in which a later commit mark is on PM and the bytes
        // that it vouches for are not.
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Writes cached lines back without changing them; [`fence`] waits for it.
///
/// # Safety
/// `start` is line-aligned and `len_bytes` bytes from it are mapped.
#[allow(clippy::missing_const_for_fn)]
pub(crate) unsafe fn write_back(start: *const u8, len_bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        x86::write_back(start, len_bytes);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, len_bytes);
}
