//! The x86-64 copy routine with a recovery address, and the `SIGBUS` handler that knows it.
//!
//! The routine loads from the source only with aligned words and aligned 16-byte registers, so that no load
//! touches two lines. That gives the exact first unreadable byte (poison comes in lines, truncation in
//! pages), and it avoids `rep movs`, whose machine checks Skylake and Cascade Lake servers cannot always
//! recover from (Linux `arch/x86/lib/copy_mc.c`, "fragile").
//!
//! A prefetch runs ahead of the loads: the CPU's own prefetchers stop at the end of a page, and a recovery reads
//! gigabytes. A prefetch never faults.
//!
//! The handler resumes at the recovery address if, and only if, the instruction pointer is inside the routine
//! and the fault address is in what remains of the source. Every other `SIGBUS` goes to the handler that was
//! installed before, or to the default action.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};

// Arguments: RDI destination, RSI source, RDX bytes. Returns in RAX the bytes not copied. Uses no stack, and only
// registers that a call may change. At every load RSI is the source not yet copied and RDX its length: the
// handler and the recovery address depend on it.
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

/// Installs the `SIGBUS` handler, once in a process.
///
/// A library that installs its own handler later without calling ours takes the protection away.
pub(crate) fn prepare() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(install);
}

/// Copies as many bytes from `src` as can be read; returns their number.
///
/// # Safety
/// `src` is the start of a mapping of at least `dst.len()` bytes, which stays mapped and which nobody writes
/// meanwhile; its pages may answer with `SIGBUS`. [`prepare`] has been called.
#[inline]
pub(crate) unsafe fn copy_out(src: *const u8, dst: &mut [u8]) -> usize {
    // SAFETY: the routine writes no more than `dst.len()` bytes to `dst`, and reads no more from `src`.
    let left = unsafe { fastness_pmem_checked_copy_v1(dst.as_mut_ptr(), src, dst.len()) };
    dst.len() - left
}

/// What was installed before us.
static PREVIOUS: OnceLock<Previous> = OnceLock::new();

struct Previous(libc::sigaction);

// SAFETY: a `sigaction` is plain data: an address, flags and a mask.
unsafe impl Send for Previous {}
// SAFETY: as above; it is never changed after it was set.
unsafe impl Sync for Previous {}

fn install() {
    // SAFETY: all-zero is a valid `sigaction` to be overwritten; the handler has the signature that SA_SIGINFO
    // demands, and calls nothing that is not async-signal-safe. The previous action is stored before ours can
    // run. Its mask and the flags that concern interrupted code are kept, so that a chained handler runs under
    // the conditions that it asked for.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return;
        }
        let mut ours = previous;
        ours.sa_sigaction = on_sigbus as *const () as usize;
        ours.sa_flags =
            libc::SA_SIGINFO | libc::SA_ONSTACK | (previous.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
        let _ = PREVIOUS.set(Previous(previous));
        libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut());
    }
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers to a handler installed with SA_SIGINFO; nobody else uses them.
    unsafe {
        if !recover(&*info, &mut *context.cast::<libc::ucontext_t>()) {
            chain(signal, info, context);
        }
    }
}

/// Resumes at the recovery address if the copy routine's own load faulted.
///
/// # Safety
/// `info` belongs to the signal whose context is `context`.
unsafe fn recover(info: &libc::siginfo_t, context: &mut libc::ucontext_t) -> bool {
    // Sent by kill(2) or the like: there is no fault.
    if info.si_code <= 0 {
        return false;
    }
    let register = |index: c_int| context.uc_mcontext.gregs[index as usize] as usize;
    let start = fastness_pmem_checked_copy_v1 as *const () as usize;
    let end = fastness_pmem_checked_copy_v1_end as *const () as usize;
    if !(start..end).contains(&register(libc::REG_RIP)) {
        return false;
    }
    // SAFETY: SIGBUS with a positive code carries the address.
    let fault = unsafe { info.si_addr() } as usize;
    let granule_mask = granule_bytes(info) - 1;
    let (src, left) = (register(libc::REG_RSI), register(libc::REG_RDX));
    let first = src & !granule_mask;
    let last = src.saturating_add(left.saturating_sub(1)) | granule_mask;
    // Outside: the destination faulted, which is not ours to hide.
    if !(first..=last).contains(&fault) {
        return false;
    }
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = end as i64;
    true
}

/// Precision of the fault address: a page, or what a machine check says (2 MiB on devdax).
fn granule_bytes(info: &libc::siginfo_t) -> usize {
    const BUS_MCEERR_AR: c_int = 4;
    const BUS_MCEERR_AO: c_int = 5;
    const PAGE_SHIFT: u32 = 12;
    const SHIFT_MAX: u32 = 30;
    /// `si_addr_lsb` follows `si_addr`, which is at byte 16 (asm-generic/siginfo.h).
    const ADDR_LSB_OFFSET: usize = 24;
    let shift = match info.si_code {
        BUS_MCEERR_AR | BUS_MCEERR_AO => {
            // SAFETY: `siginfo_t` has 128 bytes, is 8-aligned, and the kernel fills the field for these codes.
            let lsb =
                unsafe { std::ptr::from_ref(info).cast::<u8>().add(ADDR_LSB_OFFSET).cast::<i16>().read() };
            u32::try_from(lsb).unwrap_or(PAGE_SHIFT).clamp(PAGE_SHIFT, SHIFT_MAX)
        }
        _ => PAGE_SHIFT,
    };
    1 << shift
}

/// Does what would have happened without us.
///
/// # Safety
/// Called from the handler, with its arguments.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: a non-default, non-ignore action is a function with the signature that its flags say; `sigaction`
    // and `raise` are async-signal-safe.
    unsafe {
        let by_fault = (*info).si_code > 0;
        let previous = PREVIOUS.get().map(|previous| &previous.0);
        let action = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
        match action {
            libc::SIG_IGN if !by_fault => {}
            // The kernel does not let a process ignore a fault either.
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                if !by_fault {
                    libc::raise(signal);
                }
                // A fault happens again when the handler returns.
            }
            handler if previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0) => {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
