//! The kernel copies: `process_vm_readv` on ourselves.

/// Copies as many bytes from `src` as can be read; returns their number.
///
/// # Safety
/// `src` is the start of a mapping of at least `dst.len()` bytes, which stays mapped and which nothing writes
/// meanwhile; its pages may be unreadable.
pub(crate) unsafe fn copy_out(src: *const u8, dst: &mut [u8]) -> usize {
    let mut copied = 0;
    while copied < dst.len() {
        let rest = &mut dst[copied..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        // SAFETY: `copied` is less than `dst.len()`, the length of the mapping at `src`.
        let from = unsafe { src.add(copied) };
        let remote = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: rest.len() };
        // SAFETY: `local` is exactly `rest`; the kernel checks `remote` itself and reports what it cannot
        // read.
        let moved = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        match usize::try_from(moved) {
            Ok(moved) if moved > 0 => copied += moved,
            _ => break,
        }
    }
    copied
}

#[cfg(test)]
mod tests {
    #[test]
    fn stops_at_the_first_unreadable_page() {
        let page = rustix::param::page_size();
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * page as u64).unwrap();
        // SAFETY: a new mapping of a file of ours; the address is the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                2 * page,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED,
                &file,
                0,
            )
        }
        .unwrap();
        let mut dst = vec![1; 2 * page - 10];
        // SAFETY: the mapping above is longer than `dst` and nothing writes it.
        unsafe {
            assert_eq!(super::copy_out(base.cast::<u8>().add(10), &mut dst), 2 * page - 10);
            assert!(dst.iter().all(|&byte| byte == 0));
            file.set_len(page as u64).unwrap();
            assert_eq!(super::copy_out(base.cast::<u8>().add(10), &mut dst), page - 10);
            rustix::mm::munmap(base, 2 * page).unwrap();
        }
    }
}
