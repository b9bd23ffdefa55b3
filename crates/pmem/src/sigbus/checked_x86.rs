//! The x86-64 copy routine with a recovery address.
//!
//! The routine loads from the source only with aligned words and aligned 16-byte registers, so that no load
//! touches two lines. That gives the exact first unreadable byte (poison comes in lines, truncation in
//! pages), and it avoids `rep movs`, whose machine checks Skylake and Cascade Lake servers cannot always
//! recover from (Linux `arch/x86/lib/copy_mc.c`, "fragile").
//!
//! A prefetch runs ahead of the loads: the CPU's own prefetchers stop at the end of a page, and a recovery
//! reads gigabytes. A prefetch never faults.
//!
//! The handler resumes at the recovery address if, and only if, the instruction pointer is inside the routine
//! and the fault address is in what remains of the source.

use std::arch::global_asm;
use std::ffi::c_int;

use super::fault::Fault;

// Arguments: RDI destination, RSI source, RDX bytes. Returns in RAX the bytes not copied. Uses no stack, and
// only registers that a call may change. At every load RSI is the source not yet copied and RDX its length:
// the handler and the recovery address depend on it.
global_asm!(
    ".pushsection .text.fastness_pmem_checked_copy,\"ax\",@progbits",
    ".p2align 5",
    ".hidden fastness_pmem_checked_copy_v1",
    ".hidden fastness_pmem_checked_copy_v1_end",
    ".globl fastness_pmem_checked_copy_v1",
    ".globl fastness_pmem_checked_copy_v1_end",
    ".type fastness_pmem_checked_copy_v1,@function",
    "fastness_pmem_checked_copy_v1:",
    ".cfi_startproc",
    // Bytes to a word boundary of the source.
    "2:",
    "test sil, 7",
    "jz 3f",
    "test rdx, rdx",
    "jz 9f",
    "mov al, byte ptr [rsi]",
    "mov byte ptr [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jmp 2b",
    // Words to a line boundary.
    "3:",
    "test sil, 63",
    "jz 4f",
    "cmp rdx, 8",
    "jb 6f",
    "mov rax, qword ptr [rsi]",
    "mov qword ptr [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rdx, 8",
    "jmp 3b",
    // Lines.
    "4:",
    "cmp rdx, 64",
    "jb 5f",
    "prefetcht0 byte ptr [rsi + 1536]",
    "movdqa xmm0, xmmword ptr [rsi]",
    "movdqa xmm1, xmmword ptr [rsi + 16]",
    "movdqa xmm2, xmmword ptr [rsi + 32]",
    "movdqa xmm3, xmmword ptr [rsi + 48]",
    "movdqu xmmword ptr [rdi], xmm0",
    "movdqu xmmword ptr [rdi + 16], xmm1",
    "movdqu xmmword ptr [rdi + 32], xmm2",
    "movdqu xmmword ptr [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "jmp 4b",
    // Words of the last line.
    "5:",
    "cmp rdx, 8",
    "jb 6f",
    "mov rax, qword ptr [rsi]",
    "mov qword ptr [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rdx, 8",
    "jmp 5b",
    // Bytes of the last word.
    "6:",
    "test rdx, rdx",
    "jz 9f",
    "mov al, byte ptr [rsi]",
    "mov byte ptr [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jmp 6b",
    // Also the recovery address.
    "fastness_pmem_checked_copy_v1_end:",
    "9:",
    "mov rax, rdx",
    "ret",
    ".cfi_endproc",
    ".size fastness_pmem_checked_copy_v1, . - fastness_pmem_checked_copy_v1",
    ".popsection",
);

unsafe extern "C" {
    fn fastness_pmem_checked_copy_v1(dst: *mut u8, src: *const u8, len_bytes: usize) -> usize;
    /// First instruction after those that may fault; recovery goes on there.
    fn fastness_pmem_checked_copy_v1_end();
}

/// Copies as many bytes from `src` as can be read; returns their number.
///
/// # Safety
/// `src` is the start of a mapping of at least `dst.len()` bytes, which stays mapped and which nothing writes
/// meanwhile; its pages may answer with `SIGBUS`. [`prepare`](super::prepare) has been called.
#[inline]
pub(crate) unsafe fn copy_out(src: *const u8, dst: &mut [u8]) -> usize {
    // SAFETY: the routine writes no more than `dst.len()` bytes to `dst`, and reads no more from `src`.
    let left = unsafe { fastness_pmem_checked_copy_v1(dst.as_mut_ptr(), src, dst.len()) };
    dst.len() - left
}

/// Resumes at the recovery address if the copy routine's own load faulted.
pub(super) fn recover(fault: &Fault, context: &mut libc::ucontext_t) -> bool {
    let register = |index: c_int| context.uc_mcontext.gregs[index as usize] as usize;
    let start = fastness_pmem_checked_copy_v1 as *const () as usize;
    let end = fastness_pmem_checked_copy_v1_end as *const () as usize;
    if !(start..end).contains(&register(libc::REG_RIP)) {
        return false;
    }
    let granule_mask = fault.granule_bytes - 1;
    let (src, left) = (register(libc::REG_RSI), register(libc::REG_RDX));
    let first = src & !granule_mask;
    let last = src.saturating_add(left.saturating_sub(1)) | granule_mask;
    // Outside: the destination faulted, which is not ours to hide.
    if !(first..=last).contains(&fault.address) {
        return false;
    }
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = end as i64;
    true
}
